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

Status write_file(const std::string &path, std::span<const uint8_t> bytes) {
  if (path.empty() || path.find('\0') != std::string::npos) return failure("`{}` is not a file name", path);
  struct stat info;
  bool exists = ::stat(path.c_str(), &info) == 0;
  if (exists && S_ISDIR(info.st_mode)) return failure("cannot write `{}`: it is a folder", path);
  if (exists && !S_ISREG(info.st_mode)) {
    int descriptor = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (descriptor < 0) return system_failure("write", path);
    Status written = write_all(descriptor, bytes, path);
    ::close(descriptor);
    return written;
  }
  std::string target = path;
  if (exists) {
    char resolved[PATH_MAX];
    if (::realpath(path.c_str(), resolved)) target = resolved;
  }
  std::string temporary = fmt::format("{}.{}.tmp", target, ::getpid());
  int descriptor =
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, exists ? info.st_mode & 0777 : 0666);
  if (descriptor < 0) return system_failure("write", path);
  Status written = write_all(descriptor, bytes, path);
  // close() reports what a full network disk refused.
  if (::close(descriptor) != 0 && written.ok()) written = system_failure("write", path);
  if (written.ok() && ::rename(temporary.c_str(), target.c_str()) != 0) written = system_failure("write", path);
  if (!written.ok()) ::unlink(temporary.c_str());
  return written;
}

Status write_file(const std::string &path, std::string_view text) {
  return write_file(path, std::span(reinterpret_cast<const uint8_t *>(text.data()), text.size()));
}

} // namespace tkc
