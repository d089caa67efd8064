"""A live view of Systems of other processes: ``python -m atomr_native top``."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from ..errors import AtomrError
from .sockets import folder, published, read
from .view import render

__all__ = ["main"]

_HELP = "q: quit   Tab: next System"
_PATIENCE = 2.0  # seconds that a System has to answer; no keys are read meanwhile


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.05 <= value <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0.05 to 3600")
    return value


def main(argv: Sequence[str] | None = None) -> int:
    """Show published Systems of this user's other processes.

    Returns
    -------
    int
        0; 1 if there is none, or none answers; a usage error raises `SystemExit` with 2.
    """
    parser = argparse.ArgumentParser(
        prog="python -m atomr_native top",
        description="Show devices, lanes, mailboxes, rates, memory and restarts of this user's programs that made "
        "their System with observe=True, or called atomr_native.observe.publish(system). Exit status: 0, or 1 "
        "if there is no such program.",
    )
    parser.add_argument("pid", nargs="?", type=int, help="process id; by default all publishing processes")
    parser.add_argument("--once", action="store_true", help="print the tables once, with rates over one interval")
    parser.add_argument("--json", action="store_true", help="write one JSON object with a snapshot of each System")
    parser.add_argument("--list", action="store_true", help="list the publishing processes")
    parser.add_argument(
        "--interval", type=_seconds, default=1.0, metavar="S", help="seconds between snapshots; default: 1"
    )
    options = parser.parse_args(argv)
    found = _look(options.pid)
    if options.json:
        sys.stdout.write(json.dumps({"systems": list(found.values())}, indent=2) + "\n")
        return 0 if found else 1
    if not found:
        whose = "No process publishes" if options.pid is None else f"Process {options.pid} does not publish"
        sys.stderr.write(
            f"{whose} a System to this user (looked in {folder()}).\n"
            "Start the program with System(observe=True), or call atomr_native.observe.publish(system) in it.\n"
        )
        return 1
    if options.list:
        for told in found.values():
            console = Console(highlight=False, markup=False)
            console.print(Text(f"{told['pid']:>8}  {told['system']}  {told['program']}"))
        return 0
    if options.once or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return _once(options.pid, found, options.interval)
    return _live(options.pid, found, options.interval)


def _look(pid: int | None, only: Path | None = None) -> dict[Path, dict[str, Any]]:
    """Take a snapshot of each System that can be reached; return the reason for one that cannot."""
    found = {}
    for path in [only] if only is not None else published():
        if pid is not None and not path.name.startswith(f"{pid}-"):
            continue
        try:
            told = read(path)
        except AtomrError as error:
            sys.stderr.write(f"{error}\n")
            continue
        if told is not None:
            found[path] = told
    return found


def _once(pid: int | None, before: dict[Path, dict[str, Any]], interval: float) -> int:
    time.sleep(interval)
    # A pipe has no width: use one that fits the names.
    console = Console(width=None if sys.stdout.isatty() else 140)
    now = _look(pid) or before
    for path, told in now.items():
        console.print(render(told, before.get(path)))
        console.print()
    return 0


def _live(pid: int | None, found: dict[Path, dict[str, Any]], interval: float) -> int:
    console = Console()
    path = next(iter(found))
    before, now = None, found[path]
    message = note = ""
    with _keys() as key, Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            said = f"{message or note}   " if message or note else ""
            foot = Text.assemble((said, "yellow"), (_HELP, "dim"), no_wrap=True, overflow="ellipsis")
            live.update(Group(render(now, before, rows=console.height - 1), foot), refresh=True)
            pressed = key(interval)
            if pressed in ("q", "Q", "\x03", "\x04"):
                return 0
            if pressed and pressed != "\t":
                continue
            try:
                told = None if pressed else read(path, _PATIENCE)
            except AtomrError as error:
                message = str(error)
                continue
            if told is not None:
                before, now, message = now, told, ""
                continue
            other = _next(pid, path)
            if other is not None:
                note = "" if pressed else f"The System of process {now['pid']} has ended."
                (path, now), before = other, None
            elif not pressed:
                break
    console.print(Text(f"The System of process {now['pid']} has ended."))
    return 0


def _next(pid: int | None, path: Path) -> tuple[Path, dict[str, Any]] | None:
    """Return the next System after one, and its snapshot; None if no other answers."""
    others = [each for each in published() if each != path and (pid is None or each.name.startswith(f"{pid}-"))]
    for other in sorted(others, key=lambda each: (each < path, others.index(each))):
        with contextlib.suppress(AtomrError):
            told = read(other, _PATIENCE)
            if told is not None:
                return other, told
    return None


@contextlib.contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """Yield a function that waits for a key for a number of seconds; restore the terminal afterwards."""
    fd = sys.stdin.fileno()
    old = termios.tcgetattr(fd)

    def key(seconds: float) -> str:
        try:
            ready = select.select([fd], [], [], seconds)[0]
            return os.read(fd, 1).decode("ascii", "replace") or "\x04" if ready else ""
        except KeyboardInterrupt:
            return "\x03"

    try:
        tty.setcbreak(fd)
        yield key
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, old)
