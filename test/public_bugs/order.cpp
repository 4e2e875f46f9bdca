// Loops that carry tiles, write what they read, follow each other, or run in others.
#include "ir/verify.h"
#include "passes/prove_protocol.h"
#include "public_bugs/kit.h"

using namespace tkc;
using namespace public_bugs;

// 9: The epilogue of a persistent loop read the accumulator before the last asynchronous product was done.
TEST_CASE("the epilogue of each tile of a persistent loop has the whole sum") {
  const char *text = R"(
kernel f(a: tensor<bf16>[M, K], b: tensor<bf16>[K, 32], c: out tensor<bf16>[M, 32], top: out tensor<f32>[M]) grid (2) warps 2 {
    for i in 32 * program_id(0) : M step 64 {
        var s = zeros<f32>[32, 32];
        @pipeline(stages = 2)
        for k in 0 : K step 32 { s = mma(load(a[i :+ 32, k :+ 32]), load(b[k :+ 32, :]), s); }
        store(top[i :+ 32], max(s, axis = 1));
        store(c[i :+ 32, :], bf16(s));
    }
}
verify f {
    c = mma(a, b);
    top = max(mma(a, b), axis = 1);
    case odd: M = 200, K = 96;
    case short: M = 96, K = 32;
    tolerance c: rms 1e-2;
    tolerance top: rms 1e-2;
}
)";
  holds(text, "f");
  CHECK(rings_of(*compiled(text, "f")->kernel->function).size() == 1);
}

// 10: A tile loaded before the loop and again at its end was overwritten before the iteration's sum had used it.
TEST_CASE("a tile that a loop uses and then loads anew is the old one at its use") {
  const char *text = R"(
kernel f(x: tensor<f32>[N, 64], y: out tensor<f32>[64]) grid (1) warps 1 {
    var t = load(x[0, :]);
    var s = zeros<f32>[64];
    @pipeline(stages = 2)
    for i in 0 : N {
        s = 0.5 * s + t;
        t = load(x[i, :]);
    }
    store(y[:], s + 3.0 * t);
}
reference f_ref(x: tensor<f64>[N, 64]) -> tensor<f64>[64] {
    var t = x[0, :];
    var s = zeros<f64>[64];
    for i in 0 : N {
        s = 0.5 * s + t;
        t = x[i, :];
    }
    return s + 3.0 * t;
}
verify f { y = f_ref(x);  case some: N = 9;  case two: N = 2;  case one: N = 1; }
)";
  holds(text, "f");
  CHECK(rings_of(*compiled(text, "f")->kernel->function).size() == 1);
}

// 11: A load behind an atomic of the same place was moved to an earlier iteration: the atomic did not count as a write.
TEST_CASE("a load behind an atomic of its tensor sees it, and never runs ahead") {
  const char *text = R"(
kernel f(x: inout tensor<f32>[4, 64], w: tensor<f32>[N, 64], y: out tensor<f32>[N, 64]) grid (1) warps 2 {
    for i in 0 : N {
        let before = atomic_add(x[i % 4, :], load(w[i, :]));
        store(y[i, :], load(x[i % 4, :]) + 4.0 * before);
    }
}
reference f_ref(x: tensor<f64>[4, 64], w: tensor<f64>[N, 64]) -> (tensor<f64>[4, 64], tensor<f64>[N, 64]) {
    var z = x;
    var y = w;
    for i in 0 : N {
        let before = z[i % 4, :];
        z[i % 4, :] = before + w[i, :];
        y[i, :] = z[i % 4, :] + 4.0 * before;
    }
    return (z, y);
}
verify f { (x, y) = f_ref(x, w);  case some: N = 11;  case one: N = 1; }
)";
  holds(text, "f");
  for (const std::string &ring : rings_of(*compiled(text, "f")->kernel->function)) CHECK(!has(ring, " x"));
  std::string forced = text;
  forced.insert(forced.find("for i in"), "@pipeline(stages = 2) ");
  auto c = compiled(forced, "f", "sm_80");
  CHECK(!ops_of(*c->kernel->function, ir::OpKind::RingFill).empty());
  for (const ir::Op *fill : ops_of(*c->kernel->function, ir::OpKind::RingFill))
    CHECK(c->kernel->function->params.at(1).name == fill->operand(0)->name);
}

const char *const kSiblings = R"(
kernel f(a: tensor<bf16>[64, K], b: tensor<bf16>[K, 64], c: out tensor<bf16>[64, 64]) grid (1) warps 4 {
    var s = zeros<f32>[64, 64];
    @pipeline(via = VIA, producer = none, stages = 2)
    for k in 0 : K step 32 { s = mma(load(a[:, k :+ 32]), load(b[k :+ 32, :]), s); }
    @pipeline(via = VIA, producer = none, stages = 4)
    for k in 0 : K step 16 { s = mma(load(a[:, k :+ 16]), load(b[k :+ 16, :]), s); }
    store(c[:, :], bf16(s));
    store(c[0 :+ 32, :], bf16(s)[32 : 64, :]);
}
reference f_ref(a: tensor<f64>[64, K], b: tensor<f64>[K, 64]) -> tensor<f64>[64, 64] {
    var p = 2 * mma(a, b);
    p[0 : 32, :] = p[32 : 64, :];
    return p;
}
verify f { c = f_ref(a, b);  case some: K = 160;  case one: K = 32;  case none: K = 0;  tolerance c: rms 1e-2; }
)";
std::string siblings(const char *via) {
  std::string text = kSiblings;
  for (size_t at = text.find("VIA"); at != std::string::npos; at = text.find("VIA")) text.replace(at, 3, via);
  return text;
}

// 12 E3: Two loops of other depths on the same buffers ended the compiler; copies of a first loop ran into what came
// next.
TEST_CASE("loops that follow each other have rings of their own depth, drained before their bytes are used again") {
  holds(siblings("cp_async"), "f");
  holds(siblings("tma"), "f", {"sm_90", "sm_120"});
  for (const char *via : {"cp_async", "tma"}) {
    auto c = compiled(siblings(via), "f");
    auto rings = ops_of(*c->kernel->function, ir::OpKind::RingAlloc);
    REQUIRE(rings.size() == 2);
    CHECK(rings[0]->attrs.i("stages") == 2);
    CHECK(rings[1]->attrs.i("stages") == 4);
    CHECK(rings[0]->attrs.i("offset") == rings[1]->attrs.i("offset")); // the same bytes
  }
}

// 36: Buffers shared memory by a plan that no barrier between their uses backed.
TEST_CASE("buffers share bytes only with a barrier between their uses") {
  auto c = compiled(siblings("cp_async"), "f");
  ir::Function &f = *c->kernel->function;
  CHECK(ir::verify(f, ir::Stage::allocated).empty());
  std::vector<ir::Op *> barriers;
  ir::walk(f.body, [&](ir::Op *op) {
    if (op->kind == ir::OpKind::BlockBarrier && op->attrs.s("scope") == "block") barriers.push_back(op);
  });
  CHECK(barriers.size() >= 1);
  for (ir::Op *op : barriers) {
    auto &ops = op->block->ops;
    auto at = std::find(ops.begin(), ops.end(), op);
    size_t index = size_t(at - ops.begin());
    ops.erase(at);
    bool refused = !ir::verify(f, ir::Stage::allocated).empty() ||
                   passes::prove_protocol(f, nullptr).verdict != passes::ProtocolProof::Verdict::Proven;
    CHECK(refused);
    ops.insert(ops.begin() + int64_t(index), op);
  }
}

// 13 A6: One loop over K split in two began the second part with the state of no ring; loops left copies behind.
TEST_CASE("a loop in two parts gives what the whole gives, for every number of iterations about the slots") {
  const char *text = R"(
enum Via { tma, cp_async }
kernel f<V: Via = Via.cp_async>(a: tensor<bf16>[32, K], b: tensor<bf16>[K, 32], y: out tensor<f32>[32, 32]) grid (1) warps 2 {
    var s = zeros<f32>[32, 32];
    @pipeline(via = V, stages = 3)
    for k in 0 : min(K, 32) step 32 { s = mma(load(a[:, k :+ 32]), load(b[k :+ 32, :]), s); }
    @pipeline(via = V, stages = 3)
    for k in 32 : K step 32 { s = mma(load(a[:, k :+ 32]), load(b[k :+ 32, :]), s); }
    store(y[:, :], s);
}
verify f {
    y = mma(a, b);
    case zero: K = 0;
    case one: K = 32;
    case two: K = 64;
    case three: K = 96;
    case four: K = 128;
    case odd: K = 232;
    tolerance y: rms 1e-2;
}
)";
  holds(text, "f", {"sm_80"});
  std::string tma = text;
  tma.replace(tma.find("Via.cp_async"), 12, "Via.tma");
  holds(tma, "f", {"sm_120"});
}

// 14: An atomic whose result two stages needed was executed once in each.
TEST_CASE("an atomic in a loop that runs ahead is executed once an iteration") {
  const char *text = R"(
kernel f(x: tensor<f32>[N, 64], count: inout tensor<i32>[1], order: out tensor<i32>[N], y: out tensor<f32>[64]) grid (1) warps 2 {
    var s = zeros<f32>[64];
    @pipeline(stages = 3)
    for i in 0 : N {
        let n = atomic_add(count[0], 1);
        s += load(x[i, :]) * f32(n);
        store(order[i], n);
    }
    store(y[:], s);
}
verify f {
    input count = constant(0);
    count = N + zeros<i64>[1];
    order = iota(N);
    y = sum(x * f64(iota(N))[:, None], axis = 0);
    case some: N = 9;
    case one: N = 1;
}
)";
  holds(text, "f");
  CHECK(rings_of(*compiled(text, "f")->kernel->function).size() == 1);
}

// 15 E5: Several groups of copies a stage, and waits that counted them as one; fewer barriers than loads.
TEST_CASE("waits count whole items, and the last ones wait for all") {
  const char *text = R"(
kernel f(a: tensor<bf16>[32, K], b: tensor<bf16>[K, 32], c: tensor<bf16>[K, 32], y, z: out tensor<f32>[32, 32]) grid (1) warps 2 {
    var s = zeros<f32>[32, 32];
    var r = zeros<f32>[32, 32];
    @pipeline(via = cp_async, stages = 3)
    for k in 0 : K step 32 {
        s = mma(load(a[:, k :+ 32]), load(b[k :+ 32, :]), s);
        r = mma(bf16(0.01 * s), load(c[k :+ 32, :]), r);
    }
    store(y[:, :], s);
    store(z[:, :], r);
}
reference f_ref(a: tensor<f64>[32, K], b, c: tensor<f64>[K, 32]) -> (tensor<f64>[32, 32], tensor<f64>[32, 32]) {
    var s = zeros<f64>[32, 32];
    var r = s;
    for i in 0 : cdiv(K, 32) {
        s = s + mma(a[:, 32 * i :+ 32], b[32 * i :+ 32, :]);
        r = r + mma(0.01 * s, c[32 * i :+ 32, :]);
    }
    return (s, r);
}
verify f {
    (y, z) = f_ref(a, b, c);
    case three: K = 96;
    case four: K = 128;
    case nine: K = 288;
    tolerance y, z: rms 1e-2;
}
)";
  holds(text, "f", {"sm_80", "sm_120"}, 5);
  auto one_more = [](std::string ptx) {
    for (size_t at = ptx.find("cp.async.wait_group"); at != std::string::npos;
         at = ptx.find("cp.async.wait_group", at + 1)) {
      size_t digit = ptx.find_first_of("0123456789", at);
      ptx[digit]++;
    }
    return ptx;
  };
  CHECK(run_edited(text, "f", "nine", "sm_80", one_more) != "");
}
