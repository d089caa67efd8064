"""cuSPARSE, cuBLAS and cuDSS without this package: their C functions through ctypes, in a stream of their own.

Memory is the driver's.  A call costs ctypes about a microsecond; what takes the device longer hides that.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import partial
from typing import Any

from bench.harness.driver import Driver
from bench.harness.unavailable import Unavailable, describe

__all__ = ["Call", "Library"]

# Of the headers: cudaDataType_t, cusparseIndexType_t, pointer modes, cudssPhase_t.
_FLOAT, _DOUBLE, _INT32 = 0, 1, 10
_INDEX_32, _ON_DEVICE, _ROW_MAJOR = 2, 1, 2
_ANALYSIS, _FACTORIZATION, _REFACTORIZATION, _SOLVE = 3, 4, 8, 1008
_SIZE, _INT64, _POINTER, _INT = ctypes.c_size_t, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int

Call = Callable[[], object]


def _load(name: str) -> ctypes.CDLL:
    from atomr_native.builders.cuda.context import library_file  # type: ignore[import-untyped,unused-ignore]

    path = os.environ.get(f"ATOMR_NATIVE_{name.upper()}") or library_file(name)
    if not path:
        raise Unavailable(f"{name} is not installed")
    try:
        return ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise Unavailable(f"{name} does not load: {describe(error)}") from error


class Library(Driver):
    """Handles of the libraries in the primary context of a device; see `Driver`."""

    def __init__(self, ordinal: int) -> None:
        super().__init__(ordinal)
        self._opened: dict[str, tuple[ctypes.CDLL, ctypes.c_void_p]] = {}
        self._kept: list[Any] = []

    def _handle(self, name: str, prefix: str, suffix: str = "") -> tuple[ctypes.CDLL, ctypes.c_void_p]:
        if name not in self._opened:
            library, handle = _load(name), _POINTER()
            self._opened[name] = library, handle
            self._do(library, f"{prefix}Create{suffix}", ctypes.byref(handle))
            self._do(library, f"{prefix}SetStream{suffix}", handle, self._stream)
        return self._opened[name]

    def _number(self, value: float) -> Any:
        made = ctypes.c_float(value)
        self._kept.append(made)
        return ctypes.byref(made)

    def _csr(self, a: Any) -> tuple[ctypes.CDLL, ctypes.c_void_p, ctypes.c_void_p]:
        sparse, handle = self._handle("cusparse", "cusparse")
        made = _POINTER()
        rows, columns, nnz = (_INT64(extent) for extent in (*a.shape, a.nnz))
        parts = [self._put(part) for part in (a.indptr.astype("i4"), a.indices.astype("i4"), a.data.astype("f4"))]
        self._do(
            sparse, "cusparseCreateCsr", ctypes.byref(made), rows, columns, nnz, *parts, _INDEX_32, _INDEX_32, 0, _FLOAT
        )
        return sparse, handle, made

    def _vector(self, sparse: ctypes.CDLL, at: ctypes.c_void_p, n: int) -> ctypes.c_void_p:
        made = _POINTER()
        self._do(sparse, "cusparseCreateDnVec", ctypes.byref(made), _INT64(n), at, _FLOAT)
        return made

    def _spmv(self, a: Any, x: ctypes.c_void_p, y: ctypes.c_void_p) -> Call:
        sparse, handle, matrix = self._csr(a)
        size = _SIZE()
        parts = (self._vector(sparse, x, a.shape[1]), self._number(0.0), self._vector(sparse, y, a.shape[0]))
        given = (handle, 0, self._number(1.0), matrix, *parts, _FLOAT, 0)
        self._do(sparse, "cusparseSpMV_bufferSize", *given, ctypes.byref(size))
        return partial(sparse.cusparseSpMV, *given, self._memory(size.value))

    def _ones(self, *shape: int) -> ctypes.c_void_p:
        import numpy as np

        return self._put(np.ones(shape, np.float32))

    def spmv(self, a: Any) -> Call:
        """Return ``cusparseSpMV`` of a float32 CSR matrix of SciPy's."""
        return self._spmv(a, self._ones(a.shape[1]), self._ones(a.shape[0]))

    def sddmm(self, a: Any, inner: int) -> Call:
        """Return ``cusparseSDDMM`` into a float32 CSR matrix, of row-major matrices."""
        sparse, handle, matrix = self._csr(a)
        made = []
        for rows, columns in ((a.shape[0], inner), (inner, a.shape[1])):
            one = _POINTER()
            extents = (_INT64(rows), _INT64(columns), _INT64(columns))
            self._do(
                sparse, "cusparseCreateDnMat", ctypes.byref(one), *extents, self._ones(rows, columns), _FLOAT,
                _ROW_MAJOR,
            )  # fmt: skip
            made.append(one)
        size = _SIZE()
        given = (handle, 0, 0, self._number(1.0), *made, self._number(0.0), matrix, _FLOAT, 0)
        self._do(sparse, "cusparseSDDMM_bufferSize", *given, ctypes.byref(size))
        return partial(sparse.cusparseSDDMM, *given, self._memory(size.value))

    def copy(self, nbytes: int) -> Call:
        """Return a copy between two places of the device that reads and writes `nbytes` in all."""
        half = nbytes // 2
        return partial(
            self._driver.cuMemcpyDtoDAsync_v2, self._memory(half), self._memory(half), _SIZE(half), self._stream
        )

    def round(self, a: Any) -> Call:
        """Return the C calls of a round of conjugate gradients: a product, two ``dot``, three ``axpy`` and a ``scal``.

        Factors are on the device, and their quotients are left out.
        """
        n = a.shape[0]
        x, r, p, q = (self._ones(n) for _ in range(4))
        blas, handle = self._handle("cublas", "cublas", "_v2")
        self._do(blas, "cublasSetPointerMode_v2", handle, _ON_DEVICE)
        factor, result = self._ones(1), self._memory(16)
        import numpy as np

        small = self._put(np.zeros(4, np.float32))  # so that numbers stay as they are
        dot, axpy, scal = blas.cublasSdot_v2, blas.cublasSaxpy_v2, blas.cublasSscal_v2
        calls = (
            self._spmv(a, p, q),
            partial(dot, handle, n, p, 1, q, 1, result),
            partial(axpy, handle, n, small, p, 1, x, 1),
            partial(axpy, handle, n, small, q, 1, r, 1),
            partial(dot, handle, n, r, 1, r, 1, result),
            partial(scal, handle, n, factor, p, 1),
            partial(axpy, handle, n, small, r, 1, p, 1),
        )

        def round_() -> None:
            for call in calls:
                call()

        return round_

    def direct(self, a: Any) -> dict[str, Call]:
        """Return ``refactor`` and ``solve`` of a float64 CSR matrix by cuDSS, with its own memory."""
        import numpy as np

        _load("cublas")
        dss, handle = self._handle("cudss", "cudss")
        config, data, matrix, b, x = (_POINTER() for _ in range(5))
        self._do(dss, "cudssConfigCreate", ctypes.byref(config))
        self._do(dss, "cudssDataCreate", handle, ctypes.byref(data))
        n = _INT64(a.shape[0])
        offsets, indices, values = (self._put(part) for part in (a.indptr.astype("i4"), a.indices.astype("i4"), a.data))
        types = (_INT32, _INT32, _DOUBLE)
        self._do(
            dss, "cudssMatrixCreateCsr", ctypes.byref(matrix), n, n, _INT64(a.nnz), offsets, None, indices, values,
            *types, 0, 0, 0,
        )  # fmt: skip
        for one in (b, x):
            self._do(
                dss, "cudssMatrixCreateDn", ctypes.byref(one), n, _INT64(1), n, self._put(np.ones(a.shape[0])), _DOUBLE,
                0,
            )  # fmt: skip
        execute = dss.cudssExecute
        for phase in (_ANALYSIS, _FACTORIZATION):
            self._do(dss, "cudssExecute", handle, phase, config, data, matrix, x, b)
        return {
            "refactor": partial(execute, handle, _REFACTORIZATION, config, data, matrix, x, b),
            "solve": partial(execute, handle, _SOLVE, config, data, matrix, x, b),
        }
