// Integer arithmetic: add, sub, mul, mad (with carry and wide forms), div, rem, abs, neg, min, max, sad, dp4a, dp2a.
#include "emu/families.h"
#include "emu/lanes.h"
#include <algorithm>
#include <limits>

namespace tkc::emu {

namespace {
__extension__ typedef __int128 Int128;
__extension__ typedef unsigned __int128 UInt128;

template <typename T> using Unsigned = std::make_unsigned_t<T>;
template <typename T> struct WideOf;
template <> struct WideOf<uint16_t> { using type = uint32_t; };
template <> struct WideOf<int16_t> { using type = int32_t; };
template <> struct WideOf<uint32_t> { using type = uint64_t; };
template <> struct WideOf<int32_t> { using type = int64_t; };
template <typename T> using Wide = typename WideOf<T>::type;

// All arithmetic wraps; it is done unsigned (and in at least 32 bits) to be defined.
template <typename T> T add(T a, T b) { return T(uint64_t(a) + uint64_t(b)); }
template <typename T> T sub(T a, T b) { return T(uint64_t(a) - uint64_t(b)); }
template <typename T> T mul_lo(T a, T b) { return T(uint64_t(a) * uint64_t(b)); }
template <typename T> T mul_hi(T a, T b) { return T((UInt128(Int128(a)) * UInt128(Int128(b))) >> (8 * sizeof(T))); }
template <typename T> T mad_lo(T a, T b, T c) { return T(uint64_t(a) * uint64_t(b) + uint64_t(c)); }
template <typename T> T mad_hi(T a, T b, T c) { return add(mul_hi(a, b), c); }
template <typename T> Wide<T> mul_wide(T a, T b) { return Wide<T>(uint64_t(int64_t(a) * int64_t(b))); }
template <> uint64_t mul_wide(uint32_t a, uint32_t b) { return uint64_t(a) * b; }
template <typename T> Wide<T> mad_wide(T a, T b, Wide<T> c) { return add(mul_wide(a, b), c); }
int32_t clamp32(int64_t x) {
  return int32_t(std::clamp<int64_t>(x, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()));
}
int32_t add_sat(int32_t a, int32_t b) { return clamp32(int64_t(a) + b); }
int32_t sub_sat(int32_t a, int32_t b) { return clamp32(int64_t(a) - b); }
int32_t mad_hi_sat(int32_t a, int32_t b, int32_t c) { return clamp32(int64_t(mul_hi(a, b)) + c); }
// Bits 47..16 (hi) or 31..0 (lo) of the product of the low 24 bits.
template <typename T> int64_t product24(T a, T b) {
  auto low = [](T x) {
    return std::is_signed_v<T> ? int64_t(int32_t(uint32_t(x) << 8) >> 8) : int64_t(uint32_t(x) & 0xffffff);
  };
  return low(a) * low(b);
}
template <typename T> T mul24_lo(T a, T b) { return T(product24(a, b)); }
template <typename T> T mul24_hi(T a, T b) { return T(product24(a, b) >> 16); }
template <typename T> T mad24_lo(T a, T b, T c) { return add(mul24_lo(a, b), c); }
template <typename T> T mad24_hi(T a, T b, T c) { return add(mul24_hi(a, b), c); }
// Division by zero gives all ones and the dividend as remainder, as the hardware does; the manual leaves it open.
template <typename T> T divide(T a, T b) {
  if (b == 0) return T(~T(0));
  if (std::is_signed_v<T> && b == T(-1)) return T(0 - uint64_t(a));
  return T(a / b);
}
template <typename T> T remainder(T a, T b) {
  if (b == 0) return a;
  if (std::is_signed_v<T> && b == T(-1)) return 0;
  return T(a % b);
}
template <typename T> T negate(T a) { return T(0 - uint64_t(a)); }
template <typename T> T absolute(T a) { return a < 0 ? negate(a) : a; }
template <typename T> T minimum(T a, T b) { return a < b ? a : b; }
template <typename T> T maximum(T a, T b) { return a < b ? b : a; }
int32_t min_relu(int32_t a, int32_t b) { return std::max(std::min(a, b), 0); }
int32_t max_relu(int32_t a, int32_t b) { return std::max(std::max(a, b), 0); }
template <typename T> T sad(T a, T b, T c) {
  return T(uint64_t(c) + (a < b ? uint64_t(b) - uint64_t(a) : uint64_t(a) - uint64_t(b)));
}

template <bool SignedA, bool SignedB> uint32_t dp4a(uint32_t a, uint32_t b, uint32_t c) {
  for (int k = 0; k < 32; k += 8) {
    int32_t x = SignedA ? int8_t(a >> k) : uint8_t(a >> k), y = SignedB ? int8_t(b >> k) : uint8_t(b >> k);
    c += uint32_t(x * y);
  }
  return c;
}
template <bool SignedA, bool SignedB, bool High> uint32_t dp2a(uint32_t a, uint32_t b, uint32_t c) {
  for (int k = 0; k < 2; k++) {
    int shift = 8 * (k + (High ? 2 : 0));
    int32_t x = SignedA ? int16_t(a >> 16 * k) : uint16_t(a >> 16 * k),
            y = SignedB ? int8_t(b >> shift) : uint8_t(b >> shift);
    c += uint32_t(x * y);
  }
  return c;
}

// ---- carry chains: CC.CF is a lane mask of the warp. mode[0]: reads it, mode[1]: writes it.
template <typename T, bool Subtract> void add_carry(Warp &w, const Inst &i, uint32_t mask) {
  using Row = typename Lane<T>::Row;
  each_lane(mask, [&](int l) {
    T a = T(w.row<Row>(i.a)[l]), b = T(w.row<Row>(i.b)[l]);
    T in = T(i.mode[0] ? w.carry >> l & 1 : 0);
    T result = Subtract ? T(a - b - in) : T(a + b + in);
    bool carry = Subtract ? a < b || (in && a == b) : result < a || (in && result == a);
    w.row<Row>(i.d)[l] = result;
    if (i.mode[1]) w.carry = (w.carry & ~(uint32_t(1) << l)) | uint32_t(carry) << l;
  });
}
template <typename T, bool High> void mad_carry(Warp &w, const Inst &i, uint32_t mask) {
  using Row = typename Lane<T>::Row;
  using U = Unsigned<T>;
  each_lane(mask, [&](int l) {
    T a = T(w.row<Row>(i.a)[l]), b = T(w.row<Row>(i.b)[l]);
    U product = U(High ? mul_hi(a, b) : mul_lo(a, b)), c = U(w.row<Row>(i.c)[l]);
    U in = U(i.mode[0] ? w.carry >> l & 1 : 0), result = U(product + c + in);
    bool carry = result < product || (in && result == product);
    w.row<Row>(i.d)[l] = result;
    if (i.mode[1]) w.carry = (w.carry & ~(uint32_t(1) << l)) | uint32_t(carry) << l;
  });
}

// ---- decoding
void operands_dab(Decoder &d, Type t) {
  d.need_operands(3);
  d.out.d = d.destination(0, t), d.out.a = d.source(1, t), d.out.b = d.source(2, t);
}
void operands_dabc(Decoder &d, Type t) {
  d.need_operands(4);
  d.out.d = d.destination(0, t), d.out.a = d.source(1, t), d.out.b = d.source(2, t), d.out.c = d.source(3, t);
}

template <bool Subtract, bool With> void decode_add(Decoder &d) {
  bool cc = d.take("cc"), sat = d.take("sat");
  Type t = d.take_type();
  operands_dab(d, t);
  d.out.mode[0] = With, d.out.mode[1] = cc;
  if (sat && (t != Type::S32 || cc || With)) d.unsupported();
  if (cc || With) {
    if (type_bits(t) == 32)
      d.out.run = add_carry<uint32_t, Subtract>;
    else if (type_bits(t) == 64)
      d.out.run = add_carry<uint64_t, Subtract>;
    else
      d.unsupported();
    return;
  }
  if (sat)
    d.out.run = Subtract ? lanewise<&sub_sat> : lanewise<&add_sat>;
  else
    d.out.run = for_integer(d, t, []<typename T>() { return Subtract ? lanewise<&sub<T>> : lanewise<&add<T>>; });
}

void decode_mul(Decoder &d) {
  std::string_view part = d.take_any({"lo", "hi", "wide"});
  Type t = d.take_type();
  if (part.empty()) d.fail("one of .lo, .hi, .wide is missing");
  if (part != "wide") {
    operands_dab(d, t);
    d.out.run =
        for_integer(d, t, [&]<typename T>() { return part == "lo" ? lanewise<&mul_lo<T>> : lanewise<&mul_hi<T>>; });
    return;
  }
  d.need_operands(3);
  Type result = type_bits(t) == 16 ? Type::B32 : Type::B64;
  d.out.d = d.destination(0, result), d.out.a = d.source(1, t), d.out.b = d.source(2, t);
  d.out.run = for_integer(d, t, [&]<typename T>() -> Handler {
    if constexpr (sizeof(T) < 8) return lanewise<&mul_wide<T>>;
    return d.unsupported(), nullptr;
  });
}

template <bool With> void decode_mad(Decoder &d) {
  std::string_view part = d.take_any({"lo", "hi", "wide"});
  bool cc = d.take("cc"), sat = d.take("sat");
  Type t = d.take_type();
  if (part.empty()) d.fail("one of .lo, .hi, .wide is missing");
  if (sat && (t != Type::S32 || part != "hi" || cc || With)) d.unsupported();
  if (part == "wide") {
    if (cc || With) d.unsupported();
    d.need_operands(4);
    Type wide = type_bits(t) == 16 ? Type::B32 : Type::B64;
    d.out.d = d.destination(0, wide), d.out.a = d.source(1, t), d.out.b = d.source(2, t), d.out.c = d.source(3, wide);
    d.out.run = for_integer(d, t, [&]<typename T>() -> Handler {
      if constexpr (sizeof(T) < 8) return lanewise<&mad_wide<T>>;
      return d.unsupported(), nullptr;
    });
    return;
  }
  operands_dabc(d, t);
  d.out.mode[0] = With, d.out.mode[1] = cc;
  bool high = part == "hi";
  d.out.run = for_integer(d, t, [&]<typename T>() -> Handler {
    if (cc || With) return high ? mad_carry<T, true> : mad_carry<T, false>;
    return high ? lanewise<&mad_hi<T>> : lanewise<&mad_lo<T>>;
  });
  if (sat) d.out.run = lanewise<&mad_hi_sat>;
}

void decode_mul24(Decoder &d) {
  bool high = d.take("hi");
  if (!high && !d.take("lo")) d.fail("one of .lo, .hi is missing");
  Type t = d.take_type();
  operands_dab(d, t);
  if (t == Type::U32)
    d.out.run = high ? lanewise<&mul24_hi<uint32_t>> : lanewise<&mul24_lo<uint32_t>>;
  else if (t == Type::S32)
    d.out.run = high ? lanewise<&mul24_hi<int32_t>> : lanewise<&mul24_lo<int32_t>>;
  else
    d.unsupported();
}
void decode_mad24(Decoder &d) {
  bool high = d.take("hi");
  if (!high && !d.take("lo")) d.fail("one of .lo, .hi is missing");
  Type t = d.take_type();
  operands_dabc(d, t);
  if (t == Type::U32)
    d.out.run = high ? lanewise<&mad24_hi<uint32_t>> : lanewise<&mad24_lo<uint32_t>>;
  else if (t == Type::S32)
    d.out.run = high ? lanewise<&mad24_hi<int32_t>> : lanewise<&mad24_lo<int32_t>>;
  else
    d.unsupported();
}

#define TKC_BINARY(name, function)                                                                                     \
  void name(Decoder &d) {                                                                                              \
    Type t = d.take_type();                                                                                            \
    operands_dab(d, t);                                                                                                \
    d.out.run = for_integer(d, t, []<typename T>() { return lanewise<&function<T>>; });                                \
  }
TKC_BINARY(decode_div, divide)
TKC_BINARY(decode_rem, remainder)
#undef TKC_BINARY

template <bool Max> void decode_min_max(Decoder &d) {
  bool relu = d.take("relu");
  Type t = d.take_type();
  operands_dab(d, t);
  d.out.run = for_integer(d, t, []<typename T>() { return Max ? lanewise<&maximum<T>> : lanewise<&minimum<T>>; });
  if (relu && t != Type::S32) d.unsupported();
  if (relu) d.out.run = Max ? lanewise<&max_relu> : lanewise<&min_relu>;
}
template <bool Negate> void decode_unary(Decoder &d) {
  Type t = d.take_type();
  d.need_operands(2);
  d.out.d = d.destination(0, t), d.out.a = d.source(1, t);
  if (type_class(t) != TypeClass::Signed) d.unsupported();
  d.out.run = for_integer(d, t, []<typename T>() { return Negate ? lanewise<&negate<T>> : lanewise<&absolute<T>>; });
}
void decode_sad(Decoder &d) {
  Type t = d.take_type();
  operands_dabc(d, t);
  d.out.run = for_integer(d, t, []<typename T>() { return lanewise<&sad<T>>; });
}
// dp4a.atype.btype, dp2a.{lo,hi}.atype.btype
bool take_signs(Decoder &d, bool &a, bool &b) {
  Type ta = d.take_type(), tb = d.take_type();
  operands_dabc(d, Type::B32);
  a = ta == Type::S32, b = tb == Type::S32;
  if ((ta != Type::S32 && ta != Type::U32) || (tb != Type::S32 && tb != Type::U32)) d.unsupported();
  return !d.failed();
}
void decode_dp4a(Decoder &d) {
  bool a, b;
  if (!take_signs(d, a, b)) return;
  d.out.run = a ? (b ? lanewise<&dp4a<true, true>> : lanewise<&dp4a<true, false>>)
                : (b ? lanewise<&dp4a<false, true>> : lanewise<&dp4a<false, false>>);
}
void decode_dp2a(Decoder &d) {
  bool high = d.take("hi"), a, b;
  if (!high && !d.take("lo")) d.fail("one of .lo, .hi is missing");
  if (!take_signs(d, a, b)) return;
  if (high)
    d.out.run = a ? (b ? lanewise<&dp2a<true, true, true>> : lanewise<&dp2a<true, false, true>>)
                  : (b ? lanewise<&dp2a<false, true, true>> : lanewise<&dp2a<false, false, true>>);
  else
    d.out.run = a ? (b ? lanewise<&dp2a<true, true, false>> : lanewise<&dp2a<true, false, false>>)
                  : (b ? lanewise<&dp2a<false, true, false>> : lanewise<&dp2a<false, false, false>>);
}
} // namespace

void register_integer(DecodeTable &t) {
  t.insert(t.end(), {
                        {"add", decode_add<false, false>, scalar_integer_type},
                        {"addc", decode_add<false, true>, scalar_integer_type},
                        {"sub", decode_add<true, false>, scalar_integer_type},
                        {"subc", decode_add<true, true>, scalar_integer_type},
                        {"mul", decode_mul, scalar_integer_type},
                        {"mad", decode_mad<false>, scalar_integer_type},
                        {"madc", decode_mad<true>, scalar_integer_type},
                        {"mul24", decode_mul24, scalar_integer_type},
                        {"mad24", decode_mad24, scalar_integer_type},
                        {"div", decode_div, scalar_integer_type},
                        {"rem", decode_rem, scalar_integer_type},
                        {"min", decode_min_max<false>, scalar_integer_type},
                        {"max", decode_min_max<true>, scalar_integer_type},
                        {"neg", decode_unary<true>, scalar_integer_type},
                        {"abs", decode_unary<false>, scalar_integer_type},
                        {"sad", decode_sad, scalar_integer_type},
                        {"dp4a", decode_dp4a, scalar_integer_type},
                        {"dp2a", decode_dp2a, scalar_integer_type},
                    });
}

} // namespace tkc::emu
