// What is worth keeping if tkc itself fails: while the object lives, the crash report (cli/crash.h) writes the text
// that it gives into a file of this name. The innermost object of a name wins. The function is called after the fault,
// when little may work: it must only read.
#pragma once
#include <functional>
#include <string>

namespace tkc {

class CrashScope {
public:
  CrashScope(const char *file_name, std::function<std::string()> text);
  ~CrashScope();
  CrashScope(const CrashScope &) = delete;
  CrashScope &operator=(const CrashScope &) = delete;
  // Of this thread, the innermost first.
  static const CrashScope *innermost();
  const CrashScope *outer() const { return outer_; }
  const char *file_name() const { return file_name_; }
  std::string text() const { return text_(); }

private:
  const char *file_name_;
  std::function<std::string()> text_;
  const CrashScope *outer_;
};

} // namespace tkc
