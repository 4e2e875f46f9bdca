#include "layout/pieces.h"
#include <algorithm>
#include <bit>

namespace tkc {

// A basis vector of one tile in the coordinates of another; dims where `drop` is set are left out.
static uint32_t moved(uint32_t basis, const TileSpace &from, const TileSpace &to, const std::vector<bool> *drop) {
  uint32_t out = 0;
  for (int d = 0; d < from.rank; d++)
    if (!drop || !(*drop)[size_t(d)]) out |= uint32_t(from.coord(basis, d)) << to.shift[size_t(d)];
  return out;
}

static std::vector<bool> changed_dims(std::span<const int64_t> a, std::span<const int64_t> b) {
  std::vector<bool> out;
  for (size_t d = 0; d < a.size(); d++) out.push_back(a[d] != b[d]);
  return out;
}

RegLayout register_axes_layout(std::span<const int64_t> shape, const std::vector<bool> &dims, int64_t warps) {
  // The other dims as a blocked tile of their own, then the given dims as registers.
  std::vector<int64_t> rest(shape.begin(), shape.end());
  for (size_t d = 0; d < shape.size(); d++)
    if (dims[d]) rest[d] = 1;
  std::vector<int> order;
  for (int d = int(shape.size()) - 1; d >= 0; d--) order.push_back(d);
  RegLayout small = blocked(rest, order, 1, warps), out;
  TileSpace from = small.space(), to{shape};
  out.shape = shape;
  for (int d = to.rank - 1; d >= 0; d--)
    if (dims[size_t(d)])
      for (int b = 0; b < to.log2[size_t(d)]; b++) out.reg.push_back(1u << (to.shift[size_t(d)] + b));
  for (uint32_t b : small.reg)
    if (b) out.reg.push_back(moved(b, from, to, nullptr));
  for (uint32_t b : small.lane) out.lane.push_back(moved(b, from, to, nullptr));
  for (uint32_t b : small.warp) out.warp.push_back(moved(b, from, to, nullptr));
  return out;
}

bool in_registers_only(const RegLayout &l, const std::vector<bool> &dims) {
  TileSpace s = l.space();
  for (int d = 0; d < s.rank; d++) {
    if (!dims[size_t(d)]) continue;
    BitMasks m = l.axis_bits(d);
    if (m.lane || m.warp || !l.is_separable(d)) return false;
  }
  return true;
}

RegLayout with_register_axes(const RegLayout &whole, std::span<const int64_t> shape, const std::vector<bool> &dims) {
  TileSpace from = whole.space(), to{shape};
  RegLayout out;
  out.shape = shape;
  for (uint32_t b : whole.lane) out.lane.push_back(moved(b, from, to, &dims));
  for (uint32_t b : whole.warp) out.warp.push_back(moved(b, from, to, &dims));
  for (uint32_t b : whole.reg)
    if (uint32_t m = moved(b, from, to, &dims)) out.reg.push_back(m);
  for (int d = from.rank - 1; d >= 0; d--)
    if (dims[size_t(d)])
      for (int bit = 0; bit < to.log2[size_t(d)]; bit++) out.reg.push_back(1u << (to.shift[size_t(d)] + bit));
  return out;
}

std::optional<RegLayout> part_layout(const RegLayout &whole, std::span<const int64_t> starts,
                                     std::span<const int64_t> sizes) {
  if (auto part = whole.subtile(starts, sizes)) return std::move(part->layout);
  std::vector<bool> dims = changed_dims(whole.shape, sizes);
  return in_registers_only(whole, dims) ? std::optional(with_register_axes(whole, sizes, dims)) : std::nullopt;
}

std::optional<RegLayout> whole_layout(const RegLayout &part, std::span<const int64_t> shape,
                                      std::span<const int64_t> starts) {
  RegLayout whole;
  whole.shape = shape;
  TileSpace small = part.space(), large{shape};
  for (uint32_t b : part.reg) whole.reg.push_back(moved(b, small, large, nullptr));
  for (uint32_t b : part.lane) whole.lane.push_back(moved(b, small, large, nullptr));
  for (uint32_t b : part.warp) whole.warp.push_back(moved(b, small, large, nullptr));
  for (int d = large.rank; d-- > 0;)
    for (int bit = small.log2[size_t(d)]; bit < large.log2[size_t(d)]; bit++)
      whole.reg.push_back(uint32_t(1) << (large.shift[size_t(d)] + bit));
  auto back = part_layout(whole, starts, part.shape);
  return back && *back == part ? std::optional(std::move(whole)) : std::nullopt;
}

bool bit_by_bit(const RegLayout &l, int axis) {
  uint32_t mask = l.space().mask(axis), seen = 0;
  for (const auto *part : {&l.reg, &l.lane, &l.warp})
    for (uint32_t v : *part) {
      if (!(v & mask)) continue;
      if (!std::has_single_bit(v) || seen & v) return false;
      seen |= v;
    }
  return true; // a valid layout holds every bit
}

} // namespace tkc
