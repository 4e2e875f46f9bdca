// Derivatives of the functions of each element.
#include "ops/adjoint.h"

namespace tkc::ops {

namespace {

// Adds to operand i the cotangent of the result times d(k) in element k; 0 stays 0 where d is infinite.
template <typename D> void chain(Reverse &r, const Op &op, size_t i, D &&d) {
  if (!r.wants(op, i)) return;
  const Cotangent &g = r.of(op);
  Cotangent &out = r.into(op, i);
  for (size_t k = 0; k < g.size(); k++)
    if (g[k] != 0) out[k] += g[k] * d(k);
}

// A function of one operand whose derivative follows from the operand or from the result.
template <typename D> void of_operand(Reverse &r, const Op &op, D &&d) {
  const std::vector<double> &x = r.operand(op, 0).f;
  chain(r, op, 0, [&](size_t k) { return d(x[k]); });
}
template <typename D> void of_result(Reverse &r, const Op &op, D &&d) {
  const std::vector<double> &y = r.result(op).f;
  chain(r, op, 0, [&](size_t k) { return d(y[k]); });
}

double one(size_t) { return 1; }

// 1 / cosh(x)^2 without the cancellation of 1 - tanh(x)^2.
double sech2(double x) {
  double e = std::exp(-2 * std::fabs(x));
  return 4 * e / ((1 + e) * (1 + e));
}

// Of two equal elements the first is the one that was chosen; a NaN never is.
template <bool kLargest> void select(Reverse &r, const Op &op) {
  const std::vector<double> &a = r.operand(op, 0).f, &b = r.operand(op, 1).f;
  auto first = [&](size_t k) {
    if (std::isnan(a[k])) return false;
    return std::isnan(b[k]) || (kLargest ? a[k] >= b[k] : a[k] <= b[k]);
  };
  chain(r, op, 0, [&](size_t k) { return first(k) ? 1.0 : 0.0; });
  chain(r, op, 1, [&](size_t k) { return first(k) ? 0.0 : 1.0; });
}

} // namespace

void adjoint_Neg(Reverse &r, const Op &op) {
  chain(r, op, 0, [](size_t) { return -1.0; });
}
void adjoint_Abs(Reverse &r, const Op &op) { // 0 at 0
  of_operand(r, op, [](double x) { return double(x > 0) - double(x < 0); });
}
void adjoint_Exp(Reverse &r, const Op &op) {
  of_result(r, op, [](double y) { return y; });
}
void adjoint_Exp2(Reverse &r, const Op &op) {
  of_result(r, op, [](double y) { return y * M_LN2; });
}
void adjoint_Expm1(Reverse &r, const Op &op) {
  of_operand(r, op, [](double x) { return std::exp(x); });
}
void adjoint_Log(Reverse &r, const Op &op) {
  of_operand(r, op, [](double x) { return 1 / x; });
}
void adjoint_Log2(Reverse &r, const Op &op) {
  of_operand(r, op, [](double x) { return M_LOG2E / x; });
}
void adjoint_Log1p(Reverse &r, const Op &op) {
  of_operand(r, op, [](double x) { return 1 / (1 + x); });
}
void adjoint_Sqrt(Reverse &r, const Op &op) {
  of_result(r, op, [](double y) { return 0.5 / y; });
}
void adjoint_Rsqrt(Reverse &r, const Op &op) {
  of_result(r, op, [](double y) { return -0.5 * y * y * y; });
}
void adjoint_Rcp(Reverse &r, const Op &op) {
  of_result(r, op, [](double y) { return -y * y; });
}
void adjoint_Sin(Reverse &r, const Op &op) {
  of_operand(r, op, [](double x) { return std::cos(x); });
}
void adjoint_Cos(Reverse &r, const Op &op) {
  of_operand(r, op, [](double x) { return -std::sin(x); });
}
void adjoint_Tanh(Reverse &r, const Op &op) { of_operand(r, op, sech2); }
void adjoint_Sigmoid(Reverse &r, const Op &op) {
  of_operand(r, op, [](double x) { return sech2(x / 2) / 4; });
}
void adjoint_Erf(Reverse &r, const Op &op) {
  of_operand(r, op, [](double x) { return M_2_SQRTPI * std::exp(-x * x); });
}

void adjoint_Add(Reverse &r, const Op &op) {
  chain(r, op, 0, one);
  chain(r, op, 1, one);
}
void adjoint_Sub(Reverse &r, const Op &op) {
  chain(r, op, 0, one);
  chain(r, op, 1, [](size_t) { return -1.0; });
}
void adjoint_Mul(Reverse &r, const Op &op) {
  const std::vector<double> &a = r.operand(op, 0).f, &b = r.operand(op, 1).f;
  chain(r, op, 0, [&](size_t k) { return b[k]; });
  chain(r, op, 1, [&](size_t k) { return a[k]; });
}
void adjoint_Div(Reverse &r, const Op &op) {
  const std::vector<double> &b = r.operand(op, 1).f, &y = r.result(op).f;
  chain(r, op, 0, [&](size_t k) { return 1 / b[k]; });
  chain(r, op, 1, [&](size_t k) { return -y[k] / b[k]; });
}
// With respect to the exponent the base counts as positive: at 0 the derivative is its limit, 0.
void adjoint_Pow(Reverse &r, const Op &op) {
  const std::vector<double> &a = r.operand(op, 0).f, &b = r.operand(op, 1).f, &y = r.result(op).f;
  chain(r, op, 0, [&](size_t k) { return b[k] == 0 ? 0 : b[k] * std::pow(a[k], b[k] - 1); });
  chain(r, op, 1, [&](size_t k) { return y[k] == 0 ? 0 : y[k] * std::log(a[k]); });
}
void adjoint_Max(Reverse &r, const Op &op) { select<true>(r, op); }
void adjoint_Min(Reverse &r, const Op &op) { select<false>(r, op); }

void adjoint_Where(Reverse &r, const Op &op) {
  const std::vector<int64_t> &c = r.operand(op, 0).i;
  chain(r, op, 1, [&](size_t k) { return c[k] ? 1.0 : 0.0; });
  chain(r, op, 2, [&](size_t k) { return c[k] ? 0.0 : 1.0; });
}
void adjoint_Fma(Reverse &r, const Op &op) {
  const std::vector<double> &a = r.operand(op, 0).f, &b = r.operand(op, 1).f;
  chain(r, op, 0, [&](size_t k) { return b[k]; });
  chain(r, op, 1, [&](size_t k) { return a[k]; });
  chain(r, op, 2, one);
}
// Between floats; an integer on either side has no cotangent.
void adjoint_Cast(Reverse &r, const Op &op) { r.add(op, 0, r.take(op.result())); }

} // namespace tkc::ops
