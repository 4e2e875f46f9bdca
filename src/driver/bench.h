// `tkc bench`: one kernel by the benchmark convention (runtime/bench.h).
#pragma once
#include "driver/verify.h"

namespace tkc::driver {

struct BenchResult {
  std::string kernel, name;
  double seconds = 0; // of one call
  int64_t groups = 0;
  std::map<std::string, double> counts; // bytes, flops of the block
  int64_t registers = 0, local_bytes = 0, blocks_per_sm = 0;
  std::string entry;
  std::string error;
};
std::vector<BenchResult> bench_kernel(sema::Program &program, const ast::Function &kernel, const ast::Check &check,
                                      const VerifyOptions &options, Diagnostics &diags);

} // namespace tkc::driver
