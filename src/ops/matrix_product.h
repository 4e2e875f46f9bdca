// The product of the interpreter.
#pragma once
#include <algorithm>
#include <cstdint>

namespace tkc::ops {

// c [m, n] += a [m, k] b [k, n], row-major. Four steps of k share a pass over a row of c, and a panel of b stays in the
// cache; the order of additions is that of the plain loop.
template <typename T> void matrix_product(const T *a, const T *b, T *c, int64_t m, int64_t n, int64_t k) {
  constexpr int64_t kPanelK = 64, kPanelN = 256;
  for (int64_t k0 = 0; k0 < k; k0 += kPanelK)
    for (int64_t n0 = 0; n0 < n; n0 += kPanelN) {
      int64_t k1 = std::min(k, k0 + kPanelK), width = std::min(n - n0, kPanelN);
      for (int64_t i = 0; i < m; i++) {
        T *__restrict out = c + i * n + n0;
        int64_t p = k0;
        for (; p + 4 <= k1; p += 4) {
          T a0 = a[i * k + p], a1 = a[i * k + p + 1], a2 = a[i * k + p + 2], a3 = a[i * k + p + 3];
          const T *b0 = b + p * n + n0, *b1 = b0 + n, *b2 = b1 + n, *b3 = b2 + n;
          for (int64_t j = 0; j < width; j++) out[j] = (((out[j] + a0 * b0[j]) + a1 * b1[j]) + a2 * b2[j]) + a3 * b3[j];
        }
        for (; p < k1; p++) {
          T a0 = a[i * k + p];
          const T *b0 = b + p * n + n0;
          for (int64_t j = 0; j < width; j++) out[j] += a0 * b0[j];
        }
      }
    }
}

} // namespace tkc::ops
