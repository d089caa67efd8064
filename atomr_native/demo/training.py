"""The training loop, the fault during it, and the recovery from the last commit."""

from __future__ import annotations

import logging
import math
import os
import signal
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..errors import AtomrError, DependencyFailed, DeviceFault, GpuRefStale
from .data import Digits
from .model import Network

if TYPE_CHECKING:
    from ..arrays.gpu_ref import GpuRef
    from ..device import Device
    from ..plans.reply import Reply

__all__ = ["Kill", "Observer", "Outcome", "Recovery", "Settings", "Training", "choose_kill"]

_log = logging.getLogger(__name__)
_KILL = 3  # the random stream of the fault
_PHASES: Final = ("forward", "backward", "update")
#: Errors by which a program notices the death of its worker, and can recover from.
_FAULTS: Final = (DeviceFault, GpuRefStale, DependencyFailed)
_READY_TIMEOUT = 60.0


@dataclass(frozen=True)
class Settings:
    """The parameters of a training; equal settings and data give equal losses, bit for bit.

    Attributes
    ----------
    learning_rate : float
        Peak learning rate; the rate rises over the first epoch and falls to 0 along a cosine.
    commit_every : int
        Steps between commits.
    """

    seed: int = 0
    epochs: int = 40
    batch: int = 64
    hidden: tuple[int, ...] = (256, 128)
    learning_rate: float = 4e-3
    weight_decay: float = 0.1
    commit_every: int = 10
    dtype: str = "float32"


@dataclass(frozen=True)
class Kill:
    """The moment of the kill: after the messages of this phase of this step are sent."""

    step: int
    phase: str


@dataclass(frozen=True)
class Recovery:
    """The course of a recovery.

    Attributes
    ----------
    step : int
        The step that the program was sending when it got the error.
    killed : int or None
        The step that it was sending when it killed the worker; None if it did not kill it.
    error : AtomrError
        The first error that the program got.
    commit : int
        Steps in the recovered state, from which training continued.
    failed_commits : int
        Commits that were sent but failed.
    generation : int
        Generation of the device afterwards.
    device_seconds : float
        From the detection of the death until the device was open again.
    seconds : float
        From the kill, or from the program's first error if it did not kill the worker, until training continued.
    """

    step: int
    killed: int | None
    error: AtomrError
    commit: int
    failed_commits: int
    generation: int
    device_seconds: float
    seconds: float


@dataclass
class Outcome:
    """The result of a training.

    Attributes
    ----------
    losses : numpy.ndarray
        float32, one for each step.
    accuracies : list of float
        Accuracy on the test set after each epoch.
    predictions : numpy.ndarray
        Predictions for the test set at the end.
    parameters : dict of str to numpy.ndarray
        At the end.
    recoveries : list of Recovery
        One for each fault.
    commits : int
        Commits sent.
    seconds : float
        Total time.
    """

    losses: np.ndarray[Any, Any]
    accuracies: list[float]
    predictions: np.ndarray[Any, Any]
    parameters: dict[str, np.ndarray[Any, Any]]
    recoveries: list[Recovery] = field(default_factory=list)
    commits: int = 0
    seconds: float = 0.0


class Observer:
    """Receives the events of a training; this base class ignores them."""

    def epoch(self, epoch: int, loss: float, accuracy: float | None) -> None:
        """Handle the end of an epoch (the first is 0) with its mean loss."""

    def killed(self, pid: int, kill: Kill) -> None:
        """Handle the kill of the worker."""

    def recovered(self, recovery: Recovery) -> None:
        """Handle the recovery after a fault."""


def choose_kill(seed: int, steps: int) -> Kill:
    """Return a random moment in the middle third of a training of `steps` steps."""
    random = np.random.default_rng([seed, _KILL])
    low, high = steps // 3, max(2 * steps // 3, steps // 3 + 1)
    return Kill(int(random.integers(low, high)), _PHASES[int(random.integers(len(_PHASES)))])


class Training:
    """One training on one device.

    Parameters
    ----------
    device
        Where.
    digits
        The data.
    settings
        All other parameters of the result.
    kill
        The moment of the kill, if any.
    test : bool
        Whether to measure the accuracy after each epoch, not only at the end.
    observer
        Receives the events.
    """

    def __init__(
        self,
        device: Device,
        digits: Digits,
        settings: Settings,
        *,
        kill: Kill | None = None,
        test: bool = True,
        observer: Observer | None = None,
    ) -> None:
        self._device = device
        self._digits = digits
        self._settings = settings
        self._kill = kill
        self._test = test
        self._observer = observer or Observer()
        self._per_epoch = len(digits.images) // settings.batch
        self.steps = self._per_epoch * settings.epochs
        sizes = (digits.test_x.shape[1], *settings.hidden, int(digits.labels.max()) + 1)
        self.network = Network(
            device, sizes, batch=settings.batch, test_rows=len(digits.test_x), dtype=settings.dtype,
            weight_decay=settings.weight_decay, seed=settings.seed,
        )  # fmt: skip
        # The losses stay on the device, so no step waits for its own; they are members of each commit.
        self._losses = device.zeros((self.steps,), "float32", durable=True)
        self._group = device.durable_group({**self.network.durable, "losses": self._losses})
        self._commits: deque[Reply] = deque(maxlen=1024)
        self._committed = 0
        self._at = 0
        self._killed: tuple[int, float] | None = None
        self._curve = np.full(self.steps, np.nan, np.float32)
        self._accuracies = [math.nan] * settings.epochs
        self._predictions: np.ndarray[Any, Any] = np.zeros(0, np.int64)
        self._recoveries: list[Recovery] = []
        self._test_x: GpuRef | None = None

    def run(self) -> Outcome:
        """Train; waits for the device once per epoch.

        Raises
        ------
        DeviceLost
            If the device does not come back.
        """
        began = time.perf_counter()
        self._commit(0)
        self._commits[-1].result()
        step = 0
        while True:
            try:
                while step < self.steps:
                    step = self._epoch(step)
                found = {name: ref.numpy() for name, ref in self.network.parameters.items()}
                break
            except _FAULTS as error:
                step = self._recover(error)
        seconds = time.perf_counter() - began
        return Outcome(
            self._curve, self._accuracies, self._predictions, found, self._recoveries, self._committed, seconds
        )

    # ---- training

    def _epoch(self, step: int) -> int:
        """Send an epoch from `step` on, wait for its losses, and return the first step of the next."""
        epoch, first = divmod(step, self._per_epoch)
        settings, network = self._settings, self.network
        inputs, classes = self._digits.epoch(settings.seed, epoch)
        x, labels = self._device.put(inputs, dtype=settings.dtype), self._device.put(classes)
        for i in range(first, self._per_epoch):
            rows = slice(i * settings.batch, (i + 1) * settings.batch)
            batch = x[rows]
            network.forward(batch)
            self._sent(step, "forward")
            network.backward(batch, labels[rows], self._losses[step])
            self._sent(step, "backward")
            network.update(step, self._rate(step))
            self._sent(step, "update")
            step += 1
            if step % settings.commit_every == 0 or step == self.steps:
                self._commit(step)
        self._read(epoch, step)
        return step

    def _read(self, epoch: int, step: int) -> None:
        """Wait for the results of an epoch."""
        accuracy = None
        if self._test or step == self.steps:
            if self._test_x is None:
                self._test_x = self._device.put(self._digits.test_x, dtype=self._settings.dtype)
            self._predictions = self.network.predict(self._test_x).numpy()
            accuracy = float(np.mean(self._predictions == self._digits.test_labels))
            self._accuracies[epoch] = accuracy
        done = slice(epoch * self._per_epoch, step)
        self._curve[done] = self._losses[done].numpy()
        self._observer.epoch(epoch, float(self._curve[done].mean()), accuracy)

    def _rate(self, step: int) -> float:
        warm = min(1.0, (step + 1) / self._per_epoch)
        return self._settings.learning_rate * warm * 0.5 * (1.0 + math.cos(math.pi * step / self.steps))

    def _commit(self, step: int) -> None:
        self._commits.append(self._group.commit(tag=step))
        self._committed += 1

    # ---- the fault

    def _sent(self, step: int, phase: str) -> None:
        """Record the progress of sending; kill the worker at its moment."""
        self._at = step
        kill, pid = self._kill, self._device.worker_pid
        if kill is not None and (step, phase) == (kill.step, kill.phase) and pid is not None:
            self._kill, self._killed = None, (step, time.perf_counter())
            os.kill(pid, signal.SIGKILL)
            self._observer.killed(pid, kill)

    # ---- the recovery

    def _recover(self, error: AtomrError) -> int:
        """Restore the last commit, and return the step to continue with."""
        killed, began = self._killed or (None, time.perf_counter())
        self._killed = None
        failed = 0
        while True:
            try:
                self._device.wait_ready(_READY_TIMEOUT)
                failed += self._settle_commits()
                # The runtime has already restored the group.  A second restore is cheap, and also undoes messages that
                # this program sent between the restart and its first error.
                self._group.restore().result()
                self._test_x = None
                self.network.allocate()
                # The step is read from the state itself.  It is the commit's tag, unless the restart fell exactly
                # between an update and its commit: then the tag would name a step that was not executed.
                step = int(self.network.counter.numpy()[0])
                break
            except _FAULTS as again:  # a worker may die during the recovery from another death
                _log.info("a fault during the recovery: %s", again)
        recovery = Recovery(
            self._at, killed, error, step, failed, self._device.generation,
            self._device.restart_timeline().get("total", math.nan), time.perf_counter() - began,
        )  # fmt: skip
        self._recoveries.append(recovery)
        self._observer.recovered(recovery)
        return step

    def _settle_commits(self) -> int:
        """Wait for the open commits, and return the number of failed ones."""
        failed = 0
        while self._commits:
            reply = self._commits.popleft()
            reply.wait(_READY_TIMEOUT)
            failed += reply.exception() is not None
        return failed
