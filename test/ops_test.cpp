// The op table: signatures, texts, diagnostics of type inference, layout rules.
#include "ir_kit.h"
#include <algorithm>
#include <set>

using namespace tkc;
using namespace tkc::test;
using K = OpKind;
using ir::SigParam;

TEST_CASE("every op is documented, and its name is unique") {
  std::set<std::string> names;
  for (K k : ir::all_ops()) {
    const ir::OpDef &d = ir::def(k);
    CAPTURE(d.name.s);
    CHECK(names.insert(d.name.s).second);
    CHECK(ir::find_op(d.name.s) == k);
    std::string doc = d.doc.s, example = d.example.s;
    CHECK(doc.size() > 20);
    CHECK(std::string(".").find(doc.back()) != std::string::npos);
    CHECK(doc.find("  ") == std::string::npos);
    CHECK(example.find('\t') == std::string::npos);
    CHECK(d.min_sm >= 80);
    CHECK((d.layout.backward == nullptr || d.layout.kind == ir::LayoutKind::Structural));
    CHECK((d.layout.kind != ir::LayoutKind::Structural || d.layout.forward || d.layout.backward));
  }
}

TEST_CASE("every signature parses, and begins with the name that calls it") {
  for (K k : ir::all_ops()) {
    const ir::OpDef &d = ir::def(k);
    CAPTURE(d.signature.s);
    std::string text = d.signature.s, source = d.source.s;
    CHECK(text.substr(0, text.find('(')) == (source == "-" ? d.name.s : source));
    std::set<std::string> params;
    for (const SigParam &p : ir::signature(k)) {
      CHECK(!p.name.empty());
      CHECK(params.insert(p.name).second);
      if (p.kind == SigParam::Kind::Enum) {
        CHECK(p.choices.size() >= 2);
        CHECK(std::find(p.choices.begin(), p.choices.end(), p.default_text) != p.choices.end());
      }
      if (p.kind == SigParam::Kind::Bool && p.optional) CHECK((p.default_text == "true" || p.default_text == "false"));
    }
  }
  const std::vector<SigParam> &scan = ir::signature(K::CumSum);
  REQUIRE(scan.size() == 4);
  CHECK(scan[1].kind == SigParam::Kind::Int);
  CHECK(scan[1].default_text == "-1");
  CHECK(scan[3].name == "exclusive");
  CHECK(ir::signature(K::Concat)[0].variadic);
  CHECK(ir::signature(K::Mma)[2].optional);
  CHECK(ir::signature(K::Mma)[4].choices == std::vector<std::string>{"tf32", "tf32x3", "ieee"});
}

TEST_CASE("overloads of one source name differ in their parameters") {
  std::set<std::string> sources;
  for (K k : ir::all_ops()) sources.insert(ir::def(k).source.s);
  sources.erase("-");
  for (const std::string &s : sources) {
    CAPTURE(s);
    std::vector<K> kinds = ir::find_source_ops(s);
    CHECK(!kinds.empty());
    std::set<std::vector<std::string>> required;
    for (K k : kinds) {
      std::vector<std::string> names;
      for (const SigParam &p : ir::signature(k))
        if (!p.optional) names.push_back(p.name);
      CHECK(required.insert(names).second);
    }
  }
  CHECK(ir::find_source_ops("max") == std::vector<K>{K::Max, K::ReduceMax});
  CHECK(ir::find_source_ops("min") == std::vector<K>{K::Min, K::ReduceMin});
}

TEST_CASE("effects: what must not be removed or reordered") {
  CHECK(ir::def(K::Add).effects.pure());
  CHECK(ir::def(K::Load).effects.list[0].access == ir::Access::Read);
  CHECK(ir::def(K::Store).effects.list[0].access == ir::Access::Write);
  for (K k : {K::AtomicAdd, K::AtomicCas, K::Assert, K::Print, K::InlinePtx, K::BlockBarrier, K::Return})
    CHECK(!ir::def(k).effects.pure());
}

// ---- diagnostics

static std::string fault(ir::FunctionKind kind, K op, std::vector<ir::Type> operands, ir::Attrs a = {}) {
  Kit k(kind);
  std::vector<ir::Value *> values;
  for (const ir::Type &t : operands) values.push_back(k.argument(k.f.body, t));
  ir::Op *made = k.b.create(op, values, std::move(a), {});
  CHECK((made == nullptr) == k.diags.has_errors());
  std::string text = k.diags.render_all();
  CHECK(std::count(text.begin(), text.end(), '\n') <= 1); // one fault, one message
  return text;
}
static std::string fault(K op, std::vector<ir::Type> operands, ir::Attrs a = {}) {
  return fault(ir::FunctionKind::Kernel, op, std::move(operands), std::move(a));
}
static ir::Type T(DType t, Ints shape = {}) { return ir::Type::tile(t, std::move(shape)); }

TEST_CASE("type inference says what was seen") {
  const DType F32 = DType::F32, I32 = DType::I32, Bool = DType::Bool, BF16 = DType::BF16, E4M3 = DType::E4M3;
  auto axis = [](int64_t a) { return attrs({{"axis", a}}); };
  auto shape = [](Ints s) { return attrs({{"shape", s}}); };
  CHECK(fault(K::Exp, {T(I32, {4})}) == "error: `exp` takes a float as `x`, not i32 [operand-dtype]\n");
  CHECK(fault(K::Add, {T(E4M3), T(E4M3)}) ==
        "error: `+` does not compute in e4m3, a storage type: convert first, as in `f32(a)` [storage-only-dtype]\n");
  CHECK(fault(K::Add, {T(Bool), T(Bool)}) ==
        "error: `+` takes a float or an integer as `a`, not bool [operand-dtype]\n");
  CHECK(fault(K::Mul, {T(F32, {4}), T(BF16, {4})}) ==
        "error: `*` needs one dtype, but `a` is f32 and `b` is bf16 [operand-dtypes-differ]\n");
  CHECK(fault(K::Sub, {T(F32, {4, 8}), T(F32, {4, 9})}) ==
        "error: `-` needs equal shapes, but `a` has shape [4, 8] and `b` has shape [4, 9]: dim 1 is 8 against 9 "
        "[operand-shapes-differ]\n");
  CHECK(fault(K::Sub, {T(F32, {4}), T(F32)}) ==
        "error: `-` needs equal ranks, but `a` has shape [4] and `b` has a scalar [operand-ranks-differ]\n");
  CHECK(fault(K::And, {T(F32), T(F32)}) == "error: `&` takes an integer or bool as `a`, not f32 [operand-dtype]\n");
  CHECK(fault(K::Rem, {T(F32), T(F32)}) == "error: `%` takes an integer as `a`, not f32 [operand-dtype]\n");
  CHECK(fault(K::Where, {T(F32), T(F32), T(F32)}) == "error: `where` takes bool as `c`, not f32 [operand-dtype]\n");
  CHECK(fault(K::Exp, {ir::Type::tensor(F32, {4})}) ==
        "error: `exp` takes a tile or scalar as `x`, not tensor<f32>[4] [operand-kind]\n");
  CHECK(fault(K::Exp, {T(F32), T(F32)}) == "error: `exp` takes 1 operands, not 2 [operand-count]\n");
  CHECK(fault(K::Bitcast, {T(F32)}, attrs({{"dtype", DType::I16}})) ==
        "error: `bitcast` from f32 (32 bits) to i16 (16 bits): the sizes differ [bitcast-size]\n");
  CHECK(fault(K::Iota, {}, attrs({{"n", int64_t(300)}, {"dtype", DType::U8}})) ==
        "error: `iota(300)` does not fit u8, which ends at 255 [iota-range]\n");
  CHECK(fault(K::Iota, {}, attrs({{"n", int64_t(0)}})) ==
        "error: `iota` would make a tile of shape [0]: every dim is at least 1 [tile-extent]\n");
  CHECK(fault(K::Reshape, {T(F32, {4, 6})}, shape({5, 5})) ==
        "error: `reshape` from [4, 6] (24 elements) to [5, 5] (25 elements) [reshape-count]\n");
  CHECK(fault(K::Reshape, {T(F32, {16})}, shape({2, 2, 2, 2, 1})) ==
        "error: `reshape` would make a tile of rank 5; a tile has at most 4 dims [tile-rank]\n");
  CHECK(fault(K::Broadcast, {T(F32, {4, 2})}, shape({4, 6})) ==
        "error: `broadcast` from [4, 2] to [4, 6]: dim 1 is 2; only a dim of 1 can become 6 [broadcast-dim]\n");
  CHECK(fault(K::Broadcast, {T(F32)}, shape({65536, 65536})) ==
        "error: `broadcast` would make a tile of shape [65536, 65536]: more than 1048576 elements [tile-too-large]\n");
  CHECK(fault(K::Transpose, {T(F32, {4, 2})}, attrs({{"perm", Ints{1, 1}}})) ==
        "error: `transpose` of tile<f32>[4, 2] by [1, 1]: that is not a permutation of its dims [transpose-perm]\n");
  CHECK(fault(K::Slice, {T(F32, {4, 2})}, attrs({{"starts", Ints{2, 0}}, {"sizes", Ints{3, 2}}})) ==
        "error: `slice` of tile<f32>[4, 2]: dim 0 covers 2 : 5, outside 0 : 4 [slice-range]\n");
  CHECK(fault(K::Concat, {T(F32, {4, 2}), T(F32, {4, 3})}, axis(0)) ==
        "error: `concat` needs equal shapes, but `xs[0]` has shape [4, 2] and `xs[1]` has shape [4, 3]: dim 1 is 2 "
        "against 3 [operand-shapes-differ]\n");
  CHECK(fault(K::DynSlice, {T(F32, {4}), T(I32)}, attrs({{"sizes", Ints{2}}})) ==
        "error: a register tile can only be indexed by compile-time positions; load the part that you need from memory "
        "[dynamic-tile-index]\n");
  CHECK(fault(K::ReduceSum, {T(F32, {4, 2})}, axis(2)) ==
        "error: axis 2 of `sum` is outside tile<f32>[4, 2], which has 2 dims [axis-range]\n");
  CHECK(fault(K::ReduceSum, {T(F32)}, axis(0)) ==
        "error: axis 0 of `sum` is outside f32, which has 0 dims [axis-range]\n");
  CHECK(fault(K::ReduceAny, {T(F32, {4})}, axis(0)) == "error: `any` takes bool as `x`, not f32 [operand-dtype]\n");
  CHECK(fault(K::ReduceSum, {T(Bool, {4})}, axis(0)) ==
        "error: `sum` takes a float or an integer as `x`, not bool [operand-dtype]\n");
  CHECK(fault(K::ProgramId, {}, axis(1)) == "error: axis 1 of a grid of rank 1 [grid-rank]\n");
  CHECK(fault(ir::FunctionKind::Reference, K::ProgramId, {}, axis(0)) ==
        "error: `program_id` works only in a kernel [only-in-kernel]\n");
  CHECK(fault(K::If, {T(I32)}) == "error: the condition of `if` must be a scalar bool, found i32 [not-uniform]\n");
  CHECK(fault(K::For, {T(I32), T(DType::I64), T(I32)}) ==
        "error: a loop bound must be a scalar i32, found i64 [not-uniform]\n");
  CHECK(fault(K::Print, {T(I32)}, attrs({{"format", std::string("{} {}")}})) ==
        "error: `print` has 2 placeholders and 1 value [print-placeholders]\n");
  CHECK(fault(K::Assert, {T(I32)}) == "error: `assert` takes bool as `cond`, not i32 [operand-dtype]\n");
}

TEST_CASE("products: shapes, dtypes, accumulators") {
  const DType F32 = DType::F32, F16 = DType::F16, BF16 = DType::BF16;
  auto acc = [](DType t) { return attrs({{"acc", t}}); };
  CHECK(fault(K::Mma, {T(F16, {4}), T(F16, {4, 4})}) ==
        "error: `mma` takes matrices (rank 2), but `a` has shape [4] [mma-rank]\n");
  CHECK(fault(K::Mma, {T(F16, {4, 8}), T(F16, {4, 8})}) ==
        "error: `mma` of [4, 8] by [4, 8]: dim 1 of `a` is 8, dim 0 of `b` is 4 [mma-inner]\n");
  CHECK(fault(K::Mma, {T(F16, {4, 8}), T(BF16, {8, 4})}) ==
        "error: `mma` of f16 by bf16: operands are of one dtype, or e4m3 and e5m2 in any order [mma-operands]\n");
  CHECK(fault(K::Mma, {T(DType::I32, {4, 8}), T(DType::I32, {8, 4})}) ==
        "error: `mma` takes one of f16, bf16, tf32, f32, f64, i8, e4m3, e5m2 as `a`, not i32 [operand-dtype]\n");
  CHECK(fault(K::Mma, {T(BF16, {4, 8}), T(BF16, {8, 4})}, acc(F16)) ==
        "error: `mma` of bf16 and bf16 accumulates in f32, not f16 [mma-accumulator]\n");
  CHECK(fault(K::Mma, {T(F16, {4, 8}), T(F16, {8, 4})}, acc(DType::F64)) ==
        "error: `mma` of f16 and f16 accumulates in f32 or f16, not f64 [mma-accumulator]\n");
  CHECK(fault(K::Mma, {T(F16, {4, 8}), T(F16, {8, 4}), T(F32, {4, 5})}) ==
        "error: `mma` needs equal shapes, but `c` has shape [4, 5] and `a times b` has shape [4, 4]: dim 1 is 5 "
        "against 4 [operand-shapes-differ]\n");
  CHECK(fault(K::Mma, {T(F16, {4, 8}), T(F16, {8, 4})}, attrs({{"precision", std::string("ieee")}})) ==
        "error: precision `ieee` of `mma` is for f32 operands, not f16 [mma-precision]\n");
  for (auto [t, want] : {std::pair(F16, F32),
                         {BF16, F32},
                         {F32, F32},
                         {DType::TF32, F32},
                         {DType::I8, DType::I32},
                         {DType::F64, DType::F64},
                         {DType::E5M2, F32}}) {
    Kit k(ir::FunctionKind::Kernel);
    ir::Value *a = k.argument(k.f.body, T(t, {4, 8})), *b = k.argument(k.f.body, T(t, {8, 4}));
    CHECK(k.value(K::Mma, {a, b})->type == T(want, {4, 4}));
  }
  CHECK(fault(K::Mma, {T(DType::E4M3, {4, 8}), T(DType::E5M2, {8, 4})}) == "");
}

TEST_CASE("memory: indices, masks, dtypes") {
  const DType F32 = DType::F32, I32 = DType::I32;
  ir::Type x = ir::Type::tensor(F32, {ir::kDynamic, 8});
  auto sizes = [](Ints s) { return attrs({{"sizes", s}}); };
  CHECK(fault(K::Load, {x, T(I32), T(I32)}, sizes({4, 8})) == "");
  CHECK(fault(K::Load, {x, T(I32), T(F32)}, sizes({4, 8})) ==
        "error: `load` takes an integer as `x[1]`, not f32 [operand-dtype]\n");
  CHECK(fault(K::Load, {x, T(I32)}, sizes({4, 8})) ==
        "error: `load` takes 3 or more operands, not 2 [operand-count]\n");
  CHECK(fault(K::Load, {x, T(I32), T(I32, {4})}, attrs({{"sizes", Ints{4, 8}}, {"gather", Ints{0, 1}}})) ==
        "error: tile<i32>[4] cannot be an index: an index is an integer, a range or an integer tile of rank 1 "
        "[bad-index]\n");
  CHECK(fault(K::Load, {x, T(I32), T(I32), T(DType::Bool, {4, 4})},
              attrs({{"sizes", Ints{4, 8}}, {"has_mask", int64_t(1)}})) ==
        "error: `load` needs equal shapes, but `x` has shape [4, 8] and `mask` has shape [4, 4]: dim 1 is 8 against 4 "
        "[operand-shapes-differ]\n");
  CHECK(fault(K::Store, {x, T(I32), T(I32), T(DType::BF16, {4, 8})}, sizes({4, 8})) ==
        "error: `store` needs one dtype, but `x` is f32 and `value` is bf16 [operand-dtypes-differ]\n");
  CHECK(
      fault(K::Store, {x, T(I32), T(I32), T(F32, {8})}, sizes({4, 8})) ==
      "error: `store` needs equal ranks, but `x` has shape [4, 8] and `value` has shape [8] [operand-ranks-differ]\n");
  CHECK(fault(K::AtomicAnd, {x, T(I32), T(I32), T(F32, {4, 8})}, sizes({4, 8})) ==
        "error: `atomic_and` works on i32, u32, i64, u64, not on f32 [atomic-dtype]\n");
  CHECK(fault(K::Dim, {x}, attrs({{"axis", int64_t(2)}})) ==
        "error: axis 2 of `dim` is outside tensor<f32>[?, 8], which has 2 dims [axis-range]\n");
  CHECK(fault(K::Subview, {x, T(I32)}, attrs({{"ranges", Ints{1, 0}}})) ==
        "error: `subview` takes 3 operands, not 2 [operand-count]\n");
}

// ---- layouts

// Some layouts of a shape: coalesced in either order with vectors, and whole in every thread.
static std::vector<RegLayout> layouts(const Ints &shape) {
  std::vector<RegLayout> out;
  std::vector<int> order(shape.size());
  for (size_t d = 0; d < order.size(); d++) order[d] = int(d);
  do
    for (int64_t vec : {1, 4})
      for (int64_t warps : {1, 4}) out.push_back(blocked(shape, order, vec, warps));
  while (std::next_permutation(order.begin(), order.end()));
  out.push_back(replicated(shape, 2));
  return out;
}

struct Made {
  std::unique_ptr<Kit> kit = std::make_unique<Kit>(ir::FunctionKind::Kernel);
  ir::Op *op;
  Made(K kind, Ints shape, ir::Attrs a) {
    op = kit->create(kind, {kit->argument(kit->f.body, T(DType::F32, std::move(shape)))}, std::move(a));
  }
  std::optional<RegLayout> forward(const RegLayout &l) const { return ir::def(*op).layout.forward(*op, l); }
  std::optional<RegLayout> backward(const RegLayout &l) const { return ir::def(*op).layout.backward(*op, l); }
};

// Checks that every (register, lane, warp) holds in `result` the element that `map` makes of the operand's element.
template <typename F> static void check_moves(const RegLayout &operand, const RegLayout &result, F &&map) {
  CHECK(result.is_valid());
  REQUIRE(operand.num_regs() == result.num_regs());
  REQUIRE(operand.num_warps() == result.num_warps());
  for (int64_t w = 0; w < operand.num_warps(); w++)
    for (int64_t l = 0; l < 32; l++)
      for (int64_t r = 0; r < operand.num_regs(); r++) REQUIRE(result.coord(r, l, w) == map(operand.coord(r, l, w)));
}

TEST_CASE("structural layouts move with their elements, both ways") {
  Made t(K::Transpose, {8, 16, 4}, attrs({{"perm", Ints{2, 0, 1}}}));
  for (const RegLayout &l : layouts({8, 16, 4})) {
    auto f = t.forward(l);
    REQUIRE(f);
    check_moves(l, *f, [](Ints c) { return Ints{c[2], c[0], c[1]}; });
    CHECK(t.backward(*f) == l);
  }
  Made e(K::ExpandDims, {8, 16}, attrs({{"axis", int64_t(1)}}));
  for (const RegLayout &l : layouts({8, 16})) {
    auto f = e.forward(l);
    REQUIRE(f);
    check_moves(l, *f, [](Ints c) { return Ints{c[0], 0, c[1]}; });
    CHECK(e.backward(*f) == l);
  }
  Made r(K::Reshape, {8, 16}, attrs({{"shape", Ints{4, 2, 16}}}));
  for (const RegLayout &l : layouts({8, 16})) {
    auto f = r.forward(l);
    REQUIRE(f);
    check_moves(l, *f, [](Ints c) { return Ints{c[0] / 2, c[0] % 2, c[1]}; });
    CHECK(r.backward(*f) == l);
  }
  CHECK(!Made(K::Reshape, {4, 6}, attrs({{"shape", Ints{24}}})).forward(replicated({4, 6}, 1))); // padding differs
}

TEST_CASE("reductions and broadcasts drop the bits of their axis") {
  Made s(K::ReduceSum, {8, 16}, attrs({{"axis", int64_t(0)}}));
  Made b(K::Broadcast, {1, 16}, attrs({{"shape", Ints{8, 16}}}));
  for (const RegLayout &l : layouts({8, 16})) {
    auto f = s.forward(l);
    auto back = b.backward(l);
    REQUIRE(f);
    REQUIRE(back);
    CHECK(f->is_valid());
    CHECK(back->is_valid());
    CHECK(f->shape == Ints{16});
    CHECK(back->shape == Ints{1, 16});
    // Each thread holds, in some register, the element that stands above each of its own.
    for (int64_t w = 0; w < l.num_warps(); w++)
      for (int64_t lane = 0; lane < 32; lane++)
        for (int64_t r = 0; r < l.num_regs(); r++) {
          int64_t column = l.coord(r, lane, w)[1];
          bool in_sum = false, in_back = false;
          for (int64_t q = 0; q < f->num_regs(); q++) in_sum |= f->coord(q, lane, w) == Ints{column};
          for (int64_t q = 0; q < back->num_regs(); q++) in_back |= back->coord(q, lane, w) == Ints{0, column};
          REQUIRE((in_sum && in_back));
        }
  }
  CHECK(!ir::def(K::ReduceSum).layout.backward);
  Made scalar(K::Broadcast, {}, attrs({{"shape", Ints{8, 16}}}));
  CHECK(scalar.backward(replicated({8, 16}, 4)) == replicated({}, 4));
}

TEST_CASE("a slice is free where registers hold the bits that it drops") {
  Made s(K::Slice, {8, 64}, attrs({{"starts", Ints{4, 32}}, {"sizes", Ints{4, 32}}}));
  int64_t free = 0;
  for (const RegLayout &l : layouts({4, 32})) {
    auto whole = s.backward(l);
    REQUIRE(whole);
    CHECK(whole->is_valid());
    CHECK(whole->shape == Ints{8, 64});
    CHECK(s.forward(*whole) == l);
  }
  for (const RegLayout &l : layouts({8, 64})) free += s.forward(l).has_value();
  CHECK(free >= 1); // replicated
  Made odd(K::Slice, {8, 64}, attrs({{"starts", Ints{1, 0}}, {"sizes", Ints{4, 64}}}));
  // Off the grid of its size only where every thread holds whole columns.
  int64_t moved = 0, kept = 0;
  for (const RegLayout &l : layouts({4, 64})) {
    auto whole = odd.backward(l);
    BitMasks rows = l.axis_bits(0);
    if (!whole) {
      moved++;
      continue;
    }
    kept++;
    CHECK(!rows.lane);
    CHECK(!rows.warp);
    CHECK(whole->is_valid());
    CHECK(odd.forward(*whole) == l);
  }
  CHECK(moved >= 1);
  CHECK(kept >= 1);
}
