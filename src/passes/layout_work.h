// The work of a kernel under a layout plan, summed up block by block while the plan is made.
#pragma once
#include "passes/layout_choice.h"

namespace tkc::passes {

class PlanWork {
public:
  // `values`: one more than the largest Value::id.
  explicit PlanWork(size_t values) : latency_(values, 0) {}
  void executions(const ir::Block *block, double n) { of(block).executions = n; }
  // An op, or a part of what it takes.
  void add(const ir::Op *op, const Work &w);
  // A conversion of v for an operand of `user`. It stands right after v; `shared`: there already, but this user waits
  // for it too; `reread`: from a ring's slot.
  void add_conversion(const ir::Value *v, const ir::Op *user, const Work &w, bool shared, bool reread);
  // Cycles, slots and bodies of the plan, with the recurrences of its loops.
  void sum_up(LayoutPlan &plan) const;

private:
  BodyWork &of(const ir::Block *block);
  double recurrence(const ir::Block *body) const;

  std::vector<BodyWork> bodies_; // in order of the first op that costs anything: sums must not depend on addresses
  std::vector<double> latency_;  // by value id: serial work of the op that makes it
  std::map<const ir::Op *, double> waiting_; // by op: the latency of the slowest conversion of an operand
};

} // namespace tkc::passes
