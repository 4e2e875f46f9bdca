#include "syntax/parse.h"
#include "TkLexer.h"
#include "TkParser.h"
#include "support/check.h"
#include "support/diag_kinds.h"
#include "syntax/build_ast.h"
#include "syntax/source_text.h"
#include <algorithm>
#include <set>

namespace tkc {
namespace {

using P = tkgrammar::TkParser;
using antlr4::CommonToken;
using antlr4::Token;

// A file of garbage gets this many errors and no more.
constexpr int64_t kMaxErrors = 100;
constexpr const char *kGivingUp = "too many errors; the rest of the file is not read";

bool starts_declaration(size_t type) { return type >= P::IMPORT && type <= P::BENCH; }
bool is_keyword(size_t type) { return type >= P::IMPORT && type <= P::NONE; }
bool starts_clause(size_t type) { return type == P::GRID || type == P::ORDER || type == P::WARPS || type == P::WHERE; }
bool starts_keyword_statement(size_t type) {
  return type == P::LET || type == P::VAR || type == P::IF || type == P::FOR || type == P::UNROLL || type == P::WHILE ||
         type == P::LAUNCH || type == P::PARALLEL || type == P::RETURN || type == P::RING || type == P::ROLE;
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
    case P::BAD_STRING: error(l, "this string has no closing quote on its line"); return true;
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
      if (++errors_ < kMaxErrors) return true;
      error(l, kGivingUp);
      return false;
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
      // `tensor?<` as well.
      if (tight && (is_word(type(i - 1)) || (i > 1 && type(i - 1) == P::QUESTION && type(i - 2) == P::TENSOR)))
        return push(P::LT, i);
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
    case P::SHR: {
      trailing(i);
      size_t n = stack_.size();
      if (n < 2 || stack_[n - 1].type != P::LT || stack_[n - 2].type != P::LT || type(i + 1) != P::LBRACKET) {
        fail_generics();
        return true;
      }
      retype(stack_[n - 1].token, P::GENERIC_OPEN);
      retype(stack_[n - 2].token, P::RECORD_OPEN);
      retype(i, P::RECORD_CLOSE);
      pop();
      pop();
      return true;
    }
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
      // Outside all brackets a comma joins the facts of `where`; a clause may follow it.
      if (stack_.empty() && starts_clause(type(i + 1))) retype(i, P::TRAILING);
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
  int64_t depth_ = 0, base_chained_ = 0, errors_ = 0;
};

// ---- syntax errors
struct TooManyErrors {};

// What could stand at a place, as few phrases: "an expression", "`)`".
class Expected {
public:
  explicit Expected(std::set<size_t> tokens) : tokens_(std::move(tokens)) {}
  bool has(size_t type) const { return tokens_.count(type) > 0; }

  // Only things that end or join what stands before, nothing that begins something new.
  bool only_continues() const { return !has(P::ID) && !has(P::KERNEL); }

  std::string text(bool type_position, const antlr4::dfa::Vocabulary &vocabulary) {
    drop({size_t(Token::EPSILON), P::TRAILING});
    std::vector<std::string> phrases;
    if (has(P::KERNEL)) {
      phrases.push_back("a declaration");
      drop_range(P::IMPORT, P::BENCH);
      drop({size_t(Token::EOF)});
    } else if (has(P::LET)) {
      phrases.push_back(has(P::INT) ? "a statement" : "an item");
      drop_range(P::LET, P::ROLE);
      drop_values();
      drop({P::LBRACE, P::AT});
    } else if (has(P::IF) && has(P::LBRACE)) {
      phrases.push_back("a block");
      drop({P::IF, P::LBRACE});
    } else if (has(P::STAR)) { // an operand stands before: operators and suffixes go without saying
      drop_range(P::OR, P::PERCENT);
      drop_range(P::ASSIGN, P::XOR_ASSIGN);
      bool in_ternary = has(P::COLON);
      drop({P::QUESTION, P::LPAREN, P::LBRACKET, P::DOT, P::COLON, P::COLON_PLUS, P::GENERIC_OPEN, P::RECORD_OPEN});
      if (tokens_.empty() && in_ternary) tokens_.insert(P::COLON);
    } else if (has(P::INT) && has(P::LPAREN)) {
      phrases.push_back("an expression");
      drop_values();
      drop({P::LBRACE}); // a record, which few calls take
    }
    if (has(P::ID)) {
      phrases.push_back(type_position ? "a type" : "a name");
      drop_range(P::GRID, P::SHARED);
      drop({P::ID});
    }
    drop({P::RECORD_OPEN});
    if (has(P::GENERIC_OPEN)) replace(P::GENERIC_OPEN, P::LT);
    if (has(P::GENERIC_CLOSE)) replace(P::GENERIC_CLOSE, P::GT);
    if (has(P::RECORD_CLOSE)) replace(P::RECORD_CLOSE, P::SHR);
    if (has(P::COMMA)) phrases.push_back("`,`");
    drop({P::COMMA});
    for (size_t t : tokens_) phrases.push_back(token_phrase(t, vocabulary));
    std::string out;
    for (size_t i = 0; i < phrases.size(); i++)
      out += (i == 0 ? "" : i + 1 == phrases.size() ? " or " : ", ") + phrases[i];
    return out;
  }

private:
  static std::string token_phrase(size_t t, const antlr4::dfa::Vocabulary &vocabulary) {
    if (t == size_t(Token::EOF)) return "the end of the file";
    if (t == P::STRING) return "a string";
    std::string quoted = vocabulary.getLiteralName(t); // 'x'
    if (quoted.size() < 2) return vocabulary.getDisplayName(t);
    return fmt::format("`{}`", quoted.substr(1, quoted.size() - 2));
  }
  void drop(std::initializer_list<size_t> types) {
    for (size_t t : types) tokens_.erase(t);
  }
  void drop_range(size_t first, size_t last) { tokens_.erase(tokens_.lower_bound(first), tokens_.upper_bound(last)); }
  void drop_values() {
    drop_range(P::TRUE, P::SHARED);
    drop_range(P::INT, P::STRING);
    drop({P::ID, P::LPAREN, P::LBRACKET, P::MINUS, P::NOT, P::TILDE});
  }
  void replace(size_t from, size_t to) {
    tokens_.erase(from);
    tokens_.insert(to);
  }
  std::set<size_t> tokens_;
};

// Reports in our own words and recovers by statements: the rest of a broken statement is skipped, up to its `;`, a
// block, or a word that starts a statement or a declaration.
class ErrorStrategy final : public antlr4::DefaultErrorStrategy {
public:
  ErrorStrategy(int32_t file, const SourceFile &source, Diagnostics &diagnostics)
      : file_(file), source_(source), diagnostics_(diagnostics) {}

  // The generated parser calls this before each decision. What all decisions since the last token could take is what
  // was expected. The loops over declarations, statements and items skip here what cannot start one.
  void sync(antlr4::Parser *p) override {
    Token *t = p->getCurrentToken();
    const antlr4::misc::IntervalSet &next = decision(p);
    collect(t, next);
    size_t rule = p->getContext()->getRuleIndex();
    size_t kind = p->getATN().states[p->getState()]->getStateType();
    bool loop = kind == antlr4::atn::ATNState::STAR_LOOP_ENTRY || kind == antlr4::atn::ATNState::STAR_LOOP_BACK;
    if (!loop || (rule != P::RuleFile && rule != P::RuleBlock && rule != P::RuleCheck)) return;
    if (next.contains(t->getType())) return;
    if (!inErrorRecoveryMode(p)) {
      beginErrorCondition(p);
      report(p, t);
    }
    skip_to_item(p, rule, next);
  }

  void reportError(antlr4::Parser *p, const antlr4::RecognitionException &e) override {
    if (inErrorRecoveryMode(p)) return;
    beginErrorCondition(p);
    report(p, e.getOffendingToken());
  }

  Token *recoverInline(antlr4::Parser *p) override {
    Token *t = p->getCurrentToken();
    const antlr4::misc::IntervalSet &next = decision(p);
    bool reported = inErrorRecoveryMode(p);
    if (!reported) {
      beginErrorCondition(p);
      report(p, t);
    }
    // A header with an error is skipped up to its block, which is parsed all the same.
    if (has_block(p->getContext()->getRuleIndex()) && !next.contains(p->getInputStream()->LA(2))) {
      skip_unit(p, p->getContext()->getRuleIndex(), false);
      if (p->getCurrentToken()->getType() == P::LBRACE) {
        p->getContext()->exception = std::make_exception_ptr(antlr4::InputMismatchException(p));
        return p->getCurrentToken();
      }
    }
    if (reported) throw antlr4::InputMismatchException(p);
    // A missing `;` is passed over where the statement visibly ends.
    bool ends = t->getType() == P::RBRACE || t->getType() == Token::EOF || on_later_line(p, t);
    if (next.contains(size_t(P::SEMICOLON)) && ends) return t;
    bool bracket = t->getType() >= P::LBRACE && t->getType() <= P::RBRACKET;
    if (!bracket && next.contains(p->getInputStream()->LA(2))) { // a word too many
      p->consume();
      Token *wanted = p->getCurrentToken();
      reportMatch(p);
      p->consume();
      return wanted;
    }
    throw antlr4::InputMismatchException(p);
  }

  // No loop of the grammar can come here twice without taking a token: each enters on a token its first rule takes.
  void recover(antlr4::Parser *p, std::exception_ptr) override {
    antlr4::RuleContext *owner = p->getContext();
    while (owner->parent && !is_unit(owner->getRuleIndex())) owner = static_cast<antlr4::RuleContext *>(owner->parent);
    skip_unit(p, owner->getRuleIndex(), owner == p->getContext());
  }

private:
  static bool has_block(size_t rule) {
    return rule == P::RuleIfStmt || rule == P::RuleForStmt || rule == P::RuleWhileStmt || rule == P::RuleParallelStmt ||
           rule == P::RuleFunction || rule == P::RuleKernel || rule == P::RuleCheck || rule == P::RuleEnumDecl ||
           rule == P::RuleRecordDecl;
  }
  static bool is_unit(size_t rule) {
    return has_block(rule) || rule == P::RuleLetStmt || rule == P::RuleReturnStmt || rule == P::RuleLaunchStmt ||
           rule == P::RuleSimpleStmt || rule == P::RuleCheckItem || rule == P::RuleImportDecl ||
           rule == P::RuleConstDecl || rule == P::RuleBlock;
  }
  static bool on_later_line(antlr4::Parser *p, const Token *t) {
    const Token *before = p->getTokenStream()->LT(-1);
    return before && before->getLine() < t->getLine();
  }
  const antlr4::misc::IntervalSet &decision(antlr4::Parser *p) const {
    return p->getATN().nextTokens(p->getATN().states[p->getState()]);
  }
  void collect(const Token *t, const antlr4::misc::IntervalSet &next) {
    if (t->getTokenIndex() != seen_at_) decisions_.clear();
    seen_at_ = t->getTokenIndex();
    decisions_.push_back(&next);
  }
  static void add(std::set<size_t> &out, const antlr4::misc::IntervalSet &tokens) {
    for (const antlr4::misc::Interval &i : tokens.getIntervals())
      for (ssize_t k = i.a; k <= i.b; k++) out.insert(size_t(k));
  }
  // What all decisions at the current token could have taken, and what may stand there by the rules being parsed.
  std::set<size_t> expected_at(antlr4::Parser *p, const Token *t) const {
    std::set<size_t> out;
    add(out, p->getExpectedTokens());
    if (t->getTokenIndex() == seen_at_)
      for (const antlr4::misc::IntervalSet *next : decisions_) add(out, *next);
    return out;
  }

  // Skips to the end of the statement or header `rule`; takes the `;` only if `whole`, when nobody else will.
  void skip_unit(antlr4::Parser *p, size_t rule, bool whole) {
    while (true) {
      const Token *t = p->getCurrentToken();
      size_t type = t->getType();
      if (type == Token::EOF || type == P::RBRACE || starts_declaration(type) || starts_keyword_statement(type)) return;
      if (type == P::LBRACE && has_block(rule)) return;
      if (type == P::LBRACE) {
        skip_braces(p);
        continue;
      }
      // `for (i = 0; i < n; ..) {`: a `;` within the line does not end a header.
      const Token *after = p->getTokenStream()->LT(2);
      if (type == P::SEMICOLON && (!has_block(rule) || !after || after->getLine() > t->getLine())) {
        if (whole) p->consume();
        return;
      }
      p->consume();
    }
  }
  // In the loop of `rule` (file, block or check) that takes `next`: skips what cannot start an item, by whole items.
  void skip_to_item(antlr4::Parser *p, size_t rule, const antlr4::misc::IntervalSet &next) {
    while (true) {
      size_t type = p->getCurrentToken()->getType();
      if (type == Token::EOF || starts_declaration(type)) return;
      if (rule == P::RuleFile) {
        p->consume();
        continue;
      }
      bool item_word = starts_keyword_statement(type) || type == P::CASE || type == P::INPUT || type == P::TOLERANCE ||
                       type == P::LOCATE;
      if (type == P::RBRACE || (next.contains(type) && (item_word || type == P::LBRACE))) return;
      if (type == P::LBRACE) {
        skip_braces(p);
      } else {
        p->consume();
        if (type != P::SEMICOLON) continue;
      }
      if (next.contains(p->getCurrentToken()->getType())) return;
    }
  }
  void skip_braces(antlr4::Parser *p) {
    int64_t depth = 0;
    do {
      size_t type = p->getCurrentToken()->getType();
      if (type == Token::EOF || starts_declaration(type)) return;
      depth += type == P::LBRACE ? 1 : type == P::RBRACE ? -1 : 0;
      p->consume();
    } while (depth > 0);
  }

  std::string shown(const Token *t) const {
    if (t->getType() == Token::EOF) return "end of file";
    if (t->getType() == P::STRING) return "string";
    SourceLoc l = token_loc(file_, t);
    return fmt::format("{}`{}`", is_keyword(t->getType()) ? "keyword " : "",
                       source_.text().substr(size_t(l.begin), size_t(std::min(l.end - l.begin, 60))));
  }

  void report(antlr4::Parser *p, const Token *t) {
    const Token *before = p->getTokenStream()->LT(-1);
    if (follows_lexical_error(p, t)) return;
    Expected expected(expected_at(p, t));
    SourceLoc at = token_loc(file_, t);
    std::string text = special_case(p, t, before, expected);
    if (text.empty()) {
      bool type_position = before && (before->getType() == P::COLON || before->getType() == P::ARROW) &&
                           p->getContext()->getRuleIndex() != P::RuleCheckItem &&
                           p->getContext()->getRuleIndex() != P::RuleSetting;
      bool continues = expected.only_continues();
      std::string list = expected.text(type_position, p->getVocabulary());
      if (before && continues && before->getLine() < t->getLine()) {
        at.begin = at.end = token_loc(file_, before).end;
        text = fmt::format("expected {} after {}", list, shown(before));
      } else {
        text = fmt::format("unexpected {}, expected {}", shown(t), list);
      }
    }
    Diagnostic &d = diagnostics_.report(at, DiagKind::syntax, text);
    if (expected.has(P::RBRACE) && (t->getType() == Token::EOF || starts_declaration(t->getType())))
      note_open_brace(p, d);
    if (++errors_ < kMaxErrors) return;
    diagnostics_.report(token_loc(file_, t), DiagKind::syntax, kGivingUp);
    throw TooManyErrors();
  }

  // What a broken token leads to says nothing new.
  static bool follows_lexical_error(antlr4::Parser *p, const Token *t) {
    if (t->getType() == P::BAD_STRING) return true;
    if (t->getTokenIndex() == 0) return false;
    return p->getTokenStream()->get(t->getTokenIndex() - 1)->getChannel() != Token::DEFAULT_CHANNEL;
  }

  void note_open_brace(antlr4::Parser *p, Diagnostic &d) const {
    for (antlr4::tree::ParseTree *c = p->getContext(); c; c = c->parent)
      for (antlr4::tree::ParseTree *child : c->children)
        if (auto *node = dynamic_cast<antlr4::tree::TerminalNode *>(child);
            node && node->getSymbol()->getType() == P::LBRACE)
          return d.notes.push_back({token_loc(file_, node->getSymbol()), "this `{` is not closed"});
  }

  // Texts that say more than what was expected; "" if there is none.
  std::string special_case(antlr4::Parser *p, const Token *t, const Token *before, const Expected &expected) const {
    size_t rule = p->getContext()->getRuleIndex();
    if (t->getType() == P::RESERVED) return fmt::format("{} is reserved for a later version of the language", shown(t));
    if (!before) return "";
    const Token *earlier = p->getTokenStream()->LT(-2);
    if (before->getType() == P::DOT && t->getType() == P::DOT) return "a range is written `lo : hi`";
    if (before->getType() == P::DOT && earlier && earlier->getType() == P::INT)
      return "a float literal has digits after its point, as in `1.0`";
    auto *outer = dynamic_cast<antlr4::RuleContext *>(p->getContext()->parent);
    size_t block_of = rule == P::RuleBlock && outer ? outer->getRuleIndex() : size_t(P::RuleFile);
    if (block_of == P::RuleKernel && t->getType() == P::ARROW)
      return "a kernel returns nothing: its results are `out` parameters";
    if ((block_of == P::RuleIfStmt || block_of == P::RuleWhileStmt) && t->getType() == P::ASSIGN)
      return "unexpected `=`, expected `{`; `==` compares";
    if (expected.has(P::STAR) && (t->getText() == "and" || t->getText() == "or"))
      return fmt::format("`{}` is written `{}`", t->getText(), t->getText() == "and" ? "&&" : "||");
    if (rule == P::RuleStatement && t->getType() != P::RBRACE && starts_keyword_statement(t->getType()))
      return fmt::format("an annotation cannot stand before `{}`", t->getText());
    return "";
  }

  int32_t file_;
  const SourceFile &source_;
  Diagnostics &diagnostics_;
  std::vector<const antlr4::misc::IntervalSet *> decisions_; // the parser's own sets, met at token seen_at_
  size_t seen_at_ = SIZE_MAX;
  int64_t errors_ = 0;
};

} // namespace

static std::unique_ptr<ast::File> parse_text(int32_t file_id, const SourceFile &source, Diagnostics &diagnostics) {
  antlr4::ANTLRInputStream input(ascii_image(source.text()));
  tkgrammar::TkLexer lexer(&input);
  lexer.removeErrorListeners();
  antlr4::CommonTokenStream tokens(&lexer);
  tokens.fill();
  if (!TokenPass(file_id, source.text(), tokens.getTokens(), diagnostics).run()) return nullptr;

  tkgrammar::TkParser parser(&tokens);
  parser.removeErrorListeners();
  auto *simulator = parser.getInterpreter<antlr4::atn::ParserATNSimulator>();
  try {
    // A file without errors needs neither full contexts nor recovery.
    simulator->setPredictionMode(antlr4::atn::PredictionMode::SLL);
    parser.setErrorHandler(std::make_shared<antlr4::BailErrorStrategy>());
    return build_ast(parser.file(), false, file_id, diagnostics);
  } catch (const antlr4::ParseCancellationException &) { parser.reset(); }
  try {
    simulator->setPredictionMode(antlr4::atn::PredictionMode::LL);
    parser.setErrorHandler(std::make_shared<ErrorStrategy>(file_id, source, diagnostics));
    return build_ast(parser.file(), true, file_id, diagnostics);
  } catch (const TooManyErrors &) { return nullptr; }
}

std::unique_ptr<ast::File> parse_file(int32_t file_id, Diagnostics &diagnostics) {
  const SourceFile &source = diagnostics.sources().file(file_id);
  int64_t errors_before = diagnostics.error_count();
  if (!check_bytes(file_id, source, diagnostics)) return nullptr;
  std::unique_ptr<ast::File> out;
  try {
    out = parse_text(file_id, source, diagnostics);
  } catch (const std::exception &e) { TKC_UNREACHABLE("parsing `{}`: {}", source.name(), e.what()); }
  bool empty = !out || (out->imports.empty() && out->consts.empty() && out->enums.empty() && out->records.empty() &&
                        out->functions.empty() && out->checks.empty());
  if (empty && diagnostics.error_count() == errors_before)
    diagnostics.report({file_id, 0, 0}, DiagKind::empty_file, source.name());
  return empty ? nullptr : std::move(out);
}

} // namespace tkc
