// How many blocks of a kernel fit on an SM at once, computed without a GPU.
#pragma once
#include <cstdint>

namespace tkc {

// Limits of one SM; the values of a target or of DeviceInfo. Bytes.
struct SmLimits {
  int64_t registers = 65536, threads = 0, blocks = 0;
  int64_t shared = 0, shared_per_block = 0; // per_block: with the opt-in
  int64_t reserved_shared = 1024;           // taken by the system in every block (sm_80 and later)
};

// `shared`: static and dynamic. 0 if not even one block fits.
//
// Registers are given to warps in units of 256, from four equal parts of the register file; shared memory in units of
// 128 bytes.
int64_t blocks_per_sm(const SmLimits &sm, int64_t registers, int64_t threads, int64_t shared);

} // namespace tkc
