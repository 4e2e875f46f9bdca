// Reductions of one axis: sums, extrema, quantifiers and their positions.
#include "ops/adjoint.h"
#include "ops/combine.h"
#include "ops/scratch.h"
#include <algorithm>

namespace tkc::ops {

namespace {

std::optional<RegLayout> reduce_layout(const Op &op, const RegLayout &l) { return l.slice(int(op.attrs.i("axis"))); }
constexpr ir::LayoutRule kReduced = {ir::LayoutKind::Structural, reduce_layout};

template <unsigned kSet, bool kPosition = false> void infer_reduce(InferCtx &ctx, Op &op) {
  if (!has_operands(ctx, op, 1, 1) || !is_tile(ctx, op, 0, kSet)) return;
  const Type &x = op.operand(0)->type;
  if (!normalise_axis(ctx, op, x.rank())) return;
  std::vector<int64_t> shape = x.shape;
  shape.erase(shape.begin() + op.attrs.i("axis"));
  tile_result(ctx, op, Type::tile(kPosition ? DType::I32 : x.dtype, shape));
}

// F::start_f and F::f for floats, in double with one rounding at the end; F::start_i and F::i for integers.
template <typename F> void interp_reduce(interp::Ctx &ctx, const Op &op) {
  const interp::Tile &x = ctx.tile(op.operand(0));
  AxisSplit s(x.shape, op.attrs.i("axis"));
  interp::Tile t(x.dtype, op.result()->type.shape);
  if constexpr (requires { F::start_f; })
    if (x.is_float()) {
      std::fill(t.f.begin(), t.f.end(), F::start_f);
      for (int64_t o = 0; o < s.before; o++)
        for (int64_t k = 0; k < s.at; k++) {
          const double *in = x.f.data() + (o * s.at + k) * s.after;
          double *out = t.f.data() + o * s.after;
          for (int64_t i = 0; i < s.after; i++) out[i] = F::f(out[i], in[i]);
        }
      for (double &v : t.f) v = round_to(x.dtype, v);
    }
  if (!x.is_float()) {
    std::fill(t.i.begin(), t.i.end(), F::start_i(x.dtype));
    for (int64_t o = 0; o < s.before; o++)
      for (int64_t k = 0; k < s.at; k++)
        for (int64_t i = 0; i < s.after; i++) {
          int64_t &v = t.i[size_t(o * s.after + i)];
          v = F::i(x.dtype, v, x.i[size_t((o * s.at + k) * s.after + i)]);
        }
    for (int64_t &v : t.i) v = wrap_to(x.dtype, v);
  }
  ctx.set(op.result(), std::move(t));
}

struct AnyF {
  static int64_t start_i(DType) { return 0; }
  static int64_t i(DType, int64_t a, int64_t b) { return a | b; }
};
struct AllF {
  static int64_t start_i(DType) { return 1; }
  static int64_t i(DType, int64_t a, int64_t b) { return a & b; }
};

// The first position of the extremum. NaN is beaten by any number, so an axis of NaNs alone gives 0.
template <bool kLargest> void interp_position(interp::Ctx &ctx, const Op &op) {
  const interp::Tile &x = ctx.tile(op.operand(0));
  AxisSplit s(x.shape, op.attrs.i("axis"));
  interp::Tile t(DType::I32, op.result()->type.shape);
  auto better = [&](int64_t a, int64_t b) { // element a against b, the best so far
    if (!x.is_float()) {
      int64_t p = x.i[size_t(a)], q = x.i[size_t(b)];
      return kLargest ? int_less(x.dtype, q, p) : int_less(x.dtype, p, q);
    }
    double p = x.f[size_t(a)], q = x.f[size_t(b)];
    if (std::isnan(q)) return !std::isnan(p);
    return kLargest ? p > q : p < q;
  };
  for (int64_t o = 0; o < s.before; o++)
    for (int64_t i = 0; i < s.after; i++) {
      int64_t best = 0;
      for (int64_t k = 1; k < s.at; k++)
        if (better((o * s.at + k) * s.after + i, (o * s.at + best) * s.after + i)) best = k;
      t.i[size_t(o * s.after + i)] = best;
    }
  ctx.set(op.result(), std::move(t));
}

} // namespace
} // namespace tkc::ops

namespace tkc::ir {
using namespace ops;

constexpr OpDef kReduceSum = {
    .name = "reduce_sum",
    .source = "sum",
    .signature = "sum(x: tile, axis: int = all)",
    .doc =
        "The sum along an axis, which disappears; without `axis`, of everything. Floats are added in f32 at least (f64 "
        "in f64) and rounded once to the dtype of x, in an order that is fixed for a compiled kernel but not "
        "specified; "
        "integers wrap.",
    .example = "let t = load(x[:, :]);\nlet a = t / sum(abs(t), axis = 1)[:, None];\n# store(y[:, :], a);",
    .layout = kReduced,
    .scratch = reduce_scratch,
    .derivative = adjoint(adjoint_ReduceSum),
    .infer = infer_reduce<kNumbers>,
    .interp = interp_reduce<SumF>,
    .lower = lower_ReduceSum};

constexpr OpDef kReduceProd = {.name = "reduce_prod",
                               .source = "prod",
                               .signature = "prod(x: tile, axis: int = all)",
                               .doc = "The product along an axis; floats in f32 at least, rounded once; integers wrap.",
                               .example =
                                   "let t = load(x[:, :]);\nlet a = prod(t[:, 0 : 4], axis = 1);\n# store(y[:, 0], a);",
                               .layout = kReduced,
                               .scratch = reduce_scratch,
                               .derivative = adjoint(adjoint_ReduceProd, kX),
                               .infer = infer_reduce<kNumbers>,
                               .interp = interp_reduce<ProdF>,
                               .lower = lower_ReduceProd};

constexpr OpDef kReduceMax = {
    .name = "reduce_max",
    .source = "max",
    .signature = "max(x: tile, axis: int = all)",
    .doc = "The largest element along an axis. NaNs are ignored; an axis of NaNs alone gives -inf.",
    .example = "let t = load(x[:, :]);\nlet a = exp(t - max(t, axis = 1)[:, None]);\n# store(y[:, :], a);",
    .layout = kReduced,
    .scratch = reduce_scratch,
    .derivative = adjoint(adjoint_ReduceMax, kX),
    .infer = infer_reduce<kNumbers>,
    .interp = interp_reduce<MaxF>,
    .lower = lower_ReduceMax};

constexpr OpDef kReduceMin = {
    .name = "reduce_min",
    .source = "min",
    .signature = "min(x: tile, axis: int = all)",
    .doc = "The smallest element along an axis. NaNs are ignored; an axis of NaNs alone gives +inf.",
    .example = "let t = load(x[:, :]);\nlet a = t - min(t, axis = 0)[None, :];\n# store(y[:, :], a);",
    .layout = kReduced,
    .scratch = reduce_scratch,
    .derivative = adjoint(adjoint_ReduceMin, kX),
    .infer = infer_reduce<kNumbers>,
    .interp = interp_reduce<MinF>,
    .lower = lower_ReduceMin};

constexpr OpDef kReduceAny = {
    .name = "reduce_any",
    .source = "any",
    .signature = "any(x: tile, axis: int = all)",
    .doc = "True where any element along the axis is true.",
    .example = "let t = load(x[:, :]);\nlet bad = any(isnan(t), axis = 1);\nlet a = where(bad[:, None], 0.0, t);\n"
               "# store(y[:, :], a);",
    .layout = kReduced,
    .scratch = reduce_scratch,
    .derivative = kNoFloats,
    .infer = infer_reduce<kBools>,
    .interp = interp_reduce<AnyF>,
    .lower = lower_ReduceAny};

constexpr OpDef kReduceAll = {
    .name = "reduce_all",
    .source = "all",
    .signature = "all(x: tile, axis: int = all)",
    .doc = "True where every element along the axis is true.",
    .example = "let t = load(x[:, :]);\nlet good = all(isfinite(t), axis = 1);\nlet a = where(good[:, None], t, 0.0);\n"
               "# store(y[:, :], a);",
    .layout = kReduced,
    .scratch = reduce_scratch,
    .derivative = kNoFloats,
    .infer = infer_reduce<kBools>,
    .interp = interp_reduce<AllF>,
    .lower = lower_ReduceAll};

constexpr OpDef kArgMax = {
    .name = "argmax",
    .source = "argmax",
    .signature = "argmax(x: tile, axis: int)",
    .doc =
        "The position of the largest element along an axis, the first of equals, as i32. NaNs are ignored; an axis of "
        "NaNs alone gives 0.",
    .example = "let t = load(x[:, :]);\nlet top = argmax(t, axis = 1);\n# store(y[:, 0], f32(top));",
    .layout = kReduced,
    .scratch = reduce_scratch,
    .derivative = kNoFloats,
    .infer = infer_reduce<kNumbers, true>,
    .interp = interp_position<true>,
    .lower = lower_ArgMax};

constexpr OpDef kArgMin = {
    .name = "argmin",
    .source = "argmin",
    .signature = "argmin(x: tile, axis: int)",
    .doc =
        "The position of the smallest element along an axis, the first of equals, as i32. NaNs are ignored; an axis of "
        "NaNs alone gives 0.",
    .example = "let t = load(x[:, :]);\nlet low = argmin(t, axis = 1);\n# store(y[:, 0], f32(low));",
    .layout = kReduced,
    .scratch = reduce_scratch,
    .derivative = kNoFloats,
    .infer = infer_reduce<kNumbers, true>,
    .interp = interp_position<false>,
    .lower = lower_ArgMin};

} // namespace tkc::ir
