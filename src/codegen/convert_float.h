// Conversions between dtypes on registers, with the results of support/dtype.h: one rounding, saturation where the type
// has no infinity.
#pragma once
#include "codegen/lower_ctx.h"

namespace tkc::codegen {

// Elements of one dtype as elements of another (op `cast`). Registers 2i and 2i+1 are converted together where the
// target has an instruction for pairs (16-bit and 8-bit floats). Null registers stay null.
Regs convert(LowerCtx &c, DType from, DType to, const Regs &x);

// A float dtype of at most 32 bits as f32, exactly; f64 stays f64.
Regs widen(LowerCtx &c, DType t, const Regs &x);
// f32 (f64 if t is) to the float dtype t with one rounding.
Regs narrow(LowerCtx &c, DType t, const Regs &x);

// A word of four fp8 values (e4m3 or e5m2; i32) as two words of two f16 values each, the low pair first. Exact.
std::array<llvm::Value *, 2> fp8_word_to_f16(LowerCtx &c, DType t, llvm::Value *word);

} // namespace tkc::codegen
