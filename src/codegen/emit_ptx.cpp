#include "codegen/emit_ptx.h"
#include "codegen/lower.h"
#include "codegen/optimise.h"
#include "support/check.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/IR/DiagnosticHandler.h"
#include "llvm/IR/DiagnosticInfo.h"
#include "llvm/IR/DiagnosticPrinter.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Verifier.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Pass.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/CrashRecoveryContext.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/Target/TargetOptions.h"
#include <chrono>
#include <mutex>
#include <thread>

extern "C" {
void LLVMInitializeNVPTXTargetInfo();
void LLVMInitializeNVPTXTarget();
void LLVMInitializeNVPTXTargetMC();
void LLVMInitializeNVPTXAsmPrinter();
}

namespace tkc::codegen {

namespace {

// What LLVM reported in this thread's emission. LLVM's handlers are process-wide, so one emission (of one or more
// threads) runs at a time.
std::mutex emission;
thread_local std::string llvm_error;

void on_fatal_error(void *, const char *reason, bool) {
  llvm_error = reason;
  if (auto *c = llvm::CrashRecoveryContext::GetCurrent()) c->HandleExit(70);
  internal_error(__FILE__, __LINE__, fmt::format("LLVM: {}", reason));
}

struct ErrorCollector : llvm::DiagnosticHandler {
  bool handleDiagnostics(const llvm::DiagnosticInfo &d) override {
    if (d.getSeverity() != llvm::DS_Error) return true;
    llvm::raw_string_ostream out(llvm_error);
    llvm::DiagnosticPrinterRawOStream printer(out);
    if (!llvm_error.empty()) out << "; ";
    d.print(printer);
    return true;
  }
};

void initialise_llvm() {
  static const bool done = [] {
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
    // Shared addresses in 32 bits; f32 pairs as scalars (ptxas splits f32x2 on sm_120 anyway, and pairs cost
    // registers).
    const char *args[] = {"tkc", "-nvptx-short-ptr", "-nvptx-no-f32x2"};
    llvm::cl::ParseCommandLineOptions(int(std::size(args)), args);
    llvm::install_fatal_error_handler(on_fatal_error);
    return true;
  }();
  (void)done;
}

class Phases {
public:
  explicit Phases(EmitResult &r) : result_(r) {}
  void done(const char *name) {
    auto now = std::chrono::steady_clock::now();
    result_.phases.push_back({name, std::chrono::duration<double, std::milli>(now - start_).count()});
    start_ = now;
  }

private:
  EmitResult &result_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

std::unique_ptr<llvm::TargetMachine> make_target_machine(const ir::Target &target) {
  llvm::Triple triple("nvptx64-nvidia-cuda");
  std::string error;
  const llvm::Target *t = llvm::TargetRegistry::lookupTarget(triple, error);
  TKC_CHECK(t, "LLVM has no NVPTX target: {}", error);
  llvm::TargetOptions options;
  return std::unique_ptr<llvm::TargetMachine>(
      t->createTargetMachine(triple, target.cpu, fmt::format("+ptx{}", target.ptx_version), options, llvm::Reloc::PIC_,
                             {}, llvm::CodeGenOptLevel::Aggressive));
}

// A pass manager without those passes of LLVM's code generator that cost a third of its time and find nothing here:
// addresses are computed in the form that instructions take (loop strength reduction makes the loops longer), accesses
// come vectorised, and expressions numbered.
class CodegenPasses : public llvm::legacy::PassManager {
public:
  void add(llvm::Pass *pass) override {
    static constexpr llvm::StringRef kNotRun[] = {"Loop Strength Reduction", "Nary reassociation",
                                                  "GPU Load and Store Vectorizer"};
    if (std::find(std::begin(kNotRun), std::end(kNotRun), pass->getPassName()) != std::end(kNotRun))
      delete pass;
    else
      llvm::legacy::PassManager::add(pass);
  }
};

std::string generate(llvm::Module &module, llvm::TargetMachine &machine) {
  llvm::SmallString<0> text;
  llvm::raw_svector_ostream out(text);
  CodegenPasses passes;
  bool refused = machine.addPassesToEmitFile(passes, out, nullptr, llvm::CodeGenFileType::AssemblyFile,
                                             /*DisableVerify=*/true);
  TKC_CHECK(!refused, "LLVM cannot write NVPTX assembly");
  passes.run(module);
  return std::string(text.str());
}

// LLVM's own banner names a generator, not the program; ours states the ABI.
std::string with_comment(const std::string &ptx, std::span<const Entry> entries, const EmitResult &r,
                         const ir::Target &target) {
  std::string head = fmt::format("// tkc: PTX for {}\n", target.name);
  for (size_t i = 0; i < entries.size(); i++) head += abi_comment(*entries[i].function, r.abis[i]);
  size_t version = ptx.find(".version");
  TKC_CHECK(version != ptx.npos, "LLVM's PTX has no .version");
  return head + ptx.substr(version);
}

} // namespace

std::string llvm_version() { return LLVM_VERSION_STRING; }

namespace {

// One module with these entries, without the leading comment.
EmitResult emit_module(std::span<const Entry> entries, const ir::Target &target, const EmitOptions &options) {
  EmitResult r;
  Phases phases(r);
  llvm::LLVMContext context;
  context.setDiscardValueNames(true);
  context.setDiagnosticHandler(std::make_unique<ErrorCollector>());
  std::unique_ptr<llvm::TargetMachine> machine = make_target_machine(target);
  llvm::Module module(entries.empty() ? "" : entries[0].name, context);
  module.setTargetTriple(machine->getTargetTriple());
  module.setDataLayout(machine->createDataLayout());
  phases.done("target");

  std::optional<DebugLines> lines;
  if (options.sources) lines.emplace(module, *options.sources);
  for (const Entry &e : entries) {
    r.abis.push_back(kernel_abi(*e.function, e.name, e.aligned));
    LowerOptions o{e.name, e.aligned, options.max_registers, options.min_blocks, lines ? &*lines : nullptr};
    FunctionLowering(module, *e.function, target, o).run();
  }
  if (lines) lines->finish();
  phases.done("lower");

  llvm::raw_string_ostream faults(r.error);
  if (llvm::verifyModule(module, &faults)) {
    r.error = "the LLVM module does not verify: " + r.error;
    if (options.keep_llvm) {
      llvm::raw_string_ostream out(r.llvm);
      module.print(out, nullptr);
    }
    return r;
  }
  phases.done("verify");

  llvm_error.clear();
  llvm::CrashRecoveryContext recovery;
  bool survived = recovery.RunSafely([&] {
    if (options.fail) llvm::report_fatal_error("a fatal error was asked for");
    optimise(module, *machine);
    phases.done("optimise");
    if (options.keep_llvm) {
      llvm::raw_string_ostream out(r.llvm);
      module.print(out, nullptr);
    }
    r.ptx = generate(module, *machine);
    phases.done("emit");
  });
  if (!survived || !llvm_error.empty()) {
    r.error = llvm_error.empty() ? "LLVM crashed" : "LLVM: " + llvm_error;
    r.ptx.clear();
    return r;
  }
  r.ok = true;
  return r;
}

struct ModuleText {
  std::string head, entry, tail; // directives and declarations; the entry; debug sections
};
ModuleText split(std::string ptx) {
  if (size_t at = ptx.find("\t// .globl"); at != std::string::npos) ptx.erase(at, ptx.find('\n', at) + 1 - at);
  size_t begin = ptx.find("\n.visible .entry"), end = ptx.find("\n\t.section", begin);
  if (end == std::string::npos) end = ptx.find("\n\t.file", begin);
  if (end == std::string::npos) end = ptx.size();
  return {ptx.substr(ptx.find(".version"), begin - ptx.find(".version")), ptx.substr(begin, end - begin),
          ptx.substr(end)};
}

} // namespace

// The entries are independent of each other but for shared declarations: where there are only those, each is compiled
// by a thread of its own and the texts are joined.
EmitResult emit(std::span<const Entry> entries, const ir::Target &target, const EmitOptions &options) {
  std::lock_guard lock(emission);
  initialise_llvm();
  llvm::CrashRecoveryContext::Enable();
  struct Disable {
    ~Disable() { llvm::CrashRecoveryContext::Disable(); }
  } disable;
  if (entries.size() < 2 || options.keep_llvm) {
    EmitResult r = emit_module(entries, target, options);
    if (r.ok) r.ptx = with_comment(r.ptx, entries, r, target);
    return r;
  }
  std::vector<EmitResult> parts(entries.size());
  std::vector<std::thread> threads;
  for (size_t i = 1; i < entries.size(); i++)
    threads.emplace_back([&, i] { parts[i] = emit_module(entries.subspan(i, 1), target, options); });
  parts[0] = emit_module(entries.subspan(0, 1), target, options);
  for (std::thread &t : threads) t.join();
  EmitResult r = std::move(parts[0]);
  if (!r.ok) return r;
  ModuleText first = split(r.ptx);
  for (size_t i = 1; i < parts.size(); i++) {
    if (!parts[i].ok) return std::move(parts[i]);
    ModuleText next = split(parts[i].ptx);
    if (next.head != first.head || next.tail != first.tail) { // constants or functions of their own
      r = emit_module(entries, target, options);
      if (r.ok) r.ptx = with_comment(r.ptx, entries, r, target);
      return r;
    }
    first.entry += next.entry;
    r.abis.push_back(parts[i].abis[0]);
  }
  r.ptx = with_comment(first.head + first.entry + first.tail, entries, r, target);
  return r;
}

} // namespace tkc::codegen
