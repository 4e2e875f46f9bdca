// What an expression denotes while sema runs: a compile-time value, or a value of the IR under construction.
#pragma once
#include "ir/ir.h"
#include "support/dtype.h"
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tkc::sema {

struct Range;
struct View;

struct SV {
  enum class Kind : uint8_t {
    Poison, // an error has been reported; everything that touches it stays silent
    Int,    // compile-time integer; takes the dtype of what it meets
    Float,  // compile-time float; likewise
    Bool,
    String,
    DType,
    Enum, // s = "Act.relu"
    None,
    Value,  // v: a tile or scalar
    Tensor, // v: a tensor
    View,   // an indexed tensor, not yet loaded
    Range,
    Tuple,
    Absent, // an optional tensor that this variant does not have; s = its name
    Effect, // the result of a call made for its effect
    Size,   // a host scalar of a program: known at launch
    Ring,   // v: the token of a ring
    Item,   // v: the token of a popped item
    Place,  // v: the token of a shared buffer or of mbarriers; elements: the slot, none if it is not indexed
    State,  // v: the token that an arrival at an mbarrier gives
  };
  Kind kind = Kind::Poison;
  int64_t i = 0;
  double f = 0;
  std::string s;
  tkc::DType dtype = tkc::DType::F32;
  ir::Value *v = nullptr;
  std::shared_ptr<View> view;
  std::shared_ptr<Range> range;
  std::shared_ptr<const ir::SizeExpr> size;
  std::vector<SV> elements;
  SourceLoc loc;

  static SV poison() { return {}; }
  static SV make_int(int64_t i, SourceLoc loc) {
    return make(Kind::Int, loc, [&](SV &s) { s.i = i; });
  }
  static SV make_float(double f, SourceLoc loc) {
    return make(Kind::Float, loc, [&](SV &s) { s.f = f; });
  }
  static SV make_bool(bool b, SourceLoc loc) {
    return make(Kind::Bool, loc, [&](SV &s) { s.i = b; });
  }
  static SV make_value(ir::Value *v, SourceLoc loc) {
    return v ? make(Kind::Value, loc, [&](SV &s) { s.v = v; }) : poison();
  }
  static SV make_tensor(ir::Value *v, SourceLoc loc) {
    return v ? make(Kind::Tensor, loc, [&](SV &s) { s.v = v; }) : poison();
  }
  static SV effect(SourceLoc loc) {
    return make(Kind::Effect, loc, [](SV &) {});
  }
  template <typename F> static SV make(Kind kind, SourceLoc loc, F &&fill) {
    SV s;
    s.kind = kind;
    s.loc = loc;
    fill(s);
    return s;
  }

  bool is(Kind k) const { return kind == k; }
  bool is_poison() const { return kind == Kind::Poison; }
  bool is_number() const { return kind == Kind::Int || kind == Kind::Float || kind == Kind::Bool; } // compile-time
  std::string describe() const; // "f32 scalar", "tile<bf16>[4, 64]", "integer 4", for messages
};

// lo : hi with run-time ends, or start :+ length. An end that is not written is absent.
struct Range {
  std::optional<SV> lo, hi, length;
};

struct IndexItem {
  enum class Kind : uint8_t { All, Scalar, Range, Gather } kind = Kind::All;
  SV value; // Scalar: Int or a scalar Value; Gather: an integer tile of rank 1
  Range range;
  SourceLoc loc;
};
struct View {
  ir::Value *tensor = nullptr;
  std::vector<IndexItem> items; // one per tensor dim
  size_t open = 0;              // so many of the last ones are still to be said: x[h, c].kp
};

} // namespace tkc::sema
