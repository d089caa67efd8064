"""The random actor, ``device.random``: arrays of random numbers, and random orders, as messages.

Requests and their rules are in `RandomRequest` and its like; docs/libraries/random.md has the methods.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._support.checks import is_integer
from ..._support.options import check_options
from ..._support.public import public
from ...arrays.gpu_ref import GpuRef
from ...errors import InvalidRequest
from ...plans.actor import LibraryActor
from .choices import checked_weights
from .engines import CurandEngine, engine_of
from .forms import CHOICE, FILL, FORMS, PERMUTATION, SHUFFLE
from .generator import Generator
from .spec import is_array

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeAlias, TypedDict, Unpack

    from ...plans.lowering import Request
    from ...plans.plan import Plan

    Shape: TypeAlias = int | Sequence[int] | None
    Parameter: TypeAlias = float | GpuRef

    class Source(TypedDict, total=False):
        """Where numbers come from, and where they go."""

        generator: Generator | None
        seed: int | None
        stream: int
        offset: int | GpuRef
        out: GpuRef | None


__all__ = ["Random"]


@public
class Random(LibraryActor):
    """Random numbers on one device; messages to it run in order.

    Every method enqueues and returns its result at once: the array that was given as ``out=``, or a new one, which is
    its own future.  None waits for the device, except that the first call of a structure waits for its kernels and its
    plan, and that a full mailbox blocks or raises as the System was told.

    ``shape`` is an integer or a tuple; without it the shape is that of `out`, or to which the parameters broadcast.
    ``dtype`` is that of `out`, or by default float32 for real numbers, int64 for whole ones and bool for `bernoulli`.
    Real numbers are float64, float32, float16 or bfloat16; counts may be these or any integer, whose largest number
    stands for larger ones.  Parameters are numbers, or arrays of float32 or float64 that broadcast to the shape.
    ``engine="curand_philox"`` gives the sequence of cuRAND's generator of that name, and a `CurandEngine` one of its
    others, by cuRAND (see `RandomRequest`).

    Numbers come from ``seed=``, ``stream=`` and ``offset=``, or from the next range of ``generator=``; without either
    from `generator` of this actor.  The same seed, stream and offset give the same bits on every device.

    All methods raise `InvalidRequest` before anything is enqueued, `Unsupported`, `LibraryError`, `OutOfMemory` and
    `MailboxFull`.  Where arrays on the device have parameters beyond their limits, the message fails with
    `LibraryError`.

    Examples
    --------
    >>> x = device.random.normal((2, 3), seed=7)
    >>> y = device.random.normal((2, 2), seed=7, offset=2)
    >>> bool((x.numpy().ravel()[2:] == y.numpy().ravel()).all())
    True
    >>> device.random.integers((3,), "int8", low=5, high=6, seed=7).numpy()
    array([5, 5, 5], dtype=int8)
    """

    _forms = FORMS

    def __init__(self, device: Any, name: str = "random") -> None:
        super().__init__(device, name)
        #: The source of numbers for calls that name none, with a seed of the operating system's entropy.
        self.generator = Generator()

    # ------------------------------------------------------------------------------------------ words, one by one

    def uniform(
        self,
        shape: Shape = None,
        dtype: object = None,
        low: Parameter = 0.0,
        high: Parameter = 1.0,
        *,
        engine: str | CurandEngine = "philox",
        **source: Unpack[Source],
    ) -> GpuRef:
        """Send real numbers from `low` to less than `high`, both rounded to `dtype`; equal bounds give that number.

        Of the engine ``"curand_philox"`` numbers are above `low` and may be `high`.
        """
        return self._fill("uniform", shape, dtype, (low, high, 0.0, 0.0), source, engine)

    def integers(
        self, shape: Shape = None, dtype: object = None, low: int | GpuRef = 0, high: int | GpuRef = 2,
        *, engine: str | CurandEngine = "philox", **source: Unpack[Source],
    ) -> GpuRef:  # fmt: skip
        """Send integers from `low` to `high` - 1, each with the same probability.

        Arrays of bounds are int32 or int64.  Of the engine ``"curand_philox"`` the numbers from 0 to 2**32 - 1 are the
        words of cuRAND's sequence.
        """
        return self._fill("integers", shape, dtype, (low, high, 0.0, 0.0), source, engine)

    def bernoulli(
        self, shape: Shape = None, dtype: object = None, p: Parameter = 0.5, **source: Unpack[Source]
    ) -> GpuRef:
        """Send True, or 1, with the probability `p` in steps of 2**-32, else False, or 0."""
        return self._fill("bernoulli", shape, dtype, (p, 0.0, 0.0, 0.0), source)

    # ------------------------------------------------------------------------------------------ real numbers

    def normal(
        self,
        shape: Shape = None,
        dtype: object = None,
        mean: Parameter = 0.0,
        std: Parameter = 1.0,
        *,
        engine: str | CurandEngine = "philox",
        **source: Unpack[Source],
    ) -> GpuRef:
        """Send numbers of the normal distribution with this mean and standard deviation."""
        return self._fill("normal", shape, dtype, (mean, std, 0.0, 0.0), source, engine)

    def lognormal(
        self,
        shape: Shape = None,
        dtype: object = None,
        mean: Parameter = 0.0,
        sigma: Parameter = 1.0,
        *,
        engine: str | CurandEngine = "philox",
        **source: Unpack[Source],
    ) -> GpuRef:
        """Send numbers whose logarithms have the normal distribution with this mean and standard deviation."""
        return self._fill("lognormal", shape, dtype, (mean, sigma, 0.0, 0.0), source, engine)

    def truncated_normal(
        self,
        shape: Shape = None,
        dtype: object = None,
        mean: Parameter = 0.0,
        std: Parameter = 1.0,
        low: Parameter = -2.0,
        high: Parameter = 2.0,
        **source: Unpack[Source],
    ) -> GpuRef:
        """Send numbers of the normal distribution with `mean` and `std` of those from `low` to `high`.

        A bound may be infinite.
        """
        return self._fill("truncated_normal", shape, dtype, (mean, std, low, high), source)

    def exponential(
        self, shape: Shape = None, dtype: object = None, scale: Parameter = 1.0, **source: Unpack[Source]
    ) -> GpuRef:
        """Send numbers of the exponential distribution with the mean `scale`."""
        return self._fill("exponential", shape, dtype, (scale, 0.0, 0.0, 0.0), source)

    def gamma(
        self,
        shape: Shape = None,
        dtype: object = None,
        alpha: Parameter = 1.0,
        scale: Parameter = 1.0,
        **source: Unpack[Source],
    ) -> GpuRef:
        """Send numbers of the gamma distribution with the shape parameter `alpha` and the mean ``alpha * scale``."""
        return self._fill("gamma", shape, dtype, (alpha, scale, 0.0, 0.0), source)

    def beta(
        self, shape: Shape = None, dtype: object = None, a: Parameter = 1.0, b: Parameter = 1.0,
        **source: Unpack[Source],
    ) -> GpuRef:  # fmt: skip
        """Send numbers of the beta distribution with the mean ``a / (a + b)``."""
        return self._fill("beta", shape, dtype, (a, b, 0.0, 0.0), source)

    def cauchy(
        self,
        shape: Shape = None,
        dtype: object = None,
        loc: Parameter = 0.0,
        scale: Parameter = 1.0,
        **source: Unpack[Source],
    ) -> GpuRef:
        """Send numbers of the Cauchy distribution with the median `loc` and half the interquartile range `scale`."""
        return self._fill("cauchy", shape, dtype, (loc, scale, 0.0, 0.0), source)

    # ------------------------------------------------------------------------------------------ counts

    def geometric(
        self, shape: Shape = None, dtype: object = None, p: Parameter = 0.5, **source: Unpack[Source]
    ) -> GpuRef:
        """Send how many trials with the probability `p` it takes to the first success: 1 or more."""
        return self._fill("geometric", shape, dtype, (p, 0.0, 0.0, 0.0), source)

    def poisson(
        self,
        shape: Shape = None,
        dtype: object = None,
        rate: Parameter = 1.0,
        *,
        engine: str | CurandEngine = "philox",
        **source: Unpack[Source],
    ) -> GpuRef:
        """Send numbers of the Poisson distribution with the mean `rate`, up to 2**53, of cuRAND itself up to 2**31."""
        return self._fill("poisson", shape, dtype, (rate, 0.0, 0.0, 0.0), source, engine)

    def binomial(
        self,
        shape: Shape = None,
        dtype: object = None,
        n: Parameter = 1,
        p: Parameter = 0.5,
        **source: Unpack[Source],
    ) -> GpuRef:
        """Send how many of `n` trials, up to 2**53, succeed with the probability `p` each."""
        return self._fill("binomial", shape, dtype, (n, p, 0.0, 0.0), source)

    # ------------------------------------------------------------------------------------------ choices, orders

    def discrete(
        self,
        weights: GpuRef | Sequence[float],
        shape: Shape = None,
        dtype: object = None,
        *,
        replace: bool = True,
        **source: Unpack[Source],
    ) -> GpuRef:
        """Send indices that are drawn by their weights; see `ChoiceRequest`.

        Weights that are no handle are checked and copied to the device, as float64.
        """
        if not isinstance(weights, GpuRef):
            weights = self.device.put(checked_weights(weights))
        if type(shape) is list:
            shape = tuple(shape)
        count = _count(shape, source.get("out"), ()) if replace is True else getattr(weights, "size", 0)
        seed, stream, offset = self._range("discrete", source, count)
        made: GpuRef = self._calls.send(
            self, CHOICE, (weights, source.get("out"), shape, dtype, replace, seed, stream, offset)
        )
        return made

    def permutation(self, n: int, dtype: object = None, **source: Unpack[Source]) -> GpuRef:
        """Send the numbers from 0 to n - 1 in a random order; see `PermutationRequest`."""
        seed, stream, offset = self._range("permutation", source, n if is_integer(n) and n >= 0 else 0)
        made: GpuRef = self._calls.send(self, PERMUTATION, (source.get("out"), n, dtype, seed, stream, offset))
        return made

    def shuffle(self, x: GpuRef, **source: Unpack[Source]) -> GpuRef:
        """Send the rows of an array in a random order, to a new array or `out`; see `ShuffleRequest`."""
        rows = getattr(x, "shape", None)
        seed, stream, offset = self._range("shuffle", source, rows[0] if isinstance(rows, tuple) and rows else 0)
        made: GpuRef = self._calls.send(self, SHUFFLE, (x, source.get("out"), seed, stream, offset))
        return made

    # ------------------------------------------------------------------------------------------ messages

    def plan(self, request: Request[Any]) -> Plan:
        """Return the plan of a request, whose arrays lend their layouts only.

        ``plan.tell(out=x, seed=7, stream=0, offset=0, mean=0.0, std=1.0)``: arrays of parameters, in their order, and
        the array of the offset by position, numbers by name, with the request's values where a call has none, and not
        held against a request's limits.  Seed and offset are int64 there, of the same bits; integers have ``last``,
        ``high - 1 - low``, in place of ``high``, or ``most``, ``high - 1``, where `low` is an array.  Waits for the
        compiler, not for the worker.
        """
        if not isinstance(request, tuple(self._forms)):
            raise self._refused(request)
        return self._plan_of(request)

    def _fill(
        self, distribution: str, shape: Any, dtype: Any, parameters: tuple[Any, ...], source: Source,
        engine: str | CurandEngine = "philox",
    ) -> GpuRef:  # fmt: skip
        if type(shape) is list:
            shape = tuple(shape)
        out = source.get("out")
        if engine != "philox" and (own := engine_of(engine)) is not None:
            seed, stream, offset = self._state(distribution, source, own)
        elif source.get("seed") is None:
            count = _count(shape, out, parameters)
            seed, stream, offset = self._range(distribution, source, count)
        else:
            seed, stream, offset = self._range(distribution, source, 0)
        made: GpuRef = self._calls.send(
            self, FILL, (out, distribution, shape, dtype, engine, *parameters, seed, stream, offset)
        )
        return made

    def _state(self, method: str, source: Source, engine: CurandEngine) -> tuple[Any, Any, Any]:
        """Return seed, stream and offset for a generator of cuRAND, whose offsets are no ranges of a `Generator`."""
        if source.get("generator") is not None:
            raise InvalidRequest(
                f"generator={source['generator']!r} with cuRAND's {engine.name}; allowed: seed= and offset="
            )
        seed = source.get("seed")
        if seed is None:
            self._check_recorded()
            source = {**source, "seed": 0 if engine.rules.quasi else Generator().seed}
        return self._range(method, source, 0)

    def _check_recorded(self) -> None:
        if self.owner.core.recorders is not None and self.owner.core.recorder() is not None:
            raise InvalidRequest(
                "random numbers of a generator inside a recording: each replay would repeat them; allowed: seed= and "
                "offset=, as recorded numbers that each message gives"
            )

    def _range(self, method: str, source: Source, count: int) -> tuple[Any, Any, Any]:
        """Return seed, stream and offset: those that are given, or a range of a generator."""
        if not source.keys() <= _SOURCE:
            code = getattr(Random, method).__code__
            own = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
            check_options(f"Random.{method}", source, (*own, *_SOURCE))
        seed, generator = source.get("seed"), source.get("generator")
        if seed is not None and generator is None:
            return seed, source.get("stream", 0), source.get("offset", 0)
        if seed is not None or "stream" in source or "offset" in source:
            raise InvalidRequest(
                f"generator={generator!r}, seed={seed!r}, stream={source.get('stream')!r} and "
                f"offset={source.get('offset')!r}; allowed: a generator alone, or a seed with stream and offset"
            )
        self._check_recorded()
        if generator is None:
            generator = self.generator
        elif not isinstance(generator, Generator):
            raise InvalidRequest(f"generator is a {type(generator).__name__}; allowed: an atomr_native.Generator")
        return generator.take(count)


_SOURCE = frozenset(("generator", "seed", "stream", "offset", "out"))


def _count(shape: Any, out: Any, parameters: tuple[Any, ...]) -> int:
    """Return how many elements a request has; 0 for one that will be refused."""
    if shape is None:
        shape = getattr(out, "shape", None)
    if shape is None:
        try:
            shape = np.broadcast_shapes(*(p.shape for p in parameters if is_array(p)))
        except ValueError:
            return 0
    shape = (shape,) if is_integer(shape) else shape
    if not isinstance(shape, tuple) or not all(is_integer(n) and n >= 0 for n in shape):
        return 0
    return math.prod(map(int, shape))
