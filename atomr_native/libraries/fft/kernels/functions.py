"""Kernels that apply a function of the user's to each element before a transform, or after it.

A thread visits elements of the target one after the other.  Axes are numbers of the launch, the last `axes` of `AXES`.
"""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np

from ....compile.numba.api import cuda, inlined
from ....compile.numba.device.elements import NARROW, READERS, STORAGE, WRITERS
from .axes import AXES

__all__ = ["load", "store"]

Kernel = tuple[Any, tuple[str, ...]]


@inlined
def _same(value: Any) -> Any:
    return value


@inlined
def _truth(value: Any) -> Any:
    return value != 0


def load(
    function: bytes, dtypes: tuple[str, ...], kinds: tuple[str, ...], scalars: tuple[str, ...], order: tuple[int, ...]
) -> Kernel:
    """Return the kernel before a transform.

    Its parameters: pointers to source, target and operands; numbers; elements of the target, axes, whether the source
    ends before the target does, and a factor of what is stored; then for each axis extents of target and source, and
    the steps of the flat offset, of source, target and operands.

    Parameters
    ----------
    function : bytes
        Pickled.
    dtypes : tuple of str
        Of source, target and operands.
    kinds : tuple of str
        Types that the function gets of source and operands, and that its result has: source, result, operands.
    scalars : tuple of str
        ``"float64"`` or ``"int64"`` for each number.
    order : tuple of int
        Which of operands and numbers is each parameter of the function after the first two.
    """
    return _kernel("load", function, dtypes, kinds, scalars, order)


def store(
    function: bytes, dtypes: tuple[str, ...], kinds: tuple[str, ...], scalars: tuple[str, ...], order: tuple[int, ...]
) -> Kernel:
    """Return the kernel after a transform, which multiplies by the factor first; otherwise as `load`."""
    return _kernel("store", function, dtypes, kinds, scalars, order)


def _kernel(
    name: str,
    function: bytes,
    dtypes: tuple[str, ...],
    kinds: tuple[str, ...],
    scalars: tuple[str, ...],
    order: tuple[int, ...],
) -> Kernel:
    python = pickle.loads(function)  # noqa: S301 - made by this program
    arrays = range(len(dtypes))
    real = np.float64 if kinds[0] in ("float64", "complex128") else np.float32
    names: dict[str, Any] = {"cuda": cuda, "f": cuda.jit(device=True)(python), "real": real}
    for i, dtype in enumerate(dtypes):
        names[f"kind{i}"] = np.dtype(kinds[i]).type
        names[f"read{i}"] = READERS[dtype][0] if dtype in NARROW else _truth if dtype == "bool" else _same
    names["bits"] = WRITERS[dtypes[1]][0] if dtypes[1] in NARROW else _same
    exec(compile(_source(name, arrays, scalars, order), f"<{name}>", "exec"), names)  # noqa: S102 - of the pieces below
    pointers = tuple(f"*{STORAGE[d] if d in NARROW else 'uint8' if d == 'bool' else d}" for d in dtypes)
    return names[name], (*pointers, *scalars, *("int64",) * 3, "float64", *("int64",) * (AXES * (3 + len(dtypes))))


def _source(name: str, arrays: range, scalars: tuple[str, ...], order: tuple[int, ...]) -> str:
    """Return the kernel's source; arrays are ``p0`` (source), ``p1`` (target) and operands, numbers ``v0``, ..."""
    steps = [f"{what}_{axis}" for what in ("n", "m", "flat", *(f"s{i}" for i in arrays)) for axis in range(AXES)]
    numbers = [f"v{j}" for j in range(len(scalars))]
    parameters = [*(f"p{i}" for i in arrays), *numbers, "total", "axes", "padded", "factor", *steps]
    lines = [
        f"def {name}({', '.join(parameters)}):",
        "    scale = real(factor)",
        "    for i in range(cuda.grid(1), total, cuda.gridsize(1)):",
        "        rest = i",
        "        inside = True",
        "        offset = 0",
        *(f"        o{i} = 0" for i in arrays),
    ]
    for axis in range(AXES - 1, -1, -1):
        lines += [
            f"        if axes > {AXES - 1 - axis}:",
            f"            at = rest % n_{axis}",
            f"            rest = rest // n_{axis}",
            f"            inside = inside and at < m_{axis}",
            f"            offset += at * flat_{axis}",
            *(f"            o{i} += at * s{i}_{axis}" for i in arrays),
        ]
    given = [f"kind{i}(read{i}(p{i}[o{i}]))" for i in arrays if i > 1]
    given += [f"real({n})" if kind == "float64" else n for n, kind in zip(numbers, scalars, strict=True)]
    before, after = ("", " * scale") if name == "load" else (" * scale", "")
    call = f"f({', '.join([f'kind0(read0(p0[o0])){before}', 'offset', *(given[place] for place in order)])})"
    lines += [
        "        if inside or padded == 0:",
        f"            p1[o1] = bits(kind1({call}){after})",
        "        else:",
        "            p1[o1] = kind1(0)",
    ]
    return "\n".join(lines) + "\n"
