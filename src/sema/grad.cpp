// Derivatives: grad(expression, wrt = names, out = cotangents). The expression is elaborated in a region of its own, in
// which the names stand for the region's arguments.
#include "ir/activity.h"
#include "sema/elaborate.h"
#include "syntax/walk_ast.h"
#include <algorithm>

namespace tkc::sema {

using ast::ExprKind;
using Kind = SV::Kind;

namespace {

bool occurs(const ast::Expr &in, const std::string &name) {
  bool found = false;
  ast::walk(in, [&](const ast::Expr &e) { found |= e.kind == ExprKind::Name && e.text == name; });
  return found;
}

} // namespace

std::vector<SV> Elaborator::differentiate(const std::vector<std::pair<ast::Name, SV>> &wrt, SourceLoc loc,
                                          const std::function<SV()> &expression,
                                          const std::function<std::vector<SV>(const std::vector<SV> &)> &cotangents) {
  // The region comes before the op that owns it: cotangents are made outside, when the values are known.
  ir::Block *outer = b_.block(), *region = fn_.new_block(nullptr);
  std::vector<ir::Value *> operands;
  for (const auto &[name, v] : wrt)
    operands.push_back(value(v, v.is_number() ? std::optional(DType::F64) : std::nullopt));
  b_.set_block(region);
  push_scope();
  for (size_t i = 0; i < wrt.size(); i++) {
    ir::Value *arg = fn_.new_value(operands[i]->type, wrt[i].first.text);
    arg->block = region;
    arg->index = int64_t(i);
    region->args.push_back(arg);
    define(wrt[i].first, SV::make_value(arg, wrt[i].first.loc));
  }
  SV v = expression();
  std::vector<SV> values = v.is(Kind::Tuple) ? v.elements : std::vector<SV>{v};
  std::vector<ir::Value *> results;
  bool ok = true;
  for (SV &x : values) {
    ir::Value *r = x.is_poison() ? nullptr : value(x);
    ok &= r != nullptr;
    x = SV::make_value(r, x.loc);
    results.push_back(r);
  }
  pop_scope();
  b_.set_block(outer);
  if (!ok) return {};
  std::vector<SV> given = cotangents(values);
  std::vector<ir::Value *> yielded;
  for (size_t i = 0; i < given.size(); i++) {
    if (given[i].is(Kind::None)) continue; // the value has no part in it
    SV c = given[i];
    if (c.is(Kind::Value) && is_float(c.v->type.dtype) && c.v->type.dtype != DType::F64)
      c = emit(ir::OpKind::Cast, {c.v}, ir::Attrs::one("dtype", DType::F64), c.loc);
    ir::Value *x = value_as(c, results[i]->type.with_dtype(DType::F64),
                            results.size() == 1 ? "the cotangent" : fmt::format("the cotangent of value {}", i + 1));
    if (!x) return {};
    operands.push_back(x);
    yielded.push_back(results[i]);
  }
  if (given.size() != results.size()) return {};
  b_.set_block(region);
  b_.create_typed(ir::OpKind::Yield, yielded, {}, {}, loc);
  b_.set_block(outer);
  ir::Op *op = b_.create(ir::OpKind::Grad, operands, ir::Attrs::one("inputs", int64_t(wrt.size())), loc);
  if (!op) return {};
  op->regions.push_back(region);
  region->parent = op;
  if (const ir::Op *fault = ir::Activity(*op).fault()) {
    const ir::OpDef &d = ir::def(*fault);
    Diagnostic &diag = diags_.report(fault->loc, DiagKind::no_derivative, *d.source.s == '-' ? d.name.s : d.source.s,
                                     d.derivative.reason);
    diag.notes.push_back({loc, "the derivative is taken here"});
    return {};
  }
  std::vector<SV> out;
  for (ir::Value *r : op->results) out.push_back(SV::make_value(r, loc));
  return out;
}

SV Elaborator::grad(const ast::Expr &e) {
  if (!reference())
    return error(e.name_loc, DiagKind::not_callable, e.text, "derivatives are taken in verify blocks and references");
  const ast::Expr *expression = nullptr, *names = nullptr, *out = nullptr;
  for (const ast::Arg &a : e.args) {
    std::string n = a.name ? a.name->text : "";
    const ast::Expr **slot = !a.name ? &expression : n == "wrt" ? &names : n == "out" ? &out : nullptr;
    if (!slot) {
      std::string near = nearest_name(n, {"wrt", "out"});
      return error(a.name->loc, DiagKind::unknown_argument, e.text, n,
                   near.empty() ? "" : "; did you mean `" + near + "`?");
    }
    if (*slot && a.name) return error(a.name->loc, DiagKind::repeated_argument, n, e.text);
    if (*slot) return error(e.loc, DiagKind::wrong_arity, e.text, "one expression, `wrt` and `out`", e.args.size());
    *slot = a.value.get();
  }
  if (!expression) return error(e.loc, DiagKind::wrong_arity, e.text, "one expression, `wrt` and `out`", e.args.size());
  if (!names) return error(e.loc, DiagKind::missing_argument, e.text, "wrt");

  std::vector<const ast::Expr *> list;
  if (names->kind == ExprKind::Tuple)
    for (const ast::ExprPtr &x : names->operands) list.push_back(x.get());
  else
    list.push_back(names);
  std::vector<std::pair<ast::Name, SV>> wrt;
  std::vector<bool> absent;
  bool ok = true;
  for (const ast::Expr *x : list) {
    if (x->kind != ExprKind::Name)
      return error(x->loc, DiagKind::bad_wrt, diags_.sources().text(x->loc), "it must be the name of a value");
    SV v = name(*x);
    std::string why;
    for (const auto &w : wrt)
      if (w.first.text == x->text) why = "it stands there twice";
    if (v.is(Kind::Value) && !is_float(v.v->type.dtype)) why = v.describe() + " has no derivatives: only floats have";
    if (!v.is(Kind::Value) && !v.is(Kind::Int) && !v.is(Kind::Float) && !v.is(Kind::Absent))
      why = v.describe() + " is not a number or a tile";
    if (why.empty() && !occurs(*expression, x->text)) why = "it does not occur in the expression";
    if (!why.empty() && !v.is_poison()) v = error(x->loc, DiagKind::bad_wrt, x->text, why);
    ok &= !v.is_poison();
    absent.push_back(v.is(Kind::Absent));
    if (!absent.back()) wrt.emplace_back(ast::Name{x->text, x->loc}, v);
  }
  if (!ok) return SV::poison();

  auto cotangents = [&](const std::vector<SV> &values) {
    std::vector<SV> given;
    if (!out && values.size() == 1 && values[0].v->type.is_scalar()) return std::vector{SV::make_float(1, e.loc)};
    if (!out) {
      error(e.loc, DiagKind::bad_cotangent,
            fmt::format("`grad` of {} needs `out`, a cotangent for each", counted(int64_t(values.size()), "value")));
      return given;
    }
    if (out->kind == ExprKind::Tuple)
      for (const ast::ExprPtr &x : out->operands) given.push_back(expr(*x));
    else
      given.push_back(expr(*out));
    bool tuple = given.size() == 1 && given[0].is(Kind::Tuple);
    if (tuple) given = std::vector<SV>(given[0].elements);
    for (SV &c : given)
      if (c.is_number() && !c.is(Kind::Bool) && (c.is(Kind::Float) ? c.f == 0 : c.i == 0)) c.kind = Kind::None;
    if (given.size() != values.size()) {
      error(out->loc, DiagKind::bad_cotangent,
            fmt::format("{} for {}; 0 is none", counted(int64_t(given.size()), "cotangent"),
                        counted(int64_t(values.size()), "value")));
      return std::vector<SV>();
    }
    for (size_t i = 0; i < values.size(); i++)
      if (!is_float(values[i].v->type.dtype) && !given[i].is(Kind::None) && !given[i].is_poison()) {
        error(given[i].loc, DiagKind::bad_cotangent,
              fmt::format("value {} is {}, which has no derivative: its cotangent is 0", i + 1, values[i].describe()));
        return std::vector<SV>();
      }
    return given;
  };
  std::vector<SV> g;
  if (!wrt.empty())
    g = differentiate(
        wrt, e.loc, [&] { return expr(*expression); }, cotangents);
  if (g.size() != wrt.size()) return SV::poison();
  // An absent tensor has derivative 0, whatever its shape would be.
  SV result = SV::make(Kind::Tuple, e.loc, [](SV &) {});
  size_t next = 0;
  for (bool none : absent) result.elements.push_back(none ? SV::make_float(0, e.loc) : g[next++]);
  return result.elements.size() == 1 ? result.elements[0] : result;
}

} // namespace tkc::sema
