// The associative operations of reductions and scans on accumulators, in LLVM IR.
#pragma once
#include "codegen/access.h"
#include "ops/scratch.h"

namespace tkc::ops {

enum class Combine : uint8_t { Sum, Prod, Max, Min, Any, All };

// `t` is an accumulator type. Of max and min a NaN loses against a number and -0 is below +0, as in PTX.
llvm::Value *combine(codegen::LowerCtx &c, Combine op, DType t, llvm::Value *a, llvm::Value *b);
llvm::Value *identity(codegen::LowerCtx &c, Combine op, DType t);
// An element as an accumulator (f16 and bf16 become f32, integers extend by the sign of `from`) and back, rounded once.
llvm::Value *to_accumulator(codegen::LowerCtx &c, llvm::Value *v, DType from, DType t);
llvm::Value *from_accumulator(codegen::LowerCtx &c, llvm::Value *v, DType t, DType to);

} // namespace tkc::ops
