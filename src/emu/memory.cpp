#include "emu/memory.h"
#include "support/check.h"
#include <algorithm>
#include <bit>

namespace tkc::emu {

uint64_t Memory::allocate(int64_t bytes, std::string name, Attributes attributes) {
  TKC_CHECK(bytes >= 0, "allocation of {} bytes", bytes);
  TKC_CHECK(std::has_single_bit(uint64_t(attributes.alignment)), "alignment {} is not a power of two",
            attributes.alignment);
  constexpr uint64_t kGap = 1 << 16;
  auto a = std::make_unique<Allocation>();
  uint64_t unit = std::max<uint64_t>(1024, uint64_t(attributes.alignment) * 2);
  a->address = (next_ + unit - 1) / unit * unit;
  if (attributes.alignment < 256) a->address += uint64_t(attributes.alignment);
  a->bytes = bytes;
  a->name = std::move(name);
  a->readonly = attributes.readonly;
  a->constant = attributes.constant;
  // The host copy has the same address modulo 16, so that host atomics work wherever device ones may.
  a->storage = std::make_unique<uint8_t[]>(size_t(bytes) + 32);
  uint64_t start = (uint64_t(a->storage.get()) + 15) / 16 * 16 + a->address % 16;
  a->host = reinterpret_cast<uint8_t *>(start);
  if (attributes.track_uninitialised) a->written.resize(size_t(bytes));
  next_ = a->address + uint64_t(bytes) + kGap;
  list_.push_back(std::move(a));
  return list_.back()->address;
}

void Memory::release(uint64_t address) {
  auto at = std::find_if(list_.begin(), list_.end(), [&](const auto &a) { return a->address == address; });
  TKC_CHECK(at != list_.end(), "release of {:#x}, which is no allocation", address);
  list_.erase(at);
}

Allocation *Memory::find(uint64_t address) const {
  auto after = std::upper_bound(list_.begin(), list_.end(), address,
                                [](uint64_t x, const std::unique_ptr<Allocation> &a) { return x < a->address; });
  if (after == list_.begin()) return nullptr;
  Allocation *a = std::prev(after)->get();
  return address - a->address < uint64_t(a->bytes) ? a : nullptr;
}

uint8_t *Memory::host(uint64_t address) const {
  for (const auto &a : list_)
    if (a->address == address) return a->host; // zero-size allocations included
  Allocation *a = find(address);
  return a ? a->host + (address - a->address) : nullptr;
}

void Memory::mark_written(uint64_t address, int64_t bytes) {
  Allocation *a = find(address);
  TKC_CHECK(a && address - a->address + uint64_t(bytes) <= uint64_t(a->bytes), "mark_written outside of an allocation");
  if (a->written.empty()) return;
  std::fill_n(a->written.begin() + int64_t(address - a->address), bytes, uint8_t(1));
}

std::string Memory::describe(uint64_t address) const {
  const Allocation *nearest = nullptr;
  uint64_t distance = ~uint64_t(0);
  for (const auto &a : list_) {
    uint64_t end = a->address + uint64_t(a->bytes);
    if (address >= a->address && address < end)
      return fmt::format("{} + {} (of {} bytes)", a->name, address - a->address, a->bytes);
    uint64_t d = address < a->address ? a->address - address : address - end;
    if (d < distance) distance = d, nearest = a.get();
  }
  if (!nearest || distance > uint64_t(1) << 32) return "no allocation is near";
  if (address < nearest->address)
    return fmt::format("{} bytes before {} ({} bytes)", distance, nearest->name, nearest->bytes);
  return fmt::format("{} bytes past the end of {} ({} bytes)", distance, nearest->name, nearest->bytes);
}

Memory::Symbols *Memory::symbols(uint64_t module_id) { return &symbols_[module_id]; }

} // namespace tkc::emu
