"""Programs run in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import atomr_native

HELPERS = Path(__file__).parent
ROOT = Path(atomr_native.__file__).parents[1]
OPTIONS = ("-X", "faulthandler", "-W", "error")


def environment() -> dict[str, str]:
    """Environment in which the package and the helpers can be imported."""
    path = os.pathsep.join([str(ROOT), str(HELPERS), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}


class Program(subprocess.Popen[str]):
    """A process that does not outlive the test which it fails."""

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        if kind is not None:
            self.kill()
        super().__exit__(kind, value, traceback)


def start(code: str, *arguments: str, left_open: bool = False, piped: bool = False) -> Program:
    """Start ``python -c`` with warnings as errors, but for those of Systems that are left open.

    With `piped`, its standard input is a pipe.
    """
    options = (*OPTIONS, "-W", "ignore::ResourceWarning") if left_open else OPTIONS
    return Program(
        [sys.executable, *options, "-c", textwrap.dedent(code), *arguments],
        stdin=subprocess.PIPE if piped else None, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment(),
    )  # fmt: skip


def run(code: str, *arguments: str, status: int = 0, left_open: bool = False) -> str:
    """Run a program to its end; what it printed."""
    with start(code, *arguments, left_open=left_open) as process:
        out, err = process.communicate(timeout=120)
    assert process.returncode == status, f"exit status {process.returncode}\n{out}\n{err}"
    if status == 0:
        assert "Traceback" not in err, err
        assert "Exception ignored" not in err, err
        assert "Error in sys.excepthook" not in err, err
    return out
