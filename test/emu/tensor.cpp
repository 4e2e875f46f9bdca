// Tensor copies (TMA) against an independent model: boxes of 1 to 5 dimensions at any place, swizzles, steps, stores
// and reductions that stop at the edge of the tensor; and the faults of maps and addresses.
#include "async_kit.h"
#include "tensor_kit.h"
#include <algorithm>

using namespace emu_test;
using tkc::DType;

namespace {
using Case = TensorCase;

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
  s.report =
      launch(*module, s.memory, {1, 64}, o, s.out, encode_tensor_map(c.map), c.at, uint32_t(c.map.box_bytes() / 4));
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
    for (const Case &any : random_cases(rank, uint64_t(rank) * 100 + 7, 25)) {
      Case c = for_store(any);
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
    c.map.size = {8, 7}, c.map.stride = {4, 48}, c.map.box = {8, 6}, c.map.swizzle = 32;
    c.at = {4, 3}; // half of the box lies inside
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
  fails(
      changed(load_kernel(2), "W: mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 0; @!%p1 bra W;", "bar.sync 0;"),
      c, ErrorKind::InFlight, "may still write");
  Case bad = c;
  bad.map.box[0] = 4; // 8 bytes
  fails(load_kernel(2), bad, ErrorKind::AsyncMisuse, "8 bytes is not a multiple of 16");
  bad = c, bad.map.swizzle = 32, bad.map.box[0] = 32;
  fails(load_kernel(2), bad, ErrorKind::AsyncMisuse, "exceeds the swizzle of 32");
  bad = c, bad.map.stride[1] = 72;
  fails(load_kernel(2), bad, ErrorKind::AsyncMisuse, "stride 72");
  bad = c, bad.map.step[1] = 9;
  fails(load_kernel(2), bad, ErrorKind::AsyncMisuse, "step 9");
  bad = c, bad.at = {-4, 3};
  fails(load_kernel(2), bad, ErrorKind::Misaligned, "coordinate -4 of dimension 0 lies at -8 bytes");
  fails(store_kernel(2), bad, ErrorKind::Misaligned, "not at a multiple of 16");
  bad = c, bad.at = {0, -1};
  fails(store_kernel(2), bad, ErrorKind::AsyncMisuse, "coordinate -1 of dimension 1 of a store");
  fails(store_kernel(2, "add"), bad, ErrorKind::AsyncMisuse, "coordinate -1 of dimension 1 of a store");
  bad = c, bad.map.size[0]--;
  bad.at[0] = int32_t(bad.map.size[0] - bad.map.size[0] % 8);
  fails(store_kernel(2), bad, ErrorKind::AsyncMisuse, "also writes the 2 bytes behind it");
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
  rejects(
      "cp.async.bulk.tensor.2d.global.shared::cta.tile.mbarrier::complete_tx::bytes [%map, {%c0, %c1}], [s], [bar];");
  rejects("cp.reduce.async.bulk.tensor.2d.global.shared::cta.mul.tile.bulk_group [%map, {%c0, %c1}], [s];");
}
