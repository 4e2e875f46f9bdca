// What is left of a kernel for the proof of its asynchronous protocol: for each role a flat program of synchronisation
// ops, accesses of rings, jumps and the counters that name items. Everything else (values of tiles, addresses in global
// memory) is dropped.
//
// A counter is a scalar that a loop carries, plus a constant; any other counter is a fault of the kernel. A branch (of
// a loop or `if`) takes one bit of a stream. Agents that execute the same op read the same stream, since conditions and
// bounds are block-uniform; loops of two roles read one stream if they touch a common ring and their bounds are equal
// expressions of the kernel's parameters.
#pragma once
#include "ir/ir.h"

namespace tkc::passes::protocol {

// env[var] + add; var < 0: the constant `add`.
struct Counter {
  int var = -1;
  int64_t add = 0;
  bool operator==(const Counter &) const = default;
};

// The warps of the role that fills a ring, and of those that read it; what it fills it by.
struct Sides {
  int64_t producers = 0, readers = 0;
  bool copies = false, stores = false;
};

struct Ring {
  const ir::Op *op = nullptr; // ring_alloc
  int64_t stages = 0;
  bool mbarrier = false;      // waits are for mbarriers, else for cp.async groups
  bool producer = false;      // a role copies; its slots are acquired and released
  bool tma = false;           // one thread copies, by the asynchronous proxy
  int64_t barriers = -1;      // where its mbarriers lie; -1: it has none
  int64_t begin = 0, end = 0; // bytes of shared memory
  std::vector<int> overlaps;  // other rings that share bytes
  int period = 0;             // counters may be lowered by multiples of it: a multiple of 2 stages
  int component = 0;          // rings that share counters have one number
  Sides sides;
};

enum class Act : uint8_t {
  Fill,    // ring, counter, field; enabled: always, or if an iteration exists. A copy, or plain stores
  Publish, // ring, counter
  Acquire, // ring, counter; blocks
  Wait,    // ring, counter, pending; blocks
  Load,    // ring, counter, field
  Release, // ring, counter
  Barrier, // of the role's warps; blocks
  Fence,   // between the proxies, of what the agent has done
  Touch,   // another buffer's access to bytes of `touched` rings; writes
  NewRing, // ring: the same bytes hold the items of a fresh ring
  Assign,  // counters at the edges of loops; var, value pairs, at once
  Branch,  // next bit of the stream: 1 goes on, 0 jumps to target
  Test,    // counter < limit goes on, else jumps to target
  Jump,
  Exit
};

struct Instr {
  Act act = Act::Exit;
  const ir::Op *op = nullptr;
  int ring = -1;
  Counter counter;
  int field = 0;
  int64_t pending = 0;
  int64_t bytes = 0; // by tma: that a Fill brings, that a Publish expects
  // Fill, or Publish by tma, with a stream: enabled if the loop has the iteration. Inside the loop, `ahead` more than
  // the one that follows
  // (< 0: it is this one or earlier); before it, iteration number `iteration`.
  int ahead = -1;
  std::optional<Counter> iteration;
  int stream = -1;
  int target = 0;     // of Branch, Test and Jump
  int64_t limit = 0;  // of Test
  bool stops = false; // Branch: others may run in between, as no op of the body waits for them
  bool writes = false;
  std::vector<int> touched;
  std::vector<std::pair<int, std::optional<Counter>>> assign; // nullopt: the variable ends
};

struct Role {
  std::string name; // of its warps, for reports
  int64_t warps = 0;
  std::vector<Instr> code;
};

struct Skeleton {
  std::vector<Ring> rings;
  std::vector<Role> roles; // one for all warps, or those of the kernel
  int vars = 0;
  std::vector<int> component; // per variable: a ring whose items it counts
  int streams = 0;
  std::string mismatch; // loops of two roles over one ring whose bounds are not equal expressions
};

// What stands in the way of a proof.
struct Obstacle {
  const ir::Op *op = nullptr;
  std::string text;
};

// A function after allocation of shared memory, as the entry with tensor copies runs it or the one without. On failure
// `obstacle` says why.
std::optional<Skeleton> extract(const ir::Function &f, bool tensor_copies, Obstacle &obstacle);

} // namespace tkc::passes::protocol
