#include "codegen/math.h"
#include "support/check.h"
#include "llvm/IR/Intrinsics.h"
#include <array>
#include <limits>

namespace tkc::codegen {

using llvm::Value;
using V = llvm::Value *;
namespace Intrinsic = llvm::Intrinsic;

namespace {

constexpr double kLog2E = 0x1.71547652b82fep+0, kLn2 = 0x1.62e42fefa39efp-1;
// ln 2 and pi / 2 in parts whose products with small integers are exact or nearly so.
constexpr double kLn2High32 = 0x1.62e4p-1, kLn2Low32 = 0x1.7f7d1cf79abcap-20;
constexpr double kLn2High64 = 0x1.62e42fefa3800p-1, kLn2Low64 = 0x1.ef35793c76730p-45;
constexpr double kHalfPiHigh = 0x1.921fb54442d18p+0, kHalfPiLow = 0x1.1a62633145c07p-54;
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Polynomials are Chebyshev fits; the comment says what of which argument, and the error of the fit.
// (log(1 + f) - f) / f^2 on [-1/4, 1/2], 3e-8
constexpr double kLog32[] = {-0x1.000000p-1, 0x1.555580p-2,  -0x1.000068p-2, 0x1.997802p-3, -0x1.54f19ap-3,
                             0x1.27b318p-3,  -0x1.0cc1acp-3, 0x1.b339ccp-4,  -0x1.842826p-5};
// (log((1 + s) / (1 - s)) - 2 s) / s^3 of s^2, |s| <= 0.172, 3e-16
constexpr double kLog64[] = {0x1.5555555555558p-1, 0x1.99999999952e2p-2, 0x1.2492492df148dp-2, 0x1.c71c62e5800a1p-3,
                             0x1.7462b4ab2ef6bp-3, 0x1.39fe606542ddep-3, 0x1.2b584aae78a57p-3};
// (exp(f) - 1 - f) / f^2, |f| <= ln 2 / 2, 6e-8 and 1e-16
constexpr double kExpm1_32[] = {0x1.000000p-1, 0x1.5554dep-3, 0x1.55551ap-5, 0x1.120b62p-7, 0x1.6d10fcp-10};
constexpr double kExpm1_64[] = {
    0x1.0000000000001p-1,  0x1.5555555555556p-3,  0x1.5555555553d68p-5,  0x1.11111111109b5p-7,  0x1.6c16c17889ef1p-10,
    0x1.a01a01a7c2efep-13, 0x1.a019b9149a41cp-16, 0x1.71de0db2f6b19p-19, 0x1.28917c89a43a7p-22, 0x1.af389ecfc4b9cp-26};
// (tanh(x) / x - 1) / x^2 of x^2, |x| <= 0.6, 3e-8
constexpr double kTanh[] = {-0x1.555554p-2, 0x1.110ee0p-3, -0x1.b955dcp-5, 0x1.59e1c8p-6, -0x1.9ada60p-8};
// (sin(x) / x - 1) / x^2 and (cos(x) - 1 + x^2 / 2) / x^4 of x^2, |x| <= pi / 4
constexpr double kSin32[] = {-0x1.555552p-3, 0x1.110c28p-7, -0x1.9ac9b0p-13};
constexpr double kCos32[] = {0x1.555554p-5, -0x1.6c12d2p-10, 0x1.9bd89cp-16};
constexpr double kSin64[] = {-0x1.5555555555555p-3, 0x1.1111111110bb2p-7,   -0x1.a01a019e83aaep-13,
                             0x1.71de37968a100p-19, -0x1.ae600b02b6262p-26, 0x1.5e0b19f8b1451p-33};
constexpr double kCos64[] = {0x1.5555555555555p-5,   -0x1.6c16c16c16967p-10, 0x1.a01a019f4eb01p-16,
                             -0x1.27e4fa17da09ep-22, 0x1.1eeb68e93b64cp-29,  -0x1.907da367a37cbp-37};
// erf(x) / x of x^2, |x| <= 1, 4e-8 and 1e-19
constexpr double kErf32[] = {0x1.20dd74p+0,  -0x1.812680p-2, 0x1.ce0ab2p-4,
                             -0x1.b5b310p-6, 0x1.428d76p-8,  -0x1.281efap-11};
constexpr double kErf64[] = {0x1.20dd750429b6dp+0,   -0x1.812746b0379e6p-2,  0x1.ce2f21a042b30p-4,
                             -0x1.b82ce31284e00p-6,  0x1.565bcd0dbaa38p-8,   -0x1.c02db3dac435fp-11,
                             0x1.f9a321d5b8e1ep-14,  -0x1.f4d1e3183f7aep-17, 0x1.b9df224ca4b97p-20,
                             -0x1.5f1ecb6f0764cp-23, 0x1.f7b4bf3b13964p-27,  -0x1.389d4f2641625p-30,
                             0x1.05ffd737fb32ep-34};
// log2(erfc(x)), 1 <= x <= 4, 5e-7 absolute
constexpr double kLogErfc32[] = {-0x1.21a868p-10, -0x1.9fd384p+0, -0x1.d81ba6p-1, -0x1.312892p-3,
                                 0x1.0b27e2p-5,   -0x1.448608p-8, 0x1.df745cp-12, -0x1.413fe8p-16};
// erfc(x) * exp(x^2) * x of (x - 2) / (x + 2), 1 <= x <= 6, 5e-18
constexpr double kErfc64[] = {
    0x1.058671b52c776p-1,  0x1.5672b9ea13de4p-3,  -0x1.a1791e43ece91p-3, 0x1.f1b9a3c943255p-4,   -0x1.dac006bb0b8c6p-6,
    -0x1.ec8d2aafa9ecfp-8, 0x1.399546d1d88ccp-8,  0x1.2758bdf9173f2p-10, -0x1.89501316ceb41p-11, -0x1.499f47218051dp-12,
    0x1.770c6e3bead42p-14, 0x1.76a7b43ed6b0bp-14, 0x1.a330a95a839bcp-18, -0x1.3f262e9f6a897p-16, -0x1.23bfbbfd32b67p-17,
    0x1.d6c83a99e5633p-20, 0x1.7eba1772ad098p-19};

} // namespace

// ---- pieces

V Math::constant(V like, double v) { return llvm::ConstantFP::get(like->getType(), v); }

V Math::poly(V x, std::span<const double> c) {
  V sum = constant(x, c.back());
  for (size_t i = c.size() - 1; i-- > 0;) sum = nvvm::fma_rn(b_, sum, x, constant(x, c[i]));
  return sum;
}

V Math::abs(V x) { return b_.CreateUnaryIntrinsic(Intrinsic::fabs, x); }

// min.NaN and max.NaN.
V Math::clamp(V x, double lo, double hi) {
  V above = b_.CreateBinaryIntrinsic(Intrinsic::maximum, x, constant(x, lo));
  return b_.CreateBinaryIntrinsic(Intrinsic::minimum, above, constant(x, hi));
}

V Math::power(V like, V n) {
  if (is_double(like)) {
    V bits = b_.CreateShl(b_.CreateAdd(b_.CreateSExt(n, b_.getInt64Ty()), b_.getInt64(1023)), b_.getInt64(52));
    return b_.CreateBitCast(bits, like->getType());
  }
  return b_.CreateBitCast(b_.CreateShl(b_.CreateAdd(n, b_.getInt32(127)), b_.getInt32(23)), like->getType());
}

V Math::scale(V x, V n) {
  V half = b_.CreateAShr(n, b_.getInt32(1));
  return b_.CreateFMul(b_.CreateFMul(x, power(x, half)), power(x, b_.CreateSub(n, half)));
}

V Math::floating(V n, V like) { return b_.CreateSIToFP(n, like->getType()); }

Math::Reduced Math::reduce_exp(V x) {
  V n = b_.CreateUnaryIntrinsic(Intrinsic::rint, b_.CreateFMul(x, constant(x, kLog2E)));
  bool d = is_double(x);
  V f = nvvm::fma_rn(b_, n, constant(x, d ? -kLn2High64 : -kLn2High32), x);
  f = nvvm::fma_rn(b_, n, constant(x, d ? -kLn2Low64 : -kLn2Low32), f);
  // n is small except for NaN, of which any integer will do: the saturating conversion is a defined one.
  V i = b_.CreateIntrinsic(Intrinsic::fptosi_sat, {b_.getInt32Ty(), x->getType()}, {n});
  return {i, f};
}

V Math::expm1_reduced(V f) {
  V p = is_double(f) ? poly(f, kExpm1_64) : poly(f, kExpm1_32);
  return nvvm::fma_rn(b_, b_.CreateFMul(f, f), p, f);
}

// The exponent is that of x / 0.75 (x / sqrt(1/2)): subtracting the bits of the bound leaves it on top.
Math::Split Math::split(V x) {
  bool d = is_double(x);
  llvm::Type *word = d ? b_.getInt64Ty() : b_.getInt32Ty();
  auto integer = [&](uint64_t v) { return llvm::ConstantInt::get(word, v); };
  V bits = b_.CreateBitCast(x, word);
  V offset = b_.CreateSub(bits, integer(d ? 0x3fe6a09e667f3bcd : 0x3f400000));
  V e = b_.CreateAnd(offset, integer(d ? 0xfff0000000000000 : 0xff800000));
  V m = b_.CreateBitCast(b_.CreateSub(bits, e), x->getType());
  V shifted = b_.CreateAShr(e, integer(d ? 52 : 23));
  return {b_.CreateTrunc(shifted, b_.getInt32Ty()), m};
}

V Math::log_mantissa(V f) {
  if (!is_double(f)) return nvvm::fma_rn(b_, b_.CreateFMul(f, f), poly(f, kLog32), f);
  V s = b_.CreateFDiv(f, b_.CreateFAdd(f, constant(f, 2)));
  V s2 = b_.CreateFMul(s, s);
  V tail = b_.CreateFMul(b_.CreateFMul(s2, s), poly(s2, kLog64));
  // 2 s loses the division's rounding; f - s f is 2 s exactly, with a smaller correction term.
  return b_.CreateFSub(f, b_.CreateFSub(b_.CreateFMul(s, f), tail));
}

// e * ln 2 * unit + log(m) * unit of x > 0 finite, subnormals included; the results at 0, below, inf and NaN are lg2's.
V Math::log_finite(V x, double unit, double unit_low) {
  bool d = is_double(x);
  V tiny = b_.CreateFCmpOLT(x, constant(x, d ? 0x1p-1022 : 0x1p-126));
  V scaled = b_.CreateSelect(tiny, b_.CreateFMul(x, constant(x, d ? 0x1p54 : 0x1p24)), x);
  Split s = split(scaled);
  V e = b_.CreateSub(s.e, b_.CreateSelect(tiny, b_.getInt32(d ? 54 : 24), b_.getInt32(0)));
  V ef = floating(e, x);
  V m = log_mantissa(b_.CreateFSub(s.m, constant(x, 1)));
  V r;
  if (unit == 1) {
    V low = nvvm::fma_rn(b_, ef, constant(x, d ? kLn2Low64 : kLn2Low32), m);
    r = nvvm::fma_rn(b_, ef, constant(x, d ? kLn2High64 : kLn2High32), low);
  } else {
    r = nvvm::fma_rn(b_, m, constant(x, unit), b_.CreateFAdd(b_.CreateFMul(m, constant(x, unit_low)), ef));
  }
  V regular = b_.CreateAnd(b_.CreateFCmpOGT(x, constant(x, 0)), b_.CreateFCmpOLT(x, constant(x, kInf)));
  V special = b_.CreateSelect(b_.CreateFCmpOEQ(x, constant(x, 0)), constant(x, -kInf),
                              b_.CreateSelect(b_.CreateFCmpOEQ(x, constant(x, kInf)), x, constant(x, kNan)));
  return b_.CreateSelect(regular, r, special);
}

// ---- exponentials

V Math::exp(V x) {
  bool d = is_double(x);
  if (!d && !precise_) return nvvm::ex2_approx_ftz_f32(b_, b_.CreateFMul(x, constant(x, kLog2E)));
  Reduced r = reduce_exp(d ? clamp(x, -746, 710) : clamp(x, -104, 89));
  V m = d ? b_.CreateFAdd(expm1_reduced(r.f), constant(x, 1))
          : nvvm::ex2_approx_ftz_f32(b_, b_.CreateFMul(r.f, constant(x, kLog2E)));
  return scale(m, r.n);
}

V Math::exp2(V x) {
  if (!is_double(x)) return precise_ ? nvvm::ex2_approx_f32(b_, x) : nvvm::ex2_approx_ftz_f32(b_, x);
  V c = clamp(x, -1076, 1025);
  V n = b_.CreateUnaryIntrinsic(Intrinsic::rint, c);
  V f = b_.CreateFMul(b_.CreateFSub(c, n), constant(x, kLn2));
  V i = b_.CreateIntrinsic(Intrinsic::fptosi_sat, {b_.getInt32Ty(), x->getType()}, {n});
  return scale(b_.CreateFAdd(expm1_reduced(f), constant(x, 1)), i);
}

// 2^n p + (2^n - 1) with p = exp(f) - 1, in units of 1/2 so that 2^1024 is not needed for the largest results.
V Math::expm1(V x) {
  bool d = is_double(x);
  Reduced r = reduce_exp(d ? clamp(x, -40, 710) : clamp(x, -18, 89));
  V half = power(x, b_.CreateSub(r.n, b_.getInt32(1)));
  V sum = nvvm::fma_rn(b_, expm1_reduced(r.f), half, b_.CreateFSub(half, constant(x, 0.5)));
  return b_.CreateFAdd(sum, sum);
}

V Math::sigmoid(V x) {
  V one = constant(x, 1);
  V sum = b_.CreateFAdd(exp(b_.CreateFNeg(x)), one);
  return rcp(sum);
}

V Math::tanh(V x) {
  V magnitude = abs(x);
  auto copysign = [&](V v) { return b_.CreateBinaryIntrinsic(Intrinsic::copysign, v, x); };
  if (is_double(x)) {
    V top = b_.CreateBinaryIntrinsic(Intrinsic::minimum, magnitude, constant(x, 22));
    V t = expm1(b_.CreateFAdd(top, top));
    return copysign(b_.CreateFDiv(t, b_.CreateFAdd(t, constant(x, 2))));
  }
  V e = nvvm::ex2_approx_ftz_f32(b_, b_.CreateFMul(magnitude, constant(x, 2 * kLog2E)));
  V r = nvvm::rcp_approx_ftz_f32(b_, b_.CreateFAdd(e, constant(x, 1)));
  V large = copysign(nvvm::fma_rn(b_, r, constant(x, -2), constant(x, 1)));
  V x2 = b_.CreateFMul(x, x);
  V small = nvvm::fma_rn(b_, b_.CreateFMul(x2, x), poly(x2, kTanh), x);
  return b_.CreateSelect(b_.CreateFCmpOLT(magnitude, constant(x, 0.6)), small, large);
}

// ---- logarithms

V Math::log(V x) {
  if (is_double(x) || precise_) return log_finite(x, 1, 0);
  return b_.CreateFMul(nvvm::lg2_approx_f32(b_, x), constant(x, kLn2));
}

V Math::log2(V x) {
  if (!is_double(x) && !precise_) return nvvm::lg2_approx_f32(b_, x);
  double high = is_double(x) ? kLog2E : double(float(kLog2E));
  double low = is_double(x) ? 0x1.777d0ffda0d24p-56 : kLog2E - high;
  return log_finite(x, high, low);
}

V Math::log1p(V x) {
  V one = constant(x, 1), u = b_.CreateFAdd(x, one);
  V regular = b_.CreateAnd(b_.CreateFCmpOGT(x, constant(x, -1)), b_.CreateFCmpOLT(x, constant(x, kInf)));
  V special = b_.CreateSelect(b_.CreateFCmpOEQ(x, constant(x, -1)), constant(x, -kInf),
                              b_.CreateSelect(b_.CreateFCmpOEQ(x, constant(x, kInf)), x, constant(x, kNan)));
  V r;
  if (is_double(x)) {
    // What rounding 1 + x to u lost, to first order.
    V lost = b_.CreateFSub(x, b_.CreateFSub(u, one));
    r = b_.CreateFAdd(log_finite(u, 1, 0), b_.CreateFDiv(lost, u));
  } else {
    // f = (1 + x) 2^-e - 1 = x 2^-e + (2^-e - 1), the first term by exponent arithmetic, the second exact; 4 * 2^-e
    // never leaves the normal range.
    Split s = split(u);
    V e = b_.CreateShl(s.e, b_.getInt32(23));
    V scaled = b_.CreateBitCast(b_.CreateSub(b_.CreateBitCast(x, b_.getInt32Ty()), e), x->getType());
    V four = b_.CreateBitCast(b_.CreateSub(b_.getInt32(0x40800000), e), x->getType());
    V f = b_.CreateFAdd(scaled, nvvm::fma_rn(b_, four, constant(x, 0.25), constant(x, -1)));
    r = nvvm::fma_rn(b_, floating(s.e, x), constant(x, kLn2), log_mantissa(f));
  }
  return b_.CreateSelect(regular, r, special);
}

// ---- roots and quotients

V Math::sqrt(V x) {
  if (!is_double(x) && !precise_) return nvvm::sqrt_approx_ftz_f32(b_, x);
  return b_.CreateUnaryIntrinsic(Intrinsic::sqrt, x);
}

V Math::rsqrt(V x) {
  if (!is_double(x) && !precise_) return nvvm::rsqrt_approx_ftz_f32(b_, x);
  return b_.CreateFDiv(constant(x, 1), b_.CreateUnaryIntrinsic(Intrinsic::sqrt, x));
}

V Math::rcp(V x) {
  if (!is_double(x) && !precise_) return nvvm::rcp_approx_ftz_f32(b_, x);
  return b_.CreateFDiv(constant(x, 1), x);
}

// The reciprocal as a value of its own: a divisor that many elements share (a row's sum) is inverted once.
V Math::div(V x, V y) {
  if (!is_double(x) && !precise_) return b_.CreateFMul(x, nvvm::rcp_approx_ftz_f32(b_, y));
  return b_.CreateFDiv(x, y);
}

// ---- circular functions

V Math::sin(V x) { return !is_double(x) && !precise_ ? nvvm::sin_approx_ftz_f32(b_, x) : trigonometric(x, 0); }
V Math::cos(V x) { return !is_double(x) && !precise_ ? nvvm::cos_approx_ftz_f32(b_, x) : trigonometric(x, 1); }

// sin(x + quadrant * pi / 2). The argument is reduced in f64, where n * (pi / 2) to 106 bits leaves more than the
// digits that are needed.
V Math::trigonometric(V x, int quadrant) {
  V wide = is_double(x) ? x : b_.CreateFPExt(x, b_.getDoubleTy());
  V n = b_.CreateUnaryIntrinsic(Intrinsic::rint, b_.CreateFMul(wide, constant(wide, 1 / kHalfPiHigh)));
  V f = nvvm::fma_rn(b_, n, constant(wide, -kHalfPiHigh), wide);
  f = nvvm::fma_rn(b_, n, constant(wide, -kHalfPiLow), f);
  V q = b_.CreateIntrinsic(Intrinsic::fptosi_sat, {b_.getInt32Ty(), wide->getType()}, {n});
  if (quadrant) q = b_.CreateAdd(q, b_.getInt32(uint32_t(quadrant)));
  if (!is_double(x)) f = b_.CreateFPTrunc(f, x->getType());
  V f2 = b_.CreateFMul(f, f);
  V sine = nvvm::fma_rn(b_, b_.CreateFMul(f2, f), is_double(x) ? poly(f2, kSin64) : poly(f2, kSin32), f);
  V cosine = is_double(x) ? poly(f2, kCos64) : poly(f2, kCos32);
  cosine = nvvm::fma_rn(b_, b_.CreateFMul(f2, f2), cosine, nvvm::fma_rn(b_, f2, constant(f, -0.5), constant(f, 1)));
  V odd = b_.CreateICmpNE(b_.CreateAnd(q, b_.getInt32(1)), b_.getInt32(0));
  V r = b_.CreateSelect(odd, cosine, sine);
  V negative = b_.CreateICmpNE(b_.CreateAnd(q, b_.getInt32(2)), b_.getInt32(0));
  return b_.CreateSelect(negative, b_.CreateFNeg(r), r);
}

// ---- erf, pow

V Math::erf(V x) {
  V magnitude = abs(x), x2 = b_.CreateFMul(x, x), one = constant(x, 1);
  V small = b_.CreateFMul(x, is_double(x) ? poly(x2, kErf64) : poly(x2, kErf32));
  V complement;
  if (is_double(x)) {
    V y = clamp(magnitude, 1, 6);
    V t = b_.CreateFDiv(b_.CreateFSub(y, constant(x, 2)), b_.CreateFAdd(y, constant(x, 2)));
    complement = b_.CreateFDiv(b_.CreateFMul(poly(t, kErfc64), exp(b_.CreateFNeg(b_.CreateFMul(y, y)))), y);
  } else {
    complement = nvvm::ex2_approx_ftz_f32(b_, poly(clamp(magnitude, 1, 4), kLogErfc32));
  }
  V large = b_.CreateBinaryIntrinsic(Intrinsic::copysign, b_.CreateFSub(one, complement), x);
  return b_.CreateSelect(b_.CreateFCmpOLT(magnitude, one), small, large);
}

V Math::pow(V x, V y) {
  if (is_double(x)) return pow_double(x, y);
  if (precise_) {
    llvm::Type *d = b_.getDoubleTy();
    return b_.CreateFPTrunc(pow_double(b_.CreateFPExt(x, d), b_.CreateFPExt(y, d)), x->getType());
  }
  V r = nvvm::ex2_approx_ftz_f32(b_, b_.CreateFMul(y, nvvm::lg2_approx_f32(b_, abs(x))));
  return sign_of_power(x, y, r);
}

V Math::pow_double(V x, V y) { return sign_of_power(x, y, exp(b_.CreateFMul(y, log_finite(abs(x), 1, 0)))); }

V Math::sign_of_power(V x, V y, V magnitude) {
  auto whole = [&](V v) { return b_.CreateFCmpOEQ(b_.CreateUnaryIntrinsic(Intrinsic::trunc, v), v); };
  V half = b_.CreateFMul(y, constant(y, 0.5));
  V odd = b_.CreateAnd(whole(y), b_.CreateNot(whole(half)));
  V of_negative =
      b_.CreateSelect(whole(y), b_.CreateSelect(odd, b_.CreateFNeg(magnitude), magnitude), constant(x, kNan));
  V r = b_.CreateSelect(b_.CreateFCmpOLT(x, constant(x, 0)), of_negative, magnitude);
  V trivial = b_.CreateOr(b_.CreateFCmpOEQ(y, constant(y, 0)), b_.CreateFCmpOEQ(x, constant(x, 1)));
  return b_.CreateSelect(trivial, constant(x, 1), r);
}

} // namespace tkc::codegen
