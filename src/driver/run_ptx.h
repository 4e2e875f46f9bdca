// `tkc run x.ptx`: one launch of a kernel of any PTX file in the emulator, with arguments from the command line.
#pragma once
#include "emu/emu.h"
#include "runtime/tensor_file.h"

namespace tkc::driver {

// One kernel parameter, in the order of the signature:
//   i32:42 f32:0.5 bf16:1   a scalar of that dtype (bool, the integers, f16, bf16, f32, f64)
//   in:a.npy                a pointer to the contents of a tensor file, which the kernel may not write
//   inout:a.npy,b.npy       a pointer to the contents of a.npy; what the kernel leaves there is written to b.npy
//   out:f32[64,32],c.npy    a pointer to memory for such a tensor, at first a pattern; written to c.npy
//   null                    a null pointer
// Files are .npy or .safetensors:TENSOR; before a .npy file of raw elements stands their dtype, as in in:bf16:a.npy.
struct PtxArgument {
  enum class Kind : uint8_t { Scalar, In, InOut, Out, Null } kind = Kind::Scalar;
  DType dtype = DType::I32; // of a scalar or an output
  uint64_t bits = 0;        // of a scalar
  std::optional<DType> wanted;
  std::optional<TensorPath> from, to;
  std::vector<int64_t> shape; // of an output
};
Result<PtxArgument> parse_ptx_argument(std::string_view text);

struct PtxRequest {
  std::string kernel; // "": the only one
  std::vector<PtxArgument> arguments;
  emu::Launch launch; // but for the parameters
  emu::Options options;
  double limit_seconds = 0; // 0: none
};
struct PtxResult {
  std::string kernel, printed;
  int64_t instructions = 0; // of warps
  std::vector<OutputFile> files;
};
// The error of a failed run has all that the emulator reports.
Result<PtxResult> run_ptx(std::string ptx, const PtxRequest &request);

} // namespace tkc::driver
