// .safetensors files: an 8-byte length, a JSON header, and the data of named tensors without gaps.
//
//   F64 F32 F16 BF16 I64..I8 U64..U8 BOOL by the names of the format; e4m3 F8_E4M3, e5m2 F8_E5M2, ue8m0 F8_E8M0, e2m1
//   F4.
// tf32 is stored as F32 and ue4m3 as F8_E4M3; both are read where the caller asks for them.
#pragma once
#include "runtime/file_io.h"
#include "runtime/npy.h"

namespace tkc {

// An opened file: its header is read and checked at once (malformed JSON, unknown dtypes of a wanted tensor, odd
// offsets, overlaps, gaps, truncation); the data of a tensor are read by get().
class Safetensors {
public:
  struct Entry {
    std::string name;
    std::string dtype; // as the file spells it
    std::vector<int64_t> shape;
    int64_t begin = 0, end = 0; // bytes, counted from the end of the header
  };

  static Result<Safetensors> open(const std::string &path);
  // A file in memory, which must outlive the object; `name` is for messages.
  static Result<Safetensors> parse(std::span<const uint8_t> file, std::string_view name);

  const std::vector<Entry> &entries() const { return entries_; } // by position in the file
  // Shape and dtype (none where tkc does not know it). An empty name takes the only tensor; a missing one lists those
  // there.
  Result<NpyHeader> header(std::string_view name) const;
  // `wanted`: the dtype that the tensor must have.
  Result<HostTensor> get(std::string_view name, std::optional<DType> wanted = {}) const;

private:
  Status read_header(std::string_view json, int64_t data_bytes);
  Result<const Entry *> find(std::string_view name) const;
  Status read_data(int64_t offset, std::span<uint8_t> out) const;
  std::string name_;
  std::vector<Entry> entries_;
  int64_t data_begin_ = 0;
  std::span<const uint8_t> memory_;
  std::optional<FileReader> file_;
};

Result<HostTensor> read_safetensors(const std::string &path, std::string_view name, std::optional<DType> wanted = {});

using NamedTensors = std::vector<std::pair<std::string, HostTensor>>;
Result<std::vector<uint8_t>> encode_safetensors(const NamedTensors &tensors);
Status write_safetensors(const std::string &path, const NamedTensors &tensors);

} // namespace tkc
