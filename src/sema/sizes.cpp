// Sizes: integer expressions over a kernel's run-time symbols, which the launcher evaluates (grids, extents, facts).
#include "ir/size_expr.h"
#include "sema/elaborate.h"

namespace tkc::sema {

using ast::BinaryOp;
using ast::ExprKind;
using Kind = SV::Kind;

std::optional<ir::SizeExpr> Elaborator::size(const ast::Expr &e) {
  using S = ir::SizeExpr;
  auto pair = [&](const ast::Expr &x, const ast::Expr &y, S::Op op) -> std::optional<S> {
    auto a = size(x), b = size(y);
    if (!a || !b) return std::nullopt;
    bool divides = op == S::Op::Div || op == S::Op::CDiv || op == S::Op::Rem;
    if (divides && b->is_const() && b->value() == 0) {
      error(e.loc, DiagKind::division_by_zero);
      return std::nullopt;
    }
    S out = S::make(op, *a, *b);
    if (a->is_const() && b->is_const() && !out.is_const()) {
      error(e.loc, DiagKind::integer_overflow, std::string(diags_.sources().text(e.loc)));
      return std::nullopt;
    }
    return out;
  };
  if (std::optional<S> own; host_size && host_size(e, own)) return own;
  switch (e.kind) {
  case ExprKind::Int: return S::constant(e.int_value);
  case ExprKind::Name:
    if (Var *v = lookup(e.text); v && v->value.is(Kind::Int))
      return S::constant(v->value.i);
    else if (v && v->value.is(Kind::Bool))
      return S::constant(v->value.i);
    if (size_symbols.count(e.text)) return S::symbol(e.text);
    if (SV v = name(e); v.is(Kind::Int))
      return S::constant(v.i);
    else if (!v.is_poison())
      error(e.loc, DiagKind::bad_size);
    return std::nullopt;
  case ExprKind::Unary:
    if (e.unary == ast::UnaryOp::Neg) {
      auto a = size(*e.operands[0]);
      return a ? std::optional(S::make(S::Op::Sub, S::constant(0), *a)) : std::nullopt;
    }
    if (e.unary == ast::UnaryOp::Not) {
      auto a = size(*e.operands[0]);
      return a ? std::optional(S::make(S::Op::Not, *a, *a)) : std::nullopt;
    }
    break;
  case ExprKind::Binary: {
    static const std::map<BinaryOp, S::Op> ops = {
        {BinaryOp::Add, S::Op::Add}, {BinaryOp::Sub, S::Op::Sub}, {BinaryOp::Mul, S::Op::Mul},
        {BinaryOp::Div, S::Op::Div}, {BinaryOp::Rem, S::Op::Rem}, {BinaryOp::Eq, S::Op::Eq},
        {BinaryOp::Ne, S::Op::Ne},   {BinaryOp::Lt, S::Op::Lt},   {BinaryOp::Le, S::Op::Le},
        {BinaryOp::Gt, S::Op::Gt},   {BinaryOp::Ge, S::Op::Ge},   {BinaryOp::And, S::Op::And},
        {BinaryOp::Or, S::Op::Or}};
    if (auto it = ops.find(e.binary); it != ops.end()) return pair(*e.operands[0], *e.operands[1], it->second);
    break;
  }
  case ExprKind::Call:
    if (e.operands.empty() && e.args.size() == 2) {
      if (e.text == "cdiv") return pair(*e.args[0].value, *e.args[1].value, S::Op::CDiv);
      if (e.text == "min") return pair(*e.args[0].value, *e.args[1].value, S::Op::Min);
      if (e.text == "max") return pair(*e.args[0].value, *e.args[1].value, S::Op::Max);
    }
    break;
  default: break;
  }
  // Anything else must be a compile-time integer.
  SV v = expr(e);
  if (v.is(Kind::Int) || v.is(Kind::Bool)) return S::constant(v.i);
  if (!v.is_poison()) error(e.loc, DiagKind::bad_size);
  return std::nullopt;
}

} // namespace tkc::sema
