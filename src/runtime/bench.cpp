#include "runtime/bench.h"
#include "runtime/generators.h"
#include <chrono>
#include <thread>

namespace tkc {

int64_t bench_groups(int64_t call_bytes, int64_t l2_bytes) {
  TKC_CHECK(call_bytes > 0 && l2_bytes >= 0, "{} bytes a call, L2 of {}", call_bytes, l2_bytes);
  int64_t ideal = 3 * l2_bytes;
  return call_bytes > ideal ? 1 : ideal / call_bytes + 1;
}

uint64_t bench_seed(int64_t group, int64_t tensor) { return uint64_t(2024 + 100 * group + tensor); }

Result<double> run_convention(BenchTarget &target, BenchClock &clock, int64_t groups, const BenchOptions &options) {
  TKC_CHECK(groups >= 1 && options.timed >= 1, "{} groups, {} timed calls", groups, options.timed);
  clock.rest(options.rest_seconds);
  for (int64_t i = 0; i < options.warmup; i++) TKC_TRY(target.launch(i % groups));
  TKC_TRY(clock.start());
  for (int64_t i = 0; i < options.timed; i++) TKC_TRY(target.launch(i % groups));
  TKC_TRY(clock.stop());
  Result<double> elapsed = clock.elapsed();
  if (!elapsed) return elapsed.failed();
  return *elapsed / double(options.timed);
}

Result<std::unique_ptr<GpuClock>> GpuClock::create(Stream &stream, double limit_seconds) {
  Result<Event> begin = Event::create(stream.device()), end = Event::create(stream.device());
  if (!begin) return begin.failed();
  if (!end) return end.failed();
  return std::unique_ptr<GpuClock>(new GpuClock(stream, std::move(*begin), std::move(*end), limit_seconds));
}

void GpuClock::rest(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }
Status GpuClock::start() { return begin_.record(stream_); }
Status GpuClock::stop() { return end_.record(stream_); }
Result<double> GpuClock::elapsed() {
  TKC_TRY(end_.wait(limit_));
  return end_.seconds_since(begin_);
}

Result<std::vector<double>> run_rounds(const Measure &measure, int64_t rounds,
                                       const std::function<void(int64_t)> &progress) {
  std::vector<double> samples;
  for (int64_t r = 0; r < rounds; r++) {
    Result<double> seconds = measure();
    if (!seconds) return seconds.failed();
    samples.push_back(*seconds);
    if (progress) progress(r + 1);
  }
  return samples;
}

Result<AbSamples> run_ab(const Measure &a, const Measure &b, int64_t rounds, uint64_t seed,
                         const std::function<bool(int64_t)> &progress) {
  AbSamples out;
  for (int64_t r = 0; r < rounds; r++) {
    // Rounds 2k and 2k + 1 have opposite orders: what the first place does to a side is the same for both.
    bool flip = splitmix64(stream_seed(seed, r / 2)) & 1;
    bool b_first = flip != (r % 2 == 1);
    double times[2] = {};
    for (int turn = 0; turn < 2; turn++) {
      bool is_b = (turn == 0) == b_first;
      Result<double> seconds = is_b ? b() : a();
      if (!seconds && seconds.kind() == ErrorKind::Interrupted) return out;
      if (!seconds) return seconds.failed();
      times[is_b] = *seconds;
    }
    out.a.push_back(times[0]);
    out.b.push_back(times[1]);
    out.b_first.push_back(b_first);
    if (progress && !progress(r + 1)) break;
  }
  return out;
}

} // namespace tkc
