#include "passes/by_hand_explore.h"
#include "ir/op_def.h"
#include "passes/by_hand_state.h"
#include "support/check.h"
#include <algorithm>
#include <unordered_map>

namespace tkc::passes::protocol {

namespace {

constexpr int kMostChoices = 24;        // of a stream that some agent has made and another has not
constexpr int32_t kMostValue = 1 << 20; // of a variable, of arrivals, of bytes
constexpr int32_t kMostGroups = 64;

struct Fault {
  char condition = ' ';
  std::string text;
  const Step *at = nullptr;
  bool limit = false; // of the exploration, not of the kernel
};
struct Next {
  ByHandCells cells;
  std::vector<Entry> log; // filled while a run is told
  std::optional<Fault> fault;
};
struct Hash {
  size_t operator()(const ByHandCells &c) const {
    uint64_t h = 0x9e3779b97f4a7c15u;
    for (size_t i = 0; i + 1 < c.size(); i += 2) {
      h = (h ^ (uint64_t(uint32_t(c[i])) | uint64_t(uint32_t(c[i + 1])) << 32)) * 0xff51afd7ed558ccdu;
      h ^= h >> 32;
    }
    return size_t(c.size() & 1 ? (h ^ uint32_t(c.back())) * 0xff51afd7ed558ccdu : h);
  }
};

class Explorer {
public:
  explicit Explorer(const ByHandProgram &p) : p_(p), l_(p) {
    for (int a = 0; a < l_.agents(); a++) all_ |= bit(a);
    readers_.assign(size_t(p.streams), 0);
    for (int a = 0; a < l_.agents(); a++)
      for (const Step &s : code(a)) {
        if (s.stream >= 0) readers_[size_t(s.stream)] |= bit(a);
        if ((s.act == Do::Bulk || s.act == Do::BulkRead) && executes(a, s)) issuers_ |= bit(a);
      }
  }

  Exploration run(int64_t limit) {
    Exploration out;
    for (int a = 0; a < l_.agents(); a++) out.agents.push_back(name(a));
    if (l_.agents() > kMostAgents || int(p_.barrier_names.size()) > kMostBarriers) {
      out.end = Exploration::End::Unproven;
      out.text = fmt::format("more than {} mbarriers or {} roles are not followed", kMostBarriers, kMostAgents / 2);
      return out;
    }
    if (!add(-1, {start()}, out)) return out;
    for (size_t at = 0; at < states_.size(); at++) {
      if (!add(int64_t(at), successors(*states_[at].cells), out)) return out;
      if (int64_t(states_.size()) > limit) {
        out.end = Exploration::End::Unproven;
        out.text = fmt::format("more than {} states; fewer slots or simpler control flow would do", limit);
        break;
      }
    }
    out.states = int64_t(states_.size());
    return out;
  }

private:
  struct State {
    const ByHandCells *cells; // in seen_
    int64_t parent;
    int32_t choice; // of the parent's successors
  };
  using Cells = ByHandCells;

  const std::vector<Step> &code(int a) const { return p_.roles[size_t(l_.role(a))].code; }
  const Step &at(Cells &c, int a) const { return code(a)[size_t(l_.place(c, a))]; }
  bool executes(int a, const Step &s) const { return !s.elected || l_.first_of_role(a); }
  std::string name(int a) const {
    const ByHandRole &role = p_.roles[size_t(l_.role(a))];
    if (role.warps == 1) return p_.roles.size() == 1 ? "the warp" : role.name;
    std::string whose = p_.roles.size() == 1 ? "" : role.name + ": ";
    return whose + (l_.first_of_role(a) ? "one warp" : role.warps == 2 ? "the other warp" : "the other warps");
  }
  const std::string &slot_name(int s) const { return p_.slot_names[size_t(s)]; }
  const std::string &barrier_name(int b) const { return p_.barrier_names[size_t(b)]; }

  // ---- the graph of states
  bool add(int64_t parent, std::vector<Next> next, Exploration &out) {
    for (size_t i = 0; i < next.size(); i++) {
      if (next[i].fault) {
        tell(parent, int32_t(i), *next[i].fault, out);
        return false;
      }
      normalise(next[i].cells);
      auto [it, fresh] = seen_.emplace(std::move(next[i].cells), 0);
      if (fresh) states_.push_back({&it->first, parent, int32_t(i)});
    }
    return true;
  }
  void tell(int64_t parent, int32_t choice, const Fault &f, Exploration &out) {
    std::vector<std::pair<int64_t, int32_t>> path{{parent, choice}};
    for (int64_t p = parent; p >= 0; p = states_[size_t(p)].parent)
      path.emplace_back(states_[size_t(p)].parent, states_[size_t(p)].choice);
    telling_ = true;
    std::reverse(path.begin(), path.end());
    for (auto [from, which] : path) {
      Next n = from < 0 ? start() : successors(*states_[size_t(from)].cells)[size_t(which)];
      for (Entry &e : n.log) out.timeline.push_back(std::move(e));
    }
    out.end = f.limit ? Exploration::End::Unproven : Exploration::End::Broken;
    out.condition = f.condition;
    out.text = f.text;
    out.op = f.at ? f.at->op : nullptr;
    out.states = int64_t(states_.size());
  }

  // ---- steps
  Next start() {
    Next n{l_.initial(), {}, std::nullopt};
    for (int a = 0; a < l_.agents(); a++) go(n, a);
    return n;
  }
  // What others can see, or what waits for them.
  static bool visible(const Step &s) {
    switch (s.act) {
    case Do::Barrier:
    case Do::Init:
    case Do::Inval:
    case Do::Arrive:
    case Do::Expect:
    case Do::ArriveCopies:
    case Do::WaitParity:
    case Do::WaitState:
    case Do::Branch:
    case Do::Exit: return true;
    case Do::Bulk: return s.expects;
    default: return false;
    }
  }
  // Executes up to the next step that is visible.
  void go(Next &n, int a) {
    while (!n.fault) {
      const Step &s = at(n.cells, a);
      if (!executes(a, s)) {
        l_.place(n.cells, a)++;
        continue;
      }
      if (visible(s)) return;
      execute(n, a, s);
    }
  }
  void forward(Next &n, int a) {
    if (n.fault) return;
    l_.place(n.cells, a)++;
    go(n, a);
  }

  std::vector<Next> successors(const Cells &from) {
    std::vector<Next> out;
    Cells c = from;
    int ended = 0;
    for (int a = 0; a < l_.agents(); a++) ended += at(c, a).act == Do::Exit;
    if (ended == l_.agents()) return at_end(from);
    for (int a = 0; a < l_.agents(); a++) {
      if (l_.queue_size(c, a) > 0) out.push_back(copies_arrive(from, a));
      for (int s = 0; s < slots(); s++)
        if (l_.write(c, s, a).flight() >= kBulk) out.push_back(bulk_arrives(from, a, s));
      const Step &s = at(c, a);
      if (s.act == Do::Branch)
        choose(from, a, s, out);
      else if (s.act == Do::Barrier)
        meet(from, a, out);
      else if (s.act == Do::WaitParity || s.act == Do::WaitState)
        wait(from, a, s, out);
      else if (s.act != Do::Exit) {
        Next n{from, {}, std::nullopt};
        execute(n, a, s);
        go(n, a);
        out.push_back(std::move(n));
      }
    }
    if (!out.empty()) return out;
    Next n{from, {}, std::nullopt};
    deadlock(n);
    return {n};
  }

  void deadlock(Next &n) {
    std::string text = "no warp can go on:";
    const Step *where = nullptr;
    for (int a = 0; a < l_.agents(); a++) {
      const Step &s = at(n.cells, a);
      text += fmt::format("{} {} ", a ? ";" : "", name(a));
      if (s.act == Do::Branch) return limit(n, s, "the roles may be too many iterations apart");
      if (s.act == Do::Exit) {
        text += "has ended";
      } else {
        text += s.act == Do::Barrier ? "waits at a barrier" : fmt::format("waits at `{}`", describe(n.cells, a, s));
        where = &s;
      }
    }
    fail(n, *where, 'h', "{}", text);
  }

  std::vector<Next> at_end(const Cells &from) {
    Next n{from, {}, std::nullopt};
    for (int a = 0; a < l_.agents(); a++) {
      for (int s = 0; s < slots(); s++) {
        if (l_.write(n.cells, s, a).flight() > kDone)
          fail(n, at(n.cells, a), 'g', "the block ends while a copy to {} is in flight", slot_name(s));
        if (l_.bulk_read(n.cells, s, a).flight() > kDone)
          fail(n, at(n.cells, a), 'g', "the block ends while a copy from {} is in flight", slot_name(s));
      }
      if (l_.queue_size(n.cells, a) > 0)
        fail(n, at(n.cells, a), 'g', "the block ends while copies of {} have yet to arrive", name(a));
    }
    for (int b = 0; b < barriers(); b++)
      if (BarrierRef m = l_.barrier(n.cells, b); m.live && m.tx)
        fail(n, at(n.cells, 0), 'c', "the block ends while {} expects {} more bytes", barrier_name(b), int(m.tx));
    return n.fault ? std::vector<Next>{n} : std::vector<Next>{};
  }

  // ---- choices
  void choose(const Cells &from, int a, const Step &s, std::vector<Next> &out) {
    Next n{from, {}, std::nullopt};
    int32_t &taken = l_.taken(n.cells, s.stream, a);
    int32_t length = l_.length(n.cells, s.stream);
    for (int choice = 0; choice < 2; choice++) {
      bool open = taken == length;
      if (open && length == kMostChoices) return; // the others must follow first
      if (!open && (l_.bits(n.cells, s.stream) >> taken & 1) != choice) continue;
      Next next = n;
      if (open) {
        l_.bits(next.cells, s.stream) |= choice << length;
        l_.length(next.cells, s.stream)++;
      }
      l_.taken(next.cells, s.stream, a)++;
      if (choice)
        l_.place(next.cells, a)++;
      else
        l_.place(next.cells, a) = s.target;
      go(next, a);
      out.push_back(std::move(next));
    }
  }

  // ---- orders
  // f(access, owner, elected) for every access of a slot and every mbarrier's initialisation.
  template <typename F> void each(Cells &c, F &&f) {
    for (int s = 0; s < slots(); s++)
      for (int o = 0; o < l_.agents(); o++) {
        if (WriteRef w = l_.write(c, s, o); w.any()) {
          f(static_cast<AccessRef>(w), o, w.kind() == int32_t(Do::Bulk));
          if (w.before().any()) f(w.before(), o, false);
        }
        if (AccessRef r = l_.read(c, s, o); r.any()) f(r, o, false);
        if (AccessRef r = l_.bulk_read(c, s, o); r.any()) f(r, o, true);
      }
    for (int b = 0; b < barriers(); b++)
      if (BarrierRef m = l_.barrier(c, b); m.live) f(m.made, int(m.owner), true);
  }
  // What agent `a` does now is ordered behind the access; `elected`: it is the one thread that does it.
  static bool behind(Order o, int a, bool elected, int owner, bool by_elected) {
    return (o & bit(a)) || (elected && by_elected && owner == a && (o & kOwnLane));
  }
  // What agent a's threads (or its elected one) hand on with `to`.
  void release(Cells &c, int a, bool elected, Order to) {
    each(c, [&](AccessRef r, int owner, bool by_elected) {
      bool own = owner == a && (!elected || by_elected);
      auto hands_on = [&](Order o) { return (o & bit(a)) || (own && (o & kOwnLane)); };
      if (hands_on(r.known())) r.set_known(r.known() | to);
      if (hands_on(r.fenced())) r.set_fenced(r.fenced() | to);
    });
  }
  void acquire(Cells &c, int a, Order from) {
    each(c, [&](AccessRef r, int, bool) {
      if (r.known() & from) r.set_known(r.known() | bit(a));
      if (r.fenced() & from) r.set_fenced(r.fenced() | bit(a));
    });
  }

  // A barrier of the role's agents, if all have come to it.
  void meet(const Cells &from, int a, std::vector<Next> &out) {
    if (!l_.first_of_role(a)) return;
    Next n{from, {}, std::nullopt};
    Order members = l_.members(l_.role(a));
    const Step &s = at(n.cells, a);
    for (int o = a; o < l_.agents(); o++) {
      if (!(members & bit(o))) continue;
      const Step &other = at(n.cells, o);
      if (other.act != Do::Barrier) return;
      if (&other != &s) {
        fail(n, other, 'k', "{} and {} meet at different barriers", name(a), name(o));
        out.push_back(std::move(n));
        return;
      }
    }
    each(n.cells, [&](AccessRef r, int owner, bool) {
      bool own = members & bit(owner);
      auto spread = [&](Order o) { return (o & members) || (own && (o & kOwnLane)) ? o | members : o; };
      r.set_known(spread(r.known()));
      r.set_fenced(spread(r.fenced()));
    });
    for (int b = 0; b < barriers(); b++) {
      int32_t least = 3;
      for (int o = a; o < l_.agents(); o++)
        if (members & bit(o)) least = std::min(least, l_.behind(n.cells, o, b));
      for (int o = a; o < l_.agents(); o++)
        if (members & bit(o)) l_.behind(n.cells, o, b) = least;
    }
    for (int o = a; o < l_.agents(); o++) {
      if (!(members & bit(o))) continue;
      note(n, o, s);
      forward(n, o);
    }
    out.push_back(std::move(n));
  }

  // ---- mbarriers
  // The mbarrier of a step, which the agent may use.
  std::optional<int> barrier_of(Next &n, int a, const Step &s) {
    auto at = number(n, a, s, s.barrier, s.barrier_count);
    if (!at) return std::nullopt;
    int b = s.barriers + *at;
    BarrierRef m = l_.barrier(n.cells, b);
    if (s.act == Do::Init) return b;
    if (!m.live) {
      fail(n, s, 'i', "{} is used before it is initialised", barrier_name(b));
      return std::nullopt;
    }
    if (behind(m.made.known(), a, s.elected, m.owner, true)) return b;
    fail(n, s, 'i', "{} uses {} without being ordered behind its initialisation", name(a), barrier_name(b));
    return std::nullopt;
  }
  void phase_ends(Next &n, int b) {
    BarrierRef m = l_.barrier(n.cells, b);
    if (m.pending || m.tx) return;
    m.parity ^= 1;
    m.pending = m.expected;
    each(n.cells, [&](AccessRef r, int, bool) {
      auto shift = [&](Order o) { return (o & ~(over(b) | arrived(b))) | (o & arrived(b)) << 1; };
      r.set_known(shift(r.known()));
      r.set_fenced(shift(r.fenced()));
    });
    for (int a = 0; a < l_.agents(); a++) {
      l_.behind(n.cells, a, b) = std::min(3, l_.behind(n.cells, a, b) + 1);
      for (size_t v = 0; v < p_.vars.size(); v++)
        if (int32_t &x = l_.vars(n.cells, a)[v]; p_.vars[v].state && x != kNoValue && x / 4 == b && x % 4 < 2) x++;
    }
  }
  bool arrivals(Next &n, int a, const Step &s, int b, int64_t count) {
    BarrierRef m = l_.barrier(n.cells, b);
    if (count > m.pending) {
      fail(n, s, 'c', "{} arrivals of {} at {}, whose phase expects {} more", count, name(a), barrier_name(b),
           int(m.pending));
      return false;
    }
    m.pending -= int32_t(count);
    return true;
  }
  void add_tx(Next &n, const Step &s, int b, int64_t bytes) {
    BarrierRef m = l_.barrier(n.cells, b);
    int64_t tx = m.tx + bytes;
    if (tx >= kMostValue || tx <= -kMostValue) fail(n, s, 'c', "{} bytes are expected at {}", tx, barrier_name(b));
    m.tx = int32_t(tx);
  }

  void arrive(Next &n, int a, const Step &s) {
    auto b = barrier_of(n, a, s);
    if (!b) return;
    note(n, a, s);
    if (s.bytes) add_tx(n, s, *b, s.bytes);
    // With what copies without `noinc` have yet to bring: the phase waits for them.
    for (int k = 0; k < slots() && !s.elected; k++)
      if (WriteRef w = l_.write(n.cells, k, a); w.any() && w.tracked() > 0)
        if (int32_t event = l_.queue(n.cells, a)[w.tracked() - 1]; event == 2 * *b)
          w.set_known(w.known() | arrived(*b));
    release(n.cells, a, s.elected, arrived(*b));
    if (s.state >= 0) l_.vars(n.cells, a)[s.state] = *b * 4;
    if (arrivals(n, a, s, *b, s.count * threads(a, s))) phase_ends(n, *b);
  }
  int64_t threads(int a, const Step &s) const { return s.elected ? 1 : 32 * l_.weight(a); }

  void arrive_copies(Next &n, int a, const Step &s) {
    auto b = barrier_of(n, a, s);
    if (!b) return;
    note(n, a, s);
    int32_t &size = l_.queue_size(n.cells, a);
    if (size == ByHandLayout::kQueue) return limit(n, s, "more arrivals of copies are pending than are followed");
    l_.queue(n.cells, a)[size++] = 2 * *b + s.noinc;
    for (int k = 0; k < slots(); k++)
      if (WriteRef w = l_.write(n.cells, k, a);
          w.kind() == int32_t(Do::Copy) && w.any() && !w.tracked() && (w.flight() != kDone || !(w.known() & ~kOwnLane)))
        w.tracked() = size;
    if (s.noinc) return;
    BarrierRef m = l_.barrier(n.cells, *b);
    m.pending += int32_t(threads(a, s));
  }
  Next copies_arrive(const Cells &from, int a) {
    Next n{from, {}, std::nullopt};
    int32_t &size = l_.queue_size(n.cells, a), *queue = l_.queue(n.cells, a);
    int b = queue[0] / 2;
    bool noinc = queue[0] & 1;
    std::copy(queue + 1, queue + size, queue);
    queue[--size] = 0;
    const Step *issue = nullptr;
    for (const Step &s : code(a))
      if (s.act == Do::ArriveCopies && s.barriers <= b && b < s.barriers + s.barrier_count) issue = &s;
    if (telling_) n.log.push_back({a, issue->op, fmt::format("(copies arrive at {})", barrier_name(b))});
    for (int k = 0; k < slots(); k++) {
      WriteRef w = l_.write(n.cells, k, a);
      if (!w.tracked()) continue;
      if (--w.tracked() > 0) continue;
      w.flight() = kDone;
      w.set_known(w.known() | kOwnLane | (noinc ? arrived(b) : 0));
    }
    if (arrivals(n, a, *issue, b, 32 * l_.weight(a))) phase_ends(n, b);
    return n;
  }
  Next bulk_arrives(const Cells &from, int a, int s) {
    Next n{from, {}, std::nullopt};
    WriteRef w = l_.write(n.cells, s, a);
    int b = w.flight() - kBulk;
    w.flight() = kDone;
    w.set_known(arrived(b));
    const Step *issue = nullptr;
    for (const Step &step : code(a))
      if (step.act == Do::Bulk && step.slots <= s && s < step.slots + step.slot_count) issue = &step;
    if (telling_) n.log.push_back({a, issue->op, fmt::format("(the copy to {} arrives)", slot_name(s))});
    add_tx(n, *issue, b, -w.bytes());
    if (!n.fault) phase_ends(n, b);
    return n;
  }

  void wait(const Cells &from, int a, const Step &s, std::vector<Next> &out) {
    Next n{from, {}, std::nullopt};
    auto b = barrier_of(n, a, s);
    if (b) {
      BarrierRef m = l_.barrier(n.cells, *b);
      if (s.act == Do::WaitParity) {
        auto parity = evaluate(p_.terms, s.value, l_.vars(n.cells, a));
        if (!parity || (*parity != 0 && *parity != 1))
          fail(n, s, 'd', "a parity is 0 or 1, not {}", parity ? std::to_string(*parity) : "unknown");
        else if (l_.behind(n.cells, a, *b) >= 2)
          fail(n, s, 'd', "{} waits for a phase of {} of which two have ended since it last saw one end", name(a),
               barrier_name(*b));
        else if (m.parity == *parity)
          return; // not yet
      } else {
        int32_t state = l_.vars(n.cells, a)[s.state];
        if (state == kNoValue)
          fail(n, s, 'd', "this state was waited for before, or there is none yet");
        else if (state / 4 != *b)
          fail(n, s, 'd', "the state is not one of {}", barrier_name(*b));
        else if (state % 4 == 2)
          fail(n, s, 'd', "the state is of a phase of {} two phases ago", barrier_name(*b));
        else if (state % 4 == 0)
          return;
      }
    }
    if (!n.fault) {
      note(n, a, s);
      acquire(n.cells, a, over(*b));
      l_.behind(n.cells, a, *b) = 0;
      if (s.state >= 0) l_.vars(n.cells, a)[s.state] = kNoValue;
      forward(n, a);
    }
    out.push_back(std::move(n));
  }

  // ---- everything else
  void execute(Next &n, int a, const Step &s) {
    switch (s.act) {
    case Do::Assign: assign(n, a, s); break;
    case Do::Jump: l_.place(n.cells, a) = s.target; return;
    case Do::Test: {
      auto yes = evaluate(p_.terms, s.value, l_.vars(n.cells, a));
      if (!yes) return limit(n, s, "a condition depends on a variable without a value");
      l_.place(n.cells, a) = *yes ? l_.place(n.cells, a) + 1 : s.target;
      return;
    }
    case Do::Load: read(n, a, s, false); break;
    case Do::BulkRead: read(n, a, s, true); break;
    case Do::Store:
    case Do::Copy:
    case Do::Bulk: write(n, a, s); break;
    case Do::Commit:
      note(n, a, s);
      for (int k = 0; k < slots(); k++)
        if (WriteRef w = l_.write(n.cells, k, a); w.kind() == int32_t(Do::Copy) && w.flight() >= kOpen)
          w.flight() = std::min(w.flight() + 1, kOpen + kMostGroups);
      break;
    case Do::WaitGroup:
      note(n, a, s);
      for (int k = 0; k < slots(); k++)
        if (WriteRef w = l_.write(n.cells, k, a); w.kind() == int32_t(Do::Copy) && w.flight() > kOpen + s.pending) {
          w.flight() = kDone;
          w.set_known(w.known() | kOwnLane);
        }
      break;
    case Do::BulkCommit:
      note(n, a, s);
      for (int k = 0; k < slots(); k++)
        if (AccessRef r = l_.bulk_read(n.cells, k, a); r.flight() >= kOpen)
          r.flight() = std::min(r.flight() + 1, kOpen + kMostGroups);
      break;
    case Do::BulkWait:
      note(n, a, s);
      for (int k = 0; k < slots(); k++)
        if (AccessRef r = l_.bulk_read(n.cells, k, a); r.flight() > kOpen + s.pending) {
          r.flight() = kDone;
          r.set_known(kOwnLane);
        }
      break;
    case Do::Fence:
      note(n, a, s);
      each(n.cells, [&](AccessRef r, int owner, bool by_elected) {
        Order add = 0;
        if (r.known() & bit(a)) add |= bit(a);
        if (owner == a && (!s.elected || by_elected) && (r.known() & kOwnLane)) add |= kOwnLane;
        r.set_fenced(r.fenced() | add);
      });
      break;
    case Do::Init: init(n, a, s); break;
    case Do::Inval:
      if (auto b = barrier_of(n, a, s)) {
        note(n, a, s);
        BarrierRef m = l_.barrier(n.cells, *b);
        for (int o = 0; o < l_.agents(); o++)
          for (int k = 0; k < l_.queue_size(n.cells, o); k++)
            if (l_.queue(n.cells, o)[k] / 2 == *b)
              fail(n, s, 'c', "{} ends while copies have yet to arrive", barrier_name(*b));
        for (int k = 0; k < slots(); k++)
          for (int o = 0; o < l_.agents(); o++)
            if (l_.write(n.cells, k, o).flight() == kBulk + *b)
              fail(n, s, 'c', "{} ends while a copy to {} is on its way", barrier_name(*b), slot_name(k));
        if (m.pending != m.expected || m.tx) fail(n, s, 'c', "{} ends in the middle of a phase", barrier_name(*b));
        m.made.clear();
        m.live = m.expected = m.pending = m.tx = m.parity = m.owner = 0;
      }
      break;
    case Do::Arrive: arrive(n, a, s); break;
    case Do::Expect:
      if (auto b = barrier_of(n, a, s)) {
        note(n, a, s);
        add_tx(n, s, *b, s.bytes);
      }
      break;
    case Do::ArriveCopies: arrive_copies(n, a, s); break;
    default: TKC_UNREACHABLE("step {}", int(s.act));
    }
    l_.place(n.cells, a)++;
  }

  void init(Next &n, int a, const Step &s) {
    auto b = barrier_of(n, a, s);
    if (!b) return;
    note(n, a, s);
    BarrierRef m = l_.barrier(n.cells, *b);
    if (m.live) return fail(n, s, 'i', "{} is initialised again without `mbarrier.inval`", barrier_name(*b));
    m.live = 1;
    m.expected = m.pending = int32_t(s.count);
    m.tx = m.parity = 0;
    m.owner = a;
    m.made.flight() = kDone;
    m.made.set_known(kOwnLane);
    m.made.set_fenced(0);
    for (int o = 0; o < l_.agents(); o++) l_.behind(n.cells, o, *b) = 0;
  }

  void assign(Next &n, int a, const Step &s) {
    std::vector<int32_t> values;
    for (auto [to, from] : s.assign) {
      std::optional<int64_t> v = from < 0 ? std::nullopt : evaluate(p_.terms, from, l_.vars(n.cells, a));
      if (v && (*v > kMostValue || *v < -kMostValue)) return limit(n, s, "a variable takes too many values");
      values.push_back(v ? int32_t(*v) : kNoValue);
    }
    for (size_t k = 0; k < values.size(); k++) l_.vars(n.cells, a)[s.assign[k].first] = values[k];
  }

  std::optional<int> number(Next &n, int a, const Step &s, int term, int count) {
    auto v = evaluate(p_.terms, term, l_.vars(n.cells, a));
    if (v && *v >= 0 && *v < count) return int(*v);
    fail(n, s, 'b', "slot {} of {}", v ? std::to_string(*v) : "unknown", count);
    return std::nullopt;
  }

  void write(Next &n, int a, const Step &s) {
    auto at = number(n, a, s, s.slot, s.slot_count);
    if (!at) return;
    int k = s.slots + *at;
    std::optional<int> b;
    if (s.act == Do::Bulk) {
      b = barrier_of(n, a, s);
      if (!b) return;
    }
    note(n, a, s);
    bool bulk = s.act == Do::Bulk;
    auto who = int32_t(s.elected ? bit(a) : l_.members(l_.role(a)));
    SlotRef slot = l_.slot(n.cells, k);
    int32_t step = step_number(a, s);
    bool joins = slot.step == step && slot.writers == who && slot.wrote != slot.writers && !(slot.wrote & bit(a));
    if (!joins && slot.step && slot.wrote != slot.writers)
      return fail(n, s, 'j', "overwrites {} before {} has written its part", slot_name(k), missing(slot));
    for (int o = 0; o < l_.agents(); o++) {
      if (WriteRef w = l_.write(n.cells, k, o); w.any()) {
        if (joins && (slot.wrote & bit(o))) {
          if (w.before().any() && !(w.before().known() & bit(a)))
            return fail(n, s, 'j', "overwrites {} without being ordered behind what {} wrote before", slot_name(k),
                        name(o));
        } else if (w.flight() != kDone) {
          return fail(n, s, 'a', "overwrites {} while a copy to it is in flight", slot_name(k));
        } else if (!behind(w.known(), a, s.elected, o, w.kind() == int32_t(Do::Bulk))) {
          return fail(n, s, 'j', "overwrites {} without being ordered behind the write by {}", slot_name(k), name(o));
        } else if (bulk && w.kind() != int32_t(Do::Bulk) && !(w.fenced() & bit(a))) {
          return fail(n, s, 'e', "a bulk copy to {} without a proxy fence behind the write by {}", slot_name(k),
                      name(o));
        }
      }
      if (AccessRef r = l_.read(n.cells, k, o); r.any()) {
        if (!(r.known() & bit(a)))
          return fail(n, s, 'a', "overwrites {}, which {} may still be reading", slot_name(k), name(o));
        if (bulk && !(r.fenced() & bit(a)))
          return fail(n, s, 'e', "a bulk copy to {} without a proxy fence behind the read by {}", slot_name(k),
                      name(o));
      }
      if (AccessRef r = l_.bulk_read(n.cells, k, o);
          r.any() && (r.flight() != kDone || !behind(r.known(), a, s.elected, o, true)))
        return fail(n, s, 'a', "overwrites {}, which a bulk copy may still be reading", slot_name(k));
    }
    if (!joins) {
      slot.step = step;
      slot.writers = who;
      slot.wrote = 0;
    }
    WriteRef w = l_.write(n.cells, k, a);
    Cells before(w.any() ? AccessRef::kCells : 0);
    if (w.any()) AccessRef(before.data()).assign(w);
    w.clear();
    if (!before.empty()) w.before().assign(AccessRef(before.data()));
    w.kind() = int32_t(s.act);
    w.flight() = s.act == Do::Store ? kDone : bulk ? kBulk + *b : kOpen;
    if (s.act == Do::Store) w.set_known(kOwnLane);
    if (bulk) w.bytes() = int32_t(s.bytes);
    slot.wrote |= int32_t(bit(a));
    if (slot.wrote == slot.writers)
      for (int o = 0; o < l_.agents(); o++) {
        l_.read(n.cells, k, o).clear();
        l_.bulk_read(n.cells, k, o).clear();
        if (slot.writers & bit(o))
          l_.write(n.cells, k, o).before().clear();
        else
          l_.write(n.cells, k, o).clear();
      }
    if (bulk && s.expects) add_tx(n, s, *b, s.bytes);
  }
  int32_t step_number(int a, const Step &s) const { return 1 + l_.role(a) * 100000 + int32_t(&s - code(a).data()); }
  std::string missing(SlotRef slot) const {
    for (int o = 0; o < l_.agents(); o++)
      if ((slot.writers & ~slot.wrote) & int32_t(bit(o))) return name(o);
    return "";
  }

  void read(Next &n, int a, const Step &s, bool bulk) {
    auto at = number(n, a, s, s.slot, s.slot_count);
    if (!at) return;
    int k = s.slots + *at;
    note(n, a, s);
    SlotRef slot = l_.slot(n.cells, k);
    if (!slot.step) return fail(n, s, 'b', "reads {}, to which nothing was written", slot_name(k));
    if (slot.wrote != slot.writers)
      return fail(n, s, 'b', "reads {} before {} has written its part", slot_name(k), missing(slot));
    for (int o = 0; o < l_.agents(); o++) {
      WriteRef w = l_.write(n.cells, k, o);
      if (!w.any()) continue;
      if (w.flight() != kDone) return fail(n, s, 'b', "reads {} while a copy to it is in flight", slot_name(k));
      if (!behind(w.known(), a, s.elected, o, w.kind() == int32_t(Do::Bulk)))
        return fail(n, s, 'b', "reads {} without being ordered behind the write by {}", slot_name(k), name(o));
      if (bulk && w.kind() != int32_t(Do::Bulk) && !(w.fenced() & bit(a)))
        return fail(n, s, 'e', "a bulk copy from {} without a proxy fence behind the write by {}", slot_name(k),
                    name(o));
    }
    AccessRef r = bulk ? l_.bulk_read(n.cells, k, a) : l_.read(n.cells, k, a);
    r.clear();
    r.flight() = bulk ? kOpen : kDone;
    if (!bulk) r.set_known(kOwnLane);
  }

  // ---- one form for states that differ in nothing that matters
  void normalise(Cells &c) {
    for (int a = 0; a < l_.agents(); a++) {
      int32_t *vars = l_.vars(c, a);
      for (size_t g = 0; g < p_.groups.size(); g++) {
        int64_t least = INT64_MAX, period = p_.groups[g].period, from = p_.groups[g].least;
        for (size_t v = 0; v < p_.vars.size(); v++)
          if (p_.vars[v].group == int(g) && vars[v] != kNoValue) least = std::min<int64_t>(least, vars[v]);
        if (least == INT64_MAX || least < from + period) continue;
        auto down = int32_t((least - from) / period * period);
        for (size_t v = 0; v < p_.vars.size(); v++)
          if (p_.vars[v].group == int(g) && vars[v] != kNoValue) vars[v] -= down;
      }
    }
    for (int s = 0; s < slots(); s++)
      for (int a = 0; a < l_.agents(); a++) {
        auto settled = [&](AccessRef r) { return r.flight() == kDone && (r.known() & all_) == all_; };
        auto fenced = [&](AccessRef r) { return (r.fenced() & issuers_) == issuers_; };
        for (AccessRef r : {l_.read(c, s, a), l_.bulk_read(c, s, a)})
          if (settled(r) && fenced(r)) r.clear();
        WriteRef w = l_.write(c, s, a);
        if (settled(w)) w.set_known(all_), w.tracked() = 0;
        if (w.before().any() && (w.before().known() & all_) == all_) w.before().clear();
        if (!issuers_) w.set_fenced(0), l_.read(c, s, a).set_fenced(0);
        if (fenced(w)) w.set_fenced(issuers_);
      }
    for (int b = 0; b < barriers(); b++)
      if (BarrierRef m = l_.barrier(c, b); m.live) {
        if ((m.made.known() & all_) == all_) m.made.set_known(all_);
        m.made.set_fenced(0);
      }
    for (int st = 0; st < p_.streams; st++) {
      int32_t least = l_.length(c, st);
      for (int a = 0; a < l_.agents(); a++) {
        int32_t &taken = l_.taken(c, st, a);
        if (at(c, a).act == Do::Exit)
          taken = 0;
        else if (readers_[size_t(st)] & bit(a))
          least = std::min(least, taken);
      }
      if (least == 0) continue;
      l_.bits(c, st) >>= least;
      l_.length(c, st) -= least;
      for (int a = 0; a < l_.agents(); a++)
        if (at(c, a).act != Do::Exit && (readers_[size_t(st)] & bit(a))) l_.taken(c, st, a) -= least;
    }
  }

  int slots() const { return int(p_.slot_names.size()); }
  int barriers() const { return int(p_.barrier_names.size()); }

  // ---- words
  std::string describe(Cells &c, int a, const Step &s) const {
    std::string out = ir::def(*s.op).source.s[0] == '-' ? ir::def(*s.op).name.s : ir::def(*s.op).source.s;
    if (s.slots >= 0)
      if (auto v = evaluate(p_.terms, s.slot, l_.vars(c, a)); v && *v >= 0 && *v < s.slot_count)
        out += " " + slot_name(s.slots + int(*v));
    if (s.barriers >= 0)
      if (auto v = evaluate(p_.terms, s.barrier, l_.vars(c, a)); v && *v >= 0 && *v < s.barrier_count)
        out += " " + barrier_name(s.barriers + int(*v));
    if (s.act == Do::WaitParity)
      if (auto v = evaluate(p_.terms, s.value, l_.vars(c, a))) out += fmt::format(" parity {}", *v);
    if (s.act == Do::WaitGroup || s.act == Do::BulkWait) out += fmt::format(" {}", s.pending);
    out.erase(std::remove(out.begin(), out.end(), '`'), out.end());
    return out;
  }
  void note(Next &n, int a, const Step &s) {
    if (telling_) n.log.push_back({a, s.op, describe(n.cells, a, s)});
  }
  template <typename... Args>
  void fail(Next &n, const Step &s, char condition, fmt::format_string<Args...> text, Args &&...args) {
    if (n.fault) return;
    n.fault = Fault{condition, fmt::format(text, std::forward<Args>(args)...), &s, false};
  }
  void limit(Next &n, const Step &s, const char *text) {
    if (!n.fault) n.fault = Fault{' ', text, &s, true};
  }

  const ByHandProgram &p_;
  ByHandLayout l_;
  Order all_ = 0, issuers_ = 0;
  std::vector<Order> readers_; // of streams
  bool telling_ = false;
  std::unordered_map<ByHandCells, char, Hash> seen_;
  std::vector<State> states_;
};

} // namespace

Exploration explore_by_hand(const ByHandProgram &p, int64_t state_limit) { return Explorer(p).run(state_limit); }

} // namespace tkc::passes::protocol
