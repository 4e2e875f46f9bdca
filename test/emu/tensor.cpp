// Tensor copies (TMA) against an independent model: boxes of 1 to 5 dimensions at any place, swizzles, steps, stores
// and reductions that stop at the edge of the tensor; and the faults of maps and addresses.
#include "async_kit.h"
#include "emu/tensor_map.h"

using namespace emu_test;
using tkc::DType;

namespace {
struct Case {
  TensorMap map;
  std::array<int32_t, 5> at = {};
  int64_t bytes() const { // of the tensor's allocation
    int64_t n = map.size[0] * map.stride[0];
    for (int d = 1; d < map.rank; d++) n += (map.size[size_t(d)] - 1) * map.stride[size_t(d)];
    return n;
  }
};

// Calls f(offset in the dense box, offset in the tensor or -1 if outside) for every element of the box.
template <typename F> void each_element(const Case &c, F f) {
  int64_t counts[5] = {1, 1, 1, 1, 1}, element = tkc::dtype_bytes(c.map.dtype), n = 0;
  for (int d = 0; d < c.map.rank; d++) counts[d] = d ? (c.map.box[d] + c.map.step[d] - 1) / c.map.step[d] : c.map.box[0];
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
int64_t swizzled(int64_t offset, int swizzle) {
  int64_t line = offset / 128, chunk = offset / 16 % 8, rest = offset % 16;
  if (swizzle == 128) chunk ^= line % 8;
  if (swizzle == 64) chunk ^= line % 4;
  if (swizzle == 32) chunk ^= line % 2;
  return line * 128 + chunk * 16 + rest;
}

std::string coordinates(int rank) {
  std::string s;
  for (int d = 0; d < rank; d++) s += fmt::format("{}%c{}", d ? ", " : "", d);
  return s;
}
// A kernel with a tensor map as parameter: coordinates in %c0.., `%map` its address; s is the box in shared memory.
std::string tensor_kernel(const std::string &body) {
  return R"(
.shared .align 1024 .b8 s[32768];
.shared .align 8 .b8 bar[16];
.visible .entry k(.param .u64 out, .param .align 64 .b8 map[128], .param .align 4 .b8 at[20], .param .u32 words)
{
  .reg .pred %p<8>; .reg .b32 %r<16>, %t, %n, %c<5>, %words; .reg .b64 %d<8>, %out, %map;
  ld.param.u64 %out, [out]; mov.b64 %map, map; cvta.param.u64 %map, %map;
  ld.param.u32 %c0, [at]; ld.param.u32 %c1, [at+4]; ld.param.u32 %c2, [at+8]; ld.param.u32 %c3, [at+12]; ld.param.u32 %c4, [at+16];
  ld.param.u32 %words, [words]; mov.u32 %t, %tid.x; mov.u32 %n, %ntid.x; setp.eq.u32 %p7, %t, 0;
  @%p7 mbarrier.init.shared::cta.b64 [bar], 1; bar.sync 0;
)" + body + "\n  ret;\n}\n";
}
// Loops over the words of s: %d0 the address in s, %d1 the one in out.
std::string each_word(const std::string &body, const std::string &label) {
  return fmt::format("mov.u32 %r0, %t; {0}: setp.ge.u32 %p0, %r0, %words; @%p0 bra {0}_END; mul.wide.u32 %d2, %r0, 4; "
                     "mov.u64 %d0, s; add.s64 %d0, %d0, %d2; add.s64 %d1, %out, %d2; {1} add.u32 %r0, %r0, %n; bra {0}; {0}_END:\n",
                     label, body);
}
std::string load_kernel(int rank, const std::string &space = "cta") {
  return tensor_kernel(
      fmt::format("shl.b32 %r1, %words, 2; @%p7 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], %r1;\n"
                  "@%p7 cp.async.bulk.tensor.{}d.shared::{}.global.tile.mbarrier::complete_tx::bytes [s], [%map, {{{}}}], [bar];\n"
                  "W: mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 0; @!%p1 bra W;\n",
                  rank, space, coordinates(rank)) +
      each_word("ld.shared.u32 %r2, [%d0]; st.global.u32 [%d1], %r2;", "GIVE"));
}
// Fills the words of s with their number plus `first`, and copies them to the tensor.
std::string store_kernel(int rank, const std::string &reduce = "") {
  return tensor_kernel(
      each_word("add.u32 %r2, %r0, 1000; st.shared.u32 [%d0], %r2;", "FILL") +
      fmt::format("fence.proxy.async.shared::cta; bar.sync 0; @!%p7 bra OUT;\n"
                  "cp.{}async.bulk.tensor.{}d.global.shared::cta.{}tile.bulk_group [%map, {{{}}}], [s];\n"
                  "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; OUT:",
                  reduce.empty() ? "" : "reduce.", rank, reduce.empty() ? "" : reduce + ".", coordinates(rank)));
}

struct Setup {
  Memory memory;
  uint64_t out, tensor;
  Report report;
};
void run_tensor(Setup &s, const std::string &text, Case c, Policy policy = Policy::Random, uint64_t seed = 3) {
  auto module = parse(text);
  std::vector<uint8_t> bytes(size_t(c.bytes()));
  for (size_t i = 0; i < bytes.size(); i++) bytes[i] = uint8_t(i * 37 + i / 256 * 11 + 1);
  s.tensor = upload(s.memory, bytes, "tensor");
  s.out = s.memory.allocate(32768, "out");
  c.map.address = s.tensor;
  Options o;
  o.policy = policy, o.seed = seed;
  s.report = launch(*module, s.memory, {1, 64}, o, s.out, encode_tensor_map(c.map), c.at, uint32_t(c.map.box_bytes() / 4));
}

// Boxes of the rank at random places, many of them beyond the edges.
std::vector<Case> random_cases(int rank, uint64_t seed, int count) {
  Rng rng{seed};
  auto pick = [&](int64_t low, int64_t high) { return low + int64_t(rng.next() % uint64_t(high - low + 1)); };
  std::vector<Case> out;
  const DType types[] = {DType::U8, DType::BF16, DType::F32, DType::F64};
  while (int(out.size()) < count) {
    Case c;
    TensorMap &m = c.map;
    m.rank = rank;
    m.dtype = types[pick(0, 3)];
    m.swizzle = int32_t(std::array{0, 32, 64, 128}[size_t(pick(0, 3))]);
    int64_t element = tkc::dtype_bytes(m.dtype), stride = 0;
    for (int d = 0; d < rank; d++) {
      m.size[size_t(d)] = pick(1, d == 0 ? 70 : rank > 3 ? 5 : 20);
      m.stride[size_t(d)] = d == 0 ? element : stride;
      stride = d == 0 ? (m.size[0] * element + 15) / 16 * 16 + 16 * pick(0, 2) : stride * m.size[size_t(d)] + 16 * pick(0, 1);
      int64_t inner = m.swizzle ? m.swizzle : 16 * pick(1, 9);
      m.box[size_t(d)] = int32_t(d == 0 ? inner / element : pick(1, rank > 3 ? 4 : 9));
      if (d > 0) m.step[size_t(d)] = int32_t(pick(0, 3) ? 1 : pick(1, 3));
      c.at[size_t(d)] = int32_t(pick(-m.box[size_t(d)] - 1, m.size[size_t(d)] + 1));
      if (pick(0, 1)) c.at[size_t(d)] = int32_t(pick(0, m.size[size_t(d)] - 1));
    }
    if (m.box[0] > 256 || m.box_bytes() > 32768 || !check_tensor_map(m).empty()) continue;
    out.push_back(c);
  }
  return out;
}
std::string describe(const Case &c) {
  std::string s = fmt::format("{} swizzle {}:", tkc::dtype_name(c.map.dtype), c.map.swizzle);
  for (size_t d = 0; d < size_t(c.map.rank); d++)
    s += fmt::format(" [size {} stride {} box {} step {} at {}]", c.map.size[d], c.map.stride[d], c.map.box[d],
                     c.map.step[d], c.at[d]);
  return s;
}
Case plain() { // 16 rows of 32 bf16; a box of 8 rows of 16, unswizzled
  Case c;
  c.map.dtype = DType::BF16, c.map.rank = 2;
  c.map.size = {32, 16}, c.map.stride = {2, 64}, c.map.box = {16, 8};
  return c;
}
} // namespace

TEST_CASE("tensor loads: every rank, swizzle, element size, steps, and places beyond every edge") {
  for (int rank = 1; rank <= 5; rank++)
    for (const Case &c : random_cases(rank, uint64_t(rank) * 100, 40)) {
      INFO(describe(c));
      Setup s;
      run_tensor(s, load_kernel(rank, rank % 2 ? "cta" : "cluster"), c);
      check_clean(s.report);
      std::vector<uint8_t> got = download<uint8_t>(s.memory, s.out, size_t(c.map.box_bytes()));
      const uint8_t *tensor = s.memory.host(s.tensor);
      int64_t element = tkc::dtype_bytes(c.map.dtype), wrong = 0;
      each_element(c, [&](int64_t offset, int64_t where) {
        for (int64_t b = 0; b < element; b++)
          wrong += got[size_t(swizzled(offset + b, c.map.swizzle))] != (where < 0 ? 0 : tensor[where + b]);
      });
      CHECK(wrong == 0);
    }
}

TEST_CASE("tensor stores write what lies inside and nothing else") {
  for (int rank = 1; rank <= 5; rank++)
    for (const Case &c : random_cases(rank, uint64_t(rank) * 100 + 7, 25)) {
      INFO(describe(c));
      Setup s;
      run_tensor(s, store_kernel(rank), c);
      check_clean(s.report);
      std::vector<uint8_t> want(size_t(c.bytes())), box(size_t(c.map.box_bytes()));
      for (size_t i = 0; i < want.size(); i++) want[i] = uint8_t(i * 37 + i / 256 * 11 + 1);
      for (uint32_t w = 0; w < box.size() / 4; w++) std::memcpy(&box[w * 4], std::array{w + 1000}.data(), 4);
      each_element(c, [&](int64_t offset, int64_t where) {
        for (int64_t b = 0; where >= 0 && b < tkc::dtype_bytes(c.map.dtype); b++)
          want[size_t(where + b)] = box[size_t(swizzled(offset + b, c.map.swizzle))];
      });
      CHECK(download<uint8_t>(s.memory, s.tensor, want.size()) == want);
    }
}

TEST_CASE("tensor reductions combine with what is there") {
  struct Op {
    std::string name;
    uint32_t (*f)(uint32_t, uint32_t);
  };
  const Op ops[] = {{"add", [](uint32_t a, uint32_t b) { return a + b; }},
                    {"min", [](uint32_t a, uint32_t b) { return std::min(a, b); }},
                    {"max", [](uint32_t a, uint32_t b) { return std::max(a, b); }},
                    {"inc", [](uint32_t a, uint32_t b) { return a >= b ? 0 : a + 1; }},
                    {"dec", [](uint32_t a, uint32_t b) { return a == 0 || a > b ? b : a - 1; }},
                    {"and", [](uint32_t a, uint32_t b) { return a & b; }},
                    {"or", [](uint32_t a, uint32_t b) { return a | b; }},
                    {"xor", [](uint32_t a, uint32_t b) { return a ^ b; }}};
  for (const Op &op : ops) {
    CAPTURE(op.name);
    Case c;
    c.map.dtype = DType::U32, c.map.rank = 2;
    c.map.size = {10, 7}, c.map.stride = {4, 48}, c.map.box = {8, 6}, c.map.swizzle = 32;
    c.at = {5, -2};
    Setup s;
    run_tensor(s, store_kernel(2, op.name), c);
    check_clean(s.report);
    std::vector<uint8_t> want(size_t(c.bytes()));
    for (size_t i = 0; i < want.size(); i++) want[i] = uint8_t(i * 37 + i / 256 * 11 + 1);
    each_element(c, [&](int64_t offset, int64_t where) {
      if (where < 0) return;
      uint32_t old;
      std::memcpy(&old, &want[size_t(where)], 4);
      old = op.f(old, uint32_t(swizzled(offset, 32) / 4 + 1000));
      std::memcpy(&want[size_t(where)], &old, 4);
    });
    CHECK(download<uint8_t>(s.memory, s.tensor, want.size()) == want);
  }
  Case f = plain();
  f.map.dtype = DType::F32, f.map.size = {16, 16}, f.map.stride = {4, 64}, f.map.box = {8, 8};
  Setup s;
  run_tensor(s, store_kernel(2, "and"), f);
  CHECK(s.report.ok()); // bitwise on 32-bit elements
  Setup u;
  f.map.dtype = DType::U8, f.map.size = {64, 16}, f.map.stride = {1, 64}, f.map.box = {32, 8};
  run_tensor(u, store_kernel(2, "add"), f);
  check_error(u.report, ErrorKind::AsyncMisuse, "does not exist for elements of type u8");
}

TEST_CASE("tensor loads count the bytes of the whole box, whatever lies outside") {
  Case c = plain();
  c.at = {24, 12}; // 8 of 16 columns, 4 of 8 rows lie inside
  Setup s;
  run_tensor(s, load_kernel(2), c);
  check_clean(s.report);
  // A kernel that expects only the bytes inside hangs on an underflow.
  std::string text = load_kernel(2);
  text.replace(text.find("shl.b32 %r1, %words, 2;"), 23, "shl.b32 %r1, %words, 1;");
  Setup u;
  run_tensor(u, text, c);
  check_error(u.report, ErrorKind::Deadlock, "bytes");
}

TEST_CASE("faults of tensor copies") {
  auto fails = [](const std::string &text, const Case &c, ErrorKind kind, const std::string &message) {
    for (Policy p : kPolicies) {
      Setup s;
      run_tensor(s, text, c, p);
      check_error(s.report, kind, message);
    }
  };
  auto changed = [](std::string text, const std::string &from, const std::string &to) {
    REQUIRE(text.find(from) != text.npos);
    return text.replace(text.find(from), from.size(), to);
  };
  Case c = plain();
  fails(load_kernel(3), c, ErrorKind::AsyncMisuse, "a 3d copy with a tensor map of rank 2");
  fails(changed(load_kernel(2), "bytes [s]", "bytes [s+64]"), c, ErrorKind::Misaligned, "must be a multiple of 128");
  fails(changed(load_kernel(2), "bytes [s]", "bytes [s+32640]"), c, ErrorKind::OutOfBounds, "shared memory");
  fails(changed(load_kernel(2), "[%map, ", "[%out, "), c, ErrorKind::AsyncMisuse, "there is none");
  fails(changed(load_kernel(2), "[%map, ", "[%map+8, "), c, ErrorKind::Misaligned, "");
  fails(changed(load_kernel(2), "W: mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 0; @!%p1 bra W;", ""), c,
        ErrorKind::InFlight, "may still write");
  Case bad = c;
  bad.map.box[0] = 4; // 8 bytes
  fails(load_kernel(2), bad, ErrorKind::AsyncMisuse, "8 bytes is not a multiple of 16");
  bad = c, bad.map.swizzle = 32, bad.map.box[0] = 32;
  fails(load_kernel(2), bad, ErrorKind::AsyncMisuse, "exceeds the swizzle of 32");
  bad = c, bad.map.stride[1] = 72;
  fails(load_kernel(2), bad, ErrorKind::AsyncMisuse, "stride 72");
  bad = c, bad.map.step[1] = 9;
  fails(load_kernel(2), bad, ErrorKind::AsyncMisuse, "step 9");
  // A map that promises more than the allocation holds.
  bad = c, bad.map.size[1] = 17, bad.at = {0, 10};
  Setup s;
  auto module = parse(load_kernel(2));
  uint64_t tensor = s.memory.allocate(c.bytes(), "tensor"), out = s.memory.allocate(32768, "out");
  bad.map.address = tensor;
  Report r = launch(*module, s.memory, {1, 64}, Options(), out, encode_tensor_map(bad.map), bad.at, uint32_t(64));
  check_error(r, ErrorKind::OutOfBounds, "tensor");
  // A store of ordinary writes without the fence.
  fails(changed(store_kernel(2), "fence.proxy.async.shared::cta;", ""), c, ErrorKind::ProxyFence, "asynchronous read");
  // Writing through a map of a read-only tensor.
  Setup ro;
  Memory::Attributes a;
  a.readonly = true;
  Case w = c;
  w.map.address = ro.memory.allocate(c.bytes(), "tensor", a);
  out = ro.memory.allocate(32768, "out");
  r = launch(*parse(store_kernel(2)), ro.memory, {1, 64}, Options(), out, encode_tensor_map(w.map), w.at, uint32_t(64));
  check_error(r, ErrorKind::ReadOnly, "tensor");
}

TEST_CASE("tensor maps in global memory, prefetches") {
  Case c = plain();
  std::string text = load_kernel(2);
  std::string from = "mov.b64 %map, map; cvta.param.u64 %map, %map;";
  text.replace(text.find(from), from.size(), "ld.param.u64 %map, [map];");
  text.replace(text.find("@%p7 cp.async"), 0,
               "prefetch.tensormap [%map]; @%p7 cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%map, {%c0, %c1}];\n");
  Memory memory;
  std::vector<uint8_t> bytes(size_t(c.bytes()), 7);
  c.map.address = upload(memory, bytes, "tensor");
  auto image = encode_tensor_map(c.map);
  uint64_t map = upload(memory, std::vector<uint8_t>(image.begin(), image.end()), "map");
  uint64_t out = memory.allocate(32768, "out");
  std::array<uint64_t, 16> param = {map};
  check_clean(launch(*parse(text), memory, {1, 64}, Options(), out, param, c.at, uint32_t(c.map.box_bytes() / 4)));
  CHECK(memory.host(out)[0] == 7);
}

TEST_CASE("tensor copies: forms that do not exist or are not supported") {
  auto rejects = [](const std::string &instruction) {
    ParseResult r = parse_ptx(".version 8.7\n.target sm_120a\n.address_size 64\n" + tensor_kernel(instruction));
    CAPTURE(instruction);
    CHECK_FALSE(r.module);
  };
  const std::string tail = ".mbarrier::complete_tx::bytes [s], [%map, {%c0, %c1}], [bar];";
  rejects("cp.async.bulk.tensor.2d.shared::cta.global.im2col" + tail);
  rejects("cp.async.bulk.tensor.3d.shared::cta.global.tile" + tail);
  rejects("cp.async.bulk.tensor.6d.shared::cta.global.tile" + tail);
  rejects("cp.async.bulk.tensor.2d.shared::cta.global.tile.bulk_group [s], [%map, {%c0, %c1}];");
  rejects("cp.async.bulk.tensor.2d.global.shared::cta.tile.mbarrier::complete_tx::bytes [%map, {%c0, %c1}], [s], [bar];");
  rejects("cp.reduce.async.bulk.tensor.2d.global.shared::cta.mul.tile.bulk_group [%map, {%c0, %c1}], [s];");
}
