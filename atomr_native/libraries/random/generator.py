"""Generators: they hand out ranges of random numbers, each once."""

from __future__ import annotations

import os
from typing import Any, Final, NamedTuple

import numpy as np

from ..._lib.guard import Lock
from ..._support.checks import as_integer
from ..._support.philox import philox
from ..._support.public import public
from ...errors import InvalidRequest

__all__ = ["POSITIONS", "SEEDS", "STREAMS", "Generator", "RandomRange"]

#: Seeds, streams and positions are below these.
SEEDS: Final = 2**64
POSITIONS: Final = 2**64
STREAMS: Final = 2**32
_WORD: Final = 2**32 - 1
_SPLIT: Final = 0xFFFFFFFF  # the last word of the counters of seeds: no draw has it


@public
class RandomRange(NamedTuple):
    """Random numbers of a request: `offset` and as many positions after it as the request has elements.

    Attributes
    ----------
    seed, stream, offset : int

    Examples
    --------
    >>> an.Generator(7).take(100)
    RandomRange(seed=7, stream=0, offset=0)
    """

    seed: int
    stream: int
    offset: int


@public
class Generator:
    """A source of random numbers, in the program: each range that it hands out is used once.

    It draws nothing itself and belongs to no device.  Requests that take it carry a range, so a restart of a device
    loses nothing.  Threads may share it.  Its pickle, or a copy, goes on where it is: both hand out the same ranges.

    Parameters
    ----------
    seed : int, optional
        From 0 to 2**64 - 1; by default of the operating system's entropy.
    stream : int
        From 0 to 2**32 - 1: streams of one seed have nothing in common.

    Raises
    ------
    InvalidRequest
        For numbers beyond these limits.

    Examples
    --------
    >>> g = an.Generator(7)
    >>> x = device.random.normal((2, 3), generator=g)
    >>> g.offset
    6
    >>> first, second = g.split(2)
    >>> first.seed == second.seed
    False
    """

    def __init__(self, seed: int | None = None, *, stream: int = 0) -> None:
        # Numbers below 2**63 take the quick way of a call.
        fresh = int.from_bytes(os.urandom(8)) >> 1
        self._seed = fresh if seed is None else as_integer("seed", seed, 0, SEEDS - 1)
        self._stream = as_integer("stream", stream, 0, STREAMS - 1)
        self._offset = 0
        self._children = 0
        self._lock = Lock(leaf=True)

    @property
    def seed(self) -> int:
        """The seed."""
        return self._seed

    @property
    def stream(self) -> int:
        """The stream."""
        return self._stream

    @property
    def offset(self) -> int:
        """The first position that is not handed out."""
        return self._offset

    def take(self, count: int) -> RandomRange:
        """Return the next `count` positions.

        Raises
        ------
        InvalidRequest
            If fewer are left, of 2**64.
        """
        count = as_integer("count", count, 0, POSITIONS)
        with self._lock:
            start = self._offset
            if start + count > POSITIONS:
                raise InvalidRequest(f"count={count} after {start} positions; allowed: {POSITIONS - start} or fewer")
            self._offset = start + count
        return RandomRange(self._seed, self._stream, start)

    def split(self, count: int) -> list[Generator]:
        """Return generators of seeds and streams of their own, which follow from this one's and from earlier splits."""
        count = as_integer("count", count, 0, STREAMS)
        with self._lock:
            start = self._children
            self._children = start + count
        numbers = np.arange(start, start + count, dtype=np.uint64)
        zeros = np.zeros_like(numbers)
        counter = (numbers & np.uint64(_WORD), numbers >> np.uint64(32), zeros + np.uint64(self._stream),
                   zeros + np.uint64(_SPLIT))  # fmt: skip
        low, high, stream, _ = philox(counter, (self._seed & _WORD, self._seed >> 32))
        seeds = low | (high & np.uint64(_WORD >> 1)) << np.uint64(32)
        return [Generator(int(s), stream=int(t)) for s, t in zip(seeds, stream, strict=True)]

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._lock = Lock(leaf=True)

    def __repr__(self) -> str:
        return f"<Generator seed={self._seed} stream={self._stream} offset={self._offset}>"
