// Values: blocks beside each other, masks, NaN, narrow floats.
#include "public_bugs/kit.h"

using namespace tkc;
using namespace public_bugs;

// A7 A9: On the CPU all blocks shared one memory; more threads in a block than workers on the host hung.
TEST_CASE("blocks have shared memory of their own, and as many threads as they want, on any number of workers") {
  const char *text = R"(
kernel f(unused: tensor<i32>[N], x: tensor<f32>[64, 256], y: out tensor<f32>[64, 256]) grid (64) warps WARPS {
    let i = program_id(0);
    store(y[i, :], cumsum(load(x[i, :]) + f32(i), reverse = true));
}
verify f { y = cumsum(x + f64(iota(64))[:, None], axis = 1, reverse = true);  case one: N = 1; }
)";
  for (const char *warps : {"2", "32"}) {
    std::string one = text;
    one.replace(one.find("WARPS"), 5, warps);
    holds(one, "f", {"sm_120"}, 3);
  }
}

// A10 A15: A variant for K in whole warps, or heads in whole vectors, was taken for 48 and 50.
TEST_CASE("rows of no whole warps or vectors need no other kernel") {
  const char *text = R"(
kernel f<D: int = 50>(q: tensor<bf16>[T, D], k: tensor<bf16>[T, D], o: out tensor<f32>[T, T]) grid (cdiv(T, 16)) warps 2 {
    let i = program_id(0) * 16;
    let t = load(q[i :+ 16, :]);
    for j in 0 : T step 16 { store(o[i :+ 16, j :+ 16], mma(t, load(k[j :+ 16, :]).T)); }
}
verify f {
    o = mma(q, k.T);
    case fifty: T = 40;
    case k48: T = 33, D = 48;
    case seven: T = 20, D = 7;
    tolerance o: rms 1e-2;
}
kernel g<K: int = 48>(x: tensor<f32>[K], w: tensor<f32>[K, N], y: out tensor<f32>[N]) grid (cdiv(N, 32)) warps 2 {
    let j = program_id(0) * 32;
    store(y[j :+ 32], sum(load(x[:])[:, None] * load(w[:, j :+ 32]), axis = 0));
}
verify g { y = sum(x[:, None] * w, axis = 0);  case k48: N = 40;  case k33: N = 5, K = 33; }
)";
  holds(text, "f", {"sm_80", "sm_120"}, 2);
  holds(text, "g", {"sm_80", "sm_120"}, 2);
}

// A12 A22: A mask with one head for all was applied to the first one only; a column at the head of a chain took a wrong
// shape.
TEST_CASE("an operand of extent 1 meets every row, column and head") {
  const char *text = R"(
kernel f(x: tensor<f32>[B, 3, 16, 16], mask: tensor<f32>[B, 1, 16, 16], c: tensor<f32>[16, 1], y: out tensor<f32>[B, 3, 16, 16],
         z: out tensor<f32>[16, 16])
    grid (B) warps 2
{
    let b = program_id(0);
    let t = load(x[b, :, :, :]);
    store(y[b, :, :, :], where(load(mask[b, :, :, :]) > 0.0, t, -1.0));
    let column = load(c[:, :]);
    store(z[:, :], (column * 2.0 + 1.0) * sum(load(mask[0, 0, :, :]), axis = 0)[None, :], mask = iota(16)[:, None] < 16 * (1 - b));
}
verify f {
    y = where(mask + 0 * x > 0, x, -1);
    z = (c * 2 + 1) * sum(mask[0, 0, :, :], axis = 0)[None, :];
    case three: B = 3;
    tolerance y: exact;
}
)";
  holds(text, "f", {"sm_80", "sm_120"}, 2);
}

// A19 A23: Vectors of f16 computed wrongly, or were moved element by element, 30 times slower.
TEST_CASE("f16 rows are moved 16 bytes at a time and computed element by element as written") {
  const char *text = R"(
kernel f(x, w: tensor<f16>[N, 512], y: out tensor<f16>[N, 512]) grid (N) warps 2 {
    let i = program_id(0);
    store(y[i, :], load(x[i, :]) + load(w[i, :]));
}
verify f {
    y = x + w;
    input x = 0.25 * f64(integers(-100, 100));
    input w = 0.5 * f64(integers(-100, 100));
    case some: N = 3;
    tolerance y: exact;
}
)";
  holds(text, "f", {"sm_80", "sm_120"}, 1);
  for (const char *target : kTargets) {
    std::string ptx = entry_of(compiled(text, "f", target)->kernel->code.ptx, "f");
    CHECK(count(ptx, "ld.global") == 2); // 64 threads, 8 elements each
    CHECK(count(ptx, "st.global") == 1);
    CHECK((has(ptx, ".v4.b32") || has(ptx, ".v2.b64") || has(ptx, ".v4.u32")));
  }
}

// A20: Whether a tensor has a NaN was decided by its sum, which overflows to infinities whose difference is one.
TEST_CASE("any(isnan(x)) is about the elements, not about a sum") {
  const char *text = R"(
kernel f(x: tensor<f16>[M, 64], y: out tensor<i32>[M], z: out tensor<i32>[M]) grid (1) warps 2 {
    for i in 0 : M {
        let t = load(x[i, :]);
        store(y[i], any(isnan(t)) ? 1 : 0);
        store(z[i], any(isnan(where(iota(64) == 17 && i == 1, t * 0.0 * inf, t))) ? 1 : 0);
    }
}
verify f {
    let n = iota(M);
    y = 0 * n;
    z = where(n == 1, 1, 0);
    input x = where(iota(64)[None, :] % 2 == 0, 65504, -65504) + 0 * n[:, None];
    case three: M = 3;
}
)";
  holds(text, "f", {"sm_80", "sm_120"}, 1);
}

// A21: The maximum of a NaN and a number was one or the other, by back end and by order.
TEST_CASE("of a NaN and a number max and min give the number, in both orders, on every executor") {
  const char *text = R"(
kernel f<T: type = f32>(x: tensor<T>[64], y: out tensor<T>[4, 64]) grid (1) warps 1 {
    let t = load(x[:]);
    let bad = t * T(0.0) * T(inf);
    store(y[0, :], max(bad, t));
    store(y[1, :], max(t, bad));
    store(y[2, :], min(bad, t));
    store(y[3, :], min(t, bad));
}
reference f_ref(x: tensor<f64>[64]) -> tensor<f64>[4, 64] {
    var y = zeros<f64>[4, 64];
    for i in 0 : 4 { y[i, :] = x; }
    return y;
}
verify f {
    y = f_ref(x);
    case single: T = f32;
    case half: T = f16;
    case brain: T = bf16;
    tolerance y: exact;
}
)";
  holds(text, "f", {"sm_80", "sm_120"}, 1);
}
