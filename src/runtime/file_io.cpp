#include "runtime/file_io.h"
#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tkc {

static Error system_failure(const char *what, const std::string &path) {
  return failure("cannot {} `{}`: {}", what, path, std::strerror(errno));
}

FileReader::FileReader(std::string path, int descriptor, int64_t size)
    : path_(std::move(path)), descriptor_(descriptor), size_(size) {}

FileReader::FileReader(FileReader &&other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)), size_(other.size_) {}

FileReader &FileReader::operator=(FileReader &&other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(size_, other.size_);
  return *this;
}

FileReader::~FileReader() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<std::string> make_temporary_folder(std::string_view name) {
  const char *base = std::getenv("TMPDIR");
  // mkdtemp puts what makes the name unique in the place of the six letters.
  std::string path = fmt::format("{}/{}-XXXXXX", base && *base ? base : "/tmp", name);
  if (!::mkdtemp(path.data())) return failure("cannot make a folder `{}`: {}", path, std::strerror(errno));
  return path;
}

Result<FileReader> FileReader::open(const std::string &path) {
  // A path with a NUL byte would be cut short by the system call and name another file.
  if (path.empty() || path.find('\0') != std::string::npos) return failure("`{}` is not a file name", path);
  int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return system_failure("read", path);
  FileReader reader(path, descriptor, 0);
  struct stat info;
  if (::fstat(descriptor, &info) != 0) return system_failure("read", path);
  if (S_ISDIR(info.st_mode)) return failure("cannot read `{}`: it is a folder", path);
  reader.size_ = S_ISREG(info.st_mode) ? int64_t(info.st_size) : -1;
  return reader;
}

Status FileReader::read(int64_t offset, std::span<uint8_t> out) const {
  for (size_t done = 0; done < out.size();) {
    ssize_t n = ::pread(descriptor_, out.data() + done, std::min(out.size() - done, size_t(1) << 30),
                        off_t(offset) + off_t(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return system_failure("read", path_);
    if (n == 0)
      return failure("`{}` ends at byte {}; {} bytes more were expected", path_, offset + int64_t(done),
                     out.size() - done);
    done += size_t(n);
  }
  return {};
}

// A pipe has no size: it is read to its end.
static Result<std::vector<uint8_t>> read_stream(const std::string &path) {
  std::FILE *file = std::fopen(path.c_str(), "rb");
  if (!file) return system_failure("read", path);
  std::vector<uint8_t> bytes;
  uint8_t block[65536];
  size_t n;
  while ((n = std::fread(block, 1, sizeof block, file)) > 0) bytes.insert(bytes.end(), block, block + n);
  bool bad = std::ferror(file) != 0;
  std::fclose(file);
  if (bad) return failure("cannot read `{}`", path);
  return bytes;
}

Result<std::vector<uint8_t>> read_file(const std::string &path) {
  Result<FileReader> reader = FileReader::open(path);
  if (!reader) return reader.failed();
  if (reader->size() < 0) return read_stream(path);
  std::vector<uint8_t> bytes(size_t(reader->size()));
  TKC_TRY(reader->read(0, bytes));
  return bytes;
}

static Status write_all(int descriptor, std::span<const uint8_t> bytes, const std::string &path) {
  for (size_t done = 0; done < bytes.size();) {
    ssize_t n = ::write(descriptor, bytes.data() + done, std::min(bytes.size() - done, size_t(1) << 30));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return system_failure("write", path);
    done += size_t(n);
  }
  return {};
}

namespace {
// A file that is written in two steps: its bytes beside the target, then the rename.
class PendingFile {
public:
  explicit PendingFile(const std::string &path) : path_(path) {}
  PendingFile(PendingFile &&other) noexcept
      : path_(std::move(other.path_)), target_(std::move(other.target_)),
        temporary_(std::exchange(other.temporary_, "")), in_place_(other.in_place_) {}
  PendingFile &operator=(PendingFile &&) = delete;
  ~PendingFile() {
    if (!temporary_.empty()) ::unlink(temporary_.c_str());
  }

  Status prepare(std::span<const uint8_t> bytes) {
    if (path_.empty() || path_.find('\0') != std::string::npos) return failure("`{}` is not a file name", path_);
    struct stat info;
    bool exists = ::stat(path_.c_str(), &info) == 0;
    if (exists && S_ISDIR(info.st_mode)) return failure("cannot write `{}`: it is a folder", path_);
    in_place_ = exists && !S_ISREG(info.st_mode);
    if (in_place_) return {};
    target_ = path_;
    char resolved[PATH_MAX];
    if (exists && ::realpath(path_.c_str(), resolved)) target_ = resolved;
    std::string name = fmt::format("{}.{}.tmp", target_, ::getpid());
    int file = ::open(name.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, exists ? info.st_mode & 0777 : 0666);
    if (file < 0) return system_failure("write", path_);
    temporary_ = std::move(name);
    Status written = write_all(file, bytes, path_);
    // close() reports what a full network disk refused.
    if (::close(file) != 0 && written.ok()) written = system_failure("write", path_);
    return written;
  }

  Status finish(std::span<const uint8_t> bytes) {
    if (!in_place_) {
      if (::rename(temporary_.c_str(), target_.c_str()) != 0) return system_failure("write", path_);
      temporary_.clear();
      return {};
    }
    int file = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC);
    if (file < 0) return system_failure("write", path_);
    Status written = write_all(file, bytes, path_);
    ::close(file);
    return written;
  }

private:
  std::string path_, target_, temporary_;
  bool in_place_ = false; // a pipe, /dev/null
};
} // namespace

Status write_file(const std::string &path, std::span<const uint8_t> bytes) {
  PendingFile file(path);
  TKC_TRY(file.prepare(bytes));
  return file.finish(bytes);
}

Status write_file(const std::string &path, std::string_view text) {
  return write_file(path, std::span(reinterpret_cast<const uint8_t *>(text.data()), text.size()));
}

OutputFile text_output(std::string path, std::string_view text) {
  return {std::move(path), std::vector<uint8_t>(text.begin(), text.end())};
}

Status write_files(const std::vector<OutputFile> &files) {
  std::vector<PendingFile> pending;
  for (const OutputFile &f : files) {
    pending.emplace_back(f.path);
    TKC_TRY(pending.back().prepare(f.bytes));
  }
  for (size_t i = 0; i < files.size(); i++) TKC_TRY(pending[i].finish(files[i].bytes));
  return {};
}

} // namespace tkc
