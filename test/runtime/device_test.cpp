// The objects of device.h over a driver whose GPU is host memory, tensor maps, and the machine card.
#include "fake_driver.h"
#include "runtime/bench.h"
#include "runtime/generators.h"
#include "runtime/nvml.h"
#include "runtime/tensor_map.h"
#include <cmath>
#include <doctest/doctest.h>

using namespace tkc;
using namespace tkc::test;

namespace {
struct Opened {
  FakeGpu gpu;
  cu::Api api = fake_api(gpu);
  std::unique_ptr<Device> device = std::move(*Device::open(0, &api));
};
template <typename T> T param(const FakeLaunch &l, int i) {
  T value;
  std::memcpy(&value, l.params[i], sizeof value);
  return value;
}
} // namespace

TEST_CASE("without a driver or a GPU the error says so and has its own kind") {
  Result<cu::Api> none = cu::load("libno-such-driver.so.1");
  REQUIRE_FALSE(none.ok());
  CHECK(none.kind() == ErrorKind::NoDevice);
  CHECK(none.error().find("no CUDA driver: ") == 0);
  CHECK(none.error().find("libno-such-driver.so.1") != std::string::npos);
  Result<cu::Api> wrong = cu::load("libc.so.6"); // loads, but is no driver
  REQUIRE_FALSE(wrong.ok());
  CHECK(wrong.error().find("is too old: it lacks cuInit") != std::string::npos);
  CHECK(wrong.error().find("cuLaunchKernelEx") == std::string::npos); // optional
  FakeGpu gpu;
  cu::Api api = fake_api(gpu);
  gpu.devices = 0;
  CHECK(Device::open(0, &api).error() == "there is no GPU");
  CHECK(Device::open(0, &api).kind() == ErrorKind::NoDevice);
  gpu.devices = 1;
  CHECK(Device::open(1, &api).error() == "there is no GPU 1: the driver shows 1");
  gpu.fail["cuDeviceGetCount"] = 100;
  CHECK(Device::open(0, &api).kind() == ErrorKind::NoDevice);
  CHECK(gpu.nothing_alive());
}

TEST_CASE("device properties") {
  Opened o;
  const DeviceInfo &i = o.device->info();
  CHECK(i.name == "Fake GPU");
  CHECK(i.uuid == "GPU-00112233-4455-6677-8899-aabbccddeeff");
  CHECK(i.arch() == "sm_90");
  CHECK(i.sms == 132);
  CHECK(i.l2_bytes == 50 << 20);
  CHECK(i.shared_per_block == 232448);
  CHECK(i.clusters);
  CHECK_FALSE(i.tensor_maps); // an attribute that this driver does not know
  CHECK(*Device::count(&o.api) == 1);
  CHECK(*o.device->free_bytes() == 1 << 30);
}

TEST_CASE("everything is destroyed, in whatever order it moves") {
  FakeGpu gpu;
  cu::Api api = fake_api(gpu);
  gpu.kernels["k"] = [](const FakeLaunch &) {};
  {
    std::unique_ptr<Device> d = std::move(*Device::open(0, &api));
    Result<Buffer> a = Buffer::allocate(*d, 100, 10), b = Buffer::allocate(*d, 0);
    Result<Stream> s = Stream::create(*d);
    Result<Event> e = Event::create(*d);
    Result<Module> m = Module::load_ptx(*d, ".version 8.0");
    Result<Graph> g = Graph::capture(*s, [&] { return launch(*m->kernel("k"), {}, Params(), *s); });
    REQUIRE(g.ok());
    CHECK(gpu.memory.size() == 2);
    *a = std::move(*b); // the first buffer's memory now belongs to b
    Buffer c = std::move(*a);
    CHECK(gpu.graphs == 0);
    CHECK(gpu.execs == 1);
  }
  CHECK(gpu.nothing_alive());
}

TEST_CASE("buffers: transfers, errors, guard bands") {
  Opened o;
  HostTensor x = fill_tensor({FillKind::Normal, 0, 1}, DType::BF16, {3, 7}, 1);
  Result<Buffer> b = Buffer::allocate(*o.device, int64_t(x.bytes.size()), 300);
  REQUIRE(b.ok());
  CHECK(b->address() % 256 == 0);
  REQUIRE(b->upload(x).ok());
  CHECK(*b->download(DType::BF16, {3, 7}) == x);
  CHECK(!b->check_guards()->has_value());
  REQUIRE(b->set_bytes(0).ok());
  CHECK(*b->download(DType::BF16, {3, 7}) == HostTensor::zeros(DType::BF16, {3, 7}));
  CHECK(!b->check_guards()->has_value());
  // Every byte of both bands is watched, against any value that is not already there.
  int64_t size = b->size();
  int64_t missed = 0;
  for (int64_t offset = -512; offset < size + 512; offset++) {
    if (offset >= 0 && offset < size) continue;
    uint8_t *p = o.gpu.at(b->address() + cu::Pointer(offset), 1);
    REQUIRE(p);
    uint8_t old = *p;
    *p = old ^ 0x40;
    Result<std::optional<GuardViolation>> v = b->check_guards();
    missed +=
        !(v.ok() && v->has_value() && (*v)->offset == offset && (*v)->before == (offset < 0) && (*v)->damaged == 1);
    *p = old;
  }
  CHECK(missed == 0);
  for (uint8_t value : {0x00, 0xff, 0x7f, 0x3f}) { // a constant store of 4 bytes on either side
    for (int64_t offset : {int64_t(-4), size}) {
      uint8_t *p = o.gpu.at(b->address() + cu::Pointer(offset), 4);
      uint8_t old[4];
      std::memcpy(old, p, 4);
      std::memset(p, value, 4);
      CHECK((*b->check_guards()).has_value());
      std::memcpy(p, old, 4);
    }
  }
  GuardViolation v{false, 46, 4};
  CHECK(v.to_string("y") == "y: 4 bytes behind the buffer were overwritten; first at offset 46");
  // What a read past the end finds is NaN in every wider float type.
  for (DType t : {DType::F16, DType::BF16, DType::F32, DType::F64}) {
    Result<Buffer> n = Buffer::allocate(*o.device, 16 * dtype_bytes(t), 256);
    HostTensor band = HostTensor::zeros(t, {256 / dtype_bytes(t)});
    std::memcpy(band.bytes.data(), o.gpu.at(n->address() + cu::Pointer(n->size()), 256), 256);
    for (double d : band.to_doubles()) REQUIRE(std::isnan(d));
  }
  o.gpu.fail["cuMemAlloc"] = 2;
  CHECK(Buffer::allocate(*o.device, 100).error() ==
        "allocating 100 bytes on the GPU: CUDA_ERROR_OUT_OF_MEMORY (fake text)");
  o.gpu.fail["cuMemcpyDtoH"] = 700;
  CHECK(b->download(DType::BF16, {3, 7}).error() == "copying from the GPU: CUDA_ERROR_ILLEGAL_ADDRESS (fake text)");
}

TEST_CASE("modules: options, logs, errors") {
  Opened o;
  Result<Module> m = Module::load_ptx(*o.device, ".version 8.0", {.max_registers = 64, .verbose = true});
  REQUIRE(m.ok());
  CHECK(m->log() == "fake log");
  CHECK(o.gpu.jit[0] == 64);
  CHECK(o.gpu.jit[12] == 1);
  CHECK(o.gpu.jit[7] == 4);
  CHECK(o.gpu.jit[4] == 65536);
  CHECK(m->kernel("none").error().find("looking up the kernel `none`") == 0);
  CHECK(m->global("g")->bytes == 12);
  o.gpu.reject_ptx = true;
  CHECK(Module::load_ptx(*o.device, "x").error() ==
        "the driver does not assemble the PTX: CUDA_ERROR_FAKE (fake text)\nptxas fatal: fake");
  o.gpu.reject_ptx = false;
  CHECK(Module::load_cubin(*o.device, std::vector<uint8_t>(100)).error() == "100 bytes that are not a cubin");
  std::vector<uint8_t> elf(128);
  std::memcpy(elf.data(),
              "\x7f"
              "ELF\2",
              5);
  elf[0x28] = 64;
  elf[0x3a] = 64;
  elf[0x3c] = 1;
  CHECK(Module::load_cubin(*o.device, elf).ok());
  CHECK(o.gpu.image == "\x7f"
                       "ELF");
  elf[0x3c] = 2;
  CHECK(Module::load_cubin(*o.device, elf).error() == "a cubin that is truncated at 128 bytes");
}

TEST_CASE("parameters are laid out as the ABI does and reach the kernel") {
  Params p;
  p.add(uint8_t(1)).add(uint64_t(2)).add(uint16_t(3)).add(float(4));
  CHECK(p.offsets() == std::vector<int64_t>{0, 8, 16, 20});
  CHECK(p.bytes().size() == 24);
  struct alignas(64) Map {
    uint8_t bytes[128];
  };
  p.add(Map{});
  CHECK(p.offsets().back() == 64);

  Opened o;
  int64_t runs = 0;
  o.gpu.kernels["add"] = [&](const FakeLaunch &l) {
    runs++;
    auto a = reinterpret_cast<float *>(o.gpu.at(param<cu::Pointer>(l, 0), 4));
    auto out = reinterpret_cast<float *>(o.gpu.at(param<cu::Pointer>(l, 1), 4));
    *out = *a + param<float>(l, 2) + float(l.grid[0] * 100 + l.block[0]);
  };
  Result<Module> m = Module::load_ptx(*o.device, "x");
  Result<Kernel> k = m->kernel("add");
  REQUIRE(k.ok());
  CHECK(k->registers == 40);
  CHECK(*k->blocks_per_sm(128, 0) == 3);
  Result<Stream> s = Stream::create(*o.device);
  Result<Buffer> a = Buffer::allocate(*o.device, 4), out = Buffer::allocate(*o.device, 4, 64);
  REQUIRE(a->upload(HostTensor::from_doubles(DType::F32, {1}, std::vector<double>{5})).ok());
  Params q;
  q.add(a->address()).add(out->address()).add(0.5f);
  REQUIRE(launch(*k, {.grid = {7, 1, 1}, .block = {64, 1, 1}}, q, *s).ok());
  CHECK(out->download(DType::F32, {1})->get(0) == 5 + 0.5 + 764);
  Params blob = Params::from_blob(q.bytes(), q.offsets());
  REQUIRE(launch(*k, {.grid = {8, 1, 1}, .block = {64, 1, 1}}, blob, *s).ok());
  CHECK(out->download(DType::F32, {1})->get(0) == 5 + 0.5 + 864);
  REQUIRE(launch(*k, {.grid = {0, 1, 1}, .block = {64, 1, 1}}, q, *s).ok());
  CHECK(runs == 2); // an empty grid does nothing
}

TEST_CASE("launches: limits of the device, attributes") {
  Opened o;
  std::vector<cu::LaunchAttribute> seen;
  unsigned shared = 0;
  o.gpu.kernels["k"] = [&](const FakeLaunch &l) {
    seen = l.attributes;
    shared = l.shared;
  };
  Result<Module> m = Module::load_ptx(*o.device, "x");
  Kernel k = *m->kernel("k");
  Result<Stream> s = Stream::create(*o.device);
  auto error = [&](Launch l) { return launch(k, l, Params(), *s).error(); };
  CHECK(error({.grid = {int64_t(1) << 31, 1, 1}}) == "`k`: 2147483648 blocks along x, at most 2147483647 are possible");
  CHECK(error({.grid = {1, 65536, 1}}) == "`k`: 65536 blocks along y, at most 65535 are possible");
  CHECK(error({.block = {1025, 1, 1}}) == "`k`: 1025 threads along x, 1 to 1024 are possible");
  CHECK(error({.block = {0, 1, 1}}) == "`k`: 0 threads along x, 1 to 1024 are possible");
  CHECK(error({.block = {1024, 1, 1}}) ==
        "`k`: a block of 1024 threads, at most 512 are possible with its 40 registers");
  CHECK(error({.dynamic_shared = 232448}) ==
        "`k` needs 233448 bytes of shared memory, Fake GPU has 232448 for a block");
  CHECK(error({.grid = {3, 1, 1}, .cluster = {2, 1, 1}}) ==
        "`k`: 3 blocks along x are not a multiple of the cluster's 2");
  o.gpu.calls.clear();
  REQUIRE(launch(k, {.dynamic_shared = 99 << 10}, Params(), *s).ok());
  CHECK(shared == 99 << 10);
  CHECK(o.gpu.calls == std::vector<std::string>{"attribute 8 = 231448", "launch"});
  REQUIRE(launch(k, {.grid = {32, 1, 1}, .cluster = {16, 1, 1}, .cooperative = true, .overlap_predecessor = true},
                 Params(), *s)
              .ok());
  REQUIRE(seen.size() == 3);
  CHECK(seen[0].id == 4);
  CHECK(seen[0].value.cluster.x == 16);
  CHECK(seen[0].value.cluster.y == 1);
  CHECK(seen[1].id == 2);
  CHECK(seen[1].value.flag == 1);
  CHECK(seen[2].id == 6);
  Result<PreparedLaunch> prepared = PreparedLaunch::create(k, {.dynamic_shared = 64}, Params().add(int32_t(5)));
  PreparedLaunch moved = std::move(*prepared);
  int32_t got = 0;
  o.gpu.kernels["k"] = [&](const FakeLaunch &l) { got += param<int32_t>(l, 0); };
  o.gpu.calls.clear();
  for (int i = 0; i < 3; i++) REQUIRE(moved.queue(*s).ok());
  CHECK(got == 15);
  CHECK(o.gpu.calls == std::vector<std::string>{"launch", "launch", "launch"});
  o.gpu.fail["cuLaunchKernel"] = 700;
  CHECK(error({}) == "launching `k`: CUDA_ERROR_ILLEGAL_ADDRESS (fake text)");
}

TEST_CASE("a watchdog ends the wait for a kernel that hangs, and nothing is touched after that") {
  FakeGpu gpu;
  cu::Api api = fake_api(gpu);
  {
    std::unique_ptr<Device> d = std::move(*Device::open(0, &api));
    Result<Stream> s = Stream::create(*d);
    Result<Event> e = Event::create(*d);
    Result<Buffer> b = Buffer::allocate(*d, 4);
    REQUIRE(e->record(*s).ok());
    gpu.busy = 3; // late, but in time
    CHECK(e->wait(10).ok());
    gpu.busy = 3;
    CHECK(s->wait(0).ok()); // no limit
    gpu.busy = -1;
    Status timeout = e->wait(0.02);
    REQUIRE_FALSE(timeout.ok());
    CHECK(timeout.kind() == ErrorKind::Timeout);
    CHECK(timeout.error() == "the kernel is still running after 0.02 s: it hangs, or the limit is too short");
    CHECK(d->hung());
    CHECK(d->recover(*s, 0.01).kind() == ErrorKind::Timeout);
    { Result<Event> other = Event::create(*d); } // not destroyed: the driver would block
    CHECK(gpu.events == 2);
    gpu.busy = 2;
    CHECK(d->recover(*s, 10).ok());
    CHECK_FALSE(d->hung());
    gpu.fail["query"] = 700;
    CHECK(s->wait(1).error() == "the kernel failed: CUDA_ERROR_ILLEGAL_ADDRESS (fake text)");
    gpu.fail.clear();
    gpu.busy = -1;
    CHECK_FALSE(s->wait(0.001).ok());
  }
  CHECK(gpu.streams == 1); // left alone
  CHECK(gpu.contexts == 1);
}

TEST_CASE("graphs: capture counts the launches, errors end the capture") {
  Opened o;
  o.gpu.kernels["k"] = [](const FakeLaunch &) { FAIL("a captured launch ran"); };
  Result<Module> m = Module::load_ptx(*o.device, "x");
  Kernel k = *m->kernel("k");
  Result<Stream> s = Stream::create(*o.device);
  Result<Graph> g = Graph::capture(*s, [&]() -> Status {
    for (int i = 0; i < 3; i++) TKC_TRY(launch(k, {}, Params(), *s));
    return {};
  });
  REQUIRE(g.ok());
  CHECK(g->node_count() == 3);
  REQUIRE(g->launch(*s).ok());
  CHECK(o.gpu.calls.back() == "graph");
  CHECK(Graph::capture(*s, [&]() -> Status { return failure("no"); }).error() == "no");
  CHECK_FALSE(o.gpu.capturing);
  CHECK(o.gpu.graphs == 0);
}

TEST_CASE("the GPU clock runs the convention between two events") {
  Opened o;
  Result<Stream> s = Stream::create(*o.device);
  struct Target : BenchTarget {
    FakeGpu &gpu;
    Target(FakeGpu &g) : gpu(g) {}
    Status launch(int64_t group) override {
      gpu.calls.push_back(fmt::format("{}", group));
      return {};
    }
  } target(o.gpu);
  Result<std::unique_ptr<GpuClock>> clock = GpuClock::create(*s, 5);
  o.gpu.calls.clear();
  Result<double> t = run_convention(target, **clock, 2, {.rest_seconds = 0, .warmup = 1, .timed = 3});
  CHECK(*t == doctest::Approx(2.5e-3 / 3));
  CHECK(o.gpu.calls == std::vector<std::string>{"0", "record", "0", "1", "0", "record"});
  o.gpu.busy = -1;
  Result<std::unique_ptr<GpuClock>> impatient = GpuClock::create(*s, 0.01);
  CHECK(run_convention(target, **impatient, 2, {.rest_seconds = 0, .warmup = 1, .timed = 3}).kind() ==
        ErrorKind::Timeout);
}

TEST_CASE("tensor maps: every rule has its message; the fields reach the driver") {
  TensorMapSpec good = {.dtype = DType::BF16,
                        .address = 0x1000,
                        .dims = {100, 30},
                        .strides = {208},
                        .box = {64, 16},
                        .swizzle_bytes = 128};
  CHECK(check_tensor_map(good).ok());
  auto error = [&](auto change) {
    TensorMapSpec s = good;
    change(s);
    return check_tensor_map(s).error();
  };
  using S = TensorMapSpec;
  CHECK(error([](S &s) { s.address = 0x1008; }) == "tensor map: the address 0x1008 is not a multiple of 16");
  CHECK(error([](S &s) { s.strides[0] = 200; }) ==
        "tensor map: the stride of dim 1 is 200 bytes; a multiple of 16 below 2^40 is needed");
  CHECK(error([](S &s) { s.box[1] = 257; }) ==
        "tensor map: the box has 257 elements along dim 1, 1 to 256 are possible");
  CHECK(error([](S &s) { s.box[0] = 4; }) == "tensor map: the box is 8 bytes wide, a multiple of 16 is needed");
  CHECK(error([](S &s) { s.swizzle_bytes = 64; }) ==
        "tensor map: the box is 128 bytes wide, more than its swizzle of 64");
  CHECK(error([](S &s) { s.swizzle_bytes = 16; }) == "tensor map: a swizzle of 16 bytes; 0, 32, 64 and 128 exist");
  CHECK(error([](S &s) { s.dims[0] = 0; }) == "tensor map: dim 0 has 0 elements, 1 to 2^32 are possible");
  CHECK(error([](S &s) { s.dims = {}; }) == "tensor map: rank 0, 1 to 5 are possible");
  CHECK(error([](S &s) { s.box = {64}; }) == "tensor map: 2 dims with 1 strides and 1 box sizes");
  CHECK(error([](S &s) { s.dtype = DType::E2M1; }) == "tensor map: no element type for e2m1");
  FakeGpu gpu;
  cu::Api api = fake_api(gpu);
  Result<cu::TensorMap> map = encode_tensor_map(api, good);
  REQUIRE(map.ok());
  CHECK(map->opaque[0] == (9u | 2u << 8 | 3u << 16));
  CHECK(map->opaque[1] == 0x1000);
  CHECK(map->opaque[2] == (100u | uint64_t(30) << 32));
  CHECK(map->opaque[3] == 208);
  CHECK(map->opaque[4] == (64u | 16u << 16 | uint64_t(1) << 32));
  // The bit that is wrong for small tensors (the fake driver puts the address into its word).
  TensorMapSpec small = good, large = good;
  small.address = large.address = 0x201000;
  large.dims = {100, 700};
  CHECK(encode_tensor_map(api, small)->opaque[1] == 0x1000);
  CHECK(encode_tensor_map(api, large)->opaque[1] == 0x201000);
  api.cuTensorMapEncodeTiled = nullptr;
  CHECK(encode_tensor_map(api, good).error().find("too old for tensor maps") != std::string::npos);
}

TEST_CASE("machine card: without NVML its fields are absent, with it they are read from the right GPU") {
  DeviceInfo gpu;
  gpu.name = "Fake GPU";
  gpu.uuid = "GPU-1";
  gpu.major = 9;
  gpu.driver_version = 13010;
  CHECK_FALSE(load_nvml("libno-such-nvml.so").ok());
  NvmlApi dead;
  dead.init = [] { return 1; };
  GpuMonitor absent(gpu, &dead);
  CHECK_FALSE(absent.available());
  MachineCard bare = machine_card(gpu, absent);
  CHECK_FALSE(bare.driver);
  CHECK_FALSE(bare.before.sm_mhz);
  CHECK(bare.before.to_string() == "unknown");
  CHECK(bare.to_json().dump(0).find("\"cuda\":\"13.1\"") != std::string::npos);
  CHECK(bare.to_json().dump(0).find("\"driver\"") == std::string::npos);

  NvmlApi api;
  api.init = [] { return 0; };
  api.shutdown = [] { return 0; };
  api.by_uuid = [](const char *uuid, NvmlApi::Handle *h) {
    return *h = reinterpret_cast<NvmlApi::Handle>(8), std::strcmp(uuid, "GPU-1") == 0 ? 0 : 6;
  };
  api.driver_version = [](char *t, unsigned n) { return std::strncpy(t, "580.65.06", n), 0; };
  api.clock = [](NvmlApi::Handle, int which, unsigned *mhz) { return *mhz = which == 1 ? 1980 : 3201, 0; };
  api.power = [](NvmlApi::Handle, unsigned *mw) { return *mw = 512345, 0; };
  api.temperature = [](NvmlApi::Handle, int, unsigned *c) { return *c = 54, 0; };
  api.throttle = [](NvmlApi::Handle, unsigned long long *bits) { return *bits = 0x1 | 0x4 | 0x40, 0; };
  api.power_limit = [](NvmlApi::Handle, unsigned *) { return 3; }; // not supported
  GpuMonitor monitor(gpu, &api);
  REQUIRE(monitor.available());
  MachineCard card = machine_card(gpu, monitor);
  card.after = monitor.state();
  CHECK(card.driver == "580.65.06");
  CHECK_FALSE(card.power_limit_milliwatts);
  CHECK_FALSE(card.max_sm_mhz); // this library lacks the function
  CHECK(card.after.to_string() ==
        "1980 MHz, memory 3201 MHz, 512 W, 54 C, throttled: power cap, throttled: hardware thermal slowdown");
  CHECK(card.warnings() == std::vector<std::string>{"the GPU was throttled (power cap)",
                                                    "the GPU was throttled (hardware thermal slowdown)"});
  card.after.throttle_bits = 1; // idle is no throttling
  card.after.sm_mhz = 1900;
  CHECK(card.warnings() == std::vector<std::string>{"the SM clock fell from 1980 to 1900 MHz"});
  CHECK(card.to_string().find("warning  the SM clock fell") != std::string::npos);
  gpu.uuid = "GPU-2";
  CHECK_FALSE(GpuMonitor(gpu, &api).available());
}
