#include "driver/bench_tensors.h"
#include "runtime/generators.h"

namespace tkc::driver {

static constexpr DataRules kFirstGroup = {.group = 0};

Result<LaunchData> bench_shapes(sema::Program &program, const ast::Check &check, const ir::Function &f,
                                const sema::CaseSpec &c, Diagnostics &diags) {
  return make_shapes(program, &check, f, c, kFirstGroup, diags);
}

Result<LaunchData> bench_contents(const BenchSource &s, int64_t group) {
  return make_data(s.program, &s.check, s.f, s.c, {.group = group}, s.diags);
}

int64_t memory_bytes(const LaunchData &data, size_t tensor) {
  const HostTensor &t = data.tensors[tensor];
  return storage_bytes(t.dtype, memory_elements(t.shape, strides_of(data, tensor)));
}

static const char *mode_name(ir::ParamMode m) {
  return m == ir::ParamMode::In ? "in" : m == ir::ParamMode::Out ? "out" : "inout";
}

std::vector<std::string> signature_of(const BenchSource &s) {
  std::vector<std::string> out;
  for (size_t i = 0; i < s.f.params.size(); i++) {
    const ir::Param &p = s.f.params[i];
    if (p.type.is_tensor() && p.present)
      out.push_back(fmt::format("{} {} {}{} strides {}", p.name, mode_name(p.mode), dtype_name(p.type.dtype),
                                shape_to_string(s.data.tensors[i].shape), shape_to_string(strides_of(s.data, i))));
    else
      out.push_back(p.name);
  }
  if (!makes_contents(s.check, s.f)) return out;
  // Expressions may call functions of their file: the same block, with the same numbers.
  std::string said = fmt::format("block {}", fmt::ptr(&s.check));
  for (const auto &[name, v] : numbers_of(s.f, s.c)) said += fmt::format(" {}={}", name, v);
  for (const sema::HostArg &w : words_of(s.f)) said += fmt::format(" {}={}", w.name, w.word);
  out.push_back(std::move(said));
  return out;
}

std::vector<std::pair<std::string, uint64_t>> BenchTensors::checksums(int64_t first_groups) const {
  std::vector<std::pair<std::string, uint64_t>> out;
  for (const auto &[name, sums] : inputs) out.emplace_back(name, sums.at(size_t(first_groups) - 1));
  return out;
}

Result<std::shared_ptr<BenchTensors>> make_tensors(const BenchSource &s, int64_t groups, Device &device) {
  const ir::Function &f = s.f;
  auto out = std::make_shared<BenchTensors>();
  out->signature = signature_of(s);
  for (const ir::Param &p : f.params) {
    if (!p.type.is_tensor() || !p.present) continue;
    out->written_inputs |= p.mode == ir::ParamMode::InOut;
    if (p.mode != ir::ParamMode::Out) out->inputs.emplace_back(p.name, std::vector<uint64_t>());
  }
  for (int64_t g = 0; g < groups; g++) {
    auto contents = bench_contents(s, g);
    if (!contents) return contents.failed();
    std::vector<uint64_t> addresses(f.params.size(), 0);
    size_t input = 0;
    for (size_t i = 0; i < f.params.size(); i++) {
      const ir::Param &p = f.params[i];
      if (!p.type.is_tensor() || !p.present) continue;
      auto b = Buffer::allocate(device, memory_bytes(s.data, i));
      if (!b) return b.failed();
      if (p.mode == ir::ParamMode::Out) {
        TKC_TRY(b->set_bytes(0));
      } else {
        HostTensor room;
        TKC_TRY(b->upload(in_memory(*contents, i, room)));
        std::vector<uint64_t> &sums = out->inputs[input++].second;
        sums.push_back(splitmix64((sums.empty() ? 0 : sums.back()) ^ checksum(contents->tensors[i])));
      }
      addresses[i] = b->address();
      out->buffers.push_back(std::move(*b));
    }
    out->addresses.push_back(std::move(addresses));
  }
  return out;
}

} // namespace tkc::driver
