#!/usr/bin/env python3
"""Tests of python/tkc without a GPU: the driver is the one of test/loader/emu_driver.cpp, which runs what is launched in the
PTX emulator, torch is fake_torch.py; arrays in host memory go through `tkc run`. NumPy's tests are skipped without NumPy.
"""
import contextlib
import ctypes
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
os.environ.setdefault("TKC_CUDA_LIBRARY", os.path.join(ROOT, "build", "emu_driver", "libcuda.so.1"))
os.environ.setdefault("TKC", os.path.join(ROOT, "build", "tkc"))
sys.path[:0] = [os.path.join(ROOT, "python"), os.path.dirname(os.path.abspath(__file__))]

import fake_torch  # noqa: E402
import tkc  # noqa: E402
import tkc.kda  # noqa: E402
from tkc import compiler, dtypes, numbers  # noqa: E402
from tkc.arrays import read_safetensors, write_safetensors  # noqa: E402
from tkc.driver import driver  # noqa: E402
from tkc.expressions import NoValue, evaluate, text  # noqa: E402

try:
    import numpy as np
except ImportError:
    np = None

torch = fake_torch.install()
CASES = os.path.join(ROOT, "test", "loader", "cases.tk")


def sample(name):
    return os.path.join(ROOT, "samples", name + ".tk")


def lib():
    found = driver().lib
    found.tkc_emu_log.restype = ctypes.c_char_p
    return found


def log():
    return lib().tkc_emu_log().decode().splitlines()


def launches():
    return [line for line in log() if line.startswith("launch ")]


@contextlib.contextmanager
def count_compiles():
    """A list that grows by the arguments of every run of the compiler."""
    ran, before = [], compiler.run
    compiler.run = lambda words: (ran.append(words), before(words))[1]
    try:
        yield ran
    finally:
        compiler.run = before


def normal(*shape, dtype=None, seed=1, scale=1.0):
    r = random.Random(seed)
    return torch.tensor([scale * r.gauss(0, 1) for _ in range(math.prod(shape))], dtype or torch.bfloat16, shape)


def rms(got, want):
    return math.sqrt(sum((a - b)**2 for a, b in zip(got, want)) / max(sum(b * b for b in want), 1e-300))


class Base(unittest.TestCase):
    def setUp(self):
        driver()
        lib().tkc_emu_clear_log()

    def raises(self, kind, *parts):
        """An error of this kind whose message has all the parts."""
        test = self

        class Context:
            def __enter__(self):
                return self

            def __exit__(self, given, e, _):
                test.assertIsNotNone(given, f"no {kind.__name__}")
                test.assertTrue(issubclass(given, kind), f"{given.__name__}: {e}")
                for p in parts:
                    test.assertIn(p, str(e))
                return True

        return Context()


class Expressions(Base):
    def test_values(self):
        names = {"M": 70, "i": -7}
        for e, want in [(3, 3), ("M", 70), (["cdiv", "M", 64], 2), (["/", "i", 2], -3), (["%", "i", 2], -1), (["cdiv", "i", 2], -3),
                        (["?", [">", "M", 64], 1, ["/", 1, 0]], 1), (["!", "M"], 0), (["&&", "M", 0], 0), (["min", "M", 3], 3)]:
            self.assertEqual(evaluate(e, names), want, e)
        for e in (["/", "M", 0], "N", ["*", "M", 1 << 62]):
            with self.assertRaises(NoValue):
                evaluate(e, names)

    def test_text(self):
        self.assertEqual(text(["*", ["+", "M", 1], ["cdiv", "N", 64]]), "(M + 1) * cdiv(N, 64)")
        self.assertEqual(text(["-", "a", ["-", "b", "c"]]), "a - (b - c)")

    def test_bf16(self):
        for x, bits in [(1.0, 0x3F80), (1.00390625, 0x3F80), (1.01171875, 0x3F82), (3.4e38, 0x7F80), (-2.0, 0xC000),
                        (float("inf"), 0x7F80)]:
            self.assertEqual(dtypes.bf16_bits(x), bits, x)
        self.assertEqual(dtypes.bf16_bits(float("nan")), 0x7FC0)


class Kernels(Base):
    def test_softmax(self):
        f = tkc.load(sample("softmax"))
        x = normal(3, 136)
        y = f(x)
        self.assertEqual((y.shape, y.dtype), ((3, 136), torch.bfloat16))
        v = x.values()
        want = []
        for r in range(3):
            row = [math.exp(a) for a in v[r * 136:r * 136 + 136]]
            want += [a / sum(row) for a in row]
        self.assertLess(rms(y.values(), want), 4e-3)
        self.assertEqual(launches()[0].split()[:6], ["launch", "softmax", "grid", "1", "block", "128"])
        self.assertIn("load sm_90", log())
        # An output that is given is written, and nothing is returned.
        out = torch.empty(3, 136, dtype=torch.bfloat16)
        self.assertIsNone(f(x, out))
        self.assertIsNone(f(x=x, y=out))
        self.assertEqual(out.values(), y.values())
        # Rows of an odd pitch take the entry for any alignment; rows of a multiple of 16 bytes do not.
        wide = normal(3, 144)
        lib().tkc_emu_clear_log()
        f(wide.part((3, 136), (144, 1)))
        f(normal(3, 137).part((3, 136), (137, 1)))
        f(wide.part((2, 136), (144, 1), 1))
        self.assertEqual([line.split()[1] for line in launches()], ["softmax", "softmax__any", "softmax__any"])

    def test_compiles_once_for_a_set_of_constants(self):
        f = tkc.load(sample("softmax"), params={"BM": 2})
        with count_compiles() as ran:
            for rows in (1, 2, 5):
                f(normal(rows, 64))
            tkc.load(sample("softmax"), params={"BM": 2})(normal(1, 64))
            f(normal(1, 72))
        self.assertEqual(len([w for w in ran if "json" in w and "N=64" in w]), 1)
        self.assertEqual(len([w for w in ran if "json" in w and "N=72" in w]), 1)

    def test_gemm_by_tensor_maps(self):
        f = tkc.load(sample("gemm"), "gemm")
        a, b = normal(72, 64), normal(64, 80, seed=2)
        c = f(a, b)
        x, y = a.values(), b.values()
        want = [sum(x[i * 64 + k] * y[k * 80 + j] for k in range(64)) for i in range(72) for j in range(80)]
        self.assertLess(rms(c.values(), want), 4e-3)
        maps = [line for line in log() if line.startswith("map ")]
        self.assertEqual([m.split()[1:3] for m in maps], [["2", "bf16"]] * 2)
        self.assertIn(" 64/2/", maps[0])    # extent and item of the inner dim, then the rows with their pitch in bytes
        self.assertIn(" 72/128/", maps[0])
        self.assertIn(" small-map", launches()[0])  # tensors below 128 KiB
        # The same memory again encodes nothing; other memory does.
        f(a, b, c)
        lib().tkc_emu_clear_log()
        f(a, b, c)
        self.assertEqual([line for line in log() if line.startswith("map ")], [])
        other = normal(72, 64, seed=3)
        z = other.values()
        want = [sum(z[i * 64 + k] * y[k * 80 + j] for k in range(64)) for i in range(72) for j in range(80)]
        f(other, b, c)
        self.assertLess(rms(c.values(), want), 4e-3)

    def test_persistent(self):
        f = tkc.load(CASES, "tripled")
        x = normal(490, dtype=torch.float32)
        self.assertLess(rms(f(x).values(), [3 * v for v in x.values()]), 1e-6)
        f(normal(5, dtype=torch.float32))
        self.assertEqual([line.split()[3] for line in launches()], ["132", "3"])  # SMs, with a block on each; tiles

    def test_scalars_and_optional(self):
        f = tkc.load(CASES, "scalars")
        x, bias = normal(3, 40, dtype=torch.float32), normal(40, dtype=torch.float32, seed=5)
        for b in (bias, None):
            y = f(x, b, None, 0.5, 0.25, -3.0, -100, 60000, 5, -70000, True)
            want = [-(v * 0.5 + 0.25 - 3 - 100 + 60000 + 5 - 70000 + (bias.values()[i % 40] if b else 0)) for i, v in enumerate(x.values())]
            self.assertLess(rms(y.values(), want), 1e-6)
        # A float that changes makes no new plan, and is passed.
        before = len(f._plans)
        y = f(x, None, None, a=2.0, b=0.0, c=0.0, i=0, j=0, k=0, l=0, flip=False)
        self.assertLess(rms(y.values(), [2 * v for v in x.values()]), 1e-6)
        y = f(x, None, None, a=3.0, b=0.0, c=0.0, i=0, j=0, k=0, l=0, flip=False)
        self.assertLess(rms(y.values(), [3 * v for v in x.values()]), 1e-6)
        self.assertEqual(len(f._plans), before + 1)
        half = f(normal(3, 40, dtype=torch.float16), None, None, 1.0, 0.0, 0.0, 0, 0, 0, 0, False)  # T is deduced
        self.assertEqual(half.dtype, torch.float32)
        with self.raises(ValueError, "i: 200 does not fit into i8"):
            f(x, None, None, 0.5, 0.25, -3.0, 200, 0, 0, 0, True)
        with self.raises(TypeError, "k: a number of type i32 is wanted, not float"):
            f(x, None, None, 0.5, 0.25, -3.0, 1, 0, 0.5, 0, True)
        with self.raises(ValueError, "where k >= 0", "k = -1"):
            f(x, None, None, 0.5, 0.25, -3.0, 1, 0, -1, 0, True)
        with self.raises(TypeError, "a is missing"):
            f(x, None, None)

    def test_strides(self):
        f = tkc.load(CASES, "turned")
        x = normal(5, 7, dtype=torch.float32)
        v = x.values()
        self.assertEqual(f(x.part((7, 5), (1, 7))).values(), [v[j * 7 + i] for i in range(7) for j in range(5)])
        self.assertEqual(f(x.part((5, 3), (7, 2), 1)).values(), [v[i * 7 + 2 * j + 1] for i in range(5) for j in range(3)])

    def test_size_that_no_extent_says(self):
        f = tkc.load(CASES, "pad")
        x = normal(41, dtype=torch.float32)
        self.assertEqual(f(x, M=40).values(), x.values() + [7.0] * 39)
        with self.raises(ValueError, "no tensor says the size M"):
            f(x, torch.empty(80, dtype=torch.float32))
        with self.raises(ValueError, "x: dim 0 is 41", "M + 1 = 40"):
            f(x, M=39)

    def test_errors_name_parameter_and_values(self):
        f = tkc.load(sample("gemm"), "gemm")
        a, b = normal(16, 32), normal(32, 16)
        with self.raises(ValueError, "K is 32 by dim 1 of a, and 24 by dim 0 of b"):
            f(a, normal(24, 16))
        with self.raises(ValueError, "M is 16 by dim 0 of a, and 8 by dim 0 of c"):
            f(a, b, torch.empty(8, 16, dtype=torch.bfloat16))
        with self.raises(ValueError, "a: 3 dims of shape [2, 4, 8]"):
            f(normal(2, 4, 8), b)
        with self.raises(ValueError, "a: the innermost stride is 2"):
            f(normal(16, 64).part((16, 32), (64, 2)), b)
        with self.raises(TypeError, "b: dtype f16, `gemm` wants bf16"):
            f(a, normal(32, 16, dtype=torch.float16))
        with self.raises(TypeError, "b is missing"):
            f(a)
        with self.raises(TypeError, "no argument `d`"):
            f(a, b, d=a)
        with self.raises(TypeError, "a is given twice"):
            f(a, a=b)
        with self.raises(TypeError, "a: a tensor is wanted", "not int"):
            f(3, b)
        with self.raises(TypeError, "a is in host memory"):
            f(tkc.HostTensor("bf16", (16, 32)), b)
        with self.raises(ValueError, "has no compile-time parameter `BQ`"):
            tkc.load(sample("gemm"), "gemm", params={"BQ": 1})
        with self.raises(tkc.CompileError, "unknown-kernel", "did you mean `gemm`"):
            tkc.load(sample("gemm"), "gem")
        with self.raises(ValueError, "choose one by kernel="):
            tkc.load(CASES)
        with self.raises(tkc.DriverError, "launching `gemm`", "CUDA error 719"):
            f(a, b)
            lib().tkc_emu_fail(b"cuLaunchKernel", 719)
            f(a, b)

    def test_prebuilt(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([compiler.binary(), "compile", sample("softmax"), "--arch", "sm_90", "-P", "N=64", "--emit", "ptx,json", "-o",
                            folder + "/"], check=True)
            f = tkc.load(folder + "/softmax.json", "softmax")
            with count_compiles() as ran:
                x = normal(3, 64)
                self.assertEqual(f(x).values(), tkc.load(sample("softmax"))(x).values())
            self.assertEqual(len([w for w in ran if "signatures" not in w and "json" not in w]), 0)
            with self.raises(ValueError, "x: dim 1 is 72", "wants 64"):
                f(normal(3, 72))
            with open(folder + "/softmax.json", encoding="utf-8") as g:
                old = json.load(g)
            old["version"] = 2
            with open(folder + "/next.json", "w", encoding="utf-8") as g:
                json.dump(old, g)
            with self.raises(ValueError, "no JSON of tkc that this loader knows"):
                tkc.load(folder + "/next.json")

    def test_cuda_array_interface(self):
        class Array:  # of another library
            def __init__(self, t):
                self.t = t
                self.__cuda_array_interface__ = {"shape": t.shape, "strides": tuple(4 * s for s in t.stride()), "typestr": "<f4",
                                                 "data": (t.data_ptr(), False), "version": 3}

        f = tkc.load(CASES, "turned")
        x, y = normal(5, 7, dtype=torch.float32), torch.empty(7, 5, dtype=torch.float32)
        for _ in range(2):
            f(Array(x.part((7, 5), (1, 7))), Array(y), stream=0x99)
        self.assertEqual(y.values(), f(x.part((7, 5), (1, 7))).values())
        self.assertIn(f"stream {0x99} ", launches()[0])
        with self.raises(TypeError, "y: outputs are allocated for torch tensors only"):
            f(Array(x))


class Programs(Base):
    def test_split_gemm(self):
        f = tkc.load(sample("split_gemm"))
        a, b = normal(16, 1024), normal(1024, 16, seed=2)
        need = f.workspace_bytes(a, b)
        self.assertEqual(need, 4 * 16 * 16 * 4)  # four parts of K
        lib().tkc_emu_clear_log()
        c = f(a, b)
        x, y = a.values(), b.values()
        want = [sum(x[i * 1024 + k] * y[k * 16 + j] for k in range(1024)) for i in range(16) for j in range(16)]
        self.assertLess(rms(c.values(), want), 4e-3)
        self.assertEqual([line.split()[1] for line in launches()], ["products", "add_parts"])
        # Memory that the caller gives: then nothing is allocated.
        memory = torch.empty(need, dtype=torch.uint8)
        lib().tkc_emu_clear_log()
        f(a, b, c, workspace=memory)
        self.assertEqual([line for line in log() if line.startswith("alloc")], [])
        with self.raises(ValueError, f"workspace: {need - 1} bytes", f"needs {need}"):
            f(a, b, c, workspace=memory.part((need - 1,), (1,)))
        with self.raises(ValueError, "workspace: the address is not a multiple of 256"):
            f(a, b, c, workspace=torch.empty(need + 16, dtype=torch.uint8).part((need,), (1,), 16))
        lib().tkc_emu_clear_log()
        f(normal(16, 64), normal(64, 16))
        self.assertEqual([line.split()[1] for line in launches()], ["product"])
        self.assertEqual(f.workspace_bytes(normal(16, 64), normal(64, 16)), 0)

    def test_numbers_that_are_computed_at_launch(self):
        f = tkc.load(CASES, "computed")
        for rows in (7, 3):
            v = normal(rows, 70, dtype=torch.float32)
            for a in (1.5, 0.5):
                s = (a / math.sqrt(7) if rows > 4 else math.exp(-a)) + 0.25
                want = [2 * e * (s if i // 70 < rows // 2 or a > 1 else 3) for i, e in enumerate(v.values())]
                self.assertLess(rms(f(v, None, a).values(), want), 1e-6)

    def test_loop_parts_and_side_by_side(self):
        f = tkc.load(CASES, "chain")
        x, bias = normal(7, 70, dtype=torch.float32), normal(70, dtype=torch.float32, seed=4)
        v, b = x.values(), bias.values()
        lib().tkc_emu_clear_log()
        z = f(x, bias, None, 2.0, 1)
        self.assertLess(rms(z.values(), [2 * (6 * e + b[i % 70]) for i, e in enumerate(v)]), 1e-6)
        self.assertEqual(len(launches()), 12)
        self.assertEqual(f.workspace_bytes(x, bias, None, 2.0, 1), 1024 + 1024 + 840)
        z = f(x, bias, None, 2.0, 2)
        self.assertLess(rms(z.values(), [12 * e for e in v]), 1e-6)
        # The launches of one step go to two streams, between events.
        f(x, bias, z, 2.0, 2)
        lib().tkc_emu_clear_log()
        f(x, bias, z, 2.0, 2)
        words = [line.split()[0] for line in log() if line.split()[0] not in ("alloc", "free")]
        self.assertEqual(words[:8], ["launch", "launch", "record", "wait", "launch", "launch", "record", "wait"])
        self.assertEqual(len({line.split(" stream ")[1].split()[0] for line in launches()}), 2)
        with self.raises(ValueError, "where parts >= 1", "parts = 0"):
            f(x, bias, z, 2.0, 0)
        with self.raises(ValueError, "N is 70 by dim 1 of x, and 7 by dim 0 of bias"):
            f(x, normal(7, dtype=torch.float32), z, 2.0, 1)

    def test_launches_that_overlap(self):
        f = tkc.load(os.path.join(ROOT, "test", "features", "overlap.tk"), "chain")
        a, b, w, y = normal(20, 64), normal(64, 64, seed=2), normal(64, 128, seed=3), normal(128, dtype=torch.float32)
        u, v, x, before = a.values(), b.values(), w.values(), y.values()
        row = [sum(u[m * 64 + k] for m in range(20)) for k in range(64)]
        row = [sum(row[k] * v[k * 64 + l] for k in range(64)) for l in range(64)]
        want = [before[n] + 5 * sum(row[l] * x[l * 128 + n] for l in range(64)) for n in range(128)]
        f(a, b, w, y)
        self.assertLess(rms(y.values(), want), 3e-2)
        early = [line.split()[1] for line in log() if line.startswith("early ")]
        self.assertEqual(early, ["multiply__overlap", "multiply__P_warp__overlap", "sums__overlap", "scale__overlap",
                                 "multiply_tiles__overlap"])

    def test_capture(self):
        f = tkc.load(sample("split_gemm"))
        a, b = normal(16, 1024), normal(1024, 16, seed=2)
        c = f(a, b)
        want = c.values()
        c.put([0.0] * 256)
        with torch.cuda.capture() as graph:
            out = f(a, b)
            f(a, b, c)
        graph.replay()
        self.assertEqual((c.values(), out.values()), (want, want))

    def test_kda(self):
        B, T, H, HV, K, V = 1, 37, 1, 2, 32, 32
        q, k, v = normal(B, T, H, K), normal(B, T, H, K, seed=2), normal(B, T, HV, V, seed=3)
        g, beta = normal(B, T, HV, K, seed=4), normal(B, T, HV, seed=5)
        a_log, bias = normal(HV, dtype=torch.float32, seed=6, scale=0.3), normal(HV * K, dtype=torch.float32, seed=7, scale=0.3)
        s0 = normal(2, HV, K, V, dtype=torch.float32, seed=8)
        cu = torch.tensor([0, 16, 37], torch.int64)
        o, s = tkc.kda.chunk_kda(q, k, v, g, beta, initial_state=s0, output_final_state=True, use_qk_l2norm_in_kernel=True,
                                 use_gate_in_kernel=True, use_beta_sigmoid_in_kernel=True, safe_gate=True, lower_bound=-5, A_log=a_log,
                                 dt_bias=bias, cu_seqlens=cu)
        want_o, want_s = recurrence(q, k, v, g, beta, a_log, bias, s0, [0, 16, 37], -5.0)
        self.assertLess(rms(o.values(), want_o), 6e-3)
        self.assertLess(rms(s.values(), want_s), 6e-3)
        self.assertEqual((o.dtype, s.dtype), (torch.bfloat16, torch.float32))
        # The state's other layout, and none asked for.
        rows = s0.values()
        turned = torch.tensor([rows[nh * K * V + i * V + j] for nh in range(2 * HV) for j in range(V) for i in range(K)], torch.float32,
                              (2, HV, V, K))
        o2, s2 = tkc.kda.chunk_kda(q, k, v, g, beta, initial_state=turned, output_final_state=True, use_qk_l2norm_in_kernel=True,
                                   use_gate_in_kernel=True, use_beta_sigmoid_in_kernel=True, lower_bound=-5, A_log=a_log, dt_bias=bias,
                                   cu_seqlens=cu, transpose_state_layout=True)
        self.assertEqual(o2.values(), o.values())
        self.assertEqual(s2.shape, (2, HV, V, K))
        _, none = tkc.kda.chunk_kda(q, k, v, g, beta, initial_state=s0, use_qk_l2norm_in_kernel=True, use_gate_in_kernel=True, A_log=a_log,
                                   cu_seqlens=cu)
        self.assertIsNone(none)

    def test_kda_gradients(self):
        """o is linear in v, so its gradient is exact along any direction. Without states nothing says their sizes."""
        B, T, H, K, V = 1, 37, 1, 32, 32
        q, k, v = normal(B, T, H, K), normal(B, T, H, K, seed=2), normal(B, T, H, V, seed=3)
        g, beta, do = normal(B, T, H, K, seed=4), normal(B, T, H, seed=5), normal(B, T, H, V, seed=6)
        a_log, bias = torch.tensor([0.1], torch.float32), torch.tensor([0.0] * K, torch.float32, (1, K))
        params = (("gate", "bounded"), ("l2norm", True), ("beta_sigmoid", True), ("neg_eigval", False), ("wide_range", False), ("v_first", False))
        dq, dk, dv, dg, dbeta, da, dbias, ds0 = tkc.kda._backward(params, None, q, k, v, g, beta, a_log, bias, None, None, do, None, K**-0.5, -5.0)
        self.assertIsNone(ds0)
        # Slice by slice, the states made again or left by the forward pass.
        slices = params + (("EVERY", 32), ("SLICE", 32))
        states = torch.empty(1, 1, H, K, V, dtype=torch.float32, device=v.device)
        tkc.kda._forward(slices, None, q, k, v, g, beta, a_log, bias, None, None, K**-0.5, -5.0, states=states)
        for given in (None, states):
            again = tkc.kda._backward(slices, None, q, k, v, g, beta, a_log, bias, None, None, do, None, K**-0.5, -5.0, given)
            self.assertEqual([x.values() for x in again[:5]], [x.values() for x in (dq, dk, dv, dg, dbeta)])
        s0 = torch.tensor([0.0] * (K * V), torch.float32, (1, 1, K, V))
        o, _ = recurrence(q, k, v, g, beta, a_log, bias, s0, [0, T], -5.0)
        along_v = sum(x * y for x, y in zip(o, do.values()))  # o is 0 where v is
        self.assertLess(abs(sum(x * y for x, y in zip(dv.values(), v.values())) - along_v), 1e-2 * abs(along_v))
        for t in (dq, dk, dg, dbeta, da, dbias):
            self.assertTrue(all(abs(x) < 1e3 for x in t.values()))
            self.assertTrue(any(x != 0 for x in t.values()))

    def test_kda_in_slices(self):
        """Two sets of factors, made on one stream while the states run through the slice before on another."""
        B, T, H, D = 1, 70, 1, 32
        q, k, v, g, beta = normal(B, T, H, D), normal(B, T, H, D, seed=2), normal(B, T, H, D, seed=3), normal(B, T, H, D, seed=4), \
            normal(B, T, H, seed=5)
        a_log, zero, s0 = torch.tensor([0.1], torch.float32), [0.0] * D, normal(B, H, D, D, dtype=torch.float32, seed=8)
        params = {"gate": "bounded", "l2norm": True, "beta_sigmoid": True, "wide_range": False, "SLICE": 32}
        f = tkc.load(os.path.join(ROOT, "python", "tkc", "kda.tk"), "kda_forward", params=params)
        o, s = torch.empty(B, T, H, D, dtype=torch.bfloat16), torch.empty(B, H, D, D, dtype=torch.float32)
        with torch.cuda.capture() as graph:
            with self.raises(tkc.DriverError, "stream is capturing"):  # not prepared: it must load a module
                f(q, k, v, g, beta, a_log, None, None, s0, o, s, D**-0.5, -5.0)
        f.prepare(q, k, v, g, beta, a_log, None, None, s0, o, s, D**-0.5, -5.0)
        lib().tkc_emu_clear_log()
        with torch.cuda.capture() as graph:
            f(q, k, v, g, beta, a_log, None, None, s0, o, s, D**-0.5, -5.0)
        graph.replay()
        self.assertEqual(len({line.split(" stream ")[1].split()[0] for line in launches()}), 2)
        want_o, want_s = recurrence(q, k, v, g, beta, a_log, torch.tensor(zero, torch.float32), s0, [0, T], -5.0)
        self.assertLess(rms(o.values(), want_o), 6e-3)
        self.assertLess(rms(s.values(), want_s), 6e-3)

    def test_kda_errors(self):
        q, g, beta = normal(1, 4, 1, 32), normal(1, 4, 1, 32), normal(1, 4, 1)
        for named, parts in [({"allow_neg_eigval": True}, "use_beta_sigmoid_in_kernel"), ({"use_gate_in_kernel": True}, "A_log"),
                             ({"chunk_size": 16}, "32 or 64"),
                             ({"use_gate_in_kernel": True, "safe_gate": True, "lower_bound": -6.0}, "lower_bound in [-5, 0)"),
                             ({"state_v_first": True, "transpose_state_layout": True}, "are the same")]:
            with self.raises(ValueError, parts):
                tkc.kda.chunk_kda(q, q, q, g, beta, **named)
        with self.raises(TypeError, "no argument `A_lag`"):
            tkc.kda.chunk_kda(q, q, q, g, beta, A_lag=1)
        with self.raises(ValueError, "g: [B, T, HV, K] is wanted"):
            tkc.kda.chunk_kda(q, q, q, beta, beta)


def recurrence(q, k, v, g, beta, a_log, bias, s0, cu, bound):
    """Token by token, with normalised q and k, the bounded gate and the sigmoid of beta."""
    _, T, H, K = q.shape
    HV, V = v.shape[2:]
    q, k, v, g, beta, a_log, bias, s0 = (t.values() for t in (q, k, v, g, beta, a_log, bias, s0))
    sigmoid = lambda x: 1 / (1 + math.exp(-x))
    o, states = [0.0] * (T * HV * V), []
    for n in range(len(cu) - 1):
        for h in range(HV):
            at, hq = (n * HV + h) * K * V, h // (HV // H)
            S = [s0[at + i * V:at + i * V + V] for i in range(K)]
            for t in range(cu[n], cu[n + 1]):
                def row(x, heads, head, width):
                    begin = (t * heads + head) * width
                    return x[begin:begin + width]
                qt, kt, vt, gt = row(q, H, hq, K), row(k, H, hq, K), row(v, HV, h, V), row(g, HV, h, K)
                nq, nk = (K**-0.5 / math.sqrt(sum(e * e for e in qt) + 1e-6), 1 / math.sqrt(sum(e * e for e in kt) + 1e-6))
                kt = [e * nk for e in kt]
                bt = sigmoid(beta[t * HV + h])
                decay = [math.exp(bound * sigmoid(math.exp(a_log[h]) * (e + bias[h * K + i]))) for i, e in enumerate(gt)]
                S = [[decay[i] * x for x in S[i]] for i in range(K)]
                for j in range(V):
                    e = bt * (vt[j] - sum(kt[i] * S[i][j] for i in range(K)))
                    for i in range(K):
                        S[i][j] += kt[i] * e
                    o[(t * HV + h) * V + j] = sum(qt[i] * nq * S[i][j] for i in range(K))
            states += [x for r in S for x in r]
    return o, states


class Host(Base):
    def test_safetensors(self):
        with tempfile.TemporaryDirectory() as folder:
            a = tkc.HostTensor.from_values("bf16", (2, 3), [1, 2, 3, 4, 5, 6])
            b = tkc.HostTensor("i64", (0, 4))
            write_safetensors(folder + "/x", {"a": a, "b": b})
            back = read_safetensors(folder + "/x")
            self.assertEqual((back["a"].dtype, back["a"].shape, back["a"].values()), ("bf16", (2, 3), [1, 2, 3, 4, 5, 6]))
            self.assertEqual((back["b"].dtype, back["b"].shape), ("i64", (0, 4)))

    def test_executors_agree(self):
        x = tkc.HostTensor.from_values("f32", (7, 70), [math.sin(i) for i in range(490)])
        bias = tkc.HostTensor.from_values("f32", (70,), [i / 8 for i in range(70)])
        results = [tkc.load(CASES, "chain", device=d)(x, bias, scale=2.0, parts=1).values() for d in ("interp", "emu")]
        self.assertLess(rms(results[0], [2 * (6 * e + i % 70 / 8) for i, e in enumerate(x.values())]), 1e-6)
        self.assertEqual(*results)
        out = tkc.HostTensor("f32", (7, 70))
        self.assertIsNone(tkc.load(CASES, "chain", device="interp")(x, None, out, 1.0, 2))
        self.assertLess(rms(out.values(), [6 * e for e in x.values()]), 1e-6)

    def test_numbers_of_choices(self):
        def integer(e):
            if e == "missing":
                raise NoValue("missing")
            return e
        whole = ["?", "i32", [">", "bool", {"scalar": "t"}, {"number": 0.0}], {"integer": 9}, {"integer": 7}]
        self.assertEqual([numbers.evaluate(numbers.settled(whole, integer), lambda _: t) for t in (1.0, -1.0)], [9, 7])
        half = ["?", "f32", [">", "bool", {"scalar": "t"}, {"number": 0.0}], {"number": 1.0}, {"integer": "missing"}]
        n = numbers.settled(half, integer)
        self.assertEqual(numbers.evaluate(n, lambda _: 1.0), 1.0)
        with self.assertRaises(NoValue):
            numbers.evaluate(n, lambda _: -1.0)

    def test_numbers_that_are_computed_on_the_host(self):
        x = tkc.HostTensor.from_values("f32", (7, 70), [math.sin(i) for i in range(490)])
        results = [tkc.load(CASES, "computed", device=d)(x, a=1.5).values() for d in ("interp", "emu")]
        self.assertLess(rms(results[0], [2 * e * (1.5 / math.sqrt(7) + 0.25) for e in x.values()]), 1e-6)
        self.assertEqual(*results)

    def test_softmax_bf16(self):
        x = tkc.HostTensor.from_values("bf16", (2, 40), [math.sin(i) for i in range(80)])
        y = tkc.load(sample("softmax"), device="emu")(x)
        self.assertEqual((y.dtype, y.shape), ("bf16", (2, 40)))
        self.assertLess(abs(sum(y.values()) - 2), 1e-2)
        with self.raises(TypeError, "x: dtype f32, `softmax` wants bf16"):
            tkc.load(sample("softmax"), device="emu")(tkc.HostTensor("f32", (2, 40)))

    def test_pad(self):
        x = tkc.HostTensor.from_values("f32", (5,), [1, 2, 3, 4, 5])
        self.assertEqual(tkc.load(CASES, "pad", device="interp")(x, M=4).values(), [1, 2, 3, 4, 5, 7, 7, 7])

    @unittest.skipUnless(np, "NumPy")
    def test_numpy(self):
        x = np.arange(35, dtype=np.float32).reshape(7, 5)
        f = tkc.load(CASES, "turned", device="interp")
        y = f(x.T)
        self.assertIsInstance(y, np.ndarray)
        self.assertTrue(np.array_equal(y, x.T))
        f(x, x2 := np.zeros((7, 5), np.float32))
        self.assertTrue(np.array_equal(x, x2))
        bits = tkc.HostTensor.from_numpy(x, "bf16")
        self.assertTrue(np.array_equal(bits.numpy().astype(np.uint32) << 16, x.view(np.uint32)))
        self.assertEqual(tkc.HostTensor.from_numpy(bits.numpy(), "bf16").values(), bits.values())
        with self.raises(TypeError, "does not hold bf16"):
            tkc.HostTensor.from_numpy(np.zeros(3, np.int32), "bf16")

    def test_binary(self):
        before = os.environ["TKC"]
        try:
            os.environ["TKC"] = "/nowhere/tkc"
            with self.raises(FileNotFoundError, "TKC=/nowhere/tkc"):
                compiler.binary()
        finally:
            os.environ["TKC"] = before


if __name__ == "__main__":
    program = unittest.main(exit=False, verbosity=1)
    result = program.result
    skipped = len(result.skipped)
    print(f"test cases: {result.testsRun - skipped} | {result.testsRun - skipped - len(result.failures) - len(result.errors)} passed")
    if skipped:
        print(f"skipped: {skipped} tests of the Python loader (no NumPy)")
    sys.exit(0 if result.wasSuccessful() else 1)
