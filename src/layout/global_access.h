// Vector accesses of a register tile to global memory.
#pragma once
#include "layout/reg_layout.h"

namespace tkc {

// One ld.global/st.global of `GlobalAccesses::elems` consecutive elements along the contiguous dim.
struct GlobalAccess {
  std::vector<int> regs;                 // in ascending address order; -1: not live
  std::array<int64_t, max_rank> coord{}; // of the first element, register part; combine with the thread's part by XOR
};

struct GlobalAccesses {
  int64_t elems = 1; // per access; a power of two
  std::vector<GlobalAccess> accesses;
  // Loads: registers that are copies of a loaded one: (register, loaded register).
  std::vector<std::pair<int, int>> copies;
  // Stores and atomics: lanes and warps with one of these bits set hold copies and must stay away. Every element of the
  // tile is then written exactly once. Zero for loads.
  uint32_t lane_mask = 0, warp_mask = 0;
  // Register and thread parts use disjoint bits: coordinates, hence addresses, may be added.
  bool is_additive = true;
  // Sectors of 32 bytes that one access of a warp touches at least, and the number of bytes it moves, both for rows
  // that start at a sector: bytes / (32 * sectors) is the efficiency of the access.
  int64_t sectors = 0, bytes = 0;
};

// `contiguous`: the dim of unit stride, or -1 if there is none (one element per access). `divisor`: a number that
// divides the start of the tile along that dim and every other stride, in elements, and so bounds the vector; the base
// address is aligned to as many elements. `max_bytes`: 16, or 32 where the target has 256-bit accesses. A vector never
// crosses the exact extent. Registers that are not live are not accessed; masks for run-time bounds are the caller's.
GlobalAccesses plan_global(const RegLayout &regs, bool is_store, int contiguous, int64_t elem_bytes, int64_t divisor,
                           int64_t max_bytes);

} // namespace tkc
