#include "codegen/convert_float.h"
#include "codegen/nvvm.h"
#include "support/check.h"
#include "llvm/IR/IntrinsicsNVPTX.h"
#include <algorithm>
#include <limits>

namespace tkc::codegen {

using llvm::Value;
using V = llvm::Value *;

namespace {

// The 8-bit and 4-bit formats: storage and scale types.
struct SmallFormat {
  int exponent_bits, mantissa_bits, bias;
  double largest;
  int nan;       // code of the canonical NaN, -1: none
  bool has_sign; // else negative values become 0
  int width() const { return exponent_bits + mantissa_bits + (has_sign ? 1 : 0); }
};

bool is_small(DType t) {
  return t == DType::E4M3 || t == DType::E5M2 || t == DType::E2M1 || t == DType::UE4M3 || t == DType::UE8M0;
}

SmallFormat small_format(DType t) {
  if (t == DType::E4M3) return {4, 3, 7, 448, 0x7f, true};
  if (t == DType::UE4M3) return {4, 3, 7, 448, 0x7f, false};
  if (t == DType::E5M2) return {5, 2, 15, 57344, 0x7f, true};
  TKC_CHECK(t == DType::E2M1, "no small format of {}", dtype_name(t));
  return {2, 1, 1, 6, -1, true};
}

class Conversion {
public:
  explicit Conversion(LowerCtx &c) : c_(c), b_(c.b) {}

  // ---- to f32

  V decode(DType t, V code) {
    V bits = b_.CreateZExt(code, b_.getInt32Ty());
    if (t == DType::UE8M0) return decode_exponent(bits);
    SmallFormat f = small_format(t);
    int magnitude_bits = f.exponent_bits + f.mantissa_bits;
    V magnitude = b_.CreateAnd(bits, (1u << magnitude_bits) - 1);
    // The fields shifted to f32's place, as a number 2^(127 - bias) too small: scaling makes subnormals right as well.
    V shifted = b_.CreateShl(magnitude, uint64_t(23 - f.mantissa_bits));
    V r = b_.CreateFMul(float_of(shifted), f32(std::ldexp(1.0, 127 - f.bias)));
    if (t == DType::E5M2) {
      V special = b_.CreateICmpUGE(magnitude, c_.i32(0x7c));
      V payload = b_.CreateOr(b_.CreateShl(magnitude, 21), c_.i32(0x7f800000));
      r = b_.CreateSelect(special, float_of(payload), r);
    } else if (f.nan >= 0) {
      r = b_.CreateSelect(b_.CreateICmpEQ(magnitude, c_.i32(f.nan)), f32(std::numeric_limits<double>::quiet_NaN()), r);
    }
    if (!f.has_sign) return r;
    V sign = b_.CreateShl(b_.CreateAnd(bits, 1u << magnitude_bits), uint64_t(31 - magnitude_bits));
    return float_of(b_.CreateOr(bits_of(r), sign));
  }

  // ---- from f32

  // Nearest, ties to even, largest finite value on overflow.
  V encode(DType t, V x) {
    if (t == DType::UE8M0) return encode_exponent(x);
    SmallFormat f = small_format(t);
    V bits = bits_of(x);
    V magnitude = b_.CreateBinaryIntrinsic(llvm::Intrinsic::minnum, b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x),
                                           f32(f.largest));
    V mbits = bits_of(magnitude);
    uint32_t drop = uint32_t(23 - f.mantissa_bits);
    V odd = b_.CreateAnd(b_.CreateLShr(mbits, drop), 1);
    V rounded = b_.CreateAdd(b_.CreateAdd(mbits, odd), c_.i32((1 << (drop - 1)) - 1));
    V normal = b_.CreateSub(b_.CreateLShr(rounded, drop), c_.i32((127 - f.bias) << f.mantissa_bits));
    // Adding 2^(23 + exponent of the unit) rounds to the unit of the subnormals by the adder.
    double magic = std::ldexp(1.0, 23 + 1 - f.bias - f.mantissa_bits);
    V subnormal = b_.CreateSub(bits_of(b_.CreateFAdd(magnitude, f32(magic))), bits_of(f32(magic)));
    V small = b_.CreateFCmpOLT(magnitude, f32(std::ldexp(1.0, 1 - f.bias)));
    V code = b_.CreateSelect(small, subnormal, normal);
    if (f.has_sign) {
      int sign_at = f.exponent_bits + f.mantissa_bits;
      code = b_.CreateOr(code, b_.CreateAnd(b_.CreateLShr(bits, uint64_t(31 - sign_at)), 1u << sign_at));
    } else {
      code = b_.CreateSelect(b_.CreateFCmpOLT(x, f32(0)), c_.i32(0), code);
    }
    V nan = c_.i32(f.nan >= 0 ? f.nan : 7); // e2m1: the largest value
    code = b_.CreateSelect(b_.CreateFCmpUNO(x, x), nan, code);
    return b_.CreateTrunc(code, b_.getInt8Ty());
  }

  // Nearest tf32, ties to even. Before sm_90 there is only cvt.rna, which has ties away from zero: the bits are
  // rounded.
  V round_tf32(V x) {
    if (!c_.target.has(ir::kHopper)) {
      V bits = b_.CreateBitCast(x, b_.getInt32Ty());
      V odd = b_.CreateAnd(b_.CreateLShr(bits, 13), c_.i32(1));
      V up = b_.CreateAdd(b_.CreateAdd(bits, c_.i32(0xfff)), odd);
      V even = b_.CreateBitCast(b_.CreateAnd(up, c_.i32(~0x1fff)), b_.getFloatTy());
      return b_.CreateSelect(b_.CreateFCmpUNO(x, x), x, even);
    }
    return float_of(b_.CreateIntrinsic(llvm::Intrinsic::nvvm_f2tf32_rn, {x}));
  }

  // f64 to f32 by rounding to odd: inexact results get an odd last bit, so that a second rounding to at most 22 bits is
  // as good as one.
  V round_odd(V x) {
    V f = b_.CreateFPTrunc(x, b_.getFloatTy()), back = b_.CreateFPExt(f, b_.getDoubleTy());
    auto magnitude = [&](V v) { return b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, v); };
    V above = b_.CreateFCmpOGT(magnitude(back), magnitude(x));
    V inexact = b_.CreateFCmpONE(back, x);
    V bits = b_.CreateSub(bits_of(f), b_.CreateZExt(above, b_.getInt32Ty()));
    return float_of(b_.CreateOr(bits, b_.CreateZExt(inexact, b_.getInt32Ty())));
  }

  // An integer of 32 or 64 bits to f32 by rounding to odd.
  V integer_round_odd(V x, bool is_signed) {
    bool wide = x->getType()->isIntegerTy(64);
    namespace I = llvm::Intrinsic;
    auto id = wide ? (is_signed ? I::nvvm_ll2f_rz : I::nvvm_ull2f_rz) : (is_signed ? I::nvvm_i2f_rz : I::nvvm_ui2f_rz);
    V f = b_.CreateIntrinsic(id, {x});
    V back = is_signed ? b_.CreateFPToSI(f, x->getType()) : b_.CreateFPToUI(f, x->getType());
    V inexact = b_.CreateICmpNE(back, x);
    return float_of(b_.CreateOr(bits_of(f), b_.CreateZExt(inexact, b_.getInt32Ty())));
  }

  // f32 or f64 to an integer: truncation, saturation, NaN to 0. cvt.rzi does all of it but for NaN with 64 bits on a
  // side, and of results narrower than 32 bits the wider result is clamped.
  V to_integer(V x, DType to) {
    namespace I = llvm::Intrinsic;
    bool from_double = x->getType()->isDoubleTy(), wide = dtype_bits(to) == 64, sign = is_signed(to);
    bool narrow = dtype_bits(to) < 32;
    I::ID id;
    if (wide)
      id = from_double ? (sign ? I::nvvm_d2ll_rz : I::nvvm_d2ull_rz) : (sign ? I::nvvm_f2ll_rz : I::nvvm_f2ull_rz);
    else
      id = from_double ? (sign ? I::nvvm_d2i_rz : I::nvvm_d2ui_rz) : (sign ? I::nvvm_f2i_rz : I::nvvm_f2ui_rz);
    V i = b_.CreateIntrinsic(id, {x});
    if (from_double || wide) i = b_.CreateSelect(b_.CreateFCmpUNO(x, x), llvm::ConstantInt::get(i->getType(), 0), i);
    if (!narrow) return i;
    int64_t bits = dtype_bits(to);
    int64_t highest = (int64_t(1) << (sign ? bits - 1 : bits)) - 1;
    i = b_.CreateBinaryIntrinsic(sign ? I::smin : I::umin, i, c_.i32(highest));
    if (sign) i = b_.CreateBinaryIntrinsic(I::smax, i, c_.i32(-highest - 1));
    return b_.CreateTrunc(i, b_.getIntNTy(unsigned(bits)));
  }

  // Half of a word is the upper half of an f32: a shift or a mask, where cvt would want the word taken apart first.
  // What was just rounded in a pair stays one; of loaded values targets with mixed arithmetic take halves as operands.
  V widen_bf16(V v) {
    auto *half = llvm::dyn_cast<llvm::ExtractElementInst>(v);
    auto *at = half ? llvm::dyn_cast<llvm::ConstantInt>(half->getIndexOperand()) : nullptr;
    V pair = half ? half->getVectorOperand() : nullptr;
    if (!at || pair->getType()->getPrimitiveSizeInBits() != 32 ||
        (c_.target.has(ir::kMixedFloat) && !llvm::isa<llvm::FPTruncInst>(pair)))
      return b_.CreateFPExt(v, b_.getFloatTy());
    V word = b_.CreateBitCast(pair, b_.getInt32Ty());
    return float_of(at->isZero() ? b_.CreateShl(word, 16) : b_.CreateAnd(word, 0xffff0000));
  }

  V f32(double v) { return llvm::ConstantFP::get(b_.getFloatTy(), v); }
  V bits_of(V x) { return b_.CreateBitCast(x, b_.getInt32Ty()); }
  V float_of(V x) { return b_.CreateBitCast(x, b_.getFloatTy()); }

private:
  // 2^(code - 127); code 0 is the subnormal 2^-127, code 255 NaN.
  V decode_exponent(V code) {
    V r = float_of(b_.CreateShl(code, 23));
    r = b_.CreateSelect(b_.CreateICmpEQ(code, c_.i32(0)), f32(0x1p-127), r);
    return b_.CreateSelect(b_.CreateICmpEQ(code, c_.i32(255)), f32(std::numeric_limits<double>::quiet_NaN()), r);
  }
  // Up to a power of two: the exponent field, one more if there is a mantissa; at most 254.
  V encode_exponent(V x) {
    V bits = bits_of(x);
    V up = b_.CreateLShr(b_.CreateAdd(bits, c_.i32(0x7fffff)), 23);
    // Of the subnormals only those above 2^-127 round up to 2^-126.
    V subnormal = b_.CreateZExt(b_.CreateICmpUGT(bits, c_.i32(0x400000)), b_.getInt32Ty());
    V code = b_.CreateSelect(b_.CreateICmpULT(bits, c_.i32(0x800000)), subnormal, up);
    code = b_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, code, c_.i32(254));
    V invalid = b_.CreateOr(b_.CreateFCmpOLT(x, f32(0)), b_.CreateFCmpUNO(x, x));
    V zero = b_.CreateFCmpOEQ(x, f32(0)); // -0 too
    code = b_.CreateSelect(zero, c_.i32(0), b_.CreateSelect(invalid, c_.i32(255), code));
    return b_.CreateTrunc(code, b_.getInt8Ty());
  }

  LowerCtx &c_;
  llvm::IRBuilder<> &b_;
};

// Calls pair(i) for two neighbouring registers that both exist, else one(i).
template <typename Pair, typename One> void by_pairs(const Regs &x, Pair &&pair, One &&one) {
  for (size_t i = 0; i < x.size(); i += 2) {
    if (i + 1 < x.size() && x[i] && x[i + 1]) {
      pair(i);
      continue;
    }
    for (size_t k = i; k < std::min(i + 2, x.size()); k++)
      if (x[k]) one(k);
  }
}

template <typename F> Regs each(const Regs &x, F &&f) {
  Regs out(x.size());
  for (size_t i = 0; i < x.size(); i++)
    if (x[i]) out[i] = f(x[i]);
  return out;
}

// Two fp8 values in an i16 as two f16.
V fp8_pair_to_f16(llvm::IRBuilder<> &b, DType t, V pair) {
  return t == DType::E4M3 ? nvvm::cvt_rn_f16x2_e4m3x2(b, pair) : nvvm::cvt_rn_f16x2_e5m2x2(b, pair);
}

bool pairs_in_hardware(const LowerCtx &c, DType t) {
  return (t == DType::E4M3 || t == DType::E5M2) && c.target.has(ir::kFp8);
}

} // namespace

Regs widen(LowerCtx &c, DType t, const Regs &x) {
  llvm::IRBuilder<> &b = c.b;
  if (t == DType::F32 || t == DType::TF32 || t == DType::F64) return x;
  if (pairs_in_hardware(c, t)) {
    auto at = [&](V pair, uint64_t k) { return b.CreateFPExt(b.CreateExtractElement(pair, k), b.getFloatTy()); };
    Regs out(x.size());
    by_pairs(
        x,
        [&](size_t i) {
          V word =
              b.CreateOr(b.CreateZExt(x[i], b.getInt16Ty()), b.CreateShl(b.CreateZExt(x[i + 1], b.getInt16Ty()), 8));
          V pair = fp8_pair_to_f16(b, t, word);
          out[i] = at(pair, 0);
          out[i + 1] = at(pair, 1);
        },
        [&](size_t i) { out[i] = at(fp8_pair_to_f16(b, t, b.CreateZExt(x[i], b.getInt16Ty())), 0); });
    return out;
  }
  Conversion convert(c);
  if (is_small(t)) return each(x, [&](V v) { return convert.decode(t, v); });
  if (t == DType::BF16) return each(x, [&](V v) { return convert.widen_bf16(v); });
  return each(x, [&](V v) { return b.CreateFPExt(v, b.getFloatTy()); });
}

std::array<V, 2> fp8_word_to_f16(LowerCtx &c, DType t, V word) {
  llvm::IRBuilder<> &b = c.b;
  std::array<V, 2> out;
  for (unsigned half : {0u, 1u}) {
    if (auto *constant = llvm::dyn_cast<llvm::ConstantInt>(word)) {
      uint64_t pair = 0;
      for (unsigned k : {0u, 1u}) {
        uint64_t bits = constant->getZExtValue() >> (16 * half + 8 * k) & 0xff;
        pair |= encode_float(DType::F16, decode_float(t, bits)) << 16 * k;
      }
      out[half] = c.i32(int64_t(pair));
      continue;
    }
    V bytes = b.CreateTrunc(half ? b.CreateLShr(word, 16) : word, b.getInt16Ty());
    out[half] = b.CreateBitCast(fp8_pair_to_f16(b, t, bytes), b.getInt32Ty());
  }
  return out;
}

Regs narrow(LowerCtx &c, DType t, const Regs &x) {
  llvm::IRBuilder<> &b = c.b;
  Conversion convert(c);
  Regs out(x.size());
  if (t == DType::F32 || t == DType::F64) return x;
  if (t == DType::TF32) return each(x, [&](V v) { return convert.round_tf32(v); });
  if (pairs_in_hardware(c, t)) {
    auto pair = [&](V lo, V hi) {
      return t == DType::E4M3 ? nvvm::cvt_rn_satfinite_e4m3x2_f32(b, lo, hi)
                              : nvvm::cvt_rn_satfinite_e5m2x2_f32(b, lo, hi);
    };
    by_pairs(
        x,
        [&](size_t i) {
          V word = pair(x[i], x[i + 1]);
          out[i] = b.CreateTrunc(word, b.getInt8Ty());
          out[i + 1] = b.CreateTrunc(b.CreateLShr(word, 8), b.getInt8Ty());
        },
        [&](size_t i) { out[i] = b.CreateTrunc(pair(x[i], convert.f32(0)), b.getInt8Ty()); });
    return out;
  }
  if (is_small(t)) return each(x, [&](V v) { return convert.encode(t, v); });
  by_pairs(
      x,
      [&](size_t i) {
        V pair =
            t == DType::BF16 ? nvvm::cvt_rn_bf16x2_f32(b, x[i], x[i + 1]) : nvvm::cvt_rn_f16x2_f32(b, x[i], x[i + 1]);
        out[i] = b.CreateExtractElement(pair, uint64_t(0));
        out[i + 1] = b.CreateExtractElement(pair, uint64_t(1));
      },
      [&](size_t i) { out[i] = b.CreateFPTrunc(x[i], c.type(t)); });
  return out;
}

static Regs float_to_float(LowerCtx &c, DType from, DType to, const Regs &x) {
  llvm::IRBuilder<> &b = c.b;
  if (from == DType::F64) {
    if (to == DType::F32 || to == DType::F16) return each(x, [&](V v) { return b.CreateFPTrunc(v, c.type(to)); });
    Conversion convert(c);
    return narrow(c, to, each(x, [&](V v) { return convert.round_odd(v); }));
  }
  Regs wide = widen(c, from, x);
  if (to == DType::F64) return each(wide, [&](V v) { return b.CreateFPExt(v, b.getDoubleTy()); });
  // tf32 values are f32 values already.
  return narrow(c, to, wide);
}

static Regs integer_to_float(LowerCtx &c, DType from, DType to, const Regs &x) {
  llvm::IRBuilder<> &b = c.b;
  bool sign = is_signed(from);
  auto direct = [&](V v, llvm::Type *type) { return sign ? b.CreateSIToFP(v, type) : b.CreateUIToFP(v, type); };
  if (to == DType::F16 || to == DType::F32 || to == DType::F64)
    return each(x, [&](V v) { return direct(v, c.type(to)); });
  // f32 holds 16 bits exactly; of more, rounding to odd leaves the one rounding to narrow().
  if (dtype_bits(from) <= 16 || is_bool(from))
    return narrow(c, to, each(x, [&](V v) { return direct(v, b.getFloatTy()); }));
  Conversion convert(c);
  return narrow(c, to, each(x, [&](V v) { return convert.integer_round_odd(v, sign); }));
}

Regs convert(LowerCtx &c, DType from, DType to, const Regs &x) {
  llvm::IRBuilder<> &b = c.b;
  if (from == to) return x;
  if (is_float(from) && is_float(to)) return float_to_float(c, from, to, x);
  if (is_float(to)) return integer_to_float(c, from, to, x);
  if (is_float(from)) {
    Regs wide = widen(c, from, x);
    if (is_bool(to))
      return each(wide, [&](V v) { return b.CreateFCmpUNE(v, llvm::ConstantFP::get(v->getType(), 0.0)); });
    Conversion convert(c);
    return each(wide, [&](V v) { return convert.to_integer(v, to); });
  }
  if (is_bool(to)) return each(x, [&](V v) { return b.CreateICmpNE(v, llvm::ConstantInt::get(v->getType(), 0)); });
  return each(x, [&](V v) {
    return is_signed(from) ? b.CreateSExtOrTrunc(v, c.type(to)) : b.CreateZExtOrTrunc(v, c.type(to));
  });
}

} // namespace tkc::codegen
