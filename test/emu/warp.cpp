// Warp-wide instructions and divergence.
#include "helper.h"

using namespace emu_test;

namespace {
// Every lane runs the body with its index in %t and stores %r0.
std::vector<uint32_t> lanes(const std::string &body, int64_t threads = 32, Policy policy = Policy::Eager) {
  auto m = parse(kernel(body + " mul.wide.u32 %d0, %t, 4; add.s64 %d0, %out, %d0; st.global.u32 [%d0], %r0;"));
  Memory memory;
  Options o;
  o.policy = policy, o.seed = 3;
  uint64_t out = upload(memory, std::vector<uint32_t>(size_t(threads)), "out");
  check_clean(launch(*m, memory, {1, threads}, o, out, out));
  return download<uint32_t>(memory, out, size_t(threads));
}
Report fails(const std::string &body, int64_t threads = 32) {
  auto m = parse(kernel(body, ".shared .align 4 .b8 s[256];"));
  Memory memory;
  uint64_t out = upload(memory, std::vector<uint32_t>(64), "out");
  return launch(*m, memory, {1, threads}, Options(), out, out);
}
} // namespace

TEST_CASE("shfl: all modes, segments, clamps") {
  auto up = lanes("mul.lo.u32 %r1, %t, 10; shfl.sync.up.b32 %r0|%p0, %r1, 3, 0, -1; @!%p0 add.u32 %r0, %r0, 1000;");
  auto down =
      lanes("mul.lo.u32 %r1, %t, 10; shfl.sync.down.b32 %r0|%p0, %r1, 5, 31, -1; @!%p0 add.u32 %r0, %r0, 1000;");
  auto bfly = lanes("mul.lo.u32 %r1, %t, 10; shfl.sync.bfly.b32 %r0, %r1, 9, 31, -1;");
  auto idx = lanes("mul.lo.u32 %r1, %t, 10; add.u32 %r2, %t, 7; shfl.sync.idx.b32 %r0, %r1, %r2, 31, -1;");
  auto width8 = lanes("mul.lo.u32 %r1, %t, 10; shfl.sync.idx.b32 %r0, %r1, 2, 0x181f, -1;"); // segments of 8
  auto down8 = lanes("mul.lo.u32 %r1, %t, 10; shfl.sync.down.b32 %r0|%p0, %r1, 3, 0x181f, -1; @!%p0 mov.u32 %r0, 7;");
  for (uint32_t l = 0; l < 32; l++) {
    CHECK(up[l] == (l >= 3 ? (l - 3) * 10 : l * 10 + 1000));
    CHECK(down[l] == (l + 5 < 32 ? (l + 5) * 10 : l * 10 + 1000));
    CHECK(bfly[l] == (l ^ 9) * 10);
    CHECK(idx[l] == (l + 7) % 32 * 10);
    CHECK(width8[l] == (l / 8 * 8 + 2) * 10);
    CHECK(down8[l] == (l % 8 < 5 ? (l + 3) * 10 : 7));
  }
}

TEST_CASE("vote, match, redux, activemask, elect") {
  const std::string odd = "and.b32 %r1, %t, 1; setp.eq.u32 %p1, %r1, 1; ";
  CHECK(lanes(odd + "vote.sync.ballot.b32 %r0, %p1, -1;")[5] == 0xaaaaaaaa);
  CHECK(lanes(odd + "vote.sync.ballot.b32 %r0, !%p1, -1;")[6] == 0x55555555);
  CHECK(lanes(odd +
              "vote.sync.any.pred %p2, %p1, -1; vote.sync.all.pred %p3, %p1, -1; vote.sync.uni.pred %p4, %p1, -1; "
              "selp.u32 %r0, 1, 0, %p2; @%p3 add.u32 %r0, %r0, 2; @%p4 add.u32 %r0, %r0, 4;")[0] == 1);
  auto any = lanes("rem.u32 %r1, %t, 3; match.any.sync.b32 %r0, %r1, -1;");
  for (uint32_t l = 0; l < 32; l++) {
    uint32_t want = 0;
    for (uint32_t k = l % 3; k < 32; k += 3) want |= 1u << k;
    CHECK(any[l] == want);
  }
  CHECK(lanes("match.all.sync.b32 %r0|%p0, 5, -1;")[3] == 0xffffffff);
  CHECK(lanes("cvt.u64.u32 %d0, %t; match.all.sync.b64 %r0|%p0, %d0, -1; @%p0 mov.u32 %r0, 7;")[3] == 0);
  CHECK(lanes("redux.sync.add.u32 %r0, %t, -1;")[9] == 496);
  CHECK(lanes("sub.s32 %r1, 5, %t; redux.sync.min.s32 %r0, %r1, -1;")[9] == uint32_t(-26));
  CHECK(lanes("redux.sync.xor.b32 %r0, %t, -1;")[9] == 0);
  CHECK(lanes("redux.sync.max.u32 %r0, %t, -1;")[0] == 31);
  CHECK(lanes("setp.lt.u32 %p0, %t, 10; @!%p0 mov.u32 %r0, 1; @%p0 activemask.b32 %r0;")[4] == 0x3ff);
  for (Policy p : kPolicies) {
    auto e = lanes(
        "mov.u32 %r0, 0; elect.sync %r1|%p0, -1; @%p0 mov.u32 %r0, 1; mul.lo.u32 %r1, %r1, 2; add.u32 %r0, %r0, %r1;",
        32, p);
    uint32_t leaders = 0;
    for (uint32_t l = 0; l < 32; l++) {
      leaders += e[l] & 1;
      if (e[l] & 1) CHECK(e[l] / 2 == l);
      CHECK(e[l] / 2 == e[0] / 2);
    }
    CHECK(leaders == 1);
  }
}

TEST_CASE("member masks: halves of a warp apart, in one place or in two branches") {
  auto split =
      lanes("setp.lt.u32 %p0, %t, 16; selp.b32 %r1, 0xffff, 0xffff0000, %p0; redux.sync.add.u32 %r0, %t, %r1;");
  auto branches = lanes(R"(
    setp.lt.u32 %p0, %t, 16; @%p0 bra LOW;
    redux.sync.add.u32 %r0, %t, 0xffff0000; bra JOIN;
    LOW: redux.sync.add.u32 %r0, %t, 0xffff;
    JOIN: shfl.sync.idx.b32 %r2, %r0, 31, 31, -1; add.u32 %r0, %r0, %r2;)");
  for (uint32_t l = 0; l < 32; l++) {
    CHECK(split[l] == (l < 16 ? 120 : 376));
    CHECK(branches[l] == (l < 16 ? 120 + 376 : 2 * 376));
  }
}

TEST_CASE("lanes that come apart meet again at a warp-wide instruction") {
  // The lower lanes run through the loop t times; without the meeting the shuffle would wait for ever.
  for (Policy p : kPolicies) {
    auto r = lanes(R"(
      mov.u32 %r1, 0; mov.u32 %r2, 0;
      LOOP: setp.ge.u32 %p0, %r1, %t; @%p0 bra DONE; add.u32 %r1, %r1, 1; add.u32 %r2, %r2, %r1; bra LOOP;
      DONE: shfl.sync.bfly.b32 %r3, %r2, 31, 31, -1; add.u32 %r0, %r3, %r2;)",
                   32, p);
    for (uint32_t l = 0; l < 32; l++) CHECK(r[l] == l * (l + 1) / 2 + (31 - l) * (32 - l) / 2);
  }
}

TEST_CASE("nested divergence, branch tables, early exits") {
  auto nested = lanes(R"(
    mov.u32 %r0, 0; and.b32 %r1, %t, 1; setp.eq.u32 %p0, %r1, 0; @%p0 bra EVEN;
    and.b32 %r2, %t, 2; setp.eq.u32 %p1, %r2, 0; @%p1 bra ODD_LOW; add.u32 %r0, %r0, 100; bra ODD_JOIN;
    ODD_LOW: add.u32 %r0, %r0, 200;
    ODD_JOIN: add.u32 %r0, %r0, 1; bra JOIN;
    EVEN: add.u32 %r0, %r0, 10;
    JOIN: activemask.b32 %r3; setp.eq.u32 %p2, %r3, -1; @%p2 add.u32 %r0, %r0, 1000;)");
  auto table = lanes(R"(
    rem.u32 %r1, %t, 4; ts: .branchtargets A, B, C;
    setp.eq.u32 %p0, %r1, 3; @%p0 bra D;
    brx.idx %r1, ts;
    A: mov.u32 %r0, 5; bra E; B: mov.u32 %r0, 6; bra E; C: mov.u32 %r0, 7; bra E; D: mov.u32 %r0, 8;
    E: activemask.b32 %r3; setp.eq.u32 %p2, %r3, -1; @%p2 add.u32 %r0, %r0, 100;)");
  for (uint32_t l = 0; l < 32; l++) {
    CHECK(nested[l] == 1000 + (l % 2 == 0 ? 10 : l & 2 ? 101 : 201));
    CHECK(table[l] == 105 + l % 4);
  }
  // Lanes that leave do not hold the others up at the next barrier.
  check_clean(fails("setp.gt.u32 %p0, %t, 20; @%p0 bra OUT; bar.sync 0; st.shared.u32 [s], 1; bar.sync 0; OUT:", 64));
  check_clean(fails("setp.gt.u32 %p0, %t, 20; @%p0 exit; bar.sync 0; mov.u32 %r0, 1;", 64));
  check_error(fails("mov.u32 %r0, 9; T: .branchtargets A; brx.idx %r0, T; A:"), ErrorKind::OutOfBounds,
              "index 9 into a branch table of 1");
}

TEST_CASE("a lane may wait for another one of its warp") {
  // Lane 0 spins until lane 1, in the other branch, has set the flag.
  for (Policy p : kPolicies) {
    auto m = parse(kernel(R"(
      setp.eq.u32 %p0, %t, 0; @%p0 st.shared.u32 [flag], 0; bar.sync 0; @!%p0 bra OTHER;
      SPIN: ld.volatile.shared.u32 %r1, [flag]; setp.eq.u32 %p1, %r1, 0; @%p1 bra SPIN;
      st.global.u32 [%out], %r1; bra JOIN;
      OTHER: setp.eq.u32 %p2, %t, 1; @%p2 st.volatile.shared.u32 [flag], 42;
      JOIN: )",
                          ".shared .align 4 .u32 flag;"));
    Memory memory;
    Options o;
    o.policy = p;
    uint64_t out = upload(memory, std::vector<uint32_t>(1), "out");
    check_clean(launch(*m, memory, {1, 32}, o, out, out));
    CHECK(download<uint32_t>(memory, out, 1)[0] == 42);
  }
}

TEST_CASE("faults of warp-wide instructions") {
  check_error(fails("setp.lt.u32 %p0, %t, 4; @%p0 vote.sync.ballot.b32 %r0, %p0, 0xf0;"), ErrorKind::Divergence,
              "not in its member mask");
  check_error(fails("shfl.sync.idx.b32 %r0, %t, 20, 31, -1;", 16), ErrorKind::Divergence, "takes the value of lane 20");
  check_clean(fails("shfl.sync.idx.b32 %r0, %t, 3, 31, -1;", 16));
  // Lanes 8.. never come: those below wait until the others have exited, and then go on without them.
  check_error(fails("setp.lt.u32 %p0, %t, 8; @%p0 shfl.sync.bfly.b32 %r0, %t, 16, 31, -1;"), ErrorKind::Divergence,
              "which does not take part");
  // .aligned under divergence.
  check_error(fails("setp.lt.u32 %p0, %t, 8; @%p0 bra A; bra B; A: bar.sync 0; B: st.global.u32 [%out], 1;"),
              ErrorKind::Divergence, "the warp is divergent");
  check_error(fails("setp.lt.u32 %p0, %t, 8; @%p0 bar.sync 0;"), ErrorKind::Divergence, "its predicate is false");
  check_clean(fails("setp.lt.u32 %p0, %t, 8; @%p0 bra A; mov.u32 %r0, 1; A: bar.sync 0;"));
  check_error(fails("movmatrix.sync.aligned.m8n8.trans.b16 %r0, %t;", 16), ErrorKind::Divergence,
              "fewer than 32 threads");
}
