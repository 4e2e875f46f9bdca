// What a target can do. Code asks for a feature or a number of a row of targets.def, never for an SM number.
#pragma once
#include "layout/smem_layout.h"
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tkc::ir {

enum Feature : uint32_t {
  kLdmatrix = 1,      // ldmatrix, movmatrix
  kCpAsync = 2,       // cp.async
  kFp8 = 4,           // e4m3/e5m2 conversions and products, these in hardware only with kFp8Mma
  kStmatrix = 8,      // stmatrix
  kTma = 16,          // bulk and tensor copies, mbarrier transactions
  kCluster = 32,      // clusters, DSMEM
  kElect = 64,        // elect.sync
  kBf16Native = 128,  // bf16 add/mul, atom.add.bf16, ex2.bf16
  kDependents = 4096, // griddepcontrol
  kHopper = kStmatrix | kTma | kCluster | kElect | kBf16Native | kDependents,
  kWideGlobal = 256, // 32-byte global accesses
  kSetMaxNReg = 512,
  kMixedFloat = 1024, // add, sub, fma of f32 with f16 and bf16 operands
  // Tensor cores multiply fp8. Elsewhere the assembler converts operands of mma to f16, which tkc does by itself:
  // ptxas 13.0 reads the upper half of an operand register that is zero from an unrelated constant.
  kFp8Mma = 2048,
};

struct Target {
  const char *name;
  const char *cpu; // LLVM's
  int ptx_version; // times ten; the lowest with every feature of the row
  int sm;          // for messages and min_sm of ops
  int64_t shared_per_block, shared_per_sm;
  uint32_t features;
  bool has(Feature f) const { return (features & f) == uint32_t(f); }
};

struct Part {
  const char *name;
  const char *target;
  int sms, clock_mhz;
  double mma_cycles;           // of one m16n8k16 f32-accumulating product on one sub-core
  double dram_bytes_per_cycle; // per SM
  int l2_mib;
};

const std::vector<Target> &all_targets();
const Target *find_target(std::string_view name);
const Target &default_target(); // sm_120
const Part &default_part(const Target &t);
const Part *find_part(std::string_view name);
// What the layout library may use on a target.
LayoutFeatures layout_features(const Target &t);

} // namespace tkc::ir
