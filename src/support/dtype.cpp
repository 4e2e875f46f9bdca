#include "support/dtype.h"
#include "support/check.h"
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

namespace tkc {

namespace {
struct Row {
  std::string_view name;
  int bits;
  DTypeKind kind;
  int exponent, mantissa;
};
constexpr Row kRows[] = {
#define TKC_DTYPE(name, text, bits, kind, exponent, mantissa) {text, bits, DTypeKind::kind, exponent, mantissa},
#include "support/dtype.def"
#undef TKC_DTYPE
};
constexpr const Row &row(DType t) { return kRows[int(t)]; }
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// e4m3 and ue4m3 give the top exponent to finite values and keep one code for NaN; e2m1 has neither NaN nor infinity.
struct Format {
  int mantissa, min_exponent; // exponent of the smallest normal number
  double largest;
  bool has_inf;
};
Format format(DType t) {
  switch (t) {
  case DType::F16: return {10, -14, 65504.0, true};
  case DType::BF16: return {7, -126, 0x1.fep127, true};
  case DType::TF32: return {10, -126, 0x1.ffcp127, true};
  case DType::F32: return {23, -126, 0x1.fffffep127, true};
  case DType::E4M3: return {3, -6, 448.0, false};
  case DType::UE4M3: return {3, -6, 448.0, false};
  case DType::E5M2: return {2, -14, 57344.0, true};
  case DType::E2M1: return {1, 0, 6.0, false};
  default: TKC_UNREACHABLE("no small float format for {}", row(t).name);
  }
}

// Rounds |x| to a multiple of the unit in the last place; `away` breaks ties away from zero instead of to even.
double round_magnitude(double x, const Format &f, bool away) {
  int e = std::max(std::ilogb(x), f.min_exponent);
  double unit = std::ldexp(1.0, e - f.mantissa), scaled = x / unit; // exact: a power of two
  return (away ? std::floor(scaled + 0.5) : std::nearbyint(scaled)) * unit;
}
} // namespace

std::string_view dtype_name(DType t) { return row(t).name; }
int64_t dtype_bits(DType t) { return row(t).bits; }
int64_t dtype_bytes(DType t) { return (row(t).bits + 7) / 8; }
DTypeKind dtype_kind(DType t) { return row(t).kind; }

std::optional<DType> parse_dtype(std::string_view name) {
  for (DType t : all_dtypes())
    if (row(t).name == name) return t;
  return std::nullopt;
}

const std::vector<DType> &all_dtypes() {
  static const std::vector<DType> all = {
#define TKC_DTYPE(name, ...) DType::name,
#include "support/dtype.def"
#undef TKC_DTYPE
  };
  return all;
}

double round_to(DType t, double x) {
  if (t == DType::F64) return x;
  if (t == DType::F32) return double(float(x));
  if (t == DType::UE8M0) {
    if (std::isnan(x) || x < 0) return kNan;
    if (x <= 0x1p-127) return 0x1p-127;
    if (x >= 0x1p127) return 0x1p127;
    int e;
    double m = std::frexp(x, &e);
    return m == 0.5 ? x : std::ldexp(1.0, e);
  }
  Format f = format(t);
  if (std::isnan(x)) return t == DType::E2M1 ? f.largest : x;
  bool saturates = t == DType::E4M3 || t == DType::E5M2 || t == DType::E2M1 || t == DType::UE4M3;
  if (t == DType::UE4M3 && x < 0) return 0.0;
  // Normal numbers, nearly all there are: round the mantissa in place, where a carry into the exponent is what it
  // should be.
  uint64_t bits = std::bit_cast<uint64_t>(x), sign = bits & (uint64_t(1) << 63);
  bits ^= sign;
  if (bits >= uint64_t(1023 + f.min_exponent) << 52 && bits < std::bit_cast<uint64_t>(f.largest)) {
    int drop = 52 - f.mantissa;
    bits += (uint64_t(1) << (drop - 1)) - 1 + (bits >> drop & 1);
    return std::bit_cast<double>((bits >> drop << drop) | sign);
  }
  if (x == 0) return x;
  double magnitude = std::fabs(x);
  if (!std::isinf(x)) magnitude = round_magnitude(magnitude, f, false);
  if (magnitude > f.largest) magnitude = saturates ? f.largest : kInf;
  return std::copysign(magnitude, x);
}

double round_tf32_rna(double x) {
  if (std::isnan(x) || std::isinf(x) || x == 0) return x;
  Format f = format(DType::TF32);
  double magnitude = round_magnitude(std::fabs(x), f, true);
  return std::copysign(magnitude > f.largest ? kInf : magnitude, x);
}

int64_t wrap_to(DType t, int64_t x) {
  switch (t) {
  case DType::Bool: return x != 0;
  case DType::I8: return int8_t(x);
  case DType::I16: return int16_t(x);
  case DType::I32: return int32_t(x);
  case DType::U8: return uint8_t(x);
  case DType::U16: return uint16_t(x);
  case DType::U32: return uint32_t(x);
  case DType::I64:
  case DType::U64: return x;
  default: TKC_UNREACHABLE("wrap_to({})", row(t).name);
  }
}

int64_t float_to_int(DType t, double x) {
  if (t == DType::Bool) return x != 0;
  if (std::isnan(x)) return 0;
  x = std::trunc(x);
  int bits = row(t).bits;
  if (row(t).kind == DTypeKind::Int) {
    double limit = std::ldexp(1.0, bits - 1);
    if (x >= limit) return bits == 64 ? std::numeric_limits<int64_t>::max() : (int64_t(1) << (bits - 1)) - 1;
    if (x < -limit) return bits == 64 ? std::numeric_limits<int64_t>::min() : -(int64_t(1) << (bits - 1));
    return int64_t(x);
  }
  double limit = std::ldexp(1.0, bits);
  if (x <= 0) return 0;
  if (x >= limit) return bits == 64 ? -1 : (int64_t(1) << bits) - 1;
  return int64_t(uint64_t(x));
}

uint64_t encode_float(DType t, double x) {
  if (t == DType::F64) return std::bit_cast<uint64_t>(x);
  if (t == DType::F32 || t == DType::TF32) return std::bit_cast<uint32_t>(float(x));
  if (t == DType::UE8M0) return std::isnan(x) ? 0xff : uint64_t(std::ilogb(x) + 127);
  const Row &r = row(t);
  uint64_t sign_shift = uint64_t(r.exponent + r.mantissa);
  uint64_t sign = t != DType::UE4M3 && std::signbit(x) ? uint64_t(1) << sign_shift : 0;
  uint64_t all_ones = (uint64_t(1) << sign_shift) - 1, exponent_mask = all_ones & ~((uint64_t(1) << r.mantissa) - 1);
  Format f = format(t);
  if (std::isnan(x)) {
    TKC_CHECK(t != DType::E2M1, "e2m1 has no NaN");
    return f.has_inf ? all_ones : sign | all_ones; // the canonical NaN of cvt: positive, all ones
  }
  double magnitude = std::fabs(x);
  if (std::isinf(x)) return sign | exponent_mask;
  if (magnitude == 0) return sign;
  int e = std::ilogb(magnitude);
  if (e < f.min_exponent) return sign | uint64_t(std::ldexp(magnitude, f.mantissa - f.min_exponent));
  uint64_t m = uint64_t(std::ldexp(magnitude, f.mantissa - e)) & ((uint64_t(1) << f.mantissa) - 1);
  return sign | uint64_t(e - f.min_exponent + 1) << f.mantissa | m;
}

double decode_float(DType t, uint64_t bits) {
  if (t == DType::F64) return std::bit_cast<double>(bits);
  if (t == DType::F32) return std::bit_cast<float>(uint32_t(bits));
  if (t == DType::TF32) return std::bit_cast<float>(uint32_t(bits) & 0xffffe000u);
  if (t == DType::UE8M0) return (bits & 0xff) == 0xff ? kNan : std::ldexp(1.0, int(bits & 0xff) - 127);
  const Row &r = row(t);
  Format f = format(t);
  uint64_t mantissa = bits & ((uint64_t(1) << r.mantissa) - 1);
  uint64_t exponent = bits >> r.mantissa & ((uint64_t(1) << r.exponent) - 1);
  bool negative = t != DType::UE4M3 && (bits >> (r.exponent + r.mantissa) & 1);
  uint64_t top = (uint64_t(1) << r.exponent) - 1;
  double magnitude;
  if (f.has_inf && exponent == top)
    magnitude = mantissa ? kNan : kInf;
  else if (t != DType::E2M1 && !f.has_inf && exponent == top && mantissa == (uint64_t(1) << r.mantissa) - 1)
    magnitude = kNan;
  else if (exponent == 0)
    magnitude = std::ldexp(double(mantissa), f.min_exponent - f.mantissa);
  else
    magnitude =
        std::ldexp(double(mantissa | uint64_t(1) << r.mantissa), int(exponent) - 1 + f.min_exponent - f.mantissa);
  return negative ? -magnitude : magnitude;
}

} // namespace tkc
