// Warp-wide instructions, tensor cores and asynchronous copies: whole kernels on both executors.
#include "emu/async_kit.h"
#include "emu/tensor_kit.h"
#include "gpu/job.h"
#include <algorithm>

using namespace emu_test;
using namespace gpu_test;

namespace {
// Runs both and calls compare(emulated, real, first buffer); without a GPU only the emulator.
template <typename F> void both(const Job &job, F compare) {
  auto emulated = on_emulator(job);
  if (!emulated) {
    FAIL_CHECK(emulated.error());
    return;
  }
  if (!gpu()) return;
  auto real = on_gpu(*gpu(), job);
  if (!real) {
    FAIL_CHECK(real.error());
    return;
  }
  compare(*emulated, *real);
}
void same(const Job &job) {
  both(job, [](const Buffers &e, const Buffers &g) {
    for (size_t b = 0; b < e.size(); b++) {
      int64_t wrong = 0;
      std::string first;
      for (size_t i = 0; i < e[b].size(); i++)
        if (e[b][i] != g[b][i] && !wrong++)
          first = fmt::format("buffer {} byte {}: emulator {:#x}, GPU {:#x}", b, i, e[b][i], g[b][i]);
      INFO(first);
      CHECK(wrong == 0);
    }
  });
}
Job async_job(const std::string &body, int64_t threads) {
  Job j;
  j.text = async_kernel(body);
  j.block = threads;
  j.arguments = {BufferRef{0}, BufferRef{1}};
  std::vector<uint32_t> in(2048);
  for (uint32_t i = 0; i < in.size(); i++) in[i] = i * 0x9e3779b9u;
  j.buffers = {std::vector<uint8_t>(8192), to_bytes(in)};
  return j;
}

// ---- mma
struct Mma {
  std::string shape, types; // "m16n8k16", "f32.bf16.bf16.f32"
  int na, nb, nc;           // registers of a lane
  int bits = 32;            // of a register
  std::string kind = "";    // ".kind::.." after .row.col
  double bound = 0;         // of |difference| / sum of |terms|, for random floats; 0: exact whatever the values
};
const Mma kMma[] = {
    {"m16n8k8", "f32.f16.f16.f32", 2, 1, 4, 32, "", 0x1p-21},
    {"m16n8k16", "f32.f16.f16.f32", 4, 2, 4, 32, "", 0x1p-21},
    {"m16n8k16", "f16.f16.f16.f16", 4, 2, 2, 32, "", 0x1p-9},
    {"m16n8k8", "f32.bf16.bf16.f32", 2, 1, 4, 32, "", 0x1p-21},
    {"m16n8k16", "f32.bf16.bf16.f32", 4, 2, 4, 32, "", 0x1p-21},
    {"m16n8k4", "f32.tf32.tf32.f32", 2, 1, 4, 32, "", 0x1p-21},
    {"m16n8k8", "f32.tf32.tf32.f32", 4, 2, 4, 32, "", 0x1p-21},
    {"m16n8k32", "f32.e4m3.e4m3.f32", 4, 2, 4, 32, "", 0x1p-12},
    {"m16n8k32", "f32.e5m2.e4m3.f32", 4, 2, 4, 32, "", 0x1p-12},
    {"m16n8k16", "s32.s8.s8.s32", 2, 1, 4},
    {"m16n8k32", "s32.s8.s8.s32", 4, 2, 4},
    {"m16n8k32", "s32.u8.s8.s32", 4, 2, 4},
    {"m8n8k4", "f64.f64.f64.f64", 1, 1, 2, 64},
    {"m16n8k4", "f64.f64.f64.f64", 2, 1, 4, 64},
    {"m16n8k8", "f64.f64.f64.f64", 4, 2, 4, 64},
    {"m16n8k16", "f64.f64.f64.f64", 8, 4, 4, 64},
};
std::string element_type(const Mma &m, int k) { // 0 D, 1 A, 2 B, 3 C
  std::string s = m.types;
  for (; k; k--) s.erase(0, s.find('.') + 1);
  return s.substr(0, s.find('.'));
}
// Random elements of the type in registers. small: integers that no accumulation rounds.
std::vector<uint64_t> registers(const std::string &type, int count, int bits, bool small, Rng &rng) {
  auto element = [&]() -> uint64_t {
    int64_t k = int64_t(rng.next() % 9) - 4;
    double unit = (double(rng.next() >> 11) * 0x1p-52 - 1) * 2;
    float x = small ? float(k) : float(unit);
    uint32_t f = std::bit_cast<uint32_t>(x);
    if (type == "f64") return std::bit_cast<uint64_t>(small ? double(k) : unit);
    if (type == "f32") return f;
    if (type == "tf32") return f & 0xffffe000u;
    if (type == "bf16") return f >> 16;
    if (type == "f16") {
      uint32_t e = (f >> 23 & 255);
      return e < 113 ? f >> 31 << 15 : (f >> 31 << 15 | (e - 112) << 10 | (f >> 13 & 1023));
    }
    if (type == "e4m3" || type == "e5m2") {
      uint64_t c = rng.next() & 255;
      return small ? (type == "e4m3" ? uint64_t(0x38 | (c & 0x80)) : uint64_t(0x3c | (c & 0x80))) // +-1
                   : (type == "e4m3" ? (c & 0xbf) : (c & 0xbf));                                  // no NaN
    }
    return uint64_t(type == "s32" ? int64_t(int32_t(rng.next())) >> 8 : int64_t(rng.next()));
  };
  int width = type == "f64"                                      ? 64
              : type == "f32" || type == "tf32" || type == "s32" ? 32
              : type == "f16" || type == "bf16"                  ? 16
                                                                 : 8;
  std::vector<uint64_t> out;
  for (int i = 0; i < count * 32; i++) {
    uint64_t reg = 0;
    for (int at = 0; at < bits; at += width)
      reg |= (element() & (width == 64 ? ~uint64_t(0) : (uint64_t(1) << width) - 1)) << at;
    out.push_back(reg);
  }
  return out;
}
std::vector<uint8_t> packed(const std::vector<uint64_t> &v, int bits) {
  std::vector<uint8_t> out(v.size() * size_t(bits) / 8);
  for (size_t i = 0; i < v.size(); i++) std::memcpy(&out[i * size_t(bits) / 8], &v[i], size_t(bits) / 8);
  return out;
}
Job mma_job(const Mma &m, bool small, bool magnitudes, uint64_t seed) {
  std::string acc = element_type(m, 0), reg = m.bits == 64 ? "f64" : acc == "f32" ? "f32" : "b32";
  std::string body = fmt::format(
      ".visible .entry k(.param .u64 d, .param .u64 a, .param .u64 b, .param .u64 c)\n{{\n.reg .b{0} %a<8>, %b<8>; "
      ".reg .{1} %c<8>; .reg .b64 %p, %off; .reg .b32 %t;\nmov.u32 %t, %tid.x; mul.wide.u32 %off, %t, {2};\n",
      m.bits, reg, m.bits / 8);
  std::string name[3] = {"a", "b", "c"}, list[3];
  int count[3] = {m.na, m.nb, m.nc};
  for (int k = 0; k < 3; k++) {
    body += fmt::format("ld.param.u64 %p, [{}]; add.s64 %p, %p, %off;\n", name[k]);
    for (int r = 0; r < count[k]; r++) {
      body += fmt::format("ld.global.b{} %{}{}, [%p+{}];\n", m.bits, name[k], r, r * 32 * m.bits / 8);
      list[k] += fmt::format("{}%{}{}", r ? ", " : "", name[k], r);
    }
  }
  body += fmt::format("mma.sync.aligned.{0}.row.col{1}.{2} {{{5}}}, {{{3}}}, {{{4}}}, {{{5}}};\nld.param.u64 %p, [d]; "
                      "add.s64 %p, %p, %off;\n",
                      m.shape, m.kind, m.types, list[0], list[1], list[2]);
  for (int r = 0; r < m.nc; r++) body += fmt::format("st.global.b{} [%p+{}], %c{};\n", m.bits, r * 32 * m.bits / 8, r);
  Job j;
  j.text = body + "ret;\n}\n";
  j.arguments = {BufferRef{0}, BufferRef{1}, BufferRef{2}, BufferRef{3}};
  Rng rng{seed};
  j.buffers.push_back(std::vector<uint8_t>(size_t(m.nc) * 32 * size_t(m.bits) / 8));
  for (int k = 0; k < 3; k++) {
    std::string type = element_type(m, k + 1);
    std::vector<uint64_t> v = registers(type, count[k], m.bits, small, rng);
    uint64_t signs = type == "f64"                     ? uint64_t(1) << 63
                     : type == "f32" || type == "tf32" ? 0x80000000
                     : type == "f16" || type == "bf16" ? 0x80008000
                                                       : 0x80808080;
    if (magnitudes)
      for (uint64_t &x : v) x &= ~signs;
    j.buffers.push_back(packed(v, m.bits));
  }
  return j;
}
double number(const Mma &m, const std::vector<uint8_t> &bytes, size_t i) {
  if (element_type(m, 0) == "f16") {
    uint16_t h;
    std::memcpy(&h, &bytes[i * 2], 2);
    double x =
        (h >> 10 & 31) ? std::ldexp(double(1024 | (h & 1023)), (h >> 10 & 31) - 25) : std::ldexp(double(h & 1023), -24);
    return h >> 15 ? -x : x;
  }
  float f;
  std::memcpy(&f, &bytes[i * 4], 4);
  return f;
}
} // namespace

TEST_CASE("mma: exact where no accumulation rounds, within the bound of a truncating accumulator else") {
  for (const Mma &m : kMma) {
    CAPTURE(m.shape);
    CAPTURE(m.types);
    for (uint64_t seed = 1; seed <= 4; seed++) {
      same(mma_job(m, true, false, seed));
      if (m.bound == 0) {
        same(mma_job(m, false, false, seed));
        continue;
      }
      auto magnitude = on_emulator(mma_job(m, false, true, seed));
      REQUIRE(magnitude.ok());
      both(mma_job(m, false, false, seed), [&](const Buffers &e, const Buffers &g) {
        double worst = 0;
        size_t n = e[0].size() / (element_type(m, 0) == "f16" ? 2 : 4), equal = 0;
        for (size_t i = 0; i < n; i++) {
          double a = number(m, e[0], i), b = number(m, g[0], i);
          equal += a == b;
          worst = std::max(worst, std::abs(a - b) / (m.bound * number(m, (*magnitude)[0], i)));
        }
        MESSAGE(m.shape << " " << m.types << ": " << equal << " of " << n << " equal, at most " << worst
                        << " of the bound");
        CHECK(worst <= 1);
      });
    }
  }
}

TEST_CASE("warp-wide instructions") {
  const std::string give =
      " shl.b32 %r60, %t, 2; cvt.u64.u32 %d60, %r60; add.s64 %d60, %out, %d60; st.global.u32 [%d60], %r0;";
  const std::string load =
      "shl.b32 %r60, %t, 2; cvt.u64.u32 %d60, %r60; add.s64 %d60, %in, %d60; ld.global.u32 %r1, [%d60]; ";
  for (const char *op :
       {"shfl.sync.up.b32 %r0|%p0, %r1, 3, 0, -1; @!%p0 add.u32 %r0, %r0, 1;",
        "shfl.sync.down.b32 %r0|%p0, %r1, 5, 31, -1; @!%p0 add.u32 %r0, %r0, 1;",
        "shfl.sync.bfly.b32 %r0|%p0, %r1, 9, 0x101f, -1; @!%p0 add.u32 %r0, %r0, 1;",
        "shfl.sync.idx.b32 %r0|%p0, %r1, %r1, 0x181f, -1; @!%p0 add.u32 %r0, %r0, 1;",
        "setp.gt.s32 %p0, %r1, 0; vote.sync.ballot.b32 %r0, %p0, -1;",
        "and.b32 %r1, %r1, 7; match.any.sync.b32 %r0, %r1, -1;",
        "match.all.sync.b32 %r0|%p0, 5, -1; @%p0 add.u32 %r0, %r0, 1;", "redux.sync.add.u32 %r0, %r1, -1;",
        "redux.sync.min.s32 %r0, %r1, -1;", "redux.sync.max.u32 %r0, %r1, -1;", "redux.sync.xor.b32 %r0, %r1, -1;",
        "movmatrix.sync.aligned.m8n8.trans.b16 %r0, %r1;",
        "st.shared.u32 [%own], %r1; st.shared.u32 [%own+4], %t; st.shared.u64 [%own+8], 77; bar.sync 0; and.b32 %r2, "
        "%t, 31; shl.b32 %r2, %r2, 4; add.u32 %r2, %r2, %s; "
        "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r0, %r3, %r4, %r5}, [%r2]; xor.b32 %r0, %r0, %r3; add.u32 %r0, "
        "%r0, %r4; xor.b32 %r0, %r0, %r5;",
        "st.shared.u32 [%own], %r1; st.shared.u32 [%own+4], %t; st.shared.u64 [%own+8], 77; bar.sync 0; and.b32 %r2, "
        "%t, 31; shl.b32 %r2, %r2, 4; add.u32 %r2, %r2, %s; "
        "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r0, %r3, %r4, %r5}, [%r2]; xor.b32 %r0, %r0, %r3; add.u32 "
        "%r0, %r0, %r4; xor.b32 %r0, %r0, %r5;",
        "shr.b32 %r9, %t, 5; shl.b32 %r9, %r9, 9; and.b32 %r2, %t, 31; shl.b32 %r2, %r2, 4; add.u32 %r2, %r2, %s; "
        "add.u32 %r2, %r2, %r9; add.u32 %r3, %r1, 1; add.u32 %r4, %r1, 2; "
        "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%r2], {%r1, %r3, %r4, %t}; bar.sync 0; ld.shared.v4.u32 {%r5, "
        "%r6, %r7, %r8}, [%own]; xor.b32 %r0, %r5, %r6; xor.b32 %r7, %r7, %r8; add.u32 %r0, %r0, %r7;",
        "bar.red.popc.u32 %r0, 0, %p14; setp.lt.u32 %p0, %t, 200; bar.red.and.pred %p1, 0, %p0; @%p1 add.u32 %r0, %r0, "
        "1000;"}) {
    CAPTURE(op);
    same(async_job(load + op + give, 64));
  }
}

TEST_CASE("asynchronous copies: cp.async, bulk, reductions") {
  const std::string give =
      "ld.shared.v4.u32 {%r0, %r1, %r2, %r3}, [%own]; st.global.v4.u32 [%dst], {%r0, %r1, %r2, %r3}; ";
  const std::string fill = "ld.global.v4.u32 {%r0, %r1, %r2, %r3}, [%src]; st.shared.v4.u32 [%own], {%r3, %r2, %r1, "
                           "%r0}; fence.proxy.async.shared::cta; bar.sync 0; ";
  const std::string drain = " cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;";
  const std::string cluster = "shared::cluster"; // the name that sm_90 has for a destination in the own CTA
  same(async_job("cp.async.cg.shared.global [%own], [%src], 16; cp.async.wait_all; bar.sync 0; " + give, 64));
  for (int size : {0, 1, 5, 12, 16})
    same(async_job(
        fmt::format("cp.async.cg.shared.global [%own], [%src], 16, {}; cp.async.commit_group; cp.async.wait_group 0; ",
                    size) +
            give,
        64));
  same(async_job(with_barrier(64) +
                     "cp.async.ca.shared.global [%own], [%src], 16; cp.async.mbarrier.arrive.noinc.shared.b64 [bar]; " +
                     wait_parity("0", "W") + give,
                 64));
  same(async_job(with_barrier(1) +
                     "@%p15 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 1024; @%p15 cp.async.bulk." + cluster +
                     ".global.mbarrier::complete_tx::bytes [s], [%in], 1024, [bar]; " + wait_parity("0", "W") + give,
                 64));
  same(async_job(fill + "@%p15 cp.async.bulk.global.shared::cta.bulk_group [%out], [s], 1024;" + drain, 64));
  for (const char *op : {"add.u32", "min.s32", "max.u32", "and.b32", "xor.b32", "inc.u32", "dec.u32", "add.u64",
                         "add.f32", "add.noftz.f16", "add.noftz.bf16", "min.f16", "max.bf16"}) {
    CAPTURE(op);
    // The values are small whole floats, so that no order or rounding matters, except for the bitwise operations.
    Job j = async_job(
        fill + fmt::format("@%p15 cp.reduce.async.bulk.global.shared::cta.bulk_group.{} [%out], [s], 1024;", op) +
            drain,
        64);
    std::string name = op;
    uint32_t one = name.ends_with("f32")    ? 0x3f800000
                   : name.ends_with("bf16") ? 0x3f803f80
                   : name.ends_with("f16")  ? 0x3c003c00
                                            : 0;
    std::vector<uint32_t> v(2048);
    for (uint32_t i = 0; i < 2048; i++) v[i] = one ? one ^ (i & 1 ? 0x80000000u : 0) : i * 0x9e3779b9u;
    j.buffers = {to_bytes(v), to_bytes(v)};
    same(j);
  }
  // The mbarrier's own numbers: states, parities, counts.
  same(async_job(with_barrier(3) + R"(@!%p15 bra OUT; mov.u32 %r9, 0;
    mbarrier.arrive.shared.b64 %d0, [bar]; mbarrier.pending_count.b64 %r0, %d0; mbarrier.test_wait.shared.b64 %p0, [bar], %d0; @%p0 add.u32 %r9, %r9, 1;
    mbarrier.test_wait.parity.shared.b64 %p0, [bar], 1; @%p0 add.u32 %r9, %r9, 2; mbarrier.test_wait.parity.shared.b64 %p0, [bar], 0; @%p0 add.u32 %r9, %r9, 4;
    mbarrier.arrive.noComplete.shared.b64 %d1, [bar], 1; mbarrier.pending_count.b64 %r1, %d1; mbarrier.arrive_drop.shared.b64 %d2, [bar]; mbarrier.pending_count.b64 %r2, %d2;
    mbarrier.test_wait.shared.b64 %p0, [bar], %d0; @%p0 add.u32 %r9, %r9, 8; mbarrier.arrive.shared.b64 %d3, [bar]; mbarrier.pending_count.b64 %r3, %d3;
    st.global.v4.u32 [%out], {%r0, %r1, %r2, %r3}; st.global.u32 [%out+16], %r9; OUT:)",
                 64));
}

// Between the blocks of a cluster: each sends 512 bytes of its s to the other, which waits on a barrier of its own. (In
// a launch without clusters an H200 ends this instruction with an illegal instruction.)
TEST_CASE("bulk copies from the shared memory of one block of a cluster to that of the other") {
  const std::string sync = "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;\n";
  Job j = async_job(
      ".reg .b32 %rank, %peer, %ps, %pbar; mov.u32 %rank, %cluster_ctarank; xor.b32 %peer, %rank, 1; "
      "mapa.shared::cluster.u32 %ps, %s, %peer; mapa.shared::cluster.u32 %pbar, %bar, %peer;\n"
      "shl.b32 %r60, %rank, 10; cvt.u64.u32 %d60, %r60; add.s64 %src, %src, %d60; add.s64 %dst, %dst, %d60;\n"
      "ld.global.v4.u32 {%r0, %r1, %r2, %r3}, [%src]; st.shared.v4.u32 [%own], {%r3, %r2, %r1, %r0};\n"
      "@%p15 mbarrier.init.shared::cta.b64 [bar], 1; @%p15 fence.mbarrier_init.release.cluster;\n"
      "fence.proxy.async.shared::cta;\n" +
          sync +
          "@%p15 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 512; add.u32 %r61, %ps, 1024;\n"
          "@%p15 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r61], [s], 512, [%pbar];\n" +
          wait_parity("0", "W") +
          "setp.lt.u32 %p0, %t, 32; @!%p0 bra OUT; ld.shared.v4.u32 {%r0, %r1, %r2, %r3}, [%own+1024];\n"
          "st.global.v4.u32 [%dst], {%r0, %r1, %r2, %r3}; OUT:\n" +
          sync,
      64);
  j.grid = j.cluster = 2;
  same(j);
}

namespace {
// Loads and stores of random boxes; `outside`: those of which no element lies inside the tensor, else the others.
void random_boxes(bool outside) {
  for (int rank = 1; rank <= 5; rank++) {
    int count = 0;
    for (TensorCase c : random_cases(rank, uint64_t(rank) * 1000, 120)) {
      bool stepped = std::any_of(c.map.step.begin(), c.map.step.end(), [](int32_t s) { return s != 1; });
      bool misses = false;
      for (size_t d = 0; d < size_t(rank); d++) misses |= c.at[d] >= c.map.size[d] || c.at[d] + c.map.box[d] <= 0;
      if (stepped || misses != outside || count++ >= 12) continue; // the runtime describes no steps
      for (bool load : {true, false}) {
        if (!load) c = for_store(c);
        Job j;
        j.text = load ? load_kernel(rank, "cluster") : store_kernel(rank);
        j.block = 64;
        std::vector<uint8_t> tensor(size_t(c.bytes()));
        for (size_t i = 0; i < tensor.size(); i++) tensor[i] = uint8_t(i * 37 + i / 256 * 11 + 1);
        j.buffers = {std::vector<uint8_t>(32768), tensor};
        j.arguments = {BufferRef{0}, MapRef{c.map, 1}, bytes_of(c.at), bytes_of(uint32_t(c.map.box_bytes() / 4))};
        CAPTURE(rank);
        CAPTURE(load);
        CAPTURE(c.map.swizzle);
        same(j);
      }
    }
  }
}
} // namespace

// A fault ends the process's context, so each kind of box is a case of its own.
TEST_CASE("tensor copies: loads and stores of random boxes, every swizzle") { random_boxes(false); }
TEST_CASE("tensor copies: boxes that miss the tensor") { random_boxes(true); }
