#include "passes/op_work.h"
#include "ir/op_def.h"
#include "ir/product.h"
#include "ir/residency.h"
#include "ir/ring.h"

namespace tkc::passes {

using ir::Block;
using ir::Op;
using ir::OpKind;
using ir::Value;

Work OpWork::of(const Op &op) {
  const Value *r = op.results.empty() ? nullptr : op.result();
  bool tile = r && r->type.is_tile() && r->layout;
  switch (op.kind) {
  case OpKind::For:
  case OpKind::While:
  case OpKind::If: return nested(op);
  case OpKind::Load: {
    Work w = tile ? cost_.access(op, *r->layout, r->type.dtype, false) : Work{};
    if (is_copied(&op)) w.serial = 0; // nobody waits for its registers
    return w;
  }
  case OpKind::Store:
  case OpKind::AtomicAdd:
  case OpKind::AtomicMax:
  case OpKind::AtomicMin:
  case OpKind::AtomicAnd:
  case OpKind::AtomicOr:
  case OpKind::AtomicXor:
  case OpKind::AtomicExch:
  case OpKind::AtomicCas: {
    const Value *v = op.operand(op.attrs.ints("sizes").size() + 1);
    return cost_.access(op, *v->layout, v->type.dtype, true);
  }
  case OpKind::ReduceSum:
  case OpKind::ReduceProd:
  case OpKind::ReduceMax:
  case OpKind::ReduceMin:
  case OpKind::ReduceAny:
  case OpKind::ReduceAll:
  case OpKind::ArgMax:
  case OpKind::ArgMin: return cost_.reduce(op, *op.operand(0)->layout);
  case OpKind::CumSum:
  case OpKind::CumProd:
  case OpKind::CumMax:
  case OpKind::CumMin: return cost_.scan(op, *op.operand(0)->layout);
  case OpKind::Mma: {
    MmaConfig c;
    c.shape = find_mma_shape(op.attrs.s("shape"), op.operand(0)->type.dtype);
    c.tiling = ir::warp_tiling(op);
    c.transposed = op.attrs.i("transposed") != 0;
    return cost_.product(op, c).work;
  }
  case OpKind::ConvertLayout: return cost_.conversion(*op.operand(0)->layout, *r->layout, r->type.dtype);
  case OpKind::ScratchStore: return {}; // the load's conversion has both
  case OpKind::ScratchLoad: {
    const Value *x = op.operand(0)->op->operand(0);
    if (x->op && is_copied(x->op)) return cost_.item(*r->layout, r->type.dtype);
    return cost_.conversion(*x->layout, *r->layout, r->type.dtype);
  }
  case OpKind::RingLoad:
  case OpKind::RingItem:
  case OpKind::SharedLoad: return cost_.item(*r->layout, r->type.dtype);
  case OpKind::RingStore: return cost_.item(*op.operand(2)->layout, op.operand(2)->type.dtype); // as many as reads
  case OpKind::RingFill: {
    // Four slots for the address and the copy of each 16 bytes of a thread, or one thread's.
    const Op &ring = *ir::ring_of(op);
    auto copies = ir::by_tma(ring) ? 1.0 : double(op.attrs.get<RegLayout>("read").num_regs()) / 8;
    return {.serial = 4 * copies, .issue = 4 * copies * double((warps_ + 3) / 4)};
  }
  case OpKind::RingWait:
  case OpKind::RingAcquire:
  case OpKind::RingTest: {
    double barrier = ir::has_producer(*ir::ring_of(op)) ? 0 : ConvertCosts().block_barrier;
    return {.serial = ConvertCosts().load_latency + barrier, .issue = 4 * double((warps_ + 3) / 4)};
  }
  case OpKind::RingRelease:
  case OpKind::RingPublish: return {.serial = ConvertCosts().warp_sync, .issue = 4 * double((warps_ + 3) / 4)};
  case OpKind::BlockBarrier: return {.serial = ConvertCosts().block_barrier};
  default: break;
  }
  if (!tile || r->type.is_scalar() || ir::def(op).layout.kind == ir::LayoutKind::Structural) return {};
  return cost_.pointwise(op, *r->layout);
}

double OpWork::latency(const Op &op) const { return op.kind == OpKind::Load ? ir::timing(part_).load_latency : 0; }

// Ops of a branch or of a loop inside one after the other.
Work OpWork::nested(const Op &op) {
  Work sum;
  double times = op.kind == OpKind::For ? double(trip_estimate(op)) : op.kind == OpKind::While ? 16 : 1;
  for (const Block *region : op.regions)
    for (const Op *inner : region->ops) {
      Work w = of(*inner);
      w.serial =
          std::max(w.serial, busiest(w)) + (inner->kind == OpKind::Load && !is_copied(inner) ? latency(*inner) : 0);
      for (double *part : {&w.serial, &w.issue, &w.tensor, &w.shared, &w.global}) *part *= times;
      sum += w;
    }
  return sum;
}

} // namespace tkc::passes
