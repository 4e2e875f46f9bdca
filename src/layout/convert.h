// From one register layout to another: what must move, by which instructions, and what it costs. Everything follows
// from the two linear maps. Plans are data, in the order in which code generation emits them, and depend on nothing but
// the arguments.
#pragma once
#include "layout/reg_layout.h"
#include "layout/smem_layout.h"
#include <unordered_map>

namespace tkc {

enum class ConvertKind : uint8_t {
  Identity,  // the same registers
  Registers, // renaming of registers
  MovMatrix, // 8x8 blocks of 16-bit elements transposed inside a warp
  Shuffle,   // data moves between the lanes of a warp
  Shared     // through shared memory
};
std::string_view convert_kind_name(ConvertKind kind);

// One stage of selects on an array of values (registers of each lane), applied to every index that is wanted:
//   new[i] = odd(popcount(lane & lane_mask) + popcount(warp & warp_mask)) ? old[i ^ index_xor] : old[i]
struct SelectStage {
  uint32_t lane_mask = 0, warp_mask = 0;
  uint32_t index_xor = 0;
  bool operator==(const SelectStage &) const = default;
};

// send = source registers after the stages of `pre`, which are applied in order. Each round then fills entries of the
// array `receive`:
//   receive[to[j]] of lane l = send[from[j]] of lane source_lane(l, w) ^ lane_xor
// with source_lane the XOR of lane_map[i] and warp_map[i] over the set bits of l and w. The stages of `post` are
// applied to `receive` in order, and register r of the result is receive[result[r]]. A value of a source register that
// is not live is arbitrary. A stage's index may name one.
struct ShuffleRound {
  std::vector<int> from, to; // up to 32 bits' worth of elements, packed into one register to move; 64 bits: two shfl
  uint32_t lane_xor = 0;
  bool moves = false; // false: every lane reads itself, no instruction
  bool operator==(const ShuffleRound &) const = default;
};
struct ShufflePlan {
  std::vector<SelectStage> pre, post;
  std::array<uint32_t, lane_bits> lane_map{};
  std::vector<uint32_t> warp_map;
  bool is_butterfly = false; // source_lane(l, w) = l: shfl.sync.bfly with lane_xor; else shfl.sync.idx
  std::vector<ShuffleRound> rounds;
  int receive_size = 0;
  std::vector<int> result;                      // by register of the result; -1: not live
  int64_t shuffles = 0, selects = 0, packs = 0; // instructions of one warp
  bool operator==(const ShufflePlan &) const = default;
};

// Op i packs two source registers (`lo`, `hi`; -1: not live), runs movmatrix.sync.aligned.m8n8.trans.b16 and unpacks;
// register r of the result is half `half` of op `op` (op -1: not live).
struct MovMatrixPlan {
  struct Op {
    int lo, hi;
    bool operator==(const Op &) const = default;
  };
  struct Half {
    int op = -1, half = 0;
    bool operator==(const Half &) const = default;
  };
  std::vector<Op> ops;
  std::vector<Half> result;
  int64_t packs = 0; // instructions of one warp that pack or unpack
  bool operator==(const MovMatrixPlan &) const = default;
};

// Store, synchronise, load; for each piece in turn, and synchronise again before the next piece (or the next user of
// the scratch) stores. Offsets are those of `layout`, modulo the bytes of one piece.
struct SharedPlan {
  SmemLayout layout;
  SmemSide store, load;
  bool warp_sync = false; // data stays in its warp: bar.warp.sync instead of a block barrier
  int pieces = 1;
  int64_t bytes = 0; // scratch of the block, aligned to 16 bytes
  bool operator==(const SharedPlan &) const = default;
};

struct ConversionPlan {
  ConvertKind kind = ConvertKind::Identity;
  double cycles = 0;
  std::vector<int> registers; // Identity, Registers: register of the result -> source register (-1: not live)
  MovMatrixPlan movmatrix;
  ShufflePlan shuffle;
  SharedPlan shared;
  // Padding elements of live registers of the result have the source's values. Otherwise some of them come from
  // registers that are not live and are arbitrary, whatever was known of the source's padding.
  bool padding_kept = true;

  bool operator==(const ConversionPlan &) const = default;
  // One line for reports: `shared: 4 x st.shared.v4, bar.sync, 4 x ldmatrix.x4.trans, 8192 B, 200 cycles`.
  std::string to_string() const;
};

// Estimated cycles of an SM, all warps of the block together. An instruction takes `issue` cycles of its sub-core (a
// quarter of the warps), and shared-memory traffic, shuffles and movmatrix share one pipe of the SM.
struct ConvertCosts {
  double issue = 1;
  double select = 2;    // issue cycles of a select: half rate
  double pack = 2;      // .. of packing or unpacking a pair of 16-bit elements
  double wavefront = 1; // SM cycles of one shared-memory wavefront
  double shuffle = 2;   // SM cycles of one shfl
  double movmatrix = 4; // SM cycles of one movmatrix
  double shuffle_latency = 24, movmatrix_latency = 25, store_latency = 12, load_latency = 30;
  double warp_sync = 6, block_barrier = 30;
};

// The cheapest conversion of a tile of `elem_bits` (8, 16, 32 or 64; predicates and narrower elements are
// held as 8) between layouts of the same
// shape and number of warps.
ConversionPlan plan_conversion(const RegLayout &src, const RegLayout &dst, int64_t elem_bits,
                               const LayoutFeatures &features, const ConvertCosts &costs = {});

// Plans that were asked for before, for a search that asks again and again.
class ConversionPlanner {
public:
  explicit ConversionPlanner(LayoutFeatures features, ConvertCosts costs = {}) : features_(features), costs_(costs) {}
  // Valid as long as the planner.
  const ConversionPlan &plan(const RegLayout &src, const RegLayout &dst, int64_t elem_bits);

private:
  struct Key {
    RegLayout src, dst;
    int64_t elem_bits;
    bool operator==(const Key &) const = default;
  };
  struct Hash {
    size_t operator()(const Key &k) const;
  };
  LayoutFeatures features_;
  ConvertCosts costs_;
  std::unordered_map<Key, ConversionPlan, Hash> plans_; // references stay valid when it grows
};

// The parts, for tests and for a caller that wants one kind; nullopt where it does not apply.
std::optional<MovMatrixPlan> plan_movmatrix(const RegLayout &src, const RegLayout &dst);
std::optional<ShufflePlan> plan_shuffle(const RegLayout &src, const RegLayout &dst, int64_t elem_bits);
SharedPlan plan_shared(const RegLayout &src, const RegLayout &dst, int64_t elem_bits, const LayoutFeatures &features,
                       const ConvertCosts &costs = {});
double shuffle_cycles(const ShufflePlan &plan, int64_t warps, const ConvertCosts &costs);
double movmatrix_cycles(const MovMatrixPlan &plan, int64_t warps, const ConvertCosts &costs);
double shared_cycles(const SharedPlan &plan, int64_t warps, const ConvertCosts &costs);

// Every element that a warp of `dst` holds is held by the same warp of `src`.
bool stays_in_warp(const RegLayout &src, const RegLayout &dst);

} // namespace tkc
