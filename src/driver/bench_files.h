// The JSON files of measurements: `tkc bench --json`, and samples from elsewhere.
//
//   {"format": "tkc-bench", "version": 1, "target": "sm_90", "machine": {...}, "results": [...]}
// A result: kernel, case, params (compile-time parameters that were given), and either seconds (the median of a call),
// samples, drifting, counts, groups, entry, registers, localBytes, blocksPerSM, or reason (why it could not be
// measured).
#pragma once
#include "support/result.h"
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tkc::driver {

// Seconds. From an array of numbers, an object with such an array as `samples`, or a bench file with one result.
Result<std::vector<double>> read_samples(const std::string &path);

struct BenchChange {
  std::string what;                    // "softmax.llm BM=4"
  std::optional<double> before, after; // seconds; empty where a file does not have it
  double ratio() const { return before && after ? *after / *before : 1; } // above 1: slower
};
// The results of both files, matched by kernel, case and parameters, in the order of the first and then of the second.
Result<std::vector<BenchChange>> compare_bench_files(const std::string &before, const std::string &after);
std::string to_string(const std::vector<BenchChange> &changes, double threshold);
// Slower by more than `threshold` (0.05 = 5 %), or measured before and not any more.
bool has_regression(const std::vector<BenchChange> &changes, double threshold);

} // namespace tkc::driver
