"""The plans of a communicator's messages, one a rank, kept by what they say."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from .._lib.guard import Lock, shielded
from ..dtypes import as_dtype
from ..libraries.collective.attributes import CollectiveAttributes, Step
from ..plans.plan import Plan
from ..plans.signature import signature_of
from ..plans.spec import OVERWRITE, READ, WRITE, PlanSpec, describe
from .request import Lowered, Use

__all__ = ["RankPlans"]


class RankPlans:
    """Plans of the messages that were sent last.  Its methods may be called from any thread.

    Parameters
    ----------
    number : int
        The communicator's, which workers know it by.
    owners : list
        The state of each rank's device.
    lane_of : callable
        Returns the number of a device's mailbox for collectives.
    limit : int
        Messages to keep.
    """

    def __init__(self, number: int, owners: list[Any], lane_of: Callable[[Any], int], limit: int) -> None:
        self._number = number
        self._owners = owners
        self._lane_of = lane_of
        self._limit = limit
        self._kept: OrderedDict[tuple[PlanSpec, ...], list[Plan]] = OrderedDict()
        self._copies: OrderedDict[tuple[int, int, int, bool], list[Plan]] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def of(self, lowered: Lowered, *, any_layout: bool = False) -> list[Plan]:
        """Return the plan of each rank; the workers build them asynchronously."""
        key = tuple(self._spec(lowered, rank) for rank in range(len(self._owners)))
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
                return found
        return self._make(key, any_layout)

    def of_copy(self, source: int, target: int, nbytes: int, direct: bool) -> list[Plan]:
        """Return the plan of each rank of a copy of so many bytes, directly from the source's memory or not."""
        key = source, target, nbytes, direct
        found = self._copies.get(key)
        return self._make_copy(key) if found is None else found

    def clear(self) -> list[list[Plan]]:
        """Forget all plans but those of copies; return them."""
        with self._lock:
            plans = list(self._kept.values())
            self._kept.clear()
        return plans

    def _make_copy(self, key: tuple[int, int, int, bool]) -> list[Plan]:
        source, target, nbytes, direct = key
        layout = Use("x", writes=False, ref=None, shape=(nbytes,), dtype="uint8")
        into = Use("out", writes=True, ref=None, shape=(nbytes,), dtype="uint8")
        uses: list[list[Use]] = [[] for _ in self._owners]
        uses[source].append(layout)
        uses[target] += [layout, into] if direct else [into]
        step = Step("peer_copy" if direct else "copy", "uint8", nbytes, root=source, target=target)
        found = self.of(Lowered("copy", step, uses, lambda _: None), any_layout=True)
        with self._lock:
            self._copies[key] = found
            while len(self._copies) > self._limit:
                self._copies.popitem(last=False)
        return found

    @shielded
    def _make(self, key: tuple[PlanSpec, ...], any_layout: bool) -> list[Plan]:
        made = []
        for owner, spec in zip(self._owners, key, strict=True):
            names = ("meeting", "sequence", *(f"factor{i}" for i in range(len(spec.scalars) - 2)))
            signature = signature_of(spec, names, (0,) * len(names))
            made.append(Plan.make(owner, self._lane_of(owner), spec, signature, any_layout=any_layout))
        with self._lock:
            found = self._kept.setdefault(key, made)
            while len(self._kept) > self._limit:
                self._kept.popitem(last=False)
        return found

    def _spec(self, lowered: Lowered, rank: int) -> PlanSpec[CollectiveAttributes]:
        steps = lowered.steps_of(rank)
        operands = tuple(_operand(use, place) for place, use in enumerate(lowered.uses[rank]))
        scalars = ("int64", "int64", *("float64" for _ in lowered.numbers))
        attributes = CollectiveAttributes(self._number, rank, len(self._owners), steps)
        return PlanSpec(f"collective.{lowered.kind}", operands, scalars, attributes)


class _Layout:
    """The layout of an array that is not allocated yet."""

    def __init__(self, use: Use) -> None:
        self.shape = use.shape
        self.dtype = as_dtype(use.dtype)
        strides, step = [], self.dtype.itemsize
        for n in reversed(use.shape):
            strides.append(step)
            step *= max(n, 1)
        self.strides = tuple(reversed(strides))


def _operand(use: Use, place: int) -> Any:
    layout: Any = _Layout(use) if use.ref is None else use.ref
    return describe(f"{use.name}{place}", layout, WRITE | OVERWRITE if use.writes else READ)
