// Programs: the plan of given sizes, its workspace and its errors; launches on streams and in a graph.
#include "runtime/fake_driver.h" // first: it opens a namespace whose names others declare as well

#include "driver/bench.h"
#include "driver/c_header_text.h"
#include "driver/manifest.h"
#include "driver/program_gpu.h"
#include "ir/target.h"
#include "runtime/file_io.h"
#include "syntax/parse.h"
#include "why.h"
#include <cstring>
#include <doctest/doctest.h>
#include <filesystem>

using namespace tkc;
using namespace tkc::driver;

namespace {
const char *const kKernels = R"(
kernel copy(x: tensor<f32>[N], y: out tensor<f32>[N]) grid (cdiv(N, 32)) warps 1 {
    let i = program_id(0) * 32 :+ 32;
    store(y[i], load(x[i]));
}
kernel add(x, y: tensor<f32>[N], z: out tensor<f32>[N]) grid (cdiv(N, 32)) warps 1 where N < 100000 {
    let i = program_id(0) * 32 :+ 32;
    store(z[i], load(x[i]) + load(y[i]));
}
)";

struct Planned {
  SourceManager sources;
  Diagnostics diags{sources};
  std::unique_ptr<sema::Program> program;
  std::unique_ptr<sema::HostProgram> host;

  explicit Planned(const std::string &text) {
    program = sema::Program::load(sources.add("p.tk", kKernels + text), diags);
    REQUIRE_MESSAGE(program, diags.render_all());
    host = sema::instantiate_program(*program, *program->programs().at(0), {}, nullptr, diags);
    REQUIRE_MESSAGE(host, diags.render_all());
  }
  // All tensors of one extent.
  Result<Plan> plan(int64_t n, DeviceFacts device = {132, 1 << 20, 1 << 17, 90}) {
    LaunchData data;
    for (const std::string &s : host->header->sizes) data.sizes[s] = n;
    for (const ir::Param &p : host->header->params) {
      data.tensors.emplace_back();
      if (p.type.is_tensor()) data.tensors.back() = HostTensor::zeros(p.type.dtype, *extents(*host->header, p, data));
    }
    return make_plan(*host, data, device, sources);
  }
  std::string error(int64_t n) {
    auto p = plan(n);
    REQUIRE_FALSE(p.ok());
    return p.error();
  }
};

// A fake GPU of sm_90, opened, and options that run on it.
struct FakeDevice {
  test::FakeGpu gpu;
  cu::Api api = test::fake_api(gpu);
  std::unique_ptr<Device> device;
  VerifyOptions o;
  FakeDevice() {
    auto opened = Device::open(0, &api);
    REQUIRE(opened.ok());
    device = std::move(*opened);
    o.executor = Executor::Gpu;
    o.device = device.get();
    o.compile.target = ir::find_target("sm_90");
  }
};

// y = x and z = x + y as C++, for both entries.
void add_kernels(test::FakeGpu &gpu) {
  auto floats = [&gpu](const test::FakeLaunch &l, size_t i, size_t n) {
    auto *p = reinterpret_cast<float *>(gpu.at(*static_cast<uint64_t *>(l.params[i]), 4 * n));
    REQUIRE(p);
    return p;
  };
  for (const char *name : {"copy", "copy__any"})
    gpu.kernels[name] = [=](const test::FakeLaunch &l) {
      size_t n = size_t(*static_cast<int32_t *>(l.params[2]));
      std::copy_n(floats(l, 0, n), n, floats(l, 1, n));
    };
  for (const char *name : {"add", "add__any"})
    gpu.kernels[name] = [=](const test::FakeLaunch &l) {
      size_t n = size_t(*static_cast<int32_t *>(l.params[3]));
      for (size_t i = 0; i < n; i++) floats(l, 2, n)[i] = floats(l, 0, n)[i] + floats(l, 1, n)[i];
    };
}

const char *const kChecked = R"(
program p(x: tensor<f32>[N], y: out tensor<f32>[N], z: out tensor<f32>[N]) {
    let a = alloc<f32>[N];
    let b = alloc<f32>[N];
    launch copy(x, a);
    parallel { launch copy(a, b); launch add(a, x, y); launch copy(x[0 : N - 1], z[1 : N]); }
    launch add(b, a, z);
}
verify p { y = 2 * x; z = 2 * x; case one: N = 100; }
bench p { case one: N = 1000; bytes = 12 * N; }
)";
} // namespace

TEST_CASE("temporaries share bytes when their lives do not overlap, and only then") {
  Planned p(R"(program p(x: tensor<f32>[N], y: out tensor<f32>[N]) {
    let a = alloc<f32>[N];
    let b = alloc<f32>[2 * N];
    let c = alloc<f32>[N];
    let d = alloc<f32>[N];
    launch copy(x, a);
    launch copy(a, b[N : 2 * N]);
    launch copy(b[N : 2 * N], c);
    parallel { launch copy(c, d); launch copy(x, y); }
    launch add(d, x, y);
})");
  for (int64_t n : {1, 64, 100, 1000}) {
    auto plan = p.plan(n);
    REQUIRE_MESSAGE(plan.ok(), why(plan));
    CHECK(plan->launches.size() == 6);
    CHECK(plan->steps == 5);
    CHECK(plan->launches[3].step == plan->launches[4].step);
    const auto &t = plan->temporaries;
    for (size_t i = 0; i < t.size(); i++) {
      CHECK(t[i].offset % kWorkspaceAlign == 0);
      CHECK(t[i].offset + t[i].bytes <= plan->workspace_bytes);
      for (size_t j = 0; j < i; j++) {
        bool alive = t[i].first <= t[j].last && t[j].first <= t[i].last;
        bool share = t[i].offset < t[j].offset + t[j].bytes && t[j].offset < t[i].offset + t[i].bytes;
        CHECK_FALSE((alive && share));
      }
    }
    // a, b, c and d are alive in pairs: b and one other are the most at a time.
    int64_t unit = (4 * n + 255) / 256 * 256;
    CHECK(plan->workspace_bytes <= (8 * n + 255) / 256 * 256 + unit);
    CHECK(t[0].offset == t[2].offset);
    CHECK(ended_by(*plan, 2) == std::vector<size_t>{0}); // c takes the bytes of a
  }
}

TEST_CASE("the plan as text") {
  Planned p(R"(program p(x: tensor<f32>[N], y: out tensor<f32>[N]) {
    if device.sms >= 100 { let a = alloc<f32>[N]; launch copy(x, a); launch copy(a, y); } else { launch copy(x, y); }
    for i in 0 : N step 40 { launch copy(x[i : min(i + 40, N)], y[i : min(i + 40, N)]); }
})");
  CHECK(p.plan(70)->to_string() == "program p: 4 launches, workspace 280 bytes\n"
                                   "  a: f32[70]  280 bytes at 0, steps 0 to 1\n"
                                   "  step 0: copy grid [3]: x = x, y = a\n"
                                   "  step 1: copy grid [3]: x = a, y = y\n"
                                   "  step 2: copy grid [2]: x = x[0 : 40], y = y[0 : 40]\n"
                                   "  step 3: copy grid [1]: x = x[40 : 70], y = y[40 : 70]\n");
  CHECK(p.plan(30, {8, 0, 0, 90})->launches.size() == 2);
  CHECK(p.plan(0)->launches.empty()); // empty grids are left out
}

TEST_CASE("what does not fit is said with its place") {
  auto error = [](const char *body, int64_t n = 64) {
    return Planned(
               fmt::format("program p(x: tensor<f32>[N], w: tensor<f32>[N + 1], y: out tensor<f32>[N]) {{ {} }}", body))
        .error(n);
  };
  CHECK(error("launch copy(x[0 : 65], y);") == "p.tk:10:92: 0 : 65 lies outside of dim 0 of `x`, whose extent is 64");
  CHECK(error("launch copy(x, y[N - 65 :+ 64]);") ==
        "p.tk:10:95: -1 : 63 lies outside of dim 0 of `y`, whose extent is 64");
  CHECK(error("launch copy(w, y);") == "p.tk:10:93: dim 0 of `y` of kernel `copy` is N = 65, found 64");
  CHECK(error("launch add(x, x, y);", 100000).find("`where N < 100000` does not hold") != std::string::npos);
  CHECK(error("launch copy(x[0 : 10], y[0 : 10]); launch copy(y[5 : 15], y[14 : 24]);")
            .find("`x` and `y` of kernel `copy` overlap in `y`") != std::string::npos);
  CHECK(error("parallel { launch copy(x[0 : 10], y[0 : 10]); launch copy(x[0 : 10], y[9 : 19]); }")
            .find("share a part of `y`") != std::string::npos);
  CHECK(error("let t = alloc<f32>[N]; if N > 70 { launch copy(x, t); } launch copy(t, y);").find("`t` is read here") !=
        std::string::npos);
  CHECK(error("for i in 0 : N step N - 64 { launch copy(x, y); }").find("the step of this loop is 0") !=
        std::string::npos);
  CHECK(error("launch copy(x[0 : N / (N - 64)], y);").find("has no value for these sizes") != std::string::npos);
  CHECK(error("let t = alloc<f32>[N * N * N * N * N * N]; launch copy(x, y); launch copy(x[0 : 1], t[0 : 1]);")
            .find("the extent") != std::string::npos);
  CHECK(error("for i in 0 : N * N * N { launch copy(x, y); }").find("more than 65536") != std::string::npos);
}

TEST_CASE("the emulator finds reads of a workspace that no launch wrote") {
  VerifyOptions o;
  o.executor = Executor::Emu;
  o.compile.target = ir::find_target("sm_90");
  Planned p(R"(
kernel half(x: tensor<f32>[N], y: out tensor<f32>[N]) grid (1) warps 1 { store(y[0 :+ 32], load(x[0 :+ 32])); }
program p(x: tensor<f32>[N], y: out tensor<f32>[N]) {
    let t = alloc<f32>[N];
    launch half(x, t);
    launch copy(t, y);
}
verify p { y = x; case one: N = 64; })");
  verify_kernel(*p.program, *p.host->ast, *p.program->check_for("p", false), o, p.diags, [](const CaseResult &r) {
    CHECK(r.error.starts_with("launch 1 (copy): "));
    CHECK(r.error.find("byte 128 of t is read and was never written") != std::string::npos);
  });
}

TEST_CASE("the emulator finds temporaries that share bytes while both are needed") {
  Planned p(R"(program p(x: tensor<f32>[N], y: out tensor<f32>[N]) {
    let a = alloc<f32>[N];
    let b = alloc<f32>[N];
    launch copy(x, a);
    launch copy(x, b);
    launch add(a, b, y);
})");
  CompileOptions options;
  options.target = ir::find_target("sm_90");
  auto compiled = compile_program(*p.program, *p.host, options, p.diags);
  REQUIRE(compiled);
  auto plan = p.plan(64);
  REQUIRE(plan.ok());
  for (bool broken : {false, true}) {
    LaunchData data;
    data.sizes["N"] = 64;
    data.tensors = {HostTensor::zeros(DType::F32, {64}), HostTensor::zeros(DType::F32, {64})};
    if (broken) { // as a plan that takes `a` for dead after its first launch
      plan->temporaries[0].last = 0;
      plan->temporaries[1].offset = plan->temporaries[0].offset;
    }
    std::string printed;
    Status ran = run_emu(*plan, *compiled, data, {}, printed);
    CHECK(ran.ok() == !broken);
    if (broken) CHECK(ran.error().starts_with("launch 2 (add): "));
  }
}

TEST_CASE("streams: launches of a parallel block are forked and joined") {
  FakeDevice fake;
  test::FakeGpu &gpu = fake.gpu;
  add_kernels(gpu);
  Planned p(kChecked);
  for (bool graph : {false, true}) {
    CAPTURE(graph);
    gpu.replays = true;
    VerifyOptions o = fake.o;
    o.graph = graph;
    gpu.trace.clear();
    gpu.calls.clear();
    verify_kernel(*p.program, *p.host->ast, *p.program->check_for("p", false), o, p.diags,
                  [&](const CaseResult &r) { CHECK_MESSAGE(r.pass(), r.error); });
    REQUIRE_MESSAGE(!p.diags.has_errors(), p.diags.render_all());
    CHECK(gpu.recorded.size() == (graph ? 1 : 0));
    CHECK((std::count(gpu.calls.begin(), gpu.calls.end(), "graph") == 1) == graph);
    // What is 16-byte aligned takes the entry that assumes it; z[1 : N] is not.
    // Main stream first; two more, each with its event; the event of the fork last.
    if (!graph) // behind every launch an event of its own, which says where a program hangs
      for (size_t i = 1; i < gpu.trace.size(); i++)
        if (gpu.trace[i - 1].starts_with("launch")) {
          REQUIRE(gpu.trace[i].starts_with("record"));
          gpu.trace.erase(gpu.trace.begin() + ptrdiff_t(i));
        }
    REQUIRE(gpu.trace.size() == 12);
    auto number = [](const std::string &line) { return std::stoul(line.substr(line.rfind(' ') + 1)); };
    size_t main = number(gpu.trace[0]), a = number(gpu.trace[2]), b = number(gpu.trace[3]);
    size_t fork = b + 2, done_a = a + 1, done_b = b + 1;
    std::vector<std::string> want = {
        fmt::format("launch copy on {}", main),     fmt::format("record {} on {}", fork, main),
        fmt::format("wait {} on {}", fork, a),      fmt::format("wait {} on {}", fork, b),
        fmt::format("launch copy on {}", main),     fmt::format("launch add on {}", a),
        fmt::format("launch copy__any on {}", b),   fmt::format("record {} on {}", done_a, a),
        fmt::format("wait {} on {}", done_a, main), fmt::format("record {} on {}", done_b, b),
        fmt::format("wait {} on {}", done_b, main), fmt::format("launch add on {}", main)};
    CHECK(gpu.trace == want);
  }
}

TEST_CASE("launches that overlap: the kernel waits before it touches memory, and only then starts early") {
  const char *text = R"(
program p(x: tensor<f32>[N], y: out tensor<f32>[N], z: out tensor<f32>[N]) {
    let a = alloc<f32>[N];
    @overlap launch copy(x, a);
    @overlap launch copy(a, y);
    parallel { launch copy(a, y); launch copy(x, z); }
    @overlap launch copy(y, z);
    @overlap launch add(a, x, z);
    launch copy(a, y);
}
verify p { y = x; z = 2 * x; case one: N = 100; }
)";
  Planned p(text);
  for (const char *target : {"sm_80", "sm_90"}) {
    CAPTURE(target);
    CompileOptions options;
    options.target = ir::find_target(target);
    auto compiled = compile_program(*p.program, *p.host, options, p.diags);
    REQUIRE(compiled);
    std::string_view ptx = compiled->code.ptx;
    int64_t waiting = 0;
    for (size_t at = ptx.find(".visible .entry "); at != ptx.npos;) {
      size_t end = ptx.find(".visible .entry ", at + 1);
      std::string_view entry = ptx.substr(at, end - at);
      size_t wait = entry.find("griddepcontrol.wait"),
             memory = std::min(entry.find("ld.global"), entry.find("st.global"));
      bool overlaps = entry.substr(0, entry.find('(')).find("__overlap") != entry.npos && options.target->sm >= 90;
      CHECK((wait != entry.npos) == overlaps);
      if (overlaps) {
        CHECK(wait < memory);
        CHECK(entry.find("griddepcontrol.launch_dependents") != entry.npos);
        CHECK(entry.find(".nc") == entry.npos); // the launch before may have written it
        waiting++;
      } else {
        CHECK(entry.find("ld.global.nc") != entry.npos);
      }
      at = end;
    }
    CHECK(waiting == (options.target->sm >= 90 ? 4 : 0)); // two kernels with two entries each
  }
  FakeDevice fake;
  add_kernels(fake.gpu);
  std::string early; // by launch
  for (const auto &[name, kernel] : std::map(fake.gpu.kernels))
    for (bool overlap : {false, true}) {
      bool any = name.ends_with("__any");
      std::string variant = any ? name.substr(0, name.size() - 5) + "__overlap__any" : name + "__overlap";
      fake.gpu.kernels[overlap ? variant : name] = [&, kernel = kernel](const test::FakeLaunch &l) {
        bool attribute = l.attributes.size() == 1 && l.attributes[0].id == 6 && l.attributes[0].value.flag == 1;
        CHECK((attribute || l.attributes.empty()));
        early += attribute ? "1" : "0";
        kernel(l);
      };
    }
  verify_kernel(*p.program, *p.host->ast, *p.program->check_for("p", false), fake.o, p.diags,
                [&](const CaseResult &r) { CHECK_MESSAGE(r.pass(), r.error); });
  REQUIRE_MESSAGE(!p.diags.has_errors(), p.diags.render_all());
  // Not the first one, nor what follows launches side by side, nor what does not say so.
  CHECK(early == "0100010");
}

TEST_CASE("numbers: of a choice only the side that counts is evaluated") {
  using sema::NumberExpr;
  auto constant = [](double v) {
    NumberExpr e;
    e.dtype = DType::F64;
    e.value = v;
    return e;
  };
  NumberExpr none; // 1 / D with D = 0
  none.op = NumberExpr::Op::Integer;
  none.dtype = DType::I64;
  none.integer = ir::SizeExpr::make(ir::SizeExpr::Op::Div, ir::SizeExpr::constant(1), ir::SizeExpr::symbol("D"));
  auto scalar = [](const std::string &) { return std::optional<double>(); };
  auto size = [](const std::string &) { return std::optional<int64_t>(0); };
  NumberExpr choice;
  choice.op = NumberExpr::Op::Where;
  choice.dtype = DType::F64;
  for (bool yes : {true, false}) {
    choice.args = {constant(yes), yes ? constant(5) : none, yes ? none : constant(5)};
    CHECK(choice.eval(scalar, size) == 5);
    choice.args[0] = constant(!yes);
    CHECK_FALSE(choice.eval(scalar, size));
  }
  NumberExpr negative;
  negative.op = NumberExpr::Op::Neg;
  negative.dtype = DType::F64;
  negative.args = {constant(-2)};
  CHECK(c_computed(negative).find("--") == std::string::npos); // C would take it for a decrement
}

TEST_CASE("a program that hangs: the launch is named") {
  FakeDevice fake;
  add_kernels(fake.gpu);
  fake.gpu.busy = -1;
  Planned p(kChecked);
  VerifyOptions o = fake.o;
  o.limit_seconds = 0.01;
  std::vector<CaseResult> results;
  verify_kernel(*p.program, *p.host->ast, *p.program->check_for("p", false), o, p.diags,
                [&](const CaseResult &r) { results.push_back(r); });
  REQUIRE(results.size() == 1);
  CHECK(results[0].error_kind == ErrorKind::Timeout);
  CHECK_MESSAGE(results[0].error.starts_with("launch 0 (copy) has not ended: the kernel is still running after 0.01 s"),
                results[0].error);
}

TEST_CASE("bench: temporaries belong to a group, each group has its graph") {
  FakeDevice fake;
  test::FakeGpu &gpu = fake.gpu;
  add_kernels(gpu);
  Planned p(kChecked);
  VerifyOptions o = fake.o;
  const ast::Check *check = p.program->check_for("p", true);
  auto c = sema::evaluate_case(*p.program, *p.host->ast, *check, check->cases[0], p.diags);
  REQUIRE(c);
  for (bool graph : {false, true}) {
    o.graph = graph;
    gpu.recorded.clear();
    auto b = PreparedBench::create(*p.program, *p.host->ast, *check, *c, o, p.diags);
    REQUIRE_MESSAGE(b.ok(), why(b));
    // x, y, z and two temporaries of 4000 bytes.
    CHECK((*b)->workspace_bytes == 4096 + 4000);
    CHECK((*b)->groups == bench_groups(3 * 4000 + 4096 + 4000, 50 << 20));
    CHECK((*b)->entry == (graph ? "5 launches in a graph" : "5 launches"));
    CHECK(int64_t(gpu.recorded.size()) == (graph ? (*b)->groups : 0));
    BenchOptions convention{.rest_seconds = 0, .warmup = 1, .timed = 5};
    CHECK((*b)->measure(convention).ok());
    // A synthetic clock: a copy takes 2 us, an add 5, a pause of 1 us is before each, and 10 us before a call.
    gpu.replays = true;
    uint64_t now = 1000;
    int64_t launched = 0;
    auto stamped = [&](const std::string &name, size_t table, uint64_t nanoseconds) {
      for (const char *any : {"", "__any"})
        gpu.kernels[name + any + kStampedSuffix] = [&, table, nanoseconds](const test::FakeLaunch &l) {
          uint64_t begin = now + (launched++ % 5 == 0 ? 10000 : 1000);
          now = begin + nanoseconds;
          for (uint64_t slot : {3, 7}) { // two multiprocessors, the second one later and for a shorter time
            auto *pair =
                reinterpret_cast<uint64_t *>(gpu.at(*static_cast<uint64_t *>(l.params[table]) + 16 * slot, 16));
            REQUIRE(pair);
            pair[0] = std::min(pair[0], begin + (slot == 7 ? 100 : 0));
            pair[1] = std::min(pair[1], ~(now - (slot == 7 ? 100 : 0)));
          }
        };
    };
    stamped("copy", 3, 2000);
    stamped("add", 4, 5000);
    auto breakdown = (*b)->breakdown(convention);
    REQUIRE_MESSAGE(breakdown.ok(), why(breakdown));
    const std::vector<BenchPart> &parts = breakdown->parts;
    REQUIRE(parts.size() == 2);
    CHECK(parts[0].kernel == "copy");
    CHECK(parts[0].launches == 3);
    CHECK(parts[0].seconds == doctest::Approx(3 * 2e-6));
    CHECK(parts[0].gap == doctest::Approx(10e-6 + 2 * 1e-6));
    CHECK(parts[1].launches == 2);
    CHECK(parts[1].seconds == doctest::Approx(2 * 5e-6));
    CHECK(parts[1].gap == doctest::Approx(2e-6));
    CHECK(breakdown->seconds == doctest::Approx(30e-6)); // 16 us of work, 14 of pauses
    CHECK(breakdown->idle == doctest::Approx(14.0 / 30));
  }
}

TEST_CASE("the parts of a call: launches that overlap count once, and everything sums up to the call") {
  auto us = [](double begin, double end) { return Stamp{uint64_t(begin * 1000), uint64_t(end * 1000)}; };
  // a alone; then b and c side by side, c longer; then a again after a pause of 2 us. The call before ends at 10.
  std::vector<std::vector<Stamp>> stamps = {{us(1, 2), us(2, 9), us(2, 10), us(8, 9)},
                                            {us(11, 20), us(20, 26), us(21, 30), us(32, 35)},
                                            {us(36, 45), us(46, 52), us(45, 55), us(57, 60)}};
  Breakdown b = breakdown_of(stamps, {"a", "b", "c", "a"});
  REQUIRE(b.parts.size() == 3);
  CHECK(b.parts[0].launches == 2);
  CHECK(b.parts[0].seconds == doctest::Approx(12e-6));
  CHECK(b.parts[0].gap == doctest::Approx(3e-6)); // 1 + 2 us in both calls
  CHECK(b.parts[1].seconds == doctest::Approx(6e-6));
  CHECK(b.parts[1].exposed == doctest::Approx(3e-6)); // 6 us in one call; in the other c began before and ended later
  CHECK(b.parts[2].exposed == doctest::Approx((4e-6 + 10e-6) / 2));
  CHECK(b.seconds == doctest::Approx(25e-6));
  double sum = 0;
  for (const BenchPart &p : b.parts) sum += p.gap + p.exposed;
  CHECK(sum == doctest::Approx(b.seconds));
  CHECK(b.idle == doctest::Approx(3.0 / 25));
  BenchRow row;
  row.samples = {25.2e-6};
  row.breakdown = b;
  std::string table = breakdown_table(row);
  CHECK_MESSAGE(table.find("-0.8% of the call  GPU idle 12.0%\n") != std::string::npos, table);
  for (int i = 0; i < 30; i++) row.breakdown.parts.push_back({fmt::format("k{}", i), 1, i * 1e-6, 0, i * 1e-6});
  table = breakdown_table(row);
  CHECK(std::count(table.begin(), table.end(), '\n') == 17);
  CHECK_MESSAGE(table.starts_with("    k29 "), table);
  CHECK_MESSAGE(table.find("18 others") != std::string::npos, table);
  row.samples = {20e-6};
  CHECK(breakdown_table(row).find("the stamps disturb it") != std::string::npos);
}

TEST_CASE("stamped PTX computes the same and says when it ran") {
  SourceManager sources;
  Diagnostics diags(sources);
  for (const char *file : {"samples/softmax.tk", "samples/kda_chain.tk"}) { // one with a producer warp on sm_90
    CAPTURE(file);
    auto id = read_source(std::string(TKC_SOURCE_DIR) + "/" + file, sources, diags);
    REQUIRE(id);
    auto program = sema::Program::load(*id, diags);
    REQUIRE(program);
    CompileOptions options;
    options.target = ir::find_target("sm_90");
    const ast::Function *kernel = program->kernels().at(0);
    auto compiled = compile_kernel(*program, *kernel, {}, options, diags);
    REQUIRE_MESSAGE(compiled, diags.render_all());
    auto stamped = stamped_ptx(compiled->code.ptx);
    REQUIRE(stamped.ok());
    auto parsed = emu::parse_ptx(*stamped);
    REQUIRE_MESSAGE(parsed.module, (parsed.errors.empty() ? "" : parsed.errors.front().message));
    const codegen::KernelAbi &abi = compiled->code.abis[1];
    const ast::Check *check = program->check_for(kernel->name.text, false);
    REQUIRE(check);
    auto c = sema::evaluate_case(*program, *kernel, *check, check->cases[0], diags);
    REQUIRE(c);
    auto data = make_data(*program, check, *compiled->function, *c, {}, diags);
    REQUIRE_MESSAGE(data.ok(), why(data));
    auto grid = launch_grid(*compiled->function, *data, sources);
    REQUIRE(grid.ok());
    auto run = [&](const emu::Module &module, const std::string &entry, bool table, Stamp &stamp) {
      emu::Memory memory;
      std::vector<uint64_t> at(compiled->function->params.size());
      for (size_t i = 0; i < at.size(); i++)
        if (compiled->function->params[i].type.is_tensor()) {
          at[i] = memory.allocate(int64_t(data->tensors[i].bytes.size()), "t", {});
          std::memcpy(memory.host(at[i]), data->tensors[i].bytes.data(), data->tensors[i].bytes.size());
        }
      auto blob = parameter_blob(
          *compiled->function, abi, *data, [&](size_t i) { return at[i]; }, encode_for_emulator);
      REQUIRE(blob.ok());
      uint64_t stamps = memory.allocate(kStampBytes, "stamps", {});
      std::memset(memory.host(stamps), 0xff, size_t(kStampBytes));
      emu::Launch launch;
      launch.grid[0] = 1;
      for (int64_t g : *grid) launch.grid[0] *= g;
      launch.block[0] = abi.threads;
      launch.dynamic_shared = abi.shared_bytes;
      launch.params = blob->bytes;
      if (table) {
        launch.params.resize((launch.params.size() + 7) / 8 * 8 + 8);
        std::memcpy(launch.params.data() + launch.params.size() - 8, &stamps, 8);
      }
      emu::Report report = emu::run(module, entry, memory, launch, {});
      CHECK_MESSAGE(report.ok(), emulator_failure(report).message);
      if (table) {
        auto read = read_stamp(std::span<const uint8_t>(memory.host(stamps), size_t(kStampBytes)));
        REQUIRE_MESSAGE(read.ok(), why(read));
        stamp = *read;
      }
      std::vector<std::vector<uint8_t>> out;
      for (size_t i = 0; i < at.size(); i++)
        if (at[i]) out.emplace_back(memory.host(at[i]), memory.host(at[i]) + data->tensors[i].bytes.size());
      return out;
    };
    auto plain = emu::parse_ptx(compiled->code.ptx);
    REQUIRE(plain.module);
    Stamp stamp;
    auto with = run(*parsed.module, abi.entry + kStampedSuffix, true, stamp);
    CHECK(with == run(*plain.module, abi.entry, false, stamp));
    CHECK(stamp.begin < stamp.end);
  }
  CHECK(stamped_ptx(".visible .entry k()\n{\n\t@%p1 ret;\n\tret;\n}\n").error() ==
        "`k` ends under a predicate: `@%p1 ret;`");
  auto none = stamped_ptx(".visible .entry k()\n{\n\tret;\n}\n");
  REQUIRE(none.ok());
  CHECK(none->starts_with(".visible .entry k__stamped(\n\t.param .u64 k_stamps\n)\n{\n"));
}

TEST_CASE("what a GPU can do at best is measured once for each GPU") {
  FakeDevice fake;
  test::FakeGpu &gpu = fake.gpu;
  for (const char *name : {"probe_copy", "probe_products"}) gpu.kernels[name] = [](const test::FakeLaunch &) {};
  VerifyOptions o = fake.o;
  o.unfused = true; // of what is benched, not of the probes
  auto folder = make_temporary_folder("ceilings");
  REQUIRE(folder.ok());
  BenchOptions convention{.rest_seconds = 0, .warmup = 0, .timed = 1};
  for (bool again : {false, true}) {
    CAPTURE(again);
    gpu.calls.clear();
    auto c = ceilings_of(o, *folder, convention);
    REQUIRE_MESSAGE(c.ok(), why(c));
    CHECK(c->bytes == doctest::Approx(8 * 67108864 / 2.5e-3));
    CHECK(c->flops == doctest::Approx(2.0 * 128 * 128 * 32 * 8 * 132 * 256 / 2.5e-3));
    CHECK(gpu.calls.empty() == again);
  }
  BenchRow row;
  row.samples = {2e-3};
  row.counts = {{"bytes", 1e9}, {"flops", 1e12}};
  row.ceilings = Ceilings{1e12, 2e15}; // 1 ms for the bytes, half of that for the flops
  CHECK(row.floor_seconds() == doctest::Approx(1e-3));
  CHECK(row.rates().ends_with("  50% of the floor"));
  std::filesystem::remove_all(*folder);
}

TEST_CASE("JSON: a program's steps, with sizes as expressions") {
  Planned p(R"(program p<S: int = 2>(x: tensor<f32>[N], y: out tensor<f32>[N], n: i32) {
    let a = alloc<f32>[N * S];
    if n < device.sms { launch copy(x, a[0 : N]); }
    for i in 0 : n { parallel { launch copy(x, a[i :+ N]); } }
    launch add(x, x, y);
})");
  std::string json = program_json(*p.host).dump();
  for (const char *part : {R"("temporaries")", R"("*")", R"("device.sms")", R"("for")", R"("parallel")", R"("launch")"})
    CHECK_MESSAGE(json.find(part) != std::string::npos, json);
}

TEST_CASE("programs on a GPU, as launches and as graphs" * doctest::skip(!cu::has_gpu())) {
  for (const char *file : {"test/features/programs.tk", "samples/split_gemm.tk"})
    for (bool graph : {false, true}) {
      CAPTURE(file);
      CAPTURE(graph);
      SourceManager sources;
      Diagnostics diags(sources);
      auto id = read_source(std::string(TKC_SOURCE_DIR) + "/" + file, sources, diags);
      REQUIRE(id);
      auto program = sema::Program::load(*id, diags);
      REQUIRE(program);
      auto device = Device::open();
      REQUIRE(device.ok());
      VerifyOptions o;
      o.executor = Executor::Gpu;
      o.device = device->get();
      o.compile.target = ir::find_target((*device)->info().arch());
      REQUIRE(o.compile.target);
      o.graph = graph;
      for (const ast::Function *f : program->programs())
        verify_kernel(*program, *f, *program->check_for(f->name.text, false), o, diags,
                      [&](const CaseResult &r) { CHECK_MESSAGE(r.pass(), r.kernel, ".", r.name, ": ", r.error); });
      CHECK_MESSAGE(!diags.has_errors(), diags.render_all());
    }
}
