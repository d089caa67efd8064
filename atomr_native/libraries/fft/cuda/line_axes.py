"""Transforms along several axes: the first or the last by a kernel of this library, the others by cuFFT between.

The kernel of the first axis reads x as it is, by a function if there is one; that of the last writes out.  So nothing
is copied for what cuFFT does not take, and cuFFT calls no functions, which slow down its own kernels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from ....builders.cuda.workspace import padded
from ..attributes import FftAttributes
from ..spec import COMPLEX_OF, COMPUTED, TRANSFORMS, factor, whole_shape
from .line_steps import plan_lines
from .line_types import End
from .planner import plan_arrays
from .steps import Array, Axes, Steps, in_order, order_of

__all__ = ["Functions", "plan_axes"]

_OUTER = "cuFFT takes longer for several axes of which none is innermost"
_KEPT = "x is kept, and parts of it that a real result does not have are dropped"


@dataclass(frozen=True, slots=True)
class Functions:
    """Functions of the user's, by ``"load"`` and ``"store"``.

    Attributes
    ----------
    arrays : dict of str to Array
        The dense arrays that they know places of.
    symbols : dict of str to str
    codes : dict of str to str
        Text that is compiled with a kernel.
    linked : dict of str to bytes
        LTO-IR that is linked to it, or nothing for text that is compiled by itself.
    """

    arrays: Mapping[str, Array] = field(default_factory=dict)
    symbols: Mapping[str, str] = field(default_factory=dict)
    codes: Mapping[str, str] = field(default_factory=dict)
    linked: Mapping[str, bytes] = field(default_factory=dict)

    def end(self, which: str, axis: int) -> End | None:
        """Return the end of lines along an axis, or None if there is no such function."""
        return End(self.arrays[which], axis, symbol=self.symbols[which]) if which in self.arrays else None

    def texts(self, *names: str) -> tuple[str, ...]:
        """Return the text of these functions, of those that are compiled with a kernel."""
        return tuple(self.codes[which] for which in names if which in self.codes)

    def programs(self, *names: str) -> tuple[tuple[str, bytes], ...]:
        """Return these functions, of those that are linked to a kernel."""
        return tuple((which, self.linked[which]) for which in names if which in self.linked)


@dataclass(frozen=True, slots=True)
class _Plan:
    """One transform: active axes and their points; the array between the first and the last."""

    how: FftAttributes
    x: Array
    out: Array
    functions: Functions
    reason: str
    points: Mapping[int, int]

    @property
    def kind(self) -> str:
        return TRANSFORMS[self.how.transform]

    @property
    def whole(self) -> str:
        """Name of the transform along axes that are complex before and after."""
        return "ifft" if self.how.transform in ("ifft", "irfft") else "fft"

    def pairs(self) -> Iterator[tuple[int, int]]:
        """Yield first and last axes, those whose points are neighbours in memory before others."""
        near = sorted(self.points, key=lambda a: abs(self.x.strides[a]))
        halved = [self.how.axes[-1]]
        for first in halved if self.kind == "r2c" else near:
            for last in halved if self.kind == "c2r" else near:
                if first != last:
                    yield first, last

    def attributes(self, transform: str, axes: Axes, aligned: tuple[bool, bool]) -> FftAttributes:
        lengths = tuple(self.points[a] for a in axes)
        return FftAttributes(transform=transform, axes=axes, lengths=lengths, norm="none", aligned=aligned)

    def steps(self, first: int | None, last: int | None) -> Steps | None:
        """Return the steps with kernels of this library for these axes, and cuFFT for the others."""
        how, x, out = self.how, self.x, self.out
        whole = COMPLEX_OF[COMPUTED[x.dtype]]
        shape = whole_shape(self.kind, x.shape, how.axes, how.lengths) if self.kind == "c2r" else out.shape
        between, aligned, nbytes = out, how.aligned[1], 0
        if self.kind == "c2r" or (last is not None and (out.dtype != whole or not aligned)):
            between = Array(("workspace", 0), whole, shape, in_order(shape, order_of(x)))
            aligned, nbytes = True, padded(between.nbytes)
        called = bool(self.functions.arrays)
        scale = 1.0 if called else factor(how.transform, how.norm, how.lengths)
        found: list[Steps | None] = []
        rest = tuple(a for a in self.points if a not in (first, last))
        if first is not None:
            short = any(n < shape[a] for a, n in enumerate(x.shape) if a != first)
            load = self.functions.end("load", first)
            if short and load is None:
                return None
            transform = self.whole if self.kind == "c2r" else how.transform
            reason = "it calls the function load" if load else self.reason
            attributes = self.attributes(transform, (first,), (how.aligned[0], aligned))
            own: tuple[str, ...] = ("load",) if load else ()
            found.append(
                plan_lines(
                    attributes, x, between, load=load, scale=1.0 if last is not None else scale, reason=reason,
                    codes=self.functions.texts(*own), linked=self.functions.programs(*own),
                )
            )  # fmt: skip
        if rest:
            crop = replace(x, shape=tuple(min(n, m) for n, m in zip(x.shape, shape, strict=True)))
            real = first is None and self.kind == "r2c"
            source, begins = (between, aligned) if first is not None else (x if real else crop, how.aligned[0])
            made = self.middle(source, between, rest, (begins, aligned), nbytes, real)
            found.append(made)
            nbytes = nbytes if made is None else made.nbytes
        if last is not None:
            store = self.functions.end("store", last)
            transform = how.transform if self.kind == "c2r" else self.whole
            attributes = self.attributes(transform, (last,), (aligned, how.aligned[1]))
            own = () if store is None else ("store",)
            reason = "it calls the function store" if own else _KEPT if called else self.reason
            found.append(
                plan_lines(
                    attributes, between, out, store=store, scale=scale, reason=reason,
                    codes=self.functions.texts(*own), linked=self.functions.programs(*own),
                )
            )  # fmt: skip
        if any(steps is None for steps in found):
            return None
        return Steps(tuple(step for each in found if each is not None for step in each.steps), nbytes)

    def middle(
        self, source: Array, between: Array, axes: Axes, aligned: tuple[bool, bool], nbytes: int, real: bool
    ) -> Steps | None:
        """Return the transform along these axes by cuFFT without copies, or each by a kernel; a halved one first."""
        halved = self.how.axes[-1]
        axes = (*(a for a in axes if a != halved), halved) if real else axes
        planned = plan_arrays(
            self.attributes(self.how.transform if real else self.whole, axes, aligned), source, between, nbytes
        )
        inner = min(range(len(between.shape)), key=lambda a: abs(between.strides[a]))
        if not planned.reason and (len(axes) == 1 or inner in axes):
            return planned  # a plan of cuFFT of several axes, none of them innermost, takes longer than a copy
        found = []
        for axis in reversed(axes):
            attributes = self.attributes(self.how.transform if real else self.whole, (axis,), aligned)
            made = plan_lines(attributes, source, between, scale=1.0, reason=planned.reason or _OUTER)
            others = (a for a in range(len(source.shape)) if not (real and a == axis))
            if made is None or any(source.shape[a] < between.shape[a] for a in others):
                return None
            found += list(made.steps)
            source, aligned, real = between, (aligned[1], aligned[1]), False
        return Steps(tuple(found), nbytes)


def plan_axes(
    how: FftAttributes, x: Array, out: Array, reason: str, functions: Functions | None = None
) -> Steps | None:
    """Return a transform along several axes without a copy and without functions that cuFFT calls, or None.

    Parameters
    ----------
    how : FftAttributes
    x, out : Array
        Operands.
    reason : str
        Why cuFFT does not transform by itself.
    functions : Functions, optional
    """
    given = zip(how.axes, how.lengths, strict=True)
    points = {a: n for a, n in given if n > 1 or x.shape[a] > 1}
    if len(points) < 2 or how.transform == "ihfft" or min(points.values()) < 2:
        return None
    plan = _Plan(how, x, out, functions or Functions(), reason, points)
    if plan.kind != "c2c" and how.axes[-1] not in points:
        return None
    arrays = plan.functions.arrays
    ends = plan.kind == "c2r" or "store" in arrays
    for starts in (True,) if "load" in arrays or not ends else (False, True):
        for first, last in plan.pairs():
            steps = plan.steps(first if starts else None, last if ends else None)
            if steps is not None:
                return steps
    return None
