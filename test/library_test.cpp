// The language, feature by feature, and the standard library: every file of test/features and test/stdlib is verified
// on the interpreter and, as sm_120 PTX, on the emulator, and compiled for every target that has what it needs.
//
// A comment "needs sm_NN" in a file names the first target that can; older ones must refuse it, with a diagnostic.
#include "driver/verify.h"
#include "ir/target.h"
#include "syntax/parse.h"
#include <algorithm>
#include <doctest/doctest.h>
#include <filesystem>
#include <fstream>
#include <sstream>

using namespace tkc;

namespace {

std::vector<std::string> files(const std::string &folder) {
  std::vector<std::string> out;
  for (const auto &f : std::filesystem::directory_iterator(std::string(TKC_SOURCE_DIR) + "/test/" + folder))
    if (f.path().extension() == ".tk") out.push_back(f.path().string());
  std::sort(out.begin(), out.end());
  return out;
}

struct Loaded {
  SourceManager sources;
  Diagnostics diags{sources};
  std::unique_ptr<sema::Program> program;
  int needs = 0; // sm number

  explicit Loaded(const std::string &path) {
    std::ifstream in(path);
    std::stringstream text;
    text << in.rdbuf();
    std::string s = text.str();
    if (size_t at = s.find("needs sm_"); at != s.npos) needs = std::stoi(s.substr(at + 9));
    auto id = read_source(path, sources, diags);
    if (id) program = sema::Program::load(*id, diags);
  }
};

void verify_file(const std::string &path, driver::Executor executor, const char *target = "sm_120") {
  CAPTURE(path);
  Loaded l(path);
  INFO(l.diags.render_all());
  REQUIRE(l.program);
  driver::VerifyOptions o;
  o.executor = executor;
  o.compile.target = ir::find_target(target);
  int64_t cases = 0;
  for (const ast::Function *k : l.program->kernels()) {
    const ast::Check *check = l.program->check_for(k->name.text, false);
    CHECK_MESSAGE(check, k->name.text, " has no verify block");
    if (!check) continue;
    for (const driver::CaseResult &r : driver::verify_kernel(*l.program, *k, *check, o, l.diags)) {
      std::string text = r.error;
      for (const auto &[name, c] : r.outputs) text += "\n" + c.to_string(name);
      CHECK_MESSAGE(r.pass(), r.kernel, ".", r.name, " on the ", driver::executor_name(executor), ": ", text);
      CHECK_FALSE(r.skipped);
      cases++;
    }
    CHECK_MESSAGE(!l.diags.has_errors(), l.diags.render_all());
  }
  CHECK(cases > 0);
}

// Compiles the cases of a file for a target, all or the first of each kernel; one that is refused ends it.
void compile_file(const std::string &path, const ir::Target &target, bool all_cases) {
  Loaded l(path);
  INFO(l.diags.render_all());
  REQUIRE(l.program);
  driver::CompileOptions o;
  o.target = &target;
  for (const ast::Function *k : l.program->kernels()) {
    const ast::Check *check = l.program->check_for(k->name.text, false);
    if (!check) continue;
    for (const ast::Case &c : check->cases) {
      std::string at = k->name.text + "." + c.name.text + " for " + target.name;
      CAPTURE(at);
      auto spec = sema::evaluate_case(*l.program, *k, *check, c, l.diags);
      REQUIRE(spec);
      auto compiled = driver::compile_kernel(*l.program, *k, spec->spec, o, l.diags);
      std::string messages = l.diags.render_all();
      INFO(messages);
      if (target.sm < l.needs) {
        CHECK(messages.find("[unsupported-on-target]") != messages.npos);
        return;
      }
      REQUIRE(compiled);
      if (!all_cases) break;
    }
  }
}

} // namespace

TEST_CASE("features on the interpreter") {
  for (const std::string &f : files("features")) verify_file(f, driver::Executor::Interp);
}
TEST_CASE("features on the emulator") {
  for (const std::string &f : files("features")) verify_file(f, driver::Executor::Emu);
}
TEST_CASE("fp8 products where tensor cores have no fp8") {
  verify_file(std::string(TKC_SOURCE_DIR) + "/test/features/products_fp8.tk", driver::Executor::Emu, "sm_80");
}
TEST_CASE("the library on the interpreter") {
  for (const std::string &f : files("stdlib")) verify_file(f, driver::Executor::Interp);
}
TEST_CASE("the library on the emulator") {
  for (const std::string &f : files("stdlib")) verify_file(f, driver::Executor::Emu);
}
// sm_120 is compiled by the emulator's cases.
TEST_CASE("features and library on other targets") {
  for (const ir::Target &t : ir::all_targets()) {
    std::string name = t.name;
    if (name == "sm_120") continue;
    for (const char *folder : {"features", "stdlib"})
      for (const std::string &f : files(folder)) {
        CAPTURE(f);
        bool by_dtype = f.find("products") != f.npos && (name == "sm_80" || name == "sm_90"); // other instructions
        compile_file(f, t, by_dtype);
      }
  }
}
