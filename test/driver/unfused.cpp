// `--baseline unfused`: samples as one launch per tensor op are verified as any variant is.
#include "driver/instance.h"
#include "driver/verify.h"
#include "ir/target.h"
#include "syntax/parse.h"
#include <doctest/doctest.h>

using namespace tkc;
using namespace tkc::driver;

namespace {
struct Loaded {
  SourceManager sources;
  Diagnostics diags{sources};
  std::unique_ptr<sema::Program> program;
  explicit Loaded(const std::string &text, const std::string &name = "k.tk") {
    program = sema::Program::load(sources.add(name, text), diags);
    REQUIRE_MESSAGE(program, diags.render_all());
  }
  static std::string file(const std::string &path) {
    SourceManager sources;
    Diagnostics diags(sources);
    auto id = read_source(std::string(TKC_SOURCE_DIR) + "/" + path, sources, diags);
    REQUIRE_MESSAGE(id, path);
    return std::string(sources.file(*id).text());
  }
  const ast::Function *find(const std::string &name) {
    for (auto kind : {ast::FunctionKind::Program, ast::FunctionKind::Kernel})
      if (auto *f = program->find(name, kind)) return f;
    return nullptr;
  }
  // Every case but those for a GPU alone; how many passed.
  int verify(const std::string &name, Executor executor, const std::string &only = "") {
    VerifyOptions o;
    o.executor = executor;
    o.compile.target = ir::find_target("sm_90");
    o.unfused = true;
    o.only_case = only;
    int passed = 0;
    const ast::Check *check = program->check_for(name, false);
    REQUIRE(check);
    verify_kernel(*program, *find(name), *check, o, diags, [&](const CaseResult &r) {
      std::string why = r.error;
      for (const auto &[output, c] : r.outputs) why += c.to_string(output);
      CHECK_MESSAGE((r.skipped || r.pass()), r.kernel, ".", r.name, ": ", why);
      passed += !r.skipped && r.pass();
    });
    CHECK_MESSAGE(!diags.has_errors(), diags.render_all());
    return passed;
  }
  std::optional<Instance> instance(const std::string &name, const sema::InstanceSpec &spec = {}) {
    auto i = make_unfused(*program, *find(name), spec, *ir::find_target("sm_90"), diags);
    REQUIRE_MESSAGE(i, diags.render_all());
    return i;
  }
};

// "cast sub [mul exp]": launches in order, loops in brackets, without the kernel's name and number.
std::string shape(const sema::HostProgram &p, const std::vector<sema::HostStmt> &stmts) {
  std::string out;
  for (const sema::HostStmt &s : stmts) {
    std::string one;
    if (s.kind == sema::HostStmt::Kind::Launch) {
      std::string name = p.kernels[s.kernel].name;
      size_t at = name.find("unfused_");
      one = at == name.npos ? name : name.substr(at + 8, name.rfind('_') - at - 8);
    } else if (s.kind == sema::HostStmt::Kind::For) {
      one = "[" + shape(p, s.body) + "]";
    }
    if (!one.empty()) out += (out.empty() ? "" : " ") + one;
  }
  return out;
}
} // namespace

TEST_CASE("a launch per tensor op: what is one") {
  Loaded softmax(Loaded::file("samples/softmax.tk"));
  auto i = softmax.instance("softmax");
  CHECK(shape(*i->program, i->program->body) == "reduce_max sub exp reduce_sum div");
  CHECK(i->remarks.empty());
  // A product over a long dim is one op, stored with it.
  Loaded gemm(Loaded::file("samples/gemm.tk"));
  i = gemm.instance("gemm");
  CHECK(shape(*i->program, i->program->body) == "for store");
  // The state of the chain lies in one tensor: the product that updates it writes there.
  Loaded chain(Loaded::file("samples/kda_chain.tk"));
  i = chain.instance("kda_chain");
  CHECK(shape(*i->program, i->program->body) == "load copy [mma sub mul mma mma mul mma] store");
  // Branches and loops that blocks run a different number of times, and one that only the GPU can count.
  Loaded mixed(R"(
kernel k(x: tensor<f32>[M, 32], n: tensor<i32>[M], y: out tensor<f32>[M, 32]) grid (cdiv(M, 3)) {
    let p = program_id(0);
    var s = zeros<f32>[32];
    for i in p * 3 : min(p * 3 + 3, M) {
        let t = load(x[i, :]);
        if i % 2 == 0 { s = s + exp(t); } else { s = t; }
        for j in 0 : load(n[i]) { s = s * 0.5; }
        store(y[i, :], s);
    }
}
reference k_ref(x: tensor<f64>[M, 32], n: tensor<i64>[M]) -> tensor<f64>[M, 32] {
    var y = zeros<f64>[M, 32];
    for p in 0 : cdiv(M, 3) {
        var s = zeros<f64>[32];
        for i in p * 3 : min(p * 3 + 3, M) {
            if i % 2 == 0 { s = s + exp(x[i, :]); } else { s = x[i, :]; }
            for j in 0 : n[i] { s = s * 0.5; }
            y[i, :] = s;
        }
    }
    return y;
}
verify k { y = k_ref(x, n); input n = integers(0, 4); case a: M = 11; case one: M = 1; case none: M = 3; })");
  i = mixed.instance("k");
  CHECK(shape(*i->program, i->program->body) == "copy [exp add copy for store]"); // the whole `for` writes s itself
  REQUIRE(i->remarks.size() == 1);
  CHECK(i->remarks[0] == "k: a `for` stays one launch: how often it runs is known to the GPU alone");
  CHECK(mixed.verify("k", Executor::Interp) == 3);
  CHECK(mixed.verify("k", Executor::Emu) == 3);
}

TEST_CASE("values that change places in a loop, and what is read after it was replaced") {
  Loaded l(R"(
kernel k(x, y: tensor<f32>[32], n: i32, p, q: out tensor<f32>[32]) grid (1) {
    var a = load(x[:]);
    var b = load(y[:]);
    for i in 0 : n {
        let t = a + b;
        let old = a;
        a = b;
        b = t * 0.5 + old;
    }
    store(p[:], a);
    store(q[:], b);
}
reference k_ref(x, y: tensor<f64>[32], n: i32) -> (tensor<f64>[32], tensor<f64>[32]) {
    var a = x;
    var b = y;
    for i in 0 : n {
        let t = a + b;
        let old = a;
        a = b;
        b = t * 0.5 + old;
    }
    return (a, b);
}
verify k { (p, q) = k_ref(x, y, n); case none: n = 0; case some: n = 5; })");
  CHECK(l.verify("k", Executor::Interp) == 2);
  CHECK(l.verify("k", Executor::Emu) == 2);
}

TEST_CASE("samples as tensor ops") {
  struct Case {
    const char *file, *name;
    Executor executor;
  };
  for (const Case &c : std::initializer_list<Case>{{"softmax", "softmax", Executor::Emu},
                                                   {"layer_norm", "layer_norm", Executor::Interp},
                                                   {"rms_norm", "rms_norm", Executor::Interp},
                                                   {"gemm", "gemm", Executor::Interp},
                                                   {"cumsum", "row_cumsum", Executor::Interp},
                                                   {"attention", "attention", Executor::Interp},
                                                   {"kda_chain", "kda_chain", Executor::Interp},
                                                   {"split_gemm", "split_gemm", Executor::Interp},
                                                   {"embedding", "embedding", Executor::Interp}}) {
    CAPTURE(c.name);
    Loaded l(Loaded::file(std::string("samples/") + c.file + ".tk"));
    CHECK(l.verify(c.name, c.executor) > 0);
  }
}

TEST_CASE("every feature of the language as tensor ops") {
  for (const char *file : {"control_flow", "memory", "parameters", "products", "programs", "reductions", "roles",
                           "scalar_types", "shapes", "atomics", "pipelines"}) {
    CAPTURE(file);
    Loaded l(Loaded::file(std::string("test/features/") + file + ".tk"));
    int passed = 0;
    for (const auto &list : {l.program->kernels(), l.program->programs()})
      for (const ast::Function *f : list)
        if (l.program->check_for(f->name.text, false)) passed += l.verify(f->name.text, Executor::Interp);
    CHECK(passed > 0);
  }
}

TEST_CASE("KDA as tensor ops: the chunked form with one launch an op") {
  Loaded l(Loaded::file("samples/kda_forward.tk"));
  const ast::Check *check = l.program->check_for("kda_forward", false);
  REQUIRE(check);
  // The first case without and with packed sequences.
  CHECK(l.verify("kda_forward", Executor::Interp, check->cases[0].name.text) == 1);
}
