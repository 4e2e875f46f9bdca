#include "support/source.h"
#include "support/check.h"
#include <algorithm>
#include <fmt/format.h>

namespace tkc {

SourceFile::SourceFile(std::string name, std::string text) : name_(std::move(name)), text_(std::move(text)) {
  line_starts_.push_back(0);
  for (size_t i = 0; i < text_.size(); i++)
    if (text_[i] == '\n') line_starts_.push_back(int32_t(i + 1));
}

LineColumn SourceFile::position(int32_t offset) const {
  offset = std::clamp<int32_t>(offset, 0, int32_t(text_.size()));
  int64_t line = std::upper_bound(line_starts_.begin(), line_starts_.end(), offset) - line_starts_.begin();
  int64_t column = 1;
  for (int32_t i = line_starts_[line - 1]; i < offset; i++)
    if ((uint8_t(text_[i]) & 0xc0) != 0x80) column++;
  return {line, column};
}

std::string_view SourceFile::line(int64_t number) const {
  if (number < 1 || number > int64_t(line_starts_.size())) return {};
  size_t begin = line_starts_[number - 1], end = text_.find('\n', begin);
  std::string_view text = std::string_view(text_).substr(begin, end == std::string::npos ? end : end - begin);
  if (!text.empty() && text.back() == '\r') text.remove_suffix(1);
  return text;
}

int32_t SourceManager::add(std::string name, std::string text) {
  files_.push_back(std::make_unique<SourceFile>(std::move(name), std::move(text)));
  return int32_t(files_.size()) - 1;
}

std::string SourceManager::describe(SourceLoc loc) const {
  if (!loc.valid()) return "";
  LineColumn at = file(loc.file).position(loc.begin);
  return fmt::format("{}:{}:{}", file(loc.file).name(), at.line, at.column);
}

std::string_view SourceManager::text(SourceLoc loc) const {
  if (!loc.valid()) return {};
  return std::string_view(file(loc.file).text()).substr(loc.begin, loc.end - loc.begin);
}

} // namespace tkc
