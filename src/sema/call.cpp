// Calls: inlined functions, ops by their signatures, and the few forms that are neither.
#include "ir/target.h"
#include "sema/elaborate.h"
#include <algorithm>
#include <cmath>
#include <functional>

namespace tkc::sema {

using ast::ExprKind;
using ir::OpKind;
using Kind = SV::Kind;

static ir::Attrs attr(std::string_view key, ir::Attr v) {
  ir::Attrs a;
  a.set(key, std::move(v));
  return a;
}

SV Elaborator::call(const ast::Expr &e) {
  if (!e.operands.empty()) return error(e.name_loc, DiagKind::not_callable, e.text, "values have no methods here");
  bool handled = false;
  SV out = builtin(e, handled);
  if (handled) return out;
  if (auto it = file_->functions.find(e.text); it != file_->functions.end())
    return call_function(*it->second.first, it->second.second, e);
  if (auto t = parse_dtype(e.text)) return cast(*t, e);
  if (Var *v = lookup(e.text); v && v->value.is(Kind::DType)) return cast(v->value.dtype, e);
  std::vector<OpKind> kinds = ir::find_source_ops(e.text);
  if (!kinds.empty()) return call_op(kinds, e);
  std::vector<std::string> names = visible_names();
  for (OpKind k : ir::all_ops()) names.emplace_back(ir::def(k).source.s);
  for (const char *b : {"cdiv", "has", "full", "zeros", "ones", "split", "static_assert", "zeros_like"}) names.emplace_back(b);
  std::string near = nearest_name(e.text, names);
  for (const ast::Arg &a : e.args) expr(*a.value);
  return error(e.name_loc, DiagKind::unknown_name, e.text, near.empty() ? "" : "; did you mean `" + near + "`?");
}

SV Elaborator::cast(DType t, const ast::Expr &e) {
  if (e.args.size() != 1 || e.args[0].name) return error(e.loc, DiagKind::wrong_arity, e.text, 1, e.args.size());
  SV v = expr(*e.args[0].value);
  if (v.is_poison()) return v;
  if (v.is_number()) { // a typed scalar constant
    if (is_float(t)) {
      double x = v.is(Kind::Float) ? v.f : double(v.i);
      return SV::make_value(b_.constant(t, x, e.loc), e.loc);
    }
    int64_t x = v.is(Kind::Float) ? float_to_int(t, v.f) : v.i;
    return SV::make_value(b_.constant_int(t, x, e.loc), e.loc);
  }
  ir::Value *x = value(v);
  if (!x) return SV::poison();
  if (x->type.dtype == t) return SV::make_value(x, e.loc);
  return emit(OpKind::Cast, {x}, attr("dtype", t), e.loc, {e.args[0].value->loc});
}

// Mathematics on compile-time numbers: 1.0 / sqrt(128) is a constant.
SV Elaborator::fold_math(const std::string &name, const std::vector<SV> &args, SourceLoc loc, bool &folded) {
  auto number = [&](size_t i) { return args[i].is(Kind::Float) ? args[i].f : double(args[i].i); };
  bool floats = std::any_of(args.begin(), args.end(), [](const SV &a) { return a.is(Kind::Float); });
  folded = true;
  if (args.size() == 1) {
    static const std::map<std::string, double (*)(double)> unary = {
        {"exp", [](double x) { return std::exp(x); }},     {"exp2", [](double x) { return std::exp2(x); }},
        {"log", [](double x) { return std::log(x); }},     {"log2", [](double x) { return std::log2(x); }},
        {"sqrt", [](double x) { return std::sqrt(x); }},   {"rsqrt", [](double x) { return 1 / std::sqrt(x); }},
        {"floor", [](double x) { return std::floor(x); }}, {"ceil", [](double x) { return std::ceil(x); }},
        {"tanh", [](double x) { return std::tanh(x); }},   {"sin", [](double x) { return std::sin(x); }},
        {"cos", [](double x) { return std::cos(x); }}};
    if (auto it = unary.find(name); it != unary.end()) return SV::make_float(it->second(number(0)), loc);
    if (name == "abs") return floats ? SV::make_float(std::fabs(number(0)), loc) : SV::make_int(std::abs(args[0].i), loc);
  }
  if (args.size() == 2) {
    if (name == "pow") return SV::make_float(std::pow(number(0), number(1)), loc);
    bool first = name == "min" ? number(0) <= number(1) : number(0) >= number(1);
    if (name == "min" || name == "max") {
      if (floats) return SV::make_float(number(first ? 0 : 1), loc);
      return args[first ? 0 : 1];
    }
  }
  folded = false;
  return SV::poison();
}

SV Elaborator::builtin(const ast::Expr &e, bool &handled) {
  handled = true;
  const std::string &n = e.text;
  auto arity = [&](size_t least, size_t most) {
    if (e.args.size() >= least && e.args.size() <= most) return true;
    error(e.loc, DiagKind::wrong_arity, n, least == most ? fmt::format("{}", least) : fmt::format("{} to {}", least, most), e.args.size());
    return false;
  };
  if (n == "has") {
    if (!arity(1, 1)) return SV::poison();
    const ast::Expr &a = *e.args[0].value;
    Var *v = a.kind == ExprKind::Name ? lookup(a.text) : nullptr;
    if (!v) return a.kind == ExprKind::Name ? name(a) : error(a.loc, DiagKind::type_mismatch, "the name of an optional tensor", "an expression");
    return SV::make_bool(!v->value.is(Kind::Absent), e.loc);
  }
  if (n == "cdiv") {
    if (!arity(2, 2)) return SV::poison();
    SV a = expr(*e.args[0].value), b = expr(*e.args[1].value);
    if (a.is_poison() || b.is_poison()) return SV::poison();
    if (a.is(Kind::Int) && b.is(Kind::Int)) {
      if (b.i == 0) return error(e.loc, DiagKind::division_by_zero);
      return SV::make_int(a.i / b.i + (a.i % b.i != 0 && (a.i < 0) == (b.i < 0)), e.loc);
    }
    SV sum = binary(ast::BinaryOp::Sub, binary(ast::BinaryOp::Add, a, b, e.loc), SV::make_int(1, e.loc), e.loc);
    return binary(ast::BinaryOp::Div, sum, b, e.loc);
  }
  if (n == "static_assert") {
    if (!arity(1, 2)) return SV::poison();
    auto ok = const_bool(*e.args[0].value, "the condition of static_assert");
    std::string text = e.args.size() > 1 && e.args[1].value->kind == ExprKind::String
                           ? e.args[1].value->text
                           : std::string(diags_.sources().text(e.args[0].value->loc));
    if (ok && !*ok) error(e.loc, DiagKind::static_assertion, text);
    return SV::effect(e.loc);
  }
  if (n == "zeros_like") {
    if (!arity(1, 1)) return SV::poison();
    SV a = expr(*e.args[0].value);
    ir::Value *x = a.is_poison() ? nullptr : value(a);
    if (!x) return SV::poison();
    SV zero = is_bool(x->type.dtype) ? SV::make_bool(false, e.loc) : SV::make_int(0, e.loc);
    return SV::make_value(value_as(zero, x->type, "zeros_like"), e.loc);
  }
  if (n == "full") { // full<f32>([BM, BN], v)
    if (!arity(2, 2)) return SV::poison();
    if (e.generics.size() != 1 || e.generics[0].value->kind != ExprKind::Name)
      return error(e.loc, DiagKind::wrong_arity, n, "one type in <>,", e.generics.size());
    auto t = dtype_of({e.generics[0].value->text, e.generics[0].value->loc});
    SV shape = expr(*e.args[0].value), v = expr(*e.args[1].value);
    if (!t || shape.is_poison() || v.is_poison()) return SV::poison();
    if (shape.is(Kind::Int)) shape = SV::make(Kind::Tuple, shape.loc, [&](SV &s) { s.elements = {shape}; });
    std::vector<int64_t> extents;
    if (!shape.is(Kind::Tuple)) return error(shape.loc, DiagKind::type_mismatch, "a shape such as [M, N]", shape.describe());
    for (const SV &x : shape.elements) {
      if (!x.is(Kind::Int)) return error(x.loc, DiagKind::non_constant_shape, extents.size(), n, std::string(diags_.sources().text(x.loc)));
      if (x.i < least_extent()) return error(x.loc, DiagKind::bad_extent, extents.size(), x.i);
      extents.push_back(x.i);
    }
    return SV::make_value(value_as(v, ir::Type::tile(*t, extents), "full"), e.loc);
  }
  if (n == "split") { // split(x, parts, axis) -> a tuple of equal parts
    if (!arity(2, 3)) return SV::poison();
    SV x = expr(*e.args[0].value);
    auto parts = const_int(*e.args[1].value, "the number of parts");
    auto axis = e.args.size() > 2 ? const_int(*e.args[2].value, "the axis") : std::optional<int64_t>(0);
    if (!x.is(Kind::Value) || !parts || !axis) return x.is_poison() || !parts || !axis ? SV::poison() : error(x.loc, DiagKind::type_mismatch, "a tile", x.describe());
    const std::vector<int64_t> &shape = x.v->type.shape;
    if (*axis < 0) *axis += int64_t(shape.size());
    if (*axis < 0 || *axis >= int64_t(shape.size())) return error(e.loc, DiagKind::index_out_of_range, *axis, shape.size());
    if (*parts < 1 || shape[size_t(*axis)] % *parts) return error(e.loc, DiagKind::bad_check, fmt::format("an extent of {} has no {} equal parts", shape[size_t(*axis)], *parts));
    std::vector<int64_t> starts(shape.size(), 0), sizes = shape;
    sizes[size_t(*axis)] /= *parts;
    SV out = SV::make(Kind::Tuple, e.loc, [](SV &) {});
    for (int64_t k = 0; k < *parts; k++) {
      starts[size_t(*axis)] = k * sizes[size_t(*axis)];
      ir::Attrs a;
      a.set("starts", starts);
      a.set("sizes", sizes);
      out.elements.push_back(*parts == 1 ? x : emit(OpKind::Slice, {x.v}, a, e.loc));
    }
    return out;
  }
  if ((n == "program_id" || n == "num_programs") && e.args.empty()) { // all axes as a tuple
    if (reference()) return error(e.loc, DiagKind::only_in_kernel, n);
    SV out = SV::make(Kind::Tuple, e.loc, [](SV &) {});
    for (int64_t axis = 0; axis < int64_t(fn_.grid.size()); axis++)
      out.elements.push_back(emit(n == "program_id" ? OpKind::ProgramId : OpKind::NumPrograms, {}, attr("axis", axis), e.loc));
    return out.elements.size() == 1 ? out.elements[0] : out;
  }
  if (n == "inline_ptx") return inline_ptx(e);
  if (generators_) {
    static const std::set<std::string> kinds = {"uniform", "normal", "bernoulli", "integers", "constant", "edge"};
    if (kinds.count(n)) return generator(e);
  }
  handled = false;
  return SV::poison();
}

SV Elaborator::generator(const ast::Expr &e) {
  GeneratorCall g;
  g.kind = e.text;
  for (const ast::Arg &a : e.args) {
    SV v = expr(*a.value);
    if (v.is_poison()) return v;
    if (!v.is_number()) return error(a.value->loc, DiagKind::not_constant, "the argument of a generator");
    g.args.push_back(v.is(Kind::Float) ? v.f : double(v.i));
  }
  static const std::map<std::string, size_t> arity = {{"uniform", 2}, {"normal", 2}, {"bernoulli", 1}, {"integers", 2}, {"constant", 1}, {"edge", 0}};
  if (g.args.size() != arity.at(g.kind)) return error(e.loc, DiagKind::wrong_arity, e.text, arity.at(g.kind), g.args.size());
  g.param = fmt::format("random{}", generators_->size());
  DType t = e.text == "bernoulli" ? DType::Bool : e.text == "integers" ? DType::I64 : is_float(generator_dtype_) ? DType::F64 : DType::I64;
  ir::Param p;
  p.name = g.param;
  p.type = ir::Type::tile(t, generator_shape_);
  fn_.params.push_back(p);
  ir::Value *v = fn_.new_value(p.type, g.param);
  v->block = fn_.body;
  v->index = int64_t(fn_.body->args.size());
  fn_.body->args.push_back(v);
  generators_->push_back(std::move(g));
  return SV::make_value(v, e.loc);
}

SV Elaborator::inline_ptx(const ast::Expr &e) {
  // inline_ptx("ex2.approx.f32 $0, $1;", x, y, result = f32, means = exp2(a0), min_sm = 80, effects = "pure")
  if (e.args.empty() || e.args[0].value->kind != ExprKind::String)
    return error(e.loc, DiagKind::missing_argument, e.text, "text");
  ir::Attrs attrs;
  attrs.set("text", e.args[0].value->text);
  std::vector<SV> args;
  const ast::Expr *means = nullptr;
  for (size_t i = 1; i < e.args.size(); i++) {
    const ast::Arg &a = e.args[i];
    if (!a.name) {
      args.push_back(expr(*a.value));
      if (args.back().is_poison()) return SV::poison();
      continue;
    }
    if (a.name->text == "result") {
      if (a.value->kind != ExprKind::Name) return error(a.value->loc, DiagKind::type_mismatch, "a type", "an expression");
      auto t = dtype_of({a.value->text, a.value->loc});
      if (!t) return SV::poison();
      attrs.set("dtype", *t);
    } else if (a.name->text == "means") {
      means = a.value.get();
    } else if (a.name->text == "min_sm") {
      auto v = const_int(*a.value, "min_sm");
      if (!v) return SV::poison();
      attrs.set("min_sm", *v);
      if (target_ && target_->sm < *v)
        return error(e.loc, DiagKind::unsupported_on_target, "inline_ptx", fmt::format("sm_{}", *v), target_->name);
    } else if (a.name->text == "effects") {
      SV v = expr(*a.value);
      if (!v.is(Kind::String) || (v.s != "pure" && v.s != "memory"))
        return error(a.value->loc, DiagKind::bad_choice, "effects", e.text, "\"pure\", \"memory\"", v.describe());
      attrs.set("effects", v.s);
    } else {
      return error(a.name->loc, DiagKind::unknown_argument, e.text, a.name->text, "");
    }
  }
  if (!attrs.has("dtype")) return error(e.loc, DiagKind::missing_argument, e.text, "result");
  if (!attrs.has("effects")) attrs.set("effects", std::string("pure"));
  // Numbers take the default types; all operands get one shape.
  std::vector<ir::Value *> operands;
  std::vector<int64_t> shape;
  for (const SV &a : args) {
    ir::Value *v = value(a);
    if (!v) return SV::poison();
    if (v->type.rank() > int64_t(shape.size())) shape = v->type.shape;
    operands.push_back(v);
  }
  for (size_t i = 0; i < operands.size(); i++) {
    operands[i] = value_as(SV::make_value(operands[i], args[i].loc), operands[i]->type.with_shape(shape), "inline_ptx");
    if (!operands[i]) return SV::poison();
  }
  SV out = emit(OpKind::InlinePtx, operands, attrs, e.loc);
  if (out.is_poison() || !means) return out;
  // The meaning: a function of the scalars a0, a1, ..., run by the interpreter elementwise.
  ir::Op *op = out.v->op;
  ir::Block *outer = b_.block(), *region = fn_.new_block(op);
  op->regions.push_back(region);
  push_scope();
  for (size_t i = 0; i < operands.size(); i++) {
    ir::Value *v = fn_.new_value(ir::Type::scalar(operands[i]->type.dtype), fmt::format("a{}", i));
    v->block = region;
    v->index = int64_t(i);
    region->args.push_back(v);
    define({v->name, e.loc}, SV::make_value(v, e.loc));
  }
  b_.set_block(region);
  SV m = expr(*means);
  ir::Value *r = m.is_poison() ? nullptr : value_as(m, ir::Type::scalar(attrs.dtype("dtype")), "means");
  if (r) b_.create_typed(OpKind::Yield, {r}, {}, {}, e.loc);
  pop_scope();
  b_.set_block(outer);
  return r ? out : SV::poison();
}

// ---- ops by signature

bool Elaborator::bind_args(OpKind kind, const ast::Expr &e, std::vector<const ast::Expr *> &by_param,
                           std::vector<const ast::Expr *> &rest) {
  const std::vector<ir::SigParam> &params = ir::signature(kind);
  by_param.assign(params.size(), nullptr);
  rest.clear();
  size_t next = 0;
  for (const ast::Arg &a : e.args) {
    if (a.name) {
      auto it = std::find_if(params.begin(), params.end(), [&](const ir::SigParam &p) { return p.name == a.name->text; });
      if (it == params.end() || by_param[size_t(it - params.begin())]) return false;
      by_param[size_t(it - params.begin())] = a.value.get();
      continue;
    }
    if (next >= params.size()) return false;
    if (params[next].variadic) {
      rest.push_back(a.value.get());
      continue;
    }
    by_param[next++] = a.value.get();
  }
  for (size_t i = 0; i < params.size(); i++)
    if (!by_param[i] && !params[i].optional) return false;
  return true;
}

SV Elaborator::call_op(const std::vector<OpKind> &kinds, const ast::Expr &e) {
  std::vector<const ast::Expr *> by_param, rest;
  // The generic argument of iota<i32>(n) and the like is the parameter of kind type.
  for (OpKind k : kinds)
    if (bind_args(k, e, by_param, rest)) {
      by_param.insert(by_param.end(), rest.begin(), rest.end());
      return apply_op(k, e, by_param);
    }
  // Say precisely what is wrong when there is one form.
  const std::vector<ir::SigParam> &params = ir::signature(kinds[0]);
  if (kinds.size() == 1) {
    std::vector<std::string> names;
    size_t required = 0;
    for (const ir::SigParam &p : params) names.push_back(p.name), required += !p.optional;
    std::set<std::string> seen;
    for (const ast::Arg &a : e.args) {
      if (!a.name) continue;
      if (std::find(names.begin(), names.end(), a.name->text) == names.end()) {
        std::string near = nearest_name(a.name->text, names);
        return error(a.name->loc, DiagKind::unknown_argument, e.text, a.name->text, near.empty() ? "" : "; did you mean `" + near + "`?");
      }
      if (!seen.insert(a.name->text).second) return error(a.name->loc, DiagKind::repeated_argument, a.name->text, e.text);
    }
    std::string count = required == params.size() ? fmt::format("{}", required) : fmt::format("{} to {}", required, params.size());
    return error(e.loc, DiagKind::wrong_arity, e.text, count, e.args.size());
  }
  std::string forms;
  for (OpKind k : kinds) forms += (forms.empty() ? "" : "; ") + std::string(ir::def(k).signature.s);
  return error(e.loc, DiagKind::no_overload, e.text, forms);
}

SV Elaborator::apply_op(OpKind kind, const ast::Expr &e, std::vector<const ast::Expr *> &by_param) {
  const std::vector<ir::SigParam> &params = ir::signature(kind);
  const ir::OpDef &d = ir::def(kind);
  using PK = ir::SigParam::Kind;
  std::vector<SV> values; // of value parameters, in order
  std::vector<size_t> owners;
  ir::Attrs attrs;
  bool all_axes = false, has_view = false, failed = false;
  Access mem;
  std::map<std::string, bool> given;
  for (size_t i = 0; i < by_param.size(); i++) {
    // Arguments past the parameters belong to the variadic one, wherever it stands.
    size_t owner = i;
    if (i >= params.size())
      for (owner = 0; !params[owner].variadic;) owner++;
    const ir::SigParam &p = params[owner];
    const ast::Expr *a = by_param[i];
    if (p.variadic && i < params.size() && !a) continue;
    switch (p.kind) {
    case PK::View: {
      SV v = expr(*a);
      mem = access(v, a->loc);
      has_view = true;
      if (!mem.ok) failed = true;
      break;
    }
    case PK::Tile:
    case PK::Scalar: {
      given[p.name] = a != nullptr;
      if (!a) break;
      SV v = expr(*a);
      if (v.is_poison()) failed = true;
      values.push_back(v);
      owners.push_back(owner);
      break;
    }
    case PK::Tensor: {
      SV v = expr(*a);
      if (v.is(Kind::View)) v = materialise(v);
      if (!v.is(Kind::Tensor) && !v.is_poison()) v = error(a->loc, DiagKind::type_mismatch, "a tensor", v.describe());
      if (v.is_poison()) failed = true;
      values.push_back(v);
      owners.push_back(i);
      break;
    }
    case PK::Int:
    case PK::Bool: {
      if (!a) {
        if (p.default_text == "all")
          all_axes = true;
        else
          attrs.set(p.name, p.kind == PK::Bool ? int64_t(p.default_text == "true") : int64_t(std::stoll(p.default_text)));
        break;
      }
      auto v = p.kind == PK::Int ? const_int(*a, p.name.c_str()) : [&]() -> std::optional<int64_t> {
        auto b = const_bool(*a, p.name.c_str());
        return b ? std::optional<int64_t>(*b) : std::nullopt;
      }();
      if (!v) failed = true;
      else attrs.set(p.name, *v);
      break;
    }
    case PK::Ints: {
      SV v = a ? expr(*a) : SV::poison();
      if (!a) break;
      if (v.is(Kind::Int)) v = SV::make(Kind::Tuple, v.loc, [&](SV &s) { s.elements = {v}; });
      std::vector<int64_t> list;
      if (v.is(Kind::Tuple))
        for (const SV &x : v.elements) {
          if (!x.is(Kind::Int)) {
            error(x.loc, DiagKind::not_constant, p.name);
            failed = true;
            break;
          }
          list.push_back(x.i);
        }
      else if (!v.is_poison())
        error(a->loc, DiagKind::type_mismatch, "a list of integers", v.describe());
      if (!v.is(Kind::Tuple)) failed = true;
      attrs.set(p.name, list);
      break;
    }
    case PK::Type: {
      if (a) {
        std::optional<DType> t;
        SV v = a->kind == ExprKind::Name && !lookup(a->text) ? SV::poison() : expr(*a);
        if (v.is(Kind::DType)) t = v.dtype;
        else if (a->kind == ExprKind::Name) t = dtype_of({a->text, a->loc});
        else error(a->loc, DiagKind::type_mismatch, "a type", "an expression");
        if (!t) failed = true;
        else attrs.set(p.name, *t);
      } else if (!e.generics.empty() && e.generics[0].value->kind == ExprKind::Name) {
        auto t = dtype_of({e.generics[0].value->text, e.generics[0].value->loc});
        if (!t) failed = true;
        else attrs.set(p.name, *t);
      } else if (auto t = parse_dtype(p.default_text)) {
        attrs.set(p.name, *t);
      }
      break;
    }
    case PK::String: {
      SV v = a ? expr(*a) : SV::make(Kind::String, e.loc, [&](SV &s) { s.s = p.default_text == "\"\"" ? "" : p.default_text; });
      if (!v.is(Kind::String)) {
        if (!v.is_poison()) error(a->loc, DiagKind::type_mismatch, "a string", v.describe());
        failed = true;
        break;
      }
      attrs.set(p.name, v.s);
      break;
    }
    case PK::Enum: {
      std::string choice = p.default_text;
      if (a) choice = a->kind == ExprKind::Name || a->kind == ExprKind::String ? a->text : std::string(diags_.sources().text(a->loc));
      if (std::find(p.choices.begin(), p.choices.end(), choice) == p.choices.end()) {
        std::string list;
        for (const std::string &c : p.choices) list += (list.empty() ? "" : ", ") + c;
        error(a ? a->loc : e.loc, DiagKind::bad_choice, p.name, e.text, list, choice);
        failed = true;
        break;
      }
      attrs.set(p.name, choice);
      break;
    }
    }
  }
  if (failed) return SV::poison();

  if (!has_view && !values.empty() && std::all_of(values.begin(), values.end(), [](const SV &v) { return v.is_number(); })) {
    bool folded = false;
    SV v = fold_math(e.text, values, e.loc, folded);
    if (folded) return v;
  }
  std::vector<ir::Value *> operands;
  std::vector<SourceLoc> locs;
  if (has_view) {
    operands = mem.operands;
    locs.assign(operands.size(), e.loc);
    for (const auto &[k, v] : mem.attrs.list()) attrs.set(k, v);
    ir::Value *tensor = operands[0];
    DType t = tensor->type.dtype;
    bool writes = false;
    for (int8_t k = 0; k < d.effects.count; k++) writes |= d.effects.list[k].operand == 0 && d.effects.list[k].access != ir::Access::Read;
    if (writes) written.insert(tensor);
    for (size_t i = 0; i < values.size(); i++) {
      const std::string &p = params[owners[i]].name;
      ir::Value *v = value_as(values[i], ir::Type::tile(p == "mask" ? DType::Bool : t, mem.shape), p.c_str());
      if (!v) return SV::poison();
      operands.push_back(v);
      locs.push_back(values[i].loc);
    }
    for (const char *o : {"mask", "other"})
      if (given.count(o)) attrs.set(fmt::format("has_{}", o), int64_t(given[o]));
    return emit(kind, operands, attrs, e.loc, locs);
  }
  // One dtype and, for pointwise ops, one shape. The condition of `where` stands apart.
  bool pointwise = d.layout.kind == ir::LayoutKind::Pointwise;
  size_t first = kind == OpKind::Where ? 1 : 0;
  std::optional<DType> want;
  if (pointwise || kind == OpKind::Concat) {
    for (size_t i = first; i < values.size() && !want; i++)
      if (values[i].is(Kind::Value)) want = values[i].v->type.dtype;
    if (!want && values.size() > first)
      for (size_t i = first; i < values.size(); i++)
        if (values[i].is(Kind::Float)) want = reference() ? DType::F64 : DType::F32;
  }
  for (size_t i = 0; i < values.size(); i++) {
    ir::Value *v = values[i].is(Kind::Tensor) ? values[i].v : value(values[i], i >= first ? want : std::nullopt);
    if (!v) return SV::poison();
    operands.push_back(v);
    locs.push_back(values[i].loc);
  }
  if (pointwise && operands.size() > 1) {
    for (size_t i = first + 1; i < operands.size(); i++)
      if (operands[i]->type.dtype != operands[first]->type.dtype)
        return error(e.loc, DiagKind::dtype_mismatch, e.text, operands[first]->type.str(), operands[i]->type.str(), dtype_name(operands[first]->type.dtype));
    std::vector<int64_t> shape;
    for (ir::Value *v : operands) {
      const std::vector<int64_t> &s = v->type.shape;
      if (s.size() > shape.size()) shape.insert(shape.begin(), s.size() - shape.size(), 1);
      for (size_t k = 0; k < s.size(); k++) {
        int64_t &x = shape[shape.size() - s.size() + k];
        if (x != 1 && s[k] != 1 && x != s[k])
          return error(e.loc, DiagKind::shape_mismatch, e.text, ir::shape_str(operands[0]->type.shape), ir::shape_str(s), k, x, s[k]);
        if (x == 1) x = s[k];
      }
    }
    for (size_t i = 0; i < operands.size(); i++) {
      operands[i] = convert_shape(operands[i], shape, locs[i]);
      if (!operands[i]) return SV::poison();
    }
  }
  if (all_axes) { // a reduction of everything: one axis after the other, the last first
    SV v = SV::make_value(operands[0], e.loc);
    if (operands[0]->type.is_scalar()) return v;
    while (v.is(Kind::Value) && !v.v->type.is_scalar()) {
      ir::Attrs one = attrs;
      one.set("axis", v.v->type.rank() - 1);
      v = emit(kind, {v.v}, one, e.loc, locs);
    }
    return v;
  }
  if ((kind == OpKind::ProgramId || kind == OpKind::NumPrograms) && attrs.has("axis")) {
    if (reference()) return error(e.loc, DiagKind::only_in_kernel, e.text);
    if (attrs.i("axis") < 0 || attrs.i("axis") >= int64_t(fn_.grid.size()))
      return error(e.loc, DiagKind::grid_rank, attrs.i("axis"), fn_.grid.size());
  }
  return emit(kind, operands, attrs, e.loc, locs);
}

// ---- functions

bool Elaborator::unify(const ast::Type &t, const SV &arg, const ast::Param &p, std::map<std::string, SV> &generics) {
  // A name that is no constant of the file is deduced from the first argument that shows it, declared in <> or not.
  auto bind = [&](const std::string &n, SV v) {
    if (!generics.count(n) && !parse_dtype(n) && !file_->consts.count(n)) generics[n] = std::move(v);
  };
  auto dtype_generic = [&](const ast::Name &n, DType t) { bind(n.text, SV::make(Kind::DType, arg.loc, [&](SV &s) { s.dtype = t; })); };
  if (t.kind == ast::TypeKind::Named) {
    bool builtin = t.name.text == "int" || t.name.text == "bool" || t.name.text == "type" || file_->enums.count(t.name.text);
    if (arg.is(Kind::Value) && !builtin) dtype_generic(t.name, arg.v->type.dtype);
    return true;
  }
  if (!arg.is(Kind::Value) && !arg.is(Kind::Tensor)) {
    if (!arg.is_number() && !arg.is(Kind::View) && !arg.is(Kind::Absent))
      return error(arg.loc, DiagKind::type_mismatch, "a tile", arg.describe()), false;
    return true;
  }
  dtype_generic(t.element, arg.v->type.dtype);
  if (t.dims.size() != arg.v->type.shape.size()) {
    error(arg.loc, DiagKind::type_mismatch, fmt::format("a tile of rank {} for `{}`", t.dims.size(), p.name.text), arg.describe());
    return false;
  }
  for (size_t d = 0; d < t.dims.size(); d++)
    if (t.dims[d]->kind == ExprKind::Name && arg.v->type.shape[d] != ir::kDynamic)
      bind(t.dims[d]->text, SV::make_int(arg.v->type.shape[d], arg.loc));
  return true;
}

SV Elaborator::call_function(const ast::Function &f, Scope *scope, const ast::Expr &e) {
  bool callable = f.kind == ast::FunctionKind::Fn || (f.kind == ast::FunctionKind::Reference && reference());
  if (!callable)
    return error(e.name_loc, DiagKind::not_callable, e.text, f.kind == ast::FunctionKind::Kernel ? "kernels are launched" : "references are called in verify blocks and references");
  for (const Call &c : calls_)
    if (c.function == &f) return error(e.name_loc, DiagKind::recursion, e.text);
  // Arguments, in the caller's scope.
  std::vector<std::optional<SV>> args(f.params.size());
  bool failed = false;
  size_t next = 0;
  for (const ast::Arg &a : e.args) {
    size_t slot = next;
    if (a.name) {
      for (slot = 0; slot < f.params.size() && f.params[slot].name.text != a.name->text; slot++) {
      }
      if (slot == f.params.size()) {
        std::vector<std::string> names;
        for (const ast::Param &p : f.params) names.push_back(p.name.text);
        std::string near = nearest_name(a.name->text, names);
        return error(a.name->loc, DiagKind::unknown_argument, e.text, a.name->text, near.empty() ? "" : "; did you mean `" + near + "`?");
      }
      if (args[slot]) return error(a.name->loc, DiagKind::repeated_argument, a.name->text, e.text);
    } else {
      next++;
    }
    if (slot >= f.params.size()) return error(e.loc, DiagKind::wrong_arity, e.text, f.params.size(), e.args.size());
    args[slot] = expr(*a.value);
    failed |= args[slot]->is_poison();
  }
  std::map<std::string, SV> generics;
  for (size_t i = 0; i < e.generics.size(); i++) {
    const ast::Arg &g = e.generics[i];
    size_t slot = i;
    if (g.name)
      for (slot = 0; slot < f.generics.size() && f.generics[slot].name.text != g.name->text; slot++) {
      }
    if (slot >= f.generics.size())
      return error(g.value->loc, DiagKind::unknown_parameter, e.text, g.name ? g.name->text : fmt::format("#{}", i), "");
    SV v = expr(*g.value);
    failed |= v.is_poison();
    generics[f.generics[slot].name.text] = v;
  }
  if (failed) return SV::poison();
  for (size_t i = 0; i < f.params.size(); i++)
    if (args[i] && f.params[i].type && !unify(*f.params[i].type, *args[i], f.params[i], generics)) return SV::poison();

  // The function's own scopes: it sees its file, not the caller's names.
  Scope *file = std::exchange(file_, scope);
  size_t base = std::exchange(scope_base_, scopes_.size());
  int64_t depth = std::exchange(region_depth_, 0);
  auto returned = std::exchange(returned_, std::nullopt);
  calls_.push_back({&f, e.loc});
  push_scope();
  SV out = SV::poison();
  auto finish = [&]() {
    pop_scope();
    calls_.pop_back();
    file_ = file;
    scope_base_ = base;
    region_depth_ = depth;
    returned_ = std::move(returned);
    return out;
  };
  for (const ast::GenericParam &g : f.generics) {
    auto it = generics.find(g.name.text);
    if (it != generics.end()) {
      define(g.name, it->second);
    } else if (g.default_value) {
      define(g.name, expr(*g.default_value));
    } else {
      error(e.loc, DiagKind::not_deduced, g.name.text, f.name.text, f.name.text);
      return finish();
    }
  }
  for (const auto &[n, v] : generics)
    if (!lookup(n)) define({n, f.name.loc}, v);
  for (size_t i = 0; i < f.params.size(); i++) {
    const ast::Param &p = f.params[i];
    if (!args[i]) {
      if (!p.default_value) {
        error(e.loc, DiagKind::missing_argument, f.name.text, p.name.text);
        return finish();
      }
      args[i] = expr(*p.default_value);
    }
    SV v = *args[i];
    bool tensor = v.is(Kind::Tensor) || v.is(Kind::View) || v.is(Kind::Absent);
    if (p.type && p.type->kind == ast::TypeKind::Named) {
      const std::string &n = p.type->name.text;
      if (n == "int" || n == "bool" || n == "type") {
        // compile-time or run-time integers, bools: taken as they are
      } else if (auto t = type(*p.type)) {
        v = SV::make_value(value_as(v, *t, p.name.text.c_str()), v.loc);
      } else {
        return finish();
      }
    } else if (p.type && p.type->kind != ast::TypeKind::Named && !tensor) { // a reference's tensors are tiles
      auto t = tile_type(*p.type);
      if (!t) return finish();
      if (f.kind == ast::FunctionKind::Reference && v.is(Kind::Value) && v.v->type.dtype != t->dtype)
        v = emit(OpKind::Cast, {v.v}, attr("dtype", t->dtype), v.loc);
      if (v.is(Kind::Value) && v.v->type.shape != t->shape) {
        for (size_t d = 0; d < t->shape.size(); d++)
          if (v.v->type.rank() == t->rank() && v.v->type.shape[d] != t->shape[d]) {
            error(v.loc, DiagKind::shape_mismatch, p.name.text, ir::shape_str(v.v->type.shape), ir::shape_str(t->shape), d, v.v->type.shape[d], t->shape[d]);
            return finish();
          }
      }
      v = SV::make_value(value_as(v, *t, p.name.text.c_str()), v.loc);
    }
    if (v.is_poison()) return finish();
    define(p.name, v);
  }
  returned_.reset();
  block(f.body);
  std::optional<std::vector<SV>> results = std::move(returned_);
  if (results) {
    for (SV &r : *results) r.loc = e.loc;
    if (!f.results.empty() && f.results.size() != results->size()) {
      error(f.name.loc, DiagKind::result_count, f.name.text, results->size(), f.results.size());
      return finish();
    }
    for (size_t i = 0; i < f.results.size(); i++)
      if (!(*results)[i].is_poison()) {
        if (f.results[i].type->kind == ast::TypeKind::Named && (f.results[i].type->name.text == "int" || f.results[i].type->name.text == "bool")) continue;
        if (auto t = tile_type(*f.results[i].type)) (*results)[i] = SV::make_value(value_as((*results)[i], *t, "result"), e.loc);
      }
    if (results->size() == 1) out = (*results)[0];
    else out = SV::make(Kind::Tuple, e.loc, [&](SV &s) { s.elements = std::move(*results); });
    if (out.is(Kind::Tuple) && out.elements.empty()) out = SV::effect(e.loc);
  } else if (!f.results.empty()) {
    if (!diags_.has_errors()) error(f.name.loc, DiagKind::missing_return, f.name.text);
  } else {
    out = SV::effect(e.loc);
  }
  return finish();
}

} // namespace tkc::sema
