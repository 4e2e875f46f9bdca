#include "codegen/nvvm.h"
#include "ops/lowering.h"
#include "ops/ring_slots.h"
#include "support/check.h"

namespace tkc::ops {

using namespace codegen;
using ir::Op;
using llvm::Value;

// Each role gets the named barrier of its number, from 1 on: 0 is the one at which all of them start.
void lower_Roles(LowerCtx &c, const Op &op) {
  llvm::IRBuilder<> &b = c.b;
  nvvm::bar_sync(b, 0); // the rings' barriers have been initialised
  llvm::Function *f = b.GetInsertBlock()->getParent();
  auto *after = llvm::BasicBlock::Create(b.getContext(), "roles.end", f);
  size_t last = op.regions.size() - 1;
  for (size_t r = 0; r <= last; r++) {
    int64_t first = ir::first_warp(op, r), warps = op.attrs.ints("warps")[r];
    llvm::BasicBlock *others = nullptr;
    if (r < last) { // the roles before have the warps behind
      const std::string &name = op.attrs.get<std::vector<std::string>>("names")[r];
      auto *mine = llvm::BasicBlock::Create(b.getContext(), "role." + name, f, after);
      others = llvm::BasicBlock::Create(b.getContext(), "role.others", f, after);
      b.CreateCondBr(b.CreateICmpUGE(c.warp(), c.i32(first)), mine, others);
      b.SetInsertPoint(mine);
    }
    c.in_role(first, warps, int64_t(last - r) + 1, [&] { c.lower_block(op.regions[r]); });
    b.CreateBr(after);
    if (others) b.SetInsertPoint(others);
  }
  b.SetInsertPoint(after);
}

void lower_RingAlloc(LowerCtx &c, const Op &op) {
  Ring ring(op.result());
  if (!ring.mbarriers(c)) return;
  ir::RingSides sides = ir::ring_sides(op);
  bool tensor = ring.tensor_copies(c);
  int64_t arrivals = sides.stores ? sides.producer_warps : 0;
  if (sides.copies) arrivals += tensor ? 1 : sides.producer_warps * 32;
  if_first(c, c.thread(), [&] {
    for (int64_t s = 0; s < ring.stages(); s++) {
      nvvm::mbarrier_init(c.b, ring.full(c, c.i32(s)), arrivals);
      if (ir::has_producer(op)) nvvm::mbarrier_init(c.b, ring.empty(c, c.i32(s)), sides.reader_warps);
    }
    if (tensor) nvvm::fence_mbarrier_init(c.b);
  });
}

// What passes/lower_rings.cpp has replaced.
void lower_RingPush(LowerCtx &, const Op &op) { TKC_UNREACHABLE("{} in code generation", ir::def(op).name.s); }
void lower_RingPop(LowerCtx &, const Op &op) { TKC_UNREACHABLE("{} in code generation", ir::def(op).name.s); }
void lower_RingItem(LowerCtx &, const Op &op) { TKC_UNREACHABLE("{} in code generation", ir::def(op).name.s); }
void lower_RingDrop(LowerCtx &, const Op &op) { TKC_UNREACHABLE("{} in code generation", ir::def(op).name.s); }

} // namespace tkc::ops
