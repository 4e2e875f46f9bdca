#include "cli/cli.h"
#include "ir/print.h"
#include "ir/target.h"
#include "runtime/assemble.h"
#include "runtime/file_io.h"

namespace tkc::cli {

namespace {
struct Options {
  Common common;
  std::string emit = "ptx", output = "-", dump_dir;
  std::vector<std::string> skip;
  int64_t max_registers = 0, bisect = -1;
  bool time_report = false, verbose = false, list_targets = false;
};

std::string usage_line(const driver::CompiledKernel &k, const ir::Target &t) {
  AssembleOptions o;
  o.arch = t.name;
  auto a = assemble(k.code.ptx, o);
  if (!a) return fmt::format("{}: not assembled: {}", k.function->name, a.error());
  std::string out;
  for (const KernelUsage &u : a->kernels)
    out += fmt::format("{}: {} registers, {} + {} spill bytes, {} local bytes, {} shared bytes, {} threads\n", u.name,
                       u.registers, u.spill_stores, u.spill_loads, u.stack, k.function->shared_bytes + u.static_shared,
                       k.function->warps * 32);
  return out;
}

int run(const Options &o) {
  Session s(o.common);
  if (!s.load()) return kDiagnostics;
  const ir::Target *target = s.target(nullptr);
  if (!target) return kUsage;
  auto spec = s.overrides();
  auto kernels = s.kernels();
  if (!spec || kernels.empty()) return kDiagnostics;
  if (o.emit == "cubin" && kernels.size() > 1) {
    fmt::print(stderr, "tkc: a cubin holds one kernel: choose it with -k\n");
    return kUsage;
  }
  driver::CompileOptions options;
  options.target = target;
  options.max_registers = o.max_registers;
  options.keep_llvm = o.emit == "llvm";
  options.passes.dump_dir = o.dump_dir;
  options.passes.skip = o.skip;
  options.passes.bisect = o.bisect;
  std::string text;
  std::vector<uint8_t> binary;
  for (const ast::Function *k : kernels) {
    auto compiled = driver::compile_kernel(*s.program, *k, *spec, options, s.diags);
    if (!compiled) continue;
    if (o.time_report) {
      double total = 0;
      for (const auto &p : compiled->phases) {
        fmt::print(stderr, "{:>10.3f} ms  {}\n", p.milliseconds, p.name);
        total += p.milliseconds;
      }
      fmt::print(stderr, "{:>10.3f} ms  {} in all\n", total, k->name.text);
    }
    if (o.verbose) fmt::print(stderr, "{}", usage_line(*compiled, *target));
    if (o.emit == "ir")
      text += ir::print(*compiled->function);
    else if (o.emit == "llvm")
      text += compiled->code.llvm;
    else if (o.emit == "ptx")
      text += compiled->code.ptx;
    else {
      AssembleOptions a;
      a.arch = target->name;
      auto cubin = assemble(compiled->code.ptx, a);
      if (!cubin) {
        fmt::print(stderr, "tkc: {}\n", cubin.error());
        return kDiagnostics;
      }
      binary = cubin->cubin;
    }
  }
  s.print_diagnostics();
  if (s.diags.has_errors()) return kDiagnostics;
  std::span<const uint8_t> bytes = binary.empty()
                                       ? std::span(reinterpret_cast<const uint8_t *>(text.data()), text.size())
                                       : std::span<const uint8_t>(binary);
  if (o.output == "-") {
    std::fwrite(bytes.data(), 1, bytes.size(), stdout);
    return std::fflush(stdout) == 0 ? kOk : kDiagnostics;
  }
  if (Status w = write_file(o.output, bytes); !w) {
    fmt::print(stderr, "tkc: {}\n", w.error());
    return kDiagnostics;
  }
  return kOk;
}
} // namespace

void setup_compile(CLI::App &app, int &exit) {
  auto o = std::make_shared<Options>();
  CLI::App *sub = app.add_subcommand("compile", "compile kernels to PTX");
  add_common(*sub, o->common);
  sub->get_option("FILE")->required(false);
  sub->add_option("--emit", o->emit, "ptx, llvm, ir (after all passes) or cubin")
      ->check(CLI::IsMember({"ptx", "llvm", "ir", "cubin"}));
  sub->add_option("-o", o->output, "output file (default: standard output)");
  sub->add_option("--dump-ir", o->dump_dir, "the IR after every pass, into this directory");
  sub->add_option("--skip-pass", o->skip, "do not run this pass");
  sub->add_option("--bisect-passes", o->bisect, "run only the first N optional passes");
  sub->add_option("--maxnreg", o->max_registers, "registers per thread at most");
  sub->add_flag("--time-report", o->time_report, "time of every phase, on stderr");
  sub->add_flag("-v", o->verbose, "registers, spills and shared memory, on stderr");
  sub->add_flag("--list-targets", o->list_targets, "list the targets and stop");
  sub->callback([o, &exit] {
    if (o->list_targets) {
      for (const ir::Target &t : ir::all_targets())
        fmt::print("{:<8} PTX {}.{}  {} bytes of shared memory a block\n", t.name, t.ptx_version / 10,
                   t.ptx_version % 10, t.shared_per_block);
      return;
    }
    if (o->common.file.empty()) {
      fmt::print(stderr, "tkc: compile needs a file\n");
      exit = kUsage;
      return;
    }
    exit = run(*o);
  });
}

} // namespace tkc::cli
