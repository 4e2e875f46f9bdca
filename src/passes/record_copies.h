// Records in rings: loads of a loop that read whole fields of one record take consecutive bytes of it, which one copy
// brings as they are (ir/record.h).
#pragma once
#include "ir/ir.h"
#include "layout/smem_layout.h"

namespace tkc::passes {

// Consecutive bytes of the record that the loads of some fields name.
struct RecordCopy {
  const ir::Op *load = nullptr; // one of them: which record
  int64_t begin = 0, bytes = 0; // in the record, multiples of 16
  RegLayout read;               // of the words: deals them out to the threads that copy
  int64_t offset = 0;           // in a slot

  const ir::Value *record() const { return load->operand(0)->op->operand(0); } // the tensor of words
  size_t positions() const { return size_t(record()->type.rank()) - 1; }       // the load's operands 1 to this many
  ir::Type words() const { return ir::Type::tile(ir::kRecordWord, {bytes / 8}); }
  bool in_bounds() const;
};

// Where a load's field lies in one of the copies.
struct RecordPart {
  int64_t copy = -1; // index; -1: the load takes no whole field whose bytes lie together
  int64_t at = 0;    // bytes behind the copy's first
};

// For each of the loads, which are of one block and run ahead; `warps` copy. Fields that are not read and lie between
// two that are come along where they are small.
std::vector<RecordPart> plan_record_copies(const std::vector<const ir::Op *> &loads, int64_t warps,
                                           std::vector<RecordCopy> &out);
// How the field of such a load lies in a slot.
SmemLayout record_part_layout(const ir::Op &load);
// Wavefronts that a warp loses to bank conflicts where it reads such a load's field from a slot as `to`: other tiles
// lie there as suits their reader, fields of records as their type says. 0 of other loads.
int64_t record_conflicts(const ir::Op &load, const RegLayout &to);

} // namespace tkc::passes
