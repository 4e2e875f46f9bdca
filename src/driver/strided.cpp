#include "driver/strided.h"
#include "ops/boxes.h"
#include "runtime/compare.h"
#include "support/diagnostics.h"
#include <algorithm>
#include <cstring>

namespace tkc::driver {

std::vector<int64_t> dense_strides(const std::vector<int64_t> &shape) { return ops::row_major(shape); }

int64_t memory_elements(const std::vector<int64_t> &shape, const std::vector<int64_t> &strides) {
  int64_t last = 0;
  for (size_t d = 0; d < shape.size(); d++) {
    if (shape[d] == 0) return 0;
    last += (shape[d] - 1) * strides[d];
  }
  return last + 1;
}

std::string stride_fault(const std::vector<int64_t> &shape, const std::vector<int64_t> &strides) {
  if (shape.size() != strides.size())
    return fmt::format("{} for a tensor of rank {}", counted(int64_t(strides.size()), "stride"), shape.size());
  std::vector<size_t> order;
  for (size_t d = 0; d < shape.size(); d++) {
    if (shape[d] == 0) return "";
    if (shape[d] > 1) order.push_back(d); // else its stride means nothing
  }
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return strides[a] < strides[b]; });
  int64_t last = 0; // of the dims so far
  for (size_t d : order) {
    if (strides[d] <= last) return fmt::format("elements of shape {} would lie on each other", shape_to_string(shape));
    int64_t more;
    if (__builtin_mul_overflow(shape[d] - 1, strides[d], &more) || more > (int64_t(1) << 60) - last)
      return "the tensor is too large";
    last += more;
  }
  return "";
}

void each_run(const HostTensor &t, const std::vector<int64_t> &strides,
              const std::function<void(int64_t at, int64_t bytes)> &each) {
  if (t.count() == 0) return;
  int64_t size = dtype_bytes(t.dtype);
  size_t rank = t.shape.size();
  // The innermost dims that lie densely are one run.
  size_t outer = rank;
  int64_t run = 1;
  while (outer > 0 && (strides[outer - 1] == run || t.shape[outer - 1] == 1)) run *= t.shape[--outer];
  std::vector<int64_t> at(outer, 0);
  int64_t place = 0;
  while (true) {
    each(place * size, run * size);
    size_t d = outer;
    while (d > 0 && ++at[d - 1] == t.shape[d - 1]) {
      place -= (t.shape[d - 1] - 1) * strides[d - 1];
      at[--d] = 0;
    }
    if (d == 0) return;
    place += strides[d - 1];
  }
}

HostTensor to_memory(const HostTensor &t, const std::vector<int64_t> &strides) {
  HostTensor out = HostTensor::zeros(t.dtype, {memory_elements(t.shape, strides)});
  poison(out);
  const uint8_t *from = t.bytes.data();
  each_run(t, strides, [&](int64_t at, int64_t bytes) {
    std::memcpy(out.bytes.data() + at, from, size_t(bytes));
    from += bytes;
  });
  return out;
}

Status from_memory(const HostTensor &memory, const std::vector<int64_t> &strides, const std::string &name,
                   HostTensor &t) {
  HostTensor clean = HostTensor::zeros(memory.dtype, memory.shape);
  poison(clean);
  uint8_t *to = t.bytes.data();
  each_run(t, strides, [&](int64_t at, int64_t bytes) {
    std::memcpy(to, memory.bytes.data() + at, size_t(bytes));
    std::memcpy(clean.bytes.data() + at, memory.bytes.data() + at, size_t(bytes));
    to += bytes;
  });
  auto differs = std::mismatch(memory.bytes.begin(), memory.bytes.end(), clean.bytes.begin());
  if (differs.first == memory.bytes.end()) return {};
  return failure("memory between the elements of `{}` was written: byte {} behind its first element", name,
                 differs.first - memory.bytes.begin());
}

} // namespace tkc::driver
