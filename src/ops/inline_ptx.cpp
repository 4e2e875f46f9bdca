// PTX written by the user.
#include "ops/adjoint.h"
#include "ops/common.h"

namespace tkc::ops {

namespace {

void infer_inline_ptx(InferCtx &ctx, Op &op) {
  default_attr(op, "effects", std::string("pure"));
  default_attr(op, "min_sm", int64_t(80));
  for (size_t i = 0; i < op.operands.size(); i++)
    if (!is_tile(ctx, op, i, kAny) || !same_shape(ctx, op, 0, i)) return;
  std::vector<int64_t> shape = op.operands.empty() ? std::vector<int64_t>() : op.operand(0)->type.shape;
  DType t = op.attrs.dtype("dtype");
  if (!op.regions.empty() && op.regions[0]->terminator()) {
    const ir::Value *meaning = op.regions[0]->terminator()->operands.at(0);
    if (meaning->type != Type::scalar(t))
      return ctx.error(DiagKind::wrong_dtype, "`means`", dtype_name(t), meaning->type.str(), dtype_name(t));
  }
  tile_result(ctx, op, Type::tile(t, shape));
}

void interp_inline_ptx(interp::Ctx &ctx, const Op &op) {
  if (op.regions.empty())
    return ctx.trap(op, "`inline_ptx` without `means` has no meaning outside a GPU: give it `means = expression`");
  interp::Tile t(op.result()->type.dtype, op.result()->type.shape);
  for (int64_t k = 0; k < t.size(); k++) {
    std::vector<interp::Value> args;
    for (const ir::Value *v : op.operands) {
      const interp::Tile &x = ctx.tile(v);
      interp::Tile one(x.dtype, {});
      if (x.is_float())
        one.f[0] = x.f[size_t(k)];
      else
        one.i[0] = x.i[size_t(k)];
      args.push_back(std::move(one));
    }
    std::vector<interp::Value> out = ctx.run_region(op.regions[0], std::move(args));
    if (ctx.trapped()) return;
    const interp::Tile &y = std::get<interp::Tile>(out.at(0));
    if (t.is_float())
      t.f[size_t(k)] = y.f[0];
    else
      t.i[size_t(k)] = y.i[0];
  }
  ctx.set(op.result(), std::move(t));
}

} // namespace
} // namespace tkc::ops

namespace tkc::ir {
using namespace ops;

// The effects are those of the declared "memory"; attribute `effects` says "pure" where the op may be removed or moved.
constexpr OpDef kInlinePtx = {
    .name = "inline_ptx",
    .source = "inline_ptx",
    .signature = "inline_ptx(text: string, args: tile..., result: type, means: tile?, min_sm: int = 80, effects: "
                 "string = \"pure\")",
    .doc = "PTX for each element: $0 is the result, $1, $2, ... are the arguments, which have one shape. `means` says "
           "the same "
           "in this language, with a0, a1, ... for the arguments; the interpreter runs it, so that the kernel can be "
           "verified. "
           "`effects` is \"pure\" or \"memory\"; `min_sm` is the first target that has the instruction.",
    .example =
        "let t = load(x[:, :]);\nlet a = inline_ptx(\"ex2.approx.f32 $0, $1;\", t, result = f32, means = exp2(a0));\n"
        "# store(y[:, :], a);",
    .effects = {Effect{-1, Space::Global, Access::ReadWrite}, Effect{-1, Space::Control, Access::ReadWrite}},
    .layout = {LayoutKind::Pointwise},
    .derivative = no_derivative("PTX has none: write the formula itself"),
    .infer = infer_inline_ptx,
    .interp = interp_inline_ptx,
    .lower = lower_InlinePtx};

} // namespace tkc::ir
