// Scalars of a program that are more than sizes: floating-point arithmetic, and calls of functions.
#include "ir/op_def.h"
#include "sema/host_instance.h"
#include "syntax/walk_ast.h"

namespace tkc::sema {

using ast::ExprKind;
using ir::OpKind;
using ir::SizeExpr;
using Kind = SV::Kind;
using S = SizeExpr::Op;

bool ProgramInstance::needs_computing(const ast::Expr &e) {
  bool found = false;
  ast::walk(e, [&](const ast::Expr &x) {
    if (x.kind == ExprKind::Float) found = true;
    if (x.kind == ExprKind::Call && x.operands.empty())
      found |= x.text != "cdiv" && x.text != "min" && x.text != "max" && x.text != "dim" && x.text != "has";
    if (x.kind == ExprKind::Name)
      if (Elaborator::Var *v = e_.lookup(x.text); v && v->value.is(Kind::Value))
        found |= !e_.size_symbols.count(x.text);
  });
  return found;
}

SV ProgramInstance::placeholder(SizeExpr size, SourceLoc loc) {
  ir::Value *v = out_->header->new_value(ir::Type::scalar(DType::I32));
  placeholders_.emplace(v, std::move(size));
  return SV::make_value(v, loc);
}

bool ProgramInstance::known_at_launch(const ast::Expr &e, SV &out) {
  bool may = e.kind == ExprKind::Name || e.kind == ExprKind::Member || (e.kind == ExprKind::Call && e.text == "dim");
  std::optional<SizeExpr> size;
  if (!may || !host_size(e, size)) return false;
  out = size ? placeholder(*size, e.loc) : SV::poison();
  return true;
}

SV ProgramInstance::computed(const ast::Expr &e) {
  bool outer = e_.host_value != nullptr;
  e_.host_value = [this](const ast::Expr &x, SV &out) { return known_at_launch(x, out); };
  ir::Block *body = e_.builder().block();
  size_t before = body->ops.size();
  SV v = e_.expr(e);
  if (!outer) e_.host_value = nullptr;
  body->ops.resize(before); // the head of a program has no ops: what they say is read from the values
  if (!v.is(Kind::Value)) return v;
  if (v.v->type.is_scalar()) {
    if (is_float(v.v->type.dtype)) {
      if (number_of(v.v)) return v;
    } else if (auto size = size_of(v.v)) {
      if (size->is_const()) return SV::make_int(size->value(), e.loc);
      return SV::make(Kind::Size, e.loc, [&](SV &s) { s.size = std::make_shared<SizeExpr>(*size); });
    }
  }
  diags_.report(e.loc, DiagKind::host_scalar, v.describe());
  return SV::poison();
}

// The value of a branch's result on one side.
static const ir::Value *side(const ir::Value *v, size_t region) {
  return v->op->regions[region]->ops.back()->operand(size_t(v->index));
}

std::optional<SizeExpr> ProgramInstance::size_of(const ir::Value *v) const {
  if (is_float(v->type.dtype)) return std::nullopt;
  if (auto it = placeholders_.find(v); it != placeholders_.end()) return it->second;
  if (!v->op) return v->type.is_scalar() ? std::optional(SizeExpr::symbol(v->name)) : std::nullopt;
  const ir::Op &op = *v->op;
  if (op.kind == OpKind::Constant) return SizeExpr::constant(op.attrs.i("value"));
  auto operand = [&](size_t i) { return size_of(op.operand(i)); };
  if (op.kind == OpKind::Cast) return operand(0);
  if (op.kind == OpKind::Not) {
    auto a = operand(0);
    return a && is_bool(v->type.dtype) ? std::optional(SizeExpr::make(S::Not, *a, *a)) : std::nullopt;
  }
  if (op.kind == OpKind::Neg) {
    auto a = operand(0);
    return a ? std::optional(SizeExpr::make(S::Sub, SizeExpr::constant(0), *a)) : std::nullopt;
  }
  if (op.kind == OpKind::Where || op.kind == OpKind::If) {
    bool branch = op.kind == OpKind::If;
    auto c = operand(0), yes = branch ? size_of(side(v, 0)) : operand(1),
         no = branch ? size_of(side(v, 1)) : operand(2);
    return c && yes && no ? std::optional(SizeExpr::select(*c, *yes, *no)) : std::nullopt;
  }
  static const std::map<OpKind, S> ops = {
      {OpKind::Add, S::Add}, {OpKind::Sub, S::Sub}, {OpKind::Mul, S::Mul}, {OpKind::Div, S::Div}, {OpKind::Rem, S::Rem},
      {OpKind::Min, S::Min}, {OpKind::Max, S::Max}, {OpKind::Eq, S::Eq},   {OpKind::Ne, S::Ne},   {OpKind::Lt, S::Lt},
      {OpKind::Le, S::Le},   {OpKind::Gt, S::Gt},   {OpKind::Ge, S::Ge},   {OpKind::And, S::And}, {OpKind::Or, S::Or}};
  auto it = ops.find(op.kind);
  bool bits = (op.kind == OpKind::And || op.kind == OpKind::Or) && !is_bool(v->type.dtype);
  if (it == ops.end() || bits) return std::nullopt;
  auto a = operand(0), b = operand(1);
  return a && b ? std::optional(SizeExpr::make(it->second, *a, *b)) : std::nullopt;
}

std::optional<NumberExpr> ProgramInstance::number_of(const ir::Value *v) const {
  NumberExpr out;
  out.dtype = v->type.dtype;
  if (is_float(out.dtype) && out.dtype != DType::F32 && out.dtype != DType::F64) return std::nullopt;
  if (!is_float(out.dtype)) {
    if (auto n = size_of(v)) {
      out.op = NumberExpr::Op::Integer;
      out.integer = *n;
      return out;
    }
  }
  if (!v->op) {
    out.op = NumberExpr::Op::Scalar;
    out.name = v->name;
    return v->type.is_scalar() ? std::optional(out) : std::nullopt;
  }
  const ir::Op &op = *v->op;
  if (op.kind == OpKind::Constant) {
    out.value = op.attrs.get<double>("value");
    return out;
  }
  std::vector<const ir::Value *> from(op.operands.begin(), op.operands.end());
  bool branch = op.kind == OpKind::If;
  if (branch) from = {op.operand(0), side(v, 0), side(v, 1)};
  auto what = branch ? std::optional(NumberExpr::Op::Where) : number_op(op.kind);
  // Integers are what size_of makes of them; in f64 they would neither wrap nor divide as they do. One that is chosen
  // is whole.
  bool integer = !is_float(out.dtype) && !is_bool(out.dtype);
  if (!what || (integer && what != NumberExpr::Op::Where)) return std::nullopt;
  out.op = *what;
  for (const ir::Value *x : from) {
    auto arg = number_of(x);
    if (!arg) return std::nullopt;
    out.args.push_back(std::move(*arg));
  }
  return out;
}

} // namespace tkc::sema
