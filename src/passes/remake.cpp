#include "passes/remake.h"
#include "ir/builder.h"
#include "ir/op_def.h"

namespace tkc::passes {

using ir::LayoutKind;
using ir::Op;
using ir::OpKind;
using ir::Value;

namespace {

constexpr int64_t kMostOps = 4;

bool is_scalar(const Value *v) { return !v->type.is_tile() || v->type.is_scalar(); }

bool placed_anywhere(const Op &op) {
  return op.kind == OpKind::Iota || op.kind == OpKind::Broadcast || op.kind == OpKind::ExpandDims ||
         ir::def(op).layout.kind == LayoutKind::Pointwise;
}

} // namespace

int64_t remake_ops(const Value *v) {
  if (!v->op || is_scalar(v) || v->op->results.size() != 1 || !v->op->regions.empty() || !placed_anywhere(*v->op))
    return 0;
  int64_t count = 1;
  for (const Value *x : v->op->operands) {
    if (is_scalar(x)) continue;
    int64_t more = remake_ops(x);
    if (!more || (count += more) > kMostOps) return 0;
  }
  return count;
}

Value *remake(ir::Function &f, Value *v, const RegLayout &to) {
  Op *op = v->op, *again = f.new_op(op->kind, op->loc);
  again->attrs = op->attrs;
  for (Value *x : op->operands) {
    if (!is_scalar(x)) {
      RegLayout from = to;
      if (ir::def(*op).layout.kind == LayoutKind::Structural) from = *ir::def(*op).layout.backward(*op, to);
      if (!(*x->layout == from)) x = remake(f, x, from);
    }
    again->operands.push_back(x);
  }
  Value *r = f.new_value(v->type, v->name);
  r->op = again;
  r->layout = to;
  again->results = {r};
  insert_after(op, again);
  return r;
}

} // namespace tkc::passes
