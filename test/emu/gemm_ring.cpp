// A hand-written matrix product with a ring of three stages filled by TMA: the asynchronous instructions together, as a
// pipelined kernel uses them, its speed, and what single lines left out of it do.
#include "async_kit.h"
#include "emu/tensor_map.h"
#include <chrono>
#include <cmath>

using namespace emu_test;
using tkc::DType;

namespace {
// C[256,256] f32 = A[256,256] bf16 x B[256,256] bf16. A block of 160 threads makes a tile of 64 x 64: warps 0..3 in a
// 2 x 2 arrangement multiply, warp 4 fills the ring. A stage holds A[64,64] (8192 bytes) and B[64,64] (k, n), both
// swizzled by 128 bytes; full[slot] = bar + 8 slot, empty[slot] = bar + 24 + 8 slot.
// Lines may be left out or replaced by their name in <>.
const std::string kGemm = R"(
.version 8.7
.target sm_120a
.address_size 64
.shared .align 1024 .b8 ring[49152];
.shared .align 8 .b8 bar[48];
.visible .entry gemm(.param .align 64 .b8 map_a[128], .param .align 64 .b8 map_b[128], .param .u64 out)
{
  .reg .pred %p<8>; .reg .b32 %r<64>, %a<8>, %b<16>, %t, %lane, %warp, %slot, %phase, %k, %x, %y; .reg .f32 %c<32>; .reg .b64 %d<8>, %ma, %mb, %out;
  mov.b64 %ma, map_a; cvta.param.u64 %ma, %ma; mov.b64 %mb, map_b; cvta.param.u64 %mb, %mb; ld.param.u64 %out, [out];
  mov.u32 %t, %tid.x; and.b32 %lane, %t, 31; shr.b32 %warp, %t, 5; mov.u32 %x, %ctaid.x; mov.u32 %y, %ctaid.y; shl.b32 %x, %x, 6; shl.b32 %y, %y, 6;
  setp.ne.u32 %p0, %t, 0; @%p0 bra INITED;
  mbarrier.init.shared::cta.b64 [bar], 1; mbarrier.init.shared::cta.b64 [bar+8], 1; mbarrier.init.shared::cta.b64 [bar+16], 1;
  mbarrier.init.shared::cta.b64 [bar+24], 4; mbarrier.init.shared::cta.b64 [bar+32], 4; mbarrier.init.shared::cta.b64 [bar+40], 4;
  fence.mbarrier_init.release.cluster;
INITED:
  <init visible>
  mov.u32 %slot, 0; mov.u32 %phase, 0; mov.u32 %k, 0;
  setp.eq.u32 %p0, %warp, 4; @%p0 bra PRODUCER;
)" + [] {
  std::string s;
  for (int i = 0; i < 32; i++) s += fmt::format("  mov.f32 %c{}, 0f00000000;\n", i);
  // Row of A for ldmatrix: 32 (warp / 2) + lane % 16, column chunk lane / 16; of B: k row lane % 16, chunk 4 (warp % 2)
  // + lane / 16.
  s += R"(
  and.b32 %r0, %lane, 15; shr.b32 %r1, %lane, 4; shr.b32 %r2, %warp, 1; and.b32 %r3, %warp, 1;
  shl.b32 %r4, %r2, 5; add.u32 %r4, %r4, %r0; shl.b32 %r5, %r3, 2; add.u32 %r5, %r5, %r1;
CONSUME:
  shl.b32 %r10, %slot, 3; mov.u32 %r11, bar; add.u32 %r11, %r11, %r10; mov.u32 %r12, ring; mad.lo.u32 %r12, %slot, 16384, %r12;
FULL: <wait full>
)";
  for (int kk = 0; kk < 4; kk++) {
    for (int i = 0; i < 2; i++)
      s += fmt::format(
          "  add.u32 %r20, %r4, {0}; add.u32 %r21, %r1, {1}; and.b32 %r22, %r20, 7; xor.b32 %r21, %r21, %r22; "
          "shl.b32 %r20, %r20, 7; shl.b32 %r21, %r21, 4; add.u32 %r20, %r20, %r21; add.u32 %r20, %r20, %r12;\n"
          "  ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%a{2}, %a{3}, %a{4}, %a{5}}}, [%r20];\n",
          16 * i, 2 * kk, 4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3);
    for (int j = 0; j < 2;
         j++) // 16 columns each: registers 4 j .. 4 j + 3 are (k 0-7, n 0-7), (k 8-15, n 0-7), (k 0-7, n 8-15), ..
      s += fmt::format(
          "  add.u32 %r20, %r0, {0}; add.u32 %r21, %r5, {1}; and.b32 %r22, %r20, 7; xor.b32 %r21, %r21, %r22; "
          "shl.b32 %r20, %r20, 7; shl.b32 %r21, %r21, 4; add.u32 %r20, %r20, %r21; add.u32 %r20, %r20, %r12; add.u32 "
          "%r20, %r20, 8192;\n"
          "  ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {{%b{2}, %b{3}, %b{4}, %b{5}}}, [%r20];\n",
          16 * kk, 2 * j, 4 * j, 4 * j + 1, 4 * j + 2, 4 * j + 3);
    for (int i = 0; i < 2; i++)
      for (int j = 0; j < 4; j++) {
        int c = 4 * (4 * i + j);
        s += fmt::format(
            "  mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {{%c{0}, %c{1}, %c{2}, %c{3}}}, {{%a{4}, %a{5}, "
            "%a{6}, %a{7}}}, {{%b{8}, %b{9}}}, {{%c{0}, %c{1}, %c{2}, %c{3}}};\n",
            c, c + 1, c + 2, c + 3, 4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3, 2 * j, 2 * j + 1);
      }
  }
  s += R"(
  <fence>
  <warp sync>
  setp.eq.u32 %p1, %lane, 0; @%p1 <arrive empty>
  add.u32 %slot, %slot, 1; setp.eq.u32 %p2, %slot, 3; @%p2 mov.u32 %slot, 0; @%p2 xor.b32 %phase, %phase, 1;
  add.u32 %k, %k, 1; setp.lt.u32 %p3, %k, 4; @%p3 bra CONSUME;
  shr.b32 %r6, %lane, 2; add.u32 %r6, %r6, %y; shl.b32 %r7, %r2, 5; add.u32 %r6, %r6, %r7;
  and.b32 %r8, %lane, 3; shl.b32 %r8, %r8, 1; add.u32 %r8, %r8, %x; shl.b32 %r9, %r3, 5; add.u32 %r8, %r8, %r9;
  mad.lo.u32 %r6, %r6, 256, %r8; mul.wide.u32 %d0, %r6, 4; add.s64 %d0, %d0, %out;
)";
  for (int i = 0; i < 2; i++)
    for (int j = 0; j < 4; j++)
      for (int h = 0; h < 2; h++)
        s += fmt::format("  st.global.v2.f32 [%d0+{}], {{%c{}, %c{}}};\n", (16 * i + 8 * h) * 1024 + 32 * j,
                         4 * (4 * i + j) + 2 * h, 4 * (4 * i + j) + 2 * h + 1);
  return s + R"(
  ret;
PRODUCER:
  elect.sync _|%p1, -1; @!%p1 bra DONE;
PRODUCE:
  shl.b32 %r10, %slot, 3; mov.u32 %r11, bar; add.u32 %r11, %r11, %r10; mov.u32 %r12, ring; mad.lo.u32 %r12, %slot, 16384, %r12;
  add.u32 %r13, %r12, 8192; xor.b32 %r14, %phase, 1; shl.b32 %r15, %k, 6;
EMPTY: <wait empty>
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r11], <bytes>;
  cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%r12], [%ma, {%r15, %y}], [%r11];
  cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%r13], [%mb, {%x, %r15}], [%r11];
  add.u32 %slot, %slot, 1; setp.eq.u32 %p2, %slot, 3; @%p2 mov.u32 %slot, 0; @%p2 xor.b32 %phase, %phase, 1;
  add.u32 %k, %k, 1; setp.lt.u32 %p3, %k, 4; @%p3 bra PRODUCE;
DONE:
  ret;
}
)";
}();

using Lines = std::map<std::string, std::string>;
std::string gemm(const Lines &changes = {}) {
  Lines lines = {{"init visible", "bar.sync 0;"},
                 {"wait full", "mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r11], %phase; @!%p1 bra FULL;"},
                 {"fence", "fence.proxy.async.shared::cta;"},
                 {"warp sync", "bar.warp.sync -1;"},
                 {"arrive empty", "mbarrier.arrive.shared::cta.b64 _, [%r11+24];"},
                 {"wait empty", "mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r11+24], %r14; @!%p1 bra EMPTY;"},
                 {"bytes", "16384"}};
  for (const auto &[name, text] : changes) lines[name] = text;
  std::string s = kGemm;
  for (const auto &[name, text] : lines) {
    size_t at = s.find("<" + name + ">");
    REQUIRE(at != s.npos);
    s.replace(at, name.size() + 2, text);
  }
  return s;
}

struct Product {
  Memory memory;
  std::vector<float> a, b;
  uint64_t out;
  Report report;
};
void multiply(Product &p, const Module &module, const Options &options) {
  constexpr int kN = 256;
  Rng rng{5};
  auto fill = [&](std::vector<float> &v, std::vector<uint16_t> &bits) {
    for (int i = 0; i < kN * kN; i++) { // few bits, so that sums are exact
      v.push_back(float(int64_t(rng.next() % 17) - 8) / 8);
      bits.push_back(uint16_t(std::bit_cast<uint32_t>(v.back()) >> 16));
    }
  };
  std::vector<uint16_t> a, b;
  fill(p.a, a), fill(p.b, b);
  TensorMap map;
  map.dtype = DType::BF16, map.rank = 2, map.size = {kN, kN}, map.stride = {2, 2 * kN}, map.box = {64, 64},
  map.swizzle = 128;
  Memory::Attributes readonly;
  readonly.readonly = true;
  map.address = upload(p.memory, a, "a", readonly);
  auto map_a = encode_tensor_map(map);
  map.address = upload(p.memory, b, "b", readonly);
  auto map_b = encode_tensor_map(map);
  p.out = upload(p.memory, std::vector<float>(kN * kN), "c");
  ParamWriter w(*kernels(module).front());
  w.set(0, map_a).set(1, map_b).set(2, p.out);
  Launch l;
  l.grid[0] = 4, l.grid[1] = 4, l.block[0] = 160, l.params = w.bytes();
  p.report = run(module, "gemm", p.memory, l, options);
}
} // namespace

TEST_CASE("gemm with a ring of three TMA stages: right, and fast") {
  auto module = parse(gemm());
  for (int64_t k = 0; k < 8; k++) {
    Product p;
    Options o = nth_schedule(Options(), k, std::nullopt);
    o.threads = 2;
    auto start = std::chrono::steady_clock::now();
    multiply(p, *module, o);
    double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    check_clean(p.report);
    if (k == 0) MESSAGE("gemm 256x256x256: " << seconds << " s, " << p.report.instructions << " warp instructions");
    std::vector<float> c = download<float>(p.memory, p.out, 256 * 256);
    int64_t wrong = 0;
    for (size_t i = 0; i < 256; i++)
      for (size_t j = 0; j < 256; j++) {
        float sum = 0;
        for (size_t q = 0; q < 256; q++) sum += p.a[i * 256 + q] * p.b[q * 256 + j];
        wrong += c[i * 256 + j] != sum;
      }
    CHECK(wrong == 0);
  }
}

TEST_CASE("gemm ring: every synchronising line is needed, and its absence is found within 8 schedules") {
  struct Mutant {
    std::string name;
    Lines lines;
    int most; // schedules that it may take
  };
  const Mutant mutants[] = {
      {"no barrier after init", {{"init visible", ""}}, 8},
      {"full not waited for", {{"wait full", ""}}, 1},
      {"full waited for with the other parity",
       {{"wait full",
         "xor.b32 %r16, %phase, 1; mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r11], %r16; @!%p1 bra FULL;"}},
       8},
      {"no proxy fence before the slot is given back", {{"fence", ""}}, 1},
      {"no warp barrier: lane 0 gives the slot back for lanes that read", {{"warp sync", ""}}, 1},
      {"empty not waited for", {{"wait empty", ""}}, 8},
      {"empty waited for with the other parity",
       {{"wait empty", "mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r11+24], %phase; @!%p1 bra EMPTY;"}},
       8},
      {"slots never given back", {{"arrive empty", "mov.u32 %r16, 0;"}}, 8},
      {"too few bytes expected", {{"bytes", "8192"}}, 8},
      {"too many bytes expected", {{"bytes", "16400"}}, 8},
      {"the relaxed arrive orders nothing",
       {{"arrive empty", "mbarrier.arrive.relaxed.cta.shared::cta.b64 _, [%r11+24];"}},
       1},
  };
  for (const Mutant &m : mutants) {
    CAPTURE(m.name);
    auto module = parse(gemm(m.lines));
    int found = -1;
    for (int k = 0; k < m.most && found < 0; k++) {
      Product p;
      Options o = nth_schedule(Options(), k, std::nullopt);
      o.threads = 2;
      multiply(p, *module, o);
      if (!p.report.ok()) found = k;
    }
    CHECK(found >= 0);
  }
}
