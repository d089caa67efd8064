"""The kernel of a custom epilogue: a function of scalars, applied to a matrix of products.

Threads of a block are rows and columns of a tile.  Where every array lets them, a thread takes eight elements of a
row by accesses of 16 bytes; elsewhere one after the other, and neighbours neighbouring ones.
"""

from __future__ import annotations

import pickle
from typing import Any, Final

import numpy as np

from ....compile.numba.api import cuda, inlined
from ....compile.numba.device.elements import READERS, STORAGE, WRITERS
from ....compile.numba.device.intrinsics import address

__all__ = ["apply"]

Kernel = tuple[Any, tuple[str, ...]]

_EIGHT: Final = range(8)


@inlined
def _same(value: Any) -> Any:
    return value


def apply(function: bytes, kinds: tuple[str, ...], dtypes: tuple[str, ...], acc: str) -> Kernel:
    """Return the kernel.

    Its parameters: pointers to products, operands, D and aux; rows, columns, the extents of the inner two of three
    axes that rows are made of, whether strides allow wide accesses; and for each array its steps along those three
    axes and along columns.

    Parameters
    ----------
    function : bytes
        Pickled.
    kinds : tuple of str
        Of the operands: ``"matrix"``, ``"row"``, ``"column"``, ``"scalar"``.
    dtypes : tuple of str
        Of the arrays; one more than products, operands and D if the function has a second result.
    acc : str
        Dtype in which the function computes.
    """
    python = pickle.loads(function)  # noqa: S301 - made by this program
    results = len(dtypes) - len(kinds) - 1
    inputs = len(kinds) + 1
    names: dict[str, Any] = {
        "cuda": cuda,
        "address": address,
        "f": cuda.jit(device=True)(python),
        "kind": np.float32 if acc == "float32" else np.float64,
    }
    for i, dtype in enumerate(dtypes):
        reader, writer = (_same, None), (_same, None)
        if dtype != "float64":
            reader, writer = READERS[dtype], WRITERS[dtype]
        names |= {f"read{i}": reader[0], f"load{i}": reader[1]}
        names |= {f"bits{i}": writer[0], f"store{i}": writer[1]}
    text = _source(("matrix", *kinds), inputs, results, "float64" not in dtypes)
    exec(compile(text, "<epilogue>", "exec"), names)  # noqa: S102 - of the pieces below
    pointers = tuple(f"*{STORAGE.get(dtype, dtype)}" for dtype in dtypes)
    return names["apply"], (*pointers, *("int64",) * (5 + 4 * len(dtypes)))


def _source(kinds: tuple[str, ...], inputs: int, results: int, wide: bool) -> str:
    """Return the kernel's source; arrays are ``p0`` (products), operands, D, and aux."""
    arrays = range(inputs + results)
    steps = [f"s{i}_{axis}" for i in arrays for axis in range(4)]
    parameters = [*(f"p{i}" for i in arrays), "rows", "columns", "e1", "e2", "fast", *steps]
    lines = [f"def apply({', '.join(parameters)}):"]
    if wide:
        lines += [f"    fast = fast != 0 and address(p{i}) % 16 == 0" for i in arrays if i == 0 or i >= inputs]
        lines += [f"    fast = fast and address(p{i}) % 16 == 0" for i in range(1, inputs) if kinds[i] in _SPREAD]
    lines += [
        "    tx, dx = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x, cuda.blockDim.x * cuda.gridDim.x",
        "    ty, dy = cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y, cuda.blockDim.y * cuda.gridDim.y",
        "    for row in range(ty, rows, dy):",
        "        rest = row // e2",
        "        i0, i1, i2 = rest // e1, rest % e1, row % e2",
        *(f"        o{i} = i0 * s{i}_0 + i1 * s{i}_1 + i2 * s{i}_2" for i in arrays),
    ]
    indent = "        "
    if wide:
        lines += ["        if fast:", *(f"            {line}" for line in _eight(kinds, inputs, results))]
        lines += ["        else:"]
        indent += "    "
    return "\n".join([*lines, *(f"{indent}{line}" for line in _single(inputs, results))]) + "\n"


_SPREAD: Final = ("matrix", "row")


def _eight(kinds: tuple[str, ...], inputs: int, results: int) -> list[str]:
    """Return the statements for a row, eight elements at a time."""
    lines = [f"v{i} = kind(read{i}(p{i}[o{i}]))" for i in range(1, inputs) if kinds[i] not in _SPREAD]
    lines.append("for j in range(tx * 8, columns, dx * 8):")
    body = [f"v{i} = load{i}(p{i}, o{i} + j)" for i in range(inputs) if kinds[i] in _SPREAD]
    for q in _EIGHT:
        values = ", ".join(f"v{i}[{q}]" if kinds[i] in _SPREAD else f"v{i}" for i in range(inputs))
        body.append(f"{_results(results, q)} = f({values})")
    for k in range(results):
        values = ", ".join(f"kind(r{q}_{k})" for q in _EIGHT)
        i = inputs + k
        body.append(f"store{i}(p{i}, o{i} + j, ({values}))")
    return [*lines, *(f"    {line}" for line in body)]


def _single(inputs: int, results: int) -> list[str]:
    """Return the statements for a row, one element after the other."""
    values = ", ".join(f"kind(read{i}(p{i}[o{i} + j * s{i}_3]))" for i in range(inputs))
    lines = ["for j in range(tx, columns, dx):", f"    {_results(results, 0)} = f({values})"]
    for k in range(results):
        i = inputs + k
        lines.append(f"    p{i}[o{i} + j * s{i}_3] = bits{i}(kind(r0_{k}))")
    return lines


def _results(results: int, number: int) -> str:
    """Return what a call of the function is assigned to: it has to have as many results."""
    return ", ".join(f"r{number}_{k}" for k in range(results))
