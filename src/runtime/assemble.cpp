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
// smem". nvJitLink adds a summary in lower case, "info : Function properties for 'k':" and "used 9 registers, used 1
// barriers, 0 stack, 1088 bytes smem, .."; it is read for kernels that ptxas did not name.
std::vector<KernelUsage> parse_assembler_log(std::string_view log) {
  std::vector<KernelUsage> kernels;
  std::string properties_of;
  bool summary = false;
  auto find = [&](std::string_view name) -> KernelUsage * {
    for (KernelUsage &k : kernels)
      if (k.name == name) return &k;
    return nullptr;
  };
  auto add = [&](std::string name) {
    kernels.push_back({});
    kernels.back().name = std::move(name);
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
      properties_of = std::string(rest->substr(0, rest->find('\'')));
      summary = false;
      if (!find(properties_of)) add(properties_of);
    } else if (auto name = after("Function properties for '")) {
      properties_of = std::string(name->substr(0, name->find('\'')));
      summary = find(properties_of) == nullptr;
      if (summary)
        add(properties_of);
      else
        properties_of.clear();
    } else if (auto name = after("Function properties for ")) {
      properties_of = std::string(*name);
      summary = false;
    } else if (KernelUsage *k = find(properties_of)) {
      if (auto n = number_before(line, " bytes stack frame")) k->stack = *n;
      if (auto n = number_before(line, " bytes spill stores")) k->spill_stores = *n;
      if (auto n = number_before(line, " bytes spill loads")) k->spill_loads = *n;
      if (!after(summary ? "used " : "Used ")) continue;
      if (auto n = number_before(line, " registers")) k->registers = *n;
      if (auto n = number_before(line, " barriers")) k->barriers = *n;
      if (auto n = number_before(line, " bytes smem")) k->static_shared = *n;
      if (auto n = number_before(line, " stack")) k->stack = std::max(k->stack, *n);
      if (auto n = number_before(line, " bytes lmem")) k->stack = std::max(k->stack, *n);
      if (auto n = number_before(line, " bytes cumulative stack size")) k->stack = std::max(k->stack, *n);
      if (summary && k->stack > 0) k->spill_stores = k->spill_loads = -1;
    }
  }
  return kernels;
}

// ---- the cubin

namespace {
// Little-endian fields of an ELF file, checked against its size.
class ElfReader {
public:
  explicit ElfReader(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  template <typename T> T get(uint64_t at) const {
    T value = 0;
    if (at <= bytes_.size() && bytes_.size() - at >= sizeof(T)) std::memcpy(&value, bytes_.data() + at, sizeof(T));
    return value;
  }
  std::string text(uint64_t at) const {
    std::string out;
    for (; at < bytes_.size() && bytes_[at]; at++) out += char(bytes_[at]);
    return out;
  }
  struct Section {
    std::string name;
    uint64_t offset = 0, bytes = 0;
    uint32_t link = 0;
  };
  std::vector<Section> sections() const {
    std::vector<Section> out;
    uint64_t table = get<uint64_t>(0x28), size = get<uint16_t>(0x3a), count = get<uint16_t>(0x3c);
    if (size < 64 || table > bytes_.size() || (bytes_.size() - table) / size < count) return out;
    uint64_t names = get<uint64_t>(table + size * get<uint16_t>(0x3e) + 0x18);
    for (uint64_t i = 0; i < count; i++) {
      uint64_t at = table + i * size;
      Section s{text(names + get<uint32_t>(at)), get<uint64_t>(at + 0x18), get<uint64_t>(at + 0x20),
                get<uint32_t>(at + 0x28)};
      bool inside = s.offset <= bytes_.size() && bytes_.size() - s.offset >= s.bytes;
      if (!inside) s.bytes = 0; // a section without contents, or a damaged file
      out.push_back(std::move(s));
    }
    return out;
  }

private:
  std::span<const uint8_t> bytes_;
};
} // namespace

// The section .nv.info is a list of attributes: format, attribute (a byte each), size (2 bytes), value. Format 4 has a
// value of that size; in those of the whole file it is the index of a symbol and a number.
std::vector<KernelUsage> parse_cubin_usage(std::span<const uint8_t> cubin) {
  constexpr uint8_t kSized = 4, kFrameSize = 0x11, kRegisters = 0x2f;
  constexpr uint64_t kSymbolBytes = 24;
  std::vector<KernelUsage> out;
  ElfReader elf(cubin);
  if (elf.get<uint32_t>(0) != 0x464c457f) return out; // "\x7fELF"
  std::vector<ElfReader::Section> sections = elf.sections();
  for (const ElfReader::Section &info : sections) {
    if (info.name != ".nv.info" || info.link >= sections.size()) continue;
    const ElfReader::Section &symbols = sections[info.link];
    if (symbols.link >= sections.size()) continue;
    auto usage = [&](uint32_t symbol) -> KernelUsage & {
      uint64_t at = symbol * kSymbolBytes;
      std::string name;
      if (at < symbols.bytes) name = elf.text(sections[symbols.link].offset + elf.get<uint32_t>(symbols.offset + at));
      for (KernelUsage &k : out)
        if (k.name == name) return k;
      KernelUsage &k = out.emplace_back();
      k.name = name;
      k.static_shared = k.barriers = -1;
      return k;
    };
    for (uint64_t at = info.offset; at + 4 <= info.offset + info.bytes;) {
      auto format = elf.get<uint8_t>(at), attribute = elf.get<uint8_t>(at + 1);
      if (format == kSized && attribute == kRegisters)
        usage(elf.get<uint32_t>(at + 4)).registers = elf.get<uint32_t>(at + 8);
      if (format == kSized && attribute == kFrameSize)
        usage(elf.get<uint32_t>(at + 4)).stack = elf.get<uint32_t>(at + 8);
      at += 4 + (format == kSized ? elf.get<uint16_t>(at + 2) : 0);
    }
  }
  for (KernelUsage &k : out)
    if (k.stack > 0) k.spill_stores = k.spill_loads = -1;
  // A device function has a register count too; a kernel is what has a section of parameters, .nv.info.NAME.
  std::erase_if(out, [&](const KernelUsage &k) {
    return std::none_of(sections.begin(), sections.end(),
                        [&](const auto &s) { return s.name == ".nv.info." + k.name; });
  });
  return out;
}

// The figures of the log, and of the cubin for kernels that the log does not name.
static std::vector<KernelUsage> usage_of(const Assembled &a, std::string_view arch) {
  // nvJitLink's summary counts what the system reserves in every block of sm_90, and on no other target.
  int64_t reserved = arch.starts_with("sm_90") ? 1024 : 0;
  std::vector<KernelUsage> out = parse_assembler_log(a.log);
  for (KernelUsage &k : out)
    if (a.log.find("Compiling entry function '" + k.name + "'") == std::string::npos && k.static_shared >= reserved)
      k.static_shared -= reserved;
  for (KernelUsage &k : parse_cubin_usage(a.cubin)) {
    bool known = std::any_of(out.begin(), out.end(), [&](const KernelUsage &o) { return o.name == k.name; });
    if (!known) out.push_back(std::move(k));
  }
  return out;
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
    void *address = dlsym(library, symbol);
    // A library may export the names of its header's versions only.
    for (int minor = 9; minor >= 0; minor--)
      for (int major : {13, 12})
        if (!address) address = dlsym(library, fmt::format("__{}_{}_{}", symbol, major, minor).c_str());
    to = reinterpret_cast<std::remove_reference_t<decltype(to)>>(address);
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
  std::vector<std::string> words = {"-arch=" + o.arch, "-verbose", "-Xptxas=-v"};
  if (o.max_registers > 0) words.push_back(fmt::format("-maxrregcount={}", o.max_registers));
  NvJitLink::Handle handle = nullptr;
  auto create = [&] {
    std::vector<const char *> options;
    for (const std::string &w : words) options.push_back(w.c_str());
    return f.create(&handle, uint32_t(options.size()), options.data());
  };
  int refused = create();
  if (refused != 0) { // the option asks for figures alone; the cubin has most of them too
    std::erase(words, "-Xptxas=-v");
    refused = create();
  }
  if (refused != 0) return failure("nvJitLink does not accept the target {} (error {})", o.arch, refused);
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
  out.kernels = usage_of(out, o.arch);
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
  Result<std::string> folder = make_temporary_folder("tkc");
  if (!folder) return folder.failed();
  std::string in = *folder + "/tkc.ptx", to = *folder + "/tkc.cubin";
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
    out.kernels = usage_of(out, o.arch);
    return out;
  };
  Result<Assembled> out = attempt();
  ::unlink(in.c_str());
  ::unlink(to.c_str());
  ::rmdir(folder->c_str());
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
