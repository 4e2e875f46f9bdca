// Selection, fused multiply-add, and conversions between dtypes.
#include "ops/adjoint.h"
#include "ops/common.h"

namespace tkc::ops {

namespace {

void infer_where(InferCtx &ctx, Op &op) {
  if (!has_operands(ctx, op, 3, 3) || !is_tile(ctx, op, 0, kBools) || !is_tile(ctx, op, 1, kAny) ||
      !is_tile(ctx, op, 2, kAny) || !same_dtype(ctx, op, 1, 2) || !same_shape(ctx, op, 0, 1) ||
      !same_shape(ctx, op, 1, 2))
    return;
  tile_result(ctx, op, op.operand(1)->type);
}

void interp_where(interp::Ctx &ctx, const Op &op) {
  const interp::Tile &c = ctx.tile(op.operand(0));
  interp::Tile a = ctx.take_tile(op, 1);
  const interp::Tile &b = ctx.tile(op.operand(2));
  for (size_t k = 0; k < a.f.size(); k++)
    if (!c.i[k]) a.f[k] = b.f[k];
  for (size_t k = 0; k < a.i.size(); k++)
    if (!c.i[k]) a.i[k] = b.i[k];
  ctx.set(op.result(), std::move(a));
}

void infer_fma(InferCtx &ctx, Op &op) {
  if (!has_operands(ctx, op, 3, 3)) return;
  for (size_t i = 0; i < 3; i++)
    if (!is_tile(ctx, op, i, kNumbers) || !same_dtype(ctx, op, 0, i) || !same_shape(ctx, op, 0, i)) return;
  tile_result(ctx, op, op.operand(0)->type);
}

void interp_fma(interp::Ctx &ctx, const Op &op) {
  interp::Tile a = ctx.take_tile(op, 0);
  const interp::Tile &b = ctx.tile(op.operand(1)), &c = ctx.tile(op.operand(2));
  for (size_t k = 0; k < a.f.size(); k++) a.f[k] = fma_rounded(a.dtype, a.f[k], b.f[k], c.f[k]);
  for (size_t k = 0; k < a.i.size(); k++) a.i[k] = wrap_to(a.dtype, wrapping_add(wrapping_mul(a.i[k], b.i[k]), c.i[k]));
  ctx.set(op.result(), std::move(a));
}

void infer_cast(InferCtx &ctx, Op &op) {
  if (!has_operands(ctx, op, 1, 1) || !is_tile(ctx, op, 0, kAny)) return;
  tile_result(ctx, op, op.operand(0)->type.with_dtype(op.attrs.dtype("dtype")));
}

void interp_cast(interp::Ctx &ctx, const Op &op) {
  DType to = op.attrs.dtype("dtype");
  interp::Tile x = ctx.take_tile(op, 0);
  DType from = x.dtype;
  if (is_float(from) && is_float(to)) {
    if (from != to)
      for (double &v : x.f) v = round_to(to, v);
    x.dtype = to;
    return ctx.set(op.result(), std::move(x));
  }
  if (!is_float(from) && !is_float(to)) {
    for (int64_t &v : x.i) v = wrap_to(to, v);
    x.dtype = to;
    return ctx.set(op.result(), std::move(x));
  }
  interp::Tile t(to, x.shape);
  for (size_t k = 0; k < x.f.size(); k++) t.i[k] = float_to_int(to, x.f[k]);
  for (size_t k = 0; k < x.i.size(); k++) t.f[k] = int_to_float(from, x.i[k], to);
  ctx.set(op.result(), std::move(t));
}

void infer_bitcast(InferCtx &ctx, Op &op) {
  if (!has_operands(ctx, op, 1, 1) || !is_tile(ctx, op, 0, kNumbers | kStorage)) return;
  DType from = op.operand(0)->type.dtype, to = op.attrs.dtype("dtype");
  if (is_bool(to)) return ctx.error(DiagKind::operand_dtype, shown(op), "a float or an integer", "dtype", "bool");
  if (dtype_bits(from) != dtype_bits(to))
    return ctx.error(DiagKind::bitcast_size, dtype_name(from), dtype_bits(from), dtype_name(to), dtype_bits(to));
  tile_result(ctx, op, op.operand(0)->type.with_dtype(to));
}

void interp_bitcast(interp::Ctx &ctx, const Op &op) {
  DType to = op.attrs.dtype("dtype");
  const interp::Tile &x = ctx.tile(op.operand(0));
  interp::Tile t(to, x.shape);
  for (int64_t k = 0; k < x.size(); k++) {
    uint64_t bits = x.is_float() ? encode_float(x.dtype, x.f[size_t(k)]) : uint64_t(x.i[size_t(k)]);
    if (t.is_float())
      t.f[size_t(k)] = decode_float(to, bits);
    else
      t.i[size_t(k)] = wrap_to(to, int64_t(bits));
  }
  ctx.set(op.result(), std::move(t));
}

constexpr ir::LayoutRule kPointwise = {ir::LayoutKind::Pointwise};

} // namespace
} // namespace tkc::ops

namespace tkc::ir {
using namespace ops;

constexpr OpDef kWhere = {
    .name = "where",
    .source = "where",
    .signature = "where(c: tile, a: tile, b: tile)",
    .doc = "a where c is true, b where it is false. Both are computed; values of any dtype can be selected.",
    .example = "let t = load(x[:, :]);\nlet causal = iota(M)[:, None] >= iota(N)[None, :];\n"
               "let a = where(causal, t, 0.0);\n# store(y[:, :], a);",
    .layout = kPointwise,
    .derivative = adjoint(adjoint_Where, kX),
    .infer = infer_where,
    .interp = interp_where,
    .lower = lower_Where};

constexpr OpDef kFma = {.name = "fma",
                        .source = "fma",
                        .signature = "fma(a: tile, b: tile, c: tile)",
                        .doc = "a * b + c with one rounding; integers wrap.",
                        .example = "let t = load(x[:, :]);\nlet a = fma(t, t, t);\n# store(y[:, :], a);",
                        .layout = kPointwise,
                        .derivative = adjoint(adjoint_Fma, kX | kY),
                        .infer = infer_fma,
                        .interp = interp_fma,
                        .lower = lower_Fma};

constexpr OpDef kCast = {
    .name = "cast",
    .source = "cast",
    .signature = "cast(x: tile, dtype: type)",
    .doc =
        "x in another dtype, also written as a call of the dtype: bf16(x). To a float: nearest, ties to even; f16 and "
        "wider overflow to infinity, the 8-bit and 4-bit types to their largest value, ue8m0 rounds up to a power of "
        "two. Float to integer: truncates, saturates, NaN gives 0. Integer to integer: wraps. To bool: x != 0.",
    .example = "let t = bf16(load(x[:, :]));\n# store(y[:, :], f32(t));",
    .layout = kPointwise,
    .derivative = adjoint(adjoint_Cast),
    .infer = infer_cast,
    .interp = interp_cast,
    .lower = lower_Cast};

constexpr OpDef kBitcast = {.name = "bitcast",
                            .source = "bitcast",
                            .signature = "bitcast(x: tile, dtype: type)",
                            .doc = "The bits of x read as another dtype of the same size.",
                            .example = "let bits = bitcast(load(x[:, :]), u32);\nlet negative = (bits >> 31) == 1;\n"
                                       "# store(y[:, :], where(negative, 1.0, 0.0));",
                            .layout = kPointwise,
                            .derivative = no_derivative("the bits of a number are no smooth function of it"),
                            .infer = infer_bitcast,
                            .interp = interp_bitcast,
                            .lower = lower_Bitcast};

} // namespace tkc::ir
