// Single instructions, thread by thread: exact ones bit for bit, approximate ones within the bound that the PTX manual
// gives (plus the rounding of the emulator's own result, which is the correctly rounded one).
#include "emu/helper.h"
#include "gpu/job.h"
#include <algorithm>
#include <cmath>

using namespace emu_test;
using namespace gpu_test;

namespace {
enum class In : uint8_t { None, I16, I32, I64, F16, BF16, F32, F64, Positive32, Angle32, Small32, Byte };
struct Row {
  std::string text; // %d = f(%a, %b, %c); free: %p0..7, %r0..7 (b32), %q0..7 (b64), %h0..7 (b16)
  int d = 4;        // bytes of the result
  In a = In::F32, b = In::None, c = In::None;
  double relative = 0, absolute = 0; // both zero: bit for bit
};
int bytes(In t) {
  switch (t) {
  case In::Byte:
  case In::I16:
  case In::F16:
  case In::BF16: return 2;
  case In::I64:
  case In::F64: return 8;
  default: return 4;
  }
}

std::vector<Row> table() {
  std::vector<Row> t;
  auto add = [&](Row r) { t.push_back(std::move(r)); };
  const char *rounds[] = {".rn", ".rz", ".rm", ".rp"};
  for (const char *r : rounds) {
    for (const char *f : {"", ".ftz"}) {
      for (const char *op : {"add", "sub", "mul"})
        for (const char *s : {"", ".sat"})
          add({fmt::format("{}{}{}{}.f32 %d, %a, %b;", op, r, f, s), 4, In::F32, In::F32});
      add({fmt::format("fma{}{}.f32 %d, %a, %b, %c;", r, f), 4, In::F32, In::F32, In::F32});
      add({fmt::format("div{}{}.f32 %d, %a, %b;", r, f), 4, In::F32, In::F32});
      add({fmt::format("rcp{}{}.f32 %d, %a;", r, f)});
      add({fmt::format("sqrt{}{}.f32 %d, %a;", r, f)});
    }
    for (const char *op : {"add", "mul", "div"}) add({fmt::format("{}{}.f64 %d, %a, %b;", op, r), 8, In::F64, In::F64});
    add({fmt::format("fma{}.f64 %d, %a, %b, %c;", r), 8, In::F64, In::F64, In::F64});
    add({fmt::format("sqrt{}.f64 %d, %a;", r), 8, In::F64});
    for (const char *to : {"s32", "u32", "s64", "u64", "s16", "u8"})
      for (const char *from : {"f32", "f64", "f16"}) {
        In in = std::string(from) == "f32" ? In::F32 : std::string(from) == "f64" ? In::F64 : In::F16;
        std::string store = std::string(to) == "s16"
                                ? fmt::format("cvt{}i.s16.{} %h0, %a; cvt.s32.s16 %d, %h0;", r, from)
                            : std::string(to) == "u8" ? fmt::format("cvt{}i.u8.{} %r0, %a; mov.b32 %d, %r0;", r, from)
                                                      : fmt::format("cvt{}i.{}.{} %d, %a;", r, to, from);
        add({store, std::string(to) == "s64" || std::string(to) == "u64" ? 8 : 4, in});
      }
    for (const char *from : {"s32", "u32"}) add({fmt::format("cvt{}.f32.{} %d, %a;", r, from), 4, In::I32});
    for (const char *from : {"s64", "u64"}) {
      add({fmt::format("cvt{}.f32.{} %d, %a;", r, from), 4, In::I64});
      add({fmt::format("cvt{}.f64.{} %d, %a;", r, from), 8, In::I64});
    }
    add({fmt::format("cvt{}.f32.f64 %d, %a;", r), 4, In::F64});
    add({fmt::format("cvt{}i.f32.f32 %d, %a;", r)});
  }
  for (const char *r : {".rn", ".rz"}) {
    add({fmt::format("cvt{}.f16.f32 %d, %a;", r), 2});
    add({fmt::format("cvt{}.bf16.f32 %d, %a;", r), 2});
    add({fmt::format("cvt{}.relu.bf16.f32 %d, %a;", r), 2});
    add({fmt::format("cvt{}.f16x2.f32 %d, %a, %b;", r), 4, In::F32, In::F32});
    add({fmt::format("cvt{}.bf16x2.f32 %d, %a, %b;", r), 4, In::F32, In::F32});
  }
  add({"cvt.rna.tf32.f32 %d, %a;"});
  add({"cvt.rn.satfinite.e4m3x2.f32 %d, %a, %b;", 2, In::F32, In::F32});
  add({"cvt.rn.satfinite.e5m2x2.f32 %d, %a, %b;", 2, In::F32, In::F32});
  add({"cvt.rn.f16x2.e4m3x2 %d, %a;", 4, In::I16});
  add({"cvt.rn.f16x2.e5m2x2 %d, %a;", 4, In::I16});
  add({"cvt.f32.f16 %d, %a;", 4, In::F16});
  add({"cvt.f32.bf16 %d, %a;", 4, In::BF16});
  for (const char *op : {"min", "max"})
    for (const char *m : {"", ".NaN", ".ftz", ".xorsign.abs"})
      add({fmt::format("{}{}.f32 %d, %a, %b;", op, m), 4, In::F32, In::F32});
  for (const char *op : {"abs", "neg"}) add({fmt::format("{}.f32 %d, %a;", op)});
  for (const char *f : {"f16", "bf16"}) {
    In in = std::string(f) == "f16" ? In::F16 : In::BF16;
    for (const char *op : {"add", "sub", "mul", "min", "max", "min.NaN"})
      add({fmt::format("{}{}.{} %d, %a, %b;", op, "", f), 2, in, in});
    add({fmt::format("fma.rn.{} %d, %a, %b, %c;", f), 2, in, in, in});
    add({fmt::format("fma.rn.relu.{} %d, %a, %b, %c;", f), 2, in, in, in});
    add({fmt::format("ex2.approx{}.{} %d, %a;", std::string(f) == "f16" ? "" : ".ftz", f), 2, in, In::None, In::None,
         0x1p-7, 0x1p-24});
    add({fmt::format("tanh.approx.{} %d, %a;", f), 2, in, In::None, In::None,
         std::string(f) == "f16" ? 0x1.1p-10 : 0x1p-7, 0x1p-24});
  }
  add({"add.rn.ftz.f16x2 %d, %a, %b;", 4, In::I32, In::I32});
  add({"fma.rn.bf16x2 %d, %a, %b, %c;", 4, In::I32, In::I32, In::I32});
  for (const char *op : {"eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"})
    add({fmt::format("setp.{}.f32 %p0, %a, %b; selp.u32 %d, 1, 0, %p0;", op), 4, In::F32, In::F32});
  for (const char *what : {"finite", "infinite", "number", "notanumber", "normal", "subnormal"})
    add({fmt::format("testp.{}.f32 %p0, %a; selp.u32 %d, 1, 0, %p0;", what)});
  add({"copysign.f32 %d, %a, %b;", 4, In::F32, In::F32});
  // Integers.
  for (const char *op :
       {"add.u32", "sub.s32", "add.sat.s32", "mul.lo.u32", "mul.hi.u32", "mul.hi.s32", "div.u32", "div.s32", "rem.u32",
        "rem.s32", "min.s32", "max.u32", "and.b32", "xor.b32", "shl.b32", "shr.u32", "shr.s32", "mul24.lo.s32"})
    add({fmt::format("{} %d, %a, %b;", op), 4, In::I32, In::I32});
  for (const char *op :
       {"add.u64", "mul.lo.u64", "mul.hi.s64", "mul.hi.u64", "div.u64", "div.s64", "rem.s64", "min.s64"})
    add({fmt::format("{} %d, %a, %b;", op), 8, In::I64, In::I64});
  for (const char *op :
       {"mad.lo.s32", "mad.hi.u32", "mad.hi.sat.s32", "sad.s32", "sad.u32", "bfe.u32", "bfe.s32", "shf.l.wrap.b32",
        "shf.r.clamp.b32", "dp4a.s32.s32", "dp4a.u32.s32", "dp2a.lo.s32.s32", "prmt.b32", "lop3.b32", "slct.u32.s32"}) {
    std::string name = op, tail = name == "lop3.b32" ? ", 0x6a;" : ";";
    add({fmt::format("{} %d, %a, %b, %c{}", op, tail), 4, In::I32, In::I32, In::I32});
  }
  add({"bfi.b32 %d, %a, %b, %c, 7;", 4, In::I32, In::I32, In::I32});
  for (const char *op : {"popc.b32", "clz.b32", "brev.b32", "not.b32", "bfind.u32", "bfind.s32", "bfind.shiftamt.u32",
                         "abs.s32", "neg.s32", "fns"}) {
    if (std::string(op) == "fns")
      add({"and.b32 %r0, %b, 31; and.b32 %r1, %c, 7; fns.b32 %d, %a, %r0, %r1;", 4, In::I32, In::I32, In::I32});
    else
      add({fmt::format("{} %d, %a;", op), 4, In::I32});
  }
  add({"mul.wide.s32 %d, %a, %b;", 8, In::I32, In::I32});
  add({"mad.wide.u32 %d, %a, %b, 99;", 8, In::I32, In::I32});
  for (const char *c : {"s8.s32", "u8.s32", "s16.s32", "u16.s32", "s32.s64", "u32.s64"}) {
    std::string name = c;
    In in = name.find("s64") != name.npos ? In::I64 : In::I32;
    add({fmt::format("cvt.sat.{} %r0, %a; mov.b32 %d, %r0;", c), 4, in});
    if (name.find("16") != name.npos) t.back().text = fmt::format("cvt.sat.{} %h0, %a; cvt.u32.u16 %d, %h0;", c);
  }
  // Approximations, with the bounds of the manual.
  auto approx = [&](std::string text, In in, double relative, double absolute, In second = In::None) {
    add({std::move(text), 4, in, second, In::None, relative, absolute});
  };
  approx("ex2.approx.f32 %d, %a;", In::Small32, 0x1p-22, 0);
  approx("ex2.approx.ftz.f32 %d, %a;", In::Small32, 0x1p-22, 0x1p-126);
  approx("lg2.approx.f32 %d, %a;", In::Positive32, 0x1p-22, 0x1p-22);
  approx("rcp.approx.f32 %d, %a;", In::F32, 0x1p-23, 0);
  approx("rcp.approx.ftz.f32 %d, %a;", In::F32, 0x1p-23, 0);
  approx("rsqrt.approx.f32 %d, %a;", In::Positive32, 0x1.2p-23, 0);
  approx("rsqrt.approx.ftz.f32 %d, %a;", In::Positive32, 0x1.2p-23, 0);
  approx("sqrt.approx.f32 %d, %a;", In::Positive32, 0x1p-22, 0);
  approx("sin.approx.f32 %d, %a;", In::Angle32, 0, 0x1.7p-21);
  approx("cos.approx.f32 %d, %a;", In::Angle32, 0, 0x1.7p-21);
  approx("tanh.approx.f32 %d, %a;", In::Small32, 0x1.1p-11, 0);
  approx("div.approx.f32 %d, %a, %b;", In::Positive32, 0x1p-22, 0x1p-126, In::Positive32);
  approx("div.full.f32 %d, %a, %b;", In::Positive32, 0x1p-22, 0x1p-126, In::Positive32);
  return t;
}

std::vector<uint64_t> inputs(In type, size_t n, uint64_t seed) {
  Rng rng{seed};
  std::vector<uint64_t> v;
  std::vector<float> corners = float_samples(256, seed + 1);
  for (size_t i = 0; i < n; i++) {
    uint64_t bits = rng.next(), x = bits;
    double unit = double(rng.next() >> 11) * 0x1p-53;
    switch (type) {
    case In::None: x = 0; break;
    case In::Byte: x &= 255; break;
    case In::I16:
    case In::F16:
    case In::BF16: x &= 0xffff; break;
    case In::I32: x = uint32_t(bits >> (rng.next() % 3 * 11)); break;
    case In::I64: x = bits >> (rng.next() % 3 * 21); break;
    case In::F32: x = std::bit_cast<uint32_t>(corners[size_t(bits % corners.size())]); break;
    case In::F64: x = i % 3 ? bits : std::bit_cast<uint64_t>(double(corners[size_t(bits % corners.size())])); break;
    case In::Positive32: x = std::bit_cast<uint32_t>(float(std::exp2(unit * 200 - 100))); break;
    case In::Angle32: x = std::bit_cast<uint32_t>(float((unit * 2 - 1) * 3.14159)); break;
    case In::Small32: x = std::bit_cast<uint32_t>(float((unit * 2 - 1) * (i % 2 ? 4 : 120))); break;
    }
    v.push_back(x);
  }
  return v;
}
std::vector<uint8_t> pack(const std::vector<uint64_t> &v, int size) {
  std::vector<uint8_t> out(v.size() * size_t(size));
  for (size_t i = 0; i < v.size(); i++) std::memcpy(&out[i * size_t(size)], &v[i], size_t(size));
  return out;
}

Job job_of(const Row &r, size_t n) {
  auto reg = [](int size) { return size == 2 ? "b16" : size == 4 ? "b32" : "b64"; };
  Job j;
  j.block = 128, j.grid = int64_t(n) / 128;
  auto load = [&](const char *to, const char *param, int size) {
    return fmt::format(
        "mul.wide.u32 %off, %i, {0}; ld.param.u64 %at, [{1}]; add.s64 %at, %at, %off; ld.global.b{2} {3}, [%at];\n",
        size, param, size * 8, to);
  };
  j.text = fmt::format(
      ".visible .entry probe(.param .u64 pd, .param .u64 pa, .param .u64 pb, .param .u64 pc)\n{{\n"
      ".reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<8>, %i, %x, %y; .reg .b64 %q<8>, %at, %off;\n"
      ".reg .{} %d; .reg .{} %a; .reg .{} %b; .reg .{} %c;\n"
      "mov.u32 %i, %ctaid.x; mov.u32 %x, %ntid.x; mov.u32 %y, %tid.x; mad.lo.s32 %i, %i, %x, %y;\n{}{}{}{}\n"
      "mul.wide.u32 %off, %i, {}; ld.param.u64 %at, [pd]; add.s64 %at, %at, %off; st.global.b{} [%at], %d;\nret;\n}}\n",
      reg(r.d), reg(bytes(r.a)), reg(bytes(r.b)), reg(bytes(r.c)), load("%a", "pa", bytes(r.a)),
      load("%b", "pb", bytes(r.b)), load("%c", "pc", bytes(r.c)), r.text, r.d, r.d * 8);
  j.arguments = {BufferRef{0}, BufferRef{1}, BufferRef{2}, BufferRef{3}};
  j.buffers = {std::vector<uint8_t>(n * size_t(r.d)), pack(inputs(r.a, n, 11), bytes(r.a)),
               pack(inputs(r.b, n, 22), bytes(r.b)), pack(inputs(r.c, n, 33), bytes(r.c))};
  return j;
}
double value(uint64_t bits, const Row &r) {
  if (r.d == 8) return std::bit_cast<double>(bits);
  if (r.d == 4) return std::bit_cast<float>(uint32_t(bits));
  if (r.a == In::BF16) return std::bit_cast<float>(uint32_t(bits) << 16);
  double m = double(bits & 1023), e = double(bits >> 10 & 31);
  double x = e == 31 ? (m ? NAN : INFINITY) : e ? std::ldexp(1024 + m, int(e) - 25) : std::ldexp(m, -24);
  return bits >> 15 ? -x : x;
}
} // namespace

TEST_CASE(
    "instructions: the emulator accepts every row of the table; a GPU gives the same bits, or bits within the bound") {
  constexpr size_t kCount = 8192;
  int64_t compared = 0;
  for (const Row &r : table()) {
    CAPTURE(r.text);
    Job job = job_of(r, kCount);
    auto emulated = on_emulator(job);
    if (!emulated) {
      FAIL_CHECK(emulated.error());
      continue;
    }
    if (!gpu()) continue;
    auto real = on_gpu(*gpu(), job);
    if (!real) {
      FAIL_CHECK(real.error());
      continue;
    }
    compared++;
    int64_t wrong = 0;
    std::string first;
    double worst = 0;
    for (size_t i = 0; i < kCount; i++) {
      uint64_t want = 0, got = 0;
      std::memcpy(&want, &(*emulated)[0][i * size_t(r.d)], size_t(r.d)),
          std::memcpy(&got, &(*real)[0][i * size_t(r.d)], size_t(r.d));
      if (want == got) continue;
      if (r.relative != 0 || r.absolute != 0) {
        double w = value(want, r), g = value(got, r);
        if ((std::isnan(w) && std::isnan(g)) || w == g) continue;
        // Half a unit in the last place for the emulator's own rounding.
        double ulp = r.d == 4 ? 0x1p-24 : r.a == In::BF16 ? 0x1p-8 : 0x1p-11;
        double error = std::abs(w - g), bound = (r.relative + ulp) * std::abs(w) + r.absolute;
        worst = std::max(worst, error / bound);
        if (error <= bound) continue;
      }
      if (!wrong++) {
        uint64_t in[3] = {};
        for (size_t k = 0; k < 3; k++) {
          size_t size = job.buffers[k + 1].size() / kCount;
          std::memcpy(&in[k], &job.buffers[k + 1][i * size], size);
        }
        first = fmt::format("element {}: inputs {:#x} {:#x} {:#x}: emulator {:#x}, GPU {:#x}", i, in[0], in[1], in[2],
                            want, got);
      }
    }
    if (worst > 0) MESSAGE(r.text << " at most " << worst << " of the bound");
    INFO(first);
    CHECK(wrong == 0);
  }
  MESSAGE(compared << " instructions compared with a GPU");
}
