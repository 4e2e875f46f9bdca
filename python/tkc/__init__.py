"""Loads kernels and programs of tkc: compiles .tk files with the tkc program, or takes the PTX and JSON that it wrote, and
launches them on torch tensors over the CUDA driver API, or runs them on NumPy arrays on the CPU.

    import tkc
    softmax = tkc.load("samples/softmax.tk")
    y = softmax(x)                                    # y is allocated; softmax(x, y) writes to y

Pure Python: nothing but the JSON (src/driver/manifest.h) says how a kernel is called.
"""
from .arrays import HostTensor
from .compiler import CompileError
from .driver import DriverError
from .function import Function, load

__all__ = ["CompileError", "DriverError", "Function", "HostTensor", "load"]
