#include "driver/estimate.h"
#include "ir/op_def.h"
#include "ir/residency.h"
#include "passes/constant_eval.h"
#include "passes/effects.h"
#include "runtime/occupancy.h"
#include <algorithm>
#include <cmath>
#include <queue>

namespace tkc::driver {

using ir::Block;
using ir::Op;
using ir::OpKind;
using ir::Value;
using passes::Constant;

namespace {

constexpr double kBytesPerCycle = 64; // between an SM and L2, as the cost model has it (layout_cost.cpp)

bool loads_tile(const Op *op) { return op->kind == OpKind::Load && !op->result()->type.is_scalar(); }

// ---- bodies

// The longest chain of loads of a block of ops, each of which needs the one before for its place.
int64_t load_depth(const Block *body, const std::function<bool(const Op *)> &waits) {
  std::map<const Value *, int64_t> depth;
  int64_t longest = 0;
  for (const Op *op : body->ops) {
    int64_t d = 0;
    for (const Value *v : op->operands)
      if (auto it = depth.find(v); it != depth.end()) d = std::max(d, it->second);
    if (op->kind == OpKind::Load && waits(op)) d++;
    longest = std::max(longest, d);
    for (const Value *v : op->results) depth[v] = d;
  }
  return longest;
}

// Loads that copies bring to a ring of the source are for the readers to wait for.
bool is_pushed(const ir::Uses &uses, const Op *load) {
  const auto &list = uses.of(load->result());
  return !list.empty() &&
         std::all_of(list.begin(), list.end(), [](const ir::Use &u) { return u.op->kind == OpKind::RingPush; });
}

bool ahead(const passes::LoopPlan &l, const Op &load) {
  return std::any_of(l.ahead.begin(), l.ahead.end(),
                     [&](const auto &a) { return a.tensor == passes::tensor_name(load); });
}

std::string role_name(const ir::Function &f, const Block *b) {
  int64_t role = ir::role_of(b);
  return role < 0 ? "" : ir::roles_of(f)->attrs.get<std::vector<std::string>>("names")[size_t(role)];
}

// ---- numbers of a block of the grid

// Values of integer scalars under the sizes of a launch; a loop's counter stands in the middle of its range.
class Scalars {
public:
  Scalars(const ir::Function &f, const LaunchData &data, const std::vector<int64_t> &grid)
      : f_(f), data_(data), grid_(grid) {}

  // The block with these coordinates.
  void at(std::vector<int64_t> ids) {
    ids_ = std::move(ids);
    known_.clear();
  }
  bool depends_on_block() const { return asked_; }

  std::optional<Constant> value(const Value *v) {
    auto it = known_.find(v);
    if (it == known_.end()) it = known_.emplace(v, find(v)).first;
    return it->second;
  }
  std::optional<double> trips(const Op &loop) {
    auto lo = value(loop.operand(0)), hi = value(loop.operand(1)), step = value(loop.operand(2));
    if (!lo || !hi || !step || step->i <= 0) return std::nullopt;
    return hi->i > lo->i ? double((hi->i - lo->i + step->i - 1) / step->i) : 0.0;
  }

private:
  std::optional<Constant> argument(const Value *v) {
    const Op *around = v->block->parent;
    if (around && around->kind == OpKind::For && v->index == 0) {
      auto n = trips(*around);
      auto lo = value(around->operand(0)), step = value(around->operand(2));
      if (!n) return std::nullopt;
      return Constant{v->type.dtype, 0, lo->i + int64_t(*n / 2) * step->i};
    }
    if (around) return std::nullopt;
    for (const std::string &name : f_.sizes)
      if (f_.size_value(name) == v)
        if (auto it = data_.sizes.find(name); it != data_.sizes.end()) return Constant{v->type.dtype, 0, it->second};
    for (const ir::Param &p : f_.params)
      if (!p.type.is_tensor() && f_.param_value(p.name) == v)
        if (auto it = data_.scalars.find(p.name); it != data_.scalars.end())
          return Constant{v->type.dtype, it->second, is_float(v->type.dtype) ? 0 : int64_t(it->second)};
    return std::nullopt;
  }

  std::optional<int64_t> extent(const Value *tensor, size_t dim) {
    if (tensor->type.shape[dim] != ir::kDynamic) return tensor->type.shape[dim];
    if (tensor->is_arg()) {
      for (size_t i = 0; i < f_.params.size(); i++)
        if (f_.param_value(f_.params[i].name) == tensor && dim < data_.tensors[i].shape.size())
          return data_.tensors[i].shape[dim];
      return std::nullopt;
    }
    if (tensor->op->kind == OpKind::RecordField) return extent(tensor->op->operand(0), dim); // else it is a constant
    if (tensor->op->kind != OpKind::Subview) return std::nullopt;
    const auto &ranges = tensor->op->attrs.ints("ranges");
    size_t operand = 1, kept = 0;
    for (size_t d = 0; d < ranges.size(); d++) {
      if (ranges[d] != 2 && kept++ == dim) {
        auto whole = extent(tensor->op->operand(0), d);
        if (ranges[d] == 0 || !whole) return whole;
        auto lo = value(tensor->op->operand(operand)), hi = value(tensor->op->operand(operand + 1));
        if (!lo || !hi) return std::nullopt;
        int64_t from = std::clamp<int64_t>(lo->i, 0, *whole);
        return std::clamp(hi->i, from, *whole) - from;
      }
      operand += ranges[d] == 0 ? 0 : ranges[d] == 1 ? 2 : 1;
    }
    return std::nullopt;
  }

  std::optional<Constant> find(const Value *v) {
    if (v->is_arg()) return argument(v);
    const Op &op = *v->op;
    switch (op.kind) {
    case OpKind::Constant: {
      DType t = op.attrs.dtype("dtype");
      if (is_float(t)) return Constant{t, op.attrs.get<double>("value"), 0};
      return Constant{t, 0, op.attrs.i("value")};
    }
    // The blocks of a persistent grid work on the tiles as one block for each would: as many at a time.
    case OpKind::BlockId: {
      int64_t number = 0;
      for (size_t d = grid_.size(); d-- > 0;) number = number * grid_[d] + ids_[d];
      return Constant{DType::U32, 0, number};
    }
    case OpKind::NumBlocks: {
      int64_t blocks = 1;
      for (int64_t n : grid_) blocks *= n;
      return Constant{DType::U32, 0, blocks};
    }
    case OpKind::TileCoordinate:
    case OpKind::ProgramId: asked_ = true; return Constant{DType::I32, 0, ids_[size_t(op.attrs.i("axis"))]};
    case OpKind::NumPrograms: return Constant{DType::I32, 0, grid_[size_t(op.attrs.i("axis"))]};
    case OpKind::Dim:
      if (auto n = extent(op.operand(0), size_t(op.attrs.i("axis")))) return Constant{DType::I32, 0, *n};
      return std::nullopt;
    default: break;
    }
    if (!v->type.is_scalar() || !passes::is_pure(op) || op.results.size() != 1) return std::nullopt;
    std::vector<Constant> operands;
    for (const Value *x : op.operands) {
      auto c = value(x);
      if (!c) return std::nullopt;
      operands.push_back(*c);
    }
    return passes::evaluate(op, operands);
  }

  const ir::Function &f_;
  const LaunchData &data_;
  const std::vector<int64_t> &grid_;
  std::vector<int64_t> ids_;
  std::map<const Value *, std::optional<Constant>> known_;
  bool asked_ = false;
};

// How often a block of the grid executes each block of ops.
class Executions {
public:
  explicit Executions(Scalars &scalars) : scalars_(scalars) {}
  std::map<const Block *, double> of_block(const ir::Function &f) {
    visit(f.body, 1);
    return std::move(out_);
  }

private:
  void visit(const Block *block, double times) {
    out_[block] = times;
    for (const Op *op : block->ops) switch (op->kind) {
      case OpKind::For:
        visit(op->regions[0], times * scalars_.trips(*op).value_or(double(passes::trip_estimate(*op))));
        break;
      case OpKind::If: {
        auto c = scalars_.value(op->operand(0));
        visit(op->regions[0], times * (c ? double(c->i != 0) : 0.5));
        if (op->regions.size() > 1) visit(op->regions[1], times * (c ? double(c->i == 0) : 0.5));
        break;
      }
      case OpKind::While: // as the layout search has it
        for (const Block *r : op->regions) visit(r, times * 16);
        break;
      default:
        for (const Block *r : op->regions) visit(r, times);
      }
  }
  Scalars &scalars_;
  std::map<const Block *, double> out_;
};

// Bytes of tiles that a block reads from and writes to each tensor.
struct Traffic {
  std::map<const Value *, double> read, written;
  void add(const ir::Function &f, const std::map<const Block *, double> &times) {
    ir::walk(f.body, [&](const Op *op) {
      bool load = op->kind == OpKind::Load, store = op->kind == OpKind::Store;
      bool atomic = op->kind >= OpKind::AtomicAdd && op->kind <= OpKind::AtomicCas;
      auto it = times.find(op->block);
      if (!(load || store || atomic) || it == times.end()) return;
      size_t at = op->attrs.ints("sizes").size() + 1;
      const ir::Type &t = (load ? op->result() : op->operand(at))->type;
      double bytes = double(t.elements() * dtype_bytes(t.dtype)) * it->second;
      const Value *tensor = ir::root_tensor(op->operand(0));
      if (load || atomic) read[tensor] += bytes;
      if (store || atomic) written[tensor] += bytes;
    });
  }
};

// What a block of the grid takes of its SM, in cycles.
struct BlockCost {
  double alone = 0;
  double issue = 0, tensor = 0, shared = 0, global = 0; // of the SM, if it has many blocks
  BlockCost &operator+=(const BlockCost &o) {
    alone += o.alone, issue += o.issue, tensor += o.tensor, shared += o.shared, global += o.global;
    return *this;
  }
  double most() const { return std::max({issue, tensor, shared, global}); }
};

// Blocks one after the other to the place that is free first.
double makespan(const std::vector<double> &cycles, int64_t blocks, int64_t places) {
  std::priority_queue<double, std::vector<double>, std::greater<>> free;
  for (int64_t i = 0; i < std::min(places, blocks); i++) free.push(0);
  double end = 0;
  for (int64_t i = 0; i < blocks; i++) {
    double at = free.top() + cycles[size_t(i * int64_t(cycles.size()) / blocks)];
    free.pop();
    free.push(at);
    end = std::max(end, at);
  }
  return end;
}

} // namespace

double BodyEstimate::cycles() const {
  return std::max({in_order + memory, items, work.recurrence, work.shared, work.global});
}

double BodyEstimate::slot_limit(int64_t stages, bool producer) const {
  double copy = copy_latency + copy_cycles;
  return producer ? (in_order + memory + copy) / double(stages) : copy / double(stages - 1);
}

std::string BodyEstimate::bound() const {
  double most = cycles();
  if (most == items) return copy_latency > 0 ? "the ring's slots" : "latency of memory";
  if (most == work.recurrence) return "the carried chain";
  if (most == work.shared) return "shared memory";
  if (most == work.global) return "traffic with L2";
  if (memory > 0.5 * most) return "latency of memory";
  return "its ops in order";
}

std::optional<KernelModel> model_kernel(sema::Program &program, const KernelInstance &kernel,
                                        const ir::Function &compiled, const CompileOptions &options,
                                        Diagnostics &diags) {
  std::vector<Phase> phases;
  CompileOptions before = options;
  before.stop_after = "annotate_accesses";
  before.passes.dump_dir.clear(); // that of the compilation
  KernelModel out;
  out.typed = lower_kernel(program, *kernel.ast, kernel.spec, before, diags, phases, kernel.name);
  if (!out.typed) return std::nullopt;
  ir::Function &f = *out.typed;
  out.part = &planning_part(options);
  out.target = options.target;
  out.warps = ir::block_warps(compiled);
  out.shared_bytes = compiled.shared_bytes;
  double latency = ir::timing(*out.part).load_latency;

  // What became of each loop with loads of tiles.
  std::map<const Op *, passes::LoopPlan> plans;
  std::vector<passes::LoopPlan> made = passes::schedule_of(compiled, "").loops;
  for (auto &[op, place] : passes::schedulable_loops(f, diags.sources()))
    for (const passes::LoopPlan &l : made)
      if (l.name() == place.name()) plans.emplace(op, l);

  ir::Uses uses(f);
  ir::Target target = planning_target(options);
  const Op *roles = ir::roles_of(f);
  for (Block *role : roles ? roles->regions : std::vector<Block *>{f.body}) {
    passes::LayoutDecision d = passes::search_layouts(f, role, target, *out.part);
    for (const passes::BodyWork &w : d.plan.bodies) {
      BodyEstimate e;
      e.warps = d.variables.warps;
      e.body = w.body;
      e.role = role_name(f, role);
      e.work = w.work;
      e.in_order = w.in_order;
      const Op *loop = w.body->parent;
      auto it = loop ? plans.find(loop) : plans.end();
      const passes::LoopPlan *l = it == plans.end() ? nullptr : &it->second;
      bool ring = l && l->stages.value;
      e.planned = l;
      if (l) e.loop = l->name();
      if (!l && loop && loop->kind == OpKind::For && !loop->attrs.has("tiles")) // without loads of tiles: named alike
        e.loop =
            fmt::format("{} at {}", w.body->args[0]->name.empty() ? "_" : w.body->args[0]->name,
                        loop->loc.valid() ? diags.sources().file(loop->loc.file).position(loop->loc.begin).line : 0);
      e.memory = latency * double(load_depth(w.body, [&](const Op *op) {
                   if (is_pushed(uses, op)) return false;
                   if (l && loads_tile(op) && ahead(*l, *op)) return false;
                   if (!ring) return true;
                   if (!loads_tile(op)) return false; // places, which the ring's copies know ahead
                   return std::any_of(l->left.begin(), l->left.end(),
                                      [&](const auto &s) { return s.tensor == passes::tensor_name(*op); });
                 }));
      // A load that runs ahead takes its latency over the iterations that it is ahead.
      if (l)
        for (const passes::AheadLoad &a : l->ahead) e.items = std::max(e.items, latency / double(a.distance));
      if (ring) {
        if (l->producer.value == "none") e.in_order += ConvertCosts().block_barrier;
        e.copy_latency = latency;
        e.copy_cycles = double(*l->stage_bytes.value) / kBytesPerCycle;
        e.items = e.slot_limit(*l->stages.value, l->producer.value == "warp");
      }
      out.bodies.push_back(std::move(e));
    }
  }
  return out;
}

SmLimits sm_limits(const ir::Target &t) {
  SmLimits sm;
  sm.threads = ir::residency(t).threads;
  sm.blocks = ir::residency(t).blocks;
  sm.shared = t.shared_per_sm;
  sm.shared_per_block = t.shared_per_block;
  return sm;
}

TimeEstimate estimate_time(const KernelModel &model, const LaunchData &data, const std::vector<int64_t> &grid,
                           int64_t registers) {
  const ir::Function &f = *model.typed;
  TimeEstimate out;
  out.blocks = 1;
  for (int64_t n : grid) out.blocks *= n;
  if (out.blocks == 0) return out;
  SmLimits sm = sm_limits(*model.target);
  int64_t sms = model.part->sms;
  out.blocks_per_sm = std::max<int64_t>(1, blocks_per_sm(sm, registers, model.warps * 32, model.shared_bytes));
  int64_t held = std::min(out.blocks_per_sm, (out.blocks + sms - 1) / sms);

  // Some blocks stand for all where they differ; one from each of as many equal parts of the grid, at no regular
  // distance, which could fall in with an extent.
  constexpr int64_t kSamples = 1024;
  Scalars scalars(f, data, grid);
  Traffic traffic;
  std::vector<double> cycles;
  // Cycles and iterations of the bodies of loops, over all samples.
  std::vector<double> of_body(model.bodies.size()), trips(model.bodies.size());
  BlockCost sum;
  int64_t samples = std::min(kSamples, out.blocks);
  for (int64_t i = 0; i < samples; i++) {
    int64_t first = i * out.blocks / samples, parts = (i + 1) * out.blocks / samples - first;
    int64_t id = first + int64_t(uint64_t(i) * 2654435761u % uint64_t(parts));
    std::vector<int64_t> ids;
    for (int64_t n : grid) {
      ids.push_back(id % n);
      id /= n;
    }
    scalars.at(std::move(ids));
    std::map<const Block *, double> times = Executions(scalars).of_block(f);
    std::map<std::string, BlockCost> roles;
    for (size_t b = 0; b < model.bodies.size(); b++) {
      const BodyEstimate &e = model.bodies[b];
      double n = times[e.body], warps = double(e.warps);
      // The model counts whole warps of a sub-core; blocks of fewer fill up each other's.
      double part = warps / 4 / std::ceil(warps / 4);
      roles[e.role] +=
          {n * e.cycles(), n * e.work.issue * part, n * e.work.tensor * part, n * e.work.shared, n * e.work.global};
      if (!e.loop.empty()) of_body[b] += n * e.cycles(), trips[b] += n;
    }
    BlockCost block;
    for (const auto &[name, cost] : roles) {
      double alone = std::max(block.alone, cost.alone);
      block += cost;
      block.alone = alone;
    }
    sum += block;
    cycles.push_back(std::max(block.alone, double(held) * block.most()));
    traffic.add(f, times);
    if (!scalars.depends_on_block()) break; // all are alike
  }
  auto n = double(cycles.size());
  double hz = double(model.part->clock_mhz) * 1e6, average = 0;
  for (double c : cycles) average += c / n;
  out.block_seconds = average / hz;
  auto longest = std::max_element(of_body.begin(), of_body.end());
  if (longest != of_body.end()) out.trips = trips[size_t(longest - of_body.begin())] / n;

  double bytes = 0;
  for (const auto *map : {&traffic.read, &traffic.written})
    for (const auto &[tensor, of_samples] : *map) {
      double size = INFINITY;
      for (size_t i = 0; i < f.params.size(); i++)
        if (f.param_value(f.params[i].name) == tensor)
          size = double(storage_bytes(tensor->type.dtype, data.tensors[i].count()));
      bytes += std::min(size, of_samples / n * double(out.blocks));
    }
  out.limits = {
      {"blocks", makespan(cycles, out.blocks, held * sms) / hz},
      {"memory", bytes / (model.part->dram_bytes_per_cycle * double(sms)) / hz},
      {"products", sum.tensor / n * double(out.blocks) / double(sms) * ir::timing(*model.part).mma_cycles_all /
                       model.part->mma_cycles / hz},
  };
  for (const auto &[name, seconds] : out.limits)
    if (seconds > out.seconds) out.seconds = seconds, out.bound = name;
  return out;
}

} // namespace tkc::driver
