// The operators of stdlib/kda.tk, kda_backward.tk and gdn.tk beyond the cases of their samples. In this file: faults
// that people make in adjoints of Kimi Delta Attention, seeded into the library's source one at a time: each must fail
// against the derivative of the recurrence, in the outputs named here and with the place of the worst element, and the
// library as it is must pass. On the interpreter, which runs the same typed program that is compiled.
//
// What went wrong elsewhere, by public report, and what looks for it here: a test case (or, in quotes, a fault seeded
// below), else a word why there is none. Files are those of test/kda.
//
//   range
//     TIRx-kernels#214, attention-gym#394, executorch#21417, fla#77 gates from none to a reset
//     transformers#48455, prismaquant#414                           gates from none to a reset (gradients)
//     flash-linear-attention-npu#448                                gates at their bound
//     sglang-jax#1587                                               resets at the seam of packed sequences
//     cuLA#89                                                       documented: gates are at most 0
//     fla#736                                                       documented: keys whose recurrence grows
//     attention-gym#464                                             states past the range of f16
//     fla#624                                                       a head of more value heads
//   values
//     attention-gym#461                                             gates from none to a reset (dg at -5)
//     attention-gym#465                                             the residual is a difference of sums in f32
//     attention-gym#475                                             beta of exactly 0 and 1
//     sglang#38975, #38977, vllm#53877                              "beta rounded to bf16"
//     vmlx-swift#433                                                gates from none to a reset (-0.001)
//     sglang#32653, #32658, vllm#52909                              a prompt in two parts
//     vllm#40956, #41292                                            a state by columns
//     fla#640, #1228, #1229                                         compiler (of another language)
//     fla#1115                                                      context-parallel
//     fla#671                                                       a batch of copies is its rows
//     flash-linear-attention-npu#544                                packed sequences are separate runs
//     cuLA#43                                                       every length about a chunk, "no mask at the tail"
//     ATOM#1750                                                     every length about a chunk
//     fla#876                                                       blocks of every size
//     fla PR#1230                                                   Python
//     vllm#28293                                                    samples: gates, beta made in the kernel
//   memory
//     fla#1134, #1135, #913, #1142                                  NaN before and behind every tensor
//     fla#1080, #911, npu#699                                       size (more than 4 GiB)
//     fla#639                                                       a gate of another rank
//     fla#945, triton#9871, #10590                                  every order of asynchronous work
//     fla#607, #638, PR#687                                         compiler (of another language)
//     FlashKDA#24, #25, attention-gym#444                           an empty sequence, packed sequences (emulator)
//     vllm#50147, #55924                                            serving
//     native-sparse-attention#23                                    packed sequences, "wrong sequence of a slot"
#include "driver/verify.h"
#include "ir/target.h"
#include "syntax/parse.h"
#include <doctest/doctest.h>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>

using namespace tkc;

namespace {

std::string slurp(const std::string &path) {
  std::ifstream in(std::string(TKC_SOURCE_DIR) + "/" + path);
  REQUIRE(in);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

void replace_all(std::string &text, const std::string &from, const std::string &to) {
  REQUIRE_MESSAGE(text.find(from) != text.npos, "the source has no `", from, "`");
  for (size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size()) text.replace(at, from.size(), to);
}

struct Fault {
  const char *name, *file, *from, *to;
  std::vector<std::string> outputs; // that must fail
};

const Fault kFaults[] = {
    {"pairs i = j counted twice",
     "kda_backward",
     "tril(dA * (scale * bt)[None, :], -1)",
     "tril(dA * (scale * bt)[None, :])",
     {"dq"}},
    {"beta rounded to bf16", "kda", "store(bo[h, slot, :], bt);", "store(bo[h, slot, :], f32(bf16(bt)));", {"dbeta"}},
    {"wrong head of a group", "kda_backward", "let hq = h / (HV / H);", "let hq = h % H;", {"dq", "dk", "dg"}},
    {"no mask at the tail", "kda", "where(inside[:, None], y * kLog2E, 0)", "y * kLog2E", {"dk"}},
    {"reverse sum the wrong way", "kda_backward", "reverse = true", "reverse = false", {"dg"}},
    {"stale block of state cotangents",
     "kda_backward",
     "ds[h, block : used, :, :]",
     "ds[h, max(block - 1, 0) : max(used - 1, 0), :, :]",
     {"dk", "dg"}},
    {"stale block of states",
     "kda_backward",
     "hs[h, block : used, :, :]",
     "hs[h, max(block - 1, 0) : max(used - 1, 0), :, :]",
     {"dq", "dk"}},
    {"residual without its chunk's writes",
     "kda_backward",
     "bf16(r - mma(load(pm[h, at, :, :]), rb))",
     "bf16(r)",
     {"dbeta"}},
    {"cotangent of the final state left out",
     "kda_backward",
     "} else if has(dht) {",
     "} else if false && has(dht) {",
     {"dv", "ds0"}},
    {"scale missing", "kda_backward", "dqt = dqt * (scale * up);", "dqt = dqt * up;", {"dq"}},
    {"norm taken for a constant", "kda_backward", "qt * sum(qt * dqt, axis = 1)[:, None]", "0.0 * qt", {"dq"}},
    {"factor 2 of negative eigenvalues missing", "kda_backward", "if neg_eigval { db = 2.0 * db; }", "", {"dbeta"}},
    {"sigmoid of beta not differentiated", "kda_backward", "db = db * s * (1.0 - s);", "db = db * s;", {"dbeta"}},
    {"a value head missing in the group's sum",
     "kda_backward",
     "for r in 0 : HV / H",
     "for r in 1 : HV / H",
     {"dq", "dk"}},
    {"state's decay missing in the gate", "kda_backward", "carry = exp2(total)[0, :] * carry", "carry = carry", {"dg"}},
    {"gate not scaled by a",
     "kda_backward",
     "dgt = bound * a * dgt * s * (1.0 - s);",
     "dgt = bound * dgt * s * (1.0 - s);",
     {"dg", "ddt_bias"}},
    {"a_log's sum without x", "kda_backward", "sums = dgt * xg;", "sums = dgt;", {"da_log"}},
    {"norms of another sequence's tokens",
     "kda_backward",
     "(first / 16 + n) * 16 + t - first",
     "first / 16 * 16 + t - first",
     {"dq", "dk"}},
    {"chain walked forwards", "kda_backward", "let c = chunks - 1 - i;", "let c = i;", {"dv"}},
    {"no state goes on into a slice",
     "kda_backward",
     "if enters {\n        S = load(before",
     "if false {\n        S = load(before",
     {"dq", "dk", "dg"}},
    {"no cotangent goes on into a slice",
     "kda_backward",
     "if enters {\n        dS = load(after",
     "if false {\n        dS = load(after",
     {"dk", "dv"}},
    {"another sequence goes on into a slice",
     "kda_backward",
     "enters = enters && load(joins[0]) == n;",
     "enters = enters && load(joins[0]) != n;",
     {"dq", "dk"}},
    {"one query head's sign",
     "kda_backward",
     "dkr = -dkr * (bt[:, None] * up);",
     "dkr = dkr * (bt[:, None] * up);",
     {"dk", "dg"}},
};

// Whether a report of an output says which sequence, head and chunk its worst element belongs to, as far as it does to
// one.
bool names_place(const std::string &text, const std::string &output) {
  bool token =
      output != "ds0" && output != "da_log" && output != "ddt_bias"; // else of a sequence, or a sum over tokens
  bool sequence = token || output == "ds0";
  std::string place =
      fmt::format(R"(\] = .*{}head \d+{}: got )", sequence ? "in sequence \\d+, " : "in ", token ? ", chunk \\d+" : "");
  return std::regex_search(text, std::regex(place));
}

// Outputs that fail in some case; the text of each says where.
std::map<std::string, std::string> failing(const Fault *fault) {
  std::filesystem::path dir = std::filesystem::path("kda_faults");
  std::filesystem::create_directories(dir);
  std::string kda = slurp("stdlib/kda.tk"), backward = slurp("stdlib/kda_backward.tk"),
              forward = slurp("samples/kda_forward.tk"), cases = slurp("test/stdlib_kda/kda_backward.tk");
  if (fault) replace_all(fault->file == std::string("kda") ? kda : backward, fault->from, fault->to);
  for (std::string *text : {&backward, &forward, &cases}) replace_all(*text, "import kda;", "import \"kda.tk\";");
  replace_all(cases, "import kda_backward;", "import \"kda_backward.tk\";");
  replace_all(cases, "../../samples/kda_forward.tk", "kda_forward.tk");
  auto write = [&](const char *name, const std::string &text) { std::ofstream(dir / name) << text; };
  write("kda.tk", kda), write("kda_backward.tk", backward), write("kda_forward.tk", forward), write("cases.tk", cases);

  SourceManager sources;
  Diagnostics diags(sources);
  auto id = read_source((dir / "cases.tk").string(), sources, diags);
  REQUIRE(id);
  auto program = sema::Program::load(*id, diags);
  INFO(diags.render_all());
  REQUIRE(program);
  std::map<std::string, std::string> out;
  int64_t cases_run = 0;
  for (const ast::Function *k : program->entries()) {
    const ast::Check *check = program->check_for(k->name.text, false);
    if (!check) continue;
    driver::VerifyOptions o;
    o.executor = driver::Executor::Interp;
    o.compile.target = ir::find_target("sm_120");
    driver::verify_kernel(*program, *k, *check, o, diags, [&](const driver::CaseResult &r) {
      CHECK_MESSAGE(r.error.empty(), r.error);
      for (const auto &[name, c] : r.outputs)
        if (!c.pass) out[name] += r.name + ": " + c.to_string(name);
      cases_run++;
    });
  }
  CHECK_MESSAGE(!diags.has_errors(), diags.render_all());
  CHECK(cases_run == 3);
  std::filesystem::remove_all(dir);
  return out;
}

} // namespace

TEST_CASE("the library's backward pass survives the cases") {
  for (const auto &[name, text] : failing(nullptr)) FAIL_CHECK(text);
}

TEST_CASE("seeded faults are caught and named") {
  for (const Fault &f : kFaults) {
    CAPTURE(f.name);
    auto found = failing(&f);
    CHECK(!found.empty());
    for (const std::string &name : f.outputs) {
      CHECK_MESSAGE(found.count(name), f.name, ": ", name, " passes");
      if (!found.count(name)) continue;
      CHECK_MESSAGE(names_place(found[name], name), f.name, ": ", found[name]);
    }
  }
}
