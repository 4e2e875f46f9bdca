#include "cli/cli.h"
#include "ir/target.h"
#include "syntax/parse.h"

namespace tkc::cli {

void add_common(CLI::App &app, Common &c) {
  app.add_option("FILE", c.file, "a .tk file; - for standard input")->required();
  app.add_option("-k,--kernel", c.kernel, "one kernel of the file (default: all)");
  app.add_option("--arch", c.arch, "target, or `native`: the GPU of this machine (default sm_120)");
  app.add_option("-P", c.params, "compile-time parameter, NAME=VALUE")->allow_extra_args(false);
  app.add_flag("--json-diagnostics", c.json_diagnostics, "diagnostics as JSON on stderr");
}

Session::Session(const Common &c) : c_(c) {}

void Session::print_diagnostics() {
  std::string text = c_.json_diagnostics ? diags.render_json() : diags.render_all();
  fmt::print(stderr, "{}", text);
}

bool Session::load() {
  auto id = read_source(c_.file, sources, diags);
  if (id) program = sema::Program::load(*id, diags);
  if (program && !diags.has_errors()) return true;
  print_diagnostics();
  return false;
}

const ir::Target *Session::target(const Device *device) {
  std::string name = c_.arch.empty() ? (device ? device->info().arch() : ir::default_target().name) : c_.arch;
  if (name == "native") {
    if (!device) {
      fmt::print(stderr, "tkc: --arch native needs a GPU\n");
      return nullptr;
    }
    name = device->info().arch();
  }
  const ir::Target *t = ir::find_target(name);
  if (!t) {
    std::string list;
    for (const ir::Target &x : ir::all_targets()) list += std::string(" ") + x.name;
    fmt::print(stderr, "tkc: unknown target `{}`; there are:{}\n", name, list);
  }
  return t;
}

std::vector<const ast::Function *> Session::kernels() {
  std::vector<const ast::Function *> all = program->kernels();
  if (c_.kernel.empty()) return all;
  std::vector<std::string> names;
  for (const ast::Function *f : all) {
    if (f->name.text == c_.kernel) return {f};
    names.push_back(f->name.text);
  }
  std::string near = nearest_name(c_.kernel, names);
  diags.report({}, DiagKind::unknown_kernel, c_.kernel, near.empty() ? "" : "; did you mean `" + near + "`?");
  print_diagnostics();
  return {};
}

std::optional<sema::InstanceSpec> Session::overrides() {
  sema::InstanceSpec out;
  std::set<std::string> known;
  std::vector<std::string> names;
  for (const ast::Function *f : program->kernels())
    for (const ast::GenericParam &g : f->generics)
      if (known.insert(g.name.text).second) names.push_back(g.name.text);
  for (const std::string &p : c_.params) {
    size_t eq = p.find('=');
    if (eq == p.npos || eq == 0) {
      fmt::print(stderr, "tkc: -P takes NAME=VALUE, not `{}`\n", p);
      return std::nullopt;
    }
    std::string name = p.substr(0, eq);
    if (!known.count(name)) {
      std::string near = nearest_name(name, names);
      diags.report({}, DiagKind::unknown_parameter, c_.file, name,
                   near.empty() ? "" : "; did you mean `" + near + "`?");
      print_diagnostics();
      return std::nullopt;
    }
    out.params[name] = p.substr(eq + 1);
  }
  return out;
}

int exit_code(ErrorKind kind) {
  switch (kind) {
  case ErrorKind::Failure: return kDiagnostics;
  case ErrorKind::NoDevice: return kNoDevice;
  case ErrorKind::Timeout: return kTimeout;
  }
  return kDiagnostics;
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
    fmt::print(stderr, "tkc: {}\n", device.error());
    out.exit = exit_code(device.kind());
    return out;
  }
  out.executor = driver::Executor::Emu;
  return out;
}

} // namespace tkc::cli

int main(int argc, char **argv) {
  CLI::App app{"tkc: a compiler for GPU tile kernels"};
  app.set_version_flag("--version", "tkc " TKC_VERSION " (LLVM " + tkc::codegen::llvm_version() + ")");
  app.require_subcommand(1);
  int exit = tkc::cli::kOk;
  tkc::cli::setup_compile(app, exit);
  tkc::cli::setup_verify(app, exit);
  tkc::cli::setup_bench(app, exit);
  tkc::cli::setup_ops(app, exit);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError &e) {
    int code = app.exit(e);
    return code == 0 ? 0 : tkc::cli::kUsage;
  }
  return exit;
}
