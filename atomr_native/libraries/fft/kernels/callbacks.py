"""Functions of the user's as cuFFT calls them, for one element each: in Numba, without the library's own interface.

Layouts are constants of the code: the functions divide by extents.
"""

from __future__ import annotations

import math
import pickle
from typing import Any, Final

import numpy as np

from ....compile.numba.api import cuda, inlined
from ....compile.numba.device.elements import NARROW, READERS, STORAGE, WRITERS
from ....compile.numba.device.intrinsics import bits_of, float_of
from ..fusion import Elements, is_order

__all__ = ["body"]

#: Places in dense arrays of less elements, and in any: with these bits a compiler divides unsigned integers.
_SMALL: Final = (1 << 32) - 1
_POSITIVE: Final = (1 << 63) - 1


@inlined
def _same(value: Any) -> Any:
    return value


@inlined
def _truth(value: Any) -> Any:
    return value != 0


@inlined
def _whole(word: Any) -> Any:
    return complex(float_of(np.uint32(word & 0xFFFFFFFF)), float_of(np.uint32(word >> 32)))


@inlined
def _word(value: Any) -> Any:
    value = np.complex64(value)
    return np.int64(bits_of(value.real)) | np.int64(bits_of(value.imag)) << 32


def body(
    which: str,
    function: bytes,
    dtypes: tuple[str, ...],
    kinds: tuple[str, ...],
    scalars: tuple[str, ...],
    order: tuple[int, ...],
    elements: Elements,
    scale: float,
    aligned: bool,
) -> tuple[Any, tuple[str, ...]]:
    """Return the function of an element, and the types of its parameters.

    They are: pointers to x or out and to operands; numbers; the element's place in the dense array; then for
    ``"load"`` pointers to the parts of the result, for ``"store"`` the parts of the value.

    Parameters
    ----------
    which : str
        ``"load"`` or ``"store"``.
    function, dtypes, kinds, scalars, order
        As `atomr_native.libraries.fft.kernels.functions.load` has them.
    elements : Elements
    scale : float
        As of `atomr_native.libraries.fft.fusion.scale_of`.
    aligned : bool
        Whether complex numbers of x or out start at multiples of their size.
    """
    python = pickle.loads(function)  # noqa: S301 - made by this program
    loads = which == "load"
    own = dtypes[0 if loads else 1]
    dense = kinds[1 if loads else 0]  # result of a function on load, value of one on store
    real = "float64" if dense in ("float64", "complex128") else "float32"
    words = own == "complex64" and aligned
    names: dict[str, Any] = {"f": cuda.jit(device=True)(python), "int64": np.int64, "int32": np.int32}
    names |= {"real": np.dtype(real).type, "scale": np.dtype(real).type(scale)}
    names |= {"value_kind": np.dtype(kinds[0]).type, "result_kind": np.dtype(kinds[1]).type}
    arrays = [own, *dtypes[2:]]
    for i, dtype in enumerate(arrays):
        names[f"kind{i}"] = np.dtype(kinds[0] if i == 0 else kinds[i + 1]).type
        names[f"read{i}"] = READERS[dtype][0] if dtype in NARROW else _truth if dtype == "bool" else _same
    if words:
        names["read0"] = _whole
    names["bits"] = WRITERS[own][0] if own in NARROW else _word if words else _same
    source = _source(loads, len(arrays), scalars, order, elements, dense, scale)
    exec(compile(source, f"<{which}>", "exec"), names)  # noqa: S102 - of the pieces below
    pointers = [f"*{STORAGE[d] if d in NARROW else 'uint8' if d == 'bool' else d}" for d in arrays]
    if words:
        pointers[0] = "*int64"
    parts = 2 if dense.startswith("complex") else 1
    ends = [f"{'*' if loads else ''}{real}"] * parts
    return names[which], (*pointers, *scalars, "int64", *ends)


def _source(
    loads: bool,
    count: int,
    scalars: tuple[str, ...],
    order: tuple[int, ...],
    elements: Elements,
    dtype: str,
    scale: float,
) -> str:
    """Return the source; arrays are ``p0`` (x or out) and operands, numbers ``v0``, ..."""
    numbers = [f"v{j}" for j in range(len(scalars))]
    parts = ["re", "im"] if dtype.startswith("complex") else ["re"]
    name = "load" if loads else "store"
    lines = [f"def {name}({', '.join([*(f'p{i}' for i in range(count)), *numbers, 'place', *parts])}):"]
    bits = _SMALL if math.prod(elements.extents) <= _SMALL else _POSITIVE
    lines += ["    whole = int64(place)", f"    rest = whole & {bits}"]
    terms: dict[str, list[str]] = {what: [] for what in ("offset", *(f"o{i}" for i in range(count)))}
    inside = []
    axes = len(elements.extents)
    for axis in range(axes - 1, -1, -1):
        n = elements.extents[axis]
        lines.append(f"    i{axis} = rest{f' % {n}' if axis else ''}")
        lines += [f"    rest = rest // {n}"] if axis else []
        if elements.bounds[axis] < n:
            inside.append(f"i{axis} < {elements.bounds[axis]}")
        for what, steps in zip(terms, (elements.flat, elements.own, *elements.others), strict=True):
            if steps[axis]:
                terms[what].append(f"i{axis}{f' * {steps[axis]}' if steps[axis] != 1 else ''}")
    dense = {
        what: is_order(elements.extents, steps)
        for what, steps in zip(terms, (elements.flat, elements.own, *elements.others), strict=True)
    }
    lines += [
        f"    {what} = {'whole' if dense[what] else ' + '.join(found) or 'int64(0)'}" for what, found in terms.items()
    ]
    given = [f"kind{i}(read{i}(p{i}[o{i}]))" for i in range(1, count)]
    given += [f"real({n})" if kind == "float64" else n for n, kind in zip(numbers, scalars, strict=True)]
    factor = " * scale" if scale != 1 else ""
    value = "kind0(read0(p0[o0]))" if loads else f"value_kind({'complex(re, im)' if len(parts) == 2 else 're'}){factor}"
    call = f"f({', '.join([value, 'offset', *(given[place] for place in order)])})"
    if not loads:
        return "\n".join([*lines, f"    p0[o0] = bits(result_kind({call}))", "    return int32(0)"]) + "\n"
    made = f"result_kind({call}){factor}"
    lines.append(f"    made = {made}" if not inside else f"    made = result_kind(0)\n    if {' and '.join(inside)}:")
    lines += [f"        made = {made}"] if inside else []
    stored = [f"    {part}[0] = made{attribute}" for part, attribute in zip(parts, (".real", ".imag"), strict=False)]
    stored = stored if len(parts) == 2 else ["    re[0] = made"]
    return "\n".join([*lines, *stored, "    return int32(0)"]) + "\n"
