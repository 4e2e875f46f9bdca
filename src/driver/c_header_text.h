// Words of C that the writer of `--emit header` is made of.
#pragma once
#include "codegen/abi.h"
#include "driver/c_header.h"
#include <set>

namespace tkc::driver {

extern const char *const kHeaderCommon, *const kHeaderMaps; // c_header_common.cpp

std::string c_identifier(std::string_view text); // letters, digits and underscores
std::string c_scalar_type(DType t);              // int32_t, float; uint16_t for the bits of a bf16
std::string c_number(DType t, double value);     // a constant of that type, rounded to it
// The name of a parameter of a function in C and C++.
std::string c_parameter(const std::string &name);
// A symbol of a size expression: a size or counter (a local variable), an integer scalar, a property of the device.
std::string c_symbol(const std::string &name);
// Of type double. The header then needs kHeaderNumbers.
std::string c_computed(const sema::NumberExpr &e);
extern const char *const kHeaderNumbers;
std::string c_expression(const ir::SizeExpr &e);
// "T name[N] = {...};": at least one element, as C wants it.
std::string c_array(const std::string &type, const std::string &name, const std::vector<std::string> &values);

// Names, types and order of the arguments that a function takes for a kernel or program.
struct CArguments {
  explicit CArguments(const ir::Function &f);
  const ir::Function &f;
  std::vector<std::string> unbound; // sizes that no extent of a present tensor alone says
  std::string declaration() const;  // "const tkc_tensor *x, float scale, int64_t N", without sizes that are found
  std::string with_sizes() const;   // the same and all sizes, as c_symbol() names them
  std::string pass() const;         // "x, scale, s_M, s_N"
  // Statements: missing tensors are an error; local variables for the sizes.
  std::string bind() const;
  std::string comment() const; // what the tensors are
};

// Local variables for the integer scalars, then every check of sizes, tensors (addresses if `data`, an expression) and
// facts.
std::string c_checks(const ir::Function &f, const char *data);
std::string kernel_function(const std::string &stem, const ir::Function &f, size_t index,
                            const codegen::KernelAbi &aligned, const codegen::KernelAbi &any);
std::string program_function(const std::string &stem, const sema::HostProgram &program); // c_header_program.cpp

} // namespace tkc::driver
