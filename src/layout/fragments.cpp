#include "layout/fragments.h"
#include "layout/f2.h"
#include "support/check.h"
#include <algorithm>

namespace tkc {

namespace {
constexpr FragBit m(int b) { return {MmaDim::M, uint8_t(b)}; }
constexpr FragBit n(int b) { return {MmaDim::N, uint8_t(b)}; }
constexpr FragBit k(int b) { return {MmaDim::K, uint8_t(b)}; }

// D of every m16n8 shape: two neighbours of a row, then the row eight below.
constexpr Fragment c16x8 = {2, {n(0), m(3)}, {n(1), n(2), m(0), m(1), m(2)}};

constexpr MmaShape shapes[] = {
    {"m16n8k16",
     16,
     8,
     16,
     16,
     80,
     {3, {k(0), m(3), k(3)}, {k(1), k(2), m(0), m(1), m(2)}},
     {2, {k(0), k(3)}, {k(1), k(2), n(0), n(1), n(2)}},
     c16x8,
     {DType::F16, DType::BF16},
     2},
    {"m16n8k8",
     16,
     8,
     8,
     16,
     80,
     {2, {k(0), m(3)}, {k(1), k(2), m(0), m(1), m(2)}},
     {1, {k(0)}, {k(1), k(2), n(0), n(1), n(2)}},
     c16x8,
     {DType::F16, DType::BF16},
     2},
    {"m16n8k8",
     16,
     8,
     8,
     32,
     80,
     {2, {m(3), k(2)}, {k(0), k(1), m(0), m(1), m(2)}},
     {1, {k(2)}, {k(0), k(1), n(0), n(1), n(2)}},
     c16x8,
     {DType::TF32},
     1},
    {"m16n8k4",
     16,
     8,
     4,
     32,
     80,
     {1, {m(3)}, {k(0), k(1), m(0), m(1), m(2)}},
     {0, {}, {k(0), k(1), n(0), n(1), n(2)}},
     c16x8,
     {DType::TF32},
     1},
    {"m16n8k32",
     16,
     8,
     32,
     8,
     80,
     {4, {k(0), k(1), m(3), k(4)}, {k(2), k(3), m(0), m(1), m(2)}},
     {3, {k(0), k(1), k(4)}, {k(2), k(3), n(0), n(1), n(2)}},
     c16x8,
     {DType::I8, DType::U8},
     2},
    {"m16n8k16",
     16,
     8,
     16,
     8,
     80,
     {3, {k(0), k(1), m(3)}, {k(2), k(3), m(0), m(1), m(2)}},
     {2, {k(0), k(1)}, {k(2), k(3), n(0), n(1), n(2)}},
     c16x8,
     {DType::I8, DType::U8},
     2},
    {"m16n8k32",
     16,
     8,
     32,
     8,
     89,
     {4, {k(0), k(1), m(3), k(4)}, {k(2), k(3), m(0), m(1), m(2)}},
     {3, {k(0), k(1), k(4)}, {k(2), k(3), n(0), n(1), n(2)}},
     c16x8,
     {DType::E4M3, DType::E5M2},
     2},
    {"m16n8k16",
     16,
     8,
     16,
     64,
     90,
     {3, {m(3), k(2), k(3)}, {k(0), k(1), m(0), m(1), m(2)}},
     {2, {k(2), k(3)}, {k(0), k(1), n(0), n(1), n(2)}},
     c16x8,
     {DType::F64},
     1},
    {"m16n8k8",
     16,
     8,
     8,
     64,
     90,
     {2, {m(3), k(2)}, {k(0), k(1), m(0), m(1), m(2)}},
     {1, {k(2)}, {k(0), k(1), n(0), n(1), n(2)}},
     c16x8,
     {DType::F64},
     1},
    {"m16n8k4",
     16,
     8,
     4,
     64,
     90,
     {1, {m(3)}, {k(0), k(1), m(0), m(1), m(2)}},
     {0, {}, {k(0), k(1), n(0), n(1), n(2)}},
     c16x8,
     {DType::F64},
     1},
    {"m8n8k4",
     8,
     8,
     4,
     64,
     80,
     {0, {}, {k(0), k(1), m(0), m(1), m(2)}},
     {0, {}, {k(0), k(1), n(0), n(1), n(2)}},
     {1, {n(0)}, {n(1), n(2), m(0), m(1), m(2)}},
     {DType::F64},
     1},
};

constexpr MatrixBit row(int b) { return {uint8_t(1 << b), 0}; }
constexpr MatrixBit column(int b) { return {0, uint8_t(1 << b)}; }
} // namespace

const MatrixFragment matrix_plain = {column(0), {column(1), column(2), row(0), row(1), row(2)}};
const MatrixFragment matrix_trans = {row(0), {row(1), row(2), column(0), column(1), column(2)}};

bool MmaShape::supports(DType t) const {
  for (int i = 0; i < dtype_count; i++)
    if (dtypes[size_t(i)] == t) return true;
  return false;
}

std::span<const MmaShape> mma_shapes() { return shapes; }

std::vector<const MmaShape *> mma_shapes_for(DType t) {
  std::vector<const MmaShape *> found; // the table lists larger k first
  for (const MmaShape &s : shapes)
    if (s.supports(t)) found.push_back(&s);
  return found;
}

const MmaShape *find_mma_shape(std::string_view name, DType t) {
  for (const MmaShape &s : shapes)
    if (s.supports(t) && name == s.name) return &s;
  return nullptr;
}

namespace {
// How the bits of one dim of the product are shared out: [0, fragment) to the instruction, the rest to this warp's
// tiles and to the warps.
struct DimSplit {
  int bits = 0, fragment = 0, warps = 0, tiles = 0;
  bool interleave = false;
  int tile_bit(int i) const { return fragment + i + (interleave ? warps : 0); }
  int warp_bit(int i) const { return fragment + i + (interleave ? 0 : tiles); }
};
DimSplit split_dim(int64_t extent, int instruction, int64_t warps, bool interleave) {
  DimSplit s;
  s.bits = log2_ceil(extent);
  s.fragment = std::min(s.bits, log2_ceil(instruction));
  s.warps = std::min(s.bits - s.fragment, log2_ceil(warps));
  s.tiles = s.bits - s.fragment - s.warps;
  s.interleave = interleave;
  return s;
}

// The instruction's role and dims for the tile's.
Role instruction_role(Role role, bool transposed) {
  if (!transposed || role == Role::C) return role;
  return role == Role::A ? Role::B : Role::A;
}
MmaDim instruction_dim(MmaDim d, bool transposed) {
  if (!transposed || d == MmaDim::K) return d;
  return d == MmaDim::M ? MmaDim::N : MmaDim::M;
}
// Dims of a tile operand, outer and inner.
std::array<MmaDim, 2> operand_dims(Role role) {
  switch (role) {
  case Role::A: return {MmaDim::M, MmaDim::K};
  case Role::B: return {MmaDim::K, MmaDim::N};
  case Role::C: return {MmaDim::M, MmaDim::N};
  }
  TKC_UNREACHABLE("operand role {}", int(role));
}
int64_t warps_along(const WarpTiling &t, MmaDim tile_dim) {
  return tile_dim == MmaDim::M ? t.warps_m : tile_dim == MmaDim::N ? t.warps_n : t.warps_k;
}

// Which bit of a tile's coordinate stands for each bit of the instruction's (fragment bits, then those of tiles and
// warps): the identity, or for a wide dim first bits that registers hold, then the lanes', then the registers' others.
std::vector<int> coordinate_bits(const MmaShape &mma, MmaDim dim, const DimSplit &split, int64_t wide) {
  std::vector<int> bits(size_t(split.bits));
  for (int i = 0; i < split.bits; i++) bits[size_t(i)] = i;
  const Fragment &f = dim == MmaDim::K ? mma.a : mma.c;
  if (wide == 0 || split.interleave || 1 << split.fragment < mma.extent(dim)) return bits;
  std::vector<int> regs, lanes;
  for (int b = 0; b < split.fragment; b++) {
    bool lane = std::any_of(f.lane.begin(), f.lane.end(), [&](FragBit x) { return x.dim == dim && x.bit == b; });
    (lane ? lanes : regs).push_back(b);
  }
  for (int t = 0; t < split.tiles; t++) regs.push_back(split.tile_bit(t));
  int at = 0;
  auto place = [&](int bit) { bits[size_t(bit)] = at++; };
  size_t neighbours = std::min(size_t(wide), regs.size());
  for (size_t i = 0; i < neighbours; i++) place(regs[i]);
  for (int b : lanes) place(b);
  for (size_t i = neighbours; i < regs.size(); i++) place(regs[i]);
  return bits;
}
int64_t wide_along(const WarpTiling &t, MmaDim tile_dim) {
  return tile_dim == MmaDim::N ? t.wide_n : tile_dim == MmaDim::K ? t.wide_k : 0;
}
} // namespace

RegLayout mma_operand_layout(const MmaShape &mma, Role role, std::vector<int64_t> shape, const WarpTiling &tiling,
                             bool transposed) {
  TKC_CHECK(shape.size() == 2, "operand of mma of rank {}", shape.size());
  RegLayout out{std::move(shape), {}, {}, {}};
  TileSpace s = out.space();
  auto dims = operand_dims(role);
  std::array<DimSplit, 2> split;
  std::array<std::vector<int>, 2> bits;
  for (size_t i = 0; i < 2; i++) {
    MmaDim of = instruction_dim(dims[i], transposed);
    split[i] = split_dim(out.shape[i], mma.extent(of), warps_along(tiling, dims[i]), tiling.interleave);
    bits[i] = coordinate_bits(mma, of, split[i], wide_along(tiling, dims[i]));
  }
  auto vector = [&](MmaDim d, int bit) { // of a tile dim; zero if the tile has no such bit
    for (size_t i = 0; i < 2; i++)
      if (dims[i] == d && bit < s.log2[i]) return 1u << (s.shift[i] + bits[i][size_t(bit)]);
    return 0u;
  };
  const Fragment &fragment = mma.fragment(instruction_role(role, transposed));
  for (int i = 0; i < fragment.reg_bits; i++) {
    FragBit b = fragment.reg[size_t(i)];
    if (uint32_t v = vector(instruction_dim(b.dim, transposed), b.bit)) out.reg.push_back(v);
  }
  for (FragBit b : fragment.lane) out.lane.push_back(vector(instruction_dim(b.dim, transposed), b.bit));
  for (size_t i : {size_t(1), size_t(0)})
    for (int t = 0; t < split[i].tiles; t++) out.reg.push_back(vector(dims[i], split[i].tile_bit(t)));
  for (MmaDim d : {MmaDim::N, MmaDim::M, MmaDim::K}) {
    DimSplit *of = dims[0] == d ? &split[0] : dims[1] == d ? &split[1] : nullptr;
    for (int w = 0; w < log2_ceil(warps_along(tiling, d)); w++)
      out.warp.push_back(of && w < of->warps ? vector(d, of->warp_bit(w)) : 0);
  }
  return out;
}

MmaSteps mma_steps(const MmaShape &mma, int64_t m, int64_t n, int64_t k, const WarpTiling &tiling, bool transposed,
                   const RegLayout &a, const RegLayout &b, const RegLayout &c) {
  const std::array<const RegLayout *, 3> tiles = {&a, &b, &c};
  const std::array<std::array<int64_t, 2>, 3> shapes2 = {{{m, k}, {k, n}, {m, n}}};
  std::array<F2Span, 3> regs; // by tile role
  for (size_t r = 0; r < 3; r++) {
    std::vector<int64_t> shape(shapes2[r].begin(), shapes2[r].end());
    TKC_CHECK(tiles[r]->shape == shape &&
                  same_lanes(*tiles[r], mma_operand_layout(mma, Role(r), shape, tiling, transposed)),
              "mma_steps: operand {} has layout {}", r, tiles[r]->to_string());
    regs[r].insert_all(tiles[r]->reg);
  }
  // Per instruction dim.
  std::array<int64_t, 3> extent = {m, n, k};
  std::array<int64_t, 3> warps = {tiling.warps_m, tiling.warps_n, tiling.warps_k};
  std::array<int64_t, 3> wide = {0, tiling.wide_n, tiling.wide_k};
  if (transposed) std::swap(extent[0], extent[1]), std::swap(warps[0], warps[1]), std::swap(wide[0], wide[1]);
  std::array<DimSplit, 3> split;
  std::array<std::vector<int>, 3> bits;
  // The tile's coordinate of an instruction's.
  auto coordinate = [&](size_t d, uint32_t x) {
    uint32_t out = 0;
    for (size_t i = 0; i < 32; i++)
      if (x >> i & 1) out |= 1u << (i < bits[d].size() ? size_t(bits[d][i]) : i);
    return out;
  };
  std::array<std::vector<uint32_t>, 3> starts; // of the live tiles of a warp
  for (size_t d = 0; d < 3; d++) {
    split[d] = split_dim(extent[d], mma.extent(MmaDim(d)), warps[d], tiling.interleave);
    bits[d] = coordinate_bits(mma, MmaDim(d), split[d], wide[d]);
    for (int t = 0; t < 1 << split[d].tiles; t++) {
      uint32_t start = 0;
      for (int i = 0; i < split[d].tiles; i++)
        if (t >> i & 1) start |= 1u << split[d].tile_bit(i);
      if (coordinate(d, start) < extent[d]) starts[d].push_back(start);
    }
  }
  // Register of element e of an instruction operand whose tile starts at `start` (by instruction dim).
  auto lookup = [&](Role instruction, int e, const std::array<uint32_t, 3> &start) -> int16_t {
    const Fragment &fragment = mma.fragment(instruction);
    std::array<uint32_t, 3> at = start;
    for (int i = 0; i < fragment.reg_bits; i++) {
      FragBit bit = fragment.reg[size_t(i)];
      if (e >> i & 1) at[size_t(bit.dim)] |= 1u << bit.bit;
    }
    Role role = instruction_role(instruction, transposed);
    auto dims = operand_dims(role);
    std::array<int64_t, 2> coord;
    for (size_t i = 0; i < 2; i++) {
      auto d = size_t(instruction_dim(dims[i], transposed));
      coord[i] = coordinate(d, at[d]);
      if (coord[i] >= extent[d]) return -1;
    }
    auto reg = regs[size_t(role)].solve(tiles[size_t(role)]->space().element(coord));
    TKC_CHECK(reg.has_value(), "mma_steps: element not in a register of lane 0: {}", tiles[size_t(role)]->to_string());
    return int16_t(*reg);
  };
  MmaSteps out;
  for (int i = 0; i < lane_bits; i++) {
    FragBit bit = mma.a.lane[size_t(i)];
    if (bit.dim == MmaDim::K && bit.bit >= split[2].bits) out.k_lane_mask |= 1u << i;
  }
  out.k_warp_mask = ((1u << split[2].warps) - 1) << (log2_ceil(tiling.warps_m) + log2_ceil(tiling.warps_n));
  // The operands of each pair of tiles, looked up once.
  std::vector<MmaStep> as, bs, cs;
  for (uint32_t kt : starts[2]) {
    for (uint32_t mt : starts[0]) {
      as.emplace_back();
      as.back().a.fill(-1);
      for (int e = 0; e < mma.a.elements(); e++) as.back().a[size_t(e)] = lookup(Role::A, e, {mt, 0, kt});
    }
    for (uint32_t nt : starts[1]) {
      bs.emplace_back();
      bs.back().b.fill(-1);
      for (int e = 0; e < mma.b.elements(); e++) bs.back().b[size_t(e)] = lookup(Role::B, e, {0, nt, kt});
    }
  }
  for (uint32_t mt : starts[0])
    for (uint32_t nt : starts[1]) {
      cs.emplace_back();
      cs.back().c.fill(-1);
      for (int e = 0; e < mma.c.elements(); e++) cs.back().c[size_t(e)] = lookup(Role::C, e, {mt, nt, 0});
    }
  size_t ms = starts[0].size(), ns = starts[1].size();
  for (size_t kt = 0; kt < starts[2].size(); kt++)
    for (size_t mt = 0; mt < ms; mt++)
      for (size_t nt = 0; nt < ns; nt++)
        out.steps.push_back(
            {int16_t(mt), int16_t(nt), int16_t(kt), as[kt * ms + mt].a, bs[kt * ns + nt].b, cs[mt * ns + nt].c});
  return out;
}

RegLayout fma_operand_layout(const RegLayout &c, bool is_b, std::vector<int64_t> shape) {
  RegLayout out{std::move(shape), {}, {}, {}};
  TileSpace s = out.space(), of_c = c.space();
  int dim = is_b ? 1 : 0;
  auto project = [&](uint32_t v) { return uint32_t(of_c.coord(v, dim)) << s.shift[size_t(dim)]; };
  for (int b = 0; b < s.log2[size_t(1 - dim)]; b++) out.reg.push_back(1u << (s.shift[size_t(1 - dim)] + b));
  for (uint32_t v : c.reg)
    if (uint32_t w = project(v)) out.reg.push_back(w);
  for (uint32_t v : c.lane) out.lane.push_back(project(v));
  for (uint32_t v : c.warp) out.warp.push_back(project(v));
  return out;
}

} // namespace tkc
