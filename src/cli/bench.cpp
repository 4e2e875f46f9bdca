#include "driver/bench.h"
#include "cli/cli.h"
#include "ir/target.h"
#include "runtime/file_io.h"
#include "support/json.h"

namespace tkc::cli {

namespace {
struct Options {
  Common common;
  std::string only_case, json;
  int64_t max_registers = 0;
};

int run(const Options &o) {
  Session s(o.common);
  if (!s.load()) return kDiagnostics;
  Chosen chosen = choose_executor("gpu");
  if (chosen.exit) return chosen.exit;
  driver::VerifyOptions v;
  v.executor = driver::Executor::Gpu;
  v.device = chosen.device.get();
  v.compile.target = s.target(chosen.device.get());
  if (!v.compile.target) return kUsage;
  auto spec = s.overrides();
  auto kernels = s.kernels();
  if (!spec || kernels.empty()) return kDiagnostics;
  v.overrides = *spec;
  v.compile.max_registers = o.max_registers;
  v.only_case = o.only_case;
  int exit = kOk;
  Json list = Json::array();
  for (const ast::Function *k : kernels) {
    const ast::Check *check = s.program->check_for(k->name.text, true);
    if (!check) continue;
    for (const driver::BenchResult &r : driver::bench_kernel(*s.program, *k, *check, v, s.diags)) {
      std::string name = r.kernel + "." + r.name;
      Json j = Json::object();
      j.set("kernel", r.kernel).set("case", r.name);
      if (!r.error.empty()) {
        fmt::print(stderr, "{}: {}\n", name, r.error);
        exit = kDiagnostics;
        continue;
      }
      std::string rates;
      for (const auto &[what, n] : r.counts) {
        if (what == "bytes") rates += fmt::format("  {:.3f} TB/s", n / r.seconds * 1e-12);
        if (what == "flops") rates += fmt::format("  {:.1f} TFLOP/s", n / r.seconds * 1e-12);
        j.set(what, n);
      }
      fmt::print("{:<32} {:>10.2f} us{}  ({} groups, {}, {} registers, {} local bytes, {} blocks/SM)\n", name,
                 r.seconds * 1e6, rates, r.groups, r.entry, r.registers, r.local_bytes, r.blocks_per_sm);
      j.set("seconds", r.seconds)
          .set("groups", r.groups)
          .set("registers", r.registers)
          .set("local_bytes", r.local_bytes);
      list.push(std::move(j));
    }
  }
  s.print_diagnostics();
  if (s.diags.has_errors()) return kDiagnostics;
  if (!o.json.empty()) {
    std::string text = Json::object()
                           .set("gpu", chosen.device->info().name)
                           .set("target", v.compile.target->name)
                           .set("results", std::move(list))
                           .dump() +
                       "\n";
    if (Status w = write_file(o.json, std::span(reinterpret_cast<const uint8_t *>(text.data()), text.size())); !w) {
      fmt::print(stderr, "tkc: {}\n", w.error());
      return kDiagnostics;
    }
  }
  return exit;
}
} // namespace

void setup_bench(CLI::App &app, int &exit) {
  auto o = std::make_shared<Options>();
  CLI::App *sub = app.add_subcommand("bench", "time kernels on the GPU by the benchmark convention");
  add_common(*sub, o->common);
  sub->add_option("--case", o->only_case, "one case");
  sub->add_option("--maxnreg", o->max_registers, "registers per thread at most");
  sub->add_option("--json", o->json, "results as JSON into this file");
  sub->callback([o, &exit] { exit = run(*o); });
}

} // namespace tkc::cli
