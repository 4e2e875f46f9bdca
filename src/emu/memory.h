// Device memory of the emulator: allocations in a 64-bit virtual address space, with exact bounds and unmapped gaps
// between them, so that an access one byte past an allocation is found.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tkc::emu {

// The generic addresses of the other spaces. Global and constant memory lie below all of them.
constexpr uint64_t kSharedWindow = uint64_t(1) << 48; // + the CTA's shared address
constexpr uint64_t kLocalWindow = uint64_t(2) << 48;  // + the thread's local address
constexpr uint64_t kParamWindow = uint64_t(3) << 48;  // + the offset among the kernel parameters
constexpr uint64_t kWindowBytes = uint64_t(1) << 32;

struct Allocation {
  uint64_t address = 0;
  int64_t bytes = 0;
  std::string name;
  bool readonly = false; // the device may not write it
  bool constant = false; // .const: the only memory that ld.const reaches
  uint8_t *host = nullptr;
  // One byte a byte, 0 = never written; empty if the allocation is not tracked.
  std::vector<uint8_t> written;

private:
  friend class Memory;
  std::unique_ptr<uint8_t[]> storage;
};

class Memory {
public:
  struct Attributes {
    bool readonly = false;
    bool constant = false;
    bool track_uninitialised = false; // device reads of bytes never written are errors; host writes need mark_written
    // Exact alignment of the address, a power of two: with 2 the address is a multiple of 2 and not of 4, so that code
    // that assumes more is found. 256 is what cudaMalloc gives (and may be exceeded).
    int64_t alignment = 256;
  };
  // Returns the device address. A zero-size allocation has an address but no byte may be accessed.
  uint64_t allocate(int64_t bytes, std::string name, Attributes attributes);
  uint64_t allocate(int64_t bytes, std::string name) { return allocate(bytes, std::move(name), Attributes()); }
  void release(uint64_t address);

  // The host bytes of an allocation, by any device address inside it; null if there is none. Stable until release.
  uint8_t *host(uint64_t address) const;
  // The allocation that holds the address, or null.
  Allocation *find(uint64_t address) const;
  void mark_written(uint64_t address, int64_t bytes);
  // "x + 12 (of 64 bytes)", "4 bytes past the end of x (64 bytes)": for messages.
  std::string describe(uint64_t address) const;

  // The .global and .const variables of a module, allocated at its first launch: variable name -> address.
  using Symbols = std::map<std::string, uint64_t, std::less<>>;
  Symbols *symbols(uint64_t module_id);

private:
  uint64_t next_ = uint64_t(0x70) << 32;          // beyond 32 bits: truncated addresses are found
  std::vector<std::unique_ptr<Allocation>> list_; // by address
  std::map<uint64_t, Symbols> symbols_;
};

} // namespace tkc::emu
