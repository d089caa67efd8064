"""The demo's output: progress, the fault, and the tables at the end."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from .training import Kill, Observer, Outcome, Recovery

__all__ = ["Live", "Result", "same_bits", "show"]

_DEAD_LETTERS = "atomr_native.dead_letters"


@dataclass
class Result:
    """The results to report.

    Attributes
    ----------
    outcome : Outcome
        The disturbed training.
    accuracy : float
        Final accuracy on the test set.
    twin : Outcome or None
        The undisturbed training, if it was needed.
    actors : dict of str to int
        Number of messages to each actor of the device.
    failures : Counter
        Failed messages, by (actor, name of the error).
    restarts : int
        Of the device.
    seconds : float
        Total time.
    files : list of pathlib.Path
        The figures.
    """

    outcome: Outcome
    accuracy: float
    actors: dict[str, int]
    failures: Counter[tuple[str, str]]
    restarts: int
    twin: Outcome | None = None
    seconds: float = 0.0
    files: list[Path] = field(default_factory=list)

    @property
    def identical(self) -> bool:
        """Whether losses and parameters equal the twin's bit for bit; True if no twin was needed."""
        if self.twin is None:
            return not self.outcome.recoveries
        mine, its = self.outcome.parameters, self.twin.parameters
        return same_bits(self.outcome.losses, self.twin.losses) and all(same_bits(mine[n], its[n]) for n in its)


def same_bits(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    """Whether two arrays are equal bit for bit, including -0 and NaN."""
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


class _Lines(logging.Handler):
    """Shows the runtime's log above the progress bars; dead letters are only counted at the end."""

    def __init__(self, console: Console) -> None:
        super().__init__(logging.WARNING)
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        if record.name != _DEAD_LETTERS:
            self._console.print(f"  log   [dim]{escape(record.getMessage())}[/]", highlight=False)


class Live(Observer):
    """A progress bar for one training, and lines about its fault above it.

    Parameters
    ----------
    console
        Console for the output.
    title
        Title of the bar.
    epochs
        Number of epochs.
    """

    def __init__(self, console: Console, title: str, epochs: int) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("epoch {task.completed}/{task.total}"),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            console=console,
        )
        self._task = self._progress.add_task(title, total=epochs, note="")

    @contextmanager
    def shown(self) -> Iterator[Live]:
        """Show it for the duration of a ``with`` block, with the runtime's log."""
        logger, handler = logging.getLogger("atomr_native"), _Lines(self._console)
        logger.addHandler(handler)
        try:
            with self._progress:
                yield self
        finally:
            logger.removeHandler(handler)

    def epoch(self, epoch: int, loss: float, accuracy: float | None) -> None:
        """Move the bar."""
        note = f"loss {loss:.4f}" + ("" if accuracy is None else f"  accuracy {100 * accuracy:.1f} %")
        self._progress.update(self._task, completed=epoch + 1, note=note)

    def killed(self, pid: int, kill: Kill) -> None:
        """Report the kill of the worker."""
        self._line("kill", f"step {kill.step}: its {kill.phase} messages are sent, and worker {pid} gets SIGKILL")

    def recovered(self, recovery: Recovery) -> None:
        """Report how training continued."""
        text = " ".join(str(recovery.error).split())
        name, room = type(recovery.error).__name__, max(self._console.width - 45, 40)
        short = text if len(text) <= room else text[: room - 3] + "..."
        self._line("error", f"step {recovery.step}: {name}: {short}")
        self._line(
            "back",
            f"to commit {recovery.commit}, {1e3 * recovery.seconds:.0f} ms after the fault; the device was open again "
            f"after {1e3 * recovery.device_seconds:.0f} ms",
        )

    def _line(self, label: str, text: str) -> None:
        self._console.print(f"  [bold]{label:5}[/] {escape(text)}", highlight=False)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    for i, column in enumerate(columns):
        table.add_column(column, justify="right" if i in (1, 2) else "left", overflow="fold")
    return table


def _messages(result: Result) -> Table:
    table = _table("Messages", "actor", "sent", "answered with an error", "of which")
    for actor, sent in result.actors.items():
        kinds = {kind: n for (name, kind), n in sorted(result.failures.items()) if name == actor}
        table.add_row(actor, f"{sent:,}", f"{sum(kinds.values()):,}", ", ".join(f"{k} {n}" for k, n in kinds.items()))
    table.add_section()
    table.add_row("all", f"{sum(result.actors.values()):,}", f"{sum(result.failures.values()):,}", "")
    return table


def _figures(result: Result, bar: float) -> Table:
    outcome = result.outcome
    table = _table("Result", "what", "value")
    table.add_row("test accuracy", f"{100 * result.accuracy:.2f} % (at least {100 * bar:g} %)")
    table.add_row("steps, commits", f"{len(outcome.losses):,}, {outcome.commits:,}")
    table.add_row("restarts of the device", str(result.restarts))
    for i, recovery in enumerate(outcome.recoveries, 1):
        which = f" {i}" if len(outcome.recoveries) > 1 else ""
        table.add_row(f"restart{which}, from the detection of the death", f"{1e3 * recovery.device_seconds:.1f} ms")
        table.add_row(f"recovery{which}, until training continued", f"{1e3 * recovery.seconds:.1f} ms")
        table.add_row(f"steps made again{which}", str(recovery.step - recovery.commit))
    table.add_row("training", f"{outcome.seconds:.2f} s")
    if outcome.recoveries:
        cost = sum(recovery.seconds for recovery in outcome.recoveries)
        table.add_row("of which recovery: the cost of the crash", f"{cost:.2f} s")
    if result.twin is not None:
        table.add_row("a second run without a crash, to compare", f"{result.twin.seconds:.2f} s")
    table.add_row("everything", f"{result.seconds:.2f} s")
    return table


def _comparison(result: Result) -> str:
    if result.twin is None:
        return "" if result.identical else "[red]there was a fault, and no twin to compare with[/]"
    mine, its = result.outcome.losses, result.twin.losses
    first = result.outcome.recoveries[0].commit if result.outcome.recoveries else 0
    if result.identical:
        return (
            f"[green]Identical[/]: all {len(mine) - first} losses from commit {first} on equal those of an undisturbed "
            f"run, bit for bit, and so do the {first} before it and the parameters at the end."
        )
    different = np.flatnonzero(mine.view(np.uint32) != its.view(np.uint32))
    where = f"{len(different)} losses, the first at step {different[0]}" if len(different) else "parameters at the end"
    return f"[red]Different[/] from an undisturbed run: {where}."


def show(result: Result, bar: float, console: Console) -> None:
    """Print the tables and the verdict."""
    console.print(_messages(result))
    console.print(_figures(result, bar))
    if line := _comparison(result):
        console.print(line, highlight=False)
    if result.accuracy < bar:
        console.print(f"[red]Too low[/]: the accuracy is below {100 * bar:g} %.", highlight=False)
    if result.files:
        console.print("Drawn: " + ", ".join(escape(str(path)) for path in result.files), highlight=False)
