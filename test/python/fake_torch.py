"""As much of torch as the loader uses, over the driver API: tensors in the memory of the driver that TKC_CUDA_LIBRARY
names, which in these tests is the PTX emulator. `install()` puts it into sys.modules as torch."""
import ctypes
import math
import sys
import types

from tkc import dtypes


class dtype:
    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return f"torch.{self.name}"


class Size(tuple):
    pass


class device:
    def __init__(self, kind, index=0):
        self.type, self.index = kind, index

    def __repr__(self):
        return f"device('{self.type}:{self.index}')"


_names = {}  # dtype -> name of tkc
_lib = None


def _driver():
    global _lib
    if _lib is None:
        from tkc.driver import driver
        _lib = driver()
        _lib.set_current(_lib.context(0))  # as torch does in the thread that uses it
        for f in ("cuMemAlloc_v2", "cuMemFree_v2", "cuMemcpyHtoD_v2", "cuMemcpyDtoH_v2"):
            getattr(_lib.lib, f).argtypes = None
    return _lib


class _Storage:
    """Memory of the device."""

    def __init__(self, nbytes):
        self.address, self.nbytes = 0, nbytes
        if nbytes:
            address = ctypes.c_uint64()
            # torch's allocator has memory in reserve: a stream capture forbids none of its allocations
            _capture(False)
            _driver().check(_lib.lib.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(nbytes)), "torch.empty")
            _capture(True)
            self.address = address.value

    def __del__(self):
        if self.address and not cuda.capturing:
            _lib.lib.cuMemFree_v2(ctypes.c_uint64(self.address))


def _capture(on):
    if cuda.capturing:
        (_lib.lib.tkc_emu_resume_capture if on else _lib.lib.tkc_emu_end_capture)()


class Tensor:
    def __init__(self, storage, shape, strides, kind, offset=0, index=0):
        self._storage, self.shape, self._strides, self.dtype, self._offset = storage, Size(shape), tuple(strides), kind, offset
        self._index = index
        self.requires_grad = False

    @property
    def ndim(self):
        return len(self.shape)

    @property
    def is_cuda(self):
        return self._index >= 0

    @property
    def device(self):
        return device("cuda" if self._index >= 0 else "cpu", max(self._index, 0))

    def get_device(self):
        return self._index

    def stride(self, d=None):
        return self._strides if d is None else self._strides[d]

    def data_ptr(self):
        return self._storage.address + self._offset * self.element_size() if self._storage.address else 0

    def element_size(self):
        return dtypes.size(_names[self.dtype])

    def numel(self):
        return math.prod(self.shape)

    def view(self, *shape):
        shape = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape
        return Tensor(self._storage, shape, _dense(shape), self.dtype, self._offset, self._index)

    reshape = view

    def part(self, shape, strides, offset=0):
        """as_strided"""
        return Tensor(self._storage, shape, strides, self.dtype, self._offset + offset, self._index)

    def contiguous(self):
        return self if self._strides == _dense(self.shape) else tensor(self.values(), self.dtype, self.shape)

    def float(self):
        return self if self.dtype is float32 else tensor(self.values(), float32, self.shape)

    def detach(self):
        return self

    def put(self, values):
        from tkc import HostTensor
        host = HostTensor.from_values(_names[self.dtype], self.shape, values)
        if host.data:
            code = _driver().lib.cuMemcpyHtoD_v2(ctypes.c_uint64(self.data_ptr()), bytes(host.data), ctypes.c_size_t(len(host.data)))
            _lib.check(code, "put")

    def values(self):
        """Row-major, through the strides."""
        from tkc import HostTensor
        if not self.numel():
            return []
        span = 1 + sum((n - 1) * s for n, s in zip(self.shape, self._strides))
        data = ctypes.create_string_buffer(span * self.element_size())
        _driver().check(_lib.lib.cuMemcpyDtoH_v2(data, ctypes.c_uint64(self.data_ptr()), ctypes.c_size_t(len(data))), "values")
        flat = HostTensor(_names[self.dtype], [span], data.raw).values()
        places = [0]
        for n, s in zip(self.shape, self._strides):
            places = [p + i * s for p in places for i in range(n)]
        return [flat[p] for p in places]


def _dense(shape):
    out, step = [], 1
    for n in reversed(shape):
        out.append(step)
        step *= n
    return tuple(reversed(out))


def empty(*shape, dtype=None, device=None):
    shape = tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else shape
    kind = dtype or float32
    return Tensor(_Storage(math.prod(shape) * dtypes.size(_names[kind])), shape, _dense(shape), kind)


def tensor(values, kind, shape=None):
    out = empty(shape or [len(values)], dtype=kind)
    out.put(values)
    return out


def is_grad_enabled():
    return True


class _Cuda(types.ModuleType):
    capturing = False

    def current_device(self):
        return 0

    def current_stream(self, index=0):
        return types.SimpleNamespace(cuda_stream=0x40)

    def capture(self):
        """with torch.cuda.capture() as graph: ...; graph.replay()"""
        return _Graph()


class _Graph:
    def __enter__(self):
        cuda.capturing = True
        _driver().lib.tkc_emu_begin_capture()
        return self

    def __exit__(self, *_):
        cuda.capturing = False
        _lib.lib.tkc_emu_end_capture()

    def replay(self):
        _driver().check(_lib.lib.tkc_emu_replay(), "replay")


cuda = _Cuda("torch.cuda")


def install():
    module = sys.modules[__name__]
    for name, row in dtypes.TABLE.items():
        if row[2]:
            kind = dtype(row[2])
            setattr(module, row[2], kind)
            _names[kind] = name
    module._C = types.SimpleNamespace(_cuda_getCurrentRawStream=lambda index: 0x40)
    sys.modules["torch"], sys.modules["torch.cuda"] = module, cuda
    return module
