"""Epilogues of one's own: a scalar function that is applied to every element of a product before D is stored."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from ..._support.checks import check_flag
from ..._support.public import public
from ...arrays.operands import check_input, check_output
from ...dtypes import DTYPES, as_dtype, dtype_name
from ...errors import InvalidRequest, Unsupported
from ...plans.spec import PlanSpec, ShippedCode
from ...protocol.binaries import Binary

if TYPE_CHECKING:
    from ...compile.shipped import Part
    from ...plans.lowering import Target
from .attributes import CustomAttributes, MatmulAttributes

__all__ = [
    "KINDS",
    "CustomCode",
    "CustomEpilogue",
    "check_custom",
    "custom_attributes",
    "custom_part",
    "given_operands",
]

#: How an operand is broadcast over D's rows and columns.
KINDS: Final = ("matrix", "row", "column", "scalar")
#: Names that a message has for other operands and scalars.
_TAKEN: Final = frozenset(
    {"a", "b", "c", "out", "bias_grad", "amax", "a_scale", "b_scale", "c_scale", "d_scale", "alpha", "beta"}
)
_FLOATS: Final = ("float32", "bfloat16", "float16")
#: Parameters of the kernel are bounded; each operand has five of them.
_OPERANDS: Final = 16


@public
@dataclass(frozen=True, slots=True)
class CustomEpilogue:
    """A function of scalars, ``f(acc, ...)``, that makes each element of D from one of the product.

    ``matmul(a, b, epilogue=CustomEpilogue(f, {"bias": "row"}), operands={"bias": bias})`` applies it to
    ``acc = alpha * op(A) @ op(B) + beta * C``.  Numbers are float32, or float64 for float64 products, whatever the
    operands' dtypes; results are rounded once to D's.  Equal epilogues have the same function object.

    Parameters
    ----------
    function
        A Python function that Numba compiles, plain or decorated with ``cuda.jit(device=True)`` or ``numba.njit``.  Its
        parameters are the accumulator, by position, and the operands, by name.  It must have no side effects.
    operands : mapping of str to str, optional
        How each further parameter is broadcast: ``"matrix"`` (M, N), ``"row"`` (N,), the same in every row,
        ``"column"`` (M,), the same in every column, ``"scalar"`` () or (1,).  All but scalars may have D's batch axes
        in front.  Their names are others than those of a matmul's own operands and factors.
    aux : bool
        Whether the function returns two numbers, of which the second is stored in ``aux``, of D's shape and dtype.
    bias_grad : bool
        Whether the columns of D, as it is stored, are also summed: float32 (or float64) of shape (..., N).

    Raises
    ------
    InvalidRequest
        If the function's parameters and the operands do not fit, or a kind is unknown.

    Examples
    --------
    >>> def scaled(acc, bias, factor):
    ...     return factor * (acc + bias)
    >>> an.CustomEpilogue(scaled, {"bias": "row", "factor": "scalar"}).kinds
    {'bias': 'row', 'factor': 'scalar'}
    """

    function: Any
    operands: Mapping[str, str] | Sequence[tuple[str, str]] = ()
    aux: bool = False
    bias_grad: bool = False

    def __post_init__(self) -> None:
        function = getattr(self.function, "py_func", self.function)
        if not isinstance(function, FunctionType):
            raise InvalidRequest(
                f"function is a {type(self.function).__name__}; allowed: a Python function, or what "
                f"cuda.jit(device=True) or numba.njit made of one"
            )
        object.__setattr__(self, "function", function)
        for name in ("aux", "bias_grad"):
            check_flag(name, getattr(self, name))
        names = _parameters(function)
        kinds = _kinds(self.operands)
        if set(kinds) != set(names):
            raise InvalidRequest(
                f"operands are {', '.join(map(str, kinds)) or 'none'}, but {function.__name__} takes the accumulator "
                f"and {', '.join(names) or 'nothing else'}; they must be the same"
            )
        taken = _TAKEN | ({"aux"} if self.aux else set())
        for name, kind in kinds.items():
            if not isinstance(kind, str) or kind not in KINDS:
                raise InvalidRequest(f"operand {name} is broadcast as {kind!r}; allowed: {', '.join(KINDS)}")
            if name in taken:
                raise InvalidRequest(f"operand {name} has a name that a matmul uses itself: {', '.join(sorted(taken))}")
        if len(names) > _OPERANDS:
            raise InvalidRequest(f"{len(names)} operands; at most {_OPERANDS}")
        object.__setattr__(self, "operands", tuple((name, kinds[name]) for name in names))

    @property
    def kinds(self) -> dict[str, str]:
        """How each operand is broadcast, in the order of the function's parameters."""
        return dict(self.operands)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the function by value, so that lambdas and functions of a notebook travel too; imports Numba."""
        from ...compile.numba import copies

        return _restored, (copies.pickled(self.function), self.operands, self.aux, self.bias_grad)


def _restored(function: bytes, *rest: Any) -> CustomEpilogue:
    import pickle

    return CustomEpilogue(pickle.loads(function), *rest)  # noqa: S301 - part of a pickle that is being loaded


def _parameters(function: FunctionType) -> list[str]:
    """Return the names of a function's parameters after the accumulator."""
    parameters = list(inspect.signature(function).parameters.values())
    for parameter in parameters:
        if parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            raise InvalidRequest(
                f"function {function.__name__} has the parameter {parameter}; allowed: positional ones"
            )
        if parameter.default is not parameter.empty:
            raise InvalidRequest(f"parameter {parameter.name} of {function.__name__} has a default; allowed: none")
    if not parameters:
        raise InvalidRequest(f"function {function.__name__} has no parameter; the first is the accumulator")
    return [parameter.name for parameter in parameters[1:]]


def _kinds(operands: Any) -> dict[str, str]:
    try:
        return dict(operands)
    except (TypeError, ValueError):
        raise InvalidRequest(f"operands={operands!r} must be a dict from names to one of {', '.join(KINDS)}") from None


def given_operands(request: Any) -> dict[str, Any]:
    """Return a request's operands by name, in the order of the epilogue's parameters.

    Raises
    ------
    InvalidRequest
        If they are not those that the epilogue names.
    """
    given = getattr(request, "operands", None)
    if not isinstance(given, Mapping | None):
        raise InvalidRequest(f"operands is a {type(given).__name__}; it must be a dict from names to arrays")
    given = dict(given or {})
    epilogue = request.epilogue
    if not isinstance(epilogue, CustomEpilogue):
        if given:
            raise InvalidRequest(
                f"operands {', '.join(map(str, given))} with epilogue {str(epilogue)!r}; allowed: with a CustomEpilogue"
            )
        return {}
    names = list(epilogue.kinds)
    if set(given) != set(names):
        raise InvalidRequest(
            f"operands has {', '.join(map(str, given)) or 'nothing'}; the epilogue takes "
            f"{', '.join(names) or 'none'}, each of which must be given"
        )
    return {name: given[name] for name in names}


def check_custom(
    request: Any, types: tuple[str, str, str], mode: str, shape: tuple[int, ...]
) -> tuple[tuple[tuple[int, ...], Any] | None, tuple[tuple[int, ...], Any] | None]:
    """Check what a request with a custom epilogue gives; returns shape and dtype of aux and of the bias gradient.

    Parameters
    ----------
    request
        With an epilogue of one's own.
    types : tuple of str
        Dtypes of A, of D and of the accumulator.
    mode : str
        How it computes.
    shape : tuple of int
        Of D.
    """
    epilogue: CustomEpilogue = request.epilogue
    a, out, acc = types
    if mode == "float16_accumulate":
        raise Unsupported(f"compute={mode!r} with a custom epilogue; allowed: sums in float32")
    if acc not in ("float32", "float64") or out not in ("float64", *_FLOATS):
        raise Unsupported(
            f"a custom epilogue with operands of dtype {a} and D of dtype {out}; allowed: D of float64, "
            f"{', '.join(_FLOATS)} (device.float8.quantize makes float8 of it)"
        )
    for name, instead in (
        ("bias", "an operand of the epilogue, with the kind 'row'"),
        ("c_scale", "an operand, with the kind 'scalar'"),
        ("d_scale", "an operand, with the kind 'scalar'"),
    ):
        if getattr(request, name) is not None:
            raise InvalidRequest(f"{name} is given with a custom epilogue; allowed: {instead}")
    if request.amax is not False:
        raise Unsupported(
            "amax with a custom epilogue; allowed: False, and device.float8.quantize, which takes it of D"
        )
    for name in ("aux", "bias_grad"):
        if getattr(request, name) is not None and not getattr(epilogue, name):
            raise InvalidRequest(f"{name} is given, but the epilogue was made without {name}=True")
    for name, kind in epilogue.kinds.items():
        _check_operand(name, kind, given_operands(request)[name], shape, acc)
    results = []
    for name, structure in (("aux", (shape, out)), ("bias_grad", ((*shape[:-2], shape[-1]), acc))):
        given = getattr(request, name)
        if given is not None:
            check_output(name, given)
            if (tuple(given.shape), dtype_name(as_dtype(given.dtype))) != structure:
                raise InvalidRequest(
                    f"{name} has shape {tuple(given.shape)} and dtype {given.dtype}; allowed: {structure[0]} of "
                    f"{structure[1]}"
                )
        results.append((structure[0], DTYPES[structure[1]]) if getattr(epilogue, name) else None)
    return results[0], results[1]


def _check_operand(name: str, kind: str, operand: Any, shape: tuple[int, ...], acc: str) -> None:
    check_input(name, operand)
    *batch, m, n = shape
    own = {"matrix": (m, n), "row": (n,), "column": (m,), "scalar": ()}[kind]
    allowed = [(), (1,)] if kind == "scalar" else list(dict.fromkeys([own, (*batch, *own)]))
    if tuple(operand.shape) not in allowed:
        raise InvalidRequest(
            f"{name} has shape {tuple(operand.shape)}; allowed for {kind!r}: {' or '.join(map(str, allowed))}"
        )
    dtypes = ("float64",) if acc == "float64" else _FLOATS
    if dtype_name(as_dtype(operand.dtype)) not in dtypes:
        raise InvalidRequest(f"{name} has dtype {dtype_name(as_dtype(operand.dtype))}; allowed: {', '.join(dtypes)}")


def custom_attributes(
    epilogue: CustomEpilogue, spec: PlanSpec[MatmulAttributes], acc: str, limit: int
) -> CustomAttributes:
    """Return what a plan specification says of its custom epilogue, without the function.

    Parameters
    ----------
    epilogue : CustomEpilogue
    spec : PlanSpec
        With its operands.
    acc : str
        Dtype of the accumulator.
    limit : int
        Bytes of workspace: products that need more are stored in D, and rounded to its dtype.
    """
    out = next(o for o in spec.operands if o.name == "out")
    # The library adds no C of 16 bits to a wider D, nor makes float32 of int8: it needs room for bare products, too.
    twice = spec.attributes.added != "none" or spec.operands[0].dtype == "int8"
    fits = math.prod(out.shape) * DTYPES[acc].itemsize * (1 + twice) <= limit
    stored = acc if out.dtype == acc or fits else out.dtype
    return CustomAttributes(tuple(epilogue.kinds.items()), acc, stored)


def custom_part(epilogue: CustomEpilogue, spec: PlanSpec, custom: CustomAttributes, function: bytes) -> Part:
    """Return the kernel of a plan specification with these `custom_attributes`; `function` is pickled."""
    from ...compile.shipped import Part

    dtypes = {o.name: o.dtype for o in spec.operands}
    names = [*epilogue.kinds, "out", *(["aux"] if epilogue.aux else [])]
    options = (
        ("function", function),
        ("kinds", tuple(epilogue.kinds.values())),
        ("dtypes", (custom.stored, *(dtypes[name] for name in names))),
        ("acc", custom.acc),
    )
    return Part("apply", options)


@dataclass(frozen=True, slots=True)
class CustomCode:
    """The function of a custom epilogue in a plan.

    Attributes
    ----------
    epilogue : CustomEpilogue
    acc : str
        Dtype of the accumulator.
    """

    epilogue: CustomEpilogue
    acc: str

    def attributes(self, spec: PlanSpec[MatmulAttributes], target: Target) -> MatmulAttributes:
        """Return how products are stored for the function, and it: pickled for the host device, else compiled.

        Waits for the compiler.

        Raises
        ------
        Unsupported, LibraryError
            As `atomr_native.compile.shipped.machine_code`.
        """
        from ...compile import linker, shipped

        custom = custom_attributes(self.epilogue, spec, self.acc, target.preferred_workspace)
        function = linker.pickled(self.epilogue.function)
        if target.capability is None:
            return replace(spec.attributes, custom=replace(custom, function=Binary(function)))
        part = custom_part(self.epilogue, spec, custom, function)
        code = shipped.machine_code("blas_lt.epilogue", (part,), target.capability)
        return replace(spec.attributes, custom=replace(custom, shipped=ShippedCode(code.entries, code.code)))
