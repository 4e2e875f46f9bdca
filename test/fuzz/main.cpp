// tkc-fuzz: random programs, the interpreter against the emitted PTX. See --help.
#include "campaign.h"
#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>

using namespace tkc;
using namespace tkc::fuzz;

namespace {

std::optional<Program> read_program(const std::string &path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  if (!in) {
    fmt::print(stderr, "tkc-fuzz: cannot read {}\n", path);
    return std::nullopt;
  }
  auto p = parse_program(text.str());
  if (p) return *p;
  fmt::print(stderr, "tkc-fuzz: {}: {}\n", path, p.error());
  return std::nullopt;
}

Program program_of(uint64_t seed, const GenerateOptions &options) {
  Choices c(seed);
  return generate(c, seed, options);
}

Outcome run_isolated(const Program &p, bool gpu, bool emulate) {
  return isolated(
      [&]() -> Outcome {
        RunOptions how;
        how.emulate = emulate;
        if (!gpu) return run_program(p, how);
        auto device = Device::open(0);
        if (!device) return {Verdict::Found, "no device", device.error()};
        how.device = device->get();
        return run_program(p, how);
      },
      60);
}

} // namespace

int main(int argc, char **argv) {
  CLI::App app{
      "Random programs of the tile language: interpreter against the emitted PTX on the emulator (and a GPU).\n"
      "One seed is one program, on every machine. Exit code 1 if a fault was found."};
  CampaignOptions o;
  std::string device = "emu", out, minimise;
  std::vector<std::string> files;
  bool print = false;
  double minimise_seconds = 120;
  app.add_option("FILE", files, "run these programs again (files as --out writes them)");
  app.add_option("--programs", o.programs, "how many; without --seconds: 100");
  app.add_option("--seconds", o.seconds, "for how long");
  app.add_option("--seed", o.seed, "of the first program; the others follow");
  app.add_option("--target", o.generate.target, "only this one, such as sm_90; without: one of several, by the seed");
  app.add_option("--device", device, "emu; gpu: emulator and GPU; gpu-only")
      ->check(CLI::IsMember({"emu", "gpu", "gpu-only"}));
  app.add_option("--jobs", o.jobs, "processes at a time")->check(CLI::Range(1, 64));
  app.add_option("--out", out, "a directory for programs that fail");
  app.add_option("--minimise", minimise, "a file, or a seed: print the smallest program that fails in the same way");
  app.add_option("--minimise-seconds", minimise_seconds, "the time for that");
  app.add_flag("--print", print, "print the program of --seed, and do not run it");
  CLI11_PARSE(app, argc, argv);
  o.gpu = device != "emu";
  o.emulate = device != "gpu-only";
  if (o.gpu && o.generate.target.empty()) o.generate.target = "sm_90";

  if (print) {
    fmt::print("{}", to_text(program_of(o.seed, o.generate)));
    return 0;
  }
  if (!minimise.empty()) {
    bool seed = minimise.find_first_not_of("0123456789") == std::string::npos;
    std::optional<Program> p = seed ? program_of(std::stoull(minimise), o.generate) : read_program(minimise);
    if (!p) return 2;
    auto attempt = [&](const Program &q) { return run_isolated(q, o.gpu, o.emulate); };
    Outcome wanted = attempt(*p);
    if (wanted.verdict != Verdict::Found) {
      fmt::print(stderr, "tkc-fuzz: this program is clean\n");
      return 1;
    }
    Minimised m = seed ? minimise_seed(std::stoull(minimise), o.generate, wanted, attempt, minimise_seconds)
                       : minimise_text(*p, wanted, attempt, minimise_seconds);
    fmt::print("{}", to_text(m.program));
    fmt::print(stderr, "{} tries: {}\n{}\n", m.tries, m.outcome.kind, m.outcome.message);
    return 0;
  }
  if (!files.empty()) {
    int64_t failed = 0;
    for (const std::string &file : files) {
      auto p = read_program(file);
      if (!p) return 2;
      Outcome result = run_isolated(*p, o.gpu, o.emulate);
      failed += result.verdict != Verdict::Clean;
      if (result.verdict != Verdict::Clean) fmt::print("{}: {}\n{}\n", file, result.kind, result.message);
    }
    fmt::print("{} programs clean, {} not\n", int64_t(files.size()) - failed, failed);
    return failed ? 1 : 0;
  }
  if (o.programs == 0 && o.seconds == 0) o.programs = 100;
  if (!out.empty()) std::filesystem::create_directories(out);
  Tally t = run_campaign(
      o,
      [&](const Finding &f) {
        fmt::print("seed {}: {}\n{}\n", f.seed, f.outcome.kind, f.outcome.message.substr(0, 1500));
        std::fflush(stdout);
        if (!out.empty())
          std::ofstream(fmt::format("{}/{}.tk", out, f.seed)) << to_text(program_of(f.seed, o.generate));
      },
      [](const Tally &so_far) {
        fmt::print(stderr, "{} programs, {} faults\n", so_far.programs, so_far.findings.size());
      });
  int64_t rejected = 0;
  std::string why;
  for (const auto &[kind, n] : t.rejected)
    rejected += n, why += fmt::format("{}{} {}", why.empty() ? "" : ", ", n, kind);
  fmt::print("{} programs from seed {}: {} clean, {} refused ({}), {} faults; {:.1f} s, {:.1f} programs/s; {} of {} "
             "outputs compared to "
             "the bit\n",
             t.programs, o.seed, t.clean, rejected, why, t.findings.size(), t.seconds,
             double(t.programs) / std::max(t.seconds, 1e-9), t.exact_outputs, t.outputs);
  return t.findings.empty() ? 0 : 1;
}
