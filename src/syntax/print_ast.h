// Syntax tree -> source text, in one canonical layout: parsing the text gives the same tree (source positions aside).
#pragma once
#include "syntax/ast.h"
#include <string>

namespace tkc {

std::string print(const ast::File &file);
std::string print(const ast::Function &function);
std::string print(const ast::Expr &expr);
std::string print(const ast::Type &type);

} // namespace tkc
