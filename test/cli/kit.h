// Runs build/tkc as a user does and keeps what it says.
#pragma once
#include "runtime/host_tensor.h"
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace tkc::test {

struct Ran {
  int code = -1; // 128 + signal if it was killed
  std::string out, err;
};
struct HowToRun {
  std::string input;                         // standard input
  std::filesystem::path folder;              // working directory; empty: this one
  std::vector<std::string> environment = {}; // NAME=VALUE, added
  std::function<void(int pid, const std::string &out_file)> meanwhile = {};
};
Ran run_program(const std::string &program, const std::vector<std::string> &words, const HowToRun &how = {});
// Waits (a minute at most) until a file has the text, or until the process catches SIGINT.
void wait_for_text(const std::string &file, const std::string &text);
void wait_for_handler(int pid);
Ran run_tkc(const std::vector<std::string> &words, const HowToRun &how = {});
std::string tkc_program();

// A folder of its own, removed at the end.
class Folder {
public:
  Folder();
  ~Folder();
  Folder(const Folder &) = delete;
  Folder &operator=(const Folder &) = delete;
  std::string operator/(const std::string &name) const { return (path / name).string(); }
  std::string write(const std::string &name, const std::string &text) const; // the path
  std::vector<std::string> files() const;                                    // sorted, relative, folders left out
  std::filesystem::path path;
};
std::string read_text(const std::string &path); // "" if there is none
bool contains(const std::string &text, const std::string &part);

extern const char *const kScale; // kernel scale: y = a x, with verify and bench blocks
extern const char *const kWrong; // kernel wrong: its reference differs
extern const char *const kSpin;  // kernel spin: never ends

} // namespace tkc::test
