#include "syntax/walk_ast.h"

namespace tkc::ast {

void walk(const Expr &e, const std::function<void(const Expr &)> &f) {
  f(e);
  for (const ExprPtr &x : e.operands)
    if (x) walk(*x, f);
  for (const Arg &a : e.generics) walk(*a.value, f);
  for (const Arg &a : e.args) walk(*a.value, f);
}

void walk(const std::vector<StmtPtr> &body, const std::function<void(const Expr &)> &f) {
  for (const StmtPtr &s : body) {
    for (const ExprPtr *e : {&s->target, &s->value, &s->step})
      if (*e) walk(**e, f);
    for (const Field &field : s->fields)
      for (const ExprPtr &e : field.dims) walk(*e, f);
    walk(s->body, f);
    walk(s->else_body, f);
  }
}

bool mentions(const std::vector<StmtPtr> &body, const std::string &name) {
  bool found = false;
  walk(body, [&](const Expr &e) { found |= (e.kind == ExprKind::Name || e.kind == ExprKind::Call) && e.text == name; });
  return found;
}

} // namespace tkc::ast
