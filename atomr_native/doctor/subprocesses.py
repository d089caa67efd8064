"""Run a probe in a separate process, which contains its libraries and failures."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

__all__ = ["ProbeError", "command", "run_probe"]

_FOLDER = Path(__file__).resolve().parent
#: The folder goes to the end of the path, so it hides no module.
_START = (
    "import importlib, sys; sys.path.append(sys.argv[1]); sys.argv[:2] = []; "
    "importlib.import_module('_probes.' + sys.argv[0]).main()"
)


class ProbeError(Exception):
    """A probe that died, hung or gave a malformed answer; the text says which."""


def command(module: str, *arguments: str) -> list[str]:
    """Return the command line that runs a module of ``_probes`` without importing the package."""
    return [sys.executable, "-P", "-c", _START, str(_FOLDER), module, *arguments]


def run_probe(module: str, *arguments: str, timeout: float = 60.0) -> dict[str, Any]:
    """Run a probe, wait for it and return the JSON object that it wrote last.

    Parameters
    ----------
    module, arguments
        A module of ``_probes`` and its arguments.
    timeout
        Seconds before it is killed.

    Raises
    ------
    ProbeError
        If it does not end in time, ends by a signal or a nonzero status, or writes no JSON object.
    """
    try:
        done = subprocess.run(
            command(module, *arguments), capture_output=True, text=True, timeout=timeout, check=False, errors="replace"
        )
    except subprocess.TimeoutExpired:
        raise ProbeError(f"no answer within {timeout:g} s") from None
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        how = f"signal {-done.returncode}" if done.returncode < 0 else f"exit status {done.returncode}"
        raise ProbeError(f"the probe ended with {how}: {last}")
    lines = done.stdout.strip().splitlines()
    try:
        answer = json.loads(lines[-1])
    except (IndexError, json.JSONDecodeError):
        raise ProbeError(f"the probe wrote no answer but {done.stdout[-200:]!r}") from None
    if not isinstance(answer, dict):
        raise ProbeError(f"the probe answered {answer!r}, not an object")
    return answer
