#include "emu/async.h"
#include "emu/block.h"
#include <algorithm>
#include <cstring>

namespace tkc::emu {

namespace {
// Reports of a copy that completes name the instruction that issued it.
struct At {
  Warp &warp;
  int32_t saved;
  At(Warp &w, int32_t pc) : warp(w), saved(w.at) { w.at = pc; }
  ~At() { warp.at = saved; }
};

void perform(const SmallCopy &c) {
  if (c.source_bytes) std::memcpy(c.to, c.from, c.source_bytes);
  std::memset(c.to + c.source_bytes, 0, size_t(c.bytes - c.source_bytes));
}

// Completes the phase if nothing is missing.
void check_phase(Block &block, uint32_t address, Mbarrier &m) {
  if (m.pending != 0 || m.tx != 0) return;
  m.phase++;
  m.pending = m.expected;
  // Arrivals are read-modify-writes of one object, so who sees a phase complete is ordered after all phases before.
  m.released.join(m.arriving);
  m.released.raise(m.phases, uint32_t(m.phase));
  m.arriving = View();
  uint32_t complete = m.in_flight.empty() ? m.issued : *m.in_flight.begin() - 1;
  if (complete) m.released.raise(m.stream, complete);
  block.cluster->progress++;
  for (Warp &w : block.warps)
    for (Split &s : w.splits)
      if (s.waiting == Waiting::Mbarrier && s.object == address) s.waiting = Waiting::No;
}
} // namespace

Mbarrier *find_mbarrier(Block &block, uint32_t address, Warp &warp, int lane) {
  auto at = block.mbarriers.find(address);
  if (at != block.mbarriers.end()) return &at->second;
  warp.error(ErrorKind::MbarrierMisuse, lane, kSharedWindow + address,
             fmt::format("no mbarrier has been initialised at {:#x}", address));
  return nullptr;
}

bool mbarrier_arrive(Block &block, uint32_t address, Mbarrier &m, int64_t count, Warp &warp, int lane) {
  if (count < 1 || count > kMostArrivals || count > m.pending) {
    std::string why = m.pending
                          ? fmt::format("only {} of {} arrivals are missing", m.pending, m.expected)
                          : fmt::format("all {} arrivals have come and the phase waits for {} bytes", m.expected, m.tx);
    warp.error(ErrorKind::MbarrierMisuse, lane, kSharedWindow + address,
               fmt::format("{} arrivals at the mbarrier at {:#x}, but in phase {} {}", count, address, m.phase, why));
    return false;
  }
  m.pending -= count;
  block.cluster->progress++;
  check_phase(block, address, m);
  return true;
}

bool mbarrier_add_tx(Block &block, uint32_t address, Mbarrier &m, int64_t bytes, Warp &warp, int lane) {
  m.tx += bytes;
  block.cluster->progress++;
  if (m.tx > kMostArrivals || m.tx < -kMostArrivals) {
    warp.error(ErrorKind::MbarrierMisuse, lane, kSharedWindow + address,
               fmt::format("the transaction count of the mbarrier at {:#x} becomes {} in phase {}, beyond +-(2^20 - 1)",
                           address, m.tx, m.phase));
    return false;
  }
  check_phase(block, address, m);
  return true;
}

void Async::issue(Cluster &cluster, Copy copy) {
  copies_.push_back(std::move(copy));
  if (cluster.grid.options.policy == Policy::Eager) complete(cluster, copies_.size() - 1);
}

void Async::issue_small(Cluster &cluster, int32_t thread, const SmallCopy &copy) {
  if (cluster.grid.options.policy == Policy::Eager) return perform(copy);
  threads_[thread].pending.push_back(copy);
  small_pending_++;
}

void Async::complete_small(int32_t thread, uint32_t stamp) {
  std::deque<SmallCopy> &pending = threads_[thread].pending;
  while (!pending.empty() && pending.front().stamp <= stamp) {
    perform(pending.front());
    pending.pop_front();
    small_pending_--;
  }
}

void Async::complete(Cluster &cluster, size_t k) {
  Copy c = std::move(copies_[k]);
  copies_.erase(copies_.begin() + int64_t(k));
  At at(*c.warp, c.pc);
  int32_t warp = c.warp->block->clock_index(*c.warp);
  if (c.kind == Copy::Kind::FromShared) {
    if (!c.was_read) c.read();
    return c.write();
  }
  if (c.kind == Copy::Kind::ArriveCopies)
    complete_small(warp * 32 + c.lane, c.stamp);
  else
    c.write();
  Mbarrier *m = find_mbarrier(*c.barrier_block, c.barrier, *c.warp, c.lane);
  if (!m) return;
  if (c.kind == Copy::Kind::ArriveCopies) {
    if (c.stamp) m->arriving.raise(cluster.clocks.component(Clocks::kCopies, warp, c.lane), c.stamp);
    mbarrier_arrive(*c.barrier_block, c.barrier, *m, 1, *c.warp, c.lane);
  } else {
    m->in_flight.erase(c.stamp);
    mbarrier_add_tx(*c.barrier_block, c.barrier, *m, -c.tx, *c.warp, c.lane);
  }
}

bool Async::complete_one(Cluster &cluster) {
  std::vector<size_t> useful;
  for (size_t k = 0; k < copies_.size(); k++)
    if (copies_[k].kind != Copy::Kind::FromShared) useful.push_back(k);
  if (useful.empty()) return false;
  size_t k = useful.front();
  if (cluster.grid.options.policy == Policy::Reverse) k = useful.back();
  if (cluster.grid.options.policy == Policy::Random) k = useful[size_t(cluster.random.below(int64_t(useful.size())))];
  complete(cluster, k);
  return true;
}

void Async::step(Cluster &cluster) {
  if (!copies_.empty() && (small_pending_ == 0 || cluster.random.next() & 1)) {
    size_t k = size_t(cluster.random.below(int64_t(copies_.size())));
    Copy &c = copies_[k];
    if (c.kind == Copy::Kind::FromShared && !c.was_read) {
      c.read();
      c.was_read = true;
    } else {
      complete(cluster, k);
    }
    return;
  }
  if (!small_pending_) return;
  auto at = threads_.lower_bound(int32_t(cluster.random.below(cluster.clocks.warp_count() * 32)));
  for (size_t n = 0; n <= threads_.size(); n++, ++at) {
    if (at == threads_.end()) at = threads_.begin();
    if (at->second.pending.empty()) continue;
    // The copies of a thread are not ordered among each other, but those of a group complete before the next one's.
    perform(at->second.pending.front());
    at->second.pending.pop_front();
    small_pending_--;
    return;
  }
}

void Async::complete_bulk(int32_t thread, uint32_t stamp, bool read_only) {
  for (size_t k = 0; k < copies_.size();) {
    Copy &c = copies_[k];
    bool mine = c.kind == Copy::Kind::FromShared && c.warp->block->clock_index(*c.warp) * 32 + c.lane == thread &&
                c.stamp <= stamp;
    if (mine && !c.was_read) c.read(), c.was_read = true;
    if (!mine || read_only) {
      k++;
      continue;
    }
    c.write();
    copies_.erase(copies_.begin() + int64_t(k));
  }
}

void Async::complete_all(Cluster &cluster) {
  while (!copies_.empty()) complete(cluster, 0);
  for (auto &[thread, copies] : threads_) complete_small(thread, ~uint32_t(0));
}

void check_copies_at_exit(Cluster &cluster) {
  const View &seen = cluster.exit_view;
  auto known = [&](uint32_t component) { return component < seen.known.size() ? seen.known[component] : 0; };
  auto report = [&](Warp &w, int lane, uint64_t address, std::string text) {
    // No instruction is at fault: the one that is missing would have to come before the end.
    w.at = int32_t(cluster.grid.program.code.size()) - 1;
    w.error(ErrorKind::InFlightAtExit, lane, address, text);
  };
  for (const auto &[thread, copies] : cluster.async.threads()) {
    int32_t warp = thread / 32, lane = thread % 32;
    Warp &w = *cluster.all_warps[size_t(warp)];
    if (known(cluster.clocks.component(Clocks::kCopies, warp, lane)) < copies.small.issued)
      report(w, lane, 0,
             "the block ends while cp.async copies of this thread may be in flight: nothing waits for them");
    if (known(cluster.clocks.component(Clocks::kBulk, warp, lane)) < copies.bulk.issued)
      report(w, lane, 0,
             "the block ends while bulk copies of this thread may still read shared memory: cp.async.bulk.wait_group "
             "is missing");
  }
  for (const auto &b : cluster.blocks)
    for (const auto &[address, m] : b->mbarriers) {
      if (known(m.stream) < m.issued)
        report(b->warps[0], -1, generic_shared(*b, address),
               fmt::format("the block ends while copies that complete on the mbarrier at {:#x} may be in flight: no "
                           "thread waits for them",
                           address));
      else if (m.tx != 0)
        report(b->warps[0], -1, generic_shared(*b, address),
               m.tx > 0
                   ? fmt::format("the block ends while the mbarrier at {:#x} expects {} more bytes", address, m.tx)
                   : fmt::format("the block ends after {} bytes more than the mbarrier at {:#x} was told to expect",
                                 -m.tx, address));
    }
}

} // namespace tkc::emu
