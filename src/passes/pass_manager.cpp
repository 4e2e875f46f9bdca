#include "passes/pass_manager.h"
#include "ir/print.h"
#include "support/diagnostics.h"
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>

namespace tkc::passes {

namespace {

class Stopwatch {
public:
  double ms() const {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start_).count();
  }

private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

bool always_runs(const Pass &p) { return !p.optional || p.reaches.has_value(); }

} // namespace

bool PassManager::check_options(const PassOptions &options) {
  std::vector<std::string> names;
  for (const Pass &p : passes_)
    if (!always_runs(p)) names.push_back(p.name);
  for (const std::string &s : options.skip) {
    if (std::find(names.begin(), names.end(), s) != names.end()) continue;
    bool needed = std::any_of(passes_.begin(), passes_.end(), [&](const Pass &p) { return s == p.name; });
    std::string near = nearest_name(s, names);
    problem_ = needed ? fmt::format("pass `{}` cannot be skipped: later passes need it", s)
                      : fmt::format("there is no pass `{}`{}", s,
                                    near.empty() ? "" : fmt::format("; did you mean `{}`?", near));
    return false;
  }
  return true;
}

bool PassManager::dump(const ir::Function &f, const PassOptions &options, size_t number, const std::string &name) {
  if (options.dump_dir.empty()) return true;
  std::error_code error;
  std::filesystem::create_directories(options.dump_dir, error);
  std::string path = fmt::format("{}/{:03}.{}.tkir", options.dump_dir, number, name);
  std::ofstream out(path, std::ios::binary);
  std::string text = ir::print(f);
  out.write(text.data(), std::streamsize(text.size()));
  out.flush();
  if (out) return true;
  problem_ = fmt::format("cannot write `{}`", path);
  return false;
}

bool PassManager::check(const ir::Function &f, ir::Stage stage, const std::string &after) {
  std::vector<std::string> faults = ir::verify(f, stage);
  if (faults.empty()) return true;
  problem_ = fmt::format("`{}` is not valid {} IR {}:", f.name, ir::stage_name(stage), after);
  constexpr size_t kShown = 8;
  for (size_t i = 0; i < std::min(faults.size(), kShown); i++) problem_ += "\n  " + faults[i];
  if (faults.size() > kShown) problem_ += fmt::format("\n  and {} more", faults.size() - kShown);
  return false;
}

PassManager::Outcome PassManager::run(ir::Function &f, PassContext &context) {
  const PassOptions &options = context.options;
  timings_.clear();
  problem_.clear();
  ir::Stage stage = ir::Stage::typed;
  if (!check_options(options) || !dump(f, options, 0, "input") || !check(f, stage, "at the start"))
    return Outcome::broken;
  int64_t optional_left = options.bisect < 0 ? INT64_MAX : options.bisect;
  for (size_t i = 0; i < passes_.size(); i++) {
    const Pass &p = passes_[i];
    Timing &t = timings_.emplace_back();
    t.name = p.name;
    t.why = p.why;
    if (!always_runs(p)) {
      if (std::find(options.skip.begin(), options.skip.end(), p.name) != options.skip.end()) continue;
      if (optional_left-- <= 0) continue;
    }
    std::string before = options.check_unchanged ? ir::print(f) : "";
    int64_t errors = context.diags.error_count();
    Stopwatch pass_time;
    t.changed = p.run(f, context);
    t.ran = true;
    t.pass_ms = pass_time.ms();
    if (context.diags.error_count() != errors) return Outcome::rejected;
    Stopwatch check_time;
    if (p.reaches) stage = std::max(stage, *p.reaches);
    if (!dump(f, options, i + 1, fmt::format("{}.{}", p.name, t.changed ? "changed" : "unchanged")))
      return Outcome::broken;
    if (options.check_unchanged && !t.changed && ir::print(f) != before) {
      problem_ = fmt::format("pass `{}` changed `{}` but reports no change", p.name, f.name);
      return Outcome::broken;
    }
    if ((t.changed || p.reaches) && !check(f, stage, fmt::format("after pass `{}`", p.name))) return Outcome::broken;
    t.check_ms = check_time.ms();
  }
  return Outcome::ok;
}

std::string PassManager::time_report() const {
  size_t width = 5;
  for (const Timing &t : timings_) width = std::max(width, std::string_view(t.name).size());
  std::string out = fmt::format("{:<{}}  {:>9}  {:>9}  {:<9}  {}\n", "pass", width, "ms", "check ms", "result", "why");
  double pass = 0, checks = 0;
  for (const Timing &t : timings_) {
    const char *result = !t.ran ? "skipped" : t.changed ? "changed" : "unchanged";
    out += fmt::format("{:<{}}  {:>9.3f}  {:>9.3f}  {:<9}  {}\n", t.name, width, t.pass_ms, t.check_ms, result, t.why);
    pass += t.pass_ms;
    checks += t.check_ms;
  }
  return out + fmt::format("{:<{}}  {:>9.3f}  {:>9.3f}\n", "total", width, pass, checks);
}

} // namespace tkc::passes
