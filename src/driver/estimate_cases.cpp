// Estimates of the cases of bench blocks.
#include "driver/bench_tensors.h"
#include "driver/case_data.h"
#include "driver/estimate.h"
#include "driver/plan.h"
#include "passes/passes.h"
#include "runtime/assemble.h"
#include <algorithm>

namespace tkc::driver {

std::vector<KernelInstance> instances_of(sema::Program &program, const std::vector<const ast::Function *> &entries,
                                         const sema::InstanceSpec &spec, const ir::Target *target, Diagnostics &diags) {
  std::vector<KernelInstance> out;
  for (const ast::Function *f : entries)
    if (f->kind == ast::FunctionKind::Program)
      if (auto host = sema::instantiate_program(program, *f, spec, target, diags))
        for (const sema::ProgramKernel &k : host->kernels)
          if (std::none_of(out.begin(), out.end(), [&](const auto &o) { return o.name == k.name; }))
            out.push_back({k.ast, k.spec, k.name});
  // A kernel that is launched comes with its program.
  size_t launched = out.size();
  for (const ast::Function *f : entries) {
    bool known = f->kind == ast::FunctionKind::Program;
    for (size_t i = 0; i < launched; i++) known |= out[i].ast == f;
    if (!known) out.push_back({f, spec, f->name.text});
  }
  return out;
}

int64_t estimated_registers(const ir::Function &compiled) {
  constexpr int64_t kBesides = 24, kMost = 255, kOfSM = 65536;
  int64_t threads = std::max<int64_t>(32, ir::block_warps(compiled) * 32);
  return std::min({passes::live_registers(compiled) + kBesides, kMost, kOfSM / threads});
}

double CaseEstimate::seconds() const {
  double sum = 0;
  for (const LaunchEstimate &l : parts) sum += double(l.launches) * l.each.seconds;
  return sum;
}

namespace {

class Case {
public:
  Case(sema::Program &program, const ast::Check &check, const CompileOptions &options, bool assembler,
       Diagnostics &diags)
      : program_(program), check_(check), options_(options), assembler_(assembler), diags_(diags) {}

  std::string kernel(const ast::Function &ast, const sema::InstanceSpec &spec, const sema::CaseSpec &c,
                     CaseEstimate &out) {
    auto model = model_of({&ast, spec, ast.name.text});
    if (!model) return "the kernel has errors";
    auto data = make_shapes(program_, &check_, *model->typed, c, {}, diags_);
    if (!data) return data.error();
    auto grid = launch_grid(*model->typed, *data, diags_.sources());
    if (!grid) return grid.error();
    out.parts.push_back({ast.name.text, 1, registers_, estimate_time(*model, *data, *grid, registers_)});
    return "";
  }

  std::string program(const ast::Function &ast, const sema::InstanceSpec &spec, const sema::CaseSpec &c,
                      CaseEstimate &out) {
    auto host = sema::instantiate_program(program_, ast, spec, options_.target, diags_);
    if (!host) return "the program has errors";
    auto data = make_shapes(program_, &check_, *host->header, c, {}, diags_);
    if (!data) return data.error();
    auto plan = make_plan(*host, *data, DeviceFacts::of(*options_.target), diags_.sources());
    if (!plan) return plan.error();
    std::map<size_t, std::pair<KernelModel, int64_t>> models; // and registers
    for (const PlanLaunch &l : plan->launches) {
      const sema::ProgramKernel &k = host->kernels[l.kernel];
      auto it = models.find(l.kernel);
      if (it == models.end()) {
        auto model = model_of({k.ast, k.spec, k.name});
        if (!model) return "a kernel has errors";
        it = models.emplace(l.kernel, std::pair(std::move(*model), registers_)).first;
      }
      TimeEstimate t = estimate_time(it->second.first, l.data, l.grid, it->second.second);
      auto same = std::find_if(out.parts.begin(), out.parts.end(), [&](const LaunchEstimate &p) {
        return p.entry == k.name && p.each.seconds == t.seconds;
      });
      if (same == out.parts.end())
        out.parts.push_back({k.name, 1, it->second.second, std::move(t)});
      else
        same->launches++;
    }
    return "";
  }

private:
  std::optional<KernelModel> model_of(const KernelInstance &k) {
    std::vector<Phase> phases;
    auto f = lower_kernel(program_, *k.ast, k.spec, options_, diags_, phases, k.name);
    if (!f) return std::nullopt;
    registers_ = estimated_registers(*f);
    if (assembler_) {
      AssembleOptions a;
      a.arch = options_.target->name;
      codegen::EmitResult code = emit_module({f.get()}, options_, diags_.sources(), phases);
      auto assembled = assemble(code.ptx, a);
      const KernelUsage *u = assembled ? assembled->find(code.abis[0].entry) : nullptr;
      if (u && u->registers > 0) registers_ = u->registers;
    }
    return model_kernel(program_, k, *f, options_, diags_);
  }

  sema::Program &program_;
  const ast::Check &check_;
  const CompileOptions &options_;
  bool assembler_;
  Diagnostics &diags_;
  int64_t registers_ = 0; // of the kernel that model_of has seen last
};

} // namespace

std::vector<CaseEstimate> estimate_cases(sema::Program &program, const std::vector<const ast::Function *> &entries,
                                         const sema::InstanceSpec &overrides, const CompileOptions &options,
                                         bool assembler, Diagnostics &diags) {
  std::vector<CaseEstimate> out;
  CompileOptions quiet = options;
  quiet.passes.dump_dir.clear(); // that of the compilation
  for (const ast::Function *f : entries) {
    const ast::Check *check = program.check_for(f->name.text, true);
    if (!check) continue;
    for (const ast::Case &c : check->cases) {
      CaseEstimate e;
      e.name = fmt::format("{} {}", f->name.text, c.name.text);
      // A case of sizes that the target cannot have is a line of the report, no error of the file.
      Diagnostics own(diags.sources());
      auto spec = sema::evaluate_case(program, *f, *check, c, own);
      if (spec) {
        sema::InstanceSpec bound = spec->spec;
        for (const auto &[k, v] : overrides.params) bound.params[k] = v;
        bound.absent.insert(overrides.absent.begin(), overrides.absent.end());
        Case one(program, *check, quiet, assembler, own);
        e.problem =
            f->kind == ast::FunctionKind::Program ? one.program(*f, bound, *spec, e) : one.kernel(*f, bound, *spec, e);
      }
      for (const Diagnostic &d : own.all())
        if (d.severity == Severity::Error) {
          e.problem = d.text;
          break;
        }
      if (!e.problem.empty()) e.parts.clear();
      out.push_back(std::move(e));
    }
  }
  return out;
}

} // namespace tkc::driver
