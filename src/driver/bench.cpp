#include "driver/bench.h"
#include "runtime/generators.h"
#include "runtime/statistics.h"
#include <algorithm>
#include <cmath>

namespace tkc::driver {

namespace {

// Shapes without contents: the bytes live on the device.
Result<LaunchData> shapes_of(const ir::Function &f, const sema::CaseSpec &c) {
  LaunchData data;
  TKC_TRY(bind_sizes(f, c, data));
  for (const ir::Param &p : f.params) {
    if (p.type.is_tensor()) continue;
    auto it = c.numbers.find(p.name);
    if (it == c.numbers.end()) return failure("case `{}` gives no value for the scalar `{}`", c.name, p.name);
    data.scalars[p.name] = it->second;
  }
  data.tensors.resize(f.params.size());
  for (size_t i = 0; i < f.params.size(); i++) {
    const ir::Param &p = f.params[i];
    if (!p.type.is_tensor() || !p.present) continue;
    auto shape = extents(f, p, data);
    if (!shape) return shape.failed();
    data.tensors[i].dtype = p.type.dtype;
    data.tensors[i].shape = *shape;
  }
  return data;
}

int64_t bytes_of(const HostTensor &t) { return storage_bytes(t.dtype, element_count(t.shape).value_or(0)); }

const char *mode_name(ir::ParamMode m) {
  return m == ir::ParamMode::In ? "in" : m == ir::ParamMode::Out ? "out" : "inout";
}

std::vector<std::string> signature_of(const ir::Function &f, const LaunchData &data) {
  std::vector<std::string> out;
  for (size_t i = 0; i < f.params.size(); i++) {
    const ir::Param &p = f.params[i];
    if (p.type.is_tensor() && p.present)
      out.push_back(fmt::format("{} {} {}{}", p.name, mode_name(p.mode), dtype_name(p.type.dtype),
                                shape_to_string(data.tensors[i].shape)));
    else
      out.push_back(p.name);
  }
  return out;
}

Result<std::shared_ptr<BenchTensors>> make_tensors(const ir::Function &f, const LaunchData &data, int64_t groups,
                                                   Device &device) {
  auto out = std::make_shared<BenchTensors>();
  out->signature = signature_of(f, data);
  for (size_t i = 0; i < f.params.size(); i++) {
    const ir::Param &p = f.params[i];
    if (!p.type.is_tensor() || !p.present) continue;
    out->written_inputs |= p.mode == ir::ParamMode::InOut;
    if (p.mode != ir::ParamMode::Out) out->inputs.emplace_back(p.name, 0);
  }
  for (int64_t g = 0; g < groups; g++) {
    std::vector<uint64_t> addresses(f.params.size(), 0);
    size_t input = 0;
    for (size_t i = 0; i < f.params.size(); i++) {
      const ir::Param &p = f.params[i];
      if (!p.type.is_tensor() || !p.present) continue;
      auto b = Buffer::allocate(device, bytes_of(data.tensors[i]));
      if (!b) return b.failed();
      if (p.mode == ir::ParamMode::Out) {
        TKC_TRY(b->set_bytes(0));
      } else {
        DType t = p.type.dtype;
        HostTensor values = fill_tensor(convention_fill(t), t, data.tensors[i].shape, bench_seed(g, int64_t(i)));
        TKC_TRY(b->upload(values));
        uint64_t &sum = out->inputs[input++].second;
        sum = splitmix64(sum ^ checksum(values));
      }
      addresses[i] = b->address();
      out->buffers.push_back(std::move(*b));
    }
    out->addresses.push_back(std::move(addresses));
  }
  return out;
}

} // namespace

Result<std::unique_ptr<PreparedBench>> PreparedBench::create(sema::Program &program, const ast::Function &kernel,
                                                             const ast::Check &check, const sema::CaseSpec &c,
                                                             const VerifyOptions &o, Diagnostics &diags,
                                                             const PreparedBench *share) {
  sema::InstanceSpec spec = c.spec;
  for (const auto &[k, v] : o.overrides.params) spec.params[k] = v;
  auto compiled = compile_kernel(program, kernel, spec, o.compile, diags);
  if (!compiled) return failure("the kernel has errors");
  const ir::Function &f = *compiled->function;
  Result<LaunchData> data = shapes_of(f, c);
  if (!data) return data.failed();
  auto grid = launch_grid(f, *data, diags.sources());
  if (!grid) return grid.failed();
  int64_t call_bytes = 0;
  for (size_t i = 0; i < f.params.size(); i++)
    if (f.params[i].type.is_tensor() && f.params[i].present) call_bytes += bytes_of(data->tensors[i]);

  Device &device = *o.device;
  auto module = Module::load_ptx(device, compiled->code.ptx);
  if (!module) return module.failed();
  auto stream = Stream::create(device);
  if (!stream) return stream.failed();
  std::unique_ptr<PreparedBench> out(new PreparedBench(std::move(*module), std::move(*stream), o.gpu_limit()));
  const codegen::KernelAbi &abi = compiled->code.abis[may_use_aligned(f, *data) ? 0 : 1];
  auto entry = out->module_.kernel(abi.entry);
  if (!entry) return entry.failed();
  out->kernel = kernel.name.text;
  out->name = c.name;
  out->counts = sema::evaluate_counts(program, check, numbers_of(f, c), diags);
  out->entry = abi.entry;
  out->registers = entry->registers;
  out->local_bytes = entry->local_bytes;
  out->shared_bytes = abi.shared_bytes;
  out->groups = bench_groups(std::max<int64_t>(call_bytes, 1), device.info().l2_bytes);
  if (share && share->groups == out->groups && !share->tensors->written_inputs &&
      share->tensors->signature == signature_of(f, *data)) {
    out->tensors = share->tensors;
  } else {
    auto made = make_tensors(f, *data, out->groups, device);
    if (!made) return made.failed();
    out->tensors = *made;
  }
  tkc::Launch how;
  for (int64_t g : *grid) how.grid[0] *= g;
  how.block[0] = abi.threads;
  how.dynamic_shared = abi.shared_bytes;
  for (int64_t g = 0; g < out->groups; g++) {
    const std::vector<uint64_t> &addresses = out->tensors->addresses[size_t(g)];
    Blob blob = parameter_blob(f, abi, *data, [&](size_t i) { return addresses[i]; });
    auto prepared = PreparedLaunch::create(*entry, how, Params::from_blob(blob.bytes, blob.offsets));
    if (!prepared) return prepared.failed();
    out->launches_.push_back(std::move(*prepared));
  }
  // After the launches were prepared: they opt in to more than 48 KiB of shared memory.
  if (auto n = entry->blocks_per_sm(abi.threads, abi.shared_bytes)) out->blocks_per_sm = *n;
  return out;
}

Status PreparedBench::launch(int64_t group) { return launches_[size_t(group)].queue(stream_); }

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

std::string BenchRow::rates() const {
  std::string out;
  if (!fits()) return out;
  for (const auto &[what, n] : counts) {
    if (what == "bytes") out += fmt::format("  {:.3f} TB/s", n / seconds() * 1e-12);
    if (what == "flops") out += fmt::format("  {:.1f} TFLOP/s", n / seconds() * 1e-12);
  }
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
  return j.set("blocksPerSM", blocks_per_sm);
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
  for (const auto &[name, value] : setting) o.overrides.params[name] = value;
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
  for (const auto &[name, value] : order[0]->setting) out += fmt::format(" -P {}={}", name, value);
  return out;
}

} // namespace tkc::driver
