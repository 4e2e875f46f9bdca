// The state of an exploration: one vector of small integers, so that it can be copied, compared and hashed as a whole.
#pragma once
#include "passes/protocol_skeleton.h"

namespace tkc::passes::protocol {

using Cells = std::vector<int16_t>;
constexpr int16_t kNone = INT16_MIN; // no item; a counter out of its scope

// Views into the cells.
// What a writer has put into a slot last.
struct Copy {
  int16_t &item;     // kNone: nothing, or it was overwritten
  int16_t &fields;   // bits
  int16_t &instance; // of the ring, 0 or 1
  int16_t &age; // -1: complete. By groups: 0 not yet published, k: k groups were published since, this one included.
                // By mbarriers: 0 not yet published, k: the k-th oldest of the agent's published items
  int16_t &visible; // bits: agents that may read it
};
// Reads of a slot by an agent, or accesses to its bytes through another buffer.
struct Mark {
  int16_t &state;  // 0: none that matters, 1: read, 2: and released, 3: and fenced before it was released
  int16_t &known;  // bits: agents whose later accesses are ordered behind it
  int16_t &fenced; // kFence: by its agent; bits: agents that are ordered behind that fence
};
constexpr int16_t kFence = 1 << 14;
struct Phase {
  int16_t &number;  // completed phases
  int16_t &arrived; // bits: agents
};

// Where things lie in the cells. Views are valid until the cells are copied.
class Layout {
public:
  explicit Layout(const Skeleton &s);

  int agents() const { return int(role_.size()); }
  int role(int agent) const { return role_[size_t(agent)]; }
  int64_t weight(int agent) const { return weight_[size_t(agent)]; } // warps
  int16_t members(int role) const { return members_[size_t(role)]; } // bits
  bool first_of_role(int agent) const { return agent == 0 || role(agent - 1) != role(agent); }
  Cells initial() const;
  size_t cells() const { return size_; }
  // What two agents have of their own, but for what they know of others: negative, 0 or positive as it is smaller, the
  // same or larger.
  int compare(const Cells &c, int a, int b) const;
  // The state in which agent a is where b is, and b where a is.
  void exchange(Cells &c, int a, int b) const;

  int16_t &place(Cells &c, int agent) const { return c[size_t(agent * agent_cells_)]; }
  int16_t &var(Cells &c, int agent, int v) const { return c[size_t(agent * agent_cells_ + 1 + v)]; }
  int16_t &instance(Cells &c, int agent, int ring) const { return c[size_t(agent * agent_cells_ + 1 + vars_ + ring)]; }
  // Published items whose copies have not completed, oldest first: (ring, item) pairs.
  int16_t &queue_size(Cells &c, int agent) const { return c[size_t(agent * agent_cells_ + 1 + vars_ + rings_)]; }
  int16_t *queued(Cells &c, int agent, int k) const { return &queue_size(c, agent) + 1 + 2 * k; }
  int queue_limit() const { return queue_limit_; }

  Phase full(Cells &c, int ring, int k) const { return {c[at(ring, k)], c[at(ring, k) + 1]}; }
  Phase empty(Cells &c, int ring, int k) const { return {c[at(ring, k) + 2], c[at(ring, k) + 3]}; }
  Copy copy(Cells &c, int ring, int k, int agent) const {
    int16_t *p = &c[at(ring, k) + 4 + size_t(agent) * 5];
    return {p[0], p[1], p[2], p[3], p[4]};
  }
  Mark read(Cells &c, int ring, int k, int agent) const {
    int16_t *p = &c[at(ring, k) + 4 + role_.size() * 5 + size_t(agent) * 3];
    return {p[0], p[1], p[2]};
  }
  Mark other(Cells &c, int ring, int agent) const {
    int16_t *p = &c[ring_at_[size_t(ring)] + size_t(agent) * 3];
    return {p[0], p[1], p[2]};
  }

  // Bits that were taken, oldest first.
  int16_t &bits(Cells &c, int stream) const { return c[stream_at(stream)]; }
  int16_t &length(Cells &c, int stream) const { return c[stream_at(stream) + 1]; }
  int16_t &taken(Cells &c, int stream, int agent) const { return c[stream_at(stream) + 2 + size_t(agent)]; }

private:
  size_t at(int ring, int k) const {
    return ring_at_[size_t(ring)] + role_.size() * 3 + size_t(k) * (4 + role_.size() * 8);
  }
  size_t stream_at(int stream) const { return streams_at_ + size_t(stream) * (2 + role_.size()); }

  const Skeleton &s_;
  std::vector<int> role_;
  std::vector<int64_t> weight_;
  std::vector<int16_t> members_;
  int vars_ = 0, rings_ = 0, queue_limit_ = 0, agent_cells_ = 0;
  std::vector<size_t> ring_at_;
  size_t streams_at_ = 0, size_ = 0;
};

} // namespace tkc::passes::protocol
