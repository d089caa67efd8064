"""The parent's end of the control plane: requests to a worker, answers, notifications.

Requests may come from any thread.  Reading is done by one thread at a time: the supervisor once it has called
`ControlClient.adopt`, before that any thread that waits for an answer.  A reader that waits for an answer reads the
socket itself, so the supervisor can make requests during a restart.  Everything read is untrusted JSON: see
`protocol.frames` and `protocol.wire_errors`.

Only threads of this package call it (`_lib.guard`): its locks and the position in its stream do not survive an
asynchronous exception.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import logging
import select
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .._lib.guard import TICK, Lock, Promise, check
from .._support.conditions import condition
from ..errors import AskTimeout
from ..protocol.frames import Frame, FrameReader, FrameWriter, ProtocolError
from ..protocol.messages import Answer, WorkerGone
from ..protocol.wire_errors import decode_error

__all__ = ["ControlClient"]

_log = logging.getLogger("atomr_native.control")
_GONE = {errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN, errno.ESHUTDOWN}
_POLL_LIMIT = TICK  # seconds: the longest single wait for the socket


@dataclass(slots=True)
class _Pending:
    op: str
    future: Promise[Answer]


class ControlClient:
    """Requests to one worker over one socket.

    Parameters
    ----------
    sock
        The parent's end of the pair; the client takes ownership.
    on_notification
        Called with the fields of every message that has no id, in the reading thread.  The fields are untrusted.
    name
        Name of the worker in messages.
    send_timeout
        Seconds that a worker may take to make room in the socket, for requests without their own timeout.
    """

    def __init__(
        self,
        sock: socket.socket,
        on_notification: Callable[[dict[str, Any]], None] | None = None,
        *,
        name: str = "worker",
        send_timeout: float = 30.0,
    ) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._on_notification = on_notification
        #: Listeners for notifications of particular operations.
        self.listeners: dict[str, Callable[[dict[str, Any]], None]] = {}
        self._name = name
        self._send_timeout = send_timeout
        self._frames = FrameReader(sock)
        self._frames_ended = False
        self._writer = FrameWriter(sock)
        self._read_lock = Lock(leaf=True)
        self._send_lock = Lock(leaf=True)
        self._changed = condition()  # guards what follows
        self._pending: dict[int, _Pending] = {}
        self._gone: str | None = None
        self._reader: int | None = None
        self._adopted = False
        self._watched: dict[int, Callable[[], bool]] = {}
        self._ids = itertools.count(1)
        self._strays = 0
        self._given_up: set[int] = set()  # requests without a waiting caller, whose answers may still arrive

    # ---- asking

    def request(
        self,
        op: str,
        fds: Sequence[int] = (),
        blob: bytes | bytearray | memoryview | None = None,
        timeout: float | None = None,
        **fields: Any,
    ) -> Answer:
        """Send a request and wait for its answer.  Any thread.

        Parameters
        ----------
        op
            Name of the operation; `fields` are its JSON-able arguments.
        fds
            Descriptors to pass; the caller keeps ownership.
        blob
            Bytes to send with the request.
        timeout
            Seconds for sending and answering in total; None waits while the worker lives.

        Raises
        ------
        AskTimeout
            No answer in time.  The worker may still do the work; a late answer is dropped.
        WorkerGone
            The worker has died.
        AtomrError
            The worker's error.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        number, future = self._submit(op, fds, blob, timeout, fields)
        try:
            self._wait(future, deadline)
        except BaseException:
            self._give_up(number)
            if future.done() and future.exception() is None:
                future.result().close()  # it arrived just then; close its descriptors
            raise
        if not future.done() and self._give_up(number):
            raise AskTimeout(f"{self._name} did not answer {op!r} within {timeout:g} s")
        return future.result()

    def _give_up(self, number: int) -> bool:
        """Give up waiting for a request; return False if its answer has arrived."""
        with self._changed:
            if self._pending.pop(number, None) is None:
                return False
            if self._gone is None:
                self._given_up.add(number)
            return True

    def submit(
        self,
        op: str,
        fds: Sequence[int] = (),
        blob: bytes | bytearray | memoryview | None = None,
        timeout: float | None = None,
        **fields: Any,
    ) -> Promise[Answer]:
        """Send a request and return the future of its answer.  Any thread; waits only for room in the socket.

        The future cannot be cancelled; its callbacks run in the reading thread, and the descriptors of its answer
        belong to the caller that takes the result.  `timeout` (seconds) bounds sending only.  Without an adopted
        reader, some thread must call `on_readable` or `request` to receive the answer.

        Raises
        ------
        AskTimeout, WorkerGone, InvalidRequest
            As for `request`; InvalidRequest if a part exceeds its limit.
        """
        return self._submit(op, fds, blob, timeout, fields)[1]

    def _submit(
        self,
        op: str,
        fds: Sequence[int],
        blob: bytes | bytearray | memoryview | None,
        timeout: float | None,
        fields: dict[str, Any],
    ) -> tuple[int, Promise[Answer]]:
        limit = self._send_timeout if timeout is None else timeout
        deadline = time.monotonic() + limit
        future: Promise[Answer] = Promise()
        number = next(self._ids)
        with self._changed:
            self._raise_if_gone()
            self._pending[number] = _Pending(op, future)
        try:
            if not self._send_lock.acquire(timeout=max(limit, 0.0)):
                raise AskTimeout(f"{self._name} did not take {op!r} within {limit:g} s")
            try:
                self._send({"id": number, "op": op, **fields}, fds, blob or b"", deadline, number)
            finally:
                self._send_lock.release()
        except BaseException:
            with self._changed:
                self._pending.pop(number, None)
            raise
        return number, future

    def _send(
        self,
        fields: dict[str, Any],
        fds: Sequence[int],
        blob: bytes | bytearray | memoryview,
        deadline: float,
        number: int,
    ) -> None:
        writer = self._writer
        self._drain(deadline)  # the rest of a frame whose sender timed out
        writer.push(fields, fds, blob, tag=number)
        try:
            self._drain(deadline)
        except BaseException:
            writer.withdraw()  # unless a part of it has been sent: then the next sender sends the rest
            raise

    def _drain(self, deadline: float) -> None:
        while True:
            try:
                if self._writer.flush():
                    return
            except OSError as error:
                if error.errno == errno.ECONNABORTED:
                    self.fail("sending was interrupted")
                elif error.errno not in _GONE and self._sock.fileno() >= 0:
                    raise
                # Answers that arrived before the end are still valid: the reader declares the end.
                raise self.gone or WorkerGone(f"{self._name}: the control socket failed: {error.strerror}") from None
            self._raise_if_gone()
            check()
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise AskTimeout(f"{self._name} does not read its control socket")
            self._poll(select.POLLOUT, min(remaining, _POLL_LIMIT))

    def _wait(self, future: Promise[Answer], deadline: float | None) -> None:
        me = threading.get_ident()
        while not future.done():
            check()
            remaining = _POLL_LIMIT if deadline is None else deadline - time.monotonic()
            if remaining <= 0 and deadline is not None:
                if self._reader == me:
                    self.on_readable()
                return
            with self._changed:
                if future.done():
                    return
                if self._reader is None:
                    self._reader = me
                elif self._reader != me:
                    self._changed.wait(min(remaining, TICK))
                    continue
            try:
                self._pump(future, deadline)
            finally:
                with self._changed:
                    if not self._adopted and self._reader == me:
                        self._reader = None
                        self._changed.notify_all()

    def _pump(self, future: Promise[Answer], deadline: float | None) -> None:
        me = threading.get_ident()
        while not future.done() and self._reader == me:
            check()
            remaining = _POLL_LIMIT if deadline is None else min(deadline - time.monotonic(), _POLL_LIMIT)
            if remaining <= 0:
                return
            for fd in self._poll(select.POLLIN, remaining, watched=True):
                serve = self._watched.get(fd)
                if serve is not None and not serve():
                    self.unwatch(fd)
            self.on_readable()

    def _poll(self, events: int, seconds: float, *, watched: bool = False) -> list[int]:
        poller = select.poll()
        try:
            poller.register(self._sock.fileno(), events)
            if watched:
                for fd in list(self._watched):
                    poller.register(fd, select.POLLIN)
            return [fd for fd, _ in poller.poll(max(seconds, 0.0) * 1000)]
        except (OSError, ValueError):  # closed by another thread
            self._raise_if_gone()
            raise

    # ---- reading

    def fileno(self) -> int:
        """Return the descriptor to poll for reading; -1 once closed."""
        return self._sock.fileno()

    @property
    def gone(self) -> WorkerGone | None:
        """The reason why no request can be answered any more, or None while the worker lives."""
        reason = self._gone
        return None if reason is None else WorkerGone(f"{self._name}: {reason}")

    def adopt(self) -> None:
        """Make the calling thread the reader: it calls `on_readable` when `fileno` is readable.

        Other threads then only wait.  Another thread may call it again to take over.
        """
        with self._changed:
            self._reader = threading.get_ident()
            self._adopted = True
            self._changed.notify_all()

    def disown(self) -> None:
        """Stop being the reader: threads that wait for answers read the socket themselves again."""
        with self._changed:
            self._reader = None
            self._adopted = False
            self._changed.notify_all()

    def watch(self, fd: int, serve: Callable[[], bool]) -> None:
        """Serve another descriptor while a thread reads and waits here (a worker's output, its death).

        `serve` is called when `fd` is readable, must not wait, and returns False to be removed.
        """
        with self._changed:
            self._watched = {**self._watched, fd: serve}

    def unwatch(self, fd: int) -> None:
        """Remove a descriptor added by `watch`.  Idempotent."""
        with self._changed:
            self._watched = {number: serve for number, serve in self._watched.items() if number != fd}

    def on_readable(self) -> bool:
        """Process the frames that have arrived, and resolve their requests.  Never waits.

        Returns
        -------
        bool
            False once the worker has ended: stop polling then.
        """
        for _ in range(256):
            frame = self._read()
            if frame is None:
                break
            try:
                self._dispatch(frame)
            finally:
                frame.close()
        return self._gone is None

    def _read(self) -> Frame | None:
        with self._read_lock:
            if self._sock.fileno() < 0 or self._frames_ended:
                return None
            try:
                return self._frames.read()
            except EOFError as error:
                reason = str(error)
            except ProtocolError as error:
                reason = f"malformed message: {error}"
            except BaseException:
                # Interrupted between two bytes (Ctrl-C while a user's thread reads): the position in the stream is
                # lost.
                self._frames_ended = True
                self.fail("reading was interrupted")
                raise
            self._frames_ended = True
        self.fail(reason)
        return None

    def _dispatch(self, frame: Frame) -> None:
        fields = frame.fields
        if "id" not in fields:
            listener = self.listeners.get(str(fields.get("op")), self._on_notification)
            if listener is not None:
                try:
                    listener(fields)
                except Exception:
                    _log.exception("a notification of %s failed", self._name)
            return
        number, ok = fields.pop("id"), fields.pop("ok", None)
        with self._changed:
            pending = self._pending.pop(number, None) if type(number) is int else None
            if pending is None and type(number) is int and number in self._given_up:
                self._given_up.discard(number)
                return
        if pending is None:
            self._strays += 1
            if self._strays & (self._strays - 1) == 0:  # 1, 2, 4, ...: a faulty worker must not flood the log
                _log.warning("%s answered %r, which has no waiting request (%d such)", self._name, number, self._strays)
            return
        if ok is True:
            pending.future.set_result(Answer(fields, frame.take_fds()))
        else:
            pending.future.set_exception(decode_error(fields.get("error"), pending.op))
        with self._changed:
            self._changed.notify_all()

    # ---- the end

    def _raise_if_gone(self) -> None:
        error = self.gone
        if error is not None:
            raise error

    def fail(self, reason: str) -> None:
        """Declare the worker gone: every waiting request fails with `WorkerGone`.  The first reason is kept."""
        with self._changed:
            if self._gone is None:
                self._gone = reason
            pending, self._pending = self._pending, {}
        for item in pending.values():
            item.future.set_exception(WorkerGone(f"{self._name}: {self._gone} (during {item.op!r})"))
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """Close the socket; waiting requests fail with `WorkerGone`.  Idempotent, any thread."""
        self.fail("closed")
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)  # wakes a polling thread
        with self._send_lock, self._read_lock:
            self._frames.close()
            self._writer.close()
            self._sock.close()
        with self._changed:
            self._watched = {}

    def abandon(self) -> None:
        """In a forked child: close this copy of the socket without notifying the worker, and replace all locks."""
        self._gone = "this process is a fork of the one that started it"
        self._pending = {}
        self._watched = {}
        self._changed = condition()
        self._read_lock = Lock(leaf=True)
        self._send_lock = Lock(leaf=True)
        self._frames.close()
        self._sock.close()
