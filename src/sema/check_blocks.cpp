#include "sema/check_blocks.h"
#include "support/diag_kinds.h"
#include "syntax/walk_ast.h"
#include <set>

namespace tkc::sema {

namespace {

std::string suggestion(const std::string &name, const std::set<std::string> &known) {
  std::string near = nearest_name(name, {known.begin(), known.end()});
  return near.empty() ? "" : "; did you mean `" + near + "`?";
}

// Names once: the first is remembered, every other one reported.
class Once {
public:
  explicit Once(Diagnostics &diags) : diags_(diags) {}
  void operator()(const ast::Name &n) {
    auto [it, fresh] = seen_.emplace(n.text, n.loc);
    if (!fresh)
      diags_.report(n.loc, DiagKind::duplicate_name, n.text).notes.push_back({it->second, "first declared here"});
  }

private:
  Diagnostics &diags_;
  std::map<std::string, SourceLoc> seen_;
};

class BlockCheck {
public:
  BlockCheck(const ast::Check &check, const ast::Function &kernel, const HoldsRecords &holds_records,
             Diagnostics &diags)
      : check_(check), kernel_(kernel), diags_(diags) {
    for (const ast::Param &p : kernel.params)
      if (!check.is_bench && holds_records(kernel, p)) {
        diags
            .report(check.kernel.loc, DiagKind::bad_check,
                    fmt::format("`{}` of `{}` holds records: verify a program that allocates, writes and reads them",
                                p.name.text, kernel.name.text))
            .notes.push_back({p.name.loc, "declared here"});
        break;
      }
    for (const ast::Param &p : kernel.params) {
      params_.insert(p.name.text);
      if (p.mode != ast::ParamMode::In) outputs_.insert(p.name.text);
    }
  }

  void run() {
    Once inputs(diags_), outputs(diags_), tolerances(diags_), cases(diags_), located(diags_);
    for (const ast::Input &i : check_.inputs) {
      inputs(i.name);
      if (!params_.count(i.name.text)) unknown(i.name, "parameter", params_);
    }
    for (const ast::Binding &b : check_.bindings)
      for (const ast::Name &n : b.targets) {
        outputs(n);
        if (!check_.is_bench && !outputs_.count(n.text)) unknown(n, "output", outputs_);
      }
    for (const ast::Tolerance &t : check_.tolerances)
      for (const ast::Name &n : t.outputs) {
        tolerances(n);
        if (!outputs_.count(n.text)) unknown(n, "output", outputs_);
      }
    for (const ast::Locate &l : check_.locates) {
      if (check_.is_bench) diags_.report(l.outputs[0].loc, DiagKind::bad_check, "`locate` belongs to a verify block");
      for (const ast::Name &n : l.outputs) {
        located(n);
        if (!outputs_.count(n.text)) unknown(n, "output", outputs_);
      }
      Once items(diags_);
      for (const ast::CaseSetting &s : l.items) items(s.name);
    }
    std::set<std::string> settable = settings();
    for (const ast::Case &c : check_.cases) {
      cases(c.name);
      Once once(diags_);
      for (const ast::CaseSetting &s : c.settings) {
        once(s.name);
        if (!settable.count(s.name.text)) unknown(s.name, "size or parameter", settable);
      }
    }
  }

private:
  void unknown(const ast::Name &n, const char *what, const std::set<std::string> &known) {
    diags_.report(n.loc, DiagKind::unknown_in_check, spelling(kernel_.kind), kernel_.name.text, what, n.text,
                  suggestion(n.text, known));
  }

  // The kernel's parameters, compile-time parameters and sizes, and whatever name an expression of the block uses.
  std::set<std::string> settings() const {
    std::set<std::string> out = params_;
    auto add = [&](const ast::Expr &e) {
      if (e.kind == ast::ExprKind::Name) out.insert(e.text);
    };
    for (const ast::GenericParam &g : kernel_.generics) out.insert(g.name.text);
    for (const ast::Param &p : kernel_.params)
      if (p.type)
        for (const ast::ExprPtr &d : p.type->dims) ast::walk(*d, add);
    ast::walk(check_.lets, add);
    for (const ast::Binding &b : check_.bindings) ast::walk(*b.value, add);
    for (const ast::Input &i : check_.inputs) ast::walk(*i.value, add);
    for (const ast::Locate &l : check_.locates)
      for (const ast::CaseSetting &s : l.items) ast::walk(*s.value, add);
    for (const ast::Case &c : check_.cases)
      for (const ast::CaseSetting &s : c.settings) ast::walk(*s.value, add);
    return out;
  }

  const ast::Check &check_;
  const ast::Function &kernel_;
  Diagnostics &diags_;
  std::set<std::string> params_, outputs_;
};

} // namespace

void check_blocks(const ast::File &file, const std::map<std::string, const ast::Function *> &entries,
                  const HoldsRecords &holds_records, Diagnostics &diags) {
  std::set<std::string> names;
  for (const auto &[name, entry] : entries) names.insert(name);
  Once verifies(diags), benches(diags);
  for (const ast::Check &c : file.checks) {
    (c.is_bench ? benches : verifies)(c.kernel);
    auto entry = entries.find(c.kernel.text);
    if (entry == entries.end())
      diags.report(c.kernel.loc, DiagKind::unknown_kernel, c.kernel.text, suggestion(c.kernel.text, names));
    else
      BlockCheck(c, *entry->second, holds_records, diags).run();
  }
}

} // namespace tkc::sema
