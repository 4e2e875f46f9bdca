#include "runtime/safetensors.h"
#include "runtime/json_reader.h"
#include "support/json.h"
#include <algorithm>
#include <cstring>

namespace tkc {

namespace {
struct Spelling {
  DType dtype;
  std::string_view text;
};
// The first row of a spelling is what it is read as.
constexpr Spelling kSpellings[] = {
    {DType::Bool, "BOOL"}, {DType::I8, "I8"},        {DType::I16, "I16"},       {DType::I32, "I32"},
    {DType::I64, "I64"},   {DType::U8, "U8"},        {DType::U16, "U16"},       {DType::U32, "U32"},
    {DType::U64, "U64"},   {DType::F16, "F16"},      {DType::BF16, "BF16"},     {DType::F32, "F32"},
    {DType::F64, "F64"},   {DType::E4M3, "F8_E4M3"}, {DType::E5M2, "F8_E5M2"},  {DType::UE8M0, "F8_E8M0"},
    {DType::E2M1, "F4"},   {DType::TF32, "F32"},     {DType::UE4M3, "F8_E4M3"},
};

std::string_view spelling_of(DType t) {
  for (const Spelling &s : kSpellings)
    if (s.dtype == t) return s.text;
  TKC_UNREACHABLE("no safetensors name for {}", dtype_name(t));
}
std::optional<DType> dtype_of(std::string_view text) {
  for (const Spelling &s : kSpellings)
    if (s.text == text) return s.dtype;
  return std::nullopt;
}

constexpr uint64_t kMostHeaderBytes = 100 << 20; // the limit of the format's own readers

Result<uint64_t> header_length(const uint8_t *first_eight, uint64_t file_size, const std::string &name) {
  uint64_t length;
  std::memcpy(&length, first_eight, 8);
  if (length > kMostHeaderBytes)
    return failure("`{}`: a header of {} bytes is announced: this is not a .safetensors file", name, length);
  if (length > file_size - 8)
    return failure("`{}` is truncated: a header of {} bytes is announced, {} bytes follow", name, length,
                   file_size - 8);
  return length;
}

Result<Safetensors::Entry> read_entry(const std::string &name, const JsonValue &v, int64_t data_bytes) {
  using Kind = JsonValue::Kind;
  if (!v.is(Kind::Object)) return failure("the tensor `{}` is not described by an object", name);
  const JsonValue *dtype = v.find("dtype"), *shape = v.find("shape"), *offsets = v.find("data_offsets");
  if (!dtype || !dtype->is(Kind::String)) return failure("the tensor `{}` has no `dtype`", name);
  if (!shape || !shape->is(Kind::Array)) return failure("the tensor `{}` has no `shape`", name);
  if (!offsets || !offsets->is(Kind::Array) || offsets->items.size() != 2)
    return failure("the tensor `{}` has no pair of `data_offsets`", name);
  if (v.keys.size() != 3)
    return failure("the tensor `{}` has other keys than `dtype`, `shape` and `data_offsets`", name);
  Safetensors::Entry e;
  e.name = name;
  e.dtype = dtype->text;
  for (const JsonValue &d : shape->items) {
    if (!d.is_integer || d.integer < 0) return failure("the tensor `{}` has a dim that is not a size", name);
    e.shape.push_back(d.integer);
  }
  for (const JsonValue &o : offsets->items)
    if (!o.is_integer || o.integer < 0) return failure("the tensor `{}` has an offset that is not a size", name);
  e.begin = offsets->items[0].integer;
  e.end = offsets->items[1].integer;
  if (e.begin > e.end) return failure("the tensor `{}` ends ({}) before it begins ({})", name, e.end, e.begin);
  if (e.end > data_bytes)
    return failure("it is truncated: the tensor `{}` ends at byte {} of the data, {} bytes are there", name, e.end,
                   data_bytes);
  std::optional<int64_t> count = element_count(e.shape);
  if (!count) return failure("the tensor `{}` has an impossible shape {}", name, shape_to_string(e.shape));
  // A dtype that tkc does not know matters only to who asks for that tensor.
  if (std::optional<DType> t = dtype_of(e.dtype)) {
    if (*t == DType::E2M1 && *count % 2) return failure("the tensor `{}` has an odd number of 4-bit elements", name);
    if (storage_bytes(*t, *count) != e.end - e.begin)
      return failure("the tensor `{}` is {}{} = {} bytes, but its offsets span {}", name, e.dtype,
                     shape_to_string(e.shape), storage_bytes(*t, *count), e.end - e.begin);
  }
  return e;
}
} // namespace

Status Safetensors::read_header(std::string_view json, int64_t data_bytes) {
  if (json.empty() || json[0] != '{') return failure("`{}`: the header is not a JSON object", name_);
  Result<JsonValue> header = parse_json(json);
  if (!header) return failure("`{}`: malformed header: {}", name_, header.error());
  for (size_t i = 0; i < header->keys.size(); i++) {
    if (header->keys[i] == "__metadata__") continue;
    Result<Entry> e = read_entry(header->keys[i], header->items[i], data_bytes);
    if (!e) return failure("`{}`: {}", name_, e.error());
    entries_.push_back(std::move(*e));
  }
  std::stable_sort(entries_.begin(), entries_.end(), [](const Entry &a, const Entry &b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  int64_t at = 0;
  for (size_t i = 0; i < entries_.size(); i++) {
    const Entry &e = entries_[i];
    if (e.begin < at) return failure("`{}`: the tensors `{}` and `{}` overlap", name_, entries_[i - 1].name, e.name);
    if (e.begin > at) return failure("`{}`: bytes {} to {} of the data belong to no tensor", name_, at, e.begin);
    at = e.end;
  }
  if (at != data_bytes) return failure("`{}`: bytes {} to {} of the data belong to no tensor", name_, at, data_bytes);
  return {};
}

Result<Safetensors> Safetensors::parse(std::span<const uint8_t> file, std::string_view name) {
  Safetensors s;
  s.name_ = name;
  s.memory_ = file;
  if (file.size() < 8) return failure("`{}`: {} bytes are too few for a .safetensors file", name, file.size());
  Result<uint64_t> length = header_length(file.data(), file.size(), s.name_);
  if (!length) return length.failed();
  s.data_begin_ = int64_t(8 + *length);
  TKC_TRY(s.read_header(std::string_view(reinterpret_cast<const char *>(file.data()) + 8, size_t(*length)),
                        int64_t(file.size()) - s.data_begin_));
  return s;
}

Result<Safetensors> Safetensors::open(const std::string &path) {
  Safetensors s;
  s.name_ = path;
  Result<FileReader> reader = FileReader::open(path);
  if (!reader) return reader.failed();
  if (reader->size() < 0) return failure("`{}` is not a regular file", path);
  s.file_ = std::move(*reader);
  if (s.file_->size() < 8) return failure("`{}`: {} bytes are too few for a .safetensors file", path, s.file_->size());
  uint8_t first[8];
  TKC_TRY(s.file_->read(0, first));
  Result<uint64_t> length = header_length(first, uint64_t(s.file_->size()), path);
  if (!length) return length.failed();
  std::string json(size_t(*length), '\0');
  TKC_TRY(s.file_->read(8, std::span(reinterpret_cast<uint8_t *>(json.data()), json.size())));
  s.data_begin_ = int64_t(8 + *length);
  TKC_TRY(s.read_header(json, s.file_->size() - s.data_begin_));
  return s;
}

Status Safetensors::read_data(int64_t offset, std::span<uint8_t> out) const {
  if (file_) return file_->read(data_begin_ + offset, out);
  if (!out.empty()) std::memcpy(out.data(), memory_.data() + data_begin_ + offset, out.size());
  return {};
}

Result<const Safetensors::Entry *> Safetensors::find(std::string_view name) const {
  std::vector<std::string_view> names;
  const Entry *entry = nullptr;
  for (const Entry &e : entries_) {
    names.push_back(e.name);
    if (e.name == name) entry = &e;
  }
  constexpr size_t kMostNames = 20;
  std::string list =
      fmt::format("{}", fmt::join(names.begin(), names.begin() + ptrdiff_t(std::min(names.size(), kMostNames)), ", "));
  if (names.size() > kMostNames) list += fmt::format(", and {} more", names.size() - kMostNames);
  if (names.empty()) return failure("`{}` holds no tensor", name_);
  if (name.empty() && names.size() > 1) return failure("`{}` holds several tensors, say which: {}", name_, list);
  if (name.empty()) entry = &entries_[0];
  if (!entry) return failure("`{}` holds no tensor `{}`; it holds {}", name_, name, list);
  return entry;
}

Result<NpyHeader> Safetensors::header(std::string_view name) const {
  Result<const Entry *> entry = find(name);
  if (!entry) return entry.failed();
  return NpyHeader{dtype_of((*entry)->dtype), (*entry)->shape};
}

Result<HostTensor> Safetensors::get(std::string_view name, std::optional<DType> wanted) const {
  Result<const Entry *> found = find(name);
  if (!found) return found.failed();
  const Entry *entry = *found;
  std::optional<DType> held = dtype_of(entry->dtype);
  if (!held)
    return failure("`{}`: the tensor `{}` has the dtype {}, which tkc does not know", name_, entry->name, entry->dtype);
  if (wanted && spelling_of(*wanted) == entry->dtype) held = wanted;
  if (wanted && held != wanted)
    return failure("`{}`: the tensor `{}` holds {} ({}), but {} is wanted", name_, entry->name, dtype_name(*held),
                   entry->dtype, dtype_name(*wanted));
  HostTensor t = HostTensor::zeros(*held, entry->shape);
  TKC_TRY(read_data(entry->begin, t.bytes));
  if (t.dtype == DType::Bool)
    for (uint8_t &b : t.bytes) b = b != 0;
  return t;
}

Result<HostTensor> read_safetensors(const std::string &path, std::string_view name, std::optional<DType> wanted) {
  Result<Safetensors> file = Safetensors::open(path);
  if (!file) return file.failed();
  return file->get(name, wanted);
}

Result<std::vector<uint8_t>> encode_safetensors(const NamedTensors &tensors) {
  // Wide elements first keeps every tensor aligned in a mapped file, as the format's own writer does.
  std::vector<size_t> order(tensors.size());
  for (size_t i = 0; i < order.size(); i++) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return dtype_bits(tensors[a].second.dtype) > dtype_bits(tensors[b].second.dtype);
  });
  Json header = Json::object();
  std::vector<std::string> seen;
  int64_t at = 0;
  for (size_t i : order) {
    const auto &[name, t] = tensors[i];
    if (name.empty() || name == "__metadata__") return failure("`{}` is not a name for a tensor in .safetensors", name);
    if (std::find(seen.begin(), seen.end(), name) != seen.end()) return failure("two tensors of the name `{}`", name);
    seen.push_back(name);
    if (t.dtype == DType::E2M1 && t.count() % 2)
      return failure("`{}`: .safetensors holds an even number of 4-bit elements, not {}", name, t.count());
    Json shape = Json::array(), offsets = Json::array();
    for (int64_t d : t.shape) shape.push(d);
    offsets.push(at).push(at + int64_t(t.bytes.size()));
    at += int64_t(t.bytes.size());
    header.set(name,
               Json::object().set("dtype", spelling_of(t.dtype)).set("shape", shape).set("data_offsets", offsets));
  }
  std::string json = header.dump(0);
  json.resize((json.size() + 7) / 8 * 8, ' ');
  uint64_t length = json.size();
  std::vector<uint8_t> out(8 + json.size());
  out.reserve(out.size() + size_t(at));
  std::memcpy(out.data(), &length, 8);
  std::memcpy(out.data() + 8, json.data(), json.size());
  for (size_t i : order) out.insert(out.end(), tensors[i].second.bytes.begin(), tensors[i].second.bytes.end());
  return out;
}

Status write_safetensors(const std::string &path, const NamedTensors &tensors) {
  Result<std::vector<uint8_t>> bytes = encode_safetensors(tensors);
  if (!bytes) return bytes.failed();
  return write_file(path, *bytes);
}

} // namespace tkc
