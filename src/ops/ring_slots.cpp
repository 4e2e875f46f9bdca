#include "ops/ring_slots.h"
#include "support/check.h"
#include <algorithm>
#include <bit>
#include <llvm/IR/PatternMatch.h>
#include <set>

namespace tkc::ops {

using codegen::LowerCtx;
using llvm::Value;

namespace {

// The argument of `body` that is a ring op's counter but for a constant; null: none.
const ir::Value *counter_argument(const ir::Op &op, const ir::Block *body) {
  const ir::Value *v = op.operand(ir::ring_operand(op) + 1);
  while (v->op && v->op->kind == ir::OpKind::Add) {
    if (v->op->operand(1)->op && v->op->operand(1)->op->kind == ir::OpKind::Constant)
      v = v->op->operand(0);
    else
      break;
  }
  return v->is_arg() && v->block == body ? v : nullptr;
}

} // namespace

SlotAndParity slot_and_parity(LowerCtx &c, Value *counter, int64_t stages) {
  using namespace llvm::PatternMatch;
  auto known = c.ring_slots.find({counter, stages});
  if (known != c.ring_slots.end()) return {known->second.first, known->second.second};
  Value *before = nullptr;
  uint64_t ahead = 0;
  if (match(counter, m_Add(m_Value(before), m_ConstantInt(ahead))) && ahead > 0 && ahead <= uint64_t(stages))
    if (auto it = c.ring_slots.find({before, stages}); it != c.ring_slots.end()) {
      auto [slot, parity] = it->second;
      Value *next = c.b.CreateAdd(slot, c.i32(int64_t(ahead)));
      Value *wraps = c.b.CreateICmpUGE(next, c.i32(stages));
      return {c.b.CreateSelect(wraps, c.b.CreateSub(next, c.i32(stages)), next),
              c.b.CreateXor(parity, c.b.CreateZExt(wraps, c.b.getInt32Ty()))};
    }
  return {c.b.CreateURem(counter, c.i32(stages)), c.b.CreateAnd(c.b.CreateUDiv(counter, c.i32(stages)), c.i32(1))};
}

CarriedSlots::CarriedSlots(LowerCtx &c, const ir::Op &loop, const std::vector<codegen::Regs> &first,
                           llvm::BasicBlock *from)
    : c_(c) {
  std::set<std::pair<const ir::Value *, int64_t>> counters;
  ir::walk(loop.regions[0], [&](const ir::Op *op) {
    if (!ir::is_ring_op(op->kind)) return;
    int64_t stages = ir::ring_of(*op)->attrs.i("stages");
    const ir::Value *v = counter_argument(*op, loop.regions[0]);
    if (v && v->index > 0 && !std::has_single_bit(uint64_t(stages))) counters.emplace(v, stages);
  });
  llvm::BasicBlock *head = c.b.GetInsertBlock();
  for (auto [v, stages] : counters) {
    llvm::IRBuilder<>::InsertPointGuard guard(c.b);
    c.b.SetInsertPoint(from->getTerminator());
    auto [slot, parity] = slot_and_parity(c, first[size_t(v->index) - 1].at(0), stages);
    c.b.SetInsertPoint(head, head->begin());
    llvm::PHINode *slots = c.b.CreatePHI(c.b.getInt32Ty(), 2), *parities = c.b.CreatePHI(c.b.getInt32Ty(), 2);
    slots->addIncoming(slot, from);
    parities->addIncoming(parity, from);
    c.ring_slots[{c.scalar(v), stages}] = {slots, parities};
    carried_.push_back({size_t(v->index) - 1, stages, slots, parities});
  }
}

void CarriedSlots::close(const std::vector<codegen::Regs> &next) {
  for (const Carried &k : carried_) {
    auto [slot, parity] = slot_and_parity(c_, next[k.index].at(0), k.stages);
    k.slot->addIncoming(slot, c_.b.GetInsertBlock());
    k.parity->addIncoming(parity, c_.b.GetInsertBlock());
  }
}

KnownSlots::KnownSlots(LowerCtx &c, const ir::Op &loop, int64_t slots, llvm::BasicBlock *from) : c_(c), slots_(slots) {
  ir::walk(loop.regions[0], [&](const ir::Op *op) {
    if (!ir::is_ring_op(op->kind) || ir::ring_of(*op)->attrs.i("stages") != slots) return;
    const ir::Value *v = counter_argument(*op, loop.regions[0]);
    if (v && v->index > 0 && std::find(counters_.begin(), counters_.end(), v) == counters_.end())
      counters_.push_back(v);
  });
  for (const ir::Value *v : counters_) {
    const ir::Op *first = loop.operand(2 + size_t(v->index))->op;
    TKC_CHECK(first && first->kind == ir::OpKind::Constant && first->attrs.i("value") == 0,
              "items of an unrolled loop are counted from 0");
  }
  parity_ = c.b.CreatePHI(c.b.getInt32Ty(), 2);
  parity_->addIncoming(c.i32(0), from);
}

void KnownSlots::iteration(int64_t k) {
  for (const ir::Value *v : counters_) c_.ring_slots[{c_.scalar(v), slots_}] = {c_.i32(k), parity_};
}

void KnownSlots::close() { parity_->addIncoming(c_.b.CreateXor(parity_, c_.i32(1)), c_.b.GetInsertBlock()); }

} // namespace tkc::ops
