"""The request of expressions and contractions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from ..._support.public import public
from ...plans.lowering import Lowered, Operand, Request, Scalar, read, written
from .._factors import FACTORS, factor_scalars, split_factors
from .attributes import EinsumAttributes
from .result_order import new_result
from .spec import is_array, is_zero, resolve_einsum, tuned_of
from .tail import tail_mapping

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef

__all__ = ["EinsumRequest", "factor_operands", "factors_of", "frozen"]


def frozen(value: Any) -> Any:
    """Return lists as tuples, so that requests can be compared."""
    return tuple(map(frozen, value)) if isinstance(value, list | tuple) else value


def factors_of(request: Any, scale: str) -> dict[str, Any]:
    """Return the part of a message that alpha and beta are: scalars, unless they are 1 and 0, or in device memory."""
    if is_array(request.alpha) or (request.alpha == 1 and is_zero(request.beta)):
        return {"numbers": ()}
    is_complex = scale.startswith("complex")
    scalars: tuple[Scalar, ...] = factor_scalars(request.alpha, request.beta, is_complex=is_complex)
    return {"scalars": scalars, "numbers": FACTORS, "convert": split_factors if is_complex else None}


def factor_operands(request: Any) -> list[Operand]:
    """Return the factors in device memory."""
    return [read(name, getattr(request, name)) for name in FACTORS if is_array(getattr(request, name))]


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class EinsumRequest(Request["GpuRef"]):
    """An expression ``D = alpha * sum of products of operands + beta * C``, checked when it is made.

    Parameters
    ----------
    subscripts : str or sequence
        NumPy's notation: ``"ij,jk->ik"``, with an ellipsis, or without an output.  Or a list of modes for each operand,
        integers or other names, and one more for the output if it is given.  Modes that are not in the output are
        summed over.  A mode that an operand has twice is a diagonal.
    operands : sequence of GpuRef
        1 to 64 tensors of any dtypes, which meet in NumPy's promotion of these (float32 for two different narrow
        floats).  Any shape and strides, also broadcast or backwards; axes of one element broadcast.
    c : GpuRef, optional
        Added with factor `beta`; of the shape and dtype of the result.  It may be `out`.
    out : GpuRef, optional
        Where the result goes, with any strides of 1 element or more.  It may share memory with operands; the result is
        then made in scratch memory first.
    alpha, beta : number or GpuRef
        Factors: numbers, which travel with the message, or one element each in device memory, of float32 for narrow
        floats, else of the common dtype.  Whole numbers for integers.  What has the number 0 as its factor is not read,
        so that its NaN do not spread.
    conj : bool or sequence of bool
        Whether operands are conjugated.
    out_dtype : dtype, optional
        Dtype of the result: by default that of `out`, else the common one (float32 for 8-bit floats).  Complex and
        floating results do not become real and whole.
    compute : str, optional
        How products of float32 are computed: ``"float32"`` (the default), ``"tf32"``, ``"bfloat16"`` or ``"float16"``:
        operands are rounded to that type on their way into tensor cores.  For complex64 ``"complex64"`` or ``"tf32"``.
        cuTENSOR also emulates float32 and complex64 by ``"3xtf32"`` and ``"9xbf16"``, and float64 and complex128 by
        ``"8xint8"``, in products.  Narrow floats are summed in float32; two tensors of float8 also in ``"float8"``, by
        its tensor cores, with fewer bits.
    optimize : str or sequence
        The order of contractions: ``"auto"``: the cheapest for up to 8 operands, beyond that ``opt_einsum``'s where it
        is installed, else a greedy one; ``"optimal"``, ``"greedy"``, ``"left"``; or a path as `numpy.einsum_path`
        returns it.
    memory_limit : int, optional
        Bytes that intermediate results may have at once; where they do not fit, modes are sliced.
    route : str
        ``"auto"``; ``"blas_lt"`` or ``"cutensor"``: products by that library where they are products; or ``"kernel"``:
        never by a library.  ``"cutlass"``: two operands that are a product of matrices as they lie, and the tail, in
        one kernel of CUTLASS, which compiles when the plan is made and takes no factors; anything else is refused.
    tune : bool, "known", "later" or float
        Whether each product is computed in the fastest way on this GPU: True measures routes and algorithms when the
        plan is built, and keeps the results on disk; ``"known"`` takes what was measured before; ``"later"`` does that
        for the first messages, while the tuned plan is built; a float is True, but no further way of a step is tried
        after so many seconds.  No effect on the host device, on other steps and on slices.
    deterministic : bool
        Whether equal messages give equal bits in other processes, lanes and runs, too: nothing is measured, and
        cuTENSOR is not called, whose documentation does not promise that.
    order : str
        How a new result lies: ``"C"``, contiguous; or ``"any"``, in the order of modes in which the last step writes it
        the fastest: a view of a contiguous array with its axes in that order.  Only ``"C"`` with `out`.
    tail : callable, optional
        A Python function of the result's elements, ``f(result, ...)``, that is applied before they are stored, to
        ``alpha * ... + beta * C`` in float32 or float64: arithmetic, comparisons, `numpy.where` and NumPy's ufuncs.
        It is called once, with symbols; numbers that it captures belong to the plan.
    tail_operands : mapping of str to GpuRef
        Its further parameters, by name: real arrays that broadcast to the result.

    Raises
    ------
    InvalidRequest
        With the mode, the operands and both extents; or the value and the allowed ones.
    Unsupported
        If no slicing fits the memory limit.

    Notes
    -----
    Sums run in float32 for narrow floats and float32, in 64 bits for integers, which wrap, else in the common dtype.
    Bool sums are "or".  Intermediate results have the common dtype.  One message computes the whole expression.

    Examples
    --------
    >>> a, b = device.put(np.eye(2)), device.put(np.ones((2, 3)))
    >>> device.tensor.tell(an.EinsumRequest(subscripts="ij,jk->k", operands=(a, b), alpha=2.0)).numpy()
    array([4., 4., 4.])
    """

    subscripts: Any
    operands: Sequence[Any]
    c: GpuRef | None = None
    out: GpuRef | None = None
    alpha: Any = 1
    beta: Any = 0
    conj: Any = False
    out_dtype: Any = None
    compute: str | None = None
    optimize: Any = "auto"
    memory_limit: int | None = None
    route: str = "auto"
    tune: bool | str | float = False
    deterministic: bool = False
    order: str = "C"
    tail: Callable[..., Any] | None = None
    tail_operands: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("subscripts", "operands", "conj", "optimize"):
            object.__setattr__(self, name, frozen(getattr(self, name)))
        object.__setattr__(self, "tail_operands", tail_mapping(self.tail_operands))
        Request.__post_init__(self)

    def lowering(self) -> Lowered:
        """Check the request and return its message: operands, [c], [alpha], [beta], operands of the tail, out."""
        problem = resolve_einsum(self)
        operands = [read(f"x{i}", x) for i, x in enumerate(self.operands)]
        if problem.added == "c":
            operands.append(read("c", self.c))
        operands += factor_operands(self)
        operands += [read(name, array) for name, array in self.tail_operands.items()]
        if self.order == "any":
            operands.append(new_result(problem, self.operands, self.c if problem.added == "c" else None))
        else:
            operands.append(written("out", self.out, problem.out, updated=problem.added == "out"))
        unread = (("c", self.c),) if self.c is not None and problem.added == "none" else ()
        return Lowered(
            op="tensor.einsum_over" if problem.over else "tensor.einsum",
            operands=tuple(operands),
            collect=itemgetter("out"),
            attributes=EinsumAttributes(
                inputs=problem.subscripts.inputs,
                output=problem.subscripts.output,
                conj=problem.conj,
                steps=problem.path.steps,
                slices=problem.path.slices,
                dtype=problem.dtype,
                compute=problem.compute,
                route=self.route,
                added=problem.added,
                zero=is_zero(self.alpha),
                tail=problem.tail,
                **tuned_of(self),
                deterministic=bool(self.deterministic),
            ),
            unread=unread,
            **factors_of(self, problem.scale),
        )
