#include "emu/control_flow.h"
#include <algorithm>
#include <map>

namespace tkc::emu {

void find_meeting_points(Program &program, int32_t first, int32_t end, bool kernel) {
  std::vector<Inst> &code = program.code;
  auto leaves = [&](int32_t pc) { // an unconditional end of the thread
    const Inst &i = code[size_t(pc)];
    return i.guard == 0 && (i.flow == Flow::Exit || (kernel && i.flow == Flow::Return));
  };

  // Basic blocks by first instruction.
  std::vector<bool> starts(size_t(end - first) + 1, false);
  starts[0] = true;
  for (int32_t pc = first; pc < end; pc++) {
    const Inst &i = code[size_t(pc)];
    if (i.flow == Flow::Next) continue;
    starts[size_t(pc + 1 - first)] = true;
    if (i.flow == Flow::Branch) starts[size_t(i.target - first)] = true;
    if (i.flow == Flow::Table)
      for (int32_t t : program.branch_tables[i.list]) starts[size_t(t - first)] = true;
  }
  std::vector<int32_t> head; // block -> first pc
  std::map<int32_t, int32_t> block_of;
  for (int32_t pc = first; pc < end; pc++)
    if (starts[size_t(pc - first)]) block_of[pc] = int32_t(head.size()), head.push_back(pc);
  int32_t n = int32_t(head.size()), exit_node = n;
  std::vector<std::vector<int32_t>> next(size_t(n) + 1), previous(size_t(n) + 1);
  for (int32_t b = 0; b < n; b++) {
    int32_t last = (b + 1 < n ? head[size_t(b + 1)] : end) - 1;
    const Inst &i = code[size_t(last)];
    std::vector<int32_t> &out = next[size_t(b)];
    bool conditional = i.guard != 0;
    switch (i.flow) {
    case Flow::Next: out.push_back(b + 1); break;
    case Flow::Branch:
      if (!conditional || !leaves(i.target)) out.push_back(block_of[i.target]);
      if (conditional) out.push_back(b + 1);
      break;
    case Flow::Table:
      for (int32_t t : program.branch_tables[i.list]) out.push_back(block_of[t]);
      if (conditional) out.push_back(b + 1);
      break;
    case Flow::Return:
      if (!conditional || !kernel) out.push_back(exit_node);
      if (conditional) out.push_back(b + 1);
      break;
    case Flow::Exit:
      if (conditional) out.push_back(b + 1);
      break;
    }
    for (int32_t s : out) previous[size_t(s)].push_back(b);
  }

  // Immediate post-dominators: the iterative algorithm of Cooper, Harvey and Kennedy on the reversed graph. Blocks that
  // reach no end keep -1 and are ignored by the others.
  std::vector<int32_t> order, number(size_t(n) + 1, -1); // post order of the reversed graph
  std::vector<std::pair<int32_t, size_t>> stack = {{exit_node, 0}};
  std::vector<bool> seen(size_t(n) + 1, false);
  seen[size_t(exit_node)] = true;
  while (!stack.empty()) {
    auto &[b, k] = stack.back();
    if (k < previous[size_t(b)].size()) {
      int32_t p = previous[size_t(b)][k++];
      if (!seen[size_t(p)]) seen[size_t(p)] = true, stack.push_back({p, 0});
      continue;
    }
    number[size_t(b)] = int32_t(order.size());
    order.push_back(b);
    stack.pop_back();
  }
  std::vector<int32_t> ipdom(size_t(n) + 1, -1);
  ipdom[size_t(exit_node)] = exit_node;
  bool changed = true;
  while (changed) {
    changed = false;
    for (auto at = order.rbegin(); at != order.rend(); ++at) {
      if (*at == exit_node) continue;
      int32_t best = -1;
      for (int32_t s : next[size_t(*at)]) {
        if (ipdom[size_t(s)] < 0) continue;
        if (best < 0) {
          best = s;
          continue;
        }
        int32_t x = best, y = s;
        while (x != y) {
          while (number[size_t(x)] < number[size_t(y)]) x = ipdom[size_t(x)];
          while (number[size_t(y)] < number[size_t(x)]) y = ipdom[size_t(y)];
        }
        best = x;
      }
      if (best != ipdom[size_t(*at)]) ipdom[size_t(*at)] = best, changed = true;
    }
  }

  for (int32_t b = 0; b < n; b++) {
    int32_t last = (b + 1 < n ? head[size_t(b + 1)] : end) - 1;
    Inst &i = code[size_t(last)];
    if (i.flow != Flow::Branch && i.flow != Flow::Table) continue;
    int32_t meet = ipdom[size_t(b)];
    if (meet < 0 || meet == exit_node || leaves(head[size_t(meet)])) continue;
    i.reconverge = head[size_t(meet)];
  }
}

} // namespace tkc::emu
