// What a GPU can do at best, measured: bytes per second of a copy that is larger than the cache, and flops per second
// of bf16 products with f32 sums whose operands stay in registers. The floor of a kernel is what its bytes and flops
// need at these rates.
#pragma once
#include "driver/verify.h"
#include "runtime/bench.h"

namespace tkc::driver {

struct Ceilings {
  double bytes = 0, flops = 0; // per second
};
// Runs both probes by the convention; some seconds.
Result<Ceilings> measure_ceilings(const VerifyOptions &options, const BenchOptions &convention = {});
// By the GPU's uuid, from a file of an earlier run, else measured and written there. `folder` is "" for
// $XDG_CACHE_HOME/tkc or ~/.cache/tkc; where it cannot be written, every run measures.
Result<Ceilings> ceilings_of(const VerifyOptions &options, std::string folder = "",
                             const BenchOptions &convention = {});

} // namespace tkc::driver
