// f32, f64, f16, bf16 arithmetic and the approximate functions. Oracles: the host's arithmetic in the same rounding
// mode, support/dtype.h, and 128-bit fixed point for the fused products of f16.
#include "emu/number.h"
#include "helper.h"
#include "support/dtype.h"
#include <algorithm>
#include <cfenv>

using namespace emu_test;
using namespace tkc;

namespace {
// f of the values, computed in the host's rounding mode. They are volatile, so that nothing is computed elsewhere.
template <typename T> T rounded(int mode, T x, T y, T z, T (*f)(volatile T *)) {
  volatile T v[3] = {x, y, z};
  std::fesetround(mode);
  volatile T r = f(v);
  std::fesetround(FE_TONEAREST);
  return r;
}
template <typename T> T add(volatile T *v) { return v[0] + v[1]; }
template <typename T> T sub(volatile T *v) { return v[0] - v[1]; }
template <typename T> T mul(volatile T *v) { return v[0] * v[1]; }
template <typename T> T div(volatile T *v) { return v[0] / v[1]; }
template <typename T> T rcp(volatile T *v) { return 1 / v[0]; }
template <typename T> T root(volatile T *v) { return std::sqrt(v[0]); }
template <typename T> T fused(volatile T *v) { return std::fma(v[0], v[1], v[2]); }
const std::vector<std::pair<std::string, int>> kModes = {
    {"rn", FE_TONEAREST}, {"rz", FE_TOWARDZERO}, {"rm", FE_DOWNWARD}, {"rp", FE_UPWARD}};

void check_f32(const std::string &text, const std::vector<float> &a, const std::vector<float> &b,
               const std::vector<float> &c, auto oracle) {
  std::vector<uint32_t> d = probe<uint32_t>(text, a, b, c);
  size_t bad = 0;
  for (size_t i = 0; i < a.size(); i++) {
    uint32_t want = bits_of(oracle(a[i], b[i], c[i]));
    if (d[i] == want || ++bad > 3) continue;
    INFO(text << " of " << a[i] << ", " << b[i] << ", " << c[i] << fmt::format(": {:#x}, want {:#x}", d[i], want));
    CHECK(d[i] == want);
  }
  CHECK(bad == 0);
}
float flush(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.f, x) : x; }

uint16_t narrow(DType t, double x) { return uint16_t(std::isnan(x) ? 0x7fff : encode_float(t, round_to(t, x))); }
} // namespace

TEST_CASE("f32 arithmetic in every rounding mode") {
  std::vector<float> a, b;
  pairs(float_samples(60, 1), a, b);
  std::vector<float> c = a;
  std::rotate(c.begin(), c.begin() + 1000, c.end());
  for (auto &[name, mode] : kModes) {
    auto with = [m = mode](float (*f)(volatile float *)) {
      return [m, f](float x, float y, float z) { return rounded<float>(m, x, y, z, f); };
    };
    check_f32("add." + name + ".f32 %d, %a, %b;", a, b, c, with(add<float>));
    check_f32("sub." + name + ".f32 %d, %a, %b;", a, b, c, with(sub<float>));
    check_f32("mul." + name + ".f32 %d, %a, %b;", a, b, c, with(mul<float>));
    check_f32("div." + name + ".f32 %d, %a, %b;", a, b, c, with(div<float>));
    check_f32("rcp." + name + ".f32 %d, %a;", a, b, c, with(rcp<float>));
    check_f32("sqrt." + name + ".f32 %d, %a;", a, b, c, with(root<float>));
    check_f32("fma." + name + ".f32 %d, %a, %b, %c;", a, b, c, with(fused<float>));
  }
}

TEST_CASE("f32 with ftz and saturation") {
  std::vector<float> a, b;
  pairs(float_samples(60, 2), a, b);
  std::vector<float> c(a.rbegin(), a.rend());
  auto sat = [](float x) { return x > 0 ? std::min(x, 1.f) : 0.f; };
  check_f32("add.ftz.f32 %d, %a, %b;", a, b, c, [](float x, float y, float) { return flush(flush(x) + flush(y)); });
  check_f32("mul.rn.ftz.f32 %d, %a, %b;", a, b, c, [](float x, float y, float) { return flush(flush(x) * flush(y)); });
  check_f32("fma.rn.ftz.sat.f32 %d, %a, %b, %c;", a, b, c,
            [&](float x, float y, float z) { return sat(flush(std::fma(flush(x), flush(y), flush(z)))); });
  check_f32("add.sat.f32 %d, %a, %b;", a, b, c, [&](float x, float y, float) { return sat(x + y); });
  std::replace_if(
      a.begin(), a.end(), [](float x) { return x != x; }, 2.f); // which NaN these give is left open
  check_f32("neg.ftz.f32 %d, %a;", a, b, c, [](float x, float, float) { return -flush(x); });
  check_f32("abs.f32 %d, %a;", a, b, c, [](float x, float, float) { return std::fabs(x); });
}

TEST_CASE("min and max: NaN, signed zeros, modifiers") {
  std::vector<float> a, b;
  pairs(float_samples(40, 3), a, b);
  std::vector<float> c(a.rbegin(), a.rend());
  auto minimum = [](float x, float y) {
    if (x != x) return y;
    if (y != y) return x;
    return x == y ? (std::signbit(x) ? x : y) : std::min(x, y);
  };
  auto maximum = [](float x, float y) {
    if (x != x) return y;
    if (y != y) return x;
    return x == y ? (std::signbit(x) ? y : x) : std::max(x, y);
  };
  check_f32("min.f32 %d, %a, %b;", a, b, c, [&](float x, float y, float) { return minimum(x, y); });
  check_f32("max.f32 %d, %a, %b;", a, b, c, [&](float x, float y, float) { return maximum(x, y); });
  check_f32("max.f32 %d, %a, %b, %c;", a, b, c, [&](float x, float y, float z) { return maximum(maximum(x, y), z); });
  check_f32("max.NaN.f32 %d, %a, %b;", a, b, c,
            [&](float x, float y, float) { return x != x || y != y ? NAN : maximum(x, y); });
  check_f32("min.xorsign.abs.f32 %d, %a, %b;", a, b, c, [&](float x, float y, float) {
    float m = minimum(std::fabs(x), std::fabs(y));
    return std::signbit(x) != std::signbit(y) ? -m : m;
  });
  std::vector<float> numbers = b;
  std::replace_if(
      numbers.begin(), numbers.end(), [](float x) { return x != x; }, 2.f);
  check_f32("copysign.f32 %d, %a, %b;", a, numbers, c, [](float x, float y, float) { return std::copysign(y, x); });
  std::vector<double> da(a.begin(), a.end()), db(b.begin(), b.end());
  std::vector<double> d = probe<double>("min.f64 %d, %a, %b;", da, db);
  for (size_t i = 0; i < d.size(); i++)
    CHECK((std::bit_cast<uint64_t>(d[i]) == std::bit_cast<uint64_t>(double(minimum(a[i], b[i]))) ||
           (d[i] != d[i] && a[i] != a[i])));
}

TEST_CASE("f64 arithmetic in every rounding mode") {
  std::vector<double> a, b;
  std::vector<double> in;
  for (float x : float_samples(40, 4)) in.push_back(double(x) * 1.0000000001);
  pairs(in, a, b);
  for (auto &[name, mode] : kModes) {
    auto check = [&, m = mode](const std::string &text, double (*f)(volatile double *)) {
      CAPTURE(text);
      std::vector<uint64_t> d = probe<uint64_t>(text, a, b);
      size_t bad = 0;
      for (size_t i = 0; i < a.size(); i++) {
        double want = rounded<double>(m, a[i], b[i], a[i], f), got = std::bit_cast<double>(d[i]);
        bad += std::bit_cast<uint64_t>(want) != d[i] && !(want != want && got != got);
      }
      CHECK(bad == 0);
    };
    check("add." + name + ".f64 %d, %a, %b;", add<double>);
    check("sub." + name + ".f64 %d, %a, %b;", sub<double>);
    check("mul." + name + ".f64 %d, %a, %b;", mul<double>);
    check("div." + name + ".f64 %d, %a, %b;", div<double>);
    check("rcp." + name + ".f64 %d, %a;", rcp<double>);
    check("fma." + name + ".f64 %d, %a, %b, %a;", fused<double>);
    check("sqrt." + name + ".f64 %d, %a;", root<double>);
  }
}

TEST_CASE("comparisons of floats know NaN; testp") {
  std::vector<float> a, b;
  pairs(float_samples(30, 5), a, b);
  struct Case {
    std::string name;
    bool (*holds)(float, float);
  };
  const Case cases[] = {
      {"eq", [](float x, float y) { return x == y; }},
      {"ne", [](float x, float y) { return x < y || x > y; }},
      {"lt", [](float x, float y) { return x < y; }},
      {"le", [](float x, float y) { return x <= y; }},
      {"gt", [](float x, float y) { return x > y; }},
      {"ge", [](float x, float y) { return x >= y; }},
      {"equ", [](float x, float y) { return !(x < y || x > y); }},
      {"neu", [](float x, float y) { return !(x == y); }},
      {"ltu", [](float x, float y) { return !(x >= y); }},
      {"leu", [](float x, float y) { return !(x > y); }},
      {"gtu", [](float x, float y) { return !(x <= y); }},
      {"geu", [](float x, float y) { return !(x < y); }},
      {"num", [](float x, float y) { return x == x && y == y; }},
      {"nan", [](float x, float y) { return x != x || y != y; }},
  };
  for (const Case &c : cases) {
    CAPTURE(c.name);
    auto d = probe<uint32_t>("setp." + c.name + ".f32 %p0, %a, %b; selp.b32 %d, 1, 0, %p0;", a, b);
    auto e = probe<uint32_t>("cvt.f64.f32 %q0, %a; cvt.f64.f32 %q1, %b; setp." + c.name +
                                 ".f64 %p0, %q0, %q1; selp.b32 %d, 1, 0, %p0;",
                             a, b);
    size_t bad = 0;
    for (size_t i = 0; i < a.size(); i++) bad += d[i] != uint32_t(c.holds(a[i], b[i])) || e[i] != d[i];
    CHECK(bad == 0);
  }
  auto subnormal = probe<uint32_t>("testp.subnormal.f32 %p0, %a; selp.b32 %d, 1, 0, %p0;", a);
  auto infinite = probe<uint32_t>("testp.infinite.f32 %p0, %a; selp.b32 %d, 1, 0, %p0;", a);
  for (size_t i = 0; i < a.size(); i++) {
    CHECK(subnormal[i] == uint32_t(std::fpclassify(a[i]) == FP_SUBNORMAL));
    CHECK(infinite[i] == uint32_t(std::isinf(a[i])));
  }
}

TEST_CASE("rounding agrees with support/dtype.h") {
  Rng r{11};
  for (int n = 0; n < 200000; n++) {
    double x = std::ldexp(double(int64_t(r.next())), int(r.next() % 320) - 220);
    if (n & 1)
      x = decode_float(DType::F16, r.next() & 0x7bff) + decode_float(DType::F16, r.next() & 0x3ff) * 0.5; // ties
    CHECK_MESSAGE(to_half(x) == narrow(DType::F16, x), x);
    CHECK_MESSAGE(to_bfloat(x) == narrow(DType::BF16, x), x);
  }
  for (uint32_t code = 0; code < 65536; code++) {
    double x = decode_float(DType::F16, code), y = decode_float(DType::BF16, code);
    CHECK(((x != x && half_to_float(uint16_t(code)) != half_to_float(uint16_t(code))) ||
           half_to_float(uint16_t(code)) == x));
    CHECK(((y != y && bfloat_to_float(uint16_t(code)) != bfloat_to_float(uint16_t(code))) ||
           bfloat_to_float(uint16_t(code)) == y));
  }
}

namespace {
// (a * b + c) of f16 as a fixed-point number of 2^-48, rounded to f16 with integers only.
uint16_t exact_fma_f16(uint16_t a, uint16_t b, uint16_t c) {
  __extension__ typedef __int128 I;
  auto fixed = [](uint16_t h) {
    int64_t m = (h & 0x3ff) | (h & 0x7c00 ? 0x400 : 0), e = std::max(1, h >> 10 & 31);
    return (h >> 15 ? -m : m) << (e - 1); // of 2^-24
  };
  I exact = I(fixed(a)) * fixed(b) + I(fixed(c)) * (I(1) << 24);
  if (exact == 0) return uint16_t((((a ^ b) & c) >> 15 & 1) << 15 & 0x8000);
  uint16_t sign = exact < 0 ? 0x8000 : 0;
  unsigned __int128 m = exact < 0 ? -exact : exact;
  int top = 127;
  while (!(m >> top)) top--;
  int shift = std::max(top - 10, 24); // keep 11 bits, or down to 2^-24
  unsigned __int128 kept = m >> shift, rest = m & ((I(1) << shift) - 1), half = I(1) << (shift - 1);
  kept += rest > half || (rest == half && (kept & 1));
  uint32_t code = shift == 24 ? uint32_t(kept) : uint32_t(kept) + (uint32_t(shift - 24) << 10);
  return uint16_t(sign | std::min<uint32_t>(code, 0x7c00));
}
} // namespace

TEST_CASE("f16 and bf16 results are rounded once") {
  Rng r{21};
  std::vector<uint32_t> a, b, c;
  for (int i = 0; i < 4000; i++) {
    auto finite = [&] { return uint32_t(r.next() & 0xbbffbbff); };
    a.push_back(finite()), b.push_back(finite()), c.push_back(finite());
    if (i % 4 == 0) c.back() = (a.back() & 0x7fff7fff) ^ 0x80008000; // near cancellation
  }
  auto fma = probe<uint32_t>("fma.rn.f16x2 %d, %a, %b, %c;", a, b, c),
       relu = probe<uint32_t>("fma.rn.relu.f16x2 %d, %a, %b, %c;", a, b, c);
  auto add = probe<uint32_t>("add.rn.f16x2 %d, %a, %b;", a, b), mul = probe<uint32_t>("mul.f16x2 %d, %a, %b;", a, b);
  for (size_t i = 0; i < a.size(); i++)
    for (int h = 0; h < 32; h += 16) {
      uint16_t x = uint16_t(a[i] >> h), y = uint16_t(b[i] >> h), z = uint16_t(c[i] >> h), want = exact_fma_f16(x, y, z);
      CHECK_MESSAGE(uint16_t(fma[i] >> h) == want,
                    fmt::format("{:#x} {:#x} {:#x}: {:#x}, want {:#x}", x, y, z, uint16_t(fma[i] >> h), want));
      CHECK(uint16_t(relu[i] >> h) == (want >> 15 ? 0 : want));
      double p = decode_float(DType::F16, x), q = decode_float(DType::F16, y); // sums and products are exact in double
      CHECK(uint16_t(add[i] >> h) == narrow(DType::F16, p + q));
      CHECK(uint16_t(mul[i] >> h) == narrow(DType::F16, p * q));
    }
  // bf16 of moderate exponents: everything is exact in double.
  auto moderate = [&] { return uint16_t((r.next() & 0x8000) | ((127 - 10 + r.next() % 20) << 7) | (r.next() & 0x7f)); };
  std::vector<uint16_t> x, y, z;
  for (int i = 0; i < 4000; i++) x.push_back(moderate()), y.push_back(moderate()), z.push_back(moderate());
  auto bf = probe<uint16_t>("fma.rn.bf16 %d, %a, %b, %c;", x, y, z),
       bs = probe<uint16_t>("sub.rn.bf16 %d, %a, %b;", x, y);
  for (size_t i = 0; i < x.size(); i++) {
    double p = decode_float(DType::BF16, x[i]), q = decode_float(DType::BF16, y[i]),
           s = decode_float(DType::BF16, z[i]);
    CHECK(bf[i] == narrow(DType::BF16, p * q + s));
    CHECK(bs[i] == narrow(DType::BF16, p - q));
  }
}

TEST_CASE("f16 and bf16: special values") {
  std::vector<uint16_t> a = {0x7c00, 0x7c00, 0x7e00, 0x0000, 0x8000, 0x0001, 0x7bff, 0x3c00},
                        b = {0xfc00, 0x3c00, 0x3c00, 0x8000, 0x0000, 0x0001, 0x7bff, 0x4000};
  CHECK(probe<uint16_t>("add.f16 %d, %a, %b;", a, b) ==
        std::vector<uint16_t>{0x7fff, 0x7c00, 0x7fff, 0, 0, 2, 0x7c00, 0x4200});
  CHECK(probe<uint16_t>("add.ftz.f16 %d, %a, %b;", a, b) ==
        std::vector<uint16_t>{0x7fff, 0x7c00, 0x7fff, 0, 0, 0, 0x7c00, 0x4200});
  CHECK(probe<uint16_t>("add.sat.f16 %d, %a, %b;", a, b) ==
        std::vector<uint16_t>{0, 0x3c00, 0, 0, 0, 2, 0x3c00, 0x3c00});
  CHECK(probe<uint16_t>("min.f16 %d, %a, %b;", a, b) ==
        std::vector<uint16_t>{0xfc00, 0x3c00, 0x3c00, 0x8000, 0x8000, 1, 0x7bff, 0x3c00});
  CHECK(probe<uint16_t>("max.NaN.f16 %d, %a, %b;", a, b) ==
        std::vector<uint16_t>{0x7c00, 0x7c00, 0x7fff, 0, 0, 1, 0x7bff, 0x4000});
  CHECK(probe<uint16_t>("neg.bf16 %d, %a;", std::vector<uint16_t>{0x3f80, 0x8000}) == std::vector<uint16_t>{0xbf80, 0});
  CHECK(probe<uint16_t>("abs.bf16 %d, %a;", std::vector<uint16_t>{0xbf80, 0x8000}) == std::vector<uint16_t>{0x3f80, 0});
  CHECK(probe<uint32_t>("max.bf16x2 %d, %a, %b;", std::vector<uint32_t>{0x3f80bf80},
                        std::vector<uint32_t>{0x40004000}) == std::vector<uint32_t>{0x40004000});
  CHECK(probe<uint32_t>(
            "setp.lt.f16x2 %p0|%p1, %a, %b; selp.b32 %r0, 1, 0, %p0; selp.b32 %r1, 2, 0, %p1; add.u32 %d, %r0, %r1;",
            std::vector<uint32_t>{0x3c004000}, std::vector<uint32_t>{0x40003c00}) == std::vector<uint32_t>{2});
  CHECK(probe<uint32_t>("set.gt.f16x2.f16x2 %d, %a, %b;", std::vector<uint32_t>{0x3c004000},
                        std::vector<uint32_t>{0x40003c00}) == std::vector<uint32_t>{0x3c00});
}

TEST_CASE("f32x2 and mixed precision") {
  auto pack = [](float low, float high) {
    return std::bit_cast<uint32_t>(low) | uint64_t(std::bit_cast<uint32_t>(high)) << 32;
  };
  std::vector<uint64_t> a = {pack(1.5f, -3.f)}, b = {pack(0x1p-24f, 2.f)}, c = {pack(1.f, 0.25f)};
  CHECK(probe<uint64_t>("fma.rn.f32x2 %d, %a, %b, %c;", a, b, c) ==
        std::vector<uint64_t>{pack(std::fma(1.5f, 0x1p-24f, 1.f), -5.75f)});
  CHECK(probe<uint64_t>("add.rn.f32x2 %d, %a, %b;", a, b) == std::vector<uint64_t>{pack(1.5f, -1.f)});
  CHECK(probe<uint64_t>("mul.rz.ftz.f32x2 %d, %a, %b;", a, b) == std::vector<uint64_t>{pack(1.5f * 0x1p-24f, -6.f)});
  CHECK(probe<uint32_t>("add.rn.f32.bf16 %d, %a, %b;", std::vector<uint16_t>{0x3fc0},
                        std::vector<uint32_t>{0x40000000}) == std::vector<uint32_t>{0x40600000});
  CHECK(probe<uint32_t>("fma.rn.f32.f16 %d, %a, %b, %c;", std::vector<uint16_t>{0x4000}, std::vector<uint16_t>{0x4200},
                        std::vector<uint32_t>{0x3f800000}) == std::vector<uint32_t>{0x40e00000});
}

TEST_CASE("approximate functions keep the documented bounds and special cases") {
  std::vector<float> a = float_samples(3000, 8);
  auto relative = [&](const std::string &text, double (*f)(double), double bound, bool ftz, auto domain) {
    CAPTURE(text);
    std::vector<float> d = probe<float>(text, a);
    double worst = 0;
    for (size_t i = 0; i < a.size(); i++) {
      float x = ftz ? flush(a[i]) : a[i];
      double want = f(x);
      if (!domain(x)) continue;
      if (want != want)
        CHECK(bits_of(d[i]) == 0x7fffffffu);
      else if (std::fabs(want) < 0x1p-126 || std::isinf(float(want)))
        CHECK(d[i] == (ftz ? flush(float(want)) : float(want)));
      else
        worst = std::max(worst, std::fabs((d[i] - want) / want));
    }
    CHECK(worst <= bound);
  };
  auto all = [](float) { return true; };
  relative(
      "ex2.approx.f32 %d, %a;", [](double x) { return std::exp2(x); }, 0x1p-22, false, all);
  relative(
      "ex2.approx.ftz.f32 %d, %a;", [](double x) { return std::exp2(x); }, 0x1p-22, true, all);
  relative(
      "rcp.approx.ftz.f32 %d, %a;", [](double x) { return 1 / x; }, 0x1p-23, true, all);
  relative(
      "rsqrt.approx.f32 %d, %a;", [](double x) { return 1 / std::sqrt(x); }, 1.2e-7, false, all);
  relative(
      "sqrt.approx.ftz.f32 %d, %a;", [](double x) { return std::sqrt(x); }, 0x1p-23, true, all);
  relative(
      "tanh.approx.f32 %d, %a;", [](double x) { return std::tanh(x); }, 0x1p-11, false,
      [](float x) { return std::fabs(x) > 0x1p-120f; });
  relative(
      "lg2.approx.f32 %d, %a;", [](double x) { return std::log2(x); }, 0x1p-22, false, all);
  std::vector<float> angle;
  for (int i = -300; i <= 300; i++) angle.push_back(float(i) * 0.01f);
  auto sine = probe<float>("sin.approx.ftz.f32 %d, %a;", angle), cosine = probe<float>("cos.approx.f32 %d, %a;", angle);
  for (size_t i = 0; i < angle.size(); i++) {
    CHECK(std::fabs(sine[i] - std::sin(double(angle[i]))) <= 0x1p-20);
    CHECK(std::fabs(cosine[i] - std::cos(double(angle[i]))) <= 0x1p-20);
  }
  // Divisors beyond 2^126 give 0 (NaN for an infinite dividend) with .approx, and the quotient with .full.
  std::vector<float> x = {3.f, INFINITY, 0x1p126f, 1.f}, y = {0x1p127f, 0x1p127f, 0x1p126f, 3.f};
  auto approx = probe<uint32_t>("div.approx.f32 %d, %a, %b;", x, y),
       full = probe<uint32_t>("div.full.f32 %d, %a, %b;", x, y);
  CHECK(approx == std::vector<uint32_t>{0, 0x7fffffff, 0x3f800000, bits_of(1.f / 3)});
  CHECK(full == std::vector<uint32_t>{bits_of(3 * 0x1p-127f), 0x7f800000, 0x3f800000, bits_of(1.f / 3)});
  CHECK(probe<uint64_t>("rcp.approx.ftz.f64 %d, %a;", std::vector<double>{3.0}) ==
        std::vector<uint64_t>{std::bit_cast<uint64_t>(1 / 3.0) >> 32 << 32});
  std::vector<uint32_t> h = {0x3c00c000, 0x7c00fc00};
  CHECK(probe<uint32_t>("ex2.approx.f16x2 %d, %a;", h) == std::vector<uint32_t>{0x40003400, 0x7c000000});
  CHECK(probe<uint32_t>("tanh.approx.f16x2 %d, %a;", h) ==
        std::vector<uint32_t>{uint32_t(narrow(DType::F16, std::tanh(1.0))) << 16 | narrow(DType::F16, std::tanh(-2.0)),
                              0x3c00bc00});
  CHECK(probe<uint16_t>("ex2.approx.ftz.bf16 %d, %a;", std::vector<uint16_t>{0x4000, 0x0001}) ==
        std::vector<uint16_t>{0x4080, 0x3f80});
}
