// Values of literals, and how operators bind: what the builder and the printer share.
#pragma once
#include "syntax/ast.h"
#include <optional>
#include <string>
#include <string_view>

namespace tkc {

// From 1 (||, loosest) to 10 (* / %). Equal ones bind to the left; comparisons (6: == !=, 7: < > <= >=) do not chain.
int precedence(ast::BinaryOp op);
bool is_comparison(ast::BinaryOp op);

// `text` is an INT token. Hex and binary spell 64 bits; decimal is signed, and 2^63 only fits where it is `negated`.
// nullopt if it does not fit. `well_formed` tells a malformed number apart.
std::optional<int64_t> decode_integer(std::string_view text, bool negated, bool &well_formed);
// `text` is a FLOAT token; nullopt if it overflows or underflows f64.
std::optional<double> decode_float(std::string_view text);
// `text` is a STRING token with its quotes. `bad_escape` is the offset of the first unknown escape, or npos.
std::string decode_string(std::string_view text, size_t &bad_escape);
// The token whose value is `value`.
std::string quote_string(std::string_view value);

} // namespace tkc
