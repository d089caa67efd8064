"""Messages of the control protocol: its version, answers, faults on request, and the error of a lost worker."""

from __future__ import annotations

import sys
from typing import Annotated, Any, Final

from msgspec import Meta, Struct, field

from ..errors import AtomrError
from .frames import ProtocolError, close_fds

__all__ = [
    "ABI",
    "FAULTS",
    "GPU_FAULTS",
    "IDLE_GPU_FAULT",
    "Answer",
    "BuildAnswer",
    "GroupAnswer",
    "WorkerGone",
    "package_version",
]

#: Characters of a text about a plan, at most.
_LONGEST: Final = 1 << 16

#: Version of the control protocol; parent and worker must agree.
ABI: Final = 2

#: Faults that a worker commits on request, for tests of recovery.
FAULTS: Final = ("segfault", "abort", "exit", "hang", "raise")

#: Faults of a GPU, each committed by a message.
GPU_FAULTS: Final = ("illegal address", "misaligned address", "trap", "assert", "endless")
#: A GPU fault outside any message, on a stream without waiting messages.
IDLE_GPU_FAULT: Final = "illegal address while idle"


class BuildAnswer(Struct, frozen=True):
    """What a worker says about a plan that it has built.

    Attributes
    ----------
    workspace : int
        Bytes of device memory that its messages need besides their operands; not checked yet.
    notes : tuple of str
        What is not computed by a single library call, and why.
    tuning : str
        The result of tuning, for people.
    """

    workspace: int = 0
    notes: tuple[Annotated[str, Meta(max_length=_LONGEST)], ...] = ()
    tuning: Annotated[str, Meta(max_length=_LONGEST)] = ""


class GroupAnswer(Struct, frozen=True):
    """What a worker says about a durable group that it has examined.

    Attributes
    ----------
    sequence, tag : int
        Those of the commit that it holds, by its header; not checked yet.
    damaged : bool
        Whether that commit is lost.
    strayed : bool
        Whether the members differ from it, although no message has written them.
    """

    sequence: Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
    tag: Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
    damaged: bool = False
    strayed: bool = False


def package_version() -> str:
    """Return the version of this package, which parent and worker compare."""
    return str(sys.modules["atomr_native"].__version__)


class WorkerGone(AtomrError):
    """The worker's end of the control socket is closed, or its messages are malformed.

    Internal: the supervisor turns it into `DeviceFault` or `DeviceLost`.
    """


class Answer(Struct):
    """A worker's answer.  The receiver owns the descriptors in `fds` and closes them."""

    fields: dict[str, Any]
    fds: list[int] = field(default_factory=list)

    def take_fd(self) -> int:
        """Return the one descriptor of this answer, which the caller then owns.

        Raises
        ------
        ProtocolError
            If there is not exactly one; all of them are closed.
        """
        fds, self.fds = self.fds, []
        if len(fds) != 1:
            close_fds(fds)
            raise ProtocolError(f"an answer came with {len(fds)} descriptors instead of 1")
        return fds[0]

    def close(self) -> None:
        """Close the descriptors that were not taken.  Idempotent."""
        fds, self.fds = self.fds, []
        close_fds(fds)
