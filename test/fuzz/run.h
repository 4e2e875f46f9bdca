// Runs one random program: interpreter against the emitted PTX, on the emulator or a GPU.
#pragma once
#include "program.h"
#include "runtime/device.h"

namespace tkc::fuzz {

enum class Verdict : uint8_t {
  Clean,
  Rejected, // a legal refusal: it does not fit the registers or shared memory, or its annotation cannot be followed
  Found,
};
struct Outcome {
  Verdict verdict = Verdict::Clean;
  // Of a refusal the kind of diagnostic; of a finding what identifies it while it is minimised: "mismatch",
  // "emulator shared-race", "diagnostic dtype-mismatch", "internal error FILE:LINE", "signal 11", ...
  std::string kind;
  std::string message;
};
struct RunOptions {
  Device *device = nullptr; // also runs on it, if there is one
  bool emulate = true;
};
// A fault of tkc ends the process (campaign.h runs programs in processes of their own).
Outcome run_program(const Program &p, const RunOptions &options);

} // namespace tkc::fuzz
