// `tkc run`: one launch of a kernel or run of a program on tensors from files.
#pragma once
#include "driver/verify.h"
#include "runtime/tensor_file.h"

namespace tkc::driver {

// Parameters by name.
struct RunRequest {
  std::map<std::string, TensorPath> inputs, outputs, expected;
  std::map<std::string, std::string> sizes;   // run-time sizes, or compile-time parameters
  std::map<std::string, std::string> scalars; // numbers, true, false
};

struct RunResult {
  Instance instance;
  LaunchData data;
  std::string printed;
  std::vector<std::pair<std::string, Comparison>> compared; // with the expected tensors
  std::vector<OutputFile> files;                            // not yet written
};

// Sizes, compile-time parameters that are extents, and element types that are parameters come from the shapes of the
// given files; an optional tensor that no file is given for is absent. Inputs without a file are generated as verify
// generates them. Errors of the kernel's source are in `diags`, all others in the result.
Result<RunResult> run_kernel(sema::Program &program, const ast::Function &kernel, const RunRequest &request,
                             const VerifyOptions &options, Diagnostics &diags);

} // namespace tkc::driver
