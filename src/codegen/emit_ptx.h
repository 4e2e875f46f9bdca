// LLVM module to PTX text: one call for all entries of a kernel.
#pragma once
#include "codegen/abi.h"
#include "ir/target.h"
#include "support/source.h"
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace tkc::codegen {

// One entry of the module. The function is laid out and allocated (ir::Stage::allocated).
struct Entry {
  const ir::Function *function = nullptr;
  std::string name;
  bool aligned = false;
};

struct EmitOptions {
  int64_t max_registers = 0;              // .maxnreg; 0: none
  int64_t min_blocks = 0;                 // .minnctapersm; 0: none
  const SourceManager *sources = nullptr; // for .loc lines; null: none
  bool keep_llvm = false;                 // fill EmitResult::llvm (after optimisation)
  bool fail = false;                      // for tests of the crash report: LLVM meets a fatal error
};

struct EmitResult {
  bool ok = false;
  std::string error; // of tkc itself: the module does not verify, or LLVM cannot select something
  std::string ptx, llvm;
  std::vector<KernelAbi> abis; // by entry
  struct Phase {
    const char *name;
    double milliseconds;
  };
  std::vector<Phase> phases; // lower, verify, optimise, emit
};

// PTX of the target's lowest sufficient `.version`, the same bytes on every run and machine. It starts with a comment
// that states the ABI of every entry.
EmitResult emit(std::span<const Entry> entries, const ir::Target &target, const EmitOptions &options = {});

// The version of the linked LLVM, as in "22.1.8".
std::string llvm_version();

} // namespace tkc::codegen
