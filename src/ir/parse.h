// Reads the text that print() writes (print.h shows the form; `//` comments are skipped). The result has the structure
// and the types that the text says: verify() tells whether they are right.
#pragma once
#include "ir/ir.h"
#include "support/diagnostics.h"
#include <string_view>

namespace tkc::ir {

// Null after an error, which is a `syntax` diagnostic at the place in file `file_id` where reading stopped. `text` is
// that file's text; ops without loc(...) get their place in it.
std::unique_ptr<Function> parse_ir(std::string_view text, Diagnostics &diags, int32_t file_id);

// A size expression as SizeExpr::str() writes it; nullopt if the text is anything else.
std::optional<SizeExpr> parse_size_expr(std::string_view text);

} // namespace tkc::ir
