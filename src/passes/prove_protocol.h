// Proves that the asynchronous copies of a kernel are safe, on the IR that code generation gets. It shares no code with
// the passes that schedule loops, rewrite them and place barriers, and it cannot be skipped.
//
// What is proven, for every number of iterations of every loop and every interleaving of warps and copies:
//   a  a slot is overwritten only after every warp has read what it reads of it, and not while a copy is in flight to
//   it
//
//   b  an item is read only from a slot that holds it, after its copies have completed and are visible to the reader
//
//   c  each phase of an mbarrier gets the arrivals that its count expects, each warp's once, in the item's phase; what
//   is
//      published is what was copied
//
//   d  no wait names a phase that its parity cannot tell from another: only the current one and the one before
//   e  a copy by the asynchronous proxy (tma) to a slot is ordered behind a proxy fence of every warp that has read the
//      slot, after its read; what copies bring is counted as what their publish expects (c)
//   f  no ring op or barrier is under control that warps of its role decide differently: conditions and bounds are
//      block-uniform values, and loops of two roles run equally often only where their bounds are equal expressions
//   g  nothing is in flight when a warp (copies by groups) or the block (by mbarriers) ends
//   h  no deadlock
//   i  mbarriers are initialised before the block barrier at which roles start, or before one that stands ahead of
//   their
//      first use; nothing else lies in their bytes
//   j  copies and reads of rings do not race with another buffer or ring in the same bytes, back edges included
//   k  all warps of a role, and no others, meet at each barrier
//   l  every item that a role publishes is read and released by every role that reads the ring
// Of buffers and mbarriers that a kernel makes by hand (by_hand_explore.h) the same holds, with slots for items: a, b,
// c, d, e, g, h, k; i for each mbarrier, wherever it is initialised; j for all accesses of a slot. They share no bytes.
// `inline_ptx` that synchronises or copies asynchronously is rejected in every kernel.
// Races between buffers that are no rings are the verifier's (ir/verify_shared.cpp). A kernel with rings by tma has two
// entries that copy differently (ops/ring.cpp): both are proven.
//
// What is assumed: lowering keeps to the ops' meaning (the emulator checks the PTX); two warps of a role stand for all
// of them; the place in global memory that a fill names is right (the interpreter and the emulator check results); u32
// counters and loop counters do not wrap around.
#pragma once
#include "passes/pass_manager.h"
#include "passes/protocol_explore.h"
#include <functional>

namespace tkc::passes {

struct ProtocolProof {
  enum class Verdict : uint8_t { Proven, Broken, Unproven } verdict = Verdict::Proven;
  char condition = ' '; // of the list above, if broken
  std::string text;     // "slot 1 of ring 0 is overwritten ..."
  SourceLoc loc;
  std::string timeline; // the shortest run that breaks the condition: a table with a column for each agent
  int64_t states = 0;   // that were explored
};

// The counts that a ring's mbarriers are lowered with.
protocol::Counts arrival_counts(const protocol::Ring &ring);
using ArrivalCounts = std::function<protocol::Counts(const protocol::Ring &)>;
// `f` is allocated. `sources` gives the timeline its lines; null: none.
ProtocolProof prove_protocol(const ir::Function &f, const SourceManager *sources);
// `states`: more are not explored; what is then not decided is unproven.
ProtocolProof prove_protocol(const ir::Function &f, const SourceManager *sources, const ArrivalCounts &counts,
                             int64_t states = PassOptions().proof_states);

// The pass: reports [protocol-broken] or [unproven-protocol].
bool prove_protocol_pass(ir::Function &f, PassContext &context);

} // namespace tkc::passes
