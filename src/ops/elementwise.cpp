// One-operand functions of each element: mathematics, rounding to integers, and tests.
#include "ops/adjoint.h"
#include "ops/common.h"

namespace tkc::ops {

namespace {

template <unsigned kSet> void infer_unary(InferCtx &ctx, Op &op) {
  if (!has_operands(ctx, op, 1, 1) || !is_tile(ctx, op, 0, kSet)) return;
  tile_result(ctx, op, op.operand(0)->type);
}

// A function with an exact form beside the fast one of the hardware.
void infer_math(InferCtx &ctx, Op &op) {
  default_attr(op, "precise", int64_t(0));
  infer_unary<kFloats>(ctx, op);
}

void infer_test(InferCtx &ctx, Op &op) {
  if (!has_operands(ctx, op, 1, 1) || !is_tile(ctx, op, 0, kFloats)) return;
  tile_result(ctx, op, op.operand(0)->type.with_dtype(DType::Bool));
}

template <double (*F)(double)> void interp_math(interp::Ctx &ctx, const Op &op) {
  interp::Tile t = ctx.take_tile(op, 0);
  for (double &x : t.f) x = round_to(t.dtype, F(x));
  ctx.set(op.result(), std::move(t));
}

template <bool (*F)(double)> void interp_test(interp::Ctx &ctx, const Op &op) {
  const interp::Tile &x = ctx.tile(op.operand(0));
  interp::Tile t(DType::Bool, x.shape);
  for (size_t k = 0; k < x.f.size(); k++) t.i[k] = F(x.f[k]);
  ctx.set(op.result(), std::move(t));
}

void interp_neg(interp::Ctx &ctx, const Op &op) {
  interp::Tile t = ctx.take_tile(op, 0);
  for (double &x : t.f) x = -x;
  for (int64_t &x : t.i) x = wrap_to(t.dtype, int64_t(0 - uint64_t(x)));
  ctx.set(op.result(), std::move(t));
}

void interp_abs(interp::Ctx &ctx, const Op &op) {
  interp::Tile t = ctx.take_tile(op, 0);
  for (double &x : t.f) x = std::fabs(x);
  if (is_signed(t.dtype))
    for (int64_t &x : t.i) x = x < 0 ? wrap_to(t.dtype, int64_t(0 - uint64_t(x))) : x;
  ctx.set(op.result(), std::move(t));
}

void interp_not(interp::Ctx &ctx, const Op &op) {
  interp::Tile t = ctx.take_tile(op, 0);
  for (int64_t &x : t.i) x = is_bool(t.dtype) ? !x : wrap_to(t.dtype, ~x);
  ctx.set(op.result(), std::move(t));
}

double f_exp(double x) { return std::exp(x); }
double f_exp2(double x) { return std::exp2(x); }
double f_expm1(double x) { return std::expm1(x); }
double f_log(double x) { return std::log(x); }
double f_log2(double x) { return std::log2(x); }
double f_log1p(double x) { return std::log1p(x); }
double f_sqrt(double x) { return std::sqrt(x); }
double f_rsqrt(double x) { return 1 / std::sqrt(x); }
double f_rcp(double x) { return 1 / x; }
double f_sin(double x) { return std::sin(x); }
double f_cos(double x) { return std::cos(x); }
double f_tanh(double x) { return std::tanh(x); }
double f_sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double f_erf(double x) { return std::erf(x); }
double f_floor(double x) { return std::floor(x); }
double f_ceil(double x) { return std::ceil(x); }
double f_round(double x) { return std::nearbyint(x); } // the default rounding mode: ties to even
double f_trunc(double x) { return std::trunc(x); }
bool f_isnan(double x) { return std::isnan(x); }
bool f_isfinite(double x) { return std::isfinite(x); }

constexpr ir::LayoutRule kPointwise = {ir::LayoutKind::Pointwise};

} // namespace
} // namespace tkc::ops

namespace tkc::ir {
using namespace ops;

constexpr OpDef kNeg = {
    .name = "neg",
    .source = "-",
    .signature = "neg(x: tile)",
    .doc = "-x, written with the operator. Floats change their sign bit; integers wrap, so the lowest value is its own "
           "negative.",
    .example = "let a = -load(x[:, :]);\n# store(y[:, :], a);",
    .layout = kPointwise,
    .derivative = adjoint(adjoint_Neg),
    .infer = infer_unary<kNumbers>,
    .interp = interp_neg,
    .lower = lower_Neg};

constexpr OpDef kAbs = {.name = "abs",
                        .source = "abs",
                        .signature = "abs(x: tile)",
                        .doc = "|x|. Of the lowest signed integer it is that integer again.",
                        .example = "let a = abs(load(x[:, :]));\n# store(y[:, :], a);",
                        .layout = kPointwise,
                        .derivative = adjoint(adjoint_Abs, kX),
                        .infer = infer_unary<kNumbers>,
                        .interp = interp_abs,
                        .lower = lower_Abs};

constexpr OpDef kNot = {
    .name = "not",
    .source = "-",
    .signature = "not(x: tile)",
    .doc = "Logical negation of bool (`!x`), complement of every bit of an integer (`~x`).",
    .example = "let positive = load(x[:, :]) > 0;\nlet a = where(!positive, 1.0, 0.0);\n# store(y[:, :], a);",
    .layout = kPointwise,
    .derivative = kNoFloats,
    .infer = infer_unary<kInts | kBools>,
    .interp = interp_not,
    .lower = lower_Not};

constexpr OpDef kExp = {
    .name = "exp",
    .source = "exp",
    .signature = "exp(x: tile, precise: bool = false)",
    .doc = "e to the power x, rounded once. For f32 and narrower the compiled code is ex2.approx of x * log2(e), whose "
           "relative error grows with |x| to about 1e-6 near 20; `precise` keeps it within 2 ulp over the whole range.",
    .example = "let a = exp(load(x[:, :]));\n# store(y[:, :], a);",
    .layout = kPointwise,
    .derivative = adjoint(adjoint_Exp, kResult),
    .infer = infer_math,
    .interp = interp_math<f_exp>,
    .lower = lower_Exp};

constexpr OpDef kExp2 = {
    .name = "exp2",
    .source = "exp2",
    .signature = "exp2(x: tile, precise: bool = false)",
    .doc = "2 to the power x, rounded once. For f32 and narrower it is one ex2.approx (2 ulp); `precise` also keeps "
           "subnormal results.",
    .example = "let a = exp2(load(x[:, :]));\n# store(y[:, :], a);",
    .layout = kPointwise,
    .derivative = adjoint(adjoint_Exp2, kResult),
    .infer = infer_math,
    .interp = interp_math<f_exp2>,
    .lower = lower_Exp2};

constexpr OpDef kExpm1 = {.name = "expm1",
                          .source = "expm1",
                          .signature = "expm1(x: tile, precise: bool = false)",
                          .doc = "exp(x) - 1 without the cancellation near 0.",
                          .example = "let a = expm1(load(x[:, :]));\n# store(y[:, :], a);",
                          .layout = kPointwise,
                          .derivative = adjoint(adjoint_Expm1, kX),
                          .infer = infer_math,
                          .interp = interp_math<f_expm1>,
                          .lower = lower_Expm1};

constexpr OpDef kLog = {
    .name = "log",
    .source = "log",
    .signature = "log(x: tile, precise: bool = false)",
    .doc = "The natural logarithm; -inf at 0, NaN below. For f32 and narrower it is lg2.approx times ln(2), whose "
           "absolute error near 1 is about 1e-7; `precise` keeps the relative error within 2 ulp there too.",
    .example = "let a = log(abs(load(x[:, :])) + 1.0);\n# store(y[:, :], a);",
    .layout = kPointwise,
    .derivative = adjoint(adjoint_Log, kX),
    .infer = infer_math,
    .interp = interp_math<f_log>,
    .lower = lower_Log};

constexpr OpDef kLog2 = {.name = "log2",
                         .source = "log2",
                         .signature = "log2(x: tile, precise: bool = false)",
                         .doc = "The logarithm to base 2; -inf at 0, NaN below. Accuracy as for `log`.",
                         .example = "let a = log2(abs(load(x[:, :])) + 1.0);\n# store(y[:, :], a);",
                         .layout = kPointwise,
                         .derivative = adjoint(adjoint_Log2, kX),
                         .infer = infer_math,
                         .interp = interp_math<f_log2>,
                         .lower = lower_Log2};

constexpr OpDef kLog1p = {.name = "log1p",
                          .source = "log1p",
                          .signature = "log1p(x: tile, precise: bool = false)",
                          .doc = "log(1 + x) without the cancellation near 0.",
                          .example = "let a = log1p(abs(load(x[:, :])));\n# store(y[:, :], a);",
                          .layout = kPointwise,
                          .derivative = adjoint(adjoint_Log1p, kX),
                          .infer = infer_math,
                          .interp = interp_math<f_log1p>,
                          .lower = lower_Log1p};

constexpr OpDef kSqrt = {
    .name = "sqrt",
    .source = "sqrt",
    .signature = "sqrt(x: tile, precise: bool = false)",
    .doc = "The square root; NaN below 0. For f32 it is sqrt.approx (1 ulp), with `precise` correctly rounded.",
    .example = "let a = sqrt(abs(load(x[:, :])));\n# store(y[:, :], a);",
    .layout = kPointwise,
    .derivative = adjoint(adjoint_Sqrt, kResult),
    .infer = infer_math,
    .interp = interp_math<f_sqrt>,
    .lower = lower_Sqrt};

constexpr OpDef kRsqrt = {
    .name = "rsqrt",
    .source = "rsqrt",
    .signature = "rsqrt(x: tile, precise: bool = false)",
    .doc = "1 / sqrt(x); inf at 0, NaN below. For f32 it is rsqrt.approx (2 ulp), with `precise` a division by a "
           "correctly rounded root.",
    .example = "let a = rsqrt(abs(load(x[:, :])) + 1.0);\n# store(y[:, :], a);",
    .layout = kPointwise,
    .derivative = adjoint(adjoint_Rsqrt, kResult),
    .infer = infer_math,
    .interp = interp_math<f_rsqrt>,
    .lower = lower_Rsqrt};

constexpr OpDef kRcp = {.name = "rcp",
                        .source = "rcp",
                        .signature = "rcp(x: tile, precise: bool = false)",
                        .doc = "1 / x. For f32 it is rcp.approx (1 ulp), with `precise` correctly rounded.",
                        .example = "let a = rcp(abs(load(x[:, :])) + 1.0);\n# store(y[:, :], a);",
                        .layout = kPointwise,
                        .derivative = adjoint(adjoint_Rcp, kResult),
                        .infer = infer_math,
                        .interp = interp_math<f_rcp>,
                        .lower = lower_Rcp};

constexpr OpDef kSin = {
    .name = "sin",
    .source = "sin",
    .signature = "sin(x: tile, precise: bool = false)",
    .doc = "The sine of x in radians. For f32 it is sin.approx, whose absolute error is 5e-7 in [-pi, pi] and grows "
           "outside; `precise` reduces the argument first.",
    .example = "let a = sin(load(x[:, :]));\n# store(y[:, :], a);",
    .layout = kPointwise,
    .derivative = adjoint(adjoint_Sin, kX),
    .infer = infer_math,
    .interp = interp_math<f_sin>,
    .lower = lower_Sin};

constexpr OpDef kCos = {.name = "cos",
                        .source = "cos",
                        .signature = "cos(x: tile, precise: bool = false)",
                        .doc = "The cosine of x in radians. Accuracy as for `sin`.",
                        .example = "let a = cos(load(x[:, :]));\n# store(y[:, :], a);",
                        .layout = kPointwise,
                        .derivative = adjoint(adjoint_Cos, kX),
                        .infer = infer_math,
                        .interp = interp_math<f_cos>,
                        .lower = lower_Cos};

constexpr OpDef kTanh = {.name = "tanh",
                         .source = "tanh",
                         .signature = "tanh(x: tile, precise: bool = false)",
                         .doc = "The hyperbolic tangent, computed from an exponential (2 ulp). For f16 and bf16 it is "
                                "tanh.approx, whose relative "
                                "error of 5e-4 hardly shows there, unless `precise` is set.",
                         .example = "let a = tanh(load(x[:, :]));\n# store(y[:, :], a);",
                         .layout = kPointwise,
                         .derivative = adjoint(adjoint_Tanh, kX),
                         .infer = infer_math,
                         .interp = interp_math<f_tanh>,
                         .lower = lower_Tanh};

constexpr OpDef kSigmoid = {.name = "sigmoid",
                            .source = "sigmoid",
                            .signature = "sigmoid(x: tile, precise: bool = false)",
                            .doc = "1 / (1 + exp(-x)), without overflow at either end.",
                            .example = "let t = load(x[:, :]);\nlet silu = t * sigmoid(t);\n# store(y[:, :], silu);",
                            .layout = kPointwise,
                            .derivative = adjoint(adjoint_Sigmoid, kX),
                            .infer = infer_math,
                            .interp = interp_math<f_sigmoid>,
                            .lower = lower_Sigmoid};

constexpr OpDef kErf = {
    .name = "erf",
    .source = "erf",
    .signature = "erf(x: tile, precise: bool = false)",
    .doc = "The error function 2/sqrt(pi) times the integral of exp(-t^2) from 0 to x; gelu is x/2 * (1 + erf(x / sqrt "
           "2)).",
    .example = "let t = load(x[:, :]);\nlet gelu = 0.5 * t * (1.0 + erf(t * 0.70710678));\n# store(y[:, :], gelu);",
    .layout = kPointwise,
    .derivative = adjoint(adjoint_Erf, kX),
    .infer = infer_math,
    .interp = interp_math<f_erf>,
    .lower = lower_Erf};

constexpr OpDef kFloor = {.name = "floor",
                          .source = "floor",
                          .signature = "floor(x: tile)",
                          .doc = "The largest integer not above x, as a float.",
                          .example =
                              "let t = load(x[:, :]);\nlet fraction = t - floor(t);\n# store(y[:, :], fraction);",
                          .layout = kPointwise,
                          .derivative = kSteps,
                          .infer = infer_unary<kFloats>,
                          .interp = interp_math<f_floor>,
                          .lower = lower_Floor};

constexpr OpDef kCeil = {.name = "ceil",
                         .source = "ceil",
                         .signature = "ceil(x: tile)",
                         .doc = "The smallest integer not below x, as a float.",
                         .example = "let a = ceil(load(x[:, :]));\n# store(y[:, :], a);",
                         .layout = kPointwise,
                         .derivative = kSteps,
                         .infer = infer_unary<kFloats>,
                         .interp = interp_math<f_ceil>,
                         .lower = lower_Ceil};

constexpr OpDef kRound = {.name = "round",
                          .source = "round",
                          .signature = "round(x: tile)",
                          .doc = "The nearest integer as a float, ties to the even one: round(2.5) is 2.",
                          .example = "let a = round(load(x[:, :]));\n# store(y[:, :], a);",
                          .layout = kPointwise,
                          .derivative = kSteps,
                          .infer = infer_unary<kFloats>,
                          .interp = interp_math<f_round>,
                          .lower = lower_Round};

constexpr OpDef kTrunc = {.name = "trunc",
                          .source = "trunc",
                          .signature = "trunc(x: tile)",
                          .doc = "The integer part of x, as a float.",
                          .example = "let a = trunc(load(x[:, :]));\n# store(y[:, :], a);",
                          .layout = kPointwise,
                          .derivative = kSteps,
                          .infer = infer_unary<kFloats>,
                          .interp = interp_math<f_trunc>,
                          .lower = lower_Trunc};

constexpr OpDef kIsNan = {.name = "isnan",
                          .source = "isnan",
                          .signature = "isnan(x: tile)",
                          .doc = "True where x is not a number; a bool tile.",
                          .example =
                              "let t = load(x[:, :]);\nlet clean = where(isnan(t), 0.0, t);\n# store(y[:, :], clean);",
                          .layout = kPointwise,
                          .derivative = kNoFloats,
                          .infer = infer_test,
                          .interp = interp_test<f_isnan>,
                          .lower = lower_IsNan};

constexpr OpDef kIsFinite = {
    .name = "isfinite",
    .source = "isfinite",
    .signature = "isfinite(x: tile)",
    .doc = "True where x is neither infinite nor NaN; a bool tile.",
    .example = "let t = load(x[:, :]);\nlet clean = where(isfinite(t), t, 0.0);\n# store(y[:, :], clean);",
    .layout = kPointwise,
    .derivative = kNoFloats,
    .infer = infer_test,
    .interp = interp_test<f_isfinite>,
    .lower = lower_IsFinite};

} // namespace tkc::ir
