#include "ops/global_copies.h"
#include "ops/lowering.h"
#include "ops/ring_slots.h"
#include "support/check.h"
#include <bit>

namespace tkc::ops {

using namespace codegen;
using ir::Op;
using llvm::Value;

void lower_RingAcquire(LowerCtx &c, const Op &op) {
  Ring ring(op.operand(0));
  Value *counter = c.scalar(op.operand(1));
  // The phase before: its parity is the other one. A fresh barrier counts as one whose phase of parity 1 is over.
  Value *parity = c.b.CreateXor(ring.parity(c, counter), c.i32(1));
  nvvm::mbarrier_wait_parity(c.b, ring.empty(c, counter), parity, c.target);
}

void lower_RingFill(LowerCtx &c, const Op &op) {
  size_t at = ir::ring_operand(op);
  Ring ring(op.operand(at));
  int64_t field = op.attrs.i("field");
  if (ring.tensor_copies(c)) { // the ring_publish starts them
    SharedPlace place = ring.place(c, c.scalar(op.operand(at + 1)), field);
    c.started[&ring.op].push_back([&c, &op, place, smem = &ring.smem(field)](Value *barrier) {
      if (op.attrs.has("box"))
        each_box(c, op, *smem, place, [&](Value *shared, std::span<Value *const> at) {
          nvvm::cp_async_bulk_tensor_g2s(c.b, shared, c.tensor_map(op), at, barrier);
        });
      else
        nvvm::cp_async_bulk_g2s(c.b, shared_address(c, place.offset, place.slot), row_address(c, op, nullptr),
                                op.attrs.i("bulk"), barrier);
    });
    return;
  }
  Value *enabled = c.scalar(op.operand(at + 2));
  if (auto *k = llvm::dyn_cast<llvm::ConstantInt>(enabled)) {
    if (k->isZero()) return;
    enabled = nullptr;
  }
  std::vector<const ir::Value *> readers;
  ir::walk(c.function.body, [&](const Op *o) {
    if (o->kind == ir::OpKind::RingLoad && o->operand(0)->op == &ring.op && o->attrs.i("field") == field &&
        !o->attrs.has("smem")) // parts of a record have no padding
      readers.push_back(o->result());
  });
  SharedPlace place = ring.place(c, c.scalar(op.operand(at + 1)), field);
  if (!thread_copies(c, op, ring.smem(field), place, readers, enabled)) c.plain_fills.insert(&ring.op);
}

void lower_RingStore(LowerCtx &c, const Op &op) {
  Ring ring(op.operand(0));
  int64_t field = op.attrs.i("field");
  const ir::Value *x = op.operand(2);
  // The padding too, or a read in another layout meets bytes that were never written.
  RegLayout whole = c.layout(x);
  SmemLayout smem = ring.smem(field);
  for (int64_t &n : whole.shape) n = int64_t(std::bit_ceil(uint64_t(n)));
  smem.shape = whole.shape.to_vector();
  SmemSide side = plan_smem_store(whole, smem, ir::layout_features(c.target));
  store_side(c, side, ring.place(c, c.scalar(op.operand(1)), field), 0, x);
}

void lower_RingPublish(LowerCtx &c, const Op &op) {
  Ring ring(op.operand(0));
  if (!ring.mbarriers(c)) return nvvm::cp_async_commit_group(c.b);
  Value *full = ring.full(c, c.scalar(op.operand(1)));
  ir::RingSides sides = ir::ring_sides(ring.op);
  if (sides.stores) {
    nvvm::bar_warp_sync(c.b); // every lane has stored
    if_first(c, c.lane(), [&] { nvvm::mbarrier_arrive(c.b, full); });
    if (!sides.copies) return;
  }
  if (ring.tensor_copies(c)) {
    Value *starts = op.operands.size() > 2 ? c.scalar(op.operand(2)) : nullptr;
    if (c.role_warps() > 1) starts = both(c, starts, c.b.CreateICmpEQ(c.warp(), c.i32(0)));
    std::vector<std::function<void(Value *)>> copies = std::move(c.started[&ring.op]);
    c.started.erase(&ring.op);
    where(c, both(c, starts, nvvm::elect_sync(c.b)), [&] {
      nvvm::mbarrier_arrive_expect_tx(c.b, full, op.attrs.i("tx_bytes"));
      for (const auto &start : copies) start(full);
    });
    return;
  }
  if (c.plain_fills.count(&ring.op)) { // plain stores are released by an arrival of the thread itself
    nvvm::cp_async_wait_all(c.b);
    nvvm::mbarrier_arrive(c.b, full);
  } else {
    nvvm::cp_async_mbarrier_arrive_noinc(c.b, full);
  }
}

void lower_RingTest(LowerCtx &c, const Op &op) {
  Ring ring(op.operand(0));
  Value *counter = c.scalar(op.operand(1));
  c.set(op.result(), {nvvm::mbarrier_test_parity(c.b, ring.full(c, counter), ring.parity(c, counter))});
}

void lower_RingWait(LowerCtx &c, const Op &op) {
  Ring ring(op.operand(0));
  if (ring.mbarriers(c)) {
    Value *counter = c.scalar(op.operand(1));
    auto wait = [&] { nvvm::mbarrier_wait_parity(c.b, ring.full(c, counter), ring.parity(c, counter), c.target); };
    if (op.operands.size() > 2)
      where(c, c.b.CreateNot(c.scalar(op.operand(2))), wait);
    else
      wait();
  } else {
    nvvm::cp_async_wait_group(c.b, op.attrs.i("pending"));
  }
  if (!ir::has_producer(ring.op)) c.role_barrier();
}

void lower_RingRelease(LowerCtx &c, const Op &op) {
  Ring ring(op.operand(0));
  if (!ir::has_producer(ring.op)) return;
  nvvm::bar_warp_sync(c.b); // every lane has read
  Value *empty = ring.empty(c, c.scalar(op.operand(1)));
  if_first(c, c.lane(), [&] { nvvm::mbarrier_arrive(c.b, empty); });
}

void lower_RingLoad(LowerCtx &c, const Op &op) {
  Ring ring(op.operand(0));
  int64_t field = op.attrs.i("field");
  const ir::Value *result = op.result();
  const RegLayout &l = c.layout(result);
  SmemSide side = plan_smem_load(l, ir::ring_load_layout(op), ir::layout_features(c.target));
  Regs regs(size_t(l.num_regs()), nullptr);
  SharedPlace place = ring.place(c, c.scalar(op.operand(1)), field);
  place.offset += ir::ring_load_offset(op);
  load_side(c, side, place, 0, result->type.dtype, regs);
  for (auto [to, from] : side.copies) regs[size_t(to)] = regs[size_t(from)];
  c.set(result, std::move(regs));
}

} // namespace tkc::ops
