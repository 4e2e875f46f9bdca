// Compiling texts and files of the repository in tests.
#pragma once
#include "driver/compile.h"
#include "ir/target.h"
#include <doctest/doctest.h>
#include <fstream>
#include <sstream>

// The text of a file, by its path in the repository.
inline std::string source_text(const std::string &path) {
  std::ifstream in(std::string(TKC_SOURCE_DIR) + "/" + path);
  std::stringstream s;
  s << in.rdbuf();
  return s.str();
}

struct Compiled {
  tkc::SourceManager sources;
  tkc::Diagnostics diags{sources};
  std::unique_ptr<tkc::sema::Program> program;
  std::unique_ptr<tkc::driver::CompiledKernel> kernel; // null after an error
};

// One kernel of a text with its default parameters; the text must parse.
inline std::unique_ptr<Compiled> compile_text(const std::string &text, const std::string &kernel,
                                              const std::string &target) {
  auto c = std::make_unique<Compiled>();
  c->program = tkc::sema::Program::load(c->sources.add(kernel + ".tk", text), c->diags);
  INFO(c->diags.render_all());
  REQUIRE(c->program);
  tkc::driver::CompileOptions options;
  options.target = tkc::ir::find_target(target);
  REQUIRE(options.target);
  c->kernel = tkc::driver::compile_kernel(*c->program, *c->program->find(kernel, tkc::ast::FunctionKind::Kernel), {},
                                          options, c->diags);
  return c;
}
