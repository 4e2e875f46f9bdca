// Orders accesses of different threads of a block to global memory that the kernel writes.
//
// In the language a program sees its own stores: a load after a store reads what was stored, whatever thread stored it.
// This pass walks the function with the accesses to written tensors since the last block barrier and puts a barrier
// before one that may meet them: a load after a store, a store after a load or store. Distinct parameters do not
// overlap. Two accesses to one tensor need no barrier if
//   - every thread meets only its own elements: the same tile in the same layout, no copies in other threads of what is
//     loaded, or
//   - they are disjoint: along some dim their positions are the same sum but for a constant of at least the extent; or,
//     from one iteration of a loop to another, the same sum with the loop's counter in steps of at least the extent.
// Programs of a grid are not ordered, and so are not the tiles of a block.
// Atomics of one kind whose results nobody uses commute.
#include "ir/by_hand.h"
#include "ir/op_def.h"
#include "ir/ring.h"
#include "passes/effects.h"
#include "passes/passes.h"
#include <algorithm>
#include <map>
#include <set>

namespace tkc::passes {

using ir::Block;
using ir::Op;
using ir::OpKind;
using ir::Value;

namespace {

// A scalar as constant + sum of factor * value.
struct Sum {
  int64_t constant = 0;
  std::map<const Value *, int64_t> factors;
};
Sum scaled(Sum s, int64_t k) {
  s.constant *= k;
  for (auto &[v, f] : s.factors) f *= k;
  return s;
}
Sum added(Sum a, const Sum &b) {
  a.constant += b.constant;
  for (const auto &[v, f] : b.factors)
    if ((a.factors[v] += f) == 0) a.factors.erase(v);
  return a;
}
Sum sum_of(const Value *v) {
  if (auto k = constant_int(v)) return {*k, {}};
  if (const Op *op = v->op) {
    auto small = [](const Value *x) -> std::optional<int64_t> { // a factor that overflows nothing here
      auto k = constant_int(x);
      return k && std::abs(*k) <= INT32_MAX ? k : std::nullopt;
    };
    switch (op->kind) {
    case OpKind::Add: return added(sum_of(op->operand(0)), sum_of(op->operand(1)));
    case OpKind::Sub: return added(sum_of(op->operand(0)), scaled(sum_of(op->operand(1)), -1));
    case OpKind::Mul:
      if (auto k = small(op->operand(1))) return scaled(sum_of(op->operand(0)), *k);
      if (auto k = small(op->operand(0))) return scaled(sum_of(op->operand(1)), *k);
      break;
    case OpKind::Cast:
      if (op->operand(0)->type.is_tile() && is_integer(op->operand(0)->type.dtype) && is_integer(v->type.dtype) &&
          dtype_bits(v->type.dtype) >= dtype_bits(op->operand(0)->type.dtype))
        return sum_of(op->operand(0));
      break;
    default: break;
    }
  }
  return {0, {{v, 1}}};
}

bool defined_in(const Value *v, const Op *loop) {
  for (const Block *b = v->op ? v->op->block : v->block; b && b->parent; b = b->parent->block)
    if (b->parent == loop) return true;
  return false;
}

// Whether a value may be another one in the loop's next iteration. What is made anew from values that stay is the same.
bool varies_in(const Value *v, const Op *loop) {
  if (!defined_in(v, loop)) return false;
  if (!v->op || !v->op->regions.empty() || !(v->op->kind == OpKind::Subview || is_pure(*v->op))) return true;
  return std::any_of(v->op->operands.begin(), v->op->operands.end(),
                     [&](const Value *x) { return varies_in(x, loop); });
}

struct Access {
  const Op *op;
  const Op *loop; // the outermost loop that has begun another iteration since; null: none
  auto operator<=>(const Access &) const = default;
};
using Pending = std::set<Access>;

class Order {
public:
  explicit Order(ir::Function &f) : f_(f), writes_(f), uses_(f) {}
  bool run() {
    Pending p;
    block(f_.body, p);
    return changed_;
  }

private:
  static const Value *tensor_of(const Op *op) {
    if (ir::is_copy(op->kind)) return nullptr; // of tensors that nothing else writes (sema/by_hand.cpp)
    const ir::Effects &e = ir::def(*op).effects;
    for (int i = 0; i < e.count; i++)
      if (e.list[i].space == ir::Space::Global && e.list[i].operand == 0) return op->operand(0);
    return nullptr;
  }
  static bool writes(const Op *op) { return op->kind != OpKind::Load; }
  static const RegLayout *layout_of(const Op *op) { // of the accessed tile; null: a scalar
    const Value *v = op->kind == OpKind::Load ? op->result() : op->operand(op->attrs.ints("sizes").size() + 1);
    return v->type.is_scalar() || !v->layout ? nullptr : &*v->layout;
  }

  bool own_elements(const Op *a, const Op *b) const {
    const RegLayout *x = layout_of(a), *y = layout_of(b);
    bool both_write = writes(a) && writes(b);
    if (!x || !y) return !x && !y && both_write; // one thread stores a scalar, all load it
    if (!(*x == *y)) return false;
    BitMasks copies = x->free_bits();
    return both_write || (!copies.lane && !copies.warp);
  }

  // Fields lie apart in every record.
  static bool other_field(const Op *a, const Op *b) {
    const Op *x = a->operand(0)->op, *y = b->operand(0)->op;
    bool fields = x && y && x->kind == OpKind::RecordField && y->kind == OpKind::RecordField;
    return fields && x->attrs.i("offset") != y->attrs.i("offset");
  }
  // `before` and `after` surely touch no element of different threads in common.
  bool independent(const Access &before, const Op *after) const {
    const Op *a = before.op, *loop = before.loop;
    if (a->operand(0) != after->operand(0))
      return root_tensor(a->operand(0)) != root_tensor(after->operand(0)) || other_field(a, after);
    if (loop && varies_in(a->operand(0), loop)) return false; // another part in every iteration
    if (a->kind == after->kind && a->kind != OpKind::Store && a->kind != OpKind::Load &&
        a->kind != OpKind::AtomicExch && a->kind != OpKind::AtomicCas && uses_.of(a->result()).empty() &&
        uses_.of(after->result()).empty())
      return true;
    const auto &sizes = a->attrs.ints("sizes"), &others = after->attrs.ints("sizes");
    bool same_tile = sizes == others && a->attrs.ints("drop") == after->attrs.ints("drop");
    for (size_t d = 0; d < sizes.size(); d++) {
      if (a->attrs.ints("gather")[d] || after->attrs.ints("gather")[d]) {
        same_tile &= a->operand(d + 1) == after->operand(d + 1) && !(loop && varies_in(a->operand(d + 1), loop));
        continue;
      }
      Sum x = sum_of(a->operand(d + 1)), y = sum_of(after->operand(d + 1));
      int64_t step = 0; // of the position from an iteration of the loop to the next
      bool known = x.factors == y.factors;
      for (const auto &[v, factor] : x.factors) {
        if (!loop || !varies_in(v, loop)) continue;
        if (loop->kind == OpKind::For && v == loop->regions[0]->args[0]) {
          auto by = constant_int(loop->operand(2));
          step = std::abs(factor) * std::max<int64_t>(1, by.value_or(1));
        } else {
          known = false;
        }
      }
      if (!known) {
        same_tile = false;
        continue;
      }
      int64_t distance = y.constant - x.constant; // in the same iteration
      if (step == 0 && (distance >= sizes[d] || -distance >= others[d])) return true;
      if (step && distance == 0 && step >= std::max(sizes[d], others[d])) return true;
      same_tile &= step == 0 && distance == 0;
    }
    return same_tile && own_elements(a, after);
  }

  void barrier(Op *before) {
    Op *b = f_.new_op(OpKind::BlockBarrier, before->loc);
    b->attrs.set("scope", std::string(ir::warps_of(before->block) == 1 ? "warp" : "block"));
    insert_before(before, b);
    changed_ = true;
  }

  void block(Block *b, Pending &pending) {
    for (size_t i = 0; i < b->ops.size(); i++) {
      Op *op = b->ops[i];
      if (op->kind == OpKind::InlinePtx) continue;
      if (!op->regions.empty()) {
        regions(op, pending);
        i = size_t(position(op));
        continue;
      }
      if (ir::is_block_barrier(*op) || (op->kind == OpKind::BlockBarrier && ir::warps_of(b) == 1)) {
        pending.clear();
        continue;
      }
      if (op->attrs.has("scratch_offset") && !tensor_of(op)) pending.clear(); // waits at a block barrier
      const Value *tensor = tensor_of(op);
      if (!tensor || writes_.never_written(tensor)) continue;
      bool conflict = false;
      for (const Access &p : pending) conflict |= (writes(p.op) || writes(op)) && !independent(p, op);
      if (conflict) {
        barrier(op);
        pending.clear();
        i++;
      }
      pending.insert({op, nullptr});
    }
  }

  void regions(Op *op, Pending &pending) {
    if (op->kind == OpKind::If || op->kind == OpKind::Roles) {
      Pending after;
      for (Block *r : op->regions) {
        Pending p = pending;
        block(r, p);
        after.insert(p.begin(), p.end());
      }
      pending = after;
      return;
    }
    if (is_tile_loop(*op)) { // tiles are programs of the grid: nothing orders what one does and another
      Pending p = pending;
      block(op->regions[0], p);
      return;
    }
    // What is pending at the end of a loop's body is pending at its start too, from an earlier iteration.
    bool grown = true;
    while (grown) {
      Pending p = pending;
      for (Block *r : op->regions) block(r, p);
      size_t before = pending.size();
      for (Access a : p) {
        bool inside = false;
        for (const Block *b = a.op->block; b && b->parent; b = b->parent->block) inside |= b->parent == op;
        pending.insert({a.op, inside ? op : a.loop});
      }
      grown = pending.size() > before;
    }
    if (op->kind == OpKind::While) block(op->regions[0], pending); // it ends behind its condition
  }

  ir::Function &f_;
  Writes writes_;
  ir::Uses uses_;
  bool changed_ = false;
};

} // namespace

bool order_memory(ir::Function &f, PassContext &) { return Order(f).run(); }

} // namespace tkc::passes
