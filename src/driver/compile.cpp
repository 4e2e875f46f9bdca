#include "driver/compile.h"
#include "ir/clone.h"
#include "ir/print.h"
#include "passes/passes.h"
#include "support/crash_scope.h"
#include <algorithm>
#include <chrono>

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

// With rings of this many slots at most.
static std::unique_ptr<ir::Function> lower_once(const MakeTyped &make, const CompileOptions &options,
                                                int64_t most_stages, Diagnostics &diags, std::vector<Phase> &phases) {
  using Clock = std::chrono::steady_clock;
  auto start = Clock::now();
  std::unique_ptr<ir::Function> f = make(diags);
  phases.push_back({"sema", std::chrono::duration<double, std::milli>(Clock::now() - start).count()});
  if (!f || options.stop_after == kAfterSema) return f;
  CrashScope last_ir("last.tkir", [&] { return ir::print(*f); });
  const ir::Target &planned = options.tune_for ? *options.tune_for : *options.target;
  ir::Target target = *options.target;
  target.shared_per_block = std::min(target.shared_per_block, planned.shared_per_block);
  target.shared_per_sm = std::min(target.shared_per_sm, planned.shared_per_sm);
  passes::PassContext context{target, options.part ? *options.part : ir::default_part(planned), diags, options.passes};
  context.options.most_stages = most_stages;
  passes::PassManager manager(passes_of(options));
  passes::PassManager::Outcome outcome = manager.run(*f, context);
  for (const auto &t : manager.timings()) phases.push_back({std::string("pass ") + t.name, t.pass_ms + t.check_ms});
  using Outcome = passes::PassManager::Outcome;
  TKC_CHECK(outcome != Outcome::broken, "{}", manager.problem());
  if (outcome != Outcome::ok || diags.has_errors()) return nullptr;
  if (options.after_passes) options.after_passes();
  return f;
}

static std::unique_ptr<ir::Function> lower(const MakeTyped &make, const CompileOptions &options, Diagnostics &diags,
                                           std::vector<Phase> &phases) {
  // What cannot be proven is the schedule's fault, not the user's: it gets fewer slots, then none.
  for (int64_t most_stages : {passes::PassOptions::kManyStages, int64_t(2)}) {
    Diagnostics attempt(diags.sources());
    auto f = lower_once(make, options, std::min(most_stages, options.passes.most_stages), attempt, phases);
    auto is_unproven = [](const Diagnostic &d) { return d.kind == DiagKind::unproven_protocol; };
    if (!std::any_of(attempt.all().begin(), attempt.all().end(), is_unproven)) {
      for (const Diagnostic &d : attempt.all()) diags.add(d);
      return diags.has_errors() ? nullptr : std::move(f);
    }
  }
  return lower_once(make, options, 0, diags, phases);
}

std::unique_ptr<ir::Function> lower_kernel(sema::Program &program, const ast::Function &kernel,
                                           const sema::InstanceSpec &spec, const CompileOptions &options,
                                           Diagnostics &diags, std::vector<Phase> &phases) {
  auto make = [&](Diagnostics &d) { return sema::instantiate(program, kernel, spec, options.target, d); };
  return lower(make, options, diags, phases);
}

std::unique_ptr<ir::Function> lower_typed(const ir::Function &typed, const CompileOptions &options, Diagnostics &diags,
                                          std::vector<Phase> &phases) {
  return lower([&](Diagnostics &) { return ir::clone(typed); }, options, diags, phases);
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
