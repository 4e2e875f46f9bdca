// Calls of ops: arguments are bound by the op's signature (ir/op_def.h), which is the only place that states arity.
#include "ir/by_hand.h"
#include "sema/elaborate.h"
#include <algorithm>

namespace tkc::sema {

using ast::ExprKind;
using ir::OpKind;
using Kind = SV::Kind;

bool Elaborator::bind_args(OpKind kind, const ast::Expr &e, std::vector<const ast::Expr *> &by_param,
                           std::vector<const ast::Expr *> &rest) {
  const std::vector<ir::SigParam> &params = ir::signature(kind);
  by_param.assign(params.size(), nullptr);
  rest.clear();
  size_t next = 0;
  for (const ast::Arg &a : e.args) {
    if (a.name) {
      auto it =
          std::find_if(params.begin(), params.end(), [&](const ir::SigParam &p) { return p.name == a.name->text; });
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
        return error(a.name->loc, DiagKind::unknown_argument, e.text, a.name->text,
                     near.empty() ? "" : "; did you mean `" + near + "`?");
      }
      if (!seen.insert(a.name->text).second)
        return error(a.name->loc, DiagKind::repeated_argument, a.name->text, e.text);
    }
    return error(e.loc, DiagKind::wrong_arity, e.text, argument_count(required, params.size()), e.args.size());
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
  std::vector<ir::Value *> places; // behind all other operands
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
      mem = access(v, kind, e.text, a->loc);
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
    case PK::Shared:
    case PK::Barrier:
      if (!place_operands(expr(*a), p.kind == PK::Shared ? OpKind::SharedAlloc : OpKind::BarrierAlloc, a->loc, places))
        failed = true;
      break;
    case PK::State: {
      SV v = expr(*a);
      if (!v.is(Kind::State) && !v.is_poison())
        v = error(a->loc, DiagKind::type_mismatch, "what an arrival gave", v.describe());
      if (v.is_poison()) failed = true;
      values.push_back(v);
      owners.push_back(owner);
      break;
    }
    case PK::Tensor: {
      SV v = expr(*a);
      if (v.is(Kind::View)) v = materialise(v);
      if (!v.is(Kind::Tensor) && !v.is_poison()) v = error(a->loc, DiagKind::type_mismatch, "a tensor", v.describe());
      if (v.is(Kind::Tensor) && !check_record_access(v.v, kind, e.text, a->loc)) v = SV::poison();
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
          attrs.set(p.name,
                    p.kind == PK::Bool ? int64_t(p.default_text == "true") : int64_t(std::stoll(p.default_text)));
        break;
      }
      auto v = p.kind == PK::Int ? const_int(*a, quoted(p.name)) : [&]() -> std::optional<int64_t> {
        auto b = const_bool(*a, quoted(p.name));
        return b ? std::optional<int64_t>(*b) : std::nullopt;
      }();
      if (!v)
        failed = true;
      else
        attrs.set(p.name, *v);
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
            error(x.loc, DiagKind::not_constant, quoted(p.name));
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
        if (v.is(Kind::DType))
          t = v.dtype;
        else if (a->kind == ExprKind::Name)
          t = dtype_of({a->text, a->loc});
        else
          error(a->loc, DiagKind::type_mismatch, "a type", "an expression");
        if (!t)
          failed = true;
        else
          attrs.set(p.name, *t);
      } else if (!e.generics.empty() && e.generics[0].value->kind == ExprKind::Name) {
        auto t = dtype_of({e.generics[0].value->text, e.generics[0].value->loc});
        if (!t)
          failed = true;
        else
          attrs.set(p.name, *t);
      } else if (auto t = parse_dtype(p.default_text)) {
        attrs.set(p.name, reference() && *t == DType::I32 ? DType::I64 : *t);
      }
      break;
    }
    case PK::String: {
      SV v = a ? expr(*a)
               : SV::make(Kind::String, e.loc, [&](SV &s) { s.s = p.default_text == "\"\"" ? "" : p.default_text; });
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
      if (a)
        choice = a->kind == ExprKind::Name || a->kind == ExprKind::String ? a->text
                                                                          : std::string(diags_.sources().text(a->loc));
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

  if (!has_view && !values.empty() &&
      std::all_of(values.begin(), values.end(), [](const SV &v) { return v.is_number(); })) {
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
    for (int8_t k = 0; k < d.effects.count; k++)
      writes |= d.effects.list[k].operand == 0 && d.effects.list[k].access != ir::Access::Read;
    if (writes) written.emplace(tensor, e.loc);
    for (size_t i = 0; i < values.size(); i++) {
      const std::string &p = params[owners[i]].name;
      ir::Value *v = value_as(values[i], ir::Type::tile(p == "mask" ? DType::Bool : t, mem.shape), quoted(p));
      if (!v) return SV::poison();
      operands.push_back(v);
      locs.push_back(values[i].loc);
    }
    for (const char *o : {"mask", "other"})
      if (given.count(o)) attrs.set(fmt::format("has_{}", o), int64_t(given[o]));
    operands.insert(operands.end(), places.begin(), places.end());
    locs.resize(operands.size(), e.loc);
    if (ir::is_by_hand(kind)) return by_hand(kind, std::move(operands), std::move(attrs), e, std::move(locs));
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
    ir::Value *v = values[i].is(Kind::Tensor) || values[i].is(Kind::State)
                       ? values[i].v
                       : value(values[i], i >= first ? want : std::nullopt);
    if (!v) return SV::poison();
    operands.push_back(v);
    locs.push_back(values[i].loc);
  }
  if (pointwise && operands.size() > 1) {
    for (size_t i = first + 1; i < operands.size(); i++)
      if (operands[i]->type.dtype != operands[first]->type.dtype)
        return error(e.loc, DiagKind::dtype_mismatch, e.text, operands[first]->type.str(), operands[i]->type.str(),
                     dtype_name(common_dtype(operands[first]->type.dtype, operands[i]->type.dtype)));
    std::vector<int64_t> shape;
    for (ir::Value *v : operands) {
      const std::vector<int64_t> &s = v->type.shape;
      if (s.size() > shape.size()) shape.insert(shape.begin(), s.size() - shape.size(), 1);
      for (size_t k = 0; k < s.size(); k++) {
        int64_t &x = shape[shape.size() - s.size() + k];
        if (x != 1 && s[k] != 1 && x != s[k])
          return error(e.loc, DiagKind::shape_mismatch, quoted(e.text), ir::shape_str(operands[0]->type.shape),
                       ir::shape_str(s), k, x, s[k]);
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
  operands.insert(operands.end(), places.begin(), places.end());
  locs.resize(operands.size(), e.loc);
  if (ir::is_by_hand(kind)) return by_hand(kind, std::move(operands), std::move(attrs), e, std::move(locs));
  if ((kind == OpKind::ProgramId || kind == OpKind::NumPrograms) && attrs.has("axis")) {
    if (reference()) return error(e.loc, DiagKind::only_in_kernel, e.text);
    if (attrs.i("axis") < 0 || attrs.i("axis") >= int64_t(fn_.grid.size()))
      return error(e.loc, DiagKind::grid_rank, attrs.i("axis"), fn_.grid.size());
  }
  if (auto record = kind == OpKind::Dim ? record_of(operands[0]) : nullptr) { // the words of a record are no dim
    int64_t rank = operands[0]->type.rank() - 1, axis = attrs.i("axis");
    if (axis < 0) axis += rank;
    if (axis < 0 || axis >= rank)
      return error(e.loc, DiagKind::axis_range, axis, e.text, "a tensor of " + record->title(), rank);
    attrs.set("axis", axis);
  }
  return emit(kind, operands, attrs, e.loc, locs);
}

} // namespace tkc::sema
