"""Whether other processes run."""

from __future__ import annotations

from pathlib import Path

__all__ = ["is_alive"]


def is_alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:  # FileNotFoundError; ProcessLookupError where the process is reaped while the file is open
        return False
    return text.rpartition(")")[2].split()[0] not in "ZX"
