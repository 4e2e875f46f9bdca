// Bytes as a .npy file.
#include "runtime/npy.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::span<const uint8_t> file(data, size);
  // A header may promise a tensor that no memory holds: only what the file has is read.
  if (tkc::parse_npy_header(file, "fuzz.npy")) (void)tkc::parse_npy(file, "fuzz.npy");
  (void)tkc::parse_npy(file, "fuzz.npy", tkc::DType::BF16);
  return 0;
}
