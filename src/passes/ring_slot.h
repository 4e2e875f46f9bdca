// What rings of loops (schedule_loops.cpp) and of the source (lower_rings.cpp) have in common.
#pragma once
#include "ir/ir.h"
#include "layout/smem_layout.h"
#include "passes/effects.h"
#include <string>

namespace tkc::passes {

// Slots that are chosen: more hide no more latency (measured: 3 to 5 slots are within 3 %).
constexpr int64_t kMostStages = 4;

// Why the tile of a load cannot be copied to shared memory by itself, wherever the load stands; empty: it can.
std::string copy_obstacle(const ir::Op &load, const Writes &writes);

// The fields of a slot, one behind the other.
class RingSlot {
public:
  explicit RingSlot(bool tma) : tma_(tma) {}
  // The offset of the next field. Copies write padding too: smem.bytes becomes that of the padded tile.
  int64_t add(SmemLayout &smem, const ir::Type &tile);
  // The offset of so many bytes that are copied as they are.
  int64_t add_bytes(int64_t bytes);
  // Bytes from a slot to the next: all keep the alignment of the first byte under every swizzle.
  int64_t bytes() const;
  int64_t alignment() const { return alignment_; }

private:
  bool tma_;
  int64_t end_ = 0, alignment_ = 128;
};

} // namespace tkc::passes
