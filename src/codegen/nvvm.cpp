#include "codegen/nvvm.h"
#include "support/check.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/IntrinsicsNVPTX.h"
#include "llvm/IR/Module.h"

namespace tkc::codegen::nvvm {

using namespace llvm;

static V call(Builder &b, Intrinsic::ID id, ArrayRef<Value *> args = {}) { return b.CreateIntrinsic(id, args); }

V inline_asm(Builder &b, const Asm &a, std::span<Value *const> args) {
  SmallVector<Type *, 8> types;
  for (Value *v : args) types.push_back(v->getType());
  auto *type = FunctionType::get(a.result ? a.result : b.getVoidTy(), types, false);
  CallInst *c = b.CreateCall(InlineAsm::get(type, a.text, a.constraints, a.side_effects),
                             ArrayRef<Value *>(args.data(), args.size()));
  c->addFnAttr(Attribute::NoUnwind);
  c->addFnAttr(Attribute::WillReturn);
  if (a.convergent) c->addFnAttr(Attribute::Convergent);
  if (!a.side_effects) c->setMemoryEffects(MemoryEffects::none());
  return c;
}

// ---- special registers

V tid_x(Builder &b) { return call(b, Intrinsic::nvvm_read_ptx_sreg_tid_x); }
V ctaid_x(Builder &b) { return call(b, Intrinsic::nvvm_read_ptx_sreg_ctaid_x); }
V nctaid_x(Builder &b) { return call(b, Intrinsic::nvvm_read_ptx_sreg_nctaid_x); }

// LLVM's intrinsics touch no memory for it, so that accesses could move over them.
void griddepcontrol_wait(Builder &b) { inline_asm(b, {"griddepcontrol.wait;", "~{memory}", nullptr, true}, {}); }
void griddepcontrol_launch_dependents(Builder &b) {
  inline_asm(b, {"griddepcontrol.launch_dependents;", "~{memory}", nullptr, true}, {});
}
V laneid(Builder &b) { return call(b, Intrinsic::nvvm_read_ptx_sreg_laneid); }
V clock64(Builder &b) { return call(b, Intrinsic::nvvm_read_ptx_sreg_clock64); }

// ---- moving bits

V mov_pack_b32(Builder &b, std::span<Value *const> parts) {
  TKC_CHECK(!parts.empty() && parts.size() * parts[0]->getType()->getScalarSizeInBits() == 32, "mov.b32 of {} parts",
            parts.size());
  Value *v = PoisonValue::get(FixedVectorType::get(parts[0]->getType(), unsigned(parts.size())));
  for (size_t i = 0; i < parts.size(); i++) v = b.CreateInsertElement(v, parts[i], uint64_t(i));
  return b.CreateBitCast(v, b.getInt32Ty());
}

Values mov_unpack_b32(Builder &b, V word, Type *part) {
  unsigned n = 32 / part->getScalarSizeInBits();
  V v = b.CreateBitCast(word, FixedVectorType::get(part, n));
  Values out;
  for (unsigned i = 0; i < n; i++) out.push_back(b.CreateExtractElement(v, uint64_t(i)));
  return out;
}

V prmt(Builder &b, V x, V y, V selector) { return call(b, Intrinsic::nvvm_prmt, {x, y, selector}); }

// ---- warp

static V all_lanes(Builder &b) { return b.getInt32(~0u); }

// One 32-bit shuffle; `segment` is the manual's operand c.
static V shfl_word(Builder &b, Intrinsic::ID id, V value, V lane, int64_t segment) {
  return call(b, id, {all_lanes(b), value, lane, b.getInt32(uint32_t(segment))});
}

static V shfl(Builder &b, Intrinsic::ID word, Intrinsic::ID f32, V value, V lane, int64_t segment) {
  Type *type = value->getType();
  unsigned bits = unsigned(type->getPrimitiveSizeInBits());
  if (type->isFloatTy()) return shfl_word(b, f32, value, lane, segment);
  if (bits == 64) {
    V pair = b.CreateBitCast(value, FixedVectorType::get(b.getInt32Ty(), 2)), out = pair;
    for (uint64_t i : {0, 1}) {
      V half = shfl_word(b, word, b.CreateExtractElement(pair, i), lane, segment);
      out = b.CreateInsertElement(out, half, i);
    }
    return b.CreateBitCast(out, type);
  }
  TKC_CHECK(bits <= 32, "shfl.sync of a {}-bit value", bits);
  Type *same = b.getIntNTy(bits);
  V wide = b.CreateZExt(b.CreateBitCast(value, same), b.getInt32Ty());
  return b.CreateBitCast(b.CreateTrunc(shfl_word(b, word, wide, lane, segment), same), type);
}

static int64_t segment(int64_t width, int64_t clamp) { return (32 - width) << 8 | clamp; }

V shfl_sync_bfly(Builder &b, V value, V lane_mask) {
  return shfl(b, Intrinsic::nvvm_shfl_sync_bfly_i32, Intrinsic::nvvm_shfl_sync_bfly_f32, value, lane_mask, 31);
}
V shfl_sync_idx(Builder &b, V value, V lane, int64_t width) {
  return shfl(b, Intrinsic::nvvm_shfl_sync_idx_i32, Intrinsic::nvvm_shfl_sync_idx_f32, value, lane, segment(width, 31));
}
V shfl_sync_up(Builder &b, V value, V delta, int64_t width) {
  return shfl(b, Intrinsic::nvvm_shfl_sync_up_i32, Intrinsic::nvvm_shfl_sync_up_f32, value, delta, segment(width, 0));
}
V shfl_sync_down(Builder &b, V value, V delta, int64_t width) {
  return shfl(b, Intrinsic::nvvm_shfl_sync_down_i32, Intrinsic::nvvm_shfl_sync_down_f32, value, delta,
              segment(width, 31));
}

V redux_sync(Builder &b, Redux op, V value) {
  Intrinsic::ID id = Intrinsic::not_intrinsic;
  switch (op) {
  case Redux::AddS32: id = Intrinsic::nvvm_redux_sync_add; break;
  case Redux::MinS32: id = Intrinsic::nvvm_redux_sync_min; break;
  case Redux::MaxS32: id = Intrinsic::nvvm_redux_sync_max; break;
  case Redux::MinU32: id = Intrinsic::nvvm_redux_sync_umin; break;
  case Redux::MaxU32: id = Intrinsic::nvvm_redux_sync_umax; break;
  case Redux::And: id = Intrinsic::nvvm_redux_sync_and; break;
  case Redux::Or: id = Intrinsic::nvvm_redux_sync_or; break;
  case Redux::Xor: id = Intrinsic::nvvm_redux_sync_xor; break;
  }
  return call(b, id, {value, all_lanes(b)});
}

V vote_sync_ballot(Builder &b, V p) { return call(b, Intrinsic::nvvm_vote_ballot_sync, {all_lanes(b), p}); }
V vote_sync_any(Builder &b, V p) { return call(b, Intrinsic::nvvm_vote_any_sync, {all_lanes(b), p}); }
V vote_sync_all(Builder &b, V p) { return call(b, Intrinsic::nvvm_vote_all_sync, {all_lanes(b), p}); }
V match_any_sync(Builder &b, V value) {
  bool wide = value->getType()->isIntegerTy(64);
  return call(b, wide ? Intrinsic::nvvm_match_any_sync_i64 : Intrinsic::nvvm_match_any_sync_i32, {all_lanes(b), value});
}
V activemask(Builder &b) { return call(b, Intrinsic::nvvm_activemask); }
void bar_warp_sync(Builder &b) { call(b, Intrinsic::nvvm_bar_warp_sync, {all_lanes(b)}); }

// ---- block

static V id32(Builder &b, int64_t v) { return b.getInt32(uint32_t(v)); }

void bar_sync(Builder &b, int64_t id) { call(b, Intrinsic::nvvm_barrier_cta_sync_aligned_all, {id32(b, id)}); }
void bar_sync(Builder &b, int64_t id, int64_t threads) {
  call(b, Intrinsic::nvvm_barrier_cta_sync_aligned_count, {id32(b, id), id32(b, threads)});
}
void bar_arrive(Builder &b, int64_t id, int64_t threads) {
  call(b, Intrinsic::nvvm_barrier_cta_arrive_aligned_count, {id32(b, id), id32(b, threads)});
}
V bar_red_and(Builder &b, int64_t id, V p) {
  return call(b, Intrinsic::nvvm_barrier_cta_red_and_aligned_all, {id32(b, id), p});
}
V bar_red_or(Builder &b, int64_t id, V p) {
  return call(b, Intrinsic::nvvm_barrier_cta_red_or_aligned_all, {id32(b, id), p});
}
V bar_red_popc(Builder &b, int64_t id, V p) {
  return call(b, Intrinsic::nvvm_barrier_cta_red_popc_aligned_all, {id32(b, id), p});
}

static void fence(Builder &b, AtomicOrdering order, Scope scope) {
  const char *name = "";
  switch (scope) {
  case Scope::Cta: name = "block"; break;
  case Scope::Gpu: name = "device"; break;
  case Scope::Sys: break;
  }
  b.CreateFence(order, b.getContext().getOrInsertSyncScopeID(name));
}
void fence_acq_rel(Builder &b, Scope scope) { fence(b, AtomicOrdering::AcquireRelease, scope); }
void fence_sc(Builder &b, Scope scope) { fence(b, AtomicOrdering::SequentiallyConsistent, scope); }

// ---- arithmetic

static V f32_unary(Builder &b, const char *text, V x) {
  return inline_asm(b, {std::string(text) + " $0, $1;", "=f,f", b.getFloatTy()}, std::array<Value *, 1>{x});
}
static V ex2(Builder &b, Intrinsic::ID id, V x) { return b.CreateIntrinsic(id, {x->getType()}, {x}); }

V ex2_approx_ftz_f32(Builder &b, V x) { return ex2(b, Intrinsic::nvvm_ex2_approx_ftz, x); }
V ex2_approx_f32(Builder &b, V x) { return ex2(b, Intrinsic::nvvm_ex2_approx, x); }
V ex2_approx_f16x2(Builder &b, V x) { return ex2(b, Intrinsic::nvvm_ex2_approx, x); }
V ex2_approx_ftz_bf16x2(Builder &b, V x) { return ex2(b, Intrinsic::nvvm_ex2_approx_ftz, x); }
V lg2_approx_ftz_f32(Builder &b, V x) { return call(b, Intrinsic::nvvm_lg2_approx_ftz_f, {x}); }
V lg2_approx_f32(Builder &b, V x) { return call(b, Intrinsic::nvvm_lg2_approx_f, {x}); }
V rcp_approx_ftz_f32(Builder &b, V x) { return call(b, Intrinsic::nvvm_rcp_approx_ftz_f, {x}); }
V rcp_approx_ftz_f64(Builder &b, V x) { return call(b, Intrinsic::nvvm_rcp_approx_ftz_d, {x}); }
V rcp_rn_f32(Builder &b, V x) { return call(b, Intrinsic::nvvm_rcp_rn_f, {x}); }
V rsqrt_approx_ftz_f32(Builder &b, V x) { return call(b, Intrinsic::nvvm_rsqrt_approx_ftz_f, {x}); }
V rsqrt_approx_f32(Builder &b, V x) { return call(b, Intrinsic::nvvm_rsqrt_approx_f, {x}); }
V sqrt_approx_ftz_f32(Builder &b, V x) { return call(b, Intrinsic::nvvm_sqrt_approx_ftz_f, {x}); }
V div_approx_ftz_f32(Builder &b, V x, V y) { return call(b, Intrinsic::nvvm_div_approx_ftz_f, {x, y}); }
V div_full_f32(Builder &b, V x, V y) { return call(b, Intrinsic::nvvm_div_full, {x, y}); }
V sin_approx_ftz_f32(Builder &b, V x) { return call(b, Intrinsic::nvvm_sin_approx_ftz_f, {x}); }
V cos_approx_ftz_f32(Builder &b, V x) { return call(b, Intrinsic::nvvm_cos_approx_ftz_f, {x}); }
V tanh_approx_f32(Builder &b, V x) { return f32_unary(b, "tanh.approx.f32", x); }
V fma_rn(Builder &b, V x, V y, V z) { return b.CreateIntrinsic(Intrinsic::fma, {x->getType()}, {x, y, z}); }

// ---- conversions

static V pair(Builder &b, V lo, V hi) {
  V v = PoisonValue::get(FixedVectorType::get(lo->getType(), 2));
  return b.CreateInsertElement(b.CreateInsertElement(v, lo, uint64_t(0)), hi, uint64_t(1));
}
V cvt_rn_bf16x2_f32(Builder &b, V lo, V hi) {
  return b.CreateFPTrunc(pair(b, lo, hi), FixedVectorType::get(b.getBFloatTy(), 2));
}
V cvt_rn_f16x2_f32(Builder &b, V lo, V hi) {
  return b.CreateFPTrunc(pair(b, lo, hi), FixedVectorType::get(b.getHalfTy(), 2));
}
V cvt_rn_satfinite_e4m3x2_f32(Builder &b, V lo, V hi) { return call(b, Intrinsic::nvvm_ff_to_e4m3x2_rn, {hi, lo}); }
V cvt_rn_satfinite_e5m2x2_f32(Builder &b, V lo, V hi) { return call(b, Intrinsic::nvvm_ff_to_e5m2x2_rn, {hi, lo}); }
V cvt_rn_satfinite_e4m3x2_f16x2(Builder &b, V p) { return call(b, Intrinsic::nvvm_f16x2_to_e4m3x2_rn, {p}); }
V cvt_rn_satfinite_e5m2x2_f16x2(Builder &b, V p) { return call(b, Intrinsic::nvvm_f16x2_to_e5m2x2_rn, {p}); }
V cvt_rn_f16x2_e4m3x2(Builder &b, V p) { return call(b, Intrinsic::nvvm_e4m3x2_to_f16x2_rn, {p}); }
V cvt_rn_f16x2_e5m2x2(Builder &b, V p) { return call(b, Intrinsic::nvvm_e5m2x2_to_f16x2_rn, {p}); }
V cvt_rna_tf32_f32(Builder &b, V x) {
  return b.CreateBitCast(call(b, Intrinsic::nvvm_f2tf32_rna, {x}), b.getFloatTy());
}

// ---- calls and traps

// A string constant as a generic pointer. Global memory rather than constant memory, as nvcc places them.
static V string(Builder &b, StringRef text) {
  Module *m = b.GetInsertBlock()->getModule();
  GlobalVariable *g = b.CreateGlobalString(text, "str", kGlobal, m);
  return b.CreateAddrSpaceCast(g, b.getPtrTy());
}

void vprintf(Builder &b, StringRef format, std::span<Value *const> args) {
  Module *m = b.GetInsertBlock()->getModule();
  Function *f = b.GetInsertBlock()->getParent();
  SmallVector<Type *, 8> types;
  SmallVector<Value *, 8> values;
  for (Value *v : args) {
    Type *t = v->getType();
    if (t->isFloatingPointTy())
      v = t->isDoubleTy() ? v : b.CreateFPExt(v, b.getDoubleTy());
    else if (t->isIntegerTy() && t->getIntegerBitWidth() < 32)
      v = b.CreateZExt(v, b.getInt32Ty()); // sign extension is the caller's: only it knows the signedness
    types.push_back(v->getType());
    values.push_back(v);
  }
  V packed = ConstantPointerNull::get(b.getPtrTy());
  if (!values.empty()) {
    auto *record = StructType::get(b.getContext(), types);
    Builder entry(&f->getEntryBlock(), f->getEntryBlock().begin());
    packed = entry.CreateAlloca(record);
    for (size_t i = 0; i < values.size(); i++) b.CreateStore(values[i], b.CreateStructGEP(record, packed, unsigned(i)));
  }
  FunctionCallee callee = m->getOrInsertFunction("vprintf", b.getInt32Ty(), b.getPtrTy(), b.getPtrTy());
  b.CreateCall(callee, {string(b, format), packed});
}

void assertfail(Builder &b, StringRef message, StringRef file, int64_t line, StringRef function) {
  Module *m = b.GetInsertBlock()->getModule();
  FunctionCallee callee = m->getOrInsertFunction("__assertfail", b.getVoidTy(), b.getPtrTy(), b.getPtrTy(),
                                                 b.getInt32Ty(), b.getPtrTy(), b.getInt64Ty());
  b.CreateCall(callee, {string(b, message), string(b, file), id32(b, line), string(b, function), b.getInt64(1)})
      ->addFnAttr(Attribute::NoReturn);
}

void trap(Builder &b) { call(b, Intrinsic::trap); }

} // namespace tkc::codegen::nvvm
