// Reverse mode: the rule of every op, control flow, several outputs, and the checker itself.
#include "driver/verify.h"
#include "grad_kit.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"
#include <cmath>
#include <map>
#include <set>

using namespace tkc;
using namespace tkc::test;
using interp::Tile;
using K = OpKind;
using DK = ir::Derivative::Kind;

static constexpr double kInf = std::numeric_limits<double>::infinity();

TEST_CASE("every op of the language has a derivative, or a reason why not") {
  for (K k : ir::all_ops()) {
    const ir::OpDef &d = ir::def(k);
    CAPTURE(std::string(d.name.s));
    CHECK((d.derivative.kind == DK::Rule) == (d.derivative.rule != nullptr));
    if (d.derivative.kind != DK::Rule) CHECK(std::string(d.derivative.reason).size() > 10);
    // The default is for ops that passes make: no reference has one.
    bool declared = std::string(d.derivative.reason) != ir::Derivative().reason;
    CHECK((declared || ir::made_by_passes(k)));
  }
}

// One op on random operands; tells which ops it has been called for.
static std::set<K> tried;
static void check_op(K kind, std::vector<Tile> operands, ir::Attrs a = {}) {
  CAPTURE(std::string(ir::def(kind).name.s));
  tried.insert(kind);
  Gradient g = gradient_of_op(kind, std::move(operands), std::move(a));
  INFO(g.text());
  CHECK(g.right());
  // A derivative that is 0 everywhere agrees with differences only if the op is constant.
  for (const Tile &t : g.of) {
    bool zero = true;
    for (double x : t.f) zero &= x == 0;
    CHECK(!zero);
  }
}

TEST_CASE("the rule of every op against central differences") {
  tried.clear();
  Random r(11);
  const Ints odd = {3, 5}, cube = {3, 5, 7};
  auto any = [&](Ints s) { return random_tile(r, std::move(s)); };
  auto positive = [&](Ints s) { return random_tile(r, std::move(s), 0.3, 3); };

  for (K k : {K::Neg, K::Abs, K::Exp, K::Exp2, K::Expm1, K::Sin, K::Cos, K::Tanh, K::Sigmoid, K::Erf})
    for (Ints s : {odd, Ints{}, Ints{1, 1, 1}}) check_op(k, {any(s)});
  for (K k : {K::Log, K::Log2, K::Log1p, K::Sqrt, K::Rsqrt, K::Rcp}) check_op(k, {positive(odd)});
  for (K k : {K::Add, K::Sub, K::Mul, K::Min, K::Max}) check_op(k, {any(cube), any(cube)});
  check_op(K::Div, {any(odd), positive(odd)});
  check_op(K::Pow, {positive(odd), any(odd)});
  check_op(K::Fma, {any(odd), any(odd), any(odd)});
  Tile mask(DType::Bool, odd);
  for (size_t i = 0; i < mask.i.size(); i++) mask.i[i] = i % 3 == 1;
  check_op(K::Where, {mask, any(odd), any(odd)});

  // Narrow floats round, which counts as the identity: exact here, where the cotangent passes unchanged.
  for (DType t : {DType::F64, DType::F32, DType::BF16}) {
    Gradient g = gradient_of_op(K::Cast, {any(odd)}, attrs({{"dtype", t}}), {}, std::vector<double>(15, 2));
    for (double x : g.of[0].f) CHECK(x == 2);
    if (t == DType::F64) CHECK(g.right());
  }
  tried.insert(K::Cast);

  check_op(K::Reshape, {any(cube)}, attrs({{"shape", Ints{7, 15}}}));
  for (int64_t axis : {0, 1, 2}) check_op(K::ExpandDims, {any(odd)}, attrs({{"axis", axis}}));
  check_op(K::Broadcast, {any({3, 1, 7})}, attrs({{"shape", cube}}));
  check_op(K::Broadcast, {any({1, 5, 1})}, attrs({{"shape", cube}}));
  check_op(K::Broadcast, {any({})}, attrs({{"shape", cube}}));
  check_op(K::Transpose, {any(cube)}, attrs({{"perm", Ints{2, 0, 1}}}));
  check_op(K::Transpose, {any(cube)}, attrs({{"perm", Ints{0, 2, 1}}}));
  check_op(K::Concat, {any({3, 2, 7}), any({3, 1, 7}), any({3, 4, 7})}, attrs({{"axis", int64_t(1)}}));
  check_op(K::Slice, {any(cube)}, attrs({{"starts", Ints{1, 0, 3}}, {"sizes", Ints{2, 5, 1}}}));
  check_op(K::Insert, {any(cube), any({2, 5, 1})}, attrs({{"starts", Ints{1, 0, 3}}}));
  auto at = [](int64_t i) { return ints(DType::I64, {}, {i}); };
  check_op(K::DynSlice, {any(cube), at(1), at(0), at(4)}, attrs({{"sizes", Ints{1, 5, 3}}}));
  check_op(K::DynUpdate, {any(cube), any({1, 5, 3}), at(2), at(0), at(4)});

  for (int64_t axis : {0, 1, 2}) {
    for (K k : {K::ReduceSum, K::ReduceProd, K::ReduceMax, K::ReduceMin})
      check_op(k, {any(cube)}, attrs({{"axis", axis}}));
    for (int64_t reverse : {0, 1}) {
      for (K k : {K::CumSum, K::CumProd, K::CumMax, K::CumMin})
        check_op(k, {any(cube)}, attrs({{"axis", axis}, {"reverse", reverse}, {"exclusive", int64_t(0)}}));
      for (K k : {K::CumSum, K::CumProd})
        check_op(k, {any(cube)}, attrs({{"axis", axis}, {"reverse", reverse}, {"exclusive", int64_t(1)}}));
      // Exclusive extrema begin at an infinity.
      for (const char *scan : {"max(cummax(x, axis = {}, reverse = {}, exclusive = true), -9.0)",
                               "min(cummin(x, axis = {}, reverse = {}, exclusive = true), 9.0)"}) {
        Gradient g = gradient_of(
            "", "p", fmt::format("grad({}, wrt = x, out = c)", fmt::format(fmt::runtime(scan), axis, reverse != 0)),
            {{"x", any(cube)}, {"c", any(cube)}});
        INFO(g.text());
        CHECK(g.right());
      }
    }
  }
  check_op(K::Mma, {any({3, 5}), any({5, 7})});
  check_op(K::Mma, {any({3, 70}), any({70, 5}), any({3, 5})});
  check_op(K::Mma, {any({1, 1}), any({1, 300})});

  const std::set<K> control = {K::For, K::While, K::If}; // below
  for (K k : ir::all_ops())
    if (ir::def(k).derivative.kind == DK::Rule && !control.count(k)) {
      CAPTURE(std::string(ir::def(k).name.s));
      CHECK(tried.count(k));
    }
}

TEST_CASE("constant between steps: derivative 0") {
  Gradient g = gradient_of("", "p", "grad(sum(floor(x) + ceil(x) * round(x) - trunc(x) + x), wrt = x)",
                           {{"x", floats(DType::F64, {3}, {0.3, -1.7, 2.2})}});
  CHECK(g.of[0].f == std::vector<double>{1, 1, 1});
  CHECK(g.right());
}

TEST_CASE("kinks and infinities take one element of what the derivative could be") {
  auto of = [](const char *expression, std::vector<double> x) {
    int64_t n = int64_t(x.size());
    return gradient_of("", "p", fmt::format("grad({}, wrt = x)", expression), {{"x", floats(DType::F64, {n}, x)}})
        .of[0]
        .f;
  };
  using V = std::vector<double>;
  CHECK(of("sum(max(x, 0.0))", {-1, 0, 2}) == V{0, 1, 1}); // the first of equals
  CHECK(of("sum(max(0.0, x))", {-1, 0, 2}) == V{0, 0, 1});
  CHECK(of("sum(abs(x))", {-1, 0, 2}) == V{-1, 0, 1});
  CHECK(of("max(x)", {1, 3, 3, 2}) == V{0, 1, 0, 0});
  CHECK(of("min(x)", {2, 1, 3, 1}) == V{0, 1, 0, 0});
  CHECK(of("sum(cummax(x))", {1, 3, 3, 2}) == V{1, 3, 0, 0});
  CHECK(of("prod(x)", {2, 0, 3}) == V{0, 6, 0}); // no division by the element
  CHECK(of("prod(x)", {0, 0, 3}) == V{0, 0, 0});
  CHECK(of("sum(cumprod(x))", {2, 0, 3}) == V{1, 8, 0});
  // The side that is not taken may be infinite.
  CHECK(of("sum(where(x > 0.0, log(x), 0.0))", {-1, 0, 2}) == V{0, 0, 0.5});
  CHECK(of("sum(where(x > 0.0, sqrt(x), 0.0))", {0, 4}) == V{0, 0.25});
  CHECK(of("sum(where(x > 0.0, x * rsqrt(x), 0.0))", {0, 4}) == V{0, 0.25});
  CHECK(of("sum(exp(x))", {-kInf, 0}) == V{0, 1});
}

TEST_CASE("values in both operands, and in none") {
  Gradient g = gradient_of("", "p", "grad(sum(x * x + x), wrt = x)", {{"x", floats(DType::F64, {2}, {3, 5})}});
  CHECK(g.of[0].f == std::vector<double>{7, 11});
  g = gradient_of("", "(p, q)", "grad(sum(x * y), wrt = (y, x))",
                  {{"x", floats(DType::F64, {1}, {3})}, {"y", floats(DType::F64, {1}, {5})}});
  CHECK(g.of[0].f[0] == 3);
  CHECK(g.of[1].f[0] == 5);
  // A number of the source, or of a case, is a scalar here.
  g = gradient_of("const A = 3;", "p", "grad(sum(x * A) * A, wrt = A)", {{"x", floats(DType::F64, {2}, {3, 5})}});
  CHECK(g.of[0].shape.empty());
  CHECK(g.of[0].f[0] == 2 * 3 * 8);
  CHECK(g.right());
  // Named, but without influence: 0, of the shape of x.
  g = gradient_of("fn f(x, ON: bool) = ON ? sum(x) : 1.0;", "p", "grad(f(x, false), wrt = x)",
                  {{"x", Tile(DType::F64, {3, 2})}});
  CHECK(g.of[0].shape == Ints{3, 2});
  CHECK(g.of[0].f == std::vector<double>(6, 0));
}

TEST_CASE("several values, cotangents of some, and an integer between them") {
  const char *ref =
      "reference f(x: tensor<f64>[N], w: tensor<f64>[N]) -> (a: tensor<f64>[N], i: tensor<i32>[], b: f64) {"
      " return (x * w, argmax(x, axis = 0), sum(x * x * w)); }";
  Random r(5);
  std::vector<std::pair<std::string, Tile>> args = {
      {"x", random_tile(r, {5})}, {"w", random_tile(r, {5})}, {"da", random_tile(r, {5})}};
  Gradient g = gradient_of(ref, "(p, q)", "grad(f(x, w), wrt = (x, w), out = (da, 0, 2.0))", args);
  INFO(g.text());
  CHECK(g.right());
  const std::vector<double> &x = args[0].second.f, &w = args[1].second.f, &da = args[2].second.f;
  for (size_t k = 0; k < 5; k++) {
    CHECK(g.of[0].f[k] == doctest::Approx(da[k] * w[k] + 2 * 2 * x[k] * w[k]));
    CHECK(g.of[1].f[k] == doctest::Approx(da[k] * x[k] + 2 * x[k] * x[k]));
  }
  Gradient only = gradient_of(ref, "p", "grad(f(x, w), wrt = x, out = (0, 0, 1))", args);
  for (size_t k = 0; k < 5; k++) CHECK(only.of[0].f[k] == doctest::Approx(2 * x[k] * w[k]));
}

// ---- control flow: a reference f(x, w) of two arrays [T, D]
static void check_program(const char *body, int64_t t = 7, int64_t d = 3) {
  CAPTURE(body);
  Random r(9);
  std::string ref =
      fmt::format("reference f(x: tensor<f64>[T, D], w: tensor<f64>[T, D]) -> tensor<f64>[T, D] {{\n{}\n}}", body);
  Gradient g = gradient_of(
      ref, "(p, q)", "grad(f(x, w), wrt = (x, w), out = dy)",
      {{"x", random_tile(r, {t, d})}, {"w", random_tile(r, {t, d}, 0.5, 1.5)}, {"dy", random_tile(r, {t, d})}});
  INFO(g.text());
  CHECK(g.right());
}

TEST_CASE("loops, branches and state") {
  // A recurrence with its output array; the state is needed, the array is not.
  check_program("var h = zeros<f64>[D]; var o = x;\n"
                "for t in 0 : T { h = w[t, :] * h + x[t, :] * x[t, :]; o[t, :] = h * sin(h); }\nreturn o;");
  // The array itself is the state.
  check_program("var y = x;\nfor t in 1 : T { y[t, :] = w[t, :] * y[t - 1, :] * y[t, :]; }\nreturn y;");
  // Nested, with a step, variables that change places, an inner loop that runs no time, one that is not needed.
  check_program("var a = x; var b = w;\n"
                "for t in 0 : T step 2 {\n"
                "  for s in 0 : t { let c = a; a = b * 0.5; b = c * w + sin(b); }\n"
                "  for s in T : t { a = a * 2.0; }\n"
                "  var unused = a; for s in 0 : 3 { unused = unused * unused; }\n"
                "}\nreturn a * b;");
  // While: how often depends on the values.
  check_program(
      "var a = x; var n = 0;\nwhile sum(a * a) > 0.05 && n < 40 { a = a * (0.5 + 0.1 * sin(w)); n = n + 1; }\n"
      "return a * f64(n);");
  // Branches: both ways, in loops, with and without else, nested.
  check_program("var a = x;\n"
                "for t in 0 : T {\n"
                "  if sum(x[t, :]) > 0.0 { a[t, :] = exp(a[t, :]) * w[t, :]; }\n"
                "  else { if t > 3 { a = a * w; } else { a = tanh(a); } }\n"
                "  if t == 4 { for s in 0 : 3 { a = a * cos(a); } }\n"
                "}\nreturn a;");
  // An unrolled loop over parts, and a loop in a function.
  check_program("var a = x;\nunroll for t in 0 : 3 { a[t, :] = a[t + 1, :] * a[t, :]; }\n"
                "for t in 0 : T - 1 { a[t :+ 2, :] = a[t :+ 2, :] * w[t :+ 2, :]; }\nreturn a;");
  // Products and scans in a loop that carries a matrix.
  check_program("var S = zeros<f64>[D, D]; var o = zeros<f64>[T, D];\n"
                "for t in 0 : T { S = S * 0.9 + x[t, :][:, None] * w[t, :][None, :];\n"
                "  o[t, :] = reshape(mma(w[t, :][None, :], S), [D]) + cumsum(S, axis = 0)[D - 1, :]; }\nreturn o;");
  for (int64_t t : {0, 1, 2})
    check_program(
        "var y = x;\nfor t in 0 : T { y = y * w; }\nfor t in 1 : T { y[t, :] = y[t, :] * y[t - 1, :]; }\nreturn y;", t);
}

TEST_CASE("the values of a long loop are not all kept: they are found again") {
  // 300 states of 160 kB, more than are kept: S' = a S + x, so dS_0 = a^300 dS and dx = sum of a^k dS.
  const int64_t n = 300;
  Tile x(DType::F64, {200, 100}), dy = x;
  for (size_t k = 0; k < dy.f.size(); k++) dy.f[k] = double(k % 7) - 3;
  std::string ref = "reference f(x: tensor<f64>[M, N], a: f64) -> tensor<f64>[M, N] {\n"
                    "var S = x;\nfor t in 0 : 300 { S = a * S + x * x; }\nreturn S; }";
  for (double &v : x.f) v = 0.5;
  Expression e(ref, "p", "grad(f(x, 0.99), wrt = x, out = dy)", {{"x", x}, {"dy", dy}});
  INFO(e.diags.render_all());
  REQUIRE(e.host);
  interp::Launch l;
  l.function = e.host->fn.get();
  l.args = {x, dy};
  interp::Result result = interp::run(l);
  REQUIRE(!result.trap);
  const Tile &dx = std::get<Tile>(result.results[0]);
  double power = std::pow(0.99, n), factor = power + (1 - power) / (1 - 0.99) * 2 * 0.5;
  for (size_t k = 0; k < dx.f.size(); k += 997) CHECK(dx.f[k] == doctest::Approx(factor * dy.f[k]).epsilon(1e-12));

  // Where the state matters: y' = y w + y^2 / 1000, checked along directions.
  std::string square = "reference f(x: tensor<f64>[M, N], w: tensor<f64>[N]) -> f64 {\n"
                       "var y = x;\nfor t in 0 : 300 { y = y * w[None, :] + 0.001 * y * y; }\nreturn sum(y); }";
  Random r(4);
  Gradient g = gradient_of(square, "(p, q)", "grad(f(x, w), wrt = (x, w), out = 1.0)",
                           {{"x", random_tile(r, {120, 100})}, {"w", random_tile(r, {100}, 0.9, 1)}});
  INFO(g.text());
  CHECK(g.right());
}

// Gates of -1000, sequences without tokens, K != V, shared query heads, normalised keys; products and an online
// softmax.
TEST_CASE("references of samples: derivatives with respect to every float tensor") {
  const std::map<std::string, std::set<std::string>> samples = {
      {"kda_recurrent", {"q", "k", "v", "g", "beta", "s0"}}, {"kda_chain", {"v"}}, {"attention", {"q", "k", "v"}}};
  for (const auto &[name, tensors] : samples) {
    CAPTURE(name);
    SourceManager sources;
    Diagnostics diags{sources};
    auto program =
        sema::Program::load(sources.add("samples/" + name + ".tk", source_text("samples/" + name + ".tk")), diags);
    REQUIRE(program);
    driver::VerifyOptions o;
    o.compile.target = ir::find_target("sm_120");
    o.check_gradient = true;
    std::set<std::string> seen;
    const ast::Function *kernel = program->kernels().at(0);
    driver::verify_kernel(*program, *kernel, *program->check_for(kernel->name.text, false), o, diags,
                          [&](const driver::CaseResult &r) {
                            if (r.skipped) return;
                            CAPTURE(r.name);
                            CHECK(r.error.empty());
                            for (const driver::GradientCheck &g : r.gradients) {
                              INFO(g.to_string());
                              CHECK(g.pass());
                              seen.insert(g.name);
                            }
                          });
    CHECK(!diags.has_errors());
    for (const std::string &t : tensors) CHECK_MESSAGE(seen.count(t), t);
  }
}

TEST_CASE("the op is valid IR, and reads back as it prints") {
  Expression e("reference f(x: tensor<f64>[N]) -> (a: tensor<f64>[N], b: f64) {\n"
               "var a = x; for t in 0 : 3 { a = a * x; } return (a, sum(x)); }",
               "p", "grad(f(x), wrt = x, out = (dy, 0))",
               {{"x", Tile(DType::F64, {3})}, {"dy", Tile(DType::F64, {3})}});
  REQUIRE(e.host);
  ir::Function &f = *e.host->fn;
  CHECK(ir::verify(f, ir::Stage::typed).empty());
  std::string text = ir::print(f);
  auto back = ir::parse_ir(text, e.diags, -1);
  REQUIRE(back);
  CHECK(ir::print(*back) == text);
  ir::Op *grad = nullptr;
  ir::walk(f.body, [&](ir::Op *op) {
    if (op->kind == K::Grad) grad = op;
  });
  REQUIRE(grad);
  for (int fault : {0, 1, 2}) {
    auto broken = ir::parse_ir(text, e.diags, -1);
    ir::walk(broken->body, [&](ir::Op *op) {
      if (op->kind != K::Grad) return;
      if (fault == 0) op->operands.pop_back();                                      // no cotangent for the value
      if (fault == 1) op->regions.clear();                                          // nothing to differentiate
      if (fault == 2) op->regions[0]->args[0]->type = ir::Type::scalar(DType::F64); // not what comes in
    });
    CHECK(!ir::verify(*broken, ir::Stage::typed).empty());
  }
}

TEST_CASE("a trap on the way is a trap of the derivative") {
  Expression e(
      "reference f(x: tensor<f64>[N]) -> f64 { assert(min(x) > 0.0, \"x must be positive\"); return sum(log(x)); }",
      "p", "grad(f(x), wrt = x)", {{"x", Tile(DType::F64, {3})}});
  REQUIRE(e.host);
  interp::Launch l;
  l.function = e.host->fn.get();
  l.args = {floats(DType::F64, {3}, {1, 2, 3})};
  CHECK(!interp::run(l).trap);
  l.args = {floats(DType::F64, {3}, {1, -2, 3})};
  interp::Result r = interp::run(l);
  REQUIRE(r.trap);
  CHECK(r.trap->message == "assertion failed: x must be positive");
}

TEST_CASE("the check finds a wrong derivative") {
  // x^2 at 3 elements, with one element of the gradient off by 1e-4, of the wrong sign, or not a number.
  Tile x = floats(DType::F64, {3}, {1, 2, 3});
  Kit k;
  ir::Op op{};
  ir::Block region;
  ir::Value *arg = k.argument(&region, ir::Type::tile(DType::F64, {3}));
  arg->name = "x";
  op.kind = K::Grad;
  op.regions = {&region};
  for (auto [second, ok] :
       {std::pair{4.0, true}, {4.0004, false}, {-4.0, false}, {0.0, false}, {std::nan(""), false}}) {
    CAPTURE(second);
    interp::Launch::Gradient g{
        op, {x}, {floats(DType::F64, {3}, {2, second, 6})}, [](const std::vector<interp::Value> &in) {
          interp::Launch::Gradient::Sum s;
          for (double v : std::get<Tile>(in[0]).f) s.value += v * v, s.magnitude += v * v;
          return std::optional(s);
        }};
    driver::GradientChecker checker(1);
    checker.check(g);
    REQUIRE(checker.checks().size() == 1);
    CHECK(checker.checks()[0].pass() == ok);
  }
}
