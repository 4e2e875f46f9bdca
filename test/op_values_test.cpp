// Every op's meaning against host computations that share no code with it.
#include "ir_kit.h"
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>

using namespace tkc;
using namespace tkc::test;
using interp::Tile;
using K = OpKind;

static constexpr double kInf = std::numeric_limits<double>::infinity();
static constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// ---- rounding by enumeration: every value of a 16-bit or 8-bit format, built from its definition

struct Table {
  std::vector<double> values; // by magnitude code, finite ones
  bool saturates;
  Table(int exponent_bits, int mantissa_bits, int bias, int64_t finite_codes, bool saturates) : saturates(saturates) {
    for (int64_t c = 0; c < finite_codes; c++) {
      int64_t e = c >> mantissa_bits, m = c & ((int64_t(1) << mantissa_bits) - 1);
      double frac = std::ldexp(double(m), -mantissa_bits);
      values.push_back(e == 0 ? std::ldexp(frac, 1 - bias) : std::ldexp(1 + frac, int(e) - bias));
    }
    (void)exponent_bits;
  }
  double nearest(double x) const {
    if (std::isnan(x)) return x;
    double m = std::fabs(x), out;
    size_t i = size_t(std::lower_bound(values.begin(), values.end(), m) - values.begin());
    if (i == values.size()) {
      // Past the largest value: half a unit more still rounds down to it.
      double unit = values.back() - values[values.size() - 2];
      out = saturates || m < values.back() + unit / 2 ? values.back() : kInf;
    } else if (values[i] == m || i == 0) {
      out = values[i];
    } else {
      double below = m - values[i - 1], above = values[i] - m;
      out = below < above || (below == above && (i - 1) % 2 == 0) ? values[i - 1] : values[i];
    }
    return std::copysign(out, x);
  }
};

static double nearest(DType t, double x) {
  static const Table f16(5, 10, 15, 31 << 10, false), bf16(8, 7, 127, 255 << 7, false), e4m3(4, 3, 7, 127, true),
      e5m2(5, 2, 15, 31 << 2, true);
  switch (t) {
  case DType::F16: return f16.nearest(x);
  case DType::BF16: return bf16.nearest(x);
  case DType::E4M3: return e4m3.nearest(x);
  case DType::E5M2: return e5m2.nearest(x);
  case DType::F32: return double(float(x));
  default: return x;
  }
}

static bool same(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
}

static std::vector<double> samples(DType t, uint64_t seed) {
  std::vector<double> out = {0.0, -0.0, 1, -1, 0.5, 2, 2.5, 3.5, -2.5, 100, -0.125, 1e-3, kInf, -kInf, kNan};
  Random r(seed);
  for (int i = 0; i < 200; i++) out.push_back(nearest(t, r.uniform(-4, 4)));
  for (int i = 0; i < 50; i++) out.push_back(nearest(t, std::ldexp(r.uniform(-1, 1), int(r.below(40)) - 20)));
  for (double &x : out) x = nearest(t, x);
  return out;
}

static const std::vector<DType> kFloatTypes = {DType::F16, DType::BF16, DType::F32, DType::F64};

static void check_floats(const Tile &got, const std::vector<double> &want) {
  REQUIRE(got.f.size() == want.size());
  for (size_t k = 0; k < want.size(); k++) {
    CAPTURE(k);
    CAPTURE(got.f[k]);
    CAPTURE(want[k]);
    CHECK(same(got.f[k], want[k]));
  }
}

TEST_CASE("functions of one float: the long double value rounded once") {
  using F = long double (*)(long double);
  const std::pair<K, F> functions[] = {
      {K::Neg, [](long double x) { return -x; }},
      {K::Abs, [](long double x) { return fabsl(x); }},
      {K::Exp, [](long double x) { return expl(x); }},
      {K::Exp2, [](long double x) { return exp2l(x); }},
      {K::Expm1, [](long double x) { return expm1l(x); }},
      {K::Log, [](long double x) { return logl(x); }},
      {K::Log2, [](long double x) { return log2l(x); }},
      {K::Log1p, [](long double x) { return log1pl(x); }},
      {K::Sqrt, [](long double x) { return sqrtl(x); }},
      {K::Rsqrt, [](long double x) { return 1 / sqrtl(x); }},
      {K::Rcp, [](long double x) { return 1 / x; }},
      {K::Sin, [](long double x) { return sinl(x); }},
      {K::Cos, [](long double x) { return cosl(x); }},
      {K::Tanh, [](long double x) { return tanhl(x); }},
      {K::Sigmoid, [](long double x) { return x >= 0 ? 1 / (1 + expl(-x)) : expl(x) / (1 + expl(x)); }},
      {K::Erf, [](long double x) { return erfl(x); }},
      {K::Floor, [](long double x) { return floorl(x); }},
      {K::Ceil, [](long double x) { return ceill(x); }},
      {K::Round,
       [](long double x) {
         long double f = floorl(x), d = x - f; // half to even by hand
         long double r = d < 0.5L ? f : d > 0.5L ? f + 1 : fmodl(f, 2) == 0 ? f : f + 1;
         return std::isfinite(double(x)) ? copysignl(r, x) : x;
       }},
      {K::Trunc, [](long double x) { return truncl(x); }}};
  for (auto [kind, f] : functions)
    for (DType t : kFloatTypes) {
      CAPTURE(std::string(ir::def(kind).name.s));
      CAPTURE(dtype_name(t));
      std::vector<double> x = samples(t, 1), want;
      for (double v : x) want.push_back(nearest(t, double(f(v))));
      Tile got = apply(kind, {floats(t, {int64_t(x.size())}, x)});
      if (t != DType::F64) {
        check_floats(got, want);
        continue;
      }
      for (size_t k = 0; k < want.size(); k++) { // libm's double functions are not exactly rounded
        CAPTURE(x[k]);
        bool ok = same(got.f[k], want[k]) || std::fabs(got.f[k] - want[k]) <= 4e-16 * std::fabs(want[k]);
        CHECK(ok);
      }
    }
  Tile nan = apply(K::IsNan, {floats(DType::F32, {3}, {kNan, 1, kInf})});
  CHECK(nan.i == Ints{1, 0, 0});
  CHECK(apply(K::IsFinite, {floats(DType::BF16, {3}, {kNan, 1, kInf})}).i == Ints{0, 1, 0});
}

TEST_CASE("arithmetic of floats") {
  for (DType t : kFloatTypes) {
    CAPTURE(dtype_name(t));
    std::vector<double> a = samples(t, 2), b = samples(t, 3), c = samples(t, 4);
    std::rotate(b.begin(), b.begin() + 7, b.end());
    int64_t n = int64_t(a.size());
    auto check = [&](K kind, auto f) {
      CAPTURE(std::string(ir::def(kind).name.s));
      std::vector<double> want;
      for (size_t k = 0; k < a.size(); k++) {
        float x = float(a[k]), y = float(b[k]);
        // The hardware's float operations are an independent rounding for f32.
        want.push_back(t == DType::F32 ? double(f(x, y)) : nearest(t, f(a[k], b[k])));
      }
      check_floats(apply(kind, {floats(t, {n}, a), floats(t, {n}, b)}), want);
    };
    check(K::Add, [](auto x, auto y) { return x + y; });
    check(K::Sub, [](auto x, auto y) { return x - y; });
    check(K::Mul, [](auto x, auto y) { return x * y; });
    check(K::Div, [](auto x, auto y) { return x / y; });
    auto order = [](auto x, auto y, bool larger) {
      if (std::isnan(x)) return y;
      if (std::isnan(y)) return x;
      if (x == 0 && y == 0) return larger == std::signbit(x) ? y : x;
      return (x > y) == larger ? x : y;
    };
    check(K::Max, [&](auto x, auto y) { return order(x, y, true); });
    check(K::Min, [&](auto x, auto y) { return order(x, y, false); });
    if (t == DType::F32) {
      std::vector<double> want;
      for (size_t k = 0; k < a.size(); k++) want.push_back(double(fmaf(float(a[k]), float(b[k]), float(c[k]))));
      check_floats(apply(K::Fma, {floats(t, {n}, a), floats(t, {n}, b), floats(t, {n}, c)}), want);
    }
    auto compare = [&](K kind, auto f) {
      Tile got = apply(kind, {floats(t, {n}, a), floats(t, {n}, b)});
      for (size_t k = 0; k < a.size(); k++) CHECK(got.i[k] == int64_t(f(a[k], b[k])));
      Tile equal = apply(kind, {floats(t, {n}, a), floats(t, {n}, a)});
      for (size_t k = 0; k < a.size(); k++) CHECK(equal.i[k] == int64_t(f(a[k], a[k])));
    };
    compare(K::Eq, [](double x, double y) { return x == y; });
    compare(K::Ne, [](double x, double y) { return x != y; });
    compare(K::Lt, [](double x, double y) { return x < y; });
    compare(K::Le, [](double x, double y) { return x <= y; });
    compare(K::Gt, [](double x, double y) { return x > y; });
    compare(K::Ge, [](double x, double y) { return x >= y; });
  }
  CHECK(apply(K::Pow, {floats(DType::F32, {2}, {2, -2}), floats(DType::F32, {2}, {10, 3})}).f ==
        std::vector<double>{1024, -8});
}

TEST_CASE("fma rounds once") {
  // 1 + 2^-12 squared is 1 + 2^-11 + 2^-24: with c = 2^-60 the exact sum lies just above a tie of f32.
  double a = 1 + 0x1p-12;
  CHECK(apply(K::Fma, {floats(DType::F32, {1}, {a}), floats(DType::F32, {1}, {a}), floats(DType::F32, {1}, {0x1p-80})})
            .f[0] == double(fmaf(float(a), float(a), 0x1p-80f)));
  Random r(5);
  for (int i = 0; i < 3000; i++) {
    float x = float(std::ldexp(r.uniform(1, 2), int(r.below(30)) - 15)),
          y = float(std::ldexp(r.uniform(1, 2), int(r.below(30)) - 15));
    float z = float(std::ldexp(r.uniform(-2, 2), int(r.below(160)) - 80));
    Tile got = apply(K::Fma, {floats(DType::F32, {}, {x}), floats(DType::F32, {}, {y}), floats(DType::F32, {}, {z})});
    REQUIRE(got.f[0] == double(fmaf(x, y, z)));
  }
}

// ---- integers against the host's types

template <typename T> static void check_integers(DType t) {
  CAPTURE(dtype_name(t));
  using U = std::make_unsigned_t<T>;
  using S = std::make_signed_t<T>;
  std::vector<T> a, b;
  Random r(6);
  const T edges[] = {0, 1, 2, 7, T(-1), std::numeric_limits<T>::max(), std::numeric_limits<T>::min()};
  for (T x : edges)
    for (T y : edges) a.push_back(x), b.push_back(y);
  for (int i = 0; i < 100; i++) a.push_back(T(r.next())), b.push_back(T(r.next() >> r.below(64)));
  int64_t n = int64_t(a.size());
  auto tile = [&](const std::vector<T> &x) { return ints(t, {n}, std::vector<int64_t>(x.begin(), x.end())); };
  auto check = [&](K kind, auto f, bool skip_zero = false) {
    CAPTURE(std::string(ir::def(kind).name.s));
    std::vector<T> y = b;
    if (skip_zero) std::replace(y.begin(), y.end(), T(0), T(3));
    Tile got = apply(kind, {tile(a), tile(y)});
    for (size_t k = 0; k < a.size(); k++) {
      CAPTURE(a[k]);
      CAPTURE(y[k]);
      CHECK(got.i[k] == int64_t(f(a[k], y[k])));
    }
  };
  check(K::Add, [](T x, T y) { return T(U(x) + U(y)); });
  check(K::Sub, [](T x, T y) { return T(U(x) - U(y)); });
  check(K::Mul, [](T x, T y) { return T(uint64_t(x) * uint64_t(y)); });
  auto overflows = [](T x, T y) { return std::is_signed_v<T> && x == std::numeric_limits<T>::min() && y == T(-1); };
  check(
      K::Div, [&](T x, T y) { return overflows(x, y) ? x : T(x / y); }, true);
  check(
      K::Rem, [&](T x, T y) { return overflows(x, y) ? T(0) : T(x % y); }, true);
  check(K::Min, [](T x, T y) { return std::min(x, y); });
  check(K::Max, [](T x, T y) { return std::max(x, y); });
  check(K::And, [](T x, T y) { return T(x & y); });
  check(K::Or, [](T x, T y) { return T(x | y); });
  check(K::Xor, [](T x, T y) { return T(x ^ y); });
  constexpr U width = sizeof(T) * 8;
  check(K::Shl, [](T x, T y) { return U(y) < width ? T(uint64_t(x) << U(y)) : T(0); });
  check(K::Shr, [](T x, T y) { return U(y) < width ? T(x >> U(y)) : T(x < 0 ? -1 : 0); });
  check(K::Lt, [](T x, T y) { return x < y; });
  check(K::Le, [](T x, T y) { return x <= y; });
  check(K::Gt, [](T x, T y) { return x > y; });
  check(K::Ge, [](T x, T y) { return x >= y; });
  check(K::Eq, [](T x, T y) { return x == y; });
  check(K::Ne, [](T x, T y) { return x != y; });
  Tile neg = apply(K::Neg, {tile(a)}), abs = apply(K::Abs, {tile(a)}), inv = apply(K::Not, {tile(a)});
  Tile fma = apply(K::Fma, {tile(a), tile(b), tile(a)});
  for (size_t k = 0; k < a.size(); k++) {
    CHECK(neg.i[k] == int64_t(T(0 - U(a[k]))));
    CHECK(abs.i[k] == int64_t(std::is_signed_v<T> && a[k] < 0 ? T(0 - U(a[k])) : a[k]));
    CHECK(inv.i[k] == int64_t(T(~a[k])));
    CHECK(fma.i[k] == int64_t(T(uint64_t(a[k]) * uint64_t(b[k]) + uint64_t(a[k]))));
  }
  // Conversions from this type.
  Tile f32 = apply(K::Cast, {tile(a)}, attrs({{"dtype", DType::F32}})),
       f64 = apply(K::Cast, {tile(a)}, attrs({{"dtype", DType::F64}}));
  Tile i16 = apply(K::Cast, {tile(a)}, attrs({{"dtype", DType::I16}})),
       u32 = apply(K::Cast, {tile(a)}, attrs({{"dtype", DType::U32}}));
  Tile bools = apply(K::Cast, {tile(a)}, attrs({{"dtype", DType::Bool}}));
  for (size_t k = 0; k < a.size(); k++) {
    CHECK(f32.f[k] == double(float(a[k])));
    CHECK(f64.f[k] == double(a[k]));
    CHECK(i16.i[k] == int64_t(int16_t(a[k])));
    CHECK(u32.i[k] == int64_t(uint32_t(a[k])));
    CHECK(bools.i[k] == int64_t(a[k] != 0));
  }
  // The lowest and highest values start reductions of extrema.
  Tile whole = tile(a);
  CHECK(apply(K::ReduceMax, {whole}, attrs({{"axis", int64_t(0)}})).i[0] ==
        int64_t(*std::max_element(a.begin(), a.end())));
  CHECK(apply(K::ReduceMin, {whole}, attrs({{"axis", int64_t(0)}})).i[0] ==
        int64_t(*std::min_element(a.begin(), a.end())));
  CHECK(apply(K::ArgMax, {whole}, attrs({{"axis", int64_t(0)}})).i[0] ==
        std::max_element(a.begin(), a.end()) - a.begin());
  CHECK(apply(K::ArgMin, {whole}, attrs({{"axis", int64_t(0)}})).i[0] ==
        std::min_element(a.begin(), a.end()) - a.begin());
  U sum = 0, product = 1;
  std::vector<int64_t> sums;
  for (T x : a) sum = U(sum + U(x)), product = U(uint64_t(product) * uint64_t(x)), sums.push_back(int64_t(T(sum)));
  CHECK(apply(K::ReduceSum, {whole}, attrs({{"axis", int64_t(0)}})).i[0] == int64_t(T(sum)));
  CHECK(apply(K::ReduceProd, {whole}, attrs({{"axis", int64_t(0)}})).i[0] == int64_t(T(product)));
  CHECK(apply(K::CumSum, {whole}).i == sums);
  (void)S();
}

TEST_CASE("integers behave like the host's types of the same width") {
  check_integers<int8_t>(DType::I8);
  check_integers<int16_t>(DType::I16);
  check_integers<int32_t>(DType::I32);
  check_integers<int64_t>(DType::I64);
  check_integers<uint8_t>(DType::U8);
  check_integers<uint16_t>(DType::U16);
  check_integers<uint32_t>(DType::U32);
  check_integers<uint64_t>(DType::U64);
}

TEST_CASE("bools") {
  Tile a = ints(DType::Bool, {4}, {0, 0, 1, 1}), b = ints(DType::Bool, {4}, {0, 1, 0, 1});
  CHECK(apply(K::And, {a, b}).i == Ints{0, 0, 0, 1});
  CHECK(apply(K::Or, {a, b}).i == Ints{0, 1, 1, 1});
  CHECK(apply(K::Xor, {a, b}).i == Ints{0, 1, 1, 0});
  CHECK(apply(K::Not, {a}).i == Ints{1, 1, 0, 0});
  CHECK(apply(K::Eq, {a, b}).i == Ints{1, 0, 0, 1});
  CHECK(apply(K::Ne, {a, b}).i == Ints{0, 1, 1, 0});
  Tile m = ints(DType::Bool, {2, 2}, {0, 1, 0, 0});
  CHECK(apply(K::ReduceAny, {m}, attrs({{"axis", int64_t(0)}})).i == Ints{0, 1});
  CHECK(apply(K::ReduceAll, {m}, attrs({{"axis", int64_t(-1)}})).i == Ints{0, 0});
  CHECK(apply(K::ReduceAll, {a}, attrs({{"axis", int64_t(0)}})).i == Ints{0});
  Tile x = floats(DType::E4M3, {4}, {1, 2, 3, 4}), y = floats(DType::E4M3, {4}, {5, 6, 7, 8});
  CHECK(apply(K::Where, {b, x, y}).f == std::vector<double>{5, 2, 7, 4});
  CHECK(apply(K::Where, {b, a, a}).i == a.i);
}

TEST_CASE("casts round to nearest even and saturate where the format says so") {
  std::vector<double> x = samples(DType::F64, 7);
  for (double v :
       {65519.0, 65520.0, 447.0, 463.9, 464.0, 465.0, 1e9, 57344.0, 61440.0, 1e-9, 0x1p-10, 0x1.8p-10, 0x1p-17})
    x.push_back(v), x.push_back(-v);
  int64_t n = int64_t(x.size());
  for (DType t : {DType::F16, DType::BF16, DType::F32, DType::E4M3, DType::E5M2}) {
    CAPTURE(dtype_name(t));
    std::vector<double> want;
    for (double v : x) want.push_back(nearest(t, v));
    if (t == DType::E4M3 || t == DType::E5M2)
      for (size_t k = 0; k < x.size(); k++)
        if (std::isinf(x[k])) want[k] = std::copysign(t == DType::E4M3 ? 448.0 : 57344.0, x[k]);
    check_floats(apply(K::Cast, {floats(DType::F64, {n}, x)}, attrs({{"dtype", t}})), want);
  }
  Tile i =
      apply(K::Cast, {floats(DType::F32, {6}, {1.9, -1.9, 3e9, -3e9, kNan, kInf})}, attrs({{"dtype", DType::I32}}));
  CHECK(i.i == Ints{1, -1, 2147483647, -2147483648LL, 0, 2147483647});
  CHECK(apply(K::Cast, {floats(DType::F32, {3}, {-1, 255.5, 300})}, attrs({{"dtype", DType::U8}})).i ==
        Ints{0, 255, 255});
  CHECK(apply(K::Cast, {floats(DType::F32, {3}, {0, -0.0, 0.25})}, attrs({{"dtype", DType::Bool}})).i == Ints{0, 0, 1});
  // An integer is rounded once: 2^53 + 2^29 + 1 lies just above a tie of f32 that its double sits on.
  int64_t hard = (int64_t(1) << 54) + (int64_t(1) << 30) + 1;
  Tile f = apply(K::Cast, {ints(DType::I64, {2}, {hard, -hard})}, attrs({{"dtype", DType::F32}}));
  CHECK(f.f == std::vector<double>{double(float(hard)), double(float(-hard))});
  CHECK(apply(K::Cast, {ints(DType::I32, {2}, {70000, 2049})}, attrs({{"dtype", DType::F16}})).f ==
        std::vector<double>{kInf, 2048});
}

TEST_CASE("bitcast keeps the bits") {
  std::vector<double> x;
  std::vector<int64_t> bits;
  Random r(8);
  for (int i = 0; i < 100; i++) {
    float v = float(std::ldexp(r.uniform(-2, 2), int(r.below(80)) - 40));
    int32_t b;
    std::memcpy(&b, &v, 4);
    x.push_back(v);
    bits.push_back(b);
  }
  Tile f = floats(DType::F32, {100}, x);
  CHECK(apply(K::Bitcast, {f}, attrs({{"dtype", DType::I32}})).i == bits);
  CHECK(apply(K::Bitcast, {ints(DType::I32, {100}, bits)}, attrs({{"dtype", DType::F32}})).f == x);
  CHECK(apply(K::Bitcast, {floats(DType::BF16, {2}, {1, -2})}, attrs({{"dtype", DType::U16}})).i ==
        Ints{0x3f80, 0xc000});
  CHECK(apply(K::Bitcast, {ints(DType::U8, {2}, {0x38, 0xb8})}, attrs({{"dtype", DType::E4M3}})).f ==
        std::vector<double>{1, -1});
  CHECK(apply(K::Bitcast, {ints(DType::U8, {1}, {200})}, attrs({{"dtype", DType::I8}})).i == Ints{-56});
}

TEST_CASE("tf32 results keep ten bits of mantissa") {
  Tile a = floats(DType::TF32, {2}, {1, 1}), b = floats(DType::TF32, {2}, {0x1p-11, 0x1.8p-11});
  CHECK(apply(K::Add, {a, b}).f == std::vector<double>{1, 1 + 0x1p-10});
}

// ---- shapes

TEST_CASE("constants, iota and shapes") {
  Kit k;
  ir::Value *c = k.b.constant(DType::BF16, 1.01, {}), *n = k.b.constant_int(DType::U8, 300, {});
  auto out = k.eval({c, n});
  CHECK(out[0].f[0] == nearest(DType::BF16, 1.01));
  CHECK(out[1].i[0] == 44);
  CHECK(apply(K::Iota, {}, attrs({{"n", int64_t(4)}})).i == Ints{0, 1, 2, 3});
  CHECK(apply(K::Iota, {}, attrs({{"n", int64_t(3)}, {"dtype", DType::F32}})).f == std::vector<double>{0, 1, 2});

  Tile x = counting(DType::I32, {2, 3, 4});
  Tile r = apply(K::Reshape, {x}, attrs({{"shape", Ints{6, -1}}}));
  CHECK(r.shape == Ints{6, 4});
  CHECK(r.i == x.i);
  CHECK(apply(K::ExpandDims, {x}, attrs({{"axis", int64_t(-1)}})).shape == Ints{2, 3, 4, 1});
  CHECK(apply(K::ExpandDims, {x}, attrs({{"axis", int64_t(0)}})).shape == Ints{1, 2, 3, 4});

  Tile t = apply(K::Transpose, {x}, attrs({{"perm", Ints{2, 0, 1}}}));
  CHECK(t.shape == Ints{4, 2, 3});
  for (int64_t a = 0; a < 2; a++)
    for (int64_t b = 0; b < 3; b++)
      for (int64_t d = 0; d < 4; d++) CHECK(t.i[size_t((d * 2 + a) * 3 + b)] == (a * 3 + b) * 4 + d);
  CHECK(apply(K::Transpose, {counting(DType::F16, {2, 3})}).f == std::vector<double>{0, 3, 1, 4, 2, 5});

  Tile w = apply(K::Broadcast, {counting(DType::F32, {2, 1, 2})}, attrs({{"shape", Ints{2, 3, 2}}}));
  CHECK(w.f == std::vector<double>{0, 1, 0, 1, 0, 1, 2, 3, 2, 3, 2, 3});
  CHECK(apply(K::Broadcast, {counting(DType::F32, {2, 1})}, attrs({{"shape", Ints{2, 3}}})).f ==
        std::vector<double>{0, 0, 0, 1, 1, 1});
  CHECK(apply(K::Broadcast, {ints(DType::Bool, {}, {1})}, attrs({{"shape", Ints{2, 2}}})).i == Ints{1, 1, 1, 1});
  CHECK(apply(K::Broadcast, {ints(DType::I8, {}, {5})}, attrs({{"shape", Ints{}}})).i == Ints{5});

  Tile cat =
      apply(K::Concat, {counting(DType::I32, {2, 1}), counting(DType::I32, {2, 2}, 10)}, attrs({{"axis", int64_t(1)}}));
  CHECK(cat.i == Ints{0, 10, 11, 1, 12, 13});
  CHECK(apply(K::Concat, {counting(DType::I32, {1, 2}), counting(DType::I32, {2, 2}, 10)}).i ==
        Ints{0, 1, 10, 11, 12, 13});
  CHECK(apply(K::Slice, {counting(DType::I32, {3, 4})}, attrs({{"starts", Ints{1, 2}}, {"sizes", Ints{2, 2}}})).i ==
        Ints{6, 7, 10, 11});
  CHECK(apply(K::Insert, {counting(DType::I32, {2, 3}), counting(DType::I32, {1, 2}, 50)},
              attrs({{"starts", Ints{1, 1}}}))
            .i == Ints{0, 1, 2, 3, 50, 51});
  Tile at = ints(DType::I32, {}, {1}), zero = ints(DType::I64, {}, {0});
  CHECK(apply(K::DynSlice, {counting(DType::I32, {3, 2}), at, zero}, attrs({{"sizes", Ints{2, 1}}})).i == Ints{2, 4});
  CHECK(apply(K::DynUpdate, {counting(DType::I32, {3, 2}), counting(DType::I32, {1, 2}, 7), at, zero}).i ==
        Ints{0, 1, 7, 8, 4, 5});
  // References may hold empty arrays.
  CHECK(apply(K::Slice, {x}, attrs({{"starts", Ints{0, 0, 0}}, {"sizes", Ints{0, 3, 4}}})).size() == 0);
  CHECK(apply(K::ReduceSum, {floats(DType::F64, {0, 2}, {})}, attrs({{"axis", int64_t(0)}})).f ==
        std::vector<double>{0, 0});
}

TEST_CASE("reductions and scans along every axis") {
  Ints shape = {3, 5, 4};
  Random r(9);
  std::vector<double> x;
  for (int i = 0; i < 60; i++) x.push_back(nearest(DType::F16, r.uniform(-2, 2)));
  x[7] = kNan;
  for (int64_t axis = 0; axis < 3; axis++) {
    auto at = [&](int64_t p, int64_t q, int64_t j) { // the element at (p, q) of the other axes and j of this one
      Ints c = axis == 0 ? Ints{j, p, q} : axis == 1 ? Ints{p, j, q} : Ints{p, q, j};
      return size_t((c[0] * 5 + c[1]) * 4 + c[2]);
    };
    Ints others = shape;
    others.erase(others.begin() + axis);
    Tile in = floats(DType::F16, shape, x);
    ir::Attrs a = attrs({{"axis", axis - 3}});
    Tile sum = apply(K::ReduceSum, {in}, a), prod = apply(K::ReduceProd, {in}, a), max = apply(K::ReduceMax, {in}, a),
         min = apply(K::ReduceMin, {in}, a), first = apply(K::ArgMax, {in}, a), last = apply(K::ArgMin, {in}, a);
    CHECK(sum.shape == others);
    for (int64_t p = 0; p < others[0]; p++)
      for (int64_t q = 0; q < others[1]; q++) {
        size_t o = size_t(p * others[1] + q);
        double s = 0, m = 1, hi = -kInf, lo = kInf;
        int64_t where_hi = 0, where_lo = 0;
        for (int64_t j = 0; j < shape[size_t(axis)]; j++) {
          double v = x[at(p, q, j)];
          s += v, m *= v;
          if (v > hi) hi = v, where_hi = j;
          if (v < lo) lo = v, where_lo = j;
        }
        CHECK(same(sum.f[o], nearest(DType::F16, s)));
        CHECK(same(prod.f[o], nearest(DType::F16, m)));
        CHECK(max.f[o] == hi);
        CHECK(min.f[o] == lo);
        CHECK(first.i[o] == where_hi);
        CHECK(last.i[o] == where_lo);
      }
    for (int64_t mode = 0; mode < 4; mode++) {
      bool reverse = mode & 1, exclusive = mode & 2;
      ir::Attrs s = attrs({{"axis", axis}, {"reverse", int64_t(reverse)}, {"exclusive", int64_t(exclusive)}});
      Tile sums = apply(K::CumSum, {in}, s), prods = apply(K::CumProd, {in}, s), maxs = apply(K::CumMax, {in}, s),
           mins = apply(K::CumMin, {in}, s);
      int64_t n = shape[size_t(axis)];
      for (int64_t p = 0; p < others[0]; p++)
        for (int64_t q = 0; q < others[1]; q++)
          for (int64_t j = 0; j < n; j++) {
            double total = 0, product = 1, hi = -kInf, lo = kInf;
            int64_t from = reverse ? n - 1 : 0, step = reverse ? -1 : 1;
            for (int64_t i = from;; i += step) { // the prefix from scratch for every element
              if (exclusive && i == j) break;
              double v = x[at(p, q, i)];
              total += v, product *= v;
              if (v > hi) hi = v;
              if (v < lo) lo = v;
              if (i == j) break;
            }
            size_t o = at(p, q, j);
            CHECK(same(sums.f[o], nearest(DType::F16, total)));
            CHECK(same(prods.f[o], nearest(DType::F16, product)));
            CHECK(maxs.f[o] == hi);
            CHECK(mins.f[o] == lo);
          }
    }
  }
  // Ties give the first position; an axis of NaNs gives 0.
  CHECK(apply(K::ArgMax, {floats(DType::F32, {4}, {1, 3, 3, 2})}, attrs({{"axis", int64_t(0)}})).i[0] == 1);
  CHECK(apply(K::ArgMin, {floats(DType::F32, {2}, {kNan, kNan})}, attrs({{"axis", int64_t(0)}})).i[0] == 0);
  // The running sum is not rounded: 1 + 2^-9 + 2^-9 survives in bf16 as 1 + 2^-8 rounded once.
  CHECK(apply(K::CumSum, {floats(DType::BF16, {5}, {1, 0x1p-9, 0x1p-9, 0x1p-9, 0x1p-9})}).f ==
        std::vector<double>{1, 1, 1, nearest(DType::BF16, 1 + 3 * 0x1p-9), 1 + 0x1p-7});
}

// ---- products

static Tile random_floats(DType t, Ints shape, uint64_t seed) {
  Tile x(t, std::move(shape));
  Random r(seed);
  for (double &v : x.f) v = nearest(t, r.uniform(-2, 2));
  return x;
}

// Runs a product in a kernel and reads it from memory.
static Tile kernel_mma(Tile a, Tile b, ir::Attrs at, std::optional<Tile> c = std::nullopt) {
  Kit k(ir::FunctionKind::Kernel);
  int64_t m = a.shape[0], n = b.shape[1];
  std::vector<ir::Value *> operands = {k.tile(std::move(a)), k.tile(std::move(b))};
  if (c) operands.push_back(k.tile(*c));
  ir::Value *v = k.value(K::Mma, operands, std::move(at));
  auto out = k.tensor(Tile(v->type.dtype, {m, n}));
  k.create(K::Store, {out.value, k.i32(0), k.i32(0), v}, attrs({{"sizes", Ints{m, n}}}));
  k.end(K::Return, {});
  REQUIRE(!k.run().trap);
  Tile t(v->type.dtype, {m, n});
  t.f = out.storage->f;
  t.i = out.storage->i;
  return t;
}

TEST_CASE("products are exact and rounded once") {
  int64_t m = 5, n = 7, kk = 67;
  for (auto [ta, tb, acc] :
       {std::tuple(DType::F16, DType::F16, DType::F32), std::tuple(DType::F16, DType::F16, DType::F16),
        std::tuple(DType::BF16, DType::BF16, DType::F32), std::tuple(DType::E4M3, DType::E5M2, DType::F32),
        std::tuple(DType::E4M3, DType::E4M3, DType::F16), std::tuple(DType::F64, DType::F64, DType::F64)}) {
    CAPTURE(dtype_name(ta));
    CAPTURE(dtype_name(acc));
    Tile a = random_floats(ta, {m, kk}, 10), b = random_floats(tb, {kk, n}, 11), c = random_floats(acc, {m, n}, 12);
    Tile plain = kernel_mma(a, b, attrs({{"acc", acc}})), added = kernel_mma(a, b, {}, c);
    CHECK(added.dtype == acc);
    for (int64_t i = 0; i < m; i++)
      for (int64_t j = 0; j < n; j++) {
        double s = 0, s1 = c.f[size_t(i * n + j)];
        for (int64_t p = 0; p < kk; p++) {
          s += a.f[size_t(i * kk + p)] * b.f[size_t(p * n + j)];
          s1 += a.f[size_t(i * kk + p)] * b.f[size_t(p * n + j)];
        }
        CHECK(plain.f[size_t(i * n + j)] == nearest(acc, s));
        CHECK(added.f[size_t(i * n + j)] == nearest(acc, s1));
      }
  }
}

TEST_CASE("f32 operands of a kernel's product are rounded to tf32, ties away; references and ieee are exact") {
  double x = 1 + 0x1p-11, y = 1 + 0x1.8p-12; // a tie of tf32, and a value that rounds down
  Tile a = floats(DType::F32, {1, 1}, {x}), b = floats(DType::F32, {1, 1}, {y});
  CHECK(kernel_mma(a, b, {}).f[0] == 1 + 0x1p-10);
  CHECK(kernel_mma(a, b, attrs({{"precision", std::string("ieee")}})).f[0] == double(float(x * y)));
  CHECK(kernel_mma(a, b, attrs({{"precision", std::string("tf32x3")}})).f[0] == double(float(x * y)));
  CHECK(apply(K::Mma, {a, b}).f[0] == double(float(x * y)));
  Tile wide = apply(K::Mma, {floats(DType::F32, {1, 1}, {x}), floats(DType::F64, {1, 1}, {y})});
  CHECK(wide.dtype == DType::F64);
  CHECK(wide.f[0] == x * y);
}

TEST_CASE("integer products are exact and wrap in i32") {
  Tile a = ints(DType::I8, {1, 3}, {-128, 127, 5}), b = ints(DType::I8, {3, 2}, {-128, 1, 127, 2, -3, 4});
  Tile c = kernel_mma(a, b, {});
  CHECK(c.dtype == DType::I32);
  CHECK(c.i == Ints{128 * 128 + 127 * 127 - 15, -128 + 254 + 20});
  Tile top = ints(DType::I32, {1, 2}, {2147483647, 0});
  CHECK(kernel_mma(a, b, {}, top).i[0] == int64_t(int32_t(2147483647u + 32498u)));
}

TEST_CASE("a product of 512^3 takes a fraction of a second") {
  Tile a = random_floats(DType::F64, {512, 512}, 13), b = random_floats(DType::F64, {512, 512}, 14);
  auto start = std::chrono::steady_clock::now();
  Tile c = apply(K::Mma, {a, b});
  double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  MESSAGE("512^3 in " << seconds << " s");
  double s = 0;
  for (int64_t p = 0; p < 512; p++) s += a.f[size_t(100 * 512 + p)] * b.f[size_t(p * 512 + 301)];
  CHECK(std::fabs(c.f[100 * 512 + 301] - s) < 1e-12);
}
