// Runs the programs of stdlib/kda.tk, kda_backward.tk and gdn.tk on tensors that lie in memory as a test wants, on the
// interpreter or, as sm_120 PTX, on the emulator, and gives what the verify blocks of the samples say that the outputs
// must be.
#pragma once
#include "driver/verify.h"
#include <doctest/doctest.h>

namespace tkc::test {

using Tensors = std::map<std::string, HostTensor>;
using Options = std::map<std::string, std::string>; // compile-time parameters as text: {"gate", "bounded"}

struct Shape { // states are [N, HV, K, V], or [N, HV, V, K] with the option v_first
  int64_t B = 1, T = 0, H = 1, HV = 1, K = 64, V = 64, N = 1;
};
struct Problem {
  std::string program; // kda_forward, kda_backward or gdn_forward
  Shape shape;
  Options options;
  Tensors inputs; // optional tensors that are not here are absent, and with them their gradients
  double scale = 0.125, bound = -5;
  bool chunk_states = false; // output hs
  bool slice_states = false; // output states; with packed sequences parts of it may be left as they were
};

// Where a tensor lies in a buffer, in elements; what of the buffer is no element of the tensor holds NaN, or, for
// integers, large numbers.
struct Placement {
  std::vector<int64_t> strides;
  int64_t offset = 0, elements = 0; // of the buffer
};
Placement guarded(const std::vector<int64_t> &shape, int64_t before, int64_t after);

struct How {
  driver::Executor executor = driver::Executor::Interp;
  emu::Options emu;
  std::map<std::string, Placement> placements; // of parameters by name; others are dense and fill their buffer
};

// The outputs. Memory that belongs to no output must be as before; fails the test if not.
Tensors run(const Problem &p, const How &how = {});
// The same outputs by the reference of the sample, in f64.
std::map<std::string, std::vector<double>> expected(const Problem &p);
// Runs both on the interpreter and compares with limits that suit small problems, or those given by output.
using Limits = std::map<std::string, Tolerance>;
void check_against_reference(const Problem &p, const Limits &limits = {});
// Bytes that a call needs beyond its tensors, on the default part of a target. Of the inputs only the names matter.
int64_t workspace_bytes(const Problem &p, const char *target);
// The shapes of the parameters, by name; those that are absent are not there.
std::map<std::string, std::vector<int64_t>> shapes(const Problem &p);

HostTensor normal(DType t, std::vector<int64_t> shape, uint64_t seed, double deviation = 1);
HostTensor constant(DType t, std::vector<int64_t> shape, double value);
HostTensor offsets(const std::vector<int64_t> &cu);
// q, k, v, beta, g, s0 and, for the backward pass, do and dht: bounded gates, norm and sigmoid in the kernel, and what
// these want.
Problem bounded_problem(const std::string &program, const Shape &shape, uint64_t seed);

// Part of a tensor along one dim, and its parts put together again.
HostTensor part(const HostTensor &t, size_t dim, int64_t begin, int64_t end);
HostTensor joined(const std::vector<HostTensor> &parts, size_t dim);

} // namespace tkc::test
