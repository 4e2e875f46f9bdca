#include "program.h"
#include <fmt/format.h>
#include <sstream>

namespace tkc::fuzz {

std::string to_text(const Program &p) {
  std::string out = fmt::format("//! target {}\n//! schedule {} {}\n", p.target, emu::policy_name(p.policy), p.seed);
  for (const auto &[name, n] : p.sizes) out += fmt::format("//! size {} = {}\n", name, n);
  for (const auto &[name, in] : p.inputs) out += fmt::format("//! input {} = {} {}\n", name, in.first, in.second);
  for (const auto &[name, error] : p.outputs)
    out += error == 0 ? fmt::format("//! output {} exact\n", name)
                      : fmt::format("//! output {} within {:.3g}\n", name, error);
  return out + p.text;
}

Result<Program> parse_program(const std::string &text) {
  Program p;
  std::istringstream lines(text);
  std::string line;
  int64_t number = 0;
  while (std::getline(lines, line)) {
    number++;
    if (line.rfind("//!", 0) != 0) {
      p.text += line + "\n";
      continue;
    }
    std::istringstream words(line.substr(3));
    std::string what, name, word;
    words >> what >> name;
    bool ok = bool(words);
    if (what == "target") {
      p.target = name;
    } else if (what == "schedule") {
      auto policy = emu::find_policy(name);
      ok = policy && words >> p.seed;
      if (ok) p.policy = *policy;
    } else if (what == "size") {
      ok = bool(words >> word >> p.sizes[name]);
    } else if (what == "input") {
      Input &in = p.inputs[name];
      ok = bool(words >> word >> in.first >> in.second);
    } else if (what == "output") {
      double &error = p.outputs[name];
      ok = bool(words >> word) && (word == "exact" || (word == "within" && words >> error));
    } else {
      ok = false;
    }
    if (!ok) return failure("line {}: `{}` is no directive of a random program", number, line);
  }
  if (p.target.empty()) return failure("the file has no line `//! target NAME`");
  return p;
}

} // namespace tkc::fuzz
