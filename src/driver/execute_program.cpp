#include "driver/execute_program.h"
#include "runtime/compare.h"
#include "support/stop.h"
#include <algorithm>
#include <cstring>
#include <thread>

namespace tkc::driver {

std::string launch_name(const Plan &plan, size_t launch) {
  return fmt::format("launch {} ({})", launch, plan.program->kernels[plan.launches[launch].kernel].name);
}

std::vector<size_t> ended_by(const Plan &plan, size_t launch) {
  std::vector<size_t> out;
  const PlanLaunch &l = plan.launches[launch];
  for (const PlanMemory &m : l.memory) {
    if (m.box.empty() || !m.temporary || plan.temporaries[m.index].first != l.step) continue;
    const PlanTemporary &mine = plan.temporaries[m.index];
    for (size_t t = 0; t < plan.temporaries.size(); t++) {
      const PlanTemporary &other = plan.temporaries[t];
      bool shares = other.offset < mine.offset + mine.bytes && mine.offset < other.offset + other.bytes;
      if (shares && other.first >= 0 && other.last < l.step) out.push_back(t);
    }
  }
  return out;
}

std::set<size_t> kernels_of(const Plan &plan) {
  std::set<size_t> out;
  for (const PlanLaunch &l : plan.launches) out.insert(l.kernel);
  return out;
}

const codegen::KernelAbi &CompiledProgram::abi(const PlanLaunch &l) const {
  return code.abis[first_abi[l.kernel] + (may_use_aligned(*functions[l.kernel], l.data) ? 0 : 1)];
}

std::unique_ptr<CompiledProgram> compile_program(sema::Program &program, const sema::HostProgram &host,
                                                 const CompileOptions &options, Diagnostics &diags,
                                                 const std::set<size_t> *wanted) {
  auto out = std::make_unique<CompiledProgram>();
  std::vector<LowerJob> jobs;
  std::vector<size_t> numbers; // of the jobs' kernels
  for (size_t i = 0; i < host.kernels.size(); i++) {
    if (wanted && !wanted->count(i)) continue;
    const sema::ProgramKernel &k = host.kernels[i];
    jobs.push_back({k.made ? nullptr : k.ast, &k.spec, k.made ? k.typed.get() : nullptr, k.name, ""});
    numbers.push_back(i);
  }
  auto lowered = lower_all(program, jobs, options, diags, out->phases);
  if (std::any_of(lowered.begin(), lowered.end(), [](const auto &f) { return !f; })) return nullptr;
  out->functions.resize(host.kernels.size());
  out->first_abi.resize(host.kernels.size());
  std::vector<const ir::Function *> functions;
  for (size_t j = 0; j < lowered.size(); j++) {
    out->first_abi[numbers[j]] = 2 * functions.size();
    functions.push_back(lowered[j].get());
    out->functions[numbers[j]] = std::move(lowered[j]);
  }
  if (!functions.empty()) out->code = emit_module(functions, options, diags.sources(), out->phases);
  return out;
}

// ---- interpreter

Status run_interp(const Plan &plan, LaunchData &data, const SourceManager &sources, std::string &printed) {
  const ir::Function &header = *plan.program->header;
  std::vector<std::unique_ptr<interp::Storage>> params(header.params.size()), temporaries;
  for (size_t i = 0; i < params.size(); i++) {
    if (!header.params[i].type.is_tensor() || !header.params[i].present) continue;
    params[i] = std::make_unique<interp::Storage>();
    params[i]->name = header.params[i].name;
    HostTensor room;
    to_storage(in_memory(data, i, room), *params[i]);
  }
  auto poisoned = [&](size_t t) {
    HostTensor tensor = HostTensor::zeros(plan.temporaries[t].dtype, plan.temporaries[t].shape);
    poison(tensor);
    to_storage(tensor, *temporaries[t]);
  };
  for (size_t t = 0; t < plan.temporaries.size(); t++) {
    temporaries.push_back(std::make_unique<interp::Storage>());
    temporaries[t]->name = plan.temporaries[t].name;
    poisoned(t);
  }
  for (size_t n = 0; n < plan.launches.size(); n++) {
    const PlanLaunch &l = plan.launches[n];
    for (size_t t : ended_by(plan, n)) poisoned(t);
    const ir::Function &f = *plan.program->kernels[l.kernel].typed;
    interp::Launch launch;
    launch.function = &f;
    launch.grid = l.grid;
    launch.threads = std::max(1u, std::thread::hardware_concurrency());
    launch.print = [&](const std::string &line) { printed += line + "\n"; };
    for (size_t i = 0; i < f.params.size(); i++) {
      const ir::Param &p = f.params[i];
      if (!p.present) continue;
      if (!p.type.is_tensor()) {
        launch.args.emplace_back(scalar_tile(p, l.data));
        continue;
      }
      interp::TensorRef ref;
      ref.storage = (l.memory[i].temporary ? temporaries : params)[l.memory[i].index].get();
      ref.offset = l.data.offsets[i];
      ref.extents = l.data.tensors[i].shape;
      ref.strides = l.data.strides[i];
      launch.args.emplace_back(ref);
    }
    for (const std::string &s : f.sizes) {
      interp::Tile t(DType::I32, {});
      t.i[0] = l.data.sizes.at(s);
      launch.args.emplace_back(t);
    }
    interp::Result r = interp::run(launch);
    if (auto why = stop_reason()) return *why;
    if (r.trap) {
      std::string at = sources.describe(r.trap->loc);
      return failure("{}: {}{}", launch_name(plan, n), at.empty() ? "" : at + ": ", r.trap->message);
    }
  }
  for (size_t i = 0; i < params.size(); i++)
    if (params[i] && header.params[i].mode != ir::ParamMode::In)
      TKC_TRY(take_back(from_storage(*params[i], data, i), header.params[i], data, i));
  return {};
}

// ---- emulator

Status run_emu(const Plan &plan, const CompiledProgram &compiled, LaunchData &data, const emu::Options &options,
               std::string &printed) {
  const ir::Function &header = *plan.program->header;
  emu::ParseResult parsed;
  if (!plan.launches.empty()) {
    parsed = emu::parse_ptx(compiled.code.ptx);
    if (!parsed.module) {
      const auto &e = parsed.errors.front();
      return failure("PTX line {}: {}", e.line, e.message);
    }
  }
  emu::Memory memory;
  std::vector<uint64_t> params(header.params.size(), 0), temporaries;
  auto fill = [&](uint64_t address, const HostTensor &t) {
    if (uint8_t *host = memory.host(address)) std::copy(t.bytes.begin(), t.bytes.end(), host);
  };
  for (size_t i = 0; i < params.size(); i++) {
    const ir::Param &p = header.params[i];
    if (!p.type.is_tensor() || !p.present) continue;
    params[i] = allocate(memory, p, data, i, true);
  }
  auto poisoned = [&](size_t t) {
    HostTensor tensor = HostTensor::zeros(plan.temporaries[t].dtype, plan.temporaries[t].shape);
    poison(tensor);
    fill(temporaries[t], tensor);
    if (emu::Allocation *a = memory.find(temporaries[t])) std::fill(a->written.begin(), a->written.end(), uint8_t(0));
  };
  for (size_t t = 0; t < plan.temporaries.size(); t++) {
    emu::Memory::Attributes a;
    a.track_uninitialised = true;
    temporaries.push_back(memory.allocate(plan.temporaries[t].bytes, plan.temporaries[t].name, a));
    poisoned(t);
  }
  for (size_t n = 0; n < plan.launches.size(); n++) {
    const PlanLaunch &l = plan.launches[n];
    for (size_t t : ended_by(plan, n)) poisoned(t);
    const codegen::KernelAbi &abi = compiled.abi(l);
    emu::Launch launch;
    launch.grid[0] = launch_blocks(abi, l.grid, options);
    launch.block[0] = abi.threads;
    launch.dynamic_shared = abi.shared_bytes;
    launch.overlaps = abi.overlaps && n > 0;
    auto address = [&](size_t i) {
      uint64_t base = (l.memory[i].temporary ? temporaries : params)[l.memory[i].index];
      return base + uint64_t(l.data.offsets[i] * dtype_bytes(l.data.tensors[i].dtype));
    };
    auto blob = parameter_blob(*compiled.functions[l.kernel], abi, l.data, address, encode_for_emulator);
    if (!blob) return failure("{}: {}", launch_name(plan, n), blob.error());
    launch.params = std::move(blob->bytes);
    emu::Report r = emu::run(*parsed.module, abi.entry, memory, launch, options);
    printed += r.printed;
    if (auto why = stop_reason()) return *why;
    if (!r.ok()) {
      Error e = emulator_failure(r);
      e.message = launch_name(plan, n) + ": " + e.message;
      return e;
    }
  }
  for (size_t i = 0; i < params.size(); i++) {
    const ir::Param &p = header.params[i];
    if (p.type.is_tensor() && p.present) TKC_TRY(give_back(memory, params[i], p, data, i));
  }
  return {};
}

} // namespace tkc::driver
