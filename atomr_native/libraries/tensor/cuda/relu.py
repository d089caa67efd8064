"""Whether a ReLU of cuBLASLt keeps NaN.

The library does not say, and its kernels differ: some make 0 of NaN.  So each algorithm of a product runs once, on
scratch memory that is all NaN: those for operands at multiples of 256 and of 16 bytes, and for any.  Results are kept
on disk, as those of tuning are.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Any, Final

import numpy as np

from ...._lib import cublaslt
from ...._lib.cublaslt import Matmul
from ....builders.cuda.context import CudaContext, library_file
from ....builders.cuda.product import ProductDescription
from ....builders.cuda.sequence import SequenceProgram, Source, Step
from ....builders.cuda.trials import tried
from ....builders.cuda.tuner import gpu_of
from ....builders.cuda.workspace import padded
from ....dtypes import DTYPES, as_dtype
from ....errors import OutOfMemory
from ....plans.tuning import TuningKey, TuningStore, spec_digest
from .arrays import Array

__all__ = ["keeping_nan"]

_ONE: Final = int(np.float64(1).view(np.int64))
#: Bytes of NaN that come from the host; the others are copies of them on the device.
_TILE: Final = 1 << 20
#: Bytes by which operands are displaced, so that each algorithm has its turn, and the alignment for which it is; the
#: last is displaced by an element, for any.
_DISPLACED: Final = ((0, 256), (16, 16))
#: What is found out.
_ALIGNMENTS: Final = (0, 1, 16, 256)


def _reach(rows: int, columns: int, leading: int, batch: int, step: int) -> int:
    """Return the elements over which column-major matrices reach."""
    return (batch - 1) * step + (columns - 1) * leading + rows


def _operands(d: ProductDescription, arrays: tuple[Array, ...]) -> list[int]:
    """Return the bytes over which each operand of a product reaches."""
    shapes = [
        (d.k, d.m) if d.trans_a else (d.m, d.k),
        (d.n, d.k) if d.trans_b else (d.k, d.n),
        *((d.m, d.n),) * (len(arrays) - 2),
    ]
    leading = [d.ld_a, d.ld_b, d.ld_d, *(d.ld_c,) * (len(arrays) - 3)]
    steps = [d.step_a, d.step_b, d.step_d, *(d.step_c,) * (len(arrays) - 3)]
    reaches = [_reach(*shape, ld, d.batch, step) for shape, ld, step in zip(shapes, leading, steps, strict=True)]
    if d.bias >= 0:
        reaches[d.bias] = _reach(d.m, 1, 0, d.batch, d.step_bias)
    return [n * as_dtype(array.dtype).itemsize for n, array in zip(reaches, arrays, strict=True)]


def _fill(backend: Any, address: int, nbytes: int) -> None:
    """Set every bit, which is NaN in each floating dtype."""
    tile = np.full(min(nbytes, _TILE), 0xFF, np.uint8)
    backend.copy_now(address, tile.ctypes.data, tile.nbytes)
    done = tile.nbytes
    while done < nbytes:
        more = min(done, nbytes - done)
        backend.copy_now(address + done, address, more)
        done += more


def _all_nan(backend: Any, d: ProductDescription, dtype: str, address: int) -> bool:
    """Whether the first, middle and last column of the first and last result are NaN."""
    column = np.empty(d.m, DTYPES[dtype])
    for i in {0, d.batch - 1}:
        for j in {0, d.n // 2, d.n - 1}:
            at = address + (i * d.step_d + j * d.ld_d) * column.itemsize
            column.fill(0)
            backend.copy_now(column.ctypes.data, at, column.nbytes)
            if not np.isnan(column).all():
                return False
    return True


def _tried(context: CudaContext, native: Matmul, d: ProductDescription, arrays: tuple[Array, ...]) -> int:
    """Return the least alignment of operands from which on all algorithms of a product keep NaN, or 0.

    Raises
    ------
    OutOfMemory
        If there is no memory to try that in.
    """
    backend, dtype = context.backend, arrays[2].dtype
    nbytes = [padded(n + _DISPLACED[-1][0]) for n in _operands(d, arrays)]
    own = padded(native.workspace)
    read = max(n for i, n in enumerate(nbytes) if i != d.d)  # of which all operands have the same NaN
    sources: tuple[Source, ...] = tuple(("operand", i) for i in range(d.n_operands))
    scalars: tuple[Source, ...] = tuple(("constant", _ONE if j == d.alpha else 0) for j in range(d.n_scalars))
    run = backend.prepare(SequenceProgram((Step(native, sources, scalars),), native.workspace))
    total = own + read + nbytes[d.d]
    address = backend.allocate(total)
    try:
        _fill(backend, address + own, read)
        kept = 0
        for displaced, alignment in (*_DISPLACED, (as_dtype(dtype).itemsize, 1)):
            a, result = address + own + displaced, address + own + read + displaced
            places = [result if i == d.d else a for i in range(d.n_operands)]
            measure = partial(backend.measure, run, places, 1, 1, address if own else 0, native.workspace)
            # Messages that lie as operands do which it refuses are refused, too.
            refused = tried(measure) is None
            if (refused and not kept) or not (refused or _all_nan(backend, d, dtype, result)):
                break
            kept = alignment
        return kept
    finally:
        backend.free(address, total)


def keeping_nan(context: CudaContext, native: Matmul, d: ProductDescription, arrays: tuple[Array, ...]) -> int:
    """Return the alignment that operands of a product need for a ReLU that keeps NaN; 0 if that is unknown, or none.

    Products with operands of another alignment have other algorithms.  Waits for a run of each, unless it is known.

    Parameters
    ----------
    context : CudaContext
    native : Matmul
        The product, with a ReLU in its epilogue.
    d : ProductDescription
        Its description.
    arrays : tuple of Array
        Its operands.
    """
    version = cublaslt.load(library_file("cublasLt"))
    digest = spec_digest([[str(array.dtype) for array in arrays], list(d.fields().values())])
    key = TuningKey("cublaslt", version, gpu_of(context.facts), "tensor.relu_of_nan", digest)
    store = TuningStore()
    known = store.find(key)
    if known in _ALIGNMENTS:
        return int(known)
    try:
        found = _tried(context, native, d, arrays)
    except OutOfMemory:
        return 0
    with contextlib.suppress(OSError):  # else the next plan tries it again
        store.keep(key, found)
    return found
