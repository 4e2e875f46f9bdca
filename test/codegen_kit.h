// Kernels made by hand, laid out, compiled to PTX, and run on the emulator and on the interpreter.
#pragma once
#include "codegen/emit_ptx.h"
#include "emu/emu.h"
#include "ir/verify.h"
#include "ir_kit.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

namespace tkc::test {

inline std::vector<uint8_t> to_bytes(const interp::Storage &s) {
  std::vector<uint8_t> out;
  size_t n = is_float(s.dtype) ? s.f.size() : s.i.size();
  for (size_t k = 0; k < n; k++) {
    uint64_t bits = is_float(s.dtype) ? encode_float(s.dtype, s.f[k]) : uint64_t(s.i[k]);
    for (int64_t b = 0; b < dtype_bytes(s.dtype); b++) out.push_back(uint8_t(bits >> 8 * b));
  }
  return out;
}

inline int64_t occurrences(const std::string &text, const std::string &what) {
  int64_t n = 0;
  for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + 1)) n++;
  return n;
}

struct KernelKit : Kit {
  int64_t warps;
  std::map<std::string, int64_t> size_values;
  std::vector<codegen::KernelAbi> abis;
  std::string ptx;
  bool aligned = false;
  bool with_lines = false;
  std::vector<uint64_t> addresses;
  emu::Report report;

  explicit KernelKit(int64_t warps = 1) : Kit(ir::FunctionKind::Kernel), warps(warps) {
    f.name = "k";
    f.warps = warps;
  }

  // Every tensor parameter first, then scalars, then sizes.
  ir::Value *param(interp::Tile init, bool written, std::vector<ir::SizeExpr> dims = {}) {
    ir::Param p;
    p.name = "t" + std::to_string(f.params.size());
    Tensor t = tensor(init);
    if (dims.empty())
      for (int64_t e : init.shape) dims.push_back(ir::SizeExpr::constant(e));
    for (size_t d = 0; d < dims.size(); d++)
      if (!dims[d].is_const()) t.value->type.shape[d] = ir::kDynamic;
    p.type = t.value->type;
    p.mode = written ? ir::ParamMode::InOut : ir::ParamMode::In;
    p.dims = dims;
    f.params.push_back(p);
    return t.value;
  }
  ir::Value *in(interp::Tile init) { return param(std::move(init), false); }
  ir::Value *out(DType t, Ints shape) { return param(interp::Tile(t, std::move(shape)), true); }
  ir::Value *scalar_param(const std::string &name, interp::Tile value) {
    ir::Param p;
    p.name = name;
    p.type = ir::Type::scalar(value.dtype);
    f.params.push_back(p);
    return tile(std::move(value));
  }
  ir::Value *size(const std::string &name, int64_t v) {
    f.sizes.push_back(name);
    size_values[name] = v;
    return tile(ints(DType::I32, {}, {v}));
  }

  ir::Value *load(ir::Value *t, Ints sizes = {}, std::vector<ir::Value *> starts = {}) {
    if (sizes.empty()) sizes = t->type.shape;
    std::vector<ir::Value *> operands{t};
    for (size_t d = 0; d < sizes.size(); d++) operands.push_back(starts.empty() ? i32(0) : starts[d]);
    return value(OpKind::Load, operands, attrs({{"sizes", sizes}}));
  }
  // One element of a rank-1 tensor.
  ir::Value *load_scalar(ir::Value *t, int64_t at) {
    return value(OpKind::Load, {t, i32(at)}, attrs({{"sizes", Ints{1}}, {"drop", Ints{1}}}));
  }
  void store(ir::Value *t, ir::Value *v, std::vector<ir::Value *> starts = {}) {
    std::vector<ir::Value *> operands{t};
    for (int64_t d = 0; d < t->type.rank(); d++) operands.push_back(starts.empty() ? i32(0) : starts[size_t(d)]);
    operands.push_back(v);
    Ints sizes = v->type.shape;
    ir::Attrs a;
    if (sizes.empty()) { // one element
      sizes.assign(size_t(t->type.rank()), 1);
      a.set("drop", Ints(size_t(t->type.rank()), 1));
    }
    a.set("sizes", sizes);
    create(OpKind::Store, operands, a);
  }
  RegLayout default_layout(const Ints &shape) const {
    std::vector<int> order;
    for (int d = int(shape.size()); d-- > 0;) order.push_back(d);
    return shape.empty() ? replicated({}, warps) : blocked(shape, order, 2, warps);
  }
  // Gives every tile value without a layout a blocked one.
  void lay_out() {
    auto give = [&](ir::Value *v) {
      if (v->type.is_tile() && !v->layout) v->layout = default_layout(v->type.shape);
    };
    for (ir::Value *v : f.body->args) give(v);
    ir::walk(f.body, [&](ir::Op *op) {
      for (ir::Value *v : op->results) give(v);
      for (ir::Block *r : op->regions)
        for (ir::Value *v : r->args) give(v);
    });
  }

  codegen::EmitResult emit(const ir::Target &target, bool keep_llvm = false) {
    if (!f.body->terminator() || f.body->terminator()->kind != OpKind::Return) end(OpKind::Return, {});
    lay_out();
    codegen::Entry entry{&f, f.name, aligned};
    codegen::EmitOptions o;
    o.keep_llvm = keep_llvm;
    if (with_lines) o.sources = &sources;
    return codegen::emit({&entry, 1}, target, o);
  }
  void compile(const char *target = "sm_90") {
    codegen::EmitResult r = emit(*ir::find_target(target), true);
    REQUIRE_MESSAGE(r.ok, r.error << "\n" << r.llvm);
    ptx = r.ptx;
    abis = r.abis;
  }

  // Runs on the emulator; the tensors' bytes are then in `memory`.
  emu::Memory memory;
  void emulate(const char *target = "sm_90") {
    compile(target);
    emu::ParseResult parsed = emu::parse_ptx(ptx);
    for (const auto &e : parsed.errors) MESSAGE(e.line << ": " << e.message);
    REQUIRE_MESSAGE(parsed.module, ptx);
    const emu::KernelInfo *kernel = emu::find_kernel(*parsed.module, f.name);
    REQUIRE(kernel);
    REQUIRE(kernel->params.size() == abis[0].params.size());
    REQUIRE(kernel->required_threads[0] == abis[0].threads);
    emu::ParamWriter params(*kernel);
    addresses.clear();
    for (size_t i = 0; i < storages.size(); i++) {
      std::vector<uint8_t> bytes = to_bytes(*storages[i]);
      emu::Memory::Attributes how;
      how.readonly = f.params[i].mode == ir::ParamMode::In;
      uint64_t at = memory.allocate(int64_t(bytes.size()), f.params[i].name, how);
      std::memcpy(memory.host(at), bytes.data(), bytes.size());
      addresses.push_back(at);
    }
    using K = codegen::AbiParam::Kind;
    for (size_t n = 0; n < abis[0].params.size(); n++) {
      const codegen::AbiParam &p = abis[0].params[n];
      CHECK(kernel->params[n].offset == p.offset);
      CHECK(kernel->params[n].bytes == p.bytes);
      size_t arg = 0;
      while (arg < f.params.size() && f.params[arg].name != (p.tensor.empty() ? p.name : p.tensor)) arg++;
      if (p.kind == K::Pointer) {
        params.set(int64_t(n), addresses[arg]);
      } else if (p.kind == K::Stride) {
        params.set(int64_t(n), std::get<interp::TensorRef>(args[arg]).strides[size_t(p.dim)]);
      } else if (p.kind == K::Size) {
        params.set(int64_t(n), int32_t(size_values.at(p.name)));
      } else {
        const auto &t = std::get<interp::Tile>(args[arg]);
        uint64_t bits = t.is_float() ? encode_float(t.dtype, t.f[0]) : uint64_t(t.i[0]);
        params.set_bytes(int64_t(n), &bits, p.bytes);
      }
    }
    emu::Launch launch;
    for (int64_t g : grid()) launch.grid[0] *= g;
    launch.block[0] = abis[0].threads;
    launch.dynamic_shared = abis[0].shared_bytes;
    launch.params = params.bytes();
    report = emu::run(*parsed.module, f.name, memory, launch, {});
  }
  Ints grid() const {
    Ints out;
    for (const ir::SizeExpr &e : f.grid)
      out.push_back(*e.eval([&](const std::string &s) { return size_values.at(s); }));
    return out;
  }
  double element(size_t tensor, size_t k) const {
    DType t = storages[tensor]->dtype;
    auto size = size_t(dtype_bytes(t));
    uint64_t bits = 0;
    std::memcpy(&bits, memory.host(addresses[tensor]) + k * size, size);
    return is_float(t) ? decode_float(t, bits) : double(wrap_to(t, int64_t(bits)));
  }

  // Emulates, interprets and compares every tensor. `ulps` counts units in the last place of the element, `absolute`
  // adds to what is allowed.
  void check(double ulps = 0, double absolute = 0, const char *target = "sm_90") {
    emulate(target);
    for (const auto &e : report.errors) MESSAGE(emu::to_string(e));
    REQUIRE_MESSAGE(report.ok(), ptx);
    interp::Result r = run(grid());
    REQUIRE_MESSAGE(!r.trap, (r.trap ? r.trap->message : ""));
    for (size_t i = 0; i < storages.size(); i++) {
      const interp::Storage &s = *storages[i];
      size_t n = is_float(s.dtype) ? s.f.size() : s.i.size();
      int64_t wrong = 0;
      std::string first;
      for (size_t k = 0; k < n; k++) {
        double want = is_float(s.dtype) ? s.f[k] : double(s.i[k]), got = element(i, k);
        if (want == got || (std::isnan(want) && std::isnan(got))) continue;
        double unit = is_float(s.dtype) ? unit_in_last_place(s.dtype, want) : 0;
        if (std::abs(want - got) <= ulps * unit + absolute) continue;
        if (wrong++ == 0)
          first = fmt::format("tensor {} element {}: {} for {} ({} ulp)", i, k, got, want, std::abs(want - got) / unit);
      }
      if (wrong) {
        INFO(first << ", " << wrong << " of " << n);
        INFO(ptx);
        CHECK(wrong == 0);
      }
    }
  }
  static double unit_in_last_place(DType t, double x) {
    int mantissa = 0, least = -126;
    switch (t) {
    case DType::F16: mantissa = 10, least = -14; break;
    case DType::BF16: mantissa = 7; break;
    case DType::TF32: mantissa = 10; break;
    case DType::F32: mantissa = 23; break;
    case DType::F64: mantissa = 52, least = -1022; break;
    default: return 0;
    }
    int e = x == 0 || !std::isfinite(x) ? least : std::max(std::ilogb(x), least);
    return std::ldexp(1.0, e - mantissa);
  }
};

} // namespace tkc::test
