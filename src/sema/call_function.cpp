// Calls of functions, which are inlined: parameters are unified with the arguments, the body elaborated in its own
// scopes.
#include "sema/elaborate.h"
#include <algorithm>

namespace tkc::sema {

using ast::ExprKind;
using ir::OpKind;
using Kind = SV::Kind;

bool Elaborator::unify(const ast::Type &t, const SV &arg, const ast::Param &p, std::map<std::string, SV> &generics) {
  // A name that is no constant of the file is deduced from the first argument that shows it, declared in <> or not.
  auto bind = [&](const std::string &n, SV v) {
    if (!generics.count(n) && !parse_dtype(n) && !file_->consts.count(n)) generics[n] = std::move(v);
  };
  auto dtype_generic = [&](const ast::Name &n, DType t) {
    bind(n.text, SV::make(Kind::DType, arg.loc, [&](SV &s) { s.dtype = t; }));
  };
  if (t.kind == ast::TypeKind::Named) {
    bool builtin =
        t.name.text == "int" || t.name.text == "bool" || t.name.text == "type" || file_->enums.count(t.name.text);
    if (arg.is(Kind::Value) && !builtin) dtype_generic(t.name, arg.v->type.dtype);
    return true;
  }
  // Of records also the part that is an argument says what they were made with.
  auto record = arg.is(Kind::Tensor) ? record_of(arg.v) : arg.is(Kind::View) ? record_of(arg.view->tensor) : nullptr;
  if (record) {
    if (t.element.text != record->name || t.element_args.size() > record->args.size()) {
      error(arg.loc, DiagKind::type_mismatch, fmt::format("`{}` for `{}`", t.element.text, p.name.text),
            fmt::format("a tensor of {}", record->title()));
      return false;
    }
    for (size_t i = 0; i < t.element_args.size(); i++)
      if (const ast::Expr &a = *t.element_args[i].value; a.kind == ExprKind::Name && !t.element_args[i].name) {
        char *end = nullptr;
        int64_t n = std::strtoll(record->args[i].c_str(), &end, 10);
        if (!*end) bind(a.text, SV::make_int(n, arg.loc));
        if (auto d = parse_dtype(record->args[i])) dtype_generic({a.text, a.loc}, *d);
      }
  }
  if (!arg.is(Kind::Value) && !arg.is(Kind::Tensor)) {
    if (!arg.is_number() && !arg.is(Kind::View) && !arg.is(Kind::Absent))
      return error(arg.loc, DiagKind::type_mismatch, "a tile", arg.describe()), false;
    return true;
  }
  size_t rank = arg.v->type.shape.size() - (record ? 1 : 0);
  if (!record) dtype_generic(t.element, arg.v->type.dtype);
  if (t.dims.size() != rank) {
    error(arg.loc, DiagKind::type_mismatch, fmt::format("a tile of rank {} for `{}`", t.dims.size(), p.name.text),
          arg.describe());
    return false;
  }
  for (size_t d = 0; d < rank; d++)
    if (t.dims[d]->kind == ExprKind::Name && arg.v->type.shape[d] != ir::kDynamic)
      bind(t.dims[d]->text, SV::make_int(arg.v->type.shape[d], arg.loc));
  return true;
}

SV Elaborator::call_function(const ast::Function &f, Scope *scope, const ast::Expr &e) {
  bool callable = f.kind == ast::FunctionKind::Fn || (f.kind == ast::FunctionKind::Reference && reference());
  if (!callable)
    return error(e.name_loc, DiagKind::not_callable, e.text,
                 f.kind == ast::FunctionKind::Program  ? "programs are run by the host"
                 : f.kind == ast::FunctionKind::Kernel ? "kernels are launched"
                                                       : "references are called in verify blocks and references");
  for (const Call &c : calls_)
    if (c.function == &f) return error(e.name_loc, DiagKind::recursion, e.text, "functions are inlined");
  // Arguments, in the caller's scope.
  std::vector<std::optional<SV>> args(f.params.size());
  bool failed = false;
  size_t next = 0;
  for (const ast::Arg &a : e.args) {
    size_t slot = next;
    if (a.name) {
      for (slot = 0; slot < f.params.size() && f.params[slot].name.text != a.name->text; slot++) {}
      if (slot == f.params.size()) {
        std::vector<std::string> names;
        for (const ast::Param &p : f.params) names.push_back(p.name.text);
        std::string near = nearest_name(a.name->text, names);
        return error(a.name->loc, DiagKind::unknown_argument, e.text, a.name->text,
                     near.empty() ? "" : "; did you mean `" + near + "`?");
      }
      if (args[slot]) return error(a.name->loc, DiagKind::repeated_argument, a.name->text, e.text);
    } else {
      next++;
    }
    if (slot >= f.params.size())
      return error(e.loc, DiagKind::wrong_arity, e.text, argument_count(f.params.size(), f.params.size()),
                   e.args.size());
    args[slot] = expr(*a.value);
    failed |= args[slot]->is_poison();
  }
  std::map<std::string, SV> generics;
  for (size_t i = 0; i < e.generics.size(); i++) {
    const ast::Arg &g = e.generics[i];
    size_t slot = i;
    if (g.name)
      for (slot = 0; slot < f.generics.size() && f.generics[slot].name.text != g.name->text; slot++) {}
    if (slot >= f.generics.size() && !g.name)
      return error(g.value->loc, DiagKind::wrong_arity, e.text,
                   counted(int64_t(f.generics.size()), "compile-time parameter"), e.generics.size());
    if (slot >= f.generics.size()) {
      std::vector<std::string> names;
      for (const ast::GenericParam &p : f.generics) names.push_back(p.name.text);
      std::string near = nearest_name(g.name->text, names);
      return error(g.name->loc, DiagKind::unknown_parameter, e.text, g.name->text,
                   near.empty() ? "" : "; did you mean `" + near + "`?");
    }
    if (generics.count(f.generics[slot].name.text))
      return error(g.value->loc, DiagKind::repeated_argument, f.generics[slot].name.text, e.text);
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
        v = SV::make_value(value_as(v, *t, quoted(p.name.text)), v.loc);
      } else {
        return finish();
      }
    } else if (p.type && p.type->kind != ast::TypeKind::Named && !tensor) { // a reference's tensors are tiles
      auto t = tile_type(*p.type);
      if (!t) return finish();
      if (f.kind == ast::FunctionKind::Reference && v.is(Kind::Value) && v.v->type.dtype != t->dtype)
        v = emit(OpKind::Cast, {v.v}, ir::Attrs::one("dtype", t->dtype), v.loc);
      if (v.is(Kind::Value) && v.v->type.shape != t->shape) {
        for (size_t d = 0; d < t->shape.size(); d++)
          if (v.v->type.rank() == t->rank() && v.v->type.shape[d] != t->shape[d]) {
            error(v.loc, DiagKind::shape_mismatch, quoted(p.name.text), ir::shape_str(v.v->type.shape),
                  ir::shape_str(t->shape), d, v.v->type.shape[d], t->shape[d]);
            return finish();
          }
      }
      v = SV::make_value(value_as(v, *t, quoted(p.name.text)), v.loc);
    }
    if (v.is_poison()) return finish();
    define(p.name, v);
  }
  returned_.reset();
  int64_t errors = diags_.error_count();
  block(f.body);
  std::optional<std::vector<SV>> results = std::move(returned_);
  if (results) {
    for (SV &r : *results) r.loc = e.loc;
    if (!f.results.empty() && f.results.size() != results->size()) {
      error(f.name.loc, DiagKind::result_count, f.name.text, counted(int64_t(results->size()), "value"),
            f.results.size());
      return finish();
    }
    for (size_t i = 0; i < f.results.size(); i++)
      if (!(*results)[i].is_poison()) {
        if (f.results[i].type->kind == ast::TypeKind::Named &&
            (f.results[i].type->name.text == "int" || f.results[i].type->name.text == "bool"))
          continue;
        if (auto t = tile_type(*f.results[i].type))
          (*results)[i] = SV::make_value(value_as((*results)[i], *t, "the result"), e.loc);
      }
    if (results->size() == 1)
      out = (*results)[0];
    else
      out = SV::make(Kind::Tuple, e.loc, [&](SV &s) { s.elements = std::move(*results); });
    if (out.is(Kind::Tuple) && out.elements.empty()) out = SV::effect(e.loc);
  } else if (!f.results.empty()) {
    if (diags_.error_count() == errors) error(f.name.loc, DiagKind::missing_return, f.name.text);
  } else {
    out = SV::effect(e.loc);
  }
  return finish();
}

} // namespace tkc::sema
