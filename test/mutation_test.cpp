// What the emulator sees: one synchronising line of the PTX of a pipelined kernel is left out or changed, and the
// mutant runs under up to eight schedules. It is caught if a schedule reports an error or gives another result. At
// least 95 % of the mutants must be, but for those that do no harm for a reason that stands in a closed list here;
// these run clean under all policies.
#include "compile_kit.h"
#include "driver/verify.h"
#include "lines.h"
#include "why.h"
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <map>
#include <set>

using namespace tkc;

namespace {

struct Subject {
  const char *file, *kernel, *test_case, *target;
  std::map<std::string, double> sizes = {}; // other than the case's: loops that use every slot again, few blocks
  bool bench = false;                       // the case stands in the bench block: records are what no verify block has
};
const Subject kSubjects[] = {
    // tma without and with a producer warp, with two slots; cp.async groups; cp.async and mbarriers
    {"test/features/pipelines.tk", "gemm", "whole", "sm_90", {{"M", 64}, {"N", 64}, {"K", 320}}},
    {"test/features/pipelines.tk", "gemm", "producer", "sm_90", {{"M", 64}, {"N", 64}, {"K", 320}}},
    {"test/features/pipelines.tk", "gemm", "two", "sm_120", {{"M", 64}, {"N", 64}, {"K", 320}}},
    {"test/features/pipelines.tk", "gemm", "groups", "sm_90", {{"M", 64}, {"N", 64}, {"K", 320}}},
    {"test/features/pipelines.tk", "gemm", "mbarriers", "sm_80", {{"M", 64}, {"N", 64}, {"K", 320}}},
    // bulk copies beside maps; two rings in the same bytes
    {"test/features/pipelines.tk", "rows", "producer", "sm_90"},
    {"test/features/pipelines.tk", "twice", "some", "sm_90", {{"K", 320}}},
    // fields of records, in pieces of 16 bytes
    {"test/features/records.tk", "sum_pairs", "producer", "sm_90", {}, true},
    {"test/features/records.tk", "sum_pairs", "producer", "sm_120", {}, true},
    {"test/features/records.tk", "sum_pairs", "pieces", "sm_80", {}, true},
    // rings that run on over the tiles of a block
    {"test/features/persistent.tk", "wide", "some", "sm_90", {{"M", 64}, {"N", 256}, {"K", 160}}},
    {"test/features/persistent.tk", "gemm", "producer_many", "sm_80", {{"M", 32}, {"N", 128}, {"K", 80}}},
    {"samples/gemm.tk", "gemm", "tiles", "sm_80", {{"M", 128}, {"N", 128}, {"K", 768}}},
    {"samples/gemm.tk", "gemm", "tiles", "sm_90", {{"M", 128}, {"N", 128}, {"K", 768}}},
    {"samples/attention.tk", "attention", "d64", "sm_80", {{"B", 1}, {"H", 1}, {"HK", 1}, {"T", 800}}},
    {"samples/attention.tk", "attention", "d64", "sm_90", {{"B", 1}, {"H", 1}, {"HK", 1}, {"T", 800}}},
    {"samples/kda_chain.tk", "kda_chain", "small", "sm_90", {{"NH", 1}, {"NT", 9}}},
    {"samples/kda_chain.tk", "kda_chain", "small", "sm_120", {{"NH", 1}, {"NT", 6}}},
};

// Mutants of one line that do no harm in these kernels: the n-th of its kind from the end of the entry.
struct Harmless {
  const char *file, *target, *what;
  int64_t from_end;
};
// The loop over the diagonal blocks of attention has BM / BN = 2 iterations at most, and its ring four slots: the last
// two are never used, no slot twice, and what the loop publishes are items that do not exist.
const Harmless kDiagonal[] = {
    {"samples/attention.tk", "sm_90", "mbarrier.init one more", 1},
    {"samples/attention.tk", "sm_90", "mbarrier.init one more", 2},
    {"samples/attention.tk", "sm_90", "no mbarrier.init", 1},
    {"samples/attention.tk", "sm_90", "no mbarrier.init", 2},
    {"samples/attention.tk", "sm_90", "no fence.proxy.async", 1},
    {"samples/attention.tk", "sm_90", "no bar.sync", 2},
    {"samples/attention.tk", "sm_90", "16 bytes more", 1},
    {"samples/attention.tk", "sm_90", "16 bytes fewer", 1},
    {"samples/attention.tk", "sm_90", "no arrive.expect_tx", 1},
};

struct Mutant {
  std::string what, ptx;
  int64_t line = 0;
  std::string text;     // of the line
  std::string harmless; // why it does no harm; empty: it must be caught
};

std::string joined(const std::vector<std::string> &lines) {
  std::string out;
  for (const std::string &l : lines) out += l + "\n";
  return out;
}
bool has(const std::string &s, const char *part) { return s.find(part) != std::string::npos; }

// The same instruction with its last operand changed by an op: "add.u32" or "xor.b32".
std::string last_operand(const std::string &line, const char *op, int64_t by) {
  size_t semicolon = line.rfind(';'), begin = line.find_last_of(", \t", semicolon - 1) + 1;
  std::string operand = line.substr(begin, semicolon - begin);
  std::string changed = line.substr(0, begin) + "%mutant;";
  return fmt::format("{{ .reg .b32 %mutant; {} %mutant, {}, {}; {} }}", op, operand, by, changed);
}

// Why a mutant does no harm whatever the schedule.
std::string reason(const std::vector<std::string> &lines, size_t begin, size_t at, const std::string &what) {
  auto before = [&](size_t from, const char *part) {
    for (size_t i = from; i-- > begin;)
      if (has(lines[i], part)) return true;
    return false;
  };
  if (what ==
      "no fence.mbarrier_init") // the proxy fence behind it, in front of the barrier, makes the mbarriers known too
    for (size_t i = at; i < lines.size() && !has(lines[i], "bar.sync"); i++)
      if (has(lines[i], "fence.proxy.async")) return "fence.proxy.async stands before the same barrier";
  if (what == "no fence.proxy.async" && !before(at, "ld.shared") && !before(at, "ldmatrix") &&
      before(at, "fence.mbarrier_init"))
    return "nothing has been read of shared memory, and the mbarriers have a fence of their own";
  return "";
}

// Every mutant of the lines of one entry.
std::vector<Mutant> mutants(const std::string &ptx, const std::string &entry) {
  std::vector<std::string> lines = lines_of(ptx);
  size_t begin = 0;
  while (begin < lines.size() && !has(lines[begin], (".entry " + entry + "(").c_str())) begin++;
  std::vector<Mutant> out;
  for (size_t i = begin + 1; i < lines.size() && !has(lines[i], ".entry "); i++) {
    const std::string &l = lines[i];
    auto add = [&](const char *what, std::string with) {
      std::vector<std::string> changed = lines;
      changed[i] = std::move(with);
      out.push_back({what, joined(changed), int64_t(i) + 1, l, reason(lines, begin, i, what)});
    };
    if (has(l, "cp.async.commit_group")) add("no commit_group", "");
    if (has(l, "cp.async.wait_group")) {
      size_t at = l.find_last_of(" \t") + 1;
      add("wait_group one more", l.substr(0, at) + std::to_string(std::atoi(l.c_str() + at) + 1) + ";");
      add("no wait_group", "");
    }
    if (has(l, "cp.async.wait_all")) add("no wait_all", "");
    if (has(l, "bar.sync") || has(l, "barrier.sync")) add("no bar.sync", "");
    if (has(l, "bar.warp.sync")) add("no bar.warp.sync", "");
    if (has(l, "fence.proxy.async")) add("no fence.proxy.async", "");
    if (has(l, "fence.mbarrier_init")) add("no fence.mbarrier_init", "");
    if (has(l, "mbarrier.init")) {
      add("mbarrier.init one more", last_operand(l, "add.u32", 1));
      add("no mbarrier.init", "");
    }
    if (has(l, "mbarrier.try_wait")) {
      add("phase flipped", last_operand(l, "xor.b32", 1));
      size_t predicate = l.find('%'), comma = l.find(',');
      add("no wait", fmt::format("setp.eq.u32 {}, 0, 0;", l.substr(predicate, comma - predicate)));
    }
    if (has(l, "mbarrier.arrive.expect_tx")) {
      add("16 bytes more", last_operand(l, "add.u32", 16));
      add("16 bytes fewer", last_operand(l, "add.u32", -16));
      add("no arrive.expect_tx", "");
    } else if (has(l, "mbarrier.arrive") && !has(l, "noinc")) {
      add("no arrive", "");
      add("arrive twice", l + " " + l);
    }
    if (has(l, "arrive.noinc")) add("no arrive.noinc", "");
    if (has(l, "cp.async.bulk.commit_group")) add("no bulk commit", "");
    if (has(l, "cp.async.bulk.wait_group")) add("no bulk wait", "");
  }
  return out;
}

} // namespace

TEST_CASE("the emulator catches what breaks the synchronisation of a pipelined kernel") {
  bool verbose = std::getenv("TKC_MUTANTS") != nullptr;
  int64_t caught = 0, all = 0, harmless = 0;
  std::map<std::string, std::pair<int64_t, int64_t>> by_kind; // caught, all
  std::vector<std::string> survivors;
  for (const Subject &s : kSubjects) {
    SourceManager sources;
    Diagnostics diags(sources);
    auto program = sema::Program::load(sources.add(s.file, source_text(s.file)), diags);
    REQUIRE_MESSAGE(program, diags.render_all());
    const ast::Function *kernel = program->find(s.kernel, ast::FunctionKind::Kernel);
    const ast::Check *check = program->check_for(s.kernel, s.bench);
    REQUIRE(kernel);
    REQUIRE(check);
    driver::CompileOptions how;
    how.target = ir::find_target(s.target);
    bool ran_case = false;
    for (const ast::Case &c : check->cases) {
      if (c.name.text != s.test_case) continue;
      ran_case = true;
      auto spec = sema::evaluate_case(*program, *kernel, *check, c, diags);
      REQUIRE(spec);
      for (const auto &[name, n] : s.sizes) spec->numbers[name] = n;
      auto compiled = driver::compile_kernel(*program, *kernel, spec->spec, how, diags);
      REQUIRE_MESSAGE(compiled, diags.render_all());
      auto data = driver::make_data(*program, check, *compiled->function, *spec, {}, diags);
      REQUIRE_MESSAGE(data, diags.render_all());
      driver::LaunchData want = *data;
      std::string printed;
      emu::Options options;
      options.threads = 1;
      options.instruction_budget = 1 << 22;
      Status clean = driver::run_emu(*compiled, want, sources, options, printed);
      REQUIRE_MESSAGE(clean, why(clean));
      const codegen::KernelAbi &abi = compiled->code.abis[driver::may_use_aligned(*compiled->function, *data) ? 0 : 1];
      const std::string original = compiled->code.ptx;
      std::vector<Mutant> list = mutants(original, abi.entry);
      std::map<std::string, int64_t> seen;
      for (size_t i = list.size(); i-- > 0;) {
        int64_t from_end = ++seen[list[i].what];
        for (const Harmless &h : kDiagonal)
          if (h.file == std::string(s.file) && h.target == std::string(s.target) && h.what == list[i].what &&
              h.from_end == from_end)
            list[i].harmless = "the loop has fewer iterations than the ring has slots";
      }
      for (const Mutant &m : list) {
        compiled->code.ptx = m.ptx;
        REQUIRE_MESSAGE(emu::parse_ptx(m.ptx).module, fmt::format("{}: {}", m.what, m.text));
        std::string how_caught;
        for (int64_t k = 0; k < (m.harmless.empty() ? 8 : 67) && how_caught.empty(); k++) {
          driver::LaunchData got = *data;
          Status ran = driver::run_emu(*compiled, got, sources, emu::nth_schedule(options, k, std::nullopt), printed);
          if (!ran) how_caught = ran.error();
          for (size_t i = 0; i < got.tensors.size() && how_caught.empty(); i++)
            if (got.tensors[i].bytes != want.tensors[i].bytes) how_caught = "another result";
        }
        std::string name = fmt::format("{} {} {} {}: {}, line {}: {}", s.file, s.kernel, s.test_case, s.target, m.what,
                                       m.line, m.text);
        if (!m.harmless.empty()) { // clean under all policies, 64 random seeds
          CHECK_MESSAGE(how_caught.empty(), fmt::format("{}: {}, but: {}", name, m.harmless, how_caught));
          harmless++;
          continue;
        }
        all++;
        auto &[kind_caught, kind_all] = by_kind[m.what];
        kind_all++;
        kind_caught += !how_caught.empty();
        caught += !how_caught.empty();
        if (how_caught.empty()) survivors.push_back(name);
      }
      compiled->code.ptx = original;
    }
    CHECK_MESSAGE(ran_case, std::string(s.test_case));
    if (verbose) MESSAGE(fmt::format("{} {} {} {}: {} of {}", s.file, s.kernel, s.test_case, s.target, caught, all));
  }
  for (const auto &[kind, n] : by_kind) MESSAGE(kind << ": " << n.first << " of " << n.second);
  for (const std::string &l : survivors) MESSAGE(l);
  MESSAGE("mutants caught: " << caught << " of " << all << ", and " << harmless << " that do no harm are clean");
  CHECK(caught * 100 >= all * 95);
}
