"""Requests about matrices with two numbers in each four: prune, look for others, compress, multiply."""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ...._support.checks import check_choice
from ...._support.public import public
from ....arrays.operands import Fresh, check_input
from ....dtypes import as_dtype, dtype_name
from ....errors import InvalidRequest
from ....plans.calls import form_of
from ....plans.lowering import Lowered, Request, read, written
from ..._factors import FACTORS, factor_scalars
from ..attributes import PruneAttributes, StructuredAttributes
from ..spec import check_out
from .matrix import check_extents, compressed_bytes
from .patterns import GROUP
from .spec import METHODS, PRUNED, resolve

if TYPE_CHECKING:
    from ....arrays.gpu_ref import GpuRef  # noqa: F401  (named by the base class)

__all__ = [
    "BROKEN", "COMPRESS", "LINEAR", "PRUNE", "BrokenGroupsRequest", "StructuredCompressRequest",
    "StructuredProductRequest", "StructuredPruneRequest",
]  # fmt: skip


def _dense(name: str, array: Any, tiles: bool = False) -> tuple[int, int]:
    shape = tuple(check_input(name, array).shape)
    if len(shape) != 2:
        raise InvalidRequest(f"{name} has shape {shape}; allowed: two axes")
    kind = dtype_name(as_dtype(array.dtype))
    if kind not in PRUNED:
        raise InvalidRequest(f"{name} has dtype {kind}; allowed: {', '.join(PRUNED)}")
    rows, columns = shape
    if columns % GROUP or (tiles and rows % GROUP):
        wanted = f"multiples of {GROUP} rows and columns" if tiles else f"a multiple of {GROUP} columns"
        raise InvalidRequest(f"{name} has shape {shape}; allowed: {wanted}; pad with zeros")
    return rows, columns


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class StructuredPruneRequest(Request["GpuRef"]):
    """A matrix of which two numbers in each four of a row are kept, and the others are 0; checked when it is made.

    Parameters
    ----------
    x
        A matrix of int8, float8_e4m3fn, float8_e5m2, float16, bfloat16 or float32, with any strides of 0 or more; the
        number of columns is a multiple of 4.
    out
        The result, of x's shape and dtype; allocated if missing.
    method : str
        ``"strip"``: the two of largest magnitude; of equal ones those that come first.  ``"tile"``: two of each row and
        each column of every 4 x 4 tile, so that the transpose has two in each four, too; those with the largest sum of
        magnitudes.  The number of rows is a multiple of 4 then.

    Raises
    ------
    InvalidRequest
        For invalid values; the message names the value and the allowed ones.

    Notes
    -----
    A NaN has the magnitude of an infinity, so it is kept.  Every device gives equal bits.

    Examples
    --------
    >>> x = device.put(np.array([[1.0, -4.0, 2.0, 3.0]], "float32"))
    >>> device.sparse.tell(an.StructuredPruneRequest(x=x)).numpy()
    array([[ 0., -4.,  0.,  3.]], dtype=float32)
    """

    x: Any
    out: Any = None
    method: str = "strip"

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        check_choice("method", self.method, METHODS)
        shape = _dense("x", self.x, self.method == "tile")
        out = check_out(self, shape, [as_dtype(self.x.dtype)], ("x",))
        return Lowered(
            op="sparse.prune_24",
            operands=(read("x", self.x), written("out", self.out, out)),
            collect=itemgetter("out"),
            attributes=PruneAttributes(method=self.method),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenGroupsRequest(Request[Any]):
    """Which fours of neighbours in a row have more than two numbers that differ from 0: 1, else 0, of uint8.

    Parameters
    ----------
    x : (rows, columns)
    out : (rows, columns / 4), optional
    """

    x: Any
    out: Any = None

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        rows, columns = _dense("x", self.x)
        out = check_out(self, (rows, columns // GROUP), [np.dtype(np.uint8)], ("x",))
        return Lowered(
            op="sparse.broken_24",
            operands=(read("x", self.x), written("out", self.out, out)),
            collect=itemgetter("out"),
            attributes=PruneAttributes(method="strip"),
        )


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class StructuredCompressRequest(Request["GpuRef"]):
    """The compressed memory of a matrix with two numbers in each four of a row, checked when it is made.

    Parameters
    ----------
    x
        The matrix; int8, float8_e4m3fn, float8_e5m2, float16 or bfloat16; its rows without gaps, with a step of a
        multiple of 16 bytes.  Extents are multiples of 16 for 16-bit dtypes, of 32 for 8-bit ones.
    out
        uint8, as long as `StructuredMatrix` wants it; allocated if missing.

    Raises
    ------
    InvalidRequest
        For invalid values; the message names the value and the allowed ones.

    Notes
    -----
    Of more than two numbers in a four, it is undefined which are kept; `Sparse.check_24` finds such fours.

    Examples
    --------
    >>> x = device.sparse.prune_24(device.put(np.ones((32, 32), "float16")))
    >>> device.sparse.tell(an.StructuredCompressRequest(x=x)).dtype
    dtype('uint8')
    """

    x: Any
    out: Any = None

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        x = check_input("x", self.x)
        dtype = as_dtype(x.dtype)
        shape = check_extents(tuple(x.shape), dtype_name(dtype))
        step, inner = x.strides
        if inner != dtype.itemsize or step < shape[1] * dtype.itemsize or step % 32:
            raise InvalidRequest(
                f"x has strides {tuple(x.strides)}; allowed: rows without gaps, and a multiple of 32 bytes from one to "
                f"the next; device.copy makes them"
            )
        out = check_out(self, (compressed_bytes(shape, dtype_name(dtype)),), [np.dtype(np.uint8)], ("x",))
        return Lowered(
            op="sparse.compress_24",
            operands=(read("x", x), written("out", self.out, out)),
            collect=itemgetter("out"),
        )


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class StructuredProductRequest(Request["GpuRef"]):
    """``act(alpha x A.T + beta out + bias)`` with a compressed matrix A, as of a linear layer; checked when it is made.

    Parameters
    ----------
    compressed, shape, dtype
        As `StructuredMatrix` has them; A is (m, k).
    x
        (n, k) of A's dtype.  Its rows are without gaps; of 16-bit dtypes its columns may be, instead.  n, and the step
        from one row to the next, are multiples of 16 bytes of elements.
    out
        (n, m), with rows or columns without gaps; allocated if missing.
    out_dtype : str, optional
        Of a new array: of 16-bit dtypes theirs; of int8 ``"int32"`` (the default), ``"int8"``, ``"float16"`` or
        ``"bfloat16"``; of 8-bit floats ``"bfloat16"`` (the default), ``"float16"`` or ``"float32"``.
    bias : optional
        (m,) of the dtype of out; of float32 for int8.
    activation : str
        ``"none"``, ``"relu"`` or ``"gelu"``, the form with tanh, of floating results.
    alpha, beta : number
        They travel with the message.  Whether `beta` is 0 belongs to the plan, and ``beta=0`` never reads out.
    row_alpha, row_beta : optional
        (m,) of float32: a factor more for each row of A, which is a column of out.
    scale_a, scale_x : optional
        Factors of A and x, of float32: one element each, or for A (m,).
    tune : bool or str
        True: the algorithms of the library are measured, unless they were before; ``"known"``: only results that are
        known are used.

    Raises
    ------
    InvalidRequest
        For invalid or unsupported values; the message names the value and the allowed ones.

    Notes
    -----
    Sums are float32 of floats and int32 of int8.  Integers are rounded to nearest, and saturate.  With
    ``activation="gelu"`` a GPU rounds to the dtype of out before and after it.

    Examples
    --------
    >>> w = device.sparse.structured(device.put(np.eye(32, dtype="float16")))
    >>> request = an.StructuredProductRequest(
    ...     compressed=w.compressed, shape=w.shape, dtype=w.dtype, x=device.put(np.ones((8, 32), "float16")), alpha=2.0
    ... )
    >>> device.sparse.tell(request).numpy()[0, 0]
    np.float16(2.0)
    """

    compressed: Any
    shape: tuple[int, int]
    dtype: Any
    x: Any
    bias: Any = None
    row_alpha: Any = None
    row_beta: Any = None
    scale_a: Any = None
    scale_x: Any = None
    out: Any = None
    out_dtype: Any = None
    activation: str = "none"
    tune: bool | str = False
    alpha: float = 1.0
    beta: float = 0.0

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        problem = resolve(self)
        names = ("compressed", "x", "bias", "row_alpha", "row_beta", "scale_a", "scale_x")
        operands = [read(name, getattr(self, name)) for name in names if getattr(self, name) is not None]
        operands.append(written("out", self.out, Fresh(*problem.out), updated=self.beta != 0))
        return Lowered(
            op="sparse.linear_24",
            operands=tuple(operands),
            collect=itemgetter("out"),
            attributes=StructuredAttributes(
                shape=problem.shape,
                dtype=problem.dtype,
                adds=bool(self.beta != 0),
                activation=self.activation,
                tune=problem.tune,
            ),
            scalars=factor_scalars(self.alpha, self.beta, is_complex=False),
            numbers=FACTORS,
        )


PRUNE: Final = form_of(StructuredPruneRequest, "x out", "method")
BROKEN: Final = form_of(BrokenGroupsRequest, "x out")
COMPRESS: Final = form_of(StructuredCompressRequest, "x out")
LINEAR: Final = form_of(
    StructuredProductRequest,
    "compressed x bias row_alpha row_beta scale_a scale_x out",
    "shape dtype out_dtype activation tune",
    numbers="alpha beta",
)
