#include "driver/ab.h"
#include "cli/cli.h"
#include "cli/progress.h"
#include "driver/bench_files.h"
#include "ir/target.h"
#include "runtime/nvml.h"
#include "support/json.h"
#include "support/stop.h"

namespace tkc::cli {

namespace {
constexpr int64_t kLeastRounds = 20;

struct Options {
  Common common;
  std::string second_file, a, b, only_case, require, json;
  std::vector<std::string> samples;
  int64_t rounds = kLeastRounds;
  uint64_t seed = 1;
  double timeout = 0;
  ProgramOptions program;
};

// The line that answers --require, and its exit code.
int judge(const std::optional<Requirement> &requirement, const std::string &text, const AbResult &r) {
  if (!requirement) return kOk;
  bool holds = requirement->holds(r);
  fmt::print("{}: {}\n", text, holds ? "holds for the whole interval" : "does not hold for the whole interval");
  return holds ? kOk : kMissed;
}

int compare_samples(const Options &o, const std::optional<Requirement> &requirement) {
  auto a = driver::read_samples(o.samples[0]), b = driver::read_samples(o.samples[1]);
  if (!a) return print_error(a.failed());
  if (!b) return print_error(b.failed());
  auto result = compare_pairs(*a, *b);
  if (!result) return print_error(result.failed());
  fmt::print("a {}\nb {}\n{}", o.samples[0], o.samples[1], result->to_string());
  int exit = judge(requirement, o.require, *result);
  if (!o.json.empty())
    if (int e = write_json(o.json, result->to_json())) return e;
  return exit;
}

std::string checksums(const std::vector<std::pair<std::string, uint64_t>> &inputs) {
  std::string out;
  for (const auto &[name, sum] : inputs) out += fmt::format("  {} {:016x}", name, sum);
  return out;
}

class Ab {
public:
  Ab(const Options &o, std::optional<Requirement> requirement)
      : o_(o), requirement_(requirement), second_(second_common(o)), a_(o.common), b_(second_) {}

  int run() {
    for (Session *s : {&a_, &b_})
      if (!s->load()) return kDiagnostics;
    driver::AbSide a, b;
    if (!side(a_, o_.a, a) || !side(b_, o_.b, b)) return kDiagnostics;
    chosen_ = choose_executor("gpu");
    if (chosen_.exit) return chosen_.exit;
    int exit = kOk;
    driver::AbOptions options;
    options.base.executor = driver::Executor::Gpu;
    options.base.device = chosen_.device.get();
    if (!choose_target(o_.common, chosen_.device.get(), options.base.compile, exit)) return exit;
    options.base.only_case = o_.only_case;
    options.base.limit_seconds = o_.timeout;
    if (!read_program(o_.program, options.base)) return finish(chosen_, kUsage);
    options.base.progress = [&](const std::string &name) { progress_.show("verifying " + name); };
    options.rounds = o_.rounds;
    options.order_seed = o_.seed;
    options.progress = [&](const std::string &name, int64_t done, int64_t rounds) {
      progress_.show(fmt::format("timing {}: {} of {} rounds", name, done, rounds));
      return !stop_requested();
    };
    options.verified = [&](char name, const driver::CaseResult &r) { print_verified(name, r); };
    GpuMonitor monitor(chosen_.device->info());
    MachineCard card = machine_card(chosen_.device->info(), monitor);
    Result<driver::AbReport> report = driver::compare_sides(a, b, options);
    progress_.clear();
    if (!report) return finish(chosen_, a_.diags.has_errors() ? a_.fail(report.failed()) : b_.fail(report.failed()));
    if (report->mismatch) {
      fmt::print("a side does not compute what its reference says: nothing was timed\n");
      return finish(chosen_, kMismatch);
    }
    card.after = monitor.state();
    return finish(chosen_, print_report(a, b, *report, card));
  }

private:
  static Common second_common(const Options &o) {
    Common c = o.common;
    if (!o.second_file.empty()) c.file = o.second_file;
    return c;
  }

  bool side(Session &s, const std::string &text, driver::AbSide &out) {
    auto selected = s.select();
    if (!selected) return false;
    if (selected->kernels.size() > 1) {
      fmt::print(stderr, "tkc: the file has several kernels and programs, choose one with -k\n");
      return false;
    }
    Result<driver::Variant> variant = driver::parse_variant(text);
    if (variant && &s == &a_ && !o_.program.baseline.empty()) {
      variant->unfused = true;
      variant->text = fmt::format("--baseline {}{}{}", o_.program.baseline, text.empty() ? "" : " ", text);
    }
    if (!variant) {
      print_error(variant.failed());
      return false;
    }
    for (const auto &[name, value] : variant->params)
      if (!s.known_parameter(name)) return false;
    for (const auto &[name, value] : selected->spec.params) variant->params.emplace(name, value); // -P is for both
    out.program = s.program.get();
    out.kernel = selected->kernels[0];
    const std::string &schedule = variant->schedule.empty() ? s.common().schedule : variant->schedule;
    if (!s.read_schedule(schedule, out.schedule)) return false;
    out.variant = std::move(*variant);
    out.diags = &s.diags;
    return true;
  }

  void print_verified(char name, const driver::CaseResult &r) {
    progress_.clear();
    fmt::print("{} {}.{}  {}\n", name, r.kernel, r.name, r.pass() ? "ok" : "FAILED");
    if (r.pass()) return;
    if (!r.error.empty()) fmt::print(stderr, "{} {}.{}: {}\n", name, r.kernel, r.name, r.error);
    for (const auto &[output, c] : r.outputs) fmt::print("{}", indented(c.to_string(output)));
  }

  int print_report(const driver::AbSide &a, const driver::AbSide &b, const driver::AbReport &report,
                   const MachineCard &card) {
    int exit = report.stopped || stop_requested() ? kInterrupted : kOk;
    Json list = Json::array();
    for (const driver::AbCase &c : report.cases) {
      fmt::print("\n{}.{}\n", a.kernel->name.text, c.name);
      fmt::print("a  {}  {}\nb  {}  {}\n", o_.common.file, a.variant.text, second_.file, b.variant.text);
      fmt::print("inputs a{}\ninputs b{}{}\n", checksums(c.inputs_a), checksums(c.inputs_b),
                 c.shared_tensors ? "  (the same memory)" : "");
      fmt::print("{}", c.result.to_string());
      int verdict = judge(requirement_, o_.require, c.result);
      if (exit == kOk) exit = verdict;
      list.push(c.to_json());
    }
    fmt::print("{}", card.to_string());
    if (o_.json.empty()) return exit;
    Json j = Json::object();
    j.set("format", "tkc-ab").set("version", 1).set("a", a.variant.text).set("b", b.variant.text);
    j.set("fileA", o_.common.file).set("fileB", second_.file).set("machine", card.to_json());
    int e = write_json(o_.json, j.set("cases", std::move(list)));
    return e ? e : exit;
  }

  const Options &o_;
  std::optional<Requirement> requirement_;
  Common second_;
  Session a_, b_;
  Chosen chosen_;
  Progress progress_;
};

int run(const Options &o) {
  std::optional<Requirement> requirement;
  if (!o.require.empty()) {
    Result<Requirement> r = parse_requirement(o.require);
    if (!r) {
      fmt::print(stderr, "tkc: --require: {}\n", r.error());
      return kUsage;
    }
    requirement = *r;
  }
  if (!o.samples.empty()) return compare_samples(o, requirement);
  if (o.common.file.empty()) {
    fmt::print(stderr, "tkc: ab needs a file and two variants, two files, or --samples\n");
    return kUsage;
  }
  if (o.second_file.empty() && o.a.empty() && o.b.empty() && o.program.baseline.empty()) {
    fmt::print(stderr, "tkc: one file needs --a, --b or --baseline: there is nothing to compare\n");
    return kUsage;
  }
  return Ab(o, requirement).run();
}
} // namespace

void setup_ab(CLI::App &app, int &exit) {
  auto o = std::make_shared<Options>();
  CLI::App *sub =
      app.add_subcommand("ab", "compare two variants of a kernel or program on the GPU: verified, then timed in turn");
  add_common(*sub, o->common);
  sub->get_option("FILE")->required(false)->description("a .tk file");
  sub->get_option("--kernel")->description("the kernel or program (default: the only one)");
  sub->get_option("--param")->description("compile-time parameter of both sides, NAME=VALUE");
  sub->get_option("--schedule")->description("of both sides, where --a or --b names none (compile --help says what)");
  sub->add_option("FILE_B", o->second_file, "the file of side b (default: the same)");
  sub->add_option(
      "--a", o->a,
      "side a: NAME=VALUE.., --maxnreg N, --stages N (slots of a ring at most; 1: loops run as they stand), "
      "--schedule FILE and --baseline unfused, as in 'BM=64 --schedule s.txt'");
  sub->add_option("--b", o->b, "side b");
  sub->add_option("--case", o->only_case, "one case of the bench block (default: every case that both sides have)");
  sub->add_option("--rounds", o->rounds, "rounds, each a complete run of the convention per side (default 20)")
      ->check(CLI::Range(kLeastRounds, int64_t(100000)));
  sub->add_option("--seed", o->seed, "of the order within the rounds");
  sub->add_option(
      "--require", o->require,
      "'speedup>=1.10' or 'speedup<=1.02': exit 6 unless the whole 95 % interval satisfies it. The speedup is "
      "time of a / time of b");
  sub->add_option("--samples", o->samples,
                  "A.json B.json: the same statistics for samples from elsewhere (seconds, in pairs)")
      ->expected(2);
  add_program(*sub, o->program);
  add_baseline(*sub, o->program, "side a is the unfused form of the kernel or program, as a graph");
  sub->add_option("--timeout", o->timeout, "seconds that one run may take (default 60); exit 5")
      ->check(CLI::PositiveNumber);
  sub->add_option("--json", o->json, "results as JSON into this file");
  sub->footer(std::string("Statistics: ") + kAbMethod + ".");
  sub->callback([o, &exit] {
    stop_on_interrupt();
    exit = run(*o);
  });
}

} // namespace tkc::cli
