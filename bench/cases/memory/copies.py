"""Copies to a GPU and back, a program of its own: ``python -m bench.cases.memory.copies [--json FILE] [--most BYTES]``.

Beside `put` and `get` stand torch and, in C, a plain pinned cuMemcpyAsync with cuStreamSynchronize.  All are measured
in interleaved rounds; every figure is of complete copies, except where it says "caller".  From 64 MiB on, copies that
are enqueued one behind the other, and waited for together, stand beside those that are waited for one by one.
Prints medians, ratios per round with their intervals and the bars of the design, and writes a result as
``python -m bench`` does, which ``python -m bench render`` shows.  With ``--tune``, prints the throughput for sizes of
pieces and numbers of threads.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.harness import (
    Bar,
    Case,
    CaseResult,
    Effort,
    Setup,
    Unavailable,
    documents,
    gpu_peers,
    judge,
    machine,
    run_case,
)
from bench.harness.twins import compiler

if TYPE_CHECKING:
    import numpy as np

    import atomr_native as an

__all__ = ["BARS", "case_name", "case_of", "main"]

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
#: Bytes: rounds, copies in a sample.
SIZES = {
    4 * KIB: (51, 100), 64 * KIB: (51, 40), MIB: (51, 10), 16 * MIB: (31, 2), 64 * MIB: (31, 1), 256 * MIB: (21, 1),
    GIB: (15, 1),
}  # fmt: skip
FLOOR = "C: cuMemcpyAsync, pinned, and synchronize"
ROW = 8
ROW_FLOOR = f"C: {ROW} x cuMemcpyAsync, pinned, and synchronize"
WAYS = {"to the device": 0, "to the host": 1, "there and back": 2}


PUTS, GETS = f"put of a host_array, {ROW} in a row", f"get_into a host_array, {ROW} in a row"
LARGE, SMALL = range(64 * MIB, GIB + 1), range(4 * KIB, 4 * KIB + 1)
#: Ratios with a bar: direction, over, under, limit, sizes.
LIMITS = (
    ("to the device", "put of a host_array", FLOOR, 1 / 0.95, LARGE),
    ("to the host", "get into a host_array", FLOOR, 1 / 0.95, LARGE),
    ("to the device", PUTS, ROW_FLOOR, 1 / 0.95, LARGE),
    ("to the host", GETS, ROW_FLOOR, 1 / 0.95, LARGE),
    ("to the device", "put", "torch: to, pageable", 1 / 1.5, LARGE),
    ("to the device", "put out=", "torch: copy_, pageable", 1 / 1.5, LARGE),
    ("to the host", "get", "torch: cpu", 1 / 1.5, LARGE),
    ("to the host", "get out=", "torch: copy_, pageable", 1 / 1.5, LARGE),
    ("there and back", "put, get", FLOOR, 1.3, SMALL),
)


@cache
def floor() -> ctypes.CDLL:
    """The C loops, compiled now."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "copies.so")
        command = [compiler(), "-O2", "-std=gnu11", "-shared", "-fPIC", str(Path(__file__).with_suffix(".c"))]
        subprocess.run([*command, "-o", str(library), "-ldl"], check=True)
        loaded = ctypes.CDLL(str(library))
    loaded.copies_run.restype = ctypes.c_double
    loaded.copies_run.argtypes = [ctypes.c_int, ctypes.c_uint64, ctypes.c_int, ctypes.c_int]
    loaded.copies_size.argtypes = [ctypes.c_uint64]
    if status := loaded.copies_open(0):
        raise Unavailable(f"the driver does not open the first GPU: {status}")
    return loaded


@dataclass
class Rig:
    """A device, and arrays of one size in every kind of memory."""

    device: an.Device
    nbytes: int
    count: int
    data: np.ndarray[Any, Any] = field(init=False)
    out: np.ndarray[Any, Any] = field(init=False)
    host: np.ndarray[Any, Any] = field(init=False)
    ref: an.GpuRef = field(init=False)

    def __post_init__(self) -> None:
        import numpy as np

        self.data = np.random.default_rng(self.nbytes).integers(0, 256, self.nbytes, np.uint8)
        self.out = np.zeros_like(self.data)
        self.host = self.device.host_array(self.nbytes, np.uint8)
        self.host[...] = self.data
        self.ref = self.device.put(self.data).wait()

    def sample(self, work: Callable[[], object], finish: Callable[[], object] = lambda: None) -> float:
        """Microseconds of one call of `work` and its share of `finish`; results are dropped outside of it."""
        kept = []
        began = time.perf_counter_ns()
        for _ in range(self.count):
            kept.append(work())
        finish()
        return (time.perf_counter_ns() - began) / 1e3 / self.count

    def caller(self, work: Callable[[], an.GpuRef]) -> float:
        """As `sample`, without what the device has yet to do."""
        kept = []
        began = time.perf_counter_ns()
        for _ in range(self.count):
            kept.append(work())
        spent = time.perf_counter_ns() - began
        kept[-1].wait()
        return spent / 1e3 / self.count

    def check(self) -> None:
        """Every way gives every byte."""
        import numpy as np

        fresh = self.device.empty(self.nbytes, np.uint8)
        for put in (self.device.put(self.data), self.device.put(self.data, out=fresh), self.device.put(self.host)):
            for got in (self.device.get(put), self.device.get(put, self.out), self.device.get(put, self.host)):
                if not np.array_equal(got, self.data):
                    raise AssertionError(f"a copy of {self.nbytes} bytes is wrong")

    def row(self, send: Callable[[], Any], last: Callable[[Any], object]) -> float:
        """Microseconds of each of `ROW` copies, of which only the last is waited for."""
        kept = []
        began = time.perf_counter_ns()
        for _ in range(ROW):
            kept.append(send())
        last(kept[-1])
        return (time.perf_counter_ns() - began) / 1e3 / ROW

    def floor(self, way: int, *, row: bool = False) -> float:
        """The C loop."""
        found: float = floor().copies_run(way, self.nbytes, ROW if row else self.count, ROW if row else 1)
        if found < 0:
            raise RuntimeError("a driver call failed")
        return found


def add_torch(setup: Setup, rig: Rig, way: str) -> None:
    """Add what torch does with pageable and with pinned memory."""
    names = {
        "to the device": ("torch: to, pageable", "torch: copy_, pageable", "torch: copy_, pinned"),
        "to the host": ("torch: cpu", "torch: copy_, pageable", "torch: copy_, pinned"),
        "there and back": ("torch: to, cpu",),
    }[way]

    def prepare(name: str) -> Callable[[], float]:
        module = gpu_peers.torch(0)
        wait = module.cuda.synchronize
        there = module.empty(rig.nbytes, dtype=module.uint8, device="cuda")
        here = module.from_numpy(rig.out)
        if "pinned" in name:
            here = module.empty(rig.nbytes, dtype=module.uint8, pin_memory=True).fill_(1)
        if name == "torch: to, cpu":
            return partial(rig.sample, lambda: here.to("cuda").cpu())
        if name == "torch: cpu":
            return partial(rig.sample, there.cpu)
        if name == "torch: to, pageable":
            return partial(rig.sample, lambda: (here.to("cuda"), wait())[0])
        target, source = (there, here) if way == "to the device" else (here, there)
        loose = "pinned" in name
        return partial(rig.sample, lambda: (target.copy_(source, non_blocking=loose), wait())[0])

    for name in names:
        with setup.attempt(name, "peer"):
            setup.add(name, prepare(name))


def case_of(device: an.Device, nbytes: int, way: str) -> Case:
    """The case of one size and direction."""

    def copies(setup: Setup) -> None:
        """Time of a copy, complete unless it says "caller".

        "host_array" is pinned memory that the worker shares, all other arrays of NumPy are ordinary. torch: from and to
        tensors in ordinary memory, and in pinned memory. C: pinned memory. "in a row": enqueued one behind the other,
        the same memory each time, and waited for together.
        """
        build(setup, device=device, nbytes=nbytes, way=way)

    return Case(case_name(nbytes, way), f"Copies: {name_of(nbytes)} {way}", copies)


def build(setup: Setup, *, device: an.Device, nbytes: int, way: str) -> None:
    """Add the contenders of one size and direction."""
    rig = Rig(device, nbytes, SIZES[nbytes][1])
    rig.check()
    put, get = device.put, device.get
    ours: dict[str, Callable[[], float]] = {
        "put": partial(rig.sample, lambda: put(rig.data).wait()),
        "put out=": partial(rig.sample, lambda: put(rig.data, out=rig.ref).wait()),
        "put of a host_array": partial(rig.sample, lambda: put(rig.host)),
        "put, caller": partial(rig.caller, lambda: put(rig.data)),
        "get": partial(rig.sample, lambda: get(rig.ref)),
        "get out=": partial(rig.sample, lambda: get(rig.ref, rig.out)),
        "get into a host_array": partial(rig.sample, lambda: get(rig.ref, rig.host)),
        "put, get": partial(rig.sample, lambda: get(put(rig.data))),
        PUTS: partial(rig.row, lambda: put(rig.host, out=rig.ref, blocking=False), lambda ref: ref.wait()),
        GETS: partial(rig.row, lambda: device.get_into(rig.ref, rig.host), lambda reply: reply.result()),
    }
    pick = {"to the device": list(ours)[:4], "to the host": list(ours)[4:7], "there and back": list(ours)[7:8]}[way]
    rows = {"to the device": [PUTS], "to the host": [GETS]}.get(way, []) if nbytes in LARGE else []
    if nbytes > MIB:
        pick = [name for name in pick if name != "put, caller"]
    for name in (*pick, *rows):
        with setup.attempt(name):
            setup.add(name, ours[name])
    add_torch(setup, rig, way)
    with setup.attempt(FLOOR, "twin"):
        if status := floor().copies_size(nbytes):
            raise RuntimeError(f"the driver has no memory for {nbytes} bytes: {status}")
        setup.add(FLOOR, partial(rig.floor, WAYS[way]))
    if rows:
        with setup.attempt(ROW_FLOOR, "twin"):
            setup.add(ROW_FLOOR, partial(rig.floor, WAYS[way], row=True))
    for name in pick:
        setup.ratio(name, FLOOR)
    for direction, over, under, _, _ in LIMITS:
        if direction == way and under != FLOOR and (nbytes in LARGE or under != ROW_FLOOR):
            setup.ratio(over, under)


def name_of(nbytes: int) -> str:
    """As people write it."""
    unit, name = next((u, n) for u, n in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")) if nbytes >= u)
    return f"{nbytes // unit} {name}"


def case_name(nbytes: int, way: str) -> str:
    """What results call the copies of one size and direction."""
    return f"copies, {name_of(nbytes)} {way}"


BARS = tuple(
    Bar(
        f"copy {way}, {over}, over {under.partition(':')[0]}",
        case_name(nbytes, way),
        over,
        limit,
        "x",
        under,
        name_of(nbytes),
    )
    for way, over, under, limit, sizes in LIMITS
    for nbytes in SIZES
    if nbytes in sizes
)


def show(result: CaseResult, nbytes: int, way: str) -> None:
    """Print one size and direction."""
    print(f"\n{name_of(nbytes)} {way}")
    for series in result.series:
        found = series.summary()
        if found is None:
            print(f"  {series.name:45} {series.status}: {series.reason}")
        else:
            print(f"  {series.name:45} {found.median:10.2f} us {nbytes / found.median / 1e3:7.2f} GB/s")
    for over, under, interval in result.ratios:
        if interval is not None:
            print(f"  {over + ' / ' + under:70} {interval.median:6.3f} x ({interval.low:.3f} to {interval.high:.3f})")


@contextmanager
def settings(device: an.Device, helpers: int, piece: int) -> Iterator[None]:
    """Use other sizes, with 64 MiB of staging memory in all."""
    from atomr_native._lib.copies import copy_helpers, set_copy_helpers
    from atomr_native.memory import transfers

    before = transfers.PIECE, transfers.WINDOW, copy_helpers()
    transfers.PIECE, transfers.WINDOW = piece, max(2, 64 * MIB // piece)
    set_copy_helpers(helpers)
    device._memory.transfers = transfers.Transfers(device._memory)
    yield
    transfers.PIECE, transfers.WINDOW = before[:2]
    set_copy_helpers(before[2])


def rates(rig: Rig) -> list[float]:
    """Throughput of put, get, and get into an array, GB/s: the medians of 7 copies."""
    found = []
    for work in (
        lambda: rig.device.put(rig.data).wait(),
        lambda: rig.device.get(rig.ref),
        lambda: rig.device.get(rig.ref, rig.out),
    ):
        times = sorted(rig.sample(work) for _ in range(7))
        found.append(rig.nbytes / times[3] / 1e3)
    return found


def tune(device: an.Device, most: int) -> None:
    """Print the throughput of pipelined copies for other settings."""
    for nbytes in (n for n in (16 * MIB, 64 * MIB, 256 * MIB) if n <= most):
        rig = Rig(device, nbytes, 1)
        print(f"\n{name_of(nbytes)}: helpers, MiB of a piece: put, get, get out=, GB/s")
        for helpers in (0, 2, 4, 6, 8, 12, 15):
            for piece in (2, 4, 8, 16):
                with settings(device, helpers, piece * MIB):
                    print(f"  {helpers:3} {piece:3}: " + " ".join(f"{r:7.2f}" for r in rates(rig)), flush=True)


def main() -> int:
    """Measure, print, write."""
    import atomr_native as an
    from atomr_native._lib.copies import copy_helpers

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--most", type=int, default=GIB, help="bytes of the largest array")
    parser.add_argument("--rounds", type=int, help="of every size, instead of its own number")
    parser.add_argument("--isolation", default="process", choices=("process", "thread"))
    parser.add_argument("--tune", action="store_true")
    options = parser.parse_args()
    rng = random.Random(0)
    results: list[CaseResult] = []
    described = machine.describe()
    with an.System(isolation=options.isolation) as system:
        device = system.device("cuda:0")
        described["device"] = machine.describe_gpu(device.name, dict(device.facts))
        print(f"{device.facts['name']}, {options.isolation}, {copy_helpers()} threads help")
        if options.tune:
            tune(device, options.most)
            return 0
        load = machine.measure_load(gpu=device.facts.get("uuid"))
        for nbytes, (rounds, _) in SIZES.items():
            if nbytes > options.most:
                continue
            for way in WAYS:
                if way == "there and back" and nbytes > 64 * KIB:
                    continue
                case = case_of(device, nbytes, way)
                results.append(run_case(case, Effort.FULL, rng, rounds=options.rounds or rounds))
                show(results[-1], nbytes, way)
                gc.collect()
    value = documents.document(results, described, load, Effort.FULL, seed=0, forced=True)
    print()
    for found in judge(value["cases"], BARS):
        if found.state != "not measured":
            print(f"{found.state:6} {found.bar.name}: {found.median:.3f} x ({found.low:.3f} to {found.high:.3f}), "
                  f"at most {found.bar.limit:.3f}")  # fmt: skip
    if options.json:
        documents.write(options.json, value)
    return int(any(series.status == "failed" for result in results for series in result.series))


if __name__ == "__main__":
    sys.exit(main())
