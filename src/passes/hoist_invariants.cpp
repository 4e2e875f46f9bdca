// Moves ops whose operands do not change in a for loop in front of it.
//
//   for .. do (%k, ..) {                     %w = load %x, %i, %j
//     %w = load %x, %i, %j            ->     for .. do (%k, ..) {
//     .. %w ..                                 .. %w ..
//
// Method: inner loops first, so that an op leaves as many loops as it can. The loop may run zero times, so only ops
// that are harmless to run in vain move: no integer division that may be by zero, no index into a tensor that must lie
// inside it, unless constant bounds say that the loop runs. Loads of tensors that are never written move (outside their
// tensor they read nothing) and lose the facts of annotate_accesses, which may hold in the loop only.
//
// Limits: ops in a branch inside the loop, ops with regions, and while loops are left alone. Register pressure is not
// considered: what moves was computed from values that live across the loop anyway.
#include "passes/cleanup.h"
#include "passes/effects.h"
#include "passes/passes.h"

namespace tkc::passes {

using ir::Block;
using ir::Op;
using ir::OpKind;
using ir::Value;

namespace {

bool surely_runs(const Op &loop) {
  if (passes::is_tile_loop(loop)) return true; // a block has a tile
  auto lo = constant_int(loop.operand(0)), hi = constant_int(loop.operand(1));
  return lo && hi && *lo < *hi;
}

class Hoist {
public:
  explicit Hoist(ir::Function &f) : f_(f), writes_(f) {}

  bool run() {
    block(f_.body);
    return changed_;
  }

private:
  bool may_move(const Op &op, const Op &loop) const {
    if (!op.regions.empty() || op.results.empty()) return false;
    if (op.kind == OpKind::Load) return writes_.never_written(op.operand(0));
    return is_pure(op) && (is_speculatable(op) || (surely_runs(loop) && op.kind != OpKind::InlinePtx));
  }

  void block(Block *b) {
    for (size_t i = 0; i < b->ops.size(); i++) {
      Op *op = b->ops[i];
      for (Block *r : op->regions)
        if (op->kind != OpKind::InlinePtx) block(r);
      if (op->kind == OpKind::For) i += leave(op, i);
    }
  }

  // Moves what can out of the loop at position `at` of its block; returns how many.
  size_t leave(Op *loop, size_t at) {
    Block *body = loop->regions[0];
    std::unordered_set<const Value *> inside(body->args.begin(), body->args.end());
    std::vector<Op *> moved;
    std::erase_if(body->ops, [&](Op *op) {
      bool invariant = may_move(*op, *loop);
      for (const Value *v : op->operands) invariant = invariant && !inside.count(v);
      if (invariant) {
        moved.push_back(op);
        op->block = loop->block;
        for (const char *fact : {"in_bounds", "divisor", "extent_divisor"}) op->attrs.erase(fact);
      } else {
        inside.insert(op->results.begin(), op->results.end());
      }
      return invariant;
    });
    loop->block->ops.insert(loop->block->ops.begin() + int64_t(at), moved.begin(), moved.end());
    changed_ |= !moved.empty();
    return moved.size();
  }

  ir::Function &f_;
  Writes writes_;
  bool changed_ = false;
};

} // namespace

bool hoist_invariants(ir::Function &f, PassContext &) { return Hoist(f).run(); }

} // namespace tkc::passes
