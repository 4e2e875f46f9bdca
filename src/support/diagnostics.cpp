#include "support/diagnostics.h"
#include "support/diag_kinds.h"
#include "support/json.h"
#include <algorithm>

namespace tkc {

static constexpr DiagInfo kInfos[] = {
#define TKC_DIAG(kind, severity, text) {#kind, Severity::severity, text},
#include "support/diagnostics.def"
#undef TKC_DIAG
};

const DiagInfo &diag_info(DiagKind kind) { return kInfos[int(kind)]; }
int64_t diag_kind_count() { return int64_t(std::size(kInfos)); }

// The registry spells kinds as C++ identifiers; users read kebab-case.
static std::string kebab(const char *name) {
  std::string out;
  for (const char *p = name; *p; p++) out += *p == '_' ? '-' : *p;
  return out;
}

static const char *severity_name(Severity s) {
  switch (s) {
  case Severity::Error: return "error";
  case Severity::Warning: return "warning";
  case Severity::Remark: return "remark";
  case Severity::Note: return "note";
  }
  return "";
}

Diagnostic &Diagnostics::add(Diagnostic d) {
  if (d.severity == Severity::Error) errors_++;
  list_.push_back(std::move(d));
  return list_.back();
}

static std::string caret_lines(const SourceManager &sources, SourceLoc loc) {
  const SourceFile &file = sources.file(loc.file);
  LineColumn begin = file.position(loc.begin), end = file.position(std::max(loc.begin, loc.end));
  std::string_view line = file.line(begin.line);
  // A generated file may be one line of megabytes: a window around the place is shown.
  constexpr int64_t kWidest = 160, kBefore = 60;
  int64_t first = int64_t(line.size()) > kWidest && begin.column > kWidest ? begin.column - kBefore : 1;
  std::string shown = first > 1 ? "..." : "", marks(shown.size(), ' ');
  int64_t column = 0, last = end.line == begin.line ? std::max(end.column - 1, begin.column) : INT64_MAX;
  for (size_t i = 0; i < line.size() && column < first + kWidest; i++) {
    char c = line[i];
    bool starts = (uint8_t(c) & 0xc0) != 0x80;
    if (starts && ++column == first + kWidest) break;
    if (column < first) continue;
    shown += uint8_t(c) < 0x20 && c != '\t' ? ' ' : c;
    if (starts)
      marks += column == begin.column ? '^' : column > begin.column && column <= last ? '~' : c == '\t' ? '\t' : ' ';
  }
  if (begin.column > column) marks += std::string(size_t(begin.column - column - 1), ' ') + '^';
  while (!marks.empty() && marks.back() == ' ') marks.pop_back();
  return fmt::format("  {}\n  {}\n", shown, marks);
}

std::string Diagnostics::render(const Diagnostic &d) const {
  std::string at = sources_.describe(d.loc);
  std::string out = fmt::format("{}{}: {} [{}]\n", at.empty() ? "" : at + ": ", severity_name(d.severity), d.text,
                                kebab(diag_info(d.kind).name));
  if (d.loc.valid()) out += caret_lines(sources_, d.loc);
  for (const Diagnostic::Note &note : d.notes) {
    std::string where = sources_.describe(note.loc);
    out += fmt::format("{}note: {}\n", where.empty() ? "" : where + ": ", note.text);
  }
  return out;
}

std::vector<Diagnostic> Diagnostics::sorted() const {
  std::vector<Diagnostic> out = list_;
  std::stable_sort(out.begin(), out.end(), [](const Diagnostic &a, const Diagnostic &b) {
    return std::pair(a.loc.file, a.loc.begin) < std::pair(b.loc.file, b.loc.begin);
  });
  auto same = [](const Diagnostic &a, const Diagnostic &b) {
    return a.loc.file == b.loc.file && a.loc.begin == b.loc.begin && a.kind == b.kind && a.text == b.text;
  };
  out.erase(std::unique(out.begin(), out.end(), same), out.end());
  return out;
}

std::string Diagnostics::render_all() const {
  std::string out;
  for (const Diagnostic &d : sorted()) out += render(d);
  return out;
}

std::string Diagnostics::render_json() const {
  Json list = Json::array();
  auto place = [&](Json &j, SourceLoc loc) {
    if (!loc.valid()) return;
    const SourceFile &file = sources_.file(loc.file);
    LineColumn b = file.position(loc.begin), e = file.position(loc.end);
    j.set("file", file.name())
        .set("line", b.line)
        .set("column", b.column)
        .set("endLine", e.line)
        .set("endColumn", e.column);
  };
  for (const Diagnostic &d : sorted()) {
    Json j = Json::object();
    j.set("severity", severity_name(d.severity)).set("kind", kebab(diag_info(d.kind).name)).set("message", d.text);
    place(j, d.loc);
    if (!d.notes.empty()) {
      Json notes = Json::array();
      for (const Diagnostic::Note &n : d.notes) {
        Json note = Json::object();
        note.set("message", n.text);
        place(note, n.loc);
        notes.push(std::move(note));
      }
      j.set("notes", std::move(notes));
    }
    list.push(std::move(j));
  }
  return Json::object().set("diagnostics", std::move(list)).dump() + "\n";
}

std::string counted(int64_t n, const char *noun) {
  const char *plural = std::string_view(noun).ends_with("ch") ? "es" : "s"; // launches
  return fmt::format("{} {}{}", n, noun, n == 1 ? "" : plural);
}

// Insertions, deletions, replacements and swaps of neighbours: the commonest slip of the fingers counts once.
static int64_t edit_distance(const std::string &a, const std::string &b) {
  // Rows of the table for the prefixes of `a` that end two before, one before and at i.
  std::vector<int64_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); j++) row[j] = int64_t(j);
  for (size_t i = 1; i <= a.size(); i++) {
    std::swap(before, last);
    std::swap(last, row);
    row[0] = int64_t(i);
    for (size_t j = 1; j <= b.size(); j++) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

std::string nearest_name(const std::string &name, const std::vector<std::string> &candidates) {
  std::string best;
  // A name of one letter is near to none: every other letter would do.
  int64_t best_distance = std::min(std::max<int64_t>(1, int64_t(name.size()) / 3), int64_t(name.size()) - 1) + 1;
  for (const std::string &c : candidates) {
    int64_t d = edit_distance(name, c);
    if (d < best_distance) {
      best = c;
      best_distance = d;
    }
  }
  return best;
}

} // namespace tkc
