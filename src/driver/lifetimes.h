// When the temporaries of a program are alive, from its text alone: what a loader without a planner of its own shares
// memory by. driver/plan.h, which knows the numbers, shares more.
#pragma once
#include "sema/host_program.h"

namespace tkc::driver {

// Launches are numbered in the order of the text, from 0. A temporary that is used in a loop which it is declared
// outside of lives through the whole loop; one that is declared in a loop is new memory each time round. The launches
// of a `parallel` block are alive together: a loader that runs them one after the other loses nothing by it.
struct Lifetime {
  int64_t first = -1, last = -1; // launches; -1: no launch uses it
  bool overlaps(const Lifetime &o) const { return first >= 0 && o.first >= 0 && first <= o.last && o.first <= last; }
};
std::vector<Lifetime> lifetimes(const sema::HostProgram &program); // by index of HostProgram::allocs

} // namespace tkc::driver
