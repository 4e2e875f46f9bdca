#include "driver/report.h"
#include "ir/residency.h"
#include "ir/ring.h"
#include "layout/convert.h"
#include "passes/layout_choice.h"
#include "passes/schedule.h"
#include "passes/shared_buffers.h"
#include "runtime/occupancy.h"
#include <algorithm>
#include <fmt/ranges.h>

namespace tkc::driver {

using ir::Op;
using ir::OpKind;
using ir::Value;

namespace {

class Report {
public:
  Report(const ir::Function &f, const CompileOptions &options, const SourceManager &sources)
      : f_(f), target_(planning_target(options)), features_(ir::layout_features(target_)), sources_(sources),
        order_(f) {}

  void head(KernelReport &out) const {
    out.kernel = f_.name;
    out.target = target_.name;
    out.bindings = f_.bindings;
    for (const ir::SizeExpr &e : f_.grid) out.grid += (out.grid.empty() ? "" : ", ") + e.str();
    out.persistent = f_.persistent;
    out.warps = fmt::format("{}", ir::block_warps(f_));
    if (const Op *roles = ir::roles_of(f_))
      for (size_t r = 0; r < roles->regions.size(); r++)
        out.warps += fmt::format("{}{} for {}", r ? ", " : ": ", roles->attrs.ints("warps")[r],
                                 roles->attrs.get<std::vector<std::string>>("names")[r]);
    out.shared_bytes = f_.shared_bytes;
    out.registers = estimated_registers(f_);
    out.plan = passes::schedule_of(f_, target_.name);
  }

  ReportTable products() {
    ReportTable t{"products", {"line", "operands", "instruction", "warps over M x N x K", "form", "where"}, {}};
    ir::walk(f_.body, [&](const Op *op) {
      if (op->kind != OpKind::Mma) return;
      const ir::Type &a = op->operand(0)->type, &b = op->operand(1)->type;
      const std::vector<int64_t> &tiling = op->attrs.ints("tiling");
      std::string form = op->attrs.i("transposed") ? "transposed" : "plain";
      if (op->attrs.has("wide"))
        for (size_t i = 0; i < 2; i++)
          if (int64_t n = op->attrs.ints("wide")[i])
            form += fmt::format(", {} neighbours along {} in a lane", int64_t(1) << n, i ? "K" : "N");
      t.rows.push_back(
          {place(op), fmt::format("{}{} x {}", dtype_name(a.dtype), ir::shape_str(a.shape), ir::shape_str(b.shape)),
           op->attrs.s("shape"), fmt::format("{} x {} x {}", tiling[0], tiling[1], tiling[2]), form, where(op)});
      if (op->attrs.s("shape") == "fma") remark(op, "this product does not run on tensor cores");
    });
    return t;
  }

  ReportTable conversions() {
    ReportTable t{"conversions between layouts", {"line", "value", "how, cycles of an SM each time", "where"}, {}};
    ir::walk(f_.body, [&](const Op *op) {
      const Op *store = op->kind == OpKind::ScratchLoad ? op->operand(0)->op : nullptr;
      if (op->kind != OpKind::ConvertLayout && !store) return;
      const Value *from = (store ? store : op)->operand(0), *to = op->result();
      ConversionPlan plan = plan_conversion(*from->layout, *to->layout, dtype_bytes(from->type.dtype) * 8, features_);
      if (!store && (plan.kind == ConvertKind::Identity || plan.kind == ConvertKind::Registers)) return;
      t.rows.push_back({place(op), value(from), plan.to_string(), where(op)});
    });
    return t;
  }

  std::vector<LoopReport> loops(const KernelModel &model) {
    std::vector<LoopReport> out;
    ir::walk(f_.body, [&](const Op *op) {
      if (op->kind != OpKind::For || !op->attrs.has("schedule")) return;
      LoopReport r;
      r.plan = passes::parse_loop_plan(op->attrs.get<std::vector<std::string>>("schedule"));
      for (const BodyEstimate &e : model.bodies)
        if (e.planned && e.loop == r.plan.name()) r.estimate = e;
      for (const Op *o : op->regions[0]->ops) {
        r.waits += o->kind == OpKind::RingWait;
        r.fences += o->kind == OpKind::ProxyFence;
        if (o->kind == OpKind::BlockBarrier) (o->attrs.s("scope") == "block" ? r.barriers : r.warp_syncs)++;
      }
      loop_remarks(r.plan);
      out.push_back(std::move(r));
    });
    return out;
  }

  void loop_remarks(const passes::LoopPlan &l) {
    std::string at = fmt::format("{}{}", l.file.empty() ? "" : l.file + ":", l.line);
    auto remark = [&](std::string text) { remarks_.emplace_back(at, std::move(text)); };
    if (l.synchronous.value) remark(fmt::format("loop {} is not pipelined: {}", l.variable, *l.synchronous.value));
    for (const passes::SynchronousLoad &s : l.left)
      remark(fmt::format("the load of {} in loop {} is synchronous: {}", s.tensor, l.variable, s.reason));
    if (!l.not_tma.empty()) remark(fmt::format("loop {} is not by TMA: {}", l.variable, l.not_tma));
    if (!l.plain.empty()) remark(fmt::format("loop {} loads and stores instead of copying: {}", l.variable, l.plain));
    if (!l.fewer.empty()) remark(fmt::format("loop {} has fewer stages than it could: {}", l.variable, l.fewer));
  }

  ReportTable ring_reads() {
    ReportTable t{"reads from rings", {"line", "tensor", "instructions of a warp", "wavefronts of a warp"}, {}};
    ir::walk(f_.body, [&](const Op *op) {
      if (op->kind != OpKind::RingLoad) return;
      const Op *ring = op->operand(0)->op;
      auto field = size_t(op->attrs.i("field"));
      SmemCost c = smem_load_cost(*op->result()->layout, ir::ring_load_layout(*op), features_);
      std::string inst = c.inst == SmemInst::Vector        ? fmt::format("ld.shared of {} B", c.width)
                         : c.inst == SmemInst::MatrixTrans ? "ldmatrix.trans"
                                                           : "ldmatrix";
      t.rows.push_back({place(op),
                        op->attrs.has("tensor") ? op->attrs.s("tensor")
                                                : ring->attrs.get<std::vector<std::string>>(
                                                      ring->attrs.has("tensors") ? "tensors" : "fields")[field],
                        fmt::format("{} x {}", c.accesses, inst),
                        fmt::format("{}, {} of them bank conflicts", c.wavefronts, c.wavefronts - c.ideal)});
    });
    return t;
  }

  ReportTable shared_memory() {
    auto buffers = passes::shared_buffers(const_cast<ir::Function &>(f_), order_);
    for (auto &b : buffers) b.offset = b.op->attrs.i(passes::offset_attribute(b));
    std::stable_sort(buffers.begin(), buffers.end(), [](const auto &a, const auto &b) { return a.offset < b.offset; });
    ReportTable t{"shared memory", {"offset", "bytes", "lines that it lives over", "what"}, {}};
    for (const auto &b : buffers)
      t.rows.push_back({std::to_string(b.offset), std::to_string(b.bytes), lines(b), passes::buffer_name(f_, b)});
    return t;
  }

  // After the other sections, which make some.
  std::vector<std::pair<std::string, std::string>> remarks() {
    ir::walk(f_.body, [&](const Op *op) {
      if (op->kind != OpKind::Load && op->kind != OpKind::Store) return;
      const Value *tile = op->kind == OpKind::Load ? op->result() : op->operand(1 + op->attrs.ints("sizes").size());
      if (tile->type.is_scalar() || depth(op) == 0) return;
      int64_t bytes = passes::access_vector(*op, tile->type.dtype, 16) * dtype_bytes(tile->type.dtype);
      if (bytes < 16)
        remark(op, fmt::format("the {} of {} moves {} B at a time", op->kind == OpKind::Load ? "load" : "store",
                               passes::tensor_name(*op), bytes));
    });
    return std::move(remarks_);
  }

private:
  std::string place(SourceLoc loc) const {
    if (!loc.valid()) return "-";
    const SourceFile &file = sources_.file(loc.file);
    std::string line = std::to_string(file.position(loc.begin).line);
    return loc.file == f_.loc.file ? line : file.name() + ":" + line;
  }
  std::string place(const Op *op) const { return place(op->loc); }
  static std::string value(const Value *v) {
    return fmt::format("{}{}{}", v->name, v->name.empty() ? "" : ": ", v->type.str());
  }
  static int64_t depth(const Op *op) {
    int64_t loops = 0;
    for (const Op *p = op->block->parent; p; p = p->block ? p->block->parent : nullptr)
      loops += p->kind == OpKind::For || p->kind == OpKind::While;
    return loops;
  }
  static std::string where(const Op *op) { return depth(op) ? "in a loop" : "once"; }
  void remark(const Op *op, const std::string &text) { remarks_.emplace_back(place(op), text); }

  // From the first to the last line of ops that a buffer lives over.
  std::string lines(const passes::SharedBuffer &b) const {
    if (b.begin == 0 && b.end >= order_.end()) return "all";
    SourceLoc first, last;
    ir::walk(f_.body, [&](const Op *op) {
      auto [begin, end] = order_.of(op);
      // What passes make for the whole kernel is where the kernel is.
      if (begin < b.begin || begin > b.end || !op->loc.valid() || op->loc.begin == f_.loc.begin) return;
      auto before = [](SourceLoc x, SourceLoc y) { return std::pair(x.file, x.begin) < std::pair(y.file, y.begin); };
      if (!first.valid() || before(op->loc, first)) first = op->loc;
      if (end <= b.end && (!last.valid() || before(last, op->loc))) last = op->loc;
    });
    std::string from = place(first), to = place(last);
    return from == to ? from : from + "-" + to;
  }

  const ir::Function &f_;
  ir::Target target_;
  LayoutFeatures features_;
  const SourceManager &sources_;
  passes::ProgramOrder order_;
  std::vector<std::pair<std::string, std::string>> remarks_;
};

} // namespace

std::string resource_lines(const std::vector<const ir::Function *> &functions, const codegen::EmitResult &code,
                           const Result<Assembled> &assembled, const ir::Target &t) {
  std::string out;
  SmLimits sm = sm_limits(t);
  auto figure = [](int64_t n) { return n < 0 ? std::string("?") : std::to_string(n); };
  for (size_t i = 0; i < code.abis.size(); i++) {
    const codegen::KernelAbi &abi = code.abis[i];
    const KernelUsage *u = assembled ? assembled->find(abi.entry) : nullptr;
    int64_t shared = functions[i / 2]->shared_bytes + (u ? std::max<int64_t>(u->static_shared, 0) : 0);
    if (u && u->registers > 0)
      out +=
          fmt::format("{}: {} registers, {} + {} spill bytes, {} local bytes, {} shared bytes, {} threads, {} blocks "
                      "per SM\n",
                      abi.entry, u->registers, figure(u->spill_stores), figure(u->spill_loads), u->stack, shared,
                      abi.threads, blocks_per_sm(sm, u->registers, abi.threads, shared));
    else
      out += fmt::format("{}: {} shared bytes, {} threads\n", abi.entry, shared, abi.threads);
  }
  if (!assembled) out += fmt::format("registers are unknown: {}\n", assembled.error());
  return out;
}

std::optional<KernelReport> report_kernel(sema::Program &program, const KernelInstance &kernel,
                                          const ir::Function &compiled, const CompileOptions &options, bool assembler,
                                          Diagnostics &diags) {
  auto model = model_kernel(program, kernel, compiled, options, diags);
  if (!model) return std::nullopt;
  KernelReport out;
  Report r(compiled, options, diags.sources());
  r.head(out);
  out.part = model->part->name;
  out.tables = {r.products(), r.conversions(), r.ring_reads(), r.shared_memory()};
  out.loops = r.loops(*model);
  for (const BodyEstimate &e : model->bodies)
    if (!e.planned && e.cycles() > 0) out.bodies.push_back(e);
  for (BodyEstimate &e : out.bodies) e.body = nullptr; // which ends with the model
  for (LoopReport &l : out.loops) l.estimate.body = nullptr;
  if (assembler) {
    std::vector<Phase> phases;
    codegen::EmitResult code = emit_module({&compiled}, options, diags.sources(), phases);
    AssembleOptions a;
    a.arch = options.target->name;
    std::string lines = resource_lines({&compiled}, code, assemble(code.ptx, a), *options.target);
    for (size_t at = 0; at < lines.size();) {
      size_t end = lines.find('\n', at) + 1;
      out.assembled.push_back(lines.substr(at, end - 1 - at));
      at = end;
    }
  }
  out.remarks = r.remarks();
  return out;
}

} // namespace tkc::driver
