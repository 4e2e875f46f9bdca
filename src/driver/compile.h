// From a kernel of a program to PTX: one call per stage.
#pragma once
#include "codegen/emit_ptx.h"
#include "passes/pass_manager.h"
#include "sema/instance.h"
#include "support/diag_kinds.h"

namespace tkc::driver {

struct CompileOptions {
  const ir::Target *target = nullptr; // required
  const ir::Part *part = nullptr;     // null: the target's default part
  passes::PassOptions passes;
  int64_t max_registers = 0;
  bool keep_llvm = false, debug_lines = true;
};

struct Phase {
  std::string name;
  double milliseconds = 0;
};

struct CompiledKernel {
  std::unique_ptr<ir::Function> function; // laid out and allocated
  codegen::EmitResult code;               // entries NAME and NAME__any
  std::vector<Phase> phases;
};

// Null after an error, which is in `diags`. A fault of tkc ends the process.
std::unique_ptr<CompiledKernel> compile_kernel(sema::Program &program, const ast::Function &kernel,
                                               const sema::InstanceSpec &spec, const CompileOptions &options,
                                               Diagnostics &diags);

} // namespace tkc::driver
