"""The demo's figures: loss curve and confusion matrix, as PNG files.  Needs matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from .training import Outcome, Recovery

__all__ = ["confusion", "draw_confusion", "draw_losses"]

_BLUE, _ORANGE, _RED, _GREEN, _GREY = "#1f5fa8", "#f28e2b", "#c0392b", "#2e8b57", "#777777"
_STYLE: Any = {
    "axes.grid": True, "axes.spines.right": False, "axes.spines.top": False, "axes.titlelocation": "left",
    "axes.titleweight": "bold", "figure.dpi": 130, "font.size": 10, "grid.alpha": 0.25, "legend.frameon": False,
}  # fmt: skip


def _figure(width: float, height: float) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def confusion(labels: np.ndarray[Any, Any], predictions: np.ndarray[Any, Any], classes: int) -> np.ndarray[Any, Any]:
    """Return how often each class (row) was predicted as each class (column)."""
    counts = np.bincount(labels * classes + predictions, minlength=classes * classes)
    return counts.reshape(classes, classes)


def draw_losses(path: Path, outcome: Outcome, twin: Outcome | None) -> None:
    """Draw the loss of each step, the accuracy after each epoch, and the steps around the fault."""
    from matplotlib import rc_context

    with rc_context(_STYLE):
        figure = _figure(10, 7.2 if outcome.recoveries else 6.4)
        recovery = outcome.recoveries[0] if outcome.recoveries else None
        grid = figure.add_gridspec(2, 2, height_ratios=(3, 2))
        _draw_curve(figure.add_subplot(grid[0, :]), outcome, twin, recovery)
        _draw_accuracies(figure.add_subplot(grid[1, 0] if recovery else grid[1, :]), outcome, recovery)
        if recovery is not None:
            _draw_fault(figure.add_subplot(grid[1, 1]), outcome, twin, recovery)
        figure.savefig(path)


def _moment(recovery: Recovery) -> int:
    return recovery.step if recovery.killed is None else recovery.killed


def _draw_curve(axes: Any, outcome: Outcome, twin: Outcome | None, recovery: Recovery | None) -> None:
    losses = outcome.losses
    steps, per_epoch = np.arange(len(losses)), len(losses) // len(outcome.accuracies)
    axes.plot(steps, losses, color=_BLUE, alpha=0.3, linewidth=0.9, label="loss of each step")
    means = losses.reshape(-1, per_epoch).mean(axis=1)
    middles = (np.arange(len(means)) + 0.5) * per_epoch
    axes.plot(middles, means, color=_BLUE, linewidth=2, label="mean of each epoch")
    if twin is not None:
        theirs = twin.losses.reshape(-1, per_epoch).mean(axis=1)
        axes.plot(middles, theirs, color=_ORANGE, linewidth=1.5, linestyle=(0, (2, 3)), label="undisturbed twin")
    axes.set(title="Training loss", xlabel="step", ylabel="cross entropy", yscale="log", xlim=(0, len(losses)))
    if recovery is not None:
        axes.axvline(_moment(recovery), color=_RED, linewidth=1.2)
        axes.annotate(
            f"worker killed at step {_moment(recovery)},\nback at commit {recovery.commit} after "
            f"{1e3 * recovery.seconds:.0f} ms",
            (_moment(recovery), 1), xycoords=("data", "axes fraction"), xytext=(6, -4), textcoords="offset points",
            color=_RED, va="top",
        )  # fmt: skip
    axes.legend(loc="lower left")


def _draw_accuracies(axes: Any, outcome: Outcome, recovery: Recovery | None) -> None:
    epochs = np.arange(1, len(outcome.accuracies) + 1)
    percent = 100 * np.asarray(outcome.accuracies)
    axes.plot(epochs, percent, color=_GREEN, marker="o", markersize=3)
    lowest = float(np.nanmin(percent)) if np.isfinite(percent).any() else 0.0
    axes.set(title=f"Test accuracy: {percent[-1]:.2f} % at the end", xlabel="epoch", ylabel="%")
    axes.set_ylim(max(0.0, min(lowest, 95.0) - 1), 100)
    axes.xaxis.get_major_locator().set_params(integer=True)
    if recovery is not None:
        axes.axvline(_moment(recovery) * len(epochs) / len(outcome.losses), color=_RED, linewidth=1.2)


def _draw_fault(axes: Any, outcome: Outcome, twin: Outcome | None, recovery: Recovery) -> None:
    low = max(0, recovery.commit - 12)
    high = min(len(outcome.losses), recovery.step + 13)
    steps = np.arange(low, high)
    axes.axvspan(recovery.commit - 0.5, recovery.step + 0.5, color=_RED, alpha=0.1, linewidth=0, label="sent again")
    axes.axvline(_moment(recovery), color=_RED, linewidth=1.2)
    axes.plot(steps, outcome.losses[low:high], color=_BLUE, marker="o", markersize=4, label="with the fault")
    if twin is not None:
        axes.plot(
            steps, twin.losses[low:high], color=_ORANGE, linestyle="none", marker="o", markersize=8,
            fillstyle="none", label="undisturbed twin",
        )  # fmt: skip
    axes.set(title="Around the fault", xlabel="step", ylabel="cross entropy")
    highest = np.nanmax(outcome.losses[low:high])
    axes.set_ylim(0, 1.25 * float(highest) if np.isfinite(highest) else None)  # room for the legend
    axes.legend(loc="upper right", ncols=3, fontsize=8, columnspacing=1, handletextpad=0.4)


def draw_confusion(path: Path, labels: np.ndarray[Any, Any], predictions: np.ndarray[Any, Any], classes: int) -> None:
    """Draw how often each digit was predicted as each digit."""
    from matplotlib import rc_context

    counts = confusion(labels, predictions, classes)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    with rc_context({**_STYLE, "axes.grid": False, "axes.spines.left": False, "axes.spines.bottom": False}):
        figure = _figure(6.4, 6.4)
        axes = figure.add_subplot()
        # The square root makes the few errors visible beside the diagonal.
        axes.imshow(np.sqrt(shares), cmap="Blues", vmin=0, vmax=1)
        for row, column in zip(*np.nonzero(counts), strict=True):
            dark = shares[row, column] > 0.4
            wrong = row != column
            axes.text(
                column, row, str(counts[row, column]), ha="center", va="center",
                color=_RED if wrong else "white" if dark else "black", weight="bold" if wrong else "normal",
            )  # fmt: skip
        ticks = np.arange(classes)
        axes.set_xticks(ticks - 0.5, minor=True)
        axes.set_yticks(ticks - 0.5, minor=True)
        axes.grid(which="minor", color="white", linewidth=2, alpha=1)
        axes.tick_params(which="both", length=0)
        right = int(np.trace(counts))
        axes.set(
            title=f"{right} of {counts.sum()} test images classified correctly, {counts.sum() - right} wrong",
            xlabel="read as", ylabel="is", xticks=ticks, yticks=ticks,
        )  # fmt: skip
        figure.savefig(path)
