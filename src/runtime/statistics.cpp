#include "runtime/statistics.h"
#include <algorithm>
#include <charconv>
#include <cmath>

namespace tkc {

static double quantile_sorted(std::span<const double> sorted, double q) {
  if (sorted.empty()) return 0;
  double at = q * double(sorted.size() - 1);
  size_t low = size_t(at), high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (at - double(low)) * (sorted[high] - sorted[low]);
}

static std::vector<double> sorted_copy(std::span<const double> samples) {
  std::vector<double> v(samples.begin(), samples.end());
  std::sort(v.begin(), v.end());
  return v;
}

double quantile(std::span<const double> samples, double q) { return quantile_sorted(sorted_copy(samples), q); }

static double mean_of(std::span<const double> v) {
  double sum = 0;
  for (double x : v) sum += x;
  return v.empty() ? 0 : sum / double(v.size());
}

static double deviation_of(std::span<const double> v) {
  double mean = mean_of(v), sum = 0;
  for (double x : v) sum += (x - mean) * (x - mean);
  return v.size() < 2 ? 0 : std::sqrt(sum / double(v.size() - 1));
}

Summary summarize(std::span<const double> samples) {
  Summary s;
  s.count = int64_t(samples.size());
  if (samples.empty()) return s;
  std::vector<double> sorted = sorted_copy(samples);
  s.median = quantile_sorted(sorted, 0.5);
  s.mean = mean_of(samples);
  s.least = sorted.front();
  s.most = sorted.back();
  s.deviation = deviation_of(samples);
  if (s.median != 0) s.spread = (quantile_sorted(sorted, 0.75) - quantile_sorted(sorted, 0.25)) / s.median;
  // All pairs: for long series every stride-th sample is enough.
  size_t stride = samples.size() / 512 + 1;
  std::vector<double> slopes;
  for (size_t i = 0; i < samples.size(); i += stride)
    for (size_t j = i + stride; j < samples.size(); j += stride)
      slopes.push_back((samples[j] - samples[i]) / double(j - i));
  if (!slopes.empty() && s.median != 0) s.drift = quantile(slopes, 0.5) * double(samples.size()) / s.median;
  return s;
}

// The regularised incomplete beta function by its continued fraction (modified Lentz).
static double incomplete_beta(double a, double b, double x) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  if (x > (a + 1) / (a + b + 2)) return 1 - incomplete_beta(b, a, 1 - x);
  double front =
      std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) + a * std::log(x) + b * std::log1p(-x)) / a;
  constexpr double kTiny = 1e-300;
  double c = 1, d = 1 - (a + b) * x / (a + 1);
  d = 1 / (std::fabs(d) < kTiny ? kTiny : d);
  double f = d;
  for (int m = 1; m < 500; m++) {
    for (bool even : {true, false}) {
      double term = even ? m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
                         : -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
      d = 1 + term * d;
      d = 1 / (std::fabs(d) < kTiny ? kTiny : d);
      c = 1 + term / c;
      if (std::fabs(c) < kTiny) c = kTiny;
      f *= c * d;
      if (!even && std::fabs(c * d - 1) < 1e-15) return front * f;
    }
  }
  return front * f;
}

double t_two_sided(double t, double freedom) {
  if (std::isinf(t)) return 0;
  return incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t));
}

double t_critical(double p, double freedom) {
  double low = 0, high = 1;
  while (t_two_sided(high, freedom) > p && high < 1e12) high *= 2;
  for (int i = 0; i < 200 && high - low > 1e-12 * high; i++) {
    double middle = (low + high) / 2;
    (t_two_sided(middle, freedom) > p ? low : high) = middle;
  }
  return (low + high) / 2;
}

const char *const kAbMethod = "per round the log of the ratio; 20 % trimmed mean, 95 % Tukey-McLaughlin interval; a "
                              "difference is claimed at p < 0.01 and above 0.1 %";

Result<AbResult> compare_pairs(std::span<const double> a, std::span<const double> b) {
  if (a.size() != b.size()) return failure("{} samples of a against {} of b: they must be pairs", a.size(), b.size());
  if (a.size() < 5) return failure("{} rounds are too few to compare; at least 5 are needed", a.size());
  std::vector<double> logs(a.size());
  for (size_t i = 0; i < a.size(); i++) {
    if (!(a[i] > 0 && b[i] > 0) || std::isinf(a[i]) || std::isinf(b[i]))
      return failure("round {}: the times {} and {} are not positive", i, a[i], b[i]);
    logs[i] = std::log(a[i] / b[i]);
  }
  std::sort(logs.begin(), logs.end());
  size_t n = logs.size(), cut = n / 5, kept = n - 2 * cut;
  double mean = mean_of(std::span(logs).subspan(cut, kept));
  std::vector<double> winsorised = logs;
  for (size_t i = 0; i < cut; i++) {
    winsorised[i] = logs[cut];
    winsorised[n - 1 - i] = logs[n - 1 - cut];
  }
  double deviation = deviation_of(winsorised), share = double(kept) / double(n);
  double error = deviation / (share * std::sqrt(double(n))), freedom = double(kept - 1);
  AbResult r;
  r.rounds = int64_t(n);
  r.a = summarize(a);
  r.b = summarize(b);
  r.speedup = std::exp(mean);
  double half = t_critical(0.05, freedom) * error;
  r.low = std::exp(mean - half);
  r.high = std::exp(mean + half);
  r.p = error > 0 ? t_two_sided(mean / error, freedom) : mean == 0 ? 1 : 0;
  // The Winsorised deviation of normal data is 0.642 of the deviation (20 % from each end).
  r.effect = deviation > 0 ? mean / (deviation / 0.642) : 0;
  return r;
}

std::string AbResult::verdict() const {
  std::string interval = fmt::format("95 % interval {:.4g} to {:.4g}", low, high);
  if (!differs()) return fmt::format("no difference between a and b (speedup {:.4g}, {})", speedup, interval);
  if (speedup > 1) return fmt::format("b is faster: {:.4g}x as fast as a ({})", speedup, interval);
  return fmt::format("b is slower: {:.4g}x as fast as a ({})", speedup, interval);
}

std::string AbResult::to_string() const {
  std::string out = "      median us     mean us      least       most     spread     drift\n";
  auto row = [&](const char *name, const Summary &s) {
    out += fmt::format("{}  {:>13.3f} {:>11.3f} {:>10.3f} {:>10.3f} {:>9.2f}% {:>8.2f}%\n", name, s.median * 1e6,
                       s.mean * 1e6, s.least * 1e6, s.most * 1e6, s.spread * 100, s.drift * 100);
  };
  row("a", a);
  row("b", b);
  out += fmt::format("{}\n", verdict());
  out += fmt::format("{} rounds, p {:.2g}, effect size {:.2f}; {}\n", rounds, p, effect, kAbMethod);
  return out;
}

static Json summary_json(const Summary &s) {
  Json j = Json::object();
  j.set("count", s.count).set("median", s.median).set("mean", s.mean).set("min", s.least).set("max", s.most);
  return j.set("deviation", s.deviation).set("spread", s.spread).set("drift", s.drift);
}

Json AbResult::to_json() const {
  Json j = Json::object();
  j.set("rounds", rounds).set("a", summary_json(a)).set("b", summary_json(b)).set("speedup", speedup);
  j.set("low", low).set("high", high).set("p", p).set("effect", effect).set("differs", differs());
  return j.set("verdict", verdict()).set("method", kAbMethod);
}

Result<Requirement> parse_requirement(std::string_view text) {
  std::string compact;
  for (char c : text)
    if (c != ' ') compact += c;
  std::string_view rest = compact;
  Requirement r;
  bool good = rest.substr(0, 7) == "speedup";
  if (good) rest.remove_prefix(7);
  good = good && (rest.substr(0, 2) == ">=" || rest.substr(0, 2) == "<=");
  if (good) {
    r.at_least = rest[0] == '>';
    rest.remove_prefix(2);
    auto parsed = std::from_chars(rest.data(), rest.data() + rest.size(), r.bound);
    good = parsed.ec == std::errc() && parsed.ptr == rest.data() + rest.size() && r.bound > 0;
  }
  if (!good) return failure("`{}` is not a requirement of the form `speedup>=1.10` or `speedup<=1.02`", text);
  return r;
}

} // namespace tkc
