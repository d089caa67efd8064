"""Functions of elements in CUDA C++, inside transforms on GPUs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from ..._support.public import public
from ...errors import InvalidRequest

__all__ = ["CudaFunction"]

_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_TAKEN: Final = ("x", "out")


@public
@dataclass(frozen=True, slots=True)
class CudaFunction:
    """A function in CUDA C++ for `load` or `store` of a transform on a GPU.

    The function is called as ``name(value, offset, ...)``.  A value is ``float``, ``double``, ``float2`` or
    ``double2``, as the transform computes; the offset is ``long long``.  Operands are of the same types, integers
    ``long long``.  On load the function returns the number that is transformed, on store a real or complex number for
    `out`, in the transform's precision.  cuFFT links it into its kernels where it can.

    Parameters
    ----------
    source : str
        CUDA C++ that defines the function with ``__device__``.  It includes no headers but NVRTC's own.
    name : str
        The function's name there.
    operands : tuple of str
        Names of the function's operands, in the order of its parameters after value and offset.

    Raises
    ------
    InvalidRequest
        For names that are no identifiers, are there twice, or are ``x`` or ``out``.

    Examples
    --------
    >>> an.CudaFunction("__device__ float2 damped(float2 v, long long i, float k) {"
    ...                 " v.x *= k; v.y *= k; return v; }", "damped", ("k",)).operands
    ('k',)
    """

    source: str
    name: str
    operands: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.source, str) or "\0" in self.source:
            raise InvalidRequest(f"source={self.source!r:.200}; allowed: CUDA C++, as text without NUL characters")
        given: Any = self.operands
        operands = tuple(given) if isinstance(given, list) else given
        if not isinstance(operands, tuple):
            raise InvalidRequest(f"operands={operands!r}; allowed: a tuple of names")
        object.__setattr__(self, "operands", operands)
        for name in (self.name, *operands):
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                raise InvalidRequest(f"{name!r} in name={self.name!r}, operands={operands!r}; allowed: identifiers")
        wrong = [n for i, n in enumerate(operands) if n in _TAKEN or n in operands[:i]]
        if wrong:
            raise InvalidRequest(f"operand {wrong[0]} of {self.name}; allowed: different names other than x and out")

    @property
    def names(self) -> tuple[str, ...]:
        """The operands."""
        return self.operands
