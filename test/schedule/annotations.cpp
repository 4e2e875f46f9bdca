// @pipeline and @no_pipeline: every transport that is legal, with 1 to 5 stages, on the loops of the samples. Each is
// proven (or it would not compile), and gives the bits that the synchronous kernel gives on the emulator, which agree
// with the interpreter.
#include "driver/verify.h"
#include "schedule/kit.h"
#include "why.h"
#include <cmath>

using namespace schedule_kit;

namespace {

struct Annotated {
  const char *sample, *kernel, *with; // the case
  std::map<std::string, std::string> params;
  std::map<std::string, double> sizes; // in place of the case's: whole vectors a row, as tensor copies want them
};
const Annotated kKernels[] = {
    {"gemm", "gemm", "odd", {{"BM", "32"}, {"BN", "32"}, {"BK", "16"}}, {{"M", 72}, {"N", 40}, {"K", 88}}},
    {"attention", "attention", "tail", {{"D", "32"}, {"BM", "32"}, {"BN", "16"}}, {}},
    {"softmax", "softmax_long", "tail", {{"BN", "256"}, {"BM", "2"}}, {{"M", 5}, {"N", 2504}}},
    {"kda_chain", "kda_chain", "narrow", {}, {}},
};

// The sample with an annotation before each loop of the kernel.
std::string annotated(const Annotated &k, const std::string &annotation) {
  std::string text = source_text(fmt::format("samples/{}.tk", k.sample));
  size_t at = text.find(fmt::format("kernel {}<", k.kernel)), end = text.find("\n}\n", at);
  REQUIRE(end != std::string::npos);
  int64_t loops = 0;
  while ((at = text.find("\n    for ", at)) < end) {
    text.insert(at + 5, annotation + " ");
    at += annotation.size() + 6;
    end += annotation.size() + 1;
    loops++;
  }
  REQUIRE(loops > 0);
  return text;
}

struct Emulated {
  std::vector<std::vector<uint8_t>> outputs;
  std::string refused; // the message
  std::vector<std::string> loops;
};

class Run {
public:
  Run(const Annotated &k, const std::string &annotation, const std::string &target)
      : loaded_(annotated(k, annotation), target) {
    sema::Program &p = *loaded_.program;
    const ast::Function &ast = *p.find(k.kernel, ast::FunctionKind::Kernel);
    const ast::Check &check = *p.check_for(k.kernel, false);
    for (const ast::Case &c : check.cases)
      if (c.name.text == k.with) case_ = sema::evaluate_case(p, ast, check, c, loaded_.diags);
    REQUIRE_MESSAGE(case_, loaded_.diags.render_all());
    for (const auto &[name, value] : k.params) case_->spec.params[name] = value;
    for (const auto &[name, value] : k.sizes) case_->numbers[name] = value;
    typed_ = sema::instantiate(p, ast, case_->spec, loaded_.options.target, loaded_.diags);
    compiled_ = driver::compile_kernel(p, ast, case_->spec, loaded_.options, loaded_.diags);
    if (!compiled_) return;
    auto data = driver::make_data(p, &check, *typed_, *case_, {}, loaded_.diags);
    REQUIRE_MESSAGE(data.ok(), loaded_.diags.render_all());
    data_ = std::move(*data);
  }

  Emulated emulate() {
    Emulated out;
    if (!compiled_) {
      out.refused = loaded_.diags.all().empty() ? "" : loaded_.diags.all()[0].text;
      return out;
    }
    for (const LoopPlan &l : schedule_of(*compiled_->function, "").loops)
      out.loops.push_back(l.synchronous.value
                              ? "synchronous: " + *l.synchronous.value
                              : fmt::format("{} {} {}", *l.stages.value, *l.transport.value, *l.producer.value));
    driver::LaunchData data = data_;
    std::string printed;
    Status ran = driver::run_emu(*compiled_, data, loaded_.sources, {}, printed);
    CHECK_MESSAGE(ran.ok(), why(ran));
    for (size_t i = 0; i < data.tensors.size(); i++)
      if (typed_->params[i].type.is_tensor() && typed_->params[i].mode != ir::ParamMode::In)
        out.outputs.push_back(data.tensors[i].bytes);
    return out;
  }

  // The largest difference between emulator and interpreter, over the largest magnitude.
  void compare_with_interpreter(double limit) {
    driver::LaunchData emu = data_, interp = data_;
    std::string printed;
    REQUIRE(driver::run_emu(*compiled_, emu, loaded_.sources, {}, printed).ok());
    REQUIRE(driver::run_interp(*typed_, interp, loaded_.sources, printed).ok());
    for (size_t i = 0; i < emu.tensors.size(); i++) {
      if (!typed_->params[i].type.is_tensor() || typed_->params[i].mode == ir::ParamMode::In) continue;
      double worst = 0, most = 0;
      for (int64_t e = 0; e < emu.tensors[i].count(); e++) {
        double a = emu.tensors[i].get(e), b = interp.tensors[i].get(e);
        worst = std::max(worst, std::fabs(a - b));
        most = std::max(most, std::fabs(b));
      }
      CAPTURE(typed_->params[i].name);
      CHECK(most > 0);
      CHECK(worst <= limit * most);
    }
  }

private:
  Loaded loaded_;
  std::optional<sema::CaseSpec> case_;
  std::unique_ptr<ir::Function> typed_;
  std::unique_ptr<driver::CompiledKernel> compiled_;
  driver::LaunchData data_;
};

} // namespace

TEST_CASE("annotations: every legal transport with one to five stages gives the bits of the synchronous kernel") {
  struct Way {
    const char *via, *producer;
    const char *transport; // what it is called in schedules
  };
  const Way ways[] = {{"cp_async", "none", "cp_async"}, {"mbarrier", "warp", "mbarrier"}, {"tma", "none", "tma"},
                      {"tma", "warp", "tma"},           {"bulk", "none", "tma"},          {"bulk", "warp", "tma"}};
  // Bulk copies bring rows; a tile of each of these kernels is none.
  const std::string no_bulk = "is not one row within the tensor";
  for (const std::string target : kTargets)
    for (const Annotated &k : kKernels) {
      std::string kernel = k.kernel;
      CAPTURE(target);
      CAPTURE(kernel);
      Run synchronous(k, "@no_pipeline", target);
      Emulated plain = synchronous.emulate();
      REQUIRE(plain.refused.empty());
      REQUIRE(!plain.loops.empty());
      for (const std::string &l : plain.loops) CHECK(l == "synchronous: @no_pipeline");
      synchronous.compare_with_interpreter(1.0 / 64);
      bool tma = ir::find_target(target)->has(ir::kTma);
      for (const Way &w : ways)
        for (int stages = 1; stages <= 5; stages++) {
          // All of them on one target; on the others what is special there.
          if (target != "sm_90" && stages != 3) continue;
          std::string annotation =
              fmt::format("@pipeline(stages = {}, via = {}, producer = {})", stages, w.via, w.producer);
          CAPTURE(annotation);
          Emulated r = Run(k, annotation, target).emulate();
          std::string why = std::string(w.via) == "bulk" ? no_bulk : "";
          if (!tma && std::string(w.transport) == "tma") why = "has no bulk and tensor copies";
          if (stages == 1) why = "";
          if (!why.empty()) {
            CHECK_MESSAGE(r.refused.find(why) != std::string::npos, r.refused);
            continue;
          }
          CHECK(r.refused == "");
          std::string expected = stages == 1 ? std::string("synchronous: @no_pipeline")
                                             : fmt::format("{} {} {}", stages, w.transport, w.producer);
          for (const std::string &l : r.loops) CHECK(l == expected);
          CHECK(r.outputs == plain.outputs);
        }
    }
}
