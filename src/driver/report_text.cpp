// Reports as text and as JSON.
#include "driver/report.h"
#include <algorithm>
#include <cmath>

namespace tkc::driver {

std::string duration(double seconds) {
  double us = seconds * 1e6;
  if (us >= 1e4) return fmt::format("{:.1f} ms", us / 1e3);
  return us >= 100 ? fmt::format("{:.0f} us", us) : fmt::format("{:.{}f} us", us, us >= 10 ? 1 : 2);
}

std::string synchronisation(const LoopReport &l) {
  return fmt::format("{} for items, {}, {} of a warp, {}", counted(l.waits, "wait"), counted(l.barriers, "barrier"),
                     counted(l.warp_syncs, "sync"), counted(l.fences, "proxy fence"));
}

namespace {

// Each column as wide as its widest.
std::string aligned(const std::vector<std::vector<std::string>> &rows) {
  std::vector<size_t> widths;
  for (const auto &row : rows)
    for (size_t i = 0; i < row.size(); i++) {
      widths.resize(std::max(widths.size(), row.size()));
      widths[i] = std::max(widths[i], row[i].size());
    }
  std::string out;
  for (const auto &row : rows) {
    std::string line = " ";
    for (size_t i = 0; i < row.size(); i++)
      line += i + 1 == row.size() ? " " + row[i] : fmt::format(" {:<{}} ", row[i], widths[i]);
    out += line + "\n";
  }
  return out;
}

std::string text(const ReportTable &t) {
  std::vector<std::vector<std::string>> rows = {t.columns};
  rows.insert(rows.end(), t.rows.begin(), t.rows.end());
  return "\n" + t.title + "\n" + (t.rows.empty() ? "  none\n" : aligned(rows));
}

// "1250 cycles, bound by its ops in order (issue 600, tensor 400, ..)"
std::string text(const BodyEstimate &e) {
  std::string list = fmt::format("in order {:.0f}, issue {:.0f}, tensor {:.0f}, shared {:.0f}, L2 {:.0f}", e.in_order,
                                 e.work.issue, e.work.tensor, e.work.shared, e.work.global);
  if (e.work.recurrence > 0) list += fmt::format(", carried chain {:.0f}", e.work.recurrence);
  if (e.memory > 0) list += fmt::format(", latency of memory {:.0f}", e.memory);
  if (e.items > 0) list += fmt::format(", slots {:.0f}", e.items);
  return fmt::format("{:.0f} cycles, bound by {} ({})", e.cycles(), e.bound(), list);
}

std::string case_line(const CaseEstimate &c) {
  if (!c.problem.empty()) return fmt::format("{}: {}", c.name, c.problem);
  std::string out = fmt::format("{}: {}", c.name, duration(c.seconds()));
  for (const LaunchEstimate &p : c.parts) {
    std::string limits;
    for (const auto &[name, seconds] : p.each.limits)
      limits += fmt::format("{}{} {}", limits.empty() ? "" : ", ", name, duration(seconds));
    out += fmt::format("; {}{}: {} blocks, {} at a time on an SM ({} registers), bound by {} ({})", p.entry,
                       p.launches > 1 ? fmt::format(" x {}", p.launches) : "", p.each.blocks, p.each.blocks_per_sm,
                       p.registers, p.each.bound, limits);
  }
  return out;
}

Json json(const BodyEstimate &e) {
  Json j = Json::object();
  if (!e.role.empty()) j.set("role", e.role);
  if (!e.loop.empty()) j.set("loop", e.loop);
  j.set("cycles", std::round(e.cycles())).set("boundBy", e.bound());
  j.set("inOrder", std::round(e.in_order)).set("issue", std::round(e.work.issue));
  j.set("tensor", std::round(e.work.tensor)).set("shared", std::round(e.work.shared));
  j.set("l2", std::round(e.work.global)).set("carriedChain", std::round(e.work.recurrence));
  return j.set("memoryLatency", std::round(e.memory)).set("slots", std::round(e.items));
}

Json json(const LoopReport &l) {
  Json j = Json::object(), fields = Json::array(), left = Json::array();
  const passes::LoopPlan &p = l.plan;
  j.set("loop", p.name());
  if (p.synchronous.value) j.set("synchronous", *p.synchronous.value);
  if (p.stages.value) j.set("stages", *p.stages.value);
  if (p.transport.value) j.set("transport", *p.transport.value);
  if (p.producer.value) j.set("producer", *p.producer.value);
  if (p.stage_bytes.value) j.set("stageBytes", *p.stage_bytes.value);
  for (const passes::FieldPlan &f : p.fields) {
    Json shape = Json::array();
    for (int64_t n : f.tile) shape.push(n);
    fields.push(Json::object()
                    .set("tensor", f.tensor)
                    .set("dtype", std::string(dtype_name(f.dtype)))
                    .set("tile", std::move(shape))
                    .set("offset", f.offset)
                    .set("layout", f.layout));
  }
  if (p.asks_ahead.value) j.set("asksAhead", *p.asks_ahead.value);
  if (p.unroll.value) j.set("unroll", *p.unroll.value);
  Json ahead = Json::array();
  for (const passes::AheadLoad &a : p.ahead)
    ahead.push(Json::object().set("tensor", a.tensor).set("iterations", a.distance));
  if (!p.ahead.empty()) j.set("ahead", std::move(ahead));
  if (!p.fields.empty()) j.set("fields", std::move(fields));
  for (const passes::SynchronousLoad &s : p.left)
    left.push(Json::object().set("tensor", s.tensor).set("reason", s.reason));
  if (!p.left.empty()) j.set("synchronousLoads", std::move(left));
  if (!p.not_tma.empty()) j.set("notTma", p.not_tma);
  if (!p.plain.empty()) j.set("plainCopies", p.plain);
  if (!p.fewer.empty()) j.set("fewerStages", p.fewer);
  if (!p.modulo.empty()) j.set("modulo", p.modulo);
  j.set("waits", l.waits).set("barriers", l.barriers).set("warpSyncs", l.warp_syncs).set("proxyFences", l.fences);
  return j.set("iteration", json(l.estimate));
}

} // namespace

std::string to_text(const KernelReport &r) {
  std::string params;
  for (const auto &[name, value] : r.bindings)
    params += fmt::format("{} {} = {}", params.empty() ? "" : ",", name, value);
  std::string out =
      fmt::format("kernel {} on {}, planned for {}:{}\n  grid{} ({}), warps {}, {} B of shared memory\n", r.kernel,
                  r.target, r.part, params, r.persistent ? " persistent" : "", r.grid, r.warps, r.shared_bytes);
  auto table = [&](size_t i) { out += text(r.tables[i]); };
  table(0);
  table(1);
  out += "\nloops\n";
  for (const LoopReport &l : r.loops) {
    std::vector<std::string> lines = l.plan.statements();
    lines.push_back(synchronisation(l));
    lines.push_back("an iteration: " + text(l.estimate));
    for (size_t i = 0; i < lines.size(); i++) out += (i ? "    " : "  ") + lines[i] + "\n";
  }
  if (r.loops.empty()) out += "  none with loads of tiles\n";
  for (size_t i = 2; i < r.tables.size(); i++) table(i);
  out += fmt::format("\nregisters\n  tiles and addresses need about {} of a thread\n", r.registers);
  for (const std::string &line : r.assembled) out += "  " + line + "\n";
  out += "\nthe rest, each time it is executed\n";
  for (const BodyEstimate &e : r.bodies) {
    std::string what = e.loop.empty() ? "outside of loops" : "loop " + e.loop;
    out += fmt::format("  {}{}: {}\n", e.role.empty() ? "" : e.role + ", ", what, text(e));
  }
  if (r.bodies.empty()) out += "  nothing\n";
  ReportTable remarks{"remarks", {"line", ""}, {}};
  for (const auto &[line, what] : r.remarks) remarks.rows.push_back({line, what});
  return out + "\nremarks\n" + (remarks.rows.empty() ? "  none\n" : aligned(remarks.rows));
}

std::string to_text(const std::vector<CaseEstimate> &cases) {
  if (cases.empty()) return "";
  std::string out = "estimated time of the cases of bench blocks\n";
  for (const CaseEstimate &c : cases) out += "  " + case_line(c) + "\n";
  return out;
}

std::string schedule_text(const std::vector<KernelReport> &kernels, const std::vector<CaseEstimate> &cases) {
  std::string out;
  for (const KernelReport &r : kernels) {
    if (!out.empty()) out += "\n";
    // The kernel's lines, then those of each loop with what is known of it.
    passes::KernelPlan head = r.plan;
    head.loops.clear();
    out += head.to_string();
    out += fmt::format("# {} warps, about {} registers of a thread\n", r.warps, r.registers);
    for (const LoopReport &l : r.loops) {
      passes::KernelPlan one;
      one.loops = {l.plan};
      std::string lines = one.to_string();
      out += lines.substr(lines.find('\n') + 1);
      out += fmt::format("  # {}\n  # an iteration: {}\n", synchronisation(l), text(l.estimate));
    }
    for (const auto &row : r.tables[2].rows)
      out += fmt::format("# line {}: {} is read by {}, wavefronts {}\n", row[0], row[1], row[2], row[3]);
    for (const auto &[line, what] : r.remarks) out += fmt::format("# line {}: {}\n", line, what);
  }
  for (const CaseEstimate &c : cases) out += fmt::format("# bench {}\n", case_line(c));
  return out;
}

Json schedule_json(const std::vector<KernelReport> &kernels, const std::vector<CaseEstimate> &cases) {
  Json out = Json::object(), list = Json::array(), times = Json::array();
  for (const KernelReport &r : kernels) {
    Json j = Json::object(), params = Json::object(), loops = Json::array(), rest = Json::array(),
         remarks = Json::array();
    for (const auto &[name, value] : r.bindings) params.set(name, value);
    j.set("kernel", r.kernel).set("target", r.target).set("part", r.part).set("params", std::move(params));
    j.set("grid", r.grid)
        .set("persistent", r.persistent)
        .set("warps", r.warps)
        .set("sharedBytes", r.shared_bytes)
        .set("registers", r.registers);
    for (const LoopReport &l : r.loops) loops.push(json(l));
    j.set("loops", std::move(loops));
    for (const BodyEstimate &e : r.bodies) rest.push(json(e));
    j.set("rest", std::move(rest));
    constexpr const char *kKeys[] = {"products", "conversions", "ringReads", "sharedMemory"};
    for (size_t i = 0; i < r.tables.size(); i++) {
      Json rows = Json::array();
      for (const auto &row : r.tables[i].rows) {
        Json cells = Json::object();
        for (size_t c = 0; c < row.size(); c++) cells.set(r.tables[i].columns[c], row[c]);
        rows.push(std::move(cells));
      }
      j.set(kKeys[i], std::move(rows));
    }
    for (const auto &[line, what] : r.remarks) remarks.push(Json::object().set("line", line).set("text", what));
    list.push(j.set("remarks", std::move(remarks)));
  }
  for (const CaseEstimate &c : cases) {
    Json j = Json::object(), parts = Json::array();
    j.set("case", c.name);
    if (!c.problem.empty()) {
      times.push(j.set("problem", c.problem));
      continue;
    }
    for (const LaunchEstimate &p : c.parts) {
      Json limits = Json::object();
      for (const auto &[name, seconds] : p.each.limits) limits.set(name, seconds);
      parts.push(Json::object()
                     .set("entry", p.entry)
                     .set("launches", p.launches)
                     .set("registers", p.registers)
                     .set("blocks", p.each.blocks)
                     .set("blocksPerSM", p.each.blocks_per_sm)
                     .set("seconds", p.each.seconds)
                     .set("boundBy", p.each.bound)
                     .set("limits", std::move(limits)));
    }
    times.push(j.set("seconds", c.seconds()).set("launches", std::move(parts)));
  }
  return out.set("kernels", std::move(list)).set("benchCases", std::move(times));
}

} // namespace tkc::driver
