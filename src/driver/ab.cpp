#include "driver/ab.h"
#include <charconv>
#include <sstream>

namespace tkc::driver {

Result<Variant> parse_variant(std::string_view text) {
  Variant out;
  out.text = text;
  std::istringstream words{std::string(text)};
  for (std::string word; words >> word;) {
    auto option = [&](std::string_view name, std::string &value) {
      if (word != name && !word.starts_with(std::string(name) + "=")) return false;
      value = word.size() > name.size() ? word.substr(name.size() + 1) : "";
      if (value.empty()) words >> value;
      return true;
    };
    std::string value;
    auto positive = [&](int64_t &number) {
      auto r = std::from_chars(value.data(), value.data() + value.size(), number);
      return r.ec == std::errc() && r.ptr == value.data() + value.size() && number > 0;
    };
    if (option("--maxnreg", value)) {
      if (value.empty()) return failure("`{}`: --maxnreg needs a number", text);
      if (!positive(out.max_registers)) return failure("`{}`: `{}` is no number of registers", text, value);
      continue;
    }
    if (word == "--baseline" || word == "--baseline=unfused") {
      if (word == "--baseline" && (!(words >> word) || word != "unfused"))
        return failure("`{}`: --baseline is `unfused`", text);
      out.unfused = true;
      continue;
    }
    if (option("--stages", value)) {
      if (!positive(out.stages)) return failure("`{}`: --stages needs a number of slots, 1 for none", text);
      continue;
    }
    if (option("--schedule", out.schedule)) {
      if (out.schedule.empty()) return failure("`{}`: --schedule needs a file", text);
      continue;
    }
    if (word == "-P" && !(words >> word)) return failure("`{}`: -P needs NAME=VALUE", text);
    size_t eq = word.find('=');
    if (word.starts_with("-") || eq == word.npos || eq == 0 || eq + 1 == word.size())
      return failure("`{}`: a variant is made of NAME=VALUE, --maxnreg N, --stages N, --schedule FILE and --baseline "
                     "unfused, not `{}`",
                     text, word);
    out.params[word.substr(0, eq)] = word.substr(eq + 1);
  }
  return out;
}

namespace {

VerifyOptions options_of(const AbSide &s, const AbOptions &o) {
  VerifyOptions v = o.base;
  for (const auto &[name, value] : s.variant.params) v.overrides.params[name] = value;
  v.unfused = s.variant.unfused;
  v.graph |= s.variant.unfused;
  if (s.variant.stages > 0) v.compile.passes.most_stages = s.variant.stages;
  if (s.variant.max_registers > 0) v.compile.max_registers = s.variant.max_registers;
  if (s.schedule) v.compile.passes.schedule = s.schedule;
  return v;
}

// Whether every case of the verify block passes.
Result<bool> verify_side(char name, const AbSide &s, const AbOptions &o) {
  const ast::Check *check = s.program->check_for(s.kernel->name.text, false);
  if (!check)
    return failure("{}: kernel `{}` has no verify block; a variant that is not checked is not timed", name,
                   s.kernel->name.text);
  VerifyOptions v = options_of(s, o);
  v.only_case.clear();
  bool good = true;
  int64_t ran = 0;
  std::optional<Error> ended;
  verify_kernel(*s.program, *s.kernel, *check, v, *s.diags, [&](const CaseResult &r) {
    if (r.skipped) return;
    ran++;
    good &= r.pass();
    if (!r.error.empty() && r.error_kind != ErrorKind::Failure) ended = Error{r.error, r.error_kind};
    if (o.verified) o.verified(name, r);
  });
  if (s.diags->has_errors()) return failure("the kernel has errors");
  if (ended) return *ended;
  if (ran == 0) return failure("{}: no case of the verify block can run here", name);
  return good;
}

Json inputs_json(const std::vector<std::pair<std::string, uint64_t>> &inputs) {
  Json j = Json::object();
  for (const auto &[name, sum] : inputs) j.set(name, fmt::format("{:016x}", sum));
  return j;
}

} // namespace

Json AbCase::to_json() const {
  Json j = result.to_json(), a = Json::array(), b = Json::array(), first = Json::array();
  for (double s : samples.a) a.push(s);
  for (double s : samples.b) b.push(s);
  for (bool f : samples.b_first) first.push(f ? "b" : "a");
  j.set("case", name).set("inputsA", inputs_json(inputs_a)).set("inputsB", inputs_json(inputs_b));
  return j.set("samplesA", std::move(a)).set("samplesB", std::move(b)).set("first", std::move(first));
}

Result<AbReport> compare_sides(const AbSide &a, const AbSide &b, const AbOptions &o) {
  AbReport report;
  for (const auto &[name, side] : {std::pair('a', &a), std::pair('b', &b)}) {
    Result<bool> good = verify_side(name, *side, o);
    if (!good) return good.failed();
    report.mismatch |= !*good;
  }
  if (report.mismatch) return report;
  const ast::Check *bench_a = a.program->check_for(a.kernel->name.text, true);
  const ast::Check *bench_b = b.program->check_for(b.kernel->name.text, true);
  if (!bench_a || !bench_b) return failure("kernel `{}` has no bench block", (bench_a ? b : a).kernel->name.text);
  for (const ast::Case &c : bench_a->cases) {
    if (!o.base.only_case.empty() && c.name.text != o.base.only_case) continue;
    const ast::Case *other = nullptr;
    for (const ast::Case &d : bench_b->cases)
      if (d.name.text == c.name.text) other = &d;
    if (!other) continue;
    auto spec_a = sema::evaluate_case(*a.program, *a.kernel, *bench_a, c, *a.diags);
    auto spec_b = sema::evaluate_case(*b.program, *b.kernel, *bench_b, *other, *b.diags);
    if (!spec_a || !spec_b) return failure("the kernel has errors");
    auto side_a = PreparedBench::create(*a.program, *a.kernel, *bench_a, *spec_a, options_of(a, o), *a.diags);
    if (!side_a) return side_a.failed();
    auto side_b =
        PreparedBench::create(*b.program, *b.kernel, *bench_b, *spec_b, options_of(b, o), *b.diags, side_a->get());
    if (!side_b) return side_b.failed();
    AbCase out;
    out.name = c.name.text;
    out.shared_tensors = (*side_a)->tensors == (*side_b)->tensors;
    out.compared_groups = std::min((*side_a)->groups, (*side_b)->groups);
    out.inputs_a = (*side_a)->tensors->checksums(out.compared_groups);
    out.inputs_b = (*side_b)->tensors->checksums(out.compared_groups);
    auto progress = [&](int64_t done) { return !o.progress || o.progress(out.name, done, o.rounds); };
    if (!progress(0)) return report;
    auto samples = run_ab([&] { return (*side_a)->measure(o.convention); },
                          [&] { return (*side_b)->measure(o.convention); }, o.rounds, o.order_seed, progress);
    if (!samples) return samples.failed();
    out.samples = std::move(*samples);
    report.stopped = int64_t(out.samples.a.size()) < o.rounds;
    auto result = compare_pairs(out.samples.a, out.samples.b);
    if (!result && report.stopped) return report;
    if (!result) return result.failed();
    out.result = *result;
    report.cases.push_back(std::move(out));
    if (report.stopped) return report;
  }
  if (report.cases.empty())
    return o.base.only_case.empty() ? failure("the bench blocks have no case in common")
                                    : failure("no bench block has a case `{}`", o.base.only_case);
  return report;
}

} // namespace tkc::driver
