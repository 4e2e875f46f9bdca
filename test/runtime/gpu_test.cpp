// The run-time library on a real GPU: skipped where there is none.
#include "runtime/assemble.h"
#include "runtime/bench.h"
#include "runtime/compare.h"
#include "runtime/generators.h"
#include "runtime/nvml.h"
#include "runtime/occupancy.h"
#include "runtime/tensor_map.h"
#include "why.h"
#include <chrono>
#include <cstdlib>
#include <doctest/doctest.h>
#include <thread>
#include <unistd.h>

using namespace tkc;

namespace {
bool no_gpu() { return !cu::has_gpu(); }

// add: out[i] = a[i] + b[i] for i < n.     bump: one thread adds 1 to *p.
// poke: one thread stores a word at p + offset.     spin: runs for `ns` nanoseconds.
const char *const kPtx = R"(.version 7.0
.target sm_70
.address_size 64
.visible .entry add(.param .u64 a, .param .u64 b, .param .u64 out, .param .u32 n)
{
  .reg .pred %p;
  .reg .b32 %r<5>;
  .reg .f32 %f<4>;
  .reg .b64 %rd<8>;
  ld.param.u64 %rd1, [a];
  ld.param.u64 %rd2, [b];
  ld.param.u64 %rd3, [out];
  ld.param.u32 %r1, [n];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.u32 %r2, %r2, %r3, %r4;
  setp.ge.u32 %p, %r2, %r1;
  @%p ret;
  mul.wide.u32 %rd4, %r2, 4;
  add.u64 %rd5, %rd1, %rd4;
  add.u64 %rd6, %rd2, %rd4;
  add.u64 %rd7, %rd3, %rd4;
  ld.global.f32 %f1, [%rd5];
  ld.global.f32 %f2, [%rd6];
  add.f32 %f3, %f1, %f2;
  st.global.f32 [%rd7], %f3;
  ret;
}
.visible .entry bump(.param .u64 p)
{
  .reg .b32 %r<3>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [p];
  ld.global.u32 %r1, [%rd1];
  add.u32 %r2, %r1, 1;
  st.global.u32 [%rd1], %r2;
  ret;
}
.visible .entry poke(.param .u64 p, .param .s64 offset)
{
  .reg .b32 %r<2>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [p];
  ld.param.s64 %rd2, [offset];
  add.s64 %rd3, %rd1, %rd2;
  mov.u32 %r1, 0;
  st.global.u32 [%rd3], %r1;
  ret;
}
.extern .shared .align 16 .b8 scratch[];
.visible .entry big_shared(.param .u64 p, .param .u32 bytes)
{
  .reg .b32 %r<6>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [p];
  ld.param.u32 %r1, [bytes];
  mov.u32 %r2, scratch;
  add.u32 %r3, %r2, %r1;
  mov.u32 %r4, 77;
  st.shared.u32 [%r3+-4], %r4;
  ld.shared.u32 %r5, [%r3+-4];
  st.global.u32 [%rd1], %r5;
  ret;
}
.visible .entry spin(.param .u64 ns)
{
  .reg .pred %p;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [ns];
  mov.u64 %rd2, %globaltimer;
again:
  mov.u64 %rd3, %globaltimer;
  sub.u64 %rd4, %rd3, %rd2;
  setp.lt.u64 %p, %rd4, %rd1;
  @%p bra again;
  ret;
}
)";

// One thread fetches a box of 8 x 8 words at (x, y) by TMA and copies it out.
const char *const kTmaPtx = R"(.version 8.0
.target sm_90
.address_size 64
.visible .entry fetch(.param .align 64 .b8 map[128], .param .u64 out, .param .u32 x, .param .u32 y)
{
  .reg .pred %p;
  .reg .b32 %r<12>;
  .reg .b64 %rd<6>;
  .shared .align 128 .b8 box[256];
  .shared .align 8 .b8 bar[8];
  mov.b64 %rd1, map;
  cvta.param.u64 %rd2, %rd1;
  ld.param.u64 %rd3, [out];
  ld.param.u32 %r1, [x];
  ld.param.u32 %r2, [y];
  mov.u32 %r3, box;
  mov.u32 %r4, bar;
  mbarrier.init.shared::cta.b64 [%r4], 1;
  fence.mbarrier_init.release.cluster;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r4], 256;
  cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r3], [%rd2, {%r1, %r2}], [%r4];
wait:
  mbarrier.try_wait.parity.shared::cta.b64 %p, [%r4], 0;
  @!%p bra wait;
  mov.u32 %r5, 0;
copy:
  add.u32 %r6, %r3, %r5;
  ld.shared.u32 %r7, [%r6];
  cvt.u64.u32 %rd4, %r5;
  add.u64 %rd5, %rd3, %rd4;
  st.global.u32 [%rd5], %r7;
  add.u32 %r5, %r5, 4;
  setp.lt.u32 %p, %r5, 256;
  @%p bra copy;
  ret;
}
.visible .entry cluster_size(.param .u64 out)
{
  .reg .b32 %r<3>;
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [out];
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %cluster_nctaid.x;
  mul.wide.u32 %rd2, %r1, 4;
  add.u64 %rd2, %rd1, %rd2;
  st.global.u32 [%rd2], %r2;
  ret;
}
)";

struct Gpu {
  std::unique_ptr<Device> device = std::move(*Device::open());
  Stream stream = std::move(*Stream::create(*device));
  Module module = std::move(*Module::load_ptx(*device, kPtx));
  Kernel kernel(const char *name) { return *module.kernel(name); }
  Buffer buffer(int64_t bytes, int64_t guard = 0) { return std::move(*Buffer::allocate(*device, bytes, guard)); }
};
} // namespace

TEST_CASE("gpu: properties and machine card" * doctest::skip(no_gpu())) {
  Gpu gpu;
  const DeviceInfo &i = gpu.device->info();
  CHECK(i.sms > 0);
  CHECK(i.l2_bytes > 1 << 20);
  CHECK(i.shared_per_block >= 48 << 10);
  CHECK(i.uuid.size() == 40);
  CHECK(*gpu.device->free_bytes() > 0);
  GpuMonitor monitor(i);
  MachineCard card = machine_card(i, monitor);
  card.after = monitor.state();
  MESSAGE("\n" << card.to_string());
  if (monitor.available()) CHECK(card.before.sm_mhz);
}

TEST_CASE("gpu: vector add, odd length, poisoned output, intact guard bands" * doctest::skip(no_gpu())) {
  Gpu gpu;
  for (int64_t n : {1, 127, 100003}) {
    HostTensor a = fill_tensor({FillKind::Normal, 0, 1}, DType::F32, {n}, 1),
               b = fill_tensor({FillKind::Uniform, -1, 1}, DType::F32, {n}, 2),
               out = HostTensor::zeros(DType::F32, {n});
    poison(out);
    Buffer da = gpu.buffer(4 * n, 1024), db = gpu.buffer(4 * n, 1024), dout = gpu.buffer(4 * n, 1024);
    REQUIRE(da.upload(a).ok());
    REQUIRE(db.upload(b).ok());
    REQUIRE(dout.upload(out).ok());
    Params p;
    p.add(da.address()).add(db.address()).add(dout.address()).add(uint32_t(n));
    REQUIRE(launch(gpu.kernel("add"), {.grid = {(n + 127) / 128, 1, 1}, .block = {128, 1, 1}}, p, gpu.stream).ok());
    REQUIRE(gpu.stream.wait(10).ok());
    std::vector<double> expected(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; i++) expected[size_t(i)] = double(float(a.get(i)) + float(b.get(i)));
    Comparison c = compare(*dout.download(DType::F32, {n}), expected, {.exact = true});
    CHECK_MESSAGE(c.pass, c.to_string("out"));
    for (Buffer *x : {&da, &db, &dout}) CHECK(!(*x->check_guards()).has_value());
  }
}

TEST_CASE("gpu: a store beyond a buffer damages its guard band and is found" * doctest::skip(no_gpu())) {
  Gpu gpu;
  for (int64_t offset : {-512, -4, 100, 608}) {
    Buffer b = gpu.buffer(100, 512);
    Params p;
    p.add(b.address()).add(offset);
    REQUIRE(launch(gpu.kernel("poke"), {}, p, gpu.stream).ok());
    REQUIRE(gpu.stream.wait(10).ok());
    Result<std::optional<GuardViolation>> v = b.check_guards();
    REQUIRE(v.ok());
    REQUIRE(v->has_value());
    CHECK((*v)->before == (offset < 0));
    CHECK(std::abs((*v)->offset - offset) < 4);
  }
}

TEST_CASE("gpu: kernel attributes, occupancy, large dynamic shared memory" * doctest::skip(no_gpu())) {
  Gpu gpu;
  Kernel k = gpu.kernel("big_shared");
  CHECK(k.registers > 0);
  CHECK(k.local_bytes == 0);
  CHECK(k.max_threads == 1024);
  CHECK(k.binary_version == gpu.device->info().major * 10 + gpu.device->info().minor);
  int64_t most = gpu.device->info().shared_per_block;
  Buffer b = gpu.buffer(4);
  Params p;
  p.add(b.address()).add(uint32_t(most));
  REQUIRE(launch(k, {.dynamic_shared = most}, p, gpu.stream).ok());
  REQUIRE(gpu.stream.wait(10).ok());
  CHECK(b.download(DType::I32, {1})->get(0) == 77);
  CHECK(*k.blocks_per_sm(32, most) == 1);
  CHECK(*k.blocks_per_sm(32, 1024) > 1);
  CHECK_FALSE(launch(k, {.dynamic_shared = most + 1}, p, gpu.stream).ok());
}

TEST_CASE("gpu: the log of PTX that does not assemble; register limits; cubins" * doctest::skip(no_gpu())) {
  Gpu gpu;
  std::string bad = kPtx;
  bad.replace(bad.find("add.f32"), 7, "odd.f32");
  Result<Module> failed = Module::load_ptx(*gpu.device, bad);
  REQUIRE_FALSE(failed.ok());
  CHECK_MESSAGE(failed.error().find("line 26") != std::string::npos, failed.error());
  Result<Module> verbose = Module::load_ptx(*gpu.device, kPtx, {.max_registers = 32, .verbose = true});
  REQUIRE(verbose.ok());
  CHECK(verbose->kernel("add")->registers <= 32);
  if (!assembler_available(Assembler::Any).ok()) return;
  Result<Assembled> a = assemble(kPtx, {.arch = gpu.device->info().arch()});
  REQUIRE(a.ok());
  Result<Module> m = Module::load_cubin(*gpu.device, a->cubin);
  REQUIRE(m.ok());
  CHECK(m->kernel("add")->registers == a->find("add")->registers);
}

TEST_CASE("gpu: a graph replays its launches" * doctest::skip(no_gpu())) {
  Gpu gpu;
  Buffer b = gpu.buffer(4);
  REQUIRE(b.set_bytes(0).ok());
  Params p;
  p.add(b.address());
  Kernel k = gpu.kernel("bump");
  constexpr int64_t kLaunches = 200;
  Result<Graph> g = Graph::capture(gpu.stream, [&]() -> Status {
    for (int64_t i = 0; i < kLaunches; i++) TKC_TRY(launch(k, {}, p, gpu.stream));
    return {};
  });
  REQUIRE(g.ok());
  CHECK(g->node_count() == kLaunches);
  CHECK(b.download(DType::I32, {1})->get(0) == 0); // captured, not run
  struct Replay : BenchTarget {
    Graph &graph;
    Stream &stream;
    Replay(Graph &g, Stream &s) : graph(g), stream(s) {}
    Status launch(int64_t) override { return graph.launch(stream); }
  } replay(*g, gpu.stream);
  Result<std::unique_ptr<GpuClock>> clock = GpuClock::create(gpu.stream, 20);
  REQUIRE(clock.ok());
  Result<double> t = run_convention(replay, **clock, 1, {.rest_seconds = 0.01, .warmup = 3, .timed = 10});
  REQUIRE(t.ok());
  CHECK(b.download(DType::I32, {1})->get(0) == 13 * kLaunches);
  MESSAGE("graph replay: " << *t / double(kLaunches) * 1e6 << " us a launch");
  CHECK(*t / double(kLaunches) < 20e-6);
}

TEST_CASE("gpu: work forked to another stream and joined by events, as launches and in a graph" *
          doctest::skip(no_gpu())) {
  Gpu gpu;
  Buffer b = gpu.buffer(4);
  Result<Stream> side = Stream::create(*gpu.device);
  Result<Event> fork = Event::create(*gpu.device), join = Event::create(*gpu.device);
  REQUIRE(side.ok());
  REQUIRE(fork.ok());
  REQUIRE(join.ok());
  Params add, clear, late;
  add.add(b.address());
  clear.add(b.address()).add(int64_t(0));
  late.add(uint64_t(5'000'000));
  Kernel bump = gpu.kernel("bump"), poke = gpu.kernel("poke"), spin = gpu.kernel("spin");
  // Each side dawdles: without the fork the word is cleared too early and ends as 2, without the join too late and ends
  // as 0.
  auto work = [&]() -> Status {
    TKC_TRY(launch(spin, {}, late, gpu.stream));
    TKC_TRY(launch(bump, {}, add, gpu.stream));
    TKC_TRY(fork->record(gpu.stream));
    TKC_TRY(side->wait_for(*fork));
    TKC_TRY(launch(spin, {}, late, *side));
    TKC_TRY(launch(poke, {}, clear, *side));
    TKC_TRY(join->record(*side));
    TKC_TRY(gpu.stream.wait_for(*join));
    return launch(bump, {}, add, gpu.stream);
  };
  for (bool graph : {false, true}) {
    CAPTURE(graph);
    REQUIRE(b.set_bytes(0).ok());
    if (graph) {
      Result<Graph> g = Graph::capture(gpu.stream, work);
      REQUIRE(g.ok());
      CHECK(g->node_count() == 5);
      REQUIRE(g->launch(gpu.stream).ok());
      REQUIRE(gpu.stream.wait(20).ok());
    } else {
      REQUIRE(work().ok());
      REQUIRE(gpu.stream.wait(20).ok());
    }
    CHECK(b.download(DType::I32, {1})->get(0) == 1);
  }
}

TEST_CASE("gpu: prepared launches in the convention; the occupancy formula agrees with the driver" *
          doctest::skip(no_gpu())) {
  Gpu gpu;
  const DeviceInfo &info = gpu.device->info();
  Kernel k = gpu.kernel("add");
  int64_t n = 1 << 18, groups = bench_groups(3 * 4 * n, info.l2_bytes);
  struct Adds : BenchTarget {
    Stream &stream;
    std::vector<Buffer> buffers;
    std::vector<PreparedLaunch> launches;
    Adds(Stream &s) : stream(s) {}
    Status launch(int64_t group) override { return launches[size_t(group)].queue(stream); }
  } adds(gpu.stream);
  for (int64_t g = 0; g < groups; g++) {
    Params p;
    for (int64_t t = 0; t < 3; t++) {
      adds.buffers.push_back(gpu.buffer(4 * n));
      REQUIRE(
          adds.buffers.back().upload(fill_tensor(convention_fill(DType::F32), DType::F32, {n}, bench_seed(g, t))).ok());
      p.add(adds.buffers.back().address());
    }
    p.add(uint32_t(n));
    Result<PreparedLaunch> l = PreparedLaunch::create(k, {.grid = {n / 256, 1, 1}, .block = {256, 1, 1}}, p);
    REQUIRE(l.ok());
    adds.launches.push_back(std::move(*l));
  }
  Result<std::unique_ptr<GpuClock>> clock = GpuClock::create(gpu.stream, 20);
  Result<double> t = run_convention(adds, **clock, groups);
  REQUIRE(t.ok());
  MESSAGE("vector add of " << n << " f32, " << groups << " groups: " << *t * 1e6 << " us, "
                           << 12.0 * double(n) / *t * 1e-12 << " TB/s");
  CHECK(*t > 0.5e-6);
  CHECK(*t < 200e-6);
  SmLimits sm = {info.registers_per_sm, info.threads_per_sm,   info.blocks_per_sm,
                 info.shared_per_sm,    info.shared_per_block, info.reserved_shared_per_block};
  for (int64_t threads : {32, 96, 256, 1024})
    for (int64_t shared : {0, 1000, 30000, 47000})
      CHECK(blocks_per_sm(sm, k.registers, threads, shared + k.static_shared) == *k.blocks_per_sm(threads, shared));
}

TEST_CASE("gpu: event times agree with a kernel of known length; the convention runs" * doctest::skip(no_gpu())) {
  Gpu gpu;
  Params p;
  p.add(uint64_t(20000000)); // 20 ms
  Result<Event> begin = Event::create(*gpu.device), end = Event::create(*gpu.device);
  REQUIRE(begin->record(gpu.stream).ok());
  REQUIRE(launch(gpu.kernel("spin"), {}, p, gpu.stream).ok());
  REQUIRE(end->record(gpu.stream).ok());
  REQUIRE(end->wait(10).ok());
  double seconds = *end->seconds_since(*begin);
  CHECK(seconds > 0.019);
  CHECK(seconds < 0.030);
  Result<Stream> other = Stream::create(*gpu.device);
  CHECK(other->wait_for(*end).ok());
  CHECK(other->wait(1).ok());
}

TEST_CASE("gpu: the watchdog reports a kernel that is still running" * doctest::skip(no_gpu())) {
  Gpu gpu;
  Params p;
  p.add(uint64_t(1500000000)); // ends by itself after 1.5 s, so that the test can go on
  REQUIRE(launch(gpu.kernel("spin"), {}, p, gpu.stream).ok());
  auto start = std::chrono::steady_clock::now();
  Status s = gpu.stream.wait(0.2);
  double waited = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  REQUIRE_FALSE(s.ok());
  CHECK(s.kind() == ErrorKind::Timeout);
  CHECK(waited > 0.19);
  CHECK(waited < 1.0);
  CHECK(gpu.device->hung());
  CHECK(gpu.device->recover(gpu.stream, 10).ok());
  CHECK_FALSE(gpu.device->hung());
}

TEST_CASE("gpu: tensor map, cluster, programmatic and cooperative launches (sm_90 and later)" *
          doctest::skip(no_gpu())) {
  Gpu gpu;
  if (gpu.device->info().major < 9) {
    MESSAGE("skipped: " << gpu.device->info().arch());
    return;
  }
  CHECK(gpu.device->info().tensor_maps);
  CHECK(gpu.device->info().clusters);
  Result<Module> m = Module::load_ptx(*gpu.device, kTmaPtx);
  REQUIRE_MESSAGE(m.ok(), why(m));
  // 10 rows of 12 words: the box at (8, 6) hangs over both ends and is filled with zeros.
  HostTensor x = fill_tensor({FillKind::Arange, 1, 1}, DType::I32, {10, 12}, 0);
  Buffer in = gpu.buffer(int64_t(x.bytes.size())), out = gpu.buffer(256);
  REQUIRE(in.upload(x).ok());
  Result<cu::TensorMap> map = encode_tensor_map(
      gpu.device->api(),
      {.dtype = DType::I32, .address = in.address(), .dims = {12, 10}, .strides = {48}, .box = {8, 8}});
  REQUIRE_MESSAGE(map.ok(), why(map));
  for (uint32_t origin : {0u, 8u}) {
    uint32_t ox = origin, oy = origin ? 6 : 0;
    Params p;
    p.add_bytes(&*map, 128, 64).add(out.address()).add(ox).add(oy);
    REQUIRE(launch(*m->kernel("fetch"), {}, p, gpu.stream).ok());
    REQUIRE(gpu.stream.wait(10).ok());
    Result<HostTensor> got = out.download(DType::I32, {8, 8});
    for (int64_t r = 0; r < 8; r++)
      for (int64_t c = 0; c < 8; c++) {
        int64_t y = r + oy, z = c + ox;
        REQUIRE(got->get(r * 8 + c) == (y < 10 && z < 12 ? x.get(y * 12 + z) : 0));
      }
  }
  Params p;
  p.add(out.address());
  REQUIRE(launch(*m->kernel("cluster_size"), {.grid = {8, 1, 1}, .cluster = {4, 1, 1}}, p, gpu.stream).ok());
  REQUIRE(gpu.stream.wait(10).ok());
  CHECK(out.download(DType::I32, {8})->to_doubles() == std::vector<double>(8, 4));
  REQUIRE(out.set_bytes(0).ok());
  REQUIRE(launch(gpu.kernel("bump"), {.overlap_predecessor = true}, p, gpu.stream).ok());
  REQUIRE(launch(gpu.kernel("bump"), {.cooperative = true}, p, gpu.stream).ok());
  REQUIRE(gpu.stream.wait(10).ok());
  CHECK(out.download(DType::I32, {1})->get(0) >= 1);
}

// A fault leaves the context of the process unusable, so this runs in a process of its own.
TEST_CASE("gpu child: a store to an unmapped address is reported" * doctest::skip(true)) {
  Gpu gpu;
  Buffer b = gpu.buffer(4);
  Params p;
  p.add(uint64_t(0x10)).add(int64_t(0));
  REQUIRE(launch(gpu.kernel("poke"), {}, p, gpu.stream).ok());
  Status s = gpu.stream.wait(10);
  REQUIRE_FALSE(s.ok());
  CHECK(s.kind() == ErrorKind::Failure);
  CHECK_MESSAGE(s.error().find("the kernel failed: CUDA_ERROR_ILLEGAL_ADDRESS") == 0, s.error());
  CHECK_FALSE(b.download(DType::I32, {1}).ok());
}

TEST_CASE("gpu: a faulting kernel gives an error, and the objects can be destroyed" * doctest::skip(no_gpu())) {
  char self[4096] = {};
  REQUIRE(::readlink("/proc/self/exe", self, sizeof self - 1) > 0);
  std::string command = fmt::format("'{}' --no-skip=true --test-case='gpu child*' > /dev/null", self);
  CHECK(std::system(command.c_str()) == 0);
}
