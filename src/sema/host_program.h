// A program: kernels, temporaries and host scalars as one unit. Sema binds its compile-time parameters, checks every
// launch against the signature of its kernel, and leaves a tree whose numbers are expressions of the program's sizes,
// its integer scalars, the counters of its loops and the properties of the device (`device.sms`). driver/plan.h
// evaluates the tree: no code runs between the launches.
#pragma once
#include "sema/instance.h"
#include "sema/number_expr.h"

namespace tkc::sema {

// One instance of a kernel that the program can launch.
struct ProgramKernel {
  const ast::Function *ast = nullptr;
  InstanceSpec spec; // every compile-time parameter is said
  // Of the entry, the same in every program: the kernel's, then each compile-time parameter that is not its default,
  // and each absent tensor, as in gemm__BM_64__act_relu__no_bias.
  std::string name;
  std::shared_ptr<ir::Function> typed;
  bool made = false; // `typed` is no instance of `ast`: it was made of one
};

struct ProgramAlloc {
  std::string name;
  DType dtype = DType::F32;
  std::shared_ptr<const ir::Record> record; // as of ir::Param
  std::vector<ir::SizeExpr> dims;
  SourceLoc loc;
};

// A box of a tensor: the whole, a part, or one position along some dims, which go away.
struct TensorView {
  bool alloc = false; // a temporary, else a parameter of the program
  size_t index = 0;
  std::string name; // of what it is a part of
  DType dtype = DType::F32;
  std::shared_ptr<const ir::Record> record; // as of ir::Param
  struct Dim {
    ir::SizeExpr lo, extent;
    bool whole = true, kept = true;
    SourceLoc loc; // of the index
  };
  std::vector<Dim> dims; // one per dim of the whole
  bool whole() const;
  std::vector<ir::SizeExpr> extents() const; // of the dims that are kept
};

struct LaunchArgument { // of one parameter of the kernel
  enum class Kind : uint8_t {
    Absent,   // an optional tensor that this launch does not give
    Tensor,   // view
    Integer,  // integer, also of a bool
    Number,   // number
    Scalar,   // name: a scalar parameter of the program
    Computed, // computed: a floating-point scalar that is known at launch
  } kind = Kind::Absent;
  TensorView view;
  ir::SizeExpr integer;
  double number = 0;
  std::string name;
  NumberExpr computed;
  SourceLoc loc;
};

struct HostStmt {
  enum class Kind : uint8_t {
    Launch,   // kernel, args, sizes
    Alloc,    // alloc: a fresh temporary each time
    Let,      // counter, lo: a number that later statements name
    Require,  // cond: a `where` of a program that this one launches
    If,       // cond, body, else_body
    For,      // counter, lo, hi, step, body
    Parallel, // body: its launches are independent of each other
  } kind = Kind::Launch;
  SourceLoc loc;
  size_t kernel = 0;                // index of HostProgram::kernels
  std::vector<LaunchArgument> args; // by parameter of the kernel
  std::vector<ir::SizeExpr> sizes;  // by size of the kernel
  size_t alloc = 0;                 // index of HostProgram::allocs
  ir::SizeExpr cond, lo, hi, step;
  std::string counter; // a symbol of later expressions; no other symbol has its name
  std::vector<HostStmt> body, else_body;
};

struct HostProgram {
  const ast::Function *ast = nullptr;
  std::shared_ptr<ir::Function> header; // parameters, sizes, bindings and facts, as a kernel's; no body
  std::vector<ProgramKernel> kernels;   // in order of first launch
  std::vector<ProgramAlloc> allocs;
  std::vector<HostStmt> body;
};

// The properties of a device that expressions may name, as `device.sms`.
inline constexpr const char *kDeviceProperties[] = {"sms", "l2_bytes", "smem", "arch"};

// Null after an error. `target` may be null: then no op of a kernel is refused.
std::unique_ptr<HostProgram> instantiate_program(Program &program, const ast::Function &ast, const InstanceSpec &spec,
                                                 const ir::Target *target, Diagnostics &diags);

} // namespace tkc::sema
