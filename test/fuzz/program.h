// A random program: the text of one kernel and all that running it needs, as directives in the comments at its top, so
// that a file says everything:
//
//   //! target sm_90
//   //! schedule random 77          policy and seed of the emulator
//   //! size M = 37
//   //! input x = 3 -1              multiples of 2^-1 up to 3 in size; integers: from 3 to -1
//   //! output y within 1e-5        or `exact`: how far two executions may be apart
#pragma once
#include "emu/emu.h"
#include "support/dtype.h"
#include "support/result.h"
#include <map>
#include <string>
#include <vector>

namespace tkc::fuzz {

struct Input {
  double first = 0, second = 0; // floats: most, grid; integers: lowest, highest; bools: percent of true
};
struct Program {
  std::string text; // of the kernel `k`
  std::string target;
  emu::Policy policy = emu::Policy::Eager;
  uint64_t seed = 0; // of the schedule and of the inputs
  std::map<std::string, int64_t> sizes;
  std::map<std::string, Input> inputs;
  std::map<std::string, double> outputs; // the largest difference; 0: none
};
std::string to_text(const Program &p);
Result<Program> parse_program(const std::string &text);

class Choices;
struct GenerateOptions {
  std::string target; // "": one of those of the fuzzer
};
Program generate(Choices &choices, uint64_t seed, const GenerateOptions &options);

} // namespace tkc::fuzz
