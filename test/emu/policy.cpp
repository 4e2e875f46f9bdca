// The scheduler: what the policies do to kernels whose result depends on them, and determinism.
#include "async_kit.h"
#include <algorithm>
#include <set>

using namespace emu_test;

namespace {
// The schedules of nth_schedule that find a fault (an error, or a result that `right` rejects) among the first n.
template <typename F> std::vector<int64_t> found_by(const std::string &body, int64_t threads, int64_t n, F right) {
  auto module = parse(async_kernel(body));
  std::vector<int64_t> out;
  for (int64_t k = 0; k < n; k++) {
    Options o = nth_schedule(Options(), k, std::nullopt);
    Outcome r = run_async(*module, threads, {o.policy, o.seed});
    if (!r.report.ok() || !right(r)) out.push_back(k);
  }
  return out;
}
const auto kAny = [](const Outcome &) { return true; };
} // namespace

TEST_CASE("schedules: eager, lazy and reverse first, then random ones; a chosen policy varies the seed only") {
  Options base;
  base.seed = 10;
  CHECK(nth_schedule(base, 0, std::nullopt).policy == Policy::Eager);
  CHECK(nth_schedule(base, 1, std::nullopt).policy == Policy::Lazy);
  CHECK(nth_schedule(base, 2, std::nullopt).policy == Policy::Reverse);
  CHECK(nth_schedule(base, 7, std::nullopt).policy == Policy::Random);
  CHECK(nth_schedule(base, 7, std::nullopt).seed == 17);
  CHECK(nth_schedule(base, 1, Policy::Random).policy == Policy::Random);
  for (Policy p : kPolicies) CHECK(find_policy(policy_name(p)) == p);
  CHECK_FALSE(find_policy("fast"));
}

TEST_CASE("a fault that only late copies show: global memory read before the bulk store has been waited for") {
  // .read lets the source be reused; that the bytes have arrived is another matter.
  auto early = [](const std::string &wait) {
    return "st.shared.v4.u32 [%own], {7, 7, 7, 7}; fence.proxy.async; @!%p15 bra OUT; "
           "cp.async.bulk.global.shared::cta.bulk_group [%out], [s], 16; cp.async.bulk.commit_group; " +
           wait + " 0; ld.global.u32 %r0, [%out]; st.global.u32 [%out+64], %r0; OUT:";
  };
  auto right = [](const Outcome &r) { return r.out[16] == 7; };
  auto found = found_by(early("cp.async.bulk.wait_group.read"), 64, 8, right);
  CHECK(std::count(found.begin(), found.end(), 0) == 0); // eager copies hide it
  CHECK(std::count(found.begin(), found.end(), 1) == 1);
  CHECK(found_by(early("cp.async.bulk.wait_group"), 64, 8, right).empty());
}

TEST_CASE("a fault that only one order of warps shows: who comes second finds the flag") {
  // The last warp to take a ticket skips the barrier if it is warp 0, which no schedule with warp 0 first shows.
  const std::string body = R"(
    @%p15 st.shared.u32 [s], 0; bar.sync 0;
    mov.u32 %r1, 0; @%p14 atom.relaxed.cta.shared.add.u32 %r1, [s], 1; shfl.sync.idx.b32 %r1, %r1, 0, 31, -1;
    setp.eq.u32 %p0, %r1, 1; and.pred %p0, %p0, %p13; @%p0 bra OUT; bar.sync 1, 64; OUT:)";
  auto found = found_by(body, 64, 8, kAny);
  CHECK(std::count(found.begin(), found.end(), 0) == 0);
  CHECK(std::count(found.begin(), found.end(), 1) == 0);
  CHECK_FALSE(found.empty());
}

TEST_CASE("a fault that needs a particular interleaving is found within 8 schedules") {
  // An increment that is not atomic: strong accesses do not race, but an update is lost when two warps interleave.
  const std::string body = R"(
    @%p15 st.shared.u32 [s], 0; bar.sync 0; mov.u32 %r1, 0;
    L: @%p14 ld.relaxed.cta.shared.u32 %r0, [s]; @%p14 add.u32 %r0, %r0, 1; @%p14 st.relaxed.cta.shared.u32 [s], %r0;
    add.u32 %r1, %r1, 1; setp.lt.u32 %p0, %r1, 16; @%p0 bra L; bar.sync 0;
    ld.relaxed.cta.shared.u32 %r0, [s]; st.global.u32 [%out], %r0;)";
  auto found = found_by(body, 128, 8, [](const Outcome &r) { return r.out[0] == 64; });
  CHECK_FALSE(found.empty());
  CHECK(found.front() >= 3); // only random ones show it
}

TEST_CASE("two copies of one ring slot in flight: the order of completion is free") {
  // Both loads go to different bytes and one mbarrier; the result must not depend on which comes first, and does not.
  const std::string body =
      with_barrier(1) +
      "@%p15 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 1024;"
      "@%p15 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [s], [%in], 512, [bar];"
      "@%p15 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [s+512], [%in+512], 512, [bar];" +
      wait_parity("0", "W") + "ld.shared.u32 %r0, [%own]; st.global.u32 [%dst], %r0;";
  CHECK(found_by(body, 64, 16, [](const Outcome &r) {
          for (uint32_t t = 0; t < 64; t++)
            if (r.out[4 * t] != 4 * t) return false;
          return true;
        }).empty());
}

TEST_CASE("the same seed gives the same memory, report and text, whatever the number of host threads") {
  // 24 blocks; each prints, races in block 13, and leaves a trace of the order in which its warps took tickets.
  const std::string text = kernel(R"(
    .reg .b64 %own; mov.u32 %r9, %ctaid.x; setp.eq.u32 %p0, %t, 0; @%p0 st.shared.u32 [s], 0; bar.sync 0;
    and.b32 %r8, %t, 31; setp.eq.u32 %p1, %r8, 0; @%p1 atom.relaxed.cta.shared.add.u32 %r1, [s], 1;
    shr.b32 %r2, %t, 5; mad.lo.u32 %r3, %r9, 4, %r2; mul.wide.u32 %d0, %r3, 4; add.s64 %d0, %out, %d0; @%p1 st.global.u32 [%d0], %r1;
    setp.eq.u32 %p2, %r9, 13; @%p2 st.shared.u32 [s+64], %r2;)",
                                  ".shared .align 16 .b8 s[128];");
  auto module = parse(text);
  for (Policy p : kPolicies)
    for (uint64_t seed : {0, 1, 2}) {
      std::vector<uint32_t> first;
      std::string errors;
      for (int threads : {1, 2, 7}) {
        Memory memory;
        Options o;
        o.policy = p, o.seed = seed, o.threads = threads;
        uint64_t out = upload(memory, std::vector<uint32_t>(96), "out");
        Report r = launch(*module, memory, {24, 128}, o, out, out);
        // Blocks after the faulty one may or may not have run.
        std::vector<uint32_t> got = download<uint32_t>(memory, out, 14 * 4);
        if (threads == 1) first = got, errors = all_errors(r);
        CHECK_FALSE(r.ok());
        CHECK(got == first);
        CHECK(all_errors(r) == errors);
      }
    }
  // Other seeds do differ.
  std::set<std::vector<uint32_t>> orders;
  for (uint64_t seed = 0; seed < 8; seed++) {
    Memory memory;
    Options o;
    o.policy = Policy::Random, o.seed = seed;
    uint64_t out = upload(memory, std::vector<uint32_t>(96), "out");
    launch(*module, memory, {13, 128}, o, out, out);
    orders.insert(download<uint32_t>(memory, out, 52));
  }
  CHECK(orders.size() > 4);
}

TEST_CASE("threads that poll for something nobody will bring are a deadlock") {
  const std::string flag = "@%p15 st.shared.u32 [s], 0; bar.sync 0; ";
  broken(flag + "L: ld.relaxed.cta.shared.u32 %r0, [s]; setp.eq.u32 %p0, %r0, 0; @%p0 bra L;", 64, ErrorKind::Deadlock,
         "for memory that it polls");
  // One warp polls, the other one waits at a barrier for it.
  broken(flag + "@%p13 bra L; bar.sync 1, 64; bra OUT; L: ld.acquire.cta.shared.u32 %r0, [s]; setp.eq.u32 %p0, %r0, 0; "
                "@%p0 bra L; bar.sync 1, 64; OUT:",
         64, ErrorKind::Deadlock, "warp 1 waits at barrier 1");
  // In global memory, where another block might: all of them poll.
  broken("L: ld.relaxed.gpu.global.u32 %r0, [%out]; setp.eq.u32 %p0, %r0, 0; @%p0 bra L;", 64, ErrorKind::Deadlock,
         "for memory that it polls");
  clean("@%p13 bra L; st.relaxed.gpu.global.u32 [%out], 1; bra OUT; L: ld.relaxed.gpu.global.u32 %r0, [%out]; "
        "setp.eq.u32 "
        "%p0, %r0, 0; @%p0 bra L; OUT:",
        64);
}

TEST_CASE("blocks that wait for each other through global memory get turns") {
  // Block b waits for block b - 1, then says its sum; the last blocks come first in a reverse order.
  const std::string text = kernel(R"(
    setp.ne.u32 %p0, %t, 0; @%p0 bra OUT; mov.u32 %r9, %ctaid.x; mul.wide.u32 %d0, %r9, 4; add.s64 %d1, %out, %d0;
    mov.u32 %r0, 0; setp.eq.u32 %p1, %r9, 0; @%p1 bra GO;
    L: ld.acquire.gpu.global.u32 %r0, [%d1+-4]; setp.eq.u32 %p2, %r0, 0; @%p2 bra L;
    GO: add.u32 %r0, %r0, %r9; add.u32 %r0, %r0, 1; st.release.gpu.global.u32 [%d1], %r0; OUT:)");
  auto module = parse(text);
  for (Policy p : kPolicies) {
    Memory memory;
    Options o;
    o.policy = p;
    uint64_t out = upload(memory, std::vector<uint32_t>(40), "out");
    check_clean(launch(*module, memory, {40, 32}, o, out, out));
    CHECK(download<uint32_t>(memory, out, 40)[39] == 820);
  }
}
