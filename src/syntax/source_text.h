// The bytes of a source file before there are tokens. Internal to syntax/.
#pragma once
#include "support/diagnostics.h"
#include <string>

namespace tkc {

// Length of the UTF-8 character at `i`, or 0 if the bytes are not one (overlong forms and surrogates are not).
size_t utf8_length(const std::string &s, size_t i);

// Reports a file that is too large, holds NUL or is not UTF-8; true if it is text.
bool check_bytes(int32_t file, const SourceFile &source, Diagnostics &diagnostics);

// The text that the lexer sees: one character a byte, so that token positions are byte offsets. Characters outside
// ASCII stand only in strings and comments, whose text is taken from the source.
std::string ascii_image(const std::string &text);

} // namespace tkc
