// compile from outside: every kind of output and every option.
#include "cli/kit.h"
#include "runtime/assemble.h"
#include "runtime/json_reader.h"
#include "runtime/npy.h"
#include "runtime/safetensors.h"
#include <algorithm>
#include <doctest/doctest.h>
#include <map>

using namespace tkc;
using namespace tkc::test;

namespace {
const char *const kTwo = R"(kernel first(x: tensor<f32>[N], y: out tensor<f32>[N]) grid (1) warps 1 {
    store(y[0 :+ 32], load(x[0 :+ 32]));
}
kernel second(x: tensor<f32>[N], y: out tensor<f32>[N]) grid (1) warps 2 {
    store(y[0 :+ 64], load(x[0 :+ 64]) * 2.0);
}
)";

int64_t count(const std::string &text, const std::string &part) {
  int64_t n = 0;
  for (size_t at = 0; (at = text.find(part, at)) != text.npos; at += part.size()) n++;
  return n;
}

// What a foreign loader does with an expression of the JSON form (src/driver/manifest.h).
int64_t evaluate(const JsonValue &e, const std::map<std::string, int64_t> &values) {
  if (e.is(JsonValue::Kind::Number)) return e.integer;
  if (e.is(JsonValue::Kind::String)) return values.at(e.text);
  std::string op = e.items.at(0).text;
  int64_t a = evaluate(e.items.at(1), values);
  if (op == "!") return !a;
  int64_t b = evaluate(e.items.at(2), values);
  if (op == "+") return a + b;
  if (op == "-") return a - b;
  if (op == "*") return a * b;
  if (op == "/") return a / b;
  if (op == "%") return a % b;
  if (op == "cdiv") return (a + b - 1) / b;
  if (op == "min") return std::min(a, b);
  if (op == "max") return std::max(a, b);
  if (op == "==") return a == b;
  if (op == "<=") return a <= b;
  if (op == ">=") return a >= b;
  FAIL("operator ", op);
  return 0;
}
} // namespace

TEST_CASE("compile writes PTX to standard output, a file, or a folder") {
  Folder f;
  std::string file = f.write("scale.tk", kScale);
  Ran r = run_tkc({"compile", file});
  CHECK(r.code == 0);
  CHECK(r.err.empty());
  CHECK(r.out.starts_with("// tkc: PTX for sm_120\n"));
  CHECK(contains(r.out, ".visible .entry scale("));
  CHECK(contains(r.out, ".visible .entry scale__any("));
  CHECK(run_tkc({"compile", file, "-o", "-"}).out == r.out);
  CHECK(run_tkc({"compile", file, "-o", f / "a.ptx"}).out.empty());
  CHECK(read_text(f / "a.ptx") == r.out);
  HowToRun in;
  in.input = kScale;
  CHECK(run_tkc({"compile", "-", "-o", f / "out/"}, in).code == 0);
  // But for the name of the source in the line table.
  CHECK(read_text(f / "out/kernels.ptx").size() + file.size() - 7 > r.out.size() - 8);
  CHECK(contains(read_text(f / "out/kernels.ptx"), ".visible .entry scale("));
  CHECK(contains(run_tkc({"compile", file, "--arch", "sm_80"}).out, ".target sm_80"));
  CHECK(contains(run_tkc({"compile", file, "--maxnreg", "40"}).out, ".maxnreg 40"));
  CHECK(contains(run_tkc({"compile", file, "-P", "BN=64"}).out, "BN = 64"));
  CHECK(run_tkc({"compile", file, "-o", f / "none/a.ptx"}).code == 1);
  CHECK(run_tkc({"compile", file, "-o", "/dev/null"}).code == 0);
  Ran list = run_tkc({"compile", "--list-targets"});
  CHECK(list.code == 0);
  CHECK(count(list.out, "\n") == 10);
  CHECK(contains(list.out, "sm_90a   PTX 8.6  232448 bytes of shared memory a block"));
}

TEST_CASE("several kinds at once, and none of them after an error") {
  Folder f;
  std::string file = f.write("scale.tk", kScale);
  Ran r = run_tkc({"compile", file, "--emit", "ptx,llvm,ir,json", "-o", f / "out/"});
  CHECK(r.code == 0);
  Folder other;
  CHECK(f.files() ==
        std::vector<std::string>{"out/scale.json", "out/scale.ll", "out/scale.ptx", "out/scale.tkir", "scale.tk"});
  CHECK(contains(read_text(f / "out/scale.ll"), "define ptx_kernel void @scale("));
  CHECK(contains(read_text(f / "out/scale.tkir"), "scale"));
  CHECK(run_tkc({"compile", file, "--emit", "llvm"}).out == read_text(f / "out/scale.ll"));
  CHECK(run_tkc({"compile", file, "--emit", "ir"}).out == read_text(f / "out/scale.tkir"));
  std::string bad = f.write("bad.tk", std::string(kScale) + "kernel k(x: tensor<f32>[N]) grid (1) { let y = z; }\n");
  CHECK(run_tkc({"compile", bad, "--emit", "ptx,ir", "-o", other / "out/"}).code == 1);
  CHECK(run_tkc({"compile", bad, "-o", other / "a.ptx"}).code == 1);
  CHECK(run_tkc({"compile", bad, "-MD", "-MF", other / "a.d", "-o", other / "b.ptx"}).code == 1);
  CHECK(other.files().empty());
  // One of several files cannot be written: none is.
  std::filesystem::create_directories(other.path / "mixed/scale.ll");
  CHECK(run_tkc({"compile", file, "--emit", "ptx,llvm,json", "-o", other / "mixed/"}).code == 1);
  CHECK(other.files().empty());
}

TEST_CASE("several kernels make one module") {
  Folder f;
  std::string file = f.write("two.tk", kTwo);
  Ran r = run_tkc({"compile", file});
  CHECK(count(r.out, ".version") == 1);
  CHECK(count(r.out, ".visible .entry ") == 4);
  Ran one = run_tkc({"compile", file, "-k", "second"});
  CHECK(count(one.out, ".visible .entry ") == 2);
  CHECK(run_tkc({"compile", file, "--dump-ir", f / "dumps", "-o", "/dev/null"}).code == 0);
  CHECK(std::filesystem::exists(f / "dumps/first/000.input.tkir"));
  CHECK(std::filesystem::exists(f / "dumps/second/000.input.tkir"));
  CHECK(run_tkc({"compile", file, "-k", "first", "--dump-ir", f / "alone", "-o", "/dev/null"}).code == 0);
  CHECK(std::filesystem::exists(f / "alone/000.input.tkir"));
  Ran denied = run_tkc({"compile", file, "--dump-ir", "/dev/null/x"});
  CHECK(denied.code == 1);
  CHECK(contains(denied.err, "cannot write to the folder `/dev/null/x/first`: "));
  if (!assembler_available(Assembler::Any)) return;
  CHECK(run_tkc({"compile", file, "--emit", "cubin", "-o", f / "two.cubin"}).code == 0);
  std::string cubin = read_text(f / "two.cubin");
  for (const char *entry : {".text.first", ".text.second", ".text.first__any"}) CHECK(contains(cubin, entry));
}

TEST_CASE("cubin: from an assembler, or a clear error") {
  Folder f;
  std::string file = f.write("scale.tk", kScale);
  Ran r = run_tkc({"compile", file, "--emit", "cubin", "-o", f / "a.cubin"});
  Ran v = run_tkc({"compile", file, "-v", "-o", "/dev/null"});
  CHECK(v.code == 0);
  CHECK(contains(v.err, "scale: "));
  CHECK(contains(v.err, "shared bytes, 128 threads"));
  if (assembler_available(Assembler::Any)) {
    CHECK(r.code == 0);
    CHECK(read_text(f / "a.cubin").substr(1, 3) == "ELF");
    CHECK(contains(v.err, " registers, 0 + 0 spill bytes, 0 local bytes, "));
    CHECK(contains(v.err, " 12 blocks per SM"));
    CHECK(contains(run_tkc({"compile", file, "-v", "--arch", "sm_90", "-o", "/dev/null"}).err, " 16 blocks per SM"));
  } else {
    CHECK(r.code == 1);
    CHECK(contains(r.err, "no assembler"));
    CHECK(contains(v.err, "registers are unknown"));
    CHECK(f.files().size() == 1);
  }
}

TEST_CASE("--stop-after, --skip-pass, --bisect-passes, --time-report") {
  Folder f;
  std::string file = f.write("scale.tk", kScale);
  Ran parse = run_tkc({"compile", file, "--stop-after", "parse"});
  CHECK(parse.code == 0);
  std::string again = f.write("again.tk", parse.out);
  CHECK(run_tkc({"compile", again, "--stop-after", "parse"}).out == parse.out);
  Ran sema = run_tkc({"compile", file, "--stop-after", "sema"}),
      fold = run_tkc({"compile", file, "--stop-after", "fold_constants"}),
      last = run_tkc({"compile", file, "--stop-after", "place_barriers"});
  CHECK(contains(sema.out, "scale"));
  CHECK(fold.code == 0);
  CHECK(fold.out != last.out);
  CHECK(last.out == run_tkc({"compile", file, "--emit", "ir"}).out);
  // Bisecting to no optional pass gives what skipping them all gives.
  Ran none = run_tkc({"compile", file, "--emit", "ir", "--bisect-passes", "0"});
  Ran skip = run_tkc({"compile", file, "--emit", "ir", "--skip-pass", "fold_constants", "--skip-pass",
                      "common_subexpressions", "--skip-pass", "fuse_product_sum", "--skip-pass", "hoist_invariants",
                      "--skip-pass", "dead_code", "--skip-pass", "annotate_accesses"});
  CHECK(none.code == 0);
  CHECK(none.out == skip.out);
  CHECK(none.out != last.out);
  Ran time = run_tkc({"compile", file, "--time-report", "-o", "/dev/null"});
  for (const char *phase : {"ms  sema", "ms  pass infer_layouts", "ms  llvm emit", "ms  in all"})
    CHECK(contains(time.err, phase));
}

TEST_CASE("-MD -MF: the rule for make") {
  Folder f;
  f.write("lib/two.tk", "const TWO = 2.0;\n");
  std::string file = f.write("k.tk", "import \"lib/two.tk\";\n" + std::string(kScale));
  CHECK(run_tkc({"compile", file, "-MD", "-MF", f / "k.d", "-o", f / "k.ptx"}).code == 0);
  CHECK(read_text(f / "k.d") ==
        (f / "k.ptx") + ": \\\n  " + file + " \\\n  " + (f / "lib/two.tk") + "\n" + (f / "lib/two.tk") + ":\n");
  CHECK(run_tkc({"compile", file, "-MD", "--emit", "ptx,json", "-o", f / "out/"}).code == 0);
  CHECK(read_text(f / "out/k.d").starts_with((f / "out/k.ptx") + " " + (f / "out/k.json") + ":"));
}

TEST_CASE("--emit json: a loader that knows nothing else finds entry, parameters and grid") {
  Folder f;
  std::string file =
      f.write("k.tk", R"(kernel k<T: type = bf16, BM: int = 16, D: int = 64>(a: tensor<T>[H, M, D], s: f32, n: i64,
        b: tensor?<f32>[D], idx: tensor<i32>[M], c: tensor<f32>[H], y: inout tensor<T>[M, D])
    grid (cdiv(M, BM), H) warps 2
    where M % 4 == 0
{
    let (i, h) = program_id();
    let rows = i * BM :+ BM;
    var t = f32(load(a[h, rows, :])) * load(c[h]);
    if has(b) { t = t + load(b[:])[None, :]; }
    store(y[load(idx[rows]), :], T(t));
}
)");
  CHECK(run_tkc({"compile", file, "--emit", "ptx,json", "-o", f / "out/", "--arch", "sm_90"}).code == 0);
  Result<JsonValue> j = parse_json(read_text(f / "out/k.json"));
  REQUIRE(j.ok());
  CHECK(j->find("format")->text == "tkc-kernels");
  CHECK(j->find("version")->integer == 1);
  CHECK(j->find("arch")->text == "sm_90");
  CHECK(j->find("ptx")->find("file")->text == "k.ptx");
  REQUIRE(j->find("kernels")->items.size() == 1);
  const JsonValue &k = j->find("kernels")->items[0];
  CHECK(k.find("name")->text == "k");
  CHECK(k.find("constants")->find("T")->text == "bf16");
  CHECK(k.find("constants")->find("BM")->integer == 16);
  std::map<std::string, int64_t> sizes = {{"H", 3}, {"M", 100}};
  REQUIRE(k.find("sizes")->items.size() == 2);
  CHECK(evaluate(*k.find("launchBlocks"), sizes) == 21);
  CHECK(evaluate(k.find("grid")->items.at(0), sizes) == 7);
  CHECK(evaluate(k.find("grid")->items.at(1), sizes) == 3);
  CHECK(evaluate(k.find("where")->items.at(0), sizes) == 1);
  CHECK(evaluate(k.find("where")->items.at(0), {{"M", 101}}) == 0);
  CHECK(k.find("block")->integer == 64);
  const auto &tensors = k.find("tensors")->items;
  REQUIRE(tensors.size() == 5);
  CHECK(tensors[0].find("dtype")->text == "bf16");
  CHECK(evaluate(tensors[0].find("dims")->items.at(1), sizes) == 100);
  CHECK(evaluate(tensors[0].find("dims")->items.at(2), sizes) == 64);
  CHECK(tensors[4].find("mode")->text == "inout");
  // The parameters against the PTX: as many, and each at its natural alignment.
  const auto &params = k.find("params")->items;
  std::string ptx = read_text(f / "out/k.ptx");
  for (const char *entry : {"k", "k__any"}) {
    size_t at = ptx.find(std::string(".visible .entry ") + entry + "(");
    REQUIRE(at != ptx.npos);
    CHECK(count(ptx.substr(at, ptx.find(')', at) - at), ".param") == int64_t(params.size()));
  }
  int64_t offset = 0;
  for (const JsonValue &p : params) {
    int64_t bytes = p.find("bytes")->integer;
    offset = (offset + bytes - 1) / bytes * bytes;
    CHECK(p.find("offset")->integer == offset);
    offset += bytes;
  }
  CHECK(k.find("paramBytes")->integer == offset);
  CHECK(params[0].find("kind")->text == "pointer");
  CHECK_FALSE(params[0].find("written")->boolean);
  CHECK(params[1].find("kind")->text == "stride");
  CHECK(params[1].find("tensor")->text == "a");
  const auto &entries = k.find("entries")->items;
  REQUIRE(entries.size() == 2);
  CHECK(entries[0].find("name")->text == "k");
  CHECK(entries[1].find("name")->text == "k__any");
  CHECK(entries[1].find("requires")->items.empty());
  // a: address and two pitches; b: address; idx: address and run-time extent; y: address and pitch. Nothing of c, of
  // which one number is read at a time.
  CHECK(entries[0].find("requires")->items.size() == 8);
  const JsonValue &pitch = entries[0].find("requires")->items[1];
  CHECK(pitch.find("stride")->text == "a");
  CHECK(pitch.find("multiple")->integer == 8);
  // Alone, the JSON carries the text.
  Result<JsonValue> alone = parse_json(run_tkc({"compile", file, "--emit", "json", "--arch", "sm_90"}).out);
  REQUIRE(alone.ok());
  CHECK(alone->find("ptx")->find("text")->text == ptx);
}

namespace {
// Launches a kernel in the emulator as a loader would that knows only the JSON: `values` are the sizes, `scalars` the
// scalar parameters as text, `files` the tensors (inputs and where outputs go).
Ran launch_from_json(const std::string &folder, const std::string &stem, std::map<std::string, int64_t> values,
                     const std::map<std::string, std::string> &scalars, const std::map<std::string, std::string> &files,
                     std::string &entry) {
  Result<JsonValue> json = parse_json(read_text(folder + "/" + stem + ".json"));
  REQUIRE(json.ok());
  const JsonValue &k = json->find("kernels")->items.at(0);
  std::map<std::string, std::vector<int64_t>> shapes;
  std::map<std::string, const JsonValue *> tensors;
  for (const JsonValue &t : k.find("tensors")->items) {
    tensors[t.find("name")->text] = &t;
    for (const JsonValue &d : t.find("dims")->items) shapes[t.find("name")->text].push_back(evaluate(d, values));
  }
  auto stride = [&](const std::string &name, int64_t dim) {
    int64_t s = 1;
    for (size_t d = size_t(dim) + 1; d < shapes[name].size(); d++) s *= shapes[name][d];
    return s;
  };
  for (const JsonValue &e : k.find("entries")->items) {
    bool good = true;
    for (const JsonValue &c : e.find("requires")->items) {
      int64_t multiple = c.find("multiple")->integer;
      if (const JsonValue *t = c.find("stride")) good &= stride(t->text, c.find("dim")->integer) % multiple == 0;
      if (const JsonValue *t = c.find("extent"))
        good &= shapes[t->text][size_t(c.find("dim")->integer)] % multiple == 0;
      if (c.find("address")) good &= 256 % multiple == 0; // what the emulator gives
    }
    entry = e.find("name")->text;
    if (good) break;
  }
  std::vector<std::string> words = {"run",      folder + "/" + json->find("ptx")->find("file")->text,
                                    "-k",       entry,
                                    "--device", "emu",
                                    "--grid",   std::to_string(evaluate(*k.find("launchBlocks"), values)),
                                    "--block",  std::to_string(k.find("block")->integer),
                                    "--shared", std::to_string(k.find("sharedBytes")->integer)};
  for (const JsonValue &p : k.find("params")->items) {
    std::string kind = p.find("kind")->text, dtype = p.find("dtype")->text, argument;
    if (kind == "pointer") {
      std::string name = p.find("tensor")->text, mode = tensors.at(name)->find("mode")->text;
      std::string shape;
      for (int64_t d : shapes[name]) shape += (shape.empty() ? "" : ",") + std::to_string(d);
      argument = mode == "in" ? "in:" + files.at(name) : "out:" + dtype + "[" + shape + "]," + files.at(name);
    } else if (kind == "stride") {
      argument = dtype + ":" + std::to_string(stride(p.find("tensor")->text, p.find("dim")->integer));
    } else if (kind == "scalar") {
      argument = dtype + ":" + scalars.at(p.find("name")->text);
    } else {
      argument = dtype + ":" + std::to_string(values.at(p.find("name")->text));
    }
    words.insert(words.end(), {"--arg", argument});
  }
  return run_tkc(words);
}
} // namespace

TEST_CASE("a launch from the JSON alone computes what run computes") {
  Folder f;
  std::string file = f.write(
      "k.tk", R"(kernel k<D: int = 40, BM: int = 16>(x: tensor<bf16>[H, M, D], a: f32, b: tensor<f32>[M], shift: i32,
        y: out tensor<f16>[M, H, D])
    grid (cdiv(M, BM), H) warps 2
{
    let (i, h) = program_id();
    let rows = i * BM :+ BM;
    let t = f32(load(x[h, rows, :])) * a + load(b[rows])[:, None] + f32(shift);
    store(y[rows, h, :], f16(t));
}
)");
  for (int64_t d : {40, 36}) {
    CAPTURE(d);
    int64_t m = 21, h = 3;
    std::map<std::string, std::string> files = {{"x", f / "x.safetensors"}, {"b", f / "b.npy"}, {"y", f / "y.npy"}};
    HostTensor x = HostTensor::zeros(DType::BF16, {h, m, d}), b = HostTensor::zeros(DType::F32, {m});
    for (int64_t i = 0; i < x.count(); i++) x.set(i, double(i % 57) - 20);
    for (int64_t i = 0; i < m; i++) b.set(i, 0.25 * double(i));
    REQUIRE(write_safetensors(files["x"], {{"x", x}}).ok());
    REQUIRE(write_npy(files["b"], b).ok());
    std::string constant = "D=" + std::to_string(d);
    REQUIRE(run_tkc({"compile", file, "-P", constant, "--emit", "ptx,json", "-o", f / "out/"}).code == 0);
    std::string entry;
    Ran r = launch_from_json(f / "out", "k", {{"H", h}, {"M", m}}, {{"a", "0.5"}, {"shift", "-3"}}, files, entry);
    CAPTURE(r.err);
    CHECK(r.code == 0);
    CHECK(entry == "k__any"); // b has 21 elements
    Ran want = run_tkc({"run", file, "--device", "emu", "--input", "x=" + files["x"], "--input", "b=" + files["b"],
                        "--scalar", "a=0.5", "--scalar", "shift=-3", "--output", "y=" + (f / "want.npy")});
    CAPTURE(want.err);
    CHECK(want.code == 0);
    CHECK(*read_npy(files["y"]) == *read_npy(f / "want.npy"));
  }
  // All sizes fit 16 bytes: the aligned entry.
  std::string scale = f.write("scale.tk", kScale);
  REQUIRE(run_tkc({"compile", scale, "--emit", "ptx,json", "-o", f / "out/"}).code == 0);
  HostTensor x = HostTensor::zeros(DType::F32, {256});
  for (int64_t i = 0; i < x.count(); i++) x.set(i, double(i));
  REQUIRE(write_npy(f / "sx.npy", x).ok());
  std::string entry;
  Ran r = launch_from_json(f / "out", "scale", {{"N", 256}}, {{"a", "3"}}, {{"x", f / "sx.npy"}, {"y", f / "sy.npy"}},
                           entry);
  CHECK(r.code == 0);
  CHECK(entry == "scale");
  CHECK(read_npy(f / "sy.npy")->get(255) == 765);
}
