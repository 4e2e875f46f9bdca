#include "layout/smem_layout.h"
#include "layout/f2.h"
#include "layout/smem_side.h"
#include "support/check.h"
#include <algorithm>
#include <charconv>
#include <fmt/ranges.h>
#include <numeric>

namespace tkc {

uint32_t SmemLayout::offset(uint32_t element) const { return f2_apply(bases, element); }
uint32_t SmemLayout::offset(std::span<const int64_t> coord) const { return offset(TileSpace(shape).element(coord)); }

bool SmemLayout::is_valid() const {
  if (elem_bytes != 1 && elem_bytes != 2 && elem_bytes != 4 && elem_bytes != 8) return false;
  if (shape.size() > size_t(max_rank) || !std::has_single_bit(uint64_t(alignment))) return false;
  int bits = 0;
  for (int64_t n : shape) {
    if (n < 1 || n > int64_t(1) << 31) return false;
    bits += log2_ceil(n);
  }
  int low = log2_ceil(elem_bytes);
  if (bits + low > 31 || bases.size() != size_t(bits)) return false;
  F2Span span;
  for (uint32_t v : bases)
    if (v & uint32_t(elem_bytes - 1) || v >> (bits + low) || !span.insert(v)) return false;
  return true;
}

std::string SmemLayout::to_string() const { return fmt::format("smem[{}]", fmt::join(bases, ",")); }

std::optional<SmemLayout> SmemLayout::parse(std::string_view text, std::vector<int64_t> shape, int64_t elem_bytes) {
  SmemLayout out{std::move(shape), elem_bytes, {}, 0, 16};
  if (!text.starts_with("smem[") || !text.ends_with("]")) return std::nullopt;
  text.remove_prefix(5);
  text.remove_suffix(1);
  while (!text.empty()) {
    uint32_t v = 0;
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
    if (error != std::errc() || out.bases.size() > 31) return std::nullopt;
    out.bases.push_back(v);
    text.remove_prefix(size_t(end - text.data()));
    if (text.empty()) break;
    if (text[0] != ',' || text.size() == 1) return std::nullopt;
    text.remove_prefix(1);
  }
  if (!out.is_valid()) return std::nullopt;
  out.bytes = elem_bytes << out.bases.size();
  return out;
}

SmemLayout plain_smem(std::vector<int64_t> shape, int64_t elem_bytes, std::span<const int> order) {
  TileSpace s(shape);
  std::vector<int> dims(order.begin(), order.end());
  if (dims.empty())
    for (int d = s.rank - 1; d >= 0; d--) dims.push_back(d);
  TKC_CHECK(int(dims.size()) == s.rank, "plain_smem: order of {} dims for rank {}", dims.size(), s.rank);
  SmemLayout out{std::move(shape), elem_bytes, std::vector<uint32_t>(size_t(s.bits)), elem_bytes << s.bits, 16};
  uint32_t next = uint32_t(elem_bytes);
  for (int d : dims)
    for (int b = 0; b < s.log2[size_t(d)]; b++, next *= 2) out.bases[size_t(s.shift[size_t(d)] + b)] = next;
  return out;
}

namespace {
// XORs the 16-byte chunk index of an offset with the bits from 128 bytes on, as the hardware does for each mode.
uint32_t swizzled(uint32_t offset, int swizzle) {
  uint32_t chunks = uint32_t(swizzle) / 16 - 1; // mask of chunk bits
  return offset ^ ((offset >> 7 & chunks) << 4);
}
} // namespace

std::optional<SmemLayout> tma_swizzle(std::vector<int64_t> shape, int64_t elem_bytes, int swizzle) {
  TKC_CHECK(swizzle == 32 || swizzle == 64 || swizzle == 128, "TMA swizzle of {} bytes", swizzle);
  TileSpace s(shape);
  if (s.rank == 0) return std::nullopt;
  int inner = s.log2[size_t(s.rank - 1)], box = log2_ceil(swizzle) - log2_ceil(elem_bytes);
  if (inner < box) return std::nullopt;
  SmemLayout out{std::move(shape), elem_bytes, std::vector<uint32_t>(size_t(s.bits)), elem_bytes << s.bits,
                 swizzle * 8};
  uint32_t next = uint32_t(elem_bytes);
  auto place = [&](int from, int to) {
    for (int b = from; b < to; b++, next *= 2) out.bases[size_t(b)] = swizzled(next, swizzle);
  };
  place(0, box);
  place(inner, s.bits); // the rows of a box, then the boxes
  place(box, inner);
  return out;
}

std::optional<int> tma_mode(const SmemLayout &layout) {
  for (int swizzle : {128, 64, 32})
    if (auto l = tma_swizzle(layout.shape, layout.elem_bytes, swizzle); l && l->bases == layout.bases) return swizzle;
  SmemLayout plain = plain_smem(layout.shape, layout.elem_bytes);
  TileSpace s(layout.shape);
  bool rows = s.rank > 0 && (s.padded(s.rank - 1) * layout.elem_bytes) % 16 == 0;
  if (rows && plain.bases == layout.bases) return 0;
  return std::nullopt;
}

SmemLayout choose_smem_layout(const std::vector<int64_t> &shape, int64_t elem_bytes, std::span<const SmemUse> uses,
                              SmemForm form, const LayoutFeatures &features, std::span<const int> order) {
  bool free_of_conflicts = false; // of the layout last costed
  auto cost = [&](const SmemLayout &l) {
    double sum = 0;
    free_of_conflicts = true;
    for (const SmemUse &u : uses) {
      SideShape s = side_shape({u.layout, l.bases, log2_ceil(elem_bytes), u.is_store, false,
                                u.is_store ? features.stmatrix : features.ldmatrix});
      sum += u.weight * double(s.cost());
      free_of_conflicts &= s.wavefronts == s.ideal;
    }
    return sum;
  };
  for (const SmemUse &u : uses) TKC_CHECK(u.layout.shape == shape, "choose_smem: a use of another shape");
  bool row_major = order.empty();
  for (size_t i = 0; i < order.size() && !row_major; i++) {
    if (order[i] != int(shape.size() - 1 - i)) break;
    row_major = i + 1 == order.size();
  }
  SmemLayout best = plain_smem(shape, elem_bytes, form == SmemForm::Tma ? std::span<const int>() : order);
  if (form == SmemForm::Tma) best.alignment = 128;
  double best_cost = cost(best);
  bool done = free_of_conflicts; // a swizzle changes nothing but conflicts
  auto offer = [&](const SmemLayout &l) {
    double c = cost(l);
    if (c >= best_cost) return false;
    best = l;
    best_cost = c;
    done = free_of_conflicts;
    return true;
  };
  SmemLayout plain = best;
  if (form == SmemForm::Tma || row_major)
    for (int swizzle : {32, 64, 128})
      if (auto l = done ? std::nullopt : tma_swizzle(shape, elem_bytes, swizzle)) {
        bool keeps_order = true; // rows of several boxes are not row-major
        for (size_t b = 0; b < l->bases.size(); b++) keeps_order &= std::bit_floor(l->bases[b]) == plain.bases[b];
        if (form == SmemForm::Tma || keeps_order) offer(*l);
      }
  if (form == SmemForm::Swizzle) {
    // Each bit from 128 bytes on may flip any of the three chunk bits. One bit at a time until nothing improves; where
    // several bits must change together to gain, the TMA modes above are starting points.
    bool improved = true;
    for (int sweep = 0; sweep < 4 && improved && !done; sweep++) {
      improved = false;
      for (size_t b = 0; b < plain.bases.size() && !done; b++) {
        if (plain.bases[b] < 128) continue;
        for (uint32_t x = 0; x < 8; x++) {
          SmemLayout l = best;
          if (l.bases[b] == (plain.bases[b] ^ x << 4)) continue;
          l.bases[b] = plain.bases[b] ^ x << 4;
          l.alignment = 16;
          improved |= offer(l);
        }
      }
    }
  }
  return best;
}

SmemChoice choose_smem(const std::vector<int64_t> &shape, int64_t elem_bytes, std::span<const SmemUse> uses,
                       SmemForm form, const LayoutFeatures &features, std::span<const int> order) {
  SmemChoice best{choose_smem_layout(shape, elem_bytes, uses, form, features, order)};
  if (!uses.empty()) best.layout.bytes = 0;
  for (const SmemUse &u : uses) {
    SmemSide side =
        u.is_store ? plan_smem_store(u.layout, best.layout, features) : plan_smem_load(u.layout, best.layout, features);
    best.wavefronts += u.weight * double(side.wavefronts);
    best.ideal += u.weight * double(side.ideal);
    best.layout.bytes = std::max(best.layout.bytes, side.reach);
  }
  return best;
}

} // namespace tkc
