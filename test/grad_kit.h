// Derivatives of single ops and of programs, with their comparison against central differences.
#pragma once
#include "compile_kit.h"
#include "driver/check_gradient.h"
#include "ir_kit.h"

namespace tkc::test {

struct Gradient {
  std::vector<interp::Tile> of;              // one for each name
  std::vector<driver::GradientCheck> checks; // likewise
  bool right() const {
    for (const driver::GradientCheck &c : checks)
      if (!c.pass()) return false;
    return !checks.empty();
  }
  std::string text() const {
    std::string out;
    for (const driver::GradientCheck &c : checks) out += c.to_string();
    return out;
  }
};

// Runs a reference and checks every gradient in it by differences.
inline Gradient run_gradient(interp::Launch &l) {
  driver::GradientChecker checker(3);
  l.on_gradient = [&](const interp::Launch::Gradient &g) { checker.check(g); };
  interp::Result result = interp::run(l);
  REQUIRE_MESSAGE(!result.trap, (result.trap ? result.trap->message : ""));
  Gradient out;
  for (interp::Value &v : result.results) out.of.push_back(std::get<interp::Tile>(v));
  out.checks = checker.checks();
  return out;
}

inline interp::Tile random_tile(Random &r, Ints shape, double lo = -2, double hi = 2) {
  interp::Tile t(DType::F64, std::move(shape));
  for (double &x : t.f) x = r.uniform(lo, hi);
  return t;
}

// The derivative of one op with respect to its float operands (those of `wrt`, if given), for random cotangents.
inline Gradient gradient_of_op(OpKind kind, std::vector<interp::Tile> operands, ir::Attrs a = {},
                               std::vector<size_t> wrt = {}, std::vector<double> cotangent = {}) {
  Kit k;
  if (wrt.empty())
    for (size_t i = 0; i < operands.size(); i++)
      if (operands[i].is_float()) wrt.push_back(i);
  std::vector<ir::Value *> values, inputs;
  for (interp::Tile &t : operands) values.push_back(k.tile(std::move(t)));
  for (size_t i : wrt) inputs.push_back(values[i]);
  ir::Block *region = k.f.new_block(nullptr);
  std::vector<ir::Value *> inside = values;
  for (size_t i : wrt) {
    inside[i] = k.argument(region, values[i]->type);
    inside[i]->name = fmt::format("operand {}", i);
  }
  k.b.set_block(region);
  ir::Value *y = k.value(kind, inside, std::move(a));
  k.end(OpKind::Yield, {y});
  k.b.set_block(k.f.body);
  Random r(7);
  interp::Tile c = random_tile(r, y->type.shape);
  if (!cotangent.empty()) c.f = cotangent;
  inputs.push_back(k.tile(c));
  ir::Op *op = k.create(OpKind::Grad, inputs, attrs({{"inputs", int64_t(wrt.size())}}));
  op->regions.push_back(region);
  region->parent = op;
  k.end(OpKind::Return, op->results);

  interp::Launch l;
  l.function = &k.f;
  l.args = k.args;
  return run_gradient(l);
}

// What a verify block may say: declarations, and an expression over named f64 (or i64) arrays.
struct Expression {
  SourceManager sources;
  Diagnostics diags{sources};
  std::unique_ptr<sema::Program> program;
  std::optional<sema::HostFunction> host;

  Expression(const std::string &declarations, const std::string &targets, const std::string &expression,
             const std::vector<std::pair<std::string, interp::Tile>> &args) {
    std::string text =
        declarations +
        "\nkernel k(p, q, r, s: out tensor<f32>[N]) grid (1) { let z = zeros<f32>[4]; store(p[0 :+ 4], z);"
        " store(q[0 :+ 4], z); store(r[0 :+ 4], z); store(s[0 :+ 4], z); }\n"
        "verify k { " +
        targets + " = " + expression + "; case one: N = 4; }\n";
    program = sema::Program::load(sources.add("grad.tk", text), diags);
    if (!program || diags.has_errors()) return;
    std::vector<sema::HostArg> host_args;
    for (const auto &[name, t] : args) host_args.push_back({name, t.dtype, t.shape});
    const ast::Check *check = program->check_for("k", false);
    host = sema::build_expected(*program, *check, check->bindings.at(0), {}, host_args, diags);
  }
};

inline Gradient gradient_of(const std::string &declarations, const std::string &targets, const std::string &expression,
                            std::vector<std::pair<std::string, interp::Tile>> args) {
  Expression e(declarations, targets, expression, args);
  INFO(expression);
  std::string messages = e.diags.render_all();
  INFO(messages);
  REQUIRE(e.host);
  interp::Launch l;
  l.function = e.host->fn.get();
  for (auto &[name, t] : args) l.args.emplace_back(std::move(t));
  return run_gradient(l);
}

} // namespace tkc::test
