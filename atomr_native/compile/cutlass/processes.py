"""Helper processes that compile: as many at once as there are processors, each can be cancelled."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

from ..._lib.guard import Lock
from ...errors import LibraryError, Unsupported
from .. import INSTALL_HINT
from . import helper

__all__ = ["Cancelled", "Compilation", "compilations", "run"]

_log = logging.getLogger("atomr_native")
_LOOK_SECONDS: Final = 0.05

_lock = Lock()
_running: dict[int, tuple[str, float]] = {}
_slots = threading.BoundedSemaphore(max(1, len(os.sched_getaffinity(0))))


class Cancelled(Exception):
    """A compilation whose event was set; its process has ended."""


class Compilation(NamedTuple):
    """A compilation in progress.

    Attributes
    ----------
    label : str
    seconds : float
        Since its process was started.
    """

    label: str
    seconds: float


def _after_fork() -> None:
    """In a forked child: forget the processes of the parent."""
    global _slots
    _slots = threading.BoundedSemaphore(max(1, len(os.sched_getaffinity(0))))
    _running.clear()


os.register_at_fork(after_in_child=_after_fork)


def compilations() -> tuple[Compilation, ...]:
    """Return the compilations that run at the moment, the oldest first."""
    now = time.monotonic()
    with _lock:
        return tuple(Compilation(label, now - since) for label, since in _running.values())


@contextlib.contextmanager
def _slot(cancel: threading.Event | None) -> Iterator[None]:
    while True:
        if cancel is not None and cancel.is_set():
            raise Cancelled
        if _slots.acquire(timeout=_LOOK_SECONDS):
            break
    try:
        yield
    finally:
        _slots.release()


def run(job: dict[str, Any], blobs: list[bytes], label: str, cancel: threading.Event | None = None) -> list[bytes]:
    """Do a job in a process of its own.  Waits for a free processor, and for the process.

    Parameters
    ----------
    job : dict
        ``kind`` ``"compile"``, with ``source``, ``headers``, ``flags`` of NVRTC and ``outputs``; or ``"link"``, with
        ``flags`` of nvJitLink.
    blobs : list of bytes
        LTO-IR to link.
    label : str
        For `compilations` and errors.
    cancel : threading.Event, optional
        Kills the process when it is set.

    Raises
    ------
    Cancelled
    LibraryError
        With the whole log, if the code does not compile, or the process dies.
    Unsupported
        If NVRTC or nvJitLink is not installed.
    """
    library = "nvrtc" if job["kind"] == "compile" else "nvjitlink"
    command = [sys.executable, "-P", str(Path(helper.__file__).resolve())]
    pipe = subprocess.PIPE
    with (
        _slot(cancel),
        _job_file(job, blobs) as file,
        subprocess.Popen(command, stdin=file, stdout=pipe, stderr=pipe) as process,
    ):
        began = time.monotonic()
        with _lock:
            _running[process.pid] = label, began
        _log.info("compiling %s", label)
        try:
            answer, said = _answer(process, cancel)
        finally:
            with _lock:
                _running.pop(process.pid, None)
            if process.poll() is None:
                process.kill()
    if process.returncode or not answer:
        text = said.decode(errors="replace").strip()
        raise LibraryError(library, process.returncode, "ProcessDied", f"compiling {label}", text)
    head, made = helper.read(answer)
    if "missing" in head:
        raise Unsupported(f"compiling {label} needs NVRTC and nvJitLink ({head['missing']}); {INSTALL_HINT}")
    if "error" in head:
        error = head["error"]
        operation = f"{error['operation']} for {label}"
        raise LibraryError(library, error["status"], error["name"], operation, error["log"])
    if not made or not all(made):
        raise LibraryError(library, 0, "NoCode", f"compiling {label}", "the compiler returned no code")
    _log.info("compiled %s in %.1f s", label, time.monotonic() - began)
    return made


def _job_file(job: dict[str, Any], blobs: list[bytes]) -> BinaryIO:
    """Return a job as a file to read, since a pipe would have to be filled while the process is watched."""
    file: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    helper.write(file, {**job, "path": sys.path}, blobs)
    file.seek(0)
    return file


def _answer(process: subprocess.Popen[bytes], cancel: threading.Event | None) -> tuple[bytes, bytes]:
    """Return what the process writes."""
    while True:
        try:
            return process.communicate(timeout=None if cancel is None else _LOOK_SECONDS)
        except subprocess.TimeoutExpired:
            if cancel is not None and cancel.is_set():
                raise Cancelled from None
