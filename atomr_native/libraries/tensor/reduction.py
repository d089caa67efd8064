"""The request of reductions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from ..._support.checks import check_choice
from ..._support.public import public
from ...arrays.operands import Fresh
from ...dtypes import DTYPES, as_dtype, dtype_name
from ...errors import InvalidRequest
from ...plans.lowering import Lowered, Request, read, written
from .attributes import OTHER_ROUTES, ReduceAttributes
from .operators import REDUCTIONS
from .request import factor_operands, factors_of, frozen
from .spec import added_of, check_factors, check_result, is_array, is_zero, overwrites, resolve_operands, tuned_of
from .tail import resolve_tail, tail_mapping
from .types import accumulator

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef

__all__ = ["TensorReduceRequest"]

_COMPARES = ("max", "min", "norm1", "norm2", "norm_max")


def _natural(op: str, dtype: str) -> str:
    """Return the dtype of a reduction's result, as NumPy has it."""
    kind = DTYPES[dtype].kind
    if op in ("any", "all"):
        return "bool"
    if op in ("sum", "prod") and kind in "biu":
        return "uint64" if kind == "u" else "int64"
    return "float64" if op in ("mean", "norm1", "norm2") and kind in "biu" else dtype


def _computed(op: str, dtype: str) -> str:
    """Return the dtype in which a reduction is computed."""
    if op in ("any", "all"):
        return accumulator(dtype)
    if op in ("mean", "norm1", "norm2") and DTYPES[dtype].kind in "biu":
        return "float64"
    return accumulator("int64" if dtype == "bool" and op in ("sum", "prod") else dtype)


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class TensorReduceRequest(Request["GpuRef"]):
    """A reduction of a tensor over modes, ``D = alpha * op(A) + beta * C``, checked when it is made.

    Parameters
    ----------
    op : str
        ``"sum"``, ``"prod"``, ``"max"``, ``"min"``, ``"mean"``, ``"any"``, ``"all"``; ``"norm1"``, ``"norm2"`` and
        ``"norm_max"``: the sum of magnitudes, the square root of the sum of their squares, and the largest one.
    subscripts : str or sequence
        ``"ijk->ik"``, or two lists of modes.  Modes that are not in the output are reduced; with none the elements
        are copied, and a mode that A has twice is a diagonal.  Without an output, modes that appear twice are reduced.
    x : GpuRef
        Any shape and strides.  Complex tensors have sums, products, means, ``any`` and ``all``.
    c, out, alpha, beta
        As of `EinsumRequest`; factors of ``any`` and ``all`` are 1 and 0.
    out_dtype : dtype, optional
        By default that of `out`, else x's for floating and complex types; of integers int64 (uint64) for sums and
        products and float64 for means and norms; bool for ``any`` and ``all``.
    route : str
        On a GPU ``"kernel"``, or ``"cutensor"`` where the library has the reduction; ``"auto"`` takes a kernel.
    tune : bool, "known", "later" or float
        Whether the faster of both is taken: True measures them when the plan is built, and keeps the result on disk;
        ``"known"`` takes what was measured before; ``"later"`` does that for the first messages, while the tuned plan
        is built; seconds as of `EinsumRequest`.  No effect on the host device, and with another `route`.
    tail, tail_operands
        As of `EinsumRequest`: a function of the result's elements, ``alpha * op(A) + beta * C``, and its operands;
        ``any`` and ``all`` have none.

    Raises
    ------
    InvalidRequest
        With the value and the allowed ones; an extremum of no elements is refused.

    Examples
    --------
    >>> x = device.put(np.arange(6.0).reshape(2, 3))
    >>> device.tensor.tell(an.TensorReduceRequest(op="max", subscripts="ij->j", x=x)).numpy()
    array([3., 4., 5.])
    """

    op: str
    subscripts: Any
    x: Any
    c: GpuRef | None = None
    out: GpuRef | None = None
    alpha: Any = 1
    beta: Any = 0
    out_dtype: Any = None
    route: str = "auto"
    tune: bool | str | float = False
    tail: Callable[..., Any] | None = None
    tail_operands: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "subscripts", frozen(self.subscripts))
        object.__setattr__(self, "tail_operands", tail_mapping(self.tail_operands))
        Request.__post_init__(self)

    def lowering(self) -> Lowered:
        """Check the request and return its message: x, [c], [alpha], [beta], operands of the tail, out."""
        check_choice("op", self.op, REDUCTIONS)
        check_choice("route", self.route, OTHER_ROUTES)
        subscripts, extents = resolve_operands(self.subscripts, (self.x,), 1)
        given = dtype_name(as_dtype(self.x.dtype))
        if self.op in _COMPARES and given.startswith("complex"):
            raise InvalidRequest(f"op={self.op!r} of {given}; allowed: sum, prod, mean, any, all")
        shape = tuple(extents[m] for m in subscripts.output)
        count = math.prod(extents[m] for m in set(subscripts.inputs[0]) - set(subscripts.output))
        if self.op in ("max", "min") and count == 0 and 0 not in shape:
            raise InvalidRequest(
                f"op={self.op!r} over modes of {count} elements, which have no extremum; allowed: 1 or more"
            )
        dtype = _computed(self.op, given)
        wanted = self.out_dtype if self.out_dtype is not None else getattr(self.out, "dtype", None)
        natural = _natural(self.op, given)
        fresh = Fresh(shape, as_dtype(natural if wanted is None else wanted))
        if fresh.dtype.kind != "c" and dtype.startswith("complex") and natural != "bool":
            raise InvalidRequest(
                f"out_dtype is {dtype_name(fresh.dtype)} with x of {given}; allowed: complex64, complex128"
            )
        if self.out is not None:
            check_result("out", self.out, fresh)
        logical = self.op in ("any", "all")
        if logical and (is_array(self.alpha) or self.alpha != 1 or not is_zero(self.beta)):
            raise InvalidRequest(f"alpha={self.alpha!r}, beta={self.beta!r} with op={self.op!r}; allowed: 1 and 0")
        scale = check_factors(self, "float64" if logical else dtype)
        added = added_of(self, fresh)
        if logical and self.tail is not None:
            raise InvalidRequest(
                f"a tail with op={self.op!r}; allowed: {', '.join(op for op in REDUCTIONS if op not in ('any', 'all'))}"
            )
        tail = resolve_tail(self, shape, dtype, 1)
        others = [
            self.x,
            *self.tail_operands.values(),
            *([self.c] if added == "c" else []),
            *(v for v in (self.alpha, self.beta) if is_array(v)),
        ]
        unread = (("c", self.c),) if self.c is not None and added == "none" else ()
        return Lowered(
            op="tensor.reduce_over" if overwrites(self.out, others) else "tensor.reduce",
            operands=(
                read("x0", self.x),
                *((read("c", self.c),) if added == "c" else ()),
                *factor_operands(self),
                *(read(name, array) for name, array in self.tail_operands.items()),
                written("out", self.out, fresh, updated=added == "out"),
            ),
            collect=itemgetter("out"),
            attributes=ReduceAttributes(
                inputs=subscripts.inputs,
                output=subscripts.output,
                reduction=self.op,
                dtype=dtype,
                added=added,
                zero=is_zero(self.alpha),
                route=self.route,
                tail=tail,
                **tuned_of(self),
            ),
            unread=unread,
            **factors_of(self, scale),
        )
