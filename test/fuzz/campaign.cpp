#include "campaign.h"
#include "support/check.h"
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tkc::fuzz {

namespace {

using Clock = std::chrono::steady_clock;
constexpr int64_t kBatch = 400;     // programs of one process: what LLVM keeps is given back
constexpr double kMostSeconds = 90; // of one program
constexpr rlim_t kMostBytes = 6ull << 30;

// Lines of a worker: words separated by tabs, without line ends inside.
std::string escaped(const std::string &s) {
  std::string out;
  for (char c : s) out += c == '\n' ? '\v' : c == '\t' ? ' ' : c;
  return out;
}
std::string unescaped(std::string s) {
  std::replace(s.begin(), s.end(), '\v', '\n');
  return s;
}
std::vector<std::string> split(const std::string &line) {
  std::vector<std::string> out(1);
  for (char c : line)
    if (c == '\t')
      out.emplace_back();
    else
      out.back() += c;
  return out;
}

int g_pipe = -1; // of a worker
void send(const std::string &line) {
  std::string s = line + "\n";
  for (size_t at = 0; at < s.size();) {
    ssize_t n = write(g_pipe, s.data() + at, s.size() - at);
    if (n <= 0) _exit(1);
    at += size_t(n);
  }
}
void on_internal_error(const std::string &message) { send("E\t" + escaped(message)); }

// What identifies a fault: its text without the numbers that change while a program is minimised.
std::string without_numbers(const std::string &message) {
  std::string out;
  for (char c : message.substr(0, message.find('\n'))) {
    if (out.size() >= 100) break;
    bool digit = c >= '0' && c <= '9';
    if (!digit)
      out += c;
    else if (out.empty() || out.back() != '#')
      out += '#';
  }
  return out;
}

struct Worker {
  pid_t pid = -1;
  int pipe = -1, log = -1;
  std::string buffer, fault;
  uint64_t current = 0; // the program that it runs
  bool running = false;
  uint64_t next = 0; // the first program of the next worker in this place
  Clock::time_point since;
};

// Starts a process that runs `work` with messages going to a pipe.
Worker start(const std::function<void()> &work) {
  Worker w;
  int ends[2];
  TKC_CHECK(pipe(ends) == 0, "pipe: {}", std::strerror(errno));
  w.log = memfd_create("tkc-fuzz", MFD_CLOEXEC);
  fflush(nullptr);
  w.pid = fork();
  TKC_CHECK(w.pid >= 0, "fork: {}", std::strerror(errno));
  if (w.pid == 0) {
    close(ends[0]);
    g_pipe = ends[1];
    if (w.log >= 0) dup2(w.log, 2);
    rlimit none{0, 0};
    setrlimit(RLIMIT_CORE, &none);
    set_internal_error_hook(on_internal_error);
    work();
    _exit(0);
  }
  close(ends[1]);
  w.pipe = ends[0];
  fcntl(w.pipe, F_SETFL, O_NONBLOCK);
  w.since = Clock::now();
  return w;
}

std::string log_of(const Worker &w) {
  std::string text(4000, 0);
  off_t size = w.log >= 0 ? lseek(w.log, 0, SEEK_END) : 0;
  ssize_t n = size > 0 ? pread(w.log, text.data(), text.size(), std::max<off_t>(0, size - off_t(text.size()))) : 0;
  text.resize(size_t(std::max<ssize_t>(n, 0)));
  return text;
}

// After the pipe is at its end: how the process ended, as a finding.
Outcome end_of(Worker &w, bool killed) {
  int status = 0;
  waitpid(w.pid, &status, 0);
  Outcome o{Verdict::Found, "", w.fault.empty() ? log_of(w) : unescaped(w.fault)};
  if (killed)
    o.kind = "hang", o.message = "no answer within the time limit\n" + o.message;
  else if (!w.fault.empty())
    o.kind = "internal error " + without_numbers(o.message);
  else if (WIFSIGNALED(status))
    o.kind = fmt::format("signal {}", WTERMSIG(status));
  else
    o.kind = fmt::format("exit {} {}", WEXITSTATUS(status), without_numbers(o.message));
  close(w.pipe);
  if (w.log >= 0) close(w.log);
  w.pid = -1;
  return o;
}

void send_outcome(const Outcome &o, const std::string &more) {
  send(fmt::format("R\t{}\t{}\t{}\t{}", int(o.verdict), o.kind, escaped(o.message), more));
}
Outcome outcome_of(const std::vector<std::string> &words) {
  return {Verdict(std::stoi(words[1])), words[2], unescaped(words[3])};
}

// Reads what there is; false at the end of the pipe.
bool read_lines(Worker &w, const std::function<void(const std::vector<std::string> &)> &line) {
  char data[65536];
  for (;;) {
    ssize_t n = read(w.pipe, data, sizeof data);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (n <= 0) return false;
    w.buffer.append(data, size_t(n));
    for (size_t end; (end = w.buffer.find('\n')) != std::string::npos; w.buffer.erase(0, end + 1)) {
      std::vector<std::string> words = split(w.buffer.substr(0, end));
      w.since = Clock::now();
      if (words[0] == "E")
        w.fault = words[1];
      else
        line(words);
    }
  }
}

} // namespace

Outcome isolated(const std::function<Outcome()> &work, double seconds) {
  Worker w = start([&] { send_outcome(work(), ""); });
  std::optional<Outcome> got;
  bool killed = false;
  for (;;) {
    pollfd p{w.pipe, POLLIN, 0};
    poll(&p, 1, 200);
    if (!read_lines(w, [&](const auto &words) { got = outcome_of(words); })) break;
    if (!killed && std::chrono::duration<double>(Clock::now() - w.since).count() > seconds)
      kill(w.pid, SIGKILL), killed = true;
  }
  Outcome end = end_of(w, killed);
  return got ? *got : end;
}

Tally run_campaign(const CampaignOptions &o, const std::function<void(const Finding &)> &found,
                   const Progress &progress) {
  Tally tally;
  auto begin = Clock::now();
  auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  uint64_t last = o.programs > 0 ? o.seed + uint64_t(o.programs) : ~uint64_t(0);
  auto stop = [&] { return o.seconds > 0 && elapsed() > o.seconds; };
  // Worker j of n runs programs j, j + n, ...
  auto step = uint64_t(o.jobs);
  auto launch = [&](uint64_t from) {
    Worker w = start([&] {
      std::unique_ptr<Device> device;
      RunOptions how;
      how.emulate = o.emulate;
      if (o.gpu) {
        auto d = Device::open(0);
        if (!d) {
          send("E\t" + escaped(d.error()));
          _exit(4);
        }
        device = std::move(*d);
        how.device = device.get();
      } else {
        rlimit memory{kMostBytes, kMostBytes};
        setrlimit(RLIMIT_AS, &memory);
      }
      uint64_t seed = from;
      for (int64_t k = 0; k < kBatch && seed < last && !stop(); k++, seed += step) {
        send(fmt::format("S\t{}", seed));
        Choices c(seed);
        Program p = generate(c, seed, o.generate);
        int64_t exact = 0;
        for (const auto &[name, error] : p.outputs) exact += error == 0;
        send_outcome(run_program(p, how), fmt::format("{}\t{}", p.outputs.size(), exact));
      }
    });
    w.next = from;
    return w;
  };
  std::vector<Worker> workers;
  for (int j = 0; j < o.jobs; j++) workers.push_back(launch(o.seed + uint64_t(j)));
  auto note = [&](uint64_t seed, const Outcome &outcome) {
    tally.programs++;
    if (tally.programs % 1000 == 0) progress(tally);
    if (outcome.verdict == Verdict::Clean) tally.clean++;
    if (outcome.verdict == Verdict::Rejected) tally.rejected[outcome.kind]++;
    if (outcome.verdict != Verdict::Found) return;
    tally.findings.push_back({seed, outcome});
    found(tally.findings.back());
  };
  for (size_t alive = workers.size(); alive > 0;) {
    std::vector<pollfd> polled;
    for (Worker &w : workers)
      if (w.pid >= 0) polled.push_back({w.pipe, POLLIN, 0});
    poll(polled.data(), polled.size(), 500);
    for (Worker &w : workers) {
      if (w.pid < 0) continue;
      bool more = read_lines(w, [&](const std::vector<std::string> &words) {
        if (words[0] == "S") {
          w.current = std::stoull(words[1]), w.running = true, w.next = w.current + step;
          return;
        }
        w.running = false;
        tally.outputs += std::stoll(words[4]), tally.exact_outputs += std::stoll(words[5]);
        note(w.current, outcome_of(words));
      });
      bool late = std::chrono::duration<double>(Clock::now() - w.since).count() > kMostSeconds;
      if (more && !late) continue;
      if (late) kill(w.pid, SIGKILL);
      bool running = w.running;
      uint64_t current = w.current, next = w.next;
      bool started = w.next != 0 && (running || w.current != 0);
      Outcome end = end_of(w, late);
      if (running) note(current, end);
      bool fails = !started && end.kind != "exit 0 "; // before its first program: it will not get better
      if (fails) note(next, end);
      if (fails || next >= last || stop()) {
        alive--;
        continue;
      }
      w = launch(next);
    }
  }
  tally.seconds = elapsed();
  return tally;
}

} // namespace tkc::fuzz
