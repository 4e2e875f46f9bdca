// Schedules of texts and samples.
#pragma once
#include "compile_kit.h"
#include "driver/report.h"
#include "passes/schedule.h"
#include <algorithm>
#include <filesystem>

namespace schedule_kit {
using namespace tkc;
using namespace tkc::passes;

struct Loaded {
  SourceManager sources;
  Diagnostics diags{sources};
  std::unique_ptr<sema::Program> program;
  driver::CompileOptions options;

  explicit Loaded(const std::string &text, const std::string &target, const std::string &name = "k.tk") {
    program = sema::Program::load(sources.add(name, text), diags);
    REQUIRE_MESSAGE(program, diags.render_all());
    options.target = ir::find_target(target);
    REQUIRE(options.target);
  }
  bool force(const std::string &text) {
    auto s = parse_schedule(sources.add("s.txt", text), diags);
    if (s) options.passes.schedule = std::make_shared<const Schedule>(std::move(*s));
    return s.has_value();
  }
  // Of every kernel, and those that programs launch; the functions are kept.
  Schedule schedule() {
    Schedule out;
    for (const auto &k : driver::instances_of(*program, program->entries(), {}, options.target, diags)) {
      std::vector<driver::Phase> phases;
      auto f = driver::lower_kernel(*program, *k.ast, k.spec, options, diags, phases, k.name);
      if (!f) continue;
      out.kernels.push_back(schedule_of(*f, options.target->name));
      functions.push_back(std::move(f));
    }
    return out;
  }
  std::string ptx() {
    std::vector<const ir::Function *> list;
    for (const auto &f : functions) list.push_back(f.get());
    std::vector<driver::Phase> phases;
    return driver::emit_module(list, options, sources, phases).ptx;
  }
  std::vector<std::unique_ptr<ir::Function>> functions;
};

// "gemm k: 4 tma by a producer: a b; 1 proxy fence", "softmax i: synchronous: REASON"
inline std::vector<std::string> summary(const std::vector<std::unique_ptr<ir::Function>> &functions) {
  std::vector<std::string> out;
  for (const auto &f : functions)
    ir::walk(f->body, [&](const ir::Op *op) {
      if (op->kind != ir::OpKind::For || !op->attrs.has("schedule")) return;
      LoopPlan l = parse_loop_plan(op->attrs.get<std::vector<std::string>>("schedule"));
      std::string text = fmt::format("{} {}: ", f->name, l.variable);
      if (l.synchronous.value) {
        text += "synchronous: " + *l.synchronous.value;
        for (const AheadLoad &a : l.ahead) text += fmt::format("; {} {} ahead", a.tensor, a.distance);
      } else {
        text +=
            fmt::format("{} {}{}{}", *l.stages.value, *l.transport.value,
                        l.producer.value == "warp" ? " by a producer" : "", l.over_tiles.value ? " over tiles" : "");
        for (size_t i = 0; i < l.fields.size(); i++) text += (i ? " " : ": ") + l.fields[i].tensor;
      }
      for (const SynchronousLoad &left : l.left) text += fmt::format("; not {}: {}", left.tensor, left.reason);
      int64_t fences = 0;
      for (const ir::Op *o : op->regions[0]->ops) fences += o->kind == ir::OpKind::ProxyFence;
      if (fences) text += fmt::format("; {}", counted(fences, "proxy fence"));
      out.push_back(std::move(text));
    });
  return out;
}

inline std::vector<std::string> sample_names() {
  std::vector<std::string> out;
  for (const auto &e : std::filesystem::directory_iterator(std::string(TKC_SOURCE_DIR) + "/samples"))
    if (e.path().extension() == ".tk") out.push_back(e.path().stem());
  std::sort(out.begin(), out.end());
  return out;
}

// A sample may import another: its name is its path.
inline std::string sample_path(const std::string &sample) {
  return fmt::format("{}/samples/{}.tk", TKC_SOURCE_DIR, sample);
}

inline const char *const kTargets[] = {"sm_80", "sm_90", "sm_120"};

} // namespace schedule_kit
