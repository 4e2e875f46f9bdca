// `--baseline unfused`: a program whose kernels are one launch per tensor op (passes/unfuse.h). It has the parameters
// of the original, so that everything that runs, verifies and times programs takes it.
#pragma once
#include "driver/compile.h"
#include "sema/host_program.h"

namespace tkc::driver {

// A kernel as a program of one launch. `function`: the typed kernel.
std::unique_ptr<sema::HostProgram> program_of(const ast::Function &kernel, const sema::InstanceSpec &spec,
                                              std::shared_ptr<ir::Function> function);
// Kernels that cannot be split stay as they are. `remarks`: what stayed together, and why. Launches of a `parallel`
// block follow one another.
std::unique_ptr<sema::HostProgram> unfused(const sema::HostProgram &host, const ir::Target &target, Diagnostics &diags,
                                           std::vector<std::string> &remarks);

} // namespace tkc::driver
