"""Tensors of other libraries as the loader sees them, and HostTensor for types that NumPy lacks."""
import json
import math
import struct
import sys

from . import dtypes


class HostTensor:
    """A dense tensor in host memory: `dtype` by its name in the language, `shape`, and the bytes in `data`.

    It has every type of the language, which NumPy has not: HostTensor.from_numpy(a, "bf16") takes raw bits (uint16) or
    rounds float32; values() gives Python numbers, numpy() an array (of uint16 for bf16)."""

    def __init__(self, dtype, shape, data=None):
        if dtype not in dtypes.TABLE:
            raise TypeError(f"there is no type {dtype}")
        self.dtype, self.shape = dtype, tuple(int(n) for n in shape)
        count = math.prod(self.shape) * dtypes.size(dtype)
        self.data = bytearray(count) if data is None else bytearray(data)
        if len(self.data) != count:
            raise ValueError(f"{dtype}{list(self.shape)} has {count} bytes, {len(self.data)} are given")

    @classmethod
    def from_values(cls, dtype, shape, values):
        if dtype == "bf16":
            data = struct.pack(f"<{len(values)}H", *(dtypes.bf16_bits(v) for v in values))
        else:
            data = struct.pack(f"<{len(values)}{_format(dtype)}", *values)
        return cls(dtype, shape, data)

    @classmethod
    def from_numpy(cls, array, dtype=None):
        import numpy as np
        array = np.asarray(array)
        own = dtypes.BY_NUMPY.get(array.dtype.name)
        dtype = dtype or own
        if dtype is None:
            raise TypeError(f"say the type of an array of {array.dtype}")
        if own != dtype:
            if dtype == "bf16" and own == "f32":
                bits = np.ascontiguousarray(array).view(np.uint32).astype(np.uint64)
                rounded = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
                array = np.where(np.isnan(array), np.uint16(0x7FC0), rounded)
            elif array.dtype.itemsize != dtypes.size(dtype) or own not in ("u8", "u16", "u32", "u64", "f32"):
                raise TypeError(f"an array of {array.dtype} does not hold {dtype}: give raw bits of {dtypes.size(dtype)} bytes")
        return cls(dtype, array.shape, np.ascontiguousarray(array).tobytes())

    def numpy(self):
        import numpy as np
        name = dtypes.TABLE[self.dtype][1]
        if self.dtype in ("bf16", "tf32") or name is None or name.startswith("float8"):
            name = {1: "uint8", 2: "uint16", 4: "float32"}[dtypes.size(self.dtype)]
        return np.frombuffer(self.data, dtype=name).reshape(self.shape)

    def values(self):
        n = math.prod(self.shape)
        if self.dtype == "bf16":
            return [dtypes.bf16_value(b) for b in struct.unpack(f"<{n}H", self.data)]
        return list(struct.unpack(f"<{n}{_format(self.dtype)}", self.data))

    def __repr__(self):
        return f"HostTensor({self.dtype}{list(self.shape)})"


def _format(dtype):
    formats = {"bool": "?", "i8": "b", "i16": "h", "i32": "i", "i64": "q", "u8": "B", "u16": "H", "u32": "I", "u64": "Q",
               "f16": "e", "f32": "f", "tf32": "f", "f64": "d"}
    return formats.get(dtype, "B")


def write_safetensors(path, tensors):
    """A dict of HostTensors. The header is padded so that the data are aligned."""
    header, at = {}, 0
    for name, t in tensors.items():
        header[name] = {"dtype": dtypes.TABLE[t.dtype][3], "shape": list(t.shape), "data_offsets": [at, at + len(t.data)]}
        at += len(t.data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)))
        f.write(text)
        for t in tensors.values():
            f.write(t.data)


def read_safetensors(path):
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        begin = f.tell()
        out = {}
        for name, e in header.items():
            if name == "__metadata__":
                continue
            f.seek(begin + e["data_offsets"][0])
            data = f.read(e["data_offsets"][1] - e["data_offsets"][0])
            out[name] = HostTensor(dtypes.BY_SAFETENSORS[e["dtype"]], e["shape"], data)
        return out


_torch_names = {}


def torch_dtypes():
    """torch.dtype -> name, of an imported torch."""
    torch = sys.modules.get("torch")
    if torch is not None and not _torch_names:
        for name, row in dtypes.TABLE.items():
            if row[2] and hasattr(torch, row[2]):
                _torch_names[getattr(torch, row[2])] = name
    return _torch_names


def torch_dtype(name):
    torch = sys.modules["torch"]
    wanted = dtypes.TABLE[name][2] or {"tf32": "float32"}.get(name, "uint8")
    return getattr(torch, wanted)


class Described:
    """dtype, shape, strides (elements), address, device: a GPU's number, or "host"."""
    __slots__ = ("dtype", "shape", "strides", "address", "device")

    def __init__(self, dtype, shape, strides, address, device):
        self.dtype, self.shape, self.strides, self.address, self.device = dtype, shape, strides, address, device


def dense_strides(shape):
    out, step = [], 1
    for n in reversed(shape):
        out.append(step)
        step *= n
    return tuple(reversed(out))


def is_torch(value):
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def describe(name, value):
    """What `value` is; TypeError if it is no tensor."""
    if is_torch(value):
        dtype = torch_dtypes().get(value.dtype)
        if dtype is None:
            raise TypeError(f"{name}: {value.dtype} is no type of the language")
        device = value.get_device()
        return Described(dtype, tuple(value.shape), tuple(value.stride()), value.data_ptr(), "host" if device < 0 else device)
    if isinstance(value, HostTensor):
        return Described(value.dtype, value.shape, dense_strides(value.shape), 0, "host")
    interface = getattr(value, "__cuda_array_interface__", None)
    if interface:
        dtype = _typestr(name, interface["typestr"])
        shape = tuple(interface["shape"])
        strides = interface.get("strides")
        item = dtypes.size(dtype)
        if strides and any(s % item for s in strides):
            raise ValueError(f"{name}: strides {strides} are no multiples of the {item} bytes of {dtype}")
        strides = tuple(s // item for s in strides) if strides else dense_strides(shape)
        return Described(dtype, shape, strides, interface["data"][0], getattr(value, "device_index", 0))
    if hasattr(value, "__array_interface__"):
        dtype = dtypes.BY_NUMPY.get(value.dtype.name)
        if dtype is None:
            raise TypeError(f"{name}: an array of {value.dtype} is no type of the language")
        return Described(dtype, tuple(value.shape), dense_strides(value.shape), 0, "host")
    raise TypeError(f"{name}: a tensor is wanted (torch, NumPy, HostTensor), not {type(value).__name__}")


def _typestr(name, text):
    kinds = {"b": "bool", "i": "int", "u": "uint", "f": "float"}
    kind = kinds.get(text[1])
    numpy = kind if kind == "bool" else f"{kind}{8 * int(text[2:])}"
    if text[0] not in "<|=" or numpy not in dtypes.BY_NUMPY:
        raise TypeError(f"{name}: {text} is no type of the language")
    return dtypes.BY_NUMPY[numpy]


def to_host(value, dtype):
    """A HostTensor with the contents; `dtype` is what the kernel has for what was accepted in its place."""
    if isinstance(value, HostTensor):
        return value if value.dtype == dtype else HostTensor(dtype, value.shape, value.data)
    if is_torch(value):
        torch = sys.modules["torch"]
        flat = value.detach().contiguous().reshape(-1)
        return HostTensor(dtype, value.shape, bytes(flat.view(torch.uint8).numpy()) if flat.numel() else b"")
    import numpy as np
    return HostTensor(dtype, value.shape, np.ascontiguousarray(value).tobytes())


def from_host(result, value):
    """Copies a result into the caller's array."""
    if isinstance(value, HostTensor):
        value.data[:] = result.data
    elif is_torch(value):
        torch = sys.modules["torch"]
        flat = torch.frombuffer(bytearray(result.data), dtype=value.dtype) if result.data else torch.empty(0)
        value.copy_(flat.reshape(value.shape))
    else:
        import numpy as np
        value[...] = np.frombuffer(result.data, dtype=value.dtype).reshape(result.shape)
