// The printer, the parser and the verifier.
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "ir_random.h"
#include "layout/fragments.h"
#include "support/diag_kinds.h"
#include <set>

using namespace tkc;
using namespace tkc::test;
using ir::Stage;

namespace {

struct Parsed {
  SourceManager sources;
  Diagnostics diags{sources};
  std::unique_ptr<ir::Function> f;
  explicit Parsed(const std::string &text) {
    int32_t id = sources.add("test.tkir", text);
    f = ir::parse_ir(sources.file(id).text(), diags, id);
  }
};

std::string round_trip(const std::string &text) {
  Parsed p(text);
  INFO(p.diags.render_all());
  REQUIRE(p.f != nullptr);
  return ir::print(*p.f);
}

std::vector<std::string> faults(const std::string &text, Stage stage) {
  Parsed p(text);
  INFO(p.diags.render_all());
  REQUIRE(p.f != nullptr);
  return ir::verify(*p.f, stage);
}

void replace(std::string &text, const std::string &from, const std::string &to) {
  size_t at = text.find(from);
  REQUIRE_MESSAGE(at != text.npos, "`" << from << "` is not in the text");
  text.replace(at, from.size(), to);
}

std::string join(const std::vector<std::string> &list) {
  std::string out;
  for (const std::string &s : list) out += s + "\n";
  return out;
}

const char *const kEverything = R"(kernel "odd name" {
  param x: in tensor<bf16>[?, 4096] dims [M + 1, 4096] strides(any)
  param y: out tensor<f32>[?] dims [cdiv(M, 4) * 2] optional
  param z: inout tensor<f32>[] optional absent
  param s: in f32
  size M
  size K
  bind BM = "4"
  bind "odd \"key\"" = "a\nb"
  grid (cdiv(M, 4), min(M, K) - (K - 1))
  order grouped(8)
  persistent
  warps 4
  where M % 16 == 0 && !(K < 3)
  where M - 3 <= -2 * (K + 1) || K / 2 >= 1
  shared 1024
  body (%x : tensor<bf16>[?, 4096], %y : tensor<f32>[?], %s : f32, %M : i32, %K : i32) {
    %0 = program_id : i32 {axis = 0}
    %c = constant : f32 {dtype = f32, value = 1.0}
    %c.1 = constant : f32 {dtype = f32, value = -0.0}
    %c.2 = constant : f32 {dtype = f32, value = inf}
    %c.3 = constant : f32 {dtype = f32, value = -inf}
    %c.4 = constant : f32 {dtype = f32, value = nan}
    %c.5 = constant : f64 {dtype = f64, value = 1e-300}
    %c.6 = constant : i64 {dtype = i64, value = -9223372036854775808}
    %1 = constant : i32 {dtype = i32, value = 0}
    %t = load %x, %0, %1 : tile<bf16>[4, 64] {sizes = [4, 64], drop = [0, 0], gather = [0, 0], has_mask = 0, has_other = 0, words = ["a", "b\\"], none = strings[], empty = [], in_bounds = [0, 1]}
    %u = cast %t : tile<f32>[4, 64] {dtype = f32}
    %acc, %n = for %1, %M, %K, %u, %1 : tile<f32>[4, 64], i32 {unroll = 2} do (%k : i32, %acc.1 : tile<f32>[4, 64], %n.1 : i32) {
      %p = lt %k, %n.1 : bool
      %acc.2 = if %p : tile<f32>[4, 64] do {
        %acc.3 = add %acc.1, %u : tile<f32>[4, 64]
        yield %acc.3
      } do {
        yield %acc.1
      }
      yield %acc.2, %k
    }
    %w = while %n : i32 do (%w.1 : i32) {
      %2 = gt %w.1, %1 : bool
      yield %2
    } do (%w.2 : i32) {
      %3 = sub %w.2, %0 : i32
      yield %3
    }
    return
  }
}
)";

const char *const kRecords = R"(kernel records {
  param x: inout tensor<i64>[?, 656] dims [M, 656] record "Rec"<"16", "bf16"> {a: bf16[16, 128], odd: u8[3], b: f32[16, 16]}
  param y: in tensor<i64>[?, 2] dims [M, 2] optional absent record "Plain" {v: f32[3]}
  size M
  grid (M)
  warps 1
  body (%x : tensor<i64>[?, 656], %M : i32) {
    %0 = constant : i32 {dtype = i32, value = 0}
    %b = record_field %x : tensor<f32>[?, 16, 16] {dtype = f32, shape = [16, 16], offset = 4224, pitch = [16, 1], swizzle = 64, field = "b"}
    %1 = load %b, %0, %0, %0 : tile<f32>[16, 16] {sizes = [1, 16, 16], drop = [1, 0, 0], gather = [0, 0, 0], has_mask = 0, has_other = 0}
    store %b, %0, %0, %0, %1 {sizes = [1, 16, 16], drop = [1, 0, 0], gather = [0, 0, 0], has_mask = 0}
    return
  }
}
)";

const char *const kLayouts = R"(kernel layouts {
  grid (1)
  warps 2
  shared 256
  body {
    %a = iota : tile<i32>[64] {n = 64, dtype = i32} layout(reg[] lane[1,2,4,8,16] warp[32])
    %0 = scratch_store %a : token {smem = smem_layout[64](4, 256, 16, smem[4,8,16,32,64,128]), offset = 0, l = reg_layout[64](reg[32] lane[1,2,4,8,16] warp[0])}
    block_barrier {scope = "block"}
    %b = scratch_load %0 : tile<i32>[64] layout(reg[1] lane[2,4,8,16,32] warp[0])
    return
  }
}
)";

} // namespace

TEST_CASE("text survives parsing and printing") {
  for (const char *text : {kEverything, kRecords, kLayouts}) CHECK(round_trip(text) == text);
}

TEST_CASE("parsing normalises what a person writes") {
  std::string text = R"(// a comment
kernel   k{ grid(1) body{
  %foo.7=constant:i32{dtype=i32,value=-3} // names are renumbered
  %foo = neg %foo.7 : i32
  return } })";
  CHECK(round_trip(text) == "kernel k {\n  grid (1)\n  body {\n    %foo = constant : i32 {dtype = i32, value = -3}\n"
                            "    %foo.1 = neg %foo : i32\n    return\n  }\n}\n");
}

TEST_CASE("locations are printed on request and read back") {
  Parsed p(kEverything);
  std::string text = ir::print(*p.f, {.locations = true});
  CHECK(text.find("program_id : i32 {axis = 0} loc(0, ") != text.npos);
  Parsed q(text);
  INFO(q.diags.render_all());
  REQUIRE(q.f != nullptr);
  CHECK(ir::print(*q.f, {.locations = true}) == text);
  CHECK(ir::print(*q.f) == kEverything);
}

TEST_CASE("random kernels survive printing and parsing, and are valid") {
  for (uint64_t seed = 0; seed < 300; seed++) {
    RandomKernel k(seed);
    std::string text = ir::print(k.function());
    INFO(text);
    REQUIRE(join(ir::verify(k.function(), Stage::typed)) == "");
    Parsed p(text);
    INFO(p.diags.render_all());
    REQUIRE(p.f != nullptr);
    CHECK(ir::print(*p.f) == text);
    CHECK(join(ir::verify(*p.f, Stage::typed)) == "");
    auto a = k.run(k.function()), b = k.run(*p.f);
    CHECK(a.z == b.z);
    CHECK(a.trap == b.trap);
  }
}

TEST_CASE("names do not depend on ids") {
  RandomKernel k(5);
  std::string before = ir::print(k.function());
  for (int i = 0; i < 10; i++) k.function().new_value(ir::Type::scalar(DType::I32));
  CHECK(ir::print(k.function()) == before);
  k.function().body->ops[0]->result()->name = "weird name-3.4";
  CHECK(ir::print(k.function()).find("%weird_name_3 = ") != std::string::npos);
}

TEST_CASE("size expressions survive parsing") {
  using E = ir::SizeExpr;
  Random rng(3);
  auto make = [&](auto &self, int depth) -> E {
    if (depth == 0 || rng.below(5) == 0)
      return rng.below(2) ? E::symbol(std::string(1, char('A' + rng.below(4)))) : E::constant(rng.below(20) - 6);
    auto op = E::Op(int(E::Op::Add) + rng.below(int64_t(E::Op::Not) - int64_t(E::Op::Add) + 1));
    return E::make(op, self(self, depth - 1), self(self, depth - 1));
  };
  for (int i = 0; i < 2000; i++) {
    E e = make(make, 4);
    auto back = ir::parse_size_expr(e.str());
    REQUIRE_MESSAGE(back.has_value(), e.str());
    CHECK(back->str() == e.str());
    auto value = [](const E &x) {
      return x.eval([](const std::string &s) { return std::optional<int64_t>(s[0] - 'A' + 2); });
    };
    CHECK(value(*back) == value(e));
  }
  for (const char *bad : {"", "M +", "(M", "cdiv(M)", "M N", "3x3", "99999999999999999999"})
    CHECK_MESSAGE(!ir::parse_size_expr(bad), bad);
}

TEST_CASE("faults of the text are reported where they are") {
  struct Case {
    const char *from, *to, *message, *at; // the fault is at the first `at` of the changed text
  } cases[] = {
      {"kernel", "colonel", "expected `kernel`", "colonel"},
      {"size K", "sighs K", "expected `param`, `size`", "sighs"},
      {"program_id", "program_idea", "there is no op `program_idea`", "program_idea"},
      {"add %acc.1, %u", "add %acc.1, %v", "%v is not defined", "%v"},
      {"tile<bf16>[4, 64] {sizes", "tile<bf16>[4, 64 {sizes", "expected `]`", "{sizes"},
      {"tile<f32>[4, 64], i32 {unroll", "tile<f32>[4, 64] {unroll", "2 results and 1 types", "{unroll"},
      {"i32 {axis = 0}", "i23 {axis = 0}", "`i23` is not a dtype", " {axis"},
      {"value = 1e-300", "value = 1e-3.0.0", "is not a number", "1e-3.0.0"},
      {"value = -9223372036854775808", "value = -9223372036854775809", "expected an integer", "-9223372036854775809"},
      {"%n.1 : i32) {", "%k : i32) {", "%k is defined twice", ") {\n      %p"},
      {"in f32\n", "of f32\n", "expected `in`", "of f32"},
      {"\"4\"\n", "\"4\n", "the string has no end", "\n  bind \"odd"},
      {"\"a\\nb\"", "\"a\\qb\"", "bad escape in a string", "b\"\n  grid"},
      {"    return\n  }\n}", "    return\n  }\n", "expected `}`", nullptr},
      {"    return\n  }\n}", "    return\n  }\n} more", "text after the end", "more"},
      {"M % 16 ==", "M % ==", "expected a name", "== 0"},
  };
  for (const Case &c : cases) {
    std::string text = kEverything;
    replace(text, c.from, c.to);
    Parsed p(text);
    INFO(std::string(c.to));
    CHECK(p.f == nullptr);
    REQUIRE(p.diags.all().size() == 1);
    CHECK_MESSAGE(p.diags.all()[0].text.find(c.message) != std::string::npos, p.diags.all()[0].text);
    CHECK(p.diags.all()[0].kind == DiagKind::syntax);
    if (c.at) CHECK(p.diags.all()[0].loc.begin == int32_t(text.find(c.at)));
  }
  std::string layouts = kLayouts;
  replace(layouts, "lane[1,2,4,8,16]", "lane[1,2,4,8]");
  CHECK(Parsed(layouts).f == nullptr);
  layouts = kLayouts;
  replace(layouts, "smem[4,8,16", "smem[4,8,x");
  CHECK(Parsed(layouts).f == nullptr);
  std::string deep = "kernel k { grid (1) body { %c = constant : bool {dtype = bool, value = 1} ";
  for (int i = 0; i < 20000; i++) deep += "if %c do { ";
  CHECK(Parsed(deep).f == nullptr);
  CHECK(Parsed("kernel k { grid (" + std::string(20000, '(') + "1").f == nullptr);
  CHECK(Parsed("kernel k { where " + std::string(20000, '!') + "1").f == nullptr);
}

TEST_CASE("any prefix and any damaged text is an error or a function, never a crash") {
  std::string text = kEverything;
  for (size_t n = 0; n + 1 < text.size(); n++) CHECK(Parsed(text.substr(0, n)).f == nullptr);
  Random rng(9);
  for (int i = 0; i < 2000; i++) {
    std::string t = text;
    for (int64_t k = 1 + rng.below(3); k > 0; k--) t[size_t(rng.below(int64_t(t.size())))] = char(32 + rng.below(95));
    Parsed p(t);
    CHECK((p.f != nullptr) == !p.diags.has_errors());
    if (p.f) CHECK(!ir::print(*p.f).empty());
  }
}

// ---- the verifier

namespace {

const char *const kTyped = R"(kernel typed {
  param x: in tensor<f32>[?, 64] dims [M, 64]
  param y: out tensor<f32>[?, 64] dims [M, 64]
  size M
  grid (M)
  warps 4
  body (%x : tensor<f32>[?, 64], %y : tensor<f32>[?, 64], %M : i32) {
    %i = program_id : i32 {axis = 0}
    %zero = constant : i32 {dtype = i32, value = 0}
    %one = constant : i32 {dtype = i32, value = 1}
    %i64 = constant : i64 {dtype = i64, value = 1}
    %t = load %x, %i, %zero : tile<f32>[4, 64] {sizes = [4, 64], drop = [0, 0], gather = [0, 0], has_mask = 0, has_other = 0}
    %acc = for %zero, %M, %one, %t : tile<f32>[4, 64] do (%k : i32, %acc.1 : tile<f32>[4, 64]) {
      %s = add %acc.1, %t : tile<f32>[4, 64]
      yield %s
    }
    %p = lt %i, %M : bool
    %r = if %p : i32 do {
      yield %i
    } do {
      yield %M
    }
    %w = while %r : i32 do (%w.1 : i32) {
      %q = gt %w.1, %zero : bool
      yield %q
    } do (%w.2 : i32) {
      %v = sub %w.2, %one : i32
      yield %v
    }
    %m = inline_ptx %t : tile<f32>[4, 64] {text = "abs.f32 $0, $1;", dtype = f32, effects = "pure", min_sm = 80} do (%a0 : f32) {
      %z = abs %a0 : f32
      yield %z
    }
    %sum = reduce_sum %acc : tile<f32>[4] {axis = 1}
    %x1 = subview %x, %i, %zero, %one : tensor<f32>[?] {ranges = [2, 1]}
    store %y, %i, %zero, %m {sizes = [4, 64], drop = [0, 0], gather = [0, 0], has_mask = 0}
    return
  }
}
)";

} // namespace

TEST_CASE("a valid function has no faults") { CHECK(join(faults(kTyped, Stage::typed)) == ""); }

TEST_CASE("each rule of a typed function has a function that breaks it") {
  struct Case {
    const char *from, *to, *message;
  } cases[] = {
      // the header
      {"(%x : tensor<f32>[?, 64], %y", "(%x : tensor<f32>[?, 32], %y", "entry argument 0 is a tensor<f32>[?, 32]"},
      {", %M : i32) {\n    %i", ", %M : i32, %N : i32) {\n    %i", "4 arguments for 3 parameters and sizes"},
      {"tensor<f32>[?, 64] dims [M, 64]", "tensor<f32>[?, 64] dims [M]", "1 dims for rank 2"},
      {"tensor<f32>[?, 64] dims [M, 64]", "tensor<f32>[?, 64] dims [64, M]",
       "extent 0 of parameter `x` is -1, its dim 64"},
      {"out tensor<f32>[?, 64] dims [M, 64]", "out tensor<f32>[?, 64] dims [M, 64] absent", "absent but not optional"},
      {"warps 4", "warps 6", "6 warps: not a power of two"},
      {"warps 4", "warps 64", "64 warps"},
      // blocks
      {"    return\n", "", "must end with return"},
      {"    return\n", "    return\n    return\n", "stands before the end of its block"},
      {"      yield %s\n", "", "must end with yield"},
      {"      yield %s\n", "      return\n", "must end with yield"},
      {"      %s = add %acc.1, %t : tile<f32>[4, 64]\n      yield %s\n", "", "a block is empty"},
      // control
      {"for %zero, %M, %one, %t", "for %zero, %M, %i64, %t", "lo, hi and step must be integers of one type"},
      {"%k : i32", "%k : i64", "the first argument of the body must be a i32"},
      {"%acc.1 : tile<f32>[4, 64]) {\n      %s = add %acc.1, %t", "%acc.1 : tile<f32>[4, 32]) {\n      %s = add %t, %t",
       "carried arguments"},
      {"      yield %s\n", "      yield %s, %k\n", "yielded values are"},
      {"%acc = for %zero, %M, %one, %t : tile<f32>[4, 64]", "%acc = for %zero, %M, %one, %t : tile<f32>[4, 32]",
       "results are"},
      {"yield %q", "yield %zero", "must yield one bool"},
      {"do (%w.1 : i32) {\n      %q = gt %w.1, %zero", "do (%w.1 : i64) {\n      %q = gt %zero, %zero",
       "arguments of the condition"},
      {"do (%w.2 : i32) {\n      %v = sub %w.2, %one", "do (%w.2 : i64) {\n      %v = sub %one, %one",
       "arguments of the body"},
      {"yield %v", "yield %zero, %zero", "yielded values are"},
      {"if %p : i32", "if %i : i32", "needs one bool"},
      {"      yield %M\n", "      yield\n", "yielded values are ()"},
      {"    } do {\n      yield %M\n    }\n", "    }\n", "has 1 regions, not 2"},
      {"%p = lt %i, %M : bool", "%p = lt %i, %M : bool do {\n      yield\n    }", "has 1 regions, not 0"},
      {"yield %z\n", "yield %a0, %z\n", "must be a function of one element"},
      {"(%a0 : f32)", "(%a0 : f32, %b : f32)", "must be a function of one element"},
      // attributes and types
      {"{axis = 0}", "", "attribute `axis` is missing"},
      {"{axis = 0}", "{axis = 0.5}", "attribute `axis` is of another type"},
      {"{axis = 0}", "{axis = 3}", "program_id"},
      {"%one = constant : i32 {dtype = i32, value = 1}", "%one = constant : i32 {dtype = i32, value = 1.0}",
       "attribute `value` is of another type"},
      {"drop = [0, 0], gather = [0, 0], has_mask = 0, has_other = 0",
       "drop = [0], gather = [0, 0], has_mask = 0, has_other = 0", "`drop` must have one entry per dim"},
      {"has_mask = 0, has_other = 0}", "has_mask = 0, has_other = 0, in_bounds = [1]}",
       "`in_bounds` must have one entry"},
      {"%sum = reduce_sum %acc : tile<f32>[4]", "%sum = reduce_sum %acc : tile<f32>[64]",
       "inference gives tile<f32>[4]"},
      {"%v = sub %w.2, %one : i32", "%v = sub %w.2, %t : i32", "`-` needs one dtype, but `a` is i32 and `b` is f32"},
      {", effects = \"pure\", min_sm = 80}", ", min_sm = 80}", "attribute `effects` is missing"},
      {"ranges = [2, 1]", "ranges = [2, 0]", "subview"},
      // effects
      {"store %y", "store %x", "writes the `in` parameter `x`"},
      // not before the layout search
      {"%p = lt", "%conv = convert_layout %t : tile<f32>[4, 64]\n    %p = lt", "made by passes"},
      {"%p = lt %i, %M : bool", "%p = lt %i, %M : bool layout(reg[] lane[0,0,0,0,0] warp[0,0])", "has a layout before"},
      {"%k : i32", "%k : i32 layout(reg[] lane[0,0,0,0,0] warp[0,0])", "has a layout before"},
      {"%p = lt", "block_barrier {scope = \"grid\"}\n    %p = lt", "unknown scope"},
      {"%p = lt", "%ds = dyn_slice %t, %i, %i : tile<f32>[1, 1] {sizes = [1, 1]}\n    %p = lt",
       "is for references only"},
  };
  for (const Case &c : cases) {
    std::string text = kTyped;
    replace(text, c.from, c.to);
    std::string found = join(faults(text, Stage::typed));
    INFO(text);
    CHECK_MESSAGE(found.find(c.message) != std::string::npos, found);
  }
}

TEST_CASE("links between values, ops and blocks are checked") {
  auto broken = [](auto &&change) {
    Parsed p(kTyped);
    REQUIRE(p.f != nullptr);
    change(*p.f);
    return join(ir::verify(*p.f, Stage::typed));
  };
  auto contains = [](const std::string &text, const char *part) { return text.find(part) != std::string::npos; };
  auto find = [](ir::Function &f, OpKind kind) {
    ir::Op *found = nullptr;
    ir::walk(f.body, [&](ir::Op *op) {
      if (op->kind == kind && !found) found = op;
    });
    REQUIRE(found != nullptr);
    return found;
  };
  CHECK(contains(broken([](ir::Function &f) { f.body = nullptr; }), "no body"));
  CHECK(contains(broken([&](ir::Function &f) { // uses the result of the loop inside it
                   find(f, OpKind::Add)->operands[0] = find(f, OpKind::For)->result();
                 }),
                 "used before its definition or out of its scope"));
  CHECK(contains(broken([&](ir::Function &f) { // uses a value of the loop after it
                   find(f, OpKind::ReduceSum)->operands[0] = find(f, OpKind::Add)->result();
                 }),
                 "out of its scope"));
  CHECK(contains(broken([&](ir::Function &f) { std::swap(f.body->ops[0], f.body->ops[4]); }),
                 "used before its definition"));
  CHECK(contains(broken([&](ir::Function &f) { find(f, OpKind::Add)->operands[0] = nullptr; }), "null operand"));
  CHECK(contains(broken([&](ir::Function &f) { find(f, OpKind::Add)->block = f.body; }), "is not linked to its block"));
  CHECK(contains(broken([&](ir::Function &f) { f.body->ops.insert(f.body->ops.begin(), f.body->ops[1]); }),
                 "stands in two places"));
  CHECK(contains(broken([](ir::Function &f) { f.body->ops[2]->results[0] = f.body->ops[1]->result(); }),
                 "defined twice"));
  CHECK(contains(broken([&](ir::Function &f) { find(f, OpKind::Add)->result()->op = nullptr; }),
                 "result 0 is not linked"));
  CHECK(contains(broken([&](ir::Function &f) { find(f, OpKind::For)->regions[0]->parent = nullptr; }),
                 "region is not linked"));
  CHECK(contains(broken([&](ir::Function &f) { find(f, OpKind::For)->regions[0]->args[1]->index = 0; }),
                 "is not linked to its block"));
  CHECK(contains(broken([&](ir::Function &f) { find(f, OpKind::Add)->result()->id = 0; }), "two values have id 0"));
  CHECK(contains(broken([&](ir::Function &f) { find(f, OpKind::Add)->result()->type.kind = ir::TypeKind::None; }),
                 "has no type"));
  CHECK(contains(broken([&](ir::Function &f) { find(f, OpKind::Add)->result()->type.shape = {4, 0}; }), "extent of 0"));
  CHECK(contains(broken([&](ir::Function &f) {
                   find(f, OpKind::Add)->result()->type.shape = {1, 1, 1, 1, 1};
                 }),
                 "has rank 5"));
}

// ---- layouts

namespace {

// Two warps. The loop keeps one layout, the product has its fragments, a conversion inside a warp is left.
std::string laid_out() {
  const MmaShape *shape = find_mma_shape("m16n8k16", DType::BF16);
  REQUIRE(shape != nullptr);
  WarpTiling tiling{2, 1, 1};
  auto layout = [&](Role role, Ints s) { return mma_operand_layout(*shape, role, s, tiling, false).to_string(); };
  std::string scalar = replicated({}, 2).to_string();
  return fmt::format(
      R"(kernel laid_out {{
  grid (1)
  warps 2
  body {{
    %s = constant : bf16 {{dtype = bf16, value = 1.0}} layout({3})
    %f = constant : f32 {{dtype = f32, value = 0.0}} layout({3})
    %zero = constant : i32 {{dtype = i32, value = 0}} layout({3})
    %a = broadcast %s : tile<bf16>[32, 16] {{shape = [32, 16]}} layout({0})
    %b = broadcast %s : tile<bf16>[16, 8] {{shape = [16, 8]}} layout({1})
    %c = broadcast %f : tile<f32>[32, 8] {{shape = [32, 8]}} layout({2})
    %acc = for %zero, %zero, %zero, %c : tile<f32>[32, 8] layout({2}) do (%k : i32 layout({3}), %acc.1 : tile<f32>[32, 8] layout({2})) {{
      %m = mma %a, %b, %acc.1 : tile<f32>[32, 8] {{acc = f32, precision = "tf32", shape = "m16n8k16", tiling = [2, 1, 1], transposed = 0}} layout({2})
      yield %m
    }}
    %p = constant : bool {{dtype = bool, value = 1}} layout({3})
    %i = if %p : tile<f32>[32, 8] layout({2}) do {{
      yield %acc
    }} do {{
      yield %c
    }}
    %w = while %i : tile<f32>[32, 8] layout({2}) do (%w.1 : tile<f32>[32, 8] layout({2})) {{
      yield %p
    }} do (%w.2 : tile<f32>[32, 8] layout({2})) {{
      yield %w.2
    }}
    %sum = add %acc, %w : tile<f32>[32, 8] layout({2})
    %t = transpose %sum : tile<f32>[8, 32] {{perm = [1, 0]}} layout({4})
    return
  }}
}}
)",
      layout(Role::A, {32, 16}), layout(Role::B, {16, 8}), layout(Role::C, {32, 8}), scalar,
      mma_operand_layout(*shape, Role::C, {32, 8}, tiling, false).permute(std::vector<int>{1, 0}).to_string());
}

} // namespace

TEST_CASE("layouts obey their rules") {
  std::string good = laid_out();
  CHECK(join(faults(good, Stage::laid_out)) == "");
  CHECK(join(faults(good, Stage::allocated)) == "");
  CHECK(join(faults(good, Stage::typed)).find("has a layout before") != std::string::npos);

  std::string other = blocked({32, 8}, std::vector<int>{1, 0}, 1, 2).to_string(),
              scalar = replicated({}, 2).to_string();
  // Replaces the layout that follows `after`.
  auto with = [&](const std::string &after, const std::string &to) {
    std::string text = good;
    size_t at = text.find("layout(", text.find(after)), end = text.find(')', at);
    REQUIRE(at != text.npos);
    text.replace(at, end + 1 - at, to);
    return join(faults(text, Stage::laid_out));
  };
  auto contains = [](const std::string &text, const char *part) { return text.find(part) != std::string::npos; };
  CHECK(contains(with("%sum =", ""), "has no layout"));
  CHECK(contains(with("(%k : i32", ""), "block argument %k: has no layout"));
  CHECK(contains(with("%sum =", "layout(" + other + ")"), "operands and results differ in layout"));
  CHECK(contains(with("%t =", "layout(" + blocked({8, 32}, std::vector<int>{1, 0}, 1, 2).to_string() + ")"),
                 "does not follow from the operand's"));
  CHECK(contains(with("%acc.1 : tile", "layout(" + other + ")"), "an initial value and its argument differ"));
  CHECK(contains(with("%acc = for", "layout(" + other + ")"), "a result and the yielded value differ"));
  CHECK(contains(with("%i = if", "layout(" + other + ")"), "a result and the yielded value differ"));
  CHECK(contains(with("%w.2 :", "layout(" + other + ")"), "an initial value and its argument differ"));
  CHECK(contains(with("%a =", "layout(" + blocked({32, 16}, std::vector<int>{1, 0}, 1, 2).to_string() + ")"),
                 "a has layout"));
  CHECK(contains(with("%m =", "layout(" + other + ")"), "the result has layout"));
  CHECK(contains(with("%sum =", "layout(" + blocked({32, 8}, std::vector<int>{1, 0}, 1, 4).to_string() + ")"),
                 "is for 4 warps, 2 have it"));

  auto changed = [&](const char *from, const char *to) {
    std::string text = good;
    replace(text, from, to);
    return join(faults(text, Stage::laid_out));
  };
  CHECK(contains(changed("warps 2", "warps 0"), "0 warps"));
  CHECK(contains(changed("transposed = 0", "other = 0"), "attribute `transposed` is missing"));
  CHECK(contains(changed("tiling = [2, 1, 1]", "tiling = [2, 2, 1]"), "`tiling` is not one of 2 warps"));
  CHECK(contains(changed("tiling = [2, 1, 1]", "tiling = [1, 1, 2]"), "the instruction needs"));
  CHECK(contains(changed("transposed = 0", "transposed = 1"), "the instruction needs"));
  CHECK(contains(changed("m16n8k16\"", "m16n8k17\""), "there is no instruction m16n8k17"));

  // Values whose layout has another shape, or is not valid, cannot be written as text.
  Parsed p(good);
  ir::Value *v = p.f->body->ops[3]->result();
  v->layout->shape = {16, 32};
  CHECK(contains(join(ir::verify(*p.f, Stage::laid_out)), "its layout has shape [16, 32]"));
  v->layout = RegLayout{{32, 16}, {1}, {2, 4, 8, 16, 32}, {64}};
  CHECK(contains(join(ir::verify(*p.f, Stage::laid_out)), "is not valid"));
}

TEST_CASE("conversions between warps are gone once scheduled") {
  auto text = [](const char *to) {
    return fmt::format("kernel k {{ grid (1) warps 2 body {{\n"
                       "%a = iota : tile<i32>[64] {{n = 64, dtype = i32}} layout(reg[] lane[1,2,4,8,16] warp[32])\n"
                       "%b = convert_layout %a : tile<i32>[64] layout({})\nreturn }} }}",
                       to);
  };
  const char *inside = "reg[] lane[16,8,4,2,1] warp[32]", *across = "reg[] lane[32,2,4,8,16] warp[1]";
  CHECK(join(faults(text(inside), Stage::scheduled)) == "");
  CHECK(join(faults(text(across), Stage::laid_out)) == "");
  CHECK(join(faults(text(across), Stage::scheduled)).find("moves data between warps") != std::string::npos);
}

// ---- shared memory

namespace {

std::string shared_kernel(const std::string &body, int64_t bytes = 256) {
  return fmt::format("kernel k {{ grid (1) warps 2 shared {} body {{\n"
                     "%lo = constant : i32 {{dtype = i32, value = 0}} layout(reg[] lane[0,0,0,0,0] warp[0])\n"
                     "%hi = constant : i32 {{dtype = i32, value = 4}} layout(reg[] lane[0,0,0,0,0] warp[0])\n"
                     "%c = constant : bool {{dtype = bool, value = 1}} layout(reg[] lane[0,0,0,0,0] warp[0])\n"
                     "%a = iota : tile<i32>[64] {{n = 64, dtype = i32}} layout(reg[] lane[1,2,4,8,16] warp[32])\n"
                     "{}return }} }}",
                     bytes, body);
}
std::string store(const char *name, int64_t offset, const char *value = "%a") {
  return fmt::format(
      "%{} = scratch_store {} : token {{smem = smem_layout[64](4, 256, 16, smem[4,8,16,32,64,128]), offset = {}}}\n",
      name, value, offset);
}
// Reads across warps; `own` reads what the warp itself stored, in other lanes.
std::string load(const char *name, const char *token) {
  return fmt::format("%{} = scratch_load %{} : tile<i32>[64] layout(reg[] lane[32,2,4,8,16] warp[1])\n", name, token);
}
std::string own(const char *name, const char *token) {
  return fmt::format("%{} = scratch_load %{} : tile<i32>[64] layout(reg[] lane[16,8,4,2,1] warp[32])\n", name, token);
}
const std::string kBar = "block_barrier {scope = \"block\"}\n", kWarp = "block_barrier {scope = \"warp\"}\n";
std::string loop(const std::string &body, const std::string &counter = "k") {
  return "for %lo, %hi, %hi do (%" + counter + " : i32 layout(reg[] lane[0,0,0,0,0] warp[0])) {\n" + body +
         "yield\n}\n";
}

} // namespace

TEST_CASE("accesses of shared memory are in range and ordered") {
  struct Case {
    std::string body;
    const char *message; // null: no fault
    int64_t bytes = 256;
  };
  std::string once = store("s", 0) + kBar + load("l", "s");
  std::string unplaced = store("s", 0);
  unplaced.replace(unplaced.find(", offset = 0"), 12, "");
  Case cases[] = {
      {once, nullptr},
      {unplaced + kBar + load("l", "s"), "attribute `offset` is missing"},
      {store("s", 8) + kBar + load("l", "s"), "offset 8 is not a multiple of 16", 512},
      {store("s", 16) + kBar + load("l", "s"), "passes the end of shared memory at 256"},
      {store("s", 0) + load("l", "s"), "reads shared memory without a barrier"},
      {store("s", 0) + kWarp + load("l", "s"), "without a block barrier"},
      {store("s", 0) + kWarp + own("l", "s"), nullptr},
      {store("s", 0) + own("l", "s"), "reads shared memory without a barrier"},
      // two buffers in one place
      {once + kBar + store("t", 0) + kBar + load("m", "t"), nullptr},
      {once + store("t", 0) + kBar + load("m", "t"), "overwrites shared memory without a block barrier"},
      {once + kWarp + store("t", 0) + kBar + load("m", "t"), "overwrites shared memory without a block barrier"},
      {once + store("t", 256) + kBar + load("m", "t"), nullptr, 512},
      {once + store("t", 128) + kBar + load("m", "t"), "overwrites shared memory", 512},
      {store("s", 0) + kBar + store("t", 0) + kBar + load("l", "s"), "may have been overwritten since"},
      // loops: the store of one iteration meets the load of the one before
      {loop(once), "overwrites its buffer without a barrier"},
      {loop(once + kBar), nullptr},
      {loop(kBar + once), nullptr},
      {loop(once + kWarp), "overwrites its buffer without a barrier"},
      {loop(store("s", 0) + kWarp + own("l", "s")), "overwrites its buffer without a barrier"},
      {loop(store("s", 0) + kWarp + own("l", "s") + kWarp), nullptr},
      {store("s", 0) + kBar + loop(load("l", "s") + kBar + store("t", 0) + kBar + load("m", "t")),
       "may have been overwritten since"},
      {loop(loop(once + kBar, "j") + store("t", 0) + kBar + load("m", "t")), "overwrites shared memory"},
      // branches: the barrier must be on every path
      {once + "if %c do {\n" + kBar + "yield\n} do {\nyield\n}\n" + store("t", 0), "overwrites shared memory"},
      {once + "if %c do {\n" + kBar + "yield\n} do {\n" + kBar + "yield\n}\n" + store("t", 0), nullptr},
      {"if %c do {\n" + once + "yield\n} do {\nyield\n}\n" + store("t", 0), "overwrites shared memory"},
      {once + "while do {\nyield %c\n} do {\n" + kBar + "yield\n}\n" + store("t", 0), "overwrites shared memory"},
      {once + "while do {\n" + kBar + "yield %c\n} do {\nyield\n}\n" + store("t", 0), nullptr},
  };
  for (const Case &c : cases) {
    std::string text = shared_kernel(c.body, c.bytes);
    INFO(text);
    std::string found = join(faults(text, Stage::allocated));
    if (c.message)
      CHECK_MESSAGE(found.find(c.message) != std::string::npos, found);
    else
      CHECK(found == "");
  }
}

TEST_CASE("the image of a record: aligned fields, and no bank conflicts as it lies") {
  using ir::RecordField;
  ir::Record r = ir::lay_out_record({"R",
                                     {},
                                     {{"a", DType::BF16, {32, 128}},
                                      {"odd", DType::U8, {3}},
                                      {"wide", DType::BF16, {16, 100}},
                                      {"b", DType::F32, {16, 8}},
                                      {"v", DType::F32, {5}}}});
  CHECK(r.fields[0].swizzle == 128);
  CHECK(r.fields[1].offset == 8192);
  CHECK(r.fields[2].offset == 8208); // behind 3 bytes, aligned to 16
  CHECK(r.fields[2].pitch == std::vector<int64_t>{104, 1});
  CHECK(r.fields[2].swizzle == 0);
  CHECK(r.fields[3].offset == 11648); // 8208 + 16 * 208 is 11536, aligned to 128
  CHECK(r.fields[3].swizzle == 32);
  CHECK(r.fields[4].offset == 12160);
  CHECK(r.bytes == 12288);
  CHECK(ir::lay_out_record({"S", {}, {{"v", DType::F32, {3}}}}).bytes == 16);
  for (DType t : {DType::U8, DType::BF16, DType::F32, DType::F64})
    for (int64_t rows : {2, 8, 32})
      for (int64_t columns : {2, 8, 16, 32, 64, 128, 256}) {
        RecordField f = ir::lay_out_record({"F", {}, {{"f", t, {rows, columns}}}}).fields[0];
        int64_t row = columns * dtype_bytes(t);
        CAPTURE(rows);
        CAPTURE(row);
        CHECK(f.swizzle == (row >= 32 ? std::min<int64_t>(row, 128) : 0));
        SmemLayout l = ir::field_layout(t, f.shape, f.swizzle);
        CHECK(l.is_valid());
        ir::ByteSwizzle s = ir::field_swizzle(t, f.shape, f.swizzle);
        for (int64_t i = 0; i < rows; i++)
          for (int64_t j = 0; j < columns; j++) {
            std::vector<int64_t> at{i, j};
            CHECK(int64_t(l.offset(at)) == s((i * columns + j) * dtype_bytes(t)));
          }
        if (rows < 8 || row < 16) continue;
        for (int64_t j = 0; j < row; j += 16) { // a chunk of eight rows: a matrix of ldmatrix
          std::set<int64_t> banks;
          for (int64_t i = 0; i < 8; i++) banks.insert(s(i * row + j) % 128 / 16);
          CHECK(banks.size() == 8);
        }
      }
}
