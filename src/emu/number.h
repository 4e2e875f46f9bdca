// Rounding, faster than support/dtype.h and with every rounding mode of PTX; the tests compare the two.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>

namespace tkc::emu {

enum class Rounding : uint8_t { Nearest, Zero, Down, Up, NearestAway };

constexpr uint32_t kNan32 = 0x7fffffff; // the NaN that single-precision instructions return
constexpr uint16_t kNan16 = 0x7fff;

// A binary format with an infinity: IEEE-like, `mantissa` stored bits, smallest normal exponent, largest exponent.
struct SmallFormat {
  int mantissa, min_exponent, max_exponent;
};
constexpr SmallFormat kHalfFormat = {10, -14, 15}, kBfloatFormat = {7, -126, 127}, kTf32Format = {10, -126, 127},
                      kFloatFormat = {23, -126, 127};

// The code (without sign) of |x| rounded to the format; overflow gives the code of infinity or, by the mode, of the
// largest finite number. x is not NaN.
inline uint32_t round_code(double x, const SmallFormat &f, Rounding mode) {
  uint64_t bits = std::bit_cast<uint64_t>(x);
  bool negative = bits >> 63;
  uint32_t infinity = uint32_t(f.max_exponent - f.min_exponent + 2) << f.mantissa;
  int e = int(bits >> 52 & 0x7ff) - 1023;
  if (e == 1024) return infinity;
  if (e == -1023) { // zero, or far below every format
    bool up = (bits << 1) != 0 && (negative ? mode == Rounding::Down : mode == Rounding::Up);
    return up ? 1 : 0;
  }
  uint64_t m = (bits & ((uint64_t(1) << 52) - 1)) | uint64_t(1) << 52;
  int shift = 52 - f.mantissa + (e < f.min_exponent ? f.min_exponent - e : 0);
  uint64_t kept, rest, half;
  if (shift > 60)
    kept = 0, rest = 1, half = 2; // less than half a unit
  else
    kept = m >> shift, rest = m & ((uint64_t(1) << shift) - 1), half = uint64_t(1) << (shift - 1);
  bool up = false;
  switch (mode) {
  case Rounding::Nearest: up = rest > half || (rest == half && (kept & 1)); break;
  case Rounding::NearestAway: up = rest >= half; break;
  case Rounding::Zero: break;
  case Rounding::Down: up = negative && rest; break;
  case Rounding::Up: up = !negative && rest; break;
  }
  uint64_t code = kept + up;
  if (e >= f.min_exponent) code += (uint64_t(e - f.min_exponent) << f.mantissa);
  if (code < infinity) return uint32_t(code);
  bool to_infinity =
      mode == Rounding::Nearest || mode == Rounding::NearestAway || mode == (negative ? Rounding::Down : Rounding::Up);
  return to_infinity ? infinity : infinity - 1;
}

inline float bfloat_to_float(uint16_t bits) { return std::bit_cast<float>(uint32_t(bits) << 16); }
inline float half_to_float(uint16_t bits) {
  uint32_t sign = uint32_t(bits & 0x8000) << 16, e = bits >> 10 & 31, m = bits & 0x3ff;
  if (e == 31) return std::bit_cast<float>(sign | 0x7f800000u | m << 13);
  if (e) return std::bit_cast<float>(sign | (e + 112) << 23 | m << 13);
  float tiny = float(m) * 0x1p-24f;
  return sign ? -tiny : tiny;
}
inline uint16_t to_half(double x, Rounding mode = Rounding::Nearest) {
  if (std::isnan(x)) return kNan16;
  return uint16_t(round_code(x, kHalfFormat, mode) | (std::signbit(x) ? 0x8000 : 0));
}
inline uint16_t to_bfloat(double x, Rounding mode = Rounding::Nearest) {
  if (std::isnan(x)) return kNan16;
  return uint16_t(round_code(x, kBfloatFormat, mode) | (std::signbit(x) ? 0x8000 : 0));
}
inline float to_float(double x, Rounding mode) {
  if (mode == Rounding::Nearest) return float(x);
  if (std::isnan(x)) return std::bit_cast<float>(kNan32);
  return std::bit_cast<float>(round_code(x, kFloatFormat, mode) | (std::signbit(x) ? 0x80000000u : 0));
}

inline float flush_subnormal(float x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; }

// Sums, products and quotients of doubles rounded to odd: exact, or the neighbour with an odd last bit. Rounding such a
// value again, to a format with at least two bits less, gives what rounding the exact result once would.
inline double make_odd(double rounded, double error) {
  if (error == 0 || !std::isfinite(rounded)) return rounded;
  uint64_t bits = std::bit_cast<uint64_t>(rounded);
  if (bits & 1) return rounded;
  bool grow = (error > 0) == (rounded > 0);
  return std::bit_cast<double>(grow ? bits + 1 : bits - 1);
}
inline double odd_add(double a, double b) {
  double s = a + b;
  double t = s - a;
  double error = (a - (s - t)) + (b - t);
  return std::isfinite(error) ? make_odd(s, error) : s;
}
inline double odd_divide(double a, double b) {
  double q = a / b;
  if (!std::isfinite(q) || q == 0) return q;
  double r = std::fma(-q, b, a); // the sign of the exact rest
  return make_odd(q, b > 0 ? r : -r);
}
inline double odd_sqrt(double a) {
  double s = std::sqrt(a);
  if (!std::isfinite(s) || s == 0) return s;
  return make_odd(s, std::fma(-s, s, a));
}

} // namespace tkc::emu
