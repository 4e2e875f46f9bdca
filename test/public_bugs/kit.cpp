#include "public_bugs/kit.h"
#include "lines.h"
#include "why.h"
#include <fmt/ranges.h>

namespace public_bugs {
using namespace tkc;

namespace {
// A text with a kernel and its verify block.
struct Checked {
  SourceManager sources;
  Diagnostics diags{sources};
  std::unique_ptr<sema::Program> program;
  const ast::Function *f = nullptr;
  const ast::Check *check = nullptr;
  Checked(const std::string &text, const std::string &kernel) {
    program = sema::Program::load(sources.add(kernel + ".tk", text), diags);
    REQUIRE_MESSAGE(program, diags.render_all());
    f = program->find(kernel, ast::FunctionKind::Kernel);
    check = program->check_for(kernel, false);
    REQUIRE(f);
    REQUIRE(check);
  }
};
} // namespace

void holds(const std::string &text, const std::string &kernel, const Targets &targets, int64_t schedules) {
  Checked c(text, kernel);
  Diagnostics &diags = c.diags;
  auto verify = [&](driver::Executor executor, const char *target) {
    driver::VerifyOptions o;
    o.executor = executor;
    o.compile.target = ir::find_target(target);
    REQUIRE(o.compile.target);
    o.emu_schedules = schedules;
    o.emu.instruction_budget = 1 << 22; // a hang ends soon
    size_t cases = 0;
    driver::verify_kernel(*c.program, *c.f, *c.check, o, diags, [&](const driver::CaseResult &r) {
      std::string what = r.error;
      for (const auto &[name, compared] : r.outputs) what += "\n" + compared.to_string(name);
      CHECK_MESSAGE(r.pass(), r.kernel, ".", r.name, " on the ", driver::executor_name(executor), " for ",
                    std::string(target), ": ", what, diags.render_all());
      cases++;
    });
    CHECK_MESSAGE(!diags.has_errors(), diags.render_all());
    CHECK(cases == c.check->cases.size());
  };
  verify(driver::Executor::Interp, "sm_90");
  for (const char *target : targets) verify(driver::Executor::Emu, target);
}

std::string refusal(const std::string &text, const std::string &kernel, const std::string &target) {
  auto c = compile_text(text, kernel, target);
  CHECK(!c->kernel);
  return c->diags.render_all();
}

std::unique_ptr<Compiled> compiled(const std::string &text, const std::string &kernel, const std::string &target) {
  auto c = compile_text(text, kernel, target);
  REQUIRE_MESSAGE(c->kernel, c->diags.render_all());
  return c;
}

std::string run_edited(const std::string &text, const std::string &kernel, const std::string &test_case,
                       const std::string &target, const std::function<std::string(std::string)> &edit) {
  Checked checked(text, kernel);
  auto &[sources, diags, program, f, check] = checked;
  driver::CompileOptions how;
  how.target = ir::find_target(target);
  for (const ast::Case &c : check->cases) {
    if (c.name.text != test_case) continue;
    auto spec = sema::evaluate_case(*program, *f, *check, c, diags);
    REQUIRE(spec);
    auto code = driver::compile_kernel(*program, *f, spec->spec, how, diags);
    REQUIRE_MESSAGE(code, diags.render_all());
    auto data = driver::make_data(*program, check, *code->function, *spec, {}, diags);
    REQUIRE_MESSAGE(data, diags.render_all());
    driver::LaunchData want = *data;
    std::string printed;
    emu::Options options;
    options.instruction_budget = 1 << 22;
    Status clean = driver::run_emu(*code, want, sources, options, printed);
    REQUIRE_MESSAGE(clean, why(clean));
    std::string edited = edit(code->code.ptx);
    REQUIRE(edited != code->code.ptx);
    code->code.ptx = edited;
    for (int64_t k = 0; k < 8; k++) {
      driver::LaunchData got = *data;
      Status ran = driver::run_emu(*code, got, sources, emu::nth_schedule(options, k, std::nullopt), printed);
      if (!ran) return ran.error();
      for (size_t i = 0; i < got.tensors.size(); i++)
        if (got.tensors[i].bytes != want.tensors[i].bytes) return "another result";
    }
    return "";
  }
  FAIL("no case ", test_case);
  return "";
}

int64_t count(const std::string &text, const std::string &what) {
  int64_t n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) n++;
  return n;
}
bool has(const std::string &text, const std::string &what) { return text.find(what) != std::string::npos; }

static std::string without(const std::string &text, const std::string &instruction, int64_t most) {
  std::string out;
  for (const std::string &line : lines_of(text))
    if (most > 0 && has(line, instruction))
      most--;
    else
      out += line + "\n";
  return out;
}
std::string without_first(std::string text, const std::string &instruction) { return without(text, instruction, 1); }
std::string without_all(std::string text, const std::string &instruction) {
  return without(text, instruction, INT64_MAX);
}

std::string entry_of(const std::string &ptx, const std::string &name) {
  size_t begin = ptx.find(".visible .entry " + name + "(");
  REQUIRE(begin != std::string::npos);
  size_t end = ptx.find(".visible .entry", begin + 1);
  return ptx.substr(begin, end == std::string::npos ? end : end - begin);
}

std::vector<const ir::Op *> ops_of(const ir::Function &f, ir::OpKind kind) {
  std::vector<const ir::Op *> out;
  ir::walk(f.body, [&](const ir::Op *op) {
    if (op->kind == kind) out.push_back(op);
  });
  return out;
}

std::vector<std::string> rings_of(const ir::Function &f) {
  std::vector<std::string> out;
  for (const ir::Op *op : ops_of(f, ir::OpKind::RingAlloc))
    if (op->attrs.has("tensors"))
      out.push_back(fmt::format("{} {}: {}", op->attrs.i("stages"), op->attrs.s("transport"),
                                fmt::join(op->attrs.get<std::vector<std::string>>("tensors"), " ")));
  return out;
}

} // namespace public_bugs
