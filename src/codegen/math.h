// Elementary functions of one f32 or f64 value in LLVM IR: there is no library on the device to call.
//
// f32, fast (the default): one or two instructions of the special function unit; subnormal arguments and results count
// as zero in exp, exp2, sigmoid, sqrt, rsqrt, rcp and div. f32, precise: about 2 ulp everywhere, subnormals included.
// f64 has one form. Maximal errors, relative unless said otherwise:
//
//   function      f32 fast                        f32 precise         f64
//   exp           2^-22 + |x| 2^-24               2^-22               2^-52
//   exp2          2^-22.5                         2^-22.5             2^-52
//   expm1         2^-22                           2^-22               2^-51
//   log, log2     2^-22 absolute near 1, else rel 2^-22.5             2^-51
//   log1p         2^-22                           2^-22               2^-51
//   sqrt          2^-23                           rounded             rounded
//   rsqrt         2^-22.9                         2^-23               2^-52
//   rcp, div      2^-23, 2^-22                    rounded             rounded
//   sin, cos      2^-20.5 absolute for |x| <= pi, 2^-22.5,            2^-51,
//                 growing with |x|                |x| < 2^30          |x| < 2^30
//   tanh          2^-22                           2^-22               2^-50
//   sigmoid       2^-21 + |x| 2^-24               2^-22               2^-51
//   erf           2^-22                           2^-22               2^-49
//   pow           |b log2 a| 2^-22                2^-23               |b log2 a| 2^-51
#pragma once
#include "codegen/nvvm.h"

namespace tkc::codegen {

class Math {
public:
  using V = llvm::Value *;
  Math(nvvm::Builder &builder, bool precise) : b_(builder), precise_(precise) {}

  V exp(V x);
  V exp2(V x);
  V expm1(V x);
  V log(V x);
  V log2(V x);
  V log1p(V x);
  V sqrt(V x);
  V rsqrt(V x);
  V rcp(V x);
  V div(V x, V y);
  V sin(V x);
  V cos(V x);
  V tanh(V x);
  V sigmoid(V x);
  V erf(V x);
  V pow(V x, V y);

private:
  struct Reduced { // x = n * ln 2 + f, |f| <= ln 2 / 2
    V n, f;
  };
  struct Split { // x = 2^e * m, 3/4 <= m < 3/2 (f32) or sqrt(1/2) <= m < sqrt(2) (f64)
    V e, m;
  };
  static bool is_double(V x) { return x->getType()->isDoubleTy(); }
  V constant(V like, double v);
  V poly(V x, std::span<const double> coefficients); // lowest first
  V clamp(V x, double lo, double hi);                // NaN stays
  V scale(V x, V n);                                 // x * 2^n in two steps: n may pass the exponent range once
  V power(V like, V n);                              // 2^n of an integer n within the exponent range
  V abs(V x);
  V floating(V n, V like);
  Reduced reduce_exp(V x);
  V expm1_reduced(V f);
  Split split(V x);
  V log_finite(V x, double unit, double unit_low); // of x > 0 in units of ln 2 * unit
  V log_mantissa(V f);                             // log(1 + f)
  V trigonometric(V x, int quadrant);
  V pow_double(V x, V y);
  V sign_of_power(V x, V y, V magnitude);

  nvvm::Builder &b_;
  bool precise_;
};

} // namespace tkc::codegen
