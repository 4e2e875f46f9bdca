#include "cli/cli.h"
#include "cli/progress.h"
#include "ir/target.h"
#include "support/json.h"
#include "support/stop.h"
#include <algorithm>

namespace tkc::cli {

namespace {
struct Options {
  Common common;
  std::string device = "auto", only_case, json, emu_policy;
  bool check_gradient = false;
  uint64_t seed = 1, emu_seed = 0;
  int64_t emu_seeds = 1, emu_blocks = emu::Options().resident_blocks;
  int64_t max_registers = 0;
  double timeout = 0;
  ProgramOptions program;
};

const char *status_of(const driver::CaseResult &r) {
  return r.skipped ? "skipped" : !r.error.empty() ? "error" : r.pass() ? "ok" : "mismatch";
}

Json mismatch_json(const Comparison &c, const Mismatch &m) {
  Json j = Json::object(), index = Json::array(), dims = Json::object(), place = Json::object();
  std::vector<int64_t> at = coordinates(c.shape, m.index);
  for (size_t d = 0; d < at.size(); d++) {
    index.push(at[d]);
    if (d < c.dims.size() && !c.dims[d].empty()) dims.set(c.dims[d], at[d]);
  }
  for (const auto &[word, v] : m.place) place.set(word, v);
  j.set("index", std::move(index)).set("dims", std::move(dims)).set("place", std::move(place));
  return j.set("got", m.got).set("expected", m.expected);
}

Json case_json(const driver::CaseResult &r) {
  Json j = Json::object(), outputs = Json::array();
  j.set("kernel", r.kernel).set("case", r.name).set("status", status_of(r));
  if (!r.error.empty()) j.set("error", r.error);
  for (const auto &[name, c] : r.outputs) {
    Json o = Json::object();
    o.set("name", name).set("pass", c.pass).set("dtype", dtype_name(c.dtype));
    Json shape = Json::array();
    for (int64_t d : c.shape) shape.push(d);
    o.set("shape", std::move(shape)).set("rmsRatio", c.rms_ratio()).set("maxAbs", c.max_abs_error);
    o.set("mismatches", c.mismatches).set("tolerance", to_string(c.tolerance));
    if (!c.pass && c.first) o.set("first", mismatch_json(c, *c.first));
    if (!c.pass && c.worst) o.set("worst", mismatch_json(c, *c.worst));
    outputs.push(std::move(o));
  }
  j.set("outputs", std::move(outputs));
  if (!r.gradients.empty()) {
    Json gradients = Json::array();
    for (const driver::GradientCheck &g : r.gradients) {
      Json o = Json::object();
      o.set("name", g.name).set("pass", g.pass()).set("error", g.error).set("limit", g.kLimit);
      gradients.push(std::move(o.set("directions", g.directions)));
    }
    j.set("gradients", std::move(gradients));
  }
  return j.set("seconds", r.seconds);
}

class Verification {
public:
  explicit Verification(const Options &o) : o_(o), s_(o.common) {}

  int run() {
    if (!s_.load()) return kDiagnostics;
    auto selected = s_.select();
    if (!selected) return kDiagnostics;
    chosen_ = choose_executor(o_.device);
    if (chosen_.exit) return chosen_.exit;
    driver::VerifyOptions v;
    if (!choose_target(o_.common, chosen_.device.get(), v.compile, exit_)) return exit_;
    if (!s_.read_schedule(o_.common.schedule, v.compile.passes.schedule)) return finish(chosen_, kDiagnostics);
    v.compile.max_registers = o_.max_registers;
    v.executor = chosen_.executor;
    v.device = chosen_.device.get();
    v.overrides = selected->spec;
    v.only_case = o_.only_case;
    v.seed = o_.seed;
    v.check_gradient = o_.check_gradient;
    v.emu.seed = o_.emu_seed;
    v.emu_schedules = o_.emu_seeds;
    v.emu.resident_blocks = o_.emu_blocks;
    v.emu_policy = emu::find_policy(o_.emu_policy);
    v.limit_seconds = o_.timeout;
    if (!read_program(o_.program, v)) return finish(chosen_, kUsage);
    v.progress = [&](const std::string &name) { progress_.show("verifying " + name); };
    for (size_t i = 0; i < selected->kernels.size(); i++) {
      const ast::Function *k = selected->kernels[i];
      const ast::Check *check = s_.program->check_for(k->name.text, false);
      if (!check || stopped_) continue;
      driver::verify_kernel(*s_.program, *k, *check, v, s_.diags, [&](const driver::CaseResult &r) { add(r); });
      progress_.clear();
      if (!s_.diags.has_errors()) continue;
      s_.check_bodies({selected->kernels.begin() + std::ptrdiff_t(i) + 1, selected->kernels.end()});
      break;
    }
    s_.print_diagnostics();
    if (s_.diags.has_errors()) return finish(chosen_, kDiagnostics);
    if (passed_ + failed_ + skipped_ == 0 && exit_ != kInterrupted) {
      fmt::print(stderr, "tkc: {}\n",
                 o_.only_case.empty() ? "there is no verify block with a case"
                                      : fmt::format("no verify block has a case `{}`", o_.only_case));
      return finish(chosen_, kDiagnostics);
    }
    if (!o_.json.empty())
      if (int e = write_json(o_.json, json(v.compile.target))) return finish(chosen_, e);
    fmt::print("{} passed, {} failed, {} skipped{} on the {}\n", passed_, failed_, skipped_,
               exit_ == kInterrupted ? ", interrupted" : "", executor_text(chosen_, v.compile.target));
    return finish(chosen_, exit_);
  }

private:
  void add(const driver::CaseResult &r) {
    progress_.clear();
    std::string name = r.kernel + "." + r.name;
    fmt::print("{}", r.printed);
    if (r.error_kind == ErrorKind::Interrupted) { // a case that was cut short says nothing
      exit_ = kInterrupted;
      stopped_ = true;
      return;
    }
    list_.push(case_json(r));
    if (r.skipped) {
      skipped_++;
      fmt::print("{:<32} skipped (on gpu only)\n", name);
      return;
    }
    if (!r.error.empty()) {
      failed_++;
      stopped_ = r.error_kind != ErrorKind::Failure;
      exit_ = stopped_ ? exit_code(r.error_kind) : int(kMismatch);
      fmt::print("{:<32} FAILED\n", name);
      std::fflush(stdout);
      fmt::print(stderr, "{}: {}\n", name, r.error);
      return;
    }
    (r.pass() ? passed_ : failed_)++;
    if (!r.pass()) exit_ = kMismatch;
    fmt::print("{:<32} {}  {:.2f} s\n", name, r.pass() ? "ok" : "FAILED", r.seconds);
    for (const auto &[output, c] : r.outputs) fmt::print("{}", indented(c.to_string(output)));
    for (const driver::GradientCheck &g : r.gradients) fmt::print("{}", indented(g.to_string()));
    std::fflush(stdout);
  }

  Json json(const ir::Target *target) {
    Json j = Json::object();
    j.set("format", "tkc-verify").set("version", 1).set("executor", driver::executor_name(chosen_.executor));
    if (chosen_.device) j.set("gpu", chosen_.device->info().name);
    if (chosen_.executor != driver::Executor::Interp) j.set("target", target->name);
    j.set("seed", int64_t(o_.seed)).set("passed", passed_).set("failed", failed_).set("skipped", skipped_);
    return j.set("interrupted", exit_ == kInterrupted).set("cases", list_);
  }

  const Options &o_;
  Session s_;
  Chosen chosen_;
  Progress progress_;
  Json list_ = Json::array();
  int64_t passed_ = 0, failed_ = 0, skipped_ = 0;
  int exit_ = kOk;
  bool stopped_ = false;
};
} // namespace

void setup_verify(CLI::App &app, int &exit) {
  auto o = std::make_shared<Options>();
  CLI::App *sub =
      app.add_subcommand("verify", "run kernels and programs on the cases of their verify blocks and compare");
  add_common(*sub, o->common);
  add_device(*sub, o->device);
  sub->add_option("--case", o->only_case, "one case");
  sub->add_flag("--check-grad", o->check_gradient,
                "compare derivatives of the references with central differences along random directions");
  sub->add_option("--seed", o->seed, "of the inputs");
  sub->add_option("--emu-seed", o->emu_seed, "of the emulator's scheduler");
  sub->add_option("--emu-seeds", o->emu_seeds, "schedules to run under: eager, lazy, reverse, then random ones")
      ->check(CLI::Range(1, 1 << 20));
  sub->add_option("--emu-policy", o->emu_policy, "keep to one: eager, lazy, random or reverse")
      ->check(CLI::IsMember({"eager", "lazy", "random", "reverse"}));
  sub->add_option("--emu-blocks", o->emu_blocks, "of a persistent grid that the emulator's device holds at a time")
      ->check(CLI::Range(1, 1 << 20));
  sub->add_option("--maxnreg", o->max_registers, "registers per thread at most")->check(CLI::Range(1, 255));
  sub->add_option("--timeout", o->timeout,
                  "seconds that the kernel of one case may run (default: 60 on the GPU, else none); exit 5")
      ->check(CLI::PositiveNumber);
  sub->add_option("--json", o->json, "results as JSON into this file");
  add_program(*sub, o->program);
  add_baseline(*sub, o->program, "the kernels' unfused form in their place");
  sub->callback([o, &exit] {
    stop_on_interrupt();
    exit = Verification(*o).run();
  });
}

} // namespace tkc::cli
