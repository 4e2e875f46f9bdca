#include "driver/program_gpu.h"
#include "driver/stamps.h"
#include <algorithm>

namespace tkc::driver {

// More streams bring no more overlap: a GPU runs few different kernels at a time.
static constexpr size_t kMostStreams = 8;

Result<PreparedProgram> PreparedProgram::create(const Plan &plan, const CompiledProgram &compiled, const Module &module,
                                                Device &device, const std::function<uint64_t(size_t)> &address,
                                                uint64_t workspace, uint64_t stamps) {
  PreparedProgram out;
  size_t widest = 0, width = 0;
  for (size_t n = 0; n < plan.launches.size(); n++) {
    const PlanLaunch &l = plan.launches[n];
    const codegen::KernelAbi &abi = compiled.abi(l);
    auto kernel = module.kernel(stamps ? abi.entry + kStampedSuffix : abi.entry);
    if (!kernel) return kernel.failed();
    auto place = [&](size_t i) {
      const PlanMemory &m = l.memory[i];
      uint64_t base = m.temporary ? workspace + uint64_t(plan.temporaries[m.index].offset) : address(m.index);
      return base + uint64_t(l.data.offsets[i] * dtype_bytes(l.data.tensors[i].dtype));
    };
    auto blob = parameter_blob(*compiled.functions[l.kernel], abi, l.data, place, encode_for(device));
    if (!blob) return failure("{}: {}", launch_name(plan, n), blob.error());
    tkc::Launch how;
    auto blocks = launch_blocks(abi, l.grid, *kernel);
    if (!blocks) return failure("{}: {}", launch_name(plan, n), blocks.error());
    how.grid[0] = *blocks;
    how.block[0] = abi.threads;
    how.dynamic_shared = abi.shared_bytes;
    auto same_as = [&](size_t a, size_t b) { return plan.launches[a].step == plan.launches[b].step; };
    auto same_step = [&](size_t other) { return other < plan.launches.size() && plan.launches[other].step == l.step; };
    how.beside_others = same_step(n - 1) || same_step(n + 1); // launches of a step stand together
    // What was in the stream before the program may end before what was ahead of it, so the first launch does not
    // overlap.
    how.overlap_predecessor =
        abi.overlaps && !stamps && n > 0 && !how.beside_others && !(n > 1 && same_as(n - 1, n - 2));
    Params params = Params::from_blob(blob->bytes, blob->offsets);
    if (stamps) params.add(stamps + uint64_t(n) * uint64_t(kStampBytes));
    auto prepared = PreparedLaunch::create(*kernel, how, std::move(params));
    if (!prepared) return failure("{}: {}", launch_name(plan, n), prepared.error());
    width = n > 0 && plan.launches[n - 1].step == l.step ? width + 1 : 1;
    widest = std::max(widest, width);
    out.launches_.push_back({std::move(*prepared), l.step});
  }
  for (size_t i = 1; i < std::min(widest, kMostStreams); i++) {
    auto stream = Stream::create(device);
    if (!stream) return stream.failed();
    auto event = Event::create(device);
    if (!event) return event.failed();
    out.side_.push_back(std::move(*stream));
    out.done_.push_back(std::move(*event));
  }
  if (!out.side_.empty()) {
    auto event = Event::create(device);
    if (!event) return event.failed();
    out.fork_.push_back(std::move(*event));
  }
  return out;
}

Status PreparedProgram::queue(const Stream &stream, std::vector<Event> *ended) {
  for (size_t begin = 0, end; begin < launches_.size(); begin = end) {
    end = begin + 1;
    while (end < launches_.size() && launches_[end].step == launches_[begin].step) end++;
    size_t sides = std::min(end - begin - 1, side_.size());
    if (sides > 0) {
      TKC_TRY(fork_[0].record(stream));
      for (size_t i = 0; i < sides; i++) TKC_TRY(side_[i].wait_for(fork_[0]));
    }
    for (size_t n = begin; n < end; n++) {
      size_t lane = (n - begin) % (sides + 1);
      const Stream &own = lane == 0 ? stream : side_[lane - 1];
      TKC_TRY(launches_[n].prepared.queue(own));
      if (ended) TKC_TRY((*ended)[n].record(own));
    }
    for (size_t i = 0; i < sides; i++) {
      TKC_TRY(done_[i].record(side_[i]));
      TKC_TRY(stream.wait_for(done_[i]));
    }
  }
  return {};
}

Result<Graph> PreparedProgram::capture(Stream &stream) {
  return Graph::capture(stream, [&] { return queue(stream); });
}

// What a wait failed with, and at which launch.
static Error where_it_hangs(const Plan &plan, const std::vector<Event> &ended, Error e) {
  if (e.kind == ErrorKind::Failure) return e;
  for (size_t n = 0; n < ended.size(); n++)
    if (!ended[n].done()) return {fmt::format("{} has not ended: {}", launch_name(plan, n), e.message), e.kind};
  return e;
}

Status run_gpu(Device &device, const Plan &plan, const CompiledProgram &compiled, LaunchData &data, bool graph,
               double limit_seconds) {
  if (plan.launches.empty()) return {};
  constexpr int64_t kGuard = 4096;
  const ir::Function &header = *plan.program->header;
  auto module = Module::load_ptx(device, compiled.code.ptx);
  if (!module) return module.failed();
  auto stream = Stream::create(device);
  if (!stream) return stream.failed();
  std::vector<std::optional<Buffer>> buffers(header.params.size());
  for (size_t i = 0; i < buffers.size(); i++) {
    if (!header.params[i].type.is_tensor() || !header.params[i].present) continue;
    HostTensor room;
    const HostTensor &t = in_memory(data, i, room);
    auto b = Buffer::allocate(device, int64_t(t.bytes.size()), kGuard);
    if (!b) return b.failed();
    TKC_TRY(b->upload(t));
    buffers[i].emplace(std::move(*b));
  }
  auto workspace = Buffer::allocate(device, plan.workspace_bytes, kGuard);
  if (!workspace) return workspace.failed();
  TKC_TRY(workspace->set_bytes(0xff)); // NaN in every floating-point type
  auto prepared = PreparedProgram::create(
      plan, compiled, *module, device, [&](size_t i) { return uint64_t(buffers[i]->address()); }, workspace->address());
  if (!prepared) return prepared.failed();
  if (graph) {
    auto captured = prepared->capture(*stream);
    if (!captured) return captured.failed();
    TKC_TRY(captured->launch(*stream));
    TKC_TRY(stream->wait(limit_seconds));
  } else {
    std::vector<Event> ended;
    for (size_t n = 0; n < plan.launches.size(); n++) {
      auto event = Event::create(device);
      if (!event) return event.failed();
      ended.push_back(std::move(*event));
    }
    TKC_TRY(prepared->queue(*stream, &ended));
    Status waited = stream->wait(limit_seconds);
    if (!waited) return where_it_hangs(plan, ended, waited.failed());
  }
  TKC_TRY(check_guards(*workspace, "the workspace"));
  for (size_t i = 0; i < buffers.size(); i++)
    if (buffers[i]) TKC_TRY(give_back(*buffers[i], header.params[i], data, i));
  return {};
}

} // namespace tkc::driver
