#include "passes/schedule_loops.h"
#include "ir/op_def.h"
#include "passes/ahead_of_time.h"
#include "passes/effects.h"
#include "passes/layout_choice.h"
#include "passes/loads_ahead.h"
#include "passes/modulo_schedule.h"
#include "passes/passes.h"
#include "passes/ring_slot.h"
#include "passes/shared_buffers.h"
#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace tkc::passes {

using ir::Block;
using ir::Op;
using ir::OpKind;
using ir::Value;

namespace {

// Bytes on their way to an SM that keep its share of the memory busy: 4.3 TB/s times a latency of about 2 us under load
// over 132 SMs, and half as much again since slots empty in steps.
constexpr int64_t kInFlight = 96 * 1024;
constexpr int64_t kRegistersOfSM = 65536, kTypicalRegisters = 168; // of a thread: what is not known yet here

// Registers are given per thread of a block, so a producer warp costs as many as a compute warp: up to this many
// compute warps it leaves them enough, and where there is but one, it would take the place of a second block's.
constexpr int64_t kLeastRoleWarps = 2, kMostRoleWarps = 4;

class Scheduler {
public:
  Scheduler(ir::Function &f, const ir::Target &target, const ir::Part &part, const PassOptions &options)
      : f_(f), target_(target), part_(part), most_stages_(options.most_stages), unproven_(options.unproven), writes_(f),
        uses_(f), order_(f), buffers_(shared_buffers(f, order_)) {
    // Products of a block may be brought together yet (pair_products): their scratch is then in use at the same time.
    std::map<const Block *, std::pair<int64_t, int64_t>> spans;
    for (const SharedBuffer &b : buffers_)
      if (b.op->kind == OpKind::Mma) {
        auto [it, fresh] = spans.try_emplace(b.op->block, b.begin, b.end);
        it->second = {std::min(it->second.first, b.begin), std::max(it->second.second, b.end)};
      }
    for (SharedBuffer &b : buffers_)
      if (b.op->kind == OpKind::Mma) std::tie(b.begin, b.end) = spans.at(b.op->block);
  }

  FunctionSchedule run() {
    block(f_.body);
    if (wants_roles())
      give_roles();
    else
      run_on_if_equal();
    for (LoopSchedule &s : out_.loops) choose_transport(s);
    give_stages();
    for (auto *list : {&out_.loops, &out_.synchronous})
      for (LoopSchedule &s : *list) describe(s);
    return std::move(out_);
  }

private:
  void block(Block *b) {
    for (Op *op : b->ops) {
      if (op->kind == OpKind::InlinePtx) continue;
      for (Block *r : op->regions) block(r);
      if (op->kind == OpKind::For) loop(op);
    }
  }

  // The scratch store that is the load's only user; null: there is none.
  Op *staging_store(Op *load) {
    const std::vector<ir::Use> &uses = uses_.of(load->result());
    bool only = uses.size() == 1 && uses[0].op->kind == OpKind::ScratchStore && uses[0].op->block == load->block;
    return only ? uses[0].op : nullptr;
  }

  // What `@pipeline` of a loop asks for; empty or 0: nothing.
  static std::string wish(const Op &loop, const char *what) {
    std::string key = fmt::format("@pipeline.{}", what);
    return loop.attrs.has(key) ? loop.attrs.s(key) : "";
  }
  static int64_t wished_stages(const Op &loop) { return loop.attrs.i_or("@pipeline.stages", 0); }
  static bool wishes(const Op &loop) {
    return wished_stages(loop) || !wish(loop, "via").empty() || !wish(loop, "producer").empty();
  }
  void problem(const Op &loop, const char *of, std::string text) {
    if (!out_.problem.empty()) return;
    out_.problem = std::move(text);
    out_.problem_at = &loop;
    out_.problem_of = of;
  }

  void loop(Op *op) {
    LoopSchedule s;
    s.loop = op;
    AheadOfTime ahead(*op, writes_);
    Block *body = op->regions[0];
    bool loads = false;
    for (Op *load : body->ops) {
      if (load->kind != OpKind::Load || load->result()->type.is_scalar()) continue;
      loads = true;
      std::string why = ahead.reason(*load);
      Op *store = staging_store(load);
      // Without one its users have it as it was read.
      const ir::Type &t = load->result()->type;
      if (why.empty() && !store && access_vector(*load, t.dtype, 16) * dtype_bytes(t.dtype) < 4)
        why = "its rows cannot be copied 4 bytes at a time";
      if (why.empty())
        s.fields.push_back({load, store, *load->result()->layout, {}, {}});
      else
        s.left.push_back({tensor_name(*load), why, {}});
    }
    if (s.fields.empty())
      s.synchronous = "none of its loads can run ahead";
    else if (!has_small_step(*op))
      s.synchronous = "its step is not a constant below 2^24";
    if (!s.synchronous.empty() && wishes(*op))
      problem(*op, "", s.fields.empty() ? "no load of it can run ahead" + left(s) : s.synchronous);
    if (s.synchronous.empty() && op->attrs.has("@no_pipeline")) s.synchronous = "@no_pipeline";
    if (s.synchronous.empty() && most_stages_ < 2 && !wishes(*op))
      s.synchronous = unproven_.empty() ? "loops without slots were asked for"
                                        : "no ring for it could be proven safe: " + unproven_;
    if (!s.synchronous.empty()) {
      if (loads) out_.synchronous.push_back(std::move(s));
      return;
    }
    std::vector<const Op *> all;
    for (const RingField &field : s.fields) all.push_back(field.load);
    std::vector<RecordPart> parts = plan_record_copies(all, f_.warps, s.records);
    for (size_t i = 0; i < parts.size(); i++) {
      s.fields[i].part = parts[i];
      if (parts[i].copy < 0)
        give_layout(*op, s.fields[i]);
      else
        s.fields[i].smem = record_part_layout(*all[i]);
    }
    out_.loops.push_back(std::move(s));
  }
  // How its tile lies in a slot, whoever copies.
  void give_layout(const Op &loop, RingField &field) {
    const ir::Type &t = field.load->result()->type;
    std::vector<SmemUse> uses;
    if (field.store)
      for (const ir::Use &u : uses_.of(field.store->result())) uses.push_back({false, *u.op->result()->layout, 1});
    else
      uses.push_back({false, *field.load->result()->layout, 1});
    LayoutFeatures features = ir::layout_features(target_);
    std::optional<int64_t> swizzle;
    if (field.load->attrs.has("@swizzle")) swizzle = field.load->attrs.i("@swizzle");
    field.smem = choose_smem(t.shape, dtype_bytes(t.dtype), uses, SmemForm::Swizzle, features).layout;
    // Of the swizzles of TMA those that leave rows where they are.
    if (swizzle == 0) field.smem = plain_smem(t.shape, dtype_bytes(t.dtype));
    if (auto l = swizzle.value_or(0) ? tma_swizzle(t.shape, dtype_bytes(t.dtype), int(*swizzle)) : std::nullopt;
        l && t.shape.back() * dtype_bytes(t.dtype) <= *swizzle)
      field.smem = *l;
    if (target_.has(ir::kTma))
      field.tensor = plan_tensor_copy(f_, *field.load, uses, features, wish(loop, "via") == "bulk", swizzle);
  }
  static std::string left(const LoopSchedule &s) {
    std::string text;
    for (const SynchronousLoad &l : s.left)
      text += fmt::format("{}`{}`: {}", text.empty() ? ": " : ", ", l.tensor, l.reason);
    return text;
  }

  // Why tensor copies cannot bring a loop's items; empty: they can.
  std::string tma_obstacle(const LoopSchedule &s) const {
    if (!target_.has(ir::kTma)) return fmt::format("{} has no bulk and tensor copies", target_.name);
    for (const RecordCopy &r : s.records)
      if (!r.in_bounds())
        return fmt::format("`{}`: its place is not known to lie within the tensor", tensor_name(*r.load));
    for (const RingField &field : s.fields)
      if (!field.tensor.problem.empty()) return fmt::format("`{}`: {}", tensor_name(*field.load), field.tensor.problem);
    // Mbarriers count phases from the kernel's start on.
    if (!out_.producer_warps && s.loop->block != f_.body && !s.over_tiles)
      return "the loop is inside another one or in a branch";
    if (s.tx_bytes() >= 1 << 20) return "a barrier counts fewer bytes";
    return "";
  }

  // Why cp.async cannot copy some of them: it moves 4 bytes at least. What is staged for a product goes through the
  // ring all the same, by loads and stores of the threads that would copy.
  std::string plain_copies(const LoopSchedule &s) const {
    for (const RingField &field : s.fields) {
      if (field.part.copy >= 0) continue; // pieces of 16 bytes
      DType t = field.load->result()->type.dtype;
      if (int64_t bytes = access_vector(*field.load, t, 16) * dtype_bytes(t); bytes < 4)
        return fmt::format(
            "`{}`: only {} B of its rows are known to lie together and aligned, and cp.async copies 4 at "
            "least",
            tensor_name(*field.load), bytes);
    }
    return "";
  }

  void choose_transport(LoopSchedule &s) {
    std::string via = wish(*s.loop, "via");
    s.not_tma = tma_obstacle(s);
    bool tma = via == "tma" || via == "bulk";
    if (tma && !s.not_tma.empty()) problem(*s.loop, "via", fmt::format("via = {} is not possible: {}", via, s.not_tma));
    // A product reads what is staged for it. Other tiles come as they are read, and each thread waits for few bytes.
    bool product = std::any_of(s.fields.begin(), s.fields.end(), [](const RingField &f) { return f.store; });
    // Small blocks have a producer warp anyhow, whose copies by cp.async need no proxy fence (measured on an H200: KDA
    // chain of two warps 161 us, 171 by tma; gemm of eight 413 TFLOP/s by tma, 383 by cp.async).
    if (via.empty()) tma = s.not_tma.empty() && product && f_.warps > kMostRoleWarps;
    if (!target_.has(ir::kTma) || !product) s.not_tma.clear();
    if (tma) s.transport = "tma";
    if (!tma) s.plain = plain_copies(s);
    if ((via == "cp_async" || via == "mbarrier") && !s.plain.empty() && !s.loop->attrs.has("@plain"))
      problem(*s.loop, "via", fmt::format("via = {} is not possible: {}", via, s.plain));
    RingSlot slot(tma);
    for (RecordCopy &r : s.records) r.offset = slot.add_bytes(r.bytes);
    for (RingField &field : s.fields) {
      if (field.part.copy >= 0) {
        field.offset = s.records[size_t(field.part.copy)].offset + field.part.at;
        continue;
      }
      if (tma) field.smem = field.tensor.smem;
      field.offset = slot.add(field.smem, field.load->result()->type);
    }
    s.stage_bytes = slot.bytes();
    alignment_ = std::max(alignment_, slot.alignment());
  }

  // Slots for every ring: first two for each, then one more in turn, up to kMostStages, while they fit and the SM has
  // less than kInFlight bytes on their way: more would only keep other blocks out. Loops that find no room for two
  // slots stay synchronous. Rings of loops that follow each other share their bytes where no producer role runs ahead.
  void give_stages() {
    std::vector<LoopSchedule> fitting;
    for (LoopSchedule &s : out_.loops) {
      s.stages = std::max<int64_t>(2, wished_stages(*s.loop));
      fitting.push_back(std::move(s));
      int64_t all = bytes(fitting);
      if (all <= target_.shared_per_block) continue;
      const LoopSchedule &last = fitting.back();
      std::string text = fmt::format("{} stages of {} bytes make {} bytes of shared memory, {} are there on {}",
                                     last.stages, last.stage_bytes, all, target_.shared_per_block, target_.name);
      if (wishes(*last.loop)) problem(*last.loop, "stages", text);
      out_.synchronous.push_back(last);
      out_.synchronous.back().synchronous = text;
      fitting.pop_back();
    }
    for (bool more = true; more;) {
      more = false;
      for (LoopSchedule &s : fitting) {
        if (s.stages >= most_stages(*s.loop) || wished_stages(*s.loop) ||
            (s.stages - 1) * s.stage_bytes * blocks(bytes(fitting)) >= kInFlight)
          continue;
        if (s.stages >= most_stages_) {
          s.fewer = unproven_.empty() ? fmt::format("at most {} were asked for", most_stages_)
                                      : "more could not be proven safe: " + unproven_;
          continue;
        }
        s.stages++;
        if (bytes(fitting) <= target_.shared_per_block)
          more = true;
        else
          s.stages--;
      }
    }
    out_.loops = std::move(fitting);
    if (out_.loops.empty()) out_.producer_warps = 0;
  }
  // No more than iterations, if no loop around it goes on filling.
  static int64_t most_stages(const Op &loop) {
    for (const Op *op = loop.block->parent; op; op = op->block ? op->block->parent : nullptr)
      if (op->kind == OpKind::For || op->kind == OpKind::While) return kMostStages;
    return std::min(kMostStages, std::max<int64_t>(2, trip_estimate(loop)));
  }
  // That run on an SM at a time, if each uses so much shared memory.
  int64_t blocks(int64_t shared) const {
    int64_t threads = (f_.warps + out_.producer_warps) * 32;
    return std::max<int64_t>(
        1, std::min(blocks_by_shared(shared, target_), kRegistersOfSM / (threads * kTypicalRegisters)));
  }
  // Of everything in shared memory, if these loops get their rings. A producer role fills a ring from the kernel's
  // start.
  int64_t bytes(const std::vector<LoopSchedule> &loops) const {
    std::set<const Op *> replaced;
    for (const LoopSchedule &s : loops)
      for (const RingField &field : s.fields) replaced.insert(field.store);
    std::vector<SharedBuffer> all;
    for (const SharedBuffer &b : buffers_)
      if (!replaced.count(b.op)) all.push_back(b);
    for (const LoopSchedule &s : loops) {
      auto [begin, end] = order_.of(s.over_tiles ? s.loop->block->parent : s.loop);
      if (out_.producer_warps) begin = 0, end = order_.end();
      all.push_back({s.loop, s.slot_bytes(), alignment_, begin, end, 0,
                     s.by_tma() ? SharedBuffer::Kind::TmaRing : SharedBuffer::Kind::Ring});
      if (s.mbarriers()) all.push_back({s.loop, 16 * s.stages, 16, 0, order_.end(), 0, SharedBuffer::Kind::Barriers});
    }
    return place_buffers(all, true);
  }

  // A producer role takes the issue of copies off the compute warps and lets each of them wait for data alone instead
  // of for all threads. It needs loops that it can run by itself.
  bool wants_roles() {
    const Op *with = nullptr, *without = nullptr;
    for (const LoopSchedule &s : out_.loops) {
      std::string producer = wish(*s.loop, "producer"), via = wish(*s.loop, "via");
      if (producer == "warp" || via == "mbarrier") with = s.loop;
      if (producer == "none" || via == "cp_async") without = s.loop;
    }
    std::string obstacle = roles_obstacle();
    if (with && without)
      problem(*without, "producer", "one loop of the kernel asks for a producer warp, another one for none");
    if (with && !obstacle.empty()) problem(*with, "producer", "a producer warp is not possible: " + obstacle);
    return obstacle.empty() && !without && !out_.loops.empty() &&
           (with || (f_.warps >= kLeastRoleWarps && f_.warps <= kMostRoleWarps));
  }
  std::string roles_obstacle() {
    for (const LoopSchedule &s : out_.loops) {
      if (s.loop->block != f_.body && !over_tiles(*s.loop)) return "a loop is inside another one or in a branch";
      AheadOfTime ahead(*s.loop, writes_);
      std::vector<const Value *> needed(s.loop->operands.begin(), s.loop->operands.begin() + 3);
      for (const RingField &field : s.fields)
        needed.insert(needed.end(), field.load->operands.begin(), field.load->operands.end());
      for (const Value *v : needed)
        if (const Value *o = ahead.obstacle_for_role(v))
          return fmt::format("it would have to compute `{}`", o->name.empty() ? "a value of the kernel" : o->name);
    }
    bool in_tile = std::any_of(out_.loops.begin(), out_.loops.end(), [](const auto &s) { return over_tiles(*s.loop); });
    if (in_tile && !only_ring_of_tile()) return "several loops of a tile have rings";
    if (f_.warps >= 32) return "the block has 32 warps";
    bool returns = false;
    ir::walk(f_.body, [&](const Op *op) { returns |= op->kind == OpKind::Return && op != f_.body->terminator(); });
    return returns ? "the kernel returns early" : "";
  }

  // The only loop with a ring inside of a loop over tiles, if it stands directly in it; else null. Several rings of a
  // tile cannot be proven: one with nothing to do in a tile would let its role run any distance ahead of the others.
  LoopSchedule *only_ring_of_tile() {
    LoopSchedule *only = nullptr;
    for (LoopSchedule &s : out_.loops) {
      if (is_tile_loop(*s.loop)) continue;
      if (only || !over_tiles(*s.loop)) return nullptr;
      only = &s;
    }
    return only;
  }
  // Its items then follow each other from tile to tile. What the loop over tiles loads itself stays where it is.
  void run_on_over_tiles(LoopSchedule &s) {
    s.over_tiles = true;
    LoopSchedule kept = std::move(s);
    for (LoopSchedule &other : out_.loops)
      if (&other != &s) {
        other.synchronous = "the ring of a loop inside runs on over tiles";
        out_.synchronous.push_back(std::move(other));
      }
    out_.loops.clear();
    out_.loops.push_back(std::move(kept));
  }
  // Without roles the loop must run equally often for every tile.
  void run_on_if_equal() {
    LoopSchedule *s = only_ring_of_tile();
    if (!s) return;
    const Block *tile = s->loop->block;
    for (size_t i = 0; i < 3; i++)
      if (const Value *v = s->loop->operand(i); v->op ? within(v->op, tile) : v->block == tile) return;
    AheadOfTime ahead(*s->loop, writes_);
    for (const RingField &field : s->fields)
      for (const Value *v : field.load->operands)
        if (ahead.obstacle_for_tiles(v)) return;
    run_on_over_tiles(*s);
  }

  void give_roles() {
    out_.producer_warps = 1;
    if (LoopSchedule *s = only_ring_of_tile()) run_on_over_tiles(*s);
    for (LoopSchedule &s : out_.loops) {
      s.transport = "mbarrier";
      s.asks_ahead = tkc::passes::asks_ahead(*s.loop, f_.warps);
      for (RingField &field : s.fields) {
        const ir::Type &t = field.load->result()->type;
        std::vector<int> order;
        for (int d = int(t.rank()) - 1; d >= 0; d--) order.push_back(d);
        field.read = blocked(t.shape, order, access_vector(*field.load, t.dtype, 16), out_.producer_warps);
      }
      for (RecordCopy &r : s.records) r.read = blocked(r.words().shape, std::vector<int>{0}, 2, out_.producer_warps);
    }
  }

  // The modulo schedule of its body with the copies of its ring; and by how much it is unrolled, which only a forced
  // schedule says: the code of an iteration then stands as often as the ring has slots and once more for what is left,
  // which costs as much more time to compile.
  void describe(LoopSchedule &s) {
    int64_t forced = s.loop->attrs.i_or("@unroll", 0);
    if (forced > 1 && (s.over_tiles || (s.synchronous.empty() && forced != s.stages)))
      problem(*s.loop, "unroll",
              s.over_tiles ? "items that run on over tiles have no slots of their own"
                           : fmt::format("a loop is unrolled by its {} slots or not at all", s.stages));
    if (forced) s.unroll = forced;
    if (!has_modulo_schedule(*s.loop)) return;
    OpWork work(target_, part_, f_.warps);
    if (s.synchronous.empty())
      for (const RingField &field : s.fields) work.copied(field.load);
    s.modulo = modulo_schedule(*s.loop, work).to_string();
  }

  ir::Function &f_;
  const ir::Target &target_;
  const ir::Part &part_;
  int64_t most_stages_;
  std::string unproven_;
  Writes writes_;
  ir::Uses uses_;
  ProgramOrder order_;
  std::vector<SharedBuffer> buffers_; // of the synchronous kernel
  int64_t alignment_ = 128;           // of slots, at least
  FunctionSchedule out_;
};

} // namespace

LoopPlan LoopSchedule::plan(LoopPlan place, bool producer) const {
  LoopPlan out = std::move(place);
  out.left = left;
  out.modulo = modulo;
  if (!synchronous.empty()) {
    out.synchronous.value = synchronous;
    return out;
  }
  out.stages.value = stages;
  out.transport.value = transport;
  out.producer.value = producer ? "warp" : "none";
  out.stage_bytes.value = stage_bytes;
  for (const RingField &f : fields) {
    const ir::Type &t = f.load->result()->type;
    std::optional<int> mode = tma_mode(f.smem);
    bool rows = f.smem.bases == plain_smem(f.smem.shape, f.smem.elem_bytes).bases;
    std::string layout = f.part.copy >= 0   ? "record"
                         : rows             ? "rows"
                         : mode.value_or(0) ? fmt::format("swizzle {}", *mode)
                                            : f.smem.to_string();
    out.fields.push_back({tensor_name(*f.load), t.dtype, t.shape, f.offset, layout, {}});
  }
  for (const RecordCopy &r : records)
    out.records.push_back(fmt::format("{}: {} B at {} by {}", root_name(*r.load), r.bytes, r.offset,
                                      by_tma() ? "one copy" : "pieces of 16 B"));
  if (!by_tma()) out.not_tma = not_tma;
  out.plain = plain;
  out.fewer = fewer;
  if (over_tiles) out.over_tiles.value = true;
  if (asks_ahead) out.asks_ahead.value = true;
  if (unroll > 1) out.unroll.value = unroll;
  return out;
}

int64_t LoopSchedule::tx_bytes() const {
  int64_t sum = 0;
  for (const RingField &f : fields) sum += f.part.copy < 0 ? f.tensor.bytes : 0;
  for (const RecordCopy &r : records) sum += r.bytes;
  return sum;
}

int64_t LoopSchedule::ring_field(const RingField &f) const {
  bool alone = f.part.copy < 0;
  int64_t n = 0;
  for (const RingField &g : fields) {
    if (&g == &f && alone) break;
    n += g.part.copy < 0;
  }
  return alone ? n : n + f.part.copy;
}

FunctionSchedule schedule_loops(ir::Function &f, const ir::Target &target, const ir::Part &part,
                                const PassOptions &options) {
  return Scheduler(f, target, part, options).run();
}

} // namespace tkc::passes
