// What compile writes for loaders: signatures, the JSON of programs, C headers. The loaders themselves are tested by
// test/loader/build_headers and test/python.
#include "cli/kit.h"
#include "runtime/json_reader.h"
#include <doctest/doctest.h>

using namespace tkc;
using namespace tkc::test;

namespace {
const char *const kSource = R"(enum Act { none, relu }
const kWide = 4 * 16;
kernel k<T: type = bf16, D: int, act: Act = Act.relu>(x: tensor<T>[M, D] strides(any), bias: tensor?<f32>[kWide], y: inout tensor<T>[M, D + 1],
        n: i32) grid (M) warps 1
{
    let r = program_id(0);
    var t = f32(load(x[r, 0 :+ 32]));
    if has(bias) { t += load(bias[0 :+ 32]); }
    store(y[r, 0 :+ 32], T(t + f32(n)));
}
kernel scaled(x: tensor<f32>[N], y: out tensor<f32>[N], s: f32) grid (1) warps 1 { store(y[0 :+ 32], load(x[0 :+ 32]) * s); }
program p(x: tensor<f32>[N], y: out tensor<f32>[N]) {
    let a = alloc<f32>[N];
    launch scaled(x, a, inf);
    for i in 0 : N / 32 {
        let b = alloc<f32>[N];
        launch scaled(a, b, 0.5);
        launch scaled(b, y, -inf);
    }
    let c = alloc<f32>[N];
    launch scaled(x, c, 1);
    launch scaled(c, y, 1);
}
)";

JsonValue json(const Ran &r) {
  CHECK(r.code == 0);
  Result<JsonValue> j = parse_json(r.out);
  REQUIRE(j.ok());
  return *j;
}
} // namespace

TEST_CASE("--emit signatures says what a kernel takes before anything has a value") {
  Folder f;
  std::string file = f.write("k.tk", kSource);
  JsonValue j = json(run_tkc({"compile", file, "--emit", "signatures"})); // D has no value
  CHECK(j.find("format")->text == "tkc-signatures");
  REQUIRE(j.find("entries")->items.size() == 3);
  const JsonValue &k = j.find("entries")->items[0];
  CHECK(k.find("name")->text == "k");
  CHECK(k.find("kind")->text == "kernel");
  CHECK(j.find("entries")->items[2].find("kind")->text == "program");
  const auto &constants = k.find("constants")->items;
  REQUIRE(constants.size() == 3);
  CHECK(constants[0].find("type")->text == "type");
  CHECK(constants[0].find("default")->text == "bf16");
  CHECK(constants[1].find("default")->is(JsonValue::Kind::Null));
  CHECK(constants[2].find("values")->items[1].text == "relu");
  const auto &arguments = k.find("arguments")->items;
  REQUIRE(arguments.size() == 4);
  CHECK(arguments[0].find("dtypeOf")->text == "T");
  CHECK(arguments[0].find("anyStrides")->boolean);
  CHECK(arguments[0].find("dims")->items[0].find("size")->text == "M");
  CHECK(arguments[0].find("dims")->items[1].find("constant")->text == "D");
  CHECK(arguments[1].find("dtype")->text == "f32");
  CHECK(arguments[1].find("optional")->boolean);
  CHECK(arguments[1].find("dims")->items[0].find("expression")->text == "kWide");
  CHECK(arguments[2].find("mode")->text == "inout");
  CHECK(arguments[2].find("dims")->items[1].find("expression")->text == "D + 1");
  CHECK(arguments[3].find("kind")->text == "scalar");
  CHECK(json(run_tkc({"compile", file, "-k", "p", "--emit", "signatures"})).find("entries")->items.size() == 1);
  CHECK(run_tkc({"compile", file, "-k", "q", "--emit", "signatures"}).code == 1);
}

TEST_CASE("-P NAME=none is the variant without an optional tensor") {
  Folder f;
  std::string file = f.write("k.tk", kSource);
  JsonValue with = json(run_tkc({"compile", file, "-k", "k", "-P", "D=32", "--emit", "json"})),
            without = json(run_tkc({"compile", file, "-k", "k", "-P", "D=32", "-P", "bias=none", "--emit", "json"}));
  auto tensor = [](const JsonValue &j, size_t i) { return j.find("kernels")->items[0].find("tensors")->items[i]; };
  CHECK(tensor(with, 1).find("present")->boolean);
  CHECK_FALSE(tensor(without, 1).find("present")->boolean);
  CHECK(tensor(without, 1).find("optional")->boolean);
  CHECK_FALSE(tensor(without, 0).find("optional")->boolean);
  CHECK(without.find("kernels")->items[0].find("arguments")->items.size() == 4);
  CHECK(contains(run_tkc({"compile", file, "-k", "k", "-P", "D=32", "-P", "x=none"}).err, "x"));
  CHECK(run_tkc({"compile", file, "-k", "k", "-P", "D=32", "-P", "x=none"}).code == 1); // not optional
}

TEST_CASE("JSON of a program: lives of temporaries, numbers that JSON has not") {
  Folder f;
  JsonValue j = json(run_tkc({"compile", f.write("k.tk", kSource), "-k", "p", "--emit", "json"}));
  const JsonValue &p = j.find("programs")->items.at(0);
  // Launches in the order of the text: x -> a; in the loop a -> b, b -> y; x -> c, c -> y.
  const auto &temporaries = p.find("temporaries")->items;
  REQUIRE(temporaries.size() == 3);
  auto life = [&](size_t i) {
    return std::pair(temporaries[i].find("firstLaunch")->integer, temporaries[i].find("lastLaunch")->integer);
  };
  CHECK(life(0) == std::pair<int64_t, int64_t>(0, 2)); // through the loop
  CHECK(life(1) == std::pair<int64_t, int64_t>(1, 2));
  CHECK(life(2) == std::pair<int64_t, int64_t>(3, 4));
  const auto &steps = p.find("steps")->items;
  CHECK(steps.at(1).find("scalars")->find("s")->find("number")->text == "inf");
  CHECK(steps.at(2).find("do")->items.at(2).find("scalars")->find("s")->find("number")->text == "-inf");
  CHECK(p.find("arguments")->items.size() == 2);
}

TEST_CASE("--emit header: names from the output, nothing after an error") {
  Folder f;
  std::string file = f.write("k.tk", kSource);
  Ran r = run_tkc({"compile", file, "-P", "D=32", "--emit", "header"});
  CHECK(r.code == 0);
  for (const char *part :
       {"#ifndef TKC_HEADER_k\n", "tkc_load_k(tkc_k_module *module", "tkc_workspace_k_p(", "tkc_k_scaled("})
    CHECK(contains(r.out, part));
  CHECK(run_tkc({"compile", file, "-P", "D=32", "--emit", "header", "-o", f / "my-kernels.h"}).code == 0);
  CHECK(contains(read_text(f / "my-kernels.h"), "tkc_load_my_kernels("));
  CHECK(run_tkc({"compile", file, "--emit", "header", "-o", f / "none.h"}).code == 1); // D has no value
  CHECK(run_tkc({"compile", file, "-P", "D=32", "--emit", "header,json", "-o", f / "out/"}).code == 0);
  CHECK(f.files() == std::vector<std::string>{"k.tk", "my-kernels.h", "out/k.h", "out/k.json"});
}

TEST_CASE("--image cubin: the header holds machine code, or there is a clear error") {
  Folder f;
  std::string file = f.write("k.tk", kSource);
  Ran r = run_tkc({"compile", file, "-P", "D=32", "--emit", "header", "--image", "cubin", "--arch", "sm_90"});
  if (r.code == 0) {
    CHECK(contains(r.out, "static const unsigned char tkc_k_cubin[] = {\n    127,69,76,70,")); // an ELF file
    CHECK(contains(r.out, "cuModuleLoadDataEx(&module->handle, tkc_k_cubin,"));
    CHECK_FALSE(contains(r.out, ".version"));
  } else {
    CHECK(r.code == 1);
    CHECK(r.out.empty());
    CHECK_MESSAGE(contains(r.err, "nvJitLink"), r.err);
  }
  CHECK(run_tkc({"compile", file, "-P", "D=32", "--image", "cubin"}).code == 2);
}
