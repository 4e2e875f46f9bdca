// Derivatives of references against central differences.
#pragma once
#include "interp/interp.h"
#include <map>

namespace tkc::driver {

// With respect to one tensor; the worst of all directions.
struct GradientCheck {
  std::string name;
  ir::Type type;
  int64_t directions = 0;
  double error = 0;                       // relative
  double derivative = 0, differences = 0; // along the worst direction
  std::string trapped;                    // the reference stopped near the inputs
  static constexpr double kLimit = 1e-6;
  bool pass() const { return error <= kLimit && trapped.empty(); }
  std::string to_string() const;
};

// Whether a reference takes a derivative.
bool takes_gradient(const ir::Function &f);

// For each input of a `grad`: random directions u, normal, of the size of the input's elements. The slope of t -> sum
// of <cotangent, value at input + t u> by differences of fourth order must be <gradient, u>. A step that crosses a kink
// (max, abs) tells nothing, so the smallest error of three step sizes counts: a wrong derivative fails at all.
class GradientChecker {
public:
  explicit GradientChecker(uint64_t seed) : seed_(seed) {}
  void check(const interp::Launch::Gradient &g);
  const std::vector<GradientCheck> &checks() const { return checks_; }

private:
  void along(const interp::Launch::Gradient &g, size_t input, uint64_t seed, GradientCheck &out) const;
  uint64_t seed_;
  std::vector<GradientCheck> checks_;
  std::map<std::pair<const ir::Op *, size_t>, size_t> known_; // a grad in a loop is taken often
};

} // namespace tkc::driver
