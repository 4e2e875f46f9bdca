#include "layout/fragments.h"
#include "layout/reg_layout.h"
#include "layout_random.h"
#include <algorithm>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <map>
#include <set>

using namespace tkc;
using namespace tkc::test;

namespace {
// Element held in each register of each thread, spelled out.
template <typename F> void for_each_place(const RegLayout &l, F f) {
  for (int w = 0; w < l.num_warps(); w++)
    for (int lane = 0; lane < 32; lane++)
      for (int r = 0; r < l.num_regs(); r++) f(r, lane, w, l.linear(r, lane, w));
}
std::vector<int64_t> coord_of(const RegLayout &l, uint32_t e) { // by division, unlike TileSpace
  std::vector<int64_t> c(l.shape.size());
  int64_t rest = e;
  for (size_t d = l.shape.size(); d-- > 0;) {
    int64_t padded = 1;
    while (padded < l.shape[d]) padded *= 2;
    c[d] = rest % padded;
    rest /= padded;
  }
  return c;
}
bool inside(const RegLayout &l, uint32_t e) {
  auto c = coord_of(l, e);
  for (size_t d = 0; d < c.size(); d++)
    if (c[d] >= l.shape[d]) return false;
  return true;
}
} // namespace

TEST_CASE("F2: solutions, cosets, intersections and inverses") {
  Random rng(1);
  for (int round = 0; round < 500; round++) {
    int bits = 1 + int(rng.below(8));
    auto draw = [&](int count) {
      std::vector<uint32_t> v;
      for (int i = 0; i < count; i++) v.push_back(uint32_t(rng.below(int64_t(1) << bits)));
      return v;
    };
    auto a = draw(int(rng.below(6))), b = draw(int(rng.below(6)));
    auto elements = [](const std::vector<uint32_t> &g) {
      std::set<uint32_t> all;
      for (uint64_t i = 0; i < uint64_t(1) << g.size(); i++) all.insert(f2_apply(g, i));
      return all;
    };
    auto in_a = elements(a), in_b = elements(b);
    F2Span span(a);
    CHECK((size_t(1) << span.rank()) == in_a.size());
    for (uint32_t v = 0; v < 1u << bits; v++) {
      auto solution = span.solve(v);
      CHECK_EACH(solution.has_value() == (in_a.count(v) > 0));
      if (solution) CHECK_EACH(f2_apply(a, *solution) == v);
      uint32_t smallest = v;
      for (uint32_t s : in_a) smallest = std::min(smallest, v ^ s);
      CHECK_EACH(span.reduce(v) == smallest);
    }
    std::set<uint32_t> both;
    std::set_intersection(in_a.begin(), in_a.end(), in_b.begin(), in_b.end(), std::inserter(both, both.end()));
    auto basis = f2_intersection(a, b);
    CHECK((size_t(1) << basis.size()) == both.size());
    CHECK(elements(basis) == both);
  }
  std::vector<uint32_t> basis = {3, 6, 5 ^ 2, 8};
  auto inverse = f2_inverse(basis);
  for (size_t i = 0; i < basis.size(); i++) CHECK(f2_apply(inverse, basis[i]) == (1u << i));
}

TEST_CASE("a layout holds every element, and owners and free bits say where") {
  Random rng(2);
  for (int round = 0; round < 300; round++) {
    auto shape = random_shape(rng, 11);
    int warp_bits = int(rng.below(3));
    bool mixed = rng.chance(50);
    RegLayout l = random_layout(rng, shape, warp_bits, mixed);
    CAPTURE(l.to_string());
    REQUIRE(l.is_valid());
    std::map<uint32_t, std::vector<Owner>> held;
    std::set<int> live;
    for_each_place(l, [&](int r, int lane, int w, uint32_t e) {
      held[e].push_back({r, lane, w});
      if (inside(l, e)) live.insert(r);
      if (lane == 3) CHECK_EACH(l.coord(r, lane, w) == coord_of(l, e));
    });
    CHECK(held.size() == (size_t(1) << l.space().bits));
    CHECK(l.live_regs() == std::vector<int>(live.begin(), live.end()));
    BitMasks free = l.free_bits();
    int checked = 0;
    for (auto &[e, owners] : held) {
      int once = 0;
      for (const Owner &o : owners)
        if (!(o.reg & int(free.reg)) && !(o.lane & int(free.lane)) && !(o.warp & int(free.warp))) {
          once++;
          CHECK_EACH(l.owner(e) == o);
        }
      CHECK_EACH(once == 1);
      if (checked++ > 20) continue;
      auto all = l.owners(e);
      CHECK_EACH(all.size() == owners.size());
      for (const Owner &o : all) CHECK_EACH(std::find(owners.begin(), owners.end(), o) != owners.end());
    }
    auto parsed = RegLayout::parse(l.to_string(), l.shape.to_vector());
    REQUIRE(parsed);
    CHECK(*parsed == l);
    CHECK(parsed->hash() == l.hash());
    // Register order does not matter to the canonical form; another span does.
    RegLayout other = l;
    rng.shuffle(other.reg);
    if (other.reg.size() > 1) other.reg[0] ^= other.reg[1];
    CHECK(other.canonical() == l.canonical());
    auto map = register_map(l, other);
    REQUIRE(map);
    for_each_place(other,
                   [&](int r, int lane, int w, uint32_t e) { CHECK_EACH(l.linear((*map)[size_t(r)], lane, w) == e); });
  }
  CHECK(!RegLayout::parse("reg[1] lane[2,4,8,16] warp[]", {64}));      // four lanes
  CHECK(!RegLayout::parse("reg[] lane[1,2,4,8,16] warp[]", {64}));     // misses half the elements
  CHECK(!RegLayout::parse("reg[64] lane[1,2,4,8,16] warp[]", {32}));   // outside
  CHECK(!RegLayout::parse("reg[32] lane[1,2,4,8,16] warp[] x", {64})); // rest
  CHECK(!RegLayout::parse("reg[99999999999] lane[1,2,4,8,16] warp[]", {32}));
  CHECK(RegLayout::parse(" reg[ 32 ] lane[1,2,4,8,16]\n warp[0]", {60}));
}

TEST_CASE("derived layouts hold what they should") {
  Random rng(3);
  int reshaped = 0, pieces = 0;
  for (int round = 0; round < 300; round++) {
    auto shape = random_shape(rng, 10);
    int warp_bits = int(rng.below(3));
    bool mixed = rng.chance(30);
    RegLayout l = random_layout(rng, shape, warp_bits, mixed);
    CAPTURE(l.to_string());
    CAPTURE(doctest::toString(l.shape.size()));
    int rank = int(l.shape.size());
    if (rank == 0) continue;
    int axis = int(rng.below(rank));
    auto without = [&](std::vector<int64_t> c) {
      c.erase(c.begin() + axis);
      return c;
    };
    RegLayout sliced = l.slice(axis);
    REQUIRE(sliced.is_valid());
    for_each_place(l, [&](int r, int lane, int w, uint32_t) {
      CHECK_EACH(sliced.coord(l.sliced_reg(axis, r), lane, w) == without(l.coord(r, lane, w)));
    });
    if (rank < max_rank) {
      auto at = int(rng.below(rank + 1));
      RegLayout inserted = l.insert_axis(at);
      auto c = l.coord(0, 17, 0);
      c.insert(c.begin() + at, 0);
      CHECK_EACH(inserted.coord(0, 17, 0) == c);
      CHECK_EACH(inserted.slice(at) == [&] {
        RegLayout same = l;
        same.reg.erase(std::remove(same.reg.begin(), same.reg.end(), 0u), same.reg.end());
        return same;
      }());
    }
    std::vector<int> perm(static_cast<size_t>(rank));
    std::iota(perm.begin(), perm.end(), 0);
    rng.shuffle(perm);
    RegLayout permuted = l.permute(perm);
    for_each_place(l, [&](int r, int lane, int w, uint32_t) {
      auto from = l.coord(r, lane, w), to = permuted.coord(r, lane, w);
      for (size_t d = 0; d < perm.size(); d++) CHECK_EACH(to[d] == from[size_t(perm[d])]);
    });
    std::vector<int64_t> narrow = l.shape.to_vector();
    for (int64_t &n : narrow)
      if (rng.chance(50)) n = 1;
    RegLayout source = l.broadcast_source(narrow);
    for_each_place(l, [&](int r, int lane, int w, uint32_t) {
      auto c = l.coord(r, lane, w);
      for (size_t d = 0; d < c.size(); d++)
        if (narrow[d] == 1) c[d] = 0;
      CHECK_EACH(source.coord(l.broadcast_source_reg(narrow, r), lane, w) == c);
    });
    RegLayout wide = source.broadcast_to(l.shape);
    REQUIRE(wide.is_valid());
    CHECK(wide.broadcast_source(narrow) == source);
    CHECK(l.with_warps(8).is_valid());
    // Reshape: try a random factorisation of the size; where it is allowed, flat indices agree on every exact element.
    int64_t size = 1;
    for (int64_t n : l.shape) size *= n;
    std::vector<int64_t> to;
    int64_t rest = size;
    for (int i = 0; i < 3 && rest > 1; i++) {
      int64_t f = 1 + rng.below(rest);
      while (rest % f) f--;
      if (i == 2) f = rest;
      to.push_back(f);
      rest /= f;
    }
    if (rest > 1) to.push_back(rest);
    auto flat = [](const std::vector<int64_t> &shape, const std::vector<int64_t> &c) {
      int64_t i = 0;
      for (size_t d = 0; d < shape.size(); d++) i = i * shape[d] + c[d];
      return i;
    };
    bool agree = true;
    TileSpace from_space(l.shape);
    RegLayout raw = l;
    raw.shape = to;
    if (TileSpace(to).bits == from_space.bits)
      for (uint32_t e = 0; e < 1u << from_space.bits; e++) {
        if (inside(l, e) != inside(raw, e)) agree = false;
        if (inside(l, e) && flat(l.shape.to_vector(), coord_of(l, e)) != flat(to, coord_of(raw, e))) agree = false;
      }
    else
      agree = false;
    auto r = l.reshape(to);
    CHECK(r.has_value() == agree);
    if (r) {
      reshaped++;
      CHECK_EACH(*r == raw);
    }
    // Pieces side by side, and each of them cut out again.
    auto stacked = l.stack(axis, 3);
    CHECK(stacked.has_value() == std::has_single_bit(uint64_t(l.shape[size_t(axis)])));
    if (stacked) {
      REQUIRE(stacked->is_valid());
      for (int64_t i = 0; i < 3; i++) {
        std::vector<int64_t> at(l.shape.size(), 0);
        at[size_t(axis)] = i * l.shape[size_t(axis)];
        auto piece = stacked->subtile(at, l.shape);
        REQUIRE(piece);
        CHECK(piece->layout == l);
        for (int64_t r = 0; r < l.num_regs(); r++) CHECK_EACH(piece->source_reg[size_t(r)] == i * l.num_regs() + r);
      }
    }
    // Sub-tiles at aligned offsets.
    std::vector<int64_t> offset, extent;
    for (int64_t n : l.shape) {
      extent.push_back(1 + rng.below(n));
      int64_t padded = int64_t(1) << log2_ceil(extent.back());
      offset.push_back(rng.below((n - extent.back()) / padded + 1) * padded);
    }
    if (auto piece = l.subtile(offset, extent)) {
      pieces++;
      REQUIRE(piece->layout.is_valid());
      for_each_place(piece->layout, [&](int i, int lane, int w, uint32_t) {
        auto c = piece->layout.coord(i, lane, w);
        for (size_t d = 0; d < c.size(); d++) c[d] += offset[d];
        CHECK_EACH(l.coord(piece->source_reg[size_t(i)], lane, w) == c);
      });
    }
  }
  CHECK(reshaped > 30);
  CHECK(pieces > 30);
}

TEST_CASE("reductions see which bits move along an axis") {
  RegLayout l = *RegLayout::parse("reg[1,64] lane[2,4,8,16,32] warp[128,0]", {4, 64});
  CHECK(l.axis_bits(1) == BitMasks{1, 31, 0});
  CHECK(l.axis_bits(0) == BitMasks{2, 0, 1});
  CHECK(l.is_separable(0));
  CHECK(l.is_separable(1));
  l.lane[0] ^= 64;
  CHECK(!l.is_separable(1));
  CHECK(!l.is_additive());
}

TEST_CASE("blocked layouts coalesce and balance") {
  std::vector<int> rows = {1, 0}, columns = {0, 1};
  CHECK(blocked({64, 128}, rows, 8, 4).to_string() == "reg[1,2,4,1024,2048,4096] lane[8,16,32,64,128] warp[256,512]");
  CHECK(blocked({64, 128}, columns, 4, 1).to_string() ==
        "reg[128,256,2,4,8,16,32,64] lane[512,1024,2048,4096,1] warp[]");
  CHECK(blocked({4, 4096}, rows, 8, 4).to_string() ==
        "reg[1,2,4,256,512,1024,2048] lane[8,16,32,64,128] warp[4096,8192]");
  CHECK(blocked({1, 100}, rows, 4, 2).to_string() == "reg[1,2] lane[4,8,16,32,64] warp[0]");
  CHECK(blocked({7}, std::vector<int>{0}, 8, 2).to_string() == "reg[1,2,4] lane[0,0,0,0,0] warp[0]");
  CHECK(blocked({}, {}, 8, 2).to_string() == "reg[] lane[0,0,0,0,0] warp[0]");
  CHECK(replicated({3, 5}, 2).to_string() == "reg[1,2,4,8,16] lane[0,0,0,0,0] warp[0]");
  Random rng(4);
  for (int round = 0; round < 200; round++) {
    auto shape = random_shape(rng, 14);
    std::vector<int> order(shape.size());
    std::iota(order.begin(), order.end(), 0);
    rng.shuffle(order);
    int64_t vec = int64_t(1) << rng.below(5), warps = int64_t(1) << rng.below(5);
    RegLayout l = blocked(shape, order, vec, warps);
    CHECK(l.is_valid());
    CHECK(l.is_additive());
  }
}

namespace {
// The fragment layouts of the PTX manual, as its formulas are written: groupID = lane >> 2, threadID_in_group = lane
// % 4.
struct RowCol {
  int row, col;
  bool operator==(const RowCol &) const = default;
};
using Formula = RowCol (*)(int i, int group, int thread);
struct PublishedShape {
  const char *name;
  DType type;
  Formula a, b, c;
};
RowCol published_c(int i, int g, int t) { return {i < 2 ? g : g + 8, t * 2 + (i & 1)}; }
const PublishedShape published[] = {
    {"m16n8k16", DType::BF16,
     [](int i, int g, int t) {
       return RowCol{(i >= 0 && i < 2) || (i >= 4 && i < 6) ? g : g + 8, i < 4 ? t * 2 + (i & 1) : t * 2 + (i & 1) + 8};
     },
     [](int i, int g, int t) {
       return RowCol{i < 2 ? t * 2 + (i & 1) : t * 2 + (i & 1) + 8, g};
     },
     published_c},
    {"m16n8k8", DType::F16,
     [](int i, int g, int t) {
       return RowCol{i < 2 ? g : g + 8, t * 2 + (i & 1)};
     },
     [](int i, int g, int t) {
       return RowCol{t * 2 + i, g};
     },
     published_c},
    {"m16n8k8", DType::TF32,
     [](int i, int g, int t) {
       return RowCol{i == 0 || i == 2 ? g : g + 8, i == 0 || i == 1 ? t : t + 4};
     },
     [](int i, int g, int t) {
       return RowCol{i == 0 ? t : t + 4, g};
     },
     published_c},
    {"m16n8k4", DType::TF32,
     [](int i, int g, int t) {
       return RowCol{i == 0 ? g : g + 8, t};
     },
     [](int, int g, int t) {
       return RowCol{t, g};
     },
     published_c},
    {"m16n8k32", DType::E4M3,
     [](int i, int g, int t) {
       return RowCol{(i >= 0 && i < 4) || (i >= 8 && i < 12) ? g : g + 8, t * 4 + (i & 3) + (i < 8 ? 0 : 16)};
     },
     [](int i, int g, int t) {
       return RowCol{t * 4 + (i & 3) + (i < 4 ? 0 : 16), g};
     },
     published_c},
    {"m16n8k16", DType::I8,
     [](int i, int g, int t) {
       return RowCol{i < 4 ? g : g + 8, t * 4 + (i & 3)};
     },
     [](int i, int g, int t) {
       return RowCol{t * 4 + (i & 3), g};
     },
     published_c},
    {"m16n8k16", DType::F64,
     [](int i, int g, int t) {
       return RowCol{i % 2 == 0 ? g : g + 8, t + i / 2 * 4};
     },
     [](int i, int g, int t) {
       return RowCol{t + i * 4, g};
     },
     published_c},
    {"m16n8k8", DType::F64,
     [](int i, int g, int t) {
       return RowCol{i == 0 || i == 2 ? g : g + 8, i == 0 || i == 1 ? t : t + 4};
     },
     [](int i, int g, int t) {
       return RowCol{i == 0 ? t : t + 4, g};
     },
     published_c},
    {"m16n8k4", DType::F64,
     [](int i, int g, int t) {
       return RowCol{i == 0 ? g : g + 8, t};
     },
     [](int, int g, int t) {
       return RowCol{t, g};
     },
     published_c},
    {"m8n8k4", DType::F64,
     [](int, int g, int t) {
       return RowCol{g, t};
     },
     [](int, int g, int t) {
       return RowCol{t, g};
     },
     [](int i, int g, int t) {
       return RowCol{g, t * 2 + i};
     }},
};
} // namespace

TEST_CASE("mma fragments are those of the PTX manual") {
  for (const PublishedShape &p : published) {
    const MmaShape *s = find_mma_shape(p.name, p.type);
    REQUIRE(s);
    CAPTURE(s->name);
    for (Role role : {Role::A, Role::B, Role::C}) {
      std::vector<int64_t> shape = role == Role::A   ? std::vector<int64_t>{s->m, s->k}
                                   : role == Role::B ? std::vector<int64_t>{s->k, s->n}
                                                     : std::vector<int64_t>{s->m, s->n};
      RegLayout l = mma_operand_layout(*s, role, shape, {}, false);
      REQUIRE(l.is_valid());
      REQUIRE(l.num_regs() == s->fragment(role).elements());
      Formula f = role == Role::A ? p.a : role == Role::B ? p.b : p.c;
      for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < l.num_regs(); i++) {
          RowCol e = f(i, lane >> 2, lane % 4);
          CHECK_EACH(l.coord(i, lane, 0) == std::vector<int64_t>{e.row, e.col});
        }
    }
  }
  CHECK(find_mma_shape("m16n8k32", DType::I8)->min_sm == 80);
  CHECK(find_mma_shape("m16n8k32", DType::E5M2)->min_sm == 89);
  CHECK(mma_shapes_for(DType::BF16)[0]->k == 16);
  CHECK(mma_shapes_for(DType::F32).empty());
  CHECK(find_mma_shape("m16n8k16", DType::F64)->min_sm == 90);
  CHECK(find_mma_shape("m8n8k4", DType::F64)->min_sm == 80);
  CHECK(mma_shapes().size() == 11);
}

TEST_CASE("matrix fragments are those of the PTX manual") {
  for (int lane = 0; lane < 32; lane++)
    for (int e = 0; e < 2; e++) {
      auto at = [&](const MatrixFragment &f) {
        RowCol c{0, 0};
        if (e) c = {f.pair.row, f.pair.column};
        for (int b = 0; b < 5; b++)
          if (lane >> b & 1) c = {c.row ^ f.lane[size_t(b)].row, c.col ^ f.lane[size_t(b)].column};
        return c;
      };
      CHECK_EACH(at(matrix_plain) == RowCol{lane / 4, lane % 4 * 2 + e});
      CHECK_EACH(at(matrix_trans) == RowCol{lane % 4 * 2 + e, lane / 4});
    }
}

TEST_CASE("a wide product holds neighbours in one lane, on whose order its operands agree") {
  const MmaShape &mma = *find_mma_shape("m16n8k16", DType::BF16);
  auto neighbours = [](const RegLayout &l, uint32_t step) { // along the dim of this element step, in registers
    int64_t n = 1;
    while (std::find(l.reg.begin(), l.reg.end(), step * uint32_t(n)) != l.reg.end()) n *= 2;
    return n;
  };
  for (bool transposed : {false, true}) {
    WarpTiling plain{1, 1, 1}, wide{1, 1, 1, false, 3, 3};
    auto layout = [&](Role r, std::vector<int64_t> shape, const WarpTiling &t) {
      return mma_operand_layout(mma, r, std::move(shape), t, transposed);
    };
    CHECK(neighbours(layout(Role::A, {64, 64}, plain), 1) == 2);
    CHECK(neighbours(layout(Role::A, {64, 64}, wide), 1) == 8);
    CHECK(neighbours(layout(Role::B, {64, 64}, plain), 64) == 2);
    CHECK(neighbours(layout(Role::B, {64, 64}, wide), 64) == 8);
    CHECK(neighbours(layout(Role::C, {64, 64}, plain), 1) == (transposed ? 1 : 2));
    CHECK(neighbours(layout(Role::C, {64, 64}, wide), 1) == 8);
    // As many as there are registers for.
    CHECK(neighbours(layout(Role::A, {64, 16}, wide), 1) == 4);
    // A and B hold the same terms in the same lanes and, tile by tile, registers.
    RegLayout a = layout(Role::A, {16, 64}, wide), b = layout(Role::B, {64, 16}, wide);
    for (size_t i = 0; i < lane_bits; i++) CHECK((a.lane[i] & 63) == b.lane[i] >> 4);
  }
}

TEST_CASE("the steps of a product add every term exactly once") {
  Random rng(5);
  for (int round = 0; round < 400; round++) {
    const MmaShape &mma = mma_shapes()[size_t(rng.below(int64_t(mma_shapes().size())))];
    auto extent = [&](int unit) {
      int64_t n = 1 + rng.below(3 * unit);
      return rng.chance(50) ? int64_t(1) << log2_ceil(n) : n;
    };
    bool transposed = rng.chance(50);
    int64_t m = extent(transposed ? mma.n : mma.m), n = extent(transposed ? mma.m : mma.n), k = extent(mma.k);
    WarpTiling tiling{int64_t(1) << rng.below(3), int64_t(1) << rng.below(2), int64_t(1) << rng.below(2),
                      rng.chance(50)};
    if (rng.chance(50)) tiling.wide_n = rng.below(4), tiling.wide_k = rng.below(4);
    RegLayout a = mma_operand_layout(mma, Role::A, {m, k}, tiling, transposed);
    RegLayout b = mma_operand_layout(mma, Role::B, {k, n}, tiling, transposed);
    RegLayout c = mma_operand_layout(mma, Role::C, {m, n}, tiling, transposed);
    CAPTURE(mma.name);
    CAPTURE(fmt::format("m{} n{} k{} warps {} {} {}", m, n, k, tiling.warps_m, tiling.warps_n, tiling.warps_k));
    CAPTURE(fmt::format("a {}\nb {}\nc {}", a.to_string(), b.to_string(), c.to_string()));
    REQUIRE(a.is_valid());
    REQUIRE(b.is_valid());
    REQUIRE(c.is_valid());
    CHECK(a.num_warps() == tiling.warps());
    MmaSteps steps = mma_steps(mma, m, n, k, tiling, transposed, a, b, c);
    // Registers in any order give the same instructions.
    RegLayout a2 = a;
    rng.shuffle(a2.reg);
    MmaSteps again = mma_steps(mma, m, n, k, tiling, transposed, a2, b, c);
    CHECK(again.steps.size() == steps.steps.size());
    const RegLayout &first = transposed ? b : a, &second = transposed ? a : b; // instruction operands
    int64_t fm = transposed ? n : m, fn = transposed ? m : n;
    for (int w = 0; w < tiling.warps(); w++) {
      // sums[element of C held by a lane's register] = set of k; instruction by instruction, by the manual's formulas.
      std::map<std::pair<int64_t, int64_t>, std::multiset<int64_t>> sums;
      for (const MmaStep &s : steps.steps) {
        // The instruction's matrices, gathered from the lanes: entry = (row, col) of the operand or nothing.
        auto gather = [&](const RegLayout &l, const Fragment &f, const int16_t *regs, MmaDim outer) {
          std::map<std::pair<int, int>, std::vector<int64_t>> matrix;
          for (int lane = 0; lane < 32; lane++)
            for (int e = 0; e < f.elements(); e++) {
              int at[3] = {0, 0, 0};
              for (int i = 0; i < f.reg_bits; i++)
                if (e >> i & 1) at[int(f.reg[size_t(i)].dim)] |= 1 << f.reg[size_t(i)].bit;
              for (int i = 0; i < 5; i++)
                if (lane >> i & 1) at[int(f.lane[size_t(i)].dim)] |= 1 << f.lane[size_t(i)].bit;
              bool zero = regs[e] < 0 || (outer != MmaDim::K && (lane & int(steps.k_lane_mask)));
              auto key = outer == MmaDim::N   ? std::pair(at[1], at[2])
                         : outer == MmaDim::M ? std::pair(at[0], at[2])
                                              : std::pair(at[0], at[1]);
              if (!zero) matrix[key] = l.coord(regs[e], lane, w);
            }
          return matrix;
        };
        auto ma = gather(first, mma.a, s.a.data(), MmaDim::M);
        auto mb = gather(second, mma.b, s.b.data(), MmaDim::N);
        auto mc = gather(c, mma.c, s.c.data(), MmaDim::K);
        for (auto &[ij, out] : mc) {
          int64_t ci = transposed ? out[1] : out[0], cj = transposed ? out[0] : out[1];
          if (ci >= fm || cj >= fn) continue;
          for (int kk = 0; kk < mma.k; kk++) {
            auto ia = ma.find({ij.first, kk});
            auto ib = mb.find({ij.second, kk});
            if (ia == ma.end() || ib == mb.end()) continue;
            int64_t ar = transposed ? ia->second[1] : ia->second[0], ak = transposed ? ia->second[0] : ia->second[1];
            int64_t bk = transposed ? ib->second[1] : ib->second[0], bc = transposed ? ib->second[0] : ib->second[1];
            CHECK_EACH(ar == ci);
            CHECK_EACH(bc == cj);
            CHECK_EACH(ak == bk);
            if (ak < k) sums[{ij.first + s.m_tile * mma.m, ij.second + s.n_tile * mma.n}].insert(ak);
          }
        }
      }
      // Every k that this warp is responsible for, once for each output it holds.
      uint32_t wk = steps.k_warp_mask;
      std::set<int64_t> mine;
      for (int r = 0; r < a.num_regs(); r++)
        for (int lane = 0; lane < 32; lane++)
          if (int64_t kk = a.coord(r, lane, w)[1]; kk < k) mine.insert(kk);
      if (!wk) CHECK_EACH(mine.size() == size_t(k));
      for (auto &[ij, ks] : sums)
        CHECK_EACH(std::vector<int64_t>(ks.begin(), ks.end()) == std::vector<int64_t>(mine.begin(), mine.end()));
    }
    // Together the warps of k_warp_mask cover K, disjointly.
    std::map<int64_t, std::set<int>> by_k;
    for_each_place(a, [&](int, int, int w, uint32_t e) {
      if (coord_of(a, e)[1] < k) by_k[coord_of(a, e)[1]].insert(w & int(steps.k_warp_mask));
    });
    CHECK(by_k.size() == size_t(k));
    for (auto &[kk, ws] : by_k) CHECK(ws.size() == 1);
  }
  // K = 96 of padded 128: 6 of 8 steps.
  const MmaShape &mma = *find_mma_shape("m16n8k16", DType::BF16);
  RegLayout a = mma_operand_layout(mma, Role::A, {64, 96}, {4, 1, 1}, false);
  RegLayout b = mma_operand_layout(mma, Role::B, {96, 24}, {4, 1, 1}, false);
  RegLayout c = mma_operand_layout(mma, Role::C, {64, 24}, {4, 1, 1}, false);
  CHECK(mma_steps(mma, 64, 24, 96, {4, 1, 1}, false, a, b, c).steps.size() == 6 * 3);
}

TEST_CASE("the accumulator of one product is the A operand of the next") {
  const MmaShape &mma = *find_mma_shape("m16n8k16", DType::BF16);
  WarpTiling t{4, 1, 1};
  RegLayout c = mma_operand_layout(mma, Role::C, {64, 96}, t, false);
  RegLayout a = mma_operand_layout(mma, Role::A, {64, 96}, t, false);
  CHECK(register_map(c, a).has_value());
  // The KDA state held transposed: S[K, V] with V over warps is the result of S += Ak^T r computed transposed, and the
  // B operand of Kp S computed transposed, which is the A operand of the instruction.
  WarpTiling v{1, 2, 1};
  RegLayout state = mma_operand_layout(mma, Role::C, {128, 32}, v, true);
  RegLayout operand = mma_operand_layout(mma, Role::B, {128, 32}, v, true);
  CHECK(register_map(state, operand).has_value());
}
