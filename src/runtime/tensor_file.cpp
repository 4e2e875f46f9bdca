#include "runtime/tensor_file.h"
#include <algorithm>

namespace tkc {

Result<TensorPath> parse_tensor_path(std::string_view text) {
  constexpr std::string_view kSafetensors = ".safetensors";
  TensorPath out;
  if (text.ends_with(".npy")) {
    out.path = text;
    return out;
  }
  out.npy = false;
  if (text.ends_with(kSafetensors)) {
    out.path = text;
    return out;
  }
  size_t at = text.rfind(".safetensors:");
  if (at == text.npos)
    return failure("`{}` names no tensor file: it must end with .npy, .safetensors or .safetensors:TENSOR", text);
  out.path = text.substr(0, at + kSafetensors.size());
  out.tensor = text.substr(at + kSafetensors.size() + 1);
  return out;
}

Result<TensorFile> TensorFile::open(const TensorPath &path) {
  TensorFile out;
  out.path_ = path;
  if (path.npy) {
    Result<std::vector<uint8_t>> bytes = read_file(path.path);
    if (!bytes) return bytes.failed();
    out.bytes_ = std::move(*bytes);
    Result<NpyHeader> header = parse_npy_header(out.bytes_, path.path);
    if (!header) return header.failed();
    out.header_ = std::move(*header);
    return out;
  }
  Result<Safetensors> file = Safetensors::open(path.path);
  if (!file) return file.failed();
  Result<NpyHeader> header = file->header(path.tensor);
  if (!header) return header.failed();
  out.header_ = std::move(*header);
  out.safetensors_ = std::move(*file);
  return out;
}

Result<HostTensor> TensorFile::read(std::optional<DType> wanted) const {
  return path_.npy ? parse_npy(bytes_, path_.path, wanted) : safetensors_->get(path_.tensor, wanted);
}

Result<std::vector<OutputFile>> encode_tensors(const std::vector<TensorOutput> &outputs) {
  std::vector<OutputFile> files;
  std::vector<std::pair<std::string, NamedTensors>> together;
  for (const TensorOutput &o : outputs) {
    if (o.to.npy) {
      bool taken = std::any_of(files.begin(), files.end(), [&](const OutputFile &f) { return f.path == o.to.path; });
      if (taken) return failure("two outputs go to `{}`, which holds one array", o.to.path);
      Result<std::vector<uint8_t>> bytes = encode_npy(*o.tensor);
      if (!bytes) return failure("`{}`: {}", o.to.path, bytes.error());
      files.push_back({o.to.path, std::move(*bytes)});
      continue;
    }
    auto it = std::find_if(together.begin(), together.end(), [&](const auto &f) { return f.first == o.to.path; });
    if (it == together.end()) it = together.insert(together.end(), {o.to.path, {}});
    it->second.emplace_back(o.to.tensor.empty() ? o.name : o.to.tensor, *o.tensor);
  }
  for (const auto &[path, tensors] : together) {
    Result<std::vector<uint8_t>> bytes = encode_safetensors(tensors);
    if (!bytes) return failure("`{}`: {}", path, bytes.error());
    files.push_back({path, std::move(*bytes)});
  }
  return files;
}

} // namespace tkc
