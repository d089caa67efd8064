"""A worker kept ready, so a restart need not wait for an interpreter and its imports."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from typing import Literal

from ..._lib.guard import Lock
from ...errors import ActorStopped, AtomrError
from .environment import WORKER_MODULE
from .process import ProcessWorker

__all__ = ["StandbyPool"]

_log = logging.getLogger("atomr_native.placement")


class StandbyPool:
    """At most one worker process that waits for ``init``.

    A standby has imported its modules, initialised the driver of its device and loaded the libraries; then it sleeps in
    a system call.  It costs host memory, no CPU time, and unless it is hot, no device memory.

    Parameters
    ----------
    device
        Name for the log.
    environment
        From `worker_environment`.
    kind
        ``"hot"``: it has also opened the GPU, and created a handle of cuBLASLt.  ``"off"``: `refill` does nothing, and
        `take` always starts a worker.
    start_timeout
        Seconds until a worker must be ready.
    """

    def __init__(
        self,
        device: str,
        environment: Mapping[str, str],
        *,
        kind: Literal["warm", "hot", "off"] = "warm",
        start_timeout: float = 30.0,
        module: str = WORKER_MODULE,
    ) -> None:
        self._device = device
        self._environment = dict(environment)
        self._kind = kind
        self._start_timeout = start_timeout
        self._module = module
        self._lock = Lock()
        self._worker: ProcessWorker | None = None
        self._closed = False

    @property
    def pid(self) -> int | None:
        """Process id of the standby, or None."""
        worker = self._worker
        return None if worker is None else worker.pid

    def take(self) -> ProcessWorker:
        """Return a worker that is ready for ``init``, which the caller then owns.  Waits if there is none yet.

        Raises
        ------
        LibraryError, Unsupported
            See `ProcessWorker.wait_ready`.
        ActorStopped
            The pool is closed.
        """
        with self._lock:
            self._check_open()
            worker, self._worker = self._worker, None
        if worker is not None:
            try:
                worker.wait_ready(self._start_timeout)
                if worker.pump():
                    return worker
                _log.warning("the standby of %s had died: %s", self._device, worker.close(0.0))
            except AtomrError as error:
                _log.warning("the standby of %s was unusable: %s", self._device, error)
        return ProcessWorker.start(
            self._device, self._environment, timeout=self._start_timeout, module=self._module
        )  # fmt: skip

    def refill(self, uuid: str | None = None) -> None:
        """Start the next standby unless there is one.  Does not wait for it; a failure is logged.

        `uuid` is the GPU's, for a hot standby.
        """
        with self._lock:
            if self._closed or self._kind == "off" or self._worker is not None:
                return
            hot = (uuid or "") if self._kind == "hot" else ""
            try:
                self._worker = ProcessWorker.spawn(
                    self._device, self._environment, module=self._module, warm=True, hot=hot
                )
            except AtomrError as error:
                # As text: a stored log record must not keep frames, and with them the device.
                _log.warning("no standby for %s: %s", self._device, str(error))

    def close(self) -> None:
        """End the standby.  Idempotent."""
        with self._lock:
            self._closed = True
            worker, self._worker = self._worker, None
        if worker is not None:
            worker.kill()
            with contextlib.suppress(AtomrError):
                worker.close(0.0)

    def abandon(self) -> None:
        """In a forked child: close this copy's descriptors without touching the standby."""
        self._lock = Lock()
        self._closed = True
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.abandon()

    def _check_open(self) -> None:
        if self._closed:
            raise ActorStopped(f"the workers of {self._device} are closed")
