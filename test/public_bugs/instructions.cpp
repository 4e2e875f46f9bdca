// Which instructions are chosen, what they cost, and whether a target has them.
#include "runtime/fake_driver.h" // first: it opens a namespace whose names others declare as well

#include "layout/smem_layout.h"
#include "lines.h"
#include "public_bugs/kit.h"
#include "runtime/tensor_map.h"
#include "why.h"

using namespace tkc;
using namespace public_bugs;

namespace {
std::string products(const char *type) {
  const char *sum = std::string(type) == "f64" ? "f64" : "f32";
  return fmt::format(
      "kernel f(a: tensor<{0}>[32, K], b: tensor<{0}>[K, 32], y: out tensor<{1}>[32, 32]) grid (1) warps 2 {{\n"
      "  var s = zeros<{1}>[32, 32];\n"
      "  for k in 0 : K step 32 {{ s = mma(load(a[:, k :+ 32]), load(b[k :+ 32, :]), s); }}\n"
      "  store(y[:, :], s);\n}}\n",
      type, sum);
}
} // namespace

// 52: 8-bit products were widened to 16 bits, or took an instruction of half the rate, on parts that have the fast one.
TEST_CASE("products of 8-bit floats take the 8-bit instruction wherever a target has it") {
  for (const char *type : {"e4m3", "e5m2"})
    for (const char *target : {"sm_80", "sm_89", "sm_90", "sm_120"}) {
      std::string ptx = compiled(products(type), "f", target)->kernel->code.ptx;
      bool fast = ir::find_target(target)->has(ir::kFp8Mma);
      std::string want = fast ? fmt::format("mma.sync.aligned.m16n8k32.row.col.f32.{0}.{0}.f32", type)
                              : "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32";
      CHECK(count(ptx, "mma.sync") > 0);
      CHECK(count(ptx, "mma.sync") == count(ptx, want));
    }
  // The others have no such instruction for warps: their assembler would convert the operands.
  for (const char *target : {"sm_89", "sm_120", "sm_121"}) CHECK(ir::find_target(target)->has(ir::kFp8Mma));
}

// 53 A16 A17 E16 E17: PTX was handed out that the assembler of its target refuses: an instruction the target has not, a
// version too low for it, an intrinsic unknown to the back end that had become an external function.
TEST_CASE("PTX names its target, a version that has all of it, and no function from elsewhere") {
  size_t targets = 0;
  for (const ir::Target &t : ir::all_targets())
    for (const char *type : {"bf16", "f16", "e4m3", "f32", "f64"}) {
      bool usual = std::string(type) == "bf16" || std::string(type) == "e4m3";
      if (!usual && t.name != std::string("sm_80") && t.name != std::string("sm_120")) continue;
      std::string name = std::string(type) + " " + t.name;
      CAPTURE(name);
      auto c = compiled(products(type), "f", t.name);
      const std::string &ptx = c->kernel->code.ptx;
      CHECK(has(ptx, fmt::format(".target {}", t.name)));
      CHECK(!has(ptx, ".extern .func"));
      CHECK(!has(ptx, "llvm."));
      CHECK(!has(ptx, "__cuda_syscall"));
      emu::ParseResult parsed = emu::parse_ptx(ptx);
      std::string problem = parsed.errors.empty() ? "" : parsed.errors[0].message;
      CHECK_MESSAGE(parsed.module, problem);
      size_t at = ptx.find(".version ");
      double version = std::atof(ptx.c_str() + at + 9);
      auto needs = [&](const char *instruction, double least) {
        if (has(ptx, instruction)) CHECK(version >= least);
      };
      needs("mma.sync.aligned.m16n8k32.row.col.f32.e4m3", 8.4);
      needs("cp.async.bulk.shared::cta", 8.6);
      needs("cp.async.bulk", 8.0);
      targets++;
    }
  CHECK(targets >= 26);
  CHECK(has(refusal("kernel f(x: tensor<f32>[32], y: out tensor<f32>[32]) grid (1) warps 1 { store(y[:], "
                    "inline_ptx(\"tanh.approx.f32 "
                    "$0, $1;\", load(x[:]), result = f32, min_sm = 90, means = tanh(a0))); }\n",
                    "f", "sm_80"),
            "[unsupported-on-target]"));
}

// 54 A2: A tensor map was made from strides or addresses that are no multiples of 16, and the copy trapped on the
// device; what an earlier shape had been allowed was taken for the next one.
TEST_CASE("each launch checks what TMA demands of its own tensors, and has a way without") {
  const char *text = R"(
kernel f(a: tensor<bf16>[32, K], b: tensor<bf16>[K, N], y: out tensor<f32>[32, N]) grid (cdiv(N, 32)) warps 4 {
    let j = program_id(0) * 32;
    var s = zeros<f32>[32, 32];
    @pipeline(via = tma, stages = 2)
    for k in 0 : K step 32 { s = mma(load(a[:, k :+ 32]), load(b[k :+ 32, j :+ 32]), s); }
    store(y[:, j :+ 32], s);
}
verify f {
    y = mma(a, b);
    case aligned: K = 512, N = 128;
    case odd: K = 128, N = 7;
    case again: K = 512, N = 128;
    tolerance y: rms 1e-2;
}
)";
  holds(text, "f", {"sm_90", "sm_120"});
  auto c = compiled(text, "f");
  auto aligned = [&](int64_t k, int64_t n) {
    driver::LaunchData data;
    data.sizes = {{"K", k}, {"N", n}};
    data.tensors = {HostTensor::zeros(DType::BF16, {32, k}), HostTensor::zeros(DType::BF16, {k, n}),
                    HostTensor::zeros(DType::F32, {32, n})};
    return driver::may_use_aligned(*c->kernel->function, data);
  };
  CHECK(aligned(512, 128));
  CHECK(!aligned(128, 7));
  CHECK(!aligned(128, 132)); // rows of 264 bytes
  CHECK(aligned(512, 136));
  CHECK(has(entry_of(c->kernel->code.ptx, "f"), "cp.async.bulk.tensor"));
  CHECK(!has(entry_of(c->kernel->code.ptx, "f__any"), "cp.async.bulk.tensor"));
  TensorMapSpec map;
  map.address = 256;
  map.dims = {128, 64};
  map.strides = {264};
  map.box = {32, 32};
  Status bad = check_tensor_map(map);
  REQUIRE(!bad.ok());
  CHECK(has(bad.error(), "264"));
  map.strides = {256};
  CHECK(check_tensor_map(map).ok());
  map.address = 264;
  CHECK(!check_tensor_map(map).ok());
}

// 55: Drivers set a bit of the map that makes newer GPUs compute wrong addresses in small tensors with gaps.
TEST_CASE("a map of a tensor of less than 128 KiB does not keep the bit that some drivers set") {
  test::FakeGpu gpu;
  cu::Api api = test::fake_api(gpu);
  api.cuTensorMapEncodeTiled = [](cu::TensorMap *m, int, uint32_t, void *, const uint64_t *, const uint64_t *,
                                  const uint32_t *, const uint32_t *, int, int, int, int) -> cu::Code {
    m->opaque[1] = ~uint64_t(0);
    return 0;
  };
  TensorMapSpec map;
  map.address = 256;
  map.dims = {64, 100};
  map.box = {64, 32};
  for (int64_t stride : {256, 1024, 2048}) {
    map.strides = {stride};
    auto made = encode_tensor_map(api, map);
    REQUIRE_MESSAGE(made.ok(), why(made));
    int64_t span = 99 * stride + 128;
    CHECK((made->opaque[1] >> 21 & 1) == (span >= 128 * 1024));
    CHECK((made->opaque[1] | uint64_t(1) << 21) == ~uint64_t(0)); // no other bit
  }
}

// 56: Two divisions side by side agreed on a layout in which every lane computed the same, 32 times the work.
TEST_CASE("side by side divisions by a row's sum are computed once an element") {
  const char *text = R"(
kernel f(unused: tensor<i32>[N], x, w: tensor<f32>[32, 64], y, z: out tensor<f32>[32, 64]) grid (1) warps 4 {
    let s = load(x[:, :]);
    let t = load(w[:, :]);
    store(y[:, :], s / sum(t * t, axis = 1)[:, None]);
    store(z[:, :], t / sum(s * s, axis = 1)[:, None]);
}
verify f { y = x / sum(w * w, axis = 1)[:, None];  z = w / sum(x * x, axis = 1)[:, None];  case one: N = 1; }
)";
  holds(text, "f", {"sm_80", "sm_120"}, 1);
  for (const char *target : kTargets) {
    std::string ptx = entry_of(compiled(text, "f", target)->kernel->code.ptx, "f");
    int64_t divisions = count(ptx, "div.") + count(ptx, "rcp.");
    CHECK(divisions > 0);
    CHECK(divisions <= 2 * 32 * 64 / 128); // threads of the block
    CHECK(int64_t(lines_of(ptx).size()) < 600);
  }
}

// 57: A swizzle made for other accesses gave copies by cp.async and the reads of their tile conflicts of banks.
TEST_CASE("tiles in the rings of products are read and filled without bank conflicts") {
  for (const char *type : {"bf16", "f16"})
    for (const char *target : kTargets) {
      auto c = compiled(products(type), "f", target);
      const ir::Function &f = *c->kernel->function;
      LayoutFeatures features;
      int64_t reads = 0, fills = 0;
      for (const ir::Op *load : ops_of(f, ir::OpKind::RingLoad)) {
        const SmemLayout &smem =
            ir::ring_of(*load)->attrs.get<SmemLayout>(fmt::format("smem{}", load->attrs.i("field")));
        SmemSide side = plan_smem_load(*load->result()->layout, smem, features);
        CHECK(side.wavefronts == side.ideal);
        reads += side.wavefronts;
      }
      for (const ir::Op *fill : ops_of(f, ir::OpKind::RingFill)) {
        const ir::Op *ring = ir::ring_of(*fill);
        if (ir::by_tma(*ring)) continue;
        const SmemLayout &smem = ring->attrs.get<SmemLayout>(fmt::format("smem{}", fill->attrs.i("field")));
        SmemSide side = plan_smem_store(fill->attrs.get<RegLayout>("read"), smem, features);
        CHECK(side.wavefronts == side.ideal);
        fills += side.wavefronts;
      }
      CHECK(reads > 0);
      CHECK((fills > 0 || !ops_of(f, ir::OpKind::RingFill).empty()));
    }
}

// 58: A hint about occupancy ended the compiler, and another one made a kernel that never ended.
TEST_CASE("demands on warps, slots and registers compile to what runs, or are refused") {
  for (int64_t warps : {1, 2, 8, 32})
    for (int64_t stages : {2, 8}) {
      std::string text = fmt::format(
          "kernel f(a: tensor<bf16>[32, K], b: tensor<bf16>[K, 32], y: out tensor<f32>[32, 32]) grid (1) warps {} {{\n"
          "  var s = zeros<f32>[32, 32];\n  @pipeline(stages = {}) for k in 0 : K step 32 {{ s = mma(load(a[:, k :+ "
          "32]), load(b[k "
          ":+ 32, :]), s); }}\n  store(y[:, :], s);\n}}\n"
          "verify f {{ y = mma(a, b);  case some: K = 96;  tolerance y: rms 1e-2; }}\n",
          warps, stages);
      CAPTURE(text);
      holds(text, "f", {"sm_120"}, 2);
    }
  CHECK(has(refusal("kernel f(y: out tensor<f32>[8]) grid (1) warps 64 { store(y[:], zeros<f32>[8]); }\n", "f"),
            "[bad-warps]"));
  CHECK(has(refusal("kernel f(x: tensor<f32>[N, 8], y: out tensor<f32>[8]) grid (1) warps 1 { var s = zeros<f32>[8]; "
                    "@pipeline(stages "
                    "= 100) for i in 0 : N { s += load(x[i, :]); } store(y[:], s); }\n",
                    "f"),
            "[bad-annotation]"));
}
