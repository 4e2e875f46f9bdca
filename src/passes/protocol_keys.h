// Which scalars of a kernel hold equal values: numbers for values, equal if they are the same pure expression of the
// kernel's parameters, of scalars in tensors that the kernel never writes, and of loop counters known to be equal.
#pragma once
#include "ir/ir.h"
#include <map>
#include <set>

namespace tkc::passes::protocol {

std::optional<int64_t> constant_of(const ir::Value *v); // of a scalar of integer or bool type

class Keys {
public:
  explicit Keys(const ir::Function &f);
  int of(const ir::Value *v);
  bool equal(const ir::Value *a, const ir::Value *b) { return of(a) == of(b); }
  void declare_equal(const ir::Value *a, const ir::Value *b) { known_[b] = of(a); }
  // Whether t is the number of iterations of a loop whose step is a positive constant, or the number of blocks.
  bool is_trip_count(const ir::Value *t, const ir::Op &loop);

private:
  bool is_function_of_operands(const ir::Op &op) const;
  std::map<const ir::Value *, int> known_;
  std::map<std::string, int> by_text_;
  std::set<const ir::Value *> written_; // tensors, as parameters
  bool writes_anything_ = false;
  int next_ = 0;
};

} // namespace tkc::passes::protocol
