// Kernels with a tensor map, and random boxes, for the tests of TMA on the emulator and on a GPU.
#pragma once
#include "emu/tensor_map.h"
#include "helper.h"

namespace emu_test {

struct TensorCase {
  TensorMap map;
  std::array<int32_t, 5> at = {};
  int64_t bytes() const { // of the tensor's allocation
    int64_t n = map.size[0] * map.stride[0];
    for (int d = 1; d < map.rank; d++) n += (map.size[size_t(d)] - 1) * map.stride[size_t(d)];
    return n;
  }
};

// Calls f(offset in the dense box, offset in the tensor or -1 if outside) for every element of the box.
template <typename F> void each_element(const TensorCase &c, F f) {
  int64_t counts[5] = {1, 1, 1, 1, 1}, element = tkc::dtype_bytes(c.map.dtype), n = 0;
  for (int d = 0; d < c.map.rank; d++)
    counts[d] = d ? (c.map.box[d] + c.map.step[d] - 1) / c.map.step[d] : c.map.box[0];
  for (int64_t e = 0; e < counts[4]; e++)
    for (int64_t z = 0; z < counts[3]; z++)
      for (int64_t y = 0; y < counts[2]; y++)
        for (int64_t x = 0; x < counts[1]; x++)
          for (int64_t i = 0; i < counts[0]; i++) {
            int64_t k[5] = {i, x, y, z, e}, where = 0;
            bool inside = true;
            for (int d = 0; d < c.map.rank; d++) {
              int64_t p = c.at[size_t(d)] + k[d] * (d ? c.map.step[size_t(d)] : 1);
              inside = inside && p >= 0 && p < c.map.size[size_t(d)];
              where += p * c.map.stride[size_t(d)];
            }
            f(n++ * element, inside ? where : -1);
          }
}
// Swizzles as the manual draws them: the chunk of 16 bytes within a line of 128 is exchanged by the number of the line.
inline int64_t swizzled(int64_t offset, int swizzle) {
  int64_t line = offset / 128, chunk = offset / 16 % 8, rest = offset % 16;
  if (swizzle == 128) chunk ^= line % 8;
  if (swizzle == 64) chunk ^= line % 4;
  if (swizzle == 32) chunk ^= line % 2;
  return line * 128 + chunk * 16 + rest;
}

inline std::string coordinates(int rank) {
  std::string s;
  for (int d = 0; d < rank; d++) s += fmt::format("{}%c{}", d ? ", " : "", d);
  return s;
}
// A kernel with a tensor map as parameter: coordinates in %c0.., `%map` its address; s is the box in shared memory.
inline std::string tensor_kernel(const std::string &body) {
  return R"(
.shared .align 1024 .b8 s[32768];
.shared .align 8 .b8 bar[16];
.visible .entry k(.param .u64 out, .param .align 64 .b8 map[128], .param .align 4 .b8 at[20], .param .u32 words)
{
  .reg .pred %p<8>; .reg .b32 %r<16>, %t, %n, %c<5>, %words; .reg .b64 %d<8>, %out, %map;
  ld.param.u64 %out, [out]; mov.b64 %map, map; cvta.param.u64 %map, %map;
  ld.param.u32 %c0, [at]; ld.param.u32 %c1, [at+4]; ld.param.u32 %c2, [at+8]; ld.param.u32 %c3, [at+12]; ld.param.u32 %c4, [at+16];
  ld.param.u32 %words, [words]; mov.u32 %t, %tid.x; mov.u32 %n, %ntid.x; setp.eq.u32 %p7, %t, 0;
  @%p7 mbarrier.init.shared::cta.b64 [bar], 1; fence.mbarrier_init.release.cluster; bar.sync 0;
)" + body +
         "\n  ret;\n}\n";
}
// Loops over the words of s: %d0 the address in s, %d1 the one in out.
inline std::string each_word(const std::string &body, const std::string &label) {
  return fmt::format(
      "mov.u32 %r0, %t; {0}: setp.ge.u32 %p0, %r0, %words; @%p0 bra {0}_END; mul.wide.u32 %d2, %r0, 4; "
      "mov.u64 %d0, s; add.s64 %d0, %d0, %d2; add.s64 %d1, %out, %d2; {1} add.u32 %r0, %r0, %n; bra {0}; {0}_END:\n",
      label, body);
}
inline std::string load_kernel(int rank, const std::string &space = "cta") {
  return tensor_kernel(
      fmt::format("shl.b32 %r1, %words, 2; @%p7 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], %r1;\n"
                  "@%p7 cp.async.bulk.tensor.{}d.shared::{}.global.tile.mbarrier::complete_tx::bytes [s], [%map, "
                  "{{{}}}], [bar];\n"
                  "W: mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 0; @!%p1 bra W;\n",
                  rank, space, coordinates(rank)) +
      each_word("ld.shared.u32 %r2, [%d0]; st.global.u32 [%d1], %r2;", "GIVE"));
}
// Fills the words of s with their number plus `first`, and copies them to the tensor.
inline std::string store_kernel(int rank, const std::string &reduce = "") {
  return tensor_kernel(
      each_word("add.u32 %r2, %r0, 1000; st.shared.u32 [%d0], %r2;", "FILL") +
      fmt::format("fence.proxy.async.shared::cta; bar.sync 0; @!%p7 bra OUT;\n"
                  "cp.{}async.bulk.tensor.{}d.global.shared::cta.{}tile.bulk_group [%map, {{{}}}], [s];\n"
                  "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; OUT:",
                  reduce.empty() ? "" : "reduce.", rank, reduce.empty() ? "" : reduce + ".", coordinates(rank)));
}

// Boxes of the rank at random places, many of them beyond the edges.
inline std::vector<TensorCase> random_cases(int rank, uint64_t seed, int count) {
  Rng rng{seed};
  auto pick = [&](int64_t low, int64_t high) { return low + int64_t(rng.next() % uint64_t(high - low + 1)); };
  std::vector<TensorCase> out;
  const tkc::DType types[] = {tkc::DType::U8, tkc::DType::BF16, tkc::DType::F32, tkc::DType::F64};
  while (int(out.size()) < count) {
    TensorCase c;
    TensorMap &m = c.map;
    m.rank = rank;
    m.dtype = types[pick(0, 3)];
    m.swizzle = int32_t(std::array{0, 32, 64, 128}[size_t(pick(0, 3))]);
    int64_t element = tkc::dtype_bytes(m.dtype), stride = 0;
    for (int d = 0; d < rank; d++) {
      m.size[size_t(d)] = pick(1, d == 0 ? 70 : rank > 3 ? 5 : 20);
      m.stride[size_t(d)] = d == 0 ? element : stride;
      stride = d == 0 ? (m.size[0] * element + 15) / 16 * 16 + 16 * pick(0, 2)
                      : stride * m.size[size_t(d)] + 16 * pick(0, 1);
      int64_t inner = m.swizzle ? m.swizzle : 16 * pick(1, 9);
      m.box[size_t(d)] = int32_t(d == 0 ? inner / element : pick(1, rank > 3 ? 4 : 9));
      if (d > 0) m.step[size_t(d)] = int32_t(pick(0, 3) ? 1 : pick(1, 3));
      c.at[size_t(d)] = int32_t(pick(-m.box[size_t(d)] - 1, m.size[size_t(d)] + 1));
      if (pick(0, 1)) c.at[size_t(d)] = int32_t(pick(0, m.size[size_t(d)] - 1));
      if (d == 0) c.at[0] &= ~int32_t(16 / element - 1); // the inner coordinate lies at a multiple of 16 bytes
    }
    if (m.box[0] > 256 || m.box_bytes() > 32768 || !check_tensor_map(m).empty()) continue;
    out.push_back(c);
  }
  return out;
}

// The same box where a store may put it: not before the tensor, whose rows end with a whole chunk.
inline TensorCase for_store(TensorCase c) {
  int64_t per_chunk = 16 / tkc::dtype_bytes(c.map.dtype);
  for (int32_t &x : c.at) x = std::max(x, 0);
  c.map.size[0] = (c.map.size[0] + per_chunk - 1) / per_chunk * per_chunk;
  return c;
}

} // namespace emu_test
