#include "layout/f2.h"
#include "support/check.h"

namespace tkc {

bool F2Span::insert(uint32_t v) {
  TKC_CHECK(generators_ < 64, "too many generators for one span");
  uint64_t combo = uint64_t(1) << generators_;
  uint64_t self = combo;
  generators_++;
  for (uint32_t left = v & leading_; left;) {
    int b = 31 - std::countl_zero(left);
    v ^= row_[size_t(b)];
    combo ^= combo_[size_t(b)];
    left = v & leading_ & ((1u << b) - 1);
  }
  if (!v) return false;
  int b = 31 - std::countl_zero(v);
  row_[size_t(b)] = v;
  combo_[size_t(b)] = combo;
  leading_ |= 1u << b;
  pivots_ |= self;
  return true;
}

std::optional<uint64_t> F2Span::solve(uint32_t v) const {
  uint64_t combo = 0;
  for (uint32_t left = v & leading_; left;) {
    int b = 31 - std::countl_zero(left);
    v ^= row_[size_t(b)];
    combo ^= combo_[size_t(b)];
    left = v & leading_ & ((1u << b) - 1);
  }
  if (v) return std::nullopt;
  return combo;
}

std::vector<uint32_t> f2_intersection(std::span<const uint32_t> a, std::span<const uint32_t> b) {
  F2Span both(a), found;
  std::vector<uint32_t> basis;
  uint64_t of_a = (uint64_t(1) << a.size()) - 1;
  for (size_t i = 0; i < b.size(); i++) {
    auto relation = both.solve(b[i]); // b[i] = (part in a) + (part in earlier b): the part in a lies in both
    both.insert(b[i]);
    if (!relation) continue;
    uint32_t common = f2_apply(a, *relation & of_a);
    if (found.insert(common)) basis.push_back(common);
  }
  return basis;
}

std::vector<uint32_t> f2_inverse(std::span<const uint32_t> basis) {
  F2Span span(basis);
  TKC_CHECK(span.rank() == int(basis.size()), "f2_inverse of dependent vectors");
  std::vector<uint32_t> images(basis.size());
  for (size_t i = 0; i < basis.size(); i++) {
    auto v = span.solve(1u << i);
    TKC_CHECK(v.has_value(), "f2_inverse: basis of {} vectors does not span unit vector {}", basis.size(), i);
    images[i] = uint32_t(*v);
  }
  return images;
}

} // namespace tkc
