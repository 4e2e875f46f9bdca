#include "minimise.h"
#include <algorithm>
#include <chrono>
#include <sstream>

namespace tkc::fuzz {

namespace {
using Clock = std::chrono::steady_clock;
bool over(Clock::time_point start, double seconds) {
  return std::chrono::duration<double>(Clock::now() - start).count() > seconds;
}
} // namespace

Minimised minimise_seed(uint64_t seed, const GenerateOptions &options, const Outcome &wanted, const Try &attempt,
                        double seconds) {
  auto start = Clock::now();
  Choices first(seed);
  Minimised best{generate(first, seed, options), wanted};
  std::vector<uint32_t> made = first.made();
  std::vector<Choices::Span> spans = first.spans();
  auto accept = [&](std::vector<uint32_t> given) {
    Choices c(std::move(given));
    Program p = generate(c, seed, options);
    // Each step must make the sequence shorter or lower, so that this ends.
    bool simpler = c.made().size() < made.size() || (c.made().size() == made.size() && c.made() < made);
    if (!simpler) return false;
    best.tries++;
    Outcome o = attempt(p);
    if (o.kind != wanted.kind) return false;
    made = c.made(), spans = c.spans();
    best.program = std::move(p), best.outcome = std::move(o);
    return true;
  };
  for (bool progress = true; progress && !over(start, seconds);) {
    progress = false;
    // Whole statements and expressions, large ones first: left out, or all of their choices 0.
    std::sort(spans.begin(), spans.end(), [](auto &a, auto &b) { return a.end - a.begin > b.end - b.begin; });
    for (size_t k = 0; k < spans.size() && !over(start, seconds); k++) {
      auto [begin, end] = spans[k];
      if (end > made.size() || end <= begin) continue;
      std::vector<uint32_t> without = made, zeroed = made;
      without.erase(without.begin() + std::ptrdiff_t(begin), without.begin() + std::ptrdiff_t(end));
      std::fill(zeroed.begin() + std::ptrdiff_t(begin), zeroed.begin() + std::ptrdiff_t(end), 0);
      if (!accept(without) && !accept(zeroed)) continue;
      progress = true;
      std::sort(spans.begin(), spans.end(), [](auto &a, auto &b) { return a.end - a.begin > b.end - b.begin; });
      k = size_t(std::max<int64_t>(int64_t(k) - 2, -1)); // the list is another one now
    }
    for (size_t i = 0; i < made.size() && !over(start, seconds); i++) {
      for (uint32_t v : {uint32_t(0), made[i] / 2, made[i] ? made[i] - 1 : 0}) {
        if (i >= made.size() || v >= made[i]) continue;
        std::vector<uint32_t> lower = made;
        lower[i] = v;
        if (accept(lower)) {
          progress = true;
          break;
        }
      }
    }
  }
  return best;
}

Minimised minimise_text(const Program &program, const Outcome &wanted, const Try &attempt, double seconds) {
  auto start = Clock::now();
  Minimised best{program, wanted};
  auto accept = [&](const Program &p) {
    best.tries++;
    Outcome o = attempt(p);
    if (o.kind != wanted.kind) return false;
    best.program = p, best.outcome = std::move(o);
    return true;
  };
  for (bool progress = true; progress && !over(start, seconds);) {
    progress = false;
    std::vector<std::string> lines;
    std::istringstream in(best.program.text);
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    for (size_t k = lines.size(); k-- > 0 && !over(start, seconds);) {
      if (k >= lines.size()) continue;
      // A line that opens a block goes with the block.
      size_t end = k + 1;
      if (!lines[k].empty() && lines[k].back() == '{') {
        size_t indent = lines[k].find_first_not_of(' ');
        while (end < lines.size() && lines[end].find_first_not_of(' ') > indent) end++;
        end = std::min(end + 1, lines.size());
      }
      Program p = best.program;
      p.text.clear();
      for (size_t i = 0; i < lines.size(); i++)
        if (i < k || i >= end) p.text += lines[i] + "\n";
      if (!accept(p)) continue;
      lines.erase(lines.begin() + std::ptrdiff_t(k), lines.begin() + std::ptrdiff_t(end));
      progress = true;
    }
    std::map<std::string, int64_t> sizes = best.program.sizes;
    for (const auto &[name, n] : sizes)
      for (int64_t less : {int64_t(1), n / 2, n - 1}) {
        if (less < 1 || less >= n || over(start, seconds)) continue;
        Program p = best.program;
        p.sizes[name] = less;
        if (accept(p)) {
          progress = true;
          break;
        }
      }
  }
  return best;
}

} // namespace tkc::fuzz
