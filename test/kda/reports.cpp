// Values on which other implementations are known to have failed, against the recurrence; kda_test.cpp lists them.
#include "driver/run.h"
#include "ir/target.h"
#include "kda/kit.h"
#include "runtime/file_io.h"
#include "runtime/npy.h"
#include "syntax/parse.h"
#include <filesystem>

using namespace tkc;
using namespace tkc::test;

namespace {
// Gates given as they are, in f32.
Problem given(const std::string &program, const Shape &s, double g, uint64_t seed) {
  Problem p = bounded_problem(program, s, seed);
  p.options = {{"l2norm", "true"}, {"beta_sigmoid", "true"}, {"GT", "f32"}};
  p.inputs["g"] = constant(DType::F32, shapes(p).at("g"), g);
  return p;
}
const char *const kPrograms[] = {"kda_forward", "kda_backward", "gdn_forward"};
} // namespace

TEST_CASE("gates from none to a reset, everywhere") {
  for (const char *program : kPrograms)
    for (double g : {0.0, -1e-3, -5.0, -6.0, -69.0, -1000.0}) {
      CAPTURE(g);
      // Where nothing survives a token, the gradient of the gate is what is left of terms of order 1 that cancel.
      Limits limits;
      if (g < -30) limits["dg"] = {.max_abs = 1e-6};
      check_against_reference(given(program, {.T = 64, .H = 2, .HV = 4}, g, 21), limits);
    }
}

TEST_CASE("gates at their bound") {
  for (const char *program : kPrograms)
    for (const char *wide_range : {"true", "false"})
      for (double x : {8.0, 30.0}) {
        Problem p = bounded_problem(program, {.T = 64, .H = 2, .HV = 4}, 22);
        if (program != std::string("gdn_forward")) p.options["wide_range"] = wide_range;
        p.inputs["g"] = constant(p.inputs.at("g").dtype, shapes(p).at("g"), x);
        Limits limits;
        if (x == 30) limits["dg"] = {.max_abs = 1e-6}; // the sigmoid is 1 in f32, its slope 0 instead of 1e-13
        check_against_reference(p, limits);
      }
}

TEST_CASE("resets at the seam of packed sequences") {
  for (const char *program : kPrograms) {
    Problem p = given(program, {.T = 128, .H = 1, .HV = 1, .K = 32, .V = 32, .N = 2}, -0.01, 23);
    HostTensor &g = p.inputs.at("g");
    int64_t row = g.count() / 128;
    for (int64_t t : {0, 62, 63, 64, 127})
      for (int64_t c = 0; c < row; c++) g.set(t * row + c, -80);
    p.inputs["cu"] = offsets({0, 63, 128});
    check_against_reference(p);
  }
}

TEST_CASE("every length about a chunk") {
  for (const char *program : kPrograms)
    for (int64_t T : {1, 8, 15, 16, 17, 31, 33, 65})
      check_against_reference(bounded_problem(program, {.T = T, .H = 2, .HV = 4}, 24 + T));
}

TEST_CASE("blocks of every size in the backward pass") {
  for (const char *block : {"16", "32", "64"}) {
    Problem p = bounded_problem("kda_backward", {.T = 70, .H = 2, .HV = 4}, 25);
    p.options["BLOCK"] = block;
    check_against_reference(p);
  }
}

TEST_CASE("beta of exactly 0 and 1") {
  for (const char *program : kPrograms) {
    Problem p = bounded_problem(program, {.T = 40, .H = 2, .HV = 4}, 26);
    p.options.erase("beta_sigmoid");
    HostTensor &beta = p.inputs.at("beta");
    for (int64_t i = 0; i < beta.count(); i++) beta.set(i, double(i % 3 == 1));
    check_against_reference(p);
  }
}

TEST_CASE("the residual is a difference of sums in f32") {
  // S^T k = 4096 + 2, v = 4096: what is written is beta (v - S^T k) = -2 beta, and dbeta = -2 k^T dS 1. All of it is
  // exact.
  for (const char *program : kPrograms) {
    Problem p = given(program, {.T = 1, .K = 32, .V = 32}, 0, 27);
    p.options.erase("l2norm"), p.options.erase("beta_sigmoid");
    for (auto &[name, t] : p.inputs) t = constant(t.dtype, t.shape, 0);
    for (int64_t d : {0, 1}) p.inputs.at("k").set(d, 1);
    for (int64_t j = 0; j < 32; j++) p.inputs.at("s0").set(j, 4096), p.inputs.at("s0").set(32 + j, 2);
    p.inputs["v"] = constant(DType::BF16, {1, 1, 1, 32}, 4096);
    p.inputs["beta"] = constant(DType::BF16, {1, 1, 1}, 0.25);
    if (p.inputs.count("dht")) p.inputs["dht"] = constant(DType::F32, {1, 1, 32, 32}, 1);
    Tensors out = run(p);
    if (out.count("dbeta")) {
      CHECK(out.at("dbeta").get(0) == -2 * 2 * 32);
    } else {
      CHECK(out.at("s").get(0) == 4095.5);
      CHECK(out.at("s").get(32) == 1.5);
    }
  }
}

TEST_CASE("states past the range of f16, with operands of f16") {
  for (const char *program : {"kda_forward", "gdn_forward"}) {
    Problem p = given(program, {.T = 20, .H = 1, .HV = 1, .K = 32, .V = 32}, -0.1, 28);
    p.options["QT"] = "f16";
    p.scale = 0.01;
    for (const char *name : {"q", "k", "v"}) p.inputs[name] = convert(p.inputs.at(name), DType::F16);
    p.inputs["s0"] = normal(DType::F32, {1, 1, 32, 32}, 29, 1 << 17);
    check_against_reference(p);
  }
}

TEST_CASE("one key over and over, no decay, beta 1") {
  for (const char *program : kPrograms) {
    Problem p = given(program, {.T = 48, .H = 1, .HV = 1, .K = 32, .V = 32}, 0, 30);
    p.options.erase("beta_sigmoid");
    p.inputs["beta"] = constant(DType::BF16, {1, 48, 1}, 1);
    HostTensor &k = p.inputs.at("k");
    for (int64_t i = 32; i < k.count(); i++) k.set_bits(i, k.bits(i % 32));
    // The limits for slow decay with correlated keys; what a bf16 key is off norm 1 is seen by the gradient of beta.
    check_against_reference(p, {{"o", {.rms = 9e-3}}, {"s", {.rms = 7e-3}}, {"dbeta", {.rms = 3e-2}}});
  }
}

TEST_CASE("a head of more value heads has the sum of their gradients") {
  // Value heads with the same inputs: dq and dk are those of one value head, twice.
  Problem one = bounded_problem("kda_backward", {.T = 37, .H = 2, .HV = 2, .K = 32, .V = 32}, 31), two = one;
  two.shape.HV = 4;
  for (auto &[name, t] : two.inputs) {
    if (name == "q" || name == "k") continue;
    size_t dim = name == "s0" || name == "dht" ? 1 : 2;
    HostTensor a = part(t, dim, 0, 1), b = part(t, dim, 1, 2);
    t = joined({a, a, b, b}, dim);
  }
  Tensors single = run(one), grouped = run(two);
  for (const char *name : {"dq", "dk"}) {
    std::vector<double> twice = single.at(name).to_doubles();
    for (double &x : twice) x *= 2;
    Tolerance limit;
    limit.rms = 5e-3;
    Comparison c = compare(grouped.at(name), twice, limit);
    CHECK_MESSAGE(c.pass, c.to_string(name));
  }
  check_against_reference(two);
}

TEST_CASE("a gate of another rank is refused by name") {
  auto folder = make_temporary_folder("tkc-kda");
  REQUIRE(folder.ok());
  SourceManager sources;
  Diagnostics diags(sources);
  auto id = read_source(std::string(TKC_SOURCE_DIR) + "/samples/kda_forward.tk", sources, diags);
  REQUIRE(id);
  auto program = sema::Program::load(*id, diags);
  REQUIRE(program);
  driver::RunRequest request;
  for (const auto &[name, shape] :
       std::map<std::string, std::vector<int64_t>>{{"q", {1, 4, 1, 32}}, {"g", {1, 4, 1}}}) {
    std::string path = *folder + "/" + name + ".npy";
    REQUIRE(write_npy(path, HostTensor::zeros(DType::BF16, shape)).ok());
    request.inputs[name] = {path, "", true};
  }
  driver::VerifyOptions options;
  options.compile.target = ir::find_target("sm_120");
  auto ran = driver::run_kernel(*program, *program->find_entry("kda_forward"), request, options, diags);
  std::filesystem::remove_all(*folder);
  REQUIRE_FALSE(ran.ok());
  CHECK_MESSAGE(ran.error().find("g: ") == 0, ran.error());
  CHECK_MESSAGE(ran.error().find("has 4 dims") != std::string::npos, ran.error());
}
