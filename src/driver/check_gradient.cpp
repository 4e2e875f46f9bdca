#include "driver/check_gradient.h"
#include "runtime/generators.h"
#include "support/stop.h"
#include <algorithm>
#include <cmath>
#include <limits>

namespace tkc::driver {

std::string GradientCheck::to_string() const {
  if (!trapped.empty()) return fmt::format("d/d {}: FAILED  {}  {}\n", name, type.str(), trapped);
  std::string out = fmt::format("d/d {}: {}  {}  error {:.2e} (limit {}) along {}\n", name, pass() ? "ok" : "MISMATCH",
                                type.str(), error, kLimit, counted(directions, "direction"));
  if (!pass())
    out += fmt::format("  the derivative gives {:.9g}, central differences {:.9g}\n", derivative, differences);
  return out;
}

bool takes_gradient(const ir::Function &f) {
  bool found = false;
  ir::walk(f.body, [&](const ir::Op *op) { found |= op->kind == ir::OpKind::Grad; });
  return found;
}

// The middle of the absolute values, so that a few outliers (a gate of -1000) do not set the step.
static double typical(const std::vector<double> &x) {
  std::vector<double> a;
  for (size_t k = 0; k < x.size(); k += 1 + x.size() / 4096) a.push_back(std::fabs(x[k]));
  if (a.empty()) return 1;
  std::nth_element(a.begin(), a.begin() + int64_t(a.size() / 2), a.end());
  double m = a[a.size() / 2];
  return m > 0 && std::isfinite(m) ? m : 1;
}

void GradientChecker::along(const interp::Launch::Gradient &g, size_t input, uint64_t seed, GradientCheck &out) const {
  std::vector<interp::Value> at = g.inputs;
  auto &x = std::get<interp::Tile>(at[input]);
  const std::vector<double> start = x.f, &gradient = std::get<interp::Tile>(g.gradient[input]).f;
  auto normal = make_fill(FillKind::Normal, std::vector<double>{0, typical(start)});
  TKC_CHECK(normal.ok(), "no normal distribution");
  std::vector<double> u = fill_values(*normal, DType::F64, int64_t(start.size()), seed);
  double slope = 0, size = 0; // <gradient, u>, and what it would be without cancellation
  for (size_t k = 0; k < u.size(); k++) {
    slope += gradient[k] * u[k];
    size += gradient[k] * u[k] * gradient[k] * u[k];
  }
  size = std::sqrt(size);
  double best = std::numeric_limits<double>::infinity(), differences = 0;
  for (double h : {1e-4, 1e-5, 1e-6}) {
    double sum = 0, magnitude = 0;
    for (auto [steps, weight] : {std::pair{1, 8.0}, {-1, -8.0}, {2, -1.0}, {-2, 1.0}}) {
      for (size_t k = 0; k < u.size(); k++) x.f[k] = round_to(x.dtype, start[k] + steps * h * u[k]);
      auto v = g.value(at);
      if (!v) {
        if (!stop_requested()) out.trapped = "the reference stops at inputs close by";
        return;
      }
      sum += weight * v->value;
      magnitude = std::max(magnitude, v->magnitude);
    }
    double d = sum / (12 * h), noise = 32 * std::numeric_limits<double>::epsilon() * magnitude / h;
    double scale = std::max({std::fabs(d), std::fabs(slope), size});
    double error = std::fabs(d - slope);
    error = error == 0 ? 0 : error / scale;
    if (error > GradientCheck::kLimit && std::fabs(d - slope) <= noise)
      error = 0; // nothing can be told of a slope of 0
    if (std::isnan(d) || std::isnan(slope)) error = std::numeric_limits<double>::infinity();
    if (error < best || h == 1e-4) {
      best = error;
      differences = d;
    }
    if (best <= GradientCheck::kLimit / 10) break;
  }
  if (best >= out.error) {
    out.error = best;
    out.derivative = slope;
    out.differences = differences;
  }
}

void GradientChecker::check(const interp::Launch::Gradient &g) {
  constexpr int64_t kDirections = 2;
  for (size_t i = 0; i < g.inputs.size() && !stop_requested(); i++) {
    auto [it, fresh] = known_.emplace(std::pair(&g.op, i), checks_.size());
    const ir::Value *arg = g.op.regions[0]->args[i];
    if (fresh) {
      checks_.emplace_back();
      checks_.back().name = arg->name;
      checks_.back().type = arg->type;
    }
    GradientCheck &out = checks_[it->second];
    for (int64_t d = 0; d < kDirections; d++)
      along(g, i, stream_seed(seed_, 1000 * int64_t(it->second) + out.directions++), out);
  }
}

} // namespace tkc::driver
