// What the compiler decides for the samples: layouts of the KDA chain, and which loops run through rings.
#include "compile_kit.h"
#include "ir/op_def.h"
#include <fmt/ranges.h>
#include <map>

using namespace tkc;

namespace {

std::unique_ptr<Compiled> compile_sample(const std::string &sample, const std::string &target) {
  auto c = compile_text(source_text("samples/" + sample + ".tk"), sample, target);
  INFO(c->diags.render_all());
  REQUIRE(c->kernel);
  return c;
}

int64_t count(const std::string &text, const std::string &what) {
  int64_t n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) n++;
  return n;
}

// The text of the aligned entry's loop that has the most products.
std::string main_loop(const std::string &ptx, const std::string &entry) {
  size_t begin = ptx.find(".visible .entry " + entry + "(");
  size_t end = ptx.find(".visible .entry", begin + 1);
  std::string text = ptx.substr(begin, end - begin), best;
  // Innermost loops: from a label to the branch back to it, without another such pair inside.
  std::map<std::string, size_t> labels;
  for (size_t at = text.find("$L__BB"); at != std::string::npos; at = text.find("$L__BB", at + 1)) {
    size_t stop = text.find_first_of(":;, \n", at);
    std::string label = text.substr(at, stop - at);
    if (text[stop] == ':')
      labels[label] = at;
    else if (labels.count(label)) {
      std::string body = text.substr(labels[label], at - labels[label]);
      if (count(body, "mma.sync") > count(best, "mma.sync")) best = body;
    }
  }
  return best;
}

const ir::Op *main_for(const ir::Function &f) {
  const ir::Op *found = nullptr;
  int64_t most = 0;
  ir::walk(f.body, [&](const ir::Op *op) {
    if (op->kind != ir::OpKind::For) return;
    int64_t n = 0;
    for (const ir::Op *o : op->regions[0]->ops) n += o->kind == ir::OpKind::Mma;
    if (n > most) most = n, found = op;
  });
  return found;
}

} // namespace

TEST_CASE("kda_chain on an H200: the state transposed in registers, an A operand for ever") {
  auto c = compile_sample("kda_chain", "sm_90");
  const ir::Function &f = *c->kernel->function;
  CHECK(f.warps == 2); // 16 of the 32 columns each, all of K
  const ir::Op *loop = main_for(f);
  REQUIRE(loop);
  int64_t products = 0;
  for (const ir::Op *op : loop->regions[0]->ops) {
    CHECK(op->kind != ir::OpKind::ConvertLayout);
    if (op->kind != ir::OpKind::Mma) continue;
    products++;
    CHECK(op->attrs.i("transposed") == 1);
    CHECK(op->attrs.ints("tiling") == std::vector<int64_t>{1, 2, 1});
  }
  CHECK(products == 4);
  // kp S and qp S: 8 steps of K x 4 tiles of C each; aq r: 2 x 4; ak^T r: 2 x 16. The hand-written kernel skips two of
  // aq's, which is triangular there. Factors are read four 8x8 matrices at a time: 16 + 16 + 4 + 16. A lane holds eight
  // neighbouring columns of o, which it stores as they are.
  std::string body = main_loop(c->kernel->code.ptx, "kda_chain");
  CHECK(count(body, "mma.sync") == 104);
  CHECK(count(body, "ldmatrix.sync.aligned.m8n8.x4") == 52);
  CHECK(count(body, "bar.sync") == 0);
}

TEST_CASE("kda_chain on GeForce: K over warps") {
  auto c = compile_sample("kda_chain", "sm_120");
  const ir::Function &f = *c->kernel->function;
  CHECK(f.warps == 4);
  const ir::Op *loop = main_for(f);
  REQUIRE(loop);
  std::vector<std::vector<int64_t>> tilings;
  for (const ir::Op *op : loop->regions[0]->ops)
    if (op->kind == ir::OpKind::Mma) {
      tilings.push_back(op->attrs.ints("tiling"));
      CHECK(op->attrs.i("transposed") == 1);
    }
  // The state's K lies over two pairs of warps: partial sums of kp S and qp S are added up, ak^T r needs no exchange.
  std::vector<std::vector<int64_t>> expected = {{1, 2, 2}, {1, 2, 2}, {2, 2, 1}, {2, 2, 1}};
  CHECK(tilings == expected);
}

TEST_CASE("loops of the samples run through rings") {
  struct Row {
    const char *sample, *target;
    std::vector<std::string> rings; // "stages transport: tensors"
  };
  const Row table[] = {
      {"gemm", "sm_80", {"4 cp_async: a b"}},
      {"gemm", "sm_90", {"4 tma: a b"}},
      {"gemm", "sm_120", {"3 tma: a b"}},
      {"gemm_persistent", "sm_80", {"4 cp_async: a b"}},
      {"gemm_persistent", "sm_90", {"4 tma: a b"}},
      {"gemm_persistent", "sm_120", {"2 tma: a b"}},
      {"attention", "sm_80", {"4 cp_async: k v", "4 cp_async: k v"}},
      {"attention", "sm_90", {"4 tma: k v", "4 tma: k v"}},
      {"attention", "sm_120", {"3 tma: k v", "3 tma: k v"}},
      {"kda_chain", "sm_80", {"4 mbarrier: beta v kp qp aq eg ak"}},
      {"kda_chain", "sm_90", {"3 mbarrier: beta v kp qp aq eg ak"}},
      {"kda_chain", "sm_120", {"2 mbarrier: beta v kp qp aq eg ak"}},
  };
  for (const Row &row : table) {
    CAPTURE(row.sample);
    CAPTURE(row.target);
    auto c = compile_sample(row.sample, row.target);
    std::vector<std::string> rings;
    ir::walk(c->kernel->function->body, [&](const ir::Op *op) {
      if (op->kind != ir::OpKind::RingAlloc) return;
      rings.push_back(fmt::format("{} {}: {}", op->attrs.i("stages"), op->attrs.s("transport"),
                                  fmt::join(op->attrs.get<std::vector<std::string>>("tensors"), " ")));
    });
    CHECK(rings == row.rings);
  }
}

TEST_CASE("@no_pipeline keeps a loop synchronous") {
  for (bool annotated : {false, true}) {
    std::string text =
        std::string("kernel f(a: tensor<bf16>[64, K], b: tensor<bf16>[K, 64], y: out tensor<f32>[64, 64]) grid "
                    "(1) warps 4 {\n  var acc = zeros<f32>[64, 64];\n  ") +
        (annotated ? "@no_pipeline " : "") +
        "for i in 0 : K step 32 { acc = mma(load(a[:, i :+ 32]), load(b[i :+ 32, :]), acc); }\n  "
        "store(y[:, :], acc);\n}\n";
    auto c = compile_text(text, "f", "sm_90");
    REQUIRE(c->kernel);
    int64_t rings = 0;
    ir::walk(c->kernel->function->body, [&](const ir::Op *op) { rings += op->kind == ir::OpKind::RingAlloc; });
    CHECK(rings == (annotated ? 0 : 1));
  }
}

TEST_CASE("a sum carried by a loop has the layout of what is added, not that of the store behind it") {
  auto c =
      compile_text("kernel sums<N: int = 4096>(x: tensor<bf16>[M, N], y: out tensor<f32>[P, N]) grid (P) warps 8 {\n"
                   "  let p = program_id(0);\n  var s = zeros<f32>[N];\n"
                   "  for i in 0 : cdiv(M - p, P) { let t = f32(load(x[p + i * P, :])); s += t * t; }\n"
                   "  store(y[p, :], s);\n}\n",
                   "sums", "sm_120");
  REQUIRE(c->kernel);
  int64_t inside = 0;
  ir::walk(c->kernel->function->body, [&](const ir::Op *op) {
    bool moves = op->kind == ir::OpKind::ScratchStore || op->kind == ir::OpKind::ConvertLayout;
    inside += moves && op->block->parent && op->block->parent->kind == ir::OpKind::For;
  });
  CHECK(inside == 0);
}

TEST_CASE("only tensors of which rows are read decide which entry a launch takes") {
  // Offsets of sequences, a number per head, and a column of a matrix: their sizes are anything, and the code is the
  // wide one.
  std::unique_ptr<Compiled> c = compile_text(R"(
kernel k<D: int = 64>(x: tensor<bf16>[T, H, D], w: tensor<bf16>[T, H], scale: tensor<f32>[H], cu: tensor<i32>[N + 1], y: out tensor<bf16>[T, H, D])
    grid (H, N)
{
    let (h, n) = program_id();
    let lo = load(cu[n]);
    let hi = load(cu[n + 1]);
    for t in lo : hi step 16 {
        let u = f32(load(x[lo : hi, h, :][t - lo :+ 16, :])) * f32(load(w[lo : hi, h][t - lo :+ 16]))[:, None];
        store(y[lo : hi, h, :][t - lo :+ 16, :], bf16(u * load(scale[h])));
    }
})",
                                             "k", "sm_90");
  INFO(c->diags.render_all());
  REQUIRE(c->kernel);
  const ir::Function &f = *c->kernel->function;
  for (const codegen::AlignmentCheck &check : codegen::alignment_checks(f)) {
    INFO(f.params[check.param].name);
    CHECK((f.params[check.param].name == "x" || f.params[check.param].name == "y"));
  }
  CHECK(count(c->kernel->code.ptx, "cp.async.cg.shared.global") > 0); // 16 bytes a copy, in the aligned entry alone
}
