#include "layout/global_access.h"
#include "layout/f2.h"
#include "support/check.h"
#include <algorithm>

namespace tkc {

GlobalAccesses plan_global(const RegLayout &regs, bool is_store, int contiguous, int64_t elem_bytes, int64_t divisor,
                           int64_t max_bytes) {
  TileSpace s = regs.space();
  TKC_CHECK(contiguous < s.rank && divisor >= 1, "plan_global: contiguous dim {} of rank {}, divisor {}", contiguous,
            s.rank, divisor);
  GlobalAccesses out;
  out.is_additive = regs.is_additive();
  BitMasks free;
  if (is_store) {
    free = regs.free_bits();
    out.lane_mask = free.lane, out.warp_mask = free.warp;
  }
  // The register bits that a thread needs; the others repeat what these reach.
  F2Span held;
  for (size_t i = 0; i < regs.reg.size(); i++) held.insert(free.reg >> i & 1 ? 0 : regs.reg[i]);
  uint64_t pivots = held.pivots();
  uint32_t threads = 0; // coordinate bits that lanes and warps move
  for (uint32_t v : regs.lane) threads |= v;
  for (uint32_t v : regs.warp) threads |= v;
  int bits = 0;
  std::array<uint32_t, 6> group{};
  if (contiguous >= 0) {
    auto d = size_t(contiguous);
    while (bits < s.log2[d] && elem_bytes << (bits + 1) <= max_bytes) {
      int64_t elems = int64_t(2) << bits;
      uint32_t unit = 1u << (s.shift[d] + bits);
      auto combo = held.solve(unit);
      if (divisor % elems || s.extent[d] % elems || threads & unit || !combo) break;
      group[size_t(bits++)] = uint32_t(*combo);
    }
  }
  out.elems = int64_t(1) << bits;
  uint32_t inner = bits ? (uint32_t(out.elems) - 1) << s.shift[size_t(contiguous)] : 0;
  std::vector<uint32_t> rest; // register combos that reach the vectors
  F2Span seen;
  for (size_t i = 0; i < regs.reg.size(); i++) {
    if (!(pivots >> i & 1)) continue;
    uint32_t combo = 1u << i, v = regs.reg[i];
    for (int j = 0; j < bits; j++)
      if (v >> (s.shift[size_t(contiguous)] + j) & 1) combo ^= group[size_t(j)];
    if (seen.insert(v & ~inner)) rest.push_back(combo);
  }
  std::vector<bool> live(size_t(regs.num_regs()), false);
  for (int r : regs.live_regs()) live[size_t(r)] = true;
  for (uint64_t c = 0; c < uint64_t(1) << rest.size(); c++) {
    uint32_t base = f2_apply(rest, c);
    GlobalAccess a;
    bool any = false;
    for (uint64_t i = 0; i < uint64_t(out.elems); i++) {
      uint32_t r = base ^ f2_apply(group, i);
      a.regs.push_back(live[r] ? int(r) : -1);
      any |= live[r];
    }
    if (!any) continue;
    uint32_t element = regs.reg_part(base);
    for (int d = 0; d < s.rank; d++) a.coord[size_t(d)] = s.coord(element, d);
    out.accesses.push_back(std::move(a));
  }
  if (!is_store && held.rank() < int(regs.reg.size()))
    for (int64_t r = 0; r < regs.num_regs(); r++)
      if (auto same = held.solve(regs.reg_part(r)); int64_t(*same) != r && live[size_t(r)])
        out.copies.emplace_back(int(r), int(*same));
  // Elements of one access form the span of the lanes and the vector; a sector is a run of 32 bytes of the contiguous
  // dim.
  F2Span touched(regs.lane);
  for (int j = 0; j < bits; j++) touched.insert(1u << (s.shift[size_t(contiguous)] + j));
  int sector_bits = contiguous < 0 ? 0 : std::clamp(5 - log2_ceil(elem_bytes), 0, s.log2[size_t(contiguous)]);
  uint32_t in_sector = sector_bits ? ((1u << sector_bits) - 1) << s.shift[size_t(contiguous)] : 0;
  F2Span sectors;
  for (int b = 0; b < 32; b++) sectors.insert(touched.row(b) & ~in_sector);
  out.sectors = int64_t(1) << sectors.rank();
  out.bytes = elem_bytes << touched.rank();
  return out;
}

} // namespace tkc
