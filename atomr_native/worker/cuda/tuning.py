"""Measuring the algorithms of a matmul, on the device, on a stream of its own.

Operands lie in sets that together are larger than the L2 cache and are taken in turn.  A first pass times every
candidate a few times; a second one times the fastest and the heuristic's own in turn, round by round, and the least
median wins.  Only an algorithm that beats the heuristic's by more than a measurement errs is taken.
"""

from __future__ import annotations

import logging
import math
import statistics
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, Protocol

import numpy as np

from ...dtypes import DTYPES
from ...errors import LibraryError, OutOfMemory, Unsupported
from ...plan_spec import signed_word
from ...tuning import TuningStore
from .lt_description import MatmulDescription
from .lt_tables import TYPES

__all__ = ["Tuner", "operand_bytes"]

_log = logging.getLogger("atomr_native.worker")

#: Workspaces to ask the heuristic with, bytes: split-K and stream-K algorithms want some.
_WORKSPACES: Final = (0, 1 << 20, 4 << 20, 32 << 20)
_EACH: Final = 16
_MOST: Final = 40
_FINALISTS: Final = 6
_ROUNDS: Final = 9
#: Microseconds that one timing should take at least, and launches in one at most.
_SPAN: Final = 300.0
_LAUNCHES: Final = 200
#: What an algorithm must gain over the heuristic's.
_GAIN: Final = 0.99
_CACHE: Final = 128 << 20
_SETS: Final = 32
_TILE: Final = 4 << 20
_ALIGNMENT: Final = 256

Algorithm = tuple[int, ...]
#: Called with (done, total, what).
Progress = Callable[[int, int, str], None]


class Measured(Protocol):
    """A native matmul that can be measured."""

    def candidates(self, limit: int, most: int) -> list[tuple[Algorithm, int, dict[str, int]]]:
        """Return algorithms with their workspaces and what they are."""

    def time(
        self, algo: Algorithm, addresses: list[int], sets: int, launches: int, workspace: int, nbytes: int
    ) -> float:
        """Return microseconds of a launch."""


class Backend(Protocol):
    """Device memory."""

    def borrow(self, nbytes: int) -> int:
        """Make and map memory."""

    def give_back(self, address: int, nbytes: int) -> None:
        """Unmap it."""

    def copy_now(self, target: int, source: int, nbytes: int) -> None:
        """Copy, and wait."""


def operand_bytes(d: MatmulDescription) -> list[int]:
    """Return the bytes that each operand of a description reaches over."""
    sizes = dict(TYPES.values())
    nbytes = [16] * d.n_operands

    def span(columns: int, ld: int, rows: int, step: int) -> int:
        return (d.batch - 1) * step + (columns - 1) * ld + rows

    rows_a, columns_a = (d.k, d.m) if d.trans_a else (d.m, d.k)
    rows_b, columns_b = (d.n, d.k) if d.trans_b else (d.k, d.n)
    if d.order_a:
        rows_a, columns_a = columns_a, rows_a
    if d.order_b:
        rows_b, columns_b = columns_b, rows_b
    nbytes[d.a] = span(columns_a, d.ld_a, rows_a, d.step_a) * sizes[d.type_a]
    nbytes[d.b] = span(columns_b, d.ld_b, rows_b, d.step_b) * sizes[d.type_b]
    nbytes[d.d] = span(d.n, d.ld_d, d.m, d.step_d) * sizes[d.type_d]
    if d.c >= 0:
        nbytes[d.c] = max(nbytes[d.c], span(d.n, d.ld_c, d.m, d.step_c) * sizes[d.type_c])
    side = sizes[d.type_bias if d.type_bias >= 0 else d.type_d]
    for vector in (d.bias, d.bias_grad):
        if vector >= 0:
            nbytes[vector] = ((d.batch - 1) * d.step_bias + max(d.m, d.n)) * side
    if d.aux >= 0:
        bits = 8 * sizes[d.type_aux if d.type_aux >= 0 else d.type_d] if not d.epilogue & (2 | 8) else 1
        nbytes[d.aux] = -(-((d.batch - 1) * d.step_aux + d.n * d.ld_aux) * bits // 8)
    blocks = -(-d.k // 128) + 4
    for scale, outer in ((d.a_scale, d.m), (d.b_scale, d.n)):
        if scale >= 0:
            nbytes[scale] = 4 * (outer + 128) * blocks
    return nbytes


def _key(description: MatmulDescription) -> list[int]:
    return list(replace(description, zero=0, has_algo=0, algo=(0,) * 8).words())


class Tuner:
    """Chooses algorithms by measuring them, or from what is known.

    Parameters
    ----------
    backend
        The device's memory.
    library : int
        ``cublasLtGetVersion()``.
    facts : dict
        What the device is.
    store : TuningStore, optional
        Where results are kept.
    """

    def __init__(self, backend: Backend, library: int, facts: dict[str, Any], store: TuningStore | None = None) -> None:
        self._backend = backend
        self._library = library
        self._gpu = {
            "name": str(facts.get("name", "")),
            "compute_capability": list(facts.get("compute_capability", ())),
            "multiprocessors": int(facts.get("multiprocessors", 0)),
        }
        self._store = store or TuningStore()

    def tuned(
        self, description: MatmulDescription, native: Measured, *, measure: bool, progress: Progress | None = None
    ) -> tuple[MatmulDescription, str]:
        """Return the description with the best algorithm that is known, and a line about it; "" if there is none.

        Measures if asked to, and nothing is known yet; that takes up to some seconds.
        """
        key = _key(description)
        entry = self._store.find(self._library, self._gpu, key)
        if entry is None and measure and native.candidates(description.workspace_bytes, _EACH):
            with self._store.single_flight(self._library, self._gpu, key):
                entry = self._store.find(self._library, self._gpu, key)
                if entry is None:
                    entry = self._measure(description, native, key, progress)
        if entry is None:
            return description, ""
        config = ", ".join(f"{name} {value}" for name, value in sorted(entry["config"].items()))
        line = (
            f"tuned: {entry['microseconds']:.1f} us, {entry['heuristic_microseconds']:.1f} us by the heuristic's "
            f"choice; {config}"
        )
        algo = tuple(map(signed_word, entry["algorithm"]))
        return replace(description, has_algo=1, algo=algo), line

    def microseconds(self, description: MatmulDescription) -> float | None:
        """Return how long a matmul takes with its best algorithm, None if that is not known."""
        entry = self._store.find(self._library, self._gpu, _key(description))
        return None if entry is None else float(entry["microseconds"])

    def _measure(
        self, description: MatmulDescription, native: Measured, key: list[int], progress: Progress | None
    ) -> dict[str, Any] | None:
        candidates: dict[Algorithm, tuple[int, dict[str, int]]] = {}
        for limit in (description.workspace_bytes, *_WORKSPACES):
            for algo, workspace, config in native.candidates(min(limit, description.workspace_bytes), _EACH):
                candidates.setdefault(algo, (workspace, config))
        chosen = dict(list(candidates.items())[:_MOST])
        try:
            best, first, times = self._race(description, native, chosen, progress or (lambda *_: None))
        except OutOfMemory as error:
            _log.warning("a matmul is not tuned, for want of memory to measure in: %s", error)
            return None
        if not math.isfinite(times[first]):
            _log.warning("a matmul is not tuned: the library refuses the algorithm that its heuristic names")
            return None
        entry = {
            "library": self._library,
            "gpu": self._gpu,
            "description": key,
            "algorithm": list(best),
            "workspace": chosen[best][0],
            "config": chosen[best][1],
            "microseconds": times[best],
            "heuristic_microseconds": times[first],
        }
        try:
            self._store.keep(entry)
        except OSError as error:
            _log.warning("what tuning has found cannot be kept in %s: %s", self._store.folder, error)
        return entry

    def _race(
        self,
        description: MatmulDescription,
        native: Measured,
        chosen: dict[Algorithm, tuple[int, dict[str, int]]],
        progress: Progress,
    ) -> tuple[Algorithm, Algorithm, dict[Algorithm, float]]:
        """Return (the winner, the heuristic's choice, microseconds of each)."""
        first = next(iter(chosen))
        parts = [-(-n // _ALIGNMENT) * _ALIGNMENT for n in operand_bytes(description)]
        need = max(workspace for workspace, _ in chosen.values())
        sets = max(1, min(_SETS, -(-2 * _CACHE // sum(parts))))
        total, address = 0, 0
        while True:
            total = need + _ALIGNMENT + sets * sum(parts)
            try:
                address = self._backend.borrow(total)
                break
            except OutOfMemory:
                if sets == 1:
                    raise
                sets = max(1, sets // 2)
        try:
            base = address + -(-need // _ALIGNMENT) * _ALIGNMENT
            self._fill(description, base, parts, sets)
            addresses = [base + i * sum(parts) + sum(parts[:j]) for i in range(sets) for j in range(len(parts))]
            steps, done = len(chosen) + _ROUNDS, 0

            def time(algo: Algorithm, launches: int) -> float:
                try:
                    return native.time(algo, addresses, sets, launches, address if need else 0, chosen[algo][0])
                except (LibraryError, Unsupported) as error:
                    if isinstance(error, LibraryError) and error.lib == "cuda":
                        raise  # the device's own
                    return float("inf")

            rough: dict[Algorithm, float] = {}
            for algo in chosen:
                rough[algo] = time(algo, 3)
                done += 1
                progress(done, steps, f"{rough[algo]:.1f} us, {chosen[algo][1]}")
            ranked = sorted(rough, key=lambda algo: rough[algo])[:_FINALISTS]
            finalists = list(dict.fromkeys([first, *ranked]))
            span = max(min(rough.values()), 0.1)
            launches = int(max(3, min(_LAUNCHES, _SPAN / span)))
            rounds: dict[Algorithm, list[float]] = {algo: [] for algo in finalists}
            for _ in range(_ROUNDS):
                for algo in finalists:
                    rounds[algo].append(time(algo, launches))
                done += 1
                progress(done, steps, f"{len(finalists)} finalists")
        finally:
            self._backend.give_back(address, total)
        times = {algo: statistics.median(values) for algo, values in rounds.items()}
        best = min(finalists, key=lambda algo: times[algo])
        return best if times[best] < _GAIN * times[first] else first, first, times

    def _fill(self, description: MatmulDescription, base: int, parts: list[int], sets: int) -> None:
        """Put numbers of ordinary size into the operands, since the GPU's clock depends on them; ones into scales."""
        rng = np.random.default_rng(0)
        d = description
        names = {number: name for name, (number, _) in TYPES.items()}
        kinds = {d.a: d.type_a, d.b: d.type_b, d.c: d.type_c, d.d: d.type_d}
        tiles: dict[int, Any] = {}
        for number in set(kinds.values()):
            dtype = DTYPES[names[number]]
            count = _TILE // dtype.itemsize
            wide = rng.integers(-8, 8, count) if dtype.kind == "i" else rng.standard_normal(count)
            tiles[number] = wide.astype(dtype).view(np.uint8)
        ones = np.ones(_TILE // 4, np.float32).view(np.uint8)  # scales, factors, bias
        at = base
        for _ in range(sets):
            for operand, nbytes in enumerate(parts):
                tile = tiles[kinds[operand]] if operand in kinds else ones
                for start in range(0, nbytes, _TILE):
                    length = min(_TILE, nbytes - start, tile.nbytes)
                    self._backend.copy_now(at + start, tile.ctypes.data, length)
                at += nbytes
