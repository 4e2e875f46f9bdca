// Which scalars the proof of protocols by hand follows, as terms over variables; and which of these variables may be
// lowered without changing anything that the program looks at.
#pragma once
#include "passes/by_hand_program.h"
#include <map>
#include <set>

namespace tkc::passes::protocol {

class Terms {
public:
  explicit Terms(ByHandProgram &out) : out_(out) {}

  // The term of a scalar, or -1: it depends on what the proof does not know. Variables are made on the way.
  int of(const ir::Value *v);
  bool known(const ir::Value *v);
  int constant(int64_t k);
  // The variable of a carried scalar, if it has one.
  std::optional<int> variable(const ir::Value *v) const;
  int sum(int a, int64_t k);

  // After the code is there: sorts the variables into groups.
  void group();

private:
  // Forms of a term, for counters: (var + add) div `div`, or one of finitely many values.
  struct Form {
    bool ok = false, linear = false;
    int var = -1;
    int64_t add = 0, div = 1;
  };
  Form form(int term);
  Form arith(const Term &t);
  bool counters_in(int term, std::set<int> &vars) const;
  bool know(const ir::Value *v, std::set<const ir::Value *> &open);

  ByHandProgram &out_;
  std::map<const ir::Value *, int> terms_, vars_;
  std::map<const ir::Value *, bool> known_;
  std::set<const ir::Value *> unknown_;
  std::vector<bool> counter_;
  std::vector<int64_t> period_, least_;
};

// What flows into a scalar that a loop or branch carries: empty if it is none. A loop's own counter has its first
// value.
std::vector<const ir::Value *> sources(const ir::Value *v);

} // namespace tkc::passes::protocol
