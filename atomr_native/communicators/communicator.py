"""Communicators: the ranks, and sends to all of them or to none."""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypedDict

from .._lib.guard import TICK, Abandoned, Breakable, Last, Lock, Persisting, check, shielded
from .._lib.sender import Sequence as Count
from .._lib.sender import send_ranks
from .._support.checks import is_integer
from .._support.process_bound import ProcessBound
from .._support.public import public
from .._support.timeouts import seconds_of
from ..arrays.gpu_ref import GpuRef
from ..arrays.owner import owner_of
from ..errors import ActorStopped, InvalidRequest
from ..libraries.collective.attributes import Step
from ..plans.plan import Plan
from .durable import CommunicatorGroup
from .group import Group, merged
from .methods import CollectiveMethods
from .plan import CollectivePlan
from .prepared import Prepared, structure_of
from .rank_plans import RankPlans
from .reply import CollectiveReply
from .request import CollectiveRequest, Lowered, lower
from .symmetric_methods import SymmetricMethods

if TYPE_CHECKING:
    from .._lib.seats import Page
    from ..device import Device
    from .recording import CommunicatorProgram, CommunicatorRecording
    from .registry import Communicators

__all__ = ["Communicator", "CommunicatorStats"]

_PLANS: Final = 256  # messages whose plans a communicator remembers


@public
class CommunicatorStats(TypedDict):
    """Statistics of a communicator.

    Attributes
    ----------
    devices : list of str
        The device of each rank.
    generation : int
        See `Communicator.generation`.
    state : {"open", "closed"}
    messages : int
        Messages sent so far, a group being one.
    plans : int
        Messages whose plans are remembered.
    """

    devices: list[str]
    generation: int
    state: str
    messages: int
    plans: int


@public
class Communicator(CollectiveMethods, SymmetricMethods, ProcessBound):
    """Devices of one System that run messages together; made by `System.communicator`.

    A message goes to all ranks or to none, and is ordered by data on each device, beside other work.  All collectives
    of a device run in one mailbox of it, ``collective``, in one order for all communicators: threads may use several
    communicators over the same devices in any order.

    A message that one rank cannot take part in fails on all ranks, with the first cause, and writes nothing.  If a
    device dies, the messages that it was running fail with its `DeviceFault` on every rank, and poison the arrays that
    they would have written; queued ones run when it is back.  Host devices meet in shared memory, GPUs by NCCL.

    All methods may be called from any thread.

    Attributes
    ----------
    devices : tuple of Device
        The device of each rank.
    size : int
        The number of ranks.

    Examples
    --------
    >>> comm = device.system.communicator(["host"])
    >>> [total] = comm.all_reduce([device.put([1.0, 2.0])])
    >>> total.numpy()
    array([1., 2.])
    >>> comm.close()
    """

    def __init__(
        self,
        registry: Communicators,
        number: int,
        devices: tuple[Device, ...],
        page: Page,
        on_death: str,
        copy_engines: bool = False,
    ) -> None:
        self.devices = devices
        self.size = len(devices)
        self._registry = registry
        self._number = number
        self._page = page
        self._on_death = on_death
        self._copy_engines = copy_engines
        self._symmetric = None
        self._count = Count()
        self._prepared: OrderedDict[object, Prepared] = OrderedDict()  # of methods, by structure
        self._known: weakref.WeakSet[Prepared] = weakref.WeakSet()  # these, and those of plans
        #: What has been recorded over the ranks.
        self.programs: weakref.WeakSet[CommunicatorProgram] = weakref.WeakSet()
        self._lock = Lock()
        self._sends: set[object] = set()  # those under way
        self._generation = 1
        self._callbacks: list[Callable[[int], object]] = []
        self._groups = threading.local()
        self._closed = False
        self._owners = [owner_of(device) for device in devices]
        #: Plans of the messages that were sent last.  Internal.
        self.rank_plans = RankPlans(number, self._owners, registry.lane_of, _PLANS)
        for device in devices:
            device.on_generation(self._restarted)

    # ---- life

    @property
    def generation(self) -> int:
        """1, and one more each time that the device of a rank is back after a restart."""
        return self._generation

    def on_generation(self, callback: Callable[[int], object]) -> None:
        """Call ``callback(generation)`` after each rebuild, in the thread of the callbacks of the device that is back.

        Its exceptions are logged.
        """
        if not callable(callback):
            raise InvalidRequest(f"callback {callback!r} is not callable; it is called with the generation")
        self._callbacks.append(callback)

    def _restarted(self, _generation: int) -> None:
        with self._lock:
            self._generation += 1
            now = self._generation
        for callback in list(self._callbacks):
            callback(now)

    @property
    def key(self) -> tuple[Count, int]:
        """What its messages begin with: their count, and its number.  Internal."""
        return self._count, self._number

    def rank_of(self, device: Device) -> int:
        """Return the rank of a device.

        Raises
        ------
        InvalidRequest
            If the communicator has no such device.
        """
        if device not in self.devices:
            raise InvalidRequest(f"{device!r} is no rank; allowed: {', '.join(d.name for d in self.devices)}")
        return self.devices.index(device)

    def sub(self, ranks: Sequence[int]) -> Communicator:
        """Make a communicator of some of the ranks, in the given order.

        Raises
        ------
        InvalidRequest
            For no rank, a rank out of range, or one that is given twice.
        """
        self._check_open()
        found = list(ranks) if isinstance(ranks, Sequence) else []
        if not found or not all(is_integer(r) and 0 <= r < self.size for r in found) or len(set(found)) != len(found):
            raise InvalidRequest(f"ranks={ranks!r}; allowed: different numbers from 0 to {self.size - 1}")
        return self._registry.make([self.devices[rank] for rank in found], self._on_death, self._copy_engines)

    def without(self, *ranks: int) -> Communicator:
        """Make a communicator of all ranks but these: after a device was lost, to go on with the rest.

        Raises
        ------
        InvalidRequest
            For a rank out of range, or if none is left.

        Examples
        --------
        >>> comm = device.system.communicator(["host", "host:1"])
        >>> rest = comm.without(1)
        >>> [d.name for d in rest.devices]
        ['host']
        >>> rest.close(); comm.close()
        """
        self._check_open()
        wrong = [rank for rank in ranks if not is_integer(rank) or not 0 <= rank < self.size]
        if wrong or len(set(ranks)) == self.size:
            raise InvalidRequest(f"without {ranks!r}; allowed: numbers from 0 to {self.size - 1}, but not all of them")
        return self.sub([rank for rank in range(self.size) if rank not in ranks])

    def split(self, colors: Sequence[object]) -> dict[Any, Communicator]:
        """Make a communicator of the ranks of each color.

        Parameters
        ----------
        colors : sequence
            One hashable value a rank; None: the rank is in none.

        Returns
        -------
        dict
            The communicator of each color.
        """
        self._check_open()
        if not isinstance(colors, Sequence) or len(colors) != self.size:
            raise InvalidRequest(f"colors={colors!r}; allowed: {self.size} values, one for each rank")
        ranks: dict[Any, list[int]] = {}
        for rank, color in enumerate(colors):
            if color is not None:
                ranks.setdefault(color, []).append(rank)
        return {color: self.sub(found) for color, found in ranks.items()}

    def stats(self) -> CommunicatorStats:
        """Return statistics.  Does not wait."""
        return {
            "devices": [device.name for device in self.devices],
            "generation": self._generation,
            "state": "closed" if self._closed else "open",
            "messages": self._count.last,
            "plans": len(self.rank_plans),
        }

    def close(self, timeout: float = 5.0) -> None:
        """Refuse further messages, and wait up to `timeout` seconds for those that were sent.  Idempotent.

        Messages that take longer still run.
        """
        self._finish(time.monotonic() + seconds_of(timeout, limited=True))

    @shielded
    def _finish(self, deadline: float) -> None:
        """Close, and wait until the deadline; an interrupt ends the wait."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._count.closed = True
        with Persisting():
            for device in self.devices:
                device.forget(self._restarted)
            over = False
            with contextlib.suppress(Abandoned), Breakable():
                over = self._is_over(deadline) and (self._symmetric is None or self._symmetric.close_windows(deadline))
            self._registry.forget(self._number, self._owners, over=over)
            if over and self._symmetric is not None:
                self._symmetric.release()

    def _is_over(self, deadline: float) -> bool:
        """Wait for the messages that were sent; return whether the last of them has ended."""
        while self._sends or self._count.busy:
            if time.monotonic() >= deadline:
                return False
            check()
            time.sleep(0.001)
        with self._lock:
            known: list[Sequence[Plan]] = [*self.rank_plans.clear(), *(prepared.plans for prepared in self._known)]
            known += [program.plans for program in self.programs]
            plans = [plan for found in known for plan in found]
            self._prepared.clear()
        for plan in plans:
            while not plan.core.wait_ticket(
                plan.lane, plan.last_ticket, min(max(0.0, deadline - time.monotonic()), TICK)
            ):
                if time.monotonic() >= deadline:
                    return False
                check()
        return True

    def _check_open(self) -> None:
        if self._closed:
            raise ActorStopped("this communicator is closed; make a new one with System.communicator")

    def durable_group(
        self, members: Sequence[Mapping[str, GpuRef]], *, checksum: bool = False, tag: int = 0
    ) -> CommunicatorGroup:
        """Group durable arrays of all ranks that are committed together: all ranks have a commit, or none has.

        Commits their state, and waits for that: there is always a commit to return to.

        Parameters
        ----------
        members : sequence of mapping of str to GpuRef
            Of each rank, whole durable arrays of its device by name; shapes may differ between ranks.
        checksum : bool
            As `Device.durable_group` has it.
        tag : int
            That of the first commit.

        Raises
        ------
        InvalidRequest
            If the number of mappings, or their names, or arrays are not as above.
        OutOfMemory
            If a device has no room for two more times its members.
        """
        self._check_open()
        return CommunicatorGroup(self.devices, members, checksum=checksum, tag=tag)

    def connect(self) -> None:
        """Wait until all ranks have come to a message, by which GPUs that have no connection make one.

        After a death the next message connects them, too; this does it ahead of that message.

        Raises
        ------
        LibraryError
            If NCCL cannot connect them.
        DeviceFault, DeviceLost
            If a rank dies meanwhile, or is lost.
        """
        step = Step("connect", "uint8", 0)
        lowered = Lowered("barrier", step, [[] for _ in self.devices], lambda _: None)
        replies = self._send(lowered, [() for _ in self.devices], want_reply=True, may_wait=True)
        CollectiveReply(replies, None).result()

    def record(self) -> CommunicatorRecording:
        """Return a recording: ``with comm.record() as g:`` lists messages to the ranks, and collectives.

        See `CommunicatorRecording`; its plan is one message a rank, which every rank replays.  Enqueues nothing.

        Examples
        --------
        >>> comm = device.system.communicator(["host"])
        >>> x = device.put([1.0, 2.0])
        >>> with comm.record() as g:
        ...     [total] = comm.all_reduce([device.copy(x * 2)])
        >>> g.plan.tell()
        >>> total.numpy()
        array([2., 4.])
        >>> comm.close()
        """
        from .recording import recording_of  # which communicators do without until a program records

        self._check_open()
        if self._open_group() is not None:
            raise InvalidRequest("a recording inside a group of this communicator; allowed: groups inside a recording")
        return recording_of(self, self._number, self._owners, self._registry.lane_of)

    # ---- messages

    def tell(self, request: CollectiveRequest) -> Any:
        """Send a request and return the result of its method at once: handles, which are their own futures.

        Does not wait for the devices; the first request of a structure waits for its plans.
        """
        return self._run(request, want_reply=False)

    def ask(self, request: CollectiveRequest) -> CollectiveReply:
        """Send a request and return its reply; otherwise as `tell`."""
        reply: CollectiveReply = self._run(request, want_reply=True)
        return reply

    def plan(self, request: CollectiveRequest) -> CollectivePlan:
        """Return the plan of a request, whose arrays lend their layouts.  Waits until all workers have built it."""
        lowered = lower(request, self.devices)
        prepared = self._prepare(lowered, request)
        for plan in prepared.plans:
            plan.wait()
        return CollectivePlan(self, request, prepared)

    def group(self) -> contextlib.AbstractContextManager[object]:
        """Merge the calls of this thread inside the block into one message a rank, sent at its end.

        Methods return handles at once, as ever.  No call may use what another call of the block writes.  After an
        exception nothing is sent.

        Examples
        --------
        >>> comm = device.system.communicator(["host"])
        >>> with comm.group():
        ...     [total] = comm.all_reduce([device.put([1.0])])
        ...     [most] = comm.all_reduce([device.put([2.0])], op="max")
        >>> total.numpy(), most.numpy()
        (array([1.]), array([2.]))
        >>> comm.close()
        """
        self._check_open()
        return Group(self._begin_group, self._end_group)

    def _open_group(self) -> Group | None:
        """Return the group that this thread has open."""
        found: Group | None = getattr(self._groups, "open", None)
        return found if found is not None and found.is_open else None

    def _begin_group(self, group: Group) -> None:
        if self._open_group() is not None:
            raise InvalidRequest("a group of this communicator is open in this thread; allowed: one at a time")
        with self._lock:
            self._count.groups = [*(one for one in self._count.groups or () if one.is_open), group]
        self._groups.open = group

    def _end_group(self, group: Group, sends: bool) -> None:
        self._groups.open = None
        with self._lock:
            self._count.groups = [one for one in self._count.groups or () if one.is_open]
        if sends and group.calls:
            self._send(merged(group), group.refs, want_reply=False, may_wait=True)

    def _run(self, request: CollectiveRequest, *, want_reply: bool) -> Any:
        self._check_open()
        group = self._open_group()
        key = structure_of(request) if group is None else None
        prepared = self._prepared.get(key) if key is not None else None
        if prepared is not None:
            refs = prepared.operands(request.arrays, request.out)
            if refs is not None:
                return self._run_prepared(prepared, refs, want_reply=want_reply)
        lowered = lower(request, self.devices)
        if group is not None and (want_reply or lowered.kind == "barrier"):
            raise InvalidRequest(f"{lowered.kind} with a reply inside of a group; allowed: methods that return handles")
        refs, outs = self._allocate(lowered)
        result = lowered.result(outs)
        if group is not None:
            group.add(lowered, refs)
            return result
        replies = self._send(lowered, refs, want_reply=want_reply, may_wait=True)
        if key is not None and prepared is None:
            self._remember(key, self._prepare(lowered, request))
        return CollectiveReply(replies, result) if want_reply else result

    def run_prepared(self, prepared: Prepared, arrays: Any, out: Any, *, want_reply: bool) -> Any:
        """Send a collective that is prepared; return None if `lower` has to check its arrays first."""
        self._check_open()
        if self._open_group() is not None:
            return None
        refs = prepared.operands(arrays, out)
        return None if refs is None else self._run_prepared(prepared, refs, want_reply=want_reply)

    def _run_prepared(self, prepared: Prepared, refs: list[tuple[GpuRef, ...]], *, want_reply: bool) -> Any:
        replies = self._send(prepared, refs, want_reply=want_reply, may_wait=True)
        result = prepared.result(refs)
        return CollectiveReply(replies, result) if want_reply else result

    def copy(self, source: GpuRef, near: GpuRef | None, out: GpuRef) -> None:
        """Send a copy of all bytes of an array from one rank to another, of any kinds of devices.  Internal.

        Both arrays are contiguous.  `near` is the source's memory, as the target reaches it.
        """
        found, rank = self.copy_plans(source.device, out.device, source.nbytes, near is not None)
        refs: list[tuple[GpuRef, ...]] = [(out,) if near is None else (near, out) for _ in self.devices]
        refs[rank] = (source,)
        self.send_plans(found, refs, [() for _ in self.devices], want_reply=False)

    def copy_plans(self, source: Device, target: Device, nbytes: int, direct: bool) -> tuple[list[Plan], int]:
        """Return the plan of each rank of a copy between the two of them, and the source's rank.  Internal."""
        self._check_open()
        rank = self.rank_of(source)
        return self.rank_plans.of_copy(rank, self.rank_of(target), nbytes, direct), rank

    def _prepare(self, lowered: Lowered, request: CollectiveRequest) -> Prepared:
        made = Prepared(lowered, request, self.rank_plans.of(lowered))
        self._known.add(made)
        return made

    def _remember(self, key: object, prepared: Prepared) -> None:
        with self._lock:
            self._prepared[key] = prepared
            while len(self._prepared) > _PLANS:
                self._prepared.popitem(last=False)

    def _allocate(self, lowered: Lowered) -> tuple[list[tuple[GpuRef, ...]], list[GpuRef | None]]:
        """Return the operands of each rank, and its output: symmetric if those that are given are."""
        symmetric = self._symmetric if self._symmetric is not None and self._symmetric.check(lowered) else None
        made: dict[tuple[object, str], list[GpuRef]] = {}

        def fresh(rank: int, shape: tuple[int, ...], dtype: str) -> GpuRef:
            if symmetric is None:
                return self.devices[rank].empty(shape, dtype)
            if (shape, dtype) not in made:
                made[shape, dtype] = symmetric.arrays(shape, dtype)
            return made[shape, dtype][rank]

        refs: list[tuple[GpuRef, ...]] = []
        outs: list[GpuRef | None] = []
        for rank, uses in enumerate(lowered.uses):
            mine = [fresh(rank, use.shape, use.dtype) if use.ref is None else use.ref for use in uses]
            refs.append(tuple(mine))
            outs.append(next((ref for ref, use in zip(mine, uses, strict=True) if use.writes), None))
        return refs, outs

    def _send(
        self, message: Lowered | Prepared, refs: list[tuple[GpuRef, ...]], *, want_reply: bool, may_wait: bool
    ) -> Any:
        sending = object()
        under_way = Last(self._sends.discard, sending)
        self._sends.add(sending)
        try:
            self._check_open()  # after `add`: `close` waits for this send, or this send finds it closed
            plans = message.plans if isinstance(message, Prepared) else self.rank_plans.of(message)
            return send_ranks(self._count, self._number, plans, refs, message.numbers, want_reply, may_wait)
        finally:
            del under_way

    def send_plans(
        self, plans: Sequence[Plan], refs: list[tuple[GpuRef, ...]], numbers: list[tuple[Any, ...]], *, want_reply: bool
    ) -> Any:
        """Send messages of recorded plans, one a rank, with the scalars of each.  Internal."""
        sending = object()
        under_way = Last(self._sends.discard, sending)
        self._sends.add(sending)
        try:
            self._check_open()
            return send_ranks(self._count, self._number, list(plans), refs, numbers, want_reply, True)
        finally:
            del under_way

    def __repr__(self) -> str:
        names = ", ".join(device.name for device in self.devices)
        return f"<Communicator of {names}, {'closed' if self._closed else f'generation {self._generation}'}>"
