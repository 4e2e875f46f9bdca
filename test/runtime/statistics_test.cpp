// The benchmark convention and its statistics, on a synthetic clock.
#include "runtime/bench.h"
#include "runtime/generators.h"
#include <algorithm>
#include <cmath>
#include <doctest/doctest.h>

using namespace tkc;

namespace {
constexpr double kMiB = 1 << 20;

// Time passes when a call is launched: a base time with noise, plus whatever a test adds.
struct SyntheticClock : BenchClock {
  double now = 0, started = 0, stopped = 0;
  std::vector<std::string> log;
  void rest(double s) override {
    log.push_back(fmt::format("rest {}", s));
    now += s;
  }
  Status start() override {
    log.push_back("start");
    started = now;
    return {};
  }
  Status stop() override {
    log.push_back("stop");
    stopped = now;
    return {};
  }
  Result<double> elapsed() override {
    log.push_back("elapsed");
    return stopped - started;
  }
};
struct SyntheticTarget : BenchTarget {
  SyntheticClock &clock;
  double seconds;
  std::vector<int64_t> groups;
  int64_t fails_at = -1;
  SyntheticTarget(SyntheticClock &c, double s) : clock(c), seconds(s) {}
  Status launch(int64_t group) override {
    if (int64_t(groups.size()) == fails_at) return failure("launch {} failed", fails_at);
    groups.push_back(group);
    clock.now += seconds;
    return {};
  }
};

struct Noise { // normal, reproducible
  uint64_t seed;
  int64_t at = 0;
  double operator()() { return fill_value({FillKind::Normal, 0, 1}, DType::F64, stream_seed(seed, 9), at++); }
};
} // namespace

TEST_CASE("groups of bf16 square products against the table of the convention") {
  struct Row {
    double l2_mib;
    int64_t groups[5]; // 1024, 2048, 4096, 8192, 16384
  };
  const Row rows[] = {{40, {21, 6, 2, 1, 1}},  {50, {26, 7, 2, 1, 1}},  {60, {31, 8, 2, 1, 1}},
                      {72, {37, 10, 3, 1, 1}}, {96, {49, 13, 4, 1, 1}}, {126.5, {64, 16, 4, 1, 1}}};
  for (const Row &row : rows)
    for (int i = 0; i < 5; i++) {
      int64_t n = 1024 << i, bytes = 2 * 3 * n * n;
      CAPTURE(row.l2_mib);
      CAPTURE(n);
      CHECK(bench_groups(bytes, int64_t(row.l2_mib * kMiB)) == row.groups[i]);
    }
  // The footprint is in (3 L2, 3 L2 + call]; a call as large as 3 L2 gets a second group.
  int64_t l2 = int64_t(50 * kMiB);
  for (int64_t bytes : {int64_t(1), int64_t(1000), l2, 3 * l2 - 1, 3 * l2}) {
    CHECK(bench_groups(bytes, l2) * bytes > 3 * l2);
    CHECK((bench_groups(bytes, l2) - 1) * bytes <= 3 * l2);
  }
  CHECK(bench_groups(3 * l2, l2) == 2);
  CHECK(bench_groups(3 * l2 + 1, l2) == 1);
  CHECK(bench_seed(0, 0) == 2024);
  CHECK(bench_seed(3, 2) == 2326);
}

TEST_CASE("one run: rest, 500 calls, start, 100 calls from group 0, stop, then the clock is read") {
  SyntheticClock clock;
  SyntheticTarget target(clock, 2e-6);
  Result<double> t = run_convention(target, clock, 7);
  REQUIRE(t.ok());
  CHECK(*t == doctest::Approx(2e-6));
  CHECK(clock.log == std::vector<std::string>{"rest 0.5", "start", "stop", "elapsed"});
  REQUIRE(target.groups.size() == 600);
  for (int64_t i = 0; i < 600; i++) REQUIRE(target.groups[size_t(i)] == (i < 500 ? i : i - 500) % 7);
  CHECK(clock.now == doctest::Approx(0.5 + 600 * 2e-6));
  SyntheticTarget failing(clock, 1e-6);
  failing.fails_at = 550;
  CHECK(run_convention(failing, clock, 1).error() == "launch 550 failed");
}

TEST_CASE("summaries") {
  std::vector<double> v = {5, 1, 4, 2, 3};
  Summary s = summarize(v);
  CHECK(s.median == 3);
  CHECK(s.mean == 3);
  CHECK(s.least == 1);
  CHECK(s.most == 5);
  CHECK(s.deviation == doctest::Approx(std::sqrt(2.5)));
  CHECK(s.spread == doctest::Approx(2.0 / 3));
  CHECK(quantile(v, 0.25) == 2);
  CHECK(quantile(std::vector<double>{1, 2}, 0.5) == 1.5);
  CHECK(summarize(std::vector<double>{}).count == 0);
  CHECK(summarize(std::vector<double>{2}).median == 2);
  std::vector<double> drifting, flat;
  Noise noise{3};
  for (int i = 0; i < 100; i++) {
    double n = 0.005 * noise();
    flat.push_back(1 + n);
    drifting.push_back(1 + 0.05 * i / 100 + n);
  }
  CHECK(std::fabs(summarize(flat).drift) < 0.005);
  CHECK(summarize(drifting).drift == doctest::Approx(0.05).epsilon(0.1));
}

TEST_CASE("Student's t against tables") {
  CHECK(t_critical(0.05, 1) == doctest::Approx(12.706).epsilon(1e-4));
  CHECK(t_critical(0.05, 11) == doctest::Approx(2.2010).epsilon(1e-4));
  CHECK(t_critical(0.01, 11) == doctest::Approx(3.1058).epsilon(1e-4));
  CHECK(t_critical(0.05, 1e6) == doctest::Approx(1.95997).epsilon(1e-4));
  CHECK(t_two_sided(2.2010, 11) == doctest::Approx(0.05).epsilon(1e-3));
  CHECK(t_two_sided(0, 5) == doctest::Approx(1));
  CHECK(t_two_sided(1, 1) == doctest::Approx(0.5));
}

// Rounds of two kernels under noise of each measurement, a common drift, and now and then a disturbed round.
static AbResult synthetic_ab(uint64_t seed, double truth, double noise_level, double drift, double outliers,
                             int64_t rounds = 20) {
  Noise noise{seed};
  int64_t round = 0;
  auto side = [&](double base) {
    return [&, base]() -> Result<double> {
      double clock = 1 + drift * double(round++) / double(2 * rounds);
      bool disturbed = double(splitmix64(stream_seed(seed, 1000 + round)) >> 11) * 0x1p-53 < outliers;
      SyntheticClock c;
      SyntheticTarget t(c, base * clock * std::exp(noise_level * noise()) * (disturbed ? 1.5 : 1));
      return run_convention(t, c, 1, {.rest_seconds = 0, .warmup = 0, .timed = 1});
    };
  };
  Result<AbSamples> s = run_ab(side(1e-3 * truth), side(1e-3), rounds, seed);
  REQUIRE(s.ok());
  Result<AbResult> r = compare_pairs(s->a, s->b);
  REQUIRE(r.ok());
  return *r;
}

TEST_CASE("A/A says no difference in at least 95 of 100 runs, under noise, drift and disturbed rounds") {
  struct Condition {
    double noise, drift, outliers;
  };
  for (const Condition &c :
       {Condition{0.01, 0, 0}, {0.001, 0, 0}, {0.01, 0.1, 0}, {0.01, 0, 0.1}, {0.05, 0.02, 0.05}}) {
    CAPTURE(c.noise);
    CAPTURE(c.drift);
    CAPTURE(c.outliers);
    for (uint64_t block = 0; block < 5; block++) {
      int64_t none = 0, covered = 0;
      for (uint64_t i = 0; i < 100; i++) {
        AbResult r = synthetic_ab(1000 * block + i, 1.0, c.noise, c.drift, c.outliers);
        none += !r.differs() && r.verdict().find("no difference") == 0;
        covered += r.low <= 1 && 1 <= r.high;
      }
      CHECK(none >= 95);
      CHECK(covered >= 85); // the interval is a 95 % interval
    }
  }
}

TEST_CASE("a true difference of 5 % under noise of 1 % is found, with its size and sign") {
  for (double outliers : {0.0, 0.05}) { // of 1.5 times the time
    int64_t faster = 0, slower = 0, covered = 0;
    for (uint64_t i = 0; i < 200; i++) {
      AbResult up = synthetic_ab(i, 1.05, 0.01, 0.03, outliers),
               down = synthetic_ab(i + 5000, 1 / 1.05, 0.01, 0.03, outliers);
      faster += up.differs() && up.verdict().find("b is faster: 1.0") == 0;
      slower += down.differs() && down.verdict().find("b is slower: 0.9") == 0;
      covered += up.low <= 1.05 && 1.05 <= up.high;
    }
    CHECK(faster >= (outliers == 0 ? 200 : 195));
    CHECK(slower >= (outliers == 0 ? 200 : 195));
    CHECK(covered >= 180);
  }
}

TEST_CASE("orders are drawn from the seed and balanced; a progress callback can stop") {
  auto one = []() -> Result<double> { return 1.0; };
  Result<AbSamples> s = run_ab(one, one, 40, 1), again = run_ab(one, one, 40, 1), other = run_ab(one, one, 40, 2);
  CHECK(s->b_first == again->b_first);
  CHECK(s->b_first != other->b_first);
  CHECK(std::count(s->b_first.begin(), s->b_first.end(), true) == 20);
  std::string trace;
  auto a = [&]() -> Result<double> { return trace += 'a', 1.0; };
  auto b = [&]() -> Result<double> { return trace += 'b', 2.0; };
  Result<AbSamples> t = run_ab(a, b, 10, 3, [](int64_t done) { return done < 6; });
  REQUIRE(t->a.size() == 6);
  for (size_t i = 0; i < 6; i++) {
    CHECK(trace.substr(2 * i, 2) == (t->b_first[i] ? "ba" : "ab"));
    CHECK(t->a[i] == 1);
    CHECK(t->b[i] == 2);
  }
  auto bad = []() -> Result<double> { return Error{"stuck", ErrorKind::Timeout}; };
  CHECK(run_ab(one, bad, 10, 3).kind() == ErrorKind::Timeout);
  CHECK(run_rounds(one, 3)->size() == 3);
  CHECK(run_rounds(bad, 3).error() == "stuck");
}

TEST_CASE("pairs that cannot be compared, and degenerate ones that can") {
  std::vector<double> five = {1, 1, 1, 1, 1}, four = {1, 1, 1, 1}, zero = {1, 1, 0, 1, 1}, two = {2, 2, 2, 2, 2};
  CHECK(compare_pairs(five, four).error() == "5 samples of a against 4 of b: they must be pairs");
  CHECK(compare_pairs(four, four).error() == "4 rounds are too few to compare; at least 5 are needed");
  CHECK(compare_pairs(five, zero).error() == "round 2: the times 1 and 0 are not positive");
  CHECK_FALSE(compare_pairs(five, five)->differs());
  CHECK(compare_pairs(two, five)->differs());
  CHECK(compare_pairs(two, five)->speedup == doctest::Approx(2));
  CHECK(compare_pairs(two, five)->to_json().dump(0).find("\"method\":") != std::string::npos);
}

TEST_CASE("requirements hold only if the whole interval does") {
  AbResult r;
  r.low = 1.08;
  r.high = 1.12;
  CHECK(parse_requirement("speedup>=1.05")->holds(r));
  CHECK_FALSE(parse_requirement("speedup >= 1.10")->holds(r));
  CHECK(parse_requirement("speedup<=1.2")->holds(r));
  CHECK_FALSE(parse_requirement("speedup<=1.1")->holds(r));
  for (const char *bad : {"", "speedup", "speedup>1", "speedup>=x", "speedup>=1.1x", "time>=1", "speedup>=-1"}) {
    CAPTURE(bad);
    CHECK(parse_requirement(bad).error().find("is not a requirement") != std::string::npos);
  }
}
