"""Rules of random numbers: parameters of distributions and their limits, dtypes, shapes, positions."""

from __future__ import annotations

import math
from collections.abc import Callable, Container
from typing import Any, Final, NamedTuple, cast

import numpy as np

from ..._support.checks import as_integer, is_integer, is_real
from ...arrays.operands import check_input, check_size
from ...compile.shipped import Part
from ...dtypes import DTYPES, as_dtype, dtype_name
from ...errors import InvalidRequest
from .generator import POSITIONS, SEEDS, STREAMS
from .kernels.positions import CURAND, INTEGERS, REJECTING, computed

__all__ = [
    "DTYPES_OF", "PARAMETERS", "as_shape", "check_counters", "check_offset", "check_parameters", "converter",
    "element_dtype", "fill_kernels", "is_array", "parameter_names", "signed",
    "streams_of",
]  # fmt: skip

_FLOATS: Final = ("float32", "float16", "bfloat16", "float64")
_COUNTS: Final = (*INTEGERS, *_FLOATS)
_TRIALS: Final = 2.0**53


class Limits(NamedTuple):
    """The range of a parameter: `most` is the largest finite number if it is None."""

    least: float
    most: float | None = None
    above: bool = False
    whole: bool = False
    infinite: bool = False


_ANY: Final = Limits(-math.inf)
_SPREAD: Final = Limits(0.0)
_POSITIVE: Final = Limits(0.0, above=True)
_CHANCE: Final = Limits(0.0, 1.0)
_BOUND: Final = Limits(-math.inf, infinite=True)
#: Of each distribution but integers: its parameters, in the order of `RandomRequest`, and their ranges.
PARAMETERS: Final[dict[str, dict[str, Limits]]] = {
    "uniform": {"low": _ANY, "high": _ANY},
    "bernoulli": {"p": _CHANCE},
    "normal": {"mean": _ANY, "std": _SPREAD},
    "lognormal": {"mean": _ANY, "sigma": _SPREAD},
    "exponential": {"scale": _SPREAD},
    "cauchy": {"loc": _ANY, "scale": _SPREAD},
    "geometric": {"p": Limits(0.0, 1.0, above=True)},
    "truncated_normal": {"mean": _ANY, "std": _POSITIVE, "low": _BOUND, "high": _BOUND},
    "gamma": {"alpha": _POSITIVE, "scale": _SPREAD},
    "beta": {"a": _POSITIVE, "b": _POSITIVE},
    "poisson": {"rate": Limits(0.0, _TRIALS)},
    "binomial": {"n": Limits(0.0, _TRIALS, whole=True), "p": _CHANCE},
}
#: Of each distribution, the dtypes of its elements; the first one is the default.
DTYPES_OF: Final = {
    **dict.fromkeys(PARAMETERS, _FLOATS),
    "integers": ("int64", *(name for name in INTEGERS if name != "int64")),
    "bernoulli": ("bool", *_COUNTS),
    **dict.fromkeys(("geometric", "poisson", "binomial"), ("int64", *(name for name in _COUNTS if name != "int64"))),
}


def is_array(value: object) -> bool:
    """Whether a parameter is an array, and not a number."""
    return hasattr(value, "strides") and hasattr(value, "dtype") and not isinstance(value, np.generic)


def parameter_names(distribution: str, arrays: Container[str] = ()) -> tuple[str, ...]:
    """Return the names of a distribution's parameters, as messages have them, with those that are `arrays`.

    In place of a number `high`, integers have ``last``, the difference of the largest and the least number, or where
    `low` is an array ``most``, the largest.
    """
    if distribution != "integers":
        return tuple(PARAMETERS[distribution])
    return "low", "high" if "high" in arrays else "most" if "low" in arrays else "last"


def element_dtype(distribution: str, dtype: object, engine: str = "philox") -> str:
    """Return the name of the elements' dtype; None stands for the default.

    Raises
    ------
    InvalidRequest
        For a dtype that the distribution does not have, and a distribution that the engine does not have.
    """
    allowed = DTYPES_OF[distribution]
    if engine == "curand_philox":
        if distribution not in CURAND:
            raise InvalidRequest(f"engine={engine!r} of {distribution} numbers; allowed with it: {', '.join(CURAND)}")
        allowed = CURAND[distribution]
    name = allowed[0] if dtype is None else dtype_name(as_dtype(dtype))
    if name not in allowed:
        by = "" if engine == "philox" else f" of engine {engine!r}"
        raise InvalidRequest(f"dtype {name} of {distribution} numbers{by}; allowed: {', '.join(allowed)}")
    return name


def as_shape(shape: object, dtype: str) -> tuple[int, ...]:
    """Return a shape, given as an integer or integers.

    Raises
    ------
    InvalidRequest
        For anything else, and for one that no array has.
    """
    found = (shape,) if is_integer(shape) else shape
    if not isinstance(found, tuple | list) or not all(is_integer(n) and n >= 0 for n in found):
        raise InvalidRequest(f"shape={shape!r}; allowed: an integer, or integers, of 0 or more")
    made = tuple(int(n) for n in found)
    check_size("shape", made, DTYPES[dtype])
    return made


def _number(name: str, value: object, limits: Limits, largest: float) -> float:
    if not is_real(value):
        raise InvalidRequest(f"{name}={value!r}; it must be a real number, or an array of float32 or float64")
    try:
        number = float(cast("float", value))
    except OverflowError:  # an integer beyond all floats
        number = math.inf if cast("int", value) > 0 else -math.inf
    most = largest if limits.most is None else limits.most
    within = max(limits.least, -largest) <= number <= most or (limits.infinite and math.isinf(number))
    if not within or (limits.above and number == limits.least) or (limits.whole and number != math.floor(number)):
        begin = "(" if limits.above or limits.least == -math.inf else "["
        kind = "whole numbers in " if limits.whole else ""
        raise InvalidRequest(f"{name}={value!r}; allowed: {kind}{begin}{limits.least:g}, {most:g}]")
    return number


def check_parameters(distribution: str, dtype: str, values: dict[str, Any]) -> tuple[float | int, ...]:
    """Return those parameters that are numbers as a message has them; the others are not among `values`.

    Raises
    ------
    InvalidRequest
        For numbers beyond the limits, and pairs in the wrong order.
    """
    if distribution == "integers":
        return _check_integers(dtype, **values)
    largest = float(np.finfo(computed(distribution, dtype)).max)
    limits = PARAMETERS[distribution]
    found = {name: _number(name, value, limits[name], largest) for name, value in values.items()}
    if "low" in found and "high" in found:
        low, high = found["low"], found["high"]
        if distribution == "uniform" and not (low <= high and high - low <= largest):
            raise InvalidRequest(
                f"low={low!r} and high={high!r}; allowed: a high that is not below low, and at most {largest:g} above"
            )
        if distribution == "truncated_normal" and not (low < high and low < math.inf and high > -math.inf):
            raise InvalidRequest(f"low={low!r} and high={high!r}; allowed: a high above low")
    return tuple(found.values())


def _check_integers(dtype: str, **given: Any) -> tuple[int, ...]:
    limits = np.iinfo(dtype)
    for name, value in given.items():
        if not is_integer(value):
            raise InvalidRequest(f"{name}={value!r}; it must be an integer, or an array of int32 or int64")
    if len(given) < 2:  # the other one is an array
        for name, value in given.items():
            first = limits.min + (name == "high")
            if not first <= value < first + 2 ** (8 * np.dtype(dtype).itemsize):
                raise InvalidRequest(
                    f"{name}={value!r}; allowed for {dtype}: integers from {first} to {limits.max + (name == 'high')}"
                )
        return tuple(signed(int(value) - (name == "high")) for name, value in given.items())
    low, high = given["low"], given["high"]
    if not limits.min <= low < high <= limits.max + 1:
        raise InvalidRequest(
            f"low={low!r} and high={high!r}; allowed for {dtype}: integers low < high from {limits.min} to "
            f"{limits.max + 1}"
        )
    return signed(int(low)), signed(int(high) - 1 - int(low))


def signed(number: int) -> int:
    """Return an integer below 2**64 as the int64 of the same bits."""
    return number - 2**64 if number >= 2**63 else number


def streams_of(engine: str) -> int:
    """Return how many streams a seed has."""
    return 1 if engine == "curand_philox" else STREAMS


def check_counters(count: int, seed: Any, stream: Any, *offset: Any, streams: int = STREAMS) -> tuple[int, ...]:
    """Return seed, stream, and the offset if it is a number, as int64 of the same bits.

    Raises
    ------
    InvalidRequest
        For numbers beyond their limits, and `count` positions that end beyond 2**64.
    """
    found = [signed(as_integer("seed", seed, 0, SEEDS - 1)), as_integer("stream", stream, 0, streams - 1)]
    for start in offset:
        found.append(signed(as_integer("offset", start, 0, POSITIONS - 1)))
        if int(start) + count > POSITIONS:
            raise InvalidRequest(f"offset={start!r} with {count} elements; allowed: {POSITIONS - count} or less")
    return tuple(found)


def converter(
    distribution: str, dtype: str, count: int, names: tuple[str, ...], streams: int = STREAMS
) -> Callable[..., tuple[float | int, ...]]:
    """Return the function from a call's numbers to a message's: parameters of these names, seed, stream and offset.

    It raises what `check_parameters` and `check_counters` raise.  Numbers that are plainly within their limits are
    returned as they are.
    """
    n, last = len(names), min(2**63 - 1, POSITIONS - count)
    largest = float(np.finfo(computed(distribution, dtype)).max)
    ranges: list[tuple[float, float]] = []
    if distribution not in ("integers", "binomial", "truncated_normal"):
        for name in names:
            limits = PARAMETERS[distribution][name]
            least = math.nextafter(0.0, 1.0) if limits.above else max(limits.least, -largest)
            ranges.append((least, largest if limits.most is None else limits.most))
    plain = bool(ranges) or not names
    ordered = names == ("low", "high")

    def convert(*values: Any) -> tuple[float | int, ...]:
        if plain:
            for value, (least, most) in zip(values, ranges, strict=False):
                if type(value) is not float or not least <= value <= most:
                    break
            else:
                seed, stream, start = (*values[n:], 0)[:3]
                whole = type(seed) is int and type(stream) is int and type(start) is int
                sound = whole and 0 <= seed < 2**63 and 0 <= stream < streams and 0 <= start <= last
                if sound and (not ordered or (values[0] <= values[1] and values[1] - values[0] <= largest)):
                    return values
        own = dict(zip(names, values[:n], strict=True))
        return (*check_parameters(distribution, dtype, own), *check_counters(count, *values[n:], streams=streams))

    return convert


def check_offset(offset: Any) -> None:
    """Raise `InvalidRequest` unless an array is an offset."""
    check_input("offset", offset)
    found = dtype_name(as_dtype(offset.dtype))
    if found not in ("int64", "uint64") or math.prod(offset.shape) != 1:
        raise InvalidRequest(
            f"offset has dtype {found} and shape {tuple(offset.shape)}; allowed: an integer, or an array of int64 or "
            f"uint64 with one element"
        )


def fill_kernels(
    distribution: str, dtype: str, contiguous: bool, parameters: tuple[Any, ...], given: bool, engine: str
) -> tuple[Part, ...]:
    """Return the kernels of a fill, in launch order; `given`: whether the offset is in memory."""
    kinds = [dtype_name(as_dtype(p.dtype)) if is_array(p) else "number" for p in parameters]
    arrays = any(kind != "number" for kind in kinds)
    plain = contiguous and not arrays
    if distribution == "integers":
        own = (("dtype", dtype), ("given", given), ("engine", engine))
        if not arrays:
            return (Part("integers", (*own, ("plain", plain))),)
        return Part("clear", ()), Part("ranges", (*own, ("kinds", tuple(kinds))))
    kinds += ["none"] * (4 - len(kinds))
    clear = (Part("clear", ()),) if arrays else ()
    options = (("distribution", distribution), ("dtype", dtype), ("kinds", tuple(kinds)), ("plain", plain),
               ("given", given))  # fmt: skip
    if distribution in REJECTING:
        return (*clear, Part("reject", options))
    return (*clear, Part("fill", (*options, ("engine", engine))))
