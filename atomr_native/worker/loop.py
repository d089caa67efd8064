"""The worker's end of the control plane: one thread that stays responsive, one that builds plans.

The control thread answers quick requests itself and hands slow ones (building a plan, recovering groups, the known
answer) to the builder thread, which keeps their order among themselves.  Answers carry the request's id and come in
any order.  A request that fails is answered with its error and never ends the loop.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import queue
import select
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from .._frames import Frame, FrameReader, FrameWriter, ProtocolError, close_fds
from .._wire_errors import encode_error
from ..control import ABI, package_version
from ..dtypes import as_dtype
from ..errors import AtomrError, InvalidRequest, LibraryError, Unsupported
from . import faults
from .contracts import Builders, Built, LanesFactory, LanesLike
from .foreign import open_foreign
from .host_device import HostBuilders, native_lanes
from .patience import Patience

__all__ = ["WorkerLoop"]

_log = logging.getLogger("atomr_native.worker")

#: Requests during which the parent's watchdog pauses.
_LONG: Final = frozenset(
    {"build_plan", "recover_groups", "self_test", "create_segment", "map_segment", "open_foreign", "close_foreign"}
)
_MAX_LOGS = 256  # log messages that wait for the socket
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass(slots=True)
class _Reply:
    fields: dict[str, Any] = field(default_factory=dict)
    fds: Sequence[int] = ()
    owns_fds: bool = False


_Answer = tuple[int, dict[str, Any], Sequence[int], bool]


class WorkerLoop:
    """Serves the requests of one parent until it says ``close`` or goes away.

    Parameters
    ----------
    sock
        The worker's end of the socket pair; borrowed, made non-blocking.
    placement
        ``"process"`` or ``"thread"``; a thread never ends or disturbs the process it is in.
    lanes_factory, builders
        What makes the native lanes and the plans; by default those of the ``host`` device.
    parent_pidfd
        A pidfd of the parent, watched until the lanes watch it; -1 for none.
    """

    def __init__(
        self,
        sock: socket.socket,
        *,
        placement: Literal["process", "thread"],
        lanes_factory: LanesFactory | None = None,
        builders: Builders | None = None,
        parent_pidfd: int = -1,
    ) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._placement = placement
        self._make_lanes = lanes_factory or native_lanes
        self._builders = builders or HostBuilders()
        self._parent_pidfd = parent_pidfd
        self._frames = FrameReader(sock)
        self._writer = FrameWriter(sock)
        self._answers: queue.SimpleQueue[_Answer] = queue.SimpleQueue()
        self._logs: deque[dict[str, Any]] = deque()
        self._work: queue.SimpleQueue[tuple[int, Frame] | None] = queue.SimpleQueue()
        self._builder: threading.Thread | None = None
        self._open: dict[int, Frame] = {}  # requests that are being served, by number
        self._wake_lock = threading.RLock()  # a log record of a destructor may come inside
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._busy_lock = threading.Lock()
        self._busy_count = 0
        self._lanes: LanesLike | None = None
        self._config: dict[str, Any] = {}
        self._patience: Patience | None = None  # while the worker comes up
        self._closing = False
        self._quick: dict[str, Callable[[Frame], _Reply]] = {
            "init": self._init,
            "create_segment": self._create_segment,
            "map_segment": self._map_segment,
            "unmap_segment": self._unmap_segment,
            "open_lane": self._open_lane,
            "set_workspace": self._set_workspace,
            "subscribe": self._subscribe,
            "go": self._go,
            "stats": self._stats,
            "crash": self._crash,
            "close": self._close,
        }
        self._slow: dict[str, Callable[[Frame], _Reply]] = {
            "build_plan": self._build_plan,
            "drop_plan": self._drop_plan,
            "open_foreign": self._open_foreign,
            "close_foreign": self._close_foreign,
            "recover_groups": self._recover_groups,
            "self_test": self._self_test,
            "crash_device": self._crash_device,
        }

    # ---- the control thread

    def run(self) -> int:
        """Serve until the end; returns the exit status for a worker process.  Once only.

        In process placement the caller leaves by ``_exit`` at once, so lanes are stopped only when asked to.
        """
        self._answers.put((-1, self._hello(), (), False))
        poller = select.poll()
        poller.register(self._wake_fd, select.POLLIN)
        poller.register(self._sock, select.POLLIN)
        if self._parent_pidfd >= 0:
            poller.register(self._parent_pidfd, select.POLLIN)
        status = 0
        try:
            while not self._closing:
                blocked = not self._flush()
                poller.modify(self._sock, select.POLLIN | (select.POLLOUT if blocked else 0))
                ready = dict(poller.poll())
                if self._parent_pidfd in ready:
                    break
                if self._wake_fd in ready:
                    with contextlib.suppress(BlockingIOError):
                        os.eventfd_read(self._wake_fd)
                    if self._lanes is not None and self._lanes.faulted:
                        break  # nothing here can work again: leave as if this were a process that died of it
                if ready.get(self._sock.fileno(), 0) & ~select.POLLOUT:
                    self._serve()
            self._flush_last()
        except (EOFError, OSError):  # the parent is gone
            status = 0
        except ProtocolError as error:
            _log.error("the parent sent a malformed message: %s", error)
            status = 4
        finally:
            self._finish()
        return status

    def _hello(self) -> dict[str, Any]:
        return {
            "op": "hello",
            "pid": os.getpid(),
            "abi": ABI,
            "version": package_version(),
            "python": sys.version.split()[0],
        }

    def _serve(self) -> None:
        for _ in range(64):
            frame = self._frames.read()
            if frame is None:
                return
            number, op = frame.fields.get("id"), frame.fields.get("op")
            if type(number) is not int or not isinstance(op, str):
                frame.close()
                raise ProtocolError(f"a request needs an integer id and an op, got {number!r} and {op!r}")
            self._open[number] = frame
            if op in self._slow:
                self._give_to_builder(number, frame)
            else:
                self._answer(number, op, self._quick.get(op), frame)
            if self._closing:
                return

    def _answer(self, number: int, op: str, serve: Callable[[Frame], _Reply] | None, frame: Frame) -> None:
        try:
            if serve is None:
                raise Unsupported(f"unknown control operation {op!r}; known: {', '.join([*self._quick, *self._slow])}")
            with self._busy() if op in _LONG else contextlib.nullcontext():
                reply = self._serve_patiently(serve, frame)
            answer: _Answer = (number, {"id": number, "ok": True, **reply.fields}, reply.fds, reply.owns_fds)
        except Exception as error:
            if self._lanes is not None and self._lanes.faulted:
                return  # it is the end of this worker, and no error of the request's own
            if not isinstance(error, AtomrError):
                _log.exception("control operation %r failed", op)
            answer = (number, {"id": number, "ok": False, "error": encode_error(error)}, (), False)
        finally:
            frame.close()
            self._open.pop(number, None)
        self._answers.put(answer)

    def _serve_patiently(self, serve: Callable[[Frame], _Reply], frame: Frame) -> _Reply:
        tries = 0
        while True:
            try:
                return serve(frame)
            except AtomrError as error:
                if self._patience is None or not self._patience.allows(error, tries):
                    raise
            tries += 1

    def _flush(self) -> bool:
        """Send what the socket takes: answers first, then log messages.  True when nothing is left."""
        while True:
            if not self._writer.pending and not self._queue_next():
                return True
            try:
                if not self._writer.flush():
                    return False
            except OSError as error:
                withdrawn, number = self._writer.withdraw()
                if not withdrawn or number is None or self._parent_gone():
                    raise
                # Its descriptors cannot be sent (too many in flight, say): that is an answer too.
                failure = LibraryError("worker", error.errno or 0, "OSError", "sending descriptors", str(error))
                self._answers.put((number, {"id": number, "ok": False, "error": encode_error(failure)}, (), False))

    def _parent_gone(self) -> bool:
        poller = select.poll()
        poller.register(self._sock, 0)
        return bool(poller.poll(0))

    def _queue_next(self) -> bool:
        try:
            number, fields, fds, owns = self._answers.get_nowait()
        except queue.Empty:
            if not self._logs:
                return False
            self._writer.push(self._logs.popleft())
            return True
        try:
            # Only an answer with descriptors can fail to be sent while the parent is there.
            self._writer.push(fields, fds, owns_fds=owns, tag=number if fds else None)
        except InvalidRequest as error:  # not JSON, or too large
            if owns:
                close_fds(fds)
            self._writer.push({"id": number, "ok": False, "error": encode_error(error)})
        return True

    def _flush_last(self, seconds: float = 1.0) -> None:
        deadline = time.monotonic() + seconds
        poller = select.poll()
        poller.register(self._sock, select.POLLOUT)
        while not self._flush() and (left := deadline - time.monotonic()) > 0:
            poller.poll(left * 1000)

    def _finish(self) -> None:
        self._frames.close()
        if self._placement == "process":
            return
        self._work.put(None)
        patience = 2.0 if self._lanes is None or not self._lanes.faulted else 0.0
        if self._lanes is not None:
            try:
                self._lanes.stop()
            except Exception:
                _log.exception("stopping the lanes failed")
            self._lanes = None  # their memory and descriptors go with them
        if self._builder is not None:
            self._builder.join(patience)
        self._writer.close()
        self._discard_answers()
        with self._wake_lock:
            os.close(self._wake_fd)
            self._wake_fd = -1
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)  # the parent sees the end; what was sent before still arrives

    def _discard_answers(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                _, _, fds, owns = self._answers.get_nowait()
                if owns:
                    close_fds(fds)

    # ---- other threads

    def abandon(self) -> None:
        """In a forked child, where the loop does not run: close its descriptors, whatever locks were held."""
        self._wake_lock = threading.RLock()
        fd, self._wake_fd = self._wake_fd, -1
        if fd >= 0:
            os.close(fd)
        self._frames.close()
        self._writer.close()
        for frame in list(self._open.values()):
            frame.close()
        self._discard_answers()
        if self._lanes is not None:
            self._lanes.abandon()

    def post_log(self, message: dict[str, Any]) -> bool:
        """Queue a notification without waiting, from any thread; False if there is no room."""
        if len(self._logs) >= _MAX_LOGS:
            return False
        self._logs.append(message)
        self._wake()
        return True

    def _wake(self) -> None:
        with self._wake_lock, contextlib.suppress(BlockingIOError):
            if self._wake_fd >= 0:
                os.eventfd_write(self._wake_fd, 1)

    @contextlib.contextmanager
    def _busy(self) -> Iterator[None]:
        """Tell the watchdog of long control work, which two threads may be at."""
        lanes = self._lanes
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

    def _give_to_builder(self, number: int, frame: Frame) -> None:
        if self._builder is None:
            self._builder = threading.Thread(target=self._build, name="atomr_native-builder", daemon=True)
            self._builder.start()
        self._work.put((number, frame))

    def _build(self) -> None:
        while (item := self._work.get()) is not None:
            number, frame = item
            op = frame.fields["op"]
            self._answer(number, op, self._slow[op], frame)
            self._wake()

    # ---- quick requests

    def _ready(self) -> LanesLike:
        if self._lanes is None:
            raise InvalidRequest("the worker has no lanes yet: 'init' comes first")
        return self._lanes

    def _init(self, frame: Frame) -> _Reply:
        fields = frame.fields
        if self._lanes is not None:
            raise InvalidRequest("the worker is initialised already")
        if fields.get("abi") != ABI or fields.get("version") != package_version():
            raise Unsupported(
                f"the worker runs atomr_native {package_version()} with control protocol {ABI}, the parent "
                f"{fields.get('version')} with {fields.get('abi')}: install one version, then restart the program"
            )
        if not 1 <= len(frame.fds) <= 2:
            raise InvalidRequest(f"'init' needs one or two descriptors, got {len(frame.fds)}")
        self._config = dict(fields.get("config") or {})
        if self._patience is None:  # else this is another try
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
                workspace_limit=int(self._config["workspace_limit"]),
                allow_crash=self._config.get("allow_crash") is True,
            )
            cuda.notify = self.post_log
            self._builders, self._make_lanes = cuda, cuda.lanes
        fault_fd = self._wake_fd if self._placement == "thread" else -1
        self._lanes = self._make_lanes(p_fd, p_bytes, parent_pidfd=watch, spin_us=spin_us, fault_fd=fault_fd)
        if len(frame.fds) == 2 and watch >= 0:
            frame.fds.pop()  # watched from now on, as long as the process lives
        if self._placement == "process" and "log_level" in self._config:
            logging.getLogger().setLevel(int(self._config["log_level"]))
        answer = {"w_bytes": int(self._lanes.w_bytes), "pid": os.getpid(), "facts": self._builders.facts}
        answer |= self._memory()
        return _Reply(answer, [self._lanes.w_fd])

    def _memory(self) -> dict[str, int]:
        free, total = self._builders.memory()
        return {"memory_free": free, "memory_total": total}

    def _create_segment(self, frame: Frame) -> _Reply:
        f = frame.fields
        fd = self._ready().create_segment(int(f["segment"]), int(f["nbytes"]), int(f["pool"]))
        return _Reply(fds=[fd], owns_fds=True)

    def _map_segment(self, frame: Frame) -> _Reply:
        f = frame.fields
        if len(frame.fds) != 1:
            raise InvalidRequest(f"'map_segment' needs one descriptor, got {len(frame.fds)}")
        self._ready().map_segment(int(f["segment"]), frame.fds[0], int(f["nbytes"]), int(f["pool"]))
        return _Reply()

    def _unmap_segment(self, frame: Frame) -> _Reply:
        self._ready().unmap_segment(int(frame.fields["segment"]))
        return _Reply()

    def _open_lane(self, frame: Frame) -> _Reply:
        self._ready().open_lane(int(frame.fields["lane"]))
        return _Reply()

    def _set_workspace(self, frame: Frame) -> _Reply:
        f = frame.fields
        self._ready().set_workspace(int(f["lane"]), int(f["segment"]), int(f["offset"]), int(f["nbytes"]))
        return _Reply()

    def _subscribe(self, frame: Frame) -> _Reply:
        if len(frame.fds) != 1:
            raise InvalidRequest(f"'subscribe' needs one descriptor, got {len(frame.fds)}")
        self._ready().subscribe(int(frame.fields["index"]), frame.fds[0])
        frame.take_fds()  # the lanes own it now
        return _Reply()

    def _go(self, _: Frame) -> _Reply:
        if self._patience is not None:
            self._patience.over()
        self._ready().go()
        return _Reply()

    def _stats(self, _: Frame) -> _Reply:
        stats = dict(self._lanes.stats()) if self._lanes is not None else {}
        with open("/proc/self/statm", encoding="ascii") as file:
            resident = int(file.read().split()[1]) * _PAGE
        if self._lanes is not None:
            stats |= self._memory()
        return _Reply({**stats, "rss": resident, "pid": os.getpid(), "threads": threading.active_count()})

    def _allow_crash(self) -> None:
        if self._config.get("allow_crash") is not True:
            raise Unsupported("faults are injected only into a worker whose configuration allows it (allow_crash)")

    def _crash(self, frame: Frame) -> _Reply:
        self._allow_crash()
        if faults.inject(str(frame.fields.get("how")), in_process=self._placement == "process"):
            self._closing = True
        return _Reply()

    def _close(self, _: Frame) -> _Reply:
        self._closing = True
        if self._lanes is not None:
            self._lanes.stop()
        return _Reply()

    # ---- slow requests

    def _build_plan(self, frame: Frame) -> _Reply:
        lanes, spec = self._ready(), frame.fields["spec"]
        if spec["op"] in faults.OPERATIONS and self._config.get("allow_crash") is True:
            assign = self._builders.assign(int(spec.get("lane", 0)))
            built: Built = faults.build(spec, in_process=self._placement == "process", assign=assign)
        else:
            built = self._builders.build(spec | {"plan": int(frame.fields["plan"])})
        operands = [
            (as_dtype(o["dtype"]), tuple(map(int, o["shape"])), tuple(map(int, o["strides"]))) for o in spec["operands"]
        ]
        scalars = list(spec.get("scalars", ()))
        lanes.add_plan(int(frame.fields["plan"]), built.run, operands, scalars, str(spec["op"]))
        return _Reply(
            {
                "workspace": int(built.workspace),
                "notes": list(getattr(built, "notes", ())),
                "tuning": str(getattr(built, "tuning", "")),
            }
        )

    def _drop_plan(self, frame: Frame) -> _Reply:
        self._ready().remove_plan(int(frame.fields["plan"]))
        return _Reply()

    def _open_foreign(self, frame: Frame) -> _Reply:
        open_foreign(self._ready(), frame.fields, frame.fds, in_process=self._placement == "process")
        return _Reply()

    def _close_foreign(self, frame: Frame) -> _Reply:
        self._ready().close_foreign(int(frame.fields["segment"]))
        return _Reply()

    def _recover_groups(self, frame: Frame) -> _Reply:
        return _Reply({"groups": self._builders.recover(self._ready(), list(frame.fields["groups"]))})

    def _self_test(self, _: Frame) -> _Reply:
        self._builders.self_test()
        return _Reply()

    def _crash_device(self, frame: Frame) -> _Reply:
        self._allow_crash()
        self._builders.crash(str(frame.fields.get("how")))
        return _Reply()
