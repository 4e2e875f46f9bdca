// A machine of registers, lanes, warps and shared memory that runs conversion plans, written from the PTX manual's
// definitions of the instructions and without the layout algebra.
#pragma once
#include "layout/convert.h"
#include <algorithm>
#include <bit>
#include <map>
#include <set>
#include <string>

namespace tkc::test {

inline constexpr int64_t poison = -1;

// value[w][lane][reg] of a tile; poison = never written.
struct Registers {
  std::vector<int64_t> value;
  int64_t regs, warps;
  Registers(int64_t num_regs, int64_t num_warps)
      : value(size_t(num_regs * 32 * num_warps), poison), regs(num_regs), warps(num_warps) {}
  int64_t &at(int64_t w, int64_t lane, int64_t r) { return value[size_t((w * 32 + lane) * regs + r)]; }
};

// Every live register holds its element's number.
inline Registers load_tile(const RegLayout &l) {
  Registers out(l.num_regs(), l.num_warps());
  for (int r : l.live_regs())
    for (int64_t w = 0; w < l.num_warps(); w++)
      for (int64_t lane = 0; lane < 32; lane++) out.at(w, lane, r) = l.linear(r, lane, w);
  return out;
}

struct Shared {
  struct Byte {
    int64_t element = poison;
    int part = 0;
    bool operator==(const Byte &) const = default;
  };
  std::vector<Byte> bytes;
  std::vector<bool> written;
  std::string fault;
  explicit Shared(int64_t size) : bytes(size_t(size)), written(size_t(size)) {}
  void store(int64_t address, int64_t element, int elem_bytes) {
    for (int b = 0; b < elem_bytes; b++) {
      if (address + b < 0 || address + b >= int64_t(bytes.size())) {
        fault = "store out of bounds";
        return;
      }
      auto i = size_t(address + b);
      if (written[i]) fault = "byte stored twice";
      written[i] = true;
      bytes[i] = {element, b};
    }
  }
  bool must_be_written = false; // a load of bytes that nobody stored is a fault
  int64_t load(int64_t address, int elem_bytes) {
    int64_t element = poison;
    for (int b = 0; b < elem_bytes; b++) {
      if (address + b < 0 || address + b >= int64_t(bytes.size())) {
        fault = "load out of bounds";
        return poison;
      }
      if (must_be_written && !written[size_t(address + b)]) fault = "load of what was never stored";
      Byte byte = bytes[size_t(address + b)];
      if (b == 0) element = byte.element;
      if (byte.element != element || (element != poison && byte.part != b)) return -2; // a mix of elements
    }
    return element;
  }
};

inline int64_t access_address(const SmemSide &side, const SmemAccess &a, int lane, int w) {
  return int64_t(side.lane_part(lane) ^ side.warp_part(w) ^ side.classes[size_t(a.cls)]) + a.imm;
}

// Byte address of element `i` of access `a` in the registers of `lane`, by the definition of the instruction; -1 if the
// lane does not take part.
inline int64_t element_address(const SmemSide &side, const SmemAccess &a, int lane, int w, int i, int elem_bytes,
                               std::string &fault) {
  if (lane & int(side.lane_mask) || w & int(side.warp_mask)) return -1;
  if (side.inst == SmemInst::Vector) {
    int64_t address = access_address(side, a, lane, w);
    if (address % side.width) fault = "misaligned vector";
    return address + i * elem_bytes;
  }
  int per_word = 4 / elem_bytes, matrix = i / per_word, part = i % per_word;
  auto row_address = [&](int row) {
    int64_t address = access_address(side, a, matrix * 8 + row, w);
    if (address % 16) fault = "misaligned matrix row";
    return address;
  };
  if (side.inst == SmemInst::Matrix) return row_address(lane / 4) + lane % 4 * 4 + part * elem_bytes;
  return row_address(lane % 4 * 2 + part) + lane / 4 * 2;
}

inline void run_stores(const SmemSide &side, int piece, Registers &from, Shared &memory, int elem_bytes) {
  for (const SmemAccess &a : side.accesses)
    if (a.piece == piece)
      for (int w = 0; w < from.warps; w++)
        for (int lane = 0; lane < 32; lane++)
          for (size_t i = 0; i < a.regs.size(); i++) {
            int64_t address = element_address(side, a, lane, w, int(i), elem_bytes, memory.fault);
            if (address >= 0) memory.store(address, a.regs[i] < 0 ? poison : from.at(w, lane, a.regs[i]), elem_bytes);
          }
}
inline void run_loads(const SmemSide &side, int piece, Registers &to, Shared &memory, int elem_bytes) {
  for (const SmemAccess &a : side.accesses)
    if (a.piece == piece)
      for (int w = 0; w < to.warps; w++)
        for (int lane = 0; lane < 32; lane++)
          for (size_t i = 0; i < a.regs.size(); i++) {
            int64_t address = element_address(side, a, lane, w, int(i), elem_bytes, memory.fault);
            int64_t value = memory.load(address, elem_bytes);
            if (a.regs[i] >= 0) to.at(w, lane, a.regs[i]) = value;
          }
}
inline void run_copies(const SmemSide &side, Registers &to) {
  for (auto [r, from] : side.copies)
    for (int w = 0; w < to.warps; w++)
      for (int lane = 0; lane < 32; lane++) to.at(w, lane, r) = to.at(w, lane, from);
}

// Wavefronts of all accesses of warp w, counted bank by bank.
inline int64_t count_wavefronts(const SmemSide &side, int w) {
  int64_t total = 0;
  for (const SmemAccess &a : side.accesses) {
    bool matrix = side.inst != SmemInst::Vector;
    int per_phase = matrix ? 8 : side.width == 16 ? 8 : side.width == 8 ? 16 : 32;
    int lanes = matrix ? side.matrices * 8 : 32, bytes = matrix ? 16 : side.width;
    for (int first = 0; first < lanes; first += per_phase) {
      std::map<int64_t, std::set<int64_t>> words_of_bank;
      for (int lane = first; lane < first + per_phase; lane++) {
        if (lane & int(side.lane_mask)) continue;
        for (int64_t b = access_address(side, a, lane, w), end = b + bytes; b < end; b++)
          words_of_bank[b / 4 % 32].insert(b / 4);
      }
      size_t most = 0;
      for (auto &[bank, words] : words_of_bank) most = std::max(most, words.size());
      total += int64_t(most);
    }
  }
  return total;
}

inline int parity(uint32_t a) { return std::popcount(a) & 1; }

inline void run_selects(const std::vector<SelectStage> &stages, Registers &r) {
  for (const SelectStage &s : stages) {
    Registers old = r;
    for (int w = 0; w < r.warps; w++)
      for (int lane = 0; lane < 32; lane++)
        if (parity(uint32_t(lane) & s.lane_mask) ^ parity(uint32_t(w) & s.warp_mask))
          for (int64_t i = 0; i < r.regs; i++) r.at(w, lane, i) = old.at(w, lane, i ^ int64_t(s.index_xor));
  }
}

inline Registers run_shuffle(const ShufflePlan &p, Registers send, int64_t dst_regs) {
  run_selects(p.pre, send);
  Registers receive(p.receive_size, send.warps), out(dst_regs, send.warps);
  for (const ShuffleRound &round : p.rounds)
    for (int w = 0; w < send.warps; w++)
      for (int lane = 0; lane < 32; lane++) {
        uint32_t source = round.lane_xor;
        for (size_t i = 0; i < 5; i++)
          if (lane >> i & 1) source ^= p.lane_map[i];
        for (size_t i = 0; i < p.warp_map.size(); i++)
          if (w >> i & 1) source ^= p.warp_map[i];
        if (!round.moves)
          source = uint32_t(lane); // no instruction
        else if (p.is_butterfly)
          source = uint32_t(lane) ^ round.lane_xor;
        for (size_t j = 0; j < round.from.size(); j++)
          receive.at(w, lane, round.to[j]) = send.at(w, source, round.from[j]);
      }
  run_selects(p.post, receive);
  for (size_t r = 0; r < p.result.size(); r++)
    if (p.result[r] >= 0)
      for (int w = 0; w < send.warps; w++)
        for (int lane = 0; lane < 32; lane++) out.at(w, lane, int64_t(r)) = receive.at(w, lane, p.result[r]);
  return out;
}

inline Registers run_movmatrix(const MovMatrixPlan &p, Registers &from, int64_t dst_regs) {
  Registers out(dst_regs, from.warps);
  for (int w = 0; w < from.warps; w++)
    for (size_t op = 0; op < p.ops.size(); op++) {
      int64_t matrix[8][8];
      for (int lane = 0; lane < 32; lane++) {
        matrix[lane / 4][lane % 4 * 2] = p.ops[op].lo < 0 ? poison : from.at(w, lane, p.ops[op].lo);
        matrix[lane / 4][lane % 4 * 2 + 1] = p.ops[op].hi < 0 ? poison : from.at(w, lane, p.ops[op].hi);
      }
      for (size_t r = 0; r < p.result.size(); r++)
        if (p.result[r].op == int(op))
          for (int lane = 0; lane < 32; lane++)
            out.at(w, lane, int64_t(r)) = matrix[lane % 4 * 2 + p.result[r].half][lane / 4];
    }
  return out;
}

inline Registers run_shared(const SharedPlan &p, Registers &from, int64_t dst_regs, std::string &fault) {
  Registers out(dst_regs, from.warps);
  for (int piece = 0; piece < p.pieces; piece++) {
    Shared memory(p.bytes);
    memory.must_be_written = true;
    run_stores(p.store, piece, from, memory, int(p.layout.elem_bytes));
    run_loads(p.load, piece, out, memory, int(p.layout.elem_bytes));
    if (!memory.fault.empty()) fault = memory.fault;
  }
  run_copies(p.load, out);
  return out;
}

// First difference between what `dst` should hold and what it does; "" if none. Padding counts if `padding`.
inline std::string compare_tile(const RegLayout &dst, Registers &got, bool padding) {
  TileSpace space = dst.space();
  for (int r : dst.live_regs())
    for (int64_t w = 0; w < dst.num_warps(); w++)
      for (int64_t lane = 0; lane < 32; lane++) {
        uint32_t e = dst.linear(r, lane, w);
        if (!padding && !space.inside(e)) continue;
        if (got.at(w, lane, r) != int64_t(e))
          return "warp " + std::to_string(w) + " lane " + std::to_string(lane) + " register " + std::to_string(r) +
                 " holds " + std::to_string(got.at(w, lane, r)) + ", not " + std::to_string(e);
      }
  return "";
}

} // namespace tkc::test
