// Operators are tested without the parentheses that compilers ask for.
#pragma GCC diagnostic ignored "-Wparentheses"
// Sema's interface: programs, instances, cases, host functions. What each construct becomes is in test/golden/sema,
// what is wrong with a program in test/golden/diagnostics.
#include "ir/print.h"
#include "ir/target.h"
#include "ir/verify.h"
#include "ir_kit.h"
#include "passes/cleanup.h"
#include "passes/pass_manager.h"
#include "sema/instance.h"
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <unistd.h>

using namespace tkc;
using namespace tkc::sema;

namespace {

struct Loaded {
  SourceManager sources;
  Diagnostics diags{sources};
  std::unique_ptr<Program> program;

  explicit Loaded(const std::string &text, const std::string &name = "t.tk") {
    program = Program::load(sources.add(name, text), diags);
  }
  const ast::Function &kernel(const std::string &name = "k") {
    const ast::Function *f = program->find(name, ast::FunctionKind::Kernel);
    REQUIRE(f);
    return *f;
  }
  const ast::Check &check(bool bench = false) {
    const ast::Check *c = program->check_for("k", bench);
    REQUIRE(c);
    return *c;
  }
  std::unique_ptr<ir::Function> instance(InstanceSpec spec = {}, const ir::Target *target = nullptr) {
    Diagnostics own(sources);
    auto fn = instantiate(*program, kernel(), spec, target, own);
    INFO(own.render_all());
    REQUIRE(fn);
    return fn;
  }
  std::string errors() {
    std::string out;
    for (const Diagnostic &d : diags.all()) out += d.text + "\n";
    return out;
  }
};

// A kernel that stores nothing but what `body` says.
std::string kernel_of(const std::string &body, const std::string &before = "") {
  return before + "kernel k(x: tensor<f32>[4, 8], y: out tensor<f32>[4, 8], n: i32) grid (1) warps 1 {\n" + body +
         "\nstore(y[:, :], zeros<f32>[4, 8]);\n}\n";
}
std::string errors_of(const std::string &body, const std::string &before = "") {
  Loaded l(kernel_of(body, before));
  if (l.program && !l.diags.has_errors()) instantiate(*l.program, l.kernel(), {}, nullptr, l.diags);
  return l.errors();
}

int64_t count_ops(ir::Function &f, ir::OpKind kind) {
  int64_t n = 0;
  ir::walk(f.body, [&](ir::Op *op) { n += op->kind == kind; });
  return n;
}

// Runs a host function on given tiles and returns its results.
std::vector<interp::Tile> run(const HostFunction &h, std::vector<interp::Value> args) {
  interp::Launch launch;
  launch.function = h.fn.get();
  launch.args = std::move(args);
  interp::Result r = interp::run(launch);
  INFO((r.trap ? r.trap->message : ""));
  REQUIRE(!r.trap);
  std::vector<interp::Tile> out;
  for (interp::Value &v : r.results) out.push_back(std::get<interp::Tile>(v));
  return out;
}
interp::Tile floats(std::vector<int64_t> shape, std::vector<double> values) {
  interp::Tile t(DType::F64, std::move(shape));
  t.f = std::move(values);
  return t;
}

// A folder that is removed with its contents.
struct Scratch {
  std::filesystem::path folder = std::filesystem::temp_directory_path() / ("tkc-sema-" + std::to_string(::getpid()));
  Scratch() { std::filesystem::create_directories(folder); }
  ~Scratch() { std::filesystem::remove_all(folder); }
  std::string write(const std::string &name, const std::string &text) {
    std::ofstream((folder / name).string()) << text;
    return (folder / name).string();
  }
};

} // namespace

// ---- compile-time values

// The C++ compiler says what the expression is worth.
#define WORTH(e)                                                                                                       \
  { #e, int64_t(e) }
TEST_CASE("integer expressions bind and compute as in C") {
  const std::pair<const char *, int64_t> list[] = {WORTH(1 + 2 * 3),       WORTH(7 - 4 - 2),
                                                   WORTH(100 / 7 % 5),     WORTH(-7 / 2),
                                                   WORTH(-7 % 2),          WORTH(1 << 2 + 3),
                                                   WORTH((1 << 2) + 3),    WORTH(6 & 3 | 8 ^ 2),
                                                   WORTH(1 | 2 == 2),      WORTH(1 < 2 == 1),
                                                   WORTH(~5 & 15),         WORTH(!0 + 1),
                                                   WORTH(-(-3) - -3),      WORTH(1 || 0 && 0),
                                                   WORTH(3 > 2 ? 10 : 20), WORTH(0 ? 1 : 0 ? 2 : 3),
                                                   WORTH(-9 >> 1),         WORTH(5 != 4 && 4 <= 4 && 4 >= 5 || 2 < 1),
                                                   WORTH(0x1F + 0b101),    WORTH(9223372036854775807 - 1)};
  for (const auto &[text, value] : list) {
    CAPTURE(text);
    CHECK(errors_of(fmt::format("static_assert(({}) == {});", text, value)) == "");
    CHECK(errors_of(fmt::format("static_assert(({}) != {});", text, value)) != "");
  }
}

TEST_CASE("compile-time functions and constants") {
  for (const char *fact : {"cdiv(7, 2) == 4",
                           "cdiv(-7, 2) == -3",
                           "cdiv(8, 2) == 4",
                           "cdiv(0, 5) == 0",
                           "min(3, -4) == -4",
                           "max(3, 4) == 4",
                           "abs(-5) == 5",
                           "sqrt(16) == 4.0",
                           "exp2(3) == 8.0",
                           "pow(2, 10) == 1024.0",
                           "floor(-1.5) == -2.0",
                           "min(9007199254740993, 9007199254740992) == 9007199254740992",
                           "max(1, 1.5) == 1.5",
                           "inf > 1e300",
                           "!(nan == nan)",
                           "1.5 * 2 == 3",
                           "7 / 2 == 3",
                           "7 / 2.0 == 3.5",
                           "true && !false",
                           "(1, 2, 3)[1] == 2",
                           "f32 == f32",
                           "f32 != bf16",
                           "A == 6",
                           "B[1] == 8",
                           "Act.relu == Act.relu",
                           "Act.relu != Act.none",
                           "x.dtype == f32",
                           "y.dtype != i32"})
    CHECK(errors_of(fmt::format("static_assert({});", fact), "const A = 2 * C;\nconst B = (A, 8);\nconst C = 3;\n"
                                                             "enum Act { none, relu }\n") == "");
}

TEST_CASE("shapes are tuples; branches that are not taken may hold anything") {
  CHECK(errors_of("let t = load(x[:, :]); static_assert(t.shape[0] == 4 && t.shape[1] == 8);\n"
                  "static_assert(t.T.shape[0] == 8); static_assert(t[:, None, 2 :].shape[2] == 6);\n"
                  "static_assert(sum(t, axis = 0).shape[0] == 8);\n"
                  "if t.shape[0] == 5 { let u = nothing + 1; }\n"
                  "let v = 1 == 1 || nothing; let w = 1 == 2 && nothing;") == "");
}

// ---- programs

TEST_CASE("a program lists its files, kernels and checks") {
  Scratch s;
  s.write("deep.tk", "fn deep(a) = a;\nconst D = 1;\n");
  s.write("left.tk", "import \"deep.tk\";\nfn left(a) = deep(a);\nfn both(a) = a + 1.0;\n");
  s.write("right.tk", "import \"deep.tk\";\nfn right(a) = deep(a);\nfn both(a) = a + 2.0;\n");
  std::string text = "import \"left.tk\";\nimport \"right.tk\";\n" +
                     kernel_of("let a = left(x[0, 0 :+ 4].dtype == f32 ? 1.0 : 2.0) + right(1.0) + both(1.0);") +
                     "kernel l(y: out tensor<f32>[4]) grid (1) { store(y[0], 1.0); }\n"
                     "reference r() -> tensor<f64>[4] { return zeros<f64>[4]; }\n"
                     "verify l { y = r(); case one: y = 1; }\n";
  // A file imported twice is read once.
  Loaded l(text, (s.folder / "main.tk").string());
  CHECK(l.errors() == "");
  REQUIRE(l.program);
  CHECK(l.program->files().size() == 4);
  CHECK(l.program->kernels().size() == 2);
  CHECK(l.program->kernels()[1]->name.text == "l");
  CHECK(l.program->check_for("l", false));
  CHECK(!l.program->check_for("l", true));
  CHECK(!l.program->check_for("k", false));
  CHECK(l.program->find("r", ast::FunctionKind::Reference));
  CHECK(!l.program->find("r", ast::FunctionKind::Kernel));
  // Imports are not passed on.
  CHECK(!l.program->find("deep", ast::FunctionKind::Fn));
  CHECK(l.program->root().functions.count("left"));
  CHECK(!l.program->root().consts.count("D"));
  // Of two imports that bring one name the first is kept.
  const ast::Function *both = l.program->find("both", ast::FunctionKind::Fn);
  REQUIRE(both);
  CHECK(l.sources.file(both->loc.file).name().ends_with("left.tk"));
}

TEST_CASE("one fault is one message") {
  for (const char *body :
       {"let a = nothing; let b = a + 1; let c = exp(b)[0, :]; let d = mma(c, c); store(y[0, :], d);",
        "let a = zeros<f32>[n]; let b = a + a; var c = a; for i in 0 : n { c = c * b; } store(y[:, :], c);",
        "var a = nothing; if n > 1 { a = 1; } while a > 1 { a -= 1; } let b = a;",
        "for i in 0 : nothing { let a = i + 1; store(y[i, :], zeros<f32>[8] + f32(a)); }",
        "if nothing { let a = 1; } else { let b = 2; }", "let (a, b) = nothing; let c = a * b;",
        "let t = load(x[nothing, :]); let u = t.T + 1.0;", "let a = f(1, 2); let b = a;"}) {
    CAPTURE(body);
    std::string errors = errors_of(body, "fn f(a) = a;\n");
    CHECK(std::count(errors.begin(), errors.end(), '\n') == 1);
  }
}

// ---- instances

TEST_CASE("an instance binds parameters from text, defaults and other parameters") {
  Loaded l(
      "enum Act { none, relu }\n"
      "kernel k<N: int, M: int = N * 2, T: type = bf16, F: bool = true, A: Act = Act.none>(y: out tensor<T>[M, N]) "
      "grid (cdiv(M, 4), N) { store(y[0, 0], F ? 1 : 2); }");
  InstanceSpec spec;
  spec.params = {{"N", "0x10"}, {"unrelated", "7"}};
  auto fn = l.instance(spec);
  std::vector<std::pair<std::string, std::string>> want = {
      {"N", "16"}, {"M", "32"}, {"T", "bf16"}, {"F", "true"}, {"A", "Act.none"}};
  CHECK(fn->bindings == want);
  CHECK(fn->params[0].type == ir::Type::tensor(DType::BF16, {32, 16}));
  CHECK(fn->grid[0].value() == 8);
  CHECK(fn->grid[1].value() == 16);
  spec.params = {{"N", "-0x1"}, {"M", "3"}, {"T", "e4m3"}, {"F", "0"}, {"A", "relu"}};
  CHECK(!instantiate(*l.program, l.kernel(), spec, nullptr, l.diags)); // a negative extent
  spec.params["N"] = "5";
  fn = l.instance(spec);
  CHECK(fn->bindings[3].second == "false");
  CHECK(fn->bindings[4].second == "Act.relu");
  CHECK(fn->params[0].type == ir::Type::tensor(DType::E4M3, {3, 5}));
}

TEST_CASE("sizes are arguments after the parameters, in order of first use") {
  Loaded l("const C = 3;\nkernel k(a: tensor<f32>[B, M * 2], n: i64, b: tensor?<f32>[N, B, C], y: out tensor<f32>[M]) "
           "grid (M, cdiv(N, 2)) where M % 4 == 0, N > B { store(y[0], 1.0); }");
  auto fn = l.instance();
  CHECK(fn->sizes == std::vector<std::string>{"B", "M", "N"});
  CHECK(fn->body->args.size() == 7);
  CHECK(fn->size_value("M")->type == ir::Type::scalar(DType::I32));
  CHECK(fn->params[0].dims[1].str() == "M * 2");
  CHECK(fn->params[2].dims[2].value() == 3);
  CHECK(fn->grid[1].str() == "cdiv(N, 2)");
  REQUIRE(fn->facts.size() == 2);
  CHECK(fn->facts[0].str() == "M % 4 == 0");
  CHECK(l.sources.text(fn->fact_locs[1]) == "N > B");
  CHECK(fn->warps == 0);
  // One variant per presence.
  InstanceSpec spec;
  spec.absent = {"b"};
  auto other = l.instance(spec);
  CHECK(other->body->args.size() == 6);
  CHECK(!other->params[2].present);
  CHECK(other->param_value("b") == nullptr);
  spec.absent = {"a"}; // not optional: always there
  CHECK(l.instance(spec)->params[0].present);
}

TEST_CASE("an instance is valid IR and the same every time") {
  for (const auto &entry : std::filesystem::directory_iterator(std::string(TKC_SOURCE_DIR) + "/samples")) {
    if (entry.path().extension() != ".tk") continue;
    CAPTURE(entry.path().string());
    std::ifstream in(entry.path());
    std::string text((std::istreambuf_iterator<char>(in)), {});
    SourceManager sources;
    Diagnostics diags(sources);
    auto program = Program::load(sources.add(entry.path().string(), text), diags);
    INFO(diags.render_all());
    REQUIRE(program);
    for (const ast::Function *k : program->kernels()) {
      const ast::Check *check = program->check_for(k->name.text, false);
      if (!check) continue;
      for (const ast::Case &c : check->cases) {
        auto spec = evaluate_case(*program, *k, *check, c, diags);
        REQUIRE(spec);
        auto a = instantiate(*program, *k, spec->spec, &ir::default_target(), diags);
        auto b = instantiate(*program, *k, spec->spec, nullptr, diags);
        REQUIRE(a);
        REQUIRE(b);
        CHECK(ir::verify(*a, ir::Stage::typed).empty());
        CHECK(ir::print(*a) == ir::print(*b));
      }
    }
  }
}

TEST_CASE("program ids of one axis are one value after common subexpressions") {
  Loaded l("kernel k(y: out tensor<f32>[M, N]) grid (M, N) {\n"
           "let (i, j) = program_id(); let (a, b) = program_id() * (2, 3); let c = program_id(1);\n"
           "store(y[i + a, j + b + c], f32(num_programs(0) + num_programs(0))); }");
  auto fn = l.instance();
  CHECK(count_ops(*fn, ir::OpKind::ProgramId) == 5);
  const ir::Target &target = ir::default_target();
  passes::PassContext context{target, ir::default_part(target), l.diags, {}};
  passes::common_subexpressions(*fn, context);
  passes::dead_code(*fn, context);
  CHECK(count_ops(*fn, ir::OpKind::ProgramId) == 2);
  CHECK(count_ops(*fn, ir::OpKind::NumPrograms) == 1);
}

TEST_CASE("functions are inlined as often and as deep as they are called") {
  std::string chain = "fn f0(a) = a * 2.0;\n";
  for (int i = 1; i < 60; i++) chain += fmt::format("fn f{}(a) = f{}(a) + 1.0;\n", i, i - 1);
  Loaded l(kernel_of("let t = load(x[:, :]); store(y[:, :], f59(t) + f59(t));", chain));
  auto fn = l.instance();
  CHECK(count_ops(*fn, ir::OpKind::Mul) == 2);
  CHECK(count_ops(*fn, ir::OpKind::Add) == 2 * 59 + 1);
}

TEST_CASE("ops are refused on targets that lack them") {
  Loaded l(kernel_of("let a = inline_ptx(\"mov.b32 $0, $1;\", n, result = i32, min_sm = 90);"));
  CHECK(!instantiate(*l.program, l.kernel(), {}, ir::find_target("sm_89"), l.diags));
  CHECK(l.errors() == "`inline_ptx` needs sm_90 or later, the target is sm_89\n");
  CHECK(l.instance({}, ir::find_target("sm_90")));
  CHECK(l.instance({}, nullptr));
}

// ---- cases, inputs, expected values, counts

static const char *const kChecked =
    "enum Act { none, relu }\n"
    "kernel k<N: int = 8, T: type = f32, F: bool = false, A: Act = Act.none>(x: tensor<f32>[M, N], i: tensor<i32>[M], "
    "m: tensor<bool>[M], b: tensor?<f32>[N], s: f32, y: out tensor<f32>[M, N], z: out tensor<f32>[M]) grid (M) {\n"
    "store(y[0, :], load(x[0, :])); store(z[0], s); }\n"
    "reference r(x: tensor<f64>[M, N], s: f64, F: bool) -> (y: tensor<f64>[M, N], z: tensor<f64>[M]) {\n"
    "return (x * s + (F ? 1.0 : 0.0), sum(x, axis = 1)); }\n"
    "verify k {\n"
    "let H = M * 2;\n"
    "(y, z) = r(x, s, F);\n"
    "input x = normal(0, 1) * 2.0 + uniform(-1, 1);\n"
    "input i = integers(0, H);\n"
    "input m = bernoulli(0.25);\n"
    "input b = constant(3) + x[0, :];\n"
    "case small: M = 3, N = 4, s = 0.5, F = true, A = relu, T = bf16, b = none;\n"
    "case large: M = 2 * 8, N = M + 1, s = -2 on gpu;\n"
    "case named: M = 1, s = 1, A = Act.relu;\n"
    "}\n"
    "bench k { let E = 4; bytes = E * M * N; flops = bytes * 2.5; case a: M = 3, N = 5; }\n";

TEST_CASE("cases") {
  Loaded l(kChecked);
  REQUIRE(l.errors() == "");
  auto at = [&](size_t k) {
    auto c = evaluate_case(*l.program, l.kernel(), l.check(), l.check().cases[k], l.diags);
    INFO(l.diags.render_all());
    REQUIRE(c);
    return *c;
  };
  CaseSpec small = at(0), large = at(1), named = at(2);
  CHECK(small.name == "small");
  CHECK(small.numbers == Numbers{{"M", 3}, {"N", 4}, {"s", 0.5}, {"F", 1}});
  CHECK(small.spec.params.at("A") == "relu");
  CHECK(small.spec.params.at("T") == "bf16");
  CHECK(small.spec.params.at("F") == "true");
  CHECK(small.spec.absent == std::set<std::string>{"b"});
  CHECK(!small.gpu_only);
  CHECK(large.gpu_only);
  CHECK(large.numbers.at("M") == 16);
  CHECK(large.numbers.at("N") == 17); // settings see those before them
  CHECK(large.numbers.at("s") == -2);
  CHECK(large.spec.absent.empty());
  CHECK(named.spec.params.at("A") == "Act.relu");
  // What a case says is what an instance takes.
  CHECK(l.instance(small.spec)->param_value("x")->type == ir::Type::tensor(DType::F32, {ir::kDynamic, 4}));
}

TEST_CASE("inputs are functions of generators and earlier inputs") {
  Loaded l(kChecked);
  Numbers numbers = {{"M", 2}, {"N", 3}};
  const std::vector<ast::Input> &inputs = l.check().inputs;
  auto x = build_input(*l.program, l.check(), inputs[0], numbers, {}, {"x", DType::F64, {2, 3}}, l.diags);
  INFO(l.diags.render_all());
  REQUIRE(x);
  CHECK(x->outputs == std::vector<std::string>{"x"});
  REQUIRE(x->generators.size() == 2);
  CHECK(x->generators[0].kind == "normal");
  CHECK(x->generators[1].kind == "uniform");
  CHECK(x->generators[1].args == std::vector<double>{-1, 1});
  CHECK(x->fn->params[1].type == ir::Type::tile(DType::F64, {2, 3}));
  CHECK(run(*x, {floats({2, 3}, {1, 2, 3, 4, 5, 6}), floats({2, 3}, {0, 1, 0, 1, 0, 1})})[0].f ==
        std::vector<double>{2, 5, 6, 9, 10, 13});
  // Numbers of the case and of `let` are arguments of generators; integers and coins have their own dtypes.
  auto i = build_input(*l.program, l.check(), inputs[1], numbers, {}, {"i", DType::I64, {2}}, l.diags);
  REQUIRE(i);
  CHECK(i->generators[0].args == std::vector<double>{0, 4});
  CHECK(i->fn->params[0].type == ir::Type::tile(DType::I64, {2}));
  auto m = build_input(*l.program, l.check(), inputs[2], numbers, {}, {"m", DType::Bool, {2}}, l.diags);
  REQUIRE(m);
  CHECK(m->fn->params[0].type == ir::Type::tile(DType::Bool, {2}));
  // An earlier input by its name.
  auto b = build_input(*l.program, l.check(), inputs[3], numbers, {{"x", DType::F64, {2, 3}}}, {"b", DType::F64, {3}},
                       l.diags);
  REQUIRE(b);
  REQUIRE(b->fn->params.size() == 2);
  CHECK(run(*b, {floats({2, 3}, {1, 2, 3, 4, 5, 6}), floats({3}, {3, 3, 3})})[0].f == std::vector<double>{4, 5, 6});
}

TEST_CASE("an input of another shape or dtype is an error") {
  auto build = [](const std::string &value, DType t, std::vector<int64_t> shape) {
    Loaded l(kernel_of("") + "verify k { y = x; input x = " + value + "; case a: n = 1; }\n");
    CHECK(l.errors() == "");
    build_input(*l.program, l.check(), l.check().inputs[0], {}, {}, {"x", t, std::move(shape)}, l.diags);
    return l.errors();
  };
  CHECK(build("2", DType::F64, {4, 8}) == "");
  CHECK(build("iota(8)", DType::F64, {4, 8}) == ""); // converted, and repeated along dim 0
  CHECK(build("zeros<f64>[3, 8]", DType::F64, {4, 8}) ==
        "the input: shapes [3, 8] and [4, 8] do not fit: dim 0 is 3 against 4\n");
  CHECK(build("zeros<f64>[4, 8, 2]", DType::F64, {4, 8}) == "expected tile<f64>[4, 8], found tile<f64>[4, 8, 2]\n");
  CHECK(build("\"text\"", DType::F64, {4, 8}) == "a string is not a value here\n");
  CHECK(build("normal(0, 1)", DType::I64, {4}) == "");
}

TEST_CASE("expected values come from references, with the numbers of the case") {
  Loaded l(kChecked);
  auto h = build_expected(*l.program, l.check(), l.check().bindings[0], {{"M", 2}, {"N", 2}, {"s", 3}, {"F", 1}},
                          {{"x", DType::F64, {2, 2}}, {"b", DType::F64, {}, true}}, l.diags);
  INFO(l.diags.render_all());
  REQUIRE(h);
  CHECK(h->outputs == std::vector<std::string>{"y", "z"});
  std::vector<interp::Tile> r = run(*h, {floats({2, 2}, {1, 2, 3, 4})});
  REQUIRE(r.size() == 2);
  CHECK(r[0].f == std::vector<double>{4, 7, 10, 13});
  CHECK(r[1].f == std::vector<double>{3, 7});
}

TEST_CASE("references: run-time slices, empty arrays, loops and state") {
  Loaded l(kernel_of("") + "reference r(x: tensor<f64>[M, N]) -> tensor<f64>[M, N] {\n"
                           "var out = zeros<f64>[M, N]; var h = zeros<f64>[N];\n"
                           "for t in 0 : M { h = h * 0.5 + x[t, :]; out[t, :] = h; if t == 1 { out[t, 0] = -1.0; } }\n"
                           "for t in M - 1 : M { out[t :+ 1, N - 1 :+ 1] = out[t :+ 1, 0 :+ 1] + x[0, 0]; }\n"
                           "return out; }\n"
                           "verify k { y = r(x); case a: n = 1; }\n");
  REQUIRE(l.errors() == "");
  auto build = [&](int64_t m) {
    return build_expected(*l.program, l.check(), l.check().bindings[0], {}, {{"x", DType::F64, {m, 2}}}, l.diags);
  };
  auto h = build(3);
  INFO(l.diags.render_all());
  REQUIRE(h);
  CHECK(run(*h, {floats({3, 2}, {2, 4, 6, 8, 10, 12})})[0].f == std::vector<double>{2, 4, -1, 10, 13.5, 15.5});
  CHECK(h->fn->params[0].type == ir::Type::tile(DType::F64, {3, 2}));
}

TEST_CASE("counts of a bench block") {
  Loaded l(kChecked);
  auto counts = evaluate_counts(*l.program, l.check(true), {{"M", 3}, {"N", 5}}, l.diags);
  CHECK(counts == std::map<std::string, double>{{"bytes", 60}, {"flops", 150}});
  CHECK(l.errors() == "");
}
