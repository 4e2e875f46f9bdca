#include "passes/protocol_explore.h"
#include "ir/op_def.h"
#include "passes/protocol_state.h"
#include "support/check.h"
#include <algorithm>
#include <cstring>
#include <utility>

namespace tkc::passes::protocol {

namespace {

constexpr int16_t kMostAge = 64;    // of groups: no wait leaves more pending
constexpr int kMostBits = 14;       // of a stream
constexpr int16_t kMostItem = 8192; // a counter that far from all others is not followed

struct Failure {
  char condition = ' ';
  std::string text;
  const Instr *at = nullptr;
  int agent = 0;
  bool limit = false; // of the exploration, not of the kernel
};

// One way to go on from a state.
struct Next {
  Cells cells;
  std::vector<Entry> log; // filled while a run is told
  std::optional<Failure> failure;
};

// The states that were met, in order: their cells one behind the other, and a table of them by hash.
class States {
public:
  explicit States(size_t cells) : cells_(cells), table_(1024) {}
  size_t size() const { return hashes_.size(); }
  // Whether it was not there yet.
  bool add(const Cells &c) {
    uint64_t h = hash(c);
    if (2 * hashes_.size() >= table_.size()) grow();
    size_t at = place(h, c);
    if (table_[at]) return false;
    all_.insert(all_.end(), c.begin(), c.end());
    hashes_.push_back(h);
    table_[at] = uint32_t(hashes_.size());
    return true;
  }
  void get(size_t i, Cells &c) const { c.assign(begin(i), begin(i) + cells_); }

private:
  const int16_t *begin(size_t i) const { return all_.data() + i * cells_; }
  // Where it is or belongs.
  size_t place(uint64_t h, const Cells &c) const {
    size_t at = h & (table_.size() - 1);
    while (uint32_t n = table_[at]) {
      if (hashes_[n - 1] == h && std::equal(c.begin(), c.end(), begin(n - 1))) break;
      at = (at + 1) & (table_.size() - 1);
    }
    return at;
  }
  void grow() {
    std::vector<uint32_t> old = std::exchange(table_, std::vector<uint32_t>(2 * table_.size()));
    for (uint32_t n : old) {
      if (!n) continue;
      size_t at = hashes_[n - 1] & (table_.size() - 1);
      while (table_[at]) at = (at + 1) & (table_.size() - 1);
      table_[at] = n;
    }
  }
  static uint64_t hash(const Cells &c) {
    // Four cells a step: each waits for the multiplication before.
    uint64_t h = 0x9e3779b97f4a7c15u;
    auto mix = [&h](uint64_t word) { h = (h ^ word) * 0xff51afd7ed558ccdu, h ^= h >> 32; };
    size_t i = 0;
    for (uint64_t word; i + 4 <= c.size(); i += 4) {
      std::memcpy(&word, &c[i], sizeof word);
      mix(word);
    }
    for (; i < c.size(); i++) mix(uint64_t(uint16_t(c[i])));
    return h;
  }

  size_t cells_;
  std::vector<int16_t> all_;
  std::vector<uint64_t> hashes_;
  std::vector<uint32_t> table_; // numbers of states from 1 on; 0: free
};

class Explorer {
public:
  // `symmetric`: of states that differ only in which of a role's two agents is which, one is looked at.
  Explorer(const Skeleton &s, const std::vector<Counts> &counts, bool symmetric)
      : s_(s), counts_(counts), l_(s), seen_(l_.cells()) {
    for (size_t r = 0; r < s.rings.size(); r++) {
      writers_.push_back(writers_of(int(r)));
      fillers_.push_back(
          agents_with([&](const Instr &i, int a) { return i.act == Act::Fill && i.ring == int(r) && executes(a, i); }));
      users_.push_back(agents_with([&](const Instr &i, int) {
        return i.ring >= 0 && i.act != Act::NewRing && ring(i.ring).component == int(r);
      }));
    }
    for (int st = 0; st < s.streams; st++)
      readers_.push_back(agents_with([&](const Instr &i, int) { return i.stream == st; }));
    for (int a = 0; a + 1 < l_.agents() && symmetric; a++)
      if (l_.role(a) == l_.role(a + 1) && alike(l_.role(a))) twins_.push_back(a);
  }
  bool has_twins() const { return !twins_.empty(); }

  Exploration run(int64_t limit) {
    Exploration out;
    for (int a = 0; a < l_.agents(); a++) out.agents.push_back(name(a));
    int16_t all = 0;
    for (int a = 0; a < l_.agents(); a++) all |= bit(a);
    start_ = all;
    std::vector<Next> first;
    go(l_.initial(), all, first);
    if (!add(-1, std::move(first), out)) return out;
    Cells cells;
    for (size_t at = 0; at < states_.size(); at++) {
      seen_.get(at, cells);
      std::vector<Next> next = successors(cells);
      if (!add(int64_t(at), std::move(next), out)) return out;
      if (int64_t(states_.size()) > limit) {
        out.end = Exploration::End::Unproven;
        out.text = fmt::format("more than {} states; fewer slots or simpler control flow would do", limit);
        out.states = int64_t(states_.size());
        return out;
      }
    }
    out.states = int64_t(states_.size());
    return out;
  }

private:
  struct State { // its cells are in seen_
    int64_t parent;
    int32_t choice; // of the parent's successors
  };

  static int16_t bit(int agent) { return int16_t(1 << agent); }
  const std::vector<Instr> &code(int agent) const { return s_.roles[size_t(l_.role(agent))].code; }
  const Instr &at(Cells &c, int agent) const { return code(agent)[size_t(l_.place(c, agent))]; }
  // As the source calls it, or its number.
  std::string label(int r) const {
    const std::string &name = ring(r).op->result()->name;
    return name.empty() ? std::to_string(r) : name;
  }
  const Counts &counts(int r) const { return counts_[size_t(r)]; }
  const Ring &ring(int r) const { return s_.rings[size_t(r)]; }

  std::string name(int agent) const {
    const Role &role = s_.roles[size_t(l_.role(agent))];
    if (role.warps == 1) return s_.roles.size() == 1 ? "the warp" : role.name;
    bool first = agent == 0 || l_.role(agent - 1) != l_.role(agent);
    std::string whose = s_.roles.size() == 1 ? "" : role.name + ": ";
    return whose + (first ? "one warp" : role.warps == 2 ? "the other warp" : "the other warps");
  }

  // Agents whose copies or stores may hit the ring's bytes.
  int16_t writers_of(int r) const {
    return agents_with([&](const Instr &i, int a) {
      if (!executes(a, i)) return false;
      const std::vector<int> &others = ring(r).overlaps;
      if (i.act == Act::Touch) return std::count(i.touched.begin(), i.touched.end(), r) > 0;
      return i.act == Act::Fill && (i.ring == r || std::count(others.begin(), others.end(), i.ring) > 0);
    });
  }
  template <typename F> int16_t agents_with(F &&does) const {
    int16_t bits = 0;
    for (int a = 0; a < l_.agents(); a++)
      if (std::any_of(code(a).begin(), code(a).end(), [&](const Instr &i) { return does(i, a); })) bits |= bit(a);
    return bits;
  }
  // Copies by tma are started by the role's first warp alone.
  bool executes(int a, const Instr &i) const {
    bool starts = i.act == Act::Fill || i.act == Act::Publish;
    return !starts || !ring(i.ring).tma || l_.first_of_role(a);
  }

  // ---- the graph of states

  // False: the exploration has ended, and `out` says how.
  bool add(int64_t parent, std::vector<Next> next, Exploration &out) {
    for (size_t i = 0; i < next.size(); i++) {
      if (next[i].failure) {
        tell(parent, int32_t(i), *next[i].failure, out);
        return false;
      }
      normalise(next[i].cells);
      for (int a : twins_) sort(next[i].cells, a);
      if (seen_.add(next[i].cells)) states_.push_back({parent, int32_t(i)});
    }
    return true;
  }

  void tell(int64_t parent, int32_t choice, const Failure &f, Exploration &out) {
    std::vector<std::pair<int64_t, int32_t>> path{{parent, choice}};
    for (int64_t p = parent; p >= 0; p = states_[size_t(p)].parent)
      path.emplace_back(states_[size_t(p)].parent, states_[size_t(p)].choice);
    telling_ = true;
    std::reverse(path.begin(), path.end());
    for (auto [from, which] : path) {
      std::vector<Next> next;
      if (from < 0)
        go(l_.initial(), start_, next);
      else {
        Cells cells;
        seen_.get(size_t(from), cells);
        next = successors(cells);
      }
      for (Entry &e : next[size_t(which)].log) out.timeline.push_back(std::move(e));
    }
    out.end = f.limit ? Exploration::End::Unproven : Exploration::End::Broken;
    out.condition = f.condition;
    out.text = f.text;
    out.op = f.at ? f.at->op : nullptr;
    out.states = int64_t(states_.size());
  }

  // ---- steps

  std::vector<Next> successors(Cells &from) {
    std::vector<Next> out;
    Cells &c = from;
    int16_t ended = 0;
    for (int a = 0; a < l_.agents(); a++)
      if (at(c, a).act == Act::Exit) ended |= bit(a);
    if (ended == start_) return at_end(from);
    for (int a = 0; a < l_.agents(); a++) {
      if (l_.queue_size(c, a) > 0) complete(from, a, out);
      const Instr &i = at(c, a);
      bool first = (l_.members(l_.role(a)) & (bit(a) - 1)) == 0;
      bool barrier = i.act == Act::Barrier || (i.act == Act::Wait && !ring(i.ring).mbarrier);
      if (barrier) {
        if (first) meet(from, l_.role(a), out);
      } else if (i.act == Act::Wait || i.act == Act::Acquire) {
        pass_mbarrier(from, a, i, out);
      } else if (i.act == Act::Branch) {
        go(from, bit(a), out, true);
      }
    }
    if (!out.empty()) return out;
    Next stuck{from, {}, std::nullopt};
    deadlock(stuck, ended);
    return {stuck};
  }

  // Every agent has ended.
  std::vector<Next> at_end(const Cells &from) {
    Next n{from, {}, std::nullopt};
    for (int r = 0; r < int(s_.rings.size()); r++)
      for (int k = 0; k < ring(r).stages; k++)
        for (int a = 0; a < l_.agents(); a++)
          if (Copy x = l_.copy(n.cells, r, k, a); x.age >= 0)
            fail(n, a, at(n.cells, a), 'g', "the block ends while the copy of item {} of ring {} is in flight",
                 int(x.item), label(r));
    for (int r = 0; r < int(s_.rings.size()); r++)
      for (int k = 0; k < ring(r).stages && ring(r).producer; k++)
        if (l_.full(n.cells, r, k).number != l_.empty(n.cells, r, k).number)
          fail(n, 0, at(n.cells, 0), 'l',
               "the block ends while slot {} of ring {} holds an item that was never released", k, label(r));
    return n.failure ? std::vector<Next>{n} : std::vector<Next>{};
  }

  void deadlock(Next &n, int16_t ended) {
    std::string text = "no warp can go on:";
    const Instr *where = nullptr;
    for (int a = 0; a < l_.agents(); a++) {
      const Instr &i = at(n.cells, a);
      text += fmt::format("{} {} ", a ? ";" : "", name(a));
      if (ended & bit(a)) {
        text += "has ended";
      } else {
        text += i.act == Act::Barrier ? "waits at a barrier" : fmt::format("waits at `{}`", describe(n.cells, a, i));
        where = &i;
      }
    }
    fail(n, 0, *where, 'h', "{}", text);
  }

  // The oldest published item of the agent completes: its copies are there, and the warp's lanes arrive.
  void complete(const Cells &from, int a, std::vector<Next> &out) {
    Next n{from, {}, std::nullopt};
    int r = l_.queued(n.cells, a, 0)[0], item = l_.queued(n.cells, a, 0)[1];
    int16_t &size = l_.queue_size(n.cells, a);
    for (int k = 0; k + 1 < size; k++) std::copy_n(l_.queued(n.cells, a, k + 1), 2, l_.queued(n.cells, a, k));
    size--;
    std::fill_n(l_.queued(n.cells, a, size), 2, int16_t(0));
    each_copy(n.cells, a, true, [&](Copy x, int) {
      if (x.age == 1)
        x.age = -1;
      else if (x.age > 1)
        x.age--;
    });
    const Instr *publish = nullptr;
    for (const Instr &i : code(a))
      if (i.act == Act::Publish && i.ring == r) publish = &i;
    if (telling_) n.log.push_back({a, publish->op, fmt::format("(copies of ring {} item {} arrive)", label(r), item)});
    int k = int(item % ring(r).stages);
    bool tma = ring(r).tma;
    arrive(n, a, *publish, l_.full(n.cells, r, k), item / int(ring(r).stages),
           tma ? counts(r).tma_init : counts(r).full_init, tma ? counts(r).tma_arrivals : counts(r).full_arrivals,
           "full", item, r, !tma);
    out.push_back(std::move(n));
  }

  // `all`: the other warps of the role arrive as well.
  void arrive(Next &n, int a, const Instr &i, Phase p, int phase, int64_t expected, int64_t each, const char *which,
              int item, int r, bool all = true) {
    if (p.number != phase)
      return fail(n, a, i, 'c',
                  "the arrival for item {} of ring {} falls into phase {} of the slot's `{}` barrier, not {}", item,
                  label(r), int(p.number), which, phase);
    if (p.arrived & bit(a))
      return fail(n, a, i, 'c', "{} arrives twice for item {} of ring {}", name(a), item, label(r));
    p.arrived |= bit(a);
    int64_t sum = 0;
    for (int o = 0; o < l_.agents(); o++)
      if (p.arrived & bit(o)) sum += each * (all ? l_.weight(o) : 1);
    if (sum > expected)
      return fail(n, a, i, 'c', "{} arrivals for item {} of ring {}; its `{}` barrier expects {}", sum, item, label(r),
                  which, expected);
    if (sum < expected) return;
    p.number++;
    p.arrived = 0;
  }

  void pass_mbarrier(const Cells &from, int a, const Instr &i, std::vector<Next> &out) {
    Next n{from, {}, std::nullopt};
    bool acquire = i.act == Act::Acquire;
    int item = 0, k = 0;
    if (!item_of(n, a, i, item, k)) {
      out.push_back(std::move(n));
      return;
    }
    int phase = item / int(ring(i.ring).stages) - (acquire ? 1 : 0);
    Phase p = acquire ? l_.empty(n.cells, i.ring, k) : l_.full(n.cells, i.ring, k);
    if (p.number == phase) return; // not yet
    note_op(n, a, i);
    if (p.number != phase + 1) {
      fail(n, a, i, 'd',
           "waits for phase {} of a barrier that has completed {}: its parity tells nothing of that phase", phase,
           int(p.number));
    } else if (acquire) {
      for (int o = 0; o < l_.agents(); o++)
        if (Mark m = l_.read(n.cells, i.ring, k, o); m.state >= 2) {
          m.known |= bit(a);
          if (m.state == 3) m.fenced |= bit(a);
        }
    } else {
      for (int o = 0; o < l_.agents(); o++)
        if (Copy x = l_.copy(n.cells, i.ring, k, o); x.age < 0) x.visible |= bit(a);
      arrived_item(n, a, i, item, k);
    }
    if (n.failure) {
      out.push_back(std::move(n));
      return;
    }
    l_.place(n.cells, a)++;
    resume(std::move(n), bit(a), out);
  }

  // A barrier of the role's agents, if all have come to it.
  void meet(const Cells &from, int role, std::vector<Next> &out) {
    Next n{from, {}, std::nullopt};
    int16_t members = l_.members(role);
    int first = -1;
    for (int a = 0; a < l_.agents(); a++) {
      if (!(members & bit(a))) continue;
      const Instr &i = at(n.cells, a);
      if (i.act != Act::Barrier && !(i.act == Act::Wait && !ring(i.ring).mbarrier)) return;
      if (first < 0) first = a;
      if (&i != &at(n.cells, first)) {
        fail(n, a, i, 'k', "{} and {} meet at different barriers", name(first), name(a));
        out.push_back(std::move(n));
        return;
      }
    }
    const Instr &i = at(n.cells, first);
    for (int a = first; a < l_.agents(); a++) {
      if (!(members & bit(a))) continue;
      note_op(n, a, i);
      if (i.act == Act::Wait)
        each_copy(n.cells, a, false, [&](Copy x, int) {
          if (x.age <= i.pending || x.age < 0) return;
          x.age = -1;
          x.visible |= bit(a);
        });
    }
    auto spread = [&](int16_t &known) {
      if (known & members) known |= members;
    };
    for (int r = 0; r < int(s_.rings.size()); r++)
      for (int a = 0; a < l_.agents(); a++) {
        auto pass = [&](Mark m) {
          if (m.state && (members & bit(a))) {
            m.known |= members;
            if (m.fenced & kFence) m.fenced |= members;
          }
          spread(m.known);
          spread(m.fenced);
        };
        pass(l_.other(n.cells, r, a));
        for (int k = 0; k < ring(r).stages; k++) {
          pass(l_.read(n.cells, r, k, a));
          spread(l_.copy(n.cells, r, k, a).visible);
        }
      }
    for (int a = first; a < l_.agents() && i.act == Act::Wait && !n.failure; a++) {
      int item = 0, k = 0;
      if ((members & bit(a)) && item_of(n, a, i, item, k)) arrived_item(n, a, i, item, k);
    }
    if (n.failure) {
      out.push_back(std::move(n));
      return;
    }
    for (int a = 0; a < l_.agents(); a++)
      if (members & bit(a)) l_.place(n.cells, a)++;
    resume(std::move(n), members, out);
  }

  // After a wait every writer's copies of the item must be complete.
  void arrived_item(Next &n, int a, const Instr &i, int item, int k) {
    for (int o = 0; o < l_.agents() && !n.failure; o++) {
      if (!fills(o, i.ring)) continue;
      Copy x = l_.copy(n.cells, i.ring, k, o);
      if (x.item != item || x.instance != l_.instance(n.cells, a, i.ring))
        fail(n, a, i, 'b', "the wait for item {} of ring {} ends while its slot {} holds {}", item, label(i.ring), k,
             content(x));
      else if (x.age >= 0)
        fail(n, a, i, 'b', "the wait for item {} of ring {} ends while its copies are in flight", item, label(i.ring));
    }
  }
  static std::string content(Copy x) { return x.item == kNone ? "nothing of it" : fmt::format("item {}", int(x.item)); }
  bool fills(int agent, int r) const { return fillers_[size_t(r)] & bit(agent); }

  void go(const Cells &from, int16_t agents, std::vector<Next> &out, bool past_stop = false) {
    resume({from, {}, std::nullopt}, agents, out, past_stop);
  }

  // Each of the agents executes up to its next blocking op. Every bit that has not been taken before is tried both
  // ways.
  void resume(Next n, int16_t agents, std::vector<Next> &out, bool past_stop = false) {
    std::vector<std::pair<Next, bool>> work;
    work.emplace_back(std::move(n), past_stop);
    for (size_t at_work = 0; at_work < work.size(); at_work++) {
      auto [now, past] = std::move(work[at_work]);
      bool split = false;
      for (int a = 0; a < l_.agents() && !split && !now.failure; a++) {
        if (!(agents & bit(a))) continue;
        while (!now.failure) {
          const Instr &i = at(now.cells, a);
          if (blocks(i) || i.act == Act::Exit || (i.stops && !past)) break;
          int undecided = execute(now, a, i);
          if (undecided >= 0) {
            for (int16_t value : {int16_t(1), int16_t(0)}) {
              Next copy = now;
              append(copy, a, i, undecided, value);
              work.emplace_back(std::move(copy), past);
            }
            split = true;
            break;
          }
          if (i.act == Act::Branch) past = false;
        }
        if (!split && !now.failure && at(now.cells, a).act == Act::Exit) leave(now, a);
      }
      if (!split) out.push_back(std::move(now));
    }
  }
  static bool blocks(const Instr &i) { return i.act == Act::Acquire || i.act == Act::Wait || i.act == Act::Barrier; }

  void append(Next &n, int a, const Instr &i, int stream, int16_t value) {
    int16_t &length = l_.length(n.cells, stream);
    if (length >= kMostBits) return limit(n, a, i, "warps run too many iterations ahead of each other");
    l_.bits(n.cells, stream) |= int16_t(value << length);
    length++;
  }

  void leave(Next &n, int a) {
    each_copy(n.cells, a, false, [&](Copy x, int r) {
      if (x.age >= 0)
        fail(n, a, at(n.cells, a), 'g', "{} ends while its copy of item {} of ring {} is in flight", name(a),
             int(x.item), label(r));
    });
  }

  // Returns the stream whose next bit the op needs, and has then done nothing; else -1.
  int execute(Next &n, int a, const Instr &i) {
    if (!executes(a, i)) {
      l_.place(n.cells, a)++;
      return -1;
    }
    switch (i.act) {
    case Act::Jump: l_.place(n.cells, a) = int16_t(i.target); return -1;
    case Act::Assign: assign(n, a, i); break;
    case Act::Test: {
      bool on = value(n.cells, a, i.counter) < i.limit;
      l_.place(n.cells, a) = on ? int16_t(l_.place(n.cells, a) + 1) : int16_t(i.target);
      return -1;
    }
    case Act::Branch: {
      int16_t &taken = l_.taken(n.cells, i.stream, a);
      if (taken >= l_.length(n.cells, i.stream)) return i.stream;
      bool on = l_.bits(n.cells, i.stream) >> taken & 1;
      taken++;
      bool loop = i.op->kind != ir::OpKind::If;
      if (telling_)
        n.log.push_back({a, i.op, loop ? on ? "loop: an iteration" : "loop: ends" : on ? "if: true" : "if: false"});
      l_.place(n.cells, a) = on ? int16_t(l_.place(n.cells, a) + 1) : int16_t(i.target);
      return -1;
    }
    case Act::Fill:
    case Act::Publish: {
      bool exists = true;
      int64_t last = i.iteration ? value(n.cells, a, *i.iteration) : i.ahead;
      if (i.stream >= 0 && last >= kMostBits) {
        limit(n, a, i, "copies run too many iterations ahead");
        return -1;
      }
      for (int k = 0; i.stream >= 0 && k <= last && exists; k++) {
        int bit = l_.taken(n.cells, i.stream, a) + k;
        if (bit >= l_.length(n.cells, i.stream)) return i.stream;
        exists = l_.bits(n.cells, i.stream) >> bit & 1;
      }
      if (exists) i.act == Act::Fill ? fill(n, a, i) : publish(n, a, i);
      break;
    }
    case Act::Fence: fence(n, a, i); break;
    case Act::Load: load(n, a, i); break;
    case Act::Release: release(n, a, i); break;
    case Act::Touch: touch(n, a, i); break;
    case Act::NewRing: {
      int16_t &instance = l_.instance(n.cells, a, i.ring);
      instance ^= 1;
      for (int k = 0; k < ring(i.ring).stages; k++)
        if (Copy x = l_.copy(n.cells, i.ring, k, a); x.age < 0 && x.instance == instance) clear(x);
      break;
    }
    default: TKC_UNREACHABLE("act {}", int(i.act));
    }
    l_.place(n.cells, a)++;
    return -1;
  }

  void assign(Next &n, int a, const Instr &i) {
    std::vector<int16_t> values;
    for (const auto &[to, from] : i.assign) {
      int64_t v = from ? value(n.cells, a, *from) : kNone;
      if (from && (v <= kNone || v > kMostItem)) {
        limit(n, a, i, "a counter runs away from all others");
        return;
      }
      values.push_back(int16_t(v));
    }
    for (size_t k = 0; k < values.size(); k++) l_.var(n.cells, a, i.assign[k].first) = values[k];
  }
  int64_t value(Cells &c, int a, const Counter &counter) const {
    if (counter.var < 0) return counter.add;
    int16_t v = l_.var(c, a, counter.var);
    return v == kNone ? INT32_MIN : v + counter.add;
  }
  // The item that the op names, and its slot.
  bool item_of(Next &n, int a, const Instr &i, int &item, int &k) {
    int64_t v = value(n.cells, a, i.counter);
    if (v < 0) {
      fail(n, a, i, 'b', "`{}` of item {}", ir::def(*i.op).name.s, v == INT32_MIN ? "unknown" : std::to_string(v));
      return false;
    }
    if (v > kMostItem) {
      limit(n, a, i, "a counter runs away from all others");
      return false;
    }
    item = int(v);
    k = int(v % ring(i.ring).stages);
    return true;
  }

  static void clear(Copy x) {
    x.item = kNone;
    x.fields = x.instance = x.visible = 0;
    x.age = -1;
  }
  template <typename F> void each_copy(Cells &c, int a, bool mbarrier, F &&f) {
    for (int r = 0; r < int(s_.rings.size()); r++)
      for (int k = 0; k < ring(r).stages && ring(r).mbarrier == mbarrier; k++) f(l_.copy(c, r, k, a), r);
  }

  void fill(Next &n, int a, const Instr &i) {
    int item = 0, k = 0;
    if (!item_of(n, a, i, item, k)) return;
    note_op(n, a, i);
    for (int o = 0; o < l_.agents(); o++) {
      if (Mark m = l_.read(n.cells, i.ring, k, o); m.state && !(m.known & bit(a)))
        return fail(n, a, i, 'a', "item {} of ring {} overwrites slot {}, which {} may still be reading", item,
                    label(i.ring), k, name(o));
      if (Mark m = l_.read(n.cells, i.ring, k, o); m.state && ring(i.ring).tma && !(m.fenced & bit(a)))
        return fail(n, a, i, 'e', "item {} of ring {} overwrites slot {} without a proxy fence behind the read by {}",
                    item, label(i.ring), k, name(o));
      if (Mark m = l_.other(n.cells, i.ring, o); m.state && !(m.known & bit(a)))
        return fail(n, a, i, 'j', "item {} of ring {} overwrites bytes that {} may still be using for another buffer",
                    item, label(i.ring), name(o));
      if (Mark m = l_.other(n.cells, i.ring, o); m.state && ring(i.ring).tma && !(m.fenced & bit(a)))
        return fail(n, a, i, 'e', "item {} of ring {} overwrites bytes without a proxy fence behind their use by {}",
                    item, label(i.ring), name(o));
    }
    Copy x = l_.copy(n.cells, i.ring, k, a);
    int16_t instance = l_.instance(n.cells, a, i.ring), field = int16_t(1 << i.field);
    bool same = x.item == item && x.instance == instance;
    if (x.age >= 0 && (!same || (x.fields & field)))
      return fail(n, a, i, 'a', "item {} of ring {} overwrites slot {} while the copy of item {} to it is in flight",
                  item, label(i.ring), k, int(x.item));
    for (int o : ring(i.ring).overlaps) overwrite(n, a, i, o);
    if (!same) x.fields = 0;
    x.item = int16_t(item);
    x.instance = instance;
    x.fields |= field;
    x.age = 0;
    x.visible = 0;
  }

  // The bytes of a ring get another content.
  void overwrite(Next &n, int a, const Instr &i, int r) {
    for (int k = 0; k < ring(r).stages && !n.failure; k++)
      for (int o = 0; o < l_.agents(); o++) {
        if (Mark m = l_.read(n.cells, r, k, o); m.state && !(m.known & bit(a)))
          return fail(n, a, i, 'j', "overwrites slot {} of ring {}, which {} may still be reading", k, label(r),
                      name(o));
        if (Mark m = l_.read(n.cells, r, k, o); m.state && i.ring >= 0 && ring(i.ring).tma && !(m.fenced & bit(a)))
          return fail(n, a, i, 'e', "overwrites slot {} of ring {} without a proxy fence behind the read by {}", k,
                      label(r), name(o));
        Copy x = l_.copy(n.cells, r, k, o);
        if (x.item == kNone) continue;
        if (x.age >= 0)
          return fail(n, a, i, 'a', "overwrites slot {} of ring {} while the copy of item {} to it is in flight", k,
                      label(r), int(x.item));
        if (!(x.visible & bit(a)))
          return fail(n, a, i, 'j', "overwrites slot {} of ring {} without being ordered behind the copy of {}", k,
                      label(r), name(o));
        clear(x);
      }
  }
  void touch(Next &n, int a, const Instr &i) {
    for (int r : i.touched) {
      if (i.writes) {
        if (telling_) n.log.push_back({a, i.op, fmt::format("{} over ring {}", ir::def(*i.op).name.s, label(r))});
        overwrite(n, a, i, r);
      }
      if (n.failure) return;
      Mark m = l_.other(n.cells, r, a);
      m.state = 1;
      m.known = m.fenced = 0;
    }
  }
  void fence(Next &n, int a, const Instr &i) {
    note_op(n, a, i);
    for (int r = 0; r < int(s_.rings.size()); r++) {
      if (Mark m = l_.other(n.cells, r, a); m.state) m.fenced |= kFence;
      for (int k = 0; k < ring(r).stages; k++)
        if (Mark m = l_.read(n.cells, r, k, a); m.state == 1) m.fenced |= kFence;
    }
  }

  void publish(Next &n, int a, const Instr &i) {
    int item = 0, k = 0;
    if (!item_of(n, a, i, item, k)) return;
    note_op(n, a, i);
    bool mbarrier = ring(i.ring).mbarrier;
    for (int s = 0; s < ring(i.ring).stages; s++)
      if (Copy x = l_.copy(n.cells, i.ring, s, a); x.age == 0 && x.item != item)
        return fail(n, a, i, 'c', "publishes item {} of ring {} after starting the copies of item {}", item,
                    label(i.ring), int(x.item));
    if (ring(i.ring).tma) {
      Copy x = l_.copy(n.cells, i.ring, k, a);
      int64_t copied = 0;
      for (int f = 0; f < 14; f++)
        if (x.item == item && x.age == 0 && (x.fields >> f & 1)) copied += field_bytes(a, i.ring, f);
      if (copied != i.bytes)
        return fail(n, a, i, 'c', "expects {} bytes of item {} of ring {}, its copies bring {}", i.bytes, item,
                    label(i.ring), copied);
    }
    if (!mbarrier) {
      each_copy(n.cells, a, false, [](Copy x, int) {
        if (x.age >= 0) x.age = std::min<int16_t>(int16_t(x.age + 1), kMostAge);
      });
      return;
    }
    if (ring(i.ring).sides.stores && !ring(i.ring).sides.copies) { // the warp's own stores are there already
      if (Copy x = l_.copy(n.cells, i.ring, k, a); x.age == 0) x.age = -1;
      return arrive(n, a, i, l_.full(n.cells, i.ring, k), item / int(ring(i.ring).stages), counts(i.ring).full_init,
                    counts(i.ring).full_arrivals, "full", item, i.ring);
    }
    int16_t &size = l_.queue_size(n.cells, a);
    if (size == l_.queue_limit())
      return fail(n, a, i, 'c', "publishes more items than the rings have slots before any has arrived");
    l_.queued(n.cells, a, size)[0] = int16_t(i.ring);
    l_.queued(n.cells, a, size)[1] = int16_t(item);
    size++;
    each_copy(n.cells, a, true, [&](Copy x, int) {
      if (x.age == 0) x.age = size;
    });
  }

  int64_t field_bytes(int a, int r, int field) const {
    for (const Instr &i : code(a))
      if (i.act == Act::Fill && i.ring == r && i.field == field) return i.bytes;
    return 0;
  }

  void load(Next &n, int a, const Instr &i) {
    int item = 0, k = 0;
    if (!item_of(n, a, i, item, k)) return;
    note_op(n, a, i);
    for (int o = 0; o < l_.agents(); o++) {
      if (!fills(o, i.ring)) continue;
      Copy x = l_.copy(n.cells, i.ring, k, o);
      if (x.item != item || x.instance != l_.instance(n.cells, a, i.ring))
        return fail(n, a, i, 'b', "reads item {} of ring {} from slot {}, which holds {}", item, label(i.ring), k,
                    content(x));
      if (!(x.fields >> i.field & 1))
        return fail(n, a, i, 'b', "reads field {} of item {} of ring {}, which nothing was copied to", i.field, item,
                    label(i.ring));
      if (x.age >= 0)
        return fail(n, a, i, 'b', "reads item {} of ring {} while its copies are in flight", item, label(i.ring));
      if (!(x.visible & bit(a)))
        return fail(n, a, i, 'b', "reads item {} of ring {} without having waited for the copies of {}", item,
                    label(i.ring), name(o));
    }
    Mark m = l_.read(n.cells, i.ring, k, a);
    m.state = 1;
    m.known = m.fenced = 0;
  }

  void release(Next &n, int a, const Instr &i) {
    int item = 0, k = 0;
    if (!item_of(n, a, i, item, k)) return;
    note_op(n, a, i);
    if (Mark m = l_.read(n.cells, i.ring, k, a); m.state == 1) m.state = m.fenced & kFence ? 3 : 2;
    arrive(n, a, i, l_.empty(n.cells, i.ring, k), item / int(ring(i.ring).stages), counts(i.ring).empty_init,
           counts(i.ring).empty_arrivals, "empty", item, i.ring);
  }

  // ---- one form for states that differ in nothing that matters
  void normalise(Cells &c) {
    for (int r = 0; r < int(s_.rings.size()); r++) {
      int16_t instances = 0;
      for (int a = 0; a < l_.agents(); a++) instances |= bit(l_.instance(c, a, r));
      for (int a = 0; a < l_.agents(); a++) {
        settle(l_.other(c, r, a), writers_[size_t(r)], ring(r).tma);
        for (int k = 0; k < ring(r).stages; k++) {
          settle(l_.read(c, r, k, a), writers_[size_t(r)], ring(r).tma);
          Copy x = l_.copy(c, r, k, a);
          if (x.item != kNone && x.age < 0 && !(instances >> x.instance & 1) &&
              (x.visible & writers_[size_t(r)]) == writers_[size_t(r)])
            clear(x);
        }
      }
      if (ring(r).component == r) lower(c, r);
    }
    for (int st = 0; st < s_.streams; st++) {
      int16_t least = l_.length(c, st);
      for (int a = 0; a < l_.agents(); a++) {
        int16_t &taken = l_.taken(c, st, a);
        if (at(c, a).act == Act::Exit)
          taken = 0;
        else if (readers_[size_t(st)] & bit(a))
          least = std::min(least, taken);
      }
      if (least == 0) continue;
      l_.bits(c, st) = int16_t(l_.bits(c, st) >> least);
      l_.length(c, st) = int16_t(l_.length(c, st) - least);
      for (int a = 0; a < l_.agents(); a++)
        if (at(c, a).act != Act::Exit && (readers_[size_t(st)] & bit(a)))
          l_.taken(c, st, a) = int16_t(l_.taken(c, st, a) - least);
    }
  }
  static void settle(Mark m, int16_t writers, bool tma) {
    m.known &= writers;
    m.fenced &= int16_t(writers | kFence);
    if (m.known == writers && (!tma || (m.fenced & writers) == writers)) m.state = m.known = m.fenced = 0;
  }

  // Lowers the counters and items of the rings of a component, if every agent that counts them is far enough.
  void lower(Cells &c, int component) {
    int period = ring(component).period;
    int16_t least = INT16_MAX, instances = 0;
    for (int a = 0; a < l_.agents(); a++) {
      bool counts = false, uses = users_[size_t(component)] & bit(a);
      for (int v = 0; v < s_.vars; v++) {
        if (s_.component[size_t(v)] != component || l_.var(c, a, v) == kNone) continue;
        counts = true;
        least = std::min(least, l_.var(c, a, v));
      }
      if (uses && !counts) return;
      if (uses) instances |= bit(l_.instance(c, a, component));
    }
    if (least == INT16_MAX || least < 2 * period || (instances & (instances - 1))) return;
    auto down = int16_t(least / period * period - period);
    for (int a = 0; a < l_.agents(); a++) {
      for (int v = 0; v < s_.vars; v++)
        if (s_.component[size_t(v)] == component && l_.var(c, a, v) != kNone)
          l_.var(c, a, v) = int16_t(l_.var(c, a, v) - down);
      for (int k = 0; k < l_.queue_size(c, a); k++)
        if (int16_t *q = l_.queued(c, a, k); ring(q[0]).component == component) q[1] = int16_t(q[1] - down);
    }
    for (int r = 0; r < int(s_.rings.size()); r++) {
      if (ring(r).component != component) continue;
      for (int k = 0; k < ring(r).stages; k++) {
        if (ring(r).mbarrier) l_.full(c, r, k).number -= int16_t(down / ring(r).stages);
        if (ring(r).producer) l_.empty(c, r, k).number -= int16_t(down / ring(r).stages);
        for (int a = 0; a < l_.agents(); a++) {
          Copy x = l_.copy(c, r, k, a);
          if (x.item != kNone) x.item = std::max<int16_t>(int16_t(x.item - down), -1);
        }
      }
    }
  }

  // ---- agents that may be exchanged

  // Whether a run stays one if a role's two agents change places. They execute the same code, but for what its first
  // warp alone does by tma; and they stand for different numbers of warps, which matters only where a barrier may be
  // complete without one of them.
  bool alike(int role) const {
    for (int r = 0; r < int(s_.rings.size()); r++) {
      int64_t full = 0, empty = 0;
      bool fills = false, releases = false;
      for (int a = 0; a < l_.agents(); a++)
        for (Act act : {Act::Publish, Act::Release}) {
          bool does =
              std::any_of(code(a).begin(), code(a).end(), [&](const Instr &i) { return i.act == act && i.ring == r; });
          if (!does) continue;
          if (act == Act::Publish) full += counts(r).full_arrivals * l_.weight(a), fills |= l_.role(a) == role;
          if (act == Act::Release) empty += counts(r).empty_arrivals * l_.weight(a), releases |= l_.role(a) == role;
        }
      bool filled = std::any_of(s_.roles[size_t(role)].code.begin(), s_.roles[size_t(role)].code.end(),
                                [&](const Instr &i) { return i.act == Act::Fill && i.ring == r; });
      if ((fills || filled) && ring(r).tma) return false;
      if (fills && ring(r).mbarrier && full != counts(r).full_init) return false;
      if (releases && empty != counts(r).empty_init) return false;
    }
    return true;
  }
  // Of the two forms of a state the smaller one.
  void sort(Cells &c, int a) {
    int order = l_.compare(c, a, a + 1);
    if (order < 0) return;
    other_ = c;
    l_.exchange(other_, a, a + 1);
    if (order > 0 || other_ < c) std::swap(c, other_);
  }

  // ---- words
  std::string describe(Cells &c, int a, const Instr &i) const {
    std::string out = ir::def(*i.op).name.s;
    if (i.ring < 0) return out;
    int64_t v = value(c, a, i.counter);
    out = out.substr(out.find('_') + 1);
    out += fmt::format(" ring {} item {} slot {}", label(i.ring), v, v < 0 ? -1 : v % ring(i.ring).stages);
    if (i.act == Act::Fill || i.act == Act::Load) out += fmt::format(" field {}", i.field);
    if (i.act == Act::Wait && !ring(i.ring).mbarrier) out += fmt::format(" pending {}", i.pending);
    return out;
  }
  void note_op(Next &n, int a, const Instr &i) {
    if (telling_) n.log.push_back({a, i.op, describe(n.cells, a, i)});
  }
  template <typename... Args>
  void fail(Next &n, int a, const Instr &i, char condition, fmt::format_string<Args...> text, Args &&...args) {
    if (n.failure) return;
    n.failure = Failure{condition, fmt::format(text, std::forward<Args>(args)...), &i, a, false};
  }
  void limit(Next &n, int a, const Instr &i, const char *text) {
    if (!n.failure) n.failure = Failure{' ', text, &i, a, true};
  }

  const Skeleton &s_;
  const std::vector<Counts> &counts_;
  Layout l_;
  std::vector<int16_t> writers_, fillers_, users_; // per ring, users per component: agents
  std::vector<int16_t> readers_;                   // per stream
  int16_t start_ = 0;
  bool telling_ = false;
  Cells other_;            // for sort()
  std::vector<int> twins_; // first agents of roles whose two agents may be exchanged
  States seen_;
  std::vector<State> states_;
};

} // namespace

Exploration explore(const Skeleton &s, const std::vector<Counts> &counts, int64_t state_limit) {
  // A run that breaks something is told with all agents told apart.
  Explorer quick(s, counts, true);
  Exploration out = quick.run(state_limit);
  if (out.end == Exploration::End::Proven || !quick.has_twins() || out.states > state_limit) return out;
  return Explorer(s, counts, false).run(state_limit);
}

} // namespace tkc::passes::protocol
