#include "runtime/cuda.h"
#include <dlfcn.h>

namespace tkc::cu {

using namespace constant;

Error Api::error(Code code, std::string_view what) const {
  const char *name = nullptr, *text = nullptr;
  if (cuGetErrorName) cuGetErrorName(code, &name);
  if (cuGetErrorString) cuGetErrorString(code, &text);
  ErrorKind kind = code == CUDA_ERROR_NO_DEVICE_        ? ErrorKind::NoDevice
                   : code == CUDA_ERROR_LAUNCH_TIMEOUT_ ? ErrorKind::Timeout
                                                        : ErrorKind::Failure;
  return {fmt::format("{}: {} ({})", what, name ? name : fmt::format("error {}", code), text ? text : "unknown"), kind};
}

Result<Api> load(const char *library) {
  void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const char *why = dlerror();
    return Error{fmt::format("no CUDA driver: {}", why ? why : library), ErrorKind::NoDevice};
  }
  // The handle is never closed: the driver keeps threads of its own until the process ends.
  Api api;
  std::string missing;
  enum Need { Required, Optional };
#define TKC_CUDA(member, symbol, need, parameters)                                                                     \
  api.member = reinterpret_cast<decltype(api.member)>(dlsym(handle, symbol));                                          \
  if (!api.member && need == Required) missing += missing.empty() ? symbol : ", " symbol;
#include "runtime/cuda_functions.def"
#undef TKC_CUDA
  if (!missing.empty())
    return Error{fmt::format("the CUDA driver ({}) is too old: it lacks {}", library, missing), ErrorKind::NoDevice};
  return api;
}

Result<const Api *> driver() {
  static const Result<Api> the_driver = []() -> Result<Api> {
    Result<Api> api = load("libcuda.so.1");
    if (!api) return api;
    if (Code code = api->cuInit(0); code != CUDA_SUCCESS_)
      return Error{api->error(code, "the CUDA driver does not start").message, ErrorKind::NoDevice};
    return api;
  }();
  if (!the_driver) return the_driver.failed();
  return &the_driver.value();
}

bool has_gpu() {
  Result<const Api *> api = driver();
  int count = 0;
  return api && (*api)->cuDeviceGetCount(&count) == CUDA_SUCCESS_ && count > 0;
}

} // namespace tkc::cu
