"""Recording: messages of one thread become a plan, by a context manager or by a function."""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

import numpy as np

from .._lib.guard import Block
from .._support.checks import as_strings
from .._support.options import unknown_option
from .._support.public import public
from .._support.recorded import RecordedFloat, RecordedInt, is_recorded
from ..arrays.gpu_ref import GpuRef
from ..arrays.layout import layout_of
from ..arrays.owner import owner_of
from ..errors import InvalidRequest
from .control import RecordedBlock, RecordedCases, begin_else, begin_if, begin_switch, begin_while
from .plan import RecordedPlan
from .program import Program, program_of
from .recorder import Ranks, Recorder
from .temporaries import Temporaries

if TYPE_CHECKING:
    from .._lib.sender import Allocation
    from ..device import Device
    from ..plans.owner import PlanOwner

__all__ = ["GraphFunction", "Recording", "made_plan", "shared_with"]

Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")
Plans = TypeVar("Plans")

_RESERVED = ("retry",)


@public
class Recording(Block):
    """The messages of one thread to one device, listed instead of sent; made by `Device.record`.

    Inside the block, messages of this thread to this device are checked and listed; other threads, tasks and devices
    are not affected.  Afterwards `plan` sends the list as one message.  An exception inside leaves nothing behind.

    Examples
    --------
    >>> a = device.zeros(4)
    >>> with device.record() as recording:
    ...     x = recording.operand("x", a)
    ...     factor = recording.scalar("factor", 2.0)
    ...     y = x.fill(factor)
    >>> recording.plan.tell(x=a, factor=3.0)
    >>> a.numpy()
    array([3., 3., 3., 3.], dtype=float32)
    """

    def __init__(
        self, device: Device, owner: PlanOwner, lane: Callable[[], int], share: Temporaries | None = None
    ) -> None:
        self._device = device
        self._lane = lane
        self._owner = owner
        #: Where the plan's temporaries lie; None: in a block of its own.
        self.share = share
        self._recorder = Recorder(owner.core)
        #: The recording of a communicator that it belongs to, while that is open.
        self.block: Block | None = None
        self.program: Program | None = None
        #: By name; a communicator's ranks share them.
        self.numbers: dict[str, RecordedFloat | RecordedInt] = {}
        self._state = "not begun"
        self._plan: RecordedPlan | None = None

    @property
    def device(self) -> Device:
        """The device whose messages are recorded."""
        return self._device

    def _begin(self) -> None:
        if self._state != "not begun":
            raise InvalidRequest(f"this recording is {self._state}; allowed: one block for each device.record()")
        self._recorder.start(self)
        self._state = "open"

    def _end(self, kind: type[BaseException] | None, *_: object) -> None:
        self._recorder.stop()
        self._state = "over"
        recorder, self._recorder = self._recorder, Recorder(self._owner.core)
        if kind is not None:
            self._state = "broken off by an exception"
            return
        self.program = program_of(recorder, self.numbers, self._whole)
        self._plan = RecordedPlan.of(self._owner, self._lane(), self.program, self.share)
        self._plan.check_apart(tuple(ref for _, ref, _ in recorder.parameters))

    def together_with(self, ranks: Ranks, block: Block) -> None:
        """Be one of the recordings of a communicator's ranks, which begin and end together."""
        self._recorder.ranks = ranks
        self.block = block

    @property
    def recorder(self) -> Recorder:
        """What lists the messages."""
        return self._recorder

    def _whole(self, allocation: Allocation) -> GpuRef:
        """Return a handle of all bytes of an allocation that was made inside."""
        layout = layout_of((allocation.nbytes,), np.dtype(np.uint8))
        made: GpuRef = self._owner.core.whole_of(GpuRef, allocation, layout)
        return made

    def _open(self) -> None:
        if self._state != "open":
            raise InvalidRequest(f"this recording is {self._state}; allowed: inside `with device.record() as g`")

    def _check(self, name: object) -> str:
        self._open()
        known = [*(called for called, _, _ in self._recorder.parameters), *self.numbers]
        if not isinstance(name, str) or not name.isidentifier() or name in known or name in _RESERVED:
            raise InvalidRequest(
                f"name {name!r}; allowed: an identifier that is not in use: {', '.join([*known, *_RESERVED])}"
            )
        return name

    def operand(self, name: str, ref: GpuRef) -> GpuRef:
        """Make an array a parameter: each message of the plan is given another one of the same layout.

        Parameters
        ----------
        name : str
            An identifier.
        ref : GpuRef
            Its layout is the parameter's; its bytes are not touched.

        Returns
        -------
        GpuRef
            What stands for the parameter inside the recording, and views of which may be used there.

        Raises
        ------
        InvalidRequest
            For a name in use, outside of the block, or an array of another device.
        GpuRefStale
        """
        name = self._check(name)
        if not isinstance(ref, GpuRef):
            raise InvalidRequest(f"operand {name!r} is a {type(ref).__name__}; allowed: a GpuRef")
        if ref.allocation.core is not self._owner.core:
            raise InvalidRequest(f"operand {name!r} lives on another device or in another System")
        if self._recorder.owns(ref.allocation):
            raise InvalidRequest(f"operand {name!r} was made inside the recording; allowed: an array made before it")
        ref.allocation.refuse_gone()
        stands: GpuRef = self._owner.core.stand_in(ref)
        self._recorder.parameters.append((name, ref, stands.allocation))
        return stands

    def scalar(self, name: str, value: complex) -> Any:
        """Make a number a parameter: each message of the plan may give another one of the same kind.

        Parameters
        ----------
        name : str
            An identifier.
        value : float or int
            The default of messages, and the value with which checks are made while recording.

        Returns
        -------
        number
            To be passed to messages; arithmetic on it is refused.

        Raises
        ------
        InvalidRequest
            For a name in use, outside of the block, or a value of another kind.
        """
        name = self._check(name)
        found: Any = value.item() if isinstance(value, np.generic) else value
        if type(found) is float:
            self.numbers[name] = RecordedFloat(found, name)
        elif type(found) is int:
            self.numbers[name] = RecordedInt(found, name)
        else:
            raise InvalidRequest(f"scalar {name!r} is {value!r}; allowed: a float or an int")
        return self.numbers[name]

    def if_(self, flag: GpuRef) -> RecordedBlock:
        """Record messages that run if a flag is not zero: ``with g.if_(flag):``.

        The device reads the flag in each replay, when the messages before it have run.  Enqueues nothing.

        Parameters
        ----------
        flag : GpuRef
            One element of bool or of an integer type.

        Returns
        -------
        RecordedBlock
            A context manager.  `else_` may follow its block.

        Raises
        ------
        InvalidRequest
            For an array of another size, dtype or device, and outside of the recording's block.
        GpuRefStale

        Examples
        --------
        >>> x, large = device.full(2, 3.0), device.zeros((), dtype="bool")
        >>> with device.record() as g:
        ...     given = g.operand("x", x)
        ...     _ = device.copy(given[0] > 2, out=large)
        ...     with g.if_(large):
        ...         _ = given.fill(2)
        ...     with g.else_():
        ...         _ = given.fill(0)
        >>> g.plan.tell(x)
        >>> x.numpy()
        array([2., 2.], dtype=float32)
        """
        self._open()
        return begin_if(self._recorder, flag)

    def else_(self) -> RecordedBlock:
        """Record messages that run if the flag of the `if_` before was zero: ``with g.else_():``.

        Returns
        -------
        RecordedBlock
            A context manager.

        Raises
        ------
        InvalidRequest
            Where no block of an `if_` has just ended.
        """
        self._open()
        return begin_else(self._recorder)

    def while_(self, flag: GpuRef, *, limit: int) -> RecordedBlock:
        """Record messages that run as long as a flag is not zero: ``with g.while_(flag, limit=100):``.

        The device reads the flag before each round.  Enqueues nothing.

        Parameters
        ----------
        flag : GpuRef
            One element of bool or of an integer type, which a message of the block writes.
        limit : int
            The most rounds, 1 to 2147483647.  Where the flag is not zero after so many, the message of the plan fails
            with `LoopLimitReached`, and the arrays that it writes are poisoned.

        Returns
        -------
        RecordedBlock
            A context manager.

        Raises
        ------
        InvalidRequest
            As `if_`; at the end of the block, if none of its messages writes the flag.
        GpuRefStale

        Examples
        --------
        >>> x, more = device.ones(()), device.ones((), dtype="bool")
        >>> with device.record() as g:
        ...     with g.while_(more, limit=100):
        ...         _ = device.copy(x * 2, out=x)
        ...         _ = device.copy(x < 50, out=more)
        >>> g.plan.ask().result()
        >>> float(x)
        64.0
        """
        self._open()
        return begin_while(self._recorder, flag, limit)

    def switch(self, index: GpuRef, n: int) -> RecordedCases:
        """Record `n` blocks, of which that with the number in an array runs: ``with g.switch(index, n) as cases:``.

        The device reads the index when the messages before it have run.  Where it is no number of a block, none runs.
        Enqueues nothing.

        Parameters
        ----------
        index : GpuRef
            One element of bool or of an integer type.
        n : int
            How many cases there are, 1 to 1024.

        Returns
        -------
        RecordedCases
            A context manager, for the blocks ``with cases[i]:``.  A case without a block is empty.

        Raises
        ------
        InvalidRequest
            As `if_`.
        GpuRefStale

        Examples
        --------
        >>> x, index = device.zeros(2), device.full((), 1, dtype="int32")
        >>> with device.record() as g:
        ...     with g.switch(index, 2) as cases:
        ...         with cases[0]:
        ...             _ = x.fill(10)
        ...         with cases[1]:
        ...             _ = x.fill(11)
        >>> g.plan.tell()
        >>> x.numpy()
        array([11., 11.], dtype=float32)
        """
        self._open()
        return begin_switch(self._recorder, index, n)

    @property
    def plan(self) -> RecordedPlan:
        """The recorded plan.

        Raises
        ------
        InvalidRequest
            Before the end of the block, and after an exception in it.
        """
        return made_plan(self._plan, self._state)

    def __repr__(self) -> str:
        return f"<Recording on {self._device.name}, {self._state}>"


def made_plan(plan: Plans | None, state: str) -> Plans:
    """Return the plan of a recording; raise `InvalidRequest` where its block has not ended well."""
    if plan is None:
        raise InvalidRequest(f"this recording is {state}; a recording has a plan once its block has ended")
    return plan


def shared_with(device: Device, plan: object) -> Temporaries | None:
    """Return where the temporaries of a plan lie, which ``share=`` names.

    Raises
    ------
    InvalidRequest
        For anything but a recorded plan of the device, and None.
    """
    if plan is None:
        return None
    if not isinstance(plan, RecordedPlan):
        raise InvalidRequest(f"share is {plan!r:.200}; allowed: a recorded plan of this device")
    if plan.core is not owner_of(device).core:
        raise InvalidRequest(f"share is a plan of another device or System: {plan!r}; allowed: a plan of {device.name}")
    return plan.temporaries


@public
class GraphFunction(Generic[Parameters, Returned]):
    """A function of messages to one device that can be recorded; made by `Device.graph`.

    Calling it runs it as it is, message by message; `plan` records it.
    """

    def __init__(
        self,
        device: Device,
        function: Callable[Parameters, Returned],
        static: Iterable[str],
        share: bool | Temporaries | None = None,
    ) -> None:
        functools.update_wrapper(self, function)
        self._device = device
        self._function = function
        self._signature = inspect.signature(function)
        self._static = frozenset(as_strings("static", static, "parameter names"))
        for name in sorted(self._static.difference(self._signature.parameters)):
            raise InvalidRequest(f"static names {name!r}; parameters: {', '.join(self._signature.parameters)}")
        self._share = share
        self._common: Callable[[], Temporaries | None] | None = None  # of the plans, while one of them exists

    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Returned:
        """Run the function: its messages are sent one by one."""
        return self._function(*args, **kwargs)

    def plan(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> RecordedPlan:
        """Run the function once, record its messages, and return their plan; nothing is sent.

        Arrays among the arguments are the plan's operands, and floats and integers its numbers, both by the names of
        the function's parameters.  Any other argument, and those named in `static`, are as given in each message.

        Waits for the plans of the messages, as their first calls do.

        Raises
        ------
        InvalidRequest, Unsupported
            For what cannot be recorded.
        AtomrError
            The errors of the messages' checks.
        """
        try:
            given = self._signature.bind(*args, **kwargs)
        except TypeError:
            self._refuse_unknown(kwargs)
            raise
        given.apply_defaults()
        with self._recording() as recording:
            for name, value in given.arguments.items():
                if name in self._static:
                    continue
                if isinstance(value, GpuRef):
                    given.arguments[name] = recording.operand(name, value)
                elif type(value) in (int, float) or (isinstance(value, np.number) and not is_recorded(value)):
                    given.arguments[name] = recording.scalar(name, value)
            self._function(*given.args, **given.kwargs)
        return recording.plan

    def _recording(self) -> Recording:
        recording = self._device.record()
        if self._share is True:
            common = None if self._common is None else self._common()
            if common is None:
                common = Temporaries(owner_of(self._device).core)
                self._common = weakref.ref(common)
            recording.share = common
        elif self._share:
            recording.share = self._share
        return recording

    def _refuse_unknown(self, named: Collection[str]) -> None:
        known = tuple(self._signature.parameters)
        for name in named:
            if name not in known:
                raise unknown_option(f"{self._function.__qualname__} has no parameter {name!r}", name, known) from None

    def __repr__(self) -> str:
        return f"<GraphFunction {self._function.__qualname__} on {self._device.name}>"
