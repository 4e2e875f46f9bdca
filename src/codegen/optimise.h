// The optimiser: the few LLVM passes that the code of tile lowerings profits from.
#pragma once
#include "llvm/IR/Module.h"
#include "llvm/Target/TargetMachine.h"

namespace tkc::codegen {

// The layout search and the lowerings have decided everything about data; what is left is redundancy: repeated address
// arithmetic, constant conditions, invariants in loops. On kernels of this kind these passes give the code of -O3 for a
// quarter of its time.
void optimise(llvm::Module &module, llvm::TargetMachine &machine);

} // namespace tkc::codegen
