#include "ops/lowering.h"
#include "ops/places.h"

namespace tkc::ops {

using namespace codegen;
using ir::Op;

void lower_SharedAlloc(LowerCtx &, const Op &) {} // bytes at a constant offset

void lower_SharedLoad(LowerCtx &c, const Op &op) {
  ir::Place p = ir::place(op);
  const ir::Value *result = op.result();
  const RegLayout &l = c.layout(result);
  SmemSide side = plan_smem_load(l, smem_of(p), ir::layout_features(c.target));
  Regs regs(size_t(l.num_regs()), nullptr);
  load_side(c, side, slot_place(c, p), 0, result->type.dtype, regs);
  for (auto [to, from] : side.copies) regs[size_t(to)] = regs[size_t(from)];
  c.set(result, std::move(regs));
}

void lower_SharedStore(LowerCtx &c, const Op &op) {
  ir::Place p = ir::place(op);
  const ir::Value *x = op.operand(0);
  SmemSide side = plan_smem_store(c.layout(x), smem_of(p), ir::layout_features(c.target));
  store_side(c, side, slot_place(c, p), 0, x);
}

} // namespace tkc::ops
