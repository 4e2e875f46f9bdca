#include "ir/clone.h"
#include "support/check.h"

namespace tkc::ir {

static Value *copy_value(Function &to, const Value &v, ValueMap &values) {
  Value *copy = to.new_value(v.type, v.name);
  copy->index = v.index;
  copy->layout = v.layout;
  return values[&v] = copy;
}

static void copy_block(Function &to, Block *into, const Block &from, ValueMap &values) {
  for (const Value *arg : from.args) {
    into->args.push_back(copy_value(to, *arg, values));
    into->args.back()->block = into;
  }
  for (const Op *op : from.ops)
    if (op->results.empty() || !values.count(op->results[0])) clone_op(to, into, *op, values);
}

Op *clone_op(Function &to, Block *block, const Op &op, ValueMap &values) {
  Op *copy = to.new_op(op.kind, op.loc);
  copy->attrs = op.attrs;
  copy->block = block;
  for (const Value *v : op.operands) {
    auto it = values.find(v);
    TKC_CHECK(it != values.end(), "an operand of the op that is copied has no copy");
    copy->operands.push_back(it->second);
  }
  for (const Value *v : op.results) {
    copy->results.push_back(copy_value(to, *v, values));
    copy->results.back()->op = copy;
  }
  for (const Block *region : op.regions) {
    copy->regions.push_back(to.new_block(copy));
    copy_block(to, copy->regions.back(), *region, values);
  }
  block->ops.push_back(copy);
  return copy;
}

std::unique_ptr<Function> clone(const Function &f) {
  auto out = std::make_unique<Function>();
  out->kind = f.kind;
  out->name = f.name;
  out->loc = f.loc;
  out->params = f.params;
  out->sizes = f.sizes;
  out->bindings = f.bindings;
  out->grid = f.grid;
  out->order = f.order;
  out->order_args = f.order_args;
  out->persistent = f.persistent;
  out->overlaps = f.overlaps;
  out->warps = f.warps;
  out->facts = f.facts;
  out->fact_locs = f.fact_locs;
  out->result_names = f.result_names;
  out->shared_bytes = f.shared_bytes;
  ValueMap values;
  out->body = out->new_block(nullptr);
  copy_block(*out, out->body, *f.body, values);
  return out;
}

} // namespace tkc::ir
