#include "cli/cli.h"
#include "cli/crash.h"
#include "driver/c_header.h"
#include "driver/execute_program.h"
#include "driver/manifest.h"
#include "driver/report.h"
#include "driver/signatures.h"
#include "ir/print.h"
#include "ir/residency.h"
#include "ir/target.h"
#include "passes/passes.h"
#include "runtime/file_io.h"
#include "syntax/print_ast.h"
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <unistd.h>

namespace tkc::cli {

namespace {

constexpr const char *kAfterParse = "parse";

struct Kind {
  const char *name, *suffix;
  bool binary;
};
constexpr Kind kKinds[] = {
    {"ptx", ".ptx", false},           {"llvm", ".ll", false},    {"ir", ".tkir", false},
    {"schedule", ".schedule", false}, {"cubin", ".cubin", true}, {"schedule-json", ".schedule.json", false},
    {"json", ".json", false},         {"header", ".h", false},   {"signatures", ".signatures.json", false}};

struct Options {
  Common common;
  std::vector<std::string> emit;
  std::string output, dump_dir, stop_after, deps_file, fault, image = "ptx";
  std::vector<std::string> skip;
  int64_t max_registers = 0, bisect = -1;
  bool time_report = false, verbose = false, list_targets = false, deps = false;
};

struct Outputs {
  std::string folder; // "": one file or standard output
  std::string stem;   // of the files in the folder
  std::string path(const Kind &k) const { return folder + stem + k.suffix; }
};

// "softmax" of "samples/softmax.tk"; "kernels" of standard input.
std::string stem_of(const std::string &file) {
  return file == "-" ? "kernels" : std::filesystem::path(file).stem().string();
}

// What is wrong with the options among themselves; "" if nothing is.
std::string check_usage(const Options &o, const Outputs &to) {
  if (!o.stop_after.empty() && (o.emit.size() > 1 || o.emit[0] != "ir"))
    return "--stop-after gives IR: it goes with --emit ir alone";
  bool single = to.folder.empty();
  if (single && o.emit.size() > 1) return "several kinds of output need a folder: -o DIR/";
  if (o.image != "ptx" && std::find(o.emit.begin(), o.emit.end(), "header") == o.emit.end())
    return "--image goes with --emit header";
  if (o.deps && o.deps_file.empty() && (o.output.empty() || o.output == "-"))
    return "-MD without -MF needs an output file: -o FILE";
  if (!o.deps && !o.deps_file.empty()) return "-MF goes with -MD";
  if (single && o.emit[0] == "cubin" && (o.output.empty() || o.output == "-") && ::isatty(STDOUT_FILENO))
    return "a cubin is not for a terminal: -o FILE";
  driver::CompileOptions passes;
  passes.passes.skip = o.skip;
  if (o.stop_after != kAfterParse) passes.stop_after = o.stop_after;
  return driver::check_pass_options(passes);
}

// A rule for make: the outputs need every source that is a file.
std::string dependencies(const std::vector<std::string> &outputs, const SourceManager &sources) {
  auto escaped = [](const std::string &path) {
    std::string out;
    for (char c : path) {
      if (c == ' ' || c == '#') out += '\\';
      if (c == '$') out += '$';
      out += c;
    }
    return out;
  };
  std::string text, phony;
  for (const std::string &o : outputs) text += (text.empty() ? "" : " ") + escaped(o);
  text += ":";
  for (int32_t i = 0; i < sources.count(); i++) {
    const std::string &name = sources.file(i).name();
    if (name.starts_with("<")) continue; // standard input, the embedded library
    text += " \\\n  " + escaped(name);
    if (i > 0) phony += escaped(name) + ":\n"; // an import that is removed must not break the build
  }
  return text + "\n" + phony;
}

void print_times(const std::vector<driver::Phase> &phases) {
  double total = 0;
  for (const driver::Phase &p : phases) {
    fmt::print(stderr, "{:>10.3f} ms  {}\n", p.milliseconds, p.name);
    total += p.milliseconds;
  }
  fmt::print(stderr, "{:>10.3f} ms  in all\n", total);
}

class Compilation {
public:
  Compilation(const Options &o, Outputs to) : o_(o), to_(std::move(to)), s_(o.common) {}

  int run() {
    if (!s_.load()) return kDiagnostics;
    if (o_.stop_after == kAfterParse) {
      text_ = tkc::print(s_.program->main());
      return write();
    }
    int exit = kOk;
    if (!choose_target(o_.common, nullptr, options_, exit)) return exit;
    auto selected = s_.select();
    if (!selected) return kDiagnostics;
    if (wants("signatures")) {
      text_ = driver::signatures(*s_.program, selected->kernels, source_name()).dump() + "\n";
      if (o_.emit.size() == 1) return write(); // no parameter needs a value
    }
    if (!s_.read_schedule(o_.common.schedule, options_.passes.schedule)) return kDiagnostics;
    set_options();
    std::vector<const ir::Function *> functions;
    for (const ast::Function *k : selected->kernels)
      if (k->kind == ast::FunctionKind::Program)
        if (auto host = sema::instantiate_program(*s_.program, *k, selected->spec, options_.target, s_.diags))
          programs_.push_back(std::move(host));
    // A kernel that a program launches comes with that program, in the variants that it launches.
    auto launched = [&](const ast::Function *f) {
      return std::any_of(programs_.begin(), programs_.end(), [&](const auto &p) {
        return std::any_of(p->kernels.begin(), p->kernels.end(), [&](const auto &k) { return k.ast == f; });
      });
    };
    for (const ast::Function *k : selected->kernels) {
      if (k->kind == ast::FunctionKind::Program || launched(k)) continue;
      names_.unique(k->name.text, k);
      if (Status made = make_dump_folder(selected->kernels.size() > 1 ? k->name.text : ""); !made)
        return print_error(made.failed());
      instances_.push_back({k, selected->spec, k->name.text});
      dump_dirs_.push_back(options_.passes.dump_dir);
    }
    for (const auto &p : programs_) add_program_kernels(*p);
    std::vector<driver::LowerJob> jobs;
    for (size_t i = 0; i < instances_.size(); i++)
      jobs.push_back({instances_[i].ast, &instances_[i].spec, nullptr, instances_[i].name, dump_dirs_[i]});
    functions_ = driver::lower_all(*s_.program, jobs, options_, s_.diags, phases_);
    if (s_.diags.has_errors()) {
      s_.print_diagnostics();
      return kDiagnostics;
    }
    for (const auto &f : functions_) functions.push_back(f.get());
    for (const ir::Function *f : functions) ir_ += ir::print(*f);
    if ((wants("schedule") || wants("schedule-json")) && !make_schedules(*selected)) return kDiagnostics;
    bool code = wants("ptx") || wants("llvm") || wants("cubin") || wants("json") || wants("header") || o_.verbose;
    if (code && o_.stop_after.empty()) {
      code_ = driver::emit_module(functions, options_, s_.sources, phases_);
      if (int e = assemble_code(functions)) return e;
      if (wants("json")) json_ = manifest_text(functions);
      if (wants("header")) header_ = header_text(functions);
    }
    if (o_.time_report) print_times(phases_);
    s_.print_diagnostics(); // warnings
    return write();
  }

private:
  bool wants(std::string_view kind) const { return std::find(o_.emit.begin(), o_.emit.end(), kind) != o_.emit.end(); }

  // Every kernel that the program can launch, once in the module.
  void add_program_kernels(sema::HostProgram &program) {
    for (sema::ProgramKernel &k : program.kernels) {
      k.name = names_.unique(k.name, k.ast);
      bool known = std::any_of(instances_.begin(), instances_.end(), [&](const auto &i) { return i.name == k.name; });
      if (known) continue;
      if (!make_dump_folder(k.name).ok()) continue; // reported by the kernels of the file
      instances_.push_back({k.ast, k.spec, k.name});
      dump_dirs_.push_back(options_.passes.dump_dir);
    }
  }

  // Of one kernel: a folder that cannot be written is the user's fault, not that of a pass.
  Status make_dump_folder(const std::string &kernel) {
    if (o_.dump_dir.empty()) return {};
    std::string &folder = options_.passes.dump_dir;
    folder = kernel.empty() ? o_.dump_dir : o_.dump_dir + "/" + kernel;
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (!error && ::access(folder.c_str(), W_OK) == 0) return {};
    return failure("cannot write to the folder `{}`: {}", folder, error ? error.message() : std::strerror(errno));
  }

  void set_options() {
    options_.max_registers = o_.max_registers;
    options_.keep_llvm = wants("llvm");
    options_.passes.skip = o_.skip;
    options_.passes.bisect = o_.bisect;
    options_.stop_after = o_.stop_after;
    options_.fail_in_llvm = o_.fault == "llvm";
    if (!o_.fault.empty()) options_.after_passes = [this] { fail_on_purpose(o_.fault); };
  }

  int assemble_code(const std::vector<const ir::Function *> &functions) {
    bool cubin = wants("cubin") || (wants("header") && o_.image == "cubin");
    if (!cubin && !o_.verbose) return kOk;
    AssembleOptions a;
    a.arch = options_.target->name;
    Result<Assembled> assembled = assemble(code_.ptx, a);
    if (o_.verbose) fmt::print(stderr, "{}", driver::resource_lines(functions, code_, assembled, *options_.target));
    if (!cubin) return kOk;
    if (!assembled) return print_error(assembled.failed());
    cubin_ = std::move(assembled->cubin);
    return kOk;
  }

  std::string source_name() const { return o_.common.file == "-" ? "<stdin>" : o_.common.file; }

  std::vector<const sema::HostProgram *> host_programs() const {
    std::vector<const sema::HostProgram *> out;
    for (const auto &p : programs_) out.push_back(p.get());
    return out;
  }

  std::string header_text(const std::vector<const ir::Function *> &functions) const {
    driver::HeaderOptions h;
    h.version = TKC_VERSION;
    h.source = source_name();
    h.arch = options_.target->name;
    // The name that the file is included by.
    bool named = to_.folder.empty() && !o_.output.empty() && o_.output != "-";
    h.stem = named ? stem_of(o_.output) : to_.stem;
    if (o_.image == "cubin") h.cubin = cubin_;
    return driver::c_header(functions, code_.abis, host_programs(), code_.ptx, h);
  }

  bool make_schedules(const Session::Selection &selected) {
    std::vector<driver::KernelReport> reports;
    for (size_t i = 0; i < functions_.size(); i++) {
      auto r = driver::report_kernel(*s_.program, instances_[i], *functions_[i], options_, false, s_.diags);
      if (r) reports.push_back(std::move(*r));
    }
    auto cases = driver::estimate_cases(*s_.program, selected.kernels, selected.spec, options_, false, s_.diags);
    schedule_ = driver::schedule_text(reports, cases);
    schedule_json_ = driver::schedule_json(reports, cases).dump() + "\n";
    if (!s_.diags.has_errors()) return true;
    s_.print_diagnostics();
    return false;
  }

  std::string manifest_text(const std::vector<const ir::Function *> &functions) const {
    driver::ManifestOptions m;
    m.version = TKC_VERSION;
    m.source = source_name();
    m.arch = options_.target->name;
    if (wants("ptx"))
      m.ptx_file = to_.stem + ".ptx";
    else
      m.ptx_text = code_.ptx;
    if (wants("cubin")) m.cubin_file = to_.stem + ".cubin";
    return driver::manifest(functions, code_.abis, host_programs(), m).dump() + "\n";
  }

  std::vector<uint8_t> bytes(const Kind &k) const {
    std::string_view kind = k.name;
    if (kind == "cubin") return cubin_;
    const std::string &text = o_.stop_after == kAfterParse || kind == "signatures" ? text_
                              : kind == "ptx"                                      ? code_.ptx
                              : kind == "llvm"                                     ? code_.llvm
                              : kind == "ir"                                       ? ir_
                              : kind == "schedule"                                 ? schedule_
                              : kind == "schedule-json"                            ? schedule_json_
                              : kind == "header"                                   ? header_
                                                                                   : json_;
    return std::vector<uint8_t>(text.begin(), text.end());
  }

  // Everything is ready: now all files, or none.
  int write() {
    std::vector<OutputFile> files;
    std::vector<std::string> targets;
    for (const Kind &k : kKinds) {
      if (!wants(k.name)) continue;
      bool to_stdout = to_.folder.empty() && (o_.output.empty() || o_.output == "-");
      if (to_stdout) {
        std::vector<uint8_t> all = bytes(k);
        std::fwrite(all.data(), 1, all.size(), stdout);
        if (std::fflush(stdout) != 0) return print_error(failure("cannot write to standard output"));
        targets.push_back("-");
        continue;
      }
      files.push_back({to_.folder.empty() ? o_.output : to_.path(k), bytes(k)});
      targets.push_back(files.back().path);
    }
    if (!to_.folder.empty()) {
      std::error_code error;
      std::filesystem::create_directories(to_.folder, error);
      if (error) return print_error(failure("cannot make the folder `{}`: {}", to_.folder, error.message()));
    }
    if (o_.deps) {
      std::string path = o_.deps_file;
      if (path.empty()) path = std::filesystem::path(targets[0]).replace_extension(".d").string();
      files.push_back(text_output(path, dependencies(targets, s_.sources)));
    }
    Status written = write_files(files);
    return written ? int(kOk) : print_error(written.failed());
  }

  const Options &o_;
  Outputs to_;
  Session s_;
  driver::CompileOptions options_;
  std::vector<std::unique_ptr<ir::Function>> functions_;
  std::vector<driver::KernelInstance> instances_; // of functions_
  std::vector<std::string> dump_dirs_;            // of functions_; empty ones without --dump-ir
  std::vector<std::unique_ptr<sema::HostProgram>> programs_;
  driver::KernelNames names_;
  std::vector<driver::Phase> phases_;
  codegen::EmitResult code_;
  std::string text_, ir_, schedule_, schedule_json_, json_, header_;
  std::vector<uint8_t> cubin_;
};

int run(Options &o) {
  if (o.emit.empty()) o.emit = {o.stop_after.empty() ? "ptx" : "ir"};
  Outputs to;
  to.stem = stem_of(o.common.file);
  std::error_code error;
  if (o.output.ends_with("/") || std::filesystem::is_directory(o.output, error))
    to.folder = o.output.ends_with("/") ? o.output : o.output + "/";
  if (std::string problem = check_usage(o, to); !problem.empty()) {
    fmt::print(stderr, "tkc: {}\n", problem);
    return kUsage;
  }
  return Compilation(o, std::move(to)).run();
}

void list_targets() {
  for (const ir::Target &t : ir::all_targets())
    fmt::print("{:<8} PTX {}.{}  {:>6} bytes of shared memory a block, {} an SM, {} threads an SM{}\n", t.name,
               t.ptx_version / 10, t.ptx_version % 10, t.shared_per_block, t.shared_per_sm, ir::residency(t).threads,
               &t == &ir::default_target() ? "  (default)" : "");
}
} // namespace

void setup_compile(CLI::App &app, int &exit) {
  auto o = std::make_shared<Options>();
  CLI::App *sub =
      app.add_subcommand("compile", "compile kernels, and those that programs launch, to PTX and other forms");
  add_common(*sub, o->common);
  sub->get_option("FILE")->required(false);
  std::vector<std::string> kinds, stages = {kAfterParse, driver::kAfterSema};
  for (const Kind &k : kKinds) kinds.push_back(k.name);
  for (const passes::Pass &p : passes::pipeline()) stages.push_back(p.name);
  sub->add_option(
         "--emit", o->emit,
         "kinds of output, separated by commas: ptx (default), llvm (after optimisation), ir (after the last pass), "
         "schedule (of the loops: rings, and what has none and why, with estimates; --schedule takes it; "
         "src/passes/schedule.h), schedule-json (the same and more), "
         "cubin (by nvJitLink or ptxas), json (what a loader needs; its form is in src/driver/manifest.h), header (C "
         "launch functions with the PTX; src/driver/c_header.h), signatures (parameters before they have values; "
         "src/driver/signatures.h)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::IsMember(kinds));
  sub->add_option("--image", o->image,
                  "what a header holds: ptx (default), or cubin, which runs on the architecture of --arch alone")
      ->check(CLI::IsMember({"ptx", "cubin"}));
  sub->add_option("-o,--output", o->output,
                  "output file; DIR/ for files named after the source; - is standard output (default)");
  sub->add_option("--stop-after", o->stop_after,
                  fmt::format("write the source or IR after this stage: {}", fmt::join(stages, ", ")));
  sub->add_option(
      "--dump-ir", o->dump_dir,
      "numbered files with the IR after every pass, into this folder (one below it for each of several kernels)");
  add_list(*sub, "--skip-pass", o->skip, "do not run this pass");
  sub->add_option("--bisect-passes", o->bisect, "run only the first N optional passes");
  sub->add_option("--maxnreg", o->max_registers, "registers per thread at most")->check(CLI::Range(1, 255));
  sub->add_flag("--time-report", o->time_report, "time of every phase, on stderr");
  sub->add_flag("-v,--verbose", o->verbose,
                "registers, spills, shared memory and blocks per SM of every entry, on stderr");
  sub->add_flag("--MD", o->deps, "-MD: also write which files the output depends on, as a rule for make");
  sub->add_option("--MF", o->deps_file, "-MF FILE: where -MD writes to (default: the output with the suffix .d)");
  sub->add_flag("--list-targets", o->list_targets, "list the targets and stop");
  sub->add_option("--inject-fault", o->fault, "for tests of the crash report")
      ->check(CLI::IsMember(fault_kinds()))
      ->group("");
  sub->callback([o, &exit] {
    if (o->list_targets) return list_targets();
    if (o->common.file.empty()) {
      fmt::print(stderr, "tkc: compile needs a file\n");
      exit = kUsage;
      return;
    }
    exit = run(*o);
  });
}

} // namespace tkc::cli
