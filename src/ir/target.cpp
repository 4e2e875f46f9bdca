#include "ir/target.h"
#include "ir/residency.h"
#include "support/check.h"

namespace tkc::ir {

const std::vector<Target> &all_targets() {
  static const std::vector<Target> all = {
#define TKC_TARGET(...) Target{__VA_ARGS__},
#define TKC_PART(...)
#define TKC_RESIDENCY(...)
#define TKC_TIMING(...)
#include "ir/targets.def"
#undef TKC_TARGET
#undef TKC_PART
#undef TKC_RESIDENCY
#undef TKC_TIMING
  };
  return all;
}

static const std::vector<Part> &all_parts() {
  static const std::vector<Part> all = {
#define TKC_TARGET(...)
#define TKC_PART(...) Part{__VA_ARGS__},
#define TKC_RESIDENCY(...)
#define TKC_TIMING(...)
#include "ir/targets.def"
#undef TKC_TARGET
#undef TKC_PART
#undef TKC_RESIDENCY
#undef TKC_TIMING
  };
  return all;
}

const Residency &residency(const Target &t) {
  static const Residency all[] = {
#define TKC_TARGET(...)
#define TKC_PART(...)
#define TKC_RESIDENCY(...) Residency{__VA_ARGS__},
#define TKC_TIMING(...)
#include "ir/targets.def"
#undef TKC_TARGET
#undef TKC_PART
#undef TKC_RESIDENCY
#undef TKC_TIMING
  };
  for (const Residency &r : all)
    if (r.sm == t.sm) return r;
  TKC_UNREACHABLE("no residency of {}", t.name);
}

const PartTiming &timing(const Part &p) {
  static const PartTiming all[] = {
#define TKC_TARGET(...)
#define TKC_PART(...)
#define TKC_RESIDENCY(...)
#define TKC_TIMING(...) PartTiming{__VA_ARGS__},
#include "ir/targets.def"
#undef TKC_TARGET
#undef TKC_PART
#undef TKC_RESIDENCY
#undef TKC_TIMING
  };
  for (const PartTiming &t : all)
    if (std::string_view(t.part) == p.name) return t;
  TKC_UNREACHABLE("no timing of {}", p.name);
}

const Target *find_target(std::string_view name) {
  for (const Target &t : all_targets())
    if (name == t.name) return &t;
  return nullptr;
}

const Target &default_target() { return *find_target("sm_120"); }

const Part *find_part(std::string_view name) {
  for (const Part &p : all_parts())
    if (name == p.name) return &p;
  return nullptr;
}

LayoutFeatures layout_features(const Target &t) {
  LayoutFeatures f;
  f.ldmatrix = f.movmatrix = t.has(kLdmatrix);
  f.stmatrix = t.has(kStmatrix);
  return f;
}

// The first part of the same SM number, else of the nearest below: rates change slowly between neighbours.
const Part &default_part(const Target &t) {
  const Part *best = nullptr;
  int best_sm = -1;
  for (const Part &p : all_parts()) {
    int sm = find_target(p.target)->sm;
    if (sm <= t.sm && sm > best_sm) {
      best = &p;
      best_sm = sm;
    }
  }
  TKC_CHECK(best, "no part profile for {}", t.name);
  return *best;
}

} // namespace tkc::ir
