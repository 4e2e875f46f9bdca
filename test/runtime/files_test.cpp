// .npy, .safetensors, JSON and whole files: round trips, every error, and seeded garbage.
#include "runtime/file_io.h"
#include "runtime/generators.h"
#include "runtime/json_reader.h"
#include "runtime/npy.h"
#include "runtime/safetensors.h"
#include <algorithm>
#include <cstring>
#include <doctest/doctest.h>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>

using namespace tkc;
namespace fs = std::filesystem;

namespace {
// A folder that is removed with its contents.
struct Scratch {
  fs::path folder = fs::temp_directory_path() / ("tkc-test-" + std::to_string(::getpid()));
  Scratch() { fs::create_directories(folder); }
  ~Scratch() { fs::remove_all(folder); }
  std::string operator/(const char *name) const { return (folder / name).string(); }
};
std::vector<uint8_t> bytes_of(std::string_view s) { return {s.begin(), s.end()}; }

// A .npy file with the given header text.
std::vector<uint8_t> npy(std::string header, size_t data_bytes, int version = 1) {
  std::string file = "\x93NUMPY";
  file += char(version);
  file += '\0';
  for (int byte = 0; byte < (version > 1 ? 4 : 2); byte++) file += char(header.size() >> 8 * byte & 0xff);
  file += header;
  for (size_t i = 0; i < data_bytes; i++) file += char(i);
  return bytes_of(file);
}
std::string npy_error(const std::vector<uint8_t> &file, std::optional<DType> wanted = {}) {
  return parse_npy(file, "a.npy", wanted).error();
}

std::vector<uint8_t> safetensors(std::string json, size_t data_bytes) {
  std::string file;
  for (int byte = 0; byte < 8; byte++) file += char(json.size() >> 8 * byte & 0xff);
  return bytes_of(file + json + std::string(data_bytes, '\0'));
}
std::string safetensors_error(std::string json, size_t data_bytes) {
  return Safetensors::parse(safetensors(std::move(json), data_bytes), "a").error();
}

bool contains(const std::string &text, std::string_view part) {
  if (text.find(part) != std::string::npos) return true;
  MESSAGE(text);
  return false;
}
} // namespace

TEST_CASE("files: read, write, replace, refuse") {
  Scratch s;
  CHECK(contains(read_file(s / "none").error(), "No such file"));
  CHECK(contains(read_file(s.folder.string()).error(), "it is a folder"));
  CHECK(contains(read_file("").error(), "not a file name"));
  CHECK(contains(read_file(std::string("a\0b", 3)).error(), "not a file name"));
  CHECK(contains(write_file(s.folder.string(), std::string_view("x")).error(), "it is a folder"));
  CHECK(contains(write_file(s / "no/such/file", std::string_view("x")).error(), "No such file"));
  REQUIRE(write_file(s / "a", std::string_view("first")).ok());
  REQUIRE(::chmod((s / "a").c_str(), 0600) == 0);
  fs::create_symlink(s / "a", s / "link");
  REQUIRE(write_file(s / "link", std::string_view("second")).ok());
  CHECK(*read_file(s / "a") == bytes_of("second"));
  CHECK(fs::is_symlink(s / "link"));
  CHECK((fs::status(s / "a").permissions() & fs::perms::all) == (fs::perms::owner_read | fs::perms::owner_write));
  REQUIRE(write_file("/dev/null", std::string_view("x")).ok());
  CHECK(fs::is_character_file("/dev/null"));
  REQUIRE(write_file(s / "empty", std::string_view("")).ok());
  CHECK(read_file(s / "empty")->empty());
  // No temporary is left behind.
  int64_t files = std::distance(fs::directory_iterator(s.folder), fs::directory_iterator());
  CHECK(files == 3);
  Result<FileReader> r = FileReader::open(s / "a");
  uint8_t four[4];
  REQUIRE(r->read(2, four).ok());
  CHECK(std::memcmp(four, "cond", 4) == 0);
  CHECK(contains(r->read(4, four).error(), "ends at byte 6"));
}

TEST_CASE(".npy: every dtype goes through a file and back") {
  Scratch s;
  for (DType t : all_dtypes()) {
    CAPTURE(dtype_name(t));
    for (const std::vector<int64_t> &shape : {std::vector<int64_t>{}, {5}, {2, 3}, {3, 0, 2}}) {
      HostTensor x = fill_tensor(convention_fill(t), t, shape, 9);
      Status written = write_npy(s / "x.npy", x);
      if (t == DType::E2M1) {
        CHECK(contains(written.error(), "e2m1 cannot be stored in a .npy file"));
        continue;
      }
      REQUIRE(written.ok());
      CHECK(fs::file_size(s / "x.npy") % 64 == x.bytes.size() % 64);
      Result<HostTensor> back = read_npy(s / "x.npy", t);
      REQUIRE(back.ok());
      CHECK(*back == x);
    }
  }
}

TEST_CASE(".npy: headers as NumPy writes them") {
  CHECK(*parse_npy(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }      \n", 12), "a") ==
        *parse_npy(npy("{\"shape\":(3),'fortran_order':False,\"descr\":'=f4'}", 12, 2), "a"));
  CHECK(parse_npy(npy("{'descr': '<i2', 'fortran_order': False, 'shape': (2L, 1L), }\n", 4, 3), "a")->shape ==
        std::vector<int64_t>{2, 1});
  CHECK(parse_npy(npy("{'descr': '>i1', 'fortran_order': False, 'shape': (), }\n", 1), "a")->dtype == DType::I8);
  // One dim only: Fortran order is the same order.
  CHECK(parse_npy(npy("{'descr': '<i2', 'fortran_order': True, 'shape': (1, 2), }\n", 4), "a").ok());
  // bool: any byte but 0 is true
  CHECK(parse_npy(npy("{'descr': '|b1', 'fortran_order': False, 'shape': (3,), }\n", 3), "a")->bytes ==
        std::vector<uint8_t>{0, 1, 1});
  // Raw and unsigned elements as what the caller says.
  std::vector<uint8_t> raw = npy("{'descr': '<V2', 'fortran_order': False, 'shape': (2,), }\n", 4);
  CHECK(parse_npy(raw, "a", DType::BF16)->dtype == DType::BF16);
  CHECK(parse_npy(raw, "a", DType::F16)->dtype == DType::F16);
  CHECK(contains(npy_error(raw), "raw elements of 2 bytes (`<V2`) have no dtype: say which one they are (bf16, f16)"));
  CHECK(contains(npy_error(raw, DType::F32), "raw elements of 2 bytes, but f32 is wanted"));
  std::vector<uint8_t> words = npy("{'descr': '<u2', 'fortran_order': False, 'shape': (2,), }\n", 4);
  CHECK(parse_npy(words, "a")->dtype == DType::U16);
  CHECK(parse_npy(words, "a", DType::BF16)->dtype == DType::BF16);
  CHECK(parse_npy(npy("{'descr': '|u1', 'fortran_order': False, 'shape': (2,), }\n", 2), "a", DType::E5M2)->dtype ==
        DType::E5M2);
}

TEST_CASE(".npy: errors say what is wrong") {
  std::string good = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }\n";
  REQUIRE(parse_npy(npy(good, 16), "a.npy").ok());
  CHECK(npy_error(npy(good, 15)) == "`a.npy`: f32[2, 2] needs 16 bytes of data, the file holds 15: it is truncated");
  CHECK(npy_error(npy(good, 17)) == "`a.npy`: f32[2, 2] needs 16 bytes of data, the file holds 17");
  CHECK(npy_error(npy(good, 16), DType::BF16) == "`a.npy`: it holds f32 (`<f4`), but bf16 is wanted");
  CHECK(npy_error(bytes_of("PK\3\4 and more text")) == "`a.npy`: this is not a .npy file (wrong magic)");
  CHECK(npy_error(bytes_of("x")) == "`a.npy`: 1 bytes are too few for a .npy file");
  CHECK(npy_error({}) == "`a.npy`: 0 bytes are too few for a .npy file");
  CHECK(npy_error(npy(good, 16, 9)) == "`a.npy`: version 9.0 of the .npy format is not supported");
  std::vector<uint8_t> cut = npy(good, 0);
  cut.resize(30);
  CHECK(npy_error(cut) == "`a.npy`: the header is truncated: 60 bytes are announced, 20 are there");
  auto header = [&](std::string h, size_t n = 16) { return npy_error(npy(std::move(h), n)); };
  CHECK(contains(header("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2), }"),
                 "Fortran order: save numpy.ascontiguousarray(a)"));
  CHECK(contains(header("{'descr': '>f4', 'fortran_order': False, 'shape': (2, 2), }"),
                 "big-endian elements (`>f4`) are not supported: convert the array with astype('<f4')"));
  CHECK(contains(header("{'descr': '<c8', 'fortran_order': False, 'shape': (2, 2), }"),
                 "elements of type `<c8` are not supported"));
  CHECK(contains(header("{'descr': '|O', 'fortran_order': False, 'shape': (2, 2), }"),
                 "elements of type `|O` are not supported"));
  CHECK(
      contains(header("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2, 2), }"), "structured elements"));
  CHECK(contains(header("{'descr': '<f4', 'fortran_order': False, 'shape': (2, -2), }"), "expected a size"));
  CHECK(contains(header("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }"),
                 "expected a size"));
  CHECK(contains(header("{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }"), "too large"));
  CHECK(contains(header("{'descr': '<f4', 'fortran_order': False, 'shape': (2 2), }"),
                 "malformed header at byte 53: expected `,` or `)`"));
  CHECK(contains(header("{'descr': '<f4', 'shape': (2, 2), }"), "is missing"));
  CHECK(contains(header("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }"),
                 "`descr` appears twice"));
  CHECK(contains(header("{'descr': '<f4', 'fortran_order': 0, 'shape': (2, 2), }"), "expected True or False"));
  CHECK(contains(header("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), 'x': 1}"), "unknown key `x`"));
  CHECK(contains(header("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), } x"), "text after the dict"));
  CHECK(contains(header("{'descr': '<f4"), "a string without an end"));
  CHECK(contains(header(""), "expected a dict"));
}

TEST_CASE("JSON: what is accepted and what is not") {
  Result<JsonValue> v = parse_json(" {\"a\": [1, -2.5e3, true, null], \"b\\u00e9\\ud83d\\ude00\": \"x\\n\"} ");
  REQUIRE(v.ok());
  const JsonValue *a = v->find("a");
  REQUIRE(a);
  CHECK(a->items[0].integer == 1);
  CHECK(a->items[0].is_integer);
  CHECK(a->items[1].number == -2500);
  CHECK_FALSE(a->items[1].is_integer);
  CHECK(a->items[2].boolean);
  CHECK(a->items[3].is(JsonValue::Kind::Null));
  REQUIRE(v->find("b\xc3\xa9\xf0\x9f\x98\x80"));
  CHECK(v->find("b\xc3\xa9\xf0\x9f\x98\x80")->text == "x\n");
  CHECK_FALSE(parse_json("9223372036854775808")->is_integer);
  CHECK(parse_json("9223372036854775807")->integer == INT64_MAX);
  auto error = [](std::string_view t) { return parse_json(t).error(); };
  CHECK(error("") == "JSON, byte 0: unexpected end of text");
  CHECK(error("{\"a\" 1}") == "JSON, byte 5: expected `:`");
  CHECK(error("{\"a\":1,}") == "JSON, byte 7: expected a key in quotes");
  CHECK(error("{\"a\":1,\"a\":2}") == "JSON, byte 10: the key `a` appears twice");
  CHECK(error("[1 2]") == "JSON, byte 3: expected `,` or `]`");
  CHECK(error("[1,]") == "JSON, byte 3: expected a value");
  CHECK(error("01") == "JSON, byte 1: text after the end of the value");
  for (const char *bad : {"-",
                          "1.",
                          ".5",
                          "1e",
                          "+1",
                          "NaN",
                          "Infinity",
                          "tru",
                          "nul",
                          "1e999",
                          "[",
                          "{",
                          "\"",
                          "\"\\",
                          "'a'",
                          "\"\\x\"",
                          "\"\\u12g4\"",
                          "\"\\ud800\"",
                          "\"\\ud800\\u0041\"",
                          "\"\\udc00\"",
                          "\"\x01\"",
                          "\"\xff\"",
                          "\"\xc0\x80\"",
                          "\"\xed\xa0\x80\"",
                          "\"\xf4\x90\x80\x80\"",
                          "\"\xe2\x82\"",
                          "[] []",
                          "\xef\xbb\xbf[]",
                          "// x\n1"}) {
    CAPTURE(bad);
    CHECK_FALSE(parse_json(bad).ok());
  }
  CHECK(parse_json(std::string(63, '[') + "1" + std::string(63, ']')).ok());
  CHECK(contains(error(std::string(1000000, '[')), "nested too deep"));
  CHECK(contains(parse_json("[1,2,3,4]", {.depth = 64, .values = 4}).error(), "too many values"));
}

TEST_CASE(".safetensors: every dtype goes through a file and back, several to a file") {
  Scratch s;
  NamedTensors all;
  for (DType t : all_dtypes()) {
    all.emplace_back(std::string("x.") + std::string(dtype_name(t)), fill_tensor(convention_fill(t), t, {3, 2}, 5));
    all.emplace_back(
        std::string("scalar \"") + std::string(dtype_name(t)) + "\"",
        fill_tensor(convention_fill(t), t, t == DType::E2M1 ? std::vector<int64_t>{2} : std::vector<int64_t>{}, 6));
  }
  all.emplace_back("empty", HostTensor::zeros(DType::F32, {4, 0}));
  REQUIRE(write_safetensors(s / "x.safetensors", all).ok());
  for (const auto &[name, t] : all) {
    CAPTURE(name);
    Result<HostTensor> back = read_safetensors(s / "x.safetensors", name, t.dtype);
    REQUIRE(back.ok());
    CHECK(*back == t);
  }
  Result<Safetensors> file = Safetensors::open(s / "x.safetensors");
  CHECK(file->entries().size() == all.size());
  for (const Safetensors::Entry &e : file->entries()) // aligned in a mapped file
    if (std::optional<DType> t = parse_dtype(e.dtype == "F64" ? "f64" : e.dtype == "F32" ? "f32" : "i8"))
      CHECK(e.begin % dtype_bytes(*t) == 0);
  CHECK(contains(read_safetensors(s / "x.safetensors", "").error(), "holds several tensors, say which: "));
  REQUIRE(write_safetensors(s / "one.safetensors", {{"only", HostTensor::zeros(DType::BF16, {2})}}).ok());
  CHECK(read_safetensors(s / "one.safetensors", "")->dtype == DType::BF16);
  CHECK(contains(read_safetensors(s / "one.safetensors", "q").error(),
                 "one.safetensors` holds no tensor `q`; it holds only"));
  CHECK(contains(read_safetensors(s / "one.safetensors", "only", DType::F16).error(),
                 "the tensor `only` holds bf16 (BF16), but f16 is wanted"));
  CHECK(contains(encode_safetensors({{"a", HostTensor::zeros(DType::E2M1, {3})}}).error(),
                 "an even number of 4-bit elements, not 3"));
  CHECK(contains(encode_safetensors({{"a", all[0].second}, {"a", all[0].second}}).error(),
                 "two tensors of the name `a`"));
}

TEST_CASE(".safetensors: errors say what is wrong") {
  std::string x = "\"x\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}";
  REQUIRE(Safetensors::parse(safetensors("{" + x + "}", 8), "a").ok());
  REQUIRE(Safetensors::parse(safetensors("{\"__metadata__\":{\"format\":\"pt\"}," + x + "}   ", 8), "a").ok());
  auto entry = [](std::string dtype, std::string shape, std::string offsets) {
    return "{\"x\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}}";
  };
  CHECK(safetensors_error("{" + x + "}", 7) ==
        "`a`: it is truncated: the tensor `x` ends at byte 8 of the data, 7 bytes are there");
  CHECK(safetensors_error("{" + x + "}", 9) == "`a`: bytes 8 to 9 of the data belong to no tensor");
  CHECK(safetensors_error("{" + x + ",\"y\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8) ==
        "`a`: the tensors `x` and `y` overlap");
  CHECK(safetensors_error("{" + x + ",\"y\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[10,14]}}", 14) ==
        "`a`: bytes 8 to 10 of the data belong to no tensor");
  CHECK(safetensors_error(entry("F32", "[3]", "[0,8]"), 8) ==
        "`a`: the tensor `x` is F32[3] = 12 bytes, but its offsets span 8");
  CHECK(safetensors_error(entry("F32", "[2]", "[8,0]"), 8) == "`a`: the tensor `x` ends (0) before it begins (8)");
  CHECK(safetensors_error(entry("F32", "[-2]", "[0,8]"), 8) == "`a`: the tensor `x` has a dim that is not a size");
  CHECK(safetensors_error(entry("F32", "[2.0]", "[0,8]"), 8) == "`a`: the tensor `x` has a dim that is not a size");
  CHECK(safetensors_error(entry("F32", "[2]", "[0,99999999999999999999]"), 8) ==
        "`a`: the tensor `x` has an offset that is not a size");
  CHECK(safetensors_error(entry("F32", "[4294967296,4294967296]", "[0,8]"), 8) ==
        "`a`: the tensor `x` has an impossible shape [4294967296, 4294967296]");
  CHECK(safetensors_error(entry("F32", "2", "[0,8]"), 8) == "`a`: the tensor `x` has no `shape`");
  CHECK(safetensors_error(entry("F32", "[2]", "[0]"), 8) == "`a`: the tensor `x` has no pair of `data_offsets`");
  CHECK(safetensors_error(entry("F4", "[3]", "[0,2]"), 2) == "`a`: the tensor `x` has an odd number of 4-bit elements");
  CHECK(safetensors_error("{\"x\":{\"shape\":[2],\"data_offsets\":[0,8]}}", 8) == "`a`: the tensor `x` has no `dtype`");
  CHECK(safetensors_error("{\"x\":3}", 8) == "`a`: the tensor `x` is not described by an object");
  CHECK(safetensors_error("{\"x\":", 8) == "`a`: malformed header: JSON, byte 5: unexpected end of text");
  CHECK(safetensors_error("[]", 0) == "`a`: the header is not a JSON object");
  CHECK(Safetensors::parse(bytes_of("abc"), "a").error() == "`a`: 3 bytes are too few for a .safetensors file");
  CHECK(contains(Safetensors::parse(bytes_of("garbage garbage"), "a").error(), "this is not a .safetensors file"));
  std::vector<uint8_t> cut = safetensors("{" + x + "}", 8);
  cut.resize(20);
  CHECK(contains(Safetensors::parse(cut, "a").error(), "is truncated: a header of"));
  // A dtype that tkc does not know is no fault of the other tensors.
  std::vector<uint8_t> odd =
      safetensors("{" + x + ",\"y\":{\"dtype\":\"F6_E2M3\",\"shape\":[4],\"data_offsets\":[8,11]}}", 11);
  Result<Safetensors> file = Safetensors::parse(odd, "a");
  REQUIRE(file.ok());
  CHECK(file->get("x").ok());
  CHECK(file->get("y").error() == "`a`: the tensor `y` has the dtype F6_E2M3, which tkc does not know");
}

TEST_CASE("damaged files never crash a reader") {
  NamedTensors two = {{"a", fill_tensor({FillKind::Arange, 0, 1}, DType::F32, {2, 3}, 0)},
                      {"b", fill_tensor({FillKind::Arange, 0, 1}, DType::I64, {3}, 0)}};
  std::vector<std::vector<uint8_t>> seeds = {*encode_npy(two[0].second),
                                             npy("{'descr': '<V2', 'fortran_order': False, 'shape': (2,), }\n", 4, 2),
                                             *encode_safetensors(two)};
  uint64_t state = 1;
  auto random = [&](uint64_t n) { return splitmix64(state++ * 0x9e3779b97f4a7c15u) % n; };
  int64_t survived = 0, refused = 0;
  for (int64_t round = 0; round < 30000; round++) {
    std::vector<uint8_t> file = seeds[size_t(round) % 3];
    for (uint64_t edits = 1 + random(4); edits > 0 && !file.empty(); edits--) {
      size_t at = random(std::min<uint64_t>(file.size(), 160));
      switch (random(6)) {
      case 0: file[at] = uint8_t(random(256)); break;
      case 1: file[at] ^= uint8_t(1 << random(8)); break;
      case 2: file.erase(file.begin() + ptrdiff_t(at)); break;
      case 3: file.insert(file.begin() + ptrdiff_t(at), "{}[]()',:\"0123456789\\"[random(21)]); break;
      case 4: file.resize(at); break;
      case 5: file[at] = "{}[]()',:\"0123456789\\"[random(21)]; break;
      }
    }
    bool good;
    if (round % 3 < 2) {
      good = parse_npy(file, "x", random(2) ? std::optional(DType::BF16) : std::nullopt).ok();
    } else {
      Result<Safetensors> s = Safetensors::parse(file, "x");
      good = s.ok();
      if (good)
        for (const Safetensors::Entry &e : s->entries()) (void)s->get(e.name).ok();
    }
    (good ? survived : refused)++;
  }
  CHECK(refused > 10000);
  CHECK(survived > 100); // edits in the data alone
}
