// Bytes as a .safetensors file.
#include "runtime/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  auto file = tkc::Safetensors::parse({data, size}, "fuzz.safetensors");
  if (!file) return 0;
  for (const auto &entry : file->entries()) {
    (void)file->header(entry.name);
    (void)file->get(entry.name);
  }
  return 0;
}
