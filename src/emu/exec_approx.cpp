// Approximate functions. The emulator returns the correctly rounded value (double precision, rounded once), which lies
// within every documented bound and is the same on every machine; the documented special ranges are kept.
#include "emu/families.h"
#include "emu/lanes.h"
#include "emu/number.h"
#include <cmath>

namespace tkc::emu {

namespace {
enum class Fn : uint8_t { Ex2, Lg2, Sin, Cos, Tanh, Rcp, Rsqrt, Sqrt };
template <Fn F> double value(double x) {
  switch (F) {
  case Fn::Ex2: return std::exp2(x);
  case Fn::Lg2: return std::log2(x);
  case Fn::Sin: return std::sin(x);
  case Fn::Cos: return std::cos(x);
  case Fn::Tanh: return std::tanh(x);
  case Fn::Rcp: return 1 / x;
  case Fn::Rsqrt: return 1 / std::sqrt(x);
  case Fn::Sqrt: return std::sqrt(x);
  }
  return 0;
}
uint32_t bits_of(float x) { return x != x ? kNan32 : std::bit_cast<uint32_t>(x); }

template <Fn F, bool Ftz> void run_f32(Warp &w, const Inst &i, uint32_t mask) {
  uint32_t *d = w.row<uint32_t>(i.d);
  const uint32_t *a = w.row<uint32_t>(i.a);
  each_lane(mask, [&](int l) {
    float x = std::bit_cast<float>(a[l]);
    if (Ftz) x = flush_subnormal(x);
    float r = float(value<F>(x));
    d[l] = bits_of(Ftz ? flush_subnormal(r) : r);
  });
}
// rcp.approx.ftz.f64, rsqrt.approx.ftz.f64: the upper word of the result, the lower one is zero.
template <Fn F> void run_f64(Warp &w, const Inst &i, uint32_t mask) {
  uint64_t *d = w.row<uint64_t>(i.d);
  const uint64_t *a = w.row<uint64_t>(i.a);
  each_lane(mask, [&](int l) {
    double x = std::bit_cast<double>(a[l]);
    if (std::fpclassify(x) == FP_SUBNORMAL) x = std::copysign(0.0, x);
    double r = value<F>(x);
    if (std::fpclassify(r) == FP_SUBNORMAL) r = std::copysign(0.0, r);
    d[l] = std::isnan(r) ? uint64_t(0x7fffffff) << 32 : std::bit_cast<uint64_t>(r) & ~uint64_t(0xffffffff);
  });
}
template <Fn F, bool Bf16, int N> void run_16(Warp &w, const Inst &i, uint32_t mask) {
  uint32_t *d = w.row<uint32_t>(i.d);
  const uint32_t *a = w.row<uint32_t>(i.a);
  bool ftz = i.mode[0];
  each_lane(mask, [&](int l) {
    uint32_t r = 0;
    for (int h = 0; h < N; h++) {
      uint16_t bits = uint16_t(a[l] >> 16 * h);
      auto flush = [&](uint16_t b) { return ftz && (b & (Bf16 ? 0x7f80 : 0x7c00)) == 0 ? uint16_t(b & 0x8000) : b; };
      bits = flush(bits);
      double y = value<F>(Bf16 ? bfloat_to_float(bits) : half_to_float(bits));
      r |= uint32_t(flush(Bf16 ? to_bfloat(y) : to_half(y))) << 16 * h;
    }
    d[l] = r;
  });
}
// div.approx: for divisors beyond 2^126 the reciprocal underflows, and the quotient is 0 (NaN for an infinite
// dividend).
template <bool Ftz, bool Full> void run_div(Warp &w, const Inst &i, uint32_t mask) {
  uint32_t *d = w.row<uint32_t>(i.d);
  const uint32_t *a = w.row<uint32_t>(i.a), *b = w.row<uint32_t>(i.b);
  each_lane(mask, [&](int l) {
    float x = std::bit_cast<float>(a[l]), y = std::bit_cast<float>(b[l]);
    if (Ftz) x = flush_subnormal(x), y = flush_subnormal(y);
    float r = x / y, size = std::fabs(y);
    if (!Full && size > 0x1p126f && size < INFINITY) r = std::isinf(x) ? NAN : std::copysign(0.0f, r);
    d[l] = bits_of(Ftz ? flush_subnormal(r) : r);
  });
}

template <Fn F> void decode_f32(Decoder &d, bool ftz) { d.out.run = ftz ? run_f32<F, true> : run_f32<F, false>; }

template <Fn F> void decode(Decoder &d) {
  bool approx = d.take("approx"), ftz = d.take("ftz");
  Type t = d.take_type();
  d.need_operands(2);
  if (!approx) return d.unsupported();
  d.out.d = d.destination(0, t), d.out.a = d.source(1, t);
  d.out.mode[0] = ftz;
  bool sixteen = t == Type::F16 || t == Type::BF16 || t == Type::F16x2 || t == Type::BF16x2;
  if (t == Type::F32 && !(F == Fn::Tanh && ftz)) return decode_f32<F>(d, ftz);
  if (t == Type::F64 && ftz && (F == Fn::Rcp || F == Fn::Rsqrt)) {
    d.out.run = run_f64<F>;
    return;
  }
  if constexpr (F == Fn::Ex2 || F == Fn::Tanh) {
    bool bf16 = t == Type::BF16 || t == Type::BF16x2, pair = t == Type::F16x2 || t == Type::BF16x2;
    if (sixteen && (F == Fn::Ex2 ? ftz == bf16 : !ftz)) {
      d.out.run =
          bf16 ? (pair ? run_16<F, true, 2> : run_16<F, true, 1>) : (pair ? run_16<F, false, 2> : run_16<F, false, 1>);
      return;
    }
  }
  d.unsupported();
}
} // namespace

void decode_approximate_div(Decoder &d) {
  bool full = d.take("full");
  if (!full) d.take("approx");
  bool ftz = d.take("ftz");
  if (d.take_type() != Type::F32) return d.unsupported();
  d.need_operands(3);
  d.out.d = d.destination(0, Type::F32), d.out.a = d.source(1, Type::F32), d.out.b = d.source(2, Type::F32);
  d.out.run =
      full ? (ftz ? run_div<true, true> : run_div<false, true>) : (ftz ? run_div<true, false> : run_div<false, false>);
}
void decode_approximate_rcp(Decoder &d) { decode<Fn::Rcp>(d); }
void decode_approximate_sqrt(Decoder &d) { decode<Fn::Sqrt>(d); }

void register_approx(DecodeTable &t) {
  t.insert(t.end(), {
                        {"ex2", decode<Fn::Ex2>, any_type},
                        {"lg2", decode<Fn::Lg2>, any_type},
                        {"sin", decode<Fn::Sin>, any_type},
                        {"cos", decode<Fn::Cos>, any_type},
                        {"tanh", decode<Fn::Tanh>, any_type},
                        {"rsqrt", decode<Fn::Rsqrt>, any_type},
                    });
}

} // namespace tkc::emu
