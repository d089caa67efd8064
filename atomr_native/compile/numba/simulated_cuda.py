"""Additions to `cuda` of Numba's simulator for simulated kernels: warps, cache hints, and bit functions by width."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np

from .api import cuda, kernelapi, types

__all__ = ["MEETING", "GpuOnly", "SimulatedModule", "Warps"]

_LANES: Final = 32
_FULL: Final = 2**_LANES - 1
#: Functions in which the threads of a warp wait for each other, or query each other's presence.
MEETING: Final = frozenset(
    {
        "activemask", "all_sync", "any_sync", "ballot_sync", "eq_sync", "match_all_sync", "match_any_sync",
        "shfl_down_sync", "shfl_sync", "shfl_up_sync", "shfl_xor_sync", "syncwarp",
    }
)  # fmt: skip


class _Meeting:
    """Threads that have arrived at one function, with their values, by lane."""

    __slots__ = ("complete", "values")

    def __init__(self) -> None:
        self.values: dict[int, Any] = {}
        self.complete = False


class Warps:
    """The warps of a simulated block, whose threads exchange values.

    Parameters
    ----------
    threads : int
        Threads of the block.
    """

    def __init__(self, threads: int) -> None:
        self._count = threads
        self._threads: dict[int, Any] = {}
        self._met = threading.Condition()
        self._meetings: dict[tuple[int, int], _Meeting] = {}

    def add(self, thread: Any) -> None:
        """Add a thread, before it starts."""
        self._threads[thread.thread_id] = thread

    def exchange(self, mask: int, value: Any) -> dict[int, Any]:
        """Return the values of all threads of a mask, by lane, once they have arrived; some may have ended before."""
        thread: Any = threading.current_thread()
        warp, lane = divmod(thread.thread_id, _LANES)
        mask = int(mask) & _FULL
        if not mask >> lane & 1:
            raise ValueError(f"lane {lane} is not in the mask {mask:#010x} with which it calls a function of its warp")
        with self._met:
            meeting = self._meetings.setdefault((warp, mask), _Meeting())
            meeting.values[lane] = value
            while not meeting.complete:
                if all(other in meeting.values or self._has_ended(warp, other) for other in _lanes(mask)):
                    meeting.complete = True
                    del self._meetings[warp, mask]
                    self._met.notify_all()
                elif thread.abort:
                    raise RuntimeError("another thread of the block has failed")
                else:
                    thread.give_turn()
                    self._met.wait(0.01)  # the end of a thread is not signalled
        return meeting.values

    def active(self) -> int:
        """Return the lanes of the calling thread's warp that have not ended."""
        warp = threading.current_thread().thread_id // _LANES  # type: ignore[attr-defined]
        return sum(1 << lane for lane in range(_LANES) if not self._has_ended(warp, lane))

    def _has_ended(self, warp: int, lane: int) -> bool:
        number = warp * _LANES + lane
        thread = self._threads.get(number)
        return number >= self._count or (thread is not None and thread.ended)


def _lanes(mask: int) -> list[int]:
    return [lane for lane in range(_LANES) if mask >> lane & 1]


def _mask(lanes: Iterable[int]) -> np.int32:
    """Return a lane mask as a signed integer, as in Numba."""
    number = sum(1 << lane for lane in lanes)
    return np.int32(number - 2**_LANES if number >> (_LANES - 1) else number)


def _warps() -> Warps:
    return threading.current_thread()._manager.warps  # type: ignore[attr-defined, no-any-return]


def _lane() -> int:
    return threading.current_thread().thread_id % _LANES  # type: ignore[attr-defined, no-any-return]


def _bits(value: Any) -> tuple[int, int]:
    """Return an integer as unsigned, and its width in bits: 64 for a Python integer, which Numba types as int64."""
    width = 64 if not isinstance(value, np.generic) or value.itemsize == 8 else 32
    return int(value) % 2**width, width


def _missing(name: str) -> AttributeError:
    return AttributeError(f"{name} is for GPUs only: Numba's simulator, which the host device uses, lacks it")


class GpuOnly:
    """Replacement in simulated kernels for Numba's stubs, whose Python would silently return None."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        raise _missing(f"{self._name}.{name}")

    def __call__(self, *arguments: Any) -> Any:  # noqa: ARG002, D102 - whatever they are
        raise _missing(self._name)


class SimulatedModule(kernelapi.FakeCUDAModule):  # type: ignore[misc]
    """`cuda` in a simulated kernel."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(cuda, name)  # AttributeError, if Numba lacks it, too
        if isinstance(found, types.Type):
            return found
        raise _missing(f"cuda.{name}")

    def popc(self, value: Any) -> int:
        """Count the set bits."""
        return _bits(value)[0].bit_count()

    def clz(self, value: Any) -> int:
        """Count the zero bits above the highest set bit."""
        number, width = _bits(value)
        return width - number.bit_length()

    def ffs(self, value: Any) -> int:
        """Return the number of the lowest set bit, from 1, or 0."""
        number, _ = _bits(value)
        return (number & -number).bit_length()

    def brev(self, value: Any) -> int:
        """Reverse the bits."""
        number, width = _bits(value)
        return int(f"{number:0{width}b}"[::-1], 2)

    def nanosleep(self, _: Any) -> None:
        """Let other threads run."""
        time.sleep(0)

    def lanemask_lt(self) -> int:
        """Return the lanes before this one."""
        return (1 << _lane()) - 1

    def activemask(self) -> int:
        """Return the lanes that have not ended."""
        return _warps().active()

    def syncwarp(self, mask: int = _FULL) -> None:
        """Wait for the other threads of the warp."""
        _warps().exchange(mask, None)

    def shfl_sync(self, mask: int, value: Any, lane: int) -> Any:
        """Return the value of a lane."""
        return _warps().exchange(mask, value).get(int(lane) % _LANES, value)

    def shfl_up_sync(self, mask: int, value: Any, delta: int) -> Any:
        """Return the value of the lane `delta` before this one, or this lane's value."""
        return _warps().exchange(mask, value).get(_lane() - int(delta), value)

    def shfl_down_sync(self, mask: int, value: Any, delta: int) -> Any:
        """Return the value of the lane `delta` after this one, or this lane's value."""
        return _warps().exchange(mask, value).get(_lane() + int(delta), value)

    def shfl_xor_sync(self, mask: int, value: Any, lanes: int) -> Any:
        """Return the value of the lane whose number differs by these bits."""
        return _warps().exchange(mask, value).get(_lane() ^ int(lanes), value)

    def ballot_sync(self, mask: int, predicate: Any) -> np.int32:
        """Return the lanes for which the predicate is true."""
        return _mask(lane for lane, holds in _warps().exchange(mask, predicate).items() if holds)

    def any_sync(self, mask: int, predicate: Any) -> bool:
        """Return whether the predicate is true for any lane."""
        return any(_warps().exchange(mask, predicate).values())

    def all_sync(self, mask: int, predicate: Any) -> bool:
        """Return whether the predicate is true for all lanes."""
        return all(_warps().exchange(mask, predicate).values())

    def eq_sync(self, mask: int, predicate: Any) -> bool:
        """Return whether the predicate is the same for all lanes."""
        return len({bool(one) for one in _warps().exchange(mask, predicate).values()}) == 1

    def match_any_sync(self, mask: int, value: Any) -> np.int32:
        """Return the lanes with the same value."""
        return _mask(lane for lane, other in _warps().exchange(mask, value).items() if other == value)

    def match_all_sync(self, mask: int, value: Any) -> tuple[np.int32, bool]:
        """Return the lanes if all have the same value, otherwise 0, and whether they have."""
        values = _warps().exchange(mask, value)
        same = all(other == value for other in values.values())
        return _mask(values if same else ()), same


def _load(_: Any, array: Any, index: Any) -> Any:
    return array[index]


def _store(_: Any, array: Any, index: Any, value: Any) -> None:
    array[index] = value


def _add(names: tuple[str, ...], function: Callable[..., Any]) -> None:
    for name in names:
        setattr(SimulatedModule, name, function)


# Cache hints, which have no effect on the host device.
_add(("ldca", "ldcg", "ldcs", "ldcv", "ldlu"), _load)
_add(("stcg", "stcs", "stwb", "stwt"), _store)
