// The interpreter: the meaning of the typed IR, in f64 where the IR says f64. It never sees padding or layouts.
//
// A float element is kept as a double that its dtype can hold exactly (every op rounds its result once, as documented
// per op); integers and bools as int64_t, wrapped to their width (u64 as its two's-complement image).
#pragma once
#include "ir/op_def.h"
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <variant>

namespace tkc::ir {
class Activity;
}

namespace tkc::interp {

struct Tile {
  DType dtype = DType::F32;
  std::vector<int64_t> shape;
  std::vector<double> f;  // elements of a float tile, row-major
  std::vector<int64_t> i; // elements of an integer or bool tile

  Tile() = default;
  Tile(DType t, std::vector<int64_t> shape); // zeros; of ue8m0, which has no zero, the least value
  int64_t size() const;
  bool is_float() const { return tkc::is_float(dtype); }
  double as_f(int64_t k) const { return is_float() ? f[size_t(k)] : double(i[size_t(k)]); }
  int64_t as_i(int64_t k) const { return is_float() ? int64_t(f[size_t(k)]) : i[size_t(k)]; }
};

// A tensor's memory in wide form, shared by all blocks of a launch.
struct Storage {
  std::string name;
  DType dtype = DType::F32;
  std::vector<double> f;
  std::vector<int64_t> i;
  std::mutex atomics; // serialises atomic ops
};

struct TensorRef {
  Storage *storage = nullptr;
  int64_t offset = 0; // elements
  std::vector<int64_t> extents, strides;
  // A field of records: the storage has their words, offset and strides are counted in bytes, and within the dims of
  // the field, which are the last ones, bytes are permuted.
  struct Field {
    DType dtype = DType::F32;
    size_t rank = 0;
    ir::ByteSwizzle swizzle;
  };
  std::optional<Field> field;
};

struct BlockMemory; // interp/block_memory.h
using Value = std::variant<std::monostate, Tile, TensorRef, std::shared_ptr<BlockMemory>>;

struct Trap { // a fault of the program while it runs: assertion, division by zero, access outside the tensor's memory
  SourceLoc loc;
  std::string message;
};

struct Launch {
  const ir::Function *function = nullptr;
  std::vector<Value> args;   // one per argument of the entry block
  std::vector<int64_t> grid; // kernels
  int64_t threads = 1;       // host threads; the result does not depend on it but for the order of float atomics
  std::function<void(const std::string &)> print; // output of `print`, called under a lock
  // Called with every `grad` that has been taken.
  struct Gradient {
    const ir::Op &op;
    std::vector<Value> inputs, gradient;
    // The sum over what is differentiated of cotangent times value, and of its absolute value, at other inputs; nothing
    // if that traps.
    struct Sum {
      double value = 0, magnitude = 0;
    };
    std::function<std::optional<Sum>(const std::vector<Value> &inputs)> value;
  };
  std::function<void(const Gradient &)> on_gradient;
};
struct Result {
  std::optional<Trap> trap;   // the first, by block number
  std::vector<Value> results; // of a reference
};
Result run(const Launch &launch);

// What an op's interp facet sees: one block (program) of a launch.
class Plan;
class Roles;
class Ctx {
public:
  const Tile &tile(const ir::Value *v) const { return std::get<Tile>(values_[size_t(v->id)]); }
  const TensorRef &tensor(const ir::Value *v) const { return std::get<TensorRef>(values_[size_t(v->id)]); }
  const Value &get(const ir::Value *v) const { return values_[size_t(v->id)]; }
  BlockMemory &memory(const ir::Value *v) const {
    return *std::get<std::shared_ptr<BlockMemory>>(values_[size_t(v->id)]);
  }
  int64_t scalar_i(const ir::Value *v) const { return tile(v).as_i(0); }
  void set(const ir::Value *v, Value x) { values_[size_t(v->id)] = std::move(x); }
  // Operand i to change in place: moved out where this op is the value's last use, so that a loop that updates an array
  // does not copy it, else a copy.
  Value take(const ir::Op &op, size_t i);
  Tile take_tile(const ir::Op &op, size_t i) { return std::get<Tile>(take(op, i)); }
  // The value of a block argument of a region that has ended, moved out.
  Value release(const ir::Value *v) { return std::move(values_[size_t(v->id)]); }
  // yield and return: the operands become what the region gives back.
  void leave(const ir::Op &op);
  // Runs a region with arguments; returns the operands of its yield. Empty if it trapped.
  std::vector<Value> run_region(const ir::Block *block, std::vector<Value> args);
  // How regions run while a derivative is taken (interp/reverse.h): only ops that `activity` says to execute (null:
  // all); recording, values stay as they are, but for those of loop bodies.
  struct Mode {
    const ir::Activity *activity = nullptr;
    bool recording = false;
  };
  Mode set_mode(Mode m) { return std::exchange(mode_, m); }
  void run_recording(const ir::Block *block, std::vector<Value> args); // also the body of a loop
  size_t value_count() const { return values_.size(); }
  // Tells the launch of a gradient.
  void report_gradient(const ir::Op &op, const std::vector<Value> &gradient);

  void trap(const ir::Op &op, std::string message);
  bool trapped() const { return trap_.has_value(); }
  void print(const std::string &text);
  // In a role of the block (interp/roles.h), which runs with a context of its own.
  Roles *roles() const { return roles_; }
  size_t role() const { return role_; }
  void enter_role(Roles &roles, size_t role) { roles_ = &roles, role_ = role; }
  void fail_as(const Ctx &role) { trap_ = role.trap_; }
  std::vector<int64_t> program, grid; // block coordinates

private:
  friend Result run(const Launch &);
  void run_block(const ir::Block *block);
  const Launch *launch_ = nullptr;
  const Plan *plan_ = nullptr;
  std::mutex *print_lock_ = nullptr;
  std::vector<Value> values_; // by ir::Value::id
  std::vector<Value> yielded_;
  std::optional<Trap> trap_;
  Mode mode_;
  Roles *roles_ = nullptr;
  size_t role_ = 0;
};

} // namespace tkc::interp
