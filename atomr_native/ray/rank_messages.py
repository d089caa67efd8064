"""Messages between the ranks of a communicator over nodes and their meeting place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..actors.ref import ActorRef
from ..errors import AtomrError
from ..libraries.collective.attributes import Step
from .arrays import as_bytes, from_bytes

__all__ = ["MEET", "Brought", "ByHost", "Call", "Data", "Failed", "Given", "Go", "Here", "Join", "Stamp"]

#: One building of a communicator: which life of the meeting, and the generation.
Stamp = tuple[str, int]


@dataclass(frozen=True)
class Data:
    """An array as bytes."""

    blob: bytes
    shape: tuple[int, ...]
    dtype: str

    @classmethod
    def of(cls, array: np.ndarray[Any, Any], dtype: str) -> Data:
        """Return an array as bytes."""
        return cls(as_bytes(array).tobytes(), array.shape, dtype)

    def array(self) -> np.ndarray[Any, Any]:
        """Return the array."""
        return from_bytes(np.frombuffer(self.blob, np.uint8), self.shape, self.dtype)


@dataclass(frozen=True)
class Given:
    """The name of an array of a rank, from which the others take what they need."""

    node: str
    incarnation: int
    ident: int
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Here:
    """An array that stays with its rank, which brings it to the others by NCCL."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Go:
    """The ranks agree on a call, and run it.

    Attributes
    ----------
    step : Step
        The collective, as of a communicator of one System.
    given : tuple
        The array of each rank: `Given`, `Data`, `Here`, or None.
    shapes : tuple
        The shape of each rank's result; None for a rank without.
    number : int
        Of the call, in its communicator.
    stage : str
        Empty for ranks that take from each other.  By NCCL: ``"connect"``, the first call of a generation; ``"fresh"``,
        the first one of its kind, for which each rank has a plan built; ``"known"``.
    timeout : float, optional
        Seconds that a rank waits for its result, by NCCL.
    """

    step: Step
    given: tuple[Given | Data | Here | None, ...]
    shapes: tuple[tuple[int, ...] | None, ...]
    number: int = 0
    stage: str = ""
    timeout: float | None = None


@dataclass(frozen=True)
class ByHost:
    """Some ranks have found that they do not meet by NCCL: all call again, through host memory."""


@dataclass(frozen=True)
class Brought:
    """A rank's news when ranks meet again: a value, or its error.

    Attributes
    ----------
    own : bool
        Whether the error is the rank's own, and not about another one.
    """

    value: Any = None
    error: AtomrError | None = None
    own: bool = True


@dataclass(frozen=True)
class Failed:
    """A rank's message by NCCL has failed: a new generation begins.  Answered by the cause.

    Attributes
    ----------
    error : AtomrError, optional
        The rank's own; None for a rank that could have taken part.
    """

    stamp: Stamp
    rank: int
    error: AtomrError | None


#: The call by which ranks meet again: each brings what the others may take, or an error.
MEET = "meet"


@dataclass(frozen=True)
class Join:
    """A rank has begun; `seat` ends with its process.  Answered by the `Stamp` of its calls."""

    rank: int
    seat: ActorRef


@dataclass(frozen=True)
class Call:
    """One collective of one rank.

    Attributes
    ----------
    stamp, rank
        Of which building of the communicator, by which rank.
    what : tuple
        Kind, operation, factor and root, on which all ranks agree.
    data : Data, Given, Here, AtomrError or None
        What the rank gives; an error if it cannot take part.  When ranks meet again, what it brings.
    counts : tuple of int, optional
        Of ``all_to_all``: rows for each rank.
    by_nccl : bool
        Whether the rank wants to meet the others by NCCL.
    """

    stamp: Stamp
    rank: int
    what: tuple[str, str, float | None, int]
    data: Data | Given | Here | Brought | AtomrError | None = None
    counts: tuple[int, ...] | None = None
    by_nccl: bool = False
