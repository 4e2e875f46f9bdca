#include "runtime/nvml.h"
#include <dlfcn.h>
#include <fstream>

namespace tkc {

namespace {
constexpr int kClockSm = 1, kClockMemory = 2, kSensorGpu = 0;

struct Reason {
  uint64_t bit;
  const char *name;
};
constexpr Reason kReasons[] = {
    {0x4, "power cap"},         {0x8, "hardware slowdown"},          {0x10, "sync boost"},
    {0x20, "thermal slowdown"}, {0x40, "hardware thermal slowdown"}, {0x80, "power brake"},
};

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.rfind("model name", 0) == 0 && line.find(": ") != std::string::npos)
      return line.substr(line.find(": ") + 2);
  return "";
}
} // namespace

Result<NvmlApi> load_nvml(const char *library) {
  void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (!handle) return failure("{} does not load", library);
  NvmlApi api;
#define TKC_NVML(member, symbol, parameters) api.member = reinterpret_cast<decltype(api.member)>(dlsym(handle, symbol));
  TKC_NVML_FUNCTIONS
#undef TKC_NVML
  if (!api.init || !api.shutdown || !api.by_uuid) return failure("{} lacks nvmlInit_v2", library);
  return api;
}

std::vector<std::string> GpuState::throttle_reasons() const {
  std::vector<std::string> out;
  for (const Reason &r : kReasons)
    if (throttle_bits.value_or(0) & r.bit) out.emplace_back(r.name);
  return out;
}

std::string GpuState::to_string() const {
  std::vector<std::string> parts;
  if (sm_mhz) parts.push_back(fmt::format("{} MHz", *sm_mhz));
  if (memory_mhz) parts.push_back(fmt::format("memory {} MHz", *memory_mhz));
  if (power_milliwatts) parts.push_back(fmt::format("{} W", (*power_milliwatts + 500) / 1000));
  if (celsius) parts.push_back(fmt::format("{} C", *celsius));
  for (const std::string &r : throttle_reasons()) parts.push_back("throttled: " + r);
  return parts.empty() ? "unknown" : fmt::format("{}", fmt::join(parts, ", "));
}

template <typename T> static void set_if(Json &j, std::string_view key, const std::optional<T> &value) {
  if (value) j.set(key, Json(*value));
}

Json GpuState::to_json() const {
  Json j = Json::object();
  set_if(j, "smMHz", sm_mhz);
  set_if(j, "memoryMHz", memory_mhz);
  if (power_milliwatts) j.set("powerW", double(*power_milliwatts) / 1000);
  set_if(j, "celsius", celsius);
  if (throttle_bits) {
    Json reasons = Json::array();
    for (const std::string &r : throttle_reasons()) reasons.push(r);
    j.set("throttle", reasons);
  }
  return j;
}

GpuMonitor::GpuMonitor(const DeviceInfo &gpu, const NvmlApi *api) {
  if (api) {
    api_ = *api;
  } else if (Result<NvmlApi> loaded = load_nvml()) {
    api_ = *loaded;
  }
  if (!api_ || api_->init() != 0) {
    api_.reset();
    return;
  }
  // NVML numbers GPUs by PCI address and sees all of them; CUDA orders and hides them. So the GPU is found by identity.
  bool found = api_->by_uuid(gpu.uuid.c_str(), &handle_) == 0;
  if (!found && api_->by_pci) found = api_->by_pci(gpu.pci_bus_id.c_str(), &handle_) == 0;
  if (!found) handle_ = nullptr;
}

GpuMonitor::~GpuMonitor() {
  if (api_) api_->shutdown();
}

std::optional<int64_t> GpuMonitor::number(int (*f)(NvmlApi::Handle, unsigned *)) const {
  unsigned value = 0;
  if (!f || !handle_ || f(handle_, &value) != 0) return std::nullopt;
  return int64_t(value);
}
std::optional<int64_t> GpuMonitor::number(int (*f)(NvmlApi::Handle, int, unsigned *), int which) const {
  unsigned value = 0;
  if (!f || !handle_ || f(handle_, which, &value) != 0) return std::nullopt;
  return int64_t(value);
}

GpuState GpuMonitor::state() const {
  GpuState s;
  if (!available()) return s;
  s.sm_mhz = number(api_->clock, kClockSm);
  s.memory_mhz = number(api_->clock, kClockMemory);
  s.power_milliwatts = number(api_->power);
  s.celsius = number(api_->temperature, kSensorGpu);
  unsigned long long bits = 0;
  if (api_->throttle && api_->throttle(handle_, &bits) == 0) s.throttle_bits = bits;
  return s;
}

std::optional<std::string> GpuMonitor::driver_version() const {
  char text[96] = {};
  if (!available() || !api_->driver_version || api_->driver_version(text, sizeof text - 1) != 0) return std::nullopt;
  return std::string(text);
}
std::optional<int64_t> GpuMonitor::max_sm_mhz() const {
  return available() ? number(api_->max_clock, kClockSm) : std::nullopt;
}
std::optional<int64_t> GpuMonitor::max_memory_mhz() const {
  return available() ? number(api_->max_clock, kClockMemory) : std::nullopt;
}
std::optional<int64_t> GpuMonitor::power_limit_milliwatts() const {
  return available() ? number(api_->power_limit) : std::nullopt;
}

MachineCard machine_card(const DeviceInfo &gpu, const GpuMonitor &monitor) {
  MachineCard card;
  card.gpu = gpu;
  card.driver = monitor.driver_version();
  card.max_sm_mhz = monitor.max_sm_mhz();
  card.max_memory_mhz = monitor.max_memory_mhz();
  card.power_limit_milliwatts = monitor.power_limit_milliwatts();
  card.cpu = cpu_model();
  card.before = monitor.state();
  return card;
}

std::vector<std::string> MachineCard::warnings() const {
  std::vector<std::string> out;
  for (const std::string &r : after.throttle_reasons()) out.push_back(fmt::format("the GPU was throttled ({})", r));
  // Before the measurement the GPU idles at a low clock; only a fall says something.
  if (before.sm_mhz && after.sm_mhz && double(*after.sm_mhz) < 0.97 * double(*before.sm_mhz))
    out.push_back(fmt::format("the SM clock fell from {} to {} MHz", *before.sm_mhz, *after.sm_mhz));
  return out;
}

static std::string cuda_version(int64_t v) { return fmt::format("{}.{}", v / 1000, v % 1000 / 10); }

std::string MachineCard::to_string() const {
  std::string out = fmt::format("gpu      {} ({}, {} SMs, L2 {:.3g} MiB, {:.0f} GiB)\n", gpu.name, gpu.arch(), gpu.sms,
                                double(gpu.l2_bytes) / (1 << 20), double(gpu.memory_bytes) / (1 << 30));
  out += fmt::format("driver   {}CUDA {}\n", driver ? *driver + ", " : "", cuda_version(gpu.driver_version));
  std::vector<std::string> limits;
  if (max_sm_mhz) limits.push_back(fmt::format("{} MHz", *max_sm_mhz));
  if (max_memory_mhz) limits.push_back(fmt::format("memory {} MHz", *max_memory_mhz));
  if (power_limit_milliwatts) limits.push_back(fmt::format("{} W", *power_limit_milliwatts / 1000));
  if (!limits.empty()) out += fmt::format("limits   {}\n", fmt::join(limits, ", "));
  out += fmt::format("before   {}\nafter    {}\n", before.to_string(), after.to_string());
  for (const std::string &w : warnings()) out += fmt::format("warning  {}\n", w);
  return out;
}

Json MachineCard::to_json() const {
  Json g = Json::object();
  g.set("name", gpu.name).set("uuid", gpu.uuid).set("arch", gpu.arch()).set("sms", gpu.sms);
  g.set("l2Bytes", gpu.l2_bytes).set("memoryBytes", gpu.memory_bytes).set("sharedPerBlock", gpu.shared_per_block);
  set_if(g, "maxSmMHz", max_sm_mhz);
  set_if(g, "maxMemoryMHz", max_memory_mhz);
  if (power_limit_milliwatts) g.set("powerLimitW", double(*power_limit_milliwatts) / 1000);
  Json j = Json::object();
  j.set("gpu", g).set("cuda", cuda_version(gpu.driver_version));
  set_if(j, "driver", driver);
  if (!cpu.empty()) j.set("cpu", cpu);
  j.set("before", before.to_json()).set("after", after.to_json());
  Json list = Json::array();
  for (const std::string &w : warnings()) list.push(w);
  return j.set("warnings", list);
}

} // namespace tkc
