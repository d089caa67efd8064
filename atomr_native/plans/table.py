"""The plans of one device: their numbers, their builds, and their rebuilds after a restart."""

from __future__ import annotations

import contextlib
import copy
import sys
import time
from collections import deque
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from .._lib.guard import TICK, Lock, Promise, check, shielded, shielded_service
from .._lib.sender import BLOCKING, LOCATED, SETTLING
from .._support.threads import WaitPool
from .._support.timeouts import deadline_of
from ..errors import AskTimeout, AtomrError, MessageCall
from ..protocol.messages import Answer, BuildAnswer, WorkerGone
from ..protocol.typed import decode
from .quarantine import Quarantine
from .spec import PlanRequest, PlanSpec, QuarantinedAttributes
from .tuning import ProgressBar

if TYPE_CHECKING:
    from .owner import PlanOwner
    from .plan import Plan

__all__ = ["PlanRecord", "PlanTable"]

_MOST_STEPS = 1 << 20  # of a build that reports its progress
_PAST = 1024  # plans without holders whose failed messages can still be named
_PLACES = 16384  # newest sends whose places in the program are known
_PACKAGE = __name__.partition(".")[0]
_RETRYING = 4  # messages that are sent again at the same time, each in a thread
_WAITING = 32  # coroutines that wait for plans at the same time, each in a thread


class _PastPlan(NamedTuple):
    """A plan that nobody holds any more, for errors of its messages that are read later."""

    number: int
    lane: int
    since: int
    last_ticket: int
    operation: str
    operands: tuple[tuple[str, str, tuple[int, ...]], ...]


class PlanRecord:
    """The device's record of a plan.  It outlives the plan's last holder while messages still name the plan."""

    def __init__(self, index: int, lane: int, spec: PlanSpec) -> None:
        self.index = index
        self.lane = lane
        self.spec = spec
        self.plan: Callable[[], Plan | None] = _no_plan
        self.last_ticket = 0  # of a plan without a holder
        self.retired = False  # the plan has no holder, and `last_ticket` is the ticket of its last message
        self.workspace = 0  # bytes of the lane's workspace that its messages need
        self.operation = spec.op  # in errors
        self.operands: tuple[tuple[str, str, tuple[int, ...]], ...] = ()  # name, dtype and shape, where it has them
        self.since = 0  # tickets of the lane when the record was made: later ones may name it
        self.lock = Lock()
        self.epoch = 0  # generation of the worker that builds or has built it
        self.build: Promise[Answer] | None = None
        self.refused_epoch = 0  # generation of the worker that refuses its messages
        self.notes: tuple[str, ...] = ()
        self.tuning = ""

    def request(self, quarantine: Quarantine) -> PlanRequest:
        """Return what the worker builds it from, or refuses its messages from."""
        spec = self.spec
        suspect = quarantine.suspects(spec)
        if refusal := quarantine.reason(spec):
            spec = PlanSpec("quarantined", spec.operands, spec.scalars, QuarantinedAttributes(refusal))
        return PlanRequest(self.index, self.lane, spec.to_json(), spec.binaries, suspect)


class PlanTable:
    """The plans of one device: numbers, builds, rebuilds after a restart.

    Parameters
    ----------
    owner : PlanOwner
        The device.
    """

    def __init__(self, owner: PlanOwner) -> None:
        self._owner = owner
        self._lock = Lock(leaf=True)
        self._records: dict[int, PlanRecord] = {}
        self._free: list[int] = []
        self._next = 0
        self._retired: deque[PlanRecord] = deque()
        self._past: deque[_PastPlan] = deque(maxlen=_PAST)
        self._places: deque[tuple[int, int, str, int]] = deque(maxlen=_PLACES)
        self._quarantine = Quarantine(lambda op: owner.operation(op).essential)
        self._cautious = False  # whether the worker lets suspects run alone
        self._acquitted = 0  # plans that it has acquitted, as far as they are known here
        #: Listeners for the progress of builds, by specification: called with (done, total, what).
        self.watchers: dict[PlanSpec, Callable[[int, int, str], object]] = {}
        self._builds: deque[tuple[PlanRecord, Promise[Answer]]] = deque()  # in the order of the requests
        self.wait_pool = WaitPool(f"atomr_native-{owner.name}-plans", _WAITING)
        self.retry_pool = WaitPool(f"atomr_native-{owner.name}-retries", _RETRYING)

    @shielded
    def register(self, lane: int, spec: PlanSpec) -> PlanRecord:
        """Return the record of a new plan, with a number."""
        self.collect()
        with self._lock:
            if self._free:
                index = self._free.pop(0)
            else:
                index = self._next
                self._next += 1
            record = PlanRecord(index, lane, spec)
            record.since = self._owner.core.lane_stats(lane)["sent"]
            self._records[index] = record
            return record

    def record(self, index: int) -> PlanRecord | None:
        """Return the plan with this number."""
        return self._records.get(index)

    def modes_of(self, spec: PlanSpec) -> int:
        """Return what sends of a plan do beside sending: bits of `_lib.sender`."""
        located = LOCATED if self._owner.located else 0
        if not self._owner.blocking:
            return located
        # A copy or a wait reports the cause of a failure, not that it has not run.
        settling = SETTLING if spec.op == "noop" or spec.op.startswith("memory.") else 0
        return BLOCKING | settling | located

    def note_place(self, lane: int, ticket: int) -> None:
        """Note the first frame outside of this package as the place that has sent a message."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
            frame = frame.f_back
        if frame is not None:
            self._places.append((lane, ticket, frame.f_code.co_filename, frame.f_lineno))

    def call_of(self, index: int, lane: int, ticket: int) -> MessageCall | None:
        """Return the call of a failed message; None where its plan is not known any more, or never was."""
        record: PlanRecord | _PastPlan | None = self._records.get(index)
        if record is None or record.lane != lane or ticket <= record.since:  # the number has another owner by now
            past = (p for p in reversed(self._past.copy()) if (p.number, p.lane) == (index, lane))
            record = next((p for p in past if p.since < ticket <= p.last_ticket), None)
            if record is None:
                return None
        name, actor = self._owner.name, self._owner.lane_name(lane)
        places = (p for p in reversed(self._places.copy()) if p[:2] == (lane, ticket)) if self._places else iter(())
        place = next(((file, line) for _, _, file, line in places), (None, None))
        return MessageCall(name, actor, ticket, record.operation, record.operands, *place)

    def workspace(self, lane: int) -> int:
        """Return the largest workspace, in bytes, of a lane's plans that have, or may get, messages."""
        core = self._owner.core
        with self._lock:
            found = [record for record in self._records.values() if record.lane == lane and record.workspace]
        used = [r for r in found if not (r.retired and core.resolved(lane, r.last_ticket))]
        return max((record.workspace for record in used), default=0)

    def retire(self, record: PlanRecord) -> None:
        """Mark a plan without a holder; it is unloaded once its last message is resolved.  Called by finalizers."""
        record.retired = True
        self._retired.append(record)

    @shielded_service
    def collect(self) -> None:
        """Unload retired plans that no open message names.  Does not wait."""
        core = self._owner.core
        for _ in range(len(self._retired)):
            try:
                record = self._retired.popleft()
            except IndexError:  # another thread collects, too
                return
            if not core.resolved(record.lane, record.last_ticket):
                self._retired.append(record)
                continue
            try:
                if record.epoch == core.epoch:
                    self._owner.links.submit("drop_plan", plan=record.index, timeout=0.0)
            except AskTimeout:  # the worker's control socket is full
                self._retired.append(record)
                return
            except AtomrError:
                pass  # a dead worker has nothing loaded
            with self._lock:
                self._records.pop(record.index, None)
                self._past.append(
                    _PastPlan(record.index, record.lane, record.since, record.last_ticket, record.operation,
                              record.operands)
                )  # fmt: skip
                self._free.append(record.index)

    @shielded
    def start_build(self, record: PlanRecord) -> None:
        """Request the plan from the worker, once; from a restarting device later."""
        with record.lock:
            if record.epoch == self._owner.core.epoch and record.build is not None:
                return
            self._quarantine.check(record.spec)
            try:
                # The generation of the worker that got the request: the device's generation may change meanwhile.
                record.epoch, record.build = self._owner.links.submit_build(record.request(self._quarantine))
            except WorkerGone:
                record.build = None
                return
            self._builds.append((record, record.build))
        while self._builds and _is_over(self._builds[0][1]):
            with contextlib.suppress(IndexError):
                self._builds.popleft()

    @shielded
    def ready(self, record: PlanRecord, timeout: float | None, open_timeout: float | None) -> int:
        """Wait until the current worker has the plan; return its generation.

        `timeout` (seconds) bounds the whole wait, `open_timeout` the wait for a restarting device.
        """
        end = deadline_of(timeout)
        while True:
            check()
            self._owner.wait_ready(open_timeout if end is None else max(0.0, end - time.monotonic()))
            epoch = self._owner.core.epoch
            self.start_build(record)
            with record.lock:
                build, built_epoch = record.build, record.epoch
            if build is None:  # the worker is dead, and the supervisor has not noticed yet
                self._owner.supervisor.await_change(epoch)
                continue
            if built_epoch != epoch:
                continue
            if not self._await_build(build, end):
                raise AskTimeout(f"the plan of {record.spec.op} was not built within {timeout} s")
            # Not `result`: each raise would add its frames, and the objects in them, to one shared error.
            error = build.exception()
            if not isinstance(error, WorkerGone):
                self._end_watch(record.spec)
            if error is None:
                if fields := build.result().fields:
                    self._take(record, fields)
                self._owner.workspaces.require(record.lane, record.workspace)
                return epoch
            if not isinstance(error, WorkerGone):
                try:
                    raise copy.copy(error)
                finally:
                    del error
            self._owner.supervisor.await_change(epoch)

    @staticmethod
    def _await_build(build: Promise[Answer], end: float | None) -> bool:
        """Wait for the worker's answer; return False when it is not there in time."""
        while True:
            check()
            left = TICK if end is None else min(end - time.monotonic(), TICK)
            with contextlib.suppress(TimeoutError):
                build.exception(max(left, 0.0))
                return True
            if left < TICK:
                return False

    def _take(self, record: PlanRecord, fields: dict[str, Any]) -> None:
        """Take in what the worker says about a plan that it has built; it is untrusted."""
        answer = decode(fields, BuildAnswer, f"the worker's answer about {record.spec.op}", AtomrError)
        record.workspace = self._owner.workspaces.check(answer.workspace)
        record.notes, record.tuning = answer.notes, answer.tuning

    def built(self, index: int, epoch: int) -> None:
        """Record that the worker of a generation has the plan, or its refusal."""
        record = self._records.get(index)
        if record is not None:
            with record.lock:
                record.epoch = epoch
                record.build = None
                if self._quarantine.reason(record.spec):  # the next send is refused
                    record.refused_epoch = epoch
                else:
                    record.build = Promise()
                    record.build.set_result(Answer({}))

    def accuse(self, running: list[PlanRecord], *, build: bool = True, sure: bool = True) -> str:
        """Accuse the plans that ran when a worker died by itself, and the plan that was being built.

        Returns the consequence, for an error.  See `Quarantine.accuse` about `sure`.
        """
        building = [r for r, future in list(self._builds) if not _is_over(future)][:1] if build else []
        return self._quarantine.accuse({record.spec for record in [*running, *building]}, sure=sure)

    def begin_probation(self) -> bool:
        """Return whether the next worker lets suspects run alone.  Called before it is told of any plan."""
        self._acquitted, self._cautious = 0, self._quarantine.has_suspects
        return self._cautious

    def review(self) -> None:
        """Acquit the suspects that have run well; without any the worker stops being cautious.  Supervisor's thread."""
        if not self._cautious:
            return
        found = self._owner.core.acquitted()
        for index in found[self._acquitted :]:
            if (record := self._records.get(index)) is not None:
                self._quarantine.acquit(record.spec)
        self._acquitted = len(found)
        if not self._quarantine.has_suspects:
            with contextlib.suppress(AtomrError):  # its socket is full, so the next review tries, or it is dead
                self._owner.links.submit("trust", timeout=0.0)
                self._cautious = False

    def pardon(self, spec: PlanSpec) -> None:
        """Lift the quarantine of a specification; waits for messages that are being refused."""
        core = self._owner.core
        with self._lock:
            records = [record for record in self._records.values() if record.spec == spec]
        for record in records:
            if record.refused_epoch != core.epoch:
                continue
            plan = record.plan()
            core.wait_ticket(record.lane, record.last_ticket if plan is None else plan.last_ticket, None)
            with record.lock, contextlib.suppress(WorkerGone):  # the next worker has no refusal of it
                if record.refused_epoch == core.epoch:
                    self._owner.links.submit("drop_plan", plan=record.index)
                record.refused_epoch = 0
        self._quarantine.pardon(spec)

    def progressed(self, fields: dict[str, Any]) -> None:
        """Process an untrusted progress report of a build.  Called by the thread that reads from the worker."""
        index, done, total = fields.get("plan"), fields.get("done"), fields.get("total")
        record = self._records.get(index) if type(index) is int else None
        watcher = self.watchers.get(record.spec) if record is not None else None
        if watcher is not None and type(done) is int and type(total) is int and 0 <= done <= total <= _MOST_STEPS:
            watcher(done, total, str(fields.get("text", ""))[:500])

    def _end_watch(self, spec: PlanSpec) -> None:
        """Remove the listener of a finished build; a progress bar releases the terminal."""
        watcher = self.watchers.pop(spec, None)
        if isinstance(watcher, ProgressBar):
            watcher.close()

    def forget_builds(self) -> None:
        """Drop all builds: their worker is dead."""
        self._builds.clear()

    def request(self, index: int) -> PlanRequest | None:
        """Return the build request for queued messages of a plan: the plan, or its refusal."""
        record = self._records.get(index)
        return None if record is None else record.request(self._quarantine)


def _no_plan() -> None:
    """Stand for the weak reference to a plan that has not been made."""


def _is_over(build: Promise[Answer]) -> bool:
    """Whether the worker survived a build, whatever its outcome."""
    return build.done() and not isinstance(build.exception(), WorkerGone)
