"""Plans on a GPU: everything that does not change between two calls with the same shapes is prepared once."""
import ctypes
import struct
import threading
from ctypes import c_uint, c_void_p

from . import dtypes, numbers
from .driver import PREFERRED_CARVEOUT, Current, driver

MOST_STREAMS = 8  # of the launches of one step; more bring no more overlap


class Module:
    """The kernels of one JSON on one device."""

    def __init__(self, manifest, device):
        self.driver, self.device = driver(), device
        self.context = self.driver.context(device)
        self.facts = self.driver.facts(device)
        self.functions = {}
        # For launches side by side: streams, the events that they end with, and the one that they begin with.
        self.side, self.done, self.fork, self.lock = [], [], None, threading.Lock()
        with Current(self.driver, self.context):
            self.module = self.driver.load(manifest["ptx"]["text"])

    def grow_sides(self, count):
        with self.lock, Current(self.driver, self.context):
            self.fork = self.fork or self.driver.event()
            while len(self.side) < count:
                self.done.append(self.driver.event())
                self.side.append(self.driver.stream())

    def function(self, name, shared):
        if name not in self.functions:
            with Current(self.driver, self.context):
                self.functions[name] = self.driver.function(self.module, name, shared, self.facts["smem"])
        return self.functions[name]

    def resident(self, name, threads, shared):
        """Blocks of an entry that the device holds at a time."""
        with Current(self.driver, self.context):
            return self.facts["sms"] * self.driver.blocks_per_sm(self.functions[name], threads, shared)


class PreparedLaunch:
    """Objects of ctypes for one launch. Between calls only addresses and floating-point scalars change, and most often not
    even the addresses: then they are not written again."""

    def __init__(self, module, launch, index):
        """index: argument name -> its place among the values of a call; the workspace is the last value."""
        k = launch.kernel
        self.name, self.driver = k["name"], module.driver
        self.keep, pointers, self.scalars = [], [], []
        self.computed, self.index = [], index
        self.sources = []  # place of the base among the values, offset in bytes
        places = {}        # tensor -> place in `sources`
        count = sum(p["kind"] == "pointer" for p in k["params"])
        self.memory = (ctypes.c_uint64 * max(count, 1))()
        self.pack = struct.Struct(f"={count}Q").pack_into
        for p in k["params"]:
            if p["kind"] == "pointer":
                base, offset, _, _ = launch.tensors[p["tensor"]]
                places[p["tensor"]] = len(self.sources)
                pointers.append(ctypes.addressof(self.memory) + 8 * len(self.sources))
                self.sources.append((-1 if base is None else index[base], offset))
                continue
            if p["kind"] == "stride":
                slot = ctypes.c_int64(launch.tensors[p["tensor"]][3][p["dim"]])
            elif p["kind"] == "size":
                slot = ctypes.c_int32(launch.sizes[p["name"]])
            else:
                slot, convert = dtypes.scalar_slot(p["dtype"])
                v = launch.scalars[p["name"]]
                if isinstance(v, tuple) and isinstance(v[0], str):
                    self.scalars.append((slot, convert, index[v[0]]))
                elif isinstance(v, tuple):
                    self.computed.append((slot, convert, v))
                else:
                    slot.value = convert(v)
            self.keep.append(slot)
            pointers.append(ctypes.addressof(slot))
        first, other = k["entries"][0], k["entries"][-1]
        shared = k["sharedBytes"]
        aligned, self.multiples = True, []
        for c in first["requires"]:
            if "address" in c:
                self.multiples.append((places[c["address"]], c["multiple"]))
            else:
                name = c.get("stride") or c.get("extent")
                v = launch.tensors[name][3 if "stride" in c else 2][c["dim"]]
                aligned = aligned and v % c["multiple"] == 0 and c.get("least", v) <= v < c.get("below", v + 1)
        self.maps = []
        for m in first.get("tensorMaps", []) if aligned else []:
            raw = (ctypes.c_uint8 * (128 + 64))()
            at = -(-ctypes.addressof(raw) // 64) * 64
            self.keep.append(raw)
            pointers.append(at)
            _, _, shape, strides = launch.tensors[m["tensor"]]
            self.maps.append((at, places[m["tensor"]], (m["dtype"], shape, strides, m["box"], m["swizzle"])))
        self.parameters = (c_void_p * len(pointers))(*pointers)
        one = c_uint(1)

        def call(entry):
            function, blocks = module.function(entry["name"], shared), launch.blocks
            if k.get("persistent"):
                blocks = min(blocks, module.resident(entry["name"], k["block"], shared) or blocks)
            return function, c_uint(blocks), one, one, c_uint(k["block"]), one, one, c_uint(shared)

        self.other = call(other)
        self.first = call(first) if aligned else None
        self.addresses, self.call = None, None
        self.launch = self.driver.lib.cuLaunchKernel
        self.overlaps = k.get("overlaps", False)

    def queue(self, values, stream):
        """The driver's result. Parameters are copied by the call: they may be written again after it."""
        addresses = [values[base] + offset for base, offset in self.sources]
        if addresses != self.addresses:
            self.move(addresses)
        for slot, convert, i in self.scalars:
            slot.value = convert(values[i])
        for slot, convert, v in self.computed:
            slot.value = convert(numbers.evaluate(v, lambda name: values[self.index[name]]))
        return self.launch(*self.call, stream, self.parameters, None)

    def move(self, addresses):
        self.addresses = None  # if a tensor map fails
        self.pack(self.memory, 0, *addresses)
        self.call = self.first
        if self.first is None or any(addresses[i] % multiple for i, multiple in self.multiples):
            self.call = self.other
        else:
            for at, i, (dtype, shape, strides, box, swizzle) in self.maps:
                self.driver.encode_map(at, dtype, addresses[i], shape, strides, box, swizzle)
        self.addresses = addresses


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
        for (_, before), (_, group) in zip(groups, groups[1:]):
            if len(before) == len(group) == 1 and group[0].overlaps:
                group[0].launch = module.driver.launch_early
        self.sides = min(widest, MOST_STREAMS) - 1
        if self.sides:
            module.grow_sides(self.sides)
            with Current(module.driver, module.context):
                # Kernels that want different splits of an SM's memory do not run on one SM at the same time.
                for group in self.groups:
                    for prepared in group if len(group) > 1 else []:
                        for f, *_ in filter(None, (prepared.first, prepared.other)):
                            module.driver.check(module.driver.lib.cuFuncSetAttribute(f, PREFERRED_CARVEOUT, 100),
                                                "preparing a launch")

    def run(self, values, stream):
        """values: addresses and scalars in the order of the arguments, then the address of the workspace. Nothing is
        allocated and nothing waits."""
        m = self.module
        with self.lock:
            if m.driver.lib.cuCtxGetCurrent(self.current_ref) or self.current.value != m.context:
                with Current(m.driver, m.context):
                    return self.queue(values, stream)
            self.queue(values, stream)

    def queue(self, values, stream):
        self.stream.value = stream
        if self.sides:
            with self.module.lock:
                return self.run_groups(values)
        for prepared in self.launches:
            code = prepared.queue(values, self.stream)
            if code:
                raise self.module.driver.error(code, f"launching `{prepared.name}`")

    def run_groups(self, values):
        m, d = self.module, self.module.driver
        for group in self.groups:
            sides = min(len(group) - 1, self.sides)
            if sides:
                d.check(d.lib.cuEventRecord(m.fork, self.stream), "ordering streams")
                for s in m.side[:sides]:
                    d.check(d.lib.cuStreamWaitEvent(s, m.fork, 0), "ordering streams")
            for n, prepared in enumerate(group):
                lane = n % (sides + 1)
                d.check(prepared.queue(values, m.side[lane - 1] if lane else self.stream), f"launching `{prepared.name}`")
            for s, done in zip(m.side[:sides], m.done):
                d.check(d.lib.cuEventRecord(done, s), "ordering streams")
                d.check(d.lib.cuStreamWaitEvent(self.stream, done, 0), "ordering streams")
