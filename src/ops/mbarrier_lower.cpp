#include "ops/lowering.h"
#include "ops/places.h"

namespace tkc::ops {

using namespace codegen;
using ir::Op;
using llvm::Value;

void lower_BarrierAlloc(LowerCtx &, const Op &) {} // bytes at a constant offset

void lower_MbarrierInit(LowerCtx &c, const Op &op) {
  nvvm::mbarrier_init(c.b, mbarrier_address(c, ir::place(op)), op.attrs.i("count"));
  if (c.target.has(ir::kTma) && ir::needs_alignment(c.function)) nvvm::fence_mbarrier_init(c.b);
}

void lower_MbarrierInval(LowerCtx &c, const Op &op) { nvvm::mbarrier_inval(c.b, mbarrier_address(c, ir::place(op))); }

void lower_MbarrierArrive(LowerCtx &c, const Op &op) {
  c.set(op.result(), {nvvm::mbarrier_arrive(c.b, mbarrier_address(c, ir::place(op)), op.attrs.i("count"), c.target)});
}

void lower_MbarrierExpectTx(LowerCtx &c, const Op &op) {
  nvvm::mbarrier_expect_tx(c.b, mbarrier_address(c, ir::place(op)), op.attrs.i("bytes"));
}

void lower_MbarrierArriveExpectTx(LowerCtx &c, const Op &op) {
  nvvm::mbarrier_arrive_expect_tx(c.b, mbarrier_address(c, ir::place(op)), op.attrs.i("bytes"));
}

void lower_MbarrierArriveCopies(LowerCtx &c, const Op &op) {
  Value *barrier = mbarrier_address(c, ir::place(op));
  bool noinc = op.attrs.i("noinc") != 0;
  // Plain stores are released by an arrival of the thread itself: by this one, or by the one that follows.
  if (c.plain_fills.empty() && c.tensor_copies()) {
    if (noinc)
      nvvm::cp_async_mbarrier_arrive_noinc(c.b, barrier);
    else
      nvvm::cp_async_mbarrier_arrive(c.b, barrier);
    return;
  }
  nvvm::cp_async_wait_all(c.b);
  if (noinc) nvvm::mbarrier_arrive(c.b, barrier);
}

void lower_MbarrierWait(LowerCtx &c, const Op &op) {
  nvvm::mbarrier_wait(c.b, mbarrier_address(c, ir::place(op)), c.regs(op.operand(0))[0], c.target);
}

void lower_MbarrierWaitParity(LowerCtx &c, const Op &op) {
  Value *parity = c.b.CreateZExtOrTrunc(c.scalar(op.operand(0)), c.b.getInt32Ty());
  nvvm::mbarrier_wait_parity(c.b, mbarrier_address(c, ir::place(op)), parity, c.target);
}

void lower_MbarrierArriveAndWait(LowerCtx &c, const Op &op) {
  Value *barrier = mbarrier_address(c, ir::place(op));
  nvvm::mbarrier_wait(c.b, barrier, nvvm::mbarrier_arrive(c.b, barrier, 1, c.target), c.target);
}

} // namespace tkc::ops
