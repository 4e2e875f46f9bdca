// Asynchronous copies in flight, and the mbarrier state machine.
//
// A copy is issued by a thread, moves its bytes at a moment that the policy chooses, and is complete for a thread only
// when that thread has learnt of it: through cp.async.wait_group, cp.async.bulk.wait_group or a completed mbarrier
// phase. In terms of clocks.h a copy's accesses are stamped in a stream: one of the issuing thread for each kind of
// group, one of the mbarrier for copies that complete on it. Stamps count the copies of a stream; a stream is complete
// up to a stamp when all copies up to it are.
#pragma once
#include "emu/clocks.h"
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace tkc::emu {

struct Block;
struct Cluster;
struct Warp;

constexpr int64_t kMostArrivals = (1 << 20) - 1; // also of bytes in tx, both ways

struct Mbarrier {
  int64_t expected = 0, pending = 0; // arrivals
  int64_t tx = 0;                    // bytes expected and not yet complete; may be negative for a while
  uint64_t phase = 0;                // number of completed phases
  View arriving;                     // released by the arrivals of the current phase
  View released;                     // by those of all completed ones
  uint32_t stream = 0;               // of the copies that complete here
  uint32_t phases = 0;               // component: its stamp is the number of phases known to be complete
  uint32_t issued = 0;               // copies
  int32_t unfenced = -1;             // thread that has initialised it and executed no fence for the other proxy since
  std::set<uint32_t> in_flight;      // stamps of those not complete
  std::map<int32_t, int64_t> seen;   // thread (clock warp * 32 + lane) -> phase after the last that it saw complete
};

// One copy of a thread that belongs to a cp.async group.
struct SmallCopy {
  uint8_t *to;
  const uint8_t *from;
  uint8_t bytes, source_bytes; // the rest is zero
  uint32_t stamp;
};

// A bulk copy, or the arrive that follows a thread's cp.asyncs.
struct Copy {
  enum class Kind : uint8_t { ToShared, FromShared, ArriveCopies };
  Kind kind = Kind::ToShared;
  Warp *warp = nullptr; // who issued it, where
  int lane = 0;
  int32_t pc = 0;
  std::function<void()> read;  // FromShared: takes the source bytes
  std::function<void()> write; // the rest
  bool was_read = false;
  uint32_t stamp = 0; // in the stream of the mbarrier (ToShared), of the thread's bulk copies (FromShared), of
                      // its cp.asyncs that come first (ArriveCopies)
  Block *barrier_block = nullptr; // ToShared: complete_tx there; ArriveCopies: arrive there
  uint32_t barrier = 0;
  int64_t tx = 0;
};

struct CopyGroups {
  uint32_t issued = 0;             // stamp of the last copy
  std::deque<uint32_t> group_ends; // stamps of the groups that may be pending
};
struct ThreadCopies {
  CopyGroups small, bulk;
  std::deque<SmallCopy> pending; // of small
};

class Async {
public:
  void issue(Cluster &cluster, Copy copy);
  void issue_small(Cluster &cluster, int32_t thread, const SmallCopy &copy);
  // Completes one copy that may let a waiting thread go on, chosen by the policy; false if there is none.
  bool complete_one(Cluster &cluster);
  // A random step of any copy (Policy::Random).
  void step(Cluster &cluster);
  void complete_small(int32_t thread, uint32_t stamp);
  // The thread's bulk copies up to the stamp have read their sources, and, unless read_only, written.
  void complete_bulk(int32_t thread, uint32_t stamp, bool read_only);
  void complete_all(Cluster &cluster);
  bool pending() const { return !copies_.empty() || small_pending_ > 0; }
  ThreadCopies &thread(int32_t thread) { return threads_[thread]; }
  const std::map<int32_t, ThreadCopies> &threads() const { return threads_; }

private:
  void complete(Cluster &cluster, size_t k);
  std::vector<Copy> copies_;                // in order of issue
  std::map<int32_t, ThreadCopies> threads_; // by clock warp * 32 + lane
  int64_t small_pending_ = 0;
};

// ---- mbarrier operations. They report faults at the warp's current instruction and then return false.
Mbarrier *find_mbarrier(Block &block, uint32_t address, Warp &warp, int lane);
bool mbarrier_arrive(Block &block, uint32_t address, Mbarrier &m, int64_t count, Warp &warp, int lane);
bool mbarrier_add_tx(Block &block, uint32_t address, Mbarrier &m, int64_t bytes, Warp &warp, int lane);

// At the end of a cluster: copies whose completion no thread waited for, transactions that never came.
void check_copies_at_exit(Cluster &cluster);

} // namespace tkc::emu
