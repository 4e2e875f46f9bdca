// The interpreter: memory, the grid, control flow, faults.
#include "ir_kit.h"
#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

using namespace tkc;
using namespace tkc::test;
using interp::Tile;
using K = OpKind;

static constexpr double kInf = std::numeric_limits<double>::infinity();

// ---- memory

TEST_CASE("loads give zero outside, stores skip, negative positions are outside") {
  Kit k(ir::FunctionKind::Kernel);
  auto x = k.tensor(counting(DType::F32, {3, 4}, 1));
  auto y = k.tensor(floats(DType::F32, {3, 4}, std::vector<double>(12, -1)));
  ir::Value *t = k.value(K::Load, {x.value, k.i32(-1), k.i32(2)}, attrs({{"sizes", Ints{3, 4}}}));
  CHECK(t->type == ir::Type::tile(DType::F32, {3, 4}));
  k.create(K::Store, {y.value, k.i32(1), k.i32(-1), t}, attrs({{"sizes", Ints{3, 4}}}));
  k.end(K::Return, {});
  REQUIRE(!k.run().trap);
  // t is [[0 0 0 0] [3 4 0 0] [7 8 0 0]]; its columns 1.. land in columns 0.. of rows 1 and 2.
  CHECK(y.storage->f == std::vector<double>{-1, -1, -1, -1, 0, 0, 0, -1, 4, 0, 0, -1});
}

TEST_CASE("masks, other, dropped dims and gathers") {
  Kit k(ir::FunctionKind::Kernel);
  auto x = k.tensor(counting(DType::I32, {4, 5}));
  auto y = k.tensor(ints(DType::I32, {4, 3}, Ints(12, -1)));
  auto z = k.tensor(ints(DType::I32, {2}, {0, 0}));
  ir::Value *rows = k.tile(ints(DType::I32, {4}, {3, 0, 9, -2})),
            *mask = k.tile(ints(DType::Bool, {4, 3}, {1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 0, 1}));
  ir::Value *other = k.tile(counting(DType::I32, {4, 3}, 100));
  ir::Value *t = k.value(
      K::Load, {x.value, rows, k.i32(3), mask, other},
      attrs({{"sizes", Ints{4, 3}}, {"gather", Ints{1, 0}}, {"has_mask", int64_t(1)}, {"has_other", int64_t(1)}}));
  k.create(K::Store, {y.value, k.i32(0), k.i32(0), t}, attrs({{"sizes", Ints{4, 3}}}));
  ir::Value *one =
      k.value(K::Load, {x.value, k.i32(2), k.i32(4)}, attrs({{"sizes", Ints{1, 1}}, {"drop", Ints{1, 1}}}));
  CHECK(one->type.is_scalar());
  k.create(K::Store, {z.value, k.i32(1), one}, attrs({{"sizes", Ints{1}}, {"drop", Ints{1}}}));
  k.end(K::Return, {});
  REQUIRE(!k.run().trap);
  CHECK(y.storage->i == Ints{18, 19, 102, 3, 4, 105, 106, 107, 108, 109, 110, 111});
  CHECK(z.storage->i == Ints{0, 14});
}

TEST_CASE("masked and scattered stores; columns by stride") {
  Kit k(ir::FunctionKind::Kernel);
  auto y = k.tensor(floats(DType::BF16, {12}, std::vector<double>(12, 0)), {3, 4}, {1, 3}); // column-major
  ir::Value *columns = k.tile(ints(DType::I64, {2}, {3, 1})),
            *v = k.tile(floats(DType::BF16, {3, 2}, {1, 2, 3, 4, 5, 6}));
  ir::Value *mask = k.tile(ints(DType::Bool, {3, 2}, {1, 0, 1, 1, 0, 1}));
  k.create(K::Store, {y.value, k.i32(0), columns, v, mask},
           attrs({{"sizes", Ints{3, 2}}, {"gather", Ints{0, 1}}, {"has_mask", int64_t(1)}}));
  k.end(K::Return, {});
  REQUIRE(!k.run().trap);
  CHECK(y.storage->f == std::vector<double>{0, 0, 0, 0, 4, 6, 0, 0, 0, 1, 3, 0});
}

TEST_CASE("parts of tensors narrow the bounds") {
  Kit k(ir::FunctionKind::Kernel);
  auto x = k.tensor(counting(DType::F32, {2, 6, 3}));
  auto y = k.tensor(Tile(DType::F32, {4, 2}));
  auto n = k.tensor(Tile(DType::I32, {2}));
  // x[1, 2 : 4, :][0 :+ 4, 1 :+ 2]
  ir::Value *part = k.value(K::Subview, {x.value, k.i32(1), k.i32(2), k.i32(4)}, attrs({{"ranges", Ints{2, 1, 0}}}));
  CHECK(part->type == ir::Type::tensor(DType::F32, {ir::kDynamic, 3}));
  ir::Value *t = k.value(K::Load, {part, k.i32(0), k.i32(1)}, attrs({{"sizes", Ints{4, 2}}}));
  k.create(K::Store, {y.value, k.i32(0), k.i32(0), t}, attrs({{"sizes", Ints{4, 2}}}));
  // Bounds are clamped to the tensor, and an empty part has extent 0.
  ir::Value *past = k.value(K::Subview, {x.value, k.i32(4), k.i32(100)}, attrs({{"ranges", Ints{0, 1, 0}}}));
  ir::Value *none = k.value(K::Subview, {x.value, k.i32(5), k.i32(2)}, attrs({{"ranges", Ints{0, 1, 0}}}));
  int64_t at = 0;
  for (ir::Value *v : {past, none}) {
    ir::Value *d = k.value(K::Dim, {v}, attrs({{"axis", int64_t(1)}}));
    k.create(K::Store, {n.value, k.i32(at++), d}, attrs({{"sizes", Ints{1}}, {"drop", Ints{1}}}));
  }
  k.end(K::Return, {});
  REQUIRE(!k.run().trap);
  CHECK(y.storage->f == std::vector<double>{25, 26, 28, 29, 0, 0, 0, 0});
  CHECK(n.storage->i == Ints{2, 0});
}

TEST_CASE("the grid: coordinates of every rank, each block once") {
  for (int64_t threads : {1, 3}) {
    Kit k(ir::FunctionKind::Kernel, 3);
    auto y = k.tensor(Tile(DType::I32, {2, 3, 4}));
    std::vector<ir::Value *> at;
    for (int64_t d = 2; d >= 0; d--) at.push_back(k.value(K::ProgramId, {}, attrs({{"axis", d}})));
    ir::Value *n = k.value(K::NumPrograms, {}, attrs({{"axis", int64_t(0)}}));
    ir::Value *code = k.value(K::Add, {k.value(K::Mul, {at[1], n}), at[2]});
    k.create(K::AtomicAdd, {y.value, at[0], at[1], at[2], code},
             attrs({{"sizes", Ints{1, 1, 1}}, {"drop", Ints{1, 1, 1}}}));
    k.end(K::Return, {});
    REQUIRE(!k.run({4, 3, 2}, threads).trap);
    Ints want;
    for (int64_t z = 0; z < 2; z++)
      for (int64_t i = 0; i < 12; i++) want.push_back(i);
    CHECK(y.storage->i == want);
    REQUIRE(!k.run({4, 0, 2}, threads).trap); // an empty grid does nothing
    CHECK(y.storage->i == want);
  }
}

TEST_CASE("atomics return the old value and see each other across blocks") {
  auto update = [](K kind, DType t, double start, double by, std::vector<double> more = {}) {
    Kit k(ir::FunctionKind::Kernel);
    Tile init(t, {2}), old(t, {200});
    auto element = [&](double v) {
      Tile x(t, {});
      if (x.is_float())
        x.f[0] = v;
      else
        x.i[0] = int64_t(v);
      return x;
    };
    if (init.is_float())
      init.f = {start, start};
    else
      init.i = {int64_t(start), int64_t(start)};
    auto x = k.tensor(init), y = k.tensor(old);
    std::vector<ir::Value *> operands = {x.value, k.i32(1), k.tile(element(by))};
    for (double m : more) operands.push_back(k.tile(element(m)));
    ir::Value *before = k.value(kind, operands, attrs({{"sizes", Ints{1}}, {"drop", Ints{1}}}));
    ir::Value *id = k.value(K::ProgramId, {}, attrs({{"axis", int64_t(0)}}));
    k.create(K::Store, {y.value, id, before}, attrs({{"sizes", Ints{1}}, {"drop", Ints{1}}}));
    k.end(K::Return, {});
    REQUIRE(!k.run({200}, 4).trap);
    std::vector<double> seen;
    for (int64_t i = 0; i < 200; i++)
      seen.push_back(init.is_float() ? y.storage->f[size_t(i)] : double(y.storage->i[size_t(i)]));
    CHECK((init.is_float() ? x.storage->f[0] : double(x.storage->i[0])) == start); // its neighbour
    seen.push_back(init.is_float() ? x.storage->f[1] : double(x.storage->i[1]));
    return seen;
  };
  std::vector<double> added = update(K::AtomicAdd, DType::I32, 5, 3);
  CHECK(added.back() == 605);
  std::sort(added.begin(), added.end());
  for (int64_t i = 0; i <= 200; i++) CHECK(added[size_t(i)] == 5 + 3 * double(i)); // every old value once
  CHECK(update(K::AtomicAdd, DType::F32, 1, 0.5).back() == 101);
  CHECK(update(K::AtomicAdd, DType::F16, 2048, 1).back() == 2048); // rounds to f16 every time
  CHECK(update(K::AtomicMax, DType::F32, 1, 7).back() == 7);
  CHECK(update(K::AtomicMin, DType::U32, 9, 4).back() == 4);
  CHECK(update(K::AtomicAnd, DType::U32, 12, 10).back() == 8);
  CHECK(update(K::AtomicOr, DType::I64, 12, 3).back() == 15);
  CHECK(update(K::AtomicXor, DType::I32, 5, 3).back() == 5); // an even number of times
  std::vector<double> exchanged = update(K::AtomicExch, DType::F32, 5, 3);
  CHECK(std::count(exchanged.begin(), exchanged.end(), 5) == 1);
  std::vector<double> swapped = update(K::AtomicCas, DType::I32, 5, 9, {5});
  CHECK(std::count(swapped.begin(), swapped.end(), 5) == 1);
  CHECK(swapped.back() == 9);
}

TEST_CASE("atomics of tiles: duplicates add up, masked and outside elements are 0 and untouched") {
  Kit k(ir::FunctionKind::Kernel);
  auto x = k.tensor(floats(DType::F32, {3}, {10, 20, 30}));
  auto y = k.tensor(Tile(DType::F32, {5}));
  ir::Value *at = k.tile(ints(DType::I32, {5}, {1, 1, 7, 0, 2})), *v = k.tile(floats(DType::F32, {5}, {1, 2, 3, 4, 5}));
  ir::Value *mask = k.tile(ints(DType::Bool, {5}, {1, 1, 1, 0, 1}));
  ir::Value *old = k.value(K::AtomicAdd, {x.value, at, v, mask},
                           attrs({{"sizes", Ints{5}}, {"gather", Ints{1}}, {"has_mask", int64_t(1)}}));
  k.create(K::Store, {y.value, k.i32(0), old}, attrs({{"sizes", Ints{5}}}));
  k.end(K::Return, {});
  REQUIRE(!k.run().trap);
  CHECK(x.storage->f == std::vector<double>{10, 23, 35});
  CHECK(y.storage->f == std::vector<double>{20, 21, 0, 0, 30});
}

// ---- control flow

struct Loop {
  ir::Op *op;
  ir::Value *iv;
  std::vector<ir::Value *> carried;
};
static Loop begin_for(Kit &k, ir::Value *lo, ir::Value *hi, ir::Value *step, std::vector<ir::Value *> inits) {
  std::vector<ir::Value *> operands = {lo, hi, step};
  operands.insert(operands.end(), inits.begin(), inits.end());
  Loop l;
  l.op = k.create(K::For, operands);
  ir::Block *body = k.f.new_block(l.op);
  l.op->regions.push_back(body);
  l.iv = k.argument(body, lo->type);
  for (ir::Value *v : inits) l.carried.push_back(k.argument(body, v->type));
  k.b.set_block(body);
  return l;
}
static void end_for(Kit &k, const Loop &l, std::vector<ir::Value *> values) {
  k.end(K::Yield, std::move(values));
  k.b.set_block(l.op->block);
}

TEST_CASE("for runs 0, 1 and n times and carries values") {
  for (auto [lo, hi, step, want] : {std::tuple<int64_t, int64_t, int64_t, Ints>(0, 0, 1, {}),
                                    {3, 2, 1, {}},
                                    {0, 1, 5, {0}},
                                    {-2, 9, 4, {-2, 2, 6}},
                                    {0, 4, 1, {0, 1, 2, 3}},
                                    {2147483640, 2147483647, 5, {2147483640, 2147483645}}}) {
    CAPTURE(lo);
    Kit k;
    ir::Value *sum = k.i32(0), *count = k.i32(0);
    Loop l = begin_for(k, k.i32(lo), k.i32(hi), k.i32(step), {sum, count});
    ir::Value *s = k.value(K::Xor, {l.carried[0], k.value(K::Mul, {l.iv, k.i32(31)})}),
              *c = k.value(K::Add, {l.carried[1], k.i32(1)});
    end_for(k, l, {s, c});
    auto out = k.eval({l.op->result(0), l.op->result(1), sum});
    int64_t x = 0;
    for (int64_t i : want) x ^= int64_t(int32_t(uint32_t(i) * 31u));
    CHECK(out[0].i[0] == x);
    CHECK(out[1].i[0] == int64_t(want.size()));
    CHECK(out[2].i[0] == 0); // the initial value is still there
  }
}

TEST_CASE("carried values may swap, repeat, and outlive their updates") {
  Kit k;
  Tile zeros(DType::I32, {4});
  ir::Value *x = k.tile(counting(DType::I32, {4}, 1)), *y = k.tile(zeros);
  // for i in 0 : 3 { let kept = x; x[i] = 100; (x, y, z) = (x, kept, kept) }
  Loop l = begin_for(k, k.i32(0), k.i32(3), k.i32(1), {x, y, x});
  ir::Value *hundred = k.value(K::Reshape, {k.i32(100)}, attrs({{"shape", Ints{1}}}));
  ir::Value *updated = k.value(K::DynUpdate, {l.carried[0], hundred, l.iv});
  end_for(k, l, {updated, l.carried[0], l.carried[0]});
  auto out = k.eval({l.op->result(0), l.op->result(1), l.op->result(2), x, y});
  CHECK(out[0].i == Ints{100, 100, 100, 4});
  CHECK(out[1].i == Ints{100, 100, 3, 4});
  CHECK(out[2].i == out[1].i);
  CHECK(out[3].i == Ints{1, 2, 3, 4});
  CHECK(out[4].i == zeros.i);
}

TEST_CASE("values from outside a loop are whole in every iteration") {
  Kit k;
  ir::Value *x = k.tile(counting(DType::F32, {3}));
  Loop l = begin_for(k, k.i32(0), k.i32(3), k.i32(1), {x});
  ir::Value *e = k.value(K::Exp, {x}), *n = k.value(K::Neg, {k.value(K::Neg, {x})}); // x is read twice each time
  end_for(k, l, {k.value(K::Add, {l.carried[0], k.value(K::Mul, {n, k.value(K::Sub, {e, e})})})});
  CHECK(k.eval(l.op->result()).f == std::vector<double>{0, 1, 2});
}

TEST_CASE("an array that a loop updates is not copied") {
  Kit k;
  int64_t n = 1 << 17;
  ir::Value *x = k.tile(Tile(DType::F64, {n}));
  Loop l = begin_for(k, k.i32(0), k.i32(n), k.i32(1), {x});
  ir::Value *v =
      k.value(K::Reshape, {k.value(K::Cast, {l.iv}, attrs({{"dtype", DType::F64}}))}, attrs({{"shape", Ints{1}}}));
  end_for(k, l, {k.value(K::DynUpdate, {l.carried[0], v, l.iv})});
  auto start = std::chrono::steady_clock::now();
  Tile out = k.eval(l.op->result());
  double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  for (int64_t i = 0; i < n; i++) REQUIRE(out.f[size_t(i)] == double(i));
  CHECK(seconds < 5); // 131,072 copies of a megabyte would take longer
}

TEST_CASE("nor one that it updates in some iterations, in a branch") {
  Kit k;
  int64_t n = 1 << 17;
  ir::Value *x = k.tile(Tile(DType::F64, {n})), *two = k.i32(2), *zero = k.i32(0);
  Loop l = begin_for(k, k.i32(0), k.i32(n), k.i32(1), {x});
  ir::Value *even = k.value(K::Eq, {k.value(K::Rem, {l.iv, two}), zero});
  ir::Op *op = k.b.create_typed(K::If, {even}, {x->type}, {}, {});
  ir::Block *body = l.iv->block;
  for (int64_t branch = 0; branch < 2; branch++) {
    ir::Block *block = k.f.new_block(op);
    op->regions.push_back(block);
    k.b.set_block(block);
    ir::Value *y = l.carried[0];
    if (branch == 0) {
      ir::Value *v =
          k.value(K::Reshape, {k.value(K::Cast, {l.iv}, attrs({{"dtype", DType::F64}}))}, attrs({{"shape", Ints{1}}}));
      y = k.value(K::DynUpdate, {y, v, l.iv});
    }
    k.end(K::Yield, {y});
  }
  k.b.set_block(body);
  end_for(k, l, {op->result()});
  auto start = std::chrono::steady_clock::now();
  Tile out = k.eval(l.op->result());
  double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  for (int64_t i = 0; i < n; i++) REQUIRE(out.f[size_t(i)] == (i % 2 ? 0.0 : double(i)));
  CHECK(seconds < 5); // as above
}

TEST_CASE("while runs as long as its condition holds") {
  for (int64_t limit : {0, 1, 100}) {
    Kit k;
    ir::Value *x = k.i32(1), *big = k.tile(counting(DType::I32, {3}));
    ir::Op *op = k.create(K::While, {x, big});
    ir::Block *cond = k.f.new_block(op), *body = k.f.new_block(op);
    op->regions = {cond, body};
    ir::Value *cx = k.argument(cond, x->type);
    ir::Value *cbig = k.argument(cond, big->type);
    k.b.set_block(cond);
    ir::Value *largest = k.value(K::ReduceMax, {k.value(K::Neg, {cbig})}, attrs({{"axis", int64_t(0)}}));
    k.end(K::Yield, {k.value(K::Lt, {k.value(K::Add, {cx, largest}), k.i32(limit)})});
    ir::Value *bx = k.argument(body, x->type), *bbig = k.argument(body, big->type);
    k.b.set_block(body);
    k.end(K::Yield, {k.value(K::Add, {bx, bx}), bbig});
    k.b.set_block(k.f.body);
    auto out = k.eval({op->result(0), op->result(1), big});
    int64_t want = 1;
    while (want < limit) want += want;
    CHECK(out[0].i[0] == want);
    CHECK(out[1].i == Ints{0, 1, 2});
    CHECK(out[2].i == Ints{0, 1, 2});
  }
}

TEST_CASE("if takes one branch") {
  for (int64_t taken : {0, 1}) {
    Kit k;
    ir::Value *c = k.tile(ints(DType::Bool, {}, {taken})), *x = k.tile(counting(DType::F32, {2}, 1));
    ir::Op *op = k.b.create_typed(K::If, {c}, {x->type, ir::Type::scalar(DType::I32)}, {}, {});
    for (int64_t branch = 0; branch < 2; branch++) {
      ir::Block *block = k.f.new_block(op);
      op->regions.push_back(block);
      k.b.set_block(block);
      k.end(K::Yield, {branch == 0 ? k.value(K::Neg, {x}) : x, k.i32(branch)});
    }
    k.b.set_block(k.f.body);
    auto out = k.eval({op->result(0), op->result(1), x});
    CHECK(out[0].f == (taken ? std::vector<double>{-1, -2} : std::vector<double>{1, 2}));
    CHECK(out[1].i[0] == 1 - taken);
    CHECK(out[2].f == std::vector<double>{1, 2});
  }
}

// ---- faults, printing, and the ops of passes

TEST_CASE("faults of a program stop it with a message") {
  auto divide = [](K kind) {
    Kit k;
    return k.trap(k.value(kind, {k.tile(ints(DType::I32, {2}, {1, 2})), k.tile(ints(DType::I32, {2}, {1, 0}))}));
  };
  CHECK(divide(K::Div) == "division by zero");
  CHECK(divide(K::Rem) == "remainder of a division by zero");
  Kit slice;
  CHECK(slice.trap(slice.value(K::DynSlice, {slice.tile(Tile(DType::F32, {4})), slice.i32(3)},
                               attrs({{"sizes", Ints{2}}}))) == "dim 0 covers 3 : 5, outside 0 : 4");
  Kit update;
  CHECK(update.trap(update.value(K::DynUpdate, {update.tile(Tile(DType::F32, {4})), update.tile(Tile(DType::F32, {1})),
                                                update.i32(-1)})) == "dim 0 covers -1 : 0, outside 0 : 4");
  Kit loop;
  Loop l = begin_for(loop, loop.i32(0), loop.i32(3), loop.i32(0), {loop.i32(1)});
  end_for(loop, l, {l.carried[0]});
  CHECK(loop.trap(l.op->result()) == "the step of a loop is 0; it must be positive");
  Kit view(ir::FunctionKind::Kernel);
  view.create(K::Subview, {view.tensor(Tile(DType::F32, {4, 4})).value, view.i32(4)}, attrs({{"ranges", Ints{2, 0}}}));
  view.end(K::Return, {});
  CHECK(view.run().trap->message == "index 4 of dim 0 of `x` is outside 0 : 4");
  Kit wild(ir::FunctionKind::Kernel);
  auto x = wild.tensor(Tile(DType::F32, {8}), {4}, {3}); // the launch lies about the stride
  wild.create(K::Load, {x.value, wild.i32(0)}, attrs({{"sizes", Ints{4}}}));
  wild.end(K::Return, {});
  CHECK(wild.run().trap->message == "access to element 9 of `x`, which has 8");
}

TEST_CASE("assert names the element, and the first block that failed is reported whatever the threads") {
  for (int64_t threads : {1, 4}) {
    Kit k(ir::FunctionKind::Kernel);
    ir::Value *id = k.value(K::ProgramId, {}, attrs({{"axis", int64_t(0)}}));
    ir::Value *iota = k.value(K::Iota, {}, attrs({{"n", int64_t(4)}}));
    ir::Value *limit = k.value(K::Broadcast, {k.value(K::Sub, {k.i32(40), id})}, attrs({{"shape", Ints{4}}}));
    k.create(K::Assert, {k.value(K::Lt, {iota, limit})}, attrs({{"message", std::string("too many")}}));
    k.end(K::Return, {});
    for (int round = 0; round < 20; round++) {
      interp::Result r = k.run({100}, threads);
      REQUIRE(r.trap);
      CHECK(r.trap->message == "assertion failed at [3] of shape [4]: too many"); // block 37 is the first with limit 3
    }
  }
}

TEST_CASE("print") {
  Kit k;
  ir::Value *t = k.tile(floats(DType::F32, {2, 2}, {0.1f, 1, -2.5, kInf})), *n = k.tile(ints(DType::U64, {}, {-1}));
  ir::Value *flag = k.tile(ints(DType::Bool, {1}, {1}));
  k.create(K::Print, {t, n, flag}, attrs({{"format", std::string("{{{}}}, n = {}{}")}}));
  k.create(K::Print, {}, attrs({{"format", std::string("done")}}));
  k.end(K::Return, {});
  REQUIRE(!k.run().trap);
  CHECK(k.printed == std::vector<std::string>{"{[[0.1, 1], [-2.5, inf]]}, n = 18446744073709551615[true]", "done"});
}

TEST_CASE("inline PTX means what `means` says, element by element") {
  Kit k;
  ir::Value *x = k.tile(counting(DType::F32, {2, 2})), *y = k.tile(counting(DType::I32, {2, 2}, 5));
  ir::Op *op = k.create(K::InlinePtx, {x, y}, attrs({{"text", std::string("...")}, {"dtype", DType::F32}}));
  ir::Block *means = k.f.new_block(op);
  op->regions.push_back(means);
  ir::Value *a0 = k.argument(means, ir::Type::scalar(DType::F32)),
            *a1 = k.argument(means, ir::Type::scalar(DType::I32));
  k.b.set_block(means);
  k.end(K::Yield, {k.value(K::Mul, {a0, k.value(K::Cast, {a1}, attrs({{"dtype", DType::F32}}))})});
  k.b.set_block(k.f.body);
  CHECK(k.eval(op->result()).f == std::vector<double>{0, 6, 14, 24});
  Kit bare;
  ir::Value *v = bare.value(K::InlinePtx, {bare.tile(Tile(DType::F32, {1}))},
                            attrs({{"text", std::string("...")}, {"dtype", DType::F32}}));
  CHECK(bare.trap(v).find("`means`") != std::string::npos);
}

TEST_CASE("conversions hand their value on") {
  Kit k;
  ir::Value *x = k.tile(counting(DType::F16, {2, 2}));
  ir::Value *token = k.value(K::ScratchStore, {x});
  CHECK(token->type == ir::Type::token());
  k.create(K::BlockBarrier, {});
  ir::Value *back = k.value(K::ScratchLoad, {token}), *again = k.value(K::ConvertLayout, {back});
  CHECK(again->type == x->type);
  CHECK(k.eval(again).f == std::vector<double>{0, 1, 2, 3});
}
