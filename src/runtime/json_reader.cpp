#include "runtime/json_reader.h"
#include <algorithm>
#include <charconv>
#include <unordered_set>

namespace tkc {

const JsonValue *JsonValue::find(std::string_view key) const {
  for (size_t i = 0; i < keys.size(); i++)
    if (keys[i] == key) return &items[i];
  return nullptr;
}

namespace {
class Parser {
public:
  Parser(std::string_view text, const JsonLimits &limits) : text_(text), limits_(limits) {}

  Result<JsonValue> run() {
    JsonValue value;
    if (!parse_value(value, 1)) return error_;
    skip_space();
    if (at_ < text_.size()) return (void)fail("text after the end of the value"), error_;
    return value;
  }

private:
  bool fail(std::string_view what) {
    error_ = failure("JSON, byte {}: {}", at_, what);
    return false;
  }
  bool more() const { return at_ < text_.size(); }
  char peek() const { return text_[at_]; }
  void skip_space() {
    while (more() && (peek() == ' ' || peek() == '\t' || peek() == '\n' || peek() == '\r')) at_++;
  }
  bool eat(char c) {
    if (!more() || peek() != c) return false;
    at_++;
    return true;
  }
  bool word(std::string_view w) {
    if (text_.substr(at_, w.size()) != w) return fail("expected a value");
    at_ += w.size();
    return true;
  }

  bool parse_value(JsonValue &v, int64_t depth) {
    if (depth > limits_.depth) return fail("nested too deep");
    if (++count_ > limits_.values) return fail("too many values");
    skip_space();
    if (!more()) return fail("unexpected end of text");
    switch (peek()) {
    case '{': return parse_object(v, depth);
    case '[': return parse_array(v, depth);
    case '"': v.kind = JsonValue::Kind::String; return parse_string(v.text);
    case 't':
      v.kind = JsonValue::Kind::Bool;
      v.boolean = true;
      return word("true");
    case 'f': v.kind = JsonValue::Kind::Bool; return word("false");
    case 'n': return word("null");
    default: return parse_number(v);
    }
  }

  bool parse_object(JsonValue &v, int64_t depth) {
    v.kind = JsonValue::Kind::Object;
    at_++;
    skip_space();
    if (eat('}')) return true;
    std::unordered_set<std::string> seen;
    do {
      skip_space();
      if (!more() || peek() != '"') return fail("expected a key in quotes");
      std::string key;
      if (!parse_string(key)) return false;
      if (!seen.insert(key).second) return fail(fmt::format("the key `{}` appears twice", key));
      skip_space();
      if (!eat(':')) return fail("expected `:`");
      v.keys.push_back(std::move(key));
      v.items.emplace_back();
      if (!parse_value(v.items.back(), depth + 1)) return false;
      skip_space();
    } while (eat(','));
    return eat('}') || fail("expected `,` or `}`");
  }

  bool parse_array(JsonValue &v, int64_t depth) {
    v.kind = JsonValue::Kind::Array;
    at_++;
    skip_space();
    if (eat(']')) return true;
    do {
      v.items.emplace_back();
      if (!parse_value(v.items.back(), depth + 1)) return false;
      skip_space();
    } while (eat(','));
    return eat(']') || fail("expected `,` or `]`");
  }

  bool digits() {
    size_t begin = at_;
    while (more() && peek() >= '0' && peek() <= '9') at_++;
    return at_ > begin || fail("expected a digit");
  }

  bool parse_number(JsonValue &v) {
    v.kind = JsonValue::Kind::Number;
    size_t begin = at_;
    eat('-');
    if (!more() || peek() < '0' || peek() > '9') {
      at_ = begin;
      return fail("expected a value");
    }
    if (!eat('0') && !digits()) return false;
    bool whole = true;
    if (eat('.')) {
      whole = false;
      if (!digits()) return false;
    }
    if (more() && (peek() == 'e' || peek() == 'E')) {
      whole = false;
      at_++;
      if (!eat('+')) eat('-');
      if (!digits()) return false;
    }
    const char *first = text_.data() + begin, *last = text_.data() + at_;
    auto parsed = std::from_chars(first, last, v.number);
    if (parsed.ec != std::errc()) return fail("a number out of range");
    v.is_integer = whole && std::from_chars(first, last, v.integer).ec == std::errc();
    return true;
  }

  bool hex4(uint32_t &code) {
    code = 0;
    for (int i = 0; i < 4; i++) {
      if (!more()) return fail("unexpected end of text");
      char c = peek();
      uint32_t digit;
      if (c >= '0' && c <= '9')
        digit = uint32_t(c - '0');
      else if ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'))
        digit = uint32_t((c | 0x20) - 'a') + 10;
      else
        return fail("expected four hexadecimal digits");
      code = code << 4 | digit;
      at_++;
    }
    return true;
  }

  static void put_utf8(std::string &out, uint32_t code) {
    if (code < 0x80) {
      out += char(code);
    } else if (code < 0x800) {
      out += char(0xc0 | code >> 6);
      out += char(0x80 | (code & 0x3f));
    } else if (code < 0x10000) {
      out += char(0xe0 | code >> 12);
      out += char(0x80 | (code >> 6 & 0x3f));
      out += char(0x80 | (code & 0x3f));
    } else {
      out += char(0xf0 | code >> 18);
      out += char(0x80 | (code >> 12 & 0x3f));
      out += char(0x80 | (code >> 6 & 0x3f));
      out += char(0x80 | (code & 0x3f));
    }
  }

  // One well-formed UTF-8 sequence: shortest form, no surrogates, at most U+10FFFF.
  bool copy_utf8(std::string &out) {
    uint8_t lead = uint8_t(peek());
    int length = lead < 0x80                   ? 1
                 : lead >= 0xc2 && lead < 0xe0 ? 2
                 : lead >= 0xe0 && lead < 0xf0 ? 3
                 : lead >= 0xf0 && lead < 0xf5 ? 4
                                               : 0;
    if (length == 0 || at_ + size_t(length) > text_.size()) return fail("not UTF-8");
    for (int i = 1; i < length; i++)
      if ((uint8_t(text_[at_ + size_t(i)]) & 0xc0) != 0x80) return fail("not UTF-8");
    uint8_t second = length > 1 ? uint8_t(text_[at_ + 1]) : 0;
    bool bad = (lead == 0xe0 && second < 0xa0) || (lead == 0xed && second >= 0xa0) || (lead == 0xf0 && second < 0x90) ||
               (lead == 0xf4 && second >= 0x90);
    if (bad) return fail("not UTF-8");
    out.append(text_, at_, size_t(length));
    at_ += size_t(length);
    return true;
  }

  bool parse_string(std::string &out) {
    at_++;
    while (true) {
      if (!more()) return fail("a string without an end");
      char c = peek();
      if (c == '"') {
        at_++;
        return true;
      }
      if (uint8_t(c) < 0x20) return fail("a control character in a string");
      if (c != '\\') {
        if (!copy_utf8(out)) return false;
        continue;
      }
      at_++;
      if (!more()) return fail("a string without an end");
      c = peek();
      at_++;
      switch (c) {
      case '"':
      case '\\':
      case '/': out += c; break;
      case 'b': out += '\b'; break;
      case 'f': out += '\f'; break;
      case 'n': out += '\n'; break;
      case 'r': out += '\r'; break;
      case 't': out += '\t'; break;
      case 'u': {
        uint32_t code, low;
        if (!hex4(code)) return false;
        if (code >= 0xdc00 && code < 0xe000) return fail("half of a surrogate pair");
        if (code >= 0xd800 && code < 0xdc00) {
          if (!eat('\\') || !eat('u')) return fail("half of a surrogate pair");
          if (!hex4(low)) return false;
          if (low < 0xdc00 || low >= 0xe000) return fail("half of a surrogate pair");
          code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        }
        put_utf8(out, code);
        break;
      }
      default: at_--; return fail("an unknown escape");
      }
    }
  }

  std::string_view text_;
  JsonLimits limits_;
  size_t at_ = 0;
  int64_t count_ = 0;
  Error error_;
};
} // namespace

Result<JsonValue> parse_json(std::string_view text, const JsonLimits &limits) { return Parser(text, limits).run(); }

} // namespace tkc
