#include "passes/shared_buffers.h"
#include "ir/by_hand.h"
#include "ir/op_def.h"
#include "ir/ring.h"
#include <algorithm>
#include <fmt/ranges.h>

namespace tkc::passes {

using ir::Op;
using ir::OpKind;

ProgramOrder::ProgramOrder(const ir::Function &f) { number(f.body); }

void ProgramOrder::number(const ir::Block *block) {
  for (const Op *op : block->ops) {
    span_[op].first = clock_++;
    for (const ir::Block *region : op->regions) number(region);
    span_[op].second = clock_++;
  }
}

namespace {
// Of the first slot: the most that a field wants, so that every swizzle's bits are those of the address.
int64_t ring_alignment(const Op &ring) {
  int64_t most = 128;
  for (size_t i = 0; i < ring.attrs.ints("field_offset").size(); i++)
    most = std::max(most, ring.attrs.get<SmemLayout>(fmt::format("smem{}", i)).alignment);
  return most;
}

// A value as its user knows it: by its name, or by what makes it.
std::string describe(const ir::Function &f, const ir::Value *v) {
  while (v->name.empty() && v->op && v->op->operands.size() == 1 && v->op->kind == OpKind::ConvertLayout)
    v = v->op->operand(0);
  std::string what = v->name.empty() ? "" : fmt::format("`{}`", v->name);
  if (what.empty() && v->op && v->op->kind == OpKind::Load)
    for (const ir::Param &p : f.params)
      if (f.param_value(p.name) == v->op->operand(0)) what = fmt::format("a part of `{}`", p.name);
  if (what.empty() && v->op) what = fmt::format("a result of `{}`", ir::def(*v->op).source.s);
  return fmt::format("{}: {}", what, v->type.str());
}

bool proxies_differ(const SharedBuffer &a, const SharedBuffer &b) {
  using Kind = SharedBuffer::Kind;
  return (a.kind == Kind::Ring && b.kind == Kind::TmaRing) || (a.kind == Kind::TmaRing && b.kind == Kind::Ring);
}

// What different roles do is not ordered.
bool roles_differ(const SharedBuffer &a, const SharedBuffer &b) {
  int64_t x = ir::role_of(a.op->block), y = ir::role_of(b.op->block);
  return x >= 0 && y >= 0 && x != y;
}

} // namespace

std::vector<SharedBuffer> shared_buffers(ir::Function &f, const ProgramOrder &order) {
  using Kind = SharedBuffer::Kind;
  std::vector<SharedBuffer> buffers;
  std::map<const Op *, size_t> of_store;
  ir::walk(f.body, [&](Op *op) {
    ir::ScratchFn *scratch = ir::def(*op).scratch;
    if (op->kind == OpKind::ScratchStore) {
      const SmemLayout &s = op->attrs.get<SmemLayout>("smem");
      of_store[op] = buffers.size();
      buffers.push_back({op, s.bytes, std::max<int64_t>(16, s.alignment), order.of(op).first, order.of(op).second});
    } else if (op->kind == OpKind::RingAlloc && op->attrs.has("bytes")) {
      of_store[op] = buffers.size();
      buffers.push_back({op, op->attrs.i("bytes"), ring_alignment(*op), order.of(op).first, order.of(op).second, 0,
                         ir::by_tma(*op) ? Kind::TmaRing : Kind::Ring});
      if (int64_t bytes = ir::mbarrier_bytes(*op))
        buffers.push_back({op, bytes, 16, 0, order.end(), 0, Kind::Barriers});
    } else if (op->kind == OpKind::SharedAlloc) {
      const SmemLayout &s = op->attrs.get<SmemLayout>("smem");
      buffers.push_back({op, op->attrs.i("bytes"), std::max<int64_t>(128, s.alignment), 0, order.end()});
    } else if (op->kind == OpKind::BarrierAlloc) {
      buffers.push_back({op, 8 * ir::slots_of(*op), 16, 0, order.end()});
    } else if (op->kind == OpKind::RingFill || op->kind == OpKind::RingStore || op->kind == OpKind::RingLoad) {
      Op *ring = ir::ring_of(*op), *at = op;
      while (at->block != ring->block) at = at->block->parent;
      SharedBuffer &b = buffers[of_store.at(ring)];
      b.end = std::max(b.end, order.of(at).second);
    } else if (op->kind == OpKind::ScratchLoad) {
      Op *store = op->operand(0)->op, *at = op;
      while (at->block != store->block) at = at->block->parent;
      SharedBuffer &b = buffers[of_store.at(store)];
      b.end = std::max(b.end, order.of(at).second);
    } else if (scratch) {
      int64_t bytes = scratch(*op);
      if (!bytes) return;
      // Products of a group are one piece of code: their buffers are in use at the same time.
      const std::vector<Op *> &ops = op->block->ops;
      auto grouped = [](const Op *o) { return o->attrs.i_or("with_previous", 0) != 0; };
      auto first = std::find(ops.begin(), ops.end(), op), last = first;
      while (grouped(*first)) first--;
      while (last + 1 != ops.end() && grouped(*(last + 1))) last++;
      buffers.push_back({op, bytes, 16, order.of(*first).first, order.of(*last).second});
    }
  });
  return buffers;
}

std::string buffer_name(const ir::Function &f, const SharedBuffer &b) {
  const Op &op = *b.op;
  if (b.kind == SharedBuffer::Kind::Barriers) return "the mbarriers of a ring";
  if (op.kind == OpKind::SharedAlloc)
    return fmt::format("`{}` ({} slots of {} B)", op.result()->name, ir::slots_of(op), op.attrs.i("slot_bytes"));
  if (op.kind == OpKind::BarrierAlloc) return fmt::format("the mbarriers `{}`", op.result()->name);
  if (op.kind == OpKind::ScratchStore) return describe(f, op.operand(0));
  if (op.kind == OpKind::RingAlloc && op.attrs.has("schedule")) return "a ring (" + op.attrs.s("schedule") + ")";
  if (op.kind == OpKind::RingAlloc)
    return fmt::format("a ring of {} ({} stages of {} B)",
                       fmt::join(op.attrs.get<std::vector<std::string>>("tensors"), ", "), op.attrs.i("stages"),
                       op.attrs.i("stage_bytes"));
  return fmt::format("`{}`", ir::def(op).source.s);
}

const char *offset_attribute(const SharedBuffer &b) {
  if (b.kind == SharedBuffer::Kind::Barriers) return "barrier_offset";
  bool own = b.op->kind == OpKind::ScratchStore || b.op->kind == OpKind::RingAlloc ||
             b.op->kind == OpKind::SharedAlloc || b.op->kind == OpKind::BarrierAlloc;
  return own ? "offset" : "scratch_offset";
}

int64_t place_buffers(std::vector<SharedBuffer> &buffers, bool share) {
  std::vector<SharedBuffer *> order;
  for (SharedBuffer &b : buffers) order.push_back(&b);
  std::stable_sort(order.begin(), order.end(),
                   [](const SharedBuffer *a, const SharedBuffer *b) { return a->bytes > b->bytes; });
  std::vector<SharedBuffer *> placed;
  int64_t total = 0;
  for (SharedBuffer *b : order) {
    int64_t offset = 0;
    for (bool moved = true; moved;) {
      moved = false;
      for (const SharedBuffer *o : placed) {
        bool same_time =
            !share || proxies_differ(*b, *o) || roles_differ(*b, *o) || (b->begin <= o->end && o->begin <= b->end);
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

} // namespace tkc::passes
