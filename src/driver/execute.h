// One launch of a kernel on some executor, with tensors in host memory: what run and verify are made of.
#pragma once
#include "driver/compile.h"
#include "driver/strided.h"
#include "emu/emu.h"
#include "interp/interp.h"
#include "runtime/device.h"
#include "runtime/host_tensor.h"
#include "runtime/tensor_map.h"

namespace tkc::driver {

enum class Executor : uint8_t { Interp, Emu, Gpu };
std::string_view executor_name(Executor e);

// Run-time sizes and scalars by name, tensors in the order of ir::Function::params (absent ones empty).
struct LaunchData {
  std::map<std::string, int64_t> sizes;
  std::map<std::string, double> scalars;
  std::vector<HostTensor> tensors;
  // By tensor, in elements, where tensors do not lie densely or a launch takes parts of larger ones; empty: dense, from
  // the first element on. Contents are row-major all the same.
  std::vector<std::vector<int64_t>> strides;
  std::vector<int64_t> offsets;
};
std::vector<int64_t> strides_of(const LaunchData &data, size_t tensor);
bool is_dense(const LaunchData &data, size_t tensor);
ir::SizeExpr::Lookup lookup(const LaunchData &data); // sizes and integer scalars
// The bytes of a tensor in memory, with poison between elements that lie apart; `room` holds them where they are not
// the tensor itself.
const HostTensor &in_memory(const LaunchData &data, size_t tensor, HostTensor &room);
// What a launch left of them. An error if it wrote between the elements; the tensor is replaced if `param` may be
// written.
Status take_back(HostTensor memory, const ir::Param &param, LaunchData &data, size_t tensor);

// Extents of a parameter, or a message.
Result<std::vector<int64_t>> extents(const ir::Function &f, const ir::Param &p, const LaunchData &data);
// The grid; checks the `where` facts and the ranges of the sizes.
Result<std::vector<int64_t>> launch_grid(const ir::Function &f, const LaunchData &data, const SourceManager &sources);
// Blocks of a launch with this many tiles (or, without persistence, blocks) on a device.
Result<int64_t> launch_blocks(const codegen::KernelAbi &abi, const std::vector<int64_t> &grid, const Kernel &entry);
int64_t launch_blocks(const codegen::KernelAbi &abi, const std::vector<int64_t> &grid, const emu::Options &options);
// Whether the entry that assumes 16-byte aligned pitches may be used. The memory of tensors is aligned: we allocate it.
bool may_use_aligned(const ir::Function &f, const LaunchData &data);
// Makes the bytes of a tensor map, as the executor wants them.
using TensorMapImage = std::array<uint8_t, codegen::kTensorMapBytes>;
using EncodeTensorMap = std::function<Result<TensorMapImage>(const TensorMapSpec &)>;
Result<TensorMapImage> encode_for_emulator(const TensorMapSpec &spec);
EncodeTensorMap encode_for(const Device &device); // by the driver
// The kernel parameters in the order of the ABI; `address` gives a tensor's first element by its parameter index. A
// launch that is queued many times keeps them, its tensor maps included (PreparedLaunch).
struct Blob {
  std::vector<uint8_t> bytes;
  std::vector<int64_t> offsets;
};
Result<Blob> parameter_blob(const ir::Function &f, const codegen::KernelAbi &abi, const LaunchData &data,
                            const std::function<uint64_t(size_t)> &address, const EncodeTensorMap &encode);

// The wide form of a tensor's memory for the interpreter, and back; `data` has what it was made from.
void to_storage(const HostTensor &t, interp::Storage &s);
HostTensor from_storage(const interp::Storage &s, const LaunchData &data, size_t tensor);
// A scalar parameter as the interpreter takes it; 0 if it has no value.
interp::Tile scalar_tile(const ir::Param &p, const LaunchData &data);

// Each runs the kernel and replaces the tensors that it writes. Messages name what went wrong (trap, emulator errors
// with PTX and source lines, guard bands, driver faults).
Status run_interp(const ir::Function &typed, LaunchData &data, const SourceManager &sources, std::string &printed);
Status run_emu(const CompiledKernel &kernel, LaunchData &data, const SourceManager &sources,
               const emu::Options &options, std::string &printed);
// The first error of a run that has one; of kind Timeout if it used up its instructions.
Error emulator_failure(const emu::Report &report);
Status run_gpu(Device &device, const CompiledKernel &kernel, LaunchData &data, const SourceManager &sources,
               double limit_seconds);

// An error if something wrote beside the buffer of this name.
Status check_guards(const Buffer &buffer, const std::string &name);
// After a run: checks a parameter's buffer, and takes over what was written to it.
Status give_back(const Buffer &buffer, const ir::Param &param, LaunchData &data, size_t tensor);
// The memory of a parameter on the emulator. Reading between the elements is an error there, and with
// `outputs_unwritten` so is reading an output before it is written.
uint64_t allocate(emu::Memory &memory, const ir::Param &param, const LaunchData &data, size_t tensor,
                  bool outputs_unwritten);
Status give_back(const emu::Memory &memory, uint64_t address, const ir::Param &param, LaunchData &data, size_t tensor);

} // namespace tkc::driver
