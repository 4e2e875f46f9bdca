// The reverse-mode rules of the ops: adjoint_<Kind> is defined in src/ops/<family>_adjoint.cpp. A rule adds to the
// cotangents of the operands that want one; that of the result is not zero when it is called.
#pragma once
#include "interp/reverse.h"
#include "ops/common.h"

namespace tkc::ops {

using interp::Cotangent;
using interp::Reverse;
using Adjoint = ir::AdjointFn;

// elementwise
Adjoint adjoint_Neg, adjoint_Abs, adjoint_Exp, adjoint_Exp2, adjoint_Expm1, adjoint_Log, adjoint_Log2, adjoint_Log1p,
    adjoint_Sqrt, adjoint_Rsqrt, adjoint_Rcp, adjoint_Sin, adjoint_Cos, adjoint_Tanh, adjoint_Sigmoid, adjoint_Erf,
    adjoint_Add, adjoint_Sub, adjoint_Mul, adjoint_Div, adjoint_Pow, adjoint_Min, adjoint_Max, adjoint_Where,
    adjoint_Fma, adjoint_Cast;
// shape
Adjoint adjoint_Reshape, adjoint_Broadcast, adjoint_Transpose, adjoint_Concat, adjoint_Slice, adjoint_Insert,
    adjoint_DynSlice, adjoint_DynUpdate;
// reduce, scan
Adjoint adjoint_ReduceSum, adjoint_ReduceProd, adjoint_ReduceMax, adjoint_ReduceMin, adjoint_CumSum, adjoint_CumProd,
    adjoint_CumMax, adjoint_CumMin;
// mma, control
Adjoint adjoint_Mma, adjoint_For, adjoint_While, adjoint_If;

// What an adjoint reads of an op, for `adjoint(rule, reads)`: the values of operands 0, 1, ..., or of the result.
constexpr uint32_t kX = 1, kY = 2, kZ = 4, kResult = ir::Derivative::kResults;

// Reasons of ops without a rule.
constexpr ir::Derivative kNoFloats = ir::zero_derivative("its operands or its results are no floats");
constexpr ir::Derivative kSteps = ir::zero_derivative("it is constant between its steps");
constexpr ir::Derivative kOfKernels =
    ir::no_derivative("it works on the tensors of kernels; the arrays of a reference are indexed and assigned");

} // namespace tkc::ops
