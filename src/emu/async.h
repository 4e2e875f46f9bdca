// Asynchronous copies in flight, and the mbarrier state machine.
//
// A copy is issued by a thread, moves its bytes at a moment that the policy chooses, and is complete for a thread only
// when that thread has learnt of it: through cp.async.wait_group, cp.async.bulk.wait_group or a completed mbarrier phase.
// In terms of clocks.h a copy's accesses are stamped in a stream: one of the issuing thread for each kind of group, one of
// the mbarrier for copies that complete on it; the wait teaches the stream's stamp.
#pragma once
#include "emu/clocks.h"
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

namespace tkc::emu {

struct Block;
struct Cluster;
struct Warp;

struct Mbarrier {
  int64_t expected = 0, pending = 0; // arrivals
  int64_t tx = 0;                    // bytes expected and not yet complete; may be negative for a while
  uint64_t phase = 0;                // number of completed phases
  uint32_t stream = 0;               // of copies that complete here; stamped phase + 1
  View arriving;                     // released by the arrivals of the current phase
  View released;                     // by those of the last completed one
  int64_t drop = 0;                  // arrive_drop: fewer arrivals expected from the next phase on
};
constexpr int64_t kMostArrivals = (1 << 20) - 1;

struct Piece {
  uint64_t from = 0, to = 0; // generic addresses, shared ones with the rank of the CTA; from = 0: zeros
  int64_t bytes = 0;
};

struct Copy {
  enum class Kind : uint8_t { CpAsync, ToShared, FromShared, ReduceFromShared, ArriveCopies };
  Kind kind = Kind::CpAsync;
  Warp *warp = nullptr; // who issued it
  int lane = 0;
  int32_t pc = 0;
  std::vector<Piece> pieces;
  std::function<void(uint8_t *, const uint8_t *, int64_t)> reduce; // ReduceFromShared: destination op= source
  uint32_t stream = 0, stamp = 0;
  Block *barrier_block = nullptr; // complete_tx (ToShared) or arrive (ArriveCopies) there
  uint32_t barrier = 0;
  int64_t tx = 0;
  View view;         // ArriveCopies: what the arrive releases
  uint64_t after = 0; // ArriveCopies: the thread's copies up to this stamp come first
};

// The groups of one thread: stamps of a stream count copies, a group ends at a stamp.
struct CopyGroups {
  uint32_t stream = 0; // 0 = none issued yet
  uint32_t issued = 0; // stamp of the last copy
  std::vector<uint32_t> group_ends;
  uint32_t committed = 0; // stamp up to which copies belong to a group
};

class Async {
public:
  bool pending() const { return !copies_.empty(); }
  void issue(Cluster &cluster, Copy copy); // completes at once under Policy::Eager
  // Completes one copy chosen by the policy; false if there is none that may complete.
  bool complete_one(Cluster &cluster);
  // Completes the thread's copies of a stream up to the stamp.
  void complete_stream(Cluster &cluster, const Warp &warp, int lane, uint32_t stream, uint32_t stamp);
  const std::vector<Copy> &copies() const { return copies_; }

  CopyGroups &groups(const Warp &warp, int lane) { return groups_[{&warp, lane}]; }
  CopyGroups &bulk_groups(const Warp &warp, int lane) { return bulk_groups_[{&warp, lane}]; }
  bool any_groups() const { return !groups_.empty() || !bulk_groups_.empty(); }

private:
  void perform(Cluster &cluster, size_t k);
  bool may_complete(const Copy &copy) const;
  std::vector<Copy> copies_; // in order of issue
  std::map<std::pair<const Warp *, int>, CopyGroups> groups_, bulk_groups_;
};

// The arrivals and transactions of an mbarrier; false after a reported error. `lane` and `warp` are who does it.
bool mbarrier_arrive(Block &block, Mbarrier &m, int64_t count, Warp &warp, int lane);
bool mbarrier_add_tx(Mbarrier &m, int64_t bytes, Warp &warp, int lane); // negative: complete_tx
void mbarrier_check_phase(Block &block, uint32_t address, Mbarrier &m);

} // namespace tkc::emu
