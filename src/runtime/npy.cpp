#include "runtime/npy.h"
#include "runtime/file_io.h"
#include <algorithm>
#include <charconv>
#include <cstring>

namespace tkc {

namespace {
constexpr uint8_t kMagic[6] = {0x93, 'N', 'U', 'M', 'P', 'Y'};

struct Descr {
  DType dtype;
  std::string_view text;
};
// The first row of a dtype is the one that is written.
constexpr Descr kDescrs[] = {
    {DType::Bool, "|b1"}, {DType::I8, "|i1"},    {DType::I16, "<i2"},   {DType::I32, "<i4"},  {DType::I64, "<i8"},
    {DType::U8, "|u1"},   {DType::U16, "<u2"},   {DType::U32, "<u4"},   {DType::U64, "<u8"},  {DType::F16, "<f2"},
    {DType::F32, "<f4"},  {DType::F64, "<f8"},   {DType::TF32, "<f4"},  {DType::BF16, "|V2"}, {DType::E4M3, "|V1"},
    {DType::E5M2, "|V1"}, {DType::UE8M0, "|V1"}, {DType::UE4M3, "|V1"},
};

std::string_view descr_of(DType t) {
  for (const Descr &d : kDescrs)
    if (d.dtype == t) return d.text;
  return "";
}

// "=f4" and ">i1" name types of the table too; what stays unknown is returned as it is.
std::string normal_descr(std::string_view descr) {
  std::string out(descr);
  if (out.size() < 3) return out;
  bool one_byte = out.substr(2) == "1";
  if (out[0] == '=' || (one_byte && (out[0] == '<' || out[0] == '>'))) out[0] = one_byte ? '|' : '<';
  if (out[1] == 'V') out[0] = '|';
  return out;
}

// The header is a Python dict literal with the keys descr, fortran_order and shape.
class HeaderParser {
public:
  explicit HeaderParser(std::string_view text) : text_(text) {}
  std::string descr;
  bool structured = false, fortran = false;
  std::vector<int64_t> shape;

  Status run() {
    skip_space();
    if (!eat('{')) return bad("expected a dict");
    bool have[3] = {};
    for (skip_space(); !eat('}'); skip_space()) {
      std::string key;
      TKC_TRY(string(key));
      skip_space();
      if (!eat(':')) return bad("expected `:`");
      skip_space();
      int which = key == "descr" ? 0 : key == "fortran_order" ? 1 : key == "shape" ? 2 : 3;
      if (which == 3) return bad(fmt::format("unknown key `{}`", key));
      if (have[which]) return bad(fmt::format("the key `{}` appears twice", key));
      have[which] = true;
      if (which == 0) TKC_TRY(parse_descr());
      if (which == 1) TKC_TRY(parse_bool());
      if (which == 2) TKC_TRY(parse_shape());
      if (structured) return {}; // the caller rejects it; its description is a language of its own
      skip_space();
      if (!eat(',') && peek() != '}') return bad("expected `,` or `}`");
    }
    skip_space();
    if (at_ < text_.size()) return bad("text after the dict");
    if (!have[0] || !have[1] || !have[2]) return bad("one of `descr`, `fortran_order`, `shape` is missing");
    return {};
  }

private:
  Error bad(std::string_view what) const { return failure("malformed header at byte {}: {}", at_, what); }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool eat(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    at_++;
    return true;
  }
  void skip_space() {
    while (peek() == ' ' || peek() == '\t' || peek() == '\n' || peek() == '\r') at_++;
  }
  Status string(std::string &out) {
    char quote = peek();
    if (quote != '\'' && quote != '"') return bad("expected a string");
    size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) return bad("a string without an end");
    out = std::string(text_.substr(at_ + 1, end - at_ - 1));
    for (char &c : out) // shown in messages
      if (uint8_t(c) < 0x20 || uint8_t(c) > 0x7e) c = '?';
    at_ = end + 1;
    return {};
  }
  Status parse_descr() {
    if (peek() == '[' || peek() == '(' || peek() == '{') {
      structured = true;
      return {};
    }
    return string(descr);
  }
  Status parse_bool() {
    if (text_.substr(at_, 4) == "True") {
      fortran = true;
      at_ += 4;
    } else if (text_.substr(at_, 5) == "False") {
      at_ += 5;
    } else {
      return bad("expected True or False");
    }
    return {};
  }
  Status parse_shape() {
    if (!eat('(')) return bad("expected a tuple");
    for (skip_space(); !eat(')'); skip_space()) {
      int64_t dim;
      auto parsed = std::from_chars(text_.data() + at_, text_.data() + text_.size(), dim);
      if (parsed.ec != std::errc() || dim < 0) return bad("expected a size");
      at_ = size_t(parsed.ptr - text_.data());
      eat('L'); // Python 2 wrote long integers so
      shape.push_back(dim);
      if (shape.size() > 64) return bad("more than 64 dims");
      skip_space();
      if (!eat(',') && peek() != ')') return bad("expected `,` or `)`");
    }
    return {};
  }
  std::string_view text_;
  size_t at_ = 0;
};

// The dtype of a file of description `descr`, given what the caller wants.
Result<DType> choose_dtype(const std::string &raw, std::optional<DType> wanted) {
  std::string descr = normal_descr(raw);
  std::optional<DType> held;
  for (const Descr &d : kDescrs) {
    if (d.text != descr) continue;
    if (wanted == d.dtype) return d.dtype;
    if (!held && descr[1] != 'V') held = d.dtype;
  }
  if (held && !wanted) return *held;
  bool is_raw = descr == "|V1" || descr == "|V2", is_unsigned = descr == "|u1" || descr == "<u2";
  int64_t bytes = descr.size() == 3 ? descr[2] - '0' : 0;
  if (wanted && (is_raw || is_unsigned) && is_float(*wanted) && dtype_bits(*wanted) == 8 * bytes) return *wanted;
  if (is_raw && !wanted)
    return failure("raw elements of {} bytes (`{}`) have no dtype: say which one they are ({})", bytes, raw,
                   bytes == 2 ? "bf16, f16" : "e4m3, e5m2, ue8m0, ue4m3");
  if (held) return failure("it holds {} (`{}`), but {} is wanted", dtype_name(*held), raw, dtype_name(*wanted));
  if (is_raw) return failure("it holds raw elements of {} bytes, but {} is wanted", bytes, dtype_name(*wanted));
  if (descr.size() >= 3 && descr[0] == '>')
    return failure("big-endian elements (`{}`) are not supported: convert the array with astype('<{}')", raw,
                   descr.substr(1));
  return failure("elements of type `{}` are not supported", raw);
}

// Where the data begin.
Result<size_t> parse_header(std::span<const uint8_t> file, std::optional<HeaderParser> &header) {
  if (file.size() < 10) return failure("{} bytes are too few for a .npy file", file.size());
  if (std::memcmp(file.data(), kMagic, sizeof kMagic) != 0) return failure("this is not a .npy file (wrong magic)");
  int major = file[6], minor = file[7];
  if (major < 1 || major > 3 || minor != 0)
    return failure("version {}.{} of the .npy format is not supported", major, minor);
  size_t start = major == 1 ? 10 : 12;
  if (file.size() < start) return failure("the header is truncated");
  uint64_t length = uint64_t(file[8]) | uint64_t(file[9]) << 8;
  if (major > 1) length |= uint64_t(file[10]) << 16 | uint64_t(file[11]) << 24;
  if (length > file.size() - start)
    return failure("the header is truncated: {} bytes are announced, {} are there", length, file.size() - start);
  header.emplace(std::string_view(reinterpret_cast<const char *>(file.data()) + start, size_t(length)));
  TKC_TRY(header->run());
  if (header->structured) return failure("structured elements (records) are not supported");
  return start + size_t(length);
}

Result<HostTensor> parse(std::span<const uint8_t> file, std::optional<DType> wanted) {
  std::optional<HeaderParser> parsed;
  Result<size_t> start = parse_header(file, parsed);
  if (!start) return start.failed();
  const HeaderParser &header = *parsed;
  Result<DType> dtype = choose_dtype(header.descr, wanted);
  if (!dtype) return dtype.failed();
  int64_t real_dims = std::count_if(header.shape.begin(), header.shape.end(), [](int64_t d) { return d != 1; });
  if (header.fortran && real_dims > 1)
    return failure("the array is in Fortran order: save numpy.ascontiguousarray(a) instead");
  std::optional<int64_t> count = element_count(header.shape);
  if (!count) return failure("the shape {} is too large", shape_to_string(header.shape));
  uint64_t bytes = uint64_t(storage_bytes(*dtype, *count)), held = file.size() - *start;
  if (bytes != held)
    return failure("{}{} needs {} bytes of data, the file holds {}{}", dtype_name(*dtype),
                   shape_to_string(header.shape), bytes, held, held < bytes ? ": it is truncated" : "");
  HostTensor t;
  t.dtype = *dtype;
  t.shape = header.shape;
  t.bytes.assign(file.begin() + ptrdiff_t(*start), file.end());
  if (t.dtype == DType::Bool)
    for (uint8_t &b : t.bytes) b = b != 0;
  return t;
}
} // namespace

Result<HostTensor> parse_npy(std::span<const uint8_t> file, std::string_view name, std::optional<DType> wanted) {
  Result<HostTensor> t = parse(file, wanted);
  if (!t) return failure("`{}`: {}", name, t.error());
  return t;
}

Result<NpyHeader> parse_npy_header(std::span<const uint8_t> file, std::string_view name) {
  std::optional<HeaderParser> header;
  if (Result<size_t> start = parse_header(file, header); !start) return failure("`{}`: {}", name, start.error());
  NpyHeader out;
  if (Result<DType> t = choose_dtype(header->descr, std::nullopt)) out.dtype = *t;
  out.shape = header->shape;
  return out;
}

Result<HostTensor> read_npy(const std::string &path, std::optional<DType> wanted) {
  Result<std::vector<uint8_t>> bytes = read_file(path);
  if (!bytes) return bytes.failed();
  return parse_npy(*bytes, path, wanted);
}

Result<std::vector<uint8_t>> encode_npy(const HostTensor &t) {
  std::string_view descr = descr_of(t.dtype);
  if (descr.empty()) return failure("{} cannot be stored in a .npy file: use .safetensors", dtype_name(t.dtype));
  std::string shape = fmt::format("({}{})", fmt::join(t.shape, ", "), t.rank() == 1 ? "," : "");
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}", descr, shape);
  // Version 1 holds 64 KiB of header, far more than any tensor of tkc needs; the data begin at a multiple of 64.
  size_t length = (10 + header.size() + 1 + 63) / 64 * 64 - 10;
  TKC_CHECK(length <= 0xffff, "a .npy header of {} bytes", length);
  header.resize(length - 1, ' ');
  header += '\n';
  std::vector<uint8_t> out(kMagic, kMagic + sizeof kMagic);
  out.insert(out.end(), {1, 0, uint8_t(length & 0xff), uint8_t(length >> 8)});
  out.insert(out.end(), header.begin(), header.end());
  out.insert(out.end(), t.bytes.begin(), t.bytes.end());
  return out;
}

Status write_npy(const std::string &path, const HostTensor &t) {
  Result<std::vector<uint8_t>> bytes = encode_npy(t);
  if (!bytes) return bytes.failed();
  return write_file(path, *bytes);
}

} // namespace tkc
