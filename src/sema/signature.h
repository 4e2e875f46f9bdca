// What kernels and programs declare alike: compile-time parameters, parameters and the sizes in their extents, facts.
#pragma once
#include "sema/instance.h"

namespace tkc::sema {

// Declares the head of a kernel or program in `fn` and, by name, in the elaborator. Errors are reported; what has one
// is poison afterwards.
class Signature {
public:
  Signature(Program &program, const ast::Function &ast, const InstanceSpec &spec, ir::Function &fn, Elaborator &e);
  void begin(); // name and body; first
  void bind_generics();
  void declare_params();
  void facts();

private:
  void argument(ir::Type type, const std::string &name);
  bool parameter_named(const std::string &name) const;
  bool declare(const ast::Param &p);

  Scope &scope_;
  const ast::Function &ast_;
  const InstanceSpec &spec_;
  Diagnostics &diags_;
  ir::Function &fn_;
  Elaborator &e_;
};

// The value of a compile-time parameter from its text; poison after a report.
SV parse_setting(const ast::GenericParam &g, const std::string &text, Scope &scope, Diagnostics &diags);
std::string setting_text(const SV &v);                              // what parse_setting() reads
void used_names(const ast::Expr &e, std::vector<std::string> &out); // the names in an expression, in order

} // namespace tkc::sema
