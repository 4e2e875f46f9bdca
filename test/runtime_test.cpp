// Host tensors, generators and comparison. The other parts of the run-time library are tested in test/runtime/.
#include "runtime/compare.h"
#include "runtime/generators.h"
#include "runtime/host_tensor.h"
#include "runtime/parallel.h"
#include <algorithm>
#include <cmath>
#include <doctest/doctest.h>
#include <limits>
#include <mutex>

using namespace tkc;

static const double kInf = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();

TEST_CASE("parallel_for covers every index once, in blocks that do not depend on threads") {
  std::mutex mutex;
  std::vector<std::pair<int64_t, int64_t>> blocks;
  parallel_for(1001, 100, [&](int64_t b, int64_t e) {
    std::lock_guard lock(mutex);
    blocks.emplace_back(b, e);
  });
  std::sort(blocks.begin(), blocks.end());
  REQUIRE(blocks.size() == 11);
  for (size_t i = 0; i < 11; i++)
    CHECK(blocks[i] == std::pair<int64_t, int64_t>(int64_t(i) * 100, std::min<int64_t>(1001, (int64_t(i) + 1) * 100)));
  parallel_for(0, 100, [&](int64_t, int64_t) { FAIL("called for an empty range"); });
}

TEST_CASE("shapes") {
  CHECK(element_count(std::vector<int64_t>{}) == 1);
  CHECK(element_count(std::vector<int64_t>{3, 0, 5}) == 0);
  CHECK(!element_count(std::vector<int64_t>{3, -1}));
  CHECK(!element_count(std::vector<int64_t>{int64_t(1) << 40, int64_t(1) << 40}));
  CHECK(!element_count(std::vector<int64_t>{0, int64_t(1) << 62, 4})); // no way around by an empty dim
  CHECK(coordinates(std::vector<int64_t>{2, 3, 4}, 23) == std::vector<int64_t>{1, 2, 3});
  CHECK(HostTensor::zeros(DType::BF16, {4, 7}).to_string() == "bf16[4, 7]");
  CHECK(storage_bytes(DType::E2M1, 5) == 3);
  CHECK(storage_bytes(DType::TF32, 5) == 20);
}

TEST_CASE("set and get round as the number formats do, for every dtype") {
  // The bulk path must agree with the exact functions of dtype.h on normal, denormal, halfway and huge values.
  std::vector<double> samples = {0,        -0.0,     1,        -1,        0.1,       -2.5,           65504,
                                 65519,    65520,    448,      464,       465,       57344,          61440,
                                 1e30,     -1e39,    0x1p-14,  0x1p-15,   0x1.8p-25, 0x1p-126,       0x1p-133,
                                 0x1p-134, 0x1.01p0, 0x1.03p0, 0x1.002p0, 0x1.006p0, 0x1.fffffep127, 1e300,
                                 6,        5,        5.1,      0.25,      kInf,      -kInf};
  for (int64_t i = 0; i < 3000; i++)
    samples.push_back(
        std::ldexp(double(splitmix64(uint64_t(i)) >> 11) * 0x1p-53 - 0.5, int(splitmix64(uint64_t(i) + 77) % 60) - 30));
  for (DType t : all_dtypes()) {
    CAPTURE(dtype_name(t));
    HostTensor bulk = HostTensor::from_doubles(t, {int64_t(samples.size())}, samples);
    std::vector<double> back = bulk.to_doubles();
    int64_t wrong = 0;
    for (size_t i = 0; i < samples.size(); i++) {
      double x = samples[i];
      HostTensor one = HostTensor::zeros(t, {1});
      one.set(0, x);
      uint64_t mask = dtype_bits(t) == 64 ? ~uint64_t(0) : (uint64_t(1) << dtype_bits(t)) - 1;
      uint64_t bits = is_float(t) ? encode_float(t, round_to(t, x)) : uint64_t(float_to_int(t, x)) & mask;
      double value = is_float(t)       ? decode_float(t, bits)
                     : t == DType::U64 ? double(bits)
                                       : double(wrap_to(t, int64_t(bits)));
      bool same = bulk.bits(int64_t(i)) == bits && one.bits(0) == bits;
      same = same && (back[i] == value || (std::isnan(back[i]) && std::isnan(value))) &&
             (bulk.get(int64_t(i)) == back[i] || std::isnan(back[i]));
      wrong += !same;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("packed and 64-bit elements keep their neighbours") {
  HostTensor t = HostTensor::zeros(DType::E2M1, {5});
  for (int64_t i = 0; i < 5; i++) t.set(i, double(i) - 1);
  CHECK(t.to_doubles() == std::vector<double>{-1, 0, 1, 2, 3});
  t.set(1, 6);
  CHECK(t.to_doubles() == std::vector<double>{-1, 6, 1, 2, 3});
  HostTensor u = HostTensor::zeros(DType::I64, {2});
  u.set_int(1, (int64_t(1) << 60) + 1);
  CHECK(u.get_int(1) == (int64_t(1) << 60) + 1);
  CHECK(u.get_int(0) == 0);
  CHECK(convert(u, DType::U64).get_int(1) == (int64_t(1) << 60) + 1);
  CHECK(convert(u, DType::I8).get_int(1) == 1);
  CHECK(convert(HostTensor::from_doubles(DType::F32, {2}, std::vector<double>{1.01, -300}), DType::E4M3).to_doubles() ==
        std::vector<double>{1, -288});
}

TEST_CASE("check_tensor names both sides; the checksum sees dtype, shape and data") {
  HostTensor t = HostTensor::zeros(DType::BF16, {2, 3});
  CHECK(check_tensor(t, DType::BF16, std::vector<int64_t>{2, 3}, "x").ok());
  CHECK(check_tensor(t, DType::F16, std::vector<int64_t>{2, 3}, "`x.npy`").error() ==
        "`x.npy` holds bf16[2, 3], but f16 is wanted");
  CHECK(check_tensor(t, DType::BF16, std::vector<int64_t>{3, 2}, "`x.npy`").error() ==
        "`x.npy` holds bf16[2, 3], but the shape [3, 2] is wanted");
  uint64_t sum = checksum(t);
  CHECK(sum == checksum(HostTensor::zeros(DType::BF16, {2, 3})));
  CHECK(sum != checksum(HostTensor::zeros(DType::BF16, {3, 2})));
  CHECK(sum != checksum(HostTensor::zeros(DType::F16, {2, 3})));
  t.set(5, 1);
  CHECK(sum != checksum(t));
}

TEST_CASE("splitmix64 finaliser and the uniform fill of the convention") {
  // The published stream of splitmix64 from state 0 is the finaliser of multiples of its increment.
  CHECK(splitmix64(0x9e3779b97f4a7c15u) == 0xe220a8397b1dcdafu);
  CHECK(splitmix64(2 * 0x9e3779b97f4a7c15u) == 0x6e789e6aa1b965f4u);
  Fill f{FillKind::Uniform, -1, 1};
  HostTensor t = fill_tensor(f, DType::F32, {1000}, 2024);
  for (int64_t i = 0; i < 1000; i++) {
    double u = double(splitmix64(uint64_t(2024 + i)) >> 40) / 16777216.0;
    REQUIRE(t.get(i) == u * 2 - 1);
  }
  // Tensor seed + 1 is the same sequence, one element on.
  HostTensor next = fill_tensor(f, DType::F32, {999}, 2025);
  for (int64_t i = 0; i < 999; i++) REQUIRE(next.get(i) == t.get(i + 1));
  CHECK(fill_tensor(f, DType::BF16, {1000}, 2024) == convert(t, DType::BF16));
  CHECK(fill_value(f, DType::BF16, 2024, 17) == round_to(DType::BF16, t.get(17)));
  // Another range is rounded to f32 after the product and after the sum.
  float product = float(double(splitmix64(5) >> 40) * 0x1p-24 * double(10.0f - 0.1f));
  CHECK(fill_value({FillKind::Uniform, 0.1, 10}, DType::F32, 5, 0) == double(product + 0.1f));
}

TEST_CASE("normal values: moments, tails, and the same bits as ever") {
  std::vector<double> v = fill_values({FillKind::Normal, 0, 1}, DType::F64, 200000, 7);
  double sum = 0, square = 0, fourth = 0, largest = 0;
  for (double x : v) {
    sum += x;
    square += x * x;
    fourth += x * x * x * x;
    largest = std::max(largest, std::fabs(x));
  }
  double n = double(v.size());
  CHECK(std::fabs(sum / n) < 0.01);
  CHECK(std::fabs(square / n - 1) < 0.015);
  CHECK(std::fabs(fourth / n - 3) < 0.1);
  CHECK(largest > 4);
  CHECK(largest < 6);
  // Against the formula in the C library, which may differ in the last bits.
  for (int64_t i = 0; i < 2000; i++) {
    double u = double((splitmix64(uint64_t(7 + i)) >> 11) + 1) * 0x1p-53,
           w = double(splitmix64(uint64_t(7 + i) + 0x9e3779b97f4a7c15u) >> 11) * 0x1p-53;
    double want = std::sqrt(-2 * std::log(u)) * std::cos(2 * M_PI * w);
    REQUIRE(std::fabs(v[size_t(i)] - want) < 1e-14);
  }
  // Pinned: every compiler and machine must make these bits.
  CHECK(checksum(fill_tensor({FillKind::Normal, 0, 1}, DType::F64, {100000}, 1)) == 12215909375959399241u);
  CHECK(checksum(fill_tensor({FillKind::Uniform, 0.1, 10}, DType::F32, {100000}, 1)) == 15913913610500832064u);
  // Mean and deviation.
  CHECK(fill_value({FillKind::Normal, 5, 3}, DType::F64, 7, 3) == 5 + 3 * v[3]);
}

TEST_CASE("the other fills") {
  auto values = [](FillKind k, std::vector<double> a, DType t, int64_t n) {
    return fill_values(*make_fill(k, a), t, n, 11);
  };
  CHECK(values(FillKind::Zeros, {}, DType::F16, 2) == std::vector<double>{0, 0});
  CHECK(values(FillKind::Constant, {0.1}, DType::BF16, 1) == std::vector<double>{round_to(DType::BF16, 0.1)});
  CHECK(values(FillKind::Arange, {}, DType::I32, 4) == std::vector<double>{0, 1, 2, 3});
  CHECK(values(FillKind::Arange, {5, -2}, DType::F32, 4) == std::vector<double>{5, 3, 1, -1});
  int64_t ones = 0;
  for (double x : values(FillKind::Bernoulli, {0.1}, DType::Bool, 10000)) ones += x == 1;
  CHECK(ones > 850);
  CHECK(ones < 1150);
  std::vector<int64_t> histogram(7);
  for (double x : values(FillKind::Integers, {-3, 4}, DType::I8, 7000)) histogram[size_t(x + 3)]++;
  for (int64_t h : histogram) CHECK(std::abs(h - 1000) < 150);
  // Every element is a function of its index: a part equals the part of the whole.
  CHECK(fill_value({FillKind::Integers, 0, 1000}, DType::I32, 3, 40000) ==
        fill_values({FillKind::Integers, 0, 1000}, DType::I32, 40001, 3)[40000]);
}

TEST_CASE("edge values of the formats") {
  auto has = [](const std::vector<double> &v, double x) {
    for (double y : v)
      if (y == x && std::signbit(x) == std::signbit(y)) return true;
    return false;
  };
  std::vector<double> half = fill_values(*make_fill(FillKind::Edges, std::vector<double>{}), DType::F16, 40, 0);
  for (double x : {0.0, -0.0, 1.0, -1.0, 65504.0, -65504.0, 0x1p-24, 0x1p-14, 0x1.ff8p-15}) CHECK(has(half, x));
  for (double x : half) CHECK(std::isfinite(x));
  std::vector<double> wide = fill_values(*make_fill(FillKind::Edges, std::vector<double>{2}), DType::F32, 40, 0);
  CHECK(has(wide, kInf));
  CHECK(has(wide, -kInf));
  CHECK(has(wide, 0x1p-149));
  bool nan = false;
  for (double x : wide) nan |= std::isnan(x);
  CHECK(nan);
  CHECK(has(fill_values({FillKind::Edges, 0, 0}, DType::TF32, 40, 0), 0x1p-136));
  CHECK(has(fill_values({FillKind::Edges, 0, 0}, DType::I32, 40, 0), 2147483647.0));
  CHECK(has(fill_values({FillKind::Edges, 0, 0}, DType::U64, 40, 0), 0x1p64));
  for (DType t : all_dtypes()) CHECK(fill_values({FillKind::Edges, 2, 0}, t, 64, 5).size() == 64);
  for (DType t : all_dtypes()) CHECK(fill_values(convention_fill(t), t, 64, 5).size() == 64);
}

TEST_CASE("arguments of fills are checked") {
  auto error = [](FillKind k, std::vector<double> a) { return make_fill(k, a).error(); };
  CHECK(error(FillKind::Constant, {}) == "`constant` takes 1 arguments, not 0");
  CHECK(error(FillKind::Normal, {1, 2, 3}) == "`normal` takes 0 to 2 arguments, not 3");
  CHECK(error(FillKind::Uniform, {2, 1}) == "`uniform(2, 1)` is an empty range");
  CHECK(error(FillKind::Normal, {0, -1}) == "`normal` with a negative deviation -1");
  CHECK(error(FillKind::Bernoulli, {1.5}) == "`bernoulli(1.5)`: not a probability");
  CHECK(error(FillKind::Integers, {0, 0}) == "`integers(0, 0)` is an empty range");
  CHECK(error(FillKind::Integers, {0, 0.5}) == "`integers(0, 0.5)`: the bounds are not integers below 2^53");
  CHECK(error(FillKind::Uniform, {kNan, 1}) == "`uniform` takes finite arguments");
  CHECK(to_string(*make_fill(FillKind::Normal, std::vector<double>{0, 3})) == "normal(0, 3)");
  for (const std::string &name : fill_names()) CHECK(parse_fill_kind(name).has_value());
  CHECK(!parse_fill_kind("gauss"));
}

// ---- comparison

static HostTensor tensor(DType t, std::vector<double> v) { return HostTensor::from_doubles(t, {int64_t(v.size())}, v); }

TEST_CASE("rms ratio and max abs") {
  Comparison c = compare(tensor(DType::F32, {3, 4, 0, 1}), std::vector<double>{3, 4, 0, 0}, {.rms = 0.21});
  CHECK(c.pass);
  CHECK(c.rms_ratio() == doctest::Approx(0.2));
  CHECK(c.max_abs_error == 1);
  CHECK(c.worst->index == 3);
  CHECK_FALSE(compare(tensor(DType::F32, {3, 4, 0, 1}), std::vector<double>{3, 4, 0, 0}, {.rms = 0.19}).pass);
  Comparison m = compare(tensor(DType::F32, {3, 4.5, 0, 1}), std::vector<double>{3, 4, 0, 0}, {.max_abs = 0.4});
  CHECK_FALSE(m.pass);
  CHECK(m.mismatches == 2);
  CHECK(m.first->index == 1);
  CHECK(m.worst->index == 3);
  CHECK(compare(HostTensor::zeros(DType::F32, {0}), std::vector<double>{}, {.rms = 0.1, .max_abs = 0.0}).pass);
}

TEST_CASE("a zero reference is compared absolutely, huge and tiny values without overflow") {
  Comparison z = compare(tensor(DType::F32, {0.01, -0.01}), std::vector<double>{0, 0}, {.rms = 0.02});
  CHECK(z.zero_reference());
  CHECK(z.pass);
  CHECK(z.rms_ratio() == doctest::Approx(0.01));
  CHECK_FALSE(compare(tensor(DType::F32, {0.03, 0.03}), std::vector<double>{0, 0}, {.rms = 0.02}).pass);
  for (double scale : {1e300, 1e-300, 0x1p-1060}) {
    Comparison c = compare(tensor(DType::F64, {3 * scale, 4.4 * scale}), std::vector<double>{3 * scale, 4 * scale}, {});
    CHECK(c.rms_ratio() == doctest::Approx(0.08).epsilon(1e-3));
  }
}

TEST_CASE("NaN and infinities pass only where the reference has them") {
  std::vector<double> ref = {1, kNan, kInf, -kInf};
  CHECK(compare(tensor(DType::F32, ref), ref, {.rms = 1e-6}).pass);
  CHECK(compare(tensor(DType::F32, ref), ref, {.exact = true}).pass);
  for (size_t i = 0; i < 4; i++)
    for (double bad : {2.0, kNan, kInf, -kInf}) {
      if (i == 0 && bad == 2.0) continue;
      std::vector<double> v = ref;
      v[i] = bad;
      bool same = bad == ref[i] || (std::isnan(bad) && std::isnan(ref[i]));
      Comparison c = compare(tensor(DType::F32, v), ref, {.rms = 10});
      CHECK(c.pass == same);
      CHECK(c.nonfinite_mismatches == (same ? 0 : 1));
      if (!same) CHECK(c.first->index == int64_t(i));
    }
  // A finite reference that the dtype rounds to infinity is met by infinity.
  CHECK(compare(tensor(DType::F16, {kInf}), std::vector<double>{1e6}, {.rms = 1e-3}).pass);
  CHECK_FALSE(compare(tensor(DType::F32, {kInf}), std::vector<double>{1e6}, {.rms = 1e-3}).pass);
  CHECK(compare(tensor(DType::E4M3, {448}), std::vector<double>{kInf}, {.rms = 1e-3}).pass);
  CHECK_FALSE(compare(tensor(DType::I32, {0}), std::vector<double>{kNan}, {}).pass);
}

TEST_CASE("one wrong element among a million does not hide under an rms limit") {
  std::vector<double> ref = fill_values({FillKind::Normal, 0, 1}, DType::F64, 1 << 20, 3);
  HostTensor got = HostTensor::from_doubles(DType::BF16, {1 << 10, 1 << 10}, ref);
  Comparison good = compare(got, ref, {.rms = 4e-3});
  CHECK(good.pass);
  CHECK(good.rms_ratio() < 2.5e-3);
  got.set(777777, got.get(777777) + 0.9);
  Comparison c = compare(got, ref, {.rms = 4e-3});
  CHECK(c.rms_ratio() < 4e-3);
  CHECK_FALSE(c.pass);
  CHECK(c.mismatches == 1);
  CHECK(c.first->index == 777777);
  CHECK(coordinates(c.shape, c.first->index) == std::vector<int64_t>{759, 561});
  CHECK(compare(got, ref, {.rms = 4e-3, .outlier = 0}).pass);
}

TEST_CASE("exact comparison rounds the reference to the dtype; integers beyond 2^53 are told apart") {
  CHECK(compare(tensor(DType::BF16, {0.1, -0.0}), std::vector<double>{0.1, 0}, {.exact = true}).pass);
  CHECK_FALSE(compare(tensor(DType::F32, {0.1}), std::vector<double>{0.11}, {.exact = true}).pass);
  HostTensor a = HostTensor::zeros(DType::I64, {2}), b = a;
  a.set_int(1, (int64_t(1) << 60) + 1);
  b.set_int(1, int64_t(1) << 60);
  Comparison c = compare(a, b, {.exact = true});
  CHECK_FALSE(c.pass);
  CHECK(c.first->index == 1);
  CHECK(compare(a, a, {.exact = true}).pass);
}

TEST_CASE("the report names the first and the worst element") {
  HostTensor got = HostTensor::from_doubles(DType::F32, {2, 3}, std::vector<double>{1, 2, 3.5, 4, 9, 6});
  Comparison c = compare(got, std::vector<double>{1, 2, 3, 4, 5, 6}, {.max_abs = 0.1});
  CHECK(c.to_string("y") == "y: MISMATCH  f32[2, 3]  rms 4.23e-01  max abs 4.00e+00 (limit 0.1)\n"
                            "  2 of 6 elements differ\n"
                            "  first at [0, 2]: got 3.5, expected 3, off by 0.5\n"
                            "  worst at [1, 1]: got 9, expected 5, off by 4\n");
  c.dims = {"", "K"};
  c.first->place = {{"sequence", 0}, {"chunk", 2}};
  std::string text = c.to_string("y");
  CHECK(text.find("  first at [0, 2] = K 2, in sequence 0, chunk 2: got 3.5, expected 3, off by 0.5\n") != text.npos);
  CHECK(text.find("  worst at [1, 1] = K 1: got 9, expected 5, off by 4\n") != text.npos);
  CHECK(compare(got, got, {.rms = 1e-3}).to_string("y") ==
        "y: ok  f32[2, 3]  rms 0.00e+00 (limit 0.001)  max abs 0.00e+00\n");
}

TEST_CASE("poison: found again, reported as never written") {
  for (DType t : all_dtypes()) {
    CAPTURE(dtype_name(t));
    HostTensor x = HostTensor::zeros(t, {5});
    CHECK(find_poison(x).count == 0);
    poison(x);
    CHECK(find_poison(x).count == 5);
    if (is_float(t) && t != DType::E2M1)
      for (double v : x.to_doubles()) CHECK(std::isnan(v));
    x.set(2, 1);
    x.set(0, 1);
    CHECK(find_poison(x).count == 3);
    CHECK(find_poison(x).first == 1);
  }
  HostTensor y = HostTensor::zeros(DType::F16, {4});
  poison(y);
  y.set(0, 1);
  Comparison c = compare(y, std::vector<double>{1, 1, 1, 1}, {.rms = 1e-3});
  CHECK(c.unwritten == 3);
  CHECK(c.to_string("y").find("3 of them were never written") != std::string::npos);
  // An ordinary NaN is no poison.
  CHECK(compare(tensor(DType::F16, {kNan}), std::vector<double>{1}, {}).unwritten == 0);
}
