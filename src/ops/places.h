// Where slots of shared memory and mbarriers by hand lie, for the lowerings of the ops that use them.
#pragma once
#include "codegen/access.h"
#include "ir/by_hand.h"
#include "ops/shared_side.h"

namespace tkc::ops {

// A slot's number as i32.
inline llvm::Value *slot_number(codegen::LowerCtx &c, const ir::Place &p) {
  return c.b.CreateSExtOrTrunc(codegen::position_value(c, p.slot), c.b.getInt32Ty());
}
inline const SmemLayout &smem_of(const ir::Place &p) { return p.made->attrs.get<SmemLayout>("smem"); }
inline SharedPlace slot_place(codegen::LowerCtx &c, const ir::Place &p) {
  int64_t offset = p.made->attrs.i("offset");
  llvm::Value *bytes = c.b.CreateMul(slot_number(c, p), c.i32(p.made->attrs.i("slot_bytes")));
  if (auto *k = llvm::dyn_cast<llvm::ConstantInt>(bytes)) return {offset + k->getSExtValue(), nullptr};
  return {offset, bytes};
}
inline llvm::Value *mbarrier_address(codegen::LowerCtx &c, const ir::Place &p) {
  return codegen::shared_address(c, p.made->attrs.i("offset"), slot_number(c, p), 8);
}

} // namespace tkc::ops
