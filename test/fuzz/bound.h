// What is known of every value of a random program while it is generated: how large it can be, and how far two correct
// executions can be apart. Where arithmetic is exact in any order of accumulation, with and without fused
// multiply-adds (small multiples of a power of two), that is 0 and executors must agree to the bit. Where it is not
// (full mantissas, approximate functions), the worst case over all roundings is carried along.
#pragma once
#include "support/dtype.h"
#include <algorithm>
#include <cmath>

namespace tkc::fuzz {

struct FloatFormat {
  int precision = 24; // bits of the mantissa, the hidden one included
  int quantum = -149; // log2 of the least number
  double largest = 0; // that programs use: arithmetic on smaller numbers never overflows
};
FloatFormat format_of(DType t);

struct Bound {
  // Floats: |value| <= most; a multiple of 2^grid as long as error is 0; two executions differ by error at most.
  double most = 0, error = 0;
  int grid = 0;
  double terms = 0; // of the sum that a matrix product is: what is added to it may take part in every rounding
  // Integers and bools: low <= value <= high.
  double low = 0, high = 0;

  bool exact() const { return error == 0; }
};
Bound integers_between(double low, double high);
Bound floats_upto(double most, int grid, double error = 0);

// The result of an op on floats that is rounded to t: exact if every value of this bound is a number of t.
Bound rounded(DType t, Bound b);
// The result of integer arithmetic: what leaves the type wraps.
Bound wrapped(DType t, double low, double high);
Bound either(DType t, const Bound &a, const Bound &b); // one of two values

Bound add(DType t, const Bound &a, const Bound &b, bool subtract = false);
Bound multiply(DType t, const Bound &a, const Bound &b);
// n values added in f32 at least (`wide`: the dtype of the sums), then rounded to t.
Bound sum(DType t, DType wide, const Bound &a, double n);
Bound cast(DType from, DType to, const Bound &a);

} // namespace tkc::fuzz
