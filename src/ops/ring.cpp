// Rings: the carrier of asynchronous data between global memory and the registers of a loop. A ring is S slots of
// shared memory; a counter c that only grows names an item, which lies in slot c mod S. Passes make these ops from the
// loads of a loop and from the pushes and pops of roles (ops/role.cpp), after the layout search; the interpreter never
// meets them.
//
// Transport "cp_async": all threads copy (cp.async), a group per item. `publish` closes the group, `wait` waits for it
// and then for the other threads (a block barrier), which also tells that all have read item c - 1: its slot is free
// for item c - 1 + S.
//
// Transport "mbarrier": the warps of a producer role copy or store, those of the other roles read. Each slot has two
// mbarriers: `full`, whose phase c div S ends when item c has arrived, and `empty`, whose phase c div S ends when every
// reading warp has released item c. `acquire` waits for the phase of `empty` before item c's (at once for the first S
// items). Fields of an item may come by copies (ring_fill: each lane arrives when its own have) and by plain stores
// (ring_store: each warp arrives once); all their arrivals make up the phase.
//
// Where an access cannot be a copy of 4, 8 or 16 bytes, it is a load and a store by the same thread.
//
// Transport "tma": one thread issues the copies of an item (tensor copies by a tensor map, or bulk copies of one row),
// and `publish` arrives at `full` with the number of bytes that they bring. With a producer role the rest is as in
// "mbarrier", without one as in "cp_async": the wait is one for `full` and then a block barrier, and `publish` has a
// third operand, whether the item exists. Reads are of the generic proxy and the copies are not, so between the read of
// a slot and its next copy stands a proxy_fence. Only the entry that assumes aligned tensors copies like that; the
// other one takes the ring as "mbarrier" or "cp_async", with the same slots.
#include "ir/ring.h"
#include "ops/common.h"
#include "support/check.h"

namespace tkc::ops {

namespace {

bool is_ring(const Op &op, size_t i) {
  return i < op.operands.size() && op.operand(i)->op && op.operand(i)->op->kind == OpKind::RingAlloc;
}

void infer_ring_fill(InferCtx &ctx, Op &op) {
  // tensor, an index per dim, ring, counter, predicate
  size_t rank = op.attrs.ints("sizes").size();
  if (!has_operands(ctx, op, rank + 4, rank + 4) || !is_tensor(ctx, op, 0)) return;
  TKC_CHECK(is_ring(op, rank + 1), "ring_fill of something else than a ring");
  for (size_t i = 1; i <= rank; i++)
    if (!is_scalar(ctx, op, i, kInts)) return;
  if (is_scalar(ctx, op, rank + 2, kInts)) is_scalar(ctx, op, rank + 3, kBools);
}

void infer_ring_store(InferCtx &ctx, Op &op) {
  if (!has_operands(ctx, op, 3, 3)) return;
  TKC_CHECK(is_ring(op, 0), "ring_store to something else than a ring");
  if (is_scalar(ctx, op, 1, kInts)) is_tile(ctx, op, 2, kAny);
}

void infer_ring_publish(InferCtx &ctx, Op &op) {
  if (!has_operands(ctx, op, 2, 3)) return;
  TKC_CHECK(is_ring(op, 0), "ring_publish of something else than a ring");
  if (is_scalar(ctx, op, 1, kInts) && op.operands.size() == 3) is_scalar(ctx, op, 2, kBools);
}

void infer_ring_sync(InferCtx &ctx, Op &op) {
  size_t most = op.kind == OpKind::RingWait ? 3 : 2;
  if (!has_operands(ctx, op, 2, most)) return;
  TKC_CHECK(is_ring(op, 0), "{} of something else than a ring", def(op).name.s);
  if (is_scalar(ctx, op, 1, kInts) && op.operands.size() == 3) is_scalar(ctx, op, 2, kBools);
}

void infer_ring_test(InferCtx &ctx, Op &op) {
  infer_ring_sync(ctx, op);
  if (!ctx.failed()) ctx.result(Type::scalar(DType::Bool));
}

void infer_ring_load(InferCtx &ctx, Op &op) {
  infer_ring_sync(ctx, op);
  if (ctx.failed()) return;
  ctx.result(Type::tile(op.attrs.dtype("dtype"), ir::ring_load_layout(op).shape));
}

void interp_ring(interp::Ctx &, const Op &op) { TKC_UNREACHABLE("{} in typed IR", def(op).name.s); }

// Every ring op belongs to a loop like this one.
#define TKC_RING_EXAMPLE                                                                                               \
  "var acc = zeros<f32>[16, 16];\nfor k in 0 : N step 32 {   // the loads of a loop go through a ring\n  let a = "     \
  "bf16(load(x[0 :+ 16, k :+ 32]));\n  acc = mma(a, a.T, acc);\n}\n# store(y[0 :+ 16, 0 :+ 16], acc);"

#define TKC_ROLES_EXAMPLE                                                                                              \
  "ring f: { t: f32[16, 32] };\nrole load_rows warps 1 { f.push({ t: exp(load(x[:, :])) }); }\n"                       \
  "role store_rows warps 2 { let item = f.pop();\n  store(y[:, :], item.t);\n}"

} // namespace
} // namespace tkc::ops

namespace tkc::ir {
using namespace ops;

constexpr OpDef kRingFill = {
    .name = "ring_fill",
    .source = "-",
    .signature = "ring_fill(x: tensor, index: scalar..., ring: tile, counter: scalar, enabled: scalar)",
    .doc = "Starts the copy of a tile of x to field `field` of item `counter`; what lies outside x arrives as zero. "
           "`read` deals the tile out to the threads. Where `enabled` is false nothing is read and what arrives is "
           "not specified.",
    .example = TKC_RING_EXAMPLE,
    .effects = {Effect{0, Space::Global, Access::Read}, Effect{-1, Space::Shared, Access::Write}},
    .layout = {LayoutKind::Anchor},
    .infer = infer_ring_fill,
    .interp = interp_ring,
    .lower = lower_RingFill};

constexpr OpDef kRingStore = {
    .name = "ring_store",
    .source = "-",
    .signature = "ring_store(ring: tile, counter: scalar, x: tile)",
    .doc = "Puts x into field `field` of item `counter`, by plain stores of the threads that hold it.",
    .example = TKC_ROLES_EXAMPLE,
    .effects = Effect{-1, Space::Shared, Access::Write},
    .layout = {LayoutKind::Anchor},
    .infer = infer_ring_store,
    .interp = interp_ring,
    .lower = lower_RingStore};

constexpr OpDef kRingAcquire = {
    .name = "ring_acquire",
    .source = "-",
    .signature = "ring_acquire(ring: tile, counter: scalar)",
    .doc = "The slot of item `counter` is free: every reading warp has released what was in it.",
    .example = TKC_RING_EXAMPLE,
    .effects = {Effect{-1, Space::Shared, Access::ReadWrite}, Effect{-1, Space::Control, Access::ReadWrite}},
    .infer = infer_ring_sync,
    .interp = interp_ring,
    .lower = lower_RingAcquire};

constexpr OpDef kRingPublish = {
    .name = "ring_publish",
    .source = "-",
    .signature = "ring_publish(ring: tile, counter: scalar, enabled: scalar = true)",
    .doc =
        "All copies of item `counter` have been started. Transport tma: they bring `tx_bytes` bytes; where `enabled` "
        "is false there is no such item.",
    .example = TKC_RING_EXAMPLE,
    .effects = {Effect{-1, Space::Shared, Access::ReadWrite}, Effect{-1, Space::Control, Access::ReadWrite}},
    .infer = infer_ring_publish,
    .interp = interp_ring,
    .lower = lower_RingPublish};

constexpr OpDef kRingTest = {
    .name = "ring_test",
    .source = "-",
    .signature = "ring_test(ring: tile, counter: scalar)",
    .doc =
        "Whether item `counter` of a ring with mbarriers has arrived; does not wait. Asked an iteration ahead, so that "
        "the answer is there when the item is waited for.",
    .example = TKC_RING_EXAMPLE,
    .effects = {Effect{-1, Space::Shared, Access::ReadWrite}, Effect{-1, Space::Control, Access::ReadWrite}},
    .infer = infer_ring_test,
    .interp = interp_ring,
    .lower = lower_RingTest};

constexpr OpDef kRingWait = {
    .name = "ring_wait",
    .source = "-",
    .signature = "ring_wait(ring: tile, counter: scalar, arrived: scalar = false, pending: int)",
    .doc =
        "Item `counter` has arrived and may be read. Transport cp_async: every thread of the block has come this far, "
        "and at most `pending` items were published after this one. `arrived`: a ring_test of this item has said so.",
    .example = TKC_RING_EXAMPLE,
    .effects = {Effect{-1, Space::Shared, Access::ReadWrite}, Effect{-1, Space::Control, Access::ReadWrite}},
    .infer = infer_ring_sync,
    .interp = interp_ring,
    .lower = lower_RingWait};

constexpr OpDef kRingRelease = {
    .name = "ring_release",
    .source = "-",
    .signature = "ring_release(ring: tile, counter: scalar)",
    .doc = "This warp has read what it wants of item `counter`.",
    .example = TKC_RING_EXAMPLE,
    .effects = {Effect{-1, Space::Shared, Access::ReadWrite}, Effect{-1, Space::Control, Access::ReadWrite}},
    .infer = infer_ring_sync,
    .interp = interp_ring,
    .lower = lower_RingRelease};

constexpr OpDef kRingLoad = {.name = "ring_load",
                             .source = "-",
                             .signature = "ring_load(ring: tile, counter: scalar, field: int, dtype: type)",
                             .doc =
                                 "Field `field` of item `counter`, in the layout of the result. Of a record, which is "
                                 "one field of the ring: the part that begins `at` bytes behind its start and lies as "
                                 "`smem` says.",
                             .example = TKC_RING_EXAMPLE,
                             .effects = Effect{-1, Space::Shared, Access::Read},
                             .layout = {LayoutKind::Anchor},
                             .infer = infer_ring_load,
                             .interp = interp_ring,
                             .lower = lower_RingLoad};

} // namespace tkc::ir
