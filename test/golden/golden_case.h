// One golden test is one file: directives, source text and, as its last lines, what tkc must make of it.
//
//   // What the case shows.
//   //! param N=4            directives, one a line, before the source or between its lines
//   kernel k ...
//
//   //| expected output      written by `scripts/test --update`
//
// The name starts with `fail_` if, and only if, the case ends in an error.
#pragma once
#include "lines.h"
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tkc::golden {

struct Case {
  std::string path;   // of the file
  std::string family; // the folder that it lies in
  std::string name;   // of the file, with .tk
  std::string source; // the file up to the expected lines
  std::vector<std::pair<std::string, std::string>> directives;
  std::optional<std::string> expected; // without the marks; null: the file has none

  bool fails() const { return name.rfind("fail_", 0) == 0; }
  bool has(const std::string &key) const;
  std::string get(const std::string &key, const std::string &otherwise = "") const;
  std::vector<std::string> all(const std::string &key) const;
};

// Text after the first expected line that is no expected line is an error, which `problem` then names.
std::optional<Case> read_case(const std::string &path, std::string &problem);
// The file with `output` as its expected lines.
std::string with_expected(const Case &c, const std::string &output);

// With the directive `expand`, `\xHH` in the source is a byte and `{{N*TEXT}}` is TEXT N times over.
std::string expanded(const Case &c);

// Lines that differ, with two lines of context, as `diff -u` shows them.
std::string difference(const std::string &expected, const std::string &found, size_t context = 2);

} // namespace tkc::golden
