// Loops over large host arrays on all cores.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace tkc {

// Calls body(begin, end) for consecutive blocks of `grain` indices that cover [0, count). The blocks do not depend on
// the number of threads, so a result computed per block is the same on every machine. `body` must not throw.
template <typename Body> void parallel_for(int64_t count, int64_t grain, const Body &body) {
  int64_t blocks = (count + grain - 1) / grain;
  int64_t threads = std::min<int64_t>(blocks, std::max(1u, std::thread::hardware_concurrency()));
  std::atomic<int64_t> next{0};
  auto work = [&] {
    for (int64_t b = next++; b < blocks; b = next++) body(b * grain, std::min(count, (b + 1) * grain));
  };
  std::vector<std::thread> others;
  for (int64_t t = 1; t < threads; t++) others.emplace_back(work);
  work();
  for (std::thread &t : others) t.join();
}

} // namespace tkc
