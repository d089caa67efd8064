"""Rules of tensor operations, as pure functions of layouts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..._support.checks import as_integer, check_choice, check_factor, check_flag
from ..._support.traced import Tree
from ...arrays.operands import Fresh, check_input, check_output, check_size, overlaps
from ...dtypes import as_dtype, dtype_name
from ...errors import InvalidRequest
from .._tuning import tuning_of
from .attributes import EINSUM_ROUTES
from .modes import Subscripts, extents_of, parse
from .path import Path, find_path
from .result_order import ORDERS
from .tail import resolve_tail
from .types import EIGHT, EMULATED, SCALE, accumulator, common_dtype, compute_mode, result_dtype

if TYPE_CHECKING:
    from .request import EinsumRequest

__all__ = [
    "EinsumProblem", "added_of", "check_result", "check_scale", "conjugates", "is_array", "is_zero", "overwrites",
    "resolve_einsum", "resolve_operands", "tuned_of",
]  # fmt: skip

#: Operands of an expression.
_MOST: Final = 64


@dataclass(frozen=True, slots=True)
class EinsumProblem:
    """An expression with everything that follows from it.

    Attributes
    ----------
    subscripts : Subscripts
    extents : tuple of int
        Of each mode.
    dtype : str
        In which operands meet.
    compute : str
    path : Path
    out : Fresh
    conj : tuple of bool
    added : str
        Where C is: ``"none"``, ``"c"`` or ``"out"``.
    over : bool
        Whether the result shares memory with an operand, so that it is made in scratch memory first.
    scale : str
        The dtype of alpha and beta.
    tail : Tree
        The function of the result, if it is not empty.
    """

    subscripts: Subscripts
    extents: tuple[int, ...]
    dtype: str
    compute: str
    path: Path
    out: Fresh
    conj: tuple[bool, ...]
    added: str
    over: bool
    scale: str
    tail: Tree


def is_array(value: object) -> bool:
    """Whether a factor is an array in device memory."""
    return hasattr(value, "strides") and not isinstance(value, np.generic)


def is_zero(value: object) -> bool:
    """Whether a factor is the number 0."""
    return not is_array(value) and value == 0


def resolve_operands(
    subscripts: Any, operands: Sequence[Any], most: int = _MOST, least: int = 1
) -> tuple[Subscripts, tuple[int, ...]]:
    """Check operands and their modes; return these, and their extents."""
    if isinstance(operands, str) or not isinstance(operands, Sequence) or not least <= len(operands) <= most:
        count = len(operands) if isinstance(operands, Sequence) else type(operands).__name__
        raise InvalidRequest(f"operands: {count} of them; allowed: {least} to {most}")
    names = [f"operand {i}" for i in range(len(operands))]
    arrays = [check_input(name, operand, backwards=True) for name, operand in zip(names, operands, strict=True)]
    found = parse(subscripts, [len(array.shape) for array in arrays])
    return found, extents_of(found, [array.shape for array in arrays], names)


def check_result(name: str, given: Any, fresh: Fresh) -> None:
    """Check an array that has the shape and dtype of a result."""
    array = check_output(name, given) if name == "out" else check_input(name, given, backwards=True)
    dtype = as_dtype(array.dtype)
    if tuple(array.shape) != fresh.shape or dtype != fresh.dtype:
        raise InvalidRequest(
            f"{name} is {dtype_name(dtype)}{list(array.shape)}; allowed: {dtype_name(fresh.dtype)}{list(fresh.shape)}"
        )


def check_scale(name: str, value: Any, dtype: str) -> str:
    """Check a factor of values that are computed in a dtype; return the dtype of the factor."""
    kind = SCALE.get(dtype, "int64")
    if is_array(value):
        array = check_input(name, value)
        if dtype_name(as_dtype(array.dtype)) != kind or np.prod(array.shape) != 1:
            raise InvalidRequest(
                f"{name} is {dtype_name(as_dtype(array.dtype))}{list(array.shape)}; allowed: a number, or one element "
                f"of {kind} on the device"
            )
    elif kind == "int64":
        as_integer(name, value, -(2**53), 2**53)
    else:
        check_factor(name, value, imaginary=kind.startswith("complex"))
    return kind


def overwrites(out: Any, operands: Sequence[Any]) -> bool:
    """Whether out shares memory with an operand."""
    return out is not None and any(0 in (i, j) for i, j, _ in overlaps([out, *operands]))


def conjugates(given: Any, count: int) -> tuple[bool, ...]:
    """Return which operands are conjugated."""
    flags = given if isinstance(given, tuple | list) else (given,) * count
    for flag in flags:
        check_flag("conj", flag, bool | np.bool)
    if len(flags) != count:
        raise InvalidRequest(f"conj={given!r}; allowed: a bool, or one for each of {count} operands")
    return tuple(map(bool, flags))


def tuned_of(request: Any) -> dict[str, Any]:
    """Check whether a request's plan is tuned; return the attributes that say so."""
    given = request.tune
    if not isinstance(given, float):
        return {"tune": tuning_of(request, "later")}
    if not 0 < given < math.inf:
        raise InvalidRequest(f"tune={given!r}; allowed: False, True, 'known', 'later', or seconds above 0")
    return {"tune": "measure", "tune_seconds": float(given)}


def added_of(request: Any, fresh: Fresh) -> str:
    """Check C and beta; return where C is."""
    if is_zero(request.beta):
        if request.c is not None:
            check_result("c", request.c, fresh)
        return "none"
    if request.c is None:
        raise InvalidRequest(f"beta={request.beta!r} without c; allowed: beta=0, or the tensor c that it scales")
    check_result("c", request.c, fresh)
    return "out" if request.c is request.out else "c"


def check_factors(request: Any, dtype: str) -> str:
    """Check alpha and beta; return their dtype."""
    kind = check_scale("alpha", request.alpha, dtype)
    check_scale("beta", request.beta, dtype)
    if is_array(request.beta) != is_array(request.alpha) and not (is_array(request.alpha) and is_zero(request.beta)):
        raise InvalidRequest(
            "one of alpha and beta is an array and the other a number; allowed: both arrays, both numbers, or beta=0"
        )
    return kind


def _check_choices(request: EinsumRequest, compute: str) -> None:
    """Check how steps are chosen."""
    check_choice("route", request.route, EINSUM_ROUTES)
    if compute in EMULATED and request.route not in ("auto", "cutensor"):
        raise InvalidRequest(f"route={request.route!r} with compute={compute!r}; allowed: 'auto', 'cutensor'")
    if compute == EIGHT and request.route not in ("auto", "blas_lt"):
        raise InvalidRequest(f"route={request.route!r} with compute={compute!r}; allowed: 'auto', 'blas_lt'")
    check_choice("order", request.order, ORDERS)
    if request.order != "C" and request.out is not None:
        raise InvalidRequest(f"order={request.order!r} with out; allowed: 'C', since out lies as it does")
    tuned_of(request)
    check_flag("deterministic", request.deterministic, bool | np.bool)
    if not request.deterministic:
        return
    if request.tune:
        raise InvalidRequest(f"tune={request.tune!r} with deterministic=True; allowed: False, since timings differ")
    if request.route == "cutensor" or compute in EMULATED:
        raise InvalidRequest(
            f"route={request.route!r}, compute={compute!r} with deterministic=True; allowed: routes 'auto', 'blas_lt', "
            f"'kernel' and 'cutlass', and compute types but {', '.join(EMULATED)}, since cuTENSOR does not promise "
            f"equal bits"
        )


def resolve_einsum(request: EinsumRequest) -> EinsumProblem:
    """Check an expression; return it with everything that follows from it.

    Raises
    ------
    InvalidRequest, Unsupported
        As `EinsumRequest`.
    """
    operands = request.operands
    subscripts, extents = resolve_operands(request.subscripts, operands)
    common = common_dtype(operands)
    fresh = Fresh(tuple(extents[m] for m in subscripts.output), result_dtype(request.out_dtype, common))
    if request.out is not None and request.out_dtype is None:
        fresh = Fresh(fresh.shape, result_dtype(getattr(request.out, "dtype", None), common, "out"))
    check_size("the result", fresh.shape, fresh.dtype)
    if request.out is not None:
        check_result("out", request.out, fresh)
    dtype = "float32" if common.startswith("float8") else common
    compute = compute_mode(request.compute, dtype, operands)
    scale = check_factors(request, accumulator(dtype))
    _check_choices(request, compute)
    limit = request.memory_limit
    if limit is not None:
        limit = as_integer("memory_limit", limit, 0, 2**62) // as_dtype(dtype).itemsize
    path = find_path(subscripts, extents, request.optimize, limit)
    added = added_of(request, fresh)
    tail = resolve_tail(request, fresh.shape, accumulator(dtype), len(operands))
    others = [
        *operands,
        *request.tail_operands.values(),
        *([request.c] if added == "c" else []),
        *(v for v in (request.alpha, request.beta) if is_array(v)),
    ]
    return EinsumProblem(
        subscripts, extents, dtype, compute, path, fresh, conjugates(request.conj, len(operands)), added,
        overwrites(request.out, others), scale, tail,
    )  # fmt: skip
