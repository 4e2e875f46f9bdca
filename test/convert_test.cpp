// Shared-memory layouts, conversions and global accesses: every plan is run on a simulated block.
#include "layout/convert.h"
#include "layout/fragments.h"
#include "layout/global_access.h"
#include "layout/smem_layout.h"
#include "layout_random.h"
#include "layout_sim.h"
#include <algorithm>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>

using namespace tkc;
using namespace tkc::test;

TEST_CASE("TMA swizzles are the hardware's formula") {
  for (int swizzle : {32, 64, 128})
    for (int64_t elem : {1, 2, 4, 8})
      for (int64_t rows : {1, 5, 8, 64}) {
        for (int64_t row_bytes : {16, 32, 64, 100, 128, 256}) {
          std::vector<int64_t> shape = {rows, row_bytes / elem};
          auto l = tma_swizzle(shape, elem, swizzle);
          int64_t padded_row = int64_t(elem) << log2_ceil(row_bytes / elem), padded_rows = int64_t(1)
                                                                                           << log2_ceil(rows);
          CHECK(l.has_value() == (padded_row >= swizzle));
          if (!l) continue;
          CHECK(l->is_valid());
          CHECK(l->alignment == swizzle * 8);
          for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < shape[1]; c++) {
              int64_t byte = c * elem, box = byte / swizzle;
              int64_t linear = (box * padded_rows + r) * swizzle + byte % swizzle;
              int64_t chunk = linear / 16, line = linear / 128; // 16-byte chunks, 128-byte lines
              int64_t flip = swizzle == 128 ? line % 8 : swizzle == 64 ? line % 4 : line % 2;
              std::vector<int64_t> coord = {r, c};
              CHECK_EACH(l->offset(coord) == (chunk ^ flip) * 16 + linear % 16);
            }
          CHECK(tma_mode(*l).has_value());
          if (padded_rows * padded_row >= 1024) CHECK(*tma_mode(*l) == swizzle);
          auto parsed = SmemLayout::parse(l->to_string(), shape, elem);
          REQUIRE(parsed);
          CHECK(parsed->bases == l->bases);
        }
      }
  CHECK(tma_mode(plain_smem({8, 64}, 2)) == 0);
  CHECK(!tma_mode(plain_smem({8, 64}, 2, std::vector<int>{0, 1})));
  CHECK(!SmemLayout::parse("smem[2,4,4]", {8}, 2));
  CHECK(!SmemLayout::parse("smem[2,4,8,]", {8}, 2));
  CHECK(!SmemLayout::parse("smem[1,4,8]", {8}, 2));
}

TEST_CASE("accesses to any shared layout move every element, and wavefronts are counted exactly") {
  Random rng(6);
  int matrices = 0, wide = 0, conflicts = 0;
  for (int round = 0; round < 1500; round++) {
    auto shape = any_shape(rng);
    int warp_bits = int(rng.below(3));
    RegLayout store = any_layout(rng, shape, warp_bits), load = any_layout(rng, shape, warp_bits);
    int64_t elem = int64_t(1) << rng.below(4);
    std::vector<int> order(shape.size());
    std::iota(order.begin(), order.end(), 0);
    rng.shuffle(order);
    SmemLayout smem = plain_smem(shape, elem, order);
    if (rng.chance(50)) // a swizzle of any kind
      for (uint32_t &v : smem.bases)
        if (uint32_t low = v / 2; v > elem && low >= elem) v ^= uint32_t(rng.below(v)) & ~uint32_t(elem - 1);
    REQUIRE(smem.is_valid());
    LayoutFeatures features;
    features.ldmatrix = rng.chance(80), features.stmatrix = rng.chance(80);
    CAPTURE(fmt::format("elem {} {}\n{}\n{}", elem, smem.to_string(), store.to_string(), load.to_string()));
    SmemSide out = plan_smem_store(store, smem, features), in = plan_smem_load(load, smem, features);
    CHECK(out.reach <= smem.bytes);
    CHECK(in.reach <= smem.bytes);
    Registers from = load_tile(store), to(load.num_regs(), load.num_warps());
    Shared memory(smem.bytes);
    run_stores(out, 0, from, memory, int(elem));
    run_loads(in, 0, to, memory, int(elem));
    run_copies(in, to);
    CHECK(memory.fault == "");
    CHECK(compare_tile(load, to, false) == "");
    CHECK(count_wavefronts(out, 0) == out.wavefronts);
    CHECK(count_wavefronts(in, load.num_warps() - 1) == in.wavefronts);
    CHECK(out.ideal <= out.wavefronts);
    matrices += (out.inst != SmemInst::Vector) + (in.inst != SmemInst::Vector);
    wide += (out.width == 16) + (in.width == 16);
    conflicts += out.ideal < out.wavefronts;
  }
  CHECK(matrices > 30);
  CHECK(wide > 30);
  CHECK(conflicts > 100);
}

TEST_CASE("a chosen swizzle makes the usual tiles free of conflicts") {
  const MmaShape &mma = *find_mma_shape("m16n8k16", DType::BF16);
  std::vector<int> rows = {1, 0};
  for (int64_t columns : {16, 32, 64, 128, 256})
    for (SmemForm form : {SmemForm::Tma, SmemForm::Swizzle}) {
      std::vector<int64_t> shape = {64, columns};
      CAPTURE(columns);
      CAPTURE(int(form));
      std::vector<SmemUse> uses = {{true, blocked(shape, rows, 8, 4)},
                                   {false, mma_operand_layout(mma, Role::A, shape, {4, 1, 1}, false)},
                                   {false, mma_operand_layout(mma, Role::B, shape, {4, 1, 1}, false)}};
      SmemChoice c = choose_smem(shape, 2, uses, form, {});
      CHECK(c.layout.is_valid());
      CHECK(c.wavefronts == c.ideal);
      if (form == SmemForm::Tma) CHECK(tma_mode(c.layout).has_value());
      if (form == SmemForm::Swizzle)
        for (size_t b = 0; b < 3; b++) CHECK(c.layout.bases[b] == 2u << b);
      CHECK(c.layout.bytes == 64 * columns * 2);
      SmemSide a = plan_smem_load(uses[1].layout, c.layout, {}), b = plan_smem_load(uses[2].layout, c.layout, {});
      CHECK(a.inst == SmemInst::Matrix);
      CHECK(b.inst == SmemInst::MatrixTrans);
      CHECK(a.matrices == 4);
      CHECK(b.matrices == 4);
    }
  // K = 96 of 128 columns, row-major: the dead quarter is never read, and rows keep their pitch.
  std::vector<SmemUse> uses = {{false, mma_operand_layout(mma, Role::A, {64, 96}, {4, 1, 1}, false)}};
  SmemChoice c = choose_smem({64, 96}, 2, uses, SmemForm::Swizzle, {});
  CHECK(plan_smem_load(uses[0].layout, c.layout, {}).accesses.size() == 6);
}

TEST_CASE("every conversion puts every element where it belongs") {
  Random rng(7);
  std::map<ConvertKind, int> kinds;
  std::map<std::string, int> seen;
  for (int round = 0; round < 4000; round++) {
    auto shape = any_shape(rng);
    int warp_bits = int(rng.below(3));
    RegLayout src = any_layout(rng, shape, warp_bits), dst = any_layout(rng, shape, warp_bits);
    if (rng.chance(40)) { // stay in the warp: the same vectors, dealt out anew
      dst = src;
      std::vector<uint32_t> inner = dst.lane.to_vector();
      inner.insert(inner.end(), dst.reg.begin(), dst.reg.end());
      rng.shuffle(inner);
      for (int mixes = int(rng.below(4)); mixes > 0; mixes--) {
        size_t to = size_t(rng.below(int64_t(inner.size()))), with = size_t(rng.below(int64_t(inner.size())));
        if (to != with) inner[to] ^= inner[with];
      }
      dst.lane.assign(inner.begin(), inner.begin() + 5);
      dst.reg.assign(inner.begin() + 5, inner.end());
      if (rng.chance(30) && !dst.warp.empty()) dst.warp[0] ^= inner[size_t(rng.below(int64_t(inner.size())))];
    }
    int64_t bits = element_bits[rng.below(4)];
    LayoutFeatures features;
    features.ldmatrix = rng.chance(80), features.stmatrix = rng.chance(70), features.movmatrix = rng.chance(80);
    if (rng.chance(30)) features.scratch_bytes = 256 << rng.below(6);
    CAPTURE(fmt::format("{} bits\n{}\n{}", bits, src.to_string(), dst.to_string()));
    CAPTURE(fmt::format("{}", fmt::join(shape, "x")));
    REQUIRE(src.is_valid());
    REQUIRE(dst.is_valid());
    ConversionPlan plan = plan_conversion(src, dst, bits, features);
    kinds[plan.kind]++;
    // padding_kept is exact: it says whether live registers of the source hold all that live registers of dst want.
    std::set<uint32_t> held;
    for (int r : src.live_regs())
      for (int w = 0; w < src.num_warps(); w++)
        for (int lane = 0; lane < 32; lane++) held.insert(src.linear(r, lane, w));
    bool all_held = true;
    for (int r : dst.live_regs())
      for (int w = 0; w < dst.num_warps(); w++)
        for (int lane = 0; lane < 32; lane++) all_held &= held.count(dst.linear(r, lane, w)) > 0;
    CHECK(plan.padding_kept == all_held);
    seen["padding lost"] += !all_held;
    Registers from = load_tile(src), got(dst.num_regs(), dst.num_warps());
    auto check = [&](Registers &result) { CHECK(compare_tile(dst, result, plan.padding_kept) == ""); };
    if (plan.kind <= ConvertKind::Registers) {
      for (size_t r = 0; r < plan.registers.size(); r++)
        for (int w = 0; w < from.warps && plan.registers[r] >= 0; w++)
          for (int lane = 0; lane < 32; lane++) got.at(w, lane, int64_t(r)) = from.at(w, lane, plan.registers[r]);
      check(got);
    }
    // Every kind that applies is run, not only the cheapest.
    if (auto mov = plan_movmatrix(src, dst)) {
      seen["movmatrix"]++;
      got = run_movmatrix(*mov, from, dst.num_regs());
      check(got);
    }
    auto shuffle = plan_shuffle(src, dst, bits);
    CHECK(shuffle.has_value() == stays_in_warp(src, dst));
    if (shuffle) {
      seen["shuffle"]++;
      seen["idx"] += !shuffle->is_butterfly;
      seen["extra rounds"] += shuffle->receive_size > dst.num_regs();
      seen["packed"] += !shuffle->rounds.empty() && shuffle->rounds[0].from.size() > 1;
      got = run_shuffle(*shuffle, from, dst.num_regs());
      check(got);
    }
    std::string fault;
    SharedPlan shared = plan_shared(src, dst, bits, features);
    got = run_shared(shared, from, dst.num_regs(), fault);
    CHECK(fault == "");
    check(got);
    CHECK(count_wavefronts(shared.store, 0) == shared.store.wavefronts);
    CHECK(count_wavefronts(shared.load, 0) == shared.load.wavefronts);
    if (shared.warp_sync) CHECK(stays_in_warp(src, dst));
    seen["warp sync"] += shared.warp_sync;
    seen["pieces"] += shared.pieces > 1;
    seen["ldmatrix"] += shared.load.inst == SmemInst::Matrix;
    seen["ldmatrix.trans"] += shared.load.inst == SmemInst::MatrixTrans;
    seen["stmatrix"] += shared.store.inst == SmemInst::Matrix;
    seen["stmatrix.trans"] += shared.store.inst == SmemInst::MatrixTrans;
    seen["conflicts"] += shared.store.wavefronts + shared.load.wavefronts > shared.store.ideal + shared.load.ideal;
    seen["shared"]++;
  }
  // Every path was taken.
  for (ConvertKind k : {ConvertKind::Identity, ConvertKind::Registers, ConvertKind::MovMatrix, ConvertKind::Shuffle,
                        ConvertKind::Shared})
    CHECK_MESSAGE(kinds[k] > 0, convert_kind_name(k));
  for (const char *what : {"movmatrix", "shuffle", "idx", "extra rounds", "packed", "warp sync", "pieces", "ldmatrix",
                           "ldmatrix.trans", "stmatrix", "stmatrix.trans", "shared", "padding lost"})
    CHECK_MESSAGE(seen[what] > 10, what);
}

TEST_CASE("scratch of unmixed layouts is free of bank conflicts, and plans depend on their arguments only") {
  Random rng(9);
  ConversionPlanner planner({});
  for (int round = 0; round < 1500; round++) {
    auto shape = any_shape(rng);
    int warp_bits = int(rng.below(3));
    RegLayout src = random_layout(rng, shape, warp_bits, false), dst = random_layout(rng, shape, warp_bits, false);
    if (rng.chance(50)) {
      auto natural = natural_layouts(rng, shape, int64_t(1) << warp_bits);
      src = natural[size_t(rng.below(int64_t(natural.size())))];
      dst = natural[size_t(rng.below(int64_t(natural.size())))];
    }
    int64_t bits = element_bits[rng.below(4)];
    CAPTURE(fmt::format("{} bits\n{}\n{}", bits, src.to_string(), dst.to_string()));
    SharedPlan shared = plan_shared(src, dst, bits, {});
    CHECK(shared.store.wavefronts == shared.store.ideal);
    CHECK(shared.load.wavefronts == shared.load.ideal);
    CHECK(shared == plan_shared(src, dst, bits, {}));
    const ConversionPlan &plan = planner.plan(src, dst, bits);
    CHECK(plan == plan_conversion(src, dst, bits, {}));
    CHECK(&plan == &planner.plan(src, dst, bits));
  }
}

TEST_CASE("the usual conversions become the instructions that one would write") {
  const MmaShape &mma = *find_mma_shape("m16n8k16", DType::BF16);
  std::vector<int> rows = {1, 0}, columns = {0, 1};
  auto operand = [&](Role role, std::vector<int64_t> shape, WarpTiling t, bool transposed = false) {
    return mma_operand_layout(mma, role, std::move(shape), t, transposed);
  };
  auto text = [](const RegLayout &src, const RegLayout &dst, int64_t bits, LayoutFeatures features = {}) {
    std::string t = plan_conversion(src, dst, bits, features).to_string();
    return t.substr(0, t.rfind(','));
  };
  WarpTiling four{4, 1, 1}, one{1, 1, 1}, square{2, 2, 1};
  CHECK(text(operand(Role::C, {64, 64}, four), operand(Role::A, {64, 64}, four), 16) == "identity");
  // A transposed result stays where it is: B of a product computed plainly is C of one computed transposed.
  CHECK(text(operand(Role::C, {16, 16}, one), operand(Role::C, {16, 16}, one, true), 16) == "movmatrix: 4 x movmatrix");
  CHECK(text(operand(Role::C, {64, 64}, one), operand(Role::B, {64, 64}, one), 16) ==
        "shared: 16 x stmatrix.x4, bar.warp.sync, 16 x ldmatrix.x4.trans, 8192 B");
  CHECK(text(blocked({64, 64}, rows, 8, 4), operand(Role::B, {64, 64}, four), 16, {true, false, true}) ==
        "shared: 4 x st.shared.b32.v4, bar.sync, 16 x ldmatrix.x4.trans, 8192 B");
  CHECK(text(operand(Role::C, {128, 128}, square), blocked({128, 128}, rows, 4, 4), 32) ==
        "shared: 32 x st.shared.b32.v4, bar.sync, 32 x ld.shared.b32.v4, 65536 B");
  LayoutFeatures small;
  small.scratch_bytes = 20000;
  CHECK(text(operand(Role::C, {128, 128}, square), blocked({128, 128}, rows, 4, 4), 32, small) ==
        "shared: 32 x st.shared.b32.v4, bar.sync, 32 x ld.shared.b32.v4, 16384 B in 4 pieces");
  // One exchange of half the registers swaps a register bit with a lane bit.
  RegLayout a = *RegLayout::parse("reg[1] lane[2,4,8,16,32] warp[]", {64});
  RegLayout b = *RegLayout::parse("reg[2] lane[1,4,8,16,32] warp[]", {64});
  CHECK(text(a, b, 32) == "shuffle: 1 x shfl, 4 x selp");
  // A value that every lane needs is read from its owner; one that lanes already hold is selected.
  RegLayout pair = *RegLayout::parse("reg[] lane[1,2,0,0,0] warp[0]", {4});
  CHECK(text(pair, replicated({4}, 2), 32) == "shuffle: 4 x shfl, 0 x selp");
  RegLayout spread = *RegLayout::parse("reg[] lane[1,2,4,8,16] warp[0]", {32});
  CHECK(text(spread, replicated({32}, 2), 32) ==
        "shared: 1 x st.shared.b32, bar.warp.sync, 8 x ld.shared.b32.v4, 256 B");
  CHECK(text(replicated({4}, 2), *RegLayout::parse("reg[] lane[1,2,0,0,0] warp[0]", {4}), 32) ==
        "shuffle: 0 x shfl, 3 x selp");
}

TEST_CASE("global accesses touch every element once, in vectors that stay inside the tile") {
  Random rng(8);
  int vectors = 0;
  for (int round = 0; round < 1500; round++) {
    auto shape = any_shape(rng);
    int warp_bits = int(rng.below(3));
    RegLayout l = any_layout(rng, shape, warp_bits);
    int64_t elem = int64_t(1) << rng.below(4), max_bytes = rng.chance(30) ? 32 : 16;
    int64_t divisor = int64_t(1) << rng.below(6);
    int contiguous = int(rng.below(int64_t(shape.size()) + 1)) - 1;
    bool is_store = rng.chance(50);
    CAPTURE(fmt::format("{} x {} bytes, dim {} divisor {}", fmt::join(shape, "x"), elem, contiguous, divisor));
    CAPTURE(l.to_string());
    GlobalAccesses g = plan_global(l, is_store, contiguous, elem, divisor, max_bytes);
    CHECK(g.elems * elem <= std::max(max_bytes, elem));
    CHECK((contiguous >= 0 || g.elems == 1));
    CHECK(divisor % g.elems == 0);
    vectors += g.elems > 1;
    std::map<uint32_t, int> stored;
    Registers got(l.num_regs(), l.num_warps());
    for (int w = 0; w < l.num_warps(); w++)
      for (int lane = 0; lane < 32; lane++) {
        if (lane & int(g.lane_mask) || w & int(g.warp_mask)) continue;
        auto thread = l.coord(0, lane, w);
        for (const GlobalAccess &a : g.accesses) {
          CHECK_EACH(int64_t(a.regs.size()) == g.elems);
          std::vector<int64_t> first(shape.size());
          for (size_t d = 0; d < first.size(); d++) {
            first[d] = thread[d] ^ a.coord[d];
            if (g.is_additive) CHECK_EACH(first[d] == thread[d] + a.coord[d]);
          }
          if (contiguous >= 0) {
            CHECK_EACH(first[size_t(contiguous)] % g.elems == 0);
            // Wholly inside or wholly outside.
            int64_t n = shape[size_t(contiguous)], c = first[size_t(contiguous)];
            CHECK_EACH((c + g.elems <= n || c >= n));
          }
          for (int64_t i = 0; i < g.elems; i++) {
            auto at = first;
            if (contiguous >= 0) at[size_t(contiguous)] += i;
            uint32_t e = l.space().element(at);
            stored[e]++;
            if (int r = a.regs[size_t(i)]; r >= 0) {
              CHECK_EACH(l.linear(r, lane, w) == e);
              got.at(w, lane, r) = e;
            } else {
              CHECK_EACH(!l.space().inside(e));
            }
          }
        }
      }
    if (is_store) {
      for (uint32_t e = 0; e < 1u << l.space().bits; e++)
        if (l.space().inside(e)) CHECK_EACH(stored[e] == 1);
    } else {
      for (auto [r, from] : g.copies)
        for (int w = 0; w < l.num_warps(); w++)
          for (int lane = 0; lane < 32; lane++) got.at(w, lane, r) = got.at(w, lane, from);
      CHECK(compare_tile(l, got, true) == "");
    }
  }
  CHECK(vectors > 100);
  std::vector<int> rows = {1, 0};
  GlobalAccesses g = plan_global(blocked({64, 128}, rows, 8, 4), false, 1, 2, 8, 16);
  CHECK(g.elems == 8);
  CHECK(g.accesses.size() == 8);
  CHECK(g.bytes == 512);
  CHECK(g.sectors == 16);
  CHECK(plan_global(blocked({64, 100}, rows, 8, 4), false, 1, 2, 100, 16).elems == 4);
  CHECK(plan_global(blocked({64, 128}, rows, 8, 4), false, 1, 2, 1, 16).elems == 1);
  g = plan_global(blocked({64, 128}, rows, 1, 4), false, 0, 4, 8, 16); // a column per lane: a sector each
  CHECK(g.sectors == 32);
}
