// The driver on a GPU that is host memory: sweeps, and A/B with its verification first.
#include "runtime/fake_driver.h" // first: it opens a namespace whose names others declare as well

#include "driver/ab.h"
#include "why.h"
#include <doctest/doctest.h>

using namespace tkc;
using namespace tkc::driver;

namespace {
const char *const kSource =
    R"(kernel scale<BN: int = 128>(x: tensor<f32>[N], a: f32, y: out tensor<f32>[N]) grid (cdiv(N, BN)) warps 4 {
    let i = program_id(0) * BN :+ BN;
    store(y[i], load(x[i]) * a);
}
kernel update(x: tensor<f32>[N], y: inout tensor<f32>[N]) grid (1) warps 4 {
    store(y[0 :+ 64], load(y[0 :+ 64]) + load(x[0 :+ 64]));
}
reference scale_ref(x: tensor<f64>[N], a: f64) -> tensor<f64>[N] { return x * a; }
reference update_ref(x, y: tensor<f64>[N]) -> tensor<f64>[N] { return x + y; }
verify scale { y = scale_ref(x, a); case one: N = 100, a = 2.5; case two: N = 4096, a = 0.5 on gpu; }
verify update { y = update_ref(x, y); case one: N = 64; }
bench scale { case big: N = 262144, a = 2.0; bytes = 8 * N; case small: N = 65536, a = 2.0; }
bench update { case big: N = 262144; }
)";

struct Parsed {
  SourceManager sources;
  Diagnostics diags{sources};
  std::unique_ptr<sema::Program> program;
  Parsed() {
    program = sema::Program::load(sources.add("scale.tk", kSource), diags);
    REQUIRE(program);
    REQUIRE_MESSAGE(!diags.has_errors(), diags.render_all());
  }
  const ast::Function *kernel(const std::string &name) { return program->find(name, ast::FunctionKind::Kernel); }
};

// y = factor a x for the entries that a launch may choose. `limit`: elements that are computed.
void add_scale(test::FakeGpu &gpu, float factor) {
  for (const char *name : {"scale", "scale__any"})
    gpu.kernels[name] = [&gpu, factor](const test::FakeLaunch &l) {
      uint64_t x = *static_cast<uint64_t *>(l.params[0]), y = *static_cast<uint64_t *>(l.params[2]);
      float a = *static_cast<float *>(l.params[1]);
      size_t n = size_t(*static_cast<int32_t *>(l.params[3]));
      auto *from = reinterpret_cast<float *>(gpu.at(x, 4 * n)), *to = reinterpret_cast<float *>(gpu.at(y, 4 * n));
      REQUIRE(from);
      REQUIRE(to);
      for (size_t i = 0; i < n; i++) to[i] = factor * a * from[i];
    };
  for (const char *name : {"update", "update__any"})
    gpu.kernels[name] = [&gpu](const test::FakeLaunch &l) {
      uint64_t x = *static_cast<uint64_t *>(l.params[0]), y = *static_cast<uint64_t *>(l.params[1]);
      auto *from = reinterpret_cast<float *>(gpu.at(x, 256)), *to = reinterpret_cast<float *>(gpu.at(y, 256));
      for (size_t i = 0; i < 64; i++) to[i] += from[i];
    };
}

struct Bench {
  test::FakeGpu gpu;
  cu::Api api = test::fake_api(gpu);
  std::unique_ptr<Device> device;
  Parsed source;
  AbOptions options;
  explicit Bench(float factor = 1) {
    add_scale(gpu, factor);
    auto opened = Device::open(0, &api);
    REQUIRE(opened.ok());
    device = std::move(*opened);
    options.base.executor = Executor::Gpu;
    options.base.device = device.get();
    options.base.compile.target = ir::find_target("sm_90");
    options.convention = {.rest_seconds = 0, .warmup = 1, .timed = 1};
  }
  AbSide side(const char *kernel, const char *variant) {
    return {source.program.get(), source.kernel(kernel), *parse_variant(variant), {}, &source.diags};
  }
};
} // namespace

TEST_CASE("variants of the command line") {
  Result<Variant> v = parse_variant("BM=64  -P BN=32 --maxnreg 128");
  REQUIRE(v.ok());
  CHECK(v->params == Setting{{"BM", "64"}, {"BN", "32"}});
  CHECK(v->max_registers == 128);
  CHECK(parse_variant("--maxnreg=64")->max_registers == 64);
  CHECK(parse_variant("BM=64 --schedule s.txt")->schedule == "s.txt");
  CHECK(parse_variant("--schedule=s.txt BM=64")->schedule == "s.txt");
  CHECK(parse_variant("")->params.empty());
  for (const char *bad :
       {"BM", "=3", "BM=", "--maxnreg", "--maxnreg x", "--maxnreg 0", "--schedule", "--nonsense 3", "-P"}) {
    CAPTURE(bad);
    CHECK_FALSE(parse_variant(bad).ok());
  }
}

TEST_CASE("sweeps: every combination, a table, the fastest line") {
  auto all = expand_sweep({{"BM", "64,128"}, {"BN", "32"}, {"C", "1,2,3"}});
  REQUIRE(all.ok());
  REQUIRE(all->size() == 6);
  CHECK(setting_text((*all)[0]) == "BM=64 BN=32 C=1");
  CHECK(setting_text((*all)[1]) == "BM=64 BN=32 C=2");
  CHECK(setting_text((*all)[5]) == "BM=128 BN=32 C=3");
  CHECK(expand_sweep({})->size() == 1);
  CHECK(expand_sweep({{"BM", "64,"}}).error() == "-P BM=64,: a value is missing");
  BenchRow slow, fast, misfit;
  slow.kernel = fast.kernel = misfit.kernel = "k";
  slow.name = fast.name = misfit.name = "c";
  slow.setting = {{"BM", "64"}};
  fast.setting = {{"BM", "128"}};
  misfit.setting = {{"BM", "256"}};
  slow.samples = {3e-6, 2e-6, 4e-6};
  fast.samples = {1e-6};
  fast.counts = {{"bytes", 4e6}};
  misfit.reason = "too much shared memory";
  std::string table = sweep_table({misfit, slow, fast});
  size_t a = table.find("BM=128"), b = table.find("BM=64 "), c = table.find("BM=256");
  CHECK(a < b);
  CHECK(b < c);
  CHECK(table.find("4.000 TB/s") != table.npos);
  CHECK(table.find("BM=256         does not fit: too much shared memory\n") != table.npos);
  CHECK(fastest_command({misfit, slow, fast}, "f.tk", "--arch sm_90") ==
        "tkc bench f.tk -k k --case c --arch sm_90 -P BM=128");
  CHECK(fastest_command({misfit}, "f.tk", "") == "");
  BenchRow trend = fast;
  for (double s : {1.01e-6, 1.02e-6, 1.03e-6, 1.04e-6, 1.05e-6}) trend.samples.push_back(s);
  CHECK(trend.drifts());
  CHECK(sweep_table({trend}).find("drifting") != std::string::npos);
  trend.samples.assign(10, 1e-6);
  CHECK_FALSE(trend.drifts());
}

TEST_CASE("stages are swept as parameters are") {
  CHECK(*expand_stages("3") == "3");
  CHECK(*expand_stages("1,2..4") == "1,2,3,4");
  for (const char *bad : {"", "0", "4..2", "2..", "x", "2,", "65", "2...4"})
    CHECK_MESSAGE(!expand_stages(bad).ok(), bad);
  auto settings = expand_sweep({{"BM", "64,128"}, {kStages, *expand_stages("2..3")}});
  REQUIRE(settings.ok());
  REQUIRE(settings->size() == 4);
  CHECK(setting_text((*settings)[3]) == "--stages=3 BM=128");
  BenchRow row;
  row.kernel = "gemm";
  row.name = "square";
  row.setting = (*settings)[3];
  row.samples = {1e-3};
  CHECK(fastest_command({row}, "gemm.tk", "") == "tkc bench gemm.tk -k gemm --case square --stages 3 -P BM=128");
  auto v = parse_variant("BM=64 --stages 2");
  REQUIRE(v.ok());
  CHECK(v->stages == 2);
  CHECK(v->params.size() == 1);
  CHECK_FALSE(parse_variant("--stages").ok());
  CHECK_FALSE(parse_variant("--stages=0").ok());
}

TEST_CASE("a sweep measures what fits and gives the reason for the rest") {
  Bench b;
  const ast::Function &k = *b.source.kernel("scale");
  const ast::Check &check = *b.source.program->check_for("scale", true);
  auto c = sema::evaluate_case(*b.source.program, k, check, check.cases[1], b.source.diags);
  REQUIRE(c);
  auto row = [&](const char *value) {
    return bench_case(*b.source.program, k, check, *c, b.options.base, {{"BN", value}}, 3, b.source.sources,
                      b.options.convention);
  };
  BenchRow good = row("256");
  CHECK_MESSAGE(good.fits(), good.reason);
  CHECK(good.samples.size() == 3);
  CHECK(good.seconds() == doctest::Approx(2.5e-3));
  CHECK(good.groups == 3 * (50 << 20) / (8 * 65536) + 1);
  CHECK(good.entry == "scale");
  BenchRow bad = row("-1");
  CHECK_FALSE(bad.fits());
  CHECK(!bad.reason.empty());
  CHECK_FALSE(b.source.diags.has_errors()); // a misfit is no error of the file
  b.gpu.fail["cuMemAlloc"] = 2;
  CHECK(row("256").reason.find("CUDA_ERROR_OUT_OF_MEMORY") != std::string::npos);
}

TEST_CASE("A/B: both sides are verified, share their inputs, and equal clocks give no difference") {
  Bench b;
  std::string verified;
  b.options.verified = [&](char side, const CaseResult &r) { verified += side + r.name + " "; };
  auto r = compare_sides(b.side("scale", "BN=64"), b.side("scale", "BN=256"), b.options);
  REQUIRE_MESSAGE(r.ok(), why(r));
  CHECK(verified == "aone atwo bone btwo ");
  CHECK_FALSE(r->mismatch);
  CHECK_FALSE(r->stopped);
  REQUIRE(r->cases.size() == 2);
  for (const AbCase &c : r->cases) {
    CHECK(c.shared_tensors);
    CHECK(c.inputs_a == c.inputs_b);
    CHECK(c.inputs_a.size() == 1);
    CHECK(c.samples.a.size() == 20);
    CHECK_FALSE(c.result.differs());
  }
  CHECK(r->cases[0].name == "big");
  CHECK(r->cases[0].inputs_a != r->cases[1].inputs_a);
  // A kernel that changes what it reads gets inputs of its own on each side, and they are the same.
  auto own = compare_sides(b.side("update", ""), b.side("update", "--maxnreg 64"), b.options);
  REQUIRE_MESSAGE(own.ok(), why(own));
  CHECK_FALSE(own->cases[0].shared_tensors);
  CHECK(own->cases[0].inputs_a == own->cases[0].inputs_b);
  CHECK(own->cases[0].inputs_a.size() == 2);
  b.options.base.only_case = "none";
  CHECK(compare_sides(b.side("scale", ""), b.side("scale", ""), b.options).error() ==
        "no bench block has a case `none`");
}

TEST_CASE("A/B: a side that is wrong is never timed") {
  Bench b(1.01f);
  int64_t checked = 0, rounds = 0;
  b.options.progress = [&](const std::string &, int64_t, int64_t) { return ++rounds, true; };
  b.options.verified = [&](char, const CaseResult &r) {
    checked++;
    CHECK_FALSE(r.pass());
  };
  auto r = compare_sides(b.side("scale", "BN=64"), b.side("scale", "BN=128"), b.options);
  REQUIRE_MESSAGE(r.ok(), why(r));
  CHECK(r->mismatch);
  CHECK(r->cases.empty());
  CHECK(checked == 4);
  CHECK(rounds == 0);
}

TEST_CASE("a kernel that uses up the emulator's instructions timed out") {
  Parsed p;
  VerifyOptions o;
  o.executor = Executor::Emu;
  o.compile.target = ir::find_target("sm_120");
  o.emu.instruction_budget = 5;
  std::vector<CaseResult> all;
  verify_kernel(*p.program, *p.kernel("scale"), *p.program->check_for("scale", false), o, p.diags,
                [&](const CaseResult &r) { all.push_back(r); });
  REQUIRE(all.size() == 1); // the rest is not tried
  CHECK(all[0].error_kind == ErrorKind::Timeout);
  CHECK(all[0].error.find("[instruction-budget]") != std::string::npos);
}

TEST_CASE("a kernel that hangs on the GPU timed out") {
  Bench b;
  b.gpu.busy = -1;
  b.options.base.limit_seconds = 0.01;
  auto r = compare_sides(b.side("scale", ""), b.side("scale", ""), b.options);
  REQUIRE_FALSE(r.ok());
  CHECK(r.kind() == ErrorKind::Timeout);
  CHECK(b.device->hung());
}

TEST_CASE("A/B stops where it is told, with the rounds that were measured") {
  Bench b;
  b.options.progress = [](const std::string &, int64_t done, int64_t) { return done < 7; };
  auto r = compare_sides(b.side("scale", ""), b.side("scale", ""), b.options);
  REQUIRE(r.ok());
  CHECK(r->stopped);
  REQUIRE(r->cases.size() == 1);
  CHECK(r->cases[0].result.rounds == 7);
  b.options.progress = [](const std::string &, int64_t done, int64_t) { return done < 2; };
  r = compare_sides(b.side("scale", ""), b.side("scale", ""), b.options);
  REQUIRE(r.ok());
  CHECK(r->stopped);
  CHECK(r->cases.empty());
}
