// One kernel on two executors: the emulator and, if there is one, the GPU. Buffers are named by index; what the kernel
// leaves in them is compared.
#pragma once
#include "emu/emu.h"
#include "emu/tensor_map.h"
#include "runtime/device.h"
#include <variant>

namespace gpu_test {

struct BufferRef {
  size_t index;
};
struct MapRef { // a tensor map of the buffer; map.address is filled in
  tkc::emu::TensorMap map;
  size_t index;
};
using Argument = std::variant<BufferRef, MapRef, std::vector<uint8_t>>;
template <typename T> Argument bytes_of(const T &x) {
  const uint8_t *p = reinterpret_cast<const uint8_t *>(&x);
  return std::vector<uint8_t>(p, p + sizeof x);
}

struct Job {
  std::string text; // without .version and .target; one kernel
  int64_t grid = 1, block = 32, cluster = 1;
  std::vector<Argument> arguments;
  std::vector<std::vector<uint8_t>> buffers; // before
};
template <typename T> std::vector<uint8_t> to_bytes(const std::vector<T> &v) {
  std::vector<uint8_t> out(v.size() * sizeof(T));
  if (!out.empty()) std::memcpy(out.data(), v.data(), out.size());
  return out;
}

using Buffers = std::vector<std::vector<uint8_t>>;
// After the run, or the fault.
tkc::Result<Buffers> on_emulator(const Job &job);
tkc::Result<Buffers> on_gpu(tkc::Device &device, const Job &job);

// Null where there is no GPU of at least sm_90; opened once.
tkc::Device *gpu();

} // namespace gpu_test
