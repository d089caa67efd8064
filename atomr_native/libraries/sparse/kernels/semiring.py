"""The kernel of products with a csr matrix whose operations are functions of the user's.

A team of threads adds up an element of the result, in an order that depends on the size of teams alone.
"""

from __future__ import annotations

import pickle
from typing import Any, Final

import numpy as np

from ....compile.numba.api import cuda, inlined
from ....compile.numba.device.elements import NARROW, READERS, STORAGE, WRITERS

__all__ = ["THREADS", "products"]

Kernel = tuple[Any, tuple[str, ...]]

#: Threads of a block.
THREADS: Final = 256


@inlined
def _same(value: Any) -> Any:
    return value


def products(multiply: bytes, add: bytes, on_sum: bytes, dtypes: tuple[str, ...], index: str, compute: str) -> Kernel:
    """Return the kernel.

    Its parameters: pointers to values, indices, offsets, x and out; threads of a team; rows and columns of out, stored
    elements, rows of x; the bits of the sum of nothing; steps of x and of out along rows and columns.

    Parameters
    ----------
    multiply, add, on_sum : bytes
        Functions, pickled.
    dtypes : tuple of str
        Of values, x and out.
    index : str
        Dtype of indices and offsets.
    compute : str
        Type that the functions get.
    """
    product, total, end = (
        cuda.jit(device=True)(pickle.loads(one))  # noqa: S301 - made by this program
        for one in (multiply, add, on_sum)
    )
    real = np.dtype(compute).type
    read_value, read_x = (READERS[d][0] if d in NARROW else _same for d in dtypes[:2])
    bits = WRITERS[dtypes[2]][0] if dtypes[2] in NARROW else _same

    def products(
        values: Any, indices: Any, offsets: Any, x: Any, out: Any, team: Any, rows: Any, columns: Any, stored: Any,
        inner: Any, start: Any, x_row: Any, x_column: Any, out_row: Any, out_column: Any,
    ) -> None:  # fmt: skip
        parts = cuda.shared.array(THREADS, real)
        thread = cuda.threadIdx.x
        lane, place, teams = thread % team, thread // team, cuda.blockDim.x // team
        first = cuda.blockIdx.x * teams
        while first < rows * columns:
            item = first + place
            sums = real(start)
            row, column = item // columns, item % columns
            if row < rows:
                begin, behind = max(offsets[row], 0), min(offsets[row + 1], stored)
                for p in range(begin + lane, behind, team):
                    c = indices[p]
                    if c >= 0 and c < inner:
                        term = product(real(read_value(values[p])), real(read_x(x[c * x_row + column * x_column])))
                        sums = real(total(sums, real(term)))
            parts[thread] = sums
            cuda.syncthreads()
            half = team // 2
            while half > 0:
                if lane < half:
                    parts[thread] = real(total(parts[thread], parts[thread + half]))
                cuda.syncthreads()
                half = half // 2
            if row < rows and lane == 0:
                out[row * out_row + column * out_column] = bits(real(end(parts[thread])))
            first += cuda.gridDim.x * teams

    pointers = (dtypes[0], index, index, dtypes[1], dtypes[2])
    types = tuple(f"*{STORAGE[d] if d in NARROW else d}" for d in pointers)
    return products, (*types, *("int64",) * 5, "float64", *("int64",) * 4)
