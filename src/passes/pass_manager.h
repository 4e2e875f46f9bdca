// Runs a list of passes over one function and checks what they claim.
//
// The list is data (passes/pipeline.cpp): it reads like a page and is what `--time-report`, `--dump-ir`, `--skip-pass`
// and
// `--bisect-passes` talk about. After every pass that reports a change the function is verified against the stage that
// was reached; in debug builds a pass that reports none must have left the text of the function alone.
#pragma once
#include "ir/target.h"
#include "ir/verify.h"
#include "support/diagnostics.h"
#include <memory>
#include <optional>

namespace tkc::passes {

struct Schedule;

struct PassOptions {
  std::string dump_dir;              // --dump-ir DIR: NNN.pass.changed.tkir or NNN.pass.unchanged.tkir after each pass
  std::vector<std::string> skip;     // --skip-pass NAME
  int64_t most_stages = kManyStages; // of a ring that no annotation asks for; below 2 there is none
  static constexpr int64_t kManyStages = 1 << 20;
  std::string unproven;           // why more stages than most_stages could not be proven safe; "": nobody tried
  int64_t proof_states = 200'000; // that a proof looks at, about a second; a schedule that needs more is given up
  std::shared_ptr<const Schedule> schedule; // --schedule: what is forced (schedule.h)
  int64_t bisect = -1;                      // --bisect-passes N: only the first N optional passes run; -1: all
#ifdef NDEBUG
  bool check_unchanged = false;
#else
  bool check_unchanged = true;
#endif
};

struct PassContext {
  const ir::Target &target;
  const ir::Part &part;
  Diagnostics &diags;
  PassOptions options = {};
  std::string unproven = {}; // why the proof of protocols was given up; "": it was not
};

struct Pass {
  const char *name;                           // as on the command line: fold_constants
  const char *why;                            // one line for `--time-report`
  bool (*run)(ir::Function &, PassContext &); // true if anything changed
  // From this pass on the function is held to this stage. Such a pass, and one that is not optional, always runs.
  std::optional<ir::Stage> reaches = {};
  bool optional = true;
};

class PassManager {
public:
  explicit PassManager(std::vector<Pass> passes) : passes_(std::move(passes)) {}

  enum class Outcome : uint8_t {
    ok,
    rejected, // a pass reported a user's fault: see the diagnostics
    broken,   // a fault of tkc or of its options: see problem()
  };
  // Runs the passes on a typed function, stopping at the first that fails.
  Outcome run(ir::Function &f, PassContext &context);
  const std::string &problem() const { return problem_; }

  struct Timing {
    const char *name, *why;
    bool ran = false, changed = false;
    double pass_ms = 0, check_ms = 0; // the pass; dump and verification after it
  };
  const std::vector<Timing> &timings() const { return timings_; }
  std::string time_report() const; // a table, passes in order, with a total
  const std::vector<Pass> &passes() const { return passes_; }

private:
  bool check_options(const PassOptions &options);
  bool dump(const ir::Function &f, const PassOptions &options, size_t number, const std::string &name);
  bool check(const ir::Function &f, ir::Stage stage, const std::string &after);

  std::vector<Pass> passes_;
  std::vector<Timing> timings_;
  std::string problem_;
};

} // namespace tkc::passes
