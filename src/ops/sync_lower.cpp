#include "codegen/access.h"
#include "ops/lowering.h"

namespace tkc::ops {

using namespace codegen;
using ir::Op;
using llvm::Value;

void lower_BlockBarrier(LowerCtx &c, const Op &op) {
  if (op.attrs.s("scope") == "warp")
    nvvm::bar_warp_sync(c.b);
  else
    c.role_barrier();
}

// The same thread whichever warps ask: the one that the first warp of the role elects.
void lower_ElectThread(LowerCtx &c, const Op &op) {
  if (!c.target.has(ir::kElect)) return c.set(op.result(), {c.b.CreateICmpEQ(c.thread(), c.i32(0))});
  Value *one = nvvm::elect_sync(c.b);
  if (c.role_warps() > 1) one = c.b.CreateAnd(c.b.CreateICmpEQ(c.warp(), c.i32(0)), one);
  c.set(op.result(), {one});
}

void lower_ProxyFence(LowerCtx &c, const Op &) {
  if (c.tensor_copies() && c.target.has(ir::kTma)) nvvm::fence_proxy_async_shared_cta(c.b);
}

} // namespace tkc::ops
