"""The thread that keeps a device alive: it starts the worker, notices its death, and starts the next one.

The sequence after a death: reap, account for running messages, promote the standby, map the kept memory, recover
groups, rebuild the plans of queued messages, prove the device with a known answer, open.

This thread reads the worker's answers.  So it never runs users' code, and takes no lock under which another thread
waits for an answer of a serving worker.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import threading
import time
from typing import TYPE_CHECKING, Any

from .._lib.guard import TICK, check, own_thread, shielded, shielded_service
from .._lib.sender import ACTOR_STOPPED, CLOSED, DEVICE_FAULT, DEVICE_LOST, LOST, OPEN
from .._support.conditions import condition
from .._support.log_events import log_fields
from .._support.timeouts import deadline_of
from ..errors import ActorStopped, AskTimeout, AtomrError, DeviceFault, DeviceLost, Suspect
from ..protocol.messages import WorkerGone
from .callbacks import CallbackThread
from .deaths import Death, fault_of, loss_of_thread, post_mortem
from .link import REQUEST_TIMEOUT, Link, Links
from .placement import StandbyPool, Worker
from .restart import Starter
from .watchdog import Watchdog

if TYPE_CHECKING:
    from .owner import ServedDevice

__all__ = ["Supervisor"]

_log = logging.getLogger("atomr_native.supervisor")
_REAP_TIMEOUT = 10.0
_GRACE = 0.5  # seconds for a thread given up by the watchdog to end on its own; it cannot be killed


class Supervisor:
    """Owns the worker of one device, and the thread that watches it.

    Parameters
    ----------
    owner
        The device of the worker.
    environment
        The worker's environment, taken once by the System.
    """

    def __init__(self, owner: ServedDevice, environment: dict[str, str]) -> None:
        self._owner = owner
        self._core = owner.core
        self._config = owner.config
        self._change = condition()
        self._timeline: dict[str, float] = {}
        self._faults: list[DeviceFault | DeviceLost | None] = []
        self._loss: DeviceLost | None = None
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.links = Links(owner)
        self.count = 0
        self._left: Worker | None = None  # it hangs, and cannot be killed
        limit = self._config.watchdog
        self._watchdog = None if limit is None else Watchdog(owner.name, self._core, limit)
        self._ended: str | None = None  # the watchdog's reason for killing the worker
        self.demanded = False  # a fault outside any message was injected: no plan is to blame
        process = self._config.isolation == "process"
        self._standby = StandbyPool(owner.name, environment, kind=self._config.standby) if process else None
        self._starter = Starter(owner, self._standby, self._change)
        self._callbacks = CallbackThread(f"atomr_native-{owner.name}-callbacks", owner.wakers.own, owner.tidy)
        self._thread = threading.Thread(target=self._run, name=f"atomr_native-{owner.name}", daemon=True)

    # ---- life

    def start(self) -> None:
        """Start the first worker and wait until the device is open.

        Raises
        ------
        LibraryError, Unsupported
            See `ProcessWorker.wait_ready`.
        DeviceLost
            If the worker dies while it starts.
        """
        try:
            link = self._starter.bring_up({"groups": set(), "plans": set()}, {})
        except WorkerGone as error:
            raise DeviceLost(f"{self._owner.name} could not be started: {error}") from None
        self._starter.open(link)
        _log.info("%s: open", self._owner.name, extra=self._event("started"))
        self._callbacks.start()
        self._thread.start()
        if self._standby is not None:
            self._standby.refill(self._owner.facts["uuid"])

    @property
    def pid(self) -> int | None:
        """Process id of the worker; None in thread placement and while there is none."""
        link = self.links.current
        return None if link is None else link.worker.pid

    @property
    def left_behind(self) -> bool:
        """Whether a worker that could not be ended still runs, and may use its memory."""
        return self._left is not None and self._left.alive()

    @property
    def timeline(self) -> dict[str, float]:
        """Seconds of each step of the last restart."""
        return dict(self._timeline)

    @property
    def loss(self) -> DeviceLost:
        """The cause of the device's loss."""
        return self._loss or DeviceLost(f"{self._owner.name} is lost")

    def fault(self, index: int) -> AtomrError:
        """Return the error of a death, by its index; waits briefly until it is complete."""
        if index >= len(self._faults):
            return DeviceFault("the device's worker died")
        if self._faults[index] is None:
            self._await_fault(index)
        return self._faults[index] or DeviceFault("the device's worker died")

    @shielded_service
    def _await_fault(self, index: int) -> None:
        with self._change:
            self._change.wait_for(lambda: self._faults[index] is not None, 10.0)

    @shielded
    def await_open(self, timeout: float | None) -> None:
        """Wait until the device is open; raise `DeviceLost` or `ActorStopped` if it will not open."""
        deadline = deadline_of(timeout)
        with self._change:
            while True:
                check()
                state = self._core.state
                if state == OPEN:
                    return
                if state in (LOST, CLOSED):
                    raise self._owner.errors.closed("device lost" if state == LOST else "device closed")
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise AskTimeout(f"{self._owner.name} was not ready within {timeout} s")
                self._change.wait(TICK if left is None else min(left, TICK))

    @shielded
    def await_change(self, epoch: int) -> None:
        """Wait until the death that broke a request is accounted for."""
        deadline = time.monotonic() + REQUEST_TIMEOUT
        with self._change:
            while self._core.epoch == epoch and self._core.state == OPEN and time.monotonic() < deadline:
                check()
                self._change.wait(TICK)

    def close(self, timeout: float) -> None:
        """End the worker and the threads; unresolved messages fail with `ActorStopped`."""
        self._starter.close()
        if self._core.state != LOST:
            self._owner.meetings.end(ACTOR_STOPPED, 0)  # first: a lane that meets others ends with this
        with contextlib.suppress(OSError):
            os.eventfd_write(self._wake_fd, 1)
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(timeout + 30.0)
        link, self.links.current = self.links.current, None
        if link is not None:
            try:
                link.worker.close(timeout)
            except AskTimeout:
                self._left = link.worker
            self._owner.meetings.bury(ACTOR_STOPPED, 0)
        if self._standby is not None:
            self._standby.close()
        if self._core.state != LOST:
            self._core.end(CLOSED, ACTOR_STOPPED, 0, "the device was closed before the message could run")
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
        self._starter.abandon()
        link = self.links.current
        if link is not None:
            link.worker.abandon()
        if self._standby is not None:
            self._standby.abandon()
        os.close(self._wake_fd)
        self._wake_fd = -1

    # ---- the thread

    def _run(self) -> None:
        own_thread(serving=True)
        try:
            while not self._starter.closing:
                link = self.links.current
                if link is None:
                    return
                self._look(link)
        except BaseException as error:
            # The next death would go unnoticed, so the device ends with an error for all.
            _log.exception("the supervisor of %s failed", self._owner.name)
            link = self.links.current
            if link is not None:
                link.worker.kill()
                with contextlib.suppress(AtomrError):
                    link.worker.close(0.0)
            self._lose(f"the supervisor of {self._owner.name} failed: {error!r}")

    def _look(self, link: Link) -> None:
        worker = link.worker
        worker.client.listeners["progress"] = self._owner.plans.progressed
        worker.client.adopt()
        poller = select.poll()
        for fd in (self._wake_fd, *worker.filenos()):
            poller.register(fd, select.POLLIN)
        tick = 1.0 if self._watchdog is None else self._watchdog.tick
        try:
            poller.poll(tick * 1000)
        except OSError:
            return
        if self._starter.closing:
            return
        if not worker.pump():
            self._on_death(link)
        elif self._watchdog is not None and self._ended is None:
            self._ended = self._watchdog.check(worker)
            if self._ended is not None:
                _log.error("%s: %s; the watchdog ends the worker", self._owner.name, self._ended)
                worker.kill()
        self._owner.plans.review()
        self._owner.plans.collect()
        self._owner.imports.nudge()

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
                self._lose(f"the worker of {self._owner.name} could not be reaped: {error}")
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
        # The one line of a death, whatever the number of its messages.
        _log.error("%s: worker %s; %d messages were running, %d queued ones cannot run; restarting",
                   self._owner.name, how, len(report["suspects"]), report["refused"],
                   extra=self._event("failed", how))  # fmt: skip
        timeline = {"reap": reaped - known, "account": time.monotonic() - reaped}
        try:
            found = self._starter.restart(self._standby, report, how, timeline)
        except ActorStopped:  # closing
            return
        except DeviceLost as error:
            self._lose(str(error))
            return
        self._timeline = timeline | {"total": time.monotonic() - known}
        self.count += 1
        _log.info("%s: open again after %.0f ms, generation %d",
                  self._owner.name, 1e3 * self._timeline["total"], found.epoch,
                  extra=self._event("restarted", how))  # fmt: skip
        self._owner.wakers.kick()
        self._callbacks.post(lambda: self._owner.watch.generation(found.epoch))
        self._standby.refill(self._owner.facts["uuid"])

    def _account(self, how: str, worker: Worker, *, restarting: bool) -> tuple[dict[str, Any], Death]:
        """Resolve the running messages; in thread placement, as lost."""
        thread = self._standby is None
        index = len(self._faults)
        self._faults.append(None)
        report: dict[str, Any] = {"suspects": []}
        death = Death(how)
        suspects: list[Suspect] = []
        verdict = ""
        try:
            self._owner.plans.review()  # while the dead worker's memory is there
            report = self._core.fault(DEVICE_LOST if thread else DEVICE_FAULT, index, f"worker {how}")
            # Its running messages are resolved: whoever meets it in one of them waits no longer.
            self._owner.meetings.lost(report["keys"], DEVICE_LOST if thread else DEVICE_FAULT, index)
            death = post_mortem(how, worker.status, report.get("cause"), self._ended)
            suspects, verdict = self._blame(report["suspects"], death)
        finally:
            tail = worker.output_tail()
            fault = fault_of(self._owner.name, death, suspects, verdict, tail, restarting=restarting)
            with self._change:
                if thread:
                    self._loss = loss_of_thread(self._owner.name, death, fault, hangs=self.left_behind)
                self._faults[index] = self._loss or fault
                self._change.notify_all()
        if self._watchdog is not None:
            self._watchdog.reset()
        self._ended = None
        self._owner.wakers.kick()
        return report, death

    def _blame(self, claimed: list[tuple[int, int, int]], death: Death) -> tuple[list[Suspect], str]:
        """Return the suspects, and the consequence: accuse their plans, unless the worker was ended from outside."""
        plans = self._owner.plans
        suspects: list[Suspect] = []
        verdict = ""
        running, culprit = [], []
        for lane, ticket, index in claimed:
            record = plans.record(index)
            name = self._owner.lane_name(lane)
            suspect = Suspect(name, ticket, record.spec.op if record is not None else "unknown")
            ran_too_long = self._watchdog is not None and self._watchdog.culprit == (lane, ticket)
            suspects.insert(0 if ran_too_long else len(suspects), suspect)
            if record is not None:
                running.append(record)
                if ran_too_long:
                    culprit.append(record)
        if self._ended is not None:
            verdict = plans.accuse(culprit, build=False)
        elif not death.foreign and not self.demanded:
            verdict = plans.accuse(running)
        self.demanded = False
        plans.forget_builds()
        return suspects, verdict

    def _event(self, what: str, cause: str | None = None) -> dict[str, Any]:
        return log_fields(f"device_{what}", device=self._owner.name, cause=cause, generation=self._core.epoch,
                          restarts=self.count)  # fmt: skip

    def _lose(self, text: str) -> None:
        with self._change:
            last = next((f for f in reversed(self._faults) if isinstance(f, DeviceFault)), None)
            self._loss = DeviceLost(text, last)
            self._faults.append(self._loss)
        self._finish_loss()

    def _finish_loss(self) -> None:
        """End all messages with the loss, the last entry of the faults."""
        text = str(self.loss)
        _log.critical("%s", text, extra=self._event("lost", text))
        self._core.end(LOST, DEVICE_LOST, len(self._faults) - 1, text)
        self._owner.meetings.end(DEVICE_LOST, len(self._faults) - 1)
        self._owner.meetings.bury(DEVICE_LOST, len(self._faults) - 1)
        self.links.current = None
        with self._change:
            self._change.notify_all()
        if self._standby is not None:
            self._standby.close()
        loss = self.loss
        self._callbacks.post(lambda: self._owner.watch.end(loss))
        self._owner.wakers.kick()
