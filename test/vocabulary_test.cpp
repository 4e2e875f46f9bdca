// The tile vocabulary of ThunderKittens, name by name, and what says the same here: an op, a function of the standard
// library or a construct of the language. Each row's snippet is compiled to PTX.
#include "compile_kit.h"
#include "driver/compile.h"
#include "ir/target.h"
#include <doctest/doctest.h>
#include <set>

using namespace tkc;

namespace {

struct Row {
  const char *name;    // there
  const char *ours;    // must occur in the snippet
  const char *snippet; // statements of a kernel: tiles t, u [32, 64], v [64], w [32], square q [32, 32] (f32),
                       // bf16 a [32, 16], b [16, 48], s [32, 48]; results go to r (any dtype and shape)
};

// A. Maps of tiles and vectors.
constexpr Row kMaps[] = {
    {"zero", "zeros", "let r = zeros<f32>[32, 64];"},
    {"one", "ones", "let r = ones<f32>[32, 64];"},
    {"pos_infty", "inf", "let r = full<f32>([32, 64], inf);"},
    {"neg_infty", "-inf", "let r = full<f32>([32, 64], -inf);"},
    {"exp", "exp", "let r = exp(t);"},
    {"exp2", "exp2", "let r = exp2(t);"},
    {"log", "log", "let r = log(t);"},
    {"log2", "log2", "let r = log2(t);"},
    {"abs", "abs", "let r = abs(t);"},
    {"relu", "relu", "let r = relu(t);"},
    {"copy", "=", "let r = t;"},
    {"add", "+", "let r = t + u;"},
    {"add (tile, scalar)", "+", "let r = t + 2.0;"},
    {"sub", "-", "let r = t - u;"},
    {"mul", "*", "let r = t * u;"},
    {"div", "/", "let r = t / u;"},
    {"max", "max", "let r = max(t, u);"},
    {"min", "min", "let r = min(t, 1.0);"},
    {"add_row", "[:, None]", "let r = t + w[:, None];"},
    {"sub_row", "[:, None]", "let r = t - w[:, None];"},
    {"mul_row", "[:, None]", "let r = t * w[:, None];"},
    {"div_row", "[:, None]", "let r = t / w[:, None];"},
    {"broadcast_row", "broadcast", "let r = broadcast(w[:, None], [32, 64]);"},
    {"add_col", "[None, :]", "let r = t + v[None, :];"},
    {"sub_col", "[None, :]", "let r = t - v[None, :];"},
    {"mul_col", "[None, :]", "let r = t * v[None, :];"},
    {"div_col", "[None, :]", "let r = t / v[None, :];"},
    {"broadcast_col", "broadcast", "let r = broadcast(v[None, :], [32, 64]);"},
    {"row_map, three operands", "fma", "let r = fma(t, w[:, None], u);"},
    {"col_map, three operands", "fma", "let r = fma(t, v[None, :], u);"},
    {"fma_AxBtC", "fma", "let r = fma(t, u, v[None, :]);"},
    {"fma_AxCtB", "fma", "let r = fma(t, v[None, :], u);"},
    {"apply(row, col, x)", "iota", "let r = t * f32(iota(32))[:, None] + f32(iota(64))[None, :];"},
    {"hasnan", "isnan", "let r = f32(i32(any(isnan(t))));"},
};

// B. Reductions.
constexpr Row kReductions[] = {
    {"row_max", "max", "let r = max(t, axis = 1);"},
    {"row_min", "min", "let r = min(t, axis = 1);"},
    {"row_sum", "sum", "let r = sum(t, axis = 1);"},
    {"row_prod", "prod", "let r = prod(t, axis = 1);"},
    {"col_max", "max", "let r = max(t, axis = 0);"},
    {"col_min", "min", "let r = min(t, axis = 0);"},
    {"col_sum", "sum", "let r = sum(t, axis = 0);"},
    {"col_prod", "prod", "let r = prod(t, axis = 0);"},
    {"row_max with accumulator", "max", "let r = max(w, max(t, axis = 1));"},
    {"row_sum with accumulator", "+", "let r = w + sum(t, axis = 1);"},
    {"max<axis>", "axis", "let r = max(t, axis = -1);"},
    {"max of a vector", "max", "let r = max(v);"},
    {"min of a vector", "min", "let r = min(v);"},
    {"sum of a vector", "sum", "let r = sum(v);"},
    {"prod of a vector", "prod", "let r = prod(v);"},
};

// C. Conversions. Layouts are the compiler's: swap_layout and the copies between vector layouts have nothing to say
// here.
constexpr Row kConversions[] = {
    {"copy to bf16", "bf16", "let r = bf16(t);"},
    {"copy to half", "f16", "let r = f16(t);"},
    {"copy from bf16", "f32", "let r = f32(bf16(t));"},
    {"copy to fp8e4m3", "e4m3", "let r = e4m3(t);"},
    {"copy to fp8e5m2", "e5m2", "let r = e5m2(t);"},
    {"copy from fp8", "f32", "let r = f32(e4m3(t));"},
    {"swap_layout", "mma", "let r = mma(bf16(mma(a, b)), b.T);"},
    {"swap_layout_inplace", "mma", "let r = mma(bf16(mma(a, b)).T, a);"},
    {"transpose_sep", ".T", "let r = t.T;"},
    {"transpose_inplace", ".T", "var r = q; r = r.T;"},
    {"subtile_inplace", "[16 : 32, :]", "let r = t[16 : 32, :];"},
    {"copy of a vector between layouts", "[None, :]",
     "let r = t * sum(t, axis = 0)[None, :] + sum(t, axis = 1)[:, None];"},
    {"copy of a shared tile", "=", "let r = t.T + u.T;"},
};

// D. Masks.
constexpr Row kMasks[] = {
    {"make_causal", "causal", "let r = causal(q);"},
    {"make_causal_t", "causal_t", "let r = causal_t(q);"},
    {"tril", "tril", "let r = tril(t, diagonal = -1, fill = 1.0);"},
    {"triu", "triu", "let r = triu(t, diagonal = 2);"},
    {"right_fill", "right_fill", "let r = right_fill(t, n, -inf);"},
    {"left_fill", "left_fill", "let r = left_fill(t, 7);"},
    {"upper_fill", "upper_fill", "let r = upper_fill(t, n);"},
    {"lower_fill", "lower_fill", "let r = lower_fill(t, 20, 2.0);"},
    {"upper_right_fill", "upper_right_fill", "let r = upper_right_fill(t, n, 9);"},
};

// E. Products. mma_ adds to what is there, mm_ does not.
constexpr Row kProducts[] = {
    {"mma_AB", "mma", "let r = mma(a, b, s);"},
    {"mma_ABt", ".T", "let r = mma(a, a.T, q);"},
    {"mma_AtB", ".T", "let r = mma(a.T, bf16(s));"},
    {"mma_AtBt", ".T", "let r = mma(b.T, a.T);"},
    {"mm_AB", "mma", "let r = mma(a, b);"},
    {"mm_ABt", ".T", "let r = mma(bf16(s), b.T);"},
    {"mm_AtB", ".T", "let r = mma(b.T, b);"},
    {"mm_AtBt", ".T", "let r = mma(b.T, a.T);"},
    {"mma<trans_a, trans_b>", "?", "let r = mma(true ? a : b.T, false ? b.T : b);"},
    {"mma f16 in f16", "acc = f16", "let r = mma(f16(a), f16(b), acc = f16);"},
    {"mma f16 in f32", "f16", "let r = mma(f16(a), f16(b));"},
    {"mma fp8e4m3", "e4m3", "let r = mma(e4m3(a), e4m3(b));"},
    {"complex mma_AB", "mma", "let re = mma(a, b) - mma(-a, b); let r = mma(a, b, mma(-a, b, re));"},
    {"complex mm_AB", "mma", "let re = mma(a, b) - mma(-a, b); let r = re;"},
    {"warpgroup mma (A from registers)", "mma", "let r = mma(bf16(f32(a) * 2.0), b);"},
};

// Not mapped to a value, with the reason.
struct Class {
  const char *names;
  const char *reason;
};
constexpr Class kClasses[] = {
    {"mma_fence, mma_commit_group, mma_async_wait",
     "asynchronous: warpgroup products are not issued; mma.sync completes in place, and "
     "the scheduler orders what it reads"},
    {"tcgen05: mma2_*, mm2_*, commit", "asynchronous products of tensor memory, which sm_120 does not have"},
    {"load_async, store_async, semaphores, tma::*",
     "asynchronous copies and barriers: section F and G, carried by rings"},
};

std::string program_text(const Row &row) {
  return std::string(
             "import nn;\nimport linalg;\n"
             "kernel f<O: type = f32>(x, y: tensor<f32>[32, 64], xa: tensor<bf16>[32, 16], xb: tensor<bf16>[16, 48], "
             "z: inout tensor<f32>[1], n: i32) grid (1) warps 4 {\n"
             "let t = load(x); let u = load(y); let v = load(x[0, :]); let w = load(x[:, 0]); let q = load(x[:, 0 : "
             "32]);\n"
             "let a = load(xa); let b = load(xb); let s = f32(load(xb[0, :]))[None, :] + zeros<f32>[32, 48];\n") +
         row.snippet + "\natomic_add(z[0], sum(f32(r)));\n}\n";
}

template <size_t N> void check_rows(const Row (&rows)[N], std::set<std::string> &seen) {
  for (const Row &row : rows) {
    CAPTURE(std::string(row.name));
    CHECK(seen.insert(row.name).second);
    CHECK(std::string(row.snippet).find(row.ours) != std::string::npos);
    auto c = compile_text(program_text(row), "f", "sm_120");
    std::string messages = c->diags.render_all();
    INFO(messages);
    CHECK(c->kernel);
  }
}

} // namespace

TEST_CASE("every name of the tile vocabulary has a counterpart that compiles") {
  std::set<std::string> seen;
  check_rows(kMaps, seen);
  check_rows(kReductions, seen);
  check_rows(kConversions, seen);
  check_rows(kMasks, seen);
  check_rows(kProducts, seen);
  for (const Class &c : kClasses) {
    CHECK(*c.names);
    CHECK(*c.reason);
  }
}
