// Seeded inputs. Every value is a function of (seed, index) alone, so any element can be made anywhere, in any order;
// only operations that IEEE 754 rounds correctly are used, so the same bits come out on every machine.
#pragma once
#include "runtime/host_tensor.h"
#include <string_view>

namespace tkc {

// The finaliser of splitmix64, applied to seed + index: the generator of the benchmark convention (bench.h).
uint64_t splitmix64(uint64_t x);
// The convention's seeds are consecutive, so its tensors are shifted copies of each other. Inputs that must be
// independent (verification) take their seeds from here: stream 0, 1, ... of one seed.
uint64_t stream_seed(uint64_t seed, int64_t stream);

// TKC_FILL(enumerator, name, least arguments, most arguments)
//   zeros()              constant(c)             uniform(low = 0, high = 1)    low <= x < high, then rounded
//   normal(mean = 0, std = 1)                    bernoulli(p = 0.5)            1 with probability p, else 0
//   integers(low, high)  low <= x < high         arange(start = 0, step = 1)   start + step * index
//   edges(level = 0)     cycles through the special values of the dtype: 0, -0, +-1, denormals, smallest normal,
//   largest;
//                        level 1 adds infinities, level 2 NaN too
#define TKC_FILLS                                                                                                      \
  TKC_FILL(Zeros, "zeros", 0, 0)                                                                                       \
  TKC_FILL(Constant, "constant", 1, 1)                                                                                 \
  TKC_FILL(Uniform, "uniform", 0, 2)                                                                                   \
  TKC_FILL(Normal, "normal", 0, 2)                                                                                     \
  TKC_FILL(Bernoulli, "bernoulli", 0, 1)                                                                               \
  TKC_FILL(Integers, "integers", 2, 2)                                                                                 \
  TKC_FILL(Arange, "arange", 0, 2)                                                                                     \
  TKC_FILL(Edges, "edges", 0, 1)

enum class FillKind : uint8_t {
#define TKC_FILL(name, ...) name,
  TKC_FILLS
#undef TKC_FILL
};

struct Fill {
  FillKind kind = FillKind::Zeros;
  double a = 0, b = 0; // the arguments in the order above
};

std::optional<FillKind> parse_fill_kind(std::string_view name);
std::vector<std::string> fill_names();
// Checks the number and the range of the arguments and fills in the defaults.
Result<Fill> make_fill(FillKind kind, std::span<const double> arguments);
std::string to_string(const Fill &fill); // "normal(0, 3)"

// Element `index`, rounded to the dtype. uniform() is computed in f32, as the convention has it.
double fill_value(const Fill &fill, DType dtype, uint64_t seed, int64_t index);
HostTensor fill_tensor(const Fill &fill, DType dtype, std::vector<int64_t> shape, uint64_t seed);
std::vector<double> fill_values(const Fill &fill, DType dtype, int64_t count, uint64_t seed);

// The distribution that the convention gives a dtype: uniform over [-1, 1) for 16-bit and wider floats, [-448, 448) for
// e4m3, [0.1, 10) for scale types. It has none for the others; ours: e5m2 as f16, e2m1 [-6, 6), integers -8..7
// (unsigned 0..15), bool by a fair coin.
Fill convention_fill(DType dtype);

} // namespace tkc
