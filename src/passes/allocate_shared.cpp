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
#include "passes/shared_buffers.h"
#include <algorithm>

namespace tkc::passes {

using ir::Op;
using ir::OpKind;

namespace {
std::string name_of(const Op &op) {
  if (op.kind == OpKind::ScratchStore) return op.operand(0)->name;
  if (op.kind == OpKind::RingAlloc) return op.attrs.s("schedule");
  return ir::def(op).name.s;
}

// Blocks that an SM's shared memory holds; the system takes 1 KB of each.
int64_t blocks(int64_t bytes, const ir::Target &target) {
  if (bytes > target.shared_per_block) return 0;
  return std::min<int64_t>(32, target.shared_per_sm / (bytes + 1024));
}
} // namespace

bool allocate_shared(ir::Function &f, PassContext &context) {
  std::vector<SharedBuffer> buffers = shared_buffers(f, ProgramOrder(f));
  // Buffers that share bytes must be ordered by barriers, in loops at every iteration: they share only if that lets
  // more blocks run on an SM.
  int64_t total = place_buffers(buffers, true);
  if (blocks(place_buffers(buffers, false), context.target) >= blocks(total, context.target))
    total = place_buffers(buffers, false);
  else
    total = place_buffers(buffers, true);
  for (const SharedBuffer &b : buffers) {
    bool placed_here = b.op->kind == OpKind::ScratchStore || b.op->kind == OpKind::RingAlloc;
    b.op->attrs.set(placed_here ? "offset" : "scratch_offset", b.offset);
  }
  f.shared_bytes = total;
  if (f.shared_bytes > context.target.shared_per_block) {
    std::string list;
    for (const SharedBuffer &b : buffers)
      list += fmt::format("{}{} B for `{}`", list.empty() ? "" : ", ", b.bytes, name_of(*b.op));
    context.diags.report(f.loc, DiagKind::too_much_shared, f.name, f.shared_bytes, context.target.shared_per_block,
                         context.target.name, list);
  }
  return !buffers.empty();
}

} // namespace tkc::passes
