// Buffers in the block's shared memory and where they go; allocate_shared writes it into the IR, the loop scheduler
// asks whether its rings would fit.
#pragma once
#include "ir/ir.h"
#include "ir/target.h"
#include <map>

namespace tkc::passes {

struct SharedBuffer {
  ir::Op *op; // scratch_store, ring_alloc, shared_alloc, barrier_alloc, or an op with scratch of its own
  int64_t bytes, alignment;
  int64_t begin, end; // live range, in positions of ProgramOrder
  int64_t offset = 0;
  enum class Kind : uint8_t { Scratch, Ring, TmaRing, Barriers } kind = Kind::Scratch; // of a ring: slots, mbarriers
};

// Positions of ops in program order; an op with regions covers those of everything inside.
class ProgramOrder {
public:
  explicit ProgramOrder(const ir::Function &f);
  std::pair<int64_t, int64_t> of(const ir::Op *op) const { return span_.at(op); }
  int64_t end() const { return clock_; }

private:
  void number(const ir::Block *block);
  std::map<const ir::Op *, std::pair<int64_t, int64_t>> span_;
  int64_t clock_ = 0;
};

// A buffer lives from its store to its last load (the whole loop, if the load is deeper than the store); an op's own
// scratch lives at the op, mbarriers and what is made by hand as long as the kernel.
std::vector<SharedBuffer> shared_buffers(ir::Function &f, const ProgramOrder &order);
// "a ring of a, b (3 stages of 24576 B)", "`t`: tile<f32>[4, 32]", "`sum`" for an op's scratch.
std::string buffer_name(const ir::Function &f, const SharedBuffer &b);
// Where its op says how many bytes behind the block's first the buffer begins.
const char *offset_attribute(const SharedBuffer &b);
// Gives each its offset, first fit, largest first; the result is the total. Two buffers share bytes only if `share` and
// their ranges are apart; rings of different proxies and buffers of different roles never do.
int64_t place_buffers(std::vector<SharedBuffer> &buffers, bool share);
// Blocks of so many bytes that an SM's shared memory holds; the system takes 1 KB of each.
inline int64_t blocks_by_shared(int64_t bytes, const ir::Target &target) {
  return target.shared_per_sm / (bytes + 1024);
}

} // namespace tkc::passes
