// Which tiles of a ring bulk and tensor copies (TMA) can bring, and how. The facts that legality rests on are those of
// the entry that assumes aligned tensors (codegen/abi.h).
#pragma once
#include "ir/ir.h"
#include "layout/smem_layout.h"
#include "passes/effects.h"

namespace tkc::passes {

struct TensorCopy {
  std::string problem; // not empty: there is none, and why
  SmemLayout smem;     // in the slot
  // By a tensor map: elements of a copy per dim of the tensor, and the map's swizzle in bytes. Empty: one bulk copy.
  std::vector<int64_t> box;
  int64_t swizzle = 0;
  int64_t bytes = 0; // that the copies bring
};

// Of a load that is laid out; `uses` are the reads from the slot. `bulk_only`: no tensor map. `swizzle`: this one, in
// bytes.
TensorCopy plan_tensor_copy(const ir::Function &f, const ir::Op &load, std::span<const SmemUse> uses,
                            const LayoutFeatures &features, bool bulk_only, std::optional<int64_t> swizzle = {});

// The same by a tensor map alone, of a copy by hand (ir/by_hand.h) of a tile of this type.
TensorCopy plan_box(const ir::Function &f, const ir::Op &copy, const ir::Type &tile, std::span<const SmemUse> uses,
                    const LayoutFeatures &features, std::optional<int64_t> swizzle);
// Why bulk copies, one for each row, cannot bring a tile; empty: they can.
std::string row_copy_problem(const ir::Function &f, const ir::Op &copy, const ir::Type &tile);

} // namespace tkc::passes
