// Passes that make the IR smaller, or say more, without changing what a kernel computes. Each returns true if it
// changed anything; the opening comment of its source says what it does, and what not.
#pragma once
#include "passes/pass_manager.h"

namespace tkc::passes {

bool fold_constants(ir::Function &f, PassContext &context);
bool dead_code(ir::Function &f, PassContext &context);
bool common_subexpressions(ir::Function &f, PassContext &context);
bool hoist_invariants(ir::Function &f, PassContext &context);
bool widen_products(ir::Function &f, PassContext &context);
bool fuse_product_sum(ir::Function &f, PassContext &context);
// Sets `in_bounds`, `divisor` and `extent_divisor` of loads, stores and atomics, one entry per tensor dim.
bool annotate_accesses(ir::Function &f, PassContext &context);

} // namespace tkc::passes
