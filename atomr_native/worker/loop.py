"""The worker's end of the control plane: a responsive control thread, and a thread that builds plans.

The control thread answers quick requests itself and passes slow ones (builds of plans, recovery of groups, the known
answer) to the builder thread, which keeps their order.  Answers carry the request's id and come in any order.  A
request that fails is answered with its error and never ends the loop.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import select
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, Literal

from .._lib.guard import own_thread
from ..errors import AtomrError, InvalidRequest, LibraryError
from ..protocol.frames import Frame, FrameReader, FrameWriter, ProtocolError, close_fds
from ..protocol.messages import ABI, package_version
from ..protocol.wire_errors import encode_error
from .contracts import Builders, LanesFactory
from .requests import Requests

__all__ = ["WorkerLoop"]

_log = logging.getLogger("atomr_native.worker")

_MAX_LOGS = 256  # log messages that wait for the socket
_Answer = tuple[int, dict[str, Any], Sequence[int], bool]


class WorkerLoop:
    """Serves the requests of one parent until it requests ``close`` or ends.

    Parameters
    ----------
    sock
        The worker's end of the socket pair; borrowed, made non-blocking.
    placement
        ``"process"`` or ``"thread"``; a thread never ends or disturbs its process.
    lanes_factory, builders
        Makers of native lanes and plans; by default those of the ``host`` device.
    parent_pidfd
        A pidfd of the parent, watched until the lanes watch it; -1 for none.
    context
        Context of a CUDA device, opened by a hot standby.
    """

    def __init__(
        self,
        sock: socket.socket,
        *,
        placement: Literal["process", "thread"],
        lanes_factory: LanesFactory | None = None,
        builders: Builders | None = None,
        parent_pidfd: int = -1,
        context: Any = None,
    ) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._placement = placement
        self._parent_pidfd = parent_pidfd
        self._frames = FrameReader(sock)
        self._writer = FrameWriter(sock)
        self._answers: queue.SimpleQueue[_Answer] = queue.SimpleQueue()
        self._logs: deque[dict[str, Any]] = deque()
        self._work: queue.SimpleQueue[tuple[int, str, Frame] | None] = queue.SimpleQueue()
        self._builder: threading.Thread | None = None
        self._open: dict[int, Frame] = {}  # requests in work, by number
        self._wake_lock = threading.RLock()  # a destructor may log inside
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._requests = Requests(
            placement=placement,
            lanes_factory=lanes_factory,
            builders=builders,
            parent_pidfd=parent_pidfd,
            wake_fd=self._wake_fd,
            notify=self.post_log,
            context=context,
        )

    # ---- the control thread

    def run(self) -> int:
        """Serve until the end; return the exit status for a worker process.  Call once.

        In process placement the caller exits by ``_exit`` at once, so lanes are stopped only on request.
        """
        self._answers.put((-1, self._hello(), (), False))
        poller = select.poll()
        poller.register(self._wake_fd, select.POLLIN)
        poller.register(self._sock, select.POLLIN)
        if self._parent_pidfd >= 0:
            poller.register(self._parent_pidfd, select.POLLIN)
        status = 0
        try:
            while not self._requests.closing:
                blocked = not self._flush()
                poller.modify(self._sock, select.POLLIN | (select.POLLOUT if blocked else 0))
                ready = dict(poller.poll())
                if self._parent_pidfd in ready:
                    break
                if self._wake_fd in ready:
                    with contextlib.suppress(BlockingIOError):
                        os.eventfd_read(self._wake_fd)
                    if self._requests.faulted:
                        break  # nothing can work here again: exit like a process that died of the fault
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
            if self._requests.slow(op):
                self._give_to_builder(number, op, frame)
            else:
                self._answer(number, op, frame)
            if self._requests.closing:
                return

    def _answer(self, number: int, op: str, frame: Frame) -> None:
        try:
            reply = self._requests.serve(op, frame)
            answer: _Answer = (number, {"id": number, "ok": True, **reply.fields}, reply.fds, reply.owns_fds)
        except Exception as error:
            if self._requests.faulted:
                return  # it ends this worker, and is not an error of the request
            if not isinstance(error, AtomrError):
                _log.exception("control operation %r failed", op)
            answer = (number, {"id": number, "ok": False, "error": encode_error(error)}, (), False)
        finally:
            frame.close()
            self._open.pop(number, None)
        self._answers.put(answer)

    def _flush(self) -> bool:
        """Send as much as the socket accepts: answers first, then log messages.  Return True when nothing is left."""
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
                # Its descriptors cannot be sent (for example, too many are in flight): that is the answer, then.
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
            # While the parent lives, only sending descriptors can fail.
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
        patience = 0.0 if self._requests.faulted else 2.0
        try:
            self._requests.stop()
        except Exception:
            _log.exception("stopping the lanes failed")
        if self._builder is not None:
            self._builder.join(patience)
        self._writer.close()
        self._discard_answers()
        with self._wake_lock:
            os.close(self._wake_fd)
            self._wake_fd = -1
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)  # the parent sees the end; earlier messages still arrive

    def _discard_answers(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                _, _, fds, owns = self._answers.get_nowait()
                if owns:
                    close_fds(fds)

    # ---- other threads

    def abandon(self) -> None:
        """In a forked child, where the loop does not run: close its descriptors, regardless of held locks."""
        self._wake_lock = threading.RLock()
        fd, self._wake_fd = self._wake_fd, -1
        if fd >= 0:
            os.close(fd)
        self._frames.close()
        self._writer.close()
        for frame in list(self._open.values()):
            frame.close()
        self._discard_answers()
        if self._requests.lanes is not None:
            self._requests.lanes.abandon()

    def post_log(self, message: dict[str, Any]) -> bool:
        """Queue a notification without waiting, from any thread; return False if there is no room."""
        if len(self._logs) >= _MAX_LOGS:
            return False
        self._logs.append(message)
        self._wake()
        return True

    def _wake(self) -> None:
        with self._wake_lock, contextlib.suppress(BlockingIOError):
            if self._wake_fd >= 0:
                os.eventfd_write(self._wake_fd, 1)

    def _give_to_builder(self, number: int, op: str, frame: Frame) -> None:
        if self._builder is None:
            self._builder = threading.Thread(target=self._build, name="atomr_native-builder", daemon=True)
            self._builder.start()
        self._work.put((number, op, frame))

    def _build(self) -> None:
        own_thread(serving=True)
        while (item := self._work.get()) is not None:
            self._answer(*item)
            self._wake()
