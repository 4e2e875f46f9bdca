// A kernel that may start before the launches ahead of it have ended waits for them, and lets those behind it start.
//
//   %r = ring_alloc ..              %r = ring_alloc ..        mbarriers are made, places computed, ..
//   %x = load %a ..         ->      grid_wait                 .. while the launches ahead still run
//   ..                              launch_dependents
//                                   %x = load %a ..
//
// All blocks wait at the top of the kernel, on every way through it: when a launch has ended, so have all that were
// launched before it, and a launch needs to wait for the one before it alone. Nothing of global memory is touched ahead
// of the wait: neither read, as a launch ahead may yet write it, nor written, as one may yet read it. (Parameters are
// no memory that a kernel writes, tensor maps among them.)
//
// The launches behind may start as soon as all blocks have come here; what they do before their own wait fills the SMs
// that the last blocks leave free.
#include "ir/op_def.h"
#include "passes/effects.h"
#include "passes/passes.h"

namespace tkc::passes {

using ir::Op;
using ir::OpKind;

namespace {

bool touches_memory(const Op &op) {
  if (op.kind == OpKind::InlinePtx) return !is_pure(op);
  const ir::Effects &e = ir::def(op).effects;
  for (int i = 0; i < e.count; i++)
    if (e.list[i].space == ir::Space::Global) return true;
  bool any = false;
  for (ir::Block *region : op.regions) ir::walk(region, [&](const Op *inner) { any |= touches_memory(*inner); });
  return any;
}

} // namespace

bool wait_for_launches(ir::Function &f, PassContext &context) {
  if (!f.overlaps) return false;
  if (!context.target.has(ir::kDependents)) {
    f.overlaps = false;
    return true;
  }
  Op *first = f.body->terminator();
  for (Op *op : f.body->ops)
    if (op->kind == OpKind::Roles || touches_memory(*op)) {
      first = op;
      break;
    }
  for (OpKind kind : {OpKind::GridWait, OpKind::LaunchDependents}) insert_before(first, f.new_op(kind, f.loc));
  return true;
}

} // namespace tkc::passes
