// PTX to cubin without a GPU: in process by nvJitLink where that library loads, else by a `ptxas` process.
#pragma once
#include "support/result.h"
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tkc {

enum class Assembler : uint8_t { Any, NvJitLink, Ptxas };
std::string_view assembler_name(Assembler a);

struct AssembleOptions {
  std::string arch = "sm_120";
  int64_t max_registers = 0; // 0: no limit
  Assembler assembler = Assembler::Any;
};

// What one kernel uses. Bytes; -1 where neither the assembler's log nor the cubin has the figure.
struct KernelUsage {
  std::string name;
  int64_t registers = -1;
  int64_t spill_stores = 0, spill_loads = 0;
  int64_t stack = 0;         // local memory of a thread: spills and arrays
  int64_t static_shared = 0; // without what the system reserves
  int64_t barriers = 0;
  bool uses_local_memory() const { return stack > 0 || spill_stores > 0 || spill_loads > 0; }
};

struct Assembled {
  std::vector<uint8_t> cubin;
  std::vector<KernelUsage> kernels; // in the order of the log
  std::string log;
  Assembler by = Assembler::Any;
  const KernelUsage *find(std::string_view kernel) const;
};

// Whether one is installed; Any: at least one of them. The message says what was looked for.
Status assembler_available(Assembler a);
// The error holds the assembler's own messages.
Result<Assembled> assemble(std::string_view ptx, const AssembleOptions &options);

// Reads the verbose log of ptxas, also as nvJitLink prints it. Where a log has nvJitLink's own summary only, spills are
// unknown unless the stack is empty, and shared memory contains what the system reserves.
std::vector<KernelUsage> parse_assembler_log(std::string_view log);
// Registers and stack of the kernels of a cubin, in the order of its symbols; the other figures are unknown, but for
// the spills of an empty stack. Empty if this is no cubin.
std::vector<KernelUsage> parse_cubin_usage(std::span<const uint8_t> cubin);

} // namespace tkc
