// Occupancy against known cases and, on machines that have it, against the vendor's calculator.
#include "runtime/occupancy.h"
#include <doctest/doctest.h>
#if __has_include("/usr/local/cuda/include/cuda_occupancy.h")
#include "/usr/local/cuda/include/cuda_occupancy.h"
#define TKC_VENDOR_OCCUPANCY 1
#endif

using namespace tkc;

static const SmLimits kH200 = {65536, 2048, 32, 233472, 232448, 1024},
                      kGeForce = {65536, 1536, 24, 102400, 101376, 1024};

TEST_CASE("blocks of an SM") {
  CHECK(blocks_per_sm(kH200, 32, 1024, 0) == 2);
  CHECK(blocks_per_sm(kH200, 33, 1024, 0) == 1);
  CHECK(blocks_per_sm(kH200, 255, 256, 0) == 1);
  CHECK(blocks_per_sm(kH200, 255, 288, 0) == 0);
  CHECK(blocks_per_sm(kH200, 168, 384, 0) == 1);
  CHECK(blocks_per_sm(kH200, 16, 32, 0) == 32);
  CHECK(blocks_per_sm(kH200, 32, 128, 232448) == 1);
  CHECK(blocks_per_sm(kH200, 32, 128, 232449) == 0);
  CHECK(blocks_per_sm(kH200, 32, 128, 115712) == 2);
  CHECK(blocks_per_sm(kGeForce, 32, 128, 101376) == 1);
  CHECK(blocks_per_sm(kGeForce, 32, 128, 50176) == 2);
  CHECK(blocks_per_sm(kGeForce, 40, 256, 0) == 6);
}

#ifdef TKC_VENDOR_OCCUPANCY
TEST_CASE("blocks of an SM agree with the vendor's calculator") {
  struct Part {
    int major, minor;
    int64_t threads, blocks, shared;
  };
  const Part parts[] = {{8, 0, 2048, 32, 167936}, {8, 6, 1536, 16, 102400},  {8, 9, 1536, 24, 102400},
                        {9, 0, 2048, 32, 233472}, {10, 0, 2048, 32, 233472}, {12, 0, 1536, 24, 102400}};
  for (const Part &p : parts) {
    SmLimits sm = {65536, p.threads, p.blocks, p.shared, p.shared - 1024, 1024};
    cudaOccDeviceProp prop = {};
    prop.computeMajor = p.major;
    prop.computeMinor = p.minor;
    prop.maxThreadsPerBlock = 1024;
    prop.maxThreadsPerMultiprocessor = int(p.threads);
    prop.regsPerBlock = prop.regsPerMultiprocessor = 65536;
    prop.warpSize = 32;
    prop.sharedMemPerBlock = 49152;
    prop.sharedMemPerMultiprocessor = size_t(p.shared);
    prop.sharedMemPerBlockOptin = size_t(p.shared - 1024);
    prop.reservedSharedMemPerBlock = 1024;
    prop.numSms = 100;
    int64_t wrong = 0, compared = 0;
    for (int registers = 8; registers <= 255; registers += registers < 40 ? 1 : 7)
      for (int threads = 32; threads <= 1024; threads += threads < 200 ? 32 : 96)
        for (int64_t shared = 0; shared < p.shared; shared += 3333) {
          cudaOccFuncAttributes attributes = {};
          attributes.maxThreadsPerBlock = 1024;
          attributes.numRegs = registers;
          attributes.maxDynamicSharedSizeBytes = size_t(p.shared);
          attributes.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
          cudaOccDeviceState state = {};
          state.carveoutConfig = SHAREDMEM_CARVEOUT_MAX_SHARED;
          cudaOccResult result = {};
          if (cudaOccMaxActiveBlocksPerMultiprocessor(&result, &prop, &attributes, &state, threads, size_t(shared)) !=
              CUDA_OCC_SUCCESS)
            continue;
          compared++;
          bool same = result.activeBlocksPerMultiprocessor == blocks_per_sm(sm, registers, threads, shared);
          if (!same && wrong++ == 0)
            MESSAGE(p.major << "." << p.minor << ": " << registers << " registers, " << threads << " threads, "
                            << shared << " bytes: " << result.activeBlocksPerMultiprocessor << " against "
                            << blocks_per_sm(sm, registers, threads, shared));
        }
    CAPTURE(p.major);
    CAPTURE(p.minor);
    CHECK(compared > 10000);
    CHECK(wrong == 0);
  }
}
#endif
