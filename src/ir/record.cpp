#include "ir/record.h"
#include "ir/type.h"
#include "support/check.h"
#include <algorithm>
#include <bit>

namespace tkc::ir {

namespace {
constexpr int64_t kChunk = 16, kBanks = 128; // bytes

int64_t rounded_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

bool powers_of_two(const std::vector<int64_t> &shape) {
  return std::all_of(shape.begin(), shape.end(), [](int64_t n) { return std::has_single_bit(uint64_t(n)); });
}

void lay_out_field(RecordField &f) {
  int64_t element = dtype_bytes(f.dtype), row = f.shape.back() * element, rows = 1;
  for (size_t d = 0; d + 1 < f.shape.size(); d++) rows *= f.shape[d];
  bool dense = powers_of_two(f.shape);
  if (dense && rows > 1 && row >= 2 * kChunk) f.swizzle = std::min(row, kBanks);
  f.pitch.assign(f.shape.size(), 1);
  int64_t pitch = dense ? f.shape.back() : rounded_up(row, kChunk) / element;
  for (size_t d = f.shape.size() - 1; d-- > 0; pitch *= f.shape[d]) f.pitch[d] = pitch;
  f.bytes = f.shape.size() == 1 ? row : pitch * element;
}
} // namespace

bool RecordField::dense() const { return powers_of_two(shape); }

const RecordField *Record::find(std::string_view field) const {
  auto it = std::find_if(fields.begin(), fields.end(), [&](const RecordField &f) { return f.name == field; });
  return it == fields.end() ? nullptr : &*it;
}

std::string Record::title() const {
  std::string out = name;
  for (size_t i = 0; i < args.size(); i++) out += (i ? ", " : "<") + args[i];
  return args.empty() ? out : out + ">";
}

std::string Record::str() const {
  std::string out = title() + " {";
  for (size_t i = 0; i < fields.size(); i++)
    out += fmt::format("{}{}: {}{}", i ? ", " : "", fields[i].name, dtype_name(fields[i].dtype),
                       shape_str(fields[i].shape));
  return out + "}";
}

Record lay_out_record(Record out) {
  out.bytes = 0;
  int64_t alignment = kRecordAlignment;
  for (RecordField &f : out.fields) {
    TKC_CHECK(!f.shape.empty(), "field `{}` of a record without dims", f.name);
    lay_out_field(f);
    int64_t align = f.swizzle ? kBanks : kRecordAlignment;
    f.offset = rounded_up(out.bytes, align);
    out.bytes = f.offset + f.bytes;
    alignment = std::max(alignment, align);
  }
  out.bytes = rounded_up(out.bytes, alignment);
  return out;
}

ByteSwizzle field_swizzle(DType t, const std::vector<int64_t> &shape, int64_t swizzle) {
  if (!swizzle) return {};
  int64_t row = std::max(shape.back() * dtype_bytes(t), kBanks);
  // Bits from 128 bytes, or from a longer row, on come down to the chunk's.
  return {std::countr_zero(uint64_t(row)) - std::countr_zero(uint64_t(kChunk)), (swizzle / kChunk - 1) * kChunk};
}

SmemLayout field_layout(DType t, const std::vector<int64_t> &shape, int64_t swizzle) {
  SmemLayout out = plain_smem(shape, dtype_bytes(t));
  ByteSwizzle s = field_swizzle(t, shape, swizzle);
  for (uint32_t &b : out.bases) b = uint32_t(s(b));
  return out;
}

} // namespace tkc::ir
