#include "driver/execute.h"
#include "emu/tensor_map.h"
#include "interp/interp.h"
#include "support/stop.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <thread>

namespace tkc::driver {

std::string_view executor_name(Executor e) {
  switch (e) {
  case Executor::Interp: return "interpreter";
  case Executor::Emu: return "PTX emulator";
  case Executor::Gpu: return "GPU";
  }
  return "";
}

ir::SizeExpr::Lookup lookup(const LaunchData &data) {
  return [&](const std::string &name) -> std::optional<int64_t> {
    if (auto it = data.sizes.find(name); it != data.sizes.end()) return it->second;
    if (auto it = data.scalars.find(name); it != data.scalars.end()) return int64_t(it->second);
    return std::nullopt;
  };
}

Result<std::vector<int64_t>> extents(const ir::Function &f, const ir::Param &p, const LaunchData &data) {
  std::vector<int64_t> out;
  for (const ir::SizeExpr &d : p.dims) {
    auto v = d.eval(lookup(data));
    if (!v)
      return failure("kernel `{}`: the extent {} of `{}` has no value; give every size, for example --size M=64",
                     f.name, d.str(), p.name);
    if (*v < 0 || *v > INT32_MAX)
      return failure("kernel `{}`: the extent {} of `{}` is {}", f.name, d.str(), p.name, *v);
    out.push_back(*v);
  }
  return out;
}

Result<std::vector<int64_t>> launch_grid(const ir::Function &f, const LaunchData &data, const SourceManager &sources) {
  for (size_t i = 0; i < f.facts.size(); i++) {
    auto v = f.facts[i].eval(lookup(data));
    if (!v) return failure("`where {}` has no value for these sizes", f.facts[i].str());
    if (!*v)
      return failure("{}: `where {}` does not hold for these sizes", sources.describe(f.fact_locs[i]),
                     f.facts[i].str());
  }
  std::vector<int64_t> grid;
  int64_t total = 1;
  for (const ir::SizeExpr &g : f.grid) {
    auto v = g.eval(lookup(data));
    if (!v || *v < 0) return failure("the grid extent {} has no value for these sizes", g.str());
    if (__builtin_mul_overflow(total, *v, &total) || total > INT32_MAX)
      return failure("the grid has more than {} blocks", INT32_MAX);
    grid.push_back(*v);
  }
  return grid;
}

std::vector<int64_t> strides_of(const LaunchData &data, size_t tensor) {
  return data.strides.empty() ? dense_strides(data.tensors[tensor].shape) : data.strides[tensor];
}

bool is_dense(const LaunchData &data, size_t tensor) {
  return data.strides.empty() || data.strides[tensor] == dense_strides(data.tensors[tensor].shape);
}

const HostTensor &in_memory(const LaunchData &data, size_t tensor, HostTensor &room) {
  if (is_dense(data, tensor)) return data.tensors[tensor];
  room = to_memory(data.tensors[tensor], data.strides[tensor]);
  return room;
}

Status take_back(HostTensor memory, const ir::Param &param, LaunchData &data, size_t tensor) {
  HostTensor &to = data.tensors[tensor];
  bool out = param.mode != ir::ParamMode::In;
  if (is_dense(data, tensor)) {
    if (out) to.bytes = std::move(memory.bytes);
    return {};
  }
  HostTensor from = to; // also of an input: what lies between its elements is looked at
  TKC_TRY(from_memory(memory, data.strides[tensor], param.name, from));
  if (out) to = std::move(from);
  return {};
}

bool may_use_aligned(const ir::Function &f, const LaunchData &data) {
  for (const codegen::AlignmentCheck &c : codegen::alignment_checks(f)) {
    using Kind = codegen::AlignmentCheck::Kind;
    const HostTensor &t = data.tensors[c.param];
    int64_t value = c.kind == Kind::Extent   ? t.shape[size_t(c.dim)]
                    : c.kind == Kind::Stride ? strides_of(data, c.param)[size_t(c.dim)]
                    : data.offsets.empty()   ? 0
                                             : data.offsets[c.param] * dtype_bytes(t.dtype);
    if (!c.holds(value)) return false;
  }
  return true;
}

namespace {
TensorMapSpec tensor_map_spec(const codegen::AbiParam &p, const std::vector<int64_t> &shape,
                              const std::vector<int64_t> &strides, uint64_t address) {
  TensorMapSpec s;
  s.dtype = p.type;
  s.address = address;
  s.swizzle_bytes = p.swizzle;
  for (size_t d = shape.size(); d-- > 0;) { // innermost first
    s.dims.push_back(shape[d]);
    s.box.push_back(p.box[d]);
    if (d + 1 < shape.size()) s.strides.push_back(strides[d] * dtype_bytes(p.type));
  }
  return s;
}
} // namespace

Result<TensorMapImage> encode_for_emulator(const TensorMapSpec &s) {
  emu::TensorMap m;
  m.address = s.address;
  m.dtype = s.dtype;
  m.rank = int32_t(s.dims.size());
  m.swizzle = int32_t(s.swizzle_bytes);
  for (size_t d = 0; d < s.dims.size(); d++) {
    m.size[d] = s.dims[d];
    m.stride[d] = d ? s.strides[d - 1] : dtype_bytes(s.dtype);
    m.box[d] = int32_t(s.box[d]);
  }
  if (std::string fault = emu::check_tensor_map(m); !fault.empty()) return failure("tensor map: {}", fault);
  return emu::encode_tensor_map(m);
}

EncodeTensorMap encode_for(const Device &device) {
  return [api = &device.api()](const TensorMapSpec &s) -> Result<TensorMapImage> {
    Result<cu::TensorMap> map = encode_tensor_map(*api, s);
    if (!map) return map.failed();
    TensorMapImage image;
    static_assert(sizeof *map == sizeof image);
    std::memcpy(image.data(), &*map, sizeof image);
    return image;
  };
}

Result<Blob> parameter_blob(const ir::Function &f, const codegen::KernelAbi &abi, const LaunchData &data,
                            const std::function<uint64_t(size_t)> &address, const EncodeTensorMap &encode) {
  Blob out;
  out.bytes.resize(size_t(abi.param_bytes()));
  auto put = [&](const codegen::AbiParam &p, uint64_t bits) {
    std::memcpy(out.bytes.data() + p.offset, &bits, size_t(p.bytes)); // little-endian
    out.offsets.push_back(p.offset);
  };
  auto index = [&](const std::string &name) {
    for (size_t i = 0; i < f.params.size(); i++)
      if (f.params[i].name == name) return i;
    TKC_UNREACHABLE("no parameter `{}`", name);
  };
  using Kind = codegen::AbiParam::Kind;
  for (const codegen::AbiParam &p : abi.params) {
    switch (p.kind) {
    case Kind::Pointer: put(p, address(index(p.tensor))); break;
    case Kind::Stride: {
      put(p, uint64_t(strides_of(data, index(p.tensor))[size_t(p.dim)]));
      break;
    }
    case Kind::Scalar: {
      auto it = data.scalars.find(p.name);
      double v = it == data.scalars.end() ? 0 : it->second;
      put(p, is_float(p.type) ? encode_float(p.type, round_to(p.type, v)) : uint64_t(wrap_to(p.type, int64_t(v))));
      break;
    }
    case Kind::Size: put(p, uint64_t(data.sizes.at(p.name))); break;
    case Kind::TensorMap: {
      size_t i = index(p.tensor);
      Result<TensorMapImage> image = encode(tensor_map_spec(p, data.tensors[i].shape, strides_of(data, i), address(i)));
      if (!image) return image.failed();
      std::memcpy(out.bytes.data() + p.offset, image->data(), image->size());
      out.offsets.push_back(p.offset);
      break;
    }
    }
  }
  return out;
}

// ---- interpreter

void to_storage(const HostTensor &t, interp::Storage &s) {
  s.dtype = t.dtype;
  auto n = size_t(t.count());
  if (is_float(t.dtype)) {
    s.f.resize(n);
    t.get_range(0, s.f);
  } else {
    s.i.resize(n);
    for (size_t k = 0; k < n; k++) s.i[k] = t.get_int(int64_t(k));
  }
}

HostTensor from_storage(const interp::Storage &s, const LaunchData &data, size_t tensor) {
  HostTensor room, out = in_memory(data, tensor, room);
  if (!is_float(out.dtype)) {
    for (size_t k = 0; k < s.i.size(); k++) out.set_int(int64_t(k), s.i[k]);
    return out;
  }
  if (is_dense(data, tensor)) {
    out.set_range(0, s.f);
    return out;
  }
  HostTensor before = out;
  out.set_range(0, s.f);
  // A NaN has more bits than its wide form keeps: what is still poison there gets the pattern back.
  for (int64_t k = 0; k < out.count(); k++)
    if (std::isnan(s.f[size_t(k)]) && std::isnan(before.get(k))) out.set_bits(k, before.bits(k));
  return out;
}

interp::Tile scalar_tile(const ir::Param &p, const LaunchData &data) {
  interp::Tile t(p.type.dtype, {});
  auto it = data.scalars.find(p.name);
  double v = it == data.scalars.end() ? 0 : it->second;
  if (t.is_float())
    t.f[0] = round_to(t.dtype, v);
  else
    t.i[0] = wrap_to(t.dtype, int64_t(v));
  return t;
}

Status run_interp(const ir::Function &f, LaunchData &data, const SourceManager &sources, std::string &printed) {
  auto grid = launch_grid(f, data, sources);
  if (!grid) return grid.failed();
  interp::Launch launch;
  launch.function = &f;
  launch.grid = *grid;
  launch.threads = std::max(1u, std::thread::hardware_concurrency());
  launch.print = [&](const std::string &line) { printed += line + "\n"; };
  std::vector<std::unique_ptr<interp::Storage>> storages(f.params.size());
  for (size_t i = 0; i < f.params.size(); i++) {
    const ir::Param &p = f.params[i];
    if (!p.present) continue;
    if (p.type.is_tensor()) {
      storages[i] = std::make_unique<interp::Storage>();
      storages[i]->name = p.name;
      HostTensor room;
      to_storage(in_memory(data, i, room), *storages[i]);
      interp::TensorRef ref;
      ref.storage = storages[i].get();
      ref.extents = data.tensors[i].shape;
      ref.strides = strides_of(data, i);
      launch.args.emplace_back(ref);
    } else {
      launch.args.emplace_back(scalar_tile(p, data));
    }
  }
  for (const std::string &s : f.sizes) {
    interp::Tile t(DType::I32, {});
    t.i[0] = data.sizes.at(s);
    launch.args.emplace_back(t);
  }
  interp::Result r = interp::run(launch);
  if (auto why = stop_reason()) return *why;
  if (r.trap) {
    std::string at = sources.describe(r.trap->loc);
    return failure("{}{}", at.empty() ? "" : at + ": ", r.trap->message);
  }
  for (size_t i = 0; i < f.params.size(); i++) {
    if (!storages[i] || f.params[i].mode == ir::ParamMode::In) continue;
    TKC_TRY(take_back(from_storage(*storages[i], data, i), f.params[i], data, i));
  }
  return {};
}

static int64_t product(const std::vector<int64_t> &grid) {
  return std::accumulate(grid.begin(), grid.end(), int64_t(1), std::multiplies<>());
}

Result<int64_t> launch_blocks(const codegen::KernelAbi &abi, const std::vector<int64_t> &grid, const Kernel &entry) {
  if (!abi.persistent) return product(grid);
  auto held = entry.blocks_per_sm(abi.threads, abi.shared_bytes);
  if (!held) return held.failed();
  return abi.blocks(product(grid), *held * entry.device().info().sms);
}

int64_t launch_blocks(const codegen::KernelAbi &abi, const std::vector<int64_t> &grid, const emu::Options &options) {
  return abi.blocks(product(grid), options.resident_blocks);
}

// ---- emulator

Error emulator_failure(const emu::Report &report) {
  const emu::Error &e = report.errors.front();
  return {emu::to_string(e), e.kind == emu::ErrorKind::Budget ? ErrorKind::Timeout : ErrorKind::Failure};
}

Status run_emu(const CompiledKernel &kernel, LaunchData &data, const SourceManager &sources,
               const emu::Options &options, std::string &printed) {
  const ir::Function &f = *kernel.function;
  auto grid = launch_grid(f, data, sources);
  if (!grid) return grid.failed();
  emu::ParseResult parsed = emu::parse_ptx(kernel.code.ptx);
  if (!parsed.module) {
    const auto &e = parsed.errors.front();
    return failure("PTX line {}: {}", e.line, e.message);
  }
  emu::Memory memory;
  std::vector<uint64_t> addresses(f.params.size(), 0);
  for (size_t i = 0; i < f.params.size(); i++) {
    const ir::Param &p = f.params[i];
    if (!p.type.is_tensor() || !p.present) continue;
    addresses[i] = allocate(memory, p, data, i, false);
  }
  const codegen::KernelAbi &abi = kernel.code.abis[may_use_aligned(f, data) ? 0 : 1];
  emu::Launch launch;
  launch.grid[0] = launch_blocks(abi, *grid, options);
  launch.block[0] = abi.threads;
  launch.dynamic_shared = abi.shared_bytes;
  if (launch.grid[0] > 0) {
    auto blob = parameter_blob(
        f, abi, data, [&](size_t i) { return addresses[i]; }, encode_for_emulator);
    if (!blob) return blob.failed();
    launch.params = std::move(blob->bytes);
    emu::Report r = emu::run(*parsed.module, abi.entry, memory, launch, options);
    printed += r.printed;
    if (auto why = stop_reason()) return *why;
    if (!r.ok()) return emulator_failure(r);
  }
  for (size_t i = 0; i < f.params.size(); i++)
    if (f.params[i].type.is_tensor() && f.params[i].present)
      TKC_TRY(give_back(memory, addresses[i], f.params[i], data, i));
  return {};
}

uint64_t allocate(emu::Memory &memory, const ir::Param &p, const LaunchData &data, size_t tensor,
                  bool outputs_unwritten) {
  HostTensor room;
  const HostTensor &t = in_memory(data, tensor, room);
  bool unwritten = outputs_unwritten && p.mode == ir::ParamMode::Out, dense = is_dense(data, tensor);
  emu::Memory::Attributes a;
  a.readonly = p.mode == ir::ParamMode::In;
  a.track_uninitialised = unwritten || !dense;
  uint64_t address = memory.allocate(int64_t(t.bytes.size()), p.name, a);
  if (uint8_t *host = memory.host(address)) std::copy(t.bytes.begin(), t.bytes.end(), host);
  if (!unwritten && !dense)
    each_run(data.tensors[tensor], data.strides[tensor],
             [&](int64_t at, int64_t bytes) { memory.mark_written(address + uint64_t(at), bytes); });
  return address;
}

Status give_back(const emu::Memory &memory, uint64_t address, const ir::Param &p, LaunchData &data, size_t tensor) {
  if (p.mode == ir::ParamMode::In) return {}; // the emulator lets nothing write it
  HostTensor room, t = in_memory(data, tensor, room);
  if (uint8_t *host = memory.host(address)) std::copy_n(host, t.bytes.size(), t.bytes.begin());
  return take_back(std::move(t), p, data, tensor);
}

// ---- GPU

Status run_gpu(Device &device, const CompiledKernel &kernel, LaunchData &data, const SourceManager &sources,
               double limit_seconds) {
  const ir::Function &f = *kernel.function;
  auto grid = launch_grid(f, data, sources);
  if (!grid) return grid.failed();
  auto module = Module::load_ptx(device, kernel.code.ptx);
  if (!module) return module.failed();
  const codegen::KernelAbi &abi = kernel.code.abis[may_use_aligned(f, data) ? 0 : 1];
  auto entry = module->kernel(abi.entry);
  if (!entry) return entry.failed();
  auto stream = Stream::create(device);
  if (!stream) return stream.failed();
  std::vector<std::optional<Buffer>> buffers(f.params.size());
  for (size_t i = 0; i < f.params.size(); i++) {
    if (!f.params[i].type.is_tensor() || !f.params[i].present) continue;
    HostTensor room;
    const HostTensor &t = in_memory(data, i, room);
    auto b = Buffer::allocate(device, int64_t(t.bytes.size()), 4096);
    if (!b) return b.failed();
    TKC_TRY(b->upload(t));
    buffers[i].emplace(std::move(*b));
  }
  auto blob = parameter_blob(
      f, abi, data, [&](size_t i) { return uint64_t(buffers[i]->address()); }, encode_for(device));
  if (!blob) return blob.failed();
  tkc::Launch how;
  auto blocks = launch_blocks(abi, *grid, *entry);
  if (!blocks) return blocks.failed();
  how.grid[0] = *blocks;
  how.block[0] = abi.threads;
  how.dynamic_shared = abi.shared_bytes;
  if (how.grid[0] > 0) {
    TKC_TRY(launch(*entry, how, Params::from_blob(blob->bytes, blob->offsets), *stream));
    TKC_TRY(stream->wait(limit_seconds));
  }
  for (size_t i = 0; i < f.params.size(); i++) {
    if (!buffers[i]) continue;
    TKC_TRY(give_back(*buffers[i], f.params[i], data, i));
  }
  return {};
}

Status check_guards(const Buffer &buffer, const std::string &name) {
  auto guards = buffer.check_guards();
  if (!guards) return guards.failed();
  if (*guards) return failure("{}", (*guards)->to_string(name));
  return {};
}

Status give_back(const Buffer &buffer, const ir::Param &param, LaunchData &data, size_t tensor) {
  TKC_TRY(check_guards(buffer, param.name));
  const HostTensor &t = data.tensors[tensor];
  bool dense = is_dense(data, tensor);
  if (dense && param.mode == ir::ParamMode::In) return {};
  std::vector<int64_t> shape = t.shape;
  if (!dense) shape = {memory_elements(t.shape, data.strides[tensor])};
  auto memory = buffer.download(t.dtype, shape);
  if (!memory) return memory.failed();
  return take_back(std::move(*memory), param, data, tensor);
}

} // namespace tkc::driver
