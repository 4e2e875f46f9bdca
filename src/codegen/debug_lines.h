// Source lines in PTX: `.file` and `.loc` only. Full debug information would print `.target sm_NN, debug`, with which
// ptxas stops optimising. Files are named by their last path component, so that PTX does not depend on where the source
// lies.
#pragma once
#include "support/source.h"
#include "llvm/IR/DIBuilder.h"
#include "llvm/IR/Module.h"
#include <map>

namespace tkc::codegen {

class DebugLines {
public:
  DebugLines(llvm::Module &module, const SourceManager &sources);
  // The scope of a kernel's lines, attached to the function; null if the location is not valid.
  llvm::DISubprogram *function(llvm::Function *f, SourceLoc loc);
  // Null scope or invalid location: null.
  llvm::DILocation *location(llvm::DISubprogram *scope, SourceLoc loc);
  void finish() { builder_.finalize(); }
  const SourceManager &sources() const { return sources_; }

private:
  llvm::DIFile *file(int32_t id);
  llvm::Module &module_;
  const SourceManager &sources_;
  llvm::DIBuilder builder_;
  llvm::DICompileUnit *unit_ = nullptr;
  std::map<int32_t, llvm::DIFile *> files_;
  // Lines of another file than the kernel's (inlined functions of the library) need a scope of their own.
  std::map<std::pair<llvm::DISubprogram *, int32_t>, llvm::DIScope *> scopes_;
};

} // namespace tkc::codegen
