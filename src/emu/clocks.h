// Vector clocks of the threads of a cluster: which earlier accesses each thread is ordered after (happens-before).
//
// Every warp has a counter `now`; an access by lane l of warp w is stamped (w, l, now). A thread has a View: for every
// component the stamp up to which it is ordered after that component's accesses. Components are, for each thread, its
// generic accesses and its two streams of asynchronous copies, and, appended on demand, one stream for each mbarrier. A
// release joins a thread's view into an object and advances `now`, so that later accesses are not covered; an acquire
// joins the object's view.
//
// Almost always all lanes of a warp know the same, so a view is kept by warp (`common`), and by lane only after a lane
// has acquired something alone, until the warp synchronises.
//
// `fenced` is the part of `known` that is ordered before accesses of the asynchronous proxy (fence.proxy.async).
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

namespace tkc::emu {

struct View {
  std::vector<uint32_t> known, fenced; // by component; shorter = 0
  void join(const View &other);
  void raise(uint32_t component, uint32_t stamp); // of known
};

class Clocks {
public:
  explicit Clocks(int64_t warps);
  uint32_t now(int32_t warp) const { return warps_[size_t(warp)].now; }
  int32_t warp_count() const { return int32_t(warps_.size()); }

  // Streams: cp.async copies and bulk-group copies of a thread, stamped by number; then those of mbarriers.
  enum Kind : uint32_t { kGeneric, kCopies, kBulk, kKinds };
  uint32_t component(Kind kind, int32_t warp, int lane) const {
    return (kind * uint32_t(warps_.size()) + uint32_t(warp)) * 32 + uint32_t(lane);
  }
  uint32_t generic_component(int32_t warp, int lane) const { return uint32_t(warp) * 32 + uint32_t(lane); }
  uint32_t new_component() { return next_component_++; }

  void release(int32_t warp, uint32_t lanes, View &into);
  void acquire(int32_t warp, uint32_t lanes, uint32_t live, const View &from);
  // The lanes meet at bar.warp.sync: each is ordered after the earlier accesses of the others.
  void warp_sync(int32_t warp, uint32_t lanes, uint32_t live);
  // fence.proxy.async by these lanes.
  void proxy_fence(int32_t warp, uint32_t lanes, uint32_t live);
  // The thread learns that its own copies are complete up to the stamp.
  void learn_own(int32_t warp, int lane, Kind kind, uint32_t stamp);

  // fence.acq_rel and stronger: earlier accesses are released by later relaxed writes (fence_view), and what earlier
  // relaxed reads saw (note_relaxed) is acquired now.
  void fence(int32_t warp, uint32_t lanes, uint32_t live);
  void note_relaxed(int32_t warp, int lane, const View &from);
  const View *fence_view(int32_t warp, int lane) const;

  // The stamp up to which the lane is ordered after a component that belongs to no thread.
  uint32_t known(int32_t warp, int lane, uint32_t component) const {
    const std::vector<uint32_t> &k = view(warp, lane).known;
    return component < k.size() ? k[component] : 0;
  }
  // Are the accesses of a component up to the stamp ordered before what the lane does now?
  bool ordered(int32_t warp, int lane, uint32_t component, uint32_t stamp) const {
    Kind kind;
    // Of its own copies a thread learns by waiting for them, or from another thread that did.
    if (is_own(warp, lane, component, kind) &&
        (kind == kGeneric || warps_[size_t(warp)].own[kind][size_t(lane)] >= stamp))
      return true;
    const std::vector<uint32_t> &known = view(warp, lane).known;
    return component < known.size() && known[component] >= stamp;
  }
  bool ordered_before_async(int32_t warp, int lane, uint32_t component, uint32_t stamp) const {
    Kind kind;
    if (is_own(warp, lane, component, kind) && warps_[size_t(warp)].own_fenced[kind][size_t(lane)] >= stamp)
      return true;
    const std::vector<uint32_t> &fenced = view(warp, lane).fenced;
    return component < fenced.size() && fenced[component] >= stamp;
  }

private:
  struct Relaxed {
    View released;   // at the last fence
    View to_acquire; // seen by relaxed reads, acquired at the next fence
    bool has_released = false;
  };
  struct WarpClock {
    uint32_t now = 1;
    bool any_own = false; // own or own_fenced hold anything
    View common;
    std::array<std::unique_ptr<View>, 32> extra; // includes what `common` held when it was made and all of it since
    // What a thread knows of itself, by kind; own[kGeneric] is `now`.
    std::array<std::array<uint32_t, 32>, kKinds> own = {}, own_fenced = {};
    std::array<std::unique_ptr<Relaxed>, 32> relaxed;
    bool any_extra = false;
  };
  const View &view(int32_t warp, int lane) const {
    const WarpClock &w = warps_[size_t(warp)];
    return w.any_extra && w.extra[size_t(lane)] ? *w.extra[size_t(lane)] : w.common;
  }
  bool is_own(int32_t warp, int lane, uint32_t component, Kind &kind) const {
    uint32_t threads = uint32_t(warps_.size()) * 32;
    if (component >= kKinds * threads || component % threads != uint32_t(warp) * 32 + uint32_t(lane)) return false;
    kind = Kind(component / threads);
    return true;
  }
  void tell_own(int32_t warp, int lane, View &into) const;
  View &own_view(WarpClock &w, int lane);
  std::vector<WarpClock> warps_;
  uint32_t next_component_;
};

} // namespace tkc::emu
