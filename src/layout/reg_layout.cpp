#include "layout/reg_layout.h"
#include "layout/f2.h"
#include "support/check.h"
#include <algorithm>
#include <charconv>
#include <fmt/ranges.h>

namespace tkc {

int log2_ceil(int64_t n) {
  TKC_CHECK(n >= 1, "log2_ceil of {}", n);
  return int(std::bit_width(uint64_t(n - 1)));
}

TileSpace::TileSpace(std::span<const int64_t> shape) : rank(int(shape.size())) {
  TKC_CHECK(rank <= max_rank, "a tile has rank {}", rank);
  for (int d = rank - 1; d >= 0; d--) {
    auto i = size_t(d);
    extent[i] = shape[i];
    log2[i] = log2_ceil(shape[i]);
    shift[i] = bits;
    bits += log2[i];
  }
  TKC_CHECK(bits <= 31, "a tile of 2^{} elements", bits);
}

uint32_t TileSpace::element(std::span<const int64_t> coord) const {
  uint32_t e = 0;
  for (size_t d = 0; d < size_t(rank); d++) e |= uint32_t(coord[d]) << shift[d];
  return e;
}

bool TileSpace::inside(uint32_t element) const {
  for (int d = 0; d < rank; d++)
    if (coord(element, d) >= extent[size_t(d)]) return false;
  return true;
}

size_t RegLayout::hash() const {
  uint64_t h = 0x9e3779b97f4a7c15u;
  auto mix = [&h](uint64_t v) { h = (h ^ v) * 0xff51afd7ed558ccdu, h ^= h >> 32; };
  for (int64_t n : shape) mix(uint64_t(n));
  for (const auto *part : {&reg, &lane, &warp}) {
    mix(part->size() + (uint64_t(1) << 40));
    for (uint32_t v : *part) mix(v);
  }
  return size_t(h);
}

uint32_t RegLayout::reg_part(int64_t r) const { return f2_apply(reg, uint64_t(r)); }
uint32_t RegLayout::lane_part(int64_t l) const { return f2_apply(lane, uint64_t(l)); }
uint32_t RegLayout::warp_part(int64_t w) const { return f2_apply(warp, uint64_t(w)); }

std::vector<int64_t> RegLayout::coord(int64_t r, int64_t l, int64_t w) const {
  TileSpace s = space();
  uint32_t e = linear(r, l, w);
  std::vector<int64_t> c(shape.size());
  for (int d = 0; d < s.rank; d++) c[size_t(d)] = s.coord(e, d);
  return c;
}

bool RegLayout::is_valid() const {
  if (shape.size() > size_t(max_rank) || lane.size() != size_t(lane_bits) || warp.size() > 10 || reg.size() > 20)
    return false;
  int bits = 0;
  for (int64_t n : shape) {
    if (n < 1 || n > int64_t(1) << 31) return false;
    bits += log2_ceil(n);
  }
  if (bits > 31) return false;
  F2Span span;
  for (const auto *part : {&lane, &warp, &reg})
    for (uint32_t v : *part) {
      if (v >> bits) return false;
      span.insert(v);
    }
  return span.rank() == bits;
}

std::vector<int> RegLayout::live_regs() const {
  TileSpace s = space();
  F2Span threads(lane);
  threads.insert_all(warp);
  bool mixed =
      false; // a vector that moves in two dims: the smallest coordinates of a register need not meet in one element
  for (const auto *part : {&lane, &warp})
    for (uint32_t v : *part) {
      int dims = 0;
      for (int d = 0; d < s.rank; d++) dims += (v & s.mask(d)) != 0;
      mixed |= dims > 1;
    }
  std::vector<uint32_t> basis;
  if (mixed)
    for (const auto *part : {&lane, &warp})
      for (uint32_t v : *part)
        if (F2Span known(basis); known.insert(v)) basis.push_back(v);
  std::vector<int> live;
  for (int64_t r = 0; r < num_regs(); r++) {
    uint32_t e = reg_part(r);
    bool inside = s.inside(threads.reduce(e));
    if (!inside && mixed)
      for (uint64_t i = 0; i < uint64_t(1) << basis.size() && !inside; i++) inside = s.inside(e ^ f2_apply(basis, i));
    if (inside) live.push_back(int(r));
  }
  return live;
}

BitMasks RegLayout::free_bits() const {
  BitMasks free;
  F2Span span;
  auto scan = [&span](const Basis &part, uint32_t &mask) {
    for (size_t i = 0; i < part.size(); i++)
      if (!span.insert(part[i])) mask |= 1u << i;
  };
  scan(lane, free.lane);
  scan(warp, free.warp);
  scan(reg, free.reg);
  return free;
}

namespace {
// Lane bits 0..4, then warp bits, then register bits, as one generator list.
F2Span place_span(const RegLayout &l) {
  F2Span span(l.lane);
  span.insert_all(l.warp);
  span.insert_all(l.reg);
  return span;
}
Owner unpack_place(const RegLayout &l, uint64_t bits) {
  uint64_t warps = bits >> lane_bits;
  return {int(warps >> l.warp.size()), int(bits & 31), int(warps & ((uint64_t(1) << l.warp.size()) - 1))};
}
} // namespace

Owner RegLayout::owner(uint32_t element) const {
  auto bits = place_span(*this).solve(element);
  TKC_CHECK(bits.has_value(), "element {} is held nowhere in {}", element, to_string());
  return unpack_place(*this, *bits);
}

std::vector<Owner> RegLayout::owners(uint32_t element) const {
  F2Span span;
  std::vector<uint64_t> kernel; // sets of bits whose vectors cancel
  for (const auto *part : {&lane, &warp, &reg})
    for (uint32_t v : *part) {
      auto relation = span.solve(v);
      if (relation) kernel.push_back(*relation | uint64_t(1) << span.generators());
      span.insert(v);
    }
  auto first = span.solve(element);
  TKC_CHECK(first.has_value(), "element {} is held nowhere in {}", element, to_string());
  std::vector<Owner> all;
  for (uint64_t i = 0; i < uint64_t(1) << kernel.size(); i++) {
    uint64_t bits = *first;
    for (size_t k = 0; k < kernel.size(); k++)
      if (i >> k & 1) bits ^= kernel[k];
    all.push_back(unpack_place(*this, bits));
  }
  std::sort(all.begin(), all.end(), [](const Owner &a, const Owner &b) {
    return std::tie(a.warp, a.lane, a.reg) < std::tie(b.warp, b.lane, b.reg);
  });
  return all;
}

BitMasks RegLayout::axis_bits(int axis) const {
  uint32_t mask = space().mask(axis);
  BitMasks m;
  for (size_t i = 0; i < reg.size(); i++) m.reg |= uint32_t((reg[i] & mask) != 0) << i;
  for (size_t i = 0; i < lane.size(); i++) m.lane |= uint32_t((lane[i] & mask) != 0) << i;
  for (size_t i = 0; i < warp.size(); i++) m.warp |= uint32_t((warp[i] & mask) != 0) << i;
  return m;
}

bool RegLayout::is_separable(int axis) const {
  uint32_t mask = space().mask(axis);
  F2Span moving;
  for (const auto *part : {&reg, &lane, &warp})
    for (uint32_t v : *part)
      if (v & mask && (v & ~mask || !moving.insert(v))) return false;
  return true;
}

bool RegLayout::is_additive() const {
  uint32_t regs = 0, threads = 0;
  for (uint32_t v : reg) regs |= v;
  for (uint32_t v : lane) threads |= v;
  for (uint32_t v : warp) threads |= v;
  return !(regs & threads);
}

namespace {
template <typename F> RegLayout map_vectors(const RegLayout &l, const TileShape &shape, F f) {
  RegLayout out{shape, l.reg, l.lane, l.warp};
  for (auto *part : {&out.reg, &out.lane, &out.warp})
    for (uint32_t &v : *part) v = f(v);
  return out;
}
// The same coordinates packed for another space, whose dims are at least as long.
uint32_t moved(const TileSpace &from, const TileSpace &to, uint32_t v) {
  uint32_t w = 0;
  for (int d = 0; d < from.rank; d++) w |= uint32_t(from.coord(v, d)) << to.shift[size_t(d)];
  return w;
}
RegLayout drop_zero_regs(RegLayout l) {
  l.reg.erase(std::remove(l.reg.begin(), l.reg.end(), 0u), l.reg.end());
  return l;
}
// Register r without the bits whose vector has nothing in `kept`.
int close_up(const Basis &reg, uint32_t kept, int r) {
  int out = 0, bit = 0;
  for (size_t i = 0; i < reg.size(); i++)
    if (reg[i] & kept) out |= (r >> i & 1) << bit++;
  return out;
}
} // namespace

RegLayout RegLayout::slice(int axis) const {
  TileSpace s = space();
  TKC_CHECK(axis >= 0 && axis < s.rank, "slice of axis {} of a tile of rank {}", axis, s.rank);
  int low = s.shift[size_t(axis)], width = s.log2[size_t(axis)];
  uint32_t below = (1u << low) - 1;
  TileShape to = shape;
  to.erase(to.begin() + axis);
  return drop_zero_regs(map_vectors(*this, to, [=](uint32_t v) { return (v & below) | (v >> width & ~below); }));
}

int RegLayout::sliced_reg(int axis, int r) const { return close_up(reg, ~space().mask(axis), r); }

RegLayout RegLayout::insert_axis(int axis) const {
  TKC_CHECK(axis >= 0 && axis <= int(shape.size()) && shape.size() < size_t(max_rank),
            "insert_axis at {} of a tile of rank {}", axis, shape.size());
  RegLayout out = *this;
  out.shape.insert(out.shape.begin() + axis, 1);
  return out;
}

RegLayout RegLayout::permute(std::span<const int> perm) const {
  TKC_CHECK(perm.size() == shape.size(), "permute of rank {} by {} dims", shape.size(), perm.size());
  TileSpace from = space();
  std::vector<int64_t> to_shape;
  for (int d : perm) to_shape.push_back(shape[size_t(d)]);
  TileSpace to(to_shape);
  return map_vectors(*this, to_shape, [&](uint32_t v) {
    uint32_t w = 0;
    for (size_t d = 0; d < perm.size(); d++) w |= uint32_t(from.coord(v, perm[d])) << to.shift[d];
    return w;
  });
}

std::optional<RegLayout> RegLayout::reshape(std::span<const int64_t> to) const {
  // Both shapes are cut, from the last dim on, into the smallest groups of equal size. Inside a group the exact
  // row-major index must be the padded one: either there is one dim on both sides, or all dims but the outermost are
  // powers of two.
  std::vector<int64_t> a, b;
  std::copy_if(shape.begin(), shape.end(), std::back_inserter(a), [](int64_t n) { return n != 1; });
  std::copy_if(to.begin(), to.end(), std::back_inserter(b), [](int64_t n) { return n != 1; });
  while (!a.empty() && !b.empty()) {
    int64_t size_a = a.back(), size_b = b.back();
    bool single = true, inner_pow2 = true;
    while (size_a != size_b) {
      auto &dims = size_a < size_b ? a : b;
      inner_pow2 &= std::has_single_bit(uint64_t(dims.back()));
      single = false;
      dims.pop_back();
      if (dims.empty()) return std::nullopt;
      (size_a < size_b ? size_a : size_b) *= dims.back();
    }
    if (!single && !inner_pow2) return std::nullopt;
    a.pop_back(), b.pop_back();
  }
  if (!a.empty() || !b.empty()) return std::nullopt;
  RegLayout out = *this;
  out.shape.assign(to.begin(), to.end());
  return out;
}

RegLayout RegLayout::broadcast_source(std::span<const int64_t> from) const {
  TKC_CHECK(from.size() == shape.size(), "broadcast from rank {} to rank {}", from.size(), shape.size());
  TileSpace s = space(), t(from);
  for (size_t d = 0; d < from.size(); d++)
    TKC_CHECK(from[d] == shape[d] || from[d] == 1, "broadcast of extent {} to {}", from[d], shape[d]);
  return drop_zero_regs(map_vectors(*this, TileShape(from.begin(), from.end()), [&](uint32_t v) {
    uint32_t w = 0;
    for (int d = 0; d < s.rank; d++)
      if (from[size_t(d)] != 1) w |= uint32_t(s.coord(v, d)) << t.shift[size_t(d)];
    return w;
  }));
}

int RegLayout::broadcast_source_reg(std::span<const int64_t> from, int r) const {
  TileSpace s = space();
  uint32_t kept = 0;
  for (int d = 0; d < s.rank; d++)
    if (from[size_t(d)] != 1) kept |= s.mask(d);
  return close_up(reg, kept, r);
}

RegLayout RegLayout::broadcast_to(std::span<const int64_t> to) const {
  TKC_CHECK(to.size() == shape.size(), "broadcast from rank {} to rank {}", shape.size(), to.size());
  TileSpace s = space(), t(to);
  RegLayout out = map_vectors(*this, TileShape(to.begin(), to.end()), [&](uint32_t v) { return moved(s, t, v); });
  for (int d = s.rank - 1; d >= 0; d--) {
    auto i = size_t(d);
    TKC_CHECK(to[i] == shape[i] || shape[i] == 1, "broadcast of extent {} to {}", shape[i], to[i]);
    for (int b = s.log2[i]; b < t.log2[i]; b++) out.reg.push_back(1u << (t.shift[i] + b));
  }
  return out;
}

RegLayout RegLayout::with_warps(int64_t warps) const {
  TKC_CHECK(std::has_single_bit(uint64_t(warps)) && warps >= num_warps(), "{} warps from {}", warps, num_warps());
  RegLayout out = *this;
  out.warp.resize(size_t(log2_ceil(warps)), 0);
  return out;
}

RegLayout RegLayout::canonical() const {
  F2Span span(reg);
  RegLayout out{shape, {}, lane, warp};
  // The fully reduced echelon basis depends on the span alone: one vector for each leading bit b, without the others'.
  for (int b = 0; b < 31; b++)
    if (uint32_t rest = span.reduce(1u << b); !(rest >> b & 1)) out.reg.push_back(1u << b ^ rest);
  return out;
}

std::optional<SubTile> RegLayout::subtile(std::span<const int64_t> offset, std::span<const int64_t> extent) const {
  TKC_CHECK(offset.size() == shape.size() && extent.size() == shape.size(), "subtile of rank {}", shape.size());
  TileSpace s = space(), t(extent);
  uint32_t outer = 0; // bits that select the piece
  for (int d = 0; d < s.rank; d++) {
    auto i = size_t(d);
    TKC_CHECK(extent[i] >= 1 && offset[i] >= 0 && offset[i] + extent[i] <= shape[i], "subtile [{} :+ {}] of extent {}",
              offset[i], extent[i], shape[i]);
    if (offset[i] % t.padded(d)) return std::nullopt;
    outer |= s.mask(d) & ~(uint32_t(t.padded(d) - 1) << s.shift[i]);
  }
  for (const auto *part : {&lane, &warp})
    for (uint32_t v : *part)
      if (v & outer) return std::nullopt;
  // Registers of the piece: a base that reaches the offset, plus the kernel of the outer bits.
  std::vector<uint32_t> outer_part, kept_bits;
  F2Span selectors;
  for (size_t i = 0; i < reg.size(); i++) {
    if (auto relation = selectors.solve(reg[i] & outer)) kept_bits.push_back(uint32_t(*relation) | 1u << i);
    selectors.insert(reg[i] & outer);
  }
  auto base = selectors.solve(s.element(offset) & outer);
  TKC_CHECK(base.has_value(), "subtile: the layout does not reach its offset");
  auto pack = [&](uint32_t v) {
    uint32_t w = 0;
    for (int d = 0; d < s.rank; d++) w |= uint32_t(s.coord(v & ~outer, d)) << t.shift[size_t(d)];
    return w;
  };
  // The base register may add bits inside the piece (a vector across both parts): then register 0 of the piece would
  // not start at element zero, which a linear map cannot say unless kept registers undo it.
  uint32_t inner = reg_part(int64_t(*base)) & ~outer;
  SubTile out{{std::vector<int64_t>(extent.begin(), extent.end()), {}, lane, warp}, {}};
  F2Span kept;
  for (uint32_t bits : kept_bits) {
    out.layout.reg.push_back(pack(reg_part(bits)));
    kept.insert(reg_part(bits));
  }
  auto undo = kept.solve(inner);
  if (!undo) return std::nullopt;
  uint32_t start = uint32_t(*base) ^ f2_apply(kept_bits, *undo);
  for (uint32_t &v : out.layout.lane) v = pack(v);
  for (uint32_t &v : out.layout.warp) v = pack(v);
  for (int64_t r = 0; r < out.layout.num_regs(); r++)
    out.source_reg.push_back(int(start ^ f2_apply(kept_bits, uint64_t(r))));
  return out;
}

std::optional<RegLayout> RegLayout::stack(int axis, int64_t count) const {
  TileSpace s = space();
  TKC_CHECK(axis >= 0 && axis < s.rank && count >= 1, "stack of {} along axis {} of rank {}", count, axis, s.rank);
  if (!std::has_single_bit(uint64_t(shape[size_t(axis)]))) return std::nullopt;
  TileShape to_shape = shape;
  to_shape[size_t(axis)] *= count;
  TileSpace t(to_shape);
  RegLayout out = map_vectors(*this, to_shape, [&](uint32_t v) { return moved(s, t, v); });
  for (int b = s.log2[size_t(axis)]; b < t.log2[size_t(axis)]; b++)
    out.reg.push_back(1u << (t.shift[size_t(axis)] + b));
  return out;
}

std::string RegLayout::to_string() const {
  return fmt::format("reg[{}] lane[{}] warp[{}]", fmt::join(reg, ","), fmt::join(lane, ","), fmt::join(warp, ","));
}

std::optional<RegLayout> RegLayout::parse(std::string_view text, std::vector<int64_t> shape) {
  RegLayout out{std::move(shape), {}, {}, {}};
  auto skip = [&] {
    while (!text.empty() && (text[0] == ' ' || text[0] == '\t' || text[0] == '\n')) text.remove_prefix(1);
  };
  auto eat = [&](std::string_view token) {
    skip();
    if (!text.starts_with(token)) return false;
    text.remove_prefix(token.size());
    return true;
  };
  auto list = [&](std::string_view name, Basis &to) {
    if (!eat(name) || !eat("[")) return false;
    if (eat("]")) return true;
    do {
      skip();
      uint32_t v = 0;
      auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
      if (error != std::errc() || to.size() == Basis::capacity) return false;
      text.remove_prefix(size_t(end - text.data()));
      to.push_back(v);
    } while (eat(","));
    return eat("]");
  };
  if (!list("reg", out.reg) || !list("lane", out.lane) || !list("warp", out.warp)) return std::nullopt;
  skip();
  if (!text.empty() || !out.is_valid()) return std::nullopt;
  return out;
}

bool same_lanes(const RegLayout &a, const RegLayout &b) { return a.lane == b.lane && a.warp == b.warp; }

std::optional<std::vector<int>> register_map(const RegLayout &src, const RegLayout &dst) {
  if (src.shape != dst.shape || !same_lanes(src, dst)) return std::nullopt;
  F2Span span(src.reg);
  std::vector<uint32_t> image; // of each register bit of dst, in register bits of src
  for (uint32_t v : dst.reg) {
    auto bits = span.solve(v);
    if (!bits) return std::nullopt;
    image.push_back(uint32_t(*bits));
  }
  std::vector<int> map(size_t(dst.num_regs()));
  for (size_t r = 0; r < map.size(); r++) map[r] = int(f2_apply(image, r));
  return map;
}

RegLayout blocked(std::vector<int64_t> shape, std::span<const int> order, int64_t vec_elems, int64_t warps) {
  TKC_CHECK(order.size() == shape.size(), "blocked: order of {} dims for rank {}", order.size(), shape.size());
  TKC_CHECK(std::has_single_bit(uint64_t(vec_elems)) && std::has_single_bit(uint64_t(warps)),
            "blocked: vector of {}, {} warps", vec_elems, warps);
  RegLayout out{std::move(shape), {}, {}, {}};
  TileSpace s = out.space();
  std::array<int, max_rank> used{}; // bits of each dim already given away
  auto left = [&](int d) { return s.log2[size_t(d)] - used[size_t(d)]; };
  auto take = [&](int d) { return 1u << (s.shift[size_t(d)] + used[size_t(d)]++); };
  if (s.rank > 0)
    for (int b = log2_ceil(vec_elems); b > 0 && left(order[0]) > 0; b--) out.reg.push_back(take(order[0]));
  for (int d : order)
    while (left(d) > 0 && out.lane.size() < size_t(lane_bits)) out.lane.push_back(take(d));
  out.lane.resize(size_t(lane_bits), 0);
  auto warp_bits = size_t(log2_ceil(warps));
  for (int i = s.rank - 1; i >= 0; i--)
    while (left(order[size_t(i)]) > 0 && out.warp.size() < warp_bits) out.warp.push_back(take(order[size_t(i)]));
  out.warp.resize(warp_bits, 0);
  for (int d : order)
    while (left(d) > 0) out.reg.push_back(take(d));
  return out;
}

RegLayout replicated(std::vector<int64_t> shape, int64_t warps) {
  RegLayout out{std::move(shape), {}, std::vector<uint32_t>(size_t(lane_bits), 0), {}};
  for (int b = 0; b < out.space().bits; b++) out.reg.push_back(1u << b);
  out.warp.resize(size_t(log2_ceil(warps)), 0);
  return out;
}

} // namespace tkc
