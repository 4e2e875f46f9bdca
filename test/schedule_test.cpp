// Schedules of loops: the text form, what a text forces, and what must be pipelined.
#include "driver/timeline.h"
#include "driver/verify.h"
#include "ir/by_hand.h"
#include "passes/modulo_schedule.h"
#include "passes/prove_protocol.h"
#include "schedule/kit.h"
#include <cmath>
#include <fmt/ranges.h>
#include <map>
#include <regex>

using namespace schedule_kit;

namespace {

// A product over K with `loop` around the loads, `more` parameters and `warps` warps.
std::string product(const std::string &loop, const std::string &more = "", int warps = 4) {
  return fmt::format(
      "kernel p(a: tensor<bf16>[64, K], b: tensor<bf16>[K, 64], {}y: out tensor<f32>[64, 64]) grid (1) warps {} "
      "{{\n  var acc = zeros<f32>[64, 64];\n  {}\n  store(y[:, :], acc);\n}}\n",
      more, warps, loop);
}
const std::string kBody = "{ acc = mma(load(a[:, k :+ 32]), load(b[k :+ 32, :]), acc); }";
const std::string kLoop = "for k in 0 : K step 32 " + kBody;
// Its place in product().
const std::string kPlace = "loop k at 3";

// What a forced text leads to: the summary of the loops, or the messages.
std::string forced(const std::string &source, const std::string &target, const std::string &text) {
  Loaded l(source, target);
  std::string out;
  if (l.force(text)) {
    l.schedule();
    out = fmt::format("{}", fmt::join(summary(l.functions), "\n"));
  }
  for (const Diagnostic &d : l.diags.all()) {
    LineColumn at = d.loc.valid() ? l.sources.file(d.loc.file).position(d.loc.begin) : LineColumn{};
    std::string file = d.loc.valid() ? l.sources.file(d.loc.file).name() : "";
    out = (&d == &l.diags.all()[0] ? "" : out + "\n") + fmt::format("{}:{}: {}", file, at.line, d.text);
  }
  return out;
}

} // namespace

TEST_CASE("the text of every sample's schedule parses to the same value, and forcing it changes nothing") {
  for (const std::string &sample : sample_names())
    for (const char *target : kTargets) {
      CAPTURE(sample);
      CAPTURE(target);
      std::string source = source_text("samples/" + sample + ".tk");
      Loaded chosen(source, target, sample_path(sample));
      Schedule s = chosen.schedule();
      REQUIRE_MESSAGE(!chosen.diags.has_errors(), chosen.diags.render_all());
      for (const KernelPlan &k : s.kernels) {
        auto fault = verify(k);
        CHECK_MESSAGE(!fault, fault->text);
      }
      std::string text = s.to_string();
      Loaded again(source, target, sample_path(sample));
      REQUIRE_MESSAGE(again.force(text), again.diags.render_all());
      CHECK(again.options.passes.schedule->to_string() == text);
      // Why a loop has no ring is now that the text says so.
      std::regex why("synchronous: .*");
      CHECK(std::regex_replace(again.schedule().to_string(), why, "synchronous") ==
            std::regex_replace(text, why, "synchronous"));
      CHECK_MESSAGE(!again.diags.has_errors(), again.diags.render_all());
      REQUIRE(again.functions.size() == chosen.functions.size());
      if (sample == "gemm" || sample == "attention" || sample == "kda_chain") CHECK(again.ptx() == chosen.ptx());
    }
}

TEST_CASE("a part of a schedule forces that part") {
  std::string p = product(kLoop), wide = product(kLoop, "", 8);
  auto loop = [](const std::string &text) { return "kernel p\n" + kPlace + "\n" + text; };
  CHECK(forced(p, "sm_90", "") == "p k: 4 mbarrier by a producer: a b");
  CHECK(forced(p, "sm_90", loop("stages 2")) == "p k: 2 mbarrier by a producer: a b");
  CHECK(forced(p, "sm_90", loop("stages 3\ntransport cp_async")) == "p k: 3 cp_async: a b");
  CHECK(forced(p, "sm_90", loop("producer none")) == "p k: 4 cp_async: a b");
  CHECK(forced(p, "sm_90", loop("transport tma\nproducer warp")) == "p k: 4 tma by a producer: a b; 1 proxy fence");
  CHECK(forced(p, "sm_90", loop("transport tma\nproducer none\nstages 8")) == "p k: 8 tma: a b; 1 proxy fence");
  CHECK(forced(wide, "sm_90", loop("transport cp_async")) == "p k: 4 cp_async: a b");
  CHECK(forced(wide, "sm_90", loop("transport mbarrier")) == "p k: 4 mbarrier by a producer: a b");
  CHECK(forced(p, "sm_90", loop("synchronous: it is short")) == "p k: synchronous: @no_pipeline");
  CHECK(forced(p, "sm_90", loop("sync b: for a try")) ==
        "p k: 4 mbarrier by a producer: a; not b: the forced schedule says so");
  // For another target, or with a comment only: nothing is forced.
  CHECK(forced(p, "sm_90", "kernel p on sm_80\n" + kPlace + "\n  stages 2\n") == "p k: 4 mbarrier by a producer: a b");
  CHECK(forced(p, "sm_90", "# nothing\n\n") == "p k: 4 mbarrier by a producer: a b");
  // That for the target comes before that for all.
  CHECK(forced(p, "sm_90", "kernel p on sm_90\n" + kPlace + "\nstages 3\nkernel p\n" + kPlace + "\nstages 2\n") ==
        "p k: 3 mbarrier by a producer: a b");
  // It replaces what the source says.
  std::string annotated = product("@pipeline(stages = 2, via = tma) " + kLoop), none = product("@no_pipeline " + kLoop);
  CHECK(forced(annotated, "sm_90", loop("stages 5\ntransport cp_async")) == "p k: 5 cp_async: a b");
  CHECK(forced(annotated, "sm_90", loop("synchronous:")) == "p k: synchronous: @no_pipeline");
  CHECK(forced(none, "sm_90", loop("stages 3")) == "p k: 3 mbarrier by a producer: a b");
  // The swizzle of a field.
  for (const char *layout : {"swizzle 32", "swizzle 64", "rows"}) {
    CAPTURE(layout);
    Loaded l(p, "sm_90");
    REQUIRE(l.force(loop(fmt::format("transport tma\nfield b bf16[32, 64] at 0 {}", layout))));
    Schedule s = l.schedule();
    REQUIRE_MESSAGE(!l.diags.has_errors(), l.diags.render_all());
    REQUIRE(s.kernels[0].loops[0].fields.size() == 1);
    CHECK(s.kernels[0].loops[0].fields[0].layout == layout);
  }
}

TEST_CASE("what a schedule asks for and cannot be done is reported where the schedule says it") {
  std::string p = product(kLoop);
  auto loop = [](const std::string &text) { return "kernel p\n" + kPlace + "\n" + text; };
  auto cannot = [](int line, const std::string &text) {
    return fmt::format("s.txt:{}: kernel `p` cannot have the schedule that is asked for: {}", line, text);
  };
  CHECK(forced(p, "sm_80", loop("stages 3\ntransport tma")) ==
        cannot(4, "via = tma is not possible: sm_80 has no bulk and tensor copies"));
  CHECK(forced(product(kLoop, "", 16), "sm_80", loop("stages 2\nstage 100 B")) ==
        cannot(4, "the number of bytes of a stage is 8192"));
  CHECK(forced(p, "sm_90", "kernel p\nshared 100000 B\n") == cannot(2, "the block's shared memory in bytes is 32832"));
  CHECK(forced(p, "sm_90", "kernel p\nloop k at 4\nstages 3") ==
        cannot(2, "there is no loop `k at 4`; its loops with loads of tiles are k at 3"));
  CHECK(forced(p, "sm_90", loop("field c bf16[64, 32] at 0 rows")) ==
        cannot(3, "loop `k at 3` has no such load of `c`"));
  CHECK(forced(p, "sm_90", loop("transport cp_async\nfield a bf16[64, 32] at 4096 swizzle 64")) ==
        cannot(4, "it is `field a bf16[64, 32] at 0 swizzle 64`"));
  CHECK(forced(product("for k in 0 : K step 32 { acc = acc + load(y[:, :]); store(y[:, :], acc); }")
                   .replace(product("").find("y: out"), 6, "y: inout"),
               "sm_90",
               loop("stages 2")) == cannot(2, "no load of it can run ahead: `y`: the kernel writes its tensor"));
  std::string nested = product("for j in 0 : 2 { " + kLoop + " }");
  CHECK(forced(nested, "sm_90", loop("producer warp")) ==
        cannot(3, "a producer warp is not possible: a loop is inside another one or in a branch"));
}

TEST_CASE("a text that is no schedule") {
  auto wrong = [](const std::string &text) { return forced(product(kLoop), "sm_90", text); };
  CHECK(wrong("stages 3") == "s.txt:1: a schedule begins with `kernel NAME`");
  CHECK(wrong("kernel p\nstages 3") == "s.txt:2: this belongs to a loop: `loop VARIABLE at LINE`");
  CHECK(wrong("kernel p\nloop k at 3\nspeed 9") == "s.txt:3: `speed 9` is no statement of a schedule");
  CHECK(wrong("kernel p\nloop k at 3\nstages many") == "s.txt:3: expected `stages N`");
  CHECK(wrong("kernel p\nloop k at 3\nstages 3 4") == "s.txt:3: `4` is too much");
  CHECK(wrong("kernel p\nloop k at 3\nstages 9") == "s.txt:3: a ring has 2 to 8 stages, not 9");
  CHECK(wrong("kernel p\nloop k at 3\nstages 2\n\n  stages 3") == "s.txt:5: this is said twice");
  CHECK(wrong("kernel p\nloop k at 3\ntransport ship") ==
        "s.txt:3: expected `transport cp_async`, `mbarrier` or `tma`");
  CHECK(wrong("kernel p\nloop k at 3\nsynchronous: so\nstages 2") ==
        "s.txt:3: a loop without a ring has no stages, transport, producer or fields");
  CHECK(wrong("kernel p\nloop k at 3\ntransport cp_async\nproducer warp") ==
        "s.txt:4: by cp_async the threads that read also copy: with a producer it is mbarrier");
  CHECK(wrong("kernel p\nloop k at 3\ntransport mbarrier\nproducer none") ==
        "s.txt:4: by mbarrier a producer copies: without one it is cp_async");
  CHECK(wrong("kernel p\nloop k at 3\nproducer warp\nloop k at 4\nproducer none") ==
        "s.txt:5: either a producer copies for all loops of a kernel or for none");
  CHECK(wrong("kernel p\nloop k at 3\nloop k at 3") == "s.txt:3: loop `k at 3` is there twice");
  CHECK(wrong("kernel p\nkernel p") == "s.txt:2: kernel `p` is there twice");
  CHECK(wrong("kernel p\nloop k at 3\nfield a bf16[64, 32] at 0 rows\nfield b bf16[32, 64] at 4094 rows") ==
        "s.txt:4: this field overlaps that of `a`");
  CHECK(wrong("kernel p\nloop k at 3\nstage 4096 B\nfield b bf16[32, 64] at 4096 rows") ==
        "s.txt:4: this field ends at 8192 B of a slot that has 4096");
  std::string field = "expected `field TENSOR DTYPE[N, ..] at N`, and then `rows`, `swizzle 32`, 64 or 128, `record`, "
                      "or a map `smem[..]`";
  for (const char *f :
       {"", "a", "a bf17[64] at 0 rows", "a bf16[0] at 0 rows", "a bf16[64 at 0 rows", "a bf16[64] rows",
        "a bf16[64] at 0", "a bf16[64] at 0 swizzle 16", "a bf16[64] at 0 smem[2]"}) {
    CAPTURE(f);
    std::string text = wrong(fmt::format("kernel p\nloop k at 3\nfield {}", f));
    CHECK((text == "s.txt:3: " + field || text == "s.txt:3: `field` is no statement of a schedule"));
  }
  for (const char *place : {"k", "k at", "k at x", "k at 0", "k at 3 (1)", "k at 3 (2", "k at 3 4", "at 3"}) {
    CAPTURE(place);
    CHECK(wrong(fmt::format("kernel p\nloop {}", place)).starts_with("s.txt:2: expected `loop VARIABLE at LINE`"));
  }
}

TEST_CASE("loops of one name on one line, and loops of another file, have names of their own") {
  std::string two = product(kLoop + " " + kLoop);
  CHECK(forced(two, "sm_90", "kernel p\nloop k at 3\nstages 2\nloop k at 3 (2)\nstages 3\n") ==
        "p k: 2 mbarrier by a producer: a b\np k: 3 mbarrier by a producer: a b");
  Loaded l("import math;\n" + two, "sm_90");
  KernelPlan k = l.schedule().kernels.at(0);
  REQUIRE(k.loops.size() == 2);
  CHECK(k.loops[0].name() == "k at 4");
  CHECK(k.loops[1].name() == "k at 4 (2)");
  LoopPlan other;
  other.variable = "i";
  other.file = "a b/x.tk";
  other.line = 7;
  other.nth = 3;
  CHECK(parse_loop_plan(other.statements()).name() == "i at a b/x.tk:7 (3)");
}

TEST_CASE("a plan for a kernel is one for its instances, whatever its name") {
  CHECK(plans_for("chain", "chain"));
  CHECK(plans_for("chain", "chain__BV_32"));
  CHECK_FALSE(plans_for("chain", "chains"));
  CHECK_FALSE(plans_for("chain__BV_32", "chain"));
  CHECK(plans_for("soft__long", "soft__long__N_4"));
}

TEST_CASE("an option's limit of slots is not the proof's fault, and tried once") {
  Loaded l(product(kLoop), "sm_90");
  l.options.passes.most_stages = 1;
  CHECK(*l.schedule().kernels.at(0).loops.at(0).synchronous.value == "loops without slots were asked for");
  Loaded two(product(kLoop), "sm_90");
  two.options.passes.most_stages = 2;
  CHECK(two.schedule().kernels.at(0).loops.at(0).fewer == "at most 2 were asked for");
  two.options.passes.proof_states = 1;
  std::vector<driver::Phase> phases;
  for (const auto &k : driver::instances_of(*two.program, two.program->entries(), {}, two.options.target, two.diags))
    CHECK(driver::lower_kernel(*two.program, *k.ast, k.spec, two.options, two.diags, phases));
  auto proofs =
      std::count_if(phases.begin(), phases.end(), [](const auto &p) { return p.name == "pass prove_protocol"; });
  CHECK(proofs == 2); // with two slots, and without
}

TEST_CASE("a loop without loads of tiles has an estimate of its own, also beside a pipelined one of its name") {
  Loaded l(product(kLoop + " for k in 0 : K { acc = acc * 0.5; }"), "sm_90");
  l.schedule();
  REQUIRE(l.functions.size() == 1);
  auto k = driver::instances_of(*l.program, l.program->entries(), {}, l.options.target, l.diags).at(0);
  auto r = driver::report_kernel(*l.program, k, *l.functions[0], l.options, false, l.diags);
  REQUIRE_MESSAGE(r, l.diags.render_all());
  REQUIRE(r->loops.size() == 1);
  CHECK(r->loops[0].estimate.planned);
  CHECK(r->loops[0].estimate.items > 0);
  auto plain = std::find_if(r->bodies.begin(), r->bodies.end(), [](const auto &b) { return b.loop == "k at 3"; });
  REQUIRE(plain != r->bodies.end());
  CHECK_FALSE(plain->planned);
  CHECK(plain->cycles() != r->loops[0].estimate.cycles());
}

TEST_CASE("a schedule that the proof gives up on: fewer slots, then none, and the reason is said") {
  auto compile = [](int64_t most_stages, int64_t states) {
    auto l = std::make_unique<Loaded>(product(kLoop), "sm_90");
    l->options.passes.most_stages = most_stages;
    if (states) l->options.passes.proof_states = states;
    l->schedule();
    REQUIRE_MESSAGE(l->functions.size() == 1, l->diags.render_all());
    return l;
  };
  auto four = compile(PassOptions::kManyStages, 0), two = compile(2, 0);
  CHECK(four->diags.all().empty());
  CHECK(two->diags.all().empty());
  int64_t most = prove_protocol(*four->functions[0], nullptr).states;
  int64_t least = prove_protocol(*two->functions[0], nullptr).states;
  REQUIRE(least < most);

  auto fewer = compile(PassOptions::kManyStages, (least + most) / 2);
  KernelPlan k = schedule_of(*fewer->functions[0], "sm_90");
  CHECK(k.loops.at(0).stages.value == 2);
  CHECK(k.loops[0].fewer.starts_with("more could not be proven safe: "));
  REQUIRE(fewer->diags.all().size() == 1);
  CHECK(fewer->diags.all()[0].kind == DiagKind::schedule_dropped);
  CHECK(fewer->diags.all()[0].severity == Severity::Warning);
  CHECK(fewer->diags.all()[0].text.find("rings of two slots") != std::string::npos);
  CHECK(parse_loop_plan(k.loops[0].statements()).fewer == k.loops[0].fewer);

  auto none = compile(PassOptions::kManyStages, 1);
  k = schedule_of(*none->functions[0], "sm_90");
  REQUIRE(k.loops.at(0).synchronous.value);
  CHECK(k.loops[0].synchronous.value->starts_with("no ring for it could be proven safe: "));
  REQUIRE(none->diags.all().size() == 1);
  CHECK(none->diags.all()[0].text.find("no rings") != std::string::npos);
  // What the source asks for is not given up: that is an error.
  Loaded asked(product("@pipeline(stages = 3) " + kLoop), "sm_90");
  asked.options.passes.proof_states = 1;
  asked.schedule();
  CHECK(asked.functions.empty());
  REQUIRE(asked.diags.has_errors());
  CHECK(asked.diags.all()[0].kind == DiagKind::unproven_protocol);
}

TEST_CASE("timelines: slots are filled when they are free, and the steady state is what the estimate says") {
  for (bool producer : {false, true})
    for (int64_t stages : {2, 3, 5})
      for (double iteration : {50.0, 400.0, 3000.0}) {
        CAPTURE(producer);
        CAPTURE(stages);
        CAPTURE(iteration);
        driver::LoopReport l;
        l.plan.stages.value = stages;
        l.plan.producer.value = producer ? "warp" : "none";
        l.estimate.in_order = iteration;
        l.estimate.copy_latency = 700;
        l.estimate.copy_cycles = 40;
        l.estimate.items = l.estimate.slot_limit(stages, producer);
        auto items = driver::simulate_ring(l, 130);
        REQUIRE(items.size() == 130);
        for (size_t c = 0; c < items.size(); c++) {
          const auto &t = items[c];
          CHECK(t.slot == int64_t(c) % stages);
          CHECK(t.arrived >= t.issued + 740);
          CHECK(t.begin >= t.arrived);
          CHECK(t.end == t.begin + iteration);
          if (c >= size_t(stages)) CHECK(t.issued >= items[c - size_t(stages)].end);
          if (c > 0) CHECK(t.begin >= items[c - 1].end);
        }
        // Items may come in bursts of stages or stages - 1; 60 is a multiple of each.
        double steady = (items[129].begin - items[69].begin) / 60;
        CHECK(steady == doctest::Approx(l.estimate.cycles()));
      }
}

// Of kernel p, on the emulator; one that does not pass is an error of its own.
static int64_t cases_that_pass(Loaded &l) {
  driver::VerifyOptions v;
  v.executor = driver::Executor::Emu;
  v.compile = l.options;
  int64_t passed = 0;
  const ast::Function &kernel = *l.program->kernels()[0];
  driver::verify_kernel(*l.program, kernel, *l.program->check_for("p", false), v, l.diags,
                        [&](const driver::CaseResult &r) {
                          passed += r.pass();
                          CHECK_MESSAGE(r.pass(), r.name, ": ", r.error);
                        });
  CHECK_MESSAGE(!l.diags.has_errors(), l.diags.render_all());
  return passed;
}

TEST_CASE("forced rings are right for every number of iterations around that of their slots") {
  const std::string source =
      "kernel p(a: tensor<bf16>[16, K], b: tensor<bf16>[K, 16], y: out tensor<f32>[16, 16]) grid (1) warps 1 {\n"
      "  var acc = zeros<f32>[16, 16];\n"
      "  for k in 0 : K step 32 { acc = mma(load(a[:, k :+ 32]), load(b[k :+ 32, :]), acc); }\n"
      "  store(y[:, :], acc);\n}\n"
      "reference r(a: tensor<f64>[16, K], b: tensor<f64>[K, 16]) -> tensor<f64>[16, 16] { return mma(a, b); }\n"
      "verify p {\n  y = r(a, b);\n  case t0: K = 0; case t1: K = 32; case t2: K = 64; case t3: K = 96;\n"
      "  case t4: K = 128; case t5: K = 160; case tail: K = 136;\n  tolerance y: rms 1e-5;\n}\n";
  for (const char *copies : {"transport cp_async\nproducer none", "transport mbarrier\nproducer warp",
                             "transport tma\nproducer none", "transport tma\nproducer warp"})
    for (const auto &[stages, more] : std::vector<std::pair<int, std::string>>{{2, "unroll 1"},
                                                                               {3, "unroll 1"},
                                                                               {4, "unroll 1"},
                                                                               {2, "unroll 2"},
                                                                               {3, "unroll 3"},
                                                                               {4, "unroll 4"},
                                                                               {5, "unroll 5"}}) {
      CAPTURE(copies);
      CAPTURE(stages);
      CAPTURE(more);
      Loaded l(source, "sm_90");
      REQUIRE(l.force(fmt::format("kernel p\n{}\nstages {}\n{}\n{}\n", kPlace, stages, copies, more)));
      CHECK(cases_that_pass(l) == 7);
    }
}

TEST_CASE("loads of a loop in a role run as many iterations ahead as a schedule says, whatever the number of trips") {
  const std::string source = "kernel p(x: tensor<f32>[T, 8], y: out tensor<f32>[T, 8]) grid (1) {\n"
                             "  ring f: { t: f32[4, 8] } stages 2;\n"
                             "  role make warps 1 {\n"
                             "    for t in 0 : T step 4 { f.push({ t: exp(load(x[t :+ 4, :])) }); }\n"
                             "  }\n"
                             "  role take warps 1 {\n"
                             "    for t in 0 : T step 4 { let i = f.pop();  store(y[t :+ 4, :], i.t * 2.0); }\n"
                             "  }\n}\n"
                             "verify p {\n  y = 2.0 * exp(x);\n  case t0: T = 0; case t1: T = 3; case t2: T = 8; case "
                             "t3: T = 12; case t4: T = 16;\n"
                             "  case t5: T = 21;\n  tolerance y: rms 1e-6;\n}\n";
  for (const char *ahead : {"sync x: slow", "ahead x 1", "ahead x 2", "ahead x 4"})
    for (const char *asks : {"asks ahead", "asks not"}) {
      CAPTURE(ahead);
      CAPTURE(asks);
      Loaded l(source, "sm_90");
      REQUIRE(l.force(fmt::format("kernel p\nloop t at 4\n{}\nloop t at 7\n{}\n", ahead, asks)));
      CHECK(cases_that_pass(l) == 6);
      l.schedule();
      std::string text = fmt::format("{}", fmt::join(summary(l.functions), "\n"));
      bool none = std::string(ahead).starts_with("sync");
      CHECK_MESSAGE((text.find(" ahead") == text.npos) == none, text);
      int tests = 0;
      ir::walk(l.functions[0]->body, [&](const ir::Op *op) { tests += op->kind == ir::OpKind::RingTest; });
      CHECK(tests == (std::string(asks) == "asks ahead"));
    }
  Loaded l(source, "sm_90");
  REQUIRE(l.force("kernel p\nloop t at 4\nahead z 2\n"));
  l.schedule();
  CHECK(l.diags.render_all().find("has no such load of `z`") != std::string::npos);
}

TEST_CASE("a modulo schedule keeps its bounds: every dependence, no resource used twice") {
  for (const std::string &sample : sample_names())
    for (const char *target : {"sm_90", "sm_120"}) {
      CAPTURE(sample);
      CAPTURE(target);
      Loaded l(source_text("samples/" + sample + ".tk"), target, sample_path(sample));
      l.schedule();
      for (const auto &f : l.functions)
        ir::walk(f->body, [&](ir::Op *op) {
          if (op->kind != ir::OpKind::For || !has_modulo_schedule(*op) || ir::by_hand(*f)) return;
          auto make = [&] {
            OpWork work(*l.options.target, ir::default_part(*l.options.target), ir::warps_of(op->block));
            return modulo_schedule(*op, work);
          };
          ModuloSchedule m = make();
          CHECK(m.ii >= m.resources - 1);
          CHECK(m.ii >= std::min(m.recurrence, std::max(m.in_order, m.resources)) - 1);
          CHECK(m.ii <= std::max(std::ceil(m.in_order), std::ceil(std::max(m.resources, m.recurrence))) + 1);
          CHECK(m.to_string() == make().to_string());
          // A value is used no earlier than it is made.
          std::map<const ir::Value *, const ModuloOp *> made;
          for (const ModuloOp &o : m.ops) {
            for (const ir::Value *v : o.op->operands)
              if (auto it = made.find(v); it != made.end()) CHECK(o.start + 1e-3 >= it->second->start);
            CHECK(o.stage == int64_t(std::floor(o.start / m.ii + 1e-9)));
            for (const ir::Value *r : o.op->results) made[r] = &o;
          }
        });
    }
}
