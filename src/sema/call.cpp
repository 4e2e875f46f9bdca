// Calls: what a name means (functions: call_function.cpp, ops: call_op.cpp), and the few forms that are neither.
#include "ir/target.h"
#include "sema/elaborate.h"
#include <algorithm>
#include <cmath>
#include <functional>

namespace tkc::sema {

using ast::ExprKind;
using ir::OpKind;
using Kind = SV::Kind;

SV Elaborator::call(const ast::Expr &e) {
  if (!e.operands.empty()) {
    // The ops of mbarriers have the names of the PTX manual.
    if (const ast::Expr &of = *e.operands[0]; of.kind == ExprKind::Name && of.text == "mbarrier" && !lookup(of.text)) {
      std::vector<OpKind> kinds = ir::find_source_ops("mbarrier." + e.text);
      if (!kinds.empty()) return call_op(kinds, e);
      std::vector<std::string> names;
      for (OpKind k : ir::all_ops())
        if (std::string name = ir::def(k).source.s; name.starts_with("mbarrier.")) names.push_back(name.substr(9));
      std::string near = nearest_name(e.text, names);
      return error(e.name_loc, DiagKind::unknown_name, "mbarrier." + e.text,
                   near.empty() ? "" : "; did you mean `mbarrier." + near + "`?");
    }
    SV base = expr(*e.operands[0]);
    if (base.is_poison()) return base;
    if (base.is(Kind::Ring)) return ring_method(base, e);
    return error(e.name_loc, DiagKind::not_callable, e.text, "only rings have methods");
  }
  bool handled = false;
  SV out = builtin(e, handled);
  if (handled) return out;
  std::vector<OpKind> kinds = ir::find_source_ops(e.text);
  // `load` and `store` are of a slot of shared memory or of a tensor.
  if (kinds.size() > 1 && (e.text == "load" || e.text == "store")) {
    bool shared = !e.args.empty() && names_place(*e.args[0].value);
    std::erase_if(kinds, [&](OpKind k) { return (k == OpKind::SharedLoad || k == OpKind::SharedStore) != shared; });
  }
  // A kernel is not called, so one that is named like an op does not hide it.
  if (auto it = file_->functions.find(e.text);
      it != file_->functions.end() && (kinds.empty() || (it->second.first->kind != ast::FunctionKind::Kernel &&
                                                         it->second.first->kind != ast::FunctionKind::Program)))
    return call_function(*it->second.first, it->second.second, e);
  if (auto t = parse_dtype(e.text)) return cast(*t, e);
  if (Var *v = lookup(e.text); v && v->value.is(Kind::DType)) return cast(v->value.dtype, e);
  if (Var *v = lookup(e.text); v && kinds.empty())
    return v->value.is_poison() ? SV::poison()
                                : error(e.name_loc, DiagKind::not_callable, e.text, "it is " + v->value.describe());
  if (!kinds.empty()) return call_op(kinds, e);
  std::vector<std::string> names = visible_names();
  for (OpKind k : ir::all_ops()) names.emplace_back(ir::def(k).source.s);
  for (const char *b :
       {"cdiv", "has", "full", "zeros", "ones", "split", "static_assert", "zeros_like", "grad", "release"})
    names.emplace_back(b);
  std::string near = nearest_name(e.text, names);
  for (const ast::Arg &a : e.args) expr(*a.value);
  return error(e.name_loc, DiagKind::unknown_name, e.text, near.empty() ? "" : "; did you mean `" + near + "`?");
}

SV Elaborator::cast(DType t, const ast::Expr &e) {
  if (e.args.size() != 1 || e.args[0].name)
    return error(e.loc, DiagKind::wrong_arity, e.text, "1 argument", e.args.size());
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
  return emit(OpKind::Cast, {x}, ir::Attrs::one("dtype", t), e.loc, {e.args[0].value->loc});
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
    if (name == "abs" && !floats && args[0].i == INT64_MIN)
      return error(loc, DiagKind::integer_overflow, fmt::format("abs({})", args[0].i));
    if (name == "abs")
      return floats ? SV::make_float(std::fabs(number(0)), loc) : SV::make_int(std::abs(args[0].i), loc);
  }
  if (args.size() == 2) {
    if (name == "pow") return SV::make_float(std::pow(number(0), number(1)), loc);
    bool less = floats ? number(0) <= number(1) : args[0].i <= args[1].i;
    bool first = name == "min" ? less : floats ? number(0) >= number(1) : args[0].i >= args[1].i;
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
    error(e.loc, DiagKind::wrong_arity, n, argument_count(least, most), e.args.size());
    return false;
  };
  if (n == "has") {
    if (!arity(1, 1)) return SV::poison();
    const ast::Expr &a = *e.args[0].value;
    Var *v = a.kind == ExprKind::Name ? lookup(a.text) : nullptr;
    if (!v)
      return a.kind == ExprKind::Name
                 ? name(a)
                 : error(a.loc, DiagKind::type_mismatch, "the name of an optional tensor", "an expression");
    return SV::make_bool(!v->value.is(Kind::Absent), e.loc);
  }
  if (n == "cdiv") {
    if (!arity(2, 2)) return SV::poison();
    SV a = expr(*e.args[0].value), b = expr(*e.args[1].value);
    if (a.is_poison() || b.is_poison()) return SV::poison();
    if (a.is(Kind::Int) && b.is(Kind::Int)) {
      if (b.i == 0) return error(e.loc, DiagKind::division_by_zero);
      if (a.i == INT64_MIN && b.i == -1)
        return error(e.loc, DiagKind::integer_overflow, fmt::format("cdiv({}, {})", a.i, b.i));
      return SV::make_int(a.i / b.i + (a.i % b.i != 0 && (a.i < 0) == (b.i < 0)), e.loc);
    }
    SV sum = binary(ast::BinaryOp::Sub, binary(ast::BinaryOp::Add, a, b, e.loc), SV::make_int(1, e.loc), e.loc);
    return binary(ast::BinaryOp::Div, sum, b, e.loc);
  }
  if (n == "static_assert") {
    if (!arity(1, 2)) return SV::poison();
    auto ok = const_bool(*e.args[0].value, "the condition of `static_assert`");
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
    return SV::make_value(value_as(zero, x->type, "`zeros_like`"), e.loc);
  }
  if (n == "full") { // full<f32>([BM, BN], v)
    if (!arity(2, 2)) return SV::poison();
    if (e.generics.size() != 1 || e.generics[0].value->kind != ExprKind::Name)
      return error(e.loc, DiagKind::wrong_arity, n, "one type in <>", e.generics.size());
    auto t = dtype_of({e.generics[0].value->text, e.generics[0].value->loc});
    SV shape = expr(*e.args[0].value), v = expr(*e.args[1].value);
    if (!t || shape.is_poison() || v.is_poison()) return SV::poison();
    if (shape.is(Kind::Int)) shape = SV::make(Kind::Tuple, shape.loc, [&](SV &s) { s.elements = {shape}; });
    std::vector<int64_t> extents;
    if (!shape.is(Kind::Tuple))
      return error(shape.loc, DiagKind::type_mismatch, "a shape such as [M, N]", shape.describe());
    for (const SV &x : shape.elements) {
      if (!x.is(Kind::Int))
        return run_time_extent(x.loc, extents.size(), "`full`", std::string(diags_.sources().text(x.loc)));
      if (x.i < least_extent()) return error(x.loc, DiagKind::bad_extent, extents.size(), x.i);
      extents.push_back(x.i);
    }
    if (!tile_fits(extents, n, e.loc)) return SV::poison();
    return SV::make_value(value_as(v, ir::Type::tile(*t, extents), "`full`"), e.loc);
  }
  if (n == "split") { // split(x, parts, axis) -> a tuple of equal parts
    if (!arity(2, 3)) return SV::poison();
    SV x = expr(*e.args[0].value);
    auto parts = const_int(*e.args[1].value, "the number of parts");
    auto axis = e.args.size() > 2 ? const_int(*e.args[2].value, "the axis") : std::optional<int64_t>(0);
    if (!x.is(Kind::Value) || !parts || !axis)
      return x.is_poison() || !parts || !axis ? SV::poison()
                                              : error(x.loc, DiagKind::type_mismatch, "a tile", x.describe());
    const std::vector<int64_t> &shape = x.v->type.shape;
    if (*axis < 0) *axis += int64_t(shape.size());
    if (*axis < 0 || *axis >= int64_t(shape.size()))
      return error(e.args[2].value->loc, DiagKind::axis_range, *axis, n, x.describe(), shape.size());
    if (*parts < 1 || shape[size_t(*axis)] % *parts)
      return error(e.loc, DiagKind::unequal_parts, shape[size_t(*axis)], *parts);
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
      out.elements.push_back(
          emit(n == "program_id" ? OpKind::ProgramId : OpKind::NumPrograms, {}, ir::Attrs::one("axis", axis), e.loc));
    return out.elements.size() == 1 ? out.elements[0] : out;
  }
  if (n == "release" && !file_->functions.count(n)) {
    if (!arity(1, 1)) return SV::poison();
    return release_item(expr(*e.args[0].value), e);
  }
  if (n == "inline_ptx") return inline_ptx(e);
  if (n == "grad") return grad(e);
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
  static const std::map<std::string, size_t> arity = {{"uniform", 2},  {"normal", 2},   {"bernoulli", 1},
                                                      {"integers", 2}, {"constant", 1}, {"edge", 0}};
  if (g.args.size() != arity.at(g.kind))
    return error(e.loc, DiagKind::wrong_arity, e.text, argument_count(arity.at(g.kind), arity.at(g.kind)),
                 g.args.size());
  g.param = fmt::format("random{}", generators_->size());
  DType t = e.text == "bernoulli"        ? DType::Bool
            : e.text == "integers"       ? DType::I64
            : is_float(generator_dtype_) ? DType::F64
                                         : DType::I64;
  return SV::make_value(generated(std::move(g), ir::Type::tile(t, generator_shape_)), e.loc);
}

ir::Value *Elaborator::generated(GeneratorCall g, ir::Type type) {
  ir::Param p;
  p.name = g.param;
  p.type = std::move(type);
  fn_.params.push_back(p);
  ir::Value *v = fn_.new_value(p.type, g.param);
  v->block = fn_.body;
  v->index = int64_t(fn_.body->args.size());
  fn_.body->args.push_back(v);
  generators_->push_back(std::move(g));
  return v;
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
      if (a.value->kind != ExprKind::Name)
        return error(a.value->loc, DiagKind::type_mismatch, "a type", "an expression");
      auto t = dtype_of({a.value->text, a.value->loc});
      if (!t) return SV::poison();
      attrs.set("dtype", *t);
    } else if (a.name->text == "means") {
      means = a.value.get();
    } else if (a.name->text == "min_sm") {
      auto v = const_int(*a.value, "`min_sm`");
      if (!v) return SV::poison();
      attrs.set("min_sm", *v);
      if (target_ && target_->sm < *v)
        return error(e.loc, DiagKind::unsupported_on_target, "inline_ptx", fmt::format("sm_{}", *v), target_->name);
    } else if (a.name->text == "effects") {
      SV v = expr(*a.value);
      if (!v.is(Kind::String) || (v.s != "pure" && v.s != "memory"))
        return error(a.value->loc, DiagKind::bad_choice, "effects", e.text, "\"pure\", \"memory\"",
                     v.is(Kind::String) ? v.s : v.describe());
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
    operands[i] =
        value_as(SV::make_value(operands[i], args[i].loc), operands[i]->type.with_shape(shape), "`inline_ptx`");
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
  ir::Value *r = m.is_poison() ? nullptr : value_as(m, ir::Type::scalar(attrs.dtype("dtype")), "`means`");
  if (r) b_.create_typed(OpKind::Yield, {r}, {}, {}, e.loc);
  pop_scope();
  b_.set_block(outer);
  return r ? out : SV::poison();
}

} // namespace tkc::sema
