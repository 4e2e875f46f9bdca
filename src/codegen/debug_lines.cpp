#include "codegen/debug_lines.h"
#include "llvm/BinaryFormat/Dwarf.h"

namespace tkc::codegen {

using namespace llvm;

DebugLines::DebugLines(Module &module, const SourceManager &sources)
    : module_(module), sources_(sources), builder_(module) {
  module.addModuleFlag(Module::Warning, "Debug Info Version", DEBUG_METADATA_VERSION);
  module.addModuleFlag(Module::Warning, "Dwarf Version", 2);
}

DIFile *DebugLines::file(int32_t id) {
  DIFile *&f = files_[id];
  if (!f) {
    StringRef name = sources_.file(id).name();
    f = builder_.createFile(name.substr(name.find_last_of('/') + 1), ".");
  }
  return f;
}

DISubprogram *DebugLines::function(Function *f, SourceLoc loc) {
  if (!loc.valid()) return nullptr;
  if (!unit_)
    unit_ = builder_.createCompileUnit(dwarf::DW_LANG_C, file(loc.file), "tkc", /*isOptimized=*/true, /*Flags=*/"",
                                       /*RV=*/0, /*SplitName=*/"", DICompileUnit::DebugDirectivesOnly);
  auto line = unsigned(sources_.file(loc.file).position(loc.begin).line);
  DISubroutineType *type = builder_.createSubroutineType(builder_.getOrCreateTypeArray({}));
  DISubprogram *s =
      builder_.createFunction(file(loc.file), f->getName(), f->getName(), file(loc.file), line, type, line,
                              DINode::FlagZero, DISubprogram::SPFlagDefinition | DISubprogram::SPFlagOptimized);
  f->setSubprogram(s);
  return s;
}

DILocation *DebugLines::location(DISubprogram *scope, SourceLoc loc) {
  if (!scope || !loc.valid()) return nullptr;
  DIScope *at = scope;
  if (DIFile *f = file(loc.file); f != scope->getFile()) {
    DIScope *&s = scopes_[{scope, loc.file}];
    if (!s) s = builder_.createLexicalBlockFile(scope, f);
    at = s;
  }
  LineColumn p = sources_.file(loc.file).position(loc.begin);
  return DILocation::get(module_.getContext(), unsigned(p.line), unsigned(p.column), at);
}

} // namespace tkc::codegen
