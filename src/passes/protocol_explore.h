// Exploration of all runs of a skeleton (protocol_skeleton.h): breadth first over a finite set of states.
//
// Agents: one or two for each role. Two warps of a role stand for all of them, as they execute one program: the first
// agent is one warp, the second the others.
//
// A state holds, for each agent, its place, its counters and its copies that have not completed; for each slot of a
// ring what every agent put there (item, fields, in flight or complete, visible to whom) and who has read it unknown to
// whom; the phases of mbarriers with those that have arrived; and the bits of the streams that some agent has taken and
// another has not. All counters of a ring are lowered together by multiples of 2 S once every agent is past them, so
// loops of any number of iterations have finitely many states. Loops choose their number of iterations freely.
//
// Copies: a copy in flight may complete at any later time. By cp.async groups this matters only to waits, so a copy
// stays in flight until a wait ends it; by mbarriers completion is a step of its own, in order of publication.
//
// By tma one thread of the role's first warp starts the copies of an item and publishes it: the other agents pass these
// ops. What a publish expects must be what the item's copies bring, so the phase ends when they have completed. A copy
// of the asynchronous proxy to a slot must be ordered not only behind the reads of what was there, but behind a proxy
// fence of each reader after its read.
//
// Steps: an agent that passes a blocking op also executes everything up to its next one. Accesses of slots are not
// judged by when they happen but by what is ordered before what (each access knows which agents are ordered behind it),
// so a race shows in every order of its two accesses.
#pragma once
#include "passes/protocol_skeleton.h"

namespace tkc::passes::protocol {

// What the mbarriers of a ring are initialised to, and what arrives: ops/ring_lower.cpp.
struct Counts {
  int64_t full_init = 0, full_arrivals = 0;   // a producer warp's arrivals at `full` for an item
  int64_t empty_init = 0, empty_arrivals = 0; // a reading warp's arrivals at `empty`
  int64_t tma_init = 0, tma_arrivals = 0;     // of `full` by tma: those of the warp that starts the copies
};

struct Entry {
  int agent = 0;
  const ir::Op *op = nullptr;
  std::string text; // "acquire ring 0 item 4 slot 1"
};

struct Exploration {
  enum class End : uint8_t { Proven, Broken, Unproven } end = End::Proven;
  char condition = ' '; // of the list in prove_protocol.h
  std::string text;
  const ir::Op *op = nullptr;
  std::vector<std::string> agents; // names
  std::vector<Entry> timeline;     // the shortest run that breaks the condition
  int64_t states = 0;
};

// `counts`: by ring.
Exploration explore(const Skeleton &s, const std::vector<Counts> &counts, int64_t state_limit);

} // namespace tkc::passes::protocol
