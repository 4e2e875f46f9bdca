// Statements of PTX: module directives, function headers, bodies. Expressions of initialisers and operands are here
// too; the meaning of an opcode is the decoder's business (decode.h).
#include "emu/ptx_ast.h"
#include "emu/ptx_lexer.h"
#include <algorithm>
#include <bit>
#include <cstring>
#include <fmt/format.h>
#include <map>

namespace tkc::emu {

namespace {
struct TypeRow {
  std::string_view name;
  int bits;
  TypeClass cls;
};
constexpr TypeRow kTypes[] = {
#define TKC_PTX_TYPE(name, text, bits, cls) {text, bits, TypeClass::cls},
#include "emu/ptx_type.def"
#undef TKC_PTX_TYPE
};
} // namespace

std::string_view type_name(Type t) { return kTypes[int(t)].name; }
int type_bits(Type t) { return kTypes[int(t)].bits; }
TypeClass type_class(Type t) { return kTypes[int(t)].cls; }
std::optional<Type> parse_type(std::string_view name) {
  for (size_t i = 0; i < std::size(kTypes); i++)
    if (kTypes[i].name == name) return Type(i);
  return std::nullopt;
}

std::string_view space_name(Space s) {
  switch (s) {
  case Space::Generic: return "generic";
  case Space::Global: return "global";
  case Space::Shared: return "shared";
  case Space::SharedCluster: return "shared::cluster";
  case Space::Const: return "const";
  case Space::Local: return "local";
  case Space::Param: return "param";
  }
  return "?";
}

namespace {
std::optional<Space> parse_space(std::string_view word) {
  if (word == ".global") return Space::Global;
  if (word == ".shared") return Space::Shared;
  if (word == ".const") return Space::Const;
  if (word == ".local") return Space::Local;
  if (word == ".param") return Space::Param;
  return std::nullopt;
}

class Parser {
public:
  explicit Parser(PtxModule &module) : module_(module), lex_(module.text) {}

  std::vector<PtxDiagnostic> run() {
    while (peek().kind != Token::Kind::End && errors_.size() < kMostErrors) {
      statement();
      if (failed_) {
        failed_ = false;
        skip_statement();
      }
    }
    return std::move(errors_);
  }

private:
  struct Family {
    Type type;
    int64_t count;
  };
  struct Scope {
    int32_t id;
    std::map<std::string_view, int32_t, std::less<>> registers;
    std::map<std::string_view, Family, std::less<>> families; // %r<64>: entries are made at first use
  };

  // After a fault every look at the text sees its end, so that all loops finish; the statement loop then recovers.
  const Token &peek() const { return failed_ ? end_ : lex_.peek(); }
  Token next() { return failed_ ? end_ : lex_.next(); }
  void fail(const Token &at, std::string message) {
    if (failed_) return;
    failed_ = true;
    errors_.push_back({at.line, std::move(message)});
  }
  void unexpected(std::string_view wanted) {
    const Token &t = peek();
    fail(t, t.kind == Token::Kind::End ? fmt::format("expected {} before the end of the file", wanted)
                                       : fmt::format("expected {} instead of `{}`", wanted, t.text));
  }
  bool accept(char c) {
    if (!peek().is(c)) return false;
    next();
    return true;
  }
  bool accept(std::string_view word) {
    if (!peek().is(word)) return false;
    next();
    return true;
  }
  void expect(char c) {
    if (!accept(c)) unexpected(fmt::format("`{}`", c));
  }
  std::string_view name(std::string_view what) {
    if (peek().kind != Token::Kind::Word || peek().text[0] == '.') unexpected(what);
    return failed_ ? std::string_view("?") : next().text;
  }
  int64_t integer(std::string_view what) {
    if (peek().kind != Token::Kind::Integer) unexpected(what);
    return int64_t(next().bits);
  }
  std::optional<Type> accept_type() {
    const Token &t = peek();
    if (t.kind != Token::Kind::Word || t.text[0] != '.') return std::nullopt;
    std::optional<Type> type = parse_type(t.text.substr(1));
    if (type) next();
    return type;
  }
  Type expect_type() {
    std::optional<Type> type = accept_type();
    if (!type) unexpected("a type");
    return type.value_or(Type::B8);
  }
  bool done() const { return peek().kind == Token::Kind::End; }
  void skip_to_semicolon() {
    while (!done() && !accept(';')) next();
  }
  void skip_statement() {
    int depth = 0;
    while (peek().kind != Token::Kind::End) {
      Token t = next();
      if (t.is('{')) depth++;
      if (t.is('}') && --depth <= 0) return;
      if (t.is(';') && depth == 0) return;
    }
  }

  void statement();
  void file_directive();
  void section();
  void function(bool entry, bool external);
  void param_list(std::vector<PtxParam> &params);
  void function_directives(PtxFunction &f);
  PtxVar variable(Space space, bool external);
  void initialiser(PtxVar &v);
  void initial_value(PtxVar &v, int64_t at, int64_t element);
  void body(PtxFunction &f);
  void body_statement(PtxFunction &f);
  void declare_registers(PtxFunction &f, Type type);
  void branch_targets(PtxFunction &f, std::string_view label);
  void instruction(PtxFunction &f);
  PtxOperand operand(PtxFunction &f);
  PtxOperand primary(PtxFunction &f);
  PtxOperand list(PtxFunction &f, char close, PtxOperand::Kind kind);
  PtxOperand address(PtxFunction &f);
  int32_t find_register(PtxFunction &f, std::string_view name);

  static constexpr size_t kMostErrors = 50;
  PtxModule &module_;
  Lexer lex_;
  std::vector<PtxDiagnostic> errors_;
  std::vector<Scope> scopes_;
  bool failed_ = false;
  int nesting_ = 0;
  Token end_;
  int32_t loc_file_ = 0, loc_line_ = 0;
};

void Parser::statement() {
  Token t = peek();
  if (accept(".version")) {
    std::string_view v = next().text;
    module_.version = std::string(v);
  } else if (accept(".target")) {
    module_.target = std::string(name("a target"));
    while (accept(',')) name("a target option");
  } else if (accept(".address_size")) {
    if (integer("an address size") != 64) fail(t, "only .address_size 64 is supported");
  } else if (accept(".file")) {
    file_directive();
  } else if (accept(".section")) {
    section();
  } else if (accept(".pragma")) {
    skip_to_semicolon();
  } else {
    bool external = false;
    while (peek().is(".visible") || peek().is(".extern") || peek().is(".weak") || peek().is(".common"))
      external |= next().text == ".extern";
    if (accept(".entry")) return function(true, external);
    if (accept(".func")) return function(false, external);
    const Token &word = peek();
    std::optional<Space> space = word.kind == Token::Kind::Word ? parse_space(word.text) : std::nullopt;
    if (!space || *space == Space::Local || *space == Space::Param) {
      if (word.kind == Token::Kind::Word) return fail(word, fmt::format("unknown directive `{}`", word.text));
      return unexpected("a directive");
    }
    next();
    PtxVar v = variable(*space, external);
    module_.vars.push_back(std::move(v));
    expect(';');
  }
}

void Parser::file_directive() {
  int64_t index = integer("a file index");
  if (index < 0 || index > 100000) return fail(peek(), "file index out of range");
  if (peek().kind != Token::Kind::String) return unexpected("a file name");
  std::string_view text = next().text;
  if (int64_t(module_.files.size()) <= index) module_.files.resize(size_t(index) + 1);
  module_.files[size_t(index)] = std::string(text);
  while (accept(',')) integer("a number"); // time stamp and size
}

// Debug sections: DWARF in directives. .loc and .file are all that the emulator uses.
void Parser::section() {
  if (next().kind != Token::Kind::Word) return unexpected("a section");
  int depth = 0;
  do {
    if (done()) return unexpected("`}`");
    Token t = next();
    depth += t.is('{') ? 1 : t.is('}') ? -1 : 0;
  } while (depth > 0);
}

void Parser::param_list(std::vector<PtxParam> &params) {
  expect('(');
  int64_t offset = 0;
  while (!done() && !accept(')')) {
    if (!params.empty()) expect(',');
    if (!accept(".param")) return unexpected("`.param`");
    PtxParam p;
    if (accept(".align")) p.align = integer("an alignment");
    Token type_token = peek();
    p.type = expect_type();
    if (type_bits(p.type) < 8) fail(type_token, "a parameter of this type is not supported");
    p.bytes = type_bytes(p.type);
    if (accept(".ptr")) {
      p.pointer = Space::Generic;
      if (std::optional<Space> space = parse_space(peek().text)) p.pointer = *space, next();
      if (accept(".align")) integer("an alignment");
    }
    p.name = std::string(name("a parameter name"));
    if (accept('[')) {
      p.array = true;
      p.bytes = type_bytes(p.type) * integer("an array size");
      expect(']');
    }
    p.align = std::max(p.align, int64_t(type_bytes(p.type)));
    if (std::popcount(uint64_t(p.align)) != 1) fail(type_token, "the alignment is not a power of two");
    offset = (offset + p.align - 1) / p.align * p.align;
    p.offset = offset;
    offset += p.bytes;
    params.push_back(std::move(p));
  }
}

void Parser::function_directives(PtxFunction &f) {
  auto dims = [&](int64_t *out) {
    for (int i = 0; i < 3; i++) out[i] = i == 0 || accept(',') ? integer("a size") : 1;
  };
  for (;;) {
    if (accept(".maxntid")) {
      int64_t d[3];
      dims(d);
      f.max_threads = d[0] * d[1] * d[2];
    } else if (accept(".reqntid")) {
      dims(f.required_threads);
    } else if (accept(".reqnctapercluster")) {
      dims(f.cluster);
    } else if (accept(".minnctapersm") || accept(".maxnctapersm") || accept(".maxnreg") || accept(".maxclusterrank")) {
      integer("a number");
    } else if (accept(".pragma")) {
      skip_to_semicolon();
    } else if (!accept(".noreturn") && !accept(".explicitcluster") && !accept(".blocksareclusters")) {
      return;
    }
  }
}

void Parser::function(bool entry, bool external) {
  PtxFunction f;
  f.entry = entry;
  f.line = peek().line;
  if (!entry && peek().is('(')) param_list(f.results);
  f.name = std::string(name("a function name"));
  if (peek().is('(')) param_list(f.params);
  function_directives(f);
  if (!accept(';')) {
    if (external) unexpected("`;` after an .extern function");
    body(f);
    f.defined = true;
  }
  module_.functions.push_back(std::move(f));
}

PtxVar Parser::variable(Space space, bool external) {
  PtxVar v;
  v.space = space;
  v.external = external;
  v.line = peek().line;
  int64_t align = 0;
  if (accept(".align")) align = integer("an alignment");
  int64_t lanes = 1;
  if (accept(".v2")) lanes = 2;
  if (accept(".v4")) lanes = 4;
  Token type_token = peek();
  v.type = expect_type();
  if (type_bits(v.type) < 8) fail(type_token, "a variable of this type is not supported");
  int64_t element = type_bytes(v.type);
  v.align = std::max(align, int64_t(1));
  if (align == 0) v.align = element * lanes;
  if (std::popcount(uint64_t(v.align)) != 1) fail(type_token, "the alignment is not a power of two");
  v.name = std::string(name("a variable name"));
  int64_t count = lanes;
  bool open = false;
  while (accept('[')) {
    if (accept(']')) {
      open = true;
      continue;
    }
    count *= integer("an array size");
    if (count < 0 || count > int64_t(1) << 32) fail(type_token, "the array is too large"), count = 0;
    expect(']');
  }
  v.bytes = open ? 0 : count * element;
  if (accept('=')) {
    if (space != Space::Global && space != Space::Const) fail(type_token, "only .global and .const may be initialised");
    initialiser(v);
    if (open) v.bytes = int64_t(v.init.size());
    if (int64_t(v.init.size()) > v.bytes) fail(type_token, fmt::format("too many initial values for {}", v.name));
    v.init.resize(size_t(v.bytes));
  } else if (open && !external) {
    fail(type_token, fmt::format("{} has no size", v.name));
  }
  return v;
}

void Parser::initialiser(PtxVar &v) {
  int64_t element = type_bytes(v.type);
  if (!accept('{')) return initial_value(v, 0, element);
  int depth = 1;
  int64_t at = 0;
  while (depth > 0 && !done()) {
    if (accept('{')) {
      depth++;
    } else if (accept('}')) {
      depth--;
    } else if (!accept(',')) {
      initial_value(v, at, element);
      at += element;
    }
  }
}

void Parser::initial_value(PtxVar &v, int64_t at, int64_t element) {
  v.init.resize(size_t(at + element));
  bool minus = accept('-');
  Token t = next();
  uint64_t bits = t.bits;
  if (t.kind == Token::Kind::Word) {
    PtxVar::Relocation r{at, std::string(t.text), 0};
    if (t.text == "generic") {
      expect('(');
      r.name = std::string(name("a variable"));
      expect(')');
    }
    if (accept('+')) r.offset = integer("an offset");
    if (element != 8) return fail(t, "the address of a variable needs 64 bits");
    v.relocations.push_back(r);
    return;
  }
  if (t.kind == Token::Kind::Integer) {
    if (type_class(v.type) == TypeClass::Float && element == 8) bits = std::bit_cast<uint64_t>(double(bits));
    if (type_class(v.type) == TypeClass::Float && element == 4) bits = std::bit_cast<uint32_t>(float(bits));
    if (minus && type_class(v.type) != TypeClass::Float) bits = 0 - bits;
  } else if (t.kind == Token::Kind::Float64 && element == 4) {
    bits = std::bit_cast<uint32_t>(float(std::bit_cast<double>(bits)));
  } else if (t.kind != Token::Kind::Float64 && t.kind != Token::Kind::Float32) {
    fail(t, fmt::format("expected an initial value instead of `{}`", t.text));
  }
  if (minus && type_class(v.type) == TypeClass::Float) bits ^= uint64_t(1) << (element * 8 - 1);
  std::memcpy(v.init.data() + at, &bits, size_t(std::min<int64_t>(element, 8)));
}

void Parser::body(PtxFunction &f) {
  scopes_.clear();
  scopes_.push_back({0, {}, {}});
  f.scope_parent = {-1};
  loc_file_ = loc_line_ = 0;
  expect('{');
  while (!scopes_.empty()) {
    if (done()) return unexpected("`}`");
    if (errors_.size() >= kMostErrors) return;
    body_statement(f);
    if (failed_) {
      failed_ = false;
      while (!done() && !peek().is(';') && !peek().is('}')) next();
      accept(';');
    }
  }
}

void Parser::body_statement(PtxFunction &f) {
  if (accept('{')) {
    f.scope_parent.push_back(scopes_.back().id);
    scopes_.push_back({int32_t(f.scope_parent.size()) - 1, {}, {}});
    return;
  }
  if (accept('}')) {
    scopes_.pop_back();
    return;
  }
  if (accept(';')) return;
  Token t = peek();
  if (accept(".reg")) return declare_registers(f, expect_type());
  nesting_ = 0;
  if (t.kind == Token::Kind::Word && t.text.starts_with(".reg.")) {
    std::optional<Type> type = parse_type(next().text.substr(5));
    if (!type) return fail(t, fmt::format("unknown type in `{}`", t.text));
    return declare_registers(f, *type);
  }
  if (accept(".loc")) {
    loc_file_ = int32_t(integer("a file index"));
    loc_line_ = int32_t(integer("a line"));
    integer("a column");
    while (accept(',')) { // function_name label, inlined_at file line column
      while (peek().kind == Token::Kind::Word || peek().kind == Token::Kind::Integer || peek().is('+')) {
        if (peek().kind == Token::Kind::Word && peek().line != t.line) break;
        next();
      }
    }
    return;
  }
  if (accept(".pragma")) {
    skip_to_semicolon();
    return;
  }
  if (t.kind == Token::Kind::Word && t.text[0] == '.') {
    std::optional<Space> space = parse_space(t.text);
    if (!space || *space == Space::Global || *space == Space::Const)
      return fail(t, fmt::format("unknown directive `{}` in a function", t.text));
    next();
    PtxVar v = variable(*space, false);
    v.scope = scopes_.back().id;
    f.vars.push_back(std::move(v));
    while (accept(',')) fail(t, "one variable a declaration");
    expect(';');
    return;
  }
  instruction(f);
}

void Parser::declare_registers(PtxFunction &f, Type type) {
  do {
    std::string_view reg = name("a register name");
    if (accept('<')) {
      scopes_.back().families[reg] = {type, integer("a count")};
      expect('>');
    } else {
      scopes_.back().registers[reg] = int32_t(f.regs.size());
      f.regs.push_back({type, std::string(reg)});
    }
  } while (accept(','));
  expect(';');
}

int32_t Parser::find_register(PtxFunction &f, std::string_view reg) {
  size_t digits = reg.size();
  while (digits > 0 && reg[digits - 1] >= '0' && reg[digits - 1] <= '9') digits--;
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    auto known = scope->registers.find(reg);
    if (known != scope->registers.end()) return known->second;
    if (digits == reg.size() || reg.size() - digits > 9) continue;
    auto family = scope->families.find(reg.substr(0, digits));
    if (family == scope->families.end()) continue;
    if (std::stol(std::string(reg.substr(digits))) >= family->second.count) continue;
    int32_t index = int32_t(f.regs.size());
    f.regs.push_back({family->second.type, std::string(reg)});
    scope->registers[reg] = index;
    return index;
  }
  return -1;
}

void Parser::branch_targets(PtxFunction &f, std::string_view label) {
  PtxBranchTable table{label, scopes_.back().id, {}};
  do table.labels.push_back(name("a label"));
  while (accept(','));
  expect(';');
  f.tables.push_back(std::move(table));
}

void Parser::instruction(PtxFunction &f) {
  PtxInst inst;
  inst.scope = scopes_.back().id;
  inst.loc_file = loc_file_;
  inst.loc_line = loc_line_;
  if (accept('@')) {
    inst.guard_negated = accept('!');
    Token t = peek();
    inst.guard = find_register(f, name("a predicate"));
    if (inst.guard < 0) return fail(t, fmt::format("unknown register `{}`", t.text));
    if (f.regs[size_t(inst.guard)].type != Type::Pred) return fail(t, fmt::format("`{}` is no predicate", t.text));
  }
  Token t = peek();
  inst.line = t.line;
  inst.opcode = name("an instruction");
  if (inst.guard < 0 && accept(':')) {
    if (accept(".branchtargets")) return branch_targets(f, inst.opcode);
    f.labels.push_back({inst.opcode, inst.scope, int32_t(f.code.size())});
    return;
  }
  if (!accept(';')) {
    do inst.operands.push_back(operand(f));
    while (accept(','));
    expect(';');
  }
  f.code.push_back(std::move(inst));
}

PtxOperand Parser::operand(PtxFunction &f) {
  PtxOperand first = primary(f);
  if (!accept('|')) return first;
  PtxOperand pair;
  pair.kind = PtxOperand::Kind::Pair;
  pair.parts.push_back(std::move(first));
  pair.parts.push_back(primary(f));
  return pair;
}

PtxOperand Parser::list(PtxFunction &f, char close, PtxOperand::Kind kind) {
  PtxOperand out;
  out.kind = kind;
  if (++nesting_ > 8) fail(peek(), "operands are nested too deeply");
  if (!accept(close)) {
    do out.parts.push_back(operand(f));
    while (accept(','));
    expect(close);
  }
  nesting_--;
  return out;
}

PtxOperand Parser::address(PtxFunction &f) {
  PtxOperand out;
  out.kind = PtxOperand::Kind::Address;
  out.parts.push_back(primary(f));
  out.offset = out.parts[0].offset;
  if (out.parts[0].kind == PtxOperand::Kind::Register && (peek().is('+') || peek().is('-'))) {
    bool minus = next().is('-');
    if (accept('-')) minus = !minus;
    int64_t value = integer("an offset");
    out.offset = minus ? -value : value;
  }
  while (accept(',')) out.parts.push_back(operand(f));
  expect(']');
  return out;
}

PtxOperand Parser::primary(PtxFunction &f) {
  PtxOperand out;
  if (accept('{')) return list(f, '}', PtxOperand::Kind::Vector);
  if (accept('(')) return list(f, ')', PtxOperand::Kind::Arguments);
  if (accept('[')) return address(f);
  bool negated = accept('!'), minus = !negated && accept('-');
  Token t = next();
  switch (t.kind) {
  case Token::Kind::Integer:
    out.kind = PtxOperand::Kind::Integer;
    out.bits = minus ? 0 - t.bits : t.bits;
    break;
  case Token::Kind::Float32:
    out.kind = PtxOperand::Kind::Float32;
    out.bits = minus ? t.bits ^ 0x80000000u : t.bits;
    break;
  case Token::Kind::Float64:
    out.kind = PtxOperand::Kind::Float64;
    out.bits = minus ? t.bits ^ (uint64_t(1) << 63) : t.bits;
    break;
  case Token::Kind::Word: {
    if (t.text == "_") {
      out.kind = PtxOperand::Kind::Sink;
      return out;
    }
    if (t.text[0] == '.') fail(t, fmt::format("expected an operand instead of `{}`", t.text));
    out.reg = find_register(f, t.text);
    out.kind = out.reg >= 0 ? PtxOperand::Kind::Register : PtxOperand::Kind::Symbol;
    out.name = t.text;
    out.negated = negated;
    if (minus) fail(t, "a register cannot be negated here");
    if (out.kind == PtxOperand::Kind::Symbol && (peek().is('+') || peek().is('-'))) {
      bool down = next().is('-');
      if (accept('-')) down = !down;
      int64_t value = integer("an offset");
      out.offset = down ? -value : value;
    }
    return out;
  }
  case Token::Kind::End:
  case Token::Kind::String:
  case Token::Kind::Punct:
  case Token::Kind::Bad: fail(t, fmt::format("expected an operand instead of `{}`", t.text));
  }
  if (negated) fail(t, "`!` needs a predicate");
  return out;
}
} // namespace

std::vector<PtxDiagnostic> parse_ptx_text(PtxModule &module) { return Parser(module).run(); }

} // namespace tkc::emu
