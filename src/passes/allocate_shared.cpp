// Offsets of scratch buffers in the block's shared memory, by live range.
//
//   %t = scratch_store %x {smem}   ->   {smem, offset = 8192};   a reduction across warps gets scratch_offset
//
// A buffer lives from its store to its last load (the whole loop, if the load is deeper than the store); an op's own
// scratch lives at the op. Ranges are positions in program order; two buffers share bytes only if their ranges are
// apart, and place_barriers, which comes next, orders the accesses. First fit, largest first. What does not fit the
// target is an error that names every buffer.
#include "ir/op_def.h"
#include "passes/passes.h"
#include <algorithm>
#include <map>

namespace tkc::passes {

using ir::Op;
using ir::OpKind;

namespace {
struct Buffer {
  Op *op;
  int64_t bytes, alignment, begin, end, offset = 0;
};
} // namespace

bool allocate_shared(ir::Function &f, PassContext &context) {
  std::map<const Op *, std::pair<int64_t, int64_t>> span; // position of an op, and of the end of its regions
  int64_t clock = 0;
  auto number = [&](ir::Block *block, auto &self) -> void {
    for (Op *op : block->ops) {
      span[op].first = clock++;
      for (ir::Block *region : op->regions) self(region, self);
      span[op].second = clock++;
    }
  };
  number(f.body, number);
  std::vector<Buffer> buffers;
  std::map<const Op *, size_t> of_store;
  ir::walk(f.body, [&](Op *op) {
    ir::ScratchFn *scratch = ir::def(*op).scratch;
    if (op->kind == OpKind::ScratchStore) {
      const SmemLayout &s = op->attrs.get<SmemLayout>("smem");
      of_store[op] = buffers.size();
      buffers.push_back({op, s.bytes, std::max<int64_t>(16, s.alignment), span[op].first, span[op].second});
    } else if (op->kind == OpKind::ScratchLoad) {
      Op *store = op->operand(0)->op, *at = op;
      while (at->block != store->block) at = at->block->parent;
      Buffer &b = buffers[of_store.at(store)];
      b.end = std::max(b.end, span[at].second);
    } else if (scratch) {
      if (int64_t bytes = scratch(*op)) buffers.push_back({op, bytes, 16, span[op].first, span[op].second});
    }
  });
  std::vector<Buffer *> order;
  for (Buffer &b : buffers) order.push_back(&b);
  std::stable_sort(order.begin(), order.end(), [](const Buffer *a, const Buffer *b) { return a->bytes > b->bytes; });
  std::vector<Buffer *> placed;
  int64_t total = 0;
  for (Buffer *b : order) {
    int64_t offset = 0;
    for (bool moved = true; moved;) {
      moved = false;
      for (const Buffer *o : placed) {
        bool same_time = b->begin <= o->end && o->begin <= b->end;
        if (same_time && offset < o->offset + o->bytes && o->offset < offset + b->bytes) {
          offset = (o->offset + o->bytes + b->alignment - 1) / b->alignment * b->alignment;
          moved = true;
        }
      }
    }
    b->offset = offset;
    placed.push_back(b);
    total = std::max(total, offset + b->bytes);
    b->op->attrs.set(b->op->kind == OpKind::ScratchStore ? "offset" : "scratch_offset", offset);
  }
  f.shared_bytes = (total + 15) / 16 * 16;
  if (f.shared_bytes > context.target.shared_per_block) {
    std::string list;
    for (const Buffer &b : buffers)
      list += fmt::format("{}{} B for `{}`", list.empty() ? "" : ", ", b.bytes,
                          b.op->kind == OpKind::ScratchStore ? b.op->operand(0)->name : ir::def(*b.op).name.s);
    context.diags.report(f.loc, DiagKind::too_much_shared, f.name, f.shared_bytes, context.target.shared_per_block,
                         context.target.name, list);
  }
  return !buffers.empty();
}

} // namespace tkc::passes
