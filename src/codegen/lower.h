// From a laid-out, allocated ir::Function to an llvm::Function. Ops lower themselves (OpDef::lower); this part makes
// the kernel around them: parameters (abi.h), thread and program ids, tensors, shared memory.
#pragma once
#include "codegen/abi.h"
#include "codegen/lower_ctx.h"

namespace tkc::codegen {

struct LowerOptions {
  std::string entry;           // the kernel's name in PTX
  bool aligned = false;        // assume what KernelAbi::aligned says
  int64_t max_registers = 0;   // .maxnreg; 0: ptxas decides
  int64_t min_blocks = 0;      // .minnctapersm; 0: none
  DebugLines *lines = nullptr; // null: no .loc
};

class FunctionLowering {
public:
  FunctionLowering(llvm::Module &module, const ir::Function &f, const ir::Target &target, LowerOptions options);
  llvm::Function *run();

private:
  void make_function();
  void make_thread_ids();
  void make_arguments();
  void make_programs();
  llvm::Value *stride(const ir::Param &p, int64_t dim, size_t &arg);

  LowerOptions options_;
  KernelAbi abi_;
  llvm::IRBuilder<> builder_;
  LowerCtx ctx_;
  llvm::Function *function_ = nullptr;
};

// A size expression in 32-bit arithmetic, or 64-bit where an intermediate product could pass 32 bits although the value
// of the whole fits; the value is what SizeExpr::eval gives. The symbols are the function's sizes.
llvm::Value *lower_size(LowerCtx &ctx, const ir::SizeExpr &e);

} // namespace tkc::codegen
