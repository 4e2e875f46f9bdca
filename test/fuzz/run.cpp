#include "run.h"
#include "driver/instance.h"
#include "ir/target.h"
#include "runtime/compare.h"
#include "runtime/generators.h"
#include "support/stop.h"
#include <algorithm>
#include <cmath>

namespace tkc::fuzz {

namespace {

using namespace tkc::driver;

uint64_t hash(const std::string &s) {
  uint64_t h = 1469598103934665603u;
  for (char c : s) h = (h ^ uint8_t(c)) * 1099511628211u;
  return h;
}

HostTensor make_input(const Input &in, const std::string &name, DType t, const std::vector<int64_t> &shape,
                      uint64_t seed) {
  HostTensor out = HostTensor::zeros(t, shape);
  uint64_t stream = stream_seed(seed, int64_t(hash(name) >> 1));
  for (int64_t k = 0; k < out.count(); k++) {
    uint64_t r = splitmix64(stream + uint64_t(k));
    if (is_bool(t)) {
      out.set_int(k, int64_t(r % 100) < int64_t(in.first));
    } else if (is_float(t)) {
      auto steps = uint64_t(std::ldexp(in.first, -int(in.second)));
      out.set(k, std::ldexp(double(int64_t(r % (2 * steps + 1)) - int64_t(steps)), int(in.second)));
    } else if (in.second - in.first >= 4e18) {
      out.set_int(k, int64_t(r));
    } else {
      out.set_int(k, int64_t(in.first) + int64_t(r % (uint64_t(in.second - in.first) + 1)));
    }
  }
  return out;
}

std::string element(const HostTensor &t, int64_t k) {
  return is_float(t.dtype) ? fmt::format("{:.9g}", t.get(k)) : fmt::format("{}", t.get_int(k));
}

// "" if no element differs by more than `error`.
std::string difference(const std::string &name, const HostTensor &expected, const HostTensor &got, double error,
                       const char *executor) {
  if (expected.bytes == got.bytes) return "";
  int64_t wrong = 0, first = -1;
  for (int64_t k = 0; k < expected.count(); k++) {
    if (expected.bits(k) == got.bits(k)) continue;
    if (is_float(expected.dtype)) {
      double a = expected.get(k), b = got.get(k);
      if (a == b || (std::isnan(a) && std::isnan(b)) || std::fabs(a - b) <= error) continue;
    }
    wrong++;
    if (first < 0) first = k;
  }
  if (!wrong) return "";
  return fmt::format("{} {}: {} of {} elements differ by more than {:.3g}; the first at {}: interpreter {}, {} {}",
                     name, expected.to_string(), wrong, expected.count(), error,
                     shape_to_string(coordinates(expected.shape, first)), element(expected, first), executor,
                     element(got, first));
}

Outcome found(std::string kind, std::string message) { return {Verdict::Found, std::move(kind), std::move(message)}; }

// The word in the last brackets of a message, without those of the position behind it.
std::string bracketed(const std::string &message) {
  size_t end = message.rfind("] (");
  if (end == std::string::npos) return "failure";
  size_t begin = message.rfind('[', end);
  return message.substr(begin + 1, end - begin - 1);
}

Outcome of_diagnostics(const Diagnostics &diags, const Program &p) {
  // What the target cannot hold, or an annotation that this loop cannot follow; a ring that one asks for may be more
  // than the proof can do.
  std::vector<std::string> refusals = {"too_many_registers", "too_much_shared", "forced_pipeline"};
  if (p.text.find("@pipeline(") != std::string::npos) refusals.push_back("unproven_protocol");
  for (const Diagnostic &d : diags.all()) {
    if (d.severity != Severity::Error) continue;
    std::string kind = diag_info(d.kind).name;
    bool refusal = std::find(refusals.begin(), refusals.end(), kind) != refusals.end();
    return {refusal ? Verdict::Rejected : Verdict::Found, refusal ? kind : "diagnostic " + kind, diags.render_all()};
  }
  return found("diagnostic none", "no program, and no error");
}

} // namespace

Outcome run_program(const Program &p, const RunOptions &options) {
  SourceManager sources;
  Diagnostics diags(sources);
  auto program = sema::Program::load(sources.add("k.tk", p.text), diags);
  if (!program || diags.has_errors()) return of_diagnostics(diags, p);
  const ast::Function *kernel = program->find("k", ast::FunctionKind::Kernel);
  if (!kernel) return found("no kernel k", "the program has no kernel `k`");
  CompileOptions how;
  how.target = ir::find_target(p.target);
  if (!how.target) return found("target", fmt::format("no target {}", p.target));
  auto instance = make_instance(*program, *kernel, {}, how.target, diags);
  if (!instance) return of_diagnostics(diags, p);
  const ir::Function &f = *instance->function;

  LaunchData before;
  before.sizes = p.sizes;
  std::erase_if(before.sizes,
                [&](const auto &s) { return std::find(f.sizes.begin(), f.sizes.end(), s.first) == f.sizes.end(); });
  for (const ir::Param &param : f.params) {
    auto shape = extents(f, param, before);
    if (!shape) return found("extents", shape.error());
    auto in = p.inputs.find(param.name);
    before.tensors.push_back(param.mode == ir::ParamMode::Out || in == p.inputs.end()
                                 ? HostTensor::zeros(param.type.dtype, *shape)
                                 : make_input(in->second, param.name, param.type.dtype, *shape, p.seed));
    if (param.mode != ir::ParamMode::Out) continue;
    // Of what is not written the executors must agree too; a bool has no other pattern than its values.
    if (is_bool(param.type.dtype))
      before.tensors.back() = make_input({50, 0}, param.name, param.type.dtype, *shape, p.seed);
    else
      poison(before.tensors.back());
  }

  std::string printed;
  LaunchData expected = before;
  {
    TimeLimit limit(20);
    Status ran = run_interp(f, expected, sources, printed);
    if (!ran) return found("interpreter", ran.error());
  }
  auto compiled = compile_kernel(*program, *kernel, {}, how, diags);
  if (!compiled) return of_diagnostics(diags, p);
  auto compare_with = [&](const LaunchData &got, const char *executor) -> Outcome {
    for (size_t i = 0; i < f.params.size(); i++) {
      auto out = p.outputs.find(f.params[i].name);
      if (out == p.outputs.end()) continue;
      std::string text = difference(f.params[i].name, expected.tensors[i], got.tensors[i], out->second, executor);
      if (!text.empty()) return found(fmt::format("mismatch {}", executor), text);
    }
    return {};
  };
  if (options.emulate) {
    LaunchData got = before;
    emu::Options emu;
    emu.policy = p.policy;
    emu.seed = p.seed;
    emu.threads = 1;
    emu.instruction_budget = int64_t(1) << 24;
    TimeLimit limit(60);
    Status ran = run_emu(*compiled, got, sources, emu, printed);
    if (!ran) return found("emulator " + bracketed(ran.error()), ran.error());
    if (Outcome o = compare_with(got, "emulator"); o.verdict != Verdict::Clean) return o;
  }
  if (options.device) {
    LaunchData got = before;
    Status ran = run_gpu(*options.device, *compiled, got, sources, 10);
    if (!ran) return found("gpu", ran.error());
    return compare_with(got, "GPU");
  }
  return {};
}

} // namespace tkc::fuzz
