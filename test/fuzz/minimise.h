// The smallest program that still shows a fault.
#pragma once
#include "choices.h"
#include "run.h"
#include <functional>

namespace tkc::fuzz {

struct Minimised {
  Program program;
  Outcome outcome;
  int64_t tries = 0;
};
using Try = std::function<Outcome(const Program &)>;
// Of the program of a seed: removes and lowers choices as long as an outcome of the same kind remains.
Minimised minimise_seed(uint64_t seed, const GenerateOptions &options, const Outcome &wanted, const Try &attempt,
                        double seconds);
// Of a file: removes statements and blocks, and lowers sizes, as long as an outcome of the same kind remains.
Minimised minimise_text(const Program &program, const Outcome &wanted, const Try &attempt, double seconds);

} // namespace tkc::fuzz
