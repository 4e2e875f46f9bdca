// Launches: checks, module variables, blocks over host threads, and the report.
#include "emu/block.h"
#include "support/check.h"
#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <thread>

namespace tkc::emu {

namespace {
struct ErrorRow {
  std::string_view name;
  bool fatal;
};
constexpr ErrorRow kErrors[] = {
#define TKC_EMU_ERROR(kind, name, fatal) {name, fatal},
#include "emu/error_kind.def"
#undef TKC_EMU_ERROR
};
} // namespace

namespace {
constexpr std::pair<Policy, std::string_view> kPolicies[] = {
    {Policy::Eager, "eager"}, {Policy::Lazy, "lazy"}, {Policy::Random, "random"}, {Policy::Reverse, "reverse"}};
}
std::string_view policy_name(Policy p) { return kPolicies[int(p)].second; }
std::optional<Policy> find_policy(std::string_view name) {
  for (const auto &[policy, its_name] : kPolicies)
    if (its_name == name) return policy;
  return std::nullopt;
}
Options nth_schedule(Options o, int64_t k, std::optional<Policy> policy) {
  constexpr Policy kFirst[] = {Policy::Eager, Policy::Lazy, Policy::Reverse};
  o.policy = policy ? *policy : k < 3 ? kFirst[k] : Policy::Random;
  o.seed += uint64_t(k);
  return o;
}

std::string_view error_name(ErrorKind kind) { return kErrors[int(kind)].name; }
bool error_is_fatal(ErrorKind kind) { return kErrors[int(kind)].fatal; }

std::string to_string(const Error &e) {
  std::string where;
  if (e.ptx_line) where += fmt::format("PTX line {}, ", e.ptx_line);
  if (!e.source_file.empty()) where += fmt::format("{}:{}, ", e.source_file, e.source_line);
  where += fmt::format("block ({},{},{}), thread ({},{},{})", e.block[0], e.block[1], e.block[2], e.thread[0],
                       e.thread[1], e.thread[2]);
  if (e.kind == ErrorKind::Launch) return fmt::format("error: {} [{}]", e.message, error_name(e.kind));
  return fmt::format("error: {} [{}] ({})", e.message, error_name(e.kind), where);
}

std::vector<const KernelInfo *> kernels(const Module &module) {
  std::vector<const KernelInfo *> out;
  for (const auto &p : module.programs) out.push_back(&p->info);
  return out;
}
const KernelInfo *find_kernel(const Module &module, std::string_view name) {
  for (const auto &p : module.programs)
    if (p->info.name == name) return &p->info;
  return nullptr;
}

ParamWriter &ParamWriter::set_bytes(int64_t index, const void *data, int64_t bytes) {
  TKC_CHECK(index >= 0 && index < int64_t(kernel_.params.size()), "{} has no parameter {}", kernel_.name, index);
  const PtxParam &p = kernel_.params[size_t(index)];
  TKC_CHECK(bytes == p.bytes, "parameter {} of {} has {} bytes, not {}", index, kernel_.name, p.bytes, bytes);
  std::memcpy(bytes_.data() + p.offset, data, size_t(bytes));
  return *this;
}

namespace {
// Allocates the module's variables on the first launch with this memory; they keep their contents until it is gone.
void place_symbols(const Module &module, Memory &memory) {
  Memory::Symbols &symbols = *memory.symbols(module.id);
  if (!symbols.empty()) return;
  for (const PtxVar &v : module.ptx.vars) {
    if (v.space == Space::Shared || v.external) continue;
    Memory::Attributes a;
    a.constant = v.space == Space::Const;
    a.alignment = std::max<int64_t>(256, v.align);
    uint64_t address = memory.allocate(v.bytes, v.name, a);
    symbols[v.name] = address;
    if (!v.init.empty()) std::memcpy(memory.host(address), v.init.data(), v.init.size());
  }
  for (const PtxVar &v : module.ptx.vars)
    for (const PtxVar::Relocation &r : v.relocations) {
      auto target = symbols.find(r.name);
      uint64_t bits = (target == symbols.end() ? 0 : target->second) + uint64_t(r.offset);
      std::memcpy(memory.host(symbols[v.name]) + r.at, &bits, 8);
    }
}

std::string check_launch(const Program &p, const Launch &l, const Options &o) {
  const KernelInfo &k = p.info;
  int64_t threads = 1, cluster = 1;
  for (int d = 0; d < 3; d++) {
    if (l.block[d] < 1 || l.grid[d] < 0 || l.cluster[d] < 1) return "the sizes of block and cluster must be positive";
    threads *= l.block[d], cluster *= l.cluster[d];
    if (k.required_threads[d] && k.required_threads[d] != l.block[d])
      return fmt::format("{} requires blocks of {}x{}x{} threads", k.name, k.required_threads[0], k.required_threads[1],
                         k.required_threads[2]);
    if (k.cluster[d] && k.cluster[d] != l.cluster[d])
      return fmt::format("{} requires clusters of {}x{}x{} blocks", k.name, k.cluster[0], k.cluster[1], k.cluster[2]);
    if (l.grid[d] % l.cluster[d]) return "the grid is not a multiple of the cluster";
  }
  if (threads > 1024) return fmt::format("{} threads a block, at most 1024 are possible", threads);
  if (k.max_threads && threads > k.max_threads)
    return fmt::format("{} threads a block, {} allows {}", threads, k.name, k.max_threads);
  if (cluster > 16) return fmt::format("{} blocks a cluster, at most 16 are possible", cluster);
  if (l.grid[0] > 0x7fffffff || l.grid[1] > 65535 || l.grid[2] > 65535) return "the grid is too large";
  if (int64_t(l.params.size()) != k.param_bytes)
    return fmt::format("{} bytes of parameters, {} takes {}", l.params.size(), k.name, k.param_bytes);
  int64_t shared = k.static_shared + l.dynamic_shared;
  if (l.dynamic_shared < 0 || shared > o.shared_limit)
    return fmt::format("{} bytes of shared memory a block, at most {} are possible", shared, o.shared_limit);
  return "";
}

struct Result {
  std::vector<Error> errors;
  GlobalShadow::Pages pages;
  std::string printed;
  int64_t instructions = 0;
};

class Run {
public:
  Run(const Grid &grid, int64_t clusters, int64_t size)
      : grid_(grid), size_(size), results_(size_t(clusters)), first_failed_(clusters) {}

  Report go(int threads) {
    int64_t n = int64_t(results_.size());
    if (grid_.program.orders_blocks)
      interleaved();
    else if (threads <= 1)
      worker();
    else {
      std::vector<std::thread> pool;
      for (int t = 0; t < std::min<int64_t>(threads, n); t++) pool.emplace_back([this] { worker(); });
      for (std::thread &t : pool) t.join();
    }
    Report report;
    ClusterRaces races;
    for (size_t number = 0; number < results_.size(); number++) {
      Result &r = results_[number];
      report.printed += r.printed;
      report.instructions += r.instructions;
      // Blocks that may order each other are not looked at.
      if (r.errors.empty() && !grid_.program.orders_blocks)
        if (auto race = races.add(int64_t(number), r.pages)) r.errors.push_back(describe(*race));
      r.pages.clear();
      if (r.errors.empty()) continue;
      report.errors = r.errors;
      break;
    }
    return report;
  }

private:
  Error describe(const ClusterRaces::Race &race) const {
    const Position &here = grid_.program.where[size_t(race.pc)], &there = grid_.program.where[size_t(race.other_pc)];
    Error e;
    e.kind = ErrorKind::GlobalRace;
    e.message = fmt::format("{} of {} by block {}, which block {} {} at PTX line {}: nothing orders blocks",
                            race.reads ? "read" : "write", grid_.memory.describe(race.address), race.cluster * size_,
                            race.other * size_, race.reads ? "writes" : "accesses", there.line);
    e.ptx_line = here.line;
    const std::vector<std::string> &files = grid_.module.ptx.files;
    if (here.file > 0 && size_t(here.file) < files.size() && here.source_line)
      e.source_file = files[size_t(here.file)], e.source_line = here.source_line;
    int64_t index = race.cluster * size_;
    for (int d = 0; d < 3; d++) e.block[d] = index % grid_.launch.grid[d], index /= grid_.launch.grid[d];
    e.address = race.address;
    return e;
  }
  void finish(Cluster &c, int64_t number) {
    Result &r = results_[size_t(number)];
    if (!grid_.program.orders_blocks) r.pages = c.global_shadow.take_pages();
    for (const auto &b : c.blocks) {
      r.errors.insert(r.errors.end(), b->errors.begin(), b->errors.end());
      r.printed += b->printed;
      r.instructions += b->instructions;
    }
    if (r.errors.empty()) return;
    int64_t known = first_failed_;
    while (number < known && !first_failed_.compare_exchange_weak(known, number)) {}
  }
  void worker() {
    for (;;) {
      int64_t number = next_++;
      if (number >= int64_t(results_.size()) || number > first_failed_) return;
      Cluster c(grid_, number, size_);
      c.run(false);
      finish(c, number);
    }
  }
  // Blocks that may wait for each other: all of them (up to a limit) get turns.
  void interleaved() {
    constexpr size_t kMostResident = 512;
    struct Live {
      int64_t number;
      std::unique_ptr<Cluster> cluster;
    };
    std::vector<Live> live;
    int64_t next = 0, n = int64_t(results_.size());
    size_t turn = 0;
    uint64_t finished = 0, events = 0;
    while (first_failed_ == n) {
      if (turn >= live.size()) {
        if (next < n && live.size() < kMostResident)
          live.push_back({next, std::make_unique<Cluster>(grid_, next, size_)}), next++;
        else
          turn = 0;
        if (live.empty()) return;
        // A round in which nothing happened and all only poll: they wait for each other, or for blocks that do not fit.
        uint64_t now = finished;
        bool hopeless = true;
        for (const Live &l : live) now += l.cluster->progress, hopeless = hopeless && l.cluster->hopeless();
        if (now != events) {
          for (const Live &l : live) l.cluster->take_heart();
        } else if (hopeless && turn == 0) {
          live.front().cluster->report_deadlock();
          finish(*live.front().cluster, live.front().number);
          return;
        }
        events = now;
      }
      Live &l = live[turn];
      if (l.cluster->run(true) == Cluster::State::Paused) {
        turn++;
        continue;
      }
      finish(*l.cluster, l.number);
      finished += l.cluster->progress + 1;
      live.erase(live.begin() + int64_t(turn));
    }
    // A failing block hides those after it; those before it have their say only if they had finished.
  }

  const Grid &grid_;
  int64_t size_;
  std::vector<Result> results_;
  std::atomic<int64_t> next_ = 0, first_failed_;
};
} // namespace

Report run(const Module &module, std::string_view kernel, Memory &memory, const Launch &launch,
           const Options &options) {
  const Program *program = nullptr;
  for (const auto &p : module.programs)
    if (p->info.name == kernel) program = p.get();
  Report report;
  std::string fault =
      program ? check_launch(*program, launch, options) : fmt::format("the module has no kernel `{}`", kernel);
  if (!fault.empty()) {
    report.errors.push_back({ErrorKind::Launch, fault});
    return report;
  }
  int64_t size = launch.cluster[0] * launch.cluster[1] * launch.cluster[2];
  int64_t clusters = launch.grid[0] * launch.grid[1] * launch.grid[2] / size;
  if (clusters == 0) return report;
  place_symbols(module, memory);
  int threads = options.threads > 0 ? options.threads : int(std::max(1u, std::thread::hardware_concurrency()));
  if (program->orders_blocks || clusters == 1) threads = 1;
  Grid grid{module, *program, memory, launch, options};
  for (const std::string &s : program->symbols) grid.symbols.push_back((*memory.symbols(module.id))[s]);
  grid.threads = launch.block[0] * launch.block[1] * launch.block[2];
  grid.warps = (grid.threads + 31) / 32;
  grid.parallel = threads > 1;
  return Run(grid, clusters, size).go(threads);
}

} // namespace tkc::emu
