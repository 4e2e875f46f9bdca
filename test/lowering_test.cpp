// Lowerings of memory, products, reductions, scans, atomics and conversions.
#include "lowering_kit.h"
#include <algorithm>

using namespace tkc;
using namespace tkc::test;
using LRandom = LayoutRandom;

namespace {
constexpr DType kMoved[] = {DType::Bool, DType::I8,  DType::BF16, DType::F16,
                            DType::F32,  DType::I32, DType::F64,  DType::E4M3};
} // namespace

TEST_CASE("load and store of random layouts, at random places") {
  for (uint64_t seed = 0; seed < 150; seed++) {
    CAPTURE(seed);
    LRandom rng(seed);
    Random numbers(seed);
    Ints shape = random_shape(rng, 9);
    int warp_bits = int(rng.below(3));
    RegLayout l = random_layout(rng, shape, warp_bits, rng.chance(30));
    CAPTURE(l.to_string());
    DType t = kMoved[rng.below(std::size(kMoved))];
    Ints extents, starts;
    for (int64_t n : shape) {
      extents.push_back(std::max<int64_t>(1, n + rng.below(8) - 4));
      starts.push_back(rng.chance(40) ? 0 : rng.below(7) - 3);
    }
    Bench k(int64_t(1) << warp_bits);
    k.aligned = rng.chance(50);
    Tensors how;
    how.is_static = rng.chance(50);
    how.read_only = rng.chance(50);
    ir::Value *x = k.padded_tensor(numbers, t, extents, how);
    how.read_only = false;
    ir::Value *y = k.padded_tensor(numbers, t, extents, how);
    std::vector<ir::Value *> extra;
    ir::Attrs a;
    if (!shape.empty() && rng.chance(50)) {
      ir::Value *m = k.padded_tensor(numbers, DType::Bool, shape);
      ir::Value *mask = k.load(m, Ints(shape.size(), 0), shape, l);
      a.set("has_mask", int64_t(1));
      extra.push_back(mask);
      if (rng.chance(50)) {
        ir::Value *o = k.padded_tensor(numbers, t, shape);
        a.set("has_other", int64_t(1));
        extra.push_back(k.load(o, Ints(shape.size(), 0), shape, l));
      }
    }
    ir::Value *v = k.load(x, starts, shape, l, a, extra);
    ir::Attrs stored;
    std::vector<ir::Value *> mask;
    if (!extra.empty() && rng.chance(50)) {
      stored.set("has_mask", int64_t(1));
      mask = {extra[0]};
    }
    k.store(y, starts, v, stored, mask);
    k.check();
    if (seed % 30 == 0) k.assemble_for_all();
  }
}

TEST_CASE("conversions between random layouts") {
  for (uint64_t seed = 0; seed < 200; seed++) {
    CAPTURE(seed);
    LRandom rng(seed);
    Random numbers(seed);
    Ints shape = random_shape(rng, 10);
    int warp_bits = int(rng.below(3));
    bool mixed = rng.chance(25);
    RegLayout src = random_layout(rng, shape, warp_bits, mixed);
    RegLayout dst = random_layout(rng, shape, warp_bits, mixed);
    CAPTURE(src.to_string());
    CAPTURE(dst.to_string());
    DType t = kMoved[rng.below(std::size(kMoved))];
    Bench k(int64_t(1) << warp_bits);
    ir::Value *x = k.tensor_of(random_tile(numbers, t, shape)), *y = k.out(t, shape);
    Ints zeros(shape.size(), 0);
    if (shape.empty()) continue;
    k.store(y, zeros, k.convert(k.poisoned(x, shape, src), dst));
    k.check();
    if (seed % 30 == 0) k.assemble_for_all();
  }
}

TEST_CASE("a conversion larger than its scratch goes in pieces") {
  Random numbers(1);
  Bench k(8);
  Ints shape = {64, 512};
  RegLayout src = blocked(shape, std::array{1, 0}, 4, 8), dst = blocked(shape, std::array{0, 1}, 1, 8);
  ir::Value *x = k.load(k.tensor_of(random_tile(numbers, DType::F32, shape)), {0, 0}, shape, src);
  SharedPlan plan = plan_shared(src, dst, 32, ir::layout_features(*ir::find_target(k.target)));
  CHECK(plan.pieces > 1);
  k.store(k.out(DType::F32, shape), {0, 0}, k.through_shared(x, dst, plan));
  k.check();
}

TEST_CASE("reductions of random layouts") {
  constexpr OpKind kinds[] = {OpKind::ReduceSum, OpKind::ReduceProd, OpKind::ReduceMax, OpKind::ReduceMin,
                              OpKind::ReduceAny, OpKind::ReduceAll,  OpKind::ArgMax,    OpKind::ArgMin};
  constexpr DType types[] = {DType::F32, DType::BF16, DType::F16, DType::I32,
                             DType::I8,  DType::U32,  DType::F64, DType::I64};
  int tested = 0;
  for (uint64_t seed = 0; tested < 150; seed++) {
    CAPTURE(seed);
    LRandom rng(seed);
    Random numbers(seed);
    Ints shape = random_shape(rng, 9);
    if (shape.empty()) continue;
    int warp_bits = int(rng.below(3));
    RegLayout l = random_layout(rng, shape, warp_bits, rng.chance(20));
    int axis = int(rng.below(int64_t(shape.size())));
    if (!l.is_separable(axis)) continue;
    tested++;
    CAPTURE(l.to_string());
    OpKind kind = kinds[rng.below(std::size(kinds))];
    bool logic = kind == OpKind::ReduceAny || kind == OpKind::ReduceAll;
    DType t = logic ? DType::Bool : types[rng.below(std::size(types))];
    Bench k(int64_t(1) << warp_bits);
    interp::Tile init = random_tile(numbers, t, shape, kind == OpKind::ReduceProd ? 1.2 : 4);
    if (rng.chance(50))
      for (double &v : init.f)
        if (rng.chance(20)) v = kind == OpKind::ReduceSum || kind == OpKind::ReduceProd ? 0 : NAN;
    if (kind == OpKind::ArgMax || kind == OpKind::ArgMin) {
      for (double &v : init.f) v = std::round(v);
      for (int64_t &v : init.i) v = wrap_to(t, v % 5);
    }
    if (logic)
      for (int64_t &v : init.i) v = kind == OpKind::ReduceAny ? rng.chance(3) : !rng.chance(3);
    ir::Value *x = k.poisoned(k.tensor_of(std::move(init)), shape, l);
    ir::Op *op = k.create(kind, {x}, attrs({{"axis", int64_t(axis)}}));
    ir::Value *v = op->result();
    if (!v->type.is_scalar()) k.laid(v, l.slice(axis));
    k.with_scratch(op, ops::reduce_scratch(*op));
    k.store(k.out(v->type.dtype, v->type.shape), Ints(size_t(v->type.rank()), 0), v);
    bool exact = kind != OpKind::ReduceSum && kind != OpKind::ReduceProd;
    k.tolerance = exact || !is_float(t) ? 0 : t == DType::F32 ? 1e-5 : t == DType::F64 ? 1e-14 : 8e-3;
    k.check();
    if (tested % 30 == 1) k.assemble_for_all();
  }
}

TEST_CASE("scans of random layouts") {
  constexpr OpKind kinds[] = {OpKind::CumSum, OpKind::CumProd, OpKind::CumMax, OpKind::CumMin};
  constexpr DType types[] = {DType::F32, DType::BF16, DType::I32, DType::I8, DType::F64};
  for (uint64_t seed = 0; seed < 150; seed++) {
    CAPTURE(seed);
    LRandom rng(seed);
    Random numbers(seed);
    Ints shape = random_shape(rng, 9);
    if (shape.empty()) continue;
    int warp_bits = int(rng.below(4));
    RegLayout l = random_layout(rng, shape, warp_bits, false);
    int axis = int(rng.below(int64_t(shape.size())));
    CAPTURE(l.to_string());
    if (!ops::scan_bits(l, axis)) continue;
    OpKind kind = kinds[rng.below(std::size(kinds))];
    DType t = types[rng.below(std::size(types))];
    Bench k(int64_t(1) << warp_bits);
    interp::Tile init = random_tile(numbers, t, shape, kind == OpKind::CumProd ? 1.2 : 4);
    ir::Value *x = k.poisoned(k.tensor_of(std::move(init)), shape, l);
    ir::Op *op =
        k.create(kind, {x}, attrs({{"axis", int64_t(axis)}, {"reverse", rng.below(2)}, {"exclusive", rng.below(2)}}));
    k.laid(op->result(), l);
    k.with_scratch(op, ops::scan_scratch(*op));
    k.store(k.out(t, shape), Ints(shape.size(), 0), op->result());
    bool exact = kind == OpKind::CumMax || kind == OpKind::CumMin || !is_float(t);
    k.tolerance = exact ? 0 : t == DType::F32 ? 1e-5 : t == DType::F64 ? 1e-14 : 8e-3;
    k.check();
    if (seed % 30 == 0) k.assemble_for_all();
  }
}

namespace {
struct MmaCase {
  const char *shape;
  DType a, b, acc;
  const char *precision = "tf32";
};
constexpr MmaCase kMma[] = {
    {"m16n8k16", DType::BF16, DType::BF16, DType::F32}, {"m16n8k16", DType::F16, DType::F16, DType::F32},
    {"m16n8k16", DType::F16, DType::F16, DType::F16},   {"m16n8k8", DType::BF16, DType::BF16, DType::F32},
    {"m16n8k8", DType::F32, DType::F32, DType::F32},    {"m16n8k8", DType::TF32, DType::TF32, DType::F32},
    {"m16n8k4", DType::TF32, DType::TF32, DType::F32},  {"m16n8k8", DType::F32, DType::F32, DType::F32, "tf32x3"},
    {"m8n8k4", DType::F64, DType::F64, DType::F64},     {"m16n8k4", DType::F64, DType::F64, DType::F64},
    {"m16n8k8", DType::F64, DType::F64, DType::F64},    {"m16n8k16", DType::F64, DType::F64, DType::F64},
    {"m16n8k32", DType::I8, DType::I8, DType::I32},     {"m16n8k16", DType::I8, DType::I8, DType::I32},
    {"m16n8k32", DType::E4M3, DType::E4M3, DType::F32}, {"m16n8k32", DType::E4M3, DType::E5M2, DType::F32},
    {"m16n8k32", DType::E5M2, DType::E4M3, DType::F32}};
} // namespace

TEST_CASE("products of every kind, plain and transposed, over warps, with ragged extents") {
  int64_t number = 0;
  for (const MmaCase &m : kMma)
    for (int round = 0; round < 8; round++) {
      LRandom rng{uint64_t(number)};
      Random numbers{uint64_t(number++)};
      bool transposed = round & 1;
      WarpTiling tiling{int64_t(1) << rng.below(2), int64_t(1) << rng.below(2), int64_t(1) << rng.below(2),
                        rng.chance(30)};
      if (rng.chance(50)) tiling.wide_n = rng.below(4), tiling.wide_k = rng.below(4);
      int64_t whole = m.acc == DType::F64 && tiling.warps() == 1 ? 32 : 64; // so that one warp has the registers
      int64_t M = round < 2 ? whole : 1 + rng.below(70), N = round < 2 ? 32 : 1 + rng.below(50),
              K = round < 2 ? whole : 1 + rng.below(80);
      CAPTURE(m.shape);
      CAPTURE(dtype_name(m.a));
      CAPTURE(m.precision);
      CAPTURE(transposed);
      CAPTURE(fmt::format("{} x {} x {}, warps {} {} {}", M, N, K, tiling.warps_m, tiling.warps_n, tiling.warps_k));
      const MmaShape *shape = find_mma_shape(m.shape, m.a == DType::F32 ? DType::TF32 : m.a);
      REQUIRE(shape);
      Bench k(tiling.warps());
      auto operand = [&](Role role, DType t, Ints s) {
        interp::Tile init = random_tile(numbers, t, s, 2);
        RegLayout l = mma_operand_layout(*shape, role, s, tiling, transposed);
        return k.poisoned(k.tensor_of(std::move(init)), s, l);
      };
      std::vector<ir::Value *> operands{operand(Role::A, m.a, {M, K}), operand(Role::B, m.b, {K, N})};
      if (rng.chance(60)) operands.push_back(operand(Role::C, m.acc, {M, N}));
      ir::Op *op = k.create(OpKind::Mma, operands, attrs({{"acc", m.acc}, {"precision", std::string(m.precision)}}));
      op->attrs.set("shape", std::string(m.shape));
      op->attrs.set("tiling", Ints{tiling.warps_m, tiling.warps_n, tiling.warps_k});
      op->attrs.set("transposed", int64_t(transposed));
      op->attrs.set("interleave", int64_t(tiling.interleave));
      op->attrs.set("wide", Ints{tiling.wide_n, tiling.wide_k});
      k.laid(op->result(), mma_operand_layout(*shape, Role::C, {M, N}, tiling, transposed));
      k.with_scratch(op, ops::mma_scratch(*op));
      k.store(k.out(m.acc, {M, N}), {0, 0}, op->result());
      k.tolerance = m.acc == DType::F64 ? 1e-13 : m.acc == DType::F16 ? 1e-2 : m.acc == DType::F32 ? 2e-6 : 0;
      k.check();
      if (round == 1 && dtype_bits(m.a) != 8) k.assemble_for_all(shape->min_sm);
    }
}

TEST_CASE("a product without tensor cores") {
  for (int round = 0; round < 6; round++) {
    LRandom rng{uint64_t(round)};
    Random numbers{uint64_t(round)};
    int64_t M = 1 + rng.below(40), N = 1 + rng.below(40), K = 1 + rng.below(20);
    Bench k(4);
    RegLayout c = blocked({M, N}, std::array{1, 0}, 2, 4);
    RegLayout a = fma_operand_layout(c, false, {M, K}), b = fma_operand_layout(c, true, {K, N});
    REQUIRE(a.is_valid());
    REQUIRE(b.is_valid());
    ir::Value *x = k.load(k.tensor_of(random_tile(numbers, DType::F32, {M, K})), {0, 0}, {M, K}, a);
    ir::Value *y = k.load(k.tensor_of(random_tile(numbers, DType::F32, {K, N})), {0, 0}, {K, N}, b);
    ir::Value *z = k.value(OpKind::Mma, {x, y}, attrs({{"precision", std::string("ieee")}}));
    k.laid(z, c);
    k.store(k.out(DType::F32, {M, N}), {0, 0}, z);
    k.tolerance = 1e-6;
    k.check();
    if (round == 0) k.assemble_for_all();
  }
}

TEST_CASE("gather and scatter") {
  for (uint64_t seed = 0; seed < 20; seed++) {
    CAPTURE(seed);
    LRandom rng(seed);
    Random numbers(seed);
    int64_t rows = 20, n = 1 + rng.below(40), cols = 1 + rng.below(40);
    RegLayout l = random_layout(rng, {n, cols}, 2, false);
    Bench k(4);
    interp::Tile index(DType::I32, {n});
    for (int64_t &v : index.i) v = numbers.below(26) - 3; // some outside
    ir::Value *which = k.load(k.tensor_of(index), {0}, {n}, l.slice(1));
    ir::Value *x = k.tensor_of(random_tile(numbers, DType::F32, {rows, cols}));
    ir::Value *v = k.laid(
        k.value(OpKind::Load, {x, which, k.i32(0)}, attrs({{"sizes", Ints{n, cols}}, {"gather", Ints{1, 0}}})), l);
    k.store(k.out(DType::F32, {n, cols}), {0, 0}, v);
    k.check();
    if (seed == 0) k.assemble_for_all();
  }
}

TEST_CASE("parts of tensors, dropped dims, other strides") {
  Random numbers(1);
  Bench k(2);
  ir::Value *x = k.tensor_of(random_tile(numbers, DType::F32, {5, 12, 40}), Tensors{.is_static = true});
  RegLayout l = blocked({8, 32}, std::array{1, 0}, 4, 2);
  // x[3, 2 : 9, 4 : 30]
  ir::Value *part = k.value(OpKind::Subview, {x, k.i32(3), k.i32(2), k.i32(9), k.i32(4), k.i32(30)},
                            attrs({{"ranges", Ints{2, 1, 1}}}));
  ir::Value *v = k.load(part, {0, 0}, {8, 32}, l);
  k.store(k.out(DType::F32, {8, 32}), {0, 0}, v);
  // x[2, 1 :+ 8, 8 :+ 32] by dropping a dim in the access
  ir::Value *w = k.load(x, {2, 1, 8}, {1, 8, 32}, l, attrs({{"drop", Ints{1, 0, 0}}}));
  k.store(k.out(DType::F32, {8, 32}), {0, 0}, w);
  // columns are far apart
  Tensors info;
  info.extents = {8, 32};
  info.strides = {1, 10};
  info.any_strides = true;
  ir::Value *s = k.load(k.tensor_of(random_tile(numbers, DType::F32, {340}), info), {0, 0}, {8, 32}, l);
  k.store(k.out(DType::F32, {8, 32}), {0, 0}, s);
  k.store(k.out(DType::I32, {}), {}, k.value(OpKind::Dim, {part}, attrs({{"axis", int64_t(1)}})));
  k.check();
  k.assemble_for_all();
}

TEST_CASE("atomics update every element once and give the old value") {
  constexpr OpKind kinds[] = {OpKind::AtomicAdd, OpKind::AtomicMax, OpKind::AtomicMin,  OpKind::AtomicAnd,
                              OpKind::AtomicOr,  OpKind::AtomicXor, OpKind::AtomicExch, OpKind::AtomicCas};
  constexpr DType types[] = {DType::F32, DType::F16, DType::BF16, DType::I32, DType::U32, DType::F64, DType::I64};
  int tested = 0;
  for (uint64_t seed = 0; tested < 120; seed++) {
    CAPTURE(seed);
    LRandom rng(seed);
    Random numbers(seed);
    OpKind kind = kinds[rng.below(std::size(kinds))];
    DType t = types[rng.below(std::size(types))];
    bool half = t == DType::F16 || t == DType::BF16,
         bits = kind != OpKind::AtomicAdd && kind != OpKind::AtomicMax && kind != OpKind::AtomicMin;
    if ((half && kind != OpKind::AtomicAdd) || (bits && is_float(t))) continue;
    tested++;
    Ints shape = random_shape(rng, 8);
    int warp_bits = int(rng.below(3));
    RegLayout l = random_layout(rng, shape, warp_bits, false);
    CAPTURE(l.to_string());
    CAPTURE(int(kind));
    CAPTURE(dtype_name(t));
    Bench k(int64_t(1) << warp_bits);
    interp::Tile start = random_tile(numbers, t, shape), add = random_tile(numbers, t, shape);
    k.aligned = shape.size() == 1; // several elements by one red
    ir::Value *x = k.tensor_of(start);
    Ints zeros(shape.size(), 0);
    ir::Value *v = k.load(k.tensor_of(add), zeros, shape, l);
    std::vector<ir::Value *> operands{x};
    for (size_t d = 0; d < shape.size(); d++) operands.push_back(k.i32(0));
    operands.push_back(v);
    if (kind == OpKind::AtomicCas) {
      interp::Tile expect = start;
      for (int64_t &e : expect.i) e = rng.chance(50) ? e : 7;
      operands.push_back(k.load(k.tensor_of(expect), zeros, shape, l));
    }
    ir::Attrs a;
    a.set("sizes", shape);
    if (rng.chance(40)) {
      a.set("has_mask", int64_t(1));
      operands.push_back(k.load(k.tensor_of(random_tile(numbers, DType::Bool, shape)), zeros, shape, l));
    }
    ir::Op *op = k.create(kind, operands, a);
    if (!shape.empty()) k.laid(op->result(), l);
    if (rng.chance(50)) {
      k.store(k.out(t, shape), zeros, op->result());
      k.with_scratch(op, ops::atomic_scratch(*op)); // none for a result that nobody uses
    }
    k.check();
    if (tested % 30 == 1) k.assemble_for_all();
  }
}

TEST_CASE("instructions: wide accesses and matrix loads") {
  Random numbers(1);
  Bench k(4);
  k.aligned = true;
  k.target = "sm_80"; // without stmatrix
  RegLayout l = blocked({64, 64}, std::array{1, 0}, 8, 4);
  ir::Value *x = k.tensor_of(random_tile(numbers, DType::BF16, {64, 64}), Tensors{.read_only = true});
  ir::Value *v = k.load(x, {0, 0}, {64, 64}, l, attrs({{"in_bounds", Ints{1, 1}}}));
  const MmaShape *shape = find_mma_shape("m16n8k16", DType::BF16);
  RegLayout a = mma_operand_layout(*shape, Role::A, {64, 64}, {4, 1, 1}, false);
  ir::Value *y = k.tensor_of(interp::Tile(DType::BF16, {64, 64}));
  k.store(y, {0, 0}, k.convert(v, a), attrs({{"in_bounds", Ints{1, 1}}}));
  k.check();
  CHECK(count(k.ptx, "ld.global.nc.v4.b32") == 4);
  CHECK(count(k.ptx, "st.shared.v4.b32") == 4);
  CHECK(count(k.ptx, "ldmatrix.sync.aligned.m8n8.x4.shared.b16") == 4);
  CHECK(count(k.ptx, "bar.sync") == 1);
  CHECK(count(k.ptx, "setp") == 0);
}

TEST_CASE("instructions: what a mask costs") {
  Random numbers(1);
  const RegLayout blocks = blocked({64, 64}, std::array{1, 0}, 8, 4);
  auto lines = [&](Ints extents, bool is_static, bool aligned, ir::Attrs facts, const RegLayout &l) {
    Bench k(4);
    k.aligned = aligned;
    ir::Value *x = k.padded_tensor(numbers, DType::BF16, extents, Tensors{.read_only = true, .is_static = is_static});
    ir::Value *v = k.load(x, {0, 0}, {64, 64}, l, facts);
    k.store(k.padded_tensor(numbers, DType::BF16, extents, Tensors{.is_static = is_static}), {0, 0}, v, facts);
    k.check();
    return k.ptx;
  };
  // Rows may be missing, and every vector of a thread may lie in one: at most one predicate each, shared by the load
  // and the store. Rows 4 t and 4 t + 1 exist for the same threads t, and so do 4 t + 2 and 4 t + 3.
  RegLayout interleaved{{64, 64}, {1, 2, 4, 64, 128}, {8, 16, 32, 256, 512}, {1024, 2048}};
  std::string rows = lines({50, 64}, true, true, attrs({{"in_bounds", Ints{0, 1}}}), interleaved);
  CHECK(count(rows, " ld.global.nc.v4.b32") == 4);
  CHECK(count(rows, " st.global.v4.b32") == 4);
  CHECK(count(rows, "setp") == 2);
  CHECK(count(rows, "mov.pred") == 0);
  // Here a vector of all threads is 16 rows, and only the last may lie in a missing one.
  rows = lines({50, 64}, true, true, attrs({{"in_bounds", Ints{0, 1}}}), blocks);
  CHECK(count(rows, " ld.global.nc.v4.b32") == 4);
  CHECK(count(rows, " st.global.v4.b32") == 4);
  REQUIRE(count(rows, "setp") == 1);
  size_t at = rows.find("%p", rows.find("setp"));
  std::string predicate = "@" + rows.substr(at, rows.find(',', at) - at);
  CHECK(count(rows, predicate + " ld.global.nc.v4.b32") == 1);
  CHECK(count(rows, predicate + " st.global.v4.b32") == 1);
  // A static extent that the vector divides needs no narrower access either.
  CHECK(count(lines({50, 56}, true, true, {}, blocks), " ld.global.nc.v4.b32") == 4);
  // 50 columns end inside a vector of eight; of two they do not.
  CHECK(count(lines({50, 50}, true, true, {}, blocks), " ld.global.nc.b32") == 16);
  // The aligned entry may assume that a run-time innermost extent is made of whole vectors; the other may not.
  CHECK(count(lines({50, 56}, false, true, {}, blocks), " ld.global.nc.v4.b32") == 4);
  CHECK(count(lines({50, 56}, false, false, {}, blocks), " ld.global.nc.b16") == 32);
  CHECK(count(lines({50, 50}, false, false, {}, blocks), " ld.global.nc.b16") == 32);
  // Nothing is known of the addresses.
  CHECK(count(lines({64, 64}, true, false, attrs({{"in_bounds", Ints{1, 1}}}), blocks), "ld.global.nc.b16") == 32);
}

TEST_CASE("instructions: reductions") {
  Random numbers(1);
  auto lines = [&](DType t, OpKind kind, Ints shape, RegLayout l, int64_t axis) {
    Bench k(l.num_warps());
    ir::Value *x = k.load(k.tensor_of(random_tile(numbers, t, shape)), Ints(shape.size(), 0), shape, l);
    ir::Op *op = k.create(kind, {x}, attrs({{"axis", axis}}));
    if (!op->result()->type.is_scalar()) k.laid(op->result(), l.slice(int(axis)));
    k.with_scratch(op, ops::reduce_scratch(*op));
    k.store(k.out(op->result()->type.dtype, op->result()->type.shape), Ints(shape.size() - 1, 0), op->result());
    k.tolerance = 1e-5;
    k.check();
    return k.ptx;
  };
  // A row in a warp: five shuffles, no shared memory.
  std::string row = lines(DType::F32, OpKind::ReduceSum, {4, 128}, blocked({4, 128}, std::array{1, 0}, 4, 4), 1);
  CHECK(count(row, "shfl.sync.bfly") == 5);
  CHECK(count(row, "bar.sync") == 0);
  // A row over all warps: one exchange.
  std::string wide = lines(DType::F32, OpKind::ReduceMax, {512}, blocked({512}, std::array{0}, 4, 4), 0);
  CHECK(count(wide, "shfl.sync.bfly") == 5);
  CHECK(count(wide, "bar.sync") == 1);
  CHECK(count(wide, "st.shared") == 1);
  CHECK(count(lines(DType::I32, OpKind::ReduceMax, {128}, blocked({128}, std::array{0}, 4, 1), 0), "redux.sync") == 1);
  CHECK(count(lines(DType::Bool, OpKind::ReduceAny, {8, 16}, blocked({8, 16}, std::array{1, 0}, 4, 1), 1),
              "vote.sync.ballot") == 1);
}
