// What is left of a kernel that makes buffers and mbarriers by hand (ir/by_hand.h) for the proof: for each role a flat
// program of accesses to slots, of what it does with mbarriers and groups of copies, and of jumps; and which slot or
// parity each names, as an expression of scalars that loops carry.
//
// A slot or parity is made of constants, counters of loops that start at a constant and step by one, and scalars that
// loops and branches carry, by integer arithmetic; anything else is a fault of the kernel. Conditions made of the same
// are followed; others, and loops whose number of iterations is not a constant, go either way. Agents that execute the
// same op read the same choices, since conditions and bounds are block-uniform; loops of two roles make the same
// choices if their bounds are equal expressions of the kernel's parameters.
#pragma once
#include "ir/ir.h"
#include "passes/protocol_skeleton.h"

namespace tkc::passes::protocol {

struct Term {
  enum class Op : uint8_t { Const, Var, Arith } op = Op::Const;
  int64_t k = 0; // the constant, or the variable's number
  ir::OpKind how = ir::OpKind::Constant;
  int args[3] = {-1, -1, -1}; // terms
};

enum class Do : uint8_t {
  Load,         // a slot, by plain loads
  Store,        // a slot, by plain stores
  Copy,         // a slot, by cp.async
  Commit,       // a group
  WaitGroup,    // pending
  Bulk,         // a slot, by the asynchronous proxy, `bytes` on an mbarrier; expects: which is told of them as well
  BulkRead,     // a slot is read by the asynchronous proxy
  BulkCommit,   //
  BulkWait,     // pending
  Fence,        // between the proxies
  Barrier,      // of the role's warps; blocks
  Init,         // count
  Inval,        //
  Arrive,       // count arrivals of each thread, behind `bytes` that are expected; state: variable of the phase, or -1
  Expect,       // bytes
  ArriveCopies, // noinc
  WaitParity,   // parity; blocks
  WaitState,    // state; blocks
  Assign,       // at once
  Branch,       // next choice of a stream: 1 goes on, 0 jumps to target
  Test,         // a condition goes on, else jumps to target
  Jump,
  Exit
};

struct Step {
  Do act = Do::Exit;
  const ir::Op *op = nullptr;
  bool elected = false;            // by one thread of the role's first warp
  int slots = -1, slot = -1;       // number of the buffer's first slot among all, and the term that is added
  int barriers = -1, barrier = -1; // the same of mbarriers
  int slot_count = 0, barrier_count = 0;
  int64_t count = 1, bytes = 0, pending = 0;
  bool noinc = false, expects = false;
  int value = -1; // term: of the parity, or of the condition of a Test
  int state = -1; // variable
  int stream = -1;
  int target = 0;
  std::vector<std::pair<int, int>> assign; // variable, term; -1: it ends
};

struct ByHandRole {
  std::string name;
  int64_t warps = 0;
  std::vector<Step> code;
};

struct ByHandProgram {
  std::vector<ByHandRole> roles;
  std::vector<Term> terms;
  std::vector<std::string> slot_names, barrier_names; // "s[1]": of every slot and mbarrier
  // Of variables: counters of one group are lowered together, by multiples of `period`, while all stay at `least`.
  struct Variable {
    bool state = false; // of an arrival: mbarrier * 4 + how many phases have ended since, at most 2
    int group = -1;     // -1: followed as it is
  };
  struct Group {
    int64_t period = 1, least = 0;
  };
  std::vector<Variable> vars;
  std::vector<Group> groups;
  int streams = 0;
  std::vector<std::pair<int, int64_t>> initialised; // mbarriers before roles start, and their counts
};

// A function after allocation of shared memory. On failure `obstacle` says why.
std::optional<ByHandProgram> extract_by_hand(const ir::Function &f, Obstacle &obstacle);

// The value of a term; nullopt: a variable of it has none, or a division by zero.
std::optional<int64_t> evaluate(const std::vector<Term> &terms, int term, const int32_t *vars);
constexpr int32_t kNoValue = INT32_MIN;

} // namespace tkc::passes::protocol
