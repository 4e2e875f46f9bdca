// What the subcommands share: files and their diagnostics, targets, executors.
#include "cli/cli.h"
#include "cli/crash.h"
#include "ir/target.h"
#include "runtime/file_io.h"
#include "sema/check_bodies.h"
#include "support/json.h"
#include "syntax/parse.h"
#include <algorithm>
#include <charconv>
#include <set>

namespace tkc::cli {

CLI::Option *add_list(CLI::App &app, const std::string &name, std::vector<std::string> &to, const std::string &help) {
  return app.add_option(name, to, help)->allow_extra_args(false);
}

void add_common(CLI::App &app, Common &c) {
  app.add_option("FILE", c.file, "a .tk file; - is standard input")->required();
  app.add_option("-k,--kernel", c.kernel, "one kernel or program of the file (default: all)");
  app.add_option("--arch", c.arch,
                 "target, or `native`: that of the GPU here (default: of the GPU that runs, else sm_120)");
  app.add_option("--tune-for", c.tune_for,
                 "decide layouts, warps, rings and shared memory as for this target; the code stays that of --arch");
  app.add_option(
      "--schedule", c.schedule,
      "force what this file says of the kernels' loops: text as `compile --emit schedule` writes it, or a part "
      "of it (src/passes/schedule.h)");
  add_list(app, "-P,--param", c.params, "compile-time parameter, NAME=VALUE; NAME=none: without this optional tensor");
  app.add_option("--diagnostics", c.diagnostics, "form of error messages on stderr: text or json")
      ->check(CLI::IsMember({"text", "json"}));
  app.add_option(
         "--proof-states", c.proof_states,
         fmt::format("states that the proof of a schedule may look at; one that needs more gets fewer slots, then "
                     "none (default {})",
                     passes::PassOptions().proof_states))
      ->check(CLI::Range(int64_t(1), int64_t(1) << 40));
}

Session::Session(const Common &c) : c_(c) { set_crash_sources(&sources); }
Session::~Session() { set_crash_sources(nullptr); }

void Session::print_diagnostics() {
  if (c_.diagnostics == "json")
    fmt::print(stderr, "{}", diags.render_json());
  else
    fmt::print(stderr, "{}", diags.render_all());
}

int Session::fail(const Error &e) {
  if (diags.has_errors()) {
    print_diagnostics();
    return kDiagnostics;
  }
  return print_error(e);
}

bool Session::load() {
  auto id = read_source(c_.file, sources, diags);
  if (id) program = sema::Program::load(*id, diags);
  if (program && !diags.has_errors()) return true;
  if (program) {
    std::vector<const ast::Function *> entries;
    for (const ast::Function *f : program->entries())
      if (c_.kernel.empty() || f->name.text == c_.kernel) entries.push_back(f);
    check_bodies(entries);
  }
  print_diagnostics();
  return false;
}

void Session::check_bodies(const std::vector<const ast::Function *> &entries) {
  sema::InstanceSpec spec; // what is wrong with options is not said after errors of the file
  for (const std::string &p : c_.params) {
    size_t eq = p.find('=');
    if (eq == p.npos || p.find(',') != p.npos) continue;
    std::string name = p.substr(0, eq), value = p.substr(eq + 1);
    if (value == "none" && optional_tensor(name))
      spec.absent.insert(name);
    else
      spec.params[name] = value;
  }
  sema::check_bodies(*program, entries, spec, diags);
}

std::vector<const ast::Function *> Session::kernels() {
  std::vector<const ast::Function *> all = program->entries();
  if (c_.kernel.empty()) {
    if (all.empty()) fmt::print(stderr, "tkc: `{}` has no kernel or program\n", c_.file);
    return all;
  }
  std::vector<std::string> names;
  for (const ast::Function *f : all) {
    if (f->name.text == c_.kernel) return {f};
    names.push_back(f->name.text);
  }
  if (const ast::Function *imported = program->find_entry(c_.kernel)) return {imported};
  std::string near = nearest_name(c_.kernel, names);
  diags.report({}, DiagKind::unknown_kernel, c_.kernel, near.empty() ? "" : "; did you mean `" + near + "`?");
  print_diagnostics();
  return {};
}

bool Session::known_parameter(const std::string &name) {
  std::vector<std::string> names;
  std::vector<const ast::Function *> all = program->entries();
  if (const ast::Function *imported = program->find_entry(c_.kernel)) all.push_back(imported);
  for (const ast::Function *f : all)
    for (const ast::GenericParam &g : f->generics) {
      if (g.name.text == name) return true;
      names.push_back(g.name.text);
    }
  std::string near = nearest_name(name, names);
  diags.report({}, DiagKind::unknown_parameter, c_.file, name, near.empty() ? "" : "; did you mean `" + near + "`?");
  print_diagnostics();
  return false;
}

bool Session::optional_tensor(const std::string &name) const {
  std::vector<const ast::Function *> all = program->entries();
  if (const ast::Function *imported = program->find_entry(c_.kernel)) all.push_back(imported);
  for (const ast::Function *f : all)
    for (const ast::Param &p : f->params)
      if (p.name.text == name && p.type && p.type->optional) return true;
  return false;
}

std::optional<sema::InstanceSpec> Session::overrides() {
  sema::InstanceSpec out;
  for (const std::string &p : c_.params) {
    std::string name, value;
    if (!split_pair("-P", p, name, value)) return std::nullopt;
    if (value == "none" && optional_tensor(name)) {
      out.absent.insert(name);
      continue;
    }
    if (!known_parameter(name)) return std::nullopt;
    out.params[name] = value;
  }
  return out;
}

std::optional<Session::Selection> Session::select() {
  auto spec = overrides();
  if (!spec) return std::nullopt;
  Selection out{kernels(), std::move(*spec)};
  return out.kernels.empty() ? std::nullopt : std::optional(std::move(out));
}

bool Session::read_schedule(const std::string &path, std::shared_ptr<const passes::Schedule> &to) {
  if (path.empty()) return true;
  std::optional<passes::Schedule> read;
  if (auto file = read_source(path, sources, diags)) read = passes::parse_schedule(*file, diags);
  // Kernels of this file, and those that its programs, or imported ones, can launch.
  std::set<std::string> names;
  auto add = [&](const sema::Scope &scope) {
    for (const auto &[name, f] : scope.functions)
      if (f.first->kind == ast::FunctionKind::Kernel) names.insert(name);
  };
  add(program->root());
  for (const auto &[name, f] : program->root().functions) add(program->scope_of(*f.first));
  if (read)
    for (const passes::KernelPlan &k : read->kernels) {
      if (std::any_of(names.begin(), names.end(), [&](const auto &n) { return passes::plans_for(n, k.kernel); }))
        continue;
      std::string near = nearest_name(k.kernel, {names.begin(), names.end()});
      diags.report(k.loc, DiagKind::unknown_kernel, k.kernel, near.empty() ? "" : "; did you mean `" + near + "`?");
    }
  if (diags.has_errors()) {
    print_diagnostics();
    return false;
  }
  to = std::make_shared<const passes::Schedule>(std::move(*read));
  return true;
}

static const ir::Target *named_target(const std::string &name, int &exit) {
  const ir::Target *t = ir::find_target(name);
  if (!t) {
    std::string list;
    for (const ir::Target &x : ir::all_targets()) list += std::string(" ") + x.name;
    fmt::print(stderr, "tkc: unknown target `{}`; there are:{}\n", name, list);
    exit = kUsage;
  }
  return t;
}

bool choose_target(const Common &c, const Device *device, driver::CompileOptions &options, int &exit) {
  std::string name = c.arch.empty() ? (device ? device->info().arch() : ir::default_target().name) : c.arch;
  if (name == "native" && device) name = device->info().arch();
  if (name == "native") {
    auto opened = Device::open();
    if (!opened) {
      exit = print_error(Error{"--arch native: " + opened.error(), opened.kind()});
      return false;
    }
    name = (*opened)->info().arch();
  }
  options.target = named_target(name, exit);
  if (c.proof_states > 0) options.passes.proof_states = c.proof_states;
  if (options.target && !c.tune_for.empty()) {
    options.tune_for = named_target(c.tune_for, exit);
    return options.tune_for != nullptr;
  }
  return options.target != nullptr;
}

void add_program(CLI::App &app, ProgramOptions &o) {
  std::string group = "Programs";
  add_list(app, "--assume", o.assume,
           "NAME=VALUE: device.NAME (sms, l2_bytes, smem, arch) in the host `if`s, in place of the device's own")
      ->group(group);
  app.add_flag("--graph", o.graph, "on the GPU: capture the launches once, then run the graph")->group(group);
}

void add_baseline(CLI::App &app, ProgramOptions &o, const std::string &help) {
  app.add_option(
         "--baseline", o.baseline,
         help + ": a launch for every op on tiles, with its operands and results in memory, as a library of tensor ops "
                "would run the same algorithm; views, casts and numbers are free, products are pipelined "
                "(src/passes/unfuse.h)")
      ->check(CLI::IsMember({"unfused"}));
}

bool read_program(const ProgramOptions &o, driver::VerifyOptions &to) {
  to.unfused = !o.baseline.empty();
  to.graph = o.graph;
  for (const std::string &text : o.assume) {
    std::string name, value;
    if (!split_pair("--assume", text, name, value)) return false;
    int64_t number = 0;
    auto r = std::from_chars(value.data(), value.data() + value.size(), number);
    driver::DeviceFacts facts;
    if (!facts.find(name) || r.ec != std::errc() || r.ptr != value.data() + value.size() || number < 0) {
      fmt::print(stderr, "tkc: --assume takes {}=N, not `{}`\n", fmt::join(sema::kDeviceProperties, "=N, "), text);
      return false;
    }
    to.assume[name] = number;
  }
  return true;
}

CLI::Option *add_device(CLI::App &app, std::string &name) {
  return app
      .add_option("--device", name,
                  "auto (the GPU, else the emulator), gpu, emu (the PTX in the emulator) or interp (the meaning of the "
                  "source)")
      ->check(CLI::IsMember({"auto", "gpu", "emu", "interp"}));
}

Chosen choose_executor(const std::string &name) {
  Chosen out;
  if (name == "interp") return out;
  if (name == "emu") {
    out.executor = driver::Executor::Emu;
    return out;
  }
  auto device = Device::open();
  if (device) {
    out.executor = driver::Executor::Gpu;
    out.device = std::move(*device);
    return out;
  }
  if (name == "gpu") {
    out.exit = print_error(device.failed());
    return out;
  }
  out.executor = driver::Executor::Emu;
  return out;
}

std::string executor_text(const Chosen &chosen, const ir::Target *target) {
  std::string out(driver::executor_name(chosen.executor));
  if (chosen.device) out += " " + chosen.device->info().name;
  if (chosen.executor != driver::Executor::Interp && target) out += fmt::format(", {}", target->name);
  return out;
}

int finish(const Chosen &chosen, int exit) {
  if (chosen.device && chosen.device->hung()) {
    std::fflush(nullptr);
    std::_Exit(exit);
  }
  return exit;
}

std::string indented(const std::string &lines) {
  std::string out;
  for (size_t at = 0; at < lines.size();) {
    size_t end = std::min(lines.find('\n', at), lines.size() - 1);
    out += "    " + lines.substr(at, end + 1 - at);
    at = end + 1;
  }
  return out;
}

int exit_code(ErrorKind kind) {
  switch (kind) {
  case ErrorKind::Failure: return kDiagnostics;
  case ErrorKind::NoDevice: return kNoDevice;
  case ErrorKind::Timeout: return kTimeout;
  case ErrorKind::Interrupted: return kInterrupted;
  }
  return kDiagnostics;
}

int print_error(const Error &e) {
  fmt::print(stderr, "tkc: {}\n", e.message);
  return exit_code(e.kind);
}

bool split_pair(const std::string &option, const std::string &text, std::string &name, std::string &value) {
  size_t eq = text.find('=');
  if (eq == text.npos || eq == 0 || eq + 1 == text.size()) {
    fmt::print(stderr, "tkc: {} takes NAME=VALUE, not `{}`\n", option, text);
    return false;
  }
  name = text.substr(0, eq);
  value = text.substr(eq + 1);
  return true;
}

int write_json(const std::string &path, const Json &j) {
  Status written = write_file(path, j.dump() + "\n");
  return written ? int(kOk) : print_error(written.failed());
}

} // namespace tkc::cli
