// Walking the syntax tree: every expression of statements, nested ones included.
#pragma once
#include "syntax/ast.h"
#include <functional>

namespace tkc::ast {

void walk(const Expr &e, const std::function<void(const Expr &)> &f);
void walk(const std::vector<StmtPtr> &body, const std::function<void(const Expr &)> &f);

// Whether a name occurs in a body, as a value or as what is assigned or called.
bool mentions(const std::vector<StmtPtr> &body, const std::string &name);

} // namespace tkc::ast
