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

// Byte address of the element that a register of a tile in layout `l` holds, in every thread's own place.
llvm::Value *element_address(codegen::LowerCtx &c, const RegLayout &l, const SmemLayout &smem, const SharedPlace &at,
                             int64_t reg);
// What a writer of a tile in shared memory leaves out: registers (without copies) that hold nothing but padding, where
// a reader takes what lies in their place along with its elements. Such bytes are never used, but they must have been
// written. `written`, `read`: bytes of the tile.
std::vector<int> missing_padding(const RegLayout &writer, const SmemLayout &smem, const std::vector<bool> &written,
                                 const std::vector<bool> &read);
} // namespace tkc::ops
