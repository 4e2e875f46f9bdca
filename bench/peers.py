#!/usr/bin/env python3
"""Compares kernels of tkc with those of torch, Triton, fla and flash_kda, whichever can be imported, in one process: the same
tensors, the benchmark convention (src/runtime/bench.h), rounds in drawn order, and the statistics of `tkc ab --samples`.

    bench/peers.py [--list] [--only WORD] [--peer WORD] [--rounds N] [--output FOLDER] [--require 'speedup>=1.0']

Both sides of a pair compute first, and results that differ by more than the case's limit are not timed (exit 3). Of every
pair the folder gets two files of samples; the verdict is that of tkc, "a" the peer and "b" tkc. Checksums of the inputs are
taken for each side before its first and after its last round: a side that writes to its inputs, or has others, ends the run.
Nothing is built or fetched here: libraries that are found on PYTHONPATH are used as they are.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import time

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.path.insert(0, os.path.join(ROOT, "python"))
os.environ.setdefault("TKC", os.path.join(ROOT, "build", "tkc"))

WARMUP, TIMED, REST = 500, 100, 0.5
MASK = (1 << 64) - 1


# ---- the convention, without torch

def group_count(call_bytes, l2_bytes):
    return 1 if call_bytes > 3 * l2_bytes else 3 * l2_bytes // call_bytes + 1


def seed(group, tensor):
    return 2024 + 100 * group + tensor


def splitmix64(x):
    x &= MASK
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def drawn_orders(rounds, number):
    """Whether b comes first in each round; rounds 2k and 2k + 1 have opposite orders."""
    out, draw = [], random.Random(number)
    while len(out) < rounds:
        flip = draw.random() < 0.5
        out += [flip, not flip]
    return out[:rounds]


def run_convention(call, groups, clock):
    """Seconds of one call. clock: rest(seconds), start(), stop() -> seconds."""
    clock.rest(REST)
    for i in range(WARMUP):
        call(i % groups)
    clock.start()
    for i in range(TIMED):
        call(i % groups)
    return clock.stop() / TIMED


def run_pair(a, b, groups, rounds, clock, order_seed=1, progress=None):
    """Samples of both sides; Ctrl-C gives the rounds that were finished."""
    samples = ([], [])
    try:
        for r, b_first in enumerate(drawn_orders(rounds, order_seed)):
            times = {}
            for side in ((1, 0) if b_first else (0, 1)):
                times[side] = run_convention((a, b)[side], groups, clock)
            for side in (0, 1):
                samples[side].append(times[side])
            if progress:
                progress(r + 1)
    except KeyboardInterrupt:
        pass
    return samples


# ---- torch

class Clock:
    def __init__(self, torch):
        self.torch = torch
        self.begin, self.end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def rest(self, seconds):
        time.sleep(seconds)

    def start(self):
        self.begin.record()

    def stop(self):
        self.end.record()
        self.end.synchronize()
        return self.begin.elapsed_time(self.end) * 1e-3


def signed(x):
    return x - (1 << 64) if x >> 63 else x


def splitmix_tensor(torch, count, start):
    """splitmix64(start + i) as int64, whose products wrap; its shifts are arithmetic, so what they fill is masked off."""
    shift = lambda x, n: (x >> n) & ((1 << (64 - n)) - 1)
    x = torch.arange(count, dtype=torch.int64, device="cuda") + start
    x = (x ^ shift(x, 30)) * signed(0xBF58476D1CE4E5B9)
    x = (x ^ shift(x, 27)) * signed(0x94D049BB133111EB)
    return x ^ shift(x, 31)


def fill(torch, shape, dtype, group, tensor, low=-1.0, high=1.0):
    count = 1
    for n in shape:
        count *= n
    u = ((splitmix_tensor(torch, count, seed(group, tensor)) >> 40) & 0xFFFFFF).to(torch.float32) / (1 << 24)
    return (u * (high - low) + low).to(dtype).reshape(shape)


def checksum(torch, tensors):
    total = 0
    for t in tensors:
        raw = t.detach().contiguous().view(torch.uint8).reshape(-1)
        for begin in range(0, raw.numel(), 1 << 26):  # in pieces: the indices take eight times the memory
            piece = raw[begin:begin + (1 << 26)].to(torch.int64)
            total += int(((piece + 1) * (splitmix_tensor(torch, piece.numel(), begin) | 1)).sum().item())
        total = splitmix64(total & MASK)
    return total


class Missing(Exception):
    """A library that is not here, or does not do this."""


class Case:
    """inputs(torch, group) -> dict of tensors; ours(inputs) and each peer(inputs) -> a function of no argument whose result is a
    tensor or a tuple whose first is compared. limit: rms of the difference over that of ours."""

    def __init__(self, name, inputs, ours, peers, limit, flops=0, moved=0):
        self.name, self.inputs, self.ours, self.peers = name, inputs, ours, peers
        self.limit, self.flops, self.bytes = limit, flops, moved


def imported(name):
    try:
        return __import__(name, fromlist=["_"])
    except Exception as e:
        raise Missing(f"{name}: {type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}") from None


def sample(name, kernel=None, params=None):
    import tkc
    return tkc.load(os.path.join(ROOT, "samples", name + ".tk"), kernel, params=params)


# Triton forms of a row softmax and a product, as one writes them first.
def triton_kernels():
    triton, tl = imported("triton"), imported("triton.language")

    @triton.jit
    def softmax_rows(x, y, n, BLOCK: tl.constexpr):
        at = tl.program_id(0).to(tl.int64) * n + tl.arange(0, BLOCK)
        keep = tl.arange(0, BLOCK) < n
        t = tl.load(x + at, mask=keep, other=-float("inf")).to(tl.float32)
        e = tl.exp(t - tl.max(t, axis=0))
        tl.store(y + at, (e / tl.sum(e, axis=0)).to(y.dtype.element_ty), mask=keep)

    @triton.jit
    def product(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):
        pid, rows, columns = tl.program_id(0), tl.cdiv(M, BM), tl.cdiv(N, BN)
        first = pid // (GROUP * columns) * GROUP
        height = tl.minimum(rows - first, GROUP)
        i = (first + pid % (GROUP * columns) % height) * BM + tl.arange(0, BM)
        j = pid % (GROUP * columns) // height * BN + tl.arange(0, BN)
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for k0 in range(0, K, BK):
            k = k0 + tl.arange(0, BK)
            x = tl.load(a + i[:, None] * K + k[None, :], mask=(i[:, None] < M) & (k[None, :] < K), other=0.0)
            y = tl.load(b + k[:, None] * N + j[None, :], mask=(k[:, None] < K) & (j[None, :] < N), other=0.0)
            acc = tl.dot(x, y, acc)
        tl.store(c + i[:, None] * N + j[None, :], acc.to(c.dtype.element_ty), mask=(i[:, None] < M) & (j[None, :] < N))

    return triton, softmax_rows, product


def softmax_case(torch, M, N):
    def triton_softmax(x):
        triton, kernel, _ = triton_kernels()
        y, block = torch.empty_like(x["x"]), triton.next_power_of_2(N)
        return lambda: (kernel[(M,)](x["x"], y, N, BLOCK=block, num_warps=8), y)[1]

    def ours(x):
        f, y = sample("softmax"), torch.empty_like(x["x"])
        return lambda: (f(x["x"], y), y)[1]

    return Case(f"softmax {M} x {N} bf16", lambda g: {"x": fill(torch, (M, N), torch.bfloat16, g, 0)}, ours,
                {"torch": lambda x: lambda: torch.softmax(x["x"], 1), "Triton": triton_softmax}, 5e-3, moved=4 * M * N)


def rms_norm_case(torch, M, N):
    def inputs(g):
        return {"x": fill(torch, (M, N), torch.bfloat16, g, 0), "w": fill(torch, (N,), torch.bfloat16, g, 1)}

    def ours(x):
        f, y = sample("rms_norm"), torch.empty_like(x["x"])
        return lambda: (f(x=x["x"], w=x["w"], eps=1e-6, y=y), y)[1]

    def torch_norm(x):
        if not hasattr(torch.nn.functional, "rms_norm"):
            raise Missing("torch.nn.functional.rms_norm")
        return lambda: torch.nn.functional.rms_norm(x["x"], (N,), x["w"], 1e-6)

    return Case(f"rms_norm {M} x {N} bf16", inputs, ours, {"torch": torch_norm}, 5e-3, moved=4 * M * N)


def gemm_case(torch, n):
    def inputs(g):
        return {"a": fill(torch, (n, n), torch.bfloat16, g, 0), "b": fill(torch, (n, n), torch.bfloat16, g, 1)}

    def ours(x):
        f, c = sample("gemm", "gemm", {"BN": 256}), torch.empty_like(x["a"])
        return lambda: (f(x["a"], x["b"], c), c)[1]

    def cublas(x):
        c = torch.empty_like(x["a"])
        return lambda: torch.matmul(x["a"], x["b"], out=c)

    def triton_product(x):
        triton, _, kernel = triton_kernels()
        c, grid = torch.empty_like(x["a"]), (triton.cdiv(n, 128) * triton.cdiv(n, 256),)
        return lambda: (kernel[grid](x["a"], x["b"], c, n, n, n, BM=128, BN=256, BK=64, GROUP=8, num_warps=8, num_stages=3), c)[1]

    return Case(f"gemm {n} cubed bf16", inputs, ours, {"torch (cuBLAS)": cublas, "Triton": triton_product}, 6e-3, flops=2 * n**3)


def attention_case(torch, B, H, T, D):
    def inputs(g):
        return {n: fill(torch, (B, T, H, D), torch.bfloat16, g, i) for i, n in enumerate("qkv")}

    def ours(x):
        f, o = sample("attention", "attention"), torch.empty_like(x["q"])
        named = {"scale": D**-0.5} if any(a.name == "scale" for a in f.arguments) else {}
        return lambda: (f(q=x["q"], k=x["k"], v=x["v"], o=o, **named), o)[1]

    def peer(backend):
        def make(x):
            attention = imported("torch.nn.attention")
            if not hasattr(attention.SDPBackend, backend):
                raise Missing(f"torch has no {backend}")
            chosen = getattr(attention.SDPBackend, backend)
            q, k, v = (x[n].transpose(1, 2) for n in "qkv")

            def call():
                with attention.sdpa_kernel(chosen):
                    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
            return call
        return make

    return Case(f"attention causal B{B} H{H} T{T} D{D} bf16", inputs, ours,
                {"torch (FlashAttention-2)": peer("FLASH_ATTENTION"), "torch (cuDNN)": peer("CUDNN_ATTENTION")}, 1e-2,
                flops=2 * B * H * T * T * D)


def kda_case(torch, B, T, H, backward=False):
    D, bound, scale = 128, -5.0, 128**-0.5

    def inputs(g):
        shape, f32 = (B, T, H, D), torch.float32
        x = {n: fill(torch, shape, torch.bfloat16, g, i) for i, n in enumerate("qkvg")}
        x["beta"] = fill(torch, (B, T, H), torch.bfloat16, g, 4)
        x["A_log"], x["dt_bias"] = fill(torch, (H,), f32, g, 5, 0.0, 1.0), fill(torch, (H * D,), f32, g, 6, -1.0, 0.0)
        if backward:
            x["do"] = fill(torch, shape, torch.bfloat16, g, 7)
        return x

    def through(chunk_kda):
        def make(x):
            options = dict(scale=scale, output_final_state=True, use_qk_l2norm_in_kernel=True, use_gate_in_kernel=True,
                           use_beta_sigmoid_in_kernel=True, lower_bound=bound, safe_gate=True, A_log=x["A_log"], dt_bias=x["dt_bias"])
            names = ("q", "k", "v", "g", "beta")
            if not backward:
                def forward():
                    with torch.no_grad():
                        return chunk_kda(*(x[n] for n in names), **options)[0]
                return forward
            leaves = [x[n].detach().requires_grad_() for n in names]

            def both():
                return torch.autograd.grad(chunk_kda(*leaves, **options)[0], leaves, x["do"])[3]  # dg: the hardest
            return both
        return make

    def ours(x):
        import tkc.kda
        return through(tkc.kda.chunk_kda)(x)

    def fla(x):
        module = imported("fla.ops.kda")
        return through(module.chunk_kda)(x)

    def flash(x):
        module = imported("flash_kda")
        if B != 1:
            raise Missing("flash_kda: one row")
        q, k, v, g, beta = (x[n] for n in ("q", "k", "v", "g", "beta"))
        o = torch.empty_like(v)
        state = torch.empty(1, H, D, D, dtype=torch.float32, device="cuda")
        bias = x["dt_bias"].reshape(H, D)
        return lambda: (module.fwd(q, k, v, g, beta, scale, o, x["A_log"], bias, bound, final_state=state), o)[1]

    peers = {"fla": fla} if backward else {"fla": fla, "flash_kda": flash}
    what = "KDA forward + backward" if backward else "KDA forward"
    return Case(f"{what} B{B} T{T} H{H} D128 bf16", inputs, ours, peers, 3e-2 if backward else 1.2e-2,
                moved=B * T * H * (2 * 5 * D + 2))


def all_cases(torch):
    return [softmax_case(torch, 32768, 4096), rms_norm_case(torch, 32768, 4096), gemm_case(torch, 4096),
            attention_case(torch, 4, 32, 4096, 128), kda_case(torch, 1, 8192, 32), kda_case(torch, 1, 8192, 96),
            kda_case(torch, 4, 4096, 32), kda_case(torch, 1, 32768, 16), kda_case(torch, 1, 8192, 32, backward=True),
            kda_case(torch, 1, 8192, 96, backward=True)]


# ---- the run

def first(result):
    return result[0] if isinstance(result, (tuple, list)) else result


def prepare(torch, case, make, inputs):
    """A function of the group; compiles and autotunes now."""
    calls = [make(x) for x in inputs]
    for call in calls:
        call()
    torch.cuda.synchronize()
    return lambda group: calls[group]()


def difference(a, b):
    a, b = a.double(), b.double()
    return ((a - b).square().mean().sqrt() / b.square().mean().sqrt().clamp_min(1e-300)).item()


def verdict(folder, stem, samples, require, header):
    """Writes the samples; prints what `tkc ab` says of them; its exit code."""
    paths = []
    for side, list_ in zip("ab", samples):
        paths.append(os.path.join(folder, f"{stem}.{side}.json"))
        with open(paths[-1], "w") as f:
            json.dump(dict(header, side=side, samples=list_), f, indent=1)
            f.write("\n")
    command = [os.environ["TKC"], "ab", "--samples", *paths] + (["--require", require] if require else [])
    return subprocess.run(command).returncode


def compare(torch, case, peer, make, options, versions):
    """The exit code of one pair; None where the peer is not here."""
    size = sum(t.numel() * t.element_size() for t in case.inputs(0).values())
    groups = group_count(max(size, case.bytes), torch.cuda.get_device_properties(0).L2_cache_size)
    inputs = [case.inputs(g) for g in range(groups)]
    print(f"\n{case.name}: a {peer}, b tkc, {groups} groups", flush=True)
    sums = [checksum(torch, x.values()) for x in inputs]
    try:
        a = prepare(torch, case, make, inputs)
    except Missing as e:
        print(f"skipped: {e}")
        return None
    except Exception as e:  # another version of it than this file knows; the others are worth timing
        print(f"{peer} does not run: {type(e).__name__}: {e}")
        return 1
    b = prepare(torch, case, case.ours, inputs)
    error = difference(first(a(0)), first(b(0)))
    print(f"difference {error:.2e} (limit {case.limit:.1e})")
    if not error <= case.limit:
        print("the results differ: nothing was timed")
        return 3
    terminal = sys.stderr.isatty()
    progress = (lambda n: print(f"\r{n} of {options.rounds} rounds", end="", file=sys.stderr, flush=True)) if terminal else None
    samples = run_pair(a, b, groups, options.rounds, Clock(torch), progress=progress)
    if terminal:
        print("\r" + 40 * " " + "\r", end="", file=sys.stderr, flush=True)
    again = [checksum(torch, x.values()) for x in inputs]
    print("inputs " + " ".join(f"{s:016x}" for s in sums[:4]) + (" .." if groups > 4 else "")
          + ("  (the same memory on both sides, unchanged)" if again == sums else "  CHANGED"))
    if again != sums:
        return 3
    stem = "".join(c if c.isalnum() else "_" for c in f"{case.name} {peer}")
    header = {"case": case.name, "a": peer, "b": "tkc", "groups": groups, "difference": error, "versions": versions,
              "inputs": [f"{s:016x}" for s in sums]}
    code = verdict(options.output, stem, samples, options.require, header)
    for side, list_ in zip((peer, "tkc"), samples):
        middle = sorted(list_)[len(list_) // 2] if list_ else float("nan")
        rate = f"  {case.flops / middle * 1e-12:.1f} TFLOP/s" if case.flops else ""
        rate += f"  {case.bytes / middle * 1e-12:.3f} TB/s" if case.bytes else ""
        print(f"{side:<28} {middle * 1e6:10.2f} us{rate}")
    return 130 if len(samples[0]) < options.rounds and code == 0 else code


def main(argv):
    parser = argparse.ArgumentParser(description="tkc beside torch, Triton, fla and flash_kda, in one process.")
    parser.add_argument("--list", action="store_true", help="the cases and peers, and stop")
    parser.add_argument("--only", default="", help="cases with this word in their name")
    parser.add_argument("--peer", default="", help="peers with this word in their name")
    parser.add_argument("--rounds", type=int, default=20, help="rounds, each a complete run of the convention per side")
    parser.add_argument("--output", default=os.path.join(ROOT, "build", "peers"), help="folder for the samples")
    parser.add_argument("--require", default="", help="as of tkc ab; the speedup is time of the peer / time of tkc")
    options = parser.parse_args(argv)
    import torch
    if not torch.cuda.is_available():
        print("peers: torch finds no GPU", file=sys.stderr)
        return 4
    versions = {"gpu": torch.cuda.get_device_name(0), "torch": torch.__version__, "cuda": torch.version.cuda}
    for name in ("triton", "fla", "flash_kda"):
        try:
            versions[name] = getattr(imported(name), "__version__", "unknown")
        except Missing as e:
            print(f"not here: {e}")
    print(", ".join(f"{k} {v}" for k, v in versions.items()))
    cases = [c for c in all_cases(torch) if options.only in c.name]
    if options.list:
        for c in cases:
            print(f"{c.name}: {', '.join(c.peers)}")
        return 0
    os.makedirs(options.output, exist_ok=True)
    worst = 0
    for case in cases:
        for peer, make in case.peers.items():
            if options.peer not in peer:
                continue
            code = compare(torch, case, peer, make, options, versions)
            torch.cuda.empty_cache()
            worst = worst or code or 0
            if code == 130:
                return code
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
