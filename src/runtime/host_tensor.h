// Tensors in host memory, as the kernels see them: dense, row-major, little-endian storage of the exact dtype.
#pragma once
#include "support/dtype.h"
#include "support/result.h"
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tkc {

// Elements of a shape (1 for rank 0), or nothing if a dim is negative or the storage would pass 2^62 bytes.
std::optional<int64_t> element_count(std::span<const int64_t> shape);
// Storage of `count` elements; e2m1 packs two into a byte, the even element in the low half.
int64_t storage_bytes(DType t, int64_t count);
std::string shape_to_string(std::span<const int64_t> shape); // "[4, 7]"
// Row-major coordinates of a linear index.
std::vector<int64_t> coordinates(std::span<const int64_t> shape, int64_t index);

struct HostTensor {
  DType dtype = DType::F32;
  std::vector<int64_t> shape;
  std::vector<uint8_t> bytes; // storage_bytes(dtype, count())

  static HostTensor zeros(DType dtype, std::vector<int64_t> shape);
  // Rounds each value to the dtype (integers: truncation and saturation). values.size() must fit the shape.
  static HostTensor from_doubles(DType dtype, std::vector<int64_t> shape, std::span<const double> values);

  int64_t count() const;
  int64_t rank() const { return int64_t(shape.size()); }
  std::string to_string() const; // "bf16[4, 7]"

  uint64_t bits(int64_t index) const; // storage bits of one element
  void set_bits(int64_t index, uint64_t bits);
  double get(int64_t index) const; // exact but for i64 and u64 beyond 2^53, which are rounded
  void set(int64_t index, double value);
  int64_t get_int(int64_t index) const;       // integer and bool types; u64 by its bits
  void set_int(int64_t index, int64_t value); // wraps
  std::vector<double> to_doubles() const;
  // Sets [begin, begin + values.size()) as set() does, much faster.
  void set_range(int64_t begin, std::span<const double> values);
  void get_range(int64_t begin, std::span<double> values) const;

  bool operator==(const HostTensor &) const = default;
};

// The same values in another dtype, rounded.
HostTensor convert(const HostTensor &from, DType to);
// Equal for equal dtype, shape and bytes on every machine; printed beside a measurement to prove that inputs were the
// same.
uint64_t checksum(const HostTensor &t);
// Checks what a file held against what a kernel wants; `what` names the file in the message.
Status check_tensor(const HostTensor &t, DType dtype, std::span<const int64_t> shape, std::string_view what);

} // namespace tkc
