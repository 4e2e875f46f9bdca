// When each launch of a program ran, by the GPU's own clock: a copy of its PTX in which every entry has one parameter
// more, the address of a table, and every warp notes %globaltimer there when it begins and when it ends. Nothing else
// changes: no event stands between the launches, so that gaps are those of the program as it is.
//
// A table has kStampSlots pairs of 64-bit numbers, a pair for the multiprocessors of one number modulo kStampSlots: the
// least time of a beginning, and the least complement of the time of an end (one fill of 0xff makes both empty). The
// clock ticks in nanoseconds and steps by up to a microsecond on some GPUs; means over calls are finer than a step.
#pragma once
#include "support/result.h"
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tkc::driver {

inline constexpr int64_t kStampSlots = 256, kStampBytes = 16 * kStampSlots;
inline constexpr const char *kStampedSuffix = "__stamped"; // of the entries

// Every entry stamped and renamed. An error names an entry that ends in a way that cannot be stamped.
Result<std::string> stamped_ptx(std::string_view ptx);

// Of one launch, in nanoseconds.
struct Stamp {
  uint64_t begin = 0, end = 0;
};
// The launch's table, as it was downloaded; nothing where no warp wrote it.
Result<Stamp> read_stamp(std::span<const uint8_t> table);

// What the launches of one kernel take of a call.
struct BenchPart {
  std::string kernel; // entry
  int64_t launches = 0;
  double seconds = 0; // from the first warp to the last, summed over its launches
  double gap = 0;     // nothing ran before its launches: from the last end to the begin
  double exposed =
      0; // the part of `seconds` in which nothing that began earlier ran: gaps and these sum up to the call
};
struct Breakdown {
  std::vector<BenchPart> parts; // in order of first launch; empty for a kernel
  double seconds = 0;           // of a call: the sum of all gaps and exposed times
  double idle = 0;              // the share of it in which nothing ran
};
// `stamps`: of every launch of every call, the calls queued one after the other without a pause. The first call only
// says where the second begins. `names`: of the launches of a call.
Breakdown breakdown_of(const std::vector<std::vector<Stamp>> &stamps, const std::vector<std::string> &names);

} // namespace tkc::driver
