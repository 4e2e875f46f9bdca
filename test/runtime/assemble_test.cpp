// Assembling PTX where nvJitLink or ptxas is installed; reading their logs anywhere.
#include "runtime/assemble.h"
#include <cstring>
#include <doctest/doctest.h>

using namespace tkc;

// The vendor's library leaks when PTX does not assemble; a leak checker must not blame tkc.
extern "C" const char *__lsan_default_suppressions();
extern "C" const char *__lsan_default_suppressions() { return "leak:libnvJitLink\n"; }

namespace {
bool has(Assembler a) { return assembler_available(a).ok(); }

const char *const kTwoKernels = R"(.version 8.0
.target sm_80
.address_size 64
.visible .entry adds(.param .u64 p)
{
  .reg .b64 %rd<2>;
  .reg .b32 %r<4>;
  .shared .align 4 .b8 s[64];
  ld.param.u64 %rd1, [p];
  mov.u32 %r1, %tid.x;
  st.shared.u32 [s], %r1;
  bar.sync 0;
  ld.shared.u32 %r2, [s];
  add.u32 %r3, %r2, %r1;
  st.global.u32 [%rd1], %r3;
  ret;
}
.visible .entry empty() { ret; }
)";

// Forty values that live at once: more than 24 registers hold.
std::string wide_kernel() {
  std::string s = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry wide(.param .u64 p)\n{\n.reg .b64 "
                  "%rd<2>;\n.reg .b32 %r<40>;\nld.param.u64 %rd1, [p];\n";
  for (int i = 0; i < 40; i++) s += fmt::format("ld.volatile.global.u32 %r{}, [%rd1+{}];\n", i, 4 * i);
  for (int i = 0; i < 40; i++) s += fmt::format("st.volatile.global.u32 [%rd1+{}], %r{};\n", 4 * i, 39 - i);
  return s + "ret;\n}\n";
}
} // namespace

TEST_CASE("the log of ptxas") {
  std::vector<KernelUsage> k =
      parse_assembler_log("ptxas info    : 0 bytes gmem\n"
                          "ptxas info    : Compiling entry function 'k2' for 'sm_80'\n"
                          "ptxas info    : Function properties for k2\n"
                          "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
                          "ptxas info    : Used 4 registers, used 0 barriers, 360 bytes cmem[0]\n"
                          "ptxas info    : Compile time = 26.107 ms\n"
                          "ptxas info    : Compiling entry function 'k' for 'sm_80'\n"
                          "ptxas info    : Function properties for k\n"
                          "    16 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads\n"
                          "ptxas info    : Used 255 registers, used 2 barriers, 16 bytes cumulative stack size, 1064 "
                          "bytes smem, 360 bytes cmem[0]\n");
  REQUIRE(k.size() == 2);
  CHECK(k[0].name == "k2");
  CHECK(k[0].registers == 4);
  CHECK_FALSE(k[0].uses_local_memory());
  CHECK(k[1].name == "k");
  CHECK(k[1].registers == 255);
  CHECK(k[1].spill_stores == 12);
  CHECK(k[1].spill_loads == 8);
  CHECK(k[1].stack == 16);
  CHECK(k[1].barriers == 2);
  CHECK(k[1].static_shared == 1064);
  CHECK(k[1].uses_local_memory());
}

TEST_CASE("the log of nvJitLink: functions that are no kernels, and its summary, are not mixed up") {
  std::vector<KernelUsage> k = parse_assembler_log(
      "ptxas info    : Overriding maximum register limit 256 for 'k' with  24 of maxrregcount option\n"
      "ptxas info    : Function properties for helper\n"
      "ptxas         .     96 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads\n"
      "ptxas info    : Compiling entry function 'k' for 'sm_90'\n"
      "ptxas info    : Function properties for k\n"
      "ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
      "ptxas info    : Used 9 registers, used 1 barriers, 64 bytes smem\n"
      "ptxas info    : Function properties for late_helper\n"
      "ptxas         .     48 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
      "info    : Function properties for 'k':\n"
      "info    : used 9 registers, used 1 barriers, 0 stack, 1088 bytes smem, 536 bytes cmem[0], 0 bytes lmem\n");
  REQUIRE(k.size() == 1);
  CHECK(k[0].registers == 9);
  CHECK(k[0].static_shared == 64);
  CHECK(k[0].stack == 0);
  CHECK(parse_assembler_log("").empty());
  // The summary alone.
  k = parse_assembler_log("info    : 0 bytes gmem\n"
                          "info    : Function properties for 'k':\n"
                          "info    : used 9 registers, used 1 barriers, 0 stack, 1088 bytes smem, 0 bytes lmem\n"
                          "info    : Function properties for 'l':\n"
                          "info    : used 24 registers, used 0 barriers, 96 stack, 0 bytes smem, 0 bytes lmem\n");
  REQUIRE(k.size() == 2);
  CHECK(k[0].name == "k");
  CHECK(k[0].registers == 9);
  CHECK(k[0].barriers == 1);
  CHECK(k[0].static_shared == 1088);
  CHECK(k[0].spill_stores == 0);
  CHECK(k[1].stack == 96);
  CHECK(k[1].spill_stores == -1);
  CHECK(k[1].uses_local_memory());
  CHECK(parse_assembler_log("ptxas info    : Compiling entry function 'k").size() == 1);
}

static void check_assembler(Assembler by) {
  for (const char *arch : {"sm_80", "sm_90", "sm_120"}) {
    CAPTURE(arch);
    Result<Assembled> a = assemble(kTwoKernels, {.arch = arch, .assembler = by});
    REQUIRE(a.ok());
    CHECK(a->by == by);
    REQUIRE(a->cubin.size() > 64);
    CHECK(std::memcmp(a->cubin.data(),
                      "\x7f"
                      "ELF",
                      4) == 0);
    CAPTURE(a->log);
    CHECK(a->kernels.size() == 2);
    const KernelUsage *k = a->find("adds");
    REQUIRE(k);
    CHECK(k->registers >= 4);
    CHECK(k->registers <= 16);
    CHECK(k->static_shared == 64);
    CHECK(k->barriers == 1);
    CHECK_FALSE(k->uses_local_memory());
    REQUIRE(a->find("empty"));
    CHECK(!a->find("other"));
  }
  Result<Assembled> free = assemble(wide_kernel(), {.arch = "sm_90", .assembler = by});
  Result<Assembled> tight = assemble(wide_kernel(), {.arch = "sm_90", .max_registers = 24, .assembler = by});
  REQUIRE(free.ok());
  REQUIRE(tight.ok());
  CAPTURE(tight->log);
  REQUIRE(free->find("wide"));
  REQUIRE(tight->find("wide"));
  CHECK_FALSE(free->find("wide")->uses_local_memory());
  CHECK(free->find("wide")->registers > 40);
  CHECK(tight->find("wide")->registers == 24);
  CHECK(tight->find("wide")->spill_stores > 0);
  CHECK(tight->find("wide")->spill_loads > 0);
  CHECK(tight->find("wide")->stack > 0);

  std::string bad = kTwoKernels;
  bad.replace(bad.find("st.global"), 9, "st.globe ");
  Result<Assembled> failed = assemble(bad, {.arch = "sm_90", .assembler = by});
  REQUIRE_FALSE(failed.ok());
  CHECK(failed.error().find(std::string(assembler_name(by)) + " does not assemble the PTX") == 0);
  CHECK(failed.error().find("line 15; error") != std::string::npos);
  CHECK_FALSE(assemble("", {.arch = "sm_90", .assembler = by}).ok());
  Result<Assembled> odd = assemble(kTwoKernels, {.arch = "sm_777", .assembler = by});
  REQUIRE_FALSE(odd.ok());
  CHECK(odd.error().find("sm_777") != std::string::npos);
}

TEST_CASE("nvJitLink assembles for sm_80, sm_90 and sm_120" * doctest::skip(!has(Assembler::NvJitLink))) {
  check_assembler(Assembler::NvJitLink);
}

TEST_CASE("ptxas assembles for sm_80, sm_90 and sm_120" * doctest::skip(!has(Assembler::Ptxas))) {
  check_assembler(Assembler::Ptxas);
}

TEST_CASE("the cubin has the figures of the log" * doctest::skip(!has(Assembler::Any))) {
  for (const char *arch : {"sm_80", "sm_90", "sm_120"})
    for (int64_t limit : {0, 24}) {
      CAPTURE(arch);
      Result<Assembled> a = assemble(wide_kernel(), {.arch = arch, .max_registers = limit});
      REQUIRE(a.ok());
      std::vector<KernelUsage> k = parse_cubin_usage(a->cubin);
      REQUIRE(k.size() == 1);
      CHECK(k[0].name == "wide");
      CHECK(k[0].registers == a->kernels.at(0).registers);
      CHECK(k[0].stack == a->kernels.at(0).stack);
      CHECK(k[0].spill_stores == (limit ? -1 : 0));
      CHECK(k[0].barriers == -1);
      // A damaged file gives fewer figures, never a fault.
      for (size_t n = 0; n < a->cubin.size(); n += 7) parse_cubin_usage(std::span(a->cubin).first(n));
      for (size_t n = 0; n < 64; n++) {
        std::vector<uint8_t> bad = a->cubin;
        bad[n] ^= 0xff;
        parse_cubin_usage(bad);
      }
    }
  Result<Assembled> two = assemble(kTwoKernels, {.arch = "sm_90"});
  REQUIRE(two.ok());
  CHECK(parse_cubin_usage(two->cubin).size() == 2);
  CHECK(parse_cubin_usage({}).empty());
}

TEST_CASE("both assemblers report the same where both report" *
          doctest::skip(!has(Assembler::NvJitLink) || !has(Assembler::Ptxas))) {
  for (int64_t limit : {0, 24}) {
    Result<Assembled> a =
        assemble(wide_kernel(), {.arch = "sm_90", .max_registers = limit, .assembler = Assembler::NvJitLink});
    Result<Assembled> b =
        assemble(wide_kernel(), {.arch = "sm_90", .max_registers = limit, .assembler = Assembler::Ptxas});
    REQUIRE(a.ok());
    REQUIRE(b.ok());
    REQUIRE(a->find("wide"));
    REQUIRE(b->find("wide"));
    CHECK(a->find("wide")->registers == b->find("wide")->registers);
    // Some versions of nvJitLink log no spills; where there is a stack they are then not known.
    if (a->find("wide")->spill_stores >= 0 || a->find("wide")->stack == 0) {
      CHECK(a->find("wide")->spill_stores == b->find("wide")->spill_stores);
      CHECK(a->find("wide")->spill_loads == b->find("wide")->spill_loads);
    } else {
      CHECK(a->find("wide")->spill_stores == -1);
      CHECK(a->find("wide")->spill_loads == -1);
    }
    CHECK(a->find("wide")->stack == b->find("wide")->stack);
  }
}

TEST_CASE("without an assembler the message says what was looked for" * doctest::skip(has(Assembler::Any))) {
  std::string message = assemble(kTwoKernels, {}).error();
  CHECK(message.find("libnvJitLink.so.13") != std::string::npos);
  CHECK(message.find("ptxas is neither in PATH") != std::string::npos);
}
