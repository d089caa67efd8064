"""Random numbers on the host device, by NumPy: every bit as on a GPU, by the formulas of its kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ..._support.philox import philox
from ...builders.context import Built, HostContext
from ...dtypes import DTYPES
from ...plans.spec import PlanSpec
from .attributes import ChooseAttributes, FillAttributes, PermuteAttributes
from .host_integers import integers, sound_ranges
from .kernels import curand, formulas
from .kernels.formulas import ATTEMPTS, DRAWS, allowed, below
from .kernels.functions import Arithmetic
from .kernels.permutation import FEW, ROUNDS, halves, round_function
from .kernels.positions import (
    BITS,
    CHUNK,
    LEAST_WEIGHT,
    LIMITS,
    MOST_ATTEMPTS,
    PAIRS,
    QUADS,
    SINGLES,
    computed,
    per_counter,
)
from .spec import parameter_names

__all__ = ["ARITHMETIC", "build_choose", "build_fill", "build_permute"]

Array = np.ndarray[Any, Any]

_BLOCK: Final = 1 << 14  # elements whose temporaries stay in the cache
_WORD: Final = 0xFFFFFFFF
_TERMS: Final = 200


def _plain(function: Any) -> Any:
    return function


def _search(u: Array, first: Array, a: Array, b: Array) -> Array:
    count, term, total = np.zeros_like(u), np.broadcast_to(first, u.shape), np.broadcast_to(first, u.shape)
    for i in range(1, _TERMS + 1):
        more = u >= total
        if not more.any():
            break
        count = np.where(more, count + 1.0, count)
        term = np.where(more, term * (a + b / np.float64(i)), term)
        total = np.where(more, total + term, total)
    return count


#: NumPy's operations on arrays, each of which rounds once.
ARITHMETIC: Final = {
    np.float32: Arithmetic(
        np.float32, _plain, np.multiply, np.sqrt, np.true_divide, np.sqrt, np.floor, np.where,
        lambda x: x.view(np.uint32).astype(np.int64),
        lambda bits: (bits & _WORD).astype(np.uint32).view(np.float32),
        lambda x: x.astype(np.float32), lambda x: x.astype(np.int64), lambda x: x.astype(np.float32), None,
    ),
    np.float64: Arithmetic(
        np.float64, _plain, np.multiply, np.sqrt, np.true_divide, np.sqrt, np.floor, np.where,
        lambda x: x.view(np.int64), lambda bits: bits.view(np.float64),
        lambda x: x.astype(np.float64), lambda x: x.astype(np.int64), lambda x: x.astype(np.float64), _search,
    ),
}  # fmt: skip


def _words(numbers: Array, kind: int, stream: int, seed: int) -> tuple[Array, ...]:
    """Return the four words of counters, as int64."""
    zeros = np.zeros_like(numbers)
    return _of_counters((numbers & _WORD, numbers >> 32 & _WORD, zeros + stream, zeros + kind), seed)


def _of_counters(counters: tuple[Array, ...], seed: int) -> tuple[Array, ...]:
    a, b, c, d = (word.astype(np.uint64) for word in counters)
    found = philox((a, b, c, d), (seed & _WORD, seed >> 32 & _WORD))
    return tuple(word.astype(np.int64) for word in found)


class _Drawn:
    """The elements of one block: their counters, and the place of each among its counter's.

    Parameters
    ----------
    start : int
        Position of the first; after the last one of 2**64 comes position 0.
    count : int
    stream, seed : int
    engine : str
        As `RandomRequest` has it.
    """

    def __init__(self, start: int, count: int, stream: int, seed: int, engine: str = "philox") -> None:
        self.start, self.count, self.stream, self.seed = start % 2**64, count, stream, seed
        self.engine = engine

    def _words(self, numbers: Array, kind: int, share: int) -> tuple[Array, ...]:
        if self.engine == "philox":
            return _words(numbers, kind, self.stream, self.seed)
        zeros, turns, sequence = np.zeros_like(numbers), numbers >> 16, numbers & 0xFFFF
        if share == 2:  # each of the 65536 sequences has two counters for four elements
            turns, sequence = numbers >> 17 << 1 | numbers & 1, numbers >> 1 & 0xFFFF
        return _of_counters((turns & _WORD, numbers >> 48, sequence, zeros), self.seed)

    def shared(self, share: int, kind: int, draw: Callable[[Any], tuple[Array, ...]]) -> Array:
        """Return what `draw` makes of the words of counters that `share` elements have in common."""
        first, skip = divmod(self.start, share)
        groups = -(-(skip + self.count) // share)
        numbers = (np.uint64(first) + np.arange(groups, dtype=np.uint64)) & np.uint64((2**64 - 1) // share)
        made = np.stack(draw(self._words(numbers.view(np.int64), kind, share)), axis=-1)
        return made.reshape(-1)[skip : skip + self.count]

    def own(self, index: Array, call: int) -> tuple[Array, ...]:
        """Return the words of a call that elements have for themselves."""
        numbers = np.uint64(self.start) + index.astype(np.uint64)
        return _words(numbers.view(np.int64), SINGLES + call, self.stream, self.seed)


def _failure(what: str) -> ValueError:
    """Return what a message fails by, as a GPU's does by a word of its kernels."""
    return ValueError(f"an array on the device has {what}")


def _start(offset: Array | int) -> int:
    """Return an offset, which has the bits of an int64, as an unsigned number."""
    return int(offset) % 2**64


def build_fill(spec: PlanSpec[FillAttributes], _context: HostContext) -> Built:
    """Return the run of ``random.fill``: operands and scalars as `RandomRequest` lowers to."""
    distribution, dtype = spec.attributes.distribution, spec.operands[-1].dtype
    at = {operand.name: i for i, operand in enumerate(spec.operands)}
    names, engine = parameter_names(distribution, at), spec.attributes.engine
    scalars_of = [name for name in (*names, "seed", "stream", "offset") if name not in at]
    checks = any(name in at for name in names)
    fill = integers(dtype, names[1]) if distribution == "integers" else _filler(distribution, dtype, engine)
    sound = _soundness(distribution, dtype, names)

    @np.errstate(all="ignore")
    def run(arrays: tuple[Array, ...], scalars: tuple[Any, ...]) -> None:
        given = {name: arrays[i] for name, i in at.items()}
        given.update(zip(scalars_of, scalars, strict=True))
        out = given["out"]
        count = out.size
        start = _start(given["offset"].item() if "offset" in at else given["offset"])
        seed, stream = int(given["seed"]), int(given["stream"])
        if count == 0:
            return
        values = [np.broadcast_to(given[name], out.shape).flat if name in at else given[name] for name in names]
        if checks and not sound(values, count):
            raise _failure("parameters beyond the limits of the distribution")
        for first in range(0, count, _BLOCK):
            part = slice(first, min(first + _BLOCK, count))
            drawn = _Drawn(start + first, part.stop - first, stream, seed, engine)
            own = [value[part] if isinstance(value, np.flatiter) else value for value in values]
            out.flat[part] = fill(drawn, own)

    return Built(run)


def _parameters(values: list[Any], count: int, real: Any) -> tuple[Array, ...]:
    """Return four parameters for each element in the computation type; those that are missing are 0."""
    padded = [*values, *(0.0,) * (4 - len(values))]
    return tuple(np.broadcast_to(np.asarray(value).astype(real), (count,)) for value in padded)


def _soundness(distribution: str, dtype: str, names: tuple[str, ...]) -> Callable[[list[Any], int], bool]:
    """Return the function that says whether all parameters of a message are within their limits."""
    if distribution == "integers":
        return lambda values, _: sound_ranges(dtype, names[1], *values)
    real = computed(distribution, dtype)
    sound = allowed(ARITHMETIC[real], distribution)
    return lambda values, count: _sound(sound, values, count, real)


def _sound(sound: Any, values: list[Any], count: int, real: Any) -> bool:
    for first in range(0, count, _BLOCK):
        part = slice(first, min(first + _BLOCK, count))
        own = [value[part] if isinstance(value, np.flatiter) else value for value in values]
        if not np.all(sound(*_parameters(own, part.stop - first, real))):
            return False
    return True


def _filler(distribution: str, dtype: str, engine: str) -> Callable[[_Drawn, list[Any]], Array]:
    """Return the function from the block's counters and parameters to its elements."""
    real, share = computed(distribution, dtype), per_counter(distribution, dtype)
    o = ARITHMETIC[real]
    stored = _stored(dtype)
    if share == 1:
        calls, make = ATTEMPTS[distribution]
        attempt = make(o)

        def rejected(drawn: _Drawn, values: list[Any]) -> Array:
            parameters = _parameters(values, drawn.count, real)
            result = np.zeros(drawn.count, real)
            left = np.arange(drawn.count)
            for count in range(MOST_ATTEMPTS):
                words = tuple(w for i in range(calls) for w in drawn.own(left, count * calls + i))
                found, value = attempt(words, *(p[left] for p in parameters))
                result[left] = value  # of the last attempt, if none is accepted
                left = left[~found]
                if not left.size:
                    break
            return stored(result)

        return rejected
    kind = QUADS if share == 4 else PAIRS
    methods = curand if engine == "curand_philox" else formulas
    draw = methods.DRAWS[distribution](o, BITS.get(dtype, 0))
    if distribution == "uniform":
        finish = methods.FINISHES[distribution](o, lambda x: stored(x).astype(real), below(o, dtype))
    else:
        finish = methods.FINISHES[distribution](o, None, None)

    def shared(drawn: _Drawn, values: list[Any]) -> Array:
        return stored(finish(drawn.shared(share, kind, draw), *_parameters(values, drawn.count, real)))

    return shared


def _stored(dtype: str) -> Callable[[Array], Array]:
    """Return the function that rounds numbers to elements: by way of float32 to those of 16 bits."""
    kind = DTYPES[dtype]
    if dtype in LIMITS:
        return lambda x: np.minimum(x, LIMITS[dtype]).astype(np.int64).astype(kind)
    if kind.itemsize == 2:
        return lambda x: x.astype(np.float32).astype(kind)
    return lambda x: x.astype(kind)


def build_permute(spec: PlanSpec[PermuteAttributes], _context: HostContext) -> Built:
    """Return the run of ``random.permute``: operands and scalars as its requests lower to."""
    at = {operand.name: i for i, operand in enumerate(spec.operands)}

    def run(arrays: tuple[Array, ...], scalars: tuple[Any, ...]) -> None:
        out = arrays[at["out"]]
        seed, stream = int(scalars[0]), int(scalars[1])
        start = _start(arrays[at["offset"]].item() if "offset" in at else scalars[2])
        n = out.shape[0]
        order = _order(n, start, stream, seed)
        out[...] = order.astype(out.dtype) if "x" not in at else arrays[at["x"]][order]

    return Built(run)


def _product(a: Array, b: int) -> tuple[Array, Array]:
    whole = a.astype(np.uint64) * np.uint64(b)
    return (whole & np.uint64(_WORD)).astype(np.int64), (whole >> np.uint64(32)).astype(np.int64)


_MIXED: Final = round_function(_product, _plain)


def _order(n: int, start: int, stream: int, seed: int) -> Array:
    """Return the permutation of so many numbers."""
    if n <= FEW:
        high, low, _, _ = _Drawn(start, n, stream, seed).own(np.arange(n), 0)
        return np.lexsort((low, high))
    keys = np.stack(_Drawn(start, ROUNDS // 4, stream, seed).own(np.arange(ROUNDS // 4), 0), axis=-1)
    upper, lower = halves(n)
    top, bottom = (1 << upper) - 1, (1 << lower) - 1
    numbers = np.arange(n)
    walking = np.arange(n)
    while walking.size:
        image = numbers[walking]
        left, right = image >> lower, image & bottom
        for first, second in keys.reshape(-1, 2):
            left ^= _MIXED(right, first) & top
            right ^= _MIXED(left, second) & bottom
        image = left << lower | right
        numbers[walking] = image
        walking = walking[image >= n]
    return numbers


def build_choose(spec: PlanSpec[ChooseAttributes], _context: HostContext) -> Built:
    """Return the run of ``random.choose``: operands and scalars as `ChoiceRequest` lowers to."""
    at = {operand.name: i for i, operand in enumerate(spec.operands)}
    o = ARITHMETIC[np.float64]
    uniform, logarithms = DRAWS["uniform"](o, 53), DRAWS["exponential"](o, 0)

    @np.errstate(all="ignore")
    def run(arrays: tuple[Array, ...], scalars: tuple[Any, ...]) -> None:
        out = arrays[at["out"]]
        weights = arrays[at["weights"]].astype(np.float64)
        seed, stream = int(scalars[0]), int(scalars[1])
        start = _start(arrays[at["offset"]].item() if "offset" in at else scalars[2])
        if out.size == 0:
            return
        if not np.all((weights >= 0) & (weights < np.inf)):
            raise _failure("weights that are negative or not finite")
        if not spec.attributes.replace:
            numbers = _Drawn(start, weights.size, stream, seed).shared(2, PAIRS, logarithms)
            times = np.where(weights > 0, (0.0 - numbers) / np.where(weights > 0, weights, 1.0), np.inf)
            order = np.argsort(times, kind="stable")[: out.size]
            if times[order[-1]] == np.inf:
                raise _failure(f"fewer than {out.size} weights above 0")
            out[...] = order.astype(out.dtype).reshape(out.shape)
            return
        padded = np.zeros(-(-weights.size // CHUNK) * CHUNK)
        padded[: weights.size] = weights
        parts = np.add.accumulate(padded.reshape(-1, CHUNK), axis=1)
        bases = np.add.accumulate(np.append(0.0, parts[:, -1]))
        if not LEAST_WEIGHT <= bases[-1] < np.inf:
            raise _failure(f"weights with the sum {bases[-1]}")
        sums = (bases[:-1, None] + parts).reshape(-1)[: weights.size]
        for first in range(0, out.size, _BLOCK):
            part = slice(first, min(first + _BLOCK, out.size))
            numbers = _Drawn(start + first, part.stop - first, stream, seed).shared(2, PAIRS, uniform)
            found = np.searchsorted(sums, numbers * bases[-1], side="right")
            out.flat[part] = np.minimum(found, weights.size - 1).astype(out.dtype)

    return Built(run)
