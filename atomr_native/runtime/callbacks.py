"""The thread that runs users' callbacks, separate from the supervisor.

A callback may be slow, wait for the device, or take locks of the program.  It must not block the supervisor, which
reads the worker's answers and notices its death.
"""

from __future__ import annotations

import contextlib
import logging
import select
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .wakers import Subscriber

__all__ = ["CallbackThread"]

_log = logging.getLogger("atomr_native")


class CallbackThread:
    """Runs the callbacks of replies, and posted actions.

    Parameters
    ----------
    name
        Name of the thread.
    own
        The subscriber whose callbacks run here.
    each_time
        Called after each round.
    """

    def __init__(self, name: str, own: Subscriber, each_time: Callable[[], object]) -> None:
        self._own = own
        self._each_time = each_time
        self._posted: deque[Callable[[], object]] = deque()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def post(self, action: Callable[[], object]) -> None:
        """Make the thread call `action`.  Does not wait."""
        self._posted.append(action)
        self._own.kick()

    def stop(self, timeout: float) -> None:
        """Run the ready callbacks, and end the thread; after `timeout` seconds a hanging callback is left behind."""
        self._stopping = True
        self._own.kick()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(timeout)
            if self._thread.is_alive():
                _log.error("a callback does not return; its thread is left behind")

    def _run(self) -> None:
        poller = select.poll()
        for fd in self._own.fds:
            poller.register(fd, select.POLLIN)
        while True:
            stopping = self._stopping  # before the last round, so that round sees everything posted earlier
            if not stopping:
                with contextlib.suppress(OSError):
                    poller.poll()
            self._round()
            if stopping:
                return

    def _round(self) -> None:
        self._call(self._own.serve)
        while self._posted:
            self._call(self._posted.popleft())
        self._call(self._each_time)

    @staticmethod
    def _call(action: Callable[[], object]) -> None:
        try:
            action()
        except BaseException:  # not even a SystemExit may end this thread, or skip the other actions
            _log.exception("a callback failed")
