// Work of ops under a layout: estimates that rank layouts.
//
// Numbers: issue of one instruction per cycle and sub-core; special functions at lower rates; shared memory and
// conversions as the layout library counts them; products from the part's mma rate (targets.def) and the latency of
// dependent ones; global memory by the 32-byte sectors that a warp touches, which is what uncoalesced access costs.
#include "ir/op_def.h"
#include "layout/convert.h"
#include "layout/global_access.h"
#include "passes/layout_choice.h"
#include "passes/remake.h"
#include <algorithm>
#include <cmath>

namespace tkc::passes {

using ir::Op;
using ir::OpKind;

namespace {
// Cycles from an m16n8k16 product to one that adds to its result (measured on an H200; the other parts are taken to be
// alike).
constexpr double kMmaLatency = 25;
} // namespace

LayoutCost::LayoutCost(const ir::Target &target, const ir::Part &part, int64_t warps)
    : part_(part), warps_(warps), target_(target), planner_(ir::layout_features(target)) {}

Work &Work::operator+=(const Work &w) {
  serial += w.serial, issue += w.issue, tensor += w.tensor, shared += w.shared, global += w.global;
  return *this;
}

double Work::cycles() const {
  double longest = std::max({recurrence, issue, tensor, shared, global});
  return longest + 0.25 * serial + 0.1 * (issue + tensor + shared + global - longest + recurrence);
}

Work LayoutCost::pointwise(const Op &op, const RegLayout &l) const {
  double each = 1;
  switch (op.kind) {
  case OpKind::Constant:
  case OpKind::Broadcast:
  case OpKind::ExpandDims: return {}; // names for registers that exist
  case OpKind::Exp:
  case OpKind::Exp2:
  case OpKind::Log:
  case OpKind::Log2:
  case OpKind::Sqrt:
  case OpKind::Rsqrt:
  case OpKind::Rcp:
  case OpKind::Sin:
  case OpKind::Cos:
  case OpKind::Tanh:
  case OpKind::Sigmoid:
  case OpKind::Div: each = 10; break; // the special function unit gives 4 lanes a cycle
  default: break;
  }
  double slots = each * double(l.num_regs());
  return {.serial = slots, .issue = slots * per_core()};
}

int64_t access_vector(const Op &op, DType t, int64_t max_bytes) {
  const ir::Value *tensor = op.operand(0);
  const auto &sizes = op.attrs.ints("sizes"), &drop = op.attrs.ints("drop"), &gather = op.attrs.ints("gather");
  int64_t last = int64_t(sizes.size()) - 1;
  if (last < 0 || drop[size_t(last)] || gather[size_t(last)]) return 1;
  int64_t vec = max_bytes / dtype_bytes(t);
  if (op.attrs.has("divisor"))
    while (vec > 1 && op.attrs.ints("divisor")[size_t(last)] % vec) vec /= 2;
  int64_t extent = tensor->type.shape[size_t(last)];
  if (extent != ir::kDynamic)
    while (vec > 1 && extent % vec) vec /= 2;
  while (vec > 1 && sizes[size_t(last)] % vec) vec /= 2;
  return vec;
}

int64_t LayoutCost::vector_elements(const Op &op, DType t) const {
  return access_vector(op, t, target_.has(ir::kWideGlobal) ? 32 : 16);
}

RegLayout default_layout(const ir::Type &t, int64_t warps) {
  std::vector<int> order;
  for (int d = int(t.rank()) - 1; d >= 0; d--) order.push_back(d);
  int64_t inner = t.shape.empty() ? 1 : t.shape.back();
  int64_t vec = std::max<int64_t>(1, std::min<int64_t>(16 / dtype_bytes(t.dtype), int64_t(1) << log2_ceil(inner)));
  while (vec > 1 && inner % vec) vec /= 2;
  return blocked(t.shape, order, vec, warps);
}

RegLayout access_layout(const Op &op, DType t, const LayoutCost &cost, int64_t warps) {
  const auto &sizes = op.attrs.ints("sizes"), &drop = op.attrs.ints("drop");
  std::vector<int64_t> shape;
  for (size_t d = 0; d < sizes.size(); d++)
    if (!drop[d]) shape.push_back(sizes[d]);
  std::vector<int> order;
  for (int d = int(shape.size()) - 1; d >= 0; d--) order.push_back(d);
  int64_t vec = cost.vector_elements(op, t), total = 1;
  for (int64_t n : shape) total *= int64_t(1) << log2_ceil(n);
  // No wider than what leaves work for every thread: replicated lanes are idle lanes.
  while (vec > 1 && total / vec < warps * 32) vec /= 2;
  return blocked(shape, order, vec, warps);
}

RegLayout within_warps(const RegLayout &like, const RegLayout &from) {
  RegLayout out;
  out.shape = from.shape;
  out.warp = from.warp;
  uint32_t taken = 0;
  for (uint32_t v : from.warp) {
    if (v & (v - 1)) return from; // a warp bit that moves several coordinates: leave it
    taken |= v;
  }
  std::vector<uint32_t> rest; // coordinate bits left, in the order in which `like` deals them out
  for (const auto *part : {&like.reg, &like.lane, &like.warp})
    for (uint32_t v : *part)
      if (v && !(v & taken)) rest.push_back(v), taken |= v;
  TileSpace space = from.space();
  for (int b = 0; b < space.bits; b++)
    if (!(taken >> b & 1)) rest.push_back(1u << b), taken |= 1u << b;
  // As many registers first as `like` has in its vector, then the lanes, then what is left in registers.
  size_t vector = 0;
  while (vector < like.reg.size() && vector < rest.size() && like.reg[vector] == rest[vector] && vector < 4 &&
         like.reg[vector] == like.reg[0] << vector)
    vector++;
  while (vector > 0 && rest.size() < vector + size_t(lane_bits)) vector--;
  size_t i = 0;
  for (; i < vector; i++) out.reg.push_back(rest[i]);
  for (int l = 0; l < lane_bits; l++) out.lane.push_back(i < rest.size() ? rest[i++] : 0);
  for (; i < rest.size(); i++) out.reg.push_back(rest[i]);
  return out;
}

bool is_scan(const Op &op) {
  return op.kind == OpKind::CumSum || op.kind == OpKind::CumProd || op.kind == OpKind::CumMax ||
         op.kind == OpKind::CumMin;
}

RegLayout scan_layout(const Op &op, int64_t warps) {
  const ir::Type &t = op.operand(0)->type;
  int axis = int(op.attrs.i("axis"));
  std::vector<int> order = {axis};
  for (int d = int(t.rank()) - 1; d >= 0; d--)
    if (d != axis) order.push_back(d);
  int64_t n = int64_t(1) << log2_ceil(t.shape[size_t(axis)]);
  return blocked(t.shape, order, std::max<int64_t>(1, std::min<int64_t>(n, std::max<int64_t>(4, n / 32))), warps);
}

Work LayoutCost::access(const Op &op, const RegLayout &l, DType t, bool store) {
  auto [it, fresh] = accesses_[&op].try_emplace(l);
  if (fresh) it->second = access_work(op, l, t, store);
  return it->second;
}

Work LayoutCost::access_work(const Op &op, const RegLayout &l, DType t, bool store) const {
  const auto &drop = op.attrs.ints("drop");
  bool contiguous = !drop.empty() && !drop.back() && !op.attrs.ints("gather").back();
  int dim = contiguous ? int(l.shape.size()) - 1 : -1;
  int64_t vec = vector_elements(op, t), bytes = dtype_bytes(t);
  GlobalAccesses plan = plan_global(l, store, dim, bytes, vec, target_.has(ir::kWideGlobal) ? 32 : 16);
  auto count = double(plan.accesses.size());
  // 4 slots an access with its address; two sectors a cycle between the SM and L2.
  double sectors = count * double(std::max<int64_t>(1, plan.sectors));
  return {.serial = count * 4, .issue = count * 4 * per_core(), .global = sectors * double(warps_) * 0.5};
}

const SmemCost &LayoutCost::ring_read(const RegLayout &to, int64_t bytes) {
  auto [it, fresh] = ring_reads_[bytes].try_emplace(to);
  if (fresh) {
    LayoutFeatures features = ir::layout_features(target_);
    SmemUse use{false, to, 1};
    it->second = smem_load_cost(
        to, choose_smem_layout(to.shape.to_vector(), bytes, {&use, 1}, SmemForm::Swizzle, features), features);
  }
  return it->second;
}

Work LayoutCost::staged(const RegLayout &coalesced, const RegLayout &to, DType t, bool ring) {
  if (coalesced == to) return {};
  const ConversionPlan &plan = planner_.plan(coalesced, to, dtype_bytes(t) * 8);
  if (plan.kind != ConvertKind::Shared) return conversion(coalesced, to, t);
  // Its address does not depend on the loop's values, so the read is issued early enough to hide its latency.
  Work w;
  if (ring) {
    w = item(to, t);
  } else {
    const SmemSide &load = plan.shared.load;
    double slots = double(load.accesses.size()) + double(load.packs) * costs_.pack;
    w = {.serial = slots,
         .issue = slots * per_core(),
         .shared = double(warps_) * double(load.wavefronts) * costs_.wavefront};
  }
  // The copy writes rows of 16 bytes a lane: its wavefronts are those of the bytes.
  double written = double(coalesced.num_regs() * dtype_bytes(t)) * 32 / 128 * costs_.wavefront;
  w.shared += double(warps_) * written;
  return w;
}

Work LayoutCost::item(const RegLayout &to, DType t) {
  const SmemCost &read = ring_read(to, dtype_bytes(t));
  double slots = double(read.accesses) * (read.width < 4 ? 1 + costs_.pack : 1);
  return {.serial = slots,
          .issue = slots * per_core(),
          .shared = double(warps_) * double(read.wavefronts) * costs_.wavefront};
}

bool LayoutCost::through_shared(const RegLayout &from, const RegLayout &to, DType t) {
  return !(from == to) && planner_.plan(from, to, dtype_bytes(t) * 8).kind == ConvertKind::Shared;
}

Work LayoutCost::reduce(const Op &op, const RegLayout &operand) const {
  BitMasks m = operand.axis_bits(int(op.attrs.i("axis")));
  auto regs = double(operand.num_regs());
  auto results = double(operand.num_regs() >> __builtin_popcount(m.reg));
  double steps = __builtin_popcount(m.lane), shuffles = results * steps;
  Work w{.serial = regs + steps * costs_.shuffle_latency + shuffles * 2,
         .issue = (regs + shuffles * 2) * per_core(),
         .shared = shuffles * costs_.shuffle * double(warps_)};
  if (m.warp) w += exchange(int64_t(results), int64_t(1) << __builtin_popcount(m.warp));
  return w;
}

// Bit by bit of the coordinate, as ops/scan_lower.cpp goes: a register bit is an addition for half of the elements and
// halves the totals; a lane bit a shuffle, a selection and an addition for each total, and an addition for every
// element; warp bits an exchange of totals.
Work LayoutCost::scan(const ir::Op &op, const RegLayout &l) const {
  TileSpace s = l.space();
  auto axis = size_t(op.attrs.i("axis"));
  auto holds = [&](const Basis &part, int bit) {
    return std::find(part.begin(), part.end(), 1u << (s.shift[axis] + bit)) != part.end();
  };
  auto elements = double(l.num_regs()), totals = elements;
  double slots = 0, shuffles = 0, steps = 0;
  int64_t sharers = 1;
  for (int bit = 0; bit < s.log2[axis]; bit++) {
    if (holds(l.reg, bit)) {
      totals /= 2;
      slots += elements / 2 + totals;
    } else if (holds(l.lane, bit)) {
      slots += 3 * totals + elements;
      shuffles += totals;
      steps++;
    } else {
      sharers *= 2;
    }
  }
  Work w{.serial = slots + steps * costs_.shuffle_latency,
         .issue = slots * per_core(),
         .shared = shuffles * costs_.shuffle * double(warps_)};
  if (sharers > 1) w += exchange(int64_t(totals), sharers);
  return w;
}

// Each warp writes its registers and reads those of the others. Measured on an H200, four warps of which two share a
// sum: 121 cycles for 8 registers, 180 for 16; so the shared-memory pipe is the limit, after 60 cycles of latency.
Work LayoutCost::exchange(int64_t registers, int64_t sharers) const {
  auto n = double(registers), ways = double(sharers);
  double pipe = n * double(warps_) * ways;
  return {.serial = 60 + pipe, .issue = n * (ways + 0.25 * ways) * per_core(), .shared = pipe};
}

const LayoutCost::Product &LayoutCost::product(const Op &op, const MmaConfig &c) {
  auto [it, fresh] = products_.try_emplace({&op, c.key()});
  Product &p = it->second;
  if (!fresh) return p;
  const std::vector<int64_t> &a = op.operand(0)->type.shape, &b = op.operand(1)->type.shape;
  if (c.shape) {
    p.a = mma_operand_layout(*c.shape, Role::A, a, c.tiling, c.transposed);
    p.b = mma_operand_layout(*c.shape, Role::B, b, c.tiling, c.transposed);
    p.acc = mma_operand_layout(*c.shape, Role::C, op.result()->type.shape, c.tiling, c.transposed);
  } else {
    // Without tensor cores: the accumulator is spread over the threads, each holds its rows of A and columns of B.
    p.acc = default_layout(op.result()->type, warps_);
    p.a = fma_operand_layout(p.acc, false, a);
    p.b = fma_operand_layout(p.acc, true, b);
  }
  p.work = product_work(op, c, p.a, p.b, p.acc);
  return p;
}

Work LayoutCost::product_work(const Op &op, const MmaConfig &c, const RegLayout &a, const RegLayout &b,
                              const RegLayout &acc) const {
  int64_t m = op.operand(0)->type.shape[0], k = op.operand(0)->type.shape[1], n = op.operand(1)->type.shape[1];
  if (!c.shape) {
    double slots = double(acc.num_regs()) * double(k);
    return {.serial = slots, .issue = slots * per_core()};
  }
  MmaSteps steps = mma_steps(*c.shape, m, n, k, c.tiling, c.transposed, a, b, acc);
  double work = double(c.shape->m * c.shape->n * c.shape->k * c.shape->elem_bits) / (16.0 * 8 * 16 * 16);
  auto count = double(steps.steps.size());
  double tensor = count * part_.mma_cycles * work;
  // Dependent accumulation: with few accumulators the latency of each k-step shows.
  double chains = std::max<double>(1, double(acc.num_regs()) / 4);
  Work w{.serial = std::max(tensor, count / chains * kMmaLatency),
         .issue = count * per_core(),
         .tensor = tensor * per_core()};
  if (steps.k_warp_mask) w += exchange(acc.num_regs(), int64_t(1) << __builtin_popcount(steps.k_warp_mask));
  return w;
}

Work LayoutCost::conversion(const ir::Value *v, const RegLayout &from, const RegLayout &to, bool staged,
                            Conversion::How &how) {
  how = Conversion::How::Moved;
  Work best = conversion(from, to, v->type.dtype);
  auto other = [&](const Work &w, Conversion::How way) {
    if (w.cycles() < best.cycles()) best = w, how = way;
  };
  auto [it, fresh] = remake_ops_.try_emplace(v);
  if (fresh) it->second = remake_ops(v);
  if (it->second) {
    double slots = double(it->second) * double(to.num_regs());
    other({.serial = slots, .issue = slots * per_core()}, Conversion::How::Remade);
  }
  if (staged) other(item(to, v->type.dtype), Conversion::How::Reread);
  return best;
}

Work LayoutCost::conversion(const RegLayout &from, const RegLayout &to, DType t) {
  if (from == to) return {};
  const ConversionPlan &plan = planner_.plan(from, to, dtype_bytes(t) * 8);
  Work w{.serial = plan.cycles};
  auto warps = double(warps_);
  switch (plan.kind) {
  case ConvertKind::Identity:
  case ConvertKind::Registers: break;
  case ConvertKind::MovMatrix: {
    auto ops = double(plan.movmatrix.ops.size());
    w.issue = (ops + double(plan.movmatrix.packs) * costs_.pack) * per_core();
    w.shared = ops * costs_.movmatrix * warps;
    break;
  }
  case ConvertKind::Shuffle:
    w.issue = (double(plan.shuffle.shuffles) + double(plan.shuffle.selects) * costs_.select +
               double(plan.shuffle.packs) * costs_.pack) *
              per_core();
    w.shared = double(plan.shuffle.shuffles) * costs_.shuffle * warps;
    break;
  case ConvertKind::Shared: {
    const SharedPlan &s = plan.shared;
    if (!s.warp_sync) w.serial += costs_.block_barrier; // the next writer of the scratch waits for the readers
    w.issue = (double(s.store.accesses.size() + s.load.accesses.size()) +
               double(s.store.packs + s.load.packs) * costs_.pack) *
              per_core();
    w.shared = double(s.store.wavefronts + s.load.wavefronts) * costs_.wavefront * warps;
    break;
  }
  }
  return w;
}

} // namespace tkc::passes
