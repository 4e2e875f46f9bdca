// One thread's access to memory: bounds, alignment, the shadow of shared memory, and what strong accesses order.
#pragma once
#include "emu/block.h"

namespace tkc::emu {

enum class Use : uint8_t { Read, Write, ReadWrite };

struct Place {
  uint8_t *bytes = nullptr;   // null after a reported error
  Block *shared_in = nullptr; // the CTA whose shared memory it is; null otherwise
  uint32_t shared = 0;        // shared address
  Allocation *global = nullptr;
};

// Finds `bytes` bytes at the address for the lane of w, and reports if they are out of bounds, misaligned to `align` or
// not writable. Space::Param is the kernel's parameters. Generic addresses may lie in any space.
Place find_place(Warp &w, int lane, Space space, uint64_t address, int64_t bytes, int64_t align, Use use);
// Only bounds and alignment of shared memory: the CTA of a shared::cluster address in `in`, the rest as its own
// address.
bool find_shared(Warp &w, int lane, uint64_t address, int64_t bytes, int64_t align, Block *&in, uint32_t &own);
// Checks and updates the allocation's record of bytes written, and reports races on memory that the kernel may write.
// `data`: what is going to be written, if that is known; `strong`: no race with other strong accesses.
void note_global(Warp &w, int lane, const Place &place, int64_t bytes, Use use, bool strong = false,
                 const uint8_t *data = nullptr);
// Tells the shadow of a generic access by these lanes (all at the same place), and reports its conflict.
void note_shared(Warp &w, uint32_t lanes, AccessKind kind, Block &in, uint32_t address, int64_t bytes);
void report_conflict(Warp &w, int lane, AccessKind kind, Block &in, const Shadow::Conflict &conflict);

// What strong accesses (volatile, relaxed, acquire, release, atomics) hand over between threads of the cluster. The key
// is the place's generic address.
void strong_read(Warp &w, int lane, uint64_t key, bool acquire);
void strong_write(Warp &w, int lane, uint64_t key, bool release, bool read_modify_write);
// What a strong load or an atomic has given (mixed into one number): notices spinning.
void note_poll(Warp &w, uint64_t values);
uint64_t strong_key(const Place &place, uint64_t address);

} // namespace tkc::emu
