// Ops that passes make: changes of layout, in registers or through shared memory. To the interpreter, which knows
// no layouts, they hand their value on.
#include "ops/common.h"

namespace tkc::ops {

namespace {

void infer_same(InferCtx &ctx, Op &op) {
  if (has_operands(ctx, op, 1, 1) && is_tile(ctx, op, 0, kAny)) ctx.result(op.operand(0)->type);
}

void infer_scratch_store(InferCtx &ctx, Op &op) {
  if (has_operands(ctx, op, 1, 1) && is_tile(ctx, op, 0, kAny)) ctx.result(Type::token());
}

void infer_scratch_load(InferCtx &ctx, Op &op) {
  if (!has_operands(ctx, op, 1, 1)) return;
  const ir::Value *token = op.operand(0);
  TKC_CHECK(token->op && token->op->kind == OpKind::ScratchStore,
            "scratch_load of something else than a scratch_store");
  ctx.result(token->op->operand(0)->type);
}

void interp_hand_on(interp::Ctx &ctx, const Op &op) { ctx.set(op.result(), ctx.take(op, 0)); }

} // namespace
} // namespace tkc::ops

namespace tkc::ir {
using namespace ops;

constexpr OpDef kConvertLayout = {
    .name = "convert_layout",
    .source = "-",
    .signature = "convert_layout(x: tile)",
    .doc = "x in another register layout. Without shared memory it is a renaming of registers, shuffles or movmatrix.",
    .example = "let t = load(x[:, :]);\nlet a = sum(t, axis = 1)[:, None] * t;   // where layouts differ, a conversion "
               "is inserted\n"
               "# store(y[:, :], a);",
    .layout = {LayoutKind::Anchor},
    .infer = infer_same,
    .interp = interp_hand_on,
    .lower = lower_ConvertLayout};

constexpr OpDef kScratchStore = {
    .name = "scratch_store",
    .source = "-",
    .signature = "scratch_store(x: tile)",
    .doc = "Writes a tile to a scratch buffer in shared memory; the token stands for the buffer.",
    .example = "let t = load(x[:, :]);\nlet a = mma(bf16(t), bf16(t.T));   // operands go through shared memory to "
               "their fragments\n"
               "# store(y[:, 0 : 16], a);",
    .effects = Effect{-1, Space::Shared, Access::Write},
    .layout = {LayoutKind::Anchor},
    .infer = infer_scratch_store,
    .interp = interp_hand_on,
    .lower = lower_ScratchStore};

constexpr OpDef kScratchLoad = {.name = "scratch_load",
                                .source = "-",
                                .signature = "scratch_load(buffer: tile)",
                                .doc = "Reads the tile of a scratch buffer in the layout of the result.",
                                .example = "let t = load(x[:, :]);\nlet a = mma(bf16(t), bf16(t.T));   // operands go "
                                           "through shared memory to their fragments\n"
                                           "# store(y[:, 0 : 16], a);",
                                .effects = Effect{0, Space::Shared, Access::Read},
                                .layout = {LayoutKind::Anchor},
                                .infer = infer_scratch_load,
                                .interp = interp_hand_on,
                                .lower = lower_ScratchLoad};

} // namespace tkc::ir
