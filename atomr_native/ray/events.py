"""A thread for callbacks, which may wait for nodes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue

from .._lib.guard import Lock

__all__ = ["Events"]

_log = logging.getLogger("atomr_native.ray")


class Events:
    """Runs functions one after the other in one thread, which starts with the first of them."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._lock = Lock()
        self._thread: threading.Thread | None = None
        self._closed = False

    def post(self, action: Callable[[], object]) -> None:
        """Run a function later.  Does not wait."""
        with self._lock:
            if self._closed:
                return
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="atomr_native-events", daemon=True)
                self._thread.start()
            self._queue.put(action)

    def close(self) -> None:
        """Run what was posted, and end the thread; waits up to two seconds.  Idempotent."""
        with self._lock:
            self._closed = True
            thread = self._thread
            self._queue.put(None)
        if thread is not None and thread is not threading.current_thread():
            thread.join(2.0)

    def _run(self) -> None:
        while (action := self._queue.get()) is not None:
            try:
                action()
            except Exception:
                _log.exception("a callback failed")
