// A cluster of blocks (nearly always one block): the unit that is scheduled. Its blocks share clocks, because they may
// share memory (DSMEM) and barriers.
#pragma once
#include "emu/async.h"
#include "emu/exec.h"
#include "emu/global_shadow.h"
#include <map>

namespace tkc::emu {

struct Barrier {
  int64_t expected = 0; // threads; 0 = not in use
  int64_t arrived = 0;
  bool everyone = false; // no count given: all warps that have not exited
  View view;
  struct Waiter {
    int32_t warp;
    uint32_t lanes;
  };
  std::vector<Waiter> waiters;
  bool red_and = true, red_or = false;
  int64_t red_count = 0;
};

struct Cluster;

struct Block {
  Cluster *cluster = nullptr;
  const Grid &grid;
  int64_t index = 0; // linear in the grid
  int64_t ctaid[3] = {};
  int32_t rank = 0; // in the cluster
  std::vector<Warp> warps;
  std::vector<uint8_t> shared;
  int64_t shared_bytes = 0; // end of the last shared variable
  Shadow shadow;
  std::array<Barrier, 16> barriers;
  std::map<uint32_t, Mbarrier> mbarriers; // by shared address
  std::vector<Error> errors;
  std::set<std::pair<ErrorKind, int32_t>> reported;
  std::string printed;
  int64_t instructions = 0;
  bool stopped = false;

  Block(Cluster &cluster, int64_t index, int32_t rank);
  bool exited() const;
  void thread_id(const Warp &w, int lane, int64_t out[3]) const;
  int32_t clock_index(const Warp &w) const { return rank * int32_t(grid.warps) + w.index; }

  // exec_sync.cpp
  void arrive(int32_t id, Warp &w, uint32_t lanes, int64_t count, bool wait);
  void complete_barrier(int32_t id);
  void warp_exited(); // barriers that wait for everyone may be complete now
  std::string describe_waits() const;

private:
  std::unique_ptr<uint64_t[]> registers_;
  std::vector<uint32_t> predicates_;
  std::vector<uint8_t> local_;
  void start_warp(Warp &w);
};

struct Random {
  uint64_t state;
  uint64_t next() { // splitmix64
    uint64_t z = (state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  int64_t below(int64_t n) { return int64_t(next() % uint64_t(n)); }
};

struct Cluster {
  const Grid &grid;
  Clocks clocks;
  Random random;
  std::vector<std::unique_ptr<Block>> blocks;
  Async async;
  GlobalShadow global_shadow;
  View exit_view;                      // of all threads that have exited
  std::map<uint64_t, View> sync_views; // what strong stores and atomics released, by generic address
  // barrier.cluster
  uint32_t cluster_generation = 0; // completed barriers
  View cluster_view, cluster_released;
  uint64_t progress = 0; // grows with every event that may let a waiting thread go on
  int64_t polls = 0;     // turns that ended in spinning, since the last pause

  Cluster(const Grid &grid, int64_t first_block, int64_t size);
  enum class State : uint8_t { Finished, Paused };
  // Runs until all blocks have ended, or (unless it runs alone) for a while.
  State run(bool may_pause);
  bool stopped() const;
  // All that can run has polled in vain for long, and no event has come in between.
  bool hopeless() const { return hopeless_rounds_ > 64; }
  void take_heart() { hopeless_rounds_ = 0; }
  void report_deadlock();
  std::vector<Warp *> all_warps;

private:
  Warp *choose();
  bool unblock();       // nothing can run: complete a copy, wake pollers, give up reconvergence; false = deadlock
  bool help_spinning(); // the same when all that can run only polls
  bool answer_pollers();
  size_t last_ = 0;
  int64_t idle_rounds_ = 0;
  uint64_t idle_progress_ = 0;
  int64_t hopeless_rounds_ = 0;
  uint64_t hopeless_progress_ = 0;
};

inline uint64_t generic_shared(const Block &b, uint32_t address) {
  return kSharedWindow + (uint64_t(b.rank + 1) << 24) + address;
}

// Completes barrier.cluster if all threads of the cluster that are left have arrived. exec_sync.cpp
void check_cluster_barrier(Cluster &cluster);

} // namespace tkc::emu
