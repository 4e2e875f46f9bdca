// run from outside, on .tk and .ptx files.
#include "cli/kit.h"
#include "runtime/npy.h"
#include "runtime/safetensors.h"
#include <algorithm>
#include <doctest/doctest.h>

using namespace tkc;
using namespace tkc::test;

namespace {
HostTensor ramp(DType t, std::vector<int64_t> shape, double factor = 1) {
  HostTensor x = HostTensor::zeros(t, std::move(shape));
  for (int64_t i = 0; i < x.count(); i++) x.set(i, factor * double(i % 100));
  return x;
}
void save(const std::string &path, const HostTensor &t) { REQUIRE(write_npy(path, t).ok()); }

const char *const kGeneric = R"(const PAD = 8;
kernel rows<T: type = bf16, D: int = 32>(x: tensor<T>[M, D], bias: tensor?<f32>[D], s: i32, y: out tensor<f32>[M, D], z: out tensor<i32>[PAD])
    grid (M) warps 1
{
    let i = program_id(0);
    var t = f32(load(x[i, :])) + f32(s);
    if has(bias) { t = t + load(bias[:]); }
    store(y[i, :], t);
    store(z[:], full<i32>([PAD], s));
}
)";
} // namespace

TEST_CASE("sizes come from files; outputs go to files; the last line names the executor") {
  Folder f;
  std::string file = f.write("scale.tk", kScale);
  save(f / "x.npy", ramp(DType::F32, {300}));
  save(f / "want.npy", ramp(DType::F32, {300}, 3));
  save(f / "off.npy", ramp(DType::F32, {300}, 3.1));
  struct Row {
    const char *device, *last;
  };
  for (const Row &row :
       {Row{"interp", "ran scale on the interpreter\n"}, Row{"emu", "ran scale on the PTX emulator, sm_120\n"}}) {
    CAPTURE(row.device);
    Ran r = run_tkc({"run", file, "--device", row.device, "--input", "x=" + (f / "x.npy"), "--scalar", "a=3",
                     "--output", "y=" + (f / "y.npy"), "--expect", "y=" + (f / "want.npy")});
    CAPTURE(r.err);
    CHECK(r.code == 0);
    CHECK(r.out.ends_with(row.last));
    CHECK(contains(r.out, "y: f32[300]  min 0  max 297  mean 148.5  checksum "));
    CHECK(contains(r.out, "y: ok  f32[300]"));
    Result<HostTensor> y = read_npy(f / "y.npy");
    REQUIRE(y.ok());
    CHECK(*y == ramp(DType::F32, {300}, 3));
    Ran off = run_tkc({"run", file, "--device", row.device, "--input", "x=" + (f / "x.npy"), "--scalar", "a=3",
                       "--expect", "y=" + (f / "off.npy")});
    CHECK(off.code == 3);
    CHECK(contains(off.out, "y: MISMATCH"));
    CHECK(off.out.ends_with(row.last));
  }
  // Generated inputs depend on the seed alone.
  auto sum = [&](const std::string &seed, const std::string &device) {
    std::string out =
        run_tkc({"run", file, "--device", device, "--size", "N=64", "--scalar", "a=1", "--seed", seed}).out;
    return out.substr(0, out.find('\n'));
  };
  CHECK(sum("1", "interp") == sum("1", "emu"));
  CHECK(sum("1", "interp") != sum("2", "interp"));
}

TEST_CASE("compile-time extents, element types and optional tensors from files") {
  Folder f;
  std::string file = f.write("rows.tk", kGeneric);
  NamedTensors all = {{"x", ramp(DType::F16, {5, 48})}, {"bias", ramp(DType::F32, {48}, 2)}};
  REQUIRE(write_safetensors(f / "in.safetensors", all).ok());
  Ran r = run_tkc({"run", file, "--device", "interp", "--input", "x=" + (f / "in.safetensors:x"), "--input",
                   "bias=" + (f / "in.safetensors:bias"), "--scalar", "s=4", "--output", "y=" + (f / "out.safetensors"),
                   "--output", "z=" + (f / "out.safetensors:zz")});
  CAPTURE(r.err);
  CHECK(r.code == 0);
  Result<HostTensor> y = read_safetensors(f / "out.safetensors", "y"),
                     z = read_safetensors(f / "out.safetensors", "zz");
  REQUIRE(y.ok());
  REQUIRE(z.ok());
  CHECK(y->shape == std::vector<int64_t>{5, 48});
  CHECK(y->get(0) == 4);
  CHECK(y->get(3) == 3 + 6 + 4);
  CHECK(z->get_int(7) == 4);
  // Without the file the optional tensor is absent.
  Ran absent = run_tkc({"run", file, "--device", "emu", "--input", "x=" + (f / "in.safetensors:x"), "--scalar", "s=4",
                        "--output", "y=" + (f / "y.npy")});
  CHECK(absent.code == 0);
  CHECK(read_npy(f / "y.npy")->get(3) == 3 + 4);
  // bf16 has no .npy type: raw elements are read as what the kernel wants.
  save(f / "raw.npy", ramp(DType::BF16, {2, 32}));
  CHECK(run_tkc({"run", file, "--device", "interp", "--input", "x=" + (f / "raw.npy"), "--scalar", "s=0"}).code == 0);
}

TEST_CASE("what is wrong with the arguments of run: exit 1, a message, no output") {
  Folder f;
  std::string file = f.write("scale.tk", kScale), rows = f.write("rows.tk", kGeneric);
  save(f / "x.npy", ramp(DType::F32, {300}));
  save(f / "short.npy", ramp(DType::F32, {200}));
  save(f / "f64.npy", ramp(DType::F64, {300}));
  save(f / "matrix.npy", ramp(DType::F32, {10, 30}));
  save(f / "half.npy", ramp(DType::F16, {4, 32}));
  std::string whole = read_text(f / "x.npy"), fortran = read_text(f / "half.npy");
  f.write("cut.npy", whole.substr(0, whole.size() - 4));
  f.write("head.npy", whole.substr(0, 20));
  fortran.replace(fortran.find("False"), 5, "True ");
  f.write("fortran.npy", fortran);
  f.write("text.npy", "this is no array\n");
  REQUIRE(write_safetensors(f / "a.safetensors", {{"q", ramp(DType::F32, {300})}, {"k", ramp(DType::F32, {3})}}).ok());
  std::string st = read_text(f / "a.safetensors");
  f.write("cut.safetensors", st.substr(0, st.size() - 4));
  REQUIRE(write_safetensors(
              f / "b.safetensors",
              {{"d", ramp(DType::F64, {300})}, {"m", ramp(DType::F32, {10, 30})}, {"s", ramp(DType::F32, {200})}})
              .ok());
  struct Row {
    std::vector<std::string> words;
    std::string message;
  };
  auto x = [&](const std::string &name) {
    return std::vector<std::string>{"--input", "x=" + (f / name), "--scalar", "a=1"};
  };
  const Row rows_of_scale[] = {
      {x("f64.npy"), "it holds f64 (`<f8`), but f32 is wanted"},
      {x("matrix.npy"), "holds a tensor of shape [10, 30], `x` has 1 dims"},
      {x("cut.npy"), "it is truncated"},
      {x("head.npy"), "the header is truncated"},
      {x("text.npy"), "this is not a .npy file"},
      {x("none.npy"), "No such file"},
      {x("cut.safetensors:q"), "truncated"},
      {x("a.safetensors:v"), "holds no tensor `v`; it holds q, k"},
      {x("a.safetensors"), "holds several tensors, say which"},
      {x("b.safetensors:d"), "but f32 is wanted"},
      {x("b.safetensors:m"), "holds a tensor of shape [10, 30], `x` has 1 dims"},
      {{"--input", "x=" + (f / "x.npy"), "--scalar", "a=1", "--expect", "y=" + (f / "b.safetensors:s")},
       "`N` is 300 by dim 0 of `x`"},
      {{"--input", "x=" + (f / "x.npy")}, "the scalar `a` has no value: give --scalar a=VALUE"},
      {{"--scalar", "a=1"}, "the size `N` has no value: give --size N=VALUE, or an input file that has it"},
      {{"--scalar", "a=1", "--size", "N=x"}, "--size N=x: this is no integer"},
      {{"--scalar", "a=b", "--size", "N=1"}, "--scalar a=b: this is no number"},
      {{"--scalar", "a=1", "--size", "N=-3"}, "the extent N of `x` is -3"},
      {{"--scalar", "a=1", "--size", "M=3"}, "kernel `scale` has no size `M`"},
      {{"--scalar", "b=1"}, "kernel `scale` has no scalar `b`"},
      {{"--input", "z=" + (f / "x.npy")}, "kernel `scale` has no tensor `z`"},
      {{"--input", "y=" + (f / "x.npy")}, "`y` is an output"},
      {{"--output", "x=" + (f / "o.npy")}, "`x` is an input"},
      {{"--input", "x=" + (f / "x.npy"), "--scalar", "a=1", "--size", "N=299"},
       "`N` is 299 by --size and 300 by dim 0 of `x` ("},
      {{"--input", "x=" + (f / "x.npy"), "--scalar", "a=1", "--expect", "y=" + (f / "short.npy")},
       "`N` is 300 by dim 0 of `x`"},
      {{"--input", "x=" + (f / "x.npy"), "--scalar", "a=1", "--output", "y=" + (f / "none/y.npy")}, "cannot write"},
  };
  auto check = [&](const std::string &source, const std::vector<std::string> &more, const std::string &message) {
    for (const char *device : {"interp", "emu"}) {
      std::vector<std::string> words = {"run", source, "--device", device};
      bool has_output = std::find(more.begin(), more.end(), "--output") != more.end();
      words.insert(words.end(), more.begin(), more.end());
      if (!has_output) words.insert(words.end(), {"--output", "y=" + (f / "y.npy")});
      Ran r = run_tkc(words);
      CAPTURE(message);
      CAPTURE(r.err);
      CHECK(r.code == 1);
      CHECK(contains(r.err, message));
      CHECK(r.out.empty());
      CHECK(!std::filesystem::exists(f / "y.npy"));
    }
  };
  for (const Row &row : rows_of_scale) check(file, row.words, row.message);
  check(rows, {"--input", "x=" + (f / "fortran.npy"), "--scalar", "s=1"}, "the array is in Fortran order");
  check(rows, {"--input", "x=" + (f / "half.npy"), "--scalar", "s=1", "-P", "D=16"},
        "`D` is 16 by -P and 32 by dim 1 of `x`");
  std::filesystem::create_directories(f.path / "folder.npy");
  check(file, x("folder.npy"), "it is a folder");
  check(f / "folder.npy", x("x.npy"), "cannot read `" + (f / "folder.npy") + "`: it is a directory [unreadable-file]");
  check(f / "none.tk", x("x.npy"),
        "cannot read `" + (f / "none.tk") + "`: No such file or directory [unreadable-file]");
}

TEST_CASE("a foreign PTX kernel runs in the emulator") {
  Folder f;
  std::string file = f.write("k.ptx", R"(.version 8.0
.target sm_80
.address_size 64
.visible .entry axpy(.param .u64 px, .param .u64 py, .param .u64 pz, .param .f32 pa, .param .u32 pn)
{
  .reg .b64 %rd<8>;
  .reg .b32 %r<8>;
  .reg .f32 %f<8>;
  .reg .pred %p<2>;
  ld.param.u64 %rd1, [px];
  ld.param.u64 %rd2, [py];
  ld.param.u64 %rd3, [pz];
  ld.param.f32 %f1, [pa];
  ld.param.u32 %r1, [pn];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.u32 %r5, %r2, %r3, %r4;
  setp.ge.u32 %p1, %r5, %r1;
  @%p1 bra done;
  mul.wide.u32 %rd4, %r5, 4;
  add.u64 %rd5, %rd1, %rd4;
  add.u64 %rd6, %rd2, %rd4;
  add.u64 %rd7, %rd3, %rd4;
  ld.global.f32 %f2, [%rd5];
  ld.global.f32 %f3, [%rd6];
  fma.rn.f32 %f4, %f1, %f2, %f3;
  st.global.f32 [%rd6], %f4;
  st.global.f32 [%rd7], %f2;
done:
  ret;
}
.visible .entry forever()
{
loop:
  bra loop;
}
)");
  save(f / "x.npy", ramp(DType::F32, {100}));
  save(f / "y.npy", ramp(DType::F32, {100}, 10));
  auto words = [&](std::vector<std::string> more) {
    std::vector<std::string> out = {"run", file, "--device", "emu", "-k", "axpy", "--block", "64", "--grid", "2"};
    out.insert(out.end(), more.begin(), more.end());
    return out;
  };
  std::vector<std::string> arguments = {"--arg", "in:" + (f / "x.npy"),
                                        "--arg", "inout:" + (f / "y.npy") + "," + (f / "y2.npy"),
                                        "--arg", "out:f32[100]," + (f / "z.safetensors:z"),
                                        "--arg", "f32:2",
                                        "--arg", "u32:100"};
  Ran r = run_tkc(words(arguments));
  CAPTURE(r.err);
  CHECK(r.code == 0);
  CHECK(contains(r.out, " warp instructions\nran axpy on the PTX emulator\n"));
  CHECK(*read_npy(f / "y2.npy") == ramp(DType::F32, {100}, 12));
  CHECK(*read_safetensors(f / "z.safetensors", "z") == ramp(DType::F32, {100}));
  // Out of bounds: the emulator's report, nothing is written.
  std::filesystem::remove(f / "y2.npy");
  arguments.back() = "u32:128";
  r = run_tkc(words(arguments));
  CHECK(r.code == 1);
  CHECK(contains(r.err, "[out-of-bounds]"));
  CHECK(!std::filesystem::exists(f / "y2.npy"));
  CHECK(contains(run_tkc(words({"--arg", "i32:1"})).err, "takes 5 arguments, 1 are given"));
  arguments.back() = "u64:128";
  CHECK(contains(run_tkc(words(arguments)).err, "argument 4 of kernel `axpy` (pn) has 4 bytes, the given one 8"));
  CHECK(contains(run_tkc({"run", file, "--device", "emu"}).err, "several kernels, choose one with -k: axpy, forever"));
  CHECK(contains(run_tkc({"run", file, "-k", "axpz"}).err, "no kernel `axpz`; it has axpy, forever"));
  Ran forever = run_tkc({"run", file, "-k", "forever", "--timeout", "0.3"});
  CHECK(forever.code == 5);
  CHECK(contains(forever.err, "time limit"));
  Ran bad = run_tkc({"run", f.write("bad.ptx", ".version 8.0\n.target sm_80\n.address_size 64\nfoo;\n")});
  CHECK(bad.code == 1);
  CHECK(contains(bad.err, "line 4"));
  CHECK(run_tkc({"run", f / "none.ptx"}).code == 1);
}
