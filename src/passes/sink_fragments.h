// Operands of products that no loop changes are read from shared memory in every iteration, where the registers for
// them would not last.
#pragma once
#include "passes/pass_manager.h"

namespace tkc::passes {

// Registers of a thread that a block of so many warps can have: a sub-core has 16384 for 32 lanes of its warps.
inline int64_t register_budget(int64_t warps) {
  return std::min<int64_t>(255, 16384 / (32 * ((warps + 3) / 4)) / 8 * 8);
}

bool sink_fragments(ir::Function &f, PassContext &context);

} // namespace tkc::passes
