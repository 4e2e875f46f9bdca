// The elements of one access (load, store, atomic): which tensor element stands behind each element of the tile.
#pragma once
#include "ops/common.h"
#include <algorithm>

namespace tkc::ops {

// Checks tensor, indices and the attributes `sizes`, `drop`, `gather` of an access and returns the shape of its tile.
// Operands after the indices start at `rank + 1`.
std::optional<std::vector<int64_t>> infer_access(InferCtx &ctx, Op &op);
// Checks that operand i is a tile (of the dtype, if given) with the shape of the access.
bool is_access_tile(InferCtx &ctx, Op &op, size_t i, const std::vector<int64_t> &shape, std::optional<DType> dtype);
// Checks the mask, if attribute `has_mask` says that there is one.
bool check_mask(InferCtx &ctx, Op &op, size_t i, const std::vector<int64_t> &shape);

// Calls f(k, position) for every element k (row-major) of the tile of an access: `position` indexes the storage, or is
// -1 where the element is outside the view. Traps and stops if an element inside the view is outside the storage.
template <typename F> void for_elements(interp::Ctx &ctx, const Op &op, F &&f) {
  const interp::TensorRef &t = ctx.tensor(op.operand(0));
  const std::vector<int64_t> &sizes = op.attrs.ints("sizes"), &gather = op.attrs.ints("gather");
  int64_t limit = int64_t(std::max(t.storage->f.size(), t.storage->i.size())) * (t.field ? 8 : 1);
  size_t rank = sizes.size(), outer = t.field ? rank - t.field->rank : 0; // the first dim of those that are permuted
  ir::ByteSwizzle swizzle = t.field ? t.field->swizzle : ir::ByteSwizzle();
  constexpr int64_t kOutside = INT64_MIN;
  // Per dim and position in the tile: what the coordinate adds to the storage position, or kOutside.
  std::vector<std::vector<int64_t>> steps(rank);
  for (size_t d = 0; d < rank; d++) {
    const interp::Tile &index = ctx.tile(op.operand(d + 1));
    for (int64_t j = 0; j < sizes[d]; j++) {
      int64_t x = gather[d] ? index.i[size_t(j)] : wrapping_add(index.i[0], j);
      steps[d].push_back(x < 0 || x >= t.extents[d] ? kOutside : x * t.strides[d]);
    }
  }
  static const std::vector<int64_t> kOne = {0};
  const std::vector<int64_t> &row = rank ? steps[rank - 1] : kOne;
  std::vector<size_t> at(rank, 0);
  for (int64_t k = 0;;) {
    int64_t base = 0, record = t.offset;
    for (size_t d = 0; d + 1 < rank && base != kOutside; d++) {
      int64_t step = steps[d][at[d]];
      (d < outer ? record : base) += step == kOutside ? 0 : step;
      if (step == kOutside) base = kOutside;
    }
    for (int64_t step : row) {
      int64_t position = base == kOutside || step == kOutside ? -1 : record + swizzle(base + step);
      if (position != -1 && (position < 0 || position >= limit))
        return ctx.trap(op,
                        fmt::format("access to element {} of `{}`, which has {}", position, t.storage->name, limit));
      f(k++, position);
    }
    if (rank < 2) return;
    size_t d = rank - 1;
    while (d-- > 0) {
      if (++at[d] < steps[d].size()) break;
      at[d] = 0;
    }
    if (d == SIZE_MAX) return;
  }
}

// Tensor elements are shared by blocks that run at the same time: two of them may store to one element, as on a GPU.
template <typename T> T peek(const T &x) {
  return std::atomic_ref<T>(const_cast<T &>(x)).load(std::memory_order_relaxed);
}
template <typename T> void poke(T &x, T v) { std::atomic_ref<T>(x).store(v, std::memory_order_relaxed); }

// An element of a field of records, in words of 8 bytes; it never lies across two.
inline uint64_t peek_bits(const interp::Storage &s, int64_t byte, int64_t bytes) {
  uint64_t word = uint64_t(peek(s.i[size_t(byte / 8)])) >> byte % 8 * 8;
  return bytes == 8 ? word : word & ((uint64_t(1) << bytes * 8) - 1);
}
inline void poke_bits(interp::Storage &s, int64_t byte, int64_t bytes, uint64_t bits) {
  std::atomic_ref<int64_t> word(s.i[size_t(byte / 8)]);
  uint64_t mask = (bytes == 8 ? ~uint64_t(0) : (uint64_t(1) << bytes * 8) - 1) << byte % 8 * 8;
  int64_t old = word.load(std::memory_order_relaxed);
  while (!word.compare_exchange_weak(old, int64_t((uint64_t(old) & ~mask) | (bits << byte % 8 * 8)))) {}
}

} // namespace tkc::ops
