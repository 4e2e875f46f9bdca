// Bits and choices: and or xor not cnot lop3, shifts and funnel shifts, popc clz bfind brev bfe bfi fns bmsk szext
// prmt, setp set selp slct, and logic on predicates.
#include "emu/families.h"
#include "emu/lanes.h"
#include "emu/number.h"
#include <algorithm>
#include <cmath>

namespace tkc::emu {

namespace {
template <typename T> T bit_and(T a, T b) { return a & b; }
template <typename T> T bit_or(T a, T b) { return a | b; }
template <typename T> T bit_xor(T a, T b) { return a ^ b; }
template <typename T> T bit_not(T a) { return T(~a); }
template <typename T> T logical_not(T a) { return a == 0; }
// Shift amounts are unsigned and clamp at the width.
template <typename T> T shift_left(T a, uint32_t n) { return n >= 8 * sizeof(T) ? T(0) : T(a << n); }
template <typename T> T shift_right(T a, uint32_t n) {
  if (n >= 8 * sizeof(T)) return a < 0 ? T(-1) : T(0);
  return T(a >> n);
}
template <bool Left, bool Wrap> uint32_t funnel(uint32_t low, uint32_t high, uint32_t n) {
  n = Wrap ? n & 31 : std::min(n, uint32_t(32));
  uint64_t both = uint64_t(high) << 32 | low;
  return Left ? uint32_t((both << n) >> 32) : uint32_t(both >> n);
}
uint32_t popc32(uint32_t a) { return uint32_t(std::popcount(a)); }
uint32_t popc64(uint64_t a) { return uint32_t(std::popcount(a)); }
uint32_t clz32(uint32_t a) { return uint32_t(std::countl_zero(a)); }
uint32_t clz64(uint64_t a) { return uint32_t(std::countl_zero(a)); }
template <typename T, bool ShiftAmount> uint32_t bfind(T a) {
  std::make_unsigned_t<T> bits = std::make_unsigned_t<T>(a < 0 ? ~a : a);
  if (!bits) return ~uint32_t(0);
  int at = std::bit_width(bits) - 1;
  return uint32_t(ShiftAmount ? int(8 * sizeof(T)) - 1 - at : at);
}
template <typename T> T reverse(T a) {
  T r = 0;
  for (size_t k = 0; k < 8 * sizeof(T); k++) r = T(r << 1 | (a >> k & 1));
  return r;
}
template <typename T> T bfe(T a, uint32_t at, uint32_t length) {
  at &= 0xff, length &= 0xff;
  uint32_t width = 8 * sizeof(T);
  if (length == 0) return 0;
  bool sign = std::is_signed_v<T> && (a >> std::min(at + length - 1, width - 1) & 1);
  std::make_unsigned_t<T> r = 0, u = std::make_unsigned_t<T>(a);
  for (uint32_t k = 0; k < width; k++) {
    bool bit = k < length && at + k < width ? u >> (at + k) & 1 : sign;
    r |= std::make_unsigned_t<T>(bit) << k;
  }
  return T(r);
}
template <typename T> T bfi(T a, T b, uint32_t at, uint32_t length) {
  at &= 0xff, length &= 0xff;
  for (uint32_t k = 0; k < length && at + k < 8 * sizeof(T); k++) {
    T bit = T(1) << (at + k);
    b = (a >> k & 1) ? T(b | bit) : T(b & ~bit);
  }
  return b;
}
uint32_t fns(uint32_t bits, uint32_t base, int32_t offset) {
  int32_t at = int32_t(base), step = offset < 0 ? -1 : 1, left = offset == 0 ? 1 : std::abs(offset);
  if (offset == 0) return base < 32 && (bits >> base & 1) ? base : ~uint32_t(0);
  for (; at >= 0 && at < 32; at += step)
    if ((bits >> at & 1) && --left == 0) return uint32_t(at);
  return ~uint32_t(0);
}
template <bool Wrap> uint32_t bmsk(uint32_t at, uint32_t length) {
  if (Wrap) at &= 31, length &= 31;
  if (at >= 32 || length == 0) return 0;
  uint64_t ones = length >= 32 ? ~uint64_t(0) : (uint64_t(1) << length) - 1;
  return uint32_t(ones << at);
}
template <bool Wrap> int32_t extend_s(int32_t a, uint32_t n) {
  n = Wrap ? n & 31 : n;
  if (n == 0) return 0;
  return n >= 32 ? a : int32_t(uint32_t(a) << (32 - n)) >> (32 - n);
}
template <bool Wrap> uint32_t extend_u(uint32_t a, uint32_t n) {
  n = Wrap ? n & 31 : n;
  return n >= 32 ? a : a & ((uint32_t(1) << n) - 1);
}
uint32_t permute(uint32_t a, uint32_t b, uint32_t selector) {
  uint64_t bytes = uint64_t(b) << 32 | a;
  uint32_t r = 0;
  for (int k = 0; k < 4; k++) {
    uint32_t s = selector >> (4 * k) & 15;
    uint8_t byte = uint8_t(bytes >> (8 * (s & 7)));
    if (s & 8) byte = byte & 0x80 ? 0xff : 0;
    r |= uint32_t(byte) << (8 * k);
  }
  return r;
}
enum class Permutation : uint8_t { F4e, B4e, Rc8, Ecl, Ecr, Rc16 };
template <Permutation P> uint32_t permute_mode(uint32_t a, uint32_t b, uint32_t c) {
  static constexpr uint16_t kSelectors[][4] = {{0x3210, 0x4321, 0x5432, 0x6543}, {0x5670, 0x6701, 0x7012, 0x0123},
                                               {0x0000, 0x1111, 0x2222, 0x3333}, {0x3210, 0x3211, 0x3222, 0x3333},
                                               {0x0000, 0x1110, 0x2210, 0x3210}, {0x1010, 0x3232, 0x1010, 0x3232}};
  return permute(a, b, kSelectors[int(P)][c & 3]);
}

void lop3(Warp &w, const Inst &i, uint32_t mask) {
  uint32_t *d = w.row<uint32_t>(i.d);
  const uint32_t *a = w.row<uint32_t>(i.a), *b = w.row<uint32_t>(i.b), *c = w.row<uint32_t>(i.c);
  uint32_t table = uint32_t(i.imm);
  run_lanes(mask, [=](int l) {
    uint32_t r = 0;
    for (int k = 0; k < 8; k++) {
      uint32_t term = (k & 4 ? a[l] : ~a[l]) & (k & 2 ? b[l] : ~b[l]) & (k & 1 ? c[l] : ~c[l]);
      r |= table >> k & 1 ? term : 0;
    }
    d[l] = r;
  });
}

// ---- logic on predicates: d, a, b are slots; mode[0], mode[1]: negated
enum class Logic : uint8_t { And, Or, Xor, Not };
template <Logic L> void predicate_logic(Warp &w, const Inst &i, uint32_t mask) {
  uint32_t a = w.preds[i.a] ^ (i.mode[0] ? ~uint32_t(0) : 0), b = w.preds[i.b] ^ (i.mode[1] ? ~uint32_t(0) : 0);
  uint32_t r = L == Logic::And ? a & b : L == Logic::Or ? a | b : L == Logic::Xor ? a ^ b : ~a;
  w.preds[i.d] = (w.preds[i.d] & ~mask) | (r & mask);
}

// ---- comparison
enum class Compare : uint8_t { Eq, Ne, Lt, Le, Gt, Ge, Equ, Neu, Ltu, Leu, Gtu, Geu, Num, Nan };
template <typename T> double to_value(T x) { return double(x); }
template <> double to_value(Half x) { return half_to_float(x.bits); }
template <> double to_value(Bfloat x) { return bfloat_to_float(x.bits); }
template <Compare C, typename T> bool compare(T x, T y) {
  if constexpr (std::is_integral_v<T>) {
    if constexpr (C == Compare::Eq) return x == y;
    if constexpr (C == Compare::Ne) return x != y;
    if constexpr (C == Compare::Lt) return x < y;
    if constexpr (C == Compare::Le) return x <= y;
    if constexpr (C == Compare::Gt) return x > y;
    return x >= y;
  } else {
    double a = to_value(x), b = to_value(y);
    bool nan = std::isnan(a) || std::isnan(b);
    if constexpr (C == Compare::Num) return !nan;
    if constexpr (C == Compare::Nan) return nan;
    if constexpr (C == Compare::Eq) return a == b;
    if constexpr (C == Compare::Ne) return !nan && a != b;
    if constexpr (C == Compare::Lt) return a < b;
    if constexpr (C == Compare::Le) return a <= b;
    if constexpr (C == Compare::Gt) return a > b;
    if constexpr (C == Compare::Ge) return a >= b;
    if constexpr (C == Compare::Equ) return nan || a == b;
    if constexpr (C == Compare::Neu) return nan || a != b;
    if constexpr (C == Compare::Ltu) return nan || a < b;
    if constexpr (C == Compare::Leu) return nan || a <= b;
    if constexpr (C == Compare::Gtu) return nan || a > b;
    return nan || a >= b;
  }
}
float flush(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }
template <typename T> T flushed(T x) {
  if constexpr (std::is_same_v<T, float>)
    return flush(x);
  else
    return x;
}
template <Compare C, typename T> uint32_t compare_lanes(Warp &w, const Inst &i) {
  const auto *a = w.row<typename Lane<T>::Row>(i.a);
  const auto *b = w.row<typename Lane<T>::Row>(i.b);
  uint32_t r = 0;
  bool ftz = i.mode[5];
  for (int l = 0; l < 32; l++) {
    T x = Lane<T>::get(a[l]), y = Lane<T>::get(b[l]);
    if (ftz) x = flushed(x), y = flushed(y);
    r |= uint32_t(compare<C, T>(x, y)) << l;
  }
  return r;
}
// setp: d and e predicate slots (e: the complement), c a slot to combine with (mode[0]: 0 none, 1 and, 2 or, 3 xor).
uint32_t combine(Warp &w, const Inst &i, uint32_t r) {
  if (!i.mode[0]) return r;
  uint32_t c = w.preds[i.c] ^ (i.mode[1] ? ~uint32_t(0) : 0);
  return i.mode[0] == 1 ? r & c : i.mode[0] == 2 ? r | c : r ^ c;
}
template <Compare C, typename T> void setp(Warp &w, const Inst &i, uint32_t mask) {
  uint32_t compared = compare_lanes<C, T>(w, i);
  uint32_t p = combine(w, i, compared), q = i.mode[2] ? combine(w, i, ~compared) : 0;
  w.preds[i.d] = (w.preds[i.d] & ~mask) | (p & mask);
  if (i.mode[2]) w.preds[i.e] = (w.preds[i.e] & ~mask) | (q & mask);
}
// set: mode[3] = 1: 1.0f, else all ones.
template <Compare C, typename T> void set(Warp &w, const Inst &i, uint32_t mask) {
  uint32_t r = combine(w, i, compare_lanes<C, T>(w, i)), yes = uint32_t(i.imm);
  uint32_t *d = w.row<uint32_t>(i.d);
  each_lane(mask, [&](int l) { d[l] = r >> l & 1 ? yes : 0; });
}
// Pairs: setp writes two predicates, set a pair.
template <Compare C, typename T> void setp_pair(Warp &w, const Inst &i, uint32_t mask) {
  const uint32_t *a = w.row<uint32_t>(i.a), *b = w.row<uint32_t>(i.b);
  uint32_t p[2] = {0, 0};
  for (int l = 0; l < 32; l++)
    for (int h = 0; h < 2; h++)
      p[h] |= uint32_t(compare<C, T>(T{uint16_t(a[l] >> 16 * h)}, T{uint16_t(b[l] >> 16 * h)})) << l;
  p[0] = combine(w, i, p[0]), p[1] = combine(w, i, p[1]);
  w.preds[i.d] = (w.preds[i.d] & ~mask) | (p[0] & mask);
  w.preds[i.e] = (w.preds[i.e] & ~mask) | (p[1] & mask);
}
template <Compare C, typename T> void set_pair(Warp &w, const Inst &i, uint32_t mask) {
  const uint32_t *a = w.row<uint32_t>(i.a), *b = w.row<uint32_t>(i.b);
  uint32_t *d = w.row<uint32_t>(i.d), yes = uint32_t(i.imm);
  each_lane(mask, [&](int l) {
    uint32_t r = 0;
    for (int h = 0; h < 2; h++) {
      uint32_t bit = uint32_t(compare<C, T>(T{uint16_t(a[l] >> 16 * h)}, T{uint16_t(b[l] >> 16 * h)})) << l;
      r |= combine(w, i, bit) >> l & 1 ? yes << 16 * h : 0;
    }
    d[l] = r;
  });
}

template <typename Row> void selp(Warp &w, const Inst &i, uint32_t mask) {
  uint32_t p = w.preds[i.c] ^ (i.mode[0] ? ~uint32_t(0) : 0);
  Row *d = w.row<Row>(i.d);
  const Row *a = w.row<Row>(i.a), *b = w.row<Row>(i.b);
  run_lanes(mask, [=](int l) { d[l] = p >> l & 1 ? a[l] : b[l]; });
}
template <typename T> T slct_int(T a, T b, int32_t c) { return c >= 0 ? a : b; }
template <typename T> T slct_float(T a, T b, float c) { return c >= 0 ? a : b; }
template <typename T> T slct_float_ftz(T a, T b, float c) { return flush(c) >= 0 ? a : b; }

// ---- decoding
void operands(Decoder &d, Type t, int sources) {
  d.need_operands(sources + 1);
  d.out.d = d.destination(0, t), d.out.a = d.source(1, t);
  if (sources > 1) d.out.b = d.source(2, t);
  if (sources > 2) d.out.c = d.source(3, t);
}
template <typename F> Handler for_bits(Decoder &d, Type t, F f) {
  if (t == Type::B16) return f.template operator()<uint16_t>();
  if (t == Type::B32) return f.template operator()<uint32_t>();
  if (t == Type::B64) return f.template operator()<uint64_t>();
  d.unsupported();
  return nullptr;
}
template <Logic L> void decode_logic(Decoder &d) {
  Type t = d.take_type();
  constexpr int sources = L == Logic::Not ? 1 : 2;
  if (t == Type::Pred) {
    d.need_operands(sources + 1);
    bool na = false, nb = false;
    d.out.d = uint32_t(d.predicate_destination(d.operand(0)));
    d.out.a = uint32_t(d.predicate(d.operand(1), na));
    if (sources > 1) d.out.b = uint32_t(d.predicate(d.operand(2), nb));
    d.out.mode[0] = na, d.out.mode[1] = nb;
    d.out.run = predicate_logic<L>;
    return;
  }
  operands(d, t, sources);
  d.out.run = for_bits(d, t, []<typename T>() -> Handler {
    if constexpr (L == Logic::And) return lanewise<&bit_and<T>>;
    if constexpr (L == Logic::Or) return lanewise<&bit_or<T>>;
    if constexpr (L == Logic::Xor) return lanewise<&bit_xor<T>>;
    return lanewise<&bit_not<T>>;
  });
}
void decode_cnot(Decoder &d) {
  Type t = d.take_type();
  operands(d, t, 1);
  d.out.run = for_bits(d, t, []<typename T>() { return lanewise<&logical_not<T>>; });
}
void decode_lop3(Decoder &d) {
  if (d.take_type() != Type::B32) d.unsupported();
  d.need_operands(5);
  d.out.d = d.destination(0, Type::B32), d.out.a = d.source(1, Type::B32), d.out.b = d.source(2, Type::B32);
  d.out.c = d.source(3, Type::B32);
  if (d.operand(4).kind != PtxOperand::Kind::Integer || d.operand(4).bits > 255) d.fail("the table must be 0..255");
  d.out.imm = int64_t(d.operand(4).bits);
  d.out.run = lop3;
}
void decode_shl(Decoder &d) {
  Type t = d.take_type();
  d.need_operands(3);
  d.out.d = d.destination(0, t), d.out.a = d.source(1, t), d.out.b = d.source(2, Type::B32);
  d.out.run = for_bits(d, t, []<typename T>() { return lanewise<&shift_left<T>>; });
}
void decode_shr(Decoder &d) {
  Type t = d.take_type();
  d.need_operands(3);
  d.out.d = d.destination(0, t), d.out.a = d.source(1, t), d.out.b = d.source(2, Type::B32);
  auto make = []<typename T>() { return lanewise<&shift_right<T>>; };
  d.out.run = type_class(t) == TypeClass::Bits ? for_bits(d, t, make) : for_integer(d, t, make);
}
void decode_shf(Decoder &d) {
  bool left = d.take("l"), wrap = d.take("wrap");
  if (!left && !d.take("r")) d.fail("one of .l, .r is missing");
  if (!wrap && !d.take("clamp")) d.fail("one of .clamp, .wrap is missing");
  if (d.take_type() != Type::B32) d.unsupported();
  operands(d, Type::B32, 3);
  d.out.run = left ? (wrap ? lanewise<&funnel<true, true>> : lanewise<&funnel<true, false>>)
                   : (wrap ? lanewise<&funnel<false, true>> : lanewise<&funnel<false, false>>);
}
template <bool Clz> void decode_count(Decoder &d) {
  Type t = d.take_type();
  d.need_operands(2);
  d.out.d = d.destination(0, Type::B32), d.out.a = d.source(1, t);
  if (t == Type::B32)
    d.out.run = Clz ? lanewise<&clz32> : lanewise<&popc32>;
  else if (t == Type::B64)
    d.out.run = Clz ? lanewise<&clz64> : lanewise<&popc64>;
  else
    d.unsupported();
}
void decode_bfind(Decoder &d) {
  bool shift = d.take("shiftamt");
  Type t = d.take_type();
  d.need_operands(2);
  d.out.d = d.destination(0, Type::B32), d.out.a = d.source(1, t);
  d.out.run = for_integer(d, t, [&]<typename T>() -> Handler {
    if constexpr (sizeof(T) < 4)
      return d.unsupported(), nullptr;
    else
      return shift ? lanewise<&bfind<T, true>> : lanewise<&bfind<T, false>>;
  });
}
void decode_brev(Decoder &d) {
  Type t = d.take_type();
  operands(d, t, 1);
  d.out.run = for_bits(d, t, []<typename T>() { return lanewise<&reverse<T>>; });
}
void decode_bfe(Decoder &d) {
  Type t = d.take_type();
  d.need_operands(4);
  d.out.d = d.destination(0, t), d.out.a = d.source(1, t), d.out.b = d.source(2, Type::B32),
  d.out.c = d.source(3, Type::B32);
  d.out.run = for_integer(d, t, [&]<typename T>() -> Handler {
    if constexpr (sizeof(T) < 4)
      return d.unsupported(), nullptr;
    else
      return lanewise<&bfe<T>>;
  });
}
void decode_bfi(Decoder &d) {
  Type t = d.take_type();
  d.need_operands(5);
  d.out.d = d.destination(0, t), d.out.a = d.source(1, t), d.out.b = d.source(2, t);
  d.out.c = d.source(3, Type::B32), d.out.e = d.source(4, Type::B32);
  if (t == Type::B32)
    d.out.run = lanewise<&bfi<uint32_t>>;
  else if (t == Type::B64)
    d.out.run = lanewise<&bfi<uint64_t>>;
  else
    d.unsupported();
}
void decode_fns(Decoder &d) {
  if (d.take_type() != Type::B32) d.unsupported();
  operands(d, Type::B32, 3);
  d.out.run = lanewise<&fns>;
}
void decode_bmsk(Decoder &d) {
  bool wrap = d.take("wrap");
  if (!wrap && !d.take("clamp")) d.fail("one of .clamp, .wrap is missing");
  if (d.take_type() != Type::B32) d.unsupported();
  operands(d, Type::B32, 2);
  d.out.run = wrap ? lanewise<&bmsk<true>> : lanewise<&bmsk<false>>;
}
void decode_szext(Decoder &d) {
  bool wrap = d.take("wrap");
  if (!wrap && !d.take("clamp")) d.fail("one of .clamp, .wrap is missing");
  Type t = d.take_type();
  operands(d, Type::B32, 2);
  if (t == Type::S32)
    d.out.run = wrap ? lanewise<&extend_s<true>> : lanewise<&extend_s<false>>;
  else if (t == Type::U32)
    d.out.run = wrap ? lanewise<&extend_u<true>> : lanewise<&extend_u<false>>;
  else
    d.unsupported();
}
void decode_prmt(Decoder &d) {
  if (d.take_type() != Type::B32) d.unsupported();
  operands(d, Type::B32, 3);
  std::string_view mode = d.take_any({"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"});
  d.out.run = mode.empty()    ? lanewise<&permute>
              : mode == "f4e" ? lanewise<&permute_mode<Permutation::F4e>>
              : mode == "b4e" ? lanewise<&permute_mode<Permutation::B4e>>
              : mode == "rc8" ? lanewise<&permute_mode<Permutation::Rc8>>
              : mode == "ecl" ? lanewise<&permute_mode<Permutation::Ecl>>
              : mode == "ecr" ? lanewise<&permute_mode<Permutation::Ecr>>
                              : lanewise<&permute_mode<Permutation::Rc16>>;
}

// For each comparison a table of handlers by element type.
struct CompareHandlers {
  std::string_view name;
  Handler setp[10], set[10];
};
enum Element : int { kU16, kU32, kU64, kS16, kS32, kS64, kF32, kF64, kHalf, kBfloat };
template <Compare C> CompareHandlers compare_handlers(std::string_view name) {
  return {name,
          {setp<C, uint16_t>, setp<C, uint32_t>, setp<C, uint64_t>, setp<C, int16_t>, setp<C, int32_t>,
           setp<C, int64_t>, setp<C, float>, setp<C, double>, setp<C, Half>, setp<C, Bfloat>},
          {set<C, uint16_t>, set<C, uint32_t>, set<C, uint64_t>, set<C, int16_t>, set<C, int32_t>, set<C, int64_t>,
           set<C, float>, set<C, double>, set<C, Half>, set<C, Bfloat>}};
}
struct PairHandlers {
  std::string_view name;
  Handler setp[2], set[2]; // f16x2, bf16x2
};
template <Compare C> PairHandlers pair_handlers(std::string_view name) {
  return {name, {setp_pair<C, Half>, setp_pair<C, Bfloat>}, {set_pair<C, Half>, set_pair<C, Bfloat>}};
}
#define TKC_COMPARISONS(f)                                                                                             \
  f<Compare::Eq>("eq"), f<Compare::Ne>("ne"), f<Compare::Lt>("lt"), f<Compare::Le>("le"), f<Compare::Gt>("gt"),        \
      f<Compare::Ge>("ge"), f<Compare::Lt>("lo"), f<Compare::Le>("ls"), f<Compare::Gt>("hi"), f<Compare::Ge>("hs"),    \
      f<Compare::Equ>("equ"), f<Compare::Neu>("neu"), f<Compare::Ltu>("ltu"), f<Compare::Leu>("leu"),                  \
      f<Compare::Gtu>("gtu"), f<Compare::Geu>("geu"), f<Compare::Num>("num"), f<Compare::Nan>("nan")

int element_of(Type t) {
  if (t == Type::U16 || t == Type::B16) return kU16;
  if (t == Type::U32 || t == Type::B32) return kU32;
  if (t == Type::U64 || t == Type::B64) return kU64;
  if (t == Type::S16) return kS16;
  if (t == Type::S32) return kS32;
  if (t == Type::S64) return kS64;
  if (t == Type::F32) return kF32;
  if (t == Type::F64) return kF64;
  if (t == Type::F16) return kHalf;
  if (t == Type::BF16) return kBfloat;
  return -1;
}
std::string_view take_compare(Decoder &d, Type t) {
  bool is_float = type_class(t) == TypeClass::Float, is_bits = type_class(t) == TypeClass::Bits;
  bool is_signed = type_class(t) == TypeClass::Signed;
  std::string_view c = d.take_any({"eq", "ne"});
  if (c.empty() && !is_bits) c = d.take_any({"lt", "le", "gt", "ge"});
  if (c.empty() && !is_bits && !is_float && !is_signed) c = d.take_any({"lo", "ls", "hi", "hs"});
  if (c.empty() && is_float) c = d.take_any({"equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"});
  if (c.empty()) d.fail("the comparison does not fit the type");
  return c;
}
void take_combination(Decoder &d, int64_t k) {
  std::string_view op = d.take_any({"and", "or", "xor"});
  d.need_operands(op.empty() ? k : k + 1);
  d.out.mode[0] = op == "and" ? 1 : op == "or" ? 2 : op == "xor" ? 3 : 0;
  if (op.empty() || d.failed()) return;
  bool negated = false;
  d.out.c = uint32_t(d.predicate(d.operand(k), negated));
  d.out.mode[1] = negated;
}

void decode_setp(Decoder &d) {
  static const CompareHandlers scalar[] = {TKC_COMPARISONS(compare_handlers)};
  static const PairHandlers pairs[] = {TKC_COMPARISONS(pair_handlers)};
  Type t = d.take_type();
  bool ftz = d.take("ftz"), pair = t == Type::F16x2 || t == Type::BF16x2;
  std::string_view c = take_compare(d, t);
  take_combination(d, 3);
  d.out.mode[5] = ftz && t == Type::F32;
  const PtxOperand &dst = d.operand(0);
  bool two = dst.kind == PtxOperand::Kind::Pair;
  if (pair && !two) return d.fail("two destination predicates are needed");
  d.out.mode[2] = two;
  d.out.d = uint32_t(d.predicate_destination(two ? dst.parts[0] : dst));
  if (two) d.out.e = uint32_t(d.predicate_destination(dst.parts[1]));
  d.out.a = d.source(1, t), d.out.b = d.source(2, t);
  if (pair) {
    if (ftz) d.unsupported();
    for (const PairHandlers &h : pairs)
      if (h.name == c) d.out.run = h.setp[t == Type::BF16x2];
    return;
  }
  int element = element_of(t);
  if (element < 0) return d.unsupported();
  for (const CompareHandlers &h : scalar)
    if (h.name == c) d.out.run = h.setp[element];
}

void decode_set(Decoder &d) {
  static const CompareHandlers scalar[] = {TKC_COMPARISONS(compare_handlers)};
  static const PairHandlers pairs[] = {TKC_COMPARISONS(pair_handlers)};
  Type result = d.take_type(), t = d.take_type();
  bool ftz = d.take("ftz"), pair = t == Type::F16x2 || t == Type::BF16x2;
  std::string_view c = take_compare(d, t);
  take_combination(d, 3);
  d.out.mode[5] = ftz && t == Type::F32;
  bool to_float = type_class(result) == TypeClass::Float;
  d.out.d = d.destination(0, result), d.out.a = d.source(1, t), d.out.b = d.source(2, t);
  d.out.imm = !to_float                                      ? (type_bits(result) == 16 ? 0xffff : 0xffffffff)
              : result == Type::F32                          ? 0x3f800000
              : result == Type::F16 || result == Type::F16x2 ? 0x3c00
                                                             : 0x3f80;
  if (pair) {
    if (ftz || (result != t && type_class(result) == TypeClass::Float)) d.unsupported();
    if (!to_float) d.out.imm = 0xffff;
    for (const PairHandlers &h : pairs)
      if (h.name == c) d.out.run = h.set[t == Type::BF16x2];
    return;
  }
  int element = element_of(t);
  if (element < 0 || type_bits(result) > 32) return d.unsupported();
  for (const CompareHandlers &h : scalar)
    if (h.name == c) d.out.run = h.set[element];
}

void decode_selp(Decoder &d) {
  Type t = d.take_type();
  d.need_operands(4);
  d.out.d = d.destination(0, t), d.out.a = d.source(1, t), d.out.b = d.source(2, t);
  bool negated = false;
  d.out.c = uint32_t(d.predicate(d.operand(3), negated));
  d.out.mode[0] = negated;
  if (type_bits(t) < 16 || type_bits(t) > 64) return d.unsupported();
  d.out.run = type_bits(t) == 64 ? selp<uint64_t> : selp<uint32_t>;
}
void decode_slct(Decoder &d) {
  bool ftz = d.take("ftz");
  Type t = d.take_type(), by = d.take_type();
  d.need_operands(4);
  d.out.d = d.destination(0, t), d.out.a = d.source(1, t), d.out.b = d.source(2, t), d.out.c = d.source(3, by);
  if (by != Type::S32 && by != Type::F32) return d.unsupported();
  auto pick = [&]<typename T>() -> Handler {
    if (by == Type::S32) return lanewise<&slct_int<T>>;
    return ftz ? lanewise<&slct_float_ftz<T>> : lanewise<&slct_float<T>>;
  };
  d.out.run = type_bits(t) == 64 ? pick.template operator()<uint64_t>() : pick.template operator()<uint32_t>();
}
} // namespace

void register_logic(DecodeTable &t) {
  t.insert(t.end(), {
                        {"and", decode_logic<Logic::And>, any_type},
                        {"or", decode_logic<Logic::Or>, any_type},
                        {"xor", decode_logic<Logic::Xor>, any_type},
                        {"not", decode_logic<Logic::Not>, any_type},
                        {"cnot", decode_cnot, any_type},
                        {"lop3", decode_lop3, any_type},
                        {"shl", decode_shl, any_type},
                        {"shr", decode_shr, any_type},
                        {"shf", decode_shf, any_type},
                        {"popc", decode_count<false>, any_type},
                        {"clz", decode_count<true>, any_type},
                        {"bfind", decode_bfind, any_type},
                        {"brev", decode_brev, any_type},
                        {"bfe", decode_bfe, any_type},
                        {"bfi", decode_bfi, any_type},
                        {"fns", decode_fns, any_type},
                        {"bmsk", decode_bmsk, any_type},
                        {"szext", decode_szext, any_type},
                        {"prmt", decode_prmt, any_type},
                        {"setp", decode_setp, any_type},
                        {"set", decode_set, any_type},
                        {"selp", decode_selp, any_type},
                        {"slct", decode_slct, any_type},
                    });
}

} // namespace tkc::emu
