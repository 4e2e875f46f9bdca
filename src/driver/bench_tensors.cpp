#include "driver/bench_tensors.h"
#include "runtime/generators.h"

namespace tkc::driver {

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

static const char *mode_name(ir::ParamMode m) {
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

std::vector<std::pair<std::string, uint64_t>> BenchTensors::checksums(int64_t first_groups) const {
  std::vector<std::pair<std::string, uint64_t>> out;
  for (const auto &[name, sums] : inputs) out.emplace_back(name, sums.at(size_t(first_groups) - 1));
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
    if (p.mode != ir::ParamMode::Out) out->inputs.emplace_back(p.name, std::vector<uint64_t>());
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
        std::vector<uint64_t> &sums = out->inputs[input++].second;
        sums.push_back(splitmix64((sums.empty() ? 0 : sums.back()) ^ checksum(values)));
      }
      addresses[i] = b->address();
      out->buffers.push_back(std::move(*b));
    }
    out->addresses.push_back(std::move(addresses));
  }
  return out;
}

} // namespace tkc::driver
