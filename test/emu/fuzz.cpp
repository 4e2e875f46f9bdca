// Mutated PTX: the reader must answer with a module or with errors that have a line, and whatever it accepts must run
// to an end or a report. Neither may crash, hang, or touch memory that is not the kernel's (run this under ASan).
#include "async_kit.h"

using namespace emu_test;

namespace {
const std::string kSeed = ".version 8.7\n.target sm_120a\n.address_size 64\n.file 1 \"k.tk\"\n" + async_kernel(R"(
  .loc 1 3 4
  @%p15 mbarrier.init.shared::cta.b64 [bar], 1; fence.mbarrier_init.release.cluster; bar.sync 0;
  @%p15 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 1024;
  @%p15 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [s], [%in], 1024, [bar];
W: mbarrier.try_wait.parity.shared::cta.b64 %p12, [bar], 0; @!%p12 bra W;
  ld.shared.v4.u32 {%r0, %r1, %r2, %r3}, [%own]; add.f32 %f0, %f1, %f2; mad.lo.s32 %r4, %r0, %r1, 7; cvt.rn.f16.f32 %h0, %f0;
  shfl.sync.bfly.b32 %r5|%p1, %r4, 16, 31, -1; vote.sync.ballot.b32 %r6, %p1, -1; lop3.b32 %r7, %r0, %r1, %r2, 0x96;
  mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f4, %f5, %f6, %f7}, {%r0, %r1, %r2, %r3}, {%r4, %r5}, {%f0, %f1, %f2, %f3};
  ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r8, %r9, %r10, %r11}, [%own]; setp.lt.and.s32 %p2|%p3, %r0, 5, %p1; selp.b32 %r12, %r8, 9, %p2;
  cp.async.ca.shared.global [%own+1024], [%src], 8; cp.async.commit_group; cp.async.wait_group 0; atom.shared.add.u32 %r13, [%own+1024], 1;
  { .reg .b64 %q; .local .align 8 .b8 stack[32]; mov.u64 %q, stack; st.local.u32 [%q+4], %r0; ld.local.u32 %r14, [%q+4]; }
  ts: .branchtargets A, B; and.b32 %r15, %t, 1; brx.idx %r15, ts;
A: ex2.approx.f32 %f8, %f4; bra C;
B: rsqrt.approx.ftz.f32 %f8, %f5;
C: fence.proxy.async; bar.red.popc.u32 %r16, 0, %p2; st.global.v2.f32 [%dst], {%f8, %f4};
  @%p15 cp.async.bulk.global.shared::cta.bulk_group [%out+2048], [s], 1024; cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;
)");

std::vector<std::string> tokens(const std::string &text) {
  std::vector<std::string> out;
  auto word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '%' || c == '$'; };
  for (size_t i = 0; i < text.size();) {
    size_t j = i + 1;
    if (word(text[i]))
      while (j < text.size() && word(text[j])) j++;
    out.push_back(text.substr(i, j - i));
    i = j;
  }
  return out;
}
std::string mutate(const std::vector<std::string> &seed, Rng &rng) {
  std::vector<std::string> t = seed;
  auto pick = [&](size_t n) { return size_t(rng.next() % n); };
  static const std::vector<std::string> kOdd = {
      "",   ";",      "{", "}",        "[",    "]",  ",",   ".",    "-1",  "0",    "4294967296", "18446744073709551616",
      "0x", "0f3f80", "%", "%r999999", "%tid", "\"", "/*",  "//",   "bra", ".reg", ".param",     "@",
      "!",  "<",      "|", "_",        "+",    "s",  "bar", ".b64", ".v8", ".loc", "1e400",      "~"};
  for (size_t n = 1 + pick(3); n; n--) {
    size_t at = pick(t.size());
    switch (pick(6)) {
    case 0: t.erase(t.begin() + int64_t(at)); break;
    case 1: t[at] = t[pick(t.size())]; break;
    case 2: t.insert(t.begin() + int64_t(at), kOdd[pick(kOdd.size())]); break;
    case 3: t[at] = kOdd[pick(kOdd.size())]; break;
    case 4: std::swap(t[at], t[pick(t.size())]); break;
    default:
      if (!t[at].empty()) t[at][pick(t[at].size())] = char(rng.next());
    }
  }
  std::string out;
  for (const std::string &s : t) out += s;
  if (pick(20) == 0) out.resize(pick(out.size() + 1));
  return out;
}
} // namespace

TEST_CASE("the seed of the fuzzing is clean") {
  for (Policy p : kPolicies) check_clean(run_async(*parse(kSeed), 64, {p, 1}).report);
}

TEST_CASE("mutated text: errors have lines, accepted kernels end") {
  std::vector<std::string> seed = tokens(kSeed);
  Rng rng{2024};
  int accepted = 0, rejected = 0;
  for (int n = 0; n < 6000; n++) {
    std::string text = mutate(seed, rng);
    ParseResult r = parse_ptx(text);
    if (!r.module) {
      REQUIRE_FALSE(r.errors.empty());
      CHECK(r.errors[0].line >= 1);
      CHECK_FALSE(r.errors[0].message.empty());
      rejected++;
      continue;
    }
    CHECK(r.errors.empty());
    accepted++;
    const KernelInfo *k = kernels(*r.module).empty() ? nullptr : kernels(*r.module).front();
    if (!k) continue;
    Memory memory;
    uint64_t in = upload(memory, std::vector<uint32_t>(2048)), out = upload(memory, std::vector<uint32_t>(2048), "out");
    ParamWriter w(*k);
    if (!k->params.empty() && k->params[0].bytes == 8) w.set(0, out);
    if (k->params.size() > 1 && k->params[1].bytes == 8) w.set(1, in);
    Launch l;
    l.block[0] = 64, l.params = w.bytes();
    Options o = nth_schedule(Options(), n % 6, std::nullopt);
    o.instruction_budget = 20000;
    Report report = run(*r.module, k->name, memory, l, o);
    for (const Error &e : report.errors) CHECK_FALSE(to_string(e).empty());
  }
  MESSAGE(accepted << " accepted, " << rejected << " rejected");
  CHECK(rejected > 3000);
  CHECK(accepted > 150);
}

TEST_CASE("unknown instructions, modifiers and directives are named with their line") {
  auto first = [](const std::string &body) {
    ParseResult r = parse_ptx(".version 8.7\n.target sm_120a\n.address_size 64\n" + body);
    CAPTURE(body);
    REQUIRE_FALSE(r.module);
    return fmt::format("{}: {}", r.errors[0].line, r.errors[0].message);
  };
  auto in_kernel = [&](const std::string &line) {
    return first(".visible .entry k()\n{\n.reg .b32 %r<4>; .reg .pred %p<2>; .reg .b64 %d<4>;\n" + line +
                 "\nret;\n}\n");
  };
  auto names = [](const std::string &message, const std::string &line, const std::string &text) {
    INFO(message);
    CHECK(message.rfind(line + ":", 0) == 0);
    CHECK(message.find(text) != std::string::npos);
  };
  names(in_kernel("frobnicate.u32 %r0, %r1;"), "7", "frobnicate");
  names(in_kernel("wgmma.fence.sync.aligned;"), "7", "wgmma");
  names(in_kernel("tcgen05.wait::ld.sync.aligned;"), "7", "tcgen05");
  names(in_kernel("add.u128 %r0, %r1, %r2;"), "7", "u128");
  names(in_kernel("add.rn.u32 %r0, %r1, %r2;"), "7", "rn");
  names(in_kernel("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r0], [%r1], "
                  "16, [%r2], 1;"),
        "7", "multicast");
  names(in_kernel("add.u32 %r0, %r1;"), "7", "operand");
  names(in_kernel("add.u32 %r0, %r1, %d2;"), "7", "d2");
  names(in_kernel("add.u32 %r0, %r1, %r9;"), "7", "r9");
  names(in_kernel("bra NOWHERE;"), "7", "NOWHERE");
  names(first(".frobnicate 3;\n"), "4", "frobnicate");
}
