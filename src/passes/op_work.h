// The work of single ops of laid-out IR, from the cost model of the layout search.
#pragma once
#include "passes/layout_choice.h"
#include <set>

namespace tkc::passes {

class OpWork {
public:
  // Of a block of ops that so many warps execute.
  OpWork(const ir::Target &target, const ir::Part &part, int64_t warps)
      : part_(part), cost_(target, part, warps), warps_(warps) {}
  // Loads whose tiles the copies of a ring bring: what reads them reads a slot.
  void copied(const ir::Op *load) { copied_.insert(load); }
  bool is_copied(const ir::Op *load) const { return copied_.count(load) > 0; }
  Work of(const ir::Op &op);
  // Cycles from an op's start to its result, above what Work::serial has of it: of a load, the latency of memory.
  double latency(const ir::Op &op) const;

private:
  Work nested(const ir::Op &op);
  const ir::Part &part_;
  LayoutCost cost_;
  int64_t warps_;
  std::set<const ir::Op *> copied_;
};

// The longest of what it takes of a resource.
inline double busiest(const Work &w) { return std::max({w.issue, w.tensor, w.shared, w.global}); }

} // namespace tkc::passes
