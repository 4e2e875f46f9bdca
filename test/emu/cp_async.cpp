// cp.async: groups, zero fill, mbarrier arrivals, and what must be reported.
#include "async_kit.h"
#include <algorithm>

using namespace emu_test;

namespace {
const std::string kCopy = "cp.async.cg.shared.global [%own], [%src], 16; ";
const std::string kGive =
    "ld.shared.v4.u32 {%r0, %r1, %r2, %r3}, [%own]; st.global.v4.u32 [%dst], {%r0, %r1, %r2, %r3}; ";
const std::string kGiveNext =
    "ld.shared.v4.u32 {%r0, %r1, %r2, %r3}, [%next]; st.global.v4.u32 [%dst], {%r0, %r1, %r2, %r3}; ";
} // namespace

TEST_CASE("cp.async: a thread reads its own bytes after wait_all, others after a barrier too") {
  clean(kCopy + "cp.async.wait_all; " + kGive, 64, [](const Outcome &r) {
    for (uint32_t i = 0; i < 256; i++) CHECK(r.out[i] == i);
  });
  clean(kCopy + "cp.async.wait_all; bar.sync 0; " + kGiveNext, 64, [](const Outcome &r) {
    for (uint32_t i = 0; i < 256; i++) CHECK(r.out[i] == (i + 4) % 256);
  });
  // In a warp, bar.warp.sync is enough.
  clean(kCopy + "cp.async.wait_all; bar.warp.sync -1; " + kGiveNext, 32);
  // Every width, both cache operators, hints.
  clean(R"(
    cp.async.ca.shared::cta.global [%own], [%src], 4; cp.async.ca.shared.global.L2::128B [%own+8], [%src+8], 8;
    st.shared.u32 [%own+4], 77;
    cp.async.cg.shared.global.L2::256B [%own+4096], [%src+1024], 16;
    cp.async.wait_all; ld.shared.u32 %r0, [%own+4108]; st.global.u32 [%dst+2048], %r0; )" +
            kGive,
        64, [](const Outcome &r) {
          for (uint32_t i = 0; i < 256; i++) CHECK(r.out[i] == (i % 4 == 1 ? 77 : i));
        });
}

TEST_CASE("cp.async: bytes in flight may be neither read nor written") {
  broken(kCopy + kGive, 64, ErrorKind::InFlight, "the copy issued by warp");
  broken(kCopy + "st.shared.u32 [%own], 1;", 64, ErrorKind::InFlight, "write of s");
  broken(kCopy + kCopy + "cp.async.wait_all;", 64, ErrorKind::InFlight);
  clean(kCopy + "cp.async.wait_all; " + kCopy + "cp.async.wait_all;", 64);
  // The bytes beside them may.
  clean("cp.async.ca.shared.global [%own], [%src], 8; st.shared.u32 [%own+8], 1; cp.async.wait_all;", 64);
  broken("cp.async.ca.shared.global [%own], [%src], 8; st.shared.u32 [%own+4], 1; cp.async.wait_all;", 64,
         ErrorKind::InFlight);
}

TEST_CASE("cp.async: waiting is an affair of the issuing thread") {
  // All wait, but there is no barrier between the wait and the neighbour's read.
  broken(kCopy + "cp.async.wait_all; " + kGiveNext, 64, ErrorKind::InFlight);
  // The barrier comes before the wait.
  broken(kCopy + "bar.sync 0; cp.async.wait_all; " + kGiveNext, 64, ErrorKind::InFlight);
  // Only warp 0 waits.
  broken(kCopy + "@%p13 cp.async.wait_all; bar.sync 0; " + kGiveNext, 64, ErrorKind::InFlight);
}

TEST_CASE("cp.async: groups complete in order, wait_group N leaves the last N pending") {
  const std::string three = R"(
    cp.async.cg.shared.global [%own], [%src], 16; cp.async.commit_group;
    cp.async.cg.shared.global [%own+2048], [%src+2048], 16; cp.async.commit_group;
    cp.async.cg.shared.global [%own+4096], [%src+4096], 16; cp.async.commit_group; )";
  auto read = [](int slot) {
    return fmt::format("ld.shared.u32 %r0, [%own+{}]; st.global.u32 [%dst+{}], %r0; ", 2048 * slot, 4 * slot);
  };
  clean(three + "cp.async.wait_group 2; " + read(0) + "cp.async.wait_group 1; " + read(1) + "cp.async.wait_group 0; " +
            read(2),
        64, [](const Outcome &r) {
          for (uint32_t t = 0; t < 64; t++)
            for (uint32_t k = 0; k < 3; k++) CHECK(r.out[4 * t + k] == 4 * t + 512 * k);
        });
  broken(three + "cp.async.wait_group 2; " + read(1), 64, ErrorKind::InFlight);
  broken(three + "cp.async.wait_group 1; " + read(2), 64, ErrorKind::InFlight);
  clean(three + "cp.async.wait_group 0; " + read(2), 64);
  // An empty group counts; copies after the last commit belong to no group yet, except for wait_all.
  clean(kCopy + "cp.async.commit_group; cp.async.commit_group; cp.async.wait_group 1; " + kGive, 64);
  broken("cp.async.commit_group; " + kCopy + "cp.async.wait_group 0; " + kGive, 64, ErrorKind::InFlight);
  clean("cp.async.commit_group; " + kCopy + "cp.async.wait_all; " + kGive, 64);
  // wait_all leaves nothing behind for later counts.
  broken(three +
             "cp.async.wait_all; cp.async.cg.shared.global [%own+6144], [%src], 16; cp.async.commit_group; "
             "cp.async.wait_group 1; " +
             read(3),
         64, ErrorKind::InFlight);
}

TEST_CASE("cp.async: a source size below the copy size fills with zeros, a set ignore-src predicate too") {
  auto sized = [](const std::string &size) {
    return "mov.b32 %r9, -1; st.shared.v4.b32 [%own], {%r9, %r9, %r9, %r9}; cp.async.cg.shared.global [%own], [%src], "
           "16, " +
           size + "; cp.async.wait_all; " + kGive;
  };
  for (uint32_t bytes : {0, 1, 3, 4, 7, 15, 16})
    clean(sized(std::to_string(bytes)), 32, [&](const Outcome &r) {
      for (uint32_t i = 0; i < 128; i++) {
        uint32_t kept = i % 4 * 4 >= bytes ? 0 : std::min<uint32_t>(4, bytes - i % 4 * 4);
        uint32_t mask = kept == 4 ? ~0u : (1u << 8 * kept) - 1;
        CHECK(r.out[i] == (i & mask));
      }
    });
  clean("and.b32 %r8, %t, 15; mov.b32 %r9, -1; st.shared.v4.b32 [%own], {%r9, %r9, %r9, %r9}; "
        "cp.async.cg.shared.global [%own], [%src], 16, %r8; cp.async.wait_all; " +
            kGive,
        32);
  clean("setp.lt.u32 %p0, %t, 5; cp.async.cg.shared.global [%own], [%src], 16, %p0; cp.async.wait_all; " + kGive, 32,
        [](const Outcome &r) {
          for (uint32_t i = 0; i < 128; i++) CHECK(r.out[i] == (i < 20 ? 0 : i));
        });
  broken(sized("17"), 32, ErrorKind::AsyncMisuse, "a source size of 17");
  // What is not read may lie outside; what is read may not.
  clean("cp.async.cg.shared.global [%own], [%in+8192], 16, 0; cp.async.wait_all;", 32);
  broken("cp.async.cg.shared.global [%own], [%in+8192], 16, 4; cp.async.wait_all;", 32, ErrorKind::OutOfBounds,
         "past the end of in");
  broken("cp.async.cg.shared.global [%own], [%in+8], 16; cp.async.wait_all;", 32, ErrorKind::Misaligned);
  clean("cp.async.ca.shared.global [%own], [%in+8184], 8; cp.async.wait_all;", 32);
  broken("cp.async.ca.shared.global [%own], [%in+8184], 16; cp.async.wait_all;", 32, ErrorKind::OutOfBounds);
}

TEST_CASE("cp.async: alignment and bounds of the destination, immediate operands") {
  broken("cp.async.cg.shared.global [%own+8], [%src], 16; cp.async.wait_all;", 32, ErrorKind::Misaligned);
  clean("cp.async.ca.shared.global [%own+8], [%src], 8; cp.async.wait_all;", 32);
  broken("@%p15 cp.async.cg.shared.global [s+8192], [%src], 16; cp.async.wait_all;", 32, ErrorKind::OutOfBounds);
  clean("@%p15 cp.async.cg.shared.global [s+8176], [%src], 16; cp.async.wait_all;", 32);
  CHECK(rejection("cp.async.cg.shared.global [%own], [%src], 8;").find("size") != std::string::npos);
  CHECK(rejection("cp.async.ca.shared.global [%own], [%src], 12;").find("size") != std::string::npos);
  CHECK(rejection("cp.async.wait_group %t;").find("constant") != std::string::npos);
  CHECK_FALSE(rejection("cp.async.ca.shared.global [%own], [%src];").empty());
  CHECK_FALSE(rejection("cp.async.ca.global.shared [%src], [%own], 4;").empty());
}

TEST_CASE("cp.async: the slot must have been read before it is filled again") {
  const std::string round = kCopy + "cp.async.wait_all; bar.sync 0; " + kGiveNext;
  broken(round + kCopy + "cp.async.wait_all;", 64, ErrorKind::SharedRace, "is not ordered after the read");
  clean(round + "bar.sync 0; " + kCopy + "cp.async.wait_all;", 64);
  // cp.async is of the generic proxy: no fence.
  clean("st.shared.u32 [%own], 1; bar.sync 0; " + kCopy + "cp.async.wait_all; " + kGive, 64);
}

TEST_CASE("cp.async: copies in flight when the block ends") {
  broken(kCopy, 64, ErrorKind::InFlightAtExit, "cp.async copies of this thread");
  broken(kCopy + "cp.async.commit_group; cp.async.wait_group 1;", 64, ErrorKind::InFlightAtExit);
  broken("@%p13 exit; " + kCopy, 64, ErrorKind::InFlightAtExit);
  clean(kCopy + "cp.async.commit_group; cp.async.wait_group 0;", 64);
}

TEST_CASE("cp.async.mbarrier.arrive: .noinc counts against the init count, the plain form does not") {
  // With .noinc every thread's arrival is one of the count.
  const std::string copy_noinc = kCopy + "cp.async.mbarrier.arrive.noinc.shared.b64 [bar]; ";
  clean(with_barrier(64) + copy_noinc + wait_parity("0", "W") + kGiveNext, 64, [](const Outcome &r) {
    for (uint32_t i = 0; i < 256; i++) CHECK(r.out[i] == (i + 4) % 256);
  });
  // The plain form adds one to pending and takes it off again: an ordinary arrive has to come as well.
  const std::string copy_plain = kCopy + "cp.async.mbarrier.arrive.shared::cta.b64 [bar]; ";
  clean(with_barrier(64) + copy_plain + "mbarrier.arrive.shared::cta.b64 _, [bar]; " + wait_parity("0", "W") +
            kGiveNext,
        64);
  broken(with_barrier(64) + copy_plain + wait_parity("0", "W"), 64, ErrorKind::Deadlock, "64 of 64 arrivals");
  broken(with_barrier(63) + "@!%p15 bra J; mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [bar], 16; J: bar.sync 0; " +
             copy_noinc,
         64, ErrorKind::MbarrierMisuse, "all 63 arrivals have come and the phase waits for 16 bytes");
  // Without the wait the bytes are in flight.
  broken(with_barrier(64) + copy_noinc + kGiveNext, 64, ErrorKind::InFlight);
  // The ordinary arrive alone does not cover the copies.
  broken(with_barrier(64) + kCopy + "mbarrier.arrive.shared::cta.b64 _, [bar]; " + wait_parity("0", "W") + kGiveNext,
         64, ErrorKind::InFlight);
  // .noinc covers the copies, not the ordinary stores of the thread.
  broken(with_barrier(64) + "st.shared.u32 [%own+4096], %t; " + copy_noinc + wait_parity("0", "W") +
             "ld.shared.u32 %r0, [%next+4096];",
         64, ErrorKind::SharedRace);
  clean(with_barrier(128) + "st.shared.u32 [%own+4096], %t; " + copy_noinc +
            "mbarrier.arrive.shared::cta.b64 _, [bar]; " + wait_parity("0", "W") + "ld.shared.u32 %r0, [%next+4096];",
        64);
  // Copies issued after the arrive are not covered.
  broken(with_barrier(64) + "cp.async.mbarrier.arrive.noinc.shared.b64 [bar]; " + kCopy + wait_parity("0", "W") + kGive,
         64, ErrorKind::InFlight);
}

TEST_CASE("cp.async ring: three stages, each thread waits for its own groups, one barrier a turn") {
  // 16 turns; the slot of turn k is k mod 3; `wait` and the barrier may be left out to break it.
  auto ring = [](const std::string &wait, const std::string &sync) {
    return fmt::format(R"(
      mov.u64 %d10, %src; mov.u32 %r20, 0; mov.u32 %r21, 0; mov.u32 %r22, 0;
      cp.async.cg.shared.global [%own], [%src], 16; cp.async.commit_group;
      cp.async.cg.shared.global [%own+1024], [%src+512], 16; cp.async.commit_group;
      L: {} {}
      add.u32 %r23, %r20, 2; setp.ge.u32 %p0, %r23, 16; @%p0 bra NOFILL;
      rem.u32 %r24, %r23, 3; mul.wide.u32 %d11, %r24, 1024; add.s64 %d11, %own, %d11;
      mul.wide.u32 %d12, %r23, 512; add.s64 %d12, %src, %d12; cp.async.cg.shared.global [%d11], [%d12], 16;
      NOFILL: cp.async.commit_group;
      rem.u32 %r24, %r20, 3; mul.wide.u32 %d11, %r24, 1024; add.s64 %d11, %next, %d11; ld.shared.u32 %r25, [%d11];
      add.u32 %r21, %r21, %r25; add.u32 %r20, %r20, 1; setp.lt.u32 %p1, %r20, 16; @%p1 bra L;
      cp.async.wait_all; st.global.u32 [%dst], %r21;)",
                       wait, sync);
  };
  clean(ring("cp.async.wait_group 1;", "bar.sync 0;"), 32, [](const Outcome &r) {
    for (uint32_t t = 0; t < 32; t++) CHECK(r.out[4 * t] == 16 * ((t + 1) % 32 * 4) + 128 * 120);
  });
  broken(ring("cp.async.wait_group 2;", "bar.sync 0;"), 32, ErrorKind::InFlight);
  broken(ring("cp.async.wait_group 1;", ""), 64, ErrorKind::InFlight);
}
