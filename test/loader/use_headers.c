/* Calls every kind of function that `--emit header` writes, in plain C99, and compares with loops in C. It is linked
 * with libcuda.so.1: on a machine with a GPU that is the driver, in scripts/test the one of emu_driver.cpp, whose log
 * is then checked as well. Prints a line a test; exit 1 if one fails. */
#include "cases.h"
#include "emu_driver.h"
#include "gemm.h"
#include "softmax.h"
#include "split_gemm.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#pragma weak tkc_emu_log
#pragma weak tkc_emu_clear_log

static int failures, tests;
static void report(const char *name, int good, const char *what) {
  tests++;
  if (!good) failures++;
  printf("%-34s %s%s%s\n", name, good ? "PASS" : "FAIL", what[0] ? "  " : "", what);
}

static void expect(const char *name, tkc_status got, tkc_status wanted) {
  char text[160];
  snprintf(text, sizeof text, "status %d (%s), wanted %d", (int)got, tkc_status_string(got), (int)wanted);
  report(name, got == wanted, got == wanted ? "" : text);
}

static void driver_call(CUresult r, const char *what) {
  if (r == CUDA_SUCCESS) return;
  printf("FAIL: %s: %s\n", what, tkc_status_string(tkc_driver_status(r)));
  exit(1);
}

/* ---- numbers */
static uint32_t state = 12345;
static float random_float(void) { /* uniform in -1 .. 1 */
  state = state * 1664525u + 1013904223u;
  return (float)(state >> 8) / 8388608.0f - 1.0f;
}
static uint16_t to_bf16(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  u += 0x7fff + ((u >> 16) & 1);
  return (uint16_t)(u >> 16);
}
static float from_bf16(uint16_t h) {
  uint32_t u = (uint32_t)h << 16;
  float f;
  memcpy(&f, &u, 4);
  return f;
}

typedef struct {
  size_t count, bytes;
  void *host;
  CUdeviceptr device;
} Buffer;
static Buffer buffer(size_t count, size_t bytes, int fill) {
  Buffer b;
  size_t i;
  b.count = count;
  b.bytes = bytes;
  b.host = malloc(count * bytes + 1);
  if (!b.host) exit(1);
  for (i = 0; i < count; i++) {
    if (bytes == 2) ((uint16_t *)b.host)[i] = fill ? to_bf16(random_float()) : 0x7fc0;
    if (bytes == 4) ((float *)b.host)[i] = fill ? random_float() : NAN;
  }
  driver_call(cuMemAlloc(&b.device, count * bytes + 64), "cuMemAlloc");
  driver_call(cuMemcpyHtoD(b.device, b.host, count * bytes), "cuMemcpyHtoD");
  return b;
}
static void fetch(Buffer *b) { driver_call(cuMemcpyDtoH(b->host, b->device, b->count * b->bytes), "cuMemcpyDtoH"); }
static void drop(Buffer *b) {
  free(b->host);
  driver_call(cuMemFree(b->device), "cuMemFree");
}
static float bf(const Buffer *b, size_t i) { return from_bf16(((uint16_t *)b->host)[i]); }
static float f32(const Buffer *b, size_t i) { return ((float *)b->host)[i]; }

/* rms of the error over rms of the reference */
typedef struct {
  double error, square;
} Rms;
static void compare(Rms *r, double got, double wanted) {
  double e = got - wanted;
  r->error += e != e ? 1e30 : e * e;
  r->square += wanted * wanted;
}
static void report_rms(const char *name, const Rms *r, double limit) {
  char text[80];
  double ratio = sqrt(r->error / (r->square > 0 ? r->square : 1));
  snprintf(text, sizeof text, "rms %.2e (limit %.1e)", ratio, limit);
  report(name, ratio <= limit, text);
}

/* With the emulated driver: whether its log has the text since the last clearing. */
static void expect_log(const char *name, const char *text, int wanted) {
  if (!tkc_emu_log) return;
  {
    int good = (strstr(tkc_emu_log(), text) != 0) == wanted;
    report(name, good, good ? "" : tkc_emu_log());
  }
}
static void clear_log(void) {
  if (tkc_emu_clear_log) tkc_emu_clear_log();
}

static CUstream stream;
static void finish(void) { driver_call(cuStreamSynchronize(stream), "cuStreamSynchronize"); }

/* ---- tests */
static void test_softmax(void) {
  enum { M = 7, N = 4096 };
  tkc_softmax_module module;
  char log[1024];
  Buffer x = buffer(M * N, 2, 1), y = buffer(M * N, 2, 0);
  tkc_tensor tx = tkc_dense2(x.device, M, N), ty = tkc_dense2(y.device, M, N), bad;
  Rms rms = {0, 0};
  int i, j;
  tkc_status s = tkc_load_softmax(&module, log, sizeof log);
  if (s != TKC_OK) printf("%s\n", log);
  expect("softmax: load", s, TKC_OK);
  clear_log();
  expect("softmax: launch", tkc_softmax_softmax(&module, &tx, &ty, stream), TKC_OK);
  finish();
  expect_log("softmax: entry, grid, block", "launch softmax grid 2 block ", 1);
  fetch(&y);
  for (i = 0; i < M; i++) {
    double sum = 0, most = -INFINITY;
    for (j = 0; j < N; j++) most = fmax(most, bf(&x, (size_t)(i * N + j)));
    for (j = 0; j < N; j++) sum += exp(bf(&x, (size_t)(i * N + j)) - most);
    for (j = 0; j < N; j++) compare(&rms, bf(&y, (size_t)(i * N + j)), exp(bf(&x, (size_t)(i * N + j)) - most) / sum);
  }
  report_rms("softmax: values", &rms, 4e-3);
  /* Every fault has its status, and launches nothing. */
  clear_log();
  expect("softmax: no tensor", tkc_softmax_softmax(&module, &tx, 0, stream), TKC_NO_TENSOR);
  bad = ty, bad.data = 0;
  expect("softmax: no memory", tkc_softmax_softmax(&module, &tx, &bad, stream), TKC_NO_TENSOR);
  bad = ty, bad.extent[0] = M - 1;
  expect("softmax: extents disagree", tkc_softmax_softmax(&module, &tx, &bad, stream), TKC_SIZE);
  bad = tx, bad.extent[1] = N / 2;
  expect("softmax: extent of the variant", tkc_softmax_softmax(&module, &bad, &ty, stream), TKC_SIZE);
  bad = tx, bad.extent[0] = -1;
  expect("softmax: negative extent", tkc_softmax_softmax(&module, &bad, &ty, stream), TKC_RANGE);
  bad = tx, bad.stride[1] = 2;
  expect("softmax: innermost stride", tkc_softmax_softmax(&module, &bad, &ty, stream), TKC_STRIDE);
  bad = tx, bad.data += 1;
  expect("softmax: alignment", tkc_softmax_softmax(&module, &bad, &ty, stream), TKC_ALIGNMENT);
  bad = tx, bad.extent[0] = 0;
  {
    tkc_tensor none = ty;
    none.extent[0] = 0;
    expect("softmax: nothing to do", tkc_softmax_softmax(&module, &bad, &none, stream), TKC_OK);
  }
  expect_log("softmax: no launch after a fault", "launch", 0);
  /* A pitch that is no multiple of 16 bytes takes the other entry. */
  {
    Buffer p = buffer(2 * (N + 3), 2, 1);
    tkc_tensor tp = tkc_dense2(p.device, 2, N), t2 = tkc_dense2(y.device, 2, N);
    tp.stride[0] = N + 3;
    rms.error = rms.square = 0;
    expect("softmax: odd pitch", tkc_softmax_softmax(&module, &tp, &t2, stream), TKC_OK);
    finish();
    expect_log("softmax: the other entry", "launch softmax__any grid 1 ", 1);
    fetch(&y);
    for (i = 0; i < 2; i++) {
      double sum = 0;
      for (j = 0; j < N; j++) sum += exp(bf(&p, (size_t)(i * (N + 3) + j)));
      for (j = 0; j < N; j++) compare(&rms, bf(&y, (size_t)(i * N + j)), exp(bf(&p, (size_t)(i * (N + 3) + j))) / sum);
    }
    report_rms("softmax: values, odd pitch", &rms, 4e-3);
    drop(&p);
  }
  expect("softmax: unload", tkc_unload_softmax(&module), TKC_OK);
  drop(&x);
  drop(&y);
}

static void product(Rms *rms, const Buffer *a, const Buffer *b, const Buffer *c, int m, int n, int k) {
  int i, j, l;
  for (i = 0; i < m; i++)
    for (j = 0; j < n; j++) {
      double sum = 0;
      for (l = 0; l < k; l++) sum += (double)bf(a, (size_t)(i * k + l)) * bf(b, (size_t)(l * n + j));
      compare(rms, bf(c, (size_t)(i * n + j)), sum);
    }
}

static void test_gemm(int m, int n, int k, const char *entry, const char *name) {
  tkc_gemm_module module;
  Buffer a = buffer((size_t)(m * k), 2, 1), b = buffer((size_t)(k * n), 2, 1), c = buffer((size_t)(m * n), 2, 0);
  tkc_tensor ta = tkc_dense2(a.device, m, k), tb = tkc_dense2(b.device, k, n), tc = tkc_dense2(c.device, m, n);
  Rms rms = {0, 0};
  expect("gemm: load", tkc_load_gemm(&module, 0, 0), TKC_OK);
  clear_log();
  expect("gemm: launch", tkc_gemm_gemm(&module, &ta, &tb, &tc, stream), TKC_OK);
  finish();
  expect_log("gemm: entry", entry, 1);
  fetch(&c);
  product(&rms, &a, &b, &c, m, n, k);
  report_rms(name, &rms, 4e-3);
  expect("gemm: unload", tkc_unload_gemm(&module), TKC_OK);
  drop(&a);
  drop(&b);
  drop(&c);
}

static void test_split_gemm(void) {
  enum { M = 64, N = 72, K = 2048 };
  tkc_split_gemm_module module;
  Buffer a = buffer(M * K, 2, 1), b = buffer(K * N, 2, 1), c = buffer(M * N, 2, 0), w;
  tkc_tensor ta = tkc_dense2(a.device, M, K), tb = tkc_dense2(b.device, K, N), tc = tkc_dense2(c.device, M, N);
  size_t bytes = 0, small = 1;
  Rms rms = {0, 0};
  expect("split_gemm: load", tkc_load_split_gemm(&module, 0, 0), TKC_OK);
  expect("split_gemm: workspace query", tkc_workspace_split_gemm_split_gemm(&module, &ta, &tb, &tc, &bytes), TKC_OK);
  /* K / 256 parts, if there are SMs enough */
  report("split_gemm: workspace bytes", bytes == 8 * M * N * 4, "");
  w = buffer(bytes / 4, 4, 0);
  clear_log();
  expect("split_gemm: workspace too small",
         tkc_split_gemm_split_gemm(&module, &ta, &tb, &tc, w.device, bytes - 1, stream), TKC_WORKSPACE);
  expect("split_gemm: no workspace", tkc_split_gemm_split_gemm(&module, &ta, &tb, &tc, 0, bytes, stream),
         TKC_WORKSPACE);
  expect("split_gemm: workspace not aligned",
         tkc_split_gemm_split_gemm(&module, &ta, &tb, &tc, w.device + 16, bytes, stream), TKC_WORKSPACE);
  expect_log("split_gemm: no launch without it", "launch", 0);
  expect("split_gemm: launch", tkc_split_gemm_split_gemm(&module, &ta, &tb, &tc, w.device, bytes, stream), TKC_OK);
  finish();
  expect_log("split_gemm: first kernel", "launch products grid 16 ", 1);
  expect_log("split_gemm: second kernel", "launch add_parts grid 8 ", 1);
  expect_log("split_gemm: nothing is allocated", "alloc ", 0);
  fetch(&c);
  product(&rms, &a, &b, &c, M, N, K);
  report_rms("split_gemm: values", &rms, 4e-3);
  ta.extent[1] = ta.stride[0] = tb.extent[0] = 128; /* few: one launch, no workspace */
  expect("split_gemm: query, one kernel", tkc_workspace_split_gemm_split_gemm(&module, &ta, &tb, &tc, &small), TKC_OK);
  report("split_gemm: no workspace needed", small == 0, "");
  tb.extent[0] = 64;
  expect("split_gemm: extents disagree", tkc_split_gemm_split_gemm(&module, &ta, &tb, &tc, 0, 0, stream), TKC_SIZE);
  expect("split_gemm: unload", tkc_unload_split_gemm(&module), TKC_OK);
  drop(&a);
  drop(&b);
  drop(&c);
  drop(&w);
}

static void test_cases(void) {
  enum { M = 7, N = 70 };
  tkc_cases_module module;
  Buffer x = buffer(M * N, 4, 1), y = buffer(M * N, 4, 0), bias = buffer(N, 4, 1), w;
  tkc_tensor tx = tkc_dense2(x.device, M, N), ty = tkc_dense2(y.device, M, N), tb = tkc_dense1(bias.device, N);
  Rms rms = {0, 0};
  size_t bytes = 0;
  int i, j;
  expect("cases: load", tkc_load_cases(&module, 0, 0), TKC_OK);
  expect("scalars: launch",
         tkc_cases_scalars(&module, &tx, &tb, &ty, 0.5f, 0.25, to_bf16(-3.0f), -100, 60000, 5, -70000, 1, stream),
         TKC_OK);
  finish();
  fetch(&y);
  for (i = 0; i < M * N; i++)
    compare(&rms, f32(&y, (size_t)i),
            -(f32(&x, (size_t)i) * 0.5 + 0.25 - 3 - 100 + 60000 + 5 - 70000 + f32(&bias, (size_t)(i % N))));
  report_rms("scalars: values", &rms, 1e-6);
  expect("scalars: where", tkc_cases_scalars(&module, &tx, &tb, &ty, 0.5f, 0.25, 0, 0, 0, -1, 0, 0, stream), TKC_WHERE);
  {
    tkc_tensor turned = tx;
    turned.extent[0] = turned.extent[1] = M;
    turned.stride[0] = 1, turned.stride[1] = N;
    rms.error = rms.square = 0;
    ty = tkc_dense2(y.device, M, M);
    expect("turned: launch", tkc_cases_turned(&module, &turned, &ty, stream), TKC_OK);
    finish();
    fetch(&y);
    for (i = 0; i < M; i++)
      for (j = 0; j < M; j++) compare(&rms, f32(&y, (size_t)(i * M + j)), f32(&x, (size_t)(j * N + i)));
    report_rms("turned: values", &rms, 0);
  }
  {
    tkc_tensor tp = tkc_dense1(x.device, 41), to = tkc_dense1(y.device, 80);
    rms.error = rms.square = 0;
    expect("pad: launch", tkc_cases_pad(&module, &tp, &to, 40, stream), TKC_OK);
    finish();
    fetch(&y);
    for (i = 0; i < 80; i++) compare(&rms, f32(&y, (size_t)i), i < 41 ? f32(&x, (size_t)i) : 7);
    report_rms("pad: values", &rms, 0);
    expect("pad: another size", tkc_cases_pad(&module, &tp, &to, 39, stream), TKC_SIZE);
  }
  {
    tkc_tensor all = tkc_dense1(x.device, M * N), few = tkc_dense1(x.device, 5), to = tkc_dense1(y.device, M * N);
    char grid[64];
    rms.error = rms.square = 0;
    clear_log();
    expect("tripled: launch", tkc_cases_tripled(&module, &all, &to, stream), TKC_OK);
    finish();
    fetch(&y);
    for (i = 0; i < M * N; i++) compare(&rms, f32(&y, (size_t)i), 3 * f32(&x, (size_t)i));
    report_rms("tripled: values", &rms, 0);
    sprintf(grid, "launch tripled__any grid %d ", module.sms < M * N / 2 ? (int)module.sms : M * N / 2);
    expect_log("tripled: as many blocks as the device holds", grid, 1);
    to.extent[0] = 5;
    expect("tripled: fewer tiles", tkc_cases_tripled(&module, &few, &to, stream), TKC_OK);
    finish();
    expect_log("tripled: a block for each", "launch tripled__any grid 3 ", 1);
  }
  ty = tkc_dense2(y.device, M, N);
  for (i = 1; i <= 2; i++) {
    int parts = i;
    expect("chain: query", tkc_workspace_cases_chain(&module, &tx, &tb, &ty, 3.0f, parts, &bytes), TKC_OK);
    report("chain: workspace bytes", bytes == (size_t)(parts == 1 ? 3 : 2) * 1024, ""); /* 840 each, 256 apart */
    w = buffer(bytes / 4, 4, 0);
    clear_log();
    expect("chain: launch", tkc_cases_chain(&module, &tx, &tb, &ty, 3.0f, parts, w.device, bytes, stream), TKC_OK);
    finish();
    expect_log("chain: kernels of the branch", "launch add_rows__no_bias__any grid 1 ", 1);
    expect_log("chain: the last slice", "launch double_rows__any grid 1 ", 1);
    fetch(&y);
    rms.error = rms.square = 0;
    for (j = 0; j < M * N; j++)
      compare(&rms, f32(&y, (size_t)j),
              3.0 * (6 * f32(&x, (size_t)j) + (parts == 1 ? f32(&bias, (size_t)(j % N)) : 0)));
    report_rms("chain: values", &rms, 1e-6);
    drop(&w);
  }
  for (i = 0; i < 2; i++) {
    const float a = i == 0 ? 1.5f : 0.5f;
    const double s = a / sqrt(M) + 0.25;
    expect("computed: launch", tkc_cases_computed(&module, &tx, &ty, a, 0, 0, stream), TKC_OK);
    finish();
    fetch(&y);
    rms.error = rms.square = 0;
    for (j = 0; j < M * N; j++) compare(&rms, f32(&y, (size_t)j), 2 * (j / N < M / 2 || i == 0 ? s : 3) * f32(&x, (size_t)j));
    report_rms("computed: values", &rms, 1e-6);
  }
  expect("chain: where", tkc_cases_chain(&module, &tx, &tb, &ty, 3.0f, 0, 0, 0, stream), TKC_WHERE);
  expect("cases: unload", tkc_unload_cases(&module), TKC_OK);
  drop(&x);
  drop(&y);
  drop(&bias);
}

int main(void) {
  CUdevice device;
  CUcontext context;
  driver_call(cuInit(0), "cuInit");
  driver_call(cuDeviceGet(&device, 0), "cuDeviceGet");
  driver_call(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
  {
    tkc_softmax_module module;
    expect("load without a context", tkc_load_softmax(&module, 0, 0),
           (tkc_status)((int)TKC_DRIVER + (int)CUDA_ERROR_INVALID_CONTEXT));
  }
  driver_call(cuCtxSetCurrent(context), "cuCtxSetCurrent");
  driver_call(cuStreamCreate(&stream, 1), "cuStreamCreate");
  test_softmax();
  test_gemm(192, 136, 320, "launch gemm grid ", "gemm: values, tensor maps");
  test_gemm(65, 67, 77, "launch gemm__any grid ", "gemm: values, odd sizes");
  test_split_gemm();
  test_cases();
  driver_call(cuStreamDestroy(stream), "cuStreamDestroy");
  driver_call(cuDevicePrimaryCtxRelease(device), "cuDevicePrimaryCtxRelease");
  printf("%d of %d passed\n", tests - failures, tests);
  return failures != 0;
}
