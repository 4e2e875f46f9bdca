"""The CUDA driver API through ctypes: what loading and launching needs. TKC_CUDA_LIBRARY names another library."""
import ctypes
import os
import threading
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_void_p

MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
PREFERRED_CARVEOUT = 9  # CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
_ATTRIBUTES = {"sms": 16, "l2_bytes": 38, "smem": 97, "major": 75, "minor": 76}
# CUtensorMapDataType by bytes and kind
_MAP_TYPES = {"f16": 6, "f32": 7, "tf32": 7, "f64": 8, "bf16": 9, "u16": 1, "i16": 1, "u32": 2, "i32": 3, "u64": 4,
              "i64": 5}
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}


_Extents = c_uint * 3


class _Attribute(ctypes.Structure):
    _fields_ = [("id", c_int), ("pad", ctypes.c_char * 4), ("flag", c_int), ("rest", ctypes.c_char * 60)]


class _Config(ctypes.Structure):
    _fields_ = [("grid", _Extents), ("block", _Extents), ("shared", c_uint), ("stream", c_void_p),
                ("attributes", ctypes.POINTER(_Attribute)), ("count", c_uint)]


class DriverError(RuntimeError):
    """A call of the CUDA driver failed; `code` is its CUresult."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


class Driver:
    def __init__(self):
        name = os.environ.get("TKC_CUDA_LIBRARY", "libcuda.so.1")
        try:
            self.lib = ctypes.CDLL(name)
        except OSError as e:
            raise DriverError(100, f"no CUDA driver: {e}") from None
        self._contexts = {}
        lib = self.lib
        # Versioned names are those that the header of the driver API maps the plain ones to.
        for function, types in {
                "cuInit": [c_uint],
                "cuDeviceGet": [c_void_p, c_int],
                "cuDeviceGetAttribute": [c_void_p, c_int, c_int],
                "cuDevicePrimaryCtxRetain": [c_void_p, c_int],
                "cuCtxGetCurrent": [c_void_p],
                "cuCtxSetCurrent": [c_void_p],
                "cuGetErrorString": [c_int, c_void_p],
                "cuModuleLoadDataEx": [c_void_p, c_char_p, c_uint, c_void_p, c_void_p],
                "cuModuleGetFunction": [c_void_p, c_void_p, c_char_p],
                "cuFuncSetAttribute": [c_void_p, c_int, c_int],
                "cuStreamCreate": [c_void_p, c_uint],
                "cuStreamWaitEvent": [c_void_p, c_void_p, c_uint],
                "cuEventCreate": [c_void_p, c_uint],
                "cuEventRecord": [c_void_p, c_void_p],
        }.items():
            getattr(lib, function).argtypes = types
        self.check(lib.cuInit(0), "starting the CUDA driver")

    def error(self, code, what):
        text = c_char_p()
        self.lib.cuGetErrorString(code, byref(text))
        return DriverError(code, f"{what}: {(text.value or b'unknown error').decode()} (CUDA error {code})")

    def check(self, code, what):
        if code:
            raise self.error(code, what)

    def context(self, device):
        """Retains the primary context of a device, which is that of the CUDA runtime and of torch."""
        found = self._contexts.get(device)
        if not found:
            handle, context = c_int(), c_void_p()
            self.check(self.lib.cuDeviceGet(byref(handle), device), f"opening GPU {device}")
            self.check(self.lib.cuDevicePrimaryCtxRetain(byref(context), handle), f"the context of GPU {device}")
            found = self._contexts[device] = (context.value, handle.value)
        return found[0]

    def facts(self, device):
        """sms, l2_bytes, smem, arch of a device."""
        self.context(device)
        out = {}
        for name, attribute in _ATTRIBUTES.items():
            value = c_int()
            self.check(self.lib.cuDeviceGetAttribute(byref(value), attribute, self._contexts[device][1]),
                       f"asking for the {name} of GPU {device}")
            out[name] = value.value
        out["arch"] = 10 * out.pop("major") + out.pop("minor")
        return out

    def current(self):
        context = c_void_p()
        self.check(self.lib.cuCtxGetCurrent(byref(context)), "asking for the current context")
        return context.value

    def set_current(self, context):
        self.check(self.lib.cuCtxSetCurrent(context), "selecting a context")

    # The next functions want the context of their device to be current.

    def load(self, ptx):
        log = ctypes.create_string_buffer(1 << 14)
        keys = (c_int * 2)(5, 6)  # CU_JIT_ERROR_LOG_BUFFER, its size
        values = (c_void_p * 2)(ctypes.addressof(log), len(log))
        module = c_void_p()
        code = self.lib.cuModuleLoadDataEx(byref(module), ptx.encode(), 2, keys, values)
        if code:
            e = self.error(code, "loading the PTX")
            words = log.value.decode(errors="replace").strip()
            raise DriverError(code, f"{e}\n{words}" if words else str(e))
        return module

    def function(self, module, name, shared, limit):
        function = c_void_p()
        self.check(self.lib.cuModuleGetFunction(byref(function), module, name.encode()), f"looking up `{name}`")
        if shared > limit:
            raise ValueError(f"`{name}` needs {shared} bytes of shared memory, the GPU has {limit} for a block")
        if shared > 48 << 10:
            self.check(self.lib.cuFuncSetAttribute(function, MAX_DYNAMIC_SHARED, shared), f"shared memory of `{name}`")
        return function

    def blocks_per_sm(self, function, threads, shared):
        blocks = c_int()
        code = self.lib.cuOccupancyMaxActiveBlocksPerMultiprocessor(byref(blocks), function, c_int(threads), c_size_t(shared))
        self.check(code, "asking for an occupancy")
        return blocks.value

    def launch_early(self, function, *how):
        """cuLaunchKernel of a kernel that may start before the one ahead of it in the stream has ended."""
        grid, block, (shared, stream, parameters, extra) = how[:3], how[3:6], how[6:]
        attribute = _Attribute(6, b"", 1)  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        config = _Config(_Extents(*(n.value for n in grid)), _Extents(*(n.value for n in block)), shared.value, stream,
                         ctypes.pointer(attribute), 1)
        return self.lib.cuLaunchKernelEx(byref(config), function, parameters, extra)

    def stream(self):
        stream = c_void_p()
        self.check(self.lib.cuStreamCreate(byref(stream), 1), "creating a stream")  # non-blocking
        return stream

    def event(self):
        event = c_void_p()
        self.check(self.lib.cuEventCreate(byref(event), 2), "creating an event")  # without timing
        return event

    def encode_map(self, to, dtype, address, shape, strides, box, swizzle):
        """Writes a tensor map to the address `to`, a multiple of 64. Outermost dim first; strides in elements."""
        rank, item = len(shape), {"f16": 2, "bf16": 2, "u16": 2, "i16": 2, "f64": 8, "u64": 8, "i64": 8, "f32": 4,
                                  "tf32": 4, "u32": 4, "i32": 4}.get(dtype, 1)
        dims = (ctypes.c_uint64 * 5)(*reversed(shape))
        pitches = (ctypes.c_uint64 * 5)(*[s * item for s in reversed(strides[:-1])])
        boxes = (ctypes.c_uint32 * 5)(*reversed(box))
        steps = (ctypes.c_uint32 * 5)(1, 1, 1, 1, 1)
        code = self.lib.cuTensorMapEncodeTiled(
            c_void_p(to), c_int(_MAP_TYPES.get(dtype, 0)), ctypes.c_uint32(rank), c_void_p(address), dims, pitches, boxes,
            steps, c_int(0), c_int(_SWIZZLES[swizzle]), c_int(3), c_int(0))
        self.check(code, f"a tensor map of {dtype}{list(shape)}")
        # Drivers before CUDA 13.2 set this bit for every tensor; sm_100 and later then misread small ones.
        span = item * (1 + sum((n - 1) * s for n, s in zip(shape, (*strides[:-1], 1))))
        if span < 128 << 10:
            word = ctypes.c_uint64.from_address(to + 8)
            word.value &= ~(1 << 21)


_driver = None
_lock = threading.Lock()


def driver():
    global _driver
    with _lock:
        if _driver is None:
            _driver = Driver()
        return _driver


class Current:
    """with Current(driver, context): that context is current."""

    def __init__(self, driver, context):
        self.driver, self.context = driver, context

    def __enter__(self):
        self.before = self.driver.current()
        if self.before != self.context:
            self.driver.set_current(self.context)

    def __exit__(self, *_):
        # A thread that had none keeps this one, as after any call of torch.
        if self.before not in (None, self.context):
            self.driver.set_current(self.before)
