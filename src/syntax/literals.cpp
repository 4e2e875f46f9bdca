#include "syntax/literals.h"
#include <algorithm>
#include <charconv>

namespace tkc {

using ast::BinaryOp;

int precedence(BinaryOp op) {
  switch (op) {
  case BinaryOp::Or: return 1;
  case BinaryOp::And: return 2;
  case BinaryOp::BitOr: return 3;
  case BinaryOp::BitXor: return 4;
  case BinaryOp::BitAnd: return 5;
  case BinaryOp::Eq:
  case BinaryOp::Ne: return 6;
  case BinaryOp::Lt:
  case BinaryOp::Gt:
  case BinaryOp::Le:
  case BinaryOp::Ge: return 7;
  case BinaryOp::Shl:
  case BinaryOp::Shr: return 8;
  case BinaryOp::Add:
  case BinaryOp::Sub: return 9;
  case BinaryOp::Mul:
  case BinaryOp::Div:
  case BinaryOp::Rem: return 10;
  }
  return 0;
}

bool is_comparison(BinaryOp op) { return precedence(op) == 6 || precedence(op) == 7; }

namespace ast {

const char *spelling(UnaryOp op) {
  switch (op) {
  case UnaryOp::Neg: return "-";
  case UnaryOp::Not: return "!";
  case UnaryOp::BitNot: return "~";
  }
  return "";
}

const char *spelling(FunctionKind kind) {
  switch (kind) {
  case FunctionKind::Fn: return "fn";
  case FunctionKind::Kernel: return "kernel";
  case FunctionKind::Program: return "program";
  case FunctionKind::Reference: return "reference";
  }
  return "";
}

const char *spelling(BinaryOp op) {
  switch (op) {
  case BinaryOp::Or: return "||";
  case BinaryOp::And: return "&&";
  case BinaryOp::BitOr: return "|";
  case BinaryOp::BitXor: return "^";
  case BinaryOp::BitAnd: return "&";
  case BinaryOp::Eq: return "==";
  case BinaryOp::Ne: return "!=";
  case BinaryOp::Lt: return "<";
  case BinaryOp::Gt: return ">";
  case BinaryOp::Le: return "<=";
  case BinaryOp::Ge: return ">=";
  case BinaryOp::Shl: return "<<";
  case BinaryOp::Shr: return ">>";
  case BinaryOp::Add: return "+";
  case BinaryOp::Sub: return "-";
  case BinaryOp::Mul: return "*";
  case BinaryOp::Div: return "/";
  case BinaryOp::Rem: return "%";
  }
  return "";
}

} // namespace ast

static std::string without_underscores(std::string_view text) {
  std::string s(text);
  s.erase(std::remove(s.begin(), s.end(), '_'), s.end());
  return s;
}

std::optional<int64_t> decode_integer(std::string_view text, bool negated, bool &well_formed) {
  std::string s = without_underscores(text);
  char kind = s.size() > 1 && s[0] == '0' ? s[1] : '0';
  int base = kind == 'x' || kind == 'X' ? 16 : kind == 'b' || kind == 'B' ? 2 : 10;
  const char *begin = s.data() + (base == 10 ? 0 : 2), *end = s.data() + s.size();
  uint64_t value = 0;
  auto [stop, status] = std::from_chars(begin, end, value, base);
  well_formed = stop == end && status != std::errc::invalid_argument;
  uint64_t largest = base == 10 ? uint64_t(INT64_MAX) + (negated ? 1 : 0) : UINT64_MAX;
  if (!well_formed || status != std::errc() || value > largest) return std::nullopt;
  return int64_t(value);
}

std::optional<double> decode_float(std::string_view text) {
  std::string s = without_underscores(text);
  double value = 0;
  if (std::from_chars(s.data(), s.data() + s.size(), value).ec != std::errc()) return std::nullopt;
  return value;
}

std::string decode_string(std::string_view text, size_t &bad_escape) {
  bad_escape = std::string_view::npos;
  std::string out;
  for (size_t i = 1; i + 1 < text.size(); i++) {
    if (text[i] != '\\') {
      out += text[i];
      continue;
    }
    switch (char next = text[++i]) {
    case 'n': out += '\n'; break;
    case 't': out += '\t'; break;
    case 'r': out += '\r'; break;
    case '0': out += '\0'; break;
    case '\\':
    case '"': out += next; break;
    default:
      if (bad_escape == std::string_view::npos) bad_escape = i - 1;
    }
  }
  return out;
}

std::string quote_string(std::string_view value) {
  std::string out = "\"";
  for (char c : value) {
    switch (c) {
    case '\n': out += "\\n"; break;
    case '\t': out += "\\t"; break;
    case '\r': out += "\\r"; break;
    case '\0': out += "\\0"; break;
    case '\\':
    case '"': out += '\\'; [[fallthrough]];
    default: out += c;
    }
  }
  return out + '"';
}

} // namespace tkc
