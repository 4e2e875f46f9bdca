// Statements. Variables have a bound that every assignment keeps, so it holds after any number of iterations;
// accumulators of a loop get theirs from the largest number of iterations.
#include "generator.h"
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tkc::fuzz {

namespace {
constexpr double kVariableMost = 8; // of float variables and of what is updated in place: multiples of 1/4
constexpr int kVariableGrid = -2;
} // namespace

Bound variable_bound(DType t) {
  return is_float(t) ? floats_upto(kVariableMost, kVariableGrid) : wrapped(t, -1e30, 1e30);
}

// An expression that a variable of this type may take.
static std::string kept(DType t, const Val &v) {
  std::string text = v.text;
  if (!is_float(t)) return text;
  if (v.bound.grid < kVariableGrid) text = fmt::format("round({})", text);
  if (v.bound.most > kVariableMost) text = fmt::format("min(max({}, -8.0), 8.0)", text);
  return text;
}

std::string Generator::pid_prefix() const {
  std::string s;
  for (size_t g = 0; g < grid_.size(); g++) s += fmt::format("p{}, ", g);
  return s;
}
std::string Generator::grid_dims() const {
  std::string s;
  for (const std::string &g : grid_) s += g + ", ";
  return s;
}

void Generator::let_statement() {
  DType t = any_dtype(false);
  Shape s = any_shape(c_.chance(85) ? 1 : 0, 3);
  Val v = expr(t, s, 3, false);
  std::string n = name("t");
  line(fmt::format("let {} = {};", n, v.text));
  v.text = n;
  values_.push_back(v);
}

void Generator::store_statement(const Val &v) {
  if (params_.size() >= kMostParams + 6) return;
  Shape s = v.shape;
  std::string dims = grid_dims(), index = pid_prefix(), options;
  if (!counters_.empty() && s.size() + grid_.size() <= 3 && c_.chance(50))
    dims += counters_.back().size + ", ", index += counters_.back().name + ", ";
  for (size_t d = 0; d < s.size(); d++) {
    bool last = d + 1 == s.size();
    std::string extent = std::to_string(s[d]), at = ":";
    uint32_t way = c_.pick(6);
    if (way == 5) { // hangs over the end, or begins before it
      extent = size(s[d] + 20);
      at = fmt::format("{} :+ {}", int64_t(c_.pick(12)) - 4, s[d]);
    } else if (way == 4 && s[d] <= 64) { // a scatter: a permutation of the positions
      int64_t by = std::vector<int64_t>{1, 3, 5, 7, 11}[c_.pick(5)];
      if (s[d] % by == 0) by = 1;
      at = fmt::format("(iota({}) * {} + {}) % {}", s[d], by, c_.pick(8), s[d]);
    }
    dims += extent + (last ? "" : ", ");
    index += at + (last ? "" : ", ");
  }
  if (s.empty()) dims.resize(dims.size() - 2), index.resize(index.size() - 2);
  if (!s.empty() && c_.chance(15)) options = ", mask = " + expr(DType::Bool, s, 1, true).text;
  Param &p = param("y", v.dtype, dims, "out ");
  program_.outputs[p.name] = v.bound.error;
  line(fmt::format("store({}[{}], {}{});", p.name, index, v.text, options));
}

void Generator::atomic_statement() {
  if (params_.size() >= kMostParams) return;
  static const std::vector<DType> dtypes = {DType::I32, DType::U32, DType::I64, DType::U64};
  static const std::vector<const char *> ops = {"add", "max", "min", "and", "or", "xor"};
  DType t = c_.of(dtypes);
  const char *op = c_.of(ops);
  Shape s = any_shape(1, 2);
  std::vector<std::string> dims, index;
  for (int64_t e : s) {
    dims.push_back(std::to_string(e)), index.push_back(":");
    if (!c_.chance(30)) continue;
    dims.back() = size(e + 5);
    index.back() = c_.chance(50) ? expr(DType::I32, {e}, 1, true).text : fmt::format("{} :+ {}", c_.pick(4), e);
  }
  Val v = expr(t, s, 2, true);
  std::string options;
  if (c_.chance(25)) options = ", mask = " + expr(DType::Bool, s, 1, true).text;
  Param &p = param("a", t, fmt::format("{}", fmt::join(dims, ", ")), "inout ");
  Bound ignored;
  fill(p, t, ignored);
  program_.outputs[p.name] = 0;
  line(fmt::format("atomic_{}({}[{}], {}{});", op, p.name, fmt::join(index, ", "), v.text, options));
}

// A tensor that a block reads and writes: it must see its own stores.
void Generator::update_in_place() {
  if (params_.size() >= kMostParams) return;
  DType t = any_dtype();
  Shape s = any_shape(1, 2);
  Param &p = param("z", t, fmt::format("{}{}", grid_dims(), fmt::join(s, ", ")), "inout ");
  Bound ignored;
  fill(p, t, ignored);
  if (is_float(t)) program_.inputs[p.name] = {3, 0};
  program_.outputs[p.name] = 0;
  std::string at =
      fmt::format("{}[{}{}]", p.name, pid_prefix(), fmt::join(std::vector<const char *>(s.size(), ":"), ", "));
  Bound b = variable_bound(t);
  uint32_t rounds = 1 + c_.pick(2);
  for (uint32_t k = 0; k < rounds; k++) {
    if (c_.chance(60)) {
      std::string n = name("z");
      line(fmt::format("let {} = load({});", n, at));
      values_.push_back({n, t, s, b});
    }
    line(fmt::format("store({}, {});", at, kept(t, expr(t, s, 2, true))));
  }
  std::string n = name("z");
  line(fmt::format("let {} = load({});", n, at));
  values_.push_back({n, t, s, b});
}

void Generator::insert_statement() {
  DType t = any_dtype();
  Shape s = any_shape(1, 2);
  Val v = expr(t, s, 2, false);
  std::string n = name("t");
  line(fmt::format("var {} = {};", n, v.text));
  Shape part = s;
  std::vector<std::string> index(s.size(), ":");
  size_t d = c_.pick(uint32_t(s.size()));
  if (c_.chance(40) && s.size() > 1) {
    part.erase(part.begin() + std::ptrdiff_t(d));
    index[d] = std::to_string(c_.pick(uint32_t(s[d])));
  } else {
    part[d] = 1 + c_.pick(uint32_t(s[d]));
    int64_t at = c_.pick(uint32_t(s[d] - part[d]) + 1);
    index[d] = fmt::format("{} : {}", at, at + part[d]);
  }
  Val w = expr(t, part, 2, false);
  line(fmt::format("{}[{}] = {};", n, fmt::join(index, ", "), w.text));
  values_.push_back({n, t, s, either(t, v.bound, w.bound)});
}

// `s = ...` of a variable, or one step of an accumulator.
void Generator::update(Val &var, const std::optional<Val> &term, double trips) {
  if (term) {
    Bound step = term->bound;
    if (!is_float(var.dtype)) {
      line(fmt::format("{} += {};", var.text, term->text));
      var.bound = wrapped(var.dtype, -1e30, 1e30);
      return;
    }
    line(fmt::format(fmt::runtime(c_.chance(50) ? "{0} += {1};" : "{0} = {1} + {0};"), var.text, term->text));
    Bound all = floats_upto(var.bound.most + trips * step.most, std::min(var.bound.grid, step.grid),
                            var.bound.error + trips * step.error);
    Bound r = rounded(var.dtype, all);
    if (!r.exact())
      r.error += trips * (4 + 4 * step.terms) * (r.most + 1) * std::ldexp(1, -format_of(var.dtype).precision);
    var.bound = r;
    return;
  }
  line(fmt::format("{} = {};", var.text, kept(var.dtype, expr(var.dtype, var.shape, 3, true))));
}

void Generator::loop_statement(int depth) {
  Counter k;
  k.name = name("k");
  k.step = c_.chance(25) ? 1 : dim();
  uint32_t trips = 1 + c_.pick(6);
  k.size = size(int64_t(trips) * k.step, k.step >= 16);
  k.most = program_.sizes[k.size];
  double most_trips = double((k.most + k.step - 1) / k.step);
  if (most_trips > 12) k.step = std::max<int64_t>(1, k.most / 4), most_trips = 5;

  struct Carried {
    Val var;
    bool accumulates = false;
  };
  std::vector<Carried> carried;
  uint32_t n = 1 + c_.pick(3);
  for (uint32_t i = 0; i < n; i++) {
    Carried v;
    v.accumulates = !c_.chance(35);
    DType t = v.accumulates && c_.chance(60) ? DType::F32 : any_dtype();
    Shape s = any_shape(c_.chance(90) ? (v.accumulates ? 2 : 1) : 0, 2);
    Val init = c_.chance(70) ? constant(t, s) : leaf(t, s, true);
    if (v.accumulates && is_float(t))
      init = c_.chance(70)
                 ? Val{fmt::format("full<{}>({}, 0.0)", dtype_name(t), shape_text(s)), t, s, floats_upto(0, 0)}
                 : init;
    if (s.empty() && v.accumulates && is_float(t)) init = constant(t, s);
    v.var = {name("s"), t, s, v.accumulates ? init.bound : variable_bound(t), true};
    line(fmt::format("var {} = {};", v.var.text, v.accumulates ? init.text : kept(t, init)));
    carried.push_back(v);
  }
  size_t outside = values_.size();
  for (const Carried &v : carried)
    if (!v.accumulates) values_.push_back(v.var);
  switch (c_.pick(6)) {
  case 4: line("@no_pipeline"); break;
  case 5: {
    std::vector<std::string> options;
    static const std::vector<const char *> via = {"tma", "cp_async", "mbarrier", "bulk"};
    bool hopper = program_.target == "sm_90" || program_.target == "sm_120";
    if (c_.chance(60)) options.push_back(fmt::format("via = {}", hopper ? c_.of(via) : via[1 + c_.pick(2)]));
    if (c_.chance(60)) options.push_back(fmt::format("stages = {}", 2 + c_.pick(4)));
    if (c_.chance(40)) options.push_back(fmt::format("producer = {}", c_.chance(50) ? "warp" : "none"));
    line(options.empty() ? "@pipeline" : fmt::format("@pipeline({})", fmt::join(options, ", ")));
    break;
  }
  default: break;
  }
  std::string low = "0", high = k.size;
  if (c_.chance(10)) low = std::to_string(c_.pick(3));
  if (c_.chance(10)) high = fmt::format("min({}, {})", scalar(DType::I32, 0).text, k.size);
  line(fmt::format("for {} in {} : {} step {} {{", k.name, low, high, k.step));
  indent_++;
  size_t scope = values_.size();
  counters_.push_back(k);
  if (c_.chance(30)) statements(depth - 1, 2);
  for (Carried &v : carried) {
    std::optional<Val> term;
    if (v.accumulates) {
      term = c_.chance(55) ? product(v.var.dtype, v.var.shape, 1, false) : std::nullopt;
      if (!term) term = expr(v.var.dtype, v.var.shape, 2, false);
      if (is_float(v.var.dtype) && term->bound.most * most_trips > format_of(v.var.dtype).largest)
        term = clamp(*term, 4);
    }
    bool conditional = !v.accumulates && c_.chance(20);
    if (conditional) {
      line(fmt::format("if {} {{", condition(1).text));
      indent_++;
    }
    size_t inner = values_.size();
    update(v.var, term, most_trips);
    values_.resize(inner);
    if (conditional) {
      indent_--;
      line("}");
    }
    if (v.accumulates) values_.push_back(v.var);
  }
  if (c_.chance(25)) statements(depth - 1, 2);
  counters_.pop_back();
  values_.resize(scope);
  values_.resize(outside);
  indent_--;
  line("}");
  for (const Carried &v : carried) values_.push_back(v.var);
}

void Generator::while_statement(int depth) {
  std::string i = name("i");
  DType t = any_dtype();
  Shape s = any_shape(1, 2);
  Val var{name("s"), t, s, variable_bound(t), true};
  line(fmt::format("var {} = 0;", i));
  line(fmt::format("var {} = {};", var.text, kept(t, constant(t, s))));
  values_.push_back(var);
  std::string more = c_.chance(50) ? " && " + condition(1).text : "";
  line(fmt::format("while {} < {}{} {{", i, 1 + c_.pick(3), more));
  indent_++;
  size_t scope = values_.size();
  line(fmt::format("{} += 1;", i));
  if (c_.chance(40)) statements(depth - 1, 1);
  update(var, std::nullopt, 0);
  values_.resize(scope);
  indent_--;
  line("}");
}

void Generator::if_statement(int depth) {
  DType t = any_dtype(false);
  Shape s = any_shape(c_.chance(80) ? 1 : 0, 2);
  Val var{name("s"), t, s, variable_bound(t), true};
  line(fmt::format("var {} = {};", var.text, kept(t, expr(t, s, 2, true))));
  std::string cond = condition(2).text;
  for (int branch = 0; branch < 2; branch++) {
    if (branch == 1 && !c_.chance(50)) break;
    line(branch == 0 ? fmt::format("if {} {{", cond) : "} else {");
    indent_++;
    size_t scope = values_.size();
    values_.push_back(var);
    if (c_.chance(40)) statements(depth - 1, 2);
    update(var, std::nullopt, 0);
    values_.resize(scope);
    indent_--;
  }
  line("}");
  values_.push_back(var);
}

void Generator::statement(int depth) {
  Choices::Scope scope(c_);
  switch (c_.pick(depth > 0 ? 14 : 7)) {
  case 0:
  case 1:
  case 2: let_statement(); break;
  case 3:
    if (!values_.empty()) store_statement(c_.of(values_));
    break;
  case 4: atomic_statement(); break;
  case 5: insert_statement(); break;
  case 6: update_in_place(); break;
  case 7: while_statement(depth); break;
  case 8:
  case 9: if_statement(depth); break;
  default: loop_statement(depth); break;
  }
}

void Generator::statements(int depth, int most) {
  for (int k = 0; k < most && budget_ > 0; k++) {
    Choices::Scope scope(c_);
    if (!c_.chance(80)) return;
    statement(depth);
  }
}

} // namespace tkc::fuzz
