#include "runtime/device.h"
#include "support/stop.h"
#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

namespace tkc {

using namespace cu::constant;

std::string DeviceInfo::arch() const { return fmt::format("sm_{}{}", major, minor); }

static Result<const cu::Api *> api_or_driver(const cu::Api *api) {
  if (api) return api;
  return cu::driver();
}

Result<int64_t> Device::count(const cu::Api *api) {
  Result<const cu::Api *> a = api_or_driver(api);
  if (!a) return a.failed();
  int n = 0;
  TKC_TRY((*a)->check((*a)->cuDeviceGetCount(&n), "counting the GPUs"));
  return int64_t(n);
}

static std::string uuid_text(const cu::Uuid &uuid) {
  std::string out = "GPU-";
  for (int i = 0; i < 16; i++) {
    if (i == 4 || i == 6 || i == 8 || i == 10) out += '-';
    out += fmt::format("{:02x}", uuid.bytes[i]);
  }
  return out;
}

static Result<DeviceInfo> read_info(const cu::Api &api, cu::Device handle, int64_t ordinal) {
  DeviceInfo info;
  info.ordinal = ordinal;
  char text[256] = {};
  TKC_TRY(api.check(api.cuDeviceGetName(text, sizeof text - 1, handle), "asking for the name of the GPU"));
  info.name = text;
  cu::Uuid uuid = {};
  TKC_TRY(api.check(api.cuDeviceGetUuid(&uuid, handle), "asking for the UUID of the GPU"));
  info.uuid = uuid_text(uuid);
  std::memset(text, 0, sizeof text);
  TKC_TRY(api.check(api.cuDeviceGetPCIBusId(text, sizeof text - 1, handle), "asking for the PCI bus of the GPU"));
  info.pci_bus_id = text;
  int version = 0;
  TKC_TRY(api.check(api.cuDriverGetVersion(&version), "asking for the version of the driver"));
  info.driver_version = version;
  size_t bytes = 0;
  TKC_TRY(api.check(api.cuDeviceTotalMem(&bytes, handle), "asking for the memory of the GPU"));
  info.memory_bytes = int64_t(bytes);

  struct Wanted {
    int attribute;
    int64_t *to;
    bool must;
  };
  int64_t clusters = 0, tensor_maps = 0;
  const Wanted wanted[] = {
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR_, &info.major, true},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR_, &info.minor, true},
      {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT_, &info.sms, true},
      {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE_, &info.l2_bytes, true},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN_, &info.shared_per_block, true},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR_, &info.shared_per_sm, true},
      {CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK_, &info.reserved_shared_per_block, false},
      {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR_, &info.registers_per_sm, true},
      {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR_, &info.threads_per_sm, true},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR_, &info.blocks_per_sm, false},
      {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK_, &info.threads_per_block, true},
      {CU_DEVICE_ATTRIBUTE_CLOCK_RATE_, &info.clock_khz, false},
      {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE_, &info.memory_clock_khz, false},
      {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH_, &info.memory_bus_bits, false},
      {CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH_, &clusters, false},
      {CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED_, &tensor_maps, false},
  };
  for (const Wanted &w : wanted) {
    int value = 0;
    cu::Code code = api.cuDeviceGetAttribute(&value, w.attribute, handle);
    if (code != CUDA_SUCCESS_ && w.must)
      return api.error(code, fmt::format("asking for attribute {} of the GPU", w.attribute));
    *w.to = code == CUDA_SUCCESS_ ? value : 0; // an older driver does not know the newer ones
  }
  info.clusters = clusters != 0;
  info.tensor_maps = tensor_maps != 0;
  return info;
}

Result<std::unique_ptr<Device>> Device::open(int64_t ordinal, const cu::Api *given) {
  Result<const cu::Api *> found = api_or_driver(given);
  if (!found) return found.failed();
  const cu::Api &api = **found;
  int n = 0;
  if (cu::Code code = api.cuDeviceGetCount(&n); code != CUDA_SUCCESS_)
    return Error{api.error(code, "counting the GPUs").message, ErrorKind::NoDevice};
  if (n == 0) return Error{"there is no GPU", ErrorKind::NoDevice};
  if (ordinal < 0 || ordinal >= n)
    return Error{fmt::format("there is no GPU {}: the driver shows {}", ordinal, n), ErrorKind::NoDevice};
  std::unique_ptr<Device> device(new Device(api));
  TKC_TRY(api.check(api.cuDeviceGet(&device->handle_, int(ordinal)), "opening the GPU"));
  Result<DeviceInfo> info = read_info(api, device->handle_, ordinal);
  if (!info) return info.failed();
  device->info_ = std::move(*info);
  TKC_TRY(api.check(api.cuDevicePrimaryCtxRetain(&device->context_, device->handle_), "creating a context on the GPU"));
  TKC_TRY(device->make_current());
  return device;
}

Device::~Device() {
  if (context_ && !hung_) api_.cuDevicePrimaryCtxRelease(handle_);
}

Status Device::make_current() const {
  return api_.check(api_.cuCtxSetCurrent(context_), "selecting the context of the GPU");
}

Result<int64_t> Device::free_bytes() const {
  size_t free = 0, total = 0;
  TKC_TRY(api_.check(api_.cuMemGetInfo(&free, &total), "asking for the free memory of the GPU"));
  return int64_t(free);
}

Status Device::poll(const std::function<cu::Code()> &query, double limit) {
  using namespace std::chrono;
  auto begin = steady_clock::now();
  while (true) {
    cu::Code code = query();
    if (code == CUDA_SUCCESS_) return {};
    if (code != CUDA_ERROR_NOT_READY_) return api_.error(code, "the kernel failed");
    if (std::optional<Error> why = stop_reason()) {
      hung_ = true; // a running kernel cannot be called back
      return *why;
    }
    double waited = duration<double>(steady_clock::now() - begin).count();
    if (limit > 0 && waited > limit) {
      hung_ = true;
      return Error{
          fmt::format("the kernel is still running after {:.3g} s: it hangs, or the limit is too short", limit),
          ErrorKind::Timeout};
    }
    // Short work is met at once; a long wait leaves the core to others.
    if (waited > 1e-3) std::this_thread::sleep_for(microseconds(waited > 0.1 ? 1000 : 50));
  }
}

Status Device::recover(Stream &stream, double limit) {
  TKC_TRY(poll([&] { return api_.cuStreamQuery(stream.get()); }, limit));
  hung_ = false;
  return {};
}

// ---- buffers

std::string GuardViolation::to_string(std::string_view name) const {
  return before ? fmt::format("{}: {} bytes before the buffer were overwritten; nearest at offset {}", name, damaged,
                              offset)
                : fmt::format("{}: {} bytes behind the buffer were overwritten; first at offset {}", name, damaged,
                              offset);
}

// Words of 16 bits that are NaN in bf16 and f16, and pairs of them in f32 and f64; the low bits vary, so that no
// constant that a kernel might store looks like the pattern.
static uint8_t guard_byte(int64_t position) {
  uint64_t x = uint64_t(position / 2) * 0x9e3779b97f4a7c15u;
  x ^= x >> 32;
  if (position % 2) return x & 1 ? 0xff : 0x7f;
  return uint8_t(0xf1 + (x >> 8) % 14);
}

static std::vector<uint8_t> guard_pattern(int64_t begin, int64_t bytes) {
  std::vector<uint8_t> pattern(static_cast<size_t>(bytes));
  for (int64_t i = 0; i < bytes; i++) pattern[size_t(i)] = guard_byte(begin + i);
  return pattern;
}

Result<Buffer> Buffer::allocate(Device &device, int64_t bytes, int64_t guard_bytes) {
  TKC_CHECK(bytes >= 0 && guard_bytes >= 0, "a buffer of {} bytes with guards of {}", bytes, guard_bytes);
  int64_t guard = (guard_bytes + 255) / 256 * 256; // keeps the alignment that the driver gives
  int64_t whole = std::max<int64_t>(bytes + 2 * guard, 1);
  const cu::Api &api = device.api();
  cu::Pointer address = 0;
  TKC_TRY(api.check(api.cuMemAlloc(&address, size_t(whole)), fmt::format("allocating {} bytes on the GPU", whole)));
  Buffer buffer(Owned<cu::Pointer>(device, address, api.cuMemFree), bytes, guard);
  if (guard > 0) {
    std::vector<uint8_t> before = guard_pattern(0, guard), behind = guard_pattern(guard + bytes, guard);
    TKC_TRY(api.check(api.cuMemcpyHtoD(address, before.data(), before.size()), "writing a guard band"));
    TKC_TRY(api.check(api.cuMemcpyHtoD(address + cu::Pointer(guard + bytes), behind.data(), behind.size()),
                      "writing a guard band"));
    TKC_TRY(buffer.sync());
  }
  return buffer;
}

// A copy from pageable memory returns when it is staged; kernels on other streams must find it done.
Status Buffer::sync() const {
  const cu::Api &api = memory_.api();
  return api.check(api.cuStreamSynchronize(nullptr), "waiting for a copy to the GPU");
}

Status Buffer::upload(std::span<const uint8_t> bytes) {
  TKC_CHECK(int64_t(bytes.size()) <= bytes_, "{} bytes into a buffer of {}", bytes.size(), bytes_);
  if (bytes.empty()) return {};
  const cu::Api &api = memory_.api();
  TKC_TRY(api.check(api.cuMemcpyHtoD(address(), bytes.data(), bytes.size()), "copying to the GPU"));
  return sync();
}

Status Buffer::download(std::span<uint8_t> bytes) const {
  TKC_CHECK(int64_t(bytes.size()) <= bytes_, "{} bytes from a buffer of {}", bytes.size(), bytes_);
  if (bytes.empty()) return {};
  const cu::Api &api = memory_.api();
  return api.check(api.cuMemcpyDtoH(bytes.data(), address(), bytes.size()), "copying from the GPU");
}

Status Buffer::set_bytes(uint8_t value) {
  if (bytes_ == 0) return {};
  const cu::Api &api = memory_.api();
  TKC_TRY(api.check(api.cuMemsetD8Async(address(), value, size_t(bytes_), nullptr), "filling a buffer on the GPU"));
  return sync();
}

Result<HostTensor> Buffer::download(DType dtype, std::vector<int64_t> shape) const {
  HostTensor t = HostTensor::zeros(dtype, std::move(shape));
  TKC_TRY(download(t.bytes));
  return t;
}

Result<std::optional<GuardViolation>> Buffer::check_guards() const {
  if (guard_ == 0) return std::optional<GuardViolation>();
  const cu::Api &api = memory_.api();
  std::vector<uint8_t> held(static_cast<size_t>(guard_));
  for (bool before : {true, false}) {
    int64_t begin = before ? 0 : guard_ + bytes_;
    TKC_TRY(api.check(api.cuMemcpyDtoH(held.data(), memory_.get() + cu::Pointer(begin), held.size()),
                      "reading a guard band"));
    GuardViolation v{before, 0, 0};
    for (int64_t i = 0; i < guard_; i++) {
      if (held[size_t(i)] == guard_byte(begin + i)) continue;
      if (before || v.damaged == 0) v.offset = begin + i - guard_;
      v.damaged++;
    }
    if (v.damaged > 0) return std::optional(v);
  }
  return std::optional<GuardViolation>();
}

// ---- streams and events

Result<Event> Event::create(Device &device) {
  cu::Event event = nullptr;
  TKC_TRY(device.api().check(device.api().cuEventCreate(&event, CU_EVENT_DEFAULT_), "creating an event"));
  return Event(Owned<cu::Event>(device, event, device.api().cuEventDestroy));
}

Status Event::record(const Stream &stream) {
  return event_.api().check(event_.api().cuEventRecord(event_.get(), stream.get()), "recording an event");
}

Status Event::wait(double limit_seconds) const {
  return event_.device().poll([&] { return event_.api().cuEventQuery(event_.get()); }, limit_seconds);
}

bool Event::done() const { return event_.api().cuEventQuery(event_.get()) == CUDA_SUCCESS_; }

Result<double> Event::seconds_since(const Event &start) const {
  float milliseconds = 0;
  TKC_TRY(event_.api().check(event_.api().cuEventElapsedTime(&milliseconds, start.get(), get()),
                             "reading the time between events"));
  return double(milliseconds) * 1e-3;
}

Result<Stream> Stream::create(Device &device) {
  cu::Stream stream = nullptr;
  TKC_TRY(device.api().check(device.api().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING_), "creating a stream"));
  return Stream(Owned<cu::Stream>(device, stream, device.api().cuStreamDestroy));
}

Status Stream::wait(double limit_seconds) const {
  return device().poll([&] { return stream_.api().cuStreamQuery(stream_.get()); }, limit_seconds);
}

Status Stream::wait_for(const Event &event) const {
  return stream_.api().check(stream_.api().cuStreamWaitEvent(stream_.get(), event.get(), 0),
                             "ordering a stream after an event");
}

} // namespace tkc
