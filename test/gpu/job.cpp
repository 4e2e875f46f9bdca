#include "gpu/job.h"
#include "runtime/tensor_map.h"
#include <cstring>

namespace gpu_test {

using namespace tkc;

namespace {
std::string with_header(const std::string &text, const std::string &target) {
  return fmt::format(".version 8.6\n.target {}\n.address_size 64\n{}", target, text);
}
// The parameters; `map` makes the 128 bytes of a tensor map.
template <typename Address, typename Map>
Result<std::vector<uint8_t>> parameters(const Job &job, const emu::KernelInfo &k, Address address, Map map) {
  if (k.params.size() != job.arguments.size())
    return failure("{} parameters, {} arguments", k.params.size(), job.arguments.size());
  emu::ParamWriter w(k);
  for (size_t i = 0; i < job.arguments.size(); i++) {
    if (const auto *b = std::get_if<BufferRef>(&job.arguments[i])) {
      w.set(int64_t(i), uint64_t(address(b->index)));
    } else if (const auto *m = std::get_if<MapRef>(&job.arguments[i])) {
      emu::TensorMap described = m->map;
      described.address = uint64_t(address(m->index));
      auto image = map(described);
      if (!image) return image.failed();
      w.set_bytes(int64_t(i), image->data(), int64_t(image->size()));
    } else {
      const auto &bytes = std::get<std::vector<uint8_t>>(job.arguments[i]);
      w.set_bytes(int64_t(i), bytes.data(), int64_t(bytes.size()));
    }
  }
  return w.bytes();
}
Result<std::shared_ptr<const emu::Module>> parse(const Job &job) {
  emu::ParseResult r = emu::parse_ptx(with_header(job.text, "sm_120a"));
  if (!r.module) return failure("line {}: {}", r.errors[0].line, r.errors[0].message);
  return r.module;
}
} // namespace

Result<Buffers> on_emulator(const Job &job) {
  auto module = parse(job);
  if (!module) return module.failed();
  const emu::KernelInfo &k = *emu::kernels(**module).front();
  emu::Memory memory;
  std::vector<uint64_t> addresses;
  for (const auto &b : job.buffers) {
    addresses.push_back(memory.allocate(int64_t(b.size()), fmt::format("buffer {}", addresses.size())));
    std::memcpy(memory.host(addresses.back()), b.data(), b.size());
  }
  using Image = std::array<uint8_t, emu::kTensorMapBytes>;
  auto params = parameters(
      job, k, [&](size_t i) { return addresses[i]; },
      [](const emu::TensorMap &m) { return Result<Image>(emu::encode_tensor_map(m)); });
  if (!params) return params.failed();
  emu::Launch l;
  l.grid[0] = job.grid, l.block[0] = job.block, l.cluster[0] = job.cluster, l.params = *params;
  emu::Report r = emu::run(**module, k.name, memory, l, emu::Options());
  if (!r.ok()) return failure("{}", emu::to_string(r.errors[0]));
  Buffers out = job.buffers;
  for (size_t i = 0; i < out.size(); i++) std::memcpy(out[i].data(), memory.host(addresses[i]), out[i].size());
  return out;
}

Result<Buffers> on_gpu(Device &device, const Job &job) {
  auto description = parse(job);
  if (!description) return description.failed();
  const emu::KernelInfo &k = *emu::kernels(**description).front();
  // Plain sm_90 has all that the tables use on a Hopper GPU; later ones have names with suffixes for some.
  std::string target = device.info().major == 9 ? "sm_90" : device.info().arch() + "a";
  auto module = Module::load_ptx(device, with_header(job.text, target));
  if (!module) return module.failed();
  auto entry = module->kernel(k.name);
  if (!entry) return entry.failed();
  auto stream = Stream::create(device);
  if (!stream) return stream.failed();
  std::vector<Buffer> buffers;
  for (const auto &b : job.buffers) {
    auto allocated = Buffer::allocate(device, int64_t(b.size()), 4096);
    if (!allocated) return allocated.failed();
    TKC_TRY(allocated->upload(std::span<const uint8_t>(b)));
    buffers.push_back(std::move(*allocated));
  }
  auto encode = [&](const emu::TensorMap &m) {
    TensorMapSpec s;
    s.dtype = m.dtype, s.address = m.address, s.swizzle_bytes = m.swizzle;
    for (size_t d = 0; d < size_t(m.rank); d++) {
      s.dims.push_back(m.size[d]), s.box.push_back(m.box[d]);
      if (d) s.strides.push_back(m.stride[d]);
    }
    return encode_tensor_map(device.api(), s);
  };
  struct Image {
    std::array<uint8_t, emu::kTensorMapBytes> bytes;
    const uint8_t *data() const { return bytes.data(); }
    size_t size() const { return bytes.size(); }
  };
  auto params = parameters(
      job, k, [&](size_t i) { return uint64_t(buffers[i].address()); },
      [&](const emu::TensorMap &m) -> Result<Image> {
        auto map = encode(m);
        if (!map) return map.failed();
        static_assert(sizeof *map == emu::kTensorMapBytes);
        Image image;
        std::memcpy(image.bytes.data(), &*map, sizeof *map);
        return image;
      });
  if (!params) return params.failed();
  std::vector<int64_t> offsets;
  for (const emu::PtxParam &p : k.params) offsets.push_back(p.offset);
  tkc::Launch how;
  how.grid[0] = job.grid, how.block[0] = job.block, how.cluster[0] = job.cluster;
  TKC_TRY(launch(*entry, how, Params::from_blob(*params, offsets), *stream));
  TKC_TRY(stream->wait(20));
  Buffers out = job.buffers;
  for (size_t i = 0; i < out.size(); i++) TKC_TRY(buffers[i].download(std::span<uint8_t>(out[i])));
  return out;
}

Device *gpu() {
  static std::unique_ptr<Device> device = [] {
    auto opened = Device::open();
    return opened && opened->get()->info().major >= 9 ? std::move(*opened) : nullptr;
  }();
  return device.get();
}

} // namespace gpu_test
