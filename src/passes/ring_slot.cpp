#include "passes/ring_slot.h"
#include "layout/reg_layout.h"
#include <algorithm>

namespace tkc::passes {

static int64_t rounded_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

std::string copy_obstacle(const ir::Op &load, const Writes &writes) {
  if (!writes.never_written(load.operand(0))) return "the kernel writes its tensor";
  if (load.attrs.i_or("has_mask", 0) || load.attrs.i_or("has_other", 0)) return "it has a mask or another value";
  for (int64_t g : load.attrs.ints("gather"))
    if (g) return "it gathers";
  return "";
}

int64_t RingSlot::add(SmemLayout &smem, const ir::Type &tile) {
  smem.bytes = dtype_bytes(tile.dtype);
  for (int64_t n : tile.shape) smem.bytes <<= log2_ceil(n);
  int64_t align = std::max<int64_t>(tma_ ? 128 : 16, smem.alignment), offset = rounded_up(end_, align);
  end_ = offset + smem.bytes;
  alignment_ = std::max(alignment_, align);
  return offset;
}

int64_t RingSlot::add_bytes(int64_t bytes) {
  int64_t offset = rounded_up(end_, 128);
  end_ = offset + bytes;
  return offset;
}

int64_t RingSlot::bytes() const { return rounded_up(end_, alignment_); }

} // namespace tkc::passes
