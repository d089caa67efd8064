"""The requests of the control plane: to native lanes, plan builders and the worker itself."""

from __future__ import annotations

import contextlib
import functools
import importlib
import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct, field

from ..builders.context import Built
from ..dtypes import as_dtype
from ..errors import AtomrError, InvalidRequest, Unsupported
from ..plans.spec import PlanSpec
from ..protocol.binaries import KeptBinaries
from ..protocol.frames import Frame
from ..protocol.messages import ABI, BuildAnswer, package_version
from . import faults
from .build import specification
from .contracts import Builders, LanesFactory, LanesLike
from .foreign import open_foreign
from .host.device import HostBuilders
from .patience import Patience

__all__ = ["Reply", "Requests"]

#: Requests during which the parent's watchdog pauses.
_LONG: Final = frozenset(
    {"build_plan", "recover_groups", "self_test", "create_segment", "map_segment", "open_foreign", "close_foreign"}
)
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


class Reply(Struct):
    """The answer to a request; owned descriptors are closed once they are sent."""

    fields: dict[str, Any] = field(default_factory=dict)
    fds: Sequence[int] = ()
    owns_fds: bool = False


class Requests:
    """Serves requests: quick ones in the control thread and slow ones in the builder thread, concurrently.

    Parameters
    ----------
    placement, lanes_factory, builders, parent_pidfd, context
        As `WorkerLoop`.
    wake_fd
        An eventfd that a device fault signals, in thread placement.
    notify
        Queues a notification for the parent without waiting.

    Attributes
    ----------
    lanes
        The native lanes, from ``init`` until `stop`.
    closing
        Whether the parent has requested the end.
    """

    def __init__(
        self,
        *,
        placement: Literal["process", "thread"],
        lanes_factory: LanesFactory | None,
        builders: Builders | None,
        parent_pidfd: int,
        wake_fd: int,
        notify: Callable[[dict[str, Any]], bool],
        context: Any = None,
    ) -> None:
        self.lanes: LanesLike | None = None
        self.closing = False
        self._placement = placement
        host = HostBuilders()
        self._make_lanes = lanes_factory or host.lanes
        self._builders: Builders = builders or host
        self._parent_pidfd = parent_pidfd
        self._wake_fd = wake_fd
        self._notify = notify
        self._context = context
        self._busy_lock = threading.Lock()
        self._busy_count = 0
        self._config: dict[str, Any] = {}
        self._patience: Patience | None = None  # while the worker starts
        self._binaries = KeptBinaries()  # for the builder thread
        self._quick: dict[str, Callable[[Frame], Reply]] = {
            "init": self._init,
            "create_segment": self._create_segment,
            "map_segment": self._map_segment,
            "unmap_segment": self._unmap_segment,
            "open_meeting": self._open_meeting,
            "close_meeting": self._close_meeting,
            "open_lane": self._open_lane,
            "set_workspace": self._set_workspace,
            "subscribe": self._subscribe,
            "go": self._go,
            "trust": self._trust,
            "stats": self._stats,
            "replays": self._replays,
            "crash": self._crash,
            "close": self._close,
        }
        self._slow: dict[str, Callable[[Frame], Reply]] = {
            "build_plan": self._build_plan,
            "drop_plan": self._drop_plan,
            "open_foreign": self._open_foreign,
            "close_foreign": self._close_foreign,
            "recover_groups": self._recover_groups,
            "self_test": self._self_test,
            "crash_device": self._crash_device,
        }

    @property
    def faulted(self) -> bool:
        """Whether the device has faulted in a process that outlives it: nothing can work here again."""
        return self.lanes is not None and self.lanes.faulted

    def slow(self, op: str) -> bool:
        """Whether an operation is for the builder thread."""
        return op in self._slow

    def serve(self, op: str, frame: Frame) -> Reply:
        """Execute a request; raise its error.

        While the worker starts, requests that fail by a transient error are retried.
        """
        serve = self._slow.get(op) or self._quick.get(op)
        if serve is None:
            raise Unsupported(f"unknown control operation {op!r}; known: {', '.join([*self._quick, *self._slow])}")
        with self._busy() if op in _LONG else contextlib.nullcontext():
            tries = 0
            while True:
                try:
                    return serve(frame)
                except AtomrError as error:
                    if self._patience is None or not self._patience.allows(error, tries):
                        raise
                tries += 1

    def stop(self) -> None:
        """Stop and release the lanes, with their memory and descriptors."""
        try:
            if self.lanes is not None:
                self.lanes.stop()
                if self._placement == "thread":  # a process ends with its connections
                    self.lanes.leave_meetings()
        finally:
            self.lanes = None

    @contextlib.contextmanager
    def _busy(self) -> Iterator[None]:
        """Report long control work, possibly of two threads, to the watchdog."""
        lanes = self.lanes
        if lanes is None:
            yield
            return
        with self._busy_lock:
            self._busy_count += 1
            lanes.set_busy(True)
        try:
            yield
        finally:
            with self._busy_lock:
                self._busy_count -= 1
                lanes.set_busy(self._busy_count > 0)

    # ---- quick requests

    def _ready(self) -> LanesLike:
        if self.lanes is None:
            raise InvalidRequest("the worker has no lanes yet: 'init' comes first")
        return self.lanes

    def _init(self, frame: Frame) -> Reply:
        fields = frame.fields
        if self.lanes is not None:
            raise InvalidRequest("the worker is initialised already")
        if fields.get("abi") != ABI or fields.get("version") != package_version():
            raise Unsupported(
                f"the worker runs atomr_native {package_version()} with control protocol {ABI}, the parent "
                f"{fields.get('version')} with {fields.get('abi')}: install one version, then restart the program"
            )
        if not 1 <= len(frame.fds) <= 2:
            raise InvalidRequest(f"'init' needs one or two descriptors, got {len(frame.fds)}")
        self._config = dict(fields.get("config") or {})
        if self._patience is None:  # otherwise this is a retry
            self._patience = Patience(float(self._config.get("patience", 0.0)))
        p_fd = frame.fds[0]
        pidfd = frame.fds[1] if len(frame.fds) == 2 else self._parent_pidfd
        p_bytes = int(fields.get("p_bytes") or os.fstat(p_fd).st_size)
        spin_us = int(self._config.get("spin_us", 50))
        watch = pidfd if self._placement == "process" else -1
        device = str(self._config.get("device", "host"))
        if device.startswith("cuda:"):
            cuda = importlib.import_module("atomr_native.worker.cuda.device").CudaDevice(
                int(device[5:]),
                str(self._config.get("uuid", "")),
                workspace_limit=self._config["workspace_limit"],
                deterministic=self._config.get("deterministic") is True,
                launch_records=self._config["launch_records"],
                allow_crash=self._config.get("allow_crash") is True,
                backend=self._context,
            )
            cuda.notify = self._notify
            self._builders, self._make_lanes = cuda, cuda.lanes
        fault_fd = self._wake_fd if self._placement == "thread" else -1
        self.lanes = self._make_lanes(p_fd, p_bytes, parent_pidfd=watch, spin_us=spin_us, fault_fd=fault_fd)
        if self._config.get("cautious") is True:
            self.lanes.be_cautious(True)
        if len(frame.fds) == 2 and watch >= 0:
            frame.fds.pop()  # watched from now on, while the process lives
        if self._placement == "process" and "log_level" in self._config:
            logging.getLogger().setLevel(int(self._config["log_level"]))
        answer = {"w_bytes": int(self.lanes.w_bytes), "pid": os.getpid(), "facts": self._builders.facts}
        answer |= self._memory()
        return Reply(answer, [self.lanes.w_fd])

    def _memory(self) -> dict[str, int]:
        free, total = self._builders.memory()
        return {"memory_free": free, "memory_total": total}

    def _create_segment(self, frame: Frame) -> Reply:
        f = frame.fields
        fd = self._ready().create_segment(int(f["segment"]), int(f["nbytes"]), int(f["pool"]))
        return Reply(fds=[fd], owns_fds=True)

    def _map_segment(self, frame: Frame) -> Reply:
        f = frame.fields
        if len(frame.fds) != 1:
            raise InvalidRequest(f"'map_segment' needs one descriptor, got {len(frame.fds)}")
        self._ready().map_segment(int(f["segment"]), frame.fds[0], int(f["nbytes"]), int(f["pool"]))
        return Reply()

    def _unmap_segment(self, frame: Frame) -> Reply:
        self._ready().unmap_segment(int(frame.fields["segment"]))
        return Reply()

    def _open_meeting(self, frame: Frame) -> Reply:
        f = frame.fields
        if len(frame.fds) != 1:
            raise InvalidRequest(f"'open_meeting' needs one descriptor, got {len(frame.fds)}")
        self._ready().open_meeting(int(f["number"]), frame.fds[0], int(f["nbytes"]), int(f["rank"]), tuple(f["uuids"]))
        return Reply()

    def _close_meeting(self, frame: Frame) -> Reply:
        self._ready().close_meeting(int(frame.fields["number"]))
        return Reply()

    def _open_lane(self, frame: Frame) -> Reply:
        self._ready().open_lane(int(frame.fields["lane"]))
        return Reply()

    def _set_workspace(self, frame: Frame) -> Reply:
        f = frame.fields
        self._ready().set_workspace(int(f["lane"]), int(f["segment"]), int(f["offset"]), int(f["nbytes"]))
        return Reply()

    def _subscribe(self, frame: Frame) -> Reply:
        if len(frame.fds) != 1:
            raise InvalidRequest(f"'subscribe' needs one descriptor, got {len(frame.fds)}")
        self._ready().subscribe(int(frame.fields["index"]), frame.fds[0])
        frame.take_fds()  # the lanes own it from here on
        return Reply()

    def _go(self, _: Frame) -> Reply:
        if self._patience is not None:
            self._patience.over()
        self._ready().go()
        return Reply()

    def _trust(self, _: Frame) -> Reply:
        self._ready().be_cautious(False)
        return Reply()

    def _stats(self, _: Frame) -> Reply:
        stats = dict(self.lanes.stats()) if self.lanes is not None else {}
        with open("/proc/self/statm", encoding="ascii") as file:
            resident = int(file.read().split()[1]) * _PAGE
        if self.lanes is not None:
            stats |= self._memory()
        return Reply({**stats, "rss": resident, "pid": os.getpid(), "threads": threading.active_count()})

    def _replays(self, frame: Frame) -> Reply:
        return Reply(dict(self._ready().replays(int(frame.fields["plan"]))))

    def _allow_crash(self) -> None:
        if self._config.get("allow_crash") is not True:
            raise Unsupported("faults are injected only into a worker whose configuration allows it (allow_crash)")

    def _crash(self, frame: Frame) -> Reply:
        self._allow_crash()
        if faults.inject(str(frame.fields.get("how")), in_process=self._placement == "process"):
            self.closing = True
        return Reply()

    def _close(self, _: Frame) -> Reply:
        self.closing = True
        if self.lanes is not None:
            self.lanes.stop()
        return Reply()

    # ---- slow requests

    def _build_plan(self, frame: Frame) -> Reply:
        lanes, fields = self._ready(), frame.fields
        self._binaries.take(fields.get("binaries", ()), frame.blob, fields.get("forgotten", ()))
        plan, spec = int(fields["plan"]), specification(fields["spec"], self._binaries.find)
        suspect, limit = fields.get("suspect") is True, fields.get("workspace")
        turn = lanes.begin_build(suspect)
        try:
            special = None
            if self._config.get("allow_crash") is True:
                special = functools.partial(self._fault, int(fields["lane"]))
            self._builders.special = special
            built = special(spec) if special is not None else None
            if built is None:
                built = self._builders.build(spec, plan, None if limit is None else int(limit))
        finally:
            lanes.end_build(turn)
        if suspect:
            lanes.suspect(plan)
        operands = [(as_dtype(o.dtype), o.shape, o.strides) for o in spec.operands]
        lanes.add_plan(plan, built.run, operands, list(spec.scalars), spec.op)
        return Reply(msgspec.to_builtins(BuildAnswer(built.workspace, built.notes, built.tuning)))

    def _fault(self, lane: int, spec: PlanSpec) -> Built | None:
        """Build an operation of tests, which fails or crashes as it is told; None for any other."""
        if spec.op not in faults.OPERATIONS:
            return None
        return faults.build(spec, in_process=self._placement == "process", assign=self._builders.assign(lane))

    def _drop_plan(self, frame: Frame) -> Reply:
        self._ready().remove_plan(int(frame.fields["plan"]))
        return Reply()

    def _open_foreign(self, frame: Frame) -> Reply:
        open_foreign(self._ready(), frame.fields, frame.fds, in_process=self._placement == "process")
        return Reply()

    def _close_foreign(self, frame: Frame) -> Reply:
        self._ready().close_foreign(int(frame.fields["segment"]))
        return Reply()

    def _recover_groups(self, frame: Frame) -> Reply:
        return Reply({"groups": self._builders.recover(self._ready(), list(frame.fields["groups"]))})

    def _self_test(self, _: Frame) -> Reply:
        self._builders.self_test()
        return Reply()

    def _crash_device(self, frame: Frame) -> Reply:
        self._allow_crash()
        self._builders.crash(str(frame.fields.get("how")))
        return Reply()
