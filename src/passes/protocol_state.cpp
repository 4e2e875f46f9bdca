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

int Layout::compare(const Cells &c, int a, int b) const {
  auto of = [&](int agent) { return c.begin() + agent * agent_cells_; };
  auto [x, y] = std::mismatch(of(a), of(a) + agent_cells_, of(b));
  return x == of(a) + agent_cells_ ? 0 : *x < *y ? -1 : 1;
}

void Layout::exchange(Cells &c, int a, int b) const {
  auto ranges = [&](size_t at, size_t each) {
    auto first = c.begin() + int64_t(at);
    std::swap_ranges(first + int64_t(a * int(each)), first + int64_t((a + 1) * int(each)),
                     first + int64_t(b * int(each)));
  };
  auto bits = [&](int16_t &cell) {
    int x = cell >> a & 1, y = cell >> b & 1;
    if (x != y) cell = int16_t(cell ^ (1 << a | 1 << b));
  };
  auto marks = [&](size_t at) {
    ranges(at, 3);
    for (size_t k = 0; k < role_.size(); k++) bits(c[at + 3 * k + 1]), bits(c[at + 3 * k + 2]);
  };
  ranges(0, size_t(agent_cells_));
  for (int r = 0; r < rings_; r++) {
    marks(ring_at_[size_t(r)]);
    for (int k = 0; k < s_.rings[size_t(r)].stages; k++) {
      size_t slot = at(r, k);
      bits(c[slot + 1]), bits(c[slot + 3]); // who has arrived
      ranges(slot + 4, 5);
      for (size_t o = 0; o < role_.size(); o++) bits(c[slot + 4 + 5 * o + 4]); // to whom it is visible
      marks(slot + 4 + 5 * role_.size());
    }
  }
  for (int st = 0; st < s_.streams; st++) ranges(stream_at(st) + 2, 1);
}

} // namespace tkc::passes::protocol
