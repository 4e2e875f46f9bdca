// Matrix instructions: ldmatrix, stmatrix, movmatrix and the table of mma.sync.
#include "codegen/nvvm.h"
#include "support/check.h"
#include "llvm/IR/IntrinsicsNVPTX.h"
#include <array>

namespace tkc::codegen::nvvm {

using namespace llvm;

Values ldmatrix(Builder &b, V address, int64_t count, bool trans) {
  Intrinsic::ID id = Intrinsic::not_intrinsic;
  if (count == 1)
    id = trans ? Intrinsic::nvvm_ldmatrix_sync_aligned_m8n8_x1_trans_b16
               : Intrinsic::nvvm_ldmatrix_sync_aligned_m8n8_x1_b16;
  else if (count == 2)
    id = trans ? Intrinsic::nvvm_ldmatrix_sync_aligned_m8n8_x2_trans_b16
               : Intrinsic::nvvm_ldmatrix_sync_aligned_m8n8_x2_b16;
  else if (count == 4)
    id = trans ? Intrinsic::nvvm_ldmatrix_sync_aligned_m8n8_x4_trans_b16
               : Intrinsic::nvvm_ldmatrix_sync_aligned_m8n8_x4_b16;
  TKC_CHECK(id != Intrinsic::not_intrinsic, "ldmatrix.x{}", count);
  V r = b.CreateIntrinsic(id, {address->getType()}, {address});
  if (count == 1) return {r};
  Values out;
  for (unsigned i = 0; i < unsigned(count); i++) out.push_back(b.CreateExtractValue(r, i));
  return out;
}

void stmatrix(Builder &b, V address, std::span<Value *const> words, bool trans) {
  Intrinsic::ID id = Intrinsic::not_intrinsic;
  if (words.size() == 1)
    id = trans ? Intrinsic::nvvm_stmatrix_sync_aligned_m8n8_x1_trans_b16
               : Intrinsic::nvvm_stmatrix_sync_aligned_m8n8_x1_b16;
  else if (words.size() == 2)
    id = trans ? Intrinsic::nvvm_stmatrix_sync_aligned_m8n8_x2_trans_b16
               : Intrinsic::nvvm_stmatrix_sync_aligned_m8n8_x2_b16;
  else if (words.size() == 4)
    id = trans ? Intrinsic::nvvm_stmatrix_sync_aligned_m8n8_x4_trans_b16
               : Intrinsic::nvvm_stmatrix_sync_aligned_m8n8_x4_b16;
  TKC_CHECK(id != Intrinsic::not_intrinsic, "stmatrix.x{}", words.size());
  SmallVector<Value *, 5> args = {address};
  args.append(words.begin(), words.end());
  b.CreateIntrinsic(id, {address->getType()}, args);
}

V movmatrix_trans(Builder &b, V word) {
  return inline_asm(b, {"movmatrix.sync.aligned.m8n8.trans.b16 $0, $1;", "=r,r", b.getInt32Ty(), false, true},
                    std::array<Value *, 1>{word});
}

std::span<const Mma> all_mma() {
  using enum DType;
  static const Mma table[] = {
      {"m16n8k16", F16, F16, F32, 4, 2, 4, Intrinsic::nvvm_mma_m16n8k16_row_col_f32_f32, 80, 70},
      {"m16n8k8", F16, F16, F32, 2, 1, 4, Intrinsic::nvvm_mma_m16n8k8_row_col_f32_f32, 75, 65},
      {"m16n8k16", F16, F16, F16, 4, 2, 2, Intrinsic::nvvm_mma_m16n8k16_row_col_f16_f16, 80, 70},
      {"m16n8k8", F16, F16, F16, 2, 1, 2, Intrinsic::nvvm_mma_m16n8k8_row_col_f16_f16, 75, 65},
      {"m16n8k16", BF16, BF16, F32, 4, 2, 4, Intrinsic::nvvm_mma_m16n8k16_row_col_bf16, 80, 70},
      {"m16n8k8", BF16, BF16, F32, 2, 1, 4, Intrinsic::nvvm_mma_m16n8k8_row_col_bf16, 80, 70},
      {"m16n8k8", TF32, TF32, F32, 4, 2, 4, Intrinsic::nvvm_mma_m16n8k8_row_col_tf32, 80, 70},
      {"m16n8k4", TF32, TF32, F32, 2, 1, 4, Intrinsic::nvvm_mma_m16n8k4_row_col_tf32, 80, 70},
      {"m8n8k4", F64, F64, F64, 1, 1, 2, Intrinsic::nvvm_mma_m8n8k4_row_col_f64, 80, 70},
      {"m16n8k4", F64, F64, F64, 2, 1, 4, Intrinsic::nvvm_mma_m16n8k4_row_col_f64, 90, 78},
      {"m16n8k8", F64, F64, F64, 4, 2, 4, Intrinsic::nvvm_mma_m16n8k8_row_col_f64, 90, 78},
      {"m16n8k16", F64, F64, F64, 8, 4, 4, Intrinsic::nvvm_mma_m16n8k16_row_col_f64, 90, 78},
      {"m16n8k32", I8, I8, I32, 4, 2, 4, Intrinsic::nvvm_mma_m16n8k32_row_col_s8, 80, 70},
      {"m16n8k16", I8, I8, I32, 2, 1, 4, Intrinsic::nvvm_mma_m16n8k16_row_col_s8, 80, 70},
      {"m16n8k32", I8, U8, I32, 4, 2, 4, Intrinsic::nvvm_mma_m16n8k32_row_col_s8_u8, 80, 70},
      {"m16n8k16", I8, U8, I32, 2, 1, 4, Intrinsic::nvvm_mma_m16n8k16_row_col_s8_u8, 80, 70},
      {"m16n8k32", U8, I8, I32, 4, 2, 4, Intrinsic::nvvm_mma_m16n8k32_row_col_u8_s8, 80, 70},
      {"m16n8k16", U8, I8, I32, 2, 1, 4, Intrinsic::nvvm_mma_m16n8k16_row_col_u8_s8, 80, 70},
      {"m16n8k32", U8, U8, I32, 4, 2, 4, Intrinsic::nvvm_mma_m16n8k32_row_col_u8, 80, 70},
      {"m16n8k16", U8, U8, I32, 2, 1, 4, Intrinsic::nvvm_mma_m16n8k16_row_col_u8, 80, 70},
      {"m16n8k32", E4M3, E4M3, F32, 4, 2, 4, Intrinsic::nvvm_mma_m16n8k32_row_col_f32_e4m3_e4m3_f32, 89, 84},
      {"m16n8k32", E4M3, E5M2, F32, 4, 2, 4, Intrinsic::nvvm_mma_m16n8k32_row_col_f32_e4m3_e5m2_f32, 89, 84},
      {"m16n8k32", E5M2, E4M3, F32, 4, 2, 4, Intrinsic::nvvm_mma_m16n8k32_row_col_f32_e5m2_e4m3_f32, 89, 84},
      {"m16n8k32", E5M2, E5M2, F32, 4, 2, 4, Intrinsic::nvvm_mma_m16n8k32_row_col_f32_e5m2_e5m2_f32, 89, 84},
      {"m16n8k32", E4M3, E4M3, F16, 4, 2, 2, Intrinsic::nvvm_mma_m16n8k32_row_col_f16_e4m3_e4m3_f16, 89, 87},
      {"m16n8k32", E4M3, E5M2, F16, 4, 2, 2, Intrinsic::nvvm_mma_m16n8k32_row_col_f16_e4m3_e5m2_f16, 89, 87},
      {"m16n8k32", E5M2, E4M3, F16, 4, 2, 2, Intrinsic::nvvm_mma_m16n8k32_row_col_f16_e5m2_e4m3_f16, 89, 87},
      {"m16n8k32", E5M2, E5M2, F16, 4, 2, 2, Intrinsic::nvvm_mma_m16n8k32_row_col_f16_e5m2_e5m2_f16, 89, 87},
  };
  return table;
}

const Mma *find_mma(std::string_view shape, DType a, DType b, DType acc, const ir::Target &target) {
  for (const Mma &m : all_mma())
    if (shape == m.shape && a == m.a && b == m.b && acc == m.acc)
      return target.sm >= m.min_sm && target.ptx_version >= m.min_ptx ? &m : nullptr;
  return nullptr;
}

Values mma(Builder &b, const Mma &instr, std::span<Value *const> a_regs, std::span<Value *const> b_regs,
           std::span<Value *const> c_regs) {
  TKC_CHECK(int(a_regs.size()) == instr.a_regs && int(b_regs.size()) == instr.b_regs &&
                int(c_regs.size()) == instr.c_regs,
            "mma {}: {} {} {} registers", instr.shape, a_regs.size(), b_regs.size(), c_regs.size());
  Function *f = Intrinsic::getOrInsertDeclaration(b.GetInsertBlock()->getModule(), instr.intrinsic);
  SmallVector<Value *, 16> args;
  for (auto regs : {a_regs, b_regs, c_regs})
    for (Value *v : regs) args.push_back(b.CreateBitCast(v, f->getArg(unsigned(args.size()))->getType()));
  CallInst *r = b.CreateCall(f, args);
  // The intrinsics are not marked convergent although the whole warp must take part.
  r->addFnAttr(Attribute::Convergent);
  r->addFnAttr(Attribute::WillReturn);
  Type *c_type = c_regs[0]->getType();
  Values out;
  for (unsigned i = 0; i < c_regs.size(); i++) out.push_back(b.CreateBitCast(b.CreateExtractValue(r, i), c_type));
  return out;
}

} // namespace tkc::codegen::nvvm
