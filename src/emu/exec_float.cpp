// f32 and f64 arithmetic that PTX defines exactly: add sub mul fma mad div rcp sqrt min max abs neg copysign testp.
#include "emu/families.h"
#include "emu/lanes.h"
#include "emu/number.h"
#include <cfenv>

namespace tkc::emu {

namespace {
float canonical(float x) { return x != x ? std::bit_cast<float>(kNan32) : x; }
double canonical(double x) { return x; }
template <typename T> T add(T a, T b) { return canonical(a + b); }
template <typename T> T sub(T a, T b) { return canonical(a - b); }
template <typename T> T mul(T a, T b) { return canonical(a * b); }
template <typename T> T fma3(T a, T b, T c) { return canonical(std::fma(a, b, c)); }
template <typename T> T div(T a, T b) { return canonical(a / b); }

enum class Op : uint8_t { Add, Sub, Mul, Fma, Div, Rcp, Sqrt };

// Everything that is not plain rounding to nearest. mode[0] rounding, [1] ftz, [2] sat.
float general(Op op, float a, float b, float c, Rounding r, bool ftz, bool sat) {
  if (ftz) a = flush_subnormal(a), b = flush_subnormal(b), c = flush_subnormal(c);
  double x = a, y = b, z = c, exact = 0;
  switch (op) {
  case Op::Add: exact = odd_add(x, y); break;
  case Op::Sub: exact = odd_add(x, -y); break;
  case Op::Mul: exact = x * y; break;
  case Op::Fma: exact = odd_add(x * y, z); break;
  case Op::Div: exact = odd_divide(x, y); break;
  case Op::Rcp: exact = odd_divide(1, x); break;
  case Op::Sqrt: exact = odd_sqrt(x); break;
  }
  // A zero sum is -0 when rounding down, unless it is (+0) + (+0).
  double p = op == Op::Fma ? x * y : x, q = op == Op::Fma ? z : op == Op::Sub ? -y : y;
  bool sum = op == Op::Add || op == Op::Sub || op == Op::Fma;
  bool positive_zeros = p == 0 && q == 0 && !std::signbit(p) && !std::signbit(q);
  if (sum && exact == 0 && r == Rounding::Down && !positive_zeros) exact = -0.0;
  float result = canonical(to_float(exact, r));
  if (ftz) result = flush_subnormal(result);
  if (sat) result = result > 0 ? std::fmin(result, 1.0f) : 0.0f; // NaN becomes +0
  return result;
}
int host_rounding(Rounding r) {
  return r == Rounding::Zero   ? FE_TOWARDZERO
         : r == Rounding::Down ? FE_DOWNWARD
         : r == Rounding::Up   ? FE_UPWARD
                               : FE_TONEAREST;
}
double general(Op op, double a, double b, double c, Rounding r, bool, bool) {
  volatile double x = a, y = b, z = c, result = 0; // volatile: computed here, in this mode
  std::fesetround(host_rounding(r));
  switch (op) {
  case Op::Add: result = x + y; break;
  case Op::Sub: result = x - y; break;
  case Op::Mul: result = x * y; break;
  case Op::Fma: result = std::fma(x, y, z); break;
  case Op::Div: result = x / y; break;
  case Op::Rcp: result = 1 / x; break;
  case Op::Sqrt: result = std::sqrt(x); break;
  }
  std::fesetround(FE_TONEAREST);
  return result;
}
template <Op O, typename T> void run_general(Warp &w, const Inst &i, uint32_t mask) {
  using L = Lane<T>;
  auto *d = w.row<typename L::Row>(i.d);
  const auto *a = w.row<typename L::Row>(i.a), *b = w.row<typename L::Row>(i.b), *c = w.row<typename L::Row>(i.c);
  each_lane(mask, [&](int l) {
    d[l] = L::put(general(O, L::get(a[l]), L::get(b[l]), L::get(c[l]), Rounding(i.mode[0]), i.mode[1], i.mode[2]));
  });
}
// Mixed precision (add.f32.bf16, fma.f32.f16 ...): the 16-bit operands are a, and b of fma; mode[3]: bf16.
template <Op O> void run_mixed(Warp &w, const Inst &i, uint32_t mask) {
  auto *d = w.row<uint32_t>(i.d);
  const auto *a = w.row<uint32_t>(i.a), *b = w.row<uint32_t>(i.b), *c = w.row<uint32_t>(i.c);
  auto widen = [&](uint32_t bits) {
    return i.mode[3] ? bfloat_to_float(uint16_t(bits)) : half_to_float(uint16_t(bits));
  };
  each_lane(mask, [&](int l) {
    float x = widen(a[l]), y = O == Op::Fma ? widen(b[l]) : std::bit_cast<float>(b[l]);
    d[l] = std::bit_cast<uint32_t>(general(O, x, y, std::bit_cast<float>(c[l]), Rounding(i.mode[0]), false, i.mode[2]));
  });
}

// ---- min, max: mode[0] .NaN, [1] ftz, [2] .xorsign.abs, [3] three operands
template <typename T> T order(T a, T b, bool max, bool nan) {
  if (std::isnan(a) || std::isnan(b)) {
    if (nan || (std::isnan(a) && std::isnan(b))) return canonical(std::numeric_limits<T>::quiet_NaN());
    return std::isnan(a) ? b : a;
  }
  if (a == b) return std::signbit(a) == max ? b : a; // -0 < +0
  return (a < b) == max ? b : a;
}
template <typename T, bool Max> void run_min_max(Warp &w, const Inst &i, uint32_t mask) {
  using L = Lane<T>;
  auto *d = w.row<typename L::Row>(i.d);
  const auto *a = w.row<typename L::Row>(i.a), *b = w.row<typename L::Row>(i.b), *c = w.row<typename L::Row>(i.c);
  auto in = [&](typename L::Row bits) {
    T x = L::get(bits);
    if constexpr (std::is_same_v<T, float>)
      if (i.mode[1]) x = flush_subnormal(x);
    return x;
  };
  each_lane(mask, [&](int l) {
    T x = in(a[l]), y = in(b[l]);
    bool sign = std::signbit(x) != std::signbit(y);
    if (i.mode[2]) x = std::fabs(x), y = std::fabs(y);
    T r = order(x, y, Max, i.mode[0]);
    if (i.mode[3]) {
      T z = in(c[l]);
      sign = sign != std::signbit(z);
      r = order(r, i.mode[2] ? std::fabs(z) : z, Max, i.mode[0]);
    }
    if (i.mode[2] && !std::isnan(r)) r = sign ? -r : r;
    d[l] = L::put(r);
  });
}
// An H200 gives the canonical NaN for a NaN in f32, whatever its sign.
template <typename T> T absolute(T a) { return canonical(std::fabs(a)); }
template <typename T> T negative(T a) { return canonical(-a); }
float absolute_ftz(float a) { return flush_subnormal(absolute(a)); }
float negative_ftz(float a) { return flush_subnormal(negative(a)); }
template <typename T> T copy_sign(T sign, T value) { return std::copysign(value, sign); }

enum class Test : uint8_t { Finite, Infinite, Number, NotANumber, Normal, Subnormal };
template <typename T> bool test(Test t, T x) {
  int c = std::fpclassify(x);
  switch (t) {
  case Test::Finite: return c != FP_NAN && c != FP_INFINITE;
  case Test::Infinite: return c == FP_INFINITE;
  case Test::Number: return c != FP_NAN;
  case Test::NotANumber: return c == FP_NAN;
  case Test::Normal: return c == FP_NORMAL || c == FP_ZERO;
  case Test::Subnormal: return c == FP_SUBNORMAL;
  }
  return false;
}
template <typename T> void testp(Warp &w, const Inst &i, uint32_t mask) {
  const auto *a = w.row<typename Lane<T>::Row>(i.a);
  uint32_t r = 0;
  each_lane(mask, [&](int l) { r |= uint32_t(test(Test(i.mode[0]), Lane<T>::get(a[l]))) << l; });
  w.preds[i.d] = (w.preds[i.d] & ~mask) | r;
}

// ---- decoding
struct Modes {
  Rounding rounding = Rounding::Nearest;
  bool given = false, ftz = false, sat = false;
  bool plain() const { return rounding == Rounding::Nearest && !ftz && !sat; }
};
Modes take_modes(Decoder &d, Type t) {
  Modes m;
  std::string_view r = d.take_any({"rn", "rz", "rm", "rp"});
  m.given = !r.empty();
  m.rounding = r == "rz" ? Rounding::Zero : r == "rm" ? Rounding::Down : r == "rp" ? Rounding::Up : Rounding::Nearest;
  m.ftz = d.take("ftz"), m.sat = d.take("sat");
  if (t == Type::F64 && (m.ftz || m.sat)) d.fail(".ftz and .sat are for f32");
  d.out.mode[0] = uint8_t(m.rounding), d.out.mode[1] = m.ftz, d.out.mode[2] = m.sat;
  return m;
}
template <Op O> void decode(Decoder &d) {
  Type t = d.take_type();
  std::optional<Type> narrow = d.maybe_type();
  constexpr bool unary = O == Op::Rcp || O == Op::Sqrt;
  constexpr int sources = unary ? 1 : O == Op::Fma ? 3 : 2;
  Modes m = take_modes(d, t);
  bool needs_rounding = O == Op::Fma || O == Op::Div || unary;
  if (needs_rounding && !m.given) d.fail("the rounding mode is missing");
  d.need_operands(sources + 1);
  if (narrow) {
    bool fits = t == Type::F32 && (*narrow == Type::F16 || *narrow == Type::BF16) && !m.ftz && !unary && O != Op::Div &&
                O != Op::Mul;
    if (!fits) return d.unsupported();
    d.out.mode[3] = *narrow == Type::BF16;
    d.out.d = d.destination(0, t), d.out.a = d.source(1, *narrow), d.out.b = d.source(2, O == Op::Fma ? *narrow : t);
    d.out.c = O == Op::Fma ? d.source(3, t) : d.out.a;
    d.out.run = run_mixed<O>;
    return;
  }
  d.out.d = d.destination(0, t), d.out.a = d.source(1, t);
  d.out.b = sources > 1 ? d.source(2, t) : d.out.a;
  d.out.c = sources > 2 ? d.source(3, t) : d.out.a;
  d.out.run = t == Type::F64 ? run_general<O, double> : run_general<O, float>;
  if (!m.plain()) return;
  auto fast = [&]<typename T>() -> Handler {
    if constexpr (O == Op::Add) return lanewise<&add<T>>;
    if constexpr (O == Op::Sub) return lanewise<&sub<T>>;
    if constexpr (O == Op::Mul) return lanewise<&mul<T>>;
    if constexpr (O == Op::Fma) return lanewise<&fma3<T>>;
    if constexpr (O == Op::Div) return lanewise<&div<T>>;
    return d.out.run;
  };
  d.out.run = t == Type::F64 ? fast.template operator()<double>() : fast.template operator()<float>();
}
template <bool Max> void decode_min_max(Decoder &d) {
  d.out.mode[0] = d.take("NaN"), d.out.mode[1] = d.take("ftz");
  bool xorsign = d.take("xorsign"), abs = d.take("abs");
  if (xorsign && !abs) d.fail(".xorsign needs .abs");
  d.out.mode[2] = xorsign;
  Type t = d.take_type();
  d.need_operands(3, 4);
  bool three = d.operand_count() == 4;
  if (t == Type::F64 && (d.out.mode[0] || d.out.mode[1] || xorsign || abs || three)) d.unsupported();
  if (abs && !xorsign && !three) d.unsupported();
  if (abs && !xorsign) return d.unsupported();
  d.out.mode[3] = three;
  d.out.d = d.destination(0, t), d.out.a = d.source(1, t), d.out.b = d.source(2, t);
  d.out.c = three ? d.source(3, t) : d.out.a;
  d.out.run = t == Type::F64 ? run_min_max<double, Max> : run_min_max<float, Max>;
}
template <bool Negate> void decode_sign(Decoder &d) {
  bool ftz = d.take("ftz");
  Type t = d.take_type();
  d.need_operands(2);
  d.out.d = d.destination(0, t), d.out.a = d.source(1, t);
  if (t == Type::F64) {
    if (ftz) d.unsupported();
    d.out.run = Negate ? lanewise<&negative<double>> : lanewise<&absolute<double>>;
  } else if (ftz) {
    d.out.run = Negate ? lanewise<&negative_ftz> : lanewise<&absolute_ftz>;
  } else {
    d.out.run = Negate ? lanewise<&negative<float>> : lanewise<&absolute<float>>;
  }
}
void decode_copysign(Decoder &d) {
  Type t = d.take_type();
  d.need_operands(3);
  d.out.d = d.destination(0, t), d.out.a = d.source(1, t), d.out.b = d.source(2, t);
  d.out.run = t == Type::F64 ? lanewise<&copy_sign<double>> : lanewise<&copy_sign<float>>;
}
void decode_testp(Decoder &d) {
  constexpr std::string_view names[] = {"finite", "infinite", "number", "notanumber", "normal", "subnormal"};
  bool found = false;
  for (int k = 0; k < 6; k++)
    if (d.take(names[k])) d.out.mode[0] = uint8_t(k), found = true;
  if (!found) d.fail("the test is missing");
  Type t = d.take_type();
  d.need_operands(2);
  d.out.d = uint32_t(d.predicate_destination(d.operand(0))), d.out.a = d.source(1, t);
  d.out.run = t == Type::F64 ? testp<double> : testp<float>;
}

// div.approx, div.full, rcp.approx and sqrt.approx live with the approximate functions.
template <Op O> void decode_or_approx(Decoder &d) {
  if (d.has("approx") || d.has("full"))
    return O == Op::Div   ? decode_approximate_div(d)
           : O == Op::Rcp ? decode_approximate_rcp(d)
                          : decode_approximate_sqrt(d);
  decode<O>(d);
}
} // namespace

void register_float(DecodeTable &t) {
  t.insert(t.end(), {
                        {"add", decode<Op::Add>, wide_float_type},
                        {"sub", decode<Op::Sub>, wide_float_type},
                        {"mul", decode<Op::Mul>, wide_float_type},
                        {"fma", decode<Op::Fma>, wide_float_type},
                        {"mad", decode<Op::Fma>, wide_float_type},
                        {"div", decode_or_approx<Op::Div>, wide_float_type},
                        {"rcp", decode_or_approx<Op::Rcp>, wide_float_type},
                        {"sqrt", decode_or_approx<Op::Sqrt>, wide_float_type},
                        {"min", decode_min_max<false>, wide_float_type},
                        {"max", decode_min_max<true>, wide_float_type},
                        {"abs", decode_sign<false>, wide_float_type},
                        {"neg", decode_sign<true>, wide_float_type},
                        {"copysign", decode_copysign, wide_float_type},
                        {"testp", decode_testp, wide_float_type},
                    });
}

} // namespace tkc::emu
