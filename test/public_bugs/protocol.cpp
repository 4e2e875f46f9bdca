// Copies and barriers as they stand in PTX: who starts them, how many bytes they announce, what a wait holds back.
#include "ir/parse.h"
#include "ir/print.h"
#include "lines.h"
#include "public_bugs/kit.h"
#include <map>
#include <set>

using namespace tkc;
using namespace public_bugs;

namespace {
// Tiles of three sizes by one barrier.
const char *const kThree = R"(
kernel f(a: tensor<bf16>[32, K], b: tensor<bf16>[K, 64], c: tensor<f32>[K, 16], y: out tensor<f32>[32, 64], z: out tensor<f32>[16])
    grid (1) warps 8
{
    var s = zeros<f32>[32, 64];
    var r = zeros<f32>[16];
    @pipeline(via = tma, stages = 3)
    for k in 0 : K step 32 {
        s = mma(load(a[:, k :+ 32]), load(b[k :+ 32, :]), s);
        r += sum(load(c[k :+ 32, :]), axis = 0);
    }
    store(y[:, :], s);
    store(z[:], r);
}
verify f { y = mma(a, b);  z = sum(c, axis = 0);  case some: K = 224;  case odd: K = 40;  tolerance y: rms 1e-2; }
)";
} // namespace

// A3 E10: Copies of several sizes shared a barrier whose expected bytes were those of one, or of none: it hung.
TEST_CASE("a barrier expects the sum of the bytes of the copies that report to it") {
  holds(kThree, "f", {"sm_90", "sm_120"});
  auto c = compiled(kThree, "f");
  int64_t boxes = 0, announced = 0;
  std::set<std::string> fields;
  for (const ir::Op *fill : ops_of(*c->kernel->function, ir::OpKind::RingFill)) {
    if (!fields.insert(std::to_string(fill->attrs.i("field"))).second)
      continue; // once in front of the loop, once in it
    int64_t elements = 1;
    for (int64_t n : fill->attrs.ints("box")) elements *= n;
    const SmemLayout &smem = ir::ring_of(*fill)->attrs.get<SmemLayout>(fmt::format("smem{}", fill->attrs.i("field")));
    int64_t tile = 1;
    for (int64_t n : smem.shape) tile *= n;
    boxes += tile * smem.elem_bytes; // every element of a tile comes by some box
    CHECK(tile % elements == 0);
  }
  CHECK(fields.size() == 3);
  for (const ir::Op *publish : ops_of(*c->kernel->function, ir::OpKind::RingPublish)) {
    announced = publish->attrs.i("tx_bytes");
    CHECK(announced == boxes);
  }
  CHECK(announced == 32 * 32 * 2 + 32 * 64 * 2 + 32 * 16 * 4);
}

// E8 E14: Copies were started once a warp instead of once a block; the choice of a thread divided by zero in small
// blocks.
TEST_CASE("one thread of a block starts each copy, whatever number of warps there is") {
  for (int64_t warps : {1, 4, 8}) {
    std::string text = kThree;
    text.replace(text.find("warps 8"), 7, fmt::format("warps {}", warps));
    for (const char *producer : {"warp", "none"}) {
      std::string one = text;
      one.replace(one.find("stages = 3"), 10, fmt::format("stages = 3, producer = {}", producer));
      CAPTURE(one);
      holds(one, "f", {"sm_90"}, 3);
      // What every thread starts, or none, is seen.
      auto every = [](std::string ptx) {
        std::string out;
        for (const std::string &line : lines_of(ptx)) {
          size_t at = line.find("mbarrier.arrive.expect_tx");
          out += (at != std::string::npos ? line + "\n" + line : line) + "\n";
        }
        return out;
      };
      CHECK(run_edited(one, "f", "some", "sm_90", every) != "");
    }
  }
}

// E9: Copies to a cluster's shared memory became a call of the driver's code on sm_120: gigabytes of memory, and slow.
TEST_CASE("bulk copies name the block's own shared memory where a target has that form") {
  for (const char *target : {"sm_90", "sm_100", "sm_120", "sm_121"}) {
    std::string ptx = compiled(kThree, "f", target)->kernel->code.ptx;
    CHECK(has(ptx, "cp.async.bulk.tensor"));
    CHECK(!has(ptx, "__cuda_syscall"));
    for (const std::string &line : lines_of(ptx))
      if (has(line, "cp.async.bulk.tensor")) CHECK(has(line, ".shared::cta.global"));
  }
}

// E13 E18: Loads moved above a wait, for which the compiler of the host language knew no effect on memory.
TEST_CASE("to LLVM, every wait, barrier, fence and copy may touch any memory") {
  SourceManager sources;
  Diagnostics diags(sources);
  auto program = sema::Program::load(sources.add("f.tk", kThree), diags);
  REQUIRE_MESSAGE(program, diags.render_all());
  for (const char *target : {"sm_90", "sm_120"}) {
    driver::CompileOptions options;
    options.target = ir::find_target(target);
    options.keep_llvm = true;
    auto c = driver::compile_kernel(*program, *program->find("f", ast::FunctionKind::Kernel), {}, options, diags);
    REQUIRE_MESSAGE(c, diags.render_all());
    // Calls and texts alike may touch any memory, as far as LLVM knows.
    std::map<std::string, std::string> attributes;
    for (const std::string &line : lines_of(c->code.llvm))
      if (line.starts_with("attributes #")) attributes[line.substr(11, line.find(' ', 11) - 11)] = line;
    int64_t calls = 0;
    for (const std::string &line : lines_of(c->code.llvm)) {
      bool texts = has(line, "asm") && has(line, "cp.async");
      if (texts) CHECK((has(line, "sideeffect") && has(line, "~{memory}")));
      bool orders = false;
      for (const char *part : {"mbarrier", "barrier.cta", "fence", "cp.async"})
        orders |= has(line, std::string("@llvm.nvvm.") + part);
      if (!orders || !line.starts_with("declare")) continue;
      CHECK_MESSAGE(!has(attributes.at(line.substr(line.find('#'))), "memory("), line);
      calls++;
    }
    CHECK(calls >= 4);
  }
}

// E15d: The printer left out attributes of barriers, and a pipeline was gone when its text had been read back.
TEST_CASE("a pipelined kernel survives its text: rings, waits, barriers, with all their attributes") {
  for (const char *target : kTargets) {
    std::string text = kThree;
    if (std::string(target) == "sm_80") text.replace(text.find("via = tma"), 9, "via = cp_async");
    auto c = compiled(text, "f", target);
    std::string printed = ir::print(*c->kernel->function);
    CHECK(has(printed, "ring_wait"));
    SourceManager sources;
    Diagnostics diags(sources);
    int32_t id = sources.add("f.tkir", printed);
    auto again = ir::parse_ir(sources.file(id).text(), diags, id);
    REQUIRE_MESSAGE(again, diags.render_all());
    CHECK(ir::print(*again) == printed);
    std::vector<codegen::Entry> entries = {{again.get(), "f", true}, {again.get(), "f__any", false}};
    std::vector<codegen::Entry> before = {{c->kernel->function.get(), "f", true},
                                          {c->kernel->function.get(), "f__any", false}};
    CHECK(codegen::emit(entries, *ir::find_target(target)).ptx == codegen::emit(before, *ir::find_target(target)).ptx);
  }
}
