"""Plans on a GPU: everything that does not change between two calls with the same shapes is prepared once."""
import ctypes
import threading
from ctypes import c_uint, c_void_p

from . import dtypes
from .driver import Current, driver

MOST_STREAMS = 8  # of the launches of one step; more bring no more overlap


class Module:
    """The kernels of one JSON on one device."""

    def __init__(self, manifest, device):
        self.driver, self.device = driver(), device
        self.context = self.driver.context(device)
        self.facts = self.driver.facts(device)
        self.functions = {}
        with Current(self.driver, self.context):
            self.module = self.driver.load(manifest["ptx"]["text"])

    def function(self, name, shared):
        if name not in self.functions:
            with Current(self.driver, self.context):
                self.functions[name] = self.driver.function(self.module, name, shared, self.facts["smem"])
        return self.functions[name]


class PreparedLaunch:
    """Objects of ctypes for one launch: between calls only addresses and floating-point scalars change."""

    def __init__(self, module, launch, index):
        """index: argument name -> its place among the values of a call; the workspace is at -1."""
        k = launch.kernel
        self.name = k["name"]
        self.driver = module.driver
        self.keep, pointers, self.pointers, self.scalars = [], [], [], []
        slots = {}
        for p in k["params"]:
            if p["kind"] == "pointer":
                base, offset, _, _ = launch.tensors[p["tensor"]]
                slot = ctypes.c_uint64()
                slots[p["tensor"]] = len(self.pointers)
                self.pointers.append((slot, -1 if base is None else index[base], offset))
            elif p["kind"] == "stride":
                slot = ctypes.c_int64(launch.tensors[p["tensor"]][3][p["dim"]])
            elif p["kind"] == "size":
                slot = ctypes.c_int32(launch.sizes[p["name"]])
            else:
                slot, convert = dtypes.scalar_slot(p["dtype"])
                v = launch.scalars[p["name"]]
                if isinstance(v, tuple):
                    self.scalars.append((slot, convert, index[v[0]]))
                else:
                    slot.value = convert(v)
            self.keep.append(slot)
            pointers.append(ctypes.addressof(slot))
        first, other = k["entries"][0], k["entries"][-1]
        shared = k["sharedBytes"]
        self.other = module.function(other["name"], shared)
        self.aligned, self.masks = True, []
        for c in first["requires"]:
            if "address" in c:
                self.masks.append((slots[c["address"]], c["multiple"]))
            else:
                name = c.get("stride") or c.get("extent")
                v = launch.tensors[name][3 if "stride" in c else 2][c["dim"]]
                self.aligned &= v % c["multiple"] == 0 and c.get("least", v) <= v < c.get("below", v + 1)
        self.maps = []
        if self.aligned:
            self.first = module.function(first["name"], shared)
            for m in first.get("tensorMaps", []):
                raw = (ctypes.c_uint8 * (128 + 64))()
                at = -(-ctypes.addressof(raw) // 64) * 64
                self.keep.append(raw)
                pointers.append(at)
                _, _, shape, strides = launch.tensors[m["tensor"]]
                self.maps.append([at, slots[m["tensor"]], None, (m["dtype"], shape, strides, m["box"], m["swizzle"])])
        self.parameters = (c_void_p * len(pointers))(*pointers)
        one = c_uint(1)
        self.before = (c_uint(launch.blocks), one, one, c_uint(k["block"]), one, one, c_uint(shared))
        self.launch = self.driver.lib.cuLaunchKernel

    def queue(self, values, workspace, stream):
        aligned, pointers = self.aligned, self.pointers
        for slot, base, offset in pointers:
            slot.value = (workspace if base < 0 else values[base]) + offset
        if aligned:
            for i, multiple in self.masks:
                if pointers[i][0].value % multiple:
                    aligned = False
                    break
        for slot, convert, i in self.scalars:
            slot.value = convert(values[i])
        if aligned:
            for m in self.maps:
                address = pointers[m[1]][0].value
                if m[2] != address:  # the parameters of a launch are copied by it: they may be written again
                    dtype, shape, strides, box, swizzle = m[3]
                    self.driver.encode_map(m[0], dtype, address, shape, strides, box, swizzle)
                    m[2] = address
            code = self.launch(self.first, *self.before, stream, self.parameters, None)
        else:
            code = self.launch(self.other, *self.before, stream, self.parameters, None)
        return code


class PreparedPlan:
    def __init__(self, module, plan, index):
        self.module, self.workspace = module, plan.workspace
        self.lock = threading.Lock()
        self.stream = c_void_p()
        self.current = c_void_p()
        self.current_ref = ctypes.byref(self.current)
        self.launches = [PreparedLaunch(module, launch, index) for launch in plan.launches]
        groups, widest = [], 1
        for launch, prepared in zip(plan.launches, self.launches):
            if groups and groups[-1][0] == launch.step:
                groups[-1][1].append(prepared)
            else:
                groups.append((launch.step, [prepared]))
            widest = max(widest, len(groups[-1][1]))
        self.groups = [g for _, g in groups]
        with Current(module.driver, module.context):
            count = min(widest, MOST_STREAMS) - 1
            self.side = [module.driver.stream() for _ in range(count)]
            self.done = [module.driver.event() for _ in range(count)]
            self.fork = module.driver.event() if count else None
            if count:  # kernels that want different splits of an SM's memory do not run on one SM at the same time
                for group in self.groups:
                    for prepared in group if len(group) > 1 else []:
                        for f in {prepared.other.value, (prepared.first if prepared.aligned else prepared.other).value}:
                            module.driver.check(module.driver.lib.cuFuncSetAttribute(f, 9, 100), "preparing a launch")

    def run(self, values, workspace, stream):
        """values: addresses and scalars in the order of the arguments; nothing is allocated and nothing waits."""
        m = self.module
        with self.lock:
            code = m.driver.lib.cuCtxGetCurrent(self.current_ref)
            if code or self.current.value != m.context:
                return self.run_in_context(values, workspace, stream)
            self.queue(values, workspace, stream)

    def run_in_context(self, values, workspace, stream):
        with Current(self.module.driver, self.module.context):
            self.queue(values, workspace, stream)

    def queue(self, values, workspace, stream):
        self.stream.value = stream
        if self.side:
            return self.run_groups(values, workspace)
        for prepared in self.launches:
            code = prepared.queue(values, workspace, self.stream)
            if code:
                raise self.module.driver.error(code, f"launching `{prepared.name}`")

    def run_groups(self, values, workspace):
        d = self.module.driver
        for group in self.groups:
            sides = min(len(group) - 1, len(self.side))
            if sides:
                d.check(d.lib.cuEventRecord(self.fork, self.stream), "ordering streams")
                for s in self.side[:sides]:
                    d.check(d.lib.cuStreamWaitEvent(s, self.fork, 0), "ordering streams")
            for n, prepared in enumerate(group):
                lane = n % (sides + 1)
                d.check(prepared.queue(values, workspace, self.side[lane - 1] if lane else self.stream),
                        f"launching `{prepared.name}`")
            for s, done in zip(self.side[:sides], self.done):
                d.check(d.lib.cuEventRecord(done, s), "ordering streams")
                d.check(d.lib.cuStreamWaitEvent(self.stream, done, 0), "ordering streams")
