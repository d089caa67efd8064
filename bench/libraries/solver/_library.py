"""cuSOLVER without this package: its C functions through ctypes, on memory of the driver's, in a stream."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import partial
from itertools import cycle
from typing import Any

from bench.harness.driver import Driver
from bench.harness.unavailable import Unavailable

__all__ = ["Library"]

_FLOAT = 0  # CUDA_R_32F
_DOUBLE = 1203  # CUSOLVER_R_64F
_FACTORS = {"tf32": 1207, "bfloat16": 1206, "float16": 1205}  # CUSOLVER_R_TF32 and others
_WAYS = {"CLASSICAL": 1102, "GMRES": 1104}
#: Calls that may be under way at once, if they need little host memory: each has its own, as long as it runs.
_PARTS = 64
Call = Callable[[], object]
_SIZE, _INT64, _POINTER = ctypes.c_size_t, ctypes.c_int64, ctypes.c_void_p


class Library(Driver):
    """A handle of cuSOLVER in the primary context of a device; see `Driver`."""

    def __init__(self, ordinal: int) -> None:
        super().__init__(ordinal)
        try:
            from cuda.pathfinder import load_nvidia_dynamic_lib

            given = os.environ.get("ATOMR_NATIVE_CUSOLVER")
            self._solver = ctypes.CDLL(given or str(load_nvidia_dynamic_lib("cusolver").abs_path))
        except (ImportError, OSError, RuntimeError) as error:
            raise Unavailable(f"cuSOLVER does not load: {error}") from error
        self._handle, self._params = _POINTER(), _POINTER()
        self._call("cusolverDnCreate", ctypes.byref(self._handle))
        self._call("cusolverDnCreateParams", ctypes.byref(self._params))
        self._call("cusolverDnSetStream", self._handle, self._stream)

    def _call(self, name: str, *arguments: Any) -> None:
        self._do(self._solver, name, *arguments)

    def _sized(self, name: str, before: tuple[Any, ...], *after: Any, asked: tuple[Any, ...] | None = None) -> Call:
        """Return a call of a 64-bit function, with memory of the sizes that it asks for, by `asked` if that differs."""
        device, host = _SIZE(), _SIZE()
        sizes = (ctypes.byref(device), ctypes.byref(host))
        self._call(f"{name}_bufferSize", self._handle, self._params, *(before if asked is None else asked), *sizes)
        scratch = self._memory(device.value)
        number = max(8, min(_PARTS, 2**26 // max(host.value, 1)))
        parts = cycle([ctypes.create_string_buffer(max(host.value, 1)) for _ in range(number)])
        function, first = getattr(self._solver, name), (self._handle, self._params, *before, scratch, device)
        return lambda: function(*first, next(parts), host, *after)

    def routine(self, name: str, a: Any) -> Call:
        """Return a call that copies a square, symmetric float32 matrix, and does the work of a routine in place.

        Of a factorisation ``cholesky`` (lower) or ``lu_factor``, of ``inv``, ``qr`` or ``eigh``.
        """
        import numpy as np

        a = np.ascontiguousarray(a, np.float32)
        n, nbytes = len(a), a.nbytes
        given, work, info = self._put(a), self._memory(nbytes), self._memory(4)
        rows, lda, more = _INT64(n), _INT64(n), self._memory(8 * n)
        copies = [(work, given)]
        if name == "cholesky":
            calls = [self._sized("cusolverDnXpotrf", (0, rows, _FLOAT, work, lda, _FLOAT), info)]
        elif name == "eigh":
            calls = [self._sized("cusolverDnXsyevd", (1, 0, rows, _FLOAT, work, lda, _FLOAT, more, _FLOAT), info)]
        elif name == "qr":
            factor = self._sized("cusolverDnXgeqrf", (rows, rows, _FLOAT, work, lda, _FLOAT, more, _FLOAT), info)
            size, arguments = ctypes.c_int(), (n, n, n, work, n, more)
            self._call("cusolverDnSorgqr_bufferSize", self._handle, *arguments, ctypes.byref(size))
            scratch = self._memory(4 * size.value)
            calls = [factor, partial(self._solver.cusolverDnSorgqr, self._handle, *arguments, scratch, size, info)]
        else:
            asked = (rows, rows, _FLOAT, work, lda, _FLOAT)
            calls = [
                self._sized("cusolverDnXgetrf", (rows, rows, _FLOAT, work, lda, more, _FLOAT), info, asked=asked)
            ]  # fmt: skip
            if name == "inv":
                ones, made = self._put(np.eye(n, dtype=np.float32)), self._memory(nbytes)
                copies.append((made, ones))
                solve = (self._handle, self._params, 0, rows, rows, _FLOAT, work, lda, more, _FLOAT, made, lda, info)
                calls.append(partial(self._solver.cusolverDnXgetrs, *solve))
        copy, size_of, stream = self._driver.cuMemcpyDtoDAsync_v2, _SIZE(nbytes), self._stream

        def call() -> None:
            for to, of in copies:
                copy(to, of, size_of, stream)
            for each in calls:
                each()

        return call

    def refined(self, a: Any, factor: str, way: str) -> Call:
        """Return a call that copies a square, symmetric float64 matrix and ones, and solves by factors in `factor`.

        `way` is how the solution is refined, ``"GMRES"`` or ``"CLASSICAL"``.
        """
        import numpy as np

        n = len(a)
        given, ones = self._put(np.ascontiguousarray(a, np.float64)), self._put(np.ones(n))
        work, right, x, info = (self._memory(size) for size in (a.nbytes, 8 * n, 8 * n, 4))
        params, infos, size, taken = _POINTER(), _POINTER(), _SIZE(), ctypes.c_int()
        self._call("cusolverDnIRSParamsCreate", ctypes.byref(params))
        self._call("cusolverDnIRSParamsSetRefinementSolver", params, _WAYS[way])
        self._call("cusolverDnIRSParamsSetSolverPrecisions", params, _DOUBLE, _FACTORS[factor])
        self._call("cusolverDnIRSParamsSetMaxIters", params, 50)
        self._call("cusolverDnIRSInfosCreate", ctypes.byref(infos))
        self._call("cusolverDnIRSXgesv_bufferSize", self._handle, params, n, 1, ctypes.byref(size))
        scratch = self._memory(size.value)
        copy, solve, stream = self._driver.cuMemcpyDtoDAsync_v2, self._solver.cusolverDnIRSXgesv, self._stream
        arrays = (work, n, right, n, x, n, scratch, size, ctypes.byref(taken), info)
        operands = (self._handle, params, infos, n, 1, *arrays)

        def call() -> None:
            copy(work, given, _SIZE(a.nbytes), stream)
            copy(right, ones, _SIZE(8 * n), stream)
            solve(*operands)

        return call
