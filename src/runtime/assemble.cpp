#include "runtime/assemble.h"
#include "runtime/file_io.h"
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <optional>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

namespace tkc {

std::string_view assembler_name(Assembler a) {
  switch (a) {
  case Assembler::Any: return "any";
  case Assembler::NvJitLink: return "nvJitLink";
  case Assembler::Ptxas: return "ptxas";
  }
  return "";
}

const KernelUsage *Assembled::find(std::string_view kernel) const {
  for (const KernelUsage &k : kernels)
    if (k.name == kernel) return &k;
  return nullptr;
}

// ---- the log

// The number before `unit` in "..., 12 bytes spill stores, ...", or nothing.
static std::optional<int64_t> number_before(std::string_view line, std::string_view unit) {
  size_t at = line.find(unit);
  if (at == std::string_view::npos) return std::nullopt;
  size_t begin = at;
  while (begin > 0 && line[begin - 1] >= '0' && line[begin - 1] <= '9') begin--;
  int64_t value;
  if (std::from_chars(line.data() + begin, line.data() + at, value).ec != std::errc()) return std::nullopt;
  return value;
}

// "ptxas info    : Compiling entry function 'k' for 'sm_90'", then "Function properties for k" and "0 bytes stack
// frame, .." (functions that are no entries have these two as well), then "Used 9 registers, used 1 barriers, 64 bytes
// smem". nvJitLink adds a summary of its own in lower case, whose shared memory contains the reserved part; it is not
// read.
std::vector<KernelUsage> parse_assembler_log(std::string_view log) {
  std::vector<KernelUsage> kernels;
  std::string properties_of;
  auto current = [&]() -> KernelUsage * {
    for (KernelUsage &k : kernels)
      if (k.name == properties_of) return &k;
    return nullptr;
  };
  for (size_t at = 0; at < log.size();) {
    size_t end = std::min(log.find('\n', at), log.size());
    std::string_view line = log.substr(at, end - at);
    at = end + 1;
    auto after = [&](std::string_view words) -> std::optional<std::string_view> {
      size_t p = line.find(words);
      if (p == std::string_view::npos) return std::nullopt;
      return line.substr(p + words.size());
    };
    if (auto rest = after("Compiling entry function '")) {
      std::string name(rest->substr(0, rest->find('\'')));
      properties_of = name;
      kernels.push_back({});
      kernels.back().name = name;
    } else if (auto name = after("Function properties for ")) {
      properties_of = std::string(*name);
      if (!name->empty() && name->front() == '\'') break; // the summary
    } else if (KernelUsage *k = current()) {
      if (auto n = number_before(line, " bytes stack frame")) k->stack = *n;
      if (auto n = number_before(line, " bytes spill stores")) k->spill_stores = *n;
      if (auto n = number_before(line, " bytes spill loads")) k->spill_loads = *n;
      if (line.find("Used ") == std::string_view::npos) continue;
      if (auto n = number_before(line, " registers")) k->registers = *n;
      if (auto n = number_before(line, " barriers")) k->barriers = *n;
      if (auto n = number_before(line, " bytes smem")) k->static_shared = *n;
      if (auto n = number_before(line, " bytes lmem")) k->stack = std::max(k->stack, *n);
      if (auto n = number_before(line, " bytes cumulative stack size")) k->stack = std::max(k->stack, *n);
    }
  }
  return kernels;
}

// ---- nvJitLink

namespace {
struct NvJitLink {
  using Handle = struct HandleTag *;
  int (*create)(Handle *, uint32_t, const char *const *) = nullptr;
  int (*destroy)(Handle *) = nullptr;
  int (*add_data)(Handle, int, const void *, size_t, const char *) = nullptr;
  int (*complete)(Handle) = nullptr;
  int (*cubin_size)(Handle, size_t *) = nullptr;
  int (*cubin)(Handle, void *) = nullptr;
  int (*error_size)(Handle, size_t *) = nullptr;
  int (*error_log)(Handle, char *) = nullptr;
  int (*info_size)(Handle, size_t *) = nullptr;
  int (*info_log)(Handle, char *) = nullptr;
};
constexpr int kInputPtx = 2;

Result<NvJitLink> load_nvjitlink() {
  const char *names[] = {"libnvJitLink.so.13", "libnvJitLink.so.12", "/usr/local/cuda/lib64/libnvJitLink.so.13",
                         "/usr/local/cuda/lib64/libnvJitLink.so.12"};
  void *library = nullptr;
  for (const char *name : names)
    if (!library) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (!library) return failure("libnvJitLink.so.13 and .12 do not load");
  NvJitLink f;
  bool complete = true;
  auto find = [&](const char *symbol, auto &to) {
    to = reinterpret_cast<std::remove_reference_t<decltype(to)>>(dlsym(library, symbol));
    complete &= to != nullptr;
  };
  find("nvJitLinkCreate", f.create);
  find("nvJitLinkDestroy", f.destroy);
  find("nvJitLinkAddData", f.add_data);
  find("nvJitLinkComplete", f.complete);
  find("nvJitLinkGetLinkedCubinSize", f.cubin_size);
  find("nvJitLinkGetLinkedCubin", f.cubin);
  find("nvJitLinkGetErrorLogSize", f.error_size);
  find("nvJitLinkGetErrorLog", f.error_log);
  find("nvJitLinkGetInfoLogSize", f.info_size);
  find("nvJitLinkGetInfoLog", f.info_log);
  if (!complete) return failure("libnvJitLink lacks functions that tkc needs");
  return f;
}

const Result<NvJitLink> &nvjitlink() { // loading takes 30 ms: once a process
  static const Result<NvJitLink> the_library = load_nvjitlink();
  return the_library;
}

std::string trimmed(std::string s) {
  s.resize(strnlen(s.data(), s.size()));
  while (!s.empty() && (s.back() == '\n' || s.back() == ' ')) s.pop_back();
  return s;
}

Result<Assembled> assemble_by_nvjitlink(std::string_view ptx, const AssembleOptions &o) {
  const Result<NvJitLink> &library = nvjitlink();
  if (!library) return library.failed();
  const NvJitLink &f = *library;
  std::vector<std::string> words = {"-arch=" + o.arch, "-verbose"};
  if (o.max_registers > 0) words.push_back(fmt::format("-maxrregcount={}", o.max_registers));
  std::vector<const char *> options;
  for (const std::string &w : words) options.push_back(w.c_str());
  NvJitLink::Handle handle = nullptr;
  if (int code = f.create(&handle, uint32_t(options.size()), options.data()); code != 0)
    return failure("nvJitLink does not accept the target {} (error {})", o.arch, code);
  auto log = [&](auto size_of, auto read) {
    size_t size = 0;
    if (size_of(handle, &size) != 0 || size == 0) return std::string();
    std::string text(size + 1, '\0');
    return read(handle, text.data()) == 0 ? trimmed(std::move(text)) : std::string();
  };
  Assembled out;
  out.by = Assembler::NvJitLink;
  int code = f.add_data(handle, kInputPtx, ptx.data(), ptx.size(), "tkc.ptx");
  if (code == 0) code = f.complete(handle);
  out.log = log(f.info_size, f.info_log);
  std::string errors = log(f.error_size, f.error_log);
  size_t size = 0;
  if (code == 0) code = f.cubin_size(handle, &size);
  if (code == 0) {
    out.cubin.resize(size);
    code = f.cubin(handle, out.cubin.data());
  }
  f.destroy(&handle);
  if (code != 0) return failure("nvJitLink does not assemble the PTX (error {})\n{}", code, errors);
  if (!errors.empty()) out.log = errors + "\n" + out.log; // warnings
  out.kernels = parse_assembler_log(out.log);
  return out;
}

// ---- ptxas

std::optional<std::string> find_ptxas() {
  std::vector<std::string> folders;
  if (const char *path = std::getenv("PATH")) {
    std::string_view rest = path;
    while (true) {
      size_t colon = rest.find(':');
      folders.emplace_back(rest.substr(0, colon));
      if (colon == std::string_view::npos) break;
      rest.remove_prefix(colon + 1);
    }
  }
  for (const char *variable : {"CUDA_HOME", "CUDA_PATH"})
    if (const char *folder = std::getenv(variable)) folders.push_back(std::string(folder) + "/bin");
  folders.push_back("/usr/local/cuda/bin");
  for (const std::string &folder : folders) {
    if (folder.empty()) continue;
    std::string program = folder + "/ptxas";
    if (::access(program.c_str(), X_OK) == 0) return program;
  }
  return std::nullopt;
}

// Runs a program to its end and returns its exit status and what it printed to either stream.
Result<std::pair<int, std::string>> run_program(const std::vector<std::string> &words) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return failure("cannot run {}: {}", words[0], std::strerror(errno));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
  std::vector<char *> arguments;
  for (const std::string &w : words) arguments.push_back(const_cast<char *>(w.c_str()));
  arguments.push_back(nullptr);
  pid_t child = 0;
  int code = ::posix_spawn(&child, words[0].c_str(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  std::string output;
  char block[4096];
  while (code == 0) {
    ssize_t n = ::read(ends[0], block, sizeof block);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    output.append(block, size_t(n));
  }
  ::close(ends[0]);
  if (code != 0) return failure("cannot run {}: {}", words[0], std::strerror(code));
  int status = 0;
  while (::waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return failure("lost {}: {}", words[0], std::strerror(errno));
  return std::pair(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), output);
}

Result<Assembled> assemble_by_ptxas(std::string_view ptx, const AssembleOptions &o) {
  std::optional<std::string> program = find_ptxas();
  if (!program) return failure("ptxas is neither in PATH nor in /usr/local/cuda/bin");
  const char *base = std::getenv("TMPDIR");
  std::string folder = fmt::format("{}/tkc-XXXXXX", base && *base ? base : "/tmp");
  if (!::mkdtemp(folder.data())) return failure("cannot make a folder `{}`: {}", folder, std::strerror(errno));
  std::string in = folder + "/tkc.ptx", to = folder + "/tkc.cubin";
  auto attempt = [&]() -> Result<Assembled> {
    TKC_TRY(write_file(in, ptx));
    std::vector<std::string> words = {*program, "-v", "-arch=" + o.arch, in, "-o", to};
    if (o.max_registers > 0) words.push_back(fmt::format("-maxrregcount={}", o.max_registers));
    Result<std::pair<int, std::string>> ran = run_program(words);
    if (!ran) return ran.failed();
    if (ran->first != 0)
      return failure("ptxas does not assemble the PTX (exit status {})\n{}", ran->first, trimmed(ran->second));
    Result<std::vector<uint8_t>> cubin = read_file(to);
    if (!cubin) return cubin.failed();
    Assembled out;
    out.by = Assembler::Ptxas;
    out.cubin = std::move(*cubin);
    out.log = trimmed(ran->second);
    out.kernels = parse_assembler_log(out.log);
    return out;
  };
  Result<Assembled> out = attempt();
  ::unlink(in.c_str());
  ::unlink(to.c_str());
  ::rmdir(folder.c_str());
  return out;
}
} // namespace

Status assembler_available(Assembler a) {
  bool library = a != Assembler::Ptxas && nvjitlink().ok();
  bool program = a != Assembler::NvJitLink && !library && find_ptxas().has_value();
  if (library || program) return {};
  switch (a) {
  case Assembler::NvJitLink: return nvjitlink().failed();
  case Assembler::Ptxas: return failure("ptxas is neither in PATH nor in /usr/local/cuda/bin");
  case Assembler::Any: break;
  }
  return failure("no assembler: {}, and ptxas is neither in PATH nor in /usr/local/cuda/bin", nvjitlink().error());
}

Result<Assembled> assemble(std::string_view ptx, const AssembleOptions &options) {
  TKC_TRY(assembler_available(options.assembler));
  bool library = options.assembler != Assembler::Ptxas && nvjitlink().ok();
  return library ? assemble_by_nvjitlink(ptx, options) : assemble_by_ptxas(ptx, options);
}

} // namespace tkc
