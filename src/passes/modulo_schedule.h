// A modulo schedule of a loop's body: every op gets a cycle and a stage, so that an iteration can begin every `ii`
// cycles with no resource used twice.
//
// Resources are those of the cost model (layout_choice.h): issue slots of a sub-core, its tensor pipe, the SM's pipe of
// shared memory and its way to L2. An op takes of each what the cost model says, evenly over the cycles of the one that
// it takes most of; its result is there after its latency, which of a load is that of memory. Dependences: values, at
// distance 0 and, through what the loop carries, 1; effects in program order, those of the next iteration behind.
//
// The bounds: an iteration takes no less than any resource is used (`resources`), and no less than a cycle of
// dependences takes over the iterations that it spans (`recurrence`). `ii` is the least found from the larger one on:
// ops in order of their longest way to the end of the iteration, each from the first cycle on where its operands are
// there. Instructions of independent ops interleave, so an op takes what others have left of its resources, for longer
// than it would alone. A dependence on the iteration before that then does not hold asks for a longer period. Time is
// counted in 64ths of a period, so a search costs the same for long and for short loops.
#pragma once
#include "passes/op_work.h"
#include <string>

namespace tkc::passes {

struct ModuloOp {
  const ir::Op *op = nullptr;
  Work work{};
  double start = 0;    // cycles after the iteration has begun
  double duration = 0; // of its busiest resource
  double latency = 0;  // to its result
  int64_t stage = 0;   // iterations that have begun since
};

struct ModuloSchedule {
  double ii = 0, resources = 0, recurrence = 0;
  std::string bound;   // "issue", "tensor pipe", "shared memory", "L2", "carried chain"
  double length = 0;   // from an iteration's first op to its last result
  double in_order = 0; // cycles of an iteration whose ops follow each other, with the latencies of its loads
  int64_t stages = 1;
  int64_t registers = 0;     // of a thread for the tiles that are alive at once
  std::vector<ModuloOp> ops; // of the body, in program order, without its terminator
  const ModuloOp &of(const ir::Op *op) const;
  // "II 812 cycles, bound by tensor pipe (resources 812, carried chain 300), would overlap 2 iterations in 210
  // registers; in program order 1143 cycles"
  std::string to_string() const;
};

// Of a loop whose body has no loops.
bool has_modulo_schedule(const ir::Op &loop);
ModuloSchedule modulo_schedule(const ir::Op &loop, OpWork &work);

} // namespace tkc::passes
