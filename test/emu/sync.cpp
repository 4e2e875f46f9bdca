// Barriers, races, deadlocks, divergence. Every error has a twin that differs in the missing synchronisation and is
// clean.
#include "helper.h"

using namespace emu_test;

namespace {
const std::string kShared = ".shared .align 16 .b8 s[4096];\n";
// %d0 = s + 4 t, %d1 = s + 4 ((t + 1) mod threads), %d2 = out + 4 t
const std::string kAddresses = R"(
  mov.u64 %d9, s; mov.u32 %r9, %ntid.x; add.u32 %r8, %t, 1; rem.u32 %r8, %r8, %r9;
  mul.wide.u32 %d0, %t, 4; mul.wide.u32 %d1, %r8, 4; add.s64 %d2, %out, %d0; add.s64 %d0, %d9, %d0; add.s64 %d1, %d9, %d1;
)";
Report go(const std::string &body, int64_t threads, Policy policy = Policy::Eager, uint64_t seed = 0,
          std::vector<uint32_t> *result = nullptr) {
  auto m = parse(kernel(kAddresses + body, kShared));
  Memory memory;
  Options o;
  o.policy = policy, o.seed = seed;
  uint64_t out = upload(memory, std::vector<uint32_t>(1024), "out");
  Report r = launch(*m, memory, {1, threads}, o, out, out);
  if (result) *result = download<uint32_t>(memory, out, size_t(threads));
  return r;
}
// Clean under every policy.
void clean(const std::string &body, int64_t threads) {
  for (Policy p : kPolicies)
    for (uint64_t seed = 0; seed < (p == Policy::Random ? 4u : 1u); seed++) check_clean(go(body, threads, p, seed));
}
void broken(const std::string &body, int64_t threads, ErrorKind kind, const std::string &text = "") {
  for (Policy p : kPolicies) check_error(go(body, threads, p, 1), kind, text);
}
} // namespace

TEST_CASE("bar.sync orders warps; without it an exchange through shared memory is a race") {
  std::vector<uint32_t> result;
  check_clean(go("st.shared.u32 [%d0], %t; bar.sync 0; ld.shared.u32 %r0, [%d1]; st.global.u32 [%d2], %r0;", 96,
                 Policy::Random, 5, &result));
  for (uint32_t i = 0; i < 96; i++) CHECK(result[i] == (i + 1) % 96);
  clean("st.shared.u32 [%d0], %t; bar.sync 0; ld.shared.u32 %r0, [%d1];", 64);
  broken("st.shared.u32 [%d0], 0; bar.sync 0; st.shared.u32 [%d0], %t; ld.shared.u32 %r0, [%d1];", 64,
         ErrorKind::SharedRace, "no b");
  // Write after read: the barrier between the read and the next write is missing.
  const std::string loop = "st.shared.u32 [%d0], %t; bar.sync 0; ld.shared.u32 %r0, [%d1]; ";
  broken(loop + "st.shared.u32 [%d0], %r0;", 64, ErrorKind::SharedRace, "write of s + ");
  clean(loop + "bar.sync 0; st.shared.u32 [%d0], %r0;", 64);
  // Two warps write the same byte.
  broken("setp.eq.u32 %p0, %t, 0; setp.eq.u32 %p1, %t, 32; or.pred %p2, %p0, %p1; @%p2 st.shared.u32 [s], 7;", 64,
         ErrorKind::SharedRace, "by warp");
  clean("setp.eq.u32 %p0, %t, 0; setp.eq.u32 %p1, %t, 32; @%p0 st.shared.u32 [s], 7; bar.sync 0; @%p1 st.shared.u32 "
        "[s], 7;",
        64);
}

TEST_CASE("neighbouring bytes of different threads do not conflict, overlapping ones do") {
  clean("add.s64 %d3, %d9, %d3; cvt.u64.u32 %d3, %t; add.s64 %d3, %d9, %d3; st.shared.u8 [%d3], %t; bar.sync 0; "
        "ld.shared.u8 %r0, [%d3];",
        64);
  // 16-bit stores at odd multiples overlap the neighbour's byte.
  broken("mul.wide.u32 %d3, %t, 2; add.s64 %d3, %d9, %d3; st.shared.u16 [%d3], 1; setp.eq.u32 %p0, %t, 33; @%p0 "
         "st.shared.u8 [s+65], 1;",
         64, ErrorKind::SharedRace, "s + 65");
}

TEST_CASE("lanes of a warp exchange through shared memory only across bar.warp.sync") {
  broken("st.shared.u32 [%d0], %t; ld.shared.u32 %r0, [%d1];", 32, ErrorKind::SharedRace,
         "no bar.warp.sync between them");
  clean("st.shared.u32 [%d0], %t; bar.warp.sync -1; ld.shared.u32 %r0, [%d1];", 32);
  clean("st.shared.u32 [%d0], %t; bar.sync 0; ld.shared.u32 %r0, [%d1];", 32);
  // A shuffle moves registers; it orders no memory.
  broken("st.shared.u32 [%d0], %t; shfl.sync.bfly.b32 %r1, %t, 1, 31, -1; ld.shared.u32 %r0, [%d1];", 32,
         ErrorKind::SharedRace);
  // A partial sync covers its members only: 0..15 here, but lane 15 reads what lane 16 wrote.
  broken("st.shared.u32 [%d0], %t; setp.lt.u32 %p0, %t, 16; @%p0 bar.warp.sync 0xffff; @%p0 ld.shared.u32 %r0, [%d1];",
         32, ErrorKind::SharedRace);
  clean("st.shared.u32 [%d0], %t; setp.lt.u32 %p0, %t, 16; setp.lt.u32 %p1, %t, 15; @%p0 bar.warp.sync 0xffff; @%p1 "
        "ld.shared.u32 %r0, [%d1];",
        32);
}

TEST_CASE("lanes of one store at one address must agree") {
  clean("st.shared.u32 [s], 9; bar.sync 0; ld.shared.u32 %r0, [s];", 32);
  broken("st.shared.u32 [s], %t;", 32, ErrorKind::SharedRace, "different values");
}

TEST_CASE("named barriers: counts, arrive, producer and consumer") {
  // Warp 0 produces, warps 1 and 2 consume; barrier 1 = full, barrier 2 = empty.
  const std::string roles = R"(
    setp.lt.u32 %p0, %t, 32; @%p0 bra PRODUCE;
    mov.u32 %r0, 0; mov.u32 %r2, 0;
    C: bar.sync 1, 96; and.b32 %r3, %t, 31; mul.wide.u32 %d3, %r3, 4; add.s64 %d3, %d9, %d3; ld.shared.u32 %r1, [%d3]; add.u32 %r2, %r2, %r1;
    EMPTY; add.u32 %r0, %r0, 1; setp.lt.u32 %p1, %r0, 5; @%p1 bra C;
    st.global.u32 [%d2], %r2; bra DONE;
    PRODUCE: mov.u32 %r0, 0;
    P: add.u32 %r1, %r0, %t; st.shared.u32 [%d0], %r1; bar.arrive 1, 96; bar.sync 2, 96; add.u32 %r0, %r0, 1; setp.lt.u32 %p1, %r0, 5; @%p1 bra P;
    DONE:)";
  auto with = [&](const std::string &empty) {
    std::string s = roles;
    return s.replace(s.find("EMPTY;"), 6, empty);
  };
  std::vector<uint32_t> result;
  for (Policy p : kPolicies) {
    check_clean(go(with("bar.arrive 2, 96;"), 96, p, 2, &result));
    for (uint32_t i = 32; i < 96; i++) CHECK(result[i] == 10 + 5 * (i % 32));
  }
  // Consumers that say nothing: the producer waits for ever.
  broken(with(""), 96, ErrorKind::Deadlock, "warp 0 waits at barrier 2 (32 of 96 threads arrived)");
  // Consumers that release the slot before they have read it.
  std::string early = with("");
  early.replace(early.find("and.b32 %r3"), 0, "bar.arrive 2, 96; ");
  Report r = go(early, 96, Policy::Random, 1);
  check_error(r, ErrorKind::SharedRace);
}

TEST_CASE("barrier reductions") {
  std::vector<uint32_t> result;
  check_clean(go(R"(
    setp.lt.u32 %p0, %t, 40; bar.red.popc.u32 %r0, 0, %p0; bar.red.and.pred %p1, 0, %p0; bar.red.or.pred %p2, 0, %p0; barrier.cta.red.and.pred %p3, 1, 64, !%p0;
    @%p1 add.u32 %r0, %r0, 1000; @%p2 add.u32 %r0, %r0, 100; @%p3 add.u32 %r0, %r0, 5000; st.global.u32 [%d2], %r0;)",
                 64, Policy::Random, 9, &result));
  for (uint32_t i = 0; i < 64; i++) CHECK(result[i] == 140);
}

TEST_CASE("misuse of barriers") {
  broken("bar.sync 0, 40;", 64, ErrorKind::BarrierMisuse, "the count 40 is not a multiple of 32");
  broken("bar.sync 0, 96;", 64, ErrorKind::BarrierMisuse, "96");
  broken("bar.sync 16;", 64, ErrorKind::BarrierMisuse, "barrier 16 does not exist");
  broken("bar.sync %t;", 64, ErrorKind::BarrierMisuse, "different barriers");
  broken("setp.lt.u32 %p0, %t, 32; @%p0 bra A; bar.sync 3, 96; bra B; A: bar.sync 3, 64; B:", 96,
         ErrorKind::BarrierMisuse, "count of");
  clean("bar.sync 0, 64; barrier.sync.aligned 0; barrier.cta.sync 1, 64;", 64);
}

TEST_CASE("deadlocks tell who waits where") {
  broken("setp.lt.u32 %p0, %t, 32; @%p0 bra A; bar.sync 1, 64; bra B; A: bar.sync 2, 64; B:", 64, ErrorKind::Deadlock,
         "at barrier 2 (32 of 64 threads arrived)");
  Report r = go("setp.lt.u32 %p0, %t, 32; @%p0 bra A; bar.sync 1, 64; bra B; A: bar.sync 2, 64; B:", 64);
  CHECK(r.errors[0].message.find("warp 1 waits at barrier 1") != std::string::npos);
  // A warp that has exited is not waited for by a barrier of all threads, but by one with a count.
  clean("setp.lt.u32 %p0, %t, 32; @%p0 exit; bar.sync 0;", 64);
  broken("setp.lt.u32 %p0, %t, 32; @%p0 exit; bar.sync 0, 64;", 64, ErrorKind::Deadlock, "1 of 2 warps have exited");
}

TEST_CASE("barriers that are not .aligned gather the warp from several places") {
  std::vector<uint32_t> result;
  const std::string body = R"(
    st.shared.u32 [%d0], %t; setp.lt.u32 %p0, %t, 40; @%p0 bra A;
    barrier.sync 0; bra B;
    A: barrier.sync 0;
    B: ld.shared.u32 %r0, [%d1]; st.global.u32 [%d2], %r0;)";
  for (Policy p : kPolicies) {
    check_clean(go(body, 64, p, 3, &result));
    for (uint32_t i = 0; i < 64; i++) CHECK(result[i] == (i + 1) % 64);
  }
}

TEST_CASE("flags in shared memory: release and acquire, fences around relaxed accesses") {
  const std::string flag = "setp.eq.u32 %p0, %t, 0; @%p0 st.shared.u32 [s+512], 0; bar.sync 0; setp.eq.u32 %p1, %t, "
                           "32; @%p0 bra A; @!%p1 bra B; ";
  const std::string wait = "W: ld.{}.shared.u32 %r0, [s+512]; setp.eq.u32 %p2, %r0, 0; @%p2 bra W; {} ld.shared.u32 "
                           "%r1, [s]; st.global.u32 [%out], %r1; bra B; ";
  const std::string set = "A: st.shared.u32 [s], 77; {} st.{}.shared.u32 [s+512], 1; B:";
  auto make = [&](const std::string &load, const std::string &after, const std::string &before,
                  const std::string &store) {
    return flag + fmt::format(fmt::runtime(wait), load, after) + fmt::format(fmt::runtime(set), before, store);
  };
  clean(make("acquire.cta", "", "", "release.cta"), 64);
  clean(make("relaxed.cta", "fence.acq_rel.cta;", "fence.acq_rel.cta;", "relaxed.cta"), 64);
  clean(make("volatile", "membar.cta;", "membar.cta;", "volatile"), 64);
  broken(make("relaxed.cta", "", "fence.acq_rel.cta;", "relaxed.cta"), 64, ErrorKind::SharedRace);
  broken(make("acquire.cta", "", "", "relaxed.cta"), 64, ErrorKind::SharedRace);
  broken(make("volatile", "", "", "volatile"), 64, ErrorKind::SharedRace);
}

TEST_CASE("atomics on shared memory do not race with each other, plain accesses do") {
  const std::string init = "setp.eq.u32 %p0, %t, 0; @%p0 st.shared.u32 [s], 0; ";
  clean(init + "bar.sync 0; atom.shared.add.u32 %r0, [s], 1; bar.sync 0; ld.shared.u32 %r1, [s];", 64);
  check_error(go(init + "atom.shared.add.u32 %r0, [s], 1;", 64), ErrorKind::SharedRace, "by warp 0 lane 0");
  broken(init + "bar.sync 0; atom.shared.add.u32 %r0, [s], 1; ld.shared.u32 %r1, [s];", 64, ErrorKind::SharedRace);
}

TEST_CASE("a lock by atomics") {
  // 64 threads add to a plain counter under a lock.
  const std::string lock = R"(
    setp.eq.u32 %p0, %t, 0; @%p0 st.shared.u32 [s], 0; @%p0 st.shared.u32 [s+4], 0; bar.sync 0;
    L: atom.ACQ.shared.cas.b32 %r0, [s], 0, 1; setp.ne.u32 %p1, %r0, 0; @%p1 bra L;
    ld.shared.u32 %r1, [s+4]; add.u32 %r1, %r1, 1; st.shared.u32 [s+4], %r1;
    atom.REL.shared.exch.b32 %r2, [s], 0;
    bar.sync 0; ld.shared.u32 %r3, [s+4]; st.global.u32 [%d2], %r3;)";
  auto with = [&](const std::string &acquire, const std::string &release) {
    std::string t = lock;
    t.replace(t.find("ACQ"), 3, acquire);
    return t.replace(t.find("REL"), 3, release);
  };
  std::vector<uint32_t> result;
  for (Policy p : kPolicies) {
    check_clean(go(with("acquire.cta", "release.cta"), 64, p, 7, &result));
    CHECK(result[63] == 64);
  }
  broken(with("relaxed.cta", "release.cta"), 64, ErrorKind::SharedRace);
  broken(with("acquire.cta", "relaxed.cta"), 64, ErrorKind::SharedRace);
}

TEST_CASE("the instruction budget stops an endless loop") {
  auto m = parse(kernel("L: bra L;"));
  Memory memory;
  Options o;
  o.instruction_budget = 100000;
  uint64_t out = upload(memory, std::vector<uint32_t>(1), "out");
  check_error(launch(*m, memory, {3, 64}, o, out, out), ErrorKind::Budget, "100000 warp instructions");
  auto fine = parse(kernel("mov.u32 %r0, 0; L: add.u32 %r0, %r0, 1; setp.lt.u32 %p0, %r0, 10000; @%p0 bra L;"));
  check_clean(launch(*fine, memory, {3, 64}, o, out, out));
}

TEST_CASE(
    "reports: one for each kind and instruction, of the first block that fails, the same for any number of threads") {
  auto m = parse(kernel("mov.u32 %r0, %ctaid.x; setp.ge.u32 %p0, %r0, 5; @%p0 st.global.u32 [%in+1000000], %t;"));
  std::vector<std::string> texts;
  for (int threads : {1, 4}) {
    Memory memory;
    Options o;
    o.threads = threads;
    uint64_t out = upload(memory, std::vector<uint32_t>(1), "out");
    Report r = launch(*m, memory, {40, 64}, o, out, out);
    REQUIRE(r.errors.size() == 1);
    CHECK(r.errors[0].block[0] == 5);
    texts.push_back(to_string(r.errors[0]));
  }
  CHECK(texts[0] == texts[1]);
}
