#include "runtime/occupancy.h"
#include <algorithm>

namespace tkc {

static int64_t round_up(int64_t x, int64_t unit) { return (x + unit - 1) / unit * unit; }

int64_t blocks_per_sm(const SmLimits &sm, int64_t registers, int64_t threads, int64_t shared) {
  constexpr int64_t kParts = 4; // sub-cores; a warp lives on one of them
  if (threads < 1 || threads > 1024 || shared > sm.shared_per_block || registers > 255) return 0;
  int64_t warps = (threads + 31) / 32;
  int64_t by_threads = sm.threads / (warps * 32);
  int64_t register_unit = round_up(std::max<int64_t>(registers, 1) * 32, 256);
  bool fits = round_up(warps, kParts) * register_unit <= sm.registers;
  int64_t by_registers = fits ? sm.registers / kParts / register_unit * kParts / warps : 0;
  int64_t by_shared = sm.shared / std::max<int64_t>(round_up(shared + sm.reserved_shared, 128), 1);
  return std::min({sm.blocks, by_threads, by_registers, by_shared});
}

} // namespace tkc
