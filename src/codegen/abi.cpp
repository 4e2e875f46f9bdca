#include "codegen/abi.h"
#include "support/check.h"
#include <algorithm>
#include <map>

namespace tkc::codegen {

TensorMapUse tensor_map_of(const ir::Function &f, const ir::Op &fill) {
  for (size_t i = 0; i < f.params.size(); i++)
    if (f.params[i].present && f.param_value(f.params[i].name) == fill.operand(0))
      return {i, fill.attrs.ints("box"), fill.attrs.i("swizzle")};
  TKC_UNREACHABLE("a tensor copy from something else than a parameter");
}

std::vector<TensorMapUse> tensor_maps(const ir::Function &f) {
  std::vector<TensorMapUse> out;
  ir::walk(f.body, [&](const ir::Op *op) {
    if (!op->attrs.has("box")) return;
    TensorMapUse use = tensor_map_of(f, *op);
    if (std::find(out.begin(), out.end(), use) == out.end()) out.push_back(std::move(use));
  });
  return out;
}

std::vector<bool> takes_neighbours(const ir::Function &f) {
  std::map<const ir::Value *, size_t> tensors;
  for (size_t i = 0; i < f.params.size(); i++)
    if (f.params[i].present && f.params[i].type.is_tensor()) tensors[f.param_value(f.params[i].name)] = i;
  std::vector<bool> out(f.params.size(), false);
  // `rows`: the last dim of the view is the tensor's innermost one.
  auto visit = [&](const ir::Op *op, const ir::Value *tensor) {
    bool rows = tensor->type.rank() > 0;
    for (; tensor->op && ir::is_view(tensor->op->kind); tensor = tensor->op->operand(0))
      rows = rows && (tensor->op->kind == ir::OpKind::RecordField || tensor->op->attrs.ints("ranges").back() != 2);
    auto param = tensors.find(tensor);
    if (param == tensors.end() || op->kind == ir::OpKind::Dim || ir::is_view(op->kind)) return;
    bool single = !rows;
    if (rows && op->attrs.has("sizes") && op->attrs.has("gather"))
      single = op->attrs.ints("sizes").back() == 1 || op->attrs.ints("gather").back() != 0;
    if (!single) out[param->second] = true;
  };
  ir::walk(f.body, [&](const ir::Op *op) {
    for (size_t i = 0; i < op->operands.size(); i++)
      if (op->operand(i)->type.is_tensor()) visit(op, op->operand(i));
  });
  return out;
}

KernelAbi kernel_abi(const ir::Function &f, std::string entry, bool aligned) {
  KernelAbi abi;
  abi.entry = std::move(entry);
  abi.aligned = aligned;
  abi.threads = ir::block_warps(f) * 32;
  abi.shared_bytes = f.shared_bytes;
  abi.persistent = f.persistent;
  abi.overlaps = f.overlaps;
  int64_t at = 0;
  auto add = [&](AbiParam p) {
    int64_t alignment = p.kind == AbiParam::Kind::TensorMap ? kTensorMapAlignment : p.bytes;
    at = (at + alignment - 1) / alignment * alignment;
    p.offset = at;
    at += p.bytes;
    abi.params.push_back(std::move(p));
  };
  std::vector<bool> vectors = takes_neighbours(f);
  for (size_t i = 0; i < f.params.size(); i++) {
    const ir::Param &p = f.params[i];
    if (!p.present) continue;
    int64_t bytes = dtype_bytes(p.type.dtype);
    if (!p.type.is_tensor()) {
      add({AbiParam::Kind::Scalar, p.name, "", 0, p.type.dtype, false, 1, 0, bytes});
      continue;
    }
    add({AbiParam::Kind::Pointer, p.name, p.name, 0, p.type.dtype, p.mode != ir::ParamMode::In,
         aligned && vectors[i] ? kAlignedBytes : bytes, 0, 8});
    int64_t strides = p.type.rank() - (p.any_strides ? 0 : 1);
    for (int64_t d = 0; d < strides; d++)
      add({AbiParam::Kind::Stride, fmt::format("{}_stride{}", p.name, d), p.name, d, DType::I64, false, 1, 0, 8});
  }
  for (const std::string &s : f.sizes) add({AbiParam::Kind::Size, s, "", 0, DType::I32, false, 1, 0, 4});
  if (!aligned) return abi;
  std::map<std::string, int> maps;
  for (TensorMapUse &use : tensor_maps(f)) {
    const ir::Param &p = f.params[use.param];
    add({AbiParam::Kind::TensorMap, fmt::format("{}_map{}", p.name, maps[p.name]++), p.name, 0, p.type.dtype, false, 1,
         0, kTensorMapBytes, std::move(use.box), use.swizzle});
  }
  return abi;
}

std::vector<AlignmentCheck> alignment_checks(const ir::Function &f) {
  using Kind = AlignmentCheck::Kind;
  std::vector<AlignmentCheck> out;
  std::vector<TensorMapUse> maps = tensor_maps(f);
  std::vector<bool> vectors = takes_neighbours(f);
  for (size_t i = 0; i < f.params.size(); i++) {
    const ir::Param &p = f.params[i];
    if (!vectors[i]) continue;
    out.push_back({Kind::Address, i, 0, kAlignedBytes});
    int64_t elements = kAlignedBytes * 8 / dtype_bits(p.type.dtype), inner = p.type.rank() - 1;
    bool mapped = std::any_of(maps.begin(), maps.end(), [&](const TensorMapUse &m) { return m.param == i; });
    for (int64_t d = 0; d < inner; d++) {
      out.push_back({Kind::Stride, i, d, elements});
      if (mapped) out.back().least = elements, out.back().below = (int64_t(1) << 40) / dtype_bytes(p.type.dtype);
    }
    for (int64_t d = 0; d <= inner; d++) {
      if (p.dims[size_t(d)].is_const()) continue;
      AlignmentCheck c{Kind::Extent, i, d, d == inner ? elements : 1};
      if (mapped) c.least = 1;
      if (mapped || d == inner) out.push_back(c);
    }
  }
  return out;
}

namespace {

const char *kind_text(AbiParam::Kind k) {
  switch (k) {
  case AbiParam::Kind::Pointer: return "pointer";
  case AbiParam::Kind::Stride: return "stride";
  case AbiParam::Kind::Scalar: return "scalar";
  case AbiParam::Kind::Size: return "size";
  case AbiParam::Kind::TensorMap: return "map";
  }
  TKC_UNREACHABLE("AbiParam::Kind");
}

const char *mode_text(ir::ParamMode m) {
  switch (m) {
  case ir::ParamMode::In: return "";
  case ir::ParamMode::Out: return "out ";
  case ir::ParamMode::InOut: return "inout ";
  }
  TKC_UNREACHABLE("ParamMode");
}

std::string list(const std::vector<ir::SizeExpr> &exprs) {
  std::string s;
  for (const ir::SizeExpr &e : exprs) s += (s.empty() ? "" : ", ") + e.str();
  return s;
}

} // namespace

static std::string aligned_text(const ir::Function &f) {
  std::string others;
  std::vector<bool> vectors = takes_neighbours(f);
  for (size_t i = 0; i < f.params.size(); i++)
    if (f.params[i].present && f.params[i].type.is_tensor() && !vectors[i])
      others += (others.empty() ? " but of " : ", ") + f.params[i].name;
  return fmt::format("//   bases, pitches and run-time innermost extents are multiples of {} bytes{}\n", kAlignedBytes,
                     others);
}

std::string abi_comment(const ir::Function &f, const KernelAbi &abi) {
  std::string s = fmt::format("// kernel {}", abi.entry);
  std::string bindings;
  for (const auto &[name, value] : f.bindings)
    bindings += fmt::format("{}{} = {}", bindings.empty() ? "" : ", ", name, value);
  if (!bindings.empty()) s += fmt::format("<{}>", bindings);
  s += "\n";
  for (const ir::Param &p : f.params) {
    if (!p.present) {
      s += fmt::format("//   {}: absent\n", p.name);
      continue;
    }
    if (!p.type.is_tensor()) continue;
    std::string strides;
    for (int64_t d = 0; d < p.type.rank(); d++) {
      bool unit = d + 1 == p.type.rank() && !p.any_strides;
      strides += fmt::format("{}{}", d ? ", " : "", unit ? "1" : fmt::format("{}_stride{}", p.name, d));
    }
    s += fmt::format("//   {}: {}tensor<{}>[{}] strides [{}]\n", p.name, mode_text(p.mode), dtype_name(p.type.dtype),
                     list(p.dims), strides);
  }
  bool maps = false;
  for (const AbiParam &p : abi.params) {
    std::string what(p.kind == AbiParam::Kind::Pointer ? "address" : dtype_name(p.type));
    if (p.kind == AbiParam::Kind::TensorMap) {
      maps = true;
      what = fmt::format("tensor map of {}, box [", p.tensor);
      for (size_t d = 0; d < p.box.size(); d++) what += fmt::format("{}{}", d ? ", " : "", p.box[d]);
      what += fmt::format("], swizzle {}", p.swizzle);
    }
    s += fmt::format("//   param {:3}: {:7} {} ({}, {} bytes)\n", p.offset, kind_text(p.kind), p.name, what, p.bytes);
  }
  if (abi.aligned) s += aligned_text(f);
  if (maps) s += "//   tensors with maps: extents are at least 1, pitches positive and below 2^40 bytes\n";
  if (abi.aligned && !f.facts.empty()) s += fmt::format("//   where {}\n", list(f.facts));
  std::string order = f.order;
  for (size_t i = 0; i < f.order_args.size(); i++) order += fmt::format("{}{}", i ? ", " : "(", f.order_args[i]);
  if (!f.order_args.empty()) order += ")";
  s += fmt::format("//   grid{} ({}){}{}: grid.x is {}\n", f.persistent ? " persistent" : "", list(f.grid),
                   order.empty() ? "" : " order ", order,
                   f.persistent ? "from 1 to the product: as many blocks as the GPU holds at a time" : "the product");
  if (abi.overlaps) s += "//   waits for the launch before it (griddepcontrol), which may still run when it starts\n";
  s += fmt::format("//   block {} threads, {} bytes of dynamic shared memory\n", abi.threads, abi.shared_bytes);
  return s;
}

} // namespace tkc::codegen
