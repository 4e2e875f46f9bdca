// Copies between global and shared memory by hand, one op for each idea of PTX. To the interpreter a copy arrives at
// once (interp/block_memory.h).
#include "interp/block_memory.h"
#include "ops/access.h"
#include "ops/by_hand.h"

namespace tkc::ops {

namespace {

void infer_groups(InferCtx &ctx, Op &op) {
  if (!has_operands(ctx, op, 0, 0)) return;
  if (int64_t n = op.attrs.i_or("pending", 0); n < 0 || n > 63)
    ctx.error(DiagKind::bad_async, shown(op), fmt::format("0 to 63 groups may be pending, not {}", n));
}
void interp_nothing(interp::Ctx &, const Op &) {}

// Tensor, indices, places: the tile and the slot are of one type.
void infer_copy(InferCtx &ctx, Op &op) {
  auto shape = infer_access(ctx, op);
  if (!shape) return;
  size_t rank = op.operand(0)->type.shape.size();
  if (!has_places(ctx, op, 1 + rank)) return;
  for (int64_t g : op.attrs.ints("gather"))
    if (g) return ctx.error(DiagKind::bad_async, shown(op), "a tile of positions: it copies ranges");
  Type tile = Type::tile(op.operand(0)->type.dtype, *shape);
  if (ir::places(op.kind) == 0) return; // a prefetch
  Type slot = ir::slot_type(*ir::place(op).made);
  if (tile != slot)
    ctx.error(DiagKind::bad_async, shown(op),
              fmt::format("a slot of `{}` is a {}, the part of the tensor a {}", ir::place(op).made->result()->name,
                          slot.str(), tile.str()));
}

void interp_to_shared(interp::Ctx &ctx, const Op &op) {
  std::optional<interp::Tile> *slot = interp::slot_of(ctx, op, 0);
  if (!slot) return;
  const interp::Storage &s = *ctx.tensor(op.operand(0)).storage;
  Type type = ir::slot_type(*ir::place(op).made);
  interp::Tile t(type.dtype, type.shape);
  bool outside = false;
  for_elements(ctx, op, [&](int64_t k, int64_t position) {
    if (position < 0)
      outside = true;
    else if (t.is_float())
      t.f[size_t(k)] = peek(s.f[size_t(position)]);
    else
      t.i[size_t(k)] = peek(s.i[size_t(position)]);
  });
  bool rows = op.kind == OpKind::CopyAsyncBulk || op.kind == OpKind::CopyAsyncTx;
  if (outside && rows)
    return ctx.trap(op, "a bulk copy reaches outside of its tensor; tma_load and copy_async give zeros there");
  int64_t bytes = type.elements() * dtype_bytes(type.dtype);
  *slot = std::move(t);
  if (op.kind == OpKind::CopyAsync) return;
  interp::BlockMemory::Mbarrier *m = interp::mbarrier_of(ctx, op, 1);
  // A bulk copy brings its own expectation along.
  if (m) interp::arrive(ctx, op, *m, 0, op.kind == OpKind::CopyAsyncBulk ? 0 : -bytes);
}

double combined(const std::string &how, double a, double b) {
  return how == "add" ? a + b : how == "min" ? min_number(a, b) : max_number(a, b);
}
int64_t combined(const std::string &how, DType t, int64_t a, int64_t b) {
  if (how == "add") return wrap_to(t, wrapping_add(a, b));
  return int_less(t, a, b) == (how == "min") ? a : b;
}

void interp_to_global(interp::Ctx &ctx, const Op &op) {
  std::optional<interp::Tile> *slot = interp::slot_of(ctx, op, 0);
  if (!slot) return;
  if (!*slot)
    return ctx.trap(op, fmt::format("nothing was written to this slot of `{}`", ir::place(op).made->result()->name));
  const interp::Tile &t = **slot;
  interp::Storage &s = *ctx.tensor(op.operand(0)).storage;
  std::string how = op.kind == OpKind::TmaReduce ? op.attrs.s("how") : "";
  std::unique_lock<std::mutex> guard;
  if (!how.empty()) guard = std::unique_lock(s.atomics);
  for_elements(ctx, op, [&](int64_t k, int64_t position) {
    if (position < 0) return;
    if (t.is_float()) {
      double &to = s.f[size_t(position)];
      poke(to, how.empty() ? t.f[size_t(k)] : round_to(t.dtype, combined(how, peek(to), t.f[size_t(k)])));
    } else {
      int64_t &to = s.i[size_t(position)];
      poke(to, how.empty() ? t.i[size_t(k)] : combined(how, t.dtype, peek(to), t.i[size_t(k)]));
    }
  });
}

void infer_reduce(InferCtx &ctx, Op &op) {
  infer_copy(ctx, op);
  if (ctx.failed()) return;
  DType t = op.operand(0)->type.dtype;
  bool add = op.attrs.s("how") == "add";
  bool has = t == DType::F16 || t == DType::BF16 || t == DType::I32 || t == DType::U32 || t == DType::U64 ||
             (add ? t == DType::F32 : t == DType::I64);
  if (!has)
    ctx.error(
        DiagKind::bad_async, shown(op),
        fmt::format("`{}` of {}: there is add of f32, f16, bf16, i32, u32, u64 and min and max of f16, bf16, i32, "
                    "u32, i64, u64",
                    op.attrs.s("how"), dtype_name(t)));
}

constexpr ir::Effect kReads = {0, ir::Space::Global, ir::Access::Read};
constexpr ir::Effect kWrites = {0, ir::Space::Global, ir::Access::Write};
constexpr ir::Effect kUpdates = {0, ir::Space::Global, ir::Access::ReadWrite};
constexpr ir::Effects with(ir::Effect e) {
  ir::Effects out(kByHandShared, kByHandOrder);
  out.list[out.count++] = e;
  return out;
}

#define TKC_CP_ASYNC_EXAMPLE                                                                                           \
  "let s = shared<f32>[16, 32];\ncopy_async(s, x[0 :+ 16, :]);      // each thread starts copies\ncommit_group();   "  \
  "                  // they are a group\nwait_group(0);                     // each thread's have arrived\n"          \
  "block_barrier();                   // and everybody else's\nstore(y[:, :], load(s));"
#define TKC_TX_EXAMPLE(copy)                                                                                           \
  "let s = shared<f32>[16, 32];\nlet full = barrier();\nif elect() { mbarrier.init(full, 1); }\n"                      \
  "role all warps 1 {\n  if elect() {\n    mbarrier.arrive_expect_tx(full, 16 * 32 * 4);\n    " copy                   \
  "\n  }\n  mbarrier.wait_parity(full, 0);   // the phase is over when the arrival and all bytes are there\n"          \
  "  store(y[:, :], load(s));\n}"
#define TKC_TMA_STORE_EXAMPLE(copy)                                                                                    \
  "let s = shared<f32>[16, 32];\nstore(s, load(x[:, :]));\nfence_proxy_async();     // plain stores before the copy, " \
  "which is of the other proxy\nblock_barrier();\nif elect() {\n  " copy                                               \
  "\n  bulk_commit_group();\n  bulk_wait_group(0);    // nothing may be in flight at the end\n}"

} // namespace
} // namespace tkc::ops

namespace tkc::ir {
using namespace ops;

constexpr OpDef kCopyAsync = {
    .name = "copy_async",
    .source = "copy_async",
    .signature = "copy_async(to: shared, x: view)",
    .doc =
        "Starts the copy of a part of a tensor to a slot: every thread of the role copies a share, in pieces of 4, 8 "
        "or 16 bytes. What lies outside of the tensor arrives as zero. Until the thread has waited for its group "
        "(`commit_group`, `wait_group`) or for the mbarrier that it arrives at (`mbarrier.arrive_copies`), and the "
        "readers are ordered behind that, the slot is in flight. A tensor that the kernel writes cannot be copied. "
        "PTX: `cp.async.cg.shared.global` of 16 bytes, `.ca` of 4 and 8; for tensors that are not aligned, loads "
        "and stores by the same threads.",
    .example = TKC_CP_ASYNC_EXAMPLE,
    .effects = with(kReads),
    .layout = {LayoutKind::Anchor},
    .derivative = kNoByHand,
    .infer = infer_copy,
    .interp = interp_to_shared,
    .lower = lower_CopyAsync};

constexpr OpDef kCommitGroup = {
    .name = "commit_group",
    .source = "commit_group",
    .signature = "commit_group()",
    .doc = "What each thread has started by `copy_async` since its last group is a group, an empty one if that is "
           "nothing. PTX: `cp.async.commit_group`.",
    .example = TKC_CP_ASYNC_EXAMPLE,
    .effects = {kByHandShared, kByHandOrder},
    .derivative = kNoByHand,
    .infer = infer_groups,
    .interp = interp_nothing,
    .lower = lower_CommitGroup};

constexpr OpDef kWaitGroup = {
    .name = "wait_group",
    .source = "wait_group",
    .signature = "wait_group(pending: int = 0)",
    .doc =
        "Each thread waits until all of its groups but the last `pending` have arrived. Other threads' copies, those "
        "of the same warp included, are another matter: `block_barrier` comes next. PTX: `cp.async.wait_group`.",
    .example = TKC_CP_ASYNC_EXAMPLE,
    .effects = {kByHandShared, kByHandOrder},
    .derivative = kNoByHand,
    .infer = infer_groups,
    .interp = interp_nothing,
    .lower = lower_WaitGroup};

constexpr OpDef kCopyAsyncBulk = {
    .name = "copy_async_bulk",
    .source = "copy_async_bulk",
    .signature = "copy_async_bulk(to: shared, x: view, b: barrier)",
    .doc =
        "One thread starts the copy of rows of a tensor to a slot, and mbarrier b expects its bytes: the current phase "
        "is not over before they are there. Rows are whole multiples of 16 bytes, aligned to 16, and lie within the "
        "tensor; the phase must still lack an arrival. PTX: `cp.async.bulk.shared::cta.global` and "
        "`mbarrier.expect_tx`; "
        "before sm_90 `cp.async.cg` of 16 bytes and `cp.async.mbarrier.arrive`.",
    .example = "let s = shared<f32>[16, 32];\nlet full = barrier();\nif elect() { mbarrier.init(full, 1); }\n"
               "role all warps 1 {\n  if elect() {\n    copy_async_bulk(s, x[0 :+ 16, :], full);\n    "
               "mbarrier.arrive(full);\n  }\n  mbarrier.wait_parity(full, 0);\n  store(y[:, :], load(s));\n}",
    .effects = with(kReads),
    .derivative = kNoByHand,
    .infer = infer_copy,
    .interp = interp_to_shared,
    .lower = lower_CopyAsyncBulk};

constexpr OpDef kCopyAsyncTx = {
    .name = "copy_async_tx",
    .source = "copy_async_tx",
    .signature = "copy_async_tx(to: shared, x: view, b: barrier)",
    .doc = "As `copy_async_bulk`, but mbarrier b must be told what to expect (`mbarrier.arrive_expect_tx`, "
           "`mbarrier.expect_tx`): the copy only completes its bytes there. PTX: `cp.async.bulk.shared::cta.global"
           ".mbarrier::complete_tx::bytes`.",
    .example = TKC_TX_EXAMPLE("copy_async_tx(s, x[0 :+ 16, :], full);"),
    .effects = with(kReads),
    .min_sm = 90,
    .derivative = kNoByHand,
    .infer = infer_copy,
    .interp = interp_to_shared,
    .lower = lower_CopyAsyncTx};

constexpr OpDef kTmaLoad = {
    .name = "tma_load",
    .source = "tma_load",
    .signature = "tma_load(to: shared, x: view, b: barrier)",
    .doc = "One thread starts the copy of a box of a tensor to a slot by a tensor map, which the launcher makes. What "
           "lies outside of the tensor arrives as zero; the bytes of the whole box complete on mbarrier b, which must "
           "expect them. Rows start at multiples of 16 bytes. PTX: `cp.async.bulk.tensor.Nd.shared::cta.global.tile"
           ".mbarrier::complete_tx::bytes`.",
    .example = TKC_TX_EXAMPLE("tma_load(s, x[0 :+ 16, :], full);"),
    .effects = with(kReads),
    .min_sm = 90,
    .derivative = kNoByHand,
    .infer = infer_copy,
    .interp = interp_to_shared,
    .lower = lower_TmaLoad};

constexpr OpDef kTmaStore = {
    .name = "tma_store",
    .source = "tma_store",
    .signature = "tma_store(x: view, from: shared)",
    .doc =
        "One thread starts the copy of a slot to a part of a tensor by a tensor map; what lies outside is not "
        "written. The slot is being read until the thread has waited for the group (`bulk_commit_group`, "
        "`bulk_wait_group`). Nothing else in the kernel uses the tensor, and two copies to the same elements have no "
        "order. PTX: `cp.async.bulk.tensor.Nd.global.shared::cta.tile.bulk_group`.",
    .example = TKC_TMA_STORE_EXAMPLE("tma_store(y[0 :+ 16, :], s);"),
    .effects = with(kWrites),
    .min_sm = 90,
    .derivative = kNoByHand,
    .infer = infer_copy,
    .interp = interp_to_global,
    .lower = lower_TmaStore};

constexpr OpDef kTmaReduce = {
    .name = "tma_reduce",
    .source = "tma_reduce",
    .signature = "tma_reduce(x: view, from: shared, how: add|min|max = add)",
    .doc = "As `tma_store`, but combines each element with the one that is there, as an atomic. PTX: "
           "`cp.reduce.async.bulk.tensor.Nd.global.shared::cta.add.tile.bulk_group`.",
    .example = "# with sums: inout tensor<f32>[16, 32]\n" TKC_TMA_STORE_EXAMPLE(
        "tma_reduce(sums[0 :+ 16, :], s);") "\n# store(y[:, :], load(x[:, :]));",
    .effects = with(kUpdates),
    .min_sm = 90,
    .derivative = kNoByHand,
    .infer = infer_reduce,
    .interp = interp_to_global,
    .lower = lower_TmaReduce};

constexpr OpDef kTmaPrefetch = {
    .name = "tma_prefetch",
    .source = "tma_prefetch",
    .signature = "tma_prefetch(x: view)",
    .doc = "One thread starts the copy of a box of a tensor to the L2 cache by a tensor map. PTX: "
           "`cp.async.bulk.prefetch.tensor.Nd.L2.global.tile`.",
    .example = "if elect() { tma_prefetch(x[0 :+ 16, :]); }\nstore(y[:, :], load(x[:, :]));",
    .effects = with(kReads),
    .min_sm = 90,
    .derivative = kNoByHand,
    .infer = infer_copy,
    .interp = interp_nothing,
    .lower = lower_TmaPrefetch};

constexpr OpDef kBulkCommitGroup = {
    .name = "bulk_commit_group",
    .source = "bulk_commit_group",
    .signature = "bulk_commit_group()",
    .doc = "What the thread has started by `tma_store` and `tma_reduce` since its last group is a group. PTX: "
           "`cp.async.bulk.commit_group`.",
    .example = TKC_TMA_STORE_EXAMPLE("tma_store(y[0 :+ 16, :], s);"),
    .effects = {kByHandShared, kByHandOrder},
    .min_sm = 90,
    .derivative = kNoByHand,
    .infer = infer_groups,
    .interp = interp_nothing,
    .lower = lower_BulkCommitGroup};

constexpr OpDef kBulkWaitGroup = {
    .name = "bulk_wait_group",
    .source = "bulk_wait_group",
    .signature = "bulk_wait_group(pending: int = 0, read: bool = false)",
    .doc = "The thread waits until all of its groups but the last `pending` are complete, or, with `read`, have read "
           "their slots, which may then be filled again. PTX: `cp.async.bulk.wait_group`, `.read`.",
    .example = TKC_TMA_STORE_EXAMPLE("tma_store(y[0 :+ 16, :], s);"),
    .effects = {kByHandShared, kByHandOrder},
    .min_sm = 90,
    .derivative = kNoByHand,
    .infer = infer_groups,
    .interp = interp_nothing,
    .lower = lower_BulkWaitGroup};

} // namespace tkc::ir
