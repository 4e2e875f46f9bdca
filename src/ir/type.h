// Types of the tile IR.
#pragma once
#include "support/dtype.h"
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tkc::ir {

// Of a kernel. No block has registers for as many: 64 Ki of 4 bytes are the most that an SM has.
inline constexpr int64_t kMaxTileElements = int64_t(1) << 20;

constexpr int64_t kDynamic = -1;

enum class TypeKind : uint8_t {
  None,
  Tile,   // a value in registers; shape has exact extents, rank 0..4; rank 0 is a block-uniform scalar
  Token,  // orders ops made by passes: a scratch buffer that has been written
  Tensor, // global memory: base, extents and strides are run-time values; shape has the static extents, else kDynamic
};

struct Type {
  TypeKind kind = TypeKind::None;
  DType dtype = DType::F32;
  std::vector<int64_t> shape;

  static Type tile(DType t, std::vector<int64_t> shape) { return {TypeKind::Tile, t, std::move(shape)}; }
  static Type scalar(DType t) { return {TypeKind::Tile, t, {}}; }
  static Type tensor(DType t, std::vector<int64_t> shape) { return {TypeKind::Tensor, t, std::move(shape)}; }
  static Type token() { return {TypeKind::Token, DType::Bool, {}}; }
  bool is_tile() const { return kind == TypeKind::Tile; }
  bool is_scalar() const { return kind == TypeKind::Tile && shape.empty(); }
  bool is_tensor() const { return kind == TypeKind::Tensor; }
  int64_t rank() const { return int64_t(shape.size()); }
  int64_t elements() const; // product of the extents
  Type with_dtype(DType t) const { return {kind, t, shape}; }
  Type with_shape(std::vector<int64_t> s) const { return {kind, dtype, std::move(s)}; }
  bool operator==(const Type &) const = default;
  std::string str() const; // tile<f32>[4, 64], f32 for a scalar, tensor<bf16>[?, 4096]
};

std::string shape_str(std::span<const int64_t> shape); // [4, 64]

} // namespace tkc::ir
