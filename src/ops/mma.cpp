// The matrix product.
#include "ops/adjoint.h"
#include "ops/common.h"
#include "ops/matrix_product.h"
#include "ops/scratch.h"
#include <algorithm>

namespace tkc::ops {

namespace {

bool is_fp8(DType t) { return t == DType::E4M3 || t == DType::E5M2; }

// The dtypes a product of kernels may accumulate in, the default first; empty if there is no such product.
std::vector<DType> accumulators(DType a) {
  switch (a) {
  case DType::F16:
  case DType::E4M3:
  case DType::E5M2: return {DType::F32, DType::F16};
  case DType::BF16:
  case DType::TF32:
  case DType::F32: return {DType::F32};
  case DType::F64: return {DType::F64};
  case DType::I8: return {DType::I32};
  case DType::Bool:
  case DType::I16:
  case DType::I32:
  case DType::I64:
  case DType::U8:
  case DType::U16:
  case DType::U32:
  case DType::U64:
  case DType::E2M1:
  case DType::UE8M0:
  case DType::UE4M3: return {};
  }
  TKC_UNREACHABLE("accumulators({})", dtype_name(a));
}

constexpr const char *kOperands = "one of f16, bf16, tf32, f32, f64, i8, e4m3, e5m2";

bool check_dtypes(InferCtx &ctx, Op &op) {
  DType a = op.operand(0)->type.dtype, b = op.operand(1)->type.dtype;
  bool reference = ctx.function().kind == ir::FunctionKind::Reference;
  std::vector<DType> allowed = accumulators(a);
  if (reference && is_float(a) && is_float(b)) {
    bool wide = a == DType::F64 || b == DType::F64;
    allowed = {wide ? DType::F64 : DType::F32, DType::F64, DType::F32, DType::F16, DType::BF16};
  } else {
    for (size_t i = 0; i < 2; i++)
      if (accumulators(op.operand(i)->type.dtype).empty()) {
        ctx.error_at(i, DiagKind::operand_dtype, "mma", kOperands, operand_name(op, i),
                     dtype_name(op.operand(i)->type.dtype));
        return false;
      }
    if (a != b && !(is_fp8(a) && is_fp8(b))) {
      ctx.error_at(1, DiagKind::mma_operands, dtype_name(a), dtype_name(b));
      return false;
    }
  }
  if (!op.attrs.has("acc")) op.attrs.set("acc", op.operands.size() == 3 ? op.operand(2)->type.dtype : allowed[0]);
  DType acc = op.attrs.dtype("acc");
  if (std::find(allowed.begin(), allowed.end(), acc) == allowed.end()) {
    std::string list;
    for (DType t : allowed) list += (list.empty() ? "" : " or ") + std::string(dtype_name(t));
    ctx.error(DiagKind::mma_accumulator, dtype_name(a), dtype_name(b), list, dtype_name(acc));
    return false;
  }
  default_attr(op, "precision", std::string("tf32"));
  const std::string &precision = op.attrs.s("precision");
  if (precision != "tf32" && a != DType::F32 && !reference) {
    ctx.error(DiagKind::mma_precision, precision, dtype_name(a));
    return false;
  }
  return true;
}

void infer_mma(InferCtx &ctx, Op &op) {
  if (!has_operands(ctx, op, 2, 3)) return;
  for (size_t i = 0; i < op.operands.size(); i++) {
    if (!is_tile(ctx, op, i, kAny)) return;
    const Type &t = op.operand(i)->type;
    if (t.rank() != 2) return ctx.error_at(i, DiagKind::mma_rank, operand_name(op, i), shape_text(t));
  }
  const Type &a = op.operand(0)->type, &b = op.operand(1)->type;
  if (!check_dtypes(ctx, op)) return;
  if (a.shape[1] != b.shape[0])
    return ctx.error(DiagKind::mma_inner, ir::shape_str(a.shape), ir::shape_str(b.shape), a.shape[1], b.shape[0]);
  Type result = Type::tile(op.attrs.dtype("acc"), {a.shape[0], b.shape[1]});
  if (op.operands.size() == 3) {
    const Type &c = op.operand(2)->type;
    if (c.dtype != result.dtype)
      return ctx.error_at(2, DiagKind::operand_dtypes_differ, "mma", "c", dtype_name(c.dtype), "the accumulator",
                          dtype_name(result.dtype));
    for (size_t d = 0; d < 2; d++)
      if (c.shape[d] != result.shape[d])
        return ctx.error_at(2, DiagKind::operand_shapes_differ, "mma", "c", shape_text(c), "a times b",
                            shape_text(result), d, c.shape[d], result.shape[d]);
  }
  tile_result(ctx, op, result);
}

std::vector<double> rounded_tf32(std::vector<double> x) {
  for (double &v : x) v = round_tf32_rna(v);
  return x;
}

void interp_mma(interp::Ctx &ctx, const Op &op) {
  const interp::Tile &a = ctx.tile(op.operand(0)), &b = ctx.tile(op.operand(1));
  int64_t m = a.shape[0], k = a.shape[1], n = b.shape[1];
  bool add = op.operands.size() == 3;
  interp::Tile c = add ? ctx.take_tile(op, 2) : interp::Tile(op.attrs.dtype("acc"), {m, n});
  if (!c.is_float()) {
    matrix_product(a.i.data(), b.i.data(), c.i.data(), m, n,
                   k); // bytes: no overflow of int64 at any depth that fits in memory
    for (int64_t &v : c.i) v = wrap_to(c.dtype, v);
  } else if (a.dtype == DType::F32 && op.attrs.s("precision") == "tf32" &&
             op.block->function->kind == ir::FunctionKind::Kernel) {
    std::vector<double> ra = rounded_tf32(a.f), rb = rounded_tf32(b.f);
    matrix_product(ra.data(), rb.data(), c.f.data(), m, n, k);
  } else {
    matrix_product(a.f.data(), b.f.data(), c.f.data(), m, n, k);
  }
  if (c.dtype != DType::F64)
    for (double &v : c.f) v = round_to(c.dtype, v);
  ctx.set(op.result(), std::move(c));
}

} // namespace
} // namespace tkc::ops

namespace tkc::ir {
using namespace ops;

constexpr OpDef kMma = {
    .name = "mma",
    .source = "mma",
    .signature = "mma(a: tile, b: tile, c: tile?, acc: type = auto, precision: tf32|tf32x3|ieee = tf32)",
    .doc = "The product a b, plus c: result[i, j] = c[i, j] + sum over k of a[i, k] b[k, j]. Operands are f16, bf16, "
           "tf32, f32, "
           "f64, i8 or fp8 (e4m3 and e5m2 mix). Products are exact; sums are kept in the accumulator `acc`: f32 by "
           "default, "
           "f16 if asked for (f16 and fp8 operands), f64 for f64, i32 for i8 (which wraps). f32 operands are rounded "
           "to tf32 "
           "(ties away from zero); `precision = tf32x3` splits each into two tf32 numbers and adds three products "
           "(relative "
           "error about 2^-21), `ieee` multiplies in f32 without tensor cores. The interpreter accumulates in f64 and "
           "rounds "
           "once, and takes tf32x3 as exact. In a reference operands of any float dtype are multiplied exactly.",
    .example = "let t = load(x[:, :]);\nlet a = mma(bf16(t), bf16(t.T));\n# store(y[:, 0 : 16], a);",
    .layout = {LayoutKind::Anchor},
    .scratch = mma_scratch,
    .derivative = adjoint(adjoint_Mma, kX | kY),
    .infer = infer_mma,
    .interp = interp_mma,
    .lower = lower_Mma};

} // namespace tkc::ir
