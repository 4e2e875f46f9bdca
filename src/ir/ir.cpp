#include "ir/ir.h"
#include <algorithm>

namespace tkc::ir {

Value *Function::new_value(Type type, std::string name) {
  Value &v = values_.emplace_back();
  v.type = std::move(type);
  v.name = std::move(name);
  v.id = int64_t(values_.size()) - 1;
  return &v;
}

Block *Function::new_block(Op *parent) {
  Block &b = blocks_.emplace_back();
  b.parent = parent;
  b.function = this;
  return &b;
}

Op *Function::new_op(OpKind kind, SourceLoc loc) {
  Op &op = ops_.emplace_back();
  op.kind = kind;
  op.loc = loc;
  return &op;
}

Value *Function::param_value(const std::string &name) const {
  size_t arg = 0;
  for (const Param &p : params) {
    if (!p.present) continue;
    if (p.name == name) return body->args[arg];
    arg++;
  }
  return nullptr;
}

Value *Function::size_value(const std::string &name) const {
  for (size_t i = 0; i < sizes.size(); i++)
    if (sizes[i] == name) return body->args[body->args.size() - sizes.size() + i];
  return nullptr;
}

Op *roles_of(const Function &f) {
  for (Op *op : f.body->ops)
    if (op->kind == OpKind::Roles) return op;
  return nullptr;
}

int64_t role_of(const Block *b) {
  for (; b->parent; b = b->parent->block)
    if (b->parent->kind == OpKind::Roles)
      return std::find(b->parent->regions.begin(), b->parent->regions.end(), b) - b->parent->regions.begin();
  return -1;
}

int64_t block_warps(const Function &f) {
  const Op *roles = roles_of(f);
  return roles ? first_warp(*roles, 0) + roles->attrs.ints("warps")[0] : f.warps;
}

int64_t warps_of(const Block *b) {
  int64_t role = role_of(b);
  return role < 0 ? b->function->warps : roles_of(*b->function)->attrs.ints("warps")[size_t(role)];
}

int64_t first_warp(const Op &roles, size_t role) {
  int64_t first = 0;
  for (size_t r = role + 1; r < roles.regions.size(); r++) first += roles.attrs.ints("warps")[r];
  return first;
}

int64_t position(const Op *op) {
  const std::vector<Op *> &ops = op->block->ops;
  auto it = std::find(ops.begin(), ops.end(), op);
  TKC_CHECK(it != ops.end(), "op is not in its block");
  return it - ops.begin();
}

void insert_before(Op *anchor, Op *op) {
  op->block = anchor->block;
  anchor->block->ops.insert(anchor->block->ops.begin() + position(anchor), op);
}

void insert_after(Op *anchor, Op *op) {
  op->block = anchor->block;
  anchor->block->ops.insert(anchor->block->ops.begin() + position(anchor) + 1, op);
}

void erase(Op *op) {
  op->block->ops.erase(op->block->ops.begin() + position(op));
  op->block = nullptr;
}

void replace_uses(Block *in, Value *from, Value *to) {
  walk(in, [&](Op *op) { std::replace(op->operands.begin(), op->operands.end(), from, to); });
}

Uses::Uses(Function &f) {
  walk(f.body, [&](Op *op) {
    for (size_t i = 0; i < op->operands.size(); i++) {
      size_t id = size_t(op->operands[i]->id);
      if (by_id_.size() <= id) by_id_.resize(id + 1);
      by_id_[id].push_back({op, int64_t(i)});
    }
  });
}

const std::vector<Use> &Uses::of(const Value *v) const {
  static const std::vector<Use> none;
  return size_t(v->id) < by_id_.size() ? by_id_[size_t(v->id)] : none;
}

} // namespace tkc::ir
