// Reductions along one axis: the registers of a thread first, then the lanes of a warp, then the warps through scratch.
// The order of the additions depends on the layout alone, and every replica of the result gets the same bits.
#include "ops/accumulate.h"
#include "ops/contract.h"
#include "ops/lowering.h"
#include <bit>
#include <optional>

namespace tkc::ops {

using namespace codegen;
using ir::Op;
using llvm::Value;

namespace {

// Partial results that a warp would have to load, from which on threads combine them for each other: that costs a
// barrier.
constexpr int64_t kCombineOnce = 48;

// A partial result: a value, and for argmax and argmin the index where it was found.
struct Partial {
  Value *value = nullptr, *index = nullptr;
};

class Reduction {
public:
  Reduction(LowerCtx &c, const Op &op, Combine kind, bool with_index)
      : c_(c), op_(op), kind_(kind), with_index_(with_index), axis_(op.attrs.i("axis")),
        layout_(c.layout(op.operand(0))), from_(op.operand(0)->type.dtype),
        acc_(accumulator(with_index ? from_ : op.result()->type.dtype)), exchange_(reduce_exchange(layout_, axis_)) {
    TKC_CHECK(layout_.is_separable(int(axis_)), "a reduction along axis {} of layout {}", axis_, layout_.to_string());
  }

  void run() {
    std::optional<Contract> contract; // a sum of products may fuse them, as elementwise sums may
    if (kind_ == Combine::Sum) contract.emplace(c_, acc_);
    RegLayout sliced = layout_.slice(int(axis_));
    std::vector<Partial> result = registers(size_t(sliced.num_regs()));
    for (int r : exchange_.result_regs) lanes(result[size_t(r)]);
    if (exchange_.axis.warp) warps(result);
    const ir::Value *value = op_.result();
    std::vector<int> map{0};
    if (!value->type.is_scalar()) {
      auto m = register_map(sliced, c_.layout(value));
      TKC_CHECK(m.has_value(), "a reduction gives layout {}, not {}", sliced.to_string(), c_.layout(value).to_string());
      map = *m;
    }
    Regs regs(map.size(), nullptr);
    for (size_t r = 0; r < map.size(); r++) {
      Partial p = result[size_t(map[r])];
      if (!p.value) continue;
      DType to = value->type.dtype;
      // NaNs alone give the identity.
      if (!with_index_ && is_float(acc_) && (kind_ == Combine::Max || kind_ == Combine::Min))
        p.value = combine(c_, kind_, acc_, p.value, identity(c_, kind_, acc_));
      regs[r] = with_index_ ? c_.b.CreateZExtOrTrunc(p.index, c_.type(to)) : from_accumulator(c_, p.value, acc_, to);
    }
    c_.set(value, std::move(regs));
  }

private:
  Partial element(int reg) {
    Partial p{to_accumulator(c_, c_.regs(op_.operand(0))[size_t(reg)], from_, acc_), nullptr};
    if (with_index_) p.index = c_.coordinate(layout_, reg, axis_);
    // Padding along the axis counts as the identity; padding along other dims stays in padding of the result.
    if (Value *inside = inside_predicate(c_, layout_, reg, axis_)) {
      // (For positions NaN, which loses against -inf too.)
      Value *neutral =
          with_index_ && is_float(acc_) ? llvm::ConstantFP::getNaN(c_.type(acc_)) : identity(c_, kind_, acc_);
      p.value = c_.b.CreateSelect(inside, p.value, neutral);
      if (with_index_) p.index = c_.b.CreateSelect(inside, p.index, c_.i32(INT32_MAX));
    }
    return p;
  }

  // Balanced trees over the registers of each result, neighbours first.
  std::vector<Partial> registers(size_t results) {
    std::vector<std::vector<int>> groups(results);
    for (int r : layout_.live_regs())
      if (representative(layout_, r) == r) groups[size_t(layout_.sliced_reg(int(axis_), r))].push_back(r);
    std::vector<Partial> out(results);
    for (size_t g = 0; g < results; g++) {
      std::vector<Partial> level;
      for (int r : groups[g]) level.push_back(element(r));
      while (level.size() > 1) {
        std::vector<Partial> next;
        for (size_t i = 0; i + 1 < level.size(); i += 2) next.push_back(merge(level[i], level[i + 1]));
        if (level.size() % 2) next.push_back(level.back());
        level = std::move(next);
      }
      if (!level.empty()) out[g] = level[0];
    }
    return out;
  }

  Partial merge(Partial a, Partial b) {
    if (!with_index_) return {combine(c_, kind_, acc_, a.value, b.value), nullptr};
    // The better value wins, of equal ones the lower index; a NaN loses against every number.
    Value *better = ahead(b.value, a.value), *equal;
    if (is_float(acc_)) {
      Value *a_nan = c_.b.CreateFCmpUNO(a.value, a.value), *b_nan = c_.b.CreateFCmpUNO(b.value, b.value);
      better = c_.b.CreateOr(better, c_.b.CreateAnd(a_nan, c_.b.CreateNot(b_nan)));
      equal = c_.b.CreateOr(c_.b.CreateFCmpOEQ(a.value, b.value), c_.b.CreateAnd(a_nan, b_nan));
    } else {
      equal = c_.b.CreateICmpEQ(a.value, b.value);
    }
    Value *take = c_.b.CreateOr(better, c_.b.CreateAnd(equal, c_.b.CreateICmpULT(b.index, a.index)));
    return {c_.b.CreateSelect(take, b.value, a.value), c_.b.CreateSelect(take, b.index, a.index)};
  }

  Value *ahead(Value *x, Value *y) {
    bool max = kind_ == Combine::Max;
    if (is_float(acc_)) return max ? c_.b.CreateFCmpOGT(x, y) : c_.b.CreateFCmpOLT(x, y);
    if (is_signed(acc_)) return max ? c_.b.CreateICmpSGT(x, y) : c_.b.CreateICmpSLT(x, y);
    return max ? c_.b.CreateICmpUGT(x, y) : c_.b.CreateICmpULT(x, y);
  }

  void lanes(Partial &p) {
    uint32_t mask = exchange_.axis.lane;
    if (mask == 0) return;
    if (is_bool(acc_) && !with_index_ && vote(p)) return;
    if (mask == 31 && !with_index_ && acc_is_word() && redux(p)) return;
    for (uint32_t left = mask; left; left &= left - 1) {
      Value *bit = c_.i32(left & -left);
      Partial other{nvvm::shfl_sync_bfly(c_.b, p.value, bit), nullptr};
      if (with_index_) other.index = nvvm::shfl_sync_bfly(c_.b, p.index, bit);
      p = merge(p, other);
    }
  }

  // Any and all of bools: one ballot, of which each lane looks at the lanes that differ along the axis only.
  bool vote(Partial &p) {
    bool any = kind_ == Combine::Any || kind_ == Combine::Max;
    if (!any && kind_ != Combine::All && kind_ != Combine::Min) return false;
    uint32_t mask = exchange_.axis.lane, group = 0;
    if (mask == 31) {
      p.value = any ? nvvm::vote_sync_any(c_.b, p.value) : nvvm::vote_sync_all(c_.b, p.value);
      return true;
    }
    for (uint32_t l = 0; l < 32; l++)
      if (!(l & ~mask)) group |= 1u << l;
    Value *ballot = nvvm::vote_sync_ballot(c_.b, p.value);
    Value *first = c_.b.CreateAnd(c_.lane(), c_.i32(31 & ~mask));
    Value *seen = c_.b.CreateAnd(c_.b.CreateLShr(ballot, first), c_.i32(group));
    p.value = any ? c_.b.CreateICmpNE(seen, c_.i32(0)) : c_.b.CreateICmpEQ(seen, c_.i32(group));
    return true;
  }

  bool acc_is_word() const { return is_integer(acc_) && dtype_bits(acc_) == 32; }
  bool redux(Partial &p) {
    auto with = [&](nvvm::Redux r) {
      p.value = nvvm::redux_sync(c_.b, r, p.value);
      return true;
    };
    switch (kind_) {
    case Combine::Sum: return with(nvvm::Redux::AddS32);
    case Combine::Max: return with(is_signed(acc_) ? nvvm::Redux::MaxS32 : nvvm::Redux::MaxU32);
    case Combine::Min: return with(is_signed(acc_) ? nvvm::Redux::MinS32 : nvvm::Redux::MinU32);
    case Combine::Any: return with(nvvm::Redux::Or);
    case Combine::All: return with(nvvm::Redux::And);
    case Combine::Prod: return false;
    }
    return false;
  }

  // Every warp stores its partial results and combines those of all warps along the axis in the order of their numbers.
  void warps(std::vector<Partial> &result) {
    const PackedThreads &t = exchange_.threads;
    int64_t at = op_.attrs.i("scratch_offset"), slot = scratch_bytes(acc_);
    auto count = int64_t(exchange_.result_regs.size());
    int64_t indices = at + slot * count * t.count;
    Value *store = bits_clear(c_, t.lane_skip, t.warp_skip);
    Value *mine = c_.linear(t.lane, t.warp);
    for (int64_t i = 0; i < count; i++) {
      const Partial &p = result[size_t(exchange_.result_regs[size_t(i)])];
      store_slot(c_, shared_address(c_, at + i * t.count * slot, mine, slot), p.value, store);
      if (with_index_) store_slot(c_, shared_address(c_, indices + i * t.count * 4, mine, 4), p.index, store);
    }
    c_.role_barrier();
    uint32_t axis_warps = exchange_.axis.warp;
    int64_t ways = int64_t(1) << std::popcount(axis_warps);
    bool once = !with_index_ && count * ways >= kCombineOnce;
    if (once) combine_once(at, slot, count * t.count / ways, ways);
    std::vector<uint32_t> own = t.warp;
    for (size_t i = 0; i < own.size(); i++)
      if (axis_warps >> i & 1) own[i] = 0;
    Value *group = c_.linear(t.lane, own);
    for (int64_t i = 0; i < count; i++) {
      if (once) {
        Value *total = load_slot(c_, shared_address(c_, at + i * t.count * slot, group, slot), c_.type(acc_));
        result[size_t(exchange_.result_regs[size_t(i)])] = {total, nullptr};
        continue;
      }
      std::vector<Value *> values = side_by_side(at + i * t.count * slot, group, slot, slot, c_.type(acc_), ways),
                           positions;
      if (with_index_) positions = side_by_side(indices + i * t.count * 4, group, 4, 4, c_.b.getInt32Ty(), ways);
      Partial sum;
      for (size_t w = 0; w < size_t(ways); w++) {
        Partial p{values[w], with_index_ ? positions[w] : nullptr};
        sum = w ? merge(sum, p) : p;
      }
      result[size_t(exchange_.result_regs[size_t(i)])] = sum;
    }
  }

  // Of many elements each is combined by one thread, which leaves it in the first of their `ways` slots.
  void combine_once(int64_t at, int64_t slot, int64_t elements, int64_t ways) {
    int64_t threads = 32 * c_.function.warps;
    Value *thread = thread_number();
    for (int64_t first = 0; first < elements; first += threads) {
      Value *element = c_.b.CreateAdd(thread, c_.i32(first));
      Value *mine = first + threads <= elements ? nullptr : c_.b.CreateICmpULT(element, c_.i32(elements));
      Partial sum;
      for (Value *v : side_by_side(at, element, slot * ways, slot, c_.type(acc_), ways, mine))
        sum = sum.value ? merge(sum, {v, nullptr}) : Partial{v, nullptr};
      store_slot(c_, shared_address(c_, at, element, slot * ways), sum.value, mine);
    }
    c_.role_barrier();
  }
  // Of this thread among those of the block's compute warps.
  Value *thread_number() {
    std::vector<uint32_t> lane, warp;
    for (int i = 0; i < lane_bits; i++) lane.push_back(1u << i);
    for (int i = 0; i < log2_ceil(c_.function.warps); i++) warp.push_back(32u << i);
    return c_.linear(lane, warp);
  }

  // `n` slots from index * scale on, of the scratch at `at`.
  std::vector<Value *> side_by_side(int64_t at, Value *index, int64_t scale, int64_t slot, llvm::Type *type, int64_t n,
                                    Value *predicate = nullptr) {
    std::vector<Value *> out;
    int64_t step = std::min(n, 16 / slot);
    for (int64_t w = 0; w < n; w += step)
      load_slots(c_, shared_address(c_, at + w * slot, index, scale), type, step, out, predicate);
    return out;
  }

  LowerCtx &c_;
  const Op &op_;
  Combine kind_;
  bool with_index_;
  int64_t axis_;
  RegLayout layout_;
  DType from_, acc_;
  ReduceExchange exchange_;
};

} // namespace

void lower_ReduceSum(LowerCtx &c, const Op &op) { Reduction(c, op, Combine::Sum, false).run(); }
void lower_ReduceProd(LowerCtx &c, const Op &op) { Reduction(c, op, Combine::Prod, false).run(); }
void lower_ReduceMax(LowerCtx &c, const Op &op) { Reduction(c, op, Combine::Max, false).run(); }
void lower_ReduceMin(LowerCtx &c, const Op &op) { Reduction(c, op, Combine::Min, false).run(); }
void lower_ReduceAny(LowerCtx &c, const Op &op) { Reduction(c, op, Combine::Any, false).run(); }
void lower_ReduceAll(LowerCtx &c, const Op &op) { Reduction(c, op, Combine::All, false).run(); }
void lower_ArgMax(LowerCtx &c, const Op &op) { Reduction(c, op, Combine::Max, true).run(); }
void lower_ArgMin(LowerCtx &c, const Op &op) { Reduction(c, op, Combine::Min, true).run(); }

} // namespace tkc::ops
