// ldmatrix, stmatrix, movmatrix, mma. The oracle multiplies whole matrices; which lane holds which element is written
// here as the tables of the PTX manual have it, element by element and apart from the emulator's formulas.
#include "helper.h"
#include "support/dtype.h"
#include <algorithm>
#include <array>

using namespace emu_test;
using namespace tkc;

namespace {
// One warp: lane l loads `words` 32-bit registers from in + l * words * 4 into %r0.., runs the text, stores `results`
// registers from %r40...
std::vector<uint32_t> warp(const std::string &text, const std::vector<uint32_t> &in, int words, int results,
                           const std::string &shared = "") {
  std::string body = fmt::format(
      "mul.wide.u32 %d0, %t, {}; add.s64 %d0, %in, %d0; mul.wide.u32 %d1, %t, {}; add.s64 %d1, %out, %d1;\n", 4 * words,
      4 * results);
  for (int k = 0; k < words; k++) body += fmt::format("ld.global.b32 %r{}, [%d0+{}];\n", k, 4 * k);
  body += text;
  for (int k = 0; k < results; k++) body += fmt::format("\nst.global.b32 [%d1+{}], %r{};", 4 * k, 40 + k);
  auto m = parse(kernel(body, shared));
  Memory memory;
  uint64_t out = upload(memory, std::vector<uint32_t>(size_t(32 * results)), "out"), src = upload(memory, in);
  check_clean(launch(*m, memory, {1, 32}, Options(), out, src));
  return download<uint32_t>(memory, out, size_t(32 * results));
}
std::string registers(int first, int count) {
  std::string s = "{";
  for (int k = 0; k < count; k++) s += fmt::format("{}%r{}", k ? ", " : "", first + k);
  return s + "}";
}
} // namespace

TEST_CASE("ldmatrix and stmatrix, plain and transposed, x1 x2 x4; movmatrix") {
  const std::string area = ".shared .align 16 .b8 s[1024];\n";
  std::vector<uint32_t> in(32 * 4);
  for (uint32_t i = 0; i < 128; i++)
    in[i] = (2 * i + 1) << 16 | 2 * i; // 16-bit element e of the 32 rows of 8 is its number
  // The warp writes the rows: lane l stores the 16 bytes of row l.
  const std::string fill = "mul.wide.u32 %d2, %t, 16; mov.u64 %d3, s; add.s64 %d4, %d3, %d2; st.shared.v4.b32 [%d4], "
                           "{%r0, %r1, %r2, %r3}; bar.sync 0; cvt.u32.u64 %r20, %d4; ";
  auto element = [](uint32_t matrix, uint32_t row, uint32_t column) { return matrix * 64 + row * 8 + column; };
  for (int n : {1, 2, 4})
    for (bool trans : {false, true}) {
      auto d = warp(fill + fmt::format("ldmatrix.sync.aligned.m8n8.x{}{}.shared.b16 {}, [%r20];", n,
                                       trans ? ".trans" : "", registers(40, n)),
                    in, 4, n, area);
      for (uint32_t l = 0; l < 32; l++)
        for (uint32_t k = 0; k < uint32_t(n); k++) {
          uint32_t r = l / 4, c = l % 4 * 2;
          uint32_t low = trans ? element(k, c, r) : element(k, r, c),
                   high = trans ? element(k, c + 1, r) : element(k, r, c + 1);
          CHECK(d[l * uint32_t(n) + k] == (high << 16 | low));
        }
      // stmatrix is the inverse: load, store to the other half transposed the same way, read the rows back.
      auto e =
          warp(fill + fmt::format("ldmatrix.sync.aligned.m8n8.x{0}{1}.shared.b16 {2}, [%r20]; add.u32 %r21, %r20, 512; "
                                  "stmatrix.sync.aligned.m8n8.x{0}{1}.shared.b16 [%r21], {2}; bar.sync 0; "
                                  "setp.lt.u32 %p0, %t, {3}; @%p0 ld.shared.v4.b32 {{%r40, %r41, %r42, %r43}}, [%r21];",
                                  n, trans ? ".trans" : "", registers(30, n), 8 * n),
               in, 4, 4, area);
      for (uint32_t i = 0; i < uint32_t(8 * n * 4); i++) CHECK(e[i] == in[i]);
    }
  auto moved = warp("movmatrix.sync.aligned.m8n8.trans.b16 %r40, %r0;",
                    std::vector<uint32_t>(in.begin(), in.begin() + 32), 1, 1);
  for (uint32_t l = 0; l < 32; l++) {
    uint32_t r = l / 4, c = l % 4 * 2;
    CHECK(moved[l] == (((c + 1) * 8 + r) << 16 | (c * 8 + r)));
  }
}

TEST_CASE("ldmatrix: rows must be aligned, initialised, ordered, and in shared memory") {
  auto go = [](const std::string &body) {
    auto m = parse(kernel("mov.u64 %d3, s; mul.wide.u32 %d2, %t, 16; add.s64 %d4, %d3, %d2; " + body,
                          ".shared .align 16 .b8 s[1024];\n"));
    Memory memory;
    uint64_t out = upload(memory, std::vector<uint32_t>(256), "out");
    return launch(*m, memory, {1, 64}, Options(), out, out);
  };
  const std::string fill = "st.shared.v4.b32 [%d4], {%t, %t, %t, %t}; ",
                    load = "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r0, %r1, %r2, %r3}, [%d4]; ";
  check_clean(go(fill + "bar.sync 0; " + load));
  check_clean(go(fill + "bar.warp.sync -1; " + load)); // each warp reads its own rows
  check_clean(go(fill + load));                        // each lane reads its own row
  check_error(go(load), ErrorKind::UninitialisedShared, "s + 0");
  check_error(go(fill + "bar.sync 0; add.s64 %d4, %d4, 8; " + load), ErrorKind::Misaligned, "multiple of 16");
  check_error(go(fill + "xor.b64 %d4, %d2, 16; add.s64 %d4, %d3, %d4; " + load), ErrorKind::SharedRace,
              "no bar.warp.sync");
  check_error(go(fill + "bar.sync 0; add.s64 %d4, %d4, 600; and.b64 %d4, %d4, -16; " + load), ErrorKind::OutOfBounds,
              "of shared memory");
  check_error(go("ldmatrix.sync.aligned.m8n8.x1.b16 {%r0}, [%out];"), ErrorKind::OutOfBounds,
              "must lie in shared memory");
}

namespace {
struct Fragment {
  int row, column;
};
// The tables of the manual, by element number i of the thread's fragment.
Fragment a_16bit_k16(int l, int i) {
  return {l / 4 + (i < 2 || (i >= 4 && i < 6) ? 0 : 8), l % 4 * 2 + (i & 1) + (i < 4 ? 0 : 8)};
}
Fragment b_16bit_k16(int l, int i) { return {l % 4 * 2 + (i & 1) + (i < 2 ? 0 : 8), l / 4}; }
Fragment a_16bit_k8(int l, int i) { return {l / 4 + (i < 2 ? 0 : 8), l % 4 * 2 + (i & 1)}; }
Fragment b_16bit_k8(int l, int i) { return {l % 4 * 2 + (i & 1), l / 4}; }
Fragment a_tf32_k8(int l, int i) { return {l / 4 + (i == 0 || i == 2 ? 0 : 8), l % 4 + (i < 2 ? 0 : 4)}; }
Fragment b_tf32_k8(int l, int i) { return {l % 4 + (i == 0 ? 0 : 4), l / 4}; }
Fragment a_tf32_k4(int l, int i) { return {l / 4 + 8 * i, l % 4}; }
Fragment b_tf32_k4(int l, int) { return {l % 4, l / 4}; }
Fragment a_8bit_k32(int l, int i) {
  return {l / 4 + ((i < 4 || (i >= 8 && i < 12)) ? 0 : 8), l % 4 * 4 + (i & 3) + (i < 8 ? 0 : 16)};
}
Fragment b_8bit_k32(int l, int i) { return {l % 4 * 4 + (i & 3) + (i < 4 ? 0 : 16), l / 4}; }
Fragment a_8bit_k16(int l, int i) { return {l / 4 + (i < 4 ? 0 : 8), l % 4 * 4 + (i & 3)}; }
Fragment b_8bit_k16(int l, int i) { return {l % 4 * 4 + (i & 3), l / 4}; }
Fragment a_4bit_k64(int l, int i) {
  return {l / 4 + ((i < 8 || (i >= 16 && i < 24)) ? 0 : 8), l % 4 * 8 + (i & 7) + (i < 16 ? 0 : 32)};
}
Fragment b_4bit_k64(int l, int i) { return {l % 4 * 8 + (i & 7) + (i < 8 ? 0 : 32), l / 4}; }
Fragment c_m16n8(int l, int i) { return {l / 4 + (i < 2 ? 0 : 8), l % 4 * 2 + (i & 1)}; }

struct Mma {
  std::string name; // behind mma.sync.aligned.
  int k, bits;      // of an element in its register
  Fragment (*a)(int, int), (*b)(int, int);
};
// Runs an m16n8 mma with random codes and compares with the product of whole matrices. value(code) of A and B; the
// accumulators are f32 (or f16 in pairs) with small integer values.
template <typename VA, typename VB>
void check_mma(const Mma &mma, uint32_t code_mask, VA value_a, VB value_b, bool half_accumulator, double tolerance) {
  CAPTURE(mma.name);
  int per = 32 / mma.bits, na = 16 * mma.k / 32 / per, nb = 8 * mma.k / 32 / per, nc = half_accumulator ? 2 : 4;
  Rng r{uint64_t(mma.k) * 77 + uint64_t(mma.bits)};
  std::vector<std::vector<uint32_t>> a(16, std::vector<uint32_t>(size_t(mma.k))),
      b(size_t(mma.k), std::vector<uint32_t>(8));
  std::vector<std::vector<double>> c(16, std::vector<double>(8));
  for (auto &row : a)
    for (uint32_t &x : row) x = uint32_t(r.next()) & code_mask;
  for (auto &row : b)
    for (uint32_t &x : row) x = uint32_t(r.next()) & code_mask;
  for (auto &row : c)
    for (double &x : row) x = double(int(r.next() % 64) - 32);
  std::vector<uint32_t> in;
  for (int l = 0; l < 32; l++) {
    for (int reg = 0; reg < na; reg++) {
      uint32_t w = 0;
      for (int j = 0; j < per; j++) {
        Fragment f = mma.a(l, reg * per + j);
        w |= a[size_t(f.row)][size_t(f.column)] << j * mma.bits;
      }
      in.push_back(w);
    }
    for (int reg = 0; reg < nb; reg++) {
      uint32_t w = 0;
      for (int j = 0; j < per; j++) {
        Fragment f = mma.b(l, reg * per + j);
        w |= b[size_t(f.row)][size_t(f.column)] << j * mma.bits;
      }
      in.push_back(w);
    }
    uint32_t half[2] = {0, 0};
    for (int i = 0; i < 4; i++) {
      Fragment f = c_m16n8(l, i);
      double x = c[size_t(f.row)][size_t(f.column)];
      if (half_accumulator)
        half[i / 2] |= uint32_t(encode_float(DType::F16, x)) << 16 * (i % 2);
      else
        in.push_back(std::bit_cast<uint32_t>(float(x)));
    }
    if (half_accumulator) in.push_back(half[0]), in.push_back(half[1]);
  }
  auto d = warp(fmt::format("mma.sync.aligned.{} {}, {}, {}, {};", mma.name, registers(40, nc), registers(0, na),
                            registers(na, nb), registers(na + nb, nc)),
                in, na + nb + nc, nc);
  double worst = 0;
  for (int l = 0; l < 32; l++)
    for (int i = 0; i < 4; i++) {
      Fragment f = c_m16n8(l, i);
      double want = c[size_t(f.row)][size_t(f.column)], size = std::fabs(want);
      for (int k = 0; k < mma.k; k++) {
        double p = value_a(a[size_t(f.row)][size_t(k)]) * value_b(b[size_t(k)][size_t(f.column)]);
        want += p, size += std::fabs(p);
      }
      double got = half_accumulator ? decode_float(DType::F16, d[size_t(2 * l + i / 2)] >> 16 * (i % 2) & 0xffff)
                                    : double(std::bit_cast<float>(d[size_t(4 * l + i)]));
      worst = std::max(worst, std::fabs(got - want) / size);
    }
  CHECK(worst <= tolerance);
}
} // namespace

TEST_CASE("mma of every float type and shape") {
  auto f16 = [](uint32_t c) { return decode_float(DType::F16, c); };
  auto bf16 = [](uint32_t c) { return decode_float(DType::BF16, c); };
  auto tf32 = [](uint32_t c) { return double(std::bit_cast<float>(c & 0xffffe000u)); };
  auto e4m3 = [](uint32_t c) { return decode_float(DType::E4M3, c); };
  auto e5m2 = [](uint32_t c) { return decode_float(DType::E5M2, c); };
  auto e2m1 = [](uint32_t c) { return decode_float(DType::E2M1, c >> 2 & 15); };
  constexpr double kF32 = 0x1p-24, kF16 = 0x1p-11;
  check_mma({"m16n8k16.row.col.f32.f16.f16.f32", 16, 16, a_16bit_k16, b_16bit_k16}, 0xbbff, f16, f16, false, kF32);
  check_mma({"m16n8k16.row.col.f16.f16.f16.f16", 16, 16, a_16bit_k16, b_16bit_k16}, 0xb9ff, f16, f16, true, kF16);
  check_mma({"m16n8k8.row.col.f32.f16.f16.f32", 8, 16, a_16bit_k8, b_16bit_k8}, 0xbbff, f16, f16, false, kF32);
  check_mma({"m16n8k16.row.col.f32.bf16.bf16.f32", 16, 16, a_16bit_k16, b_16bit_k16}, 0xbfff, bf16, bf16, false, kF32);
  check_mma({"m16n8k8.row.col.f32.bf16.bf16.f32", 8, 16, a_16bit_k8, b_16bit_k8}, 0xbfff, bf16, bf16, false, kF32);
  check_mma({"m16n8k8.row.col.f32.tf32.tf32.f32", 8, 32, a_tf32_k8, b_tf32_k8}, 0xbfffffff, tf32, tf32, false, kF32);
  check_mma({"m16n8k4.row.col.f32.tf32.tf32.f32", 4, 32, a_tf32_k4, b_tf32_k4}, 0xbfffffff, tf32, tf32, false, kF32);
  check_mma({"m16n8k32.row.col.f32.e4m3.e5m2.f32", 32, 8, a_8bit_k32, b_8bit_k32}, 0xb7, e4m3, e5m2, false, kF32);
  check_mma({"m16n8k32.row.col.f16.e4m3.e4m3.f16", 32, 8, a_8bit_k32, b_8bit_k32}, 0x87, e4m3, e4m3, true, kF16);
  check_mma({"m16n8k16.row.col.f32.e5m2.e4m3.f32", 16, 8, a_8bit_k16, b_8bit_k16}, 0xb7, e5m2, e4m3, false, kF32);
  check_mma({"m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e4m3.f32", 32, 8, a_8bit_k32, b_8bit_k32}, 0xb7, e2m1, e4m3, false,
            kF32);
}

TEST_CASE("mma of integers: signs, wrapping, saturation, four bits, one bit") {
  struct Case {
    std::string name;
    int k, bits;
    bool sa, sb;
    Fragment (*a)(int, int), (*b)(int, int);
  };
  const Case cases[] = {{"m16n8k32.row.col.s32.s8.s8.s32", 32, 8, true, true, a_8bit_k32, b_8bit_k32},
                        {"m16n8k32.row.col.s32.u8.s8.s32", 32, 8, false, true, a_8bit_k32, b_8bit_k32},
                        {"m16n8k16.row.col.s32.s8.u8.s32", 16, 8, true, false, a_8bit_k16, b_8bit_k16},
                        {"m16n8k32.row.col.satfinite.s32.u8.u8.s32", 32, 8, false, false, a_8bit_k32, b_8bit_k32},
                        {"m16n8k64.row.col.s32.s4.u4.s32", 64, 4, true, false, a_4bit_k64, b_4bit_k64}};
  for (const Case &t : cases) {
    CAPTURE(t.name);
    int per = 32 / t.bits, na = 16 * t.k / 32 / per, nb = 8 * t.k / 32 / per;
    uint32_t mask = (1u << t.bits) - 1;
    auto value = [&](uint32_t code, bool is_signed) {
      return is_signed && code >> (t.bits - 1) ? int64_t(code) - (1 << t.bits) : int64_t(code);
    };
    Rng r{9};
    std::vector<std::array<uint32_t, 64>> a(16);
    std::vector<std::array<uint32_t, 8>> b(64);
    std::array<std::array<int32_t, 8>, 16> c;
    for (auto &row : a)
      for (uint32_t &x : row) x = uint32_t(r.next()) & mask;
    for (auto &row : b)
      for (uint32_t &x : row) x = uint32_t(r.next()) & mask;
    for (auto &row : c)
      for (int32_t &x : row) x = r.next() % 2 ? int32_t(r.next() % 1000) : INT32_MAX - int32_t(r.next() % 1000);
    std::vector<uint32_t> in;
    auto word = [&](auto &matrix, Fragment (*place)(int, int), int l, int reg) {
      uint32_t w = 0;
      for (int j = 0; j < per; j++) {
        Fragment f = place(l, reg * per + j);
        w |= matrix[size_t(f.row)][size_t(f.column)] << j * t.bits;
      }
      return w;
    };
    for (int l = 0; l < 32; l++) {
      for (int reg = 0; reg < na; reg++) in.push_back(word(a, t.a, l, reg));
      for (int reg = 0; reg < nb; reg++) in.push_back(word(b, t.b, l, reg));
      for (int i = 0; i < 4; i++) in.push_back(uint32_t(c[size_t(c_m16n8(l, i).row)][size_t(c_m16n8(l, i).column)]));
    }
    auto d = warp(fmt::format("mma.sync.aligned.{} {}, {}, {}, {};", t.name, registers(40, 4), registers(0, na),
                              registers(na, nb), registers(na + nb, 4)),
                  in, na + nb + 4, 4);
    for (int l = 0; l < 32; l++)
      for (int i = 0; i < 4; i++) {
        Fragment f = c_m16n8(l, i);
        int64_t want = c[size_t(f.row)][size_t(f.column)];
        for (int k = 0; k < t.k; k++)
          want += value(a[size_t(f.row)][size_t(k)], t.sa) * value(b[size_t(k)][size_t(f.column)], t.sb);
        bool sat = t.name.find("satfinite") != std::string::npos;
        CHECK(d[size_t(4 * l + i)] == uint32_t(sat ? std::clamp<int64_t>(want, INT32_MIN, INT32_MAX) : want));
      }
  }
  // One bit: every A bit set, B all zero but one column of ones: xor counts 256 - matches, and counts matches.
  std::vector<uint32_t> in;
  for (uint32_t l = 0; l < 32; l++) {
    for (int k = 0; k < 4; k++) in.push_back(~0u);
    for (int k = 0; k < 2; k++) in.push_back(l / 4 == 3 ? ~0u : 0);
    for (int k = 0; k < 4; k++) in.push_back(5);
  }
  for (std::string op : {"xor", "and"}) {
    auto d = warp("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32." + op + ".popc " + registers(40, 4) + ", " +
                      registers(0, 4) + ", " + registers(4, 2) + ", " + registers(6, 4) + ";",
                  in, 10, 4);
    for (int l = 0; l < 32; l++)
      for (int i = 0; i < 4; i++)
        CHECK(d[size_t(4 * l + i)] == 5 + ((c_m16n8(l, i).column == 3) == (op == "and") ? 256u : 0u));
  }
}

TEST_CASE("mma of f64") {
  // a register holds one f64; m8n8k4 and m16n8k16. Powers of two and small integers: exact in any order.
  struct Case {
    std::string shape;
    int m, k;
  };
  for (const Case &t :
       {Case{"m8n8k4", 8, 4}, Case{"m16n8k4", 16, 4}, Case{"m16n8k8", 16, 8}, Case{"m16n8k16", 16, 16}}) {
    CAPTURE(t.shape);
    auto a = [](int r, int c) { return double(r * 3 - c * 2 + 1); };
    auto b = [](int r, int c) { return double(r - 5 * c); };
    int na = t.m * t.k / 32, nb = t.k / 4, nc = t.m / 4;
    std::string body = fmt::format(
        "mul.wide.u32 %d40, %t, {}; add.s64 %d40, %in, %d40; mul.wide.u32 %d41, %t, {}; add.s64 %d41, %out, %d41;",
        8 * (na + nb + nc), 8 * nc);
    auto list = [](int first, int n) {
      std::string s = "{";
      for (int k = 0; k < n; k++) s += fmt::format("{}%d{}", k ? ", " : "", first + k);
      return s + "}";
    };
    for (int k = 0; k < na + nb + nc; k++) body += fmt::format("ld.global.b64 %d{}, [%d40+{}];", k, 8 * k);
    body += fmt::format("mma.sync.aligned.{}.row.col.f64.f64.f64.f64 {}, {}, {}, {};", t.shape, list(50, nc),
                        list(0, na), list(na, nb), list(na + nb, nc));
    for (int k = 0; k < nc; k++) body += fmt::format("st.global.b64 [%d41+{}], %d{};", 8 * k, 50 + k);
    std::vector<double> in;
    for (int l = 0; l < 32; l++) {
      // The manual: row = groupID (+ 8 for odd i of m16), column = threadID_in_group + 4 * (i / 2) for m16.
      for (int i = 0; i < na; i++)
        in.push_back(t.m == 16 ? a(l / 4 + 8 * (i % 2), l % 4 + 4 * (i / 2)) : a(l / 4, l % 4));
      for (int i = 0; i < nb; i++) in.push_back(b(l % 4 + 4 * i, l / 4));
      for (int i = 0; i < nc; i++) in.push_back(0.5);
    }
    auto m = parse(kernel(body));
    Memory memory;
    uint64_t out = upload(memory, std::vector<double>(size_t(32 * nc)), "out"), src = upload(memory, in);
    check_clean(launch(*m, memory, {1, 32}, Options(), out, src));
    auto d = download<double>(memory, out, size_t(32 * nc));
    for (int l = 0; l < 32; l++)
      for (int i = 0; i < nc; i++) {
        int row = l / 4 + (i < 2 ? 0 : 8), column = l % 4 * 2 + (i & 1);
        double want = 0.5;
        for (int k = 0; k < t.k; k++) want += a(row, k) * b(k, column);
        CHECK(d[size_t(l * nc + i)] == want);
      }
  }
}

TEST_CASE("block-scaled mma") {
  // mxf4nvf4 with four scales a row: all elements 1 (e2m1 code 2), so the result is the sum of 16 * scale_a * scale_b.
  std::vector<uint32_t> in;
  for (uint32_t l = 0; l < 32; l++) {
    for (int k = 0; k < 6; k++) in.push_back(0x22222222);
    for (int k = 0; k < 4; k++) in.push_back(0);
    in.push_back(l % 4 == 0   ? 0x38404850
                 : l % 4 == 1 ? 0x30303030
                              : 0xffffffff);            // ue4m3: 1 2 4 8 from above; lane 1: 0.5
    in.push_back(l % 4 == 0 ? 0x38383840 : 0xffffffff); // 2 1 1 1 from below
  }
  auto d = warp("mov.b16 %h0, 0; "
                "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3 " +
                    registers(40, 4) + ", " + registers(0, 4) + ", " + registers(4, 2) + ", " + registers(6, 4) +
                    ", {%r10}, {%h0, %h0}, {%r11}, {%h0, %h0};",
                in, 12, 4);
  for (uint32_t l = 0; l < 32; l++) {
    CHECK(std::bit_cast<float>(d[4 * l]) == 16 * (8 * 2 + 4 + 2 + 1));
    CHECK(std::bit_cast<float>(d[4 * l + 2]) == 16 * (0.5f * 5));
  }
}

TEST_CASE("mma demands the whole warp and known shapes") {
  auto m = parse(kernel("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f0,%f1,%f2,%f3}, {%r0,%r1,%r2,%r3}, "
                        "{%r4,%r5}, {%f0,%f1,%f2,%f3};"));
  Memory memory;
  uint64_t out = upload(memory, std::vector<uint32_t>(1), "out");
  check_clean(launch(*m, memory, {1, 64}, Options(), out, out));
  check_error(launch(*m, memory, {1, 48}, Options(), out, out), ErrorKind::Divergence, "fewer than 32 threads");
  auto errors = [](const std::string &inst) {
    ParseResult r = parse_ptx(".version 8.7\n.target sm_120a\n.address_size 64\n" + kernel(inst));
    return r.errors.empty() ? std::string() : r.errors[0].message;
  };
  CHECK(errors("mma.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32 {%f0,%f1,%f2,%f3}, {%r0,%r1,%r2,%r3}, {%r4,%r5}, "
               "{%f0,%f1,%f2,%f3};")
            .find("not in the supported subset") == 0);
  CHECK(errors("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f0,%f1,%f2,%f3}, {%r0,%r1}, {%r4,%r5}, "
               "{%f0,%f1,%f2,%f3};")
            .find("A has 2 registers, the shape needs 4") == 0);
  CHECK(errors("mma.sp.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32 {%f0,%f1,%f2,%f3}, {%r0,%r1,%r2,%r3}, "
               "{%r4,%r5,%r6,%r7}, {%f0,%f1,%f2,%f3}, %r8, 0;") != "");
}
