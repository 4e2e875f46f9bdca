"""Kimi Delta Attention on torch tensors, with the argument names of flash-linear-attention."""
import os
import sys

from .function import load

_FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "kda.tk")
_functions = {}
_EVERY = 1024  # tokens from one state that the backward pass is given to the next: EVERY of the programs


def _function(program, params, device):
    key = (program, params, device)
    if key not in _functions:
        _functions[key] = load(_FILE, program, params=dict(params), device=device)
    return _functions[key]


def _forward(params, device, q, k, v, g, beta, a_log, dt_bias, cu, s0, scale, bound, hs=None, states=None):
    torch = sys.modules["torch"]
    B, T, _, K = q.shape
    HV, V = v.shape[2], v.shape[3]
    N = B if cu is None else cu.shape[0] - 1
    state = (N, HV, V, K) if dict(params)["v_first"] else (N, HV, K, V)
    o = torch.empty(B, T, HV, V, dtype=v.dtype, device=v.device)
    s = torch.empty(state, dtype=torch.float32 if s0 is None else s0.dtype, device=v.device)
    _function("kda_forward", params, device)(q, k, v, g, beta, a_log, dt_bias, cu, s0, o, s, scale, bound, hs, states)
    return o, s


def _chunk_states(hs, B, T, cu, chunk, v_first, dtype):
    """States before every `chunk` tokens of each sequence, [B, NT, HV, K, V], from those before every 16, by slot."""
    torch = sys.modules["torch"]
    step, of_row = chunk // 16, -(-T // 16)
    if cu is None:
        h = hs.view(hs.shape[0], B, of_row, *hs.shape[2:])[:, :, ::step].permute(1, 2, 0, 3, 4)
    else:
        at = [begin // 16 + n + c for n, (begin, end) in enumerate(zip(cu[:-1], cu[1:])) for c in range(0, -(-(end - begin) // 16), step)]
        h = hs[:, torch.tensor(at, device=hs.device, dtype=torch.int64)].transpose(0, 1)[None]
    return (h.transpose(3, 4) if v_first else h).to(dtype)


def _backward(params, device, q, k, v, g, beta, a_log, dt_bias, cu, s0, do, ds, scale, bound, states=None):
    """Gradients of q, k, v, g, beta, a_log, dt_bias and s0; of an absent one None."""
    torch = sys.modules["torch"]
    like = lambda x: None if x is None else torch.empty(x.shape, dtype=x.dtype, device=x.device)
    out = [like(x) for x in (q, k, v, g, beta, a_log, dt_bias, s0)]
    n = q.shape[0] if cu is None else cu.shape[0] - 1
    s1, s2 = (v.shape[3], q.shape[3]) if dict(params)["v_first"] else (q.shape[3], v.shape[3])
    params += (("GROUPED", v.shape[2] != q.shape[2]),)
    _function("kda_backward", params, device)(q, k, v, g, beta, a_log, dt_bias, cu, s0, _rows(do), None if ds is None else _rows(ds), *out,
                                              scale, bound, states, N=n, S1=s1, S2=s2)
    return out


def _autograd():
    """The operator as torch.autograd.Function. For the backward pass inputs are kept, and of long rows a state of each head every
    _EVERY tokens; it makes everything else again."""
    torch = sys.modules["torch"]

    class ChunkKda(torch.autograd.Function):
        @staticmethod
        def forward(ctx, params, device, scale, bound, cu, q, k, v, g, beta, a_log, dt_bias, s0):
            (B, T, _, K), (HV, V) = q.shape, v.shape[2:]
            states = None
            if T > _EVERY:
                states = torch.empty(-(-T // _EVERY) - 1, B, HV, K, V, dtype=torch.float32, device=v.device)
            ctx.save_for_backward(cu, q, k, v, g, beta, a_log, dt_bias, s0, states)
            ctx.rest = params, device, scale, bound
            ctx.set_materialize_grads(False)
            return _forward(params, device, q, k, v, g, beta, a_log, dt_bias, cu, s0, scale, bound, states=states)

        @staticmethod
        def backward(ctx, do, ds):
            params, device, scale, bound = ctx.rest
            cu, q, k, v, g, beta, a_log, dt_bias, s0, states = ctx.saved_tensors
            if do is None and ds is None:
                return (None,) * 13
            if do is None:
                do = torch.zeros(v.shape, dtype=q.dtype, device=v.device)
            if ds is not None and s0 is not None:
                ds = ds.to(s0.dtype)
            return (None,) * 5 + tuple(_backward(params, device, q, k, v, g, beta, a_log, dt_bias, cu, s0, do.to(q.dtype), ds, scale, bound,
                                                 states))

    return ChunkKda


def _rows(x):
    """The kernels want the last dim dense; all other strides are free."""
    return x if x is None or x.stride(-1) == 1 or x.shape[-1] <= 1 else x.contiguous()


def chunk_kda(q, k, v, g, beta, scale=None, initial_state=None, output_final_state=False, use_qk_l2norm_in_kernel=False,
              use_gate_in_kernel=False, use_beta_sigmoid_in_kernel=False, allow_neg_eigval=False, safe_gate=False,
              lower_bound=None, disable_recompute=False, return_intermediate_states=False, state_v_first=False, cu_seqlens=None,
              cu_seqlens_cpu=None, cp_context=None, **kwargs):
    """(o, final state or None), with gradients for autograd.

    q, k [B, T, H, K], v [B, T, HV, V], g [B, T, HV, K] (log decay, at most 0; or what the gate is computed from), beta
    [B, T, HV]; initial_state [N, HV, K, V], or [N, HV, V, K] with state_v_first. Views of larger tensors are taken as they
    are if their last dim is dense. cu_seqlens [N + 1]: sequences packed into one row. In kwargs: A_log [HV] and dt_bias
    [HV * K] of the gate in the kernel, chunk_size (32 or 64; results do not depend on it here), transpose_state_layout (the
    old name of state_v_first), device ("emu" or "interp" for tensors of the CPU, as of tkc.load).

    Results have the dtypes of v and of the initial state (float32 without one). safe_gate without the gate in the kernel is
    the caller's promise that g lies in [-5, 0]: another, faster kernel is taken. No synchronisation; after the first call
    with some shapes nothing but torch's allocator is used, so a call can be captured in a CUDA graph.

    With return_intermediate_states, without autograd only, also the states before every chunk_size tokens of each sequence,
    [B, NT, HV, K, V] in q's dtype; with cu_seqlens this reads the offsets on the host.
    """
    torch = sys.modules["torch"]
    A_log, dt_bias = kwargs.pop("A_log", None), kwargs.pop("dt_bias", None)
    chunk_size = kwargs.pop("chunk_size", 64)
    transposed = kwargs.pop("transpose_state_layout", None)
    device = kwargs.pop("device", None)
    if kwargs:
        raise TypeError(f"chunk_kda has no argument `{next(iter(kwargs))}`")
    if transposed is not None:
        if state_v_first:
            raise ValueError("state_v_first and transpose_state_layout are the same: give one of them")
        state_v_first = transposed
    if chunk_size not in (32, 64):
        raise ValueError(f"`chunk_size` must be either 32 or 64, not {chunk_size}")
    if return_intermediate_states and torch.is_grad_enabled():
        raise ValueError("return_intermediate_states is for inference: under torch.no_grad() or torch.inference_mode()")
    if cp_context is not None:
        raise NotImplementedError("cp_context")
    if q.ndim != 4 or v.ndim != 4:
        raise ValueError(f"q, k, v: [B, T, H, D] is wanted, not {list(q.shape)}, {list(k.shape)}, {list(v.shape)}")
    if g.ndim != 4:
        raise ValueError(f"g: [B, T, HV, K] is wanted, not {list(g.shape)}")
    B, T, H, K = q.shape
    HV, V = v.shape[2], v.shape[3]
    if HV % H:
        raise ValueError(f"{HV} value heads are no multiple of {H} heads")
    N = B
    if cu_seqlens is not None:
        if B != 1:
            raise ValueError(f"packed sequences (cu_seqlens) are one row, not {B}")
        N = cu_seqlens.shape[0] - 1

    gate, wide_range, bound = "given", not safe_gate, 0.0
    if use_gate_in_kernel:
        if lower_bound is None:
            if A_log is None:
                raise ValueError("use_gate_in_kernel without lower_bound needs A_log")
            if safe_gate:
                raise ValueError("safe_gate with use_gate_in_kernel needs a lower_bound in [-5, 0)")
            gate, wide_range = "softplus", True
        else:
            if safe_gate and not -5 <= lower_bound < 0:
                raise ValueError(f"safe_gate needs a lower_bound in [-5, 0), not {lower_bound}")
            gate, wide_range, bound = "bounded", lower_bound < -5, float(lower_bound)
    else:
        A_log = dt_bias = None
    if allow_neg_eigval and not use_beta_sigmoid_in_kernel:
        raise ValueError("allow_neg_eigval needs use_beta_sigmoid_in_kernel")
    if A_log is not None:
        A_log = A_log.reshape(HV).float()
    if dt_bias is not None:
        dt_bias = dt_bias.reshape(HV, K).float()

    state = (N, HV, V, K) if state_v_first else (N, HV, K, V)
    if initial_state is not None and tuple(initial_state.shape) != state:
        raise ValueError(f"initial_state: shape {list(initial_state.shape)}, {list(state)} is wanted")
    params = (("gate", gate), ("l2norm", bool(use_qk_l2norm_in_kernel)), ("beta_sigmoid", bool(use_beta_sigmoid_in_kernel)),
              ("neg_eigval", bool(allow_neg_eigval)), ("wide_range", wide_range), ("v_first", bool(state_v_first)))
    tensors = tuple(map(_rows, (q, k, v, g, beta))) + (A_log, dt_bias, _rows(initial_state))
    scale = K**-0.5 if scale is None else float(scale)
    if return_intermediate_states:
        hs = torch.empty(HV, B * -(-T // 16) + N - B, K, V, dtype=torch.float32, device=v.device)
        o, s = _forward(params, device, *tensors[:7], cu_seqlens, tensors[7], scale, bound, hs)
        cu = None if cu_seqlens is None else (cu_seqlens if cu_seqlens_cpu is None else cu_seqlens_cpu).tolist()
        return o, (s if output_final_state else None), _chunk_states(hs, B, T, cu, chunk_size, state_v_first, q.dtype)
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors):
        if "autograd" not in _functions:
            _functions["autograd"] = _autograd()
        o, s = _functions["autograd"].apply(params, device, scale, bound, cu_seqlens, *tensors)
    else:
        o, s = _forward(params, device, *tensors[:7], cu_seqlens, tensors[7], scale, bound)
    return o, (s if output_final_state else None)
