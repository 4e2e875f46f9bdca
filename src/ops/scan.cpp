// Running results along an axis.
#include "ops/adjoint.h"
#include "ops/combine.h"
#include "ops/scratch.h"
#include <algorithm>

namespace tkc::ops {

namespace {

void infer_scan(InferCtx &ctx, Op &op) {
  default_attr(op, "axis", int64_t(-1));
  default_attr(op, "reverse", int64_t(0));
  default_attr(op, "exclusive", int64_t(0));
  if (!has_operands(ctx, op, 1, 1) || !is_tile(ctx, op, 0, kNumbers)) return;
  const Type &x = op.operand(0)->type;
  if (normalise_axis(ctx, op, x.rank())) tile_result(ctx, op, x);
}

// The running value is never rounded: only what leaves is.
template <typename T, typename Round, typename Combine>
void scan(std::vector<T> &x, const AxisSplit &s, const Op &op, T start, Round &&round, Combine &&combine) {
  bool reverse = op.attrs.i("reverse") != 0, exclusive = op.attrs.i("exclusive") != 0;
  std::vector<T> running(size_t(s.after));
  for (int64_t o = 0; o < s.before; o++) {
    std::fill(running.begin(), running.end(), start);
    for (int64_t step = 0; step < s.at; step++) {
      int64_t k = reverse ? s.at - 1 - step : step;
      T *row = x.data() + (o * s.at + k) * s.after;
      for (int64_t i = 0; i < s.after; i++) {
        T before = running[size_t(i)];
        running[size_t(i)] = combine(before, row[i]);
        row[i] = round(exclusive ? before : running[size_t(i)]);
      }
    }
  }
}

template <typename F> void interp_scan(interp::Ctx &ctx, const Op &op) {
  interp::Tile t = ctx.take_tile(op, 0);
  AxisSplit s(t.shape, op.attrs.i("axis"));
  DType d = t.dtype;
  if (t.is_float())
    scan(
        t.f, s, op, F::start_f, [d](double v) { return round_to(d, v); }, F::f);
  else
    scan(
        t.i, s, op, F::start_i(d), [d](int64_t v) { return wrap_to(d, v); },
        [d](int64_t a, int64_t b) { return F::i(d, a, b); });
  ctx.set(op.result(), std::move(t));
}

} // namespace
} // namespace tkc::ops

namespace tkc::ir {
using namespace ops;

constexpr OpDef kCumSum = {
    .name = "cumsum",
    .source = "cumsum",
    .signature = "cumsum(x: tile, axis: int = -1, reverse: bool = false, exclusive: bool = false)",
    .doc = "Element k along the axis is the sum of elements 0..k; with `reverse` of k..last; with `exclusive` without "
           "element k itself (0 at the end it starts from). Floats are added in f32 at least and rounded once; "
           "integers wrap.",
    .example = "let a = cumsum(load(x[:, :]), axis = 1);\n# store(y[:, :], a);",
    .layout = {LayoutKind::Anchor},
    .scratch = scan_scratch,
    .derivative = adjoint(adjoint_CumSum, kX),
    .infer = infer_scan,
    .interp = interp_scan<SumF>,
    .lower = lower_CumSum};

constexpr OpDef kCumProd = {
    .name = "cumprod",
    .source = "cumprod",
    .signature = "cumprod(x: tile, axis: int = -1, reverse: bool = false, exclusive: bool = false)",
    .doc = "Running products along the axis; `reverse` and `exclusive` as for `cumsum`, with 1 at the start.",
    .example = "let decay = sigmoid(load(x[:, :]));\nlet a = cumprod(decay, axis = 0, exclusive = true);\n# store(y[:, "
               ":], a);",
    .layout = {LayoutKind::Anchor},
    .scratch = scan_scratch,
    .derivative = adjoint(adjoint_CumProd, kX),
    .infer = infer_scan,
    .interp = interp_scan<ProdF>,
    .lower = lower_CumProd};

constexpr OpDef kCumMax = {
    .name = "cummax",
    .source = "cummax",
    .signature = "cummax(x: tile, axis: int = -1, reverse: bool = false, exclusive: bool = false)",
    .doc =
        "Running maxima along the axis, NaNs ignored; `reverse` and `exclusive` as for `cumsum`, with -inf (the lowest "
        "integer) at the start.",
    .example = "let a = cummax(load(x[:, :]), axis = 1);\n# store(y[:, :], a);",
    .layout = {LayoutKind::Anchor},
    .scratch = scan_scratch,
    .derivative = adjoint(adjoint_CumMax, kX),
    .infer = infer_scan,
    .interp = interp_scan<MaxF>,
    .lower = lower_CumMax};

constexpr OpDef kCumMin = {.name = "cummin",
                           .source = "cummin",
                           .signature =
                               "cummin(x: tile, axis: int = -1, reverse: bool = false, exclusive: bool = false)",
                           .doc = "Running minima along the axis, NaNs ignored; `reverse` and `exclusive` as for "
                                  "`cumsum`, with +inf (the highest "
                                  "integer) at the start.",
                           .example = "let a = cummin(load(x[:, :]), axis = 1, reverse = true);\n# store(y[:, :], a);",
                           .layout = {LayoutKind::Anchor},
                           .scratch = scan_scratch,
                           .derivative = adjoint(adjoint_CumMin, kX),
                           .infer = infer_scan,
                           .interp = interp_scan<MinF>,
                           .lower = lower_CumMin};

} // namespace tkc::ir
