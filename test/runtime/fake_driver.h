// A driver table whose GPU is host memory: kernels are C++ functions, run when they are launched. It counts what is
// alive, checks every address, and can fail or hang where a test wants it to.
#pragma once
#include "runtime/cuda.h"
#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace tkc::test {

struct FakeLaunch {
  unsigned grid[3], block[3], shared;
  void **params;
  std::vector<cu::LaunchAttribute> attributes;
};

struct FakeGpu {
  std::map<std::string, std::function<void(const FakeLaunch &)>> kernels; // by name, in every module
  std::map<std::string, cu::Code> fail;                                   // driver function -> what it returns
  int64_t busy = 0; // queries that answer "not ready"; < 0: for ever
  float elapsed_ms = 2.5f;
  int devices = 1;
  std::vector<std::string> calls; // launches, captures, ...
  // What is alive.
  std::map<cu::Pointer, std::vector<uint8_t>> memory;
  int64_t contexts = 0, streams = 0, events = 0, modules = 0, graphs = 0, execs = 0;
  bool capturing = false;
  std::vector<std::function<void()>> captured;              // launches of the capture
  std::vector<std::vector<std::function<void()>>> recorded; // of every graph; parameters are read when it runs
  std::vector<std::string> trace; // "launch NAME on 1", "record 2 on 1", "wait 2 on 3": streams and events by number
  uintptr_t handles = 0;
  bool replays = false;       // a graph runs what it recorded: the prepared launches must still be there
  std::map<int, int64_t> jit; // options of the last module
  std::string image;          // its start
  bool reject_ptx = false;

  bool nothing_alive() const {
    return memory.empty() && contexts == 0 && streams == 0 && events == 0 && modules == 0 && graphs == 0 && execs == 0;
  }
  // The bytes behind a device address, or null if the range is not inside one allocation.
  uint8_t *at(cu::Pointer address, size_t bytes) {
    auto it = memory.upper_bound(address);
    if (it == memory.begin()) return nullptr;
    --it;
    size_t offset = size_t(address - it->first);
    return offset + bytes <= it->second.size() ? it->second.data() + offset : nullptr;
  }
};

inline FakeGpu *the_fake = nullptr;

template <typename T> T fake_handle(uintptr_t n) { return reinterpret_cast<T>(n); }
template <typename T> uintptr_t fake_number(T handle) { return reinterpret_cast<uintptr_t>(handle); }

inline cu::Code fake_query() {
  if (auto it = the_fake->fail.find("query"); it != the_fake->fail.end()) return it->second;
  if (the_fake->busy == 0) return 0;
  if (the_fake->busy > 0) the_fake->busy--;
  return 600;
}

// The table; one FakeGpu at a time.
inline cu::Api fake_api(FakeGpu &gpu) {
  the_fake = &gpu;
  using namespace cu;
  Api a;
#define FAKE_FAIL(name)                                                                                                \
  if (auto it = the_fake->fail.find(name); it != the_fake->fail.end()) return it->second;
  a.cuInit = [](unsigned) { return 0; };
  a.cuDriverGetVersion = [](int *v) { return *v = 13000, 0; };
  a.cuGetErrorName = [](Code c, const char **t) {
    return *t = c == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : c == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR_FAKE", 0;
  };
  a.cuGetErrorString = [](Code, const char **t) { return *t = "fake text", 0; };
  a.cuDeviceGetCount = [](int *n) -> Code {
    FAKE_FAIL("cuDeviceGetCount");
    return *n = the_fake->devices, 0;
  };
  a.cuDeviceGet = [](cu::Device *d, int n) { return *d = n + 40, 0; };
  a.cuDeviceGetName = [](char *t, int n, cu::Device) { return std::strncpy(t, "Fake GPU", size_t(n)), 0; };
  a.cuDeviceGetUuid = [](Uuid *u, cu::Device) {
    for (int i = 0; i < 16; i++) u->bytes[i] = uint8_t(i * 17);
    return 0;
  };
  a.cuDeviceGetPCIBusId = [](char *t, int n, cu::Device) { return std::strncpy(t, "0000:01:00.0", size_t(n)), 0; };
  a.cuDeviceGetAttribute = [](int *v, int attribute, cu::Device d) -> Code {
    if (d < 40) return 101;
    const std::map<int, int> table = {{75, 9},     {76, 0},     {16, 132},  {38, 50 << 20}, {97, 232448}, {81, 233472},
                                      {111, 1024}, {82, 65536}, {39, 2048}, {106, 32},      {1, 1024},    {120, 1}};
    auto it = table.find(attribute);
    return it == table.end() ? 1 : (*v = it->second, 0); // 127 and others: unknown to this driver
  };
  a.cuDeviceTotalMem = [](size_t *n, cu::Device) { return *n = size_t(1) << 30, 0; };
  a.cuDevicePrimaryCtxRetain = [](Context *c, cu::Device) {
    return *c = fake_handle<Context>(1), the_fake->contexts++, 0;
  };
  a.cuDevicePrimaryCtxRelease = [](cu::Device) { return the_fake->contexts--, 0; };
  a.cuCtxSetCurrent = [](Context) { return 0; };
  a.cuCtxGetCurrent = [](Context *) { return 0; };
  a.cuMemGetInfo = [](size_t *f, size_t *t) { return *f = *t = size_t(1) << 30, 0; };
  a.cuMemAlloc = [](Pointer *p, size_t n) -> Code {
    FAKE_FAIL("cuMemAlloc");
    if (n == 0) return 1;
    static Pointer next = 0x7f0000000000;
    *p = next;
    next += (n + 0xffff) / 0x10000 * 0x10000 + 0x10000;
    the_fake->memory[*p] = std::vector<uint8_t>(n, 0xcc);
    return 0;
  };
  a.cuMemFree = [](Pointer p) -> Code { return the_fake->memory.erase(p) == 1 ? 0 : 1; };
  a.cuMemcpyHtoD = [](Pointer to, const void *from, size_t n) -> Code {
    FAKE_FAIL("cuMemcpyHtoD");
    uint8_t *p = the_fake->at(to, n);
    return p ? (std::memcpy(p, from, n), 0) : 1;
  };
  a.cuMemcpyDtoH = [](void *to, Pointer from, size_t n) -> Code {
    FAKE_FAIL("cuMemcpyDtoH");
    uint8_t *p = the_fake->at(from, n);
    return p ? (std::memcpy(to, p, n), 0) : 1;
  };
  a.cuMemcpyDtoDAsync = [](Pointer, Pointer, size_t, Stream) { return 1; };
  a.cuMemsetD8Async = [](Pointer to, unsigned char v, size_t n, Stream) -> Code {
    uint8_t *p = the_fake->at(to, n);
    return p ? (std::memset(p, v, n), 0) : 1;
  };
  a.cuModuleLoadDataEx = [](Module *m, const void *image, unsigned n, int *options, void **values) -> Code {
    the_fake->jit.clear();
    char *error = nullptr, *info = nullptr;
    for (unsigned i = 0; i < n; i++) {
      the_fake->jit[options[i]] = int64_t(reinterpret_cast<uintptr_t>(values[i]));
      if (options[i] == 5) error = static_cast<char *>(values[i]);
      if (options[i] == 3) info = static_cast<char *>(values[i]);
    }
    the_fake->image = std::string(static_cast<const char *>(image), 4);
    if (the_fake->reject_ptx) return std::strcpy(error, "ptxas fatal: fake"), 218;
    std::strcpy(info, "fake log");
    return *m = fake_handle<Module>(1), the_fake->modules++, 0;
  };
  a.cuModuleUnload = [](Module) { return the_fake->modules--, 0; };
  a.cuModuleGetFunction = [](Function *f, Module, const char *name) -> Code {
    auto it = the_fake->kernels.find(name);
    if (it == the_fake->kernels.end()) return 500;
    return *f = reinterpret_cast<Function>(&it->second), 0;
  };
  a.cuModuleGetGlobal = [](Pointer *p, size_t *n, Module, const char *) { return *p = 4096, *n = 12, 0; };
  a.cuFuncGetAttribute = [](int *v, int attribute, Function) -> Code {
    return *v = attribute == 4 ? 40 : attribute == 0 ? 512 : attribute == 1 ? 1000 : 0, 0;
  };
  a.cuFuncSetAttribute = [](Function, int attribute, int value) -> Code {
    return the_fake->calls.push_back(fmt::format("attribute {} = {}", attribute, value)), 0;
  };
  a.cuOccupancyMaxActiveBlocksPerMultiprocessor = [](int *n, Function, int, size_t) { return *n = 3, 0; };
  a.cuLaunchKernel = [](Function f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                        unsigned shared, Stream s, void **params, void **) -> Code {
    FAKE_FAIL("cuLaunchKernel");
    the_fake->calls.push_back("launch");
    auto *kernel = reinterpret_cast<std::function<void(const FakeLaunch &)> *>(f);
    for (const auto &[name, function] : the_fake->kernels)
      if (&function == kernel) the_fake->trace.push_back(fmt::format("launch {} on {}", name, fake_number(s)));
    FakeLaunch l = {{gx, gy, gz}, {bx, by, bz}, shared, params, {}};
    if (the_fake->capturing)
      the_fake->captured.push_back([=] { (*kernel)(l); });
    else
      (*kernel)(l);
    return 0;
  };
  a.cuLaunchKernelEx = [](const LaunchConfig *c, Function f, void **params, void **) -> Code {
    the_fake->calls.push_back("launch");
    FakeLaunch l = {{c->grid[0], c->grid[1], c->grid[2]},
                    {c->block[0], c->block[1], c->block[2]},
                    c->shared_bytes,
                    params,
                    {c->attributes, c->attributes + c->attribute_count}};
    (*reinterpret_cast<std::function<void(const FakeLaunch &)> *>(f))(l);
    return 0;
  };
  a.cuTensorMapEncodeTiled = [](TensorMap *m, int type, uint32_t rank, void *address, const uint64_t *dims,
                                const uint64_t *strides, const uint32_t *box, const uint32_t *steps, int, int swizzle,
                                int, int) -> Code {
    m->opaque[0] = uint64_t(type) | uint64_t(rank) << 8 | uint64_t(swizzle) << 16;
    m->opaque[1] = uint64_t(reinterpret_cast<uintptr_t>(address));
    m->opaque[2] = dims[0] | dims[1] << 32;
    m->opaque[3] = strides[0];
    m->opaque[4] = box[0] | uint64_t(box[1]) << 16 | uint64_t(steps[1]) << 32;
    return 0;
  };
  a.cuStreamCreate = [](Stream *s, unsigned) {
    return *s = fake_handle<Stream>(++the_fake->handles), the_fake->streams++, 0;
  };
  a.cuStreamDestroy = [](Stream) { return the_fake->streams--, 0; };
  a.cuStreamQuery = [](Stream) -> Code { return fake_query(); };
  a.cuStreamSynchronize = [](Stream s) -> Code { return s == nullptr ? 0 : 1; };
  a.cuStreamWaitEvent = [](Stream s, Event e, unsigned) {
    return the_fake->trace.push_back(fmt::format("wait {} on {}", fake_number(e), fake_number(s))), 0;
  };
  a.cuStreamBeginCapture = [](Stream, int) { return the_fake->capturing = true, the_fake->captured.clear(), 0; };
  a.cuStreamEndCapture = [](Stream, Graph *g) {
    the_fake->recorded.push_back(the_fake->captured);
    return the_fake->capturing = false, *g = fake_handle<Graph>(the_fake->recorded.size()), the_fake->graphs++, 0;
  };
  a.cuEventCreate = [](Event *e, unsigned) {
    return *e = fake_handle<Event>(++the_fake->handles), the_fake->events++, 0;
  };
  a.cuEventDestroy = [](Event) { return the_fake->events--, 0; };
  a.cuEventRecord = [](Event e, Stream s) {
    the_fake->trace.push_back(fmt::format("record {} on {}", fake_number(e), fake_number(s)));
    return the_fake->calls.push_back("record"), 0;
  };
  a.cuEventQuery = [](Event) -> Code { return fake_query(); };
  a.cuEventElapsedTime = [](float *ms, Event, Event) { return *ms = the_fake->elapsed_ms, 0; };
  a.cuGraphGetNodes = [](Graph, GraphNode *, size_t *n) { return *n = the_fake->captured.size(), 0; };
  a.cuGraphInstantiateWithFlags = [](GraphExec *e, Graph g, unsigned long long) {
    return *e = fake_handle<GraphExec>(fake_number(g)), the_fake->execs++, 0;
  };
  a.cuGraphLaunch = [](GraphExec e, Stream) {
    if (the_fake->replays)
      for (const auto &launch : the_fake->recorded.at(fake_number(e) - 1)) launch();
    return the_fake->calls.push_back("graph"), 0;
  };
  a.cuGraphDestroy = [](Graph) { return the_fake->graphs--, 0; };
  a.cuGraphExecDestroy = [](GraphExec) { return the_fake->execs--, 0; };
#undef FAKE_FAIL
  return a;
}

} // namespace tkc::test
