// Verification of a kernel or program against its reference, case by case.
#pragma once
#include "driver/case_data.h"
#include "driver/check_gradient.h"
#include "driver/instance.h"
#include "runtime/compare.h"

namespace tkc::driver {

struct VerifyOptions {
  Executor executor = Executor::Interp;
  CompileOptions compile;
  sema::InstanceSpec overrides; // -P
  std::string only_case;        // "": all
  uint64_t seed = 1;
  emu::Options emu;
  int64_t emu_schedules = 1;             // see emu::nth_schedule
  std::optional<emu::Policy> emu_policy; // nothing: all of them
  bool check_gradient = false;           // of the references, against central differences
  Device *device = nullptr;              // Gpu
  double limit_seconds = 0;              // of the kernel of one case; 0: kGpuLimit on the GPU, none elsewhere
  double gpu_limit() const { return limit_seconds > 0 ? limit_seconds : kGpuLimit; }
  static constexpr double kGpuLimit = 60;
  std::function<void(const std::string &what)> progress; // called before each case
  // Of programs:
  std::map<std::string, int64_t> assume; // properties of the device that replace its own
  bool graph = false;                    // on the GPU: capture the launches and run the graph
  bool show_plan = false;                // the plan is printed
  bool unfused = false;                  // a launch per tensor op: driver/unfuse_program.h; of kernels as well
  DeviceFacts device_facts() const;
};

struct CaseResult {
  std::string kernel, name;
  bool skipped = false; // on gpu only
  std::string error;    // of the run; "" if it ran
  ErrorKind error_kind = ErrorKind::Failure;
  std::vector<std::pair<std::string, Comparison>> outputs;
  std::vector<GradientCheck> gradients;
  std::string printed;
  double seconds = 0;
  bool pass() const;
};

// Runs a kernel or program on the executor of the options, compiled as `spec` says where it must be and `code` does not
// have it yet.
Status run_on(sema::Program &program, const Instance &instance, const sema::InstanceSpec &spec,
              const VerifyOptions &options, Diagnostics &diags, LaunchData &data, std::string &printed,
              std::vector<LaunchData> &results, InstanceCode &code);
// The limits for an output: those of the block (which may be null), else what rounding to the dtype leaves.
Tolerance tolerance_of(const ast::Check *check, const std::string &output, DType t, Diagnostics &diags);

// The names of a tensor's dims in the declaration of a kernel or program, "" where an extent is no name.
std::vector<std::string> dim_names(const ast::Function &kernel, const std::string &tensor);

// Calls `done` with every result as it comes. Ends after errors in the file, which are in `diags`, after a timeout and
// after an interruption.
void verify_kernel(sema::Program &program, const ast::Function &kernel, const ast::Check &check,
                   const VerifyOptions &options, Diagnostics &diags,
                   const std::function<void(const CaseResult &)> &done);

} // namespace tkc::driver
