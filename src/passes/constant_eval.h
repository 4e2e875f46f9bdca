// Arithmetic on scalar constants, as the interpreter does it: one rounding to the dtype, integers wrap.
#pragma once
#include "ir/op_def.h"
#include <span>

namespace tkc::passes {

struct Constant {
  DType dtype = DType::I32;
  double f = 0;                                                                 // of a float dtype
  int64_t i = 0;                                                                // of the others, as an image in int64
  bool is(double v) const { return is_float(dtype) ? f == v : double(i) == v; } // -0 is 0
};

// The result of an elementwise op on constants; nullopt where the value is not decided here: functions that hardware
// approximates, division by zero, conversions of integers that a double does not hold.
std::optional<Constant> evaluate(const ir::Op &op, std::span<const Constant> operands);

} // namespace tkc::passes
