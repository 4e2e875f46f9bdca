#include "driver/bench.h"
#include "runtime/bench.h"
#include "runtime/generators.h"

namespace tkc::driver {

namespace {

struct Target : BenchTarget {
  std::vector<PreparedLaunch> launches;
  Stream *stream = nullptr;
  Status launch(int64_t group) override { return launches[size_t(group)].queue(*stream); }
};

Result<BenchResult> bench_case(sema::Program &program, const ast::Function &kernel, const ast::Check &check,
                               const sema::CaseSpec &c, const VerifyOptions &o, Diagnostics &diags) {
  BenchResult out;
  out.kernel = kernel.name.text;
  out.name = c.name;
  sema::InstanceSpec spec = c.spec;
  for (const auto &[k, v] : o.overrides.params) spec.params[k] = v;
  auto compiled = compile_kernel(program, kernel, spec, o.compile, diags);
  if (!compiled) return failure("the kernel has errors");
  const ir::Function &f = *compiled->function;
  LaunchData data;
  TKC_TRY(bind_sizes(f, c, data));
  for (const ir::Param &p : f.params)
    if (!p.type.is_tensor()) {
      auto it = c.numbers.find(p.name);
      if (it == c.numbers.end()) return failure("case `{}` gives no value for the scalar `{}`", c.name, p.name);
      data.scalars[p.name] = it->second;
    }
  int64_t call_bytes = 0;
  data.tensors.resize(f.params.size());
  for (size_t i = 0; i < f.params.size(); i++) {
    const ir::Param &p = f.params[i];
    if (!p.type.is_tensor() || !p.present) continue;
    auto shape = extents(f, p, data);
    if (!shape) return shape.failed();
    data.tensors[i].dtype = p.type.dtype;
    data.tensors[i].shape = *shape; // the bytes live on the device
    call_bytes += storage_bytes(p.type.dtype, element_count(*shape).value_or(0));
  }
  auto grid = launch_grid(f, data, diags.sources());
  if (!grid) return grid.failed();
  out.counts = sema::evaluate_counts(program, check, numbers_of(f, c), diags);

  Device &device = *o.device;
  auto module = Module::load_ptx(device, compiled->code.ptx);
  if (!module) return module.failed();
  const codegen::KernelAbi &abi = compiled->code.abis[may_use_aligned(f, data) ? 0 : 1];
  auto entry = module->kernel(abi.entry);
  if (!entry) return entry.failed();
  out.entry = abi.entry;
  out.registers = entry->registers;
  out.local_bytes = entry->local_bytes;
  auto stream = Stream::create(device);
  if (!stream) return stream.failed();
  out.groups = bench_groups(call_bytes, device.info().l2_bytes);
  Target target;
  target.stream = &*stream;
  std::vector<Buffer> buffers;
  tkc::Launch how;
  for (int64_t g : *grid) how.grid[0] *= g;
  how.block[0] = abi.threads;
  how.dynamic_shared = abi.shared_bytes;
  for (int64_t g = 0; g < out.groups; g++) {
    std::vector<uint64_t> addresses(f.params.size(), 0);
    for (size_t i = 0; i < f.params.size(); i++) {
      const ir::Param &p = f.params[i];
      if (!p.type.is_tensor() || !p.present) continue;
      const HostTensor &shape = data.tensors[i];
      auto b = Buffer::allocate(device, storage_bytes(p.type.dtype, element_count(shape.shape).value_or(0)));
      if (!b) return b.failed();
      if (p.mode == ir::ParamMode::Out) {
        TKC_TRY(b->set_bytes(0));
      } else {
        TKC_TRY(b->upload(
            fill_tensor(convention_fill(p.type.dtype), p.type.dtype, shape.shape, bench_seed(g, int64_t(i)))));
      }
      addresses[i] = b->address();
      buffers.push_back(std::move(*b));
    }
    Blob blob = parameter_blob(f, abi, data, [&](size_t i) { return addresses[i]; });
    auto prepared = PreparedLaunch::create(*entry, how, Params::from_blob(blob.bytes, blob.offsets));
    if (!prepared) return prepared.failed();
    target.launches.push_back(std::move(*prepared));
  }
  // After the launches were prepared: they opt in to more than 48 KiB of shared memory.
  if (auto n = entry->blocks_per_sm(abi.threads, abi.shared_bytes)) out.blocks_per_sm = *n;
  auto clock = GpuClock::create(*stream, o.limit_seconds);
  if (!clock) return clock.failed();
  auto seconds = run_convention(target, **clock, out.groups);
  if (!seconds) return seconds.failed();
  out.seconds = *seconds;
  return out;
}

} // namespace

std::vector<BenchResult> bench_kernel(sema::Program &program, const ast::Function &kernel, const ast::Check &check,
                                      const VerifyOptions &o, Diagnostics &diags) {
  std::vector<BenchResult> out;
  for (const ast::Case &c : check.cases) {
    if (!o.only_case.empty() && c.name.text != o.only_case) continue;
    auto spec = sema::evaluate_case(program, kernel, check, c, diags);
    if (!spec) return {};
    auto r = bench_case(program, kernel, check, *spec, o, diags);
    if (r) {
      out.push_back(std::move(*r));
    } else {
      BenchResult failed;
      failed.kernel = kernel.name.text;
      failed.name = c.name.text;
      failed.error = r.error();
      out.push_back(std::move(failed));
    }
    if (diags.has_errors()) return {};
  }
  return out;
}

} // namespace tkc::driver
