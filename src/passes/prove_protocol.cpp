#include "passes/prove_protocol.h"
#include "ir/by_hand.h"
#include "ir/ring.h"
#include "passes/by_hand_explore.h"
#include "support/diag_kinds.h"
#include <algorithm>

namespace tkc::passes {

namespace {

constexpr size_t kShownEntries = 48; // of a timeline: its end tells most

const char *condition_text(char c) {
  switch (c) {
  case 'a': return "a slot is overwritten too early";
  case 'b': return "an item is read too early or from the wrong slot";
  case 'c': return "arrivals and barriers do not agree";
  case 'd': return "a wait misses its phase";
  case 'e': return "a proxy fence is missing";
  case 'i': return "an mbarrier is not initialised";
  case 'g': return "copies are in flight at the end";
  case 'h': return "deadlock";
  case 'j': return "accesses of the same bytes are not ordered";
  case 'k': return "warps part at a barrier";
  case 'l': return "an item is left over";
  default: return "";
  }
}

// A row for each step, a column for each agent.
std::string table(protocol::Exploration e, const SourceManager *sources) {
  // The fields of an item in one row.
  for (protocol::Entry &s : e.timeline)
    if (size_t at = s.text.find(" field "); at != std::string::npos) s.text.replace(at, 7, " fields ");
  std::vector<protocol::Entry> rows;
  for (const protocol::Entry &s : e.timeline) {
    size_t at = s.text.find(" fields ");
    bool joins = at != std::string::npos && !rows.empty() && rows.back().agent == s.agent &&
                 rows.back().text.compare(0, at + 8, s.text, 0, at + 8) == 0;
    if (joins)
      rows.back().text += "," + s.text.substr(at + 8);
    else
      rows.push_back(s);
  }
  e.timeline = std::move(rows);
  std::vector<size_t> width;
  for (const std::string &a : e.agents) width.push_back(a.size());
  size_t first = e.timeline.size() > kShownEntries ? e.timeline.size() - kShownEntries : 0;
  for (size_t i = first; i < e.timeline.size(); i++) {
    size_t &w = width[size_t(e.timeline[i].agent)];
    w = std::max(w, e.timeline[i].text.size());
  }
  auto row = [&](const std::string &step, size_t agent, const std::string &text, const std::string &line) {
    std::string out = fmt::format("  {:>4}  ", step);
    for (size_t a = 0; a < width.size(); a++)
      out +=
          fmt::format("{:<{}}  ", a == agent || agent == width.size() ? agent == a ? text : e.agents[a] : "", width[a]);
    out += line;
    while (out.back() == ' ') out.pop_back();
    return out + "\n";
  };
  std::string out = row("", width.size(), "", "line");
  if (first) out += fmt::format("  {:>4}  ({} steps before)\n", "..", first);
  for (size_t i = first; i < e.timeline.size(); i++) {
    const protocol::Entry &s = e.timeline[i];
    std::string line;
    if (sources && s.op && s.op->loc.valid())
      line = std::to_string(sources->file(s.op->loc.file).position(s.op->loc.begin).line);
    out += row(std::to_string(i + 1), size_t(s.agent), s.text, line);
  }
  return out;
}

} // namespace

// By cp.async every lane arrives, by plain stores the warp once more.
protocol::Counts arrival_counts(const protocol::Ring &ring) {
  int64_t each = (ring.sides.copies ? 32 : 0) + (ring.sides.stores ? 1 : 0);
  return {ring.sides.producers * each, each, ring.sides.readers, 1, 1, 1};
}

ProtocolProof prove_protocol(const ir::Function &f, const SourceManager *sources) {
  return prove_protocol(f, sources, arrival_counts, PassOptions().proof_states);
}

namespace {
void conclude(ProtocolProof &out, const protocol::Exploration &e, const SourceManager *sources) {
  out.states += e.states;
  if (e.end == protocol::Exploration::End::Proven) return;
  bool broken = e.end == protocol::Exploration::End::Broken;
  out.verdict = broken ? ProtocolProof::Verdict::Broken : ProtocolProof::Verdict::Unproven;
  out.condition = e.condition;
  out.text = broken ? fmt::format("{}: {}", condition_text(e.condition), e.text) : e.text;
  if (e.op && e.op->loc.valid()) out.loc = e.op->loc;
  out.timeline = table(e, sources);
}

// What the kernel makes by hand (by_hand_program.h).
void prove_by_hand(ProtocolProof &out, const ir::Function &f, const SourceManager *sources, int64_t states) {
  protocol::Obstacle obstacle;
  if (auto program = protocol::extract_by_hand(f, obstacle))
    return conclude(out, protocol::explore_by_hand(*program, states), sources);
  out.verdict = ProtocolProof::Verdict::Unproven;
  out.text = obstacle.text;
  if (obstacle.op && obstacle.op->loc.valid()) out.loc = obstacle.op->loc;
}

ProtocolProof prove_entry(const ir::Function &f, bool tensor_copies, const SourceManager *sources,
                          const ArrivalCounts &counts, int64_t states) {
  ProtocolProof out;
  out.loc = f.loc;
  protocol::Obstacle obstacle;
  std::optional<protocol::Skeleton> skeleton = protocol::extract(f, tensor_copies, obstacle);
  if (!skeleton) {
    out.verdict = ProtocolProof::Verdict::Unproven;
    out.text = obstacle.text;
    if (obstacle.op && obstacle.op->loc.valid()) out.loc = obstacle.op->loc;
    return out;
  }
  if (ir::by_hand(f)) prove_by_hand(out, f, sources, states);
  if (skeleton->rings.empty() || out.verdict != ProtocolProof::Verdict::Proven) return out;
  std::vector<protocol::Counts> of_rings;
  for (const protocol::Ring &ring : skeleton->rings) of_rings.push_back(counts(ring));
  protocol::Exploration e = protocol::explore(*skeleton, of_rings, states);
  conclude(out, e, sources);
  if (out.verdict != ProtocolProof::Verdict::Proven && !skeleton->mismatch.empty())
    out.text += "; " + skeleton->mismatch;
  return out;
}
} // namespace

ProtocolProof prove_protocol(const ir::Function &f, const SourceManager *sources, const ArrivalCounts &counts,
                             int64_t states) {
  bool tma = false;
  ir::walk(f.body, [&](const ir::Op *op) { tma |= op->kind == ir::OpKind::RingAlloc && ir::by_tma(*op); });
  ProtocolProof out = prove_entry(f, true, sources, counts, states);
  if (!tma || out.verdict != ProtocolProof::Verdict::Proven) return out;
  ProtocolProof plain = prove_entry(f, false, sources, counts, states);
  plain.states += out.states;
  if (plain.verdict != ProtocolProof::Verdict::Proven) plain.text += " (in the entry without tensor copies)";
  return plain;
}

bool prove_protocol_pass(ir::Function &f, PassContext &context) {
  ProtocolProof p = prove_protocol(f, &context.diags.sources(), arrival_counts, context.options.proof_states);
  if (p.verdict == ProtocolProof::Verdict::Proven) return false;
  bool broken = p.verdict == ProtocolProof::Verdict::Broken;
  if (!broken) context.unproven = p.text;
  Diagnostic &d =
      context.diags.report(p.loc, broken ? DiagKind::protocol_broken : DiagKind::unproven_protocol, f.name, p.text);
  if (!p.timeline.empty()) d.notes.push_back({{}, "the shortest run that shows it:\n" + p.timeline});
  return false;
}

} // namespace tkc::passes
