"""The element types of the language, and what other libraries call them."""
import ctypes
import struct

# name -> bytes, NumPy name, torch name, name in .safetensors
TABLE = {
    "bool": (1, "bool", "bool", "BOOL"),
    "i8": (1, "int8", "int8", "I8"),
    "i16": (2, "int16", "int16", "I16"),
    "i32": (4, "int32", "int32", "I32"),
    "i64": (8, "int64", "int64", "I64"),
    "u8": (1, "uint8", "uint8", "U8"),
    "u16": (2, "uint16", "uint16", "U16"),
    "u32": (4, "uint32", "uint32", "U32"),
    "u64": (8, "uint64", "uint64", "U64"),
    "f16": (2, "float16", "float16", "F16"),
    "bf16": (2, "bfloat16", "bfloat16", "BF16"),
    "tf32": (4, None, None, "F32"),
    "f32": (4, "float32", "float32", "F32"),
    "f64": (8, "float64", "float64", "F64"),
    "e4m3": (1, "float8_e4m3fn", "float8_e4m3fn", "F8_E4M3"),
    "e5m2": (1, "float8_e5m2", "float8_e5m2", "F8_E5M2"),
    "ue8m0": (1, None, "float8_e8m0fnu", "F8_E8M0"),
    "ue4m3": (1, None, None, "F8_E4M3"),
}
BY_NUMPY = {row[1]: name for name, row in TABLE.items() if row[1]}
BY_SAFETENSORS = {row[3]: name for name, row in reversed(TABLE.items())}
INTEGERS = {"bool", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"}
# What may be passed for a type that has no name elsewhere.
STAND_INS = {"tf32": ("f32",), "ue8m0": ("u8",), "ue4m3": ("u8",), "e4m3": ("u8",), "e5m2": ("u8",)}


def size(name):
    return TABLE[name][0]


def accepts(wanted, given):
    return wanted == given or given in STAND_INS.get(wanted, ())


def bf16_bits(x):
    """Nearest bf16, ties to even."""
    bits = struct.unpack("<I", _f32(x))[0]
    if bits & 0x7FFFFFFF > 0x7F800000:
        return 0x7FC0
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def bf16_value(bits):
    return struct.unpack("<f", struct.pack("<I", bits << 16))[0]


def _f32(x):
    try:
        return struct.pack("<f", x)
    except OverflowError:
        return struct.pack("<f", float("inf") if x > 0 else float("-inf"))


def _f16_bits(x):
    try:
        return struct.unpack("<H", struct.pack("<e", x))[0]
    except OverflowError:
        return 0x7C00 if x > 0 else 0xFC00


_CTYPES = {"bool": ctypes.c_uint8, "i8": ctypes.c_int8, "i16": ctypes.c_int16, "i32": ctypes.c_int32,
           "i64": ctypes.c_int64, "u8": ctypes.c_uint8, "u16": ctypes.c_uint16, "u32": ctypes.c_uint32,
           "u64": ctypes.c_uint64, "f32": ctypes.c_float, "tf32": ctypes.c_float, "f64": ctypes.c_double,
           "f16": ctypes.c_uint16, "bf16": ctypes.c_uint16}


def scalar_slot(name):
    """A ctypes object for a scalar parameter, and what makes its value of a Python number."""
    if name not in _CTYPES:
        raise TypeError(f"scalars of type {name} cannot be passed")
    convert = {"f16": _f16_bits, "bf16": bf16_bits, "bool": lambda x: int(bool(x))}.get(name)
    if convert is None:
        convert = int if name in INTEGERS else float
    return _CTYPES[name](), convert


def check_integer(name, parameter, value):
    """Raises unless an integer scalar has the value exactly."""
    if name == "bool":
        low, high = 0, 1
    else:
        bits = 8 * size(name)
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if name[0] == "i" else (0, (1 << bits) - 1)
    if not low <= value <= high:
        raise ValueError(f"{parameter}: {value} does not fit into {name}")
