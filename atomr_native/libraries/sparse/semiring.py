"""The request of products over other operations than addition and multiplication."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from ..._support.checks import is_real
from ..._support.public import public
from ..._support.traced import Untraceable, trace
from ...arrays.operands import check_input
from ...dtypes import as_dtype, dtype_name
from ...errors import InvalidRequest
from ...plans.lowering import Lowered, Request, read, written
from .attributes import CompiledAttributes, SemiringAttributes
from .batches import refuse_batch
from .compiled import CompiledCode, as_python
from .matrix import check_parts
from .spec import check_out, compute_dtype

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef  # noqa: F401  (named by the base class)

__all__ = ["SparseSemiringRequest"]

_DTYPES: Final = ("float16", "bfloat16", "float32", "float64")


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class SparseSemiringRequest(Request["GpuRef"]):
    """``out[i] = on_sum(add over k of multiply(a[i, k], x[k]))`` over the stored elements of A, checked when made.

    Parameters
    ----------
    values, indices, offsets, shape
        The arrays and the shape of a csr matrix; values float16, bfloat16, float32 or float64.
    x
        A vector or a matrix of the dtype of `values`, with any strides of 0 or more.
    multiply : callable
        Of an element of A and one of x.
    add : callable
        Of two sums; associative and commutative, since the order is that of the device.
    start : float
        The sum of nothing: ``add(start, s)`` is s.
    on_sum : callable, optional
        Of each sum; by default the sum itself.
    out
        The result; allocated if missing; of float16 and bfloat16 it may be float32.

    Raises
    ------
    InvalidRequest
        For invalid values, and functions that a device cannot compute.

    Notes
    -----
    Functions are called once, when the request is made, with symbols for numbers, which note arithmetic, comparisons,
    `numpy.where` and ufuncs.  If one branches, calls functions of `math`, or is Numba's (``numba.njit``,
    ``cuda.jit(device=True)``), Numba compiles all of them when the plan is made, as it does kernels: this needs the
    extra ``kernels``, and what they refer to travels by value.  They compute in float64, or in float32 for shorter
    dtypes.  Equal messages give equal bits on one device.

    Examples
    --------
    >>> edges = device.sparse.matrix(np.array([[0.0, 3.0], [1.0, 0.0]]))
    >>> request = an.SparseSemiringRequest(
    ...     shape=edges.shape, **edges.arrays, x=device.put(np.array([0.0, 5.0])),
    ...     multiply=lambda a, x: a + x, add=np.minimum, start=np.inf,
    ... )
    >>> device.sparse.tell(request).numpy()
    array([8., 1.])
    """

    shape: tuple[int, int]
    values: Any
    indices: Any
    offsets: Any
    x: Any
    multiply: Callable[[Any, Any], Any]
    add: Callable[[Any, Any], Any]
    start: float
    on_sum: Callable[[Any], Any] | None = None
    out: Any = None

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        shape, _, batch = check_parts("csr", self.shape, self.values, self.indices, self.offsets, None)
        refuse_batch("a", batch, "semiring")
        dtype = as_dtype(self.values.dtype)
        if dtype_name(dtype) not in _DTYPES:
            raise InvalidRequest(f"values has dtype {dtype_name(dtype)}; allowed: {', '.join(_DTYPES)}")
        x = tuple(check_input("x", self.x).shape)
        if len(x) not in (1, 2) or x[0] != shape[1]:
            raise InvalidRequest(f"x has shape {x}; allowed: ({shape[1]},) or ({shape[1]}, any)")
        if as_dtype(self.x.dtype) != dtype:
            raise InvalidRequest(f"x has dtype {dtype_name(as_dtype(self.x.dtype))}; allowed: {dtype_name(dtype)}")
        if not is_real(self.start):
            raise InvalidRequest(f"start={self.start!r}; allowed: real numbers")
        compute = compute_dtype(dtype)
        names = ("values", "indices", "offsets", "x")
        out = check_out(self, (shape[0], *x[1:]), list(dict.fromkeys((dtype, compute))), names)
        operands = (*(read(name, getattr(self, name)) for name in names), written("out", self.out, out))
        given: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
            "multiply": (self.multiply, ("a", "x")),
            "add": (self.add, ("s", "t")),
            "on_sum": (self.on_sum or (lambda s: s), ("s",)),
        }
        start = float(self.start).hex()
        try:
            trees = {name: trace(name, function, inputs) for name, (function, inputs) in given.items()}
        except Untraceable:
            functions = tuple((name, as_python(name, *pair)) for name, pair in given.items())
            return Lowered(
                op="sparse.semiring_compiled",
                operands=operands,
                collect=itemgetter("out"),
                attributes=CompiledAttributes(shape=shape, compute=dtype_name(compute), start=start),
                code=CompiledCode(functions),
            )
        return Lowered(
            op="sparse.semiring",
            operands=operands,
            collect=itemgetter("out"),
            attributes=SemiringAttributes(shape=shape, compute=dtype_name(compute), start=start, **trees),
        )
