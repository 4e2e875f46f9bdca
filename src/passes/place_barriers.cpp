// Orders the accesses of different warps to scratch memory.
//
// Walks the function with the byte ranges that were read or written since the last block barrier, and puts a barrier
// before an access that conflicts: a load after a store of its bytes, a store after a load or store of its bytes. Loop
// bodies are walked until the set at their end is known, so that an iteration's store meets the loads of the one
// before. Ops with scratch of their own write, wait and read inside: they leave a pending read. A conversion whose data
// stays in its warp needs only a warp barrier between its store and its load, which is put in as such; between
// different buffers the block barrier is always used. A ring's wait is a barrier too (ops/ring.cpp); a fill that may
// meet reads of the ring's last use gets one before it.
#include "ir/op_def.h"
#include "ir/ring.h"
#include "layout/convert.h"
#include "passes/passes.h"
#include <set>

namespace tkc::passes {

using ir::Op;
using ir::OpKind;

namespace {

struct Access {
  int64_t begin, end;
  bool write;
  const Op *buffer; // the scratch_store, or the op itself
  auto operator<=>(const Access &) const = default;
};
using Pending = std::set<Access>;

class Barriers {
public:
  explicit Barriers(ir::Function &f) : f_(f) {}
  bool run() {
    ir::walk(f_.body, [&](const Op *op) {
      if (op->kind == OpKind::ScratchLoad && !warp_private(op)) crossing_.insert(op->operand(0)->op);
    });
    Pending p;
    block(f_.body, p);
    return changed_;
  }

private:
  Access access(const Op *op) const {
    if (op->kind == OpKind::ScratchStore || op->kind == OpKind::ScratchLoad) {
      const Op *store = op->kind == OpKind::ScratchStore ? op : op->operand(0)->op;
      int64_t at = store->attrs.i("offset");
      return {at, at + store->attrs.get<SmemLayout>("smem").bytes, op->kind == OpKind::ScratchStore, store};
    }
    if (op->kind == OpKind::RingFill || op->kind == OpKind::RingLoad) {
      const Op *ring = ir::ring_of(*op);
      int64_t at = ring->attrs.i("offset");
      return {at, at + ring->attrs.i("bytes"), op->kind == OpKind::RingFill, ring};
    }
    int64_t at = op->attrs.i("scratch_offset");
    return {at, at + ir::def(*op).scratch(*op), true, op};
  }
  void barrier(Op *before, const char *scope) {
    Op *b = f_.new_op(OpKind::BlockBarrier, before->loc);
    b->attrs.set("scope", std::string(scope));
    insert_before(before, b);
    changed_ = true;
  }
  static bool warp_private(const Op *load) {
    const Op *store = load->operand(0)->op;
    const RegLayout &from = *store->operand(0)->layout, &to = *load->result()->layout;
    return from.free_bits().warp == 0 && stays_in_warp(from, to);
  }

  void block(ir::Block *b, Pending &pending) {
    for (size_t i = 0; i < b->ops.size(); i++) {
      Op *op = b->ops[i];
      if (!op->regions.empty()) {
        regions(op, pending);
        i = size_t(position(op));
        continue;
      }
      if (ir::is_block_barrier(*op)) {
        pending.clear();
        continue;
      }
      bool fill = op->kind == OpKind::RingFill, item = op->kind == OpKind::RingLoad;
      bool store = op->kind == OpKind::ScratchStore || fill, load = op->kind == OpKind::ScratchLoad || item;
      bool own = op->attrs.has("scratch_offset");
      if (!store && !load && !own) continue;
      Access a = access(op);
      bool conflict = false, within_warp = false;
      for (const Access &p : pending) {
        if (p.end <= a.begin || a.end <= p.begin || (load && !p.write)) continue;
        // Copies of one ring go to different slots, and its waits order them before the reads. A thread writes the same
        // bytes of a scratch buffer in every iteration.
        if (p.write && p.buffer == a.buffer && (store || item)) continue;
        if (store && !fill && !p.write && p.buffer == a.buffer && !crossing_.count(op))
          within_warp = true; // the next iteration's store: each warp has read what it overwrites
        else if (load && !item && p.buffer == a.buffer && warp_private(op))
          within_warp = true;
        else
          conflict = true;
      }
      if (conflict) {
        barrier(op, "block");
        pending.clear();
        i++;
      } else if (within_warp) {
        // The write stays pending for the other buffers, but this load is ordered.
        if (i == 0 || b->ops[i - 1]->kind != OpKind::BlockBarrier) {
          barrier(op, "warp");
          i++;
        }
      }
      if (own) {
        // write, block barrier, read
        pending.clear();
        a.write = false;
      } else {
        a.write = store;
      }
      pending.insert(a);
    }
  }

  void regions(Op *op, Pending &pending) {
    if (op->kind == OpKind::If || op->kind == OpKind::Roles) {
      Pending after;
      for (ir::Block *r : op->regions) {
        Pending p = pending;
        block(r, p);
        after.insert(p.begin(), p.end());
      }
      pending = after;
      return;
    }
    if (op->kind == OpKind::InlinePtx) return;
    // A loop: what is pending at its end is pending at its start too.
    for (int round = 0; round < 8; round++) {
      Pending p = pending;
      for (ir::Block *r : op->regions) block(r, p);
      size_t before = pending.size();
      pending.insert(p.begin(), p.end());
      if (pending.size() == before) break;
    }
    if (op->kind == OpKind::While) block(op->regions[0], pending); // it ends behind its condition
  }

  ir::Function &f_;
  std::set<const Op *> crossing_; // scratch stores of which a warp reads what another one wrote
  bool changed_ = false;
};

} // namespace

bool place_barriers(ir::Function &f, PassContext &) { return Barriers(f).run(); }

} // namespace tkc::passes
