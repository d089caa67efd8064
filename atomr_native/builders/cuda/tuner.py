"""Choosing among candidates by measuring them, on the device, on a stream of its own.

Operands lie in sets that together are larger than the L2 cache and are taken in turn, as by a program whose operands
come from memory.  Where one set fits into the cache, it is also taken again and again, as by a program that has just
written them, and the geometric mean of both times counts.  A first pass times every candidate a few times; then those
near the fastest and the heuristic's own are timed in turn, in blocks of rounds, until two blocks in a row have the same
winner by their medians.  Only a candidate that beats the heuristic's by more than a measurement errs is taken.
"""

from __future__ import annotations

import logging
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Protocol

import numpy as np

from ...errors import LibraryError, OutOfMemory, Unsupported
from ...plans.tuning import Tuned, TuningKey, TuningStore

__all__ = ["Backend", "Candidate", "Problem", "Progress", "Tuner", "gpu_of"]

_log = logging.getLogger("atomr_native.worker")

_MOST: Final = 40
_FINALISTS: Final = 8
#: Rounds of a block, and the most blocks.
_ROUNDS: Final = 5
_BLOCKS: Final = 4
#: Launches of the first pass, and fewer of those that take long.
_ROUGH: Final = 10
_FEWEST: Final = 3
#: Times that of the fastest in the first pass, with which a candidate may still win.
_NEAR: Final = 1.5
#: Minimum microseconds of one timing, and maximum number of its launches.
_SPAN: Final = 300.0
_LAUNCHES: Final = 200
#: Minimum gain of a candidate over the heuristic's choice.
_GAIN: Final = 0.99
_CACHE: Final = 128 << 20
#: Bytes of operands that stay in an L2 cache beside what else goes through it.
_WARM: Final = 16 << 20
_SETS: Final = 32
_ALIGNMENT: Final = 256

#: Called with (done, total, what).
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to compute a problem.

    Attributes
    ----------
    choice : tuple of int
        Says it to whoever builds the plan.
    workspace : int
        Bytes.
    config : dict
        The choice in readable form.
    """

    choice: tuple[int, ...]
    workspace: int
    config: dict[str, Any] = field(compare=False)


class Problem(Protocol):
    """What is tuned: one specification of one operation."""

    @property
    def operation(self) -> str:
        """Its name, part of the key of results."""

    @property
    def title(self) -> str:
        """The operation in messages, as in "a matmul"."""

    @property
    def digest(self) -> str:
        """Digest of the specification, see `atomr_native.plans.tuning.spec_digest`."""

    def accepts(self, choice: tuple[int, ...]) -> bool:
        """Whether a choice that was kept can be one of this operation."""

    def candidates(self) -> list[Candidate]:
        """Return the candidates, the heuristic's first."""

    def operand_bytes(self) -> list[int]:
        """Return the bytes that each operand reaches over."""

    def tiles(self) -> Sequence[np.ndarray[Any, Any]]:
        """Return bytes for each operand, with which it is filled again and again."""

    def time(self, candidate: Candidate, addresses: list[int], sets: int, launches: int, workspace: int) -> float:
        """Return microseconds of a launch; addresses are those of the operands, set by set."""


class Backend(Protocol):
    """Device memory."""

    def allocate(self, nbytes: int) -> int:
        """Make and map memory."""

    def free(self, address: int, nbytes: int) -> None:
        """Unmap it."""

    def copy_now(self, target: int, source: int, nbytes: int) -> None:
        """Copy, and wait."""


def gpu_of(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts about a device on which results depend, for a `TuningKey`."""
    return {
        "name": str(facts.get("name", "")),
        "compute_capability": list(facts.get("compute_capability", ())),
        "multiprocessors": int(facts.get("multiprocessors", 0)),
    }


class Tuner:
    """Chooses candidates by measuring them, or from what is known.

    Parameters
    ----------
    backend
        The device's memory.
    library : str
        ``"cublaslt"``, for example.
    version : int
        As the library gives it.
    facts : dict
        What the device is.
    store : TuningStore, optional
        Where results are kept.
    warm : int
        Bytes of operands that are also taken again and again, as those that have just been written.
    """

    def __init__(
        self,
        backend: Backend,
        library: str,
        version: int,
        facts: dict[str, Any],
        store: TuningStore | None = None,
        *,
        warm: int = _WARM,
    ) -> None:
        self._backend, self._warm = backend, warm
        self._library = library
        self._version = version
        self._gpu = gpu_of(facts)
        self._store = store or TuningStore()

    def known(self, problem: Problem) -> Tuned | None:
        """Return the best choice if it has been measured before."""
        found = Tuned.from_json(self._store.find(self._key(problem)))
        return found if found is not None and problem.accepts(found.choice) else None

    def best(self, problem: Problem, progress: Progress | None = None) -> Tuned | None:
        """Return the best choice; measures, up to some seconds, if it is not known yet.

        None if there is no candidate, or no memory to measure in.
        """
        found = self.known(problem)
        if found is not None:
            return found
        candidates = dict.fromkeys(problem.candidates())
        if not candidates:
            return None
        with self._store.single_flight(self._key(problem)):
            return self.known(problem) or self._measure(problem, list(candidates)[:_MOST], progress)

    def _key(self, problem: Problem) -> TuningKey:
        return TuningKey(self._library, self._version, self._gpu, problem.operation, problem.digest)

    def _measure(self, problem: Problem, candidates: list[Candidate], progress: Progress | None) -> Tuned | None:
        first = candidates[0]
        try:
            best, times = self._race(problem, candidates, progress or (lambda *_: None))
        except OutOfMemory as error:
            _log.warning("%s is not tuned, for want of memory to measure in: %s", problem.title, error)
            return None
        if not math.isfinite(times[first]):
            _log.warning("%s is not tuned: the library refuses the algorithm that its heuristic names", problem.title)
            return None
        tuned = Tuned(best.choice, best.workspace, times[best], times[first], best.config)
        try:
            self._store.keep(self._key(problem), asdict(tuned))
        except OSError as error:
            _log.warning("what tuning has found cannot be kept in %s: %s", self._store.folder, error)
        return tuned

    def _race(
        self, problem: Problem, candidates: list[Candidate], progress: Progress
    ) -> tuple[Candidate, dict[Candidate, float]]:
        """Return the winner, and microseconds of the finalists, the heuristic's among them."""
        first = candidates[0]
        parts = [-(-n // _ALIGNMENT) * _ALIGNMENT for n in problem.operand_bytes()]
        need = max(candidate.workspace for candidate in candidates)
        sets = max(1, min(_SETS, -(-2 * _CACHE // sum(parts))))
        total, address = 0, 0
        while True:
            total = need + _ALIGNMENT + sets * sum(parts)
            try:
                address = self._backend.allocate(total)
                break
            except OutOfMemory:
                if sets == 1:
                    raise
                sets = max(1, sets // 2)
        try:
            base = address + -(-need // _ALIGNMENT) * _ALIGNMENT
            self._fill(problem, base, parts, sets)
            addresses = [base + i * sum(parts) + sum(parts[:j]) for i in range(sets) for j in range(len(parts))]
            steps = len(candidates) + _BLOCKS

            def time(candidate: Candidate, launches: int, sets: int) -> float:
                given = addresses[: sets * len(parts)]
                try:
                    return problem.time(candidate, given, sets, launches, address if need else 0)
                except (LibraryError, Unsupported) as error:
                    if isinstance(error, LibraryError) and error.lib == "cuda":
                        raise  # the device's own
                    return float("inf")

            def both(candidate: Candidate, launches: int) -> float:
                cold = time(candidate, launches, sets)
                return math.sqrt(cold * time(candidate, launches, 1)) if sum(parts) <= self._warm else cold

            rough: dict[Candidate, float] = {}
            for done, candidate in enumerate(candidates, 1):
                best_yet = min(rough.values(), default=0.1)
                rough[candidate] = both(candidate, int(max(_FEWEST, min(_ROUGH, _ROUGH * _SPAN / best_yet))))
                progress(done, steps, f"{rough[candidate]:.1f} us, {candidate.config}")
            span = max(min(rough.values()), 0.1)
            near = [candidate for candidate in rough if rough[candidate] <= _NEAR * span]
            ranked = sorted(near, key=lambda candidate: rough[candidate])[:_FINALISTS]
            finalists = list(dict.fromkeys([first, *ranked]))
            launches = int(max(3, min(_LAUNCHES, _SPAN / span)))
            rounds: dict[Candidate, list[float]] = {candidate: [] for candidate in finalists}
            winners: list[Candidate] = []
            for block in range(1, _BLOCKS + 1):
                for _ in range(_ROUNDS):
                    for candidate in finalists:
                        rounds[candidate].append(both(candidate, launches))
                winners.append(_least(finalists, {one: values[-_ROUNDS:] for one, values in rounds.items()}))
                repeated = winners[-2:] == winners[-1:] * 2
                progress(steps if repeated else len(candidates) + block, steps, f"{len(finalists)} finalists")
                if repeated:
                    break
        finally:
            self._backend.free(address, total)
        times = {candidate: statistics.median(values) for candidate, values in rounds.items()}
        best = _least(finalists, rounds)
        return best if times[best] < _GAIN * times[first] else first, times

    def _fill(self, problem: Problem, base: int, parts: list[int], sets: int) -> None:
        tiles = problem.tiles()
        at = base
        for _ in range(sets):
            for tile, nbytes in zip(tiles, parts, strict=True):
                for start in range(0, nbytes, tile.nbytes):
                    self._backend.copy_now(at + start, tile.ctypes.data, min(tile.nbytes, nbytes - start))
                at += nbytes


def _least(candidates: Sequence[Candidate], times: Mapping[Candidate, Sequence[float]]) -> Candidate:
    """Return the candidate with the least median, the first of several."""
    return min(candidates, key=lambda candidate: statistics.median(times[candidate]))
