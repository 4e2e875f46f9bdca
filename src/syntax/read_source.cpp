#include "syntax/parse.h"
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <sys/stat.h>

namespace tkc {

std::optional<int32_t> read_source(const std::string &path, SourceManager &sources, Diagnostics &diagnostics) {
  bool from_stdin = path == "-";
  std::string name = from_stdin ? "<stdin>" : path;
  auto unreadable = [&](const char *why) {
    diagnostics.report({}, DiagKind::unreadable_file, name, why);
    return std::nullopt;
  };
  struct stat info {};
  if (!from_stdin) {
    if (stat(path.c_str(), &info) != 0) return unreadable(std::strerror(errno));
    if (S_ISDIR(info.st_mode)) return unreadable("it is a directory");
  }
  std::FILE *in = from_stdin ? stdin : std::fopen(path.c_str(), "rb");
  if (!in) return unreadable(std::strerror(errno));
  // A pipe has no size: read one byte past the limit, never more.
  std::string text(size_t(kMaxSourceBytes) + 1, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), in));
  bool failed = std::ferror(in) != 0;
  int error = errno;
  if (!from_stdin) std::fclose(in);
  if (failed) return unreadable(std::strerror(error));
  if (int64_t(text.size()) > kMaxSourceBytes) {
    std::string size =
        S_ISREG(info.st_mode) ? fmt::format("{}", info.st_size) : fmt::format("over {}", kMaxSourceBytes);
    diagnostics.report({}, DiagKind::file_too_large, name, size, kMaxSourceBytes);
    return std::nullopt;
  }
  if (text.empty()) {
    diagnostics.report({}, DiagKind::empty_file, name);
    return std::nullopt;
  }
  return sources.add(std::move(name), std::move(text));
}

} // namespace tkc
