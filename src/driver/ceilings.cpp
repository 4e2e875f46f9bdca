#include "driver/ceilings.h"
#include "driver/bench.h"
#include "runtime/file_io.h"
#include "runtime/json_reader.h"
#include <cstdlib>
#include <filesystem>

namespace tkc::driver {

// Four warps keep a tile of 64 x 64 sums each in registers, and multiply the same operands again and again: what is
// timed is the tensor pipe alone. In the name of the cache file: another one for other probes.
static constexpr int64_t kProbeVersion = 2;
static const char *const kProbes = R"(
kernel probe_copy<BN: int = 2048>(x: tensor<f32>[N], y: out tensor<f32>[N]) grid (cdiv(N, BN)) warps 4 {
    let i = program_id(0) * BN :+ BN;
    store(y[i], load(x[i]));
}
kernel probe_products(a: tensor<bf16>[128, 32], b: tensor<bf16>[32, 128], c: out tensor<f32>[G, 128, 128], R: i32)
    grid (G) warps 4
{
    let x = load(a[0 :+ 128, 0 :+ 32]);
    let y = load(b[0 :+ 32, 0 :+ 128]);
    var acc = zeros<f32>[128, 128];
    @no_pipeline for i in 0 : R { acc = mma(x, y, acc); }
    store(c[program_id(0), :, :], acc);
}
bench probe_copy { case large: N = 67108864; bytes = 8 * N; }
bench probe_products { case large: G = 8, R = 256; flops = 2 * 128 * 128 * 32 * G * R; }
)";

Result<Ceilings> measure_ceilings(const VerifyOptions &options, const BenchOptions &convention) {
  SourceManager sources;
  Diagnostics diags(sources);
  auto program = sema::Program::load(sources.add("<probes>", kProbes), diags);
  TKC_CHECK(program && !diags.has_errors(), "{}", diags.render_all());
  VerifyOptions o; // the probes as they are, whatever form of a kernel was asked for
  o.executor = Executor::Gpu;
  o.device = options.device;
  o.compile.target = options.compile.target;
  o.limit_seconds = options.limit_seconds;
  auto rate = [&](const char *name, const char *count) -> Result<double> {
    const ast::Function *kernel = program->find(name, ast::FunctionKind::Kernel);
    const ast::Check *check = program->check_for(name, true);
    auto c = sema::evaluate_case(*program, *kernel, *check, check->cases[0], diags);
    TKC_CHECK(c, "{}", diags.render_all());
    if (auto blocks = c->numbers.find("G"); blocks != c->numbers.end())
      blocks->second *= double(options.device->info().sms); // no multiprocessor waits for a last wave
    auto prepared = PreparedBench::create(*program, *kernel, *check, *c, o, diags);
    if (!prepared) return failure("{}: {}", name, diags.has_errors() ? diags.render_all() : prepared.error());
    auto seconds = (*prepared)->measure(convention);
    if (!seconds) return seconds.failed();
    return (*prepared)->counts.at(count) / *seconds;
  };
  Ceilings out;
  auto bytes = rate("probe_copy", "bytes"), flops = rate("probe_products", "flops");
  if (!bytes) return bytes.failed();
  if (!flops) return flops.failed();
  out.bytes = *bytes;
  out.flops = *flops;
  return out;
}

static std::string default_folder() {
  auto variable = [](const char *name) {
    const char *text = std::getenv(name);
    return std::string(text ? text : "");
  };
  std::string cache = variable("XDG_CACHE_HOME"), home = variable("HOME");
  if (!cache.empty()) return cache + "/tkc";
  return home.empty() ? "" : home + "/.cache/tkc";
}

static std::optional<Ceilings> read_ceilings(const std::string &path) {
  auto bytes = read_file(path);
  if (!bytes) return std::nullopt;
  auto j = parse_json(std::string_view(reinterpret_cast<const char *>(bytes->data()), bytes->size()));
  if (!j) return std::nullopt;
  Ceilings out;
  for (auto [key, to] : {std::pair("copyBytesPerSecond", &out.bytes), std::pair("productFlopsPerSecond", &out.flops)}) {
    const JsonValue *v = j->find(key);
    if (!v || !v->is(JsonValue::Kind::Number) || !(v->number > 0)) return std::nullopt;
    *to = v->number;
  }
  return out;
}

Result<Ceilings> ceilings_of(const VerifyOptions &options, std::string folder, const BenchOptions &convention) {
  if (folder.empty()) folder = default_folder();
  const DeviceInfo &gpu = options.device->info();
  std::string path =
      fmt::format("{}/ceilings-{}-{}-{}.json", folder, gpu.uuid, options.compile.target->name, kProbeVersion);
  if (!folder.empty())
    if (auto known = read_ceilings(path)) return *known;
  auto measured = measure_ceilings(options, convention);
  if (!measured || folder.empty()) return measured;
  Json j = Json::object();
  j.set("gpu", gpu.name).set("uuid", gpu.uuid).set("copyBytesPerSecond", measured->bytes);
  j.set("productFlopsPerSecond", measured->flops);
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  // Without a cache the next run measures again.
  if (!error) (void)write_files({text_output(path, j.dump() + "\n")});
  return measured;
}

} // namespace tkc::driver
