"""Which element types tensors have, and in what they are computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from ...dtypes import DTYPES, as_dtype, dtype_name
from ...errors import InvalidRequest

__all__ = [
    "COMPUTE",
    "EIGHT",
    "EMULATED",
    "NARROW",
    "SCALE",
    "accumulator",
    "common_dtype",
    "compute_mode",
    "result_dtype",
]

#: Floating types that are computed in float32.
NARROW: Final = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
#: Compute modes by the dtype that operands have in common; the first is the default.
COMPUTE: Final[dict[str, tuple[str, ...]]] = {
    "float64": ("float64", "8xint8"),
    "float32": ("float32", "tf32", "bfloat16", "float16", "3xtf32", "9xbf16"),
    **dict.fromkeys(NARROW, ("float32",)),
    "complex64": ("complex64", "tf32", "3xtf32", "9xbf16"),
    "complex128": ("complex128", "8xint8"),
}
#: Products of two float8 tensors by the tensor cores of float8, which cuBLASLt alone has.
EIGHT: Final = "float8"
#: Those that cuTENSOR alone has here.
EMULATED: Final = ("3xtf32", "9xbf16", "8xint8")
#: The dtype of alpha and beta, by the dtype that operands have in common.
SCALE: Final[dict[str, str]] = {
    **dict.fromkeys((*NARROW, "float32"), "float32"),
    **{name: name for name in ("float64", "complex64", "complex128")},
}


def common_dtype(arrays: Sequence[Any]) -> str:
    """Return the dtype in which operands meet: NumPy's promotion, and float32 for two different narrow floats."""
    names = {dtype_name(as_dtype(array.dtype)) for array in arrays}
    narrow = names & set(NARROW)
    if not narrow or len(names) == 1:
        return dtype_name(as_dtype(np.result_type(*(DTYPES[name] for name in names))))
    found = np.result_type(*(DTYPES["float32" if name in narrow else name] for name in names))
    if len(narrow) == 1 and found == np.float32 and all(DTYPES[name].kind in "biu" for name in names - narrow):
        return narrow.pop()  # integers do not widen it, as an array of float32 would not be widened
    return dtype_name(as_dtype(found))


def accumulator(dtype: str) -> str:
    """Return the dtype in which values of a dtype are summed: that of its kernels."""
    if dtype in NARROW:
        return "float32"
    return {"b": "bool", "i": "int64", "u": "uint64"}.get(DTYPES[dtype].kind, dtype)


def result_dtype(wanted: object, common: str, name: str = "out_dtype") -> np.dtype[Any]:
    """Return the dtype of a result: as wanted, by default the operands', and float32 for 8-bit floats.

    Raises
    ------
    InvalidRequest
        If the result would lose its imaginary part, or its fraction.
    """
    if wanted is None:
        return DTYPES["float32" if common.startswith("float8") else common]
    found = as_dtype(wanted)
    order = {"b": 0, "u": 1, "i": 1, "f": 2, "V": 2, "c": 3}
    if order[found.kind] < order[DTYPES[common].kind]:
        allowed = [given for given, dtype in DTYPES.items() if order[dtype.kind] >= order[DTYPES[common].kind]]
        raise InvalidRequest(f"{name} is {dtype_name(found)} with operands of {common}; allowed: {', '.join(allowed)}")
    return found


def compute_mode(wanted: object, common: str, arrays: Sequence[Any] = ()) -> str:
    """Return how products are computed.

    Parameters
    ----------
    wanted
        The mode, or None.
    common : str
        The dtype in which operands meet.
    arrays
        The operands; two of float8 have a mode of their own.

    Raises
    ------
    InvalidRequest
        For a mode that operands of this dtype do not have.
    """
    allowed = COMPUTE.get(common, (accumulator(common),))
    names = [dtype_name(as_dtype(array.dtype)) for array in arrays]
    if len(names) == 2 and all(name.startswith(EIGHT) for name in names) and set(names) != {"float8_e5m2"}:
        allowed += (EIGHT,)
    if wanted is None:
        return allowed[0]
    if not isinstance(wanted, str) or wanted not in allowed:
        raise InvalidRequest(f"compute={wanted!r} with operands of {common}; allowed: {', '.join(allowed)}")
    return wanted
