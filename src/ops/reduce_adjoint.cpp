// Derivatives of reductions and scans. Both are one recurrence along the axis, p' = f(p, x), whose last or whose every
// value is the result: walked back, it hands the cotangent of p' to x and to p.
#include "ops/adjoint.h"
#include "ops/combine.h"

namespace tkc::ops {

namespace {

// How f depends on p and on x. Of equal elements the first is the extremum; a NaN never is.
struct SumStep : SumF {
  static double dp(double, double) { return 1; }
  static double dx(double, double) { return 1; }
};
struct ProdStep : ProdF {
  static double dp(double, double x) { return x; }
  static double dx(double p, double) { return p; }
};
struct MaxStep : MaxF {
  static double dp(double p, double x) { return x > p ? 0 : 1; }
  static double dx(double p, double x) { return x > p ? 1 : 0; }
};
struct MinStep : MinF {
  static double dp(double p, double x) { return x < p ? 0 : 1; }
  static double dx(double p, double x) { return x < p ? 1 : 0; }
};

double times(double g, double d) { return g == 0 ? 0 : g * d; }

// `each`: the cotangent of every value of p arrives, else only the last one's, as g of the reduced shape.
template <typename Step> void recurrence(Reverse &r, const Op &op, bool each) {
  if (!r.wants(op, 0)) return;
  bool reverse = each && op.attrs.i("reverse"), exclusive = each && op.attrs.i("exclusive");
  const std::vector<double> &x = r.operand(op, 0).f;
  const Cotangent &g = r.of(op);
  Cotangent &out = r.into(op, 0);
  AxisSplit s(op.operand(0)->type.shape, op.attrs.i("axis"));
  std::vector<double> p(size_t(s.at) + 1);
  for (int64_t o = 0; o < s.before; o++)
    for (int64_t i = 0; i < s.after; i++) {
      auto at = [&](int64_t step) { return size_t((o * s.at + (reverse ? s.at - 1 - step : step)) * s.after + i); };
      p[0] = Step::start_f;
      for (int64_t k = 0; k < s.at; k++) p[size_t(k) + 1] = Step::f(p[size_t(k)], x[at(k)]);
      double d = each ? 0 : g[size_t(o * s.after + i)]; // of p[k + 1], then of p[k]
      for (int64_t k = s.at; k-- > 0;) {
        double before = p[size_t(k)], xk = x[at(k)];
        if (each && !exclusive) d += g[at(k)];
        out[at(k)] += times(d, Step::dx(before, xk));
        d = times(d, Step::dp(before, xk));
        if (exclusive) d += g[at(k)];
      }
    }
}

} // namespace

void adjoint_ReduceSum(Reverse &r, const Op &op) {
  if (!r.wants(op, 0)) return;
  const Cotangent &g = r.of(op);
  Cotangent &out = r.into(op, 0);
  AxisSplit s(op.operand(0)->type.shape, op.attrs.i("axis"));
  for (int64_t o = 0; o < s.before; o++)
    for (int64_t k = 0; k < s.at; k++)
      for (int64_t i = 0; i < s.after; i++) out[size_t((o * s.at + k) * s.after + i)] += g[size_t(o * s.after + i)];
}
void adjoint_ReduceProd(Reverse &r, const Op &op) { recurrence<ProdStep>(r, op, false); }
void adjoint_ReduceMax(Reverse &r, const Op &op) { recurrence<MaxStep>(r, op, false); }
void adjoint_ReduceMin(Reverse &r, const Op &op) { recurrence<MinStep>(r, op, false); }
void adjoint_CumSum(Reverse &r, const Op &op) { recurrence<SumStep>(r, op, true); }
void adjoint_CumProd(Reverse &r, const Op &op) { recurrence<ProdStep>(r, op, true); }
void adjoint_CumMax(Reverse &r, const Op &op) { recurrence<MaxStep>(r, op, true); }
void adjoint_CumMin(Reverse &r, const Op &op) { recurrence<MinStep>(r, op, true); }

} // namespace tkc::ops
