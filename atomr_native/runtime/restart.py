"""Starting workers: the first one, and new ones after a death, until one serves or the device is lost."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from .._lib.sender import CLOSED, OPEN
from ..errors import ActorStopped, AtomrError, DeviceLost
from ..protocol.messages import ABI, WorkerGone, package_version
from .link import Link
from .placement import StandbyPool, Worker

if TYPE_CHECKING:
    from .owner import ServedDevice

__all__ = ["Starter"]

_log = logging.getLogger("atomr_native.supervisor")
_PATIENCE = 2.0  # grace period for the driver to clean up after a dead worker, seconds


class Starter:
    """Prepares workers of one device, and lets them serve.

    Parameters
    ----------
    owner : ServedDevice
        The device.
    standby : StandbyPool, optional
        Source of worker processes; None in thread placement, where a device starts once.
    change : threading.Condition
        Notified when the device opens; guards `closing` and the starting worker.
    """

    def __init__(self, owner: ServedDevice, standby: StandbyPool | None, change: threading.Condition) -> None:
        self._owner = owner
        self._core = owner.core
        self._config = owner.config
        self._standby = standby
        self._change = change
        self._restarts: deque[float] = deque()
        self._coming: Worker | None = None  # not yet serving, for `close` to end
        self.closing = False

    def close(self) -> None:
        """Prevent further starts, and end the starting worker."""
        with self._change:
            self.closing = True
            coming = self._coming
        if coming is not None:
            coming.kill()  # waits for it end at once

    def abandon(self) -> None:
        """In a forked child: like `close`, but without touching the worker."""
        self.closing = True
        if self._coming is not None:
            self._coming.abandon()

    def restart(self, standby: StandbyPool, report: dict[str, Any], how: str, timeline: dict[str, float]) -> Link:
        """Start workers until one serves.

        Raises
        ------
        DeviceLost
            If none can, or the restart budget is spent.
        ActorStopped
            If the device closes.
        """
        while True:
            self._check_closing()
            if self._budget_is_spent():
                raise DeviceLost(
                    f"{self._owner.name} died {len(self._restarts)} times within {self._config.within:g} s "
                    f"(last: {how}); its restart budget is {self._config.max_restarts}"
                )
            self._back_off()
            try:
                link = self.bring_up(report, timeline)
            except ActorStopped:  # closing
                raise
            except DeviceLost as error:  # the GPU itself is gone: no worker can restore it
                raise DeviceLost(f"{self._owner.name} cannot restart: {error}") from None
            except Exception as error:
                how = f"restart failed: {error}"
                _log.error("%s: %s", self._owner.name, how, exc_info=not isinstance(error, AtomrError))
                standby.refill(self._owner.facts["uuid"])
                continue
            # Messages may run from here on: a death from now on is a new death.
            self.open(link)
            return link

    def _budget_is_spent(self) -> bool:
        now = time.monotonic()
        self._restarts.append(now)
        while now - self._restarts[0] > self._config.within:
            self._restarts.popleft()
        return len(self._restarts) > self._config.max_restarts

    def _back_off(self) -> None:
        """Restart at once the first time, later ones after a pause that doubles, with jitter."""
        again = len(self._restarts) - 1
        if again > 0:
            pause = min(0.05 * 2 ** min(again - 1, 10), 5.0) * random.uniform(0.8, 1.2)  # noqa: S311 - no secret
            end = time.monotonic() + pause
            while not self.closing and time.monotonic() < end:
                time.sleep(0.01)

    def _take_worker(self) -> Worker:
        """Return a worker that has started."""
        if self._standby is not None:
            return self._standby.take()
        from .placement.thread import ThreadWorker

        return ThreadWorker.start(self._owner.name)

    def bring_up(self, report: dict[str, Any], timeline: dict[str, float]) -> Link:
        """Prepare a worker and let it serve; none of its lanes runs yet."""
        began = time.monotonic()

        def mark(name: str) -> None:
            nonlocal began
            now = time.monotonic()
            timeline[name], began = now - began, now

        worker = self._take_worker()
        try:
            with self._change:
                self._coming = worker
            self._check_closing()
            mark("worker")
            link = Link(worker, self._core.epoch)
            config = {
                "device": self._owner.name,
                "spin_us": self._config.spin_us,
                "allow_crash": self._config.allow_crash,
                "patience": _PATIENCE if self._restarts else 0.0,
                "uuid": self._owner.facts["uuid"] or "",
                "workspace_limit": self._config.workspace_limit,
                "deterministic": self._config.deterministic,
                "launch_records": self._config.launch_records,
                "cautious": self._owner.plans.begin_probation(),
            }
            answer = link.ask(
                "init", [self._core.p_fd], version=package_version(), abi=ABI, placement=self._config.isolation,
                p_bytes=self._core.p_bytes, config=config,
            )  # fmt: skip
            w_fd, w_bytes = answer.take_fd(), answer.fields.get("w_bytes")
            try:
                if type(w_bytes) is not int or not 0 < w_bytes < 1 << 63:
                    raise AtomrError(f"the worker reports {w_bytes!r:.100} bytes of shared memory")
                self._owner.know(answer.fields)
                mark("init")
                self._owner.links.tell_all(link)
                mark("map")
                self._recover(link, report)
                mark("groups")
                self._rebuild(link, report["plans"])
                mark("plans")
                link.ask("self_test").close()
                mark("prove")
                self._owner.links.switch(link, lambda: self._attach(w_fd, w_bytes))
            finally:
                os.close(w_fd)
        except BaseException:
            worker.kill()
            with contextlib.suppress(AtomrError):
                worker.close(0.0)
            raise
        finally:
            self._coming = None
        mark("open")
        return link

    def open(self, link: Link) -> None:
        """Let the lanes run."""
        try:
            link.ask("go").close()
        except AtomrError as error:  # it has died, which the thread notices next, or it hangs
            # As text: a stored log record must not keep frames, and with them the device.
            _log.error("%s: %s", self._owner.name, str(error))
            link.worker.kill()
        with self._change:
            if self._core.state != CLOSED:  # `close` may have given up waiting for this thread
                self._core.state = OPEN
            self._change.notify_all()

    def _attach(self, w_fd: int, w_bytes: int) -> None:
        with self._change:
            self._check_closing()
            self._core.attach(w_fd, w_bytes)

    def _check_closing(self) -> None:
        if self.closing:
            raise ActorStopped(f"{self._owner.name} is being closed")

    def _recover(self, link: Link, report: dict[str, Any]) -> None:
        groups = self._owner.groups.descriptions(report["groups"])
        if groups:
            answer = link.ask("recover_groups", groups=groups)
            self._owner.groups.recovered(groups, answer.fields.get("groups"))

    def _rebuild(self, link: Link, plans: set[int]) -> None:
        """Build the plans of queued messages."""
        table = self._owner.plans
        for index in sorted(plans):
            record, request = table.record(index), table.request(index)
            if record is None or request is None:
                continue
            try:
                link.build(request).close()
            except WorkerGone:
                table.accuse([record], build=False, sure=False)  # it may have been ended from outside
                raise
            except AtomrError as error:
                # Its messages fail, one by one; all other messages continue.
                _log.error("%s: plan %d could not be built again: %s", self._owner.name, index, str(error))
            else:
                table.built(index, link.epoch)
