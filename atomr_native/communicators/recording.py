"""Recording over all ranks: messages to their devices, and collectives, become one message that every rank replays."""

from __future__ import annotations

import functools
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .._lib.guard import Block
from .._support.options import unknown_option
from .._support.process_bound import ProcessBound
from .._support.public import public
from .._support.recorded import plain
from ..arrays.gpu_ref import GpuRef
from ..errors import InvalidRequest
from ..recording.graph import Recording, made_plan
from ..recording.program import check_used
from ..recording.recorder import Ranks
from .reply import CollectiveReply

if TYPE_CHECKING:
    from ..recording.plan import RecordedPlan, RecordedStep
    from .communicator import Communicator

__all__ = ["CommunicatorProgram", "CommunicatorRecording"]


@public
class CommunicatorRecording(ProcessBound, Block):
    """The messages of one thread to all ranks of a communicator, listed instead of sent; made by `Communicator.record`.

    Inside the block, messages of this thread to the ranks' devices and collectives of this communicator are checked and
    listed.  Afterwards `plan` sends the list as one message a rank.  An exception inside leaves nothing behind.

    Examples
    --------
    >>> comm = device.system.communicator(["host", "host:1"])
    >>> state = [one.put([1.0, 2.0]) for one in comm.devices]
    >>> with comm.record() as recording:
    ...     given = recording.operand("x", state)
    ...     factor = recording.scalar("factor", 10.0)
    ...     _ = comm.all_reduce([one.fill(factor) for one in given], out=given)
    >>> recording.plan.tell(state, factor=3.0)
    >>> [one.numpy().tolist() for one in state]
    [[6.0, 6.0], [6.0, 6.0]]
    >>> comm.close()
    """

    def __init__(self, communicator: Communicator, number: int, recordings: list[Recording]) -> None:
        self._communicator = communicator
        self._recordings = recordings
        self._operands: dict[str, int | None] = {}
        self._state = "not begun"
        self._plan: CommunicatorProgram | None = None
        self._stack = ExitStack()
        ranks = Ranks(number, tuple(recording.recorder for recording in recordings))
        for recording in recordings:
            recording.together_with(ranks, self)
            recording.numbers = recordings[0].numbers

    def _begin(self) -> None:
        if self._state != "not begun":
            raise InvalidRequest(f"this recording is {self._state}; allowed: one block for each Communicator.record()")
        with ExitStack() as stack:
            for recording in self._recordings:
                stack.enter_context(recording)
            self._stack = stack.pop_all()
        self._state = "open"

    def _end(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._state = "over" if kind is None else "broken off by an exception"
        self._stack.__exit__(kind, error, traceback)
        for recording in self._recordings:
            recording.block = None  # each is over by itself
        if kind is not None:
            return
        programs = [recording.program for recording in self._recordings]
        if not any(program and program.spec.attributes.steps for program in programs):
            raise InvalidRequest("nothing was recorded: no message was sent to a rank inside the recording")
        numbers = self._recordings[0].numbers
        check_used(numbers, set().union(*(program.used for program in programs if program)))
        values = {name: plain(number) for name, number in numbers.items()}
        plans = [recording.plan for recording in self._recordings]
        self._plan = CommunicatorProgram(self._communicator, plans, dict(self._operands), values)

    def operand(self, name: str, arrays: Any) -> Any:
        """Make arrays a parameter: each message of the plan is given others of the same layouts.

        Parameters
        ----------
        name : str
            An identifier.
        arrays : sequence of GpuRef, or GpuRef
            One a rank, or an array of one rank.

        Returns
        -------
        list of GpuRef, or GpuRef
            What stands for them inside the recording, and views of which may be used there.

        Raises
        ------
        InvalidRequest
            For a name in use, outside of the block, or arrays that lie elsewhere.
        GpuRefStale
        """
        recordings = self._recordings
        self._communicator.refuse_symmetric(f"operand {name!r}", arrays)
        if isinstance(arrays, GpuRef):
            rank = self._communicator.rank_of(arrays.device)
            found: Any = recordings[rank].operand(self._fresh(name), arrays)
            self._operands[name] = rank
            return found
        if not isinstance(arrays, Sequence) or len(arrays) != len(recordings):
            raise InvalidRequest(
                f"operand {name!r} is {_shown(arrays)}; allowed: {len(recordings)} arrays, one for each rank, or an "
                f"array of one rank"
            )
        self._fresh(name)
        made = [one.operand(name, ref) for one, ref in zip(recordings, arrays, strict=True)]
        self._operands[name] = None
        return made

    def scalar(self, name: str, value: complex) -> Any:
        """Make a number a parameter, of all ranks; see `Recording.scalar`."""
        return self._recordings[0].scalar(self._fresh(name), value)

    def _fresh(self, name: str) -> str:
        """Refuse the name of another operand."""
        if name in self._operands:
            raise InvalidRequest(f"name {name!r} is in use; names in use: {', '.join(self._operands)}")
        return name

    @property
    def plan(self) -> CommunicatorProgram:
        """The recorded plan.

        Raises
        ------
        InvalidRequest
            Before the end of the block, and after an exception in it.
        """
        return made_plan(self._plan, self._state)

    def __repr__(self) -> str:
        return f"<CommunicatorRecording of {self._communicator!r}, {self._state}>"


@public
class CommunicatorProgram(ProcessBound):
    """A recorded program of all ranks of a communicator; made by `Communicator.record`.

    Each message of it is one message a rank, in the mailbox of collectives: sent to all ranks or to none, voted on
    once, with one reply.  Every rank replays its own messages in their order, and meets the others in the collectives.
    It fails as a whole: if a step of one rank fails before the last collective, or a rank dies, the message fails on
    all ranks, and poisons all that it would have written.

    Arrays that are no parameters are bound, and temporaries belong to the plan, as `RecordedPlan` says.

    Examples
    --------
    >>> comm = device.system.communicator(["host", "host:1"])
    >>> grads = [one.ones(2) for one in comm.devices]
    >>> with comm.record() as recording:
    ...     _ = comm.all_reduce(grads, out=grads)
    >>> recording.plan.ask().result(timeout=60)
    >>> recording.plan.tell()
    >>> grads[1].numpy().tolist()
    [4.0, 4.0]
    >>> comm.close()
    """

    def __init__(
        self,
        communicator: Communicator,
        plans: list[RecordedPlan],
        operands: dict[str, int | None],
        numbers: dict[str, float | int],
    ) -> None:
        self._communicator = communicator
        self._plans = plans
        self._operands = operands  # of one rank, or (None) of all
        self._numbers = numbers
        communicator.programs.add(self)

    @property
    def plans(self) -> list[RecordedPlan]:
        """The plan of each rank.  Internal: only the communicator sends them."""
        return self._plans

    @property
    def names(self) -> tuple[str, ...]:
        """What a message takes: its operands in order, and its numbers, which have defaults."""
        return (*self._operands, *self._numbers)

    @property
    def steps(self) -> tuple[tuple[RecordedStep, ...], ...]:
        """The recorded messages of each rank, in their order."""
        return tuple(plan.steps for plan in self._plans)

    @property
    def nbytes(self) -> tuple[int, ...]:
        """Bytes of device memory that belong to the plan, of each rank: its temporaries."""
        return tuple(plan.nbytes for plan in self._plans)

    @property
    def notes(self) -> tuple[str, ...]:
        """As `Plan.notes`, of all ranks.  Waits for the builds, and for the workers."""
        return tuple(dict.fromkeys(note for plan in self._plans for note in plan.notes))

    def wait(self) -> CommunicatorProgram:
        """Wait until all workers have built their plans; return the program.

        Raises
        ------
        Unsupported, LibraryError
            If a step cannot be built.
        """
        for plan in self._plans:
            plan.wait()
        return self

    def __await__(self) -> Generator[Any, None, CommunicatorProgram]:
        """Wait for the builds without blocking the running event loop."""
        for plan in self._plans:
            yield from plan.__await__()
        return self

    def bind(self, old: GpuRef, new: GpuRef) -> CommunicatorProgram:
        """Put an array in the place of a bound one of its rank; see `RecordedPlan.bind`."""
        if not isinstance(old, GpuRef):
            raise InvalidRequest(f"old is {_shown(old)}; allowed: a GpuRef that is bound to this plan")
        for name, ref in (("old", old), ("new", new)):
            self._communicator.refuse_symmetric(name, ref)
        self._plans[self._communicator.rank_of(old.device)].bind(old, new)
        return self

    def tell(self, *operands: Any, **named: Any) -> None:
        """Send to all ranks, and keep no reply.

        Parameters
        ----------
        *operands : sequence of GpuRef, or GpuRef
            The operands in their order, each as it was recorded: one array a rank, or that of one rank.
        **named
            Operands and numbers by name.

        Raises
        ------
        InvalidRequest, GpuRefStale, MailboxFull, DeviceLost
            Before anything is enqueued on any rank.
        """
        self._send(operands, named, want_reply=False)

    def ask(self, *operands: Any, **named: Any) -> CollectiveReply:
        """Send like `tell`, and return the reply, whose value is None."""
        return CollectiveReply(self._send(operands, named, want_reply=True), None)

    def _send(self, operands: tuple[Any, ...], named: dict[str, Any], *, want_reply: bool) -> Any:
        if len(operands) > len(self._operands):
            raise InvalidRequest(
                f"{len(operands)} operands given; this plan takes {len(self._operands)}: {', '.join(self._operands)}"
            )
        given = dict(zip(self._operands, operands, strict=False))
        numbers = self._numbers
        for name, value in named.items():
            if name in given:
                raise InvalidRequest(f"operand {name!r} is given twice, by position and by name")
            if name in self._operands:
                given[name] = value
            elif name in numbers:
                numbers = {**numbers, name: value}
            else:
                raise unknown_option(f"{name!r} is no operand or number of this plan", name, self.names)
        for name, rank in self._operands.items():
            if name not in given:
                raise InvalidRequest(f"operand {name!r} is missing; this plan takes {', '.join(self.names)}")
            if rank is None and (not isinstance(given[name], Sequence) or len(given[name]) != len(self._plans)):
                raise InvalidRequest(
                    f"operand {name!r} is {_shown(given[name])}; allowed: {len(self._plans)} arrays, one for each rank"
                )
        for name, value in given.items():
            self._communicator.refuse_symmetric(f"operand {name!r}", value)
        refs = [self._of_rank(rank, given) for rank in range(len(self._plans))]
        scalars = [plan.scalars_of(numbers) for plan in self._plans]
        return self._communicator.send_plans(self._plans, refs, scalars, want_reply=want_reply)

    def _of_rank(self, rank: int, given: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(
            given[name] if of is not None else given[name][rank]
            for name, of in self._operands.items()
            if of is None or of == rank
        )

    def __repr__(self) -> str:
        return f"<CommunicatorProgram of {len(self._plans[0].steps)} steps, {self._communicator!r}>"


def _shown(value: object) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"{len(value)} arrays"
    return f"a {type(value).__name__}"


def recording_of(communicator: Communicator, number: int, owners: Sequence[Any], lane: Any) -> CommunicatorRecording:
    """Serve `Communicator.record`."""
    made = [
        Recording(device, owner, functools.partial(lane, owner))
        for device, owner in zip(communicator.devices, owners, strict=True)
    ]
    return CommunicatorRecording(communicator, number, made)
