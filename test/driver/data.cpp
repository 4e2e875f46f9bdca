// The data of a case: strides and what lies between the elements, inputs of a benchmark.
#include "runtime/fake_driver.h" // first: it opens a namespace whose names others declare as well

#include "driver/bench_tensors.h"
#include "ir/target.h"
#include "runtime/compare.h"
#include "runtime/generators.h"
#include "why.h"
#include <doctest/doctest.h>

using namespace tkc;
using namespace tkc::driver;

namespace {
const char *const kSource = R"(
kernel copy(x: tensor<f32>[M, N], y: out tensor<f32>[M, N]) grid (cdiv(M, 4), cdiv(N, 32)) warps 1 {
    let (i, j) = program_id() * (4, 32);
    store(y[i :+ 4, j :+ 32], load(x[i :+ 4, j :+ 32]));
}
verify copy { y = x; case pitch: M = 6, N = 5, x = strides(N + 3, 1), y = strides(N + 2, 1); }
bench copy { case dense: M = 6, N = 5; case pitch: M = 6, N = 5, x = strides(N + 3, 1), y = strides(N + 2, 1); }

kernel pick<LIMIT: int = 7>(x: tensor<f32>[N], at: tensor<i32>[K], w: tensor<f32>[K], a: f32, y: out tensor<f32>[K]) grid (K) warps 1 {
    let k = program_id(0);
    store(y[k], a * load(w[k]) * load(x[load(at[k])]));
}
bench pick {
    let last = LIMIT - 1;
    input at = integers(0, LIMIT);
    input w = where(at == last, 2, -1);
    input a = max(w) + 1;
    case one: N = 7, K = 64;
    case few: N = 7, K = 64, LIMIT = 3, a = 0.5;
}
)";

struct Loaded {
  SourceManager sources;
  Diagnostics diags{sources};
  std::unique_ptr<sema::Program> program;
  std::unique_ptr<ir::Function> f;
  const ast::Check *check = nullptr;
  std::optional<sema::CaseSpec> c;

  Loaded(const char *kernel, bool bench, const char *name) {
    program = sema::Program::load(sources.add("data.tk", kSource), diags);
    REQUIRE_MESSAGE((program && !diags.has_errors()), diags.render_all());
    check = program->check_for(kernel, bench);
    for (const ast::Case &k : check->cases)
      if (k.name.text == name) c = sema::evaluate_case(*program, ast(kernel), *check, k, diags);
    REQUIRE(c);
    f = sema::instantiate(*program, ast(kernel), c->spec, nullptr, diags);
    REQUIRE_MESSAGE(f, diags.render_all());
  }
  const ast::Function &ast(const char *kernel) { return *program->find_entry(kernel); }
  BenchSource source() {
    auto data = bench_shapes(*program, *check, *f, *c, diags);
    REQUIRE_MESSAGE(data.ok(), why(data));
    return {*program, *check, *f, *c, diags, *data};
  }
};
} // namespace

TEST_CASE("memory of tensors with strides") {
  HostTensor t = HostTensor::from_doubles(DType::F32, {2, 3}, std::vector<double>{1, 2, 3, 4, 5, 6});
  HostTensor hole = HostTensor::zeros(DType::F32, {1});
  poison(hole);
  const double none = hole.get(0);
  auto holds = [&](const HostTensor &m, const std::vector<double> &want) {
    REQUIRE(m.count() == int64_t(want.size()));
    for (size_t k = 0; k < want.size(); k++)
      CHECK_MESSAGE((std::isnan(want[k]) ? m.bits(int64_t(k)) == hole.bits(0) : m.get(int64_t(k)) == want[k]), k);
  };
  REQUIRE(std::isnan(none));
  holds(to_memory(t, {5, 1}), {1, 2, 3, none, none, 4, 5, 6});
  holds(to_memory(t, {1, 2}), {1, 4, 2, 5, 3, 6});
  holds(to_memory(t, {2, 5}), {1, none, 4, none, none, 2, none, 5, none, none, 3, none, 6});
  CHECK(memory_elements({0, 3}, {5, 1}) == 0);
  CHECK(memory_elements({}, {}) == 1);

  for (std::vector<int64_t> strides : {std::vector<int64_t>{5, 1}, {1, 2}, {2, 5}, {3, 1}}) {
    HostTensor back = HostTensor::zeros(DType::F32, {2, 3}), m = to_memory(t, strides);
    CHECK(from_memory(m, strides, "t", back).ok());
    CHECK(back == t);
  }
  HostTensor m = to_memory(t, {5, 1}), back = HostTensor::zeros(DType::F32, {2, 3});
  m.bytes[4 * 4 + 1] ^= 1;
  Status changed = from_memory(m, {5, 1}, "t", back);
  REQUIRE_FALSE(changed.ok());
  CHECK(changed.error() == "memory between the elements of `t` was written: byte 17 behind its first element");

  int64_t runs = 0;
  each_run(HostTensor::zeros(DType::F32, {2, 3, 4}), {20, 4, 1}, [&](int64_t at, int64_t bytes) {
    CHECK(at == runs++ * 80);
    CHECK(bytes == 48);
  });
  CHECK(runs == 2);
  each_run(HostTensor::zeros(DType::F32, {0, 3}), {3, 1}, [&](int64_t, int64_t) { FAIL("there is no element"); });
}

TEST_CASE("strides that no tensor has") {
  CHECK(stride_fault({4, 8}, {8, 1}).empty());
  CHECK(stride_fault({4, 8}, {1, 4}).empty());
  CHECK(stride_fault({5, 6}, {2, 11}).empty());
  CHECK(stride_fault({1, 8}, {0, 1}).empty()); // of an extent of 1 any
  CHECK(stride_fault({0, 8}, {0, 0}).empty());
  CHECK(stride_fault({4, 8}, {7, 1}) == "elements of shape [4, 8] would lie on each other");
  CHECK(stride_fault({4, 8}, {1, 3}) == "elements of shape [4, 8] would lie on each other");
  CHECK(stride_fault({4, 8}, {0, 1}) == "elements of shape [4, 8] would lie on each other");
  CHECK(stride_fault({4, 8}, {1}) == "1 stride for a tensor of rank 2");
  CHECK(stride_fault({1 << 30, 1 << 30}, {int64_t(1) << 40, 1}) == "the tensor is too large");
}

TEST_CASE("a launch that writes between the elements of a tensor is found") {
  test::FakeGpu gpu;
  cu::Api api = test::fake_api(gpu);
  auto device = Device::open(0, &api);
  REQUIRE(device.ok());
  // y[m, n] = x[m, n], and behind each row `beyond` more elements.
  int64_t beyond = 0;
  for (const char *name : {"copy", "copy__any"})
    gpu.kernels[name] = [&](const test::FakeLaunch &l) {
      uint64_t x = *static_cast<uint64_t *>(l.params[0]), y = *static_cast<uint64_t *>(l.params[2]);
      int64_t from = *static_cast<int64_t *>(l.params[1]), to = *static_cast<int64_t *>(l.params[3]);
      CHECK(from == 8);
      CHECK(to == 7);
      int64_t rows = *static_cast<int32_t *>(l.params[4]), columns = *static_cast<int32_t *>(l.params[5]);
      for (int64_t m = 0; m < rows; m++)
        for (int64_t n = 0; n < columns + (m + 1 < rows ? beyond : 0); n++) {
          auto *a = reinterpret_cast<float *>(gpu.at(x + uint64_t(4 * (m * from + n)), 4));
          auto *b = reinterpret_cast<float *>(gpu.at(y + uint64_t(4 * (m * to + n)), 4));
          REQUIRE(a);
          REQUIRE(b);
          *b = n < columns ? *a : 1.0f;
        }
    };
  for (beyond = 0; beyond < 2; beyond++) {
    Loaded l("copy", false, "pitch");
    VerifyOptions o;
    o.executor = Executor::Gpu;
    o.device = device->get();
    o.compile.target = ir::find_target("sm_90");
    std::vector<CaseResult> all;
    verify_kernel(*l.program, l.ast("copy"), *l.check, o, l.diags, [&](const CaseResult &r) { all.push_back(r); });
    REQUIRE_MESSAGE(all.size() == 1, l.diags.render_all());
    if (beyond == 0)
      CHECK_MESSAGE(all[0].pass(), all[0].error);
    else
      CHECK(all[0].error == "memory between the elements of `y` was written: byte 20 behind its first element");
  }
}

TEST_CASE("a benchmark's inputs are what its block says") {
  Loaded l("pick", true, "one");
  BenchSource s = l.source();
  CHECK(s.data.scalars.at("a") == 3);
  CHECK(s.data.tensors[0].bytes.empty());
  std::vector<LaunchData> groups;
  for (int64_t g : {0, 1, 0}) {
    auto data = bench_contents(s, g);
    REQUIRE_MESSAGE(data.ok(), why(data));
    groups.push_back(std::move(*data));
    const std::vector<HostTensor> &t = groups.back().tensors;
    CHECK(t[0] == fill_tensor(convention_fill(DType::F32), DType::F32, {7}, bench_seed(g, 0)));
    bool least = false, most = false;
    for (int64_t k = 0; k < 64; k++) {
      int64_t at = t[1].get_int(k);
      CHECK((at >= 0 && at < 7));
      least |= at == 0, most |= at == 6;
      CHECK(t[2].get(k) == (at == 6 ? 2 : -1));
    }
    CHECK((least && most));
    CHECK(t[4].bytes.empty()); // an output lives on the device
  }
  CHECK(groups[0].tensors[1] == groups[2].tensors[1]);
  CHECK_FALSE(groups[0].tensors[1] == groups[1].tensors[1]);

  Loaded few("pick", true, "few");
  BenchSource other = few.source();
  CHECK(other.data.scalars.at("a") == 0.5);
  auto data = bench_contents(other, 0);
  REQUIRE(data.ok());
  for (int64_t k = 0; k < 64; k++) CHECK(data->tensors[1].get_int(k) < 3);
  CHECK(signature_of(s) == signature_of(l.source())); // so A/B shares them
  CHECK_FALSE(signature_of(s) == signature_of(other));
}

TEST_CASE("a benchmark's tensors lie as its case says") {
  Loaded dense("copy", true, "dense"), pitch("copy", true, "pitch");
  BenchSource a = dense.source(), b = pitch.source();
  CHECK(memory_bytes(a.data, 0) == 4 * 6 * 5);
  CHECK(memory_bytes(b.data, 0) == 4 * (5 * 8 + 5));
  CHECK(memory_bytes(b.data, 1) == 4 * (5 * 7 + 5));
  CHECK_FALSE(signature_of(a) == signature_of(b));
  auto x = bench_contents(a, 2), y = bench_contents(b, 2);
  REQUIRE((x.ok() && y.ok()));
  CHECK(x->tensors[0] == y->tensors[0]); // the contents do not depend on it
  CHECK(strides_of(*y, 0) == std::vector<int64_t>{8, 1});

  test::FakeGpu gpu;
  cu::Api api = test::fake_api(gpu);
  auto device = Device::open(0, &api);
  REQUIRE(device.ok());
  auto made = make_tensors(b, 1, **device);
  REQUIRE_MESSAGE(made.ok(), why(made));
  auto first = bench_contents(b, 0);
  REQUIRE(first.ok());
  HostTensor want = to_memory(first->tensors[0], {8, 1});
  const uint8_t *memory = gpu.at((*made)->addresses[0][0], want.bytes.size());
  REQUIRE(memory);
  CHECK(std::equal(want.bytes.begin(), want.bytes.end(), memory));
}
