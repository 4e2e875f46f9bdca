// Buffers in shared memory that a kernel fills and reads by itself. What orders their accesses is the kernel's own
// business, and is proven (passes/prove_by_hand.cpp).
#include "interp/block_memory.h"
#include "ops/by_hand.h"

namespace tkc::ops {

namespace {

void infer_shared_alloc(InferCtx &ctx, Op &op) {
  default_attr(op, "slots", int64_t(1));
  if (has_operands(ctx, op, 0, 0)) ctx.result(Type::token());
}
void interp_shared_alloc(interp::Ctx &ctx, const Op &op) {
  auto memory = std::make_shared<interp::BlockMemory>();
  memory->slots.resize(size_t(ir::slots_of(op)));
  ctx.set(op.result(), std::move(memory));
}

void infer_shared_load(InferCtx &ctx, Op &op) {
  if (has_places(ctx, op, 0)) ctx.result(ir::slot_type(*ir::place(op).made));
}
void interp_shared_load(interp::Ctx &ctx, const Op &op) {
  std::optional<interp::Tile> *slot = interp::slot_of(ctx, op, 0);
  if (!slot) return;
  if (!*slot)
    return ctx.trap(op, fmt::format("nothing was written to this slot of `{}`", ir::place(op).made->result()->name));
  ctx.set(op.result(), **slot);
}

void infer_shared_store(InferCtx &ctx, Op &op) {
  if (!has_places(ctx, op, 1) || !is_tile(ctx, op, 0, kAny)) return;
  Type want = ir::slot_type(*ir::place(op).made);
  const Type &t = op.operand(0)->type;
  if (t != want) ctx.error_at(0, DiagKind::type_mismatch, want.str(), t.str());
}
void interp_shared_store(interp::Ctx &ctx, const Op &op) {
  if (std::optional<interp::Tile> *slot = interp::slot_of(ctx, op, 0)) *slot = ctx.take_tile(op, 0);
}

#define TKC_SHARED_EXAMPLE                                                                                             \
  "let s = shared<f32, 2>[16, 32];            // two slots\nstore(s[0], load(x[:, :]));\nblock_barrier();           "  \
  "                 // all warps have stored\nstore(y[:, :], load(s[0]));"

} // namespace
} // namespace tkc::ops

namespace tkc::ir {
using namespace ops;

constexpr OpDef kSharedAlloc = {
    .name = "shared_alloc",
    .source = "shared",
    .signature = "shared(dtype: type, shape: ints, slots: int = 1)",
    .doc = "`let s = shared<T, S>[M, N];`: S slots (1 if not given) of shared memory, each for a tile<T>[M, N]. The "
           "extents are powers of two. `s[i]` is a slot, `s` alone the only one. Layouts and swizzles are the "
           "compiler's. "
           "Who may write and read when is the program's business: every run is proven free of races, and reading a "
           "slot that a copy is on its way to is an error.",
    .example = TKC_SHARED_EXAMPLE,
    .effects = {kByHandShared, kByHandOrder},
    .derivative = kNoByHand,
    .infer = infer_shared_alloc,
    .interp = interp_shared_alloc,
    .lower = lower_SharedAlloc};

constexpr OpDef kSharedLoad = {
    .name = "shared_load",
    .source = "load",
    .signature = "load(s: shared)",
    .doc = "`load(s[i])`: the tile in a slot, read by every warp of the role in the layout that its users want. What "
           "was written must be visible to them: a `block_barrier`, or a wait for the mbarrier that the writers "
           "arrived at, stands between.",
    .example = TKC_SHARED_EXAMPLE,
    .effects = {kByHandShared, kByHandOrder},
    .layout = {LayoutKind::Anchor},
    .derivative = kNoByHand,
    .infer = infer_shared_load,
    .interp = interp_shared_load,
    .lower = lower_SharedLoad};

constexpr OpDef kSharedStore = {.name = "shared_store",
                                .source = "store",
                                .signature = "store(s: shared, value: tile)",
                                .doc = "`store(s[i], t)`: puts a tile into a slot, by plain stores of the threads that "
                                       "hold it.",
                                .example = TKC_SHARED_EXAMPLE,
                                .effects = {kByHandShared, kByHandOrder},
                                .layout = {LayoutKind::Anchor},
                                .derivative = kNoByHand,
                                .infer = infer_shared_store,
                                .interp = interp_shared_store,
                                .lower = lower_SharedStore};

} // namespace tkc::ir
