// Source text -> syntax tree. Errors are diagnostics with spans; nothing is thrown out of here.
#pragma once
#include "support/diagnostics.h"
#include "syntax/ast.h"
#include <memory>
#include <optional>
#include <string>

namespace tkc {

inline constexpr int64_t kMaxSourceBytes = int64_t(4) << 20;
// Brackets, blocks, else-if chains and nested ternaries together; bounds the recursion of every later stage.
inline constexpr int64_t kMaxNesting = 500;
// Height of an expression tree: a chain of n operators is n high.
inline constexpr int64_t kMaxExpressionHeight = 1000;

// Reads `path` ("-": standard input, shown as <stdin>) and adds it to `sources`. An unreadable, oversized or empty file
// is a diagnostic and nullopt.
// `at` is where an import names the file.
std::optional<int32_t> read_source(const std::string &path, SourceManager &sources, Diagnostics &diagnostics,
                                   SourceLoc at = {});

// Parses a file of `diagnostics.sources()` and reports all its errors. The result leaves out statements and
// declarations with errors; it is null if nothing could be used. Code goes on only if `!diagnostics.has_errors()`.
std::unique_ptr<ast::File> parse_file(int32_t file_id, Diagnostics &diagnostics);

} // namespace tkc
