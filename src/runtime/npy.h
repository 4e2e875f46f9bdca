// NumPy .npy files, format versions 1, 2 and 3.
//
//   bool |b1   i8..i64 |i1 <i2 <i4 <i8   u8..u64 |u1 <u2 <u4 <u8   f16 f32 f64 <f2 <f4 <f8
// NumPy has no type for bf16, fp8 and scale types: they are written as raw bytes (|V2, |V1) and read, as are unsigned
// integers of the same width, only where the caller says which dtype they are. tf32 is stored as f32. e2m1 has no .npy
// form.
#pragma once
#include "runtime/host_tensor.h"

namespace tkc {

// `wanted`: the dtype that the tensor must have; a file of another one is an error that names both. Files in Fortran
// order, big-endian, structured or truncated, or with bytes after the array, are errors. `name` is for messages.
Result<HostTensor> parse_npy(std::span<const uint8_t> file, std::string_view name, std::optional<DType> wanted = {});
// What a file says of its array; no dtype where the elements are raw bytes. The data are not looked at.
struct NpyHeader {
  std::optional<DType> dtype;
  std::vector<int64_t> shape;
};
Result<NpyHeader> parse_npy_header(std::span<const uint8_t> file, std::string_view name);
Result<HostTensor> read_npy(const std::string &path, std::optional<DType> wanted = {});

Result<std::vector<uint8_t>> encode_npy(const HostTensor &t);
Status write_npy(const std::string &path, const HostTensor &t);

} // namespace tkc
