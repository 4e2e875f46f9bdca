// Values that are made again in another layout rather than converted: they depend on scalars and positions only.
#pragma once
#include "ir/ir.h"
#include "layout/reg_layout.h"

namespace tkc::passes {

// Ops that make `v` from scalars alone, whatever its layout (iota, broadcasts of scalars, pointwise ops of these), or 0
// if it depends on anything else or needs more than four.
int64_t remake_ops(const ir::Value *v);

// Makes `v` again with layout `to`, right after its definition. remake_ops(v) > 0.
ir::Value *remake(ir::Function &f, ir::Value *v, const RegLayout &to);

} // namespace tkc::passes
