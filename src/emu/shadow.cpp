#include "emu/shadow.h"
#include <bit>

namespace tkc::emu {

namespace {
bool same_access(const Access &x, const Access &y) {
  return x.kind == y.kind && x.warp == y.warp && x.lanes == y.lanes && x.stamp == y.stamp && x.stream == y.stream &&
         x.pc == y.pc;
}
size_t hash(uint32_t from, const Access &a) {
  uint64_t h = from;
  h = h * 0x9e3779b97f4a7c15u + a.lanes;
  h = h * 0x9e3779b97f4a7c15u + (uint64_t(a.stamp) << 32 | uint64_t(uint32_t(a.pc)) << 8 | uint64_t(a.kind));
  h = h * 0x9e3779b97f4a7c15u + (uint64_t(a.stream) << 16 | a.warp);
  return size_t(h >> 40);
}
bool reads_only(AccessKind k) { return k == AccessKind::Read || k == AccessKind::AsyncRead; }
bool strong(AccessKind k) { return k == AccessKind::Atomic || k == AccessKind::StrongStore; }
bool is_async(AccessKind k) { return k == AccessKind::AsyncRead || k == AccessKind::AsyncWrite; }
bool on_barrier(AccessKind k) {
  return k == AccessKind::Barrier || k == AccessKind::BarrierInit || k == AccessKind::BarrierInval;
}

template <typename F> bool for_all_pairs(const Clocks &clocks, const Access &earlier, const Access &a, F ordered) {
  if (!earlier.stream && earlier.warp == a.warp && earlier.lanes == a.lanes && std::has_single_bit(a.lanes))
    return ordered(std::countr_zero(a.lanes), clocks.generic_component(a.warp, std::countr_zero(a.lanes)));
  for (uint32_t lanes = a.lanes; lanes; lanes &= lanes - 1) {
    int lane = std::countr_zero(lanes);
    if (earlier.stream) {
      if (!ordered(lane, earlier.stream)) return false;
      continue;
    }
    for (uint32_t others = earlier.lanes; others; others &= others - 1)
      if (!ordered(lane, clocks.generic_component(earlier.warp, std::countr_zero(others)))) return false;
  }
  return true;
}
bool is_ordered(const Clocks &clocks, const Access &earlier, const Access &a) {
  return for_all_pairs(clocks, earlier, a, [&](int lane, uint32_t component) {
    return clocks.ordered(a.warp, lane, component, earlier.stamp);
  });
}
bool is_fenced(const Clocks &clocks, const Access &earlier, const Access &a) {
  return for_all_pairs(clocks, earlier, a, [&](int lane, uint32_t component) {
    return clocks.ordered_before_async(a.warp, lane, component, earlier.stamp);
  });
}
} // namespace

Shadow::Conflict Shadow::conflict(const Clocks &clocks, const State &s, const Access &a,
                                  bool fence_before_overwrite) const {
  bool barrier = on_barrier(a.kind);
  if (a.kind == AccessKind::BarrierInit ? s.object : !barrier && s.object)
    return {Fault::Object, 0, s.accesses.front()};
  if (barrier && a.kind != AccessKind::BarrierInit && !s.object) return {Fault::NoObject, 0, {}};
  bool needs_value = reads_only(a.kind) || a.kind == AccessKind::Atomic;
  if (needs_value && !s.written) return {Fault::Uninitialised, 0, {}};
  for (const Access &p : s.accesses) {
    if (reads_only(p.kind) && reads_only(a.kind)) continue;
    if (strong(p.kind) && strong(a.kind)) continue;
    if (p.kind == AccessKind::Barrier && a.kind == AccessKind::Barrier) continue;
    if (!is_ordered(clocks, p, a)) return {p.stream ? Fault::InFlight : Fault::Race, 0, p};
    if (!is_async(a.kind) || is_async(p.kind)) continue;
    if (reads_only(p.kind) && !fence_before_overwrite) continue;
    if (!is_fenced(clocks, p, a)) return {Fault::ProxyFence, 0, p};
  }
  return {};
}

uint32_t Shadow::step(const Clocks &clocks, uint32_t from, const Access &a) {
  State next;
  const State &s = states_[from];
  next.object = a.kind == AccessKind::BarrierInit || (a.kind == AccessKind::Barrier && s.object);
  next.written = a.kind != AccessKind::BarrierInval && (s.written || !reads_only(a.kind));
  bool keeps = reads_only(a.kind) || strong(a.kind) || a.kind == AccessKind::Barrier;
  bool merged = false;
  for (const Access &p : s.accesses) {
    if (!keeps) break;
    // A kind is dropped only for a later one that conflicts with at least as much.
    bool same_class = strong(a.kind) ? strong(p.kind) : p.kind == a.kind;
    Access copy = p;
    if (!merged && p.kind == a.kind && p.warp == a.warp && p.stamp == a.stamp && p.stream == a.stream) {
      copy.lanes |= a.lanes, copy.pc = a.pc, merged = true;
    } else if (same_class && is_ordered(clocks, p, a)) {
      continue; // whatever is ordered after `a` is ordered after `p`
    }
    next.accesses.push_back(copy);
  }
  if (!merged) next.accesses.push_back(a);
  states_.push_back(std::move(next));
  return uint32_t(states_.size() - 1);
}

Shadow::Conflict Shadow::access(const Clocks &clocks, const Access &a, int64_t offset, int64_t bytes,
                                bool fence_before_overwrite) {
  if (states_.size() > size_t(1) << 17) collect();
  Conflict found;
  uint32_t last = ~uint32_t(0), last_result = 0;
  for (int64_t i = offset; i < offset + bytes; i++) {
    uint32_t from = state_[size_t(i)];
    if (from != last) {
      last = from;
      Memo &memo = memo_[hash(from, a) % kMemo];
      if (memo.from == from && same_access(memo.access, a)) {
        last_result = memo.to;
      } else {
        Conflict c = conflict(clocks, states_[from], a, fence_before_overwrite);
        if (c.fault != Fault::None && found.fault == Fault::None) c.offset = i, found = c;
        last_result = step(clocks, from, a);
        if (c.fault == Fault::None) memo = {from, last_result, a};
      }
    }
    state_[size_t(i)] = last_result;
  }
  return found;
}

// Drops the states that no byte has any more.
void Shadow::collect() {
  std::vector<uint32_t> moved(states_.size(), ~uint32_t(0));
  std::vector<State> kept(2); // those of fresh bytes
  kept[1].written = true;
  moved[0] = 0, moved[1] = 1;
  for (uint32_t &s : state_) {
    if (moved[s] == ~uint32_t(0)) {
      moved[s] = uint32_t(kept.size());
      kept.push_back(std::move(states_[s]));
    }
    s = moved[s];
  }
  states_ = std::move(kept);
  for (Memo &m : memo_) m = {};
}

} // namespace tkc::emu
