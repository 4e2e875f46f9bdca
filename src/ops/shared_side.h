// The accesses of one side of a trip through shared memory (layout/smem_layout.h) as instructions.
#pragma once
#include "codegen/lower_ctx.h"

namespace tkc::ops {

// Where the tile starts: a constant, plus a run-time number of bytes (null: none) that is a multiple of the span of the
// tile's XOR bits.
struct SharedPlace {
  int64_t offset = 0;
  llvm::Value *slot = nullptr;
};

// The accesses of `piece` (see SharedPlan::pieces).
void store_side(codegen::LowerCtx &c, const SmemSide &side, const SharedPlace &at, int piece, const ir::Value *x);
void load_side(codegen::LowerCtx &c, const SmemSide &side, const SharedPlace &at, int piece, DType t,
               codegen::Regs &regs);

} // namespace tkc::ops
