#include "syntax/source_text.h"
#include "support/diag_kinds.h"
#include "syntax/parse.h"
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <sys/stat.h>

namespace tkc {

size_t utf8_length(const std::string &s, size_t i) {
  auto byte = [&](size_t k) { return k < s.size() ? uint8_t(s[k]) : uint8_t(0); };
  auto tail = [&](size_t k) { return (byte(k) & 0xc0) == 0x80; };
  uint8_t b = byte(i);
  if (b < 0x80) return 1;
  if (b < 0xc2) return 0;
  if (b < 0xe0) return tail(i + 1) ? 2 : 0;
  if (b < 0xf0) {
    bool odd = (b == 0xe0 && byte(i + 1) < 0xa0) || (b == 0xed && byte(i + 1) >= 0xa0);
    return !odd && tail(i + 1) && tail(i + 2) ? 3 : 0;
  }
  bool odd = b > 0xf4 || (b == 0xf0 && byte(i + 1) < 0x90) || (b == 0xf4 && byte(i + 1) >= 0x90);
  return !odd && tail(i + 1) && tail(i + 2) && tail(i + 3) ? 4 : 0;
}

bool check_bytes(int32_t file, const SourceFile &source, Diagnostics &diagnostics) {
  const std::string &s = source.text();
  if (int64_t(s.size()) > kMaxSourceBytes) {
    diagnostics.report({file, 0, 0}, DiagKind::file_too_large, source.name(), s.size(), kMaxSourceBytes);
    return false;
  }
  for (size_t i = 0; i < s.size();) {
    int32_t at = int32_t(i);
    size_t length = utf8_length(s, i);
    if (s[i] == '\0') {
      diagnostics.report({file, at, at + 1}, DiagKind::nul_byte, i);
      return false;
    }
    if (length == 0) {
      diagnostics.report({file, at, at + 1}, DiagKind::not_utf8, source.name(), fmt::format("{:#04x}", uint8_t(s[i])),
                         i);
      return false;
    }
    i += length;
  }
  return true;
}

std::string ascii_image(const std::string &text) {
  std::string out = text;
  if (out.compare(0, 3, "\xef\xbb\xbf") == 0) out.replace(0, 3, "   ");
  for (char &c : out)
    if (uint8_t(c) >= 0x80) c = '\x7f';
  return out;
}

std::optional<int32_t> read_source(const std::string &path, SourceManager &sources, Diagnostics &diagnostics,
                                   SourceLoc at) {
  bool from_stdin = path == "-";
  std::string name = from_stdin ? "<stdin>" : path;
  auto unreadable = [&](const char *why) {
    diagnostics.report(at, DiagKind::unreadable_file, name, why);
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
    diagnostics.report(at, DiagKind::file_too_large, name, size, kMaxSourceBytes);
    return std::nullopt;
  }
  if (text.empty()) {
    diagnostics.report(at, DiagKind::empty_file, name);
    return std::nullopt;
  }
  return sources.add(std::move(name), std::move(text));
}

} // namespace tkc
