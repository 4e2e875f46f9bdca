// Software tensor maps: what cuTensorMapEncodeTiled describes, as plain numbers in the same 128 bytes. The emulator
// reads them where the hardware reads a CUtensorMap; the runtime encodes the same description for a GPU.
#pragma once
#include "support/dtype.h"
#include <array>
#include <cstdint>
#include <optional>
#include <string>

namespace tkc::emu {

struct TensorMap {
  uint64_t address = 0; // of element (0, .., 0)
  DType dtype = DType::F32;
  int32_t rank = 1;                   // 1..5; dimension 0 is the innermost, contiguous one
  std::array<int64_t, 5> size = {};   // elements
  std::array<int64_t, 5> stride = {}; // bytes; stride[0] is the element size
  std::array<int32_t, 5> box = {};    // elements, 1..256
  // Every step-th element of the box is copied, 1..8; in dimension 0 always every one.
  std::array<int32_t, 5> step = {1, 1, 1, 1, 1};
  int32_t swizzle = 0; // bytes: 0, 32, 64, 128

  int64_t copied(int d) const { return d == 0 ? box[0] : (box[size_t(d)] + step[size_t(d)] - 1) / step[size_t(d)]; }
  int64_t box_bytes() const; // transaction bytes of a copy, whatever lies outside of the tensor
};

// What is wrong with it ("" = nothing): the rules of cuTensorMapEncodeTiled.
std::string check_tensor_map(const TensorMap &map);

constexpr int64_t kTensorMapBytes = 128;
std::array<uint8_t, kTensorMapBytes> encode_tensor_map(const TensorMap &map);
// Nothing if the bytes are no software tensor map.
std::optional<TensorMap> decode_tensor_map(const uint8_t *bytes);

// A copy may start anywhere, but the inner coordinate must lie at a multiple of 16 bytes in its row: hardware ends a
// copy that does not with an illegal instruction. "" = it does.
std::string check_inner_coordinate(const TensorMap &map, int64_t coordinate);

// Where a byte of the box lies: the shared address with the swizzle applied to its 16-byte chunk.
inline uint32_t swizzled_address(uint32_t address, int32_t swizzle) {
  uint32_t bits = swizzle == 128 ? 7 : swizzle == 64 ? 3 : swizzle == 32 ? 1 : 0;
  return address ^ ((address >> 7 & bits) << 4);
}

} // namespace tkc::emu
