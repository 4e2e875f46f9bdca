// Writing JSON: objects and arrays in order of insertion, strings escaped, numbers exact.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tkc {

// A JSON value that is only ever written. Usage: Json j = Json::object(); j.set("a", 1); j.dump().
class Json {
public:
  Json() : text_("null") {}
  Json(bool b) : text_(b ? "true" : "false") {}
  Json(int i) : Json(int64_t(i)) {}
  Json(int64_t i);
  Json(double d); // NaN and infinities become null
  Json(std::string_view s);
  Json(const char *s) : Json(std::string_view(s)) {}
  Json(const std::string &s) : Json(std::string_view(s)) {}
  static Json object();
  static Json array();
  Json &set(std::string_view key, Json value);
  Json &push(Json value);
  std::string dump(int indent = 2) const;

private:
  void write(std::string &out, int indent, int depth) const;
  enum class Kind : uint8_t { Leaf, Object, Array } kind_ = Kind::Leaf;
  std::string text_;
  std::vector<std::pair<std::string, Json>> items_;
};

std::string json_quote(std::string_view s);

} // namespace tkc
