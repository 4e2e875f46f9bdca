// Reports as one HTML page.
#include "driver/report.h"
#include "driver/timeline.h"
#include <algorithm>

namespace tkc::driver {

namespace {

constexpr const char *kStyle = R"(
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 75em; padding: 0 1em; color: #1b1f24; }
h1, h2, h3 { line-height: 1.2; } h2 { margin-top: 2em; border-bottom: 1px solid #d0d7de; }
table { border-collapse: collapse; margin: .5em 0 1em; } th, td { text-align: left; padding: .2em .8em; vertical-align: top; }
th { border-bottom: 2px solid #d0d7de; } td { border-bottom: 1px solid #eaeef2; }
code, pre { font: 13px/1.4 ui-monospace, monospace; } pre { background: #f6f8fa; padding: .8em; overflow-x: auto; }
svg { max-width: 100%; height: auto; } svg text { font: 12px system-ui, sans-serif; fill: #1b1f24; }
.note { color: #57606a; }
)";

std::string heading(int level, const std::string &text) {
  return fmt::format("<h{}>{}</h{}>\n", level, html_escape(text), level);
}
std::string paragraph(const std::string &text) { return fmt::format("<p>{}</p>\n", html_escape(text)); }

std::string html(const ReportTable &t) {
  std::string out = heading(3, t.title);
  if (t.rows.empty()) return out + "<p class=\"note\">none</p>\n";
  out += "<table><tr>";
  for (const std::string &c : t.columns) out += "<th>" + html_escape(c) + "</th>";
  out += "</tr>\n";
  for (const auto &row : t.rows) {
    out += "<tr>";
    for (const std::string &c : row) out += "<td>" + html_escape(c) + "</td>";
    out += "</tr>\n";
  }
  return out + "</table>\n";
}

std::vector<std::string> row_of(const BodyEstimate &e, const std::string &what) {
  auto n = [](double v) { return fmt::format("{:.0f}", v); };
  return {what,
          n(e.cycles()),
          e.bound(),
          n(e.in_order),
          n(e.work.issue),
          n(e.work.tensor),
          n(e.work.shared),
          n(e.work.global),
          n(e.work.recurrence),
          n(e.memory),
          n(e.items)};
}

ReportTable estimates(const KernelReport &r) {
  ReportTable t{"cycles of a block alone on its SM, each time it is executed",
                {"what", "cycles", "bound by", "ops in order", "issue", "tensor", "shared", "L2", "carried chain",
                 "latency of memory", "slots"},
                {}};
  for (const LoopReport &l : r.loops) t.rows.push_back(row_of(l.estimate, "loop " + l.plan.name()));
  for (const BodyEstimate &e : r.bodies)
    t.rows.push_back(
        row_of(e, (e.role.empty() ? "" : e.role + ": ") + (e.loop.empty() ? "outside of loops" : "loop " + e.loop)));
  return t;
}

std::string html(const LoopReport &l) {
  std::vector<std::string> lines = l.plan.statements();
  std::string out = heading(3, lines[0]) + "<pre>";
  for (size_t i = 1; i < lines.size(); i++) out += html_escape(lines[i]) + "\n";
  out += html_escape("an iteration: " + synchronisation(l));
  out += "</pre>\n";
  return l.plan.synchronous.value ? out : out + timeline_svg(l);
}

std::string html(const KernelReport &r) {
  std::string out = heading(2, fmt::format("kernel {} on {}", r.kernel, r.target));
  std::string params;
  for (const auto &[name, value] : r.bindings)
    params += fmt::format("{}{} = {}", params.empty() ? "" : ", ", name, value);
  out += paragraph(
      fmt::format("Planned for {}{}. {} ({}), warps {}, {} B of shared memory, about {} registers of a thread.", r.part,
                  params.empty() ? "" : " with " + params, r.persistent ? "Persistent grid" : "Grid", r.grid, r.warps,
                  r.shared_bytes, r.registers));
  for (const std::string &line : r.assembled) out += paragraph(line);
  if (r.loops.empty()) out += paragraph("No loop has loads of tiles.");
  for (const LoopReport &l : r.loops) out += html(l);
  out += html(estimates(r));
  for (const ReportTable &t : r.tables) out += html(t);
  ReportTable remarks{"remarks", {"line", "what is slower than it could be, and why"}, {}};
  for (const auto &[line, what] : r.remarks) remarks.rows.push_back({line, what});
  return out + html(remarks);
}

ReportTable table(const std::string &target, const std::vector<CaseEstimate> &cases) {
  ReportTable t{"estimated time of the cases of bench blocks on " + target,
                {"case", "launch", "time", "blocks", "at a time on an SM", "registers", "bound by", "limits"},
                {}};
  for (const CaseEstimate &c : cases) {
    if (!c.problem.empty()) t.rows.push_back({c.name, c.problem});
    if (c.parts.size() > 1) t.rows.push_back({c.name, "all", duration(c.seconds())});
    for (const LaunchEstimate &p : c.parts) {
      std::string limits;
      for (const auto &[name, seconds] : p.each.limits)
        limits += fmt::format("{}{} {}", limits.empty() ? "" : ", ", name, duration(seconds));
      t.rows.push_back({c.name, p.launches > 1 ? fmt::format("{} x {}", p.entry, p.launches) : p.entry,
                        duration(double(p.launches) * p.each.seconds), std::to_string(p.each.blocks),
                        std::to_string(p.each.blocks_per_sm), std::to_string(p.registers), p.each.bound, limits});
    }
  }
  return t;
}

} // namespace

std::string to_html(const ReportPage &page) {
  std::string out = "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>" +
                    html_escape(page.title) + "</title>\n<style>" + kStyle + "</style></head>\n<body>\n";
  out += heading(1, page.title);
  for (const auto &[target, cases] : page.cases)
    if (!cases.empty()) out += html(table(target, cases));
  for (const KernelReport &r : page.kernels) out += html(r);
  return out + "</body></html>\n";
}

} // namespace tkc::driver
