// One- and two-operand functions of each element.
//
// f16 and bf16: what rounds once in hardware (add, sub, mul, fma, min, max, neg, abs) runs on pairs of registers,
// everything else in f32 with one rounding; f32's 24 bits are enough that the second rounding of add, sub, mul, div and
// sqrt never shows. tf32 is computed in f32 and rounded.
#include "codegen/convert_float.h"
#include "codegen/lower_ctx.h"
#include "codegen/math.h"
#include "codegen/nvvm.h"
#include "ops/contract.h"
#include "ops/lowering.h"
#include "support/check.h"
#include <algorithm>
#include <functional>
#include <limits>

namespace tkc::ops {

using codegen::LowerCtx;
using codegen::Math;
using codegen::Regs;
using ir::Op;
using V = llvm::Value *;
namespace Intrinsic = llvm::Intrinsic;

namespace {

DType operand_dtype(const Op &op, size_t i = 0) { return op.operand(i)->type.dtype; }

bool is_half(DType t) { return t == DType::F16 || t == DType::BF16; }

// Registers of the result, each from those of the operands; null where an operand has none.
template <typename F> Regs map1(const Regs &x, F &&f) {
  Regs out(x.size());
  for (size_t i = 0; i < x.size(); i++)
    if (x[i]) out[i] = f(x[i]);
  return out;
}
template <typename F> Regs map2(const Regs &x, const Regs &y, F &&f) {
  TKC_CHECK(x.size() == y.size(), "operands of {} and {} registers", x.size(), y.size());
  Regs out(x.size());
  for (size_t i = 0; i < x.size(); i++)
    if (x[i] && y[i]) out[i] = f(x[i], y[i]);
  return out;
}

// f16 and bf16 in pairs of neighbouring registers where both exist: f gets <2 x half> or <half>.
template <size_t kCount, typename F> Regs map_pairs(LowerCtx &c, const std::array<const Regs *, kCount> &in, F &&f) {
  llvm::IRBuilder<> &b = c.b;
  size_t n = in[0]->size();
  Regs out(n);
  auto exists = [&](size_t i) {
    return i < n && std::all_of(in.begin(), in.end(), [&](const Regs *r) { return (*r)[i] != nullptr; });
  };
  for (size_t i = 0; i < n; i += 2) {
    std::array<V, kCount> args;
    if (exists(i) && exists(i + 1)) {
      for (size_t k = 0; k < kCount; k++) {
        V lo = (*in[k])[i], hi = (*in[k])[i + 1];
        V pair = llvm::PoisonValue::get(llvm::FixedVectorType::get(lo->getType(), 2));
        args[k] = b.CreateInsertElement(b.CreateInsertElement(pair, lo, uint64_t(0)), hi, uint64_t(1));
      }
      V r = f(args);
      out[i] = b.CreateExtractElement(r, uint64_t(0));
      out[i + 1] = b.CreateExtractElement(r, uint64_t(1));
      continue;
    }
    for (size_t j = i; j < i + 2; j++) {
      if (!exists(j)) continue;
      for (size_t k = 0; k < kCount; k++) args[k] = (*in[k])[j];
      out[j] = f(args);
    }
  }
  return out;
}

// A function of f32 or f64 on any float dtype: computed in f32 and rounded once where the type is narrower.
void lower_math(LowerCtx &c, const Op &op, V (Math::*f)(V)) {
  DType t = operand_dtype(op);
  Math math(c.b, op.attrs.i_or("precise", 0) != 0);
  Regs r = map1(codegen::widen(c, t, c.regs(op.operand(0))), [&](V x) { return (math.*f)(x); });
  c.set(op.result(), codegen::narrow(c, t, r));
}

void lower_rounding(LowerCtx &c, const Op &op, Intrinsic::ID id) {
  DType t = operand_dtype(op);
  Regs r = map1(codegen::widen(c, t, c.regs(op.operand(0))), [&](V x) { return c.b.CreateUnaryIntrinsic(id, x); });
  c.set(op.result(), codegen::narrow(c, t, r));
}

using BinaryFn = V(llvm::IRBuilder<> &, V, V);

void lower_arithmetic(LowerCtx &c, const Op &op, BinaryFn *floats, BinaryFn *integers) {
  DType t = operand_dtype(op);
  const Regs &x = c.regs(op.operand(0)), &y = c.regs(op.operand(1));
  Contract contract(c, t);
  if (is_half(t))
    return c.set(op.result(), map_pairs<2>(c, {&x, &y}, [&](auto &a) { return floats(c.b, a[0], a[1]); }));
  Regs r = map2(x, y, [&](V a, V b) { return is_float(t) ? floats(c.b, a, b) : integers(c.b, a, b); });
  c.set(op.result(), t == DType::TF32 ? codegen::narrow(c, t, r) : r);
}

V fadd(llvm::IRBuilder<> &b, V x, V y) { return b.CreateFAdd(x, y); }
V fsub(llvm::IRBuilder<> &b, V x, V y) { return b.CreateFSub(x, y); }
V fmul(llvm::IRBuilder<> &b, V x, V y) { return b.CreateFMul(x, y); }
V add(llvm::IRBuilder<> &b, V x, V y) { return b.CreateAdd(x, y); }
V sub(llvm::IRBuilder<> &b, V x, V y) { return b.CreateSub(x, y); }
V mul(llvm::IRBuilder<> &b, V x, V y) { return b.CreateMul(x, y); }

void lower_extremum(LowerCtx &c, const Op &op, bool maximum) {
  DType t = operand_dtype(op);
  const Regs &x = c.regs(op.operand(0)), &y = c.regs(op.operand(1));
  Intrinsic::ID id = maximum ? Intrinsic::maximumnum : Intrinsic::minimumnum;
  if (is_integer(t))
    id = is_signed(t) ? (maximum ? Intrinsic::smax : Intrinsic::smin) : (maximum ? Intrinsic::umax : Intrinsic::umin);
  auto f = [&](V a, V b) { return c.b.CreateBinaryIntrinsic(id, a, b); };
  if (is_half(t)) return c.set(op.result(), map_pairs<2>(c, {&x, &y}, [&](auto &a) { return f(a[0], a[1]); }));
  c.set(op.result(), map2(x, y, f));
}

// Division by zero and lowest / -1 are undefined in LLVM and must not be: a zero divisor gives any value, -1 wraps.
V divide(LowerCtx &c, DType t, V x, V y, bool remainder) {
  llvm::IRBuilder<> &b = c.b;
  llvm::Type *type = x->getType();
  auto constant = [&](int64_t v) { return llvm::ConstantInt::getSigned(type, v); };
  V zero = b.CreateICmpEQ(y, constant(0));
  if (!is_signed(t)) {
    V d = b.CreateSelect(zero, constant(1), y);
    return remainder ? b.CreateURem(x, d) : b.CreateUDiv(x, d);
  }
  V minus = b.CreateICmpEQ(y, constant(-1));
  V d = b.CreateSelect(b.CreateOr(zero, minus), constant(1), y);
  if (remainder) return b.CreateSRem(x, d);
  return b.CreateSelect(minus, b.CreateNeg(x), b.CreateSDiv(x, d));
}

// The amount is unsigned, and one past the width shifts everything out.
V shift(LowerCtx &c, DType t, V x, V amount, bool left) {
  llvm::IRBuilder<> &b = c.b;
  llvm::Type *type = x->getType();
  auto constant = [&](int64_t v) { return llvm::ConstantInt::getSigned(type, v); };
  if (!left && is_signed(t)) {
    V last = constant(dtype_bits(t) - 1);
    return b.CreateAShr(x, b.CreateBinaryIntrinsic(Intrinsic::umin, amount, last));
  }
  auto by = [&](V v, V n) { return left ? b.CreateShl(v, n) : b.CreateLShr(v, n); };
  // LLVM drops the select of the other widths, because shl and shr clamp the amount; but theirs has 32 bits, to which
  // it cuts one of 64 bits unclamped. So these go in two steps, none of which passes the width.
  if (dtype_bits(t) == 64) {
    V all = b.CreateBinaryIntrinsic(Intrinsic::umin, amount, constant(64)), half = b.CreateLShr(all, constant(1));
    return by(by(x, half), b.CreateSub(all, half));
  }
  V fits = b.CreateICmpULT(amount, constant(dtype_bits(t)));
  // The amount in the unselected case must still be a defined one.
  V safe = b.CreateSelect(fits, amount, constant(0));
  return b.CreateSelect(fits, by(x, safe), constant(0));
}

void lower_integers(LowerCtx &c, const Op &op, const std::function<V(DType, V, V)> &f) {
  DType t = operand_dtype(op);
  c.set(op.result(), map2(c.regs(op.operand(0)), c.regs(op.operand(1)), [&](V x, V y) { return f(t, x, y); }));
}

void lower_compare(LowerCtx &c, const Op &op, llvm::CmpInst::Predicate floats, llvm::CmpInst::Predicate is_signed_form,
                   llvm::CmpInst::Predicate is_unsigned_form) {
  DType t = operand_dtype(op);
  c.set(op.result(), map2(c.regs(op.operand(0)), c.regs(op.operand(1)), [&](V x, V y) {
          if (is_float(t)) return c.b.CreateFCmp(floats, x, y);
          return c.b.CreateICmp(is_signed(t) ? is_signed_form : is_unsigned_form, x, y);
        }));
}

} // namespace

// ---- one operand

void lower_Neg(LowerCtx &c, const Op &op) {
  DType t = operand_dtype(op);
  const Regs &x = c.regs(op.operand(0));
  if (is_half(t)) return c.set(op.result(), map_pairs<1>(c, {&x}, [&](auto &a) { return c.b.CreateFNeg(a[0]); }));
  c.set(op.result(), map1(x, [&](V v) { return is_float(t) ? c.b.CreateFNeg(v) : c.b.CreateNeg(v); }));
}

void lower_Abs(LowerCtx &c, const Op &op) {
  DType t = operand_dtype(op);
  const Regs &x = c.regs(op.operand(0));
  auto fabs = [&](V v) { return c.b.CreateUnaryIntrinsic(Intrinsic::fabs, v); };
  if (is_half(t)) return c.set(op.result(), map_pairs<1>(c, {&x}, [&](auto &a) { return fabs(a[0]); }));
  c.set(op.result(), map1(x, [&](V v) -> V {
          if (is_float(t)) return fabs(v);
          return is_signed(t) ? c.b.CreateBinaryIntrinsic(Intrinsic::abs, v, c.b.getFalse()) : v;
        }));
}

void lower_Not(LowerCtx &c, const Op &op) {
  c.set(op.result(), map1(c.regs(op.operand(0)), [&](V v) { return c.b.CreateNot(v); }));
}

void lower_Exp(LowerCtx &c, const Op &op) { lower_math(c, op, &Math::exp); }
void lower_Exp2(LowerCtx &c, const Op &op) { lower_math(c, op, &Math::exp2); }
void lower_Expm1(LowerCtx &c, const Op &op) { lower_math(c, op, &Math::expm1); }
void lower_Log(LowerCtx &c, const Op &op) { lower_math(c, op, &Math::log); }
void lower_Log2(LowerCtx &c, const Op &op) { lower_math(c, op, &Math::log2); }
void lower_Log1p(LowerCtx &c, const Op &op) { lower_math(c, op, &Math::log1p); }
void lower_Sqrt(LowerCtx &c, const Op &op) { lower_math(c, op, &Math::sqrt); }
void lower_Rsqrt(LowerCtx &c, const Op &op) { lower_math(c, op, &Math::rsqrt); }
void lower_Rcp(LowerCtx &c, const Op &op) { lower_math(c, op, &Math::rcp); }
void lower_Sin(LowerCtx &c, const Op &op) { lower_math(c, op, &Math::sin); }
void lower_Cos(LowerCtx &c, const Op &op) { lower_math(c, op, &Math::cos); }
void lower_Sigmoid(LowerCtx &c, const Op &op) { lower_math(c, op, &Math::sigmoid); }
void lower_Erf(LowerCtx &c, const Op &op) { lower_math(c, op, &Math::erf); }

// tanh.approx is good to 2^-11: enough for results of 8 or 11 bits, not for f32.
void lower_Tanh(LowerCtx &c, const Op &op) {
  DType t = operand_dtype(op);
  if (!is_half(t) || op.attrs.i_or("precise", 0)) return lower_math(c, op, &Math::tanh);
  Regs r =
      map1(codegen::widen(c, t, c.regs(op.operand(0))), [&](V x) { return codegen::nvvm::tanh_approx_f32(c.b, x); });
  c.set(op.result(), codegen::narrow(c, t, r));
}

void lower_Floor(LowerCtx &c, const Op &op) { lower_rounding(c, op, Intrinsic::floor); }
void lower_Ceil(LowerCtx &c, const Op &op) { lower_rounding(c, op, Intrinsic::ceil); }
void lower_Round(LowerCtx &c, const Op &op) { lower_rounding(c, op, Intrinsic::rint); }
void lower_Trunc(LowerCtx &c, const Op &op) { lower_rounding(c, op, Intrinsic::trunc); }

void lower_IsNan(LowerCtx &c, const Op &op) {
  c.set(op.result(), map1(c.regs(op.operand(0)), [&](V v) { return c.b.CreateFCmpUNO(v, v); }));
}
void lower_IsFinite(LowerCtx &c, const Op &op) {
  c.set(op.result(), map1(c.regs(op.operand(0)), [&](V v) {
          V magnitude = c.b.CreateUnaryIntrinsic(Intrinsic::fabs, v);
          return c.b.CreateFCmpOLT(magnitude, llvm::ConstantFP::getInfinity(v->getType()));
        }));
}

// ---- two operands

void lower_Add(LowerCtx &c, const Op &op) { lower_arithmetic(c, op, fadd, add); }
void lower_Sub(LowerCtx &c, const Op &op) { lower_arithmetic(c, op, fsub, sub); }
void lower_Mul(LowerCtx &c, const Op &op) { lower_arithmetic(c, op, fmul, mul); }

void lower_Div(LowerCtx &c, const Op &op) {
  DType t = operand_dtype(op);
  if (is_integer(t)) return lower_integers(c, op, [&](DType d, V x, V y) { return divide(c, d, x, y, false); });
  Math math(c.b, op.attrs.i_or("precise", 0) != 0);
  Regs x = codegen::widen(c, t, c.regs(op.operand(0))), y = codegen::widen(c, t, c.regs(op.operand(1)));
  c.set(op.result(), codegen::narrow(c, t, map2(x, y, [&](V a, V b) { return math.div(a, b); })));
}

void lower_Rem(LowerCtx &c, const Op &op) {
  lower_integers(c, op, [&](DType t, V x, V y) { return divide(c, t, x, y, true); });
}

void lower_Pow(LowerCtx &c, const Op &op) {
  DType t = operand_dtype(op);
  Math math(c.b, op.attrs.i_or("precise", 0) != 0);
  Regs x = codegen::widen(c, t, c.regs(op.operand(0))), y = codegen::widen(c, t, c.regs(op.operand(1)));
  c.set(op.result(), codegen::narrow(c, t, map2(x, y, [&](V a, V b) { return math.pow(a, b); })));
}

void lower_Min(LowerCtx &c, const Op &op) { lower_extremum(c, op, false); }
void lower_Max(LowerCtx &c, const Op &op) { lower_extremum(c, op, true); }

void lower_And(LowerCtx &c, const Op &op) {
  lower_integers(c, op, [&](DType, V x, V y) { return c.b.CreateAnd(x, y); });
}
void lower_Or(LowerCtx &c, const Op &op) {
  lower_integers(c, op, [&](DType, V x, V y) { return c.b.CreateOr(x, y); });
}
void lower_Xor(LowerCtx &c, const Op &op) {
  lower_integers(c, op, [&](DType, V x, V y) { return c.b.CreateXor(x, y); });
}
void lower_Shl(LowerCtx &c, const Op &op) {
  lower_integers(c, op, [&](DType t, V x, V y) { return shift(c, t, x, y, true); });
}
void lower_Shr(LowerCtx &c, const Op &op) {
  lower_integers(c, op, [&](DType t, V x, V y) { return shift(c, t, x, y, false); });
}

using Cmp = llvm::CmpInst;
void lower_Eq(LowerCtx &c, const Op &op) { lower_compare(c, op, Cmp::FCMP_OEQ, Cmp::ICMP_EQ, Cmp::ICMP_EQ); }
void lower_Ne(LowerCtx &c, const Op &op) { lower_compare(c, op, Cmp::FCMP_UNE, Cmp::ICMP_NE, Cmp::ICMP_NE); }
void lower_Lt(LowerCtx &c, const Op &op) { lower_compare(c, op, Cmp::FCMP_OLT, Cmp::ICMP_SLT, Cmp::ICMP_ULT); }
void lower_Le(LowerCtx &c, const Op &op) { lower_compare(c, op, Cmp::FCMP_OLE, Cmp::ICMP_SLE, Cmp::ICMP_ULE); }
void lower_Gt(LowerCtx &c, const Op &op) { lower_compare(c, op, Cmp::FCMP_OGT, Cmp::ICMP_SGT, Cmp::ICMP_UGT); }
void lower_Ge(LowerCtx &c, const Op &op) { lower_compare(c, op, Cmp::FCMP_OGE, Cmp::ICMP_SGE, Cmp::ICMP_UGE); }

// ---- selection and conversion

void lower_Where(LowerCtx &c, const Op &op) {
  const Regs &cond = c.regs(op.operand(0)), &x = c.regs(op.operand(1)), &y = c.regs(op.operand(2));
  Regs out(cond.size());
  for (size_t i = 0; i < out.size(); i++)
    if (cond[i] && x[i] && y[i]) out[i] = c.b.CreateSelect(cond[i], x[i], y[i]);
  c.set(op.result(), std::move(out));
}

void lower_Fma(LowerCtx &c, const Op &op) {
  DType t = operand_dtype(op);
  const Regs &x = c.regs(op.operand(0)), &y = c.regs(op.operand(1)), &z = c.regs(op.operand(2));
  if (is_half(t)) {
    Regs r = map_pairs<3>(c, {&x, &y, &z}, [&](auto &a) { return codegen::nvvm::fma_rn(c.b, a[0], a[1], a[2]); });
    return c.set(op.result(), std::move(r));
  }
  Regs out(x.size());
  for (size_t i = 0; i < out.size(); i++) {
    if (!x[i] || !y[i] || !z[i]) continue;
    out[i] =
        is_float(t) ? codegen::nvvm::fma_rn(c.b, x[i], y[i], z[i]) : c.b.CreateAdd(c.b.CreateMul(x[i], y[i]), z[i]);
  }
  c.set(op.result(), t == DType::TF32 ? codegen::narrow(c, t, out) : std::move(out));
}

void lower_Cast(LowerCtx &c, const Op &op) {
  c.set(op.result(), codegen::convert(c, operand_dtype(op), op.attrs.dtype("dtype"), c.regs(op.operand(0))));
}

void lower_Bitcast(LowerCtx &c, const Op &op) {
  llvm::Type *type = c.type(op.attrs.dtype("dtype"));
  c.set(op.result(), map1(c.regs(op.operand(0)), [&](V v) { return c.b.CreateBitCast(v, type); }));
}

} // namespace tkc::ops
