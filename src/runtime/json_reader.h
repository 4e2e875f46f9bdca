// Reading JSON from files that tkc did not write. Strict (RFC 8259, UTF-8 checked, no duplicate keys) and bounded:
// depth and number of values are limited, so that no input can exhaust the stack or the memory.
#pragma once
#include "support/result.h"
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tkc {

struct JsonValue {
  enum class Kind : uint8_t { Null, Bool, Number, String, Array, Object } kind = Kind::Null;
  bool boolean = false;
  double number = 0;
  int64_t integer = 0;           // the number, if is_integer
  bool is_integer = false;       // written without fraction or exponent and in the range of int64
  std::string text;              // a string
  std::vector<JsonValue> items;  // of an array, or the members of an object in the order of the text
  std::vector<std::string> keys; // of the members

  const JsonValue *find(std::string_view key) const; // a member, or null
  bool is(Kind k) const { return kind == k; }
};

struct JsonLimits {
  int64_t depth = 64;
  int64_t values = 1 << 22;
};

// Errors give the byte offset: "JSON, byte 17: expected `:`".
Result<JsonValue> parse_json(std::string_view text, const JsonLimits &limits = {});

} // namespace tkc
