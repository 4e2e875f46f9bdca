// GPU objects over the driver API (cuda.h). Each closes itself; all must be destroyed before their Device. Objects
// belong to the thread that opened the Device; another thread calls make_current() first.
//
// Runaway kernels: whatever waits has a time limit, and ends at stop_requested() (support/stop.h) as well. Then the
// device is marked as hung, the error has the kind Timeout or Interrupted, and destructors no longer touch the device
// (every driver call could block for ever); the process should then end by std::_Exit after flushing its output.
#pragma once
#include "runtime/cuda.h"
#include "runtime/host_tensor.h"
#include <array>
#include <functional>
#include <memory>

namespace tkc {

struct DeviceInfo {
  int64_t ordinal = 0;
  std::string name, uuid, pci_bus_id; // uuid as "GPU-xxxxxxxx-...", as NVML spells it
  int64_t driver_version = 0;         // 13000: the driver knows CUDA 13.0
  int64_t major = 0, minor = 0;       // compute capability
  int64_t sms = 0, l2_bytes = 0, memory_bytes = 0;
  int64_t shared_per_block = 0; // bytes, with the opt-in above 48 KiB
  int64_t shared_per_sm = 0, reserved_shared_per_block = 0;
  int64_t registers_per_sm = 0, threads_per_sm = 0, blocks_per_sm = 0, threads_per_block = 0;
  int64_t clock_khz = 0, memory_clock_khz = 0, memory_bus_bits = 0; // 0 where the driver does not say
  bool clusters = false, tensor_maps = false;

  std::string arch() const; // "sm_90"
};

class Stream;

class Device {
public:
  // `api` is the driver unless a test gives its own. Errors without a driver or a GPU have the kind NoDevice.
  static Result<std::unique_ptr<Device>> open(int64_t ordinal = 0, const cu::Api *api = nullptr);
  static Result<int64_t> count(const cu::Api *api = nullptr);
  ~Device();
  Device(const Device &) = delete;
  Device &operator=(const Device &) = delete;

  const DeviceInfo &info() const { return info_; }
  const cu::Api &api() const { return api_; }
  Status make_current() const;
  Result<int64_t> free_bytes() const;

  bool hung() const { return hung_; }
  // Waits by polling; `query` returns CUDA_ERROR_NOT_READY until the work is done. Seconds; a limit <= 0 is no limit.
  Status poll(const std::function<cu::Code()> &query, double limit);
  // After a timeout: clears the mark if the work of `stream` ends within `limit` seconds after all.
  Status recover(Stream &stream, double limit);

private:
  Device(const cu::Api &api) : api_(api) {}
  const cu::Api &api_;
  cu::Device handle_ = 0;
  cu::Context context_ = nullptr;
  DeviceInfo info_;
  bool hung_ = false;
};

// A driver object that is destroyed by one call. Moves; never copies; skips the call on a hung device.
template <typename Handle> class Owned {
public:
  Owned() = default;
  Owned(Device &device, Handle handle, cu::Code (*destroy)(Handle))
      : device_(&device), handle_(handle), destroy_(destroy) {}
  Owned(Owned &&o) noexcept
      : device_(std::exchange(o.device_, nullptr)), handle_(std::exchange(o.handle_, Handle())), destroy_(o.destroy_) {}
  Owned &operator=(Owned &&o) noexcept {
    std::swap(device_, o.device_);
    std::swap(handle_, o.handle_);
    std::swap(destroy_, o.destroy_);
    return *this;
  }
  ~Owned() {
    if (device_ && !device_->hung()) destroy_(handle_);
  }
  Handle get() const { return handle_; }
  Device &device() const { return *device_; }
  const cu::Api &api() const { return device_->api(); }

private:
  Device *device_ = nullptr;
  Handle handle_ = Handle();
  cu::Code (*destroy_)(Handle) = nullptr;
};

// Where a guard band was overwritten.
struct GuardViolation {
  bool before = false; // in the band before the buffer, else after it
  int64_t offset = 0;  // of the damaged byte nearest to the buffer, counted from the buffer's begin (negative: before)
  int64_t damaged = 0; // bytes changed in that band
  std::string to_string(std::string_view name) const;
};

// Device memory. With guard bands the buffer lies between two bands of a pattern: a kernel that writes past either end
// damages the pattern, and one that reads past it reads NaN (f16, bf16, f32, f64). The first byte is 256-byte aligned;
// the band behind begins with the first byte that does not belong to the buffer.
//
// Transfers are complete on return. They are not ordered with streams: wait for the stream first.
class Buffer {
public:
  static Result<Buffer> allocate(Device &device, int64_t bytes, int64_t guard_bytes = 0);
  int64_t size() const { return bytes_; }
  cu::Pointer address() const { return memory_.get() + cu::Pointer(guard_); }

  Status upload(std::span<const uint8_t> bytes);   // at most size()
  Status download(std::span<uint8_t> bytes) const; // at most size()
  Status set_bytes(uint8_t value);
  Status upload(const HostTensor &t) { return upload(std::span<const uint8_t>(t.bytes)); }
  Result<HostTensor> download(DType dtype, std::vector<int64_t> shape) const;

  Result<std::optional<GuardViolation>> check_guards() const;

private:
  Buffer(Owned<cu::Pointer> memory, int64_t bytes, int64_t guard)
      : memory_(std::move(memory)), bytes_(bytes), guard_(guard) {}
  Status sync() const;
  Owned<cu::Pointer> memory_;
  int64_t bytes_ = 0, guard_ = 0;
};

class Event {
public:
  static Result<Event> create(Device &device);
  Status record(const Stream &stream);
  Status wait(double limit_seconds) const;                // until the recorded work is done
  bool done() const;                                      // asks, does not wait; of a hung device too
  Result<double> seconds_since(const Event &start) const; // both done
  cu::Event get() const { return event_.get(); }

private:
  Event(Owned<cu::Event> event) : event_(std::move(event)) {}
  Owned<cu::Event> event_;
};

class Stream {
public:
  static Result<Stream> create(Device &device);
  Status wait(double limit_seconds) const;   // until everything queued is done; reports a fault of a kernel
  Status wait_for(const Event &event) const; // later work of this stream runs after the event
  cu::Stream get() const { return stream_.get(); }
  Device &device() const { return stream_.device(); }

private:
  Stream(Owned<cu::Stream> stream) : stream_(std::move(stream)) {}
  Owned<cu::Stream> stream_;
};

struct ModuleOptions {
  int64_t max_registers = 0; // 0: no limit
  int64_t optimization = 4;  // of the assembler, 0..4
  bool verbose = false;      // register and spill counts into the log
};

class Kernel;

class Module {
public:
  // Compiles PTX for the device, or loads a cubin. The error holds the driver's log.
  static Result<Module> load_ptx(Device &device, std::string_view ptx, const ModuleOptions &options = {});
  static Result<Module> load_cubin(Device &device, std::span<const uint8_t> cubin);
  const std::string &log() const { return log_; }
  Result<Kernel> kernel(const std::string &name) const;
  struct Global {
    cu::Pointer address;
    int64_t bytes;
  };
  Result<Global> global(const std::string &name) const;

private:
  Module(Owned<cu::Module> module, std::string log) : module_(std::move(module)), log_(std::move(log)) {}
  static Result<Module> load(Device &device, const void *image, const ModuleOptions *options);
  Owned<cu::Module> module_;
  std::string log_;
};

// A kernel of a module, which must outlive it.
class Kernel {
public:
  std::string name;
  int64_t registers = 0, local_bytes = 0, static_shared = 0, const_bytes = 0;
  int64_t max_threads = 0;                     // a block
  int64_t ptx_version = 0, binary_version = 0; // 10 * major + minor
  cu::Function get() const { return function_; }
  Device &device() const { return *device_; }
  // Resident blocks of an SM.
  Result<int64_t> blocks_per_sm(int64_t threads, int64_t dynamic_shared) const;

private:
  friend class Module;
  Device *device_ = nullptr;
  cu::Function function_ = nullptr;
};

// Kernel parameters in the order of the kernel's signature: each at its own alignment, as the ABI lays them out.
class Params {
public:
  template <typename T> Params &add(const T &value) { return add_bytes(&value, sizeof value, alignof(T)); }
  Params &add_bytes(const void *data, size_t size, size_t alignment);
  // A blob that was laid out elsewhere: the offset of every parameter.
  static Params from_blob(std::span<const uint8_t> bytes, std::span<const int64_t> offsets);
  int64_t count() const { return int64_t(offsets_.size()); }
  const std::vector<uint8_t> &bytes() const { return bytes_; }
  const std::vector<int64_t> &offsets() const { return offsets_; }

private:
  std::vector<uint8_t> bytes_;
  std::vector<int64_t> offsets_;
};

struct Launch {
  std::array<int64_t, 3> grid = {1, 1, 1}, block = {1, 1, 1};
  std::array<int64_t, 3> cluster = {1, 1, 1}; // blocks; as the kernel was compiled
  int64_t dynamic_shared = 0;                 // bytes
  bool cooperative = false;                   // all blocks resident at once, or an error
  bool overlap_predecessor = false;           // programmatic dependent launch: the kernel waits by griddepcontrol
  // Runs beside other kernels: asks for the largest split of an SM's memory in favour of shared memory, since kernels
  // that want different splits do not run on one SM at the same time. Holds for the kernel from then on.
  bool beside_others = false;
};

// A launch that was checked once and is queued many times, with as little work as possible: short kernels are measured.
// Keeps copies of everything but the kernel's module.
class PreparedLaunch {
public:
  PreparedLaunch(PreparedLaunch &&) = default;
  PreparedLaunch &operator=(PreparedLaunch &&) = default;
  // An empty grid is a launch that does nothing. Limits of the device are checked, with a message that names both
  // numbers.
  static Result<PreparedLaunch> create(const Kernel &kernel, const Launch &how, Params params);
  Status queue(const Stream &stream) const;

private:
  PreparedLaunch() = default;
  Kernel kernel_;
  Launch how_;
  Params params_;
  mutable std::vector<void *> pointers_; // into params_: the driver takes them as not const
  mutable std::vector<cu::LaunchAttribute> attributes_;
};

// Prepares and queues. The parameters are copied before the call returns.
Status launch(const Kernel &kernel, const Launch &how, const Params &params, const Stream &stream);

// A recorded sequence of launches that is replayed by one call.
class Graph {
public:
  // Runs `record`, which queues work to `stream`; nothing is executed. An error of `record` is passed on.
  static Result<Graph> capture(Stream &stream, const std::function<Status()> &record);
  Status launch(const Stream &stream) const;
  int64_t node_count() const { return nodes_; }

private:
  Graph(Owned<cu::GraphExec> exec, int64_t nodes) : exec_(std::move(exec)), nodes_(nodes) {}
  Owned<cu::GraphExec> exec_;
  int64_t nodes_ = 0;
};

} // namespace tkc
