// TMA descriptors. tkc describes a tensor map in its own terms; the driver's opaque 128 bytes are made only for a GPU.
#pragma once
#include "runtime/cuda.h"
#include "runtime/host_tensor.h"

namespace tkc {

// Innermost dim first, as the PTX manual counts tensor coordinates.
struct TensorMapSpec {
  DType dtype = DType::BF16;
  cu::Pointer address = 0;
  std::vector<int64_t> dims;    // elements, rank 1..5
  std::vector<int64_t> strides; // bytes, of dims 1..rank-1
  std::vector<int64_t> box;     // elements fetched by one instruction
  int64_t swizzle_bytes = 0;    // 0, 32, 64, 128
};

// The rules of tiled tensor maps without interleave; the message names the rule and the number.
Status check_tensor_map(const TensorMapSpec &spec);
// Checks, then encodes. Reads beyond the tensor give zeros.
Result<cu::TensorMap> encode_tensor_map(const cu::Api &api, const TensorMapSpec &spec);

} // namespace tkc
