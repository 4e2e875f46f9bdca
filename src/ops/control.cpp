// The grid, structured control flow, and ends of regions.
#include "ops/adjoint.h"
#include "ops/loop.h"

namespace tkc::ops {

namespace {

// ---- the grid

void infer_grid(InferCtx &ctx, Op &op) {
  const ir::Function &f = ctx.function();
  if (!has_operands(ctx, op, 0, 0)) return;
  if (f.kind != ir::FunctionKind::Kernel) return ctx.error(DiagKind::only_in_kernel, shown(op));
  int64_t axis = op.attrs.i("axis");
  if (axis < 0 || axis >= int64_t(f.grid.size())) return ctx.error(DiagKind::grid_rank, axis, f.grid.size());
  ctx.result(Type::scalar(DType::I32));
}

void set_i32(interp::Ctx &ctx, const Op &op, int64_t v) {
  interp::Tile t(DType::I32, {});
  t.i[0] = wrap_to(DType::I32, v);
  ctx.set(op.result(), std::move(t));
}

void interp_program_id(interp::Ctx &ctx, const Op &op) { set_i32(ctx, op, ctx.program[size_t(op.attrs.i("axis"))]); }
void interp_num_programs(interp::Ctx &ctx, const Op &op) { set_i32(ctx, op, ctx.grid[size_t(op.attrs.i("axis"))]); }

// ---- loops and branches. Their regions are filled after the op is made; the verifier compares them with these types.

void infer_for(InferCtx &ctx, Op &op) {
  if (!has_operands(ctx, op, 3, SIZE_MAX)) return;
  const Type &lo = op.operand(0)->type, &hi = op.operand(1)->type, &step = op.operand(2)->type;
  if (!lo.is_scalar() || !is_integer(lo.dtype) || hi != lo || step != lo)
    return ctx.error(DiagKind::not_uniform, "a loop bound",
                     lo.is_scalar() && is_integer(lo.dtype) ? lo.str() : "integer",
                     hi != lo     ? hi.str()
                     : step != lo ? step.str()
                                  : lo.str());
  for (size_t i = 3; i < op.operands.size(); i++) ctx.result(op.operand(i)->type);
}

void interp_for(interp::Ctx &ctx, const Op &op) {
  std::optional<Iterations> trips = iterations(ctx, op);
  if (!trips) return;
  std::vector<interp::Value> carried;
  for (size_t i = 3; i < op.operands.size(); i++) carried.push_back(ctx.take(op, i));
  for (int64_t k = 0; k < trips->count; k++) {
    std::vector<interp::Value> args;
    args.reserve(carried.size() + 1);
    args.push_back(trips->at(k));
    for (interp::Value &v : carried) args.push_back(std::move(v));
    carried = ctx.run_region(op.regions[0], std::move(args));
    if (ctx.trapped()) return;
  }
  for (size_t i = 0; i < carried.size(); i++) ctx.set(op.result(i), std::move(carried[i]));
}

void infer_while(InferCtx &ctx, Op &op) {
  for (ir::Value *v : op.operands) ctx.result(v->type);
}

void interp_while(interp::Ctx &ctx, const Op &op) {
  std::vector<interp::Value> carried;
  for (size_t i = 0; i < op.operands.size(); i++) carried.push_back(ctx.take(op, i));
  const ir::Block *condition = op.regions[0], *body = op.regions[1];
  while (true) {
    std::vector<interp::Value> go = ctx.run_region(condition, std::move(carried));
    if (ctx.trapped()) return;
    carried.clear();
    for (const ir::Value *arg : condition->args) carried.push_back(ctx.release(arg));
    if (!std::get<interp::Tile>(go.at(0)).i[0]) break;
    carried = ctx.run_region(body, std::move(carried));
    if (ctx.trapped()) return;
  }
  for (size_t i = 0; i < carried.size(); i++) ctx.set(op.result(i), std::move(carried[i]));
}

void infer_if(InferCtx &ctx, Op &op) {
  if (!has_operands(ctx, op, 1, 1)) return;
  const Type &c = op.operand(0)->type;
  if (!c.is_scalar() || !is_bool(c.dtype))
    return ctx.error_at(0, DiagKind::not_uniform, "the condition of `if`", "bool", c.str());
  if (op.regions.empty() || !op.regions[0]->terminator()) return;
  for (ir::Value *v : op.regions[0]->terminator()->operands) ctx.result(v->type);
}

void interp_if(interp::Ctx &ctx, const Op &op) {
  bool taken = ctx.scalar_i(op.operand(0)) != 0;
  std::vector<interp::Value> out = ctx.run_region(op.regions[taken ? 0 : 1], {});
  if (ctx.trapped()) return;
  for (size_t i = 0; i < out.size(); i++) ctx.set(op.result(i), std::move(out[i]));
}

void infer_end(InferCtx &, Op &) {}
void interp_end(interp::Ctx &ctx, const Op &op) { ctx.leave(op); }

constexpr ir::Effect kControl = {-1, ir::Space::Control, ir::Access::ReadWrite};

} // namespace

std::optional<Iterations> iterations(interp::Ctx &ctx, const Op &op) {
  Iterations out;
  out.first = ctx.tile(op.operand(0));
  int64_t lo = out.first.i[0], hi = ctx.scalar_i(op.operand(1));
  DType t = out.first.dtype;
  out.step = ctx.scalar_i(op.operand(2));
  if (!int_less(t, 0, out.step)) {
    ctx.trap(op, fmt::format("the step of a loop is {}; it must be positive", out.step));
    return std::nullopt;
  }
  if (int_less(t, lo, hi)) out.count = int64_t((uint64_t(hi) - uint64_t(lo) - 1) / uint64_t(out.step) + 1);
  return out;
}

} // namespace tkc::ops

namespace tkc::ir {
using namespace ops;

constexpr OpDef kProgramId = {
    .name = "program_id",
    .source = "program_id",
    .signature = "program_id(axis: int)",
    .doc =
        "The coordinate of this program (block) in the grid along an axis, as i32; program_id() is the tuple of all.",
    .example = "let i = program_id(0);\nlet a = load(x[:, :]) + f32(i);\n# store(y[:, :], a);",
    .derivative = kNoFloats,
    .infer = infer_grid,
    .interp = interp_program_id,
    .lower = lower_ProgramId};

constexpr OpDef kNumPrograms = {
    .name = "num_programs",
    .source = "num_programs",
    .signature = "num_programs(axis: int)",
    .doc = "The extent of the grid along an axis, as i32; num_programs() is the tuple of all.",
    .example = "for row in program_id(0) : M step num_programs(0) {\n  store(y[row, :], load(x[row, :]));\n}",
    .derivative = kNoFloats,
    .infer = infer_grid,
    .interp = interp_num_programs,
    .lower = lower_NumPrograms};

constexpr OpDef kFor = {.name = "for",
                        .source = "-",
                        .signature = "for(lo: scalar, hi: scalar, step: scalar, inits: tile...)",
                        .doc = "`for i in lo : hi step s { ... }` runs its body for i = lo, lo + s, ... below hi; the "
                               "step is positive. Variables "
                               "that the body assigns are carried from one iteration to the next and keep their type.",
                        .example = "var total = zeros<f32>[N];\nfor row in 0 : M {\n  total = total + load(x[row, "
                                   ":]);\n}\n# store(y[0, :], total);",
                        .derivative = adjoint(adjoint_For, kX | kY | kZ),
                        .infer = infer_for,
                        .interp = interp_for,
                        .lower = lower_For};

constexpr OpDef kWhile = {
    .name = "while",
    .source = "-",
    .signature = "while(inits: tile...)",
    .doc = "`while c { ... }` runs its body as long as the scalar c, computed before every iteration, is true.",
    .example = "var t = load(x[:, :]);\nvar rounds = 0;\nwhile max(abs(t)) > 0.5 && rounds < 20 {\n  t = t * 0.5;\n"
               "  rounds = rounds + 1;\n}\n# store(y[:, :], t);",
    .derivative = adjoint(adjoint_While),
    .infer = infer_while,
    .interp = interp_while,
    .lower = lower_While};

constexpr OpDef kIf = {
    .name = "if",
    .source = "-",
    .signature = "if(cond: scalar)",
    .doc =
        "`if c { ... } else { ... }` runs one of two blocks; c is one bool for the whole program. For a choice in each "
        "element there is `where`.",
    .example = "let t = load(x[:, :]);\nvar scale = 1.0;\nif max(abs(t)) > 1.0 {\n  scale = 1.0 / max(abs(t));\n}\n"
               "# store(y[:, :], t * scale);",
    .derivative = adjoint(adjoint_If, kX),
    .infer = infer_if,
    .interp = interp_if,
    .lower = lower_If};

constexpr OpDef kYield = {
    .name = "yield",
    .source = "-",
    .signature = "yield(values: tile...)",
    .doc = "Ends a block of a loop or branch and hands its values over: the carried variables of the next iteration, "
           "or the "
           "results of the branch. Written by the compiler.",
    .example = "var t = load(x[:, :]);\nfor i in 0 : 3 {\n  t = t * 0.5;      // t is carried\n}\n# store(y[:, :], t);",
    .effects = kControl,
    .derivative = zero_derivative("it has no results of its own"),
    .infer = infer_end,
    .interp = interp_end,
    .lower = lower_Yield};

constexpr OpDef kReturn = {.name = "return",
                           .source = "-",
                           .signature = "return(values: tile...)",
                           .doc = "Ends a kernel, or a reference with its results.",
                           .example = "let t = load(x[:, :]);\nstore(y[:, :], t);   // a kernel returns at its end",
                           .effects = kControl,
                           .derivative = zero_derivative("it has no results of its own"),
                           .infer = infer_end,
                           .interp = interp_end,
                           .lower = lower_Return};

} // namespace tkc::ir
