"""The known answer that proves a worker, and faults on request for tests of recovery."""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NoReturn

import numpy as np

from ..builders.context import Built
from ..errors import InvalidRequest, LibraryError, Unsupported
from ..plans.spec import FreeAttributes, PlanSpec
from ..protocol.messages import FAULTS

__all__ = [
    "OPERATIONS",
    "Assign",
    "assign",
    "build",
    "inject",
    "known_answer",
]

#: Fills an array with a number.
Assign = Callable[[np.ndarray[Any, Any], float], None]

#: Operations for tests, built only by a worker with ``allow_crash``; see `build`.
OPERATIONS: Final = ("test.crash", "test.fail", "test.wait", "test.workspace")

_LONGEST_WAIT: Final = 120.0  # seconds, so a test that forgets its gate does not hang forever

_ERRORS: Final[dict[str, Callable[[str], BaseException]]] = {
    "InvalidRequest": InvalidRequest,
    "KeyboardInterrupt": KeyboardInterrupt,
    "LibraryError": lambda text: LibraryError("testlib", 7, "TEST_STATUS", "test.fail", text),
    "MemoryError": MemoryError,
    "OversizedStatus": lambda text: LibraryError("testlib", 1 << 40, "TEST_STATUS", "test.fail", text),
    "RuleMissing": lambda text: Unsupported(text, rule=None),  # type: ignore[arg-type]
    "SystemExit": SystemExit,
    "Unsupported": Unsupported,
    "ValueError": ValueError,
}


def inject(how: str, *, in_process: bool) -> bool:
    """Commit a fault in the calling thread.

    Parameters
    ----------
    how
        ``"segfault"`` (a read of address zero), ``"abort"``, ``"exit"`` (status 3, silently), ``"hang"`` (forever, with
        the GIL held) or ``"raise"``.
    in_process
        Whether this process is a worker process.  In a thread of the user's process only ``"exit"`` (the worker thread
        ends) and ``"raise"`` are possible.

    Returns
    -------
    bool
        True if the worker thread must end now.
    """
    if how not in FAULTS:
        raise InvalidRequest(f"unknown fault {how!r}; allowed: {', '.join(FAULTS)}")
    if how == "raise":
        raise RuntimeError("a fault was injected: raise")
    if not in_process:
        if how == "exit":
            return True
        raise Unsupported(f"fault {how!r} would end this process; with isolation='thread' use 'raise' or 'exit'")
    if how == "segfault":
        ctypes.string_at(0)
    elif how == "abort":
        os.abort()
    elif how == "hang":
        _hang()
    os._exit(3)


def assign(array: np.ndarray[Any, Any], value: float) -> None:
    """Fill an array of the host device."""
    array[...] = value


def build(spec: PlanSpec[FreeAttributes], *, in_process: bool, assign: Assign = assign) -> Built:
    """Build a test operation; `assign` fills a contiguous array of the device, in the order of its lane.

    ``test.fail`` raises the attribute ``error`` (a name of `_ERRORS`, or one of `FAULTS`) with ``text``, when it is
    built if ``when`` is ``"build"``, else when it runs, after writing 0xEE into the bytes of its last operand if
    ``touch`` says so.  ``test.wait`` waits until the first element of its first operand, which is host memory, is not
    zero; with ``path``, its build waits until that file exists, and its run does nothing.  ``test.workspace`` does
    nothing, and wants a workspace of ``bytes``.  ``test.crash`` commits the fault ``how`` (one of `FAULTS`, ``"sleep"``
    or ``"none"``), when it is built or when it runs, after writing ``half``, if there is one, into the first half of
    its last operand, making the file ``begun``, and sleeping ``seconds`` without the GIL; with ``once``, only if that
    file does not exist yet, which it makes.
    """
    given = dict(spec.attributes)
    if spec.op == "test.crash":
        return _build_crash(given, in_process=in_process, assign=assign)
    if spec.op == "test.workspace":
        return Built(lambda _arrays, _scalars: None, int(given["bytes"]))
    if spec.op == "test.wait":
        path = given.get("path")
        if path is not None:
            _wait_until(lambda: os.path.exists(path))
            return Built(lambda _arrays, _scalars: None)
        return Built(lambda arrays, _scalars: _wait_until(lambda: bool(arrays[0].flat[0])))
    error, text, touch = str(given["error"]), str(given.get("text", "")), bool(given.get("touch"))

    def fail(arrays: tuple[np.ndarray[Any, Any], ...], _scalars: tuple[Any, ...]) -> None:
        if touch:
            assign(arrays[-1].view(np.uint8), 0xEE)
        if error in FAULTS:
            inject(error, in_process=in_process)
        raise _ERRORS[error](text)

    if given.get("when") == "build":
        fail((), ())
    return Built(fail)


def _build_crash(given: dict[str, Any], *, in_process: bool, assign: Assign) -> Built:
    how, half, seconds = str(given["how"]), given.get("half"), float(given.get("seconds", 0.0))
    begun, once = given.get("begun"), given.get("once")
    if how not in (*FAULTS, "sleep", "none"):
        raise InvalidRequest(f"unknown fault {how!r}; allowed: {', '.join(FAULTS)}, sleep, none")

    def crash(arrays: tuple[np.ndarray[Any, Any], ...], _scalars: tuple[Any, ...]) -> None:
        if once is not None:
            if os.path.exists(once):
                return
            Path(once).touch()
        if half is not None:
            target = arrays[-1].reshape(-1)
            assign(target[: target.size // 2], half)
        if begun is not None:
            Path(begun).touch()
        if seconds:
            time.sleep(seconds)
        if how in FAULTS:
            inject(how, in_process=in_process)

    if given.get("when") == "build":
        crash((), ())
    return Built(crash)


def _wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + _LONGEST_WAIT
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"the gate was not opened within {_LONGEST_WAIT:g} s")
        time.sleep(0.001)


def _hang() -> NoReturn:
    pause = ctypes.PyDLL(None).pause  # PyDLL: the call keeps the GIL
    while True:
        pause()


def known_answer() -> None:
    """Compute a known result through newly allocated memory.

    The numbers are small integers, exact in float32 in any order of summation, so the comparison is exact.

    Raises
    ------
    LibraryError
        If the device computes or stores wrong values.
    """
    rows, inner, columns = 17, 33, 9
    a = [[(3 * i + 5 * k) % 13 - 6 for k in range(inner)] for i in range(rows)]
    b = [[(7 * k + 2 * j) % 11 - 5 for j in range(columns)] for k in range(inner)]
    expected = [[sum(a[i][k] * b[k][j] for k in range(inner)) for j in range(columns)] for i in range(rows)]
    with mmap.mmap(-1, 4 * (rows * inner + inner * columns + rows * columns)) as memory:
        x, y, z = _carve(memory, (rows, inner), (inner, columns), (rows, columns))
        x[...], y[...], z[...] = a, b, np.nan
        np.matmul(x, y, out=z)
        result, kept = z.tolist(), x.tolist() == a and y.tolist() == b
        del x, y, z  # they export the mapping, so it could not be closed
    if result != expected:
        raise LibraryError("worker", 0, "wrong result", "the known-answer computation")
    if not kept:
        raise LibraryError("worker", 0, "memory changed", "the known-answer computation")


def _carve(memory: mmap.mmap, *shapes: tuple[int, int]) -> list[np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
    arrays, offset = [], 0
    for shape in shapes:
        arrays.append(np.ndarray(shape, np.float32, memory, offset))
        offset += arrays[-1].nbytes
    return arrays
