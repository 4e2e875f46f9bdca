// Copies from global to shared memory as instructions, for the ops that start them: ring_fill and those by hand.
#pragma once
#include "codegen/access.h"
#include "ops/shared_side.h"
#include <span>

namespace tkc::ops {

// Copies of a tile by the threads that own its elements in layout `read` (an attribute), by cp.async of 4, 8 or 16
// bytes; what lies outside of the tensor arrives as zero. False: some threads would copy fewer bytes at a time, or from
// addresses that are not aligned: all of them load and store. `readers`: tiles that are read from the place, with
// padding that must have been written. Where `enabled` (null: always) is false nothing happens.
bool thread_copies(codegen::LowerCtx &c, const ir::Op &op, const SmemLayout &smem, const SharedPlace &at,
                   std::span<const ir::Value *const> readers, llvm::Value *enabled);

// The boxes of a tile that a tensor map moves, each by one instruction. The tile's dims are powers of two, and where
// the layout in shared memory is one of TMA's, whole boxes lie where a copy to the place of their first element puts
// them. `at`: the box's place in the tensor (i32), innermost dim first.
using BoxFn = std::function<void(llvm::Value *shared, std::span<llvm::Value *const> at)>;
void each_box(codegen::LowerCtx &c, const ir::Op &op, const SmemLayout &smem, const SharedPlace &place, const BoxFn &f);

// The address of the tile's first element, `offset` elements (i64) behind it; null: 0.
llvm::Value *row_address(codegen::LowerCtx &c, const ir::Op &op, llvm::Value *offset);

} // namespace tkc::ops
