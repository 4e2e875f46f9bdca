// Execution state: a grid, its blocks, their warps. A warp runs one split (lanes that share a program counter) at a
// time.
//
// Divergence: a branch whose lanes disagree opens a Reconvergence at the branch's immediate post-dominator; each side
// becomes a split and waits there for the others. That is as converged as a GPU can be expected to be, so an .aligned
// instruction reached by fewer lanes than the warp has left is an error. Progress does not depend on it: when nothing
// else can run, lanes that wait for reconvergence go on without the others, as independent thread scheduling allows.
#pragma once
#include "emu/clocks.h"
#include "emu/module.h"
#include "emu/shadow.h"
#include <bit>
#include <fmt/format.h>
#include <set>

namespace tkc::emu {

struct Block;

struct Grid {
  const Module &module;
  const Program &program;
  Memory &memory;
  const Launch &launch;
  const Options &options;
  std::vector<uint64_t> symbols;  // addresses of Program::symbols
  int64_t threads = 0, warps = 0; // a block
  bool parallel = false;          // several host threads run blocks at once
};

struct Reconvergence {
  int32_t pc = -1;
  uint32_t members = 0, arrived = 0;
  int32_t parent = -1, frame = -1;
  bool open = false;
};
struct Frame {
  int32_t return_pc = -1, parent = -1;
};

enum class Waiting : uint8_t { No, Barrier, WarpSync, Mbarrier, ClusterBarrier };
struct Split {
  uint32_t mask = 0;
  int32_t pc = 0;
  int32_t reconvergence = -1, frame = -1;
  Waiting waiting = Waiting::No;
  uint32_t lanes = 0;   // of mask that execute the instruction waited at (its guard)
  uint32_t object = 0;  // barrier id, or the address of the mbarrier
  uint64_t phase = 0;   // Mbarrier: completes when that phase has
  bool not_yet = false; // the poll waited for is to be answered with false
};

struct Warp {
  Block *block = nullptr;
  uint32_t *regs = nullptr;
  uint32_t *preds = nullptr;
  uint8_t *local = nullptr; // lane-major, Program::local_bytes each
  int32_t index = 0;
  uint32_t present = 0;            // lanes with a thread
  uint32_t live = 0;               // lanes that have not exited
  uint32_t carry = 0;              // CC.CF by lane
  uint32_t cluster_arrived = 0;    // lanes that have arrived in the current generation of barrier.cluster
  uint32_t cluster_pending = 0;    // lanes that have arrived and not waited yet
  uint32_t cluster_generation = 0; // in which they arrived

  // The running split.
  uint32_t active = 0;
  int32_t pc = 0; // of the next instruction
  int32_t at = 0; // of the instruction being executed
  int32_t reconvergence = -1, reconverge_pc = -1, frame = -1;
  bool not_yet = false;   // Split::not_yet of the running split, until its poll is executed again
  bool scattered = false; // reconvergence was given up, and the lanes have not been together since
  uint32_t waited = 0;    // lanes that have passed griddepcontrol.wait
  bool suspended = false; // the running split must leave: it waits, has ended, or the block has stopped

  std::vector<Split> splits; // the others
  std::vector<Reconvergence> reconvergences;
  std::vector<Frame> frames;
  Allocation *last_allocation = nullptr; // of global memory, to find the next access faster
  int64_t executed = 0;                  // instructions of this warp
  int64_t quantum = 0;                   // instructions left of this turn

  // Strong loads and atomics that give the same values again and again are polls: the warp waits for somebody.
  std::vector<std::pair<int32_t, uint64_t>> polled; // instruction -> hash of what it last gave
  int64_t stale_polls = 0;
  bool spins() const { return stale_polls >= 64; }

  template <typename T> T *row(uint32_t at) { return reinterpret_cast<T *>(regs + at); }
  const Inst &inst() const;

  // Reports once for each kind and instruction; stops the block if the kind is fatal. The lane gives thread and is -1
  // for none.
  void error(ErrorKind kind, int lane, uint64_t address, const std::string &message);
  bool reported(ErrorKind kind) const;

  // warp.cpp
  void run(int64_t instructions);
  bool select_split(); // loads a runnable split, false if there is none
  void store_split();  // puts the running split back
  void branch(uint32_t taken, int32_t target, int32_t meet);
  void multiway_branch(const uint32_t *targets, uint32_t lanes, int32_t meet); // targets by lane
  void call(int32_t target, uint32_t lanes);
  void ret(uint32_t lanes);
  void exit(uint32_t lanes);
  void wait(Waiting why, uint32_t lanes, uint32_t object = 0, uint64_t phase = 0); // at the current instruction
  bool runnable() const;
  bool release_reconvergence(); // lets parked lanes go on unmerged; false if none is parked
  // .aligned: true if all live lanes execute the instruction, else reports. After reconvergence has been given up it is
  // no fault of the program that lanes come one after the other: they are gathered here, and false only means "not
  // yet".
  bool converged(uint32_t mask, bool all_present);
  // Member masks by lane (a row) of a .sync instruction executed by `lanes`. Returns the lanes that may execute it now
  // (those of other splits that wait at the same instruction included), or 0 after suspending or reporting.
  uint32_t warp_sync(uint32_t lanes, const uint32_t *members);

private:
  void load_split(size_t k);
  bool reconverge();
  void gather();
  int32_t open_reconvergence(int32_t pc, uint32_t members);
  void drop_lanes(uint32_t lanes); // from every open reconvergence
  void set_reconvergence(int32_t node);
};

inline int first_lane(uint32_t mask) { return std::countr_zero(mask); }

template <typename F> inline void each_lane(uint32_t mask, F f) {
  for (; mask; mask &= mask - 1) f(std::countr_zero(mask));
}

} // namespace tkc::emu
