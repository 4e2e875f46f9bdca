// PTX to cubin without a GPU: in process by nvJitLink where that library loads, else by a `ptxas` process.
#pragma once
#include "support/result.h"
#include <cstdint>
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

// What the assembler says of one kernel. Bytes; -1 where the log has no figure.
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

// Reads the verbose log of ptxas, also as nvJitLink prints it.
std::vector<KernelUsage> parse_assembler_log(std::string_view log);

} // namespace tkc
