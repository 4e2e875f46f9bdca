// What an op may do, seen by passes that remove, merge or move ops.
#pragma once
#include "ir/op_def.h"
#include <unordered_set>

namespace tkc::passes {

// No effects: the result depends on operands and attributes alone. Inline PTX says so itself.
bool is_pure(const ir::Op &op);
// Its results may be dropped: it writes nothing and orders nothing.
bool is_removable(const ir::Op &op);
// The value of a scalar constant of an integer or bool type.
std::optional<int64_t> constant_int(const ir::Value *v);
// Running it where it would not have run is harmless: it neither stops the program nor leaves a tensor. Loads count:
// they read nothing outside their tensor. Costs are not considered.
bool is_speculatable(const ir::Op &op);

// Which tensors a function writes. Distinct parameters do not overlap (the launcher checks it), so a tensor that no op
// of the function names as written holds the same data throughout.
class Writes {
public:
  explicit Writes(const ir::Function &f);
  bool never_written(const ir::Value *tensor) const;

private:
  std::unordered_set<const ir::Value *> written_; // roots: parameters
  bool anything_ = false;                         // an op may write any tensor but `in` parameters
  const ir::Function &f_;
};

} // namespace tkc::passes
