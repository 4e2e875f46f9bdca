// Where the slots and mbarriers of a ring lie, for the lowerings of ring ops.
#pragma once
#include "codegen/access.h"
#include "ir/ring.h"
#include "ops/shared_side.h"

namespace tkc::ops {

struct SlotAndParity {
  llvm::Value *slot, *parity; // counter mod stages; of the phase counter div stages
};
SlotAndParity slot_and_parity(codegen::LowerCtx &c, llvm::Value *counter, int64_t stages);

// The counters that a loop carries, where their slots are no cut of bits: slot and parity are carried beside them, for
// a division takes longer than a short iteration can hide.
class CarriedSlots {
public:
  // In a loop's head, where its carried values are phis; `from` is the block before it, `first` what comes from there.
  CarriedSlots(codegen::LowerCtx &c, const ir::Op &loop, const std::vector<codegen::Regs> &first,
               llvm::BasicBlock *from);
  // At the end of the body, with what it hands on.
  void close(const std::vector<codegen::Regs> &next);

private:
  struct Carried {
    size_t index;
    int64_t stages;
    llvm::PHINode *slot, *parity;
  };
  codegen::LowerCtx &c_;
  std::vector<Carried> carried_;
};

// The same where as many iterations stand one behind the other as the loop's ring has slots, which counts them from a
// multiple of that: slots are then constants, and the parity is one number for all.
class KnownSlots {
public:
  // In the head of the iterations, where their carried values are phis; `from` is the block before it.
  KnownSlots(codegen::LowerCtx &c, const ir::Op &loop, int64_t slots, llvm::BasicBlock *from);
  // Before iteration k of a round is lowered, its arguments are set.
  void iteration(int64_t k);
  // At the end of a round.
  void close();

private:
  codegen::LowerCtx &c_;
  int64_t slots_;
  std::vector<const ir::Value *> counters_;
  llvm::PHINode *parity_ = nullptr;
};

struct Ring {
  const ir::Op &op;
  explicit Ring(const ir::Value *v) : op(*v->op) {}
  int64_t stages() const { return op.attrs.i("stages"); }
  // In this entry.
  bool tensor_copies(const codegen::LowerCtx &c) const { return ir::by_tma(op) && c.tensor_copies(); }
  bool mbarriers(const codegen::LowerCtx &c) const { return ir::has_producer(op) || tensor_copies(c); }
  const SmemLayout &smem(int64_t field) const { return op.attrs.get<SmemLayout>(fmt::format("smem{}", field)); }

  llvm::Value *slot(codegen::LowerCtx &c, llvm::Value *counter) const {
    return slot_and_parity(c, counter, stages()).slot;
  }

  // Where a field of an item lies.
  SharedPlace place(codegen::LowerCtx &c, llvm::Value *counter, int64_t field) const {
    int64_t offset = op.attrs.i("offset") + op.attrs.ints("field_offset")[size_t(field)];
    llvm::Value *bytes = c.b.CreateMul(slot(c, counter), c.i32(op.attrs.i("stage_bytes")));
    if (auto *k = llvm::dyn_cast<llvm::ConstantInt>(bytes)) return {offset + k->getSExtValue(), nullptr};
    return {offset, bytes};
  }

  // The slot's mbarriers: all `full` ones, then all `empty` ones.
  llvm::Value *full(codegen::LowerCtx &c, llvm::Value *counter) const { return barrier(c, counter, 0); }
  llvm::Value *empty(codegen::LowerCtx &c, llvm::Value *counter) const { return barrier(c, counter, stages() * 8); }
  // Of the phase counter div stages.
  llvm::Value *parity(codegen::LowerCtx &c, llvm::Value *counter) const {
    return slot_and_parity(c, counter, stages()).parity;
  }

private:
  llvm::Value *barrier(codegen::LowerCtx &c, llvm::Value *counter, int64_t constant) const {
    return codegen::shared_address(c, op.attrs.i("barrier_offset") + constant, slot(c, counter), 8);
  }
};

// What the thread or lane with this index does for all.
template <typename F> void if_first(codegen::LowerCtx &c, llvm::Value *index, F &&body) {
  codegen::where(c, c.b.CreateICmpEQ(index, c.i32(0)), body);
}

} // namespace tkc::ops
