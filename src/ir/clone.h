// Copies of IR.
#pragma once
#include "ir/ir.h"
#include <unordered_map>

namespace tkc::ir {

using ValueMap = std::unordered_map<const Value *, Value *>;

std::unique_ptr<Function> clone(const Function &f);
// Appends a copy of an op, with its regions, to a block of function `to`. Operands that are made outside of the op are
// taken from `values`, which must have them; everything the op makes is added there. An op inside of its regions whose
// results `values` has already is left out.
Op *clone_op(Function &to, Block *block, const Op &op, ValueMap &values);

} // namespace tkc::ir
