// Tokens of PTX text. A token of kind Word holds an opcode or name with all of its dotted parts: `ld.global.v4.b32`,
// `%tid.x`, `.visible`; `::` belongs to it (`L2::cache_hint`), a single colon does not.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace tkc::emu {

struct Token {
  enum class Kind : uint8_t { End, Word, Integer, Float32, Float64, String, Punct, Bad };
  Kind kind = Kind::End;
  std::string_view text;
  uint64_t bits = 0; // Integer, Float32, Float64: value or bit pattern
  int32_t line = 0;
  bool is(char c) const { return kind == Kind::Punct && text[0] == c; }
  bool is(std::string_view word) const { return kind == Kind::Word && text == word; }
};

class Lexer {
public:
  explicit Lexer(std::string_view text) : text_(text) { advance(); }
  const Token &peek() const { return current_; }
  Token next() {
    Token t = current_;
    advance();
    return t;
  }

private:
  void advance();
  void skip_blanks();
  void lex_number();
  void lex_word();
  std::string_view text_;
  size_t at_ = 0;
  int32_t line_ = 1;
  Token current_;
};

} // namespace tkc::emu
