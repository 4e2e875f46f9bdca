// Source text and positions in it.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tkc {

// A byte range of one file. `file` indexes SourceManager; an invalid location (file < 0) prints without a line.
struct SourceLoc {
  int32_t file = -1;
  int32_t begin = 0, end = 0;
  bool valid() const { return file >= 0; }
};

struct LineColumn {
  int64_t line = 0, column = 0; // both from 1; the column counts UTF-8 characters
};

class SourceFile {
public:
  SourceFile(std::string name, std::string text);
  const std::string &name() const { return name_; }
  const std::string &text() const { return text_; }
  LineColumn position(int32_t offset) const;
  std::string_view line(int64_t number) const; // without the end of line

private:
  std::string name_, text_;
  std::vector<int32_t> line_starts_;
};

// Owns every file of one compilation: the user's, its imports, and the embedded standard library.
class SourceManager {
public:
  int32_t add(std::string name, std::string text);
  const SourceFile &file(int32_t id) const { return *files_[id]; }
  int32_t count() const { return int32_t(files_.size()); }
  std::string describe(SourceLoc loc) const; // "file:line:col", or "" for an invalid location
  std::string_view text(SourceLoc loc) const;

private:
  std::vector<std::unique_ptr<SourceFile>> files_;
};

} // namespace tkc
