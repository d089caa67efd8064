"""A worker in a separate process, which lets a device survive its faults."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Mapping

from ..._lib.guard import TICK, Abandoned, Breakable, check
from ...errors import AskTimeout, AtomrError, LibraryError
from ...protocol.messages import WorkerGone
from ..control import ControlClient
from .environment import PREFIX_VARIABLE, WORKER_MODULE, worker_command
from .output import OutputReader
from .worker import Notifications

__all__ = ["ProcessWorker"]

_log = logging.getLogger("atomr_native.placement")


class ProcessWorker:
    """A worker process: started, watched, ended and reaped.

    Made by `spawn` (returns at once) or `start` (waits until the worker is ready for ``init``).  It leads its own
    session, and the processes that it starts end with it.  It notices the end of this process by a pidfd, and by the
    control socket.
    """

    def __init__(
        self,
        device: str,
        process: subprocess.Popen[bytes],
        sock: socket.socket,
        output_fd: int,
        *,
        prefixed: bool,
    ) -> None:
        self._process = process
        self._prefixed = prefixed
        self._lock = threading.RLock()
        self._exit: str | None = None
        self._closed = False
        self._abandoned = False
        self._notifications = Notifications(device)
        self._output = OutputReader(output_fd, self._notifications.log)
        self._process_pidfd = os.pidfd_open(process.pid)
        self._inner_pidfd = -1  # of the worker itself, if a prefix (a debugger) is the child process
        self._inner_pid: int | None = None
        self.device = device
        self.client = ControlClient(sock, self._notifications, name=f"worker of {device} (pid {process.pid})")
        self.client.watch(output_fd, self.on_output)
        self.client.watch(self._process_pidfd, self._on_death)

    # ---- start

    @classmethod
    def start(
        cls, device: str, environment: Mapping[str, str], *, timeout: float = 30.0, module: str = WORKER_MODULE
    ) -> ProcessWorker:
        """Start a worker and wait until it is ready for ``init``; see `spawn` and `wait_ready`."""
        worker = cls.spawn(device, environment, module=module)
        worker.wait_ready(timeout)
        return worker

    @classmethod
    def spawn(
        cls,
        device: str,
        environment: Mapping[str, str],
        *,
        module: str = WORKER_MODULE,
        warm: bool = False,
        hot: str = "",
    ) -> ProcessWorker:
        """Start a worker and return at once.

        Parameters
        ----------
        device
            Name for the log.
        environment
            From `worker_environment`.
        warm
            Whether it loads the libraries of the device before it is ready; for a standby.
        hot
            UUID of a GPU to open as well.

        Raises
        ------
        LibraryError
            If the process cannot be started, also for lack of descriptors.
        Unsupported, InvalidRequest
            See `worker_command`.
        """
        try:
            return cls._spawn(device, environment, module, warm=warm, hot=hot)
        except OSError as error:
            raise LibraryError(
                "worker", error.errno or 0, type(error).__name__, "start of the worker process", str(error)
            ) from None

    @classmethod
    def _spawn(cls, device: str, environment: Mapping[str, str], module: str, *, warm: bool, hot: str) -> ProcessWorker:
        with contextlib.ExitStack() as cleanup, contextlib.ExitStack() as theirs:
            ours, child = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
            cleanup.callback(ours.close)
            theirs.callback(child.close)
            output_fd, write_fd = os.pipe2(os.O_CLOEXEC)
            cleanup.callback(os.close, output_fd)
            theirs.callback(os.close, write_fd)
            os.set_blocking(output_fd, False)
            self_fd = os.pidfd_open(os.getpid())
            theirs.callback(os.close, self_fd)
            options = ["--control-fd", str(child.fileno()), "--parent-pidfd", str(self_fd)]
            if warm:
                options += ["--warm", device]
            if hot:
                options += ["--hot", hot]
            command, prefixed = worker_command(environment, options, module=module)
            try:
                process = subprocess.Popen(
                    command,
                    env=dict(environment),
                    stdin=subprocess.DEVNULL,
                    stdout=write_fd,
                    stderr=write_fd,
                    pass_fds=(child.fileno(), self_fd),
                    start_new_session=True,
                )
            except OSError as error:
                hint = f" (from {PREFIX_VARIABLE})" if prefixed else ""
                raise LibraryError(
                    "worker", error.errno or 0, type(error).__name__, "start of the worker process",
                    f"{command[0]}{hint}: {error.strerror}",
                ) from None  # fmt: skip
            try:
                worker = cls(device, process, ours, output_fd, prefixed=prefixed)
            except BaseException:  # out of descriptors: the process must not stay behind
                process.kill()
                process.wait()
                raise
            cleanup.pop_all()
            return worker

    def wait_ready(self, timeout: float = 30.0) -> None:
        """Wait for the worker's greeting.

        Raises
        ------
        LibraryError
            If it ended, or did not greet within `timeout` seconds; the message has the end of its output.
        Unsupported
            If it runs a different version.

        After an error the worker is closed.
        """
        try:
            self._wait_hello(time.monotonic() + timeout, timeout)
            self._notifications.check_hello()
            self._find_worker()
        except BaseException:
            self.kill()
            with contextlib.suppress(AtomrError):
                self.close(0.0)
            raise

    def _wait_hello(self, deadline: float, timeout: float) -> None:
        while True:
            there = self.pump()
            if self._notifications.hello is not None:
                return
            if not there:
                raise self._failed("StartFailed", f"it ended before it was ready: {self._end()}")
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise self._failed("StartTimeout", f"it was not ready within {timeout:g} s")
            poller = select.poll()
            for fd in self.filenos():
                poller.register(fd, select.POLLIN)
            poller.poll(min(remaining, TICK) * 1000)
            check()

    def _end(self) -> str:
        try:
            with contextlib.suppress(AskTimeout):
                return self.reap(1.0)
            self.kill()  # it has closed its socket but still runs
            return self.reap(5.0)
        except AskTimeout as error:
            return str(error)

    def _failed(self, name: str, text: str) -> LibraryError:
        self._output.read()
        tail = self._output.tail()
        printed = f"; it printed:\n{tail}" if tail else "; it printed nothing"
        status = self._process.returncode or 0
        return LibraryError("worker", status, name, "start of the worker process", text + printed)

    def _find_worker(self) -> None:
        """If a prefix runs the worker, find the worker itself; its reported pid is checked."""
        if not self._prefixed:
            return
        pid = (self._notifications.hello or {}).get("pid")
        if type(pid) is not int or not 1 < pid < 1 << 31 or pid == self._process.pid:
            return
        with contextlib.suppress(OSError):
            pidfd = os.pidfd_open(pid)
            if os.getsid(pid) != self._process.pid:
                os.close(pidfd)
                return
            self._inner_pid, self._inner_pidfd = pid, pidfd
            self.client.watch(pidfd, self._on_death)

    # ---- life

    @property
    def pid(self) -> int:
        """Process id of the worker (under a prefix: of the worker itself)."""
        return self._inner_pid or self._process.pid

    @property
    def status(self) -> int | None:
        """Exit status once it is reaped, negative for a signal (under a prefix: of the prefix)."""
        return self._process.returncode

    @property
    def pidfd(self) -> int:
        """Readable once the worker is dead; -1 after `close`."""
        return self._inner_pidfd if self._inner_pidfd >= 0 else self._process_pidfd

    @property
    def output_fd(self) -> int:
        """Readable when the worker has printed; -1 after the end of its output."""
        return self._output.fd

    def filenos(self) -> list[int]:
        """Descriptors to poll for reading; a readable one means work for `pump`."""
        return [fd for fd in (self.client.fileno(), self.output_fd, self.pidfd) if fd >= 0]

    def pump(self) -> bool:
        """Process output, answers and death, without waiting; return False once the worker has ended.

        Only the supervisor's thread calls it.
        """
        self.on_output()
        there = self.client.on_readable()
        if there and not self.alive():
            there = self._on_death()
        if not there:
            self.on_output()
        return there

    def on_output(self) -> bool:
        """Forward the worker's output; return False at its end."""
        with self._lock:
            fd = self._output.fd
            if self._output.read():
                return True
            if fd >= 0:
                self.client.unwatch(fd)
                self._output.abandon()
            return False

    def _on_death(self) -> bool:
        self.client.on_readable()  # the last answers are still valid
        self.client.fail("the worker process died")
        return False

    def alive(self) -> bool:
        """Whether the worker process still runs."""
        return not self._abandoned and self._exit is None and not _readable(self.pidfd)

    def output_tail(self) -> str:
        """Return the last lines that the worker printed."""
        return self._output.tail()

    # ---- end

    def kill(self) -> None:
        """Send SIGKILL to the worker and all processes it started.  Returns without waiting.  Idempotent."""
        with self._lock:
            if self._abandoned or self._exit is not None:
                return
            for pidfd in (self._inner_pidfd, self._process_pidfd):
                if pidfd >= 0:
                    with contextlib.suppress(ProcessLookupError):
                        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            self._kill_group()

    def _kill_group(self) -> None:
        # The leader is not reaped yet, so its pid still names this group.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def reap(self, timeout: float) -> str:
        """Wait for the worker process to end, read its status, and end its remaining children.

        Parameters
        ----------
        timeout
            Seconds.

        Returns
        -------
        str
            Such as ``"killed by signal 11 (SIGSEGV)"`` or ``"exit status 3"``.  Later calls return the same text.

        Raises
        ------
        AskTimeout
            It has not ended.
        """
        if self._exit is None:
            if self._process_pidfd < 0:
                raise AskTimeout(f"the worker process {self._process.pid} was given up: it did not end when killed")
            deadline = time.monotonic() + timeout
            while not _readable(self._process_pidfd, min(0.1, max(deadline - time.monotonic(), 0.0))):
                self.on_output()  # a worker that waits for room in its output pipe would never end
                if time.monotonic() >= deadline:
                    raise AskTimeout(f"the worker process {self._process.pid} did not end within {timeout:g} s")
            with self._lock:
                if self._exit is None:
                    self._kill_group()
                    self._exit = _describe(self._process.wait())
                    self.on_output()
        self._on_death()
        return self._exit

    def close(self, timeout: float = 5.0) -> str:
        """End the worker and release everything: request its exit, and kill it after `timeout` seconds.  Idempotent.

        Returns
        -------
        str
            The manner of its end, as from `reap`.

        Raises
        ------
        AskTimeout
            It did not end even after SIGKILL (it hangs in the kernel); the descriptors are released anyway.
        """
        with self._lock:
            if self._closed:
                return self._exit or "unknown"
            self._closed = True
        try:
            return self._leave(timeout)
        finally:
            self._release()

    def _leave(self, timeout: float) -> str:
        deadline = time.monotonic() + timeout
        if timeout > 0 and self.alive() and self.client.gone is None:
            self.client.adopt()  # the previous reader may have stopped
            try:
                with Breakable():
                    self.client.request("close", timeout=timeout).close()
                return self.reap(max(deadline - time.monotonic(), 0.1))
            except (WorkerGone, Abandoned):
                pass
            except AtomrError as error:
                _log.warning("worker %d of %s is killed: %s", self.pid, self.device, error)
        self.kill()
        return self.reap(10.0)

    def _release(self) -> None:
        self.client.close()
        with self._lock:
            self._output.close()
            for fd in (self._process_pidfd, self._inner_pidfd):
                if fd >= 0:
                    os.close(fd)
            self._process_pidfd = self._inner_pidfd = -1

    def abandon(self) -> None:
        """In a forked child: close this copy's descriptors without touching the worker."""
        self._abandoned = self._closed = True
        self._lock = threading.RLock()
        self._exit = "unknown: this process is a fork of the one that started the worker"
        self._process.returncode = 0  # not a child of this process: nothing to wait for
        self.client.abandon()
        self._output.abandon()
        for fd in (self._process_pidfd, self._inner_pidfd):
            if fd >= 0:
                os.close(fd)
        self._process_pidfd = self._inner_pidfd = -1


def _readable(fd: int, seconds: float = 0.0) -> bool:
    if fd < 0:
        return True
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    return bool(poller.poll(seconds * 1000))


def _describe(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = "real-time signal"
    return f"killed by signal {-status} ({name})"
