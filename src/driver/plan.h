// A program with numbers: which kernels are launched, in which order, on which memory. One value from which the
// interpreter, the emulator and the GPU run, and which is printed.
#pragma once
#include "driver/execute.h"
#include "sema/host_program.h"

namespace tkc::driver {

// What the host `if`s of a program may ask about the device.
struct DeviceFacts {
  int64_t sms = 0, l2_bytes = 0, smem = 0, arch = 0; // smem: bytes of shared memory that a block may have; arch: 120
  static DeviceFacts of(const DeviceInfo &gpu);
  static DeviceFacts of(const ir::Target &target); // its default part
  int64_t *find(std::string_view name);            // null if there is none
};

// Part of a tensor: a box of a parameter of the program or of a temporary.
struct PlanMemory {
  bool temporary = false;
  size_t index = 0; // of the header's parameters, or of Plan::temporaries
  struct Span {
    int64_t lo = 0, extent = 0;
    bool kept = true; // else one position, whose dim goes away
  };
  std::vector<Span> box; // empty for what is no tensor
  bool whole = true;     // the box is the tensor
};

// Temporaries whose lives do not overlap share bytes of the workspace.
struct PlanTemporary {
  std::string name;
  DType dtype = DType::F32;
  std::vector<int64_t> shape;
  int64_t bytes = 0, offset = 0; // in the workspace; a multiple of kWorkspaceAlign
  int64_t first = -1, last = -1; // the steps that use it
};
inline constexpr int64_t kWorkspaceAlign = 256;

struct PlanLaunch {
  size_t kernel = 0; // index of HostProgram::kernels
  std::vector<int64_t> grid;
  LaunchData data;                // shapes, strides and offsets of the tensors, without contents
  std::vector<PlanMemory> memory; // by parameter
  int64_t step = 0;               // launches of one step, those of a `parallel` block, may run at the same time
  SourceLoc loc;
  int64_t blocks() const;
};

struct Plan {
  const sema::HostProgram *program = nullptr;
  std::vector<PlanTemporary> temporaries;
  std::vector<PlanLaunch> launches; // in order; those without blocks are left out
  int64_t workspace_bytes = 0;
  int64_t steps = 0;
  std::string to_string() const;
};

// `data`: sizes, scalars, and shapes (and strides) of the program's parameters. Messages name what does not fit at
// which launch: sizes that disagree, parts outside a tensor, memory that is read and was not written, launches of a
// `parallel` block that depend on each other. The program must outlive the plan.
Result<Plan> make_plan(const sema::HostProgram &program, const LaunchData &data, const DeviceFacts &device,
                       const SourceManager &sources);

} // namespace tkc::driver
