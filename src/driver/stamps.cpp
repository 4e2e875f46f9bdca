#include "driver/stamps.h"
#include "support/check.h"
#include <algorithm>
#include <cstring>

namespace tkc::driver {

namespace {

// One lane of every warp: `invert` complements the time, `slot` is 0 for beginnings and 8 for ends.
std::string stamp(std::string_view parameter, bool end) {
  return fmt::format("\t{{\n\t.reg .pred %stamp_p;\n\t.reg .b32 %stamp_r<3>;\n\t.reg .b64 %stamp_d<5>;\n"
                     "\tmov.u32 %stamp_r1, %laneid;\n\tsetp.eq.u32 %stamp_p, %stamp_r1, 0;\n"
                     "\tld.param.b64 %stamp_d1, [{}];\n\tmov.u32 %stamp_r2, %smid;\n"
                     "\tand.b32 %stamp_r2, %stamp_r2, {};\n\tmul.wide.u32 %stamp_d2, %stamp_r2, 16;\n"
                     "\tadd.s64 %stamp_d3, %stamp_d1, %stamp_d2;\n\tmov.u64 %stamp_d4, %globaltimer;\n{}"
                     "\t@%stamp_p red.global.min.u64 [%stamp_d3+{}], %stamp_d4;\n\t}}\n",
                     parameter, kStampSlots - 1, end ? "\tnot.b64 %stamp_d4, %stamp_d4;\n" : "", end ? 8 : 0);
}

std::string_view trimmed(std::string_view s) {
  size_t a = s.find_first_not_of(" \t"), b = s.find_last_not_of(" \t\r");
  return a == s.npos ? std::string_view() : s.substr(a, b - a + 1);
}

} // namespace

Result<std::string> stamped_ptx(std::string_view ptx) {
  constexpr std::string_view kEntry = ".entry ";
  std::string out, parameter, name;
  enum { Outside, Parameters, Attributes, Body } where = Outside;
  int64_t depth = 0;
  bool any = false; // the entry has parameters of its own
  for (size_t at = 0; at < ptx.size();) {
    size_t stop = std::min(ptx.find('\n', at), ptx.size());
    std::string line(ptx.substr(at, stop - at));
    at = stop + 1;
    std::string_view text = trimmed(line);
    bool comment = text.starts_with("//");
    if (where == Outside && !comment && text.find(kEntry) != text.npos) {
      size_t begin = line.find(kEntry) + kEntry.size(), paren = line.find('(', begin);
      name = trimmed(std::string_view(line).substr(begin, std::min(paren, line.size()) - begin));
      parameter = name + "_stamps";
      line.insert(begin + name.size(), kStampedSuffix);
      where = Parameters;
      any = false;
    }
    if (where == Parameters) {
      any |= line.find(".param") != line.npos;
      if (size_t close = line.rfind(')'); close != line.npos) {
        line.insert(close, fmt::format("{}\t.param .u64 {}\n", any ? ",\n" : "\n", parameter));
        if (any && !out.empty() && out.back() == '\n' && line.starts_with(",")) out.pop_back(); // the comma ends a line
        where = Attributes;
      }
      out += line + '\n';
      continue;
    }
    if (where == Attributes || where == Body) {
      if (where == Body && (text == "ret;" || text == "exit;")) out += stamp(parameter, true);
      bool ends = text.ends_with("ret;") || text.ends_with("exit;");
      if (where == Body && !comment && ends && text.starts_with("@"))
        return failure("`{}` ends under a predicate: `{}`", name, text);
      out += line + '\n';
      if (comment) continue;
      for (char c : text) depth += c == '{' ? 1 : c == '}' ? -1 : 0;
      if (where == Attributes && depth > 0) {
        out += stamp(parameter, false);
        where = Body;
      } else if (where == Body && depth == 0) {
        where = Outside;
      }
      continue;
    }
    out += line + '\n';
  }
  TKC_CHECK(where == Outside, "the PTX of `{}` does not end", name);
  return out;
}

Result<Stamp> read_stamp(std::span<const uint8_t> table) {
  TKC_CHECK(int64_t(table.size()) == kStampBytes, "{} bytes of stamps", table.size());
  uint64_t begin = UINT64_MAX, end = UINT64_MAX;
  for (int64_t i = 0; i < kStampSlots; i++) {
    uint64_t pair[2];
    std::memcpy(pair, table.data() + 16 * i, sizeof pair);
    begin = std::min(begin, pair[0]);
    end = std::min(end, pair[1]);
  }
  if (begin == UINT64_MAX || end == UINT64_MAX) return failure("a launch has left no stamps");
  return Stamp{begin, ~end};
}

Breakdown breakdown_of(const std::vector<std::vector<Stamp>> &stamps, const std::vector<std::string> &names) {
  TKC_CHECK(stamps.size() >= 2 && !names.empty(), "{} calls of {} launches", stamps.size(), names.size());
  Breakdown out;
  std::vector<size_t> part;
  for (const std::string &name : names) {
    auto it = std::find_if(out.parts.begin(), out.parts.end(), [&](const BenchPart &p) { return p.kernel == name; });
    if (it == out.parts.end()) it = out.parts.insert(out.parts.end(), {name});
    it->launches++;
    part.push_back(size_t(it - out.parts.begin()));
  }
  uint64_t frontier = 0; // everything so far has ended by then
  for (const Stamp &s : stamps[0]) frontier = std::max(frontier, s.end);
  double unit = 1e-9 / double(stamps.size() - 1), gaps = 0;
  for (size_t call = 1; call < stamps.size(); call++) {
    TKC_CHECK(stamps[call].size() == names.size(), "{} stamps of {} launches", stamps[call].size(), names.size());
    std::vector<size_t> order(names.size());
    for (size_t n = 0; n < order.size(); n++) order[n] = n;
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return stamps[call][a].begin < stamps[call][b].begin; });
    for (size_t n : order) {
      const Stamp &s = stamps[call][n];
      BenchPart &p = out.parts[part[n]];
      uint64_t end = std::max(s.begin, s.end);
      double gap = s.begin > frontier ? double(s.begin - frontier) * unit : 0;
      uint64_t from = std::max(frontier, s.begin);
      p.seconds += double(end - s.begin) * unit;
      p.gap += gap;
      p.exposed += end > from ? double(end - from) * unit : 0;
      gaps += gap;
      frontier = std::max(frontier, end);
    }
  }
  for (const BenchPart &p : out.parts) out.seconds += p.gap + p.exposed;
  out.idle = out.seconds > 0 ? gaps / out.seconds : 0;
  return out;
}

} // namespace tkc::driver
