// Bytes of block-shared scratch that a lowering needs for exchanges between warps (OpDef::scratch), from the op's
// layouts and attributes alone. The lowering divides the bytes as these functions count them.
//
// The exchange is: each warp stores, a block barrier, each warp loads. Between the loads and the next writer of the
// same bytes (the op itself in the next iteration of a loop too) there must be another barrier: whoever places the
// scratch sees to it.
#pragma once
#include "ir/ir.h"
#include "layout/fragments.h"

namespace tkc::ops {

int64_t reduce_scratch(const ir::Op &op); // reductions, argmax and argmin
int64_t scan_scratch(const ir::Op &op);
int64_t mma_scratch(const ir::Op &op);
int64_t reshape_scratch(const ir::Op &op); // where no renaming of registers makes the result
int64_t atomic_scratch(const ir::Op &op);  // old values handed to the warps that hold copies, if anything uses them
bool result_used(const ir::Op &op);        // of an op with one result

// ---- what the counts and the lowerings share
// f16 and bf16 are accumulated in f32; every other type in itself.
DType accumulator(DType t);
// Bytes of scratch for one accumulator: 4 or 8.
int64_t scratch_bytes(DType t);

// A dense numbering of the threads that store: the warp bits of `warp_first`, then the lane bits, then the other warp
// bits get the index bits in order, but for those skipped.
struct PackedThreads {
  std::vector<uint32_t> lane, warp; // index contribution of each bit
  uint32_t lane_skip = 0, warp_skip = 0;
  int64_t count = 1;
};
PackedThreads pack_threads(const RegLayout &l, uint32_t lane_skip, uint32_t warp_skip, uint32_t warp_first = 0);

// The exchange of a reduction: one slot for each stored register of the result and each storing thread. What the warps
// along the axis have for one element of the result lies side by side.
struct ReduceExchange {
  BitMasks axis;                // bits along the axis
  std::vector<int> result_regs; // ascending: live, without copies
  PackedThreads threads;
};
ReduceExchange reduce_exchange(const RegLayout &operand, int64_t axis);

// The bits of an axis' coordinate from low to high, each held by one register, lane or warp bit.
struct ScanBit {
  enum Kind : uint8_t { Register, Lane, Warp } kind;
  int index; // of the register, lane or warp bit
};
// Nullopt if a vector moves in two bits or two dims at once, or if a bit is held twice.
std::optional<std::vector<ScanBit>> scan_bits(const RegLayout &l, int64_t axis);
// A run of neighbouring warp bits is one exchange of block totals.
struct ScanExchange {
  size_t first = 0, count = 0; // in scan_bits()
  std::vector<int> registers;  // that hold a total of their own: live, no copies, register bits scanned before zero
  PackedThreads threads;
};
std::vector<ScanExchange> scan_exchanges(const RegLayout &l, const std::vector<ScanBit> &bits);

// The instructions of a product with tensor cores. Types and roles are those of the instruction (for a transposed
// product A is the tile's B).
struct MmaPlan {
  const MmaShape *shape = nullptr;
  DType a_type = DType::F16, b_type = DType::F16; // f32 operands are rounded to tf32
  bool transposed = false;
  MmaSteps steps;
  std::vector<int> exchanged; // registers of the result that hold partial sums to be added over warps
};
// Nullopt before stage laid_out, or if no instruction has the shape named by the op.
std::optional<MmaPlan> mma_plan(const ir::Op &op);

} // namespace tkc::ops
