// The side of PreparedBench that measures programs.
#include "driver/bench_tensors.h"
#include "driver/instance.h"
#include <algorithm>

namespace tkc::driver {

Result<std::unique_ptr<PreparedBench>> PreparedBench::create_program(sema::Program &program, const ast::Function &ast,
                                                                     const ast::Check &check, const sema::CaseSpec &c,
                                                                     const sema::InstanceSpec &spec,
                                                                     const VerifyOptions &o, Diagnostics &diags,
                                                                     const PreparedBench *share) {
  auto instance = o.unfused ? make_unfused(program, ast, spec, *o.compile.target, diags)
                            : make_instance(program, ast, spec, o.compile.target, diags);
  if (!instance) return failure("the program has errors");
  std::unique_ptr<sema::HostProgram> host = std::move(instance->program);
  const ir::Function &f = *host->header;
  Result<LaunchData> data = bench_shapes(program, check, f, c, diags);
  if (!data) return data.failed();
  auto plan = make_plan(*host, *data, o.device_facts(), diags.sources());
  if (!plan) return plan.failed();
  if (plan->launches.empty()) return failure("the program launches nothing with these sizes");
  std::set<size_t> wanted = kernels_of(*plan);
  auto compiled = compile_program(program, *host, o.compile, diags, &wanted);
  if (!compiled) return failure("the program has errors");
  auto out = prepare(o, compiled->code.ptx);
  if (!out) return out.failed();
  PreparedBench &b = **out;
  b.describe(program, ast, check, c, f, diags);
  b.entry = counted(int64_t(plan->launches.size()), "launch") + (o.graph ? " in a graph" : "");
  b.workspace_bytes = plan->workspace_bytes;
  if (o.unfused) b.entry += fmt::format(" of {}, one a tensor op", counted(int64_t(wanted.size()), "kernel"));
  b.remarks = std::move(instance->remarks);
  b.host_ = std::move(host);
  b.plan_ = std::move(*plan);
  b.compiled_ = std::move(compiled);
  TKC_TRY(b.make_groups({program, check, f, c, diags, *data}, b.workspace_bytes, share));
  for (int64_t g = 0; g < b.groups; g++) {
    auto workspace = Buffer::allocate(*o.device, b.workspace_bytes);
    if (!workspace) return workspace.failed();
    const std::vector<uint64_t> &addresses = b.tensors->addresses[size_t(g)];
    auto prepared = PreparedProgram::create(
        b.plan_, *b.compiled_, b.module_, *o.device, [&](size_t i) { return addresses[i]; }, workspace->address());
    if (!prepared) return prepared.failed();
    b.workspaces_.push_back(std::move(*workspace));
    b.programs_.push_back(std::move(*prepared));
    if (!o.graph) continue;
    auto graph = b.programs_.back().capture(b.stream_);
    if (!graph) return graph.failed();
    b.graphs_.push_back(std::move(*graph));
  }
  // What the largest of its kernels needs.
  for (const PlanLaunch &l : b.plan_.launches) {
    const codegen::KernelAbi &abi = b.compiled_->abi(l);
    auto entry = b.module_.kernel(abi.entry);
    if (!entry) return entry.failed();
    b.registers = std::max(b.registers, entry->registers);
    b.local_bytes = std::max(b.local_bytes, entry->local_bytes);
    b.shared_bytes = std::max(b.shared_bytes, abi.shared_bytes);
    auto n = entry->blocks_per_sm(abi.threads, abi.shared_bytes);
    if (n && (b.blocks_per_sm == 0 || *n < b.blocks_per_sm)) b.blocks_per_sm = *n;
  }
  return out;
}

// More calls than these say nothing new, and more launches in flight would only wait for memory.
static constexpr int64_t kMostStampedCalls = 40, kMostStampedLaunches = 20000;

Result<Breakdown> PreparedBench::breakdown(const BenchOptions &convention) {
  if (programs_.empty()) return Breakdown();
  auto ptx = stamped_ptx(compiled_->code.ptx);
  if (!ptx) return ptx.failed();
  Device &device = stream_.device();
  auto module = Module::load_ptx(device, *ptx);
  if (!module) return module.failed();
  int64_t launches = int64_t(plan_.launches.size());
  int64_t calls = std::clamp(kMostStampedLaunches / launches, int64_t(4), kMostStampedCalls);
  calls = std::min(calls, std::max<int64_t>(4, convention.timed));
  auto tables = Buffer::allocate(device, calls * launches * kStampBytes);
  if (!tables) return tables.failed();
  TKC_TRY(tables->set_bytes(0xff));
  std::vector<PreparedProgram> programs;
  std::vector<Graph> graphs;
  for (int64_t call = 0; call < calls; call++) {
    size_t g = size_t(call % groups);
    auto prepared = PreparedProgram::create(
        plan_, *compiled_, *module, device, [&](size_t i) { return tensors->addresses[g][i]; },
        workspaces_[g].address(), tables->address() + uint64_t(call * launches * kStampBytes));
    if (!prepared) return prepared.failed();
    programs.push_back(std::move(*prepared));
    if (graphs_.empty()) continue;
    auto graph = programs.back().capture(stream_);
    if (!graph) return graph.failed();
    graphs.push_back(std::move(*graph));
  }
  // As the convention: calls before the stamped ones, all queued without a wait in between.
  int64_t warm = std::min(convention.warmup, calls);
  for (int64_t call = 0; call < warm; call++) TKC_TRY(launch(call % groups));
  for (int64_t call = 0; call < calls; call++)
    TKC_TRY(graphs.empty() ? programs[size_t(call)].queue(stream_) : graphs[size_t(call)].launch(stream_));
  TKC_TRY(stream_.wait(limit_seconds_));
  std::vector<uint8_t> bytes(size_t(calls * launches * kStampBytes));
  TKC_TRY(tables->download(bytes));
  std::vector<std::vector<Stamp>> stamps(static_cast<size_t>(calls));
  std::vector<std::string> names;
  for (const PlanLaunch &l : plan_.launches) names.push_back(host_->kernels[l.kernel].name);
  for (size_t i = 0; i < size_t(calls * launches); i++) {
    auto s = read_stamp(std::span(bytes).subspan(i * size_t(kStampBytes), size_t(kStampBytes)));
    if (!s) return failure("{}: {}", names[i % size_t(launches)], s.error());
    stamps[i / size_t(launches)].push_back(*s);
  }
  return breakdown_of(stamps, names);
}

} // namespace tkc::driver
