#include "runtime/generators.h"
#include "runtime/parallel.h"
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

namespace tkc {

uint64_t splitmix64(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

uint64_t stream_seed(uint64_t seed, int64_t stream) {
  return splitmix64(splitmix64(seed + 0x9e3779b97f4a7c15u) + uint64_t(stream));
}

namespace {
struct FillRow {
  std::string_view name;
  size_t least, most;
};
constexpr FillRow kFillRows[] = {
#define TKC_FILL(name, text, least, most) {text, least, most},
    TKC_FILLS
#undef TKC_FILL
};
constexpr double kPi = 3.14159265358979323846;

// [0, 1) from the top 53 bits.
double unit(uint64_t hash) { return double(hash >> 11) * 0x1p-53; }

double uniform_f32(uint64_t hash, double low, double high) {
  // 24-bit u times a float is exact in double, so the cast is the rounding of the float product.
  double u = double(hash >> 40) * 0x1p-24;
  float range = float(high) - float(low), product = float(u * double(range));
  return product + float(low);
}

// Natural logarithm of 0 < x <= 1 by the series of atanh: libm differs between machines in the last bit.
double portable_log(double x) {
  int e = int(std::bit_cast<uint64_t>(x) >> 52) - 1023;
  double m = std::bit_cast<double>((std::bit_cast<uint64_t>(x) & 0xfffffffffffffu) | 0x3ff0000000000000u);
  if (m > 1.4142135623730951) {
    m *= 0.5;
    e++;
  }
  double s = (m - 1) / (m + 1), square = s * s, sum = 0;
  for (int k = 23; k >= 1; k -= 2) sum = sum * square + 1.0 / k;
  return double(e) * 0.693147180559945309417 + 2 * s * sum;
}

// cos(2 pi u) for 0 <= u < 1: reduced to [0, 1/8] turns, where the Taylor series is short.
double portable_cos_turns(double u) {
  double t = u > 0.5 ? 1 - u : u; // cos is even around half a turn
  bool negative = t > 0.25;
  if (negative) t = 0.5 - t;
  bool use_sine = t > 0.125;
  double x = 2 * kPi * (use_sine ? 0.25 - t : t), square = x * x, sum = 0;
  for (int k = use_sine ? 17 : 16; k >= 2; k -= 2) sum = (1 + sum) * (-square / double(k * (k - 1)));
  double magnitude = use_sine ? x * (1 + sum) : 1 + sum;
  return negative ? -magnitude : magnitude;
}

double standard_normal(uint64_t seed, int64_t index) {
  // The second stream is far from the first for any seed and index in use.
  uint64_t first = splitmix64(seed + uint64_t(index)),
           second = splitmix64(seed + uint64_t(index) + 0x9e3779b97f4a7c15u);
  return std::sqrt(-2 * portable_log(unit(first) + 0x1p-53)) * portable_cos_turns(unit(second));
}

int64_t integer_in(uint64_t hash, int64_t low, int64_t high) {
  uint64_t range = uint64_t(high) - uint64_t(low);
  return low + int64_t(uint64_t((unsigned __int128)(hash)*range >> 64));
}

std::vector<double> edge_values(DType t, double level) {
  if (is_bool(t)) return {0, 1};
  if (is_integer(t)) {
    double bits = double(dtype_bits(t));
    if (is_signed(t)) return {0, 1, -1, std::ldexp(1.0, int(bits) - 1), -std::ldexp(1.0, int(bits) - 1)};
    return {0, 1, std::ldexp(1.0, int(bits))}; // set() saturates
  }
  if (t == DType::UE8M0) {
    std::vector<double> v = {1, 0x1p-127, 0x1p127};
    if (level >= 2) v.push_back(std::numeric_limits<double>::quiet_NaN());
    return v;
  }
  // Denormals and limits from the codes themselves.
  uint64_t one = encode_float(t, 1.0);
  double largest = t == DType::F64 ? std::numeric_limits<double>::max() : 0, least = 0, most_denormal = 0, normal = 0;
  int mantissa = 0;
  switch (t) {
  case DType::F16: mantissa = 10, largest = 65504; break;
  case DType::BF16: mantissa = 7, largest = 0x1.fep127; break;
  case DType::TF32: mantissa = 10, largest = 0x1.ffcp127; break;
  case DType::F32: mantissa = 23, largest = 0x1.fffffep127; break;
  case DType::F64: mantissa = 52; break;
  case DType::E4M3:
  case DType::UE4M3: mantissa = 3, largest = 448; break;
  case DType::E5M2: mantissa = 2, largest = 57344; break;
  case DType::E2M1: mantissa = 1, largest = 6; break;
  default: TKC_UNREACHABLE("edge values of {}", dtype_name(t));
  }
  int shift = t == DType::TF32 ? 13 : 0; // tf32 lies in the upper bits of 32
  least = decode_float(t, uint64_t(1) << shift);
  most_denormal = decode_float(t, ((uint64_t(1) << mantissa) - 1) << shift);
  normal = decode_float(t, uint64_t(1) << (mantissa + shift));
  std::vector<double> v = {0, decode_float(t, one), least, most_denormal, normal, largest};
  if (t != DType::UE4M3)
    for (size_t i = 0, n = v.size(); i < n; i++) v.push_back(-v[i]);
  bool has_inf = t != DType::E4M3 && t != DType::UE4M3 && t != DType::E2M1;
  // e5m2 reads infinities, but rounding saturates: they cannot be made from values.
  if (level >= 1 && has_inf && t != DType::E5M2) {
    v.push_back(std::numeric_limits<double>::infinity());
    v.push_back(-std::numeric_limits<double>::infinity());
  }
  if (level >= 2 && t != DType::E2M1) v.push_back(std::numeric_limits<double>::quiet_NaN());
  return v;
}

// The value before rounding to the dtype; `edges` is edge_values() where the kind needs it.
double raw_value(const Fill &f, const std::vector<double> &edges, uint64_t seed, int64_t index) {
  auto hash = [&] { return splitmix64(seed + uint64_t(index)); };
  switch (f.kind) {
  case FillKind::Zeros: return 0;
  case FillKind::Constant: return f.a;
  case FillKind::Uniform: return uniform_f32(hash(), f.a, f.b);
  case FillKind::Normal: return f.a + f.b * standard_normal(seed, index);
  case FillKind::Bernoulli: return unit(hash()) < f.a;
  case FillKind::Integers: return double(integer_in(hash(), int64_t(f.a), int64_t(f.b)));
  case FillKind::Arange: return f.a + f.b * double(index);
  case FillKind::Edges: return edges[size_t((seed + uint64_t(index)) % edges.size())];
  }
  return 0;
}

std::vector<double> edges_for(const Fill &f, DType t) {
  return f.kind == FillKind::Edges ? edge_values(t, f.a) : std::vector<double>();
}
constexpr int64_t kGrain = 1 << 14; // even: two threads never share a byte of e2m1
} // namespace

std::optional<FillKind> parse_fill_kind(std::string_view name) {
  for (size_t i = 0; i < std::size(kFillRows); i++)
    if (kFillRows[i].name == name) return FillKind(i);
  return std::nullopt;
}

std::vector<std::string> fill_names() {
  std::vector<std::string> names;
  for (const FillRow &row : kFillRows) names.emplace_back(row.name);
  return names;
}

Result<Fill> make_fill(FillKind kind, std::span<const double> arguments) {
  const FillRow &row = kFillRows[int(kind)];
  size_t n = arguments.size();
  if (n < row.least || n > row.most) {
    std::string wants =
        row.least == row.most ? fmt::format("{}", row.least) : fmt::format("{} to {}", row.least, row.most);
    return failure("`{}` takes {} arguments, not {}", row.name, wants, n);
  }
  Fill f{kind, 0, 0};
  switch (kind) {
  case FillKind::Zeros:
  case FillKind::Constant:
  case FillKind::Edges: break;
  case FillKind::Uniform:
  case FillKind::Normal:
  case FillKind::Arange: f.b = 1; break;
  case FillKind::Bernoulli: f.a = 0.5; break;
  case FillKind::Integers: break;
  }
  if (n > 0) f.a = arguments[0];
  if (n > 1) f.b = arguments[1];
  bool finite = std::isfinite(f.a) && std::isfinite(f.b);
  if (kind != FillKind::Constant && !finite) return failure("`{}` takes finite arguments", row.name);
  if (kind == FillKind::Uniform && !(f.a <= f.b)) return failure("`uniform({}, {})` is an empty range", f.a, f.b);
  if (kind == FillKind::Normal && f.b < 0) return failure("`normal` with a negative deviation {}", f.b);
  if (kind == FillKind::Bernoulli && !(f.a >= 0 && f.a <= 1)) return failure("`bernoulli({})`: not a probability", f.a);
  if (kind == FillKind::Integers) {
    if (std::trunc(f.a) != f.a || std::trunc(f.b) != f.b || std::fabs(f.a) > 0x1p53 || std::fabs(f.b) > 0x1p53)
      return failure("`integers({}, {})`: the bounds are not integers below 2^53", f.a, f.b);
    if (!(f.a < f.b)) return failure("`integers({}, {})` is an empty range", f.a, f.b);
  }
  return f;
}

std::string to_string(const Fill &f) {
  const FillRow &row = kFillRows[int(f.kind)];
  if (row.most == 0) return fmt::format("{}()", row.name);
  return row.most == 1 ? fmt::format("{}({})", row.name, f.a) : fmt::format("{}({}, {})", row.name, f.a, f.b);
}

double fill_value(const Fill &fill, DType dtype, uint64_t seed, int64_t index) {
  HostTensor one = HostTensor::zeros(dtype, {1});
  one.set(0, raw_value(fill, edges_for(fill, dtype), seed, index));
  return one.get(0);
}

HostTensor fill_tensor(const Fill &fill, DType dtype, std::vector<int64_t> shape, uint64_t seed) {
  HostTensor t = HostTensor::zeros(dtype, std::move(shape));
  std::vector<double> edges = edges_for(fill, dtype);
  parallel_for(t.count(), kGrain, [&](int64_t begin, int64_t end) {
    std::vector<double> block(size_t(end - begin));
    for (int64_t i = begin; i < end; i++) block[size_t(i - begin)] = raw_value(fill, edges, seed, i);
    t.set_range(begin, block);
  });
  return t;
}

std::vector<double> fill_values(const Fill &fill, DType dtype, int64_t count, uint64_t seed) {
  return fill_tensor(fill, dtype, {count}, seed).to_doubles();
}

Fill convention_fill(DType dtype) {
  switch (dtype) {
  case DType::Bool: return {FillKind::Bernoulli, 0.5, 0};
  case DType::I8:
  case DType::I16:
  case DType::I32:
  case DType::I64: return {FillKind::Integers, -8, 8};
  case DType::U8:
  case DType::U16:
  case DType::U32:
  case DType::U64: return {FillKind::Integers, 0, 16};
  case DType::F16:
  case DType::BF16:
  case DType::TF32:
  case DType::F32:
  case DType::F64:
  case DType::E5M2: return {FillKind::Uniform, -1, 1};
  case DType::E4M3: return {FillKind::Uniform, -448, 448};
  case DType::E2M1: return {FillKind::Uniform, -6, 6};
  case DType::UE8M0:
  case DType::UE4M3: return {FillKind::Uniform, 0.1, 10};
  }
  TKC_UNREACHABLE("convention_fill({})", int(dtype));
}

} // namespace tkc
