#include "passes/record_copies.h"
#include "passes/effects.h"
#include <algorithm>

namespace tkc::passes {

using ir::Op;
using ir::OpKind;
using ir::Value;

namespace {
constexpr int64_t kPiece = 16;    // bytes
constexpr int64_t kMostGap = 128; // bytes that nobody reads, rather than another copy

const Op *field_of(const Op &load) {
  const Op *field = load.operand(0)->op;
  return field && field->kind == OpKind::RecordField ? field : nullptr;
}

// One record, all of the field, and no gaps in it.
bool is_whole_field(const Op &load) {
  const Op *field = field_of(load);
  if (!field || load.attrs.has("@swizzle")) return false;
  const std::vector<int64_t> &shape = field->attrs.ints("shape"), &sizes = load.attrs.ints("sizes"),
                             &drop = load.attrs.ints("drop");
  size_t outer = sizes.size() - shape.size();
  ir::RecordField f;
  f.shape = shape;
  bool whole = f.dense();
  for (size_t d = 0; d < sizes.size() && whole; d++)
    whole = d < outer ? drop[d] != 0
                      : !drop[d] && sizes[d] == shape[d - outer] && constant_int(load.operand(d + 1)).value_or(-1) == 0;
  return whole;
}

int64_t begin_of(const Op &load) { return field_of(load)->attrs.i("offset"); }
int64_t end_of(const Op &load) {
  const ir::Type &t = load.result()->type;
  return (begin_of(load) + t.elements() * dtype_bytes(t.dtype) + kPiece - 1) / kPiece * kPiece;
}

bool same_record(const Op &a, const Op &b) {
  if (field_of(a)->operand(0) != field_of(b)->operand(0)) return false;
  size_t outer = size_t(field_of(a)->operand(0)->type.rank()) - 1;
  return std::equal(a.operands.begin() + 1, a.operands.begin() + 1 + int64_t(outer), b.operands.begin() + 1);
}
} // namespace

bool RecordCopy::in_bounds() const {
  if (!load->attrs.has("in_bounds")) return false;
  const std::vector<int64_t> &inside = load->attrs.ints("in_bounds");
  return std::all_of(inside.begin(), inside.begin() + int64_t(positions()), [](int64_t i) { return i != 0; });
}

std::vector<RecordPart> plan_record_copies(const std::vector<const Op *> &loads, int64_t warps,
                                           std::vector<RecordCopy> &out) {
  std::vector<RecordPart> parts(loads.size());
  std::vector<size_t> order;
  for (size_t i = 0; i < loads.size(); i++)
    if (is_whole_field(*loads[i])) order.push_back(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return begin_of(*loads[a]) < begin_of(*loads[b]); });
  for (size_t i : order) {
    const Op &load = *loads[i];
    size_t c = 0;
    while (c < out.size() &&
           !(same_record(*out[c].load, load) && begin_of(load) <= out[c].begin + out[c].bytes + kMostGap))
      c++;
    if (c == out.size()) out.push_back({&load, begin_of(load), 0, {}, 0});
    out[c].bytes = std::max(out[c].bytes, end_of(load) - out[c].begin);
    parts[i] = {int64_t(c), begin_of(load) - out[c].begin};
  }
  for (RecordCopy &c : out) c.read = blocked(c.words().shape, std::vector<int>{0}, kPiece / 8, warps);
  return parts;
}

int64_t record_conflicts(const Op &load, const RegLayout &to) {
  if (!is_whole_field(load)) return 0;
  SmemCost c = smem_load_cost(to, record_part_layout(load), {});
  return c.wavefronts - c.ideal;
}

SmemLayout record_part_layout(const Op &load) {
  const Op &field = *field_of(load);
  return ir::field_layout(field.attrs.dtype("dtype"), field.attrs.ints("shape"), field.attrs.i("swizzle"));
}

} // namespace tkc::passes
