// Leaves: constants, values in scope, and loads, whose tensors become parameters.
#include "generator.h"
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tkc::fuzz {

int64_t elements(const Shape &s) {
  int64_t n = 1;
  for (int64_t e : s) n *= e;
  return n;
}
std::string shape_text(const Shape &s) { return fmt::format("[{}]", fmt::join(s, ", ")); }
const char *dtype_text(DType t) { return dtype_name(t).data(); }

std::string number(DType t, double v) {
  std::string s = is_float(t) ? fmt::format("{:.17g}", v) : fmt::format("{}", int64_t(v));
  if (is_float(t) && s.find_first_of(".e") == std::string::npos) s += ".0";
  return v < 0 ? "(" + s + ")" : s;
}

// ---- types

DType Generator::float_dtype() {
  static const std::vector<DType> list = {DType::F32, DType::F32, DType::BF16, DType::F16, DType::F64};
  return c_.of(list);
}
DType Generator::any_dtype(bool computing) {
  static const std::vector<DType> list = {DType::F32, DType::BF16, DType::F16, DType::I32, DType::F64,
                                          DType::U32, DType::I64,  DType::U64, DType::I8,  DType::U8,
                                          DType::I16, DType::U16,  DType::Bool};
  return list[c_.pick(uint32_t(list.size()) - (computing ? 1 : 0))];
}
int64_t Generator::dim() { return c_.of(dims_); }
Shape Generator::any_shape(int least, int most) {
  int rank = least + int(c_.pick(uint32_t(most - least + 1)));
  Shape s;
  for (int d = 0; d < rank; d++) s.push_back(dim());
  while (elements(s) > kMostElements) *std::max_element(s.begin(), s.end()) = 8;
  return s;
}

// ---- parameters

std::string Generator::size(int64_t most, bool even) {
  std::vector<std::string> fitting;
  for (const auto &[name, n] : program_.sizes)
    if (n <= most && name[0] != 'G') fitting.push_back(name);
  if (!fitting.empty() && c_.chance(40)) return c_.of(fitting);
  std::string name = fmt::format("N{}", program_.sizes.size());
  int64_t n = 1 + c_.pick(uint32_t(most));
  if (even || c_.chance(50)) n = std::max<int64_t>(n / 16 * 16, std::min<int64_t>(16, most));
  program_.sizes[name] = n;
  return name;
}

Generator::Param &Generator::param(const std::string &prefix, DType t, const std::string &dims,
                                   const std::string &mode) {
  params_.push_back({name(prefix.c_str()), fmt::format("tensor<{}>[{}]", dtype_name(t), dims), mode});
  return params_.back();
}

// What an input holds: small numbers on which sums are exact, or all bits of the mantissa.
void Generator::fill(const Param &p, DType t, Bound &bound) {
  Input in;
  if (is_bool(t)) {
    in = {50, 0};
    bound = integers_between(0, 1);
  } else if (is_float(t)) {
    static const std::vector<Input> coarse = {{3, 0}, {1, 0}, {8, 0}, {2, -1}, {3, -2}};
    bool fine = c_.chance(25);
    in = fine ? Input{1, double(std::max(-format_of(t).precision, format_of(t).quantum))} : c_.of(coarse);
    bound = floats_upto(in.first, int(in.second));
  } else {
    static const std::vector<Input> list = {{0, 5}, {0, 100}, {0, 1}};
    in = c_.of(list);
    if (is_signed(t) && c_.chance(50)) in.first = -in.second;
    if (c_.chance(15)) {
      Bound all = wrapped(t, -1e30, 1e30);
      in = {all.low, all.high};
    }
    bound = integers_between(in.first, in.second);
  }
  program_.inputs[p.name] = in;
}

// ---- leaves

Val Generator::constant(DType t, const Shape &s) {
  double v = double(c_.pick(8));
  if (is_bool(t)) v = double(int(v) % 2);
  if (is_float(t) && c_.chance(30)) v = v * 0.5 - 1.5;
  if (is_signed(t) && c_.chance(30)) v = -v;
  if (is_float(t) && format_of(t).precision < 8) v = std::round(std::min(v, 4.0));
  Val out{"", t, s, is_float(t) ? floats_upto(std::fabs(v), -1) : integers_between(v, v)};
  std::string literal = is_bool(t) ? (v != 0 ? "true" : "false") : number(t, v);
  out.text = s.empty() ? fmt::format("{}({})", dtype_name(t), literal)
                       : fmt::format("full<{}>({}, {})", dtype_name(t), shape_text(s), literal);
  // A literal condition would be decided at compile time, and a store behind it left out.
  if (is_bool(t) && s.empty()) out.text = v != 0 ? "(p0 >= 0)" : "(p0 < 0)";
  return out;
}

Val Generator::load(DType t, const Shape &s) {
  Choices::Scope scope(c_);
  if (params_.size() >= kMostParams) return constant(t, s);
  int rank = int(s.size());
  std::vector<std::string> dims(s.size()), index(s.size());
  for (int d = 0; d < rank; d++) dims[size_t(d)] = std::to_string(s[size_t(d)]), index[size_t(d)] = ":";
  // Each of these says where one dim begins.
  auto follow = [&](int d, const Counter &k) {
    dims[size_t(d)] = k.size;
    index[size_t(d)] = fmt::format("{} :+ {}", k.name, s[size_t(d)]);
  };
  auto tail = [&](int d) { // a run-time extent that the tile may hang over, at a constant position
    dims[size_t(d)] = size(2 * s[size_t(d)] + 1);
    index[size_t(d)] =
        fmt::format("{} :+ {}", c_.chance(50) ? int64_t(c_.pick(uint32_t(s[size_t(d)]) + 1)) : 0, s[size_t(d)]);
  };
  auto block = [&](int d) { // by the position of the block
    int g = int(c_.pick(uint32_t(grid_.size())));
    dims[size_t(d)] = size(program_.sizes[grid_[size_t(g)]] * s[size_t(d)] + 3);
    index[size_t(d)] = fmt::format("p{} * {} :+ {}", g, s[size_t(d)], s[size_t(d)]);
  };
  std::string extra_dim, extra_index; // a leading dim that is dropped
  int counted = -1;
  if (!counters_.empty() && c_.chance(75)) {
    const Counter &k = counters_[c_.chance(80) ? counters_.size() - 1 : c_.pick(uint32_t(counters_.size()))];
    if (rank == 0 || k.step == 1 || c_.chance(25)) {
      extra_dim = k.size + (rank ? ", " : "");
      extra_index = k.name + (rank ? ", " : "");
      if (rank == 0) extra_index = k.name;
    } else {
      counted = int(c_.pick(uint32_t(rank)));
      follow(counted, k);
    }
  }
  for (int d = 0; d < rank; d++) {
    if (d == counted) continue;
    switch (c_.pick(5)) {
    case 3: block(d); break;
    case 4: tail(d); break;
    default: break;
    }
  }
  if (rank == 0 && extra_dim.empty()) {
    int g = int(c_.pick(uint32_t(grid_.size())));
    extra_dim = grid_[size_t(g)], extra_index = fmt::format("p{}", g);
  }
  // A gather: positions are any integers, those outside give `other`.
  if (rank > 0 && c_.chance(12)) {
    int d = int(c_.pick(uint32_t(rank)));
    if (d != counted) {
      dims[size_t(d)] = size(2 * s[size_t(d)] + 1);
      Val at = expr(c_.chance(20) ? DType::I64 : DType::I32, {s[size_t(d)]}, 1, true);
      line(fmt::format("let {} = {};", name("at"), at.text));
      index[size_t(d)] = fmt::format("at{}", names_ - 1);
    }
  }
  Param &p = param("x", t, extra_dim + fmt::format("{}", fmt::join(dims, ", ")), "");
  std::string tensor = p.name;
  Val out{"", t, s, {}};
  fill(p, t, out.bound);
  if (is_float(t))
    out.bound.most = std::max(out.bound.most, 0.0);
  else
    out.bound.low = std::min(out.bound.low, 0.0), out.bound.high = std::max(out.bound.high, 0.0);
  std::string options;
  if (rank > 0 && c_.chance(15)) {
    Val mask = expr(DType::Bool, s, 1, true);
    options = ", mask = " + mask.text;
    if (c_.chance(50)) {
      double other = is_bool(t) ? 1 : c_.pick(3);
      options += fmt::format(", other = {}", is_bool(t) ? "true" : number(t, other));
      out.bound = either(t, out.bound, is_float(t) ? floats_upto(other, 0) : integers_between(other, other));
    }
  }
  out.text = fmt::format("load({}[{}{}]{})", tensor, extra_index, fmt::join(index, ", "), options);
  return out;
}

Val Generator::leaf(DType t, const Shape &s, bool exact) {
  Choices::Scope scope(c_);
  std::vector<const Val *> fitting;
  for (const Val &v : values_)
    if (v.dtype == t && v.shape == s && (!exact || v.bound.exact())) fitting.push_back(&v);
  uint32_t way = c_.pick(10);
  if (way >= 4 && !fitting.empty()) return *fitting[c_.pick(uint32_t(fitting.size()))];
  if (way == 0) return constant(t, s);
  if (is_integer(t) && s.size() == 1 && way < 4 && s[0] <= 120)
    return {fmt::format("iota<{}>({})", dtype_name(t), s[0]), t, s, integers_between(0, double(s[0] - 1))};
  if (t == DType::I32 && s.empty() && way < 7) {
    if (!counters_.empty() && c_.chance(60)) {
      const Counter &k = counters_.back();
      return {k.name, t, s, integers_between(0, double(k.most))};
    }
    int g = int(c_.pick(uint32_t(grid_.size())));
    return {fmt::format("p{}", g), t, s, integers_between(0, double(program_.sizes[grid_[size_t(g)]]))};
  }
  return load(t, s);
}

} // namespace tkc::fuzz
