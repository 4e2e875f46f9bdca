// The roles of a kernel as coroutines: one runs at a time, in their order, until it must wait for another. A ring is a
// queue of at most its number of slots (2 if the compiler chooses).
#pragma once
#include "interp/interp.h"
#include <condition_variable>
#include <deque>
#include <map>

namespace tkc::interp {

using RingItem = std::vector<Tile>; // a tile for each field

class Roles {
public:
  explicit Roles(const ir::Op &roles);
  // What an op of a role does; the role waits inside. If no role can go on, each that waits gets a trap.
  void push(Ctx &ctx, const ir::Op &push, RingItem item);
  void pop(Ctx &ctx, const ir::Op &pop);
  const RingItem &item(const Ctx &ctx, const ir::Op &pop) const { return held_[ctx.role()].at(&pop); }

  // Waits until `ready`, which what another role does may make true; `what` for the trap if that never comes.
  void await(Ctx &ctx, const ir::Op &op, const std::string &what, const std::function<bool()> &ready);

  void run(Ctx &ctx);

private:
  struct Queue {
    size_t slots = 2;
    int64_t pushed = 0;
    std::deque<RingItem> items;       // the last that were pushed: those that some reader has not popped
    std::map<size_t, int64_t> popped; // by reading role
    int64_t waiting(size_t role) const { return pushed - popped.at(role); }
  };
  Queue &queue(const ir::Op &op) { return queues_.at(op.operand(0)); }
  // Lets the others run until `ready`; false, after a trap, if that never comes.
  template <typename Ready> bool wait(Ctx &ctx, const ir::Op &op, const std::string &what, Ready &&ready);
  void next_turn();
  void body(Ctx &ctx, size_t role);

  const ir::Op &op_;
  std::map<const ir::Value *, Queue> queues_;            // by ring
  std::vector<std::map<const ir::Op *, RingItem>> held_; // by role: the item of each pop that ran last
  std::mutex lock_;
  std::condition_variable turns_;
  size_t turn_ = 0;
  std::vector<bool> ended_;
  size_t idle_ = 0; // turns since a role has got on
  bool stuck_ = false;
  size_t culprit_ = SIZE_MAX; // the first role with a fault; those that wait for it then have one too
};

void run_roles(Ctx &ctx, const ir::Op &roles);

} // namespace tkc::interp
