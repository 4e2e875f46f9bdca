// Shared memory after allocation: ranges, and an ordering edge between any two accesses of the same bytes.
//
// The function is walked with the set of accesses that may still be in flight: made since the last block barrier on
// some path. Regions of loops are walked until the set no longer grows, so accesses of one iteration meet those of the
// next.
#include "ir/by_hand.h"
#include "ir/ring.h"
#include "ir/verify_rules.h"
#include "layout/convert.h"
#include <algorithm>
#include <map>
#include <set>

namespace tkc::ir {

namespace {

struct Buffer {
  const Op *op = nullptr; // the scratch_store, or the op with scratch of its own
  int64_t begin = 0, end = 0;
  bool overlaps(const Buffer &o) const { return begin < o.end && o.begin < end; }
};

// Accesses in flight: (buffer, op that accesses, writes?) -> a warp barrier came after it on every path.
using Access = std::tuple<const Op *, const Op *, bool>;
struct State {
  std::map<Access, bool> pending;
  std::set<const Op *> clobbered; // buffers whose content another one may have overwritten
  bool merge(const State &o) {
    bool grew = false;
    for (const auto &[access, synced] : o.pending) {
      auto [it, added] = pending.emplace(access, synced);
      grew |= added || (it->second && !synced);
      it->second &= synced;
    }
    for (const Op *b : o.clobbered) grew |= clobbered.insert(b).second;
    return grew;
  }
};

// Every warp reads only what it stored itself, and no two warps store the same element.
bool within_warp(const RegLayout &store, const RegLayout &load) {
  return store.free_bits().warp == 0 && stays_in_warp(store, load);
}

class Shared {
public:
  Shared(const Function &f, Faults &faults) : f_(f), faults_(faults) {}

  void run() {
    walk(f_.body, [&](const Op *op) { collect(*op); });
    if (!faults_.list.empty()) return;
    roles_apart();
    by_hand_apart();
    State state;
    block(*f_.body, state);
  }

private:
  void collect(const Op &op) {
    bool store = op.kind == OpKind::ScratchStore;
    if (op.kind == OpKind::RingAlloc) {
      if (!op.attrs.has("offset")) return faults_.add(op, "attribute `offset` is missing: the ring has no place");
      int64_t at = op.attrs.i("offset"), end = at + op.attrs.i("bytes");
      if (at < 0 || at % 128) faults_.add(op, "offset {} is not a multiple of 128", at);
      if (end > f_.shared_bytes)
        faults_.add(op, "[{}, {}) passes the end of shared memory at {}", at, end, f_.shared_bytes);
      buffers_[&op] = {&op, at, end};
      if (!has_mbarriers(op)) return;
      if (!op.attrs.has("barrier_offset"))
        return faults_.add(op, "attribute `barrier_offset` is missing: the ring's mbarriers have no place");
      int64_t barriers = op.attrs.i("barrier_offset");
      if (barriers < 0 || barriers % 8) faults_.add(op, "mbarriers at {}, which is no multiple of 8", barriers);
      if (barriers + mbarrier_bytes(op) > f_.shared_bytes)
        faults_.add(op, "mbarriers at {} pass the end of shared memory at {}", barriers, f_.shared_bytes);
      return;
    }
    if (op.kind == OpKind::SharedAlloc || op.kind == OpKind::BarrierAlloc) return collect_by_hand(op);
    ScratchFn *scratch = def(op).scratch;
    int64_t bytes = store ? op.attrs.get<SmemLayout>("smem").bytes : scratch ? scratch(op) : 0;
    if (!store && bytes == 0) return;
    const char *key = store ? "offset" : "scratch_offset";
    if (!op.attrs.has(key))
      return faults_.add(op, "attribute `{}` is missing: {} bytes of shared memory have no place", key, bytes);
    int64_t offset = op.attrs.i(key),
            align = store ? std::max<int64_t>(16, op.attrs.get<SmemLayout>("smem").alignment) : 16;
    if (offset < 0 || offset % align) faults_.add(op, "offset {} is not a multiple of {}", offset, align);
    if (offset + bytes > f_.shared_bytes)
      faults_.add(op, "[{}, {}) passes the end of shared memory at {}", offset, offset + bytes, f_.shared_bytes);
    buffers_[&op] = {&op, offset, offset + bytes};
  }

  void collect_by_hand(const Op &op) {
    if (!op.attrs.has("offset")) return faults_.add(op, "attribute `offset` is missing: it has no place");
    bool buffer = op.kind == OpKind::SharedAlloc;
    int64_t at = op.attrs.i("offset"), bytes = buffer ? op.attrs.i("bytes") : 8 * slots_of(op);
    int64_t align = buffer ? std::max<int64_t>(16, op.attrs.get<SmemLayout>("smem").alignment) : 8;
    if (at < 0 || at % align) faults_.add(op, "offset {} is not a multiple of {}", at, align);
    if (at + bytes > f_.shared_bytes)
      faults_.add(op, "[{}, {}) passes the end of shared memory at {}", at, at + bytes, f_.shared_bytes);
    buffers_[&op] = {&op, at, at + bytes};
  }
  // What a kernel makes by hand is its own for as long as it runs.
  void by_hand_apart() {
    for (const auto &[a, x] : buffers_)
      for (const auto &[b, y] : buffers_)
        if (a != b && (a->kind == OpKind::SharedAlloc || a->kind == OpKind::BarrierAlloc) && x.overlaps(y))
          fault(*b, *a, "has bytes of");
  }

  // No barrier orders what one role does with a buffer before what another one does.
  void roles_apart() {
    for (const auto &[a, x] : buffers_)
      for (const auto &[b, y] : buffers_)
        if (role_of(a->block) >= 0 && role_of(b->block) > role_of(a->block) && x.overlaps(y))
          fault(*a, *b, "has bytes of another role's");
  }

  void fault(const Op &op, const Op &other, const char *text) {
    if (reported_.insert({&op, &other}).second) faults_.add(op, "{} `{}`", text, print_op(other));
  }

  void write(const Op &op, State &state) {
    const Buffer &b = buffers_.at(&op);
    for (const auto &[access, synced] : state.pending) {
      auto [buffer, at, writes] = access;
      if (!b.overlaps(buffers_.at(buffer))) continue;
      if (buffer != &op) {
        fault(op, *at, "overwrites shared memory without a block barrier after");
      } else if (!writes) {
        // The next iteration stores while another warp may still read; each thread rewrites only its own bytes
        // otherwise.
        bool own =
            op.kind == OpKind::ScratchStore && synced && within_warp(*op.operand(0)->layout, *at->result()->layout);
        if (!own) fault(op, *at, "overwrites its buffer without a barrier after the last read by");
      }
    }
    for (const auto &[other, range] : buffers_)
      if (other != &op && b.overlaps(range)) state.clobbered.insert(other);
    state.clobbered.erase(&op);
  }

  void read(const Op &op, State &state) {
    const Op *store = op.operand(0)->op;
    for (const auto &[access, synced] : state.pending) {
      auto [buffer, at, writes] = access;
      if (!writes || !buffers_.at(store).overlaps(buffers_.at(buffer))) continue;
      if (buffer != store || !synced || !within_warp(*store->operand(0)->layout, *op.result()->layout))
        fault(op, *at,
              synced ? "reads other warps' data without a block barrier after"
                     : "reads shared memory without a barrier after");
    }
    if (state.clobbered.count(store)) fault(op, *store, "reads a buffer that may have been overwritten since");
    state.pending[{store, &op, false}] = false;
  }

  // A ring's protocol is the business of the proof pass; here a fill must not meet reads of its slots from before the
  // ring's last wait, and neither must meet other buffers.
  void ring_access(const Op &op, const Op &ring, bool fills, State &state) {
    const Buffer &b = buffers_.at(&ring);
    for (const auto &[access, synced] : state.pending) {
      auto [buffer, at, writes] = access;
      if (!b.overlaps(buffers_.at(buffer)) || (!fills && !writes)) continue;
      if (buffer != &ring)
        fault(op, *at,
              fills ? "overwrites shared memory without a block barrier after" : "reads what was overwritten by");
      else if (fills && !writes && !has_producer(ring))
        fault(op, *at, "overwrites its ring without a barrier after the last read by");
    }
    if (fills)
      for (const auto &[other, range] : buffers_)
        if (other != &ring && b.overlaps(range)) state.clobbered.insert(other);
    state.pending[{&ring, &op, fills}] = false;
  }

  void block(const Block &b, State &state) {
    for (const Op *op : b.ops) {
      switch (op->kind) {
      case OpKind::For: loop({op->regions[0]}, state); break;
      case OpKind::While: loop({op->regions[0], op->regions[1]}, state); break;
      case OpKind::If:
      case OpKind::Roles: {
        State before = state;
        block(*op->regions[0], state);
        for (size_t r = 1; r < op->regions.size(); r++) {
          State other = before;
          block(*op->regions[r], other);
          state.merge(other);
        }
        break;
      }
      case OpKind::BlockBarrier:
        if (is_block_barrier(*op))
          state.pending.clear();
        else
          for (auto &[access, synced] : state.pending) synced = true;
        break;
      case OpKind::ScratchStore:
        write(*op, state);
        state.pending[{op, op, true}] = false;
        break;
      case OpKind::ScratchLoad: read(*op, state); break;
      case OpKind::SharedAlloc: // who uses it when is the proof's business
      case OpKind::BarrierAlloc:
      case OpKind::RingAlloc:
      case OpKind::RingAcquire:
      case OpKind::RingPublish:
      case OpKind::RingRelease:
      case OpKind::RingTest: break;
      case OpKind::RingWait:
        if (is_block_barrier(*op)) state.pending.clear();
        break;
      case OpKind::RingFill:
      case OpKind::RingStore:
      case OpKind::RingLoad: ring_access(*op, *ring_of(*op), op->kind != OpKind::RingLoad, state); break;
      default:
        if (!buffers_.count(op)) break;
        write(*op, state);
        state.pending.clear(); // its own barrier
        state.pending[{op, op, false}] = false;
      }
    }
  }

  // `state` becomes what holds after any number of iterations. The last region may be left out at the end (while).
  void loop(const std::vector<const Block *> &regions, State &state) {
    bool condition_first = regions.size() == 2;
    while (true) {
      State next = state;
      if (condition_first) block(*regions[0], next);
      State exit = next;
      block(*regions.back(), next);
      if (state.merge(next)) continue;
      if (condition_first) state = exit;
      return;
    }
  }

  const Function &f_;
  Faults &faults_;
  std::map<const Op *, Buffer> buffers_;
  std::set<std::pair<const Op *, const Op *>> reported_;
};

} // namespace

void verify_shared(const Function &f, Faults &faults) { Shared(f, faults).run(); }

} // namespace tkc::ir
