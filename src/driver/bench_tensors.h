// The tensors of a benchmark: one set a group, on the device.
#pragma once
#include "driver/bench.h"

namespace tkc::driver {

// Shapes without contents: the bytes live on the device.
Result<LaunchData> shapes_of(const ir::Function &f, const sema::CaseSpec &c);
int64_t bytes_of(const HostTensor &t);
// Name, mode, dtype and shape of each tensor: equal signatures get equal contents.
std::vector<std::string> signature_of(const ir::Function &f, const LaunchData &data);
Result<std::shared_ptr<BenchTensors>> make_tensors(const ir::Function &f, const LaunchData &data, int64_t groups,
                                                   Device &device);

} // namespace tkc::driver
