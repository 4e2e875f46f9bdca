// Statistics of repeated timings: summaries, and the comparison of two variants that were measured in pairs.
#pragma once
#include "support/json.h"
#include "support/result.h"
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tkc {

struct Summary {
  int64_t count = 0;
  double median = 0, mean = 0, least = 0, most = 0;
  double deviation = 0; // sample standard deviation
  double spread = 0;    // (75 % quantile - 25 % quantile) / median
  // Robust trend over the samples in their order (Theil-Sen slope times count, over the median): 0.02 = 2 % slower at
  // the end.
  double drift = 0;
};
Summary summarize(std::span<const double> samples);
double quantile(std::span<const double> samples, double q); // linear between the order statistics

// Student's t: P(|T| > t), and the t for which that is `p`. `freedom` > 0.
double t_two_sided(double t, double freedom);
double t_critical(double p, double freedom);

// Pairs (a[i], b[i]) were measured in the same round, so slow drifts of clock and temperature cancel in the ratio.
//
// Method: per round the logarithm of a/b; their 20 % trimmed mean with the Tukey-McLaughlin interval (Winsorised
// deviation, Student's t with h - 1 degrees of freedom, h the number of rounds kept). The trimming keeps a round that
// was disturbed by something else from widening the interval. A difference is claimed only at p < 0.01, so that a
// comparison of a thing with itself says "no difference" in 99 of 100 runs; the interval printed is the usual 95 %.
// Nor is a difference below kAbResolution: the same code, loaded twice, runs up to that much faster or slower for its
// place in memory (measured on an H200: 0.04 % at a spread of 0.04 %).
inline constexpr double kAbResolution = 0.001;
struct AbResult {
  int64_t rounds = 0;
  Summary a, b;             // seconds
  double speedup = 1;       // time of a / time of b: above 1, b is faster
  double low = 1, high = 1; // 95 % interval of the speedup
  double p = 1;             // of "no difference"
  double effect = 0;        // mean log ratio / its deviation (robust): Cohen's d for pairs
  bool differs() const { return p < 0.01 && (speedup > 1 + kAbResolution || speedup < 1 - kAbResolution); }
  std::string verdict() const;   // "b is 1.052x as fast as a (95 % interval 1.045 to 1.060)"
  std::string to_string() const; // table of both sides, verdict, method
  Json to_json() const;
};
// At least 5 pairs of positive times.
Result<AbResult> compare_pairs(std::span<const double> a, std::span<const double> b);
extern const char *const kAbMethod;

// "speedup>=1.10" or "speedup<=1.02": holds only if the whole 95 % interval satisfies it.
struct Requirement {
  bool at_least = true;
  double bound = 1;
  bool holds(const AbResult &r) const { return at_least ? r.low >= bound : r.high <= bound; }
};
Result<Requirement> parse_requirement(std::string_view text);

} // namespace tkc
