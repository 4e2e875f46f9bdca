// Faults that public compilers of tile kernels and their libraries have had, and that must not be here. In
// test/public_bugs a comment before each test says its numbers and what went wrong elsewhere: 1 to 58 are those of
// compilers, A and E those of asynchronous copies and barriers. What has no test there is excluded by the way that tkc
// is built, or concerns no compiler of this kind; it stands here, with the test of what excludes it.
#include "compile_kit.h"
#include "lines.h"
#include <algorithm>
#include <filesystem>
#include <map>

namespace {
struct Excluded {
  const char *number, *reason;
  const char *file, *test; // a case of golden_test or a kernel: no test; nobody's: no file
};
const Excluded kExcluded[] = {
    // A phase bit in memory was flipped before every warp had read it.
    {"24", "phases follow from counters, which every warp has in registers; the proof accepts no other",
     "test/proof_test.cpp", "mutants are rejected, or do no harm for a reason"},
    // A flag was released when the source of a bulk store had been read, not when its result was there.
    {"28",
     "results leave by plain stores, which a release orders; the emulator sees a bulk store that nobody waits for",
     "test/emu/policy.cpp",
     "a fault that only late copies show: global memory read before the bulk store has been waited for"},
    // A barrier stood in the branch of every second thread.
    {"33", "`if` decides for the whole block on scalars", "test/golden/diagnostics/fail_not_uniform.tk", nullptr},
    // An arrive in one branch, its wait elsewhere, by an implicit token.
    {"A4", "both sides count the items that exist, or the proof refuses the kernel",
     "test/golden/diagnostics/fail_unproven_protocol.tk", nullptr},
    // Other boxes and strides than those first tested made wrong copies.
    {"A5", "box, strides, swizzle and address are checked together when a map is made", "test/runtime/device_test.cpp",
     "tensor maps: every rule has its message; the fields reach the driver"},
    // A pool gave the memory of an input away.
    {"A8", "tensors have buffers of their own; temporaries share bytes by their lives", "test/driver/programs.cpp",
     "temporaries share bytes when their lives do not overlap, and only then"},
    {"A11", "no target has warps of another size than 32", nullptr, nullptr},
    // A causal mask by the place in the block's part of the keys.
    {"A13", "the kernel's own arithmetic: a sample, verified with more than one step of keys", "samples/attention.tk",
     nullptr},
    // Anything passed where the reference was NaN.
    {"A14", "of the comparison, not of the compiler", "test/runtime_test.cpp",
     "NaN and infinities pass only where the reference has them"},
    {"A18", "the language has no fragments: their layouts are tkc's", nullptr, nullptr},
    // A variant that faulted was remembered as the fastest.
    {"A24", "no kernel is chosen by timing when it is called; an A/B verifies before it measures",
     "test/driver_test.cpp", "A/B: a side that is wrong is never timed"},
    {"A25", "every target has barriers of a warp", nullptr, nullptr},
    {"E6", "slots and phases follow from counters; no token lives across iterations", "test/proof_test.cpp",
     "mutants are rejected, or do no harm for a reason"},
    // Arrivals at another block's barrier with the scope of a block; slots of a peer filled without its leave.
    {"E11", "kernels of the language form no clusters; in foreign PTX the emulator sees it", "test/emu/cluster.cpp",
     "remote mbarriers: arrive over there, wait here"},
    {"E12", "kernels of the language form no clusters; in foreign PTX the emulator sees it", "test/emu/cluster.cpp",
     "a bulk copy into the peer completes on the peer's mbarrier"},
    // A checker took copies for arrivals and reported deadlocks that were none.
    {"E15b", "of the emulator: expectations arrive, copies count bytes", "test/emu/tensor.cpp",
     "tensor loads count the bytes of the whole box, whatever lies outside"},
    {"E15c", "kernels of the language form no clusters; in foreign PTX the emulator sees it", "test/emu/cluster.cpp",
     "misuse of the cluster barrier"},
};

bool is_number(const std::string &word) {
  size_t at = word.find_first_not_of("AE");
  size_t end = word.find_first_not_of("0123456789", at);
  return at <= 1 && end != at && (end == std::string::npos || (end + 1 == word.size() && word[end] >= 'b'));
}

// Numbers of a comment line `// 12 E3: ...`; empty if it is no such line.
std::vector<std::string> numbers_of(const std::string &line) {
  size_t colon = line.find(':');
  if (!line.starts_with("// ") || colon == std::string::npos) return {};
  std::istringstream words(line.substr(3, colon - 3));
  std::vector<std::string> out;
  for (std::string word; words >> word;) {
    if (!is_number(word)) return {};
    out.push_back(word);
  }
  return out;
}
} // namespace

TEST_CASE("every public bug has a test, or a mechanism that excludes it and a test of that") {
  std::map<std::string, int> seen;
  for (const auto &file : std::filesystem::directory_iterator(TKC_SOURCE_DIR "/test/public_bugs")) {
    if (file.path().extension() != ".cpp") continue;
    std::vector<std::string> lines = lines_of(source_text("test/public_bugs/" + file.path().filename().string()));
    for (size_t i = 0; i < lines.size(); i++) {
      std::vector<std::string> numbers = numbers_of(lines[i]);
      if (numbers.empty()) continue;
      size_t next = i + 1;
      while (next < lines.size() && lines[next].starts_with("//")) next++;
      REQUIRE(next < lines.size());
      CHECK_MESSAGE(lines[next].starts_with("TEST_CASE("), lines[i]);
      for (const std::string &n : numbers) seen[n]++;
    }
  }
  int excluded = 0;
  for (const Excluded &e : kExcluded) {
    seen[e.number]++;
    excluded += e.number[0] >= '0' && e.number[0] <= '9';
    CAPTURE(e.number);
    if (!e.file) continue;
    std::string text = source_text(e.file);
    CHECK_MESSAGE(!text.empty(), std::string(e.file));
    if (e.test)
      CHECK_MESSAGE(text.find(fmt::format("TEST_CASE(\"{}\"", e.test)) != std::string::npos, std::string(e.test));
  }
  CHECK(excluded <= 15);
  std::vector<std::string> all;
  for (int n = 1; n <= 58; n++) all.push_back(std::to_string(n));
  for (int n = 1; n <= 25; n++) all.push_back(fmt::format("A{}", n));
  for (int n = 1; n <= 18; n++) all.push_back(fmt::format("E{}", n));
  for (const char *more : {"E15b", "E15c", "E15d"}) all.push_back(more);
  for (const std::string &n : all) CHECK_MESSAGE(seen[n] == 1, n, " occurs ", seen[n], " times");
  CHECK(seen.size() == all.size());
}
