// Loops whose loads run ahead, and what depends on what in them.
#include "public_bugs/kit.h"

using namespace tkc;
using namespace public_bugs;

// 1: With asynchronous products a scheduler put two links of one accumulator's chain into different stages and swapped
// them.
TEST_CASE("two products that update one value in a loop keep their order") {
  const char *text = R"(
kernel f(a, b: tensor<bf16>[16, K], y: out tensor<f32>[16, 16]) grid (1) warps 1 {
    var s = ones<f32>[16, 16];
    for k in 0 : K step 16 {
        s = 0.125 * mma(load(a[:, k :+ 16]), bf16(s), s);
        s = 0.125 * mma(load(b[:, k :+ 16]), bf16(s), s);
    }
    store(y[:, :], s);
}
reference f_ref(a: tensor<f64>[16, K], b: tensor<f64>[16, K]) -> tensor<f64>[16, 16] {
    var s = ones<f64>[16, 16];
    for i in 0 : K / 16 {
        s = 0.125 * (mma(a[:, 16 * i :+ 16], bf16(s)) + s);
        s = 0.125 * (mma(b[:, 16 * i :+ 16], bf16(s)) + s);
    }
    return s;
}
verify f { y = f_ref(a, b);  case three: K = 48;  case one: K = 16;  tolerance y: rms 2e-2; }
kernel sum(a1, a2: tensor<bf16>[16, K], b1, b2: tensor<bf16>[K, 16], y: out tensor<f32>[16, 16]) grid (1) warps 1 {
    var s = zeros<f32>[16, 16];
    for k in 0 : K step 16 {
        s = mma(load(a1[:, k :+ 16]), load(b1[k :+ 16, :]), s);
        s = mma(load(a2[:, k :+ 16]), load(b2[k :+ 16, :]), s);
    }
    store(y[:, :], s);
}
verify sum { y = mma(a1, b1) + mma(a2, b2);  case five: K = 80;  tolerance y: rms 1e-2; }
)";
  holds(text, "f");
  holds(text, "sum");
  auto c = compiled(text, "sum", "sm_80");
  CHECK(rings_of(*c->kernel->function).size() == 1); // it does run ahead
}

// 2: A slot was filled again before a branch behind the next copy had used the value loaded from it.
TEST_CASE("a loaded index that only a branch uses is that of its iteration") {
  const char *text = R"(
kernel f(x: tensor<f32>[N, 64], at: tensor<i32>[N], w: tensor<i32>[N], y: inout tensor<f32>[N, 64]) grid (1) warps 2 {
    @pipeline(stages = 2)
    for i in 0 : N {
        let t = load(x[i, :]);
        let id = load(at[i :+ 1]);
        if i % 3 != 1 { store(y[id, :], t[None, :]); }
    }
}
reference f_ref(x: tensor<f64>[N, 64], at: tensor<i64>[N], y: tensor<f64>[N, 64]) -> tensor<f64>[N, 64] {
    var z = y;
    for i in 0 : N { if i % 3 != 1 { z[at[i], :] = x[i, :]; } }
    return z;
}
verify f { y = f_ref(x, at, y);  input at = (iota(N) * 5 + 3) % N;  case odd: N = 11;  case two: N = 2; }
)";
  holds(text, "f");
  CHECK(rings_of(*compiled(text, "f")->kernel->function).size() == 1);
}

// 3: The number of slots counted from the first user of a tile, and a later product read what had been overwritten.
TEST_CASE("a tile that feeds two products keeps its slot until the last of them") {
  const char *text = R"(
kernel f(a: tensor<bf16>[32, K], b: tensor<bf16>[K, 32], y, z: out tensor<f32>[32, 32]) grid (1) warps 2 {
    var s = zeros<f32>[32, 32];
    var r = zeros<f32>[32, 32];
    @pipeline(stages = 2)
    for k in 0 : K step 32 {
        let t = load(a[:, k :+ 32]);
        let u = load(b[k :+ 32, :]);
        s = mma(t, u, s);
        let p = exp(0.01 * s);
        r = mma(bf16(p), t.T, r) + mma(u, bf16(p));
    }
    store(y[:, :], s);
    store(z[:, :], r);
}
reference f_ref(a: tensor<f64>[32, K], b: tensor<f64>[K, 32]) -> (tensor<f64>[32, 32], tensor<f64>[32, 32]) {
    var s = zeros<f64>[32, 32];
    var r = zeros<f64>[32, 32];
    for i in 0 : K / 32 {
        let t = a[:, 32 * i :+ 32];
        let u = b[32 * i :+ 32, :];
        s = s + mma(t, u);
        let p = exp(0.01 * s);
        r = r + mma(p, t.T) + mma(u, p);
    }
    return (s, r);
}
verify f { (y, z) = f_ref(a, b);  case some: K = 224;  case one: K = 32;  tolerance y, z: rms 1e-2; }
)";
  holds(text, "f");
  CHECK(rings_of(*compiled(text, "f")->kernel->function).size() == 1);
}

// 4: The point where a product had to be finished was looked for by stage instead of in the cyclic order of the loop.
TEST_CASE("an accumulator that is read in the loop has the sum up to that iteration") {
  const char *text = R"(
kernel f(a: tensor<bf16>[16, K], w: tensor<bf16>[16, 32], y: out tensor<f32>[16, 32], top: out tensor<f32>[16, 32])
    grid (1) warps 1
{
    let right = load(w[:, :]);
    var s = zeros<f32>[16, 32];
    var m = full<f32>([16, 32], -inf);
    for k in 0 : K step 16 {
        m = max(m, s);
        s = mma(load(a[:, k :+ 16]), right, s);
        m = max(m, 0.5 * s);
    }
    store(y[:, :], s);
    store(top[:, :], m);
}
reference f_ref(a: tensor<f64>[16, K], w: tensor<f64>[16, 32]) -> (tensor<f64>[16, 32], tensor<f64>[16, 32]) {
    var s = zeros<f64>[16, 32];
    var m = full<f64>([16, 32], -inf);
    for i in 0 : K / 16 {
        m = max(m, s);
        s = s + mma(a[:, 16 * i :+ 16], w);
        m = max(m, 0.5 * s);
    }
    return (s, m);
}
verify f { (y, top) = f_ref(a, w);  case some: K = 112;  case one: K = 16;  tolerance y, top: rms 1e-2; }
)";
  holds(text, "f");
}

// 5: Slots of short rows were packed without rounding, and TMA met addresses that are no multiples of 128.
TEST_CASE("slots that TMA fills begin at multiples of 128 bytes") {
  const char *text = R"(
kernel f(x, w: tensor<f32>[N, 16], y: out tensor<f32>[16]) grid (1) warps 1 {
    var s = zeros<f32>[16];
    @pipeline(via = tma, stages = 3)
    for i in 0 : N { s += load(x[i, :]) * load(w[i, :]); }
    store(y[:], s);
}
verify f { y = sum(x * w, axis = 0);  case some: N = 10; }
)";
  holds(text, "f", {"sm_90", "sm_120"});
  auto c = compiled(text, "f");
  auto rings = ops_of(*c->kernel->function, ir::OpKind::RingAlloc);
  REQUIRE(rings.size() == 1);
  const ir::Attrs &a = rings[0]->attrs;
  CHECK(a.s("transport") == "tma");
  CHECK(a.i("stages") == 3);
  CHECK(a.i("stage_bytes") % 128 == 0);
  CHECK(a.i("offset") % 128 == 0);
  for (int64_t offset : a.ints("field_offset")) CHECK(offset % 128 == 0);
}

// 6 A1: A rewrite lost what was known of an alignment, and copies of two bytes were asked for, which do not exist.
TEST_CASE("cp.async copies what is known to be aligned; other tiles are loaded") {
  const char *text = R"(
kernel f(x: tensor<bf16>[N, L], y: out tensor<f32>[32]) grid (1) warps 1 {
    var s = zeros<f32>[32];
    for i in 0 : N { s += f32(load(x[i, 3 * i + 1 :+ 32])); }
    store(y[:], s);
}
reference f_ref(x: tensor<f64>[N, L]) -> tensor<f64>[32] {
    var s = zeros<f64>[32];
    for i in 0 : N { for j in 0 : 32 { if 3 * i + 1 + j < L { s[j] = s[j] + x[i, 3 * i + 1 + j]; } } }
    return s;
}
verify f { y = f_ref(x);  case odd: N = 9, L = 47;  case even: N = 8, L = 64; }
kernel g(x: tensor<bf16>[N, 256], y: out tensor<f32>[256]) grid (1) warps 1 {
    var s = zeros<f32>[256];
    @pipeline(via = cp_async)
    for i in 0 : N { s += f32(load(x[i, :])); }
    store(y[:], s);
}
verify g { y = sum(x, axis = 0);  case some: N = 9; }
)";
  holds(text, "f");
  holds(text, "g");
  for (const char *kernel : {"f", "g"})
    for (const char *target : kTargets) {
      std::string ptx = compiled(text, kernel, target)->kernel->code.ptx;
      int64_t copies = 0, legal = 0;
      for (size_t at = ptx.find("cp.async.c"); at != std::string::npos; at = ptx.find("cp.async.c", at + 1)) {
        std::string line = ptx.substr(at, ptx.find(';', at) - at);
        if (!has(line, "shared")) continue; // commit_group
        copies++;
        for (const char *bytes : {", 4", ", 8", ", 16"})
          legal += has(line, std::string("],") + bytes + ",") || line.ends_with(bytes);
      }
      CHECK(legal == copies);
      CHECK((copies > 0) == (std::string(kernel) == "g"));
    }
  CHECK(rings_of(*compiled(text, "f", "sm_80")->kernel->function).empty());
}

// 7: A load under a condition ended the compiler, which knew no predicated form of it.
TEST_CASE("a load under a condition stays where it is, and a demand to run it ahead is refused with its reason") {
  auto text = [](const char *annotation) {
    return std::string("kernel f(x: tensor<f32>[N, 64], y: out tensor<f32>[64]) grid (1) warps 1 {\n"
                       "  var s = zeros<f32>[64];\n  ") +
           annotation +
           "for i in 0 : N { if i % 3 != 1 { s += load(x[i, :]); } }\n  store(y[:], s);\n}\n"
           "reference f_ref(x: tensor<f64>[N, 64]) -> tensor<f64>[64] { var s = zeros<f64>[64]; for i in 0 : N { if i "
           "% "
           "3 != 1 { s = s + x[i, :]; } } return s; }\n"
           "verify f { y = f_ref(x); case some: N = 8; case two: N = 2; }\n";
  };
  holds(text(""), "f");
  CHECK(rings_of(*compiled(text(""), "f")->kernel->function).empty());
  std::string said = refusal(text("@pipeline(via = tma, stages = 3) "), "f");
  CHECK(has(said, "[forced-pipeline]"));
}

// 8: A loop that prints or asserts could not be pipelined, and the compiler failed.
TEST_CASE("a loop that runs ahead prints and asserts in the order of its iterations") {
  const char *text = R"(
kernel f(x: tensor<f32>[N, 64], y: out tensor<f32>[64]) grid (1) warps 1 {
    var s = zeros<f32>[64];
    @pipeline(stages = 3)
    for i in 0 : N {
        let t = load(x[i, :]);
        assert(t > -100.0, "small");
        s += t;
        print("after {}", i);
    }
    store(y[:], s);
}
verify f { y = sum(x, axis = 0);  case some: N = 4; }
)";
  SourceManager sources;
  Diagnostics diags(sources);
  auto program = sema::Program::load(sources.add("f.tk", text), diags);
  REQUIRE_MESSAGE(program, diags.render_all());
  const ast::Function *f = program->find("f", ast::FunctionKind::Kernel);
  for (const char *target : kTargets) {
    driver::VerifyOptions o;
    o.executor = driver::Executor::Emu;
    o.compile.target = ir::find_target(target);
    driver::verify_kernel(*program, *f, *program->check_for("f", false), o, diags, [&](const driver::CaseResult &r) {
      CHECK_MESSAGE(r.pass(), r.error);
      size_t at = 0;
      for (const char *line : {"after 0", "after 1", "after 2", "after 3"}) {
        at = r.printed.find(line, at);
        CHECK_MESSAGE(at != std::string::npos, r.printed);
      }
      CHECK(count(r.printed, "after") == 4);
    });
    CHECK_MESSAGE(!diags.has_errors(), diags.render_all());
  }
  CHECK(rings_of(*compiled(text, "f")->kernel->function).size() == 1);
}
