// Cycles of ops under a layout: estimates that rank layouts, in cycles of one sub-core for all warps that share it.
//
// Numbers: issue of one instruction per cycle and sub-core; special functions and selects at lower rates; shared memory
// and conversions as the layout library counts them; products from the part's mma rate (targets.def); global memory by
// the 32-byte sectors that a warp touches, which is what uncoalesced access costs.
#include "ir/op_def.h"
#include "layout/convert.h"
#include "layout/global_access.h"
#include "passes/layout_choice.h"
#include <cmath>

namespace tkc::passes {

using ir::Op;
using ir::OpKind;

LayoutCost::LayoutCost(const ir::Target &target, const ir::Part &part, int64_t warps)
    : part_(part), warps_(warps), target_(target), planner_(ir::layout_features(target)) {}

double LayoutCost::pointwise(const Op &op, const RegLayout &l) const {
  double each = 1;
  switch (op.kind) {
  case OpKind::Constant:
  case OpKind::Broadcast:
  case OpKind::ExpandDims: return 0; // names for registers that exist
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
  return each * double(l.num_regs()) * scale();
}

int64_t LayoutCost::vector_elements(const Op &op, DType t) const {
  const ir::Value *tensor = op.operand(0);
  const auto &sizes = op.attrs.ints("sizes"), &drop = op.attrs.ints("drop"), &gather = op.attrs.ints("gather");
  int64_t last = int64_t(sizes.size()) - 1;
  if (last < 0 || drop[size_t(last)] || gather[size_t(last)]) return 1;
  int64_t vec = (target_.has(ir::kWideGlobal) ? 32 : 16) / dtype_bytes(t);
  if (op.attrs.has("divisor"))
    while (vec > 1 && op.attrs.ints("divisor")[size_t(last)] % vec) vec /= 2;
  int64_t extent = tensor->type.shape[size_t(last)];
  if (extent != ir::kDynamic)
    while (vec > 1 && extent % vec) vec /= 2;
  while (vec > 1 && sizes[size_t(last)] % vec) vec /= 2;
  return vec;
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

RegLayout scan_layout(const Op &op, int64_t warps) {
  const ir::Type &t = op.operand(0)->type;
  int axis = int(op.attrs.i("axis"));
  std::vector<int> order = {axis};
  for (int d = int(t.rank()) - 1; d >= 0; d--)
    if (d != axis) order.push_back(d);
  int64_t n = int64_t(1) << log2_ceil(t.shape[size_t(axis)]);
  return blocked(t.shape, order, std::max<int64_t>(1, std::min<int64_t>(n, std::max<int64_t>(4, n / 32))), warps);
}

RegLayout register_axes_layout(const std::vector<int64_t> &shape, const std::vector<bool> &dims, int64_t warps) {
  // The other dims as a blocked tile of their own, then the given dims as registers.
  std::vector<int64_t> rest = shape;
  for (size_t d = 0; d < shape.size(); d++)
    if (dims[d]) rest[d] = 1;
  std::vector<int> order;
  for (int d = int(shape.size()) - 1; d >= 0; d--) order.push_back(d);
  RegLayout small = blocked(rest, order, 1, warps), out;
  TileSpace from = small.space(), to{shape};
  auto move = [&](uint32_t basis) {
    uint32_t e = 0;
    for (int d = 0; d < from.rank; d++) e |= uint32_t(from.coord(basis, d)) << to.shift[size_t(d)];
    return e;
  };
  out.shape = shape;
  for (int d = to.rank - 1; d >= 0; d--)
    if (dims[size_t(d)])
      for (int b = 0; b < to.log2[size_t(d)]; b++) out.reg.push_back(1u << (to.shift[size_t(d)] + b));
  for (uint32_t b : small.reg)
    if (b) out.reg.push_back(move(b));
  for (uint32_t b : small.lane) out.lane.push_back(move(b));
  for (uint32_t b : small.warp) out.warp.push_back(move(b));
  return out;
}

bool in_registers_only(const RegLayout &l, const std::vector<bool> &dims) {
  TileSpace s = l.space();
  for (int d = 0; d < s.rank; d++) {
    if (!dims[size_t(d)]) continue;
    BitMasks m = l.axis_bits(d);
    if (m.lane || m.warp || !l.is_separable(d)) return false;
  }
  return true;
}

double LayoutCost::access(const Op &op, const RegLayout &l, DType t, bool store) const {
  const auto &drop = op.attrs.ints("drop");
  bool contiguous = !drop.empty() && !drop.back() && !op.attrs.ints("gather").back();
  int dim = contiguous ? int(l.shape.size()) - 1 : -1;
  int64_t vec = vector_elements(op, t), bytes = dtype_bytes(t);
  GlobalAccesses plan = plan_global(l, store, dim, bytes, vec, target_.has(ir::kWideGlobal) ? 32 : 16);
  // One warp: 4 cycles to issue, then its sectors through the load/store unit that the four sub-cores share.
  double sectors = double(plan.accesses.size()) * double(std::max<int64_t>(1, plan.sectors));
  return double(plan.accesses.size()) * 4 * scale() + sectors * double(warps_) * 0.5;
}

double LayoutCost::reduce(const Op &op, const RegLayout &operand) const {
  BitMasks m = operand.axis_bits(int(op.attrs.i("axis")));
  double regs = double(operand.num_regs());
  double results = double(operand.num_regs() >> __builtin_popcount(m.reg));
  double cycles = regs * scale() + results * __builtin_popcount(m.lane) * (8 + 2 * scale()) + (m.lane ? 24 : 0);
  if (m.warp) cycles += exchange(int64_t(results));
  return cycles;
}

double LayoutCost::exchange(int64_t registers) const { return double(registers) * 2.5 * double(warps_) / 2 + 75; }

double LayoutCost::product(const Op &op, const MmaConfig &c, const RegLayout &a, const RegLayout &b,
                           const RegLayout &acc) const {
  int64_t m = op.operand(0)->type.shape[0], k = op.operand(0)->type.shape[1], n = op.operand(1)->type.shape[1];
  double registers =
      double(a.num_regs() + b.num_regs()) * double(dtype_bytes(op.operand(0)->type.dtype)) / 4 + double(acc.num_regs());
  double pressure = registers > 200 ? (registers - 200) * 40 : 0; // spills
  if (!c.shape) return double(acc.num_regs()) * double(k) * scale() + pressure;
  MmaSteps steps = mma_steps(*c.shape, m, n, k, c.tiling, c.transposed, a, b, acc);
  double work = double(c.shape->m * c.shape->n * c.shape->k * c.shape->elem_bits) / (16.0 * 8 * 16 * 16);
  double cycles = double(steps.steps.size()) * part_.mma_cycles * work * scale();
  // Dependent accumulation: with few accumulators the latency of each k-step shows (24.9 cycles on an H200).
  double chains = std::max<double>(1, double(acc.num_regs()) / 4);
  cycles = std::max(cycles, double(steps.steps.size()) / chains * 25);
  if (steps.k_warp_mask) cycles += exchange(acc.num_regs());
  return cycles + pressure;
}

double LayoutCost::conversion(const RegLayout &from, const RegLayout &to, DType t) {
  if (from == to) return 0;
  return planner_.plan(from, to, dtype_bytes(t) * 8).cycles;
}

} // namespace tkc::passes
