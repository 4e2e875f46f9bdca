// What the machine was doing while it was measured: NVML, found at run time. Where the library or a figure is missing,
// the field is empty.
#pragma once
#include "runtime/device.h"
#include "support/json.h"

namespace tkc {

// TKC_NVML(member, symbol, parameters): the functions that are used; all are optional but the first three.
#define TKC_NVML_FUNCTIONS                                                                                             \
  TKC_NVML(init, "nvmlInit_v2", ())                                                                                    \
  TKC_NVML(shutdown, "nvmlShutdown", ())                                                                               \
  TKC_NVML(by_uuid, "nvmlDeviceGetHandleByUUID", (const char *uuid, NvmlApi::Handle *device))                          \
  TKC_NVML(by_pci, "nvmlDeviceGetHandleByPciBusId_v2", (const char *id, NvmlApi::Handle *device))                      \
  TKC_NVML(driver_version, "nvmlSystemGetDriverVersion", (char *text, unsigned length))                                \
  TKC_NVML(name, "nvmlDeviceGetName", (NvmlApi::Handle device, char *text, unsigned length))                           \
  TKC_NVML(clock, "nvmlDeviceGetClockInfo", (NvmlApi::Handle device, int which, unsigned *mhz))                        \
  TKC_NVML(max_clock, "nvmlDeviceGetMaxClockInfo", (NvmlApi::Handle device, int which, unsigned *mhz))                 \
  TKC_NVML(power, "nvmlDeviceGetPowerUsage", (NvmlApi::Handle device, unsigned *milliwatts))                           \
  TKC_NVML(power_limit, "nvmlDeviceGetEnforcedPowerLimit", (NvmlApi::Handle device, unsigned *milliwatts))             \
  TKC_NVML(temperature, "nvmlDeviceGetTemperature", (NvmlApi::Handle device, int sensor, unsigned *celsius))           \
  TKC_NVML(throttle, "nvmlDeviceGetCurrentClocksThrottleReasons", (NvmlApi::Handle device, unsigned long long *reasons))

struct NvmlApi {
  using Handle = struct NvmlDeviceTag *;
#define TKC_NVML(member, symbol, parameters) int(*member) parameters = nullptr;
  TKC_NVML_FUNCTIONS
#undef TKC_NVML
};
Result<NvmlApi> load_nvml(const char *library = "libnvidia-ml.so.1");

// The state at one moment.
struct GpuState {
  std::optional<int64_t> sm_mhz, memory_mhz, power_milliwatts, celsius;
  std::optional<uint64_t> throttle_bits;

  // Names of the reasons that slow the GPU down (idling and set application clocks are none).
  std::vector<std::string> throttle_reasons() const;
  bool throttled() const { return !throttle_reasons().empty(); }
  std::string to_string() const; // "1980 MHz, memory 3201 MHz, 512 W, 54 C"
  Json to_json() const;
};

// Reads the state of one GPU again and again.
class GpuMonitor {
public:
  // Works without NVML: everything stays empty. `api` is the library unless a test gives its own.
  GpuMonitor(const DeviceInfo &gpu, const NvmlApi *api = nullptr);
  ~GpuMonitor();
  GpuMonitor(const GpuMonitor &) = delete;
  GpuMonitor &operator=(const GpuMonitor &) = delete;
  bool available() const { return handle_ != nullptr; }
  GpuState state() const;
  std::optional<std::string> driver_version() const; // "580.65.06"
  std::optional<int64_t> max_sm_mhz() const, max_memory_mhz() const, power_limit_milliwatts() const;

private:
  std::optional<int64_t> number(int (*f)(NvmlApi::Handle, unsigned *)) const;
  std::optional<int64_t> number(int (*f)(NvmlApi::Handle, int, unsigned *), int which) const;
  std::optional<NvmlApi> api_;
  NvmlApi::Handle handle_ = nullptr;
};

// Printed and stored with every measurement.
struct MachineCard {
  DeviceInfo gpu;
  std::optional<std::string> driver; // of NVML; else the CUDA version of gpu.driver_version stands alone
  std::optional<int64_t> max_sm_mhz, max_memory_mhz, power_limit_milliwatts;
  std::string cpu;        // model name, "" where unknown
  GpuState before, after; // the measurement

  // What makes the measurement doubtful, one sentence each: throttling, clocks that fell by more than 3 %.
  std::vector<std::string> warnings() const;
  std::string to_string() const;
  Json to_json() const;
};
// Fills everything but `after`.
MachineCard machine_card(const DeviceInfo &gpu, const GpuMonitor &monitor);

} // namespace tkc
