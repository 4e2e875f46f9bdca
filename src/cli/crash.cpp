#include "cli/crash.h"
#include "runtime/file_io.h"
#include "support/check.h"
#include "support/crash_scope.h"
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fcntl.h>
#include <filesystem>
#include <set>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace tkc::cli {

namespace {

std::string the_version, the_folder;
std::vector<std::string> the_words; // of the command line
const SourceManager *the_sources = nullptr;
std::atomic<bool> reporting{false};

void say(const std::string &text) {
  if (::write(STDERR_FILENO, text.data(), text.size()) < 0) return; // there is nobody left to tell
}

// Makes the folders on the way. Whatever fails is left out: the rest of the report is still worth having.
void write_text(const std::string &name, const std::string &text) {
  std::string path = the_folder + "/" + name;
  for (size_t at = the_folder.size() + 1; (at = path.find('/', at)) != path.npos; at++)
    ::mkdir(path.substr(0, at).c_str(), 0777);
  int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) return;
  for (size_t done = 0; done < text.size();) {
    ssize_t n = ::write(file, text.data() + done, text.size() - done);
    if (n <= 0) break;
    done += size_t(n);
  }
  ::close(file);
}

std::string shell_word(const std::string &word) {
  if (!word.empty() &&
      word.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./,:%") == word.npos)
    return word;
  std::string out = "'";
  for (char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

// Names of the sources in the folder. Files keep their places relative to each other, so that imports are found.
std::vector<std::string> kept_names() {
  std::vector<std::string> out;
  std::string common;
  for (int32_t i = 0; i < the_sources->count(); i++) {
    std::string name = the_sources->file(i).name();
    if (name.starts_with("<")) {
      out.push_back(name);
      continue;
    }
    std::error_code error;
    std::string path = std::filesystem::absolute(name, error).lexically_normal().string();
    std::string folder = path.substr(0, path.rfind('/') + 1);
    if (common.empty()) common = folder;
    while (!folder.starts_with(common)) common.resize(common.rfind('/', common.size() - 2) + 1);
    out.push_back(path);
  }
  for (std::string &name : out) {
    if (name == "<stdin>")
      name = "sources/stdin.tk";
    else if (name.starts_with("<")) // the embedded library
      name = "sources/library/" + name.substr(1, name.size() - 2) + ".tk";
    else
      name = "sources/" + name.substr(common.size());
  }
  return out;
}

void write_bundle(const std::string &message) {
  Result<std::string> folder = make_temporary_folder("tkc-crash");
  if (!folder) return say("tkc: no report: " + folder.error() + "\n");
  the_folder = *folder;
  char here[4096] = "";
  if (!::getcwd(here, sizeof here - 1)) here[0] = 0;
  std::string command;
  for (const std::string &w : the_words) command += (command.empty() ? "" : " ") + shell_word(w);
  write_text("report.txt", "message  " + message + "\nversion  " + the_version + "\ncommand  " + command +
                               "\nfolder   " + here + "\n");
  std::vector<std::string> words = the_words;
  if (!words.empty()) words[0] = "${TKC:-tkc}";
  if (the_sources && the_sources->count() > 0) {
    std::vector<std::string> names = kept_names();
    for (size_t i = 0; i < names.size(); i++) write_text(names[i], the_sources->file(int32_t(i)).text());
    const std::string &main = the_sources->file(0).name();
    for (std::string &w : words)
      if (w == main || (w == "-" && main == "<stdin>")) w = names[0];
  }
  std::string rerun = "#!/bin/sh\n# " + the_version + "\ncd \"$(dirname \"$0\")\" && exec";
  for (size_t i = 0; i < words.size(); i++) rerun += " " + (i == 0 ? words[i] : shell_word(words[i]));
  write_text("rerun.sh", rerun + "\n");
  say("tkc: this is a fault of tkc itself; a report with what reproduces it is in " + the_folder + "\n");
  // Last: after a wild write the IR may not be printable any more.
  std::set<std::string> written;
  for (const CrashScope *s = CrashScope::innermost(); s; s = s->outer())
    if (written.insert(s->file_name()).second) write_text(s->file_name(), s->text());
}

// Once a process, by the thread that comes first; a fault of the report itself ends the process.
void report(const std::string &message) {
  if (reporting.exchange(true)) ::_exit(70);
  std::signal(SIGALRM, [](int) { ::_exit(70); });
  ::alarm(20); // a broken heap may be locked
  write_bundle(message);
}

const char *signal_name(int n) {
  switch (n) {
  case SIGSEGV: return "SIGSEGV: access to memory that is not there, or the stack is used up";
  case SIGBUS: return "SIGBUS: access to memory that is not there";
  case SIGFPE: return "SIGFPE: arithmetic error";
  case SIGILL: return "SIGILL: illegal instruction";
  case SIGABRT: return "SIGABRT: aborted";
  }
  return "signal";
}

void on_signal(int number) {
  if (reporting) ::_exit(70);
  std::string message = signal_name(number);
  say("tkc: internal error: " + message + "\n");
  report(message);
  ::_exit(70);
}

[[noreturn]] void on_terminate() {
  std::string message = "uncaught exception";
  if (std::exception_ptr e = std::current_exception()) {
    try {
      std::rethrow_exception(e);
    } catch (const std::bad_alloc &) { message = "out of memory"; } catch (const std::exception &x) {
      message = std::string("uncaught exception: ") + x.what();
    } catch (...) {}
  }
  say("tkc: internal error: " + message + "\n");
  report(message);
  ::_exit(70);
}

volatile int64_t the_sink = 0; // keeps the compiler from removing what fails on purpose
int64_t recurse(int64_t depth) {
  volatile char frame[4096];
  frame[depth % 4096] = char(depth);
  return depth < the_sink ? 0 : recurse(depth + 1) + frame[0];
}

} // namespace

void install_crash_report(int argc, char **argv, const std::string &version) {
  the_version = version;
  the_words.assign(argv, argv + argc);
  set_internal_error_hook([](const std::string &message) { report(message); });
  std::set_terminate(on_terminate);
  static char stack[1 << 20]; // a handler needs one of its own when the stack is used up
  stack_t other = {};
  other.ss_sp = stack;
  other.ss_size = sizeof stack;
  ::sigaltstack(&other, nullptr);
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_ONSTACK | SA_NODEFER;
  for (int n : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) ::sigaction(n, &action, nullptr);
}

void set_crash_sources(const SourceManager *sources) { the_sources = sources; }

const std::vector<std::string> &fault_kinds() {
  static const std::vector<std::string> kinds = {"check", "abort", "exception", "segv", "stack", "llvm"};
  return kinds;
}

void fail_on_purpose(const std::string &kind) {
  if (kind == "check") TKC_UNREACHABLE("a fault was asked for");
  if (kind == "abort") std::abort();
  if (kind == "exception") throw std::runtime_error("a fault was asked for");
  if (kind == "segv") *reinterpret_cast<volatile int *>(the_sink + 8) = 1;
  if (kind == "stack") the_sink = recurse(0);
}

} // namespace tkc::cli
