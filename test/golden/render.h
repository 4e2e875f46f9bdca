// What tkc makes of a golden case, as text: one function a family of cases.
#pragma once
#include "golden/golden_case.h"
#include <cstdint>
#include <set>

namespace tkc::golden {

struct Outcome {
  std::string text;
  bool failed = false;               // the case ended in an error of the user
  std::set<std::string> kinds;       // of diagnostics, as printed in brackets
  std::set<std::string> ops;         // of the IR whose code is shown
  std::vector<std::string> problems; // what must never be, whatever the golden says
  int64_t assembled = 0, not_assembled = 0;
  std::vector<std::string> known; // faults that the case names by `spills TARGET ENTRY`
};

using Render = Outcome (*)(const Case &);

// diagnostics: every message of compiling all kernels of the file for `target` (sm_120), with -P `param`s, and, where
// there are none, of its verify cases on the interpreter. The JSON form must say the same.
Outcome render_diagnostics(const Case &c);
// sema: the typed IR of every kernel; with `absent NAME` without that tensor. `only WORD` shows the ops that contain
// it.
Outcome render_sema(const Case &c);
// passes: what the pass `pass` changes in the IR that reaches it, as a difference.
Outcome render_passes(const Case &c);
// ptx: the PTX of every kernel for sm_80, sm_90, sm_120 (or `targets`), equal texts once.
Outcome render_ptx(const Case &c);
// samples: `sample FILE`: of every kernel the steady-state loop and counts of all instructions.
Outcome render_samples(const Case &c);
// cli: `run ARGUMENTS`: what the program prints, and its exit code; FILE stands for the case.
Outcome render_cli(const Case &c);

} // namespace tkc::golden
