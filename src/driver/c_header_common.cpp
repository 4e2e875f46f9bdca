// The part that all headers of `--emit header` share.
#include "driver/c_header_text.h"

namespace tkc::driver {

const char *const kHeaderCommon = R"C(#ifndef TKC_LOADER_1
#define TKC_LOADER_1

typedef enum tkc_status {
  TKC_OK = 0,
  TKC_NO_TENSOR = 1,    /* a tensor is missing: a null pointer, or elements without an address */
  TKC_SIZE = 2,         /* an extent is not what it must be, or differs from that of another tensor */
  TKC_RANGE = 3,        /* a size or scalar is negative or too large */
  TKC_STRIDE = 4,       /* the innermost stride is not 1 */
  TKC_ALIGNMENT = 5,    /* an address is not a multiple of the size of an element */
  TKC_WHERE = 6,        /* a `where` fact does not hold */
  TKC_GRID = 7,         /* more than 2^31 - 1 blocks */
  TKC_NO_VALUE = 8,     /* a division by 0 or an overflow in what depends on the sizes */
  TKC_PART = 9,         /* a part of a tensor lies outside of it */
  TKC_WORKSPACE = 10,   /* too small, or not aligned to TKC_WORKSPACE_ALIGN bytes */
  TKC_DEVICE = 11,      /* the device has too little shared memory for a block */
  TKC_DRIVER = 0x10000, /* plus the CUresult of a driver call */
  TKC_LAST_STATUS = 0x1ffff
} tkc_status;

#define TKC_MAX_RANK 8
#define TKC_WORKSPACE_ALIGN 256

/* Memory of the device; extents and strides in elements, outermost first. */
typedef struct tkc_tensor {
  CUdeviceptr data;
  int64_t extent[TKC_MAX_RANK];
  int64_t stride[TKC_MAX_RANK];
} tkc_tensor;

/* A row-major tensor. */
static inline tkc_tensor tkc_dense(CUdeviceptr data, int rank, const int64_t *extent) {
  tkc_tensor t;
  int64_t stride = 1;
  int d;
  memset(&t, 0, sizeof t);
  t.data = data;
  for (d = rank - 1; d >= 0; d--) {
    t.extent[d] = extent[d];
    t.stride[d] = stride;
    stride *= extent[d];
  }
  return t;
}
static inline tkc_tensor tkc_dense1(CUdeviceptr data, int64_t a) {
  int64_t e[1];
  e[0] = a;
  return tkc_dense(data, 1, e);
}
static inline tkc_tensor tkc_dense2(CUdeviceptr data, int64_t a, int64_t b) {
  int64_t e[2];
  e[0] = a, e[1] = b;
  return tkc_dense(data, 2, e);
}
static inline tkc_tensor tkc_dense3(CUdeviceptr data, int64_t a, int64_t b, int64_t c) {
  int64_t e[3];
  e[0] = a, e[1] = b, e[2] = c;
  return tkc_dense(data, 3, e);
}
static inline tkc_tensor tkc_dense4(CUdeviceptr data, int64_t a, int64_t b, int64_t c, int64_t d) {
  int64_t e[4];
  e[0] = a, e[1] = b, e[2] = c, e[3] = d;
  return tkc_dense(data, 4, e);
}

static inline const char *tkc_status_string(tkc_status s) {
  const char *text = 0;
  switch ((int)s) {
  case TKC_OK: return "ok";
  case TKC_NO_TENSOR: return "a tensor is missing";
  case TKC_SIZE: return "the extents of a tensor do not fit";
  case TKC_RANGE: return "a size or scalar is out of range";
  case TKC_STRIDE: return "the innermost stride of a tensor is not 1";
  case TKC_ALIGNMENT: return "the address of a tensor is not a multiple of its element size";
  case TKC_WHERE: return "a `where` fact does not hold";
  case TKC_GRID: return "the grid has too many blocks";
  case TKC_NO_VALUE: return "an expression has no value for these sizes";
  case TKC_PART: return "a part of a tensor lies outside of it";
  case TKC_WORKSPACE: return "the workspace is too small or not aligned";
  case TKC_DEVICE: return "the device has too little shared memory";
  default: break;
  }
  if ((int)s < (int)TKC_DRIVER) return "unknown status";
  if (cuGetErrorString((CUresult)((int)s - (int)TKC_DRIVER), &text) == CUDA_SUCCESS && text) return text;
  return "unknown status";
}

/* ---- what follows is for the functions of the headers */

static inline tkc_status tkc_driver_status(CUresult r) {
  return r == CUDA_SUCCESS ? TKC_OK : (tkc_status)((int)TKC_DRIVER + ((int)r & 0xffff));
}

static inline int64_t tkc_add(int *bad, int64_t a, int64_t b) {
  if (b > 0 ? a > INT64_MAX - b : a < INT64_MIN - b) return *bad = 1, 0;
  return a + b;
}
static inline int64_t tkc_sub(int *bad, int64_t a, int64_t b) {
  if (b < 0 ? a > INT64_MAX + b : a < INT64_MIN + b) return *bad = 1, 0;
  return a - b;
}
static inline int64_t tkc_mul(int *bad, int64_t a, int64_t b) {
  if (a != 0 && b != 0 &&
      (a > 0 ? (b > 0 ? a > INT64_MAX / b : b < INT64_MIN / a) : (b > 0 ? a < INT64_MIN / b : b < INT64_MAX / a)))
    return *bad = 1, 0;
  return a * b;
}
static inline int64_t tkc_div(int *bad, int64_t a, int64_t b) {
  if (b == 0 || (b == -1 && a == INT64_MIN)) return *bad = 1, 0;
  return a / b;
}
static inline int64_t tkc_rem(int *bad, int64_t a, int64_t b) {
  if (b == 0 || (b == -1 && a == INT64_MIN)) return *bad = 1, 0;
  return a % b;
}
static inline int64_t tkc_cdiv(int *bad, int64_t a, int64_t b) {
  if (b == 0 || (b == -1 && a == INT64_MIN)) return *bad = 1, 0;
  return a / b + (a % b != 0 && (a < 0) == (b < 0) ? 1 : 0);
}
static inline int64_t tkc_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t tkc_max(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t tkc_and(int64_t a, int64_t b) { return a && b; }
static inline int64_t tkc_or(int64_t a, int64_t b) { return a || b; }

static inline float tkc_float_of(uint32_t bits) {
  float f;
  memcpy(&f, &bits, sizeof f);
  return f;
}
static inline double tkc_double_of(uint64_t bits) {
  double f;
  memcpy(&f, &bits, sizeof f);
  return f;
}

/* Extents as wanted, addresses only if `data`. */
static inline tkc_status tkc_check(const tkc_tensor *t, int rank, const int64_t *want, int64_t bytes, int any_strides,
                                   int data) {
  int d, empty = 0;
  for (d = 0; d < rank; d++) {
    if (t->extent[d] != want[d]) return TKC_SIZE;
    if (want[d] < 0 || want[d] > INT32_MAX) return TKC_RANGE;
    if (want[d] == 0) empty = 1;
  }
  if (!any_strides && rank > 0 && t->stride[rank - 1] != 1 && t->extent[rank - 1] > 1) return TKC_STRIDE;
  if (data && !empty && t->data == 0) return TKC_NO_TENSOR;
  if (data && (int64_t)(t->data % (CUdeviceptr)bytes) != 0) return TKC_ALIGNMENT;
  return TKC_OK;
}

/* A box of a tensor: of each dim its start, its extent, and whether it stays a dim. */
static inline tkc_status tkc_part(tkc_tensor *out, const tkc_tensor *base, int rank, const int64_t *at,
                                  const int64_t *extent, const int *kept, int64_t bytes) {
  int d, k = 0;
  int64_t offset = 0;
  memset(out, 0, sizeof *out);
  for (d = 0; d < rank; d++) {
    if (at[d] < 0 || extent[d] < 0 || at[d] > base->extent[d] || extent[d] > base->extent[d] - at[d]) return TKC_PART;
    offset += at[d] * base->stride[d];
    if (!kept[d]) continue;
    out->extent[k] = extent[d];
    out->stride[k++] = base->stride[d];
  }
  out->data = base->data + (CUdeviceptr)(offset * bytes);
  return TKC_OK;
}

/* A temporary at an offset of the workspace; *end is the offset behind it. */
static inline tkc_status tkc_place(tkc_tensor *out, CUdeviceptr workspace, int64_t offset, int rank,
                                   const int64_t *extent, int64_t bytes, int64_t *end, int64_t *needed) {
  int d, bad = 0;
  int64_t size = bytes;
  for (d = 0; d < rank; d++) {
    if (extent[d] < 0 || extent[d] > INT32_MAX) return TKC_RANGE;
    size = tkc_mul(&bad, size, extent[d]);
  }
  *out = tkc_dense(workspace + (CUdeviceptr)offset, rank, extent);
  *end = tkc_mul(&bad, tkc_cdiv(&bad, tkc_add(&bad, offset, size), TKC_WORKSPACE_ALIGN), TKC_WORKSPACE_ALIGN);
  if (*end > *needed) *needed = *end;
  return bad ? TKC_NO_VALUE : TKC_OK;
}

#endif /* TKC_LOADER_1 */
)C";

// Only where a kernel of the module has tensor maps, which older drivers do not know.
const char *const kHeaderMaps = R"C(#ifndef TKC_LOADER_MAPS_1
#define TKC_LOADER_MAPS_1

/* Box and extents outermost first, as the tensor has them. */
static inline tkc_status tkc_map(CUtensorMap *map, CUtensorMapDataType type, int64_t bytes, int rank,
                                 const tkc_tensor *t, const int64_t *box, CUtensorMapSwizzle swizzle) {
  cuuint64_t extents[5], strides[5];
  cuuint32_t boxes[5], steps[5];
  int64_t span = 0;
  int d;
  CUresult r;
  for (d = 0; d < rank; d++) { /* innermost first */
    int64_t stride = d == 0 ? 1 : t->stride[rank - 1 - d];
    extents[d] = (cuuint64_t)t->extent[rank - 1 - d];
    boxes[d] = (cuuint32_t)box[rank - 1 - d];
    steps[d] = 1;
    if (d > 0) strides[d - 1] = (cuuint64_t)(stride * bytes);
    span += (t->extent[rank - 1 - d] - 1) * stride * bytes;
  }
  r = cuTensorMapEncodeTiled(map, type, (cuuint32_t)rank, (void *)(uintptr_t)t->data, extents, strides, boxes, steps,
                             CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  /* Drivers before CUDA 13.2 set this bit for every tensor; sm_100 and later then misread small ones. */
  if (r == CUDA_SUCCESS && span + bytes < 128 << 10) map->opaque[1] &= ~((cuuint64_t)1 << 21);
  return tkc_driver_status(r);
}

#endif /* TKC_LOADER_MAPS_1 */
)C";

} // namespace tkc::driver
