// Instances: typed IR of a kernel with its compile-time parameters bound, and the host-side functions of verify and
// bench blocks (inputs, expected outputs, counts) as reference IR with every size bound.
#pragma once
#include "sema/elaborate.h"

namespace tkc::sema {

// Values as written on the command line or in a case: "4096", "true", "bf16", "relu".
struct InstanceSpec {
  std::map<std::string, std::string> params; // names that are no compile-time parameter of the kernel are ignored
  std::set<std::string> absent;              // optional tensors that this variant does not have
  bool overlaps = false;                     // `@overlap launch`: ir::Function::overlaps
};

// Null after an error. `target` may be null: then no op is refused.
std::unique_ptr<ir::Function> instantiate(Program &program, const ast::Function &kernel, const InstanceSpec &spec,
                                          const ir::Target *target, Diagnostics &diags);

// A case of a verify or bench block: run-time sizes and scalars as numbers, compile-time parameters as text.
struct CaseSpec {
  std::string name;
  InstanceSpec spec;                                // compile-time parameters and absent tensors
  std::map<std::string, double> numbers;            // every numeric setting, by name
  std::map<std::string, const ast::Expr *> strides; // `x = strides(N + 8, 1)`, by tensor
  bool gpu_only = false;
};
std::optional<CaseSpec> evaluate_case(Program &program, const ast::Function &kernel, const ast::Check &check,
                                      const ast::Case &c, Diagnostics &diags);

// A function on the host: arguments are the named tiles, then one tile per generator call.
struct HostArg {
  std::string name;
  DType dtype = DType::F64; // f64, i64 or bool
  std::vector<int64_t> shape;
  bool absent = false; // an optional tensor that the case does not have: no argument, but `has` knows the name
  std::string word;    // text of a compile-time parameter that is a type or an enum value: no argument either
};
struct HostFunction {
  std::unique_ptr<ir::Function> fn;
  std::vector<GeneratorCall> generators;
  std::vector<std::string> outputs;
};
using Numbers = std::map<std::string, double>; // sizes, scalars and compile-time integers of the case

// The strides of a tensor by a case, in elements: one for each of its `rank` dims, none negative. `unit`: the last
// is 1.
std::optional<std::vector<int64_t>> evaluate_strides(Program &program, const ast::Check &check,
                                                     const ast::Expr &strides, size_t rank, bool unit,
                                                     const Numbers &numbers, Diagnostics &diags);

// `input x = expr`: a tile of x's shape (given in `result`), of f64 for float dtypes, else i64 or bool.
std::optional<HostFunction> build_input(Program &program, const ast::Check &check, const ast::Input &input,
                                        const Numbers &numbers, const std::vector<HostArg> &args, const HostArg &result,
                                        Diagnostics &diags);
// `y = reference(x)`: one output per target; their shapes are those of the kernel's tensors in `results`.
std::optional<HostFunction> build_expected(Program &program, const ast::Check &check, const ast::Binding &binding,
                                           const Numbers &numbers, const std::vector<HostArg> &args,
                                           Diagnostics &diags);
// `locate y: chunk = T / 16`: an i64 for each item, from the kernel's inputs, as above, and then the coordinates of an
// element as i64 scalars, one for each of `dims`. An item may name those before it.
std::optional<HostFunction> build_location(Program &program, const ast::Check &check, const ast::Locate &locate,
                                           const std::vector<ast::Name> &dims, const Numbers &numbers,
                                           const std::vector<HostArg> &args, Diagnostics &diags);
// The derivative of what `y = reference(x)` says, with respect to every float tensor that it names, for random
// cotangents: an output per tensor. Null if it names none; errors are reported.
std::optional<HostFunction> build_gradient(Program &program, const ast::Check &check, const ast::Binding &binding,
                                           const Numbers &numbers, const std::vector<HostArg> &args,
                                           Diagnostics &diags);
// bytes, flops and the like of a bench block.
std::map<std::string, double> evaluate_counts(Program &program, const ast::Check &check, const Numbers &numbers,
                                              Diagnostics &diags);

} // namespace tkc::sema
