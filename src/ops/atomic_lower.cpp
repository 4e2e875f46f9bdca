// Atomics on global memory, relaxed at gpu scope. Each element is updated once, by its owner; what no instruction does
// is left to LLVM's compare-and-swap loops.
#include "codegen/access.h"
#include "ops/lowering.h"
#include "ops/scratch.h"
#include "support/check.h"

namespace tkc::ops {

using namespace codegen;
using ir::Op;
using ir::OpKind;
using llvm::Value;

namespace {

// The PTX type with which `atom` does the operation on one element; empty: there is no such instruction.
std::string_view atom_type(OpKind kind, DType t, const ir::Target &target) {
  int64_t bits = is_bool(t) ? 8 : dtype_bits(t);
  switch (kind) {
  case OpKind::AtomicAdd:
    switch (t) {
    case DType::I32:
    case DType::U32: return "u32";
    case DType::I64:
    case DType::U64: return "u64";
    case DType::F16: return "f16";
    case DType::BF16: return target.has(ir::kBf16Native) ? "bf16" : "";
    case DType::F32: return "f32";
    case DType::F64: return "f64";
    case DType::Bool:
    case DType::I8:
    case DType::U8:
    case DType::I16:
    case DType::U16:
    case DType::TF32:
    case DType::E4M3:
    case DType::E5M2:
    case DType::E2M1:
    case DType::UE8M0:
    case DType::UE4M3: return "";
    }
    return "";
  case OpKind::AtomicMax:
  case OpKind::AtomicMin:
    if (!is_integer(t) || bits < 32) return "";
    return bits == 64 ? (is_signed(t) ? "s64" : "u64") : is_signed(t) ? "s32" : "u32";
  case OpKind::AtomicAnd:
  case OpKind::AtomicOr:
  case OpKind::AtomicXor: return bits == 32 ? "b32" : bits == 64 ? "b64" : "";
  case OpKind::AtomicExch: return bits == 32 ? "b32" : bits == 64 ? "b64" : "";
  case OpKind::AtomicCas: return bits == 16 ? "b16" : bits == 32 ? "b32" : bits == 64 ? "b64" : "";
  default: TKC_UNREACHABLE("an atomic of kind {}", int(kind));
  }
}

nvvm::AtomOp atom_op(OpKind kind) {
  switch (kind) {
  case OpKind::AtomicAdd: return nvvm::AtomOp::Add;
  case OpKind::AtomicMax: return nvvm::AtomOp::Max;
  case OpKind::AtomicMin: return nvvm::AtomOp::Min;
  case OpKind::AtomicAnd: return nvvm::AtomOp::And;
  case OpKind::AtomicOr: return nvvm::AtomOp::Or;
  case OpKind::AtomicXor: return nvvm::AtomOp::Xor;
  case OpKind::AtomicExch: return nvvm::AtomOp::Exch;
  default: TKC_UNREACHABLE("an atomic of kind {}", int(kind));
  }
}

llvm::AtomicRMWInst::BinOp loop_op(OpKind kind, DType t) {
  using Rmw = llvm::AtomicRMWInst;
  switch (kind) {
  case OpKind::AtomicAdd: return is_float(t) ? Rmw::FAdd : Rmw::Add;
  case OpKind::AtomicMax: return is_float(t) ? Rmw::FMax : is_signed(t) ? Rmw::Max : Rmw::UMax;
  case OpKind::AtomicMin: return is_float(t) ? Rmw::FMin : is_signed(t) ? Rmw::Min : Rmw::UMin;
  case OpKind::AtomicAnd: return Rmw::And;
  case OpKind::AtomicOr: return Rmw::Or;
  case OpKind::AtomicXor: return Rmw::Xor;
  case OpKind::AtomicExch: return Rmw::Xchg;
  default: TKC_UNREACHABLE("an atomic of kind {}", int(kind));
  }
}

// Elements of a vector that `red` adds in one instruction, in bytes; 0: one element at a time.
int64_t red_bytes(OpKind kind, DType t, const ir::Target &target) {
  if (kind != OpKind::AtomicAdd) return 0;
  bool vectors = target.has(ir::kHopper);
  if (t == DType::F32) return vectors ? 16 : 0;
  if (t == DType::F16) return vectors ? 16 : 4;
  return t == DType::BF16 && vectors ? 16 : 0;
}

class Atomic {
public:
  Atomic(LowerCtx &c, const Op &op)
      : c_(c), op_(op), value_(op.operand(1 + c.tensor(op.operand(0)).strides.size())), t_(value_->type.dtype),
        layout_(value_layout(c, value_)) {}

  void run() {
    size_t next = 2 + c_.tensor(op_.operand(0)).strides.size();
    const ir::Value *compare = op_.kind == OpKind::AtomicCas ? op_.operand(next++) : nullptr;
    const ir::Value *mask = op_.attrs.i_or("has_mask", 0) ? op_.operand(next) : nullptr;
    TileAccess access(c_, op_, layout_, mask);
    Value *owner = owner_predicate(c_, layout_);
    const Regs &values = c_.regs(value_);
    bool used = result_used(op_);
    int64_t bytes = used ? 0 : red_bytes(op_.kind, t_, c_.target);
    if (bytes) {
      int64_t n = access.vector_elements(bytes);
      for (int64_t start : access.starts(n, true)) {
        std::vector<Value *> elements;
        for (int64_t r : access.vector_regs(start, n)) elements.push_back(values[size_t(r)]);
        add(elements, access.address(start), both(c_, owner, access.predicate(start)));
      }
      c_.set(op_.result(), Regs(values.size(), nullptr));
      return;
    }
    Regs old(values.size(), nullptr);
    for (int64_t r : access.starts(1, true)) {
      Value *p = both(c_, owner, access.predicate(r));
      Value *expected = compare ? c_.regs(compare)[size_t(r)] : nullptr;
      old[size_t(r)] = one(access.address(r), values[size_t(r)], expected, p, used);
    }
    if (used) broadcast(old);
    c_.set(op_.result(), std::move(old));
  }

private:
  // Packed or vector reduction without a result.
  void add(std::vector<Value *> elements, Value *address, Value *predicate) {
    bool half = t_ == DType::F16 || t_ == DType::BF16;
    std::string type = t_ == DType::F32 ? "f32" : t_ == DType::F16 ? "f16" : "bf16";
    if (half && elements.size() > 1) {
      std::vector<Value *> pairs;
      auto *pair = llvm::FixedVectorType::get(c_.type(t_), 2);
      for (Value *w : pack_words(c_, t_, elements)) pairs.push_back(c_.b.CreateBitCast(w, pair));
      elements = std::move(pairs);
      type += "x2";
    }
    nvvm::red(c_.b, nvvm::kGlobal, nvvm::AtomOp::Add, type, address, elements, predicate);
  }

  Value *one(Value *address, Value *value, Value *compare, Value *predicate, bool used) {
    std::string_view type = atom_type(op_.kind, t_, c_.target);
    if (type.empty()) return loop(address, value, compare, predicate);
    llvm::Type *result = c_.type(t_);
    bool as_bits = type[0] == 'b' && type != "bf16";
    if (as_bits) value = to_bits(c_, value);
    if (compare) {
      Value *old = nvvm::atom_cas(c_.b, nvvm::kGlobal, type, address, to_bits(c_, compare), value, predicate);
      return from_bits(c_, old, result);
    }
    if (!used && op_.kind != OpKind::AtomicExch) {
      nvvm::red(c_.b, nvvm::kGlobal, atom_op(op_.kind), type, address, {&value, 1}, predicate);
      return nullptr;
    }
    Value *old = nvvm::atom(c_.b, nvvm::kGlobal, atom_op(op_.kind), type, address, value, predicate);
    return as_bits ? from_bits(c_, old, result) : old;
  }

  // A branch around LLVM's own atomic, which becomes a loop of atom.cas on the 32-bit word around the element.
  Value *loop(Value *address, Value *value, Value *compare, Value *predicate) {
    llvm::IRBuilder<> &b = c_.b;
    llvm::Type *result = c_.type(t_);
    bool as_bits = compare || is_bool(t_) || op_.kind == OpKind::AtomicExch;
    if (as_bits) value = to_bits(c_, value);
    llvm::BasicBlock *before = b.GetInsertBlock(), *then = nullptr, *after = nullptr;
    if (predicate) {
      llvm::Function *f = before->getParent();
      then = llvm::BasicBlock::Create(b.getContext(), "atomic", f);
      after = llvm::BasicBlock::Create(b.getContext(), "atomic.end", f);
      b.CreateCondBr(predicate, then, after);
      b.SetInsertPoint(then);
    }
    auto scope = b.getContext().getOrInsertSyncScopeID("device");
    auto order = llvm::AtomicOrdering::Monotonic;
    llvm::MaybeAlign align(uint64_t(dtype_bytes(t_)));
    Value *old;
    if (compare) {
      Value *pair = b.CreateAtomicCmpXchg(address, to_bits(c_, compare), value, align, order, order, scope);
      old = b.CreateExtractValue(pair, 0);
    } else {
      old = b.CreateAtomicRMW(loop_op(op_.kind, t_), address, value, align, order, scope);
    }
    if (predicate) {
      b.CreateBr(after);
      b.SetInsertPoint(after);
      llvm::PHINode *phi = b.CreatePHI(old->getType(), 2);
      phi->addIncoming(llvm::Constant::getNullValue(old->getType()), before);
      phi->addIncoming(old, then);
      old = phi;
    }
    return as_bits ? from_bits(c_, old, result) : old;
  }

  // Hands the old values from the owners to the copies.
  void broadcast(Regs &old) {
    BitMasks free = layout_.free_bits();
    for (size_t i = 0; i < layout_.lane.size(); i++)
      TKC_CHECK(!(free.lane >> i & 1) || layout_.lane[i] == 0, "the result of an atomic in layout {}",
                layout_.to_string());
    for (size_t i = 0; i < layout_.warp.size(); i++)
      TKC_CHECK(!(free.warp >> i & 1) || layout_.warp[i] == 0, "the result of an atomic in layout {}",
                layout_.to_string());
    auto owned = [&](int64_t r) { return old[size_t(r)] && representative(layout_, r) == r; };
    if (free.warp) {
      PackedThreads t = pack_threads(layout_, free.lane, free.warp);
      int64_t at = op_.attrs.i("scratch_offset"), slot = scratch_bytes(t_), i = 0;
      Value *mine = c_.linear(t.lane, t.warp), *owner = owner_predicate(c_, layout_);
      auto address = [&] { return shared_address(c_, at + i++ * t.count * slot, mine, slot); };
      for (int64_t r = 0; r < layout_.num_regs(); r++)
        if (owned(r)) store_slot(c_, address(), old[size_t(r)], owner);
      c_.role_barrier();
      i = 0;
      for (int64_t r = 0; r < layout_.num_regs(); r++)
        if (owned(r)) old[size_t(r)] = load_slot(c_, address(), c_.type(t_));
    } else if (free.lane) {
      Value *owner = c_.b.CreateAnd(c_.lane(), c_.i32(31 & ~free.lane));
      for (Value *&v : old)
        if (v) v = nvvm::shfl_sync_idx(c_.b, v, owner);
    }
    for (int r : layout_.live_regs()) {
      old[size_t(r)] = old[size_t(representative(layout_, r))];
      TKC_CHECK(old[size_t(r)], "the result of an atomic in layout {}", layout_.to_string());
    }
  }

  LowerCtx &c_;
  const Op &op_;
  const ir::Value *value_;
  DType t_;
  RegLayout layout_;
};

} // namespace

void lower_AtomicAdd(LowerCtx &c, const Op &op) { Atomic(c, op).run(); }
void lower_AtomicMax(LowerCtx &c, const Op &op) { Atomic(c, op).run(); }
void lower_AtomicMin(LowerCtx &c, const Op &op) { Atomic(c, op).run(); }
void lower_AtomicAnd(LowerCtx &c, const Op &op) { Atomic(c, op).run(); }
void lower_AtomicOr(LowerCtx &c, const Op &op) { Atomic(c, op).run(); }
void lower_AtomicXor(LowerCtx &c, const Op &op) { Atomic(c, op).run(); }
void lower_AtomicExch(LowerCtx &c, const Op &op) { Atomic(c, op).run(); }
void lower_AtomicCas(LowerCtx &c, const Op &op) { Atomic(c, op).run(); }

} // namespace tkc::ops
