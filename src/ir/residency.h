// How many blocks an SM of a target can hold, for reports: code that decides something asks target.h.
#pragma once
#include "ir/target.h"

namespace tkc::ir {

struct Residency {
  int sm;                  // the target's SM number
  int64_t threads, blocks; // of one SM at most
};
const Residency &residency(const Target &t);

} // namespace tkc::ir
