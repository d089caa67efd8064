"""The thread that keeps a device alive: starts its worker, notices its death, brings the next one up.

The sequence after a death: reap, account for what was running, promote the standby, map the kept memory, recover
groups, rebuild the plans of queued messages, prove the device with a known answer, open.

This thread reads the worker's answers, so it never runs code of users, and takes no lock under which somebody waits
for an answer while a worker serves.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import select
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from ._callbacks import CallbackThread
from ._deaths import Death, fault_of, loss_of_thread, post_mortem
from ._lib.sender import CLOSED, LOST, OPEN
from ._link import REQUEST_TIMEOUT, Link, Links
from ._log_events import log_fields
from ._timeouts import deadline_of
from ._watchdog import Watchdog
from .control import ABI, WorkerGone, package_version
from .errors import ActorStopped, AskTimeout, AtomrError, DeviceFault, DeviceLost, Suspect
from .placement import StandbyPool, ThreadWorker, Worker

if TYPE_CHECKING:
    from .device import Device

__all__ = ["Supervisor"]

_log = logging.getLogger("atomr_native.supervisor")
_DEVICE_FAULT, _DEVICE_LOST, _ACTOR_STOPPED = 9, 10, 11  # atomr_code of cython/shm.h
_REAP_TIMEOUT = 10.0
_GRACE = 0.5  # seconds in which a thread that the watchdog gives up may end after all; nothing can end it
_PATIENCE = 2.0  # seconds that a device may take to let go of a dead worker


class Supervisor:
    """Owns the worker of one device, and the thread that watches it.

    Parameters
    ----------
    device
        Whose worker.
    environment
        The worker's environment, taken once by the System.
    """

    def __init__(self, device: Device, environment: dict[str, str]) -> None:
        self._device = device
        self._core = device._core
        self._config = device.system.config
        self._change = threading.Condition()
        self._closing = False
        self._restarts: deque[float] = deque()
        self._timeline: dict[str, float] = {}
        self._faults: list[DeviceFault | DeviceLost | None] = []
        self._loss: DeviceLost | None = None
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.links = Links(device)
        self._coming: Worker | None = None  # not yet serving, for `close` to end
        self.count = 0
        self._left: Worker | None = None  # it hangs, and cannot be ended
        limit = self._config.watchdog
        self._watchdog = None if limit is None else Watchdog(device.name, self._core, limit)
        self._ended: str | None = None  # why the watchdog has killed the worker
        self.demanded = False  # a fault was injected that is of no message: nobody is to blame
        process = self._config.isolation == "process"
        self._standby = StandbyPool(device.name, environment, kind=self._config.standby) if process else None
        self._callbacks = CallbackThread(f"atomr_native-{device.name}-callbacks", device._wakers.own, device._tidy)
        self._thread = threading.Thread(target=self._run, name=f"atomr_native-{device.name}", daemon=True)

    # ---- life

    def start(self) -> None:
        """Start the first worker and wait until the device is open.

        Raises
        ------
        LibraryError, Unsupported
            See `ProcessWorker.wait_ready`.
        DeviceLost
            If the worker dies while it comes up.
        """
        try:
            link = self._bring_up({"groups": set(), "plans": set()}, {})
        except WorkerGone as error:
            raise DeviceLost(f"{self._device.name} could not be started: {error}") from None
        self._open(link)
        _log.info("%s: open", self._device.name, extra=self._event("started"))
        self._callbacks.start()
        self._thread.start()
        if self._standby is not None:
            self._standby.refill(self._device.facts["uuid"])

    @property
    def pid(self) -> int | None:
        """Process id of the worker; None in thread placement and while there is none."""
        link = self.links.current
        return None if link is None else link.worker.pid

    @property
    def left_behind(self) -> bool:
        """Whether a worker that could not be ended still runs, and may use what it was given."""
        return self._left is not None and self._left.alive()

    @property
    def timeline(self) -> dict[str, float]:
        """Seconds of each step of the last restart."""
        return dict(self._timeline)

    @property
    def loss(self) -> DeviceLost:
        """Why the device is lost."""
        return self._loss or DeviceLost(f"{self._device.name} is lost")

    def fault(self, index: int) -> AtomrError:
        """Return the error of a death, by its index; waits the moment that it takes to be told in full."""
        if index >= len(self._faults):
            return DeviceFault("the device's worker died")
        with self._change:
            self._change.wait_for(lambda: self._faults[index] is not None, 10.0)
        return self._faults[index] or DeviceFault("the device's worker died")

    def await_open(self, timeout: float | None) -> None:
        """Wait until the device is open; `DeviceLost` or `ActorStopped` if it will not be."""
        deadline = deadline_of(timeout)
        with self._change:
            while True:
                state = self._core.state
                if state == OPEN:
                    return
                if state in (LOST, CLOSED):
                    raise self._device._errors.closed("device lost" if state == LOST else "device closed")
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise AskTimeout(f"{self._device.name} was not ready within {timeout} s")
                self._change.wait(0.5 if left is None else min(left, 0.5))

    def await_change(self, epoch: int) -> None:
        """Wait until the death that broke a request has been accounted for."""
        deadline = time.monotonic() + REQUEST_TIMEOUT
        with self._change:
            while self._core.epoch == epoch and self._core.state == OPEN and time.monotonic() < deadline:
                self._change.wait(0.05)

    def close(self, timeout: float) -> None:
        """End the worker and the threads; everything unresolved fails with `ActorStopped`."""
        with self._change:
            self._closing = True
            coming = self._coming
        with contextlib.suppress(OSError):
            os.eventfd_write(self._wake_fd, 1)
        if coming is not None:
            coming.kill()  # what waits for it goes on at once
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(timeout + 30.0)
        link, self.links.current = self.links.current, None
        if link is not None:
            try:
                link.worker.close(timeout)
            except AskTimeout:
                self._left = link.worker
        if self._standby is not None:
            self._standby.close()
        if self._core.state != LOST:
            self._core.end(CLOSED, _ACTOR_STOPPED, 0, "the device was closed before the message could run")
        else:
            self._core.state = CLOSED
        with self._change:
            self._change.notify_all()
        self._callbacks.stop(5.0)
        if self._wake_fd >= 0 and not self._thread.is_alive():
            os.close(self._wake_fd)
            self._wake_fd = -1

    def abandon(self) -> None:
        """In a forked child: close descriptors without touching the worker."""
        self._closing = True
        link = self.links.current
        for worker in (self._coming, None if link is None else link.worker):
            if worker is not None:
                worker.abandon()
        if self._standby is not None:
            self._standby.abandon()
        os.close(self._wake_fd)
        self._wake_fd = -1

    # ---- the thread

    def _run(self) -> None:
        try:
            while not self._closing:
                link = self.links.current
                if link is None:
                    return
                self._look(link)
        except BaseException as error:
            # Nobody would notice the next death: better an end that everybody is told of.
            _log.exception("the supervisor of %s failed", self._device.name)
            link = self.links.current
            if link is not None:
                link.worker.kill()
                with contextlib.suppress(AtomrError):
                    link.worker.close(0.0)
            self._lose(f"the supervisor of {self._device.name} failed: {error!r}")

    def _look(self, link: Link) -> None:
        worker = link.worker
        worker.client.listeners["progress"] = self._device._plans.progressed
        worker.client.adopt()
        poller = select.poll()
        for fd in (self._wake_fd, *worker.filenos()):
            poller.register(fd, select.POLLIN)
        tick = 1.0 if self._watchdog is None else self._watchdog.tick
        try:
            poller.poll(tick * 1000)
        except OSError:
            return
        if self._closing:
            return
        if not worker.pump():
            self._on_death(link)
        elif self._watchdog is not None and self._ended is None:
            self._ended = self._watchdog.check(worker)
            if self._ended is not None:
                _log.error("%s: %s; the watchdog ends the worker", self._device.name, self._ended)
                worker.kill()
        self._device._plans.collect()
        self._device._foreign.nudge()

    # ---- death and restart

    def _on_death(self, link: Link) -> None:
        known = time.monotonic()
        self.links.current = None
        worker = link.worker
        worker.kill()
        try:
            how = worker.reap(_GRACE if self._standby is None and self._ended is not None else _REAP_TIMEOUT)
        except AskTimeout as error:
            self._left = worker
            hangs = "given up" if self._standby is None else f"it could not be reaped: {error}"
            self._account(hangs, worker, restarting=False)
            if self._standby is None:
                self._finish_loss()
            else:
                self._lose(f"the worker of {self._device.name} could not be reaped: {error}")
            return
        finally:
            with contextlib.suppress(AskTimeout):
                worker.close(0.0)
        reaped = time.monotonic()
        report, death = self._account(how, worker, restarting=self._standby is not None)
        if self._standby is None:
            self._finish_loss()
            return
        how = death.how
        _log.error("%s: worker %s; %d suspects, restarting", self._device.name, how, len(report["suspects"]),
                   extra=self._event("failed", how))  # fmt: skip
        timeline = {"reap": reaped - known, "account": time.monotonic() - reaped}
        found = self._restart(self._standby, report, how, timeline)
        if found is None:
            return
        self._timeline = timeline | {"total": time.monotonic() - known}
        self.count += 1
        _log.warning("%s: open again after %.0f ms, generation %d",
                     self._device.name, 1e3 * self._timeline["total"], found.epoch,
                     extra=self._event("restarted", how))  # fmt: skip
        self._device._wakers.kick()
        self._callbacks.post(lambda: self._device._watch.generation(found.epoch))
        self._standby.refill(self._device.facts["uuid"])

    def _restart(
        self, standby: StandbyPool, report: dict[str, Any], how: str, timeline: dict[str, float]
    ) -> Link | None:
        """Bring up workers until one serves; None if the device is lost or closed instead."""
        while not self._closing:
            if self._budget_is_spent():
                self._lose(
                    f"{self._device.name} died {len(self._restarts)} times within {self._config.within:g} s "
                    f"(last: {how}); its restart budget is {self._config.max_restarts}"
                )
                return None
            self._back_off()
            try:
                link = self._bring_up(report, timeline)
            except ActorStopped:  # closing
                return None
            except DeviceLost as error:  # the GPU itself is gone: no worker can bring it back
                self._lose(f"{self._device.name} cannot restart: {error}")
                return None
            except Exception as error:
                how = f"restart failed: {error}"
                _log.error("%s: %s", self._device.name, how, exc_info=not isinstance(error, AtomrError))
                standby.refill(self._device.facts["uuid"])
                continue
            # Messages may run from here on: should it die now, that is a death of its own.
            self._open(link)
            return link
        return None

    def _account(self, how: str, worker: Worker, *, restarting: bool) -> tuple[dict[str, Any], Death]:
        """Resolve what was running; in thread placement, as lost."""
        thread = self._standby is None
        index = len(self._faults)
        self._faults.append(None)
        report: dict[str, Any] = {"suspects": []}
        death = Death(how)
        suspects: list[Suspect] = []
        try:
            report = self._core.fault(_DEVICE_LOST if thread else _DEVICE_FAULT, index, f"worker {how}")
            death = post_mortem(how, worker.status, report.get("cause"), self._ended)
            suspects = self._blame(report["suspects"], death)
        finally:
            tail = worker.output_tail()
            fault = fault_of(self._device.name, death, suspects, tail, restarting=restarting)
            with self._change:
                if thread:
                    self._loss = loss_of_thread(self._device.name, death, fault, hangs=self.left_behind)
                self._faults[index] = self._loss or fault
                self._change.notify_all()
        if self._watchdog is not None:
            self._watchdog.reset()
        self._ended = None
        self._device._wakers.kick()
        return report, death

    def _blame(self, claimed: list[tuple[int, int, int]], death: Death) -> list[Suspect]:
        """Name the suspects, and have their plans accused unless somebody else has ended the worker."""
        plans = self._device._plans
        suspects: list[Suspect] = []
        running, culprit = [], []
        for lane, ticket, index in claimed:
            record = plans.record(index)
            name = self._device._lane_name(lane)
            suspect = Suspect(name, ticket, record.spec.op if record is not None else "unknown")
            ran_too_long = self._watchdog is not None and self._watchdog.culprit == (lane, ticket)
            suspects.insert(0 if ran_too_long else len(suspects), suspect)
            if record is not None:
                running.append(record)
                if ran_too_long:
                    culprit.append(record)
        if self._ended is not None:
            plans.accuse(culprit, build=False)
        elif not death.foreign and not self.demanded:
            plans.accuse(running)
        self.demanded = False
        plans.forget_builds()
        return suspects

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
            while not self._closing and time.monotonic() < end:
                time.sleep(0.01)

    def _bring_up(self, report: dict[str, Any], timeline: dict[str, float]) -> Link:
        """Make a worker ready and let it serve; none of its lanes runs yet."""
        began = time.monotonic()

        def mark(name: str) -> None:
            nonlocal began
            now = time.monotonic()
            timeline[name], began = now - began, now

        worker: Worker = ThreadWorker.start(self._device.name) if self._standby is None else self._standby.take()
        try:
            with self._change:
                self._coming = worker
            self._check_closing()
            mark("worker")
            link = Link(worker, self._core.epoch)
            config = {
                "device": self._device.name,
                "spin_us": self._config.spin_us,
                "allow_crash": self._config.allow_crash,
                "patience": _PATIENCE if self._restarts else 0.0,
                "uuid": self._device.facts["uuid"] or "",
                "workspace_limit": self._config.workspace_limit,
            }
            answer = link.ask(
                "init", [self._core.p_fd], version=package_version(), abi=ABI, placement=self._config.isolation,
                p_bytes=self._core.p_bytes, config=config,
            )  # fmt: skip
            w_fd, w_bytes = answer.take_fd(), answer.fields.get("w_bytes")
            self._device._know(answer.fields)
            mark("init")
            try:
                self.links.tell_all(link)
                mark("map")
                self._recover(link, report)
                mark("groups")
                self._rebuild(link, report["plans"])
                mark("plans")
                link.ask("self_test").close()
                mark("prove")
                self.links.switch(link, lambda: self._attach(w_fd, int(w_bytes or 0)))
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

    def _open(self, link: Link) -> None:
        """Let the lanes run."""
        try:
            link.ask("go").close()
        except AtomrError as error:  # it is dead, which the thread sees next, or hangs
            # As text: a log record that is kept must not keep the frames, and with them the device.
            _log.error("%s: %s", self._device.name, str(error))
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
        if self._closing:
            raise ActorStopped(f"{self._device.name} is being closed")

    def _recover(self, link: Link, report: dict[str, Any]) -> None:
        groups = self._device._groups.descriptions(report["groups"])
        if groups:
            answer = link.ask("recover_groups", groups=groups)
            self._device._groups.recovered(groups, answer.fields.get("groups"))

    def _rebuild(self, link: Link, plans: set[int]) -> None:
        """Build what queued messages name."""
        table = self._device._plans
        for index in sorted(plans):
            record, spec = table.record(index), table.specification(index)
            if record is None or spec is None:
                continue
            try:
                link.ask("build_plan", plan=index, spec=spec).close()
            except WorkerGone:
                table.accuse([record], build=False)
                raise
            except AtomrError as error:
                # Its messages fail, one by one; everybody else's go on.
                _log.error("%s: plan %d could not be built again: %s", self._device.name, index, str(error))
            else:
                table.built(index, link.epoch)

    def _event(self, what: str, cause: str | None = None) -> dict[str, Any]:
        return log_fields(f"device_{what}", device=self._device.name, cause=cause, generation=self._core.epoch,
                          restarts=self.count)  # fmt: skip

    def _lose(self, text: str) -> None:
        with self._change:
            last = next((f for f in reversed(self._faults) if isinstance(f, DeviceFault)), None)
            self._loss = DeviceLost(text, last)
            self._faults.append(self._loss)
        self._finish_loss()

    def _finish_loss(self) -> None:
        """End everything with the loss, which is the last of the faults."""
        text = str(self.loss)
        _log.critical("%s", text, extra=self._event("lost", text))
        self._core.end(LOST, _DEVICE_LOST, len(self._faults) - 1, text)
        self.links.current = None
        with self._change:
            self._change.notify_all()
        if self._standby is not None:
            self._standby.close()
        loss = self.loss
        self._callbacks.post(lambda: self._device._watch.end(loss))
        self._device._wakers.kick()
