#include "codegen/lower.h"
#include "codegen/nvvm.h"
#include "ir/by_hand.h"
#include "support/check.h"
#include "llvm/IR/IntrinsicsNVPTX.h"
#include <algorithm>

namespace tkc::codegen {

using ir::SizeExpr;
using llvm::Value;

// ---- size expressions

namespace {

bool has_product(const SizeExpr &e) {
  if (e.is_const() || e.op() == SizeExpr::Op::Sym) return false;
  if (e.op() == SizeExpr::Op::Mul) return true;
  return has_product(e.a()) || (e.op() != SizeExpr::Op::Not && has_product(e.b()));
}

class SizeLowering {
public:
  explicit SizeLowering(LowerCtx &ctx) : ctx_(ctx), b_(ctx.b) {}

  // As an integer of 32 or 64 bits. Sums and products of the low bits are right in any width; every other operation
  // needs its operands' true values.
  Value *lower(const SizeExpr &e, unsigned bits) {
    llvm::Type *type = b_.getIntNTy(bits);
    switch (e.op()) {
    case SizeExpr::Op::Const: return llvm::ConstantInt::getSigned(type, e.value(), /*ImplicitTrunc=*/true);
    case SizeExpr::Op::Sym: {
      const ir::Value *v = symbol(e);
      return b_.CreateIntCast(ctx_.scalar(v), type, is_signed(v->type.dtype));
    }
    case SizeExpr::Op::Add: return b_.CreateAdd(lower(e.a(), bits), lower(e.b(), bits));
    case SizeExpr::Op::Sub: return b_.CreateSub(lower(e.a(), bits), lower(e.b(), bits));
    case SizeExpr::Op::Mul: return b_.CreateMul(lower(e.a(), bits), lower(e.b(), bits));
    case SizeExpr::Op::Not: {
      Value *a = exact(e.a(), bits);
      return b_.CreateZExt(b_.CreateICmpEQ(a, llvm::ConstantInt::get(a->getType(), 0)), type);
    }
    default: break;
    }
    unsigned inner = bits == 64 || is_wide(e.a()) || is_wide(e.b()) ? 64 : 32;
    Value *v = combine(e, lower(e.a(), inner), lower(e.b(), inner));
    if (v->getType()->isIntegerTy(1)) return b_.CreateZExt(v, type);
    return b_.CreateSExtOrTrunc(v, type);
  }

private:
  Value *exact(const SizeExpr &e, unsigned bits) { return lower(e, is_wide(e) ? 64 : bits); }

  // Sizes are not negative; so unsigned division, which is shorter, is right for everything but differences and signed
  // parameters.
  bool never_negative(const SizeExpr &e) const {
    switch (e.op()) {
    case SizeExpr::Op::Const: return e.value() >= 0;
    case SizeExpr::Op::Sub: return false;
    case SizeExpr::Op::Add:
    case SizeExpr::Op::Mul:
    case SizeExpr::Op::Div:
    case SizeExpr::Op::CDiv:
    case SizeExpr::Op::Rem:
    case SizeExpr::Op::Min:
    case SizeExpr::Op::Max: return never_negative(e.a()) && never_negative(e.b());
    case SizeExpr::Op::Select: return never_negative(e.b()) && never_negative(e.c());
    case SizeExpr::Op::Sym: return ctx_.function.size_value(e.name()) || !is_signed(symbol(e)->type.dtype);
    case SizeExpr::Op::Eq:
    case SizeExpr::Op::Ne:
    case SizeExpr::Op::Lt:
    case SizeExpr::Op::Le:
    case SizeExpr::Op::Gt:
    case SizeExpr::Op::Ge:
    case SizeExpr::Op::And:
    case SizeExpr::Op::Or:
    case SizeExpr::Op::Not: return true;
    }
    TKC_UNREACHABLE("SizeExpr::Op");
  }

  // A run-time size, or a scalar parameter.
  const ir::Value *symbol(const SizeExpr &e) const {
    const ir::Value *v = ctx_.function.size_value(e.name());
    if (!v) v = ctx_.function.param_value(e.name());
    TKC_CHECK(v && v->type.is_scalar(), "`{}` is no size of kernel {}", e.name(), ctx_.function.name);
    return v;
  }
  // Whether 32 bits may be too few for its value.
  bool is_wide(const SizeExpr &e) const {
    if (has_product(e)) return true;
    if (e.is_const()) return false;
    if (e.op() != SizeExpr::Op::Sym) return is_wide(e.a()) || (e.op() != SizeExpr::Op::Not && is_wide(e.b()));
    DType t = symbol(e)->type.dtype;
    return dtype_bits(t) == 64 || t == DType::U32;
  }

  Value *combine(const SizeExpr &e, Value *x, Value *y) {
    bool positive = never_negative(e.a()) && never_negative(e.b());
    llvm::Type *type = x->getType();
    auto constant = [&](int64_t v) { return llvm::ConstantInt::getSigned(type, v); };
    switch (e.op()) {
    case SizeExpr::Op::Div: return positive ? b_.CreateUDiv(x, y) : b_.CreateSDiv(x, y);
    case SizeExpr::Op::Rem: return positive ? b_.CreateURem(x, y) : b_.CreateSRem(x, y);
    case SizeExpr::Op::CDiv: {
      // Both below 2^31 (2^63): the sum does not pass the unsigned range.
      if (positive) return b_.CreateUDiv(b_.CreateAdd(x, b_.CreateSub(y, constant(1))), y);
      Value *rest = b_.CreateICmpNE(b_.CreateSRem(x, y), constant(0));
      Value *same_sign = b_.CreateICmpSGE(b_.CreateXor(x, y), constant(0));
      return b_.CreateAdd(b_.CreateSDiv(x, y), b_.CreateZExt(b_.CreateAnd(rest, same_sign), type));
    }
    case SizeExpr::Op::Min: return b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, x, y);
    case SizeExpr::Op::Max: return b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, x, y);
    case SizeExpr::Op::Eq: return b_.CreateICmpEQ(x, y);
    case SizeExpr::Op::Ne: return b_.CreateICmpNE(x, y);
    case SizeExpr::Op::Lt: return b_.CreateICmpSLT(x, y);
    case SizeExpr::Op::Le: return b_.CreateICmpSLE(x, y);
    case SizeExpr::Op::Gt: return b_.CreateICmpSGT(x, y);
    case SizeExpr::Op::Ge: return b_.CreateICmpSGE(x, y);
    case SizeExpr::Op::And: return b_.CreateAnd(b_.CreateICmpNE(x, constant(0)), b_.CreateICmpNE(y, constant(0)));
    case SizeExpr::Op::Or: return b_.CreateOr(b_.CreateICmpNE(x, constant(0)), b_.CreateICmpNE(y, constant(0)));
    case SizeExpr::Op::Const:
    case SizeExpr::Op::Sym:
    case SizeExpr::Op::Add:
    case SizeExpr::Op::Sub:
    case SizeExpr::Op::Mul:
    case SizeExpr::Op::Select: // of programs alone: the host evaluates it
    case SizeExpr::Op::Not: break;
    }
    TKC_UNREACHABLE("size expression {}", e.str());
  }

  LowerCtx &ctx_;
  llvm::IRBuilder<> &b_;
};

} // namespace

Value *lower_size(LowerCtx &ctx, const SizeExpr &e) { return SizeLowering(ctx).lower(e, 32); }

// ---- the kernel

FunctionLowering::FunctionLowering(llvm::Module &module, const ir::Function &f, const ir::Target &target,
                                   LowerOptions options)
    : options_(std::move(options)), abi_(kernel_abi(f, options_.entry, options_.aligned)),
      builder_(module.getContext()), ctx_(module, builder_, f, target) {
  ctx_.aligned_ = options_.aligned;
}

void FunctionLowering::make_function() {
  llvm::LLVMContext &c = builder_.getContext();
  std::vector<llvm::Type *> types;
  for (const AbiParam &p : abi_.params) switch (p.kind) {
    case AbiParam::Kind::Pointer: types.push_back(llvm::PointerType::get(c, nvvm::kGlobal)); break;
    case AbiParam::Kind::Stride:
    case AbiParam::Kind::Size: types.push_back(ctx_.type(p.type)); break;
    case AbiParam::Kind::Scalar: types.push_back(is_bool(p.type) ? builder_.getInt8Ty() : ctx_.type(p.type)); break;
    case AbiParam::Kind::TensorMap: types.push_back(llvm::PointerType::get(c, nvvm::kGeneric)); break;
    }
  auto *type = llvm::FunctionType::get(builder_.getVoidTy(), types, false);
  function_ = llvm::Function::Create(type, llvm::GlobalValue::ExternalLinkage, abi_.entry, ctx_.module);
  function_->setCallingConv(llvm::CallingConv::PTX_Kernel);
  function_->addFnAttr("nvvm.reqntid", fmt::format("{},1,1", abi_.threads));
  if (options_.max_registers > 0) function_->addFnAttr("nvvm.maxnreg", std::to_string(options_.max_registers));
  if (options_.min_blocks > 0) function_->addFnAttr("nvvm.minctasm", std::to_string(options_.min_blocks));
  function_->setDoesNotThrow();
  for (unsigned i = 0; i < abi_.params.size(); i++) {
    const AbiParam &p = abi_.params[i];
    if (p.kind == AbiParam::Kind::TensorMap) { // by value, read where it lies
      auto *bytes = llvm::ArrayType::get(builder_.getInt8Ty(), uint64_t(p.bytes));
      function_->addParamAttr(i, llvm::Attribute::getWithByValType(c, bytes));
      function_->addParamAttr(i, llvm::Attribute::getWithAlignment(c, llvm::Align(uint64_t(kTensorMapAlignment))));
      function_->addParamAttr(i, llvm::Attribute::get(c, "nvvm.grid_constant"));
      ctx_.tensor_maps_.push_back(function_->getArg(i));
      continue;
    }
    if (p.kind != AbiParam::Kind::Pointer) continue;
    // Parameters must not overlap: the launcher checks it. What a launch before may still write is not known to be
    // constant, and no access may move ahead of the wait for it.
    if (!abi_.overlaps) function_->addParamAttr(i, llvm::Attribute::NoAlias);
    if (!p.written && !abi_.overlaps) function_->addParamAttr(i, llvm::Attribute::ReadOnly);
    function_->addParamAttr(i, llvm::Attribute::getWithAlignment(c, llvm::Align(uint64_t(p.alignment))));
  }
}

void FunctionLowering::make_thread_ids() {
  ctx_.role_warps_ = abi_.threads / 32;
  auto *tid = llvm::cast<llvm::CallInst>(nvvm::tid_x(builder_));
  tid->addRangeRetAttr(llvm::ConstantRange(llvm::APInt(32, 0), llvm::APInt(32, uint64_t(abi_.threads))));
  ctx_.thread_ = tid;
  if (abi_.threads == 32) {
    ctx_.lane_ = tid;
    ctx_.warp_ = ctx_.i32(0);
  } else {
    ctx_.lane_ = builder_.CreateAnd(tid, ctx_.i32(31));
    ctx_.warp_ = builder_.CreateLShr(tid, ctx_.i32(5));
  }
  if (abi_.shared_bytes > 0) {
    llvm::GlobalVariable *smem = ctx_.module.getNamedGlobal("smem"); // the entries of a module share it
    if (!smem) {
      auto *type = llvm::ArrayType::get(builder_.getInt8Ty(), 0);
      smem = new llvm::GlobalVariable(ctx_.module, type, false, llvm::GlobalValue::ExternalLinkage, nullptr, "smem",
                                      nullptr, llvm::GlobalValue::NotThreadLocal, nvvm::kShared);
      smem->setAlignment(llvm::Align(1024)); // TMA tiles with the 128-byte swizzle
    }
    ctx_.shared_base_ = smem;
  }
}

Value *FunctionLowering::stride(const ir::Param &p, int64_t dim, size_t &arg) {
  if (dim + 1 == p.type.rank() && !p.any_strides) return ctx_.i64(1);
  return function_->getArg(unsigned(arg++));
}

void FunctionLowering::make_arguments() {
  const ir::Function &f = ctx_.function;
  // Sizes first: extents are expressions of them.
  for (size_t i = 0; i < f.sizes.size(); i++) {
    const ir::Value *v = f.body->args[f.body->args.size() - f.sizes.size() + i];
    size_t last = abi_.params.size() - ctx_.tensor_maps_.size();
    llvm::Argument *a = function_->getArg(unsigned(last - f.sizes.size() + i));
    a->addAttr(llvm::Attribute::get(builder_.getContext(), llvm::Attribute::Range,
                                    llvm::ConstantRange(llvm::APInt(32, 0), llvm::APInt::getSignedMinValue(32))));
    ctx_.set(v, {a});
  }
  size_t arg = 0, value = 0;
  for (const ir::Param &p : f.params) {
    if (!p.present) continue;
    const ir::Value *v = f.body->args[value++];
    if (!p.type.is_tensor()) {
      Value *x = function_->getArg(unsigned(arg++));
      if (is_bool(p.type.dtype)) x = builder_.CreateICmpNE(x, builder_.getInt8(0));
      ctx_.set(v, {x});
      continue;
    }
    TensorVal t;
    t.alignment = abi_.params[arg].alignment;
    t.inner_divisor = std::max<int64_t>(1, t.alignment / dtype_bytes(p.type.dtype));
    t.base = function_->getArg(unsigned(arg++));
    t.dtype = p.type.dtype;
    t.read_only = p.mode == ir::ParamMode::In && !f.overlaps;
    t.any_strides = p.any_strides;
    t.static_extents = p.type.shape;
    for (int64_t d = 0; d < p.type.rank(); d++) {
      int64_t fixed = p.type.shape[size_t(d)];
      t.extents.push_back(fixed == ir::kDynamic ? lower_size(ctx_, p.dims[size_t(d)]) : ctx_.i32(fixed));
      t.strides.push_back(stride(p, d, arg));
    }
    ctx_.set_tensor(v, std::move(t));
  }
}

void FunctionLowering::make_programs() {
  const ir::Function &f = ctx_.function;
  for (const SizeExpr &e : f.grid) ctx_.num_programs_.push_back(lower_size(ctx_, e));
  // A persistent kernel has a loop over tiles, which computes the coordinates of each.
  if (!f.persistent) ctx_.program_id_ = ctx_.coordinates(nvvm::ctaid_x(builder_));
}

llvm::Function *FunctionLowering::run() {
  make_function();
  llvm::LLVMContext &c = builder_.getContext();
  auto *entry = llvm::BasicBlock::Create(c, "entry", function_), *body = llvm::BasicBlock::Create(c, "body", function_);
  if (options_.lines) {
    ctx_.debug_ = options_.lines;
    ctx_.subprogram_ = options_.lines->function(function_, ctx_.function.loc);
  }
  builder_.SetInsertPoint(entry);
  ctx_.set_location(ctx_.function.loc);
  ctx_.entry_end_ = builder_.CreateBr(body);
  builder_.SetInsertPoint(ctx_.entry_end_);
  make_thread_ids();
  make_arguments();
  make_programs();
  builder_.SetInsertPoint(body);
  if (!options_.aligned && ir::needs_alignment(ctx_.function)) {
    // Copies by the asynchronous proxy that the source asks for have no other form.
    std::string file;
    int64_t line = 0;
    if (const SourceManager *sources = ctx_.sources(); sources && ctx_.function.loc.valid()) {
      const SourceFile &f = sources->file(ctx_.function.loc.file);
      file = f.name().substr(f.name().find_last_of('/') + 1);
      line = f.position(ctx_.function.loc.begin).line;
    }
    nvvm::assertfail(builder_, "the kernel copies by hand, in pieces of 16 bytes: its tensors must be aligned to them",
                     file, line, ctx_.function.name);
    builder_.CreateUnreachable();
    return function_;
  }
  ctx_.lower_block(ctx_.function.body);
  return function_;
}

} // namespace tkc::codegen
