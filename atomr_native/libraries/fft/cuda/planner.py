"""The steps of a transform: calls of cuFFT, and copies where it does not take a layout.

A copy also converts, cuts, pads, drops what real transforms ignore, and multiplies by the factor.  All of this is a
function of the plan's specification; nothing here needs a device.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ....builders.cuda.workspace import padded
from ....dtypes import as_dtype
from ....plans.spec import PlanSpec
from ..attributes import FftAttributes
from ..fusion import wrong_callback
from ..spec import COMPLEX_OF, COMPUTED, TRANSFORMS, factor, whole_shape
from .layouts import MOST_AXES, Layout, match
from .steps import Array, Axes, Call, Move, Steps, in_order, operand, order_of

__all__ = ["plan_arrays", "plan_steps", "plans"]


class _Planner:
    """Plans one transform with its axes in given groups."""

    def __init__(
        self, how: FftAttributes, x: Array, out: Array, nbytes: int = 0, *, fused: bool = False, outer: bool = False
    ) -> None:
        self.how = how
        self.fused, self.outer = fused, outer
        self.kind = TRANSFORMS[how.transform]
        self.inverse = how.transform == "ifft" or self.kind == "c2r"
        self.axes = how.axes
        self.points = dict(zip(how.axes, how.lengths, strict=True))
        self.x, self.out = x, out
        self.real = COMPUTED[x.dtype]
        self.complex = COMPLEX_OF[self.real]
        self.alignment = as_dtype(self.complex).itemsize
        self.steps: list[Move | Call] = []
        self.nbytes = nbytes

    # -------------------------------------------------------------------------------------- pieces

    def draft(self, dtype: str, shape: Axes, order: Iterable[int]) -> Array:
        """Return an array at the end of the workspace, which `keep` makes a buffer."""
        return Array(("workspace", self.nbytes), dtype, shape, in_order(shape, order))

    def keep(self, array: Array) -> Array:
        """Have the array that was drafted last belong to the plan."""
        self.nbytes += padded(array.nbytes)
        return array

    def move(self, source: Array, target: Array, reason: str, symmetric: bool = False) -> Array:
        """Copy, and return the target."""
        axes = tuple(self.points.items()) if symmetric else ()
        self.steps.append(Move(source, target, reason, symmetric=axes))
        return target

    def matched(self, source: Array, target: Array, axes: Axes, kind: str) -> Layout | None:
        """Return the calls that transform `axes` from an array to another, if there are such."""
        lengths = tuple(self.points[a] for a in axes)
        return match(source.side, target.side, axes, lengths, kind, self.alignment)

    def transform(self, source: Array, target: Array, axes: Axes, kind: str) -> bool:
        """Transform by cuFFT alone; returns whether it takes the layouts."""
        layout = self.matched(source, target, axes, kind)
        if layout is not None:
            self.steps.append(Call(source, target, layout, self.inverse))
        return layout is not None

    def between(self, source: Array, target: Array, axes: Axes, kind: str) -> None:
        """Transform a group of axes, with as few copies as the layouts allow."""
        if self.transform(source, target, axes, kind):
            return
        why = f"cuFFT does not take strides {source.strides} to {target.strides} for axes {axes}"
        near = target if kind == "c2c" else self.draft(source.dtype, source.shape, order_of(target))
        if near is not source and self.matched(near, target, axes, kind) is not None:
            self.move(source, near if near is target else self.keep(near), why)
            self.transform(near, target, axes, kind)
            return
        far = self.draft(target.dtype, target.shape, order_of(source))
        if self.matched(source, far, axes, kind) is None:
            inner = self.keep(self.canonical(source.dtype, source.shape, axes))
            source = self.move(source, inner, why)
            far = inner if kind == "c2c" else self.canonical(target.dtype, target.shape, axes)
        if far is not source:
            self.keep(far)
        self.transform(source, far, axes, kind)
        self.move(far, target, why)

    def loaded(self, crop: Array, target: Array, kind: str, axes: Axes, why: str, symmetric: bool = False) -> Array:
        """Copy x to a buffer from which `axes` are transformed to the target without a further copy, if that can be."""
        dtype = self.real if kind == "r2c" else self.complex
        near = self.draft(dtype, self.whole(), order_of(target))
        if self.matched(near, target, axes, kind) is None:
            near = self.canonical(dtype, self.whole(), axes)
        return self.move(crop, self.keep(near), why, symmetric)

    def cropped(self) -> Array:
        """Return x without what lies beyond the points."""
        extents = list(self.x.shape)
        for axis, n in self.points.items():
            halved = self.kind == "c2r" and axis == self.axes[-1]
            extents[axis] = min(extents[axis], n // 2 + 1 if halved else n)
        return replace(self.x, shape=tuple(extents))

    def whole(self) -> Axes:
        """Return the shape of what is transformed: of x with all points."""
        return whole_shape(self.kind, self.x.shape, self.axes, self.how.lengths)

    def canonical(self, dtype: str, shape: Axes, axes: Axes) -> Array:
        """Return a draft with `axes` innermost, or outermost, a layout that cuFFT always takes."""
        others = [a for a in range(len(shape)) if a not in axes]
        if self.outer:  # and the others as those of x lie in memory
            return self.draft(dtype, shape, [*axes, *(a for a in order_of(self.x) if a in others)])
        return self.draft(dtype, shape, [*others, *axes])

    def why_loaded(self, dtype: str, crop: Array) -> str:
        """Return why x must be copied before any layout is looked at, or nothing."""
        if crop.shape != self.whole():
            return "x is padded with zeros"
        if self.x.dtype != dtype:
            return f"x is converted from {self.x.dtype} to {dtype}"
        if not self.how.aligned[0]:
            return f"x does not start at a multiple of {self.alignment} bytes"
        if self.kind == "c2r" and self.how.transform == "hfft":
            return "x is conjugated"
        if self.kind == "c2r" and not (self.how.overwrite and self.how.hermitian):
            return "cuFFT overwrites the input, and parts of x that a real result does not have are dropped"
        return ""

    # -------------------------------------------------------------------------------------- transforms

    def run(self, groups: list[Axes]) -> Steps:
        """Return the steps of the transform with its axes in these groups; the halved one ends the last group."""
        crop = self.cropped()
        real = self.kind != "c2c"
        halved = real and self.points[self.axes[-1]] > 1
        if real and not halved:  # one point along the halved axis: real numbers are their own transform
            groups = [tuple(a for a in group if a != self.axes[-1]) for group in groups]
        groups = [kept for group in groups if (kept := tuple(a for a in group if self.points[a] > 1))]
        if not groups:
            self.move(crop, self.out, "one point along each axis")
        elif self.kind == "r2c" and halved:
            self.from_real(crop, groups)
        elif self.kind == "c2r":
            self.to_real(crop, groups, halved)
        else:
            target = self.target(self.complex)
            why = self.why_loaded(self.complex, crop)
            self.complex_groups(self.move(crop, target, why) if why else crop, target, groups)
            self.deliver(target)
        self.finish()
        return Steps(tuple(self.steps), self.nbytes)

    def target(self, dtype: str) -> Array:
        """Return out, or a buffer in its place if out is not aligned."""
        if self.how.aligned[1] and self.out.dtype == dtype:
            return self.out
        return self.keep(self.draft(dtype, self.out.shape, range(len(self.out.shape))))

    def deliver(self, target: Array) -> None:
        """Copy what has been computed elsewhere to out."""
        if target is not self.out:
            reason = f"out does not start at a multiple of {self.alignment} bytes"
            if self.out.dtype != target.dtype:
                real = target.dtype == self.real
                reason = f"the result is rounded to {self.out.dtype}" if real else "only the real part is kept"
            self.move(target, self.out, reason)

    def complex_groups(self, source: Array, target: Array, groups: list[Axes]) -> None:
        """Transform groups of axes, of complex numbers, from an array to another, or in place."""
        for group in groups:
            self.between(source, target, group, "c2c")
            source = target

    def from_real(self, crop: Array, groups: list[Axes]) -> None:
        """Transform real numbers: the last group first, whose last axis is halved."""
        target, why = self.target(self.complex), self.why_loaded(self.real, crop)
        first = target
        if groups[:-1] and self.is_inner(crop) and not self.is_inner(target):  # halves are not written across memory
            first = self.keep(self.draft(self.complex, target.shape, order_of(crop)))
        source = self.loaded(crop, first, "r2c", groups[-1], why) if why else crop
        self.between(source, first, groups[-1], "r2c")
        self.complex_groups(first, target, groups[:-1])
        self.deliver(target)

    def is_inner(self, array: Array) -> bool:
        """Whether the halved axis is innermost in memory."""
        steps = [abs(step) for n, step in zip(array.shape, array.strides, strict=True) if n > 1]
        return abs(array.strides[self.axes[-1]]) == min(steps, default=1)

    def to_real(self, crop: Array, groups: list[Axes], halved: bool) -> None:
        """Transform a half of a Hermitian array: the last group last; nothing is `halved` along one point."""
        why, shape = self.why_loaded(self.complex, crop), self.whole()
        if not halved:
            made = self.keep(self.draft(self.complex, shape, range(len(shape))))
            self.move(crop, made, why or "its imaginary part is not kept")
            self.complex_groups(made, made, groups)
            self.deliver(made)
            return
        target = self.target(self.real)
        symmetric = not self.how.hermitian
        source = self.loaded(crop, target, "c2r", groups[-1], why, symmetric) if why else crop
        self.complex_groups(source, source, groups[:-1])
        self.between(source, target, groups[-1], "c2r")
        self.deliver(target)

    def finish(self) -> None:
        """Have a copy multiply by the factor, and conjugate; without a copy that does, add a pass."""
        scale = factor(self.how.transform, self.how.norm, self.how.lengths)
        conjugated = self.how.transform in ("hfft", "ihfft")
        moves = {i: step for i, step in enumerate(self.steps) if isinstance(step, Move)}
        # What is conjugated is x of hfft, which is always copied first, and the result of ihfft.
        at = len(self.steps) - 1 if self.how.transform == "ihfft" else min(moves, default=-1)
        if at in moves:
            self.steps[at] = replace(moves[at], scale=scale, conjugated=conjugated)
        elif (scale != 1 or conjugated) and self.fused and self.calls_last():
            self.steps[-1] = replace(self.steps[-1], scale=scale, conjugated=conjugated)
        elif scale != 1 or conjugated:
            reason = "cuFFT neither multiplies by a factor nor conjugates"
            self.steps.append(Move(self.out, self.out, reason, scale, conjugated))

    def calls_last(self) -> bool:
        """Whether the last step is a plan of cuFFT that can change what it stores."""
        last = self.steps[-1]
        return isinstance(last, Call) and not wrong_callback("store", last.target.dtype, last.layout.lengths)


def _groupings(axes: Axes) -> list[list[Axes]]:
    """Return ways to transform axes in groups of a plan's size; the last axis ends the last group."""
    rest = list(axes)
    groups: list[Axes] = []
    while rest:
        groups.insert(0, tuple(rest[-MOST_AXES:]))
        del rest[-MOST_AXES:]
    found = [groups]
    if len(axes) > 1:
        found.append([(a,) for a in axes])
    if len(axes) > 2:  # what is not nested with the halved axis, or with the last one, by itself
        found.append([*([axes[:-1]] if len(axes) <= MOST_AXES + 1 else [(a,) for a in axes[:-1]]), axes[-1:]])
    return found


def plan_steps(spec: PlanSpec[FftAttributes], fused: bool = False) -> Steps:
    """Return the steps of a transform with the fewest copies, and then the fewest plans of cuFFT.

    `fused`: whether cuFFT may change the elements that it stores, where this saves a pass.
    """
    x, out = (operand(i, o) for i, o in enumerate(spec.operands))
    return plan_arrays(spec.attributes, x, out, fused=fused)


def plan_arrays(how: FftAttributes, x: Array, out: Array, nbytes: int = 0, *, fused: bool = False) -> Steps:
    """Return the steps of a transform from an array to another; the first bytes of the workspace are taken."""
    return min(plans(how, x, out, nbytes, fused=fused), key=lambda steps: steps.cost)


def plans(
    how: FftAttributes, x: Array, out: Array, nbytes: int = 0, *, fused: bool = False, outer: bool = False
) -> list[Steps]:
    """Return the steps of a transform with its axes grouped in each way; with those of buffers innermost or `outer`."""
    return [_Planner(how, x, out, nbytes, fused=fused, outer=outer).run(groups) for groups in _groupings(how.axes)]
