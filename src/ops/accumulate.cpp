#include "ops/accumulate.h"
#include "support/check.h"
#include <limits>

namespace tkc::ops {

using namespace codegen;
using llvm::Value;

Value *combine(LowerCtx &c, Combine op, DType t, Value *a, Value *b) {
  llvm::IRBuilder<> &ir = c.b;
  auto call = [&](llvm::Intrinsic::ID id) { return ir.CreateBinaryIntrinsic(id, a, b); };
  switch (op) {
  case Combine::Sum:
    if (is_bool(t)) return ir.CreateXor(a, b);
    return is_float(t) ? ir.CreateFAdd(a, b) : ir.CreateAdd(a, b);
  case Combine::Prod:
    if (is_bool(t)) return ir.CreateAnd(a, b);
    return is_float(t) ? ir.CreateFMul(a, b) : ir.CreateMul(a, b);
  case Combine::Max:
    if (is_bool(t)) return ir.CreateOr(a, b);
    return call(is_float(t)    ? llvm::Intrinsic::maximumnum
                : is_signed(t) ? llvm::Intrinsic::smax
                               : llvm::Intrinsic::umax);
  case Combine::Min:
    if (is_bool(t)) return ir.CreateAnd(a, b);
    return call(is_float(t)    ? llvm::Intrinsic::minimumnum
                : is_signed(t) ? llvm::Intrinsic::smin
                               : llvm::Intrinsic::umin);
  case Combine::Any: return ir.CreateOr(a, b);
  case Combine::All: return ir.CreateAnd(a, b);
  }
  TKC_UNREACHABLE("combine {}", int(op));
}

Value *identity(LowerCtx &c, Combine op, DType t) {
  int64_t bits = dtype_bits(t);
  auto inf = std::numeric_limits<double>::infinity();
  int64_t high = is_bool(t) ? 1 : is_signed(t) ? int64_t(~uint64_t(0) >> (65 - bits)) : -1;
  int64_t low = is_signed(t) ? -high - 1 : 0;
  switch (op) {
  case Combine::Sum: return c.constant(t, 0, 0);
  case Combine::Prod: return c.constant(t, 1, 1);
  case Combine::Max: return c.constant(t, -inf, low);
  case Combine::Min: return c.constant(t, inf, high);
  case Combine::Any: return c.constant(t, 0, 0);
  case Combine::All: return c.constant(t, 0, is_bool(t) ? 1 : -1);
  }
  TKC_UNREACHABLE("identity {}", int(op));
}

Value *to_accumulator(LowerCtx &c, Value *v, DType from, DType t) {
  llvm::Type *type = c.type(t);
  if (v->getType() == type) return v;
  if (is_float(t) && is_float(from)) return c.b.CreateFPExt(v, type);
  TKC_CHECK(!is_float(t) && !is_float(from), "a {} is accumulated as {}", dtype_name(from), dtype_name(t));
  return is_signed(from) ? c.b.CreateSExtOrTrunc(v, type) : c.b.CreateZExtOrTrunc(v, type);
}

Value *from_accumulator(LowerCtx &c, Value *v, DType t, DType to) {
  if (to == DType::TF32) { // nearest, ties to even; NaN as it is
    llvm::Type *word = c.b.getInt32Ty();
    Value *x = c.b.CreateBitCast(v, word);
    Value *odd = c.b.CreateAnd(c.b.CreateLShr(x, 13), c.i32(1));
    Value *rounded = c.b.CreateAnd(c.b.CreateAdd(c.b.CreateAdd(x, c.i32(0xfff)), odd), c.i32(~int64_t(0x1fff)));
    return c.b.CreateSelect(c.b.CreateFCmpUNO(v, v), v, c.b.CreateBitCast(rounded, v->getType()));
  }
  llvm::Type *type = c.type(to);
  if (v->getType() == type) return v;
  TKC_CHECK(is_float(t) && is_float(to), "an accumulator of type {} for a result of {}", dtype_name(t), dtype_name(to));
  return c.b.CreateFPTrunc(v, type);
}

} // namespace tkc::ops
