#include "syntax/parse.h"
#include "TkLexer.h"
#include "TkParser.h"
#include "syntax/build_ast.h"
#include <algorithm>
#include <set>

namespace tkc {
namespace {

using P = tkgrammar::TkParser;
using antlr4::CommonToken;
using antlr4::Token;

// A file of garbage gets this many errors and no more.
constexpr int64_t kMaxErrors = 100;

// ---- bytes

// Length of the UTF-8 character at `i`, or 0 if the bytes are not one (overlong forms and surrogates are not).
size_t utf8_length(const std::string &s, size_t i) {
  auto byte = [&](size_t k) { return k < s.size() ? uint8_t(s[k]) : uint8_t(0); };
  auto tail = [&](size_t k) { return (byte(k) & 0xc0) == 0x80; };
  uint8_t b = byte(i);
  if (b < 0x80) return 1;
  if (b < 0xc2) return 0;
  if (b < 0xe0) return tail(i + 1) ? 2 : 0;
  if (b < 0xf0) {
    bool odd = (b == 0xe0 && byte(i + 1) < 0xa0) || (b == 0xed && byte(i + 1) >= 0xa0);
    return !odd && tail(i + 1) && tail(i + 2) ? 3 : 0;
  }
  bool odd = b > 0xf4 || (b == 0xf0 && byte(i + 1) < 0x90) || (b == 0xf4 && byte(i + 1) >= 0x90);
  return !odd && tail(i + 1) && tail(i + 2) && tail(i + 3) ? 4 : 0;
}

bool check_bytes(int32_t file, const SourceFile &source, Diagnostics &diagnostics) {
  const std::string &s = source.text();
  if (int64_t(s.size()) > kMaxSourceBytes) {
    diagnostics.report({file, 0, 0}, DiagKind::file_too_large, source.name(), s.size(), kMaxSourceBytes);
    return false;
  }
  for (size_t i = 0; i < s.size();) {
    int32_t at = int32_t(i);
    size_t length = utf8_length(s, i);
    if (s[i] == '\0') {
      diagnostics.report({file, at, at + 1}, DiagKind::nul_byte, i);
      return false;
    }
    if (length == 0) {
      diagnostics.report({file, at, at + 1}, DiagKind::not_utf8, source.name(), fmt::format("{:#04x}", uint8_t(s[i])),
                         i);
      return false;
    }
    i += length;
  }
  return true;
}

// The text the lexer sees: one character a byte, so that token positions are byte offsets. Characters outside ASCII
// stand only in strings and comments, whose text is taken from the source.
std::string ascii_image(const std::string &text) {
  std::string out = text;
  if (out.compare(0, 3, "\xef\xbb\xbf") == 0) out.replace(0, 3, "   ");
  for (char &c : out)
    if (uint8_t(c) >= 0x80) c = '\x7f';
  return out;
}

bool is_word(size_t type) { return type == P::ID || (type >= P::GRID && type <= P::SHARED); }

SourceLoc token_loc(int32_t file, const Token *t) {
  int32_t begin = int32_t(t->getStartIndex());
  return {file, begin, t->getType() == Token::EOF ? begin : int32_t(t->getStopIndex()) + 1};
}

// ---- tokens
// One pass over the tokens before the parser: lexical errors, nesting, and the retyping that Tk.g4 describes.
class TokenPass {
public:
  TokenPass(int32_t file, const std::string &text, std::vector<Token *> tokens, Diagnostics &diagnostics)
      : file_(file), text_(text), tokens_(std::move(tokens)), diagnostics_(diagnostics) {}

  // False if the parser must not see the file.
  bool run() {
    for (size_t i = 0; i < tokens_.size(); i++) {
      if (!lexical(i)) return false;
    }
    std::vector<Token *> visible;
    for (Token *t : tokens_)
      if (t->getChannel() == Token::DEFAULT_CHANNEL) visible.push_back(t);
    tokens_ = std::move(visible);
    for (size_t i = 0; i < tokens_.size(); i++)
      if (!step(i)) return false;
    return true;
  }

  // The brackets that are open at the end of the file, outermost first.
  std::vector<const Token *> unclosed() const {
    std::vector<const Token *> out;
    for (const Open &o : stack_)
      if (o.type != P::LT) out.push_back(tokens_[o.token]);
    return out;
  }

private:
  struct Open {
    size_t type;         // LPAREN, LBRACKET, LBRACE, or LT for a possible `name<`
    size_t token;        // its index
    int64_t chained = 0; // ternaries and else-ifs that nest at this level
  };

  void error(SourceLoc loc, std::string text) { diagnostics_.report(loc, DiagKind::syntax, text); }
  std::string text(const Token *t) const {
    SourceLoc l = token_loc(file_, t);
    return text_.substr(size_t(l.begin), size_t(l.end - l.begin));
  }
  size_t type(size_t i) const { return i < tokens_.size() ? tokens_[i]->getType() : size_t(Token::EOF); }
  void retype(size_t i, size_t type) { static_cast<CommonToken *>(tokens_[i])->setType(type); }

  bool lexical(size_t i) {
    Token *t = tokens_[i];
    SourceLoc l = token_loc(file_, t);
    switch (t->getType()) {
    case P::BAD_NUMBER:
      error(l, fmt::format("malformed number `{}`", text(t)));
      retype(i, P::INT);
      return true;
    case P::BAD_STRING:
      error(l, "this string has no closing quote on its line");
      retype(i, P::STRING);
      return true;
    case P::BAD_COMMENT:
      error({file_, l.begin, l.begin + 2}, "this comment has no closing `*/`");
      static_cast<CommonToken *>(t)->setChannel(Token::HIDDEN_CHANNEL);
      return true;
    case P::BAD_CHAR: {
      size_t last = i;
      while (type(last + 1) == P::BAD_CHAR && tokens_[last + 1]->getStartIndex() == tokens_[last]->getStopIndex() + 1)
        last++;
      for (size_t k = i; k <= last; k++) {
        static_cast<CommonToken *>(tokens_[k])->setChannel(Token::HIDDEN_CHANNEL);
        retype(k, P::WS);
      }
      l.end = int32_t(tokens_[last]->getStopIndex()) + 1;
      bad_character(l);
      return diagnostics_.error_count() < kMaxErrors;
    }
    default: return true;
    }
  }

  void bad_character(SourceLoc l) {
    std::string shown = text_.substr(size_t(l.begin), size_t(l.end - l.begin));
    size_t count = 0, first = 0, bytes = 0;
    for (size_t i = 0; i < shown.size(); i += utf8_length(shown, i), count++) {
      if (count == 0) first = utf8_length(shown, i);
      bytes = i + utf8_length(shown, i);
    }
    (void)bytes;
    if (count == 1 && uint8_t(shown[0]) >= 0x20 && shown[0] != '\x7f')
      error(l, fmt::format("unexpected character `{}`", shown));
    else if (count == 1)
      error(l, fmt::format("unexpected control character {:#04x}", uint8_t(shown[0])));
    else
      error(l, fmt::format("unexpected characters"));
    (void)first;
  }

  // Possible `name<` brackets fail when something turns up that no generic argument holds.
  void fail_generics() {
    while (!stack_.empty() && stack_.back().type == P::LT) pop();
  }
  void pop() {
    depth_ -= 1 + stack_.back().chained;
    stack_.pop_back();
  }
  bool push(size_t type, size_t i) {
    stack_.push_back({type, i});
    return deeper(i);
  }
  bool deeper(size_t i) {
    if (++depth_ <= kMaxNesting) return true;
    diagnostics_.report(token_loc(file_, tokens_[i]), DiagKind::nesting_too_deep, kMaxNesting);
    return false;
  }
  // A statement or list item ends: chains at this level start afresh.
  void end_chain() {
    int64_t &chained = stack_.empty() ? base_chained_ : stack_.back().chained;
    depth_ -= chained;
    chained = 0;
  }
  bool chain(size_t i) {
    (stack_.empty() ? base_chained_ : stack_.back().chained)++;
    return deeper(i);
  }

  bool step(size_t i) {
    size_t t = type(i);
    bool tight = i > 0 && tokens_[i]->getStartIndex() == tokens_[i - 1]->getStopIndex() + 1;
    switch (t) {
    case P::LT:
      if (tight && is_word(type(i - 1))) return push(P::LT, i);
      fail_generics();
      return true;
    case P::GT:
      trailing(i);
      if (stack_.empty() || stack_.back().type != P::LT) return true;
      if (type(i + 1) == P::LPAREN || type(i + 1) == P::LBRACKET) {
        retype(stack_.back().token, P::GENERIC_OPEN);
        retype(i, P::GENERIC_CLOSE);
        pop();
      } else {
        fail_generics();
      }
      return true;
    case P::LPAREN:
      if (i >= 2 && is_word(type(i - 1)) && type(i - 2) == P::AT) retype(i, P::ANNOTATION_OPEN);
      return push(P::LPAREN, i);
    case P::LBRACKET: return push(P::LBRACKET, i);
    case P::LBRACE:
      trailing(i);
      fail_generics();
      return push(P::LBRACE, i);
    case P::RPAREN:
    case P::RBRACKET:
    case P::RBRACE:
      trailing(i);
      fail_generics();
      close(t == P::RPAREN ? P::LPAREN : t == P::RBRACKET ? P::LBRACKET : P::LBRACE);
      if (t == P::RBRACE && type(i + 1) != P::ELSE) end_chain();
      return true;
    case P::SEMICOLON:
      trailing(i);
      fail_generics();
      end_chain();
      return true;
    case P::COMMA:
      if (stack_.empty() || stack_.back().type != P::LT) end_chain();
      return true;
    case P::ELSE: return type(i + 1) != P::IF || chain(i);
    case P::QUESTION: fail_generics(); return chain(i);
    case P::ASSIGN:
    case P::DOT:
    case P::PLUS:
    case P::MINUS:
    case P::STAR:
    case P::SLASH:
    case P::PERCENT:
    case P::NOT:
    case P::TILDE:
    case P::INT:
    case P::FLOAT:
    case P::STRING:
    case P::TRUE:
    case P::FALSE: return true;
    default:
      if (!is_word(t)) fail_generics();
      return true;
    }
  }

  void trailing(size_t i) {
    if (i >= 2 && type(i - 1) == P::COMMA && type(i - 2) != P::COMMA && type(i - 2) != P::LPAREN &&
        type(i - 2) != P::LBRACKET)
      retype(i - 1, P::TRAILING);
  }

  // Closes the innermost bracket of the type; a bracket of another type in between was never closed. A closing bracket
  // never reaches past a block.
  void close(size_t open) {
    for (size_t k = stack_.size(); k-- > 0;) {
      if (stack_[k].type == open) {
        while (stack_.size() > k) pop();
        return;
      }
      if (stack_[k].type == P::LBRACE) return;
    }
  }

  int32_t file_;
  const std::string &text_;
  std::vector<Token *> tokens_;
  Diagnostics &diagnostics_;
  std::vector<Open> stack_;
  int64_t depth_ = 0, base_chained_ = 0;
};

} // namespace

std::unique_ptr<ast::File> parse_file(int32_t file_id, Diagnostics &diagnostics) {
  const SourceFile &source = diagnostics.sources().file(file_id);
  if (!check_bytes(file_id, source, diagnostics)) return nullptr;
  antlr4::ANTLRInputStream input(ascii_image(source.text()));
  tkgrammar::TkLexer lexer(&input);
  lexer.removeErrorListeners();
  antlr4::CommonTokenStream tokens(&lexer);
  tokens.fill();
  TokenPass pass(file_id, source.text(), tokens.getTokens(), diagnostics);
  if (!pass.run()) return nullptr;
  tkgrammar::TkParser parser(&tokens);
  parser.removeErrorListeners();
  auto *simulator = parser.getInterpreter<antlr4::atn::ParserATNSimulator>();
  simulator->setPredictionMode(antlr4::atn::PredictionMode::SLL);
  parser.setErrorHandler(std::make_shared<antlr4::BailErrorStrategy>());
  try {
    return build_ast(parser.file(), file_id, diagnostics);
  } catch (const std::exception &) { return nullptr; }
}

} // namespace tkc
