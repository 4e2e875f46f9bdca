// How long a kernel takes: an estimate from the cost model of the layout search and the figures of targets.def.
//
// A block alone on its SM executes its ops one after the other, each as long as its slowest resource (issue, tensor
// pipe, shared memory) or its latency: its warps are in phase, and none issues past an instruction that waits. An
// iteration of a loop takes at least what its carried chain does, and what brings an item takes over the slots that can
// be in flight; loads that no ring carries add the latency of memory. Of roles the slowest counts. The blocks that an
// SM holds overlap until one resource is used up. A kernel takes as long as its blocks in waves, but no less than its
// bytes out of memory (each byte of a tensor once), and than its products at the rate that the whole chip holds.
#pragma once
#include "driver/execute.h"
#include "passes/layout_choice.h"
#include "passes/schedule.h"
#include "runtime/occupancy.h"

namespace tkc::driver {

struct KernelInstance {
  const ast::Function *ast = nullptr;
  sema::InstanceSpec spec;
  std::string name;
};
// Kernels, and those that programs launch, in the variants that they launch.
std::vector<KernelInstance> instances_of(sema::Program &program, const std::vector<const ast::Function *> &entries,
                                         const sema::InstanceSpec &spec, const ir::Target *target, Diagnostics &diags);

// One execution of a block of ops by a thread block alone on its SM; cycles.
struct BodyEstimate {
  std::string role, loop; // "": there are none; the code outside of loops. `loop` as in LoopPlan::name()
  const ir::Block *body = nullptr;
  int64_t warps = 0; // that execute it
  passes::Work work;
  double in_order = 0;                      // with the barrier of a ring without a producer
  double memory = 0;                        // latencies of loads that no ring carries
  double copy_latency = 0, copy_cycles = 0; // of an item of its ring, and of its bytes
  double items = 0;     // by the slots of the ring: an item's latency and bytes over those that can be in flight
  bool planned = false; // the loop has loads of tiles, and a LoopPlan of this name
  double cycles() const;
  std::string bound() const; // which of these `cycles` is
  // A producer fills a slot as soon as its reader has left it; without one an iteration issues the copies of the item
  // that is stages - 1 ahead.
  double slot_limit(int64_t stages, bool producer) const;
};

// A kernel without sizes.
struct KernelModel {
  std::shared_ptr<ir::Function> typed; // as the layout search saw it; bodies point into it
  std::vector<BodyEstimate> bodies;
  const ir::Part *part = nullptr;
  const ir::Target *target = nullptr;
  int64_t warps = 0, shared_bytes = 0; // of a block, with those that passes add
};
// `compiled`: the same kernel after all passes. Nothing after an error, which is in `diags`.
std::optional<KernelModel> model_kernel(sema::Program &program, const KernelInstance &kernel,
                                        const ir::Function &compiled, const CompileOptions &options,
                                        Diagnostics &diags);

SmLimits sm_limits(const ir::Target &t);

struct TimeEstimate {
  double seconds = 0;
  std::string bound;
  int64_t blocks = 0, blocks_per_sm = 0;
  double trips = 0;         // of the loop that takes longest, on average over blocks
  double block_seconds = 0; // of one block among those of its SM, on average
  // Seconds that the kernel takes at least, by what limits it: "blocks" (in waves), "memory", "products".
  std::vector<std::pair<std::string, double>> limits;
};
// `data` has sizes, scalars and the shapes of the tensors; `registers`: of a thread.
TimeEstimate estimate_time(const KernelModel &model, const LaunchData &data, const std::vector<int64_t> &grid,
                           int64_t registers);

// A case of a bench block: its kernel, or each launch of its program.
struct LaunchEstimate {
  std::string entry;
  int64_t launches = 0, registers = 0;
  TimeEstimate each;
};
struct CaseEstimate {
  std::string name;                  // "gemm square"
  std::vector<LaunchEstimate> parts; // in order of first launch
  std::string problem;               // not empty: why there is none
  double seconds() const;            // of the launches one after the other
};
// Those of the bench blocks of these kernels and programs. `assembler`: registers as an assembler counts them, if there
// is one; else from the tiles that are alive at once.
std::vector<CaseEstimate> estimate_cases(sema::Program &program, const std::vector<const ast::Function *> &entries,
                                         const sema::InstanceSpec &overrides, const CompileOptions &options,
                                         bool assembler, Diagnostics &diags);
// What tiles that are alive at once need, and addresses, counters and temporaries besides.
int64_t estimated_registers(const ir::Function &compiled);

} // namespace tkc::driver
