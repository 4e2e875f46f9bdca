#include "bound.h"
#include "support/check.h"
#include <cstdint>
#include <limits>

namespace tkc::fuzz {

FloatFormat format_of(DType t) {
  switch (t) {
  case DType::F16: return {11, -24, 16000};
  case DType::BF16: return {8, -133, 1e30};
  case DType::TF32: return {11, -136, 1e30};
  case DType::F32: return {24, -149, 1e30};
  case DType::F64: return {53, -1074, 1e100};
  case DType::E4M3: return {4, -9, 448}; // saturates
  case DType::E5M2: return {3, -16, 57344};
  default: TKC_UNREACHABLE("{} in a random program", dtype_name(t));
  }
}

namespace {
struct Range {
  double low = 0, high = 0;
};
Range range_of(DType t) {
  if (is_bool(t)) return {0, 1};
  int bits = int(dtype_bits(t));
  return is_signed(t) ? Range{-std::ldexp(1, bits - 1), std::ldexp(1, bits - 1) - 1}
                      : Range{0, std::ldexp(1, bits) - 1};
}
double unit(DType t) { return std::ldexp(1, -format_of(t).precision); }
} // namespace

Bound integers_between(double low, double high) {
  Bound b;
  b.low = low, b.high = high;
  return b;
}
Bound floats_upto(double most, int grid, double error) {
  Bound b;
  b.most = most, b.grid = grid, b.error = error;
  return b;
}

Bound rounded(DType t, Bound b) {
  FloatFormat f = format_of(t);
  bool fits = b.most <= std::ldexp(1, b.grid + f.precision) && b.grid >= f.quantum;
  // A rounding on each side, of numbers that may differ already.
  if (!b.exact() || !fits) b.error += 2.5 * unit(t) * (b.most + b.error) + 2 * std::ldexp(1, f.quantum);
  b.most += b.exact() ? 0 : b.error;
  return b;
}

Bound wrapped(DType t, double low, double high) {
  Range r = range_of(t);
  if (!(low >= r.low && high <= r.high)) return integers_between(r.low, r.high);
  return integers_between(low, high);
}

Bound either(DType t, const Bound &a, const Bound &b) {
  if (!is_float(t)) return integers_between(std::min(a.low, b.low), std::max(a.high, b.high));
  return floats_upto(std::max(a.most, b.most), std::min(a.grid, b.grid), std::max(a.error, b.error));
}

Bound add(DType t, const Bound &a, const Bound &b, bool subtract) {
  if (!is_float(t))
    return subtract ? wrapped(t, a.low - b.high, a.high - b.low) : wrapped(t, a.low + b.low, a.high + b.high);
  Bound r = rounded(t, floats_upto(a.most + b.most, std::min(a.grid, b.grid), a.error + b.error));
  r.terms = a.terms + b.terms;
  if (!r.exact()) r.error += 4 * r.terms * unit(t) * r.most;
  return r;
}

Bound multiply(DType t, const Bound &a, const Bound &b) {
  if (!is_float(t)) {
    double p[] = {a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high};
    return wrapped(t, *std::min_element(p, p + 4), *std::max_element(p, p + 4));
  }
  double error = a.error * b.most + b.error * a.most + a.error * b.error;
  return rounded(t, floats_upto(a.most * b.most, a.grid + b.grid, error));
}

Bound sum(DType t, DType wide, const Bound &a, double n) {
  if (!is_float(t)) return wrapped(t, std::min(a.low * n, a.low), std::max(a.high * n, a.high));
  Bound b = floats_upto(a.most * n, a.grid, a.error * n);
  Bound once = rounded(wide, b);
  // n roundings of partial sums on each side.
  if (!once.exact()) once.error = b.error + 2.5 * n * unit(wide) * (b.most + b.error) + 2 * n * 1e-37;
  once.most = b.most + once.error;
  return t == wide ? once : cast(wide, t, once);
}

Bound cast(DType from, DType to, const Bound &a) {
  if (is_float(from) && is_float(to)) {
    FloatFormat f = format_of(to);
    Bound b = a;
    b.most = std::min(a.most * (1 + unit(to)), std::max(f.largest, a.most * double(to != DType::E4M3)));
    b.grid = std::max(a.grid, f.quantum);
    if (!a.exact()) b.error = a.error + 2.5 * unit(to) * (a.most + a.error) + 2 * std::ldexp(1, f.quantum);
    return b; // rounding equal numbers gives equal numbers
  }
  if (is_float(to)) return floats_upto(std::max(std::fabs(a.low), std::fabs(a.high)) * (1 + unit(to)), 0);
  Range r = range_of(to);
  if (is_bool(to)) return integers_between(0, 1);
  if (is_float(from)) return integers_between(std::max(-a.most, r.low), std::min(a.most, r.high));
  return wrapped(to, a.low, a.high);
}

} // namespace tkc::fuzz
