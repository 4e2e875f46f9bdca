#include "ops/scratch.h"
#include "ir/product.h"
#include "layout/pieces.h"
#include "support/check.h"
#include <algorithm>
#include <bit>

namespace tkc::ops {

using ir::Op;
using ir::OpKind;

DType accumulator(DType t) { return t == DType::F16 || t == DType::BF16 ? DType::F32 : t; }

int64_t scratch_bytes(DType t) { return std::max<int64_t>(4, dtype_bytes(accumulator(t))); }

namespace {
uint32_t zero_bits(const Basis &part) {
  uint32_t mask = 0;
  for (size_t i = 0; i < part.size(); i++) mask |= uint32_t(part[i] == 0) << i;
  return mask;
}
} // namespace

PackedThreads pack_threads(const RegLayout &l, uint32_t lane_skip, uint32_t warp_skip, uint32_t warp_first) {
  PackedThreads out;
  out.lane_skip = lane_skip, out.warp_skip = warp_skip;
  out.lane.resize(l.lane.size()), out.warp.resize(l.warp.size());
  auto number = [&](std::vector<uint32_t> &bits, uint32_t taken) {
    for (size_t i = 0; i < bits.size(); i++)
      if (taken >> i & 1) bits[i] = uint32_t(std::exchange(out.count, out.count * 2));
  };
  number(out.warp, warp_first & ~warp_skip);
  number(out.lane, ~lane_skip);
  number(out.warp, ~warp_first & ~warp_skip);
  return out;
}

ReduceExchange reduce_exchange(const RegLayout &operand, int64_t axis) {
  ReduceExchange out;
  out.axis = operand.axis_bits(int(axis));
  out.threads = pack_threads(operand, out.axis.lane | zero_bits(operand.lane), zero_bits(operand.warp), out.axis.warp);
  for (int r : operand.live_regs()) out.result_regs.push_back(operand.sliced_reg(int(axis), r));
  std::sort(out.result_regs.begin(), out.result_regs.end());
  out.result_regs.erase(std::unique(out.result_regs.begin(), out.result_regs.end()), out.result_regs.end());
  return out;
}

int64_t reduce_scratch(const Op &op) {
  const ir::Value *x = op.operand(0);
  if (!x->layout) return 0;
  ReduceExchange e = reduce_exchange(*x->layout, op.attrs.i("axis"));
  if (e.axis.warp == 0) return 0;
  int64_t slot = scratch_bytes(x->type.dtype);
  if (op.kind == OpKind::ArgMax || op.kind == OpKind::ArgMin)
    slot += 4; // the index
  else
    slot = std::max(slot, scratch_bytes(op.result()->type.dtype));
  return slot * int64_t(e.result_regs.size()) * e.threads.count;
}

std::optional<std::vector<ScanBit>> scan_bits(const RegLayout &l, int64_t axis) {
  if (!bit_by_bit(l, int(axis))) return std::nullopt;
  TileSpace s = l.space();
  uint32_t mask = s.mask(int(axis));
  std::vector<ScanBit> found(size_t(s.log2[size_t(axis)]));
  auto visit = [&](const Basis &part, ScanBit::Kind kind) {
    for (size_t i = 0; i < part.size(); i++)
      if (part[i] & mask) found[size_t(std::countr_zero(part[i]) - s.shift[size_t(axis)])] = ScanBit{kind, int(i)};
  };
  visit(l.reg, ScanBit::Register), visit(l.lane, ScanBit::Lane), visit(l.warp, ScanBit::Warp);
  return found;
}

std::vector<ScanExchange> scan_exchanges(const RegLayout &l, const std::vector<ScanBit> &bits) {
  std::vector<ScanExchange> out;
  uint32_t reg_skip = zero_bits(l.reg), lane_skip = zero_bits(l.lane);
  for (size_t i = 0; i < bits.size(); i++) {
    if (bits[i].kind == ScanBit::Register) reg_skip |= 1u << bits[i].index;
    if (bits[i].kind == ScanBit::Lane) lane_skip |= 1u << bits[i].index;
    if (bits[i].kind != ScanBit::Warp) continue;
    if (!out.empty() && out.back().first + out.back().count == i) {
      out.back().count++;
      continue;
    }
    ScanExchange e;
    e.first = i, e.count = 1;
    for (int r : l.live_regs())
      if (!(uint32_t(r) & reg_skip)) e.registers.push_back(r);
    e.threads = pack_threads(l, lane_skip, zero_bits(l.warp));
    out.push_back(std::move(e));
  }
  return out;
}

int64_t scan_scratch(const Op &op) {
  const ir::Value *x = op.operand(0);
  if (!x->layout) return 0;
  auto bits = scan_bits(*x->layout, op.attrs.i("axis"));
  if (!bits) return 0; // the layout is not one for scans (yet)
  int64_t bytes = 0;
  for (const ScanExchange &e : scan_exchanges(*x->layout, *bits))
    bytes += scratch_bytes(x->type.dtype) * int64_t(e.registers.size()) * e.threads.count;
  return bytes;
}

std::optional<MmaPlan> mma_plan(const Op &op) {
  const ir::Value *a = op.operand(0), *b = op.operand(1), *c = op.result();
  if (!a->layout || !b->layout || !c->layout || !op.attrs.has("shape")) return std::nullopt;
  MmaPlan plan;
  plan.transposed = op.attrs.i_or("transposed", 0) != 0;
  DType ta = a->type.dtype == DType::F32 ? DType::TF32 : a->type.dtype;
  DType tb = b->type.dtype == DType::F32 ? DType::TF32 : b->type.dtype;
  plan.a_type = plan.transposed ? tb : ta;
  plan.b_type = plan.transposed ? ta : tb;
  plan.shape = find_mma_shape(op.attrs.s("shape"), plan.a_type);
  if (!plan.shape) return std::nullopt;
  WarpTiling tiling = ir::warp_tiling(op);
  int64_t m = a->type.shape[0], k = a->type.shape[1], n = b->type.shape[1];
  plan.steps = mma_steps(*plan.shape, m, n, k, tiling, plan.transposed, *a->layout, *b->layout, *c->layout);
  if (plan.steps.k_warp_mask)
    for (int r : c->layout->live_regs())
      if (!(uint32_t(r) & zero_bits(c->layout->reg))) plan.exchanged.push_back(r);
  return plan;
}

int64_t mma_scratch(const Op &op) {
  if (!op.attrs.has("tiling") || op.attrs.ints("tiling")[2] == 1) return 0;
  auto plan = mma_plan(op);
  if (!plan || plan->exchanged.empty()) return 0;
  int64_t slot = scratch_bytes(op.result()->type.dtype), per_access = 16 / slot;
  int64_t accesses = (int64_t(plan->exchanged.size()) + per_access - 1) / per_access;
  return op.result()->layout->num_warps() * accesses * 32 * 16;
}

int64_t reshape_scratch(const Op &op) {
  const ir::Value *x = op.operand(0), *y = op.result();
  if (!x->layout || !y->layout || x->layout->reshape(y->type.shape) == *y->layout ||
      y->layout->reshape(x->type.shape) == *x->layout)
    return 0;
  int64_t elements = 1;
  for (int64_t n : x->type.shape) elements *= n;
  return elements * scratch_bytes(x->type.dtype);
}

bool result_used(const Op &op) {
  bool used = false;
  ir::walk(op.block->function->body, [&](const Op *user) {
    for (const ir::Value *x : user->operands) used |= x == op.result();
  });
  return used;
}

int64_t atomic_scratch(const Op &op) {
  const ir::Value *old = op.result();
  if (!result_used(op)) return 0;
  if (!old->layout) return old->type.is_scalar() ? scratch_bytes(old->type.dtype) : 0;
  BitMasks free = old->layout->free_bits();
  if (!free.warp) return 0;
  int64_t regs = 0;
  for (int r : old->layout->live_regs()) regs += (uint32_t(r) & free.reg) == 0;
  return regs * scratch_bytes(old->type.dtype) * pack_threads(*old->layout, free.lane, free.warp).count;
}

} // namespace tkc::ops
