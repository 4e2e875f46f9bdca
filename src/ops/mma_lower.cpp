// Matrix products by mma.sync, or by fused multiply-adds where each thread holds whole rows of A and columns of B.
#include "codegen/access.h"
#include "codegen/convert_float.h"
#include "layout/f2.h"
#include "ops/lowering.h"
#include "ops/scratch.h"
#include "support/check.h"
#include <algorithm>
#include <deque>
#include <map>

namespace tkc::ops {

using namespace codegen;
using ir::Op;
using ir::OpKind;
using llvm::Value;

namespace {

// Registers of an operand as the words of instruction fragments.
class Operand {
public:
  // `k_dim`: the tile dim that is summed over. Elements past the end of K, and lanes of `k_lane_mask`, become zero;
  // both factors of a product need it, for zero times NaN is NaN. A K of whole instructions has such elements too where
  // the warps that share it out get unequal parts: all execute the steps of the largest.
  Operand(LowerCtx &c, const ir::Value *v, int64_t k_dim, uint32_t k_lane_mask)
      : c_(c), regs_(c.regs(v)), layout_(c.layout(v)), dtype_(v->type.dtype), k_dim_(k_dim),
        lanes_(bits_clear(c, k_lane_mask, 0)) {}

  // The words of a fragment given by its registers; `small`: the rest that tf32 loses, of an f32 operand.
  template <size_t N> const Regs &words(const std::array<int16_t, N> &fragment, int elements, bool small = false) {
    std::vector<int16_t> key(fragment.begin(), fragment.begin() + elements);
    key.push_back(small);
    auto [it, fresh] = words_.try_emplace(std::move(key));
    if (fresh) {
      std::vector<Value *> parts;
      for (int e = 0; e < elements; e++) parts.push_back(element(fragment[size_t(e)], small));
      if (dtype_bits(dtype_) == 64)
        it->second = parts;
      else
        it->second = pack_words(c_, dtype_, parts);
    }
    return it->second;
  }

  // The low or the high pairs of a fragment of fp8 values as a fragment of f16: together they cover the same k.
  template <size_t N> const Regs &f16_words(const std::array<int16_t, N> &fragment, int elements, bool high) {
    std::vector<int16_t> key(fragment.begin(), fragment.begin() + elements);
    auto [it, fresh] = f16_words_.try_emplace(std::move(key));
    if (fresh)
      for (Value *word : words(fragment, elements)) {
        auto pairs = fp8_word_to_f16(c_, dtype_, word);
        for (size_t half : {0u, 1u}) it->second[half].push_back(pairs[half]);
      }
    return it->second[high];
  }

private:
  Value *element(int16_t reg, bool small) {
    llvm::Type *type = c_.type(dtype_);
    if (reg < 0) return llvm::Constant::getNullValue(type);
    auto [it, fresh] = elements_.try_emplace({reg, small}, nullptr);
    if (!fresh) return it->second;
    Value *v = regs_[size_t(reg)];
    TKC_CHECK(v, "register {} of an operand of mma is not live", reg);
    Value *valid = both(c_, inside_predicate(c_, layout_, reg, k_dim_), lanes_);
    if (valid) v = c_.b.CreateSelect(valid, v, llvm::Constant::getNullValue(type));
    if (dtype_ == DType::F32) {
      Value *big = nvvm::cvt_rna_tf32_f32(c_.b, v);
      v = small ? nvvm::cvt_rna_tf32_f32(c_.b, c_.b.CreateFSub(v, big)) : big;
    }
    return it->second = v;
  }

  LowerCtx &c_;
  const Regs &regs_;
  RegLayout layout_;
  DType dtype_;
  int64_t k_dim_;
  Value *lanes_;
  std::map<std::pair<int16_t, bool>, Value *> elements_;
  std::map<std::vector<int16_t>, Regs> words_;
  std::map<std::vector<int16_t>, std::array<Regs, 2>> f16_words_;
};

Regs initial(LowerCtx &c, const Op &op) {
  const RegLayout &l = c.layout(op.result());
  if (op.operands.size() < 3)
    return Regs(size_t(l.num_regs()), llvm::Constant::getNullValue(c.type(op.result()->type.dtype)));
  const ir::Value *from = op.operand(2);
  auto map = register_map(c.layout(from), l);
  TKC_CHECK(map.has_value(), "mma adds layout {} to {}", c.layout(from).to_string(), l.to_string());
  Regs out(size_t(l.num_regs()), nullptr);
  for (size_t r = 0; r < out.size(); r++) out[r] = c.regs(from)[size_t((*map)[r])];
  return out;
}

void finish(LowerCtx &c, const Op &op, Regs acc) {
  const RegLayout &l = c.layout(op.result());
  Regs out(acc.size(), nullptr);
  for (int r : l.live_regs()) out[size_t(r)] = acc[size_t(representative(l, r))];
  c.set(op.result(), std::move(out));
}

// Adds up the partial sums of the warps that split K; all of them get equal bits.
void exchange(LowerCtx &c, const Op &op, const MmaPlan &plan, Regs &acc) {
  DType t = op.result()->type.dtype, wide = accumulator(t);
  llvm::Type *type = c.type(wide);
  llvm::IRBuilder<> &b = c.b;
  int64_t slot = scratch_bytes(t), per_access = 16 / slot;
  auto count = int64_t(plan.exchanged.size());
  int64_t accesses = (count + per_access - 1) / per_access, per_warp = accesses * 32 * 16;
  int64_t at = op.attrs.i("scratch_offset");
  Value *lane_bytes = b.CreateMul(c.lane(), c.i32(16));
  auto address = [&](Value *warp, int64_t access, int64_t constant) {
    return shared_address(c, at + access * 32 * 16 + constant,
                          b.CreateAdd(b.CreateMul(warp, c.i32(per_warp)), lane_bytes));
  };
  llvm::Type *word = b.getIntNTy(unsigned(slot) * 8);
  nvvm::Access how{nvvm::kShared, 16};
  for (int64_t i = 0; i < accesses; i++) {
    std::vector<Value *> words;
    for (int64_t k = i * per_access; k < (i + 1) * per_access; k++) {
      Value *v = k < count ? acc[size_t(plan.exchanged[size_t(k)])] : llvm::Constant::getNullValue(c.type(t));
      if (v->getType() != type) v = b.CreateFPExt(v, type);
      words.push_back(to_bits(c, v));
    }
    nvvm::st(b, how, address(c.warp(), i, 0), words);
  }
  c.role_barrier();
  // A tree over the warp bits that split K, each warp with its own sum as the first leaf: addition is commutative, so
  // the node that two warps reach from its two sides has the same bits in both.
  std::vector<uint32_t> bits;
  for (uint32_t left = plan.steps.k_warp_mask; left; left &= left - 1) bits.push_back(left & -left);
  std::vector<Value *> own;
  for (int64_t k = 0; k < count; k++) {
    Value *v = acc[size_t(plan.exchanged[size_t(k)])];
    own.push_back(v->getType() == type ? v : b.CreateFPExt(v, type));
  }
  for (int64_t i = 0; i < accesses; i++) {
    int64_t n = std::min(per_access, count - i * per_access);
    auto sum = [&](auto &self, size_t level, uint32_t pattern) -> std::vector<Value *> {
      if (level == 0) {
        if (pattern == 0) return {own.begin() + i * per_access, own.begin() + i * per_access + n};
        Value *warp = b.CreateXor(c.warp(), c.i32(pattern));
        std::vector<Value *> out = nvvm::ld(b, how, address(warp, i, 0), word, per_access);
        out.resize(size_t(n));
        for (Value *&v : out) v = from_bits(c, v, type);
        return out;
      }
      std::vector<Value *> x = self(self, level - 1, pattern), y = self(self, level - 1, pattern | bits[level - 1]);
      for (size_t k = 0; k < x.size(); k++) x[k] = is_float(wide) ? b.CreateFAdd(x[k], y[k]) : b.CreateAdd(x[k], y[k]);
      return x;
    };
    std::vector<Value *> sums = sum(sum, bits.size(), 0);
    for (int64_t k = 0; k < n; k++) {
      Value *v = sums[size_t(k)];
      acc[size_t(plan.exchanged[size_t(i * per_access + k)])] =
          v->getType() == c.type(t) ? v : b.CreateFPTrunc(v, c.type(t));
    }
  }
}

// One product with tensor cores, emitted step by step.
class TensorProduct {
public:
  TensorProduct(LowerCtx &c, const Op &op, MmaPlan plan)
      : c_(c), op_(op), plan_(std::move(plan)), acc_type_(op.result()->type.dtype),
        tile_a_(c, op.operand(0), 1, plan_.steps.k_lane_mask), tile_b_(c, op.operand(1), 0, plan_.steps.k_lane_mask) {
    by_f16_ = dtype_bits(plan_.a_type) == 8 && is_float(plan_.a_type) && !c.target.has(ir::kFp8Mma);
    instr_ = by_f16_ ? nvvm::find_mma("m16n8k16", DType::F16, DType::F16, acc_type_, c.target)
                     : nvvm::find_mma(plan_.shape->name, plan_.a_type, plan_.b_type, acc_type_, c.target);
    TKC_CHECK(instr_, "mma {} of {} and {} into {} on {}", plan_.shape->name, dtype_name(plan_.a_type),
              dtype_name(plan_.b_type), dtype_name(acc_type_), c.target.name);
    const std::string precision = op.attrs.has("precision") ? op.attrs.s("precision") : "";
    split_ = precision == "tf32x3" && op.operand(0)->type.dtype == DType::F32;
    start_ = initial(c, op);
    // Partial sums: the addend comes in after the exchange, once.
    acc_ = partial() ? Regs(start_.size(), llvm::Constant::getNullValue(c.type(acc_type_))) : start_;
  }

  // Emits the instructions of one step along k; false if there are no more.
  bool k_step() {
    const std::vector<MmaStep> &steps = plan_.steps.steps;
    if (next_ == steps.size()) return false;
    for (int16_t k = steps[next_].k_step; next_ < steps.size() && steps[next_].k_step == k; next_++) emit(steps[next_]);
    return true;
  }

  void end() {
    if (partial()) {
      exchange(c_, op_, plan_, acc_);
      if (op_.operands.size() == 3)
        for (int r : plan_.exchanged)
          acc_[size_t(r)] = is_float(acc_type_) ? c_.b.CreateFAdd(start_[size_t(r)], acc_[size_t(r)])
                                                : c_.b.CreateAdd(start_[size_t(r)], acc_[size_t(r)]);
    }
    finish(c_, op_, std::move(acc_));
  }

private:
  static bool is_zero(const Regs &words) {
    return std::all_of(words.begin(), words.end(), [](Value *v) {
      auto *constant = llvm::dyn_cast<llvm::Constant>(v);
      return constant && constant->isNullValue();
    });
  }
  bool partial() const { return plan_.steps.k_warp_mask != 0; }

  void emit(const MmaStep &step) {
    Operand &a = plan_.transposed ? tile_b_ : tile_a_, &b = plan_.transposed ? tile_a_ : tile_b_;
    int elements_a = plan_.shape->a.elements(), elements_b = plan_.shape->b.elements(),
        elements_c = plan_.shape->c.elements();
    Regs c_elements;
    for (int e = 0; e < elements_c; e++) {
      int16_t r = step.c[size_t(e)];
      c_elements.push_back(r < 0 ? llvm::Constant::getNullValue(c_.type(acc_type_)) : acc_[size_t(r)]);
    }
    Regs words = acc_type_ == DType::F16 ? Regs(pack_words(c_, acc_type_, c_elements)) : c_elements;
    // Small terms first: they would be lost in the large sum.
    if (split_) {
      words = nvvm::mma(c_.b, *instr_, a.words(step.a, elements_a, true), b.words(step.b, elements_b), words);
      words = nvvm::mma(c_.b, *instr_, a.words(step.a, elements_a), b.words(step.b, elements_b, true), words);
    }
    if (by_f16_) {
      for (bool high : {false, true}) {
        const Regs &fa = a.f16_words(step.a, elements_a, high), &fb = b.f16_words(step.b, elements_b, high);
        if (!is_zero(fa) && !is_zero(fb)) words = nvvm::mma(c_.b, *instr_, fa, fb, words);
      }
    } else {
      words = nvvm::mma(c_.b, *instr_, a.words(step.a, elements_a), b.words(step.b, elements_b), words);
    }
    if (acc_type_ == DType::F16) words = unpack_words(c_, acc_type_, words, elements_c);
    for (int e = 0; e < elements_c; e++)
      if (step.c[size_t(e)] >= 0) acc_[size_t(step.c[size_t(e)])] = words[size_t(e)];
  }

  LowerCtx &c_;
  const Op &op_;
  MmaPlan plan_;
  DType acc_type_;
  Operand tile_a_, tile_b_;
  const nvvm::Mma *instr_ = nullptr;
  bool split_ = false, by_f16_ = false; // three products of tf32; two of f16 for one of fp8
  Regs start_, acc_;
  size_t next_ = 0;
};

// For each element of C in turn, the products along K in ascending order. Only K inside the exact extent is visited.
void multiply_adds(LowerCtx &c, const Op &op) {
  const ir::Value *a = op.operand(0), *b = op.operand(1);
  const RegLayout &la = c.layout(a), &lb = c.layout(b), &lc = c.layout(op.result());
  auto check = [&](const RegLayout &l, bool is_b) {
    RegLayout need = fma_operand_layout(lc, is_b, l.shape.to_vector());
    TKC_CHECK(same_lanes(l, need), "a product without tensor cores needs layout {}, not {}", need.to_string(),
              l.to_string());
  };
  check(la, false), check(lb, true);
  F2Span regs_a(la.reg), regs_b(lb.reg);
  TileSpace sa = la.space(), sb = lb.space(), sc = lc.space();
  DType t = op.result()->type.dtype;
  llvm::Type *type = c.type(t);
  auto wide = [&](Value *v, DType from) -> Value * {
    if (v->getType() == type) return v;
    if (is_float(t)) return c.b.CreateFPExt(v, type);
    return is_signed(from) ? c.b.CreateSExt(v, type) : c.b.CreateZExt(v, type);
  };
  Regs acc = initial(c, op);
  for (int64_t k = 0; k < a->type.shape[1]; k++)
    for (int r : lc.live_regs()) {
      if (representative(lc, r) != r) continue;
      uint32_t e = lc.reg_part(r);
      std::array<int64_t, 2> at_a = {sc.coord(e, 0), k}, at_b = {k, sc.coord(e, 1)};
      auto ra = regs_a.solve(sa.element(at_a)), rb = regs_b.solve(sb.element(at_b));
      TKC_CHECK(ra && rb, "a product without tensor cores of layouts {} and {}", la.to_string(), lb.to_string());
      Value *x = wide(c.regs(a)[size_t(*ra)], a->type.dtype), *y = wide(c.regs(b)[size_t(*rb)], b->type.dtype);
      Value *&sum = acc[size_t(r)];
      sum = is_float(t) ? nvvm::fma_rn(c.b, x, y, sum) : c.b.CreateAdd(c.b.CreateMul(x, y), sum);
    }
  finish(c, op, std::move(acc));
}

} // namespace

// Products marked `with_previous` (passes/pair_products.cpp) are emitted together with the one before, step by step
// along k: independent instructions between dependent ones hide their latency. A barrier that came between ends a
// group.
void lower_Mma(LowerCtx &c, const Op &op) {
  int64_t at = position(&op);
  if (op.attrs.i_or("with_previous", 0) && at > 0 && op.block->ops[size_t(at - 1)]->kind == OpKind::Mma)
    return; // done with the first of its group
  bool ieee = op.attrs.has("precision") && op.attrs.s("precision") == "ieee" && op.operand(0)->type.dtype == DType::F32;
  if (ieee || op.attrs.s("shape") == "fma") {
    multiply_adds(c, op);
    return;
  }
  std::deque<TensorProduct> group;
  const std::vector<Op *> &ops = op.block->ops;
  for (auto i = size_t(at); i < ops.size(); i++) {
    if (ops[i] != &op && !(ops[i]->kind == OpKind::Mma && ops[i]->attrs.i_or("with_previous", 0))) break;
    auto plan = mma_plan(*ops[i]);
    TKC_CHECK(plan.has_value(), "mma of {} with shape {}", dtype_name(op.operand(0)->type.dtype), op.attrs.s("shape"));
    group.emplace_back(c, *ops[i], std::move(*plan));
  }
  for (bool more = true; more;) {
    more = false;
    for (TensorProduct &p : group) more |= p.k_step();
  }
  for (TensorProduct &p : group) p.end();
}

} // namespace tkc::ops
