#include "emu/tensor_map.h"
#include <cstring>
#include <fmt/format.h>

namespace tkc::emu {

namespace {
constexpr uint32_t kMagic = 0x54'4b'54'4d;
struct Image {
  uint32_t magic;
  uint8_t dtype, rank, swizzle, reserved;
  uint64_t address;
  uint64_t size[5], stride[4];
  uint16_t box[5];
  uint8_t step[5];
};
static_assert(sizeof(Image) <= kTensorMapBytes);
} // namespace

int64_t TensorMap::box_bytes() const {
  int64_t bytes = dtype_bytes(dtype);
  for (int d = 0; d < rank; d++) bytes *= copied(d);
  return bytes;
}

std::string check_tensor_map(const TensorMap &m) {
  int64_t element = dtype_bytes(m.dtype);
  if (m.rank < 1 || m.rank > 5) return fmt::format("rank {} is not within 1..5", m.rank);
  if (m.address % 16) return fmt::format("the address {:#x} is not a multiple of 16", m.address);
  if (m.swizzle != 0 && m.swizzle != 32 && m.swizzle != 64 && m.swizzle != 128)
    return fmt::format("there is no {}-byte swizzle", m.swizzle);
  for (int d = 0; d < m.rank; d++) {
    int64_t size = m.size[size_t(d)], box = m.box[size_t(d)], stride = m.stride[size_t(d)];
    if (size < 1 || size > int64_t(1) << 32)
      return fmt::format("size {} of dimension {} is not within 1..2^32", size, d);
    if (m.step[size_t(d)] < 1 || m.step[size_t(d)] > 8)
      return fmt::format("step {} of dimension {} is not within 1..8", m.step[size_t(d)], d);
    if (box < 1 || box > 256) return fmt::format("box {} of dimension {} is not within 1..256", box, d);
    if (d && (stride % 16 || stride < 1 || stride >= int64_t(1) << 40))
      return fmt::format("stride {} of dimension {} is not a multiple of 16 below 2^40", stride, d);
  }
  if (m.stride[0] != element) return "the innermost dimension is not contiguous";
  int64_t inner = m.box[0] * element;
  if (inner % 16) return fmt::format("the inner box of {} bytes is not a multiple of 16", inner);
  if (m.swizzle && inner > m.swizzle)
    return fmt::format("the inner box of {} bytes exceeds the swizzle of {}", inner, m.swizzle);
  return "";
}

std::string check_inner_coordinate(const TensorMap &m, int64_t coordinate) {
  int64_t bytes = coordinate * dtype_bytes(m.dtype);
  if (bytes % 16 == 0) return "";
  return fmt::format("coordinate {} of dimension 0 lies at {} bytes, not at a multiple of 16", coordinate, bytes);
}

std::array<uint8_t, kTensorMapBytes> encode_tensor_map(const TensorMap &m) {
  Image image = {kMagic, uint8_t(m.dtype), uint8_t(m.rank), uint8_t(m.swizzle), 0, m.address, {}, {}, {}, {}};
  for (size_t d = 0; d < 5; d++) {
    image.size[d] = uint64_t(m.size[d]);
    image.box[d] = uint16_t(m.box[d]);
    image.step[d] = uint8_t(m.step[d]);
    if (d) image.stride[d - 1] = uint64_t(m.stride[d]);
  }
  std::array<uint8_t, kTensorMapBytes> bytes = {};
  std::memcpy(bytes.data(), &image, sizeof image);
  return bytes;
}

std::optional<TensorMap> decode_tensor_map(const uint8_t *bytes) {
  Image image;
  std::memcpy(&image, bytes, sizeof image);
  if (image.magic != kMagic || image.dtype >= all_dtypes().size()) return std::nullopt;
  TensorMap m;
  m.address = image.address;
  m.dtype = DType(image.dtype);
  m.rank = image.rank;
  m.swizzle = image.swizzle;
  for (size_t d = 0; d < 5; d++) {
    m.size[d] = int64_t(image.size[d]);
    m.box[d] = image.box[d];
    m.step[d] = image.step[d];
    m.stride[d] = d ? int64_t(image.stride[d - 1]) : dtype_bytes(m.dtype);
  }
  return m;
}

} // namespace tkc::emu
