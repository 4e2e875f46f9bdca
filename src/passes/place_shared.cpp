// How tiles lie in buffers that a kernel makes by hand (ir/by_hand.h), and how copies are cut.
//
//   %s = shared_alloc {dtype, shape, slots}   ->   {.., smem, slot_bytes, bytes}
//   copy_async ..                             ->   {.., read}          who copies which elements
//   tma_load ..                               ->   {.., box, swizzle}  what tensor map it needs
//
// Tensor copies decide where they are; else rows of bulk copies lie densely, and everything else takes the swizzle with
// the fewest wavefronts over all loads and stores.
#include "ir/by_hand.h"
#include "passes/layout_choice.h"
#include "passes/passes.h"
#include "passes/tensor_copies.h"
#include "support/diag_kinds.h"

namespace tkc::passes {

using ir::Op;
using ir::OpKind;

namespace {

class PlaceShared {
public:
  PlaceShared(ir::Function &f, PassContext &context)
      : f_(f), context_(context), features_(ir::layout_features(context.target)) {}

  bool run() {
    std::map<const Op *, std::vector<Op *>> users; // of each buffer
    std::vector<Op *> buffers;
    ir::walk(f_.body, [&](Op *op) {
      if (op->kind == OpKind::SharedAlloc) buffers.push_back(op);
      if (op->kind == OpKind::CopyAsync) by_threads(op);
      if (op->kind == OpKind::TmaPrefetch) prefetch(op);
      bool uses = op->kind == OpKind::SharedLoad || op->kind == OpKind::SharedStore || op->kind == OpKind::CopyAsync ||
                  ir::is_bulk_copy(op->kind);
      if (uses) users[ir::place(*op).made].push_back(op);
    });
    for (Op *buffer : buffers) place(*buffer, users[buffer]);
    return !buffers.empty();
  }

private:
  void fail(const Op &op, const std::string &text) {
    context_.diags.report(op.loc, DiagKind::bad_async, ir::def(op).source.s, text);
  }

  void place(Op &buffer, const std::vector<Op *> &users) {
    ir::Type tile = ir::slot_type(buffer);
    int64_t element = dtype_bytes(tile.dtype);
    std::vector<SmemUse> accesses, reads;
    bool rows = false, tensor = false;
    for (const Op *op : users) {
      if (op->kind == OpKind::SharedLoad) reads.push_back({false, *op->result()->layout, 1});
      if (op->kind == OpKind::SharedStore) accesses.push_back({true, *op->operand(0)->layout, 1});
      rows |= op->kind == OpKind::CopyAsyncBulk || op->kind == OpKind::CopyAsyncTx;
      tensor |= ir::by_tensor_map(op->kind);
    }
    accesses.insert(accesses.end(), reads.begin(), reads.end());
    SmemLayout smem = plain_smem(tile.shape, element);
    if (tensor)
      smem = by_tensor_copies(tile, users, accesses, rows);
    else if (!rows)
      smem = choose_smem(tile.shape, element, accesses, SmemForm::Swizzle, features_).layout;
    for (const Op *op : users)
      if (op->kind == OpKind::CopyAsyncBulk || op->kind == OpKind::CopyAsyncTx)
        if (std::string problem = row_copy_problem(f_, *op, tile); !problem.empty()) fail(*op, problem);
    int64_t alignment = std::max<int64_t>(rows ? 16 : 1, smem.alignment);
    int64_t slot = (tile.elements() * element + alignment - 1) / alignment * alignment;
    smem.bytes = tile.elements() * element;
    buffer.attrs.set("smem", smem);
    buffer.attrs.set("slot_bytes", slot);
    buffer.attrs.set("bytes", slot * ir::slots_of(buffer));
  }

  SmemLayout by_tensor_copies(const ir::Type &tile, const std::vector<Op *> &users, const std::vector<SmemUse> &uses,
                              bool rows) {
    std::optional<TensorCopy> first;
    for (Op *op : users) {
      if (!ir::by_tensor_map(op->kind)) continue;
      std::optional<int64_t> wanted;
      if (rows) wanted = 0;
      if (first) wanted = first->swizzle;
      TensorCopy copy = plan_box(f_, *op, tile, uses, features_, wanted);
      if (!copy.problem.empty()) {
        fail(*op, copy.problem);
        continue;
      }
      if (!first) first = copy;
      op->attrs.set("box", copy.box);
      op->attrs.set("swizzle", copy.swizzle);
    }
    return first ? first->smem : plain_smem(tile.shape, dtype_bytes(tile.dtype));
  }

  void prefetch(Op *op) {
    const std::vector<int64_t> &sizes = op->attrs.ints("sizes"), &drop = op->attrs.ints("drop");
    std::vector<int64_t> shape;
    for (size_t d = 0; d < sizes.size(); d++)
      if (!drop[d]) shape.push_back(sizes[d]);
    TensorCopy copy = plan_box(f_, *op, ir::Type::tile(op->operand(0)->type.dtype, shape), {}, features_, 0);
    if (!copy.problem.empty()) return fail(*op, copy.problem);
    op->attrs.set("box", copy.box);
    op->attrs.set("swizzle", copy.swizzle);
    op->attrs.set("tile", shape);
  }

  // Copies of fewer than 4 bytes do not exist, and the loads and stores in their place are not asynchronous.
  void by_threads(Op *op) {
    ir::Type tile = ir::slot_type(*ir::place(*op).made);
    int64_t element = dtype_bytes(tile.dtype), inner = tile.shape.back() * element;
    int64_t bytes = std::min(access_vector(*op, tile.dtype, 16) * element, inner);
    if (bytes < 4)
      fail(*op, fmt::format("a thread copies 4, 8 or 16 bytes at a time; here only {} are known to lie together and "
                            "aligned. Load the tile and store it",
                            bytes));
    op->attrs.set("read", default_layout(tile, ir::warps_of(op->block)));
  }

  ir::Function &f_;
  PassContext &context_;
  LayoutFeatures features_;
};

} // namespace

bool place_shared(ir::Function &f, PassContext &context) { return PlaceShared(f, context).run(); }

} // namespace tkc::passes
