#include "driver/bench_files.h"
#include "runtime/file_io.h"
#include "runtime/json_reader.h"
#include <algorithm>
#include <cmath>

namespace tkc::driver {

namespace {
using Kind = JsonValue::Kind;

Result<JsonValue> read_json(const std::string &path) {
  Result<std::vector<uint8_t>> bytes = read_file(path);
  if (!bytes) return bytes.failed();
  Result<JsonValue> v = parse_json(std::string_view(reinterpret_cast<const char *>(bytes->data()), bytes->size()));
  if (!v) return failure("`{}`: {}", path, v.error());
  return v;
}

Result<std::vector<double>> numbers(const JsonValue &list, const std::string &path) {
  std::vector<double> out;
  for (const JsonValue &v : list.items) {
    if (!v.is(Kind::Number) || !(v.number > 0) || std::isinf(v.number))
      return failure("`{}`: sample {} is no positive number of seconds", path, out.size());
    out.push_back(v.number);
  }
  return out;
}

const JsonValue *results_of(const JsonValue &file) {
  const JsonValue *format = file.find("format"), *results = file.find("results");
  bool good = format && format->text == "tkc-bench" && results && results->is(Kind::Array);
  return good ? results : nullptr;
}

std::string text_of(const JsonValue &object, std::string_view key) {
  const JsonValue *v = object.find(key);
  return v ? v->text : "";
}

// Name and seconds of every result; no seconds where there is a reason instead.
Result<std::vector<std::pair<std::string, std::optional<double>>>> read_results(const std::string &path) {
  Result<JsonValue> file = read_json(path);
  if (!file) return file.failed();
  const JsonValue *results = results_of(*file);
  if (!results) return failure("`{}` is not a file of `tkc bench --json`", path);
  std::vector<std::pair<std::string, std::optional<double>>> out;
  for (const JsonValue &r : results->items) {
    std::string what = text_of(r, "kernel") + "." + text_of(r, "case");
    if (const JsonValue *params = r.find("params"))
      for (size_t i = 0; i < params->keys.size(); i++) what += " " + params->keys[i] + "=" + params->items[i].text;
    const JsonValue *seconds = r.find("seconds");
    bool measured = seconds && seconds->is(Kind::Number) && seconds->number > 0;
    out.emplace_back(what, measured ? std::optional(seconds->number) : std::nullopt);
  }
  return out;
}
} // namespace

Result<std::vector<double>> read_samples(const std::string &path) {
  Result<JsonValue> file = read_json(path);
  if (!file) return file.failed();
  if (file->is(Kind::Array)) return numbers(*file, path);
  const JsonValue *from = &*file;
  if (const JsonValue *results = results_of(*file)) {
    if (results->items.size() != 1) return failure("`{}` holds {} results, not one", path, results->items.size());
    from = &results->items[0];
  }
  const JsonValue *samples = from->find("samples");
  if (!samples || !samples->is(Kind::Array)) return failure("`{}` holds no array `samples`", path);
  return numbers(*samples, path);
}

Result<std::vector<BenchChange>> compare_bench_files(const std::string &before, const std::string &after) {
  auto old = read_results(before), fresh = read_results(after);
  if (!old) return old.failed();
  if (!fresh) return fresh.failed();
  std::vector<BenchChange> out;
  for (const auto &[what, seconds] : *old) out.push_back({what, seconds, std::nullopt});
  for (const auto &[what, seconds] : *fresh) {
    auto it = std::find_if(out.begin(), out.end(), [&, &w = what](const BenchChange &c) { return c.what == w; });
    if (it == out.end()) it = out.insert(out.end(), {what, std::nullopt, std::nullopt});
    it->after = seconds;
  }
  return out;
}

static bool regressed(const BenchChange &c, double threshold) {
  return c.before && (!c.after || c.ratio() > 1 + threshold);
}

bool has_regression(const std::vector<BenchChange> &changes, double threshold) {
  return std::any_of(changes.begin(), changes.end(), [&](const BenchChange &c) { return regressed(c, threshold); });
}

std::string to_string(const std::vector<BenchChange> &changes, double threshold) {
  size_t width = 6;
  for (const BenchChange &c : changes) width = std::max(width, c.what.size());
  auto time = [](const std::optional<double> &s) { return s ? fmt::format("{:.2f}", *s * 1e6) : std::string("-"); };
  std::string out = fmt::format("{:<{}}  {:>10}  {:>10}  {:>8}\n", "kernel", width, "before us", "after us", "change");
  for (const BenchChange &c : changes) {
    std::string change = c.before && c.after ? fmt::format("{:+.2f}%", (c.ratio() - 1) * 100) : "-";
    const char *verdict = regressed(c, threshold)                                  ? "  slower"
                          : c.before && c.after && c.ratio() < 1 / (1 + threshold) ? "  faster"
                                                                                   : "";
    out += fmt::format("{:<{}}  {:>10}  {:>10}  {:>8}{}\n", c.what, width, time(c.before), time(c.after), change,
                       c.before && !c.after ? "  not measured" : verdict);
  }
  return out;
}

} // namespace tkc::driver
