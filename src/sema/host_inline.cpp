// A program that another program launches: its steps, with the values of the caller in the place of its names.
#include "sema/host_instance.h"
#include <algorithm>

namespace tkc::sema {

using ir::SizeExpr;

namespace {

class Inliner {
public:
  using Symbols = std::map<std::string, SizeExpr>;
  Inliner(HostProgram &into, const HostProgram &callee, const std::vector<LaunchArgument> &args, Symbols symbols,
          const std::function<std::string(const std::string &)> &fresh_symbol)
      : into_(into), callee_(callee), args_(args), symbols_(std::move(symbols)), fresh_symbol_(fresh_symbol) {
    for (const ProgramKernel &k : callee.kernels) {
      auto it = std::find_if(into.kernels.begin(), into.kernels.end(),
                             [&](const ProgramKernel &x) { return x.ast == k.ast && x.name == k.name; });
      kernels_.push_back(size_t(it - into.kernels.begin()));
      if (it == into.kernels.end()) into.kernels.push_back(k);
    }
    first_alloc_ = into.allocs.size();
    into.allocs.insert(into.allocs.end(), callee.allocs.begin(), callee.allocs.end());
  }

  void run(std::vector<HostStmt> &out) {
    const ir::Function &header = *callee_.header;
    for (size_t i = 0; i < header.facts.size(); i++) {
      HostStmt s;
      s.kind = HostStmt::Kind::Require;
      s.loc = header.fact_locs[i];
      s.cond = size(header.facts[i]);
      out.push_back(std::move(s));
    }
    for (const HostStmt &s : callee_.body) out.push_back(statement(s));
  }

private:
  SizeExpr size(const SizeExpr &e) const {
    return e.substitute([&](const std::string &name) -> std::optional<SizeExpr> {
      auto it = symbols_.find(name);
      return it == symbols_.end() ? std::nullopt : std::optional(it->second);
    });
  }

  TensorView view(const TensorView &v) const {
    TensorView out = v;
    for (TensorView::Dim &d : out.dims) d.lo = size(d.lo), d.extent = size(d.extent);
    if (v.alloc) {
      out.index += first_alloc_;
      return out;
    }
    // A part of what the caller gave.
    const TensorView &given = args_[v.index].view;
    TensorView whole = given;
    size_t at = 0;
    for (TensorView::Dim &d : whole.dims) {
      if (!d.kept) continue;
      const TensorView::Dim &mine = out.dims[at++];
      d.lo = SizeExpr::make(SizeExpr::Op::Add, d.lo, mine.lo);
      d.extent = mine.extent;
      d.whole &= mine.whole;
      d.kept = mine.kept;
      if (!mine.whole) d.loc = mine.loc;
    }
    return whole;
  }

  // With what the caller gave for the callee's scalars.
  NumberExpr number(NumberExpr e) const {
    if (e.op == NumberExpr::Op::Integer) e.integer = size(e.integer);
    for (NumberExpr &a : e.args) a = number(a);
    if (e.op != NumberExpr::Op::Scalar) return e;
    for (size_t i = 0; i < args_.size(); i++) {
      if (callee_.header->params[i].name != e.name) continue;
      const LaunchArgument &given = args_[i];
      if (given.kind == LaunchArgument::Kind::Computed) return given.computed;
      if (given.kind == LaunchArgument::Kind::Scalar) {
        e.name = given.name;
        return e;
      }
      TKC_CHECK(given.kind == LaunchArgument::Kind::Number, "`{}` is given no number", e.name);
      e.op = NumberExpr::Op::Const;
      e.value = round_to(e.dtype, given.number);
      return e;
    }
    TKC_UNREACHABLE("no parameter `{}`", e.name);
  }

  LaunchArgument argument(LaunchArgument a) const {
    if (a.kind == LaunchArgument::Kind::Tensor) a.view = view(a.view);
    if (a.kind == LaunchArgument::Kind::Integer) a.integer = size(a.integer);
    if (a.kind == LaunchArgument::Kind::Computed) a.computed = number(a.computed);
    if (a.kind != LaunchArgument::Kind::Scalar) return a;
    for (size_t i = 0; i < args_.size(); i++)
      if (callee_.header->params[i].name == a.name) return args_[i];
    TKC_UNREACHABLE("no parameter `{}`", a.name);
  }

  HostStmt statement(const HostStmt &from) {
    HostStmt s = from;
    s.body.clear(), s.else_body.clear();
    if (s.kind == HostStmt::Kind::Launch) s.kernel = kernels_[s.kernel];
    if (s.kind == HostStmt::Kind::Alloc) { // here, where the callee's numbers have their names
      s.alloc += first_alloc_;
      for (SizeExpr &d : into_.allocs[s.alloc].dims) d = size(d);
    }
    for (LaunchArgument &a : s.args) a = argument(a);
    for (SizeExpr &e : s.sizes) e = size(e);
    for (SizeExpr *e : {&s.cond, &s.lo, &s.hi, &s.step}) *e = size(*e);
    if (s.kind == HostStmt::Kind::For || s.kind == HostStmt::Kind::Let) {
      s.counter = fresh_symbol_(s.counter);
      symbols_.insert_or_assign(from.counter, SizeExpr::symbol(s.counter));
    }
    for (const HostStmt &x : from.body) s.body.push_back(statement(x));
    for (const HostStmt &x : from.else_body) s.else_body.push_back(statement(x));
    return s;
  }

  HostProgram &into_;
  const HostProgram &callee_;
  const std::vector<LaunchArgument> &args_;
  Symbols symbols_; // of the callee
  const std::function<std::string(const std::string &)> &fresh_symbol_;
  std::vector<size_t> kernels_; // of the callee, in the caller
  size_t first_alloc_ = 0;
};

} // namespace

std::shared_ptr<HostProgram> ProgramInstance::program_instance(const ast::Function &ast, const InstanceSpec &spec,
                                                               SourceLoc loc) {
  std::string path;
  for (const ProgramInstance *p = this; p; p = p->caller_) {
    path = p->ast_.name.text + (path.empty() ? "" : " -> ") + path;
    if (&p->ast_ != &ast) continue;
    diags_.report(loc, DiagKind::recursion, ast.name.text, path + " -> " + ast.name.text);
    return nullptr;
  }
  std::string key = instance_key(ast, spec);
  if (auto it = programs_.find(key); it != programs_.end()) return it->second;
  return programs_[key] = ProgramInstance(program_, ast, spec, target_, diags_, this).run();
}

void ProgramInstance::inline_program(const HostProgram &callee, const HostStmt &call, std::vector<HostStmt> &out) {
  const ir::Function &f = *callee.header;
  Inliner::Symbols symbols;
  for (size_t i = 0; i < f.sizes.size(); i++)
    symbols.insert_or_assign(f.sizes[i], named(call.sizes[i], f.sizes[i], call.loc, out));
  for (size_t i = 0; i < f.params.size(); i++)
    if (call.args[i].kind == LaunchArgument::Kind::Integer)
      symbols.insert_or_assign(f.params[i].name, named(call.args[i].integer, f.params[i].name, call.loc, out));
  std::function<std::string(const std::string &)> fresh = [this](const std::string &name) {
    return fresh_symbol(name);
  };
  size_t before = out_->allocs.size();
  Inliner(*out_, callee, call.args, std::move(symbols), fresh).run(out);
  for (size_t i = before; i < out_->allocs.size(); i++) effects_.add_alloc(out_->allocs[i], true);
}

} // namespace tkc::sema
