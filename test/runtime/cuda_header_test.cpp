// The declarations of runtime/cuda.h against the vendor's header, at compile time, on machines that have it.
#include "runtime/cuda.h"
#include <doctest/doctest.h>
#include <unistd.h>

using namespace tkc;

// Names of our own, taken before the vendor's header renames cuXxx to cuXxx_v2 by macros.
namespace {
#define TKC_CUDA(member, symbol, need, parameters)                                                                     \
  using Ours_##member = cu::Code parameters;                                                                           \
  [[maybe_unused]] constexpr const char *kSymbol_##member = symbol;
#include "runtime/cuda_functions.def"
#undef TKC_CUDA
#define X(name, value) [[maybe_unused]] constexpr int kValue_##name = value;
TKC_CUDA_CONSTANTS(X)
#undef X
} // namespace

#if __has_include("/usr/local/cuda/include/cuda.h")
#include "/usr/local/cuda/include/cuda.h"
#include <string_view>
#include <type_traits>

namespace {
// Two parameters that are passed alike: both integers (or enums), or both pointers, of one size.
template <typename A, typename B>
constexpr bool same_kind = sizeof(A) == sizeof(B) && std::is_pointer_v<A> == std::is_pointer_v<B> &&
                           (std::is_integral_v<A> || std::is_enum_v<A>) == (std::is_integral_v<B> || std::is_enum_v<B>);
template <typename F, typename G> struct SameCall : std::false_type {};
template <typename R, typename... A, typename S, typename... B> struct SameCall<R(A...), S(B...)> {
  static constexpr bool value = [] {
    if constexpr (sizeof...(A) != sizeof...(B))
      return false;
    else
      return same_kind<R, S> && (same_kind<A, B> && ...);
  }();
};

#define TEXT2(x) #x
#define TEXT(x) TEXT2(x)
// The header of CUDA 13 maps cuEventElapsedTime to a second version, which older drivers lack; the first one stays
// exported.
constexpr bool same_symbol(std::string_view vendor, std::string_view ours) {
  return vendor == ours || ours == "cuEventElapsedTime";
}
// cuDeviceGetUuid: likewise without a suffix before CUDA 13.
#define TKC_CUDA(member, symbol, need, parameters)                                                                     \
  static_assert(SameCall<decltype(::member), Ours_##member>::value, "parameters of " symbol);                          \
  static_assert(same_symbol(TEXT(member), kSymbol_##member) || CUDA_VERSION < 13000, "version of " symbol);
#include "runtime/cuda_functions.def"
#undef TKC_CUDA

// By value: the compiler checks every constant against the enumerator or macro of its name.
#define X(name, value) static_assert(int(name) == kValue_##name, #name);
TKC_CUDA_CONSTANTS(X)
#undef X

static_assert(sizeof(cu::TensorMap) == sizeof(CUtensorMap) && alignof(cu::TensorMap) >= alignof(CUtensorMap));
static_assert(sizeof(cu::Uuid) == sizeof(CUuuid));
static_assert(sizeof(cu::LaunchAttribute) == sizeof(CUlaunchAttribute));
static_assert(offsetof(cu::LaunchAttribute, value) == offsetof(CUlaunchAttribute, value));
static_assert(sizeof(CUlaunchAttributeValue) == sizeof(cu::LaunchAttribute::value));
static_assert(sizeof(cu::LaunchConfig) == sizeof(CUlaunchConfig));
static_assert(offsetof(cu::LaunchConfig, block) == offsetof(CUlaunchConfig, blockDimX));
static_assert(offsetof(cu::LaunchConfig, shared_bytes) == offsetof(CUlaunchConfig, sharedMemBytes));
static_assert(offsetof(cu::LaunchConfig, stream) == offsetof(CUlaunchConfig, hStream));
static_assert(offsetof(cu::LaunchConfig, attributes) == offsetof(CUlaunchConfig, attrs));
static_assert(offsetof(cu::LaunchConfig, attribute_count) == offsetof(CUlaunchConfig, numAttrs));
} // namespace
#endif

static const char *const kStub = "/usr/local/cuda/lib64/stubs/libcuda.so";
// The stub has the driver's SONAME: once it is loaded, a dlopen of libcuda.so.1 finds it instead of the driver. So the
// real one is asked for first, and whether there is a stub is asked of the file system.
static bool has_stub() {
  cu::has_gpu();
  return access(kStub, R_OK) == 0;
}

TEST_CASE("the toolkit's stub of the driver exports every function, and its refusal is reported" *
          doctest::skip(!has_stub())) {
  Result<cu::Api> api = cu::load(kStub);
  REQUIRE(api.ok());
  CHECK(bool(api->cuLaunchKernelEx));
  CHECK(bool(api->cuTensorMapEncodeTiled));
  cu::Code code = api->cuInit(0);
  CHECK(code == cu::constant::CUDA_ERROR_STUB_LIBRARY_);
  CHECK(api->error(code, "the CUDA driver does not start").message.find("the CUDA driver does not start: ") == 0);
}
