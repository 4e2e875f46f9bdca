// What a block makes in its shared memory by hand: buffers and mbarriers, as values of the ops that made them.
//
// Copies arrive at once: in a program that the proof accepts (passes/prove_protocol.h) no read can tell. What waits is
// the state of mbarriers alone, across roles as in a role by itself.
#pragma once
#include "interp/interp.h"

namespace tkc::interp {

struct BlockMemory {
  std::vector<std::optional<Tile>> slots; // of a buffer; empty: never written

  struct Mbarrier {
    bool live = false;
    int64_t expected = 0, pending = 0, tx = 0, phase = 0; // phase: how many have completed
  };
  std::vector<Mbarrier> barriers;
};

// Of the place number `which` of an op; null after a trap: there is no such slot.
std::optional<Tile> *slot_of(Ctx &ctx, const ir::Op &op, int64_t which);
// A live mbarrier; null after a trap.
BlockMemory::Mbarrier *mbarrier_of(Ctx &ctx, const ir::Op &op, int64_t which);
// How many threads execute the op.
int64_t threads_of(const ir::Op &op);
// Arrivals, after `bytes` more are expected (negative: have arrived); a trap if the phase expects fewer.
void arrive(Ctx &ctx, const ir::Op &op, BlockMemory::Mbarrier &m, int64_t arrivals, int64_t bytes);
// Waits until `phase` phases have completed or, with `parity`, the current phase has another parity than `phase`.
void wait_phase(Ctx &ctx, const ir::Op &op, const BlockMemory::Mbarrier &m, int64_t phase, bool parity);

} // namespace tkc::interp
