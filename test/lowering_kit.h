// Kernels made by hand, laid out by hand (often at random), compiled to PTX, run on the emulator and compared with what
// the interpreter, which knows no layouts, makes of the same IR.
#pragma once
#include "codegen/access.h"
#include "codegen/emit_ptx.h"
#include "emu/emu.h"
#include "ir_kit.h"
#include "layout/convert.h"
#include "layout/fragments.h"
#define Random LayoutRandom // ir_kit.h has another generator of this name
#include "layout_random.h"
#undef Random
#include "ops/scratch.h"
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>

namespace tkc::test {

inline std::vector<uint8_t> encode(DType t, const std::vector<double> &f, const std::vector<int64_t> &i) {
  std::vector<uint8_t> out;
  auto size = size_t(dtype_bytes(t)), n = is_float(t) ? f.size() : i.size();
  for (size_t k = 0; k < n; k++) {
    uint64_t bits = is_float(t) ? encode_float(t, f[k]) : uint64_t(i[k]);
    for (size_t b = 0; b < size; b++) out.push_back(uint8_t(bits >> 8 * b));
  }
  return out;
}

inline double decode(DType t, const uint8_t *bytes) {
  uint64_t bits = 0;
  for (int64_t b = 0; b < dtype_bytes(t); b++) bits |= uint64_t(bytes[b]) << 8 * b;
  return is_float(t) ? decode_float(t, bits) : double(wrap_to(t, int64_t(bits)));
}

inline interp::Tile random_tile(Random &rng, DType t, Ints shape, double scale = 4) {
  interp::Tile x(t, std::move(shape));
  for (double &v : x.f) v = round_to(t, rng.uniform(-scale, scale));
  for (int64_t &v : x.i) v = wrap_to(t, is_bool(t) ? rng.below(2) : int64_t(rng.next()));
  return x;
}

inline int64_t count(const std::string &text, const std::string &what) {
  int64_t n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) n++;
  return n;
}

// How a tensor parameter is declared.
struct Tensors {
  Ints extents, strides;  // by default those of the tile, row-major
  bool read_only = false; // `in`, else `inout`
  bool any_strides = false;
  bool is_static = false; // extents known to the compiler
};

struct Bench : Kit {
  std::string ptx;
  codegen::KernelAbi abi;
  const char *target = "sm_90";
  bool aligned = false; // all bases and strides are multiples of 16 bytes
  double tolerance = 0; // relative to the largest value

  explicit Bench(int64_t warps) : Kit(ir::FunctionKind::Kernel) {
    f.warps = warps;
    f.name = "k";
  }
  ir::Value *tensor_of(interp::Tile init, Tensors how = {}) {
    if (how.extents.empty()) how.extents = init.shape;
    if (how.strides.empty()) {
      how.strides.assign(how.extents.size(), 1);
      for (size_t d = how.extents.size(); d-- > 1;) how.strides[d - 1] = how.strides[d] * init.shape[d];
    }
    ir::Value *v = tensor(std::move(init), how.extents, how.strides).value;
    ir::Param p;
    p.name = "t" + std::to_string(f.params.size());
    if (!how.is_static) v->type.shape.assign(how.extents.size(), ir::kDynamic);
    p.type = v->type;
    p.mode = how.read_only ? ir::ParamMode::In : ir::ParamMode::InOut;
    p.any_strides = how.any_strides;
    for (int64_t e : how.extents) p.dims.push_back(ir::SizeExpr::constant(e));
    f.params.push_back(p);
    return v;
  }
  // Rows padded to 16 bytes.
  ir::Value *padded_tensor(Random &numbers, DType t, Ints extents, Tensors how = {}) {
    how.extents = extents;
    int64_t step = 16 / dtype_bytes(t);
    if (!extents.empty()) extents.back() = (extents.back() + step - 1) / step * step;
    return tensor_of(random_tile(numbers, t, extents), how);
  }
  ir::Value *laid(ir::Value *v, RegLayout l) {
    v->layout = std::move(l);
    return v;
  }
  // The tile of these sizes at these starts.
  ir::Value *load(ir::Value *t, Ints starts, Ints sizes, RegLayout l, ir::Attrs more = {},
                  std::vector<ir::Value *> extra = {}) {
    std::vector<ir::Value *> operands{t};
    for (int64_t s : starts) operands.push_back(i32(s));
    operands.insert(operands.end(), extra.begin(), extra.end());
    more.set("sizes", std::move(sizes));
    return laid(value(OpKind::Load, operands, more), std::move(l));
  }
  // Like load, but padding (and only padding, if the tile lies inside the tensor) holds NaN, or a large integer.
  ir::Value *poisoned(ir::Value *t, Ints sizes, RegLayout l) {
    DType d = t->type.dtype;
    ir::Value *bad = is_float(d) ? b.constant(d, dtype_bits(d) == 8 ? 448 : NAN, {}) : b.constant_int(d, 77, {});
    if (!sizes.empty()) bad = laid(value(OpKind::Broadcast, {bad}, attrs({{"shape", sizes}})), l);
    return load(t, Ints(sizes.size(), 0), sizes, l, attrs({{"has_other", int64_t(1)}}), {bad});
  }
  void store(ir::Value *t, Ints starts, ir::Value *v, ir::Attrs more = {}, std::vector<ir::Value *> extra = {}) {
    std::vector<ir::Value *> operands{t};
    for (int64_t s : starts) operands.push_back(i32(s));
    operands.push_back(v);
    operands.insert(operands.end(), extra.begin(), extra.end());
    if (!more.has("sizes")) more.set("sizes", v->type.shape);
    create(OpKind::Store, operands, more);
  }
  ir::Value *out(DType t, Ints shape) { return tensor_of(interp::Tile(t, std::move(shape))); }
  // A conversion as the passes write it.
  ir::Value *convert(ir::Value *x, RegLayout to) {
    LayoutFeatures features = ir::layout_features(*ir::find_target(target));
    ConversionPlan plan = plan_conversion(*x->layout, to, dtype_bytes(x->type.dtype) * 8, features);
    if (plan.kind != ConvertKind::Shared) return laid(value(OpKind::ConvertLayout, {x}), std::move(to));
    return through_shared(x, to, plan.shared);
  }
  ir::Value *through_shared(ir::Value *x, RegLayout to, const SharedPlan &plan) {
    ir::Value *token = value(OpKind::ScratchStore, {x}, attrs({{"smem", plan.layout}, {"offset", int64_t(0)}}));
    create(OpKind::BlockBarrier, {}, attrs({{"scope", std::string(plan.warp_sync ? "warp" : "block")}}));
    f.shared_bytes = std::max(f.shared_bytes, plan.bytes);
    return laid(value(OpKind::ScratchLoad, {token}), std::move(to));
  }
  void with_scratch(ir::Op *op, int64_t bytes) {
    op->attrs.set("scratch_offset", int64_t(0));
    f.shared_bytes = std::max(f.shared_bytes, bytes);
  }

  void compile() {
    if (f.body->ops.empty() || f.body->ops.back()->kind != OpKind::Return) end(OpKind::Return, {});
    ir::walk(f.body, [&](ir::Op *op) {
      for (ir::Value *v : op->results)
        if (v->type.is_scalar()) v->layout = replicated({}, f.warps);
    });
    codegen::Entry entry{&f, "k", aligned};
    codegen::EmitResult r = codegen::emit({&entry, 1}, *ir::find_target(target));
    REQUIRE_MESSAGE(r.ok, r.error);
    ptx = r.ptx;
    abi = r.abis[0];
  }
  // The assembler accepts the PTX and keeps it free of local memory; nothing is known where there is none.
  void assemble() {
    static const bool present = std::system("ptxas --version > /dev/null 2>&1") == 0;
    if (!present) return;
    std::string path = std::string(TKC_BINARY_DIR) + "/lowering_test.ptx", log = path + ".log";
    std::ofstream(path) << ptx;
    std::string command = fmt::format("ptxas -v -arch={} -o /dev/null {} > {} 2>&1", target, path, log);
    int status = std::system(command.c_str());
    std::ifstream in(log);
    std::string text(std::istreambuf_iterator<char>(in), {});
    INFO(text);
    INFO(ptx);
    REQUIRE(status == 0);
    CHECK(text.find(" 0 bytes stack frame") != std::string::npos);
  }
  void assemble_for_all(int min_sm = 80) {
    for (const char *t : {"sm_80", "sm_90", "sm_120"}) {
      if (ir::find_target(t)->sm < min_sm) continue;
      target = t;
      compile();
      assemble();
    }
  }
  // Runs both and compares every tensor.
  void check() {
    compile();
    emu::ParseResult parsed = emu::parse_ptx(ptx);
    for (const auto &e : parsed.errors) MESSAGE(e.line << ": " << e.message);
    REQUIRE_MESSAGE(parsed.module, ptx);
    const emu::KernelInfo *kernel = emu::find_kernel(*parsed.module, "k");
    REQUIRE(kernel);
    emu::Memory memory;
    emu::ParamWriter params(*kernel);
    std::vector<uint64_t> addresses;
    int64_t next = 0;
    for (size_t i = 0; i < storages.size(); i++) {
      const interp::Storage &s = *storages[i];
      std::vector<uint8_t> bytes = encode(s.dtype, s.f, s.i);
      emu::Memory::Attributes how;
      how.readonly = f.params[i].mode == ir::ParamMode::In;
      how.alignment = aligned ? 16 : dtype_bytes(s.dtype);
      uint64_t at = memory.allocate(int64_t(bytes.size()), f.params[i].name, how);
      std::memcpy(memory.host(at), bytes.data(), bytes.size());
      addresses.push_back(at);
    }
    for (const codegen::AbiParam &p : abi.params) {
      size_t i = size_t(std::stoll((p.kind == codegen::AbiParam::Kind::Pointer ? p.name : p.tensor).substr(1)));
      const auto &ref = std::get<interp::TensorRef>(args[i]);
      if (p.kind == codegen::AbiParam::Kind::Pointer)
        params.set(next++, addresses[i]);
      else
        params.set(next++, ref.strides[size_t(p.dim)]);
    }
    emu::Launch launch;
    launch.block[0] = abi.threads;
    launch.dynamic_shared = abi.shared_bytes;
    launch.params = params.bytes();
    emu::Options options;
    options.policy = emu::Policy::Reverse;
    emu::Report report = emu::run(*parsed.module, "k", memory, launch, options);
    for (const auto &e : report.errors) MESSAGE(emu::to_string(e));
    REQUIRE_MESSAGE(report.ok(), ptx);
    interp::Result r = run();
    REQUIRE_MESSAGE(!r.trap, (r.trap ? r.trap->message : ""));
    for (size_t i = 0; i < storages.size(); i++) {
      const interp::Storage &s = *storages[i];
      const uint8_t *bytes = memory.host(addresses[i]);
      size_t n = is_float(s.dtype) ? s.f.size() : s.i.size();
      double largest = 0;
      for (size_t k = 0; k < s.f.size(); k++)
        if (std::isfinite(s.f[k])) largest = std::max(largest, std::abs(s.f[k]));
      int64_t wrong = 0;
      std::string first;
      for (size_t k = 0; k < n; k++) {
        double want = is_float(s.dtype) ? s.f[k] : double(s.i[k]);
        double got = decode(s.dtype, bytes + k * size_t(dtype_bytes(s.dtype)));
        bool same = want == got || (std::isnan(want) && std::isnan(got)) || std::abs(want - got) <= tolerance * largest;
        if (!same && wrong++ == 0) first = fmt::format("tensor {} element {}: {} for {}", i, k, got, want);
      }
      INFO(first);
      if (wrong) MESSAGE(ptx);
      REQUIRE(wrong == 0);
    }
  }
};

} // namespace tkc::test
