#include "sema/check_bodies.h"
#include "sema/host_program.h"
#include "support/diag_kinds.h"
#include "syntax/walk_ast.h"
#include <algorithm>

namespace tkc::sema {

namespace {

bool contains(SourceLoc outer, SourceLoc inner) {
  return outer.file == inner.file && outer.begin <= inner.begin && inner.end <= outer.end;
}

// Errors of the parser, which leaves out what has one.
bool of_text(DiagKind k) {
  switch (k) {
  case DiagKind::syntax:
  case DiagKind::nesting_too_deep:
  case DiagKind::expression_too_deep:
  case DiagKind::integer_literal: return true;
  default: return false;
  }
}

bool of_import(DiagKind k) {
  return k == DiagKind::unknown_import || k == DiagKind::import_cycle || k == DiagKind::unreadable_file ||
         k == DiagKind::file_too_large || k == DiagKind::empty_file || k == DiagKind::not_utf8 ||
         k == DiagKind::nul_byte;
}

bool about_a_name(DiagKind k) { return k == DiagKind::unknown_name || k == DiagKind::unknown_type; }

class Bodies {
public:
  Bodies(Program &program, Diagnostics &diags) : program_(program), diags_(diags), before_(diags.all()) {
    for (const Diagnostic &d : before_) {
      if (!of_text(d.kind)) {
        names_missing_ |= of_import(d.kind);
        continue;
      }
      bool inside = false;
      for (const ast::Function &f : program.main().functions) inside |= contains(f.loc, d.loc);
      names_missing_ |= !inside; // of an import, or of a declaration that is left out
    }
  }

  void check(const ast::Function &f, const InstanceSpec &spec) {
    std::set<const ast::Function *> seen;
    if (!whole(f, seen)) return;
    for (const ast::GenericParam &g : f.generics)
      if (!g.default_value && !spec.params.count(g.name.text)) return;
    Diagnostics found(diags_.sources());
    if (f.kind == ast::FunctionKind::Program)
      instantiate_program(program_, f, spec, nullptr, found);
    else
      instantiate(program_, f, spec, nullptr, found);
    for (const Diagnostic &d : found.all())
      if (!names_missing_ || !about_a_name(d.kind)) diags_.add(d);
  }

private:
  // Whether all of a function was read, and all of those that it names.
  bool whole(const ast::Function &f, std::set<const ast::Function *> &seen) const {
    if (!seen.insert(&f).second) return true;
    for (const Diagnostic &d : before_)
      if (of_text(d.kind) && contains(f.loc, d.loc)) return false;
    for (const auto &[name, g] : program_.root().functions)
      if (ast::mentions(f.body, name) && !whole(*g.first, seen)) return false;
    return true;
  }

  Program &program_;
  Diagnostics &diags_;
  const std::vector<Diagnostic> before_;
  bool names_missing_ = false;
};

} // namespace

void check_bodies(Program &program, const std::vector<const ast::Function *> &entries, const InstanceSpec &spec,
                  Diagnostics &diags) {
  Bodies bodies(program, diags);
  for (const ast::Function *f : entries) bodies.check(*f, spec);
}

} // namespace tkc::sema
