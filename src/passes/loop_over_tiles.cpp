// The blocks of a persistent grid compute one tile after another: what the source says of one program becomes the body
// of a loop.
//
//   %i = program_id {axis = 0}             %b = block_id; %n = num_blocks; %tiles = the product of the grid's extents
//   .. %i ..                               for %t in %b : %tiles step %n {
//                                    ->      %i = tile_coordinate %t {axis = 0}
//                                            .. %i ..
//                                          }
//
// The loop has the attribute `tiles`, and `keep_inside` if it is long. Any number of blocks from 1 to that of tiles
// computes all of them; how many there are is the launcher's business (codegen/abi.h). Each role of the source gets
// such a loop of its own, with what stands before the roles made again in it: its scalars may depend on the tile.
#include "ir/builder.h"
#include "ir/clone.h"
#include "ir/op_def.h"
#include "passes/passes.h"

namespace tkc::passes {

using ir::Block;
using ir::Op;
using ir::OpKind;
using ir::Value;

namespace {

// Ops of a tile from which on LLVM moves nothing out of the loop: what is kept in registers through so long a body
// spills. A product with an epilogue has 20, the gradients of KDA, which spilled, 200.
constexpr size_t kLong = 64;

class LoopOverTiles {
public:
  LoopOverTiles(ir::Function &f, Diagnostics &diags) : f_(f), b_(f, diags) {}

  void run() {
    Op *roles = ir::roles_of(f_), *end = f_.body->terminator();
    std::vector<Op *> program, rest;
    for (Op *op : f_.body->ops)
      (op == end || op == roles || op->kind == OpKind::RingAlloc ? rest : program).push_back(op);
    f_.body->ops = std::move(rest);
    if (!roles) return wrap(end, std::move(program));
    // Outside of roles stand only scalars and parts of tensors (sema/roles.cpp).
    for (Block *role : roles->regions) {
      Op *yield = role->terminator();
      std::vector<Op *> ops(role->ops.begin(), role->ops.end() - 1);
      role->ops = {yield};
      wrap(yield, std::move(ops), &program);
    }
  }

private:
  // Makes the loop before an op, of these ops; `again`: with copies of others in front.
  void wrap(Op *before, std::vector<Op *> ops, const std::vector<Op *> *again = nullptr) {
    b_.set_before(before);
    Value *number = b_.value(OpKind::BlockId, {}, {}, f_.loc), *blocks = b_.value(OpKind::NumBlocks, {}, {}, f_.loc);
    Value *tiles = nullptr;
    for (size_t axis = 0; axis < f_.grid.size(); axis++) {
      Value *n = b_.value(OpKind::NumPrograms, {}, ir::Attrs::one("axis", int64_t(axis)), f_.loc);
      n = b_.value(OpKind::Cast, {n}, ir::Attrs::one("dtype", DType(DType::U32)), f_.loc);
      tiles = tiles ? b_.value(OpKind::Mul, {tiles, n}, {}, f_.loc) : n;
    }
    Op *loop = b_.create_typed(OpKind::For, {number, tiles, blocks}, {}, ir::Attrs::one("tiles", int64_t(1)), f_.loc);
    for (const auto &[key, value] : f_.tile_annotations.list()) loop->attrs.set(key, value);
    Block *body = f_.new_block(loop);
    loop->regions = {body};
    Value *tile = f_.new_value(ir::Type::scalar(DType::U32), "tile");
    tile->block = body;
    body->args = {tile};
    if (again) copy(*again, body, ops);
    for (Op *op : ops) {
      op->block = body;
      body->ops.push_back(op);
    }
    if (body->ops.size() > kLong) loop->attrs.set("keep_inside", int64_t(1));
    b_.set_block(body);
    b_.create_typed(OpKind::Yield, {}, {}, {}, f_.loc);
    ir::walk(body, [&](Op *op) {
      if (op->kind != OpKind::ProgramId) return;
      op->kind = OpKind::TileCoordinate;
      op->operands = {tile};
    });
  }

  // Makes ops again at the end of a block, and has the `users` use them.
  void copy(const std::vector<Op *> &from, Block *to, const std::vector<Op *> &users) {
    ir::ValueMap copies;
    for (Value *v : f_.body->args) copies[v] = v;
    for (const Op *op : from) ir::clone_op(f_, to, *op, copies);
    for (auto [original, made] : copies) {
      if (original == made) continue;
      for (Op *op : users) {
        for (Value *&v : op->operands)
          if (v == original) v = made;
        for (Block *r : op->regions) ir::replace_uses(r, const_cast<Value *>(original), made);
      }
    }
  }

  ir::Function &f_;
  ir::Builder b_;
};

} // namespace

bool loop_over_tiles(ir::Function &f, PassContext &context) {
  if (!f.persistent) return false;
  LoopOverTiles(f, context.diags).run();
  return true;
}

} // namespace tkc::passes
