// Numbers, names, expressions and argument lists in C.
#include "driver/c_header_text.h"
#include "support/check.h"
#include <algorithm>
#include <cmath>

namespace tkc::driver {

using ir::SizeExpr;
using Op = SizeExpr::Op;

std::string c_identifier(std::string_view text) {
  std::string out;
  for (char c : text) out += (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ? c : '_';
  return out.empty() || (out[0] >= '0' && out[0] <= '9') ? "_" + out : out;
}

std::string c_scalar_type(DType t) {
  if (t == DType::F64) return "double";
  if (t == DType::F32 || t == DType::TF32) return "float";
  return fmt::format("{}int{}_t", is_signed(t) ? "" : "u", 8 * dtype_bytes(t));
}

std::string c_number(DType t, double value) {
  value = round_to(t, value);
  if (c_scalar_type(t)[0] == 'u') return fmt::format("{}u", encode_float(t, value));
  bool wide = t == DType::F64;
  if (std::isfinite(value)) return wide ? fmt::format("{:.17e}", value) : fmt::format("{:.9e}f", value);
  return fmt::format("tkc_{}_of({:#x}u{})", wide ? "double" : "float", encode_float(t, value), wide ? "ll" : "");
}

std::string c_parameter(const std::string &name) {
  // Words of C and C++, of <cuda.h> and <stdint.h>, and the names that the functions use themselves.
  static const std::set<std::string> taken = {"alignas",
                                              "alignof",
                                              "and",
                                              "asm",
                                              "auto",
                                              "bitand",
                                              "bitor",
                                              "bool",
                                              "break",
                                              "case",
                                              "catch",
                                              "char",
                                              "class",
                                              "compl",
                                              "concept",
                                              "const",
                                              "continue",
                                              "decltype",
                                              "default",
                                              "delete",
                                              "do",
                                              "double",
                                              "else",
                                              "enum",
                                              "explicit",
                                              "export",
                                              "extern",
                                              "false",
                                              "float",
                                              "for",
                                              "friend",
                                              "goto",
                                              "if",
                                              "inline",
                                              "int",
                                              "long",
                                              "mutable",
                                              "namespace",
                                              "new",
                                              "noexcept",
                                              "not",
                                              "nullptr",
                                              "operator",
                                              "or",
                                              "private",
                                              "protected",
                                              "public",
                                              "register",
                                              "requires",
                                              "restrict",
                                              "return",
                                              "short",
                                              "signed",
                                              "sizeof",
                                              "static",
                                              "struct",
                                              "switch",
                                              "template",
                                              "this",
                                              "throw",
                                              "true",
                                              "try",
                                              "typedef",
                                              "typeid",
                                              "typename",
                                              "typeof",
                                              "union",
                                              "unsigned",
                                              "using",
                                              "virtual",
                                              "void",
                                              "volatile",
                                              "while",
                                              "xor",
                                              "NULL",
                                              "module",
                                              "stream",
                                              "workspace",
                                              "workspace_bytes",
                                              "bytes",
                                              "mode",
                                              "needed",
                                              "bad",
                                              "status",
                                              "blocks",
                                              "aligned",
                                              "params",
                                              "memset",
                                              "memcpy",
                                              "linux",
                                              "unix"};
  return taken.count(name) ? name + "_" : name;
}

std::string c_symbol(const std::string &name) {
  if (name.starts_with("device.")) return "module->" + name.substr(7);
  return "s_" + c_identifier(name);
}

const char *const kHeaderNumbers = R"C(
#include <math.h>
static inline double tkc_number_min(double a, double b) { return b < a ? b : a; }
static inline double tkc_number_max(double a, double b) { return b > a ? b : a; }
)C";

std::string c_computed(const sema::NumberExpr &e) {
  using Number = sema::NumberExpr::Op;
  std::vector<std::string> x;
  for (const sema::NumberExpr &a : e.args) x.push_back(c_computed(a));
  auto call = [&](const char *name) { return fmt::format("{}({})", name, fmt::join(x, ", ")); };
  auto infix = [&] { return fmt::format("({} {} {})", x[0], sema::NumberExpr::json_name(e.op), x[1]); };
  auto value = [&]() -> std::string {
    switch (e.op) {
    case Number::Const: return c_number(DType::F64, e.value);
    case Number::Scalar: return "(double)" + c_parameter(e.name);
    case Number::Integer: return fmt::format("(double)({})", c_expression(e.integer));
    case Number::Neg: return fmt::format("(-({}))", x[0]);
    case Number::Not: return fmt::format("(double)({} == 0)", x[0]);
    case Number::Abs: return call("fabs");
    case Number::Exp: return call("exp");
    case Number::Exp2: return call("exp2");
    case Number::Log: return call("log");
    case Number::Log2: return call("log2");
    case Number::Sqrt: return call("sqrt");
    case Number::Rsqrt: return fmt::format("(1 / sqrt({}))", x[0]);
    case Number::Rcp: return fmt::format("(1 / {})", x[0]);
    case Number::Tanh: return call("tanh");
    case Number::Floor: return call("floor");
    case Number::Ceil: return call("ceil");
    case Number::Cast: return x[0];
    case Number::Min: return call("tkc_number_min");
    case Number::Max: return call("tkc_number_max");
    case Number::Add:
    case Number::Sub:
    case Number::Mul:
    case Number::Div: return infix();
    case Number::And: return fmt::format("(double)({} != 0 && {} != 0)", x[0], x[1]);
    case Number::Or: return fmt::format("(double)({} != 0 || {} != 0)", x[0], x[1]);
    case Number::Eq:
    case Number::Ne:
    case Number::Lt:
    case Number::Le:
    case Number::Gt:
    case Number::Ge: return "(double)" + infix();
    case Number::Where: return fmt::format("({} != 0 ? {} : {})", x[0], x[1], x[2]);
    }
    TKC_UNREACHABLE("NumberExpr::Op");
  }();
  return e.dtype == DType::F32 ? fmt::format("(double)(float){}", value) : value;
}

std::string c_expression(const SizeExpr &e) {
  if (e.is_const()) {
    if (e.value() == INT64_MIN) return "INT64_MIN";
    return e.value() < INT32_MIN || e.value() > INT32_MAX ? fmt::format("INT64_C({})", e.value()) : e.str();
  }
  if (e.op() == Op::Sym) return c_symbol(e.name());
  std::string a = c_expression(e.a());
  if (e.op() == Op::Not) return fmt::format("(int64_t)!({})", a);
  std::string b = c_expression(e.b());
  auto checked = [&](const char *name) { return fmt::format("tkc_{}(&bad, {}, {})", name, a, b); };
  auto compared = [&](const char *text) { return fmt::format("(int64_t)({} {} {})", a, text, b); };
  switch (e.op()) {
  case Op::Add: return checked("add");
  case Op::Sub: return checked("sub");
  case Op::Mul: return checked("mul");
  case Op::Div: return checked("div");
  case Op::CDiv: return checked("cdiv");
  case Op::Rem: return checked("rem");
  case Op::Min: return fmt::format("tkc_min({}, {})", a, b);
  case Op::Max: return fmt::format("tkc_max({}, {})", a, b);
  case Op::And: return fmt::format("tkc_and({}, {})", a, b);
  case Op::Or: return fmt::format("tkc_or({}, {})", a, b);
  case Op::Eq: return compared("==");
  case Op::Ne: return compared("!=");
  case Op::Lt: return compared("<");
  case Op::Le: return compared("<=");
  case Op::Gt: return compared(">");
  case Op::Ge: return compared(">=");
  case Op::Select: return fmt::format("({} ? {} : {})", a, b, c_expression(e.c()));
  case Op::Const:
  case Op::Sym:
  case Op::Not: break;
  }
  TKC_UNREACHABLE("SizeExpr::Op");
}

std::string c_array(const std::string &type, const std::string &name, const std::vector<std::string> &values) {
  std::string list = fmt::format("{}", fmt::join(values, ", "));
  return fmt::format("{} {}[{}] = {{{}}};", type, name, std::max<size_t>(values.size(), 1),
                     values.empty() ? "0" : list);
}

// ---- arguments

CArguments::CArguments(const ir::Function &function) : f(function) {
  for (const std::string &s : f.sizes) {
    bool found = false;
    for (const ir::Param &p : f.params)
      if (p.present && p.type.is_tensor())
        for (const SizeExpr &d : p.dims) found |= d.op() == Op::Sym && d.name() == s;
    if (!found) unbound.push_back(s);
  }
}

static std::string declare(const ir::Param &p) {
  return (p.type.is_tensor() ? "const tkc_tensor *" : c_scalar_type(p.type.dtype) + " ") + c_parameter(p.name) + ", ";
}

std::string CArguments::declaration() const {
  std::string out;
  for (const ir::Param &p : f.params)
    if (p.present) out += declare(p);
  for (const std::string &s : unbound) out += fmt::format("int64_t {}, ", c_symbol(s));
  return out;
}

std::string CArguments::with_sizes() const {
  std::string out;
  for (const ir::Param &p : f.params)
    if (p.present) out += declare(p);
  for (const std::string &s : f.sizes) out += fmt::format("int64_t {}, ", c_symbol(s));
  return out;
}

std::string CArguments::pass() const {
  std::string out;
  for (const ir::Param &p : f.params)
    if (p.present) out += c_parameter(p.name) + ", ";
  for (const std::string &s : f.sizes) out += c_symbol(s) + ", ";
  return out;
}

std::string CArguments::bind() const {
  std::string out = "  if (!module";
  for (const ir::Param &p : f.params)
    if (p.present && p.type.is_tensor()) out += fmt::format(" || !{}", c_parameter(p.name));
  out += ") return TKC_NO_TENSOR;\n";
  std::set<std::string> done(unbound.begin(), unbound.end());
  for (const ir::Param &p : f.params) {
    if (!p.present || !p.type.is_tensor()) continue;
    for (size_t d = 0; d < p.dims.size(); d++)
      if (p.dims[d].op() == Op::Sym && done.insert(p.dims[d].name()).second &&
          std::find(f.sizes.begin(), f.sizes.end(), p.dims[d].name()) != f.sizes.end())
        out += fmt::format("  {} = {}->extent[{}];\n", c_symbol(p.dims[d].name()), c_parameter(p.name), d);
  }
  std::string declared;
  for (const std::string &s : f.sizes)
    if (std::find(unbound.begin(), unbound.end(), s) == unbound.end())
      declared += fmt::format("  int64_t {};\n", c_symbol(s));
  return declared + out;
}

std::string CArguments::comment() const {
  std::string out = fmt::format("\n/* {}", f.name);
  std::string constants;
  for (const auto &[name, text] : f.bindings)
    constants += fmt::format("{}{} = {}", constants.empty() ? "" : ", ", name, text);
  if (!constants.empty()) out += fmt::format("<{}>", constants);
  for (const ir::Param &p : f.params) {
    const char *mode = p.mode == ir::ParamMode::In    ? ""
                       : p.mode == ir::ParamMode::Out ? ", written"
                                                      : ", read and written";
    std::string dims;
    for (const SizeExpr &d : p.dims) dims += (dims.empty() ? "" : ", ") + d.str();
    if (!p.present)
      out += fmt::format("\n *   {}: absent in this variant", p.name);
    else if (p.type.is_tensor())
      out += fmt::format("\n *   {}: {} [{}]{}{}", p.name, dtype_name(p.type.dtype), dims, mode,
                         p.any_strides ? ", any innermost stride" : "");
    else
      out += fmt::format("\n *   {}: {}", p.name, dtype_name(p.type.dtype));
  }
  for (const std::string &s : unbound) out += fmt::format("\n *   {}: a size that no extent says", s);
  for (const SizeExpr &e : f.facts) out += fmt::format("\n *   where {}", e.str());
  return out + " */\n";
}

} // namespace tkc::driver
