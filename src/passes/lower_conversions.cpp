// Conversions that need shared memory become a store to and a load from a scratch buffer, before allocation and
// barriers.
//
//   %y = convert_layout %x   ->   %t = scratch_store %x {smem = ..}   (right after %x)
//                                 ...
//                                 %y = scratch_load %t                (right before the first use of %y)
//
// The plan comes from the layout library and depends on the two layouts alone. Stores stand early and loads late, so
// that conversions that do not depend on each other share their barriers: the loads of the two operands of a product
// wait once. What a load has read is stored once for all layouts that are wanted of it, as a ring would hold it, but
// for tiles with padding, which only a ring's copies write. Where a loop stands between a load of global memory and the
// first use, the store follows the loop: before it, it would wait for the memory.
// Conversions that move registers only, shuffle, or use movmatrix stay as they are. A field of a ring's item lies in
// shared memory already and is read again.
#include "ir/op_def.h"
#include "layout/convert.h"
#include "passes/layout_choice.h"
#include "passes/passes.h"
#include <map>

namespace tkc::passes {

using ir::Op;
using ir::OpKind;
using ir::Value;

// The op of `block` that is, or holds in a region, `op`.
static Op *ancestor_in(ir::Block *block, Op *op) {
  while (op && op->block != block) op = op->block->parent;
  return op;
}

// Moves the store of a loaded tile behind the last loop before the first of its reads.
static void sink_behind_loops(Op *store, const std::vector<Op *> &reads) {
  ir::Block *block = store->block;
  auto first = int64_t(block->ops.size());
  for (const Op *read : reads)
    if (read->block == block)
      first = std::min(first, position(read));
    else
      return;
  for (int64_t i = first; i-- > position(store) + 1;) {
    Op *loop = block->ops[size_t(i)];
    if (loop->kind != OpKind::For && loop->kind != OpKind::While) continue;
    block->ops.erase(block->ops.begin() + position(store));
    insert_after(loop, store);
    return;
  }
}

bool lower_conversions(ir::Function &f, PassContext &context) {
  std::vector<Op *> todo;
  LayoutFeatures features = ir::layout_features(context.target);
  ir::walk(f.body, [&](Op *op) {
    if (op->kind != OpKind::ConvertLayout) return;
    const Value *x = op->operand(0);
    ConversionPlan plan = plan_conversion(*x->layout, *op->result()->layout, dtype_bytes(x->type.dtype) * 8, features);
    if (plan.kind == ConvertKind::Shared) todo.push_back(op);
  });
  std::map<const Value *, Op *> stores; // of loaded tiles
  std::map<Op *, std::vector<SmemUse>> reads;
  std::map<Op *, std::vector<Op *>> loads;
  for (Op *op : todo) {
    Value *x = op->operand(0), *y = op->result();
    if (x->op && x->op->kind == OpKind::RingItem) { // it lies in shared memory: read once more
      Op *again = f.new_op(OpKind::RingItem, op->loc);
      again->operands = x->op->operands;
      again->attrs = x->op->attrs;
      again->results = {y};
      y->op = again;
      op->results.clear();
      insert_before(op, again);
      erase(op);
      continue;
    }
    Op *&kept = stores[x];
    Op *store = kept;
    if (!store) {
      store = f.new_op(OpKind::ScratchStore, op->loc);
      store->operands = {x};
      store->attrs.set("smem", plan_shared(*x->layout, *y->layout, dtype_bytes(x->type.dtype) * 8, features).layout);
      Value *token = f.new_value(ir::Type::token());
      token->op = store;
      store->results = {token};
      insert_before(op, store);
      if (x->op && x->op->kind == OpKind::Load && !has_padding(x->type)) {
        kept = store;
        reads[store].push_back({true, *x->layout, 1});
      }
    }
    if (kept) reads[store].push_back({false, *y->layout, 1});
    Value *token = store->result();
    Op *load = f.new_op(OpKind::ScratchLoad, op->loc);
    load->operands = {token};
    load->results = {y};
    y->op = load;
    ir::Block *block = op->block;
    Op *first = nullptr;
    ir::Uses uses(f);
    for (const ir::Use &u : uses.of(y)) {
      Op *at = ancestor_in(block, u.op);
      TKC_CHECK(at, "a use outside the block of its value");
      if (!first || position(at) < position(first)) first = at;
    }
    erase(op);
    if (first) {
      insert_before(first, load);
    } else {
      insert_after(store, load);
    }
    if (x->op && x->op->kind == OpKind::Load && x->op->block == store->block) loads[store].push_back(load);
  }
  for (const auto &[store, its] : loads) sink_behind_loops(store, its);
  for (const auto &[store, uses] : reads)
    if (uses.size() > 2) {
      const ir::Type &t = store->operand(0)->type;
      store->attrs.set("smem", choose_smem_layout(t.shape, dtype_bytes(t.dtype), uses, SmemForm::Swizzle, features));
    }
  return !todo.empty();
}

} // namespace tkc::passes
