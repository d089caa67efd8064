"""A worker in a thread of this process: for debuggers, embedding, and arrays of other libraries.

It runs the same loop over the same kind of socket.  It cannot be killed, and its faults are faults of this process.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import time

from ..._lib.guard import TICK, Abandoned, Breakable, Lock, check, own_thread
from ...errors import AskTimeout, AtomrError, LibraryError
from ...protocol.messages import WorkerGone
from ...worker.contracts import Builders, LanesFactory
from ...worker.loop import WorkerLoop
from ..control import ControlClient
from .worker import Notifications

__all__ = ["ThreadWorker"]


class ThreadWorker:
    """A worker in a daemon thread.

    Parameters
    ----------
    device
        Name for the log.
    lanes_factory, builders
        As `WorkerLoop`.
    """

    #: A thread has no separate process ...
    pid: None = None
    #: ... no exit status ...
    status: None = None
    #: ... and no descriptor for its death; the end of its socket reports it.
    pidfd: int = -1

    def __init__(
        self,
        device: str,
        *,
        lanes_factory: LanesFactory | None = None,
        builders: Builders | None = None,
    ) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.device = device
        self._notifications = Notifications(device)
        self.client = ControlClient(ours, self._notifications, name=f"worker thread of {device}")
        self._theirs = theirs
        self._owner = os.getpid()
        self._lock = Lock()
        self._closed = False
        self._failure: BaseException | None = None
        self._loop = WorkerLoop(theirs, placement="thread", lanes_factory=lanes_factory, builders=builders)
        self._thread = threading.Thread(target=self._run, name=f"atomr_native-{device}", daemon=True)
        self._thread.start()

    @classmethod
    def start(
        cls,
        device: str,
        *,
        lanes_factory: LanesFactory | None = None,
        builders: Builders | None = None,
        timeout: float = 30.0,
    ) -> ThreadWorker:
        """Start a worker thread and wait until it is ready for ``init``.

        Raises
        ------
        LibraryError
            If it is not ready within `timeout` seconds.
        """
        worker = cls(device, lanes_factory=lanes_factory, builders=builders)
        try:
            worker.wait_ready(timeout)
        except BaseException:
            with contextlib.suppress(AtomrError):
                worker.close(0.0)
            raise
        return worker

    def wait_ready(self, timeout: float = 30.0) -> None:
        """Wait for the worker's greeting.

        Raises
        ------
        LibraryError
            If it does not greet within `timeout` seconds.
        """
        deadline = time.monotonic() + timeout
        poller = select.poll()
        poller.register(self.client.fileno(), select.POLLIN)
        while self._notifications.hello is None:
            remaining = deadline - time.monotonic()
            if not self.client.on_readable() or (remaining <= 0 and self._notifications.hello is None):
                detail = repr(self._failure) if self._failure else f"it was not ready within {timeout:g} s"
                raise LibraryError("worker", 0, "StartFailed", "start of the worker thread", detail)
            if self._notifications.hello is None:
                poller.poll(min(remaining, TICK) * 1000)
                check()
        self._notifications.check_hello()

    def _run(self) -> None:
        own_thread(serving=True)
        try:
            self._loop.run()
        except BaseException as error:  # reported by `reap`; the parent sees the end of the socket
            self._failure = error
        finally:
            self._theirs.close()

    def filenos(self) -> list[int]:
        """Descriptors to poll for reading; a readable one means work for `pump`."""
        return [fd for fd in (self.client.fileno(),) if fd >= 0]

    def pump(self) -> bool:
        """Process answers and the end, without waiting; return False once the worker has ended."""
        return self.client.on_readable()

    def output_tail(self) -> str:
        """Return "": a thread's output is this process's output."""
        return ""

    def alive(self) -> bool:
        """Whether the worker thread still runs."""
        return self._thread.is_alive() and self._owner == os.getpid()

    def kill(self) -> None:
        """Close the control socket; when the thread notices, it stops its lanes and exits.  Idempotent.

        A hanging thread cannot be ended.
        """
        self.client.close()

    def reap(self, timeout: float) -> str:
        """Wait up to `timeout` seconds for the thread's end and say how it ended.

        Raises
        ------
        AskTimeout
            It has not ended: it hangs, or an operation takes long.
        """
        self._thread.join(max(timeout, 0.0))
        if self.alive():
            raise AskTimeout(f"the worker thread of {self.device} did not end within {timeout:g} s")
        return f"thread failed: {self._failure!r}" if self._failure is not None else "thread ended"

    def close(self, timeout: float = 5.0) -> str:
        """Ask the worker to leave and wait for it, up to `timeout` seconds.  Idempotent.

        Raises
        ------
        AskTimeout
            It hangs; the thread and its resources stay until the process ends.
        """
        with self._lock:
            closed, self._closed = self._closed, True
        deadline = time.monotonic() + timeout
        if not closed and self.alive() and self.client.gone is None and timeout > 0:
            self.client.adopt()  # the previous reader may have stopped
            with contextlib.suppress(WorkerGone, AskTimeout, Abandoned), Breakable():
                self.client.request("close", timeout=timeout).close()
        self.client.close()
        return self.reap(max(deadline - time.monotonic(), 1.0))

    def abandon(self) -> None:
        """In a forked child, where the thread does not exist: close this copy's descriptors."""
        self._closed = True
        self.client.abandon()
        self._loop.abandon()
        self._theirs.close()
