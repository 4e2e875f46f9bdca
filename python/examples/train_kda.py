"""Trains a small model with one KDA layer on synthetic recall, with tkc's kernels or with fla's.

    python3 python/examples/train_kda.py --steps 1000                # tkc
    python3 python/examples/train_kda.py --steps 1000 --impl fla     # the twin: same weights, same data

The task: pairs of a key and a value token, then keys again; at each of these the value must be said. Prints the loss as it goes, and at the
end one line of JSON: the mean loss of the last 50 steps, milliseconds a step, kernels launched in a step, the share of the time in which the
GPU had nothing to run; for tkc the same with the whole step captured as one CUDA graph.
"""
import argparse
import json
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import torch
import torch.nn as nn
import torch.nn.functional as F

options = argparse.ArgumentParser()
options.add_argument("--impl", choices=["tkc", "fla"], default="tkc")
options.add_argument("--steps", type=int, default=1000)
options.add_argument("--batch", type=int, default=8)
options.add_argument("--tokens", type=int, default=1024)
options.add_argument("--heads", type=int, default=4)
options.add_argument("--pairs", type=int, default=64)
options = options.parse_args()

if options.impl == "tkc":
    from tkc.kda import chunk_kda
else:
    from fla.ops.kda import chunk_kda

D, KEYS, VALUES = 128, 128, 128


class Layer(nn.Module):
    """Kimi Delta Attention with a convolution over 4 tokens in front, as in the model's layers."""

    def __init__(self, heads):
        super().__init__()
        self.heads, width = heads, heads * D
        self.norm = nn.RMSNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.conv = nn.Conv1d(3 * width, 3 * width, 4, groups=3 * width, padding=3)
        self.gate, self.beta = nn.Linear(width, width, bias=False), nn.Linear(width, heads, bias=False)
        self.A_log, self.dt_bias = nn.Parameter(torch.zeros(heads)), nn.Parameter(torch.full((width,), -4.0))
        self.out_gate, self.out_norm = nn.Linear(width, width, bias=False), nn.RMSNorm(D)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x):
        B, T, width = x.shape
        h = self.norm(x)
        mixed = F.silu(self.conv(self.qkv(h).transpose(1, 2))[:, :, :T].transpose(1, 2))
        q, k, v = (t.reshape(B, T, self.heads, D).to(torch.bfloat16) for t in mixed.split(width, -1))
        g = self.gate(h).view(B, T, self.heads, D).to(torch.bfloat16)
        beta = self.beta(h).to(torch.bfloat16)
        o, _ = chunk_kda(q, k, v, g, beta, use_qk_l2norm_in_kernel=True, use_gate_in_kernel=True, use_beta_sigmoid_in_kernel=True,
                         A_log=self.A_log, dt_bias=self.dt_bias, safe_gate=True, lower_bound=-5.0)
        o = self.out_norm(o.to(h.dtype)).reshape(B, T, width) * F.silu(self.out_gate(h))
        return x + self.out(o)


class Model(nn.Module):
    def __init__(self, heads):
        super().__init__()
        self.embed = nn.Embedding(KEYS + VALUES, heads * D)
        self.layer, self.norm = Layer(heads), nn.RMSNorm(heads * D)
        self.head = nn.Linear(heads * D, KEYS + VALUES, bias=False)

    def forward(self, tokens, targets):
        with torch.autocast("cuda", torch.bfloat16):
            logits = self.head(self.norm(self.layer(self.embed(tokens))))
        return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), ignore_index=-1)


def recall(batch, tokens, pairs, generator):
    """Keys in random order, each followed by its value; then questions, whose target is the value."""
    order = torch.rand(batch, KEYS, generator=generator).argsort(1)[:, :pairs]
    values = torch.randint(KEYS, KEYS + VALUES, (batch, pairs), generator=generator)
    said = torch.stack([order, values], 2).flatten(1)
    asked = torch.randint(0, pairs, (batch, (tokens - 2 * pairs) // 2), generator=generator)
    keys, answers = order.gather(1, asked), values.gather(1, asked)
    questions = torch.stack([keys, answers], 2).flatten(1)
    x = torch.cat([said, questions], 1)
    y = torch.full_like(x, -1)
    y[:, 2 * pairs::2] = answers
    return x.cuda(), y.cuda()


torch.manual_seed(1)
model = Model(options.heads).cuda()
optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01, capturable=True)
generator = torch.Generator().manual_seed(2)
x, y = recall(options.batch, options.tokens, options.pairs, generator)
losses = []


def step():
    optimiser.zero_grad(set_to_none=False)
    loss = model(x, y)
    loss.backward()
    optimiser.step()
    return loss


started = time.time()
for i in range(options.steps):
    for at, fresh in zip((x, y), recall(options.batch, options.tokens, options.pairs, generator)):
        at.copy_(fresh)
    losses.append(step().detach())
    if i % 100 == 99:
        print(f"step {i + 1}: loss {torch.stack(losses[-50:]).mean().item():.4f}, {time.time() - started:.1f} s", flush=True)


def timed(run, n=50):
    for _ in range(5):
        run()
    torch.cuda.synchronize()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(n):
        run()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / n


def kernels(run):
    """Launches in one run and the milliseconds that they take."""
    run()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        run()
        torch.cuda.synchronize()
    events = [e for e in profile.events() if e.device_type == torch.profiler.DeviceType.CUDA]
    return len(events), sum(e.device_time for e in events) / 1000


final = torch.stack(losses[-50:]).mean().item()
ms = timed(step)
launches, busy = kernels(step)
result = {"impl": options.impl, "steps": options.steps, "loss": final, "ms": ms, "launches": launches, "idle": max(0.0, 1 - busy / ms)}
if options.impl == "tkc":
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    result["graph_ms"] = timed(graph.replay)
    result["graph_idle"] = max(0.0, 1 - busy / result["graph_ms"])
print(json.dumps(result))
