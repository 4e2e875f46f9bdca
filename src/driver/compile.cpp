#include "driver/compile.h"
#include "passes/passes.h"
#include <chrono>

namespace tkc::driver {

namespace {
class Stopwatch {
public:
  explicit Stopwatch(std::vector<Phase> &out) : out_(out), last_(Clock::now()) {}
  void lap(std::string name) {
    auto now = Clock::now();
    out_.push_back({std::move(name), std::chrono::duration<double, std::milli>(now - last_).count()});
    last_ = now;
  }

private:
  using Clock = std::chrono::steady_clock;
  std::vector<Phase> &out_;
  Clock::time_point last_;
};
} // namespace

std::unique_ptr<CompiledKernel> compile_kernel(sema::Program &program, const ast::Function &kernel,
                                               const sema::InstanceSpec &spec, const CompileOptions &options,
                                               Diagnostics &diags) {
  auto out = std::make_unique<CompiledKernel>();
  Stopwatch watch(out->phases);
  out->function = sema::instantiate(program, kernel, spec, options.target, diags);
  watch.lap("sema");
  if (!out->function) return nullptr;
  ir::Function &f = *out->function;
  const ir::Part &part = options.part ? *options.part : ir::default_part(*options.target);
  passes::PassContext context{*options.target, part, diags, options.passes};
  passes::PassManager manager(passes::pipeline());
  passes::PassManager::Outcome outcome = manager.run(f, context);
  for (const auto &t : manager.timings())
    out->phases.push_back({std::string("pass ") + t.name, t.pass_ms + t.check_ms});
  TKC_CHECK(outcome != passes::PassManager::Outcome::broken, "{}", manager.problem());
  if (outcome == passes::PassManager::Outcome::rejected || diags.has_errors()) return nullptr;
  Stopwatch emitting(out->phases);
  std::vector<codegen::Entry> entries = {{&f, f.name, true}, {&f, f.name + "__any", false}};
  codegen::EmitOptions emit;
  emit.max_registers = options.max_registers;
  emit.keep_llvm = options.keep_llvm;
  if (options.debug_lines) emit.sources = &diags.sources();
  out->code = codegen::emit(entries, *options.target, emit);
  TKC_CHECK(out->code.ok, "kernel `{}`: {}", f.name, out->code.error);
  for (const auto &p : out->code.phases) out->phases.push_back({std::string("llvm ") + p.name, p.milliseconds});
  return out;
}

} // namespace tkc::driver
