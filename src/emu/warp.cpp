// The instruction loop of a warp, divergence and reconvergence.
#include "emu/block.h"
#include "emu/exec.h"
#include "support/check.h"
#include <algorithm>
#include <cstring>

namespace tkc::emu {

const Inst &Warp::inst() const { return block->grid.program.code[size_t(at)]; }

bool Warp::reported(ErrorKind kind) const { return block->reported.count({kind, at}) > 0; }

void Warp::error(ErrorKind kind, int lane, uint64_t address, const std::string &message) {
  if (!block->reported.insert({kind, at}).second) return;
  const Position &where = block->grid.program.where[size_t(at)];
  Error e;
  e.kind = kind;
  e.message = message;
  e.ptx_line = where.line;
  e.source_line = where.source_line;
  const std::vector<std::string> &files = block->grid.module.ptx.files;
  if (where.file > 0 && size_t(where.file) < files.size()) e.source_file = files[size_t(where.file)];
  for (int i = 0; i < 3; i++) e.block[i] = block->ctaid[i];
  if (lane >= 0) block->thread_id(*this, lane, e.thread);
  e.address = address;
  block->errors.push_back(std::move(e));
  constexpr size_t kMostErrors = 32;
  if (error_is_fatal(kind) || block->errors.size() >= kMostErrors) block->stopped = suspended = true;
}

void Warp::run(int64_t instructions) {
  if (!select_split()) return;
  const Inst *code = block->grid.program.code.data();
  suspended = false;
  quantum = instructions;
  int64_t ran = 0;
  while (quantum > 0) {
    at = pc++;
    const Inst &i = code[at];
    uint32_t p = preds[i.guard];
    uint32_t mask = active & (i.guard_negated ? ~p : p);
    quantum--, ran++;
    if (mask) i.run(*this, i, mask);
    if (suspended) break;
    if (pc == reconverge_pc && !reconverge()) break;
  }
  block->instructions += ran;
  executed += ran;
  if (active) store_split();
}

void Warp::set_reconvergence(int32_t node) {
  reconvergence = node;
  const Reconvergence *r = node >= 0 ? &reconvergences[size_t(node)] : nullptr;
  reconverge_pc = r && r->frame == frame ? r->pc : -1;
}

void Warp::load_split(size_t k) {
  Split s = splits[k];
  splits.erase(splits.begin() + int64_t(k));
  active = s.mask;
  pc = s.pc;
  frame = s.frame;
  not_yet = s.not_yet;
  set_reconvergence(s.reconvergence);
}

bool Warp::runnable() const {
  for (const Split &s : splits)
    if (s.waiting == Waiting::No) return true;
  return false;
}

bool Warp::select_split() {
  // Splits that meet by chance (after reconvergence was given up) go on as one.
  for (size_t i = 0; i + 1 < splits.size(); i++)
    for (size_t j = splits.size() - 1; j > i; j--) {
      Split &x = splits[i], &y = splits[j];
      if (x.pc != y.pc || x.reconvergence != y.reconvergence || x.frame != y.frame) continue;
      if (x.waiting != Waiting::No || y.waiting != Waiting::No) continue;
      x.mask |= y.mask;
      splits.erase(splits.begin() + int64_t(j));
    }
  std::vector<size_t> ready;
  for (size_t k = 0; k < splits.size(); k++)
    if (splits[k].waiting == Waiting::No) ready.push_back(k);
  if (ready.empty()) return false;
  Cluster &c = *block->cluster;
  size_t chosen = ready.front(); // store_split appends, so this is round robin
  if (ready.size() > 1 && c.grid.options.policy == Policy::Random)
    chosen = ready[size_t(c.random.below(int64_t(ready.size())))];
  load_split(chosen);
  if (pc == reconverge_pc && !reconverge()) return select_split();
  return true;
}

void Warp::store_split() {
  splits.push_back({active, pc, reconvergence, frame});
  active = 0;
}

int32_t Warp::open_reconvergence(int32_t meet, uint32_t members) {
  size_t k = 0;
  while (k < reconvergences.size() && reconvergences[k].open) k++;
  if (k == reconvergences.size()) reconvergences.emplace_back();
  reconvergences[k] = {meet, members, 0, reconvergence, frame, true};
  return int32_t(k);
}

// The running split has come to its meeting point. True if it goes on (merged with all others), false if it is parked.
bool Warp::reconverge() {
  while (pc == reconverge_pc) {
    Reconvergence &r = reconvergences[size_t(reconvergence)];
    r.arrived |= active;
    active = 0;
    if (r.arrived != r.members) return false;
    active = r.arrived;
    r.open = false;
    set_reconvergence(r.parent);
  }
  return true;
}

void Warp::branch(uint32_t taken, int32_t target, int32_t meet) {
  if (taken == active) {
    pc = target;
    return;
  }
  if (meet >= 0 && meet != reconverge_pc) set_reconvergence(open_reconvergence(meet, active));
  uint32_t rest = active & ~taken;
  bool taken_first = block->grid.options.policy == Policy::Reverse;
  if (block->grid.options.policy == Policy::Random) taken_first = block->cluster->random.next() & 1;
  if (taken_first) {
    splits.push_back({rest, pc, reconvergence, frame});
    active = taken;
    pc = target;
  } else {
    splits.push_back({taken, target, reconvergence, frame});
    active = rest;
  }
}

void Warp::multiway_branch(const uint32_t *targets, uint32_t lanes, int32_t meet) {
  TKC_CHECK(lanes == active, "a branch table is taken by all lanes of the split");
  uint32_t rest = lanes;
  bool opened = false;
  while (rest) {
    uint32_t target = targets[first_lane(rest)], same = 0;
    each_lane(rest, [&](int lane) { same |= uint32_t(targets[lane] == target) << lane; });
    rest &= ~same;
    if (rest && !opened && meet >= 0 && meet != reconverge_pc) set_reconvergence(open_reconvergence(meet, active));
    opened = true;
    if (rest) {
      splits.push_back({same, int32_t(target), reconvergence, frame});
    } else {
      active = same;
      pc = int32_t(target);
    }
  }
}

void Warp::call(int32_t target, uint32_t lanes) {
  if (lanes != active) { // the others wait behind the call
    if (pc != reconverge_pc) set_reconvergence(open_reconvergence(pc, active));
    splits.push_back({active & ~lanes, pc, reconvergence, frame});
    active = lanes;
  }
  // The lanes meet again behind the call, whatever way the function takes.
  int32_t node = open_reconvergence(pc, active);
  frames.push_back({pc, frame});
  frame = int32_t(frames.size() - 1);
  set_reconvergence(node);
  pc = target;
}

void Warp::ret(uint32_t lanes) {
  if (frame < 0) return exit(lanes);
  if (lanes != active) {
    splits.push_back({active & ~lanes, pc, reconvergence, frame});
    active = lanes;
  }
  pc = frames[size_t(frame)].return_pc;
  frame = frames[size_t(frame)].parent;
  const Program &p = block->grid.program;
  const Inst &call = p.code[size_t(pc) - 1];
  each_lane(active, [&](int lane) {
    uint8_t *mine = local + lane * p.local_bytes;
    for (int k = call.n; k < call.n + call.mode[0]; k++) {
      const CallArgument &a = p.arguments[call.list + size_t(k)];
      std::memcpy(mine + a.to, mine + a.from, size_t(a.bytes));
    }
  });
  // Meeting points inside the function are left behind: the lanes there no longer wait for these.
  int32_t node = reconvergence;
  while (node >= 0 && !(reconvergences[size_t(node)].pc == pc && reconvergences[size_t(node)].frame == frame)) {
    Reconvergence &r = reconvergences[size_t(node)];
    r.members &= ~active;
    int32_t parent = r.parent;
    if (r.members == 0) {
      r.open = false;
    } else if (r.arrived == r.members) {
      splits.push_back({r.arrived, r.pc, r.parent, r.frame});
      r.open = false;
    }
    node = parent;
  }
  set_reconvergence(node);
}

void Warp::drop_lanes(uint32_t lanes) {
  for (Reconvergence &r : reconvergences) {
    if (!r.open || !(r.members & lanes)) continue;
    r.members &= ~lanes;
    r.arrived &= ~lanes;
    if (r.members != r.arrived) continue;
    r.open = false;
    if (r.members) splits.push_back({r.arrived, r.pc, r.parent, r.frame});
  }
}

void Warp::exit(uint32_t lanes) {
  live &= ~lanes;
  active &= ~lanes;
  drop_lanes(lanes);
  block->cluster->progress++;
  if (block->grid.program.uses_copies)
    block->cluster->clocks.release(block->clock_index(*this), lanes, block->cluster->exit_view);
  // Lanes that wait for these at a warp-wide instruction or a barrier may go on now: they try again.
  for (Split &s : splits)
    if (s.waiting == Waiting::WarpSync) s.waiting = Waiting::No;
  block->warp_exited();
  if (!active) suspended = true;
}

void Warp::wait(Waiting why, uint32_t lanes, uint32_t object, uint64_t phase) {
  if (why != Waiting::Barrier && lanes != active) { // the lanes that need not wait go on, at first to here
    if (pc != reconverge_pc) set_reconvergence(open_reconvergence(pc, active));
    splits.push_back({active & ~lanes, pc, reconvergence, frame});
    active = lanes;
  }
  Split s{active, at, reconvergence, frame, why, lanes, object, phase};
  splits.push_back(s);
  active = 0;
  suspended = true;
}

bool Warp::release_reconvergence() {
  bool any = false;
  for (Reconvergence &r : reconvergences) {
    if (!r.open || !r.arrived) continue;
    splits.push_back({r.arrived, r.pc, r.parent, r.frame});
    r.members &= ~r.arrived;
    r.arrived = 0;
    any = scattered = true;
  }
  return any;
}

// The running split waits at an .aligned instruction, or, as the last to come, executes it again with all the others.
void Warp::gather() {
  uint32_t together = active;
  auto belongs = [&](const Split &s) {
    return s.waiting == Waiting::WarpSync && s.pc == at && s.reconvergence == reconvergence && s.frame == frame;
  };
  for (const Split &s : splits)
    if (belongs(s)) together |= s.mask;
  if (together != live) return wait(Waiting::WarpSync, active);
  splits.erase(std::remove_if(splits.begin(), splits.end(), belongs), splits.end());
  active = live;
  pc = at;
}

bool Warp::converged(uint32_t mask, bool all_present) {
  uint32_t wanted = all_present ? ~uint32_t(0) : live;
  if (mask == live) scattered = false;
  if (mask == wanted) return true;
  uint32_t missing = wanted & ~mask;
  if (scattered && mask == active && (missing & ~live) == 0) return gather(), false;
  std::string why = missing & ~present         ? "the warp has fewer than 32 threads"
                    : missing & ~live          ? "lanes of the warp have exited"
                    : (missing & ~active) == 0 ? "its predicate is false"
                                               : "the warp is divergent";
  error(ErrorKind::Divergence, first_lane(mask), 0,
        fmt::format(
            "all lanes of the warp must execute this .aligned instruction together, but lanes {:#010x} do not: {}",
            missing, why));
  return false;
}

uint32_t Warp::warp_sync(uint32_t lanes, const uint32_t *members) {
  bool complete = true;
  uint32_t own = lanes;
  for (uint32_t m = lanes; m; m &= m - 1) {
    int lane = first_lane(m);
    if (!(members[lane] >> lane & 1)) {
      error(ErrorKind::Divergence, lane, 0,
            fmt::format("lane {} executes this but is not in its member mask {:#010x}", lane, members[lane]));
      return 0;
    }
    complete &= (members[lane] & live & ~lanes) == 0;
  }
  if (complete) return lanes;
  // Lanes of other splits that wait here join in; a split takes part only as a whole.
  std::vector<Split *> others;
  for (Split &s : splits)
    if (s.waiting == Waiting::WarpSync && s.pc == at) others.push_back(&s), own |= s.lanes;
  bool changed = true;
  while (changed) {
    changed = false;
    auto wants_more = [&](uint32_t group) {
      uint32_t wanted = 0;
      each_lane(group, [&](int lane) { wanted |= members[lane] & live; });
      return (wanted & ~own) != 0;
    };
    if (wants_more(lanes)) {
      wait(Waiting::WarpSync, lanes);
      return 0;
    }
    for (Split *&s : others) {
      if (!s || !wants_more(s->lanes)) continue;
      own &= ~s->lanes;
      s = nullptr;
      changed = true;
    }
  }
  for (Split *s : others)
    if (s) s->waiting = Waiting::No, s->pc = at + 1;
  return own;
}

} // namespace tkc::emu
