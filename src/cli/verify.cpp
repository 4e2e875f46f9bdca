#include "cli/cli.h"
#include "ir/target.h"

namespace tkc::cli {

namespace {
struct Options {
  Common common;
  std::string device = "auto", only_case, emu_policy;
  uint64_t seed = 1, emu_seed = 0;
  int64_t emu_seeds = 1;
  double limit = 60;
};

int run(const Options &o) {
  Session s(o.common);
  if (!s.load()) return kDiagnostics;
  Chosen chosen = choose_executor(o.device);
  if (chosen.exit) return chosen.exit;
  driver::VerifyOptions v;
  v.executor = chosen.executor;
  v.device = chosen.device.get();
  v.compile.target = s.target(chosen.device.get());
  if (!v.compile.target) return kUsage;
  auto spec = s.overrides();
  auto kernels = s.kernels();
  if (!spec || kernels.empty()) return kDiagnostics;
  v.overrides = *spec;
  v.only_case = o.only_case;
  v.seed = o.seed;
  v.emu.seed = o.emu_seed;
  v.emu_schedules = o.emu_seeds;
  v.emu_policy = emu::find_policy(o.emu_policy);
  v.limit_seconds = o.limit;
  int64_t passed = 0, failed = 0, skipped = 0;
  int exit = kOk;
  for (const ast::Function *k : kernels) {
    const ast::Check *check = s.program->check_for(k->name.text, false);
    if (!check) continue;
    for (const driver::CaseResult &r : driver::verify_kernel(*s.program, *k, *check, v, s.diags)) {
      std::string name = r.kernel + "." + r.name;
      fmt::print("{}", r.printed);
      if (r.skipped) {
        skipped++;
        fmt::print("{:<32} skipped (on gpu only)\n", name);
        continue;
      }
      if (!r.error.empty()) {
        failed++;
        exit = r.error_kind == ErrorKind::Failure ? std::max<int>(exit, kMismatch) : exit_code(r.error_kind);
        fmt::print("{:<32} FAILED\n", name);
        fmt::print(stderr, "{}: {}\n", name, r.error);
        continue;
      }
      bool pass = r.pass();
      (pass ? passed : failed)++;
      if (!pass) exit = kMismatch;
      fmt::print("{:<32} {}  {:.2f} s\n", name, pass ? "ok" : "FAILED", r.seconds);
      for (const auto &[output, c] : r.outputs) fmt::print("    {}\n", c.to_string(output));
    }
    if (s.diags.has_errors()) break;
  }
  s.print_diagnostics();
  if (s.diags.has_errors()) return kDiagnostics;
  std::string where(driver::executor_name(v.executor));
  if (chosen.device) where += " " + chosen.device->info().name;
  if (v.executor != driver::Executor::Interp) where += fmt::format(", {}", v.compile.target->name);
  fmt::print("{} passed, {} failed, {} skipped on the {}\n", passed, failed, skipped, where);
  if (chosen.device && chosen.device->hung()) { // destructors would wait for ever
    std::fflush(nullptr);
    std::_Exit(kTimeout);
  }
  return exit;
}
} // namespace

void setup_verify(CLI::App &app, int &exit) {
  auto o = std::make_shared<Options>();
  CLI::App *sub = app.add_subcommand("verify", "run kernels on the cases of their verify blocks and compare");
  add_common(*sub, o->common);
  sub->add_option("--device", o->device, "auto (GPU, else the emulator), gpu, emu or interp")
      ->check(CLI::IsMember({"auto", "gpu", "emu", "interp"}));
  sub->add_option("--case", o->only_case, "one case");
  sub->add_option("--seed", o->seed, "of the inputs");
  sub->add_option("--emu-seed", o->emu_seed, "of the emulator's scheduler");
  sub->add_option("--emu-seeds", o->emu_seeds, "schedules to run under: eager, lazy, reverse, then random ones")
      ->check(CLI::Range(1, 1 << 20));
  sub->add_option("--emu-policy", o->emu_policy, "keep to one: eager, lazy, random or reverse")
      ->check(CLI::IsMember({"eager", "lazy", "random", "reverse"}));
  sub->add_option("--limit", o->limit, "seconds that a kernel may run on the GPU");
  sub->callback([o, &exit] { exit = run(*o); });
}

} // namespace tkc::cli
