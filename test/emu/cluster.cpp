// Clusters of two CTAs: distributed shared memory, cluster barriers, remote mbarriers, copies into a peer.
#include "async_kit.h"
#include <algorithm>

using namespace emu_test;

namespace {
// %rank: of the CTA; %peer: of the other one; %ps, %pbar: the addresses of s and bar in the peer.
std::string cluster_kernel(const std::string &body) {
  return async_kernel(
      ".reg .b32 %rank, %peer, %ps, %pbar, %cta; mov.u32 %rank, %cluster_ctarank; xor.b32 %peer, %rank, 1; "
      "mapa.shared::cluster.u32 %ps, %s, %peer; mapa.shared::cluster.u32 %pbar, %bar, %peer; setp.eq.u32 %p11, "
      "%rank, 0; mov.u32 %cta, %ctaid.x;\n" +
      body);
}
const std::string kClusterSync = "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;\n";
Outcome run_cluster(const Module &module, const Run &how, int64_t threads = 64) {
  Memory memory;
  Options o;
  o.policy = how.policy, o.seed = how.seed;
  std::vector<uint32_t> in(2048);
  for (uint32_t i = 0; i < in.size(); i++) in[i] = i;
  uint64_t out = upload(memory, std::vector<uint32_t>(2048), "out"), src = upload(memory, in);
  const KernelInfo *k = kernels(module).front();
  ParamWriter w(*k);
  w.set(0, out).set(1, src);
  Launch l;
  l.grid[0] = 4, l.cluster[0] = 2, l.block[0] = threads, l.params = w.bytes();
  Outcome r;
  r.report = run(module, k->name, memory, l, o);
  r.out = download<uint32_t>(memory, out, 2048);
  return r;
}
template <typename F> void clean_cluster(const std::string &body, F check) {
  auto module = parse(cluster_kernel(body));
  each_schedule([&](Run how) {
    CAPTURE(int(how.policy));
    CAPTURE(how.seed);
    Outcome r = run_cluster(*module, how);
    check_clean(r.report);
    check(r);
  });
}
void broken_cluster(const std::string &body, std::initializer_list<ErrorKind> kinds) {
  auto module = parse(cluster_kernel(body));
  each_schedule([&](Run how) {
    CAPTURE(int(how.policy));
    CAPTURE(how.seed);
    Report r = run_cluster(*module, how).report;
    INFO(all_errors(r));
    REQUIRE_FALSE(r.ok());
    CHECK(std::count(kinds.begin(), kinds.end(), r.errors[0].kind) == 1);
  });
}
// Stores %r0 as word 64 ctaid + t of out.
const std::string kGive =
    "mad.lo.u32 %r50, %cta, 64, %t; mul.wide.u32 %d50, %r50, 4; add.s64 %d50, %out, %d50; st.global.u32 [%d50], %r0;\n";
const std::string kOwn =
    "shl.b32 %r40, %t, 2; add.u32 %r41, %s, %r40; add.u32 %r42, %ps, %r40;\n"; // word t here and there
} // namespace

TEST_CASE("cluster registers, mapa and getctarank") {
  clean_cluster("mov.u32 %r1, %cluster_nctarank; mov.u32 %r2, %clusterid.x; mov.u32 %r3, %nclusterid.x; "
                "getctarank.shared::cluster.u32 %r4, %ps; "
                "getctarank.shared::cluster.u32 %r5, %s; mad.lo.u32 %r0, %r1, 10, %r2; mad.lo.u32 %r0, %r0, 10, %r3; "
                "mad.lo.u32 %r0, %r0, 10, %r4; "
                "mad.lo.u32 %r0, %r0, 10, %r5; mad.lo.u32 %r0, %r0, 10, %rank;" +
                    kGive,
                [](const Outcome &r) {
                  for (uint32_t b = 0; b < 4; b++)
                    CHECK(r.out[64 * b] == 200000 + b / 2 * 10000 + 2000 + (1 - b % 2) * 100 + b % 2 * 10 + b % 2);
                });
}

TEST_CASE("distributed shared memory: write, cluster barrier, read the peer's, cluster barrier before the end") {
  const std::string write = kOwn + "mad.lo.u32 %r1, %cta, 1000, %t; st.shared.u32 [%r41], %r1;\n";
  const std::string read = "ld.shared::cluster.u32 %r0, [%r42];\n" + kGive;
  clean_cluster(write + kClusterSync + read + kClusterSync, [](const Outcome &r) {
    for (uint32_t b = 0; b < 4; b++)
      for (uint32_t t = 0; t < 64; t++) CHECK(r.out[64 * b + t] == (b ^ 1) * 1000 + t);
  });
  broken_cluster(write + read + kClusterSync, {ErrorKind::SharedRace, ErrorKind::UninitialisedShared});
  // The barrier of the own CTA is none of the cluster's.
  broken_cluster(write + "bar.sync 0;" + read + kClusterSync, {ErrorKind::SharedRace, ErrorKind::UninitialisedShared});
  // The relaxed arrive orders nothing without a fence.
  broken_cluster(write + "barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;" + read + kClusterSync,
                 {ErrorKind::SharedRace});
  clean_cluster(write + "fence.acq_rel.cluster; barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;" +
                    read + kClusterSync,
                [](const Outcome &) {});
  // Writing into the peer needs the same order.
  clean_cluster(kOwn + kClusterSync + "st.shared::cluster.u32 [%r42], %cta;" + kClusterSync +
                    "ld.shared.u32 %r0, [%r41];" + kGive,
                [](const Outcome &r) { CHECK(r.out[64] == 0); });
  broken_cluster(kOwn + kClusterSync + "st.shared::cluster.u32 [%r42], %cta; bar.sync 0; ld.shared.u32 %r0, [%r41];" +
                     kGive + kClusterSync,
                 {ErrorKind::SharedRace, ErrorKind::UninitialisedShared});
}

TEST_CASE("a CTA that ends while its peer reads its shared memory is found by some schedule") {
  auto module = parse(cluster_kernel(kOwn + "st.shared.u32 [%r41], %t;" + kClusterSync +
                                     "ld.shared::cluster.u32 %r0, [%r42];" + kGive));
  bool found = false;
  for (int64_t k = 0; k < 8; k++) {
    Options o = nth_schedule(Options(), k, std::nullopt);
    Report r = run_cluster(*module, {o.policy, o.seed}).report;
    for (const Error &e : r.errors) found |= e.message.find("has ended") != std::string::npos;
  }
  CHECK(found);
}

TEST_CASE("misuse of the cluster barrier") {
  broken_cluster("barrier.cluster.wait.aligned;", {ErrorKind::BarrierMisuse});
  broken_cluster("barrier.cluster.arrive.aligned; barrier.cluster.arrive.aligned;", {ErrorKind::BarrierMisuse});
  // CTA 0 waits for a warp of its own that has ended, CTA 1 for CTA 0.
  broken_cluster("@!%p11 bra ARRIVE; @!%p13 exit; bar.sync 1, 64; ARRIVE: barrier.cluster.arrive.aligned; "
                 "barrier.cluster.wait.aligned;",
                 {ErrorKind::Deadlock});
}

TEST_CASE("remote mbarriers: arrive over there, wait here") {
  const std::string init = "@%p15 mbarrier.init.shared::cta.b64 [bar], 64; fence.mbarrier_init.release.cluster;\n";
  const std::string send =
      kOwn + "st.shared::cluster.u32 [%r42], %t; mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%pbar];\n";
  const std::string wait =
      "W: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p12, [bar], 0; @!%p12 bra W;\n";
  const std::string read = "xor.b32 %r43, %r40, 4; add.u32 %r43, %s, %r43; ld.shared.u32 %r0, [%r43];" + kGive;
  clean_cluster(init + kClusterSync + send + wait + read + kClusterSync, [](const Outcome &r) {
    for (uint32_t b = 0; b < 4; b++)
      for (uint32_t t = 0; t < 64; t++) CHECK(r.out[64 * b + t] == (t ^ 1));
  });
  // fence.mbarrier_init and a relaxed arrive are enough for the initialisation.
  clean_cluster(init + "barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;" + send + wait + read +
                    kClusterSync,
                [](const Outcome &) {});
  broken_cluster(init + "bar.sync 0;" + send + wait + read + kClusterSync,
                 {ErrorKind::SharedRace, ErrorKind::MbarrierMisuse});
  broken_cluster(init + kClusterSync + send + read + kClusterSync,
                 {ErrorKind::SharedRace, ErrorKind::UninitialisedShared});
  // Waiting is for the own CTA's mbarriers only.
  ParseResult remote = parse_ptx(".version 8.7\n.target sm_120a\n.address_size 64\n" +
                                 cluster_kernel("mbarrier.try_wait.parity.shared::cluster.b64 %p12, [%pbar], 0;"));
  CHECK_FALSE(remote.module);
}

TEST_CASE("a bulk copy into the peer completes on the peer's mbarrier") {
  const std::string body =
      kOwn +
      "@%p15 mbarrier.init.shared::cta.b64 [bar], 1; mad.lo.u32 %r1, %cta, 1000, %t; st.shared.u32 [%r41], %r1; "
      "fence.proxy.async.shared::cta;\n" +
      kClusterSync +
      "@%p15 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 256;\n"
      "add.u32 %r44, %ps, 1024; @%p15 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r44], "
      "[%s], 256, [%pbar];\n" +
      "{}ld.shared.u32 %r0, [%r41+1024];\n" + kGive + kClusterSync;
  auto with = [&](const std::string &wait) {
    std::string s = body;
    return s.replace(s.find("{}"), 2, wait);
  };
  clean_cluster(with(wait_parity("0", "W")), [](const Outcome &r) {
    for (uint32_t b = 0; b < 4; b++)
      for (uint32_t t = 0; t < 64; t++) CHECK(r.out[64 * b + t] == (b ^ 1) * 1000 + t);
  });
  broken_cluster(with(""), {ErrorKind::InFlight, ErrorKind::SharedRace, ErrorKind::UninitialisedShared});
}
