#include "runtime/tensor_map.h"

namespace tkc {

using namespace cu::constant;

static std::optional<int> map_type(DType t) {
  switch (t) {
  case DType::Bool:
  case DType::I8:
  case DType::U8:
  case DType::E4M3:
  case DType::E5M2:
  case DType::UE8M0:
  case DType::UE4M3: return CU_TENSOR_MAP_DATA_TYPE_UINT8_;
  case DType::I16:
  case DType::U16: return CU_TENSOR_MAP_DATA_TYPE_UINT16_;
  case DType::F16: return CU_TENSOR_MAP_DATA_TYPE_FLOAT16_;
  case DType::BF16: return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16_;
  case DType::I32: return CU_TENSOR_MAP_DATA_TYPE_INT32_;
  case DType::U32: return CU_TENSOR_MAP_DATA_TYPE_UINT32_;
  case DType::TF32: // the bits are copied, not rounded: mma reads the upper ones
  case DType::F32: return CU_TENSOR_MAP_DATA_TYPE_FLOAT32_;
  case DType::I64: return CU_TENSOR_MAP_DATA_TYPE_INT64_;
  case DType::U64: return CU_TENSOR_MAP_DATA_TYPE_UINT64_;
  case DType::F64: return CU_TENSOR_MAP_DATA_TYPE_FLOAT64_;
  case DType::E2M1: return std::nullopt; // two to a byte: the caller maps bytes
  }
  return std::nullopt;
}

Status check_tensor_map(const TensorMapSpec &s) {
  size_t rank = s.dims.size();
  if (!map_type(s.dtype)) return failure("tensor map: no element type for {}", dtype_name(s.dtype));
  if (rank < 1 || rank > 5) return failure("tensor map: rank {}, 1 to 5 are possible", rank);
  if (s.strides.size() != rank - 1 || s.box.size() != rank)
    return failure("tensor map: {} dims with {} strides and {} box sizes", rank, s.strides.size(), s.box.size());
  if (s.address % 16 != 0) return failure("tensor map: the address {:#x} is not a multiple of 16", s.address);
  int64_t element = dtype_bytes(s.dtype);
  for (size_t d = 0; d < rank; d++) {
    if (s.dims[d] < 1 || s.dims[d] > int64_t(1) << 32)
      return failure("tensor map: dim {} has {} elements, 1 to 2^32 are possible", d, s.dims[d]);
    if (s.box[d] < 1 || s.box[d] > 256)
      return failure("tensor map: the box has {} elements along dim {}, 1 to 256 are possible", s.box[d], d);
  }
  for (size_t d = 0; d + 1 < rank; d++)
    if (s.strides[d] < 0 || s.strides[d] % 16 != 0 || s.strides[d] >= int64_t(1) << 40)
      return failure("tensor map: the stride of dim {} is {} bytes; a multiple of 16 below 2^40 is needed", d + 1,
                     s.strides[d]);
  int64_t inner = s.box[0] * element;
  if (inner % 16 != 0) return failure("tensor map: the box is {} bytes wide, a multiple of 16 is needed", inner);
  if (s.swizzle_bytes != 0 && s.swizzle_bytes != 32 && s.swizzle_bytes != 64 && s.swizzle_bytes != 128)
    return failure("tensor map: a swizzle of {} bytes; 0, 32, 64 and 128 exist", s.swizzle_bytes);
  if (s.swizzle_bytes != 0 && inner > s.swizzle_bytes)
    return failure("tensor map: the box is {} bytes wide, more than its swizzle of {}", inner, s.swizzle_bytes);
  return {};
}

Result<cu::TensorMap> encode_tensor_map(const cu::Api &api, const TensorMapSpec &s) {
  TKC_TRY(check_tensor_map(s));
  if (!api.cuTensorMapEncodeTiled) return failure("the driver is too old for tensor maps (CUDA 12.0 is needed)");
  uint64_t dims[5] = {}, strides[5] = {};
  uint32_t box[5] = {}, steps[5] = {1, 1, 1, 1, 1};
  for (size_t d = 0; d < s.dims.size(); d++) {
    dims[d] = uint64_t(s.dims[d]);
    box[d] = uint32_t(s.box[d]);
    if (d > 0) strides[d - 1] = uint64_t(s.strides[d - 1]);
  }
  int swizzle = s.swizzle_bytes == 0    ? CU_TENSOR_MAP_SWIZZLE_NONE_
                : s.swizzle_bytes == 32 ? CU_TENSOR_MAP_SWIZZLE_32B_
                : s.swizzle_bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B_
                                        : CU_TENSOR_MAP_SWIZZLE_128B_;
  cu::TensorMap map = {};
  TKC_TRY(api.check(api.cuTensorMapEncodeTiled(&map, *map_type(s.dtype), uint32_t(s.dims.size()),
                                               reinterpret_cast<void *>(uintptr_t(s.address)), dims, strides, box,
                                               steps, CU_TENSOR_MAP_INTERLEAVE_NONE_, swizzle,
                                               CU_TENSOR_MAP_L2_PROMOTION_L2_256B_, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE_),
                    "encoding a tensor map"));
  // Drivers before CUDA 13.2 set bit 85 for every tensor; sm_100 and later then compute wrong addresses at the end of
  // one that spans less than 128 KiB and is not dense. sm_90 ignores the bit.
  int64_t span = dtype_bytes(s.dtype) * s.dims[0];
  for (size_t d = 1; d < s.dims.size(); d++) span += (s.dims[d] - 1) * s.strides[d - 1];
  if (span < 128 << 10) map.opaque[1] &= ~(uint64_t(1) << 21);
  return map;
}

} // namespace tkc
