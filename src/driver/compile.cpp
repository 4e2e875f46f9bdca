#include "driver/compile.h"
#include "ir/clone.h"
#include "ir/print.h"
#include "passes/passes.h"
#include "passes/schedule.h"
#include "runtime/parallel.h"
#include "support/crash_scope.h"
#include "support/diag_kinds.h"
#include <algorithm>
#include <chrono>
#include <mutex>

namespace tkc::driver {

// Those up to `stop_after`.
static std::vector<passes::Pass> passes_of(const CompileOptions &options) {
  std::vector<passes::Pass> list = passes::pipeline();
  for (size_t i = 0; i < list.size(); i++)
    if (options.stop_after == list[i].name) list.erase(list.begin() + ptrdiff_t(i) + 1, list.end());
  return list;
}

std::string check_pass_options(const CompileOptions &options) {
  std::vector<std::string> all = {kAfterSema}, optional;
  for (const passes::Pass &p : passes::pipeline()) {
    all.push_back(p.name);
    if (p.optional && !p.reaches) optional.push_back(p.name);
  }
  auto has = [](const std::vector<std::string> &names, const std::string &name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  auto unknown = [](const std::string &name, const std::vector<std::string> &names) {
    std::string near = nearest_name(name, names);
    return fmt::format("there is no pass `{}`{}", name, near.empty() ? "" : fmt::format("; did you mean `{}`?", near));
  };
  for (const std::string &s : options.passes.skip) {
    if (has(optional, s)) continue;
    return has(all, s) ? fmt::format("pass `{}` cannot be skipped: later passes need it", s) : unknown(s, optional);
  }
  if (!options.stop_after.empty() && !has(all, options.stop_after)) return unknown(options.stop_after, all);
  return "";
}

using MakeTyped = std::function<std::unique_ptr<ir::Function>(Diagnostics &)>;

ir::Target planning_target(const CompileOptions &options) {
  ir::Target target = *options.target;
  if (!options.tune_for) return target;
  target.shared_per_block = std::min(target.shared_per_block, options.tune_for->shared_per_block);
  target.shared_per_sm = std::min(target.shared_per_sm, options.tune_for->shared_per_sm);
  return target;
}

const ir::Part &planning_part(const CompileOptions &options) {
  if (options.part) return *options.part;
  return ir::default_part(options.tune_for ? *options.tune_for : *options.target);
}

// `unproven`: set to why the proof of its protocols was given up.
static std::unique_ptr<ir::Function> lower_once(const MakeTyped &make, const CompileOptions &options,
                                                const std::string &name, Diagnostics &diags, std::vector<Phase> &phases,
                                                std::string &unproven) {
  using Clock = std::chrono::steady_clock;
  auto start = Clock::now();
  std::unique_ptr<ir::Function> f = make(diags);
  phases.push_back({"sema", std::chrono::duration<double, std::milli>(Clock::now() - start).count()});
  if (f && !name.empty()) f->name = name;
  if (!f || options.stop_after == kAfterSema) return f;
  CrashScope last_ir("last.tkir", [&] { return ir::print(*f); });
  ir::Target target = planning_target(options);
  passes::PassContext context{target, planning_part(options), diags, options.passes};
  passes::PassManager manager(passes_of(options));
  passes::PassManager::Outcome outcome = manager.run(*f, context);
  for (const auto &t : manager.timings()) phases.push_back({std::string("pass ") + t.name, t.pass_ms + t.check_ms});
  unproven = context.unproven;
  using Outcome = passes::PassManager::Outcome;
  TKC_CHECK(outcome != Outcome::broken, "{}", manager.problem());
  if (outcome != Outcome::ok || diags.has_errors()) return nullptr;
  if (const passes::Schedule *forced = options.stop_after.empty() ? options.passes.schedule.get() : nullptr)
    if (const passes::KernelPlan *k = forced->find(f->name, target.name)) passes::check_forced(*f, *k, diags);
  if (diags.has_errors()) return nullptr;
  if (options.after_passes) options.after_passes();
  return f;
}

static std::unique_ptr<ir::Function> lower(const MakeTyped &make, const CompileOptions &options,
                                           const std::string &name, Diagnostics &diags, std::vector<Phase> &phases) {
  // What cannot be proven is the schedule's fault, not the user's: it gets fewer slots, then none.
  CompileOptions attempt = options;
  for (int64_t most_stages : {passes::PassOptions::kManyStages, int64_t(2), int64_t(0)}) {
    int64_t most = std::min(most_stages, options.passes.most_stages);
    if (!attempt.passes.unproven.empty() && most == attempt.passes.most_stages) continue; // the same once more
    attempt.passes.most_stages = most;
    Diagnostics found(diags.sources());
    std::string unproven;
    auto f = lower_once(make, attempt, name, found, phases, unproven);
    if (!unproven.empty() && most_stages > 0) {
      attempt.passes.unproven = unproven;
      continue;
    }
    for (const Diagnostic &d : found.all()) diags.add(d);
    if (diags.has_errors()) return nullptr;
    if (!attempt.passes.unproven.empty())
      diags.report(f->loc, DiagKind::schedule_dropped, f->name, most_stages ? "rings of two slots" : "no rings",
                   attempt.passes.unproven);
    return f;
  }
  TKC_UNREACHABLE("the last attempt returns");
}

std::unique_ptr<ir::Function> lower_kernel(sema::Program &program, const ast::Function &kernel,
                                           const sema::InstanceSpec &spec, const CompileOptions &options,
                                           Diagnostics &diags, std::vector<Phase> &phases, const std::string &name) {
  auto make = [&](Diagnostics &d) {
    static std::mutex one_at_a_time; // sema adds to the program's tables
    std::lock_guard lock(one_at_a_time);
    return sema::instantiate(program, kernel, spec, options.target, d);
  };
  return lower(make, options, name, diags, phases);
}

std::unique_ptr<ir::Function> lower_typed(const ir::Function &typed, const CompileOptions &options, Diagnostics &diags,
                                          std::vector<Phase> &phases, const std::string &name) {
  return lower([&](Diagnostics &) { return ir::clone(typed); }, options, name, diags, phases);
}

std::vector<std::unique_ptr<ir::Function>> lower_all(sema::Program &program, const std::vector<LowerJob> &jobs,
                                                     const CompileOptions &options, Diagnostics &diags,
                                                     std::vector<Phase> &phases) {
  std::vector<std::unique_ptr<ir::Function>> out(jobs.size());
  std::vector<Diagnostics> found(jobs.size(), Diagnostics(diags.sources()));
  std::vector<std::vector<Phase>> times(jobs.size());
  parallel_for(int64_t(jobs.size()), 1, [&](int64_t begin, int64_t) {
    auto i = size_t(begin);
    const LowerJob &job = jobs[i];
    CompileOptions o = options;
    if (!job.dump_dir.empty()) o.passes.dump_dir = job.dump_dir;
    out[i] = job.kernel ? lower_kernel(program, *job.kernel, *job.spec, o, found[i], times[i], job.name)
                        : lower_typed(*job.typed, o, found[i], times[i], job.name);
  });
  for (size_t i = 0; i < jobs.size(); i++) {
    for (const Diagnostic &d : found[i].all()) diags.add(d);
    phases.insert(phases.end(), times[i].begin(), times[i].end());
  }
  return out;
}

codegen::EmitResult emit_module(const std::vector<const ir::Function *> &functions, const CompileOptions &options,
                                const SourceManager &sources, std::vector<Phase> &phases) {
  std::vector<codegen::Entry> entries;
  std::string names;
  for (const ir::Function *f : functions) {
    entries.push_back({f, f->name, true});
    entries.push_back({f, f->name + "__any", false});
    names += (names.empty() ? "" : ", ") + f->name;
  }
  CrashScope last_ir("last.tkir", [&] {
    std::string text;
    for (const ir::Function *f : functions) text += ir::print(*f);
    return text;
  });
  codegen::EmitOptions emit;
  emit.max_registers = options.max_registers;
  emit.keep_llvm = options.keep_llvm;
  emit.fail = options.fail_in_llvm;
  if (options.debug_lines) emit.sources = &sources;
  codegen::EmitResult out = codegen::emit(entries, *options.target, emit);
  TKC_CHECK(out.ok, "{}: {}", names, out.error);
  for (const auto &p : out.phases) phases.push_back({std::string("llvm ") + p.name, p.milliseconds});
  return out;
}

std::unique_ptr<CompiledKernel> compile_kernel(sema::Program &program, const ast::Function &kernel,
                                               const sema::InstanceSpec &spec, const CompileOptions &options,
                                               Diagnostics &diags) {
  auto out = std::make_unique<CompiledKernel>();
  out->function = lower_kernel(program, kernel, spec, options, diags, out->phases);
  if (!out->function) return nullptr;
  out->code = emit_module({out->function.get()}, options, diags.sources(), out->phases);
  return out;
}

} // namespace tkc::driver
