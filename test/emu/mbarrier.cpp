// The mbarrier state machine: expected, pending and transaction counts, phases, what waits mean and order, misuse.
#include "async_kit.h"

using namespace emu_test;

namespace {
const std::string kArrive = "mbarrier.arrive.shared::cta.b64 _, [bar]; ";
// Stores 1 or 0 as word `k` of out: has the phase of that parity completed? Asked by thread 0.
std::string asks(int parity, int k) {
  return fmt::format("@%p15 mbarrier.test_wait.parity.shared::cta.b64 %p0, [bar], {}; selp.u32 %r0, 1, 0, %p0; @%p15 "
                     "st.global.u32 [%out+{}], %r0;\n",
                     parity, 4 * k);
}
} // namespace

TEST_CASE("mbarrier.init: the count is 1 to 2^20 - 1, the address a multiple of 8") {
  broken("@%p15 mbarrier.init.shared.b64 [bar], 0;", 32, ErrorKind::MbarrierMisuse, "a count of 0");
  broken("@%p15 mbarrier.init.shared.b64 [bar], 1048576;", 32, ErrorKind::MbarrierMisuse, "1048576");
  clean("@%p15 mbarrier.init.shared.b64 [bar], 1; @%p15 mbarrier.init.shared.b64 [bar+8], 1048575;", 32);
  broken("@%p15 mbarrier.init.shared.b64 [bar+4], 1;", 32, ErrorKind::Misaligned);
  broken("@%p15 mbarrier.init.shared.b64 [bar+64], 1;", 32, ErrorKind::OutOfBounds, "past the end of bar");
  broken("@%p15 mbarrier.init.b64 [%out], 1;", 32, ErrorKind::OutOfBounds, "does not lie in shared memory");
  clean("{ .reg .b64 %g; mov.u64 %g, bar; cvta.shared.u64 %g, %g; @%p15 mbarrier.init.b64 [%g], 1; }", 32);
}

TEST_CASE("an mbarrier must have been initialised, and not twice without inval") {
  broken(kArrive, 32, ErrorKind::MbarrierMisuse, "is no initialised mbarrier");
  broken("@%p15 mbarrier.init.shared.b64 [bar], 1; @%p15 mbarrier.init.shared.b64 [bar], 1;", 32,
         ErrorKind::MbarrierMisuse, "mbarrier.inval is missing");
  clean("@%p15 mbarrier.init.shared.b64 [bar], 1; @%p15 mbarrier.inval.shared.b64 [bar]; @%p15 "
        "mbarrier.init.shared.b64 [bar], 1;",
        32);
  broken("@%p15 mbarrier.init.shared.b64 [bar], 1; @%p15 mbarrier.inval.shared.b64 [bar]; @%p15 "
         "mbarrier.arrive.shared.b64 %d0, [bar];",
         32, ErrorKind::MbarrierMisuse, "is no initialised mbarrier");
  // Ordinary accesses to a living mbarrier; after inval the bytes are plain memory again, without a value.
  broken("@%p15 mbarrier.init.shared.b64 [bar], 1; @%p15 st.shared.u32 [bar+4], 0;", 32, ErrorKind::MbarrierMisuse,
         "ordinary write");
  broken("@%p15 mbarrier.init.shared.b64 [bar], 1; @%p15 ld.shared.u32 %r0, [bar];", 32, ErrorKind::MbarrierMisuse,
         "ordinary read");
  clean("@%p15 mbarrier.init.shared.b64 [bar], 1; @%p15 mbarrier.inval.shared.b64 [bar]; @%p15 st.shared.u32 [bar], 0; "
        "@%p15 ld.shared.u32 %r0, [bar];",
        32);
  broken("@%p15 mbarrier.init.shared.b64 [bar], 1; @%p15 mbarrier.inval.shared.b64 [bar]; @%p15 ld.shared.u32 %r0, "
         "[bar];",
         32, ErrorKind::UninitialisedShared);
  broken("@%p15 mbarrier.inval.shared.b64 [bar];", 32, ErrorKind::MbarrierMisuse, "is no initialised mbarrier");
}

TEST_CASE("the initialisation must be visible to the other threads") {
  const std::string init = "@%p15 mbarrier.init.shared.b64 [bar], 64; ";
  check_error(run_async(init + kArrive, 64).report, ErrorKind::SharedRace, "mbarrier.init");
  clean(init + "bar.sync 0; " + kArrive, 64);
  clean(init + "fence.mbarrier_init.release.cluster; bar.sync 0; " + kArrive, 64);
  clean("@%p15 mbarrier.init.shared.b64 [bar], 32; bar.warp.sync -1; " + kArrive, 32);
  broken("@%p15 mbarrier.init.shared.b64 [bar], 32; " + kArrive, 32, ErrorKind::SharedRace, "no bar.warp.sync");
}

TEST_CASE("parities: phase 0 has parity 0, a fresh mbarrier has completed the phase before it") {
  clean(with_barrier(1) + asks(0, 0) + asks(1, 1) + "@%p15 " + kArrive + asks(0, 2) + asks(1, 3) + "@%p15 " + kArrive +
            asks(0, 4) + asks(1, 5),
        32, [](const Outcome &r) {
          CHECK(std::vector<uint32_t>(r.out.begin(), r.out.begin() + 6) == std::vector<uint32_t>{0, 1, 1, 0, 0, 1});
        });
  broken(with_barrier(1) + "mbarrier.test_wait.parity.shared::cta.b64 %p0, [bar], 2;", 32, ErrorKind::MbarrierMisuse,
         "a parity of 2");
}

TEST_CASE("a phase completes when all expected arrivals have come; pending starts anew") {
  clean(with_barrier(3) + "@%p15 " + kArrive + "@%p15 " + kArrive + asks(0, 0) + "@%p15 " + kArrive + asks(0, 1) +
            "@%p15 mbarrier.arrive.shared::cta.b64 _, [bar], 3; " + asks(1, 2),
        32, [](const Outcome &r) {
          CHECK(std::vector<uint32_t>(r.out.begin(), r.out.begin() + 3) == std::vector<uint32_t>{0, 1, 1});
        });
}

TEST_CASE("states: an arrive returns one, a wait by state names its phase, pending_count counts") {
  clean(with_barrier(2) + R"(
    @!%p15 bra OUT;
    mbarrier.arrive.shared.b64 %d0, [bar]; mbarrier.pending_count.b64 %r0, %d0; st.global.u32 [%out], %r0;
    mbarrier.test_wait.shared.b64 %p0, [bar], %d0; selp.u32 %r0, 1, 0, %p0; st.global.u32 [%out+4], %r0;
    mbarrier.arrive.shared.b64 %d1, [bar]; mbarrier.pending_count.b64 %r0, %d1; st.global.u32 [%out+8], %r0;
    mbarrier.test_wait.acquire.cta.shared::cta.b64 %p0, [bar], %d0; selp.u32 %r0, 1, 0, %p0; st.global.u32 [%out+12], %r0;
    mbarrier.try_wait.shared.b64 %p0, [bar], %d1, 1000; selp.u32 %r0, 1, 0, %p0; st.global.u32 [%out+16], %r0;
    OUT:)",
        32, [](const Outcome &r) {
          CHECK(std::vector<uint32_t>(r.out.begin(), r.out.begin() + 5) == std::vector<uint32_t>{2, 0, 1, 1, 1});
        });
  // Only the current phase and the one before it may be asked for.
  const std::string two = "@%p15 mbarrier.arrive.shared.b64 %d0, [bar]; @%p15 mbarrier.arrive.shared.b64 %d1, [bar]; ";
  broken(with_barrier(1) + two + "@%p15 mbarrier.test_wait.shared.b64 %p0, [bar], %d0;", 32, ErrorKind::MbarrierMisuse,
         "wait for phase 0 by its state");
  clean(with_barrier(1) + two + "@%p15 mbarrier.test_wait.shared.b64 %p0, [bar], %d1;", 32);
}

TEST_CASE("more arrivals than a phase expects") {
  broken(with_barrier(2) + "@%p15 mbarrier.arrive.shared::cta.b64 _, [bar], 3;", 32, ErrorKind::MbarrierMisuse,
         "only 2 of 2 arrivals are missing");
  clean(with_barrier(2) + "@%p15 mbarrier.arrive.shared::cta.b64 _, [bar], 2;", 32);
  broken(with_barrier(2) + "@%p15 mbarrier.arrive.shared::cta.b64 _, [bar], 0;", 32, ErrorKind::MbarrierMisuse,
         "0 arrivals");
  // All arrivals have come and bytes are missing: one more arrival overruns the phase.
  broken(with_barrier(1) + "@%p15 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 16; @%p15 " + kArrive, 32,
         ErrorKind::MbarrierMisuse, "all 1 arrivals have come and the phase waits for 16 bytes");
  clean(with_barrier(2) + "@%p15 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 16; @%p15 " + kArrive +
            "@%p15 mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [bar], 16;",
        32);
}

TEST_CASE("arrive.noComplete must leave an arrival to come") {
  const std::string lane = "@%p15 mbarrier.arrive.noComplete.shared.b64 %d0, [bar], {}; ";
  clean(with_barrier(4) + fmt::format(fmt::runtime(lane), 3) + asks(0, 0) + "@%p15 " + kArrive + asks(0, 1), 32,
        [](const Outcome &r) { CHECK((r.out[0] == 0 && r.out[1] == 1)); });
  broken(with_barrier(4) + fmt::format(fmt::runtime(lane), 4), 32, ErrorKind::MbarrierMisuse, "noComplete of 4");
}

TEST_CASE("arrive_drop takes the thread out of later phases") {
  clean(with_barrier(2) + "@%p15 mbarrier.arrive_drop.shared.b64 %d0, [bar]; @%p15 " + kArrive + asks(0, 0) + "@%p15 " +
            kArrive + asks(1, 1),
        32, [](const Outcome &r) { CHECK((r.out[0] == 1 && r.out[1] == 1)); });
  broken(with_barrier(2) + "@%p15 mbarrier.arrive_drop.shared.b64 %d0, [bar]; @%p15 " + kArrive +
             "@%p15 mbarrier.arrive.shared::cta.b64 _, [bar], 2;",
         32, ErrorKind::MbarrierMisuse, "only 1 of 1");
}

TEST_CASE("the transaction count is signed, holds the phase open, and is bounded") {
  const std::string expect = "@%p15 mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [bar], {}; ";
  const std::string complete = "@%p15 mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [bar], {}; ";
  auto e = [&](int64_t n) { return fmt::format(fmt::runtime(expect), n); };
  auto c = [&](int64_t n) { return fmt::format(fmt::runtime(complete), n); };
  // Completion may come before the expectation while an arrival is missing.
  clean(with_barrier(1) + c(48) + e(32) + asks(0, 0) + e(16) + "@%p15 " + kArrive + asks(0, 1), 32,
        [](const Outcome &r) { CHECK((r.out[0] == 0 && r.out[1] == 1)); });
  clean(with_barrier(1) + "@%p15 mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [bar], 48; " + c(32) +
            asks(0, 0) + c(16) + asks(0, 1),
        32, [](const Outcome &r) { CHECK((r.out[0] == 0 && r.out[1] == 1)); });
  clean(with_barrier(1) + e(1048575) + c(1048575), 32);
  broken(with_barrier(1) + e(1048575) + e(1), 32, ErrorKind::MbarrierMisuse, "becomes 1048576");
  broken(with_barrier(1) + c(1048575) + c(1), 32, ErrorKind::MbarrierMisuse, "becomes -1048576");
  // Arriving first and expecting afterwards: the phase is over before the bytes count.
  broken(with_barrier(1) + "@%p15 " + kArrive + e(16) + wait_parity("0", "W"), 32, ErrorKind::InFlightAtExit,
         "expects 16 more bytes");
  broken(with_barrier(1) + "@%p15 " + kArrive + c(16), 32, ErrorKind::InFlightAtExit, "16 bytes more than");
}

TEST_CASE("waits acquire what was released by arrivals before") {
  const std::string store = "st.shared.u32 [%own], %t; ";
  const std::string read = "ld.shared.u32 %r0, [%next]; st.global.u32 [%dst], %r0;";
  clean(with_barrier(64) + store + kArrive + wait_parity("0", "W") + read, 64, [](const Outcome &r) {
    for (uint32_t t = 0; t < 64; t++) CHECK(r.out[4 * t] == (t + 1) % 64);
  });
  // Between the own arrive and the wait nothing is guaranteed.
  broken(with_barrier(64) + store + kArrive + read + wait_parity("0", "W"), 64, ErrorKind::SharedRace);
  broken(with_barrier(64) + kArrive + store + wait_parity("0", "W") + read, 64, ErrorKind::SharedRace);
  // Relaxed arrivals and waits order nothing without a fence.
  broken(with_barrier(64) + store + "mbarrier.arrive.relaxed.cta.shared::cta.b64 _, [bar]; " + wait_parity("0", "W") +
             read,
         64, ErrorKind::SharedRace);
  clean(with_barrier(64) + store + "fence.acq_rel.cta; mbarrier.arrive.relaxed.cta.shared::cta.b64 _, [bar]; " +
            wait_parity("0", "W") + read,
        64);
  const std::string relaxed_wait =
      "W: mbarrier.try_wait.parity.relaxed.cta.shared::cta.b64 %p12, [bar], 0; @!%p12 bra W; ";
  broken(with_barrier(64) + store + kArrive + relaxed_wait + read, 64, ErrorKind::SharedRace);
  clean(with_barrier(64) + store + kArrive + relaxed_wait + "fence.acq_rel.cta; " + read, 64);
  // The waits of one lane and a warp barrier serve the whole warp.
  clean(with_barrier(64) + store + kArrive +
            "@!%p14 bra J; W: mbarrier.try_wait.parity.shared::cta.b64 %p12, [bar], 0; @!%p12 bra W; J: bar.warp.sync "
            "-1; " +
            read,
        64);
  broken(with_barrier(64) + store + kArrive +
             "@!%p14 bra J; W: mbarrier.try_wait.parity.shared::cta.b64 %p12, [bar], 0; @!%p12 bra W; J: " + read,
         64, ErrorKind::SharedRace);
}

TEST_CASE("what a phase released stays known when later phases complete without its arrivers") {
  // Warp 1 arrives in phase 0 only, thread 0 alone in phase 1; the late reader of both sees phase 1 complete.
  clean("@%p15 mbarrier.init.shared.b64 [bar], 33; @%p15 mbarrier.init.shared.b64 [bar+8], 1; bar.sync 0;\n"
        "setp.ge.u32 %p0, %t, 64; @%p0 bra LATE; @%p13 bra ZERO;\n"
        "st.shared.u32 [%own], %t; mbarrier.arrive_drop.shared.b64 %d0, [bar]; bra OUT;\n"
        "ZERO: @!%p15 bra OUT; mbarrier.arrive.shared::cta.b64 _, [bar];\n" +
            wait_parity("0", "W") +
            "mbarrier.arrive.shared::cta.b64 _, [bar]; mbarrier.arrive.shared::cta.b64 _, [bar+8]; bra OUT;\n"
            "LATE: " +
            "X: mbarrier.try_wait.parity.relaxed.cta.shared::cta.b64 %p12, [bar+8], 0; @!%p12 bra X;\n" +
            wait_parity("1", "Y") + "ld.shared.u32 %r0, [s+512]; OUT:",
        96);
}

TEST_CASE("a thread that falls two phases behind is told so") {
  // Thread 0 sees phase 0 complete; then warp 1 completes some more; then thread 0 waits for phase 1.
  auto behind = [](int more) {
    std::string fast;
    for (int k = 0; k < more; k++) fast += kArrive;
    return with_barrier(32) + "@!%p13 bra FAST;\n" + wait_parity("0", "W") + "bar.sync 1, 64; bar.sync 2, 64;\n" +
           wait_parity("1", "V") + "bra OUT;\nFAST: " + kArrive + "bar.sync 1, 64; " + fast + "bar.sync 2, 64; OUT:";
  };
  clean(behind(1), 64);
  broken(behind(2), 64, ErrorKind::MbarrierMisuse, "waits for phase 1");
  broken(behind(3), 64, ErrorKind::MbarrierMisuse, "waits for phase 1");
  // Who has learnt from another thread that phases have passed may leave them out: here 1 and 2.
  clean(with_barrier(32) + "@!%p13 bra FAST;\n" + wait_parity("0", "W") + "bar.sync 1, 64; bar.sync 2, 64;\n" +
            wait_parity("1", "V") + "bra OUT;\nFAST: " + kArrive + wait_parity("0", "A") + "bar.sync 1, 64; " +
            kArrive + wait_parity("1", "B") + kArrive + wait_parity("0", "C") + kArrive + wait_parity("1", "D") +
            "bar.sync 2, 64; OUT:",
        64);
}

TEST_CASE("deadlocks at mbarriers name the phase and what is missing") {
  broken(with_barrier(65) + kArrive + wait_parity("0", "W"), 64, ErrorKind::Deadlock,
         "for phase 0 of the mbarrier at 0x");
  broken(with_barrier(65) + kArrive + wait_parity("0", "W"), 64, ErrorKind::Deadlock, "1 of 65 arrivals");
  broken(with_barrier(1) + "@%p15 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 64; " + wait_parity("0", "W"), 64,
         ErrorKind::Deadlock, "64 bytes are missing");
  // Two warps wait for each other's mbarrier.
  broken("@%p15 mbarrier.init.shared.b64 [bar], 32; @%p15 mbarrier.init.shared.b64 [bar+8], 32; bar.sync 0; @%p13 bra "
         "A;\n" +
             wait_parity("0", "X", 8) + kArrive + "bra B;\nA: " + wait_parity("0", "Y") +
             "mbarrier.arrive.shared::cta.b64 _, [bar+8]; B:",
         64, ErrorKind::Deadlock, "; warp 1 waits");
}

TEST_CASE("a poll that is answered with no may do something else") {
  // Thread 32 polls with test_wait and counts; thread 0 arrives only after it has seen three answers of no.
  clean("@%p15 st.shared.u32 [s], 0; " + with_barrier(1) + R"(
    setp.eq.u32 %p0, %t, 32; @%p0 bra POLL; @!%p15 bra OUT;
    X: ld.relaxed.cta.shared.u32 %r1, [s]; setp.lt.u32 %p1, %r1, 3; @%p1 bra X; mbarrier.arrive.shared::cta.b64 _, [bar]; bra OUT;
    POLL: mov.u32 %r0, 0;
    L: mbarrier.test_wait.parity.shared::cta.b64 %p2, [bar], 0; @%p2 bra DONE; add.u32 %r0, %r0, 1; st.relaxed.cta.shared.u32 [s], %r0; nanosleep.u32 20; bra L;
    DONE: st.global.u32 [%out], %r0; OUT:)",
        64, [](const Outcome &r) { CHECK(r.out[0] >= 3); });
}

TEST_CASE("mbarrier instructions: forms that do not exist") {
  CHECK_FALSE(rejection("mbarrier.arrive.shared::cluster.b64 %d0, [bar];").empty());
  CHECK_FALSE(rejection("mbarrier.init.shared.b64 [bar];").empty());
  CHECK_FALSE(rejection("mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar];").empty());
  CHECK_FALSE(rejection("mbarrier.test_wait.shared.b64 %p0, [bar], 0, 0, 0;").empty());
  CHECK_FALSE(rejection("mbarrier.arrive.shared.b32 _, [bar];").empty());
  CHECK_FALSE(rejection("mbarrier.frobnicate.shared.b64 [bar];").empty());
}
