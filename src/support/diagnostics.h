// Diagnostics: what a user did wrong. Kinds are registered in diagnostics.def; each prints as
//   file:line:col: error: text [kind]
// with the source line and a caret, or as JSON. Nothing here ends the process: the caller asks `has_errors()`.
#pragma once
#include "support/source.h"
#include <fmt/format.h>
#include <string>
#include <vector>

namespace tkc {

enum class Severity : uint8_t { Error, Warning, Remark, Note };

enum class DiagKind : uint16_t; // support/diag_kinds.h: a new kind concerns those who report, not all of the compiler

struct DiagInfo {
  const char *name; // kebab-case, as printed in brackets
  Severity severity;
  const char *text; // fmt pattern
};
const DiagInfo &diag_info(DiagKind kind);
int64_t diag_kind_count();

struct Diagnostic {
  DiagKind kind;
  Severity severity;
  SourceLoc loc;
  std::string text;
  struct Note {
    SourceLoc loc;
    std::string text;
  };
  std::vector<Note> notes; // "declared here", call chain of inlined functions
};

class Diagnostics {
public:
  explicit Diagnostics(SourceManager &sources) : sources_(sources) {}

  // Reports one diagnostic; the arguments fill the pattern of the registry. Returns it, so that notes can be added.
  template <typename... Args> Diagnostic &report(SourceLoc loc, DiagKind kind, const Args &...args) {
    return add({kind, diag_info(kind).severity, loc, fmt::format(fmt::runtime(diag_info(kind).text), args...), {}});
  }
  Diagnostic &add(Diagnostic d);
  Diagnostic &last() { return list_.back(); }

  bool has_errors() const { return errors_ > 0; }
  int64_t error_count() const { return errors_; }
  const std::vector<Diagnostic> &all() const { return list_; }
  SourceManager &sources() { return sources_; }
  const SourceManager &sources() const { return sources_; }

  std::string render(const Diagnostic &d) const; // with source line and caret, ends with a newline
  std::string render_all() const;                // sorted by position, duplicates dropped
  std::string render_json() const;               // {"diagnostics": [{file, line, column, endLine, endColumn, ...}]}

private:
  std::vector<Diagnostic> sorted() const;
  SourceManager &sources_;
  std::vector<Diagnostic> list_;
  int64_t errors_ = 0;
};

// "1 name", "3 names"
std::string counted(int64_t n, const char *noun);

// The candidate nearest to `name` by edit distance, or "" if none is near: "did you mean `x`?"
std::string nearest_name(const std::string &name, const std::vector<std::string> &candidates);

} // namespace tkc
