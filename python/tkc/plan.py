"""From the JSON of an instance and the shapes of a call to a list of launches: what is checked and decided once for each
set of shapes. The form of the JSON is described in src/driver/manifest.h."""
import math

from . import dtypes, numbers
from .arrays import dense_strides
from .expressions import NoValue, evaluate, text

WORKSPACE_ALIGN = 256
MOST_LAUNCHES = 1 << 16


class Launch:
    """One launch: a kernel of the JSON, and for each of its tensors where the memory comes from.

    tensors: name -> (base, offset in bytes, shape, strides), base an argument's name, or None for the workspace
    scalars: name -> a number, the name of a scalar argument as (name,), or what numbers.settled() leaves for the call
    """
    __slots__ = ("kernel", "tensors", "scalars", "sizes", "blocks", "step")


class Plan:
    """launches in order; workspace: bytes; steps: launches of one step may run at the same time."""

    def __init__(self):
        self.launches, self.workspace, self.steps = [], 0, 0


def bind_sizes(where, tensors, given, sizes):
    """Sizes from the extents that are one; ValueError where two disagree. `tensors`: of the JSON; `given`: name -> shape."""
    names, said = dict(sizes), {name: "the caller" for name in sizes}
    for t in tensors:
        shape = given.get(t["name"])
        if shape is None or not t["present"]:
            continue
        if len(shape) != len(t["dims"]):
            raise ValueError(f"{t['name']}: {len(shape)} dims of shape {list(shape)}, {where} wants {len(t['dims'])}: "
                             f"[{', '.join(text(d) for d in t['dims'])}]")
        for d, (n, e) in enumerate(zip(shape, t["dims"])):
            if not isinstance(e, str):
                continue
            by = f"dim {d} of {t['name']}"
            if names.setdefault(e, n) != n:
                raise ValueError(f"{e} is {names[e]} by {said[e]}, and {n} by {by}")
            said.setdefault(e, by)
    return names


def check_tensors(where, tensors, described, names):
    """Extents and innermost strides against the JSON."""
    for t in tensors:
        a = described.get(t["name"])
        if a is None:
            continue
        shape, strides = a
        for d, e in enumerate(t["dims"]):
            want = value(where, e, names)
            if want != shape[d]:
                said = f"{text(e)} = " if not isinstance(e, int) else ""
                raise ValueError(f"{t['name']}: dim {d} is {shape[d]}, {where} wants {said}{want}")
            if not 0 <= want <= 0x7FFFFFFF:
                raise ValueError(f"{t['name']}: dim {d} is {want}, at most 2^31 - 1 is possible")
        if t["innerStride"] == 1 and shape and shape[-1] > 1 and strides[-1] != 1:
            raise ValueError(f"{t['name']}: the innermost stride is {strides[-1]}, {where} wants 1")


def check_facts(where, facts, names):
    for e in facts:
        if not value(where, e, names):
            values = ", ".join(f"{n} = {names[n]}" for n in sorted(_names(e)) if n in names)
            raise ValueError(f"{where}: `where {text(e)}` does not hold ({values})")


def value(where, e, names):
    try:
        return evaluate(e, names)
    except NoValue as why:
        raise ValueError(f"{where}: `{text(e)}` has no value: {why}") from None


def _names(e):
    if isinstance(e, str):
        return {e}
    return set().union(*map(_names, e[1:])) if isinstance(e, list) else set()


def settled_strides(shape, strides):
    """Strides of dims of one element, which mean nothing, become those of dense storage: alignment is then easy."""
    out, step = list(strides), 1
    for d in reversed(range(len(shape))):
        if shape[d] == 1:
            out[d] = step
        step = max(step, shape[d] * abs(out[d]))
    return tuple(out)


class Planner:
    def __init__(self, manifest, entry, arrays, scalars, sizes, facts):
        """arrays: name -> (dtype, shape, strides); scalars: name -> number; facts: of the device."""
        self.kernels = {k["name"]: k for k in manifest["kernels"]}
        self.entry, self.plan = entry, Plan()
        self.where = f"`{entry['name']}`"
        self.arrays = {n: (d, shape, settled_strides(shape, s)) for n, (d, shape, s) in arrays.items()}
        described = {n: (shape, s) for n, (_, shape, s) in self.arrays.items()}
        names = bind_sizes(self.where, entry["tensors"], {n: shape for n, (_, shape, _) in self.arrays.items()}, sizes)
        missing = [s for s in entry["sizes"] if s not in names]
        if missing:
            raise ValueError(f"{self.where}: no tensor says the size {missing[0]}; pass {missing[0]}=...")
        for name in entry["sizes"]:
            if not 0 <= names[name] <= 0x7FFFFFFF:
                raise ValueError(f"{self.where}: {name} is {names[name]}, 0 to 2^31 - 1 is possible")
        names.update({n: int(v) for n, v in scalars.items()
                      if isinstance(v, int)})
        names.update({f"device.{n}": v for n, v in facts.items()})
        self.names = names
        check_tensors(self.where, entry["tensors"], described, names)
        check_facts(self.where, entry["where"], names)

    def run(self):
        if "steps" in self.entry:
            self.temporaries = []  # of the plan: dtype, shape, bytes, first, last, offset
            self.latest = {}       # index in the JSON -> the latest in the list
            self.iterations = 0
            self.group = False
            self.steps(self.entry["steps"])
            self.place()
        else:
            launch = Launch()
            launch.kernel = self.entry
            launch.tensors = {n: (n, 0, shape, s) for n, (_, shape, s) in self.arrays.items()}
            launch.scalars = {p["name"]: (p["name"],) for p in self.entry["params"] if p["kind"] == "scalar"}
            launch.sizes = {s: self.names[s] for s in self.entry["sizes"]}
            self.queue(launch, self.names)
        return self.plan

    def steps(self, steps):
        for s in steps:
            if "launch" in s:
                self.launch(s)
            elif "alloc" in s:
                self.alloc(s["alloc"])
            elif "let" in s:
                self.names[s["let"]] = value(self.where, s["value"], self.names)
            elif "require" in s:
                check_facts(self.where, [s["require"]], self.names)
            elif "if" in s:
                self.steps(s["then"] if value(self.where, s["if"], self.names) else s["else"])
            elif "for" in s:
                self.loop(s)
            elif "parallel" in s:
                before = len(self.plan.launches)
                self.group = True
                self.steps(s["parallel"])
                self.group = False
                if len(self.plan.launches) > before:
                    self.plan.steps += 1
            else:
                raise ValueError(f"{self.where}: the step {sorted(s)} is unknown to this loader")

    def loop(self, s):
        lo, hi, by = (value(self.where, s[k], self.names) for k in ("from", "to", "by"))
        if by < 1:
            raise ValueError(f"{self.where}: the step of a loop is {by}")
        for i in range(lo, hi, by):
            self.names[s["for"]] = i
            self.steps(s["do"])
            self.iterations += 1
            if self.iterations > MOST_LAUNCHES:
                raise ValueError(f"{self.where}: loops of more than {MOST_LAUNCHES} iterations")
        self.names.pop(s["for"], None)

    def alloc(self, index):
        t = self.entry["temporaries"][index]
        shape = tuple(value(self.where, d, self.names) for d in t["dims"])
        if any(not 0 <= n <= 0x7FFFFFFF for n in shape):
            raise ValueError(f"{self.where}: the temporary {t['name']} has the shape {list(shape)}")
        self.latest[index] = len(self.temporaries)
        self.temporaries.append({"dtype": t["dtype"], "shape": shape, "bytes": math.prod(shape) * dtypes.size(t["dtype"]),
                                 "first": -1, "last": -1, "offset": 0})

    def launch(self, s):
        kernel = self.kernels[s["launch"]]
        launch = Launch()
        launch.kernel, launch.tensors, launch.scalars = kernel, {}, {}
        for name, view in s["tensors"].items():
            if view is not None:
                launch.tensors[name] = self.view(view)
        types = {p["name"]: p["dtype"] for p in kernel["params"] if p["kind"] == "scalar"}
        for name, v in s["scalars"].items():
            if isinstance(v, dict):
                if "computed" in v:
                    launch.scalars[name] = numbers.settled(v["computed"], lambda e: value(self.where, e, self.names))
                else:
                    launch.scalars[name] = (v["scalar"],) if "scalar" in v else float(v["number"])
            elif isinstance(v, float) or types[name] not in dtypes.INTEGERS:
                launch.scalars[name] = v
            else:
                launch.scalars[name] = value(self.where, v, self.names)
                dtypes.check_integer(types[name], f"{name} of `{kernel['name']}`", launch.scalars[name])
        launch.sizes = {n: value(self.where, e, self.names) for n, e in s["sizes"].items()}
        names = dict(launch.sizes)
        names.update({n: v for n, v in launch.scalars.items() if isinstance(v, int)})
        for n, v in launch.scalars.items():
            if isinstance(v, tuple) and isinstance(v[0], str) and v[0] in self.names:
                names[n] = self.names[v[0]]
        where = f"{self.where}: `{kernel['name']}`"
        for n, v in launch.sizes.items():
            if not 0 <= v <= 0x7FFFFFFF:
                raise ValueError(f"{where}: {n} is {v}")
        check_tensors(where, kernel["tensors"], {n: (shape, s) for n, (_, _, shape, s) in launch.tensors.items()}, names)
        check_facts(where, kernel["where"], names)
        for view in s["tensors"].values():
            if view is not None and "temporary" in view:
                t = self.temporaries[self.latest[view["temporary"]]]
                t["first"] = self.plan.steps if t["first"] < 0 else t["first"]
                t["last"] = self.plan.steps
        self.queue(launch, names)

    def view(self, v):
        if "temporary" in v:
            index = self.latest[v["temporary"]]
            t = self.temporaries[index]
            base, dtype, shape, strides = index, t["dtype"], t["shape"], dense_strides(t["shape"])
        else:
            base = v["tensor"]
            dtype, shape, strides = self.arrays[base]
        offset, kept_shape, kept_strides = 0, [], []
        for d, dim in enumerate(v["dims"]):
            at, extent = (value(self.where, dim[k], self.names) for k in ("at", "extent"))
            if at < 0 or extent < 0 or at > shape[d] or extent > shape[d] - at:
                raise ValueError(f"{self.where}: {at} : {at + extent} lies outside of dim {d} of {base}, whose extent is {shape[d]}")
            offset += at * strides[d]
            if dim["kept"]:
                kept_shape.append(extent)
                kept_strides.append(strides[d])
        return base, offset * dtypes.size(dtype), tuple(kept_shape), tuple(kept_strides)

    def queue(self, launch, names):
        where, kernel, blocks = self.where, launch.kernel, 1
        for e in kernel["grid"]:
            n = value(where, e, names)
            if n < 0:
                raise ValueError(f"{where}: the grid extent {text(e)} is {n}")
            blocks *= n
        if blocks > 0x7FFFFFFF:
            raise ValueError(f"{where}: a grid of {blocks} blocks, at most 2^31 - 1 are possible")
        launch.blocks, launch.step = blocks, self.plan.steps
        if blocks == 0:
            return
        self.plan.launches.append(launch)
        if len(self.plan.launches) > MOST_LAUNCHES:
            raise ValueError(f"{where}: more than {MOST_LAUNCHES} launches")
        if not getattr(self, "group", False):
            self.plan.steps += 1

    def place(self):
        """Offsets in the workspace: the largest temporaries first, each at the lowest place that is free in its life."""
        placed = []
        alive = [t for t in self.temporaries if t["first"] >= 0]
        for t in sorted(alive, key=lambda t: -t["bytes"]):
            at = 0
            for p in sorted(placed, key=lambda p: p["offset"]):
                if p["last"] < t["first"] or t["last"] < p["first"]:
                    continue
                if at + t["bytes"] <= p["offset"]:
                    break
                end = p["offset"] + p["bytes"]
                at = max(at, -(-end // WORKSPACE_ALIGN) * WORKSPACE_ALIGN)
            t["offset"] = at
            placed.append(t)
            self.plan.workspace = max(self.plan.workspace, at + t["bytes"])
        for launch in self.plan.launches:
            for name, (base, offset, shape, strides) in launch.tensors.items():
                if isinstance(base, int):
                    launch.tensors[name] = (None, self.temporaries[base]["offset"] + offset, shape, strides)
