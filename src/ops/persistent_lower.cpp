#include "codegen/lower_ctx.h"
#include "codegen/nvvm.h"
#include "ops/lowering.h"

namespace tkc::ops {

using codegen::LowerCtx;
using ir::Op;

void lower_BlockId(LowerCtx &c, const Op &op) { c.set(op.result(), {codegen::nvvm::ctaid_x(c.b)}); }
void lower_NumBlocks(LowerCtx &c, const Op &op) { c.set(op.result(), {codegen::nvvm::nctaid_x(c.b)}); }
void lower_TileCoordinate(LowerCtx &c, const Op &op) {
  c.set(op.result(), {c.coordinates(c.scalar(op.operand(0)))[size_t(op.attrs.i("axis"))]});
}

void lower_GridWait(LowerCtx &c, const Op &) { codegen::nvvm::griddepcontrol_wait(c.b); }
void lower_LaunchDependents(LowerCtx &c, const Op &) { codegen::nvvm::griddepcontrol_launch_dependents(c.b); }

} // namespace tkc::ops
