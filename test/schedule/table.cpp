// What must be pipelined: every loop with loads of tiles of every sample, and small loops of every form, on three
// targets. A loop that loses its ring, or a slot, fails here.
#include "schedule/kit.h"
#include <fmt/ranges.h>
#include <map>

using namespace schedule_kit;

namespace {

// "80: 4 cp_async: a b | 90, 120: 4 tma: a b" by loop: what is the same on several targets is said once.
std::map<std::string, std::string> by_loop(const std::string &source, const std::string &file) {
  std::map<std::string, std::vector<std::pair<std::string, std::string>>> found; // loop -> targets, what
  for (const char *target : kTargets) {
    Loaded l(source, target, file);
    l.schedule();
    std::vector<std::string> lines = summary(l.functions);
    REQUIRE_MESSAGE(!l.diags.has_errors(), l.diags.render_all());
    std::map<std::string, int> seen;
    for (const std::string &line : lines) {
      size_t colon = line.find(": ");
      std::string loop = line.substr(0, colon), what = line.substr(colon + 2), arch = target + 3;
      if (int n = ++seen[loop]; n > 1) loop += fmt::format(" ({})", n);
      auto &list = found[loop];
      if (!list.empty() && list.back().second == what)
        list.back().first += ", " + arch;
      else
        list.emplace_back(arch, what);
    }
  }
  std::map<std::string, std::string> out;
  for (const auto &[loop, list] : found)
    for (const auto &[targets, what] : list) out[loop] += (out[loop].empty() ? "" : " | ") + targets + ": " + what;
  return out;
}

// Rows are compared one by one, so that a failure shows what is and what must be.
void compare(const std::string &name, const std::string &source, const std::map<std::string, std::string> &expected,
             const std::string &file = "k.tk") {
  std::map<std::string, std::string> found = by_loop(source, file);
  for (const auto &[loop, what] : found) {
    std::string row = fmt::format("{}: {}: {}", name, loop, what);
    auto it = expected.find(loop);
    CHECK(row == fmt::format("{}: {}: {}", name, loop, it == expected.end() ? "(no row)" : it->second));
  }
  for (const auto &[loop, what] : expected) CHECK_MESSAGE(found.count(loop), name, ": there is no loop ", loop);
}

std::string kernel(const std::string &params, const std::string &body, int warps) {
  return fmt::format("kernel f({}) grid (1) warps {} {{\n{}\n}}\n", params, warps, body);
}
// acc += a b over `loop`.
std::string product(const std::string &loop, int warps = 8, const std::string &more = "") {
  return kernel("a: tensor<bf16>[64, K], b: tensor<bf16>[K, 64], " + more + "y: out tensor<f32>[64, 64]",
                "  var acc = zeros<f32>[64, 64];\n  " + loop + "\n  store(y[:, :], acc);", warps);
}
const std::string kBody = "{ acc = mma(load(a[:, k :+ 32]), load(b[k :+ 32, :]), acc); }";
std::string fixed(int64_t trips) { return product(fmt::format("for k in 0 : {} step 32 {}", trips * 32, kBody)); }

} // namespace

TEST_CASE("what must be pipelined: the samples") {
  const std::map<std::string, std::map<std::string, std::string>> table = {
      {"attention",
       {{"attention j", "80: 4 cp_async: k v | 90: 4 tma: k v; 1 proxy fence | 120: 3 tma: k v; 1 proxy fence"},
        {"attention j (2)", "80: 4 cp_async: k v | 90: 4 tma: k v; 1 proxy fence | 120: 3 tma: k v; 1 proxy fence"}}},
      {"cumsum",
       {{"row_cumsum s", "80, 90, 120: 4 mbarrier by a producer: x"},
        {"decay_scan t", "80, 90, 120: 4 cp_async: a x"}}},
      {"gdn_forward",
       {{"kda_advance__BV_64__no_states c", "80, 90, 120: 4 mbarrier by a producer: eg beta v kp qp aq ak"},
        {"kda_advance__no_states c",
         "80: 4 mbarrier by a producer: eg beta v kp qp aq ak | 90: 3 mbarrier by a producer: eg beta v "
         "kp qp aq ak | 120: 4 mbarrier by a producer: eg beta v kp qp aq ak"}}},
      {"gemm", {{"gemm k", "80: 4 cp_async: a b | 90: 4 tma: a b; 1 proxy fence | 120: 3 tma: a b; 1 proxy fence"}}},
      {"gemm_persistent",
       {{"gemm_persistent k", "80: 4 cp_async over tiles: a b | 90: 4 tma over tiles: a b; 1 proxy fence | 120: 2 tma "
                              "over tiles: a b; 1 proxy fence"}}},
      {"gemm_bias_gelu", {{"linear k", "80, 90, 120: 4 mbarrier by a producer: x w"}}},
      {"gemm_fp8", {{"gemm_fp8 k", "80, 90, 120: 4 mbarrier by a producer: a b"}}},
      {"gemm_variants",
       {{"gemm_f16 k", "80, 90, 120: 4 mbarrier by a producer: a b"},
        {"gemm_tf32 k", "80, 90, 120: 4 mbarrier by a producer: a b"},
        {"gemm_tf32x3 k", "80, 90, 120: 4 mbarrier by a producer: a b"},
        {"gemm_nt k", "80, 90, 120: 4 mbarrier by a producer: a b"},
        {"gemm_tn k", "80, 90, 120: 4 mbarrier by a producer: a b"},
        {"gemm_tt k", "80, 90, 120: 4 mbarrier by a producer: a b"}}},
      {"kda_backward",
       {{"kda_cuts j", "80, 90, 120: 4 cp_async: cu"},
        {"kda_replay__SLOTS_5 c", "80, 90, 120: 5 mbarrier by a producer: eg v kp beta pm ak"},
        {"kda_reverse__SLOTS_5 i", "80, 90, 120: 5 mbarrier by a producer: eg do ak aq beta qp kp"},
        {"kda_gradients j",
         "80: 2 cp_async over tiles: do e x hs ds | 90: 4 cp_async over tiles: do e x hs ds | 120: synchronous: 2 "
         "stages of 45056 bytes make 123008 bytes of shared memory, 101376 are there on sm_120"},
        {"kda_gradients tile", "80, 90, 120: synchronous: the ring of a loop inside runs on over tiles; not rq: it has "
                               "a mask or another value; not rk: it has a mask or another value"},
        {"kda_gradients__finish_false__OT_f32 j",
         "80: 2 cp_async over tiles: do e x hs ds | 90: 4 cp_async over tiles: do e x hs ds | 120: synchronous: 2 "
         "stages of 45056 bytes make 123008 bytes of shared memory, 101376 are there on sm_120"},
        {"kda_gradients__finish_false__OT_f32 tile",
         "80, 90, 120: synchronous: the ring of a loop inside runs on over tiles; not rq: it has a mask or another "
         "value; not rk: it has a mask or another value"},
        {"kda_group_sum r", "80, 90, 120: 4 mbarrier by a producer: dqv dkv"},
        {"kda_gate_sums i", "80, 90, 120: 4 mbarrier by a producer: da"},
        {"kda_gate_sums i (2)", "80, 90, 120: 4 mbarrier by a producer: dbias"},
        {"kda_chunk_factors tile", "80, 90, 120: synchronous: @no_pipeline"},
        {"kda_chunk_factors j", "80, 90, 120: synchronous: @no_pipeline"}}},
      {"kda_chain",
       {{"kda_chain c", "80: 4 mbarrier by a producer: beta v kp qp aq eg ak | 90: 3 mbarrier by a producer: beta v kp "
                        "qp aq eg ak | 120: 2 mbarrier by a producer: beta v kp qp aq eg ak"}}},
      {"kda_chain_records",
       {{"chain_of_records c",
         "80: 4 mbarrier by a producer: x.beta v x.kp x.qp x.aq x.eg x.ak | 90: 3 mbarrier by a producer: x.beta v "
         "x.kp x.qp x.aq x.eg x.ak | 120: 2 mbarrier by a producer: x.beta v x.kp x.qp x.aq x.eg x.ak"}}},
      {"kda_forward",
       {{"kda_advance__BV_64__overlap c", "80, 90, 120: 4 mbarrier by a producer: eg beta v kp qp aq ak"},
        {"kda_advance__SLOTS_5__overlap c", "80, 90, 120: 5 mbarrier by a producer: eg beta v kp qp aq ak"},
        {"kda_advance__overlap c", "80, 90, 120: 4 mbarrier by a producer: eg beta v kp qp aq ak"},
        {"kda_chunk_factors__no_pm__no_rk__no_rq tile", "80, 90, 120: synchronous: @no_pipeline"},
        {"kda_chunk_factors__no_pm__no_rk__no_rq j", "80, 90, 120: synchronous: @no_pipeline"}}},
      {"kda_recurrent", {{"kda_recurrent t", "80, 90, 120: 4 cp_async: q k g v"}}},
      {"layer_norm_backward",
       {{"layer_norm_backward i", "80, 90, 120: 4 cp_async: dy x"},
        {"layer_norm_backward_sum p", "80, 90, 120: 4 mbarrier by a producer: dw_parts db_parts"}}},
      {"linear_state",
       {{"linear_state t",
         "80: synchronous: the kernel has roles of its own; k 1 ahead | 90, 120: synchronous: the kernel "
         "has roles of its own; k 2 ahead"},
        {"linear_state t (2)", "80, 90, 120: synchronous: the kernel has roles of its own"}}},
      {"rms_norm_backward",
       {{"rms_norm_backward i", "80, 90, 120: 4 cp_async: x dy"},
        {"rms_norm_backward_sum p", "80, 90, 120: 4 mbarrier by a producer: parts"}}},
      {"softmax",
       {{"softmax_long j", "80, 90, 120: 4 cp_async: x"}, {"softmax_long j (2)", "80, 90, 120: 4 cp_async: x"}}},
      {"split_gemm",
       {{"products k", "80, 90, 120: 4 mbarrier by a producer: a b"},
        {"add_parts s", "80, 90, 120: 4 mbarrier by a producer: parts"},
        {"product k", "80, 90, 120: 4 mbarrier by a producer: a b"}}}};
  std::map<std::string, std::map<std::string, std::string>> rest = table;
  for (const std::string &sample : sample_names()) {
    CAPTURE(sample);
    compare(sample, source_text("samples/" + sample + ".tk"), rest[sample], sample_path(sample));
  }
  for (const auto &[sample, rows] : rest)
    CHECK_MESSAGE(std::filesystem::exists(std::string(TKC_SOURCE_DIR) + "/samples/" + sample + ".tk"), sample);
}

TEST_CASE("what must be pipelined: small loops") {
  struct Row {
    const char *name;
    std::string source;
    std::map<std::string, std::string> loops;
  };
  std::string k = "for k in 0 : K step 32 " + kBody;
  const Row table[] = {
      {"eight warps", product(k), {{"f k", "80: 4 cp_async: a b | 90, 120: 4 tma: a b; 1 proxy fence"}}},
      {"four warps", product(k, 4), {{"f k", "80, 90, 120: 4 mbarrier by a producer: a b"}}},
      {"one warp", product(k, 1), {{"f k", "80: 3 cp_async: a b | 90: 2 cp_async: a b | 120: 4 cp_async: a b"}}},
      {"no iteration", fixed(0), {}},
      {"one iteration", fixed(1), {}},
      {"two iterations", fixed(2), {{"f k", "80: 2 cp_async: a b | 90, 120: 2 tma: a b; 1 proxy fence"}}},
      {"three iterations", fixed(3), {{"f k", "80: 3 cp_async: a b | 90, 120: 3 tma: a b; 1 proxy fence"}}},
      {"four iterations", fixed(4), {{"f k", "80: 4 cp_async: a b | 90, 120: 4 tma: a b; 1 proxy fence"}}},
      {"five iterations", fixed(5), {{"f k", "80: 4 cp_async: a b | 90, 120: 4 tma: a b; 1 proxy fence"}}},
      {"two loops in turn",
       product(k + "\n  " + k),
       {{"f k", "80: 4 cp_async: a b | 90, 120: 4 tma: a b; 1 proxy fence"},
        {"f k (2)", "80: 4 cp_async: a b | 90, 120: 4 tma: a b; 1 proxy fence"}}},
      {"two loops in turn, four warps",
       product(k + "\n  " + k, 4),
       {{"f k", "80, 90, 120: 4 mbarrier by a producer: a b"},
        {"f k (2)", "80, 90, 120: 4 mbarrier by a producer: a b"}}},
      {"a loop in a loop", product("for j in 0 : 3 { " + k + " }"), {{"f k", "80, 90, 120: 4 cp_async: a b"}}},
      {"a loop in a loop, four warps",
       product("for j in 0 : 3 { " + k + " }", 4),
       {{"f k", "80, 90, 120: 4 cp_async: a b"}}},
      {"the outer loop loads too",
       product("for j in 0 : 3 { let s = load(x[j, :]); " + k + " acc = acc + s[:, None]; }", 8,
               "x: tensor<f32>[3, 64], "),
       {{"f j", "80: 3 cp_async: x | 90, 120: 3 tma: x; 1 proxy fence"}, {"f k", "80, 90, 120: 4 cp_async: a b"}}},
      {"the inner loop's place depends on the outer one",
       product("for j in 0 : 3 { for k in j * 64 : K step 32 " + kBody + " }"),
       {{"f k", "80, 90, 120: 4 cp_async: a b"}}},
      {"in a branch", product("if n > 0 { " + k + " }", 8, "n: i32, "), {{"f k", "80, 90, 120: 4 cp_async: a b"}}},
      {"an early return before it",
       product("if n > 0 { return; }\n  " + k, 4, "n: i32, "),
       {{"f k", "80, 90, 120: 4 cp_async: a b"}}},
      {"from the end of a run-time range",
       product("for k in n : K step 32 " + kBody, 8, "n: i32, "),
       {{"f k", "80, 90, 120: 4 cp_async: a b"}}},
      {"a run-time step",
       product("for k in 0 : K step n " + kBody, 8, "n: i32, "),
       {{"f k", "80, 90, 120: synchronous: its step is not a constant below 2^24"}}},
      {"a table of places",
       product("for i in 0 : T { let k = load(p[i]); acc = mma(load(a[:, k :+ 32]), load(b[k :+ 32, :]), acc); }", 8,
               "p: tensor<i32>[T], "),
       {{"f i", "80, 90, 120: 4 cp_async: a b"}}},
      {"a table of places that the kernel writes",
       product("for i in 0 : T { let k = load(p[i]); acc = mma(load(a[:, k :+ 32]), load(b[k :+ 32, :]), acc); "
               "store(p[i], k + 1); }",
               8, "p: inout tensor<i32>[T], "),
       {{"f i", "80, 90, 120: synchronous: none of its loads can run ahead; not a: its place depends on `k`; not b: "
                "its place depends on `k`"}}},
      {"a place that the iteration before makes",
       product("var at = 0;\n  for i in 0 : T { acc = mma(load(a[:, at :+ 32]), load(b[at :+ 32, :]), acc); at = at + "
               "load(p[i]); }",
               8, "p: tensor<i32>[T], "),
       {{"f i", "80, 90, 120: synchronous: none of its loads can run ahead; not a: its place depends on `at`; not b: "
                "its place depends on `at`"}}},
      {"one load of two by a place from before",
       product("var at = 0;\n  for i in 0 : T { acc = mma(load(a[:, i * 32 :+ 32]), load(b[at :+ 32, :]), acc); at = "
               "at + load(p[i]); }",
               8, "p: tensor<i32>[T], "),
       {{"f i", "80: 4 cp_async: a; not b: its place depends on `at` | 90, 120: 4 tma: a; not b: its place depends on "
                "`at`; 1 proxy fence"}}},
      {"rows by an index tile",
       kernel("x: tensor<bf16>[M, 64], i: tensor<i32>[N, 16], y: out tensor<f32>[16, 64]",
              "  var s = zeros<f32>[16, 64];\n  for j in 0 : N { let r = load(i[j, :]); s = s + f32(load(x[r, :])); "
              "}\n  store(y[:, :], s);",
              4),
       {{"f j", "80, 90, 120: 4 mbarrier by a producer: i; not x: it gathers"}}},
      {"under a mask",
       kernel("x: tensor<f32>[N, 64], y: out tensor<f32>[64]",
              "  var s = zeros<f32>[64];\n  for j in 0 : N { s = s + load(x[j, :], mask = iota(64) > 3); }\n  "
              "store(y[:], s);",
              1),
       {{"f j", "80, 90, 120: synchronous: none of its loads can run ahead; not x: it has a mask or another value"}}},
      {"of a tensor that the loop writes",
       kernel("y: inout tensor<f32>[N, 64]", "  for j in 0 : N - 1 { store(y[j + 1, :], load(y[j, :]) + 1.0); }", 1),
       {{"f j", "80, 90, 120: synchronous: none of its loads can run ahead; not y: the kernel writes its tensor"}}},
      {"a sum of rows",
       kernel("x: tensor<f32>[N, 1024], y: out tensor<f32>[1024]",
              "  var s = zeros<f32>[1024];\n  for j in 0 : N { s = s + load(x[j, :]); }\n  store(y[:], s);", 4),
       {{"f j", "80, 90, 120: 4 mbarrier by a producer: x"}}},
      {"bytes that no copy can bring alone",
       kernel("x: tensor<u8>[N, 33], y: out tensor<i32>[33]",
              "  var s = zeros<i32>[33];\n  for j in 0 : N { s = s + i32(load(x[j, :])); }\n  store(y[:], s);", 1),
       {{"f j", "80, 90, 120: synchronous: none of its loads can run ahead; not x: its rows cannot be copied 4 bytes "
                "at a time"}}},
      {"a tile that fills a third of the shared memory of the smallest target",
       kernel("a: tensor<bf16>[128, K], b: tensor<bf16>[K, 128], y: out tensor<f32>[128, 128]",
              "  var acc = zeros<f32>[128, 128];\n  for k in 0 : K step 128 { acc = mma(load(a[:, k :+ 128]), "
              "load(b[k :+ 128, :]), acc); }\n  store(y[:, :], acc);",
              8),
       {{"f k", "80: 2 cp_async: a b | 90: 3 tma: a b; 1 proxy fence | 120: synchronous: 2 stages of 65536 bytes make "
                "131104 bytes of shared memory, 101376 are there on sm_120"}}},
      {"a part of a tensor",
       product("let part = a[:, n : K];\n  for k in 0 : K step 32 { acc = mma(load(part[:, k :+ 32]), load(b[k :+ 32, "
               ":]), acc); }",
               8, "n: i32, "),
       {{"f k", "80, 90, 120: 4 cp_async: a b"}}},
      {"a pitch that TMA has not",
       kernel(
           "a: tensor<bf16>[64, 100], b: tensor<bf16>[100, 64], y: out tensor<f32>[64, 64]",
           "  var acc = zeros<f32>[64, 64];\n  for k in 0 : 100 step 20 { acc = mma(load(a[:, k :+ 20]), load(b[k :+ "
           "20, :]), acc); }\n  store(y[:, :], acc);",
           8),
       {{"f k", "80, 90, 120: 4 cp_async: a b"}}},
  };
  for (const Row &row : table) {
    CAPTURE(row.name);
    compare(row.name, row.source, row.loops);
  }
}
