// Parts of row-major arrays: strides, and runs along the last dim.
#pragma once
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

namespace tkc::ops {

using Ints = std::vector<int64_t>;

inline Ints row_major(const Ints &shape) {
  Ints strides(shape.size(), 1);
  for (size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
  return strides;
}

// Calls f(row, a, b) for every run along the last dim of a box: `a` and `b` are the positions of its first element in
// two arrays with the given strides, `row` its number of elements.
template <typename F>
void for_rows(const Ints &box, const Ints &strides_a, const Ints &strides_b, int64_t a, int64_t b, F &&f) {
  if (std::find(box.begin(), box.end(), 0) != box.end()) return;
  if (box.empty()) return f(1, a, b);
  size_t outer = box.size() - 1;
  Ints at(outer, 0);
  while (true) {
    f(box[outer], a, b);
    size_t d = outer;
    for (; d-- > 0;) {
      a += strides_a[d];
      b += strides_b[d];
      if (++at[d] < box[d]) break;
      a -= at[d] * strides_a[d];
      b -= at[d] * strides_b[d];
      at[d] = 0;
    }
    if (d == SIZE_MAX) return;
  }
}

inline int64_t dot(const Ints &a, const Ints &b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), int64_t(0));
}

} // namespace tkc::ops
