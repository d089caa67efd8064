"""The context and the result of a builder, on every kind of device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

__all__ = ["Built", "HostContext"]


@dataclass(frozen=True, slots=True)
class Built:
    """The built plan.

    Attributes
    ----------
    run : callable, str, KernelProgram, SequenceProgram or NativeRun
        A callable gets (arrays, scalars), under the GIL, and writes outputs in place; its exception becomes the
        message's error.  A string names a routine of the lanes: ``"noop"``, ``"workspace"``, ``"copy"`` (operand 0 to
        operand 1, scalar 0 bytes) and, on CUDA devices, ``"transfer"`` (a copy from or to memory of the host).  The
        others run natively on CUDA devices.
    workspace : int
        Bytes of device memory that a run needs besides its operands.
    notes : tuple of str
        The parts that are not computed by a single library call, and why.
    tuning : str
        The result of tuning, for people.
    """

    run: Callable[..., Any] | str | Any
    workspace: int = 0
    notes: tuple[str, ...] = ()
    tuning: str = ""


@dataclass(frozen=True, slots=True)
class HostContext:
    """The context of builders of the host device.

    Attributes
    ----------
    meetings : mapping of int to Seat
        The worker's places in communicators, by number.
    special : callable, optional
        Builds operations of tests; None for any other.
    """

    meetings: Mapping[int, Any] = field(default_factory=dict)
    special: Callable[[Any], Built | None] | None = None
    kind: ClassVar = "host"
