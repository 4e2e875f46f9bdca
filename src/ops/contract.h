// While one lives, products and sums of f32 and f64 may be fused. Those of narrower types may not: each op rounds.
#pragma once
#include "codegen/lower_ctx.h"

namespace tkc::ops {

struct Contract {
  llvm::IRBuilderBase::FastMathFlagGuard guard;
  Contract(codegen::LowerCtx &c, DType t) : guard(c.b) {
    llvm::FastMathFlags flags;
    flags.setAllowContract(t == DType::F32 || t == DType::F64);
    c.b.setFastMathFlags(flags);
  }
};

} // namespace tkc::ops
