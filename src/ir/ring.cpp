#include "ir/ring.h"
#include <set>

namespace tkc::ir {

RingSides ring_sides(const Op &ring) {
  RingSides out;
  std::set<const Block *> producers, readers; // a block for each role
  walk(ring.block, [&](const Op *op) {
    if (!is_ring_op(op->kind) || ring_of(*op) != &ring) return;
    const Block *role = op->block;
    while (role->parent && role->parent->kind != OpKind::Roles) role = role->parent->block;
    out.copies |= op->kind == OpKind::RingFill;
    out.stores |= op->kind == OpKind::RingStore;
    if (op->kind == OpKind::RingPublish) producers.insert(role);
    if (op->kind == OpKind::RingRelease) readers.insert(role);
  });
  for (const Block *b : producers) out.producer_warps += warps_of(b);
  for (const Block *b : readers) out.reader_warps += warps_of(b);
  return out;
}

} // namespace tkc::ir
