"""Requests for the numbers of cuRAND's own generators, as messages."""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from ..._support.checks import as_integer, is_integer
from ...arrays.operands import contiguous_strides, is_contiguous
from ...dtypes import DTYPES, as_dtype, dtype_name
from ...errors import InvalidRequest
from ...plans.lowering import Lowered, Scalar
from .attributes import DrawAttributes
from .engines import DRAWN, PAIRED, CurandEngine
from .operands import output
from .spec import as_shape, check_parameters, is_array, parameter_names, signed

if TYPE_CHECKING:
    from .request import RandomRequest

__all__ = ["lower_draw"]

_RATES: Final = 2.0**31


def _dtype(request: RandomRequest, engine: CurandEngine) -> str:
    allowed = DRAWN[request.distribution] or (engine.rules.words,)
    given = request.dtype if request.dtype is not None else getattr(request.out, "dtype", allowed[0])
    found = dtype_name(as_dtype(given))
    if found not in allowed:
        raise InvalidRequest(
            f"dtype {found} of {request.distribution} numbers of cuRAND's {engine.name}; allowed: {', '.join(allowed)}"
        )
    return found


def _check_count(request: RandomRequest, engine: CurandEngine, shape: tuple[int, ...]) -> None:
    count, rules = math.prod(shape), engine.rules
    if rules.quasi and count % engine.dimensions:
        raise InvalidRequest(
            f"{count} numbers of shape {shape} in {engine.dimensions} dimensions; allowed: a multiple of "
            f"{engine.dimensions}"
        )
    if not rules.quasi and request.distribution in PAIRED and count % 2:
        raise InvalidRequest(
            f"{count} {request.distribution} numbers of cuRAND's {engine.name}, which makes pairs; allowed: an even "
            f"number"
        )


def _checked_parameters(distribution: str, dtype: str, given: dict[str, Any]) -> tuple[float, ...]:
    """Return the parameters that cuRAND gets, or those of the copy after it."""
    if distribution == "integers":
        low, high, most = given["low"], given["high"], 2 ** (8 * DTYPES[dtype].itemsize)
        if not (is_integer(low) and is_integer(high) and low == 0 and high == most):
            raise InvalidRequest(f"low={low!r} and high={high!r} of a generator's words; allowed: 0 and {most}")
        return ()
    found = check_parameters(distribution, dtype, given)
    if distribution == "poisson" and not 0 < found[0] <= _RATES:
        raise InvalidRequest(f"rate={given['rate']!r} of cuRAND's numbers; allowed: (0, {_RATES:g}]")
    if distribution == "uniform" and found == (0.0, 1.0):
        return ()
    return found


def _checked_range(engine: CurandEngine, count: int, seed: Any, stream: Any, offset: Any) -> tuple[int, int]:
    rules = engine.rules
    as_integer("stream", stream, 0, 0)
    if not is_integer(seed) or not 0 <= seed < rules.seeds:
        which = "0, since Sobol points have no seed" if rules.quasi else f"integers from 0 to {rules.seeds - 1}"
        raise InvalidRequest(f"seed={seed!r}; allowed: {which}")
    taken = count // engine.dimensions if rules.quasi else 0
    most = max(0, rules.positions - max(1, taken))
    if not is_integer(offset) or not 0 <= offset <= most:
        raise InvalidRequest(
            f"offset={offset!r} with {count} numbers of cuRAND's {engine.name}; allowed: "
            f"{f'integers from 0 to {most}' if most else '0, since it has no offsets'}"
        )
    return signed(int(seed)), signed(int(offset))


def _converter(
    distribution: str, dtype: str, engine: CurandEngine, count: int, names: tuple[str, ...]
) -> Callable[..., tuple[float | int, ...]]:
    def convert(*values: Any) -> tuple[float | int, ...]:
        own = dict(zip(names, values, strict=False))
        checked = _checked_parameters(distribution, dtype, own)
        return (*checked, *_checked_range(engine, count, *values[len(names) :]))

    return convert


def lower_draw(request: RandomRequest, engine: CurandEngine) -> Lowered:
    """Return the message of a request whose numbers a generator of cuRAND gives.

    Raises
    ------
    InvalidRequest
        For what it does not have; the message names the value and the allowed ones.
    """
    distribution = request.distribution
    if distribution not in DRAWN:
        raise InvalidRequest(
            f"engine={request.engine!r} of {distribution} numbers; allowed with it: {', '.join(DRAWN)}"
        )
    names = ("low", "high") if distribution == "integers" else parameter_names(distribution)
    for name, value in (*zip(names, request.parameters, strict=True), ("offset", request.offset)):
        if is_array(value):
            raise InvalidRequest(f"{name} is an array, with cuRAND's {engine.name}; allowed: a number")
    dtype = _dtype(request, engine)
    shape = as_shape(request.shape if request.shape is not None else getattr(request.out, "shape", ()), dtype)
    _check_count(request, engine, shape)
    if request.out is not None and not is_contiguous(request.out):
        raise InvalidRequest(
            f"out has strides {tuple(request.out.strides)}; allowed with cuRAND's {engine.name}: the contiguous "
            f"{contiguous_strides(shape, DTYPES[dtype].itemsize)}"
        )
    convert = _converter(distribution, dtype, engine, math.prod(shape), names)
    values = convert(*request.parameters, request.seed, request.stream, request.offset)
    travelling = names[: len(values) - 2]
    scaled = distribution == "uniform" and bool(travelling)
    scalars = zip((*travelling, "seed", "offset"), values, strict=True)
    return Lowered(
        op="random.draw",
        operands=(output(request.out, dtype, shape, []),),
        collect=itemgetter("out"),
        attributes=DrawAttributes(
            distribution=distribution,
            engine=engine.name,
            dimensions=engine.dimensions,
            ordering=engine.ordering,
            scaled=scaled,
        ),
        scalars=tuple(Scalar(name, "float64" if name in travelling else "int64", value) for name, value in scalars),
        numbers=(*(f"p{i}" for i in range(len(names))), "seed", "stream", "offset"),
        convert=convert,
    )
