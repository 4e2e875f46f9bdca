// The CUDA driver API, found at run time: the library is opened by name and its functions are looked up, so tkc is
// built and started on machines that have neither a toolkit nor a driver. The few types and constants that are needed
// are declared here with the values of the driver's binary interface; a test compares them with the vendor's header
// where that is present.
#pragma once
#include "support/result.h"
#include <cstddef>
#include <cstdint>

namespace tkc::cu {

using Code = int; // CUresult
using Device = int;
using Pointer = unsigned long long; // a device address
using Context = struct ContextTag *;
using Module = struct ModuleTag *;
using Function = struct FunctionTag *;
using Stream = struct StreamTag *;
using Event = struct EventTag *;
using Graph = struct GraphTag *;
using GraphExec = struct GraphExecTag *;
using GraphNode = struct GraphNodeTag *;

struct Uuid {
  uint8_t bytes[16];
};

struct alignas(128) TensorMap {
  uint64_t opaque[16];
};

struct LaunchAttribute {
  int id;
  char pad[4];
  union {
    char bytes[64];
    struct {
      unsigned x, y, z;
    } cluster;
    int flag;
  } value;
};

struct LaunchConfig {
  unsigned grid[3], block[3];
  unsigned shared_bytes;
  Stream stream;
  LaunchAttribute *attributes;
  unsigned attribute_count;
};

// CU_xxx = value: every constant that is used, under the vendor's name.
#define TKC_CUDA_CONSTANTS(X)                                                                                          \
  X(CUDA_SUCCESS, 0)                                                                                                   \
  X(CUDA_ERROR_OUT_OF_MEMORY, 2)                                                                                       \
  X(CUDA_ERROR_STUB_LIBRARY, 34)                                                                                       \
  X(CUDA_ERROR_NO_DEVICE, 100)                                                                                         \
  X(CUDA_ERROR_NOT_READY, 600)                                                                                         \
  X(CUDA_ERROR_LAUNCH_TIMEOUT, 702)                                                                                    \
  X(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1)                                                                      \
  X(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 8)                                                                \
  X(CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 13)                                                                                \
  X(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 16)                                                                      \
  X(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 36)                                                                         \
  X(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 37)                                                                   \
  X(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 38)                                                                             \
  X(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 39)                                                            \
  X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 75)                                                                  \
  X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 76)                                                                  \
  X(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 81)                                                      \
  X(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 82)                                                          \
  X(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 97)                                                         \
  X(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 106)                                                            \
  X(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, 111)                                                         \
  X(CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, 120)                                                                           \
  X(CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED, 127)                                                              \
  X(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 0)                                                                        \
  X(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, 1)                                                                            \
  X(CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES, 2)                                                                             \
  X(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, 3)                                                                             \
  X(CU_FUNC_ATTRIBUTE_NUM_REGS, 4)                                                                                     \
  X(CU_FUNC_ATTRIBUTE_PTX_VERSION, 5)                                                                                  \
  X(CU_FUNC_ATTRIBUTE_BINARY_VERSION, 6)                                                                               \
  X(CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 9)                                                             \
  X(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 8)                                                                \
  X(CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 14)                                                           \
  X(CU_JIT_MAX_REGISTERS, 0)                                                                                           \
  X(CU_JIT_INFO_LOG_BUFFER, 3)                                                                                         \
  X(CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, 4)                                                                              \
  X(CU_JIT_ERROR_LOG_BUFFER, 5)                                                                                        \
  X(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, 6)                                                                             \
  X(CU_JIT_OPTIMIZATION_LEVEL, 7)                                                                                      \
  X(CU_JIT_LOG_VERBOSE, 12)                                                                                            \
  X(CU_JIT_GENERATE_LINE_INFO, 13)                                                                                     \
  X(CU_LAUNCH_ATTRIBUTE_COOPERATIVE, 2)                                                                                \
  X(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, 4)                                                                          \
  X(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, 6)                                                          \
  X(CU_STREAM_NON_BLOCKING, 1)                                                                                         \
  X(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, 1)                                                                            \
  X(CU_EVENT_DEFAULT, 0)                                                                                               \
  X(CU_TENSOR_MAP_DATA_TYPE_UINT8, 0)                                                                                  \
  X(CU_TENSOR_MAP_DATA_TYPE_UINT16, 1)                                                                                 \
  X(CU_TENSOR_MAP_DATA_TYPE_UINT32, 2)                                                                                 \
  X(CU_TENSOR_MAP_DATA_TYPE_INT32, 3)                                                                                  \
  X(CU_TENSOR_MAP_DATA_TYPE_UINT64, 4)                                                                                 \
  X(CU_TENSOR_MAP_DATA_TYPE_INT64, 5)                                                                                  \
  X(CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 6)                                                                                \
  X(CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 7)                                                                                \
  X(CU_TENSOR_MAP_DATA_TYPE_FLOAT64, 8)                                                                                \
  X(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 9)                                                                               \
  X(CU_TENSOR_MAP_INTERLEAVE_NONE, 0)                                                                                  \
  X(CU_TENSOR_MAP_SWIZZLE_NONE, 0)                                                                                     \
  X(CU_TENSOR_MAP_SWIZZLE_32B, 1)                                                                                      \
  X(CU_TENSOR_MAP_SWIZZLE_64B, 2)                                                                                      \
  X(CU_TENSOR_MAP_SWIZZLE_128B, 3)                                                                                     \
  X(CU_TENSOR_MAP_L2_PROMOTION_NONE, 0)                                                                                \
  X(CU_TENSOR_MAP_L2_PROMOTION_L2_128B, 2)                                                                             \
  X(CU_TENSOR_MAP_L2_PROMOTION_L2_256B, 3)                                                                             \
  X(CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE, 0)

// Scoped, and without the vendor's macro names, so that both headers can be seen by one source file.
namespace constant {
#define X(name, value) inline constexpr int name##_ = value;
TKC_CUDA_CONSTANTS(X)
#undef X
} // namespace constant

// The table of functions. A test fills one with its own.
struct Api {
#define TKC_CUDA(member, symbol, need, parameters) Code(*member) parameters = nullptr;
#include "runtime/cuda_functions.def"
#undef TKC_CUDA

  // "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (out of memory)"; `what` says what was tried.
  Error error(Code code, std::string_view what) const;
  // {} if the call succeeded.
  Status check(Code code, std::string_view what) const {
    if (code == constant::CUDA_SUCCESS_) return {};
    return error(code, what);
  }
};

// Opens `library` and looks up every function. The error (NoDevice) says what is missing.
Result<Api> load(const char *library);
// libcuda.so.1, loaded and initialised once per process. Errors are of the kind NoDevice.
Result<const Api *> driver();
// Whether a GPU can be used: a driver that initialises, and at least one device.
bool has_gpu();

} // namespace tkc::cu
