#include "driver/plan.h"
#include "ir/target.h"
#include <algorithm>
#include <numeric>

namespace tkc::driver {

using sema::HostStmt;
using sema::LaunchArgument;

DeviceFacts DeviceFacts::of(const DeviceInfo &gpu) {
  return {gpu.sms, gpu.l2_bytes, gpu.shared_per_block, gpu.major * 10 + gpu.minor};
}

DeviceFacts DeviceFacts::of(const ir::Target &target) {
  const ir::Part &part = ir::default_part(target);
  return {part.sms, int64_t(part.l2_mib) << 20, target.shared_per_block, target.sm};
}

int64_t *DeviceFacts::find(std::string_view name) {
  int64_t *fields[] = {&sms, &l2_bytes, &smem, &arch};
  for (size_t i = 0; i < std::size(fields); i++)
    if (name == sema::kDeviceProperties[i]) return fields[i];
  return nullptr;
}

int64_t PlanLaunch::blocks() const {
  return std::accumulate(grid.begin(), grid.end(), int64_t(1), std::multiplies<>());
}

namespace {

bool same_memory(const PlanMemory &a, const PlanMemory &b) {
  return !a.box.empty() && !b.box.empty() && a.temporary == b.temporary && a.index == b.index;
}

// Both lists of spans are of one tensor.
bool overlap(const PlanMemory &a, const PlanMemory &b) {
  if (!same_memory(a, b)) return false;
  for (size_t d = 0; d < a.box.size(); d++)
    if (std::max(a.box[d].lo, b.box[d].lo) >= std::min(a.box[d].lo + a.box[d].extent, b.box[d].lo + b.box[d].extent))
      return false;
  return true;
}

class Planner {
public:
  Planner(const sema::HostProgram &program, const LaunchData &data, const DeviceFacts &device,
          const SourceManager &sources)
      : program_(program), header_(*program.header), data_(data), device_(device), sources_(sources) {
    plan_.program = &program;
    environment_ = [this, given = lookup(data)](const std::string &name) -> std::optional<int64_t> {
      if (auto it = counters_.find(name); it != counters_.end()) return it->second;
      if (name.starts_with("device.")) {
        int64_t *property = device_.find(std::string_view(name).substr(7));
        return property ? std::optional(*property) : std::nullopt;
      }
      return given(name);
    };
  }

  Result<Plan> run() {
    if (auto facts = launch_grid(header_, data_, sources_); !facts) return facts.failed();
    TKC_TRY(block(program_.body));
    TKC_TRY(place_temporaries());
    return std::move(plan_);
  }

private:
  static constexpr size_t kMostLaunches = 1 << 16;

  template <typename... A> Error at(SourceLoc loc, fmt::format_string<A...> pattern, A &&...args) const {
    std::string where = sources_.describe(loc);
    return failure("{}{}{}", where, where.empty() ? "" : ": ", fmt::format(pattern, std::forward<A>(args)...));
  }

  Result<int64_t> value(const ir::SizeExpr &e, SourceLoc loc) const {
    if (auto v = e.eval(environment_)) return *v;
    return at(loc, "`{}` has no value for these sizes", e.str());
  }

  Status block(const std::vector<HostStmt> &stmts) {
    for (const HostStmt &s : stmts) TKC_TRY(statement(s));
    return {};
  }

  Status statement(const HostStmt &s) {
    switch (s.kind) {
    case HostStmt::Kind::Launch: return launch(s);
    case HostStmt::Kind::Alloc: return alloc(s);
    case HostStmt::Kind::Let: {
      auto v = value(s.lo, s.loc);
      if (!v) return v.failed();
      counters_[s.counter] = *v;
      return {};
    }
    case HostStmt::Kind::Require: {
      auto holds = value(s.cond, s.loc);
      if (!holds) return holds.failed();
      return *holds ? Status() : at(s.loc, "`where {}` does not hold for these sizes", s.cond.str());
    }
    case HostStmt::Kind::If: {
      auto cond = value(s.cond, s.loc);
      if (!cond) return cond.failed();
      return block(*cond ? s.body : s.else_body);
    }
    case HostStmt::Kind::For: {
      auto lo = value(s.lo, s.loc), hi = value(s.hi, s.loc), step = value(s.step, s.loc);
      for (const auto *v : {&lo, &hi, &step})
        if (!*v) return v->failed();
      if (*step < 1) return at(s.loc, "the step of this loop is {}", *step);
      for (int64_t i = *lo; i < *hi; i += *step) {
        counters_[s.counter] = i;
        TKC_TRY(block(s.body));
        if (++iterations_ > kMostLaunches) return at(s.loc, "loops of more than {} iterations", kMostLaunches);
      }
      counters_.erase(s.counter);
      return {};
    }
    case HostStmt::Kind::Parallel: {
      group_ = plan_.launches.size();
      TKC_TRY(block(s.body));
      if (plan_.launches.size() > *group_) plan_.steps++;
      group_.reset();
      return {};
    }
    }
    TKC_UNREACHABLE("HostStmt::Kind");
  }

  Status alloc(const HostStmt &s) {
    const sema::ProgramAlloc &a = program_.allocs[s.alloc];
    PlanTemporary t;
    t.name = a.name;
    t.dtype = a.dtype;
    for (const ir::SizeExpr &d : a.dims) {
      auto n = value(d, a.loc);
      if (!n) return n.failed();
      if (*n < 0 || *n > INT32_MAX) return at(a.loc, "the extent {} of `{}` is {}", d.str(), a.name, *n);
      t.shape.push_back(*n);
    }
    auto count = element_count(t.shape);
    if (!count) return at(a.loc, "`{}` of shape {} is too large", a.name, shape_to_string(t.shape));
    t.bytes = storage_bytes(t.dtype, *count);
    temporaries_[s.alloc] = plan_.temporaries.size();
    plan_.temporaries.push_back(std::move(t));
    return {};
  }

  Status tensor(const ir::Param &p, const LaunchArgument &a, PlanLaunch &out) {
    const sema::TensorView &v = a.view;
    PlanMemory m;
    m.temporary = v.alloc;
    m.index = v.alloc ? temporaries_.at(v.index) : v.index;
    const std::vector<int64_t> &shape = m.temporary ? plan_.temporaries[m.index].shape : data_.tensors[m.index].shape;
    std::vector<int64_t> strides = m.temporary ? dense_strides(shape) : strides_of(data_, m.index);
    int64_t offset = m.temporary || data_.offsets.empty() ? 0 : data_.offsets[m.index];
    HostTensor t;
    t.dtype = p.type.dtype;
    std::vector<int64_t> kept;
    for (size_t d = 0; d < v.dims.size(); d++) {
      auto lo = value(v.dims[d].lo, v.dims[d].loc), extent = value(v.dims[d].extent, v.dims[d].loc);
      if (!lo) return lo.failed();
      if (!extent) return extent.failed();
      if (*lo < 0 || *extent < 0 || *lo > shape[d] || *extent > shape[d] - *lo)
        return at(v.dims[d].loc, "{} : {} lies outside of dim {} of `{}`, whose extent is {}", *lo, *lo + *extent, d,
                  base_name(m), shape[d]);
      m.box.push_back({*lo, *extent, v.dims[d].kept});
      m.whole &= v.dims[d].kept && *lo == 0 && *extent == shape[d];
      offset += *lo * strides[d];
      if (!v.dims[d].kept) continue;
      t.shape.push_back(*extent);
      kept.push_back(strides[d]);
    }
    if (v.dims.empty()) m.box.push_back({0, 1, false}); // of rank 0
    out.data.tensors.push_back(std::move(t));
    out.data.strides.push_back(std::move(kept));
    out.data.offsets.push_back(offset);
    out.memory.push_back(std::move(m));
    return {};
  }

  Status argument(const ir::Param &p, const LaunchArgument &a, PlanLaunch &out) {
    if (a.kind == LaunchArgument::Kind::Tensor) return tensor(p, a, out);
    out.data.tensors.emplace_back();
    out.data.strides.emplace_back();
    out.data.offsets.push_back(0);
    out.memory.emplace_back();
    switch (a.kind) {
    case LaunchArgument::Kind::Absent:
    case LaunchArgument::Kind::Tensor: break;
    case LaunchArgument::Kind::Number: out.data.scalars[p.name] = a.number; break;
    case LaunchArgument::Kind::Scalar: {
      auto it = data_.scalars.find(a.name);
      if (it == data_.scalars.end()) return at(a.loc, "the scalar `{}` has no value", a.name);
      out.data.scalars[p.name] = it->second;
      break;
    }
    case LaunchArgument::Kind::Computed: {
      auto given = [&](const std::string &name) -> std::optional<double> {
        auto it = data_.scalars.find(name);
        return it == data_.scalars.end() ? std::nullopt : std::optional(it->second);
      };
      auto v = a.computed.eval(given, environment_);
      if (!v)
        return at(a.loc, "`{}` of kernel `{}` has no value for these sizes and scalars", p.name,
                  program_.kernels[out.kernel].name);
      out.data.scalars[p.name] = *v;
      break;
    }
    case LaunchArgument::Kind::Integer: {
      auto v = value(a.integer, a.loc);
      if (!v) return v.failed();
      if (wrap_to(p.type.dtype, *v) != *v)
        return at(a.loc, "{} = {} does not fit into {}", p.name, *v, dtype_name(p.type.dtype));
      out.data.scalars[p.name] = double(*v);
      break;
    }
    }
    return {};
  }

  Status launch(const HostStmt &s) {
    const sema::ProgramKernel &k = program_.kernels[s.kernel];
    const ir::Function &f = *k.typed;
    PlanLaunch l;
    l.kernel = s.kernel;
    l.loc = s.loc;
    for (size_t i = 0; i < f.params.size(); i++) TKC_TRY(argument(f.params[i], s.args[i], l));
    for (size_t i = 0; i < f.sizes.size(); i++) {
      auto n = value(s.sizes[i], s.loc);
      if (!n) return n.failed();
      if (*n < 0 || *n > INT32_MAX) return at(s.loc, "`{}` of kernel `{}` is {}", f.sizes[i], f.name, *n);
      l.data.sizes[f.sizes[i]] = *n;
    }
    for (size_t i = 0; i < f.params.size(); i++) {
      if (l.memory[i].box.empty()) continue;
      auto want = extents(f, f.params[i], l.data);
      if (!want) return at(s.loc, "{}", want.error());
      for (size_t d = 0; d < want->size(); d++)
        if ((*want)[d] != l.data.tensors[i].shape[d])
          return at(s.args[i].loc, "dim {} of `{}` of kernel `{}` is {} = {}, found {}", d, f.params[i].name, f.name,
                    f.params[i].dims[d].str(), (*want)[d], l.data.tensors[i].shape[d]);
    }
    auto grid = launch_grid(f, l.data, sources_);
    if (!grid) return at(s.loc, "{}", grid.error());
    l.grid = *grid;
    TKC_TRY(check_memory(f, s, l));
    l.step = plan_.steps;
    for (const PlanMemory &m : l.memory)
      if (m.temporary && !m.box.empty()) {
        PlanTemporary &t = plan_.temporaries[m.index];
        if (t.first < 0) t.first = l.step;
        t.last = l.step;
      }
    if (l.blocks() > 0) {
      plan_.launches.push_back(std::move(l));
      if (!group_) plan_.steps++;
    }
    if (plan_.launches.size() > kMostLaunches) return at(s.loc, "a program of more than {} launches", kMostLaunches);
    return {};
  }

  Status check_memory(const ir::Function &f, const HostStmt &s, const PlanLaunch &l) {
    auto writes = [](const ir::Function &f, size_t i) { return f.params[i].mode != ir::ParamMode::In; };
    for (size_t j = 0; j < l.memory.size(); j++) {
      const PlanMemory &m = l.memory[j];
      if (m.box.empty()) continue;
      for (size_t i = 0; i < j; i++)
        if ((writes(f, i) || writes(f, j)) && overlap(l.memory[i], m))
          return at(s.args[j].loc, "`{}` and `{}` of kernel `{}` overlap in `{}`, and it writes one of them",
                    f.params[i].name, f.params[j].name, f.name, base_name(m));
      for (size_t other = group_.value_or(plan_.launches.size()); other < plan_.launches.size(); other++) {
        const PlanLaunch &o = plan_.launches[other];
        const ir::Function &g = *program_.kernels[o.kernel].typed;
        for (size_t i = 0; i < o.memory.size(); i++)
          if ((writes(g, i) || writes(f, j)) && overlap(o.memory[i], m))
            return at(
                s.args[j].loc,
                "launches of one `parallel` block share a part of `{}`, which one of them writes (the other one: {})",
                base_name(m), sources_.describe(o.loc));
      }
      bool fresh = m.temporary || header_.params[m.index].mode == ir::ParamMode::Out;
      bool empty = std::any_of(m.box.begin(), m.box.end(), [](const PlanMemory::Span &b) { return b.extent == 0; });
      if (fresh && !empty && f.params[j].mode != ir::ParamMode::Out && !written_.count({m.temporary, m.index}))
        return at(s.args[j].loc, "`{}` is read here, but with these sizes no launch has written it before",
                  base_name(m));
    }
    for (size_t j = 0; j < l.memory.size(); j++)
      if (!l.memory[j].box.empty() && writes(f, j)) written_.insert({l.memory[j].temporary, l.memory[j].index});
    return {};
  }

  const std::string &base_name(const PlanMemory &m) const {
    return m.temporary ? plan_.temporaries[m.index].name : header_.params[m.index].name;
  }

  // Largest first, each at the lowest offset that no temporary alive at the same time has.
  Status place_temporaries() {
    std::vector<PlanTemporary *> order;
    for (PlanTemporary &t : plan_.temporaries)
      if (t.first >= 0) order.push_back(&t);
    std::stable_sort(order.begin(), order.end(), [](auto *a, auto *b) { return a->bytes > b->bytes; });
    std::vector<const PlanTemporary *> placed; // by offset
    for (PlanTemporary *t : order) {
      int64_t at = 0;
      for (const PlanTemporary *p : placed) {
        if (p->last < t->first || t->last < p->first) continue;
        if (at + t->bytes <= p->offset) break;
        at = std::max(at, (p->offset + p->bytes + kWorkspaceAlign - 1) / kWorkspaceAlign * kWorkspaceAlign);
      }
      if (at > (int64_t(1) << 62) - t->bytes) return failure("program `{}`: the workspace is too large", header_.name);
      t->offset = at;
      placed.insert(
          std::upper_bound(placed.begin(), placed.end(), t, [](auto *a, auto *b) { return a->offset < b->offset; }), t);
      plan_.workspace_bytes = std::max(plan_.workspace_bytes, at + t->bytes);
    }
    return {};
  }

  const sema::HostProgram &program_;
  const ir::Function &header_;
  const LaunchData &data_;
  mutable DeviceFacts device_;
  const SourceManager &sources_;
  Plan plan_;
  ir::SizeExpr::Lookup environment_;
  std::map<std::string, int64_t> counters_; // and numbers that statements name
  std::map<size_t, size_t> temporaries_;    // by alloc: the latest
  std::set<std::pair<bool, size_t>> written_;
  std::optional<size_t> group_; // first launch of the parallel block
  size_t iterations_ = 0;
};

} // namespace

Result<Plan> make_plan(const sema::HostProgram &program, const LaunchData &data, const DeviceFacts &device,
                       const SourceManager &sources) {
  return Planner(program, data, device, sources).run();
}

std::string Plan::to_string() const {
  const ir::Function &header = *program->header;
  std::string out = fmt::format("program {}: {}, workspace {} bytes\n", header.name,
                                counted(int64_t(launches.size()), "launch"), workspace_bytes);
  for (const PlanTemporary &t : temporaries)
    if (t.first >= 0)
      out += fmt::format("  {}: {}{}  {} bytes at {}, steps {} to {}\n", t.name, dtype_name(t.dtype),
                         shape_to_string(t.shape), t.bytes, t.offset, t.first, t.last);
  for (const PlanLaunch &l : launches) {
    const sema::ProgramKernel &k = program->kernels[l.kernel];
    out += fmt::format("  step {}: {} grid {}:", l.step, k.name, shape_to_string(l.grid));
    for (size_t i = 0; i < l.memory.size(); i++) {
      const ir::Param &p = k.typed->params[i];
      const PlanMemory &m = l.memory[i];
      std::string text;
      if (!p.type.is_tensor() && l.data.scalars.count(p.name)) text = fmt::format("{}", l.data.scalars.at(p.name));
      if (!m.box.empty()) {
        text = m.temporary ? temporaries[m.index].name : header.params[m.index].name;
        std::string spans;
        for (const PlanMemory::Span &b : m.box)
          spans += (spans.empty() ? "" : ", ") +
                   (b.kept ? fmt::format("{} : {}", b.lo, b.lo + b.extent) : fmt::format("{}", b.lo));
        if (!m.whole) text += fmt::format("[{}]", spans);
      }
      out += fmt::format("{} {} = {}", i ? "," : "", p.name, text.empty() ? "none" : text);
    }
    out += "\n";
  }
  return out;
}

} // namespace tkc::driver
