// The emulator against a GPU: test/gpu/*.cpp. Without a GPU of at least sm_90 the kernels run on the emulator alone,
// which must accept them and find no fault. `gpu_test -s` prints how much of each bound was used.
#include "gpu/job.h"
#include <doctest/doctest.h>

TEST_CASE("which GPU") {
  tkc::Device *d = gpu_test::gpu();
  MESSAGE((d ? "compared with " + d->info().name + ", " + d->info().arch()
             : std::string("no GPU: only the emulator runs")));
}
