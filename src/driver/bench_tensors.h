// The tensors of a benchmark: one set a group, on the device.
#pragma once
#include "driver/bench.h"

namespace tkc::driver {

// What makes the tensors of a case: `data` has their shapes and strides, whose bytes live on the device alone.
struct BenchSource {
  sema::Program &program;
  const ast::Check &check;
  const ir::Function &f;
  const sema::CaseSpec &c;
  Diagnostics &diags;
  LaunchData data;
};
Result<LaunchData> bench_shapes(sema::Program &program, const ast::Check &check, const ir::Function &f,
                                const sema::CaseSpec &c, Diagnostics &diags);
int64_t memory_bytes(const LaunchData &data, size_t tensor);
// Name, mode, dtype, shape and strides of each tensor, and what the block says of inputs: equal signatures get equal
// contents.
std::vector<std::string> signature_of(const BenchSource &s);
// The contents of one group, on the host: inputs alone.
Result<LaunchData> bench_contents(const BenchSource &s, int64_t group);
Result<std::shared_ptr<BenchTensors>> make_tensors(const BenchSource &s, int64_t groups, Device &device);

} // namespace tkc::driver
