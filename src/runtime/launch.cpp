// Modules, kernels, launches and graphs: the half of device.h that deals with code.
#include "runtime/device.h"
#include <cstring>

namespace tkc {

using namespace cu::constant;

Result<Module> Module::load(Device &device, const void *image, const ModuleOptions *options) {
  constexpr size_t kLogBytes = 1 << 16;
  std::vector<char> info(kLogBytes), error(kLogBytes);
  std::vector<int> keys;
  std::vector<void *> values;
  // The driver takes integers in the place of pointers.
  auto number = [](int64_t n) { return reinterpret_cast<void *>(uintptr_t(n)); };
  auto add = [&](int key, void *value) {
    keys.push_back(key);
    values.push_back(value);
  };
  add(CU_JIT_INFO_LOG_BUFFER_, info.data());
  add(CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES_, number(kLogBytes));
  add(CU_JIT_ERROR_LOG_BUFFER_, error.data());
  add(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES_, number(kLogBytes));
  if (options) {
    add(CU_JIT_OPTIMIZATION_LEVEL_, number(options->optimization));
    if (options->max_registers > 0) add(CU_JIT_MAX_REGISTERS_, number(options->max_registers));
    if (options->verbose) add(CU_JIT_LOG_VERBOSE_, number(1));
  }
  const cu::Api &api = device.api();
  cu::Module module = nullptr;
  cu::Code code = api.cuModuleLoadDataEx(&module, image, unsigned(keys.size()), keys.data(), values.data());
  auto text = [](const std::vector<char> &log) { return std::string(log.data(), strnlen(log.data(), log.size())); };
  if (code != CUDA_SUCCESS_) {
    std::string log = text(error);
    Error e = api.error(code, options ? "the driver does not assemble the PTX" : "the driver does not load the cubin");
    if (!log.empty()) e.message += "\n" + log;
    return e;
  }
  return Module(Owned<cu::Module>(device, module, api.cuModuleUnload), text(info));
}

Result<Module> Module::load_ptx(Device &device, std::string_view ptx, const ModuleOptions &options) {
  std::string terminated(ptx);
  return load(device, terminated.c_str(), &options);
}

Result<Module> Module::load_cubin(Device &device, std::span<const uint8_t> cubin) {
  // The driver takes no size but reads it from the ELF header: what is not a whole ELF file must not get there.
  constexpr uint8_t kElf[5] = {0x7f, 'E', 'L', 'F', 2};
  if (cubin.size() < 64 || std::memcmp(cubin.data(), kElf, 5) != 0)
    return failure("{} bytes that are not a cubin", cubin.size());
  uint64_t sections;
  uint16_t section_bytes, section_count;
  std::memcpy(&sections, cubin.data() + 0x28, 8);
  std::memcpy(&section_bytes, cubin.data() + 0x3a, 2);
  std::memcpy(&section_count, cubin.data() + 0x3c, 2);
  if (sections > cubin.size() || uint64_t(section_bytes) * section_count > cubin.size() - sections)
    return failure("a cubin that is truncated at {} bytes", cubin.size());
  return load(device, cubin.data(), nullptr);
}

Result<Kernel> Module::kernel(const std::string &name) const {
  const cu::Api &api = module_.api();
  Kernel k;
  k.name = name;
  k.device_ = &module_.device();
  TKC_TRY(api.check(api.cuModuleGetFunction(&k.function_, module_.get(), name.c_str()),
                    fmt::format("looking up the kernel `{}`", name)));
  struct Wanted {
    int attribute;
    int64_t *to;
  };
  const Wanted wanted[] = {
      {CU_FUNC_ATTRIBUTE_NUM_REGS_, &k.registers},
      {CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES_, &k.local_bytes},
      {CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES_, &k.static_shared},
      {CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES_, &k.const_bytes},
      {CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK_, &k.max_threads},
      {CU_FUNC_ATTRIBUTE_PTX_VERSION_, &k.ptx_version},
      {CU_FUNC_ATTRIBUTE_BINARY_VERSION_, &k.binary_version},
  };
  for (const Wanted &w : wanted) {
    int value = 0;
    TKC_TRY(api.check(api.cuFuncGetAttribute(&value, w.attribute, k.function_),
                      fmt::format("asking about the kernel `{}`", name)));
    *w.to = value;
  }
  return k;
}

Result<Module::Global> Module::global(const std::string &name) const {
  const cu::Api &api = module_.api();
  cu::Pointer address = 0;
  size_t bytes = 0;
  TKC_TRY(api.check(api.cuModuleGetGlobal(&address, &bytes, module_.get(), name.c_str()),
                    fmt::format("looking up the variable `{}`", name)));
  return Global{address, int64_t(bytes)};
}

// The attribute belongs to the kernel, not to the launch: the limit of the device is right for every launch.
static Status allow_shared(const Kernel &kernel, int64_t dynamic_shared) {
  if (dynamic_shared == 0) return {};
  return kernel.device().api().check(
      kernel.device().api().cuFuncSetAttribute(kernel.get(), CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES_,
                                               int(kernel.device().info().shared_per_block - kernel.static_shared)),
      fmt::format("preparing `{}`", kernel.name));
}

Result<int64_t> Kernel::blocks_per_sm(int64_t threads, int64_t dynamic_shared) const {
  const cu::Api &api = device().api();
  TKC_TRY(allow_shared(*this, dynamic_shared));
  int blocks = 0;
  TKC_TRY(api.check(
      api.cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function_, int(threads), size_t(dynamic_shared)),
      fmt::format("asking for the occupancy of `{}`", name)));
  return int64_t(blocks);
}

Params &Params::add_bytes(const void *data, size_t size, size_t alignment) {
  size_t offset = (bytes_.size() + alignment - 1) / alignment * alignment;
  offsets_.push_back(int64_t(offset));
  bytes_.resize(offset + size);
  if (size > 0) std::memcpy(bytes_.data() + offset, data, size);
  return *this;
}

Params Params::from_blob(std::span<const uint8_t> bytes, std::span<const int64_t> offsets) {
  Params p;
  p.bytes_.assign(bytes.begin(), bytes.end());
  p.offsets_.assign(offsets.begin(), offsets.end());
  for (int64_t o : offsets)
    TKC_CHECK(o >= 0 && o < int64_t(bytes.size()), "parameter at {} of {} bytes", o, bytes.size());
  return p;
}

static Status check_launch(const Kernel &kernel, const Launch &how) {
  const DeviceInfo &gpu = kernel.device().info();
  const int64_t most_blocks[3] = {0x7fffffff, 65535, 65535}, most_threads[3] = {1024, 1024, 64};
  int64_t threads = 1, cluster = 1;
  for (int d = 0; d < 3; d++) {
    char axis = char('x' + d);
    if (how.grid[size_t(d)] > most_blocks[d])
      return failure("`{}`: {} blocks along {}, at most {} are possible", kernel.name, how.grid[size_t(d)], axis,
                     most_blocks[d]);
    if (how.block[size_t(d)] < 1 || how.block[size_t(d)] > most_threads[d])
      return failure("`{}`: {} threads along {}, 1 to {} are possible", kernel.name, how.block[size_t(d)], axis,
                     most_threads[d]);
    if (how.cluster[size_t(d)] < 1 || how.grid[size_t(d)] % how.cluster[size_t(d)] != 0)
      return failure("`{}`: {} blocks along {} are not a multiple of the cluster's {}", kernel.name,
                     how.grid[size_t(d)], axis, how.cluster[size_t(d)]);
    threads *= how.block[size_t(d)];
    cluster *= how.cluster[size_t(d)];
  }
  if (threads > kernel.max_threads)
    return failure("`{}`: a block of {} threads, at most {} are possible with its {} registers", kernel.name, threads,
                   kernel.max_threads, kernel.registers);
  int64_t shared = kernel.static_shared + how.dynamic_shared;
  if (how.dynamic_shared < 0 || shared > gpu.shared_per_block)
    return failure("`{}` needs {} bytes of shared memory, {} has {} for a block", kernel.name, shared, gpu.name,
                   gpu.shared_per_block);
  if (cluster > 1 && !gpu.clusters)
    return failure("`{}` needs clusters, which {} ({}) has not", kernel.name, gpu.name, gpu.arch());
  return {};
}

Result<PreparedLaunch> PreparedLaunch::create(const Kernel &kernel, const Launch &how, Params params) {
  PreparedLaunch p;
  p.kernel_ = kernel;
  p.how_ = how;
  p.params_ = std::move(params);
  for (int64_t n : how.grid) {
    TKC_CHECK(n >= 0, "a grid of {} blocks", n);
    if (n == 0) return p;
  }
  TKC_TRY(check_launch(kernel, how));
  const cu::Api &api = kernel.device().api();
  auto set = [&](int attribute, int64_t value) {
    return api.check(api.cuFuncSetAttribute(kernel.get(), attribute, int(value)),
                     fmt::format("preparing `{}`", kernel.name));
  };
  TKC_TRY(allow_shared(kernel, how.dynamic_shared));
  if (how.beside_others) TKC_TRY(set(CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT_, 100)); // percent
  for (int64_t o : p.params_.offsets()) p.pointers_.push_back(const_cast<uint8_t *>(p.params_.bytes().data()) + o);

  auto add = [&](int id) -> cu::LaunchAttribute & {
    p.attributes_.push_back({});
    p.attributes_.back().id = id;
    return p.attributes_.back();
  };
  if (how.cluster != std::array<int64_t, 3>{1, 1, 1}) {
    // More than the portable size must be asked for.
    int64_t blocks = how.cluster[0] * how.cluster[1] * how.cluster[2];
    if (blocks > 8) TKC_TRY(set(CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED_, 1));
    add(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION_).value.cluster = {unsigned(how.cluster[0]), unsigned(how.cluster[1]),
                                                                 unsigned(how.cluster[2])};
  }
  if (how.cooperative) add(CU_LAUNCH_ATTRIBUTE_COOPERATIVE_).value.flag = 1;
  if (how.overlap_predecessor) add(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION_).value.flag = 1;
  if (!p.attributes_.empty() && !api.cuLaunchKernelEx)
    return failure("preparing `{}`: the driver is too old for launch attributes (clusters, cooperative)", kernel.name);
  return p;
}

Status PreparedLaunch::queue(const Stream &stream) const {
  const auto &grid = how_.grid, &block = how_.block;
  if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0) return {};
  const cu::Api &api = kernel_.device().api();
  auto u = [](int64_t n) { return unsigned(n); };
  cu::Code code;
  if (attributes_.empty()) {
    code = api.cuLaunchKernel(kernel_.get(), u(grid[0]), u(grid[1]), u(grid[2]), u(block[0]), u(block[1]), u(block[2]),
                              u(how_.dynamic_shared), stream.get(), pointers_.data(), nullptr);
  } else {
    cu::LaunchConfig config = {{u(grid[0]), u(grid[1]), u(grid[2])},
                               {u(block[0]), u(block[1]), u(block[2])},
                               u(how_.dynamic_shared),
                               stream.get(),
                               attributes_.data(),
                               unsigned(attributes_.size())};
    code = api.cuLaunchKernelEx(&config, kernel_.get(), pointers_.data(), nullptr);
  }
  if (code == CUDA_SUCCESS_) return {};
  return api.error(code, fmt::format("launching `{}`", kernel_.name));
}

Status launch(const Kernel &kernel, const Launch &how, const Params &params, const Stream &stream) {
  Result<PreparedLaunch> p = PreparedLaunch::create(kernel, how, params);
  if (!p) return p.failed();
  return p->queue(stream);
}

Result<Graph> Graph::capture(Stream &stream, const std::function<Status()> &record) {
  Device &device = stream.device();
  const cu::Api &api = device.api();
  TKC_TRY(api.check(api.cuStreamBeginCapture(stream.get(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL_), "beginning a graph"));
  Status recorded = record();
  // The capture is ended in any case, or the stream stays unusable.
  cu::Graph graph = nullptr;
  cu::Code ended = api.cuStreamEndCapture(stream.get(), &graph);
  Owned<cu::Graph> owner;
  if (graph) owner = Owned<cu::Graph>(device, graph, api.cuGraphDestroy);
  if (!recorded.ok()) return recorded.failed();
  TKC_TRY(api.check(ended, "ending a graph"));
  if (!graph) return failure("ending a graph: the driver returned none");
  size_t nodes = 0;
  TKC_TRY(api.check(api.cuGraphGetNodes(graph, nullptr, &nodes), "counting the nodes of a graph"));
  cu::GraphExec exec = nullptr;
  TKC_TRY(api.check(api.cuGraphInstantiateWithFlags(&exec, graph, 0), "instantiating a graph"));
  return Graph(Owned<cu::GraphExec>(device, exec, api.cuGraphExecDestroy), int64_t(nodes));
}

Status Graph::launch(const Stream &stream) const {
  return exec_.api().check(exec_.api().cuGraphLaunch(exec_.get(), stream.get()), "launching a graph");
}

} // namespace tkc
