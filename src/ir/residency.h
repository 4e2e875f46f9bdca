// Figures of targets and parts for reports and estimates of time; code that decides something asks target.h.
#pragma once
#include "ir/target.h"

namespace tkc::ir {

struct Residency {
  int sm;                  // the target's SM number
  int64_t threads, blocks; // of one SM at most
};
const Residency &residency(const Target &t);

struct PartTiming {
  const char *part;
  double mma_cycles_all; // as Part::mma_cycles, with every sub-core of the chip busy
  double load_latency;   // cycles from a load to its data out of DRAM
};
const PartTiming &timing(const Part &p);

} // namespace tkc::ir
