#include "syntax/print_ast.h"
#include "syntax/literals.h"
#include <fmt/format.h>

namespace tkc {

namespace {
using namespace ast;

// How tightly an expression holds together; an operand looser than its place gets parentheses.
enum Level : int { kRange, kTernary, kBinary, kAdditive = kBinary + 9, kUnary = kBinary + 11, kPostfix };

int level(BinaryOp op) { return kBinary + precedence(op); }
int level(const Expr &e) {
  switch (e.kind) {
  case ExprKind::Range: return kRange;
  case ExprKind::Ternary: return kTernary;
  case ExprKind::Binary: return level(e.binary);
  case ExprKind::Unary: return kUnary;
  case ExprKind::Int:
  case ExprKind::Float:
  case ExprKind::Bool:
  case ExprKind::String:
  case ExprKind::None:
  case ExprKind::Name:
  case ExprKind::Call:
  case ExprKind::Shaped:
  case ExprKind::Index:
  case ExprKind::Member:
  case ExprKind::Tuple:
  case ExprKind::List:
  case ExprKind::Record: return kPostfix;
  }
  return kPostfix;
}

class Printer {
public:
  std::string take() { return std::move(out_); }

  void file(const File &f) {
    for (const Import &i : f.imports) add("import {};\n", i.is_path ? quote_string(i.name.text) : i.name.text);
    for (const Const &c : f.consts) {
      add("const {} = ", c.name.text);
      expr(*c.value);
      out_ += ";\n";
    }
    for (const Enum &e : f.enums) {
      add("enum {} {{ ", e.name.text);
      names(e.values);
      out_ += " }\n";
    }
    for (const Record &r : f.records) record(r);
    for (const Function &fn : f.functions) function(fn);
    for (const Check &c : f.checks) check(c);
  }

  void record(const Record &r) {
    add("record {}", r.name.text);
    generic_params(r.generics);
    out_ += " { ";
    for (const Field &f : r.fields) field(f), out_ += "; ";
    out_ += "}\n";
  }

  void function(const Function &f) {
    add("{} {}", spelling(f.kind), f.name.text);
    generic_params(f.generics);
    out_ += '(';
    list(f.params, [&](const Param &p) {
      static constexpr const char *kModes[] = {"", "out ", "inout "};
      out_ += p.name.text;
      if (p.type) add(": {}", kModes[int(p.mode)]), type(*p.type);
      if (p.default_value) out_ += " = ", expr(*p.default_value);
    });
    out_ += ')';
    results(f.results);
    if (f.has_grid) {
      for (const Annotation &a : f.annotations) out_ += ' ', annotation(a, false);
      out_ += f.persistent ? " grid persistent (" : " grid (";
      exprs(f.grid);
      out_ += ')';
    }
    if (f.order) {
      add(" order {}", f.order->text);
      if (!f.order_args.empty()) out_ += '(', exprs(f.order_args), out_ += ')';
    }
    if (f.warps) out_ += " warps ", expr(*f.warps, kTernary);
    for (const ExprPtr &fact : f.facts) out_ += " where ", expr(*fact, kTernary);
    out_ += ' ';
    block(f.body);
    out_ += '\n';
  }

  void type(const Type &t) {
    switch (t.kind) {
    case TypeKind::Named: out_ += t.name.text; return;
    case TypeKind::Tile: out_ += "tile"; break;
    case TypeKind::Tensor: out_ += t.optional ? "tensor?" : "tensor"; break;
    case TypeKind::Shared: out_ += "shared"; break;
    }
    add("<{}", t.element.text);
    generics(t.element_args);
    out_ += ">[";
    exprs(t.dims);
    out_ += t.any_strides ? "] strides(any)" : "]";
  }

  void expr(const Expr &e, int at_least = kRange) {
    if (level(e) < at_least) {
      out_ += '(';
      bare(e);
      out_ += ')';
    } else {
      bare(e);
    }
  }

private:
  template <typename... A> void add(fmt::format_string<A...> pattern, A &&...args) {
    out_ += fmt::format(pattern, std::forward<A>(args)...);
  }
  template <typename C, typename F> void list(const C &items, F &&one) {
    bool first = true;
    for (const auto &item : items) {
      if (!first) out_ += ", ";
      first = false;
      one(item);
    }
  }
  void names(const std::vector<Name> &n) {
    list(n, [&](const Name &name) { out_ += name.text; });
  }
  void exprs(const std::vector<ExprPtr> &e) {
    list(e, [&](const ExprPtr &item) { expr(*item); });
  }
  void arg(const Arg &a, int at_least) {
    if (a.name) add("{} = ", a.name->text);
    expr(*a.value, at_least);
  }
  void pattern(const std::vector<Name> &targets) {
    if (targets.size() == 1)
      out_ += targets[0].text;
    else
      out_ += '(', names(targets), out_ += ')';
  }

  void bare(const Expr &e) {
    switch (e.kind) {
    case ExprKind::Int:
      // Only hex spells a value whose top bit is set.
      if (e.int_value < 0)
        add("{:#x}", uint64_t(e.int_value));
      else
        add("{}", e.int_value);
      return;
    case ExprKind::Float: {
      std::string s = fmt::format("{}", e.float_value);
      out_ += s.find_first_of(".e") == std::string::npos ? s + ".0" : s;
      return;
    }
    case ExprKind::Bool: out_ += e.int_value ? "true" : "false"; return;
    case ExprKind::String: out_ += quote_string(e.text); return;
    case ExprKind::None: out_ += "None"; return;
    case ExprKind::Name: head(e); return;
    case ExprKind::Unary:
      out_ += spelling(e.unary);
      expr(*e.operands[0], kUnary);
      return;
    case ExprKind::Binary: {
      expr(*e.operands[0], level(e.binary) + (is_comparison(e.binary) ? 1 : 0));
      add(" {} ", spelling(e.binary));
      expr(*e.operands[1], level(e.binary) + 1);
      return;
    }
    case ExprKind::Ternary:
      expr(*e.operands[0], kBinary);
      out_ += " ? ";
      expr(*e.operands[1], kTernary);
      out_ += " : ";
      expr(*e.operands[2], kTernary);
      return;
    case ExprKind::Call:
      if (!e.operands.empty()) expr(*e.operands[0], kPostfix), out_ += '.';
      head(e);
      out_ += '(';
      list(e.args, [&](const Arg &a) { arg(a, kRange); });
      out_ += ')';
      return;
    case ExprKind::Shaped:
      head(e);
      out_ += '[';
      exprs(e.operands);
      out_ += ']';
      return;
    case ExprKind::Index:
      expr(*e.operands[0], kPostfix);
      out_ += '[';
      for (size_t i = 1; i < e.operands.size(); i++) {
        if (i > 1) out_ += ", ";
        expr(*e.operands[i]);
      }
      out_ += ']';
      return;
    case ExprKind::Member:
      expr(*e.operands[0], kPostfix);
      add(".{}", e.text);
      return;
    case ExprKind::Range:
      if (e.operands[0]) expr(*e.operands[0], kTernary), out_ += ' ';
      out_ += e.has_length ? ":+" : ":";
      if (e.operands[1]) out_ += ' ', expr(*e.operands[1], kTernary);
      return;
    case ExprKind::Tuple:
      out_ += '(';
      exprs(e.operands);
      out_ += ')';
      return;
    case ExprKind::Record:
      out_ += '{';
      list(e.args, [&](const Arg &a) {
        add("{}: ", a.name->text);
        expr(*a.value, kTernary);
      });
      out_ += '}';
      return;
    case ExprKind::List:
      out_ += '[';
      exprs(e.operands);
      out_ += ']';
      return;
    }
  }
  // name<generics> of a call: no space before `<`, or it would compare.
  void head(const Expr &e) {
    out_ += e.text;
    generics(e.generics);
  }
  void generics(const std::vector<Arg> &args) {
    if (args.empty()) return;
    out_ += '<';
    list(args, [&](const Arg &a) { arg(a, kAdditive); });
    out_ += '>';
  }
  void generic_params(const std::vector<GenericParam> &params) {
    if (params.empty()) return;
    out_ += '<';
    list(params, [&](const GenericParam &g) {
      out_ += g.name.text;
      if (g.type) out_ += ": ", type(*g.type);
      if (g.default_value) out_ += " = ", expr(*g.default_value, kAdditive);
    });
    out_ += '>';
  }
  void field(const Field &f) {
    add("{}: {}[", f.name.text, f.element.text);
    exprs(f.dims);
    out_ += ']';
  }

  // ---- statements
  void line_start() { out_.append(size_t(indent_) * 4, ' '); }
  void block(const std::vector<StmtPtr> &body) {
    if (body.empty()) {
      out_ += "{ }";
      return;
    }
    out_ += "{\n";
    indent_++;
    for (const StmtPtr &s : body) {
      line_start();
      statement(*s);
      out_ += '\n';
    }
    indent_--;
    line_start();
    out_ += '}';
  }

  void annotation(const Annotation &a, bool list_it) {
    add("@{}", a.name.text);
    if (!a.args.empty() || list_it) {
      out_ += '(';
      list(a.args, [&](const Arg &item) { arg(item, kRange); });
      out_ += ')';
    }
  }

  void statement(const Stmt &s) {
    // An empty list keeps a parenthesis that follows from being read as the annotation's.
    bool list_it = s.kind == StmtKind::Expr || s.kind == StmtKind::Assign;
    for (const Annotation &a : s.annotations) annotation(a, list_it), out_ += ' ';
    switch (s.kind) {
    case StmtKind::Let:
      out_ += s.is_var ? "var " : "let ";
      pattern(s.targets);
      if (s.type) out_ += ": ", type(*s.type);
      if (s.value) out_ += " = ", expr(*s.value);
      out_ += ';';
      return;
    case StmtKind::Assign:
      expr(*s.target);
      add(" {}= ", s.assign_op ? spelling(*s.assign_op) : "");
      expr(*s.value);
      out_ += ';';
      return;
    case StmtKind::Expr:
      expr(*s.value);
      out_ += ';';
      return;
    case StmtKind::If: if_statement(s); return;
    case StmtKind::For:
      add("{}for {} in ", s.unrolled ? "unroll " : "", s.targets[0].text);
      expr(*s.value);
      if (s.step) out_ += " step ", expr(*s.step);
      out_ += ' ';
      block(s.body);
      return;
    case StmtKind::While:
      out_ += "while ";
      expr(*s.value);
      out_ += ' ';
      block(s.body);
      return;
    case StmtKind::Return:
      out_ += "return";
      if (s.value) out_ += ' ', expr(*s.value);
      out_ += ';';
      return;
    case StmtKind::Launch:
      out_ += "launch ";
      expr(*s.value);
      out_ += ';';
      return;
    case StmtKind::Parallel:
      out_ += "parallel ";
      block(s.body);
      return;
    case StmtKind::Block: block(s.body); return;
    case StmtKind::Ring:
      add("ring {}: {{ ", s.targets[0].text);
      list(s.fields, [&](const Field &f) { field(f); });
      out_ += " }";
      if (s.value) out_ += " stages ", expr(*s.value, kTernary);
      out_ += ';';
      return;
    case StmtKind::Role:
      add("role {} ", s.targets[0].text);
      if (s.value) out_ += "warps ", expr(*s.value, kTernary), out_ += ' ';
      block(s.body);
      return;
    }
  }

  void if_statement(const Stmt &s) {
    out_ += "if ";
    expr(*s.value);
    out_ += ' ';
    block(s.body);
    if (!s.has_else) return;
    out_ += " else ";
    if (s.else_body.size() == 1 && s.else_body[0]->kind == StmtKind::If)
      if_statement(*s.else_body[0]);
    else
      block(s.else_body);
  }

  // ---- declarations
  void results(const std::vector<ResultDecl> &r) {
    if (r.empty()) return;
    bool plain = r.size() == 1 && !r[0].name;
    out_ += plain ? " -> " : " -> (";
    list(r, [&](const ResultDecl &item) {
      if (item.name) add("{}: ", item.name->text);
      type(*item.type);
    });
    if (!plain) out_ += ')';
  }

  void check(const Check &c) {
    add("{} {} {{\n", c.is_bench ? "bench" : "verify", c.kernel.text);
    indent_++;
    for (const StmtPtr &s : c.lets) line_start(), statement(*s), out_ += '\n';
    for (const Binding &b : c.bindings) {
      line_start();
      pattern(b.targets);
      out_ += " = ";
      expr(*b.value);
      out_ += ";\n";
    }
    for (const Input &i : c.inputs) {
      line_start();
      add("input {} = ", i.name.text);
      expr(*i.value);
      out_ += ";\n";
    }
    for (const Case &item : c.cases) {
      line_start();
      add("case {}{}", item.name.text, item.settings.empty() ? "" : ": ");
      settings(item.settings);
      out_ += item.gpu_only ? " on gpu;\n" : ";\n";
    }
    for (const Tolerance &t : c.tolerances) {
      line_start();
      out_ += "tolerance ";
      names(t.outputs);
      out_ += ": ";
      list(t.items, [&](const ToleranceItem &i) {
        out_ += i.measure.text;
        if (i.value) out_ += ' ', expr(*i.value);
      });
      out_ += ";\n";
    }
    for (const Locate &l : c.locates) {
      line_start();
      out_ += "locate ";
      names(l.outputs);
      out_ += ": ";
      settings(l.items);
      out_ += ";\n";
    }
    indent_--;
    out_ += "}\n";
  }
  void settings(const std::vector<CaseSetting> &items) {
    list(items, [&](const CaseSetting &s) {
      add("{} = ", s.name.text);
      expr(*s.value);
    });
  }

  std::string out_;
  int64_t indent_ = 0;
};

template <typename Node> std::string printed(const Node &node, void (Printer::*method)(const Node &)) {
  Printer p;
  (p.*method)(node);
  return p.take();
}

} // namespace

std::string print(const ast::File &file) { return printed(file, &Printer::file); }
std::string print(const ast::Function &function) { return printed(function, &Printer::function); }
std::string print(const ast::Type &type) { return printed(type, &Printer::type); }
std::string print(const ast::Expr &expr) {
  Printer p;
  p.expr(expr);
  return p.take();
}

} // namespace tkc
