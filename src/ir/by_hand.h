// Shared memory, mbarriers and asynchronous copies that a kernel handles by itself (ops/shared.cpp, ops/copy.cpp,
// ops/mbarrier.cpp): what everything that walks these ops has to know.
//
// A place is a slot of a buffer or one of several mbarriers: two operands, the op that made it and the number of the
// slot. Places are the last operands of an op, in the order of its signature.
#pragma once
#include "ir/op_def.h"

namespace tkc::ir {

struct Place {
  const Op *made = nullptr; // shared_alloc or barrier_alloc
  const Value *slot = nullptr;
};
int64_t places(OpKind kind); // how many an op has
Place place(const Op &op, int64_t which = 0);
inline int64_t slots_of(const Op &alloc) { return alloc.attrs.i("slots"); }
// Of a shared_alloc: the tile in a slot.
inline Type slot_type(const Op &alloc) { return Type::tile(alloc.attrs.dtype("dtype"), alloc.attrs.ints("shape")); }

// Between shared and global memory, by a thread or by the asynchronous proxy: tensor, an index per dim, places.
inline bool is_copy(OpKind k) {
  return k == OpKind::CopyAsync || (k >= OpKind::CopyAsyncBulk && k <= OpKind::TmaPrefetch);
}
inline bool by_tensor_map(OpKind k) { return k >= OpKind::TmaLoad && k <= OpKind::TmaPrefetch; }
// The asynchronous proxy reads or writes shared memory.
inline bool is_bulk_copy(OpKind k) { return k >= OpKind::CopyAsyncBulk && k <= OpKind::TmaReduce; }
// One thread executes it: it stands in `if elect()`.
inline bool by_one_thread(OpKind k) {
  return (k >= OpKind::CopyAsyncBulk && k <= OpKind::BulkWaitGroup) || k == OpKind::MbarrierInit ||
         k == OpKind::MbarrierInval || k == OpKind::MbarrierExpectTx || k == OpKind::MbarrierArriveExpectTx;
}
// Ops of this vocabulary that a kernel without it has none of.
inline bool is_by_hand(OpKind k) { return k >= OpKind::SharedAlloc && k <= OpKind::MbarrierArriveAndWait; }
// A kernel that makes buffers or mbarriers: its author has said what runs ahead of what.
bool by_hand(const Function &f);
// The kernel copies by the asynchronous proxy: it has no code for tensors that are not aligned (codegen/abi.h).
bool needs_alignment(const Function &f);

// Whether the op stands in `if elect()`, which one thread executes.
bool elected(const Op &op);

} // namespace tkc::ir
