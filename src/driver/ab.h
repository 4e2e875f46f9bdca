// `tkc ab`: two variants of a kernel, verified and then timed in turn, so that a difference can be believed.
#pragma once
#include "driver/bench.h"
#include "runtime/statistics.h"

namespace tkc::driver {

// "BM=64 --maxnreg 128 --stages 2 --schedule s.txt": compile-time parameters and options of one side.
struct Variant {
  std::string text;
  Setting params;
  int64_t max_registers = 0;
  bool unfused = false; // --baseline unfused; as a graph
  int64_t stages = 0;   // slots of a ring at most; 0: as the scheduler chooses
  std::string schedule; // a file; who has the sources of the side reads it
};
Result<Variant> parse_variant(std::string_view text);

struct AbSide {
  sema::Program *program = nullptr;
  const ast::Function *kernel = nullptr;
  Variant variant;
  std::shared_ptr<const passes::Schedule> schedule; // forced
  Diagnostics *diags = nullptr;                     // of the program's sources
};

struct AbOptions {
  VerifyOptions base; // device, target, seed, limits; only_case chooses the case that is timed
  int64_t rounds = 20;
  uint64_t order_seed = 1; // of the order within a round
  BenchOptions convention;
  std::function<bool(const std::string &what, int64_t done, int64_t rounds)> progress; // false: stop with what there is
  std::function<void(char side, const CaseResult &)> verified;
};

struct AbCase {
  std::string name; // of the bench case
  bool shared_tensors = false;
  int64_t compared_groups = 0;                                      // those that both sides have
  std::vector<std::pair<std::string, uint64_t>> inputs_a, inputs_b; // checksums over them
  AbSamples samples;
  AbResult result;
  Json to_json() const;
};

struct AbReport {
  bool mismatch = false; // a side does not compute what its reference says: nothing was timed
  bool stopped = false;  // by Ctrl-C, with some rounds measured
  std::vector<AbCase> cases;
};
// The error "the kernel has errors" means the diagnostics of a side.
Result<AbReport> compare_sides(const AbSide &a, const AbSide &b, const AbOptions &options);

} // namespace tkc::driver
