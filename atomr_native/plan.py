"""Plans: operations prepared once and sent many times."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import threading
import time
from collections import deque
from collections.abc import Callable, Container, Generator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import TYPE_CHECKING, Any

from ._aside import Aside
from ._lib.sender import PlanRef
from ._process_bound import ProcessBound
from ._signature import Signature
from ._timeouts import deadline_of
from .control import Answer, WorkerGone
from .errors import AskTimeout, AtomrError, PlanQuarantined
from .gpu_ref import layout_from
from .plan_spec import PlanSpec
from .reply import Reply
from .tuning import ProgressBar

if TYPE_CHECKING:
    from .device import Device

__all__ = ["Plan", "PlanRecord", "PlanTable"]

_KILLS = 2  # workers that a plan may end before it is quarantined
_WAITING = 32  # coroutines that wait for plans at once, each in a thread
#: Operations that write no memory which they read by another operand, and those that may, as the very same view.
_APART = ("blas", "float8.", "elementwise.reduce", "elementwise.softmax", "fused.norm_backward")
_BY_ELEMENT = ("elementwise.", "fused.")
_OWN = ("noop", "memory.", "group.")  # the runtime's own operations, without which a device is of no use


class PlanRecord:
    """What the device keeps of a plan, also when its last holder is gone and messages still name it."""

    def __init__(self, index: int, lane: int, spec: PlanSpec) -> None:
        self.index = index
        self.lane = lane
        self.spec = spec
        self.last_ticket = 0
        self.retired = False  # nobody holds the plan, and `last_ticket` is that of its last message
        self.workspace = 0  # bytes that its messages want of their lane's
        self.lock = threading.Lock()
        self.epoch = 0  # of the worker that builds or has built it
        self.build: Future[Answer] | None = None
        self.notes: tuple[str, ...] = ()
        self.tuning = ""

    def to_json(self) -> dict[str, Any]:
        """Return what the worker builds it from: the specification, and which lane will run it."""
        return {**self.spec.to_json(), "lane": self.lane}


class Plan(ProcessBound, PlanRef):
    """An operation with everything fixed but addresses and scalars; made by the actors' ``plan`` methods.

    Building it goes on in the worker; ``await plan`` or `wait` waits for that, and so does the first send.  Then
    `tell` and `ask` cost a fraction of a microsecond.  A plan outlives restarts of its device.

    Each message is checked for handles of this device with the plan's layouts, and for outputs that share memory with
    another operand, which only elementwise operations may write, as the very same view; users' kernels are not asked.
    Numbers travel as they are: what a request says of their limits is its maker's to keep.
    """

    record: PlanRecord
    signature: Signature

    @classmethod
    def make(
        cls,
        device: Device,
        lane: int,
        spec: PlanSpec,
        signature: Signature,
        *,
        any_layout: bool | Container[str] = False,
    ) -> Plan:
        """Make a plan and ask the worker to build it; `any_layout` says which operands' layouts are not checked.

        Does not wait.
        """
        free = (lambda _: any_layout) if isinstance(any_layout, bool) else any_layout.__contains__
        operands = tuple(
            (o.name, None if free(o.name) else layout_from(o.shape, o.strides, o.dtype), o.access)
            for o in spec.operands
        )
        scalars = tuple(zip(signature.scalars, spec.scalars, signature.defaults, strict=False))
        record = device._plans.register(lane, spec)
        plan = cls(device._core, lane, record.index, operands, scalars)
        plan.record = record
        plan.signature = signature
        plan.reply_type = Reply
        plan.apart = 1 if spec.op.startswith(_APART) else 2 if spec.op.startswith(_BY_ELEMENT) else 0
        device._plans.start_build(record)
        return plan

    @property
    def device(self) -> Device:
        """The device that the plan belongs to."""
        device: Device = self.core.device
        return device

    @property
    def spec(self) -> PlanSpec:
        """The specification, which is what plans are cached by."""
        return self.record.spec

    @property
    def notes(self) -> tuple[str, ...]:
        """What the device computes otherwise than in one call of its library, and why; waits for the build."""
        self.wait()
        return self.record.notes

    @property
    def tuning(self) -> str:
        """What tuning has found, if it was asked for and found something; waits for the build."""
        self.wait()
        return self.record.tuning

    def prepare(self) -> None:
        """Wait until the worker has the plan; called by the first send, and by the first after a restart.

        A device that restarts is waited for up to the System's timeout.
        """
        self.ready_epoch = self.device._plans.ready(self.record, None, self.device.system.config.timeout)

    def wait(self, timeout: float | None = None) -> Plan:
        """Wait until the plan is built; returns the plan.

        Raises
        ------
        AskTimeout
            When `timeout` (seconds) passes first.
        Unsupported, LibraryError
            If it cannot be built.
        """
        self.ready_epoch = self.device._plans.ready(self.record, timeout, timeout)
        return self

    def __await__(self) -> Generator[Any, None, Plan]:
        """Wait for the build without blocking the running event loop."""
        return self.device._plans.aside.call(self.wait).__await__()

    async def send_async(self, *operands: Any, **named: Any) -> Reply:
        """Send like `ask`, but await room in a full mailbox, and the build, instead of blocking the event loop."""
        while True:
            if self.ready_epoch != self.core.epoch:
                await self
            reply: Reply | None = self.offer(*operands, **named)
            if reply is not None:
                return reply
            await self._room()

    async def _room(self) -> None:
        """Wait until there may be room in the mailbox, or a moment where there was some by now."""
        ticket = self.core.room_ticket(self.lane)
        if ticket:
            await self.device._wakers.room(asyncio.get_running_loop(), self.lane, ticket)
        else:  # somebody else was faster
            await asyncio.sleep(0.0005)

    def __del__(self) -> None:
        record = getattr(self, "record", None)
        if record is not None:
            record.last_ticket = self.last_ticket
            self.core.device._plans.retire(record)

    def __repr__(self) -> str:
        operands = ", ".join(f"{o.name}: {o.dtype}{list(o.shape)}" for o in self.spec.operands)
        return f"<Plan {self.spec.op}({operands})>"


class PlanTable:
    """The plans of one device: numbers, builds, rebuilds after a restart, quarantine."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._lock = threading.Lock()
        self._records: dict[int, PlanRecord] = {}
        self._free: list[int] = []
        self._next = 0
        self._retired: deque[PlanRecord] = deque()
        self._kills: dict[PlanSpec, int] = {}
        self._accused: set[PlanSpec] = set()
        #: Who wants to know how builds of a specification get on: called with (done, total, what).
        self.watchers: dict[PlanSpec, Callable[[int, int, str], object]] = {}
        self._builds: deque[tuple[PlanRecord, Future[Answer]]] = deque()  # in the order in which they were sent
        self.aside = Aside(f"atomr_native-{device.name}-plans", _WAITING)

    def register(self, lane: int, spec: PlanSpec) -> PlanRecord:
        """Give a new plan its number."""
        self.collect()
        with self._lock:
            if self._free:
                index = self._free.pop(0)
            else:
                index = self._next
                self._next += 1
            record = PlanRecord(index, lane, spec)
            self._records[index] = record
            return record

    def record(self, index: int) -> PlanRecord | None:
        """Return the plan with this number."""
        return self._records.get(index)

    def workspace(self, lane: int) -> int:
        """Return the largest workspace, in bytes, that a plan of a lane wants which has messages, or may get some."""
        core = self._device._core
        with self._lock:
            found = [record for record in self._records.values() if record.lane == lane and record.workspace]
        used = [r for r in found if not (r.retired and core.resolved(lane, r.last_ticket))]
        return max((record.workspace for record in used), default=0)

    def retire(self, record: PlanRecord) -> None:
        """Note that nobody holds the plan; it is unloaded once its last message is resolved.  Called by finalizers."""
        record.retired = True
        self._retired.append(record)

    def collect(self) -> None:
        """Unload retired plans that no message names any more.  Does not wait."""
        core = self._device._core
        for _ in range(len(self._retired)):
            try:
                record = self._retired.popleft()
            except IndexError:  # another thread does the same
                return
            if not core.resolved(record.lane, record.last_ticket):
                self._retired.append(record)
                continue
            try:
                if record.epoch == core.epoch:
                    self._device._supervisor.links.submit("drop_plan", plan=record.index, timeout=0.0)
            except AskTimeout:  # its control socket is full
                self._retired.append(record)
                return
            except AtomrError:
                pass  # a worker that is gone has nothing loaded
            with self._lock:
                self._records.pop(record.index, None)
                self._free.append(record.index)

    def start_build(self, record: PlanRecord) -> None:
        """Ask the worker for the plan, unless it has been asked; a device that restarts is asked later."""
        with record.lock:
            if record.epoch == self._device._core.epoch and record.build is not None:
                return
            self._check(record.spec)
            try:
                # The generation of the very worker that was asked: the device's own may change meanwhile.
                record.epoch, record.build = self._device._supervisor.links.submit_build(record.index, record.to_json())
            except WorkerGone:
                record.build = None
                return
            self._builds.append((record, record.build))
        while self._builds and _is_over(self._builds[0][1]):
            with contextlib.suppress(IndexError):
                self._builds.popleft()

    def ready(self, record: PlanRecord, timeout: float | None, open_timeout: float | None) -> int:
        """Wait until the current worker has the plan; the generation for which that holds.

        `timeout` (seconds) is for everything, `open_timeout` for a device that restarts.
        """
        end = deadline_of(timeout)
        while True:
            self._device.wait_ready(open_timeout if end is None else end - time.monotonic())
            epoch = self._device._core.epoch
            self.start_build(record)
            with record.lock:
                build, built_epoch = record.build, record.epoch
            if build is None:  # the worker is dead, which the supervisor has yet to notice
                self._device._supervisor.await_change(epoch)
                continue
            if built_epoch != epoch:
                continue
            try:
                # Not `result`, which would have every raise add its frames, with what they hold, to one error.
                error = build.exception(None if end is None else max(0.0, end - time.monotonic()))
            except FutureTimeout:
                raise AskTimeout(f"the plan of {record.spec.op} was not built within {timeout} s") from None
            if not isinstance(error, WorkerGone):
                self._end_watch(record.spec)
            if error is None:
                fields = build.result().fields
                if isinstance(fields.get("notes"), list):
                    record.notes = tuple(str(note) for note in fields["notes"])
                    record.tuning = str(fields.get("tuning", ""))
                workspaces = self._device._workspaces
                record.workspace = workspaces.check(fields.get("workspace", record.workspace))
                workspaces.require(record.lane, record.workspace)
                return epoch
            if not isinstance(error, WorkerGone):
                try:
                    raise copy.copy(error)
                finally:
                    del error
            self._device._supervisor.await_change(epoch)

    def built(self, index: int, epoch: int) -> None:
        """Note that the worker of a generation has the plan, or its refusal."""
        record = self._records.get(index)
        if record is not None:
            with record.lock:
                record.epoch = epoch
                record.build = None
                if self._kills.get(record.spec, 0) < _KILLS:  # else the next send is refused
                    record.build = Future()
                    record.build.set_result(Answer({}))

    def accuse(self, running: list[PlanRecord], *, build: bool = True) -> None:
        """Find out what has ended a worker that died by itself: one of these, or the plan that was being built.

        A single one is counted.  Of several, nobody is, until deaths of that kind have a single one in common.  A fault
        on demand (see `Device.inject_fault`) is nobody else's doing.
        """
        building = [r for r, future in list(self._builds) if not _is_over(future)][:1] if build else []
        demanded = {r.spec for r in running if any(name == "demanded" for name, _ in r.spec.attributes)}
        specs = demanded or {r.spec for r in running + building if not r.spec.op.startswith(_OWN)}
        if len(specs) == 1:
            (spec,) = specs
            self._kills[spec] = self._kills.get(spec, 0) + 1
        elif specs:
            common = specs & self._accused
            self._accused = common or specs
            if len(common) == 1:
                self._kills[common.pop()] = _KILLS

    def progressed(self, fields: dict[str, Any]) -> None:
        """Take in how a build gets on; its content is untrusted.  Called by the thread that reads from the worker."""
        index, done, total = fields.get("plan"), fields.get("done"), fields.get("total")
        record = self._records.get(index) if type(index) is int else None
        watcher = self.watchers.get(record.spec) if record is not None else None
        if watcher is not None and type(done) is int and type(total) is int:
            watcher(done, total, str(fields.get("text", ""))[:500])

    def _end_watch(self, spec: PlanSpec) -> None:
        """Let go of who watched a build that is over; a bar goes back to where the terminal goes on."""
        watcher = self.watchers.pop(spec, None)
        if isinstance(watcher, ProgressBar):
            watcher.close()

    def forget_builds(self) -> None:
        """Note that the worker which was asked for them is dead."""
        self._builds.clear()

    def specification(self, index: int) -> dict[str, Any] | None:
        """Return what a new worker builds for queued messages of a plan: itself, or its refusal."""
        record = self._records.get(index)
        if record is None:
            return None
        spec = record.to_json()
        if reason := self._quarantine(record.spec):
            spec |= {"op": "quarantined", "reason": reason}
        return spec

    def _check(self, spec: PlanSpec) -> None:
        if reason := self._quarantine(spec):
            raise PlanQuarantined(reason)

    def _quarantine(self, spec: PlanSpec) -> str:
        """Return why a plan is refused; empty if it is not."""
        kills = self._kills.get(spec, 0)
        if kills < _KILLS:
            return ""
        return (
            f"this plan of {spec.op} was running, or being built, each of the {kills} times that the worker died; "
            f"it is not tried again in this System; change the operation, or make a new System"
        )


def _is_over(build: Future[Answer]) -> bool:
    """Whether the worker survived a build, whatever came of it."""
    return build.done() and not isinstance(build.exception(), WorkerGone)
