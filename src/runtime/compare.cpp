#include "runtime/compare.h"
#include "runtime/parallel.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace tkc {

namespace {
uint64_t poison_bits(DType t) {
  switch (t) {
  case DType::F64: return 0x7ff87b7b7b7b7b7bu;
  case DType::F32:
  case DType::TF32: return 0x7fdb7b7bu;
  case DType::F16: return 0x7f7bu;
  case DType::BF16: return 0x7ffbu;
  case DType::E4M3: return 0xffu;
  case DType::E5M2: return 0x7du;
  case DType::UE8M0: return 0xffu;
  case DType::UE4M3: return 0x7fu;
  case DType::E2M1: return 0; // two different elements to a byte, see poison_at
  case DType::Bool:
  case DType::I8:
  case DType::I16:
  case DType::I32:
  case DType::I64:
  case DType::U8:
  case DType::U16:
  case DType::U32:
  case DType::U64: {
    int64_t bits = dtype_bits(t);
    return 0x7b7b7b7b7b7b7b7bu >> (64 - bits);
  }
  }
  TKC_UNREACHABLE("poison of {}", dtype_name(t));
}
uint64_t poison_at(DType t, int64_t index) {
  if (t == DType::E2M1) return index % 2 ? 0x7 : 0xb;
  return poison_bits(t);
}
bool holds_poison(const HostTensor &t, int64_t index) { return t.bits(index) == poison_at(t.dtype, index); }

bool same_value(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

// The reference as the dtype holds it.
double rounded(DType t, double x) {
  if (is_float(t)) return round_to(t, x);
  if (t == DType::U64) return double(uint64_t(float_to_int(t, x)));
  return double(float_to_int(t, x));
}

struct Block { // partial results of one block of elements
  double square_error = 0, square_reference = 0, largest_error = 0;
  int64_t worst = -1, first_bad = -1, first_nonfinite = -1;
  int64_t mismatches = 0, nonfinite = 0, unwritten = 0;
};
constexpr int64_t kGrain = 1 << 14;
} // namespace

double Comparison::rms_ratio() const { return zero_reference() ? rms_error : rms_error / rms_reference; }

static Comparison compare_values(const HostTensor &got, std::span<const double> expected, const Tolerance &tolerance) {
  Comparison c;
  c.shape = got.shape;
  c.dtype = got.dtype;
  c.tolerance = tolerance;
  c.count = got.count();
  int64_t blocks = (c.count + kGrain - 1) / kGrain;
  bool has_nonfinite = is_float(got.dtype);

  // Squares are taken of values scaled by the largest: f64 references may be as large as 1e300.
  std::vector<double> largest(static_cast<size_t>(blocks));
  auto load = [&](int64_t begin, int64_t end, std::vector<double> &values) {
    values.resize(size_t(end - begin));
    got.get_range(begin, values);
  };
  parallel_for(c.count, kGrain, [&](int64_t begin, int64_t end) {
    std::vector<double> values;
    load(begin, end, values);
    double &m = largest[size_t(begin / kGrain)];
    for (int64_t i = begin; i < end; i++) {
      double g = values[size_t(i - begin)], e = expected[size_t(i)];
      if (std::isfinite(g) && std::isfinite(e)) m = std::max({m, std::fabs(g), std::fabs(e)});
    }
  });
  double scale = 0;
  for (double m : largest) scale = std::max(scale, m);
  int exponent = scale > 0 ? std::ilogb(scale) : 0;
  double shrink = std::ldexp(1.0, -exponent / 2); // applied twice: 2^-exponent may itself be out of range
  auto scaled = [&](double x) { return x * shrink * shrink; };
  double unit = std::ldexp(1.0, exponent / 2);

  auto sum_up = [&](double outlier_floor, std::vector<Block> &out) {
    out.assign(size_t(blocks), Block());
    parallel_for(c.count, kGrain, [&](int64_t begin, int64_t end) {
      std::vector<double> values;
      load(begin, end, values);
      Block &b = out[size_t(begin / kGrain)];
      for (int64_t i = begin; i < end; i++) {
        double g = values[size_t(i - begin)], e = expected[size_t(i)];
        bool bad = false, finite = std::isfinite(g) && std::isfinite(e);
        if (finite) {
          double error = std::fabs(g - e);
          b.square_error += scaled(error) * scaled(error);
          b.square_reference += scaled(e) * scaled(e);
          if (b.worst < 0 || error > b.largest_error) {
            b.largest_error = error;
            b.worst = i;
          }
          if (tolerance.max_abs && !(error <= *tolerance.max_abs)) bad = true;
          if (tolerance.exact && g != rounded(got.dtype, e)) bad = true;
          if (outlier_floor >= 0 && error > std::max(std::fabs(e) * tolerance.outlier * *tolerance.rms, outlier_floor))
            bad = true;
        } else if (!same_value(g, has_nonfinite ? rounded(got.dtype, e) : e)) {
          bad = true;
          b.nonfinite++;
          if (b.first_nonfinite < 0) b.first_nonfinite = i;
        }
        if (!bad) continue;
        b.mismatches++;
        if (b.first_bad < 0) b.first_bad = i;
        if (holds_poison(got, i)) b.unwritten++;
      }
    });
  };

  std::vector<Block> parts;
  double square_error = 0, square_reference = 0;
  sum_up(-1, parts);
  for (const Block &b : parts) {
    square_error += b.square_error;
    square_reference += b.square_reference;
  }
  double n = double(std::max<int64_t>(c.count, 1));
  c.rms_error = std::sqrt(square_error / n) * unit * unit;
  c.rms_reference = std::sqrt(square_reference / n) * unit * unit;
  // The outlier limit needs the mean square of the reference: a second pass.
  if (tolerance.rms && tolerance.outlier > 0 && !c.zero_reference())
    sum_up(tolerance.outlier * *tolerance.rms * c.rms_reference, parts);

  int64_t worst = -1, first_nonfinite = -1, first_bad = -1;
  for (const Block &b : parts) {
    if (b.worst >= 0 && (worst < 0 || b.largest_error > c.max_abs_error)) {
      c.max_abs_error = b.largest_error;
      worst = b.worst;
    }
    if (first_bad < 0) first_bad = b.first_bad;
    if (first_nonfinite < 0) first_nonfinite = b.first_nonfinite;
    c.mismatches += b.mismatches;
    c.nonfinite_mismatches += b.nonfinite;
    c.unwritten += b.unwritten;
  }
  auto at = [&](int64_t i) { return Mismatch{i, got.get(i), expected[size_t(i)], {}}; };
  if (first_nonfinite >= 0) worst = first_nonfinite;
  if (worst >= 0) c.worst = at(worst);
  if (first_bad >= 0)
    c.first = at(first_bad);
  else if (worst >= 0 && c.max_abs_error > 0)
    c.first = c.worst;
  c.pass = c.mismatches == 0 && (!tolerance.rms || c.rms_ratio() <= *tolerance.rms);
  return c;
}

Comparison compare(const HostTensor &got, std::span<const double> expected, const Tolerance &tolerance) {
  TKC_CHECK(got.count() == int64_t(expected.size()), "{} against {} values", got.to_string(), expected.size());
  return compare_values(got, expected, tolerance);
}

Comparison compare(const HostTensor &got, const HostTensor &expected, const Tolerance &tolerance) {
  TKC_CHECK(got.shape == expected.shape, "{} against {}", got.to_string(), expected.to_string());
  std::vector<double> values = expected.to_doubles();
  Comparison c = compare_values(got, values, tolerance);
  // Two 64-bit integers can differ and be the same double.
  bool wide = dtype_bits(got.dtype) == 64 && is_integer(got.dtype) && got.dtype == expected.dtype;
  if (!tolerance.exact || !wide) return c;
  for (int64_t i = 0; i < c.count; i++) {
    if (got.bits(i) == expected.bits(i) || got.get(i) != values[size_t(i)]) continue;
    Mismatch m{i, got.get(i), values[size_t(i)], {}};
    if (c.mismatches++ == 0) c.first = c.worst = m;
    c.pass = false;
  }
  return c;
}

std::string to_string(const Tolerance &t) {
  std::string out;
  auto add = [&](const std::string &s) { out += (out.empty() ? "" : ", ") + s; };
  if (t.exact) add("exact");
  if (t.rms) add(fmt::format("rms {:.3g}", *t.rms));
  if (t.max_abs) add(fmt::format("max abs {:.3g}", *t.max_abs));
  return out.empty() ? "finite" : out;
}

std::string Comparison::to_string(std::string_view name) const {
  std::string out =
      fmt::format("{}: {}  {}{}", name, pass ? "ok" : "MISMATCH", dtype_name(dtype), shape_to_string(shape));
  out += fmt::format("  rms {:.2e}{}", rms_ratio(),
                     zero_reference() && count > 0 ? " (absolute: the reference is zero)" : "");
  if (tolerance.rms) out += fmt::format(" (limit {:.3g})", *tolerance.rms);
  out += fmt::format("  max abs {:.2e}", max_abs_error);
  if (tolerance.max_abs) out += fmt::format(" (limit {:.3g})", *tolerance.max_abs);
  if (tolerance.exact) out += "  exact";
  out += '\n';
  if (pass) return out;
  auto line = [&](const char *what, const Mismatch &m) {
    double error = std::fabs(m.got - m.expected);
    std::vector<int64_t> at = coordinates(shape, m.index);
    std::string named, place;
    for (size_t d = 0; d < std::min(dims.size(), at.size()); d++)
      if (!dims[d].empty()) named += fmt::format("{} {} {}", named.empty() ? " =" : ",", dims[d], at[d]);
    for (const auto &[word, v] : m.place) place += fmt::format("{} {} {}", place.empty() ? ", in" : ",", word, v);
    out += fmt::format("  {} at {}{}{}: got {:.9g}, expected {:.9g}", what, shape_to_string(at), named, place, m.got,
                       m.expected);
    out += std::isfinite(error) ? fmt::format(", off by {:.3g}\n", error) : "\n";
  };
  if (mismatches > 0) {
    out += fmt::format("  {} of {} elements differ", mismatches, count);
    if (nonfinite_mismatches > 0)
      out += fmt::format(", {} of them NaN or infinite on one side only", nonfinite_mismatches);
    out += '\n';
    if (unwritten > 0) out += fmt::format("  {} of them were never written by the kernel\n", unwritten);
  }
  if (first) line("first", *first);
  if (worst && (!first || worst->index != first->index)) line("worst", *worst);
  return out;
}

void poison(HostTensor &t) {
  if (dtype_bits(t.dtype) <= 8) {
    uint8_t byte = t.dtype == DType::E2M1 ? 0x7b : uint8_t(poison_bits(t.dtype));
    if (!t.bytes.empty()) std::memset(t.bytes.data(), byte, t.bytes.size());
    return;
  }
  uint64_t pattern = poison_bits(t.dtype);
  size_t size = size_t(dtype_bytes(t.dtype));
  for (size_t i = 0; i + size <= t.bytes.size(); i += size) std::memcpy(t.bytes.data() + i, &pattern, size);
}

PoisonLeft find_poison(const HostTensor &t) {
  PoisonLeft left;
  for (int64_t i = 0, n = t.count(); i < n; i++) {
    if (!holds_poison(t, i)) continue;
    if (left.count++ == 0) left.first = i;
  }
  return left;
}

} // namespace tkc
