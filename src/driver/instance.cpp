#include "driver/instance.h"
#include "driver/unfuse_program.h"

namespace tkc::driver {

std::optional<Instance> make_instance(sema::Program &program, const ast::Function &ast, const sema::InstanceSpec &spec,
                                      const ir::Target *target, Diagnostics &diags) {
  Instance out;
  out.ast = &ast;
  if (ast.kind == ast::FunctionKind::Program) {
    out.program = sema::instantiate_program(program, ast, spec, target, diags);
    if (out.program) out.function = out.program->header;
  } else {
    out.function = sema::instantiate(program, ast, spec, target, diags);
  }
  return out.function ? std::optional(std::move(out)) : std::nullopt;
}

std::optional<Instance> make_unfused(sema::Program &program, const ast::Function &ast, const sema::InstanceSpec &spec,
                                     const ir::Target &target, Diagnostics &diags) {
  auto out = make_instance(program, ast, spec, &target, diags);
  if (!out) return std::nullopt;
  if (!out->program) out->program = program_of(ast, spec, out->function);
  out->program = unfused(*out->program, target, diags, out->remarks);
  out->function = out->program->header;
  return diags.has_errors() ? std::nullopt : std::move(out);
}

std::optional<codegen::EmitResult> compile_entry(sema::Program &program, const ast::Function &ast,
                                                 const sema::InstanceSpec &spec, const CompileOptions &options,
                                                 Diagnostics &diags) {
  if (ast.kind == ast::FunctionKind::Kernel) {
    auto compiled = compile_kernel(program, ast, spec, options, diags);
    return compiled ? std::optional(std::move(compiled->code)) : std::nullopt;
  }
  auto host = sema::instantiate_program(program, ast, spec, options.target, diags);
  auto compiled = host ? compile_program(program, *host, options, diags) : nullptr;
  return compiled ? std::optional(std::move(compiled->code)) : std::nullopt;
}

} // namespace tkc::driver
