// Scans along one axis, bit by bit of the coordinate: before bit k each element knows the scan within its block of 2^k
// elements and each block its total; the half with the bit set (clear, if reversed) takes in the total of the other
// half, and totals are combined. A register bit costs nothing but arithmetic, a lane bit a shuffle of totals, a run of
// warp bits one exchange of totals through scratch.
#include "ops/accumulate.h"
#include "ops/lowering.h"
#include <map>

namespace tkc::ops {

using namespace codegen;
using ir::Op;
using llvm::Value;

namespace {

class Scan {
public:
  Scan(LowerCtx &c, const Op &op, Combine kind)
      : c_(c), op_(op), kind_(kind), axis_(op.attrs.i("axis")), reverse_(op.attrs.i_or("reverse", 0) != 0),
        exclusive_(op.attrs.i_or("exclusive", 0) != 0), layout_(c.layout(op.operand(0))),
        acc_(accumulator(op.result()->type.dtype)) {}

  void run() {
    auto bits = scan_bits(layout_, axis_);
    TKC_CHECK(bits.has_value(), "a scan along axis {} of layout {}", axis_, layout_.to_string());
    const ir::Value *x = op_.operand(0), *result = op_.result();
    for (int r : layout_.live_regs()) {
      if (representative(layout_, r) != r) continue;
      Value *v = to_accumulator(c_, c_.regs(x)[size_t(r)], x->type.dtype, acc_);
      // Forward, padding lies behind every element; reversed it comes first.
      Value *inside = reverse_ ? inside_predicate(c_, layout_, r, axis_) : nullptr;
      if (inside) v = c_.b.CreateSelect(inside, v, identity(c_, kind_, acc_));
      total_[r] = v;
      scan_[r] = exclusive_ ? nullptr : v;
    }
    std::vector<ScanExchange> exchanges = scan_exchanges(layout_, *bits);
    size_t next = 0;
    int64_t at = exchanges.empty() ? 0 : op_.attrs.i("scratch_offset");
    for (size_t i = 0; i < bits->size();) {
      bool last = i + 1 == bits->size();
      switch ((*bits)[i].kind) {
      case ScanBit::Register: register_bit(1 << (*bits)[i].index), i++; break;
      case ScanBit::Lane: lane_bit(1 << (*bits)[i].index, last), i++; break;
      case ScanBit::Warp: {
        const ScanExchange &e = exchanges[next++];
        warp_bits(*bits, e, at, i + e.count == bits->size());
        at += scratch_bytes(acc_) * int64_t(e.registers.size()) * e.threads.count;
        i += e.count;
        break;
      }
      }
    }
    RegLayout to = c_.layout(result);
    auto map = register_map(layout_, to);
    TKC_CHECK(map.has_value(), "a scan keeps layout {}, not {}", layout_.to_string(), to.to_string());
    Regs regs(size_t(to.num_regs()), nullptr);
    for (int r : to.live_regs()) {
      Value *v = scan_.at(int(representative(layout_, (*map)[size_t(r)])));
      Value *none = identity(c_, kind_, acc_);
      if (!v)
        v = none;
      else if (is_float(acc_) && (kind_ == Combine::Max || kind_ == Combine::Min))
        v = combine(c_, kind_, acc_, v, none); // of NaNs alone
      regs[size_t(r)] = from_accumulator(c_, v, acc_, result->type.dtype);
    }
    c_.set(result, std::move(regs));
  }

private:
  Value *join(Value *a, Value *b) { return a && b ? combine(c_, kind_, acc_, a, b) : a ? a : b; }

  // A register's total is held under the register with all scanned bits clear.
  int owner(int r) const { return r & ~scanned_; }

  void register_bit(int bit) {
    std::map<int, Value *> totals;
    for (auto &[r, v] : scan_) {
      bool takes = ((r & bit) != 0) != reverse_;
      auto from = total_.find(owner(r) ^ bit); // absent: nothing but padding there
      if (takes && from != total_.end()) v = join(from->second, v);
    }
    for (auto &[r, t] : total_)
      if (!(r & bit)) {
        auto high = total_.find(r | bit);
        totals[r] = high == total_.end() ? t : combine(c_, kind_, acc_, t, high->second);
      }
    total_ = std::move(totals);
    scanned_ |= bit;
  }

  void lane_bit(int bit, bool last) {
    Value *high = c_.b.CreateICmpNE(c_.b.CreateAnd(c_.lane(), c_.i32(bit)), c_.i32(0));
    Value *takes = reverse_ ? c_.b.CreateNot(high) : high;
    std::map<int, Value *> carry;
    for (auto &[r, t] : total_) {
      Value *other = nvvm::shfl_sync_bfly(c_.b, t, c_.i32(bit));
      carry[r] = c_.b.CreateSelect(takes, other, identity(c_, kind_, acc_));
      if (!last) t = combine(c_, kind_, acc_, t, other);
    }
    take_in(carry);
  }

  // Adds to each element what its block gets from before it.
  void take_in(const std::map<int, Value *> &carry) {
    for (auto &[r, v] : scan_) v = join(carry.at(owner(r)), v);
  }

  void warp_bits(const std::vector<ScanBit> &bits, const ScanExchange &e, int64_t at, bool last) {
    const PackedThreads &t = e.threads;
    int64_t slot = scratch_bytes(acc_);
    Value *store = bits_clear(c_, t.lane_skip, t.warp_skip), *mine = c_.linear(t.lane, t.warp);
    for (size_t i = 0; i < e.registers.size(); i++)
      store_slot(c_, shared_address(c_, at + int64_t(i) * t.count * slot, mine, slot), total_.at(e.registers[i]),
                 store);
    c_.role_barrier();
    // The warp's position in its group, and where the group's slots lie.
    std::vector<uint32_t> own = t.warp, position(t.warp.size(), 0);
    for (size_t k = 0; k < e.count; k++) {
      auto bit = size_t(bits[e.first + k].index);
      own[bit] = 0, position[bit] = 1u << k;
    }
    std::vector<uint32_t> no_lanes(t.lane.size(), 0);
    Value *group = c_.linear(t.lane, own), *me = c_.linear(no_lanes, position);
    int64_t size = int64_t(1) << e.count;
    std::map<int, Value *> carry;
    for (size_t i = 0; i < e.registers.size(); i++) {
      Value *before = nullptr, *all = nullptr;
      for (int64_t k = 0; k < size; k++) {
        int64_t g = reverse_ ? size - 1 - k : k, other = 0;
        for (size_t b = 0; b < e.count; b++)
          if (g >> b & 1) other |= t.warp[size_t(bits[e.first + b].index)];
        bool edge = k == size - 1; // no warp comes after it
        if (edge && last) break;
        Value *v =
            load_slot(c_, shared_address(c_, at + (int64_t(i) * t.count + other) * slot, group, slot), c_.type(acc_));
        if (!edge) {
          Value *earlier = reverse_ ? c_.b.CreateICmpULT(me, c_.i32(g)) : c_.b.CreateICmpUGT(me, c_.i32(g));
          before = join(before, c_.b.CreateSelect(earlier, v, identity(c_, kind_, acc_)));
        }
        all = join(all, v);
      }
      carry[e.registers[i]] = before;
      if (!last) total_.at(e.registers[i]) = all;
    }
    take_in(carry);
  }

  LowerCtx &c_;
  const Op &op_;
  Combine kind_;
  int64_t axis_;
  bool reverse_, exclusive_;
  RegLayout layout_;
  DType acc_;
  std::map<int, Value *> scan_, total_; // by register; a null scan is the identity
  int scanned_ = 0;                     // register bits
};

} // namespace

void lower_CumSum(LowerCtx &c, const Op &op) { Scan(c, op, Combine::Sum).run(); }
void lower_CumProd(LowerCtx &c, const Op &op) { Scan(c, op, Combine::Prod).run(); }
void lower_CumMax(LowerCtx &c, const Op &op) { Scan(c, op, Combine::Max).run(); }
void lower_CumMin(LowerCtx &c, const Op &op) { Scan(c, op, Combine::Min).run(); }

} // namespace tkc::ops
