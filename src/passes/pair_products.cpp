// Brings products together that share an operand and do not depend on each other.
//
//   %r = mma %k, %s                          %y = ring_load ..
//   .. %r ..                                 %r = mma %k, %s
//   %y = ring_load ..                  ->    %o = mma %q, %s {with_previous = 1}
//   %o = mma %q, %s                          .. %r ..
//
// A product with few accumulators is a few chains of dependent instructions, each waiting for the one before; two such
// products, emitted step by step (ops/mma_lower.cpp), fill each other's gaps. Method: in each block, for each product,
// the later ones with the same operand, instruction and tiling move up to it, with what they need. Limits: what moves
// is pure or reads a ring that the block has waited for before; accumulators of the group stay within a quarter of the
// registers.
#include "ir/op_def.h"
#include "ir/product.h"
#include "passes/effects.h"
#include "passes/passes.h"
#include <algorithm>
#include <set>

namespace tkc::passes {

using ir::Block;
using ir::Op;
using ir::OpKind;
using ir::Value;

namespace {

constexpr int64_t kGroupRegisters = 64; // accumulators of a group, per thread

bool same_form(const Op &a, const Op &b) {
  if (a.attrs.s("shape") == "fma" || a.operand(0)->type.dtype != b.operand(0)->type.dtype) return false;
  for (const char *key : {"shape", "precision"})
    if (a.attrs.s(key) != b.attrs.s(key)) return false;
  return ir::warp_tiling(a) == ir::warp_tiling(b) && a.attrs.i("transposed") == b.attrs.i("transposed");
}

class Pairs {
public:
  explicit Pairs(Block *b) : block_(b) {}

  bool run() {
    bool changed = false;
    for (size_t i = 0; i < block_->ops.size(); i++) {
      Op *first = block_->ops[i];
      if (first->kind != OpKind::Mma || first->attrs.i_or("with_previous", 0)) continue;
      int64_t registers = first->result()->layout->num_regs();
      Op *last = first;
      std::vector<Op *> later(block_->ops.begin() + int64_t(i) + 1, block_->ops.end());
      for (Op *op : later) {
        if (op->kind != OpKind::Mma || !same_form(*first, *op)) continue;
        if (op->operand(0) != first->operand(0) && op->operand(1) != first->operand(1)) continue;
        registers += op->result()->layout->num_regs();
        std::vector<Op *> needed;
        if (registers > kGroupRegisters || !can_move(op, size_t(position(first)), needed)) break;
        for (Op *n : needed) {
          unlink(n);
          insert_before(first, n);
        }
        unlink(op);
        insert_after(last, op);
        op->attrs.set("with_previous", int64_t(1));
        last = op;
        changed = true;
      }
      i = size_t(position(first));
    }
    return changed;
  }

private:
  static void unlink(Op *op) {
    std::vector<Op *> &ops = op->block->ops;
    ops.erase(std::find(ops.begin(), ops.end(), op));
  }

  // Collects, in order, the ops behind position `at` that `op` needs; false if one must stay where it is.
  bool can_move(Op *op, size_t at, std::vector<Op *> &needed) const {
    std::set<const Op *> wanted;
    auto want = [&](auto &self, const Op *o) -> bool {
      for (const Value *v : o->operands) {
        const Op *d = v->op;
        if (!d || d->block != block_ || size_t(position(d)) < at || wanted.count(d)) continue;
        if (size_t(position(d)) == at || !may_move(*d, at)) return false;
        wanted.insert(d);
        if (!self(self, d)) return false;
      }
      return true;
    };
    if (!want(want, op)) return false;
    for (size_t i = at; i < block_->ops.size(); i++)
      if (wanted.count(block_->ops[i])) needed.push_back(block_->ops[i]);
    return true;
  }

  bool may_move(const Op &op, size_t at) const {
    if (op.kind == OpKind::Mma) return false;
    if (op.kind != OpKind::RingLoad) return op.regions.empty() && is_pure(op);
    for (size_t i = at; i < size_t(position(&op)); i++) {
      const Op &between = *block_->ops[i];
      if (between.kind == OpKind::RingWait || between.kind == OpKind::RingFill || !between.regions.empty())
        return false;
    }
    return true;
  }

  Block *block_;
};

} // namespace

bool pair_products(ir::Function &f, PassContext &) {
  bool changed = Pairs(f.body).run();
  ir::walk(f.body, [&](Op *op) {
    for (Block *r : op->regions) changed |= op->kind != OpKind::InlinePtx && Pairs(r).run();
  });
  return changed;
}

} // namespace tkc::passes
