// What reverse mode has to do in the region of a `grad` op. Worked out once per op, before anything runs:
//   active   floats that depend on an argument of the region and that a yielded value depends on, along ops that have a
//            derivative: only these have cotangents
//   live     what must be known of the forward run: values that rules of active ops look at, and all that they follow
//            from. The rest of the region is not run again
#pragma once
#include "ir/op_def.h"
#include <unordered_set>

namespace tkc::ir {

class Activity {
public:
  explicit Activity(const Op &grad);
  bool active(const Value *v) const { return has(active_, v); }
  bool active_results(const Op &op) const;
  bool live(const Value *v) const { return has(live_, v); }
  // Whether an op of the region runs in a forward pass: a result is live, or it may stop the program.
  bool executes(const Op &op) const;
  // The first op without a derivative that has an operand which depends on an argument, and a result that a yielded
  // value depends on in whatever way.
  const Op *fault() const { return fault_; }

private:
  using Set = std::vector<bool>; // by Value::id
  static bool has(const Set &s, const Value *v) { return size_t(v->id) < s.size() && s[size_t(v->id)]; }
  bool add(Set &s, const Value *v); // whether it is new
  void vary(const Block *block);
  void use(const Block *block, Set &set, bool everything);
  void find_fault(const Block *block);
  void need(const Value *v) { changed_ |= add(live_, v); }
  void need_captured(const Op &op);
  void need(const Op &op);
  void need(const Block *block);
  void force(const Op *op);

  const Op &grad_;
  Set varied_, reaching_, active_, live_;
  std::unordered_set<const Op *> forced_;
  const Op *fault_ = nullptr;
  bool changed_ = false;
};

} // namespace tkc::ir
