#include "driver/bench.h"
#include "cli/cli.h"
#include "cli/progress.h"
#include "driver/bench_files.h"
#include "ir/target.h"
#include "runtime/nvml.h"
#include "support/json.h"
#include "support/stop.h"

namespace tkc::cli {

namespace {
struct Options {
  Common common;
  std::string only_case, json, stages;
  bool no_ceilings = false;
  std::vector<std::string> compare;
  int64_t max_registers = 0, rounds = 1;
  double timeout = 0, threshold = 5;
  ProgramOptions program;
};

int compare_files(const Options &o) {
  auto changes = driver::compare_bench_files(o.compare[0], o.compare[1]);
  if (!changes) return print_error(changes.failed());
  double threshold = o.threshold / 100;
  fmt::print("{}", driver::to_string(*changes, threshold));
  bool worse = driver::has_regression(*changes, threshold);
  fmt::print("{} by more than {} %\n", worse ? "something is slower" : "nothing is slower", o.threshold);
  return worse ? kMissed : kOk;
}

class Bench {
public:
  explicit Bench(const Options &o) : o_(o), s_(o.common) {}

  int run() {
    if (!s_.load()) return kDiagnostics;
    auto selected = s_.select();
    if (!selected) return kDiagnostics;
    driver::Setting lists = selected->spec.params;
    if (!o_.stages.empty()) {
      auto stages = driver::expand_stages(o_.stages);
      if (!stages) return print_error(stages.failed());
      lists[driver::kStages] = *stages;
    }
    auto settings = driver::expand_sweep(lists);
    if (!settings) return print_error(settings.failed());
    chosen_ = choose_executor("gpu");
    if (chosen_.exit) return chosen_.exit;
    options_.executor = driver::Executor::Gpu;
    options_.device = chosen_.device.get();
    options_.overrides.absent = selected->spec.absent;
    if (!choose_target(o_.common, chosen_.device.get(), options_.compile, exit_)) return exit_;
    if (!s_.read_schedule(o_.common.schedule, options_.compile.passes.schedule)) return finish(chosen_, kDiagnostics);
    options_.compile.max_registers = o_.max_registers;
    options_.limit_seconds = o_.timeout;
    if (!read_program(o_.program, options_)) return finish(chosen_, kUsage);
    options_.graph |= options_.unfused;
    GpuMonitor monitor(chosen_.device->info());
    MachineCard card = machine_card(chosen_.device->info(), monitor);
    bool counted = false; // something has a floor
    for (const ast::Function *k : selected->kernels)
      if (const ast::Check *check = s_.program->check_for(k->name.text, true)) counted |= !check->bindings.empty();
    if (counted && !o_.no_ceilings) {
      progress_.show("measuring what this GPU can do");
      auto measured = driver::ceilings_of(options_);
      progress_.clear();
      if (!measured) return finish(chosen_, print_error(measured.failed()));
      ceilings_ = *measured;
    }
    bool any = false;
    for (const ast::Function *k : selected->kernels) {
      const ast::Check *check = s_.program->check_for(k->name.text, true);
      if (!check) continue;
      for (const ast::Case &c : check->cases) {
        if (!o_.only_case.empty() && c.name.text != o_.only_case) continue;
        any = true;
        if (!stop_) bench_one(*k, *check, c, *settings);
      }
    }
    progress_.clear();
    s_.print_diagnostics();
    if (s_.diags.has_errors()) return finish(chosen_, kDiagnostics);
    if (!any) {
      fmt::print(stderr, "tkc: {}\n",
                 o_.only_case.empty() ? "there is no bench block with a case"
                                      : fmt::format("no bench block has a case `{}`", o_.only_case));
      return finish(chosen_, kDiagnostics);
    }
    card.after = monitor.state();
    if (ceilings_)
      fmt::print("ceilings: copy {:.3f} TB/s, products {:.0f} TFLOP/s (bf16 by mma, measured on this GPU)\n",
                 ceilings_->bytes * 1e-12, ceilings_->flops * 1e-12);
    fmt::print("{}", card.to_string());
    if (!o_.json.empty())
      if (int e = write_json(o_.json, json(card))) return finish(chosen_, e);
    return finish(chosen_, exit_);
  }

private:
  void bench_one(const ast::Function &kernel, const ast::Check &check, const ast::Case &c,
                 const std::vector<driver::Setting> &settings) {
    auto spec = sema::evaluate_case(*s_.program, kernel, check, c, s_.diags);
    if (!spec) {
      stop_ = true;
      return;
    }
    std::vector<driver::BenchRow> rows;
    for (size_t i = 0; i < settings.size() && !stop_; i++) {
      std::string name = kernel.name.text + "." + c.name.text;
      progress_.show(
          fmt::format("timing {} {} ({} of {})", name, driver::setting_text(settings[i]), i + 1, settings.size()));
      rows.push_back(
          driver::bench_case(*s_.program, kernel, check, *spec, options_, settings[i], o_.rounds, s_.sources));
      driver::BenchRow &r = rows.back();
      r.ceilings = ceilings_;
      progress_.clear();
      if (!r.fits() && r.kind == ErrorKind::Interrupted) {
        rows.pop_back();
        break;
      }
      if (!r.fits() && r.kind != ErrorKind::Failure) { // a hanging kernel takes the GPU with it
        exit_ = exit_code(r.kind);
        stop_ = true;
      }
      if (settings.size() == 1) print_row(r);
      list_.push(r.to_json());
    }
    if (stop_requested()) {
      exit_ = kInterrupted;
      stop_ = true;
    }
    if (settings.size() > 1 && !rows.empty()) print_sweep(rows);
  }

  void print_row(const driver::BenchRow &r) {
    std::string name = r.kernel + "." + r.name;
    if (!r.fits()) {
      fmt::print(stderr, "{}: {}\n", name, r.reason);
      if (exit_ == kOk) exit_ = kDiagnostics;
      return;
    }
    std::string spread;
    if (r.samples.size() > 1)
      spread = fmt::format("  spread {:.2f}% of {} rounds", summarize(r.samples).spread * 100, r.samples.size());
    if (r.drifts()) spread += ", drifting";
    fmt::print("{:<32} {:>10.2f} us{}{}  ({} groups, {}, {} registers, {} local bytes, {} blocks/SM)\n", name,
               r.seconds() * 1e6, r.rates(), spread, r.groups, r.entry, r.registers, r.local_bytes, r.blocks_per_sm);
    for (const std::string &remark : r.remarks) fmt::print("    {}\n", remark);
    fmt::print("{}", driver::breakdown_table(r));
    std::fflush(stdout);
  }

  void print_sweep(const std::vector<driver::BenchRow> &rows) {
    fmt::print("{}.{}\n{}", rows[0].kernel, rows[0].name, driver::sweep_table(rows));
    std::string more;
    auto also = [&](const char *option, const std::string &value) {
      more += fmt::format("{}{} {}", more.empty() ? "" : " ", option, value);
    };
    if (!o_.common.arch.empty()) also("--arch", o_.common.arch);
    if (!o_.common.tune_for.empty()) also("--tune-for", o_.common.tune_for);
    if (o_.max_registers) also("--maxnreg", std::to_string(o_.max_registers));
    std::string fastest = driver::fastest_command(rows, o_.common.file, more);
    if (fastest.empty()) {
      fmt::print("no configuration fits\n");
      if (exit_ == kOk) exit_ = kDiagnostics;
      return;
    }
    fmt::print("fastest: {}\n", fastest);
  }

  Json json(const MachineCard &card) const {
    Json j = Json::object();
    j.set("format", "tkc-bench").set("version", 1).set("tkc", TKC_VERSION).set("source", o_.common.file);
    j.set("target", options_.compile.target->name).set("machine", card.to_json());
    return j.set("interrupted", exit_ == kInterrupted).set("results", list_);
  }

  const Options &o_;
  Session s_;
  Chosen chosen_;
  driver::VerifyOptions options_;
  std::optional<driver::Ceilings> ceilings_;
  Progress progress_;
  Json list_ = Json::array();
  int exit_ = kOk;
  bool stop_ = false;
};
} // namespace

void setup_bench(CLI::App &app, int &exit) {
  auto o = std::make_shared<Options>();
  CLI::App *sub = app.add_subcommand("bench", "time kernels and programs on the GPU by the benchmark convention");
  add_common(*sub, o->common);
  sub->get_option("FILE")->required(false);
  sub->get_option("--param")->description(
      "compile-time parameter, NAME=VALUE; NAME=V,V,.. measures every combination and gives a table");
  sub->add_option("--case", o->only_case, "one case");
  sub->add_option("--rounds", o->rounds, "complete runs of the convention; the median counts (default 1)")
      ->check(CLI::PositiveNumber);
  sub->add_option(
      "--stages", o->stages,
      "slots that a loop's ring has at most, as in 3 or 1,2..4 (1: loops run as they stand); several are measured");
  sub->add_flag("--no-ceilings", o->no_ceilings,
                "do not measure what the GPU can do at best, which a first run does for the fractions of the floor");
  sub->add_option("--maxnreg", o->max_registers, "registers per thread at most")->check(CLI::Range(1, 255));
  sub->add_option("--timeout", o->timeout, "seconds that one run of the convention may take (default 60); exit 5")
      ->check(CLI::PositiveNumber);
  sub->add_option("--json", o->json, "results as JSON into this file");
  sub->add_option("--compare", o->compare, "OLD NEW: compares two files of --json; exit 6 if something is slower")
      ->expected(2);
  sub->add_option("--threshold", o->threshold, "per cent that count as slower (default 5)")
      ->check(CLI::NonNegativeNumber);
  add_program(*sub, o->program);
  add_baseline(*sub, o->program, "time the kernels' unfused form in their place, as a graph");
  sub->get_option("--graph")->description("capture the launches once and time the graph; a group's temporaries are its "
                                          "own as its tensors are, so that there is "
                                          "one graph for each group, and the calls go round over the graphs");
  sub->callback([o, &exit] {
    stop_on_interrupt();
    if (!o->compare.empty()) {
      exit = compare_files(*o);
      return;
    }
    if (o->common.file.empty()) {
      fmt::print(stderr, "tkc: bench needs a file\n");
      exit = kUsage;
      return;
    }
    exit = Bench(*o).run();
  });
}

} // namespace tkc::cli
