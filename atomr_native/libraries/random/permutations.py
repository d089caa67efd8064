"""Requests of the random actor for permutations, and for arrays in a random order."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..._support.checks import as_integer
from ..._support.public import public
from ...arrays.operands import check_input, is_contiguous
from ...compile.shipped import Part
from ...dtypes import as_dtype, dtype_name
from ...errors import InvalidRequest
from ...plans.lowering import Lowered, Operand, Request, Scalar, ShippedKernels, read
from .attributes import PermuteAttributes
from .kernels.permutation import FEW
from .kernels.positions import INTEGERS
from .operands import check_range, output
from .spec import check_counters

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef  # noqa: F401 - the result of requests

__all__ = ["PermutationRequest", "ShuffleRequest"]

_MOST: Final = 2**53


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class PermutationRequest(Request["GpuRef"]):
    """The numbers from 0 to n - 1 in a random order, checked when it is made.

    Parameters
    ----------
    n : int
        From 0 to 2**53.
    dtype : dtype, optional
        An integer that holds n - 1; int64, or that of `out`, by default.
    seed, stream, offset
        As of `RandomRequest`; the permutation takes n positions.
    out : array, optional
        Where the numbers go, of shape (n,); allocated if missing.

    Raises
    ------
    InvalidRequest
        For what cannot work; the message names the value and the allowed ones.

    Examples
    --------
    >>> request = an.PermutationRequest(n=5, seed=7)
    >>> sorted(device.random.tell(request).numpy().tolist())
    [0, 1, 2, 3, 4]
    """

    n: int
    dtype: Any = None
    seed: int
    stream: int = 0
    offset: Any = 0
    out: Any = None

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        n = as_integer("n", self.n, 0, _MOST)
        given = self.dtype if self.dtype is not None else getattr(self.out, "dtype", "int64")
        dtype = dtype_name(as_dtype(given))
        if dtype not in INTEGERS or n > np.iinfo(dtype).max + 1:
            held = [name for name in INTEGERS if n <= np.iinfo(name).max + 1]
            raise InvalidRequest(f"dtype {dtype} of a permutation of {n} numbers; allowed: {', '.join(held)}")
        return _lowered(self, n, [], dtype, (n,))


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class ShuffleRequest(Request["GpuRef"]):
    """An array's rows, along its first axis, in a random order; checked when it is made.

    Row i of the result is that of the number at i of the `PermutationRequest` with the same seed, stream and offset.

    Parameters
    ----------
    x : array
        Contiguous, of any dtype and one axis at least.
    seed, stream, offset
        As of `RandomRequest`; the order takes as many positions as there are rows.
    out : array, optional
        Where the result goes, contiguous, and apart from x; allocated if missing.

    Raises
    ------
    InvalidRequest
        For what cannot work; the message names the value and the allowed ones.

    Examples
    --------
    >>> x = device.put(np.arange(6).reshape(3, 2))
    >>> sorted(device.random.tell(an.ShuffleRequest(x=x, seed=7)).numpy().tolist())
    [[0, 1], [2, 3], [4, 5]]
    """

    x: Any
    seed: int
    stream: int = 0
    offset: Any = 0
    out: Any = None

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        shape = tuple(check_input("x", self.x).shape)
        for name, array in (("x", self.x), ("out", self.out)):
            if array is not None and (not array.shape or not is_contiguous(array)):
                raise InvalidRequest(
                    f"{name} has shape {tuple(array.shape)} and strides {tuple(array.strides)}; allowed: a contiguous "
                    f"array of one axis at least"
                )
        return _lowered(self, shape[0], [read("x", self.x)], dtype_name(as_dtype(self.x.dtype)), shape)


def _lowered(
    request: PermutationRequest | ShuffleRequest, n: int, inputs: list[Operand], dtype: str, shape: tuple[int, ...]
) -> Lowered:
    counters, start = check_range(request.seed, request.stream, request.offset, n)
    inputs = [*inputs, *start]
    scalars = zip(counters, check_counters(n, *counters.values()), strict=True)
    given, moves = ("given", bool(start)), isinstance(request, ShuffleRequest)
    item = ("itemsize", min(8, as_dtype(dtype).itemsize))
    parts: tuple[Part, ...]
    if n > FEW:
        parts = (Part("move_many", (item, given)) if moves else Part("many", (("dtype", dtype), given)),)
    else:
        parts = (Part("few", (("dtype", "int64" if moves else dtype), given)),)
        parts += (Part("gather", (item,)),) if moves else ()
    return Lowered(
        op="random.permute",
        operands=(*inputs, output(request.out, dtype, shape, inputs)),
        collect=itemgetter("out"),
        attributes=PermuteAttributes(),
        scalars=tuple(Scalar(name, "int64", value) for name, value in scalars),
        numbers=tuple(counters),
        convert=partial(check_counters, n),
        code=ShippedKernels("random.permute", parts),
    )
