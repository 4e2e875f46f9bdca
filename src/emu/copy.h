// What bulk and tensor copies have in common.
#pragma once
#include "emu/access.h"
#include "emu/decode.h"
#include "emu/element.h"
#include <functional>

namespace tkc::emu {

// The mbarrier that a copy completes on.
struct Completion {
  Block *block = nullptr;
  uint32_t at = 0;
  Mbarrier *mbarrier = nullptr;
};
bool find_completion(Warp &w, int lane, Space space, uint64_t address, Completion &c);
// Copies of the asynchronous proxy complete on an mbarrier that has been made known to it: its initialisation was
// fenced.
void need_init_fence(Warp &w, int lane, const Completion &c);
// Tells the shadow of an access of an asynchronous copy and reports its conflict.
void note_copy(Warp &w, int lane, AccessKind kind, Block &in, uint32_t address, int64_t bytes, uint32_t stream,
               uint32_t stamp);
// The mbarrier's `issued` is the copy's stamp and has been counted.
void issue_to_shared(Warp &w, int lane, const Completion &c, int64_t bytes, std::function<void()> write);
void issue_from_shared(Warp &w, int lane, uint32_t stamp, std::function<void()> read, std::function<void()> write);
uint32_t next_bulk_stamp(Warp &w, int lane, uint32_t &stream);
// destination op= source, element by element.
std::function<void(uint8_t *, const uint8_t *)> make_reduction(AtomicOp op, Type t, int64_t bytes);

// exec_tensor.cpp: cp.async.bulk.tensor, cp.reduce.async.bulk.tensor (op given), cp.async.bulk.prefetch.tensor
void decode_tensor(Decoder &d, std::optional<AtomicOp> op);
void decode_tensor_prefetch(Decoder &d);

} // namespace tkc::emu
