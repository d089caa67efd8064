"""A rank's part in a collective of large arrays: it takes what it needs from the other ranks, and computes its result.

Bytes go from rank to rank.  Reductions are those of host devices, in the order of ranks, so the results have the bits
of one System's, whatever is cut into pieces.  With more than two ranks each rank of an all-reduce reduces a part, and
takes the other parts from the ranks that have reduced them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ..dtypes import as_dtype
from ..errors import AtomrError, GpuRefStale, NodeLost
from ..libraries.collective.reductions import reduce_into
from .moving.server import part_of
from .rank_messages import Data, Given, Go, Here

if TYPE_CHECKING:
    from ..arrays.gpu_ref import GpuRef
    from ..device import Device
    from .peer import Peer

__all__ = ["Exchange"]

_PIECE = 16 << 20  # bytes of each rank that are in host memory at once
_TWO = 2

#: Meets the other ranks again; returns what each has brought.
Meet = Callable[["Given | AtomrError | None"], tuple[Any, ...]]


class Exchange:
    """One call of one rank.

    Parameters
    ----------
    peer : Peer
    go : Go
    rank : int
    device : Device
        Of this rank.
    factor : float, optional
    meet : callable
    """

    def __init__(self, peer: Peer, go: Go, rank: int, device: Device, factor: float | None, meet: Meet) -> None:
        self._peer, self._go, self._rank, self._device, self._meet = peer, go, rank, device, meet
        self._step, self._size = go.step, len(go.given)
        self._dtype = as_dtype(go.step.dtype)
        self._factor = None if factor is None else np.asarray([factor]).astype(self._dtype)

    def run(self, out: GpuRef | None) -> GpuRef | None:
        """Return this rank's result, in `out` if it is given.

        Raises
        ------
        AtomrError
            Its own, or that of a rank that could not go on.
        """
        shape = self._go.shapes[self._rank]
        made = None if shape is None else self._device.empty(shape, self._dtype)
        kind = self._step.kind
        if made is None:
            self._together(lambda: None)
        elif kind == "all_reduce" and self._size > _TWO:
            self._all_reduce(made)
        else:
            self._together(lambda: self._fill(made))
        if made is None or out is None:
            return made
        return self._device.copy(made, out)  # not before all have read what they wanted, which `out` may be

    def _together(self, work: Callable[[], object], bring: Callable[[], Given] | None = None) -> tuple[Any, ...]:
        """Do this rank's work, and meet the others: all go on, or none."""
        try:
            work()
            brought: Any = None if bring is None else bring()
        except NodeLost as error:
            brought = error
        except GpuRefStale as error:
            lost = error.reason == "node lost"
            brought = NodeLost(str(error), "") if lost else error
        except AtomrError as error:
            brought = error
        return self._meet(brought)

    def _fill(self, made: GpuRef) -> None:
        kind, step, rank = self._step.kind, self._step, self._rank
        if kind in ("all_reduce", "reduce"):
            self._reduce(made, 0, 0, step.count)
        elif kind == "reduce_scatter":
            self._reduce(made, 0, rank * step.count, step.count)
        elif kind in ("all_gather", "gather"):
            for source in range(self._size):
                self._take(source, 0, step.count, part_of(made, source * step.count, step.count))
        elif kind == "broadcast":
            self._take(step.root, 0, step.count, part_of(made, 0, step.count))
        elif kind == "scatter":
            self._take(step.root, rank * step.count, step.count, part_of(made, 0, step.count))
        else:
            at = 0
            for source, row in enumerate(step.counts):
                first = [0, *accumulate(row)][rank]
                self._take(source, first, row[rank], part_of(made, at, row[rank]))
                at += row[rank]

    def _all_reduce(self, made: GpuRef) -> None:
        """Reduce a part, and take the others'."""
        count = self._step.count
        bounds = [count * number // self._size for number in range(self._size + 1)]
        first, last = bounds[self._rank], bounds[self._rank + 1]
        host = self._peer.host
        assert host is not None  # noqa: S101 - a rank is on a node
        holds: list[object] = []

        def bring() -> Given:
            made.wait()
            given, hold = host.give(made)
            holds.append(hold)
            return given

        parts = self._together(lambda: self._reduce(made, first, first, last - first), bring)

        def take() -> None:
            for source, (begin, end) in enumerate(pairwise(bounds)):
                if source != self._rank:
                    self._take_from(parts[source], begin, end - begin, part_of(made, begin, end - begin))

        self._together(take)

    def _reduce(self, made: GpuRef, at: int, first: int, count: int) -> None:
        """Reduce some elements of all ranks, from number `first`, to elements of `made` from number `at`."""
        factor = self._factor
        for begin, size in self._pieces(count):
            parts = [self._array(source, first + begin, size) for source in range(self._size)]
            total = np.empty(size, self._dtype)
            reduce_into(total, parts, self._step.op, None if factor is None else lambda _: factor[0])
            self._device.put(total, out=part_of(made, at + begin, size))

    def _pieces(self, count: int) -> Iterator[tuple[int, int]]:
        most = _PIECE // self._dtype.itemsize
        for begin in range(0, count, most):
            yield begin, min(most, count - begin)

    def _given(self, source: int) -> Given | Data | None:
        found = self._go.given[source]
        assert not isinstance(found, Here)  # noqa: S101 - those go by NCCL
        return found

    def _array(self, source: int, first: int, count: int) -> np.ndarray[Any, Any]:
        """Return some elements of a rank's array."""
        given = self._given(source)
        if isinstance(given, Data):
            return given.array().reshape(-1)[first : first + count]
        assert given is not None  # noqa: S101 - as the step says
        own = self._own(given)
        if own is not None:
            return part_of(own, first, count).numpy()
        found: np.ndarray[Any, Any] = self._brought(given, None, None, (first, count))
        return found

    def _take(self, source: int, first: int, count: int, target: GpuRef) -> None:
        """Copy some elements of a rank's array to an array of this one."""
        given = self._given(source)
        if not count:
            return
        if isinstance(given, Data):
            self._device.put(given.array().reshape(-1)[first : first + count], out=target)
        else:
            assert given is not None  # noqa: S101 - as the step says
            self._take_from(given, first, count, target)

    def _take_from(self, given: Given, first: int, count: int, target: GpuRef) -> None:
        if not count:
            return
        own = self._own(given)
        if own is None:
            self._brought(given, self._device, target, (first, count))
        else:
            self._device.copy(part_of(own, first, count), target)

    def _own(self, given: Given) -> GpuRef | None:
        """Return an array of this node, contiguous; None for one of another."""
        found = self._peer.own_array(given.node, given.incarnation, given.ident)
        return found if found is None or found.layout.contiguous else found.device.copy(found)

    def _brought(self, given: Given, device: Device | None, out: GpuRef | None, part: tuple[int, int]) -> Any:
        link = self._peer.link(given.node)
        found = link.bring(given.incarnation, given.ident, device, out, part)
        if found is not None:
            return found
        _, blob = link.control("fetch", given.incarnation, given.ident)  # only the engine reaches the node
        array = np.asarray(blob).view(self._dtype)[part[0] : sum(part)]
        return array.copy() if device is None else device.put(array, out=out)
