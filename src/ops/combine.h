// The ways in which reductions, scans and atomics put two elements together, with their neutral elements. Floats are
// combined in double and rounded by the caller, integers are images in int64 and wrapped by the caller.
#pragma once
#include "ops/common.h"
#include <limits>

namespace tkc::ops {

struct SumF {
  static constexpr double start_f = 0;
  static int64_t start_i(DType) { return 0; }
  static double f(double a, double b) { return a + b; }
  static int64_t i(DType, int64_t a, int64_t b) { return wrapping_add(a, b); }
};
struct ProdF {
  static constexpr double start_f = 1;
  static int64_t start_i(DType) { return 1; }
  static double f(double a, double b) { return a * b; }
  static int64_t i(DType, int64_t a, int64_t b) { return wrapping_mul(a, b); }
};
struct MaxF {
  static constexpr double start_f = -std::numeric_limits<double>::infinity();
  static int64_t start_i(DType t) { return int_lowest(t); }
  static double f(double a, double b) { return max_number(a, b); }
  static int64_t i(DType t, int64_t a, int64_t b) { return int_less(t, a, b) ? b : a; }
};
struct MinF {
  static constexpr double start_f = std::numeric_limits<double>::infinity();
  static int64_t start_i(DType t) { return int_highest(t); }
  static double f(double a, double b) { return min_number(a, b); }
  static int64_t i(DType t, int64_t a, int64_t b) { return int_less(t, b, a) ? b : a; }
};

} // namespace tkc::ops
