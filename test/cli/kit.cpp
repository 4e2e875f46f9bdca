#include "cli/kit.h"
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <fstream>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

extern char **environ;

namespace tkc::test {

const char *const kScale =
    R"(kernel scale<BN: int = 128>(x: tensor<f32>[N], a: f32, y: out tensor<f32>[N]) grid (cdiv(N, BN)) warps 4 {
    let i = program_id(0) * BN :+ BN;
    store(y[i], load(x[i]) * a);
}
reference scale_ref(x: tensor<f64>[N], a: f64) -> tensor<f64>[N] { return x * a; }
verify scale {
    y = scale_ref(x, a);
    case one: N = 100, a = 2.5;
    case two: N = 1000, a = 0.5;
}
bench scale { case big: N = 1000, a = 2.0; bytes = 8 * N; }
)";

const char *const kWrong = R"(kernel wrong(x: tensor<f32>[N], y: out tensor<f32>[N]) grid (1) warps 1 {
    store(y[0 :+ 32], load(x[0 :+ 32]) + 1.0);
}
reference ref(x: tensor<f64>[N]) -> tensor<f64>[N] { return x; }
verify wrong { y = ref(x); case one: N = 32; locate y: half = N / 16; }
)";

const char *const kSpin = R"(kernel spin(x: tensor<i32>[N], y: out tensor<i32>[N]) grid (1) warps 1 {
    var v = load(x[0]);
    while v < 1000 {
        v = v & 7;
        store(y[0], v);
    }
}
reference ref(x: tensor<f64>[N]) -> tensor<f64>[N] { return x; }
verify spin { y = ref(x); case one: N = 4; case other: N = 5; }
)";

std::string tkc_program() { return std::string(TKC_BINARY_DIR) + "/tkc"; }

std::string read_text(const std::string &path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

bool contains(const std::string &text, const std::string &part) { return text.find(part) != std::string::npos; }

Ran run_program(const std::string &program, const std::vector<std::string> &words, const HowToRun &how) {
  Folder files;
  std::string in = files.write("in", how.input), out = files / "out", err = files / "err";
  std::vector<char *> arguments = {const_cast<char *>(program.c_str())}, environment;
  for (const std::string &w : words) arguments.push_back(const_cast<char *>(w.c_str()));
  arguments.push_back(nullptr);
  for (const std::string &e : how.environment) environment.push_back(const_cast<char *>(e.c_str()));
  for (char **e = environ; *e; e++) environment.push_back(*e);
  environment.push_back(nullptr);
  pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const std::string *paths[] = {&in, &out, &err};
    for (int i = 0; i < 3; i++) {
      int file = ::open(paths[i]->c_str(), i == 0 ? O_RDONLY : O_WRONLY | O_CREAT | O_TRUNC, 0666);
      if (file < 0 || ::dup2(file, i) < 0) ::_exit(126);
    }
    if (!how.folder.empty() && ::chdir(how.folder.c_str()) != 0) ::_exit(126);
    ::execve(program.c_str(), arguments.data(), environment.data());
    ::_exit(127);
  }
  if (how.meanwhile) how.meanwhile(child, out);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  Ran r;
  r.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  r.out = read_text(out);
  r.err = read_text(err);
  return r;
}

Ran run_tkc(const std::vector<std::string> &words, const HowToRun &how) {
  return run_program(tkc_program(), words, how);
}

static void wait_until(const std::function<bool()> &done) {
  for (int i = 0; i < 3000 && !done(); i++) std::this_thread::sleep_for(std::chrono::milliseconds(20));
}
void wait_for_text(const std::string &file, const std::string &text) {
  wait_until([&] { return contains(read_text(file), text); });
}
void wait_for_handler(int pid) {
  wait_until([&] { // this program's own handlers are in the child until it becomes tkc
    std::error_code error;
    if (std::filesystem::read_symlink("/proc/" + std::to_string(pid) + "/exe", error).filename() != "tkc") return false;
    std::string status = read_text("/proc/" + std::to_string(pid) + "/status");
    size_t at = status.find("SigCgt:\t");
    return at == status.npos || std::stoull(status.substr(at + 8), nullptr, 16) >> (SIGINT - 1) & 1;
  });
}

Folder::Folder() {
  std::string name = (std::filesystem::temp_directory_path() / "tkc-cli-XXXXXX").string();
  REQUIRE(::mkdtemp(name.data()));
  path = name;
}
Folder::~Folder() {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

std::string Folder::write(const std::string &name, const std::string &text) const {
  std::filesystem::create_directories((path / name).parent_path());
  std::ofstream(path / name, std::ios::binary) << text;
  return (path / name).string();
}

std::vector<std::string> Folder::files() const {
  std::vector<std::string> out;
  for (const auto &e : std::filesystem::recursive_directory_iterator(path))
    if (!e.is_directory()) out.push_back(std::filesystem::relative(e.path(), path).string());
  std::sort(out.begin(), out.end());
  return out;
}

} // namespace tkc::test
