#include "emu/clocks.h"
#include <algorithm>
#include <bit>

namespace tkc::emu {

namespace {
void join_into(std::vector<uint32_t> &into, const std::vector<uint32_t> &from) {
  if (into.size() < from.size()) into.resize(from.size());
  for (size_t i = 0; i < from.size(); i++) into[i] = std::max(into[i], from[i]);
}
void raise(std::vector<uint32_t> &v, uint32_t component, uint32_t stamp) {
  if (v.size() <= component) v.resize(component + 1);
  v[component] = std::max(v[component], stamp);
}
template <typename F> void each(uint32_t lanes, F f) {
  for (; lanes; lanes &= lanes - 1) f(std::countr_zero(lanes));
}
} // namespace

void View::join(const View &other) {
  join_into(known, other.known);
  join_into(fenced, other.fenced);
}

void View::raise(uint32_t component, uint32_t stamp) { tkc::emu::raise(known, component, stamp); }

Clocks::Clocks(int64_t warps) : warps_(size_t(warps)), next_component_(kKinds * uint32_t(warps) * 32) {}

View &Clocks::own_view(WarpClock &w, int lane) {
  std::unique_ptr<View> &extra = w.extra[size_t(lane)];
  if (!extra) extra = std::make_unique<View>(w.common), w.any_extra = true;
  return *extra;
}

void Clocks::tell_own(int32_t warp, int lane, View &into) const {
  const WarpClock &w = warps_[size_t(warp)];
  raise(into.known, generic_component(warp, lane), w.now);
  if (!w.any_own) return;
  for (Kind kind : {kGeneric, kCopies, kBulk}) {
    uint32_t known = w.own[kind][size_t(lane)], fenced = w.own_fenced[kind][size_t(lane)];
    if (known) raise(into.known, component(kind, warp, lane), known);
    if (fenced) raise(into.fenced, component(kind, warp, lane), fenced);
  }
}

void Clocks::release(int32_t warp, uint32_t lanes, View &into) {
  WarpClock &w = warps_[size_t(warp)];
  into.join(w.common);
  each(lanes, [&](int lane) {
    if (w.extra[size_t(lane)]) into.join(*w.extra[size_t(lane)]);
    tell_own(warp, lane, into);
  });
  w.now++;
}

void Clocks::acquire(int32_t warp, uint32_t lanes, uint32_t live, const View &from) {
  WarpClock &w = warps_[size_t(warp)];
  if ((live & ~lanes) == 0) {
    w.common.join(from);
    if (w.any_extra)
      each(live, [&](int lane) {
        if (w.extra[size_t(lane)]) w.extra[size_t(lane)]->join(from);
      });
    return;
  }
  each(lanes, [&](int lane) { own_view(w, lane).join(from); });
}

void Clocks::warp_sync(int32_t warp, uint32_t lanes, uint32_t live) {
  WarpClock &w = warps_[size_t(warp)];
  bool whole = (live & ~lanes) == 0;
  if (whole) {
    if (w.any_extra) {
      each(lanes, [&](int lane) {
        if (w.extra[size_t(lane)]) w.common.join(*w.extra[size_t(lane)]);
      });
      for (auto &extra : w.extra) extra.reset();
      w.any_extra = false;
    }
    uint32_t first = generic_component(warp, 0);
    if (w.common.known.size() < first + 32) w.common.known.resize(first + 32);
    each(lanes, [&](int lane) { tell_own(warp, lane, w.common); });
    w.now++;
    return;
  }
  View all;
  release(warp, lanes, all);
  acquire(warp, lanes, live, all);
}

void Clocks::proxy_fence(int32_t warp, uint32_t lanes, uint32_t live) {
  WarpClock &w = warps_[size_t(warp)];
  bool whole = (live & ~lanes) == 0;
  w.any_own = true;
  if (whole) join_into(w.common.fenced, w.common.known);
  each(lanes, [&](int lane) {
    w.own_fenced[kGeneric][size_t(lane)] = w.now;
    w.own_fenced[kCopies][size_t(lane)] = w.own[kCopies][size_t(lane)];
    w.own_fenced[kBulk][size_t(lane)] = w.own[kBulk][size_t(lane)];
    if (whole && !w.extra[size_t(lane)]) return;
    View &v = own_view(w, lane);
    join_into(v.fenced, v.known);
  });
  w.now++;
}

void Clocks::learn_own(int32_t warp, int lane, Kind kind, uint32_t stamp) {
  WarpClock &w = warps_[size_t(warp)];
  uint32_t &own = w.own[kind][size_t(lane)];
  own = std::max(own, stamp);
  w.any_own = true;
}

void Clocks::fence(int32_t warp, uint32_t lanes, uint32_t live) {
  WarpClock &w = warps_[size_t(warp)];
  each(lanes, [&](int lane) {
    std::unique_ptr<Relaxed> &r = w.relaxed[size_t(lane)];
    if (!r) r = std::make_unique<Relaxed>();
    if (!r->to_acquire.known.empty()) acquire(warp, uint32_t(1) << lane, live, r->to_acquire), r->to_acquire = View();
    r->released = View();
    release(warp, uint32_t(1) << lane, r->released);
    r->has_released = true;
  });
}

void Clocks::note_relaxed(int32_t warp, int lane, const View &from) {
  std::unique_ptr<Relaxed> &r = warps_[size_t(warp)].relaxed[size_t(lane)];
  if (!r) r = std::make_unique<Relaxed>();
  r->to_acquire.join(from);
}

const View *Clocks::fence_view(int32_t warp, int lane) const {
  const std::unique_ptr<Relaxed> &r = warps_[size_t(warp)].relaxed[size_t(lane)];
  return r && r->has_released ? &r->released : nullptr;
}

} // namespace tkc::emu
