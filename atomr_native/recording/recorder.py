"""The list of messages of one thread to one device, while it records."""

from __future__ import annotations

import contextvars
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from .._lib.sender import STAGING, VOLATILE, Core, Layout
from .._support.recorded import RecordedFloat, RecordedInt, is_recorded, plain
from ..arrays.layout import layout_from
from ..errors import InvalidRequest, Unsupported
from ..libraries.program.attributes import StepAttributes, bodies_of
from ..plans.spec import OVERWRITE, READ, PlanSpec

if TYPE_CHECKING:
    from .._lib.sender import Allocation
    from ..arrays.gpu_ref import GpuRef
    from ..libraries.program.attributes import ProgramAttributes
    from ..plans.plan import Plan
    from .graph import Recording

__all__ = ["KEY_WORDS", "Body", "Control", "Message", "Ranks", "Recorder", "Use"]

#: Scalars with which a message of several devices begins, as meeting.h has them.
KEY_WORDS: Final = 2

#: The recorders of the running code, one a device: a thread may run coroutines that know nothing of each other.
_current: contextvars.ContextVar[tuple[Recorder, ...]] = contextvars.ContextVar("atomr_native.recorder", default=())

_NO_WAITING = (
    "waiting or reading inside a recording: it only lists messages, and nothing has run yet; wait before it, or after "
    "a message of its plan"
)


class Use(NamedTuple):
    """One operand of a recorded message.

    Attributes
    ----------
    root : Any
        What it lies in: the number of a parameter, or the name (slot, generation) of an allocation.
    layout : Layout
    offset : int
        Bytes from the parameter's first element, or from the start of the allocation.
    access : int
    name : str
        Of the operand in its plan.
    """

    root: Any
    layout: Layout
    offset: int
    access: int
    name: str

    @property
    def low(self) -> int:
        """The first byte that it touches, counted as `offset`."""
        return self.offset + self.layout.low

    @property
    def high(self) -> int:
        """The byte after the last."""
        return self.offset + self.layout.high


class Message(NamedTuple):
    """One recorded message: its plan, operands, words, and the recorded numbers among these, by place."""

    spec: PlanSpec
    uses: tuple[Use, ...]
    words: tuple[int, ...]
    numbers: dict[int, tuple[RecordedFloat | RecordedInt, str]]

    @property
    def spans_ranks(self) -> bool:
        """Whether it is a collective, whose first words are the key of the message that replays it."""
        return is_collective(self.spec)


class Body:
    """Steps that run together or not at all: those of the recording, or of a branch or a loop."""

    __slots__ = ("items",)

    def __init__(self) -> None:
        self.items: list[Message | Control] = []


class Control:
    """Recorded control flow.

    Attributes
    ----------
    kind : str
        ``"if"``, ``"while"`` or ``"switch"``.
    flag : Use
        The integer that decides.
    limit : int
        Of a loop.
    bodies : list of Body
    """

    __slots__ = ("bodies", "flag", "kind", "limit")

    def __init__(self, kind: Literal["if", "while", "switch"], flag: Use, bodies: int, limit: int = 0) -> None:
        self.kind: Literal["if", "while", "switch"] = kind
        self.flag = flag
        self.limit = limit
        self.bodies = [Body() for _ in range(bodies)]


class Ranks(NamedTuple):
    """What is recorded together: the number of a communicator, and the recorder of each rank."""

    number: int
    recorders: tuple[Recorder, ...]


class Recorder:
    """Lists the messages that the calling thread sends to a device, from `begin_recording` to `end_recording`.

    Parameters
    ----------
    core : Core
        The device.
    """

    def __init__(self, core: Core) -> None:
        self.core = core
        #: Whose messages it lists, meanwhile.
        self.recording: Recording | None = None
        self.body = Body()
        #: The bodies that are being recorded, the innermost last.
        self.inside: tuple[Body, ...] = ()
        #: Arrays that each replay is given: name, the array while recording, and the allocation that stands for it.
        self.parameters: list[tuple[str, GpuRef, Allocation]] = []
        #: Allocations made inside, by name.
        self.made: dict[tuple[int, int], Allocation] = {}
        #: The bodies in which that was.
        self.made_in: dict[tuple[int, int], tuple[Body, ...]] = {}
        #: Allocations used, that were made outside.
        self.bound: dict[tuple[int, int], GpuRef] = {}
        #: New results of recorded plans that were sent inside.
        self.awaited: list[Allocation] = []
        #: The recorders of all ranks, if this is one of a communicator's.
        self.ranks: Ranks | None = None
        self._pending: dict[int, tuple[RecordedFloat | RecordedInt, str]] = {}
        self._paused = False

    @staticmethod
    def current(core: Core) -> Recording:
        """Return the recording of the running code.

        Raises
        ------
        InvalidRequest
            If it records no messages to this device.
        """
        for found in _current.get():
            if found.core is core and found.recording is not None and found.is_open:
                return found.recording
        raise InvalidRequest("nothing is recorded here; allowed: inside a recording of this device")

    # ---- the span of the recording

    def start(self, recording: Recording) -> None:
        """Begin to list messages of this thread."""
        known = tuple(one for one in _current.get() if one.is_open)  # without those whose end was interrupted
        if known and (self.ranks is None or known[0].ranks is not self.ranks):
            raise InvalidRequest(
                "a recording inside a recording of the same thread; allowed: one at a time. Record the inner one before"
            )
        _current.set((*known, self))
        self.recording = recording
        self.core.begin_recording(self)

    def stop(self) -> None:
        """Send messages again.  Idempotent."""
        self.core.end_recording(self)
        self.recording = None
        _current.set(tuple(one for one in _current.get() if one is not self))

    # ---- called by the native sender

    def listens(self) -> bool:
        """Return whether the running code is recorded: not the tasks beside it, nor the library's own messages."""
        return self.is_open and not self._paused and any(one is self for one in _current.get())

    @property
    def is_open(self) -> bool:
        """Whether the block of the recording is not over."""
        return self.recording is not None and (self.recording.block or self.recording).is_open

    def owns(self, allocation: Allocation) -> bool:
        """Return whether messages of this recording may use an allocation that nobody else may use yet.

        It was made in this recording, stands for its parameter, or is the result of a plan that was sent inside.
        """
        name = (allocation.slot, allocation.generation)
        return (
            self.made.get(name) is allocation
            or any(given is allocation for _, _, given in self.parameters)
            or any(one is allocation for one in self.awaited)
        )

    def own(self, allocation: Allocation) -> None:
        """Note an allocation that was made inside; it keeps its memory until the recording ends."""
        self.made[allocation.slot, allocation.generation] = allocation
        self.made_in[allocation.slot, allocation.generation] = self.inside

    def aside(self, function: Callable[[], object]) -> None:
        """Call a function whose messages are the library's own: they are sent."""
        self._paused = True
        try:
            function()
        finally:
            self._paused = False

    def begin(self) -> None:
        """Begin a message: `note_number` and `take` follow, unless it is refused."""
        self._pending = {}

    def note_number(self, place: int, number: RecordedFloat | RecordedInt, integral: bool) -> None:
        """Note that a scalar of the message is a recorded number."""
        if integral and not isinstance(number, RecordedInt):
            raise InvalidRequest(f"{number!r} is a real number, and this scalar is an integer; allowed: integers")
        self._pending[place] = (number, "int64" if integral else "float64")

    def take(self, plan: Plan, refs: tuple[GpuRef, ...], words: list[int]) -> None:
        """List a message that was checked.

        Raises
        ------
        InvalidRequest, Unsupported
            For messages that a recording cannot hold.
        """
        numbers, self._pending = self._pending, {}
        spec = plan.spec
        if spec.op == "noop":
            if refs:
                raise InvalidRequest(_NO_WAITING)
            return
        _check_operation(plan, spec)
        if spec.op == "program.replay":
            self.awaited.extend(ref.allocation for ref in refs if self._is_new_result(ref))
            self._take_steps(spec, self._with_own_block(plan, refs), words, numbers)
            return
        uses = tuple(
            self._use(ref, plan.access_of(i), name) for i, (ref, name) in enumerate(zip(refs, plan.names, strict=True))
        )
        self.innermost.items.append(Message(spec, uses, tuple(words), numbers))

    def take_ranks(
        self, number: int, plans: list[Plan], operands: list[tuple[GpuRef, ...]], numbers: list[tuple[Any, ...]]
    ) -> None:
        """List a message of a communicator, on all of its ranks.

        Raises
        ------
        Unsupported
            In a recording of one device, or of another communicator, and in a branch or a loop.
        """
        if self.ranks is None:
            raise Unsupported(
                f"{plans[0].spec.op} inside a recording of one device; Communicator.record records all of its ranks",
                rule="program.array_operations_only",
            )
        if self.ranks.number != number:
            raise Unsupported(
                f"{plans[0].spec.op} of another communicator than the one that is recorded; allowed: collectives of "
                f"that one. Between ranks, its method send copies an array",
                rule="program.one_communicator",
            )
        if any(one.inside for one in self.ranks.recorders):
            raise Unsupported(
                f"{plans[0].spec.op} in a branch or a loop: the flags of the ranks may differ, and then some would "
                f"wait for the others without end; allowed: outside of if_, while_ and switch",
                rule="program.collective_in_control_flow",
            )
        for one, plan, refs, given in zip(self.ranks.recorders, plans, operands, numbers, strict=True):
            one.take_rank(plan, refs, given)

    def take_rank(self, plan: Plan, refs: tuple[GpuRef, ...], given: tuple[Any, ...]) -> None:
        """List this rank's part of a message of the communicator; `given` are its scalars after the key."""
        spec = plan.spec
        kinds = spec.scalars[KEY_WORDS:]
        numbers = {}
        words = [0] * KEY_WORDS
        for number, kind in zip(given, kinds, strict=True):
            if is_recorded(number):
                numbers[len(words)] = (number, kind)
            words.append(_word(plain(number), kind))
        if spec.op == "program.replay":
            self._take_steps(spec, self._with_own_block(plan, refs), words, numbers)
            return
        uses = tuple(
            self._use(ref, plan.access_of(i), name) for i, (ref, name) in enumerate(zip(refs, plan.names, strict=True))
        )
        self.body.items.append(Message(spec, uses, tuple(words), numbers))

    @property
    def innermost(self) -> Body:
        """The body to which messages are added."""
        return self.inside[-1] if self.inside else self.body

    def flag(self, ref: GpuRef) -> Use:
        """Return the use of an array by control flow."""
        ref.allocation.refuse_gone()
        return self._use(ref, READ, "flag")

    def _is_new_result(self, ref: GpuRef) -> bool:
        """Return whether no message of the recorded plan that makes an array has been sent."""
        return ref.allocation.status() == "recorded" and not self.owns(ref.allocation)

    def _with_own_block(self, plan: Any, refs: tuple[GpuRef, ...]) -> tuple[GpuRef, ...]:
        """Return the operands of a recorded plan with temporaries of this recording in place of the plan's."""
        if not plan.has_temporaries:
            return refs
        made: GpuRef = self.core.empty(type(refs[-1]), refs[-1].layout, VOLATILE)
        return (*refs[:-1], made)

    def _take_steps(
        self,
        spec: PlanSpec[ProgramAttributes],
        refs: tuple[GpuRef, ...],
        words: list[int],
        numbers: dict[int, tuple[RecordedFloat | RecordedInt, str]],
    ) -> None:
        """List the messages of a recorded plan, with the operands and scalars that it is sent with."""
        outer = [self._use(ref, o.access, o.name) for ref, o in zip(refs, spec.operands, strict=True)]
        steps = spec.attributes.steps
        into = {-1: [self.innermost]}
        for parent, bodies in bodies_of(steps):
            for body, inside in zip(into[parent], bodies, strict=True):
                for number in inside:
                    step = steps[number]
                    if isinstance(step, StepAttributes):
                        nested = spec.attributes.specs[step.spec].spec
                        body.items.append(_step_of(nested, step, outer, words, numbers))
                        continue
                    place, offset = step.flag
                    layout = layout_from((), (), step.dtype)
                    flag = Use(outer[place].root, layout, outer[place].offset + offset, READ, "flag")
                    control = Control(step.kind, flag, len(step.bodies), step.limit)
                    into[number] = control.bodies
                    body.items.append(control)

    def _use(self, ref: GpuRef, access: int, name: str) -> Use:
        allocation = ref.allocation
        for number, (called, given, stands) in enumerate(self.parameters):
            if stands is allocation:
                use = Use(number, ref.layout, ref.offset - given.offset, access, name)
                if use.low < given.layout.low or use.high > given.layout.high:
                    raise InvalidRequest(f"operand {name!r} is a view that leaves the bytes of parameter {called!r}")
                return use
        if allocation.pool == STAGING and not self.core.owner.memory.is_host_array(allocation):
            raise InvalidRequest(
                f"operand {name!r} lies in memory of the host; a recording takes copies from and to a host_array, no "
                f"others from or to the host, and no kernels with debug=True"
            )
        key = (allocation.slot, allocation.generation)
        if key not in self.made:
            status = allocation.status()
            if status and not (status == "recorded" and self.owns(allocation)):
                allocation.refuse_gone()
                if access & READ or not access & OVERWRITE:
                    raise self.core.stale(allocation, status)
            self.bound.setdefault(key, ref)
        return Use(key, ref.layout, ref.offset, access, name)


def _check_operation(plan: Plan, spec: PlanSpec) -> None:
    """Refuse operations that no program may hold."""
    kind = spec.op.partition(".")[0]
    if plan.group or kind == "group":
        raise InvalidRequest(
            f"{spec.op} inside a recording; commits and restores are messages of their own: send them between replays"
        )


def is_collective(spec: PlanSpec) -> bool:
    """Return whether the messages of a plan are run by several devices together."""
    return spec.op.startswith("collective.")


def _word(number: float, kind: str) -> int:
    """Return the bits of a scalar, as a signed integer."""
    found: int = struct.unpack("<q", struct.pack("<q" if kind == "int64" else "<d", number))[0]
    return found


def _step_of(
    nested: PlanSpec,
    step: StepAttributes,
    outer: list[Use],
    words: list[int],
    numbers: dict[int, tuple[RecordedFloat | RecordedInt, str]],
) -> Message:
    """Return a step of a recorded plan as a message of its own."""
    own = tuple(words[word] if given else word for given, word in step.scalars)
    uses = []
    for operand, (at, offset) in zip(nested.operands, step.operands, strict=True):
        layout = layout_from(operand.shape, operand.strides, operand.dtype)
        if nested.op == "memory.copy" and nested.scalars:  # of bytes, whatever its layout
            layout = layout_from((own[0],), (1,), "uint8")
        uses.append(Use(outer[at].root, layout, outer[at].offset + offset, operand.access, operand.name))
    known = {i: numbers[word] for i, (given, word) in enumerate(step.scalars) if given and word in numbers}
    return Message(nested, tuple(uses), own, known)
