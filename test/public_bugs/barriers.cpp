// Mbarriers, phases, producers and roles.
#include "driver/compile.h"
#include "public_bugs/kit.h"
#include <cctype>

using namespace tkc;
using namespace public_bugs;

namespace {
// A product whose copies `producer` starts, by `via`.
std::string product(const char *annotation) {
  return std::string(
             "kernel f(a: tensor<bf16>[32, K], b: tensor<bf16>[K, 32], y: out tensor<f32>[32, 32]) grid (1) warps 4 {\n"
             "  var s = zeros<f32>[32, 32];\n  ") +
         annotation +
         " for k in 0 : K step 32 { s = mma(load(a[:, k :+ 32]), load(b[k :+ 32, :]), s); }\n"
         "  store(y[:, :], s);\n}\n"
         "verify f { y = mma(a, b);  case none: K = 0;  case one: K = 32;  case some: K = 224;  tolerance y: rms 1e-2; "
         "}\n";
}
const char *const kTma = "@pipeline(via = tma, producer = none, stages = 2)";
const char *const kTmaWarp = "@pipeline(via = tma, stages = 2, producer = warp)";
const char *const kMbarrier = "@pipeline(via = mbarrier, stages = 2, producer = warp)";

// The text without the numbers of labels, which count over a module.
std::string without_label_numbers(const std::string &ptx) {
  std::string out;
  for (size_t at = 0; at < ptx.size(); at++) {
    out += ptx[at];
    if (ptx[at] == '$')
      for (; at + 1 < ptx.size() && (std::isalnum(ptx[at + 1]) || ptx[at + 1] == '_'); at++)
        if (!std::isdigit(ptx[at + 1])) out += ptx[at + 1];
  }
  return out.substr(0, out.rfind("\n}"));
}
} // namespace

// 16 E7: The phase began anew in every turn of a persistent loop: wrong from the second on, unless 2 S divided the
// trips.
TEST_CASE("slots and phases go on over the turns of an outer loop") {
  const char *text = R"(
kernel f(a: tensor<bf16>[M, K], b: tensor<bf16>[K, 32], y: out tensor<f32>[M, 32]) grid (1) {
    ring tiles: { a: bf16[32, 32], b: bf16[32, 32] } stages 2;
    role copy warps 1 {
        for i in 0 : M step 32 {
            for k in 0 : K step 32 { tiles.push({ a: load(a[i :+ 32, k :+ 32]), b: load(b[k :+ 32, :]) }); }
        }
    }
    role multiply warps 2 {
        for i in 0 : M step 32 {
            var s = zeros<f32>[32, 32];
            for k in 0 : K step 32 {
                let t = tiles.pop();
                s = mma(t.a, t.b, s);
            }
            store(y[i :+ 32, :], s);
        }
    }
}
verify f {
    y = mma(a, b);
    case three: M = 96, K = 96;
    case five: M = 128, K = 160;
    case one: M = 160, K = 32;
    tolerance y: rms 1e-2;
}
)";
  holds(text, "f");
}

// 17: The phase was derived from the loop although another barrier took its turn in every iteration.
TEST_CASE("rings that take turns in one loop count for themselves") {
  const char *text = R"(
kernel f(x: tensor<f32>[N, 32], y: out tensor<f32>[N, 32]) grid (1) {
    ring even: { t: f32[32] } stages 2;
    ring other: { t: f32[32] } stages 3;
    role make warps 1 {
        for i in 0 : N {
            if i % 3 == 0 { even.push({ t: load(x[i, :]) * 2.0 }); } else { other.push({ t: load(x[i, :]) * 3.0 }); }
        }
    }
    role take warps 1 {
        for i in 0 : N {
            if i % 3 == 0 {
                let p = even.pop();
                store(y[i, :], p.t);
            } else {
                let q = other.pop();
                store(y[i, :], q.t);
            }
        }
    }
}
verify f { y = x * where(iota(N) % 3 == 0, 2.0, 3.0)[:, None];  case some: N = 23;  case one: N = 1; }
)";
  holds(text, "f");
}

// 18 E15: A producer's loop of one iteration hung; one of none left its memory to the next use without a wait.
TEST_CASE("loops of no and one iteration end, with and without a producer") {
  holds(product(kMbarrier), "f");
  holds(product(kTmaWarp), "f", {"sm_90", "sm_120"});
  holds(product(kTma), "f", {"sm_120"});
}

// 19: One tile came by TMA and one by threads; where its rows were not aligned producer and consumers waited for each
// other.
TEST_CASE("tensors whose rows are aligned or not run through one loop") {
  const char *text = R"(
kernel f(a: tensor<bf16>[32, K], b: tensor<bf16>[K, N], y: out tensor<f32>[32, N]) grid (cdiv(N, 32)) warps 4 {
    let j = program_id(0) * 32;
    var s = zeros<f32>[32, 32];
    @pipeline(via = tma, stages = 2, producer = warp)
    for k in 0 : K step 32 { s = mma(load(a[:, k :+ 32]), load(b[k :+ 32, j :+ 32]), s); }
    store(y[:, j :+ 32], s);
}
verify f {
    y = mma(a, b);
    case rows: K = 250, N = 64;
    case other: K = 252, N = 40;
    case columns: K = 256, N = 33;
    case all: K = 256, N = 40;
    tolerance y: rms 1e-2;
}
)";
  holds(text, "f", {"sm_90", "sm_120"});
}

// 20: Two groups of warps read one buffer, and the next turn of the loop filled it when the first of them was done.
TEST_CASE("a slot that two roles read is filled again behind both") {
  const char *text = R"(
kernel f(a: tensor<bf16>[32, K], b: tensor<bf16>[32, K], y, z: out tensor<f32>[32, 32]) grid (1) {
    ring tiles: { a: bf16[32, 32], b: bf16[32, 32] } stages 2;
    role copy warps 1 {
        for k in 0 : K step 32 { tiles.push({ a: load(a[:, k :+ 32]), b: load(b[:, k :+ 32]) }); }
    }
    role products warps 2 {
        var s = zeros<f32>[32, 32];
        for k in 0 : K step 32 {
            let t = tiles.pop();
            s = mma(t.a, t.b.T, s);
        }
        store(y[:, :], s);
    }
    role squares warps 1 {
        var s = zeros<f32>[32, 32];
        for k in 0 : K step 32 {
            let t = tiles.pop();
            s = mma(t.b, t.b.T, s);
        }
        store(z[:, :], s);
    }
}
verify f {
    y = mma(a, b.T);
    z = mma(b, b.T);
    case some: K = 224;
    case one: K = 32;
    tolerance y, z: rms 1e-2;
}
)";
  holds(text, "f", kTargets, 5);
  auto arrive = [](std::string ptx) { return without_first(std::move(ptx), "mbarrier.arrive.shared"); };
  CHECK(run_edited(text, "f", "some", "sm_80", arrive) != "");
}

// 21: The body of a pipelined loop ran under a condition, and barriers were taken by the loop's index all the same.
TEST_CASE("items are counted, not iterations: a condition read from memory skips some") {
  const char *text = R"(
kernel f(x: tensor<f32>[N, 32], keep: tensor<i32>[N], y: out tensor<f32>[32]) grid (1) {
    ring rows: { t: f32[32] } stages 2;
    role make warps 1 {
        for i in 0 : N { if load(keep[i]) > 0 { rows.push({ t: load(x[i, :]) }); } }
    }
    role take warps 1 {
        var s = zeros<f32>[32];
        for i in 0 : N {
            if load(keep[i]) > 0 {
                let item = rows.pop();
                s = 0.5 * s + item.t;
            }
        }
        store(y[:], s);
    }
}
reference f_ref(x: tensor<f64>[N, 32], keep: tensor<i64>[N]) -> tensor<f64>[32] {
    var s = zeros<f64>[32];
    for i in 0 : N { if keep[i] > 0 { s = 0.5 * s + x[i, :]; } }
    return s;
}
verify f {
    y = f_ref(x, keep);
    input keep = where(iota(N) % GAP < 2, 1, 0);
    case some: N = 17, GAP = 5;
    case all: N = 6, GAP = 2;
}
)";
  holds(text, "f");
}

// 22: Barriers were numbered over the kernels of a module, and one kernel used those of another.
TEST_CASE("a kernel has the same code alone and in a module with others") {
  std::string text = product(kTmaWarp), second = product(kMbarrier);
  second.replace(second.find("kernel f"), 8, "kernel g");
  text += second.substr(0, second.find("verify"));
  auto f = compiled(text, "f", "sm_120"), g = compiled(text, "g", "sm_120");
  driver::CompileOptions options;
  options.target = ir::find_target("sm_120");
  std::vector<driver::Phase> phases;
  auto both = driver::emit_module({f->kernel->function.get(), g->kernel->function.get()}, options, f->sources, phases);
  REQUIRE_MESSAGE(both.ok, both.error);
  for (const char *entry : {"f", "f__any"})
    CHECK(without_label_numbers(entry_of(both.ptx, entry)) ==
          without_label_numbers(entry_of(f->kernel->code.ptx, entry)));
  for (const char *entry : {"g", "g__any"})
    CHECK(without_label_numbers(entry_of(both.ptx, entry)) ==
          without_label_numbers(entry_of(g->kernel->code.ptx, entry)));
}

// 23 E4: The initialisation of barriers did not count as a write of shared memory, and the barrier behind it went
// missing.
TEST_CASE("mbarriers are initialised before anyone uses them, whatever bounds the loop has") {
  const char *text = R"(
kernel f(a: tensor<bf16>[32, K], b: tensor<bf16>[K, 32], count: tensor<i32>[1], y: out tensor<f32>[32, 32]) grid (1) warps 4 {
    var s = zeros<f32>[32, 32];
    @pipeline(via = tma, stages = 2)
    for k in 0 : load(count[0]) step 32 { s = mma(load(a[:, k :+ 32]), load(b[k :+ 32, :]), s); }
    store(y[:, :], s);
}
verify f {
    y = mma(a[:, 0 : END], b[0 : END, :]);
    input count = constant(END);
    case some: K = 192, END = 160;
    case none: K = 192, END = 0;
    tolerance y: rms 1e-2;
}
)";
  holds(text, "f", {"sm_90", "sm_120"}, 5);
  auto no_barrier = [](std::string ptx) {
    size_t init = ptx.find("mbarrier.init");
    REQUIRE(init != std::string::npos);
    return ptx.substr(0, init) + without_first(ptx.substr(init), "bar.sync");
  };
  CHECK(has(run_edited(text, "f", "some", "sm_90", no_barrier), "mbarrier"));
}

// 25: With a producer warp a tile gathered by threads, another one by TMA, and a cast gave other results than without.
TEST_CASE("gathered, copied and converted tiles give the same with a producer and without") {
  const char *text = R"(
enum Producer { warp, none }
kernel f<P: Producer = Producer.none>(
        a: tensor<bf16>[32, K], rows: tensor<i32>[K], b: tensor<i8>[R, 32], c: tensor<f32>[K, 32], y: out tensor<f32>[32, 32])
    grid (1) warps 4
{
    var s = zeros<f32>[32, 32];
    @pipeline(producer = P, stages = 3)
    for k in 0 : K step 32 {
        let w = bf16(f32(load(b[load(rows[k :+ 32]), :])) + load(c[k :+ 32, :]));
        s = mma(load(a[:, k :+ 32]), w, s);
    }
    store(y[:, :], s);
}
reference picked(b: tensor<f64>[R, N], rows: tensor<i64>[K]) -> tensor<f64>[K, N] {
    var t = zeros<f64>[K, N];
    for k in 0 : K { t[k, :] = b[rows[k], :]; }
    return t;
}
verify f {
    let n = iota(K);
    y = mma(a, picked(b, rows) + c);
    input rows = (n * 5) % R;
    case without: K = 160, R = 7;
    case with: K = 160, R = 7, P = Producer.warp;
    case odd: K = 70, R = 7, P = Producer.warp;
    tolerance y: rms 2e-2;
}
)";
  holds(text, "f");
}

// 26: Loads by pointers before a product, narrow blocks, four warps or a newer GPU met assertions of the compiler.
TEST_CASE("narrow products of gathered tiles compile and run on every target") {
  const char *text = R"(
kernel f<BN: int = 8>(a: tensor<f16>[M, 32], rows: tensor<i32>[32], b: tensor<f16>[32, N], y: out tensor<f32>[32, N])
    grid (cdiv(N, BN)) warps 4
{
    let j = program_id(0) * BN;
    let t = load(a[load(rows[:]), :]);
    store(y[:, j :+ BN], mma(t, load(b[:, j :+ BN])));
}
reference picked(b: tensor<f64>[R, N], rows: tensor<i64>[K]) -> tensor<f64>[K, N] {
    var t = zeros<f64>[K, N];
    for k in 0 : K { t[k, :] = b[rows[k], :]; }
    return t;
}
verify f {
    y = mma(picked(a, rows), b);
    input rows = (iota(32) * 3) % M;
    case eight: M = 20, N = 20;
    case one: M = 20, N = 3, BN = 1;
    case wide: M = 40, N = 40, BN = 32;
    tolerance y: rms 1e-3;
}
)";
  holds(text, "f", {"sm_80", "sm_89", "sm_90", "sm_100", "sm_120"}, 1);
}

// 27 E1 E2: Plain accesses and copies of the asynchronous proxy met in one buffer without a fence, in either order.
TEST_CASE("between plain accesses and TMA in the same bytes stands a proxy fence, and none of them is for show") {
  std::string text = product(kTma);
  std::string ptx = entry_of(compiled(text, "f")->kernel->code.ptx, "f");
  CHECK(has(ptx, "fence.proxy.async"));
  CHECK(has(ptx, "fence.mbarrier_init"));
  auto no_fence = [](std::string p) { return without_all(std::move(p), "fence.proxy.async"); };
  for (const char *annotation : {kTma, kTmaWarp}) {
    std::string caught = run_edited(product(annotation), "f", "some", "sm_90", no_fence);
    CHECK_MESSAGE(has(caught, "missing-proxy-fence"), caught);
  }
}

// 29: A tensor map made by the kernel was changed for the next iteration while copies still used it.
TEST_CASE("tensor maps are parameters, made before the launch and never changed") {
  const char *text = R"(
kernel f(x: tensor<bf16>[H, T, 32], w: tensor<bf16>[H, 32, 32], y: out tensor<f32>[H, 32, 32]) grid (H) warps 2 {
    let h = program_id(0);
    var s = zeros<f32>[32, 32];
    @pipeline(via = tma, stages = 2)
    for t in 0 : T step 32 { s = mma(load(x[h, t :+ 32, :]).T, load(x[h, t :+ 32, :]), s); }
    store(y[h, :, :], s + f32(load(w[h, :, :])));
}
reference f_ref(x: tensor<f64>[H, T, 32], w: tensor<f64>[H, 32, 32]) -> tensor<f64>[H, 32, 32] {
    var y = w;
    for h in 0 : H { y[h, :, :] = w[h, :, :] + mma(x[h, :, :].T, x[h, :, :]); }
    return y;
}
verify f { y = f_ref(x, w);  case some: H = 3, T = 100;  tolerance y: rms 1e-2; }
)";
  holds(text, "f", {"sm_90", "sm_120"});
  for (const char *target : {"sm_90", "sm_120"}) {
    std::string ptx = compiled(text, "f", target)->kernel->code.ptx;
    CHECK(has(ptx, "cp.async.bulk.tensor"));
    CHECK(has(ptx, ".param .align 64 .b8")); // the map
    CHECK(!has(ptx, "tensormap."));          // .replace, .cp_fenceproxy
  }
}

// 30: Warps that returned early arrived at a barrier without waiting, and the others waited for ever.
TEST_CASE("a block that returns early leaves nobody waiting") {
  const char *text = R"(
kernel f(a: tensor<bf16>[M, K], b: tensor<bf16>[K, 32], cu: tensor<i32>[1], y: inout tensor<f32>[M, 32]) grid (cdiv(M, 32)) warps 4 {
    let i = program_id(0) * 32;
    if i >= load(cu[0]) { return; }
    var s = zeros<f32>[32, 32];
    @pipeline(stages = 2)
    for k in 0 : K step 32 { s = mma(load(a[i :+ 32, k :+ 32]), load(b[k :+ 32, :]), s); }
    if i % 64 == 32 { return; }
    store(y[i :+ 32, :], s);
}
reference f_ref(a: tensor<f64>[M, K], b: tensor<f64>[K, 32], cu: tensor<i64>[1], y: tensor<f64>[M, 32]) -> tensor<f64>[M, 32] {
    var z = y;
    let p = mma(a, b);
    for i in 0 : M { if i / 32 * 32 < cu[0] && i % 64 < 32 { z[i, :] = p[i, :]; } }
    return z;
}
verify f {
    y = f_ref(a, b, cu, y);
    input cu = constant(STOP);
    case some: M = 150, K = 96, STOP = 70;
    case nobody: M = 64, K = 96, STOP = 0;
    tolerance y: rms 1e-2;
}
)";
  holds(text, "f");
}
