// Races on global memory: between the lanes and warps of a block, by clocks; between blocks, whatever their order.
#include "helper.h"

using namespace emu_test;

namespace {
// %dst: own word of `out`, %next: that of the next thread of the block.
const std::string kAddresses = R"(
  .reg .b64 %dst, %next; .reg .b32 %n, %cta;
  mov.u32 %n, %ntid.x; mov.u32 %cta, %ctaid.x; mul.wide.u32 %d0, %t, 4; add.s64 %dst, %out, %d0;
  add.u32 %r0, %t, 1; rem.u32 %r0, %r0, %n; mul.wide.u32 %d1, %r0, 4; add.s64 %next, %out, %d1;
)";
Report run(const std::string &body, Shape shape, Policy policy = Policy::Eager, int threads = 0) {
  Memory memory;
  Options o;
  o.policy = policy, o.threads = threads;
  uint64_t out = upload(memory, std::vector<uint32_t>(1024), "out"), in = upload(memory, std::vector<uint32_t>(1024));
  return launch(*parse(kernel(kAddresses + body)), memory, shape, o, out, in);
}
void clean(const std::string &body, Shape shape) {
  for (Policy p : kPolicies) check_clean(run(body, shape, p));
}
void race(const std::string &body, Shape shape, const std::string &text) {
  for (Policy p : kPolicies) check_error(run(body, shape, p), ErrorKind::GlobalRace, text);
}
const std::string kStore = "st.global.u32 [%dst], %t;", kLoad = "ld.global.u32 %r1, [%next];";
} // namespace

TEST_CASE("global memory: threads of a block need a barrier") {
  clean(kStore + "bar.sync 0;" + kLoad, {1, 64});
  clean(kStore + "bar.warp.sync -1;" + kLoad, {1, 32});
  clean(kStore + "ld.global.u32 %r1, [%dst];", {1, 64}); // the own word
  race(kStore + kLoad, {1, 32}, "no bar.warp.sync");
  race(kStore + "bar.warp.sync -1;" + kLoad, {1, 64}, "no barrier");
  race(kLoad + "bar.warp.sync -1;" + kStore, {1, 64}, "no barrier");
}

TEST_CASE("global memory: several writers of equal values, and lanes of one store") {
  clean("st.global.u32 [%out], 5;", {1, 64});
  clean("st.global.u32 [%out], %t;", {1, 32}); // the value of some lane stays
  race("st.global.u32 [%out], %t;", {1, 64}, "out");
}

TEST_CASE("global memory: nothing orders blocks") {
  const std::string own = "mad.lo.u32 %r2, %cta, %n, %t; mul.wide.u32 %d2, %r2, 4; add.s64 %d3, %out, %d2;";
  clean(own + "st.global.u32 [%d3], %t; bar.sync 0; ld.global.u32 %r3, [%d3];", {8, 32});
  clean(kStore, {8, 32}); // all blocks write the same
  clean("red.relaxed.gpu.global.add.u32 [%out], 1;", {8, 32});
  race("add.u32 %r2, %t, %cta; st.global.u32 [%dst], %r2;", {8, 32}, "nothing orders blocks");
  race(own + "st.global.u32 [%d3], %r2; bar.sync 0; ld.global.u32 %r3, [%dst];", {8, 32}, "read of out");
  race("red.relaxed.gpu.global.add.u32 [%out], 1; ld.global.u32 %r3, [%out];", {8, 32}, "out");
  // A byte beside is none.
  clean("cvt.u64.u32 %d2, %cta; add.s64 %d3, %out, %d2; st.global.u8 [%d3], %cta;", {8, 1});
}

TEST_CASE("global memory: the report does not depend on the number of host threads") {
  const std::string body = "add.u32 %r2, %t, %cta; st.global.u32 [%dst], %r2;";
  std::string one = all_errors(run(body, {64, 64}, Policy::Eager, 1));
  CHECK(!one.empty());
  for (int k = 0; k < 10; k++) CHECK(all_errors(run(body, {64, 64}, Policy::Eager, 4)) == one);
}
