// From kernels of a program to PTX: one call per stage.
#pragma once
#include "codegen/emit_ptx.h"
#include "passes/pass_manager.h"
#include "sema/instance.h"
#include "support/diag_kinds.h"

namespace tkc::driver {

struct CompileOptions {
  const ir::Target *target = nullptr; // required
  // Null: `target`. Another target whose part and shared memory the passes plan for, as if it had the code of `target`.
  const ir::Target *tune_for = nullptr;
  const ir::Part *part = nullptr; // null: the default part of the target that is planned for
  passes::PassOptions passes;
  std::string stop_after; // kAfterSema, or the pass behind which no other runs; "": all run
  int64_t max_registers = 0;
  bool keep_llvm = false, debug_lines = true;
  // For tests of the crash report: called when the passes of a kernel are done; LLVM meets a fatal error.
  std::function<void()> after_passes;
  bool fail_in_llvm = false;
};
inline constexpr const char *kAfterSema = "sema";
// What the passes plan for.
ir::Target planning_target(const CompileOptions &options);
const ir::Part &planning_part(const CompileOptions &options);
// What is wrong with the names of passes in these options; "" if nothing is.
std::string check_pass_options(const CompileOptions &options);

struct Phase {
  std::string name;
  double milliseconds = 0;
};

// Sema and passes: the laid-out and allocated function, or what `stop_after` left. Null after an error in `diags`.
// `name`: of the instance, "" for the kernel's own.
std::unique_ptr<ir::Function> lower_kernel(sema::Program &program, const ast::Function &kernel,
                                           const sema::InstanceSpec &spec, const CompileOptions &options,
                                           Diagnostics &diags, std::vector<Phase> &phases,
                                           const std::string &name = "");
// The same for a typed function that no source text has.
std::unique_ptr<ir::Function> lower_typed(const ir::Function &typed, const CompileOptions &options, Diagnostics &diags,
                                          std::vector<Phase> &phases, const std::string &name = "");
// Several at a time, each by a thread of its own; results, diagnostics and phases in the order of the jobs, whatever
// thread ends first. An error in one job leaves the others as they are.
struct LowerJob {
  const ast::Function *kernel = nullptr; // with `spec`; or, if null, `typed`
  const sema::InstanceSpec *spec = nullptr;
  const ir::Function *typed = nullptr;
  std::string name;     // of the instance, "" for the kernel's own
  std::string dump_dir; // instead of that of the options, if not empty
};
std::vector<std::unique_ptr<ir::Function>> lower_all(sema::Program &program, const std::vector<LowerJob> &jobs,
                                                     const CompileOptions &options, Diagnostics &diags,
                                                     std::vector<Phase> &phases);
// One PTX module with the entries NAME and NAME__any of every function, in that order. A fault of tkc ends the process.
codegen::EmitResult emit_module(const std::vector<const ir::Function *> &functions, const CompileOptions &options,
                                const SourceManager &sources, std::vector<Phase> &phases);

struct CompiledKernel {
  std::unique_ptr<ir::Function> function;
  codegen::EmitResult code;
  std::vector<Phase> phases;
};
// Both for one kernel. Null after an error, which is in `diags`.
std::unique_ptr<CompiledKernel> compile_kernel(sema::Program &program, const ast::Function &kernel,
                                               const sema::InstanceSpec &spec, const CompileOptions &options,
                                               Diagnostics &diags);

} // namespace tkc::driver
