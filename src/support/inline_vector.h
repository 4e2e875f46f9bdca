// A vector of at most N plain values, held in place: copies and comparisons touch no heap. More than N is a broken
// invariant. Contiguous, so a std::span of it is implicit; the interface is std::vector's.
#pragma once
#include "support/check.h"
#include <algorithm>
#include <array>
#include <initializer_list>
#include <iterator>
#include <span>
#include <type_traits>
#include <vector>

namespace tkc {

template <typename T, size_t N> class InlineVector {
  static_assert(std::is_trivially_copyable_v<T>);

public:
  static constexpr size_t capacity = N;
  using value_type = T;
  using iterator = T *;
  using const_iterator = const T *;

  InlineVector() = default;
  explicit InlineVector(size_t n, T value = T()) { assign(n, value); }
  InlineVector(std::initializer_list<T> values) { assign(values.begin(), values.end()); }
  InlineVector(const std::vector<T> &values) { assign(values.begin(), values.end()); }
  InlineVector(std::span<const T> values) { assign(values.begin(), values.end()); }
  template <std::input_iterator I> InlineVector(I first, I last) { assign(first, last); }

  std::vector<T> to_vector() const { return std::vector<T>(begin(), end()); }

  // Only what is in use is copied: most hold a few values of the room for many.
  InlineVector(const InlineVector &other) : size_(other.size_) {
    std::copy_n(other.values_.data(), size_, values_.data());
  }
  InlineVector &operator=(const InlineVector &other) {
    size_ = other.size_;
    std::copy_n(other.values_.data(), size_, values_.data());
    return *this;
  }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T *data() { return values_.data(); }
  const T *data() const { return values_.data(); }
  iterator begin() { return data(); }
  iterator end() { return data() + size_; }
  const_iterator begin() const { return data(); }
  const_iterator end() const { return data() + size_; }
  T &operator[](size_t i) { return values_[i]; }
  const T &operator[](size_t i) const { return values_[i]; }
  T &back() { return values_[size_ - 1]; }
  const T &back() const { return values_[size_ - 1]; }

  void clear() { size_ = 0; }
  void resize(size_t n, T value = T()) {
    TKC_CHECK(n <= N, "more than {} values in an InlineVector", N);
    if (n > size_) std::fill(end(), data() + n, value);
    size_ = n;
  }
  void assign(size_t n, T value) {
    clear();
    resize(n, value);
  }
  template <std::input_iterator I> void assign(I first, I last) {
    clear();
    for (; first != last; ++first) push_back(*first);
  }
  void push_back(T value) {
    TKC_CHECK(size_ < N, "more than {} values in an InlineVector", N);
    values_[size_++] = value;
  }
  void pop_back() { size_--; }
  iterator insert(const_iterator at, T value) { return insert(at, &value, &value + 1); }
  template <std::input_iterator I> iterator insert(const_iterator at, I first, I last) {
    size_t place = size_t(at - begin()), old = size_;
    for (; first != last; ++first) push_back(*first);
    std::rotate(begin() + place, begin() + old, end());
    return begin() + place;
  }
  iterator erase(const_iterator at) { return erase(at, at + 1); }
  iterator erase(const_iterator first, const_iterator last) {
    iterator to = begin() + (first - begin());
    std::copy(last, const_iterator(end()), to);
    size_ -= size_t(last - first);
    return to;
  }

  bool operator==(const InlineVector &other) const { return std::equal(begin(), end(), other.begin(), other.end()); }
  bool operator==(const std::vector<T> &other) const { return std::equal(begin(), end(), other.begin(), other.end()); }

private:
  size_t size_ = 0;
  std::array<T, N> values_; // the first size_ are valid
};

} // namespace tkc
