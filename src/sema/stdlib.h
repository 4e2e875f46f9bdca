// The standard library's sources, embedded in the binary by cmake/embed.cmake.
#pragma once

namespace tkc {

struct StdlibFile {
  const char *name; // import name: "math" is stdlib/math.tk
  const char *text;
};
// Ends with a row of null pointers.
extern const StdlibFile kStdlibFiles[];

} // namespace tkc
