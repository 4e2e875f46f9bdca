// Shadow of shared memory: for every byte the accesses that a later one may conflict with. A byte holds the number of
// an immutable State; states are made on demand and the step (state, access) -> state is remembered, so that a wide
// access to bytes of equal history costs one look-up.
#pragma once
#include "emu/clocks.h"
#include <cstdint>
#include <vector>

namespace tkc::emu {

enum class AccessKind : uint8_t {
  Read,
  Write,
  Atomic, // and strong (volatile, relaxed, acquire) loads: no race among each other
  StrongStore,
  CopyWrite,  // cp.async: generic proxy, but complete only when waited for
  AsyncRead,  // bulk copy from shared memory
  AsyncWrite, // bulk copy to shared memory
  Barrier,    // mbarrier instruction
  BarrierInit,
  BarrierInval,
};

struct Access {
  AccessKind kind = AccessKind::Read;
  uint16_t warp = 0;   // whose lanes access; of an asynchronous access: who issued it
  uint32_t lanes = 0;  // of that warp
  uint32_t stamp = 0;  // the warp's clock, or the position in the stream
  uint32_t stream = 0; // component of an asynchronous access; 0 = generic
  int32_t pc = 0;
};

class Shadow {
public:
  explicit Shadow(int64_t bytes) : state_(size_t(bytes)), states_(2), memo_(kMemo) { states_[1].written = true; }
  // More bytes, which have been written before; gives the offset of the first.
  int64_t append(int64_t bytes) {
    state_.resize(state_.size() + size_t(bytes), 1);
    return int64_t(state_.size()) - bytes;
  }

  enum class Fault : uint8_t { None, Uninitialised, Race, InFlight, ProxyFence, Object, NoObject };
  struct Conflict {
    Fault fault = Fault::None;
    int64_t offset = 0; // of the first byte
    Access other;       // the earlier access
  };
  // Notes the access and returns its first conflict. fence_before_overwrite: see Options.
  Conflict access(const Clocks &clocks, const Access &access, int64_t offset, int64_t bytes,
                  bool fence_before_overwrite);

private:
  struct State {
    bool written = false, object = false; // object: an mbarrier lives here
    std::vector<Access> accesses;
  };
  struct Memo {
    uint32_t from = ~uint32_t(0), to = 0;
    Access access;
  };
  static constexpr size_t kMemo = 4096;
  Conflict conflict(const Clocks &clocks, const State &s, const Access &a, bool fence_before_overwrite) const;
  uint32_t step(const Clocks &clocks, uint32_t from, const Access &a);
  void collect();

  std::vector<uint32_t> state_;
  std::vector<State> states_;
  std::vector<Memo> memo_;
};

} // namespace tkc::emu
