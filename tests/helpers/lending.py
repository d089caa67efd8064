"""Memory lent to other code, and memory of other code: what holds on the host as on a GPU."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
from actions import Gate, eventually, operand

import atomr_native as an
from atomr_native.plans.spec import READ


def in_use(device: an.Device) -> int:
    """Return the bytes of volatile memory that are allocated or lent."""
    used: int = device.stats()["memory"]["pools"]["volatile"]["in_use"]
    return used


def opened(device: an.Device) -> int:
    """Return how many allocations of others the worker process has open; a thread opens none."""
    if device.system.config.isolation == "thread":
        return 0
    return int(device._state.supervisor.links.submit("stats").result(30).fields["foreign"])


def check_lending_waits_for_readers(device: an.Device, write: Callable[[Any], object]) -> None:
    """`write` makes fives of a lent array of three float64."""
    x = device.put(np.arange(3.0))
    x.wait()
    reader = device.lane("reader")
    seen: list[str] = []
    with Gate(reader) as gate:
        reply = reader._plan(an.PlanSpec("noop", (operand("x", x, READ),))).ask(x)

        def lend() -> None:
            with x.lend() as lent:
                seen.append("lent" if reply.done() else "too early")
                write(lent)

        thread = threading.Thread(target=lend)
        thread.start()
        device.put([1]).wait()
        assert not seen
        gate.open()
        thread.join(30)
    assert seen == ["lent"]
    assert x.numpy().tolist() == [5, 5, 5]


def fill_others(device: an.Device) -> list[an.GpuRef]:
    """Write to fifty other arrays of a thousand float64, one of which would be in memory that is free."""
    others = [device.full((1000,), -1.0, "float64") for _ in range(50)]
    an.gather(*others, timeout=60)
    return others


def check_owner_is_kept(
    device: an.Device, make: Callable[[], Any], owner: Callable[[Any], object] = lambda x: x
) -> None:
    """`make` makes an array of ten float64 from 0 on, which lives as long as its `owner`."""
    x = make()
    gone = weakref.ref(owner(x))
    ref = device.asarray(x)
    view = ref[2:4]
    del x, ref
    gc.collect()
    assert view.numpy().tolist() == [2, 3]
    with Gate(device.elementwise) as gate:
        y = device.elementwise.run("x + 1", x=view)
        del view
        gc.collect()
        assert gone() is not None
        gate.open()
        assert y.numpy().tolist() == [3, 4]
    eventually(lambda: gone() is None)


def check_array_is_taken_up_again(device: an.Device, x: Any) -> None:
    """Between two imports of eight zeros a message is queued, and there is no handle: the order holds all the same."""
    with Gate(device.elementwise) as gate:
        first = device.asarray(x)
        slot = first.allocation.slot
        device.elementwise.run("x + 1", x=first, out=first)
        del first
        gc.collect()
        again = device.asarray(x)
        assert again.allocation.slot == slot
        reply = device._memory.probe(again)
        device.lane("reader").noop().ask().result(30)
        assert not reply.done()
        gate.open()
        reply.result(30)
    assert again.numpy().tolist() == [1] * 8
