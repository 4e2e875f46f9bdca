// Offsets of scratch buffers in the block's shared memory, by live range.
//
//   %t = scratch_store %x {smem}   ->   {smem, offset = 8192};   a reduction across warps gets scratch_offset
//
// A buffer lives from its store to its last load (the whole loop, if the load is deeper than the store); an op's own
// scratch lives at the op. Ranges are positions in program order; two buffers share bytes only if their ranges are
// apart, and place_barriers, which comes next, orders the accesses. What does not fit the target is an error that names
// the buffers in use where most bytes are.
#include "passes/passes.h"
#include "passes/shared_buffers.h"
#include "support/diag_kinds.h"
#include <algorithm>

namespace tkc::passes {

using ir::Op;
using ir::OpKind;

namespace {
// The buffers in use at the place where most bytes are, largest first.
std::vector<SharedBuffer> fullest(const std::vector<SharedBuffer> &buffers) {
  std::vector<SharedBuffer> best;
  int64_t most = -1;
  for (const SharedBuffer &place : buffers) {
    std::vector<SharedBuffer> used;
    int64_t bytes = 0;
    for (const SharedBuffer &b : buffers)
      if (b.begin <= place.begin && place.begin <= b.end) used.push_back(b), bytes += b.bytes;
    if (bytes > most) most = bytes, best = std::move(used);
  }
  std::stable_sort(best.begin(), best.end(), [](const auto &a, const auto &b) { return a.bytes > b.bytes; });
  return best;
}

// Blocks that run on an SM at a time, as far as shared memory goes.
int64_t blocks(int64_t bytes, const ir::Target &target) {
  if (bytes > target.shared_per_block) return 0;
  return std::min<int64_t>(32, blocks_by_shared(bytes, target));
}
} // namespace

bool allocate_shared(ir::Function &f, PassContext &context) {
  std::vector<SharedBuffer> buffers = shared_buffers(f, ProgramOrder(f));
  // Buffers that share bytes must be ordered by barriers, in loops at every iteration: they share only if that lets
  // more blocks run on an SM.
  std::vector<SharedBuffer> apart = buffers;
  int64_t total = place_buffers(buffers, true), total_apart = place_buffers(apart, false);
  if (int64_t n = blocks(total_apart, context.target); n > 0 && n >= blocks(total, context.target)) {
    buffers = std::move(apart);
    total = total_apart;
  }
  for (const SharedBuffer &b : buffers) b.op->attrs.set(offset_attribute(b), b.offset);
  f.shared_bytes = total;
  if (f.shared_bytes > context.target.shared_per_block) {
    std::string list;
    for (const SharedBuffer &b : fullest(buffers))
      list += fmt::format("{}{} B for {}", list.empty() ? "" : ", ", b.bytes, buffer_name(f, b));
    context.diags.report(f.loc, DiagKind::too_much_shared, f.name, f.shared_bytes, context.target.shared_per_block,
                         context.target.name, list);
  }
  return !buffers.empty();
}

} // namespace tkc::passes
