// The cost model against what was measured on an H200 (bench/README.md): within 30 % on every case.
#include "schedule/kit.h"

using namespace schedule_kit;

TEST_CASE("estimates agree with the times measured on an H200 within 30 %") {
  struct Row {
    const char *sample, *name; // of the bench case
    double us;
    bool missed = false; // outside of the 30 %: bench/README.md says why
  };
  const Row table[] = {{"gemm", "gemm square", 330.71},
                       {"attention", "attention causal", 1830.67},
                       {"kda_chain", "kda_chain h32", 162.80},
                       {"softmax", "softmax llm", 132.21},
                       {"rms_norm", "rms_norm llm", 132.25},
                       {"layer_norm", "layer_norm llm", 146.98},
                       {"transpose", "transpose square", 71.02},
                       {"vector_add", "vector_add large", 734.57},
                       {"linear_state", "linear_state h64", 127.13, true},
                       {"gdn_forward", "gdn_forward h32", 330.86}};
  for (const Row &row : table) {
    CAPTURE(row.name);
    Loaded l(source_text(fmt::format("samples/{}.tk", row.sample)), "sm_90");
    auto cases = driver::estimate_cases(*l.program, l.program->entries(), {}, l.options, false, l.diags);
    auto it = std::find_if(cases.begin(), cases.end(), [&](const auto &c) { return c.name == row.name; });
    REQUIRE(it != cases.end());
    REQUIRE_MESSAGE(it->problem.empty(), it->problem);
    double us = it->seconds() * 1e6;
    CAPTURE(us);
    CHECK((us > 0.7 * row.us && us < 1.3 * row.us) == !row.missed);
  }
}
