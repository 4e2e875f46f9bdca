// Barriers of the CTA (bar, barrier), of the warp (bar.warp.sync) and of the cluster; fences; mapa and getctarank.
#include "emu/access.h"
#include "emu/families.h"
#include "emu/lanes.h"

namespace tkc::emu {

namespace {
enum class Reduction : uint8_t { None, And, Or, Popc };
constexpr uint32_t kWarpIncomplete = 0x100; // Split::object of lanes that wait for the rest of their warp, + barrier id
} // namespace

// ---------------------------------------------------------------- barriers of the CTA

void Block::arrive(int32_t id, Warp &w, uint32_t lanes, int64_t count, bool wait) {
  int lane = first_lane(lanes);
  if (id < 0 || id > 15)
    return w.error(ErrorKind::BarrierMisuse, lane, 0, fmt::format("barrier {} does not exist (0..15)", id));
  if (count < 0 || count % 32 || count > grid.warps * 32)
    return w.error(ErrorKind::BarrierMisuse, lane, 0,
                   fmt::format("barrier {}: the count {} is not a multiple of 32 within the {} threads of the block",
                               id, count, grid.threads));
  Barrier &b = barriers[size_t(id)];
  bool everyone = count == 0;
  int64_t expected = everyone ? grid.warps * 32 : count;
  if (b.expected && b.expected != expected)
    return w.error(ErrorKind::BarrierMisuse, lane, 0,
                   fmt::format("barrier {} is used with a count of {} while threads wait with a count of {}", id,
                               expected, b.expected));
  b.everyone = (b.expected == 0 || b.everyone) && everyone;
  b.expected = expected;
  b.arrived += 32; // by warps, whatever the number of its threads
  int32_t clock = clock_index(w);
  if (wait) {
    cluster->clocks.warp_sync(clock, lanes, w.live);
    b.waiters.push_back({w.index, lanes});
  }
  cluster->clocks.release(clock, lanes, b.view);
  cluster->progress++;
  int64_t live = 0;
  for (const Warp &other : warps) live += other.live ? 32 : 0;
  if (b.arrived == (b.everyone ? live : b.expected)) complete_barrier(id);
}

void Block::complete_barrier(int32_t id) {
  Barrier b = std::move(barriers[size_t(id)]);
  barriers[size_t(id)] = Barrier();
  cluster->progress++;
  for (const Barrier::Waiter &waiter : b.waiters) {
    Warp &w = warps[size_t(waiter.warp)];
    cluster->clocks.acquire(clock_index(w), waiter.lanes, w.live, b.view);
    for (Split &s : w.splits) {
      if (s.waiting != Waiting::Barrier || s.object != uint32_t(id)) continue;
      const Inst &i = grid.program.code[size_t(s.pc)];
      Reduction r = Reduction(i.mode[3]);
      uint32_t p = (r == Reduction::And ? b.red_and : b.red_or) ? s.lanes : 0;
      if (r == Reduction::Popc)
        each_lane(s.lanes, [&](int l) { w.row<uint32_t>(i.d)[l] = uint32_t(b.red_count); });
      else if (r != Reduction::None)
        w.preds[i.d] = (w.preds[i.d] & ~s.lanes) | p;
      s.waiting = Waiting::No;
      s.pc++;
    }
  }
}

void Block::warp_exited() {
  int64_t live = 0;
  for (const Warp &w : warps) live += w.live ? 32 : 0;
  for (int32_t id = 0; id < 16; id++) {
    const Barrier &b = barriers[size_t(id)];
    if (b.everyone && b.arrived && b.arrived == live) complete_barrier(id);
  }
  check_cluster_barrier(*cluster);
}

std::string Block::describe_waits() const {
  std::string out;
  int64_t told = 0, exited_warps = 0, more = 0;
  auto line = [&](int32_t pc) { return fmt::format("PTX line {}", grid.program.where[size_t(pc)].line); };
  for (const Warp &w : warps) {
    exited_warps += !w.live;
    for (const Split &s : w.splits) {
      if (told++ >= 6) {
        more++;
        continue;
      }
      std::string what;
      if (s.waiting == Waiting::Barrier) {
        const Barrier &b = barriers[s.object];
        what = fmt::format("at barrier {} ({} of {} threads arrived)", s.object, b.arrived, b.expected);
      } else if (s.waiting == Waiting::Mbarrier) {
        auto m = mbarriers.find(s.object);
        if (m != mbarriers.end())
          what = fmt::format("for phase {} of the mbarrier at {:#x} ({} of {} arrivals and {} bytes are missing)",
                             s.phase, s.object, m->second.pending, m->second.expected, m->second.tx);
      } else if (s.waiting == Waiting::No) {
        what = "for memory that it polls";
      } else if (s.waiting == Waiting::ClusterBarrier) {
        what = "at barrier.cluster.wait";
      } else {
        what = fmt::format("for other lanes of the warp (only {:#010x} of {:#010x} have come)", s.lanes, w.live);
      }
      int32_t pc = s.waiting == Waiting::No && !w.polled.empty() ? w.polled.back().first : s.pc;
      out += fmt::format("{}warp {} waits {}, {}", out.empty() ? "" : "; ", w.index, what, line(pc));
    }
  }
  if (more) out += fmt::format("; {} more", more);
  if (exited_warps) out += fmt::format("; {} of {} warps have exited", exited_warps, warps.size());
  return out;
}

// ---------------------------------------------------------------- instructions

namespace {
// mode: 0 waits, 1 aligned, 2 count given, 3 Reduction, 4 predicate negated. a id, b count, c predicate, d result
void barrier(Warp &w, const Inst &i, uint32_t mask) {
  int lane = first_lane(mask);
  uint32_t id = w.row<uint32_t>(i.a)[lane], count = i.mode[2] ? w.row<uint32_t>(i.b)[lane] : 0;
  bool same = true;
  each_lane(mask,
            [&](int l) { same &= w.row<uint32_t>(i.a)[l] == id && (!i.mode[2] || w.row<uint32_t>(i.b)[l] == count); });
  if (!same)
    return w.error(ErrorKind::BarrierMisuse, lane, 0, "the lanes of the warp name different barriers or counts");
  if (i.mode[2] && count == 0)
    return w.error(ErrorKind::BarrierMisuse, lane, 0, fmt::format("barrier {} with a count of 0", id));
  uint32_t lanes = mask;
  if (i.mode[1]) {
    if (!w.converged(mask, false)) return;
  } else {
    // Not .aligned: the warp arrives when the last of its lanes comes, at whatever instruction it waits.
    for (const Split &s : w.splits)
      if (s.waiting == Waiting::WarpSync && s.object == kWarpIncomplete + id) lanes |= s.lanes;
    if (lanes != w.live) {
      w.wait(Waiting::WarpSync, mask, kWarpIncomplete + id);
      return;
    }
    for (Split &s : w.splits) {
      if (s.waiting != Waiting::WarpSync || s.object != kWarpIncomplete + id) continue;
      s.object = id;
      if (i.mode[0])
        s.waiting = Waiting::Barrier;
      else
        s.waiting = Waiting::No, s.pc++;
    }
  }
  Block &block = *w.block;
  if (Reduction(i.mode[3]) != Reduction::None && id < 16) {
    Barrier &b = block.barriers[id];
    uint32_t p = (w.preds[i.c] ^ (i.mode[4] ? ~uint32_t(0) : 0)) & lanes;
    b.red_and &= p == lanes, b.red_or |= p != 0, b.red_count += std::popcount(p);
  }
  if (i.mode[0]) w.wait(Waiting::Barrier, mask, id);
  block.arrive(int32_t(id), w, lanes, count, i.mode[0]);
}

void warp_barrier(Warp &w, const Inst &i, uint32_t mask) {
  const uint32_t *members = w.row<uint32_t>(i.a);
  uint32_t lanes = w.warp_sync(mask, members);
  Clocks &clocks = w.block->cluster->clocks;
  int32_t warp = w.block->clock_index(w);
  while (lanes) {
    uint32_t group = 0, name = members[first_lane(lanes)];
    each_lane(lanes, [&](int l) { group |= uint32_t(members[l] == name) << l; });
    clocks.warp_sync(warp, group, w.live);
    lanes &= ~group;
  }
}

void cluster_arrive(Warp &w, const Inst &i, uint32_t mask) {
  if (i.mode[1] && !w.converged(mask, false)) return;
  Cluster &c = *w.block->cluster;
  if (w.cluster_pending & mask)
    return w.error(ErrorKind::BarrierMisuse, first_lane(mask), 0,
                   "barrier.cluster.arrive twice without a wait between them");
  w.cluster_pending |= mask;
  w.cluster_generation = c.cluster_generation;
  w.cluster_arrived |= mask;
  int32_t warp = w.block->clock_index(w);
  if (!i.mode[0]) c.clocks.release(warp, mask, c.cluster_view);
  if (i.mode[0]) // .relaxed: what a fence before has released
    each_lane(mask, [&](int lane) {
      if (const View *v = c.clocks.fence_view(warp, lane)) c.cluster_view.join(*v);
    });
  c.progress++;
  check_cluster_barrier(c);
}
void cluster_wait(Warp &w, const Inst &i, uint32_t mask) {
  if (i.mode[1] && !w.converged(mask, false)) return;
  Cluster &c = *w.block->cluster;
  if (mask & ~w.cluster_pending)
    return w.error(ErrorKind::BarrierMisuse, first_lane(mask), 0,
                   "barrier.cluster.wait without barrier.cluster.arrive");
  if (c.cluster_generation == w.cluster_generation) return w.wait(Waiting::ClusterBarrier, mask);
  w.cluster_pending &= ~mask;
  c.clocks.acquire(w.block->clock_index(w), mask, w.live, c.cluster_released);
}

void fence(Warp &w, const Inst &, uint32_t mask) {
  w.block->cluster->clocks.fence(w.block->clock_index(w), mask, w.live);
}
// Barriers that these lanes have initialised are ready for copies that complete on them.
void publish_mbarriers(Warp &w, uint32_t mask) {
  int32_t warp = w.block->clock_index(w);
  for (const auto &block : w.block->cluster->blocks)
    for (auto &[at, m] : block->mbarriers)
      if (m.unfenced >= 0 && m.unfenced / 32 == warp && (mask >> m.unfenced % 32 & 1)) m.unfenced = -1;
}
void mbarrier_fence(Warp &w, const Inst &i, uint32_t mask) {
  fence(w, i, mask);
  publish_mbarriers(w, mask);
}
void proxy_fence(Warp &w, const Inst &, uint32_t mask) {
  publish_mbarriers(w, mask);
  w.block->cluster->clocks.proxy_fence(w.block->clock_index(w), mask, w.live);
}
void nothing(Warp &, const Inst &, uint32_t) {}

void map_address(Warp &w, const Inst &i, uint32_t mask) {
  const uint32_t *rank = w.row<uint32_t>(i.b);
  size_t size = w.block->cluster->blocks.size();
  for (uint32_t m = mask; m; m &= m - 1) {
    int l = first_lane(m);
    if (rank[l] >= size)
      return w.error(ErrorKind::OutOfBounds, l, 0, fmt::format("CTA {} of a cluster of {}", rank[l], size));
    uint64_t a = i.mode[1] ? w.row<uint64_t>(i.a)[l] : w.row<uint32_t>(i.a)[l];
    uint64_t own = a & 0xffffff, r = own | uint64_t(rank[l] + 1) << 24;
    if (i.mode[0]) r += kSharedWindow;
    if (i.mode[1])
      w.row<uint64_t>(i.d)[l] = r;
    else
      w.row<uint32_t>(i.d)[l] = uint32_t(r);
  }
}
void rank_of(Warp &w, const Inst &i, uint32_t mask) {
  each_lane(mask, [&](int l) {
    uint64_t a = i.mode[1] ? w.row<uint64_t>(i.a)[l] : w.row<uint32_t>(i.a)[l];
    uint64_t rank = a >> 24 & 0xff;
    w.row<uint32_t>(i.d)[l] = rank ? uint32_t(rank - 1) : uint32_t(w.block->rank);
  });
}

// ---- decoding
void decode_cluster_barrier(Decoder &d) {
  bool arrive = d.take("arrive");
  if (!arrive && !d.take("wait")) d.fail("one of .arrive, .wait is missing");
  d.take_any({"release", "acquire"});
  d.out.mode[0] = d.take("relaxed"), d.out.mode[1] = d.take("aligned");
  d.need_operands(0);
  d.out.run = arrive ? cluster_arrive : cluster_wait;
}
void decode_barrier(Decoder &d, bool aligned) {
  if (d.take("cluster")) return decode_cluster_barrier(d);
  if (d.take("warp")) {
    if (!d.take("sync") || aligned == false) return d.unsupported();
    d.need_operands(1);
    d.out.a = d.source(0, Type::B32);
    d.out.run = warp_barrier;
    return;
  }
  d.take("cta");
  std::string_view what = d.take_any({"sync", "arrive", "red"});
  aligned = d.take("aligned") || aligned;
  d.out.mode[0] = what != "arrive", d.out.mode[1] = aligned;
  int64_t first = 0;
  if (what == "red") {
    std::string_view op = d.take_any({"and", "or", "popc"});
    Type t = d.take_type();
    if (op.empty() || t != (op == "popc" ? Type::U32 : Type::Pred)) return d.unsupported();
    d.need_operands(3, 4);
    d.out.mode[3] = uint8_t(op == "and" ? Reduction::And : op == "or" ? Reduction::Or : Reduction::Popc);
    d.out.d = op == "popc" ? d.destination(0, Type::U32) : uint32_t(d.predicate_destination(d.operand(0)));
    bool negated = false;
    d.out.c = uint32_t(d.predicate(d.operand(d.operand_count() - 1), negated));
    d.out.mode[4] = negated;
    d.out.mode[2] = d.operand_count() == 4;
    first = 1;
  } else if (what == "arrive") {
    d.need_operands(2);
    d.out.mode[2] = 1;
  } else if (what == "sync") {
    d.need_operands(1, 2);
    d.out.mode[2] = d.operand_count() == 2;
  } else {
    return d.unsupported();
  }
  d.out.a = d.source(first, Type::B32);
  if (d.out.mode[2]) d.out.b = d.source(first + 1, Type::B32);
  d.out.run = barrier;
}

void decode_membar(Decoder &d) {
  std::string_view scope = d.take_any({"cta", "gl", "sys"});
  if (scope.empty()) return d.unsupported();
  d.need_operands(0);
  if (scope != "cta") d.program().orders_blocks = true;
  d.out.run = fence;
}
void decode_fence(Decoder &d) {
  if (d.take("mbarrier_init")) { // as fence.acq_rel.cluster, which orders more than initialisations
    d.take("release"), d.take("cluster");
    d.need_operands(0);
    d.out.run = mbarrier_fence;
    return;
  }
  if (d.take("proxy")) {
    if (d.take("async") || d.take("async::generic")) {
      bool global_only = d.take("global");
      d.take_prefixed("shared::"), d.take_any({"acquire", "release"}), d.take_prefixed("sync_restrict"),
          d.take("cluster");
      d.need_operands(0);
      d.out.run = global_only ? nothing : proxy_fence;
      return;
    }
    // Aliases and tensor maps: nothing in the emulator's memory distinguishes these proxies.
    if (!d.take("alias") && d.take_prefixed("tensormap").empty()) return d.unsupported();
    d.take_any({"acquire", "release"}), d.take_any({"cta", "cluster", "gpu", "sys"});
    d.need_operands(0, 2);
    d.out.run = nothing;
    return;
  }
  d.take_any({"acq_rel", "sc", "acquire", "release"});
  d.take_prefixed("sync_restrict");
  std::string_view scope = d.take_any({"cta", "cluster", "gpu", "sys"});
  if (scope.empty()) return d.unsupported();
  d.need_operands(0);
  if (scope == "gpu" || scope == "sys") d.program().orders_blocks = true;
  d.out.run = fence;
}
void decode_mapa(Decoder &d) {
  bool shared = d.take("shared::cluster");
  Type t = d.take_type();
  d.need_operands(3);
  if (t != Type::U64 && (t != Type::U32 || !shared)) return d.unsupported();
  d.out.d = d.destination(0, t), d.out.a = d.source(1, t), d.out.b = d.source(2, Type::B32);
  d.out.mode[0] = !shared, d.out.mode[1] = t == Type::U64;
  d.out.run = map_address;
}
void decode_getctarank(Decoder &d) {
  d.take("shared::cluster");
  Type t = d.take_type();
  d.need_operands(2);
  d.out.d = d.destination(0, Type::B32), d.out.a = d.source(1, t);
  d.out.mode[1] = t == Type::U64;
  d.out.run = rank_of;
}
} // namespace

void check_cluster_barrier(Cluster &c) {
  bool any = false;
  for (Warp *w : c.all_warps) {
    if (w->live & ~w->cluster_arrived) return;
    any |= w->cluster_arrived != 0;
  }
  if (!any) return;
  for (Warp *w : c.all_warps) w->cluster_arrived = 0;
  c.cluster_generation++;
  c.cluster_released = std::move(c.cluster_view);
  c.cluster_view = View();
  c.progress++;
  for (Warp *w : c.all_warps)
    for (Split &s : w->splits)
      if (s.waiting == Waiting::ClusterBarrier) s.waiting = Waiting::No;
}

void register_sync(DecodeTable &t) {
  t.insert(t.end(), {
                        {"bar", [](Decoder &d) { decode_barrier(d, true); }, any_type},
                        {"barrier", [](Decoder &d) { decode_barrier(d, false); }, any_type},
                        {"membar", decode_membar, any_type},
                        {"fence", decode_fence, any_type},
                        {"mapa", decode_mapa, any_type},
                        {"getctarank", decode_getctarank, any_type},
                    });
}

} // namespace tkc::emu
