// A plan on the GPU: as launches on streams, or as one graph that was captured from them.
#pragma once
#include "driver/execute_program.h"

namespace tkc::driver {

// The launches of a plan, checked and with their parameters filled in: queued many times with little work. The module
// must outlive it.
class PreparedProgram {
public:
  // `address`: of the first byte of each parameter of the program; `workspace`: of Plan::workspace_bytes. `stamps`: of
  // a table for every launch, if the module has the stamped entries (driver/stamps.h).
  static Result<PreparedProgram> create(const Plan &plan, const CompiledProgram &compiled, const Module &module,
                                        Device &device, const std::function<uint64_t(size_t)> &address,
                                        uint64_t workspace, uint64_t stamps = 0);
  // All launches, behind what was queued on `stream`, and before what will be: launches of one step go to streams of
  // their own, between events. `ended`: one event a launch, recorded behind it.
  Status queue(const Stream &stream, std::vector<Event> *ended = nullptr);
  // The same, recorded: one call replays it. `stream` is where it is captured.
  Result<Graph> capture(Stream &stream);

private:
  struct Item {
    PreparedLaunch prepared;
    int64_t step;
  };
  std::vector<Item> launches_;
  std::vector<Stream> side_; // for all but the first launch of a step
  std::vector<Event> done_;  // of each side stream
  std::vector<Event> fork_;  // one
};

// As the other executors; guard bands lie around every tensor and around the workspace, which is poisoned before. With
// `graph` the launches are captured first, and what runs is the graph.
Status run_gpu(Device &device, const Plan &plan, const CompiledProgram &compiled, LaunchData &data, bool graph,
               double limit_seconds);

} // namespace tkc::driver
