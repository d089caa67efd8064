"""The request of permutations and of elementwise operations on up to three tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from ..._support.checks import check_choice, is_integer
from ..._support.public import public
from ...arrays.operands import Fresh, check_size
from ...dtypes import DTYPES
from ...errors import InvalidRequest
from ...plans.lowering import Lowered, Request, Scalar, read, written
from .attributes import OTHER_ROUTES, ElementwiseAttributes
from .operators import BINARY, COMPLEX_UNARY, INTEGER_UNARY, UNARY
from .request import frozen
from .spec import check_result, check_scale, is_array, is_zero, overwrites, resolve_operands, tuned_of
from .types import accumulator, common_dtype, result_dtype

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef

__all__ = ["TensorElementwiseRequest"]

#: Factors, in the order of the operands.
_FACTORS: Final = ("alpha", "beta", "gamma")


def _split(*factors: complex) -> tuple[float, ...]:
    return tuple(part for factor in factors for part in (complex(factor).real, complex(factor).imag))


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class TensorElementwiseRequest(Request["GpuRef"]):
    """A permutation, or an elementwise operation on two or three tensors, checked when it is made.

    ``alpha * op_a(A)``; ``ab(alpha * op_a(A), beta * op_b(B))``; or
    ``abc(op_ab(ab(alpha * op_a(A), beta * op_b(B))), gamma * op_c(C))``.

    Parameters
    ----------
    subscripts : str or sequence
        ``"ij,j->ji"``, or a list of modes for each operand and the output, which has every mode.  An operand that lacks
        a mode, or has one element there, is broadcast.
    operands : sequence of GpuRef
        1 to 3 tensors of any dtypes, strides and layouts.
    ab, abc : str
        ``"add"``, ``"mul"``, ``"max"`` or ``"min"``; complex tensors have the first two.
    unary : sequence of str
        Operators on each operand: ``"identity"``, ``"sqrt"``, ``"relu"``, ``"conj"``, ``"rcp"``, ``"sigmoid"``,
        ``"tanh"``, ``"exp"``, ``"log"``, ``"abs"``, ``"neg"``, ``"sin"``, ``"cos"``, ``"tan"``, ``"sinh"``, ``"cosh"``,
        ``"asin"``, ``"acos"``, ``"atan"``, ``"asinh"``, ``"acosh"``, ``"atanh"``, ``"ceil"``, ``"floor"``, ``"mish"``,
        ``"swish"``, ``"soft_plus"``, ``"soft_sign"``.  Complex tensors have ``identity``, ``conj`` and ``neg``;
        integers those, ``abs`` and ``relu``.
    unary_ab : str
        The operator on the combination of the first two of three operands.
    alpha, beta, gamma : number
        Factors, which travel with the message; an operand with the factor 0 is not read, so that its NaN do not spread.
    out : GpuRef, optional
        Where the result goes; it may be the very view of an operand, or share memory with one.
    out_dtype : dtype, optional
        By default that of `out`, else the one to which operands promote.  Values are computed in float32 for narrow
        floats, in 64 bits for integers, and rounded once.
    padding : sequence of (int, int), optional
        Of one operand: zeros before and after the result along each mode of the output, or as ``padding=1`` around all.
    route : str
        On a GPU ``"kernel"``, or ``"cutensor"`` where the library has the operation; ``"auto"`` takes a kernel.
    tune : bool, "known", "later" or float
        Whether the faster of both is taken: True measures them when the plan is built, and keeps the result on disk;
        ``"known"`` takes what was measured before; ``"later"`` does that for the first messages, while the tuned plan
        is built; seconds as of `EinsumRequest`.  No effect on the host device, and with another `route`.

    Raises
    ------
    InvalidRequest
        With the value and the allowed ones.

    Examples
    --------
    >>> x, row = device.put(np.eye(2)), device.put(np.array([1.0, 2.0]))
    >>> device.tensor.tell(an.TensorElementwiseRequest(subscripts="ij,j->ji", operands=(x, row), beta=-1)).numpy()
    array([[ 0., -1.],
           [-2., -1.]])
    """

    subscripts: Any
    operands: Sequence[Any]
    ab: str = "add"
    abc: str = "add"
    unary: Any = ()
    unary_ab: str = "identity"
    alpha: Any = 1
    beta: Any = 1
    gamma: Any = 1
    out: GpuRef | None = None
    out_dtype: Any = None
    padding: Any = ()
    route: str = "auto"
    tune: bool | str | float = False

    def __post_init__(self) -> None:
        for name in ("subscripts", "operands", "unary", "padding"):
            object.__setattr__(self, name, frozen(getattr(self, name)))
        Request.__post_init__(self)

    def lowering(self) -> Lowered:
        """Check the request and return its message: operands, out."""
        subscripts, extents = resolve_operands(self.subscripts, self.operands, 3)
        count = len(self.operands)
        check_choice("route", self.route, OTHER_ROUTES)
        if missing := {*range(len(extents))} - {*subscripts.output}:
            names = ", ".join(repr(subscripts.names[m]) for m in sorted(missing))
            raise InvalidRequest(
                f"modes {names} are not in the output; allowed: an output with every mode, or a reduction"
            )
        common = common_dtype(self.operands)
        dtype = accumulator(common)
        unary, binary = self._operators(dtype, count)
        padding = _padding(self.padding, len(subscripts.output), count)
        shape = tuple(extents[m] + sum(pad) for m, pad in zip(subscripts.output, padding, strict=True))
        wanted = self.out_dtype if self.out_dtype is not None else getattr(self.out, "dtype", None)
        fresh = Fresh(shape, DTYPES[common] if wanted is None else result_dtype(wanted, common))
        check_size("the result", shape, fresh.dtype)
        if self.out is not None:
            check_result("out", self.out, fresh)
        given = [getattr(self, name) for name in _FACTORS[:count]]
        for name, value in zip(_FACTORS, given, strict=False):
            if is_array(value):
                raise InvalidRequest(f"{name} is an array; allowed: a number")
            check_scale(name, value, dtype)
        return Lowered(
            op="tensor.elementwise_over" if overwrites(self.out, self.operands) else "tensor.elementwise",
            operands=(*(read(f"x{i}", x) for i, x in enumerate(self.operands)), written("out", self.out, fresh)),
            collect=itemgetter("out"),
            attributes=ElementwiseAttributes(
                inputs=subscripts.inputs,
                output=subscripts.output,
                unary=(*unary, self.unary_ab) if count == 3 else unary,
                binary=binary,
                zero=tuple(map(is_zero, given)),
                dtype=dtype,
                padding=padding,
                route=self.route,
                **tuned_of(self),
            ),
            **_scalars(given, is_complex=dtype.startswith("complex")),
        )

    def _operators(self, dtype: str, count: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Check the operators; return those of operands, and those between them."""
        unary = self.unary if isinstance(self.unary, tuple) else (self.unary,)
        if len(unary) > count:
            raise InvalidRequest(f"unary={self.unary!r} for {count} operands; allowed: an operator for each, or fewer")
        unary = (*unary, *(["identity"] * (count - len(unary))))
        is_complex = dtype.startswith("complex")
        allowed = COMPLEX_UNARY if is_complex else UNARY if dtype.startswith("float") else INTEGER_UNARY
        for operator in (*unary, self.unary_ab):
            if not isinstance(operator, str) or operator not in allowed:
                raise InvalidRequest(f"the operator {operator!r} of {dtype} values; allowed: {', '.join(allowed)}")
        for name in ("ab", "abc"):
            check_choice(name, getattr(self, name), BINARY[:2] if is_complex else BINARY)
        return unary, (self.ab, self.abc)[: count - 1]


def _padding(given: Any, axes: int, count: int) -> tuple[tuple[int, int], ...]:
    if given in ((), 0, None):
        return ((0, 0),) * axes
    pairs = ((given, given),) * axes if is_integer(given) else given
    if count > 1:
        raise InvalidRequest(f"padding={given!r} of {count} operands; allowed: of one")
    valid = isinstance(pairs, tuple) and len(pairs) == axes
    if not valid or not all(
        isinstance(pair, tuple) and len(pair) == 2 and all(is_integer(n) and n >= 0 for n in pair) for pair in pairs
    ):
        raise InvalidRequest(f"padding={given!r}; allowed: 0 or more, or two of these for each of {axes} modes")
    return tuple((int(before), int(after)) for before, after in pairs)


def _scalars(given: list[Any], *, is_complex: bool) -> dict[str, Any]:
    names = _FACTORS[: len(given)]
    if not is_complex:
        scalars = tuple(Scalar(name, "float64", float(v), 1.0) for name, v in zip(names, given, strict=True))
        return {"scalars": scalars, "numbers": names}
    scalars = ()
    for name, value in zip(names, given, strict=True):
        scalars += (
            Scalar(name, "float64", complex(value).real, 1.0),
            Scalar(f"{name}_imag", "float64", complex(value).imag, 0.0, imaginary_of=name),
        )
    return {"scalars": scalars, "numbers": names, "convert": _split}
