#include "runtime/host_tensor.h"
#include "runtime/parallel.h"
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace tkc {

static_assert(std::endian::native == std::endian::little, "storage is little-endian");

std::optional<int64_t> element_count(std::span<const int64_t> shape) {
  int64_t count = 1;
  bool empty = false;
  // A zero anywhere makes the tensor empty, but the other dims must still be sane.
  for (int64_t d : shape) {
    if (d < 0) return std::nullopt;
    if (d == 0)
      empty = true;
    else if (__builtin_mul_overflow(count, d, &count) || count > int64_t(1) << 59)
      return std::nullopt;
  }
  return empty ? 0 : count;
}

int64_t storage_bytes(DType t, int64_t count) { return dtype_bits(t) == 4 ? (count + 1) / 2 : count * dtype_bytes(t); }

std::string shape_to_string(std::span<const int64_t> shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::vector<int64_t> coordinates(std::span<const int64_t> shape, int64_t index) {
  std::vector<int64_t> at(shape.size());
  for (size_t d = shape.size(); d-- > 0;) {
    at[d] = shape[d] > 0 ? index % shape[d] : 0;
    index = shape[d] > 0 ? index / shape[d] : 0;
  }
  return at;
}

// encode_float(round_to()) for the bulk of the values: a normal number of the type is its double with the low mantissa
// bits rounded off, so the code is an integer addition and a shift. Everything else takes the exact functions.
namespace {
struct QuickFormat {
  int mantissa, bias;
  double smallest, largest;
};
QuickFormat quick_format(DType t) {
  switch (t) {
  case DType::F16: return {10, 15, 0x1p-14, 65504.0};
  case DType::BF16: return {7, 127, 0x1p-126, 0x1.fep127};
  case DType::E4M3: return {3, 7, 0x1p-6, 448.0};
  case DType::E5M2: return {2, 15, 0x1p-14, 57344.0};
  default: return {0, 0, 1, 0}; // an empty range: nothing is quick
  }
}
uint64_t encode_quick(DType t, const QuickFormat &f, double x) {
  double magnitude = std::fabs(x);
  if (!(magnitude >= f.smallest && magnitude <= f.largest)) return encode_float(t, round_to(t, x));
  uint64_t bits = std::bit_cast<uint64_t>(magnitude);
  int shift = 52 - f.mantissa;
  uint64_t rounded = bits + ((uint64_t(1) << (shift - 1)) - 1) + (bits >> shift & 1);
  uint64_t code = (rounded >> shift) - (uint64_t(1023 - f.bias) << f.mantissa);
  return code | uint64_t(std::signbit(x)) << (dtype_bits(t) - 1);
}

// Every value of a type of at most 16 bits.
const std::vector<double> &decode_table(DType t) {
  static std::vector<double> tables[32];
  static const bool built = [] {
    for (DType each : all_dtypes()) {
      if (!is_float(each) || dtype_bits(each) > 16) continue;
      std::vector<double> &table = tables[int(each)];
      table.resize(size_t(1) << dtype_bits(each));
      for (size_t code = 0; code < table.size(); code++) table[code] = decode_float(each, code);
    }
    return true;
  }();
  (void)built;
  return tables[int(t)];
}

double int_to_double(DType t, uint64_t bits) {
  return t == DType::U64 ? double(bits) : double(wrap_to(t, int64_t(bits)));
}
uint64_t encode_value(DType t, const QuickFormat &f, double x) {
  if (!is_float(t)) return uint64_t(float_to_int(t, x));
  if (t == DType::F32) return std::bit_cast<uint32_t>(float(x));
  if (t == DType::F64) return std::bit_cast<uint64_t>(x);
  return encode_quick(t, f, x);
}
} // namespace

HostTensor HostTensor::zeros(DType dtype, std::vector<int64_t> shape) {
  HostTensor t;
  t.dtype = dtype;
  t.shape = std::move(shape);
  t.bytes.resize(size_t(storage_bytes(dtype, t.count())));
  return t;
}

HostTensor HostTensor::from_doubles(DType dtype, std::vector<int64_t> shape, std::span<const double> values) {
  HostTensor t = zeros(dtype, std::move(shape));
  TKC_CHECK(int64_t(values.size()) == t.count(), "{} values for {}", values.size(), t.to_string());
  constexpr int64_t kGrain = 1 << 16; // even: two threads never share a byte of e2m1
  parallel_for(t.count(), kGrain, [&](int64_t begin, int64_t end) {
    t.set_range(begin, values.subspan(size_t(begin), size_t(end - begin)));
  });
  return t;
}

int64_t HostTensor::count() const {
  std::optional<int64_t> n = element_count(shape);
  TKC_CHECK(n.has_value(), "impossible shape {}", shape_to_string(shape));
  return *n;
}

std::string HostTensor::to_string() const { return fmt::format("{}{}", dtype_name(dtype), shape_to_string(shape)); }

uint64_t HostTensor::bits(int64_t index) const {
  if (dtype_bits(dtype) == 4) {
    TKC_CHECK(index >= 0 && size_t(index / 2) < bytes.size(), "element {} of {}", index, to_string());
    return uint64_t(bytes[size_t(index / 2)] >> (index % 2 * 4) & 0xf);
  }
  size_t size = size_t(dtype_bytes(dtype));
  TKC_CHECK(index >= 0 && (size_t(index) + 1) * size <= bytes.size(), "element {} of {}", index, to_string());
  uint64_t value = 0;
  std::memcpy(&value, bytes.data() + size_t(index) * size, size);
  return value;
}

void HostTensor::set_bits(int64_t index, uint64_t value) {
  if (dtype_bits(dtype) == 4) {
    TKC_CHECK(index >= 0 && size_t(index / 2) < bytes.size(), "element {} of {}", index, to_string());
    uint8_t &byte = bytes[size_t(index / 2)];
    int shift = int(index % 2 * 4);
    byte = uint8_t((byte & ~(0xf << shift)) | int(value & 0xf) << shift);
    return;
  }
  size_t size = size_t(dtype_bytes(dtype));
  TKC_CHECK(index >= 0 && (size_t(index) + 1) * size <= bytes.size(), "element {} of {}", index, to_string());
  std::memcpy(bytes.data() + size_t(index) * size, &value, size);
}

double HostTensor::get(int64_t index) const {
  return is_float(dtype) ? decode_float(dtype, bits(index)) : int_to_double(dtype, bits(index));
}

void HostTensor::set(int64_t index, double value) { set_bits(index, encode_value(dtype, quick_format(dtype), value)); }

int64_t HostTensor::get_int(int64_t index) const {
  TKC_CHECK(!is_float(dtype), "get_int on {}", to_string());
  return wrap_to(dtype, int64_t(bits(index)));
}

void HostTensor::set_int(int64_t index, int64_t value) {
  TKC_CHECK(!is_float(dtype), "set_int on {}", to_string());
  set_bits(index, uint64_t(wrap_to(dtype, value)));
}

void HostTensor::set_range(int64_t begin, std::span<const double> values) {
  QuickFormat f = quick_format(dtype);
  TKC_CHECK(begin >= 0 && begin + int64_t(values.size()) <= count(), "range of {}", to_string());
  if (dtype_bits(dtype) == 4) {
    for (size_t i = 0; i < values.size(); i++) set_bits(begin + int64_t(i), encode_value(dtype, f, values[i]));
    return;
  }
  size_t size = size_t(dtype_bytes(dtype));
  uint8_t *to = bytes.data() + size_t(begin) * size;
  for (double x : values) {
    uint64_t code = encode_value(dtype, f, x);
    std::memcpy(to, &code, size);
    to += size;
  }
}

void HostTensor::get_range(int64_t begin, std::span<double> values) const {
  TKC_CHECK(begin >= 0 && begin + int64_t(values.size()) <= count(), "range of {}", to_string());
  size_t size = size_t(dtype_bytes(dtype));
  const uint8_t *from = bytes.data() + size_t(begin) * size;
  if (dtype == DType::F32) {
    for (double &x : values) {
      float f;
      std::memcpy(&f, from, size);
      x = f;
      from += size;
    }
  } else if (is_float(dtype) && dtype_bits(dtype) <= 16 && dtype_bits(dtype) >= 8) {
    const std::vector<double> &table = decode_table(dtype);
    for (double &x : values) {
      uint16_t code = 0;
      std::memcpy(&code, from, size);
      x = table[code];
      from += size;
    }
  } else {
    for (size_t i = 0; i < values.size(); i++) values[i] = get(begin + int64_t(i));
  }
}

std::vector<double> HostTensor::to_doubles() const {
  std::vector<double> values(static_cast<size_t>(count()));
  parallel_for(count(), 1 << 16, [&](int64_t begin, int64_t end) {
    get_range(begin, std::span(values).subspan(size_t(begin), size_t(end - begin)));
  });
  return values;
}

HostTensor convert(const HostTensor &from, DType to) {
  if (from.dtype == to) return from;
  if (!is_float(from.dtype) && !is_float(to)) { // i64 does not pass through a double
    HostTensor t = HostTensor::zeros(to, from.shape);
    for (int64_t i = 0; i < t.count(); i++) t.set_int(i, from.get_int(i));
    return t;
  }
  return HostTensor::from_doubles(to, from.shape, from.to_doubles());
}

uint64_t checksum(const HostTensor &t) {
  uint64_t hash = 0xcbf29ce484222325u;
  auto mix = [&](uint64_t word) { // FNV-1a over words, with a final avalanche below
    hash = (hash ^ word) * 0x100000001b3u;
    hash ^= hash >> 29;
  };
  for (char c : dtype_name(t.dtype)) mix(uint64_t(uint8_t(c)));
  for (int64_t d : t.shape) mix(uint64_t(d));
  size_t i = 0;
  for (; i + 8 <= t.bytes.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, t.bytes.data() + i, 8);
    mix(word);
  }
  for (; i < t.bytes.size(); i++) mix(t.bytes[i]);
  hash ^= hash >> 33;
  hash *= 0xff51afd7ed558ccdu;
  return hash ^ hash >> 33;
}

Status check_tensor(const HostTensor &t, DType dtype, std::span<const int64_t> shape, std::string_view what) {
  if (t.dtype != dtype) return failure("{} holds {}, but {} is wanted", what, t.to_string(), dtype_name(dtype));
  if (!std::equal(t.shape.begin(), t.shape.end(), shape.begin(), shape.end()))
    return failure("{} holds {}, but the shape {} is wanted", what, t.to_string(), shape_to_string(shape));
  return {};
}

} // namespace tkc
