// f16 and bf16, single and in pairs, f32x2, and pairs of 16-bit integers. Every 16-bit result is the exact result
// rounded once: products and sums are formed in double, to odd where they do not fit.
#include "emu/families.h"
#include "emu/lanes.h"
#include "emu/number.h"

namespace tkc::emu {

namespace {
enum class Op : uint8_t { Add, Sub, Mul, Fma, Min, Max, Neg, Abs };

struct Modes {
  bool ftz, sat, relu, nan, xorsign;
};
double widen(Half x) { return half_to_float(x.bits); }
double widen(Bfloat x) { return bfloat_to_float(x.bits); }
template <typename T> T narrow(double x) {
  if constexpr (std::is_same_v<T, Half>)
    return {to_half(x)};
  else
    return {to_bfloat(x)};
}
template <typename T> bool is_nan(T x) {
  return std::is_same_v<T, Half> ? (x.bits & 0x7fff) > 0x7c00 : (x.bits & 0x7fff) > 0x7f80;
}
template <typename T> T flushed(T x) { // f16 only
  return (x.bits & 0x7c00) == 0 ? T{uint16_t(x.bits & 0x8000)} : x;
}
template <typename T> T order(T a, T b, bool max, bool want_nan) {
  if (is_nan(a) || is_nan(b)) {
    if (want_nan || (is_nan(a) && is_nan(b))) return {kNan16};
    return is_nan(a) ? b : a;
  }
  double x = widen(a), y = widen(b);
  if (x == y) return bool(a.bits >> 15) == max ? b : a; // -0 < +0
  return (x < y) == max ? b : a;
}
template <Op O, typename T> T compute(T a, T b, T c, const Modes &m) {
  if (m.ftz) a = flushed(a), b = flushed(b), c = flushed(c);
  T r;
  if constexpr (O == Op::Add) r = narrow<T>(odd_add(widen(a), widen(b)));
  if constexpr (O == Op::Sub) r = narrow<T>(odd_add(widen(a), -widen(b)));
  if constexpr (O == Op::Mul) r = narrow<T>(widen(a) * widen(b));
  if constexpr (O == Op::Fma) r = narrow<T>(odd_add(widen(a) * widen(b), widen(c)));
  if constexpr (O == Op::Neg) r = {uint16_t(a.bits ^ 0x8000)};
  if constexpr (O == Op::Abs) r = {uint16_t(a.bits & 0x7fff)};
  if constexpr (O == Op::Min || O == Op::Max) {
    uint16_t sign = (a.bits ^ b.bits) & 0x8000;
    if (m.xorsign) a.bits &= 0x7fff, b.bits &= 0x7fff;
    r = order(a, b, O == Op::Max, m.nan);
    if (m.xorsign && !is_nan(r)) r.bits |= sign;
    return r;
  }
  if (m.ftz) r = flushed(r);
  if (m.sat) r = is_nan(r) || r.bits >> 15 ? T{0} : widen(r) > 1 ? narrow<T>(1) : r;
  if (m.relu && !is_nan(r) && r.bits >> 15) r = T{0};
  return r;
}
template <Op O, typename T, int N> void run(Warp &w, const Inst &i, uint32_t mask) {
  uint32_t *d = w.row<uint32_t>(i.d);
  const uint32_t *a = w.row<uint32_t>(i.a), *b = w.row<uint32_t>(i.b), *c = w.row<uint32_t>(i.c);
  Modes m = {i.mode[0] != 0, i.mode[1] != 0, i.mode[2] != 0, i.mode[3] != 0, i.mode[4] != 0};
  each_lane(mask, [&](int l) {
    uint32_t r = 0;
    for (int h = 0; h < N; h++) {
      T x{uint16_t(a[l] >> 16 * h)}, y{uint16_t(b[l] >> 16 * h)}, z{uint16_t(c[l] >> 16 * h)};
      r |= uint32_t(compute<O, T>(x, y, z, m).bits) << 16 * h;
    }
    d[l] = r;
  });
}

// ---- f32x2. mode[0] ftz, mode[5] rounding
template <Op O> void run_f32x2(Warp &w, const Inst &i, uint32_t mask) {
  uint64_t *d = w.row<uint64_t>(i.d);
  const uint64_t *a = w.row<uint64_t>(i.a), *b = w.row<uint64_t>(i.b), *c = w.row<uint64_t>(i.c);
  each_lane(mask, [&](int l) {
    uint64_t r = 0;
    for (int h = 0; h < 2; h++) {
      auto in = [&](uint64_t bits) {
        float x = std::bit_cast<float>(uint32_t(bits >> 32 * h));
        return double(i.mode[0] ? flush_subnormal(x) : x);
      };
      double x = in(a[l]), y = in(b[l]), z = in(c[l]);
      double exact = O == Op::Add   ? odd_add(x, y)
                     : O == Op::Sub ? odd_add(x, -y)
                     : O == Op::Mul ? x * y
                                    : odd_add(x * y, z);
      float f = to_float(exact, Rounding(i.mode[5]));
      if (i.mode[0]) f = flush_subnormal(f);
      uint32_t bits = f != f ? kNan32 : std::bit_cast<uint32_t>(f);
      r |= uint64_t(bits) << 32 * h;
    }
    d[l] = r;
  });
}

// ---- pairs of 16-bit integers
template <typename T, Op O> void run_int_pair(Warp &w, const Inst &i, uint32_t mask) {
  uint32_t *d = w.row<uint32_t>(i.d);
  const uint32_t *a = w.row<uint32_t>(i.a), *b = w.row<uint32_t>(i.b);
  bool relu = i.mode[2];
  run_lanes(mask, [=](int l) {
    uint32_t r = 0;
    for (int h = 0; h < 2; h++) {
      T x = T(a[l] >> 16 * h), y = T(b[l] >> 16 * h), v = 0;
      if (O == Op::Add) v = T(x + y);
      if (O == Op::Sub) v = T(x - y);
      if (O == Op::Min) v = x < y ? x : y;
      if (O == Op::Max) v = x < y ? y : x;
      if (relu && v < 0) v = 0;
      r |= uint32_t(uint16_t(v)) << 16 * h;
    }
    d[l] = r;
  });
}

template <Op O> void decode(Decoder &d) {
  Type t = d.take_type();
  constexpr bool unary = O == Op::Neg || O == Op::Abs;
  constexpr int sources = unary ? 1 : O == Op::Fma ? 3 : 2;
  d.need_operands(sources + 1);
  d.out.d = d.destination(0, t), d.out.a = d.source(1, t);
  d.out.b = sources > 1 ? d.source(2, t) : d.out.a;
  d.out.c = sources > 2 ? d.source(3, t) : d.out.a;
  if (t == Type::U16x2 || t == Type::S16x2) {
    d.out.mode[2] = d.take("relu");
    if (d.out.mode[2] && t == Type::U16x2) d.unsupported();
    if constexpr (O == Op::Add || O == Op::Min || O == Op::Max || O == Op::Sub)
      d.out.run = t == Type::U16x2 ? run_int_pair<uint16_t, O> : run_int_pair<int16_t, O>;
    else
      d.unsupported();
    return;
  }
  bool bf16 = t == Type::BF16 || t == Type::BF16x2, pair = t == Type::F16x2 || t == Type::BF16x2;
  std::string_view r = d.take_any({"rn", "rz", "rm", "rp"});
  d.out.mode[0] = d.take("ftz");
  if (t == Type::F32x2) {
    if constexpr (O == Op::Add || O == Op::Sub || O == Op::Mul || O == Op::Fma) {
      d.out.mode[5] = uint8_t(r == "rz"   ? Rounding::Zero
                              : r == "rm" ? Rounding::Down
                              : r == "rp" ? Rounding::Up
                                          : Rounding::Nearest);
      d.out.run = run_f32x2<O>;
    } else {
      d.unsupported();
    }
    return;
  }
  if (!r.empty() && (r != "rn" || O == Op::Min || O == Op::Max || unary)) d.unsupported();
  if (O == Op::Fma && r.empty()) d.fail("the rounding mode is missing");
  if (bf16 && d.out.mode[0]) d.unsupported();
  if (O == Op::Min || O == Op::Max) {
    d.out.mode[3] = d.take("NaN");
    d.out.mode[4] = d.take("xorsign");
    if (d.out.mode[4] && !d.take("abs")) d.fail(".xorsign needs .abs");
  } else if (!unary) {
    d.out.mode[1] = d.take("sat");
    d.out.mode[2] = O == Op::Fma && d.take("relu");
    if (bf16 && d.out.mode[1]) d.unsupported();
  }
  d.out.run = bf16 ? (pair ? run<O, Bfloat, 2> : run<O, Bfloat, 1>) : (pair ? run<O, Half, 2> : run<O, Half, 1>);
}
} // namespace

void register_packed(DecodeTable &t) {
  t.insert(t.end(), {
                        {"add", decode<Op::Add>, packed_type},
                        {"sub", decode<Op::Sub>, packed_type},
                        {"mul", decode<Op::Mul>, packed_type},
                        {"fma", decode<Op::Fma>, packed_type},
                        {"min", decode<Op::Min>, packed_type},
                        {"max", decode<Op::Max>, packed_type},
                        {"neg", decode<Op::Neg>, packed_type},
                        {"abs", decode<Op::Abs>, packed_type},
                    });
}

} // namespace tkc::emu
