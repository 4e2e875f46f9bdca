// The pages that describe the language say what is true: src/ops/README.md is what the definitions say, and every
// snippet of grammar/README.md compiles; those that can be verified are.
#include "compile_kit.h"
#include "driver/verify.h"
#include "ir/target.h"
#include "ops/manual.h"
#include <doctest/doctest.h>
#include <fstream>
#include <sstream>

using namespace tkc;

namespace {

struct Snippet {
  int line = 0;
  bool body = false; // statements of a kernel with x: [16, 32] f32 and y: the same, inout
  std::string text;
};

std::vector<Snippet> snippets(const std::string &page) {
  std::vector<Snippet> out;
  std::istringstream in(page);
  std::string line;
  bool inside = false;
  for (int number = 1; std::getline(in, line); number++) {
    if (line.starts_with("```")) {
      inside = line.starts_with("```tk");
      if (inside) out.push_back({number, line == "```tk body", ""});
    } else if (inside) {
      out.back().text += line + "\n";
    }
  }
  return out;
}

} // namespace

TEST_CASE("the manual of the ops is up to date") {
  // Rewrite it with: build/tkc ops --markdown > src/ops/README.md
  CHECK(source_text("src/ops/README.md") == ops::manual());
}

TEST_CASE("every snippet of the language page compiles, and verifies if it says what it computes") {
  std::vector<Snippet> all = snippets(source_text("grammar/README.md"));
  CHECK(all.size() >= 10);
  for (const Snippet &s : all) {
    CAPTURE(s.line);
    SourceManager sources;
    Diagnostics diags(sources);
    std::string text = s.text;
    if (s.body)
      text = "kernel f(x: tensor<f32>[16, 32], y: inout tensor<f32>[16, 32]) grid (1) warps 1 {\n" + text + "}\n";
    auto program = sema::Program::load(sources.add("grammar/README.md", text), diags);
    INFO(diags.render_all());
    REQUIRE(program);
    driver::VerifyOptions o;
    o.compile.target = ir::find_target("sm_120");
    CHECK(!program->entries().empty());
    for (const ast::Function *k : program->entries()) {
      const ast::Check *check = program->check_for(k->name.text, false);
      if (check)
        driver::verify_kernel(*program, *k, *check, o, diags, [&](const driver::CaseResult &r) {
          INFO(r.name, ": ", r.error);
          if (!r.skipped) CHECK(r.pass());
        });
      auto compiled = driver::compile_entry(*program, *k, {}, o.compile, diags);
      std::string messages = diags.render_all();
      INFO(messages);
      CHECK(compiled);
    }
  }
}
