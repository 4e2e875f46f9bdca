// Linear algebra over F2 on bit vectors of up to 32 bits: XOR is addition. The whole layout algebra rests on these few
// operations, so they work on plain words without allocation.
#pragma once
#include <array>
#include <bit>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <vector>

namespace tkc {

// XOR of the vectors whose bit is set in `bits`.
inline uint32_t f2_apply(std::span<const uint32_t> basis, uint64_t bits) {
  uint32_t v = 0;
  for (; bits; bits &= bits - 1) v ^= basis[size_t(std::countr_zero(bits))];
  return v;
}

// The span of a growing list of generators (at most 64), in echelon form. Vectors are kept with the set of generators
// that make them, so that membership comes with a solution. Where several solutions exist, `solve` uses the earliest
// generators that suffice: a generator that depends on earlier ones is never used.
class F2Span {
public:
  F2Span() = default;
  explicit F2Span(std::span<const uint32_t> generators) { insert_all(generators); }

  // Appends generator number `generators()`; true if the span grew.
  bool insert(uint32_t v);
  void insert_all(std::span<const uint32_t> generators) {
    for (uint32_t v : generators) insert(v);
  }
  // The smallest element of v + span: zero iff v lies in the span, and equal for two vectors iff their cosets are.
  uint32_t reduce(uint32_t v) const {
    for (uint32_t left = v & leading_; left;) {
      int b = 31 - std::countl_zero(left);
      v ^= row_[size_t(b)];
      left = v & leading_ & ((1u << b) - 1);
    }
    return v;
  }
  // The largest element of v + span.
  uint32_t largest(uint32_t v) const {
    for (uint32_t left = leading_; left;) {
      int b = 31 - std::countl_zero(left);
      if (!(v >> b & 1)) v ^= row_[size_t(b)];
      left &= (1u << b) - 1;
    }
    return v;
  }
  bool contains(uint32_t v) const { return reduce(v) == 0; }
  // Generators (bit i = generator i) whose XOR is v; nullopt if v is outside.
  std::optional<uint64_t> solve(uint32_t v) const;
  // The row of the echelon form with leading bit b, or zero.
  uint32_t row(int b) const { return leading_ >> b & 1 ? row_[size_t(b)] : 0; }
  int rank() const { return std::popcount(leading_); }
  int generators() const { return generators_; }
  // Generators that made the span grow: a basis. The others are redundant.
  uint64_t pivots() const { return pivots_; }

private:
  std::array<uint32_t, 32> row_{};   // by leading bit; valid where leading_ has that bit
  std::array<uint64_t, 32> combo_{}; // generators of row_[b]
  uint32_t leading_ = 0;
  int generators_ = 0;
  uint64_t pivots_ = 0;
};

// A basis of the intersection of two spans.
std::vector<uint32_t> f2_intersection(std::span<const uint32_t> a, std::span<const uint32_t> b);

// For `bits` independent vectors that span all of F2^bits: the map that sends basis[i] to the unit vector i, given by
// its images of the unit vectors.
std::vector<uint32_t> f2_inverse(std::span<const uint32_t> basis);

} // namespace tkc
