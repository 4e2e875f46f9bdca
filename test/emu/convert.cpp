// cvt. Oracles: support/dtype.h, the host's conversions in the same rounding mode, hand-computed values.
#include "helper.h"
#include "support/dtype.h"
#include <algorithm>
#include <cfenv>

using namespace emu_test;
using namespace tkc;

namespace {
const std::vector<std::pair<std::string, int>> kModes = {
    {"rn", FE_TONEAREST}, {"rz", FE_TOWARDZERO}, {"rm", FE_DOWNWARD}, {"rp", FE_UPWARD}};
template <typename R, typename T> R converted(int mode, T x) {
  volatile T v = x;
  std::fesetround(mode);
  volatile R r = R(v);
  std::fesetround(FE_TONEAREST);
  return r;
}
double host_round(int mode, double x) {
  volatile double v = x;
  std::fesetround(mode);
  volatile double r = std::nearbyint(v);
  std::fesetround(FE_TONEAREST);
  return r;
}
template <typename T> void float_to_int(const std::string &type, DType t) {
  std::vector<float> a = float_samples(600, 31);
  for (auto &[name, mode] : kModes) {
    CAPTURE(type);
    CAPTURE(name);
    auto from_f32 = probe<T>("cvt." + name + "i." + type + ".f32 %d, %a;", a);
    auto from_f64 = probe<T>("cvt.f64.f32 %q0, %a; cvt." + name + "i." + type + ".f64 %d, %q0;", a);
    size_t bad = 0;
    for (size_t i = 0; i < a.size(); i++) {
      double x = host_round(mode, a[i]);
      T top = T(T(1) << (8 * sizeof(T) - 1));
      T want = T(float_to_int(t, x));
      bad += from_f32[i] != (x != x ? (sizeof(T) == 8 ? top : T(0)) : want);
      bad += from_f64[i] != (x != x ? top : want);
    }
    CHECK(bad == 0);
  }
}
} // namespace

TEST_CASE("floats to integers: every rounding, saturation, NaN") {
  float_to_int<int32_t>("s32", DType::I32);
  float_to_int<uint32_t>("u32", DType::U32);
  float_to_int<int64_t>("s64", DType::I64);
  float_to_int<uint64_t>("u64", DType::U64);
  float_to_int<int16_t>("s16", DType::I16);
  CHECK(probe<uint16_t>("cvt.rzi.u8.f32 %d, %a;", std::vector<float>{-1.f, 3.9f, 300.f, NAN}) ==
        std::vector<uint16_t>{0, 3, 255, 0});
  CHECK(probe<int32_t>("cvt.rni.s32.f16 %d, %a;", std::vector<uint16_t>{0x4100, 0x4300, 0xfc00}) ==
        std::vector<int32_t>{2, 4, INT32_MIN});
}

TEST_CASE("integers to floats: every rounding") {
  std::vector<int64_t> a = samples<int64_t>(400, 41);
  for (int shift = 20; shift < 63; shift++)
    for (int64_t low : {-1, 0, 1})
      a.push_back((int64_t(1) << shift) + (int64_t(1) << (shift / 2)) + low), a.push_back(-a.back());
  std::vector<int32_t> b(a.begin(), a.end());
  for (auto &[name, mode] : kModes) {
    CAPTURE(name);
    auto f32 = probe<uint32_t>("cvt." + name + ".f32.s64 %d, %a;", a),
         f32u = probe<uint32_t>("cvt." + name + ".f32.u64 %d, %a;", a);
    auto f64 = probe<double>("cvt." + name + ".f64.s64 %d, %a;", a),
         f64u = probe<double>("cvt." + name + ".f64.u64 %d, %a;", a);
    auto small = probe<uint32_t>("cvt." + name + ".f32.s32 %d, %a;", b),
         small_u = probe<uint32_t>("cvt." + name + ".f32.u32 %d, %a;", b);
    size_t bad = 0;
    for (size_t i = 0; i < a.size(); i++) {
      bad += f32[i] != bits_of(converted<float>(mode, a[i]));
      bad += f32u[i] != bits_of(converted<float>(mode, uint64_t(a[i])));
      bad += f64[i] != converted<double>(mode, a[i]);
      bad += f64u[i] != converted<double>(mode, uint64_t(a[i]));
      bad += small[i] != bits_of(converted<float>(mode, b[i]));
      bad += small_u[i] != bits_of(converted<float>(mode, uint32_t(b[i])));
    }
    CHECK(bad == 0);
  }
}

TEST_CASE("integers to integers: truncation, extension, saturation") {
  std::vector<int32_t> a = samples<int32_t>(200, 51);
  auto s8 = probe<int32_t>("cvt.s8.s32 %d, %a;", a), u8 = probe<int32_t>("cvt.u8.s32 %d, %a;", a),
       sat = probe<int32_t>("cvt.sat.s8.s32 %d, %a;", a);
  auto satu = probe<int32_t>("cvt.sat.u8.s32 %d, %a;", a);
  auto s16 = probe<int16_t>("cvt.s16.s32 %d, %a;", a);
  auto wide = probe<int64_t>("cvt.s64.s32 %d, %a;", a), wideu = probe<int64_t>("cvt.u64.u32 %d, %a;", a);
  auto low = probe<int32_t>("cvt.s64.s32 %q0, %a; cvt.u32.u64 %d, %q0;", a);
  auto narrow = probe<int64_t>("cvt.u32.u64 %r0, 0x123456789; cvt.s64.s16 %d, %a;", a);
  for (size_t i = 0; i < a.size(); i++) {
    CHECK(s8[i] == int8_t(a[i]));
    CHECK(u8[i] == uint8_t(a[i]));
    CHECK(sat[i] == std::clamp(a[i], -128, 127));
    CHECK(satu[i] == std::clamp(a[i], 0, 255));
    CHECK(s16[i] == int16_t(a[i]));
    CHECK(wide[i] == a[i]);
    CHECK(wideu[i] == int64_t(uint32_t(a[i])));
    CHECK(low[i] == a[i]);
    CHECK(narrow[i] == int16_t(a[i]));
  }
  auto packed = probe<uint32_t>("cvt.pack.sat.s8.s32.b32 %d, %a, %b, %c;", std::vector<int32_t>{300, -5},
                                std::vector<int32_t>{-300, 7}, std::vector<int32_t>{0x1122, 0x3344});
  CHECK(packed == std::vector<uint32_t>{0x11227f80, 0x3344fb07});
  CHECK(probe<uint32_t>("cvt.pack.sat.u16.s32 %d, %a, %b;", std::vector<int32_t>{70000}, std::vector<int32_t>{-1}) ==
        std::vector<uint32_t>{0xffff0000});
}

TEST_CASE("floats to floats") {
  std::vector<float> a = float_samples(3000, 61);
  std::vector<double> wide;
  Rng r{5};
  for (float x : a) wide.push_back(double(x) + (std::isfinite(x) ? std::ldexp(double(int64_t(r.next())), -90) * x : 0));
  for (auto &[name, mode] : kModes) {
    CAPTURE(name);
    auto d = probe<uint32_t>("cvt." + name + ".f32.f64 %d, %a;", wide);
    size_t bad = 0;
    for (size_t i = 0; i < wide.size(); i++) // a NaN keeps its sign and the upper part of its payload, as on an H200
      bad += d[i] !=
             (wide[i] != wide[i] ? std::bit_cast<uint32_t>(float(wide[i])) : bits_of(converted<float>(mode, wide[i])));
    CHECK(bad == 0);
    auto e = probe<uint32_t>("cvt." + name + "i.f32.f32 %d, %a;", a);
    bad = 0;
    for (size_t i = 0; i < a.size(); i++) bad += e[i] != bits_of(float(host_round(mode, a[i])));
    CHECK(bad == 0);
  }
  auto f16 = probe<uint16_t>("cvt.rn.f16.f32 %d, %a;", a), bf16 = probe<uint16_t>("cvt.rn.bf16.f32 %d, %a;", a),
       rz = probe<uint16_t>("cvt.rz.bf16.f32 %d, %a;", a);
  auto relu = probe<uint16_t>("cvt.rn.relu.f16.f32 %d, %a;", a),
       finite = probe<uint16_t>("cvt.rn.satfinite.f16.f32 %d, %a;", a);
  auto tf32 = probe<uint32_t>("cvt.rna.tf32.f32 %d, %a;", a), tf32_rn = probe<uint32_t>("cvt.rn.tf32.f32 %d, %a;", a);
  auto sat = probe<uint32_t>("cvt.sat.f32.f32 %d, %a;", a), ftz = probe<uint32_t>("cvt.ftz.f32.f32 %d, %a;", a);
  for (size_t i = 0; i < a.size(); i++) {
    float x = a[i];
    CAPTURE(x);
    auto code = [&](DType t, double y) { return uint16_t(y != y ? 0x7fff : encode_float(t, round_to(t, y))); };
    CHECK(f16[i] == code(DType::F16, x));
    CHECK(bf16[i] == code(DType::BF16, x));
    CHECK(rz[i] == (x != x ? 0x7fff : std::bit_cast<uint32_t>(x) >> 16));
    CHECK(relu[i] == (x != x ? 0x7fff : x > 0 ? code(DType::F16, x) : 0));
    CHECK(finite[i] == (x != x ? 0x7fff : std::fabs(x) >= 65520 ? (x < 0 ? 0xfbff : 0x7bff) : code(DType::F16, x)));
    CHECK(tf32[i] ==
          (x != x ? std::bit_cast<uint32_t>(x) & 0xffffe000 : uint32_t(encode_float(DType::TF32, round_tf32_rna(x)))));
    CHECK(tf32_rn[i] == (x != x ? 0x7fffffff : uint32_t(encode_float(DType::TF32, round_to(DType::TF32, x)))));
    CHECK(sat[i] == bits_of(x > 0 ? std::min(x, 1.f) : 0.f));
    CHECK(ftz[i] == bits_of(std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.f, x) : x));
  }
  std::vector<uint16_t> all;
  for (uint32_t c = 0; c < 65536; c += 7) all.push_back(uint16_t(c));
  auto from_f16 = probe<uint32_t>("cvt.f32.f16 %d, %a;", all), from_bf16 = probe<uint32_t>("cvt.f32.bf16 %d, %a;", all);
  for (size_t i = 0; i < all.size(); i++) {
    CHECK(from_f16[i] == bits_of(float(decode_float(DType::F16, all[i]))));
    CHECK(from_bf16[i] == uint32_t(all[i]) << 16);
  }
}

TEST_CASE("pairs: the first operand is the upper half") {
  std::vector<float> a = float_samples(500, 71), b(a.rbegin(), a.rend());
  auto code = [](DType t, float x) { return uint32_t(x != x ? 0x7fff : encode_float(t, round_to(t, x))); };
  auto h = probe<uint32_t>("cvt.rn.f16x2.f32 %d, %a, %b;", a, b),
       bf = probe<uint32_t>("cvt.rn.bf16x2.f32 %d, %a, %b;", a, b),
       relu = probe<uint32_t>("cvt.rn.relu.bf16x2.f32 %d, %a, %b;", a, b);
  for (size_t i = 0; i < a.size(); i++) {
    CHECK(h[i] == (code(DType::F16, a[i]) << 16 | code(DType::F16, b[i])));
    CHECK(bf[i] == (code(DType::BF16, a[i]) << 16 | code(DType::BF16, b[i])));
    auto positive = [&](float x) { return x <= 0 ? 0 : code(DType::BF16, x); };
    CHECK(relu[i] == (positive(a[i]) << 16 | positive(b[i])));
  }
}

TEST_CASE("the 8-bit and 4-bit formats") {
  std::vector<float> a = float_samples(1500, 81);
  for (int i = -1000; i < 1000; i++) a.push_back(float(i) * 0.37f), a.push_back(std::ldexp(float(i), -14));
  std::vector<float> b(a.rbegin(), a.rend());
  struct Case {
    std::string name;
    DType type;
    uint32_t nan;
  };
  for (const Case &c : {Case{"e4m3x2", DType::E4M3, 0x7f}, Case{"e5m2x2", DType::E5M2, 0x7f}}) {
    CAPTURE(c.name);
    auto code = [&](float x) { return x != x ? c.nan : uint32_t(encode_float(c.type, round_to(c.type, x))); };
    auto d = probe<uint16_t>("cvt.rn.satfinite." + c.name + ".f32 %d, %a, %b;", a, b);
    for (size_t i = 0; i < a.size(); i++) CHECK(d[i] == (code(a[i]) << 8 | code(b[i])));
    std::vector<uint16_t> all;
    for (uint32_t k = 0; k < 256; k++) all.push_back(uint16_t(k << 8 | (255 - k)));
    auto back = probe<uint32_t>("cvt.rn.f16x2." + c.name + " %d, %a;", all);
    for (size_t i = 0; i < all.size(); i++)
      for (int h = 0; h < 2; h++) {
        double x = decode_float(c.type, all[i] >> 8 * h & 255);
        CHECK((back[i] >> 16 * h & 0xffff) == (x != x ? 0x7fff : encode_float(DType::F16, x)));
      }
  }
  auto tiny = probe<uint16_t>("{ .reg .b8 %z; cvt.rn.satfinite.e2m1x2.f32 %z, %a, %b; cvt.u16.u8 %d, %z; }", a, b);
  auto fp4 = [](float x) { return uint32_t(encode_float(DType::E2M1, round_to(DType::E2M1, x))); };
  for (size_t i = 0; i < a.size(); i++) CHECK(tiny[i] == (fp4(a[i]) << 4 | fp4(b[i])));
  // e2m3: 1 + 2 + 3 bits, largest 7.5; e3m2: largest 28
  CHECK(probe<uint16_t>("cvt.rn.satfinite.e2m3x2.f32 %d, %a, %b;", std::vector<float>{7.5f, 100.f, 0.125f},
                        std::vector<float>{-1.f, 1.0625f, 0.0625f}) == std::vector<uint16_t>{0x1f28, 0x1f08, 0x0100});
  CHECK(probe<uint16_t>("cvt.rn.satfinite.e3m2x2.f32 %d, %a, %b;", std::vector<float>{28.f, 1e9f},
                        std::vector<float>{-1.f, 0.0625f}) == std::vector<uint16_t>{0x1f2c, 0x1f01});
  CHECK(probe<uint16_t>("cvt.rp.satfinite.ue8m0x2.f32 %d, %a, %b;", std::vector<float>{1.f, 1.5f, NAN},
                        std::vector<float>{4.f, 0.f, INFINITY}) == std::vector<uint16_t>{0x7f81, 0x8000, 0xfffe});
  CHECK(probe<uint32_t>("cvt.rn.bf16x2.ue8m0x2 %d, %a;", std::vector<uint16_t>{0x7f80, 0xff7e}) ==
        std::vector<uint32_t>{0x3f804000, 0x7fff3f00});
}
