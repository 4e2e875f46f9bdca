// Comparing what a kernel wrote with a reference in f64.
#pragma once
#include "runtime/host_tensor.h"

namespace tkc {

// What passes. Several limits may be set: all must hold. Without any, every finite value passes.
struct Tolerance {
  std::optional<double> rms;     // ||got - ref|| / ||ref|| (ref all zero: the root mean square of got)
  std::optional<double> max_abs; // |got - ref| of every element
  bool exact = false;            // got equals ref rounded to the dtype; 0 equals -0
  // An rms limit over millions of elements does not see a few wrong ones. So with `rms` no single error may exceed
  // outlier * rms * max(|ref|, root mean square of ref), which rounding cannot reach. 0 turns this off.
  double outlier = 64;
};
std::string to_string(const Tolerance &t);

struct Mismatch {
  int64_t index = 0;
  double got = 0, expected = 0;
  std::vector<std::pair<std::string, int64_t>> place; // where that is in the caller's words: {"chunk", 2}
};

struct Comparison {
  bool pass = true;
  std::vector<int64_t> shape;
  std::vector<std::string> dims; // names of the dims, "" where there is none; may be empty
  DType dtype = DType::F32;
  Tolerance tolerance;
  int64_t count = 0;
  double rms_error = 0;     // root mean square of the error over the elements finite on both sides
  double rms_reference = 0; // and of the reference there
  double max_abs_error = 0;
  // Elements over a limit of their own: non-finite where the reference is not (or the reverse, or the other sign), over
  // max_abs, unequal under `exact`, or outliers. Under an rms limit alone a tensor may fail with none of them.
  int64_t mismatches = 0;
  int64_t nonfinite_mismatches = 0;
  int64_t unwritten = 0;         // mismatches that still hold the poison pattern
  std::optional<Mismatch> first; // the first of the mismatches; if there are none, of the largest errors
  std::optional<Mismatch> worst; // a non-finite mismatch if there is one, else the largest error

  bool zero_reference() const { return rms_reference == 0; }
  double rms_ratio() const; // rms_error / rms_reference, or rms_error if the reference is zero
  // "y: ok    bf16[7, 100]  rms 1.7e-03 (limit 4e-03)  max abs 9.8e-04", and if it failed lines with coordinates.
  std::string to_string(std::string_view name) const;
};

// NaN and infinities pass only where the reference, rounded to the dtype of `got`, has the same.
Comparison compare(const HostTensor &got, std::span<const double> expected, const Tolerance &tolerance);
// The same against another tensor; under `exact` and with integers nothing passes through a double.
Comparison compare(const HostTensor &got, const HostTensor &expected, const Tolerance &tolerance);

// Fills a tensor with a pattern that no kernel is likely to compute: a NaN of its own payload for floats that have one,
// bytes 0x7b for integers, bool and e2m1.
void poison(HostTensor &t);
struct PoisonLeft {
  int64_t count = 0, first = -1; // elements that still hold the pattern
};
PoisonLeft find_poison(const HostTensor &t);

} // namespace tkc
