#include "syntax/build_ast.h"
#include "TkParser.h"
#include "support/check.h"
#include "support/diag_kinds.h"
#include "syntax/literals.h"
#include "syntax/parse.h"
#include <algorithm>
#include <unordered_set>

namespace tkc {
namespace {

using namespace ast;
using P = tkgrammar::TkParser;
using antlr4::ParserRuleContext;
using antlr4::Token;
using antlr4::tree::ParseTree;
using antlr4::tree::TerminalNode;

// An expression and the height of its tree, which is limited: later stages recurse.
struct Built {
  ExprPtr expr;
  int64_t height = 1;
};

BinaryOp binary_op(size_t token) {
  switch (token) {
  case P::OR: return BinaryOp::Or;
  case P::AND: return BinaryOp::And;
  case P::BIT_OR:
  case P::OR_ASSIGN: return BinaryOp::BitOr;
  case P::BIT_XOR:
  case P::XOR_ASSIGN: return BinaryOp::BitXor;
  case P::BIT_AND:
  case P::AND_ASSIGN: return BinaryOp::BitAnd;
  case P::EQ: return BinaryOp::Eq;
  case P::NE: return BinaryOp::Ne;
  case P::LT: return BinaryOp::Lt;
  case P::GT: return BinaryOp::Gt;
  case P::LE: return BinaryOp::Le;
  case P::GE: return BinaryOp::Ge;
  case P::SHL: return BinaryOp::Shl;
  case P::SHR: return BinaryOp::Shr;
  case P::PLUS:
  case P::ADD_ASSIGN: return BinaryOp::Add;
  case P::MINUS:
  case P::SUB_ASSIGN: return BinaryOp::Sub;
  case P::STAR:
  case P::MUL_ASSIGN: return BinaryOp::Mul;
  case P::SLASH:
  case P::DIV_ASSIGN: return BinaryOp::Div;
  case P::PERCENT:
  case P::REM_ASSIGN: return BinaryOp::Rem;
  default: TKC_UNREACHABLE("token {} is no binary operator", token);
  }
}

UnaryOp unary_op(size_t token) {
  return token == P::MINUS ? UnaryOp::Neg : token == P::NOT ? UnaryOp::Not : UnaryOp::BitNot;
}

class Builder {
public:
  Builder(int32_t file_id, Diagnostics &diagnostics)
      : file_(file_id), text_(diagnostics.sources().file(file_id).text()), diagnostics_(diagnostics) {}

  std::unique_ptr<File> file(P::FileContext *c, bool broken) {
    if (broken) mark_errors(c);
    auto out = std::make_unique<File>();
    out->id = file_;
    for (P::DeclarationContext *d : c->declaration()) declaration(*out, d);
    return out;
  }

private:
  // ---- positions, names, errors
  SourceLoc loc(const Token *first, const Token *last) const {
    return {file_, int32_t(first->getStartIndex()), int32_t(last->getStopIndex()) + 1};
  }
  SourceLoc loc(const Token *t) const { return loc(t, t); }
  SourceLoc loc(ParserRuleContext *c) const { return loc(c->getStart(), c->getStop()); }
  std::string text(SourceLoc l) const { return text_.substr(size_t(l.begin), size_t(l.end - l.begin)); }
  Name name(Token *t) const { return {text(loc(t)), loc(t)}; }
  Name name(ParserRuleContext *c) const { return name(c->getStart()); }
  static Token *token(ParseTree *t) {
    auto *node = dynamic_cast<TerminalNode *>(t);
    return node ? node->getSymbol() : nullptr;
  }
  template <typename... A> void error(SourceLoc l, std::string_view pattern, const A &...args) {
    diagnostics_.report(l, DiagKind::syntax, fmt::format(fmt::runtime(pattern), args...));
  }

  // Finds every context that holds a syntax error, its ancestors included. The tree is at most a few thousand deep.
  bool mark_errors(ParserRuleContext *c) {
    bool bad = c->exception != nullptr || !c->getStop();
    for (ParseTree *child : c->children) {
      if (auto *rule = dynamic_cast<ParserRuleContext *>(child))
        bad |= mark_errors(rule);
      else if (dynamic_cast<antlr4::tree::ErrorNode *>(child))
        bad = true;
    }
    if (bad) bad_.insert(c);
    return bad;
  }
  bool bad(ParserRuleContext *c) const { return !c || (!bad_.empty() && bad_.count(c)); }

  // ---- expressions
  static ExprPtr make(ExprKind kind, SourceLoc l) {
    auto e = std::make_unique<Expr>();
    e->kind = kind;
    e->loc = l;
    return e;
  }
  // Adds an operand, growing the height.
  static void push(Built &parent, Built child) {
    parent.height = std::max(parent.height, child.height + 1);
    parent.expr->operands.push_back(std::move(child.expr));
  }
  Built checked(Built b) {
    if (b.height <= kMaxExpressionHeight) return b;
    if (!too_deep_) diagnostics_.report(b.expr->loc, DiagKind::expression_too_deep, kMaxExpressionHeight);
    too_deep_ = true;
    return {make(ExprKind::Int, b.expr->loc), 1};
  }

  Built expr_h(P::ExprContext *c) {
    auto parts = c->ternary();
    if (parts.size() == 1) return ternary(parts[0]);
    Built out{make(ExprKind::Range, loc(c))};
    out.expr->has_length = c->COLON_PLUS() != nullptr;
    for (P::TernaryContext *t : parts) push(out, ternary(t));
    return checked(std::move(out));
  }
  ExprPtr expr(P::ExprContext *c) { return expr_h(c).expr; }

  Built ternary(P::TernaryContext *c) {
    if (c->children.size() == 1) return binary(c->binary());
    Built out{make(ExprKind::Ternary, loc(c))};
    push(out, binary(c->binary()));
    for (P::TernaryContext *t : c->ternary()) push(out, ternary(t));
    return checked(std::move(out));
  }

  // `c` holds operand (operator operand)*: operator precedence with two stacks, so that a long chain takes no
  // recursion.
  Built binary(ParserRuleContext *c) {
    std::vector<ParseTree *> &items = c->children;
    Built first = operand(static_cast<P::OperandContext *>(items[0]));
    if (items.size() == 1) return first;
    std::vector<Built> values;
    std::vector<BinaryOp> ops;
    values.push_back(std::move(first));
    auto reduce = [&] {
      Built right = std::move(values.back());
      values.pop_back();
      Built left = std::move(values.back());
      SourceLoc whole = {file_, left.expr->loc.begin, right.expr->loc.end};
      Built node{make(ExprKind::Binary, whole)};
      node.expr->binary = ops.back();
      ops.pop_back();
      push(node, std::move(left));
      push(node, std::move(right));
      values.back() = checked(std::move(node));
    };
    for (size_t i = 1; i + 1 < items.size(); i += 2) {
      Token *t = token(items[i]);
      BinaryOp op = binary_op(t->getType());
      while (!ops.empty() && precedence(ops.back()) >= precedence(op)) {
        if (is_comparison(op) && precedence(ops.back()) == precedence(op))
          error(loc(t), op == BinaryOp::Gt && ops.back() == BinaryOp::Lt
                            ? "comparisons do not chain; generic arguments are written `name<..>(..)`, without a space"
                            : "comparisons do not chain; join two with `&&`");
        reduce();
      }
      ops.push_back(op);
      values.push_back(operand(static_cast<P::OperandContext *>(items[i + 1])));
    }
    while (!ops.empty()) reduce();
    return std::move(values[0]);
  }

  Built operand(P::OperandContext *c) {
    size_t at = 0;
    while (token(c->children[at])) at++;
    size_t prefixes = at;
    auto *head = static_cast<P::PrimaryContext *>(c->children[at++]);
    bool negated = prefixes > 0 && token(c->children[prefixes - 1])->getType() == P::MINUS;
    Built out = primary(head, negated);
    bool grouped = head->getStart()->getType() == P::LPAREN;
    for (; at < c->children.size(); at++) {
      out = checked(suffix(std::move(out), static_cast<P::SuffixContext *>(c->children[at]), grouped));
      grouped = false;
    }
    for (size_t i = prefixes; i-- > 0;) {
      Token *t = token(c->children[i]);
      Built node{make(ExprKind::Unary, {file_, int32_t(t->getStartIndex()), out.expr->loc.end})};
      node.expr->unary = unary_op(t->getType());
      push(node, std::move(out));
      out = checked(std::move(node));
    }
    return out;
  }

  Built primary(P::PrimaryContext *c, bool negated) {
    SourceLoc l = loc(c);
    switch (c->getStart()->getType()) {
    case P::INT: return {integer(l, negated)};
    case P::FLOAT: return {floating(l)};
    case P::STRING: {
      ExprPtr e = make(ExprKind::String, l);
      e->text = string(l);
      return {std::move(e)};
    }
    case P::TRUE:
    case P::FALSE: {
      ExprPtr e = make(ExprKind::Bool, l);
      e->int_value = c->getStart()->getType() == P::TRUE;
      return {std::move(e)};
    }
    case P::NONE:
      error(l, "`None` stands only in an index, where it adds a dim of size 1");
      return {make(ExprKind::None, l)};
    case P::LPAREN: {
      auto parts = c->exprs()->expr();
      if (parts.size() == 1) {
        Built inner = expr_h(parts[0]);
        inner.expr->loc = l; // a parenthesised expression's text has its parentheses
        return inner;
      }
      Built out{make(ExprKind::Tuple, l)};
      for (P::ExprContext *e : parts) push(out, expr_h(e));
      return checked(std::move(out));
    }
    case P::LBRACKET: {
      Built out{make(ExprKind::List, l)};
      if (c->exprs())
        for (P::ExprContext *e : c->exprs()->expr()) push(out, expr_h(e));
      return checked(std::move(out));
    }
    default: {
      Built out{make(ExprKind::Name, l)};
      out.expr->name_loc = loc(c->name());
      out.expr->text = text(out.expr->name_loc);
      generics(out, c->genericArgs());
      return checked(std::move(out));
    }
    }
  }

  void generics(Built &out, P::GenericArgsContext *c) {
    if (!c) return;
    if (c->recordType()) {
      P::NameContext *record = c->recordType()->name();
      Built type{make(ExprKind::Name, {file_, loc(record).begin, loc(c).end - 1})};
      type.expr->name_loc = loc(record);
      type.expr->text = text(type.expr->name_loc);
      for (P::GenericArgContext *a : c->recordType()->genericArg()) generic(type, a);
      out.height = std::max(out.height, type.height + 1);
      out.expr->generics.push_back({std::nullopt, std::move(type.expr)});
    }
    for (P::GenericArgContext *a : c->genericArg()) generic(out, a);
  }
  void generic(Built &out, P::GenericArgContext *a) {
    auto parts = a->additive();
    Built value = binary(parts.back());
    out.height = std::max(out.height, value.height + 1);
    out.expr->generics.push_back({parts.size() > 1 ? arg_name(parts[0]) : std::nullopt, std::move(value.expr)});
  }

  // The left side of `name = value` in an argument list: the grammar takes any expression there to decide on one token.
  std::optional<Name> arg_name(ParserRuleContext *c) {
    Token *t = c->getStart();
    bool word = t == c->getStop() && (t->getType() == P::ID || (t->getType() >= P::GRID && t->getType() <= P::SHARED));
    if (word) return name(t);
    error(loc(c), "the left side of `=` in an argument must be a name");
    return std::nullopt;
  }

  Built suffix(Built base, P::SuffixContext *c, bool grouped) {
    SourceLoc whole = {file_, base.expr->loc.begin, loc(c).end};
    Expr &e = *base.expr;
    switch (c->getStart()->getType()) {
    case P::DOT: {
      Built out{make(ExprKind::Member, whole)};
      out.expr->name_loc = loc(c->name());
      out.expr->text = text(out.expr->name_loc);
      push(out, std::move(base));
      generics(out, c->genericArgs());
      return out;
    }
    case P::LPAREN:
      if (grouped || (e.kind != ExprKind::Name && e.kind != ExprKind::Member)) {
        error(e.loc, "only a name can be called");
        return base;
      }
      e.kind = ExprKind::Call; // the receiver of a Member stays operands[0]
      e.loc = whole;
      if (c->args()) {
        for (P::ArgContext *a : c->args()->arg()) {
          Built value = arg_value(a);
          base.height = std::max(base.height, value.height + 1);
          e.args.push_back(arg(a, std::move(value.expr)));
        }
      }
      return base;
    default: {
      bool shaped = !e.generics.empty() && e.kind == ExprKind::Name;
      if (!shaped && !e.generics.empty() && e.kind == ExprKind::Member)
        error(e.loc, "dims in `[ ]` after `< >` belong to a plain name, as in `zeros<f32>[N]`");
      Built out;
      if (shaped) {
        e.kind = ExprKind::Shaped;
        e.loc = whole;
        out = std::move(base);
      } else {
        out.expr = make(ExprKind::Index, whole);
        push(out, std::move(base));
      }
      for (P::ItemContext *i : c->item()) {
        Built value = item(i);
        if (shaped && (value.expr->kind == ExprKind::None || value.expr->kind == ExprKind::Range))
          error(value.expr->loc, "a dim of `{}` must be a size", out.expr->text);
        push(out, std::move(value));
      }
      return out;
    }
    }
  }

  Built arg_value(P::ArgContext *a) { return a->record() ? record(a->record()) : expr_h(a->expr().back()); }
  Built record(P::RecordContext *c) {
    Built out{make(ExprKind::Record, loc(c))};
    for (P::FieldValueContext *f : c->fieldValue()) {
      Built value = ternary(f->ternary());
      out.height = std::max(out.height, value.height + 1);
      out.expr->args.push_back({name(f->name()), std::move(value.expr)});
    }
    return checked(std::move(out));
  }
  Arg arg(P::ArgContext *a, ExprPtr value) {
    auto parts = a->expr();
    return {parts.size() > 1 ? arg_name(parts[0]) : std::nullopt, std::move(value)};
  }

  Built item(P::ItemContext *c) {
    if (c->children.size() == 1 && c->getStart() == c->getStop() && c->getStart()->getType() == P::NONE)
      return {make(ExprKind::None, loc(c))};
    if (c->children.size() == 1 && !token(c->children[0]))
      return ternary(static_cast<P::TernaryContext *>(c->children[0]));
    Built out{make(ExprKind::Range, loc(c))};
    out.expr->has_length = c->COLON_PLUS() != nullptr;
    out.expr->operands.resize(2);
    size_t side = 0;
    for (ParseTree *child : c->children) {
      if (token(child)) {
        side = 1;
        continue;
      }
      Built end = ternary(static_cast<P::TernaryContext *>(child));
      out.height = std::max(out.height, end.height + 1);
      out.expr->operands[side] = std::move(end.expr);
    }
    return checked(std::move(out));
  }

  // ---- literals
  ExprPtr integer(SourceLoc l, bool negated) {
    ExprPtr e = make(ExprKind::Int, l);
    bool well_formed = true; // a malformed number was reported with the tokens
    std::optional<int64_t> value = decode_integer(text(l), negated, well_formed);
    if (!value && well_formed) diagnostics_.report(l, DiagKind::integer_literal, text(l));
    e->int_value = value.value_or(0);
    return e;
  }
  ExprPtr floating(SourceLoc l) {
    ExprPtr e = make(ExprKind::Float, l);
    std::optional<double> value = decode_float(text(l));
    if (!value) error(l, "float literal `{}` is outside the range of f64", text(l));
    e->float_value = value.value_or(0);
    return e;
  }
  std::string string(SourceLoc l) {
    size_t bad_escape = 0;
    std::string out = decode_string(text(l), bad_escape);
    if (bad_escape == std::string::npos) return out;
    SourceLoc at = {file_, l.begin + int32_t(bad_escape), l.begin + int32_t(bad_escape) + 2};
    error(at, "unknown escape `{}`; known are \\n \\t \\r \\0 \\\\ \\\"", text(at));
    return out;
  }

  // ---- types
  TypePtr type(P::TypeContext *c) {
    auto out = std::make_unique<Type>();
    out->loc = loc(c);
    if (c->typeName()) {
      out->name = name(c->typeName());
      return out;
    }
    out->kind = c->TENSOR() ? TypeKind::Tensor : c->TILE() ? TypeKind::Tile : TypeKind::Shared;
    out->optional = c->QUESTION() != nullptr;
    out->any_strides = c->STRIDES() != nullptr;
    if (!c->name() && !c->recordType()) {
      std::string word = text(loc(c->getStart()));
      error(out->loc, "`{}` needs an element type and dims, as in `{}<f32>[N]`", word, word);
      return out;
    }
    if (out->any_strides && out->kind != TypeKind::Tensor)
      error(loc(c->STRIDES()->getSymbol()), "only a tensor has strides");
    if (P::RecordTypeContext *r = c->recordType()) {
      out->element = name(r->name());
      Built args{make(ExprKind::Name, loc(r))};
      for (P::GenericArgContext *a : r->genericArg()) generic(args, a);
      out->element_args = std::move(args.expr->generics);
    } else {
      out->element = name(c->name());
    }
    if (c->exprs())
      for (P::ExprContext *e : c->exprs()->expr()) out->dims.push_back(expr(e));
    return out;
  }

  // ---- statements
  std::vector<Arg> args(P::ArgsContext *c) {
    std::vector<Arg> out;
    if (!c) return out;
    for (P::ArgContext *a : c->arg()) out.push_back(arg(a, arg_value(a).expr));
    return out;
  }
  std::vector<Name> names(P::NamesContext *c) {
    std::vector<Name> out;
    for (P::NameContext *n : c->name()) out.push_back(name(n));
    return out;
  }
  std::vector<StmtPtr> block(P::BlockContext *c) {
    std::vector<StmtPtr> out;
    for (P::StatementContext *s : c->statement())
      if (!bad(s)) out.push_back(statement(s));
    return out;
  }

  StmtPtr statement(P::StatementContext *c) {
    ParserRuleContext *core = static_cast<ParserRuleContext *>(c->children.back());
    StmtPtr out;
    switch (core->getRuleIndex()) {
    case P::RuleLetStmt: out = let(static_cast<P::LetStmtContext *>(core)); break;
    case P::RuleRingStmt: out = ring(static_cast<P::RingStmtContext *>(core)); break;
    case P::RuleRoleStmt: {
      auto *r = static_cast<P::RoleStmtContext *>(core);
      out = make_statement(StmtKind::Role, core);
      out->targets.push_back(name(r->name()));
      if (r->ternary()) out->value = ternary(r->ternary()).expr;
      out->body = block(r->block());
      break;
    }
    case P::RuleIfStmt: out = if_statement(static_cast<P::IfStmtContext *>(core)); break;
    case P::RuleForStmt: out = for_statement(static_cast<P::ForStmtContext *>(core)); break;
    case P::RuleWhileStmt: {
      auto *w = static_cast<P::WhileStmtContext *>(core);
      out = make_statement(StmtKind::While, core);
      out->value = expr(w->expr());
      out->body = block(w->block());
      break;
    }
    case P::RuleReturnStmt: {
      auto *r = static_cast<P::ReturnStmtContext *>(core);
      out = make_statement(StmtKind::Return, core);
      if (r->expr()) out->value = expr(r->expr());
      break;
    }
    case P::RuleLaunchStmt:
      out = make_statement(StmtKind::Launch, core);
      out->value = expr(static_cast<P::LaunchStmtContext *>(core)->expr());
      if (out->value->kind != ExprKind::Call || !out->value->operands.empty())
        error(out->value->loc, "a launch names a kernel and its arguments, as in `launch gemm(a, b, c)`");
      break;
    case P::RuleParallelStmt:
      out = make_statement(StmtKind::Parallel, core);
      out->body = block(static_cast<P::ParallelStmtContext *>(core)->block());
      break;
    case P::RuleBlock:
      out = make_statement(StmtKind::Block, core);
      out->body = block(static_cast<P::BlockContext *>(core));
      break;
    default: out = simple(static_cast<P::SimpleStmtContext *>(core));
    }
    annotations(c->annotation(), out->annotations);
    out->loc = loc(c);
    return out;
  }

  StmtPtr make_statement(StmtKind kind, ParserRuleContext *c) {
    auto s = std::make_unique<Stmt>();
    s->kind = kind;
    s->loc = loc(c);
    return s;
  }

  StmtPtr let(P::LetStmtContext *c) {
    StmtPtr out = make_statement(StmtKind::Let, c);
    out->is_var = c->VAR() != nullptr;
    out->targets = c->names() ? names(c->names()) : std::vector<Name>{name(c->name())};
    if (c->type()) out->type = type(c->type());
    if (c->expr())
      out->value = expr(c->expr());
    else if (!out->is_var)
      error(out->loc, "`let` needs a value; only a `var` may get it later");
    else if (c->names())
      error(out->loc, "several names need a value");
    return out;
  }

  std::vector<Field> fields(const std::vector<P::FieldContext *> &list) {
    std::vector<Field> out;
    for (P::FieldContext *f : list) {
      Field field{name(f->name(0)), name(f->name(1)), {}};
      if (f->exprs())
        for (P::ExprContext *e : f->exprs()->expr()) field.dims.push_back(expr(e));
      out.push_back(std::move(field));
    }
    return out;
  }
  StmtPtr ring(P::RingStmtContext *c) {
    StmtPtr out = make_statement(StmtKind::Ring, c);
    out->targets.push_back(name(c->name()));
    out->fields = fields(c->field());
    if (c->ternary()) out->value = ternary(c->ternary()).expr;
    return out;
  }

  StmtPtr if_statement(P::IfStmtContext *c) {
    StmtPtr out = make_statement(StmtKind::If, c);
    auto blocks = c->block();
    out->value = expr(c->expr());
    out->body = block(blocks[0]);
    out->has_else = c->ELSE() != nullptr;
    if (c->ifStmt())
      out->else_body.push_back(if_statement(c->ifStmt()));
    else if (out->has_else)
      out->else_body = block(blocks[1]);
    return out;
  }

  StmtPtr for_statement(P::ForStmtContext *c) {
    StmtPtr out = make_statement(StmtKind::For, c);
    auto parts = c->expr();
    out->unrolled = c->UNROLL() != nullptr;
    out->targets.push_back(name(c->name()));
    out->value = expr(parts[0]);
    if (out->value->kind != ExprKind::Range) error(out->value->loc, "`for` runs over a range, as in `0 : n`");
    if (parts.size() > 1) out->step = expr(parts[1]);
    out->body = block(c->block());
    return out;
  }

  StmtPtr simple(P::SimpleStmtContext *c) {
    auto parts = c->expr();
    bool assigns = parts.size() > 1;
    StmtPtr out = make_statement(assigns ? StmtKind::Assign : StmtKind::Expr, c);
    out->value = expr(parts.back());
    if (!assigns) return out;
    out->target = expr(parts[0]);
    Token *op = c->assignOp()->getStart();
    if (op->getType() != P::ASSIGN) out->assign_op = binary_op(op->getType());
    const Expr &target = *out->target;
    auto is_name = [](const ExprPtr &e) { return e->kind == ExprKind::Name; };
    bool tuple = target.kind == ExprKind::Tuple && std::all_of(target.operands.begin(), target.operands.end(), is_name);
    if (target.kind != ExprKind::Name && target.kind != ExprKind::Index && !tuple)
      error(target.loc, "only a name, an index expression or a tuple of names can be assigned");
    else if (tuple && out->assign_op)
      error(loc(op), "a tuple takes only `=`");
    return out;
  }

  // ---- declarations
  void declaration(File &out, P::DeclarationContext *c) {
    if (c->children.empty()) return;
    auto *core = dynamic_cast<ParserRuleContext *>(c->children[0]);
    if (!core) return;
    switch (core->getRuleIndex()) {
    case P::RuleFunction: return function(out, static_cast<P::FunctionContext *>(core));
    case P::RuleKernel: return kernel(out, static_cast<P::KernelContext *>(core));
    case P::RuleCheck: return check(out, static_cast<P::CheckContext *>(core));
    default: break;
    }
    if (bad(core)) return;
    if (auto *i = dynamic_cast<P::ImportDeclContext *>(core)) {
      if (!i->STRING()) return out.imports.push_back({name(i->name()), false});
      SourceLoc l = loc(i->STRING()->getSymbol());
      out.imports.push_back({{string(l), l}, true});
    } else if (auto *k = dynamic_cast<P::ConstDeclContext *>(core)) {
      out.consts.push_back({name(k->name()), expr(k->expr())});
    } else if (auto *e = dynamic_cast<P::EnumDeclContext *>(core)) {
      Enum node;
      for (P::NameContext *n : e->name()) node.values.push_back(name(n));
      node.name = node.values[0];
      node.values.erase(node.values.begin());
      if (node.values.empty()) error(node.name.loc, "enum `{}` has no value", node.name.text);
      out.enums.push_back(std::move(node));
    } else if (auto *r = dynamic_cast<P::RecordDeclContext *>(core)) {
      Record node;
      node.name = name(r->name());
      if (r->genericParams()) node.generics = generic_params(r->genericParams());
      node.fields = fields(r->field());
      if (node.fields.empty()) error(node.name.loc, "record `{}` has no field", node.name.text);
      out.records.push_back(std::move(node));
    }
  }

  std::vector<GenericParam> generic_params(P::GenericParamsContext *c) {
    std::vector<GenericParam> out;
    for (P::GenericParamContext *g : c->genericParam()) {
      GenericParam param{name(g->name()), g->type() ? type(g->type()) : nullptr, nullptr};
      if (g->additive()) param.default_value = binary(g->additive()).expr;
      out.push_back(std::move(param));
    }
    return out;
  }

  // What functions and kernels share. False if the header has a syntax error.
  template <typename Context> bool signature(Function &f, Context *c) {
    if (c->exception || bad(c->name()) || (c->genericParams() && bad(c->genericParams())) ||
        (c->params() && bad(c->params())))
      return false;
    f.loc = loc(c);
    f.name = name(c->name());
    if (c->genericParams()) f.generics = generic_params(c->genericParams());
    if (c->params()) params(f, c->params());
    return true;
  }

  void params(Function &f, P::ParamsContext *c) {
    size_t group = 0; // first of the names that wait for the type behind the last of them
    for (P::ParamContext *p : c->param()) {
      Param param;
      param.name = name(p->name());
      if (p->expr()) param.default_value = expr(p->expr());
      param.mode = p->INOUT() ? ParamMode::InOut : p->OUT() ? ParamMode::Out : ParamMode::In;
      if (p->type()) param.type = type(p->type());
      f.params.push_back(param);
      if (!p->type() && !p->expr()) continue;
      if (p->type()) {
        for (size_t i = group; i + 1 < f.params.size(); i++) {
          Name own = f.params[i].name;
          f.params[i] = param;
          f.params[i].name = own;
        }
      }
      group = f.params.size();
    }
    if (f.kind == FunctionKind::Fn) return;
    for (const Param &p : f.params)
      if (!p.type) error(p.name.loc, "parameter `{}` of a {} needs a type", p.name.text, spelling(f.kind));
  }

  ResultDecl result(P::ResultContext *c) {
    auto types = c->type();
    if (!c->COLON()) return {std::nullopt, type(types[0])};
    // The name before the colon was parsed as a type, or is a mode word.
    if (c->getStart() != (c->OUT() || c->INOUT() ? c->getStart() : types[0]->getStop()))
      error(loc(types[0]), "a result is written `name: type`");
    return {name(c->getStart()), type(types.back())};
  }

  void function(File &out, P::FunctionContext *c) {
    Function f;
    f.kind = c->REFERENCE() ? FunctionKind::Reference : FunctionKind::Fn;
    if (c->results() && bad(c->results())) return;
    if (c->expr() ? bad(c) : !c->block()) return;
    if (!signature(f, c)) return;
    if (P::ResultsContext *r = c->results()) {
      if (r->type()) f.results.push_back({std::nullopt, type(r->type())});
      for (P::ResultContext *item : r->result()) f.results.push_back(result(item));
    }
    if (c->expr()) {
      f.body.push_back(make_statement(StmtKind::Return, c->expr()));
      f.body.back()->value = expr(c->expr());
    } else {
      f.body = block(c->block());
    }
    out.functions.push_back(std::move(f));
  }

  std::vector<ExprPtr> exprs(P::ExprsContext *c) {
    std::vector<ExprPtr> out;
    if (c)
      for (P::ExprContext *e : c->expr()) out.push_back(expr(e));
    return out;
  }

  void annotations(const std::vector<P::AnnotationContext *> &from, std::vector<Annotation> &to) {
    for (P::AnnotationContext *a : from) to.push_back({name(a->name()), args(a->args())});
  }

  void kernel(File &out, P::KernelContext *c) {
    Function f;
    f.kind = c->PROGRAM() ? FunctionKind::Program : FunctionKind::Kernel;
    for (P::ClauseContext *clause : c->clause())
      if (bad(clause)) return;
    if (!c->block() || !signature(f, c)) return;
    auto once = [&](bool seen, P::ClauseContext *k) {
      if (seen) error(loc(k->getStart()), "`{}` is given twice", text(loc(k->getStart())));
    };
    for (P::ClauseContext *k : c->clause()) {
      if (c->PROGRAM() && !k->WHERE())
        error(loc(k->getStart()), "a program has no `{}`: its kernels have", text(loc(k->getStart())));
      if (k->GRID()) {
        once(f.has_grid, k);
        f.has_grid = true;
        f.persistent = k->PERSISTENT() != nullptr;
        f.grid = exprs(k->exprs());
        annotations(k->annotation(), f.annotations);
      } else if (k->ORDER()) {
        once(f.order.has_value(), k);
        f.order = name(k->name());
        f.order_args = exprs(k->exprs());
      } else if (k->WARPS()) {
        once(f.warps != nullptr, k);
        f.warps = ternary(k->ternary(0)).expr;
      } else {
        for (P::TernaryContext *t : k->ternary()) f.facts.push_back(ternary(t).expr);
      }
    }
    f.body = block(c->block());
    out.functions.push_back(std::move(f));
  }

  void check(File &out, P::CheckContext *c) {
    if (c->exception || bad(c->name())) return;
    Check k;
    k.is_bench = c->BENCH() != nullptr;
    k.loc = loc(c);
    k.kernel = name(c->name());
    for (P::CheckItemContext *i : c->checkItem())
      if (!bad(i)) check_item(k, i);
    out.checks.push_back(std::move(k));
  }

  void check_item(Check &out, P::CheckItemContext *c) {
    if (c->letStmt()) return out.lets.push_back(let(c->letStmt()));
    if (P::BindingContext *b = c->binding()) {
      std::vector<Name> targets = b->names() ? names(b->names()) : std::vector<Name>{name(b->bindingName())};
      return out.bindings.push_back({std::move(targets), expr(b->expr())});
    }
    if (c->ASSIGN() && !c->name()) // an output that is called `case`, `input`, `tolerance` or `locate`
      return out.bindings.push_back({{name(c->getStart())}, expr(c->expr())});
    if (c->CASE()) {
      out.cases.push_back({name(c->name()), settings(c->setting()), c->ON() != nullptr});
    } else if (c->INPUT()) {
      out.inputs.push_back({name(c->name()), expr(c->expr())});
    } else if (c->LOCATE()) {
      out.locates.push_back({names(c->names()), settings(c->setting())});
    } else {
      Tolerance item{names(c->names()), {}};
      for (P::MeasureContext *m : c->measure())
        item.items.push_back({name(m->getStart()), m->expr() ? expr(m->expr()) : nullptr});
      out.tolerances.push_back(std::move(item));
    }
  }

  std::vector<CaseSetting> settings(const std::vector<P::SettingContext *> &list) {
    std::vector<CaseSetting> out;
    for (P::SettingContext *s : list) out.push_back({name(s->name()), expr(s->expr())});
    return out;
  }

  int32_t file_;
  const std::string &text_;
  Diagnostics &diagnostics_;
  bool too_deep_ = false; // one report a file
  std::unordered_set<ParserRuleContext *> bad_;
};

} // namespace

std::unique_ptr<File> build_ast(ParserRuleContext *tree, bool broken, int32_t file_id, Diagnostics &diagnostics) {
  return Builder(file_id, diagnostics).file(static_cast<P::FileContext *>(tree), broken);
}

} // namespace tkc
