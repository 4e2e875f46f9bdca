#include "driver/run.h"
#include "cli/cli.h"
#include "cli/progress.h"
#include "driver/run_ptx.h"
#include "ir/target.h"
#include "support/stop.h"
#include <algorithm>
#include <charconv>

namespace tkc::cli {

namespace {
struct Options {
  Common common;
  std::string device = "auto";
  std::vector<std::string> sizes, scalars, inputs, outputs, expected;
  uint64_t seed = 1, emu_seed = 0;
  double timeout = 0;
  // of a PTX file
  std::vector<std::string> arguments;
  std::string grid = "1", block = "1", cluster = "1";
  int64_t shared = 0;
  ProgramOptions program;
  bool plan = false;
};

using Pairs = std::map<std::string, std::string>;
// False after a message.
bool read_pairs(const std::string &option, const std::vector<std::string> &list, Pairs &out) {
  for (const std::string &text : list) {
    std::string name, value;
    if (!split_pair(option, text, name, value)) return false;
    if (!out.emplace(name, value).second) {
      fmt::print(stderr, "tkc: {} {} is given twice\n", option, name);
      return false;
    }
  }
  return true;
}
bool read_files(const std::string &option, const std::vector<std::string> &list,
                std::map<std::string, TensorPath> &out) {
  Pairs pairs;
  if (!read_pairs(option, list, pairs)) return false;
  for (const auto &[name, text] : pairs) {
    Result<TensorPath> path = parse_tensor_path(text);
    if (!path) {
      fmt::print(stderr, "tkc: {} {}: {}\n", option, name, path.error());
      return false;
    }
    out.emplace(name, *path);
  }
  return true;
}

// "128", "4,2", "4,2,1"
bool read_extents(const std::string &option, std::string_view text, int64_t (&out)[3]) {
  std::string_view rest = text;
  for (int d = 0; d < 3; d++) {
    size_t comma = std::min(rest.find(','), rest.size());
    auto r = std::from_chars(rest.data(), rest.data() + comma, out[d]);
    if (r.ec != std::errc() || r.ptr != rest.data() + comma || out[d] < 0) break;
    if (comma == rest.size()) return true;
    rest.remove_prefix(comma + 1);
  }
  fmt::print(stderr, "tkc: {} takes X, X,Y or X,Y,Z, not `{}`\n", option, text);
  return false;
}

// "y: bf16[7, 100]  min -1.2  max 3.4  mean 0.01", so that a run without --output says something.
std::string summary(const std::string &name, const HostTensor &t) {
  std::string out = fmt::format("{}: {}{}", name, dtype_name(t.dtype), shape_to_string(t.shape));
  std::vector<double> values = t.to_doubles();
  double low = INFINITY, high = -INFINITY, sum = 0;
  int64_t finite = 0;
  for (double v : values) {
    if (!std::isfinite(v)) continue;
    low = std::min(low, v);
    high = std::max(high, v);
    sum += v;
    finite++;
  }
  if (finite > 0) out += fmt::format("  min {:.6g}  max {:.6g}  mean {:.6g}", low, high, sum / double(finite));
  if (finite < int64_t(values.size())) out += fmt::format("  {} not finite", int64_t(values.size()) - finite);
  return out + fmt::format("  checksum {:016x}", checksum(t));
}

int run_tk(const Options &o) {
  driver::RunRequest request;
  if (!read_pairs("--size", o.sizes, request.sizes) || !read_pairs("--scalar", o.scalars, request.scalars) ||
      !read_files("--input", o.inputs, request.inputs) || !read_files("--output", o.outputs, request.outputs) ||
      !read_files("--expect", o.expected, request.expected))
    return kUsage;
  Session s(o.common);
  if (!s.load()) return kDiagnostics;
  auto selected = s.select();
  if (!selected) return kDiagnostics;
  if (selected->kernels.size() > 1) {
    std::string names;
    for (const ast::Function *k : selected->kernels) names += " " + k->name.text;
    fmt::print(stderr, "tkc: the file has several kernels and programs, choose one with -k:{}\n", names);
    return kUsage;
  }
  Chosen chosen = choose_executor(o.device);
  if (chosen.exit) return chosen.exit;
  driver::VerifyOptions v;
  int exit = kOk;
  if (!choose_target(o.common, chosen.device.get(), v.compile, exit)) return exit;
  if (!s.read_schedule(o.common.schedule, v.compile.passes.schedule)) return finish(chosen, kDiagnostics);
  v.executor = chosen.executor;
  v.device = chosen.device.get();
  v.overrides = selected->spec;
  v.seed = o.seed;
  v.emu.seed = o.emu_seed;
  v.limit_seconds = o.timeout;
  v.show_plan = o.plan;
  if (!read_program(o.program, v)) return finish(chosen, kUsage);
  Progress progress;
  v.progress = [&](const std::string &name) { progress.show("running " + name); };
  Result<driver::RunResult> r = driver::run_kernel(*s.program, *selected->kernels[0], request, v, s.diags);
  progress.clear();
  if (!r) return finish(chosen, s.fail(r.failed()));
  s.print_diagnostics();
  if (s.diags.has_errors()) return finish(chosen, kDiagnostics);
  if (Status written = write_files(r->files); !written) return finish(chosen, print_error(written.failed()));
  fmt::print("{}", r->printed);
  for (size_t i = 0; i < r->instance.function->params.size(); i++) {
    const ir::Param &p = r->instance.function->params[i];
    if (p.type.is_tensor() && p.present && p.mode != ir::ParamMode::In)
      fmt::print("{}\n", summary(p.name, r->data.tensors[i]));
  }
  for (const auto &[name, c] : r->compared) {
    fmt::print("{}", c.to_string(name));
    if (!c.pass) exit = kMismatch;
  }
  fmt::print("ran {} on the {}\n", selected->kernels[0]->name.text, executor_text(chosen, v.compile.target));
  return finish(chosen, exit);
}

int run_ptx(const Options &o) {
  if (o.device != "emu" && o.device != "auto") {
    fmt::print(stderr, "tkc: a PTX file runs in the emulator only: --device emu\n");
    return kUsage;
  }
  if (!o.sizes.empty() || !o.scalars.empty() || !o.inputs.empty() || !o.outputs.empty() || !o.expected.empty()) {
    fmt::print(stderr, "tkc: the arguments of a PTX kernel are given by --arg, in order\n");
    return kUsage;
  }
  driver::PtxRequest request;
  request.kernel = o.common.kernel;
  for (const std::string &text : o.arguments) {
    Result<driver::PtxArgument> a = driver::parse_ptx_argument(text);
    if (!a) {
      fmt::print(stderr, "tkc: {}\n", a.error());
      return kUsage;
    }
    request.arguments.push_back(std::move(*a));
  }
  if (!read_extents("--grid", o.grid, request.launch.grid) || !read_extents("--block", o.block, request.launch.block) ||
      !read_extents("--cluster", o.cluster, request.launch.cluster))
    return kUsage;
  request.launch.dynamic_shared = o.shared;
  request.options.seed = o.emu_seed;
  request.limit_seconds = o.timeout;
  Result<std::vector<uint8_t>> file = read_file(o.common.file);
  if (!file) return print_error(file.failed());
  Progress progress;
  progress.show("running " + o.common.file);
  Result<driver::PtxResult> r = driver::run_ptx(std::string(file->begin(), file->end()), request);
  progress.clear();
  if (!r) return print_error(r.failed());
  if (Status written = write_files(r->files); !written) return print_error(written.failed());
  fmt::print("{}{} warp instructions\nran {} on the PTX emulator\n", r->printed, r->instructions, r->kernel);
  return kOk;
}
} // namespace

void setup_run(CLI::App &app, int &exit) {
  auto o = std::make_shared<Options>();
  CLI::App *sub = app.add_subcommand(
      "run", "run one kernel or program of a .tk file, or a kernel of a .ptx file, on tensors from files");
  add_common(*sub, o->common);
  sub->get_option("FILE")->description("a .tk or .ptx file; - is a .tk file on standard input");
  sub->get_option("--kernel")->description("the kernel or program (default: the only one)");
  add_device(*sub, o->device);
  sub->add_option("--seed", o->seed, "of the inputs that are generated");
  sub->add_option("--emu-seed", o->emu_seed, "of the emulator's scheduler");
  sub->add_option("--timeout", o->timeout,
                  "seconds that the kernel may run (default: 60 on the GPU, else none); exit 5")
      ->check(CLI::PositiveNumber);
  std::string tk = "A .tk file";
  add_list(*sub, "--size", o->sizes, "NAME=N: a size; those of given inputs need not be said")->group(tk);
  add_list(*sub, "--scalar", o->scalars, "NAME=VALUE: a scalar parameter")->group(tk);
  add_list(*sub, "--input", o->inputs,
           "NAME=FILE: a tensor from a .npy or .safetensors:TENSOR file; others are generated as verify does, optional "
           "ones are absent")
      ->group(tk);
  add_list(*sub, "--output", o->outputs, "NAME=FILE: where a tensor that the kernel writes goes")->group(tk);
  add_list(*sub, "--expect", o->expected,
           "NAME=FILE: what a tensor must be, within the tolerance of the verify block; exit 3 if it is not")
      ->group(tk);
  add_program(*sub, o->program);
  sub->add_flag("--plan", o->plan, "print the launches and the workspace")->group("Programs");
  std::string ptx = "A .ptx file (in the emulator)";
  add_list(*sub, "--arg", o->arguments,
           "the kernel's parameters in order: TYPE:VALUE a scalar (i32:42, f32:0.5); in:FILE a pointer to a tensor; "
           "inout:FILE,FILE the same, written to the second file; out:f32[64,32],FILE a pointer to a new tensor; null. "
           "in:bf16:a.npy says the dtype of raw elements")
      ->group(ptx);
  sub->add_option("--grid", o->grid, "blocks: X, X,Y or X,Y,Z")->group(ptx);
  sub->add_option("--block", o->block, "threads of a block")->group(ptx);
  sub->add_option("--cluster", o->cluster, "blocks of a cluster")->group(ptx);
  sub->add_option("--shared", o->shared, "bytes of dynamic shared memory")->check(CLI::NonNegativeNumber)->group(ptx);
  sub->callback([o, &exit] {
    stop_on_interrupt();
    bool ptx_file = o->common.file.ends_with(".ptx");
    if (!ptx_file && !o->arguments.empty()) {
      fmt::print(stderr, "tkc: --arg is for .ptx files; a .tk kernel takes --input, --size and --scalar\n");
      exit = kUsage;
      return;
    }
    exit = ptx_file ? run_ptx(*o) : run_tk(*o);
  });
}

} // namespace tkc::cli
