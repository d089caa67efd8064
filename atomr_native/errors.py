"""Typed errors.

Every failure that reaches a user is one of these classes.  All of them can be pickled, none keeps frames or device
memory alive, and each message names the offending value and the allowed ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = [
    "ActorStopped",
    "AskTimeout",
    "AtomrError",
    "DependencyFailed",
    "DeviceFault",
    "DeviceLost",
    "FactorizationError",
    "GpuRefStale",
    "InvalidAxis",
    "InvalidRequest",
    "LibraryError",
    "LoopLimitReached",
    "MailboxFull",
    "MessageCall",
    "NestedCall",
    "NoArrayOperator",
    "NoCudaArrayInterface",
    "NoReply",
    "NodeLost",
    "NotConverged",
    "NotPositiveDefinite",
    "OutOfMemory",
    "PlanQuarantined",
    "SingularMatrix",
    "Suspect",
    "UnhandledMessage",
    "UnknownOption",
    "Unsupported",
]

_NAMED = 8  # operands in the text of an error


@dataclass(frozen=True)
class MessageCall:
    """The call behind an asynchronous error: a message to a device, with its operation and operands.

    Attributes
    ----------
    device, actor : str
        The device and its actor.
    ticket : int
        The number of the message among those of the actor, from 1.
    operation : str
        The operation's name, such as ``"blas_lt.matmul"``.
    operands : tuple of (str, str, tuple of int)
        Name, dtype and shape of each array, in the order of the message.
    file, line : str or None, int or None
        The place in the program that sent the message: with ``System(debug=True)`` or ``ATOMR_NATIVE_DEBUG=1``.
    """

    device: str
    actor: str
    ticket: int
    operation: str
    operands: tuple[tuple[str, str, tuple[int, ...]], ...] = ()
    file: str | None = None
    line: int | None = None

    def __str__(self) -> str:
        arrays = [f"{name}: {dtype}{list(shape)}" for name, dtype, shape in self.operands[:_NAMED]]
        if len(self.operands) > _NAMED:
            arrays.append(f"and {len(self.operands) - _NAMED} more")
        where = f", sent at {self.file}:{self.line}" if self.file is not None else ""
        return f"message {self.ticket} of {self.actor!r}: {self.operation}({', '.join(arrays)}){where}"


class AtomrError(Exception):
    """Base class of all errors of this library.

    Attributes
    ----------
    call : MessageCall or None
        The call that an asynchronous error belongs to; None for an error that its call raises itself.
    """

    call: MessageCall | None = None

    def __init__(self, message: str = "") -> None:
        super().__init__(message)
        self.message = message

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions pickle as type(*args); these carry attributes, so they are rebuilt from their state.
        return _rebuild, (type(self), self.args, dict(self.__dict__))


def _rebuild(cls: type[AtomrError], args: tuple[Any, ...], state: dict[str, Any]) -> AtomrError:
    base: Any = cls.__base__
    error: AtomrError = base.__new__(cls)  # OutOfMemory needs MemoryError's
    error.args = args
    error.__dict__.update(state)
    return error


class InvalidRequest(AtomrError, ValueError):
    """A request that can never work; raised before anything is enqueued."""


class InvalidAxis(InvalidRequest, IndexError):
    """An axis that an array does not have."""


class UnknownOption(InvalidRequest, TypeError):
    """A misspelt option: a keyword argument that a function does not take.

    Attributes
    ----------
    option : str
        The name that was given.
    nearest : str or None
        The allowed name that is most like it.
    allowed : tuple of str
        All allowed names.
    """

    def __init__(self, message: str, option: str, nearest: str | None, allowed: tuple[str, ...]) -> None:
        super().__init__(message)
        self.option = option
        self.nearest = nearest
        self.allowed = tuple(allowed)


class Unsupported(AtomrError):
    """A valid request that is not possible here.

    Attributes
    ----------
    rule : str
        The name of the rule that failed, stable and dotted: ``"blas_lt.dense_axis"``.  For a refusal by a library, the
        library and its status: ``"cublaslt.CUBLAS_STATUS_NOT_SUPPORTED"``.  ``""`` where the rule has no name.
    lifted_by : tuple of str
        Changes that lift the rule, each alone: an option of the request or the System (``"copies"``,
        ``"workspace_limit"``), other operands (``"dtype"``, ``"shape"``, ``"layout"``), another ``"epilogue"``, a newer
        ``"library"``, a driver of a version (``"driver 12.4"``), or another ``"device"``.  Empty if unknown.

    Notes
    -----
    Programs decide by `rule` and `lifted_by`; the message is for people, and its wording may change.
    """

    def __init__(self, message: str = "", *, rule: str = "", lifted_by: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.rule = rule
        self.lifted_by = tuple(lifted_by)


class PlanQuarantined(Unsupported):
    """A plan whose build or run has killed the worker twice; it is not tried again."""


class NoArrayOperator(Unsupported, TypeError):
    """A `GpuRef` beside an operand that is none, or in a function of NumPy that devices lack; says what to write."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message, rule="arrays.operators")


class NoCudaArrayInterface(Unsupported, AttributeError):
    """An array that ``__cuda_array_interface__`` cannot describe; ``hasattr`` returns False for it."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message)
        self.name = "__cuda_array_interface__"  # otherwise Python stores the array itself, and keeps its memory alive


class GpuRefStale(AtomrError):
    """A handle whose memory is gone.

    Attributes
    ----------
    reason : str
        ``"freed"``, ``"device restarted"``, ``"device closed"``, ``"torn"``, ``"rolled back"`` or ``"node lost"``.
    """

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class OutOfMemory(AtomrError, MemoryError):
    """Device memory is exhausted; the device stays usable.

    Attributes
    ----------
    requested, free, largest, limit : int or None
        Requested bytes, free bytes in total, the largest free block, and the memory limit.  None where the source of
        the error does not know the number.
    """

    def __init__(
        self,
        message: str = "",
        *,
        requested: int | None = None,
        free: int | None = None,
        largest: int | None = None,
        limit: int | None = None,
    ) -> None:
        super().__init__(message)
        self.requested = requested
        self.free = free
        self.largest = largest
        self.limit = limit


class LibraryError(AtomrError):
    """A library refused or failed an operation.

    Attributes
    ----------
    lib, name, operation : str
        The library, the name of its status or exception, and the failed operation.
    status : int
        The library's own status number (0 if it has none).
    """

    def __init__(self, lib: str, status: int, name: str, operation: str, detail: str = "") -> None:
        text = f"{lib}: {name} ({status}) in {operation}"
        super().__init__(f"{text}: {detail}" if detail else text)
        self.lib = lib
        self.status = status
        self.name = name
        self.operation = operation


class FactorizationError(LibraryError):
    """A matrix has no factorisation, or no inverse; the device's work found it.

    Attributes
    ----------
    operation : str
        ``"solver.solve"``, for example.
    index : tuple of int
        The first such matrix of the batch; ``()`` where there is no batch.
    info : int
        LAPACK's info number of that matrix: the order of the leading minor, or the place on the diagonal, from 1.
    count : int
        How many matrices of the batch are so.
    """

    _reason = "has no factorisation: info {info}"

    def __init__(self, operation: str, index: tuple[int, ...], info: int, count: int) -> None:
        where = f" at index {index} of the batch" if index else ""
        more = f"; {count} matrices of the batch are so" if count > 1 else ""
        AtomrError.__init__(self, f"{operation}: the matrix{where} {self._reason.format(info=info)}{more}")
        self.lib = "solver"
        self.status = info
        self.name = type(self).__name__
        self.operation = operation
        self.index = tuple(index)
        self.info = info
        self.count = count

    @property
    def words(self) -> str:
        """The text by which it crosses from a lane, in which `status` and `name` go along."""
        return f"{self.operation}\n{','.join(map(str, self.index))}\n{self.count}"


class SingularMatrix(FactorizationError):
    """A matrix is singular: element `info`, from 1, of the diagonal of its factor is exactly zero."""

    _reason = "is singular: element {info} of the diagonal of its factor is exactly zero"


class NotPositiveDefinite(FactorizationError):
    """A matrix is not positive definite: its leading minor of order `info` is not positive."""

    _reason = "is not positive definite: its leading minor of order {info} is not positive"


class NotConverged(FactorizationError):
    """The iteration for singular values or eigenvalues did not converge; `info` values are left, by LAPACK's count."""

    _reason = "has no result: the iteration did not converge (info {info})"


class LoopLimitReached(LibraryError):
    """A loop of a recorded plan has run as often as it may, and its flag was not zero.

    Attributes
    ----------
    step : int
        The loop, among the steps of the plan: ``plan.steps[step]``.
    limit : int
        How often it has run, and may.
    """

    def __init__(self, step: int, limit: int) -> None:
        AtomrError.__init__(self, f"the loop of step {step} has run {limit} times, its limit, and its flag is not zero")
        self.lib = "program"
        self.status = limit
        self.name = type(self).__name__
        self.operation = "program.replay"
        self.step = step
        self.limit = limit


@dataclass(frozen=True)
class Suspect:
    """A message that was claimed and not completed when the worker died."""

    actor: str
    ticket: int
    operation: str


class DeviceFault(AtomrError):
    """The worker of a device died while this message was running.

    Attributes
    ----------
    suspects : tuple of Suspect
        Every message that was claimed and incomplete.  The likeliest causes come first: messages with no incomplete
        predecessor in their mailbox or by their operands.
    restarted : bool
        Whether the device comes back (then send the message again), or is lost.
    code, name : int, str
        The cause of the worker's end: an error of the device (700, ``"CUDA_ERROR_ILLEGAL_ADDRESS"``), a signal (11,
        ``"SIGSEGV"``), a status (3, ``"exit"``), or the watchdog (9, ``"watchdog"``); 0 and ``""`` if nothing is known.
    """

    def __init__(
        self,
        message: str,
        suspects: tuple[Suspect, ...] = (),
        restarted: bool = True,
        code: int = 0,
        name: str = "",
    ) -> None:
        super().__init__(message)
        self.suspects = suspects
        self.restarted = restarted
        self.code = code
        self.name = name


class DeviceLost(AtomrError):
    """The device will not come back: its restart budget is spent, or it cannot restart here.

    Attributes
    ----------
    cause : DeviceFault or None
        The fault that ended it, if there was one.
    """

    cause: DeviceFault | None = None

    def __init__(self, message: str, cause: DeviceFault | None = None) -> None:
        super().__init__(message)
        if cause is not None:
            self.cause = cause


class MailboxFull(AtomrError):
    """The mailbox had no room within the time allowed; nothing was sent.

    Attributes
    ----------
    actor : str
        The actor that owns the mailbox.
    capacity : int
        Its size: messages for a Python actor, cells of 256 bytes for a device's actor.
    """

    def __init__(self, message: str, actor: str, capacity: int) -> None:
        super().__init__(message)
        self.actor = actor
        self.capacity = capacity


class AskTimeout(AtomrError, TimeoutError):
    """A wait ran out of time.  The message itself is not cancelled."""


class DependencyFailed(AtomrError):
    """A message was not run, since an operand was to be written by a message that failed.

    Attributes
    ----------
    cause : AtomrError
        The first failure.
    """

    def __init__(self, message: str, cause: AtomrError) -> None:
        super().__init__(message)
        self.cause = cause


class ActorStopped(AtomrError):
    """The actor or device was closed before the message could run."""


class NestedCall(AtomrError):
    """A call was made in the middle of another call of the same thread, and would have waited for it for ever.

    Destructors and callbacks of the garbage collector or of weak references run at any allocation, so also inside a
    call of this library.  Let another thread make their calls, or make them later.  Signal handlers never get it.
    """


class UnhandledMessage(AtomrError):
    """The actor has no handler for a message of this type."""


class NoReply(AtomrError):
    """The actor took the message to answer it later, and then dropped it."""


class NodeLost(AtomrError):
    """The process or the machine of a cluster's node ended.

    Attributes
    ----------
    node : str
        The node's name, such as ``"node1"``.
    may_have_run : bool
        Whether the message had left for the node: then it may have run, or not.  A message that had not left was not
        run.

    Examples
    --------
    >>> lost = an.NodeLost("node1 ended", "node1", may_have_run=True)
    >>> lost.node, lost.may_have_run
    ('node1', True)
    """

    def __init__(self, message: str, node: str, may_have_run: bool = False) -> None:
        super().__init__(message)
        self.node = node
        self.may_have_run = may_have_run


for _name in __all__:  # as `_support.public` does, which is above this module
    globals()[_name].__module__ = "atomr_native"
del _name
