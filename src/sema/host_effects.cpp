// What the launches of a program do to memory, as far as sema can know it; the plan of given sizes is checked exactly.
#include "sema/host_instance.h"
#include "syntax/walk_ast.h"

namespace tkc::sema {

// Two boxes that share bytes whatever the sizes are (but for empty ones).
static bool surely_overlap(const TensorView &a, const TensorView &b) {
  return a.alloc == b.alloc && a.index == b.index && (a.whole() || b.whole());
}

void HostEffects::launch(const std::string &kernel, const std::vector<Use> &uses) {
  for (size_t j = 0; j < uses.size(); j++)
    for (size_t i = 0; i < j; i++)
      if ((uses[i].writes || uses[j].writes) && surely_overlap(*uses[i].view, *uses[j].view)) {
        diags_.report(uses[j].loc, DiagKind::same_memory, uses[i].parameter, uses[j].parameter, kernel);
        break;
      }
  for (const Use &u : uses) {
    std::pair<bool, size_t> memory(u.view->alloc, u.view->index);
    used_.insert(memory);
    bool fresh = u.view->alloc || header_.params[u.view->index].mode == ir::ParamMode::Out;
    if (u.reads && fresh && !written_.count(memory)) {
      Read r{memory, u.view->name, u.loc};
      if (loops_ > 0)
        open_reads_.push_back(r);
      else
        report(r);
    }
  }
  if (parallel_) {
    std::vector<Shared> mine;
    for (const Use &u : uses) {
      for (const Shared &s : shared_)
        if ((s.writes || u.writes) && surely_overlap(s.view, *u.view)) {
          diags_.report(u.loc, DiagKind::dependent_launches, u.view->name).notes.push_back({s.loc, "the other one"});
          break;
        }
      mine.push_back({*u.view, u.writes, u.loc});
    }
    shared_.insert(shared_.end(), mine.begin(), mine.end());
  }
  for (const Use &u : uses)
    if (u.writes) written_.insert({u.view->alloc, u.view->index});
}

void HostEffects::report(const Read &r) {
  if (reported_.insert(r.memory).second) diags_.report(r.loc, DiagKind::never_written, r.name);
}

void HostEffects::leave_loop() {
  if (--loops_ > 0) return;
  for (const Read &r : open_reads_)
    if (!written_.count(r.memory)) report(r);
  open_reads_.clear();
}

void HostEffects::finish(bool failed, const std::vector<ast::StmtPtr> &body) {
  for (size_t i = 0; i < header_.params.size(); i++) {
    const ir::Param &p = header_.params[i];
    if (!p.type.is_tensor() || !p.present || p.mode != ir::ParamMode::Out || written_.count({false, i})) continue;
    // A launch that has an error may be the one that writes it.
    if (!failed || !ast::mentions(body, p.name)) diags_.report(p.loc, DiagKind::out_never_written, p.name);
  }
  for (size_t i = 0; i < allocs_.size() && !failed; i++)
    if (!used_.count({true, i})) diags_.report(allocs_[i].loc, DiagKind::unused_alloc, allocs_[i].name);
}

} // namespace tkc::sema
