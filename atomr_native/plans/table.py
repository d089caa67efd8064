"""The plans of one device: their numbers, their builds, and their rebuilds after a restart."""

from __future__ import annotations

import contextlib
import copy
import sys
import time
import weakref
from collections import deque
from collections.abc import Callable, Hashable
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from .._lib.guard import TICK, Lock, Promise, check, shielded, shielded_service
from .._lib.sender import BLOCKING, LOCATED, SETTLING
from .._support.threads import WaitPool
from .._support.timeouts import deadline_of
from ..errors import AskTimeout, AtomrError, MessageCall, OutOfMemory, Unsupported
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
#: Bytes of workspace below which a plan is not built with less, and the part that it may have then.
_SMALL = 1 << 20
_LESS = 4
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
        self.key: Hashable = None  # by which further plans find it
        self.plans: tuple[Callable[[], Plan | None], ...] = ()  # that have it, and have been made last
        self.common: Callable[[], Any] | None = None  # of the object that plans with this key have together
        self.n_plans = 0  # that were made and not retired, as far as `collect` knows
        self.last_ticket = 0  # of plans without holders
        self.retired = False  # no plan has a holder, and `last_ticket` is the ticket of their last message
        self.workspace = 0  # bytes of the lane's workspace that its messages need
        self.operation = spec.op  # in errors
        self.operands: tuple[tuple[str, str, tuple[int, ...]], ...] = ()  # name, dtype and shape, where it has them
        self.since = 0  # tickets of the lane when the record was made: later ones may name it
        self.lock = Lock()
        self.unloaded = False  # its number may be that of another record by now
        self.epoch = 0  # generation of the worker that builds or has built it
        self.build: Promise[Answer] | None = None
        self.refused_epoch = 0  # generation of the worker that refuses its messages
        self.used_epoch = 0  # generation of the worker to which its messages may have been sent
        self.limit: int | None = None  # bytes of workspace that it may have, where memory was short
        self.shortage: OutOfMemory | None = None  # for which it has that limit
        self.notes: tuple[str, ...] = ()
        self.tuning = ""

    def newest_ticket(self) -> int:
        """Return the ticket of the last message."""
        plans = (get() for get in self.plans)
        return max(self.last_ticket, *(plan.last_ticket for plan in plans if plan is not None), 0)

    def request(self, quarantine: Quarantine) -> PlanRequest:
        """Return what the worker builds it from, or refuses its messages from."""
        spec = self.spec
        suspect = quarantine.suspects(spec)
        if refusal := quarantine.reason(spec):
            spec = PlanSpec("quarantined", spec.operands, spec.scalars, QuarantinedAttributes(refusal))
        return PlanRequest(self.index, self.lane, spec.to_json(), spec.binaries, suspect, self.limit)


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
        self._keyed: dict[Hashable, PlanRecord] = {}  # those that further plans may have
        self._retired: deque[tuple[PlanRecord, int]] = deque()  # with the last ticket of the plan that has gone
        self._unloading: deque[PlanRecord] = deque()
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
    def register(self, lane: int, spec: PlanSpec, key: Hashable = None) -> PlanRecord:
        """Return the record of a new plan: that of plans with the same key, or one with a new number."""
        self.collect()
        with self._lock:
            if (found := self._keyed.get(key)) is not None:
                found.n_plans += 1
                return found
            if self._free:
                index = self._free.pop(0)
            else:
                index = self._next
                self._next += 1
            record = PlanRecord(index, lane, spec)
            record.since = self._owner.core.lane_stats(lane)["sent"]
            record.n_plans = 1
            self._records[index] = record
            if key is not None:
                record.key = key
                self._keyed[key] = record
            return record

    def common(self, record: PlanRecord, make: Callable[[], Any]) -> Any:
        """Return the object that the plans of a record have together; the first of them makes it."""
        with self._lock:
            found = record.common() if record.common is not None else None
            if found is None:
                found = make()
                record.common = weakref.ref(found)
            return found

    def add(self, record: PlanRecord, plan: Plan) -> None:
        """Let a record know a plan that has it."""
        with self._lock:
            record.plans = (*(one for one in record.plans if one() is not None), weakref.ref(plan))

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
        self._take_retired()
        with self._lock:
            found = [record for record in self._records.values() if record.lane == lane and record.workspace]
        used = [r for r in found if not (r.retired and core.resolved(lane, r.last_ticket))]
        return max((record.workspace for record in used), default=0)

    def retire(self, record: PlanRecord, last_ticket: int) -> None:
        """Note a plan without a holder; it is unloaded once its last message is resolved.  Called by finalizers."""
        self._retired.append((record, last_ticket))

    def _take_retired(self) -> None:
        """Move the records that no plan has any more to those that are to be unloaded."""
        with contextlib.suppress(IndexError):
            while True:
                record, last_ticket = self._retired.popleft()
                with self._lock:
                    record.last_ticket = max(record.last_ticket, last_ticket)
                    record.n_plans -= 1
                    if record.n_plans:
                        continue
                    record.retired = True
                    if record.key is not None:
                        del self._keyed[record.key]
                self._unloading.append(record)

    @shielded_service
    def collect(self) -> None:
        """Unload retired plans that no open message names.  Does not wait."""
        core = self._owner.core
        self._take_retired()
        for _ in range(len(self._unloading)):
            try:
                record = self._unloading.popleft()
            except IndexError:  # another thread collects, too
                return
            try:
                unloaded = core.resolved(record.lane, record.last_ticket) and self._unload(record)
            except AtomrError:  # the worker's control socket is full
                self._unloading.append(record)
                return
            if not unloaded:
                self._unloading.append(record)
                continue
            with self._lock:
                self._records.pop(record.index, None)
                self._past.append(
                    _PastPlan(record.index, record.lane, record.since, record.last_ticket, record.operation,
                              record.operands)
                )  # fmt: skip
                self._free.append(record.index)

    def _unload(self, record: PlanRecord) -> bool:
        """Make the worker forget a plan, and return whether it has been told to.

        Not while the rest of an interrupted call may be requesting the build: the worker has the number afterwards.
        """
        if not record.lock.acquire(blocking=False):
            return False
        try:
            if record.epoch == self._owner.core.epoch:
                with contextlib.suppress(WorkerGone):  # which has nothing loaded
                    self._owner.links.submit("drop_plan", plan=record.index, timeout=0.0)
            record.unloaded, record.build, record.refused_epoch = True, None, 0
            return True
        finally:
            record.lock.release()

    @shielded
    def start_build(self, record: PlanRecord) -> None:
        """Request the plan from the worker, once; from a restarting device later."""
        with record.lock:
            if record.unloaded:  # the call that wants it was interrupted
                return
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
                try:
                    self._owner.workspaces.require(record.lane, record.workspace)
                except OutOfMemory as shortage:
                    if not self._lessen(record, build, epoch, shortage):
                        raise
                    continue
                with record.lock:
                    if record.build is build:
                        record.used_epoch = epoch
                        return epoch
                continue  # another thread has lessened it
            if not isinstance(error, WorkerGone):
                if isinstance(error, Unsupported):
                    error = self._shortage(record, build) or error
                try:
                    raise copy.copy(error)
                finally:
                    del error
            self._owner.supervisor.await_change(epoch)

    def _lessen(self, record: PlanRecord, build: Promise[Answer], epoch: int, shortage: OutOfMemory) -> bool:
        """Have a plan built again with a smaller workspace, and return whether that may help.

        Only while no message can name it, and as long as the builder does with less than before.
        """
        with record.lock:
            if record.build is not build or record.epoch != epoch:  # another thread was here, or the worker has died
                return True
            stays = record.limit is not None and record.workspace > record.limit
            if stays or record.used_epoch == epoch or record.workspace < _SMALL:
                record.limit = record.shortage = None
                return False
            try:
                self._owner.links.submit("drop_plan", plan=record.index, timeout=0.0)
            except AtomrError:  # the worker's control socket is full, or it is dead
                return False
            record.limit, record.shortage, record.build = record.workspace // _LESS, copy.copy(shortage), None
            return True

    @staticmethod
    def _shortage(record: PlanRecord, build: Promise[Answer]) -> OutOfMemory | None:
        """Return the lack of memory for which a build was tried with less, in vain; the next one has no limit."""
        with record.lock:
            found = record.shortage
            if found is not None and record.build is build:
                record.limit = record.shortage = record.build = None
            return found

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
                    record.used_epoch = epoch

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
            core.wait_ticket(record.lane, record.newest_ticket(), None)
            self._drop_refusal(record)
        self._quarantine.pardon(spec)

    @shielded
    def _drop_refusal(self, record: PlanRecord) -> None:
        with record.lock, contextlib.suppress(WorkerGone):  # the next worker has no refusal of it
            if record.refused_epoch == self._owner.core.epoch:
                self._owner.links.submit("drop_plan", plan=record.index)
            record.refused_epoch = 0

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


def _is_over(build: Promise[Answer]) -> bool:
    """Whether the worker survived a build, whatever its outcome."""
    return build.done() and not isinstance(build.exception(), WorkerGone)
