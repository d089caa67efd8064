"""Allocate and free."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from bench.harness import Bar, Case, Setup
from bench.harness.common import PLACES, Body, burst, device, timed

__all__ = ["BARS", "CASES"]

MIB_SHAPE = (512, 512)
SMALL_SHAPE = (8, 8)


def _cycle(empty: Callable[..., Any], shape: tuple[int, ...]) -> Body:
    def body(count: int) -> None:
        make, size = empty, shape
        for _ in range(count):
            ref = make(size, "float32")
            del ref

    return body


def _used(dev: Any, source: Any) -> Body:
    def body(count: int) -> None:
        empty, copy, src = dev.empty, dev.copy, source
        for _ in range(count):
            ref = empty(SMALL_SHAPE, "float32")
            copy(src, out=ref)
            del ref

    return body


def _drain(dev: Any, source: Any, probe: Any) -> None:
    dev.copy(source, out=probe)
    probe.wait()


def build(setup: Setup) -> None:
    """``x = dev.empty(shape, dtype); del x``: slot, range, handle, and all of it given back; 10 000 a sample.

    The loop is included. The row "allocate, use, free" writes the array by ``dev.copy`` in between, so that the free
    is ticketed and the next allocation inherits an open ticket; the work itself is not waited for. C: malloc and
    free; and, per segment rather than per array, memfd_create to close.
    """
    count = setup.count(10_000)
    for name, place, shape in (
        ("atomr empty + del, 1 MiB", "process", MIB_SHAPE),
        ("atomr empty + del, 256 B", "process", SMALL_SHAPE),
        ("atomr empty + del, 1 MiB, thread", "thread", MIB_SHAPE),
    ):
        with setup.attempt(name):
            setup.add(name, timed(_cycle(device(setup, place).empty, shape), count))
    for place in PLACES:
        name = f"atomr allocate, use, free, {place}"
        with setup.attempt(name):
            dev = device(setup, place)
            source = dev.zeros(SMALL_SHAPE, "float32")
            probe = dev.empty(SMALL_SHAPE, "float32")
            drain = partial(_drain, dev, source, probe)
            setup.add(name, burst(_used(dev, source), drain, setup.count(2000)))
    setup.twin("C malloc + free, 1 MiB", "alloc", "--bytes", 1 << 20, "--count", count)
    setup.twin("C malloc + free, 256 B", "alloc", "--bytes", 256, "--count", count)
    setup.twin("C memfd, 64 MiB segment", "memfd", "--bytes", 64 << 20, "--count", setup.count(500))
    with setup.attempt("numpy.empty + del, 1 MiB", kind="peer"):
        import numpy as np

        setup.add("numpy.empty + del, 1 MiB", timed(_cycle(np.empty, MIB_SHAPE), count))
    setup.ratio("atomr empty + del, 1 MiB", "numpy.empty + del, 1 MiB")


BARS = (Bar("allocate + free", "alloc", "atomr empty + del, 1 MiB", 0.3, "us"),)
CASES = (Case("alloc", "Allocate + free", build),)
