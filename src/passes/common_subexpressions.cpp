// One op for several that give the same value.
//
//   %a = mul %x, %y                          %a = mul %x, %y
//   %b = mul %y, %x                   ->     %c = add %a, %a
//   %c = add %a, %b
//
// Method: a walk with a table of the ops that dominate the current one: those before it in its block and in the blocks
// around. Two ops are equal if kind, attributes, operands (in any order for commutative ops) and layouts are. Loads
// join in where their tensor is never written.
//
// Limits: ops with regions are left alone, and so is what is equal only after other transformations. An op in one
// branch is not shared with the other branch.
#include "ir/print.h"
#include "passes/cleanup.h"
#include "passes/effects.h"
#include <algorithm>
#include <unordered_map>

namespace tkc::passes {

using ir::Block;
using ir::Op;
using ir::OpKind;
using ir::Value;

namespace {

bool is_commutative(OpKind kind) {
  switch (kind) {
  case OpKind::Add:
  case OpKind::Mul:
  case OpKind::Min:
  case OpKind::Max:
  case OpKind::And:
  case OpKind::Or:
  case OpKind::Xor:
  case OpKind::Eq:
  case OpKind::Ne: return true;
  default: return false;
  }
}

class Subexpressions {
public:
  explicit Subexpressions(ir::Function &f) : f_(f), writes_(f) {}

  bool run() {
    block(f_.body);
    return changed_;
  }

private:
  bool can_share(const Op &op) const {
    if (!op.regions.empty() || op.results.empty()) return false;
    if (op.kind == OpKind::Load) return writes_.never_written(op.operand(0));
    return is_pure(op);
  }

  std::string key(const Op &op) const {
    std::vector<int64_t> ids;
    for (const Value *v : op.operands) ids.push_back(v->id);
    if (is_commutative(op.kind)) std::sort(ids.begin(), ids.end());
    std::string out = fmt::format("{}", int(op.kind));
    for (int64_t id : ids) out += fmt::format(" {}", id);
    for (const auto &[name, value] : op.attrs.list())
      if (name != "in_bounds" && name != "divisor" && name != "extent_divisor")
        out += " " + name + "=" + ir::print_attr(value);
    for (const Value *v : op.results)
      out += v->layout ? " " + v->type.str() + v->layout->to_string() : " " + v->type.str();
    return out;
  }

  void block(Block *b) {
    std::vector<std::string> added;
    std::erase_if(b->ops, [&](Op *op) {
      for (Value *&v : op->operands)
        if (auto it = same_.find(v); it != same_.end()) v = it->second;
      // What the meaning of inline PTX computes is its own affair: it is run for each element.
      std::unordered_map<std::string, Op *> outer;
      if (op->kind == OpKind::InlinePtx) std::swap(outer, seen_);
      for (Block *r : op->regions) block(r);
      if (op->kind == OpKind::InlinePtx) std::swap(outer, seen_);
      if (!can_share(*op)) return false;
      std::string k = key(*op);
      auto [it, is_new] = seen_.emplace(k, op);
      if (is_new) {
        added.push_back(std::move(k));
        return false;
      }
      for (size_t i = 0; i < op->results.size(); i++) {
        Value *kept = it->second->result(i);
        same_[op->result(i)] = kept;
        if (kept->name.empty()) kept->name = op->result(i)->name;
      }
      op->block = nullptr;
      changed_ = true;
      return true;
    });
    for (const std::string &k : added) seen_.erase(k);
  }

  ir::Function &f_;
  Writes writes_;
  std::unordered_map<std::string, Op *> seen_;
  std::unordered_map<Value *, Value *> same_;
  bool changed_ = false;
};

} // namespace

bool common_subexpressions(ir::Function &f, PassContext &) { return Subexpressions(f).run(); }

} // namespace tkc::passes
