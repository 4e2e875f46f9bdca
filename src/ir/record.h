// Records: what one element of a `tensor<Rec<..>>` holds, as the type alone fixes it, so that the kernel that writes a
// record and the one that reads it agree. Its image in global memory is also what lies in a slot of a ring: one copy of
// consecutive bytes fills the slot.
//
// In the IR a tensor of records is a tensor of i64 words with one more dim, the words of a record; `record_field` gives
// the tensor of one field.
//
// The image: fields in the order of the declaration, each aligned to 16 bytes. A field whose extents are powers of two
// lies row by row without gaps; with two or more rows of at least 32 bytes its chunks of 16 bytes are permuted
// (ByteSwizzle), so that neither ldmatrix nor ldmatrix.trans meets bank conflicts, and the field is aligned to 128. Any
// other field lies row by row with rows that begin at multiples of 16 bytes. The size is a multiple of the alignment.
#pragma once
#include "layout/smem_layout.h"
#include "support/dtype.h"
#include <cstdint>
#include <string>
#include <vector>

namespace tkc::ir {

inline constexpr DType kRecordWord = DType::I64;
inline constexpr int64_t kRecordAlignment = 16; // of records in memory, bytes

// Where a byte of a field lies: its chunk of 16 bytes is XORed with bits of its row, by `mask` of the offset that is
// shifted right. The rows of one bank conflict group (8 rows, or as many as span 128 bytes each) have distinct chunks.
struct ByteSwizzle {
  int64_t shift = 0, mask = 0; // no bit in the mask: rows as they are
  int64_t operator()(int64_t offset) const { return offset ^ (offset >> shift & mask); }
  bool operator==(const ByteSwizzle &) const = default;
};

struct RecordField {
  std::string name;
  DType dtype = DType::F32;
  std::vector<int64_t> shape; // rank 1 to 4
  int64_t offset = 0, bytes = 0;
  std::vector<int64_t> pitch; // elements from a position to the next, per dim; the last is 1
  int64_t swizzle = 0;        // bytes of a row that are permuted: 0, 32, 64, 128
  // Without gaps: how its bytes lie is a layout of shared memory too.
  bool dense() const;
};

struct Record {
  std::string name;              // Rec
  std::vector<std::string> args; // of its compile-time parameters, as text: 32, 128
  std::vector<RecordField> fields;
  int64_t bytes = 0;
  const RecordField *find(std::string_view field) const; // null: none of that name
  int64_t words() const { return bytes / 8; }
  std::string title() const; // Rec<32, 128>
  bool operator==(const Record &other) const { return str() == other.str(); }
  std::string str() const; // Rec<32, 128> {kp: bf16[32, 128], eg: f32[128]}
};

// With offsets, pitches, swizzles and size, from dtypes and shapes of the fields.
Record lay_out_record(Record record);

ByteSwizzle field_swizzle(DType t, const std::vector<int64_t> &shape, int64_t swizzle);
// Of a dense field.
SmemLayout field_layout(DType t, const std::vector<int64_t> &shape, int64_t swizzle);

} // namespace tkc::ir
