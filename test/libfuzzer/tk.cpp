// Text as a source file: reader, parser, and sema of every kernel that needs no parameters.
#include "ir/target.h"
#include "sema/instance.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  tkc::SourceManager sources;
  tkc::Diagnostics diags(sources);
  auto program =
      tkc::sema::Program::load(sources.add("fuzz.tk", std::string(reinterpret_cast<const char *>(data), size)), diags);
  if (program)
    for (const tkc::ast::Function *kernel : program->kernels())
      (void)tkc::sema::instantiate(*program, *kernel, {}, tkc::ir::find_target("sm_120"), diags);
  (void)diags.render_all();
  return 0;
}
