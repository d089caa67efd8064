"""The command ``python -m atomr_native demo``."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._support.extras import how_to_install
from ..errors import AtomrError, InvalidRequest, Unsupported

if TYPE_CHECKING:
    from rich.console import Console

    from ..system import System
    from .data import Digits
    from .report import Result
    from .training import Kill, Observer, Outcome, Settings

__all__ = ["main"]

_NEEDED = {"sklearn": "scikit-learn", "matplotlib": "matplotlib"}
_EPOCHS = 40
_MOST_EPOCHS = 100_000
_WIDTH = 110  # width of the output without a terminal
_FAILED, _CANNOT_RUN, _INTERRUPTED = 1, 2, 130


def _among(kind: type[int] | type[float], low: int, high: int, what: str) -> Callable[[str], Any]:
    """Return a parser for an option; its error names the text and the allowed values."""

    def read(text: str) -> Any:
        with contextlib.suppress(ValueError):
            value = kind(text)
            if low <= value <= high:
                return value
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: {what}")

    return read


_SEED = _among(int, 0, 2**63 - 1, "integers from 0 to 2**63 - 1")
_COUNT = _among(int, 1, _MOST_EPOCHS, f"integers from 1 to {_MOST_EPOCHS}")
_SHARE = _among(float, 0, 1, "numbers from 0 to 1")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m atomr_native demo",
        description="Train a perceptron on handwritten digits, with forward and backward pass as messages to a "
        "device; kill the device's worker at a random moment, continue from the last commit, and compare with an "
        "undisturbed run.",
        epilog="Exit status: 0 if the accuracy is reached and both runs are the same bit for bit, 1 if not, 2 if the "
        "demo cannot run here.",
    )
    add = parser.add_argument
    add("--device", default="host", metavar="host[:N]|cuda:N", help="training device; default: host")
    add("--isolation", choices=("process", "thread"), default="process", help="default: process")
    add("--no-fault", action="store_true", help="do not kill the worker")
    add("--seed", type=_SEED, default=0, metavar="N", help="seed of data, weights and fault; default: 0")
    add("--epochs", type=_COUNT, default=_EPOCHS, metavar="N", help=f"default: {_EPOCHS}")
    add("--dtype", choices=("float32", "bfloat16"), default="float32", help="dtype of the products; default: float32")
    add("--min-accuracy", type=_SHARE, default=0.97, metavar="SHARE", help="default: 0.97")
    add(
        "--output",
        type=Path,
        default=Path("demo-output"),
        metavar="DIR",
        help="folder for the PNGs; default: demo-output",
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo; takes some seconds.

    Parameters
    ----------
    argv
        Options; by default the arguments of the process.

    Returns
    -------
    int
        0 if the accuracy is reached and the disturbed run is the same as an undisturbed one, 1 if not, 2 if the demo
        cannot run here, 130 after Ctrl-C; a usage error raises `SystemExit` with 2.
    """
    options = _parser().parse_args(argv)
    missing = [name for module, name in _NEEDED.items() if importlib.util.find_spec(module) is None]
    if missing:
        return _say(f"the demo needs {' and '.join(missing)}: {how_to_install('demo')}", _CANNOT_RUN)
    try:
        options.output.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=options.output):  # better now than after the training
            pass
    except OSError as error:
        return _say(f"cannot write into {options.output}: {error.strerror}", _CANNOT_RUN)
    try:
        return _run(options)
    except (InvalidRequest, Unsupported) as error:
        return _say(f"{type(error).__name__}: {error}", _CANNOT_RUN)
    except AtomrError as error:
        return _say(f"{type(error).__name__}: {error}", _FAILED)
    except KeyboardInterrupt:
        return _say("interrupted", _INTERRUPTED)


def _say(text: str, status: int) -> int:
    print(text, file=sys.stderr)
    return status


def _small_products(options: argparse.Namespace) -> AbstractContextManager[Any]:
    """Limit products in this process to one thread, if the device runs in it.

    The products of this network are too small to share among threads; a worker process decides this itself.
    """
    if options.isolation == "process":
        return nullcontext()
    limits: AbstractContextManager[Any] = importlib.import_module("threadpoolctl").threadpool_limits(1)
    return limits


def _run(options: argparse.Namespace) -> int:
    from rich.console import Console

    from .data import load_digits
    from .figures import draw_confusion, draw_losses
    from .report import Live, show
    from .training import Settings

    began = time.perf_counter()
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    settings = Settings(seed=options.seed, epochs=options.epochs, dtype=options.dtype)
    with _small_products(options), _system(options) as system:
        system.device(options.device)  # first, to check that the device exists
        digits = load_digits(settings.seed)
        kill = _fault(options, digits, settings, console)
        with Live(console, "training", settings.epochs).shown() as live:
            result = _train(system, options.device, digits, settings, kill, live)
    _count_failures(system, result)
    if result.outcome.recoveries:
        with _system(options) as system, Live(console, "its twin", settings.epochs).shown() as live:
            result.twin = _twin(system, options.device, digits, settings, live)
    losses, matrix = options.output / "loss.png", options.output / "confusion.png"
    try:
        draw_losses(losses, result.outcome, result.twin)
        draw_confusion(matrix, digits.test_labels, result.outcome.predictions, 10)
        result.files = [losses, matrix]
    except OSError as error:  # the disk is full by now; the result is still reported
        _say(f"cannot write into {options.output}: {error.strerror}", _FAILED)
    result.seconds = time.perf_counter() - began
    show(result, options.min_accuracy, console)
    return 0 if result.accuracy >= options.min_accuracy and result.identical and result.files else _FAILED


def _system(options: argparse.Namespace) -> System:
    from ..system import System

    return System(isolation=options.isolation)


def _fault(options: argparse.Namespace, digits: Digits, settings: Settings, console: Console) -> Kill | None:
    """Describe the training, and choose the moment of the kill."""
    from .training import choose_kill

    shape = "-".join(map(str, (digits.test_x.shape[1], *settings.hidden, 10)))
    console.print(
        f"{len(digits.images)} images of digits to train with, {len(digits.test_labels)} to test with; perceptron "
        f"{shape}, {settings.dtype}, seed {settings.seed}; device {options.device}, isolation {options.isolation}",
        highlight=False,
    )
    if options.no_fault:
        return None
    if options.isolation == "thread":
        console.print(
            "No fault: in thread isolation the worker lives in this process, and killing it would kill the program.",
            highlight=False,
        )
        return None
    return choose_kill(settings.seed, settings.epochs * (len(digits.images) // settings.batch))


def _train(
    system: System, device: str, digits: Digits, settings: Settings, kill: Kill | None, observer: Observer
) -> Result:
    from .report import Result
    from .training import Training

    dev = system.device(device)
    outcome = Training(dev, digits, settings, kill=kill, observer=observer).run()
    actors = {name: figures["sent"] for name, figures in dev.stats()["actors"].items()}
    return Result(outcome, outcome.accuracies[-1], actors, Counter(), dev.restarts)


def _twin(system: System, device: str, digits: Digits, settings: Settings, observer: Observer) -> Outcome:
    from .training import Training

    return Training(system.device(device), digits, settings, test=False, observer=observer).run()


def _count_failures(system: System, result: Result) -> None:
    """Count the messages that failed, after the System is closed and all of them are known."""
    result.failures = Counter((letter.actor, type(letter.error).__name__) for letter in system.dead_letters)
    for recovery in result.outcome.recoveries:
        result.failures["memory", "GpuRefStale"] += recovery.failed_commits
