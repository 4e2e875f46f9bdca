// Offsets of scratch buffers in the block's shared memory, by live range.
//
//   %t = scratch_store %x {smem}   ->   {smem, offset = 8192};   a reduction across warps gets scratch_offset
//
// A buffer lives from its store to its last load (the whole loop, if the load is deeper than the store); an op's own
// scratch lives at the op. Ranges are positions in program order; two buffers share bytes only if their ranges are
// apart, and place_barriers, which comes next, orders the accesses. What does not fit the target is an error that names
// every buffer.
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

std::string name_of(const Op &op) {
  if (op.kind == OpKind::ScratchStore) return op.operand(0)->name;
  if (op.kind == OpKind::RingAlloc) return op.attrs.s("schedule");
  return ir::def(op).name.s;
}

// Of the first slot: the most that a field wants, so that every swizzle's bits are those of the address.
int64_t ring_alignment(const Op &ring) {
  int64_t most = 128;
  for (size_t i = 0; i < ring.attrs.ints("field_offset").size(); i++)
    most = std::max(most, ring.attrs.get<SmemLayout>(fmt::format("smem{}", i)).alignment);
  return most;
}

// First fit, largest first; gives the total. Without sharing all ranges count as overlapping.
int64_t place(std::vector<Buffer> &buffers, bool share) {
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
        bool same_time = !share || (b->begin <= o->end && o->begin <= b->end);
        if (same_time && offset < o->offset + o->bytes && o->offset < offset + b->bytes) {
          offset = (o->offset + o->bytes + b->alignment - 1) / b->alignment * b->alignment;
          moved = true;
        }
      }
    }
    b->offset = offset;
    placed.push_back(b);
    total = std::max(total, offset + b->bytes);
  }
  return (total + 15) / 16 * 16;
}

// Blocks that an SM's shared memory holds; the system takes 1 KB of each.
int64_t blocks(int64_t bytes, const ir::Target &target) {
  if (bytes > target.shared_per_block) return 0;
  return std::min<int64_t>(32, target.shared_per_sm / (bytes + 1024));
}
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
    } else if (op->kind == OpKind::RingAlloc) {
      of_store[op] = buffers.size();
      buffers.push_back({op, op->attrs.i("bytes"), ring_alignment(*op), span[op].first, span[op].second});
    } else if (op->kind == OpKind::RingFill || op->kind == OpKind::RingLoad) {
      Op *ring = op->operand(op->kind == OpKind::RingLoad ? 0 : op->attrs.ints("sizes").size() + 1)->op, *at = op;
      while (at->block != ring->block) at = at->block->parent;
      Buffer &b = buffers[of_store.at(ring)];
      b.end = std::max(b.end, span[at].second);
    } else if (op->kind == OpKind::ScratchLoad) {
      Op *store = op->operand(0)->op, *at = op;
      while (at->block != store->block) at = at->block->parent;
      Buffer &b = buffers[of_store.at(store)];
      b.end = std::max(b.end, span[at].second);
    } else if (scratch) {
      if (int64_t bytes = scratch(*op)) buffers.push_back({op, bytes, 16, span[op].first, span[op].second});
    }
  });
  // Buffers that share bytes must be ordered by barriers, in loops at every iteration: they share only if that lets
  // more blocks run on an SM.
  int64_t total = place(buffers, true);
  if (blocks(place(buffers, false), context.target) >= blocks(total, context.target))
    total = place(buffers, false);
  else
    total = place(buffers, true);
  for (const Buffer &b : buffers) {
    bool placed_here = b.op->kind == OpKind::ScratchStore || b.op->kind == OpKind::RingAlloc;
    b.op->attrs.set(placed_here ? "offset" : "scratch_offset", b.offset);
  }
  f.shared_bytes = total;
  if (f.shared_bytes > context.target.shared_per_block) {
    std::string list;
    for (const Buffer &b : buffers)
      list += fmt::format("{}{} B for `{}`", list.empty() ? "" : ", ", b.bytes, name_of(*b.op));
    context.diags.report(f.loc, DiagKind::too_much_shared, f.name, f.shared_bytes, context.target.shared_per_block,
                         context.target.name, list);
  }
  return !buffers.empty();
}

} // namespace tkc::passes
