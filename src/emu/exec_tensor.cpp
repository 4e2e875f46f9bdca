// Tensor copies (TMA) in tile mode. A box row is the box's extent in dimension 0; rows follow each other in shared
// memory densely, dimension 1 fastest, and every 16-byte chunk goes where the swizzle of its address puts it. Elements
// outside of the tensor are read as zero and not written; a load counts the bytes of the whole box. Stores and
// reductions are clipped by whole 16-byte chunks and must not begin before the tensor (both seen on an H200).
#include "emu/copy.h"
#include "emu/lanes.h"
#include "emu/tensor_map.h"
#include <algorithm>
#include <cstring>

namespace tkc::emu {

namespace {
struct BoxRow {
  uint8_t *global = nullptr;    // of the first element inside the tensor; null if the row lies outside
  int64_t first = 0, bytes = 0; // byte range of the row that lies inside
};
struct Box {
  std::vector<BoxRow> rows;
  int64_t row_bytes = 0;
  int32_t swizzle = 0;
  int64_t bytes() const { return row_bytes * int64_t(rows.size()); }
  // The bytes of shared memory that may be touched: a swizzle permutes 16-byte chunks within as many bytes as it has.
  int64_t span() const { return swizzle ? (bytes() + swizzle - 1) / swizzle * swizzle : bytes(); }
};

bool find_map(Warp &w, int lane, uint64_t address, TensorMap &map) {
  Place p = find_place(w, lane, Space::Generic, address, kTensorMapBytes, 64, Use::Read);
  if (!p.bytes) return false;
  std::optional<TensorMap> found = decode_tensor_map(p.bytes);
  std::string fault = found ? check_tensor_map(*found) : "there is none";
  if (found && fault.empty() && dtype_bits(found->dtype) < 8)
    fault = fmt::format("elements of type {} are not supported", dtype_name(found->dtype));
  if (!fault.empty()) {
    w.error(ErrorKind::AsyncMisuse, lane, address, fmt::format("the tensor map at {:#x}: {}", address, fault));
    return false;
  }
  map = *found;
  return true;
}

// What hardware does not do as told: "" if nothing. `at`: where a store or a reduction puts the box.
std::string check_stored_box(const TensorMap &map, const std::array<int32_t, 5> &at) {
  for (int d = 0; d < map.rank; d++)
    if (at[size_t(d)] < 0)
      return fmt::format("coordinate {} of dimension {} of a store: a negative one is an illegal instruction",
                         at[size_t(d)], d);
  int64_t row = map.size[0] * dtype_bytes(map.dtype), rest = row % 16;
  if (rest && at[0] < map.size[0] && at[0] + map.box[0] > map.size[0])
    return fmt::format("a store across the end of dimension 0, {} bytes long, also writes the {} bytes behind it", row,
                       16 - rest);
  return "";
}

bool find_box(Warp &w, int lane, const TensorMap &map, const std::array<int32_t, 5> &at, Use use, Box &box) {
  int64_t element = dtype_bytes(map.dtype), count = 1;
  for (int d = 1; d < map.rank; d++) count *= map.copied(d);
  box.row_bytes = map.box[0] * element;
  box.swizzle = map.swizzle;
  box.rows.resize(size_t(count));
  int64_t begin = std::max<int64_t>(0, -int64_t(at[0])), end = std::min<int64_t>(map.box[0], map.size[0] - at[0]);
  for (int64_t r = 0; r < count; r++) {
    uint64_t address = map.address + uint64_t((at[0] + begin) * element);
    bool inside = begin < end;
    int64_t rest = r;
    for (int d = 1; d < map.rank; d++) {
      int64_t c = at[size_t(d)] + rest % map.copied(d) * map.step[size_t(d)];
      rest /= map.copied(d);
      inside = inside && c >= 0 && c < map.size[size_t(d)];
      address += uint64_t(c * map.stride[size_t(d)]);
    }
    if (!inside) continue;
    int64_t bytes = (end - begin) * element;
    Place p = find_place(w, lane, Space::Global, address, bytes, 1, use);
    if (!p.bytes) return false;
    note_global(w, lane, p, bytes, use);
    box.rows[size_t(r)] = {p.bytes, begin * element, bytes};
  }
  return true;
}

// Calls f(shared bytes, offset in the row, bytes) for the chunks of a row.
template <typename F> void each_chunk(const Box &box, size_t r, uint8_t *shared, uint32_t at, F f) {
  for (int64_t k = 0; k < box.row_bytes; k += 16) {
    uint32_t place = swizzled_address(at + uint32_t(int64_t(r) * box.row_bytes + k), box.swizzle);
    f(shared + place, k);
  }
}
void load_box(const Box &box, uint8_t *shared, uint32_t at) {
  for (size_t r = 0; r < box.rows.size(); r++) {
    const BoxRow &row = box.rows[r];
    each_chunk(box, r, shared, at, [&](uint8_t *chunk, int64_t k) {
      int64_t begin = std::max<int64_t>(k, row.first),
              end = row.global ? std::min<int64_t>(k + 16, row.first + row.bytes) : 0;
      std::memset(chunk, 0, 16);
      if (begin < end) std::memcpy(chunk + (begin - k), row.global + (begin - row.first), size_t(end - begin));
    });
  }
}
std::vector<uint8_t> take_box(const Box &box, uint8_t *shared, uint32_t at) {
  std::vector<uint8_t> out(size_t(box.bytes()));
  for (size_t r = 0; r < box.rows.size(); r++)
    each_chunk(box, r, shared, at,
               [&](uint8_t *chunk, int64_t k) { std::memcpy(out.data() + int64_t(r) * box.row_bytes + k, chunk, 16); });
  return out;
}

std::optional<Type> reduction_type(DType t, AtomicOp op) {
  bool bitwise = op == AtomicOp::And || op == AtomicOp::Or || op == AtomicOp::Xor;
  if (bitwise) return dtype_bits(t) == 32 ? Type::B32 : dtype_bits(t) == 64 ? std::optional(Type::B64) : std::nullopt;
  if (t == DType::U32) return Type::U32;
  if (t == DType::I32) return Type::S32;
  if (t == DType::U64) return Type::U64;
  if (t == DType::I64) return Type::S64;
  if (t == DType::F16) return Type::F16;
  if (t == DType::BF16) return Type::BF16;
  if (t == DType::F32) return Type::F32;
  return std::nullopt;
}

// a shared address, b tensor map; list: mbarrier row, offsets of shared, map and mbarrier, then the coordinates; n
// rank; mode: 0 load, 1 narrow addresses (bits: shared, mbarrier), 2 op + 1 (0 = copy)
void tensor_copy(Warp &w, const Inst &i, uint32_t mask) {
  const uint32_t *list = w.block->grid.program.lists.data() + i.list;
  auto address = [&](uint32_t row, bool narrow, uint32_t offset, int lane) {
    return (narrow ? w.row<uint32_t>(row)[lane] : w.row<uint64_t>(row)[lane]) + uint64_t(int64_t(int32_t(offset)));
  };
  for (uint32_t m = mask; m; m &= m - 1) {
    int lane = first_lane(m);
    TensorMap map;
    uint64_t where = address(i.b, false, list[2], lane);
    if (!find_map(w, lane, where, map)) return;
    if (map.rank != i.n)
      return w.error(ErrorKind::AsyncMisuse, lane, where,
                     fmt::format("a {}d copy with a tensor map of rank {}", i.n, map.rank));
    std::array<int32_t, 5> at = {};
    for (int d = 0; d < i.n; d++) at[size_t(d)] = int32_t(w.row<uint32_t>(list[4 + d])[lane]);
    if (std::string fault = check_inner_coordinate(map, at[0]); !fault.empty())
      return w.error(ErrorKind::Misaligned, lane, where, fault);
    if (std::string fault = i.mode[0] ? "" : check_stored_box(map, at); !fault.empty())
      return w.error(ErrorKind::AsyncMisuse, lane, where, fault);
    Box box;
    if (!find_box(w, lane, map, at, i.mode[0] ? Use::Read : i.mode[2] ? Use::ReadWrite : Use::Write, box)) return;
    Block *in;
    uint32_t own;
    if (!find_shared(w, lane, address(i.a, i.mode[1] & 1, list[1], lane), box.span(), 128, in, own)) return;
    uint8_t *shared = in->shared.data();
    if (i.mode[0]) {
      Completion c;
      if (!find_completion(w, lane, Space::SharedCluster, address(list[0], i.mode[1] & 2, list[3], lane), c)) return;
      need_init_fence(w, lane, c);
      uint32_t stamp = ++c.mbarrier->issued;
      c.mbarrier->in_flight.insert(stamp);
      note_copy(w, lane, AccessKind::AsyncWrite, *in, own, box.span(), c.mbarrier->stream, stamp);
      issue_to_shared(w, lane, c, map.box_bytes(), [box, shared, own] { load_box(box, shared, own); });
      if (w.block->stopped) return;
      continue;
    }
    std::function<void(uint8_t *, const uint8_t *, int64_t)> put = [](uint8_t *d, const uint8_t *s, int64_t n) {
      std::memcpy(d, s, size_t(n));
    };
    if (i.mode[2]) {
      AtomicOp op = AtomicOp(i.mode[2] - 1);
      std::optional<Type> t = reduction_type(map.dtype, op);
      if (!t || !atomic_fits(op, *t))
        return w.error(ErrorKind::AsyncMisuse, lane, where,
                       fmt::format("the reduction does not exist for elements of type {}", dtype_name(map.dtype)));
      put = [op, type = *t](uint8_t *d, const uint8_t *s, int64_t n) { make_reduction(op, type, n)(d, s); };
    }
    uint32_t stream, stamp = next_bulk_stamp(w, lane, stream);
    note_copy(w, lane, AccessKind::AsyncRead, *in, own, box.span(), stream, stamp);
    auto taken = std::make_shared<std::vector<uint8_t>>();
    issue_from_shared(
        w, lane, stamp, [box, taken, shared, own] { *taken = take_box(box, shared, own); },
        [box, taken, put] {
          for (size_t r = 0; r < box.rows.size(); r++)
            if (box.rows[r].global)
              put(box.rows[r].global, taken->data() + int64_t(r) * box.row_bytes + box.rows[r].first,
                  box.rows[r].bytes);
        });
  }
}

int take_rank(Decoder &d) {
  std::string_view rank = d.take_any({"1d", "2d", "3d", "4d", "5d"});
  if (rank.empty()) d.fail("the dimension is missing");
  return rank.empty() ? 1 : rank[0] - '0';
}
// [map, {coordinates}]
Decoder::Address take_map(Decoder &d, const PtxOperand &o, int rank, std::vector<uint32_t> &coordinates) {
  Decoder::Address a = d.address(o, Space::Generic);
  if (o.parts.size() != 2 || o.parts[1].kind != PtxOperand::Kind::Vector || int(o.parts[1].parts.size()) != rank) {
    d.fail("{} coordinates are needed", rank);
    return a;
  }
  for (const PtxOperand &c : o.parts[1].parts) coordinates.push_back(d.source(c, Type::S32));
  return a;
}
} // namespace

void decode_tensor(Decoder &d, std::optional<AtomicOp> op) {
  int rank = take_rank(d);
  std::string_view first = d.take_first({"global", "shared::cta", "shared::cluster"});
  std::string_view second = d.take_first({"global", "shared::cta", "shared::cluster"});
  bool load = second == "global", complete_tx = d.take("mbarrier::complete_tx::bytes"), group = d.take("bulk_group");
  bool good = load ? !first.empty() && complete_tx && !group && !op
                   : first == "global" && second == "shared::cta" && group && !complete_tx;
  d.take("tile");
  bool policy = d.take("L2::cache_hint");
  if (!good) return d.unsupported();
  d.need_operands((load ? 3 : 2) + policy);
  std::vector<uint32_t> coordinates;
  Decoder::Address map = take_map(d, d.operand(load ? 1 : 0), rank, coordinates), shared, bar;
  shared = d.address(d.operand(load ? 0 : 1), load ? Space::SharedCluster : Space::Shared);
  if (load) bar = d.address(d.operand(2), Space::SharedCluster);
  if (policy) d.source(d.operand_count() - 1, Type::B64);
  auto word = [](int64_t offset) { return uint32_t(int32_t(offset)); };
  std::vector<uint32_t> list = {bar.row, word(shared.offset), word(map.offset), word(bar.offset)};
  list.insert(list.end(), coordinates.begin(), coordinates.end());
  d.out.a = shared.row, d.out.b = map.row, d.out.list = d.add_list(list), d.out.n = uint8_t(rank);
  d.out.mode[0] = load, d.out.mode[1] = uint8_t(int(!shared.wide) | int(!bar.wide) << 1),
  d.out.mode[2] = op ? uint8_t(*op) + 1 : 0;
  d.out.run = tensor_copy;
}

void decode_tensor_prefetch(Decoder &d) {
  int rank = take_rank(d);
  d.take("L2"), d.take("global"), d.take("tile");
  bool policy = d.take("L2::cache_hint");
  d.need_operands(1 + policy);
  std::vector<uint32_t> coordinates;
  take_map(d, d.operand(0), rank, coordinates);
  d.out.run = [](Warp &, const Inst &, uint32_t) {};
}

} // namespace tkc::emu
