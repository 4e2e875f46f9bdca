// Method: a tile that is made before a loop, and that only products inside of loops use, is put into shared memory, if
// it does not lie there already, and read where the product is: the buffer then lives as long as the loop.
//
//   %q = load ..                         %q = load ..
//   for .. {                             %t = scratch_store %q
//     .. mma %q, ..               ->     for .. {
//   }                                      %q1 = scratch_load %t
//                                          .. mma %q1, ..
//
// The largest first, and no more than needed: a read costs shared memory's bandwidth in every iteration, a register
// that does not exist costs more.
#include "passes/sink_fragments.h"
#include "ir/op_def.h"
#include "ir/product.h"
#include "passes/layout_choice.h"
#include "passes/passes.h"
#include <algorithm>
#include <map>

namespace tkc::passes {

using ir::Block;
using ir::Op;
using ir::OpKind;
using ir::Use;
using ir::Value;

namespace {

constexpr int64_t kSpare = 24; // addresses, counters, temporaries

bool deeper(const Block *inner, const Block *outer) {
  for (const Op *op = inner->parent; op; op = op->block->parent)
    if (op->block == outer) return true;
  return false;
}

// Whether only products inside of loops use it.
bool can_sink(const Op &made, const std::vector<Use> &uses) {
  if (made.results.size() != 1 || !made.result()->type.is_tile() || made.result()->type.is_scalar()) return false;
  if (made.kind != OpKind::ScratchLoad && has_padding(made.result()->type)) return false;
  return !uses.empty() && std::all_of(uses.begin(), uses.end(), [&](const Use &u) {
    return u.op->kind == OpKind::Mma && u.operand < 2 && u.op->block->parent &&
           u.op->block->parent->kind == OpKind::For && deeper(u.op->block, made.block);
  });
}

// Gives a tile that is read from shared memory for one user alone, and maybe transposed, another layout. `really`
// false: only says whether that can be done.
bool read_as(Value *v, const RegLayout &l, const ir::Uses &uses, bool really) {
  if (!v->op || uses.of(v).size() != 1) return false;
  bool good = v->op->kind == OpKind::ScratchLoad;
  if (v->op->kind == OpKind::Transpose) {
    auto from = ir::def(*v->op).layout.backward(*v->op, l);
    good = from && read_as(v->op->operand(0), *from, uses, really);
  }
  if (good && really) v->layout = l;
  return good;
}

// The instruction's own order of an operand, where a product takes it with neighbours of K in a lane
// (WarpTiling::wide_k): that order is for reads from global memory, and fragments read from shared memory in it would
// have to be moved into place. Users then take it too. Nothing if one has no such order, or if its other operand is not
// read for it alone.
std::optional<RegLayout> own_order(const std::vector<Use> &users, const ir::Uses &uses) {
  std::optional<RegLayout> out;
  for (bool really : {false, true})
    for (const Use &u : users) {
      WarpTiling tiling = ir::warp_tiling(*u.op);
      if (tiling.wide_n || !tiling.wide_k) return std::nullopt;
      tiling.wide_k = 0;
      const MmaShape *shape = find_mma_shape(u.op->attrs.s("shape"), u.op->operand(0)->type.dtype);
      bool transposed = u.op->attrs.i("transposed") != 0;
      auto layout = [&](int64_t operand) {
        return mma_operand_layout(*shape, operand ? Role::B : Role::A, u.op->operand(size_t(operand))->type.shape,
                                  tiling, transposed);
      };
      RegLayout l = layout(u.operand);
      Value *other = u.op->operand(size_t(1 - u.operand));
      if ((out && !(*out == l)) || !read_as(other, layout(1 - u.operand), uses, really)) return std::nullopt;
      out = l;
      if (really) u.op->attrs.erase("wide");
    }
  return out;
}

// Where a tile lies in shared memory, for reads in this layout: the token of its buffer.
Value *buffer_of(ir::Function &f, Op &made, const RegLayout &read, const LayoutFeatures &features) {
  if (made.kind == OpKind::ScratchLoad) return made.operand(0);
  Value *tile = made.result();
  SmemUse uses[] = {{true, *tile->layout, 1}, {false, read, 1}};
  Op *store = f.new_op(OpKind::ScratchStore, made.loc);
  store->operands = {tile};
  store->attrs.set(
      "smem", choose_smem_layout(tile->type.shape, dtype_bytes(tile->type.dtype), uses, SmemForm::Swizzle, features));
  Value *token = f.new_value(ir::Type::token());
  token->op = store;
  store->results = {token};
  ir::insert_after(&made, store);
  return token;
}

} // namespace

bool sink_fragments(ir::Function &f, PassContext &context) {
  LayoutFeatures features = ir::layout_features(context.target);
  int64_t budget = register_budget(ir::block_warps(f)) - kSpare;
  bool changed = false;
  while (live_registers(f) > budget) {
    ir::Uses uses(f);
    Op *largest = nullptr;
    ir::walk(f.body, [&](Op *op) {
      if (op->results.empty() || !can_sink(*op, uses.of(op->result()))) return;
      if (!largest || tile_registers(op->result()) > tile_registers(largest->result())) largest = op;
    });
    if (!largest) break;
    Value *tile = largest->result();
    std::map<const Block *, Op *> reads; // the first user of each block
    std::vector<Op *> users;
    std::optional<RegLayout> own = own_order(uses.of(tile), uses);
    RegLayout read = own ? *own : *tile->layout;
    for (const Use &u : uses.of(tile)) {
      users.push_back(u.op);
      Op *&first = reads[u.op->block];
      if (!first || ir::position(u.op) < ir::position(first)) first = u.op;
    }
    Value *buffer = buffer_of(f, *largest, read, features);
    for (Op *user : users) {
      Op *&first = reads[user->block];
      if (first->kind == OpKind::Mma) {
        Op *load = f.new_op(OpKind::ScratchLoad, largest->loc);
        load->operands = {buffer};
        Value *v = f.new_value(tile->type, tile->name);
        v->op = load;
        v->layout = read;
        load->results = {v};
        ir::insert_before(first, load);
        first = load;
      }
      for (size_t i = 0; i < 2; i++)
        if (user->operands[i] == tile) user->operands[i] = first->result();
    }
    if (largest->kind == OpKind::ScratchLoad) ir::erase(largest);
    changed = true;
  }
  return changed;
}

} // namespace tkc::passes
