// ANTLR's parse tree -> syntax tree. Internal to syntax/.
#pragma once
#include "support/diagnostics.h"
#include "syntax/ast.h"

namespace antlr4 {
class ParserRuleContext;
}

namespace tkc {

// `tree` is the context of rule `file`. Character positions of its tokens are byte offsets of the source text.
// If it is `broken`, statements and declarations that hold a syntax error (already reported) are left out.
std::unique_ptr<ast::File> build_ast(antlr4::ParserRuleContext *tree, bool broken, int32_t file_id,
                                     Diagnostics &diagnostics);

} // namespace tkc
