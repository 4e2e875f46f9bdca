// The state of an exploration by hand: one vector of integers.
#pragma once
#include "passes/by_hand_program.h"

namespace tkc::passes::protocol {

using ByHandCells = std::vector<int32_t>;

// What is ordered behind an access.
using Order = uint64_t;
constexpr int kMostAgents = 16, kMostBarriers = 23;
constexpr Order kOwnLane = Order(1) << kMostAgents; // the thread that made the access, in program order
inline Order bit(int agent) { return Order(1) << agent; }
inline Order arrived(int barrier) { return Order(1) << (kMostAgents + 1 + 2 * barrier); } // in its current phase
inline Order over(int barrier) { return arrived(barrier) << 1; }                          // in the phase before

constexpr int32_t kNever = 0, kDone = 1, kOpen = 2, kBulk = 100; // kOpen + n: n groups were committed since; kBulk +
                                                                 // barrier: completes there

// Views into the cells.
class AccessRef {
public:
  explicit AccessRef(int32_t *p) : p_(p) {}
  int32_t &flight() const { return p_[0]; }
  Order known() const { return get(1); }
  void set_known(Order o) const { put(1, o); }
  Order fenced() const { return get(3); }
  void set_fenced(Order o) const { put(3, o); }
  bool any() const { return p_[0] != kNever; }
  void assign(const AccessRef &o) const { std::copy(o.p_, o.p_ + kCells, p_); }
  void clear() const { std::fill(p_, p_ + kCells, 0); }
  static constexpr int kCells = 5;

protected:
  Order get(int i) const { return Order(uint32_t(p_[i])) | Order(uint32_t(p_[i + 1])) << 32; }
  void put(int i, Order o) const { p_[i] = int32_t(uint32_t(o)), p_[i + 1] = int32_t(uint32_t(o >> 32)); }
  int32_t *p_;
};
class WriteRef : public AccessRef {
public:
  using AccessRef::AccessRef;
  int32_t &kind() const { return p_[5]; } // Do::Store, Copy or Bulk
  int32_t &bytes() const { return p_[6]; }
  int32_t &tracked() const { return p_[7]; } // by the agent's so many-th arrival that is to come; 0: by none
  // While others of the role have yet to write: the agent's write before.
  AccessRef before() const { return AccessRef(p_ + 8); }
  void clear() const { std::fill(p_, p_ + kCells, 0); }
  static constexpr int kCells = 8 + AccessRef::kCells;
};
struct SlotRef {
  int32_t &step;    // 1 + the op that wrote last; 0: nobody did
  int32_t &writers; // bits: agents that take part
  int32_t &wrote;   // bits: those that have
};
struct BarrierRef {
  int32_t &live, &expected, &pending, &tx, &parity, &owner;
  AccessRef made; // its initialisation
};

class ByHandLayout {
public:
  explicit ByHandLayout(const ByHandProgram &p);
  int agents() const { return int(role_.size()); }
  int role(int agent) const { return role_[size_t(agent)]; }
  int64_t weight(int agent) const { return weight_[size_t(agent)]; } // warps
  Order members(int role) const { return members_[size_t(role)]; }
  bool first_of_role(int agent) const { return agent == 0 || role(agent - 1) != role(agent); }
  ByHandCells initial() const;

  static constexpr int kQueue = 6;
  int32_t *vars(ByHandCells &c, int agent) const { return &c[size_t(agent * agent_cells_ + 1)]; }
  int32_t &place(ByHandCells &c, int agent) const { return c[size_t(agent * agent_cells_)]; }
  // Arrivals that copies have yet to make, the oldest first: 2 * mbarrier + noinc.
  int32_t &queue_size(ByHandCells &c, int agent) const { return c[size_t(agent * agent_cells_ + 1 + vars_)]; }
  int32_t *queue(ByHandCells &c, int agent) const { return &queue_size(c, agent) + 1; }
  // Phases of an mbarrier that have ended since the agent saw one end, at most 3.
  int32_t &behind(ByHandCells &c, int agent, int barrier) const {
    return c[size_t(agent * agent_cells_ + 1 + vars_ + 1 + kQueue + barrier)];
  }
  BarrierRef barrier(ByHandCells &c, int b) const {
    int32_t *p = &c[barriers_at_ + size_t(b) * kBarrier];
    return {p[0], p[1], p[2], p[3], p[4], p[5], AccessRef(p + 6)};
  }
  SlotRef slot(ByHandCells &c, int s) const {
    int32_t *p = &c[slots_at_ + size_t(s) * slot_cells_];
    return {p[0], p[1], p[2]};
  }
  WriteRef write(ByHandCells &c, int s, int agent) const { return WriteRef(access(c, s, agent)); }
  AccessRef read(ByHandCells &c, int s, int agent) const { return AccessRef(access(c, s, agent) + WriteRef::kCells); }
  AccessRef bulk_read(ByHandCells &c, int s, int agent) const {
    return AccessRef(access(c, s, agent) + WriteRef::kCells + AccessRef::kCells);
  }
  int32_t &bits(ByHandCells &c, int stream) const { return c[stream_at(stream)]; }
  int32_t &length(ByHandCells &c, int stream) const { return c[stream_at(stream) + 1]; }
  int32_t &taken(ByHandCells &c, int stream, int agent) const { return c[stream_at(stream) + 2 + size_t(agent)]; }

private:
  static constexpr size_t kBarrier = 6 + size_t(AccessRef::kCells);
  int32_t *access(ByHandCells &c, int s, int agent) const {
    return &c[slots_at_ + size_t(s) * slot_cells_ + 3 + size_t(agent) * (WriteRef::kCells + 2 * AccessRef::kCells)];
  }
  size_t stream_at(int stream) const { return streams_at_ + size_t(stream) * (2 + role_.size()); }
  const ByHandProgram &p_;
  std::vector<int> role_;
  std::vector<int64_t> weight_;
  std::vector<Order> members_;
  int vars_ = 0, agent_cells_ = 0;
  size_t barriers_at_ = 0, slots_at_ = 0, slot_cells_ = 0, streams_at_ = 0, size_ = 0;
};

} // namespace tkc::passes::protocol
