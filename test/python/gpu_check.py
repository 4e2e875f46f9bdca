#!/usr/bin/env python3
"""Checks python/tkc on the GPU of this machine with torch: values against torch and float64, views, graphs, errors, and
what a call costs. Needs python3, torch and build/tkc. Prints a table; exit 1 if a line fails.

    python3 test/python/gpu_check.py [--only WORD]      on the GPU
    python3 test/python/gpu_check.py --device emu       values alone, small, torch on the CPU and kernels in the emulator
"""
import argparse
import os
import subprocess
import sys
import threading
import time
import traceback

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
os.environ.setdefault("TKC", os.path.join(ROOT, "build", "tkc"))
sys.path.insert(0, os.path.join(ROOT, "python"))

import torch  # noqa: E402
import tkc  # noqa: E402
import tkc.kda  # noqa: E402

options = argparse.ArgumentParser()
options.add_argument("--device", choices=["gpu", "emu", "interp"], default="gpu")
options.add_argument("--only", default="", help="run the checks with this word in their name")
options = options.parse_args()
GPU = options.device == "gpu"
HOW = {"device": None if GPU else options.device}
if GPU and not torch.cuda.is_available():
    sys.exit("gpu_check: torch finds no GPU")
WHERE = "cuda" if GPU else "cpu"
torch.manual_seed(1)
rows = []
checks = []


def check(on_gpu_only=False):
    def add(function):
        if GPU or not on_gpu_only:
            checks.append(function)
        return function
    return add


def report(name, good, detail=""):
    rows.append((name, bool(good)))
    print(f"{name:<44} {'PASS' if good else 'FAIL'}  {detail}", flush=True)


def rms(name, got, want, limit):
    got, want = got.double(), want.double().to(got.device)
    error = ((got - want).square().mean().sqrt() / want.square().mean().sqrt().clamp_min(1e-300)).item() if want.numel() else 0.0
    report(name, error <= limit and got.isfinite().all(), f"rms {error:.2e} (limit {limit:.1e})")


def sample(name):
    return os.path.join(ROOT, "samples", name + ".tk")


def randn(*shape, dtype=torch.bfloat16):
    return torch.randn(*shape, device=WHERE, dtype=torch.float32).to(dtype)


def big(on_gpu, elsewhere):
    return on_gpu if GPU else elsewhere


@check()
def softmax():
    f = tkc.load(sample("softmax"), **HOW)
    for m, n in ([(7, 100), (1000, 4096), (3, 1001)] if GPU else [(3, 100)]):
        x = randn(m, n)
        rms(f"softmax [{m}, {n}]", f(x), torch.softmax(x.double(), 1), 4e-3)


@check()
def gemm():
    f = tkc.load(sample("gemm"), "gemm", **HOW)
    for m, n, k in ([(512, 768, 1024), (4096, 4096, 4096), (65, 67, 77)] if GPU else [(32, 40, 64)]):
        a, b = randn(m, k), randn(k, n)
        rms(f"gemm [{m}, {k}] x [{k}, {n}]", f(a, b), a.double() @ b.double(), 4e-3)


@check()
def rms_norm():
    f = tkc.load(sample("rms_norm"), "rms_norm", **HOW)
    m, n = big((300, 1024), (3, 64))
    x, res, w = randn(m, n), randn(m, n), randn(n)
    for r in (None, res):
        t = x.double() + (r.double() if r is not None else 0)
        want = t * torch.rsqrt(t.square().mean(1, keepdim=True) + 1e-6) * w.double()
        rms(f"rms_norm, {'without' if r is None else 'with'} the optional tensor", f(x, r, w, eps=1e-6), want, 4e-3)


@check()
def split_gemm():
    f = tkc.load(sample("split_gemm"), **HOW)
    for m, n, k in ([(64, 4096, 8192), (17, 130, 2050), (64, 64, 192)] if GPU else [(16, 16, 512)]):
        a, b = randn(m, k), randn(k, n)
        need = f", workspace {f.workspace_bytes(a, b)}" if GPU else ""
        rms(f"split_gemm [{m}, {n}, {k}]{need}", f(a, b), a.double() @ b.double(), 4e-3)


@check(on_gpu_only=True)
def workspace():
    f = tkc.load(sample("split_gemm"))
    a, b = randn(64, 8192), randn(8192, 4096)
    want = f(a, b)
    memory = torch.empty(f.workspace_bytes(a, b), device="cuda", dtype=torch.uint8)
    c = torch.empty_like(want)
    before = torch.cuda.memory_stats()["allocation.all.allocated"]
    f(a, b, c, workspace=memory)
    after = torch.cuda.memory_stats()["allocation.all.allocated"]
    report("workspace of the caller: same bits", torch.equal(c, want))
    report("workspace of the caller: nothing allocated", before == after, f"{after - before} allocations")


@check(on_gpu_only=True)
def views():
    f = tkc.load(sample("gemm"), "gemm")
    packed = randn(512, 3 * 640)
    a, b = packed[:, 640:1280], randn(1280, 512)[::2, 128:384]
    rms("gemm of views: a part of packed columns", f(a, b), a.double() @ b.double(), 4e-3)
    odd = randn(512, 645)[:, 3:643]
    rms("gemm of views: an address without alignment", f(odd, b), odd.double() @ b.double(), 4e-3)
    out = torch.full((512, 600), 3.0, device="cuda", dtype=torch.bfloat16)
    f(a, b, out[:, 100:356])
    rms("gemm into a part of a tensor", out[:, 100:356], a.double() @ b.double(), 4e-3)
    report("gemm into a part: nothing beside it", bool((out[:, :100] == 3).all() and (out[:, 356:] == 3).all()))
    t = tkc.load(os.path.join(ROOT, "test", "loader", "cases.tk"), "turned")
    x = torch.randn(100, 70, device="cuda")
    report("any innermost stride: x.T", torch.equal(t(x.T), x.T))


@check(on_gpu_only=True)
def streams_and_threads():
    f = tkc.load(sample("gemm"), "gemm")
    a, b = randn(1024, 1024), randn(1024, 1024)
    want = f(a, b)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        c = f(a, b)
    torch.cuda.current_stream().wait_stream(side)
    report("torch's current stream is used", torch.equal(c, want))
    results, errors = [None] * 4, []

    def work(i):
        try:
            s = torch.cuda.Stream()
            s.wait_stream(torch.cuda.default_stream())
            with torch.cuda.stream(s):
                for _ in range(20):
                    results[i] = f(a, b)
            s.synchronize()
        except Exception as e:  # shown below
            errors.append(e)

    torch.cuda.synchronize()
    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    report("four threads", not errors and all(torch.equal(r, want) for r in results), "; ".join(map(str, errors)))
    fresh = []
    t = threading.Thread(target=lambda: fresh.append(f(a, b)))  # a thread without a context of its own
    t.start()
    t.join()
    torch.cuda.synchronize()
    report("a thread that has not used CUDA", len(fresh) == 1 and torch.equal(fresh[0], want))


@check(on_gpu_only=True)
def graphs():
    f, g = tkc.load(sample("softmax")), tkc.load(sample("split_gemm"))
    x = randn(256, 1024)
    a, b = randn(64, 8192), randn(8192, 512)
    f(x), g(a, b)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = f(x)
        c = g(a, b)
        z = y * 2
    for _ in range(2):
        x.copy_(randn(256, 1024))
        a.copy_(randn(64, 8192))
        graph.replay()
        torch.cuda.synchronize()
        rms("graph: softmax after new inputs", y, torch.softmax(x.double(), 1), 4e-3)
        rms("graph: split_gemm after new inputs", c, a.double() @ b.double(), 4e-3)
        report("graph: torch's own kernels beside", torch.equal(z, y * 2))


def recurrence(q, k, v, g, beta, scale, s0, cu, l2norm, gate, A_log, dt_bias, bound, sigmoid, neg):
    """The definition, token by token in float64: o and the states [N, HV, K, V]."""
    q, k, v, g, beta = (t.double() for t in (q, k, v, g, beta))
    B, T, H, K = q.shape
    HV, V = v.shape[2:]
    q, k = (t.repeat_interleave(HV // H, 2) for t in (q, k))
    if l2norm:
        q, k = (t / (t.square().sum(-1, keepdim=True) + 1e-6).sqrt() for t in (q, k))
    if gate:
        x = g + (dt_bias.double().reshape(HV, K) if dt_bias is not None else 0)
        a = A_log.double().exp()[:, None] if A_log is not None else 1.0
        g = -a * torch.nn.functional.softplus(x) if bound is None else bound * torch.sigmoid(a * x)
    if sigmoid:
        beta = beta.sigmoid() * (2 if neg else 1)
    spans = [(b, 0, T) for b in range(B)] if cu is None else [(0, int(cu[n]), int(cu[n + 1])) for n in range(len(cu) - 1)]
    o, states = torch.zeros_like(v), []
    for n, (b, begin, end) in enumerate(spans):
        S = s0[n].double() if s0 is not None else torch.zeros(HV, K, V, device=q.device, dtype=torch.float64)
        for t in range(begin, end):
            D = g[b, t].exp()[:, :, None] * S
            e = v[b, t] - (k[b, t][:, :, None] * D).sum(1)
            S = D + beta[b, t][:, None, None] * k[b, t][:, :, None] * e[:, None, :]
            o[b, t] = scale * (q[b, t][:, :, None] * S).sum(1)
        states.append(S)
    return o, torch.stack(states)


def kda_case(name, B, T, H, HV, K, V, cu=None, state=True, gate="bounded", l2norm=True, sigmoid=True, neg=False, v_first=False,
             dtype=torch.bfloat16, packed=False, a_log=True, bias=True, scale=None, cu_type=torch.int64, limit=4.5e-3, **more):
    """One call against the recurrence; the call again must give the same bits."""
    if packed:  # views of one projection
        rows_ = randn(B, T, 2 * H * K + HV * V, dtype=dtype)
        q, k, v = rows_.split([H * K, H * K, HV * V], -1)
        q, k, v = q.view(B, T, H, K), k.view(B, T, H, K), v.view(B, T, HV, V)
    else:
        q, k, v = randn(B, T, H, K, dtype=dtype), randn(B, T, H, K, dtype=dtype), randn(B, T, HV, V, dtype=dtype)
    g = randn(B, T, HV, K) if gate else -torch.nn.functional.softplus(-torch.randn(B, T, HV, K, device=WHERE))
    beta = randn(B, T, HV) if sigmoid else torch.rand(B, T, HV, device=WHERE)
    A_log = torch.rand(HV, device=WHERE) if gate and a_log else None
    dt_bias = 0.5 * torch.randn(HV * K, device=WHERE) if gate and bias else None
    offsets = None if cu is None else torch.tensor(cu, device=WHERE, dtype=cu_type)
    N = B if cu is None else len(cu) - 1
    s0 = torch.randn(N, HV, K, V, device=WHERE) if state else None
    bound = -5.0 if gate == "bounded" else None
    given = s0.transpose(2, 3).contiguous() if state and v_first else s0
    named = dict(scale=scale, initial_state=given, output_final_state=True, use_qk_l2norm_in_kernel=l2norm,
                 use_gate_in_kernel=bool(gate), use_beta_sigmoid_in_kernel=sigmoid, allow_neg_eigval=neg, lower_bound=bound,
                 state_v_first=v_first, cu_seqlens=offsets, A_log=A_log, dt_bias=dt_bias, **more)
    if not GPU:
        named["device"] = options.device
    with torch.no_grad():
        o, s = tkc.kda.chunk_kda(q, k, v, g, beta, **named)
        o2, s2 = tkc.kda.chunk_kda(q, k, v, g, beta, **named)
    want_o, want_s = recurrence(q, k, v, g, beta, K**-0.5 if scale is None else scale, s0, cu, l2norm, gate, A_log, dt_bias, bound,
                                sigmoid, neg)
    rms(f"kda {name}: o", o, want_o, limit)
    rms(f"kda {name}: final state", s.transpose(2, 3) if v_first else s, want_s, 5e-3)
    report(f"kda {name}: same bits again", torch.equal(o, o2) and torch.equal(s, s2))


@check()
def kda():
    if not GPU:
        kda_case("small", 1, 20, 1, 2, 32, 32)
        kda_case("packed sequences, state [V, K]", 1, 21, 1, 1, 32, 32, cu=[0, 0, 16, 21], v_first=True, packed=True)
        return
    kda_case("bounded gate, 128", 2, 200, 4, 4, 128, 128)
    kda_case("safe gate", 1, 300, 4, 4, 128, 128, safe_gate=True)
    kda_case("softplus gate, neg_eigval", 1, 200, 2, 2, 128, 128, gate="softplus", neg=True)
    kda_case("gate of the caller, f32", 2, 130, 3, 3, 64, 64, gate=None, sigmoid=False)
    kda_case("grouped heads", 2, 100, 2, 8, 128, 128)
    kda_case("packed sequences", 1, 400, 4, 4, 128, 128, cu=[0, 15, 100, 100, 300, 400])
    kda_case("packed sequences, int32, grouped", 1, 257, 2, 4, 64, 128, cu=[0, 0, 64, 257], cu_type=torch.int32)
    kda_case("state [V, K]", 2, 100, 2, 2, 128, 64, v_first=True)
    # Few terms a sum, so their roundings do not average out: the limit of fla's tests.
    kda_case("no state, no A_log, no dt_bias", 1, 63, 1, 1, 64, 64, state=False, a_log=False, bias=False, limit=5e-3)
    kda_case("head dim 60", 2, 150, 3, 3, 60, 60)
    kda_case("head dim 100", 1, 150, 4, 4, 100, 100)
    kda_case("head dim 256", 1, 100, 2, 2, 256, 256)
    kda_case("float16", 2, 160, 2, 4, 64, 64, dtype=torch.float16)
    kda_case("views of one projection", 2, 130, 4, 4, 128, 128, packed=True)
    kda_case("scale 1", 1, 100, 2, 2, 64, 64, scale=1.0)


def kda_gradient_case(name, B, T, H, HV, K, V, cu=None, gate="bounded", l2norm=True, sigmoid=True, neg=False, v_first=False, state=True,
                      only_o=False):
    """Gradients by autograd against those of the recurrence in float64; the call again must give the same bits."""
    leaf = lambda t: t.detach().requires_grad_()
    q, k, v = (leaf(randn(B, T, h, d)) for h, d in ((H, K), (H, K), (HV, V)))
    g = leaf(randn(B, T, HV, K) if gate else -torch.nn.functional.softplus(-torch.randn(B, T, HV, K, device=WHERE)))
    beta = leaf(randn(B, T, HV) if sigmoid else torch.rand(B, T, HV, device=WHERE))
    A_log = leaf(torch.rand(HV, device=WHERE)) if gate else None
    dt_bias = leaf(0.5 * torch.randn(HV * K, device=WHERE)) if gate else None
    N = B if cu is None else len(cu) - 1
    s0 = leaf(torch.randn(N, HV, K, V, device=WHERE)) if state else None
    given = leaf(s0.transpose(2, 3).contiguous()) if state and v_first else s0
    bound = -5.0 if gate == "bounded" else None
    do = randn(B, T, HV, V)
    ds = None if only_o else torch.randn(N, HV, K, V, device=WHERE)
    leaves = {"q": q, "k": k, "v": v, "g": g, "beta": beta, "A_log": A_log, "dt_bias": dt_bias, "h0": given}
    leaves = {n: t for n, t in leaves.items() if t is not None}
    more = {} if GPU else {"device": options.device}

    def run():
        o, s = tkc.kda.chunk_kda(q, k, v, g, beta, initial_state=given, output_final_state=True, use_qk_l2norm_in_kernel=l2norm,
                                 use_gate_in_kernel=bool(gate), use_beta_sigmoid_in_kernel=sigmoid, allow_neg_eigval=neg, lower_bound=bound,
                                 state_v_first=v_first, A_log=A_log, dt_bias=dt_bias,
                                 cu_seqlens=None if cu is None else torch.tensor(cu, device=WHERE), **more)
        outputs = [(o, do)] + ([] if only_o else [(s, ds.transpose(2, 3).contiguous() if v_first else ds)])
        return torch.autograd.grad([x for x, _ in outputs], list(leaves.values()), [d for _, d in outputs])

    got, again = run(), run()
    o, s = recurrence(q, k, v, g, beta, K**-0.5, s0, cu, l2norm, gate, A_log, dt_bias, bound, sigmoid, neg)
    wrt = [s0 if n == "h0" else t for n, t in leaves.items()]
    outputs = [(o, do)] + ([] if only_o else [(s, ds)])
    want = torch.autograd.grad([x for x, _ in outputs], wrt, [d.double() for _, d in outputs])
    for n, a, b in zip(leaves, got, want):
        rms(f"kda gradients {name}: {n}", a.transpose(2, 3) if n == "h0" and v_first else a, b, 7e-3 if n == "g" else 5e-3)
    report(f"kda gradients {name}: same bits again", all(torch.equal(a, b) for a, b in zip(got, again)))


@check()
def kda_gradients():
    if not GPU:
        kda_gradient_case("small", 1, 37, 2, 4, 64, 64)
        kda_gradient_case("no state", 1, 37, 4, 4, 32, 32, state=False, only_o=True)
        return
    kda_gradient_case("bounded gate", 2, 200, 4, 4, 128, 128)
    kda_gradient_case("softplus gate, neg_eigval", 1, 200, 4, 4, 128, 128, gate="softplus", neg=True)
    kda_gradient_case("gate of the caller", 2, 130, 4, 4, 64, 64, gate=None, sigmoid=False)
    kda_gradient_case("grouped heads, 2 of 8", 2, 100, 2, 8, 128, 128)
    kda_gradient_case("packed sequences", 1, 400, 4, 4, 128, 128, cu=[0, 15, 100, 100, 300, 400])
    kda_gradient_case("state [V, K], 128 x 64", 2, 100, 4, 4, 128, 64, v_first=True)
    kda_gradient_case("no state", 2, 257, 4, 4, 128, 128, state=False, only_o=True)


@check(on_gpu_only=True)
def kda_states():
    """States before every 64 tokens are final states of the tokens before."""
    B, T, H, D = 2, 150, 2, 64
    (q, k, v, g), beta = (randn(B, T, H, D) for _ in range(4)), randn(B, T, H)
    named = dict(output_final_state=True, use_qk_l2norm_in_kernel=True, use_gate_in_kernel=True, use_beta_sigmoid_in_kernel=True,
                 lower_bound=-5.0)
    with torch.no_grad():
        _, _, h = tkc.kda.chunk_kda(q, k, v, g, beta, return_intermediate_states=True, **named)
        s = tkc.kda.chunk_kda(q[:, :128], k[:, :128], v[:, :128], g[:, :128], beta[:, :128], **named)[1]
        report("kda states: shape", h.shape == (B, 3, H, D, D) and h.dtype == q.dtype)
        rms("kda states: after 128 tokens", h[:, 2], s, 3e-3)
        report("kda states: of the start", bool((h[:, 0] == 0).all()))
        cu = torch.tensor([0, 70, 70, 150], device="cuda")
        first = (t[:1] for t in (q, k, v, g, beta))
        _, _, h = tkc.kda.chunk_kda(*first, cu_seqlens=cu, return_intermediate_states=True, **named)
        s = tkc.kda.chunk_kda(q[:1, 70:134], k[:1, 70:134], v[:1, 70:134], g[:1, 70:134], beta[:1, 70:134], **named)[1]
        report("kda states: packed, shape", h.shape == (1, 4, H, D, D))
        rms("kda states: packed, second chunk of a sequence", h[:, 3], s, 3e-3)


@check(on_gpu_only=True)
def kda_slices():
    """T in slices, whose launches run side by side."""
    tkc.kda._functions.clear()
    before = tkc.kda._function
    tkc.kda._function = lambda program, params, device: before(program, (*params, ("SLICE", 64)), device)
    try:
        kda_case("in slices on two streams", 2, 300, 4, 4, 128, 128)
    finally:
        tkc.kda._function = before


@check(on_gpu_only=True)
def kda_graph():
    B, T, H, D = 1, 512, 8, 128
    (q, k, v, g), beta = (randn(B, T, H, D) for _ in range(4)), randn(B, T, H)
    A_log = torch.rand(H, device="cuda")
    cu = torch.tensor([0, 100, 512], device="cuda")
    named = dict(output_final_state=True, use_qk_l2norm_in_kernel=True, use_gate_in_kernel=True, use_beta_sigmoid_in_kernel=True,
                 lower_bound=-5.0, A_log=A_log, cu_seqlens=cu)
    with torch.no_grad():
        tkc.kda.chunk_kda(q, k, v, g, beta, **named)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            o, s = tkc.kda.chunk_kda(q, k, v, g, beta, **named)
        q.copy_(randn(B, T, H, D))
        cu.copy_(torch.tensor([0, 300, 512]))
        graph.replay()
        want = tkc.kda.chunk_kda(q, k, v, g, beta, **named)
    report("kda graph: same bits as a call", torch.equal(o, want[0]) and torch.equal(s, want[1]))


KDA = dict(use_qk_l2norm_in_kernel=True, use_gate_in_kernel=True, use_beta_sigmoid_in_kernel=True, lower_bound=-5.0)


def walled(*shape, dtype=torch.bfloat16):
    """Random values with NaN before and behind, in one allocation."""
    n = 1
    for d in shape:
        n *= d
    room = torch.full((n + 8192,), float("nan"), device=WHERE, dtype=dtype)
    inside = room[4096:4096 + n].view(*shape)
    inside.copy_(torch.randn(*shape, device=WHERE))
    return inside


@check(on_gpu_only=True)
def kda_bits():
    """Batches of copies, packed sequences and other tokens nearby change no bit; nor does NaN around every tensor."""
    T, H, HV, D = 150, 2, 4, 128
    q, k, v, g, beta = walled(1, T, H, D), walled(1, T, H, D), walled(1, T, HV, D), walled(1, T, HV, D), walled(1, T, HV)
    A_log, bias, s0 = walled(HV, dtype=torch.float32), walled(HV * D, dtype=torch.float32), walled(1, HV, D, D, dtype=torch.float32)
    inputs, named = (q, k, v, g, beta), dict(A_log=A_log, dt_bias=bias, output_final_state=True, **KDA)
    do, ds = walled(1, T, HV, D), walled(1, HV, D, D, dtype=torch.float32)

    def run(tensors, s0, do, ds, **more):
        leaves = [t.detach().requires_grad_() for t in (*tensors, s0)]
        o, s = tkc.kda.chunk_kda(*leaves[:5], initial_state=leaves[5], **named, **more)
        return [o.detach(), s.detach(), *torch.autograd.grad([o, s], leaves, [do, ds])]

    names = ("o", "s", "dq", "dk", "dv", "dg", "dbeta", "dh0")
    one = run(inputs, s0, do, ds)
    report("kda bits: finite within walls of NaN", all(t.isfinite().all() for t in one))
    plain = run([t.clone() for t in inputs], s0.clone(), do.clone(), ds.clone())
    report("kda bits: the same without the walls", all(torch.equal(a, b) for a, b in zip(one, plain)))
    copies = run([t.repeat(3, *[1] * (t.dim() - 1)) for t in inputs], s0.repeat(3, 1, 1, 1), do.repeat(3, 1, 1, 1), ds.repeat(3, 1, 1, 1))
    report("kda bits: a batch of copies", all(torch.equal(c[b:b + 1], a) for a, c in zip(one, copies) for b in range(3)))
    lengths = [33, 0, 150, 16]
    ends = [sum(lengths[:i]) for i in range(len(lengths) + 1)]
    parts = [[t[:, :n] for t in inputs] for n in lengths]
    joined = run([torch.cat([p[i] for p in parts], 1) for i in range(5)], s0.repeat(4, 1, 1, 1),
                 torch.cat([do[:, :n] for n in lengths], 1), ds.repeat(4, 1, 1, 1), cu_seqlens=torch.tensor(ends, device="cuda"))
    at = slice(ends[2], ends[3])
    for n, a, j in zip(names, one, joined):
        report(f"kda bits: a packed sequence, {n}", torch.equal(j[2:3] if n in ("s", "dh0") else j[:, at], a))


@check(on_gpu_only=True)
def kda_adjoint():
    """<dy, J x> = <J^T dy, x> with J x by central differences of the recurrence in float64."""
    T, H, HV, D = 100, 2, 4, 128
    q, k, v, g, beta = randn(1, T, H, D), randn(1, T, H, D), randn(1, T, HV, D), randn(1, T, HV, D), randn(1, T, HV)
    A_log, bias, s0 = torch.rand(HV, device=WHERE), 0.5 * torch.randn(HV * D, device=WHERE), torch.randn(1, HV, D, D, device=WHERE)
    do, ds = randn(1, T, HV, D), torch.randn(1, HV, D, D, device=WHERE)
    leaves = [t.detach().requires_grad_() for t in (q, k, v, g, beta, A_log, bias, s0)]
    o, s = tkc.kda.chunk_kda(*leaves[:5], A_log=leaves[5], dt_bias=leaves[6], initial_state=leaves[7], output_final_state=True, **KDA)
    gradients = torch.autograd.grad([o, s], leaves, [do, ds])
    values = [t.detach().double() for t in leaves]

    def value(at):
        with torch.no_grad():
            o, s = recurrence(*at[:5], D**-0.5, at[7], None, True, "bounded", at[5], at[6], -5.0, True, False)
        return ((o * do.double()).sum() + (s * ds.double()).sum()).item()

    # Over random directions the mean square of the difference is that of the gradients' errors, weighted by the direction's size: the
    # limits of the elements (5e-3 of a tensor's rms, 7e-3 for g) bound it.
    sizes = [t.square().mean().sqrt() for t in values]
    limits = [7e-3 if i == 3 else 5e-3 for i in range(len(values))]
    bound = sum((limit * a.double().norm() * size).item()**2 for limit, a, size in zip(limits, gradients, sizes))
    squares, e, directions = 0.0, 1e-5, 64
    for _ in range(directions):
        x = [torch.randn_like(t) * size for t, size in zip(values, sizes)]
        forward = (value([a + e * b for a, b in zip(values, x)]) - value([a - e * b for a, b in zip(values, x)])) / (2 * e)
        squares += (forward - sum((a.double() * b).sum().item() for a, b in zip(gradients, x)))**2
    error = (squares / directions / bound)**0.5
    report(f"kda adjoint: {directions} directions", error <= 1, f"rms of <dy, J x> - <J^T dy, x>: {error:.2f} of what the limits allow")


@check(on_gpu_only=True)
def kda_large():
    """More than 2^31 elements a tensor: the last sequence equals the same tokens alone, to the bit."""
    sequences, each, H, D = 64, 8448, 32, 128
    T = sequences * each
    if torch.cuda.mem_get_info()[0] < 100 << 30:
        return print("skipped: kda_large needs 100 GB")
    make = lambda: torch.empty(1, T, H, D, device="cuda", dtype=torch.bfloat16).uniform_(-1, 1)
    q, k, v, g = make(), make(), make(), make()
    beta = torch.empty(1, T, H, device="cuda", dtype=torch.bfloat16).uniform_(-1, 1)
    cu = torch.arange(sequences + 1, device="cuda") * each
    named = dict(output_final_state=True, **KDA)
    with torch.no_grad():
        o, s = tkc.kda.chunk_kda(q, k, v, g, beta, cu_seqlens=cu, **named)
        for n in (0, sequences - 1):
            at = slice(n * each, (n + 1) * each)
            want = tkc.kda.chunk_kda(*(t[:, at].contiguous() for t in (q, k, v, g, beta)), **named)
            report(f"kda large: sequence {n} of {T * H * D / 2**31:.2f} x 2^31 elements",
                   torch.equal(o[:, at], want[0]) and torch.equal(s[n:n + 1], want[1]))
    del q, k, v, g, o, s, want
    tkc.kda._functions.clear()
    torch.cuda.empty_cache()


@check(on_gpu_only=True)
def errors():
    f = tkc.load(sample("gemm"), "gemm")
    a, b = randn(64, 32), randn(32, 64)

    def raises(name, kind, words, call):
        try:
            call()
        except kind as e:
            return report(f"error: {name}", all(w in str(e) for w in words), str(e).splitlines()[0])
        except Exception as e:
            return report(f"error: {name}", False, f"{type(e).__name__}: {e}")
        report(f"error: {name}", False, "no error")

    raises("dtype", TypeError, ["a", "f16", "bf16"], lambda: f(a.half(), b))
    raises("shape", ValueError, ["K", "32", "16"], lambda: f(a, b[:16]))
    raises("output shape", ValueError, ["c", "64", "32"], lambda: f(a, b, a))
    raises("stride", ValueError, ["b", "stride"], lambda: f(a, randn(64, 32).T))
    raises("host tensor", TypeError, ["b", "host"], lambda: f(a, b.cpu()))
    raises("missing", TypeError, ["b", "missing"], lambda: f(a))
    raises("workspace", ValueError, ["workspace", "1 bytes"],
           lambda: tkc.load(sample("split_gemm"))(randn(64, 8192), randn(8192, 64),
                                                  workspace=torch.empty(1, device="cuda", dtype=torch.uint8)))
    rms("a call after the errors", f(a, b), a.double() @ b.double(), 4e-3)


@check(on_gpu_only=True)
def overhead():
    def per_call(call, n=2000):
        for _ in range(50):
            call()
        torch.cuda.synchronize()
        best = float("inf")
        for _ in range(5):
            begin = time.perf_counter()
            for _ in range(n // 5):
                call()
            best = min(best, (time.perf_counter() - begin) / (n // 5))
            torch.cuda.synchronize()
        return best * 1e6

    f, g = tkc.load(sample("softmax")), tkc.load(sample("split_gemm"))
    x, a, b = randn(4, 1024), randn(64, 2048), randn(2048, 64)
    y, c = torch.empty_like(x), torch.empty(64, 64, device="cuda", dtype=torch.bfloat16)
    memory = torch.empty(g.workspace_bytes(a, b), device="cuda", dtype=torch.uint8)
    torch_us = per_call(lambda: torch.softmax(x, 1))
    for name, limit, call in [("softmax, output given", 30, lambda: f(x, y)), ("softmax, output allocated", 40, lambda: f(x)),
                              ("program of two kernels, all given", 50, lambda: g(a, b, c, workspace=memory)),
                              ("program of two kernels, all allocated", 60, lambda: g(a, b))]:
        us = per_call(call)
        report(f"overhead: {name}", us < limit, f"{us:.1f} us a call (torch.softmax {torch_us:.1f})")
    q, k, v, gate, beta = randn(1, 64, 4, 128), randn(1, 64, 4, 128), randn(1, 64, 4, 128), randn(1, 64, 4, 128), randn(1, 64, 4)
    A_log = torch.rand(4, device="cuda")
    with torch.no_grad():
        us = per_call(lambda: tkc.kda.chunk_kda(q, k, v, gate, beta, use_qk_l2norm_in_kernel=True, use_gate_in_kernel=True,
                                                use_beta_sigmoid_in_kernel=True, lower_bound=-5.0, A_log=A_log), 500)
    report("overhead: chunk_kda", us < 120, f"{us:.1f} us a call")


@check(on_gpu_only=True)
def first_call():
    begin = time.perf_counter()
    q = randn(1, 64, 4, 128)
    with torch.no_grad():
        tkc.kda.chunk_kda(q, q, q, q, randn(1, 64, 4), use_qk_l2norm_in_kernel=True, use_gate_in_kernel=True, allow_neg_eigval=True,
                          use_beta_sigmoid_in_kernel=True, lower_bound=-4.0, A_log=torch.rand(4, device="cuda"))
    torch.cuda.synchronize()
    seconds = time.perf_counter() - begin
    report("first call of a variant of chunk_kda", seconds < 5, f"{seconds:.2f} s with compilation and the driver's JIT")


@check(on_gpu_only=True)
def c_headers():
    program = os.path.join(ROOT, "build", "use_headers_sm_90")
    if not os.path.exists(program):
        return print("build/use_headers_sm_90 is not here: test/loader/build_headers builds it")
    done = subprocess.run([program], capture_output=True, text=True)
    failed = [line for line in done.stdout.splitlines() if "FAIL" in line]
    last = (done.stdout.splitlines() or [done.stderr])[-1]
    report("C headers: build/use_headers_sm_90", done.returncode == 0, "; ".join(failed[:3]) or last)


for function in checks:
    if options.only not in function.__name__:
        continue
    try:
        function()
    except Exception:
        report(function.__name__, False, traceback.format_exc())
if GPU:
    properties = torch.cuda.get_device_properties(0)
    print(f"{torch.cuda.get_device_name(0)}, sm_{properties.major}{properties.minor}, torch {torch.__version__}")
failed = [name for name, good in rows if not good]
print(f"{len(rows) - len(failed)} of {len(rows)} passed" + (f"; FAILED: {', '.join(failed)}" if failed else ""))
sys.exit(1 if failed or not rows else 0)
