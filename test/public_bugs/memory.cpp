// Barriers inside blocks, shared memory that is used twice, and how much there is.
#include "public_bugs/kit.h"
#include <filesystem>

using namespace tkc;
using namespace public_bugs;

// 31: An exchange among 48 of 64 threads lost its barrier, which only whole warps can take part in.
TEST_CASE("a tile of fewer elements than threads is exchanged under barriers of the whole block") {
  const char *text = R"(
kernel f<N: int = 48>(x: tensor<f32>[N], w: tensor<f32>[48, 3], y, z: out tensor<f32>[48], v: out tensor<f32>[3, 48]) grid (1) warps 2 {
    let t = load(x[:]);
    let s = cumsum(t);
    store(y[:], s / (1.0 + abs(max(s))));
    let turned = load(w[:, :]).T;
    store(v[:, :], cumsum(turned, axis = 1));
    store(z[:], sum(turned, axis = 0) + t);
}
verify f {
    y = cumsum(x) / (1.0 + abs(max(cumsum(x))));
    v = cumsum(w.T, axis = 1);
    z = sum(w, axis = 1) + x;
    case one: N = 48;
}
)";
  holds(text, "f", {"sm_80", "sm_120"}, 5);
}

// 32: A barrier between a write and a read inside a loop's branch was moved out of the loop.
TEST_CASE("an exchange in a branch of a loop has its barrier there; a branch by element is refused") {
  const char *text = R"(
kernel f(x: tensor<f32>[N, 16, 16], on: tensor<i32>[N], y: out tensor<f32>[16, 16]) grid (1) warps 4 {
    var s = zeros<f32>[16, 16];
    for i in 0 : N {
        if load(on[i]) > 0 {
            s = cumsum(cumsum(s + load(x[i, :, :]), axis = 0), axis = 1).T * 0.25;
        }
    }
    store(y[:, :], s);
}
reference f_ref(x: tensor<f64>[N, 16, 16], on: tensor<i64>[N]) -> tensor<f64>[16, 16] {
    var s = zeros<f64>[16, 16];
    for i in 0 : N { if on[i] > 0 { s = cumsum(cumsum(s + x[i, :, :], axis = 0), axis = 1).T * 0.25; } }
    return s;
}
verify f { y = f_ref(x, on);  input on = where(iota(N) % 3 == 1, 0, 1);  case some: N = 7; }
)";
  holds(text, "f", {"sm_80", "sm_120"}, 5);
  std::string said = refusal("kernel f(x: tensor<f32>[64], y: out tensor<f32>[64]) grid (1) warps 2 {\n"
                             "  let t = load(x[:]);\n  var s = t;\n"
                             "  for i in 0 : 3 { if t > 0.0 { s = cumsum(s); } }\n  store(y[:], s);\n}\n",
                             "f");
  CHECK(has(said, "[not-uniform]"));
}

// 34: A fill of the end of a buffer raced with a copy into the whole of it.
TEST_CASE("a store into part of what was stored before wins, at any place") {
  const char *text = R"(
kernel f(a: tensor<f32>[96], b: tensor<f32>[32], at: i32, y: out tensor<f32>[96], z: out tensor<f32>[96]) grid (1) warps 4 {
    store(y[:], load(a[:]));
    store(y[at :+ 32], load(b[:]));
    store(z[:], load(y[:]) * 2.0);
}
reference f_ref(a: tensor<f64>[96], b: tensor<f64>[32], at: i64) -> tensor<f64>[96] {
    var y = a;
    for i in 0 : 32 { if at + i < 96 { y[at + i] = b[i]; } }
    return y;
}
verify f {
    y = f_ref(a, b, at);
    z = 2 * f_ref(a, b, at);
    case odd: at = 13;
    case end: at = 80;
    tolerance y, z: exact;
}
)";
  holds(text, "f", {"sm_80", "sm_120"}, 5);
}

// 35: A buffer that an instruction of its own cleared was used again at once: the clear did not count as a write.
TEST_CASE("a buffer is written again behind the reads of what it held, in every turn of a loop") {
  const char *text = R"(
kernel f(x: tensor<f32>[N, 32, 32], y: out tensor<f32>[32, 32], z: out tensor<f32>[32]) grid (1) warps 4 {
    var s = zeros<f32>[32, 32];
    var r = zeros<f32>[32];
    for i in 0 : N {
        let t = load(x[i, :, :]);
        s = s.T + t;
        r += cumsum(sum(s, axis = 1)) + cumsum(max(t, axis = 0), reverse = true);
    }
    store(y[:, :], s);
    store(z[:], r);
}
reference f_ref(x: tensor<f64>[N, 32, 32]) -> (tensor<f64>[32, 32], tensor<f64>[32]) {
    var s = zeros<f64>[32, 32];
    var r = zeros<f64>[32];
    for i in 0 : N {
        s = s.T + x[i, :, :];
        r = r + cumsum(sum(s, axis = 1)) + cumsum(max(x[i, :, :], axis = 0), reverse = true);
    }
    return (s, r);
}
verify f { (y, z) = f_ref(x);  case some: N = 4;  case none: N = 0; }
)";
  holds(text, "f", {"sm_80", "sm_120"}, 5);
  auto no_barriers = [](std::string ptx) { return without_all(std::move(ptx), "bar.sync"); };
  CHECK(has(run_edited(text, "f", "some", "sm_120", no_barriers), "race"));
}

// 37: The padding of odd tiles was left out of the sum by which the number of stages was chosen.
TEST_CASE("the padding of odd tiles counts in the choice of stages") {
  for (const char *shape : {"100, 60", "33, 200"}) {
    std::string m = std::string(shape).substr(0, std::string(shape).find(',')),
                k = std::string(shape).substr(m.size() + 2);
    std::string text =
        "kernel f<BM: int = " + m + ", BK: int = " + k +
        ">(a: tensor<bf16>[M, K], b: tensor<bf16>[K, 96], y: out tensor<f32>[M, 96]) grid (cdiv(M, BM)) "
        "warps 4 {\n  let i = program_id(0) * BM;\n  var s = zeros<f32>[BM, 96];\n  for k in 0 : K step BK { "
        "s = mma(load(a[i :+ BM, k :+ BK]), load(b[k :+ BK, :]), s); }\n  store(y[i :+ BM, :], s);\n}\n";
    for (const char *target : kTargets) {
      CAPTURE(text);
      auto c = compiled(text, "f", target);
      int64_t there = ir::find_target(target)->shared_per_block;
      CHECK(c->kernel->function->shared_bytes <= there);
      for (const ir::Op *ring : ops_of(*c->kernel->function, ir::OpKind::RingAlloc)) {
        int64_t end = ring->attrs.i("offset") + ring->attrs.i("stages") * ring->attrs.i("stage_bytes");
        CHECK(end <= c->kernel->function->shared_bytes);
      }
    }
  }
}

// 38: Default blocks took more shared memory than a GeForce has, which the launch found out.
TEST_CASE("what is compiled for sm_120 fits into 99 KB, and what cannot is refused when it is compiled") {
  CHECK(ir::find_target("sm_120")->shared_per_block == 101376);
  for (const char *sample : {"gemm", "attention", "kda_chain", "linear_state", "transpose"}) {
    auto c = compiled(source_text(fmt::format("samples/{}.tk", sample)), sample, "sm_120");
    CHECK(c->kernel->function->shared_bytes <= 101376);
  }
  const char *large = R"(
kernel f(x: tensor<f32>[128, 300], y: out tensor<f32>[128, 300]) grid (1) {
    ring r: { t: f32[128, 300] } stages 2;
    role make warps 8 { for i in 0 : 4 { r.push({ t: load(x[:, :]) + 1.0 }); } }
    role take warps 8 {
        for i in 0 : 4 {
            let item = r.pop();
            store(y[:, :], item.t);
        }
    }
}
)";
  CHECK(has(refusal(large, "f", "sm_120"), "[too-much-shared]"));
}
