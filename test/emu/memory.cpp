// ld, st, atom, red, address spaces, variables, and the errors of memory accesses.
#include "helper.h"
#include <algorithm>

using namespace emu_test;

TEST_CASE("loads extend by their type, stores truncate") {
  std::vector<uint8_t> in = {0x81, 0xff, 0x02, 0x80, 0x34, 0x12, 0xcd, 0xab, 1, 2, 3, 4, 5, 6, 7, 0x88};
  auto m = parse(kernel(R"(
    ld.global.s8 %r0, [%in]; ld.global.u8 %r1, [%in]; ld.global.s16 %r2, [%in+2]; ld.global.b16 %h0, [%in+2];
    cvt.u32.u16 %r3, %h0; ld.global.s32 %d0, [%in+4]; ld.global.u32 %d1, [%in+4]; ld.global.b64 %d2, [%in+8];
    st.global.b32 [%out], %r0; st.global.b32 [%out+4], %r1; st.global.b32 [%out+8], %r2; st.global.b32 [%out+12], %r3;
    st.global.b64 [%out+16], %d0; st.global.b64 [%out+24], %d1; st.global.u8 [%out+32], %d2; st.global.b16 [%out+34], %h0;
    st.global.v2.b32 [%out+40], {%r0, 7};)"));
  Memory memory;
  uint64_t out = upload(memory, std::vector<uint8_t>(64), "out"), src = upload(memory, in);
  check_clean(launch(*m, memory, {1, 1}, Options(), out, src));
  auto w = download<uint32_t>(memory, out, 16);
  CHECK(w[0] == 0xffffff81);
  CHECK(w[1] == 0x81);
  CHECK(w[2] == 0xffff8002);
  CHECK(w[3] == 0x8002);
  CHECK(download<int64_t>(memory, out, 8)[2] == int32_t(0xabcd1234));
  CHECK(download<int64_t>(memory, out, 8)[3] == int64_t(0xabcd1234));
  CHECK(w[8] == 0x80020001);
  CHECK(w[10] == 0xffffff81);
  CHECK(w[11] == 7);
}

TEST_CASE("vectors, hints, wide loads") {
  std::vector<uint32_t> in(64);
  for (uint32_t i = 0; i < 64; i++) in[i] = i * 0x01010101;
  auto m = parse(kernel(R"(
    ld.global.nc.L1::no_allocate.L2::128B.v4.b32 {%r0, %r1, %r2, %r3}, [%in];
    ld.global.v2.b64 {%d0, %d1}, [%in+16];
    ld.global.nc.v8.b32 {%r8, %r9, %r10, %r11, %r12, %r13, %r14, %r15}, [%in+32];
    ld.global.ca.v4.f32 {%f0, %f1, %f2, _}, [%in+64];
    { .reg .b128 %w; ld.global.b128 %w, [%in+80]; st.global.b128 [%out+96], %w; }
    st.global.cs.v4.b32 [%out], {%r3, %r2, %r1, %r0};
    st.global.v2.b64 [%out+16], {%d1, %d0};
    st.global.v8.b32 [%out+32], {%r15, %r14, %r13, %r12, %r11, %r10, %r9, %r8};
    st.global.v4.f32 [%out+64], {%f2, %f1, %f0, 0f3f800000};)"));
  Memory memory;
  uint64_t out = upload(memory, std::vector<uint32_t>(64), "out"), src = upload(memory, in);
  check_clean(launch(*m, memory, {1, 1}, Options(), out, src));
  auto w = download<uint32_t>(memory, out, 28);
  std::vector<uint32_t> want;
  for (uint32_t i : {3, 2, 1, 0, 6, 7, 4, 5, 15, 14, 13, 12, 11, 10, 9, 8, 18, 17, 16}) want.push_back(in[i]);
  want.push_back(0x3f800000);
  for (int i = 0; i < 4; i++) want.push_back(0);
  for (int i = 20; i < 24; i++) want.push_back(in[size_t(i)]);
  CHECK(w == want);
}

namespace {
// Reads 4 bytes at in + offset (given at launch) by thread 0.
Report read_at(int64_t offset, const std::string &op = "ld.global.b32 %r0, [%d1];") {
  auto m = parse(kernel("ld.param.u64 %d0, [offset]; add.s64 %d1, %in, %d0; " + op + " st.global.b32 [%out], %r0;", "",
                        ", .param .u64 offset"));
  Memory memory;
  uint64_t out = upload(memory, std::vector<uint32_t>(1), "out"), src = upload(memory, std::vector<uint32_t>(16), "x");
  return launch(*m, memory, {1, 1}, Options(), out, src, offset);
}
} // namespace

TEST_CASE("out of bounds and misaligned global accesses are found exactly") {
  check_clean(read_at(60));
  check_clean(read_at(0));
  check_error(read_at(64), ErrorKind::OutOfBounds, "0 bytes past the end of x (64 bytes)");
  check_error(read_at(-4), ErrorKind::OutOfBounds, "4 bytes before x");
  check_error(read_at(62), ErrorKind::Misaligned);
  check_error(read_at(56, "ld.global.v4.b32 {%r0, %r1, %r2, %r3}, [%d1];"), ErrorKind::Misaligned, "multiple of 16");
  check_error(read_at(56, "ld.global.v2.b64 {%d2, %d3}, [%d1]; mov.b32 %r0, 0;"), ErrorKind::Misaligned);
  check_clean(read_at(48, "ld.global.v4.b32 {%r0, %r1, %r2, %r3}, [%d1];"));
  check_error(read_at(int64_t(1) << 40), ErrorKind::OutOfBounds);
  check_error(read_at(-(int64_t(0x70) << 32)), ErrorKind::OutOfBounds); // near null
  Report r = read_at(64);
  REQUIRE(r.errors.size() == 1);
  CHECK(r.errors[0].ptx_line > 0);
  CHECK(r.errors[0].address != 0);
  CHECK(to_string(r.errors[0]).find("[out-of-bounds] (PTX line") != std::string::npos);
}

TEST_CASE("an access that begins inside and ends outside is out of bounds") {
  auto m = parse(kernel("ld.global.b64 %d0, [%in];"));
  Memory memory;
  uint64_t out = upload(memory, std::vector<uint32_t>(1), "out"), src = memory.allocate(4, "y");
  check_error(launch(*m, memory, {1, 1}, Options(), out, src), ErrorKind::OutOfBounds,
              "reaches 4 bytes past the end of y");
}

TEST_CASE("an allocation can be aligned to less, to find code that assumes more") {
  auto m = parse(kernel("ld.global.b32 %r0, [%in];"));
  for (int64_t align : {2, 4}) {
    Memory memory;
    Memory::Attributes a;
    a.alignment = align;
    uint64_t out = upload(memory, std::vector<uint32_t>(1), "out"),
             src = upload(memory, std::vector<uint32_t>(4), "x", a);
    CHECK(src % uint64_t(2 * align) == uint64_t(align));
    Report r = launch(*m, memory, {1, 1}, Options(), out, src);
    if (align == 4)
      check_clean(r);
    else
      check_error(r, ErrorKind::Misaligned, "multiple of 4");
  }
}

TEST_CASE("read-only and uninitialised global memory") {
  auto store = parse(kernel("st.global.b32 [%in], %t;")), load = parse(kernel("ld.global.b32 %r0, [%in+4];")),
       both = parse(kernel("st.global.b32 [%in+4], %t; ld.global.b32 %r0, [%in+4];"));
  Memory memory;
  Memory::Attributes readonly, tracked;
  readonly.readonly = true, tracked.track_uninitialised = true;
  uint64_t out = upload(memory, std::vector<uint32_t>(1), "out"),
           fixed = upload(memory, std::vector<uint32_t>(4), "weights", readonly);
  check_error(launch(*store, memory, {1, 1}, Options(), out, fixed), ErrorKind::ReadOnly, "weights");
  check_clean(launch(*load, memory, {1, 1}, Options(), out, fixed));
  uint64_t fresh = memory.allocate(16, "fresh", tracked);
  check_error(launch(*load, memory, {1, 1}, Options(), out, fresh), ErrorKind::UninitialisedGlobal, "byte 4 of fresh");
  check_clean(launch(*both, memory, {1, 1}, Options(), out, fresh));
  check_clean(launch(*load, memory, {1, 1}, Options(), out, fresh)); // written by the launch before
  uint64_t marked = memory.allocate(16, "marked", tracked);
  memory.mark_written(marked + 4, 4);
  check_clean(launch(*load, memory, {1, 1}, Options(), out, marked));
}

TEST_CASE("module variables: initial values, addresses in them, persistence") {
  auto m = parse(R"(
.const .align 4 .f32 table[3] = {0f3f800000, 2.0, -3};
.global .align 4 .u32 counter = 5;
.global .align 1 .b8 text[4] = {65, 66, 67};
.global .align 8 .u64 pointers[2] = {counter, generic(text)+1};
)" + kernel(R"(
    ld.const.f32 %f0, [table+8]; st.global.f32 [%out], %f0;
    ld.global.u32 %r0, [counter]; add.u32 %r0, %r0, 1; st.global.u32 [counter], %r0; st.global.u32 [%out+4], %r0;
    ld.global.u64 %d0, [pointers+8]; ld.u8 %r1, [%d0]; st.global.u32 [%out+8], %r1;
    mov.u64 %d1, table; add.s64 %d1, %d1, 4; ld.const.u32 %r2, [%d1]; st.global.u32 [%out+12], %r2;
    ld.global.u64 %d2, [pointers]; ld.global.u32 %r3, [%d2]; st.global.u32 [%out+16], %r3;)"));
  Memory memory;
  uint64_t out = upload(memory, std::vector<uint32_t>(5), "out"), none = memory.allocate(0, "none");
  for (uint32_t n = 0; n < 2; n++) {
    check_clean(launch(*m, memory, {1, 1}, Options(), out, none));
    CHECK(download<uint32_t>(memory, out, 5) == std::vector<uint32_t>{0xc0400000, 6 + n, 66, 0x40000000, 6 + n});
  }
  auto write =
      parse(".const .align 4 .u32 c = 1;\n" + kernel("mov.u64 %d0, c; cvta.const.u64 %d0, %d0; st.u32 [%d0], %t;"));
  check_error(launch(*write, memory, {1, 1}, Options(), out, none), ErrorKind::ReadOnly, "c, which is read-only");
  auto not_const = parse(kernel("ld.const.u32 %r0, [%in];"));
  check_error(launch(*not_const, memory, {1, 1}, Options(), out, out), ErrorKind::OutOfBounds, "const");
}

TEST_CASE("generic addresses reach every space; isspacep tells them apart") {
  auto m = parse(kernel(R"(
    .local .align 8 .b8 stack[16];
    mov.u64 %d0, stack; cvta.local.u64 %d1, %d0; st.u32 [%d1+4], 11; ld.local.u32 %r0, [stack+4]; st.global.u32 [%out], %r0;
    mov.u64 %d2, area; cvta.shared.u64 %d3, %d2; st.u32 [%d3], 22; ld.shared.u32 %r1, [area]; st.global.u32 [%out+4], %r1;
    cvta.to.shared.u64 %d4, %d3; cvt.u32.u64 %r2, %d4; ld.shared.u32 %r3, [%r2]; st.global.u32 [%out+8], %r3;
    mov.u64 %d5, in; cvta.param.u64 %d6, %d5; ld.u64 %d7, [%d6]; setp.eq.u64 %p0, %d7, %in; selp.u32 %r4, 1, 0, %p0; st.global.u32 [%out+12], %r4;
    isspacep.local %p1, %d1; isspacep.shared %p2, %d3; isspacep.global %p3, %out; isspacep.shared %p4, %out; isspacep.global %p5, %d3; isspacep.param %p6, %d6;
    selp.u32 %r5, 1, 0, %p1; selp.u32 %r6, 2, 0, %p2; selp.u32 %r7, 4, 0, %p3; selp.u32 %r8, 8, 0, %p4; selp.u32 %r9, 16, 0, %p5; selp.u32 %r10, 32, 0, %p6;
    add.u32 %r5, %r5, %r6; add.u32 %r5, %r5, %r7; add.u32 %r5, %r5, %r8; add.u32 %r5, %r5, %r9; add.u32 %r5, %r5, %r10; st.global.u32 [%out+16], %r5;)",
                        ".shared .align 4 .b8 area[16];"));
  Memory memory;
  uint64_t out = upload(memory, std::vector<uint32_t>(5), "out");
  check_clean(launch(*m, memory, {1, 1}, Options(), out, out));
  CHECK(download<uint32_t>(memory, out, 5) == std::vector<uint32_t>{11, 22, 22, 1, 1 + 2 + 4 + 32});
}

TEST_CASE("shared memory: bounds of every variable, alignment, uninitialised bytes") {
  const std::string vars =
      ".shared .align 4 .b8 a[16];\n.extern .shared .align 16 .b8 dyn[];\n.shared .align 4 .b8 b[8];\n";
  auto go = [&](const std::string &body, int64_t dynamic = 32) {
    auto m = parse(kernel(body, vars));
    Memory memory;
    uint64_t out = upload(memory, std::vector<uint32_t>(4), "out");
    return launch(*m, memory, {1, 1, dynamic}, Options(), out, out);
  };
  const std::string touch = "mov.u32 %r9, a; mov.u32 %r10, b; mov.u32 %r11, dyn; "; // all three exist
  check_clean(go(
      touch +
      "st.shared.u32 [a+12], %t; st.shared.u32 [b+4], %t; st.shared.u32 [dyn+28], %t; ld.shared.u32 %r0, [dyn+28];"));
  check_error(go(touch + "st.shared.u32 [a+16], %t;"), ErrorKind::OutOfBounds, "0 bytes past the end of a (16 bytes)");
  check_error(go(touch + "st.shared.u32 [b+8], %t;"), ErrorKind::OutOfBounds, "past the end of b");
  check_error(go(touch + "st.shared.u32 [dyn+32], %t;"), ErrorKind::OutOfBounds, "past the end of dyn (32 bytes)");
  check_error(go(touch + "st.shared.v2.b32 [dyn+24], {%t, %t}; st.shared.v4.b32 [dyn+24], {%t, %t, %t, %t};"),
              ErrorKind::OutOfBounds);
  check_error(go(touch + "mov.u32 %r0, 0; st.shared.u32 [%r0], %t;"), ErrorKind::OutOfBounds);
  check_error(go(touch + "st.shared.b16 [dyn+3], 7;"), ErrorKind::Misaligned, "multiple of 2");
  check_error(go(touch + "ld.shared.u32 %r0, [a];"), ErrorKind::UninitialisedShared, "a + 0");
  check_error(go(touch + "st.shared.u8 [a], %t; ld.shared.u16 %r0, [a];"), ErrorKind::UninitialisedShared, "a + 1");
  check_clean(go(touch + "st.shared.u8 [a], %t; st.shared.u8 [a+1], %t; ld.shared.u16 %r0, [a];"));
}

TEST_CASE("local memory belongs to a thread") {
  auto m = parse(kernel(R"(
    .local .align 4 .b8 stack[128];
    shl.b32 %r0, %t, 2; cvt.u64.u32 %d0, %r0; mov.u64 %d1, stack; add.s64 %d1, %d1, %d0; st.local.u32 [%d1], %t;
    ld.local.u32 %r1, [%d1]; add.s64 %d2, %out, %d0; st.global.u32 [%d2], %r1;)"));
  Memory memory;
  uint64_t out = upload(memory, std::vector<uint32_t>(32), "out");
  check_clean(launch(*m, memory, {1, 32}, Options(), out, out));
  for (uint32_t i = 0; i < 32; i++) CHECK(download<uint32_t>(memory, out, 32)[i] == i);
  auto bad = parse(kernel(".local .align 4 .b8 stack[16]; mov.u64 %d0, stack; st.local.u32 [%d0+4096], %t;"));
  check_error(launch(*bad, memory, {1, 32}, Options(), out, out), ErrorKind::OutOfBounds, "local memory");
}

namespace {
// Every thread applies `op` with operand in[t] to out[0]; returns out[0].
template <typename T>
T reduce(const std::string &op, T start, const std::vector<T> &in, const std::string &space = "global") {
  std::string type = sizeof(T) == 8 ? "b64" : "b32", reg = sizeof(T) == 8 ? "%d2" : "%r2";
  std::string body =
      fmt::format("mul.wide.u32 %d0, %t, {}; add.s64 %d1, %in, %d0; ld.global.{} {}, [%d1]; ", sizeof(T), type, reg);
  std::string old = sizeof(T) == 8 ? "%d3" : "%r3";
  if (space == "global")
    body += fmt::format("red.global.{} [%out], {};", op, reg);
  else
    body += fmt::format(
        "setp.eq.u32 %p0, %t, 0; @%p0 ld.global.{0} {2}, [%out]; @%p0 st.shared.{0} [cell], {2}; bar.sync 0; "
        "atom.shared.{1} {2}, [cell], {3}; bar.sync 0; @%p0 ld.shared.{0} {2}, [cell]; @%p0 st.global.{0} [%out], {2};",
        type, op, old, reg);
  auto m = parse(kernel(body, ".shared .align 8 .b8 cell[8];"));
  Memory memory;
  uint64_t out = upload(memory, std::vector<T>{start}, "out"), src = upload(memory, in);
  check_clean(launch(*m, memory, {1, int64_t(in.size())}, Options(), out, src));
  return download<T>(memory, out, 1)[0];
}
template <typename T, typename F> void check_reduce(const std::string &op, F f) {
  CAPTURE(op);
  std::vector<T> in = samples<T>(64, 91);
  T want = T(5);
  for (T x : in) want = f(want, x);
  CHECK(reduce<T>(op, T(5), in) == want);
  CHECK(reduce<T>(op, T(5), in, "shared") == want);
}
} // namespace

TEST_CASE("atomics: every operation and type") {
  check_reduce<uint32_t>("add.u32", [](uint32_t a, uint32_t b) { return a + b; });
  check_reduce<int32_t>("add.s32", [](int32_t a, int32_t b) { return int32_t(uint32_t(a) + uint32_t(b)); });
  check_reduce<uint64_t>("add.u64", [](uint64_t a, uint64_t b) { return a + b; });
  check_reduce<int32_t>("min.s32", [](int32_t a, int32_t b) { return std::min(a, b); });
  check_reduce<uint32_t>("max.u32", [](uint32_t a, uint32_t b) { return std::max(a, b); });
  check_reduce<int64_t>("max.s64", [](int64_t a, int64_t b) { return std::max(a, b); });
  check_reduce<uint64_t>("min.u64", [](uint64_t a, uint64_t b) { return std::min(a, b); });
  check_reduce<uint32_t>("and.b32", [](uint32_t a, uint32_t b) { return a & b; });
  check_reduce<uint64_t>("or.b64", [](uint64_t a, uint64_t b) { return a | b; });
  check_reduce<uint32_t>("xor.b32", [](uint32_t a, uint32_t b) { return a ^ b; });
  check_reduce<uint32_t>("inc.u32", [](uint32_t a, uint32_t b) { return a >= b ? 0 : a + 1; });
  check_reduce<uint32_t>("dec.u32", [](uint32_t a, uint32_t b) { return a == 0 || a > b ? b : a - 1; });
  // Small integers add exactly in every format, in any order.
  std::vector<uint32_t> ones(64, 0x3f800000), halves(64, 0x3c003c00), bf(64, 0x3f803f80);
  CHECK(reduce<uint32_t>("add.f32", 0, ones) == 0x42800000);
  CHECK(reduce<uint32_t>("add.f32", 0, ones, "shared") == 0x42800000);
  CHECK(reduce<uint32_t>("add.noftz.f16x2", 0, halves) == 0x54005400);
  CHECK(reduce<uint32_t>("add.noftz.bf16x2", 0, bf) == 0x42804280);
  CHECK(reduce<uint64_t>("add.f64", 0, std::vector<uint64_t>(64, std::bit_cast<uint64_t>(1.0))) ==
        std::bit_cast<uint64_t>(64.0));
  // f32 atomics flush subnormals on global memory, not on shared memory.
  CHECK(reduce<uint32_t>("add.f32", 3, std::vector<uint32_t>{4}) == 0);
  CHECK(reduce<uint32_t>("add.f32", 3, std::vector<uint32_t>{4}, "shared") == 7);
}

TEST_CASE("atom returns the old value; cas, exch, b128, vectors") {
  auto m = parse(kernel(R"(
    atom.global.add.u32 %r0, [%out], 3; atom.global.cas.b32 %r1, [%out], 13, 50; atom.global.cas.b32 %r2, [%out], 13, 60;
    atom.global.exch.b32 %r3, [%out], 99; st.global.v4.u32 [%out+16], {%r0, %r1, %r2, %r3};
    atom.relaxed.gpu.global.cas.b16 %h0, [%out+4], 7, 9; cvt.u32.u16 %r4, %h0; st.global.u32 [%out+8], %r4;
    { .reg .b128 %x, %y, %z; mov.b128 %x, {1, 2}; mov.b128 %y, {3, 4}; atom.relaxed.gpu.global.cas.b128 %z, [%in], %x, %y; mov.b128 {%d0, %d1}, %z;
      st.global.v2.b64 [%in+16], {%d0, %d1}; }
    mov.f32 %f0, 0f3f800000; red.relaxed.gpu.global.add.v4.f32 [%in+32], {%f0, %f0, %f0, 2.0};)"));
  Memory memory;
  uint64_t out = upload(memory, std::vector<uint32_t>{10, 7, 0, 0, 0, 0, 0, 0}, "out"),
           in = upload(memory, std::vector<uint64_t>{1, 2, 0, 0, 0, 0});
  check_clean(launch(*m, memory, {1, 1}, Options(), out, in));
  CHECK(download<uint32_t>(memory, out, 8) == std::vector<uint32_t>{99, 9, 7, 0, 10, 13, 50, 50});
  CHECK(download<uint64_t>(memory, in, 6) == std::vector<uint64_t>{3, 4, 1, 2, 0x3f8000003f800000, 0x400000003f800000});
}

TEST_CASE("integer reductions of parallel blocks; float atomics are deterministic") {
  auto count = parse(kernel("red.global.add.u32 [%out], 1; red.global.max.u32 [%out+4], %t;"));
  auto sum = parse(kernel("mov.u32 %r0, %ctaid.x; mad.lo.u32 %r0, %r0, 64, %t; cvt.rn.f32.u32 %f0, %r0; mul.f32 %f0, "
                          "%f0, 0f3dcccccd; atom.global.add.f32 %f1, [%out], %f0;"));
  std::vector<uint32_t> sums;
  for (int threads : {1, 2, 5}) {
    Options o;
    o.threads = threads;
    Memory memory;
    uint64_t out = upload(memory, std::vector<uint32_t>(2), "out");
    check_clean(launch(*count, memory, {200, 64}, o, out, out));
    CHECK(download<uint32_t>(memory, out, 2) == std::vector<uint32_t>{200 * 64, 63});
    uint64_t total = upload(memory, std::vector<uint32_t>(1), "total");
    check_clean(launch(*sum, memory, {50, 64}, o, total, total));
    sums.push_back(download<uint32_t>(memory, total, 1)[0]);
  }
  CHECK(sums[0] == sums[1]);
  CHECK(sums[0] == sums[2]);
}
