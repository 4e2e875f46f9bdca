// Removes what no effect depends on.
//
//   %a = exp %x                                    (nothing)
//   %s, %n = for %lo, %hi, %st, %s0, %n0     ->    %s = for %lo, %hi, %st, %s0 do (%k, %s.1) {
//       do (%k, %s.1, %n.1) { ... }                    ... }                    if %n is used nowhere but for itself
//
// Method: mark from the ops with effects. A value carried by a loop, or given by a branch, is one slot: operand,
// argument, yielded value and result are needed together; a slot that only feeds itself is not. Loops and branches
// without a needed slot or effect go as a whole.
//
// Limits: a loop is assumed to end; a division by zero that is not used is not an error.
#include "passes/cleanup.h"
#include "passes/effects.h"
#include <set>

namespace tkc::passes {

using ir::Block;
using ir::Op;
using ir::OpKind;
using ir::Value;

namespace {

bool carries(const Op &op) { return op.kind == OpKind::For || op.kind == OpKind::While; }
// Where carried values start among the operands, and among the arguments of a region.
size_t first_operand(const Op &op) { return op.kind == OpKind::For ? 3 : 0; }
size_t first_arg(const Op &op) { return op.kind == OpKind::For ? 1 : 0; }

class DeadCode {
public:
  explicit DeadCode(ir::Function &f) : f_(f) {}

  bool run() {
    ir::walk(f_.body, [&](Op *op) {
      bool region =
          op->kind == OpKind::For || op->kind == OpKind::While || op->kind == OpKind::If || op->kind == OpKind::Yield;
      if (!region && !is_removable(*op)) mark(op);
    });
    while (!work_.empty()) {
      Op *op = work_.back();
      work_.pop_back();
      follow(*op);
    }
    sweep(f_.body);
    return changed_;
  }

private:
  void mark(Op *op) {
    if (live_.insert(op).second) work_.push_back(op);
  }
  void need(Value *v) {
    if (!values_.insert(v).second) return;
    Op *op = v->op ? v->op : v->block->parent;
    if (!op) return; // a parameter
    mark(op);
    if (v->is_arg() && op->kind == OpKind::For && v->index == 0) return; // the counter
    size_t slot = size_t(v->index) - (v->is_arg() && carries(*op) ? first_arg(*op) : 0);
    if (carries(*op)) {
      if (!slots_.insert({op, slot}).second) return;
      need(op->operand(first_operand(*op) + slot));
      need(op->regions.back()->terminator()->operand(slot));
    } else if (op->kind == OpKind::If) {
      for (Block *r : op->regions) need(r->terminator()->operand(slot));
    }
  }
  // What a live op needs besides its slots.
  void follow(Op &op) {
    if (Op *parent = op.block->parent) mark(parent);
    size_t operands = carries(op) ? first_operand(op) : op.operands.size();
    for (size_t i = 0; i < operands; i++) need(op.operand(i));
    if (op.kind == OpKind::While) need(op.regions[0]->terminator()->operand(0));
    if (op.kind == OpKind::InlinePtx)
      for (Block *r : op.regions) need(r->terminator()->operand(0));
  }

  template <typename T, typename Keep> void filter(std::vector<T *> &list, size_t begin, Keep &&keep) {
    size_t out = begin;
    for (size_t i = begin; i < list.size(); i++)
      if (keep(i - begin)) list[out++] = list[i];
    changed_ |= out != list.size();
    list.resize(out);
  }
  static void renumber(std::vector<Value *> &values) {
    for (size_t i = 0; i < values.size(); i++) values[i]->index = int64_t(i);
  }

  void sweep(Block *b) {
    std::erase_if(b->ops, [&](Op *op) {
      bool dead = !live_.count(op) && op->kind != OpKind::Yield;
      if (dead) op->block = nullptr;
      changed_ |= dead;
      return dead;
    });
    for (Op *op : b->ops) {
      for (Block *r : op->regions) sweep(r);
      auto slot = [&](size_t i) { return slots_.count({op, i}) != 0; };
      if (carries(*op)) {
        filter(op->operands, first_operand(*op), slot);
        for (Block *r : op->regions) {
          filter(r->args, first_arg(*op), slot);
          renumber(r->args);
        }
        filter(op->regions.back()->terminator()->operands, 0, slot);
        filter(op->results, 0, slot);
        renumber(op->results);
      } else if (op->kind == OpKind::If) {
        std::vector<Value *> results = op->results;
        auto needed = [&](size_t i) { return values_.count(results[i]) != 0; };
        for (Block *r : op->regions) filter(r->terminator()->operands, 0, needed);
        filter(op->results, 0, needed);
        renumber(op->results);
      }
    }
  }

  ir::Function &f_;
  std::unordered_set<Op *> live_;
  std::unordered_set<Value *> values_;
  std::set<std::pair<Op *, size_t>> slots_;
  std::vector<Op *> work_;
  bool changed_ = false;
};

} // namespace

bool dead_code(ir::Function &f, PassContext &) { return DeadCode(f).run(); }

} // namespace tkc::passes
