"""Arrays of a GPU of another process on this machine, beside the copy of one System and Ray's own transports."""

from __future__ import annotations

import dataclasses
import importlib
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from bench.harness import Bar, Case, Setup, Unavailable
from bench.harness.common import opened

__all__ = ["BARS", "CASES"]

MIB = 1 << 20
LIMIT = 30.0  # seconds
SIZES = {"1 MiB": MIB, "64 MiB": 64 * MIB, "1 GiB": 1024 * MIB}


@contextmanager
def _another(sizes: tuple[int, ...]) -> Iterator[Any]:
    """Start the other process, with the second GPU; yields the way to its arrays."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.cases.clusters._giver", "cuda:1", *map(str, sizes)], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        line = process.stdout.readline().split()
        if line[:1] != ["way"]:
            raise Unavailable("no second GPU")
        yield pickle.loads(bytes.fromhex(line[1]))
    finally:
        process.communicate()


def copies(setup: Setup) -> None:
    """Arrays from the second GPU to the first, which has room for them; microseconds of each, until it is there.

    "one System": `device.copy(ref, out=)` and `wait`. "another process": the same from an array of another process, by
    the descriptor of its memory. "by TCP": as from another machine.
    """
    full = setup.count(1000) == 1000
    sizes = {name: size if full else 65536 + at for at, (name, size) in enumerate(SIZES.items())}
    for name, nbytes in sizes.items():
        with setup.attempt(f"one System, {name}"):
            first, second = _devices(setup)
            source, target = second.full((nbytes,), 1, "uint8"), first.zeros((nbytes,), "uint8")
            setup.add(f"one System, {name}", _timed(lambda d=first, s=source, t=target: d.copy(s, t).wait()))
        for far, what in ((False, "another process"), (True, "by TCP")):
            with setup.attempt(f"{what}, {name}"):
                device = _devices(setup)[0]
                way = setup.shared("other", lambda: _another(tuple(sizes.values())))
                setup.add(f"{what}, {name}", _timed(_taken(device, way, nbytes, far=far)))
        setup.ratio(f"another process, {name}", f"one System, {name}")


def _devices(setup: Setup) -> tuple[Any, Any]:
    system = setup.shared("system", lambda: opened("cuda:0", "process", {"standby": "off"}))[0]
    import atomr_native as an  # type: ignore[import-untyped,unused-ignore]

    try:
        return system.device("cuda:0"), system.device("cuda:1")
    except an.Unsupported as error:
        raise Unavailable(str(error)) from error


def _timed(work: Callable[[], object]) -> Callable[[], float]:
    work()

    def sample() -> float:
        start = time.perf_counter_ns()
        work()
        return (time.perf_counter_ns() - start) / 1e3

    return sample


def _taken(device: Any, way: Any, nbytes: int, *, far: bool) -> Callable[[], object]:
    from atomr_native.ray.moving.client import Client  # type: ignore[import-untyped,unused-ignore]

    client, target = Client(), device.zeros((nbytes,), "uint8")
    chosen = dataclasses.replace(way, machine="another") if far else way
    return lambda: client.take(chosen, str(nbytes), device, target)


def transports(setup: Setup) -> None:
    """An array in the result of a Ray actor's method, used by another actor: two calls of Ray's, microseconds of both.

    ATOMR and NCCL: a GPU for each actor. CUDA IPC, which moves no bytes: both on one GPU.
    """
    full = setup.count(1000) == 1000
    failed: set[str] = set()  # each failure takes its time
    for name, size in SIZES.items():
        nbytes = size if full else 65536
        for what, kind in (("ATOMR", "atomr"), ("NCCL", "peer"), ("CUDA IPC", "peer")):
            with setup.attempt(f"{what}, {name}", kind=kind):  # type: ignore[arg-type]
                if what in failed:
                    raise Unavailable("it failed with smaller arrays")
                failed.add(what)
                ray = setup.shared("ray", _on_gpus)
                group = setup.shared("group", lambda ray=ray: _group(ray))
                pair = setup.shared(what, lambda what=what, ray=ray, group=group: _actors(ray, what, group))
                setup.add(
                    f"{what}, {name}",
                    _timed(lambda p=pair, n=nbytes, r=ray: r.get(p[1].use.remote(p[0].make.remote(n)), timeout=LIMIT)),
                )
                failed.remove(what)
        setup.ratio(f"ATOMR, {name}", f"NCCL, {name}")


@contextmanager
def _on_gpus() -> Iterator[Any]:
    try:
        ray = importlib.import_module("ray")
    except ImportError as error:
        raise Unavailable("ray is not installed") from error
    ray.init(
        address="local", num_cpus=4, num_gpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False
    )
    try:
        yield ray
    finally:
        ray.shutdown()


@contextmanager
def _group(ray: Any) -> Iterator[Any]:
    from bench.cases.clusters import _transports

    group = _transports.reserved(ray)
    yield group
    ray.util.remove_placement_group(group)


@contextmanager
def _actors(ray: Any, what: str, group: Any) -> Iterator[list[Any]]:
    from bench.cases.clusters import _transports

    try:
        made = _transports.pair(ray, what, group)
    except ImportError as error:
        raise Unavailable(str(error)) from error
    try:
        yield made
    finally:
        for each in made:
            ray.kill(each)


BARS = tuple(
    Bar("GPU to GPU, another process", "gpu_cluster_arrays", f"another process, {name}", 1 / 0.9, "x",
        under=f"one System, {name}", part=name)
    for name in SIZES
)  # fmt: skip
CASES = (
    Case("gpu_cluster_arrays", "Arrays of another process's GPU", copies, devices=("cuda",), rounds=31, share=2.0),
    Case("gpu_cluster_results", "Arrays in results of Ray actors", transports, devices=("cuda",), rounds=15),
)
