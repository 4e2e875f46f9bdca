#pragma once
#include <algorithm>
#include <string>
#include <vector>

// The lines of a text, without their ends.
inline std::vector<std::string> lines_of(const std::string &text) {
  std::vector<std::string> out;
  for (size_t at = 0; at < text.size();) {
    size_t end = std::min(text.find('\n', at), text.size());
    out.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return out;
}
