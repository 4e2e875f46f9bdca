#include "passes/protocol_state.h"
#include <algorithm>

namespace tkc::passes::protocol {

Layout::Layout(const Skeleton &s) : s_(s), vars_(s.vars), rings_(int(s.rings.size())) {
  for (size_t r = 0; r < s.roles.size(); r++) {
    int16_t bits = 0;
    for (int64_t warps = s.roles[r].warps, k = 0; k < std::min<int64_t>(warps, 2); k++) {
      bits |= int16_t(1 << role_.size());
      role_.push_back(int(r));
      weight_.push_back(k == 0 ? 1 : warps - 1);
    }
    members_.push_back(bits);
  }
  for (const Ring &r : s.rings)
    if (r.mbarrier) queue_limit_ += int(r.stages) + 1;
  agent_cells_ = 2 + vars_ + rings_ + 2 * queue_limit_;
  size_ = role_.size() * size_t(agent_cells_);
  for (const Ring &r : s.rings) {
    ring_at_.push_back(size_);
    size_ += role_.size() * 3 + size_t(r.stages) * (4 + role_.size() * 8);
  }
  streams_at_ = size_;
  size_ += size_t(s.streams) * (2 + role_.size());
}

Cells Layout::initial() const {
  Cells c(size_, 0);
  for (int a = 0; a < agents(); a++) {
    for (int v = 0; v < vars_; v++) var(c, a, v) = kNone;
    for (int r = 0; r < rings_; r++)
      for (int k = 0; k < s_.rings[size_t(r)].stages; k++) {
        copy(c, r, k, a).item = kNone;
        copy(c, r, k, a).age = -1;
      }
  }
  return c;
}

} // namespace tkc::passes::protocol
