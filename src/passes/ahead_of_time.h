// What of a loop's body can be computed for a later iteration before this one has run.
#pragma once
#include "passes/effects.h"
#include "passes/passes.h"

namespace tkc::passes {

bool within(const ir::Op *op, const ir::Block *block);

// Whether a value inside a loop can be computed for a later iteration before this one has run: from the loop's counter,
// values from outside and loads of tensors that are never written.
class AheadOfTime {
public:
  AheadOfTime(const ir::Op &loop, const Writes &writes) : loop_(loop), writes_(writes) {}
  // Null if it can; else the value that stands in the way.
  const ir::Value *obstacle(const ir::Value *v) const { return recompute(v, loop_.regions[0]); }
  // The same for an iteration of a later tile: what depends on the tile is made again for it.
  const ir::Value *obstacle_for_tiles(const ir::Value *v) const { return recompute(v, tiles()); }
  // The same for another role, which has nothing but the kernel's parameters: everything it needs is made again there.
  const ir::Value *obstacle_for_role(const ir::Value *v) const { return recompute(v, nullptr); }
  // Why a load cannot run ahead; empty if it can.
  std::string reason(const ir::Op &load) const;

private:
  // The body of the loop over tiles that the loop stands in; null: there is none.
  const ir::Block *tiles() const { return over_tiles(loop_) ? loop_.block : nullptr; }
  // `scope`: what is outside of it is there. Null: nothing is.
  const ir::Value *recompute(const ir::Value *v, const ir::Block *scope) const;

  const ir::Op &loop_;
  const Writes &writes_;
};

// The place of a later iteration must not wrap around before the loop's end does: tiles are counted in 32 bits, and
// there are fewer than 2^31, as there are blocks.
bool has_small_step(const ir::Op &loop);

} // namespace tkc::passes
