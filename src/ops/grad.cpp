// The derivative of a part of a reference.
#include "ops/adjoint.h"

namespace tkc::ops {

namespace {

// The region is filled after the op is made; the verifier compares it with these types.
void infer_grad(InferCtx &ctx, Op &op) {
  size_t inputs = size_t(op.attrs.i("inputs"));
  if (!has_operands(ctx, op, inputs, SIZE_MAX)) return;
  for (size_t i = 0; i < op.operands.size(); i++)
    if (!is_tile(ctx, op, i, kFloats)) return;
  for (size_t i = 0; i < inputs; i++) ctx.result(op.operand(i)->type.with_dtype(DType::F64));
}

void interp_grad(interp::Ctx &ctx, const Op &op) {
  std::vector<interp::Value> g = interp::gradient(ctx, op);
  if (ctx.trapped()) return;
  ctx.report_gradient(op, g);
  for (size_t i = 0; i < g.size(); i++) ctx.set(op.result(i), std::move(g[i]));
}

} // namespace

void lower_Grad(codegen::LowerCtx &, const Op &) { TKC_UNREACHABLE("grad in a kernel"); }

} // namespace tkc::ops

namespace tkc::ir {
using namespace ops;

constexpr OpDef kGrad = {
    .name = "grad",
    .source = "-",
    .signature = "grad(args: tile..., inputs: int)",
    .doc = "The derivative of an expression, in f64: grad(f(x, w), wrt = (x, w), out = dy) is, for each of x and w, "
           "the sum "
           "over the elements of f(x, w) of dy times their derivative. The first `inputs` of args are x and w, the "
           "others the "
           "cotangents. References and verify blocks only; "
           "`grammar/README.md` has the rules.",
    .example = "# reference norm(x: tensor<f64>[M, N]) -> tensor<f64>[M] { return sqrt(sum(x * x, axis = 1)); }\n"
               "# reference f_ref(x: tensor<f64>[M, N]) -> tensor<f64>[M, N] {\n"
               "let dx = grad(norm(x), wrt = x, out = 1.0);      // x[i, j] / norm(x)[i]\n# return dx; }",
    .derivative = no_derivative("second derivatives are not taken"),
    .infer = infer_grad,
    .interp = interp_grad,
    .lower = lower_Grad};

} // namespace tkc::ir
