#include "driver/verify.h"
#include "driver/instance_key.h"
#include "driver/program_gpu.h"
#include "ir/target.h"
#include "runtime/generators.h"
#include "support/stop.h"
#include <chrono>

namespace tkc::driver {

bool CaseResult::pass() const {
  if (!error.empty()) return false;
  for (const auto &[name, c] : outputs)
    if (!c.pass) return false;
  for (const GradientCheck &g : gradients)
    if (!g.pass()) return false;
  return true;
}

// What rounding to the dtype leaves of an f64 result; a block's own `tolerance` replaces it.
static Tolerance default_tolerance(DType t) {
  Tolerance out;
  if (!is_float(t)) {
    out.exact = true;
    return out;
  }
  switch (t) {
  case DType::F64: out.rms = 1e-12; break;
  case DType::F32: out.rms = 1e-5; break;
  case DType::TF32:
  case DType::F16: out.rms = 1e-3; break;
  case DType::BF16: out.rms = 4e-3; break;
  default: out.rms = 6e-2; break;
  }
  return out;
}

Tolerance tolerance_of(const ast::Check *check, const std::string &name, DType t, Diagnostics &diags) {
  Tolerance out = default_tolerance(t);
  if (!check) return out;
  for (const ast::Tolerance &tol : check->tolerances) {
    bool mine = false;
    for (const ast::Name &n : tol.outputs) mine |= n.text == name;
    if (!mine) continue;
    out = Tolerance{};
    for (const ast::ToleranceItem &item : tol.items) {
      if (item.measure.text == "exact") {
        out.exact = true;
        continue;
      }
      double v = item.value->kind == ast::ExprKind::Float ? item.value->float_value : double(item.value->int_value);
      bool literal = item.value->kind == ast::ExprKind::Float || item.value->kind == ast::ExprKind::Int;
      if (item.measure.text == "rms" && literal)
        out.rms = v;
      else if (item.measure.text == "max" && literal)
        out.max_abs = v;
      else
        diags.report(item.measure.loc, DiagKind::bad_check, "a tolerance is `rms NUMBER`, `max NUMBER` or `exact`");
    }
  }
  return out;
}

std::vector<std::string> dim_names(const ast::Function &kernel, const std::string &tensor) {
  std::vector<std::string> out;
  for (const ast::Param &p : kernel.params)
    if (p.name.text == tensor && p.type)
      for (const ast::ExprPtr &d : p.type->dims) out.push_back(d->kind == ast::ExprKind::Name ? d->text : "");
  return out;
}

// Says where an element of an output is, by the `locate` of the block: `shape` and `dims` are the tensor's. Names that
// stand for several dims are no coordinates.
class Locator {
public:
  // Errors of the clause are reported whether an output fails or not.
  Locator(sema::Program &program, const ast::Check &check, const std::string &output, const Comparison &c,
          const sema::Numbers &numbers, const std::vector<sema::HostArg> &args, Diagnostics &diags)
      : sources_(diags.sources()), shape_(c.shape) {
    for (const ast::Locate &l : check.locates)
      for (const ast::Name &n : l.outputs) {
        if (n.text != output) continue;
        std::vector<ast::Name> names;
        for (size_t d = 0; d < c.dims.size(); d++) {
          if (c.dims[d].empty() || std::count(c.dims.begin(), c.dims.end(), c.dims[d]) > 1) continue;
          names.push_back({c.dims[d], n.loc});
          dims_.push_back(d);
        }
        function_ = sema::build_location(program, check, l, names, numbers, args, diags);
      }
  }
  Status place(std::optional<Mismatch> &m, const std::vector<interp::Value> &values, uint64_t seed) const {
    if (!m || !function_) return {};
    std::vector<interp::Value> args = values;
    std::vector<int64_t> at = coordinates(shape_, m->index);
    for (size_t d : dims_) {
      interp::Tile t(DType::I64, {});
      t.i[0] = at[d];
      args.emplace_back(std::move(t));
    }
    auto r = call_host(*function_, std::move(args), seed, sources_);
    if (!r) return r.failed();
    for (size_t k = 0; k < r->size(); k++)
      m->place.emplace_back(function_->outputs[k], std::get<interp::Tile>((*r)[k]).i[0]);
    return {};
  }

private:
  const SourceManager &sources_;
  const std::vector<int64_t> shape_;
  std::vector<size_t> dims_; // those that are arguments
  std::optional<sema::HostFunction> function_;
};

static bool same_tensors(const LaunchData &a, const LaunchData &b) {
  for (size_t i = 0; i < a.tensors.size(); i++)
    if (a.tensors[i].bytes != b.tensors[i].bytes) return false;
  return true;
}

DeviceFacts VerifyOptions::device_facts() const {
  DeviceFacts out = executor == Executor::Gpu && device
                        ? DeviceFacts::of(device->info())
                        : DeviceFacts::of(compile.tune_for ? *compile.tune_for : *compile.target);
  for (const auto &[name, value] : assume)
    if (int64_t *property = out.find(name)) *property = value;
  return out;
}

// One run on the emulator.
using EmuRun = std::function<Status(LaunchData &, const emu::Options &, std::string &printed)>;

// `results` gets the outputs of the emulator's schedules, those that differ.
static Status run_schedules(const EmuRun &run_once, const VerifyOptions &o, LaunchData &data, std::string &printed,
                            std::vector<LaunchData> &results) {
  LaunchData before = data;
  Status ran;
  for (int64_t k = 0; k < o.emu_schedules && ran; k++) {
    LaunchData run = before;
    emu::Options schedule = emu::nth_schedule(o.emu, k, o.emu_policy);
    std::string text;
    TimeLimit limit(o.limit_seconds);
    ran = run_once(run, schedule, text);
    if (!ran && o.emu_schedules > 1)
      return failure("{} (schedule {} of {}: --emu-policy {} --emu-seed {})", ran.error(), k + 1, o.emu_schedules,
                     emu::policy_name(schedule.policy), schedule.seed);
    if (k == 0) printed += text;
    if (ran && (results.empty() || !same_tensors(run, results.back()))) results.push_back(std::move(run));
  }
  if (ran) data = results[0];
  return ran;
}

static Status run_program_on(sema::Program &program, const Instance &instance, const VerifyOptions &o,
                             Diagnostics &diags, LaunchData &data, std::string &printed,
                             std::vector<LaunchData> &results, InstanceCode &code) {
  auto plan = make_plan(*instance.program, data, o.device_facts(), diags.sources());
  if (!plan) return plan.failed();
  if (o.show_plan) printed += plan->to_string();
  if (o.executor == Executor::Interp) {
    TimeLimit limit(o.limit_seconds);
    return run_interp(*plan, data, diags.sources(), printed);
  }
  std::set<size_t> wanted = kernels_of(*plan);
  auto &compiled = code.programs[wanted];
  if (!compiled) compiled = compile_program(program, *instance.program, o.compile, diags, &wanted);
  if (!compiled) return failure("the program has errors");
  if (o.executor == Executor::Gpu) return run_gpu(*o.device, *plan, *compiled, data, o.graph, o.gpu_limit());
  return run_schedules([&](LaunchData &run, const emu::Options &options,
                           std::string &text) { return run_emu(*plan, *compiled, run, options, text); },
                       o, data, printed, results);
}

Status run_on(sema::Program &program, const Instance &instance, const sema::InstanceSpec &spec, const VerifyOptions &o,
              Diagnostics &diags, LaunchData &data, std::string &printed, std::vector<LaunchData> &results,
              InstanceCode &code) {
  if (instance.program) return run_program_on(program, instance, o, diags, data, printed, results, code);
  if (o.executor == Executor::Interp) {
    TimeLimit limit(o.limit_seconds);
    return run_interp(*instance.function, data, diags.sources(), printed);
  }
  auto &compiled = code.kernel;
  if (!compiled) compiled = compile_kernel(program, *instance.ast, spec, o.compile, diags);
  if (!compiled) return failure("the kernel has errors");
  if (o.executor == Executor::Gpu) return run_gpu(*o.device, *compiled, data, diags.sources(), o.gpu_limit());
  return run_schedules([&](LaunchData &run, const emu::Options &options,
                           std::string &text) { return run_emu(*compiled, run, diags.sources(), options, text); },
                       o, data, printed, results);
}

// Instances by compile-time parameters and absent tensors: most cases differ in sizes only.
struct Instances {
  struct Entry {
    std::optional<Instance> instance;
    InstanceCode code;
  };
  std::map<InstanceKey, Entry> entries;
};

static CaseResult run_case(sema::Program &program, const ast::Function &kernel, const ast::Check &check,
                           const sema::CaseSpec &c, const VerifyOptions &o, Diagnostics &diags, Instances &instances) {
  CaseResult out;
  out.kernel = kernel.name.text;
  out.name = c.name;
  auto start = std::chrono::steady_clock::now();
  auto fail = [&](const Error &e) {
    out.error = e.message;
    out.error_kind = e.kind;
    return out;
  };
  sema::InstanceSpec spec = c.spec;
  for (const auto &[k, v] : o.overrides.params) spec.params[k] = v;
  spec.absent.insert(o.overrides.absent.begin(), o.overrides.absent.end());
  auto &[instance, code] = instances.entries[instance_key(kernel, spec)];
  if (!instance)
    instance = o.unfused ? make_unfused(program, kernel, spec, *o.compile.target, diags)
                         : make_instance(program, kernel, spec, o.compile.target, diags);
  if (!instance) return fail(failure("the {} has errors", ast::spelling(kernel.kind)));
  const ir::Function *typed = instance->function.get();
  auto data = make_data(program, &check, *typed, c, {.seed = o.seed}, diags);
  if (!data) return fail(data.failed());
  LaunchData before = *data;
  std::vector<LaunchData> results;
  Status ran = run_on(program, *instance, spec, o, diags, *data, out.printed, results, code);
  if (!ran) return fail(ran.failed());
  if (results.empty()) results.push_back(*data);
  std::vector<sema::HostArg> args = words_of(*typed);
  std::vector<interp::Value> values;
  for (size_t i = 0; i < typed->params.size(); i++)
    add_host_argument(typed->params[i], before.tensors[i], args, values);
  sema::Numbers numbers = numbers_of(*typed, c);
  for (const auto &[k, v] : data->scalars) numbers.emplace(k, v);
  std::set<std::string> compared;
  auto evaluate = [&](const sema::HostFunction &h) {
    GradientChecker checker(stream_seed(o.seed, int64_t(out.gradients.size())));
    interp::Launch launch;
    if (o.check_gradient) launch.on_gradient = [&](const interp::Launch::Gradient &g) { checker.check(g); };
    auto r = call_host(h, values, o.seed, diags.sources(), std::move(launch));
    out.gradients.insert(out.gradients.end(), checker.checks().begin(), checker.checks().end());
    return r;
  };
  for (const ast::Binding &b : check.bindings) {
    auto h = sema::build_expected(program, check, b, numbers, args, diags);
    if (!h) return fail(failure("the expected value of `{}` has errors", b.targets[0].text));
    auto r = evaluate(*h);
    if (!r) return fail(r.failed());
    if (o.check_gradient && !takes_gradient(*h->fn)) { // a reference that is not differentiated here: in all it names
      auto g = sema::build_gradient(program, check, b, numbers, args, diags);
      if (diags.has_errors()) return fail(failure("`{}` has no derivative", b.targets[0].text));
      if (g)
        if (auto ran = evaluate(*g); !ran) return fail(ran.failed());
    }
    for (size_t k = 0; k < h->outputs.size(); k++) {
      size_t i = 0;
      while (i < typed->params.size() && typed->params[i].name != h->outputs[k]) i++;
      if (i == typed->params.size() || typed->params[i].mode == ir::ParamMode::In) {
        diags.report(b.targets[k].loc, DiagKind::bad_check,
                     fmt::format("`{}` is no output of `{}`", h->outputs[k], kernel.name.text));
        return fail(failure("the verify block has errors"));
      }
      if (!typed->params[i].present) continue;
      const auto &want = std::get<interp::Tile>((*r)[k]);
      const HostTensor &got = results[0].tensors[i];
      if (want.shape != got.shape)
        return fail(failure("the reference of `{}` has shape {}, the tensor {}", h->outputs[k],
                            ir::shape_str(want.shape), ir::shape_str(got.shape)));
      Tolerance tol = tolerance_of(&check, h->outputs[k], got.dtype, diags);
      auto judge = [&](const HostTensor &t) {
        if (want.is_float()) return compare(t, want.f, tol);
        if (is_float(t.dtype)) // a reference that counts
          return compare(t, std::vector<double>(want.i.begin(), want.i.end()), tol);
        HostTensor expected = HostTensor::zeros(t.dtype, t.shape);
        for (int64_t j = 0; j < expected.count(); j++) expected.set_int(j, want.i[size_t(j)]);
        return compare(t, expected, tol);
      };
      Comparison cmp = judge(got);
      for (size_t r = 1; r < results.size() && cmp.pass; r++) cmp = judge(results[r].tensors[i]);
      cmp.dims = dim_names(kernel, h->outputs[k]);
      Locator locator(program, check, h->outputs[k], cmp, numbers, args, diags);
      if (diags.has_errors()) return fail(failure("the place of `{}` has errors", h->outputs[k]));
      if (!cmp.pass)
        for (std::optional<Mismatch> *m : {&cmp.first, &cmp.worst})
          if (Status s = locator.place(*m, values, o.seed); !s) return fail(s.failed());
      out.outputs.emplace_back(h->outputs[k], std::move(cmp));
      compared.insert(h->outputs[k]);
    }
  }
  for (const ir::Param &p : typed->params)
    if (p.type.is_tensor() && p.present && p.mode != ir::ParamMode::In && !compared.count(p.name))
      return fail(failure("the verify block says nothing about output `{}`", p.name));
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return out;
}

void verify_kernel(sema::Program &program, const ast::Function &kernel, const ast::Check &check, const VerifyOptions &o,
                   Diagnostics &diags, const std::function<void(const CaseResult &)> &done) {
  Instances instances;
  for (const ast::Case &c : check.cases) {
    if (!o.only_case.empty() && c.name.text != o.only_case) continue;
    auto spec = sema::evaluate_case(program, kernel, check, c, diags);
    if (!spec) return;
    if (spec->gpu_only && o.executor != Executor::Gpu) {
      CaseResult skipped;
      skipped.kernel = kernel.name.text;
      skipped.name = c.name.text;
      skipped.skipped = true;
      done(skipped);
      continue;
    }
    if (o.progress) o.progress(fmt::format("{}.{}", kernel.name.text, c.name.text));
    CaseResult r = run_case(program, kernel, check, *spec, o, diags, instances);
    if (diags.has_errors()) return;
    done(r);
    if (r.error_kind != ErrorKind::Failure) return;
  }
}

} // namespace tkc::driver
