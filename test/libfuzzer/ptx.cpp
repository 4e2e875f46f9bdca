// Text as PTX: the emulator's reader and decoder.
#include "emu/emu.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  (void)tkc::emu::parse_ptx(std::string(reinterpret_cast<const char *>(data), size));
  return 0;
}
