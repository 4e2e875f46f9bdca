// Code generation: the kernel around the ops, control flow, element-wise and structural ops, on the emulator against
// the interpreter; PTX of every target, assembled by ptxas where it is found.
#include "codegen/nvvm.h"
#include "codegen_kit.h"
#include "ir/parse.h"
#include "layout/fragments.h"
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <sstream>

using namespace tkc;
using namespace tkc::test;
using ir::SizeExpr;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

SizeExpr sym(const char *s) { return SizeExpr::symbol(s); }
SizeExpr number(int64_t v) { return SizeExpr::constant(v); }

// ---- ptxas

const std::string &ptxas() {
  static const std::string path = [] {
    for (const char *p : {std::getenv("TKC_PTXAS") ? std::getenv("TKC_PTXAS") : "ptxas", "/usr/local/cuda/bin/ptxas"})
      if (std::system(fmt::format("{} --version > /dev/null 2>&1", p).c_str()) == 0) return std::string(p);
    return std::string();
  }();
  return path;
}

// ptxas' messages, "" if it accepts the text; nullopt without ptxas.
std::optional<std::string> assemble(const std::string &ptx, const std::string &target) {
  if (ptxas().empty()) return std::nullopt;
  auto dir = std::filesystem::temp_directory_path() / fmt::format("tkc_codegen_test_{}", std::random_device()());
  std::filesystem::create_directories(dir);
  std::ofstream(dir / "k.ptx") << ptx;
  std::string log = (dir / "log").string();
  int status = std::system(
      fmt::format("{} -arch={} -v -o {}/k.cubin {}/k.ptx > {} 2>&1", ptxas(), target, dir.string(), dir.string(), log)
          .c_str());
  std::stringstream text;
  text << std::ifstream(log).rdbuf();
  std::filesystem::remove_all(dir);
  std::string said = text.str();
  if (status == 0 && said.find("0 bytes spill stores") != said.npos && said.find("warning") == said.npos) return "";
  return said.empty() ? "no message" : said;
}

// PTX for every target, assembled.
void assemble_everywhere(KernelKit &k, bool (*can)(const ir::Target &) = nullptr) {
  static bool told = false;
  if (ptxas().empty() && !told) MESSAGE("SKIPPED: no ptxas, PTX is not assembled");
  told = true;
  for (const ir::Target &t : ir::all_targets()) {
    if (can && !can(t)) continue;
    CAPTURE(t.name);
    codegen::EmitResult r = k.emit(t);
    REQUIRE_MESSAGE(r.ok, r.error);
    CHECK(r.ptx.find(fmt::format(".target {}", t.name)) != r.ptx.npos);
    CHECK(r.ptx.find(fmt::format(".version {}.{}", t.ptx_version / 10, t.ptx_version % 10)) != r.ptx.npos);
    CHECK(r.ptx.find(".local") == r.ptx.npos);
    if (auto log = assemble(r.ptx, t.name)) CHECK_MESSAGE(*log == "", *log << r.ptx);
  }
}

// ---- values

const std::vector<DType> kAllTypes = all_dtypes();
constexpr DType kMathTypes[] = {DType::F32, DType::F64, DType::F16, DType::BF16};

// Values of a dtype that are likely to be treated wrongly, then random ones; a power of two in number.
interp::Tile samples(DType t, int64_t n, uint64_t seed, double scale) {
  Random rng(seed);
  interp::Tile x(t, {n});
  if (is_float(t)) {
    std::vector<double> special = {0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, 1.5, 3.0, -2.5, 0.1, 100.0};
    for (size_t k = 0; k < x.f.size(); k++) {
      double v = k < special.size() ? special[k] : rng.uniform(-scale, scale);
      if (k % 7 == 3 && k >= special.size()) v *= std::exp2(-double(rng.below(20)));
      x.f[k] = round_to(t, v);
    }
    return x;
  }
  for (size_t k = 0; k < x.i.size(); k++) {
    int64_t v = int64_t(rng.next()) >> rng.below(64);
    if (k < 8) v = int64_t(k) - 4;
    if (k == 8) v = std::numeric_limits<int64_t>::min() >> (64 - dtype_bits(t));
    if (k == 9) v = ~(std::numeric_limits<int64_t>::min() >> (64 - dtype_bits(t)));
    x.i[k] = wrap_to(t, v);
  }
  return x;
}

struct MathCase {
  OpKind kind;
  double f32_ulps, precise_ulps, f64_ulps; // on the emulator, whose approximate instructions are exact
  double low, high;                        // of the arguments
  double absolute;                         // allowed besides, of the fast f32 form: where the result crosses zero
};
// Arguments of the fast forms stay where their stated error is a few ulp. f16 and bf16 must always be right to one ulp.
constexpr MathCase kMath[] = {
    {OpKind::Exp, 30, 3, 2, -40, 40, 0},     {OpKind::Exp2, 1, 1, 2, -100, 100, 0},
    {OpKind::Expm1, 3, 3, 3, -20, 40, 0},    {OpKind::Log, 2, 3, 3, 0, 50, 0},
    {OpKind::Log2, 1, 3, 3, 0, 50, 0},       {OpKind::Log1p, 3, 3, 3, -0.999, 50, 0},
    {OpKind::Sqrt, 1, 0, 0, 0, 1000, 0},     {OpKind::Rsqrt, 1, 1, 1, 0, 1000, 0},
    {OpKind::Rcp, 1, 0, 0, -1000, 1000, 0},  {OpKind::Sin, 1, 2, 3, -3, 3, 0},
    {OpKind::Cos, 1, 2, 3, -3, 3, 0},        {OpKind::Tanh, 4, 4, 4, -12, 12, 0},
    {OpKind::Sigmoid, 32, 5, 4, -40, 40, 0}, {OpKind::Erf, 4, 4, 4, -5, 5, 0},
};

KernelKit &unary(KernelKit &k, OpKind kind, interp::Tile x, ir::Attrs a = {}) {
  Ints shape = x.shape;
  ir::Value *t = k.in(std::move(x));
  ir::Value *v = k.value(kind, {k.load(t)}, std::move(a));
  k.store(k.out(v->type.dtype, shape), v);
  return k;
}
KernelKit &binary(KernelKit &k, OpKind kind, interp::Tile x, interp::Tile y, ir::Attrs a = {}) {
  Ints shape = x.shape;
  ir::Value *s = k.in(std::move(x)), *t = k.in(std::move(y));
  ir::Value *v = k.value(kind, {k.load(s), k.load(t)}, std::move(a));
  k.store(k.out(v->type.dtype, shape), v);
  return k;
}

} // namespace

// ---- the kernel around the ops

TEST_CASE("vector add: parameters, masks at the tail, PTX of every target") {
  for (int64_t m : {1000, 1024, 1}) {
    CAPTURE(m);
    KernelKit k(4);
    ir::Value *x = k.param(counting(DType::F32, {m}), false, {sym("M")});
    ir::Value *y = k.param(counting(DType::F32, {m}, 7), false, {sym("M")});
    ir::Value *z = k.param(interp::Tile(DType::F32, {m}), true, {sym("M")});
    k.size("M", m);
    k.f.grid = {SizeExpr::make(SizeExpr::Op::CDiv, sym("M"), number(256))};
    ir::Value *start =
        k.value(OpKind::Mul, {k.value(OpKind::ProgramId, {}, attrs({{"axis", int64_t(0)}})), k.i32(256)});
    ir::Value *sum = k.value(OpKind::Add, {k.load(x, {256}, {start}), k.load(y, {256}, {start})});
    k.store(z, sum, {start});
    k.check();
    CHECK(k.ptx.find(".reqntid 128") != k.ptx.npos);
    CHECK(k.ptx.find("// kernel k\n") != k.ptx.npos);
    CHECK(k.ptx.find("//   t2: inout tensor<f32>[M] strides [1]") != k.ptx.npos);
    CHECK(k.ptx.find("//   param  24: size    M (i32, 4 bytes)") != k.ptx.npos);
    CHECK(k.ptx.find("//   grid (cdiv(M, 256))") != k.ptx.npos);
    CHECK(k.ptx.find("//   block 128 threads, 0 bytes of dynamic shared memory") != k.ptx.npos);
    if (m == 1000) assemble_everywhere(k);
  }
}

TEST_CASE("scalar parameters of every dtype keep their place and value") {
  KernelKit k;
  std::vector<DType> types;
  std::vector<ir::Value *> outs;
  for (DType t : kAllTypes) {
    if (t == DType::E2M1) continue; // half a byte
    types.push_back(t);
    outs.push_back(k.out(t, {2}));
  }
  std::vector<ir::Value *> values;
  for (DType t : types)
    values.push_back(
        k.scalar_param(fmt::format("s_{}", dtype_name(t)), is_float(t) ? floats(t, {}, {2}) : ints(t, {}, {1})));
  for (size_t i = 0; i < types.size(); i++) k.store(outs[i], values[i]);
  k.check();
}

TEST_CASE("grids: every program once, in the stated order") {
  struct Case {
    Ints grid;
    int64_t group; // 0: no order
  };
  for (const Case &c : {Case{{5}, 0}, Case{{3, 4}, 0}, Case{{2, 3, 4}, 0}, Case{{2, 1, 3, 2}, 0}, Case{{7, 5}, 3},
                        Case{{8, 3}, 8}, Case{{5, 4, 2}, 2}, Case{{1, 1}, 4}}) {
    CAPTURE(ir::shape_str(c.grid));
    KernelKit k;
    Ints shape = c.grid;
    ir::Value *y = k.out(DType::I32, shape);
    k.f.grid.clear();
    for (size_t d = 0; d < c.grid.size(); d++) k.f.grid.push_back(SizeExpr::symbol(std::string(1, "ABCD"[d])));
    for (size_t d = 0; d < c.grid.size(); d++) k.size(std::string(1, "ABCD"[d]), c.grid[d]);
    if (c.group) k.f.order = "grouped", k.f.order_args = {c.group};
    std::vector<ir::Value *> ids;
    ir::Value *sum = k.i32(1);
    for (int64_t d = 0; d < int64_t(c.grid.size()); d++) {
      ids.push_back(k.value(OpKind::ProgramId, {}, attrs({{"axis", d}})));
      ir::Value *n = k.value(OpKind::NumPrograms, {}, attrs({{"axis", d}}));
      sum = k.value(OpKind::Add, {k.value(OpKind::Mul, {sum, n}), ids.back()});
    }
    k.store(y, sum, ids);
    k.check();
  }
}

TEST_CASE("size expressions are what the launcher computes") {
  const char *exprs[] = {
      "M",         "M + N * 3",         "cdiv(M, 7)",     "cdiv(M * N, 1000)",    "M * N / N",        "M % 13",
      "min(M, N)", "max(M - N, N - M)", "cdiv(M - N, 5)", "(M - N) / 3",          "(M - N) % 4",      "M * N % 1000003",
      "M < N",     "M == 5 || N > 3",   "!(M >= N)",      "M != N && N <= 70000", "M * 65536 / 65536"};
  for (auto [m, n] : {std::pair<int64_t, int64_t>{5, 3}, {1000, 70000}, {70000, 65000}, {0, 1}, {2147483647, 1}}) {
    KernelKit k;
    int64_t count = int64_t(std::size(exprs));
    ir::Value *y = k.out(DType::I32, {count});
    k.size("M", m);
    k.size("N", n);
    // As extents of the grid, which num_programs gives back; the launch below has one block whatever they are.
    k.f.grid = {number(1)};
    for (int64_t i = 0; i < count; i++) {
      auto e = *ir::parse_size_expr(exprs[i]);
      k.f.grid.push_back(e);
      ir::Value *v = k.value(OpKind::NumPrograms, {}, attrs({{"axis", i + 1}}));
      k.store(y, v, {k.i32(i)});
    }
    std::vector<SizeExpr> grid = k.f.grid;
    k.compile();
    emu::ParseResult module = emu::parse_ptx(k.ptx);
    REQUIRE(module.module);
    emu::Memory memory;
    uint64_t at = memory.allocate(count * 4, "y");
    emu::ParamWriter params(*emu::find_kernel(*module.module, "k"));
    params.set(0, at).set(1, int32_t(m)).set(2, int32_t(n));
    emu::Launch launch;
    launch.block[0] = 32;
    launch.params = params.bytes();
    REQUIRE(emu::run(*module.module, "k", memory, launch, {}).ok());
    for (int64_t i = 0; i < count; i++) {
      CAPTURE(exprs[i]);
      CAPTURE(m);
      CAPTURE(n);
      auto want = grid[size_t(i + 1)].eval([&](const std::string &s) { return s == "M" ? m : n; });
      int32_t got;
      std::memcpy(&got, memory.host(at) + i * 4, 4);
      if (want) CHECK(got == int32_t(*want));
    }
  }
}

TEST_CASE("two entries in one module, with and without alignment; the same bytes every time") {
  KernelKit k(4);
  ir::Value *x = k.param(counting(DType::BF16, {64, 64}), false, {sym("M"), number(64)});
  ir::Value *y = k.param(interp::Tile(DType::BF16, {64, 64}), true, {sym("M"), number(64)});
  k.size("M", 64);
  RegLayout l = blocked({16, 64}, std::vector<int>{1, 0}, 8, 4);
  ir::Value *v = k.load(x, {16, 64});
  v->layout = l;
  k.store(y, v);
  k.end(OpKind::Return, {});
  k.lay_out();
  codegen::Entry entries[] = {{&k.f, "k", true}, {&k.f, "k__any", false}};
  codegen::EmitResult r = codegen::emit(entries, *ir::find_target("sm_90"));
  REQUIRE_MESSAGE(r.ok, r.error);
  REQUIRE(r.abis.size() == 2);
  CHECK(occurrences(r.ptx, ".visible .entry") == 2);
  size_t second = r.ptx.find(".entry k__any");
  REQUIRE(second != r.ptx.npos);
  CHECK(r.ptx.substr(0, second).find("v4.b32") != r.ptx.npos);
  CHECK(r.ptx.substr(second).find("v4.b32") == r.ptx.npos);
  CHECK(r.ptx.find("ld.global.nc") != r.ptx.npos);
  CHECK(codegen::emit(entries, *ir::find_target("sm_90")).ptx == r.ptx);
  if (auto log = assemble(r.ptx, "sm_90")) CHECK_MESSAGE(*log == "", *log);
}

TEST_CASE("source lines: base names, and ptxas still optimises") {
  KernelKit k;
  k.with_lines = true;
  int32_t file = k.sources.add("/some/where/add.tk", "kernel k() {\n  let a = x;\n  store(y, a + a);\n}\n");
  k.f.loc = {file, 0, 6};
  ir::Value *x = k.in(counting(DType::F32, {64})), *y = k.out(DType::F32, {64});
  ir::Value *v = k.load(x);
  v->op->loc = {file, 15, 20};
  ir::Value *sum = k.value(OpKind::Add, {v, v});
  sum->op->loc = {file, 28, 33};
  k.store(y, sum);
  k.compile();
  INFO(k.ptx);
  CHECK(k.ptx.find("add.tk\"") != k.ptx.npos);
  CHECK(k.ptx.find("/some") == k.ptx.npos);
  CHECK(k.ptx.find(", debug") == k.ptx.npos);
  CHECK(k.ptx.find(".loc") != k.ptx.npos);
  CHECK(k.ptx.find(".loc\t1 3") != k.ptx.npos);
  if (auto log = assemble(k.ptx, "sm_90")) CHECK_MESSAGE(*log == "", *log);
}

TEST_CASE("options: registers and blocks per SM") {
  KernelKit k;
  unary(k, OpKind::Neg, counting(DType::F32, {64}));
  k.end(OpKind::Return, {});
  k.lay_out();
  codegen::Entry entry{&k.f, "k", false};
  codegen::EmitOptions o;
  o.max_registers = 64;
  o.min_blocks = 2;
  codegen::EmitResult r = codegen::emit({&entry, 1}, *ir::find_target("sm_80"), o);
  REQUIRE(r.ok);
  CHECK(r.ptx.find(".maxnreg 64") != r.ptx.npos);
  CHECK(r.ptx.find(".minnctapersm 2") != r.ptx.npos);
}

TEST_CASE("what LLVM cannot select is an internal error, and the next emission works") {
  KernelKit k;
  unary(k, OpKind::Cast, counting(DType::E4M3, {64}), attrs({{"dtype", DType::F32}}));
  ir::Target lying = *ir::find_target("sm_80");
  lying.features |= ir::kFp8;
  codegen::EmitResult r = k.emit(lying);
  CHECK(!r.ok);
  CHECK(r.ptx.empty());
  CHECK_MESSAGE(r.error.find("Cannot select") != r.error.npos, r.error);
  CHECK(k.emit(*ir::find_target("sm_89")).ok);
}

// ---- element-wise

TEST_CASE("functions of floats: accuracy against the interpreter") {
  for (const MathCase &c : kMath)
    for (DType t : kMathTypes)
      for (int64_t precise : {0, 1}) {
        if (t == DType::F64 && precise) continue;
        CAPTURE(ir::def(c.kind).name.s);
        CAPTURE(dtype_name(t));
        CAPTURE(precise);
        interp::Tile x(t, {1024});
        Random rng(uint64_t(c.kind) * 7 + uint64_t(t));
        for (double &v : x.f)
          v = round_to(t, rng.uniform(c.low, c.high) * (rng.below(3) ? 1 : std::exp2(-double(rng.below(12)))));
        for (double &v : x.f)
          if (v < c.low || v > c.high || std::fabs(v) < 1e-7) v = 1;
        KernelKit k;
        unary(k, c.kind, x, attrs({{"precise", precise}}));
        double ulps = t == DType::F64 ? c.f64_ulps : t == DType::F32 ? (precise ? c.precise_ulps : c.f32_ulps) : 1;
        // tanh.approx is exact on the emulator.
        k.check(ulps, c.absolute);
      }
}

TEST_CASE("functions of floats: infinities, NaN, zeros, overflow, subnormals") {
  const std::vector<double> edges = {0.0,    -0.0, kInfinity, -kInfinity, kNaN, 1000,  -1000, 1e30,     -1e30, 1e-30,
                                     -1e-30, 1,    -1,        -2,         88.7, -87.5, 6e4,   0x1p-130, 3e38,  -3e38};
  for (const MathCase &c : kMath)
    for (DType t : kMathTypes)
      for (int64_t precise : {0, 1}) {
        if (t == DType::F64 && precise) continue;
        bool circular = c.kind == OpKind::Sin || c.kind == OpKind::Cos;
        interp::Tile x(t, {64});
        for (size_t i = 0; i < x.f.size(); i++) {
          double v = edges[i % edges.size()];
          if (circular && std::isfinite(v) && std::fabs(v) > 100) v = 0.5; // the stated range of the fast form
          x.f[i] = round_to(t, v);
          if (circular && std::isinf(x.f[i])) x.f[i] = precise || t == DType::F64 ? kNaN : 1.0;
        }
        CAPTURE(ir::def(c.kind).name.s);
        CAPTURE(dtype_name(t));
        CAPTURE(precise);
        KernelKit k;
        unary(k, c.kind, x, attrs({{"precise", precise}}));
        // Fast forms flush subnormal arguments and results to zero, and lose digits of large arguments.
        k.emulate();
        REQUIRE(k.report.ok());
        interp::Result r = k.run();
        for (size_t i = 0; i < x.f.size(); i++) {
          double want = k.storages[1]->f[i], got = k.element(1, i), in = x.f[i];
          bool fast = t != DType::F64 && !precise;
          if (fast && std::fabs(in) < 0x1p-126 && in != 0) continue;
          if (fast && std::fabs(want) < 0x1p-125) want = std::fabs(got) < 0x1p-125 ? got : want;
          double error = std::fabs(got - want) / (want == 0 ? 0x1p-149 : std::fabs(want));
          CAPTURE(in);
          CAPTURE(got);
          CAPTURE(want);
          double allowed = t == DType::F16 ? 1e-3 : t == DType::BF16 ? 8e-3 : t == DType::F64 ? 2e-15 : 2e-5;
          CHECK((got == want || (std::isnan(got) && std::isnan(want)) || error <= allowed ||
                 std::fabs(got - want) <= (t == DType::F16 ? 0x1p-24 : 0x1p-149)));
        }
      }
}

TEST_CASE("pow") {
  for (DType t : kMathTypes)
    for (int64_t precise : {0, 1}) {
      CAPTURE(dtype_name(t));
      CAPTURE(precise);
      interp::Tile x(t, {256}), y(t, {256});
      Random rng(3);
      for (size_t i = 0; i < 256; i++) {
        bool negative = i % 5 == 0;
        x.f[i] = round_to(t, rng.uniform(0.1, 8) * (negative ? -1 : 1));
        y.f[i] = round_to(t, negative && i % 10 ? double(rng.below(9)) - 4 : rng.uniform(-4, 4));
      }
      x.f[0] = 0, y.f[0] = 0, x.f[1] = 1, y.f[1] = 3, x.f[2] = 2, y.f[2] = 0, x.f[3] = 0, y.f[3] = 2, x.f[4] = -2,
      y.f[4] = 3;
      KernelKit k;
      binary(k, OpKind::Pow, x, y, attrs({{"precise", precise}}));
      k.check(t == DType::F64 ? 32 : t == DType::F32 ? (precise ? 1 : 16) : 1);
    }
}

TEST_CASE("arithmetic and comparisons of every dtype") {
  constexpr OpKind both[] = {OpKind::Add, OpKind::Sub, OpKind::Mul, OpKind::Min, OpKind::Max, OpKind::Eq,
                             OpKind::Ne,  OpKind::Lt,  OpKind::Le,  OpKind::Gt,  OpKind::Ge};
  constexpr OpKind integers[] = {OpKind::And, OpKind::Or, OpKind::Xor, OpKind::Shl, OpKind::Shr};
  for (DType t : kAllTypes) {
    bool storage = t == DType::E4M3 || t == DType::E5M2 || t == DType::E2M1 || t == DType::UE8M0 || t == DType::UE4M3;
    if (storage) continue;
    CAPTURE(dtype_name(t));
    interp::Tile x = samples(t, 256, 11, 20), y = samples(t, 256, 12, 20);
    if (is_float(t)) {
      for (auto [i, v] : {std::pair<size_t, double>{20, kNaN}, {21, kInfinity}, {22, -kInfinity}, {30, kNaN}})
        x.f[i] = v;
      for (auto [i, v] : {std::pair<size_t, double>{20, 1}, {21, 1}, {22, -kInfinity}, {30, kNaN}, {31, kNaN}})
        y.f[i] = v;
      std::swap(y.f[0], y.f[1]); // 0 against -0
      for (size_t i = 100; i < 140; i++) y.f[i] = x.f[i];
    } else {
      for (size_t i = 100; i < 140; i++) y.i[i] = x.i[i];
      for (size_t i = 140; i < 240; i++) y.i[i] = wrap_to(t, int64_t(i % 70)); // shift amounts past the width too
      for (size_t i = 200; i < 220; i++) y.i[i] = wrap_to(t, int64_t(i) << 32 | int64_t(i % 70)); // small low words
    }
    KernelKit k;
    ir::Value *a = k.load(k.in(x)), *b = k.load(k.in(y));
    auto add = [&](OpKind kind) {
      ir::Value *v = k.value(kind, {a, b});
      k.store(k.out(v->type.dtype, {256}), v);
    };
    for (OpKind kind : both)
      if (t != DType::Bool || kind == OpKind::Eq || kind == OpKind::Ne) add(kind);
    if (!is_float(t))
      for (OpKind kind : integers)
        if (t != DType::Bool || (kind != OpKind::Shl && kind != OpKind::Shr)) add(kind);
    ir::Value *less = k.value(OpKind::Ne, {a, b});
    ir::Value *chosen = k.value(OpKind::Where, {less, a, b});
    k.store(k.out(t, {256}), chosen);
    k.check();
  }
}

TEST_CASE("signs, rounding, tests, fma of every dtype") {
  for (DType t : kAllTypes) {
    bool storage = t == DType::E4M3 || t == DType::E5M2 || t == DType::E2M1 || t == DType::UE8M0 || t == DType::UE4M3;
    if (storage) continue;
    CAPTURE(dtype_name(t));
    interp::Tile x = samples(t, 256, 21, 9), y = samples(t, 256, 22, 5), z = samples(t, 256, 23, 3);
    if (is_float(t)) x.f[20] = kNaN, x.f[21] = kInfinity, x.f[22] = -kInfinity;
    KernelKit k;
    ir::Value *a = k.load(k.in(x)), *b = k.load(k.in(y)), *c = k.load(k.in(z));
    auto keep = [&](ir::Value *v) { k.store(k.out(v->type.dtype, {256}), v); };
    if (t != DType::Bool) {
      for (OpKind kind : {OpKind::Neg, OpKind::Abs}) keep(k.value(kind, {a}));
      keep(k.value(OpKind::Fma, {a, b, c}));
    }
    if (!is_float(t)) keep(k.value(OpKind::Not, {a}));
    if (is_float(t))
      for (OpKind kind : {OpKind::Floor, OpKind::Ceil, OpKind::Round, OpKind::Trunc, OpKind::IsNan, OpKind::IsFinite})
        keep(k.value(kind, {a}));
    k.check();
  }
}

TEST_CASE("division of every dtype") {
  for (DType t : kAllTypes) {
    bool storage = t == DType::E4M3 || t == DType::E5M2 || t == DType::E2M1 || t == DType::UE8M0 || t == DType::UE4M3;
    if (storage || t == DType::Bool) continue;
    CAPTURE(dtype_name(t));
    interp::Tile x = samples(t, 256, 31, 50), y = samples(t, 256, 32, 10);
    for (double &v : y.f)
      if (v == 0 || std::fabs(v) < 1e-4) v = 1;
    for (int64_t &v : y.i)
      if (v == 0) v = 3;
    if (is_signed(t)) {
      x.i[40] = std::numeric_limits<int64_t>::min() >> (64 - dtype_bits(t));
      y.i[40] = y.i[41] = -1;
    }
    KernelKit k;
    ir::Value *a = k.load(k.in(x)), *b = k.load(k.in(y));
    ir::Value *q = k.value(OpKind::Div, {a, b});
    k.store(k.out(t, {256}), q);
    if (is_integer(t)) k.store(k.out(t, {256}), k.value(OpKind::Rem, {a, b}));
    k.check(t == DType::F32 ? 2 : t == DType::F16 || t == DType::BF16 || t == DType::TF32 ? 1 : 0);
    if (!is_float(t)) continue;
    KernelKit precise;
    binary(precise, OpKind::Div, x, y, attrs({{"precise", int64_t(1)}}));
    precise.check();
  }
}

TEST_CASE("a divisor that a row shares is inverted once") {
  KernelKit k;
  ir::Value *x = k.in(counting(DType::F32, {4, 256})), *s = k.in(counting(DType::F32, {4, 1}, 1)),
            *y = k.out(DType::F32, {4, 256});
  ir::Value *t = k.load(x);
  t->layout = blocked({4, 256}, std::vector<int>{1, 0}, 4, 1);
  ir::Value *d = k.load(s);
  d->layout = t->layout->broadcast_source(Ints{4, 1});
  ir::Value *wide = k.value(OpKind::Broadcast, {d}, attrs({{"shape", Ints{4, 256}}}));
  ir::Value *q = k.value(OpKind::Div, {t, wide});
  wide->layout = q->layout = t->layout;
  k.store(y, q);
  k.check(2);
  CHECK(occurrences(k.ptx, "rcp.approx") == 4);
}

TEST_CASE("pairs: 16-bit arithmetic is packed, conversions make two at a time") {
  KernelKit k;
  binary(k, OpKind::Mul, samples(DType::BF16, 256, 1, 4), samples(DType::BF16, 256, 2, 4));
  k.check();
  CHECK(occurrences(k.ptx, "mul.rn.bf16x2") + occurrences(k.ptx, "mul.bf16x2") == 4);
  KernelKit c;
  unary(c, OpKind::Cast, samples(DType::F32, 256, 3, 4), attrs({{"dtype", DType::BF16}}));
  c.check();
  CHECK(occurrences(c.ptx, "cvt.rn.bf16x2.f32") == 4);
  KernelKit e;
  unary(e, OpKind::Cast, samples(DType::F32, 256, 3, 4), attrs({{"dtype", DType::E4M3}}));
  e.check();
  CHECK(occurrences(e.ptx, "cvt.rn.satfinite.e4m3x2.f32") == 4);
}

TEST_CASE("casts between all dtypes") {
  for (const char *target : {"sm_90", "sm_80"})
    for (DType from : kAllTypes) {
      if (from == DType::E2M1) continue; // two to a byte in memory; as a result below
      KernelKit k;
      interp::Tile x = samples(from, 512, 41, 300);
      if (from == DType::E4M3 || from == DType::E5M2 || from == DType::UE4M3 || from == DType::UE8M0)
        for (size_t i = 0; i < 256; i++) x.f[i] = decode_float(from, i);
      else if (is_float(from)) {
        Random rng(5);
        for (size_t i = 0; i < 512; i++) {
          double scale = std::exp2(double(rng.below(80)) - 40);
          if (i > 100) x.f[i] = round_to(from, rng.uniform(-1, 1) * scale);
          if (i > 200 && i < 260) x.f[i] = round_to(from, double(rng.below(64)) * 0.5 * (i % 2 ? 1 : -1)); // ties
          if (i > 260 && i < 300)
            x.f[i] = round_to(from, std::exp2(double(i) - 280) * (1 + 0x1p-12 + (i % 3) * 0x1p-40));
        }
        for (auto [i, v] : {std::pair<size_t, double>{20, kNaN},
                            {21, kInfinity},
                            {22, -kInfinity},
                            {23, 1e38},
                            {24, -1e38},
                            {25, 448},
                            {26, 464},
                            {27, 480},
                            {28, 57344},
                            {29, 61440},
                            {30, 65520},
                            {31, 2147483648.0},
                            {32, -2147483649.0}})
          x.f[i] = round_to(from, v);
      }
      ir::Value *a = k.load(k.in(x));
      for (DType to : kAllTypes) {
        if (to == DType::E2M1) {
          ir::Value *v = k.value(OpKind::Cast, {a}, attrs({{"dtype", to}}));
          v = k.value(OpKind::Cast, {v}, attrs({{"dtype", DType::F32}}));
          k.store(k.out(DType::F32, {512}), v);
          continue;
        }
        // cvt.rna is what sm_80 has: ties go away from zero.
        if (to == DType::TF32 && std::string(target) == "sm_80") continue;
        k.store(k.out(to, {512}), k.value(OpKind::Cast, {a}, attrs({{"dtype", to}})));
      }
      CAPTURE(target);
      CAPTURE(dtype_name(from));
      k.check(0, 0, target);
    }
}

TEST_CASE("bitcasts") {
  for (auto [from, to] : {std::pair{DType::F32, DType::U32},
                          {DType::I16, DType::BF16},
                          {DType::F16, DType::U16},
                          {DType::F64, DType::I64},
                          {DType::I8, DType::E4M3},
                          {DType::E5M2, DType::U8},
                          {DType::I32, DType::U32}}) {
    KernelKit k;
    interp::Tile x = samples(from, 256, 51, 30);
    if (from == DType::I8) // the hardware knows one NaN
      for (int64_t &v : x.i) v = v == -1 || v == 127 ? 0 : v;
    unary(k, OpKind::Bitcast, x, attrs({{"dtype", to}}));
    k.check();
  }
}

// ---- structure

TEST_CASE("constants, iota, broadcast, transpose, reshape, expand_dims rename registers") {
  KernelKit k(2);
  ir::Value *x = k.in(counting(DType::I32, {8, 60}));
  ir::Value *t = k.load(x);
  t->layout = blocked({8, 60}, std::vector<int>{1, 0}, 2, 2);
  ir::Value *turned = k.value(OpKind::Transpose, {t});
  turned->layout = t->layout->permute(std::vector<int>{1, 0});
  k.store(k.out(DType::I32, {60, 8}), turned);

  ir::Value *row = k.value(OpKind::Iota, {}, attrs({{"n", int64_t(60)}}));
  ir::Value *expanded = k.value(OpKind::ExpandDims, {row}, attrs({{"axis", int64_t(0)}}));
  expanded->layout = t->layout->broadcast_source(Ints{1, 60});
  row->layout = expanded->layout->slice(0);
  ir::Value *wide = k.value(OpKind::Broadcast, {expanded}, attrs({{"shape", Ints{8, 60}}}));
  wide->layout = t->layout;
  ir::Value *seven = k.value(OpKind::Broadcast, {k.i32(7)}, attrs({{"shape", Ints{8, 60}}}));
  seven->layout = t->layout;
  ir::Value *sum = k.value(OpKind::Fma, {wide, seven, t});
  sum->layout = t->layout;
  k.store(k.out(DType::I32, {8, 60}), sum);

  ir::Value *s = k.load(k.in(counting(DType::BF16, {4, 32})));
  s->layout = blocked({4, 32}, std::vector<int>{1, 0}, 4, 2);
  ir::Value *flat = k.value(OpKind::Reshape, {s}, attrs({{"shape", Ints{2, 2, 8, 4}}}));
  flat->layout = *s->layout->reshape(Ints{2, 2, 8, 4});
  k.store(k.out(DType::BF16, {2, 2, 8, 4}), flat);
  ir::Value *real = k.value(OpKind::Iota, {}, attrs({{"n", int64_t(64)}, {"dtype", DType::F16}}));
  k.store(k.out(DType::F16, {64}), real);
  k.check();
}

TEST_CASE("slice, concat and insert select registers") {
  // Rows in lanes, columns in registers: any cut of the columns is free.
  auto rows = [](Ints shape) {
    RegLayout l;
    l.shape = shape;
    int columns = log2_ceil(shape[1]);
    for (int i = 0; i < columns; i++) l.reg.push_back(1u << i);
    for (int i = 0; i < 5; i++) l.lane.push_back(i < log2_ceil(shape[0]) ? 1u << (columns + i) : 0);
    return l;
  };
  KernelKit k(1);
  ir::Value *x = k.in(counting(DType::I32, {32, 24})), *y = k.in(counting(DType::I32, {32, 5}, 5000));
  ir::Value *t = k.load(x), *u = k.load(y);
  t->layout = rows({32, 24});
  u->layout = rows({32, 5});
  auto keep = [&](ir::Value *v) {
    v->layout = rows(v->type.shape);
    k.store(k.out(DType::I32, v->type.shape), v);
    return v;
  };
  keep(k.value(OpKind::Slice, {t}, attrs({{"starts", Ints{0, 8}}, {"sizes", Ints{32, 8}}})));
  keep(k.value(OpKind::Slice, {t}, attrs({{"starts", Ints{0, 16}}, {"sizes", Ints{32, 6}}})));
  ir::Value *odd = keep(k.value(OpKind::Slice, {t}, attrs({{"starts", Ints{0, 3}}, {"sizes", Ints{32, 5}}})));
  keep(k.value(OpKind::Insert, {t, u}, attrs({{"starts", Ints{0, 7}}})));
  keep(k.value(OpKind::Concat, {u, t, odd}, attrs({{"axis", int64_t(1)}})));
  k.check();

  // Extents that are no powers of two, cut along the lanes: the padding of the piece must not overwrite the whole.
  KernelKit p(1);
  ir::Value *a = p.load(p.in(counting(DType::I32, {64}))), *b = p.load(p.in(counting(DType::I32, {20}, 900)));
  RegLayout whole, piece;
  whole.shape = {64}, whole.reg = {32}, whole.lane = {1, 2, 4, 8, 16};
  piece.shape = {20}, piece.lane = whole.lane;
  a->layout = whole, b->layout = piece;
  ir::Value *v = p.value(OpKind::Insert, {a, b}, attrs({{"starts", Ints{32}}}));
  v->layout = whole;
  p.store(p.out(DType::I32, {64}), v);
  p.check();
}

// ---- control flow

TEST_CASE("for loops: trips, results, carried tiles") {
  for (auto [lo, hi, step] : {std::array<int64_t, 3>{0, 5, 1},
                              {0, 0, 1},
                              {3, 2, 1},
                              {1, 10, 4},
                              {-5, 5, 3},
                              {2147483640, 2147483647, 5},
                              {-2147483648, 2147483647, 2147483647}}) {
    for (int64_t unroll : {0, 4}) {
      CAPTURE(lo);
      CAPTURE(hi);
      CAPTURE(step);
      KernelKit k(1);
      ir::Value *x = k.in(counting(DType::F32, {64})), *y = k.out(DType::F32, {64}), *last = k.out(DType::I32, {1}),
                *b0 = k.in(ints(DType::I32, {3}, {lo, hi, step}));
      auto bound = [&](int64_t i) { return k.load_scalar(b0, i); };
      ir::Value *t = k.load(x);
      ir::Op *loop = k.b.create_typed(OpKind::For, {bound(0), bound(1), bound(2), t, k.i32(-1)},
                                      {t->type, ir::Type::scalar(DType::I32)}, attrs({{"unroll", unroll}}), {});
      ir::Block *body = k.f.new_block(loop);
      loop->regions = {body};
      ir::Value *iv = k.argument(body, ir::Type::scalar(DType::I32)), *acc = k.argument(body, t->type);
      k.argument(body, ir::Type::scalar(DType::I32));
      k.b.set_block(body);
      ir::Value *next = k.value(OpKind::Add, {acc, t});
      k.end(OpKind::Yield, {next, iv});
      k.b.set_block(k.f.body);
      k.store(y, loop->result(0));
      k.store(last, loop->result(1));
      k.check();
      // Two registers of a thread are added in an iteration. With a step that is not constant the copies of the body
      // keep their tests, in one loop; ptxas unrolls it no further, whether it was asked for or not.
      CHECK(occurrences(k.ptx, "add.rn.f32") + occurrences(k.ptx, "add.f32") == 2 * std::max<int64_t>(1, unroll));
      CHECK(occurrences(k.ptx, "nounroll") == 1);
    }
  }
}

TEST_CASE("while loops and branches") {
  for (int64_t start : {0, 3, 100, 27}) {
    CAPTURE(start);
    KernelKit k(1);
    ir::Value *n0 = k.load_scalar(k.in(ints(DType::I32, {1}, {start})), 0);
    ir::Value *t0 = k.load(k.in(counting(DType::F32, {64})));
    ir::Value *y = k.out(DType::F32, {64}), *m = k.out(DType::I32, {1});
    // Collatz: while n > 1 { n = n odd ? 3n + 1 : n / 2; t = odd ? t + 1 : t * 0.5 }
    ir::Op *loop = k.b.create_typed(OpKind::While, {n0, t0}, {n0->type, t0->type}, {}, {});
    ir::Block *cond = k.f.new_block(loop), *body = k.f.new_block(loop);
    loop->regions = {cond, body};
    ir::Value *n = k.argument(cond, n0->type);
    k.argument(cond, t0->type);
    k.b.set_block(cond);
    k.end(OpKind::Yield, {k.value(OpKind::Gt, {n, k.i32(1)})});
    n = k.argument(body, n0->type);
    ir::Value *t = k.argument(body, t0->type);
    k.b.set_block(body);
    ir::Value *odd = k.value(OpKind::Eq, {k.value(OpKind::And, {n, k.i32(1)}), k.i32(1)});
    ir::Op *branch = k.b.create_typed(OpKind::If, {odd}, {n0->type, t0->type}, {}, {});
    ir::Block *then = k.f.new_block(branch), *other = k.f.new_block(branch);
    branch->regions = {then, other};
    auto constant = [&](double v) {
      ir::Value *c = k.value(OpKind::Broadcast, {k.b.constant(DType::F32, v, {})}, attrs({{"shape", Ints{64}}}));
      return c;
    };
    k.b.set_block(then);
    ir::Value *up = k.value(OpKind::Add, {k.value(OpKind::Mul, {n, k.i32(3)}), k.i32(1)});
    k.end(OpKind::Yield, {up, k.value(OpKind::Add, {t, constant(1)})});
    k.b.set_block(other);
    ir::Value *down = k.value(OpKind::Div, {n, k.i32(2)});
    k.end(OpKind::Yield, {down, k.value(OpKind::Mul, {t, constant(0.5)})});
    k.b.set_block(body);
    k.end(OpKind::Yield, {branch->result(0), branch->result(1)});
    k.b.set_block(k.f.body);
    k.store(m, loop->result(0));
    k.store(y, loop->result(1));
    k.check();
  }
}

// ---- print, assert, inline PTX

TEST_CASE("print: scalars in the line, tiles element by element, each once") {
  KernelKit k(2);
  ir::Value *t = k.load(k.in(counting(DType::F32, {3, 2})));
  t->name = "t";
  t->layout = k.default_layout({3, 2});
  ir::Value *n = k.load_scalar(k.in(ints(DType::I32, {1}, {-7})), 0);
  k.create(OpKind::Print, {n, t}, attrs({{"format", std::string("n = {}, 50% {{t}}: {}")}}));
  k.store(k.out(DType::I32, {1}), n);
  k.emulate();
  REQUIRE(k.report.ok());
  INFO(k.report.printed);
  CHECK(k.report.printed.find("n = -7, 50% {t}: t[3, 2]\n") == 0);
  for (int64_t i = 0; i < 3; i++)
    for (int64_t j = 0; j < 2; j++)
      CHECK(occurrences(k.report.printed, fmt::format("t[{}, {}] = {}\n", i, j, 2 * i + j)) == 1);
  CHECK(occurrences(k.report.printed, "\n") == 7);
}

TEST_CASE("assert: true passes, padding does not count, false stops the launch") {
  for (int64_t bad : {-1, 59}) {
    KernelKit k(2);
    k.with_lines = true;
    int32_t file = k.sources.add("dir/a.tk", "kernel k() {\n  assert(x > 0);\n}\n");
    interp::Tile x(DType::F32, {60});
    for (double &v : x.f) v = 1;
    if (bad >= 0) x.f[size_t(bad)] = -1;
    ir::Value *t = k.load(k.in(x));
    ir::Value *zero = k.value(OpKind::Broadcast, {k.b.constant(DType::F32, 0, {})}, attrs({{"shape", Ints{60}}}));
    ir::Op *check =
        k.create(OpKind::Assert, {k.value(OpKind::Gt, {t, zero})}, attrs({{"message", std::string("x is positive")}}));
    check->loc = {file, 15, 28};
    k.f.loc = {file, 0, 6};
    k.store(k.out(DType::F32, {60}), t);
    k.emulate();
    CHECK(k.report.ok() == (bad < 0));
    if (bad < 0) continue;
    std::string all;
    for (const emu::Error &e : k.report.errors) all += emu::to_string(e);
    CHECK_MESSAGE(all.find("x is positive") != all.npos, all);
    CHECK_MESSAGE(all.find("a.tk") != all.npos, all);
  }
}

TEST_CASE("inline PTX: twelve operands, every dtype") {
  KernelKit k(1);
  std::vector<ir::Value *> operands;
  for (int64_t i = 1; i <= 12; i++) operands.push_back(k.load(k.in(counting(DType::I32, {64}, i * 100))));
  std::string text =
      "{\n.reg .b32 s;\nsub.s32 s, $10, $1;\nadd.s32 s, s, $11;\nsub.s32 s, s, $12;\nadd.s32 $0, s, $2;\n}";
  ir::Value *v = k.value(OpKind::InlinePtx, operands, attrs({{"text", text}, {"dtype", DType::I32}}));
  k.store(k.out(DType::I32, {64}), v);
  k.emulate();
  REQUIRE_MESSAGE(k.report.ok(), k.ptx);
  for (size_t i = 0; i < 64; i++) CHECK(k.element(12, i) == double(1000 - 100 + 1100 - 1200 + 200) + double(i));

  for (DType t : kAllTypes) {
    if (t == DType::E2M1) continue;
    CAPTURE(dtype_name(t));
    KernelKit m(1);
    const char *mov = t == DType::Bool                      ? "mov.pred $0, $1;"
                      : t == DType::F32 || t == DType::TF32 ? "mov.f32 $0, $1;"
                      : t == DType::F64                     ? "mov.f64 $0, $1;"
                      : dtype_bits(t) <= 16                 ? "mov.b16 $0, $1;"
                      : dtype_bits(t) == 32                 ? "mov.b32 $0, $1;"
                                                            : "mov.b64 $0, $1;";
    ir::Value *x = m.load(m.in(samples(t, 64, 61, 8)));
    ir::Value *r = m.value(OpKind::InlinePtx, {x}, attrs({{"text", std::string(mov)}, {"dtype", t}}));
    m.store(m.out(t, {64}), r);
    m.emulate();
    REQUIRE_MESSAGE(m.report.ok(), m.ptx);
    for (size_t i = 0; i < 64; i++) {
      double want = is_float(t) ? m.storages[0]->f[i] : double(m.storages[0]->i[i]);
      CHECK((m.element(1, i) == want || std::isnan(want)));
    }
    if (auto log = assemble(m.ptx, "sm_90")) CHECK_MESSAGE(*log == "", *log);
  }
}

// ---- every op on every target

TEST_CASE("every element-wise op of every dtype assembles for every target") {
  std::set<OpKind> seen;
  KernelKit k(4);
  for (DType t : kMathTypes) {
    ir::Value *a = k.load(k.in(samples(t, 256, 71, 4))), *b = k.load(k.in(samples(t, 256, 72, 4)));
    auto keep = [&](ir::Value *v) {
      seen.insert(v->op->kind);
      k.store(k.out(v->type.dtype, {256}), v);
    };
    for (const MathCase &c : kMath)
      for (int64_t precise : {0, 1}) keep(k.value(c.kind, {a}, attrs({{"precise", precise}})));
    for (OpKind kind : {OpKind::Neg, OpKind::Abs, OpKind::Floor, OpKind::Ceil, OpKind::Round, OpKind::Trunc,
                        OpKind::IsNan, OpKind::IsFinite})
      keep(k.value(kind, {a}));
    for (OpKind kind : {OpKind::Add, OpKind::Sub, OpKind::Mul, OpKind::Div, OpKind::Pow, OpKind::Min, OpKind::Max,
                        OpKind::Eq, OpKind::Ne, OpKind::Lt, OpKind::Le, OpKind::Gt, OpKind::Ge})
      keep(k.value(kind, {a, b}));
    keep(k.value(OpKind::Fma, {a, b, a}));
    for (DType to : kAllTypes) {
      if (to == DType::E2M1 || to == t) continue;
      keep(k.value(OpKind::Cast, {a}, attrs({{"dtype", to}})));
    }
  }
  for (DType t : {DType::I8, DType::U16, DType::I32, DType::U64}) {
    ir::Value *a = k.load(k.in(samples(t, 256, 73, 4))), *b = k.load(k.in(samples(t, 256, 74, 4)));
    auto keep = [&](ir::Value *v) {
      seen.insert(v->op->kind);
      k.store(k.out(v->type.dtype, {256}), v);
    };
    keep(k.value(OpKind::Not, {a}));
    for (OpKind kind : {OpKind::Div, OpKind::Rem, OpKind::And, OpKind::Or, OpKind::Xor, OpKind::Shl, OpKind::Shr})
      keep(k.value(kind, {a, b}));
    keep(k.value(OpKind::Where, {k.value(OpKind::Lt, {a, b}), a, b}));
    keep(k.value(OpKind::Cast, {a}, attrs({{"dtype", DType::BF16}})));
    keep(k.value(OpKind::Bitcast, {a},
                 attrs({{"dtype", t == DType::I8    ? DType::U8
                                  : t == DType::U16 ? DType::F16
                                  : t == DType::I32 ? DType::F32
                                                    : DType::F64}})));
  }
  assemble_everywhere(k);
  // The family is the one that ops.def names: an op added there must be added here.
#define TKC_OP(kind, family)                                                                                           \
  if (std::string(#family) == "elementwise") CHECK_MESSAGE(seen.count(OpKind::kind), #kind << " is not in this test");
#include "ir/ops.def"
#undef TKC_OP
}

TEST_CASE("the table of mma instructions agrees with the fragments of the layouts") {
  CHECK(codegen::llvm_version().starts_with("22."));
  for (const codegen::nvvm::Mma &m : codegen::nvvm::all_mma()) {
    CAPTURE(m.shape);
    CAPTURE(dtype_name(m.a));
    const MmaShape *shape = find_mma_shape(m.shape, m.a);
    REQUIRE(shape);
    for (const ir::Target &target : ir::all_targets())
      if (codegen::nvvm::find_mma(m.shape, m.a, m.b, m.acc, target)) CHECK(target.sm >= shape->min_sm);
    auto registers = [](int elements, int64_t bits) { return elements * int(bits) / 32 / (bits == 64 ? 64 : 32); };
    CHECK(m.a_regs == registers(shape->m * shape->k, shape->elem_bits));
    CHECK(m.b_regs == registers(shape->k * shape->n, shape->elem_bits));
    CHECK(m.c_regs == registers(shape->m * shape->n, dtype_bits(m.acc)));
  }
  // Every shape that a layout can ask for has an instruction on a target that the shape allows.
  for (const MmaShape &shape : mma_shapes())
    for (int i = 0; i < shape.dtype_count; i++) {
      DType t = shape.dtypes[size_t(i)], acc = t == DType::F64 ? t : is_integer(t) ? DType::I32 : DType::F32;
      CAPTURE(shape.name);
      CAPTURE(dtype_name(t));
      for (const ir::Target &target : ir::all_targets())
        if (target.sm >= shape.min_sm) CHECK(codegen::nvvm::find_mma(shape.name, t, t, acc, target));
    }
}
