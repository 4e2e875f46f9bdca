// The side of PreparedBench that measures programs.
#include "driver/bench_tensors.h"
#include <algorithm>

namespace tkc::driver {

Result<std::unique_ptr<PreparedBench>> PreparedBench::create_program(sema::Program &program, const ast::Function &ast,
                                                                     const ast::Check &check, const sema::CaseSpec &c,
                                                                     const sema::InstanceSpec &spec,
                                                                     const VerifyOptions &o, Diagnostics &diags,
                                                                     const PreparedBench *share) {
  auto host = sema::instantiate_program(program, ast, spec, o.compile.target, diags);
  if (!host) return failure("the program has errors");
  const ir::Function &f = *host->header;
  Result<LaunchData> data = shapes_of(f, c);
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
  for (const PlanLaunch &l : plan->launches) b.launched_.push_back(host->kernels[l.kernel].name);
  TKC_TRY(b.make_groups(f, *data, plan->workspace_bytes, share));
  for (int64_t g = 0; g < b.groups; g++) {
    auto workspace = Buffer::allocate(*o.device, plan->workspace_bytes);
    if (!workspace) return workspace.failed();
    const std::vector<uint64_t> &addresses = b.tensors->addresses[size_t(g)];
    auto prepared = PreparedProgram::create(
        *plan, *compiled, b.module_, *o.device, [&](size_t i) { return addresses[i]; }, workspace->address());
    if (!prepared) return prepared.failed();
    b.workspaces_.push_back(std::move(*workspace));
    b.programs_.push_back(std::move(*prepared));
    if (!o.graph) continue;
    auto graph = b.programs_.back().capture(b.stream_);
    if (!graph) return graph.failed();
    b.graphs_.push_back(std::move(*graph));
  }
  // What the largest of its kernels needs.
  for (const PlanLaunch &l : plan->launches) {
    const codegen::KernelAbi &abi = compiled->abi(l);
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

Result<std::vector<BenchPart>> PreparedBench::breakdown(const BenchOptions &convention) {
  std::vector<BenchPart> out;
  if (programs_.empty()) return out;
  std::vector<Event> events;
  for (size_t i = 0; i <= launched_.size(); i++) {
    auto event = Event::create(stream_.device());
    if (!event) return event.failed();
    events.push_back(std::move(*event));
  }
  std::vector<double> seconds(launched_.size(), 0);
  int64_t calls = std::max<int64_t>(1, convention.timed / 5), warm = std::min<int64_t>(convention.warmup, groups);
  for (int64_t call = -warm; call < calls; call++) {
    const PreparedProgram &p = programs_[size_t((call + warm) % groups)];
    TKC_TRY(events[0].record(stream_));
    for (size_t n = 0; n < launched_.size(); n++) {
      TKC_TRY(p.queue_launch(n, stream_));
      TKC_TRY(events[n + 1].record(stream_));
    }
    TKC_TRY(events.back().wait(limit_seconds_));
    for (size_t n = 0; n < launched_.size() && call >= 0; n++) {
      auto t = events[n + 1].seconds_since(events[n]);
      if (!t) return t.failed();
      seconds[n] += *t / double(calls);
    }
  }
  for (size_t n = 0; n < launched_.size(); n++) {
    auto it = std::find_if(out.begin(), out.end(), [&](const BenchPart &p) { return p.kernel == launched_[n]; });
    if (it == out.end()) it = out.insert(out.end(), {launched_[n], 0, 0});
    it->launches++;
    it->seconds += seconds[n];
  }
  return out;
}

} // namespace tkc::driver
