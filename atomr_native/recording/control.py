"""Control flow of recordings: branches and loops that the device decides by flags in its memory."""

from __future__ import annotations

from types import TracebackType
from typing import Final

from .._support.checks import as_integer
from .._support.public import public
from ..arrays.gpu_ref import GpuRef
from ..errors import InvalidRequest
from ..libraries.program.attributes import FLAG_TYPES, MAX_BODIES
from ..plans.spec import WRITE
from .recorder import Body, Control, Message, Recorder, Use

__all__ = [
    "MAX_DEPTH",
    "MAX_LIMIT",
    "RecordedBlock",
    "RecordedCases",
    "begin_else",
    "begin_if",
    "begin_switch",
    "begin_while",
]

MAX_LIMIT: Final = 2**31 - 1
MAX_DEPTH: Final = 32


def flag_use(recorder: Recorder, flag: object, what: str) -> Use:
    """Return the use of a flag, or of the index of a switch."""
    if not isinstance(flag, GpuRef):
        raise InvalidRequest(f"{what} is a {type(flag).__name__}; allowed: a GpuRef of one element")
    if flag.allocation.core is not recorder.core:
        raise InvalidRequest(f"{what} lives on another device or in another System")
    if flag.size != 1 or flag.layout.dtype_name not in FLAG_TYPES:
        raise InvalidRequest(f"{what} is {flag.layout!r}; allowed: one element of {', '.join(FLAG_TYPES)}")
    return recorder.flag(flag)


@public
class RecordedBlock:
    """The messages of a branch or a loop, inside ``with``; made by the methods of `Recording`.

    An exception inside leaves nothing of the block in the recording.

    Examples
    --------
    >>> x, flag = device.zeros(2), device.ones((), dtype="bool")
    >>> with device.record() as recording:
    ...     block = recording.if_(flag)
    ...     with block:
    ...         _ = x.fill(1)
    >>> recording.plan.tell()
    >>> x.numpy()
    array([1., 1.], dtype=float32)
    """

    def __init__(self, recorder: Recorder, control: Control, number: int, *, added: bool = False) -> None:
        self._recorder = recorder
        self._control = control
        self._number = number
        self._added = added
        self._state = "not begun"

    def __enter__(self) -> RecordedBlock:
        recorder = self._recorder
        if self._state != "not begun":
            raise InvalidRequest(f"this block is {self._state}; allowed: each block once")
        if not recorder.listens():
            raise InvalidRequest("this block is of another recording, or its recording has ended")
        if len(recorder.inside) == MAX_DEPTH:
            raise InvalidRequest(f"blocks inside of {MAX_DEPTH} blocks; allowed: {MAX_DEPTH}, one in the other")
        if not self._added:
            recorder.innermost.items.append(self._control)
        recorder.inside = (*recorder.inside, self._control.bodies[self._number])
        self._state = "open"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._state = "over"
        recorder, control = self._recorder, self._control
        recorder.inside = recorder.inside[:-1]
        if kind is not None:
            self._forget()
        elif control.kind == "while" and not _writes(control.bodies[0], control.flag):
            self._forget()
            raise InvalidRequest(
                "no message in the body of this while_ writes its flag, so it would end only at its limit; allowed: a "
                "body that writes the array that while_ was given"
            )

    def _forget(self) -> None:
        if self._added:
            self._control.bodies[self._number].items.clear()
        else:
            self._recorder.innermost.items.remove(self._control)


@public
class RecordedCases:
    """The blocks of a switch: ``with cases[i]:`` holds the messages that run where the index is `i`.

    A case without a block is empty.

    Examples
    --------
    >>> x, index = device.zeros(2), device.full((), 1, dtype="int64")
    >>> with device.record() as recording:
    ...     with recording.switch(index, 3) as cases:
    ...         for number in range(len(cases)):
    ...             with cases[number]:
    ...                 _ = x.fill(number)
    >>> recording.plan.tell()
    >>> x.numpy()
    array([1., 1.], dtype=float32)
    """

    def __init__(self, recorder: Recorder, control: Control) -> None:
        self._recorder = recorder
        self._control = control
        self._begun: set[int] = set()
        self._inside: tuple[Body, ...] = ()

    def __enter__(self) -> RecordedCases:
        if self._control in self._recorder.innermost.items or not self._recorder.listens():
            raise InvalidRequest("this switch has begun, or its recording has ended; allowed: each switch once")
        self._inside = self._recorder.inside
        self._recorder.innermost.items.append(self._control)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        items = self._recorder.innermost.items
        if kind is not None:
            items.remove(self._control)
        elif items[-1] is not self._control:
            del items[items.index(self._control) :]
            raise InvalidRequest("messages inside of switch(), but of no case; allowed: inside `with cases[i]`")

    def __len__(self) -> int:
        return len(self._control.bodies)

    def __getitem__(self, number: int) -> RecordedBlock:
        """Return the block of a case, once.

        Raises
        ------
        InvalidRequest
            For a number that is no case, one whose block has begun, or outside of the switch.
        """
        if type(number) is not int or not 0 <= number < len(self):
            raise InvalidRequest(f"case {number!r}; allowed: 0 to {len(self) - 1}")
        if number in self._begun:
            raise InvalidRequest(f"case {number} has a block already; allowed: one for each case")
        if self._recorder.inside != self._inside or self._control not in self._recorder.innermost.items:
            raise InvalidRequest(
                "a case outside of its switch; allowed: `with cases[i]` directly inside of `with switch`"
            )
        self._begun.add(number)
        return RecordedBlock(self._recorder, self._control, number, added=True)


def begin_if(recorder: Recorder, flag: object) -> RecordedBlock:
    """Return the block of `Recording.if_`."""
    return RecordedBlock(recorder, Control("if", flag_use(recorder, flag, "flag"), 1), 0)


def begin_else(recorder: Recorder) -> RecordedBlock:
    """Return the block of `Recording.else_`."""
    items = recorder.innermost.items
    last = items[-1] if items else None
    if not isinstance(last, Control) or last.kind != "if" or len(last.bodies) > 1:
        raise InvalidRequest("else_() without if_(); allowed: directly after the block of an if_(), once")
    last.bodies.append(Body())
    return RecordedBlock(recorder, last, 1, added=True)


def begin_while(recorder: Recorder, flag: object, limit: object) -> RecordedBlock:
    """Return the block of `Recording.while_`."""
    rounds = as_integer("limit", limit, 1, MAX_LIMIT)
    return RecordedBlock(recorder, Control("while", flag_use(recorder, flag, "flag"), 1, rounds), 0)


def begin_switch(recorder: Recorder, index: object, n: object) -> RecordedCases:
    """Return the cases of `Recording.switch`."""
    count = as_integer("n", n, 1, MAX_BODIES)
    return RecordedCases(recorder, Control("switch", flag_use(recorder, index, "index"), count))


def _writes(body: Body, flag: Use) -> bool:
    """Return whether a message in a body, or further inside, writes bytes of the flag."""
    for item in body.items:
        if isinstance(item, Message):
            for use in item.uses:
                if use.root == flag.root and use.access & WRITE and use.low < flag.high and flag.low < use.high:
                    return True
        elif any(_writes(inner, flag) for inner in item.bodies):
            return True
    return False
