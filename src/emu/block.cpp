// Set-up of a block and the scheduler of a cluster.
#include "emu/block.h"
#include "support/stop.h"
#include <algorithm>
#include <cstring>

namespace tkc::emu {

Block::Block(Cluster &c, int64_t linear, int32_t rank_in_cluster)
    : cluster(&c), grid(c.grid), index(linear), rank(rank_in_cluster), shadow(0) {
  const Program &p = grid.program;
  const int64_t *g = grid.launch.grid;
  ctaid[0] = linear % g[0];
  ctaid[1] = linear / g[0] % g[1];
  ctaid[2] = linear / g[0] / g[1];
  bool dynamic = std::any_of(p.shared.begin(), p.shared.end(), [](const SharedVar &v) { return v.dynamic; });
  shared_bytes = p.shared_end + (dynamic ? grid.launch.dynamic_shared : 0);
  shared.assign(size_t(shared_bytes), 0xA5); // undefined; a value that is seldom right by accident
  if (grid.options.check_shared) shadow = Shadow(shared_bytes);
  size_t words = (size_t(p.words) + 1) / 2;
  registers_ = std::make_unique<uint64_t[]>(words * size_t(grid.warps) + 8);
  std::memset(registers_.get(), 0xA5, words * size_t(grid.warps) * 8);
  predicates_.assign(size_t(p.predicates * grid.warps), 0);
  local_.assign(size_t(p.local_bytes * 32 * grid.warps), 0xA5);
  warps.resize(size_t(grid.warps));
  for (int64_t i = 0; i < grid.warps; i++) {
    Warp &w = warps[size_t(i)];
    w.block = this;
    w.index = int32_t(i);
    w.regs = reinterpret_cast<uint32_t *>(registers_.get() + words * size_t(i));
    w.preds = predicates_.data() + i * p.predicates;
    w.local = local_.data() + i * 32 * p.local_bytes;
    int64_t threads = std::min<int64_t>(32, grid.threads - 32 * i);
    w.present = w.live = threads == 32 ? ~uint32_t(0) : (uint32_t(1) << threads) - 1;
    w.splits.push_back({w.present, 0});
    start_warp(w);
  }
}

void Block::thread_id(const Warp &w, int lane, int64_t out[3]) const {
  const int64_t *n = grid.launch.block;
  int64_t t = int64_t(w.index) * 32 + lane;
  out[0] = t % n[0];
  out[1] = t / n[0] % n[1];
  out[2] = t / n[0] / n[1];
}

bool Block::exited() const {
  return std::all_of(warps.begin(), warps.end(), [](const Warp &w) { return w.live == 0; });
}

void Block::start_warp(Warp &w) {
  const Program &p = grid.program;
  w.preds[0] = ~uint32_t(0);
  for (const Constant &c : p.constants) {
    uint64_t bits = c.bits + (c.symbol >= 0 ? grid.symbols[size_t(c.symbol)] : 0);
    if (c.bytes == 4) std::fill_n(w.row<uint32_t>(c.row), 32, uint32_t(bits));
    if (c.bytes == 8) std::fill_n(w.row<uint64_t>(c.row), 32, bits);
    if (c.bytes == 16) {
      std::fill_n(w.row<uint64_t>(c.row), 32, bits);
      std::fill_n(w.row<uint64_t>(c.row + 64), 32, int64_t(bits) < 0 ? ~uint64_t(0) : 0);
    }
  }
  const Launch &launch = grid.launch;
  int64_t clusters[3], cluster_id[3], in_cluster[3];
  for (int k = 0; k < 3; k++) {
    clusters[k] = launch.grid[k] / launch.cluster[k];
    cluster_id[k] = ctaid[k] / launch.cluster[k];
    in_cluster[k] = ctaid[k] % launch.cluster[k];
  }
  int64_t cluster_size = launch.cluster[0] * launch.cluster[1] * launch.cluster[2];
  for (const SpecialRow &s : p.specials) {
    for (int lane = 0; lane < 32; lane++) {
      int64_t tid[3], value = 0;
      thread_id(w, lane, tid);
      uint32_t bit = uint32_t(1) << lane;
      switch (s.what) {
      case Special::TidX: value = tid[0]; break;
      case Special::TidY: value = tid[1]; break;
      case Special::TidZ: value = tid[2]; break;
      case Special::NtidX: value = launch.block[0]; break;
      case Special::NtidY: value = launch.block[1]; break;
      case Special::NtidZ: value = launch.block[2]; break;
      case Special::CtaidX: value = ctaid[0]; break;
      case Special::CtaidY: value = ctaid[1]; break;
      case Special::CtaidZ: value = ctaid[2]; break;
      case Special::NctaidX: value = launch.grid[0]; break;
      case Special::NctaidY: value = launch.grid[1]; break;
      case Special::NctaidZ: value = launch.grid[2]; break;
      case Special::LaneId: value = lane; break;
      case Special::WarpId: value = w.index; break;
      case Special::NwarpId: value = 64; break;
      case Special::SmId: value = index % 8; break;
      case Special::NsmId: value = 8; break;
      case Special::GridId: value = 1; break;
      case Special::LaneMaskEq: value = bit; break;
      case Special::LaneMaskLe: value = bit | (bit - 1); break;
      case Special::LaneMaskLt: value = bit - 1; break;
      case Special::LaneMaskGe: value = uint32_t(0) - bit; break;
      case Special::LaneMaskGt: value = uint32_t(uint64_t(1) << 32) - (uint64_t(bit) << 1); break;
      case Special::ClusterIdX: value = cluster_id[0]; break;
      case Special::ClusterIdY: value = cluster_id[1]; break;
      case Special::ClusterIdZ: value = cluster_id[2]; break;
      case Special::NclusterIdX: value = clusters[0]; break;
      case Special::NclusterIdY: value = clusters[1]; break;
      case Special::NclusterIdZ: value = clusters[2]; break;
      case Special::ClusterCtaidX: value = in_cluster[0]; break;
      case Special::ClusterCtaidY: value = in_cluster[1]; break;
      case Special::ClusterCtaidZ: value = in_cluster[2]; break;
      case Special::ClusterNctaidX: value = launch.cluster[0]; break;
      case Special::ClusterNctaidY: value = launch.cluster[1]; break;
      case Special::ClusterNctaidZ: value = launch.cluster[2]; break;
      case Special::ClusterCtaRank: value = rank; break;
      case Special::ClusterNctaRank: value = cluster_size; break;
      case Special::TotalSharedSize: value = p.info.static_shared + launch.dynamic_shared; break;
      case Special::DynamicSharedSize: value = launch.dynamic_shared; break;
      }
      if (s.bytes == 4)
        w.row<uint32_t>(s.row)[lane] = uint32_t(value);
      else
        w.row<uint64_t>(s.row)[lane] = uint64_t(value);
    }
  }
}

Cluster::Cluster(const Grid &g, int64_t number, int64_t size)
    : grid(g), clocks(g.warps * size), random{g.options.seed * 0x9e3779b97f4a7c15u + uint64_t(number)} {
  const int64_t *c = g.launch.cluster, *n = g.launch.grid;
  int64_t per_x = n[0] / c[0], per_y = n[1] / c[1];
  int64_t base[3] = {number % per_x * c[0], number / per_x % per_y * c[1], number / per_x / per_y * c[2]};
  for (int64_t rank = 0; rank < size; rank++) {
    int64_t x = base[0] + rank % c[0], y = base[1] + rank / c[0] % c[1], z = base[2] + rank / c[0] / c[1];
    blocks.push_back(std::make_unique<Block>(*this, x + n[0] * (y + n[1] * z), int32_t(rank)));
  }
  for (const auto &b : blocks)
    for (Warp &w : b->warps) all_warps.push_back(&w);
}

bool Cluster::stopped() const {
  return std::any_of(blocks.begin(), blocks.end(), [](const auto &b) { return b->stopped; });
}

Warp *Cluster::choose() {
  size_t n = all_warps.size();
  if (grid.options.policy == Policy::Random) {
    size_t start = size_t(random.below(int64_t(n)));
    for (size_t k = 0; k < n; k++)
      if (Warp *w = all_warps[(start + k) % n]; w->runnable()) return w;
    return nullptr;
  }
  if (grid.options.policy == Policy::Reverse) {
    for (size_t k = 0; k < n; k++)
      if (Warp *w = all_warps[(last_ + n - k) % n]; w->runnable()) return last_ = (last_ + n - k) % n, w;
    return nullptr;
  }
  for (size_t k = 0; k < n; k++)
    if (Warp *w = all_warps[(last_ + k) % n]; w->runnable()) return last_ = (last_ + k) % n, w;
  return nullptr;
}

// Threads that poll an mbarrier are told "not yet" a few times: they may do something else then.
bool Cluster::answer_pollers() {
  constexpr int64_t kMostIdleRounds = 64;
  if (progress != idle_progress_) idle_progress_ = progress, idle_rounds_ = 0;
  if (idle_rounds_++ >= kMostIdleRounds) return false;
  bool any = false;
  for (Warp *w : all_warps)
    for (Split &s : w->splits)
      if (s.waiting == Waiting::Mbarrier) s.waiting = Waiting::No, s.not_yet = true, any = true;
  return any;
}

bool Cluster::unblock() {
  if (async.complete_one(*this) || answer_pollers()) return true;
  bool any = false;
  for (Warp *w : all_warps) any |= w->release_reconvergence();
  return any;
}

// All that can run polls for something that nobody running will bring.
bool Cluster::help_spinning() {
  if (progress != hopeless_progress_) hopeless_progress_ = progress, take_heart();
  for (Warp *w : all_warps)
    if (w->runnable() && !w->spins()) return false;
  for (Warp *w : all_warps) w->stale_polls = 0;
  if (unblock()) return true;
  hopeless_rounds_++;
  return false;
}

Cluster::State Cluster::run(bool may_pause) {
  constexpr int64_t kPauseAfter = 1 << 20, kMostPolls = 64;
  int64_t budget = grid.options.instruction_budget, used = 0;
  if (last_ == 0 && grid.options.policy == Policy::Reverse) last_ = all_warps.size() - 1;
  for (;;) {
    if (stopped()) return State::Finished;
    if (grid.options.policy == Policy::Random && async.pending() && random.below(4) == 0) async.step(*this);
    Warp *w = choose();
    if (!w) {
      if (std::all_of(blocks.begin(), blocks.end(), [](const auto &b) { return b->exited(); })) break;
      if (unblock()) continue;
      report_deadlock();
      return State::Finished;
    }
    if (stop_requested()) {
      w->at = w->splits.front().pc;
      w->error(ErrorKind::Budget, first_lane(w->splits.front().mask), 0, "the run was stopped");
      return State::Finished;
    }
    if (w->spins() && help_spinning()) continue;
    if (hopeless() && !may_pause) {
      report_deadlock();
      return State::Finished;
    }
    int64_t quantum = grid.options.policy == Policy::Random ? 1 + random.below(48) : 4096;
    Block &b = *w->block;
    int64_t left = budget - b.instructions;
    int64_t before = b.instructions;
    w->run(std::min(quantum, left));
    used += b.instructions - before;
    bool turn_over = w->runnable() && quantum > 64; // it has used up its quantum: spinning, perhaps on another warp
    if (turn_over)
      last_ = (last_ + (grid.options.policy == Policy::Reverse ? all_warps.size() - 1 : 1)) % all_warps.size();
    if (b.instructions >= budget && !b.stopped && !b.exited())
      w->error(ErrorKind::Budget, first_lane(w->live | 1u << 31), 0,
               fmt::format("the block has executed {} warp instructions and has not ended", b.instructions));
    if (may_pause && (used > kPauseAfter || polls > kMostPolls)) {
      polls = 0;
      return State::Paused;
    }
  }
  async.complete_all(*this); // whether or not they should have been waited for, the bytes land
  if (grid.options.check_shared) check_copies_at_exit(*this);
  return State::Finished;
}

void Cluster::report_deadlock() {
  for (const auto &b : blocks) {
    for (Warp &w : b->warps) {
      if (!w.live || w.splits.empty()) continue;
      const Split &s = w.splits.front();
      w.at = s.pc;
      if (s.waiting == Waiting::No) // it polls: the last one was just before
        for (const auto &[pc, value] : w.polled) w.at = pc;
      w.error(ErrorKind::Deadlock, first_lane(s.mask), 0, "no thread can go on: " + b->describe_waits());
      return;
    }
  }
}

} // namespace tkc::emu
