// Exploration of all runs of a program by hand (by_hand_program.h): breadth first over a finite set of states.
//
// Agents: one or two for each role. Two warps of a role stand for all of them, as they execute one program: the first
// agent is one warp, the second the others. What one thread does (`if elect()`) the first agent does.
//
// What is proven is that no two accesses of a slot conflict without an order, in any run; that arrivals and bytes fit
// what mbarriers expect; and that no run gets stuck. So every run computes what the interpreter computes, whose copies
// arrive at once.
//
// A state holds, for each agent, its place, its variables and its arrivals that copies have yet to make; for each
// mbarrier what its phase lacks; for each slot its last write and the reads since, by agent. Each of these accesses
// knows what is ordered behind it: the lane itself, all threads of an agent, and the arrivals of a phase of each
// mbarrier, which hand the order on to those that wait for it. Beside it, the same for those that a fence between the
// proxies stands on the way to.
//
// Copies in flight: of cp.async groups until a wait for the group; of what an mbarrier is told of, completion is a step
// of its own that may come at any later time. Counters are lowered by multiples of what the program can tell apart, so
// loops of any number of iterations have finitely many states.
//
// Steps: an agent executes what others cannot see in one go; operations on mbarriers, barriers and choices are steps of
// their own.
#pragma once
#include "passes/by_hand_program.h"
#include "passes/protocol_explore.h"

namespace tkc::passes::protocol {

Exploration explore_by_hand(const ByHandProgram &p, int64_t state_limit);

} // namespace tkc::passes::protocol
