// What a grid knows of its launch: the blocks of a persistent grid (passes/loop_over_tiles.cpp), and the launches
// before and behind it (passes/wait_for_launches.cpp).
#include "ops/common.h"

namespace tkc::ops {

namespace {

void set_i32(interp::Ctx &ctx, const Op &op, int64_t v) {
  interp::Tile t(DType::I32, {});
  t.i[0] = wrap_to(DType::I32, v);
  ctx.set(op.result(), std::move(t));
}

void infer_blocks(InferCtx &ctx, Op &op) {
  if (!has_operands(ctx, op, 0, 0)) return;
  if (ctx.function().kind != ir::FunctionKind::Kernel) return ctx.error(DiagKind::only_in_kernel, shown(op));
  ctx.result(Type::scalar(DType::U32));
}
void infer_tile_coordinate(InferCtx &ctx, Op &op) {
  const ir::Function &f = ctx.function();
  if (!has_operands(ctx, op, 1, 1) || !is_scalar(ctx, op, 0, kInts)) return;
  int64_t axis = op.attrs.i("axis");
  if (axis < 0 || axis >= int64_t(f.grid.size())) return ctx.error(DiagKind::grid_rank, axis, f.grid.size());
  ctx.result(Type::scalar(DType::I32));
}

void set_u32(interp::Ctx &ctx, const Op &op, int64_t v) {
  interp::Tile t(DType::U32, {});
  t.i[0] = wrap_to(DType::U32, v);
  ctx.set(op.result(), std::move(t));
}
// Here there is a block for every tile, numbered with axis 0 fastest.
void interp_block_id(interp::Ctx &ctx, const Op &op) {
  int64_t number = 0;
  for (size_t d = ctx.grid.size(); d-- > 0;) number = number * ctx.grid[d] + ctx.program[d];
  set_u32(ctx, op, number);
}
void interp_num_blocks(interp::Ctx &ctx, const Op &op) {
  int64_t blocks = 1;
  for (int64_t n : ctx.grid) blocks *= n;
  set_u32(ctx, op, blocks);
}
void interp_tile_coordinate(interp::Ctx &ctx, const Op &op) {
  int64_t number = ctx.scalar_i(op.operand(0)), axis = op.attrs.i("axis");
  for (int64_t d = 0; d < axis; d++) number /= ctx.grid[size_t(d)];
  bool last = axis + 1 == int64_t(ctx.grid.size());
  set_i32(ctx, op, last ? number : number % ctx.grid[size_t(axis)]);
}

void infer_nothing(InferCtx &ctx, Op &op) { has_operands(ctx, op, 0, 0); }
void interp_nothing(interp::Ctx &, const Op &) {} // one launch runs at a time

constexpr ir::Effect kLaunches = {-1, ir::Space::Control, ir::Access::ReadWrite};

} // namespace

} // namespace tkc::ops

namespace tkc::ir {
using namespace ops;

constexpr OpDef kBlockId = {
    .name = "block_id",
    .source = "-",
    .signature = "block_id()",
    .doc = "In a persistent kernel: the number of this block, as u32; it computes the tiles block_id, block_id + "
           "num_blocks, and so on. Written by the compiler.",
    .example = "let a = load(x[:, :]);\n# store(y[:, :], a);",
    .infer = infer_blocks,
    .interp = interp_block_id,
    .lower = lower_BlockId};

constexpr OpDef kNumBlocks = {.name = "num_blocks",
                              .source = "-",
                              .signature = "num_blocks()",
                              .doc = "In a persistent kernel: how many blocks were started, as u32: at least one, and "
                                     "at most one for every tile. Written by the compiler.",
                              .example = "let a = load(x[:, :]);\n# store(y[:, :], a);",
                              .infer = infer_blocks,
                              .interp = interp_num_blocks,
                              .lower = lower_NumBlocks};

constexpr OpDef kTileCoordinate = {
    .name = "tile_coordinate",
    .source = "-",
    .signature = "tile_coordinate(tile: scalar, axis: int)",
    .doc = "In a persistent kernel: what program_id is for the tile with this number, as i32, with the order of the "
           "grid. Written by the compiler.",
    .example = "let i = program_id(0);   // in a persistent kernel that of the tile\n# store(y[0, :], load(x[i, :]));",
    .infer = infer_tile_coordinate,
    .interp = interp_tile_coordinate,
    .lower = lower_TileCoordinate};

constexpr OpDef kGridWait = {
    .name = "grid_wait",
    .source = "-",
    .signature = "grid_wait()",
    .doc = "Waits until the launch before this one has ended and what it wrote is there. In the kernels of launches "
           "with `@overlap`, ahead of their first access to memory. Written by the compiler.",
    .example = "let a = load(x[:, :]);\n# store(y[:, :], a);",
    .effects = kLaunches,
    .min_sm = 90,
    .infer = infer_nothing,
    .interp = interp_nothing,
    .lower = lower_GridWait};

constexpr OpDef kLaunchDependents = {
    .name = "launch_dependents",
    .source = "-",
    .signature = "launch_dependents()",
    .doc = "Lets the launch behind this one start, up to its own grid_wait, once all blocks have come here. Written by "
           "the compiler.",
    .example = "let a = load(x[:, :]);\n# store(y[:, :], a);",
    .effects = kLaunches,
    .min_sm = 90,
    .infer = infer_nothing,
    .interp = interp_nothing,
    .lower = lower_LaunchDependents};

} // namespace tkc::ir
