#include "driver/report.h"
#include "cli/cli.h"
#include "runtime/file_io.h"

namespace tkc::cli {

namespace {
struct Options {
  Common common;
  std::vector<std::string> targets;
  std::string output;
  bool no_registers = false, text = false;
};

class Reporter {
public:
  explicit Reporter(const Options &o) : o_(o), s_(o.common) {}

  int run() {
    if (!s_.load()) return kDiagnostics;
    auto selected = s_.select();
    if (!selected) return kDiagnostics;
    if (!s_.read_schedule(o_.common.schedule, options_.passes.schedule)) return kDiagnostics;
    page_.title = o_.common.file == "-" ? "standard input" : o_.common.file;
    for (const std::string &arch : o_.targets.empty() ? std::vector{o_.common.arch} : o_.targets) {
      Common c = o_.common;
      c.arch = arch;
      int exit = kOk;
      if (!choose_target(c, nullptr, options_, exit)) return exit;
      for (const driver::KernelInstance &k :
           driver::instances_of(*s_.program, selected->kernels, selected->spec, options_.target, s_.diags))
        add(k);
      if (s_.diags.has_errors()) continue;
      page_.cases.emplace_back(
          options_.target->name,
          driver::estimate_cases(*s_.program, selected->kernels, selected->spec, options_, !o_.no_registers, s_.diags));
    }
    s_.print_diagnostics();
    return s_.diags.has_errors() ? int(kDiagnostics) : write();
  }

private:
  void add(const driver::KernelInstance &k) {
    std::vector<driver::Phase> phases;
    auto f = driver::lower_kernel(*s_.program, *k.ast, k.spec, options_, s_.diags, phases, k.name);
    if (!f) return; // the errors of the others are worth knowing
    if (auto r = driver::report_kernel(*s_.program, k, *f, options_, !o_.no_registers, s_.diags))
      page_.kernels.push_back(std::move(*r));
  }

  std::string text() const {
    std::string out;
    for (const driver::KernelReport &r : page_.kernels) out += (out.empty() ? "" : "\n") + driver::to_text(r);
    for (const auto &[target, cases] : page_.cases)
      if (!cases.empty()) out += fmt::format("\n{}: {}", target, driver::to_text(cases));
    return out;
  }

  int write() const {
    std::string out = o_.text ? text() : driver::to_html(page_);
    if (o_.output.empty() || o_.output == "-") {
      fmt::print("{}", out);
      return std::fflush(stdout) == 0 ? int(kOk) : print_error(failure("cannot write to standard output"));
    }
    Status written = write_files({text_output(o_.output, out)});
    return written ? int(kOk) : print_error(written.failed());
  }

  const Options &o_;
  Session s_;
  driver::CompileOptions options_;
  driver::ReportPage page_;
};
} // namespace

void setup_report(CLI::App &app, int &exit) {
  auto o = std::make_shared<Options>();
  CLI::App *sub =
      app.add_subcommand("report", "what the compiler decided for kernels, why, and how long it expects them "
                                   "to take, as one HTML page: loops with their timelines, layouts, "
                                   "conversions, shared memory, registers");
  add_common(*sub, o->common);
  sub->remove_option(sub->get_option("--arch"));
  sub->add_option("--arch", o->targets, "targets, separated by commas, or `native` (default: sm_120)")
      ->delimiter(',')
      ->allow_extra_args(false);
  sub->add_option("-o,--output", o->output, "output file; - is standard output (default)");
  sub->add_flag("--text", o->text, "plain text instead of HTML");
  sub->add_flag("--no-registers", o->no_registers, "do not look for an assembler, which counts registers");
  sub->callback([o, &exit] { exit = Reporter(*o).run(); });
}

} // namespace tkc::cli
