#include "ir/by_hand.h"
#include <algorithm>

namespace tkc::ir {

int64_t places(OpKind kind) {
  const std::vector<SigParam> &params = signature(kind);
  return std::count_if(params.begin(), params.end(), [](const SigParam &p) { return p.is_place(); });
}

Place place(const Op &op, int64_t which) {
  size_t at = op.operands.size() - size_t(2 * (places(op.kind) - which));
  return {op.operand(at)->op, op.operand(at + 1)};
}

bool by_hand(const Function &f) {
  bool any = false;
  walk(f.body, [&](const Op *op) { any |= op->kind == OpKind::SharedAlloc || op->kind == OpKind::BarrierAlloc; });
  return any;
}

bool needs_alignment(const Function &f) {
  bool needs = false;
  walk(f.body, [&](const Op *op) { needs |= is_bulk_copy(op->kind); });
  return needs;
}

bool elected(const Op &op) {
  for (const Block *b = op.block; b && b->parent; b = b->parent->block)
    if (b->parent->kind == OpKind::If)
      if (const Op *condition = b->parent->operand(0)->op; condition && condition->kind == OpKind::ElectThread)
        return true;
  return false;
}

} // namespace tkc::ir
