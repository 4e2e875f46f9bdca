// What a report says of a fault: every class names the PTX line, the source line, the thread and, for memory, the
// address; a near twin of the kernel is clean.
#include "async_kit.h"

using namespace emu_test;

namespace {
struct Fault {
  std::string name;
  ErrorKind kind;
  std::string before;         // same in both
  std::string faulty, proper; // the line that is at fault, and what it should have been
  std::string after;
  bool has_address = true;
  int64_t threads = 64;
};
const std::string kWait = "W: mbarrier.try_wait.parity.shared::cta.b64 %p12, [bar], 0; @!%p12 bra W;";
const std::string kFill = "@%p15 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 1024; @%p15 "
                          "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [s], [%in], 1024, [bar];";
const std::string kOne =
    "@%p15 mbarrier.init.shared::cta.b64 [bar], 1; fence.mbarrier_init.release.cluster; bar.sync 0;";
const std::string kLoad = "ld.shared.u32 %r0, [%own];", kStore = "st.shared.u32 [%own], %t;";
const std::string kBulk = "@%p15 cp.async.bulk.global.shared::cta.bulk_group [%out], [s], 1024;";
const std::string kDrain = "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;";

// The line at fault is where the report must point. Lines that only add synchronisation stand in `before` of the twin.
const std::vector<Fault> kFaults = {
    {"read of bytes in flight", ErrorKind::InFlight, kOne + kFill + "bar.sync 0;", kLoad,
     "W: mbarrier.try_wait.parity.shared::cta.b64 %p12, [bar], 0; @!%p12 bra W; " + kLoad,
     "X: mbarrier.try_wait.parity.shared::cta.b64 %p12, [bar], 0; @!%p12 bra X;"},
    {"write of bytes in flight", ErrorKind::InFlight, kOne + kFill + "bar.sync 0;", kStore, kWait + kStore,
     "X: mbarrier.try_wait.parity.shared::cta.b64 %p12, [bar], 0; @!%p12 bra X;"},
    {"generic write, then asynchronous read, no proxy fence", ErrorKind::ProxyFence,
     kStore + "st.shared.v2.u32 [%own+8], {%t, %t}; st.shared.u32 [%own+4], 0; bar.sync 0;", kBulk,
     "fence.proxy.async.shared::cta; bar.sync 0;" + kBulk, kDrain},
    {"generic read, then asynchronous overwrite, no proxy fence", ErrorKind::ProxyFence,
     kOne + kFill + kWait + kLoad + "bar.sync 0;", kFill, "fence.proxy.async; bar.sync 0;" + kFill,
     "V: mbarrier.try_wait.parity.shared::cta.b64 %p12, [bar], 1; @!%p12 bra V;"},
    {"race between warps", ErrorKind::SharedRace, "", "@%p14 st.shared.u32 [s], 5;", "@%p15 st.shared.u32 [s], 5;", ""},
    {"race between lanes of a warp", ErrorKind::SharedRace, kStore, "ld.shared.u32 %r0, [%next];",
     "bar.warp.sync -1; ld.shared.u32 %r0, [%next];", "", true, 32},
    {"race of single bytes", ErrorKind::SharedRace,
     "mov.u64 %d0, s; @!%p13 add.s64 %d0, %d0, -1; st.shared.u64 [%own], 0; bar.sync 0;",
     "@%p14 st.shared.u8 [s+7], 1;", "@%p14 st.shared.u8 [%d0+7], 1;", ""},
    {"uninitialised shared memory", ErrorKind::UninitialisedShared, "st.shared.u32 [%own], 1;",
     "ld.shared.u32 %r0, [%own+4];", kLoad, ""},
    {"shared memory out of bounds", ErrorKind::OutOfBounds, "", "@%p15 st.shared.u32 [s+8192], 1;",
     "@%p15 st.shared.u32 [s+8188], 1;", ""},
    {"global memory out of bounds", ErrorKind::OutOfBounds, "", "ld.global.u8 %r0, [%in+8192];",
     "ld.global.u8 %r0, [%in+8191];", ""},
    {"global memory partly out of bounds", ErrorKind::OutOfBounds, "", "ld.global.v2.u32 {%r0, %r1}, [%in+8192];",
     "ld.global.v2.u32 {%r0, %r1}, [%in+8184];", ""},
    {"misaligned shared access", ErrorKind::Misaligned, "", "st.shared.v2.u32 [%own+4], {%t, %t};",
     "st.shared.v2.u32 [%own+8], {%t, %t};", ""},
    {"misaligned global access", ErrorKind::Misaligned, "", "ld.global.u64 %d0, [%in+4];",
     "ld.global.u64 %d0, [%in+8];", ""},
    {"phase overrun", ErrorKind::MbarrierMisuse, kOne + "@%p15 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 16;",
     "@%p15 mbarrier.arrive.shared::cta.b64 _, [bar];",
     "@%p15 mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [bar], 16;",
     "@%p15 mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [bar], 16; @%p15 "
     "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [bar], 16;"},
    {"transaction overflow", ErrorKind::MbarrierMisuse,
     kOne + "@%p15 mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [bar], 1048575;",
     "@%p15 mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [bar], 1;",
     "@%p15 mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [bar], 1048575;", ""},
    {"transaction underflow", ErrorKind::MbarrierMisuse,
     kOne + "@%p15 mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [bar], 1048575;",
     "@%p15 mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [bar], 1;",
     "@%p15 mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [bar], 1048575;", ""},
    {"barrier reused without inval", ErrorKind::MbarrierMisuse, kOne, "@%p15 mbarrier.init.shared::cta.b64 [bar], 2;",
     "@%p15 mbarrier.inval.shared::cta.b64 [bar]; @%p15 mbarrier.init.shared::cta.b64 [bar], 2;", ""},
    {"mbarrier's bytes used as data", ErrorKind::MbarrierMisuse, kOne, "@%p15 st.shared.u64 [bar], 0;",
     "@%p15 mbarrier.inval.shared::cta.b64 [bar]; @%p15 st.shared.u64 [bar], 0;", ""},
    {"mbarrier seen before its initialisation is", ErrorKind::SharedRace,
     "@%p15 mbarrier.init.shared::cta.b64 [bar], 32;", "mbarrier.arrive.shared::cta.b64 _, [bar];",
     "bar.sync 0; mbarrier.arrive.shared::cta.b64 _, [bar];", "", true, 32},
    {"wait two phases behind", ErrorKind::MbarrierMisuse,
     kOne + "@!%p15 bra OUT; mbarrier.arrive.shared::cta.b64 %d0, [bar]; mbarrier.arrive.shared::cta.b64 %d1, [bar];",
     "mbarrier.test_wait.shared::cta.b64 %p0, [bar], %d0;", "mbarrier.test_wait.shared::cta.b64 %p0, [bar], %d1;",
     "OUT:"},
    {".aligned under divergence", ErrorKind::Divergence, "setp.lt.u32 %p0, %lane, 7; @%p0 bra SKIP;",
     "barrier.sync.aligned 0;", "barrier.sync 0, 64;", "bra OUT; SKIP: barrier.sync 0, 64; OUT: mov.u32 %r0, 0;",
     false},
    {"barrier without all its warps", ErrorKind::Deadlock, "@%p13 bra SKIP;", "bar.sync 1, 64;", "bar.sync 1, 32;",
     "SKIP:", false},
    {"different barriers", ErrorKind::Deadlock, "@!%p13 bra ELSE;", "bar.sync 1, 64;", "bar.sync 2, 64;",
     "bra OUT; ELSE: bar.sync 2, 64; OUT:", false},
    {"a barrier id that does not exist", ErrorKind::BarrierMisuse, "", "bar.sync 16;", "bar.sync 15;", "", false},
    {"a count that is no multiple of the warp size", ErrorKind::BarrierMisuse, "", "bar.sync 0, 33;", "bar.sync 0, 64;",
     "", false},
    {"trap", ErrorKind::Trap, "", "trap;", "mov.u32 %r0, 0;", "", false},
};
} // namespace

TEST_CASE("each class of fault is reported with its lines, thread and address; the near twin is clean") {
  for (const Fault &f : kFaults) {
    CAPTURE(f.name);
    auto text = [&](const std::string &line) {
      return ".file 1 \"kernel.tk\"\n.version 8.7\n.target sm_120a\n.address_size 64\n" +
             async_kernel("\n.loc 1 10 3\n" + f.before + "\n.loc 1 11 5\n" + line + "\n.loc 1 12 1\n" + f.after + "\n");
    };
    auto order = [](std::string s) { // .version must come first
      std::string file = s.substr(0, s.find('\n') + 1);
      s.erase(0, file.size());
      size_t at = s.find(".address_size 64\n") + 17;
      return s.insert(at, file);
    };
    std::string bad = order(text(f.faulty)), good = order(text(f.proper));
    int line = 1;
    for (size_t k = 0, at = bad.find("\n.loc 1 11 5\n") + 13; k < at; k++) line += bad[k] == '\n';
    auto broken = parse(bad), proper = parse(good);
    each_schedule([&](Run how) {
      CAPTURE(int(how.policy));
      Report r = run_async(*broken, f.threads, how).report;
      INFO(all_errors(r));
      REQUIRE_FALSE(r.ok());
      const Error &e = r.errors[0];
      CHECK(error_name(e.kind) == error_name(f.kind));
      CHECK(e.ptx_line == line);
      CHECK(e.source_file == "kernel.tk");
      CHECK(e.source_line == 11);
      CHECK((e.address != 0) == f.has_address);
      CHECK(e.thread[0] < f.threads);
      CHECK(to_string(e).find(fmt::format("PTX line {}, kernel.tk:11, block (0,0,0), thread (", line)) !=
            std::string::npos);
      check_clean(run_async(*proper, f.threads, how).report);
    });
  }
}

TEST_CASE("copies in flight at exit and the instruction budget are faults of the kernel as a whole") {
  broken(kOne + kFill, 64, ErrorKind::InFlightAtExit, "no thread waits for them");
  clean(kOne + kFill + kWait, 64);
  broken("cp.async.ca.shared.global [%own], [%src], 4;", 64, ErrorKind::InFlightAtExit, "cp.async");
  clean("cp.async.ca.shared.global [%own], [%src], 4; cp.async.wait_all;", 64);
  // A loop that changes something all the time, so that it is no deadlock.
  auto spin = parse(async_kernel("@%p15 st.shared.u32 [s], 0; bar.sync 0; L: atom.shared.add.u32 %r0, [s], 1; "
                                 "setp.ne.u32 %p0, %r0, -1; @%p0 bra L;"));
  for (Policy p : kPolicies) {
    Memory memory;
    Options o;
    o.policy = p, o.instruction_budget = 20000;
    uint64_t out = memory.allocate(16, "out");
    check_error(launch(*spin, memory, {1, 64}, o, out, out), ErrorKind::Budget, "20000 warp instructions");
  }
}

TEST_CASE("the thread and the address are those at fault") {
  // Thread 37 reads 4 bytes past the end.
  Report r = run_async("setp.eq.u32 %p0, %t, 37; @%p0 ld.global.u32 %r0, [%in+8192];", 64).report;
  REQUIRE(r.errors.size() == 1);
  CHECK(r.errors[0].thread[0] == 37);
  // The shared address of a race is that of the first byte in conflict.
  r = run_async(
          "@%p15 st.shared.u16 [s+102], 1; bar.warp.sync -1; setp.eq.u32 %p0, %t, 40; @%p0 st.shared.u64 [s+96], 1;",
          64)
          .report;
  REQUIRE_FALSE(r.ok());
  CHECK(r.errors[0].thread[0] == 40);
  CHECK(r.errors[0].message.find("s + 102") != std::string::npos);
  CHECK(r.errors[0].message.find("warp 0 lane 0 at PTX line") != std::string::npos);
}

TEST_CASE("elect.sync, griddepcontrol, nanosleep and fences in a producer's prologue") {
  clean(
      "griddepcontrol.wait; nanosleep.u32 100; fence.acq_rel.gpu; fence.sc.cta; membar.gl; fence.proxy.async; "
      "fence.proxy.async.global; fence.proxy.async.shared::cta; fence.proxy.alias; "
      "fence.mbarrier_init.release.cluster; " +
          kOne +
          "@!%p13 bra J; elect.sync _|%p0, -1; @!%p0 bra J; mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 1024; "
          "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [s], [%in], 1024, [bar]; J: " +
          kWait + kLoad + "st.global.u32 [%dst], %r0; griddepcontrol.launch_dependents;",
      64, [](const Outcome &r) {
        for (uint32_t t = 0; t < 64; t++) CHECK(r.out[4 * t] == 4 * t);
      });
  // elect.sync in every warp: two copies where one was meant.
  broken_somehow(kOne +
                     "elect.sync _|%p0, -1; @!%p0 bra J; mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 1024; "
                     "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [s], [%in], 1024, [bar]; J: " +
                     kWait,
                 64, {ErrorKind::MbarrierMisuse, ErrorKind::InFlight});
}

TEST_CASE("what may not come before griddepcontrol.wait in a launch that overlaps the one before") {
  struct Row {
    const char *body;
    const char *fault; // "": none
  };
  const Row rows[] = {
      {"ld.global.u32 %r0, [%in]; griddepcontrol.wait; st.global.u32 [%out], %r0;", ""}, // read-only: nobody writes it
      {"griddepcontrol.wait; ld.global.u32 %r0, [%out]; st.global.u32 [%out], %r0;", ""},
      {"ld.global.u32 %r0, [%out]; griddepcontrol.wait; st.global.u32 [%out], %r0;", "may still write it"},
      {"st.global.u32 [%out], 1; griddepcontrol.wait;", "may still use it"},
      {"@%p15 bra J; griddepcontrol.wait; J: st.global.u32 [%out+4], 1;", "may still use it"}, // a lane without a wait
      {"red.global.add.u32 [%out], 1;", "may still use it"},
  };
  for (const Row &row : rows) {
    CAPTURE(row.body);
    auto m = parse(
        kernel(std::string("setp.ne.u32 %p15, %t, 0; @%p15 bra END; setp.eq.u32 %p15, %t, 0;") + row.body + "END:"));
    for (bool overlaps : {false, true}) {
      Memory memory;
      Memory::Attributes in;
      in.readonly = true;
      const KernelInfo *k = kernels(*m).front();
      ParamWriter w(*k);
      w.set(0, upload(memory, std::vector<uint32_t>(8), "out"));
      w.set(1, upload(memory, std::vector<uint32_t>(8), "in", in));
      Launch l;
      l.block[0] = 32;
      l.overlaps = overlaps;
      l.params = w.bytes();
      Report r = run(*m, k->name, memory, l, {});
      if (overlaps && *row.fault)
        check_error(r, ErrorKind::Dependency, row.fault);
      else
        check_clean(r);
    }
  }
}
