// cvt: between integers and floats of every width, with rounding, saturation and relu; pairs; the 8-, 6- and 4-bit
// float formats; cvt.pack.
#include "emu/families.h"
#include "emu/lanes.h"
#include "emu/number.h"
#include "support/dtype.h"
#include <algorithm>
#include <cfenv>

namespace tkc::emu {

namespace {
bool is_int(Type t) { return type_class(t) == TypeClass::Signed || type_class(t) == TypeClass::Unsigned; }
bool is_signed_type(Type t) { return type_class(t) == TypeClass::Signed; }

// ---- the general scalar conversion. How one instruction converts:
struct Convert {
  Type to, from;
  Rounding rounding = Rounding::Nearest;
  bool to_integral = false; // .rni .rzi .rmi .rpi
  bool ftz = false, sat = false, relu = false, satfinite = false;
};

double integral(double x, Rounding r) {
  switch (r) {
  case Rounding::Nearest: return std::nearbyint(x);
  case Rounding::NearestAway: return std::round(x);
  case Rounding::Zero: return std::trunc(x);
  case Rounding::Down: return std::floor(x);
  case Rounding::Up: return std::ceil(x);
  }
  return x;
}
// A 64-bit integer as a double rounded to odd: exact for every later rounding to 32 bits or less.
double odd_from_int(uint64_t bits, bool is_signed) {
  double high = is_signed ? double(int64_t(bits) >> 32) : double(bits >> 32);
  return odd_add(high * 0x1p32, double(uint32_t(bits)));
}
double f64_from_int(uint64_t bits, bool is_signed, Rounding r) {
  std::fesetround(r == Rounding::Zero   ? FE_TOWARDZERO
                  : r == Rounding::Down ? FE_DOWNWARD
                  : r == Rounding::Up   ? FE_UPWARD
                                        : FE_TONEAREST);
  volatile uint64_t in = bits; // volatile: converted here, in this mode
  volatile double out = is_signed ? double(int64_t(in)) : double(in);
  std::fesetround(FE_TONEAREST);
  return out;
}
uint64_t int_from_float(double x, const Convert &c) {
  int bits = type_bits(c.to);
  if (std::isnan(x)) return c.from != Type::F64 && bits < 64 ? 0 : uint64_t(1) << (bits - 1);
  x = integral(x, c.rounding);
  if (is_signed_type(c.to)) {
    double limit = std::ldexp(1.0, bits - 1);
    if (x >= limit) return (uint64_t(1) << (bits - 1)) - 1;
    if (x < -limit) return uint64_t(1) << (bits - 1);
    return uint64_t(int64_t(x));
  }
  if (x <= 0) return 0;
  if (x >= std::ldexp(1.0, bits)) return bits == 64 ? ~uint64_t(0) : (uint64_t(1) << bits) - 1;
  return uint64_t(x);
}
uint64_t int_from_int(uint64_t x, const Convert &c) {
  if (!c.sat) return x;
  int bits = type_bits(c.to);
  uint64_t most = is_signed_type(c.to) ? (uint64_t(1) << (bits - 1)) - 1
                  : bits == 64         ? ~uint64_t(0)
                                       : (uint64_t(1) << bits) - 1;
  bool negative = is_signed_type(c.from) && int64_t(x) < 0;
  if (!negative) return std::min(x, most);
  if (!is_signed_type(c.to)) return 0;
  return uint64_t(std::max(int64_t(x), -int64_t(most) - 1));
}
double float_value(Type t, uint64_t bits) {
  if (t == Type::F16) return half_to_float(uint16_t(bits));
  if (t == Type::BF16) return bfloat_to_float(uint16_t(bits));
  if (t == Type::F64) return std::bit_cast<double>(bits);
  return std::bit_cast<float>(uint32_t(bits));
}
uint64_t float_bits(double x, const Convert &c) {
  if (c.to == Type::F64) return std::bit_cast<uint64_t>(x);
  const SmallFormat &f = c.to == Type::F16    ? kHalfFormat
                         : c.to == Type::BF16 ? kBfloatFormat
                         : c.to == Type::TF32 ? kTf32Format
                                              : kFloatFormat;
  bool narrow = c.to == Type::F16 || c.to == Type::BF16;
  int unused = c.to == Type::TF32 ? 13 : 0; // tf32 is held in the upper bits of 32
  if (std::isnan(x)) return narrow ? kNan16 : kNan32;
  uint64_t code = round_code(x, f, c.rounding);
  uint64_t infinity = uint64_t(f.max_exponent - f.min_exponent + 2) << f.mantissa;
  if (c.satfinite && code == infinity) code--;
  return (code << unused) | (std::signbit(x) ? uint64_t(1) << (narrow ? 15 : 31) : 0);
}

uint64_t convert(uint64_t bits, const Convert &c) {
  int width = type_bits(c.from);
  if (is_int(c.from)) {
    if (width < 64)
      bits = is_signed_type(c.from) ? uint64_t(int64_t(bits << (64 - width)) >> (64 - width))
                                    : bits & ((uint64_t(1) << width) - 1);
    if (is_int(c.to)) return int_from_int(bits, c);
    if (c.to == Type::F64) return std::bit_cast<uint64_t>(f64_from_int(bits, is_signed_type(c.from), c.rounding));
    double x = odd_from_int(bits, is_signed_type(c.from));
    if (c.sat) x = std::fmin(std::fmax(x, 0.0), 1.0);
    return float_bits(x, c);
  }
  double x = float_value(c.from, bits);
  if (c.ftz && c.from == Type::F32) x = flush_subnormal(float(x));
  if (is_int(c.to)) return int_from_float(x, c);
  if (std::isnan(x) && !c.sat && !c.relu) { // where an H200 keeps sign and payload, as far as they fit
    if (c.to == Type::F32 && c.from == Type::BF16) return bits << 16;
    if (c.to == Type::F32 && c.from == Type::F64) return std::bit_cast<uint32_t>(float(x));
    if (c.to == Type::TF32 && c.rounding == Rounding::NearestAway) return bits & 0xffffe000;
  }
  if (c.to_integral) x = integral(x, c.rounding);
  if (c.sat) x = x > 0 ? std::fmin(x, 1.0) : 0.0; // NaN becomes +0
  if (c.relu && x < 0) x = 0.0;
  uint64_t r = float_bits(x, c);
  if (c.ftz && c.to == Type::F32) r = std::bit_cast<uint32_t>(flush_subnormal(std::bit_cast<float>(uint32_t(r))));
  if (c.relu && (r & ~(uint64_t(1) << (type_bits(c.to) - 1))) == 0) r = 0;
  return r;
}

// mode: to, from, rounding | to_integral << 4, flags (ftz sat relu satfinite), destination register bits, source 64-bit
void run_general(Warp &w, const Inst &i, uint32_t mask) {
  Convert c{Type(i.mode[0]),      Type(i.mode[1]),      Rounding(i.mode[2] & 15), (i.mode[2] >> 4) != 0,
            (i.mode[3] & 1) != 0, (i.mode[3] & 2) != 0, (i.mode[3] & 4) != 0,     (i.mode[3] & 8) != 0};
  int keep = type_bits(c.to), width = i.mode[4];
  each_lane(mask, [&](int l) {
    uint64_t in = i.mode[5] ? w.row<uint64_t>(i.a)[l] : w.row<uint32_t>(i.a)[l];
    uint64_t r = convert(in, c);
    if (keep < 64 && keep < width)
      r = is_signed_type(c.to) ? uint64_t(int64_t(r << (64 - keep)) >> (64 - keep)) : r & ((uint64_t(1) << keep) - 1);
    if (width == 64)
      w.row<uint64_t>(i.d)[l] = r;
    else
      w.row<uint32_t>(i.d)[l] = uint32_t(width == 32 ? r : r & ((uint64_t(1) << width) - 1));
  });
}
// The frequent ones.
uint64_t u64_from_u32(uint32_t x) { return x; }
int64_t s64_from_s32(int32_t x) { return x; }
uint32_t u32_from_u64(uint64_t x) { return uint32_t(x); }
float f32_from_bf16(Bfloat x) { return std::bit_cast<float>(uint32_t(x.bits) << 16); } // a NaN too, on an H200
float f32_from_f16(Half x) {
  float f = half_to_float(x.bits);
  return f != f ? std::bit_cast<float>(kNan32) : f;
}
Bfloat bf16_from_f32(float x) { return {to_bfloat(x)}; }
Half f16_from_f32(float x) { return {to_half(x)}; }
float f32_from_s32(int32_t x) { return float(x); }
float f32_from_u32(uint32_t x) { return float(x); }

// ---- pairs: d = {a (upper), b (lower)}
void run_pair(Warp &w, const Inst &i, uint32_t mask) {
  Type element = Type(i.mode[0]) == Type::BF16x2 ? Type::BF16 : Type::F16;
  Convert c{element, Type::F32, Rounding(i.mode[2]), false, false, false, (i.mode[3] & 4) != 0, (i.mode[3] & 8) != 0};
  uint32_t *d = w.row<uint32_t>(i.d);
  const uint32_t *a = w.row<uint32_t>(i.a), *b = w.row<uint32_t>(i.b);
  each_lane(mask, [&](int l) { d[l] = uint32_t(convert(a[l], c)) << 16 | uint32_t(convert(b[l], c)); });
}
uint32_t bf16x2_from_f32(float high, float low) { return uint32_t(to_bfloat(high)) << 16 | to_bfloat(low); }
uint32_t f16x2_from_f32(float high, float low) { return uint32_t(to_half(high)) << 16 | to_half(low); }

// ---- the formats of up to 8 bits
struct Tiny {
  Type pair;
  int bits; // of an element
  int mantissa, min_exponent;
  double largest;
  uint32_t nan;  // code, 0 = the format has none
  bool infinity; // top exponent holds infinity and NaN (e5m2)
};
constexpr Tiny kTiny[] = {
    {Type::E4M3x2, 8, 3, -6, 448, 0x7f, false}, {Type::E5M2x2, 8, 2, -14, 57344, 0x7f, true},
    {Type::E2M3x2, 6, 3, 0, 7.5, 0, false},     {Type::E3M2x2, 6, 2, -2, 28, 0, false},
    {Type::E2M1x2, 4, 1, 0, 6, 0, false},
};
const Tiny *find_tiny(Type t) {
  for (const Tiny &f : kTiny)
    if (f.pair == t) return &f;
  return nullptr;
}
uint32_t tiny_code(const Tiny &f, double x, bool relu) {
  if (std::isnan(x)) return f.nan ? f.nan : tiny_code(f, f.largest, false);
  if (relu && x < 0) x = 0;
  uint32_t sign = std::signbit(x) && !(relu && x == 0) ? uint32_t(1) << (f.bits - 1) : 0;
  SmallFormat small{f.mantissa, f.min_exponent, 127}; // no infinity in reach: saturation is by value
  uint32_t most = round_code(f.largest, small, Rounding::Nearest);
  return sign | std::min(round_code(std::fabs(x), small, Rounding::Nearest), most);
}
double tiny_value(const Tiny &f, uint32_t code) {
  uint32_t sign = code >> (f.bits - 1) & 1, magnitude = code & ((uint32_t(1) << (f.bits - 1)) - 1);
  uint32_t e = magnitude >> f.mantissa, m = magnitude & ((uint32_t(1) << f.mantissa) - 1);
  double x = e ? std::ldexp(double(m | uint32_t(1) << f.mantissa), int(e) - 1 + f.min_exponent - f.mantissa)
               : std::ldexp(double(m), f.min_exponent - f.mantissa);
  if (f.nan && !f.infinity && magnitude == f.nan) x = NAN;
  if (f.infinity && e == 31) x = m ? NAN : INFINITY;
  return sign ? -x : x;
}
// d = {a, b} (from f32) or from the halves of a (from f16x2)
void run_to_tiny(Warp &w, const Inst &i, uint32_t mask) {
  const Tiny &f = *find_tiny(Type(i.mode[0]));
  bool from_pair = Type(i.mode[1]) == Type::F16x2, relu = i.mode[3] & 4;
  int shift = f.bits == 4 ? 4 : 8;
  uint32_t *d = w.row<uint32_t>(i.d);
  const uint32_t *a = w.row<uint32_t>(i.a), *b = w.row<uint32_t>(i.b);
  each_lane(mask, [&](int l) {
    double high = from_pair ? half_to_float(uint16_t(a[l] >> 16)) : std::bit_cast<float>(a[l]);
    double low = from_pair ? half_to_float(uint16_t(a[l])) : std::bit_cast<float>(b[l]);
    d[l] = tiny_code(f, high, relu) << shift | tiny_code(f, low, relu);
  });
}
void run_from_tiny(Warp &w, const Inst &i, uint32_t mask) {
  const Tiny &f = *find_tiny(Type(i.mode[1]));
  bool relu = i.mode[3] & 4;
  int shift = f.bits == 4 ? 4 : 8;
  uint32_t *d = w.row<uint32_t>(i.d);
  const uint32_t *a = w.row<uint32_t>(i.a);
  each_lane(mask, [&](int l) {
    auto half = [&](uint32_t code) {
      double x = tiny_value(f, code & ((uint32_t(1) << f.bits) - 1));
      if (relu && x < 0) x = 0;
      uint16_t h = to_half(x);
      return relu && h == 0x8000 ? uint16_t(0) : h;
    };
    d[l] = uint32_t(half(a[l] >> shift)) << 16 | half(a[l]);
  });
}
// ue8m0: powers of two; NaN is 0xff
uint32_t scale_code(double x, bool up) {
  if (std::isnan(x)) return 0xff;
  x = std::fabs(x);
  if (x == 0) return 0;
  int e;
  double m = std::frexp(x, &e); // x = m * 2^e, m in [0.5, 1)
  int code = e - 1 + 127 + (up && m > 0.5 ? 1 : 0);
  return uint32_t(std::clamp(std::isinf(x) ? 254 : code, 0, 254));
}
void run_to_scale(Warp &w, const Inst &i, uint32_t mask) {
  bool up = Rounding(i.mode[2]) == Rounding::Up, pair = Type(i.mode[1]) == Type::BF16x2;
  uint32_t *d = w.row<uint32_t>(i.d);
  const uint32_t *a = w.row<uint32_t>(i.a), *b = w.row<uint32_t>(i.b);
  each_lane(mask, [&](int l) {
    double high = pair ? bfloat_to_float(uint16_t(a[l] >> 16)) : std::bit_cast<float>(a[l]);
    double low = pair ? bfloat_to_float(uint16_t(a[l])) : std::bit_cast<float>(b[l]);
    d[l] = scale_code(high, up) << 8 | scale_code(low, up);
  });
}
void run_from_scale(Warp &w, const Inst &i, uint32_t mask) {
  uint32_t *d = w.row<uint32_t>(i.d);
  const uint32_t *a = w.row<uint32_t>(i.a);
  each_lane(mask, [&](int l) {
    auto bf16 = [](uint32_t code) { return code == 0xff ? kNan16 : to_bfloat(std::ldexp(1.0, int(code) - 127)); };
    d[l] = uint32_t(bf16(a[l] >> 8 & 0xff)) << 16 | bf16(a[l] & 0xff);
  });
}

// ---- cvt.pack: saturates a and b to mode[0] bits, appends them above c (or to zero)
void run_pack(Warp &w, const Inst &i, uint32_t mask) {
  Type to = Type(i.mode[0]);
  int bits = type_bits(to);
  int64_t least = is_signed_type(to) ? -(int64_t(1) << (bits - 1)) : 0;
  int64_t most = is_signed_type(to) ? (int64_t(1) << (bits - 1)) - 1 : (int64_t(1) << bits) - 1;
  uint64_t field = (uint64_t(1) << bits) - 1;
  uint32_t *d = w.row<uint32_t>(i.d);
  const uint32_t *a = w.row<uint32_t>(i.a), *b = w.row<uint32_t>(i.b), *c = w.row<uint32_t>(i.c);
  each_lane(mask, [&](int l) {
    uint64_t upper = uint64_t(std::clamp<int64_t>(int32_t(a[l]), least, most)) & field;
    uint64_t lower = uint64_t(std::clamp<int64_t>(int32_t(b[l]), least, most)) & field;
    uint64_t r = upper << bits | lower;
    if (i.mode[1]) r |= uint64_t(c[l]) << (2 * bits);
    d[l] = uint32_t(r);
  });
}
void decode_pack(Decoder &d) {
  d.take("pack");
  if (!d.take("sat")) d.fail(".sat is missing");
  Type to = d.take_type(), from = d.take_type();
  std::optional<Type> c = d.maybe_type();
  bool needs_c = type_bits(to) < 16;
  if (from != Type::S32 || !is_int(to) || type_bits(to) > 16 || needs_c != c.has_value() || (c && *c != Type::B32))
    return d.unsupported();
  d.need_operands(c ? 4 : 3);
  d.out.d = d.destination(0, Type::B32), d.out.a = d.source(1, Type::B32), d.out.b = d.source(2, Type::B32);
  d.out.c = c ? d.source(3, Type::B32) : d.out.a;
  d.out.mode[0] = uint8_t(to), d.out.mode[1] = c.has_value();
  d.out.run = run_pack;
}

bool is_scalar_float(Type t) {
  return t == Type::F16 || t == Type::BF16 || t == Type::F32 || t == Type::F64 || t == Type::TF32;
}

void decode(Decoder &d) {
  if (d.has("pack")) return decode_pack(d);
  std::string_view r = d.take_any({"rn", "rz", "rm", "rp", "rna", "rni", "rzi", "rmi", "rpi"});
  bool ftz = d.take("ftz"), sat = d.take("sat"), relu = d.take("relu"), satfinite = d.take("satfinite");
  Type to = d.take_type(), from = d.take_type();
  if (d.failed()) return;
  Rounding rounding = r.starts_with("rna")  ? Rounding::NearestAway
                      : r.starts_with("rz") ? Rounding::Zero
                      : r.starts_with("rm") ? Rounding::Down
                      : r.starts_with("rp") ? Rounding::Up
                                            : Rounding::Nearest;
  bool integral_mode = r.size() == 3 && r != "rna";
  d.out.mode = {uint8_t(to),
                uint8_t(from),
                uint8_t(uint8_t(rounding) | uint8_t(integral_mode) << 4),
                uint8_t(ftz | sat << 1 | relu << 2 | satfinite << 3),
                0,
                0};

  bool pair = to == Type::F16x2 || to == Type::BF16x2;
  if (pair && from == Type::F32) {
    if ((r != "rn" && r != "rz") || ftz || sat) return d.unsupported();
    d.need_operands(3);
    d.out.d = d.destination(0, to), d.out.a = d.source(1, from), d.out.b = d.source(2, from);
    d.out.run = run_pair;
    if (r == "rn" && !relu && !satfinite)
      d.out.run = to == Type::BF16x2 ? lanewise<&bf16x2_from_f32> : lanewise<&f16x2_from_f32>;
    return;
  }
  if (find_tiny(to)) {
    bool from_half = from == Type::F16x2;
    if (r != "rn" || !satfinite || ftz || sat || (from != Type::F32 && !from_half)) return d.unsupported();
    if (from_half && to != Type::E4M3x2 && to != Type::E5M2x2) return d.unsupported();
    d.need_operands(from_half ? 2 : 3);
    d.out.d = d.destination(0, to), d.out.a = d.source(1, from), d.out.b = from_half ? d.out.a : d.source(2, from);
    d.out.run = run_to_tiny;
    return;
  }
  if (find_tiny(from)) {
    if (r != "rn" || to != Type::F16x2 || ftz || sat || satfinite) return d.unsupported();
    d.need_operands(2);
    d.out.d = d.destination(0, to), d.out.a = d.source(1, from);
    d.out.run = run_from_tiny;
    return;
  }
  if (to == Type::UE8M0x2) {
    bool from_pair = from == Type::BF16x2;
    if ((r != "rz" && r != "rp") || ftz || sat || relu || (from != Type::F32 && !from_pair)) return d.unsupported();
    d.need_operands(from_pair ? 2 : 3);
    d.out.d = d.destination(0, to), d.out.a = d.source(1, from), d.out.b = from_pair ? d.out.a : d.source(2, from);
    d.out.run = run_to_scale;
    return;
  }
  if (from == Type::UE8M0x2) {
    if (r != "rn" || to != Type::BF16x2 || ftz || sat || relu || satfinite) return d.unsupported();
    d.need_operands(2);
    d.out.d = d.destination(0, to), d.out.a = d.source(1, from);
    d.out.run = run_from_scale;
    return;
  }

  bool int_to = is_int(to), int_from = is_int(from);
  if ((!int_to && !is_scalar_float(to)) || (!int_from && !is_scalar_float(from)) || from == Type::TF32)
    return d.unsupported();
  d.need_operands(2);
  // Which roundings a pair of types takes.
  bool narrows = !int_to && (int_from || type_bits(to) < type_bits(from) || to == Type::TF32 ||
                             (type_bits(to) == 16 && type_bits(from) == 16 && to != from));
  bool ok = int_to && int_from ? r.empty()
            : int_to           ? integral_mode
            : narrows          ? !r.empty() && !integral_mode && (r != "rna" || to == Type::TF32)
                               : r.empty() || (integral_mode && to == from);
  if (!ok) return d.fail("this rounding does not fit the types");
  if (ftz && from != Type::F32 && to != Type::F32) d.unsupported();
  if ((relu || satfinite) && (from != Type::F32 || (to != Type::F16 && to != Type::BF16 && to != Type::TF32)))
    d.unsupported();
  if (to == Type::TF32 && from != Type::F32) d.unsupported();
  if (sat && (to == Type::BF16 || to == Type::TF32)) d.unsupported();
  d.out.d = d.destination(d.operand(0), to, true), d.out.a = d.source(d.operand(1), from, true);
  int to_bits = d.register_bits(d.operand(0)), from_bits = d.register_bits(d.operand(1));
  if (!int_to && to_bits != type_bits(to) && to_bits != 0)
    d.fail("the destination has {} bits, .{} needs {}", to_bits, type_name(to), type_bits(to));
  if (!int_from && from_bits != type_bits(from) && from_bits != 0)
    d.fail("the source has {} bits, .{} needs {}", from_bits, type_name(from), type_bits(from));
  if (d.operand(1).kind != PtxOperand::Kind::Register) from_bits = type_bits(from) > 32 ? 64 : 32;
  d.out.mode[4] = uint8_t(to_bits ? to_bits : type_bits(to)), d.out.mode[5] = from_bits == 64;
  d.out.run = run_general;
  bool plain = !ftz && !sat && !relu && !satfinite;
  if (!plain) return;
  if (to == Type::U64 && from == Type::U32 && to_bits == 64 && from_bits == 32) d.out.run = lanewise<&u64_from_u32>;
  if (to == Type::S64 && from == Type::S32 && to_bits == 64 && from_bits == 32) d.out.run = lanewise<&s64_from_s32>;
  if (to == Type::U32 && from == Type::U64 && to_bits == 32 && from_bits == 64) d.out.run = lanewise<&u32_from_u64>;
  if (to == Type::F32 && from == Type::BF16) d.out.run = lanewise<&f32_from_bf16>;
  if (to == Type::F32 && from == Type::F16) d.out.run = lanewise<&f32_from_f16>;
  if (r != "rn") return;
  if (to == Type::BF16 && from == Type::F32) d.out.run = lanewise<&bf16_from_f32>;
  if (to == Type::F16 && from == Type::F32) d.out.run = lanewise<&f16_from_f32>;
  if (to == Type::F32 && from == Type::S32 && from_bits == 32) d.out.run = lanewise<&f32_from_s32>;
  if (to == Type::F32 && from == Type::U32 && from_bits == 32) d.out.run = lanewise<&f32_from_u32>;
}
} // namespace

void register_convert(DecodeTable &t) { t.push_back({"cvt", decode, any_type}); }

} // namespace tkc::emu
