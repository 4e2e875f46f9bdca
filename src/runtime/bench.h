// The benchmark convention, so that figures of different kernels and libraries can be compared:
//
//   1. 500 ms of rest.
//   2. As many groups of inputs and outputs as make the whole larger than three times the L2 cache; a call uses one
//   group,
//      the calls go round. So every call finds its data in memory, not in the cache.
//   3. 500 calls to warm up, 100 timed calls between one pair of events; group = call mod groups in both. Nothing
//      synchronises, copies or flushes in between. The time of a call is the time between the events / 100.
//   4. Group g fills its tensor i by the generator of generators.h with seed 2024 + 100 g + i: bitwise equal on all
//   sides. Where a bench block says what an input holds, its generators draw from that seed instead.
#pragma once
#include "runtime/device.h"
#include "runtime/statistics.h"

namespace tkc {

// `call_bytes`: inputs and outputs of one call. 1 if they alone exceed three times the L2, else floor(3 L2 / bytes)
// + 1.
int64_t bench_groups(int64_t call_bytes, int64_t l2_bytes);
uint64_t bench_seed(int64_t group, int64_t tensor);

// What is measured: queues the work of one call on the data of one group, without waiting.
struct BenchTarget {
  virtual ~BenchTarget() = default;
  virtual Status launch(int64_t group) = 0;
};

// What measures: events of a stream, or a synthetic clock in tests.
struct BenchClock {
  virtual ~BenchClock() = default;
  virtual void rest(double seconds) = 0;
  virtual Status start() = 0; // queued like the calls
  virtual Status stop() = 0;
  virtual Result<double> elapsed() = 0; // waits; seconds between start and stop
};

struct BenchOptions {
  double rest_seconds = 0.5;
  int64_t warmup = 500, timed = 100;
};

// Seconds of one call, by one run of the convention.
Result<double> run_convention(BenchTarget &target, BenchClock &clock, int64_t groups, const BenchOptions &options = {});

// Events on a stream. `limit_seconds`: the watchdog for a whole run (warm-up and timed calls).
class GpuClock : public BenchClock {
public:
  static Result<std::unique_ptr<GpuClock>> create(Stream &stream, double limit_seconds);
  void rest(double seconds) override;
  Status start() override;
  Status stop() override;
  Result<double> elapsed() override;

private:
  GpuClock(Stream &stream, Event begin, Event end, double limit)
      : stream_(stream), begin_(std::move(begin)), end_(std::move(end)), limit_(limit) {}
  Stream &stream_;
  Event begin_, end_;
  double limit_;
};

// One measurement of a side: usually a complete run of the convention.
using Measure = std::function<Result<double>()>;

// Repeats a measurement; the samples in their order.
Result<std::vector<double>> run_rounds(const Measure &measure, int64_t rounds,
                                       const std::function<void(int64_t)> &progress = {});

struct AbSamples {
  std::vector<double> a, b;
  std::vector<bool> b_first; // the order in each round
};
// Measures both sides in every round; which comes first is drawn from `seed`, balanced over each pair of rounds.
// `progress` is called with the number of finished rounds; it returns false to stop with what there is. An
// interruption gives the rounds that were finished.
Result<AbSamples> run_ab(const Measure &a, const Measure &b, int64_t rounds, uint64_t seed,
                         const std::function<bool(int64_t)> &progress = {});

} // namespace tkc
