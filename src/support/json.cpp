#include "support/json.h"
#include <cmath>
#include <fmt/format.h>

namespace tkc {

std::string json_quote(std::string_view s) {
  std::string out = "\"";
  for (char c : s) {
    switch (c) {
    case '"': out += "\\\""; break;
    case '\\': out += "\\\\"; break;
    case '\n': out += "\\n"; break;
    case '\t': out += "\\t"; break;
    case '\r': out += "\\r"; break;
    default:
      if (uint8_t(c) < 0x20)
        out += fmt::format("\\u{:04x}", int(uint8_t(c)));
      else
        out += c;
    }
  }
  return out + "\"";
}

Json::Json(int64_t i) : text_(fmt::format("{}", i)) {}
Json::Json(double d) : text_(std::isfinite(d) ? fmt::format("{}", d) : "null") {}
Json::Json(std::string_view s) : text_(json_quote(s)) {}

Json Json::object() {
  Json j;
  j.kind_ = Kind::Object;
  return j;
}
Json Json::array() {
  Json j;
  j.kind_ = Kind::Array;
  return j;
}
Json &Json::set(std::string_view key, Json value) {
  items_.emplace_back(std::string(key), std::move(value));
  return *this;
}
Json &Json::push(Json value) {
  items_.emplace_back(std::string(), std::move(value));
  return *this;
}

void Json::write(std::string &out, int indent, int depth) const {
  if (kind_ == Kind::Leaf) {
    out += text_;
    return;
  }
  bool object = kind_ == Kind::Object;
  out += object ? '{' : '[';
  bool first = true;
  for (const auto &[key, value] : items_) {
    if (!first) out += ',';
    first = false;
    if (indent > 0) out += '\n' + std::string(size_t(indent * (depth + 1)), ' ');
    if (object) out += json_quote(key) + (indent > 0 ? ": " : ":");
    value.write(out, indent, depth + 1);
  }
  if (!items_.empty() && indent > 0) out += '\n' + std::string(size_t(indent * depth), ' ');
  out += object ? '}' : ']';
}

std::string Json::dump(int indent) const {
  std::string out;
  write(out, indent, 0);
  return out;
}

} // namespace tkc
