#include "driver/bench.h"
#include "driver/bench_tensors.h"
#include "runtime/statistics.h"
#include <algorithm>
#include <charconv>
#include <cmath>

namespace tkc::driver {

Result<std::unique_ptr<PreparedBench>> PreparedBench::create(sema::Program &program, const ast::Function &kernel,
                                                             const ast::Check &check, const sema::CaseSpec &c,
                                                             const VerifyOptions &o, Diagnostics &diags,
                                                             const PreparedBench *share) {
  sema::InstanceSpec spec = c.spec;
  for (const auto &[k, v] : o.overrides.params) spec.params[k] = v;
  spec.absent.insert(o.overrides.absent.begin(), o.overrides.absent.end());
  if (kernel.kind == ast::FunctionKind::Program || o.unfused)
    return create_program(program, kernel, check, c, spec, o, diags, share);
  auto compiled = compile_kernel(program, kernel, spec, o.compile, diags);
  if (!compiled) return failure("the kernel has errors");
  const ir::Function &f = *compiled->function;
  Result<LaunchData> data = bench_shapes(program, check, f, c, diags);
  if (!data) return data.failed();
  auto grid = launch_grid(f, *data, diags.sources());
  if (!grid) return grid.failed();

  auto out = prepare(o, compiled->code.ptx);
  if (!out) return out.failed();
  PreparedBench &b = **out;
  const codegen::KernelAbi &abi = compiled->code.abis[may_use_aligned(f, *data) ? 0 : 1];
  auto entry = b.module_.kernel(abi.entry);
  if (!entry) return entry.failed();
  b.describe(program, kernel, check, c, f, diags);
  b.entry = abi.entry;
  b.registers = entry->registers;
  b.local_bytes = entry->local_bytes;
  b.shared_bytes = abi.shared_bytes;
  TKC_TRY(b.make_groups({program, check, f, c, diags, *data}, 0, share));
  tkc::Launch how;
  auto blocks = launch_blocks(abi, *grid, *entry);
  if (!blocks) return blocks.failed();
  how.grid[0] = *blocks;
  how.block[0] = abi.threads;
  how.dynamic_shared = abi.shared_bytes;
  for (int64_t g = 0; g < b.groups; g++) {
    const std::vector<uint64_t> &addresses = b.tensors->addresses[size_t(g)];
    auto blob = parameter_blob(
        f, abi, *data, [&](size_t i) { return addresses[i]; }, encode_for(*o.device));
    if (!blob) return blob.failed();
    auto prepared = PreparedLaunch::create(*entry, how, Params::from_blob(blob->bytes, blob->offsets));
    if (!prepared) return prepared.failed();
    b.launches_.push_back(std::move(*prepared));
  }
  if (auto n = entry->blocks_per_sm(abi.threads, abi.shared_bytes)) b.blocks_per_sm = *n;
  return out;
}

Result<std::unique_ptr<PreparedBench>> PreparedBench::prepare(const VerifyOptions &o, const std::string &ptx) {
  auto module = Module::load_ptx(*o.device, ptx);
  if (!module) return module.failed();
  auto stream = Stream::create(*o.device);
  if (!stream) return stream.failed();
  return std::unique_ptr<PreparedBench>(new PreparedBench(std::move(*module), std::move(*stream), o.gpu_limit()));
}

void PreparedBench::describe(sema::Program &program, const ast::Function &ast, const ast::Check &check,
                             const sema::CaseSpec &c, const ir::Function &f, Diagnostics &diags) {
  kernel = ast.name.text;
  name = c.name;
  counts = sema::evaluate_counts(program, check, numbers_of(f, c), diags);
}

Status PreparedBench::make_groups(const BenchSource &source, int64_t workspace_bytes, const PreparedBench *share) {
  Device &device = stream_.device();
  int64_t call_bytes = workspace_bytes;
  for (size_t i = 0; i < source.f.params.size(); i++)
    if (source.f.params[i].type.is_tensor() && source.f.params[i].present) call_bytes += memory_bytes(source.data, i);
  groups = bench_groups(std::max<int64_t>(call_bytes, 1), device.info().l2_bytes);
  if (share && share->groups == groups && !share->tensors->written_inputs &&
      share->tensors->signature == signature_of(source)) {
    tensors = share->tensors;
    return {};
  }
  auto made = make_tensors(source, groups, device);
  if (!made) return made.failed();
  tensors = *made;
  return {};
}

Status PreparedBench::launch(int64_t group) {
  if (!graphs_.empty()) return graphs_[size_t(group)].launch(stream_);
  if (!programs_.empty()) return programs_[size_t(group)].queue(stream_);
  return launches_[size_t(group)].queue(stream_);
}

Result<double> PreparedBench::measure(const BenchOptions &convention) {
  auto clock = GpuClock::create(stream_, limit_seconds_);
  if (!clock) return clock.failed();
  return run_convention(*this, **clock, groups, convention);
}

// ---- sweeps

Result<std::vector<Setting>> expand_sweep(const Setting &lists) {
  std::vector<Setting> out = {{}};
  for (const auto &[name, list] : lists) {
    std::vector<Setting> next;
    std::vector<std::string> values;
    for (size_t at = 0; at <= list.size();) {
      size_t comma = std::min(list.find(',', at), list.size());
      values.push_back(list.substr(at, comma - at));
      if (values.back().empty()) return failure("-P {}={}: a value is missing", name, list);
      at = comma + 1;
    }
    for (const Setting &s : out)
      for (const std::string &v : values) {
        next.push_back(s);
        next.back()[name] = v;
      }
    out = std::move(next);
  }
  return out;
}

Result<std::string> expand_stages(std::string_view text) {
  constexpr int64_t kMost = 64;
  std::string out;
  for (size_t at = 0; at <= text.size();) {
    size_t comma = std::min(text.find(',', at), text.size());
    std::string_view item = text.substr(at, comma - at);
    size_t dots = item.find("..");
    int64_t lo = 0, hi = 0;
    auto number = [](std::string_view digits, int64_t &to) {
      auto r = std::from_chars(digits.data(), digits.data() + digits.size(), to);
      return r.ec == std::errc() && r.ptr == digits.data() + digits.size() && to >= 1 && to <= kMost;
    };
    bool good = number(item.substr(0, dots), lo);
    good = good && (dots == item.npos ? (hi = lo, true) : number(item.substr(dots + 2), hi));
    if (!good || hi < lo)
      return failure("--stages {}: a list of numbers from 1 to {} and ranges, as in 1,2..4", text, kMost);
    for (int64_t n = lo; n <= hi; n++) out += fmt::format("{}{}", out.empty() ? "" : ",", n);
    at = comma + 1;
  }
  return out;
}

std::string setting_text(const Setting &s, std::string_view before_each) {
  std::string out;
  for (const auto &[name, value] : s) out += fmt::format("{}{}{}={}", out.empty() ? "" : " ", before_each, name, value);
  return out;
}

double BenchRow::seconds() const { return quantile(samples, 0.5); }

bool BenchRow::drifts() const {
  constexpr size_t kLeast = 5; // fewer rounds are no trend
  return samples.size() >= kLeast && std::fabs(summarize(samples).drift) > 0.02;
}

double BenchRow::floor_seconds() const {
  double out = 0;
  auto add = [&](const char *what, double rate) {
    if (auto it = counts.find(what); it != counts.end() && rate > 0) out = std::max(out, it->second / rate);
  };
  if (ceilings) add("bytes", ceilings->bytes), add("flops", ceilings->flops);
  return out;
}

std::string BenchRow::rates() const {
  std::string out;
  if (!fits()) return out;
  for (const auto &[what, n] : counts) {
    if (what == "bytes") out += fmt::format("  {:.3f} TB/s", n / seconds() * 1e-12);
    if (what == "flops") out += fmt::format("  {:.1f} TFLOP/s", n / seconds() * 1e-12);
  }
  if (floor_seconds() > 0) out += fmt::format("  {:.0f}% of the floor", floor_seconds() / seconds() * 100);
  return out;
}

Json BenchRow::to_json() const {
  Json j = Json::object(), params = Json::object(), numbers = Json::object(), list = Json::array();
  for (const auto &[name, value] : setting) params.set(name, value);
  j.set("kernel", kernel).set("case", name).set("params", std::move(params));
  if (!fits()) return j.set("reason", reason);
  for (const auto &[what, n] : counts) numbers.set(what, n);
  for (double s : samples) list.push(s);
  j.set("seconds", seconds())
      .set("samples", std::move(list))
      .set("counts", std::move(numbers))
      .set("drifting", drifts());
  j.set("groups", groups).set("entry", entry).set("registers", registers).set("localBytes", local_bytes);
  j.set("blocksPerSM", blocks_per_sm);
  if (ceilings && floor_seconds() > 0) {
    j.set("floorSeconds", floor_seconds()).set("ofFloor", floor_seconds() / seconds());
    j.set("copyBytesPerSecond", ceilings->bytes).set("productFlopsPerSecond", ceilings->flops);
  }
  if (breakdown.parts.empty()) return j;
  Json kernels = Json::array();
  for (const BenchPart &p : breakdown.parts) {
    Json k = Json::object();
    k.set("kernel", p.kernel).set("launches", p.launches).set("seconds", p.seconds).set("gap", p.gap);
    kernels.push(k.set("exposed", p.exposed).set("share", (p.gap + p.exposed) / breakdown.seconds));
  }
  j.set("workspaceBytes", workspace_bytes).set("graph", graph).set("launches", std::move(kernels));
  return j.set("stampedSeconds", breakdown.seconds).set("idle", breakdown.idle);
}

// The first error of a compilation in one line.
static std::string first_error(const Diagnostics &diags) {
  for (const Diagnostic &d : diags.all())
    if (d.severity == Severity::Error) return d.text;
  return "";
}

BenchRow bench_case(sema::Program &program, const ast::Function &kernel, const ast::Check &check,
                    const sema::CaseSpec &c, const VerifyOptions &options, const Setting &setting, int64_t rounds,
                    SourceManager &sources, const BenchOptions &convention) {
  BenchRow out;
  out.kernel = kernel.name.text;
  out.name = c.name;
  out.setting = setting;
  Diagnostics diags(sources); // a configuration that does not fit is a row of the table, not an error of the file
  VerifyOptions o = options;
  for (const auto &[name, value] : setting)
    if (name == kStages)
      o.compile.passes.most_stages = std::stoll(value);
    else
      o.overrides.params[name] = value;
  auto fail = [&](const Error &e) {
    std::string error = first_error(diags);
    out.reason = error.empty() ? e.message : error;
    out.kind = e.kind;
    return out;
  };
  auto prepared = PreparedBench::create(program, kernel, check, c, o, diags);
  if (!prepared) return fail(prepared.failed());
  PreparedBench &b = **prepared;
  out.counts = b.counts;
  out.groups = b.groups;
  out.registers = b.registers;
  out.local_bytes = b.local_bytes;
  out.blocks_per_sm = b.blocks_per_sm;
  out.entry = b.entry;
  out.workspace_bytes = b.workspace_bytes;
  out.graph = options.graph;
  out.remarks = b.remarks;
  for (int64_t r = 0; r < rounds; r++) {
    Result<double> seconds = b.measure(convention);
    // What was measured before an interruption counts.
    if (!seconds && (out.samples.empty() || seconds.kind() != ErrorKind::Interrupted)) {
      out.samples.clear();
      return fail(seconds.failed());
    }
    if (!seconds) break;
    out.samples.push_back(*seconds);
  }
  if (auto breakdown = b.breakdown(convention))
    out.breakdown = std::move(*breakdown);
  else if (breakdown.kind() != ErrorKind::Interrupted)
    return fail(breakdown.failed());
  return out;
}

std::string breakdown_table(const BenchRow &r) {
  const Breakdown &b = r.breakdown;
  if (b.parts.empty()) return "";
  constexpr size_t kMost = 16; // lines; of more kernels those that take most
  std::vector<BenchPart> parts = b.parts;
  if (parts.size() > kMost) {
    std::stable_sort(parts.begin(), parts.end(),
                     [](const BenchPart &x, const BenchPart &y) { return x.gap + x.exposed > y.gap + y.exposed; });
    BenchPart others;
    others.kernel = fmt::format("{} others", parts.size() - kMost + 1);
    for (size_t i = kMost - 1; i < parts.size(); i++) {
      others.launches += parts[i].launches, others.seconds += parts[i].seconds;
      others.gap += parts[i].gap, others.exposed += parts[i].exposed;
    }
    parts.resize(kMost - 1);
    parts.push_back(others);
  }
  std::string out;
  for (const BenchPart &p : parts)
    out += fmt::format("    {:<28} {:>10.2f} us  {:>5.1f}%  gap before {:>8.2f} us  ({} a call)\n", p.kernel,
                       p.seconds * 1e6, (p.gap + p.exposed) / b.seconds * 100, p.gap * 1e6, p.launches);
  double off = b.seconds / r.seconds() - 1;
  out += fmt::format("    {:<28} {:>10.2f} us  {:+.1f}% of the call  GPU idle {:.1f}%{}\n", "sum, by stamps",
                     b.seconds * 1e6, off * 100, b.idle * 100,
                     std::fabs(off) > kStampTolerance ? "  (the stamps disturb it: take the shares with care)" : "");
  return out;
}

static std::vector<const BenchRow *> by_time(const std::vector<BenchRow> &rows) {
  std::vector<const BenchRow *> out;
  for (const BenchRow &r : rows) out.push_back(&r);
  std::stable_sort(out.begin(), out.end(), [](const BenchRow *a, const BenchRow *b) {
    if (a->fits() != b->fits()) return a->fits();
    return a->fits() && a->seconds() < b->seconds();
  });
  return out;
}

std::string sweep_table(const std::vector<BenchRow> &rows) {
  size_t width = 13;
  for (const BenchRow &r : rows) width = std::max(width, setting_text(r.setting).size());
  std::string out = fmt::format("{:<{}}  {:>10}  {:>8}  {:>9}  {:>9}\n", "configuration", width, "us", "spread",
                                "registers", "blocks/SM");
  for (const BenchRow *r : by_time(rows)) {
    std::string name = setting_text(r->setting);
    if (r->fits())
      out += fmt::format("{:<{}}  {:>10.2f}  {:>7.2f}%  {:>9}  {:>9}{}\n", name, width, r->seconds() * 1e6,
                         summarize(r->samples).spread * 100, r->registers, r->blocks_per_sm,
                         r->rates() + (r->drifts() ? "  drifting" : ""));
    else
      out += fmt::format("{:<{}}  does not fit: {}\n", name, width, r->reason);
  }
  return out;
}

std::string fastest_command(const std::vector<BenchRow> &rows, const std::string &file, const std::string &more) {
  std::vector<const BenchRow *> order = by_time(rows);
  if (order.empty() || !order[0]->fits()) return "";
  std::string out = fmt::format("tkc bench {} -k {} --case {}", file, order[0]->kernel, order[0]->name);
  if (!more.empty()) out += " " + more;
  for (const auto &[name, value] : order[0]->setting)
    out += name == kStages ? fmt::format(" {} {}", name, value) : fmt::format(" -P {}={}", name, value);
  return out;
}

} // namespace tkc::driver
