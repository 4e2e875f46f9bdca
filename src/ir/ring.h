// What ring ops (ops/ring.cpp) have in common, for everything that walks them.
#pragma once
#include "ir/ir.h"
#include <fmt/format.h>

namespace tkc::ir {

inline bool is_ring_op(OpKind k) {
  return k == OpKind::RingFill || k == OpKind::RingStore || k == OpKind::RingAcquire || k == OpKind::RingPublish ||
         k == OpKind::RingTest || k == OpKind::RingWait || k == OpKind::RingRelease || k == OpKind::RingLoad;
}
// The operand that is the ring; the counter comes after it. A fill names its tensor and the tile's place first.
inline size_t ring_operand(const Op &op) { return op.kind == OpKind::RingFill ? op.attrs.ints("sizes").size() + 1 : 0; }
// The ring_alloc of a ring op.
inline Op *ring_of(const Op &op) { return op.operand(ring_operand(op))->op; }
// Of a ring_alloc: items come by bulk and tensor copies (of the asynchronous proxy) in the entry that assumes aligned
// tensors; the other entry copies by cp.async.
inline bool by_tma(const Op &ring) { return ring.attrs.s("transport") == "tma"; }
// A producer role copies. Otherwise the compute warps do, and a wait is a block barrier.
inline bool has_producer(const Op &ring) {
  return ring.attrs.s("transport") == "mbarrier" || (by_tma(ring) && ring.attrs.i("producer"));
}
// Mbarriers tell of what has arrived: 16 bytes a slot.
inline bool has_mbarriers(const Op &ring) { return ring.attrs.s("transport") != "cp_async"; }
inline int64_t mbarrier_bytes(const Op &ring) { return has_mbarriers(ring) ? 16 * ring.attrs.i("stages") : 0; }
// How what a ring_load reads lies in its field, and where: a part of what one copy has brought, or all of it.
inline const SmemLayout &ring_load_layout(const Op &load) {
  if (load.attrs.has("smem")) return load.attrs.get<SmemLayout>("smem");
  return ring_of(load)->attrs.get<SmemLayout>(fmt::format("smem{}", load.attrs.i("field")));
}
inline int64_t ring_load_offset(const Op &load) { return load.attrs.i_or("at", 0); }
// A field's type, of a ring that the source declares.
inline Type ring_field(const Op &ring, size_t i) {
  return Type::tile(ring.attrs.dtype(fmt::format("dtype{}", i)), ring.attrs.ints(fmt::format("shape{}", i)));
}
// Who fills a ring, how, and who reads it. Without a producer role the compute warps do both.
struct RingSides {
  int64_t producer_warps = 0, reader_warps = 0; // of all reading roles
  bool copies = false, stores = false;          // its fields come by ring_fill, by ring_store
};
RingSides ring_sides(const Op &ring);

inline bool is_block_barrier(const Op &op) {
  return op.kind == OpKind::BlockBarrier ? op.attrs.s("scope") == "block"
                                         : op.kind == OpKind::RingWait && !has_producer(*ring_of(op));
}

} // namespace tkc::ir
