// What the families of ops for protocols by hand share: shared.cpp, sync.cpp, copy.cpp, mbarrier.cpp.
#pragma once
#include "ir/by_hand.h"
#include "ops/common.h"

namespace tkc::ops {

inline constexpr ir::Derivative kNoByHand =
    ir::no_derivative("shared memory and asynchronous copies are for kernels; a reference has none");
// Where it stands is part of what it means.
inline constexpr ir::Effect kByHandOrder = {-1, ir::Space::Control, ir::Access::ReadWrite};
inline constexpr ir::Effect kByHandShared = {-1, ir::Space::Shared, ir::Access::ReadWrite};

// As many operands as the signature has, with `values` before the places.
inline bool has_places(InferCtx &ctx, Op &op, size_t values) {
  size_t n = values + 2 * size_t(ir::places(op.kind));
  if (!has_operands(ctx, op, n, n)) return false;
  for (size_t i = values + 1; i < n; i += 2)
    if (!is_scalar(ctx, op, i, kInts)) return false;
  return true;
}

} // namespace tkc::ops
