// The data of one case of a verify or bench block: sizes, scalars, shapes, strides, and what the tensors hold.
#pragma once
#include "driver/execute.h"
#include "sema/instance.h"

namespace tkc::driver {

// Everything numeric that a case's expressions may use: its settings and the instance's compile-time integers and
// bools.
sema::Numbers numbers_of(const ir::Function &f, const sema::CaseSpec &c);
// The run-time sizes of the instance from the case; a missing one is an error.
Status bind_sizes(const ir::Function &f, const sema::CaseSpec &c, LaunchData &data);

// What a reference may name besides numbers and tensors: compile-time types and enum values.
std::vector<sema::HostArg> words_of(const ir::Function &f);
// Adds a tensor that references may read, and its values; nothing for scalars and outputs.
void add_host_argument(const ir::Param &p, const HostTensor &t, std::vector<sema::HostArg> &args,
                       std::vector<interp::Value> &values);
// Calls a function of the block; its generators are seeded by their order. `launch` may have callbacks.
Result<std::vector<interp::Value>> call_host(const sema::HostFunction &h, std::vector<interp::Value> args,
                                             uint64_t seed, const SourceManager &sources, interp::Launch launch = {});

// Where contents come from that the block says nothing about.
struct DataRules {
  uint64_t seed = 1;
  // Of a benchmark (runtime/bench.h): seeds and contents by the convention, outputs without contents.
  std::optional<int64_t> group;
};
using GivenTensors = std::map<std::string, HostTensor>;
// Inputs are those that are `given`, by the block's expressions, or else normal(0, 1), small integers and fair coins;
// outputs are poisoned. `function` is any instance of the kernel for the case. An error of the block is in `diags`.
Result<LaunchData> make_data(sema::Program &program, const ast::Check *check, const ir::Function &function,
                             const sema::CaseSpec &c, const DataRules &rules, Diagnostics &diags,
                             const GivenTensors &given = {});
// The same without contents: the bytes of no tensor are there.
Result<LaunchData> make_shapes(sema::Program &program, const ast::Check *check, const ir::Function &function,
                               const sema::CaseSpec &c, const DataRules &rules, Diagnostics &diags);
// Whether an `input` of the block makes the contents of a tensor.
bool makes_contents(const ast::Check &check, const ir::Function &function);

} // namespace tkc::driver
