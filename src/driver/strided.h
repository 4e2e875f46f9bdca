// Tensors that do not lie densely in memory: rows with a pitch, transposed views. A HostTensor holds the elements
// row-major; these functions make the memory that a launch sees from it, and back. Strides are in elements.
#pragma once
#include "runtime/host_tensor.h"
#include <functional>

namespace tkc::driver {

std::vector<int64_t> dense_strides(const std::vector<int64_t> &shape); // of row-major storage
// The elements that the tensor's memory spans, from its first to its last; 0 if it has none.
int64_t memory_elements(const std::vector<int64_t> &shape, const std::vector<int64_t> &strides);
// Why no tensor of this shape lies so: "" if one does. Every element has a place of its own.
std::string stride_fault(const std::vector<int64_t> &shape, const std::vector<int64_t> &strides);

// The memory of a tensor, of rank 1: poison between its elements.
HostTensor to_memory(const HostTensor &t, const std::vector<int64_t> &strides);
// Takes the elements of `t` from its memory, from which its shape and dtype come. An error if what lies between them is
// no poison any more; `name` names the tensor.
Status from_memory(const HostTensor &memory, const std::vector<int64_t> &strides, const std::string &name,
                   HostTensor &t);
// Calls `each` with the place of every run of consecutive elements: its first byte in the memory, and how many bytes it
// has.
void each_run(const HostTensor &t, const std::vector<int64_t> &strides,
              const std::function<void(int64_t at, int64_t bytes)> &each);

} // namespace tkc::driver
