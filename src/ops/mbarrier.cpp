// mbarriers by hand, with the names of the PTX manual. Arrivals are those of threads: an op outside of `if elect()` is
// executed by every thread of the role.
#include "interp/block_memory.h"
#include "ops/by_hand.h"

namespace tkc::ops {

namespace {
constexpr int64_t kMost = (1 << 20) - 1; // of arrivals and bytes

void infer_barrier_alloc(InferCtx &ctx, Op &op) {
  default_attr(op, "slots", int64_t(1));
  if (!has_operands(ctx, op, 0, 0)) return;
  if (int64_t n = ir::slots_of(op); n < 1 || n > 16)
    return ctx.error(DiagKind::bad_async, shown(op), fmt::format("1 to 16 mbarriers, not {}", n));
  ctx.result(Type::token());
}
void interp_barrier_alloc(interp::Ctx &ctx, const Op &op) {
  auto memory = std::make_shared<interp::BlockMemory>();
  memory->barriers.resize(size_t(ir::slots_of(op)));
  ctx.set(op.result(), std::move(memory));
}

bool in_range(InferCtx &ctx, Op &op, const char *key, int64_t least, const char *what) {
  int64_t n = op.attrs.i(key);
  if (n >= least && n <= kMost) return true;
  ctx.error(DiagKind::bad_async, shown(op), fmt::format("{} to {} {}, not {}", least, kMost, what, n));
  return false;
}

void infer_init(InferCtx &ctx, Op &op) {
  if (has_places(ctx, op, 0)) in_range(ctx, op, "count", 1, "arrivals");
}
void interp_init(interp::Ctx &ctx, const Op &op) {
  interp::BlockMemory::Mbarrier *m = interp::mbarrier_of(ctx, op, 0);
  if (!m) return;
  if (m->live) return ctx.trap(op, "an mbarrier is initialised again without `mbarrier.inval`");
  *m = {true, op.attrs.i("count"), op.attrs.i("count"), 0, 0};
}

void infer_place(InferCtx &ctx, Op &op) { has_places(ctx, op, 0); }
void interp_inval(interp::Ctx &ctx, const Op &op) {
  if (interp::BlockMemory::Mbarrier *m = interp::mbarrier_of(ctx, op, 0)) *m = {};
}

void infer_arrive(InferCtx &ctx, Op &op) {
  default_attr(op, "count", int64_t(1));
  if (has_places(ctx, op, 0) && in_range(ctx, op, "count", 1, "arrivals")) ctx.result(Type::token());
}
// The state is the phase that the arrival belongs to.
void interp_arrive(interp::Ctx &ctx, const Op &op) {
  interp::BlockMemory::Mbarrier *m = interp::mbarrier_of(ctx, op, 0);
  if (!m) return;
  interp::Tile state(DType::I64, {});
  state.i[0] = m->phase;
  ctx.set(op.result(), std::move(state));
  interp::arrive(ctx, op, *m, interp::threads_of(op) * op.attrs.i("count"), 0);
}

void infer_expect(InferCtx &ctx, Op &op) {
  if (has_places(ctx, op, 0)) in_range(ctx, op, "bytes", 0, "bytes");
}
void interp_expect(interp::Ctx &ctx, const Op &op) {
  interp::BlockMemory::Mbarrier *m = interp::mbarrier_of(ctx, op, 0);
  if (m) interp::arrive(ctx, op, *m, op.kind == OpKind::MbarrierArriveExpectTx ? 1 : 0, op.attrs.i("bytes"));
}

void interp_arrive_copies(interp::Ctx &ctx, const Op &op) {
  interp::BlockMemory::Mbarrier *m = interp::mbarrier_of(ctx, op, 0);
  if (m && op.attrs.i("noinc")) interp::arrive(ctx, op, *m, interp::threads_of(op), 0);
}

void infer_wait(InferCtx &ctx, Op &op) {
  if (!has_places(ctx, op, 1)) return;
  const ir::Value *state = op.operand(0);
  if (!state->op || state->op->kind != OpKind::MbarrierArrive)
    return ctx.error(DiagKind::bad_async, shown(op), "its state is what `mbarrier.arrive` gave");
  ir::Place of = ir::place(*state->op), here = ir::place(op);
  if (of.made != here.made) ctx.error(DiagKind::bad_async, shown(op), "the state is that of another mbarrier");
}
void interp_wait(interp::Ctx &ctx, const Op &op) {
  if (interp::BlockMemory::Mbarrier *m = interp::mbarrier_of(ctx, op, 0))
    interp::wait_phase(ctx, op, *m, ctx.scalar_i(op.operand(0)) + 1, false);
}

void infer_wait_parity(InferCtx &ctx, Op &op) {
  if (has_places(ctx, op, 1)) is_scalar(ctx, op, 0, kInts);
}
void interp_wait_parity(interp::Ctx &ctx, const Op &op) {
  interp::BlockMemory::Mbarrier *m = interp::mbarrier_of(ctx, op, 0);
  if (!m) return;
  int64_t parity = ctx.scalar_i(op.operand(0));
  if (parity != 0 && parity != 1) return ctx.trap(op, fmt::format("a parity is 0 or 1, not {}", parity));
  interp::wait_phase(ctx, op, *m, parity, true);
}

void interp_arrive_and_wait(interp::Ctx &ctx, const Op &op) {
  interp::BlockMemory::Mbarrier *m = interp::mbarrier_of(ctx, op, 0);
  if (!m) return;
  int64_t phase = m->phase;
  interp::arrive(ctx, op, *m, interp::threads_of(op), 0);
  if (!ctx.trapped()) interp::wait_phase(ctx, op, *m, phase + 1, false);
}

#define TKC_MBARRIER_EXAMPLE                                                                                           \
  "let s = shared<f32>[16, 32];\nlet full = barrier();\n"                                                              \
  "if elect() { mbarrier.init(full, 64); }    // the 64 threads of role `make` arrive\n"                               \
  "role make warps 2 {\n  store(s, load(x[:, :]));\n  mbarrier.arrive(full);\n}\n"                                     \
  "role take warps 1 {\n  mbarrier.wait_parity(full, 0);            // phase 0 is over\n  store(y[:, :], load(s));\n}"
#define TKC_TX_EXAMPLE(arrive)                                                                                         \
  "let s = shared<f32>[16, 32];\nlet full = barrier();\nif elect() { mbarrier.init(full, 1); }\n"                      \
  "role all warps 1 {\n  if elect() {\n" arrive "    tma_load(s, x[0 :+ 16, :], full);\n"
#define TKC_TX_EXAMPLE_END "  }\n  mbarrier.wait_parity(full, 0);\n  store(y[:, :], load(s));\n}"
#define TKC_OWN_WARPS_EXAMPLE(meet)                                                                                    \
  "let s = shared<f32>[16, 32];\nlet met = barrier();\nif elect() { mbarrier.init(met, 64); }\n"                       \
  "role all warps 2 {\n  store(s, load(x[:, :]));\n" meet "  store(y[:, :], load(s));\n}"

} // namespace
} // namespace tkc::ops

namespace tkc::ir {
using namespace ops;

constexpr OpDef kBarrierAlloc = {
    .name = "barrier_alloc",
    .source = "barrier",
    .signature = "barrier(slots: int = 1)",
    .doc =
        "`let b = barrier(n);`: n mbarriers (1 if not given) in shared memory; `b[i]` is one, `b` alone the only one. "
        "A kernel that has some says how many warps it or each of its roles has. An mbarrier counts the arrivals of "
        "threads and the bytes of copies of its current phase; when all are there the phase is over and the next "
        "one begins. Phases have parities: 0, 1, 0, ..",
    .example = TKC_MBARRIER_EXAMPLE,
    .effects = {kByHandShared, kByHandOrder},
    .derivative = kNoByHand,
    .infer = infer_barrier_alloc,
    .interp = interp_barrier_alloc,
    .lower = lower_BarrierAlloc};

constexpr OpDef kMbarrierInit = {
    .name = "mbarrier_init",
    .source = "mbarrier.init",
    .signature = "mbarrier.init(b: barrier, count: int)",
    .doc = "One thread makes it an mbarrier whose phases expect `count` arrivals. The others may use it behind a "
           "`block_barrier`; roles start behind one. PTX: `mbarrier.init`, from sm_90 on with "
           "`fence.mbarrier_init.release.cluster` where copies complete on mbarriers.",
    .example = TKC_MBARRIER_EXAMPLE,
    .effects = {kByHandShared, kByHandOrder},
    .derivative = kNoByHand,
    .infer = infer_init,
    .interp = interp_init,
    .lower = lower_MbarrierInit};

constexpr OpDef kMbarrierInval = {
    .name = "mbarrier_inval",
    .source = "mbarrier.inval",
    .signature = "mbarrier.inval(b: barrier)",
    .doc = "One thread ends the mbarrier, which may then be initialised again. PTX: `mbarrier.inval`.",
    .example = "let s = shared<f32>[16, 32];\nlet met = barrier();\nif elect() { mbarrier.init(met, 64); }\n"
               "role all warps 2 {\n  store(s, load(x[:, :]));\n  mbarrier.arrive_and_wait(met);\n"
               "  store(y[:, :], load(s));\n  block_barrier();\n  if elect() { mbarrier.inval(met); }\n}",
    .effects = {kByHandShared, kByHandOrder},
    .derivative = kNoByHand,
    .infer = infer_place,
    .interp = interp_inval,
    .lower = lower_MbarrierInval};

constexpr OpDef kMbarrierArrive = {
    .name = "mbarrier_arrive",
    .source = "mbarrier.arrive",
    .signature = "mbarrier.arrive(b: barrier, count: int = 1)",
    .doc =
        "Each thread arrives (`count` times): what it has done before is visible to those that wait for the phase. The "
        "result is the state to `mbarrier.wait` for. PTX: `mbarrier.arrive`; with a count before sm_90 "
        "`mbarrier.arrive.noComplete` of all but one arrival comes first.",
    .example = TKC_MBARRIER_EXAMPLE,
    .effects = {kByHandShared, kByHandOrder},
    .derivative = kNoByHand,
    .infer = infer_arrive,
    .interp = interp_arrive,
    .lower = lower_MbarrierArrive};

constexpr OpDef kMbarrierExpectTx = {
    .name = "mbarrier_expect_tx",
    .source = "mbarrier.expect_tx",
    .signature = "mbarrier.expect_tx(b: barrier, bytes: int)",
    .doc = "One thread says that the current phase is to wait for so many more bytes of copies. The phase must still "
           "lack an arrival. PTX: `mbarrier.expect_tx.relaxed`.",
    .example =
        TKC_TX_EXAMPLE("    mbarrier.expect_tx(full, 2048);\n") "    mbarrier.arrive(full);\n" TKC_TX_EXAMPLE_END,
    .effects = {kByHandShared, kByHandOrder},
    .min_sm = 90,
    .derivative = kNoByHand,
    .infer = infer_expect,
    .interp = interp_expect,
    .lower = lower_MbarrierExpectTx};

constexpr OpDef kMbarrierArriveExpectTx = {
    .name = "mbarrier_arrive_expect_tx",
    .source = "mbarrier.arrive_expect_tx",
    .signature = "mbarrier.arrive_expect_tx(b: barrier, bytes: int)",
    .doc = "One thread: `mbarrier.expect_tx` and then one arrival. PTX: `mbarrier.arrive.expect_tx`.",
    .example = TKC_TX_EXAMPLE("    mbarrier.arrive_expect_tx(full, 2048);\n") TKC_TX_EXAMPLE_END,
    .effects = {kByHandShared, kByHandOrder},
    .min_sm = 90,
    .derivative = kNoByHand,
    .infer = infer_expect,
    .interp = interp_expect,
    .lower = lower_MbarrierArriveExpectTx};

constexpr OpDef kMbarrierArriveCopies = {
    .name = "mbarrier_arrive_copies",
    .source = "mbarrier.arrive_copies",
    .signature = "mbarrier.arrive_copies(b: barrier, noinc: bool = false)",
    .doc =
        "The current phase waits for what each thread has started by `copy_async`. With `noinc` that is an arrival of "
        "the thread, one of those that the phase expects, which comes when the copies have arrived. Without, it is "
        "one more that the phase then expects, so the thread still has to arrive by itself, behind this. PTX: "
        "`cp.async.mbarrier.arrive`, `.noinc`.",
    .example =
        "let s = shared<f32>[16, 32];\nlet full = barrier();\nif elect() { mbarrier.init(full, 64); }\n"
        "role make warps 2 {\n  copy_async(s, x[0 :+ 16, :]);\n  mbarrier.arrive_copies(full, noinc = true);\n}\n"
        "role take warps 1 {\n  mbarrier.wait_parity(full, 0);\n  store(y[:, :], load(s));\n}",
    .effects = {kByHandShared, kByHandOrder},
    .derivative = kNoByHand,
    .infer = infer_place,
    .interp = interp_arrive_copies,
    .lower = lower_MbarrierArriveCopies};

constexpr OpDef kMbarrierWait = {
    .name = "mbarrier_wait",
    .source = "mbarrier.wait",
    .signature = "mbarrier.wait(b: barrier, state: state)",
    .doc = "Each thread waits until the phase is over in which its arrival gave this state: the current one or the one "
           "before. PTX: a loop of `mbarrier.try_wait`, before sm_90 of `mbarrier.test_wait`.",
    .example = TKC_OWN_WARPS_EXAMPLE("  let phase = mbarrier.arrive(met);\n  mbarrier.wait(met, phase);\n"),
    .effects = {kByHandShared, kByHandOrder},
    .derivative = kNoByHand,
    .infer = infer_wait,
    .interp = interp_wait,
    .lower = lower_MbarrierWait};

constexpr OpDef kMbarrierWaitParity = {
    .name = "mbarrier_wait_parity",
    .source = "mbarrier.wait_parity",
    .signature = "mbarrier.wait_parity(b: barrier, parity: scalar)",
    .doc = "Each thread waits while the current phase has this parity: until the phase with it, the current one or the "
           "one before, is over. On a fresh mbarrier a wait for parity 1 goes through at once. The c-th item in turn "
           "over S slots has slot `c % S` and parity `c / S % 2`. PTX: a loop of `mbarrier.try_wait.parity`, before "
           "sm_90 of `mbarrier.test_wait.parity`.",
    .example = TKC_MBARRIER_EXAMPLE,
    .effects = {kByHandShared, kByHandOrder},
    .derivative = kNoByHand,
    .infer = infer_wait_parity,
    .interp = interp_wait_parity,
    .lower = lower_MbarrierWaitParity};

constexpr OpDef kMbarrierArriveAndWait = {
    .name = "mbarrier_arrive_and_wait",
    .source = "mbarrier.arrive_and_wait",
    .signature = "mbarrier.arrive_and_wait(b: barrier)",
    .doc = "Each thread arrives and waits for the end of that phase. PTX: `mbarrier.arrive` and the loop of "
           "`mbarrier.wait`.",
    .example = TKC_OWN_WARPS_EXAMPLE("  mbarrier.arrive_and_wait(met);\n"),
    .effects = {kByHandShared, kByHandOrder},
    .derivative = kNoByHand,
    .infer = infer_place,
    .interp = interp_arrive_and_wait,
    .lower = lower_MbarrierArriveAndWait};

} // namespace tkc::ir
