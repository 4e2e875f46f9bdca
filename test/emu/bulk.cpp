// Bulk copies and reductions: completion by mbarrier and by group, proxy fences, sizes and alignment.
#include "async_kit.h"
#include <algorithm>

using namespace emu_test;

namespace {
std::string load(const std::string &to, const std::string &from, int64_t bytes, const std::string &space = "cta") {
  return fmt::format("@%p15 cp.async.bulk.shared::{}.global.mbarrier::complete_tx::bytes [{}], [{}], {}, [bar];\n",
                     space, to, from, bytes);
}
std::string expect(int64_t bytes) {
  return fmt::format("@%p15 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], {};\n", bytes);
}
std::string store(const std::string &to, const std::string &from, int64_t bytes) {
  return fmt::format("@%p15 cp.async.bulk.global.shared::cta.bulk_group [{}], [{}], {};\n", to, from, bytes);
}
const std::string kCommit = "@%p15 cp.async.bulk.commit_group;\n";
const std::string kGive =
    "ld.shared.v4.u32 {%r0, %r1, %r2, %r3}, [%own]; st.global.v4.u32 [%dst], {%r0, %r1, %r2, %r3};\n";
const std::string kFill = "st.shared.v4.u32 [%own], {%t, 1, 2, 3};\n";
const std::string kFence = "fence.proxy.async.shared::cta;\n";
const std::string kSync = "bar.sync 0;\n";
std::string wait_groups(int n, bool read) {
  return fmt::format("cp.async.bulk.wait_group{} {};\n", read ? ".read" : "", n);
}
void is_copy(const Outcome &r) {
  for (uint32_t i = 0; i < 256; i++) CHECK(r.out[i] == i);
}
} // namespace

TEST_CASE("bulk load: expect, copy, wait, read; both destination spaces, either order of copy and expect") {
  clean(with_barrier(1) + expect(1024) + load("s", "%in", 1024) + wait_parity("0", "W") + kGive, 64, is_copy);
  clean(with_barrier(1) + load("s", "%in", 1024, "cluster") + expect(1024) + wait_parity("0", "W") + kGive, 64,
        is_copy);
  clean(with_barrier(1) + expect(1024) + load("s", "%in", 512) + load("s+512", "%in+512", 512) + wait_parity("0", "W") +
            kGive,
        64, is_copy);
  // With a 32-bit address register, a cache policy, and an expectation of its own.
  clean(with_barrier(1) + R"(
    { .reg .b64 %pol; createpolicy.fractional.L2::evict_first.b64 %pol, 1.0;
      @%p15 mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%bar], 1024;
      @%p15 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes.L2::cache_hint [%s], [%in], 1024, [%bar], %pol; }
    @%p15 mbarrier.arrive.shared::cta.b64 _, [%bar];
  )" + wait_parity("0", "W") +
            kGive,
        64, is_copy);
}

TEST_CASE("bulk load: the bytes are in flight until the mbarrier's phase is waited for") {
  const std::string start = with_barrier(1) + expect(1024) + load("s", "%in", 1024) + kSync;
  broken(start + kGive + wait_parity("0", "W"), 64, ErrorKind::InFlight, "the copy issued by warp 0 lane 0");
  broken(start + kFill + wait_parity("0", "W"), 64, ErrorKind::InFlight, "write of s");
  broken(start + load("s+1008", "%in", 16) + wait_parity("0", "W"), 64, ErrorKind::InFlight);
  clean(start + "st.shared.u32 [%own+1024], 1; " + wait_parity("0", "W"), 64);
  // Only one warp waits; then a barrier tells the others.
  broken(start + "@!%p13 bra J;" + wait_parity("0", "W") + "J: " + kGive, 64, ErrorKind::InFlight);
  clean(start + "@!%p13 bra J;" + wait_parity("0", "W") + "J: " + kSync + kGive, 64, is_copy);
  // The wait is for the wrong parity, which a fresh mbarrier has completed.
  broken_somehow(start + wait_parity("1", "W") + kGive, 64, {ErrorKind::InFlight, ErrorKind::Deadlock});
}

TEST_CASE("bulk load: transaction bytes must be those of the copies") {
  broken(with_barrier(1) + expect(1040) + load("s", "%in", 1024) + wait_parity("0", "W") + kGive, 64,
         ErrorKind::Deadlock, "16 bytes are missing");
  broken(with_barrier(1) + expect(512) + load("s", "%in", 1024) + wait_parity("0", "W") + kGive, 64,
         ErrorKind::Deadlock, "-512 bytes");
  // Every warp's elected lane issues the copy: twice the bytes.
  broken(with_barrier(1) + expect(1024) +
             "@%p14 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [s], [%in], 1024, [bar];" +
             wait_parity("0", "W"),
         64, ErrorKind::InFlight);
  // No mbarrier there, or one not yet visible.
  broken(load("s", "%in", 1024), 64, ErrorKind::MbarrierMisuse, "is no initialised mbarrier");
  // No arrival and no expectation: no thread waits, the copy is in flight when the block ends.
  broken(with_barrier(1) + load("s", "%in", 64), 64, ErrorKind::InFlightAtExit, "no thread waits for them");
  broken(with_barrier(1) + expect(64) + load("s", "%in", 64), 64, ErrorKind::InFlightAtExit);
  // inval under a copy's feet.
  check_error(run_async(with_barrier(1) + expect(64) + load("s", "%in", 64) + "@%p15 mbarrier.inval.shared.b64 [bar];",
                        64, {Policy::Lazy})
                  .report,
              ErrorKind::MbarrierMisuse, "copies are in flight");
}

TEST_CASE("bulk copies: sizes, alignment, bounds") {
  broken(with_barrier(1) + expect(24) + load("s", "%in", 24) + wait_parity("0", "W"), 32, ErrorKind::AsyncMisuse,
         "24 bytes, not a multiple of 16");
  broken(with_barrier(1) + expect(16) + load("s+8", "%in", 16) + wait_parity("0", "W"), 32, ErrorKind::Misaligned);
  broken(with_barrier(1) + expect(16) + load("s", "%in+8", 16) + wait_parity("0", "W"), 32, ErrorKind::Misaligned);
  broken(with_barrier(1) + expect(32) + load("s", "%in+8176", 32) + wait_parity("0", "W"), 32, ErrorKind::OutOfBounds,
         "16 bytes past the end of in");
  broken(with_barrier(1) + expect(32) + load("s+8176", "%in", 32) + wait_parity("0", "W"), 32, ErrorKind::OutOfBounds);
  clean(with_barrier(1) + load("s", "%in", 0) + expect(16) + load("s+8176", "%in+8176", 16) + wait_parity("0", "W"),
        32);
  broken(store("%out+8", "s", 16) + kCommit + wait_groups(0, false), 32, ErrorKind::Misaligned);
  CHECK_FALSE(rejection("cp.async.bulk.shared::cta.global.bulk_group [s], [%in], 16;").empty());
  CHECK_FALSE(
      rejection("cp.async.bulk.global.shared::cta.mbarrier::complete_tx::bytes [%out], [s], 16, [bar];").empty());
  CHECK_FALSE(rejection("cp.async.bulk.wait_all;").empty());
  CHECK_FALSE(rejection("cp.async.bulk.wait_group %t;").empty());
}

TEST_CASE("bulk store: the writers fence, a barrier, then one thread copies and waits") {
  auto given = [](const Outcome &r) {
    for (uint32_t t = 0; t < 64; t++) CHECK((r.out[4 * t] == t && r.out[4 * t + 3] == 3));
  };
  clean(kFill + kFence + kSync + store("%out", "s", 1024) + kCommit + wait_groups(0, false), 64, given);
  clean(kFill + "fence.proxy.async;" + kSync + store("%out", "s", 1024) + kCommit + wait_groups(0, true), 64, given);
  broken(kFill + kSync + store("%out", "s", 1024) + kCommit + wait_groups(0, false), 64, ErrorKind::ProxyFence,
         "asynchronous read of s");
  // A fence by the issuing thread orders its own accesses and those it has been told of.
  clean(kFill + kSync + "@%p15 " + kFence + store("%out", "s", 1024) + kCommit + wait_groups(0, false), 64, given);
  // The fence before the store does nothing for it.
  broken(kFence + kFill + kSync + store("%out", "s", 1024) + kCommit + wait_groups(0, false), 64,
         ErrorKind::ProxyFence);
  // A fence of another space, or an ordinary one.
  broken(kFill + "fence.proxy.async.global;" + kSync + store("%out", "s", 1024) + kCommit + wait_groups(0, false), 64,
         ErrorKind::ProxyFence);
  broken(kFill + "fence.acq_rel.cta;" + kSync + store("%out", "s", 1024) + kCommit + wait_groups(0, false), 64,
         ErrorKind::ProxyFence);
  // No barrier: the bytes of other threads are not there yet.
  broken(kFill + kFence + store("%out", "s", 1024) + kCommit + wait_groups(0, false), 64, ErrorKind::SharedRace);
  // Bytes nobody has written.
  broken(store("%out", "s", 1024) + kCommit + wait_groups(0, false), 64, ErrorKind::UninitialisedShared);
}

TEST_CASE("bulk store: the source may be overwritten after wait_group.read, the block may end then") {
  const std::string start = kFill + kFence + kSync + store("%out", "s", 1024) + kCommit;
  broken(start + kSync + kFill + wait_groups(0, false), 64, ErrorKind::InFlight, "may still read");
  clean(start + wait_groups(0, true) + kSync + kFill, 64);
  clean(start + "ld.shared.u32 %r0, [%own]; " + wait_groups(0, true), 64); // reading is no conflict
  // Only the issuing thread's groups count.
  broken(start + "@!%p15 cp.async.bulk.wait_group.read 0;" + kSync + kFill, 64, ErrorKind::InFlight);
  broken(start, 64, ErrorKind::InFlightAtExit, "cp.async.bulk.wait_group is missing");
  broken(kFill + kFence + kSync + store("%out", "s", 1024) + wait_groups(0, true), 64, ErrorKind::InFlightAtExit);
  broken(start + wait_groups(1, true), 64, ErrorKind::InFlightAtExit);
  // wait_group without .read also means that the thread sees what was written.
  Outcome early = run_async(start + "@%p15 ld.global.u32 %r0, [%out+16]; @%p15 st.global.u32 [%out+4096], %r0; " +
                                wait_groups(0, false),
                            64, {Policy::Lazy});
  CHECK(early.out[1024] == 0);
  clean(start + wait_groups(0, false) + "@%p15 ld.global.u32 %r0, [%out+16]; @%p15 st.global.u32 [%out+4096], %r0; ",
        64, [](const Outcome &r) { CHECK(r.out[1024] == 1); });
}

TEST_CASE("bulk store: wait_group N leaves the last N groups pending") {
  auto two = [](int pending, const std::string &overwrite) {
    return kFill + "st.shared.v4.u32 [%own+1024], {%t, 5, 6, 7};" + kFence + kSync + store("%out", "s", 1024) +
           kCommit + store("%out+1024", "s+1024", 1024) + kCommit + wait_groups(pending, true) + kSync +
           "st.shared.u32 [" + overwrite + "], 9;" + wait_groups(0, false);
  };
  clean(two(1, "%own"), 64, [](const Outcome &r) {
    for (uint32_t t = 0; t < 64; t++) CHECK((r.out[4 * t] == t && r.out[256 + 4 * t + 1] == 5));
  });
  broken(two(1, "%own+1024"), 64, ErrorKind::InFlight);
  broken(two(2, "%own"), 64, ErrorKind::InFlight);
  clean(two(0, "%own+1024"), 64);
}

TEST_CASE("a generic access before an asynchronous write of the same bytes needs a proxy fence") {
  const std::string refill = expect(1024) + load("s", "%in", 1024);
  const std::string first = with_barrier(1) + refill + wait_parity("0", "A") + kGive;
  // Generic write, then asynchronous write.
  broken(with_barrier(1) + kFill + kSync + refill + wait_parity("0", "A"), 64, ErrorKind::ProxyFence,
         "asynchronous write of s + 0 (of 8192 bytes) after a generic write");
  clean(with_barrier(1) + kFill + kFence + kSync + refill + wait_parity("0", "A") + kGive, 64, is_copy);
  // Generic read, then asynchronous overwrite; without the barrier a race.
  broken(first + kSync + refill + wait_parity("1", "B") + kGive, 64, ErrorKind::ProxyFence, "after a generic read");
  clean(first + kFence + kSync + refill + wait_parity("1", "B") + kGive, 64, is_copy);
  broken(first + kFence + refill + wait_parity("1", "B"), 64, ErrorKind::SharedRace);
  // This rule may be turned off.
  CHECK(run_async(first + kSync + refill + wait_parity("1", "B"), 64, {Policy::Eager, 0, false}).report.ok());
  // Asynchronous write, wait, asynchronous read: the completion is the fence.
  clean(with_barrier(1) + refill + wait_parity("0", "A") + store("%out", "s", 1024) + kCommit + wait_groups(0, true),
        64, is_copy);
  // In place: after the load an ordinary update, then the store.
  const std::string update = "ld.shared.u32 %r0, [%own]; add.u32 %r0, %r0, 1; st.shared.u32 [%own], %r0;";
  broken(with_barrier(1) + refill + wait_parity("0", "A") + update + kSync + store("%out", "s", 1024) + kCommit +
             wait_groups(0, true),
         64, ErrorKind::ProxyFence);
  clean(with_barrier(1) + refill + wait_parity("0", "A") + update + kFence + kSync + store("%out", "s", 1024) +
            kCommit + wait_groups(0, true),
        64);
  // cp.async is generic: its bytes need the fence too, after the wait and not before it.
  const std::string small = "cp.async.cg.shared.global [%own], [%src], 16; ";
  broken(small + "cp.async.wait_all;" + kSync + store("%out", "s", 1024) + kCommit + wait_groups(0, true), 64,
         ErrorKind::ProxyFence);
  broken(small + kFence + "cp.async.wait_all;" + kSync + store("%out", "s", 1024) + kCommit + wait_groups(0, true), 64,
         ErrorKind::ProxyFence);
  clean(small + "cp.async.wait_all;" + kFence + kSync + store("%out", "s", 1024) + kCommit + wait_groups(0, true), 64,
        is_copy);
}

TEST_CASE("bulk copy from shared to shared memory (a cluster of one)") {
  auto copy = [](const std::string &fence) {
    return with_barrier(1) + kFill + fence + kSync + expect(1024) +
           "@%p15 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [s+1024], [s], 1024, "
           "[bar];\n" +
           wait_parity("0", "W");
  };
  clean(copy(kFence) + "ld.shared.u32 %r0, [%own+1024]; st.global.u32 [%dst], %r0;", 64, [](const Outcome &r) {
    for (uint32_t t = 0; t < 64; t++) CHECK(r.out[4 * t] == t);
  });
  broken(copy(""), 64, ErrorKind::ProxyFence);
}

TEST_CASE("bulk reductions to global memory") {
  // out[t] and in[t] combined; every thread contributes one word.
  auto reduce = [](const std::string &op, const std::string &value) {
    return value + "shl.b32 %r9, %t, 2; add.u32 %r9, %s, %r9; st.shared.u32 [%r9], %r0;" + kFence + kSync +
           "@%p15 cp.reduce.async.bulk.global.shared::cta.bulk_group." + op + " [%in], [s], 256;" + kCommit +
           wait_groups(0, false);
  };
  auto expect_all = [&](const std::string &op, uint32_t (*f)(uint32_t, uint32_t)) {
    CAPTURE(op);
    clean(reduce(op, "mul.lo.u32 %r0, %t, 7; sub.u32 %r0, 100, %r0;"), 64, [&](const Outcome &r) {
      for (uint32_t t = 0; t < 64; t++) CHECK(r.in[t] == f(t, 100 - 7 * t));
    });
  };
  expect_all("add.u32", [](uint32_t a, uint32_t b) { return a + b; });
  expect_all("add.s32", [](uint32_t a, uint32_t b) { return a + b; });
  expect_all("min.u32", [](uint32_t a, uint32_t b) { return std::min(a, b); });
  expect_all("max.s32", [](uint32_t a, uint32_t b) { return uint32_t(std::max(int32_t(a), int32_t(b))); });
  expect_all("min.s32", [](uint32_t a, uint32_t b) { return uint32_t(std::min(int32_t(a), int32_t(b))); });
  expect_all("and.b32", [](uint32_t a, uint32_t b) { return a & b; });
  expect_all("or.b32", [](uint32_t a, uint32_t b) { return a | b; });
  expect_all("xor.b32", [](uint32_t a, uint32_t b) { return a ^ b; });
  expect_all("inc.u32", [](uint32_t a, uint32_t b) { return a >= b ? 0 : a + 1; });
  expect_all("dec.u32", [](uint32_t a, uint32_t b) { return a == 0 || a > b ? b : a - 1; });
  expect_all("add.u64", [](uint32_t a, uint32_t b) -> uint32_t {
    // Words 2k and 2k + 1 are one number; a carry passes from the lower to the upper one.
    uint32_t k = a / 2, low = 2 * k + (100 - 14 * k);
    bool carry = (uint64_t(2 * k) + uint32_t(100 - 14 * k)) >> 32;
    return a % 2 ? a + b + carry : low;
  });
  // Floats: 1.5 added to bit patterns 0..63, which are subnormal and vanish beside it.
  clean(reduce("add.f32", "mov.b32 %r0, 0f3fc00000;"), 64, [](const Outcome &r) { CHECK(r.in[63] == 0x3fc00000); });
  clean(reduce("add.noftz.bf16", "mov.b32 %r0, 0x3fc03fc0;"), 64,
        [](const Outcome &r) { CHECK(r.in[3] == 0x3fc03fc0); });
  clean(reduce("max.f16", "mov.b32 %r0, 0x3e003e00;"), 64, [](const Outcome &r) { CHECK(r.in[3] == 0x3e003e00); });
  // Two blocks' worth of one thread's reductions all count.
  clean("st.shared.u32 [%own], 1; st.shared.u32 [%own+4], 1; st.shared.u32 [%own+8], 1; st.shared.u32 [%own+12], 1;" +
            kFence +
            "mov.u32 %r0, 0; L: cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%out], [%own], 16; "
            "add.u32 %r0, %r0, 1; setp.lt.u32 %p0, %r0, 3; @%p0 bra L; cp.async.bulk.commit_group;" +
            wait_groups(0, false),
        64, [](const Outcome &r) {
          for (int k = 0; k < 4; k++) CHECK(r.out[size_t(k)] == 192);
        });
  CHECK_FALSE(rejection("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.bf16 [%out], [s], 16;").empty());
  CHECK_FALSE(rejection("cp.reduce.async.bulk.global.shared::cta.bulk_group.and.f32 [%out], [s], 16;").empty());
  broken(kFill + kSync + "@%p15 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%out], [s], 256;" +
             kCommit + wait_groups(0, false),
         64, ErrorKind::ProxyFence);
}

TEST_CASE("bulk reductions to shared memory complete on an mbarrier") {
  const std::string body =
      kFill + "st.shared.v4.u32 [%own+1024], {10, 20, %t, 40};" + kFence + with_barrier(1) + expect(1024) +
      "@%p15 cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u32 [s+1024], [s], "
      "1024, "
      "[bar];\n" +
      kSync;
  clean(body + wait_parity("0", "W") +
            "ld.shared.v4.u32 {%r0, %r1, %r2, %r3}, [%own+1024]; st.global.v4.u32 [%dst], "
            "{%r0, %r1, %r2, %r3};",
        64, [](const Outcome &r) {
          for (uint32_t t = 0; t < 64; t++)
            CHECK((r.out[4 * t] == 10 + t && r.out[4 * t + 1] == 21 && r.out[4 * t + 2] == t + 2 &&
                   r.out[4 * t + 3] == 43));
        });
  broken(body + "ld.shared.u32 %r0, [%own+1024];" + wait_parity("0", "W"), 64, ErrorKind::InFlight);
}

TEST_CASE("prefetches check nothing but their form, and change nothing") {
  clean("@%p15 cp.async.bulk.prefetch.L2.global [%in], 1024; prefetch.global.L2 [%src]; prefetch.global.L1 [%src];",
        64);
  CHECK_FALSE(rejection("cp.async.bulk.prefetch.L1.global [%in], 1024;").empty());
}

TEST_CASE("bulk ring: producer warp, consumer warps, full and empty mbarriers, three stages, eight turns") {
  // Warp 0 fills slot k mod 3 with 512 bytes; warps 1 and 2 add up their words. full = bar + 8 slot, empty = bar + 24 +
  // 8 slot.
  auto ring = [](const std::string &empty_wait, const std::string &fence, int empty_count, int tx) {
    return fmt::format(R"(
      @!%p15 bra INITED; mov.u32 %r0, 0;
      I: shl.b32 %r1, %r0, 3; add.u32 %r1, %bar, %r1; mbarrier.init.shared::cta.b64 [%r1], 1; mbarrier.init.shared::cta.b64 [%r1+24], {2};
      add.u32 %r0, %r0, 1; setp.lt.u32 %p0, %r0, 3; @%p0 bra I;
      fence.mbarrier_init.release.cluster;
      INITED: bar.sync 0;
      mov.u32 %r0, 0; mov.u32 %r1, 0; mov.u32 %r2, 0; mov.u32 %r10, 0; @%p13 bra PRODUCE;
      C: shl.b32 %r3, %r1, 3; add.u32 %r3, %bar, %r3; shl.b32 %r4, %r1, 9; add.u32 %r4, %s, %r4;
      CW: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r3], %r2; @!%p1 bra CW;
      sub.u32 %r5, %t, 32; shl.b32 %r5, %r5, 3; add.u32 %r5, %r5, %r4; ld.shared.v2.u32 {{%r6, %r7}}, [%r5]; add.u32 %r10, %r10, %r6; add.u32 %r10, %r10, %r7;
      {1} mbarrier.arrive.shared::cta.b64 _, [%r3+24];
      add.u32 %r1, %r1, 1; setp.eq.u32 %p2, %r1, 3; @%p2 xor.b32 %r2, %r2, 1; @%p2 mov.u32 %r1, 0;
      add.u32 %r0, %r0, 1; setp.lt.u32 %p0, %r0, 8; @%p0 bra C; st.global.u32 [%dst], %r10; bra OUT;
      PRODUCE: @!%p15 bra OUT;
      P: shl.b32 %r3, %r1, 3; add.u32 %r3, %bar, %r3; shl.b32 %r4, %r1, 9; add.u32 %r4, %s, %r4; xor.b32 %r8, %r2, 1;
      {0}
      mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], {3}; mul.wide.u32 %d0, %r0, 512; add.s64 %d0, %in, %d0;
      cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r4], [%d0], 512, [%r3];
      add.u32 %r1, %r1, 1; setp.eq.u32 %p2, %r1, 3; @%p2 xor.b32 %r2, %r2, 1; @%p2 mov.u32 %r1, 0;
      add.u32 %r0, %r0, 1; setp.lt.u32 %p0, %r0, 8; @%p0 bra P;
      OUT:)",
                       empty_wait, fence, empty_count, tx);
  };
  const std::string wait = "PW: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r3+24], %r8; @!%p1 bra PW;";
  clean(ring(wait, kFence, 64, 512), 96, [](const Outcome &r) {
    for (uint32_t t = 32; t < 96; t++) CHECK(r.out[4 * t] == 8 * (4 * (t - 32) + 1) + 2 * 128 * 28);
  });
  // Without waiting for the readers the slots are overwritten while they are filled or read.
  broken_somehow(ring("", kFence, 64, 512), 96,
                 {ErrorKind::InFlight, ErrorKind::SharedRace, ErrorKind::MbarrierMisuse});
  broken_somehow(ring(wait, "", 64, 512), 96, {ErrorKind::ProxyFence});
  // Too few readers expected: the slot is free too early, or more arrive than the phase expects.
  broken_somehow(ring(wait, kFence, 32, 512), 96, {ErrorKind::SharedRace, ErrorKind::MbarrierMisuse});
  broken_somehow(ring(wait, kFence, 65, 512), 96, {ErrorKind::Deadlock});
  broken_somehow(ring(wait, kFence, 64, 496), 96, {ErrorKind::Deadlock, ErrorKind::MbarrierMisuse});
  broken_somehow(ring(wait, kFence, 64, 528), 96, {ErrorKind::Deadlock, ErrorKind::MbarrierMisuse});
}
