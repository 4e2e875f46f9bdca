// mbarrier.*: the state machine is in async.cpp; here is who arrives, what an arrival releases, who waits for what.
#include "emu/access.h"
#include "emu/families.h"
#include "emu/lanes.h"
#include <algorithm>

namespace tkc::emu {

namespace {
// The state that an arrive returns: the phase it arrived in, and the arrivals missing before it.
uint64_t make_state(const Mbarrier &m) { return m.phase << 20 | uint64_t(m.pending); }
uint64_t state_phase(uint64_t state) { return state >> 20; }

// mode: 0 space, 1 address is 32 bits, 2 relaxed, 3.. by instruction
bool find(Warp &w, const Inst &i, int lane, Block *&in, uint32_t &own) {
  uint64_t address = (i.mode[1] ? w.row<uint32_t>(i.a)[lane] : w.row<uint64_t>(i.a)[lane]) + uint64_t(i.imm);
  Space space = Space(i.mode[0]);
  if (space == Space::Generic) {
    if (address - kSharedWindow >= kWindowBytes) {
      w.error(ErrorKind::OutOfBounds, lane, address,
              fmt::format("the mbarrier at {:#x} does not lie in shared memory", address));
      return false;
    }
    address -= kSharedWindow;
  }
  return find_shared(w, lane, address, 8, 8, in, own);
}
bool locate(Warp &w, const Inst &i, int lane, AccessKind kind, Block *&in, uint32_t &own) {
  if (!find(w, i, lane, in, own)) return false;
  note_shared(w, uint32_t(1) << lane, kind, *in, own, 8);
  return !w.block->stopped;
}
uint32_t value(Warp &w, uint32_t row, int lane) { return w.row<uint32_t>(row)[lane]; }

void init(Warp &w, const Inst &i, uint32_t mask) {
  for (uint32_t lanes = mask; lanes; lanes &= lanes - 1) {
    int lane = first_lane(lanes);
    Block *in;
    uint32_t at;
    if (!locate(w, i, lane, AccessKind::BarrierInit, in, at)) return;
    int64_t count = value(w, i.b, lane);
    if (count < 1 || count > kMostArrivals)
      return w.error(ErrorKind::MbarrierMisuse, lane, generic_shared(*in, at),
                     fmt::format("mbarrier.init with a count of {}, not within 1..2^20-1", count));
    Mbarrier m;
    m.expected = m.pending = count;
    m.stream = w.block->cluster->clocks.new_component();
    m.phases = w.block->cluster->clocks.new_component();
    m.unfenced = w.block->clock_index(w) * 32 + lane;
    in->mbarriers[at] = m;
  }
}
void inval(Warp &w, const Inst &i, uint32_t mask) {
  for (uint32_t lanes = mask; lanes; lanes &= lanes - 1) {
    int lane = first_lane(lanes);
    Block *in;
    uint32_t at;
    if (!locate(w, i, lane, AccessKind::BarrierInval, in, at)) return;
    Mbarrier *m = find_mbarrier(*in, at, w, lane);
    if (!m) return;
    if (m->tx != 0 || !m->in_flight.empty())
      return w.error(ErrorKind::MbarrierMisuse, lane, generic_shared(*in, at),
                     fmt::format("mbarrier.inval while copies are in flight ({} bytes expected)", m->tx));
    in->mbarriers.erase(at);
  }
}

// mode: 3 adds tx before, 4 noComplete, 5 drop. b count or tx; d state (n = 1: wanted)
void arrive(Warp &w, const Inst &i, uint32_t mask) {
  for (uint32_t lanes = mask; lanes; lanes &= lanes - 1) {
    int lane = first_lane(lanes);
    Block *in;
    uint32_t at;
    if (!locate(w, i, lane, AccessKind::Barrier, in, at)) return;
    Mbarrier *m = find_mbarrier(*in, at, w, lane);
    if (!m) return;
    int64_t count = i.mode[3] ? 1 : value(w, i.b, lane);
    uint64_t state = make_state(*m);
    Clocks &clocks = w.block->cluster->clocks;
    int32_t warp = w.block->clock_index(w);
    if (!i.mode[2])
      clocks.release(warp, uint32_t(1) << lane, m->arriving);
    else if (const View *v = clocks.fence_view(warp, lane))
      m->arriving.join(*v);
    if (i.mode[3] && !mbarrier_add_tx(*in, at, *m, value(w, i.b, lane), w, lane)) return;
    if (i.mode[4] && count >= m->pending && m->tx == 0)
      return w.error(
          ErrorKind::MbarrierMisuse, lane, generic_shared(*in, at),
          fmt::format("arrive.noComplete of {} completes the phase ({} arrivals are missing)", count, m->pending));
    if (i.mode[5]) m->expected -= count;
    if (!mbarrier_arrive(*in, at, *m, count, w, lane)) return;
    if (i.n) w.row<uint64_t>(i.d)[lane] = state;
  }
}
// mode[3]: 1 complete_tx
void expect_tx(Warp &w, const Inst &i, uint32_t mask) {
  for (uint32_t lanes = mask; lanes; lanes &= lanes - 1) {
    int lane = first_lane(lanes);
    Block *in;
    uint32_t at;
    if (!locate(w, i, lane, AccessKind::Barrier, in, at)) return;
    Mbarrier *m = find_mbarrier(*in, at, w, lane);
    int64_t bytes = value(w, i.b, lane);
    if (!m || !mbarrier_add_tx(*in, at, *m, i.mode[3] ? -bytes : bytes, w, lane)) return;
  }
}

// Has the phase that a wait names completed? -1 after a report.
int phase_complete(Warp &w, const Inst &i, int lane, Block &in, uint32_t at, Mbarrier &m) {
  if (!i.mode[3]) { // by state: the current phase or the one before
    uint64_t phase = state_phase(w.row<uint64_t>(i.b)[lane]);
    if (phase + 1 < m.phase || phase > m.phase) {
      w.error(
          ErrorKind::MbarrierMisuse, lane, generic_shared(in, at),
          fmt::format("wait for phase {} by its state, but the mbarrier at {:#x} is in phase {}", phase, at, m.phase));
      return -1;
    }
    return phase < m.phase;
  }
  uint32_t parity = value(w, i.b, lane);
  if (parity > 1) {
    w.error(ErrorKind::MbarrierMisuse, lane, generic_shared(in, at), fmt::format("a parity of {}", parity));
    return -1;
  }
  bool complete = (m.phase & 1) != parity;
  // A thread that waits for one phase after the other must not fall two behind: the parity would name another one then.
  // The phase that it means is the first one that it cannot know to be complete.
  int32_t thread = w.block->clock_index(w) * 32 + lane;
  auto seen = m.seen.find(thread);
  int64_t current = int64_t(m.phase);
  if (seen != m.seen.end()) {
    int64_t next = std::max<int64_t>(seen->second, w.block->cluster->clocks.known(thread / 32, lane, m.phases));
    if (uint64_t(next & 1) == parity && current >= next + 2) {
      w.error(ErrorKind::MbarrierMisuse, lane, generic_shared(in, at),
              fmt::format("the thread waits for phase {} of the mbarrier at {:#x}, which is in phase {} already: two "
                          "or more behind, parity {} means another phase now",
                          next, at, m.phase, parity));
      return -1;
    }
  }
  if (complete) m.seen[thread] = current;
  return complete;
}

// mode[3]: by parity. A wait that would answer "no" suspends its lanes until it can say "yes"; only when nothing else
// can run is it told to say "no" (block.cpp), so that code with something else to do gets there.
void wait(Warp &w, const Inst &i, uint32_t mask) {
  uint32_t yes = 0;
  Block *in = nullptr;
  uint32_t at = 0;
  uint64_t phase = 0;
  std::array<Mbarrier *, 32> barriers = {};
  uint32_t told = 0; // lanes that the shadow knows of: those at one mbarrier are told together
  for (uint32_t lanes = mask; lanes; lanes &= lanes - 1) {
    int lane = first_lane(lanes);
    if (!find(w, i, lane, in, at)) return;
    if (!(told >> lane & 1)) {
      uint32_t same = 0;
      each_lane(lanes, [&](int l) {
        bool equal =
            i.mode[1] ? value(w, i.a, l) == value(w, i.a, lane) : w.row<uint64_t>(i.a)[l] == w.row<uint64_t>(i.a)[lane];
        same |= uint32_t(equal) << l;
      });
      note_shared(w, same, AccessKind::Barrier, *in, at, 8);
      if (w.block->stopped) return;
      told |= same;
    }
    if (in != w.block)
      return w.error(ErrorKind::MbarrierMisuse, lane, generic_shared(*in, at),
                     "a thread may wait only at mbarriers of its own CTA");
    Mbarrier *m = find_mbarrier(*in, at, w, lane);
    int complete = m ? phase_complete(w, i, lane, *in, at, *m) : -1;
    if (complete < 0) return;
    phase = m->phase;
    barriers[size_t(lane)] = m;
    yes |= uint32_t(complete) << lane;
  }
  if (!yes && !w.not_yet) return w.wait(Waiting::Mbarrier, mask, at, phase);
  w.not_yet = false;
  w.preds[i.d] = (w.preds[i.d] & ~mask) | yes;
  Clocks &clocks = w.block->cluster->clocks;
  int32_t warp = w.block->clock_index(w);
  while (yes) { // lanes at the same mbarrier acquire together
    Mbarrier *m = barriers[size_t(first_lane(yes))];
    uint32_t group = 0;
    each_lane(yes, [&](int l) { group |= uint32_t(barriers[size_t(l)] == m) << l; });
    if (i.mode[2])
      each_lane(group, [&](int l) { clocks.note_relaxed(warp, l, m->released); });
    else
      clocks.acquire(warp, group, w.live, m->released);
    yes &= ~group;
  }
}

void pending_count(Warp &w, const Inst &i, uint32_t mask) {
  each_lane(mask, [&](int l) { w.row<uint32_t>(i.d)[l] = uint32_t(w.row<uint64_t>(i.a)[l] & ((1u << 20) - 1)); });
}

// ---- decoding
void take_address(Decoder &d, int64_t k) {
  Space space = d.take("shared::cluster")                   ? Space::SharedCluster
                : d.take("shared") || d.take("shared::cta") ? Space::Shared
                                                            : Space::Generic;
  Decoder::Address a = d.address(d.operand(k), space);
  d.out.a = a.row, d.out.imm = a.offset;
  d.out.mode[0] = uint8_t(space), d.out.mode[1] = !a.wide;
}
// The scope changes nothing: the emulator's order is the same for all.
void take_order(Decoder &d) {
  d.take_any({"release", "acquire"});
  d.out.mode[2] = d.take("relaxed");
  d.take_any({"cta", "cluster"});
}
void decode_arrive(Decoder &d, bool drop) {
  bool tx = d.take("expect_tx"), no_complete = d.take("noComplete");
  take_order(d);
  d.need_operands(1, 3);
  // [addr] | [addr], n | state, [addr] {, n}
  bool has_state = d.operand(0).kind != PtxOperand::Kind::Address;
  int64_t address = has_state ? 1 : 0;
  take_address(d, address);
  bool remote = Space(d.out.mode[0]) == Space::SharedCluster, sink = d.operand(0).kind == PtxOperand::Kind::Sink;
  if (remote && has_state && !sink) d.fail("an arrive on .shared::cluster returns no state");
  if (has_state && !sink) d.out.d = d.destination(0, Type::B64), d.out.n = 1;
  bool has_count = d.operand_count() > address + 1;
  if ((tx || no_complete) && !has_count) d.fail("an operand is missing");
  d.out.b = has_count ? d.source(address + 1, Type::B32) : d.constant(1, 4);
  d.out.mode[3] = tx, d.out.mode[4] = no_complete, d.out.mode[5] = drop;
  d.out.run = arrive;
}
void decode(Decoder &d) {
  d.program().uses_copies = true;
  std::string_view what = d.take_any(
      {"init", "inval", "arrive", "arrive_drop", "expect_tx", "complete_tx", "test_wait", "try_wait", "pending_count"});
  if (!d.take("b64")) d.fail(".b64 is missing");
  if (what == "arrive" || what == "arrive_drop") return decode_arrive(d, what == "arrive_drop");
  if (what == "init" || what == "inval") {
    d.need_operands(what == "init" ? 2 : 1);
    take_address(d, 0);
    if (what == "init") d.out.b = d.source(1, Type::B32);
    d.out.run = what == "init" ? init : inval;
  } else if (what == "expect_tx" || what == "complete_tx") {
    take_order(d);
    d.need_operands(2);
    take_address(d, 0);
    d.out.b = d.source(1, Type::B32);
    d.out.mode[3] = what == "complete_tx";
    d.out.run = expect_tx;
  } else if (what == "test_wait" || what == "try_wait") {
    bool parity = d.take("parity");
    take_order(d);
    d.need_operands(3, 4);
    d.out.d = uint32_t(d.predicate_destination(d.operand(0)));
    take_address(d, 1);
    if (Space(d.out.mode[0]) == Space::SharedCluster) d.fail("a thread may wait only at mbarriers of its own CTA");
    d.out.b = d.source(2, parity ? Type::B32 : Type::B64);
    if (d.operand_count() == 4) d.source(3, Type::B32); // how long to suspend: up to the implementation
    d.out.mode[3] = parity;
    d.out.run = wait;
  } else if (what == "pending_count") {
    d.need_operands(2);
    d.out.d = d.destination(0, Type::B32), d.out.a = d.source(1, Type::B64);
    d.out.run = pending_count;
  } else {
    d.unsupported();
  }
}
} // namespace

void register_mbarrier(DecodeTable &t) { t.push_back({"mbarrier", decode, any_type}); }

} // namespace tkc::emu
