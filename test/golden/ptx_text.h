// PTX as a golden shows it: entries without noise, loops, counts of instructions.
#pragma once
#include <map>
#include <string>
#include <vector>

namespace tkc::golden {

// One entry of a module. Lines: instructions, labels as `$name:`, declarations of shared memory; registers'
// declarations, comments and debugging lines are left out.
struct PtxEntry {
  std::string name;
  std::vector<std::string> lines;
};
std::vector<PtxEntry> ptx_entries(const std::string &ptx);

// Registers and labels numbered in order of appearance: %r1, %rd1, %p1, $1.
std::vector<std::string> renumbered(const std::vector<std::string> &lines);

// The opcode of an instruction without its predicate; "" of a label or a declaration.
std::string opcode(const std::string &line);
using Histogram = std::map<std::string, int64_t>;
Histogram histogram(const std::vector<std::string> &lines);

// Lines of the innermost loop with the most instructions, block by block as they stand in the text; empty if there is
// no loop. A loop that only polls a barrier counts as an instruction of the loop around it.
std::vector<std::string> steady_loop(const PtxEntry &e);

// Columns of counts under their titles, one row an opcode.
std::string table(const std::vector<std::string> &titles, const std::vector<Histogram> &columns);

} // namespace tkc::golden
