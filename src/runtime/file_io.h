// Whole files in and out. An output file is never left half written: it is written under a temporary name in the same
// folder and renamed.
#pragma once
#include "support/result.h"
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tkc {

// Errors name the file and say what is wrong with it: absent, a folder, not readable.
Result<std::vector<uint8_t>> read_file(const std::string &path);

// Replaces `path`. A symbolic link stays and its target is replaced; the permissions of an existing file are kept; what
// is not a regular file (a pipe, /dev/null) is written in place.
Status write_file(const std::string &path, std::span<const uint8_t> bytes);
Status write_file(const std::string &path, std::string_view text);

struct OutputFile {
  std::string path;
  std::vector<uint8_t> bytes;
};
OutputFile text_output(std::string path, std::string_view text);
// All or none: every file is written under a temporary name before the first is renamed.
Status write_files(const std::vector<OutputFile> &files);

// Makes a new folder in $TMPDIR (else /tmp) whose name begins with `name`; its path.
Result<std::string> make_temporary_folder(std::string_view name);

// Random access to a file that may be larger than memory.
class FileReader {
public:
  static Result<FileReader> open(const std::string &path);
  FileReader(FileReader &&other) noexcept;
  FileReader &operator=(FileReader &&other) noexcept;
  ~FileReader();
  int64_t size() const { return size_; }
  const std::string &path() const { return path_; }
  // Fills `out` from `offset`; a file that ends before is an error.
  Status read(int64_t offset, std::span<uint8_t> out) const;

private:
  FileReader(std::string path, int descriptor, int64_t size);
  std::string path_;
  int descriptor_ = -1;
  int64_t size_ = 0;
};

} // namespace tkc
