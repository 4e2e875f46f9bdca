#include "golden/ptx_text.h"
#include "golden/golden_case.h"
#include <algorithm>
#include <cctype>
#include <fmt/format.h>
#include <functional>
#include <set>

namespace tkc::golden {

// One blank for any run of blanks, no comment, nothing at the ends.
static std::string tidy(const std::string &line) {
  std::string out;
  for (size_t i = 0; i < line.size() && line.compare(i, 2, "//") != 0; i++) {
    bool blank = line[i] == ' ' || line[i] == '\t';
    if (!blank)
      out += line[i];
    else if (!out.empty() && out.back() != ' ')
      out += ' ';
  }
  while (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

std::vector<PtxEntry> ptx_entries(const std::string &ptx) {
  std::vector<PtxEntry> out;
  bool inside = false, done = true;
  std::string joined; // an instruction that LLVM breaks over several lines
  int64_t depth = 0;
  for (const std::string &raw : lines_of(ptx)) {
    std::string line = tidy(raw);
    size_t entry = line.find(".entry ");
    if (entry != line.npos) {
      std::string name = line.substr(entry + 7);
      out.push_back({name.substr(0, name.find_first_of("( ")), {}});
      inside = false, done = false;
      continue;
    }
    if (done || line.empty()) continue;
    if (!inside) { // the parameters and the directives of the entry
      if (line == "{")
        inside = true, depth = 1;
      else if (line[0] == '.' && line.rfind(".param", 0) != 0)
        out.back().lines.push_back(line);
      continue;
    }
    for (char ch : line) depth += ch == '{' ? 1 : ch == '}' ? -1 : 0;
    if (depth == 0) {
      done = true;
      continue;
    }
    bool noise = line.rfind(".reg", 0) == 0 || line.rfind(".loc", 0) == 0 || line.rfind(".file", 0) == 0 ||
                 line.rfind(".section", 0) == 0 || line.rfind(".pragma", 0) == 0;
    if (noise && joined.empty() && depth == 1) continue;
    joined += (joined.empty() ? "" : " ") + line;
    bool whole = joined.back() == ';' || joined.back() == ':' || joined.back() == '{' || joined.back() == '}';
    if (!whole) continue;
    if (joined.back() == ':' && joined.rfind("$L__func", 0) == 0) joined.clear();
    if (joined.rfind("$L__tmp", 0) == 0) joined.clear();
    if (!joined.empty()) out.back().lines.push_back(joined);
    joined.clear();
  }
  return out;
}

static bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '.'; }

std::vector<std::string> renumbered(const std::vector<std::string> &lines) {
  std::map<std::string, std::string> names;
  std::map<std::string, int64_t> next;
  auto number = [&](const std::string &word) -> std::string {
    bool label = word[0] == '$';
    std::string prefix = "$";
    if (!label) {
      size_t digits = word.size();
      while (digits > 1 && std::isdigit(static_cast<unsigned char>(word[digits - 1]))) digits--;
      if (digits == word.size()) return word; // %tid.x, %SP
      prefix = word.substr(0, digits);
    }
    auto [it, fresh] = names.emplace(word, "");
    if (fresh) it->second = fmt::format("{}{}", prefix, ++next[prefix]);
    return it->second;
  };
  std::vector<std::string> out;
  for (const std::string &line : lines) {
    std::string text;
    for (size_t i = 0; i < line.size();) {
      bool starts = line[i] == '%' || (line[i] == '$' && line.compare(i, 3, "$L_") == 0);
      if (!starts) {
        text += line[i++];
        continue;
      }
      size_t end = i + 1;
      while (end < line.size() && is_word(line[end])) end++;
      text += number(line.substr(i, end - i));
      i = end;
    }
    out.push_back(text);
  }
  return out;
}

std::string opcode(const std::string &line) {
  size_t at = 0;
  if (line.empty() || line.back() == ':' || line[0] == '.') return "";
  if (line[0] == '{' || line[0] == '}') return "";
  if (line[0] == '@') at = line.find(' ') + 1;
  return line.substr(at, line.find_first_of(" ;", at) - at);
}

Histogram histogram(const std::vector<std::string> &lines) {
  Histogram out;
  for (const std::string &line : lines)
    if (std::string op = opcode(line); !op.empty()) out[op]++;
  return out;
}

namespace {

// The basic blocks of an entry, and where each goes on.
struct Flow {
  std::vector<std::pair<size_t, size_t>> lines; // of a block: from, behind
  std::vector<std::vector<size_t>> next, before;

  explicit Flow(const PtxEntry &e) {
    std::map<std::string, size_t> labels;
    auto ends = [](const std::string &line) {
      std::string op = opcode(line);
      return op.rfind("bra", 0) == 0 || op == "ret" || op == "exit" || op == "trap";
    };
    for (size_t i = 0; i < e.lines.size(); i++) {
      bool label = e.lines[i].back() == ':';
      if (lines.empty() || label || ends(e.lines[i - 1])) lines.emplace_back(i, i);
      if (label) labels[e.lines[i].substr(0, e.lines[i].size() - 1)] = lines.size() - 1;
      lines.back().second = i + 1;
    }
    next.resize(lines.size()), before.resize(lines.size());
    auto edge = [&](size_t from, size_t to) {
      if (to < lines.size()) next[from].push_back(to), before[to].push_back(from);
    };
    for (size_t b = 0; b < lines.size(); b++) {
      const std::string &last = e.lines[lines[b].second - 1];
      if (size_t at = last.find('$'); opcode(last).rfind("bra", 0) == 0 && at != last.npos)
        edge(b, labels.at(last.substr(at, last.find_first_of("; ", at) - at)));
      if (!ends(last) || last[0] == '@') edge(b, b + 1);
    }
  }

  // Heads of loops, each with the blocks of its loop.
  std::map<size_t, std::set<size_t>> loops() const {
    std::map<size_t, std::set<size_t>> out;
    std::vector<int> state(lines.size(), 0); // 1: on the way to the block at hand, 2: done
    std::function<void(size_t)> visit = [&](size_t b) {
      state[b] = 1;
      for (size_t to : next[b]) {
        if (state[to] == 0) visit(to);
        if (state[to] == 1) collect(b, out.try_emplace(to, std::set<size_t>{to}).first->second);
      }
      state[b] = 2;
    };
    if (!lines.empty()) visit(0);
    return out;
  }

private:
  void collect(size_t b, std::set<size_t> &loop) const {
    if (!loop.insert(b).second) return;
    for (size_t from : before[b]) collect(from, loop);
  }
};

} // namespace

std::vector<std::string> steady_loop(const PtxEntry &e) {
  Flow flow(e);
  auto text = [&](const std::set<size_t> &blocks) {
    std::vector<std::string> out;
    for (size_t b : blocks)
      out.insert(out.end(), e.lines.begin() + long(flow.lines[b].first), e.lines.begin() + long(flow.lines[b].second));
    return out;
  };
  std::map<size_t, std::set<size_t>> loops = flow.loops();
  std::erase_if(loops, [&](const auto &l) { // those that only poll a barrier
    std::vector<std::string> lines = text(l.second);
    return lines.size() <= 4 && std::any_of(lines.begin(), lines.end(),
                                            [](const std::string &line) { return line.find("_wait.") != line.npos; });
  });
  std::vector<std::string> best;
  for (const auto &[head, blocks] : loops) {
    bool inner = std::none_of(loops.begin(), loops.end(), [&, h = head, &body = blocks](const auto &o) {
      return o.first != h && body.count(o.first);
    });
    if (!inner) continue;
    if (std::vector<std::string> lines = text(blocks); lines.size() > best.size()) best = std::move(lines);
  }
  return best;
}

std::string table(const std::vector<std::string> &titles, const std::vector<Histogram> &columns) {
  std::vector<std::string> rows;
  size_t width = 11;
  for (const Histogram &h : columns)
    for (const auto &[op, n] : h) {
      rows.push_back(op);
      width = std::max(width, op.size());
    }
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  std::string out = fmt::format("{:<{}}", "instruction", width);
  for (const std::string &t : titles) out += fmt::format("  {:>6}", t);
  out += "\n";
  for (const std::string &op : rows) {
    out += fmt::format("{:<{}}", op, width);
    for (const Histogram &h : columns) {
      auto it = h.find(op);
      out += fmt::format("  {:>6}", it == h.end() ? "." : std::to_string(it->second));
    }
    out += "\n";
  }
  return out;
}

} // namespace tkc::golden
