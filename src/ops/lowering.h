// The lowering facets of all ops: lower_<Kind> is defined in src/ops/<family>_lower.cpp. The op definitions name them
// without seeing LLVM.
#pragma once
#include "ir/op_def.h"

namespace tkc::ops {

#define TKC_OP(kind, family) void lower_##kind(codegen::LowerCtx &, const ir::Op &);
#include "ir/ops.def"
#undef TKC_OP

} // namespace tkc::ops
