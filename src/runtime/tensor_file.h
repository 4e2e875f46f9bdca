// A tensor that the command line names: `a.npy`, or `a.safetensors:q`, where the name may be left out if the file holds
// one tensor (an output then takes the name of the parameter).
#pragma once
#include "runtime/npy.h"
#include "runtime/safetensors.h"

namespace tkc {

struct TensorPath {
  std::string path, tensor;
  bool npy = true;
  std::string str() const { return tensor.empty() ? path : path + ":" + tensor; }
};
Result<TensorPath> parse_tensor_path(std::string_view text);

// An opened file: shape and, where the file says it, dtype are known before the data are asked for.
class TensorFile {
public:
  static Result<TensorFile> open(const TensorPath &path);
  const TensorPath &path() const { return path_; }
  const std::vector<int64_t> &shape() const { return header_.shape; }
  std::optional<DType> dtype() const { return header_.dtype; }
  // The dtype must be `wanted` where it is given (npy.h, safetensors.h).
  Result<HostTensor> read(std::optional<DType> wanted) const;

private:
  TensorPath path_;
  NpyHeader header_;
  std::vector<uint8_t> bytes_; // of a .npy file
  std::optional<Safetensors> safetensors_;
};

struct TensorOutput {
  TensorPath to;
  std::string name; // in .safetensors, unless `to` has one
  const HostTensor *tensor = nullptr;
};
// The bytes of the files; tensors that go to one .safetensors file are put together. Nothing is written.
Result<std::vector<OutputFile>> encode_tensors(const std::vector<TensorOutput> &outputs);

} // namespace tkc
