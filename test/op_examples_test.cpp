// Every op's example is source text that compiles, contains the op, and runs.
#include "ir_kit.h"
#include "sema/instance.h"
#include <algorithm>
#include <cmath>
#include <set>

using namespace tkc;
using namespace tkc::test;
using K = OpKind;

// Lines that begin with "# " are hidden in the manual but belong to the program. The example is a kernel body with
// tensors x and y at hand; a first line "# with PARAMS" adds parameters, a line "# record ..." declares one, a first
// line "# reference ..." makes it a reference.
static std::string program_text(const std::string &example, bool &reference) {
  std::string body, params, records;
  size_t at = 0;
  while (at < example.size()) {
    size_t end = std::min(example.find('\n', at), example.size());
    std::string line = example.substr(at, end - at);
    at = end + 1;
    if (line.starts_with("# with "))
      params = ", " + line.substr(7);
    else if (line.starts_with("# record "))
      records += line.substr(2) + "\n";
    else
      body += (line.starts_with("# ") ? line.substr(2) : line) + "\n";
  }
  reference = body.starts_with("reference");
  if (reference) return body;
  return records + "kernel f<M: int = 16, N: int = 32>(x: tensor<f32>[M, N], y: out tensor<f32>[M, N]" + params +
         ") grid (1) {\n" + body + "}\n";
}

TEST_CASE("examples compile, contain their op and run") {
  // No source has them: loop_over_tiles makes them before the layout search.
  const std::set<K> of_persistence = {K::BlockId, K::NumBlocks, K::TileCoordinate};
  for (K kind : ir::all_ops()) {
    CAPTURE(std::string(ir::def(kind).name.s));
    SourceManager sources;
    Diagnostics diags(sources);
    bool reference = false;
    std::string text = program_text(ir::def(kind).example.s, reference);
    if (reference) // called from a verify block, where its sizes are bound
      text = "kernel f<M: int = 16, N: int = 32>(x: tensor<f32>[M, N], y: out tensor<f32>[M, N]) grid (1) { store(y[:, "
             ":], load(x[:, :])); }\n" +
             text + "verify f { y = f_ref(x); case one: M = 16, N = 32; }\n";
    INFO(text);
    auto program = sema::Program::load(sources.add("example.tk", text), diags);
    INFO(diags.render_all());
    CHECK(program);
    if (!program) continue;
    std::unique_ptr<ir::Function> fn;
    if (reference) {
      const ast::Check *check = program->check_for("f", false);
      REQUIRE(check);
      auto host = sema::build_expected(*program, *check, check->bindings.at(0), {{"M", 16}, {"N", 32}},
                                       {{"x", DType::F64, {16, 32}}, {"y", DType::F64, {16, 32}}}, diags);
      if (host) fn = std::move(host->fn);
    } else {
      fn = sema::instantiate(*program, *program->find("f", ast::FunctionKind::Kernel), {}, nullptr, diags);
    }
    std::string messages = diags.render_all();
    INFO(messages);
    CHECK(fn);
    if (!fn) continue;
    CHECK(!diags.has_errors());
    bool found = ir::made_by_passes(kind) || of_persistence.count(kind);
    ir::walk(fn->body, [&](ir::Op *op) { found |= op->kind == kind; });
    CHECK(found);

    Random r(1);
    std::vector<std::unique_ptr<interp::Storage>> memory;
    interp::Launch launch;
    launch.function = fn.get();
    launch.grid = {1};
    for (const ir::Value *v : fn->body->args) {
      if (v->type.is_tile()) {
        interp::Tile t(v->type.dtype, v->type.shape);
        for (double &x : t.f) x = r.uniform(-1, 1);
        launch.args.push_back(std::move(t));
        continue;
      }
      auto s = std::make_unique<interp::Storage>();
      s->name = v->name;
      s->dtype = v->type.dtype;
      interp::Tile t(s->dtype, v->type.shape);
      for (double &x : t.f) x = round_to(s->dtype, r.uniform(-2, 2));
      s->f = t.f;
      s->i = t.i;
      Ints strides(v->type.shape.size(), 1);
      for (size_t d = strides.size(); d-- > 1;) strides[d - 1] = strides[d] * v->type.shape[d];
      launch.args.push_back(interp::TensorRef{s.get(), 0, v->type.shape, strides});
      memory.push_back(std::move(s));
    }
    interp::Result result = interp::run(launch);
    CHECK_MESSAGE(!result.trap, (result.trap ? result.trap->message : ""));
    for (const auto &s : memory)
      for (double x : s->f) REQUIRE(std::isfinite(x));
  }
}
