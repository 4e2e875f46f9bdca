// Kernels of the asynchronous tests. Besides the registers of `kernel`:
//   shared memory s (8192 bytes, aligned to 1024) and mbarriers bar (8 of 8 bytes, at 8 k)
//   %p15: thread 0, %p14: lane 0 of its warp, %p13: warp 0; %own = s + 16 t, %next = s + 16 ((t + 1) mod threads)
//   %src = in + 16 t, %dst = out + 16 t
// `out` has 8192 bytes, `in` has 8192 bytes with in[i] = i as 32-bit words.
#pragma once
#include "helper.h"
#include <algorithm>

namespace emu_test {

struct Run {
  Policy policy = Policy::Eager;
  uint64_t seed = 0;
  bool fence_before_overwrite = true;
  int threads = 0;
};
struct Outcome {
  Report report;
  std::vector<uint32_t> out, in; // afterwards
};

inline std::string async_kernel(const std::string &body) {
  return kernel(R"(
  .reg .b64 %own, %next, %src, %dst; .reg .b32 %s, %bar, %lane, %n;
  mov.u32 %s, s; mov.u32 %bar, bar; mov.u32 %n, %ntid.x; and.b32 %lane, %t, 31;
  setp.eq.u32 %p15, %t, 0; setp.eq.u32 %p14, %lane, 0; setp.lt.u32 %p13, %t, 32;
  mov.u64 %own, s; mul.wide.u32 %d63, %t, 16; add.s64 %own, %own, %d63; add.s64 %src, %in, %d63; add.s64 %dst, %out, %d63;
  add.u32 %r63, %t, 1; rem.u32 %r63, %r63, %n; mov.u64 %next, s; mul.wide.u32 %d62, %r63, 16; add.s64 %next, %next, %d62;
)" + body,
                ".shared .align 1024 .b8 s[8192];\n.shared .align 8 .b8 bar[64];\n");
}

inline Outcome run_async(const Module &module, int64_t threads, const Run &how) {
  Memory memory;
  Options o;
  o.policy = how.policy, o.seed = how.seed, o.fence_before_overwrite = how.fence_before_overwrite;
  o.threads = how.threads;
  std::vector<uint32_t> in(2048);
  for (uint32_t i = 0; i < in.size(); i++) in[i] = i;
  uint64_t out = upload(memory, std::vector<uint32_t>(2048), "out"), src = upload(memory, in);
  Outcome r;
  r.report = launch(module, memory, {1, threads}, o, out, src);
  r.out = download<uint32_t>(memory, out, 2048);
  r.in = download<uint32_t>(memory, src, 2048);
  return r;
}
inline Outcome run_async(const std::string &body, int64_t threads, const Run &how = {}) {
  return run_async(*parse(async_kernel(body)), threads, how);
}

// Every policy, and a few seeds of the random one.
template <typename F> void each_schedule(F f) {
  for (Policy p : kPolicies)
    for (uint64_t seed = 0; seed < (p == Policy::Random ? 6u : 1u); seed++) f(Run{p, seed});
}
// Clean under every schedule; `check` looks at the memory.
template <typename F> void clean(const std::string &body, int64_t threads, F check) {
  auto module = parse(async_kernel(body));
  each_schedule([&](Run how) {
    CAPTURE(int(how.policy));
    CAPTURE(how.seed);
    Outcome r = run_async(*module, threads, how);
    check_clean(r.report);
    check(r);
  });
}
inline void clean(const std::string &body, int64_t threads) {
  clean(body, threads, [](const Outcome &) {});
}
// Reported under every schedule, first of all with this kind and text.
inline void broken(const std::string &body, int64_t threads, ErrorKind kind, const std::string &text = "") {
  auto module = parse(async_kernel(body));
  each_schedule([&](Run how) {
    CAPTURE(int(how.policy));
    CAPTURE(how.seed);
    check_error(run_async(*module, threads, how).report, kind, text);
  });
}
// As `broken`, where the schedule decides which of several faults comes first.
inline void broken_somehow(const std::string &body, int64_t threads, std::initializer_list<ErrorKind> kinds) {
  auto module = parse(async_kernel(body));
  each_schedule([&](Run how) {
    CAPTURE(int(how.policy));
    CAPTURE(how.seed);
    Report r = run_async(*module, threads, how).report;
    INFO(all_errors(r));
    REQUIRE_FALSE(r.ok());
    CHECK(std::count(kinds.begin(), kinds.end(), r.errors[0].kind) == 1);
  });
}
// What the reader says of a kernel with this instruction.
inline std::string rejection(const std::string &instruction) {
  ParseResult r = parse_ptx(".version 8.7\n.target sm_120a\n.address_size 64\n" + async_kernel(instruction));
  return r.module || r.errors.empty() ? "" : r.errors.front().message;
}

// mbarrier 0 with this count, made by thread 0 and known to all.
inline std::string with_barrier(int64_t count) {
  return fmt::format(
      "@%p15 mbarrier.init.shared::cta.b64 [bar], {}; fence.mbarrier_init.release.cluster; bar.sync 0;\n", count);
}
// Waits for the phase of this parity of mbarrier `at / 8`; the label must be unique.
inline std::string wait_parity(const std::string &parity, const std::string &label, int at = 0) {
  return fmt::format("{0}: mbarrier.try_wait.parity.shared::cta.b64 %p12, [bar+{2}], {1}; @!%p12 bra {0};\n", label,
                     parity, at);
}

} // namespace emu_test
