// The timeline of a pipelined loop by the cost model: when items are on their way, when they lie in their slot, when
// the loop reads them.
#pragma once
#include "driver/report.h"

namespace tkc::driver {

// Cycles from the loop's start.
struct TimelineItem {
  double issued = 0, arrived = 0; // of its copies
  double begin = 0, end = 0;      // of the iteration that reads it
  int64_t slot = 0;
};
// The first `count` items. With a producer an item's copies are issued once its slot is free, without one by the
// iteration that has read the slot's last item, or before the loop; items arrive in order.
std::vector<TimelineItem> simulate_ring(const LoopReport &loop, int64_t count);
// A row for each slot and one for the iterations.
std::string timeline_svg(const LoopReport &loop);
std::string html_escape(std::string_view s);

} // namespace tkc::driver
