// Many programs: worker processes run them, so that a fault of tkc is a finding and not the end.
#pragma once
#include "minimise.h"
#include "run.h"
#include <functional>

namespace tkc::fuzz {

struct CampaignOptions {
  uint64_t seed = 1;    // of the first program; the others follow
  int64_t programs = 0; // 0: no limit
  double seconds = 0;   // 0: no limit
  int jobs = 1;
  bool gpu = false, emulate = true;
  GenerateOptions generate;
};
struct Finding {
  uint64_t seed = 0;
  Outcome outcome;
};
struct Tally {
  int64_t programs = 0, clean = 0, exact_outputs = 0, outputs = 0;
  std::map<std::string, int64_t> rejected;
  std::vector<Finding> findings;
  double seconds = 0;
};
// How far it is, every 1,000 programs.
using Progress = std::function<void(const Tally &)>;
// Calls `found` with every finding as it comes.
Tally run_campaign(const CampaignOptions &options, const std::function<void(const Finding &)> &found,
                   const Progress &progress);

// The outcome of one piece of work in a process of its own.
Outcome isolated(const std::function<Outcome()> &work, double seconds);

} // namespace tkc::fuzz
