// The language, feature by feature, and the standard library: every file of test/features and test/stdlib is verified
// on the interpreter and, as sm_120 PTX, on the emulator, and compiled for every target that has what it needs.
//
// A comment "needs sm_NN" in a file names the first target that can; older ones must refuse it, with a diagnostic.
#include "compile_kit.h"
#include "driver/instance_key.h"
#include "driver/verify.h"
#include "ir/target.h"
#include "syntax/parse.h"
#include <algorithm>
#include <doctest/doctest.h>
#include <filesystem>
#include <fstream>
#include <map>
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
  for (const ast::Function *k : l.program->entries()) {
    const ast::Check *check = l.program->check_for(k->name.text, false);
    bool launched = k->kind == ast::FunctionKind::Kernel && !l.program->programs().empty();
    CHECK_MESSAGE((check || launched), k->name.text, " has no verify block");
    if (!check) continue;
    driver::verify_kernel(*l.program, *k, *check, o, l.diags, [&](const driver::CaseResult &r) {
      std::string text = r.error;
      for (const auto &[name, c] : r.outputs) text += "\n" + c.to_string(name);
      CHECK_MESSAGE(r.pass(), r.kernel, ".", r.name, " on the ", driver::executor_name(executor), ": ", text);
      CHECK_FALSE(r.skipped);
      cases++;
    });
    CHECK_MESSAGE(!l.diags.has_errors(), l.diags.render_all());
  }
  CHECK(cases > 0);
}

// Compiles the cases of a loaded file's verify or bench blocks for a target. f gets what came of each and the messages,
// and says where to go on.
enum class Then { Next, NextKernel, Stop };
template <typename F> void each_compiled(Loaded &l, const ir::Target &target, bool bench, F &&f) {
  driver::CompileOptions o;
  o.target = &target;
  for (const ast::Function *k : l.program->entries()) {
    const ast::Check *check = l.program->check_for(k->name.text, bench);
    if (!check) continue;
    // Most cases differ in sizes only, and have the same code.
    std::map<driver::InstanceKey, std::optional<codegen::EmitResult>> done;
    for (const ast::Case &c : check->cases) {
      std::string at = k->name.text + "." + c.name.text + " for " + target.name;
      CAPTURE(at);
      auto spec = sema::evaluate_case(*l.program, *k, *check, c, l.diags);
      REQUIRE(spec);
      auto [entry, fresh] = done.try_emplace(driver::instance_key(*k, spec->spec));
      auto &compiled = entry->second;
      if (fresh) compiled = driver::compile_entry(*l.program, *k, spec->spec, o, l.diags);
      std::string messages = l.diags.render_all();
      INFO(messages);
      Then then = f(compiled, messages);
      if (then == Then::Stop) return;
      if (then == Then::NextKernel) break;
    }
  }
}

// Compiles the cases of a file for a target, all or the first of each kernel; one that is refused ends it.
void compile_file(const std::string &path, const ir::Target &target, bool all_cases) {
  Loaded l(path);
  INFO(l.diags.render_all());
  REQUIRE(l.program);
  each_compiled(l, target, false, [&](const auto &compiled, const std::string &messages) {
    if (target.sm < l.needs) {
      bool refused = messages.find("[unsupported-on-target]") != messages.npos;
      refused |= messages.find("[forced-pipeline]") != messages.npos; // what an annotation asks for
      CHECK(refused);
      return Then::Stop;
    }
    REQUIRE(compiled);
    return all_cases ? Then::Next : Then::NextKernel;
  });
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
// What the executors say of a program that stops, and of one that prints.
TEST_CASE("failed assertions and output") {
  struct Outcome {
    std::string error, printed;
  };
  auto run = [](const std::string &body, driver::Executor executor) {
    SourceManager sources;
    Diagnostics diags(sources);
    std::string text = "kernel f(x: tensor<i32>[2, 3], y: out tensor<i32>[2, 3]) grid (1) warps 1 {\n"
                       "let t = load(x);\n" +
                       body + "\nstore(y, t);\n}\nverify f { y = x; input x = reshape(iota(6), [2, 3]); case one; }\n";
    auto program = sema::Program::load(sources.add("f.tk", text), diags);
    Outcome out{diags.render_all(), ""};
    if (!program) return out;
    driver::VerifyOptions o;
    o.executor = executor;
    o.compile.target = ir::find_target("sm_120");
    const ast::Function &k = *program->find("f", ast::FunctionKind::Kernel);
    driver::verify_kernel(*program, k, *program->check_for("f", false), o, diags, [&](const driver::CaseResult &r) {
      out.error += r.error;
      out.printed += r.printed;
    });
    out.error += diags.render_all();
    return out;
  };
  for (driver::Executor e : {driver::Executor::Interp, driver::Executor::Emu}) {
    CAPTURE(std::string(driver::executor_name(e)));
    Outcome fails = run("assert(t < 4, \"less than four\");", e);
    CHECK(fails.error.find("less than four") != std::string::npos);
    CHECK(fails.error.find("f.tk:3") != std::string::npos);
    Outcome scalar = run("assert(sum(t) == 14);", e);
    CHECK(scalar.error.find("f.tk:3") != std::string::npos);
    CHECK(run("assert(t < 6, \"all\"); assert(sum(t) == 15);", e).error == "");
    Outcome prints = run("print(\"{} of {{{}}} 100% {}\", sum(t), 6, 0.5);", e);
    CHECK(prints.error == "");
    CHECK(prints.printed == "15 of {6} 100% 0.5\n");
  }
  Outcome at = run("assert(t < 4);", driver::Executor::Interp);
  CHECK(at.error.find("[1, 1]") != std::string::npos);
}

// What `tkc bench` will run: no registers in local memory.
TEST_CASE("the benchmarks of the samples compile") {
  int64_t cases = 0;
  for (const char *name : {"sm_90", "sm_120"})
    for (const std::string &f : files("../samples")) {
      CAPTURE(f);
      Loaded l(f);
      REQUIRE(l.program);
      each_compiled(l, *ir::find_target(name), true, [&](const auto &compiled, const std::string &) {
        REQUIRE(compiled);
        CHECK(compiled->ptx.find(".local") == std::string::npos);
        cases++;
        return Then::Next;
      });
    }
  CHECK(cases > 20);
}

TEST_CASE("tensors have whole bytes") {
  SourceManager sources;
  Diagnostics diags(sources);
  auto program = sema::Program::load(
      sources.add("f.tk", "kernel f(x: tensor<e2m1>[8], y: out tensor<f32>[8]) grid (1) { store(y, f32(load(x))); }"),
      diags);
  REQUIRE(program);
  CHECK(!sema::instantiate(*program, *program->find("f", ast::FunctionKind::Kernel), {}, nullptr, diags));
  CHECK(diags.render_all().find(
            "f.tk:1:20: error: parameter `x` of a kernel must be a tensor of whole bytes: pass packed "
            "e2m1 as u8 [wrong-parameter-type]") != std::string::npos);
}

// A program sees its own stores: other threads of the block wait for them where they may meet, and only there.
TEST_CASE("barriers between accesses to memory that is written") {
  struct Row {
    const char *body;
    int barriers;
  };
  const Row rows[] = {
      {"store(y, load(x) * 2.0); store(z, load(y[32 : 48, :]));", 1}, // other threads load
      {"store(z, load(x[32 : 48, :])); store(y, load(x) * 2.0);", 0}, // other tensors
      {"store(y, load(y) * 2.0);", 0},                                // each thread its own elements
      {"store(y, load(y) * 2.0); store(y, load(y) + 1.0);", 0},       //
      {"for j in 0 : 64 step 16 { store(y[:, j :+ 16], load(y[:, j :+ 16]) + 1.0); }", 0},
      {"for j in 0 : 48 step 8 { store(y[:, j :+ 16], load(x[:, j :+ 16])); }", 1},          // windows that overlap
      {"for i in 0 : 2 { for t in 0 : 32 { store(y[32 * i + t, :], load(x[t, :])); } }", 1}, // i says nothing alone
      {"for i in 0 : 4 { for t in 0 : 4 { store(y[16 * i :+ 16, 16 * t :+ 16], load(x[0 : 16, 0 : 16])); } }", 0},
      {"for t in 0 : 64 { store(y[t, :], load(x[t, :])); }", 0},
      {"for t in 1 : 64 { store(y[t, :], load(y[t - 1, :]) * 2.0); }", 1},
      {"store(y[0, :], load(x[0, :])); store(y[1, :], load(x[2, :]));", 0}, // other rows
      {"store(y[0 : 4, :], load(x[0 : 4, :])); store(y[3 : 7, :], load(x[2 : 6, :]));", 1},
      {"store(y[0, 0], 1.0); store(z[0, 0], load(y[0, 0]));", 1}, // one thread stores, all load
      {"atomic_add(y, load(x)); atomic_add(y[0 : 32, :], load(x[32 : 64, :]));", 0},
      {"atomic_add(y, load(x)); atomic_max(y[0 : 32, :], load(x[32 : 64, :]));", 1},
      {"if n > 0 { store(y, load(x)); } store(z, load(y[0 : 16, :]));", 1},
      {"if n > 0 { store(y, load(x)); } else { store(z, load(y[0 : 16, :])); }", 0},
  };
  for (const Row &row : rows) {
    CAPTURE(std::string(row.body));
    std::string text =
        "kernel f(x: tensor<f32>[64, 64], y: inout tensor<f32>[64, 64], z: inout tensor<f32>[16, 64], n: i32) "
        "grid (1) warps 4 {\n" +
        std::string(row.body) + "\n}\n";
    auto c = compile_text(text, "f", "sm_120");
    std::string messages = c->diags.render_all();
    INFO(messages);
    REQUIRE(c->kernel);
    int barriers = 0;
    ir::walk(c->kernel->function->body, [&](const ir::Op *op) { barriers += op->kind == ir::OpKind::BlockBarrier; });
    CHECK(barriers == row.barriers);
  }
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
