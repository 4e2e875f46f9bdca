// What run, verify, bench and A/B work on: a kernel or a program with its compile-time parameters bound.
#pragma once
#include "driver/execute_program.h"

namespace tkc::driver {

struct Instance {
  const ast::Function *ast = nullptr;
  std::shared_ptr<ir::Function> function;     // the typed kernel, or the head of the program
  std::unique_ptr<sema::HostProgram> program; // null: a kernel
  std::vector<std::string> remarks;           // of the unfused form
};
// What has been compiled of an instance so far.
struct InstanceCode {
  std::unique_ptr<CompiledKernel> kernel;
  std::map<std::set<size_t>, std::unique_ptr<CompiledProgram>> programs; // by the kernels that a plan launches
};
// Nothing after an error, which is in `diags`.
std::optional<Instance> make_instance(sema::Program &program, const ast::Function &ast, const sema::InstanceSpec &spec,
                                      const ir::Target *target, Diagnostics &diags);
// The same as a program with one launch per tensor op (driver/unfuse_program.h).
std::optional<Instance> make_unfused(sema::Program &program, const ast::Function &ast, const sema::InstanceSpec &spec,
                                     const ir::Target &target, Diagnostics &diags);
// PTX of a kernel, or of every kernel that a program can launch. Nothing after an error, which is in `diags`.
std::optional<codegen::EmitResult> compile_entry(sema::Program &program, const ast::Function &ast,
                                                 const sema::InstanceSpec &spec, const CompileOptions &options,
                                                 Diagnostics &diags);

} // namespace tkc::driver
