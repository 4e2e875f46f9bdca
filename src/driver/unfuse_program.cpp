#include "driver/unfuse_program.h"
#include "ir/clone.h"
#include "passes/unfuse.h"

namespace tkc::driver {

using ir::SizeExpr;
using passes::Unfused;
using passes::UnfusedArgument;
using passes::UnfusedStep;
using sema::HostStmt;
using sema::LaunchArgument;

std::unique_ptr<sema::HostProgram> program_of(const ast::Function &kernel, const sema::InstanceSpec &spec,
                                              std::shared_ptr<ir::Function> function) {
  auto out = std::make_unique<sema::HostProgram>();
  out->ast = &kernel;
  out->header = ir::clone(*function);
  HostStmt launch;
  launch.loc = function->loc;
  for (size_t i = 0; i < function->params.size(); i++) {
    const ir::Param &p = function->params[i];
    LaunchArgument a;
    a.loc = p.loc;
    if (!p.type.is_tensor()) {
      a.kind = is_float(p.type.dtype) ? LaunchArgument::Kind::Scalar : LaunchArgument::Kind::Integer;
      a.name = p.name;
      a.integer = SizeExpr::symbol(p.name);
    } else if (p.present) {
      a.kind = LaunchArgument::Kind::Tensor;
      a.view = {false, i, p.name, p.type.dtype, {}};
      for (const SizeExpr &d : p.dims) a.view.dims.push_back({SizeExpr::constant(0), d, true, true, p.loc});
    }
    launch.args.push_back(std::move(a));
  }
  for (const std::string &s : function->sizes) launch.sizes.push_back(SizeExpr::symbol(s));
  out->kernels.push_back({&kernel, spec, function->name, std::move(function), false});
  out->body.push_back(std::move(launch));
  return out;
}

namespace {

class Rewriter {
public:
  Rewriter(const sema::HostProgram &from, const ir::Target &target, Diagnostics &diags,
           std::vector<std::string> &remarks)
      : from_(from), out_(std::make_unique<sema::HostProgram>()) {
    out_->ast = from.ast;
    out_->header = from.header;
    out_->allocs = from.allocs;
    for (const sema::ProgramKernel &k : from.kernels) {
      Split s;
      std::string why;
      s.first_kernel = out_->kernels.size();
      s.parts = passes::unfuse(*ir::clone(*k.typed), target, diags, why);
      if (s.parts) {
        for (const auto &g : s.parts->kernels)
          out_->kernels.push_back({k.ast, k.spec, fmt::format("{}_{}", k.name, g->name), g, true});
        for (const std::string &r : s.parts->remarks) remarks.push_back(fmt::format("{}: {}", k.name, r));
      } else {
        out_->kernels.push_back(k);
        remarks.push_back(fmt::format("{} stays one launch: it has {}", k.name, why));
      }
      split_.push_back(std::move(s));
    }
  }

  std::unique_ptr<sema::HostProgram> run() {
    block(from_.body, out_->body);
    return std::move(out_);
  }

private:
  struct Split {
    std::optional<Unfused> parts;
    size_t first_kernel = 0;
  };

  void block(const std::vector<HostStmt> &from, std::vector<HostStmt> &to) {
    for (const HostStmt &s : from) {
      if (s.kind == HostStmt::Kind::Launch) {
        launch(s, to);
      } else if (s.kind == HostStmt::Kind::Parallel) {
        block(s.body, to);
      } else {
        to.push_back(s);
        to.back().body.clear(), to.back().else_body.clear();
        HostStmt &copy = to.back();
        std::vector<HostStmt> body, else_body; // `to` may grow meanwhile
        block(s.body, body);
        block(s.else_body, else_body);
        copy.body = std::move(body), copy.else_body = std::move(else_body);
      }
    }
  }

  void launch(const HostStmt &s, std::vector<HostStmt> &to) {
    const Split &split = split_[s.kernel];
    if (!split.parts) {
      to.push_back(s);
      to.back().kernel = split.first_kernel;
      return;
    }
    call_ = &s;
    callee_ = from_.kernels[s.kernel].typed.get();
    parts_ = &*split.parts;
    first_kernel_ = split.first_kernel;
    first_alloc_ = out_->allocs.size();
    for (const passes::UnfusedTile &t : parts_->tiles) {
      sema::ProgramAlloc a;
      a.name = t.name.empty() ? fmt::format("{}_{}", callee_->name, out_->allocs.size() - first_alloc_) : t.name;
      a.dtype = t.dtype;
      a.loc = s.loc;
      for (const SizeExpr &d : passes::tensor_dims(t, parts_->blocks)) a.dims.push_back(size(d));
      HostStmt alloc;
      alloc.kind = HostStmt::Kind::Alloc;
      alloc.loc = s.loc;
      alloc.alloc = out_->allocs.size();
      out_->allocs.push_back(std::move(a));
      to.push_back(std::move(alloc));
    }
    counters_.clear();
    steps(parts_->steps, to);
  }

  void steps(const std::vector<UnfusedStep> &from, std::vector<HostStmt> &to) {
    for (const UnfusedStep &s : from) {
      HostStmt h;
      h.loc = s.loc;
      if (s.loop) {
        h.kind = HostStmt::Kind::For;
        h.lo = SizeExpr::constant(0);
        h.hi = size(s.trips);
        h.step = SizeExpr::constant(1);
        h.counter = fmt::format("round.{}", next_counter_++); // no name of a source has a dot
        counters_.resize(s.counter);
        counters_.push_back(h.counter);
        steps(s.body, h.body);
      } else {
        h.kernel = first_kernel_ + s.kernel;
        for (const UnfusedArgument &a : s.args) h.args.push_back(argument(a));
        for (const SizeExpr &n : s.sizes) h.sizes.push_back(size(n));
      }
      to.push_back(std::move(h));
    }
  }

  LaunchArgument argument(const UnfusedArgument &a) const {
    if (a.kind == UnfusedArgument::Kind::Param) return call_->args[a.index];
    LaunchArgument out;
    out.loc = call_->loc;
    if (a.kind == UnfusedArgument::Kind::Counter) {
      out.kind = LaunchArgument::Kind::Integer;
      out.integer = SizeExpr::symbol(counters_.at(a.index));
      return out;
    }
    const sema::ProgramAlloc &alloc = out_->allocs[first_alloc_ + a.index];
    out.kind = LaunchArgument::Kind::Tensor;
    out.view = {true, first_alloc_ + a.index, alloc.name, alloc.dtype, {}};
    for (const SizeExpr &d : alloc.dims) out.view.dims.push_back({SizeExpr::constant(0), d, true, true, alloc.loc});
    return out;
  }

  // An expression over the sizes of the kernel that is launched.
  SizeExpr size(const SizeExpr &e) const {
    return e.substitute([&](const std::string &name) -> std::optional<SizeExpr> {
      for (size_t i = 0; i < callee_->sizes.size(); i++)
        if (callee_->sizes[i] == name) return call_->sizes[i];
      for (size_t i = 0; i < callee_->params.size(); i++)
        if (callee_->params[i].name == name && call_->args[i].kind == LaunchArgument::Kind::Integer)
          return call_->args[i].integer;
      return std::nullopt;
    });
  }

  const sema::HostProgram &from_;
  std::unique_ptr<sema::HostProgram> out_;
  std::vector<Split> split_; // by kernel of from_
  // Of the launch that is rewritten.
  const HostStmt *call_ = nullptr;
  const ir::Function *callee_ = nullptr;
  const Unfused *parts_ = nullptr;
  size_t first_kernel_ = 0, first_alloc_ = 0;
  std::vector<std::string> counters_;
  size_t next_counter_ = 0;
};

} // namespace

std::unique_ptr<sema::HostProgram> unfused(const sema::HostProgram &host, const ir::Target &target, Diagnostics &diags,
                                           std::vector<std::string> &remarks) {
  return Rewriter(host, target, diags, remarks).run();
}

} // namespace tkc::driver
