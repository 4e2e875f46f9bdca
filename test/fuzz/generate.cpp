// The frame of a random kernel: target, grid, warps, parameters.
#include "generator.h"
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tkc::fuzz {

Program Generator::run() {
  static const std::vector<std::string> targets = {"sm_90", "sm_120", "sm_80", "sm_89"};
  uint32_t target = c_.pick(uint32_t(targets.size()));
  program_.target = options_.target.empty() ? targets[target] : options_.target;
  program_.policy = emu::Policy(c_.pick(4));
  static const std::vector<int64_t> extents = {16, 32, 8, 64, 1, 3, 60, 24, 4, 100, 128, 5, 48, 192};
  uint32_t dims = 2 + c_.pick(2);
  for (uint32_t d = 0; d < dims; d++) dims_.push_back(c_.of(extents));
  uint32_t rank = 1 + c_.pick(2);
  for (uint32_t g = 0; g < rank; g++) {
    grid_.push_back(fmt::format("G{}", g));
    program_.sizes[grid_.back()] = 1 + c_.pick(3);
  }
  static const std::vector<std::string> warps = {"", " warps 1", " warps 2", " warps 4", " warps 8"};
  std::string suffix = c_.of(warps);
  budget_ = 20 + int(c_.pick(60));
  for (int k = 0; k < 6 && budget_ > 0; k++) {
    Choices::Scope scope(c_);
    if (k > 0 && !c_.chance(75)) break;
    statement(2);
  }
  // What was computed is seen, the last value in any case.
  for (size_t k = values_.size(); k-- > 0;)
    if (k + 1 == values_.size() || values_[k].variable || c_.chance(60)) store_statement(values_[k]);
  if (program_.outputs.empty()) store_statement(constant(DType::F32, {}));

  std::vector<std::string> params;
  for (const Param &p : params_) params.push_back(fmt::format("{}: {}{}", p.name, p.mode, p.type));
  // Every size stands in the extents of some tensor.
  for (const auto &[name, n] : program_.sizes) {
    bool known = false;
    for (const Param &p : params_)
      known = known || p.type.find("[" + name + "]") != std::string::npos ||
              p.type.find("[" + name + ",") != std::string::npos ||
              p.type.find(" " + name + ",") != std::string::npos || p.type.find(" " + name + "]") != std::string::npos;
    if (known) continue;
    params.push_back(fmt::format("d_{}: tensor<i8>[{}]", name, name));
    program_.inputs["d_" + name] = {0, 1};
  }
  program_.text = fmt::format("kernel k({})\n    grid{} ({}){}\n{{\n", fmt::join(params, ", "),
                              c_.chance(30) ? " persistent" : "", fmt::join(grid_, ", "), suffix);
  std::string ids;
  for (size_t g = 0; g < grid_.size(); g++) ids += fmt::format("{}p{}", g ? ", " : "", g);
  program_.text += grid_.size() == 1 ? "  let p0 = program_id(0);\n" : fmt::format("  let ({}) = program_id();\n", ids);
  program_.text += body_ + "}\n";
  return program_;
}

Program generate(Choices &choices, uint64_t seed, const GenerateOptions &options) {
  return Generator(choices, seed, options).run();
}

} // namespace tkc::fuzz
