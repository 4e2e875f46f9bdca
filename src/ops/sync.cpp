// Barriers of a block, the choice of one thread, and the fence between the proxies.
#include "ops/by_hand.h"

namespace tkc::ops {

namespace {

void infer_barrier(InferCtx &ctx, Op &op) {
  default_attr(op, "scope", std::string("block"));
  has_operands(ctx, op, 0, 0);
}
void infer_elect(InferCtx &ctx, Op &op) {
  if (has_operands(ctx, op, 0, 0)) ctx.result(Type::scalar(DType::Bool));
}
void infer_proxy_fence(InferCtx &ctx, Op &op) { has_operands(ctx, op, 0, 0); }

void interp_nothing(interp::Ctx &, const Op &) {}
void interp_elect(interp::Ctx &ctx, const Op &op) {
  interp::Tile t(DType::Bool, {});
  t.i[0] = 1;
  ctx.set(op.result(), std::move(t));
}

} // namespace
} // namespace tkc::ops

namespace tkc::ir {
using namespace ops;

constexpr OpDef kBlockBarrier = {
    .name = "block_barrier",
    .source = "block_barrier",
    .signature = "block_barrier(scope: block|warp = block)",
    .doc = "Waits until every thread of the block is here, in a role every thread of the role (or of the warp); what "
           "each wrote to shared memory is then visible to all. PTX: `barrier.cta.sync`, of one warp "
           "`bar.warp.sync`.",
    .example = "let s = shared<f32>[16, 32];\nstore(s, load(x[:, :]));\nblock_barrier();\nstore(y[:, :], load(s));",
    .effects = {kByHandShared, kByHandOrder},
    .derivative = kNoByHand,
    .infer = infer_barrier,
    .interp = interp_nothing,
    .lower = lower_BlockBarrier};

constexpr OpDef kElectThread = {
    .name = "elect",
    .source = "elect",
    .signature = "elect()",
    .doc = "`if elect() { .. }`: one thread of the role executes the ops inside, always the same one: those that start "
           "bulk and tensor copies and handle mbarriers for all. It stands nowhere else. PTX: `elect.sync` in the "
           "first warp, before sm_90 the first thread.",
    .example = "let s = shared<f32>[16, 32];\nlet full = barrier();\nif elect() { mbarrier.init(full, 1); }\nrole all "
               "warps 1 {\n  if elect() {\n    copy_async_bulk(s, x[0 :+ 16, :], full);\n    "
               "mbarrier.arrive(full);\n  }\n  mbarrier.wait_parity(full, 0);\n  store(y[:, :], load(s));\n}",
    .effects = kByHandOrder,
    .derivative = kNoByHand,
    .infer = infer_elect,
    .interp = interp_elect,
    .lower = lower_ElectThread};

constexpr OpDef kProxyFence = {
    .name = "proxy_fence",
    .source = "fence_proxy_async",
    .signature = "fence_proxy_async()",
    .doc = "What this thread has written to and read of shared memory before, and what it knows of others, comes "
           "before every bulk or tensor copy that is ordered behind the fence. A copy by the asynchronous proxy of "
           "what plain stores have written, or over what plain loads have read, needs one on the way. PTX: "
           "`fence.proxy.async.shared::cta`; before sm_90, where no such copies exist, nothing.",
    .example = "let s = shared<f32>[16, 32];\nstore(s, load(x[:, :]));\nfence_proxy_async();\nblock_barrier();\n"
               "if elect() {\n  tma_store(y[0 :+ 16, :], s);\n  bulk_commit_group();\n  bulk_wait_group(0);\n}",
    .effects = {kByHandShared, kByHandOrder},
    .derivative = kNoByHand,
    .infer = infer_proxy_fence,
    .interp = interp_nothing,
    .lower = lower_ProxyFence};

} // namespace tkc::ir
