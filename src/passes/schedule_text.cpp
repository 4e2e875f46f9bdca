// The text of schedules: writing, reading, and what no schedule may say.
#include "layout/smem_layout.h"
#include "passes/schedule.h"
#include "support/check.h"
#include "support/diag_kinds.h"
#include <algorithm>
#include <charconv>
#include <fmt/ranges.h>

namespace tkc::passes {

namespace {

constexpr int64_t kMostSlots = 8;

std::string_view trimmed(std::string_view s) {
  constexpr std::string_view kBlank = " \t\r";
  size_t begin = s.find_first_not_of(kBlank);
  if (begin == s.npos) return {};
  return s.substr(begin, s.find_last_not_of(kBlank) + 1 - begin);
}

// Reads words of a statement from the left.
class Words {
public:
  explicit Words(std::string_view text) : rest_(trimmed(text)) {}
  bool end() const { return rest_.empty(); }
  std::string_view rest() const { return rest_; }
  // If the text begins with it, it is taken.
  bool take(std::string_view what) {
    if (!rest_.starts_with(what)) return false;
    rest_ = trimmed(rest_.substr(what.size()));
    return true;
  }
  std::string_view word() {
    size_t n = std::min(rest_.find_first_of(" \t:[],()"), rest_.size());
    std::string_view w = rest_.substr(0, n);
    rest_ = trimmed(rest_.substr(n));
    return w;
  }
  std::optional<int64_t> number() {
    int64_t n = 0;
    auto [stop, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), n);
    if (error != std::errc() || n < 0) return std::nullopt;
    rest_ = trimmed(rest_.substr(size_t(stop - rest_.data())));
    return n;
  }
  std::string all() { return std::string(std::exchange(rest_, {})); }

private:
  std::string_view rest_;
};

// Each reads the rest of a statement; the result says what is wrong with it, "" if nothing is.

template <typename T> std::string once(Said<T> &to, std::optional<T> v, SourceLoc loc, const char *form) {
  if (to.value) return "this is said twice";
  if (!v) return fmt::format("expected `{}`", form);
  to = {std::move(v), loc};
  return "";
}

std::string read_bytes(Words &w, Said<int64_t> &to, SourceLoc loc, const char *form) {
  std::optional<int64_t> n = w.number();
  if (!w.take("B")) n.reset();
  return once(to, n, loc, form);
}

std::string read_choice(Words &w, Said<std::string> &to, SourceLoc loc, const char *form,
                        std::initializer_list<std::string_view> choices) {
  std::string word(w.word());
  bool known = std::find(choices.begin(), choices.end(), word) != choices.end();
  return once(to, known ? std::optional(word) : std::nullopt, loc, form);
}

std::string read_field(Words &w, LoopPlan &loop, SourceLoc loc) {
  FieldPlan f;
  f.loc = loc;
  f.tensor = w.word();
  std::optional<DType> t = parse_dtype(w.word());
  bool good = !f.tensor.empty() && t && w.take("[");
  while (good && !w.take("]")) {
    std::optional<int64_t> n = w.number();
    good = n && *n > 0;
    if (good) f.tile.push_back(*n);
    if (!w.take(",") && !w.rest().starts_with("]")) good = false;
  }
  std::optional<int64_t> at = good && w.take("at") ? w.number() : std::nullopt;
  if (at) {
    f.dtype = *t;
    f.offset = *at;
    f.layout = w.all();
    bool map =
        f.layout == "record" || (f.layout.starts_with("smem[") && SmemLayout::parse(f.layout, f.tile, dtype_bytes(*t)));
    if (map || f.swizzle()) {
      loop.fields.push_back(std::move(f));
      return "";
    }
  }
  return "expected `field TENSOR DTYPE[N, ..] at N`, and then `rows`, `swizzle 32`, 64 or 128, `record`, or a map "
         "`smem[..]`";
}

std::string read_sync(Words &w, LoopPlan &loop, SourceLoc loc) {
  SynchronousLoad l;
  l.loc = loc;
  l.tensor = w.word();
  if (l.tensor.empty()) return "expected `sync TENSOR: REASON`";
  w.take(":");
  l.reason = w.all();
  loop.left.push_back(std::move(l));
  return "";
}

std::string read_ahead(Words &w, LoopPlan &loop, SourceLoc loc) {
  AheadLoad a;
  a.loc = loc;
  a.tensor = w.word();
  std::optional<int64_t> n = w.number();
  if (a.tensor.empty() || !n || *n < 1 || *n > kMostSlots)
    return fmt::format("expected `ahead TENSOR N`, 1 to {} iterations", kMostSlots);
  a.distance = *n;
  loop.ahead.push_back(std::move(a));
  return "";
}

// A statement inside a loop.
std::string read_statement(std::string_view text, SourceLoc loc, LoopPlan &loop) {
  Words w(text);
  std::string problem;
  if (w.take("synchronous")) {
    w.take(":");
    problem = once(loop.synchronous, std::optional(w.all()), loc, "synchronous: REASON");
  } else if (w.take("stages ")) {
    problem = once(loop.stages, w.number(), loc, "stages N");
  } else if (w.take("stage ")) {
    problem = read_bytes(w, loop.stage_bytes, loc, "stage N B");
  } else if (w.take("transport ")) {
    problem =
        read_choice(w, loop.transport, loc, "transport cp_async`, `mbarrier` or `tma", {"cp_async", "mbarrier", "tma"});
  } else if (w.take("producer ")) {
    problem = read_choice(w, loop.producer, loc, "producer warp` or `producer none", {"warp", "none"});
  } else if (w.take("over tiles")) {
    problem = once(loop.over_tiles, std::optional(true), loc, "over tiles");
  } else if (w.take("asks ahead")) {
    problem = once(loop.asks_ahead, std::optional(true), loc, "asks ahead");
  } else if (w.take("asks not")) {
    problem = once(loop.asks_ahead, std::optional(false), loc, "asks not");
  } else if (w.take("unroll ")) {
    problem = once(loop.unroll, w.number(), loc, "unroll N");
  } else if (w.take("ahead ")) {
    problem = read_ahead(w, loop, loc);
  } else if (w.take("field ")) {
    problem = read_field(w, loop, loc);
  } else if (w.take("sync ")) {
    problem = read_sync(w, loop, loc);
  } else if (w.take("record ")) {
    loop.records.push_back(w.all());
  } else if (w.take("not tma:")) {
    loop.not_tma = w.all();
  } else if (w.take("plain copies:")) {
    loop.plain = w.all();
  } else if (w.take("fewer stages:")) {
    loop.fewer = w.all();
  } else if (w.take("modulo:")) {
    loop.modulo = w.all();
  } else {
    return fmt::format("`{}` is no statement of a schedule", text);
  }
  if (problem.empty() && !w.end()) return fmt::format("`{}` is too much", w.rest());
  return problem;
}

// "k at 12", "k at math.tk:12 (2)"
std::string read_loop(std::string_view text, LoopPlan &loop) {
  constexpr const char *kForm =
      "expected `loop VARIABLE at LINE`, `FILE:LINE`, or either with a number in brackets behind";
  Words w(text);
  loop.variable = w.word();
  if (loop.variable.empty() || !w.take("at ")) return kForm;
  std::string place = w.all();
  if (place.ends_with(")")) {
    size_t open = place.rfind('(');
    if (open == place.npos) return kForm;
    Words n(std::string_view(place).substr(open + 1));
    std::optional<int64_t> nth = n.number();
    if (!nth || *nth < 2 || n.rest() != ")") return kForm;
    loop.nth = *nth;
    place = trimmed(std::string_view(place).substr(0, open));
  }
  if (size_t colon = place.rfind(':'); colon != place.npos) {
    loop.file = place.substr(0, colon);
    place = place.substr(colon + 1);
  }
  Words l{place};
  std::optional<int64_t> line = l.number();
  if (!line || !l.end() || *line < 1) return kForm;
  loop.line = *line;
  return "";
}

std::string read_kernel(std::string_view text, KernelPlan &k) {
  Words w(text);
  k.kernel = w.word();
  if (w.take("on ")) {
    k.target = w.word();
    if (k.target.empty()) return "expected a target";
  }
  return k.kernel.empty() || !w.end() ? "expected `kernel NAME` or `kernel NAME on TARGET`" : "";
}

class Reader {
public:
  Reader(int32_t file, Diagnostics &diags) : file_(file), diags_(diags) {}

  Schedule run() {
    const std::string &text = diags_.sources().file(file_).text();
    for (size_t begin = 0; begin < text.size();) {
      size_t end = std::min(text.find('\n', begin), text.size());
      std::string_view line = trimmed(std::string_view(text).substr(begin, end - begin));
      if (!line.empty() && line[0] != '#') {
        auto at = int32_t(line.data() - text.data());
        statement(line, {file_, at, at + int32_t(line.size())});
      }
      begin = end + 1;
    }
    for (size_t i = 0; i < out_.kernels.size(); i++) {
      const KernelPlan &k = out_.kernels[i];
      for (size_t j = 0; j < i; j++)
        if (out_.kernels[j].kernel == k.kernel && out_.kernels[j].target == k.target)
          error(k.loc, fmt::format("kernel `{}` is there twice", k.kernel));
      if (auto fault = verify(k)) error(fault->loc, fault->text);
    }
    return std::move(out_);
  }

private:
  void error(SourceLoc loc, const std::string &text) { diags_.report(loc, DiagKind::syntax, text); }

  void statement(std::string_view line, SourceLoc loc) {
    Words w(line);
    std::string problem;
    if (w.take("kernel ")) {
      KernelPlan k;
      k.loc = loc;
      problem = read_kernel(w.rest(), k);
      out_.kernels.push_back(std::move(k));
    } else if (out_.kernels.empty()) {
      problem = "a schedule begins with `kernel NAME`";
    } else if (w.take("loop ")) {
      LoopPlan loop;
      loop.loc = loc;
      problem = read_loop(w.rest(), loop);
      out_.kernels.back().loops.push_back(std::move(loop));
    } else if (w.take("shared ")) {
      problem = read_bytes(w, out_.kernels.back().shared_bytes, loc, "shared N B");
      if (problem.empty() && !w.end()) problem = fmt::format("`{}` is too much", w.rest());
    } else if (out_.kernels.back().loops.empty()) {
      problem = "this belongs to a loop: `loop VARIABLE at LINE`";
    } else {
      problem = read_statement(line, loc, out_.kernels.back().loops.back());
    }
    if (!problem.empty()) error(loc, problem);
  }

  int32_t file_;
  Diagnostics &diags_;
  Schedule out_;
};

std::optional<ScheduleFault> verify_loop(const LoopPlan &l) {
  auto fault = [](SourceLoc loc, std::string text) { return ScheduleFault{std::move(text), loc}; };
  if (l.synchronous.value && l.has_ring_statement())
    return fault(l.synchronous.loc, "a loop without a ring has no stages, transport, producer or fields");
  if (l.stages.value && (*l.stages.value < 2 || *l.stages.value > kMostSlots))
    return fault(l.stages.loc, fmt::format("a ring has 2 to {} stages, not {}", kMostSlots, *l.stages.value));
  if (l.unroll.value && l.stages.value && *l.unroll.value > 1 && *l.unroll.value != *l.stages.value)
    return fault(l.unroll.loc, "a loop is unrolled by the number of its ring's slots or not at all (1)");
  if (l.transport.value && l.producer.value) {
    if (l.transport.value == "cp_async" && l.producer.value == "warp")
      return fault(l.producer.loc, "by cp_async the threads that read also copy: with a producer it is mbarrier");
    if (l.transport.value == "mbarrier" && l.producer.value == "none")
      return fault(l.producer.loc, "by mbarrier a producer copies: without one it is cp_async");
  }
  for (const FieldPlan &f : l.fields) {
    auto bytes = [](const FieldPlan &x) {
      int64_t n = dtype_bytes(x.dtype);
      for (int64_t e : x.tile) n *= e;
      return n;
    };
    int64_t end = f.offset + bytes(f);
    if (l.stage_bytes.value && end > *l.stage_bytes.value)
      return fault(f.loc, fmt::format("this field ends at {} B of a slot that has {}", end, *l.stage_bytes.value));
    for (const FieldPlan &g : l.fields)
      if (&g < &f && f.offset < g.offset + bytes(g) && g.offset < end)
        return fault(f.loc, fmt::format("this field overlaps that of `{}`", g.tensor));
  }
  return std::nullopt;
}

} // namespace

std::optional<ScheduleFault> verify(const KernelPlan &k) {
  const Said<std::string> *producer = nullptr;
  int64_t ring_bytes = 0;
  for (size_t i = 0; i < k.loops.size(); i++) {
    const LoopPlan &l = k.loops[i];
    for (size_t j = 0; j < i; j++)
      if (k.loops[j].name() == l.name()) return ScheduleFault{fmt::format("loop `{}` is there twice", l.name()), l.loc};
    if (auto fault = verify_loop(l)) return fault;
    if (l.producer.value && producer && *producer->value != *l.producer.value)
      return ScheduleFault{"either a producer copies for all loops of a kernel or for none", l.producer.loc};
    if (l.producer.value) producer = &l.producer;
    if (l.stages.value && l.stage_bytes.value)
      ring_bytes = std::max(ring_bytes, *l.stages.value * *l.stage_bytes.value);
  }
  if (k.shared_bytes.value && *k.shared_bytes.value < ring_bytes)
    return ScheduleFault{fmt::format("a ring has {} B, the block {}", ring_bytes, *k.shared_bytes.value),
                         k.shared_bytes.loc};
  return std::nullopt;
}

std::optional<int64_t> FieldPlan::swizzle() const {
  if (layout == "rows") return 0;
  for (int64_t n : {32, 64, 128})
    if (layout == fmt::format("swizzle {}", n)) return n;
  return std::nullopt;
}

std::string FieldPlan::to_string() const {
  return fmt::format("field {} {}[{}] at {} {}", tensor, dtype_name(dtype), fmt::join(tile, ", "), offset, layout);
}

bool LoopPlan::has_ring_statement() const {
  return stages.value || stage_bytes.value || transport.value || producer.value || over_tiles.value || !fields.empty();
}

std::string LoopPlan::name() const {
  std::string place = file.empty() ? fmt::format("{}", line) : fmt::format("{}:{}", file, line);
  return fmt::format("{} at {}{}", variable, place, nth > 1 ? fmt::format(" ({})", nth) : "");
}

std::vector<std::string> LoopPlan::statements() const {
  std::vector<std::string> out = {"loop " + name()};
  if (synchronous.value) out.push_back("synchronous: " + *synchronous.value);
  if (stages.value) out.push_back(fmt::format("stages {}", *stages.value));
  if (transport.value) out.push_back("transport " + *transport.value);
  if (producer.value) out.push_back("producer " + *producer.value);
  if (over_tiles.value) out.push_back("over tiles");
  if (asks_ahead.value) out.push_back(*asks_ahead.value ? "asks ahead" : "asks not");
  if (unroll.value) out.push_back(fmt::format("unroll {}", *unroll.value));
  for (const AheadLoad &a : ahead) out.push_back(fmt::format("ahead {} {}", a.tensor, a.distance));
  if (stage_bytes.value) out.push_back(fmt::format("stage {} B", *stage_bytes.value));
  for (const FieldPlan &f : fields) out.push_back(f.to_string());
  for (const std::string &r : records) out.push_back("record " + r);
  for (const SynchronousLoad &l : left) out.push_back(fmt::format("sync {}: {}", l.tensor, l.reason));
  if (!not_tma.empty()) out.push_back("not tma: " + not_tma);
  if (!plain.empty()) out.push_back("plain copies: " + plain);
  if (!fewer.empty()) out.push_back("fewer stages: " + fewer);
  if (!modulo.empty()) out.push_back("modulo: " + modulo);
  return out;
}

std::string KernelPlan::to_string() const {
  std::string out = "kernel " + kernel + (target.empty() ? "" : " on " + target) + "\n";
  if (shared_bytes.value) out += fmt::format("shared {} B\n", *shared_bytes.value);
  for (const LoopPlan &l : loops) {
    std::vector<std::string> lines = l.statements();
    for (size_t i = 0; i < lines.size(); i++) out += (i ? "  " : "") + lines[i] + "\n";
  }
  return out;
}

std::string Schedule::to_string() const {
  std::string out;
  for (const KernelPlan &k : kernels) out += (out.empty() ? "" : "\n") + k.to_string();
  return out;
}

bool plans_for(const std::string &planned, const std::string &kernel) {
  return kernel == planned || kernel.starts_with(planned + "__");
}

const KernelPlan *Schedule::find(const std::string &kernel, const std::string &target) const {
  const KernelPlan *found = nullptr;
  int best = -1;
  for (const KernelPlan &k : kernels) {
    bool exact = k.kernel == kernel;
    if (!plans_for(k.kernel, kernel) || (!k.target.empty() && k.target != target)) continue;
    int fit = 2 * !k.target.empty() + exact;
    if (fit > best) best = fit, found = &k;
  }
  return found;
}

std::optional<Schedule> parse_schedule(int32_t file, Diagnostics &diags) {
  int64_t errors = diags.error_count();
  Schedule out = Reader(file, diags).run();
  if (diags.error_count() > errors) return std::nullopt;
  return out;
}

LoopPlan parse_loop_plan(const std::vector<std::string> &statements) {
  LoopPlan loop;
  for (size_t i = 0; i < statements.size(); i++) {
    std::string problem =
        i == 0 ? read_loop(std::string_view(statements[0]).substr(5), loop) : read_statement(statements[i], {}, loop);
    TKC_CHECK(problem.empty(), "schedule of a loop: `{}`: {}", statements[i], problem);
  }
  return loop;
}

} // namespace tkc::passes
