#include "golden/golden_case.h"
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <sstream>

namespace tkc::golden {

static constexpr const char *kExpected = "//|", *kDirective = "//! ";

bool Case::has(const std::string &key) const { return !all(key).empty(); }
std::string Case::get(const std::string &key, const std::string &otherwise) const {
  std::vector<std::string> values = all(key);
  return values.empty() ? otherwise : values.back();
}
std::vector<std::string> Case::all(const std::string &key) const {
  std::vector<std::string> out;
  for (const auto &[k, v] : directives)
    if (k == key) out.push_back(v);
  return out;
}

std::optional<Case> read_case(const std::string &path, std::string &problem) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  if (!in) {
    problem = "cannot be read";
    return std::nullopt;
  }
  Case c;
  c.path = path;
  c.name = std::filesystem::path(path).filename().string();
  c.family = std::filesystem::path(path).parent_path().filename().string();
  for (const std::string &line : lines_of(text.str())) {
    if (line.starts_with(kExpected)) {
      std::string shown = line.substr(std::min(line.size(), size_t(line.starts_with("//| ") ? 4 : 3)));
      c.expected = c.expected.value_or("") + shown + "\n";
      continue;
    }
    if (c.expected) {
      problem = "has text after the expected lines";
      return std::nullopt;
    }
    if (line.starts_with(kDirective)) {
      std::string rest = line.substr(4);
      size_t space = std::min(rest.find(' '), rest.size());
      c.directives.emplace_back(rest.substr(0, space), rest.substr(std::min(space + 1, rest.size())));
    }
    c.source += line + "\n";
  }
  // The blank line before the expected lines belongs to the form of the file.
  while (c.source.ends_with("\n\n")) c.source.pop_back();
  return c;
}

std::string with_expected(const Case &c, const std::string &output) {
  std::string out = c.source + "\n";
  for (const std::string &line : lines_of(output)) out += line.empty() ? "//|\n" : fmt::format("//| {}\n", line);
  return out;
}

std::string expanded(const Case &c) {
  if (!c.has("expand")) return c.source;
  const std::string &s = c.source;
  std::string repeated, out;
  for (size_t i = 0; i < s.size(); i++) {
    size_t star = s.find('*', i), end = s.find("}}", i);
    if (s.compare(i, 2, "{{") == 0 && star < end && end != s.npos) {
      std::string piece = s.substr(star + 1, end - star - 1);
      for (long n = std::atol(s.c_str() + i + 2); n > 0; n--) repeated += piece;
      i = end + 1;
    } else {
      repeated += s[i];
    }
  }
  for (size_t i = 0; i < repeated.size(); i++) {
    bool byte = repeated.compare(i, 2, "\\x") == 0 && i + 4 <= repeated.size();
    out += byte ? char(std::strtol(repeated.substr(i + 2, 2).c_str(), nullptr, 16)) : repeated[i];
    if (byte) i += 3;
  }
  return out;
}

// The longest common subsequence by the table of Myers' greedy method is not needed: goldens have some hundred lines.
std::string difference(const std::string &expected, const std::string &found, size_t context) {
  std::vector<std::string> a = lines_of(expected), b = lines_of(found);
  size_t head = 0, tail = 0;
  while (head < a.size() && head < b.size() && a[head] == b[head]) head++;
  while (tail + head < a.size() && tail + head < b.size() && a[a.size() - 1 - tail] == b[b.size() - 1 - tail]) tail++;
  size_t n = a.size() - head - tail, m = b.size() - head - tail;
  struct Edit {
    char mark;
    std::string line;
  };
  std::vector<Edit> edits;
  for (size_t i = 0; i < head; i++) edits.push_back({' ', a[i]});
  if (n * m > size_t(16) << 20) { // two unrelated texts
    for (size_t i = 0; i < n; i++) edits.push_back({'-', a[head + i]});
    for (size_t j = 0; j < m; j++) edits.push_back({'+', b[head + j]});
  } else {
    std::vector<std::vector<uint32_t>> common(n + 1, std::vector<uint32_t>(m + 1, 0));
    for (size_t i = n; i-- > 0;)
      for (size_t j = m; j-- > 0;)
        common[i][j] =
            a[head + i] == b[head + j] ? common[i + 1][j + 1] + 1 : std::max(common[i + 1][j], common[i][j + 1]);
    for (size_t i = 0, j = 0; i < n || j < m;) {
      if (i < n && j < m && a[head + i] == b[head + j]) {
        edits.push_back({' ', a[head + i]});
        i++, j++;
      } else if (i < n && (j == m || common[i + 1][j] >= common[i][j + 1])) {
        edits.push_back({'-', a[head + i++]});
      } else {
        edits.push_back({'+', b[head + j++]});
      }
    }
  }
  for (size_t i = a.size() - tail; i < a.size(); i++) edits.push_back({' ', a[i]});
  std::vector<bool> shown(edits.size());
  for (size_t i = 0; i < edits.size(); i++)
    if (edits[i].mark != ' ')
      for (size_t k = i - std::min(i, context); k <= i + context && k < edits.size(); k++) shown[k] = true;
  std::string out;
  bool gap = false;
  for (size_t i = 0; i < edits.size(); i++) {
    if (!shown[i]) {
      gap = true;
      continue;
    }
    if (gap) out += "...\n";
    gap = false;
    out += edits[i].mark;
    out += edits[i].line.empty() ? "\n" : " " + edits[i].line + "\n";
  }
  return out;
}

} // namespace tkc::golden
