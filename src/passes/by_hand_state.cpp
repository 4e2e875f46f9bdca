#include "passes/by_hand_state.h"

namespace tkc::passes::protocol {

ByHandLayout::ByHandLayout(const ByHandProgram &p) : p_(p) {
  for (size_t r = 0; r < p.roles.size(); r++) {
    Order members = 0;
    for (int64_t left = p.roles[r].warps, k = 0; k < 2 && left > 0; k++) {
      members |= bit(int(role_.size()));
      role_.push_back(int(r));
      weight_.push_back(k == 0 ? 1 : left);
      left -= 1;
    }
    members_.push_back(members);
  }
  auto agents = role_.size();
  vars_ = int(p.vars.size());
  agent_cells_ = 1 + vars_ + 1 + kQueue + int(p.barrier_names.size());
  barriers_at_ = agents * size_t(agent_cells_);
  slots_at_ = barriers_at_ + p.barrier_names.size() * kBarrier;
  slot_cells_ = 3 + agents * size_t(WriteRef::kCells + 2 * AccessRef::kCells);
  streams_at_ = slots_at_ + p.slot_names.size() * slot_cells_;
  size_ = streams_at_ + size_t(p.streams) * (2 + agents);
}

ByHandCells ByHandLayout::initial() const {
  ByHandCells c(size_, 0);
  Order all = 0;
  for (int a = 0; a < agents(); a++) {
    all |= bit(a);
    std::fill_n(vars(c, a), vars_, kNoValue);
  }
  for (auto [b, count] : p_.initialised) { // and the roles start behind a barrier
    BarrierRef m = barrier(c, b);
    m.live = 1;
    m.expected = m.pending = int32_t(count);
    m.made.flight() = kDone;
    m.made.set_known(all | kOwnLane);
  }
  return c;
}

} // namespace tkc::passes::protocol
