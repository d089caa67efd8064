"""Engines of cuDNN as candidates of the tuner: those that its heuristics name, each measured on scratch memory."""

from __future__ import annotations

import array
import hashlib
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np

from ...._lib.cudnn import GraphPlan
from ....builders.cuda.context import CudaContext
from ....builders.cuda.trials import Reach, Trials
from ....builders.cuda.tuner import Candidate, Tuner
from ....errors import LibraryError, Unsupported
from ....plans.tuning import TuningStore, spec_digest
from .descriptors import GraphDescription

__all__ = ["GraphTuner", "is_measurable"]

#: Changes with how graphs become plans.
_FORMAT: Final = 3
#: Engines that are tried, and seconds after which no further one is made: compiling one may take more than a second.
_MOST: Final = 32
_SECONDS: Final = 6.0
#: Bytes of operands that count as what the message before has written: images of a layer are, and L2 caches have 50 MB.
_WARM: Final = 32 << 20
#: Dtypes whose numbers say where others are: with made-up ones an engine would read anywhere.
_PLACES: Final = ("int32", "int64")


def is_measurable(description: GraphDescription) -> bool:
    """Whether a graph may run on made-up numbers: none of them are lengths, places or pages."""
    return not any(dtype in _PLACES for _, dtype in description.reaches)


class _Graph(Trials):
    """A graph that is tuned."""

    operation = "cudnn.graph"
    title = "a graph of cuDNN"

    def __init__(self, context: CudaContext, description: GraphDescription) -> None:
        super().__init__(context, [Reach(0, nbytes, dtype) for nbytes, dtype in description.reaches])
        self._description = description

    @property
    def digest(self) -> str:
        """Digest of everything that decides the time of an engine."""
        words = hashlib.sha256(array.array("q", self._description.words).tobytes()).hexdigest()
        return spec_digest([_FORMAT, words, self._description.banned, self._description.workspace_limit])

    def accepts(self, choice: tuple[int, ...]) -> bool:
        """Whether numbers are a place in the heuristics' list, and an engine."""
        return len(choice) == 2 and 0 <= choice[0] < _MOST

    def _made(self, place: int) -> GraphPlan | None:
        """Return the plan of a place in the heuristics' list; None: cuDNN refuses it.

        Raises
        ------
        IndexError
            The list is shorter.
        """
        try:
            return GraphPlan(self.context.backend, replace(self._description, only=place))
        except LibraryError as error:
            if error.lib == "cuda":
                raise  # the device's own
        except Unsupported as error:
            if error.rule == "cudnn.candidates":
                raise IndexError(place) from None
        return None

    def candidates(self) -> list[Candidate]:
        """Return the engines that do with the workspace, the heuristics' first choice first."""
        return list(self._candidates())

    def _candidates(self) -> Iterator[Candidate]:
        end = time.monotonic() + _SECONDS
        for place in range(_MOST):
            if place and time.monotonic() > end:
                return
            try:
                made = self._made(place)
            except IndexError:
                return
            if made is not None and made.workspace <= self._description.workspace_limit:
                choice = (place, made.engine)
                self.runs[choice] = self.context.backend.prepare(made)
                yield Candidate(choice, made.workspace, {"engine": made.engine, "place": place})

    def numbers(self, rng: np.random.Generator, dtype: np.dtype[Any], count: int) -> np.ndarray[Any, Any]:
        """Return numbers for an operand."""
        return rng.integers(0, 2, count) if dtype.kind in "biu" else rng.standard_normal(count) * 0.1


class GraphTuner:
    """Chooses engines by measuring them, or from what is known.

    Parameters
    ----------
    context : CudaContext
    version : int
        Of cuDNN.
    measure : bool
        Whether to measure what is not known; that takes up to some seconds.
    store : TuningStore, optional

    Attributes
    ----------
    lines : list of str
        About each graph that was tuned, for people.
    """

    def __init__(self, context: CudaContext, version: int, *, measure: bool, store: TuningStore | None = None) -> None:
        self._context, self._measure = context, measure and not context.deterministic
        self._tuner = Tuner(context.backend, "cudnn", version, dict(context.facts), store, warm=_WARM)
        self.lines: list[str] = []

    def tuned(self, description: GraphDescription) -> tuple[GraphDescription, int] | None:
        """Return the description with its fastest engine, and that engine's number; None: it is not known."""
        if not is_measurable(description):
            return None
        problem = _Graph(self._context, description)
        found = self._tuner.best(problem, self._context.progress) if self._measure else self._tuner.known(problem)
        if found is None:
            return None
        self.lines.append(str(found))
        return replace(description, only=found.choice[0]), found.choice[1]
