#include "passes/dim_classes.h"
#include "ir/op_def.h"
#include "layout/reg_layout.h"
#include "passes/layout_choice.h"
#include <algorithm>

namespace tkc::passes {

using ir::Op;
using ir::OpKind;
using ir::Value;

DimClasses::DimClasses(ir::Function &f) {
  ir::walk(f.body, [&](Op *op) { visit(op); });
}

int64_t DimClasses::find(int64_t id) {
  while (int64_t(parent_.size()) <= id) parent_.push_back(int64_t(parent_.size()));
  while (parent_[size_t(id)] != id) id = parent_[size_t(id)] = parent_[size_t(parent_[size_t(id)])];
  return id;
}

int64_t DimClasses::of(const Value *v, int64_t dim) { return find(v->id * max_rank + dim); }

void DimClasses::join(const Value *a, int64_t da, const Value *b, int64_t db) {
  int64_t x = of(a, da), y = of(b, db);
  if (x != y) parent_[size_t(std::max(x, y))] = std::min(x, y);
}

void DimClasses::join_all(const Value *a, const Value *b) {
  if (!a->type.is_tile() || !b->type.is_tile() || a->type.shape != b->type.shape) return;
  for (int64_t d = 0; d < a->type.rank(); d++) join(a, d, b, d);
}

void DimClasses::visit(const Op *op) {
  switch (op->kind) {
  case OpKind::Mma: {
    const Value *a = op->operand(0), *b = op->operand(1), *c = op->result();
    join(a, 0, c, 0);
    join(b, 1, c, 1);
    join(a, 1, b, 0);
    if (op->operands.size() > 2) join_all(op->operand(2), c);
    return;
  }
  case OpKind::Transpose: {
    const auto &perm = op->attrs.ints("perm");
    for (size_t d = 0; d < perm.size(); d++) join(op->result(), int64_t(d), op->operand(0), perm[d]);
    return;
  }
  case OpKind::ExpandDims: {
    int64_t axis = op->attrs.i("axis");
    for (int64_t d = 0; d < op->operand(0)->type.rank(); d++)
      join(op->operand(0), d, op->result(), d < axis ? d : d + 1);
    return;
  }
  case OpKind::Broadcast: {
    const Value *x = op->operand(0), *r = op->result();
    if (x->type.rank() != r->type.rank()) return;
    for (int64_t d = 0; d < r->type.rank(); d++)
      if (x->type.shape[size_t(d)] == r->type.shape[size_t(d)]) join(x, d, r, d);
    return;
  }
  case OpKind::ReduceSum:
  case OpKind::ReduceProd:
  case OpKind::ReduceMax:
  case OpKind::ReduceMin: {
    int64_t axis = op->attrs.i("axis");
    for (int64_t d = 0; d < op->result()->type.rank(); d++) join(op->result(), d, op->operand(0), d < axis ? d : d + 1);
    return;
  }
  case OpKind::Slice:
  case OpKind::Insert:
  case OpKind::Concat: // a part keeps the dims that it has whole
    for (const Value *v : op->operands)
      for (int64_t d = 0; v->type.is_tile() && d < v->type.rank(); d++)
        if (v->type.shape[size_t(d)] == op->result()->type.shape[size_t(d)]) join(v, d, op->result(), d);
    return;
  case OpKind::For: {
    const ir::Block *body = op->regions[0];
    for (size_t i = 0; i < op->results.size(); i++)
      for (const Value *v : {body->args[i + 1], body->terminator()->operand(i), op->results[i]})
        join_all(op->operand(i + 3), v);
    return;
  }
  case OpKind::While:
    for (size_t i = 0; i < op->operands.size(); i++)
      for (const Value *v :
           {op->regions[0]->args[i], op->regions[1]->args[i], op->regions[1]->terminator()->operand(i), op->results[i]})
        join_all(op->operand(i), v);
    return;
  case OpKind::If:
    for (const ir::Block *region : op->regions)
      for (size_t i = 0; i < op->results.size(); i++) join_all(region->terminator()->operand(i), op->results[i]);
    return;
  default: break;
  }
  if (ir::def(*op).layout.kind == ir::LayoutKind::Pointwise || is_scan(*op))
    for (const Value *v : op->operands) join_all(v, op->result());
}

} // namespace tkc::passes
