#include "driver/timeline.h"
#include <algorithm>

namespace tkc::driver {

std::vector<TimelineItem> simulate_ring(const LoopReport &loop, int64_t count) {
  const BodyEstimate &e = loop.estimate;
  int64_t stages = *loop.plan.stages.value;
  bool producer = loop.plan.producer.value == "warp";
  // What an iteration takes when its item is there: all but the slots' limit.
  BodyEstimate alone = e;
  alone.items = 0;
  double iteration = std::max(1.0, alone.cycles());
  std::vector<TimelineItem> out;
  for (int64_t c = 0; c < count; c++) {
    TimelineItem t;
    t.slot = c % stages;
    if (producer && c >= stages) t.issued = out[size_t(c - stages)].end;
    if (!producer && c >= stages - 1) t.issued = out[size_t(c - stages + 1)].begin;
    double last = out.empty() ? 0 : out.back().arrived;
    t.arrived = std::max(t.issued + e.copy_latency, last) + e.copy_cycles;
    t.begin = std::max(out.empty() ? 0 : out.back().end, t.arrived);
    t.end = t.begin + iteration;
    out.push_back(t);
  }
  return out;
}

std::string html_escape(std::string_view s) {
  std::string out;
  for (char c : s) switch (c) {
    case '&': out += "&amp;"; break;
    case '<': out += "&lt;"; break;
    case '>': out += "&gt;"; break;
    case '"': out += "&quot;"; break;
    default: out += c;
    }
  return out;
}

namespace {
// 1, 2 or 5 times a power of ten: so that about `count` of them make `span`.
double tick(double span, int count) {
  double step = 1;
  while (step * 10 * count <= span) step *= 10;
  for (double f : {1.0, 2.0, 5.0, 10.0})
    if (step * f * count >= span) return step * f;
  return step * 10;
}
} // namespace

std::string timeline_svg(const LoopReport &loop) {
  constexpr int kLeft = 90, kWidth = 900, kRow = 26, kBar = 18;
  int64_t stages = *loop.plan.stages.value;
  std::vector<TimelineItem> items = simulate_ring(loop, 2 * stages + 2);
  double span = items.back().end;
  auto x = [&](double cycles) { return kLeft + cycles / span * kWidth; };
  int rows = int(stages) + 1, height = rows * kRow + 52;
  std::string out = fmt::format("<svg viewBox=\"0 0 {} {}\" width=\"{}\" role=\"img\" aria-label=\"timeline of {}\">\n",
                                kLeft + kWidth + 20, height, kLeft + kWidth + 20, html_escape(loop.plan.name()));
  auto bar = [&](int row, double from, double to, const char *color, const std::string &label,
                 const std::string &what) {
    double width = x(to) - x(from);
    if (width <= 0) return;
    out += fmt::format("<rect x=\"{:.1f}\" y=\"{}\" width=\"{:.1f}\" height=\"{}\" fill=\"{}\" stroke=\"#fff\">"
                       "<title>{}: cycles {:.0f} to {:.0f}</title></rect>\n",
                       x(from), row * kRow + 4, width, kBar, color, html_escape(what), from, to);
    if (width > 14 && !label.empty())
      out += fmt::format("<text x=\"{:.1f}\" y=\"{}\">{}</text>\n", x(from) + 3, row * kRow + 17, html_escape(label));
  };
  auto title = [&](int row, const std::string &text) {
    out += fmt::format("<text x=\"0\" y=\"{}\">{}</text>\n", row * kRow + 17, html_escape(text));
  };
  for (int64_t s = 0; s < stages; s++) title(int(s), fmt::format("slot {}", s));
  title(int(stages), "iterations");
  for (size_t c = 0; c < items.size(); c++) {
    const TimelineItem &t = items[c];
    std::string n = std::to_string(c);
    bar(int(t.slot), t.issued, t.arrived, "#9ecbff", n, fmt::format("item {} is on its way", c));
    bar(int(t.slot), t.arrived, t.begin, "#d8dee4", "", fmt::format("item {} waits", c));
    bar(int(t.slot), t.begin, t.end, "#7ee2a8", n, fmt::format("item {} is read", c));
    bar(int(stages), t.begin, t.end, "#7ee2a8", n, fmt::format("iteration {}", c));
    double idle = c ? items[c - 1].end : 0;
    bar(int(stages), idle, t.begin, "#ffb3ad", "", fmt::format("iteration {} waits for its item", c));
  }
  int axis = rows * kRow + 6;
  double step = tick(span, 10);
  for (double at = 0; at <= span; at += step)
    out +=
        fmt::format("<line x1=\"{0:.1f}\" y1=\"0\" x2=\"{0:.1f}\" y2=\"{1}\" stroke=\"#d0d7de\" stroke-width=\".5\"/>"
                    "<text x=\"{0:.1f}\" y=\"{2}\">{3:.0f}</text>\n",
                    x(at), axis, axis + 14, at);
  int legend = axis + 32;
  const std::pair<const char *, const char *> colors[] = {{"#9ecbff", "on its way"},
                                                          {"#d8dee4", "waits in its slot"},
                                                          {"#7ee2a8", "is read"},
                                                          {"#ffb3ad", "the loop waits"}};
  int at = kLeft;
  for (const auto &[color, what] : colors) {
    out += fmt::format(
        "<rect x=\"{}\" y=\"{}\" width=\"12\" height=\"12\" fill=\"{}\"/><text x=\"{}\" y=\"{}\">{}</text>\n", at,
        legend - 10, color, at + 16, legend, what);
    at += 140;
  }
  return out + "</svg>\n<p class=\"note\">Cycles from the loop's start, by the cost model.</p>\n";
}

} // namespace tkc::driver
