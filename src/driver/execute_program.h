// Running a plan: on the interpreter, on the emulator, and (program_gpu.h) on the GPU.
#pragma once
#include "driver/plan.h"

namespace tkc::driver {

// The kernels of a program in one module, by index of HostProgram::kernels. Those that are not wanted are null.
struct CompiledProgram {
  std::vector<std::unique_ptr<ir::Function>> functions;
  codegen::EmitResult code;
  std::vector<size_t> first_abi; // of the aligned entry in code.abis; the other one follows
  std::vector<Phase> phases;
  const codegen::KernelAbi &abi(const PlanLaunch &l) const;
};
// `wanted`: null for all kernels. Null after an error, which is in `diags`.
std::unique_ptr<CompiledProgram> compile_program(sema::Program &program, const sema::HostProgram &host,
                                                 const CompileOptions &options, Diagnostics &diags,
                                                 const std::set<size_t> *wanted = nullptr);
std::set<size_t> kernels_of(const Plan &plan);

// Names of entries in a module of several programs and kernels: kernels of two files may have one name.
class KernelNames {
public:
  std::string unique(std::string name, const ast::Function *kernel) {
    while (taken_.emplace(name, kernel).first->second != kernel) name += "_";
    return name;
  }

private:
  std::map<std::string, const ast::Function *> taken_;
};

// Each runs all launches and replaces the tensors of `data` that the program may write. Temporaries begin as poison and
// become it again when their bytes of the workspace get another owner, so that a read of what no launch wrote is seen:
// as a value in the interpreter, as an error in the emulator. Messages name the launch.
Status run_interp(const Plan &plan, LaunchData &data, const SourceManager &sources, std::string &printed);
Status run_emu(const Plan &plan, const CompiledProgram &compiled, LaunchData &data, const emu::Options &options,
               std::string &printed);

// What a launch is called in messages: "launch 2 (softmax__N_64)".
std::string launch_name(const Plan &plan, size_t launch);
// Temporaries whose bytes get a new owner at launch `l` (which is the first that uses it): those that must not be read
// any more.
std::vector<size_t> ended_by(const Plan &plan, size_t launch);

} // namespace tkc::driver
