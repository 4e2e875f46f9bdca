// Reverse mode: the meaning of a `grad` op. The region is run forward and walked back; the rule of each op
// (OpDef::derivative, src/ops/*_adjoint.cpp) turns the cotangents of its results into those of its operands.
//
// A cotangent is the derivative of L = sum of <cotangent of a yielded value, that value>. All arithmetic is f64;
// rounding to a narrower dtype counts as the identity, and what is piecewise constant (floor, comparisons, the choice
// of a branch, the number of iterations) has derivative 0. Where the derivative is a set, as of max at a tie, one
// element is taken: the rules say which. Nothing times anything is nothing: a cotangent of 0 stays 0 where the
// derivative is infinite, so the side of a `where` that is not taken never matters.
//
// Memory: the values of one iteration of each nested loop, and of a loop of n iterations the carried values that rules
// need at about 2 sqrt(n) of them (all n while that is little); each loop is run forward at most three times.
#pragma once
#include "interp/interp.h"
#include "ir/activity.h"

namespace tkc::interp {

using Cotangent = std::vector<double>; // by element, row-major; empty: zero

class Reverse {
public:
  Reverse(Ctx &ctx, const ir::Activity &activity);

  // ---- for rules
  // Values as they were when the op ran: only those that its derivative declares to read.
  const Tile &operand(const ir::Op &op, size_t i) const;
  const Tile &result(const ir::Op &op, size_t i = 0) const;
  const Value &carried(const ir::Op &op, size_t i) const; // an operand that a loop starts from, known if it is live
  bool wants(const ir::Op &op, size_t i) const { return activity_.active(op.operand(i)); }
  const Cotangent &of(const ir::Op &op) const { return at_[size_t(op.result()->id)]; } // of a single result; never zero
  Cotangent take(const ir::Value *v);                                                  // leaves zero
  Cotangent &into(const ir::Op &op, size_t i); // what operand i has so far, to be added to
  void add(const ir::Op &op, size_t i, Cotangent c);
  Ctx &ctx() { return ctx_; }

  // ---- for rules of control flow
  // Walks back over a region that the last forward run went through; cotangents of what it yields.
  void block(const ir::Block *b, std::vector<Cotangent> yielded);
  // Walks back over a loop: cotangents of the values it ends with become those of the values it starts from. The body
  // takes `counter(k)` (if given) and the carried values.
  using Counter = std::function<Value(int64_t)>;
  std::vector<Cotangent> loop(const ir::Block *body, int64_t trips, std::vector<Value> start,
                              std::vector<Cotangent> end, const Counter &counter);

private:
  void run_recording(const ir::Block *body, std::vector<Value> args);
  void accumulate(const ir::Value *v, Cotangent c);
  Ctx &ctx_;
  const ir::Activity &activity_;
  std::vector<Cotangent> at_; // by Value::id
};

// The results of a `grad` op; empty after a trap.
std::vector<Value> gradient(Ctx &ctx, const ir::Op &grad);

} // namespace tkc::interp
