"""Whether other processes run."""

from __future__ import annotations

from pathlib import Path

from actions import eventually

__all__ = ["assert_dead", "is_alive"]


def is_alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:  # FileNotFoundError; ProcessLookupError where the process is reaped while the file is open
        return False
    return text.rpartition(")")[2].split()[0] not in "ZX"


def assert_dead(*pids: int, seconds: float = 30.0) -> None:
    """Wait until processes have ended."""
    eventually(lambda: not any(map(is_alive, pids)), seconds)
