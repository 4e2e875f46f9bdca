#include "emu/ptx_lexer.h"
#include <bit>
#include <cstdlib>

namespace tkc::emu {

namespace {
bool is_word_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '$' || c == '%';
}
bool is_digit(char c) { return c >= '0' && c <= '9'; }
int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}
} // namespace

void Lexer::skip_blanks() {
  while (at_ < text_.size()) {
    char c = text_[at_];
    std::string_view rest = text_.substr(at_);
    if (c == '\n') {
      line_++, at_++;
    } else if (c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f') {
      at_++;
    } else if (rest.starts_with("//")) {
      while (at_ < text_.size() && text_[at_] != '\n') at_++;
    } else if (rest.starts_with("/*")) {
      size_t end = rest.find("*/", 2);
      size_t length = end == rest.npos ? rest.size() : end + 2;
      for (char d : rest.substr(0, length)) line_ += d == '\n';
      at_ += length;
    } else {
      return;
    }
  }
}

void Lexer::lex_word() {
  size_t begin = at_;
  if (text_[at_] == '.') at_++;
  for (;;) {
    while (at_ < text_.size() && is_word_char(text_[at_])) at_++;
    std::string_view rest = text_.substr(at_);
    if (rest.size() > 1 && rest[0] == '.' && is_word_char(rest[1]))
      at_++;
    else if (rest.size() > 2 && rest.starts_with("::") && is_word_char(rest[2]))
      at_ += 2;
    else
      break;
  }
  current_.kind = Token::Kind::Word;
  current_.text = text_.substr(begin, at_ - begin);
}

void Lexer::lex_number() {
  size_t begin = at_;
  auto finish = [&](Token::Kind kind, uint64_t bits) {
    current_.kind = kind;
    current_.bits = bits;
    current_.text = text_.substr(begin, at_ - begin);
  };
  std::string_view rest = text_.substr(at_);
  bool prefixed = rest.size() > 2 && rest[0] == '0';
  char letter = prefixed ? rest[1] : ' ';
  if (letter == 'f' || letter == 'F' || letter == 'd' || letter == 'D' || letter == 'x' || letter == 'X') {
    at_ += 2;
    uint64_t bits = 0;
    int digits = 0;
    while (at_ < text_.size() && hex_digit(text_[at_]) >= 0)
      bits = bits << 4 | uint64_t(hex_digit(text_[at_++])), digits++;
    bool single = letter == 'f' || letter == 'F', is_double = letter == 'd' || letter == 'D';
    if (at_ < text_.size() && text_[at_] == 'U') at_++;
    bool good = single ? digits == 8 : is_double ? digits == 16 : digits > 0 && digits <= 16;
    if (!good || (at_ < text_.size() && is_word_char(text_[at_]))) return finish(Token::Kind::Bad, 0);
    return finish(single ? Token::Kind::Float32 : is_double ? Token::Kind::Float64 : Token::Kind::Integer, bits);
  }
  size_t end = at_;
  while (end < text_.size() && is_digit(text_[end])) end++;
  bool decimal_point = end + 1 < text_.size() && text_[end] == '.' && is_digit(text_[end + 1]);
  bool exponent = end + 1 < text_.size() && (text_[end] == 'e' || text_[end] == 'E');
  if (decimal_point || exponent) {
    std::string copy(text_.substr(at_, 64));
    char *stop = nullptr;
    double value = std::strtod(copy.c_str(), &stop);
    at_ += size_t(stop - copy.c_str());
    return finish(Token::Kind::Float64, std::bit_cast<uint64_t>(value));
  }
  uint64_t value = 0;
  bool octal = prefixed && is_digit(letter), binary = letter == 'b' || letter == 'B', overflow = false;
  uint64_t base = octal ? 8 : binary ? 2 : 10;
  if (binary) at_ += 2;
  end = at_;
  while (end < text_.size() && is_digit(text_[end])) {
    uint64_t digit = uint64_t(text_[end] - '0');
    overflow |= digit >= base || value > (~uint64_t(0) - digit) / base;
    value = value * base + digit, end++;
  }
  at_ = end;
  if (at_ < text_.size() && text_[at_] == 'U') at_++;
  bool glued = at_ < text_.size() && is_word_char(text_[at_]);
  finish(overflow || glued ? Token::Kind::Bad : Token::Kind::Integer, value);
}

void Lexer::advance() {
  skip_blanks();
  current_ = Token{};
  current_.line = line_;
  if (at_ >= text_.size()) return;
  char c = text_[at_];
  if (is_digit(c)) return lex_number();
  bool dotted = c == '.' && at_ + 1 < text_.size() && is_word_char(text_[at_ + 1]);
  if (is_word_char(c) || dotted) return lex_word();
  if (c == '"') {
    size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != '"' && text_[end] != '\n') end += text_[end] == '\\' ? 2 : 1;
    current_.kind = end < text_.size() && text_[end] == '"' ? Token::Kind::String : Token::Kind::Bad;
    end = end < text_.size() ? end : text_.size();
    current_.text = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end < text_.size() ? end + 1 : end;
    return;
  }
  current_.kind = Token::Kind::Punct;
  current_.text = text_.substr(at_++, 1);
}

} // namespace tkc::emu
