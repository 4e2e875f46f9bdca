"""load() and what it returns: a kernel or program that is called with tensors."""
import json
import os
import sys
import tempfile
import threading

from . import arrays, compiler, dtypes
from .arrays import HostTensor, describe
from .plan import Planner


MOST_PLANS = 1024  # of a function: calls of ever new shapes do not fill the memory


class Argument:
    """A parameter of the source: kind "tensor" or "scalar"."""

    def __init__(self, name, kind, dtype=None, dtype_of=None, mode="in", optional=False, dims=()):
        self.name, self.kind, self.dtype, self.dtype_of = name, kind, dtype, dtype_of
        self.mode, self.optional, self.dims = mode, optional, dims


def _check_format(manifest):
    if manifest.get("format") != "tkc-kernels" or manifest.get("version") != 1:
        raise ValueError("this is no JSON of tkc that this loader knows")


class Instance:
    """One JSON: every compile-time parameter has a value. Loaded on each device once."""

    def __init__(self, manifest, kernel):
        _check_format(manifest)
        self.manifest = manifest
        found = [e for e in manifest.get("programs", []) + manifest["kernels"] if e["name"] == kernel]
        if not found:
            raise ValueError(f"the JSON of {manifest['source']} has no kernel or program `{kernel}`")
        self.entry = found[0]
        self.modules = {}

    def module(self, device):
        from .gpu import Module
        if device not in self.modules:
            self.modules[device] = Module(self.manifest, device)
        return self.modules[device]


class Function:
    """A kernel or program. Called with tensors and scalars in the order of the source, or by name.

    An optional tensor, input or output, is left out or None. Other outputs that are not given are allocated (by torch's allocator on its current
    stream; on the CPU as what the inputs are: torch tensors, NumPy arrays, HostTensors) and returned: one, or a tuple of
    them in order; None if all were given. Sizes that no tensor says are passed by name.

    stream: a torch stream or a handle; default: torch's current one. workspace: memory for the temporaries of a program, a
    torch tensor of at least workspace_bytes(...) bytes; default: torch's allocator. Once its shapes are known a call neither
    waits nor allocates otherwise: call it once, or prepare(...) it, before capturing a CUDA graph."""

    def __init__(self, name, arguments, constants, instances, params, device):
        self.name, self.arguments, self.constants = name, arguments, constants
        self.params, self.device = params, device
        self._instances = instances  # (arch, params, absent) -> Instance
        self._plans, self._lock = {}, threading.Lock()
        self._index = {a.name: i for i, a in enumerate(arguments)}
        self._tensor_at = [i for i, a in enumerate(arguments) if a.kind == "tensor"]
        self._scalar_at = [i for i, a in enumerate(arguments) if a.kind == "scalar"]
        # Floating-point scalars are passed on; all others may decide what is launched.
        self._keyed_at = [i for i in self._scalar_at if arguments[i].dtype in dtypes.INTEGERS]

    # ---- calls

    def __call__(self, *args, stream=None, workspace=None, **named):
        if not named and len(args) == len(self.arguments):
            values, sizes = list(args), ()
        else:
            values, sizes = self._bind(args, named)
        if self.device:
            return self._run_on_host(values, dict(sizes))
        prepared, key_error = None, None
        try:
            prepared = self._plans.get(self._key(values, sizes))
        except (TypeError, AttributeError) as e:  # something that is no torch tensor
            key_error = e
        if prepared is None:
            prepared = self._prepare(values, sizes, key_error)
        return self._launch(prepared, values, stream, workspace)

    def prepare(self, *args, **named):
        """Compiles, loads and plans for such arguments, and launches nothing."""
        values, sizes = self._bind(args, named)
        self._prepare(values, sizes, None)

    def workspace_bytes(self, *args, **named):
        """Of a call with such arguments."""
        values, sizes = self._bind(args, named)
        return self._prepare(values, sizes, None).plan.workspace

    def _bind(self, args, named):
        if len(args) > len(self.arguments):
            raise TypeError(f"`{self.name}` takes {len(self.arguments)} arguments, {len(args)} are given")
        values = list(args) + [None] * (len(self.arguments) - len(args))
        sizes = []
        for name, v in named.items():
            if name in ("stream", "workspace"):
                continue
            i = self._index.get(name)
            if i is None:
                if not isinstance(v, int):
                    raise TypeError(f"`{self.name}` has no argument `{name}`: {', '.join(self._index)}")
                sizes.append((name, v))
            elif i < len(args):
                raise TypeError(f"`{self.name}`: {name} is given twice")
            else:
                values[i] = v
        return values, tuple(sizes)

    def _key(self, values, sizes):
        """Of torch tensors: what a plan depends on."""
        key = [None if v is None else (v.dtype, v.shape, v.stride(), v.get_device()) for v in map(values.__getitem__, self._tensor_at)]
        if self._keyed_at:
            key += [values[i] for i in self._keyed_at]
        return (*key, *sizes)

    def _slow_key(self, described, values, sizes):
        tensors = (described.get(self.arguments[i].name) for i in self._tensor_at)
        key = [d and (d.dtype, d.shape, d.strides, d.device) for d in tensors]
        return (*key, *[values[i] for i in self._keyed_at], *sizes)

    def _launch(self, prepared, values, stream, workspace):
        made = None
        if prepared.allocate:
            made = []
            for i, shape, dtype in prepared.allocate:
                values[i] = prepared.torch.empty(shape, dtype=dtype, device=prepared.torch_device)
                made.append(values[i])
        for i in self._scalar_at:
            if not isinstance(values[i], (int, float)):
                values[i] = self._number(self.arguments[i], values[i])
        for i in self._tensor_at:
            v = values[i]
            if v is not None:
                values[i] = v.data_ptr() if prepared.torch else describe(self.arguments[i].name, v).address
        plan, memory = prepared.plan, None
        if plan.workspace:
            address, memory = self._workspace(prepared, workspace)
            values.append(address)
        if stream is None:
            stream = prepared.raw_stream(prepared.device) if prepared.torch else 0
        elif not isinstance(stream, int):
            stream = stream.cuda_stream
        plan.run(values, stream)
        del memory  # what is queued on the stream after this may have it, not before
        if made is None:
            return None
        return made[0] if len(made) == 1 else tuple(made)

    def _workspace(self, prepared, given):
        need = prepared.plan.workspace
        if given is None:
            if not prepared.torch:
                raise ValueError(f"`{self.name}` needs workspace=..., {need} bytes")
            memory = prepared.torch.empty(need, dtype=prepared.torch.uint8, device=prepared.torch_device)
            return memory.data_ptr(), memory
        d = describe("workspace", given)
        have = dtypes.size(d.dtype)
        for n in d.shape:
            have *= n
        if have < need:
            raise ValueError(f"workspace: {have} bytes, `{self.name}` needs {need} for these shapes")
        if d.address % 256:
            raise ValueError("workspace: the address is not a multiple of 256")
        if d.device != prepared.device:
            raise ValueError(f"workspace: on device {d.device}, the tensors are on GPU {prepared.device}")
        return d.address, given

    # ---- planning

    def _describe(self, values):
        out = {}
        for a, v in zip(self.arguments, values):
            if a.kind == "tensor":
                if v is not None:
                    out[a.name] = describe(a.name, v)
                elif not a.optional and a.mode != "out":
                    raise TypeError(f"`{self.name}`: {a.name} is missing")
            elif v is None:
                raise TypeError(f"`{self.name}`: {a.name} is missing")
        return out

    @staticmethod
    def _number(a, v):
        try:
            if a.dtype in dtypes.INTEGERS:
                if isinstance(v, float):
                    raise TypeError
                v = int(v)
                dtypes.check_integer(a.dtype, a.name, v)
                return v
            return float(v)
        except TypeError:
            raise TypeError(f"{a.name}: a number of type {a.dtype} is wanted, not {type(v).__name__}") from None

    def _deduce(self, described):
        """Compile-time parameters from shapes and dtypes."""
        params, said = dict(self.params), {n: "params" for n in self.params}
        def say(name, v, by, error):
            if str(params.setdefault(name, v)) != str(v):
                raise error(f"{name} is {params[name]} by {said[name]}, and {v} by {by}")
            said.setdefault(name, by)
        for a in self.arguments:
            d = described.get(a.name)
            if d is None or a.kind != "tensor":
                continue
            if a.dims is not None and len(d.shape) != len(a.dims):
                raise ValueError(f"{a.name}: {len(d.shape)} dims of shape {list(d.shape)}, `{self.name}` wants {len(a.dims)}")
            for i, dim in enumerate(a.dims or ()):
                if "constant" in dim:
                    say(dim["constant"], d.shape[i], f"dim {i} of {a.name}", ValueError)
            if a.dtype_of:
                given = d.dtype
                if a.dtype_of in params and dtypes.accepts(str(params[a.dtype_of]), given):
                    given = params[a.dtype_of]  # tf32 in the memory of f32
                say(a.dtype_of, given, f"the dtype of {a.name}", TypeError)
        return params

    def _instance(self, described, arch):
        params = self._deduce(described)
        absent = tuple(a.name for a in self.arguments if a.optional and a.name not in described)
        return self._instances(arch, params, absent)

    def _plan(self, instance, described, values, sizes, facts):
        """Checks everything; the plan and what must be allocated."""
        entry = instance.entry
        scalars = {a.name: v for a, v in zip(self.arguments, values) if a.kind == "scalar"}
        given = {n: (d.dtype, d.shape, d.strides) for n, d in described.items()}
        allocate = []
        names = None
        for t in entry["tensors"]:
            name = t["name"]
            if name in described:
                if not t["present"]:
                    raise ValueError(f"{name}: this variant of `{self.name}` has no {name}: pass None")
                if not dtypes.accepts(t["dtype"], described[name].dtype):
                    raise TypeError(f"{name}: dtype {described[name].dtype}, `{self.name}` wants {t['dtype']}")
            elif t["present"] and t["mode"] != "out":
                raise TypeError(f"`{self.name}`: {name} is missing")
            elif t["present"]:
                if names is None:
                    from .plan import bind_sizes
                    names = bind_sizes(f"`{self.name}`", entry["tensors"], {n: d.shape for n, d in described.items()}, dict(sizes))
                    names.update({n: v for n, v in scalars.items() if isinstance(v, int)})
                from .plan import value
                shape = tuple(value(f"`{self.name}`: the shape of {name}, which is not given", e, names) for e in t["dims"])
                given[name] = (t["dtype"], shape, arrays.dense_strides(shape))
                allocate.append((self._index[name], shape, t["dtype"]))
        unknown = [n for n, _ in sizes if n not in entry["sizes"]]
        if unknown:
            raise TypeError(f"`{self.name}` has no argument or size `{unknown[0]}`")
        return Planner(instance.manifest, entry, given, scalars, dict(sizes), facts).run(), allocate

    def _check_scalars(self, values):
        for i, a in enumerate(self.arguments):
            if a.kind == "scalar" and values[i] is not None:
                values[i] = self._number(a, values[i])

    def _prepare(self, values, sizes, key_error):
        described = self._describe(values)
        self._check_scalars(values)
        devices = {d.device: n for n, d in described.items()}
        if "host" in devices:
            raise TypeError(f"{devices['host']} is in host memory: pass a tensor of a GPU, or load with device=\"emu\" or "
                            "\"interp\" to run on the CPU")
        if len(devices) > 1:
            (a, x), (b, y) = list(devices.items())[:2]
            raise ValueError(f"{x} is on GPU {a}, {y} on GPU {b}")
        if not devices:
            raise TypeError(f"`{self.name}`: no tensor is given")
        all_torch = all(arrays.is_torch(values[i]) for i in self._tensor_at if values[i] is not None)
        key = self._key(values, sizes) if all_torch and key_error is None else self._slow_key(described, values, sizes)
        with self._lock:
            if key not in self._plans:
                if len(self._plans) >= MOST_PLANS:
                    self._plans.clear()
                self._plans[key] = self._make(described, values, sizes, next(iter(devices)), all_torch)
            return self._plans[key]

    def _make(self, described, values, sizes, device, all_torch):
        from .driver import driver
        from .gpu import PreparedPlan
        facts = driver().facts(device)
        instance = self._instance(described, f"sm_{facts['arch']}")
        plan, allocate = self._plan(instance, described, values, sizes, facts)
        if allocate and not all_torch:
            raise TypeError(f"{self.arguments[allocate[0][0]].name}: outputs are allocated for torch tensors only")
        for name, d in described.items():
            if d.address % dtypes.size(d.dtype) and all(d.shape):
                raise ValueError(f"{name}: the address {d.address:#x} is not a multiple of the {dtypes.size(d.dtype)} bytes of {d.dtype}")
        module = instance.module(device)
        out = _Prepared()
        out.plan, out.device = PreparedPlan(module, plan, self._index), device
        out.torch = sys.modules.get("torch") if all_torch else None
        out.raw_stream, out.torch_device = None, None
        if all_torch:
            out.torch_device = out.torch.device("cuda", device)
            raw = getattr(out.torch._C, "_cuda_getCurrentRawStream", None)
            out.raw_stream = raw or (lambda d: sys.modules["torch"].cuda.current_stream(d).cuda_stream)
        out.allocate = [(i, shape, arrays.torch_dtype(dtype)) for i, shape, dtype in allocate]
        return out

    # ---- on the CPU, through the program

    def _run_on_host(self, values, sizes):
        described = self._describe(values)
        self._check_scalars(values)
        wrong = [n for n, d in described.items() if d.device != "host"]
        if wrong:
            raise TypeError(f"{wrong[0]} is on a GPU, and `{self.name}` was loaded with device=\"{self.device}\"")
        instance = self._instance(described, self.arch or "sm_120")
        if not self.file:
            raise ValueError(f"device=\"{self.device}\" needs the .tk file of `{self.name}`")
        facts = {"sms": 0, "l2_bytes": 0, "smem": 0, "arch": 0}  # tkc plans for itself: here are the checks
        scalars = {a.name: v for a, v in zip(self.arguments, values) if a.kind == "scalar"}
        given = {n: (d.dtype, d.shape, d.strides) for n, d in described.items()}
        types = {t["name"]: t["dtype"] for t in instance.entry["tensors"]}
        if "steps" not in instance.entry:
            self._plan(instance, described, values, tuple(sizes.items()), facts)
        else:
            for n, (dtype, _, _) in given.items():
                if not dtypes.accepts(types[n], dtype):
                    raise TypeError(f"{n}: dtype {dtype}, `{self.name}` wants {types[n]}")
        from .plan import bind_sizes
        names = bind_sizes(f"`{self.name}`", instance.entry["tensors"], {n: g[1] for n, g in given.items()}, sizes)
        with tempfile.TemporaryDirectory() as folder:
            words = ["run", self.file, "-k", self.name, "--device", self.device, "--arch", self.arch or "sm_120"]
            words += compiler.settings(self._deduce(described), ())
            inputs, outputs = {}, []
            for a, v in zip(self.arguments, values):
                if a.kind == "scalar":
                    words += ["--scalar", f"{a.name}={compiler.setting(v) if not isinstance(v, float) else repr(v)}"]
                    continue
                if v is not None and a.mode != "out":
                    inputs[a.name] = arrays.to_host(v, types[a.name])
                    words += ["--input", f"{a.name}={folder}/in.safetensors:{a.name}"]
                if a.mode != "in" and (v is not None or not a.optional):
                    outputs.append((a, v))
                    words += ["--output", f"{a.name}={folder}/{a.name}.safetensors"]
            constants = {c["name"] for c in self.constants}
            for name in instance.entry["sizes"]:
                if name in names and name not in constants:
                    words += ["--size", f"{name}={names[name]}"]
            arrays.write_safetensors(f"{folder}/in.safetensors", inputs)
            compiler.run(words)
            made = []
            for a, v in outputs:
                result = next(iter(arrays.read_safetensors(f"{folder}/{a.name}.safetensors").values()))
                result.dtype = types[a.name]
                if v is None:
                    made.append(self._like(result, values))
                elif result.shape != described[a.name].shape:
                    raise ValueError(f"{a.name}: shape {list(described[a.name].shape)}, `{self.name}` gives {list(result.shape)}")
                else:
                    arrays.from_host(result, v)
        return None if not made else made[0] if len(made) == 1 else tuple(made)

    @staticmethod
    def _like(result, values):
        """torch for torch, NumPy for NumPy, where it has the type."""
        if any(arrays.is_torch(v) for v in values):
            torch = sys.modules["torch"]
            out = torch.empty(result.shape, dtype=arrays.torch_dtype(result.dtype))
            arrays.from_host(result, out)
            return out
        numpy = any(hasattr(v, "__array_interface__") for v in values)
        name = dtypes.TABLE[result.dtype][1]
        return result.numpy() if numpy and name and not name.startswith(("bfloat", "float8")) else result


class _Prepared:
    __slots__ = ("plan", "device", "torch", "torch_device", "raw_stream", "allocate")


_cache, _cache_lock = {}, threading.Lock()


def load(file, kernel=None, *, arch=None, params=None, device=None):
    """A kernel or program of a .tk file, or of a .json file that `tkc compile --emit ptx,json` wrote.

    kernel: its name; default: the only one, or the one that has the name of the file.
    arch: the target; default: that of the GPU that the tensors are on, sm_120 on the CPU.
    params: values of compile-time parameters. Those that are extents or dtypes of arguments are found from them; others have
        defaults.
    device: None launches on the GPU that the tensors are on; "emu" and "interp" run NumPy arrays, HostTensors and torch
        tensors of the CPU through `tkc run`, in the PTX emulator and the interpreter.
    """
    if device not in (None, "emu", "interp"):
        raise ValueError(f"device: \"emu\", \"interp\" or None, not {device!r}")
    file = os.path.abspath(os.fspath(file))
    params = dict(params or {})
    if file.endswith(".json"):
        out = _prebuilt(file, kernel, params, device)
    else:
        out = _source(file, kernel, arch, params, device)
    out.file, out.arch = (None if file.endswith(".json") else file), arch
    return out


def _choose(file, entries):
    named = [e for e in entries if e["name"] == os.path.splitext(os.path.basename(file))[0]]
    if len(entries) == 1 or named:
        return (named or entries)[0]
    raise ValueError(f"{file} has {', '.join(e['name'] for e in entries)}: choose one by kernel=...")


def _source(file, kernel, arch, params, device):
    stamp = os.stat(file).st_mtime_ns
    entries = compiler.signatures(file, kernel)
    entry = _choose(file, entries)
    arguments = []
    constants = {c["name"] for c in entry["constants"]}
    unknown = [n for n in params if n not in constants]
    if unknown:
        raise ValueError(f"`{entry['name']}` has no compile-time parameter `{unknown[0]}`: {', '.join(sorted(constants))}")
    for a in entry["arguments"]:
        arguments.append(Argument(a["name"], a["kind"], a.get("dtype"), a.get("dtypeOf"), a.get("mode", "in"),
                                  a.get("optional", False), a.get("dims", ())))

    def instances(target, values, absent):
        key = (file, stamp, entry["name"], arch or target, tuple(sorted((n, str(v)) for n, v in values.items())), absent)
        with _cache_lock:
            if key not in _cache:
                _cache[key] = Instance(compiler.compile_json(file, entry["name"], arch or target, values, absent), entry["name"])
            return _cache[key]

    return Function(entry["name"], arguments, entry["constants"], instances, params, device)


def _prebuilt(file, kernel, params, device):
    with open(file, encoding="utf-8") as f:
        manifest = json.load(f)
    _check_format(manifest)
    if "text" not in manifest["ptx"]:
        with open(os.path.join(os.path.dirname(file), manifest["ptx"]["file"]), encoding="utf-8") as f:
            manifest["ptx"]["text"] = f.read()
    instance = Instance(manifest, kernel or _choose(file, manifest.get("programs", []) + manifest["kernels"])["name"])
    entry = instance.entry
    if params:
        raise ValueError(f"{file} is compiled already: params cannot be chosen")
    tensors = {t["name"]: t for t in entry["tensors"]}
    scalars = {s["name"]: s["dtype"] for s in entry.get("scalars", [])}
    scalars.update({p["name"]: p["dtype"] for p in entry.get("params", []) if p["kind"] == "scalar"})
    arguments = []
    for name in entry["arguments"]:
        t = tensors.get(name)
        if t:
            arguments.append(Argument(name, "tensor", t["dtype"], None, t["mode"], t["optional"], None))
        else:
            arguments.append(Argument(name, "scalar", scalars[name]))
    return Function(entry["name"], arguments, [], lambda *_: instance, {}, device)
