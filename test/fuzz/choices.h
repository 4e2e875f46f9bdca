// Where a random program comes from: a sequence of small numbers. Drawn from a seed they make a new program; given,
// they make the same program again, or a smaller one: 0 is always the simplest choice, and a sequence that ends early
// goes on with zeros. So programs are minimised by shortening and lowering their choices (minimise.h), and whatever
// comes out is well typed and has right error bounds.
#pragma once
#include "runtime/generators.h"
#include <cstdint>
#include <vector>

namespace tkc::fuzz {

class Choices {
public:
  explicit Choices(uint64_t seed) : seed_(seed), random_(true) {}
  explicit Choices(std::vector<uint32_t> given) : given_(std::move(given)) {}

  // A number in [0, n).
  uint32_t pick(uint32_t n) {
    uint32_t v = 0;
    if (random_)
      v = uint32_t(splitmix64(stream_seed(seed_, int64_t(made_.size()))) % n);
    else if (made_.size() < given_.size())
      v = given_[made_.size()] % n;
    made_.push_back(v);
    return v;
  }
  bool chance(uint32_t percent) { return pick(100) >= 100 - percent; }
  template <typename T> const T &of(const std::vector<T> &list) { return list[pick(uint32_t(list.size()))]; }

  const std::vector<uint32_t> &made() const { return made_; }
  // Parts of the sequence that belong together (a statement, an expression): they are removed as a whole.
  struct Span {
    size_t begin = 0, end = 0;
  };
  const std::vector<Span> &spans() const { return spans_; }

  class Scope {
  public:
    explicit Scope(Choices &c) : c_(c), begin_(c.made_.size()) {}
    ~Scope() { c_.spans_.push_back({begin_, c_.made_.size()}); }
    Scope(const Scope &) = delete;

  private:
    Choices &c_;
    size_t begin_;
  };

private:
  uint64_t seed_ = 0;
  bool random_ = false;
  std::vector<uint32_t> given_, made_;
  std::vector<Span> spans_;
};

} // namespace tkc::fuzz
