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
  int64_t limit = int64_t(std::max(t.storage->f.size(), t.storage->i.size()));
  size_t rank = sizes.size();
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
    int64_t base = t.offset;
    for (size_t d = 0; d + 1 < rank && base != kOutside; d++)
      base = steps[d][at[d]] == kOutside ? kOutside : base + steps[d][at[d]];
    for (int64_t step : row) {
      int64_t position = base == kOutside || step == kOutside ? -1 : base + step;
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

} // namespace tkc::ops
